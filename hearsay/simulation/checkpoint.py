"""Checkpoints: arrays with a checksum, replaced atomically, the previous one kept.

They hold the agents' states, which are private: so their names say.
"""

from __future__ import annotations

import hashlib
import io
from pathlib import Path

import numpy as np

from hearsay._files import private, renamed, write_atomically

_OLD = ("checkpoint.npz", "checkpoint.previous.npz")
NAME, PREVIOUS = map(private, _OLD)


class DamagedCheckpoint(ValueError):
    """The file is truncated or altered."""


def save(folder: Path, arrays: dict[str, np.ndarray]) -> None:
    """Into the folder; the checkpoint before this one is kept beside it."""
    write(folder / NAME, arrays, folder / PREVIOUS)


def write(path: Path, arrays: dict[str, np.ndarray], previous: Path | None = None) -> None:
    """Arrays and their checksum, as one file."""
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]
    content = buffer.getvalue()
    write_atomically(path, content + hashlib.sha256(content).digest(), previous)


def exists(folder: Path) -> bool:
    """The folder holds a run. Private files of an earlier version get the names of today."""
    if any((folder / name).exists() for name in _OLD):
        renamed(folder, *_OLD, "metrics.csv", "models.npz", "report.html")
    return any((folder / name).exists() for name in (NAME, PREVIOUS))


def require_free(
    folder: Path,
    resume: bool,
    overwrite: bool,
    words: tuple[str, str] = ("resume=True", "overwrite=True"),
) -> None:
    """Refuse a folder that holds a run, unless it is to be continued or replaced.

    Args:
      words: how one asks for either.
    """
    if resume and overwrite:
        raise ValueError(f"{words[1]} must be left out with {words[0]}")
    if exists(folder) and not resume and not overwrite:
        raise ValueError(f"{folder} holds a run: {words[0]} continues it, {words[1]} replaces it")


def load(folder: Path) -> dict[str, np.ndarray]:
    """What `save` saved last, or DamagedCheckpoint."""
    return unpacked(packed(folder))


def packed(folder: Path) -> bytes:
    """What `save` saved last as one piece, to be handed on; or DamagedCheckpoint."""
    exists(folder)
    path = folder / NAME
    if not path.exists():
        if (folder / PREVIOUS).exists():
            path = folder / PREVIOUS  # the crash fell between the two renames
        else:
            raise FileNotFoundError(f"no checkpoint in {folder}: nothing to resume")
    kept = folder / PREVIOUS
    return _content(path, kept if path.name == NAME else None)


def read(path: Path, kept: Path | None = None) -> dict[str, np.ndarray]:
    """What `write` wrote, or DamagedCheckpoint; `kept` may hold an earlier one."""
    return unpacked(_content(path, kept))


def _content(path: Path, kept: Path | None) -> bytes:
    content = path.read_bytes()
    body, digest = content[:-32], content[-32:]
    if len(content) < 64 or hashlib.sha256(body).digest() != digest:
        hint = (
            f"; the one before it is kept as {kept.name}: rename it to {NAME} to resume from there"
            if kept is not None and kept.exists()
            else ""
        )
        raise DamagedCheckpoint(
            f"{path} is damaged (its checksum does not match): refusing to resume from it{hint}"
        )
    return body


def unpacked(body: bytes) -> dict[str, np.ndarray]:
    """The arrays of what is packed."""
    with np.load(io.BytesIO(body), allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}
