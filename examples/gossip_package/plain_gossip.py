"""Plain gossip with noisy messages: agents move towards what they hear and down their gradients.

    x_i(k+1) = Proj[ x_i(k) + gamma_k sum_j w_ij (y_j(k) - x_i(k)) - alpha_k g_i(k) ],
    y_j(k) = x_j(k) + noise of scale b_k

Sensitivity. The messages y_j are on the transcript, so a step keeps 1 - gamma_k sum_j w_ij of the
private state and adds alpha_k times a gradient; the message shows the state.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, final

from hearsay.base import Algorithm, Inbox, Magnitudes, Message, Noise, Private, State
from hearsay.graphs import Graph
from hearsay.privacy.recursion import Release
from hearsay.problems.losses.domains import Domain
from hearsay.problems.sampling.samplers import Cyclic, Sampling
from hearsay.problems.task import Task
from hearsay.schedules import Constant, PowerLaw, Schedule


@final
@dataclass(frozen=True, kw_only=True)
class PlainGossip(Algorithm):
    """Plain gossip.

    Args:
      step: alpha_k.
      pull: gamma_k, how far an agent moves towards what it hears.
      noise: b_k, one schedule or one per agent.
      mechanism: "laplace" or "gaussian".
      sampling: Cyclic() unless given.
      average: read out a running average of the models.
    """

    channels: ClassVar[dict[str, str]] = {"params": "coupling"}

    name: str = "plain-gossip"
    step: Schedule = PowerLaw(0.5, -0.75)
    pull: Schedule = Constant(0.8)
    noise: Noise = Constant(1.0)
    mechanism: str = "laplace"
    sampling: Sampling = field(default_factory=Cyclic)

    def prepare(self, state: State, batch: Any, rates: Any) -> tuple[Message, State]:
        return Message(Private(state.params, rates.noise)), state

    def update(
        self, state: State, sent: Message, inbox: Inbox, batch: Any, rates: Any, domain: Domain
    ) -> State:
        heard = inbox.total.params + inbox.own.params * state.params
        moved = state.params + rates.pull * heard - rates.step * batch.gradient(state.params)
        return State(domain.project(moved))

    def leak(self, heard: float) -> Schedule:
        return self.pull.scaled(heard)

    def releases(self, agent: int, curvature: tuple[float, float]) -> tuple[Release, ...]:
        return (Release("params", self.noise_for(agent)),)

    def magnitudes(self, agent: int, agents: int) -> Magnitudes:
        return Magnitudes(step=self.step, coupling=self.pull, tracking=Constant(0), resolution=0.0)

    def check(self, graph: Graph, problem: Task) -> None:
        super().check(graph, problem)
        graph.require_symmetric()
