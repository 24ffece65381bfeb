"""Agents on several devices: which device has whom, and how arrays get there and back.

A `Layout` is a mesh of devices with one axis, over which blocks of agents are dealt out
(graphs/halo.py). What lies on devices has a row for every row of the blocks, those that fill up a
block included; what the rest of the program sees (models, checkpoints, metrics) has the agents in
the order of their numbers, and nothing in it says how many devices or processes there were.

With several processes (processes.py) every process holds the problem in its own memory and places
the part of it that its devices have; what is gathered, all of them get.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from hearsay import _validate as require
from hearsay.graphs.halo import AXIS, Blocks
from hearsay.release.readouts import Kept
from hearsay.simulation.program import Carry

ALL = "all"


@dataclass(frozen=True)
class Layout:
    """Which device has which agents; made by `layout`.

    Args:
      mesh: of devices, with the one axis "agents".
      blocks: of agents, one for each device.
    """

    mesh: Mesh
    blocks: Blocks

    def place(self, array: Any, axis: int = 0) -> jax.Array:
        """An array with an axis of agents, in the order of their numbers, on the devices."""
        if jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key):
            data = self.place(np.asarray(jax.random.key_data(array)), axis)
            return _keys(data, impl=str(jax.random.key_impl(array)))
        host = _held(array)
        shape = (*host.shape[:axis], self.blocks.rows, *host.shape[axis + 1 :])

        def part(index: Any) -> np.ndarray:
            return host.take(self.blocks.agent_of[index[axis]], axis=axis)

        return jax.make_array_from_callback(shape, self.sharding(axis), part)

    def deal(self, array: Any, axis: int = 0) -> jax.Array:
        """An array whose axis already has one part for every device, or a row for every row."""
        if jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key):
            data = self.deal(np.asarray(jax.random.key_data(array)), axis)
            return _keys(data, impl=str(jax.random.key_impl(array)))
        host = _held(array)
        return jax.make_array_from_callback(host.shape, self.sharding(axis), host.__getitem__)

    def repeat(self, array: Any) -> jax.Array:
        """An array that every device has as it is."""
        host = _held(array)
        return jax.make_array_from_callback(
            host.shape, NamedSharding(self.mesh, PartitionSpec()), host.__getitem__
        )

    def sharding(self, axis: int) -> NamedSharding:
        """Dealt out along that axis."""
        return NamedSharding(self.mesh, PartitionSpec(*[None] * axis, AXIS))

    def gathered(self, array: jax.Array, axis: int = 0) -> np.ndarray:
        """An array on the devices as one of the host's, agents in the order of their numbers.
        All processes must ask together, and all get it.
        """
        if not array.is_fully_addressable:
            host = multihost_utils.process_allgather(array, tiled=True)
        else:
            host = np.asarray(array)
        if self.blocks.rows == self.blocks.agents:
            return host
        return host.take(self.blocks.row_of, axis=axis)

    def in_order(self, carry: Carry) -> Carry:
        """The carry as arrays of the host: what a checkpoint holds, whatever the layout."""
        return _mapped(self.gathered, carry)

    def out_again(self, carry: Carry) -> Carry:
        """What `in_order` gave, on the devices."""
        return _mapped(self.place, carry)

    def like(self, carry: Carry) -> Carry:
        """The shapes of what `in_order` gives."""

        def shape(array: Any, axis: int = 0) -> jax.ShapeDtypeStruct:
            sizes = (*array.shape[:axis], self.blocks.agents, *array.shape[axis + 1 :])
            return jax.ShapeDtypeStruct(sizes, array.dtype)

        return _mapped(shape, carry)

    def __str__(self) -> str:
        first, count = self.mesh.devices.flat[0], self.blocks.shards
        held = f"{count} {first.platform} devices ({first.device_kind})"
        several = f" of {jax.process_count()} processes" if jax.process_count() > 1 else ""
        return f"{held}{several} with {self.blocks.width} agents each"


def _held(array: Any) -> np.ndarray:
    """As an array of the host, of a type that devices have."""
    host = np.asarray(array)
    return host.astype(jax.dtypes.canonicalize_dtype(host.dtype), copy=False)


def _mapped(function: Any, carry: Carry) -> Carry:
    """The function of every array and of its axis of agents."""
    second = partial(jax.tree.map, lambda x: function(x, 1))
    kept = carry.kept
    if kept:
        kept = Kept(second(kept.model), function(kept.slots, 2))
    sampler = jax.tree.map(lambda x: function(x, 0), carry.sampler)
    return Carry(second(carry.states), function(carry.readout, 1), sampler, kept)


@partial(jax.jit, static_argnames="impl")
def _keys(data: jax.Array, *, impl: str) -> jax.Array:
    return jax.random.wrap_key_data(data, impl=impl)


def layout(agents: int, devices: int | str | None) -> Layout | None:
    """Where so many agents are to be computed; None: on one device.

    Args:
      agents: how many there are.
      devices: how many devices, "all" of every process, or None.
    """
    if devices is None:
        return None
    chosen: Any = getattr(jax.config, "jax_default_device", None)
    found = jax.devices() if chosen is None else jax.devices(chosen.platform)
    count = len(found) if devices == ALL else _count(devices, found)
    if count > agents:
        require.fail("devices", f"at most one for each of the {agents} agents", count)
    if count == 1:
        return None
    return Layout(Mesh(np.array(found[:count]), (AXIS,)), Blocks(agents, count))


def _count(devices: int | str, found: list) -> int:
    if isinstance(devices, str):
        require.fail("devices", "a number of devices, or all", devices)
    count = require.count("devices", devices)
    if jax.process_count() > 1 and count != len(found):
        rule = f"all (or {len(found)}) where {jax.process_count()} processes take part"
        require.fail("devices", rule, devices)
    if count > len(found):
        here = f"at most the {len(found)} {found[0].platform} devices that jax finds"
        require.fail("devices", here, devices)
    return count
