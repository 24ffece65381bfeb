"""Two-time-scale stochastic approximation with growing sample sizes (paper P3, Algorithm 2): noise
on the gradient.

With A = [a_ij] doubly stochastic, g_i(k) the mean gradient over gamma_k records and n_i(k) the
noise of step k,

    x_i(k+1) = (1 - beta_k) x_i + beta_k sum_j a_ij x_j - alpha_k (g_i(k) + n_i(k))

The number of records per step is the sampler's: sampling=Fresh(size="(k+1)^1.2"). A mean over more
and more of them is what makes the budget finite: a use at step k costs C / (gamma_k b_k), whatever
the loss's curvature (noisy_gradient.py).

Reference: J. Wang and J.-F. Zhang, Differentially Private Distributed Stochastic Optimization with
Time-Varying Sample Sizes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np

from hearsay import _validate as require
from hearsay.algorithms.averaging import AveragedGradient
from hearsay.algorithms.noisy_gradient import Pending
from hearsay.base import Inbox, Magnitudes, Message, Noise
from hearsay.graphs import Graph
from hearsay.privacy.adjacency import REPLACE
from hearsay.problems.losses.domains import Domain
from hearsay.problems.sampling.samplers import Cyclic, Sampling
from hearsay.problems.task import Task
from hearsay.schedules import PowerLaw, SampleSize, Schedule, below_one

if TYPE_CHECKING:
    from hearsay.algorithms.theory.findings import Finding


@final
@dataclass(frozen=True, kw_only=True)
class GradientPerturbation(AveragedGradient):
    """Gradient perturbation with growing sample sizes (paper P3, Algorithm 2).

    Args:
      step: alpha_k.
      coupling: beta_k < 1.
      noise: the Laplace scale (or the Gaussian's standard deviation) of the noise on the gradient,
        one schedule or one per agent.
      mechanism: "laplace" or "gaussian".
      sampling: the sampler with its sample size gamma_k.
      average: read out a running average of the models.
      averaging: how many more exchanges follow each message; they cost no privacy (averaging.py).
      chebyshev: with weights that bring agents together faster.

    Example:
      >>> import hearsay as hs
      >>> hs.gradient_perturbation(noise="(k+1)^0.1", sampling=hs.Fresh("(k+1)^1.2")).noise
      PowerLaw(scale=1.0, exponent=0.1, shift=1.0)
    """

    paper_mechanisms: ClassVar[tuple[str, ...]] = ("laplace",)
    amplifies: ClassVar[bool] = True

    name: str = "gradient-perturbation"
    step: Schedule = PowerLaw(0.5, -0.8)
    coupling: Schedule = PowerLaw(0.5, -0.5)
    noise: Noise = PowerLaw(1.0, 0.1)
    mechanism: str = "laplace"
    sampling: Sampling = field(default_factory=lambda: Cyclic(SampleSize(PowerLaw(1.0, 1.2))))

    def __post_init__(self) -> None:
        super().__post_init__()
        require.settle(self, coupling=below_one)

    def update(
        self, state: Pending, sent: Message, inbox: Inbox, batch: Any, rates: Any, domain: Domain
    ) -> Pending:
        # Where the gradient's bound holds; a large ball never acts.
        own = domain.project(sent.params)
        heard = inbox.total.params + inbox.own.params * sent.params
        moved = own + rates.coupling * (heard - own) - rates.step * batch.gradient(own)
        return Pending(domain.project(moved), rates.step * rates.noise)

    def magnitudes(self, agent: int, agents: int) -> Magnitudes:
        return replace(super().magnitudes(agent, agents), coupling=self.coupling)

    def theory(self, graph: Graph, problem: Task) -> list[Finding]:
        from hearsay.algorithms.theory.gradient_perturbation import gradient_perturbation

        # The paper's theorems are about one exchange per gradient.
        if self.averaging:
            return []
        return gradient_perturbation(self, graph, problem)

    def paper_epsilon(
        self, graph: Graph, agent: int, problem: Task, horizon: int, delta: float | None = None
    ) -> float | None:
        """Theorem 5 as printed: sum over k = 1 .. horizon of C / (gamma_k sigma_k),
        which leaves out k = 0.
        """
        if not self.in_paper:
            return None
        k = np.arange(1, horizon + 1)
        sizes = self.sampling.sizes(k, float(problem.counts[agent]), problem.arrivals)
        share = problem.change_under(REPLACE) / sizes
        # The paper's C is about l1; ours is about l2 unless the problem says otherwise.
        factor = 1.0 if problem.norm == "l1" else math.sqrt(problem.dimension)
        with np.errstate(divide="ignore"):
            return factor * float(np.sum(share / self.noise_for(agent)(k)))
