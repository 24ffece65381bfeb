"""What must survive anything: one SQLite file per agent, written and synced to disk before a message leaves.

    rounds    one row per message: its bytes, the secret of its noise where later rounds take that back (correlated noise), what the agent has spent with it, when, whom it did without before it and whom it had heard (notes)
    state     the agent's private state as of the last row of `rounds`, from which the run goes on
    about     run, agent, configuration, a fingerprint of the records; `instance`, which tells this ledger from any other of the same agent

`commit` puts message, state and budget down in one transaction and returns when the disk has them (WAL, synchronous = FULL). Only then may the message leave. So whatever
moment a process dies at, either the message is in the ledger, and the same bytes are sent again, or it never left and its noise was never seen: no state is noised
twice, and the budget is never under-counted.

What is large (a quarter of a megabyte or more) lies in files of its own beside the database, which would write it twice and in pages: `place` names the file. It is synced to disk
before the row that names it is; a file that no row names is nothing. The state alternates between two files.

The ledger holds private state: it is readable by its owner only, belongs on a disk that is encrypted, and never travels. An old copy must never be put back, because
the agent would noise rounds again that it has already sent: agents ask their neighbours before they start (agent.py).
"""

from __future__ import annotations

import fcntl
import hmac
import json
import os
import sqlite3
import threading
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np
from safetensors.numpy import load

from hearsay._version import VERSION
from hearsay.deploy.tensors import pack

FORMAT = 1
_LARGE = 2**18  # bytes: from here on in a file
_SUMMED = 2**18  # bytes: from here on another checksum
_SCHEMA = """
CREATE TABLE about (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE rounds (round INTEGER PRIMARY KEY, payload BLOB, place TEXT NOT NULL, checksum INTEGER NOT NULL, size INTEGER NOT NULL, epsilon REAL NOT NULL, notes TEXT NOT NULL, at REAL NOT NULL, secret BLOB NOT NULL);
CREATE TABLE state (one INTEGER PRIMARY KEY CHECK (one = 1), round INTEGER NOT NULL, done INTEGER NOT NULL, checksum INTEGER NOT NULL, arrays BLOB, place TEXT NOT NULL);
"""


class LedgerError(ValueError):
    """The ledger cannot be used, and the text says what to do."""


class Entry(NamedTuple):
    """Where an agent stands: the round of its last message, its state after sending it (or, if done, after the last update), and that message."""

    round: int
    done: bool
    arrays: dict[str, np.ndarray]
    payload: bytes


class Ledger:
    """Opened by one process at a time. `about` must be the same as when the ledger was made."""

    def __init__(self, path: Path, about: dict[str, str]) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._guard, self._large = _lock(path), path.with_name(path.name + ".large")
        self._lock = threading.Lock()  # the outbox is read from the network's threads
        fresh = not path.exists() or path.stat().st_size == 0
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        try:
            self._open(fresh, about)
        except BaseException as error:
            self.close()
            if isinstance(error, sqlite3.DatabaseError):
                raise self._damaged(error) from error
            raise

    def _open(self, fresh: bool, about: dict[str, str]) -> None:
        self._db = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False, timeout=10)
        if fresh:
            self._db.execute("PRAGMA page_size = 4096")
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")  # a commit is on the disk when it returns
        self._db.execute("PRAGMA secure_delete = OFF")
        if fresh or not self._db.execute("SELECT 1 FROM sqlite_master").fetchone():
            self._db.execute("BEGIN IMMEDIATE")
            for statement in filter(str.strip, _SCHEMA.split(";")):
                self._db.execute(statement)
            rows = {
                "format": str(FORMAT),
                "version": VERSION,
                "secret": os.urandom(32),
                "instance": os.urandom(16).hex(),
            }
            rows |= about
            self._db.executemany("INSERT INTO about VALUES (?, ?)", rows.items())
            self._db.execute("COMMIT")
            _sync_folder(self.path.parent)
        stored = dict(self._db.execute("SELECT key, value FROM about"))
        if stored.get("format") != str(FORMAT):
            raise LedgerError(f"{self.path} was written in format {stored.get('format')}: this version reads {FORMAT}")
        unused = not self._db.execute("SELECT 1 FROM rounds").fetchone()
        for key, value in about.items():
            if stored.get(key) == value:
                continue
            if not unused:
                raise LedgerError(
                    f"{self.path} belongs to another {key} ({str(stored.get(key))[:40]}, and this is {value[:40]}): begin a run with a new name"
                )
            # Nothing has been sent yet: the run may still become another one.
            self._db.execute("DELETE FROM about WHERE key IN ('records', 'plan')")
            self._db.execute("REPLACE INTO about VALUES (?, ?)", (key, value))
        self._secret: bytes = stored["secret"]
        self.instance: str = stored["instance"]
        self._newest: int = self._db.execute("SELECT coalesce(max(round), -1) FROM rounds").fetchone()[0]
        self._state_at: str = (self._db.execute("SELECT place FROM state").fetchone() or ("",))[0]
        # What no row names is left from a crash, or was let go: room for the next message.
        named = {place for (place,) in self._db.execute("SELECT place FROM rounds WHERE place != ''")}
        found = {file.name for file in self._large.glob("message-*")} if self._large.is_dir() else set()
        self._spare: list[str] = sorted(found - named)
        self._large_files = bool(named)

    def commit(
        self,
        round: int,
        payload: bytes,
        epsilon: float,
        notes: dict[str, Any],
        arrays: dict[str, np.ndarray],
        secret: bytes = b"",
        settled: int = 0,
    ) -> None:
        """The message of a round with the state after it, on disk when this returns. A round is written once.

        Messages before `settled` are with everybody who hears them: large ones are let go, and their files are written over, which is far faster than making new ones.
        """
        with self._writing(f"message {round} was not sent"):
            self._db.execute("BEGIN IMMEDIATE")
            try:
                if round <= self._newest:
                    raise sqlite3.IntegrityError(f"message {round} is in the ledger already, or a later one is")
                blob, place = self._put(f"message-{round}", [payload])
                at = self._store(round, False, arrays)
                row = (
                    round,
                    blob,
                    place,
                    checksum(payload),
                    len(payload),
                    epsilon,
                    json.dumps(notes),
                    time.time(),
                    secret,
                )
                self._db.execute("INSERT INTO rounds VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
                freed = self._let_go(settled)
                self._db.execute("COMMIT")
                self._newest, self._state_at = round, at
                self._spare += freed  # only now: until then a row names them
            except BaseException:
                if self._db.in_transaction:  # a full disk has rolled it back already
                    self._db.execute("ROLLBACK")
                raise

    def finish(self, round: int, arrays: dict[str, np.ndarray]) -> None:
        """The state after the last update: no message follows it."""
        with self._writing("the last state is not on disk"):
            self._state_at = self._store(round, True, arrays)

    def _store(self, round: int, done: bool, arrays: dict[str, np.ndarray]) -> str:
        parts = pack(arrays)
        blob, place = self._put("state-1" if self._state_at == "state-0" else "state-0", parts)
        self._db.execute("REPLACE INTO state VALUES (1, ?, ?, ?, ?, ?)", (round, done, checksum(*parts), blob, place))
        return place

    def _put(self, name: str, parts: Sequence[bytes | memoryview]) -> tuple[bytes | None, str]:
        """(bytes for the database, "") or (None, the file that has them)."""
        if sum(map(len, parts)) < _LARGE:
            return b"".join(parts), ""
        fresh = not self._large.is_dir()
        self._large.mkdir(mode=0o700, exist_ok=True)
        path = self._large / name
        fresh_file = not path.exists()  # a file that is renamed to it is one: its name must reach the disk too
        if name.startswith("message") and self._spare:
            os.replace(self._large / self._spare.pop(), path)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            size = sum(os.write(handle, part) for part in _pieces(parts))
            os.ftruncate(handle, size)
            os.fdatasync(handle)
        finally:
            os.close(handle)
        if fresh_file:
            _sync_folder(self._large)
        if fresh:
            _sync_folder(self.path.parent)
        self._large_files = True
        return None, name

    def _let_go(self, before: int) -> list[str]:
        """The files of large messages that nobody needs any more."""
        old = "place != '' AND round < ?"
        files = (
            self._db.execute(f"SELECT place FROM rounds WHERE {old}", (before,)).fetchall() if self._large_files else []
        )
        if files:
            self._db.execute(f"UPDATE rounds SET place = '' WHERE {old}", (before,))
        return [place for (place,) in files]

    def _get(self, blob: bytes | None, place: str) -> bytes | None:
        if not place:
            return blob
        try:
            return (self._large / place).read_bytes()
        except FileNotFoundError:
            return None

    def last(self) -> Entry | None:
        """Where the agent stands; None where it has not sent anything."""
        rows = self._read("SELECT round, done, checksum, arrays, place FROM state")
        if not rows:
            return None
        round, done, expected, inline, place = rows[0]
        blob = self._get(inline, place)
        if blob is None or checksum(blob) != expected:
            raise LedgerError(
                f"the state in {self.path} is damaged (its checksum does not match): see docs/operations.md"
            )
        payload = self.message(round)
        if payload is None:
            raise LedgerError(f"{self.path} lacks its last message: see docs/operations.md")
        return Entry(round, bool(done), load(blob), payload)

    def message(self, round: int) -> bytes | None:
        """The bytes that were sent in that round, if they are still kept."""
        rows = self._read("SELECT payload, place, checksum FROM rounds WHERE round = ?", round)
        if not rows or (payload := self._get(*rows[0][:2])) is None:
            return None
        if checksum(payload) != rows[0][2]:
            raise LedgerError(
                f"message {round} in {self.path} is damaged (its checksum does not match): see docs/operations.md"
            )
        return payload

    def history(self) -> list[tuple[int, float, dict[str, Any]]]:
        """(round, epsilon spent with it, notes) of every message."""
        rows = self._read("SELECT round, epsilon, notes FROM rounds ORDER BY round")
        return [(round, epsilon, json.loads(notes)) for round, epsilon, notes in rows]

    def heard(self) -> dict[str, int]:
        """The last round that the agent had heard of each neighbour when it wrote its last message."""
        return self.notes().get("heard", {})

    def notes(self) -> dict[str, Any]:
        """What was written down with the last message."""
        rows = self._read("SELECT notes FROM rounds ORDER BY round DESC LIMIT 1")
        return json.loads(rows[0][0]) if rows else {}

    def secrets(self) -> dict[int, bytes]:
        """The secrets of the rounds' noise, where they are kept."""
        return dict(self._read("SELECT round, secret FROM rounds WHERE length(secret) > 0"))

    def meet(self, name: str, instance: str) -> str:
        """Remember which process a neighbour is, for good and before anybody is told; the first one counts."""
        with self._writing("nothing was sent"):
            self._db.execute("INSERT OR IGNORE INTO about VALUES (?, ?)", (f"neighbour {name}", instance))
        return self.met()[name]

    def met(self) -> dict[str, str]:
        """The neighbours' processes."""
        rows = self._read("SELECT key, value FROM about WHERE key LIKE 'neighbour %'")
        return {key.removeprefix("neighbour "): value for key, value in rows}

    def pin(self, what: str, content: bytes, hint: str) -> None:
        """Remember a fingerprint of something that must not change during the run; refuse where it has."""
        found = hmac.new(
            self._secret, content, "sha256"
        ).hexdigest()  # keyed: a plain one would confirm a guess of the records
        with self._writing("nothing was sent"):
            # Before anything has been sent it may still be something else.
            verb = "REPLACE" if self._newest < 0 else "INSERT OR IGNORE"
            self._db.execute(f"{verb} INTO about VALUES (?, ?)", (what, found))
            stored = self._db.execute("SELECT value FROM about WHERE key = ?", (what,)).fetchone()[0]
        if stored != found:
            raise LedgerError(f"the {what} changed since {self.path} was begun: {hint}")

    def size(self) -> int:
        """Bytes of messages that are kept."""
        return self._read("SELECT coalesce(sum(size), 0) FROM rounds WHERE payload IS NOT NULL OR place != ''")[0][0]

    def forget(self, before: int) -> None:
        """Let go of the bytes of messages that everybody has, but never of the last. Checksums and budgets stay."""
        with self._writing("old messages are kept"):
            before = min(before, self._newest)
            for place in self._let_go(before):
                (self._large / place).unlink(missing_ok=True)
            self._db.execute("UPDATE rounds SET payload = NULL WHERE round < ? AND payload IS NOT NULL", (before,))

    @contextmanager
    def _writing(self, otherwise: str) -> Iterator[None]:
        """A disk that is full or broken is said in words, and what did not happen because of it."""
        with self._lock:
            try:
                yield
            except (sqlite3.OperationalError, OSError) as error:
                raise LedgerError(f"cannot write to {self.path} ({error}): {otherwise}") from error

    def _read(self, question: str, *values: int) -> list[tuple]:
        try:
            with self._lock:
                return self._db.execute(question, values).fetchall()
        except sqlite3.DatabaseError as error:
            raise self._damaged(error) from error

    def _damaged(self, error: sqlite3.DatabaseError) -> LedgerError:
        if any(word in str(error) for word in ("disk", "full", "readonly", "locked")):
            return LedgerError(f"{self.path} cannot be read or written ({error})")
        return LedgerError(f"{self.path} is damaged or is no ledger ({error}): restore nothing; see docs/operations.md")

    def close(self) -> None:
        with self._lock:
            if hasattr(self, "_db"):
                self._db.close()
        self._release()

    def _release(self) -> None:
        if self._guard is not None:
            os.close(self._guard)
            self._guard = None

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()


def _lock(path: Path) -> Any:
    """A lock that dies with its process: two processes of one agent would noise the same state twice."""
    guard = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(guard)
        raise LedgerError(f"{path} is in use: this agent is already running") from None
    return guard


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def checksum(*parts: bytes | memoryview) -> int:
    """CRC-32 of what is small; of what is large the sum of its words, twenty times as fast and as good against a disk that forgets."""
    if sum(map(len, parts)) < _SUMMED:
        return zlib.crc32(b"".join(parts))
    total = 0
    whole = b"".join(parts) if any(len(part) % 8 for part in parts[:-1]) else None
    for part in parts if whole is None else [whole]:
        words, rest = divmod(len(part), 8)
        total += int(np.frombuffer(part, np.uint64, words).sum()) + int.from_bytes(
            bytes(part[len(part) - rest :]), "little"
        )
    return total & (2**63 - 1)


def _pieces(parts: Sequence[bytes | memoryview]) -> Iterator[bytes | memoryview]:
    """A system call writes less than 2 GiB."""
    for part in parts:
        for start in range(0, len(part), 2**30):
            yield part[start : start + 2**30]
