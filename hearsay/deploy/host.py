"""What an agent is as a process: why it ends, what it keeps in memory, what it leaves behind."""

from __future__ import annotations

import ctypes
import io
import os
import resource
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hearsay._files import private, write_atomically

if TYPE_CHECKING:
    from hearsay.deploy.deployment import Deployment

_TRIM, _MMAP, _ARENAS = -1, -3, -8  # of glibc's mallopt


class Stopped(Exception):
    """The run ends here for a reason that the operator should read; the ledger has everything."""


class Refused(Stopped):
    """The run cannot go on like this: trying again would change nothing."""


def share_heaps() -> None:
    """Few heaps for all threads. To be called before there are any.

    glibc gives up to eight heaps to every core, and keeps in each what one thread once needed: a
    fifth of what an agent takes on two cores, and more on a host with many.
    """
    _tune((_ARENAS, 2))


def _tune(*settings: tuple[int, int]) -> None:
    """glibc's heap; another system has other ways."""
    with suppress(OSError, AttributeError):
        library = ctypes.CDLL("libc.so.6")
        for what, value in settings:
            library.mallopt(what, value)


def harden_process() -> None:
    """No core dumps, which would hold records and keys; memory is kept from round to round.

    The limit is for files: a program that the system pipes dumps to is free to ignore it, so
    that no page is to be in them either.

    glibc gives large blocks back to the system and takes them anew in every round, page by page:
    for messages of megabytes that costs more than sending them.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(OSError):
        Path("/proc/self/coredump_filter").write_text("0")
    _tune((_MMAP, 32 * 2**20), (_TRIM, 2**30))


def save_model(folder: Path, name: str, model: np.ndarray, plan: Deployment) -> Path:
    """The agent's model and certificate, as files that only their owner may read:
    no noise has been added to the model.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = folder / f"{name}.{private('model.npy')}"
    buffer = io.BytesIO()
    np.save(buffer, model)
    outer = os.umask(0o077)
    try:
        write_atomically(path, buffer.getvalue())
    finally:
        os.umask(outer)
    write_atomically(
        folder / f"{name}.certificate.json",
        plan.certificate.of(plan.certificate.names.index(name)).to_json().encode(),
    )
    return path
