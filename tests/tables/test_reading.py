"""The same rows give the same records and the same hashes, wherever they come from."""

from __future__ import annotations

import builtins
import datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest

import hearsay as hs
from hearsay.tables import reading
from hearsay.tables.drafting import draft
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


CODES = hs.Schema(
    {
        "code": hs.Category(["900000000000207008", "7"], "other"),
        "dose": hs.Number(0, 9, "middle"),
        "ill": hs.Category(["no", "yes"]),
    },
    "ill",
)
FIRST, SECOND, SMALL = 900000000000207008, 900000000000207009, 7


@pytest.mark.parametrize("other", [SECOND, None, 7, 7.5, "x", 10**400, Decimal("1.5"), True])
@pytest.mark.parametrize("kind", ["list", "array", "pandas", "rows"])
def test_a_wide_whole_number_is_the_same_level_whatever_stands_beside_it(kind, other):
    codes, ill = [FIRST, SMALL, other], ["no", "yes", "no"]
    doses = [1, 2, 0.5 if other == 7.5 else None]
    if kind == "rows":
        table = ([list(row) for row in zip(codes, doses, strict=True)], ill)
    else:
        made = {"list": list, "array": lambda v: np.array(v, object), "pandas": list}[kind]
        table = {"code": made(codes), "dose": made(doses), "ill": ill}
        table = pd.DataFrame(table, dtype=object) if kind == "pandas" else table
    found = CODES.encode(table).features
    np.testing.assert_allclose(found[0] / found[0, -1], [1, 0, 0, 2 / 9 - 1, 1])
    np.testing.assert_allclose(found[1] / found[1, -1], [0, 1, 0, 4 / 9 - 1, 1])
    np.testing.assert_array_equal(found[2, :3] > 0, [False, other == 7, other != 7])


@pytest.mark.parametrize("gap", [None, 5])
def test_wide_whole_numbers_of_frames_have_all_their_digits(tmp_path, gap):
    table = pa.table({"code": [FIRST, SECOND, 7, gap], "dose": [1] * 4, "ill": ["no"] * 4})
    pq.write_table(table, tmp_path / "x.parquet")
    pc.write_csv(table, tmp_path / "x.csv")
    made = table.to_pandas(types_mapper={pa.int64(): pd.Int64Dtype()}.get)
    sources = [tmp_path / "x.csv", tmp_path / "x.parquet", table, pl.from_arrow(table), made]
    sources.append(table.set_column(0, "code", table["code"].cast(pa.decimal128(38, 0))))
    wanted = hashes(sources[0])
    assert len(np.unique(wanted, axis=0)) == 4
    for source in sources:
        found = CODES.encode(source).features[:, :3].argmax(axis=1)
        assert found.tolist() == [0, 2, 1, 2]
        np.testing.assert_array_equal(hashes(source), wanted)
        assert "FILL IN" in draft(source, target="ill").text


def bad_texts() -> pa.Array:
    content = pa.array([b"31337\xff", b"b"], pa.binary()).buffers()
    return pa.Array.from_buffers(pa.string(), 2, [None, *content[1:]])


@pytest.mark.parametrize("kind", ["far dates", "texts"])
def test_what_a_library_says_of_a_cell_is_not_shown(tmp_path, kind):
    far = pa.array([31337 * 10**13, 2], pa.timestamp("us"))
    table = pa.table({"id": far if kind == "far dates" else bad_texts(), "ill": ["no", "yes"]})
    pq.write_table(table, tmp_path / "x.parquet")
    for read in (hashes, draft):
        for source in (tmp_path / "x.parquet", table):
            with pytest.raises(ValueError, match="column 'id' must be of values that can") as info:
                read(source)
            assert "31337" not in str(info.value) and info.value.__suppress_context__


def test_a_lazy_frame_that_fails_is_not_quoted():
    lazy = pl.LazyFrame({"id": ["31337x"]}).with_columns(pl.col("id").cast(pl.Int64))
    with pytest.raises(ValueError, match="table must be of values that can be read") as info:
        read_table(lazy)
    assert "31337" not in str(info.value)


def test_a_frame_with_a_name_twice_is_refused_as_a_file_is():
    twice = pd.DataFrame([[1, 2, 3]], columns=["a", "b", "a"])
    with pytest.raises(ValueError, match="must have each column once, .* in columns 1 and 3"):
        read_table(twice)


def test_tables_by_name_are_answered_with_what_to_give():
    frame = pd.DataFrame({"a": [1, 2]})
    for tables in ({"north": frame, "south": frame}, {"north": "north.csv"}):
        with pytest.raises(ValueError, match=r"several agents are a list, too: \[table, table\]"):
            hashes(tables)


MOMENT = datetime.datetime(2020, 1, 2, 7, 30, 0, 250_000)
UTC = datetime.UTC
COLUMNS = {
    "float32": pa.array([27.1, None, 1e-8, 16777216], pa.float32()),
    "day": pa.array([datetime.date(2020, 1, 2), None] * 2),
    "midnight": pa.array([datetime.datetime(2020, 1, 2), None] * 2, pa.timestamp("ns")),
    "seconds": pa.array([MOMENT.replace(microsecond=0), None] * 2, pa.timestamp("s")),
    "millis": pa.array([MOMENT, None] * 2, pa.timestamp("ms")),
    "nanos": pa.array([MOMENT, None] * 2, pa.timestamp("ns")),
    "zone": pa.array([MOMENT.replace(tzinfo=UTC), None] * 2, pa.timestamp("us", "UTC")),
    "time": pa.array([MOMENT.time(), None] * 2, pa.time64("us")),
    "truth": pa.array([True, None, False, True]),
}


@pytest.mark.parametrize("kind", COLUMNS)
def test_a_row_has_one_hash_in_files_of_all_kinds(tmp_path, kind):
    table = pa.table({"x": COLUMNS[kind], "y": [1, 2, 3, 4]})
    pq.write_table(table, tmp_path / "x.parquet")
    pc.write_csv(table, tmp_path / "x.csv")
    frame = table.to_pandas()
    frame.to_csv(tmp_path / "pandas.csv", index=False)
    sources = [tmp_path / "x.csv", tmp_path / "pandas.csv", table, frame, pl.from_arrow(table)]
    for source in sources:
        np.testing.assert_array_equal(hashes(source), hashes(tmp_path / "x.parquet"), str(source))
    assert len(np.unique(hashes({"x": table["x"].to_pylist()}), axis=0)) == len(
        set(table["x"].to_pylist())
    )


def test_numbers_of_float32_are_those_that_a_text_file_has():
    schema = hs.Schema({"x": hs.Number(0, 100), "ill": hs.Category(["no", "yes"])}, "ill")
    values = np.array([27.1, 0.1], np.float32)
    wanted = schema.encode({"x": ["27.1", "0.1"], "ill": ["no", "yes"]}).features
    nullable = pd.DataFrame({"x": pd.array(values, "Float32"), "ill": ["no", "yes"]})
    for table in (
        {"x": values, "ill": ["no", "yes"]},
        {"x": list(values), "ill": ["no", "yes"]},
        (values[:, None], ["no", "yes"]),
        nullable,
        pl.DataFrame({"x": values, "ill": ["no", "yes"]}),
    ):
        np.testing.assert_array_equal(schema.encode(table).features, wanted)


def test_points_of_time_in_arrays_are_no_numbers():
    days = np.array(["2020-01-02", "NaT"], "datetime64[ns]")
    np.testing.assert_array_equal(hashes({"a": days}), hashes({"a": ["2020-01-02", ""]}))
