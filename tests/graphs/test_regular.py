"""Large random regular graphs: those that networkx draws from the same seed."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

import hearsay as hs
from hearsay.graphs import regular
from hearsay.graphs.pairs import edges, slots


@pytest.mark.parametrize(("agents", "degree", "seed"), [(2001, 6, 0), (2001, 6, 1), (2002, 21, 5)])
def test_the_draw_is_that_of_networkx(agents, degree, seed):
    drawn = nx.random_regular_graph(degree, agents, seed=seed).edges
    right = sorted(tuple(sorted(edge)) for edge in drawn)
    assert regular.regular_pairs(agents, degree, seed).tolist() == [list(edge) for edge in right]


def test_what_cannot_become_pairs_is_drawn_anew(monkeypatch):
    """Of 12 agents with 9 neighbours each some draws come to nothing."""
    monkeypatch.setattr(regular, "_SMALL", 0)
    tried = []
    real = regular._drawn
    monkeypatch.setattr(regular, "_drawn", lambda *args: tried.append(real(*args)) or tried[-1])
    for seed in range(20):
        pairs = regular.regular_pairs(12, 9, seed)
        assert len(np.unique(pairs, axis=0)) == 54 and (pairs[:, 0] < pairs[:, 1]).all()
        assert (np.bincount(pairs.ravel()) == 9).all()
    assert any(found is None for found in tried)


def test_a_large_graph_has_the_rules_weights():
    graph = hs.graphs.random(3000, degree=6, seed=2)
    assert graph.symmetric and graph.edges == 18_000
    assert set(graph.weights.data.tolist()) == {1 / 7}
    assert set(hs.graphs.random(3000, 0.1, degree=6, seed=2).weights.data.tolist()) == {0.1}


def test_everybodys_edges_are_found_at_once():
    """Against one agent after the other, on a graph of uneven degrees."""
    graph = hs.graphs.from_networkx(nx.karate_club_graph())
    ends = edges(graph)
    for agent, found in enumerate(slots(graph)):
        right = np.flatnonzero((ends == agent).any(axis=1))
        assert found[found >= 0].tolist() == right.tolist()
        assert (found[len(right) :] == -1).all()
