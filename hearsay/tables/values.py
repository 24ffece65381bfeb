"""Columns of frames and lists as cells: the same cell whatever else the column holds.

Numbers are an array of float64 where all of them are held by it exactly. A whole number of 2^53 or
more is not (SNOMED has such ids): one of them makes texts of its column, with all its digits, and
the others read the same as texts. Numbers of float32 are those that their shortest decimals say, as
a text file has them: 27.1 and not 27.100000381.

What a library says of a cell that it cannot convert quotes it: here it is only said where that was.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from hearsay import _validate as require
from hearsay.tables.cells import WIDE, Cells, text_of


@contextmanager
def reading(where: str) -> Iterator[None]:
    """Errors of a library that say where, and nothing of what it says.

    Args:
      where: the table, and the column where that is known.
    """
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:
        raise ValueError(
            f"{where} must be of values that can be read, and has one that cannot"
            f" ({type(error).__name__}; errors show no values)"
        ) from None


def listed(values: Any, where: str) -> Cells:
    """A column of a dict: a list or an array.

    Args:
      values: the column.
      where: what errors call it.
    """
    if isinstance(values, (list, tuple)):
        with reading(where):
            return numbers_or_texts(values)
    with reading(where):
        array = np.asarray(values)
    if array.ndim != 1:
        rule = "a list of values (tables of several agents are a list, too: [table, table])"
        require.fail(where, rule, f"shape {array.shape}")
    with reading(where):
        return _array(array)


def has_wide(series: Any) -> bool:
    """Whether a frame's column of whole numbers has one of 2^53 or more."""
    ends = [end for end in (series.min(), series.max()) if end is not None]
    return any(text_of(end) != "" and abs(int(end)) >= WIDE for end in ends)


def _array(array: np.ndarray) -> Cells:
    if array.dtype.kind == "f":
        return decimals(array)
    if array.dtype.kind in "biu":
        return array
    # Lists of nanoseconds would be lists of whole numbers.
    values = list(array) if array.dtype.kind in "mM" else array.tolist()
    return numbers_or_texts(values)


def decimals(array: np.ndarray) -> np.ndarray:
    """Floats as float64: the numbers that their shortest decimals say."""
    if array.dtype.itemsize >= 8:
        return np.asarray(array, np.float64)
    values, inverse = np.unique(array, return_inverse=True)
    return values.astype(str).astype(np.float64)[inverse.reshape(-1)]


def numbers_or_texts(values: Sequence[Any]) -> Cells:
    """A list of Python's values."""
    kinds = set(map(type, values))
    if kinds == {bool}:
        return np.array(values, bool)
    if kinds <= {int, float} and not any(type(one) is int and abs(one) >= WIDE for one in values):
        return np.array(values, np.float64)
    return list(map(text_of, values))
