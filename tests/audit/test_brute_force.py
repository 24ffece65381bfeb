"""True budgets: what an adversary can bring about never exceeds the certificate, and on scalar quadratics comes close to it."""

from __future__ import annotations

import itertools
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hearsay as hs
from hearsay.audit.brute_force import certified, gaps, random_transcripts
from hearsay.problems import Ball, Logistic, PolynomialLogistic, Squared
from hearsay.problems.problem import Problem
from hearsay.problems.sampling import Arrivals, Records

STEPS, AGENTS, TRANSCRIPTS = 30, 3, 200


def problem_for(
    loss, d: int, seed: int, held: int, per_step: int = 2, head_start: int = 0, radius: float = 4.0
) -> Problem:
    """Random admissible records: features in the ball of the loss's bound, labels in its range."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(AGENTS, held, d))
    features *= (
        loss.feature_bound * rng.uniform(size=(AGENTS, held, 1)) / np.linalg.norm(features, axis=2, keepdims=True)
    )
    labels = rng.integers(0, 2, (AGENTS, held)).astype(float)
    if isinstance(loss, Squared):
        labels = rng.uniform(-loss.label_bound, loss.label_bound, (AGENTS, held))
    counts, arrivals = np.full(AGENTS, held), Arrivals(per_step, head_start)
    return Problem("random", loss, Ball(radius), features, labels, counts, features[0], labels[0], arrivals, False)


def neighbours(problem: Problem, agent: int, row: int, seed: int) -> tuple[Records, Records]:
    """The agent's data with one record replaced by extreme ones: opposite features of full length, opposite labels."""
    rng = np.random.default_rng(seed)
    direction = rng.normal(size=problem.dimension)
    direction *= problem.loss.feature_bound / np.linalg.norm(direction)
    top = problem.loss.label_bound
    low = -top if isinstance(problem.loss, Squared) else 0.0
    pair = []
    for features, label in ((direction, top), (direction if seed % 2 else -direction, low if seed % 2 else top)):
        records = jax.tree.map(lambda x: x[agent], problem.records)
        pair.append(
            Records(
                records.features.at[row].set(jnp.asarray(features)), records.labels.at[row].set(label), records.held
            )
        )
    return pair[0], pair[1]


LOSSES = {
    "logistic": Logistic(2.0, 0.05),
    "logistic clipped": Logistic(2.0, 0.05, clip=0.7),
    "logistic unregularised": Logistic(3.0, 0.0),
    "squared": Squared(1.0, 0.1, label_bound=2.0),
    "squared clipped": Squared(1.5, 0.0, label_bound=2.0, clip=0.5),
    "polynomial": PolynomialLogistic(1.0, 0.05, margin_bound=4.0),
}
SAMPLERS = {"history": hs.History(), "fresh": hs.Fresh(), "cyclic": hs.Cyclic(), "resample": hs.Resample()}
FORMS = {
    "printed": hs.ldp_online(step=hs.PowerLaw(0.5, -0.7), coupling=hs.PowerLaw(1.2, -0.6), noise=hs.PowerLaw(1.0, 0.1)),
    "feedback": hs.ldp_online(step=hs.PowerLaw(0.5, -0.7), feedback=True, noise=hs.PowerLaw(1.0, 0.1)),
    "large steps": hs.ldp_online(step=hs.PowerLaw(3.0, -0.6), noise=hs.PowerLaw(1.0, 0.1)),
    "dsgd": hs.Dsgd(step=hs.PowerLaw(1.5, -0.5)),
    "pdop": hs.Pdop(step=hs.Geometric(1.5, 0.95)),
}


COMBINATIONS = list(itertools.product(LOSSES, SAMPLERS, FORMS))
# Every pair of (loss, sampler), (loss, form) and (sampler, form) is among the quick ones; the rest are marked slow.
QUICK = [c for i, c in enumerate(COMBINATIONS) if (i // 20 + i // 5 + i) % 5 == 0]


@pytest.mark.parametrize(
    ("loss", "sampler", "form"), [pytest.param(*c, marks=() if c in QUICK else pytest.mark.slow) for c in COMBINATIONS]
)
def test_no_transcript_exceeds_the_certificate(loss, sampler, form):
    index = list(LOSSES).index(loss) * 100 + list(SAMPLERS).index(sampler) * 10 + list(FORMS).index(form)
    held = 60 if sampler == "fresh" else 23
    problem = problem_for(LOSSES[loss], 3, seed=index, held=held, head_start=3 * (index % 2))
    graph = hs.graphs.ring(AGENTS, weight=0.3)
    algorithm = replace(FORMS[form], sampling=SAMPLERS[sampler])
    transcripts = random_transcripts(index, TRANSCRIPTS, STEPS, 1, 3, size=1.5)
    accounts = algorithm.accounts(graph, 1, problem)
    epsilon = hs.certify(algorithm, problem, graph, STEPS).epsilon[1]
    scale = algorithm.noise_for(1)(np.arange(STEPS))
    for attempt, row in enumerate((0, 1, 7, held - 1)):
        first, second = neighbours(problem, 1, row, seed=attempt)
        l2, l1 = gaps(algorithm, problem, graph, 1, first, second, transcripts)
        for account in accounts:
            assert np.all(l2 <= certified(account, STEPS) * (1 + 1e-9) + 1e-12)
        assert np.max(np.sum(l1[:, 0] / scale, axis=1)) <= epsilon * (1 + 1e-9)


# DSGD on a history is left out: two states that swing past each other partly cancel, and the best found is 0.88 of the bound.
TIGHT = [(f, s) for f in ("printed", "feedback", "dsgd", "pdop") for s in ("history", "fresh", "cyclic")]


@pytest.mark.parametrize(("form", "sampler"), [pair for pair in TIGHT if pair != ("dsgd", "history")])
def test_a_scalar_quadratic_comes_close_to_the_certificate(form, sampler):
    """One parameter. Where l = a - step mu, records without features contract least; DSGD (a = 0, l = step L) needs the opposite."""
    graph, flat = hs.graphs.ring(AGENTS, weight=0.3), form != "dsgd"
    if flat:
        loss, step, radius = Squared(1.0, 0.2, label_bound=10.0, clip=1.0), FORMS[form].step.scaled(0.2), 50.0
    else:
        loss, step, radius = Squared(1.0, 0.2, label_bound=100.0), hs.PowerLaw(0.02, 0.0), 8.0
    problem = problem_for(loss, 1, seed=1, held=60, per_step=1, radius=radius)
    problem = replace(problem, features=np.full_like(problem.features, 0.0 if flat else 1.0))
    algorithm = replace(FORMS[form], sampling=SAMPLERS[sampler], step=step)
    transcripts = random_transcripts(5, 20, STEPS, 1, 1, size=0.5)
    bound = certified(algorithm.accounts(graph, 1, problem)[0], STEPS)[0]
    reached = np.zeros(STEPS)
    for row in range(STEPS):
        first, second = (
            Records(r.features.at[row].set(1.0), r.labels.at[row].set(label), r.held)
            for r, label in (
                (jax.tree.map(lambda x: x[1], problem.records), b) for b in (loss.label_bound, -loss.label_bound)
            )
        )
        l2, _ = gaps(algorithm, problem, graph, 1, first, second, transcripts)
        reached = np.maximum(reached, l2[:, 0].max(axis=0))
    assert np.all(reached <= bound * (1 + 1e-9))
    assert np.all(reached[1:] >= 0.9 * bound[1:])


def test_the_paper_formula_is_no_bound_on_the_first_messages():
    """P1's sum (20) starts at t = 1 with tau_1 = lambda_0, which is right there; dropping 1/(t+1) only makes it larger later on."""
    problem = problem_for(Logistic(1.0, 0.1), 3, seed=3, held=40)
    graph, algorithm = hs.graphs.ring(AGENTS, weight=0.3), FORMS["printed"]
    budget = hs.certify(algorithm, problem, graph, STEPS).budgets[0]
    assert budget.paper_epsilon is not None
    assert budget.paper_epsilon > 2 * budget.epsilon
