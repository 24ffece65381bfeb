"""All messages of an agent together as one Gaussian mechanism (paper P4): B (C G + xi),
released row by row.

Whatever the order of release and however later rows of G depend on earlier outputs (Denisov et al.
2022, Theorem 2.1), the transcript is a function of C G + V xi, so it costs rho = S^2 |C 1_P|^2 / 2
V^2 of zero-concentrated privacy, S being how far one round's row of G moves and P the rounds that
use the record. Rows may move in any directions: |C U|^2 is largest for equal ones where C'C has no
negative entry, and |C'C| takes its place where it has (kinds.py).

**Round by round.** The first t messages are a function of C_t G[:t] + V xi[:t] with C_t the leading
block of C, and cost rho(t) = S^2 |C_t 1_P|^2 / 2 V^2, P within the first t rounds
(mechanisms/factorized/leading.py). It never falls with t, so that it may stop a run: rows have
white noise and a shift that earlier messages determine, and the squared shifts add up to at most
2 rho(t) on every path (Smith and Thakurta 2022). It holds for a number of messages that is fixed,
or that a budget sets; not for one that is chosen by looking at private data.

**The next message.** Where a step's gradient is sent with the message after it (`delay`), t
messages carry the rows of t - 1 gradients; t are counted, as for independent noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

import numpy as np

from hearsay import _validate as require
from hearsay.mechanisms import Mechanism, rounding
from hearsay.mechanisms.convert import OUTWARD
from hearsay.mechanisms.factorized.kinds import Factorization
from hearsay.privacy import float64 as rounding_of_float64
from hearsay.privacy.account import Account, Assumption, Bound, Effort, law_of
from hearsay.privacy.float64 import Float64
from hearsay.privacy.participation import Participation

_UNBOUNDED = "no bound on how far a record moves a message is known: give the problem a clip"


@dataclass(frozen=True)
class FactorizedAccount(Account):
    """rho of the messages so far, all of them together.

    Args:
      factors: the factorization, which is planned for a number of rounds.
      moved: S, how far one record moves a round's message.
      scale: V, the standard deviation of xi.
      pattern: which rounds may use one record.
      dimension: how many numbers a message has.
      basis: what S comes from, in words.
      assumptions: what it rests on.
      separation: the least number of rounds from one use of a record to its next; None: it is used
        in one round.
      delay: message k carries the noise of round k - delay; 0 or 1.
    """

    # Keys of a description that earlier versions did not write.
    later: ClassVar[tuple[str, ...]] = ("delay",)

    factors: Factorization
    moved: float
    scale: float
    pattern: Participation
    dimension: int
    basis: str
    assumptions: tuple[Assumption, ...] = ()
    separation: int | None = None
    mechanism: Mechanism = "gaussian"  # type: ignore[assignment]
    delay: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "mechanism", law_of(self.mechanism))
        require.settle(
            self,
            moved=require.positive_or_infinite,
            scale=require.nonnegative,
            dimension=require.count,
            separation=require.optional(require.count),
            delay=require.natural,
        )
        if self.delay > 1:
            require.fail("delay", "0 or 1", self.delay)
        if not self.mechanism.at_delta:
            require.fail("mechanism", "gaussian for factorized noise", self.mechanism.name)
        if self.separation is None and not self.pattern.single:
            require.fail("separation", "given where a record is used again", None)
        if self.separation is not None and self.separation > self.pattern.gap:
            require.fail("separation", f"at most {self.pattern.gap:g}", self.separation)

    @property
    def rounds(self) -> int:
        """How many messages the noise is planned for."""
        return self.factors.rounds

    @property
    def rho(self) -> float:
        """Of all messages together."""
        return float(self._rho(_column(self.factors, self.separation)))

    def _rho(self, column: np.ndarray | float) -> np.ndarray:
        # Nothing has moved before the first message, however far a record may move one.
        with np.errstate(invalid="ignore", over="ignore"):
            ratio = self.moved * np.asarray(column) / self.scale if self.scale > 0 else math.inf
            # A power would raise where this becomes infinite.
            return np.asarray(ratio * ratio / 2)

    @property
    def numbers(self) -> int:
        return self.dimension

    def scaled(self, factor: float) -> FactorizedAccount:
        return replace(self, scale=self.scale * factor)

    def cost(self, horizon: float, delta: float | None = None) -> Bound:
        horizon = require.horizon("horizon", horizon)
        require.optional(require.fraction)("delta", delta)
        if horizon > self.rounds:
            return Bound(math.inf, reason=f"the noise is planned for {self.rounds} rounds")
        value, reason = float(self.spent([int(horizon)])[0]), ""
        if math.isinf(value):
            reason = "messages carry no noise" if self.scale == 0 else _UNBOUNDED
        return Bound(value, int(horizon), reason=reason)

    def effort(self, horizon: float) -> Effort:
        size = self.factors.size
        return Effort(size, size, self.dimension, self.factors.searched)

    def spent(self, messages: Sequence[int], delta: float | None = None) -> np.ndarray:
        sent = np.asarray(require.each(require.natural)("messages", messages), dtype=int)
        require.optional(require.fraction)("delta", delta)
        whole, found = _column(self.factors, self.separation), np.full(sent.shape, np.inf)
        early = sent < self.rounds
        if np.any(early):
            separation = self.rounds if self.separation is None else self.separation
            block = self.factors.leading(separation, sent[early])
            # Two ways to the same number may differ in its last digits.
            found[early] = np.where(sent[early] > 0, self._rho(np.minimum(block, whole)), 0.0)
        # No noise was planned for later ones.
        found[sent == self.rounds] = self._rho(whole)
        return found * OUTWARD

    def message_costs(self, horizon: int) -> None:
        return None

    def dominated_by(self, found: Bound, horizon: float) -> str:
        if not math.isfinite(found.value) or found.value == 0:
            return ""
        sent = int(horizon)
        first = f"the first {sent:,} of {self.rounds:,}" if sent < self.rounds else None
        return f"one mechanism for {first or f'all {self.rounds:,}'} rounds"

    def warnings(self, horizon: float) -> list[str]:
        return []

    def rounding_errors(self, float64: Float64, messages: int) -> np.ndarray:
        """Nothing per message: `rounded` takes in what all rounds' errors do together."""
        return np.zeros(messages)

    def rounded(self, ideal: float, more: float, messages: int, float64: Float64) -> float:
        """The float64 errors of the updates move rows of G, whether or not they use the record: C
        times them is what they add. All rounds are counted, whatever the number of messages.
        """
        d = self.dimension
        if self.delay:
            errors = rounding_of_float64.step_errors(float64, d, self.rounds)
            more = self.factors.encoded(errors) / self.scale
        else:
            each = rounding_of_float64.update_error(float64, d)
            more = math.sqrt(d) * self.factors.encoded(np.full(self.rounds, each)) / self.scale
        moved = (math.sqrt(2 * ideal) + more) ** 2 / 2 * OUTWARD
        return rounding.factorized(moved, self.factors, self.dimension)

    def limits(self, fields: Sequence[str], steps: int) -> np.ndarray:
        limit = np.zeros((len(fields), steps))
        limit[0, self.delay :] = self.moved / self.scale
        return limit

    def told(self, weights: np.ndarray, step: int, fields: Sequence[str]) -> np.ndarray:
        """Of the records of a round the last one tells most: no local step comes after it to
        shrink what it did.
        """
        steps = len(weights)
        seen = weights[max(0, step - self.delay)]
        if step < 0:
            seen = np.linalg.norm(self.factors.encoder()[:, :steps] @ (weights > 0), axis=0)
        seen = np.round(seen, 9)
        return np.where(np.arange(len(seen)) == len(seen) - 1 - np.argmax(seen[::-1]), 1.0, 0.0)


@lru_cache(maxsize=1024)
def _column(factors: Factorization, separation: int | None) -> float:
    """max over the rounds P that may use one record of |C 1_P|."""
    if separation is None:
        return factors.sensitivity
    return factors.sensitivity_repeated(separation, -(-factors.rounds // separation))
