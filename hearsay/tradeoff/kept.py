"""Choices that were made before, in the cache folder.

One file per choice, named by a hash of all that enters it. It is written beside its place under a
name of its own and renamed, so that processes which make the same choice at once leave one whole
file. What cannot be read or is damaged is made again; where nothing can be written nothing is kept.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from hearsay._files import cache_folder
from hearsay._version import VERSION

FOLDER = "rehearsals"
# Rises when the same facts may lead to another choice.
EDITION = 8


def key(*facts: Any) -> str:
    """A hash of what a choice depends on."""
    return hashlib.sha256(repr((VERSION, EDITION, *facts)).encode()).hexdigest()


def place(name: str) -> Path:
    return cache_folder() / FOLDER / f"{name}.json"


def read(name: str) -> dict[str, Any] | None:
    """What was kept under that key; None where nothing is, or nothing whole."""
    try:
        found = json.loads(place(name).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or found.pop("mark", None) != _mark(found):
        return None
    return found


def write(name: str, value: dict[str, Any]) -> None:
    """Keep it; silently not, where the folder does not take it."""
    where = place(name)
    content = json.dumps({**value, "mark": _mark(value)}, indent=1).encode()
    with contextlib.suppress(OSError):
        where.parent.mkdir(parents=True, exist_ok=True)
        handle, beside = tempfile.mkstemp(dir=where.parent, prefix=name[:16], suffix=".partial")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            os.replace(beside, where)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(beside)
            raise


def _mark(value: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
