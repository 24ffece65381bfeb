"""Files that are whole or not there: checkpoints with a checksum, replaced atomically, the previous one kept."""

from __future__ import annotations

import hashlib
import io
import os
from pathlib import Path

import numpy as np

NAME, PREVIOUS = "checkpoint.npz", "checkpoint.previous.npz"


class DamagedCheckpoint(ValueError):
    """The file is truncated or altered."""


def write_atomically(path: Path, content: bytes) -> None:
    """Write beside the target, flush to disk, then rename: a crash leaves the old file or the new one, never half of one."""
    beside = path.with_name(path.name + ".partial")
    with open(beside, "wb") as handle:
        handle.write(content)
        handle.flush()
        os.fsync(handle.fileno())
    os.replace(beside, path)


def save(folder: Path, arrays: dict[str, np.ndarray]) -> None:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]
    content = buffer.getvalue()
    path = folder / NAME
    if path.exists():
        os.replace(path, folder / PREVIOUS)
    write_atomically(path, content + hashlib.sha256(content).digest())


def load(folder: Path) -> dict[str, np.ndarray]:
    path = folder / NAME
    if not path.exists():
        if (folder / PREVIOUS).exists():
            path = folder / PREVIOUS  # the crash fell between the two renames
        else:
            raise FileNotFoundError(f"no checkpoint in {folder}: nothing to resume")
    content = path.read_bytes()
    body, digest = content[:-32], content[-32:]
    if len(content) < 64 or hashlib.sha256(body).digest() != digest:
        kept = folder / PREVIOUS
        hint = (
            f"; the one before it is kept as {kept.name}: rename it to {NAME} to resume from there"
            if kept.exists() and path.name == NAME
            else ""
        )
        raise DamagedCheckpoint(f"{path} is damaged (its checksum does not match): refusing to resume from it{hint}")
    with np.load(io.BytesIO(body), allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}
