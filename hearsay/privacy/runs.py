"""Long lists of whole numbers as short texts: "0-499 500 502-999" and "0*500 3 1*499"."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from hearsay import _validate as require

# A file may come from anybody, and a few characters may stand for very many numbers: so many take
# seconds and a gigabyte.
_MOST = 2**24
_RANGES = re.compile(r"(?:\d{1,9}(?:-\d{1,9})?(?: \d{1,9}(?:-\d{1,9})?)*)?")
_RUNS = re.compile(r"(?:\d{1,9}(?:\*\d{1,9})?(?: \d{1,9}(?:\*\d{1,9})?)*)?")


def ranges(numbers: np.ndarray) -> str:
    """Numbers, neighbours joined where they rise by one.

    Args:
      numbers: whole, from 0 on.

    Example:
      >>> ranges(np.array([0, 1, 2, 7, 9, 10]))
      '0-2 7 9-10'
    """
    if not len(numbers):
        return ""
    starts = np.flatnonzero(np.append(True, np.diff(numbers) != 1))
    ends = np.append(starts[1:], len(numbers)) - 1
    firsts, lasts = numbers[starts].tolist(), numbers[ends].tolist()
    pairs = zip(firsts, lasts, strict=True)
    return " ".join(str(one) if one == two else f"{one}-{two}" for one, two in pairs)


def read_ranges(name: str, text: Any) -> np.ndarray:
    """The numbers that `ranges` wrote.

    Args:
      name: what errors call it.
      text: as it was written.

    Example:
      >>> read_ranges("agents", "0-2 7").tolist()
      [0, 1, 2, 7]
    """
    if not isinstance(text, str) or not _RANGES.fullmatch(text):
        require.fail(name, 'numbers and ranges such as "0-499 500 502-999"', text)
    parts = [part.partition("-") for part in text.split()]
    first = np.array([int(one) for one, _, _ in parts], np.int64)
    last = np.array([int(two or one) for one, _, two in parts], np.int64)
    if np.any(last < first):
        require.fail(name, "ranges that rise", text)
    many = last - first + 1
    _require_few(name, many)
    begun = np.repeat(np.cumsum(many) - many, many)
    found = np.repeat(first, many) + np.arange(len(begun)) - begun
    _require_as_written(name, text, ranges(found))
    return found


def runs(numbers: np.ndarray) -> str:
    """Numbers, the same one several times in a row written once.

    Args:
      numbers: whole, from 0 on.

    Example:
      >>> runs(np.array([0, 0, 0, 2, 1, 1]))
      '0*3 2 1*2'
    """
    if not len(numbers):
        return ""
    starts = np.flatnonzero(np.append(True, np.diff(numbers) != 0))
    lengths = np.diff(np.append(starts, len(numbers))).tolist()
    pairs = zip(numbers[starts].tolist(), lengths, strict=True)
    return " ".join(str(one) if many == 1 else f"{one}*{many}" for one, many in pairs)


def read_runs(name: str, text: Any) -> np.ndarray:
    """The numbers that `runs` wrote.

    Args:
      name: what errors call it.
      text: as it was written.

    Example:
      >>> read_runs("kind", "0*3 2").tolist()
      [0, 0, 0, 2]
    """
    if not isinstance(text, str) or not _RUNS.fullmatch(text):
        require.fail(name, 'numbers and runs such as "0*500 3 1*499"', text)
    parts = [part.partition("*") for part in text.split()]
    value = np.array([int(one) for one, _, _ in parts], np.int64)
    many = np.array([int(two or 1) for _, _, two in parts], np.int64)
    _require_few(name, many)
    found = np.repeat(value, many)
    _require_as_written(name, text, runs(found))
    return found


def _require_few(name: str, many: np.ndarray) -> None:
    if (total := int(many.sum())) > _MOST:
        require.fail(name, f"at most {_MOST:,} numbers", f"{total:,}")


def _require_as_written(name: str, text: str, usual: str) -> None:
    """The same numbers are always the same text: nothing in it may be there for nothing."""
    if text != usual:
        require.fail(name, f"as short as {require.said(usual)}", text)
