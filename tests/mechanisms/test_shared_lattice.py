"""Noise that two agents share: its law worked out from tables and decisions (not sampled), then
sampled; the same integers everywhere; sums that overflow.

Keys are fixed; false-alarm rates say how often other keys would fail.
"""

from __future__ import annotations

import hashlib
import math

import mpmath
import numpy as np
import pytest
from scipy import stats

from hearsay.mechanisms import lattice, shared_lattice
from hearsay.mechanisms.lattice import SATURATION, Key
from hearsay.mechanisms.shared_lattice import common_grid, noised_shared, shared_noise

MORE = bytes(range(32))
SCALES = [2.0**36, 2.0**36 * 1.03, 2.0**37 * 1.7, 2.0**48]
WIDTHS = range(32, 66, 2)


def key(number: int) -> bytes:
    return hashlib.sha256(number.to_bytes(8, "little")).digest()


def simulated(*seed: int) -> Key:
    with pytest.warns(UserWarning, match="NOT PRIVATE"):
        return Key.simulated(*seed)


@pytest.mark.parametrize("width", WIDTHS)
def test_a_table_chooses_strips_with_exactly_their_weights(width):
    table = shared_lattice._table(width)
    found, capacity = [0] * 1024, 2**54
    for cell, (threshold, alias) in enumerate(zip(table.threshold, table.alias, strict=True)):
        found[cell] += int(threshold)
        found[int(alias)] += capacity - int(threshold)
    assert found == [*table.weights[::-1], *table.weights] and sum(found) == 2**64
    with mpmath.workprec(200):
        for j, weight in enumerate(table.weights[:-1]):
            assert table.height * mpmath.exp(-mpmath.mpf(j * j) / (2 * width**2)) <= weight
        # Every piece of a tail of 16 strips has half the weight of the one before it.
        for piece in range(100):
            edge = mpmath.exp(-mpmath.mpf((511 + 16 * piece) ** 2) / (2 * width**2))
            assert 16 * table.height * edge <= mpmath.mpf(table.weights[-1]) / 2 ** (piece + 1)
    # What is left over and makes tails heavier than they need be.
    assert table.weights[-1] < 2**64 * 1e-12


def kept(law, strip: int, place: int) -> bool:
    """Whether the proposal from these two words is kept."""
    words = np.array([[strip << 54, place]], np.uint64)
    return len(law.keep(words, 0, MORE)) == 1


@pytest.mark.parametrize("scale", SCALES)
def test_a_proposal_is_kept_with_exactly_its_chance(scale):
    """U < A exp(-x^2 / 2 t^2) / W: the decision is monotone in the first bits of U, and turns where
    mpmath says; on the edge it goes by the further bits.
    """
    law = shared_lattice._Law(scale)
    bits, part = 64 - law.low, 2**law.low
    own = np.flatnonzero(law.table.threshold > 0)
    for strip in [own[own > 511][0], own[own > 520][0], 575, 491, own[own < 511][-1]]:
        assert law.table.threshold[strip] > 0
        for low in (0, part // 3, part - 1):
            x = (int(strip) - 512) * part + low
            weight = law.table.weights[strip - 512 if strip > 511 else 511 - strip]
            with mpmath.workprec(300):
                exact = mpmath.exp(-((x / mpmath.mpf(scale)) ** 2) / 2) * law.table.height / weight
                edge, fine = (int(mpmath.floor(exact * 2**b)) for b in (bits, bits + 64))
            assert kept(law, strip, ((edge - 1) << law.low) + low)
            if edge + 1 < 2**bits:
                assert not kept(law, strip, ((edge + 1) << law.low) + low)
            if edge < 2**bits:
                number = lattice.Uniform(edge, bits, MORE, 0)
                number.extend()
                assert kept(law, strip, (edge << law.low) + low) == (number.known < fine)


@pytest.mark.parametrize("upper", [True, False])
def test_tails_have_their_law(upper):
    """2,000 proposals beyond 511 strips, where no call ever comes: how many are kept, and how far
    out they lie. False alarms: 1 in 10,000 each.
    """
    scale = 2.0**37 * (1 - 2.0**-52)
    law = shared_lattice._Law(scale)
    found = [law.settled(1023 if upper else 0, 0, i, MORE) for i in range(2000)]
    sizes = np.array([x if upper else -1 - x for x in found if x is not None], float)
    start, part = 511 * 2.0**law.low, 2.0**law.low
    assert sizes.min() >= start
    tail = scale * math.sqrt(2 * math.pi) * stats.norm.sf(start / scale)
    chance = law.table.height * tail / part / law.table.weights[-1]
    assert stats.binomtest(len(sizes), len(found), chance).pvalue > 1e-4
    share = stats.norm.sf(sizes / scale) / stats.norm.sf(start / scale)
    assert stats.kstest(share, "uniform").pvalue > 1e-4


@pytest.mark.parametrize("scale", [2.0**36 * 1.03, 2.0**40 * 1.99])
def test_the_law_of_a_million_numbers(scale):
    """False alarms: 1 in 10,000 for each of the five tests."""
    found = shared_noise(key(1), scale, 10**6)
    units = found / scale
    edges = stats.norm.ppf(np.linspace(0, 1, 201))
    counts = np.histogram(units, edges)[0]
    assert stats.chisquare(counts).pvalue > 1e-4
    total = float(np.sum(units**2))
    assert min(stats.chi2.cdf(total, 10**6), stats.chi2.sf(total, 10**6)) > 0.5e-4
    assert abs(units.mean()) * 1e3 < stats.norm.isf(0.5e-4)
    low = np.bincount(found & 1023, minlength=1024)
    assert stats.chisquare(low).pvalue > 1e-4
    assert abs(np.mean(units[1:] * units[:-1])) * 1e3 < stats.norm.isf(0.5e-4)


def test_most_proposals_are_kept():
    words = np.random.default_rng(0).integers(0, 2**64, (10**5, 2), np.uint64)
    for scale in (2.0**36 * 1.0001, 2.0**36 * 1.5):
        assert len(shared_lattice._Law(scale).keep(words, 0, MORE)) > 0.925 * 10**5


# Of 100,000 numbers as little-endian 64-bit integers. Whoever changes them breaks runs between
# agents of different versions, whose noise would no longer cancel.
GOLDEN = {
    2.0**36: "f19e683cfa2be85efebb5bf3ba6473487129612dddc80658adc9feed97bb376a",
    2.0**36 * 1.37: "cb5acca45d93e23b72efa8677524b66decea0e8058181b6e0c8eb322afde108c",
    2.0**44: "08e40210faebd98271d610c246f839cfc452a01d6a7a4129b9ee5eaf774d0856",
}


def digest(scale: float) -> str:
    return hashlib.sha256(shared_noise(key(7), scale, 10**5).astype("<i8").tobytes()).hexdigest()


@pytest.mark.parametrize("scale", GOLDEN)
def test_the_same_integers_on_every_machine(scale):
    assert digest(scale) == GOLDEN[scale]


@pytest.mark.parametrize("off", [-(2.0**-46), 2.0**-46])
def test_another_exponential_gives_the_same_integers(off, monkeypatch):
    """The last bits of np.exp differ between machines; these are off by a hundred times more."""
    exp = np.exp
    monkeypatch.setattr(np, "exp", lambda x, out: np.multiply(exp(x, out=out), 1 + off, out=out))
    assert digest(2.0**36) == GOLDEN[2.0**36]


def test_numbers_do_not_depend_on_how_many_are_drawn(monkeypatch):
    many = shared_noise(key(2), SCALES[1], 50_000)
    np.testing.assert_array_equal(shared_noise(key(2), SCALES[1], 1000), many[:1000])
    assert len(shared_noise(key(2), SCALES[1], 0)) == 0
    monkeypatch.setattr(shared_lattice, "_CHUNK", 999)
    np.testing.assert_array_equal(shared_noise(key(2), SCALES[1], 50_000), many)
    # Another key has nothing to do with it. False alarms: 1 in 10,000.
    other = shared_noise(key(3), SCALES[1], 50_000)
    assert abs(np.corrcoef(many, other)[0, 1]) * 50_000**0.5 < stats.norm.isf(0.5e-4)


def test_what_a_key_and_a_scale_must_be():
    for bad in (b"short", bytearray(32), "x" * 32):
        with pytest.raises(ValueError, match="key must be 32 bytes, got"):
            shared_noise(bad, 2.0**36, 1)
    for scale in (2.0**36 * 0.999, 2.0**48 * 1.01):
        with pytest.raises(ValueError, match=r"scale must be between 2\^36 and 2\^48 steps"):
            shared_noise(key(0), scale, 1)
    with pytest.raises(ValueError, match=r"count must be at most 2\^32"):
        shared_noise(key(0), 2.0**36, 2**33)


# Sums.


def test_two_ends_cancel_to_the_last_bit():
    value, scales = np.linspace(-3, 3, 1000), (0.3, 0.5)
    grid = common_grid([*scales, 0.9])
    ends = []
    for agent, scale in enumerate(scales):
        alone = noised_shared(value, scale, grid, simulated(agent), [])
        sign = 1 if agent == 0 else -1
        ends.append(
            noised_shared(value, scale, grid, simulated(agent), [(sign, 0.9, key(5))]) - alone
        )
    np.testing.assert_array_equal(ends[0], -ends[1])
    np.testing.assert_array_equal(ends[0], shared_noise(key(5), 0.9 / grid, 1000) * grid)
    assert np.std(ends[0]) == pytest.approx(0.9, rel=0.1)


def test_without_pairs_it_is_the_noise_of_one_agent():
    value, scale = np.linspace(-3, 3, 100).reshape(4, 25), 0.7
    alone = lattice.noised(value, scale, lattice.discrete_gaussian, simulated(3))
    found = noised_shared(value, scale, common_grid([scale]), simulated(3), [])
    np.testing.assert_array_equal(found, alone)


def test_sums_are_exact_whatever_overflows_on_the_way(monkeypatch):
    """Terms that leave 64 bits together, and come back: only the exact sum saturates."""
    huge = {key(i): np.array([2**62 + i, -(2**62), 2**61 - 5, 5 * i, -(2**63)]) for i in range(6)}
    monkeypatch.setattr(shared_lattice, "shared_noise", lambda secret, scale, count: huge[secret])
    monkeypatch.setattr(
        lattice, "discrete_gaussian", lambda key, scale, count: np.array([9, 8, 7, 6, 5])
    )
    value = np.array([1.0, -2.0, 3.0, -(2.0**70), 2.0**70])
    signs = [1, 1, -1, 1, -1, -1]
    terms = [(sign, 2.0**40, secret) for sign, secret in zip(signs, huge, strict=True)]
    found = noised_shared(value, 2.0**36, 1.0, Key.fresh(), terms)
    rounded = [1, -2, 3, -SATURATION, SATURATION]
    for i, own in enumerate([9, 8, 7, 6, 5]):
        exact = rounded[i] + own + sum(s * int(huge[secret][i]) for s, _, secret in terms)
        wrapped = (exact + 2**63) % 2**64 - 2**63
        assert found[i] == float(np.clip(wrapped, -SATURATION, SATURATION))
    np.testing.assert_array_equal(
        noised_shared(value, 2.0**36, 1.0, Key.fresh(), terms[::-1]), found
    )


def test_a_sum_saturates_once():
    """Values beyond 2^61 steps, and noise on top."""
    found = noised_shared([1e300, -1e300], 1.0, common_grid([1.0]), Key.fresh(), [])
    assert abs(found).tolist() <= [2.0**25] * 2 and found[0] > 2.0**24.99 > -(2.0**24.99) > found[1]


def test_what_scales_and_signs_must_be():
    with pytest.raises(ValueError, match=r"own_scale must be between 2\^36 and 2\^44 steps"):
        noised_shared([0.0], 1.0, 2.0**-35, Key.fresh(), [])
    with pytest.raises(ValueError, match="closer together"):
        noised_shared([0.0], 1.0, 2.0**-45, Key.fresh(), [])
    with pytest.raises(ValueError, match=r"scale must be between 2\^36 and 2\^48 steps"):
        noised_shared([0.0], 1.0, 2.0**-36, Key.fresh(), [(1, 0.5, key(0))])
    with pytest.raises(ValueError, match="sign must be 1 or -1, got 2"):
        noised_shared([0.0], 1.0, 2.0**-36, Key.fresh(), [(2, 1.0, key(0))])
    with pytest.raises(ValueError, match="scales must be at least one noise scale"):
        common_grid([])
    assert common_grid([3.0, 1.5, 40.0]) == 2.0**-36 == lattice.grid(1.5)


def test_wrapping_is_that_of_int64():
    for number in (0, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 3 * 2**64 + 17):
        expected = int.from_bytes((number % 2**64).to_bytes(8, "little"), "little", signed=False)
        assert shared_lattice._wrapped(number) == int(np.uint64(expected).view(np.int64))
