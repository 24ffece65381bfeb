"""How often one record may enter an agent's batches: the pattern that turns prices into a budget.

The budget is additive in the uses of a record (see recursion.py): if w(l) is the price of using it
at step l, a pattern costs the largest sum of prices over the sets of steps it allows.

    Every            at every step                       sum_l w(l)
    Sampled(q)       at any step, by a secret coin       sum_l w(l)  (unless amplified: sampled.py)
    FromArrival      from its arrival on, at every step  sum_l w(l)  (the worst arrival is step 0)
    Once             at one step                         max_l w(l)
    Periodic(T)      every T-th step from some offset    max_o sum_j w(o + j T)
    Rolling(m, n)    when the window passes over it      max_r sum_{k: r in window k} w(k)
                     windows of m(k) of n records, end to end, round and round

A sampler (problems/sampling/samplers.py) carries its pattern, so the batches of a run and its
certificate cannot disagree.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

from hearsay import _validate as require
from hearsay.schedules import Schedule, schedule


class Participation(ABC):
    """A rule that says which sets of steps may use one record."""

    # One set of uses is the worst of all: every step.
    every: ClassVar[bool] = False
    # A record is used at one step and never again.
    single: ClassVar[bool] = False

    @property
    def gap(self) -> float:
        """The least number of steps from one use of a record to its next; inf: there is none."""
        return 1

    @property
    def chance(self) -> float | None:
        """How likely a record is used at a step; None where that is no matter of chance."""
        return None

    @property
    def records(self) -> int:
        """How many are told apart: 1 where each fares like any other."""
        return 1

    def joined(self, near: float, far: float) -> float:
        """What a pattern pays in all that pays at most `near` before some step, and at most `far`
        from there on.
        """
        return near + far

    @abstractmethod
    def total(self, prices: np.ndarray) -> float:
        """The largest sum of prices that the pattern allows."""

    @abstractmethod
    def candidates(self, horizon: int) -> int:
        """How many patterns to try; the worst of them is the worst there is."""

    @abstractmethod
    def used(self, step: int, candidates: int) -> np.ndarray:
        """Which of the candidates use the record at this step."""

    def uses(self, horizon: int) -> np.ndarray:
        """All of that at once, a boolean array (candidate, step)."""
        many = self.candidates(horizon)
        return np.stack([self.used(step, many) for step in range(horizon)], axis=1)

    @abstractmethod
    def tail(self, first: float, integral: float) -> float:
        """A bound on what prices below a decreasing function add after its first value,
        given its integral to infinity.
        """

    @abstractmethod
    def __str__(self) -> str: ...


@dataclass(frozen=True)
class Every(Participation):
    """At every step."""

    every: ClassVar[bool] = True

    def total(self, prices: np.ndarray) -> float:
        return float(np.sum(np.sort(prices)))

    def candidates(self, horizon: int) -> int:
        return 1

    def used(self, step: int, candidates: int) -> np.ndarray:
        return np.ones(1, dtype=bool)

    def tail(self, first: float, integral: float) -> float:
        return first + integral

    def __str__(self) -> str:
        return "every step (a record may be in every batch)"


@dataclass(frozen=True)
class FromArrival(Every):
    """From the record's arrival on, at every step."""

    def __str__(self) -> str:
        return "history (from its arrival on a record is in every gradient)"


@dataclass(frozen=True)
class Sampled(Every):
    """At every step with probability `rate`, by coins that nobody sees: charged in full it is
    `Every`.
    """

    rate: float

    def __post_init__(self) -> None:
        require.settle(self, rate=require.share)

    @property
    def chance(self) -> float:
        return self.rate

    def __str__(self) -> str:
        return f"poisson (a record is in each batch with probability {self.rate:g}, secretly)"


@dataclass(frozen=True)
class Once(Participation):
    """At one step."""

    single: ClassVar[bool] = True

    @property
    def gap(self) -> float:
        return math.inf

    def joined(self, near: float, far: float) -> float:
        return max(near, far)

    def total(self, prices: np.ndarray) -> float:
        return float(np.max(prices, initial=0.0))

    def candidates(self, horizon: int) -> int:
        return horizon

    def used(self, step: int, candidates: int) -> np.ndarray:
        return np.arange(candidates) == step

    def tail(self, first: float, integral: float) -> float:
        return first

    def __str__(self) -> str:
        return "once (a fresh stream: a record is in one batch only)"


@dataclass(frozen=True)
class Periodic(Participation):
    """At every `period`-th step from some offset."""

    period: int

    def __post_init__(self) -> None:
        require.settle(self, period=require.count)

    @property
    def gap(self) -> float:
        return self.period

    def total(self, prices: np.ndarray) -> float:
        # A period that is longer than the run is one use, at any step of it.
        period = min(self.period, max(1, len(prices)))
        padded = np.zeros(-(-len(prices) // period) * period)
        padded[: len(prices)] = prices
        return float(np.max(np.sum(padded.reshape(-1, period), axis=0), initial=0.0))

    def candidates(self, horizon: int) -> int:
        return min(self.period, horizon)

    def used(self, step: int, candidates: int) -> np.ndarray:
        return np.arange(candidates) == step % self.period

    def tail(self, first: float, integral: float) -> float:
        return first + integral / self.period

    def __str__(self) -> str:
        return f"cyclic (a record is in one batch out of {self.period}, in a fixed order)"


@dataclass(frozen=True)
class Rolling(Participation):
    """Step k uses the min(size(k), held) records after those of step k-1, round the data set."""

    size: Schedule
    held: int

    def __post_init__(self) -> None:
        require.settle(self, size=schedule, held=require.count)

    @property
    def records(self) -> int:
        return self.held

    def windows(self, horizon: int) -> tuple[np.ndarray, np.ndarray]:
        """(first record, number of records) of every step."""
        with np.errstate(over="ignore"):
            sizes = np.minimum(self.size(np.arange(horizon)), self.held)
        # A record that no window ever passes over would cost nothing.
        if not np.all(sizes >= 1):
            require.fail("size", "at least 1 record at every step", float(np.min(sizes)))
        sizes = sizes.astype(np.int64)
        return (np.cumsum(sizes) - sizes) % self.held, sizes

    def total(self, prices: np.ndarray) -> float:
        if not np.all(np.isfinite(prices)):
            return float("inf")
        # Each step adds its price to a run of records: two marks per run, one more where it passes
        # the end, and a running sum.
        starts, sizes = self.windows(len(prices))
        marks = np.zeros(2 * self.held + 1)
        np.add.at(marks, starts, prices)
        np.add.at(marks, starts + sizes, -np.asarray(prices))
        spent = np.cumsum(marks)[:-1]
        return float(np.max(spent[: self.held] + spent[self.held :]))

    def candidates(self, horizon: int) -> int:
        return self.held

    def used(self, step: int, candidates: int) -> np.ndarray:
        starts, sizes = _rolled(self, 1 << max(10, step.bit_length()))
        return (np.arange(candidates) - starts[step]) % self.held < sizes[step]

    def tail(self, first: float, integral: float) -> float:
        return first + integral

    def __str__(self) -> str:
        return f"rolling (batches of {self.size} run end to end round {self.held} records)"


@lru_cache(maxsize=16)
def _rolled(pattern: Rolling, horizon: int) -> tuple[np.ndarray, np.ndarray]:
    return pattern.windows(horizon)


PATTERNS: dict[str, type[Participation]] = {
    kind.__name__: kind for kind in (Every, Sampled, FromArrival, Once, Periodic, Rolling)
}
