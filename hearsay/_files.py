"""Files that are whole or not there, in folders that have one writer; the names of private ones.

A file that holds what was computed from records, and not from messages alone, is covered by no
certificate. Its name begins with `private-`, so that nobody publishes it for a model.

Two runs in one folder would mix their files, so whoever writes into one holds it until the end.

The lock is an advisory one on a file `.lock` in the folder. It is the system's: it dies with its
process, however that ends, and a file that is left behind locks nobody out. Within one thread a
folder may be held several times (a command holds it, and the simulation that it starts). Where the
system or the file system has no such locks, nothing is held.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # not a Unix
    fcntl = None  # type: ignore[assignment]

NAME = ".lock"
PRIVATE = "private-"
_WITHOUT = (errno.ENOSYS, errno.ENOTSUP, errno.EINVAL, errno.ENOLCK)
# Folder -> (the process and thread that hold it, how many times).
_mine: dict[str, tuple[tuple[int, int], int]] = {}
_guard = threading.Lock()


def cache_folder() -> Path:
    """Where what can be made again is kept: HEARSAY_CACHE, or hearsay in the XDG cache folder."""
    own = os.environ.get("HEARSAY_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(own) if own else Path(base) / "hearsay"


class Notice(UserWarning):
    """What the user should know, and nothing is wrong: the command line prints it as a line."""


@functools.cache
def warn_once(text: str) -> None:
    """A Notice, the first time that it is given."""
    warnings.warn(text, Notice, stacklevel=3)


_ANEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC


def private(name: str) -> str:
    """The name of a file that holds private values, which no certificate covers."""
    return PRIVATE + name


def renamed(folder: Path, *names: str) -> None:
    """Files of earlier versions, whose names did not say that they are private, get the names of
    today.
    """
    for name in names:
        old, new = folder / name, folder / private(name)
        if old.exists() and not new.exists():
            os.replace(old, new)


def write_atomically(path: Path, content: bytes, previous: Path | None = None) -> None:
    """Write beside the target, flush to disk, then rename: a crash or a full disk leaves the old
    file or the new one, never half of one.

    previous: where the old file, if there is one, is moved first.
    """
    beside = path.with_name(path.name + ".partial")
    try:
        # What is private is its owner's alone, whatever the folder allows.
        mode = 0o600 if PRIVATE in path.name else 0o666
        with os.fdopen(os.open(beside, _ANEW, mode), "wb") as handle:
            handle.write(content)
            handle.flush()
            os.fsync(handle.fileno())
        if previous is not None and path.exists():
            os.replace(path, previous)
        os.replace(beside, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            beside.unlink()
        if isinstance(error, OSError):  # the system does not say which file has no room
            raise OSError(
                error.errno, f"cannot write it: {error.strerror or error}", str(path)
            ) from error
        raise


class InUse(ValueError):
    """Another run writes into the folder."""


@contextlib.contextmanager
def held(folder: str | os.PathLike | None) -> Iterator[None]:
    """Make the folder and hold it; InUse if somebody else does.

    What was made and is still empty afterwards is removed again. None: nothing to hold.
    """
    if folder is None:
        yield
        return
    path = Path(folder)
    # A fork is somebody else.
    key, me = os.path.realpath(path), (os.getpid(), threading.get_ident())
    with _guard:
        owner, times = _mine.get(key, (me, 0))
        if owner != me:
            raise InUse(_message(path, "another thread"))
        made = _make(path)
        lock = None if times else _take(path)
        _mine[key] = (me, times + 1)
    try:
        yield
    finally:
        with _guard:
            _mine[key] = (me, times)
            if times == 0:
                del _mine[key]
                _release(path, lock, made)


def _make(path: Path) -> list[Path]:
    """Make the folder; returns what had to be made, the innermost first."""
    made = [p for p in (path, *path.parents) if not p.exists()]
    path.mkdir(parents=True, exist_ok=True)
    return made


def _take(path: Path) -> int | None:
    if fcntl is None:
        return None
    while True:
        # Whoever held it before has just tidied up: try again.
        with contextlib.suppress(FileNotFoundError):
            handle = os.open(path / NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(handle), os.stat(path / NAME)):
                    # A full disk: the name of the process is a courtesy.
                    with contextlib.suppress(OSError):
                        os.truncate(handle, 0)
                        os.pwrite(handle, str(os.getpid()).encode(), 0)
                    return handle
            except BlockingIOError:
                holder = os.pread(handle, 20, 0).decode(errors="replace")
                os.close(handle)
                raise InUse(
                    _message(path, f"process {holder}" if holder.isdigit() else "another process")
                ) from None
            except OSError as error:
                if error.errno in _WITHOUT:
                    return handle
                os.close(handle)
                raise
            os.close(handle)
        path.mkdir(parents=True, exist_ok=True)


def _release(path: Path, lock: int | None, made: list[Path]) -> None:
    if lock is not None:
        with contextlib.suppress(OSError):
            # While it is still locked: nobody else can have taken this very file.
            os.unlink(path / NAME)
        os.close(lock)
    with contextlib.suppress(OSError):  # not empty
        for folder in made:
            folder.rmdir()


def _message(path: Path, holder: str) -> str:
    return (
        f"the folder must be free, got {path}, into which {holder} is writing: wait for its end, or"
        " choose another folder"
    )
