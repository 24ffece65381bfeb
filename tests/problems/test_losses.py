"""Losses: gradients are those of the plain formulas, and every bound that a
certificate uses is true.
"""

from __future__ import annotations

import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hearsay.problems.losses.domains import Ball, Box
from hearsay.problems.losses.linear import Logistic, PolynomialLogistic, Squared, polynomial
from hearsay.problems.losses.loss import Loss
from hearsay.problems.sampling.samplers import Batch

D, ROWS, RADIUS = 3, 6, 3.0
LOSSES: dict[str, Loss] = {
    "logistic": Logistic(2.0, 0.1),
    "squared": Squared(1.5, 0.2, label_bound=2.0),
    "polynomial": PolynomialLogistic(1.0, 0.1, margin_bound=RADIUS),
    "logistic clipped": Logistic(2.0, 0.1, clip=0.4),
    "squared clipped": Squared(1.5, 0.2, label_bound=2.0, clip=0.7),
}
PLAIN = [name for name in LOSSES if "clipped" not in name]


def plain(loss: Loss, params, a, b):
    """One record's loss, as printed in the papers, without the regulariser."""
    m = a @ params
    if isinstance(loss, Logistic):
        return jnp.log(1 + jnp.exp(m)) - b * m
    if isinstance(loss, Squared):
        return (m - b) ** 2
    # Degree-2 interpolation of an even function at the Chebyshev nodes 0 and +-sqrt(3)/2 M.
    node = loss.margin_bound * math.sqrt(3) / 2
    bend = (math.log(2 * math.cosh(node / 2)) - math.log(2)) / node**2
    return math.log(2) + bend * m**2 + m / 2 - b * m


def records(loss: Loss, rng: np.random.Generator, rows: int = ROWS, full: bool = False):
    """Admissible records; `full` ones are as long as allowed, with extreme labels."""
    a = rng.normal(size=(rows, D))
    length = 1.0 if full else rng.uniform(size=(rows, 1))
    a *= loss.feature_bound * length / np.linalg.norm(a, axis=1, keepdims=True)
    if isinstance(loss, Squared):
        b = loss.label_bound * (rng.choice([-1.0, 1.0], rows) if full else rng.uniform(-1, 1, rows))
    else:
        b = rng.integers(0, 2, rows).astype(float)
    return a, b


def inside(rng: np.random.Generator, radius: float = RADIUS) -> np.ndarray:
    point = rng.normal(size=D)
    return point * radius * rng.uniform() / np.linalg.norm(point)


@pytest.mark.parametrize("name", PLAIN)
def test_values_and_gradients_against_automatic_differentiation(name):
    loss, rng = LOSSES[name], np.random.default_rng(0)
    for _ in range(5):
        (a, b), params = records(loss, rng), inside(rng)
        weights = rng.uniform(size=ROWS)

        def total(params, a=a, b=b, weights=weights):
            return sum(weights[i] * plain(loss, params, a[i], b[i]) for i in range(ROWS))

        margin = jnp.asarray(a @ params)
        np.testing.assert_allclose(
            weights @ loss.values(margin, jnp.asarray(b)), total(params), rtol=1e-12
        )
        mine = loss.gradient_sum(*map(jnp.asarray, (params, a, b, weights)))
        np.testing.assert_allclose(
            mine, jax.grad(total)(jnp.asarray(params)), rtol=1e-10, atol=1e-12
        )


@pytest.mark.parametrize("name", LOSSES)
def test_gradient_sum_against_a_loop_that_clips_each_record(name):
    loss, rng = LOSSES[name], np.random.default_rng(1)
    record_gradient = jax.grad(lambda params, a, b: plain(loss, params, a, b))
    for _ in range(5):
        (a, b), params = records(loss, rng), inside(rng)
        weights, expected = rng.uniform(size=ROWS), np.zeros(D)
        for i in range(ROWS):
            g = np.asarray(record_gradient(jnp.asarray(params), a[i], b[i]))
            if loss.clip is not None:
                g = g * min(1.0, loss.clip / np.linalg.norm(g))
            expected += weights[i] * g
        mine = loss.gradient_sum(*map(jnp.asarray, (params, a, b, weights)))
        np.testing.assert_allclose(mine, expected, rtol=1e-10, atol=1e-12)
        host = loss.clipped_residual(a @ params, b, a)
        assert isinstance(host, np.ndarray), "the reference works in NumPy"
        np.testing.assert_allclose((host * weights) @ a, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", LOSSES)
def test_a_batch_adds_the_regulariser_once(name):
    loss, rng = LOSSES[name], np.random.default_rng(2)
    (a, b), params = records(loss, rng), inside(rng)
    batch = Batch(*map(jnp.asarray, (a, b, np.full(ROWS, 1 / ROWS))), loss)
    data = loss.gradient_sum(*map(jnp.asarray, (params, a, b, np.full(ROWS, 1 / ROWS))))
    # r |theta|^2 against r/2 |theta|^2.
    weight = 2 * loss.ridge if isinstance(loss, Squared) else loss.ridge
    np.testing.assert_allclose(
        batch.gradient(jnp.asarray(params)) - data, weight * params, rtol=1e-10
    )


finite = st.floats(-1e6, 1e6, allow_nan=False)


@settings(max_examples=200, deadline=None)
@given(
    features=st.lists(finite, min_size=D, max_size=D),
    params=st.lists(finite, min_size=D, max_size=D),
    label=finite,
    clip=st.floats(1e-3, 1e3),
    kind=st.sampled_from([Logistic, Squared]),
)
def test_no_record_exceeds_the_clip_bound_whatever_it_holds(features, params, label, clip, kind):
    """Records far outside the declared bounds, too: the clip does not rest on them."""
    loss = kind(1.0, 0.0, clip=clip)
    a = np.array([features])
    residual = loss.clipped_residual(a @ np.array(params), np.array([label]), a)
    assert np.linalg.norm(residual[0] * a[0]) <= clip * (1 + 1e-12)


def hessian_eigenvalues(loss: Loss, a, b, params) -> np.ndarray:
    batch = Batch(*map(jnp.asarray, (a, b, np.full(len(b), 1 / len(b)))), loss)
    return np.linalg.eigvalsh(np.asarray(_jacobian(batch, jnp.asarray(params))))


@jax.jit
def _jacobian(batch, params):
    return jax.jacfwd(batch.gradient)(params)


@pytest.mark.parametrize("name", LOSSES)
def test_the_curvature_interval_contains_every_hessian(name):
    loss, rng = LOSSES[name], np.random.default_rng(3)
    low, high = loss.curvature
    for trial in range(60):
        a, b = records(loss, rng, full=trial % 2 == 1)
        values = hessian_eigenvalues(loss, a, b, inside(rng))
        assert values.min() >= low - 1e-12
        assert values.max() <= high + 1e-12


@pytest.mark.parametrize("name", PLAIN)
def test_the_curvature_interval_is_attained(name):
    """Records along one axis: nothing but the regulariser elsewhere,
    and the largest slope (at margin 0) along it.
    """
    loss = LOSSES[name]
    a = np.zeros((ROWS, D))
    a[:, 0] = loss.feature_bound
    values = hessian_eigenvalues(loss, a, np.zeros(ROWS), np.zeros(D))
    np.testing.assert_allclose([values.min(), values.max()], loss.curvature, rtol=1e-12)


@pytest.mark.parametrize("name", LOSSES)
def test_a_clipped_or_plain_residual_never_decreases_in_the_margin(name):
    """Convexity: with features of fixed length the clipped residual is monotone and no steeper
    than the plain one.
    """
    loss = LOSSES[name]
    margin = np.linspace(-40, 40, 20_001)
    a = np.zeros((len(margin), D))
    a[:, 0] = loss.feature_bound
    for label in (0.0, 1.0):
        slopes = np.diff(loss.clipped_residual(margin, np.full_like(margin, label), a)) / np.diff(
            margin
        )
        assert slopes.min() >= -1e-9
        assert slopes.max() * loss.feature_bound**2 + loss.regulariser <= loss.curvature[1] * (
            1 + 1e-9
        )


def record_gradients(loss: Loss, params, a, b) -> np.ndarray:
    return loss.clipped_residual(a @ params, b, a)[:, None] * a


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("domain", [Ball(RADIUS), Box(-1.0, 1.5)], ids=str)
def test_change_bounds_what_replacing_a_record_does(name, domain):
    loss, rng = LOSSES[name], np.random.default_rng(4)
    bound, largest = loss.change(domain, D), 0.0
    for trial in range(300):
        one, two = records(loss, rng, 20, trial % 2 == 1), records(loss, rng, 20, trial % 3 > 0)
        params = np.asarray(
            domain.project(jnp.asarray(rng.normal(size=D) * 10.0 ** rng.integers(-1, 3)))
        )
        if trial % 5 == 0:  # aligned with the parameters, where quadratic losses move most
            direction = params / max(np.linalg.norm(params), 1e-9) * loss.feature_bound
            two = (np.outer(rng.choice([-1.0, 1.0], 20), direction), one[1][::-1])
        gap = (
            record_gradients(loss, params, *one)[:, None]
            - record_gradients(loss, params, *two)[None]
        )
        largest = max(largest, float(np.linalg.norm(gap, axis=-1).max()))
    assert largest <= bound * (1 + 1e-12)
    assert largest > 0.5 * bound, "the search should come near the bound, or it tests nothing"


def test_the_change_of_the_logistic_loss_is_nearly_reached():
    """Two records almost at right angles to the model, on either side of it:
    one is surely 1 and labelled 0, the other the reverse.
    """
    loss, domain, tilt = LOSSES["logistic"], Ball(1e3), 0.1
    params = np.array([domain.radius, 0.0, 0.0])
    a = loss.feature_bound * np.array(
        [[math.sin(tilt), math.cos(tilt), 0], [-math.sin(tilt), math.cos(tilt), 0]]
    )
    one, two = record_gradients(loss, params, a, np.array([0.0, 1.0]))
    assert 0.9 * loss.change(domain, D) < np.linalg.norm(one - two) <= loss.change(domain, D)


def test_the_change_of_the_squared_loss_is_reached_along_the_model():
    """Features along the model with the label against it, exchanged for features at right angles,
    give most of it.
    """
    loss, rng = LOSSES["squared"], np.random.default_rng(5)
    best = 0.0
    for _ in range(4000):
        a, b = records(loss, rng, 2, full=True)
        params = RADIUS * a[0] / np.linalg.norm(a[0])
        one, two = record_gradients(loss, params, a, b)
        best = max(best, float(np.linalg.norm(one - two)))
    assert 0.7 * loss.change(Ball(RADIUS), D) < best <= loss.change(Ball(RADIUS), D)


def test_clipping_caps_the_change():
    assert LOSSES["logistic clipped"].change(Ball(RADIUS), D) == 0.8
    assert Logistic(0.1, 0.0, clip=5.0).change(Ball(RADIUS), D) == pytest.approx(0.2), (
        "a loose clip does not widen it"
    )
    tight = replace(LOSSES["squared"], clip=None)
    assert tight.change(Ball(RADIUS), D) == pytest.approx(2 * 1.5**2 * RADIUS + 4 * 1.5 * 2)


@pytest.mark.parametrize("bound", [0.5, 4.0, 30.0])
def test_the_stated_approximation_error_is_true_and_no_larger_than_needed(bound):
    """On a grid of margins that is not the one it was computed on."""
    exact, approximate = Logistic(1.0), PolynomialLogistic(1.0, margin_bound=bound)
    margin = np.linspace(-bound, bound, 33_333)
    value, slope = approximate.approximation_error
    for label in (0.0, 1.0):
        labels = np.full_like(margin, label)
        off = np.abs(exact.values(margin, labels) - approximate.values(margin, labels))
        steep = np.abs(exact.residual(margin, labels) - approximate.residual(margin, labels))
        assert off.max() == pytest.approx(value, rel=1e-3)
        assert steep.max() == pytest.approx(slope, rel=1e-3)
        assert off.max() <= value * (1 + 1e-6)
        assert steep.max() <= slope * (1 + 1e-6)


def test_the_polynomial_of_a_problem_covers_its_margins():
    loss = polynomial(Logistic(2.0, 0.3), Ball(5.0), D)
    assert (loss.margin_bound, loss.feature_bound, loss.ridge) == (10.0, 2.0, 0.3)
    assert polynomial(Logistic(2.0), Box(-1.0, 2.0), 4).margin_bound == pytest.approx(
        2.0 * 2.0 * 2.0
    )
    for radius in (15.1, 1e5):
        with pytest.raises(
            ValueError, match=r"radius must be at most 15 for the polynomial loss .* got"
        ):
            polynomial(Logistic(2.0), Ball(radius), D)
    with pytest.raises(ValueError, match="clip must be None for the polynomial loss"):
        polynomial(Logistic(2.0, clip=1.0), Ball(5.0), D)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"feature_bound": 0.0}, "feature_bound must be positive, got 0.0"),
        ({"feature_bound": 1.0, "ridge": -0.1}, "ridge must be zero or positive, got -0.1"),
        ({"feature_bound": 1.0, "label_bound": 0.0}, "label_bound must be positive"),
        ({"feature_bound": 1.0, "clip": 0.0}, "clip must be positive, got 0.0"),
        ({"feature_bound": math.nan}, "feature_bound must be finite"),
    ],
)
@pytest.mark.parametrize("kind", [Logistic, Squared, PolynomialLogistic])
def test_bad_options_are_named(kind, options, message):
    with pytest.raises(ValueError, match=message):
        kind(**options)


def test_statistics_are_exact_only_for_plain_quadratic_losses():
    assert LOSSES["squared"].affine() == 2.0
    assert LOSSES["polynomial"].affine() == LOSSES["polynomial"].coefficients[1]
    assert LOSSES["logistic"].affine() is LOSSES["squared clipped"].affine() is None
    for name in ("squared", "polynomial"):
        loss = LOSSES[name]
        margin, labels = np.linspace(-3, 3, 7), np.ones(7)
        line = loss.affine() * margin + loss.residual(np.zeros(7), labels)
        np.testing.assert_allclose(loss.residual(margin, labels), line, rtol=1e-12)


def test_extreme_margins_stay_finite():
    margin = np.array([-1e4, 1e4])
    for xp in (np.asarray, jnp.asarray):
        values = LOSSES["logistic"].values(xp(margin), xp(np.array([0.0, 1.0])))
        np.testing.assert_allclose(values, 0, atol=1e-12)
        np.testing.assert_array_equal(
            LOSSES["logistic"].residual(xp(margin), xp(np.array([1.0, 0.0]))), [-1, 1]
        )


def test_predictions():
    np.testing.assert_array_equal(LOSSES["logistic"].predict(jnp.array([-1.0, 0.1])), [0, 1])
    np.testing.assert_array_equal(LOSSES["squared"].predict(jnp.array([0.4, 0.6])), [0, 1])


@pytest.mark.parametrize("domain", [Ball(2.0), Box(-1.0, 0.5)], ids=str)
def test_projection_is_the_nearest_point_and_reach_the_longest(domain):
    rng = np.random.default_rng(6)
    inside_points = np.stack(
        [domain.project(jnp.asarray(p)) for p in rng.normal(size=(200, D)) * 3]
    )
    assert np.linalg.norm(inside_points, axis=1).max() <= domain.reach(D) * (1 + 1e-12)
    for point in rng.normal(size=(20, D)) * 3:
        nearest = np.asarray(domain.project(jnp.asarray(point)))
        assert (
            np.linalg.norm(point - nearest)
            <= np.linalg.norm(point - inside_points, axis=1).min() + 1e-12
        )
        np.testing.assert_allclose(domain.project(jnp.asarray(nearest)), nearest, atol=1e-12)
    np.testing.assert_array_equal(domain.project(jnp.zeros(D)), np.zeros(D))


def test_bad_domains_are_named():
    with pytest.raises(ValueError, match="radius must be positive, got 0"):
        Ball(0.0)
    with pytest.raises(ValueError, match="high must be above low = 1, got 1.0"):
        Box(1.0, 1.0)


@pytest.mark.parametrize(
    ("feature", "label", "message"),
    [
        (31.337, 0.0, "features must be within the loss's feature_bound 1, got another in row 2"),
        (0.5, 31.337, "labels must be between -1 and 1 for .*, got another in row 2"),
    ],
)
def test_records_that_are_refused_are_named_and_not_shown(feature, label, message):
    features, labels = np.zeros((4, 2)), np.zeros(4)
    features[2, 1], labels[2] = feature, label
    with pytest.raises(ValueError, match=message) as caught:
        Squared(1.0, label_bound=1.0).require_admissible(features, labels)
    assert "31.3" not in str(caught.value)
