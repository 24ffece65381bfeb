"""What both forms of paper P2's gradient tracking share: a model and a tracker, with the noise of
each. They differ in what an update takes for the agent's own: what it sent, or what it has
(gradient_tracking.py; experiments/printed_tracking.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hearsay import _validate as require
from hearsay.base import Algorithm, Noise, Private
from hearsay.graphs import Graph
from hearsay.privacy.adjacency import REPLACE
from hearsay.privacy.recursion import Release, forward
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


@dataclass(frozen=True, kw_only=True)
class Tracking(Algorithm):
    """The message, its noise and the coefficients; an update is each form's own."""

    message: ClassVar[type] = Message
    paper_mechanisms: ClassVar[tuple[str, ...]] = ("laplace",)

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

    def leak(self, heard: float) -> Schedule:
        return Constant(0.0)

    def releases(self, agent: int, curvature: tuple[float, float]) -> tuple[Release, ...]:
        reaction = max(abs(curvature[0]), abs(curvature[1]))
        return (
            Release("params", self.noise_for(agent)),
            Release("tracker", self.noise_for(agent, "tracker_noise"), state=reaction, fresh=1.0),
        )

    def paper_epsilon(
        self, graph: Graph, agent: int, problem: Task, horizon: int, delta: float | None = None
    ) -> float | None:
        return lemmas_2_and_3(self, graph, agent, problem, horizon)


@require.plain_arguments
def lemmas_2_and_3(
    algorithm: Any, graph: Graph, agent: int, problem: Task, horizon: int
) -> float | None:
    """The paper's budget as printed, with our C: its K + 1 messages k = 0 .. K are our horizon."""
    if not algorithm.in_paper or horizon == 0:
        return None
    k = np.arange(horizon)
    sizes = algorithm.sampling.sizes(k, float(problem.counts[agent]), problem.arrivals)
    exposure = problem.change_under(REPLACE) / sizes
    keeps = np.abs(1 - algorithm.tracking(k) * float(graph.pushed_sums[agent]))
    # Delta y_k = |1 - beta c| Delta y_{k-1} + 2 C / m, from C / m at k = 0; Delta
    # x_k = |1 - alpha r| Delta x_{k-1} + gamma Delta y_{k-1}.
    tracker = forward(
        np.concatenate([[0.0], keeps[1:]]), np.concatenate([exposure[:1], 2 * exposure[1:]])
    )[1:]
    state = forward(
        np.abs(1 - algorithm.coupling(k) * float(graph.row_sums[agent])),
        algorithm.step(k) * tracker,
    )[:-1]
    with np.errstate(divide="ignore", invalid="ignore"):
        total = np.sum(state / algorithm.noise_for(agent)(k)) + np.sum(
            tracker / algorithm.noise_for(agent, "tracker_noise")(k)
        )
    # The paper's C is about l1.
    factor = 1.0 if problem.norm == "l1" else math.sqrt(problem.dimension)
    return math.inf if np.isnan(total) else float(factor * total)  # without noise: infinite
