"""Calibration: the noise it returns never gives less privacy than was asked for,
and hardly more.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hearsay as hs
from hearsay.certification import accounts as accounts_of
from hearsay.certification import messages_within
from hearsay.mechanisms import MECHANISMS
from hearsay.mechanisms.convert import gaussian_epsilon
from hearsay.privacy import Every, Once, Periodic, Recursion, RecursionAccount, Release
from hearsay.schedules import Constant, PowerLaw, Share

exponent = st.floats(0.0, 1.0)


@st.composite
def accounts(draw):
    rec = Recursion(
        PowerLaw(draw(st.floats(0.05, 0.9)), -draw(exponent)),
        PowerLaw(draw(st.floats(0.01, 2.0)), -draw(exponent), draw(st.floats(0.1, 50.0))),
        draw(
            st.sampled_from(
                [Constant(0.3), Share(2.0, PowerLaw(3.0, 1.0)), Share(2.0, PowerLaw(3.0, 1.0), 40)]
            )
        ),
        draw(st.sampled_from([(0.0, 0.0), (0.01, 1.0), (-0.1, 0.5)])),
    )
    scale = PowerLaw(draw(st.floats(1e-3, 1e3)), draw(st.floats(-0.5, 0.5)))
    pattern = draw(st.sampled_from([Every(), Once(), Periodic(7)]))
    releases = (Release("x", scale, fresh=1.0),)
    return RecursionAccount(rec, releases, pattern, draw(st.integers(1, 50)))


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(accounts(), st.floats(1e-3, 1e3), st.integers(1, 300))
def test_laplace_meets_the_budget_and_wastes_nothing(account, epsilon, horizon):
    scaled = account.scaled(account.factor(epsilon, horizon))
    assert epsilon * (1 - 1e-9) <= scaled.cost(horizon).value <= epsilon


@pytest.mark.parametrize(
    "epsilon, delta, pattern", [(0.3, 1e-5, Every()), (1.0, 1e-2, Once()), (2.0, 1e-8, Periodic(3))]
)
def test_gaussian_meets_the_budget_and_wastes_little(epsilon, delta, pattern):
    rec = Recursion(
        PowerLaw(0.5, -0.6), PowerLaw(0.7, -0.8), Share(2.0, PowerLaw(3.0, 1.0), 40), (0.01, 1.0)
    )
    releases = (Release("x", PowerLaw(0.2, 0.1), fresh=1.0),)
    account = RecursionAccount(rec, releases, pattern, 10, "gaussian")
    scaled = account.scaled(account.factor(epsilon, 60, delta))
    assert epsilon * (1 - 1e-3) <= gaussian_epsilon(scaled.cost(60).value, delta) <= epsilon


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 7.0])
@pytest.mark.parametrize("pattern", [Every(), Once(), Periodic(10)], ids=str)
def test_an_infinite_horizon_is_met_too(epsilon, pattern):
    rec = Recursion(
        PowerLaw(0.6, -0.6), PowerLaw(0.5, -0.8), Share(1.0, PowerLaw(1, 1)), (0.01, 1.0)
    )
    account = RecursionAccount(rec, (Release("x", PowerLaw(0.3, 0.2)),), pattern, 5)
    factor = account.factor(epsilon, math.inf)
    scaled = account.scaled(factor)
    assert epsilon * (1 - 1e-4) <= scaled.cost(math.inf).value <= epsilon
    assert scaled.cost(20_000).value <= epsilon
    assert scaled.releases[0].scale == account.releases[0].scale.scaled(factor)


@pytest.mark.parametrize("epsilon, delta", [(0.2, 1e-6), (1.0, 1e-9)])
def test_rho_for_is_the_largest_that_fits(epsilon, delta):
    rho = MECHANISMS["gaussian"].number(epsilon, delta)
    assert gaussian_epsilon(rho, delta) <= epsilon < gaussian_epsilon(rho * 1.001, delta)


def test_what_cannot_be_calibrated_is_refused():
    rec = Recursion(Constant(0.0), Constant(0.1), Constant(1.0), (0.0, 1.0))
    account = RecursionAccount(rec, (Release("x", Constant(1.0)),), Every(), 1)
    with pytest.raises(ValueError, match="finite budget: nothing makes the agent forget"):
        account.factor(1.0, math.inf)
    with pytest.raises(ValueError, match="messages carry no noise"):
        account.scaled(0.0).factor(1.0, 10)
    with pytest.raises(ValueError, match="epsilon must be positive, got 0"):
        account.factor(0.0, 10)
    gaussian = RecursionAccount(rec, account.releases, Every(), 1, "gaussian")
    with pytest.raises(ValueError, match="delta must be given"):
        gaussian.factor(1.0, 10)
    with pytest.raises(ValueError, match="horizon must be at least 0, got -1"):
        account.cost(-1)


def test_nothing_spent_needs_no_noise():
    rec = Recursion(Constant(0.5), Constant(0.1), Constant(1.0), (0.0, 1.0))
    account = RecursionAccount(rec, (Release("x", Constant(1.0)),), Every(), 1)
    assert account.cost(1).value == 0  # message 0 says nothing about the data
    assert account.factor(0.1, 1) == 1.0


def test_budgets_scale_as_they_should():
    rec = Recursion(Constant(0.5), Constant(0.1), Constant(1.0), (0.0, 1.0))
    for mechanism, power in (("laplace", 1), ("gaussian", 2)):
        account = RecursionAccount(rec, (Release("x", PowerLaw(1.0, 0.1)),), Every(), 9, mechanism)
        ratio = account.cost(50).value / account.scaled(4.0).cost(50).value
        assert ratio == pytest.approx(4.0**power, rel=1e-12)
        assert np.isfinite(ratio)


def test_a_tiny_epsilon_is_met():
    rec = Recursion(Constant(0.5), Constant(0.1), Constant(1.0), (0.0, 1.0))
    account = RecursionAccount(rec, (Release("x", Constant(1.0)),), Every(), 1, "gaussian")
    scaled = account.scaled(account.factor(1e-9, 10, 1e-12))
    assert gaussian_epsilon(scaled.cost(10).value, 1e-12) <= 1e-9 + 1e-11


def test_no_smaller_rho_passes_the_budget():
    """The epsilon of a rho that the search meets: a rho next to it came out 1e-12 larger."""
    rho = 2.0**-20
    epsilon = gaussian_epsilon(rho, 1e-8)
    found = MECHANISMS["gaussian"].number(epsilon, 1e-8)
    assert all(
        gaussian_epsilon(found * (1 - u), 1e-8) <= epsilon for u in np.logspace(-16, -8, 200)
    )


# Laplace noise at a delta.


def at_delta(account, horizon, delta):
    return account.epsilon_at_delta(account.cost(horizon), horizon, delta)


@pytest.mark.parametrize("epsilon, delta", [(0.2, 1e-6), (6.0, 1e-3), (0.01, 0.1)])
@pytest.mark.parametrize("pattern", [Every(), Once(), Periodic(7)], ids=str)
def test_laplace_noise_meets_epsilon_at_delta_and_wastes_little(epsilon, delta, pattern):
    rec = Recursion(PowerLaw(0.5, -0.6), Constant(0.3), Constant(0.2), (0.0, 1.0))
    releases = (Release("x", PowerLaw(0.2, 0.1), fresh=1.0),)
    account = RecursionAccount(rec, releases, pattern, 10)
    factor = account.factor(epsilon, 40, delta)
    assert factor <= account.factor(epsilon, 40)
    assert epsilon * (1 - 1e-4) <= at_delta(account.scaled(factor), 40, delta) <= epsilon
    assert at_delta(account.scaled(factor * 0.999), 40, delta) > epsilon


def test_laplace_noise_at_delta_over_an_infinite_horizon():
    rec = Recursion(Constant(0.5), PowerLaw(0.5, -0.8), Share(1.0, PowerLaw(1, 1)), (0.01, 1.0))
    releases = (Release("x", PowerLaw(0.3, 0.2)),)
    account = RecursionAccount(rec, releases, Every(), 5)
    scaled = account.scaled(account.factor(1.0, math.inf, 1e-5))
    assert 1 - 1e-3 <= at_delta(scaled, math.inf, 1e-5) <= 1.0 < scaled.cost(math.inf).value
    assert at_delta(scaled, 5000, 1e-5) <= 1.0
    # One use may come after every step that is summed: the pure bound is all there is.
    once = RecursionAccount(rec, releases, Once(), 5)
    assert once.factor(1.0, math.inf, 1e-5) == once.factor(1.0, math.inf)


def test_without_a_delta_laplace_noise_is_calibrated_to_pure_epsilon_to_the_last_bit():
    rec = Recursion(Constant(0.5), Constant(0.1), Constant(1.0), (0.0, 1.0))
    account = RecursionAccount(rec, (Release("x", Constant(1.0)),), Every(), 9)
    assert account.factor(2.0, 50) == account.cost(50).value / 2.0 * (1 + 1e-12)
    assert account.factor(2.0, 1, 1e-5) == 1.0


@pytest.mark.parametrize("batches, ratio", [(hs.Subset(100), 5.39), (hs.Cyclic(100), 1.28)])
def test_how_much_noise_pure_epsilon_would_waste(batches, ratio):
    """400 messages at (1, 1e-5), whichever batches are drawn."""
    task, graph = hs.problems.ridge(agents=2, records=2000).task, hs.graphs.ring(2)
    algorithm = hs.gradient_perturbation(sampling=batches, noise=1.0)
    account = accounts_of(algorithm, task, graph, 0)[0]
    found = account.factor(1.0, 400) / account.factor(1.0, 400, 1e-5)
    assert found == pytest.approx(ratio, abs=0.01)


@pytest.mark.parametrize("law", ["laplace", "gaussian"])
def test_a_budget_at_delta_ends_where_its_certificate_does(law):
    """The largest number of messages whose certificate is within the budget, found one by one."""
    task, graph = hs.problems.ridge(agents=2, records=200).task, hs.graphs.ring(2)
    algorithm = hs.gradient_perturbation(sampling=hs.Cyclic(20), noise=8.0, mechanism=law)
    costs = [
        [b.compared for b in hs.certify(algorithm, task, graph, n, delta=1e-5).budgets]
        for n in range(1, 41)
    ]
    limits = [0.9 * costs[-1][0], 0.6 * costs[-1][1]]
    fits = [all(c <= m for c, m in zip(cost, limits, strict=True)) for cost in costs]
    most = fits.index(False)
    assert 5 < most < 35 and not any(fits[most:])
    assert messages_within(algorithm, task, graph, 40, limits, 1e-5) == (most, 1)
