"""How far a fit is, in lines on standard error, at most one a second."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from hearsay.privacy.certificate import show

_EVERY = 1.0  # second


class Lines:
    """What `rehearse` and `simulate` tell of their progress.

    Args:
      shown: nothing is written unless it is True.
      clock: seconds, from anywhere.
    """

    def __init__(self, shown: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self.shown, self.clock = shown, clock
        self.last = -float("inf")

    def rehearsing(self, stage: str, done: int, total: int, *_: object) -> None:
        self._say(f"{stage} on made-up records: {done} of {total}", done >= total)

    def training(self, done: int, total: int, spent: float) -> None:
        told = f"training: {done} of {total} rounds, epsilon {show(spent)} spent"
        self._say(told, done >= total)

    def _say(self, told: str, last: bool) -> None:
        if self.shown and (last or self.clock() >= self.last + _EVERY):
            self.last = self.clock()
            print(told, file=sys.stderr, flush=True)
