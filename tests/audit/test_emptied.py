"""Attacks under zero-out adjacency: the neighbour is the same data set with one record emptied.

Nothing that brute force or a climb finds is above its certificate; an adversary who takes zero-out
for half of replace is refuted. No chance is involved, except in the audit from one run, which is
wrong with probability 1e-3 at most.
"""

from __future__ import annotations

from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest

import hearsay as hs
from hearsay.audit import worst_cases
from hearsay.audit.contract import Broken
from hearsay.audit.empty import EMPTY, with_empty
from hearsay.audit.one_run import one_run
from hearsay.audit.pairs import candidates
from hearsay.audit.search import search
from hearsay.problems import Logistic, Squared
from hearsay.problems.sampling.batches import Batch
from tests.factories import holding, uniform

GRAPH = hs.graphs.ring(3, weight=0.3)
FREE = Squared(1.0, 0.1, label_bound=2.0)


@pytest.fixture
def only_emptied(monkeypatch):
    """The worlds of the contract's checks in which a record is emptied."""
    worlds = [case for case in worst_cases.cases() if case.adjacency == "zero-out"]
    assert len(worlds) == 3, "one with a clip, one without, one of secret batches"
    monkeypatch.setattr(worst_cases, "cases", lambda: worlds)


def subject(name: str) -> SimpleNamespace:
    return SimpleNamespace(algorithm=hs.REGISTRY[name]())


QUICK = ["ldp-online", "gradient-perturbation", "correlated-federated"]
CERTIFIED = [n for n in hs.REGISTRY if n != "federated-noiseless"]


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in CERTIFIED]
)
def test_no_transcript_moves_a_message_further_than_an_emptied_record_may(name, only_emptied):
    told = worst_cases.brute_force(subject(name))
    assert "3 of 3 small worlds" in told or "2 of 3 small worlds" in told


@pytest.mark.slow
@pytest.mark.parametrize("name", CERTIFIED)
def test_no_climb_does_either(name, only_emptied):
    worst_cases.climbing(subject(name))


def half_of_replace(self, reach):
    return self.unclipped_change(reach) / 2


def test_zero_out_taken_as_half_of_replace_is_caught(monkeypatch, only_emptied):
    """Of the squared loss a gradient of 2 (4 + 2) = 12 is certified as half of 16."""
    name = "gradient-perturbation"
    assert "largest found / allowed" in worst_cases.brute_force(subject(name))
    monkeypatch.setattr(Squared, "unclipped_longest", half_of_replace)
    with pytest.raises(Broken, match="further than the certificate allows"):
        worst_cases.brute_force(subject(name))


def test_a_climb_reaches_the_certificate_with_an_empty_record_and_not_the_other_one(monkeypatch):
    """What emptying a record does is as near to its certificate as replacing it is to its own."""
    problem = holding(FREE, *uniform(3, 4), hs.problems.Ball(4.0), adjacency="zero-out")
    algorithm = hs.gradient_perturbation(step=0.3, coupling=0.3, noise=1.0, sampling=hs.Fresh())
    found = search(algorithm, problem, GRAPH, agent=1, steps=3, iterations=8)
    assert 0.9 < found.worst <= 1 + 1e-9
    there, empty = (np.asarray(one.features) for one in found.pair)
    changed = np.flatnonzero((there != empty).any(axis=1))
    assert changed.tolist() == [found.row] and not empty[found.row].any()
    monkeypatch.setattr(Squared, "unclipped_longest", half_of_replace)
    assert search(algorithm, problem, GRAPH, agent=1, steps=3, iterations=8).worst > 1.4


def test_pairs_worth_telling_apart_have_an_empty_record():
    problem = holding(FREE, *uniform(3, 4), adjacency="zero-out")
    for pair in candidates(hs.ldp_online(), problem, GRAPH, 1, 3):
        first, second = (np.asarray(one.features) for one in pair[:2])
        row = np.flatnonzero((first != second).any(axis=1))
        assert len(row) == 1 and not second[row].any() and first[row].all()
        assert "emptied" in pair.words


def test_an_empty_record_of_a_network_counts_nothing_and_keeps_its_place():
    loss = Logistic(2.0, 0.5, clip=0.7)
    rng = np.random.default_rng(0)
    features, weights = jnp.asarray(rng.normal(size=(4, 3))), jnp.full(4, 0.25)
    labels, point = jnp.asarray([1.0, EMPTY, 0.0, 1.0]), jnp.asarray(rng.normal(size=3))
    batch = Batch(features, labels, weights, with_empty(loss))
    kept = np.array([0, 2, 3])
    expected = loss.gradient_sum(point, features[kept], labels[kept], weights[kept])
    found = batch.gradient(point)
    np.testing.assert_allclose(found, expected + 0.5 * point, rtol=1e-12)
    # Step by step: the empty record's step is the regulariser's alone.
    alone = Batch(features[1:2], labels[1:2], jnp.ones(1), with_empty(loss))
    np.testing.assert_allclose(alone.descended(point, jnp.asarray(0.1)), 0.95 * point, rtol=1e-12)


@pytest.mark.slow
def test_canaries_that_are_there_or_empty_are_told_apart_and_not_too_well():
    """Little noise: most guesses are right. Wrong with probability 1e-3 at most."""
    problem = hs.problems.logistic(agents=2, clip=1.0, adjacency="zero-out")
    algorithm = hs.gradient_perturbation(
        step=0.5, noise=0.01, mechanism="gaussian", sampling=hs.Cyclic(2)
    )
    found = one_run(algorithm, problem, hs.graphs.ring(2), steps=30, canaries=58, delta=1e-5)
    assert found.holds and found.right > 0.75 * found.guesses
    certified = hs.certify(algorithm, problem, hs.graphs.ring(2), 30, delta=1e-5)
    assert certified.adjacency == "zero-out" and found.certified == certified.epsilon[0]
