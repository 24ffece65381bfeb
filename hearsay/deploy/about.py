"""What a ledger is about: run, agent, configuration, instance, fingerprints of records and plan,
the neighbours' processes; sealed as a whole.
"""

from __future__ import annotations

import hmac
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hearsay.deploy.rows import LedgerError, about, about_seal, transaction


class About:
    """The table `about` of an open ledger."""

    def __init__(self, db: sqlite3.Connection, path: Path) -> None:
        self._db, self._path, self._stored = db, path, about(db, path)
        self.instance: str = self._stored["instance"]

    def become(self, given: dict[str, str], *, begun: bool) -> None:
        """Before anything has been sent the run may still become another one."""
        changed = {key: value for key, value in given.items() if self._stored.get(key) != value}
        if changed and begun:
            key, value = next(iter(changed.items()))
            raise LedgerError(
                f"{self._path} belongs to another {key} ({str(self._stored.get(key))[:40]}, and"
                f" this is {value[:40]}): put net.toml and the options back as they were, and the"
                " run goes on; or begin one with a new name"
            )
        if changed:
            with transaction(self._db):
                self._db.execute("DELETE FROM about WHERE key IN ('records', 'plan', 'phases')")
                note(self._db, given)

    def pin(self, what: str, content: bytes, hint: str, *, begun: bool) -> None:
        found, known = self._keyed(content), self._value(what)
        # Before anything has been sent it may still be something else.
        if known is None or not begun:
            with transaction(self._db):
                note(self._db, {what: found})
        elif known != found:
            raise LedgerError(f"the {what} changed since {self._path} was begun: {hint}")

    def pin_rows(self, what: str, parts: Sequence[np.ndarray], hint: str, *, begun: bool) -> None:
        """As `pin`, of rows to which others may have been added since; each is in all parts."""
        known, count = self._value(what), len(parts[0])

        def of(many: int) -> str:
            return f"{many} {self._keyed(*(part[:many].tobytes() for part in parts))}"

        if begun and known is not None:
            many = int(str(known).partition(" ")[0])
            if count < many or of(many) != known:
                raise LedgerError(
                    f"the first {many:,} {what} changed since {self._path} was begun: {hint}"
                )
        with transaction(self._db):
            note(self._db, {what: of(count)})

    def _keyed(self, *parts: bytes) -> str:
        # A plain fingerprint would confirm a guess of the records.
        found = hmac.new(self._stored["secret"], digestmod="sha256")
        for part in parts:
            found.update(part)
        return found.hexdigest()

    def meet(self, name: str, instance: str) -> str:
        known = self._value(f"neighbour {name}")
        if known is None:
            with transaction(self._db):
                note(self._db, {f"neighbour {name}": instance})
        return instance if known is None else known

    def met(self) -> dict[str, str]:
        rows = about(self._db, self._path).items()
        return {
            key.removeprefix("neighbour "): value
            for key, value in rows
            if key.startswith("neighbour ")
        }

    def _value(self, key: str) -> Any:
        return about(self._db, self._path).get(key)


def note(db: sqlite3.Connection, rows: dict[str, Any]) -> None:
    """Within a transaction: write it down, with a seal over all of it."""
    db.executemany("REPLACE INTO about VALUES (?, ?)", rows.items())
    stored = dict(db.execute("SELECT key, value FROM about"))
    db.execute("REPLACE INTO about VALUES ('seal', ?)", (about_seal(stored),))
