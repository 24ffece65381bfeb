"""Which algorithms have been through `hearsay.check_algorithm`, and where that is written down.

hearsay's own algorithms are checked by its tests. For a class from elsewhere a passed check leaves
a stamp in the user's cache folder (HEARSAY_CACHE), for this very class: its module and name, the
digest of the source files of the class and of what it inherits from outside hearsay, its options
and schedules but for the step and the noise, and hearsay's version. A certificate looks for it each
time. Where the source has changed since, or an option, or hearsay, the coefficients are their
author's word again. A check that failed is noted in the same way: certificates say that too.

A stamp is a convenience, no proof: whoever can write to the cache folder can write one, and what
the class imports from other files is not in the digest. It says that a search found nothing, on the
machine that issued the certificate.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
from dataclasses import fields
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from hearsay._files import cache_folder, write_atomically
from hearsay._parts import noise_fields
from hearsay._version import VERSION
from hearsay.algorithms.outside import is_own
from hearsay.base import Algorithm
from hearsay.certification.told_apart import UNKNOWN, of_class, of_value
from hearsay.privacy.description import REFUTED, UNCHECKED

# A check tries several steps and samplers, and noise scales with what it hides. Averages, where
# that is hearsay's own option, never leave the agent.
_ANY = ("step", "sampling")
_OURS = ("average",)
_REFUTED = "refuted"


class Standing(NamedTuple):
    """What is known of an algorithm's coefficients.

    Args:
      checked: they have been through the contract's checks.
      declared: what a certificate says of them; "" for hearsay's own.
    """

    checked: bool
    declared: str = ""


def standing(algorithm: Algorithm) -> Standing:
    """What a certificate of that algorithm may say of its coefficients."""
    if is_own(type(algorithm)):
        return Standing(True)
    facts, path = _facts(algorithm), place(algorithm)
    if facts is None or path is None:
        return Standing(False, UNCHECKED.text)
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return Standing(False, UNCHECKED.text)
    if known == {**facts, _REFUTED: True}:
        return Standing(False, REFUTED.text)
    if known != facts:
        return Standing(False, UNCHECKED.text)
    return Standing(
        True,
        "how far a record moves the state and the messages is as the author of the algorithm says;"
        f" hearsay check-algorithm {VERSION} searched for counterexamples and found none (source"
        f" {facts['source'][:16]}), which is no proof",
    )


def stamp(algorithm: Algorithm, *, refuted: bool = False) -> Path | None:
    """Note that the algorithm has passed, or failed; None where source and options do not tell it
    from others.
    """
    facts, path = _facts(algorithm), place(algorithm)
    if facts is None or path is None:
        return None
    path.parent.mkdir(parents=True, exist_ok=True)
    said = {**facts, _REFUTED: True} if refuted else facts
    write_atomically(path, json.dumps(said, indent=1).encode())
    return path


def place(algorithm: Algorithm) -> Path | None:
    """Where the stamp of that class with those options is."""
    kind = type(algorithm)
    if is_own(kind):
        return None
    key = json.dumps([kind.__module__, kind.__qualname__, _options(algorithm)])
    return cache_folder() / "checked" / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"


def _facts(algorithm: Algorithm) -> dict[str, Any] | None:
    kind = type(algorithm)
    files, options, (held, whole) = _sources(kind), _options(algorithm), of_class(kind)
    hidden = not whole or any(UNKNOWN in value for value in options.values())
    if files is None or hidden or not _known_by_name(kind):
        return None
    return {
        "module": kind.__module__,
        "class": kind.__qualname__,
        "options": options,
        "source": _digest(_seen(files)),
        "holds": held,
        "hearsay": VERSION,
    }


def _options(algorithm: Algorithm) -> dict[str, str]:
    """The options on which an update may turn."""
    kind = type(algorithm)
    left = {*_ANY, *noise_fields(kind), *(name for name in _OURS if _is_ours(kind, name))}
    return {
        f.name: of_value(getattr(algorithm, f.name))
        for f in fields(algorithm)
        if f.name not in left
    }


def _is_ours(kind: type, field: str) -> bool:
    """Whether that option is hearsay's, and not one of that name."""
    return next(
        is_own(one) for one in kind.__mro__ if field in vars(one).get("__annotations__", {})
    )


def _known_by_name(kind: type) -> bool:
    """Whether name, source and options tell the class from others: a function makes many of one
    name, and what only `__init__` sees is in no field.
    """
    hidden = any(
        "InitVar" in str(hint)
        for one in kind.__mro__
        for hint in vars(one).get("__annotations__", {}).values()
    )
    return "<locals>" not in kind.__qualname__ and not hidden


def source_of(kind: type) -> str:
    """Of a class from outside: where it is from, the digest of its source and of what it holds; ""
    of hearsay's.
    """
    if is_own(kind):
        return ""
    files, (held, _) = _sources(kind), of_class(kind)
    source = "not in a file" if files is None else _digest(_seen(files))
    return f"{kind.__module__}, {source}, holding {held[:16]}"


def options_of(algorithm: Algorithm) -> str:
    """Of an algorithm from outside: the digest of what its options hold; "" of hearsay's."""
    if is_own(type(algorithm)):
        return ""
    held = [f"{f.name} {of_value(getattr(algorithm, f.name))}" for f in fields(algorithm)]
    return hashlib.sha256("\n".join(held).encode()).hexdigest()


def _seen(files: list[str]) -> tuple[tuple[str, int, int], ...]:
    return tuple((f, os.stat(f).st_mtime_ns, os.stat(f).st_size) for f in files)


def _sources(kind: type) -> list[str] | None:
    """The files of the class and of its bases, less hearsay's and Python's."""
    found = []
    for one in kind.__mro__:
        if is_own(one) or one.__module__ in ("builtins", "abc"):
            continue
        try:
            path = inspect.getsourcefile(one)
        except (TypeError, OSError):
            return None
        if path is None or not os.path.isfile(path):
            return None
        found.append(path)
    return sorted(set(found)) or None


@lru_cache(maxsize=64)
def _digest(files: tuple[tuple[str, int, int], ...]) -> str:
    """Of the files' contents; times and sizes say when to read them again."""
    found = hashlib.sha256()
    for path, _, size in files:
        found.update(f"{size}\n".encode())
        found.update(Path(path).read_bytes())
    return found.hexdigest()
