"""Rows known again: a hash of every row of a table, by which a budget finds it in a later run.

It is taken of the cells as they are in the table, all columns of it in the order of their names:
another schema, another order of columns, a file of another kind (Parquet, decimal commas) do not
change it. A cell counts as one of

    a gap
    a number         as float64; whole numbers of 2^53 or more with all their digits
    a point of time  2020-01-02, 2020-01-02 07:30:00.5: the day alone at midnight, no zeros at the
                     end of a fraction, T as a space, +00:00 as Z; other zones as they are written
    a text           without spaces around it, large and small letters the same

Columns without a name, such as an index, are not in it. The hashes would confirm a guess of a row,
and stay in memory.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator

import numpy as np

from hearsay.tables.cells import WIDE, Cells, floats, number_of, text_of
from hearsay.tables.reading import Block, Table


class Hashing:
    """A table that hashes its rows as they are read.

    Args:
      table: the table itself.
    """

    def __init__(self, table: Table) -> None:
        self._table, self._found = table, [np.zeros((0, 32), np.uint8)]
        self.name, self.separator = table.name, table.separator

    @property
    def notes(self) -> tuple[str, ...]:
        return self._table.notes

    @property
    def columns(self) -> tuple[str, ...]:
        return self._table.columns

    @property
    def hashes(self) -> np.ndarray:
        """(rows, 32) bytes, of the rows that were read last."""
        return np.concatenate(self._found)

    def blocks(self, wanted: list[str]) -> Iterator[Block]:
        names = sorted(self.columns)
        start, self._found = hashlib.sha256(repr(names).encode()).digest(), self._found[:1]
        for block in self._table.blocks(names):
            parts = np.concatenate([fingerprints(block.cells[name]) for name in names], axis=1)
            width, content = parts.shape[1], parts.tobytes()
            found = (
                hashlib.sha256(start + content[at : at + width]).digest()
                for at in range(0, len(content), width)
            )
            rows = np.frombuffer(b"".join(found), np.uint8)
            self._found.append(rows.reshape(block.rows, 32))
            yield block._replace(cells={name: block.cells[name] for name in wanted})

    def place(self, row: int) -> str:
        return self._table.place(row)


def fingerprints(cells: Cells) -> np.ndarray:
    """(cells, 16) bytes that are equal where cells are the same gap, number or text, whatever kind
    of file they come from and whatever a schema makes of them.
    """
    found = np.zeros((len(cells), 16), np.uint8)
    numbers = _all_numbers(cells)
    if numbers is not None:
        found[:, 0] = ~np.isnan(numbers)
        bits = (np.where(np.isnan(numbers), 0.0, numbers) + 0.0).astype("<f8")
        found[:, 8:] = bits.view(np.uint8).reshape(-1, 8)
        return found
    texts = list(map(text_of, cells)) if isinstance(cells, np.ndarray) else cells
    known = list(set(texts))
    table = np.frombuffer(b"".join(map(_fingerprint, known)), np.uint8).reshape(-1, 16)
    codes = {text: code for code, text in enumerate(known)}
    return table[np.array(list(map(codes.__getitem__, texts)), np.int64)]


def _all_numbers(cells: Cells) -> np.ndarray | None:
    """None where some are no numbers, or such that not all their digits are in a float64."""
    found: np.ndarray | None
    if isinstance(cells, np.ndarray):
        found = None if cells.dtype.kind == "b" else cells.astype(np.float64)
    else:
        joined = "\n".join(cells)
        if "_" in joined:
            return None
        if "," in joined:
            cells = [cell.replace(",", ".") if "." not in cell else cell for cell in cells]
        found = floats([cell or "nan" for cell in cells])
    return None if found is None or (np.abs(found) >= WIDE).any() else found


def _fingerprint(text: str) -> bytes:
    number = number_of(text)
    if number is None:
        return _hashed(b"\x02", _moment(text.strip().casefold()))
    if np.isnan(number):
        return bytes(16)
    if abs(number) >= WIDE:
        return _hashed(b"\x03", _digits(text.strip(), number))
    return b"\x01" + bytes(7) + np.array(number + 0.0, "<f8").tobytes()


def _hashed(kind: bytes, text: str) -> bytes:
    return kind + hashlib.blake2b(text.encode(), digest_size=15).digest()


def _digits(text: str, number: float) -> str:
    if plain := re.fullmatch(r"([+-]?)0*(\d+)(?:[.,]0*)?", text, re.ASCII):
        return ("-" if plain[1] == "-" else "") + plain[2]
    return str(int(number)) if np.isfinite(number) else repr(number)


_MOMENT = re.compile(
    r"(?P<day>\d{4}-\d\d-\d\d)?(?:(?<=\d)[t ](?=\d))?"
    r"(?P<time>\d\d:\d\d)?(?:(?<=:\d\d):(?P<second>\d\d)(?:[.,](?P<part>\d+))?)?"
    r" ?(?P<zone>z|utc|[+-]\d\d:?\d\d)?",
    re.ASCII,
)


def _moment(text: str) -> str:
    """A date or a time in one form; anything else as it is."""
    found = _MOMENT.fullmatch(text)
    if not found or not (found["day"] or found["time"]):
        return text
    second, part = found["second"] or "00", (found["part"] or "").rstrip("0")
    time = f"{found['time'] or '00:00'}:{second}" + (f".{part}" if part else "")
    zone = (found["zone"] or "").replace(":", "")
    zone = "z" if zone in ("utc", "+0000", "-0000") else zone
    if found["day"] is None:
        return time + zone
    return found["day"] + ("" if time == "00:00:00" else f" {time}") + zone
