"""Gaussian noise of standard deviation sigma in every coordinate (floating point: for simulation, see laplace.py)."""

from __future__ import annotations

import jax
import jax.numpy as jnp


class Gaussian:
    name = "gaussian"

    def draw(self, key: jax.Array, shape: tuple[int, ...], dtype: jnp.dtype) -> jax.Array:
        """Standard normal samples."""
        return jax.random.normal(key, shape, dtype)

    def add(self, value: jax.Array, draw: jax.Array, scale: jax.Array) -> jax.Array:
        return value + scale * draw
