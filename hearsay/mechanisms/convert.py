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

Which steps use a record is a property of the record that is replaced (its place in the data set,
or the coins that are public), so each pattern of uses is one pair of neighbours with one
composition, and what protects every pair is the largest epsilon over patterns, each computed by
itself. No mixture over patterns is formed, and none is needed: a hockey-stick divergence of two
neighbours is that of their own pattern.

There may be thousands of patterns. The parameters of a row may be sorted, because compositions of
fixed pairs commute; a sorted row that lies below another one, number by number, is less
private in no respect and is dropped; and a group of rows is bounded by one row, the largest of
each column. Groups are split, the costliest first, until the bound is as good as that of the
strongest row or the work is done: what is left is bounded, not skipped.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import optimize, special

from hearsay import _validate as require

if TYPE_CHECKING:
    from dp_accounting.pld import pld_pmf

# Every printed budget is multiplied by this, so that float64 rounding can never print less than
# the true value.
OUTWARD = 1 + 1e-9

# Parameters are rounded up to a grid of this ratio so that equal ones compose in one step; it costs
# at most this much of epsilon. A finer grid is used where it has few enough numbers.
_BUCKET = 1.01
_FINER, _FEW, _MANY = (1.0002, 1.001, 1.003), 128, 4096
# The weakest mechanisms, together at most this share of a first bound, are added as one pure
# epsilon instead of being composed.
_SPARE = 1e-3
# The mass of losses that each composition may count as infinite ones instead of keeping them.
_TRUNCATED = 1e-15
# Rows are dropped that exceed another one by no more than this, and that one is raised by it.
_EQUAL = 1e-9
# How many rows are compared with all others, and how many groups of rows are composed, at most.
_COMPARED, _COMPOSED = 48, 12
# Groups are not split any further for less than this share of epsilon.
_ENOUGH = 1e-3
# Above this rho the exact trade-off of Gaussian noise loses too many digits to be inverted.
_LARGE_RHO = 1e8
# More than what a sum of millions of numbers that are not negative loses, as a share of it.
_SUMMED = 2e-9


def laplace_epsilon(parameters: np.ndarray, delta: float) -> float:
    """epsilon at delta for Laplace mechanisms of parameters Delta_k / b_k, shape (pattern, step):
    true for the worst pattern.

    The smallest of the bounds that apply: the plain sum, Renyi composition (worst pattern at every
    order), and the discretised privacy loss distribution of the worst pattern.
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
    if len(parameters) == 1:
        rows, counts = parameters[:, parameters[0] > 0], np.ones(1)
        values, counts = (rows, counts) if rows.size <= _MANY else _buckets(rows[0])
        known = min(pure, _renyi(values, counts, delta))
        return min(known, _by_losses(rows[0], delta, _SPARE * known))
    rows = _undominated(parameters)
    known = min(pure, _renyi(rows, np.ones(1), delta))
    return min(known, _worst(rows, delta, _SPARE * known))


@require.plain_arguments
def grown(epsilon: float) -> float:
    """1 + e^epsilon: by how much a distance in total variation, or a delta between two laws that
    are each as near to a third, grows.
    """
    return 1 + math.exp(epsilon) if epsilon < 700 else math.inf


def gaussian_epsilon(rho: float, delta: float) -> float:
    """epsilon at delta of Gaussian mechanisms whose zero-concentrated budgets sum to rho.

    Their composition is as private as one Gaussian mechanism with mu = sqrt(2 rho) (Dong, Roth
    and Su 2022), whose exact trade-off is delta(epsilon) = N(mu/2 - epsilon/mu) - e^epsilon
    N(-mu/2 - epsilon/mu) (Balle and Wang 2018). Rounded outward. Where rho is large its second
    term is left out: the epsilon of the first alone, rho - mu N^-1(delta), is never below the exact
    one, and above it by less than 1e-7 of it.
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
    mu = math.sqrt(2) * math.sqrt(rho)
    if rho > _LARGE_RHO:
        return (rho - mu * float(special.ndtri(delta))) * OUTWARD

    def excess(epsilon: float) -> float:
        log_first = special.log_ndtr(mu / 2 - epsilon / mu)
        log_second = epsilon + special.log_ndtr(-mu / 2 - epsilon / mu)
        # A little less than delta: close to 1 the difference loses its last digits.
        least = delta * (1 - 1e-15)
        return math.exp(log_first) * -math.expm1(min(0.0, log_second - log_first)) - least

    # Total variation, without a difference.
    if math.erf(mu / math.sqrt(8)) <= delta * (1 - 1e-15):
        return 0.0
    # The textbook conversion: never below the exact value.
    high = rho + 2 * math.sqrt(rho * -math.log(delta))
    # Where rho is tiny the two terms cancel to the last digits, or altogether.
    lost = 2e-12 if rho > 1e-18 else 1e-10
    if excess(0.0) <= 0:
        return min(lost, high)
    return optimize.brentq(excess, 0.0, high, xtol=1e-12, rtol=1e-12) * (1 + 1e-9) + lost


def _undominated(parameters: np.ndarray) -> np.ndarray:
    """Rows that dominate all given ones: sorted from the largest number on, without columns of
    zeros, and without the rows that lie below another one.
    """
    rows = np.sort(parameters, axis=1)[:, ::-1]
    rows = rows[:, : int(np.max(np.count_nonzero(rows, axis=1)))]
    rows, kept = rows[np.argsort(-rows.sum(axis=1), kind="stable")], list[np.ndarray]()
    while len(rows) and len(kept) < _COMPARED:
        kept.append(rows[0] * (1 + _EQUAL))
        rows = rows[~np.all(rows <= kept[-1], axis=1)]
    return np.concatenate([np.stack(kept), rows])


def _worst(rows: np.ndarray, delta: float, spare: float) -> float:
    """By loss distributions: above the epsilon of every row, and close to the largest of them."""
    strongest = _by_losses(rows[np.argmax(np.sum(rows**2, axis=1))], delta, spare)
    if len(rows) == 1:
        return strongest

    def bounded(group: np.ndarray) -> tuple[float, np.ndarray]:
        return _by_losses(group.max(axis=0), delta, spare), group

    groups, composed = [bounded(rows)], 2
    while True:
        groups.sort(key=lambda pair: pair[0])
        epsilon, group = groups[-1]
        good = epsilon <= strongest * (1 + _ENOUGH)
        if good or not math.isfinite(epsilon) or len(group) == 1 or composed >= _COMPOSED:
            return epsilon
        # The halves are cut where rows differ most.
        column = group[:, np.argmax(group.max(axis=0) - group.min(axis=0))]
        upper = column > (column.min() + column.max()) / 2
        if not 0 < np.count_nonzero(upper) < len(group):
            return epsilon
        groups[-1:] = [bounded(group[upper]), bounded(group[~upper])]
        composed += 2


def _by_losses(row: np.ndarray, delta: float, spare: float) -> float:
    """epsilon of one composition, by loss distributions.

    Args:
      spare: the weakest mechanisms, together at most this much, are added as a pure one.
    """
    row = np.sort(row)
    weak = int(np.searchsorted(np.cumsum(row), min(spare, float(row[-1]) / 2)))
    return _loss_distribution(row[weak:], delta) + float(np.sum(row[:weak]))


def _renyi(values: np.ndarray, counts: np.ndarray, delta: float) -> float:
    """epsilon of the worst row of `values`, each of them so often, by Renyi composition."""
    from dp_accounting.rdp import compute_epsilon

    orders = np.concatenate([1 + np.geomspace(0.02, 1, 12), np.geomspace(2.2, 5000, 40)])
    total = np.zeros(len(orders))
    for index, a in enumerate(orders):
        # log of a/(2a-1) e^((a-1)t) + (a-1)/(2a-1) e^(-at), over a-1 (Mironov 2017, Table II)
        terms = np.logaddexp(
            math.log(a / (2 * a - 1)) + (a - 1) * values,
            math.log((a - 1) / (2 * a - 1)) - a * values,
        )
        total[index] = max(0.0, float(np.max(np.sum(counts * terms, axis=-1)))) / (a - 1)
    return float(compute_epsilon(orders, total, delta)[0])


def _buckets(parameters: np.ndarray, ratio: float = _BUCKET) -> tuple[np.ndarray, np.ndarray]:
    """Parameters rounded up to a grid of that ratio below the largest of them, with how often each
    occurs; zeros are left out.
    """
    top = float(np.max(parameters))
    exponents, counts = np.unique(
        np.ceil(np.log(parameters[parameters > 0] / top) / math.log(ratio)), return_counts=True
    )
    return top * ratio**exponents, counts


def _loss_distribution(parameters: np.ndarray, delta: float) -> float:
    """epsilon of a composition, by privacy loss distributions on a grid (Doroshenko et al. 2022):
    each is replaced by one on the grid that dominates it.

    A loss between two points of the grid goes to both of them, which adds at most cell^2 / 4 to its
    variance: with cells of a sixteenth of the root mean square of the parameters a thousandth of
    that of the sum, whatever the number of mechanisms.
    """
    from dp_accounting.pld import pld_pmf

    for ratio in (*_FINER, _BUCKET):
        values, counts = _buckets(parameters, ratio)
        if len(values) <= _FEW:
            break
    total, squares = float(np.sum(values * counts)), float(np.sum(values**2 * counts))
    cell = min(math.sqrt(squares / len(parameters)) / 16, total / 4000)
    try:
        parts = [
            _repeated(_losses(v, cell), n)
            for v, n in zip(values.tolist(), counts.tolist(), strict=True)
        ]
        # Two by two: neighbours have about the same size, and most of them are small.
        while len(parts) > 1:
            pairs = zip(parts[::2], parts[1::2], strict=False)
            rest = parts[len(parts) // 2 * 2 :]
            parts = [pld_pmf.compose_pmfs(a, b, _TRUNCATED) for a, b in pairs] + rest
        return inverted(parts[0], delta) * OUTWARD
    except (
        ValueError,
        OverflowError,
    ):
        # Single losses so large that the library's sums lose their order, or a cell its range: no
        # bound from here.
        return math.inf


@require.plain_arguments
def inverted(losses: Any, delta: float) -> float:
    """epsilon at delta of a privacy loss distribution of the library, which goes through its grid
    one point after the other and adds up losses and masses on the way: over millions of points
    both drift, and where delta hardly falls with epsilon that shows. Its delta at an epsilon is a
    plain sum of what is not negative.
    """
    if delta <= 0:
        return math.inf
    most, step = delta * (1 - _SUMMED), 1e-12
    found = max(0.0, float(losses.get_epsilon_for_delta(delta * (1 - 2 * _SUMMED))))
    while math.isfinite(found) and float(losses.get_delta_for_epsilon(found)) > most:
        found, step = found + step, 2 * step
    return found


def _losses(value: float, cell: float) -> pld_pmf.PLDPmf:
    """The loss distribution of one Laplace mechanism, on the grid."""
    from dp_accounting.pld import pld_pmf

    most = math.ceil(value / cell)
    epsilon = np.arange(-most, most + 1) * cell
    # sup_S P(S) - e^epsilon Q(S): everything is surer than e^-value.
    inner = -np.expm1((np.minimum(epsilon, value) - value) / 2)
    deltas = np.where(epsilon < -value, -np.expm1(np.minimum(epsilon, 0.0)), inner)
    return pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(
        cell, -most, most, deltas
    ).to_dense_pmf()


def _repeated(one: pld_pmf.PLDPmf, times: int) -> pld_pmf.PLDPmf:
    """Composed with itself, by squaring: the library's own power searches for bounds on tails
    first, which takes longer than all the rest.
    """
    from dp_accounting.pld import pld_pmf

    found = None
    while True:
        if times % 2:
            found = one if found is None else pld_pmf.compose_pmfs(found, one, _TRUNCATED)
        times //= 2
        if not times:
            assert found is not None
            return found
        one = pld_pmf.compose_pmfs(one, one, _TRUNCATED)
