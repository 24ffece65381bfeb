"""Every update against slow NumPy loops written from the papers' algorithm boxes alone, in float64,
without noise and with the very noise that was drawn (the equations' numbers are the papers').

test_contract.py holds the engine against the algorithms' own update; these hold the update against
the papers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import hearsay as hs
from hearsay.experiments.printed_tracking import PrintedTracking
from hearsay.graphs import Graph
from hearsay.mechanisms.factorized.kinds import factorization
from hearsay.problems import Problem
from hearsay.problems.data.datasets import from_arrays
from hearsay.simulation.engine import Round
from hearsay.simulation.rounds import Rounds

STEPS, AGENTS, RIDGE = 25, 5, 0.3
CLOSE = {"rtol": 0, "atol": 1e-12}
Gradient = Callable[[int, int, np.ndarray], np.ndarray]


def logistic(records: int, **options: Any) -> Problem:
    rng = np.random.default_rng(3)
    features = rng.normal(size=(AGENTS * records, 3))
    labels = features @ rng.normal(size=3) + rng.normal(size=len(features)) > 0
    data = from_arrays(features, labels.astype(float), feature_bound=6.0, test_fraction=0.1)
    return hs.problems.logistic(data, agents=AGENTS, ridge=RIDGE, **options)


def gradient_of(problem: Problem, agent: int, record: int, model: np.ndarray) -> np.ndarray:
    """Of (1 - b) a'x - log s(a'x) + r/2 |x|^2 (P1, section VII-A)."""
    a, b = np.asarray(problem.features[agent][record]), float(problem.labels[agent][record])
    return (1 / (1 + math.exp(-a @ model)) - b) * a + RIDGE * model


def over(problem: Problem, records: Callable[[int], Any]) -> Gradient:
    """g_i(k): the mean gradient of the records of step k."""
    return lambda i, k, x: np.mean([gradient_of(problem, i, r, x) for r in records(k)], axis=0)


def everything(seen: Round) -> Any:
    return seen.states, seen.draws, seen.sent


def watched(algorithm: Any, problem: Problem, graph: Graph, steps: int, spread: float = 1.0) -> Any:
    """States, draws and messages of every round, (round, agent, d), and the models at the end."""
    rounds = Rounds(algorithm, problem, graph, [0], spread=spread)
    seen = rounds.advance(steps, tap=everything)
    return *jax.tree.map(lambda x: np.asarray(x)[:, 0], seen), np.asarray(rounds.models)[0]


def scaled(draws: np.ndarray, scale: Callable[[int, int], float]) -> np.ndarray:
    """The noise of step k and agent i."""
    return np.array([[scale(k, i) * d for i, d in enumerate(row)] for k, row in enumerate(draws)])


def ring(weight: float) -> np.ndarray:
    around = np.roll(np.eye(AGENTS), 1, axis=0)
    return weight * (around + around.T)


@pytest.mark.parametrize("noisy", [False, True])
@pytest.mark.parametrize("radius", [1e5, 0.5], ids=["inside", "projected"])
def test_p1_algorithm_1(radius, noisy):
    """Lines 3-8, with the schedules and the noise of section VII-A."""
    problem, weights = logistic(40, radius=radius), ring(0.3)
    laws = [hs.PowerLaw(1.0, 0.1 + 0.01 * i) for i in range(1, 6)] if noisy else None
    states, draws, sent, last = watched(
        hs.ldp_online(noise=laws), problem, hs.graphs.ring(5, weight=0.3), STEPS
    )
    zeta = np.zeros_like(states.params)
    if noisy:
        zeta = scaled(draws.params, lambda t, i: (t + 1) ** (0.1 + 0.01 * (i + 1)))
    theta, touched = states.params[0], 0
    for t in range(STEPS):
        np.testing.assert_allclose(states.params[t], theta, **CLOSE)
        y, moved = theta + zeta[t], np.empty_like(theta)
        np.testing.assert_allclose(sent.params[t], y, **CLOSE)
        for i in range(AGENTS):
            d = sum(gradient_of(problem, i, k, theta[i]) for k in range(t + 1)) / (t + 1)
            heard = sum(weights[i, j] * (y[j] - theta[i]) for j in range(AGENTS) if j != i)
            hat = theta[i] + (t + 1) ** -0.65 * heard - (t + 1) ** -0.77 * d
            touched += np.linalg.norm(hat) > radius
            moved[i] = hat * min(1.0, radius / np.linalg.norm(hat))
        theta = moved
    np.testing.assert_allclose(last, theta, **CLOSE)
    assert (touched > 0) == (radius < 10)


R, C = np.zeros((5, 5)), np.zeros((5, 5))
for sender, hearer in ((0, 1), (1, 0), (0, 2), (1, 3), (2, 4), (0, 4)):
    R[hearer, sender] = 0.3
for sender, hearer in ((1, 0), (0, 1), (2, 1), (3, 0), (4, 3), (4, 2)):
    C[hearer, sender] = 0.3
ALPHA, BETA, GAMMA, SIZE = 0.2, 0.15, 0.1, 4


def compact(x: Any, y: Any, zeta: Any, eta: Any) -> tuple[np.ndarray, np.ndarray]:
    """(7), and (8) without its gradients."""
    first, second = np.diag(R.sum(axis=1)) - R, np.diag(C.sum(axis=0)) - C
    return (
        x - ALPHA * first @ x - ALPHA * first @ zeta - GAMMA * y,
        y - BETA * second @ y - BETA * second @ eta,
    )


def by_agents(x: Any, y: Any, zeta: Any, eta: Any) -> tuple[np.ndarray, np.ndarray]:
    """(4), and (6) without its gradients."""
    states, trackers = np.empty_like(x), np.empty_like(y)
    for i in range(AGENTS):
        states[i] = (1 - ALPHA * sum(R[i])) * x[i] - GAMMA * y[i]
        states[i] += ALPHA * sum(R[i, j] * (x[j] + zeta[j]) for j in range(AGENTS))
        trackers[i] = (1 - BETA * sum(C[i])) * y[i]
        trackers[i] += BETA * sum(C[i, j] * (y[j] + eta[j]) for j in range(AGENTS))
    return states, trackers


@pytest.mark.parametrize("noisy", [False, True])
@pytest.mark.parametrize("form", [compact, by_agents])
def test_p2_in_both_printed_forms(form, noisy):
    problem = logistic(50)
    assert set(problem.counts) == {45}
    algorithm = (hs.gradient_tracking if form is compact else PrintedTracking)(
        step=hs.Constant(GAMMA),
        coupling=hs.Constant(ALPHA),
        tracking=hs.Constant(BETA),
        noise=hs.PowerLaw(1.0, 0.1) if noisy else None,
        tracker_noise=hs.PowerLaw(2.0, -0.1) if noisy else None,
        sampling=hs.Cyclic(SIZE),
    )
    graph = hs.graphs.five_agents(weight=0.3)
    states, draws, sent, last = watched(algorithm, problem, graph, STEPS)
    zeta = eta = np.zeros_like(states.params)
    if noisy:
        zeta = scaled(draws.params, lambda k, _: (k + 1) ** 0.1)
        eta = scaled(draws.tracker, lambda k, _: 2 * (k + 1) ** -0.1)
    # Batches in turn: 45 records are eleven batches of four.
    mean = over(problem, lambda k: range(k % 11 * SIZE, k % 11 * SIZE + SIZE))
    x = states.params[0]
    g = np.array([mean(i, 0, x[i]) for i in range(AGENTS)])
    y = g
    for k in range(STEPS):
        np.testing.assert_allclose(states.params[k], x, **CLOSE)
        np.testing.assert_allclose(sent.params[k], x + zeta[k], **CLOSE)
        np.testing.assert_allclose(sent.tracker[k], y + eta[k], **CLOSE)
        x, y = form(x, y, zeta[k], eta[k])
        before, g = g, np.array([mean(i, k + 1, x[i]) for i in range(AGENTS)])
        y = y + g - before
    np.testing.assert_allclose(last, x, **CLOSE)


@pytest.mark.parametrize("noisy", [False, True])
@pytest.mark.parametrize("form", ["output", "gradient"])
def test_p3_in_both_forms(form, noisy):
    """(2), and the update of section IV, with a_ii in the sum and sizes that grow."""
    problem, mixing = logistic(900), ring(0.25) + 0.5 * np.eye(5)
    algorithm = (hs.output_perturbation if form == "output" else hs.gradient_perturbation)(
        step="0.5*(k+1)^-0.9",
        coupling="0.5*(k+1)^-0.6",
        noise="(k+1)^0.05" if noisy else None,
        sampling=hs.Fresh("(k+1)^1.1"),
    )
    graph = hs.graphs.ring(5, weight=0.25)
    states, draws, sent, last = watched(algorithm, problem, graph, STEPS)
    sizes = [math.ceil((k + 1) ** 1.1) for k in range(STEPS)]
    starts = np.concatenate([[0], np.cumsum(sizes)])
    mean = over(problem, lambda k: range(starts[k], starts[k + 1]))
    noise = np.zeros_like(states.params)
    if noisy:
        drawn = draws.params
        # The noise on the gradient of step k shows in message k + 1, with its sign turned: its law
        # is symmetric.
        drawn = drawn if form == "output" else -np.roll(drawn, -1, axis=0)
        noise = scaled(drawn, lambda k, _: (k + 1) ** 0.05)
    x = states.params[0]
    for k in range(STEPS):
        shown = x + noise[k] if form == "output" else x
        np.testing.assert_allclose(sent.params[k], shown, **CLOSE)
        step, coupling = 0.5 * (k + 1) ** -0.9, 0.5 * (k + 1) ** -0.6
        pushed = np.array([mean(i, k, x[i]) for i in range(AGENTS)])
        if form == "gradient" and k < STEPS - 1:  # a model is read out before its last noise
            pushed = pushed + noise[k]
        x = (1 - coupling) * x + coupling * mixing @ shown - step * pushed
    np.testing.assert_allclose(last, x, **CLOSE)


@pytest.mark.parametrize("noisy", [False, True])
@pytest.mark.parametrize("kind", ["tree", "dense", "toeplitz", "identity"])
def test_p4_algorithm_1(kind, noisy):
    """Lines 5-15, with the noise b(r+1) xi - b(r) xi that was drawn."""
    tau, eta, server, scale = 4, 0.05, 0.8, 0.7
    problem = logistic(150, per_step=tau)
    algorithm = hs.correlated_federated(
        step=eta, server=server, horizon=STEPS, factorization=kind,
        noise=scale if noisy else None, sampling=hs.Fresh(tau),
    )  # fmt: skip
    graph = hs.graphs.complete(5)
    states, draws, sent, last = watched(algorithm, problem, graph, STEPS, spread=0.0)
    noise = scale * draws.update if noisy else np.zeros_like(states.params)
    x = states.params[0, 0]
    for r in range(STEPS):
        np.testing.assert_allclose(states.params[r], np.tile(x, (5, 1)), **CLOSE)
        told = []
        for i in range(AGENTS):
            z = x
            for t in range(tau):
                z = z - eta * gradient_of(problem, i, r * tau + t, z)
            told.append((x - z) / (eta * tau) + noise[r, i])
        np.testing.assert_allclose(sent.update[r], told, **CLOSE)
        x = x - eta * server * tau * np.mean(told, axis=0)
    np.testing.assert_allclose(last, np.tile(x, (5, 1)), **CLOSE)


@pytest.mark.parametrize("levels", range(7))
def test_p4_the_tree_of_example_i(levels):
    """Nodes store sums of leaves; a prefix is the sum of the largest nodes that it is made of."""
    rounds = 2**levels
    nodes = [(a, a + 2**n) for n in range(levels + 1) for a in range(0, rounds, 2**n)]
    strategy = np.array([[float(a <= r < b) for r in range(rounds)] for a, b in nodes])
    dark = np.zeros((rounds, len(nodes)))
    for r in range(rounds):
        covered = 0
        while covered <= r:
            ends = {b: n for n, (a, b) in enumerate(nodes) if a == covered and b <= r + 1}
            covered = max(ends)
            dark[r, ends[covered]] = 1.0
    np.testing.assert_array_equal(dark @ strategy, np.tri(rounds))
    ours = factorization("tree", rounds)
    # The order of the nodes is nobody's business.
    np.testing.assert_allclose(ours.encoder().T @ ours.encoder(), strategy.T @ strategy, **CLOSE)
    np.testing.assert_allclose(ours.decoder() @ ours.decoder().T, dark @ dark.T, **CLOSE)


@pytest.mark.parametrize("rounds", [1, 2, 5, 40])
def test_p4_the_square_root_of_example_iii(rounds):
    h = [1.0]
    for r in range(1, rounds):
        h.append((1 - 1 / (2 * r)) * h[-1])
    root = np.array([[h[r - s] if s <= r else 0.0 for s in range(rounds)] for r in range(rounds)])
    ours = factorization("toeplitz", rounds)
    np.testing.assert_allclose(ours.encoder(), root, **CLOSE)
    np.testing.assert_allclose(ours.decoder(), root, **CLOSE)


def test_p4_the_optimum_of_example_ii():
    """(7) by a fixed point over the multipliers of its constraints: |A C^+|_F^2 is the least."""
    rounds = 16
    gram, multipliers = np.tri(rounds).T @ np.tri(rounds), np.ones(rounds)
    for _ in range(500):
        side = np.sqrt(multipliers)
        values, vectors = np.linalg.eigh(side[:, None] * gram * side)
        root = vectors * np.sqrt(values) @ vectors.T
        multipliers = np.diag(root).copy()
    least = np.trace(root)  # of the Lagrange dual: sum of multipliers = |A C^-1|_F^2
    ours = factorization("dense", rounds)
    lengths = np.linalg.norm(ours.encoder(), axis=0)
    assert lengths.max() == pytest.approx(1.0, abs=1e-9)
    assert np.linalg.norm(ours.decoder()) ** 2 == pytest.approx(least, rel=1e-4)
