"""Where tables come from: files, frames, columns by name, arrays.

    north.csv, .tsv, .txt     csv_files.py
    north.parquet, .pq        through pyarrow (the extra `tables`)
    pandas, polars, pyarrow   through narwhals, a thin layer that knows them all
    {"age": [...], ...}       columns by name
    (table, labels)           one of the above without its target, or an array (rows, columns) in
                              the order of the schema's inputs; and the target's values

All of them give their rows in blocks, as texts or as numbers (cells.py). Ids and other columns that
nobody asks for are not converted.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, Protocol

import numpy as np

from hearsay import _validate as require
from hearsay.tables.cells import Cells
from hearsay.tables.values import decimals, has_wide, listed, numbers_or_texts, reading

TEXT, PARQUET = (".csv", ".tsv", ".txt"), (".parquet", ".pq")
_ROWS = 100_000  # rows of a frame at a time


class Block(NamedTuple):
    """Some rows of a table.

    Args:
      first: how many rows are before them.
      rows: how many they are.
      cells: by column.
    """

    first: int
    rows: int
    cells: dict[str, Cells]


class Table(Protocol):
    """What a source is read as."""

    name: str
    # What stands between its cells, in a text file.
    separator: str | None

    @property
    def notes(self) -> tuple[str, ...]:
        """What the owner should know of how it was read, once it is."""
        ...

    @property
    def columns(self) -> tuple[str, ...]: ...

    def blocks(self, wanted: list[str]) -> Iterator[Block]:
        """The rows, of those columns."""
        ...

    def place(self, row: int) -> str:
        """How an error names that row, counted from 0."""
        ...


def read_table(source: Any, *, name: str | None = None) -> Table:
    """A table to be read.

    Args:
      source: a path, a frame of pandas, polars or pyarrow, or a dict of columns.
      name: what errors and the owner's line call it; the path unless given.
    """
    if isinstance(source, (str, os.PathLike)):
        return _file(Path(source), name or str(source))
    name = name or "table"
    if isinstance(source, Mapping):
        return Columns(source, name)
    return Frame(source, name)


def paired(table: Any, labels: Any, inputs: Sequence[str], target: str | None, name: str) -> Table:
    """A table, or an array with one column for each of the inputs, and the target's values.

    Args:
      table: a frame, a dict of columns or an array.
      labels: the target's values; None where nobody asks for them.
      inputs: the names of an array's columns.
      target: the name of the target; None where it is not read.
      name: what errors call it.
    """
    if isinstance(table, (str, os.PathLike)):
        require.fail(name, "a frame or an array in a pair (table, labels)", "a path")
    if isinstance(table, (np.ndarray, list)) or hasattr(table, "__jax_array__"):
        # As one type, numbers of a list would depend on what stands beside them.
        array = np.array(table, object) if isinstance(table, list) else np.asarray(table)
        if array.ndim != 2 or array.shape[1] != len(inputs):
            rule = f"an array (rows, {len(inputs)}), one column for each input of the schema"
            require.fail(name, rule, f"shape {array.shape}")
        columns: dict[str, Any] = {one: array[:, at] for at, one in enumerate(inputs)}
    else:
        known = read_table(table, name=name)
        names = [one for one in known.columns if one != target]
        parts = [block.cells for block in known.blocks(names)]
        columns = {one: [cell for part in parts for cell in part[one]] for one in names}
    if target is not None:
        columns[target] = labels
    return Columns(columns, name)


def named_columns(header: Sequence[object], name: str) -> dict[str, int]:
    """Where each column is, by its name; a column without one, such as an index, is nobody's."""
    found: dict[str, int] = {}
    for place, cell in enumerate(header):
        column = str(cell).strip()
        if not column:
            continue
        if column in found:
            raise ValueError(
                f"{name} must have each column once, and the header has the same name in columns"
                f" {found[column] + 1} and {place + 1}"
            )
        found[column] = place
    return found


def _file(path: Path, name: str) -> Table:
    from hearsay.tables.csv_files import CsvFile

    if path.is_dir():
        raise ValueError(f"{name} must be a file with a table, got a folder")
    if not path.is_file():
        raise FileNotFoundError(f"{name} is not there")
    kind = path.suffix.lower()
    if kind in TEXT:
        return CsvFile(path, name)
    if kind in PARQUET:
        return ParquetFile(path, name)
    known = ", ".join((*TEXT, *PARQUET))
    raise ValueError(f"{name} must be a file with a table ({known}), got {kind or 'no suffix'}")


class _Rows:
    """A table whose rows have no lines."""

    separator: str | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        return ()

    def place(self, row: int) -> str:
        return f"row {row + 1}"


class Columns(_Rows):
    """Columns by name, of equal length.

    Args:
      columns: lists or arrays.
      name: what errors call the table.
    """

    def __init__(self, columns: Mapping[Any, Any], name: str) -> None:
        self.name = name
        places = named_columns(list(columns), name)
        values = list(columns.values())
        self._cells = {
            one: listed(values[place], f"{name}, column {one!r}") for one, place in places.items()
        }
        lengths = {one: len(cells) for one, cells in self._cells.items()}
        if len(set(lengths.values())) > 1:
            require.fail(f"columns of {name}", "equally long", lengths)
        self._count = next(iter(lengths.values()), 0)

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self._cells)

    def blocks(self, wanted: list[str]) -> Iterator[Block]:
        for first in range(0, self._count, _ROWS):
            cells = {one: self._cells[one][first : first + _ROWS] for one in wanted}
            yield Block(first, min(_ROWS, self._count - first), cells)


class Frame(_Rows):
    """A frame of pandas, polars, pyarrow or whatever else narwhals knows.

    Args:
      frame: the frame.
      name: what errors call it.
    """

    def __init__(self, frame: Any, name: str) -> None:
        import narwhals

        self.name = name
        try:
            known: Any = narwhals.from_native(frame)
        except TypeError:
            rule = "a path, a frame of pandas, polars or pyarrow, or a dict of columns"
            raise TypeError(f"{name} must be {rule}, got {type(frame).__name__}") from None
        except narwhals.exceptions.DuplicateError:
            named_columns(frame.columns, name)  # says which
            raise
        with reading(name):
            self._frame = known.collect() if isinstance(known, narwhals.LazyFrame) else known
        self._places = named_columns(self._frame.columns, name)

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self._places)

    def blocks(self, wanted: list[str]) -> Iterator[Block]:
        for first in range(0, len(self._frame), _ROWS):
            with reading(self.name):
                part = self._frame[first : first + _ROWS]
            cells = {one: self._cells(part, one) for one in wanted}
            yield Block(first, len(part), cells)

    def _cells(self, part: Any, column: str) -> Cells:
        import narwhals

        with reading(f"{self.name}, column {column!r}"):
            series = part[:, self._places[column]]
            kind = series.dtype
            if kind.is_float():
                single = kind == narwhals.Float32
                return decimals(series.to_numpy().astype(np.float32 if single else np.float64))
            if kind.is_integer() and not has_wide(series):
                return np.asarray(series.cast(narwhals.Float64).to_numpy(), np.float64)
            return numbers_or_texts(series.to_list())


class ParquetFile(_Rows):
    """A Parquet file, read in blocks.

    Args:
      path: of the file.
      name: what errors call it.
    """

    def __init__(self, path: Path, name: str) -> None:
        self.name, self.path = name, path
        try:
            import pyarrow.parquet as parquet
        except ImportError:
            raise ValueError(
                f"{name} needs pyarrow to be read: pip install 'hearsay-dp[tables]' (or save it as"
                " CSV)"
            ) from None
        try:
            self._file = parquet.ParquetFile(path)
        except Exception as error:
            self._broken(error)
        self._names = self._file.schema_arrow.names
        self._places = named_columns(self._names, name)

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self._places)

    def blocks(self, wanted: list[str]) -> Iterator[Block]:
        import pyarrow

        done, names = 0, [self._names[self._places[one]] for one in wanted]
        batches = self._file.iter_batches(batch_size=_ROWS, columns=names)
        while True:
            try:
                batch = next(batches, None)
            except Exception as error:
                self._broken(error)
            if batch is None:
                return
            table = pyarrow.Table.from_batches([batch])
            for block in Frame(table, self.name).blocks(wanted):
                yield block._replace(first=done)
                done += block.rows

    def _broken(self, error: Exception) -> NoReturn:
        # What pyarrow says of a bad file may quote it.
        raise ValueError(
            f"{self.name} must be a Parquet file, and cannot be read as one"
            f" ({type(error).__name__})"
        ) from None
