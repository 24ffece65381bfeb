"""Gaussian noise of standard deviation sigma in every coordinate (floating point:
for simulation, see laplace.py).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from hearsay.mechanisms.words import signed_uniform


class Gaussian:
    name = "gaussian"

    def draw(self, key: jax.Array, shape: tuple[int, ...], dtype: jnp.dtype) -> jax.Array:
        """Standard normal samples: sqrt(2) erfinv(u) is a half-normal magnitude for uniform u,
        and the sign has a bit of its own.
        """
        sign, uniform = signed_uniform(key, shape, dtype)
        magnitude = dtype.type(2**0.5) * jax.scipy.special.erfinv(uniform)
        return jnp.where(sign, magnitude, -magnitude)

    def add(self, value: jax.Array, draw: jax.Array, scale: jax.Array) -> jax.Array:
        return value + scale * draw
