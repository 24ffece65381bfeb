"""Tables in text files: a header, then a row a line, cells separated by , ; tab or |.

A record depends on its own row only, so that nothing here follows from other rows: the separator is
the one with which the header has most cells, and every line is decoded for itself (text_lines.py).
Cells may be in double quotes, and have separators, quotes ("") and line ends within them. A quote
within a cell that is not in quotes is refused: then every whole row has an even number of them, and
a row that leaves one open cannot take in rows below it, up to somebody's stray quote, unnoticed.

Files are read in blocks, so that a million rows need little more memory than their numbers do.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn

from hearsay.tables.reading import Block, named_columns
from hearsay.tables.text_lines import TextLines

SEPARATORS = (";", "\t", "|", ",")
_ROWS = 1_000  # at a time: their cells stay in a processor's cache, which halves the time


class CsvFile:
    """A text file with a table in it.

    Args:
      path: of the file.
      name: what errors and the owner's line call it.
      size: how many of its bytes there are to read; all of them unless given.
    """

    def __init__(self, path: Path, name: str, size: int | None = None) -> None:
        self.path, self.name = path, name
        self._text = TextLines(path, name, size)
        self.notes: tuple[str, ...] = ()
        self.separator: str | None = _separator(self._text)
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

    def _rows(self) -> Iterator[list[list[str]]]:
        seen: list[str] = []
        reader = self._reader(_kept(self._text, seen))
        header, done, empty, line = False, 0, 0, 0
        while True:
            try:
                rows = list(islice(reader, _ROWS))
            except csv.Error as error:
                self._unquoted(reader.line_num, error)
            if not rows:
                break
            self._require_quotes(rows, seen, line)
            line += len(seen)
            seen.clear()
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
        left_out = f"{empty:,} empty {'rows' if empty > 1 else 'row'} left out"
        self.notes = (*self._text.notes, *([left_out] if empty else []))

    def _reader(self, lines: Iterable[str]) -> Any:
        return csv.reader(lines, delimiter=self.separator or ",", strict=True)

    def _lines(self) -> Iterator[tuple[int, list[str]]]:
        """Rows that are not empty, with the numbers of their first lines; the header is one."""
        # Its own, so that an error does not forget what was counted.
        reader = self._reader(TextLines(self.path, self.name, self._text.size))
        line = 1
        try:
            for row in reader:
                if _filled(row):
                    yield line, row
                line = reader.line_num + 1
        except csv.Error as error:
            self._unquoted(reader.line_num, error)

    def _require_quotes(self, rows: list[list[str]], lines: list[str], before: int) -> None:
        # Most files have none, and most that have some have none within cells.
        if not any('"' in line for line in lines):
            return
        if not any('"' in cell for row in rows for cell in row):
            return
        # What is in quotes is taken away, but for its line ends; what is left are strays.
        edge = f"[{re.escape(self.separator or ',')}\r\n]"
        whole = re.compile(rf'(?:\A|(?<={edge}))"[^"]*(?:""[^"]*)*"(?={edge}|\Z)')
        left = whole.sub(lambda cell: "\n" * len(cell[0].splitlines()[1:]), "".join(lines))
        if (at := left.find('"')) >= 0:
            self._unquoted(before + 1 + len(re.findall(r"\r\n|\r|\n", left[:at])), None)

    def _require_whole(self, rows: list[list[str]], done: int) -> None:
        for index, row in enumerate(rows):
            if len(row) == self._width:
                continue
            text = f"{self.name}, {self.place(done + index)}"
            text += f" must have {self._width} cells, as the header has, got {len(row)}"
            missing = [name for name, place in self._places.items() if place >= len(row)]
            text += f" (the first column without one is {missing[0]!r})" if missing else ""
            raise ValueError(f"{text}; a cell with {self.separator!r} in it must be in quotes")

    def _unquoted(self, line: int, error: csv.Error | None) -> NoReturn:
        # What the module says of it quotes nothing, but says little to who has never seen it.
        reason = "a cell is too long" if "limit" in str(error) else "quotes do not match"
        raise ValueError(
            f"{self.name}, line {line}: {reason}; a quoted cell must begin and end with a"
            ' quote, and a quote within it is written ""'
        ) from None


def _filled(row: list[str]) -> bool:
    """No line without anything on it, and no row of nothing but separators."""
    return any(row) and (len(row) > 1 or bool(row[0].strip()))


def _kept(lines: Iterable[str], seen: list[str]) -> Iterator[str]:
    for line in lines:
        seen.append(line)
        yield line


def _separator(lines: Iterable[str]) -> str:
    """With which the header is widest; of equal ones the first."""
    widths = {}
    for separator in SEPARATORS:
        with suppress(csv.Error):
            rows = filter(_filled, csv.reader(lines, delimiter=separator))
            widths[separator] = len(next(rows, []))
    best = max(widths, key=widths.__getitem__, default=",")
    return best if widths.get(best, 0) > 1 else ","
