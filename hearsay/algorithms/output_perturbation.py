"""Two-time-scale stochastic approximation with growing sample sizes (paper P3, Algorithm 1): noise
on the output.

With A = [a_ij] doubly stochastic, g_i(k) the mean gradient over gamma_k records and n_i(k) the
noise of step k,

    x_i(k+1) = (1 - beta_k) x_i + beta_k sum_j a_ij (x_j + n_j) - alpha_k g_i(k)               (2)
               (the sum includes j = i)

The number of records per step is the sampler's: sampling=Fresh(size="(k+1)^1.1"). A mean over more
and more of them is what makes the budget finite.

Sensitivity. The message is x_i + n_i, so everything but (1 - beta_k) x_i - alpha_k g_i is on the
transcript: a_k = 1 - beta_k, step alpha_k, exposure C / gamma_k. `feedback` couples through the
agent's own noisy message, x_i + beta_k (sum_j a_ij y_j - y_i) - alpha_k g_i: with A doubly
stochastic the noise cancels in the network mean, and a_k = 1. The paper's Lemma 1 drops the last
term of its sum and takes the gradient at the same point in both runs; it is what `paper_epsilon`
evaluates.

Reference: J. Wang and J.-F. Zhang, Differentially Private Distributed Stochastic Optimization with
Time-Varying Sample Sizes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np

from hearsay import _validate as require
from hearsay.base import Algorithm, Inbox, Magnitudes, Message, Noise, Private, State
from hearsay.graphs import Graph
from hearsay.privacy.adjacency import REPLACE
from hearsay.privacy.recursion import Release, forward
from hearsay.problems.losses.domains import Domain
from hearsay.problems.sampling.samplers import Cyclic, Sampling
from hearsay.problems.task import Task
from hearsay.schedules import Constant, PowerLaw, SampleSize, Schedule, below_one

if TYPE_CHECKING:
    from hearsay.algorithms.theory.findings import Finding


@final
@dataclass(frozen=True, kw_only=True)
class OutputPerturbation(Algorithm):
    """Output perturbation with growing sample sizes (paper P3, Algorithm 1).

    Args:
      step: alpha_k.
      coupling: beta_k < 1.
      noise: the Laplace scale sigma_k (or the Gaussian's standard deviation), one schedule or one
        per agent.
      feedback: couple through the agent's own noisy message.
      mechanism: "laplace" or "gaussian".
      sampling: the sampler with its sample size gamma_k.
      average: read out a running average of the models.
      secrets: Gaussian noise that pairs of agents share (`hearsay.Secrets`).

    Example:
      >>> import hearsay as hs
      >>> hs.output_perturbation(coupling="0.5*(k+1)^-0.6", sampling=hs.Fresh("(k+1)^1.1")).coupling
      PowerLaw(scale=0.5, exponent=-0.6, shift=1.0)
    """

    channels: ClassVar[dict[str, str]] = {"params": "mixing"}

    paper_mechanisms: ClassVar[tuple[str, ...]] = ("laplace",)
    agent_facts: ClassVar[tuple[str, ...]] = ()

    name: str = "output-perturbation"
    step: Schedule = PowerLaw(0.5, -0.9)
    coupling: Schedule = PowerLaw(0.5, -0.6)
    noise: Noise = PowerLaw(1.0, 0.05)
    feedback: bool = False
    mechanism: str = "laplace"
    sampling: Sampling = field(default_factory=lambda: Cyclic(SampleSize(PowerLaw(1.0, 1.1))))

    def __post_init__(self) -> None:
        super().__post_init__()
        require.settle(self, coupling=below_one, feedback=require.flag)

    def prepare(self, state: State, batch: Any, rates: Any) -> tuple[Message, State]:
        return Message(Private(state.params, rates.noise)), state

    def update(
        self, state: State, sent: Message, inbox: Inbox, batch: Any, rates: Any, domain: Domain
    ) -> State:
        heard = inbox.total.params + inbox.own.params * sent.params  # sum_j a_ij (x_j + n_j)
        own = sent.params if self.feedback else state.params
        # (2)
        moved = (
            state.params
            + rates.coupling * (heard - own)
            - rates.step * batch.gradient(state.params)
        )
        return State(domain.project(moved))

    def leak(self, heard: float) -> Schedule:
        return Constant(0.0) if self.feedback else self.coupling

    def releases(self, agent: int, curvature: tuple[float, float]) -> tuple[Release, ...]:
        return (Release("params", self.noise_for(agent)),)

    def magnitudes(self, agent: int, agents: int) -> Magnitudes:
        return Magnitudes(
            step=self.step,
            coupling=self.coupling,
            tracking=Constant(0.0),
            resolution=0.0,
        )

    def check(self, graph: Graph, problem: Task) -> None:
        super().check(graph, problem)
        graph.require_doubly_stochastic(self.name)

    def theory(self, graph: Graph, problem: Task) -> list[Finding]:
        from hearsay.algorithms.theory.output_perturbation import output_perturbation

        return output_perturbation(self, graph, problem)

    def paper_epsilon(
        self, graph: Graph, agent: int, problem: Task, horizon: int, delta: float | None = None
    ) -> float | None:
        """Theorem 1 with Lemma 1 as printed: sum over k = 1 .. horizon - 1 of Delta_k / sigma_k,
        the sum in (3) ending at l = k - 2.
        """
        if not self.in_paper:
            return None
        k = np.arange(horizon)
        sizes = self.sampling.sizes(k, float(problem.counts[agent]), problem.arrivals)
        jump = self.step(k) * problem.change_under(REPLACE) / sizes
        phi = forward(1 - self.coupling(k), jump)[:-1]
        # The right Delta_k less its last term, which Lemma 1 leaves out (except at k = 1, where it
        # is all there is).
        delta = phi - np.concatenate([[0.0, 0.0], jump[1:-1]])[: len(phi)]
        # The paper's C is about l1; ours is about l2 unless the problem says otherwise.
        factor = 1.0 if problem.norm == "l1" else math.sqrt(problem.dimension)
        with np.errstate(divide="ignore", invalid="ignore"):
            return factor * float(np.sum((delta / self.noise_for(agent)(k))[1:]))
