"""What all agents hear at once: sum_j w_ij message_j, at a cost that follows the edges.

Small or dense graphs use one matrix product. Large sparse ones gather each agent's neighbours,
padded to the largest degree, or, where the degrees are very uneven (a star), add edge by edge.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy import sparse

from hearsay import _validate as require
from hearsay.graphs import Graph

_DENSE_AGENTS = 128


class Dense(eqx.Module):
    matrix: jax.Array

    def __call__(self, values: jax.Array) -> jax.Array:
        return self.matrix @ values


class Padded(eqx.Module):
    """neighbour[i, s] is agent i's s-th neighbour; weight 0 where it has fewer."""

    neighbour: jax.Array
    weight: jax.Array

    def __call__(self, values: jax.Array) -> jax.Array:
        def add(total: jax.Array, slot: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
            return total + slot[1][:, None] * values[slot[0]], None

        # One neighbour slot at a time: memory stays at one message per agent.
        return jax.lax.scan(add, jnp.zeros_like(values), (self.neighbour.T, self.weight.T))[0]


class Edges(eqx.Module):
    source: jax.Array
    target: jax.Array
    weight: jax.Array

    def __call__(self, values: jax.Array) -> jax.Array:
        heard = self.weight[:, None] * values[self.source]
        return jax.ops.segment_sum(heard, self.target, values.shape[0], indices_are_sorted=True)


class Mean(eqx.Module):
    """Everybody with the same weight 1/n: what a server's average gives, at the cost of a sum."""

    def __call__(self, values: jax.Array) -> jax.Array:
        return (jnp.sum(values, axis=0, keepdims=True) - values) / values.shape[0]


class Mixer(eqx.Module):
    """The weights of one message field: what comes from others, and an agent's own weight."""

    others: Any
    own: jax.Array

    def total(self, values: jax.Array) -> jax.Array:
        """values (agents, ...), any trailing shape."""
        return self.others(values.reshape(values.shape[0], -1)).reshape(values.shape)


def mixer(graph: Graph, channel: str, dtype: Any) -> Mixer:
    """coupling and mixing: over R, own weight -sum_j r_ij or 1 - sum_j r_ij. pushing and pulling:
    over C, own weight -sum_j c_ji or -sum_j c_ij. average: everybody's mean, whatever the graph.
    """
    require.one_of("channel", channel, ["coupling", "mixing", "pushing", "pulling", "average"])
    if channel == "average":
        return Mixer(Mean(), jnp.full(graph.agents, 1.0 / graph.agents, dtype))
    if channel in ("pushing", "pulling"):
        own = (
            -graph.handed_out
            if channel == "pushing"
            else -np.asarray(graph.pushed.sum(axis=1)).ravel()
        )
        return Mixer(_others(graph.pushed, dtype), jnp.asarray(own, dtype))
    own = -graph.row_sums if channel == "coupling" else 1.0 - graph.row_sums
    return Mixer(_others(graph.weights, dtype), jnp.asarray(own, dtype))


@require.plain_arguments
def listening(graph: Graph, channel: str, agent: int) -> dict[int, float]:
    """The agents that one agent hears over that channel, with their weights: its row of `mixer`."""
    if channel == "average":
        return {j: 1.0 / graph.agents for j in range(graph.agents) if j != agent}
    weights = graph.pushed if channel in ("pushing", "pulling") else graph.weights
    row = slice(weights.indptr[agent], weights.indptr[agent + 1])
    return dict(zip(weights.indices[row].tolist(), weights.data[row].tolist(), strict=True))


@require.plain_arguments
def own_weight(graph: Graph, channel: str, agent: int, heard: float) -> float:
    """The agent's own weight in that channel once it has heard others with
    so much weight in all.
    """
    if channel == "average":
        return 1.0 / graph.agents
    if channel == "pushing":
        return -float(graph.handed_out[agent])
    return 1.0 - heard if channel == "mixing" else -heard


def _others(weights: sparse.csr_array, dtype: Any) -> Any:
    n, edges = weights.shape[0], weights.nnz
    if n <= _DENSE_AGENTS or edges > n * n / 4:
        return Dense(jnp.asarray(weights.toarray(), dtype))
    degrees = np.diff(weights.indptr)
    target = np.repeat(np.arange(n), degrees)
    if n * degrees.max() > 3 * edges:
        return Edges(
            jnp.asarray(weights.indices), jnp.asarray(target), jnp.asarray(weights.data, dtype)
        )
    slot = np.arange(edges) - np.repeat(weights.indptr[:-1], degrees)
    neighbour, weight = np.zeros((n, degrees.max()), np.int32), np.zeros((n, degrees.max()))
    neighbour[target, slot], weight[target, slot] = weights.indices, weights.data
    return Padded(jnp.asarray(neighbour), jnp.asarray(weight, dtype))
