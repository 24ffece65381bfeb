"""Decentralized stochastic gradient descent with noise on what is shared (Pu et al. 2021).

    x_i(k+1) = Proj[ sum_j a_ij (x_j(k) + n_j(k)) - alpha_k g_i(k) ]
        (the sum includes j = i, with the noise that was sent)

The projection is onto the large ball that keeps the bound on gradients true. Sensitivity:
noisy_average.py. DOLA (dola.py) is the same with other schedules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

from hearsay.algorithms.baselines.noisy_average import NoisyAverage
from hearsay.base import Inbox, Message, State
from hearsay.problems.losses.domains import Domain


@final
@dataclass(frozen=True, kw_only=True)
class Dsgd(NoisyAverage):
    """Decentralized SGD.

    Args:
      step: alpha_k.
      noise: the Laplace scale (or the Gaussian's standard deviation), one schedule or one
        per agent.
      mechanism: "laplace" or "gaussian".
      sampling: Cyclic() unless given.
      average: read out a running average of the models.
      secrets: Gaussian noise that pairs of agents share (`hearsay.Secrets`).

    Example:
      >>> import hearsay as hs
      >>> hs.dsgd(step="0.5*(k+1)^-0.75", noise=2).noise
      Constant(value=2.0)
    """

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"dola": {}}
    agent_facts: ClassVar[tuple[str, ...]] = ()

    name: str = "dsgd"

    def update(
        self, state: State, sent: Message, inbox: Inbox, batch: Any, rates: Any, domain: Domain
    ) -> State:
        moved = self.heard(sent, inbox) - rates.step * batch.gradient(state.params)
        return State(domain.project(moved))
