"""Decentralized SGD with stochastic quantization of what is shared, with or without Laplace noise
before it (Yan et al. 2024, Chen et al. 2024).

    x_i(k+1) = Proj[ sum_j a_ij q(x_j(k) + n_j(k)) - alpha_k g_i(k) ]

q rounds each coordinate to a multiple of the `resolution`, up or down at random so that its mean is
the value. Quantizing what already carries noise is free (post-processing), so with noise the budget
is that of DSGD; quantizing alone has no finite budget: a value can never be sent as a point further
than the resolution from it. That is what the certificate says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from hearsay import _validate as require
from hearsay.algorithms.baselines.dsgd import Dsgd, Message, State
from hearsay.privacy.float64 import Magnitudes


class Draws(NamedTuple):
    params: jax.Array
    rounding: jax.Array


@dataclass(frozen=True, kw_only=True)
class QuantizedDsgd(Dsgd):
    """DSGD with stochastic quantization.

    resolution: the distance of two grid points; noise: none leaves quantization alone.
    """

    name: ClassVar[str] = "quantized-dsgd"

    resolution: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        require.settle(self, resolution=require.positive)

    def magnitudes(self, agent: int, agents: int) -> Magnitudes:
        return Magnitudes(self.step, resolution=self.resolution)

    def draw(self, key: jax.Array, params: jax.Array) -> Draws:  # type: ignore[override]
        return Draws(
            self.fresh_noise(key, params),
            jax.random.uniform(jax.random.fold_in(key, 1), params.shape, params.dtype),
        )

    def finish(self, noised: Message, draws: Draws, state: State) -> tuple[Message, State]:
        return Message(
            self.resolution * jnp.floor(noised.params / self.resolution + draws.rounding)
        ), state
