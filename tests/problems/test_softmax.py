"""Softmax regression: gradients are those of the plain formula, and every bound that a certificate
uses is true and, where the docstring says so, no larger than needed.
"""

from __future__ import annotations

import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize

import hearsay as hs
from hearsay import problems
from hearsay.privacy.adjacency import ZERO_OUT
from hearsay.problems import Ball, Softmax
from hearsay.simulation.optimum import Reference

WIDTH = 3
BALL = Ball(1e5)


def records(loss: Softmax, rng: np.random.Generator, rows: int = 6):
    a = rng.normal(size=(rows, WIDTH))
    a *= loss.feature_bound * rng.uniform(size=(rows, 1)) / np.linalg.norm(a, axis=1)[:, None]
    return a, rng.integers(0, loss.classes, rows).astype(float)


def plain(params, a, y, classes):
    """One record's loss, as it is printed everywhere."""
    m = params.reshape(classes, -1) @ a
    return jnp.log(jnp.sum(jnp.exp(m))) - m[y.astype(int)]


def gradients(loss: Softmax, params: np.ndarray, a: np.ndarray, y: np.ndarray) -> np.ndarray:
    """(records, parameters): each record's own."""
    residual = loss.clipped_residual(loss.margins(params, a), y, a)
    return (residual[:, :, None] * a[:, None, :]).reshape(len(y), -1)


@pytest.mark.parametrize("classes", [2, 5])
def test_values_and_gradients_against_automatic_differentiation(classes):
    loss, rng = Softmax(2.0, classes, 0.1), np.random.default_rng(0)
    (a, y), weights = records(loss, rng), rng.uniform(size=6)
    params = rng.normal(size=classes * WIDTH)
    each = jax.vmap(jax.value_and_grad(plain), (None, 0, 0, None))
    value, slope = jax.jit(each, static_argnums=3)(params, a, y, classes)
    for xp in (np, jnp):
        p, f, b, w = (xp.asarray(part) for part in (params, a, y, weights))
        np.testing.assert_allclose(loss.values(loss.margins(p, f), b), value, rtol=1e-12)
        np.testing.assert_allclose(loss.gradient_sum(p, f, b, w), weights @ slope, atol=1e-12)
    values, right = loss.score(*(jnp.asarray(part) for part in (params, a, y)))
    np.testing.assert_allclose(values, value, rtol=1e-12)
    best = np.argmax(a @ params.reshape(classes, -1).T, axis=1)
    np.testing.assert_array_equal(right, best == y)


def test_two_classes_are_the_logistic_model_of_their_difference():
    rng = np.random.default_rng(0)
    loss = Softmax(2.0, 2)
    (a, y), params = records(loss, rng), rng.normal(size=2 * WIDTH)
    margin = a @ (params[WIDTH:] - params[:WIDTH])
    same = problems.Logistic(2.0)
    np.testing.assert_allclose(
        loss.residual(loss.margins(params, a), y)[:, 1], same.residual(margin, y), atol=1e-14
    )
    np.testing.assert_allclose(
        loss.values(loss.margins(params, a), y), same.values(margin, y), rtol=1e-12
    )


@pytest.mark.parametrize("clip", [None, 0.7])
def test_change_and_longest_bound_what_any_record_does(clip):
    loss, rng = Softmax(1.5, 4, 0.1, clip), np.random.default_rng(1)
    longest, change = loss.change(BALL, 12, ZERO_OUT), loss.change(BALL, 12)
    assert (longest, change) == ((0.7, 1.4) if clip else (1.5 * 2**0.5, 2 * 1.5 * 2**0.5))
    for _ in range(200):
        params = rng.normal(size=4 * WIDTH) * 10.0 ** rng.uniform(-1, 4)
        found = gradients(loss, params, *records(loss, rng, 20))
        gaps = np.linalg.norm(found[:, None] - found[None], axis=2)
        assert np.linalg.norm(found, axis=1).max() <= longest * (1 + 1e-12)
        assert gaps.max() <= change * (1 + 1e-12)


def test_the_change_is_approached_and_never_attained():
    """The records a and almost -a, both of class 0 and both taken for class 1."""
    loss, turn = Softmax(1.0, 3), 0.01
    a = np.array([[1.0, 0.0, 0.0], [-math.cos(turn), math.sin(turn), 0.0]])
    # Of a model of length R, margins of -a and of a's like differ by R turn at most.
    towards = np.linalg.lstsq(a, np.ones(2), rcond=None)[0]
    for size, share in ((5.0, 0.99), (20.0, 0.9999)):
        params = np.zeros((3, WIDTH))
        params[1] = size * towards
        first, second = gradients(loss, params.ravel(), a, np.zeros(2))
        gap = np.linalg.norm(first - second)
        assert share * 2 * 2**0.5 < gap < 2 * 2**0.5
        assert np.linalg.norm(first) < 2**0.5


def test_a_search_finds_no_more_than_the_change_and_nearly_all_of_it():
    loss = Softmax(1.0, 3)

    def apart(flat: np.ndarray) -> float:
        a = flat[:4].reshape(2, 2)
        a = a / np.linalg.norm(a, axis=1, keepdims=True)
        first, second = gradients(loss, 30 * flat[4:], a, np.array([0.0, 0.0]))
        return -float(np.linalg.norm(first - second))

    rng, best = np.random.default_rng(0), 0.0
    for _ in range(8):
        best = max(best, -optimize.minimize(apart, rng.normal(size=10), method="Powell").fun)
    assert 0.99 < best / loss.change(BALL, 6) < 1


def jacobian(loss: Softmax, params: np.ndarray, a: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Of the mean gradient, by central differences: good to about 1e-9."""
    weights, nudge = np.ones(len(y)) / len(y), 1e-5 * np.eye(len(params))
    up, down = (
        np.array([loss.gradient_sum(params + n, a, y, weights) for n in sign * nudge])
        for sign in (1, -1)
    )
    return (up - down).T / 2e-5 + loss.regulariser * np.eye(len(params))


def test_the_curvature_interval_contains_every_hessian_and_is_attained():
    loss, rng = Softmax(1.5, 4, 0.1), np.random.default_rng(2)
    low, high = loss.curvature
    assert (low, high) == (0.1, 1.5**2 / 2 + 0.1)
    for _ in range(20):
        params = rng.normal(size=4 * WIDTH) * 10.0 ** rng.uniform(-1, 1)
        values = np.linalg.eigvalsh(jacobian(loss, params, *records(loss, rng)))
        assert low - 1e-7 <= values[0] and values[-1] <= high + 1e-7
    # Two classes at one half each, the others ruled out.
    params = np.zeros((4, WIDTH))
    params[2:, 0] = -50.0
    one = np.array([[1.5, 0.0, 0.0]])
    values = np.linalg.eigvalsh(jacobian(loss, params.ravel(), one, np.zeros(1)))
    np.testing.assert_allclose([values[0], values[-1]], [low, high], rtol=1e-7)


@pytest.mark.parametrize("classes", [2, 3, 10])
def test_clipped_gradients_at_two_points_obey_the_interval(classes):
    """|g(x) - g(y) - z (x - y)| <= w |x - y|: what certificates use; where a clip is active the
    gradient may even turn back (K > 2), so that no interval from the ridge on would do.
    """
    loss, rng = Softmax(1.0, classes, 0.05, 0.3), np.random.default_rng(3)
    low, high = loss.curvature
    middle, half = (low + high) / 2, (high - low) / 2
    # With one feature of length 1 the model is the margins.
    a, worst, back = np.ones((5000, 1)), 0.0, np.inf
    for spread in (0.3, 1.0, 3.0):
        y = rng.integers(0, classes, 5000).astype(float)
        x = spread * rng.normal(size=(5000, classes))
        moved = 10.0 ** rng.uniform(-4, 0, (5000, 1)) * rng.normal(size=x.shape)
        there, here = (loss.clipped_residual(point, y, a) for point in (x + moved, x))
        gap, size = there - here + 0.05 * moved, np.linalg.norm(moved, axis=1)
        worst = max(worst, float((np.linalg.norm(gap - middle * moved, axis=1) / size).max()))
        back = min(back, float((np.sum(gap * moved, axis=1) / size**2).min()))
    assert worst <= half * (1 + 1e-9)
    assert low == (0.05 if classes == 2 else 0.05 - 1 / 6)
    assert back >= low - 1e-9


def test_a_clipped_gradient_can_turn_back():
    """Why the interval begins below the ridge."""
    loss, rng = Softmax(1.0, 3, 0.0, 0.1), np.random.default_rng(0)
    found = [
        jacobian(loss, 2 * rng.normal(size=3), np.ones((1, 1)), np.zeros(1)) for _ in range(40)
    ]
    least = min(np.linalg.eigvalsh(one + one.T)[0] / 2 for one in found)
    assert loss.curvature[0] < least < -1e-4


def test_the_bound_on_products_behind_the_interval():
    """|S H - I / 3| <= 2/3 for symmetric 0 <= S, H <= 1, attained where both are the identity."""
    rng = np.random.default_rng(0)

    def drawn(size: int) -> np.ndarray:
        turned = np.linalg.qr(rng.normal(size=(size, size)))[0]
        # Projections are the worst.
        values = np.round(rng.uniform(size=size)) if rng.uniform() < 0.7 else rng.uniform(size=size)
        return (turned * values) @ turned.T

    found = [
        np.linalg.norm(drawn(size) @ drawn(size) - np.eye(size) / 3, 2)
        for size in (1, 2, 3, 5)
        for _ in range(500)
    ]
    assert 0.66 < max(found) <= 2 / 3 + 1e-12


@pytest.mark.parametrize("clip", [1e-30, 1e-7, 1.0, 1e30])
def test_no_record_exceeds_the_clip_whatever_it_holds(clip):
    """In compiled float32, over all sizes of features that it has."""
    rng = np.random.default_rng(0)
    features = rng.uniform(-1, 1, (2000, 3)) * 10.0 ** rng.uniform(-44, 38.5, (2000, 1))
    features = np.clip(features, -3.4e38, 3.4e38).astype(np.float32)
    features[:3] = [np.inf] * 3, [np.nan, 1, 1], [-np.inf, 1, np.inf]
    loss, labels = Softmax(np.inf, 4, 0.0, clip), np.arange(2000, dtype=np.float32) % 4

    @jax.jit
    def each(features, labels):
        one = lambda f, b: loss.gradient_sum(  # noqa: E731
            jnp.arange(12, dtype=jnp.float32) / 12, f[None], b[None], jnp.ones(1, jnp.float32)
        )
        return jax.vmap(one)(features, labels)

    found = np.asarray(each(features, labels), np.float64)
    # Infinite features are refused before (require_admissible).
    assert np.linalg.norm(found[3:], axis=1).max() <= clip * (1 + 1e-5)
    lengths = np.linalg.norm(features[3:].astype(float), axis=1)
    # Those that no clip touches, as directions: float32 knows p - e_y up to a rounding of 1.
    free = (lengths < 0.1 * clip) & (lengths > 1e-33) & (lengths < 1e30)
    given = features[3:][free].astype(float), labels[3:][free].astype(float)
    expected = gradients(replace(loss, clip=None), np.arange(12.0) / 12, *given)
    off = np.abs(found[3:][free] - expected) / lengths[free, None]
    assert free.sum() > 30 and off.max() < 1e-5


def test_extreme_margins_stay_finite():
    loss, labels = Softmax(1.0, 3), np.zeros(3)
    margins = np.array([[1e300, -1e300, 0.0], [-1e300, 1e300, 0.0], [0.0, 0.0, 0.0]])
    with np.errstate(all="raise", under="ignore"):
        np.testing.assert_allclose(loss.values(margins, labels), [0.0, 2e300, math.log(3)])
        residual = loss.residual(margins, labels)
    np.testing.assert_allclose(residual, [[0, 0, 0], [-1, 1, 0], [-2 / 3, 1 / 3, 1 / 3]])


@pytest.mark.parametrize(
    "options, message",
    [
        ({"classes": 1}, "classes must be"),
        ({"classes": 2.5}, "classes must be"),
        ({"feature_bound": -1.0}, "feature_bound must be"),
        ({"ridge": -1.0}, "ridge must be"),
        ({"clip": 0.0}, "clip must be"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        Softmax(**{"feature_bound": 1.0, "classes": 3, **options})


def test_digits_have_their_ten_classes():
    problem = problems.softmax("digits", agents=3)
    odd = problems.logistic("digits", agents=3)
    np.testing.assert_array_equal(np.unique(problem.labels), np.arange(10))
    np.testing.assert_array_equal(problem.features, odd.features)
    np.testing.assert_array_equal(problem.labels % 2, odd.labels)
    np.testing.assert_array_equal(problem.test_labels % 2, odd.test_labels)
    assert problem.loss == Softmax(1.0, 10, 0.01) and problem.dimension == 640
    assert problem.assumptions == odd.assumptions
    with pytest.raises(ValueError, match="labels must be 0 or 1, got"):
        problems.logistic(problems.load("digits", every_class=True))


def wards(classes: int = 3):
    rng = np.random.default_rng(0)
    return [(rng.normal(size=(n, 2)), rng.integers(0, classes, n).astype(float)) for n in (12, 30)]


def test_one_set_per_agent():
    problem = problems.softmax(wards(), classes=4, feature_bound=2.0, test=wards()[0])
    assert problem.loss.classes == 4  # a class that nobody has is one all the same
    assert np.linalg.norm(problem.features, axis=2).max() <= 2
    assert len(problem.test_labels) == 12
    sets = [problems.from_arrays(*one, feature_bound=2.0, classes=3) for one in wards()]
    assert problems.softmax(sets).loss.classes == 3
    assert problems.softmax(sets[1], agents=2).loss.classes == 3
    two = problems.from_arrays(wards(2)[0][0], wards(2)[0][1], feature_bound=2.0)
    assert problems.softmax(two, agents=2).loss.classes == 2


@pytest.mark.parametrize(
    "data, options, message",
    [
        (wards(), {"feature_bound": 2.0}, "classes must be given with pairs"),
        (wards(), {"classes": 3}, "feature_bound must be given with pairs"),
        (
            wards(),
            {"feature_bound": 2.0, "classes": 2},
            "data of agent 0: labels must be 0 or 1, got 2 in row",
        ),
        ("digits", {"classes": 10}, "classes must be left out where one data set is dealt out"),
        (
            wards(),
            {"feature_bound": 2.0, "classes": 3, "test": (np.ones((1, 2)), [3.0])},
            "test: labels must be whole numbers from 0 to 2, got 3 in row 0",
        ),
    ],
)
def test_data_that_do_not_fit_are_refused(data, options, message):
    with pytest.raises(ValueError, match=message):
        problems.softmax(data, **options)


@pytest.mark.parametrize("bad", [3.0, -1.0, 0.5])
def test_labels_that_are_no_class_are_refused_with_a_clip_too(bad):
    with pytest.raises(ValueError, match="labels must be whole numbers from 0 to 2") as error:
        Softmax(1.0, 3, clip=0.1).require_admissible(np.zeros((2, 3)), np.array([0.0, bad]))
    assert str(error.value).endswith("got another in row 1")


def test_the_reference_is_the_minimiser_inside_and_on_the_edge():
    problem = problems.softmax(wards(), classes=3, feature_bound=2.0, ridge=0.1, head_start=30)
    for one in (problem, replace(problem, domain=Ball(0.05), loss=replace(problem.loss, clip=0.2))):
        best = Reference(one).at(0)
        weights = np.concatenate([np.full(n, 1 / (2 * n)) for n in (12, 30)])
        a, y = (
            np.concatenate([part[i, :n] for i, n in enumerate((12, 30))])
            for part in (one.features, one.labels)
        )
        slope = replace(one.loss, clip=None).gradient_sum(best.params, a, y, weights)
        slope = slope + 0.1 * best.params
        # First-order optimality over the ball: the way down leads out of it.
        moved = one.domain.project(best.params - slope)
        np.testing.assert_allclose(moved, best.params, atol=1e-7)
    assert np.linalg.norm(best.params) == pytest.approx(0.05)


@pytest.mark.parametrize("sampling", [hs.History("full"), hs.Poisson(0.5)])
def test_a_run_without_noise_learns_and_is_measured_as_its_models_predict(sampling):
    problem = problems.softmax(
        wards(), classes=3, feature_bound=2.0, ridge=0.1, head_start=30, test=wards()[0]
    )
    algorithm = hs.gradient_perturbation(noise=0.0, step=0.4, coupling=0.3, sampling=sampling)
    run = hs.simulate(algorithm, problem, hs.graphs.ring(2), steps=150, every=150)
    found, best = run.models[0], Reference(problem).at(150)
    hits = [
        np.argmax(problem.test_features @ one.reshape(3, 2).T, axis=1) == problem.test_labels
        for one in found
    ]
    assert run.metrics["accuracy"][-1, 0] == pytest.approx(np.mean(hits))
    off = np.sum((found - best.params) ** 2, axis=1).mean()
    assert run.metrics["tracking_error"][-1, 0] == pytest.approx(off, rel=1e-6)
    objective = [
        np.mean(
            [
                problem.loss.values(problem.loss.margins(one, a[:n]), y[:n]).mean()
                for a, y, n in zip(problem.features, problem.labels, problem.counts, strict=True)
            ]
        )
        + 0.05 * one @ one
        for one in found
    ]
    assert run.metrics["regret"][-1, 0] == pytest.approx(np.mean(objective) - best.value, rel=1e-6)
    assert run.metrics["tracking_error"][-1, 0] < 0.1 * run.metrics["tracking_error"][0, 0]
