"""A small file for secrets that must be forgotten: every writing takes the place of the one before.

SQLite keeps what was deleted: in its log until that is written over, which takes hundreds of
messages, and in the file system's free blocks when the log is cut. So the secrets of pairs
(secrets.py), whose worth is that those of past rounds are gone, lie beside the ledger in a file
that never moves and never shrinks:

    two slots of equal size, written in turns:
        kind, sequence number, length, checksum, content, zeros up to the end of the slot

A writing goes into the free slot and is synced; then the other slot is written over with zeros.
A crash at any moment leaves one of the two whole: the new content, or the one before.

What this cannot do: file systems that never write in place (btrfs, ZFS, snapshots), disks that
remap what is written (any SSD), copies that somebody made, and the memory of the running process,
of which Python keeps copies, may all hold old contents. The zeros reach the disk with the next
writing, or when the system writes back what it holds (seconds).
"""

from __future__ import annotations

import os
import struct
from pathlib import Path

from hearsay.deploy.checksums import SIZE, checksum
from hearsay.deploy.mark import sync
from hearsay.deploy.rows import TREAT, LedgerError, trouble

_KIND = b"hearsays"
_HEAD = struct.Struct(f"<8sqq{SIZE}s")
_PAGE = 4096


class Erasable:
    """The file at that path, open. `content` is what was written last; empty where nothing was.

    Args:
      path: of the file, which is made where there is none.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.content, self._sequence = path, b"", 0
        try:
            fresh = not path.exists()
            self._handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                found = os.pread(self._handle, os.fstat(self._handle).st_size + 1, 0)
                self._slot = len(found) // 2
                self._read(found)
                if fresh:
                    sync(path.parent)
            except BaseException:
                self.close()
                raise
        except OSError as error:
            raise trouble(path, error) from error

    def clear(self, capacity: int) -> None:
        """Forget everything, and make room for contents of so many bytes."""
        size = max(2 * self._slot, 2 * -(-(_HEAD.size + capacity) // _PAGE) * _PAGE)
        self._slot, self._sequence, self.content = size // 2, 0, b""
        try:
            for slot in (0, 1):
                self._fill(slot, b"")
        except OSError as error:
            raise trouble(self.path, error, "there is no room for keys") from error
        self.settle()

    def write(self, content: bytes) -> None:
        """On disk when this returns, and what was there before is overwritten."""
        if _HEAD.size + len(content) > self._slot:
            raise ValueError(f"{self.path} has room for {self._slot - _HEAD.size} bytes only")
        try:
            sequence = self._sequence + 1
            self._fill(sequence % 2, _packed(sequence, content))
            os.fdatasync(self._handle)
            self._fill((sequence + 1) % 2, b"")
        except OSError as error:
            raise trouble(self.path, error, "the keys of the next round are not on disk") from error
        self._sequence, self.content = sequence, content

    def settle(self) -> None:
        """Until the disk has the zeros, too."""
        try:
            os.fdatasync(self._handle)
        except OSError as error:
            raise trouble(self.path, error, "old keys may not be erased") from error

    def close(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def _read(self, found: bytes) -> None:
        if not found.strip(b"\0"):
            return
        half = len(found) // 2
        slots = [_unpacked(found[:half], 0), _unpacked(found[half:], 1)]
        whole = sorted(slot for slot in slots if slot is not None)
        if not whole:
            raise LedgerError(
                f"{self.path} is damaged, and holds the keys of the noise that this agent shares"
                f" with others. {TREAT}"
            )
        self._sequence, self.content = whole[-1]
        other = (self._sequence + 1) % 2
        if found[other * half :][:half].strip(b"\0"):
            # A crash before all zeros were there, or in the middle of a writing.
            self._fill(other, b"")

    def _fill(self, slot: int, content: bytes) -> None:
        whole = content.ljust(self._slot, b"\0")
        if os.pwrite(self._handle, whole, slot * self._slot) < len(whole):
            raise OSError("the disk is full")


def _packed(sequence: int, content: bytes) -> bytes:
    # With its number: a slot whose head and content are of two writings is not whole.
    check = checksum(sequence.to_bytes(8, "little"), content)
    return _HEAD.pack(_KIND, sequence, len(content), check) + content


def _unpacked(slot: bytes, number: int) -> tuple[int, bytes] | None:
    if len(slot) < _HEAD.size:
        return None
    kind, sequence, length, check = _HEAD.unpack(slot[: _HEAD.size])
    content = slot[_HEAD.size : _HEAD.size + max(0, length)]
    whole = kind == _KIND and sequence % 2 == number and len(content) == length
    same = whole and checksum(sequence.to_bytes(8, "little"), content) == check
    return (sequence, content) if same else None
