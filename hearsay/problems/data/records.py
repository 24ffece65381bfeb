"""The private part of a problem: the records that agents hold, as arrays.

They leave this type in two ways only: to the device, where batches are formed from them, and as a
digest. What is public of them (their shape, how many each agent has) is in a Task.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np


class Records(NamedTuple):
    """One agent's records or, with a leading axis of agents, everybody's.

    Rows are in order of arrival; those past `held` are padding, so that all agents have as many.

    Args:
      features: (most, ...).
      labels: (most,).
      held: how many of the rows are records.
    """

    features: Any
    labels: Any
    held: Any

    @property
    def agents(self) -> int:
        return len(self.features)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one record, where there is an axis of agents."""
        return tuple(self.features.shape[2:])

    @property
    def dimension(self) -> int:
        return self.features.shape[-1]

    @property
    def dtype(self) -> jnp.dtype:
        """Of the numbers that are computed with; features may be bytes."""
        return self.labels.dtype

    def of(self, agent: int) -> Records:
        """One agent's, in arrays of its own: the others' are not held on to."""
        return Records(*(np.array(part[agent]) for part in self))

    def placed(self, dtype: jnp.dtype) -> Records:
        """On the device, as numbers of that type."""
        return Records(
            as_features(self.features, dtype),
            jnp.asarray(self.labels, dtype),
            jnp.asarray(self.held, jnp.int32),
        )

    def digest(self) -> str:
        """A fingerprint: the same for the same records only."""
        return array_digest(self)


def array_digest(arrays: Iterable[np.ndarray]) -> str:
    """sha256 of their content, one after the other."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def as_features(features: np.ndarray, dtype: jnp.dtype) -> jnp.ndarray:
    """On the device; bytes stay bytes, a model reads them as it needs them."""
    return jnp.asarray(features) if features.dtype == np.uint8 else jnp.asarray(features, dtype)


def dealt(features: np.ndarray, labels: np.ndarray, parts: Sequence[np.ndarray]) -> Records:
    """Rows of one data set, parts[i] for agent i."""
    counts, rows = np.array([len(rows) for rows in parts]), np.concatenate(parts)
    shape = (len(counts), counts.max())
    if counts.min() == counts.max():
        held = features[rows].reshape(*shape, *features.shape[1:])
        return Records(held, labels[rows].reshape(shape).astype(float), counts)
    # All agents at once: there may be a million.
    agent = np.repeat(np.arange(len(counts)), counts)
    place = np.arange(len(agent)) - np.repeat(np.cumsum(counts) - counts, counts)
    held, marked = np.zeros((*shape, *features.shape[1:]), features.dtype), np.zeros(shape)
    held[agent, place], marked[agent, place] = features[rows], labels[rows]
    return Records(held, marked, counts)


def padded(counts: Sequence[int], sets: Iterable[tuple[np.ndarray, np.ndarray]]) -> Records:
    """The agents' sets, of those lengths, with zeros up to the longest."""
    held = marked = np.zeros(0)
    for agent, (features, labels) in enumerate(sets):
        if agent == 0:
            held = np.zeros((len(counts), max(counts), *features.shape[1:]), features.dtype)
            marked = np.zeros(held.shape[:2])
        held[agent, : len(features)], marked[agent, : len(labels)] = features, labels
    return Records(held, marked, np.array(counts))
