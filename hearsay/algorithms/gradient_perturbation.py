"""Two-time-scale stochastic approximation with growing sample sizes (paper P3, Algorithm 2): noise
on the gradient.

With A = [a_ij] doubly stochastic, g_i(k) the mean gradient over gamma_k records and n_i(k) the
noise of step k,

    x_i(k+1) = (1 - beta_k) x_i + beta_k sum_j a_ij x_j - alpha_k (g_i(k) + n_i(k))

The number of records per step is the sampler's: sampling=Fresh(size="(k+1)^1.2"). A mean over more
and more of them is what makes the budget finite: a use at step k costs C / (gamma_k b_k), whatever
the loss's curvature (noisy_gradient.py).

**Correlated noise.** With `correlation` n_i(k) is row k of V C^-1 xi_i, C a factorization of the
prefix sums (mechanisms/factorized/kinds.py): later steps take back part of what earlier ones added,
which leaves less noise in the sum of many steps for the same budget. Given the transcript, message
k + 1 is F(transcript) + alpha_k (h_i(k) - n_i(k)) with

    h_i(k) = (Proj[F - alpha_k g_i(k)] - F) / alpha_k,    F a function of earlier messages,

so that whoever has the messages has h(k) - n(k), and the other way round: row k is multiplied by
the very alpha_k that multiplies its gradient, and the step sizes, which are public, do not matter.
A projection brings two points no further apart, so a record moves h(k) by at most c_k = C / gamma_k
where it is used, in a direction that earlier messages determine, hostile ones included. All
messages together are one Gaussian mechanism, rho = c^2 max_P |C 1_P|^2 / 2 V^2, of which the first
t cost the leading block (privacy/factorized.py). That needs weights c_k that stay the same; a
sampler that keeps the uses of a record apart (`Cyclic` of a constant size, `Fresh`) is charged
for just those uses, any other for a use in every round. Batches that are drawn in secret cost no
less: the noise that later steps take back is private state, and amplification is about methods that
keep none. In averaging rounds nothing is added, so that they are as free as without correlation.

Reference: J. Wang and J.-F. Zhang, Differentially Private Distributed Stochastic Optimization with
Time-Varying Sample Sizes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np

from hearsay import _validate as require
from hearsay.algorithms.averaging import AveragedGradient
from hearsay.algorithms.correlation import planned, require_constant, require_planned
from hearsay.algorithms.noisy_gradient import Pending
from hearsay.base import Inbox, Magnitudes, Message, Noise
from hearsay.graphs import Graph
from hearsay.mechanisms.factorized.kinds import Factorization
from hearsay.privacy.adjacency import REPLACE
from hearsay.privacy.factorized import FactorizedAccount
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
      secrets: Gaussian noise that pairs of agents share (`hearsay.Secrets`).
      averaging: how many more exchanges follow each message; they cost no privacy (averaging.py).
      chebyshev: with weights that bring agents together faster.
      momentum: of messages, which costs no privacy either (averaging.py).
      correlation: how Gaussian noise is correlated over time: "toeplitz", "tree", "dense", "blt",
        "banded" or "identity" (independent); None: every step's noise is its own.
      width: the bands of "banded" (16; as many as steps between two uses of a record is a good
        choice) or the buffers of "blt" (4), unless given.
      horizon: the rounds that correlated noise is planned for.

    Example:
      >>> import hearsay as hs
      >>> hs.gradient_perturbation(noise="(k+1)^0.1", sampling=hs.Fresh("(k+1)^1.2")).noise
      PowerLaw(scale=1.0, exponent=0.1, shift=1.0)
      >>> cyclic = {"mechanism": "gaussian", "noise": 1.0, "sampling": hs.Cyclic(10)}
      >>> hs.gradient_perturbation(correlation="toeplitz", horizon=200, **cyclic).rounds
      200
    """

    paper_mechanisms: ClassVar[tuple[str, ...]] = ("laplace",)
    amplifies: ClassVar[bool] = True
    agent_facts: ClassVar[tuple[str, ...]] = ()

    name: str = "gradient-perturbation"
    step: Schedule = PowerLaw(0.5, -0.8)
    coupling: Schedule = PowerLaw(0.5, -0.5)
    noise: Noise = PowerLaw(1.0, 0.1)
    mechanism: str = "laplace"
    sampling: Sampling = field(default_factory=lambda: Cyclic(SampleSize(PowerLaw(1.0, 1.2))))
    correlation: str | None = None
    width: int | None = None
    horizon: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require.settle(
            self,
            coupling=below_one,
            width=require.optional(require.count),
            horizon=require.optional(require.count),
        )
        if self.correlation is None:
            for name in ("width", "horizon"):
                if (given := getattr(self, name)) is not None:
                    require.fail(name, "left out without a correlation", given)
            return
        require_planned("correlation", self.correlation, self.width)
        if self.horizon is None:
            require.fail("horizon", "given with a correlation: the rounds it is planned for", None)
        if not self.law.at_delta:
            require.fail("mechanism", "gaussian with a correlation", self.mechanism)
        require_constant(noise=self.noise)

    @cached_property
    def factors(self) -> Factorization | None:  # type: ignore[override]
        if self.correlation is None or self.horizon is None:
            return None
        return planned(self.correlation, self.horizon, self.width)

    @property
    def rounds(self) -> float:
        return math.inf if self.horizon is None else self.horizon

    def update(
        self, state: Pending, sent: Message, inbox: Inbox, batch: Any, rates: Any, domain: Domain
    ) -> Pending:
        return self.stepped(state, sent, inbox, batch, rates, domain)

    def own_accounts(
        self, graph: Graph, agent: int, problem: Task
    ) -> tuple[FactorizedAccount, ...] | None:
        if self.factors is None:
            return None
        held, arrivals = float(problem.counts[agent]), problem.arrivals
        pattern = self.sampling.pattern(held, arrivals)
        basis, separation = "gradient at a public point", None
        if not pattern.single:
            separation = int(pattern.gap)
            if separation == 1 and self.rounds > 1:
                basis += ", charged as if a record were in the batch of every round"
        moved = problem.change
        if math.isfinite(moved):
            moved = self._exposed(self.sampling.exposure(moved, held, arrivals))
        return (
            FactorizedAccount(
                self.factors.written(),
                moved,
                float(self.noise_for(agent)(0)),
                pattern,
                problem.dimension,
                basis,
                problem.privacy_assumptions(),
                separation,
                delay=self.delay,
            ),
        )

    def _exposed(self, exposure: Schedule) -> float:
        """C / gamma, the same in every round."""
        assert self.horizon is not None
        each = np.asarray(exposure(np.arange(self.horizon)), dtype=float)
        if np.any(each != each[0]):
            require.fail(
                "sampling",
                "one whose steps use a constant number of records with a correlation (Cyclic or"
                " Fresh of a constant size, or all records in every step)",
                str(self.sampling),
            )
        return float(each[0])

    def check(self, graph: Graph, problem: Task) -> None:
        super().check(graph, problem)
        if self.correlation is None or self.horizon is None:
            return
        quiet = np.flatnonzero(self.step(np.arange(self.horizon)) == 0)
        if len(quiet):
            # What no message carries could not be taken back.
            require.fail("step", "positive in every round", f"0 in round {quiet[0]}")
        if math.isfinite(problem.change):
            for held in np.unique(problem.counts).tolist():
                self._exposed(self.sampling.exposure(problem.change, held, problem.arrivals))

    def magnitudes(self, agent: int, agents: int) -> Magnitudes:
        return replace(super().magnitudes(agent, agents), coupling=self.coupling)

    def theory(self, graph: Graph, problem: Task) -> list[Finding]:
        from hearsay.algorithms.theory.gradient_perturbation import gradient_perturbation

        # The paper's theorems are about one exchange per gradient, and independent noise.
        if self.averaging or self.correlation or self.momentum:
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
