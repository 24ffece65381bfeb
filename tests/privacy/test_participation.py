"""Patterns against enumeration: every set of uses that a pattern allows, one by one."""

from __future__ import annotations

import numpy as np
import pytest

from hearsay.mechanisms.convert import OUTWARD
from hearsay.privacy import Every, FromArrival, Once, Periodic, Recursion, RecursionAccount, Release
from hearsay.privacy.participation import Rolling, Sampled
from hearsay.privacy.recursion import forward
from hearsay.schedules import Constant, Geometric, PowerLaw, SampleSize, Share


def enumerate_uses(pattern: object, horizon: int) -> list[set[int]]:
    """All sets of steps at which one record may be used, maximal or not,
    straight from the words of the pattern.
    """
    if isinstance(pattern, Once):
        return [set(), *({k} for k in range(horizon))]
    if isinstance(pattern, Periodic):
        return [
            {k for k in range(horizon) if k % pattern.period == turn}
            for turn in range(pattern.period)
        ]
    if isinstance(pattern, Rolling):
        return [set(np.flatnonzero(row).tolist()) for row in roll(pattern, horizon)]
    if isinstance(pattern, FromArrival):
        return [set(range(arrival, horizon)) for arrival in range(horizon + 1)]
    return [{k for k in range(horizon) if bits >> k & 1} for bits in range(2**horizon)]


def roll(pattern: Rolling, horizon: int) -> np.ndarray:
    """Which record is used when, (record, step): one pointer that walks round the records."""
    used, place = np.zeros((pattern.held, horizon), dtype=bool), 0
    for k in range(horizon):
        for _ in range(min(int(pattern.size(k)), pattern.held)):
            used[place % pattern.held, k] = True
            place += 1
    return used


POWER = SampleSize(PowerLaw(1.0, 1.1))
ROLLING = [
    Rolling(POWER, 1),
    Rolling(POWER, 7),
    Rolling(POWER, 40),
    Rolling(SampleSize(PowerLaw(0.3, 1.5), "floor+1"), 11),
    Rolling(SampleSize(Geometric(2.0, 1.3)), 25),
    Rolling(SampleSize(Constant(3.0)), 10),
    Rolling(SampleSize(Constant(9.0)), 4),
]
PATTERNS = [
    Every(),
    Sampled(0.2),
    FromArrival(),
    Once(),
    Periodic(1),
    Periodic(3),
    Periodic(4),
    Periodic(20),
    *ROLLING,
]


@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
@pytest.mark.parametrize("horizon", [0, 1, 3, 8])
def test_total_is_the_costliest_allowed_set(pattern, horizon):
    prices = np.random.default_rng(horizon).exponential(size=horizon)
    worst = max(sum(prices[k] for k in used) for used in enumerate_uses(pattern, horizon))
    assert pattern.total(prices) == pytest.approx(worst, rel=1e-14)


@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
@pytest.mark.parametrize("horizon", [1, 3, 8])
def test_uses_are_allowed_and_contain_every_allowed_set(pattern, horizon):
    rows = [set(np.flatnonzero(row).tolist()) for row in pattern.uses(horizon)]
    everything = enumerate_uses(pattern, horizon)
    assert all(row in everything for row in rows)
    assert all(any(used <= row for row in rows) for used in everything)


@pytest.mark.parametrize(
    "pattern", [Every(), FromArrival(), Once(), Periodic(1), Periodic(5), Periodic(64)], ids=str
)
@pytest.mark.parametrize("power", [1.2, 2.0, 4.0])
def test_tail_bounds_every_set_of_late_uses(pattern, power):
    """Prices x^-power from x = 10 on: the bound lies above each allowed set and within
    one price of the costliest.
    """
    first, last = 10.0, 400_000
    prices = np.arange(first, last) ** -power
    bound = pattern.tail(first**-power, first ** (1 - power) / (power - 1))
    beyond = last ** (1 - power) / (power - 1)  # what the sums below leave out, at most
    if isinstance(pattern, Once):
        assert bound == prices[0]
        return
    period = pattern.period if isinstance(pattern, Periodic) else 1
    sums = [prices[offset::period].sum() for offset in range(period)]
    assert max(sums) + 0.99 * beyond / period <= bound <= max(sums) + beyond / period + prices[0]


def test_limits_of_the_cycle():
    prices = np.random.default_rng(5).random(30)
    assert Periodic(1).total(prices) == pytest.approx(Every().total(prices))
    assert Periodic(30).total(prices) == Once().total(prices)
    assert Periodic(7).total(prices) <= Every().total(prices)
    with pytest.raises(ValueError, match="period must be at least 1, got 0"):
        Periodic(0)


@pytest.mark.parametrize(
    "pattern", [Every(), FromArrival(), Once(), Periodic(3), ROLLING[1], ROLLING[6]], ids=str
)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_an_undefined_price_is_not_lost(pattern, bad):
    prices = np.ones(9)
    prices[4] = bad
    assert not np.isfinite(pattern.total(prices))


def test_a_sum_of_many_small_prices_keeps_them():
    prices = np.concatenate([[1.0], np.full(100_000, 1e-17)])
    assert Every().total(prices) == pytest.approx(1 + 1e-12, rel=1e-15)


@pytest.mark.parametrize("seed", range(30))
def test_a_rolling_total_is_the_costliest_record(seed):
    """Random sizes, data sets (also smaller than the first batch) and prices over six orders of
    magnitude, against one sum per record.
    """
    rng = np.random.default_rng(seed)
    law = (
        PowerLaw(rng.uniform(1, 30), rng.uniform(0, 2))
        if seed % 2
        else Geometric(rng.uniform(1, 30), rng.uniform(1, 1.2))
    )
    pattern = Rolling(
        SampleSize(law, ["ceil", "floor+1"][seed % 3 == 0]), int(rng.integers(1, 120))
    )
    for horizon in (0, 1, 2, 37, 300):
        price = 10 ** rng.uniform(-3, 3, size=horizon)
        worst = max(price[row].sum() for row in roll(pattern, horizon))
        assert pattern.total(price) == pytest.approx(worst, rel=1e-12)
        if horizon:
            np.testing.assert_array_equal(pattern.uses(horizon), roll(pattern, horizon))
            starts, sizes = pattern.windows(horizon)
            at = (np.arange(pattern.held)[:, None] - starts) % pattern.held
            np.testing.assert_array_equal(pattern.uses(horizon), at < sizes)
            np.testing.assert_array_equal(roll(pattern, horizon).sum(axis=0), sizes)


def test_a_rolling_window_is_known_at_any_step():
    """Beyond step 1,024 too, and whatever was asked before."""
    pattern = Rolling(SampleSize(PowerLaw(1.0, 0.3)), 23)
    expected = roll(pattern, 2100)
    for step in (2099, 0, 1023, 1024, 1025, 7, 2048, 2047):
        np.testing.assert_array_equal(
            pattern.used(step, pattern.candidates(2100)), expected[:, step]
        )


@pytest.mark.parametrize(("size", "held"), [(1, 12), (3, 12), (12, 12), (5, 5), (4, 100)])
def test_a_constant_size_that_divides_the_data_set_is_a_cycle(size, held):
    price = np.random.default_rng(size).exponential(size=70)
    rolling, cycle = Rolling(SampleSize(Constant(float(size))), held), Periodic(held // size)
    assert rolling.total(price) == pytest.approx(cycle.total(price), rel=1e-12)
    rows = {tuple(row) for row in rolling.uses(70)}
    assert rows == {tuple(row) for row in cycle.uses(70)}


def test_limits_of_a_rolling_window():
    price = np.random.default_rng(1).random(20)
    assert Rolling(POWER, 1).total(price) == pytest.approx(Every().total(price), rel=1e-14)
    assert Rolling(POWER, 10_000).total(price) == Once().total(price), "the stream is never used up"
    assert Once().total(price) < Rolling(POWER, 40).total(price) < Every().total(price)
    assert Rolling(POWER, 40).total(np.zeros(0)) == 0.0
    with pytest.raises(ValueError, match="held must be at least 1, got 0"):
        Rolling(POWER, 0)
    with pytest.raises(TypeError, match="held must be a whole number, got 2.5"):
        Rolling(POWER, 2.5)


def account(pattern, mechanism: str = "laplace") -> RecursionAccount:
    """State and gradient on the wire, shares of growing batches,
    a contraction on either side of one.
    """
    recursion = Recursion(
        PowerLaw(0.3, -0.5), PowerLaw(0.9, -0.4), Share(1.7, POWER, 40.0), (-0.3, 2.2)
    )
    wires = (
        Release("x", PowerLaw(2.0, 0.1)),
        Release("g", PowerLaw(0.8, -0.2), state=0.7, fresh=1.3),
    )
    return RecursionAccount(recursion, wires, pattern, 5, mechanism)


def followed(this: RecursionAccount, used: np.ndarray) -> np.ndarray:
    """What each message costs if the record is used at those steps: Phi run forward,
    one message after the other.
    """
    k = np.arange(len(used))
    contraction, jump, exposure = this.recursion.coefficients(len(used))
    phi = forward(contraction, jump * used)[:-1]
    total = np.zeros(len(used))
    for release in this.releases:
        ratio = (release.state * phi + release.fresh * exposure * used) / release.scale(k)
        total += (
            np.sqrt(this.dimension) * ratio if this.mechanism.name == "laplace" else ratio**2 / 2
        )
    return total


@pytest.mark.parametrize(
    "pattern", [Once(), Periodic(1), Periodic(4), Periodic(90), Every(), *ROLLING], ids=str
)
@pytest.mark.parametrize("horizon", [1, 2, 60])
def test_prices_add_up_to_what_following_every_use_costs(pattern, horizon):
    """The price of a set of uses is the cost of Phi run forward under it,
    and the total is the costliest of them.
    """
    this = account(pattern)
    price, uses = this.prices(horizon), pattern.uses(horizon)
    costs = np.array([followed(this, used).sum() for used in uses])
    np.testing.assert_allclose(uses @ price, costs, rtol=1e-12, atol=1e-300)
    assert pattern.total(price) == pytest.approx(costs.max(), rel=1e-12)
    if isinstance(pattern, Once):
        assert pattern.total(price) == price.max()
    if isinstance(pattern, Periodic):
        sums = [price[turn :: pattern.period].sum() for turn in range(pattern.period)]
        assert pattern.total(price) == pytest.approx(max(sums), rel=1e-12)


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
@pytest.mark.parametrize("pattern", ROLLING, ids=str)
def test_the_budget_curve_of_a_rolling_window(pattern, mechanism):
    """After every message the costliest record so far, which may change from message to message."""
    this, horizon = account(pattern, mechanism), 50
    costs = np.array([followed(this, used) for used in pattern.uses(horizon)])
    curve = np.cumsum(costs, axis=1).max(axis=0) * OUTWARD
    np.testing.assert_allclose(this.curve(horizon), curve, rtol=1e-12)
    np.testing.assert_allclose(
        this.spent([0, 1, 7, 50]), [0.0, curve[0], curve[6], curve[49]], rtol=1e-12
    )
    np.testing.assert_allclose(this.message_costs(horizon), costs, rtol=1e-12, atol=1e-300)


@pytest.mark.parametrize("pattern", ROLLING, ids=str)
def test_the_tail_of_a_rolling_window_bounds_its_late_uses(pattern):
    """Prices that decrease from step 30 on: whatever record is costliest pays no more than the
    bound for the whole tail.
    """
    late = np.arange(400) >= 30
    price = np.where(late, (np.arange(400) + 1.0) ** -1.7, 0.0)
    first = 31.0**-1.7
    assert pattern.total(price) <= pattern.tail(first, 31.0**-0.7 / 0.7)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_prices_that_are_all_undefined_stay_so(bad):
    """Without noise every price is infinite, and where one window ends the next begins:
    infinity less infinity must not become a number.
    """
    for pattern in ROLLING:
        assert not np.isfinite(pattern.total(np.full(9, bad)))


def one_by_one(account, horizon):
    """What blocks of steps must equal to the last bit: a step after the other."""
    contraction, jump, exposure = account.recursion.coefficients(horizon)
    phi = total = np.zeros(account.pattern.candidates(horizon))
    each, curve = [], []
    for step in range(horizon):
        used = account.pattern.used(step, len(phi))
        cost = np.zeros(len(phi))
        for release in account.releases:
            moved = release.state * phi + release.fresh * (exposure[step] * used)
            inverse = 1.0 / np.asarray(release.scale(np.arange(horizon)), dtype=float)[step]
            ratio = np.where(moved == 0, 0.0, moved * inverse)
            cost = cost + account.mechanism.cost(ratio, account.counted_dimension)
        total, phi = total + cost, contraction[step] * phi + jump[step] * used
        each.append(cost)
        curve.append(total.max())
    return np.stack(each, axis=1), np.array(curve) * OUTWARD


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
@pytest.mark.parametrize("pattern", [Periodic(7), Rolling(POWER, 11), Once()], ids=str)
def test_blocks_of_steps_add_up_as_one_step_after_the_other(pattern, law, monkeypatch):
    """Also where a block ends, and where states are carried on."""
    for block in (1, 50, 2**16):
        monkeypatch.setattr("hearsay.privacy.recursion_account._BLOCK", block)
        for leak in (Constant(1.0), PowerLaw(0.3, 0.2)):
            account = RecursionAccount(
                Recursion(leak, Constant(0.7), PowerLaw(1.3, 0.1), (0.0, 0.1)),
                (
                    Release("params", PowerLaw(2.0, 0.3)),
                    Release("tracker", Constant(3.0), state=0.5, fresh=1.0),
                ),
                pattern,
                3,
                law,
            )
            each, curve = one_by_one(account, 97)
            assert np.array_equal(account.message_costs(97), each)
            assert np.array_equal(account.curve(97), curve)
            assert account.message_costs(97).flags.c_contiguous
            assert account.curve(0).shape == (0,)
