"""Checks for public constructors: every message reads "NAME must be RULE, got VALUE"."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable
from typing import Any, NoReturn

_LONGEST = 300  # characters of a value that an error message repeats


def fail(name: str, rule: str, value: Any) -> NoReturn:
    raise ValueError(f"{name} must be {rule}, got {said(value)}")


def said(value: Any) -> str:
    """A value as an error message has room for it."""
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}... ({len(text):,} characters)"


def number(name: str, value: Any) -> float:
    """A finite real number (not a bool, not a string)."""
    if isinstance(value, bool) or (not isinstance(value, (int, float)) and not hasattr(value, "__float__")):
        raise TypeError(f"{name} must be a number, got {value!r}")
    value = float(value)
    if not math.isfinite(value):
        fail(name, "finite", value)
    return value


def positive(name: str, value: Any) -> float:
    value = number(name, value)
    if value <= 0:
        fail(name, "positive", value)
    return value


def nonnegative(name: str, value: Any) -> float:
    value = number(name, value)
    if value < 0:
        fail(name, "zero or positive", value)
    return value


def count(name: str, value: Any, least: int = 1) -> int:
    """A whole number that is at least `least`."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} must be a whole number, got {value!r}")
    value = int(value.__index__())
    if value < least:
        fail(name, f"at least {least}", value)
    return value


def fraction(name: str, value: Any) -> float:
    value = number(name, value)
    if not 0 < value < 1:
        fail(name, "strictly between 0 and 1", value)
    return value


def one_of(name: str, value: Any, allowed: Iterable[str]) -> str:
    """A known word; an unknown one is answered with the nearest known one."""
    allowed = list(allowed)
    if value in allowed:
        return value
    near = difflib.get_close_matches(str(value).replace("_", "-"), allowed, n=1, cutoff=0.5)
    near = near or difflib.get_close_matches(str(value), allowed, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {value!r}{hint}")


def flag(name: str, value: Any) -> bool:
    """True or False, and nothing that merely counts as one."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be true or false, got {value!r}")
    return value


def instance(name: str, value: Any, kind: type, hint: str) -> None:
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be {hint}, got {value!r:.80}")


def per_agent(name: str, value: Any, agents: int) -> list[float]:
    """One positive number for all agents, or one for each."""
    if isinstance(value, str) or not hasattr(value, "__len__") or getattr(value, "ndim", 1) == 0:
        return [positive(name, value)] * agents
    if len(value) != agents:
        fail(name, f"one number, or one for each of the {agents} agents", list(value))
    return [positive(name, v) for v in value]
