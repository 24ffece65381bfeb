"""Cells of one column: texts as a file has them, or numbers as a frame has them.

A gap is an empty cell or one of NA, N/A, NaN, null; in a category whose levels have such a word it
is that level. Two texts are the same level where they are equal but for surrounding spaces; 1.0 is
the level 1 (programs write whole numbers so once a column has a gap), and True the level true.

**Numbers in texts** have a decimal point or a decimal comma, the same one in all of a column.
Thousands separators are refused, never guessed at: 1,234 is read as 1.234 only where the column
shows that its commas are decimal (0,5) or cells are separated by semicolons, as where commas are
decimal; with 1.234 it is the other way round.

Errors here know the row, and never quote a cell: they end up in logs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from decimal import Decimal

import numpy as np

GAPS = frozenset(("", "na", "n/a", "nan", "null"))
Cells = Sequence[str] | np.ndarray
UNKNOWN, GAP = -1, -2
WIDE = 2**53  # from here on a float64 is not the only whole number that is rounded to it

_NUMBER = "a number, without a unit or a thousands separator"
_WHOLE = re.compile(r"[+-]?\d+\.0+")


class CellError(Exception):
    """What a cell must be, and in which row of its block it is not.

    Args:
      row: counted within the block.
      rule: what the cell must be.
    """

    def __init__(self, row: int, rule: str) -> None:
        super().__init__(rule)
        self.row, self.rule = row, rule


def is_gap(text: str) -> bool:
    return text.strip().casefold() in GAPS


def number_of(text: str) -> float | None:
    """With a decimal point or comma; NaN for a gap, None where it is no number."""
    if is_gap(text):
        return np.nan
    if "_" in text or ("," in text and "." in text):
        return None
    try:
        return float(text.replace(",", "."))
    except ValueError:
        return None


class Texts:
    """Numbers from the texts of one column, block after block, and how they are written."""

    def __init__(self) -> None:
        # The first row with either sign, and whether one cell shows that it is a decimal sign.
        self.first: dict[str, int] = {}
        self.sure: set[str] = set()
        self._done = 0

    def numbers(self, cells: Sequence[str]) -> np.ndarray:
        """NaN where there is a gap."""
        joined = "\n".join(cells)
        if joined.count("\n") != len(cells) - 1:
            cells = [cell.replace("\n", " ") for cell in cells]
            joined = "\n".join(cells)
        self._look(joined, cells)
        plain: Sequence[str] = cells
        if "," in self.first:
            plain = joined.replace(",", ".").split("\n")
        found = None if "_" in joined else floats([cell or "nan" for cell in plain])
        if found is None:
            found = floats(["nan" if is_gap(cell) else cell for cell in plain])
        if found is None or "_" in joined:
            bad = (row for row, cell in enumerate(cells) if number_of(cell) is None)
            raise CellError(next(bad, 0), _NUMBER)
        self._done += len(cells)
        return found

    def _look(self, joined: str, cells: Sequence[str]) -> None:
        for sign in ",.":
            if sign not in joined:
                continue
            if sign not in self.first:
                row = next(row for row, cell in enumerate(cells) if sign in cell)
                self.first[sign] = self._done + row
            if sign not in self.sure and joined.count(sign) > len(_LIKE[sign].findall(joined)):
                self.sure.add(sign)
        if len(self.first) == 2:
            row = max(self.first.values()) - self._done
            # A word, or both signs in one cell.
            if number_of(cells[row]) is None:
                raise CellError(row, _NUMBER)
            raise CellError(row, "written with the decimal sign of the rows before it")


# 1,234: a decimal sign, or one of thousands.
_LIKE = {sign: re.compile(rf"^ *[+-]?[1-9]\d{{0,2}}\{sign}\d{{3}} *$", re.M) for sign in ",."}


def floats(texts: Iterable[str]) -> np.ndarray | None:
    try:
        return np.array(list(map(float, texts)))
    except ValueError:
        return None


def ambiguous(columns: dict[str, Texts], separator: str | None) -> tuple[str, str, int] | None:
    """The first column whose comma or point may be one of thousands: (name, sign, row).

    Args:
      columns: those of one file, read to the end.
      separator: what stands between its cells.
    """
    for sign, other in ((",", "."), (".", ",")):
        usual = separator != ";" if sign == "," else separator == ";"
        doubtful = usual or any(other in one.sure for one in columns.values())
        for name, one in columns.items():
            if doubtful and sign in one.first and sign not in one.sure:
                return name, sign, one.first[sign]
    return None


def level_codes(cells: Cells, levels: Sequence[str]) -> np.ndarray:
    """Which level each cell has: its number, UNKNOWN or GAP."""
    known = {plain_level(level): code for code, level in reversed(list(enumerate(levels)))}
    known |= {level: code for code, level in enumerate(levels)}

    def code(text: str) -> int:
        text = text.strip()
        found = known.get(text)
        found = known.get(plain_level(text)) if found is None else found
        return found if found is not None else GAP if is_gap(text) else UNKNOWN

    if isinstance(cells, np.ndarray):
        values, inverse = np.unique(cells, return_inverse=True)
        return np.array([code(text_of(value)) for value in values], np.int64)[inverse.reshape(-1)]
    codes = {cell: code(cell) for cell in set(cells)}
    return np.array(list(map(codes.__getitem__, cells)), np.int64)


def plain_level(text: str) -> str:
    """1.0 as 1, TRUE as true; anything else as it is."""
    if _WHOLE.fullmatch(text):
        return text.partition(".")[0]
    return text.casefold() if text.casefold() in ("true", "false") else text


def text_of(value: object) -> str:
    """A value of a frame as a text; "" where it is none."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return ""
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if isinstance(value, np.floating) and value.dtype.itemsize < 8:
        value = float(str(value))
    if isinstance(value, (float, np.floating)):
        return "" if np.isnan(value) else repr(float(value))
    if isinstance(value, (np.datetime64, np.timedelta64)):
        return "" if np.isnat(value) else str(value)
    if isinstance(value, Decimal) and value.is_nan():
        return ""
    if isinstance(value, Decimal) and value.is_finite():
        whole = value == value.to_integral_value()
        return format(value.to_integral_value(), "f") if whole else repr(float(value))
    return str(value)
