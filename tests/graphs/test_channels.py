"""Mixing: whichever way the sum over neighbours is computed, it is the matrix product."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest

from hearsay import graphs
from hearsay.graphs.channels import CHANNELS, Dense, Edges, Padded, channel, mixer

GRAPHS = {
    "ring of 10": (graphs.ring(10, 0.3), Dense),
    "complete 150": (graphs.complete(150), Dense),
    "random regular 300": (graphs.random(300, degree=6), Padded),
    "grid 300": (graphs.grid(300), Padded),
    "star of 300": (graphs.star(300), Edges),
}


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("channel", ["coupling", "mixing"])
def test_every_way_of_mixing_equals_the_dense_product(name, channel):
    graph, way = GRAPHS[name]
    weights = graph.weights.toarray()
    mix = mixer(graph, channel, jnp.float64)
    assert isinstance(mix.others, way)
    for shape in ((3,), (2, 4), ()):
        values = np.random.default_rng(0).normal(size=(graph.agents, *shape))
        flat = values.reshape(graph.agents, -1)
        total = mix.total(jnp.asarray(values))
        assert total.shape == values.shape
        np.testing.assert_allclose(total.reshape(flat.shape), weights @ flat, atol=1e-13)
        # With the agent's own value weighted in, the result is the whole matrix times the values.
        matrix = (
            weights
            - np.diag(weights.sum(axis=1))
            + (np.eye(graph.agents) if channel == "mixing" else 0)
        )
        whole = total.reshape(flat.shape) + np.asarray(mix.own)[:, None] * flat
        np.testing.assert_allclose(whole, matrix @ flat, atol=1e-13)


def test_few_neighbours_are_added_up_one_by_one_on_accelerators(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    graph = graphs.five_agents(weight=0.1)
    values = np.random.default_rng(0).normal(size=(5, 3))
    for kind, weights in (("coupling", graph.weights), ("pushing", graph.pushed)):
        mix = mixer(graph, kind, jnp.float64)
        assert isinstance(mix.others, Padded)
        np.testing.assert_allclose(mix.total(jnp.asarray(values)), weights @ values, atol=1e-15)
    assert isinstance(mixer(graphs.complete(10), "coupling", jnp.float64).others, Dense)


def test_uneven_degrees_and_lopsided_weights_in_the_padded_form():
    rng = np.random.default_rng(1)
    weights = rng.uniform(size=(200, 200)) * (rng.uniform(size=(200, 200)) < 0.05)
    weights[np.arange(200), (np.arange(200) + 1) % 200] = 0.5  # a ring keeps it connected
    graph = graphs.from_weights(weights)
    mix = mixer(graph, "coupling", jnp.float64)
    assert isinstance(mix.others, Padded)
    values = rng.normal(size=(200, 3))
    np.testing.assert_allclose(
        mix.total(jnp.asarray(values)), graph.weights.toarray() @ values, atol=1e-12
    )


def test_the_edge_form_reads_weights_by_row_of_the_listener():
    weights = np.zeros((150, 150))
    weights[0, 1:], weights[1:, 0] = np.linspace(0.1, 0.2, 149), np.linspace(0.3, 0.4, 149)
    mix = mixer(graphs.from_weights(weights), "coupling", jnp.float64)
    assert isinstance(mix.others, Edges)
    values = np.random.default_rng(2).normal(size=(150, 2))
    np.testing.assert_allclose(mix.total(jnp.asarray(values)), weights @ values, atol=1e-12)


def test_own_weights_and_precision():
    graph = graphs.ring(5, 0.3)
    np.testing.assert_allclose(mixer(graph, "coupling", jnp.float64).own, -0.6)
    np.testing.assert_allclose(mixer(graph, "mixing", jnp.float64).own, 0.4)
    pair = graphs.from_networkx(nx.DiGraph([(0, 1), (1, 2), (2, 0), (0, 2)]))
    np.testing.assert_allclose(mixer(pair, "pushing", jnp.float64).own, [-2 / 3, -1 / 2, -1 / 2])
    np.testing.assert_allclose(mixer(pair, "pulling", jnp.float64).own, [-1 / 2, -1 / 3, -5 / 6])
    np.testing.assert_allclose(
        mixer(pair, "pushing", jnp.float64).total(jnp.eye(3)), pair.pushed.toarray()
    )
    single = mixer(graph, "mixing", jnp.float32)
    assert single.own.dtype == single.others.matrix.dtype == jnp.float32
    with pytest.raises(
        ValueError,
        match=(
            "channel must be one of coupling, mixing, pushing, pulling, average, waking, got 'mix';"
            " did you mean 'mixing'"
        ),
    ):
        mixer(graph, "mix", jnp.float64)


@pytest.mark.parametrize("coin", [0.0, 0.3, 0.999])
@pytest.mark.parametrize("name", CHANNELS)
def test_an_agents_row_and_own_weight_are_those_of_everybody_at_once(name, coin):
    """Whatever the public coin of the round."""
    graph = graphs.from_networkx(nx.DiGraph([(0, 1), (1, 2), (2, 0), (0, 2), (2, 3), (3, 0)]))
    whole = mixer(graph, name, jnp.float64).at(coin)
    matrix = np.asarray(whole.total(jnp.eye(graph.agents)))
    for agent in range(graph.agents):
        row = channel(name).row_at(graph, agent, coin)
        assert row.items() <= channel(name).row(graph, agent).items()
        expected = [row.get(j, 0.0) for j in range(graph.agents)]
        np.testing.assert_allclose(matrix[agent], expected, atol=1e-15)
        own = channel(name).own(graph, agent, sum(row.values()))
        np.testing.assert_allclose(whole.own[agent], own, atol=1e-15)


def test_which_channels_can_do_without_a_message():
    assert {name for name, one in CHANNELS.items() if one.may_skip} == {
        "coupling",
        "mixing",
        "waking",
    }
    assert all(one.may_skip is not bool(one.needs_all) for one in CHANNELS.values())
