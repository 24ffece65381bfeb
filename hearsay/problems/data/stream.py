"""A stream that never ends: linear measurements made up on the spot, so that no run needs more
memory than one block of them.

    b = u . target + spread v,    u = factor z,    z and v standard normal
        (paper P3, section V: u ~ N(0, R), R = factor factor')

Regressors longer than `bound` are scaled down to it, measurement and all: a promise about records
that the stream keeps.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hearsay.mechanisms import Gaussian
from hearsay.problems.data.records import array_digest
from hearsay.problems.losses.domains import shortened


class Stream(NamedTuple):
    """An endless stream of linear measurements: one agent's or, with a leading axis, every agent's.

    Args:
      factor: (d, d), a factor of the features' covariance.
      target: (d,), the weights that make the labels.
      spread: the standard deviation of the labels.
      bound: the l2 norm that longer features are scaled down to.
    """

    factor: Any
    target: Any
    spread: Any
    bound: Any

    @property
    def agents(self) -> int:
        return len(self.factor)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one record's features."""
        return (self.dimension,)

    @property
    def dimension(self) -> int:
        return self.target.shape[-1]

    @property
    def dtype(self) -> jnp.dtype:
        return self.factor.dtype

    def of(self, agent: int) -> Stream:
        """One agent's, in arrays of its own."""
        return Stream(*(np.array(part[agent]) for part in self))

    def placed(self, dtype: jnp.dtype) -> Stream:
        """On the device, as numbers of that type."""
        return Stream(*(jnp.asarray(part, dtype) for part in self))

    def digest(self) -> str:
        """A fingerprint: the same for the same stream only."""
        return array_digest(self)

    def draw(self, key: jax.Array, count: int) -> tuple[jax.Array, jax.Array]:
        """That many records from a key: features (count, d) and labels (count,)."""
        normal = Gaussian().draw(key, (count, self.dimension + 1), self.dtype)
        features = shortened(normal[:, :-1] @ self.factor.T, self.bound)
        return features, features @ self.target + self.spread * normal[:, -1]
