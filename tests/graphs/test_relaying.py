"""How large what is passed on can become, against messages that make it so."""

from __future__ import annotations

import numpy as np
import pytest

import hearsay as hs
from hearsay.graphs.relaying import growth

GRAPHS = (hs.graphs.ring(5), hs.graphs.ring(16), hs.graphs.star(7), hs.graphs.grid(12))


def relayed(graph, relays: np.ndarray) -> list[np.ndarray]:
    """The matrices P_t, phase by phase, from what happens to one agent's message at a time."""
    weights = graph.weights.toarray()
    matrix = np.eye(graph.agents) - np.diag(weights.sum(axis=1)) + weights
    found = []
    for message in np.eye(graph.agents):
        before, now, column = message, message, [message]
        for first, second in relays:
            before, now = now, first * (matrix @ now) - second * before
            column.append(now)
        found.append(column)
    return list(np.array(found).transpose(1, 2, 0))


@pytest.mark.parametrize("graph", GRAPHS, ids=lambda g: f"{g.name} {g.agents}")
@pytest.mark.parametrize("chebyshev", [False, True])
def test_the_bound_holds_and_is_reached(graph, chebyshev):
    """By messages of size 1 whose signs are those of a row."""
    relays = hs.gradient_perturbation(averaging=9, chebyshev=chebyshev).relays(graph)
    found, matrices = growth(graph, ["mixing"], relays), relayed(graph, relays)
    reached = 0.0
    for matrix in matrices:
        for row in matrix:
            reached = max(reached, float(np.abs(matrix @ np.sign(row)).max()))
    assert reached == pytest.approx(found, abs=1e-8)
    assert found <= np.sqrt(graph.agents) if chebyshev else found == 1.0


def test_without_relays_nothing_grows():
    assert growth(hs.graphs.ring(4), ["mixing", "coupling"], np.empty((0, 2))) == 1.0


def test_weights_above_one_count():
    """Nothing that hearsay has, but an algorithm from outside may."""
    assert growth(hs.graphs.ring(4), ["mixing"], np.array([[2.0, 0.0], [3.0, 0.0]])) == 6.0


def test_chebyshevs_weights_drive_agents_apart_where_messages_are_missing():
    """Why a deployed run refuses them under policy skip, and plain averages not: a ring of 16, 30 %
    of messages missing, differences after eight exchanges against those before. The seed is fixed.
    """
    graph, rng, worst = hs.graphs.ring(16, weight=0.3), np.random.default_rng(0), {}
    agree, weights = np.full((16, 16), 1 / 16), graph.weights.toarray()
    for chebyshev in (False, True):
        relays = hs.gradient_perturbation(averaging=8, chebyshev=chebyshev).relays(graph)
        apart = []
        for _ in range(100):
            before = now = np.eye(16) - agree
            for first, second in relays:
                heard = weights * (rng.random((16, 16)) > 0.3)
                matrix = np.eye(16) - np.diag(heard.sum(axis=1)) + heard
                before, now = now, first * (matrix @ now) - second * before
            apart.append(np.linalg.norm(now - agree @ now, 2))
        worst[chebyshev] = max(apart)
    assert worst[True] > 2 and worst[False] < 1.1
