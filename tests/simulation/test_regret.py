"""Regret: against a plain loop over rounds and learners,
and minima against what is known about them.
"""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize

import hearsay as hs
from hearsay.problems.losses.linear import HalfSquared, Logistic
from hearsay.problems.sampling.samplers import Batch
from hearsay.simulation import regret
from hearsay.simulation.regret import comparators, minima, online_regret
from hearsay.simulation.session import Session

TAU, ROUNDS = 3, 6
PROBLEM = hs.problems.synthetic(
    agents=4, records=TAU * ROUNDS, dimension=3, feature_bound=2.0, radius=4.0
)
GRAPH = hs.graphs.complete(4)
FRESH = hs.Fresh(float(TAU))


def algorithm(kind="toeplitz", noise=0.5, rounds=ROUNDS, **options):
    return hs.correlated_federated(
        step=0.2, horizon=rounds, factorization=kind, noise=noise, sampling=FRESH, **options
    )


def logistic(x, a, b):
    return np.log1p(np.exp(-(2 * b - 1) * (a @ x)))


def test_regret_of_a_noiseless_run_by_hand():
    """The algorithm, the losses and both regrets written out with loops."""
    problem = replace(PROBLEM, loss=replace(PROBLEM.loss, ridge=0.1))
    found = online_regret(
        hs.federated_noiseless(step=0.2, horizon=ROUNDS, sampling=FRESH), problem, GRAPH, ROUNDS, 2
    )
    x, losses = np.zeros(3), []

    def value(x, records):
        return np.mean([logistic(x, a, b) for a, b in records]) + 0.05 * x @ x

    def best(records):
        return optimize.minimize(value, np.zeros(3), args=(records,), tol=1e-12)

    everything, least = [], []
    for r in range(ROUNDS):
        records, sent = [], []
        for i in range(4):
            z = x.copy()
            for t in range(TAU):
                a, b = problem.features[i, r * TAU + t], problem.labels[i, r * TAU + t]
                records.append((a, b))
                z = z - 0.2 * ((1 / (1 + np.exp(-a @ z)) - b) * a + 0.1 * z)
            sent.append((x - z) / (0.2 * TAU))
        losses.append(value(x, records))
        least.append(best(records).fun)
        everything.append(records)
        x = x - 0.2 * TAU * np.mean(sent, axis=0)
    fixed = best([record for records in everything for record in records]).x
    static = [
        loss - value(fixed, records) for loss, records in zip(losses, everything, strict=True)
    ]
    dynamic = np.array(losses) - least
    for seed in range(2):
        np.testing.assert_allclose(found.losses[:, seed], losses, rtol=1e-10)
        np.testing.assert_allclose(
            found.dynamic[:, seed], TAU * np.cumsum(dynamic), rtol=1e-5, atol=1e-5
        )
        np.testing.assert_allclose(
            found.static[:, seed], TAU * np.cumsum(static), rtol=1e-5, atol=1e-5
        )
        np.testing.assert_allclose(
            found.averaged()[-1, seed], np.mean(dynamic), rtol=1e-5, atol=1e-6
        )
    hits = (problem.test_features @ found.models[2, 0] > 0) == problem.test_labels
    assert found.accuracy[2, 0] == hits.mean()
    assert 0 <= found.gap < 1e-6


@pytest.mark.parametrize("kind", [pytest.param("tree", marks=pytest.mark.slow), "toeplitz"])
def test_the_models_are_those_of_a_session(kind, monkeypatch):
    """Whatever the chunk: noise is keyed by the round."""
    monkeypatch.setattr(regret, "_CHUNK", 4)
    found = regret.released(algorithm(kind), PROBLEM, GRAPH, ROUNDS, [5, 0])
    session = Session(algorithm(kind), PROBLEM, GRAPH, [5, 0], False, False, 0.0, None)
    for r in range(ROUNDS):
        models = np.asarray(session.models)
        np.testing.assert_allclose(found[r], models[:, 0], atol=1e-12)
        np.testing.assert_allclose(models, models[:, :1].repeat(4, axis=1), atol=1e-12)
        session.advance(1)


def test_minima_over_a_ball_match_a_general_solver():
    rng = np.random.default_rng(1)
    features, labels = rng.normal(size=(5, 12, 3)), rng.integers(0, 2, (5, 12)).astype(float)
    loss = Logistic(10.0, 0.02)
    for radius in (0.3, 2.0, 100.0):
        found = minima(loss, hs.problems.Ball(radius), features, labels, tolerance=1e-9)
        assert found.gap.max() <= 1e-9
        for k in range(5):

            def value(x, k=k):
                return loss.values(features[k] @ x, labels[k]).mean() + 0.01 * x @ x

            inside = {"type": "ineq", "fun": lambda x, radius=radius: radius**2 - x @ x}
            other = optimize.minimize(
                value, np.zeros(3), constraints=[inside], method="SLSQP", options={"ftol": 1e-14}
            )
            assert found.values[k] <= value(found.params[k]) + 1e-12
            assert abs(found.values[k] - other.fun) < 1e-7
            assert np.linalg.norm(found.params[k]) <= radius * (1 + 1e-12)


def test_the_minimum_of_separable_records_in_a_large_ball_is_as_good_as_zero():
    """Infimum 0, reached nowhere:
    in a small ball one record gives log(1 + exp(-radius |a|)) exactly.
    """
    features, labels = np.array([[[3.0, 4.0]]]), np.array([[1.0]])
    small = minima(Logistic(5.0), hs.problems.Ball(0.4), features, labels, tolerance=1e-10)
    assert small.values[0] == pytest.approx(np.log1p(np.exp(-2.0)), abs=1e-10)
    np.testing.assert_allclose(small.params[0], [0.24, 0.32], atol=1e-6)
    large = minima(Logistic(5.0), hs.problems.Ball(1e5), features, labels)
    assert 0 <= large.values[0] <= 1e-6
    assert large.gap[0] <= 1e-6


def test_minima_of_squares_are_least_squares():
    rng = np.random.default_rng(2)
    features, labels = rng.normal(size=(4, 9, 3)), rng.normal(size=(4, 9))
    found = minima(
        HalfSquared(10.0, 0.0, 10.0), hs.problems.Ball(50.0), features, labels, tolerance=1e-10
    )
    for k in range(4):
        exact = np.linalg.lstsq(features[k], labels[k], rcond=None)[0]
        np.testing.assert_allclose(found.params[k], exact, atol=1e-4)


@pytest.mark.slow
def test_correlated_noise_has_less_regret_than_independent_noise():
    """P4's order at the same step and budget, over ten seeds:
    MF (ii), (iii) <= MF (i) <= independent. The seeds are fixed, so is the outcome.
    """
    rounds = 128
    problem, graph = (
        hs.problems.synthetic(agents=5, records=5 * rounds, dimension=20, feature_bound=5.0),
        hs.graphs.complete(5),
    )
    against = comparators(problem, rounds, 5)
    found = {}
    for kind in ("dense", "toeplitz", "tree", "identity"):
        option = hs.correlated_federated(step=0.004, horizon=rounds, factorization=kind)
        ready = hs.calibrate(option, problem, graph, rounds, 2.0, delta=1e-3)
        found[kind] = (
            online_regret(ready, problem, graph, rounds, 10, against=against).averaged()[-1].mean()
        )
    noiseless = hs.federated_noiseless(step=0.004, horizon=rounds)
    found["none"] = (
        online_regret(noiseless, problem, graph, rounds, 1, against=against).averaged()[-1].mean()
    )
    assert max(found["dense"], found["toeplitz"]) < found["tree"] < found["identity"], found
    assert found["none"] < min(found["dense"], found["toeplitz"]), found


def furthest(problem, rate, tau, tries=100):
    """The largest change of a round's update over tries of one replaced record,
    at a public start.
    """
    rng, loss, worst = np.random.default_rng(0), problem.loss, 0.0

    @jax.jit
    def update(params, features, labels):
        batch = Batch(features, labels, jnp.full(tau, 1 / tau), loss)
        return (params - batch.descended(params, rate)) / (rate * tau)

    for _ in range(tries):
        # All along one direction: there the steps after the replaced record stretch most.
        direction = rng.normal(size=2)
        direction /= np.linalg.norm(direction)
        features = loss.feature_bound * direction * rng.choice([-1.0, 1.0], (tau, 1))
        labels, params = loss.label_bound * rng.choice([-1.0, 1.0], tau), rng.normal(size=2)
        # The last record moves the update by its own change; an earlier one by what the later
        # steps make of it.
        place, other = rng.choice([0, tau - 1]), labels.copy()
        other[place] *= -1
        gap = update(params, features, labels) - update(params, features, other)
        worst = max(worst, float(np.linalg.norm(gap)))
    return worst


@pytest.mark.parametrize(("times", "exceeds"), [(0.5, False), (2.0, False), (3.0, True)])
def test_steps_above_two_over_l_break_the_papers_sensitivity(times, exceeds):
    """eta L = 0.5, 2, 3 with tau = 5: the certificate covers the measured change always, 2
    B_g / tau only up to eta L = 2.

    At eta L = 3 four later steps double a difference each.
    """
    problem, graph = (
        hs.problems.ridge(agents=2, records=10, dimension=2, ridge=0.0, radius=1.0),
        hs.graphs.complete(2),
    )
    rate = times / problem.loss.curvature[1]
    ready = hs.correlated_federated(step=rate, horizon=2)
    measured, paper = furthest(problem, rate, 5), problem.change / 5
    certified = min(s for s, _, _ in ready.sensitivities(problem))
    # Local steps are not projected, so the bound allows for gradients outside the ball.
    assert measured <= certified * (1 + 1e-9)
    assert (measured > paper) is exceeds
    if exceeds:
        assert measured > 10 * paper
        certificate = hs.certify(ready, problem, graph, 2, delta=1e-3)
        assert certificate.epsilon[0] > 5 * ready.paper_epsilon(graph, 0, problem, 2, 1e-3)


@pytest.mark.parametrize(
    ("options", "rounds", "message"),
    [
        ({}, 0, "rounds"),
        ({}, ROUNDS + 1, "rounds must be at most the 6 that the noise is planned for"),
        ({"rounds": 9}, 9, "rounds must be at most the 6 that the records last for"),
        ({"sampling": hs.Cyclic(3.0)}, ROUNDS, "sampling must be fresh"),
    ],
)
def test_what_cannot_be_measured_is_refused(options, rounds, message):
    made = hs.correlated_federated(
        step=0.1, horizon=options.get("rounds", ROUNDS), sampling=options.get("sampling", FRESH)
    )
    with pytest.raises(ValueError, match=message):
        online_regret(made, PROBLEM, GRAPH, rounds)


def test_other_comparators_and_other_algorithms_are_refused():
    with pytest.raises(ValueError, match="comparators for the same rounds"):
        online_regret(
            algorithm(), PROBLEM, GRAPH, ROUNDS, against=comparators(PROBLEM, ROUNDS - 1, TAU)
        )
    with pytest.raises((ValueError, TypeError), match="algorithm"):
        online_regret(hs.dsgd(), PROBLEM, GRAPH, ROUNDS)
    box = replace(PROBLEM, domain=hs.problems.Box(-1.0, 1.0))
    with pytest.raises(ValueError, match="domain must be a Ball"):
        comparators(box, ROUNDS, TAU)
