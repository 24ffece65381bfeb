"""Gradient tracking as paper P2 prints it for an agent, (4) and (6), for comparison only.

    x_i(k+1) = x_i(k) + alpha sum_j R_ij (xn_j - x_i) - gamma y_i(k)                          (4)
    y_i(k+1) = y_i(k) + beta sum_j C_ij (yn_j - y_i) + g_i(k+1) - g_i(k)                      (6)

It keeps 1 - beta sum_j C_ij of the own tracker, a row sum, and uses no noise of its own. The
proofs are about another form, with column sums (algorithms/gradient_tracking.py). On an unbalanced
graph this one does not converge even without noise, and no budget is offered for it.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, final

import jax
import jax.numpy as jnp

from hearsay.algorithms.gradient_tracking import lemmas_2_and_3
from hearsay.algorithms.theory.findings import Finding
from hearsay.algorithms.theory.gradient_tracking import assumptions
from hearsay.base import Algorithm, Inbox, Noise, Private
from hearsay.graphs import Graph
from hearsay.privacy.recursion import Release
from hearsay.problems.losses.domains import Domain
from hearsay.problems.sampling.samplers import Cyclic, Sampling
from hearsay.problems.task import Task
from hearsay.schedules import Constant, PowerLaw, Schedule


class State(NamedTuple):
    """The model, the drift z = y - g, and the tracker y once this step's gradient is known."""

    params: jax.Array
    drift: jax.Array
    tracker: jax.Array


class Message(NamedTuple):
    """The model and the tracker; also the draws of their noise."""

    params: Any
    tracker: Any


@final
@dataclass(frozen=True, kw_only=True)
class PrintedTracking(Algorithm):
    """Gradient tracking with the row sums that are printed.

    Args:
      step: gamma.
      coupling: alpha.
      tracking: beta.
      noise: the scale of the noise on states, one schedule or one per agent.
      tracker_noise: the same on trackers; that of the states unless given.
      mechanism: "laplace" or "gaussian".
      sampling: the sampler with its sample size m.
      average: read out a running average of the models.
    """

    channels: ClassVar[dict[str, str]] = {"params": "coupling", "tracker": "pulling"}
    message: ClassVar[type] = Message
    uncertified: ClassVar[str] = "no budget is offered for the printed variant"

    paper_mechanisms: ClassVar[tuple[str, ...]] = ("laplace",)

    name: str = "printed-tracking"
    step: Schedule = Constant(0.05)
    coupling: Schedule = Constant(0.2)
    tracking: Schedule = Constant(0.2)
    noise: Noise = PowerLaw(1.0, 0.1)
    tracker_noise: Noise | None = None
    mechanism: str = "laplace"
    sampling: Sampling = field(default_factory=Cyclic)

    def __post_init__(self) -> None:
        if self.tracker_noise is None:
            object.__setattr__(self, "tracker_noise", self.noise)
        super().__post_init__()

    def init(self, params: jax.Array) -> State:
        return State(params, jnp.zeros_like(params), jnp.zeros_like(params))

    def prepare(self, state: State, batch: Any, rates: Any) -> tuple[Message, State]:
        tracker = state.drift + batch.gradient(state.params)
        message = Message(Private(state.params, rates.noise), Private(tracker, rates.tracker_noise))
        return message, state._replace(tracker=tracker)

    def update(
        self, state: State, sent: Message, inbox: Inbox, batch: Any, rates: Any, domain: Domain
    ) -> State:
        pull = inbox.total.params + inbox.own.params * state.params  # sum_j R_ij (xn_j - x_i)
        push = inbox.total.tracker + inbox.own.tracker * state.tracker  # sum_j C_ij (yn_j - y_i)
        params = state.params + rates.coupling * pull - rates.step * state.tracker  # (4)
        # (6)
        return State(domain.project(params), state.drift + rates.tracking * push, state.tracker)

    def leak(self, heard: float) -> Schedule:
        return Constant(0.0)

    def releases(self, agent: int, curvature: tuple[float, float]) -> tuple[Release, ...]:
        """Not proved: `uncertified` says so."""
        reaction = max(abs(curvature[0]), abs(curvature[1]))
        return (
            Release("params", self.noise_for(agent)),
            Release("tracker", self.noise_for(agent, "tracker_noise"), state=reaction, fresh=1.0),
        )

    def paper_epsilon(
        self, graph: Graph, agent: int, problem: Task, horizon: int, delta: float | None = None
    ) -> float | None:
        return lemmas_2_and_3(self, graph, agent, problem, horizon)

    def check(self, graph: Graph, problem: Task) -> None:
        super().check(graph, problem)
        graph.require_common_root()
        warnings.warn(
            "printed-tracking does not converge on unbalanced graphs and has no certificate",
            stacklevel=3,
        )

    def theory(self, graph: Graph, problem: Task) -> list[Finding]:
        detail = (
            "they are proved for (7) and (8), with column sums of C; the printed update (6) has its"
            " row sums"
        )
        found = assumptions(self.sampling, graph, problem)
        return [*found, Finding("Theorems 1-5", False, detail)]
