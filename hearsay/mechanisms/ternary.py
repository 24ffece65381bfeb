"""The stochastic ternary quantizer: a value becomes -r, 0 or r, with a mean equal to the value
(Wang and Basar 2023).

r times the sign with probability |value| / r, else 0; values beyond r are brought back to it
first. The randomness protects by itself: two values that differ by D give distributions whose total
variation distance is at most |D| / r (equal signs: exactly that; opposite signs: the larger of the
two over r), and the coordinates of a message are independent, so one message is (0, delta)-private
with delta = |difference|_1 / r. There is no finite epsilon at delta = 0, because a value of the
other sign can never be sent as r.

Here r is the `scale` of the mechanism, and the budget of a run is delta, which adds up
over messages.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hearsay import _validate as require
from hearsay.mechanisms import lattice, rounding
from hearsay.mechanisms.gaussian import Gaussian
from hearsay.mechanisms.mechanism import Mechanism, Reading

if TYPE_CHECKING:
    import jax

    from hearsay.mechanisms.lattice import Key


@dataclass(frozen=True)
class Ternary(Mechanism):
    """Messages of three values, whose budget is a delta at epsilon = 0."""

    name = "ternary"
    noun = "messages"
    unit = "delta"
    needs_delta = True
    adds_noise = False

    def draw(self, key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
        """Uniform in [0, 1)."""
        import jax

        return jax.random.uniform(key, shape, dtype)

    def add(self, value: jax.Array, draw: jax.Array, scale: jax.Array) -> jax.Array:
        import jax.numpy as jnp

        kept = jnp.where(draw * scale < jnp.abs(value), jnp.sign(value) * scale, 0.0)
        # No threshold: nothing is quantized, and nothing protected.
        return jnp.where(scale > 0, kept, value)

    def required(self, delta: float | None) -> float:
        if delta is None:
            raise ValueError(
                "delta must be given for a budget of ternary messages: it is what they spend, at"
                " epsilon = 0"
            )
        return require.fraction("delta", delta)

    def budget(self, number: float, delta: float | None, numbers: int | None = None) -> Reading:
        """epsilon = 0 at the agent's own delta; where that reaches 1 there is no budget."""
        own = min(1.0, number)
        if own < 1:
            return Reading(0.0, delta=own)
        return Reading(math.inf, delta=own, reason="delta reaches 1: messages tell everything")

    def allowance(self, limit: float, delta: float | None) -> float:
        """Ternary messages keep to every epsilon as long as their delta stays below 1. How much of
        it may be used up is for the user to say: `delta`, whatever the limit.
        """
        return self.required(delta)

    def factor(self, number: float, epsilon: float, delta: float | None) -> float:
        """Its delta is proportional to 1 / r."""
        if delta is None:
            raise ValueError(
                "delta must be given to calibrate a ternary quantizer, whose budget it is"
            )
        return float(number / delta * (1 + 1e-12))

    def rounded(self, ideal: float, more: float, numbers: int) -> float:
        return rounding.ternary(ideal + more, numbers)

    def lattice(self, value: Any, scale: float, key: Key) -> np.ndarray:
        return lattice.ternary(value, scale, key)

    @property
    def residual(self) -> Mechanism:
        """A normal variable in the place of each of the three values, at random within the share of
        the normal law that has that value's chance.
        """
        return Gaussian()

    @property
    def standard(self) -> Any:
        return self.residual.standard

    @property
    def crowding(self) -> float:
        return self.residual.crowding

    def size(self, residuals: np.ndarray) -> tuple[float, float, float]:
        return self.residual.size(residuals)

    def log_density(
        self, sent: jax.Array, value: jax.Array, scale: jax.Array, white: jax.Array
    ) -> jax.Array:
        import jax.numpy as jnp

        kept = jnp.clip(jnp.sign(sent) * value / scale, 0.0, 1.0)
        silent = 1 - jnp.clip(jnp.abs(value) / scale, 0.0, 1.0)
        return jnp.sum(jnp.log(jnp.where(sent == 0, silent, kept) + 1e-30))

    def between(self, low: jax.Array, high: jax.Array) -> jax.Array:
        raise NotImplementedError("ternary messages are not a value with noise added to it")

    def levels(
        self, sent: np.ndarray, value: np.ndarray, scale: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        share, sign = np.clip(value / scale, -1.0, 1.0), np.sign(sent)
        down, up = np.maximum(-share, 0.0), np.maximum(share, 0.0)
        low = np.select([sign < 0, sign == 0], [0.0, down], 1 - up)
        return low, np.select([sign < 0, sign == 0], [down, 1 - down - up], up)
