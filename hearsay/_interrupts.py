"""An orderly end: the first Ctrl-C (or SIGTERM) asks for one, the second ends at once.

While a command is still being imported, Ctrl-C ends it with exit code 130 and no traceback. Imports
take seconds, and Python runs those of the package before anything that could catch an interrupt. So
this is imported before all others, and acts where the process is a command.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, NoReturn


def _is_command() -> bool:
    """`hearsay ...`, as installed, or `python -m hearsay ...`."""
    said = getattr(sys, "argv", None) or [""]
    if said[0] == "-m":  # Python still looks for the module
        return not {"hearsay", "hearsay.cli"}.isdisjoint(sys.orig_argv)
    return os.path.basename(said[0]) == "hearsay" and said[0] in sys.orig_argv


def _leave(*_: object) -> NoReturn:
    # Nothing has been done yet. An exception would be caught, or printed, by whatever is imported.
    os._exit(130)


def started() -> None:
    """From here on an interrupt is an exception again, and the command catches it."""
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def ended() -> None:
    """Nothing is left to be stopped but the interpreter's own end, which would print a traceback of
    what it was clearing away.
    """
    if _is_command() and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)


if (
    _is_command()
    and threading.current_thread() is threading.main_thread()
    # A shell's background job ignores Ctrl-C, and goes on doing so.
    and signal.getsignal(signal.SIGINT) is signal.default_int_handler
):
    signal.signal(signal.SIGINT, _leave)


class counting:
    """While this is entered, interrupts are counted and nothing is raised: whoever looks at `times`
    ends between two steps, and whatever it says at its end is said, however often it is asked.
    What is ignored stays ignored (SIGHUP under nohup).
    """

    def __init__(self) -> None:
        self.times, self._outer = 0, dict[signal.Signals, Any]()

    def __enter__(self) -> counting:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._outer[number] = signal.signal(number, self._count)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._outer.items():
            signal.signal(number, handler)

    def _count(self, *_: object) -> None:
        self.times += 1


class Request:
    """Like `threading.Event`, and may be set by a signal handler.

    A handler runs in the main thread between any two of its instructions. If that thread is just
    within the `wait` of an Event, it holds the Event's lock, and `set` waits for it for ever. Here
    nothing is held: `put` of a SimpleQueue may interrupt anything, itself too.
    """

    def __init__(self) -> None:
        self._set, self._news = False, SimpleQueue[None]()

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        self._news.put(None)

    def wait(self, seconds: float) -> bool:
        """Until it is set or the time is up: whether it is set. One thread at a time."""
        if not self._set:
            with suppress(Empty):
                self._news.get(timeout=seconds)
        return self._set


class stopping:
    """While this is entered, the first SIGINT or SIGTERM sets the request, so that whoever watches
    it can end between two steps with nothing lost half-way; a second one raises KeyboardInterrupt
    at once. Outside the main thread, where signals do not arrive, it does nothing.
    """

    def __init__(self, request: Request | None = None) -> None:
        self._request, self._outer = request or Request(), dict[signal.Signals, Any]()

    @property
    def requested(self) -> bool:
        return self._request.is_set()

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
        self._request.set()
