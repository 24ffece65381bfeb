"""The noise is tested in float64 whatever jax is set to, and what jax is set to is left as it was.

Sound noise is refused with probability 1e-3 at most; the seeds are fixed.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hearsay as hs
from hearsay.algorithms import LdpOnline
from hearsay.audit.precision import double_precision
from hearsay.audit.residuals import residuals

PROBLEM = hs.problems.ridge(agents=4, records=20, dimension=3)
GRAPH = hs.graphs.ring(4)
SOUND = hs.ldp_online(noise=2.0)


@dataclass(frozen=True, kw_only=True)
class Coarse(LdpOnline):
    """Its draws are multiples of 1/64, with the right law otherwise."""

    def draws(self, key, steps, params, constants):
        drawn = super().draws(key, steps, params, constants)
        return drawn._replace(params=jnp.round(64 * drawn.params) / 64)


@dataclass(frozen=True, kw_only=True)
class Silent(LdpOnline):
    """One draw in a hundred is exactly 0."""

    def draws(self, key, steps, params, constants):
        drawn = super().draws(key, steps, params, constants)
        left = jax.random.bernoulli(jax.random.fold_in(key, 77), 0.99, drawn.params.shape)
        return drawn._replace(params=jnp.where(left, drawn.params, 0.0))


@pytest.fixture
def single():
    jax.config.update("jax_enable_x64", False)
    yield
    jax.config.update("jax_enable_x64", True)


def heard(algorithm=SOUND, **options):
    return residuals(
        algorithm, PROBLEM, GRAPH, steps=4, runs=400, certified=SOUND, **{"seed": 3, **options}
    )


@pytest.mark.parametrize("kind", [Coarse, Silent])
def test_draws_that_repeat_are_seen_in_float32_too(kind, single):
    failed = heard(kind(**vars(SOUND))).failed
    assert "repeats" in {test.kind for test in failed}


def test_sound_noise_passes_in_either_precision_with_the_same_numbers(single):
    found = heard()
    assert found.holds, found.failed
    jax.config.update("jax_enable_x64", True)
    assert np.array_equal(heard().shown, found.shown)


@pytest.mark.parametrize("seed", [1000, 2**39 - 1])
def test_large_seeds_work(seed, single):
    assert heard(seed=seed).holds


@pytest.mark.parametrize("seed", [-1, 2**39, 10**40])
def test_other_seeds_are_refused_by_name(seed, single):
    with pytest.raises(ValueError, match="^seed must be at least 0 and below 2\\^39, got"):
        heard(seed=seed)


def test_the_precision_is_left_as_it_was(single):
    with pytest.raises(ValueError, match="seed"):
        heard(seed=-1)
    assert PROBLEM.dtype == jnp.float32
    with double_precision(), double_precision():
        assert PROBLEM.dtype == jnp.float64
    assert PROBLEM.dtype == jnp.float32
    with jax.enable_x64(True), double_precision():
        pass
    assert PROBLEM.dtype == jnp.float32


def test_where_one_thread_has_said_otherwise():
    with jax.enable_x64(False):
        with double_precision():
            assert PROBLEM.dtype == jnp.float64
        assert PROBLEM.dtype == jnp.float32
    assert PROBLEM.dtype == jnp.float64


def test_a_simulation_does_not_see_that_there_was_an_audit(single):
    """Records that were placed in one precision are not used in the other."""
    problem = hs.problems.ridge(agents=4, records=20, dimension=3)

    def run():
        return hs.simulate(SOUND, problem, GRAPH, steps=5, seeds=1).models

    before = run()
    residuals(SOUND, problem, GRAPH, steps=2, runs=2)
    assert {x.dtype for x in problem.device_records[:2]} == {np.dtype("float32")}
    assert np.array_equal(run(), before)
    with double_precision():
        assert {x.dtype for x in problem.device_records[:2]} == {np.dtype("float64")}
