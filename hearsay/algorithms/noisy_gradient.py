"""What algorithms share that perturb their gradients and send the result.

    x_i(k+1) = s_i(k+1) - alpha_k n_i(k),    s_i(k+1) = F(transcript) - alpha_k g_i(k)

The message x_i is already private. Here it is put together as the sum of what is private: the
state is s_i, the next message before its noise, with the scale alpha_k b_k of the noise that it
will get. And x_i, once sent, is on the transcript: the next s_i keeps nothing private of the last
one, its gradient is taken at a public point, and a message moves by alpha_k c_k under noise of
scale alpha_k b_k. So a use at step k costs c_k / b_k, whatever the loss's curvature.

The noise of step k shows in message k + 1 (delay 1): K messages carry K - 1 noisy gradients, and
the certificate counts K. The model that an agent reads out for itself is s_i, before the noise of
its last step: like every read-out it must stay private.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from hearsay.base import Algorithm, Magnitudes, Message, Private
from hearsay.graphs import Graph
from hearsay.privacy.recursion import MEMORYLESS, Release
from hearsay.problems.task import Task
from hearsay.schedules import Constant, Product, Schedule


class Pending(NamedTuple):
    """The next message before its noise, and the noise scale that it will get:
    alpha_k b_k of the step that made it (0 for the first).
    """

    params: jax.Array
    scale: jax.Array


@dataclass(frozen=True, kw_only=True)
class NoisyGradient(Algorithm):
    """The message and the accounting; an update is each algorithm's own."""

    channels: ClassVar[dict[str, str]] = {"params": "mixing"}
    gradient_at_state: ClassVar[bool] = False
    delay: ClassVar[int] = 1

    def init(self, params: jax.Array) -> Any:
        return Pending(params, jnp.zeros((), params.dtype))

    def prepare(self, state: Any, batch: Any, rates: Any) -> tuple[Message, Any]:
        return Message(Private(state.params, state.scale)), state

    def leak(self, heard: float) -> Schedule:
        return MEMORYLESS

    def releases(self, agent: int, curvature: tuple[float, float]) -> tuple[Release, ...]:
        return (Release("params", self.noise_for(agent), state=0.0, fresh=1.0, delay=self.delay),)

    def magnitudes(self, agent: int, agents: int) -> Magnitudes:
        return Magnitudes(
            step=self.step,
            coupling=Constant(1.0),
            tracking=Constant(0.0),
            resolution=0.0,
            step_noise=Product(self.step, self.noise_for(agent)),
        )

    def check(self, graph: Graph, problem: Task) -> None:
        super().check(graph, problem)
        graph.require_doubly_stochastic(self.name)
