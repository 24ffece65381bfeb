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

import jax
import jax.numpy as jnp


class Ternary:
    name = "ternary"

    def draw(self, key: jax.Array, shape: tuple[int, ...], dtype: jnp.dtype) -> jax.Array:
        return jax.random.uniform(key, shape, dtype)

    def add(self, value: jax.Array, draw: jax.Array, scale: jax.Array) -> jax.Array:
        kept = jnp.where(draw * scale < jnp.abs(value), jnp.sign(value) * scale, 0.0)
        # No threshold: nothing is quantized, and nothing protected.
        return jnp.where(scale > 0, kept, value)
