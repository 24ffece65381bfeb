"""Messages of secret batches: a record is in each of them by a coin that nobody knows.

That helps where the gradient is taken at a point that the transcript determines and nothing private
is carried on from message to message: given the transcript, every message is then a mixture by the
record's own coin (mechanisms/amplification.py), whatever the other agents send. Where a state is
private, or noise is taken back later, it is not, and such algorithms are charged as if the record
were in every batch (`Algorithm.amplifies`).

A record that is emptied in its place, or replaced by another one, keeps its coin and its slot. Its
exposure is that of a record that is emptied in both cases: one that is replaced is there with the
one and with the other value, each at most so far from where the message is without it
(mechanisms/opposed.py).

**Slots.** A batch has a fixed number of slots, so that its size does not show in time or memory. If
the *other* records fill all of them, which happens with probability p = P(Binomial(N - 1, rate) >=
slots) whatever the record and its coin are, the argument fails; otherwise nothing is dropped. So
the rounds cost rounds x p of delta together, whatever the rule by which records are dropped.

Whichever coins fall, the cost is at most that of a record in every batch (`full`): an emptied or
replaced record has the same coins and slots.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import scipy
from scipy import optimize

from hearsay import _validate as require
from hearsay.mechanisms import Gaussian, Mechanism, rounding
from hearsay.mechanisms.amplification import Losses, amplified_pure, subset_epsilon
from hearsay.mechanisms.convert import OUTWARD
from hearsay.mechanisms.opposed import opposed_pure
from hearsay.privacy.account import Account, Assumption, Bound, Effort, Numbers, marked
from hearsay.privacy.adjacency import RELATIONS, ZERO_OUT
from hearsay.privacy.float64 import Float64
from hearsay.privacy.participation import Participation

# A composition takes a tenth of a second: what is spent in between is rounded up.
_EXACT = 10
_COMPOSED = 2**12  # operations, about, for each message of a composition
# Errors of so little total variation, as a share of delta, are in what is put aside anyhow.
_FREE = 1e-6
# How exactly noise is calibrated.
_CALIBRATED = 1e-6


@dataclass(frozen=True)
class SampledAccount(Account):
    """What all kinds of secret batches share.

    Args:
      full: the cost of a record that is in every batch; its exposure is that of a record in one.
      held: how many records the agent has, which is public.
    """

    amplified: ClassVar[bool] = True

    full: Account
    held: int

    def __post_init__(self) -> None:
        require.settle(self, held=require.count)
        if not self.full.mechanism.amplifies:
            require.fail("mechanism", "laplace or gaussian", self.full.mechanism.name)
        if self.full.memory:
            require.fail("full", "an account of messages that carry nothing private on", "one")
        if not self.full.pattern.every:
            require.fail("pattern", "that of a record in every batch", str(self.full.pattern))

    # What it costs.

    @abstractmethod
    def _epsilon(self, shifts: np.ndarray, delta: float, errors: np.ndarray | float = 0.0) -> float:
        """epsilon at delta of messages with those shifts, over the scale of their noise; `errors`
        are those of an empty record, which rounding may move by as much.
        """

    @abstractmethod
    def _pure(self, shifts: np.ndarray, errors: np.ndarray | float = 0.0) -> float:
        """Pure epsilon of the same messages; infinite for a law that has none."""

    @property
    @abstractmethod
    def rate(self) -> float:
        """How likely a record is in a batch."""

    @property
    @abstractmethod
    def secrecy(self) -> Assumption:
        """What it rests on beside what `full` does."""

    @property
    def whole(self) -> Account:
        """The cost of what happens to the record, were it in every batch."""
        return self.full

    def shifts(self, messages: int) -> np.ndarray:
        """How far each message moves if the record is in its batch, over the scale of its noise, in
        the norm of the law.
        """
        return self.full.largest_shifts(require.natural("messages", messages))

    def cost(self, horizon: float, delta: float | None = None) -> Bound:
        """epsilon at delta, or pure epsilon where no delta is given."""
        horizon = require.horizon("horizon", horizon)
        delta = self._delta(delta)
        if horizon == 0:
            return Bound(0.0)
        if math.isinf(horizon):
            return Bound(math.inf, reason="secret batches are certified for a number of messages")
        whole = self.whole.cost(horizon)
        if not math.isfinite(whole.value):
            return whole
        shifts = self.shifts(int(horizon))
        found = self._pure(shifts) if delta is None else self._epsilon(shifts, delta)
        reason = "" if math.isfinite(found) else _NO_ROOM
        return Bound(found, int(horizon), reason=reason)

    def spent(self, messages: Sequence[int], delta: float | None = None) -> np.ndarray:
        counts = np.asarray(require.each(require.natural)("messages", messages), dtype=int)
        delta = self._delta(delta)
        distinct = np.unique(counts[counts > 0])
        if not len(distinct):
            return np.zeros(len(counts))
        marks = distinct[marked(len(distinct), _EXACT) - 1]
        each = np.maximum.accumulate([self.cost(int(m), delta).value for m in marks])
        found = each[np.minimum(np.searchsorted(marks, counts), len(marks) - 1)]
        return np.where(counts == 0, 0.0, found)

    def readable(self, spent: np.ndarray, delta: float | None) -> np.ndarray:
        """Numbers are in the unit already."""
        self._delta(delta)
        return spent

    def within(self, limit: float, delta: float | None) -> float:
        self._delta(delta)
        return require.positive("limit", limit)

    def factor(self, epsilon: float, horizon: float, delta: float | None = None) -> float:
        """By a search: epsilon falls with the noise."""
        epsilon = require.positive("epsilon", epsilon)
        delta = self._delta(delta)
        now = self.cost(horizon, delta)
        # Where there is little noise a loss may be too large for the library's grid.
        if now.reason and now.reason != _NO_ROOM:
            raise ValueError(
                f"no amount of noise on this schedule gives a finite budget: {now.reason}"
            )
        # An epsilon of 0 at delta may be far more noise than was asked for.
        if not np.any(self.shifts(int(horizon))):
            return 1.0

        def excess(log: float) -> float:
            got = self.scaled(math.exp(log)).cost(horizon, delta).value
            return math.log(max(got, 1e-300) / epsilon) if math.isfinite(got) else 700.0

        low = high = math.log(self._guess(epsilon, int(horizon), delta))
        while excess(high) > 0:
            high += 0.1 + (high - low) / 2
            if high > 700:
                raise ValueError(f"no amount of noise gives epsilon = {epsilon:g}: {_NO_ROOM}")
        low = high
        while excess(low) <= 0:
            low -= 0.1 + (high - low) / 2
            if low < -700:
                return math.exp(low)
        found = float(optimize.brentq(excess, low, high, xtol=_CALIBRATED / 4))
        while excess(found) > 0:
            found += _CALIBRATED / 2
        return math.exp(found)

    def _guess(self, epsilon: float, messages: int, delta: float | None) -> float:
        """About right: many messages are close to one Gaussian mechanism (a central limit)."""
        shifts = self.shifts(messages)
        if delta is None:
            return max(float(self._pure(shifts)) / epsilon, 1e-6)
        wanted = math.sqrt(2 * Gaussian().number(epsilon, delta))

        def mu(factor: float) -> float:
            each = np.expm1(np.minimum((shifts / factor) ** 2, 600.0))
            return self.rate * math.sqrt(float(np.sum(each)))

        low, high = 1e-9, 1.0
        while mu(high) > wanted:
            high *= 2
        for _ in range(60):
            middle = math.sqrt(low * high)
            low, high = (middle, high) if mu(middle) > wanted else (low, middle)
        return high

    def certified(
        self, horizon: float, delta: float | None, float64: Float64 | None = None
    ) -> Numbers:
        horizon, delta = require.horizon("horizon", horizon), self._delta(delta)
        at_delta = self.mechanism.at_delta
        if float64 is not None and 0 < horizon < math.inf:
            return self._certified_deployed(int(horizon), delta, float64)
        found = self.cost(horizon, delta)
        if at_delta:
            return Numbers(found.value, reason=found.reason)
        pure = self.cost(horizon)
        return Numbers(
            pure.value,
            epsilon_at_delta=None if delta is None else min(found.value, pure.value),
            reason=pure.reason,
        )

    def _certified_deployed(self, messages: int, delta: float | None, float64: Float64) -> Numbers:
        """With what the lattice and the arithmetic shift every message by, if the record is in it;
        where it is not, the two runs compute the same numbers.

        An empty record is in it too, by its coin: it moves other records to other slots, and a sum
        in another order may be rounded otherwise.
        """
        whole = self.whole.certified(messages, delta, float64)
        if not math.isfinite(whole.epsilon):
            return Numbers(whole.epsilon, reason=whole.reason)
        errors = self._errors(messages, float64)
        shifts, errors = (self.shifts(messages) + errors) * OUTWARD, errors * OUTWARD
        if self.mechanism.at_delta:
            assert delta is not None
            return Numbers(self._epsilon_deployed(shifts, errors, delta, whole.epsilon))
        pure = min(self._pure(shifts, errors) * OUTWARD, whole.epsilon)
        if delta is None:
            return Numbers(pure)
        otherwise = pure if whole.epsilon_at_delta is None else min(pure, whole.epsilon_at_delta)
        found = self._epsilon_deployed(shifts, errors, delta, otherwise)
        return Numbers(pure, epsilon_at_delta=found)

    def _errors(self, messages: int, float64: Float64) -> np.ndarray:
        """What rounding moves each message by, at most, over the scale of its noise, in the norm of
        the law.

        `shifts` has a noisy gradient at its own step, rounding errors have it at the message that
        shows it, which may be the next one: the larger of both goes with the shift.
        """
        root = math.sqrt(self.numbers) * self.mechanism.stretch(self.numbers)
        each = self.rounding_errors(float64, messages + 1)
        return np.maximum(each[:-1], each[1:]) + root * 2.0**-rounding.GRID_BITS

    def _epsilon_deployed(
        self, shifts: np.ndarray, errors: np.ndarray, delta: float, otherwise: float
    ) -> float:
        numbers = len(shifts) * self.numbers
        curve = lambda left: self._epsilon(shifts, left, errors)  # noqa: E731
        found = rounding.with_slack(curve, delta, numbers, otherwise)
        apart = self._rearranged(errors)
        if not 0 < apart <= _FREE * delta:
            return found
        still = lambda left: self._epsilon(shifts, left)  # noqa: E731
        return rounding.with_slack(still, delta, numbers, found, apart)

    def _rearranged(self, errors: np.ndarray) -> float:
        """How far, in total variation, messages with those errors of an empty record are from those
        that it does not move.
        """
        return 0.0

    def spending(self, messages: int, delta: float | None, float64: Float64) -> np.ndarray:
        messages = require.natural("messages", messages)
        delta, counts = self._delta(delta), np.arange(1, messages + 1)
        marks, spent = marked(messages, _EXACT), []
        for m in marks.tolist():
            spent.append(self.certified(m, delta, float64).epsilon)
        return np.maximum.accumulate(np.array(spent))[np.searchsorted(marks, counts)]

    def scaled(self, factor: float) -> SampledAccount:
        return replace(self, full=self.full.scaled(factor))

    def _delta(self, delta: float | None) -> float | None:
        if self.mechanism.at_delta:
            return self.mechanism.required(delta)
        return require.optional(require.fraction)("delta", delta)

    # What it has from the cost in full.

    @property
    def mechanism(self) -> Mechanism:  # type: ignore[override]
        return self.full.mechanism

    @property
    def basis(self) -> str:  # type: ignore[override]
        return f"{self.full.basis}, secret batches"

    @property
    def pattern(self) -> Participation:  # type: ignore[override]
        return self.full.pattern

    @property
    def dimension(self) -> int:  # type: ignore[override]
        return self.full.dimension

    @property
    def assumptions(self) -> tuple[Assumption, ...]:  # type: ignore[override]
        return (*self.full.assumptions, self.secrecy)

    @property
    def numbers(self) -> int:
        return self.full.numbers

    def effort(self, horizon: float) -> Effort:
        found = self.full.effort(horizon)
        # Every message goes through a composition.
        worked = _COMPOSED * (0 if math.isinf(horizon) else int(horizon))
        return found._replace(
            numbers=max(found.numbers, self.held), operations=max(found.operations, worked)
        )

    def message_costs(self, horizon: int) -> np.ndarray | None:
        return self.whole.message_costs(horizon)

    def dominated_by(self, found: Bound, horizon: float) -> str:
        if not math.isfinite(found.value) or found.value == 0:
            return ""
        shifts = self.shifts(int(horizon))
        top = int(np.argmax(shifts))
        return (
            f"{len(shifts):,} messages, each with a record in it by a coin of {self.rate:.4g};"
            f" costliest step {top}"
        )

    def warnings(self, horizon: float) -> list[str]:
        return self.full.warnings(horizon)

    def rounding_errors(self, float64: Float64, messages: int) -> np.ndarray:
        return self.full.rounding_errors(float64, messages)

    def rounded(self, ideal: float, more: float, messages: int, float64: Float64) -> float:
        return self.full.rounded(ideal, more, messages, float64)

    def limits(self, fields: Sequence[str], steps: int) -> np.ndarray:
        return self.whole.limits(fields, steps)

    def told(self, weights: np.ndarray, step: int, fields: Sequence[str]) -> np.ndarray:
        return self.full.told(weights, step, fields)


@dataclass(frozen=True)
class PoissonAccount(SampledAccount):
    """Every record enters every batch by a coin of its own.

    Args:
      chance: of a record to be in a batch.
      slots: how many records a batch has room for.
      relation: what happens to the record: "zero-out" or "replace". The exposure of `full` is that
        of a record that is emptied in both cases.
    """

    chance: float
    slots: int
    relation: str = ZERO_OUT

    def __post_init__(self) -> None:
        super().__post_init__()
        require.settle(self, chance=require.share, slots=require.count)
        require.one_of("relation", self.relation, RELATIONS)
        known = self.full.pattern.chance
        if known is not None and known != self.chance:
            require.fail("chance", f"that of the pattern, {known!r}", self.chance)

    @property
    def rate(self) -> float:
        return self.chance

    @property
    def whole(self) -> Account:
        """A record that is emptied and filled again moves a message by up to twice as much."""
        return self.full if self.relation == ZERO_OUT else self.full.scaled(0.5)

    @property
    def overflow(self) -> float:
        """The chance that the other records fill all slots of a batch."""
        return overflow(self.held, self.chance, self.slots)

    @property
    def secrecy(self) -> Assumption:
        return Assumption(
            "enforced",
            f"every record enters each batch by a secret coin of probability {self.chance:.6g}; the"
            f" sum is divided by the public number {self.chance * self.held:.6g}, and a batch has"
            f" {self.slots:,} slots whatever was drawn",
        )

    def _others(self, shifts: np.ndarray, errors: np.ndarray | float) -> np.ndarray | float:
        """How far messages move in the other data set, from where they are without the record."""
        return errors if self.relation == ZERO_OUT else shifts

    def _epsilon(self, shifts: np.ndarray, delta: float, errors: np.ndarray | float = 0.0) -> float:
        losses = Losses(self.mechanism, shifts, self.chance, self._others(shifts, errors))
        return losses.epsilon(delta - len(shifts) * self.overflow)

    def _rearranged(self, errors: np.ndarray) -> float:
        """Two Gaussian or Laplace laws are at most half of their shift apart, with probability
        `rate` in each message.
        """
        return self.chance * float(np.sum(errors)) / 2 if self.relation == ZERO_OUT else 0.0

    def _pure(self, shifts: np.ndarray, errors: np.ndarray | float = 0.0) -> float:
        """Where records may be dropped nothing is amplified for certain."""
        if self.mechanism.at_delta:
            return math.inf
        others = self._others(shifts, errors)
        # Not where the chance of it is 0: one that is too small for a number is there all the same.
        whole = self.slots < self.held
        each = shifts + others if whole else opposed_pure(shifts, others, self.chance)
        return float(np.sum(each)) * OUTWARD


@dataclass(frozen=True)
class SubsetAccount(SampledAccount):
    """Every batch is a random subset, drawn without replacement.

    Args:
      size: of a batch. The exposure of `full` is that of a record that is replaced, or emptied,
        whichever is larger.
    """

    size: int

    def __post_init__(self) -> None:
        super().__post_init__()
        require.settle(self, size=require.count)
        if self.size > self.held:
            require.fail("size", f"at most the {self.held} records", self.size)

    @property
    def rate(self) -> float:
        return self.size / self.held

    @property
    def secrecy(self) -> Assumption:
        return Assumption(
            "enforced",
            f"every batch is a secret random subset of {self.size:,} of {self.held:,} records",
        )

    def _epsilon(self, shifts: np.ndarray, delta: float, errors: np.ndarray | float = 0.0) -> float:
        """The order of a subset is random whoever is in it: an empty record moves nothing."""
        return subset_epsilon(self.mechanism, shifts, self.held, self.size, delta)

    def _pure(self, shifts: np.ndarray, errors: np.ndarray | float = 0.0) -> float:
        if self.mechanism.at_delta:
            return math.inf
        return float(np.sum(amplified_pure(shifts, self.rate))) * OUTWARD


def overflow(held: int, rate: float, slots: int) -> float:
    """The chance that all but one of `held` records fill so many slots, rounded up.

    Example:
      >>> overflow(12_000, 0.05, 12_000)
      0.0
    """
    held, slots = require.count("held", held), require.count("slots", slots)
    rate = require.share("rate", rate)
    if slots >= held:
        return 0.0
    return min(1.0, float(scipy.stats.binom.sf(slots - 1, held - 1, rate)) * (1 + 1e-6))


_NO_ROOM = "delta leaves no room for records that find no slot: more slots, or a larger delta"
