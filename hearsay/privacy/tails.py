"""The constants of horizon.py, read off an account's schedules: power laws that lie above them (or
below them, for D) from a step N on.

**A constant leak above 1** overshoots: a = 1 - leak is negative, and l_k = max(|a - step_k mu|,
|a - step_k L|) is not 1 - leak - mu step_k. It contracts all the same where |a| < 1. As a function
of the step, l is the largest of two absolute values of affine functions, so convex, and its largest
value over the steps between two ends lies at one of them. From N on a step that falls lies between
0 and step_N, so l_k <= max(|a|, |a - step_N mu|, |a - step_N L|); a constant step is step_N itself.
Where that is below 1 it is 1 - kappa for good. The end at 0 must be in it: a curvature that holds
two states together while |a| >= 1 fades with the step.

**Squares.** For one use and Gaussian noise the same constants are needed of squares. Where l_k <=
1 - D(x) with D >= 0 falling, l_k^2 <= 1 - D(x) (2 - D(x)) <= 1 - (2 - D(X)) D(x): the same powers,
and coefficients that are larger by 2 - D(X).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hearsay.privacy.recursion import MEMORYLESS, Release
from hearsay.schedules import Constant, PowerLaw, Schedule

if TYPE_CHECKING:
    from hearsay.privacy.recursion_account import RecursionAccount

ROUNDING = 1e-9  # exponents are sums of floats: a sum of exactly 1 may come out just above it


class NoBound(Exception):
    """The hypotheses of the proof fail for every N: the text says which."""


class TryLater(Exception):
    """They fail at this N and may hold further on."""


@dataclass(frozen=True)
class Tail:
    """The constants of horizon.py, at one N. Exponents are stored as positive decay rates."""

    x: float
    rates: tuple[tuple[float, float], ...]  # (kappa, u), slowest decay first
    jump: tuple[float, float]
    exposure: tuple[float, float]
    through: tuple[float, float]
    fresh: tuple[float, float]

    @property
    def decay(self) -> float:
        return sum(kappa * self.x**-u for kappa, u in self.rates)

    @property
    def growth(self) -> float:
        g = max(0.0, self.rates[-1][1] - self.through[1])
        return g if g <= 1 else self.x * ((1 + 1 / self.x) ** g - 1)

    @property
    def psi(self) -> tuple[float, float]:
        """(M, psi at N)."""
        slack = 1 - self.growth / (self.x * self.decay)
        if slack <= 0.05:
            raise TryLater
        m = self.through[0] / slack
        return m, m * self.x ** -self.through[1] / self.decay


def constants(account: RecursionAccount, n: int) -> Tail:
    """All of them from step n on."""
    rec = account.recursion
    step, exposure = _law("step", rec.step.upper()), _law("exposure", rec.exposure.upper())
    shift = exposure.shift if exposure.exponent else step.shift
    x = n + shift
    step_at, exposure_at = _over(step, shift, n), _over(exposure, shift, n)
    jump = (step_at[0] * exposure_at[0], step_at[1] + exposure_at[1])
    through, fresh = _shown(account.releases, shift, n)
    if through[0] == 0:  # nothing of the state is ever released: any contraction will do
        return Tail(x, ((1.0, 0.0),), jump, exposure_at, (0.0, max(0.0, fresh[1])), fresh)
    if _leak(rec.leak) > 1:
        return Tail(x, _overshooting(account, n), jump, exposure_at, through, fresh)
    rates = _rates(account, shift, n)
    decay = sum(kappa * x**-u for kappa, u in rates)
    kept, moved = 1 - float(rec.leak(n)), float(rec.step(n)) * rec.curvature[1]
    # l_k <= 1 - D needs a_k - step_k L >= -(1 - D): leak, step and D only fall, so holding at N it
    # holds from N on. A negative leak or curvature fades too, and is of no help later.
    if max(moved, 0.0) - min(kept, 1.0) + decay > 1:
        raise TryLater
    return Tail(x, rates, jump, exposure_at, through, fresh)


def squared(account: RecursionAccount, tail: Tail, n: int) -> Tail:
    """The same of squares, with the noise's 1 / 2 sigma^2 in the place of 1 / b."""
    shift = tail.x - n
    through, fresh = _shown(account.releases, shift, n, power=2)
    grown = 2 - tail.decay
    return Tail(
        tail.x,
        tuple((grown * kappa, u) for kappa, u in tail.rates),
        (tail.jump[0] ** 2, 2 * tail.jump[1]),
        (tail.exposure[0] ** 2, 2 * tail.exposure[1]),
        (through[0] / 2, through[1]),
        (fresh[0] / 2, fresh[1]),
    )


def _leak(leak: Schedule) -> float:
    """Of a constant one; 0 for any other."""
    if isinstance(leak, PowerLaw) and leak.exponent == 0:
        return leak.scale
    return leak.value if isinstance(leak, Constant) else 0.0


def _overshooting(account: RecursionAccount, n: int) -> tuple[tuple[float, float], ...]:
    """D(x) of a constant leak above 1, by the module docstring: a constant."""
    rec, kept = account.recursion, 1 - _leak(account.recursion.leak)
    law = _law("step", rec.step.upper())
    if law.exponent > 0:
        raise NoBound(f"the step {rec.step} grows with time")
    # What has a constant bound may fall all the same.
    level = isinstance(rec.step, Constant)
    falls = not (level or (isinstance(rec.step, PowerLaw) and rec.step.exponent == 0))
    if falls and abs(kept) >= 1:
        raise NoBound(
            f"a leak of {1 - kept:.4g} drives two states apart once the step has fallen: it must be"
            " below 2"
        )
    ends = [abs(kept - law(n) * curved) for curved in rec.curvature]
    kappa = 1 - max([float(end) for end in ends] + ([abs(kept)] if falls else []))
    if kappa <= 0:
        raise TryLater
    return ((kappa, 0.0),)


def _rates(account: RecursionAccount, shift: float, n: int) -> tuple[tuple[float, float], ...]:
    """D(x) as (kappa, u) pairs, slowest decay first, all of them positive:
    l_k <= 1 - leak_k - mu step_k.
    """
    rec = account.recursion
    mu, largest = rec.curvature
    if _law("step", rec.step.upper()).exponent > 0:
        raise NoBound(f"the step {rec.step} grows with time")
    if rec.leak == MEMORYLESS:  # a_k = 0: l_k = step_k max(|mu|, L), which only falls
        kappa = 1 - float(rec.step(n)) * max(abs(mu), abs(largest))
        if kappa <= 0:
            raise TryLater
        return ((kappa, 0.0),)
    terms = []
    for law, weight in ((rec.leak, 1.0), (rec.step, mu)):
        law = PowerLaw(law.value, 0.0) if isinstance(law, Constant) else law
        if not isinstance(law, PowerLaw):
            raise NoBound(f"{law} is not a power law: no proof for an infinite horizon")
        if law.exponent > 0:
            raise NoBound(f"{law} grows with time")
        if law.scale * weight:
            low = min(1.0, ((n + law.shift) / (n + shift)) ** law.exponent)
            high = max(1.0, ((n + law.shift) / (n + shift)) ** law.exponent)
            terms.append(
                (law.scale * weight * (low if law.scale * weight > 0 else high), -law.exponent)
            )
    terms.sort(key=lambda term: term[1])
    if len(terms) == 2 and terms[0][1] == terms[1][1]:
        terms = [(terms[0][0] + terms[1][0], terms[0][1])]
    if len(terms) == 2 and terms[1][0] < 0:
        terms = [
            (terms[0][0] + terms[1][0] * (n + shift) ** (terms[0][1] - terms[1][1]), terms[0][1])
        ]
        if terms[0][0] <= 0:
            raise TryLater
    if not terms or terms[0][0] <= 0:
        raise NoBound(
            "nothing makes the agent forget a changed record: neither coupling nor strong convexity"
            " contracts"
        )
    if terms[-1][1] > 1:
        terms = [term for term in terms if term[1] <= 1]
        if not terms:
            raise NoBound(
                "the contraction fades faster than 1/k: a changed record is never forgotten"
            )
    return tuple(terms)


def _law(name: str, law: PowerLaw | None) -> PowerLaw:
    if law is None:
        raise NoBound(
            f"the {name} has no decaying bound: each record keeps its weight forever (a finite"
            " data set, seen again and again); give a finite horizon"
        )
    return law


def _over(law: PowerLaw, shift: float, n: int) -> tuple[float, float]:
    """(coefficient, decay) of a power law in x = k + shift that lies above `law` for k >= n."""
    ratio = ((n + law.shift) / (n + shift)) ** law.exponent
    return law.scale * max(1.0, ratio), -law.exponent


def _shown(
    releases: tuple[Release, ...], shift: float, n: int, power: int = 1
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Of the state, and of the step's own gradient, over the noise."""
    state = _inverse_sum([(r.state, r.scale) for r in releases], shift, n, power)
    return state, _inverse_sum([(r.fresh, r.scale) for r in releases], shift, n, power)


def _inverse_sum(
    parts: list[tuple[float, Schedule]], shift: float, n: int, power: int = 1
) -> tuple[float, float]:
    """(coefficient, decay) above sum_r (weight_r / scale_r)^power."""
    laws = []
    for weight, scale in parts:
        if weight == 0:
            continue
        law = PowerLaw(scale.value, 0.0) if isinstance(scale, Constant) else scale
        if not isinstance(law, PowerLaw):
            raise NoBound(
                f"the noise scale {scale} is not a power law: no proof for an infinite horizon"
            )
        raised = PowerLaw((weight / law.scale) ** power, -power * law.exponent, law.shift)
        laws.append(_over(raised, shift, n))
    if not laws:
        return 0.0, 0.0
    slowest = min(decay for _, decay in laws)
    return sum(c * (n + shift) ** (slowest - decay) for c, decay in laws), slowest
