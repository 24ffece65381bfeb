"""The tables of a ledger: what is in them, how they are sealed,
and what is wrong with them, in words.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from hearsay.deploy.checksums import SIZE, seal

FORMAT = 2
# The large columns come last: SQLite reads all that is before the one that is asked for.
SCHEMA = """
CREATE TABLE about (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE rounds (
    round INTEGER PRIMARY KEY, checksum BLOB NOT NULL, size INTEGER NOT NULL,
    epsilon REAL NOT NULL, notes TEXT NOT NULL, at REAL NOT NULL, secret BLOB NOT NULL,
    state BLOB NOT NULL, seal BLOB NOT NULL, place TEXT NOT NULL, payload BLOB);
CREATE TABLE state (
    one INTEGER PRIMARY KEY CHECK (one = 1), round INTEGER NOT NULL, done INTEGER NOT NULL,
    checksum BLOB NOT NULL, place TEXT NOT NULL, seal BLOB NOT NULL, arrays BLOB);
"""
NO_SEAL = bytes(SIZE)
TREAT = "Do not repair it and do not put a copy back: see docs/operations.md"
_CURABLE = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PERM,
}


class LedgerError(ValueError):
    """The ledger cannot be used, and the text says what to do."""


class LedgerUnavailable(LedgerError):
    """The disk cannot be read or written at present: nothing is lost,
    and the same command may be tried again.
    """


class Row(NamedTuple):
    """What the ledger says of a message, as it was sealed;
    `state` is the checksum of the state after it.
    """

    round: int
    checksum: bytes
    size: int
    epsilon: float
    notes: str
    at: float
    secret: bytes
    state: bytes


class Overview(NamedTuple):
    """What can be read off a ledger without opening it to be written."""

    about: dict[str, Any]
    rows: list[Row]
    done: bool


def verified(db: sqlite3.Connection, path: Path) -> Iterator[tuple[Row, bytes]]:
    """Every row with its seal, in order."""
    before = NO_SEAL
    found = db.execute(f"SELECT {', '.join(Row._fields)}, seal FROM rounds ORDER BY round")
    for number, (*columns, sealed) in enumerate(found):
        row = Row(*columns)
        if sealed != seal(before, *row) or row.round != number:
            raise broken(path, f"the row of message {number}")
        before = sealed
        yield row, sealed


def about(db: sqlite3.Connection, path: Path) -> dict[str, Any]:
    stored = dict(db.execute("SELECT key, value FROM about"))
    if stored.get("format") != str(FORMAT):
        raise LedgerError(
            f"{path} was written in format {stored.get('format')}: this version reads {FORMAT}."
            " Finish the run with the version that began it, or begin one with a new name"
        )
    if stored.get("seal") != about_seal(stored):
        raise broken(path, "what the ledger is about")
    return stored


def about_seal(stored: dict[str, Any]) -> bytes:
    return seal(NO_SEAL, sorted((key, value) for key, value in stored.items() if key != "seal"))


def overview(path: Path) -> Overview:
    """Also while the agent runs: nothing is written, nothing is locked."""
    # Whoever has it open has a log beside it. Without one SQLite would make files, which fails on a
    # medium that is read-only.
    still = "" if path.with_name(path.name + "-wal").exists() else "&immutable=1"
    try:
        with closing(
            sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro{still}", uri=True, timeout=10)
        ) as db:
            db.execute("BEGIN")
            if not db.execute("SELECT 1 FROM sqlite_master").fetchone():
                return Overview({}, [], False)  # it is only being made
            found = about(db, path)
            rows = [row for row, _ in verified(db, path)]
            done = db.execute("SELECT done FROM state").fetchone()
            return Overview(found, rows, bool(done and done[0]))
    except sqlite3.DatabaseError as error:
        raise trouble(path, error) from error


def trouble(path: Path, error: sqlite3.DatabaseError | OSError, otherwise: str = "") -> LedgerError:
    """Of the disk, which may pass, or of the file, which does not."""
    code = getattr(error, "sqlite_errorcode", None)
    if isinstance(error, OSError) or (code is not None and code & 0xFF in _CURABLE):
        what = f"cannot write to {path} ({error}): {otherwise}"
        what = what if otherwise else f"{path} cannot be read or written ({error})"
        return LedgerUnavailable(f"{what}. See to the disk, and start this agent again")
    return LedgerError(f"{path} is damaged or is no ledger ({error}). {TREAT}")


def broken(path: Path, what: str, why: str = "its checksum does not match") -> LedgerError:
    return LedgerError(f"{what} in {path} is damaged ({why}). {TREAT}")


@contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """All of it or nothing."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:  # a full disk has rolled it back already
            db.execute("ROLLBACK")
        raise
