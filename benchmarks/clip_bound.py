"""Do the bounds that certificates call enforced hold in the arithmetic of this device?

Random gradients, models and records of every size that float32 has.

    per record    clipped gradients of a model, l1 and l2, alone and batched
    ball          projections of models
    linear        clipped gradients of a linear model, with labels of every size

Compiled programs flush small numbers to 0 and divide by way of reciprocals, each device in its own
way. Every line gives the largest size over the bound: more than a few roundings above 1 would be a
certificate that is too small, and ends with exit code 1.

    python -m benchmarks.clip_bound
"""

from __future__ import annotations

import sys

import jax
import jax.numpy as jnp
import numpy as np

from hearsay.problems.losses import per_record
from hearsay.problems.losses.domains import shortened
from hearsay.problems.losses.linear import Squared

COUNT = 4000
BOUNDS = (1e-30, 1e-25, 1e-15, 3e-7, 1e-3, 1.0, 1e15, 1e30)
ROUNDINGS = 1 + 1e-5


def vectors(rng: np.random.Generator, dimension: int, low: float, high: float) -> jax.Array:
    """Directions at random, lengths that spread evenly over the orders of magnitude."""
    found = rng.normal(size=(COUNT, dimension))
    found *= 10.0 ** rng.uniform(low, high, size=(COUNT, 1)) / np.linalg.norm(
        found, axis=1, keepdims=True
    )
    return jnp.asarray(found, jnp.float32)


def largest(values: jax.Array, order: int) -> float:
    """A length that is not a number is as bad as an infinite one."""
    sizes = np.linalg.norm(np.asarray(values, np.float64), order, axis=-1)
    return float(np.nan_to_num(sizes, nan=np.inf).max())


def clipped(points: jax.Array, bound: float, norm: str) -> jax.Array:
    """Of a model whose gradient is its record."""
    dimension = points.shape[1]

    def one(point: jax.Array) -> jax.Array:
        return per_record.gradient_sum(
            lambda params, feature, label: jnp.vdot(params, feature),
            jnp.zeros(dimension, jnp.float32),
            point[None],
            jnp.zeros(1),
            jnp.ones(1),
            clip=bound,
            norm=norm,
        )

    return jax.jit(jax.vmap(one))(points)


def linear(features: jax.Array, labels: jax.Array, bound: float) -> jax.Array:
    loss, params = (
        Squared(float("inf"), 0.0, float("inf"), bound),
        jnp.ones(features.shape[1], jnp.float32),
    )

    def one(feature: jax.Array, label: jax.Array) -> jax.Array:
        return loss.gradient_sum(params, feature[None], label[None], jnp.ones(1, jnp.float32))

    return jax.jit(jax.vmap(one))(features, labels)


def main() -> None:
    rng, worst = np.random.default_rng(0), 0.0
    print(f"{jax.devices()[0].device_kind}, jax {jax.__version__}, {COUNT} vectors a line, float32")
    for bound in BOUNDS:
        rows = {}
        for dimension in (1, 3, 64):
            points = vectors(rng, dimension, -44, 38.4)
            rows |= {
                f"per record {n}, d = {dimension}": largest(clipped(points, bound, n), int(n[1]))
                for n in ("l1", "l2")
            }
            rows[f"ball, d = {dimension}"] = largest(
                jax.jit(shortened)(points, jnp.float32(bound)), 2
            )
            labels = vectors(rng, 1, -44, 38.4)[:, 0]
            rows[f"linear, d = {dimension}"] = largest(linear(points, labels, bound), 2)
        for name, found in rows.items():
            print(f"bound {bound:7.0e}   {name:22}   {found / bound:.9f}", flush=True)
            worst = max(worst, found / bound)
    print(f"largest of all: {worst:.9f}")
    if worst > ROUNDINGS:
        sys.exit(1)


if __name__ == "__main__":
    main()
