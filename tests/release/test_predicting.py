"""Scores and probabilities of released models, from facts that fit into a file."""

from __future__ import annotations

import numpy as np
import pytest

import hearsay as hs
from hearsay import problems
from hearsay.release import predicting
from hearsay.release.predicting import predictor

RNG = np.random.default_rng(0)


def wards(classes: int, shape: tuple[int, ...] = (3,)):
    return [(RNG.normal(size=(20, *shape)), np.arange(20.0) % classes) for _ in range(2)]


SOFTMAX = problems.softmax(wards(4), classes=4, feature_bound=1.0)
LOGISTIC = problems.logistic(wards(2), feature_bound=1.0)


def test_several_classes():
    found, params = predicting.of(SOFTMAX.task), RNG.normal(size=12)
    features = RNG.normal(size=(7, 3))
    scores = features @ params.reshape(4, 3).T
    np.testing.assert_array_equal(found.scores(params, features), scores)
    np.testing.assert_array_equal(found.predict(params, features), np.argmax(scores, axis=1))
    np.testing.assert_allclose(
        found.probabilities(params, features),
        np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True),
        rtol=1e-12,
    )
    assert found.classes == 4
    again = predictor(found.facts, 12)
    np.testing.assert_array_equal(again.predict(params, features), np.argmax(scores, axis=1))


def test_two_classes():
    found, params = predicting.of(LOGISTIC.task), np.array([1.0, -2.0, 800.0])
    features = np.array([[0.0, 0.0, 0.0], [0.3, 0.1, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, -1.0]])
    ones = found.probabilities(params, features)
    np.testing.assert_allclose(ones[:, 1], [0.5, 1 / (1 + np.exp(-0.1)), 1.0, 0.0], atol=1e-15)
    np.testing.assert_allclose(ones.sum(axis=1), 1.0)
    np.testing.assert_array_equal(found.predict(params, features), [0, 1, 1, 0])
    assert found.classes == 2 and found.scores(params, features).shape == (4, 2)


def test_the_polynomial_stands_in_for_the_logistic_model():
    task = problems.logistic(wards(2), feature_bound=1.0, radius=4.0, approximate=True).task
    features = RNG.normal(size=(5, 3))
    np.testing.assert_array_equal(
        predicting.of(task).probabilities(np.ones(3), features),
        predicting.of(LOGISTIC.task).probabilities(np.ones(3), features),
    )


def test_networks():
    images = problems.from_records(np.zeros((40, 4, 4, 1), np.uint8), np.arange(40) % 3)
    problem = problems.neural(images, model="mlp", agents=2)
    found, params = predicting.of(problem.task), problem.first_models[0]
    features = RNG.integers(0, 256, (9, 4, 4, 1)).astype(np.uint8)
    ones = found.probabilities(params, features)
    assert ones.shape == (9, found.classes)
    np.testing.assert_allclose(ones.sum(axis=1), 1.0)
    np.testing.assert_array_equal(np.argmax(ones, axis=1), found.predict(params, features))


@pytest.mark.parametrize("classes", [True, False])
def test_least_squares_give_none(classes):
    problem = problems.ridge(wards(2) if classes else wards(4), feature_bound=1.0, label_bound=3.0)
    found = predicting.of(problem.task)
    assert found.classes == (2 if classes else None)
    with pytest.raises(ValueError, match="only these give probabilities, got 'Squared'"):
        found.probabilities(np.ones(3), np.ones((2, 3)))


@pytest.mark.parametrize(
    "changed, message",
    [
        ({"classes": 3}, "shape of the released model must be one number"),
        ({"shape": [4]}, "shape of the released model must be one number"),
        ({"shape": [3, 1]}, "shape of the released model must be one number"),
        ({"classes": None}, "classes of the released model must be"),
        ({"loss": "Softmaxx"}, "did you mean 'Softmax'"),
    ],
)
def test_facts_that_do_not_fit_are_refused(changed, message):
    facts = {**predicting.of(SOFTMAX.task).facts, **changed}
    with pytest.raises((ValueError, TypeError), match=message):
        predictor(facts, 12)


def test_a_released_model_keeps_its_classes(tmp_path):
    graph = hs.graphs.ring(2)
    run = hs.simulate(hs.gradient_perturbation(noise=0.1), SOFTMAX, graph, steps=3, reference=False)
    model = run.release()
    model.save(tmp_path / "model")
    again = hs.load_model(tmp_path / "model")
    features = RNG.normal(size=(7, 3))
    np.testing.assert_array_equal(again.predict(features), model.predict(features))
    assert set(model.predict(features)) <= {0.0, 1.0, 2.0, 3.0}
