"""What is called enforced holds in compiled programs too, in float32, next to the ends of its
range: there quotients are computed by way of reciprocals, in any order, and tiny numbers are
flushed to 0.
"""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hearsay as hs
from hearsay import problems
from hearsay.problems import Problem, from_arrays
from hearsay.problems.losses import per_record
from hearsay.problems.losses.domains import shortened
from hearsay.problems.losses.linear import Squared
from hearsay.simulation.program import held_rates


def vectors(records=2000, width=64, low=-44.0, high=38.5):
    """Of every size that float32 has."""
    rng = np.random.default_rng(0)
    found = rng.uniform(-1, 1, size=(records, width)) * 10.0 ** rng.uniform(
        low, high, size=(records, 1)
    )
    return np.clip(found, -3.4e38, 3.4e38).astype(np.float32)


@pytest.mark.parametrize("radius", [1e-30, 0.5, 1e5, 1e30])
def test_ball(radius):
    given = np.concatenate([vectors(), np.full((1, 64), np.inf, np.float32)])
    found = np.asarray(jax.jit(lambda v: shortened(v, radius))(given), np.float64)
    assert np.linalg.norm(found, axis=1).max() <= radius * (1 + 1e-5)
    inside = np.linalg.norm(given.astype(np.float64), axis=1) < radius * 0.999
    np.testing.assert_allclose(found[inside], given[inside], atol=1e-37)


@pytest.mark.parametrize("clip", [1e-30, 1e-7, 1.0, 1e30])
def test_linear_clip(clip):
    loss, features = Squared(np.inf, 0.0, np.inf, clip), vectors(width=3)
    labels = np.random.default_rng(1).permutation(vectors(width=1)[:, 0])

    @jax.jit
    def gradients(features, labels):
        one = lambda f, b: loss.gradient_sum(  # noqa: E731
            jnp.ones(3, jnp.float32), f[None], b[None], jnp.ones(1, jnp.float32)
        )
        return jax.vmap(one)(features, labels)

    found = np.asarray(gradients(features, labels), np.float64)
    assert np.linalg.norm(found, axis=1).max() <= clip * (1 + 1e-5)


@pytest.mark.parametrize("norm", ["l1", "l2"])
@pytest.mark.parametrize("clip", [1e-30, 1e-7, 1.0])
def test_clip_per_record(clip, norm):
    @jax.jit
    def gradients(features):
        one = lambda f: per_record.gradient_sum(  # noqa: E731
            lambda p, feature, label: jnp.vdot(p, feature), jnp.zeros(3, jnp.float32), f[None],
            jnp.zeros(1, jnp.float32), jnp.ones(1, jnp.float32), clip=clip, norm=norm,
        )  # fmt: skip
        return jax.vmap(one)(features)

    found = np.asarray(gradients(vectors(width=3)), np.float64)
    assert np.linalg.norm(found, 1 if norm == "l1" else 2, axis=1).max() <= clip * (1 + 1e-5)


def test_gradients_that_overflow_have_no_certificate():
    """One record made the models NaN, another did not, and epsilon was 0.1."""
    data = from_arrays(np.eye(4) * 1e20, np.zeros(4), feature_bound=1e20, label_bound=1.0)
    problem, graph = problems.ridge(data, agents=2, radius=1.0), hs.graphs.complete(2)
    algorithm = hs.ldp_online(step=1e-40, noise=100.0)
    with (
        jax.enable_x64(False),
        pytest.raises(ValueError, match="feature_bound must be so small that gradients"),
    ):
        hs.certify(algorithm, problem, graph, 5)
    with jax.enable_x64(True):
        assert hs.certify(algorithm, problem, graph, 5).finite


def test_records_that_the_bounds_do_not_speak_of():
    problem: Problem = problems.logistic(agents=2)
    far = problem.features.copy()
    far[0, 0] *= 100
    with pytest.raises(ValueError, match="features must be within the loss's feature_bound 1"):
        replace(problem, records=problem.records._replace(features=far))
    with pytest.raises(ValueError, match="labels must be between 0 and 1"):
        replace(problem, records=problem.records._replace(labels=problem.labels - 1))
    far[0, 0, 0] = np.nan
    with pytest.raises(ValueError, match="must be finite"):
        replace(problem, records=problem.records._replace(features=far))
    with pytest.raises(ValueError, match="read-only"):
        problem.features[0, 0] = 100


def test_noise_is_never_flushed_to_nothing():
    algorithm, steps = hs.ldp_online(step=1e-40, noise=[1e-40, 0.0]), np.arange(3)
    held = held_rates(algorithm, steps, 2, np.dtype(np.float32))
    added = jax.jit(lambda scale: scale * 0.01)(held.noise)
    assert np.all(added[:, 0] > 0) and np.all(held.noise[:, 1] == 0)
    wide = held_rates(algorithm, steps, 2, np.dtype(np.float64)).noise
    np.testing.assert_array_equal(wide, algorithm.rates(steps, 2).noise)
