"""The slow and obvious encoder: one row after the other, in plain Python."""

from __future__ import annotations

import math

import hearsay as hs

GAPS = ("", "na", "n/a", "nan", "null")


def number(cell: str) -> float | None:
    """None: a gap."""
    cell = cell.strip()
    return None if cell.lower() in GAPS else float(cell.replace(",", "."))


def level(cell: str, levels: tuple[str, ...]) -> str | None:
    """The level that a cell has, "?" for an unknown one, None for a gap."""
    cell = cell.strip()
    for one in levels:
        if cell == one:
            return one
    for one in levels:
        if cell in (f"{one}.0", f"{one}.00") and one.lstrip("+-").isdigit():
            return one
    return None if cell.lower() in GAPS else "?"


def unit(value: float, column: hs.Number) -> float:
    value = min(max(value, column.low), column.high)
    if column.scale == "log":
        return 2.0 * (math.log(value / column.low) / math.log(column.high / column.low)) - 1.0
    return 2.0 * ((value - column.low) / (column.high - column.low)) - 1.0


def entries(name: str, column: hs.Number | hs.Category, cell: str) -> list[float]:
    if isinstance(column, hs.Number):
        found = number(cell)
        if found is None:
            assert column.gap != "refuse"
            middle = column.gap in ("middle", "flag")
            value = 0.0 if middle else unit(float(column.gap), column)
            return [value, 1.0] if column.gap == "flag" else [value]
        return [unit(found, column), 0.0] if column.gap == "flag" else [unit(found, column)]
    names = [entry.removeprefix(f"{name}=") for entry in column.entries(name)]
    found = level(cell, column.levels)
    if found is None:
        assert column.gap != "refuse"
        found = column.gap
    return [1.0 if one == ("other" if found == "?" else found) else 0.0 for one in names]


def record(schema: hs.Schema, row: dict[str, str]) -> list[float]:
    found = [
        value
        for name, column in schema.inputs.items()
        for value in entries(name, column, row[name])
    ]
    found.append(1.0)
    length = math.sqrt(sum(v * v for v in found)) if schema.factor is None else schema.factor
    return [v / length for v in found]


def label(schema: hs.Schema, row: dict[str, str]) -> float:
    column, cell = schema.columns[schema.target], row[schema.target]
    if isinstance(column, hs.Number):
        found = number(cell)
        return unit(float(column.gap) if found is None else found, column)
    found = level(cell, column.levels)
    return float(column.levels.index(column.gap if found is None else found))
