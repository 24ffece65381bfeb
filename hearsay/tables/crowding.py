"""Whether the numbers of a column stand in a small part of their range: for the table's owner only.

All numbers of a range go to [-1, 1]. Where nearly all of them lie in a tenth of it (amounts that
span powers of ten, a range for the worst case), a model hardly tells them apart, and says so in
nothing but a bad score. Mostly one and the same number (zeros, a rare flag) is not meant: no range
and no scale changes that.

What is found here is private, as the rows are, and goes where `encoding.Counted` goes.
"""

from __future__ import annotations

import numpy as np

ADVICE = (
    "Nine tenths of a column's numbers in a tenth of its range: for a model they are nearly the"
    " same, and as a target they are hardly learned. Is the range wider than nearly everybody"
    ' needs, or does the column span powers of ten (scale = "log")? Let all who learn together'
    " decide it by what the column means: no epsilon covers a range that is read off these rows"
    " (docs/tables.md)."
)
_PARTS = 20  # of a range: two neighbours are a tenth
_MOST = 0.9
_SAME = 0.5
_FEW = 20  # fewer numbers may be together by chance


class Crowd:
    """How many numbers of a column are in which part of its range, block after block."""

    def __init__(self) -> None:
        self._many = np.zeros(_PARTS, np.int64)
        # The commonest number of the first rows, and how often it is there.
        self._usual, self._often = np.nan, 0

    def add(self, values: np.ndarray) -> None:
        """
        Args:
          values: from -1 to 1, none of them missing.
        """
        part = np.minimum(((values + 1) / 2 * _PARTS).astype(np.int64), _PARTS - 1)
        self._many += np.bincount(part, minlength=_PARTS)
        if np.isnan(self._usual) and len(values):
            found, counts = np.unique(values, return_counts=True)
            self._usual = found[np.argmax(counts)]
        self._often += int(np.count_nonzero(values == self._usual))

    @property
    def found(self) -> bool:
        """Nine tenths are in a tenth of the range, and no half of all is one and the same."""
        total, most = int(self._many.sum()), int((self._many[:-1] + self._many[1:]).max())
        return total >= _FEW and most >= _MOST * total and self._often < _SAME * total
