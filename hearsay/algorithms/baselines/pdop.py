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
from typing import ClassVar

from hearsay.algorithms.baselines.dsgd import Dsgd, Message, Rates, State
from hearsay.base import Inbox, Noise
from hearsay.problems.losses.domains import Domain
from hearsay.schedules import Geometric, Schedule


@dataclass(frozen=True, kw_only=True)
class Pdop(Dsgd):
    """Options as for DSGD; the default step and noise fall geometrically, the step faster."""

    name: ClassVar[str] = "pdop"
    gradient_at_state: ClassVar[bool] = False

    step: Schedule = Geometric(0.5, 0.97)
    noise: Noise = Geometric(1.0, 0.98)

    def update(
        self, state: State, sent: Message, inbox: Inbox, batch, rates: Rates, domain: Domain
    ) -> State:
        heard = domain.project(inbox.total.params + inbox.own.params * sent.params)
        return State(domain.project(heard - rates.step * batch.gradient(heard)))
