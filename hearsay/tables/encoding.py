"""From the rows of a table to records, by a public schema: every row for itself.

A number is clipped to its range and goes from there to [-1, 1], evenly or by its logarithm; a
category sets one of its entries to 1, the last entry is 1. No mean, deviation or largest value of
the rows enters, so that a record depends on its own row and on nothing else, and its length is
bounded whatever is in the file:

    classification    the record is divided by its own length
    regression        by the schema's factor, the length of the longest record there can be

Both leave room for the rounding of a norm and a product, as datasets.shorten does: the exact length
of a record never exceeds 1.

What was clipped, unknown or missing is counted for the table's owner (counting.py). These counts
are private: they go into no public file and no certificate.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hearsay import _validate as require
from hearsay.tables.cells import (
    GAP,
    UNKNOWN,
    CellError,
    Cells,
    Texts,
    ambiguous,
    level_codes,
)
from hearsay.tables.columns import FLAG, MIDDLE, OTHER, REFUSE, Category, Column, Number
from hearsay.tables.counting import Count, Counted
from hearsay.tables.crowding import Crowd
from hearsay.tables.reading import Block, Table

if TYPE_CHECKING:
    from hearsay.tables.schema import Schema


class Encoded(NamedTuple):
    """The records of a table.

    Args:
      features: (rows, width).
      labels: (rows,): the number of the class, or the target from its range to [-1, 1]; None where
        the target was not read.
      counted: for the table's owner only.
    """

    features: np.ndarray
    labels: np.ndarray | None
    counted: Counted


def encode(schema: Schema, table: Table, *, target: bool = True) -> Encoded:
    """The table's rows as records.

    Args:
      schema: what is public of the columns.
      table: as `reading.read_table` gives it.
      target: read the labels, too.
    """
    wanted = [*schema.inputs, *([schema.target] if target else [])]
    _require_columns(table, wanted)
    columns = {name: _Encoder(name, schema.columns[name]) for name in wanted}
    features, labels, done = [np.zeros((0, schema.width))], [np.zeros(0)], 0
    for block in table.blocks(wanted):
        features.append(_block(schema, table, columns, block))
        if target:
            column = columns[schema.target]
            labels.append(_checked(table, block, schema.target, column.label))
        done += block.rows
    if not done:
        raise ValueError(f"{table.name} must have rows below its header, got none")
    _require_decimals(table, columns)
    counts = {name: column.counted() for name, column in columns.items()}
    counted = Counted(table.name, done, counts, table.notes, schema.columns)
    found = np.concatenate(features) if len(features) > 2 else features[-1]
    return Encoded(found, np.concatenate(labels) if target else None, counted)


@require.plain_arguments
def room(width: int) -> float:
    """More than the relative error of a computed norm of that many terms, and of a product."""
    return (width + 8) * float(np.finfo(np.float64).eps)


def _block(
    schema: Schema, table: Table, columns: Mapping[str, _Encoder], block: Block
) -> np.ndarray:
    found, at = np.zeros((block.rows, schema.width)), 0
    for name, column in schema.inputs.items():
        width = len(column.entries(name))
        part = found[:, at : at + width]
        _checked(table, block, name, lambda cells, c=columns[name], p=part: c.fill(cells, p))
        at += width
    found[:, -1] = 1.0
    if schema.factor is not None:
        found /= schema.factor
    else:
        # The last entry is 1: no length is below it.
        lengths = np.sqrt(np.sum(found * found, axis=1, keepdims=True))
        found *= (1 - room(schema.width)) / lengths
    return found


def _checked(table: Table, block: Block, name: str, read: Any) -> Any:
    """With errors that name the file, the row and the column, and no value."""
    try:
        return read(block.cells[name])
    except CellError as error:
        where = f"{table.name}, {table.place(block.first + error.row)}, column {name!r}"
        raise ValueError(f"{where} must be {error.rule} (errors show no values)") from None


def _require_columns(table: Table, wanted: Iterable[str]) -> None:
    known = set(table.columns)
    missing = [name for name in wanted if name not in known]
    if not missing:
        return
    text = f"{table.name} must have the schema's columns, and has no "
    text += ", ".join(map(repr, missing[:5])) + (" and others" if len(missing) > 5 else "")
    # Nothing else of its first line is shown: without a header that is somebody's row.
    near = {name.casefold(): name for name in known}
    alike = [near[name.casefold()] for name in missing if name.casefold() in near]
    if alike:
        text += f" (names must be equal letter by letter; it has {alike[0]!r})"
    elif len(missing) == len(list(wanted)):
        text += " (is its first line a header?)"
    raise ValueError(text)


def _require_decimals(table: Table, columns: Mapping[str, _Encoder]) -> None:
    texts = {name: one.texts for name, one in columns.items() if one.texts is not None}
    if (found := ambiguous(texts, table.separator)) is None:
        return
    name, sign, row = found
    word = "comma" if sign == "," else "point"
    raise ValueError(
        f"{table.name}, {table.place(row)}, column {name!r} must have numbers without thousands"
        f" separators: every {word} in this column stands before exactly three digits, and may be"
        " one"
    )


class _Encoder:
    """One column, block after block, and what it has counted."""

    def __init__(self, name: str, column: Column) -> None:
        self.name, self.column, self.count = name, column, Count()
        self.texts = Texts() if isinstance(column, Number) else None
        self.crowd = Crowd()

    def counted(self) -> Count:
        """Of all blocks."""
        return replace(self.count, crowded=self.crowd.found)

    def fill(self, cells: Cells, out: np.ndarray) -> None:
        """Into the entries of an input."""
        if isinstance(self.column, Number):
            values, gaps = self._scaled(cells)
            out[:, 0] = values
            if self.column.gap == FLAG:
                out[:, 1] = gaps
            return
        assert isinstance(self.column, Category)
        out[np.arange(len(cells)), self._codes(cells)] = 1.0

    def label(self, cells: Cells) -> np.ndarray:
        """As a label."""
        if isinstance(self.column, Number):
            return self._scaled(cells, target=True)[0]
        return self._codes(cells, target=True).astype(np.float64)

    def _scaled(self, cells: Cells, target: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """From the range to [-1, 1], and where there was a gap."""
        column = self.column
        assert isinstance(column, Number) and self.texts is not None
        values = (
            cells.astype(np.float64) if isinstance(cells, np.ndarray) else self.texts.numbers(cells)
        )
        gaps = np.isnan(values)
        self._require_filled(gaps, "a number" if target else '"middle", "flag" or a number')
        outside = (values < column.low) | (values > column.high)
        self.count.clipped += int(outside.sum())
        scaled = column.to_unit(values)
        self.crowd.add(scaled[~gaps])
        if gaps.any():
            middle = column.gap in (MIDDLE, FLAG)
            scaled[gaps] = 0.0 if middle else column.to_unit(np.array(float(column.gap)))
        return scaled, gaps

    def _codes(self, cells: Cells, target: bool = False) -> np.ndarray:
        column = self.column
        assert isinstance(column, Category)
        codes = level_codes(cells, column.levels)
        self._require_filled(codes == GAP, "a level" if target else '"other" or a level')
        unknown = codes == UNKNOWN
        if target and unknown.any():
            few = ", ".join(column.levels[:5]) + (", ..." if len(column.levels) > 5 else "")
            rule = f"one of {few}, the target's levels in the schema"
            raise CellError(int(np.argmax(unknown)), rule)
        self.count.unknown += int(unknown.sum())
        last = column.levels.index(OTHER) if OTHER in column.levels else len(column.levels)
        codes[unknown] = last
        if column.gap != REFUSE:
            codes[codes == GAP] = last if column.gap == OTHER else column.levels.index(column.gap)
        return codes

    def _require_filled(self, gaps: np.ndarray, how: str) -> None:
        assert isinstance(self.column, (Number, Category))
        if self.column.gap == REFUSE and gaps.any():
            rule = f"filled in, or have a meaning of gaps in the schema (gap = {how})"
            raise CellError(int(np.argmax(gaps)), rule)
        self.count.gaps += int(gaps.sum())
