"""What every proof of a budget answers: the account of one agent's messages.

An account is data (coefficients, facts, noise: all that is in its fields) with the questions that
a certificate, a calibration, a running total, an audit and a verifier ask of it. There are three
kinds of proof, and each is a class of its own:

    RecursionAccount   every message has its own noise (recursion_account.py, recursion.py)
    FactorizedAccount  all messages together are one Gaussian mechanism (factorized.py)
    SampledAccount     a record is in a message by a secret coin (sampled.py)

A new proof is a fourth class. Nobody asks which one it has.

`cost` and `spent` are in the account's own number: that of its mechanism (pure epsilon, rho or
delta), or epsilon at a delta where a proof has nothing simpler. `readable`, `within` and `factor`
turn it into what people read, and back; `certified` and `spending` are what a certificate says of
a whole run and of every message of a deployed one.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from hearsay import _validate as require
from hearsay.mechanisms import MECHANISMS, Mechanism
from hearsay.privacy import at_delta
from hearsay.privacy.participation import Participation

if TYPE_CHECKING:
    from hearsay.privacy.float64 import Float64


@dataclass(frozen=True)
class Assumption:
    """What a certificate rests on.

    enforced: the code makes it so; derived: proved from the model; declared: the user says so.
    """

    kind: str
    text: str

    def __post_init__(self) -> None:
        require.one_of("kind", self.kind, ["enforced", "derived", "declared"])


@dataclass(frozen=True)
class Bound:
    """epsilon (or rho, or delta) over a horizon.

    Args:
      value: the bound; infinite where there is no budget.
      summed_to: how far it was summed.
      tail: what the bound on the rest added.
      reason: why it is infinite, where it is.
    """

    value: float
    summed_to: int = 0
    tail: float = 0.0
    reason: str = ""

    def __post_init__(self) -> None:
        require.settle(
            self,
            value=require.nonnegative_or_infinite,
            summed_to=require.natural,
            tail=require.nonnegative_or_infinite,
        )


class Effort(NamedTuple):
    """What it takes to compute a cost.

    Args:
      numbers: how many it holds at once.
      operations: how many of them it works through, one after the other.
      dimension: of a message.
      searched: it begins with a search for what was not written down.
    """

    numbers: int
    operations: int
    dimension: int
    searched: bool = False


class Numbers(NamedTuple):
    """The numbers of an agent's budget, as the fields of AgentBudget."""

    epsilon: float
    rho: float | None = None
    delta: float | None = None
    epsilon_at_delta: float | None = None
    reason: str = ""

    @property
    def compared(self) -> float:
        """What a target or a budget is compared with: epsilon at the certificate's delta where it
        has one, or pure epsilon, or the agent's own delta.
        """
        if self.epsilon_at_delta is not None:
            return self.epsilon_at_delta
        return self.epsilon if self.delta is None else self.delta


# Converting a budget to epsilon takes a millisecond: longer runs convert every so many messages and
# round up in between.
_EXACT = 2000


class Account(ABC):
    """What one agent's messages cost, by one proof. Accounts are frozen dataclasses."""

    # It rests on batches being secret.
    amplified: ClassVar[bool] = False
    # The adjacency that it is about, where that is a part of the proof itself.
    relation: str | None = None

    mechanism: Mechanism
    basis: str
    pattern: Participation
    dimension: int
    assumptions: tuple[Assumption, ...]

    @abstractmethod
    def cost(self, horizon: float, delta: float | None = None) -> Bound:
        """Of the messages 0 .. horizon-1, or of all that ever come with horizon = inf.

        Args:
          delta: of the certificate; most proofs do without.
        """

    @abstractmethod
    def effort(self, horizon: float) -> Effort:
        """What `cost` takes over that horizon: for who has the account from somebody else."""

    @abstractmethod
    def spent(self, messages: Sequence[int], delta: float | None = None) -> np.ndarray:
        """Used up after those numbers of messages; it never falls with their number."""

    @abstractmethod
    def message_costs(self, horizon: int) -> np.ndarray | None:
        """What each message costs under each pattern of uses, shape (pattern, message).

        None where no such table exists, or it would be too large.
        """

    @abstractmethod
    def dominated_by(self, found: Bound, horizon: float) -> str:
        """What the budget is spent on, in words."""

    @abstractmethod
    def warnings(self, horizon: float) -> list[str]:
        """What a reader of the certificate should know of these coefficients."""

    @abstractmethod
    def scaled(self, factor: float) -> Account:
        """The same with the scale of all noise multiplied by `factor`."""

    @property
    def memory(self) -> bool:
        """A message may tell of records that only earlier steps have used."""
        return True

    def largest_shifts(self, messages: int) -> np.ndarray:
        """How far each message moves whose own step uses the record, over the scale of its noise,
        in the norm of the law; for accounts without `memory`.
        """
        raise ValueError("a shift of one message by itself needs an account without memory")

    @property
    @abstractmethod
    def numbers(self) -> int:
        """How many numbers with noise a message has."""

    @abstractmethod
    def rounding_errors(self, float64: Float64, messages: int) -> np.ndarray:
        """What the arithmetic of a process shifts each message by, over the scale of its noise."""

    @abstractmethod
    def rounded(self, ideal: float, more: float, messages: int, float64: Float64) -> float:
        """The number of so many messages with noise on a lattice.

        Args:
          ideal: that of ideal noise, finite.
          more: their `rounding_errors`, put together as the mechanism does.
        """

    @abstractmethod
    def limits(self, fields: Sequence[str], steps: int) -> np.ndarray:
        """(field, message): how far each message field may move, in units of its noise."""

    @abstractmethod
    def told(self, weights: np.ndarray, step: int, fields: Sequence[str]) -> np.ndarray:
        """How much a record tells in message `step`, or in all of them (-1), one entry per record.

        Args:
          weights: of every record in the gradient of every step, (step, record).
          fields: the names of the message fields.
        """

    # How the account's number is read, and found again.

    def readable(self, spent: np.ndarray, delta: float | None) -> np.ndarray:
        """The account's numbers in the mechanism's `unit`: epsilon, or delta."""
        return self.mechanism.epsilons(spent, delta)

    def within(self, limit: float, delta: float | None) -> float:
        """The largest of the account's numbers that reads as at most `limit`, in the unit."""
        return self.mechanism.number(limit, delta)

    def factor(self, epsilon: float, horizon: float, delta: float | None = None) -> float:
        """By how much the scale of all noise must grow, or may shrink, for the messages to cost at
        most `epsilon`: never on the wrong side.

        Where a delta is given, `epsilon` is one at that delta, whatever the law.
        """
        epsilon = require.positive("epsilon", epsilon)
        delta = require.optional(require.fraction)("delta", delta)
        now = self.cost(horizon, delta)
        if not math.isfinite(now.value):
            raise ValueError(
                f"no amount of noise on this schedule gives a finite budget: {now.reason}"
            )
        if now.value == 0:
            return 1.0
        found = self.mechanism.factor(now.value, epsilon, delta)
        if delta is None or not self.mechanism.composes:
            return found
        return at_delta.factor(self, epsilon, horizon, delta, found)

    def certified(
        self, horizon: float, delta: float | None, float64: Float64 | None = None
    ) -> Numbers:
        """What a certificate over that horizon says.

        Args:
          horizon: the number of messages, or inf.
          delta: of the certificate: Gaussian noise needs one, Laplace noise may have one.
          float64: what bounds the rounding of a deployed run; None: noise and arithmetic are ideal.
        """
        horizon = require.horizon("horizon", horizon)
        delta = require.optional(require.fraction)("delta", delta)
        found = self.cost(horizon, delta)
        read = self.mechanism.budget(found.value, delta)
        at_delta = None if delta is None else self.epsilon_at_delta(found, horizon, delta)
        reason = found.reason or read.reason
        ideal = Numbers(read.epsilon, read.rho, read.delta, at_delta, reason)
        if float64 is None or horizon == 0 or reason or not math.isfinite(read.epsilon):
            return ideal
        if math.isinf(horizon):
            require.fail("horizon", "a number of messages for a deployed run", horizon)
        return self._deployed(ideal, found, int(horizon), delta, float64)

    def _deployed(
        self, ideal: Numbers, found: Bound, messages: int, delta: float | None, float64: Float64
    ) -> Numbers:
        """The same with what the lattice and the arithmetic cost."""
        law, more = self.mechanism, self.rounding_errors(float64, messages)
        number = self._rounded(found.value, float(law.together(more)), messages, float64)
        read = law.budget(number, delta, messages * self.numbers)
        at_delta = ideal.epsilon_at_delta
        if at_delta is not None and delta is not None:
            each = self.message_costs(messages)
            composed = None
            if each is not None:
                composed = law.composed(each + more[None, :], delta, self.numbers)
            at_delta = read.epsilon if composed is None else min(read.epsilon, composed)
        return Numbers(read.epsilon, read.rho, read.delta, at_delta, read.reason)

    def spending(self, messages: int, delta: float | None, float64: Float64) -> np.ndarray:
        """What an agent of a deployed run has spent after each message, in the unit.

        Never less than the truth, never falling.
        """
        messages = require.natural("messages", messages)
        delta = require.optional(require.fraction)("delta", delta)
        counts, law = np.arange(1, messages + 1), self.mechanism
        ideal = self.spent(counts.tolist(), delta)
        total = law.cumulative(self.rounding_errors(float64, messages))
        marks, spent = marked(messages, _EXACT), []
        for m in marks.tolist():
            number = self._rounded(float(ideal[m - 1]), float(total[m - 1]), m, float64)
            spent.append(law.epsilon(number, delta, m * self.numbers))
        return np.maximum.accumulate(np.array(spent))[np.searchsorted(marks, counts)]

    def _rounded(self, ideal: float, more: float, messages: int, float64: Float64) -> float:
        if not (math.isfinite(ideal) and math.isfinite(more)):
            return math.inf
        return self.rounded(ideal, more, messages, float64)

    def epsilon_at_delta(self, found: Bound, horizon: float, delta: float) -> float | None:
        """epsilon at delta, where the mechanism has one beside its pure epsilon.

        Args:
          found: the cost over that horizon.
        """
        return at_delta.epsilon(self, found, horizon, delta)


def marked(messages: int, most: int) -> np.ndarray:
    """At most about `most` of the numbers 1 .. messages, the last one among them."""
    messages, most = require.natural("messages", messages), require.count("most", most)
    every, counts = -(-messages // most), np.arange(1, messages + 1)
    return np.unique(np.append(counts[every - 1 :: every], messages)) if messages else counts


def most_messages(affordable: Callable[[int], bool], most: int) -> int:
    """The largest number of messages up to `most` that is affordable, 0 included.

    Args:
      affordable: whether so many messages are; what is spent never falls with their number.
      most: where to stop.
    """
    low, high = 0, require.natural("most", most) + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if affordable(middle) else (low, middle)
    return low


def law_of(value: Any) -> Mechanism:
    """A mechanism, from itself or from its name."""
    return MECHANISMS[require.one_of("mechanism", getattr(value, "name", value), MECHANISMS)]
