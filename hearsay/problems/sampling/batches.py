"""An agent's records, and batches of them: small pytrees with `gradient(params)`, the mean gradient
plus the regulariser's (`AbstractBatch`). The weights of a batch sum to one, except for Poisson
batches (poisson.py).

    Batch        a few records with weights
    Prefix       the first records of a stream, however many, in blocks (a history)
    Blocks       a batch of any size in blocks of one width
    Statistics   two moments, where the loss is quadratic in the margin

Blocks are worked through in a loop whose length is data, so that one compiled program serves every
size and the memory is that of a block.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from hearsay.problems.data.records import Records
from hearsay.problems.losses.linear import LinearLoss
from hearsay.problems.losses.loss import Loss

# Records per pass: wide enough for fast products, narrow enough that early steps stay cheap.
BLOCK = 256


class Window(NamedTuple):
    """Which records a step uses: `size` of them from `start` on, arrays (time, agent);
    `blocks` (time,) of them hold the largest size.
    """

    start: Any
    size: Any
    blocks: Any


class AbstractBatch(eqx.Module):
    """What a step learns from. Every batch has a gradient; only some hold their records one by one.

    What a kind of batch cannot do raises a TypeError that says so.
    """

    @abstractmethod
    def gradient(self, params: jax.Array) -> jax.Array:
        """The mean gradient of its records, plus the regulariser's."""

    def rows(self) -> tuple[jax.Array, jax.Array]:
        """(features, labels) of its records in order: all of them, or those of the first block."""
        raise TypeError(f"{type(self).__name__} holds sums over records, not the records")

    @property
    def size(self) -> int:
        """How many records it has room for, where it holds them one by one."""
        raise TypeError(self._apart)

    def descended(self, params: jax.Array, rate: jax.Array) -> jax.Array:
        """Where gradient steps of that size lead, one record after the other."""
        raise TypeError(self._apart)

    @property
    def _apart(self) -> str:
        return (
            f"records can be taken one after the other only where a block holds all of them, and"
            f" {type(self).__name__} does not: take fewer records per step (sampling)"
        )


class Batch(AbstractBatch):
    """Records with weights."""

    features: jax.Array
    labels: jax.Array
    weights: jax.Array
    loss: Loss = eqx.field(static=True)

    def gradient(self, params: jax.Array) -> jax.Array:
        data = self.loss.gradient_sum(params, self.features, self.labels, self.weights)
        return data + self.loss.regulariser * params

    def rows(self) -> tuple[jax.Array, jax.Array]:
        return self.features, self.labels

    @property
    def size(self) -> int:
        return self.weights.shape[0]

    def descended(self, params: jax.Array, rate: jax.Array) -> jax.Array:
        def local(point: jax.Array, record: tuple) -> tuple[jax.Array, None]:
            feature, label, weight = record
            data = self.loss.gradient_sum(
                point, feature[None], label[None], jnp.ones((1,), point.dtype)
            )
            moved = point - rate * (data + self.loss.regulariser * point)
            return jnp.where(weight > 0, moved, point), None

        return jax.lax.scan(local, params, (self.features, self.labels, self.weights))[0]


class Prefix(AbstractBatch):
    """The first `limit` rows of the agent's data (as many of them as are real), in blocks:
    the cost grows with the history, the memory does not.
    """

    records: Records
    limit: jax.Array
    loss: Loss = eqx.field(static=True)
    block: int = eqx.field(static=True, default=BLOCK)

    def rows(self) -> tuple[jax.Array, jax.Array]:
        return self.records.features, self.records.labels

    def gradient(self, params: jax.Array) -> jax.Array:
        seen = jnp.minimum(self.limit, self.records.held)
        size = min(self.block, self.records.labels.shape[0])

        def add(index: jax.Array, total: jax.Array) -> jax.Array:
            # The last block is moved back to end at the last row; the mask leaves out what an
            # earlier block has counted.
            start = jnp.minimum(index * size, self.records.labels.shape[0] - size)
            features = jax.lax.dynamic_slice_in_dim(self.records.features, start, size)
            labels = jax.lax.dynamic_slice_in_dim(self.records.labels, start, size)
            row = start + jnp.arange(size)
            mask = (row >= index * size) & (row < seen)
            return total + self.loss.gradient_sum(
                params, features, labels, mask.astype(params.dtype)
            )

        # `limit` is the same for all agents, so the loop bound stays scalar when agents
        # are vectorised.
        blocks = (jnp.minimum(self.limit, self.records.labels.shape[0]) + size - 1) // size
        total = jax.lax.fori_loop(0, blocks, add, jnp.zeros_like(params))
        return total / seen.astype(params.dtype) + self.loss.regulariser * params


class Statistics(AbstractBatch):
    """mean(a a') and mean(residual(0, b) a) of all records so far:
    the whole history of a loss that is quadratic in the margin.
    """

    second: jax.Array
    first: jax.Array
    loss: Loss = eqx.field(static=True)

    def gradient(self, params: jax.Array) -> jax.Array:
        slope = self.loss.affine()
        assert slope is not None
        return slope * (self.second @ params) + self.first + self.loss.regulariser * params


class Blocks(AbstractBatch):
    """A batch of any size in blocks of one width: `take(block)` gives features,
    labels and weights.
    """

    take: Any
    blocks: jax.Array
    loss: Loss = eqx.field(static=True)

    def gradient(self, params: jax.Array) -> jax.Array:
        def add(index: jax.Array, total: jax.Array) -> jax.Array:
            return total + self.loss.gradient_sum(params, *self.take(index))

        total = jax.lax.fori_loop(0, self.blocks, add, jnp.zeros_like(params))
        return total + self.loss.regulariser * params

    def rows(self) -> tuple[jax.Array, jax.Array]:
        features, labels, _ = self.take(jnp.asarray(0))
        return features, labels

    def statistics(self, dimension: int, dtype: Any) -> Statistics:
        """The same gradient from two moments of the batch."""

        def add(index: jax.Array, moments: tuple) -> tuple:
            return tuple(
                a + b
                for a, b in zip(moments, two_moments(self.loss, *self.take(index)), strict=True)
            )

        zero = jnp.zeros((dimension, dimension), dtype), jnp.zeros((dimension,), dtype)
        second, first = jax.lax.fori_loop(0, self.blocks, add, zero)
        return Statistics(second, first, self.loss)


def two_moments(
    loss: Loss, features: jax.Array, labels: jax.Array, weights: jax.Array
) -> tuple[jax.Array, jax.Array]:
    assert isinstance(loss, LinearLoss)
    offset = loss.residual(jnp.zeros_like(labels), labels)
    return (features * weights[:, None]).T @ features, (weights * offset) @ features
