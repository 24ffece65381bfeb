"""The same rows give the same records and the same hashes, wherever they come from."""

from __future__ import annotations

import builtins

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import hearsay as hs
from hearsay.tables import reading
from hearsay.tables.encoding import encode
from hearsay.tables.fingerprints import Hashing
from hearsay.tables.reading import read_table

SCHEMA = hs.Schema(
    {
        "age": hs.Number(0, 120, "flag"),
        "code": hs.Category(["1", "2"], "other"),
        "smokes": hs.Category(["true", "false"], "other"),
        "ward": hs.Category(["north", "south"], "other"),
        "ill": hs.Category(["no", "yes"]),
    },
    "ill",
)
TABLE = {
    "patient": ["p1", "p2", "p3", "p4"],
    "age": [31.5, None, 200.0, 0.1],
    "code": [1, 2, None, 3],
    "smokes": [True, False, None, True],
    "ward": ["north", None, "east", "south"],
    "ill": ["no", "yes", "no", "yes"],
}
ARROW = pa.table(TABLE)
CSV = """\
ward;ill;smokes;patient;code;age
north;no;True;p1;1.0;31,5
;yes;False;p2;2.0;NA
east;no;;p3;;200
south;yes;TRUE;p4;3;0,1
"""


@pytest.fixture
def sources(tmp_path):
    (tmp_path / "x.csv").write_text(CSV)
    pq.write_table(ARROW, tmp_path / "x.parquet", row_group_size=3)
    categorical = pd.DataFrame(TABLE).astype({"ward": "category"})
    return {
        "csv": tmp_path / "x.csv",
        "parquet": str(tmp_path / "x.parquet"),
        "dict": TABLE,
        "arrays": {name: np.array(values, object) for name, values in TABLE.items()},
        "pandas": pd.DataFrame(TABLE),
        "pandas, categorical": categorical,
        "pandas, nullable": pd.DataFrame(TABLE).convert_dtypes(),
        "polars": pl.DataFrame(TABLE),
        "polars, lazy": pl.LazyFrame(TABLE),
        "pyarrow": ARROW,
    }


@pytest.mark.parametrize("rows", [2, 100_000])
def test_every_source_gives_the_same_records_and_hashes(sources, monkeypatch, rows):
    monkeypatch.setattr(reading, "_ROWS", rows)
    tables = {kind: Hashing(read_table(source, name="x")) for kind, source in sources.items()}
    found = {kind: encode(SCHEMA, table) for kind, table in tables.items()}
    first = found["csv"]
    assert str(first.counted) == (
        "x: 4 rows; age: 1 clipped to 0..120, 1 gap taken as the middle, and marked; code: 1"
        " unknown level taken as other, 1 gap taken as other; smokes: 1 gap taken as other; ward: 1"
        " unknown level taken as other, 1 gap taken as other"
    )
    for kind, one in found.items():
        np.testing.assert_array_equal(one.features, first.features, kind)
        np.testing.assert_array_equal(one.labels, first.labels, kind)
        assert str(one.counted) == str(first.counted), kind
        np.testing.assert_array_equal(tables[kind].hashes, tables["csv"].hashes, kind)
    assert len(np.unique(tables["csv"].hashes, axis=0)) == 4


def test_labels_may_come_beside_a_frame():
    whole = SCHEMA.encode(TABLE)
    for frame in (pd.DataFrame(TABLE), pl.DataFrame(TABLE), dict(TABLE)):
        beside = frame.pop("ill") if isinstance(frame, dict) else TABLE["ill"]
        found = SCHEMA.encode((frame, beside))
        np.testing.assert_array_equal(found.features, whole.features)
        np.testing.assert_array_equal(found.labels, whole.labels)


def hashes(source) -> np.ndarray:
    table = Hashing(read_table(source))
    list(table.blocks([]))
    return table.hashes


def test_a_hash_is_that_of_a_whole_row():
    """Another schema reads other columns of the same row: all of them are in its hash."""
    one = hashes(TABLE)
    for name in TABLE:
        other = hashes({**TABLE, name: [TABLE[name][0], "x", *TABLE[name][2:]]})
        assert [np.array_equal(a, b) for a, b in zip(one, other, strict=True)] == [
            True, False, True, True,
        ], name  # fmt: skip
    assert not np.array_equal(hashes({"a": [1], "b": [2]}), hashes({"a": [2], "b": [1]}))
    assert not np.array_equal(hashes({"a": [""], "b": ["x"]}), hashes({"a": ["x"], "b": [""]}))
    assert not np.array_equal(hashes({"a": [0]}), hashes({"a": [None]}))
    np.testing.assert_array_equal(hashes({"a": [0.0, 1]}), hashes({"a": ["-0", " 1.00 "]}))
    np.testing.assert_array_equal(hashes({"a": ["x ", "NA"]}), hashes({"a": ["X", ""]}))


def test_parquet_without_pyarrow_says_what_to_install(sources, monkeypatch):
    real = builtins.__import__

    def without(name, *rest):
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ValueError, match=r"needs pyarrow to be read: pip install 'hearsay-dp\[tab"):
        read_table(sources["parquet"])


def test_a_broken_parquet_file_is_refused_without_a_word_of_what_is_in_it(tmp_path):
    (tmp_path / "x.parquet").write_bytes(b"PAR1 31337 31337")
    with pytest.raises(ValueError, match="cannot be read as one") as caught:
        read_table(tmp_path / "x.parquet")
    assert "31337" not in str(caught.value)


def test_a_column_of_dates_is_no_number():
    frame = pd.DataFrame({"age": pd.to_datetime(["2020-01-01"]), "ill": ["no"]})
    schema = hs.Schema({"age": hs.Number(0, 1), "ill": hs.Category(["no", "yes"])}, "ill")
    with pytest.raises(ValueError, match="table, row 1, column 'age' must be a number"):
        schema.encode(frame)


def test_booleans_and_huge_whole_numbers_are_numbers():
    schema = hs.Schema({"x": hs.Number(-1, 1), "ill": hs.Category(["no", "yes"])}, "ill")
    found = schema.encode({"x": [True, False], "ill": ["no", "yes"]})
    np.testing.assert_allclose(found.features[:, 0], [np.sqrt(0.5), 0.0])
    found = schema.encode({"x": [10**400, -(10**400)], "ill": ["no", "yes"]})
    np.testing.assert_allclose(found.features[:, 0], [np.sqrt(0.5), -np.sqrt(0.5)])
