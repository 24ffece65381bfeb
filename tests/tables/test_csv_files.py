"""Tables in text files, as the programs of this world write them."""

from __future__ import annotations

import csv
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hearsay as hs
from hearsay.tables import csv_files, text_lines
from hearsay.tables.encoding import encode
from hearsay.tables.fingerprints import Hashing
from hearsay.tables.reading import read_table
from tests.tables import reference

SCHEMA = hs.Schema(
    {
        "age": hs.Number(0, 120, "middle"),
        "dose": hs.Number(0, 10),
        "ward": hs.Category(["nord", "süd"], "other"),
        "ill": hs.Category(["no", "yes"]),
    },
    "ill",
)
ROWS = [
    ["p1", "31", "2.5", "nord", "no"],
    ["p2", "", "0.125", "süd", "yes"],
    ["p3", "58.5", "9", "west", "no"],
]
HEADER = ["patient", "age", "dose", "ward", "ill"]


def written(path, rows=ROWS, header=HEADER, encoding="utf-8", separator=",", **options):
    with open(path, "w", encoding=encoding, newline="") as handle:
        csv.writer(handle, delimiter=separator, **options).writerows([header, *rows])
    return path


@pytest.fixture
def plain(tmp_path):
    return SCHEMA.encode(written(tmp_path / "plain.csv"))


def test_a_file_is_what_the_obvious_loop_makes_of_it(plain):
    rows = [dict(zip(HEADER, row, strict=True)) for row in ROWS]
    wanted = [reference.record(SCHEMA, row) for row in rows]
    np.testing.assert_allclose(plain.features, wanted, rtol=1e-14)
    assert plain.labels.tolist() == [0, 1, 0]
    assert str(plain.counted).endswith(
        "plain.csv: 3 rows; age: 1 gap taken as the middle; ward: 1 unknown level taken as other"
    )


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252", "latin-1"])
@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
def test_encodings_separators_and_quotes(tmp_path, plain, encoding, separator, quoting):
    path = tmp_path / "other.csv"
    found = SCHEMA.encode(written(path, encoding=encoding, separator=separator, quoting=quoting))
    np.testing.assert_array_equal(found.features, plain.features)
    np.testing.assert_array_equal(found.labels, plain.labels)
    said = "3 rows; 1 line read as cp1252, being no UTF-8; age" in str(found.counted)
    assert said == (encoding in ("cp1252", "latin-1"))


def test_bytes_that_cp1252_does_not_have(tmp_path, plain):
    rows = [[*row[:-1], row[-1]] for row in ROWS]
    rows[0][0] = "\x81"
    found = SCHEMA.encode(written(tmp_path / "x.csv", rows, encoding="latin-1"))
    np.testing.assert_array_equal(found.features, plain.features)
    assert "1 line read as cp1252" in str(found.counted)
    assert "1 line read as latin-1" in str(found.counted)


def encoded(path, content: bytes, schema=SCHEMA):
    """Records, labels and hashes, row by row."""
    path.write_bytes(content)
    table = Hashing(read_table(path, name="x.csv"))
    found = encode(schema, table)
    return np.column_stack([found.features, found.labels, table.hashes]), found.counted


LINES = [",".join(row).encode() for row in [HEADER, *ROWS]]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("chunk", [1, 7, 2**20])
@pytest.mark.parametrize(
    "row",
    [
        b"p\xe9,31,2.5,nord,no",  # no UTF-8
        b"p\x81,31,2.5,nord,no",  # nor cp1252
        b'"p;1;2;3;4;5;6",31,2.5,nord,no',  # other separators
        b'"p""\n""4",31,2.5,nord,no',
        b'p4,NA,"2",nord,no',
        b"900719925474099312345,31,2.5,1,no",
    ],
)
def test_one_row_changes_no_other_rows_records_or_hashes(tmp_path, monkeypatch, row, end, chunk):
    """Whatever is in it, in cells that are read and in others."""
    monkeypatch.setattr(text_lines, "_CHUNK", chunk)
    before, _ = encoded(tmp_path / "x.csv", end.join([*LINES, LINES[1]]) + end)
    for place in (1, 3, 4):
        lines = [*LINES, LINES[1]]
        lines[place] = row
        after, _ = encoded(tmp_path / "x.csv", end.join(lines) + end)
        same = (before == after).all(axis=1).tolist()
        assert same == [index + 1 != place for index in range(4)]


def test_a_header_is_decoded_for_itself(tmp_path):
    schema = hs.Schema({"größe": hs.Number(0, 9), "ward": hs.Category(["süd", "b"])}, "ward")
    header, rows = "größe,ward\n", "1,süd\n2,b\n"
    both, counted = encoded(tmp_path / "x.csv", (header + rows).encode(), schema)
    assert str(counted) == "x.csv: 2 rows"
    mixed, counted = encoded(tmp_path / "x.csv", header.encode("cp1252") + rows.encode(), schema)
    assert str(counted) == "x.csv: 2 rows; 1 line read as cp1252, being no UTF-8"
    np.testing.assert_array_equal(mixed, both)


def test_the_separator_follows_from_the_header_alone(tmp_path):
    """Rows that are wider with another separator do not change it: they are refused."""
    path = tmp_path / "x.csv"
    path.write_text("a;b\n" + "1,2,3;4\n" * 9)
    assert read_table(path).separator == ";"
    path.write_text('\n,,\n"a;b;c;d",b\n1;2,3\n')
    assert read_table(path).separator == ","
    path.write_text("a;b,c\n" + "1;2,5\n" * 9 + "1,2\n")
    assert read_table(path).separator == ";"
    path.write_text("a,b,c\n1;2;3\n4;5;6\n")
    with pytest.raises(ValueError, match=r"row 1 \(line 2\) must have 3 cells"):
        list(read_table(path).blocks(["a"]))


@pytest.mark.parametrize("block", [1, 1000])
def test_an_open_quote_takes_in_no_row_below_it(tmp_path, monkeypatch, block):
    """With stray quotes in other rows it did, and both were one row of the right width."""
    monkeypatch.setattr(csv_files, "_ROWS", block)
    path = tmp_path / "x.csv"
    path.write_text('a,b,c\n"1\n1",2,3\n\n1,5" pipe,x\n')
    with pytest.raises(ValueError, match=r"x.csv, line 5: quotes do not match"):
        list(read_table(path).blocks(["a"]))
    path.write_text('a,b,c\n1,"2,3\n1,",a",x\n')
    with pytest.raises(ValueError, match=r"x.csv, line 3: quotes do not match"):
        list(read_table(path).blocks(["a"]))
    path.write_text('a,b,c\r\n1,"2 ""x""\r\n,",3\r\n"""",5,x')
    cells = [cell for part in read_table(path).blocks(["a"]) for cell in part.cells["a"]]
    assert cells == ["1", '"']


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_decimal_commas(tmp_path, plain, separator):
    rows = [[cell.replace(".", ",") for cell in row] for row in ROWS]
    found = SCHEMA.encode(written(tmp_path / "x.csv", rows, separator=separator))
    np.testing.assert_array_equal(found.features, plain.features)


def test_another_order_of_columns_and_lines_without_anything(tmp_path, plain):
    order = [4, 2, 0, 3, 1]
    path = tmp_path / "x.csv"
    rows = [[row[i] for i in order] for row in ROWS]
    written(path, rows, [HEADER[i] for i in order], lineterminator="\r\n\r\n \r\n")
    path.write_text("\n" + path.read_text() + ",,,,\n,,,,\n")
    found = SCHEMA.encode(path)
    np.testing.assert_array_equal(found.features, plain.features)
    assert "3 rows; 2 empty rows left out" in str(found.counted)


def test_a_column_without_a_name_is_nobodys(tmp_path, plain):
    rows = [[str(i), *row] for i, row in enumerate(ROWS)]
    path = written(tmp_path / "x.csv", rows, ["", *HEADER])
    np.testing.assert_array_equal(SCHEMA.encode(path).features, plain.features)


@settings(max_examples=60, deadline=None)
@given(
    cells=st.lists(
        st.lists(st.text("ab\"',;|\n\t é", max_size=6), min_size=3, max_size=3),
        min_size=1,
        max_size=9,
    ),
    separator=st.sampled_from(csv_files.SEPARATORS),
    block=st.integers(1, 4),
)
def test_whatever_is_in_quotes_comes_back(tmp_path_factory, cells, separator, block):
    path = tmp_path_factory.getbasetemp() / "quoted.csv"
    written(path, cells, ["one", "two", "three"], separator=separator, quoting=csv.QUOTE_ALL)
    table = read_table(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_files, "_ROWS", block)
        blocks = list(table.blocks(["three", "one"]))
    wanted = [row for row in cells if any(row)]
    assert [cell for b in blocks for cell in b.cells["three"]] == [row[2] for row in wanted]
    assert [cell for b in blocks for cell in b.cells["one"]] == [row[0] for row in wanted]
    assert [b.first for b in blocks] == np.cumsum([0, *(b.rows for b in blocks)])[:-1].tolist()


BAD = {
    "an empty file": ("", "x.csv must begin with a header of column names, got an empty file"),
    "blank lines only": ("\n\n \n", "x.csv must begin with a header of column names, got an empty"),
    "a header only": ("age,dose,ward,ill\n", "x.csv must have rows below its header, got none"),
    "a name twice": (
        "age,dose,age,ward,ill\n31337,1,1,nord,no\n",
        "x.csv must have each column once, and the header has the same name in columns 1 and 3",
    ),
    "a column missing": (
        "age,ward,ill\n31337,nord,no\n",
        "x.csv must have the schema's columns, and has no 'dose'",
    ),
    "a row too short": (
        "age,dose,ward,ill\n1,1,nord,no\n\n31337,1,nord\n",
        r"x.csv, row 2 \(line 4\) must have 4 cells, as the header has, got 3 \(the first column"
        r" without one is 'ill'\)",
    ),
    "a row too long": (
        "age,dose,ward,ill\n1,1,nord,no\n1,1,nord,no\n31337,1,5,nord,no\n",
        r"x.csv, row 3 \(line 4\) must have 4 cells, as the header has, got 5; a cell with ','",
    ),
    "a quote that is open": (
        'age,dose,ward,ill\n1,1,nord,no\n1,1,"31337,no\n',
        "x.csv, line [34]: quotes do not match",
    ),
    "no number": (
        'age,dose,ward,ill\n1,1,"no\nrd",no\n\n31337 kg,1,nord,no\n',
        r"x.csv, row 2 \(line 5\), column 'age' must be a number, without a unit",
    ),
    "thousands": (
        'age,dose,ward,ill\n1,1,nord,no\n"31,337",1,nord,no\n',
        r"x.csv, row 2 \(line 3\), column 'age' must have numbers without thousands separators",
    ),
    "points of thousands": (
        "age;dose;ward;ill\n31.337;1,5;nord;no\n31.337;1;nord;no\n",
        r"x.csv, row 1 \(line 2\), column 'age' must have numbers without thousands separators:"
        " every point",
    ),
    "both signs": (
        'age,dose,ward,ill\n1.5,1,nord,no\n"31337,5",1,nord,no\n',
        r"x.csv, row 2 \(line 3\), column 'age' must be written with the decimal sign",
    ),
    "a gap that has no meaning": (
        "age,dose,ward,ill\n31337,,nord,no\n",
        r"x.csv, row 1 \(line 2\), column 'dose' must be filled in",
    ),
    "a third class": (
        "age,dose,ward,ill\n1,1,nord,no\n1,1,nord,yes\n1,1,nord,31337\n",
        r"x.csv, row 3 \(line 4\), column 'ill' must be one of no, yes, the target's levels",
    ),
    "no header": (
        "31337,1,nord,no\n31337,1,nord,no\n",
        r"has no 'age', 'dose', 'ward', 'ill' \(is its first line a header\?\)",
    ),
}


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("block", [1, 1000])
def test_bad_files_are_refused_in_a_line_that_names_the_place_and_no_value(
    tmp_path, monkeypatch, case, block
):
    text, message = BAD[case]
    monkeypatch.setattr(csv_files, "_ROWS", block)
    (tmp_path / "x.csv").write_text(text)
    with pytest.raises(ValueError, match=message) as caught:
        SCHEMA.encode(tmp_path / "x.csv")
    error = caught.value
    assert "31337" not in str(error) and "31,337" not in str(error)
    assert error.__cause__ is None
    assert error.__suppress_context__ or error.__context__ is None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"PK\x03\x04rest", "an Excel workbook or a zip file: save the table as CSV"),
        (b"PAR1rest", "a Parquet file: name it .parquet"),
        ("age,ill\n1,no\n".encode("utf-16-le"), "has zero bytes: save it as UTF-8"),
        (b"\xff\xfea", "must be UTF-16, as its first bytes say, and is not"),
    ],
)
def test_files_that_are_no_text(tmp_path, content, message):
    (tmp_path / "x.csv").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        SCHEMA.encode(tmp_path / "x.csv")


def test_numbers_with_three_decimals_are_read_where_nothing_speaks_against_them(tmp_path):
    rows = [["p", "31.337", "1.234", "nord", "no"], ["p", "40.125", "2.345", "nord", "no"]]
    found = SCHEMA.encode(written(tmp_path / "x.csv", rows))
    assert found.counted.columns["age"].clipped == 0
    rows = [[cell.replace(".", ",") for cell in row] for row in rows]
    again = SCHEMA.encode(written(tmp_path / "y.csv", rows, separator=";"))
    np.testing.assert_array_equal(again.features, found.features)


def test_files_that_are_not_there_or_no_tables(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere.csv is not there"):
        SCHEMA.encode(tmp_path / "nowhere.csv")
    (tmp_path / "x.xlsx").write_text("x")
    with pytest.raises(ValueError, match=r"must be a file with a table \(.csv, .*got .xlsx"):
        SCHEMA.encode(tmp_path / "x.xlsx")


def memory(name: str) -> int:
    """KiB of this process: VmRSS, or VmHWM for the most that there was."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def forget_the_peak() -> int:
    """What this process has now, from which its peak is counted: other tests ran in it."""
    Path("/proc/self/clear_refs").write_text("5")
    return memory("VmRSS")


@pytest.mark.slow
def test_a_million_rows_in_twenty_seconds_and_two_gibibytes(tmp_path):
    """Of CPU time: the machine may be shared. About 8 seconds on two slow cores."""
    rng = np.random.default_rng(0)
    names = [f"x{i}" for i in range(10)]
    path, rows = tmp_path / "big.csv", 10**6
    with path.open("w") as handle:
        handle.write(",".join(["id", *names, "ward", "sex", "site", "ill"]) + "\n")
        for start in range(0, rows, 10_000):
            values = rng.normal(50, 20, (10_000, 10))
            for i, row in enumerate(values):
                cells = [f"{v:.3f}" if v > 0 else "" for v in row]
                kind = (start + i) % 7
                ill = "no" if row[0] < 50 else "yes"
                handle.write(
                    f"p{start + i},{','.join(cells)},w{kind},{'mf'[i % 2]},s{kind},{ill}\n"
                )
    schema = hs.Schema(
        {
            **{name: hs.Number(0, 100, "middle") for name in names},
            "ward": hs.Category([f"w{i}" for i in range(6)]),
            "sex": hs.Category(["m", "f"]),
            "site": hs.Category([f"s{i}" for i in range(7)]),
            "ill": hs.Category(["no", "yes"]),
        },
        "ill",
    )
    before, start = forget_the_peak(), time.process_time()
    found = schema.encode(path)
    assert time.process_time() - start < 20
    assert memory("VmHWM") - before < 2 * 2**20
    assert found.features.shape == (rows, 29) and found.counted.rows == rows
