"""What the fields of `Faults` may hold (faults.py), as rules of _validate.py."""

from __future__ import annotations

from typing import Any

from hearsay import _validate as require

# Later than any round that a simulation counts.
NEVER = 2**31 - 1


def below_one(name: str, value: Any) -> float:
    value = require.nonnegative(name, value)
    if value >= 1:
        require.fail(name, "zero, or a share below 1", value)
    return value


def at_most_one(name: str, value: Any) -> float:
    value = require.nonnegative(name, value)
    if value > 1:
        require.fail(name, "a share between 0 and 1", value)
    return value


def at_least_one(name: str, value: Any) -> float:
    value = require.number(name, value)
    if value < 1:
        require.fail(name, "at least 1 round", value)
    return value


def require_reachable(length: str, share: str, part: float, mean: float | None) -> None:
    """Stretches of that mean length must leave room for the rounds between them."""
    if mean is not None and part / (1 - part) > mean:
        least = part / (1 - part)
        require.fail(length, f"at least {least:.3g} rounds with {share} = {part:g}", mean)


def latency(name: str, value: Any) -> int | tuple[int, int]:
    if not require.is_sequence(value):
        return require.natural(name, value)
    if len(value) != 2:
        require.fail(name, "one number of rounds, or the least and the most", value)
    least, most = (require.natural(name, one) for one in value)
    if least > most:
        require.fail(name, "one number of rounds, or the least and the most", (least, most))
    return least, most


def rounds_of_agents(name: str, value: Any) -> tuple[tuple[int, int], ...]:
    """(agent, round) pairs, every agent once."""

    def one(name: str, pair: Any) -> tuple[int, int]:
        if not require.is_sequence(pair) or len(pair) != 2:
            require.fail(name, "a list of (agent, round)", pair)
        return require.natural(name, pair[0]), require.count(name, pair[1])

    found = require.each(one)(name, value)
    if len(dict(found)) < len(found):
        require.fail(name, "a list that names every agent once", found)
    return found


def partition(name: str, value: Any) -> tuple[int, int, tuple[tuple[int, ...], ...]]:
    if not require.is_sequence(value) or len(value) != 3:
        require.fail(name, "a list of (since, until, groups)", value)
    since, until = _stretch(name, value[0], value[1])
    groups = require.each(require.each(require.natural))(name, value[2])
    named = [agent for group in groups for agent in group]
    if not named or len(set(named)) < len(named):
        require.fail(name, "made of groups that name every agent at most once", groups)
    return since, until, groups


def outage(name: str, value: Any) -> tuple[int, int, int, int]:
    if not require.is_sequence(value) or len(value) != 4:
        require.fail(name, "a list of (hearer, sender, since, until)", value)
    return (
        require.natural(name, value[0]),
        require.natural(name, value[1]),
        *_stretch(name, value[2], value[3]),
    )


def _stretch(name: str, since: Any, until: Any) -> tuple[int, int]:
    since, until = require.natural(name, since), require.natural(name, until)
    if not since < until:
        require.fail(f"until in {name}", f"after {since}, where it begins", until)
    return since, min(until, NEVER)
