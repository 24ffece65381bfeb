"""The budget of a run that never ends: prices summed to a step N, plus a proved bound on all that
comes after.

For k >= N write x = k + s and suppose

    l_k <= 1 - D(x),   D(x) = kappa1 x^-u1 + kappa2 x^-u2,   u1 <= u2 <= 1
        (kappa2 >= 0; a negative one is folded into kappa1)
    step_k c_k <= A x^-p,   c_k <= E x^-c,   1/b_k <= B x^-e

Then psi(x) = M x^-e / D(x) lies above q(k) for every k >= N and every horizon, with

    M = B / (1 - g / (X D(X))),   X = N + s,   g = max(0, u2 - e)   provided g < X D(X)

Proof. -dlogD/dlogx is between u1 and u2, so psi(x+1) <= psi(x) (1 + 1/x)^g <= psi(x) (1 + g/x)
(g <= 1; for larger g use g' = X((1+1/X)^g - 1), as x((1+1/x)^g - 1) decreases). Hence
psi(x) - (1 - D(x)) psi(x+1) >= psi(x) (D(x) - g/x) >= M x^-e (1 - g/(X D(X))) = B x^-e >= 1/b_k,
because x D(x) does not decrease. So psi >= 1/b + l psi(next): by backward induction from q = 0 it
lies above q. []

With it the prices after N lie below

    w(x) = A M (1 + g/X) x^(-p-e) / D(x)  +  E F x^(-c-e),

a function that decreases, so sums of it are below its first value plus its integral
(participation.py says which part of that a pattern pays). The integral is taken in pieces on which
1/D is replaced by its value at the far end. It is finite when p + e - u1 > 1; otherwise the budget
is infinite and we say so.

N is doubled until the total stops improving; the smallest total is kept (each of them is a
true bound).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hearsay.mechanisms.convert import OUTWARD
from hearsay.privacy.account import Bound
from hearsay.privacy.recursion import MEMORYLESS, forward
from hearsay.schedules import Constant, Geometric, PowerLaw, Schedule

if TYPE_CHECKING:
    from hearsay.privacy.recursion_account import RecursionAccount

_FIRST, _LAST = 2**12, 2**18
_ROUNDING = 1e-9  # exponents are sums of floats: a sum of exactly 1 may come out just above it


UNBOUNDED = (
    "nothing bounds the loss's curvature, so a changed record may move the gradients of all others"
    " by any amount: bound the features, clip, or use an algorithm that takes gradients at public"
    " points"
)


class _NoBound(Exception):
    """The hypotheses of the proof fail for every N: the text says which."""


class _TryLater(Exception):
    """They fail at this N and may hold further on."""


@dataclass(frozen=True)
class _Tail:
    """The constants of the module docstring, at one N.
    Exponents are stored as positive decay rates.
    """

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
            raise _TryLater
        m = self.through[0] / slack
        return m, m * self.x ** -self.through[1] / self.decay


def infinite(account: RecursionAccount) -> Bound:
    """The budget over an infinite horizon: pure epsilon for Laplace messages,
    rho for Gaussian ones.
    """
    if any(float(r.scale(0)) == 0 for r in account.releases):
        return Bound(math.inf, reason="messages carry no noise")
    if math.isinf(account.recursion.curvature[1]) and any(r.state for r in account.releases):
        return Bound(math.inf, reason=UNBOUNDED)
    if account.recursion.least is not None:
        return Bound(
            math.inf,
            reason="where messages may be skipped only a number of messages can be certified",
        )
    if (closed := _geometric(account)) is not None:
        return closed
    best, why = None, "no contraction sets in within the first 262,144 steps"
    n = _FIRST
    while n <= _LAST:
        try:
            found = _at(account, n)
            if best is not None and found.value > best.value * (1 - 2e-5):
                return min(best, found, key=lambda b: b.value)
            best = found if best is None or found.value < best.value else best
        except _TryLater:
            pass
        except _NoBound as problem:
            why = str(problem)
            break
        n *= 2
    return best or Bound(math.inf, reason=why)


def _at(account: RecursionAccount, n: int) -> Bound:
    tail = _constants(account, n)
    if not account.mechanism.additive:
        return _gaussian(account, tail, n)
    m, psi = tail.psi
    root = math.sqrt(account.counted_dimension)
    near = account.pattern.total(account.prices(n, terminal=psi))
    if not math.isfinite(near):
        raise _NoBound(
            "the sensitivity grows beyond all bounds in the first steps: make the step size smaller"
        )
    far = 0.0
    if tail.through[0] > 0:
        first, integral = _stateful_tail(tail, m, once=account.pattern.single)
        far += account.pattern.tail(first, integral)
    if tail.fresh[0] > 0:
        far += _fresh_tail(account, tail)
    value = account.pattern.joined(near, root * far)
    if not math.isfinite(value):
        raise _NoBound(_diverges(tail))
    return Bound(value * OUTWARD, n, root * far)


def _stateful_tail(tail: _Tail, m: float, once: bool) -> tuple[float, float]:
    """First value and integral of A M (1 + g/X) x^(-p-e) / D(x) from X on."""
    coefficient = tail.jump[0] * m * (1 + tail.growth / tail.x)
    power = tail.jump[1] + tail.through[1]
    (kappa1, u1), (kappa2, u2) = (*tail.rates, (0.0, tail.rates[0][1]))[:2]
    if power < u2:
        raise _NoBound(f"the price of one use grows with time (exponents {power:.3g} < {u2:.3g})")
    first = coefficient * tail.x**-power / tail.decay
    if once:
        return first, 0.0
    h = power - u1
    if h <= 1 + _ROUNDING:
        raise _NoBound(_diverges(tail))
    edges = tail.x * 2.0 ** (np.arange(0, 161) / 4)
    pieces = (
        (edges[:-1] ** (1 - h) - edges[1:] ** (1 - h))
        / (h - 1)
        / (kappa1 + kappa2 * edges[1:] ** (u1 - u2))
    )
    rest = edges[-1] ** (1 - h) / (h - 1) / kappa1
    return first, coefficient * (float(pieces.sum()) + rest)


def _fresh_tail(account: RecursionAccount, tail: _Tail) -> float:
    coefficient, power = tail.exposure[0] * tail.fresh[0], tail.exposure[1] + tail.fresh[1]
    if power < 0 or (power <= 1 + _ROUNDING and not account.pattern.single):
        raise _NoBound(
            f"c_k / b_k decays like k^-{power:.3g}, which has no finite sum: the exponent must"
            " exceed 1"
        )
    # power > 1 is only missing for Once, which ignores the integral.
    integral = coefficient * tail.x ** (1 - power) / (power - 1) if power > 1 + _ROUNDING else 0.0
    return account.pattern.tail(coefficient * tail.x**-power, integral)


def _gaussian(account: RecursionAccount, tail: _Tail, n: int) -> Bound:
    """rho with every use counted: Phi(k) <= K x^-q, q = p - u1,
    by induction ((x+1)^-q >= x^-q (1 - q/x)).
    """
    kappa, u = tail.rates[0]
    q = tail.jump[1] - u
    slack = kappa - max(q, 0.0) * tail.x ** (u - 1)
    if q < 0:
        raise _NoBound(f"the sensitivity grows with time (it behaves like k^{-q:.3g})")
    if slack <= 0.05 * kappa:
        raise _TryLater
    k = np.arange(n)
    contraction, jump, exposure = account.recursion.coefficients(n)
    phi = forward(contraction, jump)
    if not np.all(np.isfinite(phi)):
        raise _NoBound(
            "the sensitivity grows beyond all bounds in the first steps: make the step size smaller"
        )
    bound = max(phi[-1] * tail.x**q, tail.jump[0] / slack)
    each = sum(
        ((r.state * phi[:-1] + r.fresh * exposure) / r.scale(k)) ** 2 / 2 for r in account.releases
    )
    near = float(np.sum(each))
    if tail.through[0] == 0 and account.pattern.single:
        # Nothing carries over from step to step, so a single use costs one message, the costliest:
        # before N, or at N, where the bound is largest.
        late = tail.exposure[0] * tail.fresh[0] * tail.x ** -(tail.exposure[1] + tail.fresh[1])
        if tail.exposure[1] + tail.fresh[1] < 0:
            raise _NoBound("the price of one use grows with time")
        return Bound(max(float(np.max(each)), late**2 / 2) * OUTWARD, n, late**2 / 2)
    far = 0.0
    for coefficient, power in (
        (bound * tail.through[0], q + tail.through[1]),
        (tail.exposure[0] * tail.fresh[0], tail.exposure[1] + tail.fresh[1]),
    ):
        if coefficient == 0:
            continue
        if 2 * power <= 1 + _ROUNDING:
            raise _NoBound(
                f"sensitivity / noise decays like k^-{power:.3g}; its square has no finite sum"
            )
        # (a + b)^2 <= 2 a^2 + 2 b^2 where a release has both parts
        weight = 1.0 if tail.fresh[0] == 0 or tail.through[0] == 0 else 2.0
        far += (
            weight
            * coefficient**2
            / 2
            * (tail.x ** (-2 * power) + tail.x ** (1 - 2 * power) / (2 * power - 1))
        )
    return Bound((near + far) * OUTWARD, n, far)


def _constants(account: RecursionAccount, n: int) -> _Tail:
    rec = account.recursion
    step, exposure = _law("step", rec.step.upper()), _law("exposure", rec.exposure.upper())
    shift = exposure.shift if exposure.exponent else step.shift
    x = n + shift
    step_at, exposure_at = _over(step, shift, n), _over(exposure, shift, n)
    jump = (step_at[0] * exposure_at[0], step_at[1] + exposure_at[1])
    through = _inverse_sum([(r.state, r.scale) for r in account.releases], shift, n)
    fresh = _inverse_sum([(r.fresh, r.scale) for r in account.releases], shift, n)
    if through[0] == 0:  # nothing of the state is ever released: any contraction will do
        return _Tail(x, ((1.0, 0.0),), jump, exposure_at, (0.0, max(0.0, fresh[1])), fresh)
    rates = _rates(account, shift, n)
    decay = sum(kappa * x**-u for kappa, u in rates)
    kept, moved = 1 - float(rec.leak(n)), float(rec.step(n)) * rec.curvature[1]
    # l_k <= 1 - D needs a_k - step_k L >= -(1 - D): leak, step and D only fall, so holding at N it
    # holds from N on. A negative leak or curvature fades too, and is of no help later.
    if max(moved, 0.0) - min(kept, 1.0) + decay > 1:
        raise _TryLater
    return _Tail(x, rates, jump, exposure_at, through, fresh)


def _rates(account: RecursionAccount, shift: float, n: int) -> tuple[tuple[float, float], ...]:
    """D(x) as (kappa, u) pairs, slowest decay first, all of them positive:
    l_k <= 1 - leak_k - mu step_k.
    """
    rec = account.recursion
    mu, largest = rec.curvature
    if _law("step", rec.step.upper()).exponent > 0:
        raise _NoBound(f"the step {rec.step} grows with time")
    if rec.leak == MEMORYLESS:  # a_k = 0: l_k = step_k max(|mu|, L), which only falls
        kappa = 1 - float(rec.step(n)) * max(abs(mu), abs(largest))
        if kappa <= 0:
            raise _TryLater
        return ((kappa, 0.0),)
    terms = []
    for law, weight in ((rec.leak, 1.0), (rec.step, mu)):
        law = PowerLaw(law.value, 0.0) if isinstance(law, Constant) else law
        if not isinstance(law, PowerLaw):
            raise _NoBound(f"{law} is not a power law: no proof for an infinite horizon")
        if law.exponent > 0:
            raise _NoBound(f"{law} grows with time")
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
            raise _TryLater
    if not terms or terms[0][0] <= 0:
        raise _NoBound(
            "nothing makes the agent forget a changed record: neither coupling nor strong convexity"
            " contracts"
        )
    if terms[-1][1] > 1:
        terms = [term for term in terms if term[1] <= 1]
        if not terms:
            raise _NoBound(
                "the contraction fades faster than 1/k: a changed record is never forgotten"
            )
    return tuple(terms)


def _law(name: str, law: PowerLaw | None) -> PowerLaw:
    if law is None:
        raise _NoBound(
            f"the {name} has no decaying bound: each record keeps its weight forever (a finite"
            " data set, seen again and again)"
        )
    return law


def _over(law: PowerLaw, shift: float, n: int) -> tuple[float, float]:
    """(coefficient, decay) of a power law in x = k + shift that lies above `law` for k >= n."""
    ratio = ((n + law.shift) / (n + shift)) ** law.exponent
    return law.scale * max(1.0, ratio), -law.exponent


def _inverse_sum(parts: list[tuple[float, Schedule]], shift: float, n: int) -> tuple[float, float]:
    """(coefficient, decay) above sum_r weight_r / scale_r."""
    laws = []
    for weight, scale in parts:
        if weight == 0:
            continue
        law = PowerLaw(scale.value, 0.0) if isinstance(scale, Constant) else scale
        if not isinstance(law, PowerLaw):
            raise _NoBound(
                f"the noise scale {scale} is not a power law: no proof for an infinite horizon"
            )
        laws.append(_over(PowerLaw(weight / law.scale, -law.exponent, law.shift), shift, n))
    if not laws:
        return 0.0, 0.0
    slowest = min(decay for _, decay in laws)
    return sum(c * (n + shift) ** (slowest - decay) for c, decay in laws), slowest


def _diverges(tail: _Tail) -> str:
    h = tail.jump[1] + tail.through[1] - tail.rates[0][1]
    return (
        f"the cost of message k falls like k^-{h:.3g}, which has no finite sum: the exponent must"
        " exceed 1"
    )


def _geometric(account: RecursionAccount) -> Bound | None:
    """A memoryless state (l_k = 0) with geometric steps and noise:
    the prices are a geometric series.
    """
    rec = account.recursion
    if not (
        rec.leak == MEMORYLESS
        and rec.curvature == (0.0, 0.0)
        and isinstance(rec.exposure, Constant)
    ):
        return None
    if not (
        isinstance(rec.step, Geometric)
        and len(account.releases) == 1
        and account.mechanism.additive
    ):
        return None
    scale = account.releases[0].scale
    if not isinstance(scale, (Geometric, Constant)) or account.releases[0].fresh:
        return None
    ratio = rec.step.ratio / (scale.ratio if isinstance(scale, Geometric) else 1.0)
    if ratio >= 1:
        return Bound(
            math.inf,
            reason=f"prices grow like {ratio:.4g}^k: the step must fall faster than the noise",
        )
    price = account.prices(2)[0]
    return Bound(price / (1 - ratio**account.pattern.gap) * OUTWARD, 64)
