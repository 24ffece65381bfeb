"""The engine on several devices: the same trajectory as on one, for every algorithm, whoever shares
noise with whom; the same metrics; and arrays that come back as they went.

Devices are stood in for by `jax.vmap` here, in which exchanges have the same meaning; real ones,
and processes, are in test_devices.py.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, PartitionSpec

import hearsay as hs
from hearsay.graphs.halo import AXIS, Blocks
from hearsay.release.readouts import USUAL
from hearsay.simulation import engine, sharded, shared
from hearsay.simulation.layout import Layout, layout
from hearsay.simulation.rounds import Rounds
from hearsay.simulation.session import Session
from tests.test_contract import ALGORITHMS, small_problem, with_noise

AGENTS, SHARDS, SEEDS = 7, 3, [0, 5]
GRAPH = hs.graphs.random(AGENTS, degree=4)
PROBLEM = small_problem(agents=AGENTS)
SECRET = {"mechanism": "gaussian", "secrets": hs.Secrets(colluders=2)}


def standing_in() -> Layout:
    """Blocks for several devices, all of them on the one there is."""
    return Layout(Mesh(np.array(jax.devices()[:1]), (AXIS,)), Blocks(AGENTS, SHARDS))


def over_specs(function, specs, tree):
    """function(array, the axis along which it is dealt out, or None) of all arrays."""

    def below(spec, part):
        axis = len(spec) - 1 if len(spec) else None
        return jax.tree.map(lambda x: function(x, axis), part)

    return jax.tree.map(below, specs, tree, is_leaf=lambda x: isinstance(x, PartitionSpec))


def dealt(array, axis):
    """(device, ...)."""
    if axis is None:
        return jnp.broadcast_to(array, (SHARDS, *array.shape))
    parts = array.reshape(*array.shape[:axis], SHARDS, -1, *array.shape[axis + 1 :])
    return jnp.moveaxis(parts, axis, 0)


def collected(array, axis):
    parts = jnp.moveaxis(array, 0, axis)
    return parts.reshape(*parts.shape[:axis], -1, *parts.shape[axis + 2 :])


def advance(rounds: Rounds, steps: int) -> None:
    """`Rounds.advance` with `jax.vmap` in the place of devices."""
    brought = engine.inputs(rounds.algorithm, rounds.problem, np.arange(steps), rounds.readouts)
    specs = sharded.specs(rounds.carry, rounds.setting)
    args = (rounds.carry, rounds.setting, sharded.inputs(brought, rounds.layout))

    def one_device(carry, setting, inputs):
        return engine.trajectory(rounds.program, carry, setting, inputs, block=steps)[0]

    found = jax.jit(jax.vmap(one_device, axis_name=AXIS))(*over_specs(dealt, specs, args))
    rounds.carry = over_specs(collected, specs[0], found)


def assert_alike(algorithm, graph=GRAPH, steps: int = 4) -> None:
    begin = partial(Rounds, algorithm, PROBLEM, graph, SEEDS, 0.5, USUAL)
    one, several = begin(), begin(layout=standing_in())
    one.advance(steps)
    advance(several, steps)
    assert jax.tree.structure(one.carry) == jax.tree.structure(several.whole)
    for here, there in zip(jax.tree.leaves(one.carry), jax.tree.leaves(several.whole), strict=True):
        np.testing.assert_allclose(there, here, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_on_several_devices_equals_one(name):
    assert_alike(with_noise(name, 0.2))


@pytest.mark.parametrize("apart", [False, True])
def test_shared_noise_is_the_same_on_several_devices(apart, monkeypatch):
    """Mixed in one product, and, where there are very many agents, pair by pair."""
    monkeypatch.setattr(shared, "MIXED", 1 if apart else 1024)
    assert_alike(hs.dsgd(noise=0.1, **SECRET))


def test_messages_that_are_passed_on_are_the_same_on_several_devices():
    assert_alike(hs.gradient_perturbation(noise=0.1, averaging=2, chebyshev=True))


def test_metrics_do_not_count_what_fills_up_a_block():
    algorithm = hs.dsgd(noise=0.1)
    begin = partial(Session, algorithm, PROBLEM, GRAPH, SEEDS, spread=0.5, readouts=USUAL)
    one, several = begin(), begin(layout=standing_in())
    # The first rows of two blocks are copied: models that lie apart would show it.
    assert several.models.shape[1] == 9 and np.ptp(np.asarray(one.models), axis=1).min() > 0.1
    for name, value in one.metrics().items():
        np.testing.assert_allclose(several.metrics()[name], value, rtol=1e-12, err_msg=name)


def test_what_a_checkpoint_holds_does_not_depend_on_the_layout():
    begin = partial(Session, hs.dsgd(noise=0.1), PROBLEM, GRAPH, SEEDS, spread=0.5, readouts=USUAL)
    one, several = begin(), begin(layout=standing_in())
    kept, other = one.arrays(), several.arrays()
    assert kept.keys() == other.keys()
    for name, value in kept.items():
        assert other[name].dtype == value.dtype and other[name].shape == value.shape
        if value.dtype.kind == "f":
            np.testing.assert_allclose(other[name], value, rtol=1e-12, err_msg=name)
    one.rounds.advance(3)
    several.restore(one.arrays())
    assert several.step == 3
    for here, there in zip(
        jax.tree.leaves(one.carry), jax.tree.leaves(several.rounds.whole), strict=True
    ):
        np.testing.assert_array_equal(there, here)


@pytest.mark.parametrize(
    "devices, message",
    [
        (0, "devices must be at least 1, got 0"),
        (1.5, "devices must be a whole number, got 1.5"),
        ("some", "devices must be a number of devices, or all, got 'some'"),
        (999, "devices must be at most the 1 cpu devices that jax finds, got 999"),
    ],
)
def test_devices_that_cannot_be_are_refused(devices, message):
    with pytest.raises((ValueError, TypeError), match=message):
        hs.simulate(hs.dsgd(noise=0.1), PROBLEM, GRAPH, steps=2, devices=devices)


def test_more_devices_than_agents_are_refused(monkeypatch):
    monkeypatch.setattr(jax, "devices", lambda *_: [jax.local_devices()[0]] * 8)
    with pytest.raises(ValueError, match="devices must be at most one for each of the 7 agents"):
        layout(AGENTS, "all")


def test_all_devices_of_a_machine_with_one_are_one():
    assert layout(AGENTS, "all") is None
