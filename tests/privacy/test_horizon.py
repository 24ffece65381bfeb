"""Infinite horizons: never below a sum ten times as long, close to it, exact where a closed form
exists, infinite where they must be.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import zeta

from hearsay.privacy import Every, Once, Periodic, Recursion, RecursionAccount, Release
from hearsay.privacy.horizon import _at, _stateful_tail, infinite
from hearsay.privacy.recursion import MEMORYLESS
from hearsay.privacy.tails import NoBound, Tail, TryLater
from hearsay.schedules import Constant, Geometric, PowerLaw, SampleSize, Share

ENDLESS = Share(1.0, PowerLaw(1.0, 1.0))  # one record among k + 1


def account(
    leak,
    step,
    exposure,
    curvature,
    *scales,
    pattern=Every(),
    mechanism="laplace",
    dimension=1,
    **release,
):
    releases = tuple(Release(f"m{i}", scale, **release) for i, scale in enumerate(scales))
    return RecursionAccount(
        Recursion(leak, step, exposure, curvature), releases, pattern, dimension, mechanism
    )


def test_p3_figures():
    output = account(
        PowerLaw(0.5, -0.6),
        PowerLaw(0.5, -0.9),
        Share(0.2, SampleSize(PowerLaw(1, 1.1))),
        (0.0, 0.0),
        PowerLaw(1, 0.05),
    )
    assert round(infinite(output).value, 4) == 1.0080
    size = Share(0.2, SampleSize(PowerLaw(1, 1.2)))
    gradient = account(
        MEMORYLESS, Constant(1.0), size, (0.0, 0.0), PowerLaw(1, 0.1), state=0.0, fresh=1.0
    )
    assert round(infinite(gradient).value, 4) == 0.7556
    assert round(infinite(gradient).value - float(gradient.prices(1)[0]), 4) == 0.5556


# Closed forms. The slack allowed is one price at the smallest N, so a lost first term or a lost
# terminal value shows.

N = 4097.0


@pytest.mark.parametrize("power", [1.3, 1.8, 3.0])
@pytest.mark.parametrize("leak", [1.0, 0.4])
def test_every_step_against_the_zeta_function(power, leak):
    """Phi forgets at a constant rate: sum_k Phi(k) = sum_l step_l c_l / leak."""
    this = account(
        Constant(leak), PowerLaw(0.3, -power), Constant(1.0), (0.0, 0.0), Constant(2.0), dimension=4
    )
    true = 2 * 0.3 * zeta(power) / leak / 2.0
    assert true * (1 + 9e-10) <= infinite(this).value <= true * (1 + 2e-9) + 0.3 * N**-power / leak


@pytest.mark.parametrize("period", [1, 2, 64, 1024])
def test_a_cycle_against_the_zeta_function(period):
    this = account(
        MEMORYLESS,
        PowerLaw(1.0, -1.5),
        Constant(1.0),
        (0.0, 0.0),
        Constant(1.0),
        pattern=Periodic(period),
    )
    true = period**-1.5 * zeta(1.5, 1 / period)  # uses at 0, T, 2T, ...
    assert true * (1 + 9e-10) <= infinite(this).value <= true * (1 + 2e-9) + N**-1.5


def test_fresh_releases_against_the_zeta_function():
    this = account(
        MEMORYLESS,
        Constant(1.0),
        PowerLaw(0.7, -1.1),
        (0.0, 0.0),
        PowerLaw(1, 0.3),
        PowerLaw(2, 0.3),
        state=0.0,
        fresh=1.0,
    )
    true = 0.7 * zeta(1.4) * 1.5
    assert true * (1 + 9e-10) <= infinite(this).value <= true * (1 + 2e-9) + N**-1.4 * 1.1


def test_once_is_the_costliest_step_even_when_it_comes_after_the_sum():
    falling = account(
        MEMORYLESS, PowerLaw(0.5, -0.2), Constant(1.0), (0.0, 0.0), Constant(1.0), pattern=Once()
    )
    assert infinite(falling).value == pytest.approx(0.5, rel=2e-9)
    level = account(
        MEMORYLESS,
        PowerLaw(0.5, -0.5, 9.0),
        Constant(1.0),
        (0.0, 0.0),
        PowerLaw(1, -0.5, 8.0),
        pattern=Once(),
    )
    assert 0.5 <= infinite(level).value <= 0.5 * (1 + 1e-4)
    # A price that climbs for a million steps: no sum that we can afford has met the costliest one.
    for exposure, costliest in ((Constant(1.0), 0.49), (PowerLaw(1.0, -0.01), 0.4)):
        climbing = account(
            MEMORYLESS,
            PowerLaw(0.5, -0.5, 1e6),
            exposure,
            (0.0, 0.0),
            PowerLaw(1, -0.5, 1.0),
            pattern=Once(),
        )
        late = np.array([1e8])
        rec, scale = climbing.recursion, climbing.releases[0].scale
        assert rec.step(late) * rec.exposure(late) / scale(late + 1) > costliest
        assert climbing.cost(100_000).value < costliest / 2
        assert infinite(climbing).value >= costliest


def test_gaussian_against_the_zeta_function():
    this = account(
        Constant(1.0),
        PowerLaw(0.3, -0.8),
        Constant(1.0),
        (0.0, 0.0),
        Constant(2.0),
        mechanism="gaussian",
        dimension=4,
    )
    true = 0.3**2 / 2**2 / 2 * zeta(1.6)
    # Phi(k) is bounded through k + 1 where it follows k, and the first term is counted in full.
    assert true * (1 + 9e-10) <= infinite(this).value <= true * (1 + 1e-3)


@pytest.mark.parametrize("pattern, uses", [(Every(), 1), (Once(), None), (Periodic(10), 10)])
def test_geometric_steps_and_noise_have_a_closed_form(pattern, uses):
    this = account(
        MEMORYLESS,
        Geometric(0.5, 0.97),
        Constant(2.0),
        (0.0, 0.0),
        Geometric(1.0, 0.98),
        pattern=pattern,
    )
    first, ratio = 0.5 * 2.0 / 0.98, 0.97 / 0.98
    true = first if uses is None else first / (1 - ratio**uses)
    assert true * (1 + 9e-10) <= infinite(this).value <= true * (1 + 2e-9)
    assert this.cost(3000).value == pytest.approx(true, rel=1e-8)
    slower = account(
        MEMORYLESS,
        Geometric(0.5, 0.99),
        Constant(2.0),
        (0.0, 0.0),
        Geometric(1.0, 0.98),
        pattern=pattern,
    )
    assert infinite(slower).value == math.inf and "fall faster" in infinite(slower).reason


@pytest.mark.parametrize(
    "rates", [((0.05, 0.2), (3.0, 0.9)), ((0.4, 0.5), (0.4, 1.0)), ((0.7, 0.6),)]
)
def test_the_integral_of_the_tail_lies_above_the_true_one(rates):
    """The integral of x^-1.9 / D(x) in the variable log x,
    where 1/D bends by a factor of several.
    """
    tail = Tail(
        50.0, rates, jump=(1.0, 1.8), exposure=(1.0, 1.0), through=(1.0, 0.1), fresh=(0.0, 0.0)
    )
    first, integral = _stateful_tail(tail, 1.0, once=False)

    def integrand(t: float) -> float:
        x = math.exp(t)
        return x**-0.9 / sum(kappa * x**-u for kappa, u in rates)

    margin = 1 + tail.growth / tail.x
    true = quad(integrand, math.log(50), 120, epsabs=0, epsrel=1e-10, limit=500)[0] * margin
    assert true * (1 - 1e-9) <= integral <= 1.2 * true
    assert first == pytest.approx(integrand(math.log(50)) / 50 * margin, rel=1e-12)


# Against sums that are ten times as long.

FAMILY = {
    "as printed": account(
        PowerLaw(0.6, -0.65), PowerLaw(1, -0.77), ENDLESS, (0.01, 1.0), PowerLaw(1, 0.11)
    ),
    "as printed, other shifts": account(
        PowerLaw(0.9, -0.6, 40.0),
        PowerLaw(0.5, -0.8, 3.0),
        Share(1.0, PowerLaw(2.0, 1.0, 6.5)),
        (0.0, 0.3),
        PowerLaw(1, 0.2, 17.0),
    ),
    "feedback": account(Constant(0.0), PowerLaw(1.0, -0.7), ENDLESS, (0.5, 1.5), PowerLaw(1, 0.3)),
    "not convex": account(
        PowerLaw(0.6, -0.5), PowerLaw(0.3, -0.8), ENDLESS, (-0.5, 1.0), PowerLaw(1, 0.2)
    ),
    "memoryless": account(MEMORYLESS, PowerLaw(0.5, -0.5), ENDLESS, (0.01, 1.2), PowerLaw(1, 0.1)),
    "constant leak": account(
        Constant(0.3), PowerLaw(0.5, -0.9), Constant(0.1), (0.0, 0.5), PowerLaw(1, 0.4)
    ),
    "once": account(
        PowerLaw(0.6, -0.65),
        PowerLaw(1, -0.77),
        Constant(0.1),
        (0.01, 1.0),
        PowerLaw(1, 0.1),
        pattern=Once(),
    ),
    "cyclic": account(
        PowerLaw(0.6, -0.5),
        PowerLaw(1, -0.9),
        Constant(0.1),
        (0.01, 1.0),
        PowerLaw(1, 0.8),
        pattern=Periodic(37),
    ),
    "two releases": account(
        PowerLaw(0.6, -0.6),
        PowerLaw(0.5, -0.8),
        ENDLESS,
        (0.0, 1.0),
        PowerLaw(1, 0.1),
        PowerLaw(2, 0.3, 9.0),
        state=0.5,
        fresh=1.0,
    ),
    "gaussian": account(
        PowerLaw(0.6, -0.65),
        PowerLaw(1, -0.77),
        ENDLESS,
        (0.01, 1.0),
        PowerLaw(1, 0.1),
        mechanism="gaussian",
    ),
}


def finite(this: RecursionAccount, horizon: int) -> float:
    if this.mechanism.name == "laplace":
        return this.pattern.total(this.prices(horizon))
    return float(this.message_costs(horizon).sum())


@pytest.mark.parametrize("name", FAMILY)
def test_never_below_a_sum_ten_times_as_long_and_within_two_percent(name):
    this = FAMILY[name]
    found = infinite(this)
    assert found.reason == "" and math.isfinite(found.value)
    longest = 10 * found.summed_to
    sums = [finite(this, longest // 16), finite(this, longest // 4), finite(this, longest)]
    assert found.value >= sums[2] * (1 + 9e-10)
    # What is left after each quadrupling shrinks by a ratio that settles, so the rest is a
    # geometric series.
    gains = np.diff(sums)
    rest = gains[1] * (gains[1] / gains[0]) / (1 - gains[1] / gains[0]) if gains[0] > 0 else 0.0
    assert found.value <= 1.02 * (sums[2] + rest)


def random_account(rng: np.random.Generator) -> RecursionAccount:
    def shift() -> float:
        return float(rng.choice([1.0, 1.0, 0.01, 0.3, 7.0, 100.0]))

    leak = [
        PowerLaw(rng.uniform(0.05, 0.9), -rng.uniform(0, 1), shift()),
        Constant(rng.uniform(0.01, 0.9)),
        MEMORYLESS,
    ]
    mu = float(rng.choice([0.0, 0.1, 0.5, -0.1, -0.5]))
    exposure = [
        Constant(1.0),
        Share(1.0, PowerLaw(1.0, 1.0, shift())),
        Share(0.3, SampleSize(PowerLaw(1.0, 1.2))),
    ]
    fresh = {"state": 0.7, "fresh": 1.0} if rng.random() < 0.3 else {}
    return account(
        leak[rng.integers(3)],
        PowerLaw(rng.uniform(0.05, 0.8), -rng.uniform(0, 1.3), shift()),
        exposure[rng.integers(3)],
        (mu, max(mu, 0.0) + float(rng.choice([0.0, 0.5, 1.0]))),
        *(PowerLaw(1.0, rng.uniform(-0.4, 0.8), shift()) for _ in range(rng.integers(1, 3))),
        pattern=[Every(), Once(), Periodic(int(rng.choice([3, 50, 1000])))][rng.integers(3)],
        **fresh,
    )


@pytest.mark.parametrize("seed", range(4))
def test_the_bound_is_true_wherever_the_sum_stops(seed):
    """A tail that starts after a handful of steps is as true as one that starts late;
    errors in it are then at their largest.
    """
    rng, checked = np.random.default_rng(seed), 0
    while checked < 60:
        this, long_sum = random_account(rng), None
        for n in (1, 5, 30, 200, 2000):
            try:
                found = _at(this, n)
            except TryLater:
                continue
            except NoBound:
                break
            long_sum = finite(this, 2**16) if long_sum is None else long_sum
            assert found.value >= long_sum * (1 + 9e-10), (n, this)
            checked += 1


@pytest.mark.parametrize("seed", range(3))
def test_gaussian_bounds_are_true_wherever_the_sum_stops(seed):
    rng, checked = np.random.default_rng(seed), 0
    while checked < 25:
        this = random_account(rng)
        this = RecursionAccount(this.recursion, this.releases, Every(), 1, "gaussian")
        for n in (1, 20, 500):
            try:
                found = _at(this, n)
            except (TryLater, NoBound):
                continue
            assert found.value >= finite(this, 2**15) * (1 + 9e-10), (n, this)
            checked += 1


@pytest.mark.parametrize(
    "this, reason",
    [
        (
            account(PowerLaw(0.6, -0.65), PowerLaw(1, -0.77), ENDLESS, (0.0, 1.0), Constant(0.0)),
            "no noise",
        ),
        (
            account(
                PowerLaw(0.6, -0.65), PowerLaw(1, -0.77), ENDLESS, (0.0, 1.0), PowerLaw(1, -0.2)
            ),
            "no finite sum",
        ),
        (
            account(Constant(0.5), PowerLaw(1, -0.9), Constant(1.0), (0.0, 1.0), Constant(1.0)),
            "no finite sum",
        ),
        (
            account(Constant(0.0), PowerLaw(1, -0.7), ENDLESS, (0.0, 1.0), PowerLaw(1, 0.3)),
            "forget",
        ),
        (
            account(PowerLaw(0.5, -0.8), PowerLaw(1, -0.6), ENDLESS, (-0.1, 1.0), PowerLaw(1, 0.3)),
            "forget",
        ),
        (
            account(PowerLaw(0.5, -1.2), PowerLaw(1, -0.9), ENDLESS, (0.0, 1.0), PowerLaw(1, 0.3)),
            "faster than 1/k",
        ),
        (
            account(PowerLaw(0.5, 0.1), PowerLaw(1, -0.9), ENDLESS, (0.0, 1.0), PowerLaw(1, 0.3)),
            "grows",
        ),
        (
            account(
                PowerLaw(0.6, -0.6),
                PowerLaw(1, -0.8),
                Share(1.0, PowerLaw(1, 1), 500),
                (0.0, 1.0),
                PowerLaw(1, 0.1),
            ),
            "finite data set",
        ),
        (
            account(
                PowerLaw(0.6, -0.6), PowerLaw(1, -0.8), ENDLESS, (0.0, 1.0), Geometric(1, 0.99)
            ),
            "power law",
        ),
        (
            account(
                MEMORYLESS,
                Constant(1.0),
                PowerLaw(1, -0.9),
                (0.0, 0.0),
                Constant(1.0),
                state=0.0,
                fresh=1.0,
            ),
            "no finite sum",
        ),
        (
            account(
                MEMORYLESS,
                PowerLaw(1, -0.3),
                Constant(1.0),
                (0.0, 0.0),
                PowerLaw(1, 0.1),
                mechanism="gaussian",
            ),
            "no finite sum",
        ),
        (
            account(
                MEMORYLESS,
                PowerLaw(1, -0.3),
                Constant(1.0),
                (0.0, 0.0),
                PowerLaw(1, -0.5),
                pattern=Once(),
            ),
            "grows with time",
        ),
        (
            account(Constant(0.1), Constant(3.0), ENDLESS, (0.0, 1.0), PowerLaw(1, 0.5)),
            "contraction",
        ),
    ],
)
def test_infinite_with_a_reason(this, reason):
    found = infinite(this)
    assert found.value == math.inf
    assert reason in found.reason


def test_upper_laws_lie_above_their_schedules():
    rng, k = (
        np.random.default_rng(0),
        np.concatenate([np.arange(3000), np.geomspace(3e3, 1e9, 500).round()]),
    )
    for rounding in ("ceil", "floor+1"):
        for _ in range(60):
            law = PowerLaw(
                rng.choice([1.0, rng.uniform(0.1, 5)]),
                rng.choice([1.0, 2.0, rng.uniform(-0.5, 2)]),
                rng.choice([1.0, 0.2, 9.5]),
            )
            share = Share(rng.uniform(0.1, 3), SampleSize(law, rounding))
            upper = share.upper()
            assert upper is not None and np.all(upper(k) >= share(k))
    assert Share(1.0, PowerLaw(1.0, 1.0), held=100).upper() is None
    assert np.all(SampleSize(PowerLaw(1.0, 2.0))(np.arange(1000)) == (np.arange(1000) + 1) ** 2)


def test_growing_steps_of_a_memoryless_state_are_infinite():
    this = account(MEMORYLESS, PowerLaw(1e-3, 0.5), ENDLESS, (0.0, 1.0), PowerLaw(1, 0.6))
    assert infinite(this).value == math.inf


def test_a_logarithmic_divergence_is_infinite():
    this = account(
        PowerLaw(0.5, -0.7), PowerLaw(0.5, -0.6), PowerLaw(1.0, -1.0), (0.0, 0.0), PowerLaw(1, 0.1)
    )
    assert infinite(this).value == math.inf


def test_a_negative_leak_is_no_help():
    this = account(
        PowerLaw(-0.45, -0.6, 100.0),
        PowerLaw(0.5, -0.6),
        PowerLaw(1.0, -1.0),
        (1.0, 1.0),
        PowerLaw(1, 0.3),
    )
    try:
        found = _at(this, 20)
    except TryLater:
        found = infinite(this)
    assert found.value >= finite(this, 2**18)


def test_a_gaussian_explosion_has_a_reason():
    this = account(
        PowerLaw(0.5, -0.6),
        PowerLaw(50, -0.7),
        ENDLESS,
        (0.0, 10.0),
        PowerLaw(1, 0.2),
        mechanism="gaussian",
    )
    with np.errstate(all="ignore"):
        found = infinite(this)
    assert found.value == math.inf and found.reason


# One use, Gaussian noise: a fresh stream.


def one_use(this: RecursionAccount, step: int, horizon: int) -> float:
    """rho of a use at that step: what it moves the state by, message after message."""
    contraction, jump, exposure = this.recursion.coefficients(horizon)
    phi, fresh = np.zeros(horizon), np.zeros(horizon)
    fresh[step] = exposure[step]
    if step + 1 < horizon:
        phi[step + 1 :] = jump[step] * np.append(1.0, np.cumprod(contraction[step + 1 : -1]))
    k = np.arange(horizon)
    moved = ((r.state * phi + r.fresh * fresh) / r.scale(k) for r in this.releases)
    return float(sum(np.sum(each**2) for each in moved)) / 2


def test_what_one_use_costs_is_what_running_it_forward_gives():
    rng = np.random.default_rng(5)
    for _ in range(20):
        this = fresh_stream(rng)
        each = this.single_costs(60)
        np.testing.assert_allclose(
            each, [one_use(this, step, 60) for step in range(60)], rtol=1e-12
        )
        assert this.cost(60).value == pytest.approx(each.max(), rel=2e-9)


def fresh_stream(rng: np.random.Generator) -> RecursionAccount:
    this = random_account(rng)
    return RecursionAccount(this.recursion, this.releases, Once(), 1, "gaussian")


def single_uses(this: RecursionAccount, horizon: int) -> float:
    steps = {*range(12), *np.geomspace(12, horizon - 1, 12).astype(int).tolist()}
    return max(one_use(this, step, horizon) for step in steps)


def holds_wherever_the_sum_stops(this: RecursionAccount, horizon: int) -> int:
    """How many of the bounds there are; each of them lies above the cost of every single use."""
    checked, true = 0, None
    for n in (1, 5, 30, 300):
        try:
            found = _at(this, n)
        except TryLater:
            continue
        except NoBound:
            break
        true = single_uses(this, horizon) if true is None else true
        assert found.value >= true * (1 + 9e-10), (n, this)
        checked += 1
    return checked


@pytest.mark.parametrize("seed", range(2))
def test_one_gaussian_use_is_bounded_wherever_the_sum_stops(seed):
    rng, checked = np.random.default_rng(seed), 0
    for _ in range(60):
        checked += holds_wherever_the_sum_stops(fresh_stream(rng), 1200)
    assert checked > 100


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 110))
def test_one_gaussian_use_is_bounded_in_thousands_of_configurations(seed):
    rng = np.random.default_rng(seed)
    assert sum(holds_wherever_the_sum_stops(fresh_stream(rng), 6000) for _ in range(300)) > 500


@pytest.mark.parametrize("leak, curvature", [(0.3, (0.0, 0.5)), (1.4, (0.0, 1.0)), (0.0, (1, 2))])
def test_one_use_of_constant_coefficients_is_a_geometric_series(leak, curvature):
    this = account(
        Constant(leak), Constant(0.1), Constant(2.0), curvature, Constant(3.0),
        pattern=Once(), mechanism="gaussian",
    )  # fmt: skip
    ratio = max(abs(1 - leak - 0.1 * curved) for curved in curvature)
    true = (0.1 * 2.0 / 3.0) ** 2 / 2 / (1 - ratio**2)
    assert true * (1 + 9e-10) <= infinite(this).value <= true * (1 + 2e-9)
    # Every step at once has no finite sum.
    assert infinite(RecursionAccount(this.recursion, this.releases, Every(), 1, "gaussian")).reason


def test_one_use_is_close_to_the_costliest_one():
    for this in (
        account(
            PowerLaw(0.5, -0.6), PowerLaw(0.5, -0.9), Constant(0.3), (0.0, 1.0), PowerLaw(1, 0.05),
            pattern=Once(), mechanism="gaussian",
        ),
        account(
            PowerLaw(0.6, -0.5), PowerLaw(0.5, -0.7), PowerLaw(1.0, -0.2), (-0.1, 1.0),
            PowerLaw(1, 0.1), PowerLaw(2, 0.3, 9.0),
            pattern=Once(), mechanism="gaussian", state=0.5, fresh=1.0,
        ),
    ):  # fmt: skip
        found, true = infinite(this), single_uses(this, 20_000)
        assert true * (1 + 9e-10) <= found.value <= true * 1.02
        assert "the use of a record at step" in this.dominated_by(found, math.inf)


def test_one_use_that_grows_with_time_is_infinite():
    this = account(
        Constant(0.5), PowerLaw(0.3, -0.1), Constant(1.0), (0.0, 0.0), PowerLaw(1, -0.3),
        pattern=Once(), mechanism="gaussian",
    )  # fmt: skip
    assert infinite(this).value == math.inf and "grows with time" in infinite(this).reason


# A constant leak above 1.


def overshooting(rng: np.random.Generator) -> RecursionAccount:
    this = random_account(rng)
    mu = float(rng.choice([0.0, 0.3, -0.5, -1.5]))
    level = rng.random() < 0.3
    step = Constant(float(rng.uniform(0.05, 0.9))) if level else this.recursion.step
    recursion = Recursion(
        Constant(float(rng.uniform(1.01, 2.2))), step, this.recursion.exposure,
        (mu, mu + float(rng.choice([0.0, 1.0]))),
    )  # fmt: skip
    return RecursionAccount(recursion, this.releases, this.pattern, 1)


@pytest.mark.parametrize("seed", range(2))
def test_a_leak_above_one_is_bounded_wherever_the_sum_stops(seed):
    rng, checked = np.random.default_rng(seed), 0
    for _ in range(150):
        this, true = overshooting(rng), None
        for n in (1, 5, 30, 300):
            try:
                found = _at(this, n)
            except TryLater:
                continue
            except NoBound:
                break
            true = finite(this, 2**14) if true is None else true
            assert found.value >= true * (1 + 9e-10), (n, this)
            checked += 1
    assert checked > 100


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(50, 60))
def test_a_leak_above_one_in_thousands_of_configurations(seed):
    rng = np.random.default_rng(seed)
    for _ in range(300):
        this = overshooting(rng)
        with np.errstate(all="ignore"):
            found = infinite(this).value
            assert found >= finite(this, 2**15) * (1 + 9e-10) or math.isinf(found), this


def test_a_leak_above_one_forgets_as_fast_as_its_mirror_image():
    """|a| = 0.3 on either side of 0, and no curvature: the same number."""
    over, under = (
        account(
            Constant(leak), PowerLaw(0.5, -0.9), Constant(0.1), (0.0, 0.0), PowerLaw(1, 0.4)
        )
        for leak in (1.3, 0.7)
    )  # fmt: skip
    found = infinite(over)
    assert found.value == pytest.approx(infinite(under).value, rel=1e-6)
    assert finite(over, 10 * found.summed_to) * (1 + 9e-10) <= found.value


@pytest.mark.parametrize(
    "leak, step, curvature",
    [
        # |a| < 1 at the end, and the step is too large for ever, or for the first 10^6 steps.
        (1.5, Constant(1.0), (0.0, 1.0)),
        (1.5, PowerLaw(30.0, -0.01), (0.0, 1.0)),
        # Held together by a curvature that fades.
        (2.5, PowerLaw(1.5, -0.01), (-1.0, -1.0)),
        (2.0, PowerLaw(1.0, -0.5), (-0.5, -0.5)),
    ],
)
def test_a_leak_above_one_that_does_not_contract_for_good_is_infinite(leak, step, curvature):
    for mechanism, pattern in (("laplace", Every()), ("gaussian", Every()), ("gaussian", Once())):
        this = account(
            Constant(leak), step, PowerLaw(1.0, -3.0), curvature, Constant(1.0),
            pattern=pattern, mechanism=mechanism,
        )  # fmt: skip
        with np.errstate(all="ignore"):
            assert infinite(this).value == math.inf


def test_a_leak_above_one_held_by_a_constant_step_is_finite():
    """a = -1.5 and a curvature of -1 with a step of 1: l = 0.5 at every step."""
    this = account(Constant(2.5), Constant(1.0), PowerLaw(1.0, -2.0), (-1.0, -1.0), Constant(1.0))
    found = infinite(this).value
    assert zeta(2.0) / 0.5 * (1 + 9e-10) <= found <= zeta(2.0) / 0.5 * (1 + 1e-5)


@pytest.mark.parametrize("mechanism, least", [("gaussian", "0.5"), ("laplace", "1")])
@pytest.mark.parametrize(
    "exponent, words",
    [(0.0, "does not decay"), (-0.2, "grows like k^0.2,"), (0.2, "decays like k^-0.2,")],
)
def test_noise_that_grows_too_slowly_is_said_in_words(mechanism, least, exponent, words):
    this = account(
        MEMORYLESS,
        Constant(1.0),
        Constant(1.0),
        (0.0, 0.0),
        PowerLaw(1, exponent),
        state=0.0,
        fresh=1.0,
        mechanism=mechanism,
    )
    found = infinite(this).reason
    assert words in found and "--" not in found
    assert f"must exceed {least} (let the noise grow faster, or give a finite horizon)" in found
