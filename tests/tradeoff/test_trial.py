"""The trial's NumPy rounds are those of the engine."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import hearsay as hs
from hearsay.problems.problem import Problem
from hearsay.release.readouts import Exponential, Tail
from hearsay.tradeoff.rule import Setting, noisy_gradient
from hearsay.tradeoff.trial import Column, exchange, released, tried

READOUTS = (Tail(), Exponential())


def problem(kind: str) -> Problem:
    rng = np.random.default_rng(3)
    counts, width, classes = (9, 6, 12), 3, 4 if kind == "softmax" else 2

    def one(count: int) -> tuple[np.ndarray, np.ndarray]:
        features = rng.normal(size=(count, width))
        if kind == "ridge":
            return features, np.clip(features[:, 0], -1, 1)
        return features, rng.integers(0, classes, count).astype(float)

    options = {"feature_bound": 2.0, "test": one(40), "head_start": 12, "ridge": 0.1}
    sets = [one(count) for count in counts]
    if kind == "ridge":
        return hs.problems.ridge(sets, label_bound=1.0, radius=0.5, clip=0.7, **options)
    if kind == "softmax":
        return hs.problems.softmax(sets, classes=classes, clip=0.6, **options)
    return hs.problems.logistic(sets, clip=0.4, **options)


def simulated(found: Problem, algorithm, graph, seeds: int) -> dict[str, np.ndarray]:
    run = hs.simulate(
        algorithm, found, graph, steps=24, seeds=seeds, delta=1e-5, reference=False, regret=False,
        release=READOUTS,
    )  # fmt: skip
    return run.averages


GRAPHS = {
    "complete": (hs.graphs.complete(3), 0, False),
    "path": (hs.graphs.edges(3, [[0, 1], [1, 2]]), 2, True),
    "one more exchange": (hs.graphs.edges(3, [[0, 1], [1, 2]]), 1, False),
}


@pytest.mark.parametrize("kind", ["logistic", "ridge", "softmax"])
@pytest.mark.parametrize("graph", GRAPHS)
def test_without_noise_its_models_are_the_engines(kind, graph):
    found, (on, averaging, chebyshev) = problem(kind), GRAPHS[graph]
    algorithm = noisy_gradient(Setting(24, 0.5, 1.0, averaging, chebyshev))
    algorithm = replace(algorithm, noise=hs.Constant(0.0))
    expected = simulated(found, algorithm, on, 1)
    passed = exchange(on, 0.999, algorithm.relays(on))
    clip = found.loss.clip
    columns = [Column(24, 0.5, (0.0,) * 3, clip), Column(8, 0.25, (0.0,) * 3, clip)]
    apart = released(found, passed, columns, READOUTS, [0], together=False)
    together = released(found, passed, columns, READOUTS, [0])
    for place, one in enumerate(READOUTS):
        own = expected[one.name][0]
        assert np.linalg.norm(own) > 0.1
        np.testing.assert_allclose(together[place][0][0, 0], own.mean(axis=0), atol=2e-5)
        # Deeper relays: single agents show what they sent before them.
        if not averaging:
            np.testing.assert_allclose(apart[place][0][:, 0], own, atol=2e-5)
    assert not np.allclose(together[0][1], together[0][0])


def test_weights_are_those_of_the_engine():
    found, on, weights = problem("softmax"), hs.graphs.complete(3), (0.25, 0.5, 2.25)
    algorithm = noisy_gradient(Setting(24, 0.5, 1.0, 1, weights=weights))
    expected = simulated(found, replace(algorithm, noise=hs.Constant(0.0)), on, 1)
    column = Column(24, 0.5, (0.0,) * 3, found.loss.clip, weights)
    passed = exchange(on, 0.999, algorithm.relays(on))
    together = released(found, passed, [column, replace(column, weights=None)], READOUTS, [0])
    for place, one in enumerate(READOUTS):
        np.testing.assert_allclose(
            together[place][0][0, 0], expected[one.name][0].mean(axis=0), atol=2e-5
        )
        assert not np.allclose(together[place][1], together[place][0], atol=1e-3)


def test_what_pairs_share_cancels_between_agents_of_unequal_noise():
    """In units of each agent's own noise it is another number at either end."""
    algorithm = hs.gradient_perturbation(
        mechanism="gaussian", noise=(0.1, 0.4, 1.6), secrets=hs.Secrets(1, ratio=2.0)
    )
    passed = exchange(hs.graphs.complete(3), 0.999, np.zeros((0, 2)), algorithm.shared(3))
    left = np.array([0.1, 0.4, 1.6]) @ passed.shared
    np.testing.assert_allclose(left, 0, atol=1e-6)
    own = (passed.shared**2).sum(axis=1) + 1
    np.testing.assert_allclose(own, [algorithm.shared(3).variance(i) for i in range(3)], rtol=1e-6)


@pytest.mark.parametrize("shared", [False, True])
def test_its_noise_is_as_loud_as_the_engines(shared):
    """False alarm: the sum of squares of 1,200 normal numbers each, 4 % standard error in the
    ratio; 0.25 is six of them, below 1e-8.
    """
    found, on = problem("logistic"), hs.graphs.complete(3)
    algorithm = replace(noisy_gradient(Setting(24, 0.5, 1.0)), noise=hs.Constant(0.3))
    if shared:
        algorithm = replace(algorithm, secrets=hs.Secrets(1, ratio=2.0))
    models = simulated(found, algorithm, on, 400)["tail"].mean(axis=1)
    passed = exchange(on, 0.999, algorithm.relays(on), algorithm.shared(3))
    column = Column(24, 0.5, (0.3,) * 3, found.loss.clip)
    own = released(found, passed, [column], READOUTS, range(400))[0][0][0]
    ratio = own.var(axis=0).sum() / models.var(axis=0).sum()
    assert 0.75 < ratio < 1.33
    np.testing.assert_allclose(
        own.mean(axis=0), models.mean(axis=0), atol=6 * 2 * models.std() / np.sqrt(400)
    )


def test_columns_do_not_disturb_each_other():
    found, on = problem("logistic"), hs.graphs.complete(3)
    passed = exchange(on, 0.999, np.zeros((0, 2)))
    columns = [Column(8, 0.5, (0.1,) * 3, 0.4), Column(24, 1.0, (0.2,) * 3, 0.2)]
    both = tried(found, passed, columns, READOUTS, range(3))
    for place, one in enumerate(columns):
        alone = tried(found, passed, [one], READOUTS, range(3))
        np.testing.assert_allclose(both[:, [place]], alone, atol=0.03)
