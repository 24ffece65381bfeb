"""Locally private online learning (paper P1, Algorithm 1).

Agent i keeps a model theta_i in a convex compact set, and at step t

    y_i(t)       = theta_i(t) + zeta_i(t)                                       (line 5)
                   zeta ~ Lap(b_i(t)), growing
    theta_i(t+1) = Proj[ theta_i(t) + gamma_t sum_j w_ij (y_j(t) - theta_i(t))
                         - lambda_t d_i(t) ]                                    (lines 7, 8)

with d_i(t) the mean gradient over ALL records that have arrived by step t, taken at theta_i(t)
(line 4). The coupling gamma_t decays, which tames noise that grows; the mean over a growing history
is what makes the budget finite for ever (Theorem 5).

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
from typing import Any, ClassVar, NamedTuple

import jax
import numpy as np

from hearsay import _validate as require
from hearsay.base import Algorithm, Finding, Inbox, Noise, Private, per_agent_rates
from hearsay.graphs import Graph
from hearsay.privacy.float64 import Magnitudes
from hearsay.privacy.recursion import Release, forward
from hearsay.problems.losses.domains import Domain
from hearsay.problems.problem import Problem
from hearsay.problems.sampling.samplers import History, Sampling
from hearsay.schedules import Constant, PowerLaw, Schedule, nonnegative


class State(NamedTuple):
    params: jax.Array


class Message(NamedTuple):
    params: Any


class Rates(NamedTuple):
    step: Any
    coupling: Any
    noise: Any


@dataclass(frozen=True, kw_only=True)
class LdpOnline(Algorithm):
    """Locally private online learning (paper P1).

    step, coupling: the schedules lambda_t and gamma_t. noise: the Laplace scale b_t (or the
    Gaussian's standard deviation), one schedule or one per agent. feedback: couple through the
    agent's own noisy message. mechanism: "laplace" or "gaussian". sampling: History() as in the
    paper; Fresh() uses each step's records only. average: read out a running average of the models.

    Example: ldp_online(step=PowerLaw(1, -0.77), coupling=PowerLaw(1, -0.65), noise=[PowerLaw(1,
    0.1 + 0.01 * i) for i in range(1, 6)])
    """

    name: ClassVar[str] = "ldp-online"
    channels: ClassVar[dict[str, str]] = {"params": "coupling"}

    step: Schedule = PowerLaw(1.0, -0.77)
    coupling: Schedule = PowerLaw(1.0, -0.65)
    noise: Noise = PowerLaw(1.0, 0.1)
    feedback: bool = False
    mechanism: str = "laplace"
    sampling: Sampling = field(default_factory=History)

    def __post_init__(self) -> None:
        super().__post_init__()
        require.settle(self, step=nonnegative, coupling=nonnegative)
        require.flag("feedback", self.feedback)

    def init(self, params: jax.Array) -> State:
        return State(params)

    def draw(self, key: jax.Array, params: jax.Array) -> Message:
        return Message(self.fresh_noise(key, params))

    def prepare(self, state: State, batch, rates: Rates) -> tuple[Message, State]:
        return Message(Private(state.params, rates.noise)), state  # line 5

    def update(
        self, state: State, sent: Message, inbox: Inbox, batch, rates: Rates, domain: Domain
    ) -> State:
        own = sent.params if self.feedback else state.params
        pull = inbox.total.params + inbox.own.params * own  # sum_j w_ij (y_j - own)
        # line 7
        moved = state.params + rates.coupling * pull - rates.step * batch.gradient(state.params)
        return State(domain.project(moved))  # line 8

    def predict(self, state: State) -> jax.Array:
        return state.params

    def rates(self, steps: np.ndarray, agents: int) -> Rates:
        laws = (self.step, self.coupling, self.noise)
        return Rates._make(per_agent_rates(law, steps, agents) for law in laws)

    @property
    def step_size(self) -> Schedule:
        return self.step

    def magnitudes(self, agent: int, agents: int) -> Magnitudes:
        return Magnitudes(self.step, self.coupling)

    def leak(self, graph: Graph, agent: int) -> Schedule:
        return (
            Constant(0.0) if self.feedback else self.coupling.scaled(float(graph.row_sums[agent]))
        )

    def releases(self, agent: int, curvature: tuple[float, float]) -> tuple[Release, ...]:
        return (Release("params", self.noise_for(agent)),)

    def check(self, graph: Graph, problem: Problem) -> None:
        super().check(graph, problem)
        graph.require_symmetric()

    def theory(self, graph: Graph, problem: Problem) -> list[Finding]:
        from hearsay.algorithms.theory import ldp_online

        return ldp_online(self, graph, problem)

    def paper_epsilon(
        self, graph: Graph, agent: int, problem: Problem, horizon: int, delta: float | None = None
    ) -> float | None:
        """Theorem 5 (i), equation (20), with our C and L: sum_t sqrt(n) C tau_t / b_t for
        t = 1 .. horizon - 1. Where no L is known (a neural network), the most favourable one, 0.
        """
        if self.mechanism != "laplace":
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
        return float(factor * problem.change * total)
