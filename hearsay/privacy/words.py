"""Budgets, horizons and agents in words, and lines that are wrapped: what certificates, reports
and the command line print with.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence

import numpy as np

from hearsay import _validate as require

_WIDTH = 118


def printable(text: str) -> str:
    """What would move a cursor, end a line or be no character at all, written out."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


class Row(str):
    """A row of the table, which stays whole."""


def wrapped(line: str) -> str:
    """Long prose continues under its own start."""
    if len(line) <= _WIDTH or isinstance(line, Row):
        return line
    indent = len(line) - len(line.lstrip())
    hang = (
        line.index("]") + 2
        if line.lstrip().startswith("[")
        else max(indent + 2, 12 if indent == 2 else indent)
    )
    return textwrap.fill(line, _WIDTH, subsequent_indent=" " * hang)


@require.plain_arguments
def show(value: float | None) -> str:
    if value is None:
        return "-"
    if math.isnan(value):
        return "undefined"
    if value < 0:  # a paper's formula may be
        return f"-{show(-value)}"
    if math.isinf(value):
        return "infinite"
    if 0 < value < 1e-300:  # digits that no power of ten of theirs can hold
        return "1e-300"
    # Rounded up in the last printed digit: a printed budget must not lie below the computed one.
    digits = 4 if value == 0 else max(0, 3 - math.floor(math.log10(value)))
    unit = 10.0**-digits
    return (
        f"{math.ceil(value / unit - 1e-9) * unit:,.{digits}f}"
        if value < 1e6
        else f"{min(value * 1.0005, 1.797e308):.3e}"
    )


@require.plain_arguments
def show_horizon(horizon: float) -> str:
    if math.isinf(horizon):
        return "infinite horizon"
    return f"{int(horizon):,} message{'' if horizon == 1 else 's'}"


@require.plain_arguments
def who(
    agents: Sequence[int] | np.ndarray,
    total: int,
    names: Sequence[str] = (),
    *,
    short: bool = False,
) -> str:
    """Agents in words, runs of neighbours joined: "every agent", "agents 0–3, 7",
    "40 agents (0, 2, …)"; `short`: 0–3, 7.
    """
    if len(agents) == total and total > 1:
        return "every agent"
    # Seven parts tell that there are more than six.
    parts = [name(a, names) for a in agents[:7]] if names else _joined(agents)
    shown = ", ".join(parts[:6])
    if len(parts) > 6:
        return f"{len(agents):,} agents ({shown}, …)"
    return shown if short else ("agent " if len(agents) == 1 else "agents ") + shown


@require.plain_arguments
def few(values: Sequence[object], between: str, most: int = 6) -> str:
    """Different values in words, the first of them and how many more there are."""
    distinct = list(dict.fromkeys(map(str, values)))
    more = [f"... and {len(distinct) - most:,} more"] if len(distinct) > most else []
    return between.join([*distinct[:most], *more])


def _joined(agents: Sequence[int] | np.ndarray) -> list[str]:
    """The first runs of neighbours, as far as they are told: "0–3", "7"."""
    ordered = np.sort(np.asarray(agents, np.int64))
    starts = np.flatnonzero(np.append(True, np.diff(ordered) != 1)[: len(ordered)])
    ends = np.append(starts[1:], len(ordered)) - 1
    parts: list[str] = []
    for one, two in zip(ordered[starts[:7]].tolist(), ordered[ends[:7]].tolist(), strict=True):
        parts += [f"{one}–{two}"] if two - one > 1 else map(str, range(one, two + 1))
    return parts


@require.plain_arguments
def name(agent: int, names: Sequence[str]) -> str:
    """An agent's own, or its number."""
    return names[agent] if names else str(agent)
