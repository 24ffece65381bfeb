"""Large things of a ledger in files of their own, beside the database, which would write them twice
and in pages.

A file is synced to disk before the row that names it is; a file that no row names is ignored, and
room for the next message: writing over a file is far faster than making one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from hearsay.deploy.mark import sync

_NAME = re.compile(r"message-[0-9]{1,18}|state-[01]")


class Blobs:
    """The files in one folder, which is made when it is needed."""

    def __init__(self, folder: Path, named: Iterable[str]) -> None:
        self._folder = folder
        found = {file.name for file in folder.glob("message-*")} if folder.is_dir() else set()
        self.spare: list[str] = sorted(found - set(named))

    def put(self, name: str, parts: Sequence[bytes | memoryview]) -> None:
        fresh = not self._folder.is_dir()
        self._folder.mkdir(mode=0o700, exist_ok=True)
        path = self._folder / name
        # A file that is renamed to it is one: its name must reach the disk too.
        fresh_file = not path.exists()
        if name.startswith("message") and self.spare:
            os.replace(self._folder / self.spare.pop(), path)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            size = sum(os.write(handle, part) for part in _pieces(parts))
            if size < sum(map(len, parts)):
                raise OSError(f"only {size} bytes of {path} could be written")
            os.ftruncate(handle, size)
            os.fdatasync(handle)
        finally:
            os.close(handle)
        if fresh_file:
            sync(self._folder)
        if fresh:
            sync(self._folder.parent)

    def get(self, name: str) -> bytes | None:
        """None where there is no such file, as also where a damaged row gives a
        name that none ever had.
        """
        try:
            return (self._folder / name).read_bytes() if _named(name) else None
        except (FileNotFoundError, NotADirectoryError):
            return None

    def size(self, name: str) -> int | None:
        try:
            return (self._folder / name).stat().st_size if _named(name) else None
        except (FileNotFoundError, NotADirectoryError):
            return None

    def drop(self, names: Iterable[str]) -> None:
        for name in names:
            (self._folder / name).unlink(missing_ok=True)


def _named(name: object) -> bool:
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def _pieces(parts: Sequence[bytes | memoryview]) -> Iterator[bytes | memoryview]:
    """A system call writes less than 2 GiB."""
    for part in parts:
        for start in range(0, len(part), 2**30):
            yield part[start : start + 2**30]
