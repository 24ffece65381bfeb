"""What lattice noise costs on top of ideal noise: against fractions, brute force,
and lattice laws that can be written down.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from hearsay.mechanisms import convert, rounding
from hearsay.mechanisms.factorized.kinds import factorization

KINDS = [
    ("identity", {}),
    ("tree", {}),
    ("toeplitz", {}),
    ("dense", {}),
    ("banded", {"bands": 4}),
    ("blt", {"buffers": 2}),
]
GRID = Fraction(1, 2**36)


def root_at_least(value: Fraction) -> Fraction:
    """A fraction just above the square root, by whole numbers."""
    return Fraction(math.isqrt(value.numerator * 2**200 // value.denominator) + 1, 2**100)


@pytest.mark.parametrize("numbers", [0, 1, 785, 62_000_000, 10**12])
@pytest.mark.parametrize("budget", [0.0, 1e-12, 0.3, 7.7, 948.7])
def test_budgets_grow_by_what_the_formula_says_rounded_outward(budget, numbers):
    exact = Fraction(budget) + numbers * GRID
    assert exact <= Fraction(rounding.laplace(budget, numbers)) <= exact * (1 + Fraction(1, 2**48))
    exact = Fraction(budget) + Fraction(numbers, 2**52)
    assert exact <= Fraction(rounding.ternary(budget, numbers)) <= exact * (1 + Fraction(1, 2**48))
    roots = [root_at_least(2 * Fraction(budget)), root_at_least(Fraction(numbers)) * GRID]
    above = sum(roots) ** 2 / 2
    below = max(Fraction(0), sum(roots) - Fraction(1, 2**98)) ** 2 / 2
    found = Fraction(rounding.gaussian(budget, numbers))
    assert below <= found <= above * (1 + Fraction(1, 2**47))


def test_infinite_budgets_stay_infinite():
    factors = factorization("tree", 4)
    assert math.isinf(rounding.laplace(math.inf, 3))
    assert math.isinf(rounding.gaussian(math.inf, 3))
    assert math.isinf(rounding.ternary(math.inf, 3))
    assert math.isinf(rounding.factorized(math.inf, factors, 3))
    assert math.isinf(rounding.gaussian_epsilon(math.inf, 1e-5, 3))
    assert math.isinf(rounding.laplace_epsilon(np.array([0.1, math.inf]), 1e-5, 3))


def test_independent_gaussian_messages_brute_force():
    """Shifts phi_k / sigma_k grow by at most sqrt(d) 2^-bits each;
    their sum of squares never passes the formula and comes close where all are equal.
    """
    rng, d = np.random.default_rng(0), 50
    for _ in range(200):
        shifts = np.abs(rng.normal(size=20)) * 10.0 ** rng.uniform(-12, 0)
        ideal, grown = np.sum(shifts**2) / 2, np.sum((shifts + math.sqrt(d) * 2.0**-36) ** 2) / 2
        assert grown <= rounding.gaussian(ideal, 20 * d)
    equal = np.full(20, 1e-9)
    grown = np.sum((equal + math.sqrt(d) * 2.0**-36) ** 2) / 2
    assert rounding.gaussian(np.sum(equal**2) / 2, 20 * d) == pytest.approx(grown, rel=1e-9)


def square(factors) -> np.ndarray:
    out = np.zeros((factors.rounds, factors.rounds))
    for r in range(factors.rounds):
        out[r, r], past, coefficients = factors.row(r)
        out[r, past] = coefficients
    return out


@pytest.mark.parametrize(("name", "options"), KINDS)
def test_the_factorized_extra_covers_all_errors(name, options):
    """Errors of the largest size the proof allows, in the worst signs,
    in d = 3 numbers: |C e| by a plain inverse.
    """
    factors, d, mu = factorization(name, 13, **options), 3, 0.9
    matrix = square(factors)
    inverse = np.linalg.inv(matrix)
    off = np.abs(np.tril(matrix, -1))
    terms = np.count_nonzero(off, axis=1)
    found = math.sqrt(2 * rounding.factorized(mu**2 / 2, factors, d))
    size = np.abs(np.diag(matrix)) * 2.0**-36 * np.where(terms > 0, 2, 1)
    size = size + (terms + 4) * 2.0**-53 * (32 + found) * off.sum(axis=1)
    worst = math.sqrt(d) * np.linalg.norm(np.abs(inverse) @ size)
    rng = np.random.default_rng(1)
    for _ in range(300):
        errors = rng.choice([-1, 1], size=(13, d)) * size[:, None]
        assert np.linalg.norm(inverse @ errors) <= worst * (1 + 1e-12)
    assert mu + worst <= found <= (mu + worst) * (1 + 2e-9)


@pytest.mark.parametrize(("name", "options"), KINDS)
def test_float64_sums_err_less_than_the_proof_allows(name, options):
    """S_r as mechanisms/factorized/lattice.py sums it, against fractions, for |V xi| of a few V."""
    factors, rng = factorization(name, 40, **options), np.random.default_rng(2)
    noise = rng.normal(size=40) * 3
    for r in range(40):
        _, past, coefficients = factors.row(r)
        total, exact = 0.0, Fraction(0)
        for w, c in zip(past.tolist(), coefficients.tolist(), strict=True):
            total += c * noise[w]
            exact += Fraction(c) * Fraction(noise[w])
        bound = (len(past) + 4) * 2.0**-53 * np.abs(coefficients).sum() * np.abs(noise).max()
        assert abs(Fraction(float(total)) - exact) <= bound


@pytest.mark.parametrize(
    ("name", "options"), [*KINDS[:-2], ("banded", {"bands": 16}), ("blt", {"buffers": 4})]
)
def test_increments_invert_the_encoder_to_less_than_the_outward_factor(name, options):
    """max_P |D^-1 1_P| is |C 1_P| to 1e-11 relative: |D^-1 - C| <= |C| |I - D C| / (1 - ...),
    far inside OUTWARD = 1e-9.
    """
    factors = factorization(name, 300, **options)
    used = np.flatnonzero(np.any(factors.increments(0, 300) != 0, axis=0))
    encoder = factors.encoder()[used]
    residual = np.eye(300) - square(factors) @ encoder
    norm = [
        math.sqrt(np.abs(m).sum(axis=0).max() * np.abs(m).sum(axis=1).max())
        for m in (encoder, residual)
    ]
    assert norm[0] * norm[1] < 1e-11


def test_what_it_costs_at_the_size_of_a_deployment():
    """200 rounds of 100,000 numbers: sqrt(2 rho) = 1 becomes less than 1.0000016,
    for every factorization.
    """
    for name, options in KINDS:
        rho = rounding.factorized(0.5, factorization(name, 200, **options), 100_000)
        assert 1 < math.sqrt(2 * rho) < 1 + 1.6e-6
    assert rounding.laplace(1.0, 62_000_000) < 1.00091
    assert rounding.ternary(1e-3, 10**9) < 1e-3 + 3e-7


def test_a_factorization_that_float64_cannot_follow_has_no_budget():
    factors = factorization("toeplitz", 50)
    assert math.isinf(rounding.factorized(2.0**33, factors, 1))  # shifts of 2^17 scales


def gaussian_curve(rho: float, epsilon: float) -> float:
    mu = math.sqrt(2 * rho)
    return stats.norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * stats.norm.cdf(
        -mu / 2 - epsilon / mu
    )


@pytest.mark.parametrize("numbers", [1, 10**6, 10**10])
@pytest.mark.parametrize("rho", [1e-6, 0.05, 0.5, 8.0, 100.0])
@pytest.mark.parametrize("delta", [1e-12, 1e-5, 0.2])
def test_epsilon_at_delta_is_true_and_close(rho, delta, numbers):
    """By the curve with the slack at the answer itself, or by zCDP;
    and never below the ideal epsilon.
    """
    found = rounding.gaussian_epsilon(rho, delta, numbers)
    by_curve = gaussian_curve(rho, found) + rounding.curve_slack(numbers, found) <= delta * (
        1 + 1e-9
    )
    by_zcdp = found >= rho + 2 * math.sqrt(rho * math.log(1 / delta))
    assert by_curve or by_zcdp
    ideal = convert.gaussian_epsilon(rho, delta)
    assert ideal <= found
    if numbers == 1 and rho <= 0.5 and delta == 1e-5:
        assert found <= ideal * (1 + 1e-5) + 1e-9


def test_slack_that_eats_delta_leaves_what_holds_without_curves():
    assert rounding.gaussian_epsilon(0.5, 1e-15, 10**15) == pytest.approx(
        0.5 + 2 * math.sqrt(0.5 * math.log(1e15))
    )
    # Not even the tail of factorized noise.
    assert math.isinf(rounding.gaussian_epsilon(0.5, 1e-60, 2**53))
    many = np.full(1000, 0.05)
    pure = float(np.sum(many + 10**12 * 2.0**-36))
    assert rounding.laplace_epsilon(many, 1e-9, 10**12) == pytest.approx(pure, rel=1e-8)


def test_laplace_epsilon_at_delta():
    parameters = np.full(400, 0.02)
    ideal, found = (
        convert.laplace_epsilon(parameters, 1e-5),
        rounding.laplace_epsilon(parameters, 1e-5, 1000),
    )
    assert ideal <= found < ideal * 1.001 < 4.0
    two = np.stack([parameters, parameters[::-1] * 0.9])
    assert convert.laplace_epsilon(two, 1e-5) <= rounding.laplace_epsilon(two, 1e-5, 1000)
    assert rounding.laplace_epsilon(np.zeros(3), 1e-5, 10) <= 31 * 2.0**-36


@pytest.mark.parametrize("bits", [1, 2, 3])
def test_coarse_lattice_laws_obey_curve_and_slack(bits, monkeypatch):
    """One number with t = 2^bits grid steps to the scale: the exact delta of the lattice law is at
    most the continuous curve's plus the slack.
    """
    monkeypatch.setattr(rounding, "GRID_BITS", bits)
    t = 2.0**bits
    x = np.arange(-int(60 * t), int(60 * t) + 1)
    for shift in (1, 2, 5):
        for epsilon in (0.0, 0.3, 1.0, 3.0):
            p, q = (np.exp(-((x - s) ** 2) / (2 * t**2)) for s in (0, shift))
            delta = np.maximum(0, p / p.sum() - math.exp(epsilon) * q / q.sum()).sum()
            assert delta <= gaussian_curve((shift / t) ** 2 / 2, epsilon) + rounding.curve_slack(
                1, epsilon
            )
            p, q = (np.exp(-np.abs(x - s) / t) for s in (0, shift))
            delta = np.maximum(0, p / p.sum() - math.exp(epsilon) * q / q.sum()).sum()
            ideal = max(0.0, -math.expm1((epsilon - shift / t) / 2))
            assert delta <= ideal + rounding.curve_slack(1, epsilon)


def test_bad_arguments_are_refused_by_name():
    factors = factorization("tree", 4)
    for call, message in (
        (lambda: rounding.laplace(-1.0, 3), "epsilon must be zero or positive, got -1"),
        (lambda: rounding.gaussian(1.0, -3), "numbers must be at least 0, got -3"),
        (lambda: rounding.ternary(math.nan, 3), "delta must be a number, got nan"),
        (lambda: rounding.factorized(1.0, factors, 0), "dimension must be at least 1, got 0"),
        (
            lambda: rounding.gaussian_epsilon(1.0, 0.0, 3),
            "delta must be strictly between 0 and 1, got 0",
        ),
        (
            lambda: rounding.laplace_epsilon(np.ones(3), 1.0, 3),
            "delta must be strictly between 0 and 1, got 1",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    with pytest.raises(TypeError, match="factorization must be one of"):
        rounding.factorized(1.0, "tree", 3)
