"""What must survive anything: one SQLite file per agent, written and synced to disk before a
message leaves.

    rounds  one row per message: its bytes, the secret of its noise where later rounds take that
            back (correlated noise), what the agent has spent with it, when, whom it did without
            before it and whom it had heard (notes)
    state   the agent's private state as of the last row of `rounds`, from which the run goes on,
            with the coins of that round's batch where it is secret (coins.py)
    about   run, agent, configuration, a fingerprint of the records; `instance`, which tells this
            ledger from any other of the same agent
    cards   where noise is shared: what agents have said of their keys (cards.py); the keys
            themselves lie beside the ledger, in a file that forgets (erasable.py)

`commit` puts message, state and budget down in one transaction and returns when the disk has them
(WAL, synchronous = FULL) and the mark beside it names them (mark.py). Only then may the message
leave. So whatever moment a process dies at, either the message is in the ledger, and the same bytes
are sent again, or it never left and its noise was never seen: no state gets noise twice, and the
budget is never under-counted.

Every row is sealed with all its columns, and with the row before it and the state that belongs to
it (checksums.py). All seals are verified when the ledger is opened, messages and states when they
are used. A ledger that is behind its mark or breaks a seal is refused, in words (`LedgerError`); a
disk that is full, read-only or locked may be tried again (`LedgerUnavailable`).

What is large (a quarter of a megabyte or more) lies in files of its own (blobs.py): `place` names
the file. The state alternates between two files.

The ledger holds private state: it is readable by its owner only, belongs on a disk that is
encrypted, and never travels. An old copy must never be put back, because the agent would add noise
again to rounds that it has already sent: agents ask their neighbours before they start (agent.py).
"""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np
from safetensors.numpy import load

from hearsay._version import VERSION
from hearsay.deploy import cards, mark
from hearsay.deploy.about import About, note
from hearsay.deploy.blobs import Blobs
from hearsay.deploy.cards import Card
from hearsay.deploy.checksums import checksum, seal
from hearsay.deploy.rows import (
    FORMAT,
    NO_SEAL,
    SCHEMA,
    TREAT,
    LedgerError,
    Row,
    broken,
    transaction,
    trouble,
    verified,
)
from hearsay.deploy.rows import LedgerUnavailable as LedgerUnavailable
from hearsay.release.tensors import pack

_LARGE = 2**18  # bytes: from here on in a file
_KEPT = "(payload IS NOT NULL OR place != '')"


class Entry(NamedTuple):
    """Where an agent stands: the round of its last message, its state after sending it (or,
    if done, after the last update), and that message.
    """

    round: int
    done: bool
    arrays: dict[str, np.ndarray]
    payload: bytes


class Ledger:
    """Opened by one process at a time. `about` must be the same as when the ledger was made."""

    def __init__(self, path: Path, about: dict[str, str]) -> None:
        self.path = path
        self._guard: int | None = None
        self._large = path.with_name(path.name + ".large")
        self._lock = threading.Lock()  # the outbox is read from the network's threads
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._guard = _lock(path)
            fresh = not path.exists() or path.stat().st_size == 0
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
            self._open(fresh, about)
        except BaseException as error:
            self.close()
            if isinstance(error, (sqlite3.DatabaseError, OSError)):
                raise trouble(self.path, error) from error
            raise

    def _open(self, fresh: bool, about: dict[str, str]) -> None:
        self._db = sqlite3.connect(
            self.path, isolation_level=None, check_same_thread=False, timeout=10
        )
        if fresh:
            self._db.execute("PRAGMA page_size = 4096")
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")  # a commit is on the disk when it returns
        self._db.execute("PRAGMA secure_delete = OFF")
        if fresh or not self._db.execute("SELECT 1 FROM sqlite_master").fetchone():
            self._make(about)
        self._about = About(self._db, self.path)
        if not mark.place(self.path).exists():
            raise LedgerError(
                f"{mark.place(self.path)} is not there, and tells whether the ledger is the latest"
                f" one. {TREAT}"
            )
        self._mark = mark.Mark(self.path)
        self._seal, self._newest, self._notes, self._state = NO_SEAL, -1, "{}", b""
        before = NO_SEAL
        for row, sealed in verified(self._db, self.path):
            before, self._seal = self._seal, sealed
            self._newest, self._notes, self._state = row.round, row.notes, row.state
        self.instance = self._about.instance
        self._require_latest(before)
        self._about.become(about, begun=self._newest >= 0)
        self._state_at: str = (self._db.execute("SELECT place FROM state").fetchone() or ("",))[0]
        named = self._db.execute(
            "SELECT place, size, round FROM rounds WHERE place != ''"
        ).fetchall()
        self._blobs = Blobs(self._large, {place for place, *_ in named})
        for place, size, round in named:
            if self._blobs.size(place) != size:
                raise broken(
                    self.path, f"message {round}", "its file is not there or has another size"
                )
        self._large_files = bool(named)
        self._kept = self.size()

    def _make(self, about: dict[str, str]) -> None:
        """The tables.

        The mark comes first: from then on this is the ledger with that instance,
        or there is none.
        """
        if not mark.place(self.path).exists():
            mark.make(self.path, os.urandom(16).hex())
        with closing(mark.Mark(self.path)) as found:
            standing = found.standing
        if standing.round >= 0:
            raise LedgerError(
                f"{self.path} is empty or was deleted, and message {standing.round} has left: it is"
                f" not the latest one. {TREAT}"
            )
        rows = {
            "format": str(FORMAT),
            "version": VERSION,
            "secret": os.urandom(32),
            "instance": standing.instance,
        }
        with transaction(self._db):
            for statement in filter(str.strip, SCHEMA.split(";")):
                self._db.execute(statement)
            note(self._db, rows | about)
        mark.sync(self.path.parent)

    def _require_latest(self, before: bytes) -> None:
        """The mark names the last row, or, after a crash between the two, the one before it."""
        marked, newest = self._mark.standing, self._newest
        if marked.instance != self.instance:
            raise LedgerError(f"{self.path} and its mark are of different ledgers. {TREAT}")
        if newest < marked.round or (self._mark.torn and newest == marked.round):
            least = marked.round + self._mark.torn
            raise LedgerError(
                f"{self.path} ends with message {newest}, and message {least} may have left: it is"
                f" not the latest one. {TREAT}"
            )
        ahead = newest - marked.round
        if ahead > 1 or marked.seal != (before if ahead else self._seal):
            raise LedgerError(
                f"{self.path} and its mark disagree about message {marked.round}: one of them was"
                f" replaced. {TREAT}"
            )
        if ahead:
            # Its commit may have died before its sync: what is only in memory would be lost with
            # the power, and its mark would not. Of SQLite's files only the log: closing another
            # handle of the main file would take SQLite's locks away.
            if (log := self.path.with_name(self.path.name + "-wal")).exists():
                mark.sync(log)
            mark.sync(self.path.parent)
            self._mark.write(newest, self._seal)

    def commit(
        self,
        round: int,
        payload: bytes,
        epsilon: float,
        notes: dict[str, Any],
        arrays: dict[str, np.ndarray] | None,
        secret: bytes = b"",
        settled: int = 0,
    ) -> None:
        """The message of a round with the state after it, on disk when this returns.

        A round is written once. Without `arrays` the state stays what it was: a relay is made of
        messages (phases.py).

        Messages before `settled` are with everybody who hears them: large ones are discarded, and
        their files are written over, which is far faster than making new ones.
        """
        with self._writing(f"message {round} was not sent"):
            with transaction(self._db):
                if round != self._newest + 1:
                    raise sqlite3.IntegrityError(
                        f"message {self._newest + 1} comes next in the ledger, and not {round}"
                    )
                self._require_alone()  # before any file is written over
                blob, place = self._put(f"message-{round}", [payload])
                at, state = self._store(round, False, arrays)
                facts = (
                    checksum(payload),
                    len(payload),
                    float(epsilon),
                    json.dumps(notes),
                    time.time(),
                    secret,
                    state,
                )
                row = Row(round, *facts)
                sealed = seal(self._seal, *row)
                self._db.execute(
                    "INSERT INTO rounds VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    (*row, sealed, place, blob),
                )
                freed = self._let_go(settled)
            self._newest, self._notes, self._seal = round, row.notes, sealed
            self._state, self._state_at = state, at
            self._kept += len(payload) - sum(size for _, size in freed)
            # Only now: until then a row names them.
            self._blobs.spare += [place for place, _ in freed]
            self._mark.write(round, sealed)

    def _require_alone(self) -> None:
        """Somebody may have deleted the lock file: two processes that share a ledger must not write
        over each other's files.
        """
        found = self._db.execute("SELECT coalesce(max(round), -1) FROM rounds").fetchone()[0]
        if found != self._newest:
            raise LedgerError(
                f"{self.path} has message {found}, which this process has not written: it is in use"
                " by another one, and its lock file is gone. Nothing was sent; end this one"
            )

    def finish(self, round: int, arrays: dict[str, np.ndarray]) -> None:
        """The state after the last update: no message follows it."""
        with self._writing("the last state is not on disk"), transaction(self._db):
            self._require_alone()
            self._state_at, _ = self._store(round, True, arrays)

    def _store(
        self, round: int, done: bool, arrays: dict[str, np.ndarray] | None
    ) -> tuple[str, bytes]:
        if arrays is None:
            same = (round, int(done), self._state, self._state_at)
            self._db.execute("UPDATE state SET round = ?, seal = ?", (round, seal(NO_SEAL, *same)))
            return self._state_at, self._state
        parts = pack(arrays)
        blob, place = self._put("state-1" if self._state_at == "state-0" else "state-0", parts)
        row = (round, int(done), checksum(*parts), place)
        self._db.execute(
            "REPLACE INTO state VALUES (1, ?, ?, ?, ?, ?, ?)", (*row, seal(NO_SEAL, *row), blob)
        )
        return place, row[2]

    def _put(self, name: str, parts: Sequence[bytes | memoryview]) -> tuple[bytes | None, str]:
        """(bytes for the database, "") or (None, the file that has them)."""
        if sum(map(len, parts)) < _LARGE:
            return b"".join(parts), ""
        self._blobs.put(name, parts)
        self._large_files = True
        return None, name

    def _let_go(self, before: int) -> list[tuple[str, int]]:
        """The files of large messages that nobody needs any more, with their sizes."""
        if not self._large_files:
            return []
        old = "place != '' AND round < ?"
        files = self._db.execute(
            f"SELECT place, size FROM rounds WHERE {old}", (before,)
        ).fetchall()
        if files:
            self._db.execute(f"UPDATE rounds SET place = '' WHERE {old}", (before,))
        return files

    def _get(self, blob: bytes | None, place: str) -> bytes | None:
        try:
            return self._blobs.get(place) if place else blob
        except OSError as error:
            raise trouble(self.path, error) from error

    def last(self) -> Entry | None:
        """Where the agent stands; None where it has not sent anything."""
        rows = self._read("SELECT round, done, checksum, place, seal, arrays FROM state")
        if not rows and self._newest < 0:
            return None
        *row, sealed, inline = rows[0] if rows else (None,) * 6
        round, done, expected, place = row
        if (
            sealed != seal(NO_SEAL, *row)
            or round != self._newest
            or not (done or expected == self._state)
        ):
            raise broken(self.path, "the state", "it does not belong to the last message")
        blob = self._get(inline, place)
        if not isinstance(blob, bytes) or checksum(blob) != expected:
            raise broken(self.path, "the state")
        payload = self.message(round)
        if payload is None:
            raise LedgerError(f"{self.path} lacks its last message. {TREAT}")
        return Entry(round, bool(done), load(blob), payload)

    def message(self, round: int) -> bytes | None:
        """The bytes that were sent in that round, if they are still kept.

        Before its mark is on disk nobody gets a message.
        """
        if round > self._mark.standing.round:
            return None
        rows = self._read("SELECT payload, place, checksum FROM rounds WHERE round = ?", round)
        if not rows or (payload := self._get(*rows[0][:2])) is None:
            return None
        if not isinstance(payload, bytes) or checksum(payload) != rows[0][2]:
            raise broken(self.path, f"message {round}")
        return payload

    def history(self) -> list[tuple[int, float, dict[str, Any]]]:
        """(round, epsilon spent with it, notes) of every message."""
        return [(row.round, row.epsilon, json.loads(row.notes)) for row in self._rows()]

    def heard(self) -> dict[str, int]:
        """The last round that the agent had heard of each neighbour when it
        wrote its last message.
        """
        return self.notes().get("heard", {})

    def notes(self) -> dict[str, Any]:
        """What was written down with the last message."""
        return json.loads(self._notes)

    def secrets(self) -> dict[int, bytes]:
        """The secrets of the rounds' noise, where they are kept."""
        return {row.round: row.secret for row in self._rows() if row.secret}

    def meet(self, name: str, instance: str) -> str:
        """Remember which process a neighbour is, permanently and before anybody is told;
        the first one counts.
        """
        with self._writing("nothing was sent"):
            return self._about.meet(name, instance)

    def met(self) -> dict[str, str]:
        """The neighbours' processes."""
        with self._writing("nothing was sent"):
            return self._about.met()

    def pin(self, what: str, content: bytes, hint: str) -> None:
        """Remember a fingerprint of something that must not change during the run;
        refuse where it has.
        """
        with self._writing("nothing was sent"):
            self._about.pin(what, content, hint, begun=self._newest >= 0)

    def pin_rows(self, what: str, parts: Sequence[np.ndarray], hint: str) -> None:
        """The same of rows to which others are added: those that were known must not change."""
        with self._writing("nothing was sent"):
            self._about.pin_rows(what, parts, hint, begun=self._newest >= 0)

    def cards(self) -> dict[int, Card]:
        """What agents have said of their keys, where noise is shared."""
        with self._writing("nothing was sent"):
            return cards.read(self._db, self.path)

    def keep(self, found: Mapping[int, Card], *, anew: bool = False) -> None:
        """Write that down before anybody is told of it; `anew`: in the place of all that was."""
        with self._writing("nothing was sent"):
            cards.write(self._db, found, anew=anew)

    def size(self) -> int:
        """Bytes of messages that are kept."""
        return self._read(f"SELECT coalesce(sum(size), 0) FROM rounds WHERE {_KEPT}")[0][0]

    def forget(self, before: int) -> None:
        """Discard the bytes of messages that everybody has, but never those of the last.

        Checksums and budgets stay.
        """
        with self._writing("old messages are kept"):
            before = min(before, self._newest)
            self._blobs.drop(place for place, _ in self._let_go(before))
            self._db.execute(
                "UPDATE rounds SET payload = NULL WHERE round < ? AND payload IS NOT NULL",
                (before,),
            )
        self._kept = self.size()

    def bound(self, keep: int) -> int | None:
        """Discard the oldest messages where all of them take more than so many bytes,
        whoever may still want them: the first that is left, or None where nothing had to go.
        """
        if self._kept <= keep:
            return None
        left = 0.9 * keep  # so that it is not done anew in every round
        for round, size in self._read(
            f"SELECT round, size FROM rounds WHERE {_KEPT} ORDER BY round DESC"
        ):
            left -= size
            if left < 0:
                self.forget(round + 1)
                break
        return self.oldest()

    def oldest(self) -> int:
        """The first message from which on all are kept."""
        return self._read(f"SELECT coalesce(min(round), 0) FROM rounds WHERE {_KEPT}")[0][0]

    @contextmanager
    def _writing(self, otherwise: str) -> Iterator[None]:
        """The error of a full or broken disk, with what did not happen because of it."""
        with self._lock:
            try:
                yield
            except sqlite3.IntegrityError:
                raise
            except (sqlite3.DatabaseError, OSError) as error:
                raise trouble(self.path, error, otherwise) from error

    def _read(self, question: str, *values: int) -> list[tuple]:
        try:
            with self._lock:
                return self._db.execute(question, values).fetchall()
        except sqlite3.DatabaseError as error:
            raise trouble(self.path, error) from error

    def _rows(self) -> list[Row]:
        try:
            with self._lock:
                return [row for row, _ in verified(self._db, self.path)]
        except sqlite3.DatabaseError as error:
            raise trouble(self.path, error) from error

    def close(self) -> None:
        with self._lock:
            if hasattr(self, "_db"):
                self._db.close()
            if hasattr(self, "_mark"):
                self._mark.close()
                del self._mark
        self._release()

    def _release(self) -> None:
        if self._guard is not None:
            os.close(self._guard)
            self._guard = None

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()


def _lock(path: Path) -> int:
    """A lock that dies with its process:
    two processes of one agent would add noise to the same state twice.
    """
    guard = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        holder = os.pread(guard, 20, 0).decode(errors="replace")
        os.close(guard)
        if not isinstance(error, BlockingIOError):  # a file system without locks
            raise
        which = f" (process {holder})" if holder.isdigit() else ""
        raise LedgerError(
            f"{path} is in use: this agent is already running{which}. Let that one go on, or end it"
            " before you start another"
        ) from None
    with suppress(OSError):  # a full disk: the name of the process is a courtesy
        os.truncate(guard, 0)
        os.pwrite(guard, str(os.getpid()).encode(), 0)
    return guard
