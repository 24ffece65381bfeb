"""Mixing over several devices: what each is sent is what it needs, and the sum over neighbours is
the matrix product, wherever agents are. Devices are stood in for by `jax.vmap`, in which the same
exchanges have the same meaning.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hearsay import graphs
from hearsay.graphs import halo
from hearsay.graphs.channels import CHANNELS, Dense, Edges, Padded, mixer

# Fewer agents than this are a dense product whatever the graph.
MANY = 150
GRAPHS = {
    "dense": (graphs.ring(7), Dense),
    "padded": (graphs.random(MANY, degree=4), Padded),
    "directed": (graphs.random_digraph(MANY, degree=3), Padded),
    "edges": (graphs.star(MANY), Edges),
}


def by_device(tree, blocks):
    """(device, its part, ...) of what is dealt out along the first axis."""

    def dealt(x):
        return jnp.asarray(x).reshape(blocks.shards, -1, *x.shape[1:])

    return jax.tree.map(dealt, tree)


@pytest.mark.parametrize("agents, shards", [(5, 2), (8, 8), (9, 8), (12, 4), (23, 7), (3, 1)])
def test_blocks_are_even_and_every_agent_is_in_one(agents, shards):
    blocks = halo.Blocks(agents, shards)
    sizes = blocks.real.reshape(shards, -1).sum(axis=1)
    assert sizes.sum() == agents and sizes.max() - sizes.min() <= 1 and sizes.max() == blocks.width
    np.testing.assert_array_equal(blocks.agent_of[blocks.row_of], np.arange(agents))
    # What fills up a block is a copy of an agent of the same block.
    homes = np.repeat(np.arange(shards), blocks.width)
    np.testing.assert_array_equal(homes[blocks.row_of][blocks.agent_of], homes)
    assert blocks.share.sum() == pytest.approx(1)


def test_more_blocks_than_agents_are_refused():
    with pytest.raises(
        ValueError, match="shards must be at most one for each of the 3 agents, got 4"
    ):
        halo.Blocks(3, 4)


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("shards", [2, 7])
def test_devices_send_each_other_the_rows_that_are_heard_there_and_no_others(name, shards):
    weights = GRAPHS[name][0].weights
    blocks = halo.Blocks(weights.shape[0], shards)
    found = halo.plan(weights, blocks)
    home = blocks.row_of // blocks.width
    coo = weights.tocoo()
    for one in range(shards):
        for other in set(range(shards)) - {one}:
            crossing = (home[coo.row] == other) & (home[coo.col] == one)
            needed = sorted(set(blocks.row_of[coo.col[crossing]] % blocks.width))
            sent = found.send[one, other]
            assert sent[: len(needed)].tolist() == needed
            assert not sent[len(needed) :].any()
    most = max(
        len(set(coo.col[(home[coo.row] == b) & (home[coo.col] == a)]))
        for a in range(shards)
        for b in set(range(shards)) - {a}
    )
    assert found.send.shape[2] == most


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("channel", CHANNELS)
def test_what_is_heard_does_not_depend_on_the_number_of_devices(name, channel):
    graph, form = GRAPHS[name]
    blocks = halo.Blocks(graph.agents, 4)
    values = np.random.default_rng(0).normal(size=(graph.agents, 3))
    # What fills up a block must reach nobody.
    rows = np.where(blocks.real[:, None], values[blocks.agent_of], 1e9)
    coin = jnp.asarray(0.4)
    whole = mixer(graph, channel, jnp.float64).at(coin)
    parts = halo.mixer(graph, channel, jnp.float64, blocks)
    if isinstance(getattr(parts, "others", None), halo.Halo):
        others = parts.others.others
        assert isinstance(others, {Edges: halo.LocalEdges}.get(form, form))

    def one_device(mixer, values):
        now = mixer.at(coin)
        return now.total(values), now.own

    every = jax.vmap(one_device, axis_name=halo.AXIS)
    total, own = every(by_device(parts, blocks), by_device(rows, blocks))
    total, own = total.reshape(rows.shape)[blocks.row_of], own.ravel()[blocks.row_of]
    np.testing.assert_allclose(total, whole.total(jnp.asarray(values)), atol=1e-12)
    np.testing.assert_allclose(own, whole.own, atol=1e-15)
