"""How times and speeds differ between agents, between links and from round to round.

A law is written as people write it in a file or on the command line:

    0.05                              the same for all
    [0.05, 0.2, 0.05]                 one for each agent
    "uniform:0.01:0.1"                anything between the two ends
    "lognormal:0.05:0.5"              a median, and the deviation of the logarithm
    "lognormal:0.05:0.5:0.2"          the last number is the jitter

The two drawn laws are drawn once for each agent (or link), which stays as fast or slow as it is.
What is drawn anew in every round is the jitter: a lognormal factor of median 1, whose logarithm
has that deviation. A median and the deviation 0 are a constant with jitter.

Draws are found from (seed, purpose, exchange) alone: no exchange needs those before it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from hearsay import _validate as require

Written = float | str | tuple[float, ...]
# What draws are for: each has its own.
LATENCY, BANDWIDTH, COMPUTE = range(3)
_PARTS = {"uniform": ("low end", "high end"), "lognormal": ("median", "sigma")}
_FORMS = (
    "a number, a list with one for each agent, uniform:LOW:HIGH or lognormal:MEDIAN:SIGMA (and"
    " :JITTER)"
)


class Law(NamedTuple):
    """What was written, read.

    Args:
      values: one number, one for each agent, or the two of a drawn law.
      kind: "uniform", "lognormal", or "" where nothing is drawn.
      jitter: the deviation of the logarithm of what every round is multiplied by.
    """

    values: tuple[float, ...]
    kind: str = ""
    jitter: float = 0.0

    @property
    def table(self) -> bool:
        """One number for each agent."""
        return not self.kind and len(self.values) > 1

    def once(self, seed: int, purpose: int, count: int) -> np.ndarray:
        """So many of them, as they stay throughout a run."""
        if not self.kind:
            return np.array(np.broadcast_to(self.values, count))
        rng, (first, second) = _generator(seed, purpose, 0), self.values
        if self.kind == "uniform":
            return rng.uniform(first, second, count)
        return first * np.exp(second * rng.standard_normal(count))

    def at(self, values: np.ndarray, seed: int, purpose: int, exchange: int) -> np.ndarray:
        """The same in that exchange."""
        if not self.jitter:
            return values
        rng = _generator(seed, purpose, 1 + exchange)
        return values * np.exp(self.jitter * rng.standard_normal(len(values)))


def written(name: str, value: Any, least: require.Rule) -> Written:
    """A law as it may be written, in plain numbers; refused where it is none.

    Args:
      name: what error messages call it.
      value: what was written.
      least: the rule that every value must follow.
    """
    if isinstance(value, str):
        read(name, value, least)
        return value
    if require.is_sequence(value):
        found = require.each(least)(name, value)
        if not found:
            require.fail(name, _FORMS, value)
        return found
    return least(name, value)


def read(name: str, value: Written, least: require.Rule) -> Law:
    """The law that was written; the arguments are those of `written`."""
    if isinstance(value, tuple):
        return Law(value)
    if not isinstance(value, str):
        return Law((value,))
    kind, *rest = value.split(":")
    if kind not in _PARTS or not 2 <= len(rest) <= 3:
        require.fail(name, _FORMS, value)
    try:
        numbers = [float(part) for part in rest]
    except ValueError:
        require.fail(name, _FORMS, value)
    first = least(f"{_PARTS[kind][0]} of {name}", numbers[0])
    second = require.nonnegative(f"{_PARTS[kind][1]} of {name}", numbers[1])
    if kind == "uniform" and second < first:
        require.fail(f"high end of {name}", f"at least the low end {first:g}", second)
    jitter = require.nonnegative(f"jitter of {name}", numbers[2] if numbers[2:] else 0.0)
    return Law((first, second), kind, jitter)


def _generator(seed: int, purpose: int, exchange: int) -> np.random.Generator:
    # The highest word of the counter: the lower ones count the draws of an exchange.
    return np.random.Generator(np.random.Philox(key=[seed, purpose], counter=[0, 0, 0, exchange]))
