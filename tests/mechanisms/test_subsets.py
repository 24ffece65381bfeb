"""Batches without replacement: the pair that dominates a message, against the laws themselves."""

import math
from itertools import combinations

import dp_accounting as dp
import numpy as np
import pytest
from scipy import optimize, stats

from hearsay.mechanisms import MECHANISMS
from hearsay.mechanisms.amplification import Losses, _cell, amplified_pure, subset_epsilon
from hearsay.mechanisms.convert import gaussian_epsilon
from hearsay.mechanisms.opposed import BEYOND, loss, opposed_deltas
from hearsay.mechanisms.subsets import subset_losses

LAWS = {"gaussian": stats.norm, "laplace": stats.laplace}
X = np.linspace(-30.0, 30.0, 24_001)
DELTA = 1e-5


def message(values, size, law):
    """Its density, written down: all batches of that size, each as likely, and the noise around
    the sum of a batch.
    """
    batches = list(combinations(values, size))
    return sum(law.pdf(X - sum(batch)) for batch in batches) / len(batches)


def apart(p, q, a):
    return float(np.trapezoid(np.maximum(p - a * q, 0.0), X))


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize(("held", "size"), [(2, 1), (4, 1), (5, 3), (6, 5), (3, 3)])
def test_no_two_data_sets_are_further_apart_than_the_pair(law, held, size):
    """Whatever the records are, and in both directions; and two of them are as far apart."""
    rng, reached = np.random.default_rng(held + 10 * size), 0.0
    for shift in (0.3, 2.0):
        for trial in range(12):
            near = rng.uniform(0, shift, held) if trial else np.zeros(held)
            far = near.copy()
            # Records differ by at most the shift, all of them.
            near[0], far[0] = (shift, 0.0) if trial < 2 else rng.uniform(0, shift, 2)
            p, q = message(near, size, LAWS[law]), message(far, size, LAWS[law])
            for epsilon in (0.0, 0.05, 0.4, 1.5):
                a = math.exp(epsilon)
                bound = float(
                    opposed_deltas(MECHANISMS[law], shift, 0.0, size / held, np.array([epsilon]))[0]
                )
                below = 1 - 1 / a + bound / a
                for one, two in ((p, q), (q, p)):
                    assert apart(one, two, a) <= bound + 2e-6
                    assert apart(one, two, 1 / a) <= below + 2e-6
                if bound > 1e-3:
                    reached = max(reached, apart(p, q, a) / bound)
    assert reached > 0.999


@pytest.mark.parametrize("law", LAWS)
def test_one_message_on_the_grid(law):
    """Between the points of the grid it is a little above the bound, at them it is the bound."""
    for shift, rate in ((0.1, 0.01), (1.0, 0.2), (4.0, 0.05), (2.0, 1.0)):
        found = subset_losses(MECHANISMS[law], shift, rate, 1e-3)
        for epsilon in (0.0, 0.0305, 0.5, 0.7505):
            bound = opposed_deltas(MECHANISMS[law], shift, 0.0, rate, np.array([epsilon]))[0]
            got = found.get_delta_for_epsilon(epsilon)
            assert bound * (1 - 1e-9) - 1e-15 <= got <= bound * (1 + 1e-3) + 1e-9


@pytest.mark.parametrize("law", LAWS)
def test_two_messages_against_a_double_integral(law):
    """Empty records but one, which is the furthest that two data sets may be apart in one of the
    two directions: what is certified is that, and for both directions at once a little more.
    """
    x = np.linspace(-14, 16, 3001)
    cell, density = (x[1] - x[0]) ** 2, LAWS[law].pdf
    for shift, held, size in ((1.0, 10, 2), (2.0, 100, 5)):
        rate = size / held
        still = density(x)
        mixed = (1 - rate) * still + rate * density(x - shift)
        p, q = np.outer(mixed, mixed), np.outer(still, still)
        for epsilon in (0.2, 0.4):
            exact = max(
                float(np.sum(np.maximum(a - math.exp(epsilon) * b, 0)) * cell)
                for a, b in ((p, q), (q, p))
            )
            found = subset_epsilon(MECHANISMS[law], np.full(2, shift), held, size, exact)
            assert epsilon * (1 - 2e-3) <= found <= epsilon * 1.3


@pytest.mark.parametrize("law", LAWS)
def test_two_messages_that_look_from_both_sides(law):
    """Records have two numbers: (s, 0) is replaced by (0, s), all others are (0, 0), and a message
    is about one of the two. The first is further apart in one direction, the second in the other,
    which is more than a coin of the record's own allows in either (what Poisson batches cost).
    """
    x, shift, rate, delta = np.linspace(-16, 17, 2201), 1.0, 0.2, 0.05
    still = LAWS[law].pdf(x)
    mixed = (1 - rate) * still + rate * LAWS[law].pdf(x - shift)
    p, q = (np.outer(*pair) * (x[1] - x[0]) ** 2 for pair in ((mixed, still), (still, mixed)))

    def over(epsilon):
        return float(np.sum(np.maximum(p - math.exp(epsilon) * q, 0))) - delta

    reached, shifts = optimize.brentq(over, 0.0, 2.0), np.full(2, shift)
    assert subset_epsilon(MECHANISMS[law], shifts, 5, 1, delta) >= reached
    if law == "laplace":
        assert Losses(MECHANISMS[law], shifts, rate).epsilon(delta) < 0.96 * reached


@pytest.mark.parametrize(("messages", "mu"), [(1, 0.5), (100, 2.0), (10**5, 1.0), (10**5, 0.01)])
def test_all_records_in_every_batch_are_one_gaussian_mechanism(messages, mu):
    shifts = np.full(messages, mu / math.sqrt(messages))
    for delta in (1e-3, 1e-6, 1e-9, 1e-12):
        found = subset_epsilon(MECHANISMS["gaussian"], shifts, 7, 7, delta)
        exact = gaussian_epsilon(mu * mu / 2, delta)
        assert exact * (1 - 1e-9) <= found <= exact * 1.005 + 1e-9


def test_less_than_renyi_divergences_and_than_randomized_response_say():
    """What was certified before: the library's Renyi divergences for Gaussian noise, the pure
    epsilons' randomized response for Laplace noise, here its binomial law written down.
    """
    rng, gained = np.random.default_rng(1), []
    for _ in range(4):
        shift, held = 1 / float(rng.uniform(1, 8)), int(rng.integers(100, 3000))
        size, messages = int(rng.integers(1, held // 4)), int(rng.integers(20, 800))
        shifts = np.full(messages, shift)
        accountant = dp.rdp.RdpAccountant(neighboring_relation=dp.NeighboringRelation.REPLACE_ONE)
        event = dp.SampledWithoutReplacementDpEvent(held, size, dp.GaussianDpEvent(1 / shift))
        accountant.compose(event, messages)
        before = accountant.get_epsilon(DELTA)
        found = subset_epsilon(MECHANISMS["gaussian"], shifts, held, size, DELTA)
        gained.append(found / before)
        pure = float(amplified_pure(shifts[:1], size / held)[0])
        losses = (2 * np.arange(messages + 1) - messages) * pure
        mass = stats.binom.pmf(np.arange(messages + 1), messages, 1 / (1 + math.exp(-pure)))

        def over(e, losses=losses, mass=mass):
            return float(np.sum(np.maximum(-np.expm1(e - losses), 0.0) * mass)) - DELTA

        response = optimize.brentq(over, 0.0, messages * pure)
        found = subset_epsilon(MECHANISMS["laplace"], shifts, held, size, DELTA)
        assert found <= response * (1 + 1e-4)
    assert max(gained) < 0.85


def test_a_small_message_more_costs_little_and_never_less_than_nothing():
    """The grid follows small messages: a central limit is near."""
    for law in LAWS:
        many = [np.full(1000, 0.01), np.append(np.full(1000, 0.01), 1e-9)]
        one, more = (subset_epsilon(MECHANISMS[law], s, 20, 10, DELTA) for s in many)
        assert one * (1 - 1e-6) <= more <= one * (1 + 1e-3)
    clt = gaussian_epsilon(1000 * math.expm1(0.01**2) / 4 / 2, DELTA)
    found = subset_epsilon(MECHANISMS["gaussian"], many[0], 20, 10, DELTA)
    assert found == pytest.approx(clt, rel=0.01)


@pytest.mark.parametrize("law", LAWS)
def test_grids_of_many_different_shifts_together_are_not_too_fine(law):
    """Each has losses of its own, and they are composed one after the other: where the largest have
    wide losses the grid is `_CELL`, which takes a second; where all are small it is far finer.
    """
    noise, rate = MECHANISMS[law], 1e-5
    tail = float(noise.standard.isf(BEYOND))
    for top in (0.1, 2.0, 4.0):
        shifts = np.geomspace(top / 20, top, 60).tolist()
        cell = _cell(noise, tuple((shift, 1) for shift in shifts), rate)
        widest = [float(loss(noise, s, 0.0, rate, s + tail)) for s in shifts]
        assert 2 * sum(widest) / cell < 2**24
        assert cell <= (1e-6 if top < 1 else 1.1e-4)


@pytest.mark.parametrize("law", LAWS)
def test_where_delta_hardly_falls_with_epsilon(law):
    """Between losses of all and of nothing: 10^-13 of delta are 10^-6 of epsilon there, and 10^5
    numbers that are added up one by one lose that.
    """
    noise, shift, rate = MECHANISMS[law], 30.7, 0.302
    cell = _cell(noise, ((shift, 1),), rate)
    for epsilon in (cell, 400 * cell):
        exact = float(opposed_deltas(noise, shift, 0.0, rate, np.array([epsilon]))[0])
        delta = exact - 1e-15
        assert Losses(noise, np.array([shift]), rate).epsilon(delta) >= epsilon
        assert subset_epsilon(noise, np.array([shift]), 1000, 302, delta) >= epsilon
