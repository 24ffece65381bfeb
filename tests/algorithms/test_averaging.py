"""Averaging rounds: against matrix polynomials, and for what they must not change."""

from __future__ import annotations

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from numpy.polynomial.chebyshev import chebval

import hearsay as hs
from hearsay.algorithms.averaging import chebyshev_weights
from hearsay.audit.distinguish import distinguish
from hearsay.audit.residuals import residuals
from hearsay.base import Message
from hearsay.deploy.deployment import require_deployable
from hearsay.problems import Ball, Squared
from hearsay.simulation import engine
from tests.factories import holding, uniform

METHODS = {"gradient-perturbation": {"coupling": 0.7}, "weighted-erm": {"weights": (1, 2, 1, 1, 3)}}
RING = hs.graphs.ring(5, weight=0.3)


def problem(agents: int = 5):
    return hs.problems.ridge(agents=agents, records=6, dimension=3, per_step=6, seed=0, radius=50.0)


def dense(graph) -> np.ndarray:
    weights = graph.weights.toarray()
    return np.eye(len(weights)) - np.diag(weights.sum(axis=1)) + weights


def polynomial(graph, rounds: int, chebyshev: bool) -> np.ndarray:
    """What the exchanges do to all models at once: A^m, or T_m(A / lambda) / T_m(1 / lambda)."""
    values, vectors = np.linalg.eigh(dense(graph))
    if not chebyshev:
        return vectors @ np.diag(values**rounds) @ vectors.T
    modulus = max(abs(values[0]), abs(values[-2]))
    pick = np.eye(rounds + 1)[rounds]
    factors = chebval(values / modulus, pick) / chebval(1 / modulus, pick)
    return vectors @ np.diag(factors) @ vectors.T


def averaged(graph, rounds: int, chebyshev: bool, values: np.ndarray) -> np.ndarray:
    """The engine's relays on those messages (agent, d)."""
    algorithm = hs.gradient_perturbation(averaging=rounds, chebyshev=chebyshev)
    setting = engine.surroundings(algorithm, problem(graph.agents), graph, [0])
    sent = Message(jnp.asarray(values))
    found, inbox = engine.relay(setting, sent, engine.heard(setting.mixers, sent))
    weights = graph.weights.toarray()
    np.testing.assert_allclose(inbox.total.params, weights @ found.params, atol=1e-12)
    return np.asarray(found.params)


@pytest.mark.parametrize("chebyshev", [False, True])
@pytest.mark.parametrize("rounds", [1, 2, 3, 7])
@pytest.mark.parametrize(
    "graph", [RING, hs.graphs.star(6), hs.graphs.grid(9)], ids=lambda g: g.name
)
def test_exchanges_are_a_polynomial_of_the_mixing_matrix(graph, rounds, chebyshev):
    values = np.random.default_rng(rounds).normal(size=(graph.agents, 3))
    found = averaged(graph, rounds, chebyshev, values)
    np.testing.assert_allclose(found, polynomial(graph, rounds, chebyshev) @ values, atol=1e-11)
    np.testing.assert_allclose(found.mean(axis=0), values.mean(axis=0), atol=1e-13)


def test_chebyshev_brings_agents_together_faster_by_the_factor_of_its_polynomial():
    """On the slowest mode of a long ring: lambda^m against 1 / T_m(1 / lambda), and no mode does
    worse than that.
    """
    graph, rounds = hs.graphs.ring(16, weight=0.3), 8
    values, vectors = np.linalg.eigh(dense(graph))
    modulus, slowest = values[-2], vectors[:, [-2]]
    best = 1 / chebval(1 / modulus, np.eye(rounds + 1)[rounds])
    left = {c: np.linalg.norm(averaged(graph, rounds, c, slowest)) for c in (False, True)}
    assert left[False] == pytest.approx(modulus**rounds, rel=1e-9)
    assert left[True] == pytest.approx(best, rel=1e-9)
    assert left[True] < 0.5 * left[False]
    others = averaged(graph, rounds, True, vectors[:, :-1])
    assert np.linalg.norm(others, axis=0).max() <= best * (1 + 1e-9)


@pytest.mark.parametrize("modulus", [0.0, 1e-300, 1e-17, 0.5, 1 - 1e-12])
def test_weights_stay_finite(modulus):
    """Everybody agrees at once on a complete graph (lambda 0), and hardly ever on a huge ring."""
    found = chebyshev_weights(modulus, 500)
    assert np.isfinite(found).all() and (found >= 0).all()
    # What all agents have in common is kept: the two factors differ by 1.
    np.testing.assert_allclose(found[:, 0] - found[:, 1], 1.0, atol=1e-9)
    if modulus < 1e-9:
        np.testing.assert_allclose(found, np.tile([1.0, 0.0], (500, 1)), atol=1e-15)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("chebyshev", [False, True])
def test_a_run_equals_matrices_written_out(name, chebyshev):
    """All agents as one matrix, without noise: average with the polynomial, then one step."""
    data, steps = problem(), 5
    algorithm = hs.REGISTRY[name](
        noise=None, step=0.2, averaging=3, chebyshev=chebyshev, sampling=hs.Cyclic(),
        **METHODS[name],
    )  # fmt: skip
    mixing, rates = dense(RING), algorithm.rates(np.arange(steps), 5)
    models = np.zeros((5, 3))
    for k in range(steps):
        own = polynomial(RING, 3, chebyshev) @ models
        gradients = np.stack(
            [
                data.loss.gradient_sum(own[i], data.features[i], data.labels[i], np.full(6, 1 / 6))
                + data.loss.regulariser * own[i]
                for i in range(5)
            ]
        )
        beta = rates.coupling[k][:, None]
        models = own + beta * (mixing @ own - own) - rates.step[k][:, None] * gradients
    run = hs.simulate(algorithm, data, RING, steps=steps, delta=1e-5, reference=False, regret=False)
    np.testing.assert_allclose(run.models[0], models, atol=1e-12)


@pytest.mark.parametrize("name", METHODS)
def test_the_certificate_does_not_depend_on_it(name):
    data = problem()
    texts = {
        hs.certify(hs.REGISTRY[name](**METHODS[name], **more), data, RING, 20, delta=1e-5).to_json()
        for more in ({}, {"averaging": 1}, {"averaging": 9}, {"averaging": 4, "chebyshev": True})
    }
    assert len(texts) == 1


def test_without_averaging_nothing_is_added_to_a_program():
    algorithm = hs.gradient_perturbation()
    assert engine.surroundings(algorithm, problem(), RING, [0]).relays == ()
    assert algorithm.theory(RING, problem())
    assert not replace(algorithm, averaging=2).theory(RING, problem())


def test_wrong_options_are_refused(monkeypatch):
    with pytest.raises(ValueError, match="averaging must be"):
        hs.gradient_perturbation(averaging=-1)
    with pytest.raises(ValueError, match="averaging must be at least 1 with chebyshev, got 0"):
        hs.gradient_perturbation(chebyshev=True)
    one_way = hs.graphs.from_weights(
        [[0, 0.3, 0, 0], [0, 0, 0.3, 0], [0, 0, 0, 0.3], [0.3, 0, 0, 0]]
    )
    plain = hs.weighted_erm(averaging=2)
    hs.certify(plain, problem(4), one_way, 5, delta=1e-5)
    with pytest.raises(ValueError, match="weights must be symmetric"):
        hs.certify(replace(plain, chebyshev=True), problem(4), one_way, 5, delta=1e-5)
    sharp, lossy = replace(plain, chebyshev=True), replace(RING, lossy=True)
    for allowed in ((plain, RING), (plain, lossy), (sharp, RING)):
        require_deployable(*allowed)
    with pytest.raises(ValueError, match=r"chebyshev in .algorithm. must be false with policy"):
        require_deployable(sharp, lossy)
    monkeypatch.setattr(type(plain), "coin", lambda self, draws: draws.edge, raising=False)
    with pytest.raises(ValueError, match="relays of weighted-erm must be none in a deployed run"):
        require_deployable(plain, RING)


GRAPH = hs.graphs.ring(3, weight=0.3)
AUDITED = hs.gradient_perturbation(
    step=0.5, noise=2.0, averaging=2, chebyshev=True, sampling=hs.Cyclic()
)


def scalars():
    return holding(Squared(1.0, 0.1, 1.0, 1.0), *uniform(3, 12, 1), Ball(50.0))


@pytest.mark.slow
def test_an_audit_follows_the_phases():
    """Runs of the whole network: if the certificate holds, this fails with probability 1e-3 at
    most; the seed is fixed.
    """
    found = distinguish(AUDITED, scalars(), GRAPH, agent=1, steps=4, runs=2000, error=1e-3)
    assert found.holds
    assert found.lower > 0.2 * found.certified


@pytest.mark.slow
def test_the_noise_in_its_messages_is_what_the_certificate_counts():
    """A false alarm in 1,000 seeds; the seed is fixed."""
    assert residuals(AUDITED, scalars(), GRAPH, steps=4, runs=300, level=1e-3).holds
