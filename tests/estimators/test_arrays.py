"""Arrays as tables: ranges and classes are public, or somebody says that they may be read off."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import hearsay as hs
from hearsay.estimators import arrays

VALUES = np.array([[1.0, 5.0, -2.0], [3.0, 5.0, 4.0]])


def test_ranges_are_given_or_said_to_be_public():
    with pytest.raises(ValueError, match="ranges must be given for arrays, got None"):
        arrays.ranges_of(None, 3, False, VALUES)
    assert arrays.ranges_of((0, 9), 3, False, VALUES) == [hs.Number(0, 9)] * 3
    each = arrays.ranges_of([(0, 1), (2, 3), (4, 5)], 3, False, VALUES)
    assert each == [hs.Number(0, 1), hs.Number(2, 3), hs.Number(4, 5)]
    seen = arrays.ranges_of(None, 3, True, VALUES)
    assert seen == [hs.Number(1, 3), hs.Number(0, 10), hs.Number(-2, 4)]
    # What is given counts, whatever may be read off.
    assert arrays.ranges_of((0, 9), 3, True, VALUES) == [hs.Number(0, 9)] * 3


def test_two_columns_have_one_range_each():
    """Two pairs of two numbers are no single range."""
    found = arrays.ranges_of([(0, 1), (2, 3)], 2, False, VALUES[:, :2])
    assert found == [hs.Number(0, 1), hs.Number(2, 3)]


@pytest.mark.parametrize(
    ("ranges", "text"),
    [
        ((3, 1), "ranges must be two numbers, the smaller one first"),
        ((0, np.inf), "ranges must be two numbers"),
        ([(0, 1), (1, 0), (0, 1)], r"ranges\[1\] must be two numbers, the smaller one first"),
        ([(0, 1), (0, 1)], "one for each of the 3 columns"),
        (7, "one for each of the 3 columns"),
    ],
)
def test_ranges_that_are_none_are_named(ranges, text):
    with pytest.raises(ValueError, match=text):
        arrays.ranges_of(ranges, 3, False, VALUES)


def test_classes_are_given_or_said_to_be_public():
    seen = np.array([1, 3])
    with pytest.raises(ValueError, match="classes must be given for arrays, got None"):
        arrays.classes_of(None, False, seen)
    assert arrays.classes_of(None, True, seen).tolist() == [1, 3]
    assert arrays.classes_of([3, 2, 1], False, seen).tolist() == [1, 2, 3]
    for wrong in ([1], [1, 1, 3], "ab"):
        with pytest.raises(ValueError, match="classes must be a list of two or more"):
            arrays.classes_of(wrong, False, seen)
    with pytest.raises(
        ValueError, match=r"classes \[0, 1\], got 'another in row 1 .counted from 0.'"
    ):
        arrays.require_known(seen, np.array([0, 1]))


def test_classes_are_told_apart_as_text():
    assert arrays.levels(np.array([1.5, 2.0])).levels == ("1.5", "2.0")
    with pytest.raises(ValueError, match="classes must differ when they are written as text"):
        arrays.levels(np.array(["a", "a "], dtype=object))


def test_the_range_of_a_target():
    with pytest.raises(ValueError, match="target_range must be given for arrays, got None"):
        arrays.target_range_of(None, False, VALUES[0])
    assert arrays.target_range_of((0, 7), False, VALUES[0]) == hs.Number(0, 7)
    assert arrays.target_range_of(None, True, VALUES[0]) == hs.Number(-2, 5)


def test_a_target_gets_a_name_of_its_own():
    schema = arrays.schema_of(["y", "x"], [hs.Number(0, 1)] * 2, hs.Category(["a", "b"]))
    assert schema.target == "y_" and list(schema.inputs) == ["y", "x"]


def test_everybody_gets_rows_and_nobody_the_same():
    parts = list(arrays.dealt(23, None, 4))
    assert [len(part) for part in parts] == [5, 5, 5, 4, 4]
    assert sorted(np.concatenate(parts)) == list(range(23))
    again = arrays.dealt(23, None, 4)
    assert all(np.array_equal(a, b) for a, b in zip(parts, again, strict=True))
    assert not np.array_equal(parts[0], next(arrays.dealt(23, None, 5)))
    with pytest.raises(ValueError, match="X must be of at least 5 rows, one for each agent"):
        list(arrays.dealt(4, None, 0))


TEXTS = np.array([[1.0, "2.5"], [3.0, "Smith"]], dtype=object)


@pytest.mark.parametrize("kind", ["objects", "texts", "frame", "lists"])
def test_texts_where_numbers_must_be_are_named_and_not_shown(kind):
    made = {
        "objects": TEXTS,
        "texts": TEXTS.astype(str),
        "frame": pd.DataFrame(TEXTS, columns=["a", "b"]),
        "lists": TEXTS.tolist(),
    }[kind]
    classifier = hs.NetworkClassifier(ranges=(0, 9), classes=[0, 1], agents=1)
    regressor = hs.NetworkRegressor(ranges=(0, 9), target_range=(0, 9), agents=1)
    wanted = "X must be numbers .* needs schema=.*, got 'something else in row 1, column 1 .count"
    for estimator in (classifier, regressor):
        for fit in (
            lambda e=estimator: e.fit(made, [0, 1]),
            lambda e=estimator: e.fit([(made, [0, 1])]),
        ):
            with pytest.raises(ValueError, match=wanted) as caught:
                fit()
            assert "Smith" not in str(caught.value)
    # What a fit leaves.
    classifier.model_, classifier.n_features_in_ = None, 2
    with pytest.raises(ValueError, match=wanted):
        classifier.predict(made)
    with pytest.raises(
        ValueError, match="y must be numbers, got 'something else in row 1 .counted from 0.'"
    ):
        regressor.fit(VALUES, ["1", "Smith"])


def test_texts_that_are_numbers_are_left_to_scikit_learn():
    for fine in (TEXTS[:1], [["1e3", "-2"]], [[None, "1"]], VALUES, None, [[1], [1, 2]], [[1j]]):
        arrays.require_numbers("X", fine)


@pytest.mark.parametrize("where", ["fit", "predict"])
def test_gaps_are_not_to_be_filled_by_an_imputer(where):
    X, y = np.linspace(0, 1, 40).reshape(20, 2), np.arange(20) % 2
    model = hs.NetworkClassifier(ranges=(0, 1), classes=[0, 1], agents=2)
    gap = X.copy()
    gap[3, 1] = np.nan
    if where == "predict":
        model.fit(X, y)
    with pytest.raises(ValueError, match="must have no gaps as arrays.*contains NaN.*schema"):
        model.fit(gap, y) if where == "fit" else model.predict(gap)
