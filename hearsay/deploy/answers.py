"""What an agent answers to whoever asks how it is ("hello"): what is looked for in it, and of what
kind that must be. It comes from another machine and may be anything; what is no answer counts as
none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

# What an agent may wait for beside its neighbours, where records come while it runs.
OWN_RECORDS = "its own records"
# Whole numbers that every reader of JSON has.
_MOST = 2**53


class Said(NamedTuple):
    """Names are those that it gave, whoever they are; `config` is None of an agent that has ended
    before anybody asked it.
    """

    round: int
    of: int
    done: bool
    private: bool
    spent: float
    unit: str
    config: str | None
    waiting_for: frozenset[str]
    alive: frozenset[str]
    hears: frozenset[str]
    dropped: int


def understood(facts: Any) -> Said | None:
    """An answer; None of what is not one."""
    if not isinstance(facts, Mapping):
        return None
    if not all(right(facts.get(key)) for key, right in _KINDS.items()):
        return None
    if not all(_whole(facts.get(key, 0)) for key in ("relay", "relays")) or facts["of"] < 1:
        return None
    return Said(
        round=min(facts["round"], facts["of"]),
        of=facts["of"],
        done=facts["done"],
        private=facts["private"],
        spent=float(facts["spent"]),
        unit=facts["unit"],
        config=facts["config"],
        waiting_for=frozenset(facts["waiting_for"]),
        alive=frozenset(facts["alive"]),
        hears=frozenset(facts["hears"]),
        dropped=sum(facts["dropped"].values()),
    )


def _whole(value: Any) -> bool:
    return type(value) is int and 0 <= value < _MOST


def _number(value: Any) -> bool:
    # Infinite is what no noise costs; what is no number at all is not above 0 either.
    return _whole(value) or (isinstance(value, float) and value >= 0)


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_text, value))


def _counts(value: Any) -> bool:
    return isinstance(value, Mapping) and all(map(_whole, value.values()))


_KINDS: dict[str, Callable[[Any], bool]] = {
    "round": _whole,
    "of": _whole,
    "done": _flag,
    "private": _flag,
    "spent": _number,
    "unit": lambda value: value in ("epsilon", "delta"),
    "config": _text,
    "waiting_for": _texts,
    "alive": _texts,
    "hears": _texts,
    "dropped": _counts,
}
