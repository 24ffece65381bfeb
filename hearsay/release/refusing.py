"""What is no released model and may be taken for one: an agent's own model, other private files.

A file is known by its name (`private-`) or, where it was renamed, by how it begins.
"""

from __future__ import annotations

from pathlib import Path

from hearsay._files import PRIVATE

# How a file begins -> what it is.
_BEGINNINGS = {
    b"\x93NUMPY": "a NumPy array, as an agent's own model is",
    b"PK\x03\x04": "NumPy arrays, as the models and checkpoints of simulations are",
    b"SQLite format 3\x00": "a ledger, which holds an agent's state",
}
_INSTEAD = (
    ", which no certificate covers: publish the average of messages instead (hearsay network"
    " release net.toml for deployed agents, run.release(folder=...) for a simulation)"
)


def require_not_private(path: Path) -> None:
    """Refuse a file that holds private values, or a folder that has nothing else."""
    if path.is_dir():
        found = sorted(file.name for file in path.iterdir() if _private(file))
        if found:
            more = f" and {len(found) - 1} more" if len(found) > 1 else ""
            there = path / "released"
            instead = f": the released model is in {there}" if there.is_dir() else _INSTEAD
            raise ValueError(
                f"{path} must be the folder of a released model, got one with private files"
                f" ({found[0]}{more}){instead}"
            )
        return
    if not path.is_file():
        return
    with open(path, "rb") as file:
        start = file.read(16)
    kind = next((what for begin, what in _BEGINNINGS.items() if start.startswith(begin)), None)
    if kind is None and _private(path):
        kind = "a file that holds private values"
    if kind is not None:
        raise ValueError(f"{path} must be a released model, got {kind}{_INSTEAD}")


def _private(path: Path) -> bool:
    # NAME.model.npy is what earlier versions called an agent's own model.
    name = path.name
    return name.startswith(PRIVATE) or f".{PRIVATE}" in name or name.endswith(".model.npy")
