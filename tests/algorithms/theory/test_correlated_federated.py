"""Paper P4's lemma, theorem and corollaries in numbers:
against hand computations and against a measured regret.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

import hearsay as hs
from hearsay.algorithms.theory import correlated_federated as theory
from hearsay.simulation.regret import comparators, online_regret

FACTS = {
    "smoothness": 2.0,
    "strength": 0.5,
    "gradient_bound": 3.0,
    "rate": 0.05,
    "server": 2.0,
    "rounds": 100,
    "dimension": 4,
    "variance": 0.1,
    "variation": 7.0,
    "distance": 1.5,
}
GRAPH = hs.graphs.complete(4)


def findings(algorithm, problem):
    found = theory.correlated_federated(algorithm, GRAPH, problem)
    assert len({f.name for f in found}) == len(found)
    return {f.name: f for f in found}


def small(**options):
    return hs.problems.synthetic(
        **{
            "agents": 4,
            "records": 300,
            "dimension": 4,
            "feature_bound": 2.0,
            "radius": 5.0,
            **options,
        }
    )


def test_lemma_iv_9_by_hand():
    """L = 2, mu = 0.5, B_g = 3, r = 0.05, eta_g = 2, R = 100, |B|^2 = 250, d = 4, V^2 = 0.1,
    C_R = 7, alpha = 0.9, sigma = 0.2.
    """
    terms = theory.regret_bound(**FACTS, frobenius=250.0, alpha=0.9, regularity=0.2)
    assert terms.start == pytest.approx(2.25 / (0.9 * 100 * 0.05))
    assert terms.drift == pytest.approx((0.05 + 0.9 / 24 + 2) * 8 * (0.05**2 / 4) * 9 / 0.9)
    assert terms.noise == pytest.approx(48 * 1.2 * 0.05**2 / (0.81 * 100) * 250 * 4 * 0.1)
    assert terms.environment == pytest.approx((24 + 0.45) * 7 / (0.81 * 100))
    assert terms.total == pytest.approx(sum(terms))


def test_equation_39_by_hand():
    terms = theory.independent_bound(**FACTS)
    assert terms.drift == pytest.approx((0.05 + 2) * 8 * (0.05**2 / 4) * 9)
    assert terms.noise == pytest.approx(0.05 * 4 * 0.1)


def test_a_step_beyond_the_lemma_is_refused_and_no_ridge_gives_no_bound():
    with pytest.raises(ValueError, match=r"rate must be .* 0.0625 .*got 0.07"):
        theory.independent_bound(**{**FACTS, "rate": 0.07})
    assert math.isinf(theory.independent_bound(**{**FACTS, "strength": 0.0}).total)


def test_theorem_iv_10_is_equation_32_at_its_step():
    """(10): (ln R)^(2/3) R^(-2/3) (1 + price) + B_g^2 / (eta_g^2 R^(2/3)
    (ln R)^(4/3)) + C_R / R.
    """
    rounds, price, server, bound = 1000, 0.7, 2.0, 3.0
    terms = theory.correlated_rate(rounds, theory.rate_step(rounds), server, bound, price, 5.0)
    order = (math.log(rounds) / rounds) ** (2 / 3)
    assert terms.start == pytest.approx(order)
    assert terms.noise == pytest.approx(order * price)
    assert terms.drift == pytest.approx(
        bound**2 / (server**2 * rounds ** (2 / 3) * math.log(rounds) ** (4 / 3))
    )
    assert terms.environment == pytest.approx(5e-3)


def test_correlated_noise_is_better_exactly_below_one_over_log_squared():
    rounds = 1000
    limit = 1 / math.log(rounds) ** 2
    for rate in (0.9 * limit, 1.1 * limit):
        both = [
            f(rounds, rate, 1.0, 1.0, 2.0, 0.0).noise
            for f in (theory.correlated_rate, theory.independent_rate)
        ]
        assert (both[0] < both[1]) == (rate < limit)


def test_corollary_iv_12():
    terms = theory.static_rate(1000, 1.0, 2.0, 0.5, 10.0)
    rate = theory.static_step(1000)
    assert terms.start == pytest.approx(1 / (rate * 1000))
    assert terms.drift == pytest.approx(rate**2 * 4)
    assert terms.noise == pytest.approx(rate * math.log(1000) * 0.5)
    assert terms.environment == pytest.approx(rate * math.log(1000) * 10 / 1000)


def test_price_of_privacy():
    assert theory.private_variance(10.0, 100, 20, 5, 2.0, 1e-3) == pytest.approx(
        1e4 * math.log(1000) / (20 * 25 * 4)
    )


@pytest.mark.parametrize("clip", [None, 0.5])
def test_gradients_stay_below_their_bound(clip):
    problem = small(ridge=0.3, clip=clip)
    rng, bound = np.random.default_rng(0), theory.gradient_bound(problem)
    assert bound == pytest.approx((2.0 if clip is None else 0.5) + 0.3 * 5.0, rel=1e-4)
    for _ in range(200):
        x, a = rng.normal(size=(2, 4))
        x, a = 5 * x / np.linalg.norm(x), 2 * a / np.linalg.norm(a)
        residual = problem.loss.clipped_residual(
            np.atleast_1d(a @ x), rng.integers(0, 2, 1).astype(float), a[None]
        )
        assert np.linalg.norm(residual * a + 0.3 * x) <= bound * (1 + 1e-12)


@pytest.mark.parametrize("kind", ["toeplitz", "tree", "identity"])
def test_the_measured_regret_stays_below_the_bound(kind):
    """With a ridge every constant is known; the models must not have touched the ball."""
    problem, rounds = small(ridge=0.2), 60
    rate = 1 / (8 * problem.loss.curvature[1] * 5)
    algorithm = hs.correlated_federated(step=rate, horizon=rounds, factorization=kind, noise=1.0)
    against = comparators(problem, rounds, 5)
    found = online_regret(algorithm, problem, GRAPH, rounds, 10, against=against)
    assert np.linalg.norm(found.models, axis=2).max() < 5.0
    bound = theory.bound_of(
        algorithm, problem, against.variation, float(np.linalg.norm(against.fixed.params))
    )
    assert 0 < found.averaged()[-1].mean() + found.gap < bound.total < 100
    louder = theory.bound_of(
        hs.correlated_federated(step=rate, horizon=rounds, factorization=kind, noise=2.0),
        problem,
        0.0,
        0.0,
    )
    assert louder.noise == pytest.approx(4 * bound.noise)


def test_findings_without_a_ridge_say_what_is_missing():
    problem = small()
    found = findings(hs.correlated_federated(step=0.01, horizon=100, noise=1.0), problem)
    assert not found["Assumption IV.4, mu"].holds
    assert not found["Lemma IV.9 and Theorem IV.10"].holds
    assert "Assumption IV.4, mu" in found["Lemma IV.9 and Theorem IV.10"].detail
    assert found["Lemma IV.9, step"].margin == pytest.approx(1 / 8 - 0.05)


def test_findings_with_a_ridge_give_the_known_terms():
    problem = small(ridge=0.2)
    algorithm = hs.correlated_federated(step=0.01, horizon=100, noise=1.0)
    found = findings(algorithm, problem)
    assert found["Lemma IV.9 and Theorem IV.10"].holds
    known = theory.bound_of(algorithm, problem, 0.0, 0.0)
    assert f"{known.noise:.3g} (noise)" in found["Lemma IV.9 and Theorem IV.10"].detail
    assert "not known before the data" in found["Lemma IV.9 and Theorem IV.10"].detail
    assert found["Corollary IV.11, correlated noise is better"].margin == pytest.approx(
        1 / math.log(100) ** 2 - 0.05
    )
    assert found["Corollary IV.12, step"].margin == pytest.approx(
        1 / (10 * 1.2 * math.log(100)) - 0.05
    )
    assert found["Corollary IV.12, strong convexity"].holds


def test_long_local_steps_and_active_clips_are_said():
    """L = 1 without a ridge: eta = 3 stretches by 2 per local step;
    a clip below the feature bound acts.
    """
    found = findings(hs.correlated_federated(step=3.0, horizon=10, noise=1.0), small())
    assert found["Lemma IV.8, sensitivity"].margin == pytest.approx(-1.0)
    assert not found["Lemma IV.8, sensitivity"].holds
    assert "Assumption IV.2, clipping" not in found
    clipped = findings(hs.correlated_federated(step=0.01, horizon=10, noise=1.0), small(clip=0.5))
    assert not clipped["Assumption IV.2, clipping"].holds


def test_independent_noise_has_its_own_corollary_and_no_noise_none():
    problem = small(ridge=0.2)
    assert "Corollary IV.11, bound (39)" in findings(
        hs.federated_independent(step=0.01, horizon=10), problem
    )
    assert theory.correlated_federated(hs.federated_noiseless(), GRAPH, problem) == []
