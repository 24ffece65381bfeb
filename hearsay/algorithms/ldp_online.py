"""Locally private online learning (paper P1, Algorithm 1).

Agent i keeps a model theta_i in a convex compact set, and at step t

    y_i(t)       = theta_i(t) + zeta_i(t)                                       (line 5)
                   zeta ~ Lap(b_i(t)), growing
    theta_i(t+1) = Proj[ theta_i(t) + gamma_t sum_j w_ij (y_j(t) - theta_i(t))
                         - lambda_t d_i(t) ]                                    (lines 7, 8)

with d_i(t) the mean gradient over ALL records that have arrived by step t, taken at theta_i(t)
(line 4). The coupling gamma_t decays, which tames noise that grows; the mean over a growing history
is what makes the budget finite forever (Theorem 5).

`feedback` uses y_j - y_i instead of y_j - theta_i: with symmetric weights the noise then cancels in
the network mean. The private state no longer leaks into the coupling (leak 0), so its sensitivity
contracts by strong convexity alone.

Sensitivity (privacy/recursion.py): a_t = 1 - gamma_t sum_j w_ij as printed, 1 with feedback; step
lambda_t; exposure C / min((t+1) N, held). The paper's formula (20) drops the 1/(t+1) of the history
and adds L lambda_t where the mean-value Hessian gives max(|a - lambda mu|, |a - lambda L|); it is
what `paper_epsilon` evaluates.

The paper's two-point interpolation of past gradients (its (5)-(7)) divides vectors by
vectors: it is exact for one parameter or a diagonal Hessian only. The exact ways are in
problems/sampling/samplers.py: a chunked history, or two statistics where the loss is quadratic
in the margin.

Reference: Z. Chen and Y. Wang, Locally Differentially Private Distributed Online Learning with
Guaranteed Optimality.
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
from hearsay.problems.sampling.samplers import History, Sampling
from hearsay.problems.task import Task
from hearsay.schedules import Constant, PowerLaw, Schedule

if TYPE_CHECKING:
    from hearsay.algorithms.theory.findings import Finding


@final
@dataclass(frozen=True, kw_only=True)
class LdpOnline(Algorithm):
    """Locally private online learning (paper P1).

    Args:
      step: lambda_t.
      coupling: gamma_t.
      noise: the Laplace scale b_t (or the Gaussian's standard deviation), one schedule or one
        per agent.
      feedback: couple through the agent's own noisy message.
      mechanism: "laplace" or "gaussian".
      sampling: History() as in the paper; Fresh() uses each step's records only.
      average: read out a running average of the models.
      secrets: Gaussian noise that pairs of agents share (`hearsay.Secrets`).

    Example:
      >>> import hearsay as hs
      >>> scales = [hs.PowerLaw(1, 0.1 + 0.01 * i) for i in range(1, 6)]
      >>> hs.ldp_online(step="(k+1)^-0.77", coupling="(k+1)^-0.65", noise=scales).noise_for(4)
      PowerLaw(scale=1.0, exponent=0.15000000000000002, shift=1.0)
    """

    paper_mechanisms: ClassVar[tuple[str, ...]] = ("laplace",)
    channels: ClassVar[dict[str, str]] = {"params": "coupling"}
    agent_facts: ClassVar[tuple[str, ...]] = ("heard",)

    name: str = "ldp-online"
    step: Schedule = PowerLaw(1.0, -0.77)
    coupling: Schedule = PowerLaw(1.0, -0.65)
    noise: Noise = PowerLaw(1.0, 0.1)
    feedback: bool = False
    mechanism: str = "laplace"
    sampling: Sampling = field(default_factory=History)

    def __post_init__(self) -> None:
        super().__post_init__()
        require.flag("feedback", self.feedback)

    def prepare(self, state: State, batch: Any, rates: Any) -> tuple[Message, State]:
        return Message(Private(state.params, rates.noise)), state  # line 5

    def update(
        self, state: State, sent: Message, inbox: Inbox, batch: Any, rates: Any, domain: Domain
    ) -> State:
        own = sent.params if self.feedback else state.params
        pull = inbox.total.params + inbox.own.params * own  # sum_j w_ij (y_j - own)
        # line 7
        moved = state.params + rates.coupling * pull - rates.step * batch.gradient(state.params)
        return State(domain.project(moved))  # line 8

    def leak(self, heard: float) -> Schedule:
        return Constant(0.0) if self.feedback else self.coupling.scaled(heard)

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
        graph.require_symmetric(self.name)

    def theory(self, graph: Graph, problem: Task) -> list[Finding]:
        from hearsay.algorithms.theory.ldp_online import ldp_online

        return ldp_online(self, graph, problem)

    def paper_epsilon(
        self, graph: Graph, agent: int, problem: Task, horizon: int, delta: float | None = None
    ) -> float | None:
        """Theorem 5 (i), equation (20), with our C and L: sum_t sqrt(n) C tau_t / b_t for
        t = 1 .. horizon - 1. Where no L is known (a neural network), the most favourable one, 0.
        """
        if not self.in_paper:
            return None
        k = np.arange(horizon)
        weakest = float(graph.row_sums.min())
        smooth = problem.loss.curvature[1]
        growth = (
            1
            - weakest * self.coupling(k)
            + self.step(k) * (smooth if math.isfinite(smooth) else 0.0)
        )
        tau = forward(growth, self.step(k))[1:-1]  # tau_t = growth_{t-1} tau_{t-1} + lambda_{t-1}
        with np.errstate(divide="ignore", over="ignore"):
            total = np.sum(tau / self.noise_for(agent)(k[1:]))
        factor = np.sqrt(problem.dimension) if problem.norm == "l2" else 1.0
        return float(factor * problem.change_under(REPLACE) * total)
