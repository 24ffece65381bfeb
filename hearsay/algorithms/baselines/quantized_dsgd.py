"""Decentralized SGD with stochastic quantization of what is shared, with or without Laplace noise
before it (Yan et al. 2024, Chen et al. 2024).

    x_i(k+1) = Proj[ sum_j a_ij q(x_j(k) + n_j(k)) - alpha_k g_i(k) ]

q rounds each coordinate to a multiple of the `resolution`, up or down at random so that its mean is
the value. Quantizing what already carries noise is free (post-processing), so with noise the budget
is that of DSGD; quantizing alone has no finite budget: a value can never be sent as a point further
than the resolution from it. That is what the certificate says.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, final

import jax
import jax.numpy as jnp

from hearsay import _validate as require
from hearsay.algorithms.baselines.noisy_average import NoisyAverage
from hearsay.base import Inbox, Magnitudes, Message, State
from hearsay.problems.losses.domains import Domain


class Draws(NamedTuple):
    """The noise, and which way to round."""

    params: jax.Array
    rounding: jax.Array


@final
@dataclass(frozen=True, kw_only=True)
class QuantizedDsgd(NoisyAverage):
    """DSGD with stochastic quantization.

    Args:
      resolution: the distance of two grid points.
      step: alpha_k.
      noise: the scale of the noise before quantization; none leaves quantization alone.
      mechanism: "laplace" or "gaussian".
      sampling: Cyclic() unless given.
      average: read out a running average of the models.
      secrets: Gaussian noise that pairs of agents share (`hearsay.Secrets`).

    Example:
      >>> import hearsay as hs
      >>> hs.quantized_dsgd(resolution=0.01, noise=None).noise
      Constant(value=0.0)
    """

    coins: ClassVar[tuple[str, ...]] = ("rounding",)
    agent_facts: ClassVar[tuple[str, ...]] = ()

    name: str = "quantized-dsgd"
    resolution: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        require.settle(self, resolution=require.positive)

    def draw(self, key: jax.Array, params: jax.Array) -> Draws:
        coin = jax.random.uniform(jax.random.fold_in(key, 1), params.shape, params.dtype)
        return Draws(self.fresh_noise(key, params), coin)

    def finish(self, noised: Message, draws: Draws, state: State) -> tuple[Message, State]:
        steps = jnp.floor(noised.params / self.resolution + draws.rounding)
        return Message(self.resolution * steps), state

    def update(
        self, state: State, sent: Message, inbox: Inbox, batch: Any, rates: Any, domain: Domain
    ) -> State:
        moved = self.heard(sent, inbox) - rates.step * batch.gradient(state.params)
        return State(domain.project(moved))

    def magnitudes(self, agent: int, agents: int) -> Magnitudes:
        return replace(super().magnitudes(agent, agents), resolution=self.resolution)
