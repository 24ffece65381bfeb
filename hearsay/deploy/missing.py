"""Ledgers that a budget file does not know: it was lost, left behind, put back from a copy, or is
another agent's.

A run is entered in NAME.budget before its first message (lifetime.py). So every ledger of that
agent that lies beside the file and has sent a message is in it, whatever moment a process died at.
One that is not shows that this is not the file in which the agent's runs were entered; what else
the right one would know, also of runs whose folders are gone, nobody can tell. The agent refuses,
because every total would be too small.

Nor can the file be made again from ledgers: they do not say which records were in a run. So where
it is lost for good, `adopt` enters what it does not know as infinite, for all records: from then on
what they have spent counts as infinite, and the agent may go on.

Where the file was moved to a new name, the ledgers of the old one are left behind: it knows them,
and nothing is lost. An agent of the old name is refused all the same: its file would be empty.
"""

from __future__ import annotations

import math
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from hearsay.deploy import mark
from hearsay.deploy.book import SUFFIX, Book, Spent, contents, locked, read, write
from hearsay.deploy.rows import LedgerError, overview
from hearsay.privacy.certificate import few


class Begun(NamedTuple):
    """A ledger that has sent a message; without an instance where it cannot be read, and may have
    sent some.
    """

    path: Path
    instance: str | None

    @property
    def run(self) -> str:
        return self.path.parent.name


def checked(path: Path) -> Book:
    """The budget file of the agent whose name it bears; it must know all ledgers beside it."""
    ledgers = beside(path)
    book = read(path)
    if why := incomplete(path, book, ledgers):
        raise LedgerError(why)
    return book


def beside(path: Path) -> list[Begun]:
    """The ledgers of that agent. To be looked for before the file is read: an agent may enter
    another run and begin it meanwhile.
    """
    name = f"{path.stem}.ledger"
    marks = (found.with_suffix("") for found in path.parent.glob(f"*/{name}.mark"))
    found = sorted({*path.parent.glob(f"*/{name}"), *marks})
    return [Begun(ledger, instance) for ledger in found for instance in _begun(ledger)]


def _begun(ledger: Path) -> list[str | None]:
    """Its instance; nothing where no message can have left."""
    try:
        if (marked := mark.standing_of(ledger)) is not None:
            return [marked.instance] if marked.round >= 0 else []
        found = overview(ledger)
        return [found.about["instance"]] if found.rows else []
    except LedgerError:
        return [None]


def incomplete(path: Path, book: Book, ledgers: list[Begun]) -> str:
    """Why the file cannot be the one in which that agent's runs were entered, or nothing."""
    unknown = _unknown(book, ledgers)
    if not unknown:
        return ""
    runs = few([ledger.path for ledger in unknown], ", ")
    there = path.exists()
    if not there and (now := renamed(path, ledgers)) is not None:
        return (
            f"{path} is not there, and {now} knows what has sent messages beside it ({runs}):"
            f" {path.stem} goes by the name of {now.stem} now. Start it under that name; to give it"
            f" its old one again, move {now} to {path}, and call: hearsay network adopt {path}"
        )
    what = "does not know what has sent" if there else "is not there, and should know what has sent"
    return (
        f"{path} {what} messages beside it ({runs}): it was lost, replaced or left behind, and what"
        " these records have spent is not known. Put the latest one there. Only where it is lost"
        f" for good: hearsay network adopt {path} (docs/operations.md)"
    )


def renamed(path: Path, ledgers: list[Begun]) -> Path | None:
    """Where the file is not there: the one of another name beside it that knows all its ledgers."""
    if path.exists() or not ledgers:
        return None
    for other in sorted(path.parent.glob(f"*{SUFFIX}")):
        with suppress(LedgerError):  # that agent says so itself
            book = read(other)
            known = {run.instance for run in book.runs}
            # One of format 1 may have come there by mistake: it does not say whose it is.
            if book.agent and all(one.instance in known for one in ledgers):
                return other
    return None


def _unknown(book: Book, ledgers: list[Begun]) -> list[Begun]:
    """One that cannot be read is known by its run's name."""
    known = {run.instance for run in book.runs}, {run.run for run in book.runs}
    return [
        one
        for one in ledgers
        if (one.run not in known[1] if one.instance is None else one.instance not in known[0])
    ]


def adopt(path: Path) -> tuple[str, list[str]]:
    """Make the file, as it lies there or does not, that of the agent whose name it bears; every
    ledger beside it that it does not know is entered as infinite.

    Whose it was ("": it did not say), and the runs that were entered.
    """
    if path.suffix != SUFFIX or not path.parent.is_dir():
        raise ValueError(f"the file must be NAME{SUFFIX} in a folder of states, got {path}")
    if not path.exists() and not beside(path):
        raise FileNotFoundError(
            f"{path} is not there, and no ledger of {path.stem} that lies beside it has sent a"
            " message: there is nothing to adopt"
        )
    with locked(path):
        ledgers = beside(path)
        book = contents(path)
        unknown = _unknown(book, ledgers)
        runs = [
            Spent(one.instance or "", one.run, time.time(), 0, "unknown", math.inf, 0.0)
            for one in unknown
        ]
        write(path, book._replace(runs=[*book.runs, *runs]))
    return book.agent, [one.run for one in unknown]
