"""The ternary quantizer on a lattice: its probabilities from its decisions (bisection over all
words), against exact fractions.

Seeds are fixed; false-alarm rates say how often another seed would fail.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from hearsay.mechanisms import MECHANISMS, lattice, rounding
from hearsay.mechanisms.lattice import Key

SLACK = Fraction(1, 2**52)


def simulated(*seed: int) -> Key:
    with pytest.warns(UserWarning, match="NOT PRIVATE"):
        return Key.simulated(*seed)


class Scripted(Key):
    """A key whose next words are written down."""

    def __init__(self, words) -> None:
        super().__init__(bytes(32), private=False)
        self._next = np.asarray(words, np.uint64)

    def words(self, count):
        assert len(self._next) == count
        return self._next, bytes(32)


def chances(values, scale: float) -> list[Fraction]:
    """P(not 0) of each value, from where its decision turns: words below that say yes,
    words above it no.
    """
    low, high = [0] * len(values), [2**64] * len(values)
    for _ in range(65):
        middle = [min((a + b) // 2, 2**64 - 1) for a, b in zip(low, high, strict=True)]
        sent = lattice.ternary(values, scale, Scripted(middle))
        for i, (m, y) in enumerate(zip(middle, sent.tolist(), strict=True)):
            assert y in (0.0, np.copysign(scale, values[i]))
            if low[i] < high[i]:
                low[i], high[i] = (m + 1, high[i]) if y else (low[i], m)
    return [Fraction(n, 2**64) for n in low]


def distance(a: float, p: Fraction, b: float, q: Fraction) -> Fraction:
    """Total variation of two such laws, the slow way."""
    law = [
        {np.sign(v): w, 0.0: 1 - w} if v and w else {0.0: Fraction(1)} for v, w in ((a, p), (b, q))
    ]
    return sum(abs(law[0].get(y, 0) - law[1].get(y, 0)) for y in (-1.0, 0.0, 1.0)) / 2


def cases(scale: float) -> np.ndarray:
    rng = np.random.default_rng(0)
    edges = np.array(
        [
            0.0,
            1e-320,
            2.0**-54,
            2.0**-53,
            0.25,
            0.5,
            np.nextafter(0.5, 0),
            np.nextafter(1, 0),
            1.0,
            1.5,
        ]
    )
    sizes = np.concatenate([edges, 2.0 ** rng.uniform(-60, 0.5, 20), rng.uniform(0, 1, 20)]) * scale
    near = np.nextafter(sizes, np.inf)
    return np.concatenate([sizes, near, -sizes, [-0.0, np.inf, -np.inf, 1e308]])


@pytest.mark.parametrize("scale", [1.0, 0.3, 7e-5, 6.02e23])
def test_probabilities_are_exact_multiples_near_the_ideal_ones(scale):
    values = cases(scale)
    for value, chance in zip(values.tolist(), chances(values, scale), strict=True):
        ideal = (
            min(Fraction(1), abs(Fraction(value)) / Fraction(scale))
            if np.isfinite(value)
            else Fraction(1)
        )
        assert (chance * 2**53).denominator == 1
        assert abs(chance - ideal) <= Fraction(3, 2**55)
        assert ideal != 1 or chance == 1


@pytest.mark.parametrize("scale", [1.0, 0.3])
def test_total_variation_is_at_most_what_the_account_says(scale):
    values = cases(scale)
    values = values[np.isfinite(values) & (np.abs(values) < 10 * scale)]
    found = dict(zip(values.tolist(), chances(values, scale), strict=True))
    ordered = sorted(found)
    for a in ordered:
        for b in ordered:
            bound = abs(Fraction(a) - Fraction(b)) / Fraction(scale) + (SLACK if a != b else 0)
            assert distance(a, found[a], b, found[b]) <= bound
    sizes = [found[v] for v in ordered if v >= 0]
    assert sizes == sorted(sizes)
    assert rounding.ternary(0.0, 1) >= SLACK


def test_the_distance_check_can_fail():
    """Probabilities from float32 quotients, on either side of where those turn:
    2^-25 apart, far more than the slack.
    """
    low = np.float32(0.3)
    edge = (float(low) + float(np.nextafter(low, np.float32(1)))) / 2
    a, b = math.nextafter(edge, 0), math.nextafter(edge, 1)
    allowed = Fraction(b) - Fraction(a) + SLACK
    assert (
        distance(a, Fraction(float(np.float32(a))), b, Fraction(float(np.float32(b))))
        > 2**20 * allowed
    )
    p, q = chances(np.array([a, b]), 1.0)
    assert distance(a, p, b, q) <= allowed


def test_frequencies_and_mean():
    """Chi-square over the three outcomes, 200,000 each; false-alarm rate 1e-6 a case."""
    for value in (0.7, -0.2, 1e-3):
        sent = MECHANISMS["ternary"].lattice(np.full(200_000, value), 2.0, simulated(1))
        assert set(np.unique(sent)) <= {0.0, np.copysign(2.0, value)}
        kept = np.count_nonzero(sent)
        p = abs(value) / 2
        assert (
            stats.chisquare([kept, 200_000 - kept], [200_000 * p, 200_000 * (1 - p)]).pvalue > 1e-6
        )


def test_zeros_do_not_betray_the_sign():
    sent = lattice.ternary(np.linspace(-1, 1, 1001), 1.0, simulated(2))
    assert not np.signbit(sent[sent == 0]).any()
    assert np.count_nonzero(sent == 0) > 300


def test_what_is_sent_is_determined_by_the_key_and_has_the_shape_of_the_value():
    value = np.random.default_rng(3).normal(size=(4, 5))
    np.testing.assert_array_equal(
        lattice.ternary(value, 2.0, simulated(4)), lattice.ternary(value, 2.0, simulated(4))
    )
    assert lattice.ternary(value, 2.0, Key.fresh()).shape == (4, 5)
    assert lattice.ternary(0.5, 2.0, Key.fresh()).shape == ()
    assert lattice.ternary(np.zeros((0, 3)), 2.0, Key.fresh()).shape == (0, 3)
    assert lattice.ternary(np.float32([3, -3]), 2.0, Key.fresh()).tolist() == [2.0, -2.0]


def test_bad_arguments_are_refused_by_name():
    for call, message in (
        (
            lambda: lattice.ternary([1.0, np.nan], 1.0, Key.fresh()),
            "value must be a number in every coordinate",
        ),
        (
            lambda: MECHANISMS["ternary"].lattice(np.nan, 1.0, Key.fresh()),
            "value must be a number in every coordinate",
        ),
        (lambda: lattice.ternary(1.0, 0.0, Key.fresh()), "scale must be positive, got 0"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    with pytest.raises(TypeError, match="key must be a key such as Key.fresh()"):
        lattice.ternary(1.0, 1.0, 7)
