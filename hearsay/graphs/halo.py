"""Mixing over several devices: every device sends each other one the messages that it needs there,
and no others.

Agents are dealt out to devices in blocks of their numbers (`Blocks`). Over the edges of a graph a
device needs, besides its own agents' messages, those of the agents that its own ones hear: its
halo. Who needs what of whom follows from the graph alone and is worked out once, on the host
(`plan`). In a round every device picks out the rows that each of the others needs, one exchange of
all with all delivers them, and what is heard is summed up over a table of rows: the device's own,
then the halo.

Devices run one program on arrays of one shape, so blocks are filled up to the same number of rows,
and halos to the same number of rows from each device. What fills up a block is a copy of its first
agent, which nobody hears and which hears nobody; `Blocks` knows the true ones.

All arrays here have a leading axis that is dealt out to the devices: `Halo` and the others are
called by each device with its own part of them (simulation/sharded.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy import sparse

from hearsay import _validate as require
from hearsay.graphs.channels import (
    Average,
    Dense,
    Edges,
    Mixer,
    Padded,
    Waking,
    channel,
    edge_of,
    form,
)
from hearsay.graphs.graph import Graph
from hearsay.graphs.pairs import edges

# The axis of a mesh of devices over which agents are dealt out.
AXIS = "agents"


@dataclass(frozen=True)
class Blocks:
    """Agents 0 ... n-1 in blocks of consecutive ones, as even as can be, each filled up to the
    same number of rows.

    Args:
      agents: how many there are.
      shards: how many blocks, at most one per agent.

    Example:
      >>> Blocks(5, 2).agent_of.tolist(), Blocks(5, 2).real.tolist()
      ([0, 1, 0, 2, 3, 4], [True, True, False, True, True, True])
    """

    agents: int
    shards: int

    def __post_init__(self) -> None:
        require.settle(self, agents=require.count, shards=require.count)
        if self.shards > self.agents:
            require.fail("shards", f"at most one for each of the {self.agents} agents", self.shards)

    @property
    def width(self) -> int:
        """The rows of a block."""
        return -(-self.agents // self.shards)

    @property
    def rows(self) -> int:
        """Of all blocks together."""
        return self.shards * self.width

    @cached_property
    def bounds(self) -> np.ndarray:
        """(shard + 1,): block s has the agents from bounds[s] to bounds[s + 1] - 1."""
        return np.arange(self.shards + 1) * self.agents // self.shards

    @cached_property
    def agent_of(self) -> np.ndarray:
        """(row,): whose row it is; where a block is filled up, its first agent."""
        place = np.arange(self.width)
        first, size = self.bounds[:-1, None], np.diff(self.bounds)[:, None]
        return (first + np.where(place < size, place, 0)).ravel()

    @cached_property
    def real(self) -> np.ndarray:
        """(row,): it is an agent's, and does not fill up a block."""
        return (np.arange(self.width) < np.diff(self.bounds)[:, None]).ravel()

    @cached_property
    def row_of(self) -> np.ndarray:
        """(agent,): where each of them is."""
        return np.flatnonzero(self.real)

    @cached_property
    def share(self) -> np.ndarray:
        """(row,): what a row counts in a mean over all agents."""
        return self.real / self.agents


class Plan(NamedTuple):
    """Who sends what where, and what each device makes of it.

    Args:
      send: (shard, shard, row), the places in shard s of the rows that shard t needs; filled up
        with 0.
      target: (edge,), the row that hears it, sorted.
      source: (edge,), where what is heard is in the table of the target's shard.
      weight: (edge,).
    """

    send: np.ndarray
    target: np.ndarray
    source: np.ndarray
    weight: np.ndarray

    @property
    def table(self) -> int:
        """The rows of a device's table besides its own agents'."""
        return self.send.shape[0] * self.send.shape[2]


def plan(weights: sparse.csr_array, blocks: Blocks) -> Plan:
    """What follows from the weights, at a cost that follows the edges.

    Args:
      weights: w_ij, agent i hears agent j.
      blocks: who is where.
    """
    degrees = np.diff(weights.indptr)
    target = np.repeat(blocks.row_of, degrees)
    row = blocks.row_of[weights.indices]
    to, of = target // blocks.width, row // blocks.width
    away = to != of
    # Every (to, row) once, in order of (of, to, row): the rows that shard `of` sends to shard `to`.
    code = (of[away] * blocks.shards + to[away]) * blocks.width + row[away] % blocks.width
    needed, back = np.unique(code, return_inverse=True)
    pair, local = needed // blocks.width, needed % blocks.width
    counts = np.bincount(pair, minlength=blocks.shards**2)
    most = max(1, int(counts.max()))
    slot = np.arange(len(needed)) - np.repeat(np.cumsum(counts) - counts, counts)
    send = np.zeros((blocks.shards**2, most), np.int32)
    send[pair, slot] = local
    source = row % blocks.width
    source[away] = blocks.width + of[away] * most + slot[back]
    shape = (blocks.shards, blocks.shards, most)
    return Plan(send.reshape(shape), target, source.astype(np.int32), weights.data)


class Halo(eqx.Module):
    """What each of a device's agents hears over the edges of a graph.

    Args:
      send: (1, shard, row), which rows each device needs.
      others: what is made of the table of rows, own ones and halo.
    """

    send: jax.Array
    others: Any

    def __call__(self, values: jax.Array) -> jax.Array:
        sent = values[self.send[0]]
        halo = jax.lax.all_to_all(sent, AXIS, 0, 0)
        return self.others(jnp.concatenate([values, halo.reshape(-1, values.shape[1])]))


class LocalEdges(eqx.Module):
    """Edge by edge; all arrays (1, edge), weight 0 where a device has fewer.

    Args:
      width: the rows that hear something.
    """

    source: jax.Array
    target: jax.Array
    weight: jax.Array
    width: int = eqx.field(static=True)

    def __call__(self, table: jax.Array) -> jax.Array:
        heard = self.weight[0][:, None] * table[self.source[0]]
        return jax.ops.segment_sum(heard, self.target[0], self.width, indices_are_sorted=True)


class EverybodysMean(eqx.Module):
    """Everybody with the same weight 1/n, by one sum over all devices.

    Args:
      share: (row,), 1/n, and 0 for what fills up a block.
    """

    share: jax.Array

    def __call__(self, values: jax.Array) -> jax.Array:
        total = jax.lax.psum(jnp.sum(self.share[:, None] * values, axis=0, keepdims=True), AXIS)
        return total - self.share[:, None] * values


class WakingRows(eqx.Module):
    """Two agents average their messages, wherever they are.

    Args:
      ends: (1, edge, 2), the rows of both ends.
      own: as `WakingMixer` has it.
    """

    ends: jax.Array
    own: jax.Array

    def at(self, coin: jax.Array) -> Mixer:
        ends = self.ends[0, edge_of(coin, self.ends.shape[1])]
        # Places in this device's block: elsewhere they lie outside it.
        here = ends - jax.lax.axis_index(AXIS) * len(self.own)
        mine = jnp.arange(len(self.own))[:, None] == here[None]
        return Mixer(_Woken(mine), jnp.where(mine.any(axis=1), 0.5, 1.0).astype(self.own.dtype))


class _Woken(eqx.Module):
    """mine: (row, 2), which of its rows are the two ends."""

    mine: jax.Array

    def __call__(self, values: jax.Array) -> jax.Array:
        ends = self.mine.astype(values.dtype)
        low, high = jax.lax.psum(ends.T @ values, AXIS)
        return 0.5 * (ends[:, :1] * high[None] + ends[:, 1:] * low[None])


def mixer(graph: Graph, name: str, dtype: Any, blocks: Blocks) -> Any:
    """What agents in blocks hear over the channel of that name, in host arrays whose first axis is
    to be dealt out: rows of agents, or one part for each device.

    Args:
      graph: who hears whom.
      name: of the channel.
      dtype: of the weights.
      blocks: who is where.
    """
    found: Any = channel(name)
    if isinstance(found, Average):
        share: Any = blocks.share.astype(dtype)
        return Mixer(EverybodysMean(share), share)
    if isinstance(found, Waking):
        pairs = blocks.row_of[edges(graph)]
        ends: Any = np.broadcast_to(pairs, (blocks.shards, *pairs.shape))
        half: Any = np.full(blocks.rows, 0.5, dtype)
        return WakingRows(ends, half)
    weights = found.weights(graph)
    heard = np.asarray(weights.sum(axis=1)).ravel().tolist()
    each = np.array([found.own(graph, agent, total) for agent, total in enumerate(heard)])
    own: Any = each[blocks.agent_of].astype(dtype)
    planned = plan(weights, blocks)
    send: Any = planned.send
    return Mixer(Halo(send, _others(planned, form(weights), blocks, dtype)), own)


def _others(planned: Plan, kind: type, blocks: Blocks, dtype: Any) -> Any:
    """What each device makes of its table, in that form."""
    target, weight = planned.target, planned.weight.astype(dtype)
    if kind is Dense:
        matrix: Any = np.zeros((blocks.rows, blocks.width + planned.table), dtype)
        # An agent hears another one over one edge.
        matrix[target, planned.source] = weight
        return Dense(matrix)
    if kind is Edges:
        return _by_shard(planned, weight, blocks)
    degrees = np.bincount(target, minlength=blocks.rows)
    slot = np.arange(len(target)) - np.repeat(np.cumsum(degrees) - degrees, degrees)
    neighbour: Any = np.zeros((blocks.rows, degrees.max()), np.int32)
    weights: Any = np.zeros(neighbour.shape, dtype)
    neighbour[target, slot], weights[target, slot] = planned.source, weight
    return Padded(neighbour, weights)


def _by_shard(planned: Plan, weight: np.ndarray, blocks: Blocks) -> LocalEdges:
    shard = planned.target // blocks.width
    counts = np.bincount(shard, minlength=blocks.shards)
    slot = np.arange(len(shard)) - np.repeat(np.cumsum(counts) - counts, counts)
    shape = (blocks.shards, int(counts.max()))
    source: Any = np.zeros(shape, np.int32)
    weights: Any = np.zeros(shape, weight.dtype)
    # What fills up a list stands at its end: targets stay sorted.
    target: Any = np.full(shape, blocks.width - 1, np.int32)
    source[shard, slot], weights[shard, slot] = planned.source, weight
    target[shard, slot] = planned.target % blocks.width
    return LocalEdges(source, target, weights, blocks.width)
