"""Channels: the matrices that messages travel over, and what is heard over them.

A message field names its channel, and the channel is one object for all who ask: the simulator
takes all agents at once (`mixer`), a deployed agent its own row (`row`, `own`), the contract
whether a message may be missing (`may_skip`, `needs_all`). Weights may follow from a public coin
of the round (`Mixer.at`, `row_at`), which all agents know.

What all agents hear at once is sum_j w_ij message_j, at a cost that follows the edges. Small or
dense graphs use one matrix product. Large sparse ones gather each agent's neighbours, padded to the
largest degree, or, where the degrees are very uneven (a star), add edge by edge.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy import sparse

from hearsay import _validate as require
from hearsay.graphs import Graph
from hearsay.graphs.pairs import edges

_DENSE_AGENTS = 128
# On an accelerator up to so many neighbours are added up one by one in a dense graph's place: the
# additions become part of the update, and no sum is stored.
_FEW_NEIGHBOURS = 4


class Dense(eqx.Module):
    matrix: jax.Array

    def __call__(self, values: jax.Array) -> jax.Array:
        return self.matrix @ values


class Padded(eqx.Module):
    """neighbour[i, s] is agent i's s-th neighbour; weight 0 where it has fewer."""

    neighbour: jax.Array
    weight: jax.Array

    def __call__(self, values: jax.Array) -> jax.Array:
        if self.neighbour.shape[1] <= _FEW_NEIGHBOURS and jax.default_backend() != "cpu":
            slots = zip(self.neighbour.T, self.weight.T, strict=True)
            return sum(weight[:, None] * values[source] for source, weight in slots)

        def add(total: jax.Array, slot: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
            return total + slot[1][:, None] * values[slot[0]], None

        silence = jnp.zeros((len(self.neighbour), *values.shape[1:]), values.dtype)
        # One neighbour slot at a time: memory stays at one message per agent.
        return jax.lax.scan(add, silence, (self.neighbour.T, self.weight.T))[0]


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

    def at(self, coin: Any) -> Mixer:
        """The weights of the round with that public coin: the same in all rounds."""
        return self


class OneEdge(eqx.Module):
    """Two agents who hear each other with weight 1/2; nobody else hears anything."""

    ends: jax.Array

    def __call__(self, values: jax.Array) -> jax.Array:
        low, high = self.ends[0], self.ends[1]
        silent = jnp.zeros_like(values)
        return silent.at[low].set(0.5 * values[high]).at[high].set(0.5 * values[low])


class WakingMixer(eqx.Module):
    """ends: (edge, 2). own: the weight of an agent's own message while it is awake."""

    ends: jax.Array
    own: jax.Array

    def at(self, coin: jax.Array) -> Mixer:
        ends = self.ends[edge_of(coin, len(self.ends))]
        return Mixer(OneEdge(ends), jnp.ones_like(self.own).at[ends].set(0.5))


def edge_of(coin: Any, count: Any) -> Any:
    """The number of the edge that a coin between 0 and 1 wakes, out of so many."""
    return jnp.minimum(jnp.asarray(coin * count, jnp.int32), count - 1)


class Channel(ABC):
    """The matrix that a message field travels over: who hears whom with which weight, and with
    which weight an agent's own message counts.
    """

    name: ClassVar[str]
    # Why an agent cannot go on without a message that does not come; "" where it can.
    needs_all: ClassVar[str] = ""
    # What is heard in a round must have been sent in it, and not earlier.
    of_its_round: ClassVar[bool] = False
    # The weight of an agent's own and of what it hears, where it is not the graph's.
    weight: ClassVar[float] = 0.0

    @property
    def may_skip(self) -> bool:
        """A neighbour that is not heard may be left out, together with its weight."""
        return not self.needs_all

    @abstractmethod
    def row(self, graph: Graph, agent: int) -> dict[int, float]:
        """The agents that one agent hears, with their weights."""

    def row_at(self, graph: Graph, agent: int, coin: Any) -> dict[int, float]:
        """Those of a round with that public coin: the same in all rounds, unless overridden."""
        return self.row(graph, agent)

    @abstractmethod
    def links(self, graph: Graph) -> sparse.csr_array | None:
        """Whom messages travel to: entry (i, j) where agent i hears agent j in some round; None:
        up to a server, and down from it.
        """

    @abstractmethod
    def own(self, graph: Graph, agent: Any, heard: Any) -> Any:
        """The agent's own weight once it has heard others with so much weight in all; of several
        agents, where `agent` and `heard` are arrays.
        """

    @abstractmethod
    def mixer(self, graph: Graph, dtype: Any) -> Any:
        """All agents at once, when everybody is heard: a Mixer, or what has one for every coin."""


class _Edges(Channel):
    """Over the edges of a graph."""

    @abstractmethod
    def weights(self, graph: Graph) -> sparse.csr_array:
        """w_ij: agent i hears agent j."""

    def links(self, graph: Graph) -> sparse.csr_array:
        return self.weights(graph)

    def row(self, graph: Graph, agent: int) -> dict[int, float]:
        weights = self.weights(graph)
        row = slice(weights.indptr[agent], weights.indptr[agent + 1])
        return dict(zip(weights.indices[row].tolist(), weights.data[row].tolist(), strict=True))

    def _mixer(self, graph: Graph, own: np.ndarray, dtype: Any) -> Mixer:
        return Mixer(_others(self.weights(graph), dtype), jnp.asarray(own, dtype))


class Coupling(_Edges):
    """Over R, own weight -sum_j r_ij: differences to the agent's own message."""

    name = "coupling"

    def weights(self, graph: Graph) -> sparse.csr_array:
        return graph.weights

    def own(self, graph: Graph, agent: Any, heard: Any) -> Any:
        return -heard

    def mixer(self, graph: Graph, dtype: Any) -> Mixer:
        return self._mixer(graph, -graph.row_sums, dtype)


class Mixing(_Edges):
    """Over R, own weight 1 - sum_j r_ij: an average with the agent's own message."""

    name = "mixing"

    def weights(self, graph: Graph) -> sparse.csr_array:
        return graph.weights

    def own(self, graph: Graph, agent: Any, heard: Any) -> Any:
        return 1.0 - heard

    def mixer(self, graph: Graph, dtype: Any) -> Mixer:
        return self._mixer(graph, 1.0 - graph.row_sums, dtype)


_SHARES = (
    "a share of a tracker that is not heard is lost, and the trackers no longer add up to"
    " the gradients"
)


class Pushing(_Edges):
    """Over C, own weight -sum_j c_ji: what an agent hands out it no longer has."""

    name = "pushing"
    needs_all = _SHARES

    def weights(self, graph: Graph) -> sparse.csr_array:
        return graph.pushed

    def own(self, graph: Graph, agent: Any, heard: Any) -> Any:
        return -graph.handed_out[agent]

    def mixer(self, graph: Graph, dtype: Any) -> Mixer:
        return self._mixer(graph, -graph.handed_out, dtype)


class Pulling(_Edges):
    """Over C, own weight -sum_j c_ij, as paper P2 prints it."""

    name = "pulling"
    needs_all = _SHARES

    def weights(self, graph: Graph) -> sparse.csr_array:
        return graph.pushed

    def own(self, graph: Graph, agent: Any, heard: Any) -> Any:
        return -heard

    def mixer(self, graph: Graph, dtype: Any) -> Mixer:
        return self._mixer(graph, -np.asarray(graph.pushed.sum(axis=1)).ravel(), dtype)


class Average(Channel):
    """Everybody's mean, whatever the graph: what a server gives."""

    name = "average"
    needs_all = "everybody must apply the same average"

    def row(self, graph: Graph, agent: int) -> dict[int, float]:
        return {j: 1.0 / graph.agents for j in range(graph.agents) if j != agent}

    def links(self, graph: Graph) -> None:
        return None

    def own(self, graph: Graph, agent: Any, heard: Any) -> Any:
        return 1.0 / graph.agents

    def mixer(self, graph: Graph, dtype: Any) -> Mixer:
        return Mixer(Mean(), jnp.full(graph.agents, 1.0 / graph.agents, dtype))


class Waking(Channel):
    """Over one edge of the graph, which the round's public coin wakes: its two ends average their
    messages, whatever the graph's weights; nobody else hears anything.
    """

    name = "waking"
    of_its_round = True
    weight = 1.0

    def row(self, graph: Graph, agent: int) -> dict[int, float]:
        ends = edges(graph)
        mine = ends[(ends == agent).any(axis=1)]
        return {int(low + high - agent): 0.5 for low, high in mine.tolist()}

    def row_at(self, graph: Graph, agent: int, coin: Any) -> dict[int, float]:
        ends = edges(graph)
        low, high = ends[int(edge_of(coin, len(ends)))].tolist()
        return {low + high - agent: 0.5} if agent in (low, high) else {}

    def links(self, graph: Graph) -> sparse.csr_array:
        return graph.weights if graph.symmetric else graph.weights + graph.weights.T

    def own(self, graph: Graph, agent: Any, heard: Any) -> Any:
        return 1.0 - heard

    def mixer(self, graph: Graph, dtype: Any) -> WakingMixer:
        return WakingMixer(jnp.asarray(edges(graph)), jnp.full(graph.agents, 0.5, dtype))


CHANNELS: dict[str, Channel] = {
    channel.name: channel
    for channel in (Coupling(), Mixing(), Pushing(), Pulling(), Average(), Waking())
}


def channel(name: str) -> Channel:
    """The channel of that name."""
    return CHANNELS[require.one_of("channel", name, CHANNELS)]


def mixer(graph: Graph, name: str, dtype: Any) -> Any:
    """What all agents hear at once over the channel of that name."""
    return channel(name).mixer(graph, dtype)


def form(weights: sparse.csr_array) -> type[Dense] | type[Padded] | type[Edges]:
    """In which form what is heard over those weights is found fastest."""
    n, edges = weights.shape[0], weights.nnz
    most = np.diff(weights.indptr).max()
    few = 0 < most <= _FEW_NEIGHBOURS and jax.default_backend() != "cpu"
    if not few and (n <= _DENSE_AGENTS or edges > n * n / 4):
        return Dense
    return Edges if not few and n * most > 3 * edges else Padded


def _others(weights: sparse.csr_array, dtype: Any) -> Any:
    kind = form(weights)
    if kind is Dense:
        return Dense(jnp.asarray(weights.toarray(), dtype))
    n, edges, degrees = weights.shape[0], weights.nnz, np.diff(weights.indptr)
    target = np.repeat(np.arange(n), degrees)
    if kind is Edges:
        return Edges(
            jnp.asarray(weights.indices), jnp.asarray(target), jnp.asarray(weights.data, dtype)
        )
    slot = np.arange(edges) - np.repeat(weights.indptr[:-1], degrees)
    neighbour, weight = np.zeros((n, degrees.max()), np.int32), np.zeros((n, degrees.max()))
    neighbour[target, slot], weight[target, slot] = weights.indices, weights.data
    return Padded(jnp.asarray(neighbour), jnp.asarray(weight, dtype))


def laid_out(weights: sparse.csr_array, dtype: Any) -> Any:
    """Those weights as `Dense`, `Padded` or `Edges`, whichever is fastest: it follows from where
    there are links, not from their weights.
    """
    return _others(weights, dtype)
