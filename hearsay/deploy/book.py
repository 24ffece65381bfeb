"""The budget file, NAME.budget: the runs of one agent with what each may spend, and fingerprints of
the records that were in them. What follows from it: lifetime.py. Ledgers that it should know:
missing.py.

A line of JSON and the fingerprints, with a checksum over all, replaced as a whole under a lock. The
JSON says whose file it is, so that one which came to lie under another agent's name is refused.
Files of format 1 do not say it: they are taken for that of the agent whose name they bear, and say
so from the next run on.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hearsay._files import write_atomically
from hearsay.deploy import mark
from hearsay.deploy.rows import LedgerError, LedgerUnavailable
from hearsay.privacy.adjacency import REPLACE

SUFFIX = ".budget"
EVERY = -1  # for a number of a set: which records were in the run is not known (missing.py)
_KIND, _FORMAT, _READ = b"hearsay budget ", b"2", (b"1", b"2")
_HASH = 32


class Spent(NamedTuple):
    """A run with its whole plan. `records` is the number of its set of fingerprints in the file."""

    instance: str
    run: str
    at: float
    messages: int
    mechanism: str  # "rehearsal": its noise is no secret; "unknown": missing.py
    epsilon: float
    delta: float  # of epsilon; 0 where it is pure
    rho: float | None = None
    numbers: int = 0
    records: int = EVERY
    adjacency: str = REPLACE  # what its numbers are about; `DECLARED`: replace, by declaration
    colluders: int | None = None  # of the other agents; None: its numbers hold against all
    own_epsilon: float | None = None  # if all others collude, where that costs more
    own_rho: float | None = None

    @property
    def alone(self) -> Spent:
        """With what it costs if all other agents collude: its own noise is what is left."""
        if self.colluders is None or self.own_epsilon is None:
            return self
        return self._replace(epsilon=self.own_epsilon, rho=self.own_rho)


class Book(NamedTuple):
    """What is in the file: the key of the fingerprints, the runs, sets of sorted fingerprints, and
    whose it is ("": it does not say).
    """

    key: bytes
    runs: list[Spent]
    sets: list[np.ndarray]
    agent: str = ""

    def fingerprints(self, rows: np.ndarray) -> np.ndarray:
        """Of hashed records, sorted."""
        found = (hashlib.blake2b(row, digest_size=8, key=self.key).digest() for row in rows)
        return np.unique(np.frombuffer(b"".join(found), np.uint64))

    def within(self, run: Spent, fingerprints: np.ndarray) -> np.ndarray:
        """Which of them were in that run."""
        if run.records == EVERY:
            return np.ones(len(fingerprints), bool)
        return np.isin(fingerprints, self.sets[run.records])


def read(path: Path) -> Book:
    """That of the agent whose name the file bears; an empty one where there is no file."""
    book = contents(path)
    if book.agent not in ("", path.stem):
        raise LedgerError(
            f"{path} must be the budget file of {path.stem}, got that of {book.agent}: put"
            f" {path.stem}'s own in its place. If {book.agent} goes by the name of {path.stem} now:"
            f" hearsay network adopt {path} (docs/operations.md)"
        )
    return book


def contents(path: Path) -> Book:
    """Whosever it is."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return Book(os.urandom(32), [], [], path.stem)
    except OSError as error:
        raise LedgerUnavailable(
            f"{path} cannot be read ({error}): see to the disk, and start this agent again"
        ) from error
    body, found = content[:-_HASH], content[-_HASH:]
    if not body.startswith(_KIND) or hashlib.sha256(body).digest() != found:
        raise LedgerError(
            f"{path} is damaged (its checksum does not match): what these records have spent before"
            " is not known. Do not delete it and do not put a copy back: see docs/operations.md"
        )
    kind, line, rest = body.removeprefix(_KIND).split(b"\n", 2)
    if kind not in _READ:
        raise LedgerError(
            f"{path} was written in format {kind.decode(errors='replace')}: this version reads"
            " 1 and 2. Go on with the version that wrote it"
        )
    head = json.loads(line)
    ends = np.cumsum([0, *head["sizes"]])
    numbers = np.frombuffer(rest, np.uint64)
    sets = [numbers[start:end] for start, end in pairwise(ends)]
    runs = [Spent(*run) for run in head["runs"]]
    return Book(bytes.fromhex(head["key"]), runs, sets, head.get("agent", ""))


def write(path: Path, book: Book) -> None:
    """As that of the agent whose name the file bears."""
    head = {
        "agent": path.stem,
        "key": book.key.hex(),
        "runs": book.runs,
        "sizes": [len(one) for one in book.sets],
    }
    sets = b"".join(one.tobytes() for one in book.sets)
    body = _KIND + _FORMAT + b"\n" + json.dumps(head).encode() + b"\n" + sets
    outer = os.umask(0o077)
    try:
        write_atomically(path, body + hashlib.sha256(body).digest())
    finally:
        os.umask(outer)
    mark.sync(path.parent)


@contextmanager
def locked(path: Path, again: str = "start this agent again") -> Iterator[None]:
    """Two runs of one agent take turns. `again`: what to do once the disk can be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        guard = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(guard, fcntl.LOCK_EX)
            yield
        finally:
            os.close(guard)
    except OSError as error:
        raise LedgerUnavailable(
            f"cannot write to {path} ({error}): nothing was sent. See to the disk, and {again}"
        ) from error
