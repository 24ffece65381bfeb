"""Factorizations of the prefix sums: B C = A, closed forms against dense matrices,
brute force over patterns, and golden numbers.
"""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest
from scipy import optimize

from hearsay.mechanisms.factorized import fit as fit
from hearsay.mechanisms.factorized import leading
from hearsay.mechanisms.factorized.kinds import (
    FACTORIZATIONS,
    Banded,
    Blt,
    Dense,
    Factorization,
    Identity,
    Toeplitz,
    Tree,
    factorization,
)

HORIZONS = [1, 2, 3, 4, 7, 64, 100]


def every(rounds: int) -> list[Factorization]:
    """One of each kind, and the other objective of those that are searched for."""
    bands = min(rounds, 5)
    plain = [
        factorization(name, rounds) for name in ("identity", "tree", "toeplitz", "dense", "blt")
    ]
    return [*plain, Banded(rounds, bands), Banded(rounds, bands, "mean"), Blt(rounds, 3, "mean")]


CASES = [case for rounds in HORIZONS for case in every(rounds)]


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_product_is_the_prefix_sum_matrix(case):
    ones = np.tril(np.ones((case.rounds, case.rounds)))
    np.testing.assert_allclose(case.decoder() @ case.encoder(), ones, rtol=0, atol=1e-10)


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_closed_forms_equal_the_dense_computation(case):
    decoder, encoder = case.decoder(), case.encoder()
    assert case.sensitivity == pytest.approx(np.linalg.norm(encoder, axis=0).max(), rel=1e-12)
    assert case.error() == pytest.approx(np.linalg.norm(decoder) / np.sqrt(case.rounds), rel=1e-12)
    assert case.sensitivity_repeated(1, 1) == pytest.approx(case.sensitivity, rel=1e-12)


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_increments_are_the_differences_of_the_rows_of_the_decoder(case):
    rows = np.diff(case.decoder(), axis=0, prepend=0.0)
    for start, stop in {
        (0, case.rounds),
        (0, 1),
        (case.rounds - 1, case.rounds),
        (case.rounds // 3, case.rounds // 2 + 1),
    }:
        part = case.increments(start, stop)
        np.testing.assert_allclose(part, rows[start:stop, : part.shape[1]], atol=1e-12)
        assert not np.any(rows[start:stop, part.shape[1] :])
        assert part.shape[1] == (stop if case.name != "tree" else 2 * stop - stop.bit_count())


@pytest.mark.parametrize("case", [c for c in CASES if c.name != "tree"], ids=repr)
def test_square_encoders_are_lower_triangular(case):
    assert not np.any(np.triu(case.encoder(), 1))
    assert not np.any(np.triu(case.increments(0, case.rounds), 1))


def test_tree_of_four_rounds_is_the_one_printed_in_the_paper():
    """P4, equation (5)."""
    decoder = [
        [1, 0, 0, 0, 0, 0, 0],
        [0, 0, 1, 0, 0, 0, 0],
        [0, 0, 1, 1, 0, 0, 0],
        [0, 0, 0, 0, 0, 0, 1],
    ]
    encoder = [
        [1, 0, 0, 0],
        [0, 1, 0, 0],
        [1, 1, 0, 0],
        [0, 0, 1, 0],
        [0, 0, 0, 1],
        [0, 0, 1, 1],
        [1, 1, 1, 1],
    ]
    np.testing.assert_array_equal(Tree(4).decoder(), decoder)
    np.testing.assert_array_equal(Tree(4).encoder(), encoder)


@pytest.mark.parametrize("rounds", [2, 4, 64, 128])
def test_tree_obeys_the_bounds_of_the_paper(rounds):
    """P4, equation (6), for powers of two; the rows of other horizons have at most log2(R + 1)
    ones (R = 3: two).
    """
    assert np.max(np.sum(Tree(rounds).encoder() ** 2, axis=0)) <= np.log2(rounds) + 1
    assert np.max(np.sum(Tree(rounds).decoder() ** 2, axis=1)) <= np.log2(rounds)
    for other in (rounds - 1, rounds + 1, 3 * rounds // 2):
        assert np.max(np.sum(Tree(other).encoder() ** 2, axis=0)) <= np.log2(other) + 1
        assert np.max(np.sum(Tree(other).decoder() ** 2, axis=1)) <= np.log2(other + 1)


@pytest.mark.parametrize("rounds", [2, 7, 64, 1000, 100_000])
def test_toeplitz_obeys_the_bounds_of_the_paper_once_corrected(rounds):
    """P4, equation (8): true for ||B||_F, but the column norms exceed it: 1.25 against 1.15 for
    R = 2, 3.265 against 3.128 for R = 1000.

    h(r)^2 < 1 / (pi (r + 1/4)), and a sum of a convex function is at most its integral from
    half a step before to half a step after: with ln((4R - 1) / 3) in the place of ln(4R / 5) the
    bound holds.
    """
    case, printed = Toeplitz(rounds), 1 + np.log(4 * rounds / 5) / np.pi
    assert case.error() ** 2 <= printed
    assert printed < case.sensitivity**2 <= 1 + np.log((4 * rounds - 1) / 3) / np.pi


GOLDEN = {"identity": "22.37", "tree": "7.03", "toeplitz": "3.102", "blt": "3.103"}


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_table_for_a_thousand_rounds(name):
    """Sensitivity times root-mean-square error for single participation, to the digits printed;
    the dense one is below.
    """
    case = factorization(name, 1000)
    digits = len(GOLDEN[name].split(".")[1])
    assert f"{case.sensitivity * case.error():.{digits}f}" == GOLDEN[name]


def test_golden_dense_factorization_for_a_thousand_rounds():
    case = Dense(1000)
    assert case.sensitivity == pytest.approx(1.0, abs=1e-12)
    np.testing.assert_allclose(np.linalg.norm(case.encoder(), axis=0), 1.0, rtol=1e-12)
    assert f"{case.sensitivity * case.error():.3f}" == "2.948"
    assert case.error() <= 2.9485
    np.testing.assert_allclose(
        case.decoder() @ case.encoder(), np.tril(np.ones((1000, 1000))), rtol=0, atol=1e-10
    )


def test_dense_beats_every_other_factorization_and_a_direct_search():
    """Against a search over all lower triangular C for R = 5,
    which knows nothing of the fixed point.
    """
    rounds, ones = 5, np.tril(np.ones((5, 5)))

    def cost(entries: np.ndarray) -> float:
        encoder = np.eye(rounds)
        encoder[np.tril_indices(rounds)] = entries
        encoder = encoder / np.linalg.norm(encoder, axis=0)
        return float(np.linalg.norm(ones @ np.linalg.inv(encoder)))

    found = optimize.minimize(
        cost, np.eye(rounds)[np.tril_indices(rounds)] + 0.1, options={"gtol": 1e-8}
    )
    assert Dense(rounds).error() == pytest.approx(found.fun / np.sqrt(rounds), rel=2e-5)
    for horizon in HORIZONS:
        best = Dense(horizon).error() * Dense(horizon).sensitivity
        assert all(best <= case.error() * case.sensitivity * (1 + 2e-5) for case in every(horizon))


def test_searches_find_what_theory_knows():
    """All bands, last round: the square root is optimal among Toeplitz factorizations
    (Dvijotham et al. 2024). More freedom is never worse.
    """
    np.testing.assert_allclose(
        Banded(50, 50).encoder_coefficients(),
        Toeplitz(50).encoder_coefficients(),
        rtol=1e-4,
        atol=1e-4,
    )
    for objective in fit.OBJECTIVES:
        costs = [fitted_cost(Blt(300, n, objective), objective) for n in (1, 2, 3, 4)]
        assert np.all(np.diff(costs) < 0)
        wider = [fitted_cost(Banded(300, n, objective), objective) for n in (1, 2, 8, 64, 300)]
        assert np.all(np.diff(wider) < 0)
        assert wider[-1] <= costs[-1]
    mean = Blt(1000, 4, "mean")
    # jax-privacy 2.0's search ends there too.
    assert mean.sensitivity * mean.error() == pytest.approx(3.0498251, abs=1e-6)


def fitted_cost(case: Banded | Blt, objective: str) -> float:
    column = case.decoder()[:, 0]
    return case.sensitivity * np.sqrt(column**2 @ fit.share_of_rounds(case.rounds, objective))


@pytest.mark.parametrize("objective", fit.OBJECTIVES)
@pytest.mark.parametrize(("rounds", "size"), [(1, 1), (8, 4), (64, 1), (64, 8), (1000, 6)])
def test_searched_coefficients_never_rise(objective, rounds, size):
    """What the formula for repeated use, and the stability of the recursions, rest on."""
    for case in (Banded(rounds, size, objective), Blt(rounds, size, objective)):
        coefficients = case.encoder_coefficients()
        assert coefficients[0] == 1
        assert np.all(coefficients >= 0)
        assert np.all(np.diff(coefficients) <= 0)
    ladder = np.stack(case.poles(), axis=1).ravel()
    assert np.all(np.diff(ladder) <= 0)
    assert 0 < ladder[-1] <= ladder[0] < 1
    assert np.all(case.increment_coefficients()[1:] <= 0)


def patterns(rounds: int, separation: int, uses: int) -> list[tuple[int, ...]]:
    found = []
    for count in range(1, uses + 1):
        for chosen in itertools.combinations(range(rounds), count):
            if all(b - a >= separation for a, b in itertools.pairwise(chosen)):
                found.append(chosen)
    return found


@pytest.mark.parametrize("rounds", [1, 2, 5, 8, 11])
@pytest.mark.parametrize("separation", [1, 2, 3, 4, 10**12])
def test_repeated_sensitivity_against_every_pattern(rounds, separation):
    """Never below the true maximum, and equal to it where the docstrings promise it."""
    for case, uses in itertools.product(every(rounds), (1, 2, 3, 12)):
        gram = np.abs(case.encoder().T @ case.encoder())
        true = max(gram[np.ix_(p, p)].sum() for p in patterns(rounds, separation, uses)) ** 0.5
        claimed = case.sensitivity_repeated(separation, uses)
        assert claimed >= true * (1 - 1e-12)
        tight = case.name in ("identity", "toeplitz", "blt", "banded")
        tight |= case.name == "tree" and separation in (1, 2, 4) and separation * uses <= rounds
        if tight or uses == 1:
            assert claimed == pytest.approx(true, rel=1e-12)
        assert claimed <= true * 1.15


@pytest.mark.parametrize("rounds", [1, 2, 5, 8, 11])
@pytest.mark.parametrize("separation", [1, 2, 3, 4, 10**12])
def test_leading_blocks_against_every_pattern(rounds, separation):
    """Of the dense matrix: the rows that are complete after t rounds, and the first t columns."""
    for case in every(rounds):
        claimed = case.leading(separation, range(rounds + 1))
        assert claimed[0] == 0 and np.all(np.diff(claimed) >= 0)
        # A dense one adds up its rows in the pieces that are asked for: rounding differs.
        apart = 1e-14 if case.name == "dense" else 0
        alone = case.leading(separation, [rounds, 1])
        np.testing.assert_allclose(alone, claimed[[-1, 1]], rtol=apart)
        uses = -(-rounds // min(separation, rounds))
        whole = case.sensitivity_repeated(separation, uses)
        assert claimed[-1] == pytest.approx(whole, rel=1e-12)
        for t in range(1, rounds + 1):
            rows = 2 * t - t.bit_count() if case.name == "tree" else t
            block = case.encoder()[:rows, :t]
            gram = np.abs(block.T @ block)
            true = max(gram[np.ix_(p, p)].sum() for p in patterns(t, separation, t)) ** 0.5
            assert true * (1 - 1e-12) <= claimed[t] <= true * 1.15
            tight = case.name in ("identity", "toeplitz", "blt", "banded") or separation >= t
            tight |= case.name == "tree" and separation in (1, 2, 4) and t % separation == 0
            if tight:
                assert claimed[t] == pytest.approx(true, rel=1e-12)


def test_leading_blocks_of_matrices_with_negative_entries_never_fall():
    """|C|'|C| bounds every pattern there, in whatever directions the uses go."""
    rng = np.random.default_rng(0)
    encoder = np.tril(rng.normal(size=(7, 7)))
    for separation in (1, 2, 7):
        claimed = leading.dense(encoder, separation, np.arange(8))
        assert np.all(np.diff(claimed) >= 0)
        for t in range(1, 8):
            gram = np.abs(encoder[:t, :t].T @ encoder[:t, :t])
            true = max(gram[np.ix_(p, p)].sum() for p in patterns(t, separation, t)) ** 0.5
            assert claimed[t] >= true * (1 - 1e-12)


REPEATED = {
    ("identity", "max"): 63.32,
    ("tree", "max"): 46.69,
    ("toeplitz", "max"): 27.52,
    ("blt", "max"): 27.52,
    ("banded", "max"): 18.12,
    ("banded", "mean"): 17.97,
    ("blt", "mean"): 25.16,
}


@pytest.mark.parametrize(("kind", "objective"), REPEATED)
def test_golden_table_for_four_hundred_rounds_and_twenty_uses(kind, objective):
    """Sensitivity times root-mean-square error, uses 20 rounds apart; all t of the leading block
    lead up to it.
    """
    options = {"bands": 20} if kind == "banded" else {}
    if kind in ("banded", "blt"):
        options["objective"] = objective
    case = factorization(kind, 400, **options)
    found = case.sensitivity_repeated(20, 20) * case.error()
    assert round(found, 2) == REPEATED[kind, objective]
    assert case.leading(20, [400])[0] * case.error() == pytest.approx(found, rel=1e-12)


def test_golden_leading_blocks():
    """All rows of the first t columns would be 1.724, 2.950 and 6.188."""
    found = Toeplitz(400).leading(20, [1, 21, 100])
    np.testing.assert_allclose(found, [1.000, 1.812, 4.818], atol=5e-4)


def test_leading_blocks_of_long_horizons_need_no_matrix():
    began = time.perf_counter()
    for kind in (Identity, Toeplitz, Tree):
        curve = kind(100_000).leading(1000, np.arange(0, 100_001, 1000))
        assert np.all(np.diff(curve) > 0)
    assert time.perf_counter() - began < 1.0


@pytest.mark.parametrize("separation", [1, 2, 5])
@pytest.mark.parametrize("uses", [1, 2, 4])
def test_heaviest_pattern_against_every_pattern(separation, uses):
    values = np.random.default_rng(0).normal(size=(9, 4))
    best = [
        max(0.0, *(values[list(p), c].sum() for p in patterns(9, separation, uses)))
        for c in range(4)
    ]
    np.testing.assert_allclose(fit.heaviest(values, separation, uses), best, rtol=1e-12)
    all_of_them = fit.heaviest(values, separation, 9)
    np.testing.assert_array_equal(fit.heaviest_of_all(values, separation), all_of_them)


def test_long_horizons_need_no_matrix():
    """R = 100,000: an R x R matrix would take 80 GB."""
    began = time.perf_counter()
    case = Toeplitz(100_000)
    product = case.sensitivity * case.error()
    assert time.perf_counter() - began < 1.0
    assert product == pytest.approx(4.569, abs=1e-3)
    assert case.sensitivity_repeated(1000, 100) > case.sensitivity
    assert Identity(100_000).error() == pytest.approx(np.sqrt(50_000.5))
    assert Tree(100_000).sensitivity_repeated(64, 10) >= Tree(100_000).sensitivity
    assert Tree(100_000).increments(99_999, 100_000).shape == (
        1,
        2 * 100_000 - (100_000).bit_count(),
    )


def test_bad_input_is_refused_by_name():
    for name in FACTORIZATIONS:
        options = {"bands": 1} if name == "banded" else {}
        with pytest.raises(ValueError, match="rounds must be at least 1, got 0"):
            factorization(name, 0, **options)
        with pytest.raises(TypeError, match="rounds must be a whole number"):
            factorization(name, 2.5, **options)
    with pytest.raises(ValueError, match="factorization must be one of .* did you mean 'toeplitz'"):
        factorization("toepliz", 10)
    with pytest.raises(ValueError, match="tree factorization has no option 'bands'; it has none"):
        factorization("tree", 10, bands=3)
    with pytest.raises(ValueError, match="bands must be at most the 10 rounds, got 11"):
        Banded(10, 11)
    with pytest.raises(ValueError, match="buffers must be at least 1"):
        Blt(10, 0)
    with pytest.raises(ValueError, match="objective must be one of max, mean"):
        Blt(10, 2, "median")


@pytest.mark.parametrize("case", every(7), ids=repr)
def test_rounds_past_the_horizon_are_refused(case):
    for start, stop in ((0, 8), (7, 8), (3, 3), (5, 2)):
        with pytest.raises(ValueError, match="none past the horizon of 7"):
            case.increments(start, stop)
    with pytest.raises(ValueError, match="counts must be at most the 7 rounds, got 8"):
        case.leading(2, [3, 8])
    with pytest.raises(ValueError, match="separation must be at least 1"):
        case.sensitivity_repeated(0, 1)
    with pytest.raises(ValueError, match="participations must be at least 1"):
        case.sensitivity_repeated(1, 0)


def test_shared_results_are_read_only():
    with pytest.raises(ValueError, match="read-only"):
        Dense(4).encoder()[0, 0] = 2.0
