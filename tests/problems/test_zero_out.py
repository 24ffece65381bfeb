"""How long a record's gradient can be, held against a search over all admissible records and
points; what a task says of it, and what it refuses.
"""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

import hearsay as hs
from hearsay.problems.losses.domains import Ball, Box
from hearsay.problems.losses.linear import HalfSquared, Logistic, PolynomialLogistic, Squared
from hearsay.problems.losses.loss import Loss
from tests.factories import holding, uniform

D, RADIUS = 2, 5.0
LOSSES: dict[str, Loss] = {
    "logistic": Logistic(8.0, 0.1),
    "squared": Squared(1.0, 0.2, label_bound=1.0),
    "half squared": HalfSquared(1.5, 0.2, label_bound=0.5),
    "polynomial": PolynomialLogistic(1.0, 0.1, margin_bound=RADIUS),
    "logistic clipped": Logistic(2.0, 0.1, clip=0.4),
    "squared clipped": Squared(1.5, 0.2, label_bound=2.0, clip=0.7),
    "squared, loose clip": Squared(1.0, 0.2, label_bound=1.0, clip=100.0),
}
ZERO_OUT = {
    "logistic": 8.0,
    "squared": 12.0,
    "half squared": 1.5 * (1.5 * 5 + 0.5),
    "logistic clipped": 0.4,
    "squared clipped": 0.7,
    "squared, loose clip": 12.0,
}


def gradient(loss: Loss, point: np.ndarray, features: np.ndarray, label: float) -> np.ndarray:
    margin = np.asarray([features @ point])
    residual = loss.clipped_residual(margin, np.asarray([label]), features[None])
    return residual[0] * features


def farthest(loss: Loss, records: int) -> float:
    """The largest |g| (one record), or |g - g'| (two), over the ball: climbs from many starts, in
    variables that any value of is admissible.
    """
    low, high = loss.label_range
    rng = np.random.default_rng(0)

    def distance(free: np.ndarray) -> float:
        point = free[:D] * RADIUS / max(1.0, np.linalg.norm(free[:D]))
        found = []
        for part in free[D:].reshape(records, D + 1):
            features = part[:D] * loss.feature_bound / max(1.0, np.linalg.norm(part[:D]))
            label = low + (high - low) * np.clip(part[D], 0.0, 1.0)
            found.append(gradient(loss, point, features, label))
        return -float(np.linalg.norm(found[0] - (found[1] if records == 2 else 0.0)))

    starts = rng.normal(size=(20 if records == 1 else 6, D + records * (D + 1))) * 2
    ends = (
        minimize(distance, start, method="Powell", options={"maxiter": 300}) for start in starts
    )
    return max(-float(end.fun) for end in ends)


@pytest.mark.parametrize("name", LOSSES)
def test_the_longest_gradient_is_what_the_loss_says_and_is_reached(name):
    loss = LOSSES[name]
    bound = loss.change(Ball(RADIUS), D, "zero-out")
    found = farthest(loss, 1)
    assert found <= bound * (1 + 1e-9)
    assert found >= bound * (1 - 1e-6), "tight: nothing smaller would do"
    if name in ZERO_OUT:
        assert bound == pytest.approx(ZERO_OUT[name], rel=1e-12)


@pytest.mark.parametrize("name", ["squared", "polynomial", "logistic clipped"])
def test_replacing_a_record_moves_more_than_emptying_it_and_less_than_its_bound(name):
    loss, domain = LOSSES[name], Ball(RADIUS)
    found = farthest(loss, 2)
    emptied, replaced = loss.change(domain, D, "zero-out"), loss.change(domain, D)
    assert emptied * (1 - 1e-6) <= found <= replaced * (1 + 1e-9)


def test_zero_out_is_no_half_of_replace():
    """The example of the design: 14, 12, and not 7."""
    loss = LOSSES["squared"]
    assert loss.change(Ball(5.0), D) == pytest.approx(14.0)
    assert loss.change(Ball(5.0), D, "zero-out") == pytest.approx(12.0)


@pytest.mark.parametrize("norm", ["l2", "l1"])
def test_a_neural_networks_record_is_as_long_as_its_clip(norm):
    model, first = hs.problems.from_function(
        lambda params, record: jnp.sum(jnp.sin(params) * record[0]) * (1 + record[1]), jnp.ones(3)
    )
    loss = hs.problems.NeuralLoss(model, clip=0.3, norm=norm)
    domain = Ball(10.0) if norm == "l2" else Box(-10.0, 10.0)
    assert loss.change(domain, 3) == 0.6
    assert loss.change(domain, 3, "zero-out") == 0.3
    one = jax.jit(lambda a: loss.gradient_sum(jnp.asarray(first), a, jnp.ones(1), jnp.ones(1)))
    longest = max(
        float(np.linalg.norm(one(jnp.asarray(a)[None]), 1 if norm == "l1" else 2))
        for a in 5 * np.random.default_rng(1).normal(size=(20, 3))
    )
    assert longest == pytest.approx(0.3, rel=1e-4) and longest <= 0.3
    assert hs.problems.NeuralLoss(model).change(domain, 3, "zero-out") == np.inf


def test_an_empty_record_of_a_linear_model_is_one_without_features():
    """So emptying is one way of replacing, whatever the label, clipped or not."""
    for loss in LOSSES.values():
        for label in (0.0, 1.0):
            assert not gradient(loss, np.ones(D), np.zeros(D), label).any()


def test_a_loss_of_ones_own_is_bounded_by_its_change_unless_it_says_more():
    class Plain(Squared):
        unclipped_longest = hs.problems.losses.linear.LinearLoss.unclipped_longest

    loss = Plain(1.0, 0.0, 1.0)
    assert loss.change(Ball(5.0), 2, "zero-out") == loss.change(Ball(5.0), 2)


def test_a_loss_that_knows_no_adjacency_is_certified_under_replace_alone():
    class Earlier(Squared):
        def change(self, domain, dimension):
            return 3.0

    problem = holding(Earlier(1.0, 0.0, 1.0), *uniform(2, 4))
    assert problem.change == 3.0
    with pytest.raises(ValueError, match="the loss's change must be a method that takes an adj"):
        _ = problem.under("zero-out").change


def test_a_task_takes_its_change_from_its_adjacency():
    problem = hs.problems.ridge(agents=2, records=20, dimension=2)
    other = problem.under("zero-out")
    assert (problem.adjacency, other.adjacency, other.task.adjacency) == (
        "replace", "zero-out", "zero-out",
    )  # fmt: skip
    assert other.change == problem.change_under("zero-out") < problem.change
    assert other.change_under("replace") == problem.change == other.under("replace").change
    assert problem.under("replace") is problem
    assert other.task.digest() == problem.task.digest(), "no part of what a run is"


@pytest.mark.parametrize(
    "build",
    [
        lambda a: hs.problems.logistic(agents=2, adjacency=a),
        lambda a: hs.problems.ridge(agents=2, records=10, adjacency=a),
        lambda a: hs.problems.synthetic(agents=2, records=10, dimension=3, adjacency=a),
        lambda a: hs.problems.estimation(agents=2, clip=1.0, adjacency=a),
        lambda a: hs.problems.neural(model="mlp", agents=2, records=40, adjacency=a),
    ],
)
def test_every_problem_has_one(build):
    one, other = build("replace"), build("zero-out")
    assert other.change < one.change
    with pytest.raises(ValueError, match="adjacency must be one of replace, zero-out, got 'both'"):
        build("both")


@pytest.mark.parametrize("frozen", [False, True])
def test_a_declared_change_has_no_zero_out_certificate(frozen):
    problem = hs.problems.estimation(agents=2, frozen=frozen)
    rule = r"adjacency must be replace where the change .* is declared.*got 'zero-out'"
    with pytest.raises(ValueError, match=rule):
        problem.under("zero-out")
    with pytest.raises(ValueError, match=rule):
        hs.problems.estimation(agents=2, frozen=frozen, adjacency="zero-out")
    with pytest.raises(ValueError, match=rule):
        hs.certify(
            hs.gradient_perturbation(noise=1.0), problem, hs.graphs.ring(2), 5, adjacency="zero-out"
        )
    assert problem.change_under("zero-out") == np.inf


def test_a_trajectory_does_not_depend_on_it():
    problem = holding(Squared(1.0, 0.1, label_bound=1.0, clip=1.0), *uniform(2, 8))
    runs = [
        hs.simulate(hs.ldp_online(noise=3.0), one, hs.graphs.ring(2), steps=5, seeds=1)
        for one in (problem, problem.under("zero-out"))
    ]
    np.testing.assert_array_equal(runs[0].models, runs[1].models)
    assert runs[1].certificate.adjacency == "zero-out"
    assert max(runs[1].certificate.epsilon) < max(runs[0].certificate.epsilon)
    assert np.all(runs[1].spent <= runs[0].spent)


def test_a_resumed_run_may_be_certified_under_the_other(tmp_path):
    """A certificate is about all of a run, so it holds for one that was begun under the other."""
    problem = holding(Squared(1.0, 0.1, label_bound=1.0, clip=1.0), *uniform(2, 8))
    options = {"seeds": 1, "folder": tmp_path}
    hs.simulate(hs.ldp_online(noise=3.0), problem, hs.graphs.ring(2), steps=3, **options)
    other = problem.under("zero-out")
    rest = hs.simulate(
        hs.ldp_online(noise=3.0), other, hs.graphs.ring(2), steps=6, resume=True, **options
    )
    assert rest.certificate == hs.certify(hs.ldp_online(noise=3.0), other, hs.graphs.ring(2), 6)


def test_the_polynomial_loss_is_not_the_logistic_one():
    loss = replace(LOSSES["polynomial"])
    slope = loss.coefficients[1]
    assert loss.change(Ball(RADIUS), D, "zero-out") == pytest.approx(slope * RADIUS + 0.5)
