"""Laplace noise: density exp(-|z| / b) / 2b in every coordinate, variance 2 b^2.

One 32- or 64-bit word gives one sample: its lowest bit the sign, its high bits the magnitude -log(u), u in (0, 1). The
uniform is centred in its cell, so u is never 0 and the sample is finite and never exactly 0.

These are floating-point samples of an idealised distribution. They are right for simulation; a deployment needs noise
on a lattice, because the low bits of a floating-point sum can betray the value (Mironov 2012).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp


class Laplace:
    name = "laplace"

    def draw(self, key: jax.Array, shape: tuple[int, ...], dtype: jnp.dtype) -> jax.Array:
        """Standard Laplace samples (b = 1)."""
        width, used = (64, 52) if dtype == jnp.float64 else (32, 23)
        word = jax.random.bits(key, shape, jnp.uint64 if width == 64 else jnp.uint32)
        uniform = ((word >> (width - used)).astype(dtype) + dtype.type(0.5)) * dtype.type(2.0**-used)
        magnitude = -jnp.log(uniform)
        return jnp.where(word & 1, magnitude, -magnitude)

    def add(self, value: jax.Array, draw: jax.Array, scale: jax.Array) -> jax.Array:
        return value + scale * draw
