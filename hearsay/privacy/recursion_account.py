"""What messages cost that carry noise of their own: prices and running totals over the recursion of
recursion.py, where the mathematics is.

Where the mechanism's costs add up over a record's uses (`Mechanism.additive`), a budget is the
largest sum of prices that the pattern allows; where they do not (rho), the sensitivity Phi is run
forward for each pattern of uses.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hearsay import _validate as require
from hearsay.mechanisms import Mechanism
from hearsay.mechanisms.convert import OUTWARD
from hearsay.privacy import float64 as rounding_of_float64
from hearsay.privacy.account import Account, Assumption, Bound, Effort, law_of
from hearsay.privacy.float64 import Float64
from hearsay.privacy.horizon import UNBOUNDED, infinite
from hearsay.privacy.participation import Participation
from hearsay.privacy.recursion import MEMORYLESS, Recursion, Release, backward, forward

# A table of more costs than this is not made.
_TABLE = 2**24
# Costs that are worked out side by side, so that they stay in the processor's cache.
_BLOCK = 2**16
# Bytes for every message: its coefficients, shift and cost (64 to 87 were measured).
_EACH = 64


@dataclass(frozen=True)
class RecursionAccount(Account):
    """All that the privacy engine needs to know of one agent's messages.

    Args:
      recursion: how far a changed record moves the private state.
      releases: the message fields, what each shows of it, and the scale of its noise.
      pattern: which steps may use one record.
      dimension: how many numbers a message field has.
      mechanism: the law of the noise, or its name.
      basis: what the bound comes from, in words.
      assumptions: what it rests on.
      void: why there is no budget, where there is none whatever the noise.
      norm: of the exposure. A change that is bounded in l1 counts as one number.
    """

    recursion: Recursion
    releases: tuple[Release, ...]
    pattern: Participation
    dimension: int
    mechanism: Mechanism = "laplace"  # type: ignore[assignment]
    basis: str = "curvature interval"
    assumptions: tuple[Assumption, ...] = ()
    void: str = ""
    norm: str = "l2"

    def __post_init__(self) -> None:
        object.__setattr__(self, "mechanism", law_of(self.mechanism))
        require.settle(self, dimension=require.count)
        require.one_of("norm", self.norm, ["l1", "l2"])
        if not self.releases:
            require.fail("releases", "at least one message field", self.releases)
        if not any(release.state or release.fresh for release in self.releases):
            # Messages that show nothing would cost nothing.
            require.fail(
                "releases",
                "messages of which one shows the state or the gradient",
                [release.name for release in self.releases],
            )
        if not self.void and not float(self.recursion.exposure(0)) > 0:
            # A record that moves nothing would cost nothing: no sensitivity is zero, so something
            # was lost on the way here.
            require.fail("exposure", "positive at step 0", float(self.recursion.exposure(0)))

    @property
    def counted_dimension(self) -> int:
        """d of sqrt(d), by which an l1 length may exceed the bound."""
        return self.dimension if self.norm == "l2" else 1

    @property
    def numbers(self) -> int:
        return self.dimension * len(self.releases)

    @property
    def memory(self) -> bool:
        """A message shows the gradient of its own step, or what the step before it has made of the
        state and nothing from earlier on (a state that is forgotten at once); never both.
        """
        rec, shows_state = self.recursion, any(release.state for release in self.releases)
        forgets = rec.leak == MEMORYLESS and rec.least is None and rec.curvature == (0.0, 0.0)
        both = shows_state and any(release.fresh for release in self.releases)
        return bool(self.void) or both or (shows_state and not forgets)

    def largest_shifts(self, messages: int) -> np.ndarray:
        messages, law = require.natural("messages", messages), self.mechanism
        if self.memory:
            return super().largest_shifts(messages)
        k, stretch = np.arange(messages), law.stretch(self.counted_dimension)
        _, jump, exposure = self.recursion.coefficients(messages)
        moved = np.append(0.0, jump)[:messages]
        each = [
            stretch
            * ((r.state * moved if r.state else 0.0) + r.fresh * exposure)
            * _inverse(r.scale(k))
            for r in self.releases
        ]
        return law.together(np.stack(each), axis=0)

    def scaled(self, factor: float) -> RecursionAccount:
        scaled = (replace(r, scale=r.scale.scaled(factor)) for r in self.releases)
        return replace(self, releases=tuple(scaled))

    def cost(self, horizon: float, delta: float | None = None) -> Bound:
        horizon = require.horizon("horizon", horizon)
        require.optional(require.fraction)("delta", delta)
        if self.void and horizon > 0:
            return Bound(math.inf, reason=self.void)
        if math.isinf(horizon):
            return infinite(self)
        messages = int(horizon)
        if messages == 0:
            return Bound(0.0)
        require.room("horizon", messages, lambda n: float(n * _EACH))
        if self.mechanism.additive:
            value = self.pattern.total(self.prices(messages)) * OUTWARD
        else:
            value = float(self.curve(messages)[-1])
        if math.isfinite(value):
            return Bound(value, messages)
        return Bound(math.inf, messages, reason=self._why_infinite())

    def effort(self, horizon: float) -> Effort:
        horizon = require.horizon("horizon", horizon)
        # An infinite horizon is summed to a fixed step.
        messages = 0 if math.isinf(horizon) else int(horizon)
        one_by_one = not (self.mechanism.additive or self.pattern.every)
        patterns = self.pattern.candidates(messages) if one_by_one else 1
        return Effort(max(messages, self.pattern.records), messages * patterns, self.dimension)

    def prices(self, horizon: int, terminal: float = 0.0) -> np.ndarray:
        """w(l) for l = 0 .. horizon-1, times sqrt(d).

        Args:
          terminal: q(horizon), what later messages cost.
        """
        horizon = require.natural("horizon", horizon)
        terminal = require.nonnegative_or_infinite("terminal", terminal)
        k = np.arange(horizon)
        contraction, jump, exposure = self.recursion.coefficients(horizon)
        through, fresh = np.zeros(horizon), np.zeros(horizon)
        for release in self.releases:
            inverse = _inverse(release.scale(k))
            through += release.state * inverse if release.state else 0.0
            fresh += release.fresh * inverse if release.fresh else 0.0
        ahead = backward(contraction, through, terminal)[1:]
        with np.errstate(over="ignore", invalid="ignore"):
            out = np.where(jump == 0, 0.0, jump * ahead) + np.where(
                exposure == 0, 0.0, exposure * fresh
            )
            return np.sqrt(self.counted_dimension) * out

    def single_costs(self, horizon: int, terminal: float = 0.0) -> np.ndarray:
        """rho of one use, at each of the steps 0 .. horizon-1 (horizon.py), for Gaussian noise.

        Args:
          terminal: q2(horizon), what later messages cost.
        """
        horizon = require.natural("horizon", horizon)
        terminal = require.nonnegative_or_infinite("terminal", terminal)
        k = np.arange(horizon)
        contraction, jump, exposure = self.recursion.coefficients(horizon)
        with np.errstate(over="ignore", invalid="ignore"):
            inverse = [_inverse(release.scale(k)) for release in self.releases]
            pairs = list(zip(self.releases, inverse, strict=True))
            through = sum((r.state * inv) ** 2 / 2 for r, inv in pairs if r.state)
            fresh = sum((r.fresh * inv) ** 2 / 2 for r, inv in pairs if r.fresh)
            source = np.broadcast_to(np.asarray(through, dtype=float), (horizon,))
            ahead = backward(contraction**2, source, terminal)[1:]
            moved = np.where(jump == 0, 0.0, jump**2 * ahead)
            return moved + np.where(exposure == 0, 0.0, exposure**2 * fresh)

    def curve(self, horizon: int) -> np.ndarray:
        """Used up after each message, shape (horizon,), never decreasing."""
        horizon = require.natural("horizon", horizon)
        if self.void:
            return np.full(horizon, np.inf)
        if self.pattern.every:
            return np.cumsum(self._all_uses(horizon)) * OUTWARD
        spent, curve = 0.0, list[np.ndarray]()
        for costs in self._pattern_costs(horizon):
            with np.errstate(over="ignore"):
                costs[0] += spent
                total = np.cumsum(costs, axis=0)
            curve.append(total.max(axis=1))
            spent = total[-1]
        return np.concatenate(curve) * OUTWARD if curve else np.zeros(0)

    def spent(self, messages: Sequence[int], delta: float | None = None) -> np.ndarray:
        """`curve` after the given numbers of messages only: prices find each of them without
        following every pattern.
        """
        horizons = require.each(require.natural)("messages", messages)
        require.optional(require.fraction)("delta", delta)
        longest = max(horizons, default=0)
        if self.void:
            return np.where(np.asarray(horizons) > 0, np.inf, 0.0)
        many = len(horizons) > 50 and longest <= 5000
        if self.pattern.every or not self.mechanism.additive or many:
            curve = np.append(0.0, self.curve(longest))
            return curve[np.asarray(horizons, dtype=int)]
        return np.array([self.pattern.total(self.prices(h)) * OUTWARD for h in horizons])

    def message_costs(self, horizon: int) -> np.ndarray | None:
        horizon = require.natural("horizon", horizon)
        if self.pattern.every:
            return self._all_uses(horizon)[None, :]
        if horizon * self.pattern.candidates(horizon) > _TABLE:
            return None
        each = [np.zeros((0, self.pattern.candidates(horizon))), *self._pattern_costs(horizon)]
        return np.ascontiguousarray(np.concatenate(each).T)

    def dominated_by(self, found: Bound, horizon: float) -> str:
        if not math.isfinite(found.value) or found.value == 0:
            return ""
        steps = found.summed_to if math.isinf(horizon) else int(horizon)
        if not self.mechanism.additive and self.pattern.single and math.isinf(horizon):
            # One use at a time: to follow each of them through all messages would take hours.
            each = self.single_costs(steps)
            return f"the use of a record at step {int(np.argmax(each)):,} (rho {np.max(each):.3g})"
        if not self.mechanism.additive:
            curve = self.curve(steps)
            half = int(np.searchsorted(curve, 0.5 * curve[-1]))
            return (
                f"half is spent by message {half:,}; costliest message"
                f" {int(np.argmax(np.diff(curve, prepend=0.0))):,}"
            )
        w = self.prices(steps)
        top = int(np.argmax(w))
        text = f"step {top} (price {w[top]:.3g})"
        if self.pattern.every:
            needed = int(np.searchsorted(np.cumsum(np.sort(w)[::-1]), 0.5 * w.sum())) + 1
            use = f"half of it pays for a record's use at {needed} of {len(w):,} steps"
            text = f"{use}; costliest {text}"
        return text

    def warnings(self, horizon: float) -> list[str]:
        """A step so large that it spreads two states apart, where the curvature would pull them
        together.
        """
        rec = self.recursion
        k = np.arange(max(1, int(min(2000, horizon))))
        factor = rec.contraction(k)
        if factor[0] <= 1 + 1e-9 or not 0 < rec.curvature[1] < math.inf:
            return []
        bad = int(np.argmax(factor <= 1)) if np.any(factor <= 1) else len(k)
        limit = (2 - float(rec.leak(0))) / rec.curvature[1]
        return [
            f"{'the first step spreads' if bad == 1 else f'the first {bad} steps spread'} two"
            f" states apart (factor up to {factor.max():.3g}); a first step size of at most"
            f" {limit:.3g} would not"
        ]

    def rounding_errors(self, float64: Float64, messages: int) -> np.ndarray:
        if self.void:
            return np.zeros(messages)
        found = rounding_of_float64.shifts(
            float64, self.recursion, self.releases, self.mechanism, self.dimension, messages
        )
        return np.nan_to_num(found, nan=math.inf)

    def rounded(self, ideal: float, more: float, messages: int, float64: Float64) -> float:
        return self.mechanism.rounded(ideal, more, messages * self.numbers)

    def gaps(self, steps: int) -> np.ndarray:
        """The certified l2 gap of every release, (release, message): at each step the worst of all
        patterns of uses.
        """
        contraction, jump, exposure = self.recursion.coefficients(steps)
        uses = self.pattern.uses(steps)
        phi = np.stack([forward(contraction, jump * used)[:-1] for used in uses])
        bounds = [r.state * phi + r.fresh * exposure * uses for r in self.releases]
        return np.stack([bound.max(axis=0) for bound in bounds])

    def limits(self, fields: Sequence[str], steps: int) -> np.ndarray:
        names, k = list(fields), np.arange(steps)
        limit = np.zeros((len(names), steps))
        for release, gap in zip(self.releases, self.gaps(steps), strict=True):
            each = _over(gap, release.scale(k))
            limit[names.index(release.name), release.delay :] = each[: steps - release.delay]
        return limit

    def told(self, weights: np.ndarray, step: int, fields: Sequence[str]) -> np.ndarray:
        steps = len(weights)
        k = np.arange(steps)
        contraction, _, _ = self.recursion.coefficients(steps)
        moved = np.stack(
            [forward(contraction, self.recursion.step(k) * column)[:-1] for column in weights.T]
        )
        shown = [_over(r.state * moved + r.fresh * weights.T, r.scale(k)) for r in self.releases]
        each = np.add.reduce(shown)
        # (record, time of the release).
        delay = self.releases[0].delay
        return each[:, step - delay] if step >= 0 else each.sum(axis=1)

    def _why_infinite(self) -> str:
        if any(float(r.scale(0)) == 0 for r in self.releases):
            return "messages carry no noise"
        if math.isinf(self.recursion.curvature[1]):
            return UNBOUNDED
        return "the sensitivity grows beyond all bounds: make the step size smaller"

    def _all_uses(self, horizon: int) -> np.ndarray:
        k = np.arange(horizon)
        contraction, jump, exposure = self.recursion.coefficients(horizon)
        phi = forward(contraction, jump)[:-1]
        return self._cost(phi, exposure, [_inverse(r.scale(k)) for r in self.releases])

    def _pattern_costs(self, horizon: int) -> Iterator[np.ndarray]:
        """Block after block of steps, the cost of each message under each candidate pattern, (step,
        pattern): Phi runs forward for all of them at once.
        """
        k, many = np.arange(horizon), self.pattern.candidates(horizon)
        contraction, jump, exposure = self.recursion.coefficients(horizon)
        inverse = [_inverse(r.scale(k)) for r in self.releases]
        phi, size = np.zeros(many), max(1, _BLOCK // max(1, many))
        for start in range(0, horizon, size):
            block = slice(start, min(start + size, horizon))
            used = np.stack([self.pattern.used(step, many) for step in k[block].tolist()])
            jumps, before = jump[block, None] * used, np.empty(used.shape)
            # A sensitivity that explodes is an infinite budget, not a warning.
            with np.errstate(over="ignore"):
                for row, factor in enumerate(contraction[block].tolist()):
                    before[row] = phi
                    phi = factor * phi + jumps[row]
            yield self._cost(
                before, exposure[block, None] * used, [i[block, None] for i in inverse]
            )

    def _cost(self, phi: np.ndarray, exposure: np.ndarray, inverse: list) -> np.ndarray:
        """What one message costs in all, given Phi and what the record's use exposes."""
        total = np.zeros(np.broadcast(phi, exposure).shape)
        with np.errstate(invalid="ignore", over="ignore"):
            for release, inv in zip(self.releases, inverse, strict=True):
                # A field that does not carry the state costs nothing for it, however far the
                # states are apart.
                moved = (release.state * phi if release.state else 0.0) + (
                    release.fresh * exposure if release.fresh else 0.0
                )
                ratio = np.where(moved == 0, 0.0, moved * inv)
                total = total + self.mechanism.cost(ratio, self.counted_dimension)
        return total


def _over(moved: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """In units of noise; what does not move needs none."""
    with np.errstate(divide="ignore", over="ignore"):
        return np.divide(moved, scale, out=np.zeros_like(moved), where=moved != 0)


def _inverse(scale: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore", over="ignore"):
        return 1.0 / np.asarray(scale, dtype=np.float64)
