"""Channels over links that may fail: the weights of one round, from which links deliver in it.

Every channel's weights keep the layout that they have anyway (graphs/channels.py), with zeros where
nothing is heard; the agents' own weights are those that the channel gives for what was heard. Where
messages are late, what was sent in earlier rounds is stacked below what is sent now, and a link
takes its message from the row of the round that it is of.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy import sparse

from hearsay.graphs import Graph
from hearsay.graphs.channels import (
    Dense,
    Edges,
    Mixer,
    Padded,
    WakingMixer,
    channel,
    edge_of,
    laid_out,
)


class Wires(eqx.Module):
    """One channel over links that may fail: its weights, the numbers of their links in the same
    layout (from 1 on; 0: there is none), and the agents' own weights, base - given * what was
    heard.
    """

    weights: Any
    numbers: Any
    base: jax.Array
    given: jax.Array

    def at(self, heard: jax.Array, ages: jax.Array | None, past: Any) -> Mixer:
        """What everybody hears in a round; `past` are the field's earlier messages."""
        told, agents = jnp.concatenate([jnp.zeros(1, bool), heard]), len(self.base)
        old = None if ages is None else jnp.concatenate([jnp.zeros(1, jnp.int32), ages])
        weights, numbers = self.weights, self.numbers
        others: Dense | Padded | Edges
        if isinstance(weights, Dense):
            kept = weights.matrix * told[numbers.matrix]
            total, matrix = kept.sum(axis=1), kept
            if old is not None:
                by_age = [kept * (old[numbers.matrix] == age) for age in range(len(past) + 1)]
                matrix = jnp.concatenate(by_age, axis=1)
            others = Dense(matrix)
        elif isinstance(weights, Padded):
            kept = weights.weight * told[numbers.weight]
            source = weights.neighbour
            source = source if old is None else source + agents * old[numbers.weight]
            total, others = kept.sum(axis=1), Padded(source, kept)
        else:
            kept = weights.weight * told[numbers.weight]
            source = weights.source
            source = source if old is None else source + agents * old[numbers.weight]
            total = jax.ops.segment_sum(kept, weights.target, agents, indices_are_sorted=True)
            others = Edges(source, weights.target, kept)
        own = self.base - self.given * total
        return Mixer(others, own) if old is None else Stale(others, own, past)


class Stale(Mixer):
    """Messages of this round and of earlier ones (age, agent, ...), each from the round in which
    what is heard now was sent.
    """

    past: jax.Array

    def total(self, values: jax.Array) -> jax.Array:
        agents, every = len(values), jnp.concatenate([values[None], self.past])
        return self.others(every.reshape(len(every) * agents, -1))[:agents].reshape(values.shape)


class WakingWires(eqx.Module):
    """Two agents who would average with weight 1/2, if they hear each other."""

    ends: jax.Array
    # (edge, 2): the link over which each end hears the other.
    numbers: jax.Array
    awake: jax.Array

    def at(self, heard: jax.Array, ages: None, past: Any) -> WakingFaulty:
        return WakingFaulty(self.ends, self.numbers, heard, self.awake)


class WakingFaulty(eqx.Module):
    ends: jax.Array
    numbers: jax.Array
    heard: jax.Array
    own: jax.Array

    def at(self, coin: jax.Array) -> Mixer:
        edge = edge_of(coin, len(self.ends))
        ends = self.ends[edge]
        weights = jnp.where(self.heard[self.numbers[edge]], self.own[ends], 0)
        others = HeardOver(ends, weights)
        return Mixer(others, jnp.ones_like(self.own).at[ends].add(-weights))


class HeardOver(eqx.Module):
    """Two agents who hear each other with those weights; nobody else hears anything."""

    ends: jax.Array
    weights: jax.Array

    def __call__(self, values: jax.Array) -> jax.Array:
        heard = self.weights[:, None] * values[self.ends[::-1]]
        return jnp.zeros_like(values).at[self.ends].set(heard)


def numbered(pattern: sparse.csr_array) -> sparse.csr_array:
    """Every link's number, from 1 on, row by row."""
    parts = np.arange(1, pattern.nnz + 1, dtype=np.int32), pattern.indices, pattern.indptr
    return sparse.csr_array(parts, shape=pattern.shape)


def wires(name: str, graph: Graph, pattern: sparse.csr_array, dtype: Any) -> Any:
    """The channel of that name over those links.

    Args:
      pattern: an entry for every link, whichever field of a message it serves.
    """
    one, number = channel(name), numbered(pattern)
    found = one.mixer(graph, dtype)
    if isinstance(found, WakingMixer):
        low, high = np.asarray(found.ends).T
        heard = np.stack([number[low, high], number[high, low]], axis=1) - 1
        return WakingWires(found.ends, jnp.asarray(heard, jnp.int32), found.own)
    weights = one.links(graph)
    assert weights is not None
    weights = weights.copy()
    weights.sort_indices()
    places = np.repeat(np.arange(graph.agents), np.diff(weights.indptr)), weights.indices
    mine = sparse.csr_array(
        (np.asarray(number[places]).ravel(), weights.indices, weights.indptr), weights.shape
    )
    agents = np.arange(graph.agents)
    base, less = (one.own(graph, agents, np.full(len(agents), heard)) for heard in (0.0, 1.0))
    return Wires(
        laid_out(weights, dtype),
        laid_out(mine, np.int32),
        jnp.asarray(base, dtype),
        jnp.asarray(base - less, dtype),
    )
