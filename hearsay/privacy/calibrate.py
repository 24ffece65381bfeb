"""From a budget to the noise that meets it: the inverse of a certificate,
never on the wrong side.
"""

from __future__ import annotations

import math

from hearsay import _validate as require
from hearsay.mechanisms.convert import gaussian_epsilon
from hearsay.privacy.horizon import UNBOUNDED, Bound, infinite
from hearsay.privacy.one_mechanism import OneMechanism
from hearsay.privacy.recursion import OUTWARD, Account, prices, spent


def as_horizon(horizon: float) -> int | float:
    """A number of messages, or infinity."""
    return require.horizon("horizon", horizon)


def cost(account: Account | OneMechanism, horizon: float) -> Bound:
    """Pure epsilon (Laplace) or rho (Gaussian) of one account over a finite or infinite horizon."""
    horizon = as_horizon(horizon)
    if isinstance(account, OneMechanism):
        if horizon > account.rounds:
            return Bound(math.inf, reason=f"the noise is planned for {account.rounds} rounds")
        return Bound(float(account.spent(1)[0]) if horizon > 0 else 0.0, int(horizon))
    if account.void and horizon > 0:
        return Bound(math.inf, reason=account.void)
    if math.isinf(horizon):
        return infinite(account)
    messages = int(horizon)
    if messages == 0:
        return Bound(0.0)
    if account.mechanism == "gaussian":
        value = float(spent(account, messages)[-1])
    else:
        value = account.pattern.total(prices(account, messages)) * OUTWARD
    reason = "" if math.isfinite(value) else _why_infinite(account)
    return Bound(value if math.isfinite(value) else math.inf, messages, reason=reason)


def noise_factor(
    account: Account | OneMechanism, epsilon: float, horizon: float, delta: float | None = None
) -> float:
    """The factor by which the noise scale must grow (or may shrink) for the account to cost at
    most `epsilon`.

    Pure epsilon is proportional to 1/scale and rho to 1/scale^2, so this is a closed form for
    Laplace noise and one root search for Gaussian noise.
    """
    epsilon, delta = (
        require.positive("epsilon", epsilon),
        require.optional(require.fraction)("delta", delta),
    )
    now = cost(account, horizon)
    if not math.isfinite(now.value):
        raise ValueError(f"no amount of noise on this schedule gives a finite budget: {now.reason}")
    if now.value == 0:
        return 1.0
    if account.mechanism == "laplace":
        return float(now.value / epsilon * (1 + 1e-12))
    if delta is None:
        what = (
            "Gaussian noise"
            if account.mechanism == "gaussian"
            else "a ternary quantizer, whose budget it is"
        )
        raise ValueError(f"delta must be given to calibrate {what}")
    if account.mechanism == "ternary":
        return float(now.value / delta * (1 + 1e-12))
    return math.sqrt(now.value / rho_for(epsilon, delta)) * (1 + 1e-12)


def rho_for(epsilon: float, delta: float) -> float:
    """The largest rho (to one part in 10^6, from below) whose epsilon at `delta`
    is at most `epsilon`.
    """
    # A conversion is a root search, whose last digits do not always grow with rho: the margin
    # covers every smaller rho too.
    epsilon, delta = (
        require.positive("epsilon", epsilon) * (1 - 1e-8),
        require.fraction("delta", delta),
    )
    low, high = 0.0, 1.0
    while gaussian_epsilon(high, delta) <= epsilon:
        low, high = high, 2 * high
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if gaussian_epsilon(middle, delta) <= epsilon else (low, middle)
    return low


def _why_infinite(account: Account) -> str:
    if any(float(r.scale(0)) == 0 for r in account.releases):
        return "messages carry no noise"
    if math.isinf(account.recursion.curvature[1]):
        return UNBOUNDED
    return "the sensitivity grows beyond all bounds: make the step size smaller"
