"""Paper P4: local steps, correlated messages, one Gaussian mechanism,
and a horizon that is kept.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hearsay as hs
from hearsay.mechanisms.convert import gaussian_epsilon
from hearsay.mechanisms.factorized.stream import noise_stream
from hearsay.problems import Ball
from hearsay.problems.losses.linear import LinearLoss
from hearsay.problems.sampling.samplers import Records, Window
from hearsay.simulation import keys
from hearsay.simulation.session import Session
from tests.factories import holding

LEARNERS, DELTA = 4, 1e-3


def setting(records: int = 60, **options):
    problem = hs.problems.ridge(
        agents=LEARNERS, records=records, dimension=3, ridge=0.1, radius=5.0, **options
    )
    return problem, hs.graphs.complete(LEARNERS)


def test_rounds_are_the_papers_lines_6_to_15():
    """Noise-free, against plain loops in NumPy."""
    problem, graph = setting()
    algorithm = hs.federated_noiseless(step=0.05, server=0.7, horizon=12, sampling=hs.Fresh(5))
    run = hs.simulate(algorithm, problem, graph, steps=12, delta=DELTA)
    x = np.zeros(3)
    for r in range(12):
        updates = []
        for i in range(LEARNERS):
            z = x.copy()
            for t in range(5):
                a, b = problem.features[i, 5 * r + t], problem.labels[i, 5 * r + t]
                z = z - 0.05 * (2 * (a @ z - b) * a + 0.2 * z)
            updates.append((x - z) / (0.05 * 5))
        x = x - 0.05 * 0.7 * 5 * np.mean(updates, axis=0)
    np.testing.assert_allclose(run.models[0], np.tile(x, (LEARNERS, 1)), atol=1e-12)


@pytest.mark.parametrize("name", ["toeplitz", "tree", "dense", "identity", "blt", "banded"])
def test_the_model_carries_the_stream_noise(name):
    """Records without features and no ridge: all gradients vanish, and the model is the sum of the
    learners' noise streams, round by round.
    """
    problem, graph = (
        hs.problems.ridge(agents=LEARNERS, records=60, dimension=3, ridge=0.0, radius=1e6),
        hs.graphs.complete(LEARNERS),
    )
    problem = replace(
        problem, records=problem.records._replace(features=np.zeros_like(problem.features))
    )
    algorithm = hs.correlated_federated(
        step=0.1, server=2.0, horizon=9, factorization=name, noise=0.3, sampling=hs.Fresh(5)
    )
    session = Session(algorithm, problem, graph, [7], False, False, 0.0, DELTA)
    streams = [
        noise_stream(
            algorithm.factors,
            keys.noise_keys(jnp.asarray([7]), LEARNERS)[0, i],
            (3,),
            jnp.dtype(float),
        )
        for i in range(LEARNERS)
    ]
    expected = np.zeros(3)
    for _ in range(9):
        session.advance(1)
        expected = expected - 0.1 * 2.0 * 5 * 0.3 * np.mean(
            [np.asarray(s.next()) for s in streams], axis=0
        )
        np.testing.assert_allclose(np.asarray(session.models)[0, 0], expected, atol=1e-12)


def test_certificate_is_one_gaussian_mechanism():
    problem, graph = setting(clip=0.5)
    algorithm = hs.correlated_federated(
        step=0.05, horizon=12, factorization="dense", noise=2.0, sampling=hs.Fresh(5)
    )
    budget = hs.certify(algorithm, problem, graph, 12, delta=DELTA).budgets[0]
    s = problem.change / 5  # eta L < 2: local steps do not stretch
    assert budget.rho == pytest.approx((s * algorithm.factors.sensitivity / 2.0) ** 2 / 2, rel=1e-8)
    assert budget.epsilon == pytest.approx(gaussian_epsilon(budget.rho, DELTA))
    rho = (s / 2.0) ** 2 / 2
    assert budget.paper_epsilon == pytest.approx(
        rho + 2 * math.sqrt(rho * math.log(1 / DELTA)), rel=1e-6
    )
    assert budget.epsilon < budget.paper_epsilon, "the exact conversion is tighter"
    first = hs.certify(algorithm, problem, graph, 1, delta=DELTA).budgets[0]
    corner = algorithm.factors.encoder()[0, 0]
    assert first.rho == pytest.approx((s * corner / 2.0) ** 2 / 2, rel=1e-8), "the leading block"
    assert hs.certify(algorithm, problem, graph, 0, delta=DELTA).epsilon[0] == 0
    longer = hs.certify(algorithm, problem, graph, 13, delta=DELTA)
    assert not longer.finite
    assert longer.budgets[0].reason == "the noise is planned for 12 rounds"


def test_learners_choose_their_own_budgets():
    problem, graph = setting(clip=0.5)
    algorithm = hs.correlated_federated(step=0.05, horizon=12, sampling=hs.Fresh(5))
    ready = hs.calibrate(algorithm, problem, graph, 12, [0.5, 1.0, 2.0, 4.0], delta=DELTA)
    found = hs.certify(ready, problem, graph, 12, delta=DELTA).epsilon
    assert np.all(np.array(found) <= [0.5, 1, 2, 4])
    assert found == pytest.approx([0.5, 1, 2, 4], rel=1e-5)
    assert not hs.certify(
        hs.federated_noiseless(sampling=hs.Fresh(5)), problem, graph, 12, delta=DELTA
    ).finite


def test_going_round_the_data_costs_more_than_going_once():
    problem, graph = setting(clip=0.5)
    budgets = [
        hs.certify(
            hs.correlated_federated(step=0.05, horizon=36, noise=2.0, sampling=kind(5)),
            problem,
            graph,
            36,
            delta=DELTA,
        )
        .budgets[0]
        .rho
        for kind in (hs.Fresh, hs.Cyclic, hs.Subset)
    ]
    assert budgets[0] < budgets[1] < budgets[2]
    # 60 records, 5 a round: a record's turns are 12 rounds apart, three of them in 36 rounds.
    factors = hs.correlated_federated(horizon=36).factors
    ratio = (factors.sensitivity_repeated(12, 3) / factors.sensitivity) ** 2
    assert budgets[1] / budgets[0] == pytest.approx(ratio, rel=1e-9)


def gaps(problem, algorithm, first: Records, second: Records, x: jax.Array) -> np.ndarray:
    """How far one round's update moves between two data sets of five records;
    all arguments with a leading axis.
    """
    window, rate = Window(jnp.asarray(0), jnp.asarray(5), jnp.asarray(1)), float(algorithm.step(0))

    def update(features, labels, x):
        records = Records(features, labels, jnp.asarray(5))
        batch, _ = algorithm.sampling.batch(
            (), problem.loss, records, jnp.asarray(0), window, problem.arrivals, jax.random.key(0)
        )
        return (x - batch.descended(x, jnp.asarray(rate))) / (rate * 5)

    run = jax.jit(jax.vmap(update))
    return np.linalg.norm(np.asarray(run(*first[:2], x) - run(*second[:2], x)), axis=1)


@pytest.mark.parametrize("rate", [0.05, 0.9, 3.0])
def test_no_pair_of_records_moves_an_update_further_than_certified(rate):
    """Random and extreme records at every local position; with eta L > 2 the local steps stretch,
    and the paper's 2 B_g / tau is exceeded.
    """
    problem, _ = setting(clip=0.5)
    algorithm = hs.correlated_federated(step=rate, horizon=12, sampling=hs.Fresh(5))
    bound = min(s for s, _, _ in algorithm.sensitivities(problem))
    rng, many = np.random.default_rng(0), 3000
    features = rng.normal(size=(many, 5, 3))
    # Half of them all in one line.
    features[::2] = features[::2, :1] * rng.choice([-1, 1], size=(many // 2, 5, 1))
    features /= np.linalg.norm(features, axis=2, keepdims=True)
    labels = rng.uniform(-problem.loss.label_bound, problem.loss.label_bound, (many, 5))
    other, others, row = features.copy(), labels.copy(), np.arange(many) % 5
    other[np.arange(many), row] *= rng.choice([-1.0, 1.0], size=(many, 1))
    others[np.arange(many), row] *= -1
    x = jnp.asarray(rng.normal(size=(many, 3)) * 0.3)
    first, second = (
        Records(jnp.asarray(f), jnp.asarray(b), None)
        for f, b in ((features, labels), (other, others))
    )
    found = gaps(problem, algorithm, first, second, x)
    assert found.max() <= bound * (1 + 1e-9)
    assert found.max() > 0.5 * problem.change / 5
    if rate == 3.0:
        assert found.max() > problem.change / 5, "more than the paper's 2 B_g / tau"


@dataclass(frozen=True)
class Hill(LinearLoss):
    """1 / (1 + (m - b)^2): a loss with its maximum at the label, so that steps run away from it on
    either side. Not convex.
    """

    def residual(self, margin, labels):
        return -2 * (margin - labels) / (1 + (margin - labels) ** 2) ** 2

    def values(self, margin, labels):
        return 1 / (1 + (margin - labels) ** 2)

    @property
    def curvature(self):
        return -2 * self.feature_bound**2, 0.5 * self.feature_bound**2

    def unclipped_change(self, reach):
        return 2 * 0.65 * self.feature_bound  # the slope is at most 3 sqrt(3)/8


def test_a_nonconvex_loss_moves_more_than_the_paper_allows_and_not_more_than_we_do():
    """The changed record throws the two local models to either side of a hill,
    and four more records push them further apart.
    """
    clip = 0.65
    zeros = np.zeros((LEARNERS, 10, 1))
    problem = holding(Hill(1.0, 0.0, 10.0, clip), zeros, zeros[..., 0], Ball(100.0))
    algorithm = hs.correlated_federated(step=1.0, horizon=2, sampling=hs.Fresh(5))
    features, foot = jnp.ones((1, 5, 1)), 1 / math.sqrt(3)
    labels = jnp.asarray([[foot, 0.0, 0.0, 0.0, 0.0]])
    first, second = (
        Records(features, labels, None),
        Records(features, labels.at[0, 0].set(-foot), None),
    )
    found = gaps(problem, algorithm, first, second, jnp.zeros((1, 1)))[0]
    paper = 2 * clip / 5
    certified = min(s for s, _, _ in algorithm.sensitivities(problem))
    assert found > 2 * paper
    assert found <= certified
    assert certified == pytest.approx(2 * clip), "the clip bound: every later local step may differ"


def test_resuming_continues_the_same_noise(tmp_path):
    problem, graph = setting(clip=0.5)
    algorithm = hs.correlated_federated(
        step=0.05, horizon=12, factorization="tree", noise=0.5, sampling=hs.Fresh(5)
    )
    whole = hs.simulate(algorithm, problem, graph, steps=12, every=3, delta=DELTA)
    hs.simulate(algorithm, problem, graph, steps=6, every=3, delta=DELTA, folder=tmp_path)
    rest = hs.simulate(
        algorithm, problem, graph, steps=12, every=3, delta=DELTA, folder=tmp_path, resume=True
    )
    np.testing.assert_array_equal(rest.models, whole.models)
    other = replace(algorithm, factorization="toeplitz")
    with pytest.raises(ValueError, match="another configuration"):
        hs.simulate(
            other, problem, graph, steps=12, every=3, delta=DELTA, folder=tmp_path, resume=True
        )


def test_a_run_ends_with_the_planned_noise():
    problem, graph = setting()
    algorithm = hs.correlated_federated(step=0.05, horizon=7, noise=1.0, sampling=hs.Fresh(5))
    run = hs.simulate(algorithm, problem, graph, steps=10, delta=DELTA)
    assert int(run.steps[-1]) == 7
    assert run.stopped == "the noise is planned for 7 rounds: message 7 was not sent"
    assert run.certificate.finite


def test_bad_input_is_named():
    problem, graph = setting(records=20)
    with pytest.raises(ValueError, match="horizon must be at least 1, got 0"):
        hs.correlated_federated(horizon=0)
    with pytest.raises(ValueError, match="factorization must be one of .*did you mean 'toeplitz'"):
        hs.correlated_federated(factorization="toeplits")
    with pytest.raises(ValueError, match="mechanism must be one of gaussian"):
        hs.correlated_federated(mechanism="laplace")
    with pytest.raises(ValueError, match="noise must be a constant"):
        hs.correlated_federated(noise=hs.PowerLaw(1.0, 0.1))
    with pytest.raises(
        ValueError,
        match=(
            "the local steps of a round must be at most the records of every learner, got 30 and"
            " learner 0 holds 20"
        ),
    ):
        hs.certify(hs.correlated_federated(sampling=hs.Fresh(30)), problem, graph, 5, delta=DELTA)
    with pytest.raises(
        ValueError, match="sampling must be fresh, cyclic or subset with a constant size"
    ):
        hs.certify(hs.correlated_federated(sampling=hs.Resample(5)), problem, graph, 5, delta=DELTA)
    for delta in (0.0, 1.0, -1.0):
        with pytest.raises(ValueError, match="delta must be strictly between 0 and 1"):
            hs.certify(hs.correlated_federated(), problem, graph, 5, delta=delta)
    with pytest.raises(ValueError, match="epsilon must be positive"):
        hs.calibrate(hs.correlated_federated(horizon=4), problem, graph, 4, 0.0, delta=DELTA)
    with pytest.raises(ValueError, match="delta must be given for Gaussian noise"):
        hs.certify(hs.correlated_federated(), problem, graph, 5)
    with pytest.raises(ValueError, match="a declared change is about gradients at one point"):
        hs.certify(
            hs.correlated_federated(),
            hs.problems.estimation(),
            hs.graphs.complete(6),
            5,
            delta=DELTA,
        )
