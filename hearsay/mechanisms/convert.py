"""From pure epsilon or rho to (epsilon, delta): Laplace sequences by the dp-accounting library,
Gaussian ones in closed form.

A message is a d-dimensional Laplace mechanism whose l1 sensitivity is at most Delta_k. It is
dominated by the one-dimensional one with sensitivity Delta_k, so a run is a composition of
one-dimensional Laplace mechanisms of parameter Delta_k / b_k.

Why: let f_s be the trade-off function of Lap(0) against Lap(s). For a log-concave density threshold
tests are optimal, so shifting twice in one coordinate gives f_{s+t} = f_t(1 - f_s). Testing a
pair (0, 0) against (s, t) in two independent coordinates, pass over the hybrid (s, 0): a test of
level a has power at most 1 - f_s(a) against the hybrid, hence at most 1 - f_t(1 - f_s(a)) against
(s, t). So two coordinates are never easier to tell apart than one with the summed shift; the
same step again gives d coordinates. The trade-off function only falls when s grows, so rounding a
sensitivity up is safe.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import optimize, stats

from hearsay import _validate as require

# Every printed budget is multiplied by this, so that float64 rounding can never print less than
# the true value.
OUTWARD = 1 + 1e-9

# Parameters are rounded up to a grid of this ratio so that equal ones compose in one step; it costs
# at most this much of epsilon.
_BUCKET = 1.01
# The weakest mechanisms, together at most this share of the sum, are added as one pure-epsilon
# event instead of being composed.
_SPARE = 2e-3


def laplace_epsilon(parameters: np.ndarray, delta: float) -> float:
    """epsilon at delta for Laplace mechanisms of parameters Delta_k / b_k, shape (pattern, step):
    true for the worst pattern.

    The smallest of the bounds that apply: the plain sum, Renyi composition (worst pattern at every
    order), and, where there is one pattern only, the discretised privacy loss distribution.
    """
    delta, parameters = (
        require.fraction("delta", delta),
        np.atleast_2d(require.array("parameters", parameters)),
    )
    if not np.all(parameters >= 0):
        require.fail("parameters", "zero or positive", float(np.min(parameters)))
    pure = float(np.sum(parameters, axis=1).max(initial=0.0))
    if pure == 0 or not math.isfinite(pure):
        return pure
    found = min(pure, _renyi(parameters, delta))
    if len(parameters) == 1:
        row = np.sort(parameters[0])
        weak = int(np.searchsorted(np.cumsum(row), _SPARE * pure))
        found = min(found, _loss_distribution(row[weak:], delta) + float(np.sum(row[:weak])))
    return found


def gaussian_epsilon(rho: float, delta: float) -> float:
    """epsilon at delta of Gaussian mechanisms whose zero-concentrated budgets sum to rho.

    Their composition is as private as one Gaussian mechanism with mu = sqrt(2 rho) (Dong, Roth
    and Su 2022), whose exact trade-off is delta(epsilon) = N(mu/2 - epsilon/mu) - e^epsilon
    N(-mu/2 - epsilon/mu) (Balle and Wang 2018). Rounded outward.
    """
    delta = require.fraction("delta", delta)
    # Infinity less infinity, on the way here: no budget.
    if isinstance(rho, float) and math.isnan(rho):
        return math.inf
    rho = require.nonnegative_or_infinite("rho", rho)
    if rho == 0:
        return 0.0
    if not math.isfinite(rho):
        return math.inf
    mu = math.sqrt(2 * rho)

    def excess(epsilon: float) -> float:
        log_first = stats.norm.logcdf(mu / 2 - epsilon / mu)
        log_second = epsilon + stats.norm.logcdf(-mu / 2 - epsilon / mu)
        return math.exp(log_first) * -math.expm1(min(0.0, log_second - log_first)) - delta

    if excess(0.0) <= 0:
        return 0.0
    # The textbook conversion: never below the exact value.
    high = rho + 2 * math.sqrt(rho * math.log(1 / delta))
    return optimize.brentq(excess, 0.0, high, xtol=1e-12, rtol=1e-12) * (1 + 1e-9) + 2e-12


def _renyi(parameters: np.ndarray, delta: float) -> float:
    from dp_accounting.rdp import compute_epsilon

    orders = np.concatenate([1 + np.geomspace(0.02, 1, 12), np.geomspace(2.2, 5000, 40)])
    total = np.zeros(len(orders))
    if len(parameters) == 1:
        values, counts = _buckets(parameters[0])
    else:
        values, counts = parameters, np.ones(1)
    for index, a in enumerate(orders):
        # log of a/(2a-1) e^((a-1)t) + (a-1)/(2a-1) e^(-at), over a-1 (Mironov 2017, Table II)
        terms = np.logaddexp(
            math.log(a / (2 * a - 1)) + (a - 1) * values,
            math.log((a - 1) / (2 * a - 1)) - a * values,
        )
        total[index] = max(0.0, float(np.max(np.sum(counts * terms, axis=-1)))) / (a - 1)
    return float(compute_epsilon(orders, total, delta)[0])


def _buckets(parameters: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Parameters rounded up to the grid, with how often each occurs; zeros are left out."""
    exponents, counts = np.unique(
        np.ceil(np.log(parameters[parameters > 0]) / math.log(_BUCKET)), return_counts=True
    )
    return _BUCKET**exponents, counts


def _loss_distribution(parameters: np.ndarray, delta: float) -> float:
    from dp_accounting.pld import privacy_loss_distribution as pld

    values, counts = _buckets(parameters)
    pure = float(np.sum(values * counts))
    # Pessimistic rounding moves each loss up by at most one cell, so the cells must be far below a
    # typical per-step loss.
    cell = max(min(1e-3, pure / len(parameters) / 50), pure / 2e5)
    composed = None
    try:
        for value, n in zip(values, counts, strict=True):
            one = pld.from_laplace_mechanism(
                parameter=1 / float(value), value_discretization_interval=cell
            )
            many = one.self_compose(int(n)) if n > 1 else one
            composed = many if composed is None else composed.compose(many)
        assert composed is not None
        return float(composed.get_epsilon_for_delta(delta))
    except (
        ValueError,
        OverflowError,
    ):
        # Single losses so large that the library's sums lose their order, or a cell its range: no
        # bound from here.
        return math.inf
