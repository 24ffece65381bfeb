"""What a law of noise knows: its price, its budget, and how they are read, against the formulas
written out here.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

import hearsay as hs
from hearsay.mechanisms import MECHANISMS, Reading, convert, rounding

LAPLACE, GAUSSIAN, TERNARY = (MECHANISMS[name] for name in ("laplace", "gaussian", "ternary"))
RATIOS = np.array([0.0, 1e-9, 0.3, 2.0, np.inf])


def test_the_registry_knows_every_law_by_its_name():
    assert {name: law.name for name, law in MECHANISMS.items()} == {n: n for n in MECHANISMS}
    assert hs.ldp_online(noise=1.0, mechanism="gaussian").law is GAUSSIAN


def test_laws_are_equal_where_they_are_the_same_and_can_be_keys():
    assert type(LAPLACE)() == LAPLACE != GAUSSIAN
    assert len({type(law)() for law in MECHANISMS.values()} | set(MECHANISMS.values())) == 3


@pytest.mark.parametrize(
    ("law", "facts"),
    [
        (LAPLACE, ("noise", "epsilon", False, False, True, True)),
        (GAUSSIAN, ("noise", "epsilon", True, True, False, False)),
        (TERNARY, ("messages", "delta", True, False, True, False)),
    ],
    ids=MECHANISMS,
)
def test_facts(law, facts):
    found = (law.noun, law.unit, law.needs_delta, law.at_delta, law.additive, law.composes)
    assert found == facts


@pytest.mark.parametrize("law", MECHANISMS.values(), ids=MECHANISMS)
def test_costs_are_the_formulas(law):
    expected = RATIOS**2 / 2 if law is GAUSSIAN else np.sqrt(7) * RATIOS
    np.testing.assert_array_equal(law.cost(RATIOS, 7), expected)
    assert law.stretch(7) == (1.0 if law is GAUSSIAN else math.sqrt(7))


def test_shifts_add_up_as_the_law_says():
    shifts = np.array([[3.0, 1.0], [4.0, 2.0]])
    for law in (LAPLACE, TERNARY):
        np.testing.assert_array_equal(law.together(shifts, axis=0), [7.0, 3.0])
        assert law.together(shifts) == 10.0
        np.testing.assert_array_equal(law.cumulative(shifts[0]), [3.0, 4.0])
    np.testing.assert_array_equal(GAUSSIAN.together(shifts, axis=0), [5.0, math.sqrt(5.0)])
    assert GAUSSIAN.together(shifts) == math.sqrt(30.0)
    np.testing.assert_array_equal(GAUSSIAN.cumulative(shifts[:, 0]), [3.0, 5.0])


def test_a_number_is_read_as_a_budget():
    at = convert.gaussian_epsilon(0.7, 1e-5)
    assert LAPLACE.budget(0.7, None) == Reading(0.7)
    assert GAUSSIAN.budget(0.7, 1e-5) == Reading(at, rho=0.7)
    assert TERNARY.budget(0.7, None) == Reading(0.0, delta=0.7)
    assert TERNARY.budget(3.0, None) == Reading(
        math.inf, delta=1.0, reason="delta reaches 1: messages tell everything"
    )
    assert [law.epsilon(0.7, 1e-5) for law in MECHANISMS.values()] == [0.7, at, 0.7]
    spent = np.array([[0.7, 0.0], [0.7, math.inf]])
    assert LAPLACE.epsilons(spent, None) is spent
    assert TERNARY.epsilons(spent, 1e-5) is spent
    np.testing.assert_array_equal(GAUSSIAN.epsilons(spent, 1e-5), [[at, 0.0], [at, math.inf]])


def test_the_largest_number_within_a_limit():
    assert LAPLACE.number(2.0, None) == TERNARY.number(2.0, 1e-5) == 2.0
    rho = GAUSSIAN.number(2.0, 1e-5)
    assert 2.0 * (1 - 1e-5) < GAUSSIAN.epsilon(rho, 1e-5) <= 2.0
    assert LAPLACE.allowance(2.0, None) == GAUSSIAN.allowance(2.0, 1e-5) == 2.0
    assert TERNARY.allowance(2.0, 1e-5) == 1e-5


@pytest.mark.parametrize("law", MECHANISMS.values(), ids=MECHANISMS)
def test_noise_that_has_grown_by_the_factor_costs_what_is_allowed(law):
    ratio = np.array([0.4, 0.2])
    number = float(np.sum(law.cost(ratio, 7)))
    grown = law.factor(number, 0.5, 1e-5)
    spent = law.epsilon(float(np.sum(law.cost(ratio / grown, 7))), 1e-5)
    limit = law.allowance(0.5, 1e-5)
    assert limit * (1 - 1e-5) < spent <= limit


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda: GAUSSIAN.required(None), "delta must be given for Gaussian noise"),
        (lambda: GAUSSIAN.epsilon(1.0, None), "delta must be given for Gaussian noise"),
        (lambda: GAUSSIAN.allowance(1.0, None), "delta must be given for Gaussian noise"),
        (lambda: GAUSSIAN.factor(1.0, 1.0, None), "to calibrate Gaussian noise"),
        (lambda: GAUSSIAN.required(1.5), "delta must be strictly between 0 and 1, got 1.5"),
        (lambda: TERNARY.required(None), "a budget of ternary messages"),
        (lambda: TERNARY.allowance(1.0, None), "a budget of ternary messages"),
        (lambda: TERNARY.factor(1.0, 1.0, None), "to calibrate a ternary quantizer"),
        (lambda: LAPLACE.required(0.0), "delta must be"),
    ],
)
def test_a_delta_that_is_missing_is_asked_for(ask, words):
    with pytest.raises(ValueError, match=words):
        ask()


def test_laplace_needs_no_delta():
    assert LAPLACE.required(None) is None
    assert LAPLACE.required(0.1) == 0.1


def test_the_price_of_the_lattice():
    """The ideal number with the rounding of updates taken in, then that of the lattice."""
    n, more = 12_345, 1e-4
    assert LAPLACE.rounded(0.7, more, n) == rounding.laplace(0.7 + more, n)
    assert TERNARY.rounded(0.7, more, n) == rounding.ternary(0.7 + more, n)
    rho = rounding.gaussian((math.sqrt(1.4) + more) ** 2 / 2, n)
    assert GAUSSIAN.rounded(0.7, more, n) == rho
    assert GAUSSIAN.epsilon(rho, 1e-5, n) == rounding.gaussian_epsilon(rho, 1e-5, n)
    assert GAUSSIAN.budget(rho, 1e-5, n).epsilon > GAUSSIAN.budget(0.7, 1e-5).epsilon
    for law in MECHANISMS.values():
        assert law.rounded(0.7, more, n) > 0.7


def test_many_laplace_messages_cost_less_at_a_delta():
    each = np.full((1, 400), 0.05)
    assert LAPLACE.composed(each, 1e-5) == convert.laplace_epsilon(each, 1e-5) < 20
    assert LAPLACE.composed(each, 1e-5, 3) == rounding.laplace_epsilon(each, 1e-5, 3)
    assert GAUSSIAN.composed(each, 1e-5) is TERNARY.composed(each, 1e-5) is None
