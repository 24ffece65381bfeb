"""What the variants of decentralized SGD share: agents send their noisy models and go on from the
average of what was sent.

    x_i(k+1) = Proj[ sum_j a_ij y_j(k) - alpha_k g_i(k) ],    y_j the message of agent j
        (the sum includes j = i, with the noise that was sent)

Everything but the gradient term is a function of the transcript, so the next state forgets the
private one (a_k = 0): Phi(k+1) <= alpha_k max(|mu|, L) Phi(k) + alpha_k c_k [used at k].
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import jax

from hearsay.base import Algorithm, Inbox, Magnitudes, Message, Noise, Private, State
from hearsay.graphs import Graph
from hearsay.privacy.recursion import MEMORYLESS, Release
from hearsay.problems.sampling.samplers import Cyclic, Sampling
from hearsay.problems.task import Task
from hearsay.schedules import Constant, PowerLaw, Schedule


@dataclass(frozen=True, kw_only=True)
class NoisyAverage(Algorithm):
    """The message, the average and the accounting; an update is each variant's own."""

    channels: ClassVar[dict[str, str]] = {"params": "mixing"}

    step: Schedule = PowerLaw(0.5, -0.75)
    noise: Noise = PowerLaw(1.0, 0.1)
    mechanism: str = "laplace"
    sampling: Sampling = field(default_factory=Cyclic)

    def prepare(self, state: State, batch: Any, rates: Any) -> tuple[Message, State]:
        return Message(Private(state.params, rates.noise)), state

    def heard(self, sent: Message, inbox: Inbox) -> jax.Array:
        """sum_j a_ij y_j, the own message included."""
        return inbox.total.params + inbox.own.params * sent.params

    def leak(self, heard: float) -> Schedule:
        return MEMORYLESS

    def releases(self, agent: int, curvature: tuple[float, float]) -> tuple[Release, ...]:
        return (Release("params", self.noise_for(agent)),)

    def magnitudes(self, agent: int, agents: int) -> Magnitudes:
        return Magnitudes(
            step=self.step, coupling=Constant(1.0), tracking=Constant(0.0), resolution=0.0
        )

    def check(self, graph: Graph, problem: Task) -> None:
        super().check(graph, problem)
        graph.require_symmetric(self.name)
        graph.require_row_sums_below(
            1.0, "an agent's own weight in the average must not be negative"
        )
