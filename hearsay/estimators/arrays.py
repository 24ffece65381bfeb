"""Arrays as tables: what is public of their columns, and how scikit-learn's (X, y) is dealt out.

An array has no schema. One is made of public ranges (`ranges`, `target_range`) and classes; or,
where its owner says that they are public, of those that are seen in the records. A certificate
covers what is done with records once the ranges are fixed. It does not cover ranges that were read
off the records, and says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from hearsay import _validate as require
from hearsay.tables.columns import Category, Column, Number
from hearsay.tables.reading import read_table
from hearsay.tables.schema import Schema

READ_OFF = (
    "read off the records (ranges_are_public=True), so that what they say of somebody is not"
    " covered: {}"
)
AGENTS = 5


def ranges_of(ranges: Any, columns: int, public: bool, values: np.ndarray) -> list[Number]:
    """One public range per column.

    Args:
      ranges: one (low, high) for all columns, one for each, or None.
      columns: how many there are.
      public: where none are given, those of `values` may be taken.
      values: (rows, columns) of all agents.
    """
    if ranges is None:
        if not public:
            raise ValueError(
                "ranges must be given for arrays, got None: one (low, high) for all columns or one"
                " for each, from what they mean; or a schema; or ranges_are_public=True, which"
                " reads them off the records and does not count what they say of somebody"
            )
        return [_around(column) for column in values.T]
    found = np.asarray(ranges, dtype=object)
    if found.shape == (2,):
        return [_range("ranges", ranges)] * columns
    if found.shape != (columns, 2):
        rule = (
            f"one (low, high), or one for each of the {columns} columns in their order (a schema"
            " has them by name)"
        )
        require.fail("ranges", rule, f"an array of shape {found.shape}")
    return [_range(f"ranges[{index}]", one) for index, one in enumerate(ranges)]


def _range(name: str, ends: Any) -> Number:
    try:
        low, high = ends
        return Number(low, high)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be two numbers, the smaller one first: {error}") from None


def _around(values: np.ndarray) -> Number:
    """The range that is seen; a column that is the same everywhere lies in the middle of one."""
    low, high = float(values.min()), float(values.max())
    if low == high:
        low, high = low - max(1.0, abs(low)), high + max(1.0, abs(high))
    return Number(low, high)


def target_range_of(target_range: Any, public: bool, values: np.ndarray) -> Number:
    """The public range of a regression's target; arguments as for `ranges_of`."""
    if target_range is not None:
        return _range("target_range", target_range)
    if not public:
        raise ValueError(
            "target_range must be given for arrays, got None: (low, high) of the target, from what"
            " it means; or a schema; or ranges_are_public=True, which reads it off the records"
        )
    return _around(values)


def classes_of(classes: Any, public: bool, seen: np.ndarray) -> np.ndarray:
    """The public classes, sorted as scikit-learn has them."""
    if classes is None:
        if not public:
            raise ValueError(
                "classes must be given for arrays, got None: all that there can be, whichever"
                " these records have; or a schema; or ranges_are_public=True, which takes those"
                " that the records have"
            )
        return seen
    listed = [] if isinstance(classes, str) else list(classes)
    found = np.unique(np.array(listed))
    if len(found) != len(listed) or len(found) < 2:
        require.fail("classes", "a list of two or more, all different", classes)
    return found


def require_known(y: np.ndarray, classes: np.ndarray) -> None:
    """Errors name the row, and show no value."""
    strange = ~np.isin(y, classes)
    if strange.any():
        rule = f"one of the classes {classes.tolist()}"
        require.fail("y", rule, f"another in row {int(np.argmax(strange))} (counted from 0)")


def require_numbers(name: str, values: Any) -> None:
    """Texts are refused here, since scikit-learn's own error would show them."""
    # Sparse ones have no texts, and scikit-learn knows what to say of them.
    if values is None or hasattr(values, "toarray"):
        return
    try:
        found = np.asarray(values)
        if found.dtype.kind not in "OUS":
            return
        rows = found.astype(object)
    except (TypeError, ValueError):
        # Rows of several lengths: no array of numbers, and scikit-learn says so.
        rows = np.array([None])
    for place, value in np.ndenumerate(rows):
        if isinstance(value, (str, bytes)) and not _is_number(value):
            where = ", column ".join(map(str, place))
            rule = "numbers"
            if name == "X":
                rule += " (a table with texts needs schema=, which has levels for them)"
            require.fail(name, rule, f"something else in row {where} (counted from 0)")


@contextmanager
def gaps_named() -> Iterator[None]:
    """What to do about gaps: scikit-learn's own error advises an imputer, which learns from
    everybody's rows what no certificate counts.
    """
    try:
        yield
    except ValueError as error:
        (first, *_) = str(error).splitlines()
        if "contains NaN" not in first:
            raise
        raise ValueError(
            f"X and y must have no gaps as arrays, got: {first} Give tables and a schema, which"
            ' says what a gap means (gap = "middle" or "flag"), or fill them in by a public rule:'
            " an imputer that is fitted on the rows takes private means into the model, and no"
            " certificate counts them (docs/estimators.md)"
        ) from None


def _is_number(text: str | bytes) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def schema_of(names: Sequence[str], columns: Sequence[Column], target: Column) -> Schema:
    """Of arrays with those columns; the target is called y, or otherwise if a column is."""
    called = "y"
    while called in names:
        called += "_"
    return Schema({**dict(zip(names, columns, strict=True)), called: target}, target=called)


def levels(classes: np.ndarray) -> Category:
    """Classes as levels of a category."""
    try:
        return Category([str(one) for one in classes.tolist()])  # type: ignore[arg-type]
    except ValueError as error:
        raise ValueError(f"classes must differ when they are written as text: {error}") from None


def cells_of(table: Any, schema: Schema, target: bool) -> dict[str, np.ndarray]:
    """The columns of one table that its schema reads, as they stand there, to be dealt out.

    Args:
      table: a path, a frame, columns by name, or an array with a column for each input.
      schema: of the table.
      target: with the target.
    """
    names = [*schema.inputs, *([schema.target] if target else [])]
    if isinstance(table, np.ndarray):
        if target or table.ndim != 2 or table.shape[1] != len(names):
            rule = f"an array with {len(schema.inputs)} columns beside y, one for each input"
            require.fail("X", rule, f"shape {table.shape}")
        return dict(zip(names, table.T, strict=True))
    read = read_table(table)
    missing = [name for name in names if name not in read.columns]
    if missing:
        require.fail(f"{read.name}", "a table with the schema's columns", f"no {missing[0]!r}")
    blocks = list(read.blocks(names))
    return {name: np.concatenate([_array(block.cells[name]) for block in blocks]) for name in names}


def _array(cells: Any) -> np.ndarray:
    return cells if isinstance(cells, np.ndarray) else np.array(cells, dtype=object)


def dealt(rows: int, agents: int | None, seed: int) -> Iterator[np.ndarray]:
    """Which rows each agent gets, at random."""
    many = AGENTS if agents is None else require.count("agents", agents)
    if rows < many:
        rule = f"of at least {many} rows, one for each agent (agents=)"
        require.fail("X", rule, f"n_samples={rows}")
    yield from np.array_split(np.random.default_rng(seed).permutation(rows), many)
