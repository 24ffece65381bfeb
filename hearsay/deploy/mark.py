"""The high-water mark: the last message of a ledger that may have left, in a small file beside it.

SQLite drops a damaged end of its write-ahead log without a warning. A ledger that has lost its last
message this way looks whole, and the agent would add noise to that round again. So after each
commit, and before the message may leave, round and seal of its row are written here and synced. A
ledger that is behind its mark, or has other rows, is refused.

    two slots, a page apart, written in turns:
        kind, sequence number, round, instance of the ledger, seal of the row, checksum

- A crash between commit and mark: the ledger is one message ahead. That message has not left, and
  is sent as it is.
- A crash in the middle of writing the mark: one slot is torn, the other holds the message before.
  The ledger was synced first, so it must be one message ahead of the whole slot; if it is not, the
  slot was damaged and the ledger may have lost a message: refused.
- The mark is made, with round -1, before the ledger: a ledger without a mark, and a mark of a
  message without a ledger, are refused. Without both, nothing on this host tells that they ever
  were; neighbours and the budget file do (greeting.py, lifetime.py).
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import NamedTuple

from hearsay._files import write_atomically
from hearsay.deploy.checksums import SIZE, checksum
from hearsay.deploy.rows import TREAT, LedgerError, trouble

_SLOT = 4096  # bytes: what a disk writes at once
_KIND = b"hearsay1"
_FIELDS = struct.Struct(f"<8sqq16s{SIZE}s")


class Standing(NamedTuple):
    """What a slot says."""

    sequence: int
    round: int
    instance: str
    seal: bytes


class Mark:
    """`standing` is that of the newest whole slot; `torn` where the other one is not whole."""

    def __init__(self, ledger: Path) -> None:
        path = place(ledger)
        self._handle = os.open(path, os.O_RDWR)
        self.standing, self.torn = _read(path, os.pread(self._handle, 2 * _SLOT + 1, 0))

    def write(self, round: int, seal: bytes) -> None:
        """On disk when this returns."""
        sequence = self.standing.sequence + 1
        standing = Standing(sequence, round, self.standing.instance, seal)
        os.pwrite(self._handle, _packed(standing), sequence % 2 * _SLOT)
        os.fdatasync(self._handle)
        self.standing, self.torn = standing, False

    def close(self) -> None:
        os.close(self._handle)


def make(ledger: Path, instance: str) -> None:
    """The mark of a ledger that has no message yet."""
    slots = (Standing(sequence, -1, instance, bytes(SIZE)) for sequence in (0, 1))
    outer = os.umask(0o077)
    try:
        write_atomically(
            place(ledger), b"".join(_packed(slot).ljust(_SLOT, b"\0") for slot in slots)
        )
    finally:
        os.umask(outer)
    sync(ledger.parent)


def instance_of(ledger: Path) -> str | None:
    """Which ledger lies there, without opening it; None where there is none."""
    found = standing_of(ledger)
    return None if found is None else found.instance


def standing_of(ledger: Path) -> Standing | None:
    """The last message that is known to have been marked, without opening anything;
    None where there is no mark.
    """
    path = place(ledger)
    try:
        return _read(path, path.read_bytes())[0]
    except FileNotFoundError:
        return None
    except OSError as error:
        raise trouble(path, error) from error


def place(ledger: Path) -> Path:
    return ledger.with_name(ledger.name + ".mark")


def sync(path: Path) -> None:
    """A folder, or a file whoever has written to it."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _packed(standing: Standing) -> bytes:
    fields = _FIELDS.pack(
        _KIND, standing.sequence, standing.round, bytes.fromhex(standing.instance), standing.seal
    )
    return fields + checksum(fields)


def _read(path: Path, content: bytes) -> tuple[Standing, bool]:
    slots = [_slot(content, number) for number in (0, 1)]
    whole = sorted(slot for slot in slots if slot is not None)
    consistent = whole and len({slot.instance for slot in whole}) == 1
    if consistent and len(whole) == 2:
        consistent = whole[1].sequence == whole[0].sequence + 1 and whole[0].round <= whole[1].round
    if len(content) != 2 * _SLOT or not consistent:
        raise LedgerError(
            f"{path} is damaged: nothing tells whether the ledger beside it is the latest one."
            f" {TREAT}"
        )
    return whole[-1], len(whole) == 1


def _slot(content: bytes, number: int) -> Standing | None:
    fields = content[number * _SLOT :][: _FIELDS.size]
    expected = content[number * _SLOT + len(fields) :][:SIZE]
    if len(fields) < _FIELDS.size or checksum(fields) != expected:
        return None
    kind, sequence, round, instance, seal = _FIELDS.unpack(fields)
    return (
        Standing(sequence, round, instance.hex(), seal)
        if kind == _KIND and sequence % 2 == number
        else None
    )
