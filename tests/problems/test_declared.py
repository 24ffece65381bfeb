"""Bounds that are declared instead of enforced: where they may be used, what they cost,
and what says so.
"""

from __future__ import annotations

import math
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

import hearsay as hs
from hearsay.audit.brute_force import Transcript, replay
from hearsay.certification import spent_after
from hearsay.problems import Ball, Box, Declared, HalfSquared
from hearsay.problems.sampling.samplers import Records
from tests.factories import holding

INF = math.inf
GRAPH = hs.graphs.ring(6)
OUTPUT = hs.output_perturbation(sampling=hs.Fresh("(k+1)^1.1"))
GRADIENT = hs.gradient_perturbation(sampling=hs.Fresh("(k+1)^1.2"))


def test_a_private_state_needs_curvature_or_says_that_it_has_none():
    plain = hs.certify(OUTPUT, hs.problems.estimation(), GRAPH, INF)
    assert not plain.finite
    assert "nothing bounds the loss's curvature" in plain.budgets[0].reason
    assert (
        "nothing bounds the loss's curvature"
        in hs.certify(OUTPUT, hs.problems.estimation(), GRAPH, 50).budgets[0].reason
    )
    frozen = hs.certify(OUTPUT, hs.problems.estimation(frozen=True), GRAPH, INF)
    assert frozen.finite
    assert any("NOT a guarantee for records" in w for w in frozen.warnings)
    bounded = hs.certify(OUTPUT, hs.problems.estimation(feature_bound=1.0), GRAPH, INF)
    assert bounded.finite
    assert not any("NOT a guarantee" in w for w in bounded.warnings)
    # In l2, so sqrt(6) times the declared l1 change; alpha_k <= 2 (1 - beta_k) keeps the
    # contraction at 1 - beta_k.
    assert bounded.epsilon[0] == pytest.approx(math.sqrt(6) * frozen.epsilon[0], rel=1e-6)


def test_public_points_need_no_curvature():
    for problem in (hs.problems.estimation(), hs.problems.estimation(frozen=True)):
        certificate = hs.certify(GRADIENT, problem, GRAPH, INF)
        assert certificate.epsilon[0] == pytest.approx(0.2, rel=1e-8)
        assert not certificate.warnings
    enforced = hs.certify(GRADIENT, hs.problems.estimation(clip=0.1), GRAPH, INF)
    assert enforced.epsilon[0] == pytest.approx(0.2 * math.sqrt(6), rel=1e-8)
    assert not any(a.kind == "declared" for a in enforced.budgets[0].assumptions)


def test_a_declared_l1_change_survives_clipping_of_coordinates_only():
    """Projecting onto a ball can lengthen a distance in l1 by up to (1 + sqrt(d))/2:
    such a problem is refused.
    """
    stream = hs.problems.estimation()
    assert stream.domain == Box(-1e5, 1e5)
    with pytest.raises(
        ValueError, match="domain must be a Box where the change of a gradient is declared in l1"
    ):
        replace(stream, domain=Ball(1.0))
    with pytest.raises(
        ValueError, match="clip must be None where the change of a gradient is declared"
    ):
        replace(stream, loss=HalfSquared(INF, 0.0, INF, 1.0))
    with pytest.raises(ValueError, match="change must be left out when records are clipped"):
        hs.problems.estimation(change=0.2, clip=1.0)
    with pytest.raises(ValueError, match="frozen must be left out when records are clipped"):
        hs.problems.estimation(frozen=True, clip=1.0)


@pytest.mark.parametrize("name", ["gradient-perturbation", "adp2sgd", "sdm-dsgd", "pdop"])
def test_no_transcript_lengthens_a_declared_change(name):
    """A tight box and hostile neighbours: the l1 gap of a message never passes its share
    of the declared change.
    """
    rng, d = np.random.default_rng(3), 6
    features, labels = rng.normal(size=(3, 1, d)), np.zeros((3, 1))
    # One record whose gradient moves by exactly 0.2 in l1 wherever it is taken: the label changes,
    # the regressor stays.
    problem = holding(
        HalfSquared(INF, 0.0, INF), features, labels, Box(-1.0, 1.0), declared=Declared(0.2)
    )
    algorithm = hs.REGISTRY[name](
        step=hs.Constant(0.7), noise=hs.Constant(1.0), mechanism="laplace", sampling=hs.Cyclic()
    )
    # (params, awake)
    heard = (jnp.asarray(rng.normal(size=(300, 6, d)) * 2), jnp.ones((300, 6)))[
        : len(algorithm.channels)
    ]
    transcripts = Transcript(heard, heard)
    held = jnp.asarray(1, jnp.int32)
    first = Records(jnp.asarray(features[1]), jnp.zeros(1), held)
    second = first._replace(labels=jnp.asarray([0.2 / np.abs(features[1, 0]).sum()]))
    graph = hs.graphs.ring(3)
    a, b = (
        replay(algorithm, problem, graph, 1, records, transcripts)[0] for records in (first, second)
    )
    gap = np.abs(np.asarray(a - b)).sum(axis=-1)
    factor = 0.7 * (0.4 / 0.5 if name == "sdm-dsgd" else 1.0)
    assert gap.max() <= 0.2 * factor * (1 + 1e-9)
    assert gap.max() > 0.19 * factor


def test_the_clip_holds_for_features_whose_squares_vanish():
    loss = HalfSquared(INF, 0.0, INF, 1.0)
    for feature, label in ((1e-25, 1e30), (1e-170, 1e175), (1e200, 1e200), (3.0, -50.0)):
        features, labels = jnp.asarray([[feature, 0.0]]), jnp.asarray([label])
        gradient = loss.gradient_sum(jnp.zeros(2), features, labels, jnp.ones(1))
        assert float(jnp.linalg.norm(gradient)) <= 1 + 1e-9
        assert np.isfinite(gradient).all()


def test_an_unusable_bound_does_not_hide_a_usable_one():
    """No curvature but a clip: the clip's account counts,
    in certificates and in budget stops alike.
    """
    problem, algorithm = hs.problems.estimation(clip=1.0), OUTPUT
    certified = hs.certify(algorithm, problem, GRAPH, 5).epsilon[0]
    assert math.isfinite(certified)
    assert spent_after(algorithm, problem, GRAPH, [5])[0, 0] == pytest.approx(certified, rel=1e-8)
    run = hs.simulate(algorithm, problem, GRAPH, steps=5, budget=certified * 1.01)
    assert run.stopped is None


def test_a_stream_that_serves_fewer_steps_is_said():
    problem = hs.problems.ridge(agents=3, records=100, dimension=2)
    certificate = hs.certify(
        hs.output_perturbation(sampling=hs.Fresh("(k+1)^1")), problem, hs.graphs.ring(3), 50
    )
    assert (
        "the shortest stream serves 13 steps: a run ends there, before message 50"
        in certificate.warnings
    )


def test_checkpoints_of_another_stream_are_refused(tmp_path):
    hs.simulate(GRADIENT, hs.problems.estimation(seed=1), GRAPH, steps=4, folder=tmp_path)
    with pytest.raises(ValueError, match="another configuration"):
        hs.simulate(
            GRADIENT, hs.problems.estimation(seed=2), GRAPH, steps=6, folder=tmp_path, resume=True
        )


def test_sizes_beyond_counting_are_refused():
    with pytest.raises(ValueError, match=r"size must be below 2\^31 records a step"):
        hs.Fresh(hs.Geometric(1.0, 2.0)).windows(
            np.arange(40), np.full(2, INF), hs.problems.estimation().arrivals
        )


def test_frozen_is_no_guarantee_for_records():
    """Admissible records (the changed one moves its gradient by 0.2 in l1 everywhere) and hearsay's
    own replay: ten times the printed budget.
    """
    steps, d, length = 20, 6, 4.0
    rng = np.random.default_rng(0)
    total = int(OUTPUT.sampling.size(np.arange(steps)).sum())
    features = np.zeros((3, total, d))
    # Every regressor the same: each gradient pushes the two states apart where alpha L > 2.
    features[:, :, 0] = length
    labels = rng.normal(size=(3, total))
    declared = Declared(0.2, True)
    problem = holding(
        HalfSquared(INF, 0.0, INF), features, labels, Box(-1e5, 1e5), declared=declared
    )
    first = Records(jnp.asarray(features[1]), jnp.asarray(labels[1]), jnp.asarray(total, jnp.int32))
    second = first._replace(labels=first.labels.at[0].add(0.2 / length))
    zero = (jnp.zeros((1, steps, d)),)
    graph = hs.graphs.ring(3)
    a, b = (
        replay(OUTPUT, problem, graph, 1, records, Transcript(zero, zero))[0]
        for records in (first, second)
    )
    lost = float(np.sum(np.abs(np.asarray(a - b)).sum(axis=-1)[0] / OUTPUT.noise(np.arange(steps))))
    printed = hs.certify(OUTPUT, problem, graph, steps).epsilon[1]
    print(f"printed {printed:.3f}, lost {lost:.3f}")
    assert lost > 10 * printed
