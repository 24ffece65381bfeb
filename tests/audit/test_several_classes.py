"""Audits of softmax regression: the search reaches what is certified, does not pass it, and finds a
change that is declared too small.
"""

from __future__ import annotations

import numpy as np
import pytest

import hearsay as hs
from hearsay.audit.pairs import candidates
from hearsay.audit.search import search
from hearsay.audit.whole import unavailable
from hearsay.problems import Ball, Problem, Softmax
from tests.factories import holding

GRAPH = hs.graphs.ring(3, weight=0.3)


class TooSmall(Softmax):
    """Half of what a record does."""

    def unclipped_change(self, reach: float) -> float:
        return super().unclipped_change(reach) / 2

    def unclipped_longest(self, reach: float) -> float:
        return super().unclipped_longest(reach) / 2


def world(loss: Softmax, adjacency: str) -> Problem:
    rng = np.random.default_rng(0)
    features = rng.uniform(-1, 1, (3, 6, 2)) * loss.feature_bound / np.sqrt(2)
    labels = rng.integers(0, loss.classes, (3, 6)).astype(float)
    return holding(loss, features, labels, Ball(50.0), classification=True, adjacency=adjacency)


def noisy(name: str = "gradient-perturbation"):
    step, noise = hs.PowerLaw(0.1, -0.5), hs.PowerLaw(1.0, 0.1)
    return hs.REGISTRY[name](step=step, noise=noise, sampling=hs.Cyclic())


# Of gradient tracking, whose messages react to the state, the clipped one rests on the interval
# that softmax.py proves.
@pytest.mark.parametrize(
    "name, loss, adjacency, least",
    [
        pytest.param(
            "gradient-perturbation", Softmax(1.0, 3, 0.1), "replace", 0.95, marks=pytest.mark.slow
        ),
        pytest.param(
            "gradient-perturbation", Softmax(1.0, 3, 0.1), "zero-out", 0.99, marks=pytest.mark.slow
        ),
        pytest.param(
            "gradient-perturbation",
            Softmax(1.0, 3, 0.1, 0.5),
            "replace",
            0.99,
            marks=pytest.mark.slow,
        ),
        ("gradient-tracking", Softmax(1.0, 3, 0.1, 0.5), "replace", 0.9),
    ],
)
def test_a_search_reaches_the_certificate_and_does_not_pass_it(name, loss, adjacency, least):
    problem = world(loss, adjacency)
    found = search(noisy(name), problem, GRAPH, agent=1, steps=2, iterations=15)
    assert least < found.worst <= 1 + 1e-9
    for one in found.pair:
        loss.require_admissible(np.asarray(one.features), np.asarray(one.labels))


@pytest.mark.parametrize("adjacency", [pytest.param("replace", marks=pytest.mark.slow), "zero-out"])
def test_a_change_declared_too_small_is_caught(adjacency):
    problem = world(TooSmall(1.0, 3, 0.1), adjacency)
    assert search(noisy(), problem, GRAPH, agent=1, steps=2, iterations=15).worst > 1.5


@pytest.mark.parametrize("adjacency", ["replace", "zero-out"])
def test_pairs_worth_telling_apart_are_admissible(adjacency):
    problem = world(Softmax(1.5, 4), adjacency)
    pairs = candidates(noisy(), problem, GRAPH, 1, 3)
    assert len(pairs) > 10
    for pair in pairs:
        for one in pair[:2]:
            problem.loss.require_admissible(np.asarray(one.features), np.asarray(one.labels))
        assert np.linalg.norm(pair.first.features - pair.second.features) > 0 or np.any(
            pair.first.labels != pair.second.labels
        )
    for part in ("search", "runs"):
        assert not unavailable(part, noisy(), problem.task, GRAPH, 3, 1e-5)
