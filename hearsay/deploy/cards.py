"""The table `cards` of a ledger: what agents have said of their keys (introductions.py), of every
agent its introduction and its confirmation. Nothing in it is secret. It is there only where noise
is shared.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from hearsay.deploy.checksums import seal
from hearsay.deploy.rows import NO_SEAL, broken, transaction

_TABLE = """CREATE TABLE IF NOT EXISTS cards (
    agent INTEGER PRIMARY KEY, introduction BLOB NOT NULL, confirmation BLOB NOT NULL,
    seal BLOB NOT NULL)"""


class Card(NamedTuple):
    """What an agent has said so far; the second is empty until it has said it."""

    introduction: bytes = b""
    confirmation: bytes = b""

    @property
    def stage(self) -> int:
        """0: nothing is known of the agent, 1: its introduction is, 2: its confirmation, too."""
        return (self.introduction != b"") + (self.confirmation != b"")


def read(db: sqlite3.Connection, path: Path) -> dict[int, Card]:
    """All cards, by the agents' numbers."""
    if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'cards'").fetchone():
        return {}
    found = {}
    for agent, *card, sealed in db.execute("SELECT * FROM cards"):
        if sealed != seal(NO_SEAL, agent, *card):
            raise broken(path, f"the introduction of agent {agent}")
        found[agent] = Card(*card)
    return found


def write(db: sqlite3.Connection, cards: Mapping[int, Card], *, anew: bool = False) -> None:
    """Keep these, each in the place of an earlier one; `anew`: and forget all others."""
    with transaction(db):
        db.execute(_TABLE)
        if anew:
            db.execute("DELETE FROM cards")
        db.executemany(
            "REPLACE INTO cards VALUES (?, ?, ?, ?)",
            [(number, *card, seal(NO_SEAL, number, *card)) for number, card in cards.items()],
        )
