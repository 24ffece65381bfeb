"""Laplace noise: density exp(-|z| / b) / 2b in every coordinate, variance 2 b^2.

One random word gives one sample: its lowest bit the sign, its high bits the magnitude -log(u), u in
(0, 1). The sample is finite and never exactly 0.

These are floating-point samples of an idealised distribution. They are right for simulation; a
deployment needs noise on a lattice, because the low bits of a floating-point sum can betray the
value (Mironov 2012).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from hearsay.mechanisms.words import signed_uniform


class Laplace:
    name = "laplace"

    def draw(self, key: jax.Array, shape: tuple[int, ...], dtype: jnp.dtype) -> jax.Array:
        """Standard Laplace samples (b = 1)."""
        sign, uniform = signed_uniform(key, shape, dtype)
        magnitude = -jnp.log(uniform)
        return jnp.where(sign, magnitude, -magnitude)

    def add(self, value: jax.Array, draw: jax.Array, scale: jax.Array) -> jax.Array:
        return value + scale * draw
