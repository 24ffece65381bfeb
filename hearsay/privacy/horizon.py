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

**Gaussian noise.** rho is not additive in the uses of a record, so every use is counted at once
(`_gaussian`), except where there is only one (`_one_use`): a fresh stream. The use at step l makes
Phi(l+1) = step_l c_l, from there on Phi(k+1) = l_k Phi(k), and it shows by itself in message l,
where Phi is still 0. So it costs

    q2(k) = sum_r state_r^2 / 2 sigma_r(k)^2 + l_k^2 q2(k+1)
    w2(l) = (step_l c_l)^2 q2(l+1) + c_l^2 sum_r fresh_r^2 / 2 sigma_r(l)^2

of rho: prices with squares in the place of numbers. The proof above bounds them with the constants
of the squares (tails.py), and rho is the largest of them: those before N, with psi in the place of
what comes after, or w at N, where it is largest of all that follow.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from hearsay.mechanisms.convert import OUTWARD
from hearsay.privacy.account import Bound
from hearsay.privacy.recursion import MEMORYLESS, forward
from hearsay.privacy.tails import ROUNDING, NoBound, Tail, TryLater, constants, squared
from hearsay.schedules import Constant, Geometric

if TYPE_CHECKING:
    from hearsay.privacy.recursion_account import RecursionAccount

_FIRST, _LAST = 2**12, 2**18


UNBOUNDED = (
    "nothing bounds the loss's curvature, so a changed record may move the gradients of all others"
    " by any amount: bound the features, clip, or use an algorithm that takes gradients at public"
    " points"
)

_EXPLODES = "the sensitivity grows beyond all bounds in the first steps: make the step size smaller"

_WAYS = "(let the noise grow faster, or give a finite horizon)"


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
        except TryLater:
            pass
        except NoBound as problem:
            why = str(problem)
            break
        n *= 2
    return best or Bound(math.inf, reason=why)


def _at(account: RecursionAccount, n: int) -> Bound:
    tail = constants(account, n)
    if not account.mechanism.additive:
        once = account.pattern.single and tail.through[0] > 0
        return (
            _one_use(account, squared(account, tail, n), n) if once else _gaussian(account, tail, n)
        )
    m, psi = tail.psi
    root = math.sqrt(account.counted_dimension)
    near = account.pattern.total(account.prices(n, terminal=psi))
    if not math.isfinite(near):
        raise NoBound(_EXPLODES)
    far = 0.0
    if tail.through[0] > 0:
        first, integral = _stateful_tail(tail, m, once=account.pattern.single)
        far += account.pattern.tail(first, integral)
    if tail.fresh[0] > 0:
        far += _fresh_tail(account, tail)
    value = account.pattern.joined(near, root * far)
    if not math.isfinite(value):
        raise NoBound(_diverges(tail))
    return Bound(value * OUTWARD, n, root * far)


def _one_use(account: RecursionAccount, tail: Tail, n: int) -> Bound:
    """rho of the costliest single use; the tail is that of squares."""
    m, psi = tail.psi
    near = float(np.max(account.single_costs(n, terminal=psi)))
    if not math.isfinite(near):
        raise NoBound(_EXPLODES)
    far, _ = _stateful_tail(tail, m, once=True)
    if tail.fresh[0] > 0:
        far += _fresh_tail(account, tail)
    return Bound(max(near, far) * OUTWARD, n, far)


def _stateful_tail(tail: Tail, m: float, once: bool) -> tuple[float, float]:
    """First value and integral of A M (1 + g/X) x^(-p-e) / D(x) from X on."""
    coefficient = tail.jump[0] * m * (1 + tail.growth / tail.x)
    power = tail.jump[1] + tail.through[1]
    (kappa1, u1), (kappa2, u2) = (*tail.rates, (0.0, tail.rates[0][1]))[:2]
    if power < u2:
        raise NoBound(f"the price of one use grows with time (exponents {power:.3g} < {u2:.3g})")
    first = coefficient * tail.x**-power / tail.decay
    if once:
        return first, 0.0
    h = power - u1
    if h <= 1 + ROUNDING:
        raise NoBound(_diverges(tail))
    edges = tail.x * 2.0 ** (np.arange(0, 161) / 4)
    pieces = (
        (edges[:-1] ** (1 - h) - edges[1:] ** (1 - h))
        / (h - 1)
        / (kappa1 + kappa2 * edges[1:] ** (u1 - u2))
    )
    rest = edges[-1] ** (1 - h) / (h - 1) / kappa1
    return first, coefficient * (float(pieces.sum()) + rest)


def _fresh_tail(account: RecursionAccount, tail: Tail) -> float:
    coefficient, power = tail.exposure[0] * tail.fresh[0], tail.exposure[1] + tail.fresh[1]
    if account.pattern.single and power < 0:
        raise NoBound(f"the price of one use grows with time (c_k / b_k {_decays(power)})")
    if power <= 1 + ROUNDING and not account.pattern.single:
        raise NoBound(
            f"c_k / b_k {_decays(power)}, which has no finite sum: the exponent must exceed 1"
            f" {_WAYS}"
        )
    # power > 1 is only missing for Once, which ignores the integral.
    integral = coefficient * tail.x ** (1 - power) / (power - 1) if power > 1 + ROUNDING else 0.0
    return account.pattern.tail(coefficient * tail.x**-power, integral)


def _gaussian(account: RecursionAccount, tail: Tail, n: int) -> Bound:
    """rho with every use counted: Phi(k) <= K x^-q, q = p - u1,
    by induction ((x+1)^-q >= x^-q (1 - q/x)).
    """
    kappa, u = tail.rates[0]
    q = tail.jump[1] - u
    slack = kappa - max(q, 0.0) * tail.x ** (u - 1)
    if q < 0:
        raise NoBound(f"the sensitivity grows with time (it {_decays(q)})")
    if slack <= 0.05 * kappa:
        raise TryLater
    k = np.arange(n)
    contraction, jump, exposure = account.recursion.coefficients(n)
    phi = forward(contraction, jump)
    if not np.all(np.isfinite(phi)):
        raise NoBound(_EXPLODES)
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
            raise NoBound("the price of one use grows with time")
        return Bound(max(float(np.max(each)), late**2 / 2) * OUTWARD, n, late**2 / 2)
    far = 0.0
    for coefficient, power in (
        (bound * tail.through[0], q + tail.through[1]),
        (tail.exposure[0] * tail.fresh[0], tail.exposure[1] + tail.fresh[1]),
    ):
        if coefficient == 0:
            continue
        if 2 * power <= 1 + ROUNDING:
            raise NoBound(
                f"sensitivity / noise {_decays(power)}, and its square has no finite sum: the"
                f" exponent must exceed 0.5 {_WAYS}"
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


def _diverges(tail: Tail) -> str:
    h = tail.jump[1] + tail.through[1] - tail.rates[0][1]
    return (
        f"the cost of message k {_decays(h)}, which has no finite sum: the exponent must exceed 1"
        f" {_WAYS}"
    )


def _decays(power: float) -> str:
    """What behaves like k^-power does so."""
    shown = f"{abs(power):.3g}"
    if float(shown) < 1e-6:
        return "does not decay (the exponent is 0)"
    return f"decays like k^-{shown}" if power > 0 else f"grows like k^{shown}"


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
