"""What a model is worth is what was measured beside it, in the unit that people read."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import hearsay as hs
from hearsay.simulation.result import Beside
from hearsay.simulation.worth import Worth, worth
from hearsay.tables.columns import Number
from hearsay.tables.schema import Schema

BESIDE = Beside(0.5, 0.9, 0.7, (0.6, 0.7, 0.8))


@pytest.fixture(scope="module")
def labels():
    problem = hs.problems.logistic("breast-cancer", agents=3)
    return hs.simulate(hs.dsgd(noise=0.01), problem, hs.graphs.ring(3), steps=5, seeds=2)


@pytest.fixture(scope="module")
def numbers():
    problem = hs.problems.ridge(agents=3, records=40)
    return hs.simulate(hs.dsgd(noise=0.01), problem, hs.graphs.ring(3), steps=5, seeds=2)


def test_labels_are_told_by_accuracies(labels):
    found = worth(replace(labels, beside=BESIDE))
    test = labels.problem.test_labels
    assert found.reached == labels.metrics["released_accuracy"][-1].mean() and found.released
    assert found.guess == max(np.mean(test == one) for one in np.unique(test))
    assert (found.alone, found.clean, found.each) == (0.7, 0.9, (0.6, 0.7, 0.8))
    assert found.unit is None and found.explained is None


def test_numbers_are_told_by_errors_in_the_targets_own_unit(numbers):
    """A target from 100 to 300: an error of 1 is 100 there."""
    schema = Schema({"x": Number(0, 1), "y": Number(100, 300)}, target="y")
    run = replace(
        numbers, problem=replace(numbers.problem, schema=schema), beside=BESIDE._replace(guess=None)
    )
    found = worth(run)
    squared, spread = numbers.metrics["released_error"][-1], numbers.problem.test_labels.var()
    assert found.reached == pytest.approx(np.mean([100 * math.sqrt(one) for one in squared]))
    assert found.guess == pytest.approx(100 * math.sqrt(spread))
    assert found.explained == pytest.approx(1 - squared.mean() / spread)
    assert found.alone == pytest.approx(100 * math.sqrt(0.7))
    assert found.clean == pytest.approx(100 * math.sqrt(0.9))
    assert found.each == pytest.approx([100 * math.sqrt(one) for one in BESIDE.each])
    assert "'y'" in found.unit


def test_what_nobody_measured_is_not_there(labels):
    found = worth(labels)
    assert (found.alone, found.clean, found.each) == (None, None, ())
    assert found.beside == {"guessing": found.guess}
    found = worth(replace(labels, averages={}))
    assert not found.released and found.reached == labels.final("accuracy")[0]


def test_what_is_not_tested_is_worth_nothing_known(labels, numbers):
    for run in (labels, numbers):
        test = run.problem.test_features[:0], run.problem.test_labels[:0]
        problem = replace(run.problem, test_features=test[0], test_labels=test[1])
        assert worth(replace(run, problem=problem)) is None


@pytest.mark.parametrize(
    ("unit", "guess", "reached", "poor"),
    [
        (None, 0.6, 0.6, True),
        (None, 0.6, 0.609, True),
        (None, 0.6, 0.611, False),
        ("kg", 10.0, 10.0, True),
        ("kg", 10.0, 9.96, True),  # 0.8 % of the variance
        ("kg", 10.0, 9.94, False),
        ("kg", 0.0, 0.1, True),
        ("kg", 0.0, 0.0, False),
        ("kg", 10.0, math.inf, True),
        ("kg", 10.0, math.nan, True),
        ("kg", 10.0, 1e200, True),
        (None, 0.6, math.nan, True),
    ],
)
def test_no_better_than_a_guess(unit, guess, reached, poor):
    """By a hundredth: of accuracy, or of the variance."""
    model = Worth(reached, True, guess, None, None, unit=unit)
    assert model.no_better is poor and not model.hopeless
    assert model._replace(clean=reached).hopeless is poor


@pytest.mark.parametrize("spread", [0.02, 1.0, 12.0, 300.0])
def test_factors_are_compared_by_their_logarithms(spread):
    """However narrow or wide the range is: a quarter of the variance of the logarithms is left."""
    model = Worth(math.exp(spread / 2), True, math.exp(spread), None, None, unit="x", log=True)
    assert model.ratio(model.reached, model.guess) == pytest.approx(0.5)
    assert not model.no_better
    assert model._replace(reached=math.exp(0.999 * spread)).no_better


def test_a_log_scale_is_known_by_the_schema(numbers):
    schema = Schema({"x": Number(0, 1), "y": Number(10, 1000, scale="log")}, target="y")
    run = replace(numbers, problem=replace(numbers.problem, schema=schema), beside=BESIDE)
    found = worth(run)
    squared, spread = numbers.metrics["released_error"][-1], numbers.problem.test_labels.var()
    assert found.log and found.guess == pytest.approx(10 ** math.sqrt(spread))
    roots = [math.sqrt(one / spread) for one in squared]
    assert found.ratio(found.reached, found.guess) == pytest.approx(np.mean(roots), rel=0.05)
