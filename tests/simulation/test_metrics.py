"""Metrics: the reference is the optimum that slow methods find,
and the numbers are their formulas.
"""

from __future__ import annotations

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize

import hearsay as hs
from hearsay.problems import from_arrays, logistic, ridge
from hearsay.problems.losses.domains import Box
from hearsay.problems.losses.linear import Logistic
from hearsay.problems.problem import Problem
from hearsay.simulation.metrics import measure, training_sample, watched_agents
from hearsay.simulation.optimum import Reference

RNG = np.random.default_rng(0)
FEATURES = RNG.normal(size=(44, 3))
LABELS = (FEATURES @ np.array([1.0, -0.5, 0.2]) + 0.5 * RNG.normal(size=44) > 0).astype(float)
DATA = from_arrays(FEATURES, LABELS, feature_bound=2.0)
OPTIONS = {"agents": 3, "per_step": 2, "head_start": 1}

PROBLEMS: dict[str, Problem] = {
    "logistic": logistic(DATA, ridge=0.05, **OPTIONS),
    "ridge": ridge(DATA, ridge=0.05, radius=50.0, **OPTIONS),
    "logistic clipped": logistic(DATA, ridge=0.05, clip=0.4, **OPTIONS),
    "ridge clipped": ridge(DATA, ridge=0.05, clip=0.4, radius=50.0, **OPTIONS),
}
STEPS = [0, 1, 3, 4, 20]


def objective(problem: Problem, step: int, params: np.ndarray) -> float:
    """F_t of paper P1, (2), as printed: a mean over agents of their mean loss so far."""
    total = 0.0
    for i in range(problem.agents):
        seen = min(
            problem.arrivals.head_start + (step + 1) * problem.arrivals.per_step,
            int(problem.counts[i]),
        )
        a, b = problem.features[i, :seen], problem.labels[i, :seen]
        m = a @ params
        each = np.log1p(np.exp(m)) - b * m if isinstance(problem.loss, Logistic) else (m - b) ** 2
        total += each.mean() / problem.agents
    half = 0.5 if isinstance(problem.loss, Logistic) else 1.0
    return float(total + half * problem.loss.ridge * params @ params)


@pytest.mark.parametrize("name", ["logistic", "ridge"])
def test_the_reference_is_what_scipy_finds(name):
    problem, reference = PROBLEMS[name], Reference(PROBLEMS[name])
    for step in STEPS:
        slow = optimize.minimize(
            lambda x, s=step: objective(problem, s, x), np.zeros(3), method="BFGS", tol=1e-9
        )
        best = reference.at(step)
        np.testing.assert_allclose(best.params, slow.x, atol=2e-5)
        assert best.value == pytest.approx(objective(problem, step, best.params), abs=1e-12)
        assert best.value <= slow.fun + 1e-12


@pytest.mark.parametrize("name", ["logistic clipped", "ridge clipped"])
def test_clipping_is_no_part_of_the_objective(name):
    """What clipping costs must show in the metrics, so the reference is the optimum
    of the plain loss.
    """
    problem = PROBLEMS[name]
    plain = Reference(replace(problem, loss=replace(problem.loss, clip=None)))
    for step in STEPS:
        np.testing.assert_array_equal(
            Reference(problem).at(step).params, Reference(plain.problem).at(step).params
        )


@pytest.mark.parametrize("name", ["logistic clipped", "ridge clipped"])
def test_with_clipping_no_model_has_negative_regret(name):
    problem = PROBLEMS[name]
    plain = Reference(replace(problem, loss=replace(problem.loss, clip=None))).at(20).params
    best = Reference(problem).at(20)
    assert regret_of(problem, plain[None, None].repeat(3, axis=1), 20, best).min() >= -1e-9


def regret_of(problem: Problem, models: np.ndarray, step: int, best) -> np.ndarray:
    return np.asarray(measured(problem, models, step, best).regret)


def measured(problem: Problem, models: np.ndarray, step: int, best, watched=None):
    watched = np.arange(problem.agents) if watched is None else watched
    return measure(
        jnp.asarray(models),
        jnp.asarray(watched),
        problem.device_records,
        jnp.asarray(problem.arrived(step)),
        jnp.asarray(best.params),
        jnp.asarray(best.value),
        jnp.asarray(problem.test_features),
        jnp.asarray(problem.test_labels),
        loss=problem.loss,
        classification=problem.classification,
    )


def slow_projected_gradient(
    problem: Problem, step: int, project, rounds: int = 30_000
) -> np.ndarray:
    params, rate = np.zeros(problem.dimension), 0.5 / problem.loss.curvature[1]
    for _ in range(rounds):
        total = problem.loss.regulariser * params
        for i, seen in enumerate(problem.arrived(step)):
            a, b = problem.features[i, :seen], problem.labels[i, :seen]
            total = total + problem.loss.residual(a @ params, b) @ a / (seen * problem.agents)
        moved = project(params - rate * total)
        if np.linalg.norm(moved - params) < 1e-13:
            return moved
        params = moved
    return params


@pytest.mark.parametrize("name", ["logistic", "ridge"])
def test_an_optimum_on_the_edge_of_a_small_ball(name):
    inner = Reference(PROBLEMS[name]).at(4).params
    radius = 0.5 * float(np.linalg.norm(inner))
    problem = replace(PROBLEMS[name], domain=hs.problems.Ball(radius))
    best = Reference(problem).at(4)
    slow = slow_projected_gradient(problem, 4, lambda x: x * min(1.0, radius / np.linalg.norm(x)))
    np.testing.assert_allclose(best.params, slow, atol=1e-7)
    assert np.linalg.norm(best.params) == pytest.approx(radius)
    assert np.abs(best.params - inner * 0.5).max() > 1e-4, (
        "the optimum on the edge is not the projected free one"
    )


def test_an_optimum_on_the_edge_of_a_box():
    # Cuts off a negative coordinate of an optimum that is shorter than the box's corner.
    low, high = -0.05, 5.0
    problem = replace(PROBLEMS["ridge"], domain=Box(low, high))
    best = Reference(problem).at(4)
    slow = slow_projected_gradient(problem, 4, lambda x: np.clip(x, low, high))
    np.testing.assert_allclose(best.params, slow, atol=1e-7)


def test_the_reference_does_not_depend_on_the_order_of_questions():
    problem = PROBLEMS["logistic"]
    forward, backward = Reference(problem), Reference(problem)
    one = [forward.at(s) for s in STEPS]
    two = [backward.at(s) for s in STEPS[::-1]][::-1]
    for a, b in zip(one, two, strict=True):
        np.testing.assert_allclose(a.params, b.params, atol=1e-7)
    assert forward.at(STEPS[-1]) is forward.at(STEPS[-1] + 100), (
        "once all records are here nothing is computed again"
    )


@pytest.mark.parametrize("radius", [0.3, 50.0])
def test_no_model_inside_the_domain_has_negative_regret(radius):
    """Models of a noisy run, read at many steps, on a ball that cuts the optimum off
    and on one that does not.
    """
    problem = logistic(DATA, ridge=0.05, radius=radius, **OPTIONS)
    algorithm = hs.ldp_online(step=hs.PowerLaw(0.5, -0.7), noise=0.02)
    run = hs.simulate(algorithm, problem, hs.graphs.ring(3), steps=30, every=1, seeds=2, spread=0.5)
    assert np.linalg.norm(run.models, axis=-1).max() <= radius * (1 + 1e-12)
    assert run.raw["regret"].min() >= -1e-10
    assert run.raw["regret"].max() > 1e-3


def test_every_metric_against_numpy():
    problem = PROBLEMS["logistic"]
    best = Reference(problem).at(3)
    models = np.random.default_rng(1).normal(size=(2, 3, 3))
    got = measured(problem, models, 3, best, watched=np.array([0, 2]))
    for s in range(2):
        mean = models[s].mean(axis=0)
        assert got.mean_model_error[s] == pytest.approx(np.linalg.norm(mean - best.params))
        apart = [np.sum((models[s, i] - mean) ** 2) for i in range(3)]
        assert got.consensus_error[s] == pytest.approx(np.mean(apart))
        for w, agent in enumerate((0, 2)):
            model = models[s, agent]
            assert got.tracking_error[s, w] == pytest.approx(np.sum((model - best.params) ** 2))
            assert got.regret[s, w] == pytest.approx(objective(problem, 3, model) - best.value)
            right = (problem.test_features @ model > 0) == (problem.test_labels == 1)
            assert got.accuracy[s, w] == pytest.approx(right.mean())


def test_regression_is_scored_by_its_squared_error():
    problem = ridge(agents=3, records=8, dimension=2, radius=3.0)
    models = np.random.default_rng(2).normal(size=(1, 3, 2))
    got = measured(problem, models, 3, Reference(problem).at(3))
    for agent in range(3):
        error = (problem.test_features @ models[0, agent] - problem.test_labels) ** 2
        assert got.accuracy[0, agent] == pytest.approx(error.mean())


def test_watched_agents_are_spread_evenly_and_few():
    assert watched_agents(1).tolist() == [0]
    assert watched_agents(5).tolist() == [0, 1, 2, 3, 4]
    assert watched_agents(16).tolist() == list(range(16))
    many = watched_agents(1000)
    assert len(many) == 16
    assert (many[0], many[-1]) == (0, 999)
    assert np.ptp(np.diff(many)) <= 1
    for n in range(1, 80):
        assert len(watched_agents(n)) == min(n, 16)


def test_training_accuracy_is_measured_on_a_few_records_of_many_agents():
    problem = ridge(agents=12, records=5, dimension=2)
    for count, agents, each in ((30, range(12), 3), (4, (0, 3, 7, 11), 1)):
        features, labels = training_sample(problem, count)
        right = [(agent, place) for agent in agents for place in range(each)]
        agent, place = np.array(right).T
        np.testing.assert_array_equal(features, problem.features[agent, place])
        np.testing.assert_array_equal(labels, problem.labels[agent, place])
