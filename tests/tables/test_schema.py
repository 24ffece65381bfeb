"""Schemas: checked when they are made, written and read again, and never with a private word."""

from __future__ import annotations

import math
import tomllib

import pytest

import hearsay as hs

AGE, ILL = hs.Number(0, 120), hs.Category(["no", "yes"])


def test_a_schema_written_and_read_again_is_the_same(tmp_path):
    columns = {
        "a b.c": hs.Number(0.1, 1e-3 + 1, 0.5),
        "crp": hs.Number(0.1, 500, "flag", scale="log"),
        'quo"te': hs.Category(["ü", 'x"y', "other"], "other"),
        "id": hs.Ignored(),
        "ill": ILL,
    }
    schema = hs.Schema(columns, "ill")
    again = hs.Schema.load(schema.save(tmp_path / "schema.toml"))
    assert again == schema and hash(again) == hash(schema)
    assert list(again.columns) == list(columns)
    assert "scale" not in schema.tables["columns"]["a b.c"], "it changes no digest of before"
    assert hs.Schema.of(str(tmp_path / "schema.toml")) == hs.Schema.of(schema.tables) == schema


def test_the_digest_knows_the_order_of_columns():
    one = hs.Schema({"a": AGE, "b": AGE, "ill": ILL}, "ill")
    two = hs.Schema({"b": AGE, "a": AGE, "ill": ILL}, "ill")
    assert one.digest != two.digest and one != two


def test_entries_and_factor():
    schema = hs.Schema(
        {"a": hs.Number(0, 1, "flag"), "b": hs.Category(list("xyz")), "c": hs.Number(0, 9)}, "c"
    )
    assert schema.entries == ("a", "a is missing", "b=x", "b=y", "b=z", "b=other", "1")
    # Two columns and the constant: a category sets one entry, a gap leaves its number at 0.
    assert schema.factor == pytest.approx(math.sqrt(3), rel=1e-14)
    assert schema.factor > math.sqrt(3)


@pytest.mark.parametrize(
    ("columns", "target", "message"),
    [
        ({"a": AGE, "ill": ILL}, "il", "target must be one of a, ill, got 'il'; did you mean"),
        ({"a": AGE, "ill": hs.Ignored()}, "ill", "target must be a number or a category"),
        ({"a": AGE, "ill": hs.Category(["no"])}, "ill", "levels of 'ill', the target, must be two"),
        ({"a": hs.Ignored(), "ill": ILL}, "ill", "columns must be one or more beside the target"),
        ({"": AGE, "ill": ILL}, "ill", "the name of a column must be a text that is not empty"),
        (
            {"a": AGE, "b": hs.Number(0, 1, "middle")},
            "b",
            "gap of 'b', the target, must be left out .*or a number within its range",
        ),
        (
            {"a": AGE, "b": hs.Category(["x", "y"], "other")},
            "b",
            "gap of 'b', the target, must be left out .*, or one of its levels",
        ),
    ],
)
def test_schemas_that_make_no_sense(columns, target, message):
    with pytest.raises(ValueError, match=message):
        hs.Schema(columns, target)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("range = []", r"range in \[columns.age\] of s.toml must be filled in: \[smallest, larg"),
        ("range = [1]", r"range in \[columns.age\] of s.toml must be two numbers"),
        ("range = [5, 1]", r"\[columns.age\] of s.toml: range must be two numbers, the smaller"),
        ("range = [0, inf]", r"\[columns.age\] of s.toml: high must be finite"),
        ("range = [0, 9]\ngap = 10", r"\[columns.age\] of s.toml: gap must be within the range"),
        ("rnage = [0, 9]", r"key in \[columns.age\] of s.toml must be one of range, scale, gap"),
        (
            'range = [1, 9]\nscale = "logs"',
            r"\[columns.age\] of s.toml: scale must be one of linear",
        ),
        ('range = [0, 9]\nscale = "log"', r"of s.toml: range must be one that begins above 0 with"),
        (
            'range = [1e300, 1.0000000000000002e300]\nscale = "log"',
            "range must be wider with scale",
        ),
    ],
)
def test_errors_of_a_file_name_the_column(text, message):
    start = 'target = "ill"\n[columns.age]\nkind = "number"\n'
    end = '\n[columns.ill]\nkind = "category"\nlevels = ["no", "yes"]\n'
    with pytest.raises(ValueError, match=message):
        hs.Schema.read(tomllib.loads(start + text + end), "s.toml")


def test_levels_that_are_not_filled_in():
    tables = {"target": "a", "columns": {"a": {"kind": "category", "levels": []}}}
    with pytest.raises(ValueError, match=r"levels in \[columns.a\] of s must be filled in"):
        hs.Schema.read(tables, "s")


def test_hundreds_of_levels_look_like_names():
    levels = [f"name {i}" for i in range(201)]
    schema = hs.Schema({"doctor": hs.Category(levels), "ill": ILL}, "ill")
    (warning,) = schema.warnings
    assert warning.startswith("'doctor' has 201 levels: they look like names of people")
    assert not hs.Schema({"doctor": hs.Category(levels[:200]), "ill": ILL}, "ill").warnings


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises(ValueError, match=r"must be a schema.toml, got a folder"):
        hs.Schema.load(tmp_path)
    schema = hs.Schema({"age": hs.Number(0, 120), "ill": hs.Category(["no", "yes"])}, target="ill")
    with pytest.raises(ValueError, match=r"must be a file with a table, got a folder"):
        schema.encode(tmp_path)
