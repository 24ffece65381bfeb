"""An orderly end: the first Ctrl-C (or SIGTERM) asks for one, the second ends at once."""

from __future__ import annotations

import signal
import threading
from typing import Any


class stopping:
    """While this is entered, the first SIGINT or SIGTERM sets the event, so that whoever watches it
    can end between two steps with nothing lost half-way; a second one raises KeyboardInterrupt at
    once. Outside the main thread, where signals do not arrive, it does nothing.
    """

    def __init__(self, event: threading.Event | None = None) -> None:
        self._event, self._outer = event or threading.Event(), dict[signal.Signals, Any]()

    @property
    def requested(self) -> bool:
        return self._event.is_set()

    def __enter__(self) -> stopping:
        if threading.current_thread() is threading.main_thread():
            self._outer = {s: signal.signal(s, self._note) for s in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._outer.items():
            signal.signal(number, handler)

    def _note(self, *_: object) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self._event.set()
