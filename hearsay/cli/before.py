"""What earlier fits have told of the same tables, as far as that can be known from folders.

Epsilons of fits on the same rows add up, and no certificate knows of another one. A finished fit
keeps digests of its tables in a private file; the next one looks for them in its own folder (with
--overwrite) and in those beside it. A file in which one row was changed, or a folder elsewhere, is
not found: nothing is promised, and the summary says of every fit that another one adds to it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hearsay._files import private, write_atomically

KEPT = private("tables.json")


class Fit(NamedTuple):
    """A finished fit.

    Args:
      folder: of it; "" of one that was overwritten.
      tables: digests of the files.
      epsilon: of every agent.
      delta: at which.
      protects: adjacency and planned colluders.
      seed: of the noise.
      settings: a digest of the schema and of all options: with the same seed it is the same fit
        again, which tells nothing more.
    """

    folder: str
    tables: tuple[str, ...]
    epsilon: float
    delta: float
    protects: str
    seed: int
    settings: str


def digests(tables: Sequence[Path]) -> tuple[str, ...]:
    """Of the files as they are; what cannot be read has none, and whoever reads it says why."""
    found = []
    for table in tables:
        with contextlib.suppress(OSError), table.open("rb") as file:
            found.append(hashlib.file_digest(file, "sha256").hexdigest())
    return tuple(found)


def earlier(folder: Path, mine: Fit) -> list[Fit]:
    """Fits that had one of these tables, in the folder and beside it, but for this very one."""
    # Each once: the same fit in another folder is the same model.
    found = {one[1:]: one for place in reversed(_places(folder)) for one in _read(place)}
    found.pop(mine[1:], None)
    return [one for one in reversed(found.values()) if set(one.tables) & set(mine.tables)]


def keep(folder: Path, mine: Fit) -> None:
    """Remember it, and those that were in this folder before."""
    others = [one for one in _read(folder) if one[1:] != mine[1:]]
    rows = [[*one._replace(folder="")] for one in (*others, mine)]
    write_atomically(folder / KEPT, json.dumps(rows).encode())


def words(found: Sequence[Fit], mine: Fit) -> str:
    """What it means that these were before."""
    folders = sorted({one.folder for one in found})
    times = "once" if len(found) == 1 else f"{len(found)} times"
    said = f"These tables, or some of them, were fitted {times} before ({', '.join(folders)}). "
    if any(one.seed == mine.seed for one in found):
        return said + (
            "The seed is the same: so is the noise of both, and what differs between the models"
            " has none that any epsilon counts. Leave --seed out, or publish one of them only."
        )
    said += "Who has all of these models has heard of the same rows more than once: "
    if any(one.protects != mine.protects for one in found):
        return said + "epsilons add up (hearsay.add_up; docs/estimators.md, Next month)."
    epsilon = sum(one.epsilon for one in (*found, mine))
    delta = sum(one.delta for one in (*found, mine))
    return said + (
        f"together they cost epsilon {epsilon:g} at delta {delta:g}, and not {mine.epsilon:g}"
        " (docs/estimators.md, Next month)."
    )


def _places(folder: Path) -> list[Path]:
    beside = folder.absolute().parent
    return sorted(path.parent for path in beside.glob(f"*/{KEPT}"))


def _read(folder: Path) -> list[Fit]:
    """Nothing where there is no such file, or none that can be read: it is a courtesy."""
    with contextlib.suppress(OSError, ValueError, TypeError):
        rows: list[Any] = json.loads((folder / KEPT).read_text(encoding="utf-8"))
        return [
            Fit(folder.name, tuple(tables), float(epsilon), float(delta), *rest)
            for _, tables, epsilon, delta, *rest in rows
        ]
    return []
