"""Where a deployed agent's noise comes from, field by field."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest

from hearsay.base import Private
from hearsay.deploy.privatize import Lattice
from hearsay.mechanisms import MECHANISMS
from hearsay.mechanisms.factorized.kinds import factorization
from hearsay.privacy.recursion import Release
from hearsay.schedules import Constant, PowerLaw

ROUNDS, SIZE, SCALES = 4, 2000, {"params": 1.0, "tracker": 0.25}


class Two(NamedTuple):
    params: Any
    tracker: Any


def steps_of(scales: dict[str, float], certified: dict[str, float] = SCALES) -> Any:
    """What `Lattice` needs of the steps of an algorithm that sends two fields of correlated noise,
    each of value 0, and rounds them to quarters when they are noised.
    """
    algorithm = SimpleNamespace(
        factors=factorization("toeplitz", ROUNDS),
        delay=0,
        law=MECHANISMS["gaussian"],
        channels={"params": "mixing", "tracker": "pushing"},
        keys=("own",),
        secrets=None,
        releases=lambda agent, curvature: tuple(
            Release(name, Constant(scale)) for name, scale in certified.items()
        ),
    )
    fields = Two(*(Private(jnp.zeros(SIZE), jnp.asarray(scales[n])) for n in Two._fields))
    return SimpleNamespace(
        algorithm=algorithm,
        agent=0,
        dtype=np.dtype("float64"),
        prepare=lambda step, carry: (fields, carry),
        finish=lambda step, noised, carry, key: (
            Two(*(jnp.round(4 * x) / 4 for x in noised)),
            carry,
        ),
    )


def test_every_field_of_correlated_noise_has_a_scale_and_a_stream_of_its_own():
    """2,000 numbers: a sample deviation lies within 5 standard errors (8 %) and a correlation below
    5 / sqrt(2000), 6e-7 each.
    """
    lattice = Lattice(steps_of(SCALES), {})
    sent = [lattice.message(r, None)[0] for r in range(ROUNDS)]
    noise = {n: np.array([getattr(m, n) for m in sent]) for n in Two._fields}
    rows = factorization("toeplitz", ROUNDS).increments(0, ROUNDS)
    for name, scale in SCALES.items():
        # Rounding to quarters adds a variance of at most (1/8)^2.
        expected = scale * np.linalg.norm(rows, axis=1)
        assert np.all(noise[name].std(axis=1) > 0.92 * expected)
        assert np.all(noise[name].std(axis=1) < 1.08 * np.hypot(expected, 1 / 8))
    for r in range(ROUNDS):
        both = np.corrcoef(noise["params"][r], noise["tracker"][r])[0, 1]
        assert abs(both) < 5 / np.sqrt(SIZE)


def test_a_restart_draws_the_same_noise_in_every_field():
    secrets: dict[int, bytes] = {}
    first = Lattice(steps_of(SCALES), secrets).message(2, None)[0]
    again = Lattice(steps_of(SCALES), secrets).message(2, None)[0]
    for one, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_field_of_scale_0_is_public():
    scales = {**SCALES, "tracker": 0.0}
    lattice = Lattice(steps_of(scales, scales), {})
    message = lattice.message(0, None)[0]
    assert np.all(np.asarray(message.tracker) == 0)
    assert np.any(np.asarray(message.params) != 0)


@pytest.mark.parametrize(
    ("scales", "certified"),
    [
        ({**SCALES, "params": 0.9}, SCALES),
        ({**SCALES, "tracker": 0.0}, SCALES),
        (SCALES, {"params": 1.0}),
    ],
    ids=["less than certified", "none", "not certified at all"],
)
def test_correlated_noise_that_is_not_the_certified_is_refused(scales, certified):
    with pytest.raises(ValueError, match="the scale of the correlated noise of .* must be"):
        Lattice(steps_of(scales, certified), {}).message(0, None)


@pytest.mark.parametrize("scale", [0.0, 0.999, np.r_[np.zeros(1), np.ones(SIZE - 1)]])
def test_a_message_with_less_noise_than_certified_does_not_leave(scale):
    """In none of its coordinates."""
    steps = steps_of({**SCALES, "params": scale})
    steps.algorithm.factors = None
    with pytest.raises(ValueError, match="noise of params must be at least the certified 1.0"):
        Lattice(steps, {}).message(0, None)


def test_the_scale_of_every_round_is_held_to_the_account():
    """A law that grows, of which a run used the first value only."""
    steps = steps_of(SCALES)
    steps.algorithm.factors = None
    steps.algorithm.releases = lambda agent, curvature: (Release("params", PowerLaw(1.0, 0.5)),)
    Lattice(steps, {}).message(0, None)
    with pytest.raises(ValueError, match="at least the certified 1.414.* in round 1, got 1.0"):
        Lattice(steps, {}).message(1, None)
