"""What is public of one column of a table.

    number      a public range; what lies outside is clipped to it; counted evenly, or by powers
                (scale = "log": what a lab value or an income doubles is one and the same step)
    category    public levels; any other counts as "other"
    ignored     not read

A range or a list of levels that was read off private rows is itself private: an outlier's value is
somebody's. They come from what a column means: an age lies between 0 and 120 whoever has come.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from hearsay import _validate as require

REFUSE, MIDDLE, FLAG, OTHER = "refuse", "middle", "flag", "other"
LINEAR, LOG = "linear", "log"
MANY_LEVELS = 200  # above so many, levels look like names of people


@require.known_arguments
@dataclass(frozen=True)
class Number:
    """A number with its public range.

    Args:
      low: the smallest value; smaller ones are taken for it.
      high: the largest one, likewise.
      gap: what an empty cell means: "refuse" (an error), "middle" (of the range, on its scale),
        "flag" (the middle, and a column of its own that says so), or a value within the range.
      scale: "linear", or "log" for what spans several powers of ten; the range must then begin
        above 0, and zeros are taken for its lower end as everything below it is.

    Example:
      >>> import hearsay as hs
      >>> import numpy as np
      >>> values = np.array([1.0, 10.0, 100.0])
      >>> hs.Number(1, 100).to_unit(values).round(2).tolist()
      [-1.0, -0.82, 1.0]
      >>> hs.Number(1, 100, scale="log").to_unit(values).round(2).tolist()
      [-1.0, 0.0, 1.0]
    """

    low: float
    high: float
    gap: str | float = REFUSE
    scale: str = LINEAR

    def __post_init__(self) -> None:
        require.settle(self, low=require.number, high=require.number)
        if not self.low < self.high or not math.isfinite(self.high - self.low):
            require.fail("range", "two numbers, the smaller one first", [self.low, self.high])
        if require.one_of("scale", self.scale, (LINEAR, LOG)) == LOG:
            self._require_powers()
        if isinstance(self.gap, str):
            require.one_of("gap", self.gap, (REFUSE, MIDDLE, FLAG))
            return
        require.settle(self, gap=require.number)
        if not self.low <= float(self.gap) <= self.high:
            require.fail("gap", f"within the range {self.low:g} to {self.high:g}", self.gap)

    def _require_powers(self) -> None:
        if self.low <= 0:
            require.fail(
                "range",
                'one that begins above 0 with scale = "log", at what counts as next to nothing'
                " (a detection limit, a coin): zeros are then taken for it",
                [self.low, self.high],
            )
        if not math.log(self.low) < math.log(self.high):
            require.fail("range", 'wider with scale = "log"', [self.low, self.high])

    def to_unit(self, values: np.ndarray) -> np.ndarray:
        """From the range, to which values are clipped, to [-1, 1]; gaps (NaN) stay gaps.

        Args:
          values: in the column's own unit.
        """
        low, high, kept = self.low, self.high, np.clip(values, self.low, self.high)
        if self.scale == LOG:
            low, high, kept = *np.log([low, high]), np.log(kept)
        # In this order nothing overflows. Logarithms of a scalar and of an array may be rounded
        # otherwise: what a certificate counts on is clipped once more.
        return np.clip(2.0 * ((kept - low) / (high - low)) - 1.0, -1.0, 1.0)

    def from_unit(self, values: np.ndarray) -> np.ndarray:
        """Back from [-1, 1], or beyond it, to the column's own unit."""
        if self.scale == LOG:
            low, high = np.log([self.low, self.high])
            return np.exp(low + (values + 1) / 2 * (high - low))
        return self.low + (values + 1) / 2 * (self.high - self.low)

    def entries(self, name: str) -> tuple[str, ...]:
        """The names of what it becomes in a record."""
        return (name, f"{name} is missing") if self.gap == FLAG else (name,)


@require.known_arguments
@dataclass(frozen=True)
class Category:
    """One of several public levels.

    Args:
      levels: as they are written in the table; any other value counts as "other".
      gap: what an empty cell means: "refuse" (an error), "other", or one of the levels.
    """

    levels: tuple[str, ...]
    gap: str = REFUSE

    def __post_init__(self) -> None:
        if isinstance(self.levels, str) or not require.is_sequence(self.levels):
            require.fail("levels", "a list of texts", self.levels)
        levels = tuple(level.strip() if isinstance(level, str) else level for level in self.levels)
        for level in levels:
            if not isinstance(level, str) or not level:
                require.fail("levels", "a list of texts, none of them empty", level)
        if len(set(levels)) < len(levels) or len(levels) < 1:
            require.fail("levels", "one or more, all different", list(levels))
        object.__setattr__(self, "levels", levels)
        require.one_of("gap", self.gap, (REFUSE, OTHER, *levels))

    def entries(self, name: str) -> tuple[str, ...]:
        """The names of what it becomes in a record: one per level, and one for all others."""
        others = () if OTHER in self.levels else (OTHER,)
        return tuple(f"{name}={level}" for level in (*self.levels, *others))


@require.known_arguments
@dataclass(frozen=True)
class Ignored:
    """A column that is not read: a name, an identifier."""

    def entries(self, name: str) -> tuple[str, ...]:
        return ()


Column = Number | Category | Ignored
KINDS: dict[str, type] = {"number": Number, "category": Category, "ignored": Ignored}


def column_of(where: str, table: Any) -> Column:
    """A column from its table in a schema.toml."""
    if not isinstance(table, dict):
        require.fail(where, "a table of keys", table)
    keys = dict(table)
    kind = require.one_of(f"kind in {where}", keys.pop("kind", None) or "", KINDS)
    allowed = {
        "number": ("range", "scale", "gap", "unit"),
        "category": ("levels", "gap"),
        "ignored": (),
    }
    for key in keys:
        require.one_of(f"key in {where}", key, allowed[kind])
    keys.pop("unit", None)  # for people
    if kind == "number":
        ends = keys.pop("range", None)
        if not require.is_sequence(ends) or len(ends) != 2:
            rule = "filled in" if ends == [] else "two numbers"
            require.fail(
                f"range in {where}",
                f"{rule}: [smallest, largest], from what the column means and not from private"
                " rows",
                ends,
            )
        keys |= {"low": ends[0], "high": ends[1]}
    elif kind == "category" and not keys.get("levels"):
        rule = "filled in: a list of texts, from what the column means and not from private rows"
        require.fail(f"levels in {where}", rule, keys.get("levels"))
    try:
        return KINDS[kind](**keys)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def table_of(column: Column) -> dict[str, Any]:
    """The column as its table in a schema.toml."""
    if isinstance(column, Ignored):
        return {"kind": "ignored"}
    gap = {} if column.gap == REFUSE else {"gap": column.gap}
    if isinstance(column, Number):
        # What is not there is linear: schemas of before have the same digest.
        scale = {} if column.scale == LINEAR else {"scale": column.scale}
        return {"kind": "number", "range": [column.low, column.high], **scale, **gap}
    return {"kind": "category", "levels": list(column.levels), **gap}
