"""Private distributed optimization with geometric steps and noise (Huang et al. 2015).

    z_i(k)   = sum_j a_ij (x_j(k) + n_j(k))   (the sum includes j = i, with the noise that was sent)
    x_i(k+1) = Proj[ z_i(k) - gamma_k grad f_i(z_i(k)) ],
        gamma_k = c q^k,  noise scale c' p^k,  q < p < 1

z_i is a function of the transcript, and so is the point at which the gradient is taken:
Phi(k+1) <= gamma_k c_k [used at k], with nothing carried over and no curvature needed. The steps
sum to a finite number, so the budget is finite but the method stops short of the optimum.

z_i is projected onto the domain before the gradient is taken, so that bounds on gradients over the
domain hold there (a large ball never acts).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, final

from hearsay.algorithms.baselines.noisy_average import NoisyAverage
from hearsay.base import Inbox, Message, Noise, State
from hearsay.problems.losses.domains import Domain
from hearsay.schedules import Geometric, Schedule


@final
@dataclass(frozen=True, kw_only=True)
class Pdop(NoisyAverage):
    """Private distributed optimization with geometric schedules.

    Args:
      step: gamma_k; falls geometrically, faster than the noise, unless given.
      noise: the Laplace scale (or the Gaussian's standard deviation), one schedule or one
        per agent.
      mechanism: "laplace" or "gaussian".
      sampling: Cyclic() unless given.
      average: read out a running average of the models.
      secrets: Gaussian noise that pairs of agents share (`hearsay.Secrets`).

    Example:
      >>> import hearsay as hs
      >>> hs.pdop(step="0.5*0.97^k", noise="0.98^k").step
      Geometric(scale=0.5, ratio=0.97)
    """

    gradient_at_state: ClassVar[bool] = False
    amplifies: ClassVar[bool] = True
    agent_facts: ClassVar[tuple[str, ...]] = ()

    name: str = "pdop"
    step: Schedule = Geometric(0.5, 0.97)
    noise: Noise = Geometric(1.0, 0.98)

    def update(
        self, state: State, sent: Message, inbox: Inbox, batch: Any, rates: Any, domain: Domain
    ) -> State:
        heard = domain.project(self.heard(sent, inbox))
        return State(domain.project(heard - rates.step * batch.gradient(heard)))
