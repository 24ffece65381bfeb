"""Drafts of schemas: kinds from names and types, and no value of a private row."""

from __future__ import annotations

import re

import numpy as np
import pytest

import hearsay as hs
from hearsay.tables.drafting import draft

ROWS = 40
TABLE = {
    "PatientID": [str(7000 + 13 * i) for i in range(ROWS)],
    "row": [str(i) for i in range(ROWS)],
    "age": [f"{31.337 + i:.3f}" for i in range(ROWS)],
    "days": [str((i * 7) % ROWS) for i in range(ROWS)],
    "visits": [str(i % 3) for i in range(ROWS)],
    "ward": ["wXYZ", "wABC"] * (ROWS // 2),
    "notes": [f"note {i}" for i in range(ROWS)],
    "seen": [f"2024-05-{i % 28 + 1:02}" for i in range(ROWS)],
    "diagnosis": ["1", "0"] * (ROWS // 2),
}


def kinds(text: str) -> dict[str, str]:
    return dict(re.findall(r'^\[columns\.([\w"]+)\]\nkind = "(\w+)"', text, re.MULTILINE))


def test_kinds_come_from_names_and_types():
    found = draft(TABLE).text
    assert kinds(found) == {
        "PatientID": "ignored",
        "row": "ignored",
        "age": "number",
        "days": "number",
        "visits": "number",
        "ward": "category",
        "notes": "ignored",
        "seen": "ignored",
        "diagnosis": "category",
    }
    assert 'target = "diagnosis"' in found


def test_nothing_of_a_row_is_in_a_draft():
    """The same draft for other rows of the same types, and for one row more or less."""
    other = {name: list(reversed(cells[:-2])) for name, cells in TABLE.items()}
    other["row"] = [str(5 + i) for i in range(ROWS - 2)]
    other["age"] = [f"{99.5 + i:.1f}" for i in range(ROWS - 2)]
    other["ward"] = ["a", "b"] * (ROWS // 2 - 1)
    assert draft(TABLE) == draft(other)
    for cells in TABLE.values():
        assert not any(cell in draft(TABLE).text for cell in cells if len(cell) > 2)
    with_gaps = {**TABLE, "age": ["", *TABLE["age"][1:]], "ward": ["", *TABLE["ward"][1:]]}
    assert draft(with_gaps) == draft(TABLE)


def test_a_draft_does_not_load_before_it_is_filled_in(tmp_path):
    path = tmp_path / "schema.toml"
    path.write_text(draft(TABLE).text)
    with pytest.raises(
        ValueError, match=r"range in \[columns.age\] of .*schema.toml must be filled in"
    ):
        hs.Schema.load(path)
    text = path.read_text()
    text = re.sub(r"range = \[\] .*", "range = [0, 120]", text)
    text = re.sub(r"levels = \[\] .*", 'levels = ["0", "1"]', text)
    path.write_text(text)
    schema = hs.Schema.load(path)
    assert list(schema.inputs) == ["age", "days", "visits", "ward"]
    assert schema.encode(TABLE).counted.columns["ward"].unknown == ROWS


def test_ranges_that_are_said_to_be_public_are_taken(tmp_path):
    path = tmp_path / "schema.toml"
    found = draft(TABLE, ranges_are_public=True)
    path.write_text(found.text)
    schema = hs.Schema.load(path)
    assert schema.columns["age"] == hs.Number(31.337, 70.337, "middle")
    assert schema.columns["ward"] == hs.Category(["wABC", "wXYZ"], "other")
    assert schema.classes == ("0", "1")
    counts = schema.encode(TABLE).counted.columns
    assert not any((c.clipped, c.unknown, c.gaps) != (0, 0, 0) for c in counts.values())
    assert "No epsilon covers what they tell" in found.text


@pytest.mark.parametrize("public", [False, True])
def test_hundreds_of_levels_are_not_read_and_not_written(public):
    doctors = [f"Dr {i % 201}" for i in range(500)]
    table = {"doctor": doctors, "age": np.arange(500) % 90, "ill": ["no", "yes"] * 250}
    found = draft(table, target="ill", ranges_are_public=public)
    assert kinds(found.text)["doctor"] == "ignored"
    assert "Dr 1" not in found.text
    (warning,) = found.warnings
    assert "'doctor' has more than 200 levels: they look like names of people" in warning


@pytest.mark.parametrize("rows", [40, 500])
@pytest.mark.parametrize(
    "written", ["{:,}".format, "{} kWh".format, "€ {}".format, lambda n: f"{n:,}".replace(",", "'")]
)
def test_numbers_with_units_or_separators_are_not_called_names(written, rows):
    """Else the column that matters most is left out as an identifier."""
    table = {
        "sum": [written(90 + 997 * i) for i in range(rows)],
        "ill": ["no", "yes"] * (rows // 2),
    }
    for target in ("ill", "sum") if rows > 200 else ("ill",):
        found = draft(table, target=target)
        assert found.warnings == (
            "'sum' has numbers with a unit or a thousands separator, which are not read: write"
            " plain numbers, and draft again",
        )
    assert "names of people" not in found.text and "identifiers" not in found.text


def test_what_encoding_takes_for_thousands_is_no_number_in_a_draft(tmp_path):
    """A public range of 1.25 to 980 would be wrong by a thousand."""
    path = tmp_path / "x.csv"
    cells = ['"1,250"', "980", "", '"3,400"', "980"]
    path.write_text("sum,half,ill\n" + "".join(f"{c},0.5,no\n" for c in cells))
    for target in ("ill", "sum"):
        found = draft(path, target=target, ranges_are_public=True)
        assert kinds(found.text)["half"] == "number"
        assert kinds(found.text)["sum"] == ("ignored" if target == "ill" else "category")
        assert "thousands separator" in found.warnings[0]


def test_a_target_of_many_numbers_is_a_number():
    table = {"age": ["1", "2"], "y": ["0.5", "1.5"]}
    assert kinds(draft(table).text)["y"] == "number"
    assert 'target = "y"' in draft(table).text
    assert 'target = ""  # FILL IN' in draft({"a": ["1"], "b": ["2"]}).text


@pytest.mark.parametrize(("target", "gap"), [("ill", 'gap = "no"'), ("dose", "gap = 11")])
@pytest.mark.parametrize("named", [False, True])
def test_whichever_column_becomes_the_target_its_draft_loads(target, gap, named, tmp_path):
    path = tmp_path / "schema.toml"
    table = {"age": ["31", "58"], "dose": ["10.5", "20"], "ill": ["no", "yes"]}
    text = draft(table, target=target if named else None, ranges_are_public=True).text
    path.write_text(text.replace('target = ""', f'target = "{target}"'))
    schema = hs.Schema.load(path)
    # What the error about an empty target advises works.
    empty = {**table, target: ["", table[target][1]]}
    with pytest.raises(ValueError, match=rf"row 1, column '{target}' must be filled in") as caught:
        schema.encode(empty)
    assert "other" not in str(caught.value) and "middle" not in str(caught.value)
    kind = f"[columns.{target}]\n"
    path.write_text(path.read_text().replace(kind, f"{kind}{gap}\n"))
    assert hs.Schema.load(path).encode(empty).counted.columns[target].gaps == 1


def test_an_age_has_a_range_that_its_name_gives():
    assert "such as [0, 120]" in draft({"Age": ["31"], "y": ["a"]}).text


@pytest.mark.parametrize("name", ["claim", "insuredSum", "kwh_year", "Costs (EUR)", "net income"])
def test_an_amount_is_asked_for_its_scale_by_its_name(name):
    """Before a fit, and whatever the rows are."""
    asked = 'with scale = "log" if it spans powers of ten'
    for rows in (["31", "40"], ["1", "1e9"]):
        text = draft({name: rows, "summer": rows, "y": ["a", "b"]}).text
        assert text.partition("[columns")[2].count(asked) == 1


def test_a_file_without_a_header_is_refused_before_its_first_row_is_written(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("31337.5,no\n12,yes\n")
    with pytest.raises(ValueError, match="must begin with a header of column names") as caught:
        draft(path)
    assert "31337" not in str(caught.value)


@pytest.mark.parametrize(
    "value",
    [
        *("2024-05-01", "1.2.1931", "31/01/2024 10:20", "10:20:30", "3e5", "-1.5E-3", "80 kg"),
        *("5.5mmol/l", "37°C", "12 %", "120/80", "<5", "1,234.5", "true"),
    ],
)
def test_values_of_all_kinds_are_no_names(tmp_path, value):
    path = tmp_path / "x.csv"
    path.write_text(f"ward;{value};ill\nnorth;1;no\nsouth;2;yes\n")
    with pytest.raises(ValueError, match="on its first line is a number or a date") as caught:
        draft(path)
    assert value not in str(caught.value)


@pytest.mark.parametrize("name", ["x1", "2h_glucose", "24h urine volume", "HbA1c", "b12", "Na"])
def test_names_with_numbers_in_them_are_names(tmp_path, name):
    path = tmp_path / "x.csv"
    path.write_text(f"ward;{name};y\nnorth;1;n\nsouth;2;y\n")
    assert name in draft(path).text


def test_a_name_that_is_a_value_of_its_column_is_no_name(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("Smith,north,no\nJones,south,yes\nMiller,north,no\n")
    with pytest.raises(ValueError, match="first line is in its own column, too") as caught:
        draft(path)
    assert "north" not in str(caught.value)


def test_names_that_toml_has_to_quote(tmp_path):
    table = {
        "a.b": ["1", "2", "4"],
        "two\nlines = [#": ["1", "2", "4"],
        'blood "type"': ["a", "b", "a"],
        "weight [kg]": ["1.5", "2", "3"],
        "y": ["n", "y", "n"],
    }
    path = tmp_path / "schema.toml"
    path.write_text(draft(table, ranges_are_public=True).text)
    assert list(hs.Schema.load(path).columns) == list(table)


@pytest.mark.parametrize(
    ("table", "target", "message"),
    [
        ({"a": ["1"], "b": ["2"]}, "c", "target must be one of a, b, got 'c'"),
        ({"a": [], "b": []}, None, "must have rows below its header, got none"),
    ],
)
def test_what_cannot_be_drafted(table, target, message):
    with pytest.raises(ValueError, match=message):
        draft(table, target=target)
