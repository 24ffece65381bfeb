"""Tables in text files: a header, then a row a line, cells separated by , ; tab or |.

The separator is the one with which the header and the rows below it have equally many cells. Texts
are UTF-8, or UTF-16 where the file begins with its mark; what is neither is read as cp1252, the
encoding of older Windows programs, and the owner's line says so. Cells may be in double quotes, and
have separators, quotes ("") and line ends within them.

Files are read in blocks, so that a million rows need little more memory than their numbers do.
"""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NoReturn

from hearsay.tables.reading import Block, named_columns

SEPARATORS = (";", "\t", "|", ",")
_ROWS = 1_000  # at a time: their cells stay in a processor's cache, which halves the time
_SAMPLE = 2**16  # characters that the separator is told by
_TRIED = 50  # rows, likewise
_CHUNK = 2**20  # bytes
_MAGIC = {
    b"PK\x03\x04": "an Excel workbook or a zip file: save the table as CSV",
    b"PAR1": "a Parquet file: name it .parquet",
    b"\x1f\x8b": "compressed: unpack it first",
    b"\xd0\xcf\x11\xe0": "an old Excel workbook: save the table as CSV",
}


class CsvFile:
    """A text file with a table in it.

    Args:
      path: of the file.
      name: what errors and the owner's line call it.
    """

    def __init__(self, path: Path, name: str) -> None:
        self.path, self.name = path, name
        self._encoding, note = _encoding(path, name)
        self._said: tuple[str, ...] = (note,) if note else ()
        self.notes: tuple[str, ...] = self._said
        with self._open() as handle:
            sample = handle.read(_SAMPLE)
        self.separator: str | None = _separator(sample)
        _, header = next(self._lines(), (0, []))
        if not header:
            raise ValueError(f"{name} must begin with a header of column names, got an empty file")
        self._places = named_columns(header, name)
        self._width = len(header)

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self._places)

    def blocks(self, wanted: list[str]) -> Iterator[Block]:
        done = 0
        for rows in self._rows():
            columns = list(zip(*rows, strict=True))
            yield Block(done, len(rows), {name: columns[self._places[name]] for name in wanted})
            done += len(rows)

    def place(self, row: int) -> str:
        """Where that row is, counted from 0: for an error, so that the file is read once more."""
        line, _ = next(islice(self._lines(), row + 1, None))
        return f"row {row + 1} (line {line})"

    def _open(self) -> io.TextIOWrapper:
        return open(self.path, encoding=self._encoding, newline="")

    def _rows(self) -> Iterator[list[list[str]]]:
        with self._open() as handle:
            reader = csv.reader(handle, delimiter=self.separator or ",", strict=True)
            header, done, empty = False, 0, 0
            while True:
                try:
                    rows = list(islice(reader, _ROWS))
                except csv.Error as error:
                    self._unquoted(reader.line_num, error)
                if not rows:
                    break
                kept = [row for row in rows if _filled(row)]
                if len(kept) < len(rows):
                    empty += sum(1 for row in rows if len(row) > 1 and not any(row))
                if not header and kept:
                    header = True
                    del kept[0]
                if any(len(row) != self._width for row in kept):
                    self._require_whole(kept, done)
                done += len(kept)
                if kept:
                    yield kept
        if empty:
            self.notes = (*self._said, f"{empty:,} empty {'rows' if empty > 1 else 'row'} left out")

    def _lines(self) -> Iterator[tuple[int, list[str]]]:
        """Rows that are not empty, with the numbers of their first lines; the header is one."""
        with self._open() as handle:
            reader = csv.reader(handle, delimiter=self.separator or ",", strict=True)
            line = 1
            try:
                for row in reader:
                    if _filled(row):
                        yield line, row
                    line = reader.line_num + 1
            except csv.Error as error:
                self._unquoted(reader.line_num, error)

    def _require_whole(self, rows: list[list[str]], done: int) -> None:
        for index, row in enumerate(rows):
            if len(row) == self._width:
                continue
            text = f"{self.name}, {self.place(done + index)}"
            text += f" must have {self._width} cells, as the header has, got {len(row)}"
            missing = [name for name, place in self._places.items() if place >= len(row)]
            text += f" (the first column without one is {missing[0]!r})" if missing else ""
            raise ValueError(f"{text}; a cell with {self.separator!r} in it must be in quotes")

    def _unquoted(self, line: int, error: csv.Error) -> NoReturn:
        # What the module says of it quotes nothing, but says little to who has never seen it.
        reason = "a cell is too long" if "limit" in str(error) else "quotes do not match"
        raise ValueError(
            f"{self.name}, line {line}: {reason}; a quoted cell must end with a quote, and a quote"
            ' within it is written ""'
        ) from None


def _filled(row: list[str]) -> bool:
    """No line without anything on it, and no row of nothing but separators."""
    return any(row) and (len(row) > 1 or bool(row[0].strip()))


def _encoding(path: Path, name: str) -> tuple[str, str]:
    """What its text is in, and a word on it where that is a guess."""
    with path.open("rb") as handle:
        start = handle.read(_CHUNK)
        for magic, what in _MAGIC.items():
            if start.startswith(magic):
                raise ValueError(f"{name} must be a text file with a table, and is {what}")
        if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            known = "utf-16"
        elif b"\0" in start:
            raise ValueError(
                f"{name} must be a text file with a table, and has zero bytes: save it as UTF-8"
            )
        else:
            known = "utf-8-sig"
        for encoding in (known, *(() if known == "utf-16" else ("cp1252", "latin-1"))):
            handle.seek(0)
            decoder = codecs.getincrementaldecoder(encoding)()
            try:
                while chunk := handle.read(_CHUNK):
                    decoder.decode(chunk)
                decoder.decode(b"", True)
            except UnicodeDecodeError:
                continue
            return encoding, "" if encoding == known else f"read as {encoding}, it is no UTF-8"
    raise ValueError(f"{name} must be UTF-16, as its first bytes say, and is not; save it as UTF-8")


def _separator(sample: str) -> str:
    """With which the first rows are as wide as the header, and widest; otherwise that of which the
    header has most, for an error that names the row.
    """
    # The last line may be cut off.
    lines = sample.splitlines(keepends=True)
    lines = lines[:-1] if len(sample) == _SAMPLE and len(lines) > 1 else lines
    found: list[tuple[bool, int, int, str]] = []
    for order, separator in enumerate(SEPARATORS):
        try:
            rows = csv.reader(lines, delimiter=separator)
            widths = [len(row) for row in islice((row for row in rows if any(row)), _TRIED)]
        except csv.Error:
            continue
        if widths and widths[0] > 1:
            found.append((len(set(widths)) == 1, widths[0], -order, separator))
    return max(found)[-1] if found else ","
