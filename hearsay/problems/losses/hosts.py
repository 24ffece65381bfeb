"""Models that another library computes: values, scores and sums of clipped gradients of a batch as
plain functions of NumPy arrays, called from compiled programs (jax.pure_callback).

One call works through a whole batch and gives back one vector: records' gradients are clipped and
added up over there and never cross. What crosses is copied, so that neither library ever holds the
other's memory.

The bound on a record is the one of per_record.py, held over there (`Host.gradient_sum`): a record
counts with norm at most the clip in the arithmetic that is used, nothing if its gradient is not
finite or longer than 1e36, and exactly nothing with weight 0. All records of a batch are computed,
also those of weight 0: how many there are would change the rounding of the others.

Under vmap (over agents or seeds) sums are computed one after the other; values and scores of many
records with the same parameters in one call.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


class Host(ABC):
    """What computes a model elsewhere. Arrays are NumPy's, of the vector's precision; features may
    be bytes, which `values` and `scores` never see: they are numbers by then.
    """

    size: int  # how many parameters
    outputs: int  # how many scores it gives for a record

    @abstractmethod
    def gradient_sum(
        self,
        vector: np.ndarray,
        features: np.ndarray,
        labels: np.ndarray,
        weights: np.ndarray,
        *,
        clip: float | None,
        norm: str,
        microbatch: int | None,
    ) -> np.ndarray:
        """sum_i weights_i clip(gradient of record i's loss), as long as `vector`."""

    @abstractmethod
    def values(self, vector: np.ndarray, features: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """The loss of every record."""

    @abstractmethod
    def scores(self, vector: np.ndarray, features: np.ndarray) -> np.ndarray:
        """(records, outputs)"""

    @abstractmethod
    def program(self, shape: tuple[int, ...], dtype: np.dtype) -> bytes:
        """A fingerprint of what it computes for records of that shape, constants included."""

    @abstractmethod
    def record_bytes(self, shape: tuple[int, ...], dtype: np.dtype) -> int:
        """What one record's gradient takes in memory, about."""

    # One record's, for what is compiled: under vmap every argument has axes before its own.

    def value_of(self, vector: jax.Array, feature: jax.Array, label: jax.Array) -> jax.Array:
        """The loss of one record."""
        shape = jax.ShapeDtypeStruct((), vector.dtype)
        return jax.pure_callback(
            self._values, shape, vector, feature, label, vmap_method="expand_dims"
        )

    def scores_of(self, vector: jax.Array, feature: jax.Array) -> jax.Array:
        """The scores of one record."""
        shape = jax.ShapeDtypeStruct((self.outputs,), vector.dtype)
        return jax.pure_callback(self._scores, shape, vector, feature, vmap_method="expand_dims")

    def _values(self, vector: Any, feature: Any, label: Any) -> np.ndarray:
        label = np.asarray(label)
        return _spread(self.values, np.asarray(vector), [np.asarray(feature), label], label.ndim)

    def _scores(self, vector: Any, feature: Any) -> np.ndarray:
        vector = np.asarray(vector)
        return _spread(self.scores, vector, [np.asarray(feature)], vector.ndim - 1)


def gradient_sum(
    host: Host,
    params: jax.Array,
    features: jax.Array,
    labels: jax.Array,
    weights: jax.Array,
    *,
    clip: float | None = None,
    norm: str = "l2",
    microbatch: int | None = None,
) -> jax.Array:
    """The host's sum as part of a compiled program."""

    def call(*arrays: Any) -> np.ndarray:
        found = host.gradient_sum(
            *(np.array(part) for part in arrays), clip=clip, norm=norm, microbatch=microbatch
        )
        return np.asarray(found, params.dtype)

    shape = jax.ShapeDtypeStruct(params.shape, params.dtype)
    rows = features, labels.astype(params.dtype), weights.astype(params.dtype)
    return jax.pure_callback(call, shape, params, *rows, vmap_method="sequential")


def as_numbers(features: Any, dtype: Any) -> Any:
    """Bytes become numbers in [0, 1], as everywhere."""
    if np.issubdtype(features.dtype, np.integer):
        return features.astype(dtype) / np.asarray(255, dtype)
    return features.astype(dtype)


def _spread(
    call: Callable[..., np.ndarray], vector: np.ndarray, rows: list[np.ndarray], axes: int
) -> np.ndarray:
    """`call` for arguments with so many axes of vmap before their own, each of length 1 or common:
    once for every vector of parameters, with all of its records.
    """
    lead = np.broadcast_shapes(vector.shape[:-1], *(part.shape[:axes] for part in rows))
    whole = [np.broadcast_to(part, lead + part.shape[axes:]) for part in rows]
    found: np.ndarray | None = None
    for index in np.ndindex(vector.shape[:-1]):
        here = tuple(
            place if length > 1 else slice(None)
            for place, length in zip(index, vector.shape, strict=False)
        )
        parts = [part[here] for part in whole]
        own = parts[0].shape[: parts[0].ndim - (whole[0].ndim - axes)]
        flat = [np.array(part).reshape(math.prod(own), *part.shape[len(own) :]) for part in parts]
        made = np.asarray(call(np.array(vector[index]), *flat), vector.dtype)
        if found is None:
            found = np.empty(lead + made.shape[1:], vector.dtype)
        found[here] = made.reshape(own + made.shape[1:])
    assert found is not None
    return found


def precision() -> np.dtype:
    """Of the parameters in a run: what jax is set to."""
    return np.dtype(jnp.result_type(float))
