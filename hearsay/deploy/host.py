"""What an agent is as a process: how it ends when it is asked to, what it keeps in memory, what it leaves behind."""

from __future__ import annotations

import ctypes
import io
import os
import resource
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np

from hearsay.checkpoint import write_atomically
from hearsay.deploy.plan import Plan


class Stopped(Exception):
    """The run ends here for a reason that the operator should read; the ledger has everything."""


class Refused(Stopped):
    """The run cannot go on like this: trying again would change nothing."""


class stopping:
    """A polite kill or Ctrl-C ends the agent between two rounds; a second one at once."""

    def __init__(self, event: threading.Event) -> None:
        self._event, self._outer = event, dict[signal.Signals, Any]()

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            self._outer = {s: signal.signal(s, self._note) for s in (signal.SIGINT, signal.SIGTERM)}

    def __exit__(self, *_: object) -> None:
        for number, handler in self._outer.items():
            signal.signal(number, handler)

    def _note(self, *_: object) -> None:
        if self._event.is_set():
            raise KeyboardInterrupt
        self._event.set()


def settle() -> None:
    """No core dumps, which would hold the records, and memory that is kept from round to round.

    glibc gives large blocks back to the system and takes them anew in every round, page by page: for messages of megabytes that costs more than sending them.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    trim, mmap = -1, -3
    try:
        library = ctypes.CDLL("libc.so.6")
        library.mallopt(mmap, 32 * 2**20)
        library.mallopt(trim, 2**30)
    except (OSError, AttributeError):
        return  # another system has other ways


def keep(folder: Path, name: str, model: np.ndarray, plan: Plan) -> Path:
    """The agent's model and certificate, as files that only their owner may read: the model has not been noised."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = folder / f"{name}.model.npy"
    buffer = io.BytesIO()
    np.save(buffer, model)
    outer = os.umask(0o077)
    try:
        write_atomically(path, buffer.getvalue())
    finally:
        os.umask(outer)
    write_atomically(
        folder / f"{name}.certificate.json", plan.certificate.of(plan.certificate.names.index(name)).to_json().encode()
    )
    return path
