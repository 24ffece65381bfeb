"""Factorized lattice noise: against an oracle in fractions, and its privacy by enumeration of a
small mechanism on a coarse grid.

The code treats every number of a message alike and alone, so a message of 30,000 numbers is 30,000
runs of a mechanism of one number: all outcomes at once. Seeds are fixed; false-alarm rates say how
often another seed would fail.
"""

from __future__ import annotations

import copy
import itertools
import math
import pickle
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from hearsay.mechanisms import lattice, rounding
from hearsay.mechanisms.factorized import lattice as factorized_lattice
from hearsay.mechanisms.factorized.kinds import Dense, Factorization, factorization
from hearsay.mechanisms.factorized.lattice import FactorizedNoise
from hearsay.schedules import PowerLaw, Schedule

SECRET = bytes(range(32))
KINDS = [
    ("identity", {}),
    ("tree", {}),
    ("toeplitz", {}),
    ("dense", {}),
    ("banded", {"bands": 3}),
    ("blt", {"buffers": 2}),
]


class Mirrored(Dense):
    """Every other xi has the other sign, so that D_rr is of either sign and never 1."""

    def encoder(self):
        return super().encoder() * self._signs[:, None]

    def increments(self, start, stop):
        return super().increments(start, stop) * self._signs[:stop]

    @property
    def _signs(self):
        return np.where(np.arange(self.rounds) % 2, 1.0, -1.0)


def made(
    kind: type[FactorizedNoise],
    factors: Factorization,
    scale: float,
    size: int,
    secret: bytes = SECRET,
    weights: Schedule | None = None,
):
    with pytest.warns(UserWarning, match="NOT PRIVATE"):
        return kind(factors, secret, scale, size, weights=weights, private=False)


def square(factors: Factorization) -> np.ndarray:
    """D from `row`."""
    out = np.zeros((factors.rounds, factors.rounds))
    for r in range(factors.rounds):
        out[r, r], past, coefficients = factors.row(r)
        out[r, past] = coefficients
    return out


@pytest.mark.parametrize(("name", "options"), KINDS)
@pytest.mark.parametrize("rounds", [3, 8, 13])
def test_rows_are_those_of_the_factorization(name, options, rounds):
    """Unused columns left out, D is lower triangular with no zero on its diagonal,
    and its inverse is C without the rows that go with those columns.
    """
    factors = factorization(name, rounds, **options)
    full = factors.increments(0, rounds)
    used = np.flatnonzero(np.any(full != 0, axis=0))
    d = square(factors)
    np.testing.assert_array_equal(d, full[:, used])
    np.testing.assert_array_equal(d, np.tril(d))
    np.testing.assert_allclose(np.linalg.inv(d), factors.encoder()[used], atol=1e-12)
    diagonal, terms, others = factors.rows()
    below = np.abs(np.tril(d, -1))
    np.testing.assert_array_equal(diagonal, np.diag(d))
    np.testing.assert_array_equal(terms, np.count_nonzero(below, axis=1))
    np.testing.assert_allclose(others, below.sum(axis=1), rtol=1e-12)


@pytest.mark.parametrize("weights", [None, PowerLaw(0.3, -0.7)], ids=["plain", "weighted"])
@pytest.mark.parametrize(("name", "options"), KINDS)
def test_messages_equal_the_oracle(name, options, weights):
    """In fractions from the drawn eta: equal where the exact S is not within 2^-10 steps of an
    edge, and one step off at most elsewhere.
    """
    rng, rounds, size, scale = np.random.default_rng(0), 9, 6, 0.37
    factors = factorization(name, rounds, **options)
    noise, d = made(FactorizedNoise, factors, scale, size, weights=weights), square(factors)
    # A round is multiplied by its weight, and what it took from an earlier one was by that one's.
    each = np.ones(rounds) if weights is None else weights(np.arange(rounds))
    d = each[:, None] * d
    value = rng.normal(size=(rounds, size)) * 3
    for r in range(rounds):
        sent = noise.privatize(value[r], r)
        steps = [Fraction(lattice.grid(abs(d[w, w]) * scale)) for w in range(r + 1)]
        drawn = [noise._draw(w).tolist() for w in range(r + 1)]
        for j in range(size):
            back = (
                sum(
                    Fraction(d[r, w]) * steps[w] * drawn[w][j] / Fraction(d[w, w]) for w in range(r)
                )
                / steps[r]
            )
            exact = round(Fraction(value[r, j]) / steps[r]) + round(back) + drawn[r][j]
            edge = abs(abs(back - math.floor(back)) - Fraction(1, 2))
            assert abs(Fraction(sent[j]) / steps[r] - exact) <= (edge < 2**-10)


def test_restart_and_order_change_nothing(monkeypatch):
    """The same bits from a new object that is asked for the last round first,
    from one that keeps nothing, and on being asked again.
    """
    factors, value = factorization("toeplitz", 7), np.random.default_rng(1).normal(size=(7, 40))
    first = made(FactorizedNoise, factors, 2.0, 40)
    sent = [first.privatize(value[r], r) for r in range(7)]
    again = made(FactorizedNoise, factors, 2.0, 40)
    for r in (6, 2, 2, 0, 5):
        np.testing.assert_array_equal(again.privatize(value[r], r), sent[r])
    monkeypatch.setattr(factorized_lattice, "_KEPT_BYTES", 700)  # room for two rounds
    small = made(FactorizedNoise, factors, 2.0, 40)
    for r in range(7):
        np.testing.assert_array_equal(
            small.privatize(value[r].reshape(5, 8), r), sent[r].reshape(5, 8)
        )
    assert len(small._kept) == 2


def test_other_secrets_plans_and_rounds_draw_other_noise():
    base = factorization("toeplitz", 5)
    drawn = [
        noise._draw(r).tolist()
        for noise in (
            made(FactorizedNoise, base, 2.0, 4),
            made(FactorizedNoise, base, 2.0, 4, bytes(32)),
            made(FactorizedNoise, base, 2.0, 4, SECRET[::-1]),
            made(FactorizedNoise, base, 3.0, 4),
            made(FactorizedNoise, base, 4.0, 4),  # the same scale in grid steps as 2.0
            made(FactorizedNoise, base, 2.0, 5),
            made(FactorizedNoise, factorization("toeplitz", 6), 2.0, 4),
            made(FactorizedNoise, factorization("identity", 5), 2.0, 4),
        )
        for r in range(5)
    ]
    flat = [x for row in drawn for x in row]
    assert len(flat) == len(set(flat)) == 4 * 35 + 5 * 5


def test_a_round_serves_one_value_only():
    noise = made(FactorizedNoise, factorization("tree", 4), 1.0, 3)
    sent = noise.privatize([1.0, 2.0, 3.0], 2)
    np.testing.assert_array_equal(noise.privatize([1.0, 2.0, 3.0], 2), sent)
    with pytest.raises(RuntimeError, match="round 2 has been used for another value"):
        noise.privatize([1.0, 2.0, 3.5], 2)


def covariance_is_wrong(noise: FactorizedNoise) -> bool:
    """Prefix sums of messages without data against V^2 B B', entry by entry within 7 standard
    errors: false-alarm rate 3e-12 an entry.
    """
    factors, size = noise.factorization, noise.size
    sums = np.cumsum([noise.privatize(np.zeros(size), r) for r in range(factors.rounds)], axis=0)
    decoder = factors.decoder()
    expected = noise.scale**2 * decoder @ decoder.T
    spread = np.sqrt((np.outer(np.diag(expected), np.diag(expected)) + expected**2) / size)
    return bool(np.any(np.abs(sums @ sums.T / size - expected) > 7 * spread))


@pytest.mark.parametrize(("name", "options"), KINDS)
def test_prefix_sums_have_the_covariance_of_the_factorization(name, options):
    assert not covariance_is_wrong(
        made(FactorizedNoise, factorization(name, 11, **options), 0.7, 20_000)
    )


def test_a_message_without_data_is_gaussian():
    """Kolmogorov-Smirnov, false-alarm rate 1e-6: round 5 of Toeplitz noise has the standard
    deviation of its row of D.
    """
    factors = factorization("toeplitz", 6)
    sent = made(FactorizedNoise, factors, 1.0, 100_000).privatize(np.zeros(100_000), 5)
    assert stats.kstest(sent / np.linalg.norm(square(factors)[5]), "norm").pvalue > 1e-6
    assert (
        stats.chisquare(np.bincount((sent / lattice.grid(1.0)).astype(np.int64) & 15)).pvalue > 1e-6
    )


class Injected(FactorizedNoise):
    """Noise that is written down, in grid steps: eta[w] for each number."""

    def _draw(self, round):
        return self.eta[round]


class ForgetsDiagonal(Injected):
    """Planted fault: fresh noise of scale V where |D_rr| V was planned."""

    def _deviation(self, round):
        return self.scale


class TakesBackTwice(Injected):
    """Planted fault: earlier noise is taken back twice."""

    def _past(self, round):
        return 2 * super()._past(round)


class SmallNoise(Injected):
    """Planted fault: half the noise that was planned."""

    def _deviation(self, round):
        return super()._deviation(round) / 2


class ForgetsWeight(Injected):
    """Planted fault: noise that is not multiplied by what its round is multiplied by."""

    def _deviation(self, round):
        return super()._deviation(round) / self._weights[round]


class WeighsOnce(Injected):
    """Planted fault: what is taken back is that of rounds without weights."""

    def _past(self, round):
        return super()._past(round) * self._weights[round]


def losses(kind, factors, values, neighbour, scale: float, reach: float, weights=None):
    """(weight, squared shifts over t^2 summed, log-likelihood ratio) of every transcript of a
    mechanism of one number, by enumerating the noise.

    `values` and `neighbour` map (round, messages so far) to G_r, as an adversary would choose it
    who sees the messages.
    """
    here, there = (made(kind, factors, scale, 1, weights=weights) for _ in range(2))
    rounds, energy, ratio = factors.rounds, 0.0, 0.0
    grids = [here._grid(r) for r in range(rounds)]
    deviations = [here._deviation(r) / g for r, g in enumerate(grids)]
    supports = [np.arange(-int(reach * t), int(reach * t) + 1) for t in deviations]
    eta = np.array(list(itertools.product(*supports))).T
    laws = [
        np.exp(-(s**2) / (2 * t**2)) / np.exp(-(s**2) / (2 * t**2)).sum()
        for s, t in zip(supports, deviations, strict=True)
    ]
    weight = math.prod(np.meshgrid(*laws, indexing="ij")).ravel()
    here.size = there.size = eta.shape[1]
    here.eta, there.eta, sent = list(eta), [np.zeros_like(row) for row in eta], []
    for r in range(rounds):
        message = here.privatize(here._weights[r] * values(r, sent), r)
        # With eta' = 0: the point that the neighbour's noise is added to.
        shifted = there.privatize(there._weights[r] * neighbour(r, sent), r)
        there.eta[r] = np.rint((message - shifted) / grids[r]).astype(np.int64)
        there._kept.pop(r, None)
        energy = energy + (there.eta[r] - eta[r]) ** 2 / deviations[r] ** 2
        ratio = ratio + (there.eta[r] ** 2 - eta[r] ** 2) / (2 * deviations[r] ** 2)
        sent.append(message)
    return weight, energy, ratio


def adversary(moved: int | None, by: float):
    """G that depends on all messages so far in a crooked way; the neighbour's is `by` further in
    round `moved` (None: in all), up or down as the first message says.
    """

    def values(r, sent):
        base = sum((np.sin(3 * m) for m in sent), start=np.float64(0.3)) + 0.1 * r
        return np.broadcast_to(base, SIZE[0])

    def neighbour(r, sent):
        sign = np.sign(sent[0] + 0.1) if sent else 1.0
        return values(r, sent) + (by * sign if moved in (None, r) else 0.0)

    return values, neighbour


SIZE = [0]


def worst(
    kind, factors: Factorization, bits: int, monkeypatch, reach: float = 4.0, weights=None
) -> float:
    """Largest sum of squared shifts over its bound, over all transcripts and moved rounds;
    the curve and Renyi divergences are checked on the way.
    """
    monkeypatch.setattr(lattice, "GRID_BITS", bits)
    monkeypatch.setattr(rounding, "GRID_BITS", bits)
    by, scale, found = 0.8, 1.0, 0.0
    probe = made(kind, factors, scale, 1, weights=weights)
    SIZE[0] = math.prod(
        2 * int(reach * probe._deviation(r) / probe._grid(r)) + 1 for r in range(factors.rounds)
    )
    for moved in (*range(factors.rounds), None):
        weight, energy, ratio = losses(kind, factors, *adversary(moved, by), scale, reach, weights)
        column = (
            factors.sensitivity
            if moved is not None
            else factors.sensitivity_repeated(1, factors.rounds)
        )
        rho = (by * column / scale) ** 2 / 2
        bound = rounding.factorized(rho, factors, 1)
        found = max(found, float(energy.max()) / (2 * bound))
        if kind is Injected:
            for order in (1.5, 4.0):  # E_P (P/Q)^(a-1) <= exp(a (a - 1) rho)
                assert math.log(weight @ np.exp((order - 1) * ratio)) <= order * (order - 1) * bound
            for epsilon in (0.0, 0.5, 1.5, 3.0):  # by the curve of continuous noise
                delta = float(weight @ np.maximum(0.0, -np.expm1(epsilon - ratio)))
                mu = math.sqrt(2 * bound)
                curve = stats.norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * stats.norm.cdf(
                    -mu / 2 - epsilon / mu
                )
                assert delta <= curve + rounding.curve_slack(factors.rounds, epsilon) + 1e-12
    return found


@pytest.mark.parametrize(("name", "options"), KINDS)
@pytest.mark.parametrize("bits", [1, 2])
def test_every_transcript_costs_at_most_what_the_account_says(name, options, bits, monkeypatch):
    """Three rounds, grids of a half and a quarter of the scale, where rounding is most of the cost:
    the bound holds surely.
    """
    assert (
        0.1
        < worst(
            Injected,
            factorization(name, 3, **options),
            bits,
            monkeypatch,
            4.0 if bits == 1 else 2.5,
        )
        <= 1
    )


@pytest.mark.parametrize(("name", "options"), KINDS)
def test_rounds_with_weights_cost_no_more(name, options, monkeypatch):
    """Step sizes that fall: the bound of the account knows nothing of them."""
    factors, weights = factorization(name, 3, **options), PowerLaw(0.7, -0.8)
    assert 0.1 < worst(Injected, factors, 1, monkeypatch, 4.0, weights) <= 1


@pytest.mark.parametrize("kind", [ForgetsWeight, WeighsOnce])
def test_noise_without_the_weight_of_its_round_costs_more(kind, monkeypatch):
    factors, weights = factorization("toeplitz", 2), PowerLaw(1.5, -0.4)
    assert 0.85 < worst(Injected, factors, 6, monkeypatch, 1.0, weights) <= 1
    assert worst(kind, factors, 6, monkeypatch, 1.0, weights) > 1.02


def test_the_diagonal_may_be_of_either_sign(monkeypatch):
    assert np.all(np.sign(Mirrored(4).rows()[0]) == [-1, 1, -1, 1])
    assert not covariance_is_wrong(made(FactorizedNoise, Mirrored(8), 0.7, 20_000))
    assert 0.1 < worst(Injected, Mirrored(3), 1, monkeypatch, 4.0) <= 1


@pytest.mark.parametrize(
    ("kind", "name"),
    [(ForgetsDiagonal, "dense"), (TakesBackTwice, "toeplitz"), (SmallNoise, "tree")],
)
def test_planted_faults_cost_more_than_the_account_says(kind, name, monkeypatch):
    """Two rounds on a finer grid, where rounding hides little and the bound is nearly reached,
    with the noise within one deviation.
    """
    factors = factorization(name, 2)
    assert 0.85 < worst(Injected, factors, 6, monkeypatch, reach=1.0) <= 1
    assert worst(kind, factors, 6, monkeypatch, reach=1.0) > 1.02


def test_the_covariance_check_can_fail():
    class Reused(FactorizedNoise):
        def _draw(self, round):
            return super()._draw(0)

    class Independent(FactorizedNoise):
        def _past(self, round):
            return np.zeros(self.size)

    class Added(FactorizedNoise):
        def _past(self, round):
            return -super()._past(round)

    class Undivided(FactorizedNoise):
        def _keep(self, round, fresh):
            return fresh * self._grid(round)

    for kind in (Reused, Independent, Added, Undivided):
        assert covariance_is_wrong(made(kind, factorization("dense", 4), 1.0, 20_000))


def test_saturation():
    """Values and messages stop at 2^61 steps; later rounds take back the noise that was drawn,
    not what is left of it after saturating.
    """
    noise = made(FactorizedNoise, factorization("toeplitz", 3), 1.0, 4)
    plain = made(FactorizedNoise, factorization("toeplitz", 3), 1.0, 4)
    step = lattice.grid(1.0)
    far = noise.privatize([np.inf, -np.inf, 1e300, -1e300], 0)
    assert np.all(np.abs(far) <= lattice.SATURATION * step)
    plain.privatize(np.zeros(4), 0)
    np.testing.assert_array_equal(noise.privatize(np.ones(4), 1), plain.privatize(np.ones(4), 1))
    # Nothing overflows, whatever is drawn.
    wild = made(Injected, factorization("toeplitz", 3), 1.0, 2)
    wild.eta = [np.array([2**62, -(2**62)])] * 3
    for r in range(3):
        assert wild.privatize([np.inf, -np.inf], r).tolist() == [
            lattice.SATURATION * step,
            -lattice.SATURATION * step,
        ]


def test_bad_arguments_are_refused_by_name():
    factors = factorization("toeplitz", 3)
    noise = FactorizedNoise(factors, SECRET, 1.0, 2)
    for call, message in (
        (lambda: FactorizedNoise(factors, b"short", 1.0, 2), "secret must be 32 bytes long, got 5"),
        (lambda: FactorizedNoise(factors, SECRET, 0.0, 2), "scale must be positive, got 0"),
        (
            lambda: FactorizedNoise(factors, SECRET, 1e300, 2),
            "scale must be between 2\\^-900 and 2\\^900",
        ),
        (lambda: FactorizedNoise(factors, SECRET, 1.0, 0), "size must be at least 1, got 0"),
        (
            lambda: noise.privatize([1.0, 2.0], 3),
            "round must be below 3, the rounds that noise is planned for, got 3",
        ),
        (lambda: noise.privatize([1.0, 2.0], -1), "round must be at least 0, got -1"),
        (lambda: noise.privatize([1.0, 2.0, 3.0], 0), "value must be of 2 numbers, got 3"),
        (
            lambda: noise.privatize([1.0, np.nan], 0),
            "value must be a number in every coordinate, got 'NaN'",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    for call, message in (
        (lambda: FactorizedNoise(3, SECRET, 1.0, 2), "factorization must be one of"),
        (lambda: FactorizedNoise(factors, 7, 1.0, 2), "secret must be 32 bytes such as os.urandom"),
        (lambda: copy.deepcopy(noise), "cannot be copied"),
        (lambda: pickle.dumps(noise), "cannot be copied"),
    ):
        with pytest.raises(TypeError, match=message):
            call()
    assert "NOT PRIVATE" in repr(made(FactorizedNoise, factors, 1.0, 2))
    assert repr(noise) == "FactorizedNoise(Toeplitz(rounds=3), scale=1.0, size=2, private)"
