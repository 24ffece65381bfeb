"""Secret batches where a record is replaced, or emptied and rounded: the pair of two that pull in
opposite directions, as far or less far, against integrals, against all other pairs, against
dp-accounting and against the bound by way of the empty record.
"""

import math

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy import optimize, stats

from hearsay.mechanisms import Gaussian, Laplace, opposed
from hearsay.mechanisms.amplification import Losses, amplified_pure
from hearsay.mechanisms.opposed import opposed_deltas, opposed_losses, opposed_pure

LAWS = {"gaussian": Gaussian(), "laplace": Laplace()}
ALL = pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)


def hockey_stick(p, q, a, cell):
    return float(np.sum(np.maximum(p - a * q, 0.0)) * cell)


def emptied_twice(law, shifts, rate, delta):
    """What certificates said before: a record is emptied, then filled; (2 e, (1 + e^e) d) where
    (e, d) holds for each half.
    """
    curve = Losses(law, shifts, rate).epsilon
    found = 0.0
    for _ in range(200):
        least = curve(delta / (1 + math.exp(min(found, 700.0))))
        if not math.isfinite(least) or least <= found:
            return 2 * found if math.isfinite(least) else math.inf
        found = least + 1e-7 * (1 + least)
    return math.inf


def composed(law, shift, rate, messages, delta, up, other=None):
    """epsilon of the composed pair by a convolution of its loss, sampled on a fine grid of messages
    and rounded up or down, written down anew: nothing of the package, and no transform.
    """
    other = shift if other is None else other
    density, reach = law.standard.pdf, max(shift, other) + float(law.standard.isf(1e-14))
    x = np.linspace(-reach, reach, 600_001)
    p, q = ((1 - rate) * density(x) + rate * density(x - u) for u in (shift, -other))
    width = 4e-3
    places = (np.ceil if up else np.floor)((np.log(p) - np.log(q)) / width).astype(int)
    low = int(places.min())
    mass = np.bincount(places - low, p * (x[1] - x[0]))
    total = mass
    for _ in range(messages - 1):
        total = np.convolve(total, mass)
    losses = (np.arange(len(total)) + messages * low) * width

    def over(epsilon):
        seen = losses > epsilon
        return float(np.sum(-np.expm1(epsilon - losses[seen]) * total[seen])) - delta

    return 0.0 if over(0.0) <= 0 else float(optimize.brentq(over, 0.0, 200.0, xtol=1e-9))


@ALL
@pytest.mark.parametrize(
    ("shift", "rate", "messages", "delta"),
    [(1.0, 0.3, 1, 1e-5), (1.0, 0.3, 3, 1e-4), (0.4, 0.9, 4, 1e-6), (2.5, 0.05, 2, 1e-5)],
)
def test_against_a_slow_sum_over_all_losses(law, shift, rate, messages, delta):
    """Of an attacker who sums log likelihood ratios: what it shows is a lower bound."""
    found = Losses(law, np.full(messages, shift), rate, shift).epsilon(delta)
    low, high = (composed(law, shift, rate, messages, delta, up) for up in (False, True))
    assert low <= found * (1 + 1e-6)
    assert found <= high * (1 + 1e-3) + 1e-3
    assert low >= 0.97 * found


def test_many_messages_against_a_slow_sum():
    """Rate 0.5 and 20 messages, as small hospitals have them."""
    found = Losses(LAWS["gaussian"], np.full(20, 0.2), 0.5, 0.2).epsilon(1e-5)
    low = composed(LAWS["gaussian"], 0.2, 0.5, 20, 1e-5, up=False)
    assert 0.97 * found <= low <= found


def test_two_messages_of_an_attacker_who_looks_at_points():
    """The product of two densities on a plane, where no loss is ever formed."""
    shift, rate, x = 1.0, 0.3, np.linspace(-12, 12, 2401)
    p, q = ((1 - rate) * stats.norm.pdf(x) + rate * stats.norm.pdf(x - u) for u in (shift, -shift))
    for epsilon in (0.5, 1.0, 2.0, 4.0):
        exact = hockey_stick(np.outer(p, p), np.outer(q, q), math.exp(epsilon), (x[1] - x[0]) ** 2)
        found = Losses(LAWS["gaussian"], np.full(2, shift), rate, shift).epsilon(exact)
        assert found == pytest.approx(epsilon, rel=1e-3)


@ALL
def test_no_pair_of_records_in_the_plane_is_worse(law):
    """Every pair within the shift in the law's norm, in any directions and of any lengths, at
    thresholds above and below 1, both ways round.
    """
    rng, grid = np.random.default_rng(2), np.linspace(-14.0, 14.0, 561)
    one, two = np.meshgrid(grid, grid, indexing="ij")
    cell = (grid[1] - grid[0]) ** 2
    density = law.standard.pdf
    noise = lambda u: density(one - u[0]) * density(two - u[1])  # noqa: E731
    length = (lambda u: np.sum(np.abs(u))) if law.name == "laplace" else np.linalg.norm
    nearest = 0.0
    for case in range(40):
        shift, rate = float(rng.uniform(0.3, 3)), float(rng.uniform(0.02, 0.98))
        pair = rng.normal(size=(2, 2)) * rng.choice([0.0, 1.0], (2, 2), p=[0.3, 0.7])
        if case % 4 == 0:
            pair[1] = -pair[0] * rng.uniform(0.3, 1.0)
        each = [u / max(length(u), 1e-9) * shift * rng.choice([1.0, rng.uniform()]) for u in pair]
        p, q = ((1 - rate) * noise((0, 0)) + rate * noise(u) for u in each)
        for epsilon in (0.0, 0.3, 1.0, 2.0):
            most = float(opposed_deltas(law, shift, shift, rate, np.array([epsilon]))[0])
            a = math.exp(epsilon)
            for first, second in ((p, q), (q, p)):
                # What the sum on this grid is wrong by where densities have corners.
                seen = hockey_stick(first, second, a, cell)
                assert seen <= most * (1 + 1e-3) + 1e-6, (shift, rate, each, epsilon)
                nearest = max(nearest, seen / most if most > 1e-3 else 0.0)
                below = hockey_stick(first, second, 1 / a, cell)
                assert below <= 1 - 1 / a + most / a + 1e-3
    assert nearest > 0.9


@ALL
def test_the_point_of_a_quotient_is_where_nothing_is_lost(law):
    """The formula's mass against the integral, and against every other point."""
    x = np.linspace(-40.0, 40.0, 800_001)
    for shift, rate in ((0.2, 0.5), (1.0, 0.05), (3.0, 0.9), (1.0, 1.0)):
        density = law.standard.pdf
        p, q = ((1 - rate) * density(x) + rate * density(x - u) for u in (shift, -shift))
        epsilon = np.linspace(0.0, 4.0, 9)
        found = opposed_deltas(law, shift, shift, rate, epsilon)
        for e, delta in zip(epsilon.tolist(), found.tolist(), strict=True):
            exact = hockey_stick(p, q, math.exp(e), x[1] - x[0])
            assert delta == pytest.approx(exact, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("rate", [1e-9, 1e-3, 0.3, 0.9, 1 - 1e-9, 1.0])
@pytest.mark.parametrize("shift", [1e-6, 1e-2, 0.5, 5.0, 30.0])
def test_gaussian_messages_are_the_librarys(shift, rate):
    cell = max(1e-4, shift * (shift + 10) / 5000)
    found = opposed_losses(LAWS["gaussian"], shift, shift, rate, cell)
    theirs = pld.from_gaussian_mechanism(
        1 / shift,
        value_discretization_interval=cell,
        sampling_prob=rate,
        neighboring_relation=pld.NeighborRel.REPLACE_ONE,
    )
    for epsilon in np.linspace(0, 2 * shift * (shift + 7), 12).tolist():
        ours, known = (float(one.get_delta_for_epsilon(epsilon)) for one in (found, theirs))
        assert ours == pytest.approx(known, rel=1e-9, abs=1e-13)


@ALL
def test_more_shift_more_rate_and_more_messages_never_cost_less(law):
    for epsilon in (0.0, 0.1, 1.0, 3.0):
        at = np.array([epsilon])
        of = lambda s, q, at=at: float(opposed_deltas(law, s, s, q, at)[0])  # noqa: E731
        by_shift = [of(s, 0.3) for s in np.geomspace(1e-6, 30, 40).tolist()]
        by_rate = [of(1.0, q) for q in (1e-9, 1e-4, 0.1, 0.5, 0.9, 1 - 1e-9, 1.0)]
        for found in (by_shift, by_rate):
            assert np.all(np.diff(found) >= -1e-15)
    by_messages = [Losses(law, np.full(n, 0.5), 0.2, 0.5).epsilon(1e-5) for n in (1, 2, 5, 20, 80)]
    assert np.all(np.diff(by_messages) > 0)


@ALL
@pytest.mark.parametrize("rate", [1e-9, 0.01, 0.3, 1 - 1e-9])
def test_never_above_a_record_that_is_emptied_and_filled(law, rate):
    for shift, messages, delta in (
        (1e-6, 50, 1e-5),
        (0.03, 200, 1e-6),
        (0.3, 30, 1e-3),
        (1.0, 1, 0.2),
    ):
        shifts = np.full(messages, shift)
        found = Losses(law, shifts, rate, shift).epsilon(delta)
        assert found <= emptied_twice(law, shifts, rate, delta) * (1 + 1e-9)


def test_extreme_shifts_have_a_budget():
    for rate in (1e-9, 0.5, 1 - 1e-9):
        for law in LAWS.values():
            most = Losses(law, np.full(3, 30.0), rate, 30.0).epsilon(1e-6)
            # Of one message, by whoever says "it is there" where it is beyond a point.
            tail, reached = law.standard.logsf, 0.0
            for share in (1e-5, 0.5, 1 - 1e-5):
                beyond = float(law.standard.isf(share))
                if rate * share > 2e-6:
                    seen = np.logaddexp(
                        math.log1p(-rate) + tail(beyond + 30), math.log(rate) + tail(beyond + 60)
                    )
                    reached = max(reached, math.log(rate * share - 1e-6) - float(seen))
            assert math.isfinite(most) and most >= reached
            least = Losses(law, np.full(3, 1e-6), rate, 1e-6).epsilon(1e-6)
            assert 0 <= least < 1e-3


def test_in_pure_epsilon_it_is_the_quotient_of_the_mixtures():
    pure = np.array([0.0, 1e-9, 0.5, 3.0, 40.0, 2000.0])
    for rate in (1e-6, 0.3, 1 - 1e-9):
        found = opposed_pure(pure, pure, rate)
        once = amplified_pure(pure, rate)
        assert np.all(found <= 2 * once * (1 + 1e-12)) and np.all(found >= once)
        few = pure[:4]
        exact = np.log((1 - rate + rate * np.exp(few)) / (1 - rate + rate * np.exp(-few)))
        np.testing.assert_allclose(found[:4], exact, rtol=1e-6, atol=1e-16)
    # 1 - q is exact, and lost where it is added to 1: by 2e-5 of epsilon here.
    for rate in (1 - 1e-12, 1 - 2.0**-53, 0.7, 1e-9):
        others = np.array([1e-12, 0.1, 0.6, 0.8, 28.0, 33.0, 36.0])
        exact = np.log((1 - rate) + rate * np.exp(others[3:]))
        exact -= np.log((1 - rate) + rate * np.exp(-others[3:]))
        found = opposed_pure(others, others, rate)
        np.testing.assert_allclose(found[3:], exact, rtol=1e-14, atol=1e-16)
        np.testing.assert_allclose(found[0], 2e-12 * rate, rtol=1e-11)
    # A search over all messages of one number.
    x = np.linspace(-30, 30, 60_001)
    p, q = (0.7 * stats.laplace.pdf(x) + 0.3 * stats.laplace.pdf(x - u) for u in (1.0, -1.0))
    assert float(np.log(p / q).max()) == pytest.approx(float(opposed_pure(1.0, 1.0, 0.3)))


# What rounding moves an empty record by is far smaller than the shift; the proof is about all.
TWO = pytest.mark.parametrize(
    ("shift", "other", "rate", "messages", "delta"),
    [
        (1.0, 1e-3, 0.3, 1, 1e-5),
        (1.0, 0.2, 0.3, 3, 1e-4),
        (0.4, 0.1, 0.9, 2, 1e-6),
        (2.5, 2.0, 0.05, 2, 1e-5),
        (0.5, 0.0, 0.2, 3, 1e-5),
    ],
)


@ALL
@TWO
def test_two_lengths_against_a_slow_sum_over_all_losses(law, shift, other, rate, messages, delta):
    """Of both directions, each by itself."""
    found = Losses(law, np.full(messages, shift), rate, other).epsilon(delta)
    both = ((shift, other), (other, shift))
    low, high = (
        max(composed(law, one, rate, messages, delta, up, two) for one, two in both)
        for up in (False, True)
    )
    assert low <= found * (1 + 1e-6)
    assert found <= high * (1 + 1e-3) + 1e-3
    assert low >= 0.95 * found


@ALL
def test_no_pair_within_two_lengths_is_worse(law):
    """In the plane, in any directions and of any lengths, at thresholds above and below 1."""
    rng, grid = np.random.default_rng(3), np.linspace(-14.0, 14.0, 561)
    one, two = np.meshgrid(grid, grid, indexing="ij")
    cell, density = (grid[1] - grid[0]) ** 2, law.standard.pdf
    noise = lambda u: density(one - u[0]) * density(two - u[1])  # noqa: E731
    length = (lambda u: np.sum(np.abs(u))) if law.name == "laplace" else np.linalg.norm
    # What the sum on this grid is wrong by where densities have corners.
    nearest, wrong = 0.0, 5e-4 if law.name == "laplace" else 1e-6
    for case in range(24):
        lengths = rng.uniform(0.3, 3) * np.array([1.0, rng.choice([0.01, 0.3, 0.8])])
        rate, pair = float(rng.uniform(0.02, 0.98)), rng.normal(size=(2, 2))
        if case % 4 == 0:
            pair = np.array([[1.0, 0.0], [-1.0, 0.0]])
        shorter = rng.choice([1.0, rng.uniform()], 2) if case % 4 else np.ones(2)
        each = [u / length(u) * n * less for u, n, less in zip(pair, lengths, shorter, strict=True)]
        p, q = ((1 - rate) * noise((0, 0)) + rate * noise(u) for u in each)
        for epsilon in (0.0, 0.3, 1.0, 2.0):
            a, at = math.exp(epsilon), np.array([epsilon])
            most = float(opposed_deltas(law, *lengths.tolist(), rate, at)[0])
            back = float(opposed_deltas(law, *lengths[::-1].tolist(), rate, at)[0])
            for first, second, over, under in ((p, q, most, back), (q, p, back, most)):
                seen = hockey_stick(first, second, a, cell)
                assert seen <= over * (1 + 1e-3) + wrong, (lengths, rate, each, epsilon)
                nearest = max(nearest, seen / over if over > 0.01 else 0.0)
                below = hockey_stick(first, second, 1 / a, cell)
                assert below <= 1 - 1 / a + under / a + 1e-3
    assert nearest > 0.99


@ALL
@pytest.mark.parametrize("rate", [1e-3, 0.1, 0.9])
@pytest.mark.parametrize("shift", [1e-3, 0.2, 1.0, 5.0, 30.0])
def test_without_errors_it_is_a_record_that_is_emptied(law, shift, rate):
    """And never less, and the more the larger they are."""
    cell = max(1e-4, law.widest_loss(shift) / 20_000)
    emptied = law.sampled_loss(shift, rate, cell)
    epsilons = np.linspace(0, law.widest_loss(shift), 9).tolist()
    before = np.array([float(emptied.get_delta_for_epsilon(e)) for e in epsilons])
    for share in (0.0, 1e-300, 1e-12, 1e-6, 1e-3, 0.1, 0.5, 0.99, 1.0):
        found = opposed_losses(law, shift, shift * share, rate, cell)
        now = np.array([float(found.get_delta_for_epsilon(e)) for e in epsilons])
        if share <= 1e-12:
            np.testing.assert_allclose(now, before, rtol=1e-6, atol=1e-13)
        assert np.all(now >= before * (1 - 1e-9) - 1e-12)
        before = now


def test_numbers_of_epsilon_without_errors_and_with_more_and_more():
    for law in LAWS.values():
        shifts = np.full(50, 0.4)
        found = [Losses(law, shifts, 0.1, e).epsilon(1e-5) for e in (0.0, 1e-300, 1e-12)]
        assert found[0] <= found[1] * (1 + 1e-9) and found[1] <= found[2] * (1 + 1e-9)
        assert found[2] == pytest.approx(found[0], rel=1e-6)
        more = [
            Losses(law, shifts, 0.1, e).epsilon(1e-5) for e in (0.0, 1e-9, 1e-6, 1e-3, 0.1, 0.4)
        ]
        assert np.all(np.diff(more) > 0)


@pytest.mark.parametrize("rate", [1e-9, 0.05, 0.9, 1.0])
@pytest.mark.parametrize(("shift", "other"), [(1.0, 1e-7), (1e-7, 1.0), (5.0, 0.3), (0.3, 30.0)])
def test_the_point_of_a_quotient_is_between_its_ends(shift, other, rate):
    """And those are close, also where the quotient hardly grows; a sum over points agrees."""
    law, epsilon = LAWS["gaussian"], np.geomspace(1e-6, 40, 60)
    low, high = law.opposed_point(shift, other, rate, epsilon)
    assert np.all(low <= high) and np.all(high - low <= 1e-9 * (1 + np.abs(low)))
    x = np.linspace(-45.0, 75.0, 240_001)
    p, q = ((1 - rate) * stats.norm.pdf(x) + rate * stats.norm.pdf(x - u) for u in (shift, -other))
    found = opposed_deltas(law, shift, other, rate, epsilon)
    for e, delta in zip(epsilon[::6].tolist(), found[::6].tolist(), strict=True):
        exact = hockey_stick(p, q, math.exp(e), x[1] - x[0])
        assert delta == pytest.approx(exact, rel=1e-5, abs=1e-12)


def test_a_search_that_stops_early_rounds_up(monkeypatch):
    """What is left open between two ends is counted."""
    law, epsilon = LAWS["gaussian"], np.linspace(0.0, 3.0, 31)
    exact = opposed_deltas(law, 1.0, 0.01, 0.3, epsilon)
    for steps in (0, 1, 2, 4):
        monkeypatch.setattr(opposed, "_STEPS", steps)
        rough = opposed_deltas(law, 1.0, 0.01, 0.3, epsilon)
        assert np.all(rough >= exact * (1 - 1e-12))
    assert rough == pytest.approx(exact, rel=1e-3, abs=1e-9)


def test_the_other_shift_is_at_most_the_shift():
    with pytest.raises(ValueError, match="others must be between 0 and the shifts"):
        Losses(LAWS["laplace"], np.full(2, 0.5), 0.1, 0.6)
