"""(epsilon, delta) against exact integration: one and two Laplace mechanisms,
a small composition on a grid, the Gaussian formula.
"""

from __future__ import annotations

import math
from itertools import pairwise

import mpmath
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr

from hearsay.mechanisms import convert
from hearsay.mechanisms.convert import _buckets, gaussian_epsilon, laplace_epsilon


def one_delta(shift: float, epsilon: float) -> float:
    """sup_S P(S) - e^epsilon Q(S) for P = Lap(0), Q = Lap(shift), scale 1; any real epsilon."""
    if epsilon >= shift:
        return 0.0
    return 1 - math.exp((epsilon - shift) / 2) if epsilon >= -shift else 1 - math.exp(epsilon)


def two_delta(s: float, t: float, epsilon: float) -> float:
    """The same for two independent coordinates: the loss of the first is s (x < 0), s - 2x,
    or -s (x > s) under P.
    """
    # The integrand has kinks where epsilon - (s - 2x) meets +-t.
    kinks = sorted({0.0, s, *(min(max((s - epsilon + c) / 2, 0.0), s) for c in (-t, t))})
    inner = sum(
        quad(lambda x: math.exp(-x) / 2 * one_delta(t, epsilon - s + 2 * x), a, b, epsabs=1e-14)[0]
        for a, b in pairwise(kinks)
    )
    return one_delta(t, epsilon - s) / 2 + inner + math.exp(-s) / 2 * one_delta(t, epsilon + s)


def epsilon_of(delta_of, pure: float, delta: float) -> float:
    if delta_of(0.0) <= delta:
        return 0.0
    return brentq(lambda e: delta_of(e) - delta, 0.0, pure, xtol=1e-14, rtol=1e-14)


def grid_epsilon(parameters: list[float], delta: float, cell: float, upward: bool) -> float:
    """Epsilon of a composition with every loss rounded to a grid, down (below the truth) or up
    (above it), by plain convolution.
    """
    total, offset = np.ones(1), 0
    for t in parameters:
        half = round(t / cell)
        assert math.isclose(half * cell, t)
        # Losses at the ends of the cells, from x = 0 to x = t.
        edges = np.linspace(t, -t, 2 * half + 1)
        mass = np.diff(-np.exp(-(t - edges) / 2) / 2)  # probability of each cell
        loss = np.zeros(2 * half + 1)  # index i stands for the loss (i - half) cell
        cells = np.arange(2 * half, 0, -1)
        np.add.at(loss, cells if upward else cells - 1, mass)
        loss[-1] += 0.5
        loss[0] += math.exp(-t) / 2
        total, offset = np.convolve(total, loss), offset + half
    losses = (np.arange(len(total)) - offset) * cell

    def delta_of(e: float) -> float:
        return float(
            np.sum(np.where(losses > e, total * -np.expm1(np.minimum(e - losses, 0)), 0.0))
        )

    return epsilon_of(delta_of, sum(parameters), delta)


@pytest.mark.parametrize("shift", [1e-4, 0.05, 1.0, 6.0])
@pytest.mark.parametrize("delta", [1e-12, 1e-6, 1e-3, 0.2])
def test_one_mechanism(shift, delta):
    exact = max(0.0, shift + 2 * math.log1p(-delta))
    found = laplace_epsilon(np.array([shift]), delta)
    assert exact * (1 - 1e-12) <= found <= min(shift, 1.02 * exact + 2e-4 * shift + 1e-12)


@pytest.mark.parametrize("s, t", [(0.5, 0.5), (1.0, 0.2), (0.02, 0.05), (3.0, 2.0)])
@pytest.mark.parametrize("delta", [1e-6, 1e-3, 0.05])
def test_two_mechanisms(s, t, delta):
    exact = epsilon_of(lambda e: two_delta(s, t, e), s + t, delta)
    found = laplace_epsilon(np.array([s, t]), delta)
    assert exact * (1 - 1e-12) <= found <= s + t
    assert found <= 1.03 * exact + 1e-3 * (s + t)


@pytest.mark.parametrize("delta", [1e-8, 1e-4, 1e-2])
def test_a_composition_on_a_grid(delta):
    parameters = [0.2] * 6 + [0.1] * 10 + [0.04] * 4
    low, high = (grid_epsilon(parameters, delta, 0.002, up) for up in (False, True))
    found = laplace_epsilon(np.array(parameters), delta)
    assert low <= found <= 1.03 * high
    assert found < sum(parameters)


@pytest.mark.parametrize("s, t", [(0.5, 0.5), (1.0, 0.1), (2.0, 3.0), (0.01, 0.03)])
def test_two_coordinates_are_no_easier_to_tell_apart_than_one_with_the_summed_shift(s, t):
    """The domination claim of the module, over the whole range of epsilon."""
    gaps = []
    for epsilon in np.linspace(-1.2 * (s + t), 1.2 * (s + t), 97):
        two, one = two_delta(s, t, epsilon), one_delta(s + t, epsilon)
        assert two <= one + 1e-12
        gaps.append(one - two)
    assert max(gaps) > 1e-4 * (s + t)  # the reference can tell the two sides apart


def test_thousands_of_steps_gain_much_over_the_plain_sum():
    parameters = np.full(2000, 0.01)
    found = laplace_epsilon(parameters, 1e-6)
    # The central limit of the composition: a Gaussian of mu = sqrt(n) t. Bounds around it, wide
    # enough for the next term.
    limit = gaussian_epsilon(2000 * 0.01**2 / 2, 1e-6)
    assert 0.9 * limit < found < 1.1 * limit < 0.15 * parameters.sum()


def test_the_worst_pattern_counts():
    rows = np.array([[0.5, 0.0, 0.3], [0.0, 1.0, 0.0], [0.2, 0.2, 0.2]])
    for delta in (1e-6, 1e-2):
        together = laplace_epsilon(rows, delta)
        exact = [
            epsilon_of(lambda e: two_delta(0.5, 0.3, e), 0.8, delta),
            1.0 + 2 * math.log1p(-delta),
        ]
        assert max(exact) * (1 - 1e-12) <= together <= 1.0


def patterns(kind: str) -> np.ndarray:
    """What each message costs under each pattern of uses, all multiples of 0.01."""
    prices = np.round(0.4 * np.arange(1.0, 61.0) ** -0.5, 2)
    if kind == "cyclic":
        return np.where(np.arange(60) % 6 == np.arange(6)[:, None], prices, 0.0)
    if kind == "carried on":
        # A use shows in three messages, weaker each time.
        shown = [np.roll(0.2 / 2**age * np.eye(30), age, axis=1) for age in range(2)]
        return np.round(sum(shown), 2)
    rng = np.random.default_rng(4)
    return np.round(rng.random((8, 12)) ** 2 * 0.4, 2)


@pytest.mark.parametrize("kind", ["cyclic", "carried on", "at random"])
@pytest.mark.parametrize("delta", [1e-6, 1e-3, 0.05])
def test_several_patterns_on_a_grid(kind, delta):
    """Every pattern by convolution, rounded down and up: the worst is between the two."""
    rows = patterns(kind)
    each = [[float(v) for v in row if v > 0] for row in rows]
    low, high = (
        max(grid_epsilon(row, delta, 0.01 / 4, up) for row in each) for up in (False, True)
    )
    found = laplace_epsilon(rows, delta)
    assert low <= found <= 1.03 * high + 1e-3
    assert found <= convert._renyi(rows, np.ones(1), delta) * (1 + 2e-9)


def test_many_patterns_gain_much_over_renyi_composition():
    prices = np.full(2000, 0.05)
    rows = np.where(np.arange(2000) % 20 == np.arange(20)[:, None], prices, 0.0)
    one = laplace_epsilon(np.full(100, 0.05), 1e-5)
    found, renyi = laplace_epsilon(rows, 1e-5), convert._renyi(rows, np.ones(1), 1e-5)
    assert one <= found <= one * (1 + 1e-6)
    assert found < 0.93 * renyi


@pytest.mark.parametrize("seed", range(6))
def test_rows_that_are_kept_lie_above_all_that_were_given(seed):
    rng = np.random.default_rng(seed)
    rows = rng.random((40, 9)) * (rng.random((40, 9)) < 0.6) * rng.choice([1, 0.1], (40, 1))
    kept = convert._undominated(rows)
    width = kept.shape[1]
    for row in np.sort(rows, axis=1)[:, ::-1]:
        assert np.all(row[width:] == 0)
        assert np.any(np.all(row[:width] <= kept, axis=1))
    assert len(kept) < len(rows)


def test_however_many_patterns_the_work_is_bounded(monkeypatch):
    composed, single = [], convert._loss_distribution
    monkeypatch.setattr(
        convert, "_loss_distribution", lambda row, d: (composed.append(1), single(row, d))[1]
    )
    rng = np.random.default_rng(0)
    rows = 0.1 * rng.random((400, 60)) ** 3
    found = laplace_epsilon(rows, 1e-5)
    assert 2 <= len(composed) <= convert._COMPOSED
    monkeypatch.undo()
    assert max(laplace_epsilon(row, 1e-5) for row in rows[:40]) <= found
    assert found <= convert._renyi(rows, np.ones(1), 1e-5) * (1 + 2e-9)


@pytest.mark.slow
def test_several_patterns_in_a_thousand_random_tables():
    rng = np.random.default_rng(1)
    for _ in range(1000):
        count, steps = int(rng.integers(2, 7)), int(rng.integers(1, 9))
        rows = rng.integers(0, 40, (count, steps)) * 0.01 * (rng.random((count, steps)) < 0.7)
        each = [[float(v) for v in row if v > 0] for row in rows]
        delta = float(10 ** rng.uniform(-8, -1))
        low = max((grid_epsilon(row, delta, 0.005, False) for row in each if row), default=0.0)
        assert low <= laplace_epsilon(rows, delta) <= rows.sum(axis=1).max()


def test_loss_distributions_agree_with_the_library_in_all():
    """Ours composes the library's grids with larger cells; its own composition with small ones
    is close.
    """
    from dp_accounting.pld import privacy_loss_distribution as pld

    for values in ([0.3] * 5, [0.05] * 40, [0.5, 0.1, 0.1, 0.05]):
        whole = None
        for value in values:
            one = pld.from_laplace_mechanism(1 / value, value_discretization_interval=1e-4)
            whole = one if whole is None else whole.compose(one)
        theirs = whole.get_epsilon_for_delta(1e-5)
        assert laplace_epsilon(np.array(values), 1e-5) == pytest.approx(theirs, rel=2e-3)


def test_weak_mechanisms_are_added_and_not_dropped():
    strong, weak = np.full(50, 0.1), np.full(4000, 1e-6)
    alone, both = (
        laplace_epsilon(strong, 1e-6),
        laplace_epsilon(np.concatenate([strong, weak]), 1e-6),
    )
    assert alone < both <= alone + weak.sum() + 0.02 * alone


def test_buckets_round_up_and_keep_count():
    parameters = np.concatenate(
        [np.random.default_rng(3).exponential(size=500), 1.01 ** np.arange(-40.0, 40.0), [0, 0]]
    )
    values, counts = _buckets(parameters)
    rounded = np.repeat(values, counts)
    real = np.sort(parameters[parameters > 0])
    assert len(rounded) == len(real)
    assert np.all(rounded >= real * (1 - 1e-13)) and np.all(rounded <= 1.0101 * real)


def test_epsilon_falls_with_delta_and_never_passes_the_plain_sum():
    parameters = 0.3 * np.arange(1.0, 41.0) ** -0.8
    found = [laplace_epsilon(parameters, d) for d in (1e-10, 1e-6, 1e-3, 0.1)]
    assert parameters.sum() >= found[0] > found[1] > found[2] > found[3] >= 0


def gaussian_exact(rho: float, delta: float) -> float:
    mu = math.sqrt(2 * rho)

    def excess(e: float) -> float:
        return ndtr(mu / 2 - e / mu) - math.exp(e + log_ndtr(-mu / 2 - e / mu)) - delta

    return (
        0.0 if excess(0.0) <= 0 else brentq(excess, 0.0, 2 * rho + 20 * mu, xtol=1e-14, rtol=1e-13)
    )


@pytest.mark.parametrize("rho", [1e-6, 1e-3, 0.5, 5.0, 80.0])
@pytest.mark.parametrize("delta", [1e-10, 1e-5, 1e-2])
def test_gaussian_epsilon_against_the_closed_formula(rho, delta):
    exact, found = gaussian_exact(rho, delta), gaussian_epsilon(rho, delta)
    assert exact * (1 - 1e-12) <= found <= exact * (1 + 1e-4)


# From the formula in 50 decimal digits (mpmath).
TINY = [
    (1e-16, 1e-10, 2.9240037525585656e-8),
    (1e-15, 1e-13, 1.9030430197569898e-7),
    (1e-14, 1e-10, 3.9906996686929633e-7),
]


@pytest.mark.parametrize("rho, delta, exact", TINY)
def test_gaussian_epsilon_is_not_below_the_truth_when_it_is_tiny(rho, delta, exact):
    assert exact <= gaussian_epsilon(rho, delta) <= exact * 1.001


def test_gaussian_epsilon_at_deltas_that_are_hardly_there():
    """Cancellation, and 1 / delta beyond all floats."""
    # From the formula in 60 decimal digits (mpmath).
    assert gaussian_epsilon(3.524877207386126e-25, 5.293575086183979e-287) >= 2.965e-11
    assert 38 < gaussian_epsilon(1.0, 5e-324) < 60


def exact_delta(rho: float, epsilon: float) -> mpmath.mpf:
    """In so many digits that nothing cancels."""
    mu, epsilon = mpmath.sqrt(2 * mpmath.mpf(rho)), mpmath.mpf(epsilon)
    first, second = (mpmath.ncdf(sign * mu / 2 - epsilon / mu) for sign in (1, -1))
    return first - mpmath.exp(epsilon) * second


@pytest.mark.parametrize("rho", [9e7, 2e8, 1e12, 1e20, 1e31])
@pytest.mark.parametrize("delta", [1e-30, 1e-5, 0.9])
def test_a_large_rho_has_an_epsilon_that_is_not_below_the_truth(rho, delta):
    found = gaussian_epsilon(rho, delta)
    with mpmath.workdps(100):
        assert exact_delta(rho, found) <= delta < exact_delta(rho, found * (1 - 2e-7))


def test_a_rho_beyond_all_measure_is_no_error():
    for rho in np.geomspace(6e31, 1.7e308, 200).tolist():
        assert rho < gaussian_epsilon(rho, 1e-5) < rho * (1 + 1e-8)


def test_a_delta_close_to_one_gives_no_epsilon_below_the_truth():
    rho, delta = 5714.366150241446, 0.9999999999998479
    with mpmath.workdps(100):
        assert exact_delta(rho, gaussian_epsilon(rho, delta)) <= delta


def test_an_undefined_rho_is_no_budget():
    assert gaussian_epsilon(math.nan, 1e-6) == math.inf


def test_ends_of_the_range():
    assert laplace_epsilon(np.zeros(5), 1e-6) == 0
    assert laplace_epsilon(np.array([0.1, np.inf]), 1e-6) == np.inf
    assert gaussian_epsilon(0.0, 1e-6) == 0
    assert gaussian_epsilon(np.inf, 1e-6) == np.inf
    for delta in (0.0, 1.0, -0.1):
        with pytest.raises(ValueError, match="delta must be strictly between 0 and 1"):
            laplace_epsilon(np.ones(2), delta)
        with pytest.raises(ValueError, match="delta must be strictly between 0 and 1"):
            gaussian_epsilon(1.0, delta)


@pytest.mark.parametrize("delta", [1e-300, 1e-100, 1e-25])
def test_a_rho_whose_terms_cancel_altogether_still_has_an_epsilon(delta):
    """In units of mu: of small shifts delta(epsilon) is mu (n(x) - x N(-x)), x = epsilon / mu."""
    for rho in (1e-40, 1e-35, 1e-33):
        mu = math.sqrt(2 * rho)
        x = mpmath.mpf(gaussian_epsilon(rho, delta)) / mu
        with mpmath.workdps(40):
            assert mu * (mpmath.npdf(x) - x * mpmath.ncdf(-x)) <= delta


def test_a_laplace_message_at_a_delta_close_to_one():
    """Where delta hardly falls with epsilon: the closed form is v + 2 log(1 - delta)."""
    for value in (3.0, 30.7, 52.36):
        for epsilon in (1e-2, 0.1, 1.0):
            delta = math.nextafter(-math.expm1((epsilon - value) / 2), 0)
            exact = value + 2 * float(mpmath.log1p(-mpmath.mpf(delta)))
            assert laplace_epsilon(np.array([value]), delta) >= exact
