"""All messages of an agent together as one Gaussian mechanism (paper P4): B (C G + xi),
released row by row.

Whatever the order of release and however later rows of G depend on earlier outputs (Denisov et al.
2022, Theorem 2.1), the transcript is a function of C G + V xi, so it costs rho = S^2 |C 1_P|^2 / 2
V^2 of zero-concentrated privacy, S being how far one round's row of G moves and P the rounds that
use the record.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from hearsay import _validate as require
from hearsay.mechanisms import Mechanism, rounding
from hearsay.mechanisms.convert import OUTWARD
from hearsay.mechanisms.factorized.kinds import Factorization
from hearsay.privacy import float64 as rounding_of_float64
from hearsay.privacy.account import Account, Assumption, Bound, Effort, law_of
from hearsay.privacy.float64 import Float64
from hearsay.privacy.participation import Participation


@dataclass(frozen=True)
class FactorizedAccount(Account):
    """rho of all rounds' messages together; it is charged in full with the first of them.

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
    """

    factors: Factorization
    moved: float
    scale: float
    pattern: Participation
    dimension: int
    basis: str
    assumptions: tuple[Assumption, ...] = ()
    separation: int | None = None
    mechanism: Mechanism = "gaussian"  # type: ignore[assignment]

    def __post_init__(self) -> None:
        object.__setattr__(self, "mechanism", law_of(self.mechanism))
        require.settle(
            self,
            moved=require.positive_or_infinite,
            scale=require.nonnegative,
            dimension=require.count,
            separation=require.optional(require.count),
        )
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
        column = _column(self.factors, self.separation)
        ratio = self.moved * column / self.scale if self.scale > 0 else math.inf
        # A power would raise where this becomes infinite.
        return ratio * ratio / 2

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
        return Bound(self.rho * OUTWARD if horizon > 0 else 0.0, int(horizon))

    def effort(self, horizon: float) -> Effort:
        size = self.factors.size
        return Effort(size, size, self.dimension, self.factors.searched)

    def spent(self, messages: Sequence[int], delta: float | None = None) -> np.ndarray:
        sent = np.asarray(require.each(require.natural)("messages", messages), dtype=int)
        require.optional(require.fraction)("delta", delta)
        # No noise was planned for later ones.
        return np.where(sent == 0, 0.0, np.where(sent > self.rounds, np.inf, self.rho * OUTWARD))

    def message_costs(self, horizon: int) -> None:
        return None

    def dominated_by(self, found: Bound, horizon: float) -> str:
        if not math.isfinite(found.value) or found.value == 0:
            return ""
        return f"one mechanism for all {self.rounds:,} rounds"

    def warnings(self, horizon: float) -> list[str]:
        return []

    def rounding_errors(self, float64: Float64, messages: int) -> np.ndarray:
        """Nothing per message: `rounded` takes in what all rounds' errors do together."""
        return np.zeros(messages)

    def rounded(self, ideal: float, more: float, messages: int, float64: Float64) -> float:
        errors = rounding_of_float64.update_error(float64, self.dimension)
        shift = self.factors.encoded(np.full(self.rounds, errors))
        more = math.sqrt(self.dimension) * shift / self.scale
        moved = (math.sqrt(2 * ideal) + more) ** 2 / 2 * OUTWARD
        return rounding.factorized(moved, self.factors, self.dimension)

    def limits(self, fields: Sequence[str], steps: int) -> np.ndarray:
        limit = np.zeros((len(fields), steps))
        limit[0] = self.moved / self.scale
        return limit

    def told(self, weights: np.ndarray, step: int, fields: Sequence[str]) -> np.ndarray:
        """Of the records of a round the last one tells most: no local step comes after it to
        shrink what it did.
        """
        steps = len(weights)
        seen = weights[step]
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
