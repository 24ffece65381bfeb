"""The fast recursion, prices and curves against plain loops, exact rational sums and the
figures checked by hand.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from hearsay.mechanisms.convert import OUTWARD
from hearsay.privacy import Every, FromArrival, Once, Periodic, Recursion, RecursionAccount, Release
from hearsay.privacy.recursion import MEMORYLESS, _recurrence, backward, forward
from hearsay.schedules import Constant, Geometric, PowerLaw, SampleSize, Share


def simulate(account: RecursionAccount, used: set[int], horizon: int) -> np.ndarray:
    """Cost of every message for one set of uses: Phi run forward,
    one step and one release at a time.
    """
    rec, phi, costs = account.recursion, 0.0, []
    mu, largest = rec.curvature
    for k in range(horizon):
        hit = 1.0 if k in used else 0.0
        kept, step, exposure = 1 - float(rec.leak(k)), float(rec.step(k)), float(rec.exposure(k))
        total = 0.0
        for release in account.releases:
            ratio = (release.state * phi + release.fresh * exposure * hit) / float(release.scale(k))
            total += (
                account.dimension**0.5 * ratio
                if account.mechanism.name == "laplace"
                else ratio**2 / 2
            )
        costs.append(total)
        phi = max(abs(kept - step * mu), abs(kept - step * largest)) * phi + step * exposure * hit
    return np.array(costs)


def allowed(pattern: object, horizon: int) -> list[set[int]]:
    """Every set of uses that a pattern allows and that no other allowed set contains."""
    if isinstance(pattern, Once):
        return [{k} for k in range(horizon)]
    if isinstance(pattern, Periodic):
        return [set(range(o, horizon, pattern.period)) for o in range(min(pattern.period, horizon))]
    return [set(range(horizon))]


def account(pattern=Every(), mechanism="laplace", **changes) -> RecursionAccount:
    """A recursion with nothing special about it: two releases, one of them with a fresh part,
    and three shifts.
    """
    parts = {
        "leak": PowerLaw(0.4, -0.6),
        "step": PowerLaw(0.7, -0.8, 3.0),
        "exposure": PowerLaw(1.3, -0.5, 2.0),
        "curvature": (-0.2, 1.5),
        **changes,
    }
    return RecursionAccount(Recursion(**parts), releases(1.001), pattern, 3, mechanism)


def releases(ratio: float) -> tuple[Release, Release]:
    return Release("x", PowerLaw(2.0, 0.1)), Release(
        "y", Geometric(3.0, ratio), state=1.5, fresh=1.0
    )


PATTERNS = [Every(), FromArrival(), Once(), Periodic(7), Periodic(1), Periodic(500)]


@pytest.mark.parametrize("steps", [0, 1, 2, 511, 4096, 4097, 4608, 5000, 10_241])
def test_blocks_equal_the_plain_loop(steps):
    rng = np.random.default_rng(steps)
    factor, source, start = rng.uniform(0.4, 1.03, steps), rng.uniform(0, 1, steps), 2.5
    expected = [start]
    for f, s in zip(factor, source, strict=True):
        expected.append(f * expected[-1] + s)
    np.testing.assert_allclose(_recurrence(factor, source, start), expected, rtol=1e-12)
    back = [start]
    for f, s in zip(factor[::-1], source[::-1], strict=True):
        back.append(f * back[-1] + s)
    np.testing.assert_allclose(backward(factor, source, start), back[::-1], rtol=1e-12)
    assert forward(factor, source)[0] == 0


def test_an_explosion_is_never_mistaken_for_a_finite_budget():
    for horizon in (3000, 6000):
        exploding = account(step=Constant(2.0), leak=Constant(0.0))
        assert exploding.cost(horizon).value == np.inf
        assert "step size" in exploding.cost(horizon).reason
        assert not np.isfinite(exploding.curve(horizon)[-1])


@pytest.mark.parametrize("curvature", [(0.0, 0.0), (0.1, 4.0), (-1.0, 2.0), (2.0, 2.0)])
def test_contraction_is_the_largest_gain_over_the_curvature_interval(curvature):
    rec = Recursion(PowerLaw(1.4, -0.3), PowerLaw(0.9, -0.2), Constant(1.0), curvature)
    k = np.arange(50)
    gains = [np.abs(1 - rec.leak(k) - rec.step(k) * h) for h in np.linspace(*curvature, 101)]
    np.testing.assert_allclose(rec.contraction(k), np.max(gains, axis=0), rtol=1e-13)


@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
@pytest.mark.parametrize("horizon", [1, 2, 40])
def test_prices_summed_over_any_pattern_equal_the_forward_simulation(pattern, horizon):
    this = account(pattern)
    price = this.prices(horizon)
    totals = []
    for used in allowed(pattern, horizon):
        totals.append(simulate(this, used, horizon).sum())
        assert price[sorted(used)].sum() == pytest.approx(totals[-1], rel=1e-12)
    assert pattern.total(price) == pytest.approx(max(totals), rel=1e-12)


@pytest.mark.parametrize("pattern", [Every(), Once(), Periodic(613)], ids=str)
def test_prices_equal_the_forward_simulation_beyond_one_block(pattern):
    this, horizon = account(pattern), 5000
    price = this.prices(horizon)
    for used in allowed(pattern, horizon)[:: 2500 if isinstance(pattern, Once) else 300]:
        assert price[sorted(used)].sum() == pytest.approx(
            simulate(this, used, horizon).sum(), rel=1e-12
        )


def test_prices_of_a_random_set_of_uses_add_up():
    rng = np.random.default_rng(0)
    this, price = account(), account().prices(60)
    for _ in range(20):
        used = set(np.flatnonzero(rng.random(60) < 0.3).tolist())
        assert price[sorted(used)].sum() == pytest.approx(simulate(this, used, 60).sum(), rel=1e-12)


def test_terminal_stands_for_what_later_messages_cost():
    this = account()
    later = backward(this.recursion.contraction(np.arange(100)), _through(this, 100), 0.0)[60]
    np.testing.assert_allclose(
        this.prices(60, terminal=later)[:59], this.prices(100)[:59], rtol=1e-12
    )


def _through(this: RecursionAccount, horizon: int) -> np.ndarray:
    return sum(r.state / r.scale(np.arange(horizon)) for r in this.releases)


@pytest.mark.parametrize("ratio", [1.001, 0.9])  # noise that falls makes late uses the costliest
@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
def test_spent_is_the_worst_pattern_of_every_prefix(pattern, mechanism, ratio):
    this, horizon = replace(account(pattern, mechanism), releases=releases(ratio)), 30
    curves = np.array(
        [np.cumsum(simulate(this, used, horizon)) for used in allowed(pattern, horizon)]
    )
    curve = this.curve(horizon)
    np.testing.assert_allclose(curve, curves.max(axis=0) * OUTWARD, rtol=1e-12)
    assert np.all(np.diff(curve) >= 0)
    for m in (1, 8, 30):
        assert this.cost(m).value == pytest.approx(curve[m - 1], rel=1e-12)
    np.testing.assert_allclose(
        this.message_costs(horizon).sum(axis=1).max() * OUTWARD, curve[-1], rtol=1e-12
    )


def test_message_costs_are_refused_where_the_table_would_be_too_large():
    assert account(Once()).message_costs(4097) is None
    assert account(Every()).message_costs(4097).shape == (1, 4097)


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
def test_budgets_are_rounded_outward(mechanism):
    """The same coefficients in exact rational arithmetic: the printed number lies above,
    by the stated margin.
    """
    this, horizon = account(mechanism=mechanism), 40
    rec, k = this.recursion, np.arange(40)
    exact, phi = Fraction(0), Fraction(0)
    contraction, step, exposure = rec.contraction(k), rec.step(k), rec.exposure(k)
    for t in range(horizon):
        for r in this.releases:
            moved = Fraction(r.state) * phi + Fraction(r.fresh) * Fraction(exposure[t])
            ratio = moved / Fraction(float(r.scale(t)))
            exact += ratio if mechanism == "laplace" else ratio**2 / 2
        phi = Fraction(contraction[t]) * phi + Fraction(step[t]) * Fraction(exposure[t])
    true = float(exact) * (3**0.5 if mechanism == "laplace" else 1.0)
    for value in (this.cost(horizon).value, this.curve(horizon)[-1]):
        assert true * (1 + 5e-10) < value < true * (1 + 2e-9)


def test_two_quadratics_move_apart_by_no_more_than_phi_and_reach_it():
    """The states themselves, in two dimensions, with a projection: the bound holds,
    and is reached along the worst axis.
    """
    rng = np.random.default_rng(1)
    rec = Recursion(PowerLaw(0.3, -0.5), PowerLaw(0.6, -0.4), PowerLaw(1.0, -1.0), (0.1, 1.2))
    k = np.arange(60)
    phi = forward(rec.contraction(k), rec.step(k) * rec.exposure(k))
    worst = np.zeros(61)
    for trial in range(30):
        states = np.zeros((2, 2))
        hessian = np.diag([0.1, 1.2] if trial == 0 else rng.uniform(0.1, 1.2, 2))
        for t in k:
            push = np.array([1.0, 0.0]) if trial == 0 else rng.normal(size=2)
            shift = np.outer([0.5, -0.5], push / np.linalg.norm(push) * rec.exposure(t))
            heard = 0.0 if trial == 0 else rng.normal(size=2)
            states = (1 - rec.leak(t)) * states - rec.step(t) * (states @ hessian + shift) + heard
            if trial > 0:
                states /= np.maximum(1, np.linalg.norm(states, axis=1, keepdims=True) / 3)
            worst[t + 1] = max(worst[t + 1], np.linalg.norm(states[0] - states[1]))
            assert np.linalg.norm(states[0] - states[1]) <= phi[t + 1] * (1 + 1e-12)
    assert np.all(worst[1:] >= 0.999 * phi[1:])


def test_no_noise_costs_everything():
    silent = RecursionAccount(account().recursion, (Release("x", Constant(0.0)),), Every(), 1)
    assert silent.cost(1).value == 0  # message 0 is sent before any record is used
    assert silent.cost(2).value == np.inf and silent.cost(2).reason == "messages carry no noise"
    assert silent.cost(0).value == 0
    still = replace(silent, recursion=account(step=Constant(0.0)).recursion)
    # No gradient is ever used: the messages say nothing of any record.
    assert still.cost(50).value == 0


def test_a_record_that_moves_nothing_is_a_mistake():
    """A sensitivity of zero is what an overflow, an underflow or a wrong sign leaves behind,
    and it would cost nothing.
    """
    for exposure in (Constant(0.0), Constant(-1.0), Share(0.0, Constant(3.0))):
        with pytest.raises(ValueError, match="exposure must be"):
            RecursionAccount(
                replace(account().recursion, exposure=exposure),
                (Release("x", Constant(1.0)),),
                Every(),
                1,
            )


P3_OUTPUT = RecursionAccount(
    Recursion(
        PowerLaw(0.5, -0.6),
        PowerLaw(0.5, -0.9),
        Share(0.2, SampleSize(PowerLaw(1, 1.1))),
        (0.0, 0.0),
    ),
    (Release("x", PowerLaw(1, 0.05)),),
    Every(),
    1,
)
P3_GRADIENT = RecursionAccount(
    Recursion(MEMORYLESS, Constant(1.0), Share(0.2, SampleSize(PowerLaw(1, 1.2))), (0.0, 0.0)),
    (Release("g", PowerLaw(1, 0.1), state=0.0, fresh=1.0),),
    Every(),
    1,
)


def test_p3_figures():
    assert round(P3_OUTPUT.cost(2000).value, 4) == 0.9923
    assert round(float(P3_GRADIENT.prices(2001)[1:].sum()), 4) == 0.4874


@pytest.mark.parametrize(
    "step, share, scale, period, figures",
    [
        (0.05, 1 / 53, PowerLaw(1, 0.1), 226, ("948.7", "0.998", "4.706")),
        (0.05, 1 / 53, PowerLaw(1, 0.2), 226, ("468.8", "0.533", "2.353")),
        (0.1, 1 / 55, Constant(0.9996**2000), 218, ("8179.2", "8.135", "41.64")),
    ],
    ids=["S1 p=.1", "S1 p=.2", "S2"],
)
def test_p2_figures(step, share, scale, period, figures):
    rec = Recursion(Constant(0.0), Constant(step), Constant(share), (0.0, 0.0))
    messages = (Release("x", scale), Release("y", scale, state=0.0, fresh=1.0))
    for pattern, figure in zip((Every(), Once(), Periodic(period)), figures, strict=True):
        value = RecursionAccount(rec, messages, pattern, 1).cost(2001).value
        assert f"{value:.{len(figure.split('.')[1])}f}" == figure
