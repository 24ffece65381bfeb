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
    """A ledger that has sent a message; `damaged` where it or its mark is, and it may have sent
    some. Without an instance where nothing of it can be read.
    """

    path: Path
    instance: str | None
    damaged: bool = False

    @property
    def run(self) -> str:
        return self.path.parent.name

    def known(self, book: Book) -> bool:
        """A damaged one also by its run's name: its folder's."""
        instances, runs = {run.instance for run in book.runs}, {run.run for run in book.runs}
        return self.instance in instances or (self.damaged and self.run in runs)


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
    return [begun for ledger in found if (begun := _begun(ledger)) is not None]


def _begun(ledger: Path) -> Begun | None:
    """None where no message can have left."""
    damaged = False
    try:
        if (marked := mark.standing_of(ledger)) is not None:
            return Begun(ledger, marked.instance) if marked.round >= 0 else None
    except LedgerError:
        damaged = True  # but the ledger may still say which one it is
    try:
        found = overview(ledger)
    except LedgerError:
        return Begun(ledger, None, True)
    if not found.rows and not damaged:
        return None
    return Begun(ledger, found.about.get("instance"), damaged)


def incomplete(path: Path, book: Book, ledgers: list[Begun]) -> str:
    """Why the file cannot be the one in which that agent's runs were entered, or nothing."""
    unknown = [one for one in ledgers if not one.known(book)]
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
            # One of format 1 may have come there by mistake: it does not say whose it is. Another
            # agent may well have had runs of the same names.
            if book.agent and all(one._replace(damaged=False).known(book) for one in ledgers):
                return other
    return None


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
    with locked(path, f"call hearsay network adopt {path} again"):
        ledgers = beside(path)
        book = contents(path)
        unknown = [one for one in ledgers if not one.known(book)]
        runs = [
            Spent(one.instance or "", one.run, time.time(), 0, "unknown", math.inf, 0.0)
            for one in unknown
        ]
        write(path, book._replace(runs=[*book.runs, *runs]))
    return book.agent, [one.run for one in unknown]
