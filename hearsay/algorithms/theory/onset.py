"""From which step on does a condition hold?"""

from __future__ import annotations

import math
from collections.abc import Callable

from hearsay import _validate as require


@require.plain_arguments
def first_step(holds: Callable[[float], bool], start: float) -> float:
    """The first step, from `start` on, at which a condition holds that stays true once it is;
    infinite where no float reaches it.
    """
    low, high = math.ceil(start) - 1.0, float(math.ceil(start))
    while not holds(high):
        low, high = high, 2 * high + 1
        if high > 1e300:
            return math.inf
    while high - low > max(1.0, 1e-9 * high):
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
