"""Empty records, for audits under zero-out adjacency of models that have none of their own.

A linear model's empty record is one without features. A neural network's gradient is 0 for no
record that one could write down, so there a label says it: `EMPTY`. The record keeps its place in
every batch and its share of the mean.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from hearsay.privacy.adjacency import REPLACE
from hearsay.problems.losses.domains import Domain
from hearsay.problems.losses.loss import Loss

EMPTY = -1.0


@dataclass(frozen=True)
class WithEmpty(Loss):
    """A loss of classes 0, 1, ... for which a record with the label `EMPTY` has gradient 0."""

    loss: Loss
    ridge: float
    clip: float | None
    norm: str

    def dimension(self, record: tuple[int, ...]) -> int:
        return self.loss.dimension(record)

    def gradient_sum(
        self, params: jax.Array, features: jax.Array, labels: jax.Array, weights: jax.Array
    ) -> jax.Array:
        # The regulariser is added by the batch: an empty record's step in a row of single records
        # (`AbstractBatch.descended`) is the regulariser's.
        there = labels >= 0
        weights = jnp.where(there, weights, 0).astype(weights.dtype)
        return self.loss.gradient_sum(params, features, jnp.where(there, labels, 0), weights)

    def score(
        self, params: jax.Array, features: jax.Array, labels: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        return self.loss.score(params, features, labels)

    @property
    def curvature(self) -> tuple[float, float]:
        return self.loss.curvature

    @property
    def regulariser(self) -> float:
        return self.loss.regulariser

    def change(self, domain: Domain, dimension: int, adjacency: str = REPLACE) -> float:
        return self.loss.change(domain, dimension, adjacency)


def with_empty(loss: Loss) -> WithEmpty:
    """The same loss, which knows empty records.

    Args:
      loss: of classes 0, 1, ...
    """
    return WithEmpty(loss, loss.ridge, loss.clip, loss.norm)
