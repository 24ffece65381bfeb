"""Decentralized SGD whose states travel through a stochastic ternary quantizer (Wang and
Basar 2023).

    x_i(k+1) = Proj[ sum_j a_ij Q(x_j(k)) - alpha_k g_i(k) ],
        Q(x) in {-r, 0, r} per coordinate, with mean x

It is DSGD (dsgd.py) with another mechanism: the same recursion (noisy_average.py), and messages
that are (0, delta)-private, delta = sum_k sqrt(d) Phi(k) / r_k (mechanisms/ternary.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, final

from hearsay.algorithms.baselines.noisy_average import NoisyAverage
from hearsay.base import Inbox, Message, Noise, State
from hearsay.problems.losses.domains import Domain
from hearsay.schedules import Constant


@final
@dataclass(frozen=True, kw_only=True)
class TernaryDsgd(NoisyAverage):
    """DSGD with ternary messages.

    Args:
      step: alpha_k.
      noise: the threshold r, which must exceed the models' coordinates for the messages to
        be unbiased.
      mechanism: "ternary".
      sampling: Cyclic() unless given.
      average: read out a running average of the models.
      secrets: none: only Gaussian noise can be shared.

    Example:
      >>> import hearsay as hs
      >>> hs.ternary_dsgd(noise=20).mechanism
      'ternary'
    """

    inexact: ClassVar[str] = "ternary messages are random whatever their threshold"
    agent_facts: ClassVar[tuple[str, ...]] = ()

    name: str = "ternary-dsgd"
    noise: Noise = Constant(5.0)
    mechanism: str = "ternary"

    def update(
        self, state: State, sent: Message, inbox: Inbox, batch: Any, rates: Any, domain: Domain
    ) -> State:
        moved = self.heard(sent, inbox) - rates.step * batch.gradient(state.params)
        return State(domain.project(moved))
