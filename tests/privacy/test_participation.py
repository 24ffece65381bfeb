"""Patterns against enumeration: every set of uses that a pattern allows, one by one."""

from __future__ import annotations

import numpy as np
import pytest

from hearsay.privacy import Cyclic, Every, History, Once


def enumerate_uses(pattern: object, horizon: int) -> list[set[int]]:
    """All sets of steps at which one record may be used, maximal or not, straight from the words of the pattern."""
    if isinstance(pattern, Once):
        return [set(), *({k} for k in range(horizon))]
    if isinstance(pattern, Cyclic):
        return [{k for k in range(horizon) if k % pattern.period == turn} for turn in range(pattern.period)]
    if isinstance(pattern, History):
        return [set(range(arrival, horizon)) for arrival in range(horizon + 1)]
    return [{k for k in range(horizon) if bits >> k & 1} for bits in range(2**horizon)]


PATTERNS = [Every(), History(), Once(), Cyclic(1), Cyclic(3), Cyclic(4), Cyclic(20)]


@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
@pytest.mark.parametrize("horizon", [0, 1, 3, 8])
def test_total_is_the_dearest_allowed_set(pattern, horizon):
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


@pytest.mark.parametrize("pattern", [Every(), History(), Once(), Cyclic(1), Cyclic(5), Cyclic(64)], ids=str)
@pytest.mark.parametrize("power", [1.2, 2.0, 4.0])
def test_tail_bounds_every_set_of_late_uses(pattern, power):
    """Prices x^-power from x = 10 on: the bound lies above each allowed set and within one price of the dearest."""
    first, last = 10.0, 400_000
    prices = np.arange(first, last) ** -power
    bound = pattern.tail(first**-power, first ** (1 - power) / (power - 1))
    beyond = last ** (1 - power) / (power - 1)  # what the sums below leave out, at most
    if isinstance(pattern, Once):
        assert bound == prices[0]
        return
    period = pattern.period if isinstance(pattern, Cyclic) else 1
    sums = [prices[offset::period].sum() for offset in range(period)]
    assert max(sums) + 0.99 * beyond / period <= bound <= max(sums) + beyond / period + prices[0]


def test_limits_of_the_cycle():
    prices = np.random.default_rng(5).random(30)
    assert Cyclic(1).total(prices) == pytest.approx(Every().total(prices))
    assert Cyclic(30).total(prices) == Once().total(prices)
    assert Cyclic(7).total(prices) <= Every().total(prices)
    with pytest.raises(ValueError, match="period must be at least 1, got 0"):
        Cyclic(0)


@pytest.mark.parametrize("pattern", [Every(), History(), Once(), Cyclic(3)], ids=str)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_an_undefined_price_is_not_lost(pattern, bad):
    prices = np.ones(9)
    prices[4] = bad
    assert not np.isfinite(pattern.total(prices))


def test_a_sum_of_many_small_prices_keeps_them():
    prices = np.concatenate([[1.0], np.full(100_000, 1e-17)])
    assert Every().total(prices) == pytest.approx(1 + 1e-12, rel=1e-15)
