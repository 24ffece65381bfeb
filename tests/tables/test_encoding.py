"""A row becomes the record that a slow and obvious loop makes of it, and none is ever too long."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hearsay as hs
from hearsay.problems.data.datasets import shorten
from tests.tables import reference

CLASSES = hs.Schema(
    {
        "patient": hs.Ignored(),
        "age": hs.Number(0, 120, "middle"),
        "bmi": hs.Number(10.5, 61.25, "flag"),
        "dose": hs.Number(-1e300, 1e300, 5.0),
        "crp": hs.Number(0.1, 3000, 7.0, scale="log"),
        "ward": hs.Category(["north", "south", "1"], "other"),
        "stage": hs.Category(["0", "1", "other"], "1"),
        "ill": hs.Category(["no", "perhaps", "yes"]),
    },
    "ill",
)
NUMBERS = hs.Schema({**CLASSES.columns, "cost": hs.Number(0, 1000, 10.0)}, "cost")
POWERS = hs.Schema({**CLASSES.columns, "cost": hs.Number(1, 1e6, 10.0, scale="log")}, "cost")

NUMBER = st.one_of(
    st.sampled_from(["", "NA", "nan", " null ", "1e999", "-1e999", "inf", "0", "-0.0", "5e-324"]),
    st.floats(-1e6, 1e6).map(repr),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.integers(-500, 500).map(str),
)
LEVEL = st.sampled_from(["north", " south ", "1", "1.0", "0", "other", "", "NA", "?", "xyz", "2.0"])
ROW = st.fixed_dictionaries(
    {
        "patient": st.text("abc,;\"'\n", max_size=4),
        "age": NUMBER,
        "bmi": NUMBER,
        "dose": NUMBER,
        "crp": NUMBER,
        "ward": LEVEL,
        "stage": LEVEL,
        "ill": st.sampled_from(["no", "yes", " perhaps"]),
        "cost": NUMBER,
    }
)


def crowded(values, column) -> bool:
    schema = hs.Schema({"x": column, "y": hs.Category(["a", "b"])}, "y")
    table = {"x": list(map(str, values)), "y": ["a"] * len(values)}
    return schema.encode(table).counted.columns["x"].crowded


def test_numbers_that_fill_a_tenth_of_their_range_are_told_to_the_owner():
    """A score says it too late, and of a private fit."""
    rng = np.random.default_rng(0)
    amounts = 10 ** rng.normal(3.3, 0.6, 500)
    assert crowded(amounts, hs.Number(0, 5e6))
    assert crowded(amounts, hs.Number(0, 2e5))
    assert not crowded(amounts, hs.Number(0, 1.5e4))
    assert not crowded(amounts, hs.Number(50, 1e6, scale="log"))
    assert crowded(amounts, hs.Number(1e-40, 1e40, scale="log"))
    assert crowded(rng.normal(50, 1, 500), hs.Number(0, 100)), "on both sides of a border"
    assert not crowded(rng.uniform(0, 120, 500), hs.Number(0, 120))
    # No range helps where nearly all are one and the same, and a few are no tenth of anything.
    assert not crowded([0] * 480 + [1] * 20, hs.Number(0, 1))
    assert not crowded([0] * 480 + [9] * 20, hs.Number(0, 10))
    assert not crowded([0] * 300 + [1] * 200, hs.Number(0, 16)), "the border of an image"
    assert crowded([0] * 200 + list(rng.uniform(0.1, 1, 300)), hs.Number(0, 16))
    assert not crowded([1.0, 2.0, 3.0], hs.Number(0, 1000))
    assert not crowded([""] * 30, hs.Number(0, 1000, "middle"))


def test_what_is_said_of_such_a_column():
    columns = {f"x{i}": hs.Number(0, 1000) for i in range(9)} | {"y": hs.Category(["a", "b"])}
    rows = {f"x{i}": [str(k % 7) for k in range(30)] for i in range(9)} | {"y": ["a"] * 30}
    few = hs.Schema({name: columns[name] for name in ("x0", "y")}, "y").encode(rows, name="n.csv")
    line, advice = few.counted.lines
    assert line == "n.csv: 30 rows; x0: nine tenths in a tenth of 0..1000"
    assert 'scale = "log"' in advice and "no epsilon covers" in advice
    many = hs.Schema(columns, "y").encode(rows, name="n.csv").counted
    assert (
        str(many)
        == "n.csv: 30 rows; 9 columns have nine tenths in a tenth of the range (x0, x1, x2, ...)"
    )
    assert len(many.crowded) == 9


def columns(rows: list[dict[str, str]]) -> dict[str, list[str]]:
    return {name: [row[name] for row in rows] for name in rows[0]}


@pytest.mark.parametrize("schema", [CLASSES, NUMBERS, POWERS], ids=["classes", "numbers", "log"])
@settings(max_examples=60, deadline=None)
@given(rows=st.lists(ROW, min_size=1, max_size=12))
def test_records_are_those_of_the_obvious_loop(schema, rows):
    found = schema.encode(columns(rows))
    wanted = [reference.record(schema, row) for row in rows]
    np.testing.assert_allclose(found.features, wanted, rtol=1e-13, atol=1e-300)
    assert found.labels.tolist() == [reference.label(schema, row) for row in rows]
    # In exact arithmetic: the bound of 1 that certificates count on.
    for row in found.features:
        assert sum(Fraction(v) ** 2 for v in row.tolist()) <= 1
    assert np.abs(found.labels).max() <= (2 if schema.classes else 1)


@settings(max_examples=40, deadline=None)
@given(rows=st.lists(ROW, min_size=1, max_size=12))
def test_what_was_counted_is_what_was_done(rows):
    counts = CLASSES.encode(columns(rows)).counted.columns
    for name in ("age", "bmi", "dose"):
        kind, cells = CLASSES.columns[name], [reference.number(row[name]) for row in rows]
        known = [cell for cell in cells if cell is not None]
        assert counts[name].gaps == cells.count(None)
        assert counts[name].clipped == sum(not kind.low <= cell <= kind.high for cell in known)
    for name in ("ward", "stage"):
        levels = CLASSES.columns[name].levels
        cells = [reference.level(row[name], levels) for row in rows]
        assert (counts[name].gaps, counts[name].unknown) == (cells.count(None), cells.count("?"))


def test_records_of_classes_are_those_that_shorten_makes():
    rng = np.random.default_rng(0)
    schema = hs.Schema({**{f"x{i}": hs.Number(-1, 1) for i in range(40)}, "y": NO_YES}, "y")
    raw = rng.uniform(-1, 1, (500, 40))
    found = schema.encode((raw, ["no"] * 500)).features
    whole = shorten(np.column_stack([raw, np.ones(500)]), 1.0)
    np.testing.assert_allclose(found, whole, rtol=1e-15)
    assert all(sum(Fraction(v) ** 2 for v in row.tolist()) <= 1 for row in found)


NO_YES = hs.Category(["no", "yes"])


@pytest.mark.parametrize("columns", [1, 2, 3, 7, 30, 200])
def test_the_longest_record_of_a_regression_is_within_the_bound(columns):
    kinds = {f"x{i}": hs.Number(-3, 3) for i in range(columns)}
    schema = hs.Schema({**kinds, "y": hs.Number(0, 1)}, "y")
    found = schema.encode((np.full((2, columns), [[3.0], [-3.0]]), [0, 1])).features
    for row in found:
        assert 1 - 1e-12 < sum(Fraction(v) ** 2 for v in row.tolist()) <= 1


def test_values_that_no_range_expects_never_leave_the_bound():
    schema = hs.Schema({"x": hs.Number(-1e308, 7e307, "middle"), "y": NO_YES}, "y")
    values = [np.inf, -np.inf, np.nan, 1.7e308, -1.7e308, 5e-324]
    found = schema.encode({"x": np.array(values), "y": ["no"] * 6})
    assert np.isfinite(found.features).all()
    assert np.linalg.norm(found.features, axis=1).max() <= 1
    assert (found.counted.columns["x"].clipped, found.counted.columns["x"].gaps) == (4, 1)


def test_a_record_depends_on_its_own_row_alone():
    rng = np.random.default_rng(1)
    table = {"x": rng.normal(size=3000), "y": rng.choice(["no", "yes"], 3000)}
    schema = hs.Schema({"x": hs.Number(-2, 2), "y": NO_YES}, "y")
    whole = schema.encode(table)
    for row in (0, 1234, 2999):
        one = schema.encode({name: values[row : row + 1] for name, values in table.items()})
        np.testing.assert_array_equal(one.features[0], whole.features[row])


def test_a_level_that_looks_like_a_gap_is_the_level():
    schema = hs.Schema({"x": hs.Category(["NA", "null"], "other"), "y": NO_YES}, "y")
    found = schema.encode({"x": ["NA", "null", "", "nan"], "y": ["no"] * 4})
    assert found.features.argmax(axis=1).tolist() == [0, 1, 2, 2]
    assert found.counted.columns["x"].gaps == 2


def test_the_owners_line():
    table = {
        "age": ["130", "200", "-1", "50"],
        "bmi": ["", "NA", "30", "31"],
        "dose": ["1", "1", "1", ""],
        "crp": ["0", "0.1", "", "80"],
        "ward": ["west", "north", "east", ""],
        "stage": ["0"] * 4,
        "ill": ["no"] * 4,
    }
    assert str(CLASSES.encode(table, name="north.csv").counted) == (
        "north.csv: 4 rows; age: 3 clipped to 0..120; bmi: 2 gaps taken as the middle, and marked;"
        " dose: 1 gap taken as 5.0; crp: 1 clipped to 0.1..3000, 1 gap taken as 7.0;"
        " ward: 2 unknown levels taken as other, 1 gap taken as other"
    )


def test_the_owners_line_of_a_wide_table_is_still_a_line():
    names = [f"x{i}" for i in range(30)]
    schema = hs.Schema({**{n: hs.Number(0, 1, "middle") for n in names}, "y": NO_YES}, "y")
    table = {name: ["", "5", "0.5"] for name in names} | {"y": ["no"] * 3}
    table["x7"] = ["", "", "0.5"]
    assert str(schema.encode(table, name="wide.csv").counted) == (
        "wide.csv: 3 rows; 29 numbers clipped to the columns' ranges in 29 columns (most in x0, 1);"
        " 31 gaps taken as the schema says in 30 columns (most in x7, 2)"
    )
    table = {name: [""] for name in names} | {"x3": ["5"], "y": ["no"]}
    assert "1 number clipped to the columns' ranges in x3; 29 gaps" in str(
        schema.encode(table, name="one.csv").counted
    )


def test_the_target_is_not_read_where_nobody_asks_for_it():
    schema = hs.Schema({"x": hs.Number(0, 1), "y": NO_YES}, "y")
    found = schema.encode({"x": [0.5]}, target=False)
    assert found.labels is None
    assert schema.encode(np.array([[0.5]]), target=False).features.shape == (1, 2)


def test_predictions_in_the_targets_own_words():
    assert CLASSES.decode([2, 0]).tolist() == ["yes", "no"]
    np.testing.assert_allclose(NUMBERS.decode([-1, 0, 1]), [0, 500, 1000])
    values = ["0", "250", "1000"]
    rows = {**{name: ["0"] * 3 for name in CLASSES.columns}, "cost": values, "ill": ["no"] * 3}
    np.testing.assert_allclose(NUMBERS.decode(NUMBERS.encode(rows).labels), [0, 250, 1000])
    np.testing.assert_allclose(POWERS.decode([-1, 0, 1, 5 / 3]), [1, 1000, 1e6, 1e8])
    np.testing.assert_allclose(POWERS.decode(POWERS.encode(rows).labels), [1, 250, 1000])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"age": ["4", "7e", "1"]}, r"t, row 2, column 'age' must be a number, without a unit"),
        ({"age": ["4", "1_0", "1"]}, r"t, row 2, column 'age' must be a number"),
        ({"age": ["4", "1", "1 000"]}, r"t, row 3, column 'age' must be a number, .*thousands"),
        ({"age": ["4", "1.234,5", "1"]}, r"t, row 2, column 'age' must be a number"),
        ({"age": ["4.5", "1", "1,5"]}, r"t, row 3, column 'age' must be written with the decimal"),
        ({"age": ["4", "", "1"]}, r"t, row 2, column 'age' must be filled in, or .*gap = \"middle"),
        ({"sex": ["m", "f", "NA"]}, r"t, row 3, column 'sex' must be filled in, or .*\"other\""),
        ({"ill": ["no", "yes", "31337"]}, r"t, row 3, column 'ill' must be one of no, yes, the t"),
        ({"ill": ["no", "", "yes"]}, r"t, row 2, column 'ill' must be filled in"),
        ({"age": ["1,234", "2,345", "3"]}, r"t, row 1, column 'age' must have .*thousands sep"),
    ],
)
def test_errors_name_table_row_and_column_and_show_no_value(changed, message):
    schema = hs.Schema(
        {"age": hs.Number(0, 120), "sex": hs.Category(["m", "f"]), "ill": NO_YES}, "ill"
    )
    table = {"age": ["31", "32", "33"], "sex": ["m", "f", "m"], "ill": ["no", "yes", "no"]}
    with pytest.raises(ValueError, match=message) as caught:
        schema.encode({**table, **changed}, name="t")
    error = caught.value
    assert error.__cause__ is None
    assert error.__suppress_context__ or error.__context__ is None, "a log would show it"
    bad = [cell for cells in changed.values() for cell in cells if len(cell) > 3]
    assert not any(cell in str(caught.value) for cell in bad)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"x": [1]}, r"^t must have the schema's columns, and has no 'y'$"),
        ({"X": [1], "y": ["no"]}, r"has no 'x' \(names must be equal letter by letter; it has 'X'"),
        ({"17": [1], "private": ["no"]}, r"has no 'x', 'y' \(is its first line a header\?\)$"),
        ({"x": [], "y": []}, "t must have rows below its header, got none"),
        ({"x": [1, 2], "y": ["no"]}, "columns of t must be equally long"),
        ({"x": [1], "y": ["no"], " x": [2]}, "the same name in columns 1 and 3"),
        (object(), "t must be a path, a frame of pandas, polars or pyarrow, or a dict of columns"),
        ((np.zeros((2, 3)), [0, 1]), r"t must be an array \(rows, 1\), one column for each input"),
    ],
)
def test_tables_that_cannot_be_read(source, message):
    schema = hs.Schema({"x": hs.Number(0, 1), "y": NO_YES}, "y")
    with pytest.raises((TypeError, ValueError), match=message) as caught:
        schema.encode(source, name="t")
    assert "private" not in str(caught.value)
