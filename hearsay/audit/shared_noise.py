"""Noise that pairs of agents share, tested: is it what the certificate takes it for?

Beside what residuals.py tests of all noise, three things make shared noise worth what it is said to
be worth, and each has tests of its own, on noise of runs with a simulation's keys:

    own     what is left of an agent's residual without the noise of its pairs is its own noise:
            everybody adds it in full, and it has nothing to do with anybody else's
    pairs   what a pair shares is the same number at both ends, added at one and subtracted at the
            other, as loud as claimed, and drawn anew for every pair, round, field and run
    all     own and shared noise together have the claimed covariance: an agent's given those of
            the agents before it (Cholesky) is a standard normal number. That needs no keys, and is
            tested of noise that is drawn pair by pair and of noise that simulations mix
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hearsay.audit import noise_tests
from hearsay.audit.coalitions import covariance, weights
from hearsay.audit.messages import bare
from hearsay.audit.noise_tests import Test
from hearsay.audit.standard_form import Field, standard
from hearsay.base import Algorithm, Keys
from hearsay.privacy.coalitions import Shared
from hearsay.simulation import shared as simulated
from hearsay.simulation.shared import PairNoise

# Of so many pairs the noise is looked at by itself, and of so many numbers in all.
_PAIRS, _NUMBERS = 60, 4_000_000
# How far rounding may part the two ends of a pair, in units of what they share.
_OPPOSITE = 1e-4

MEANS = {
    "rounds": "what a pair shares is used again in another round, instead of drawn anew: whoever"
    " compares two rounds takes it off",
    "pairs": "pairs do not have noise of their own: who knows what one shares knows that of others",
    "fields": "what a pair shares is the same in two message fields: whoever compares them takes it"
    " off",
    "runs": "what a pair shares is the same in two runs: whoever compares them takes it off",
    "coordinates": "what a pair shares is the same in several coordinates",
    "scale": "what a pair shares is not as loud as the certificate counts",
    "repeats": "what a pair shares is used more than once",
}


class Taken(NamedTuple):
    """Shared noise as it was drawn, per field, in units of the agents' own.

    Args:
      added: (run, round, agent, coordinate), what pairs add to each agent's noise.
      ends: (pair, 2, run, round, coordinate), at the smaller and the larger end of some pairs.
      some: (pair,), which.
    """

    added: tuple[np.ndarray, ...]
    ends: tuple[np.ndarray, ...]
    some: np.ndarray


def chosen(shared: Shared, numbers: int) -> np.ndarray:
    """The pairs whose noise is looked at by itself: all, or some of everywhere.

    Args:
      numbers: of one pair.
    """
    count, fits = len(shared.ends()), max(3, _NUMBERS // numbers)
    return np.unique(np.linspace(0, count - 1, min(count, _PAIRS, fits)).astype(int))


@partial(jax.jit, static_argnames="algorithm")
def taken(
    pairs: PairNoise, some: jax.Array, steps: jax.Array, params: Any, constants: Any, *,
    algorithm: Algorithm,
) -> tuple[tuple, tuple]:  # fmt: skip
    """(added, ends) of `Taken`, drawn by the simulation's own functions."""
    names, agents = simulated.noise_names(algorithm), params.shape[0]
    shapes = jax.eval_shape(
        lambda key: algorithm.draws(Keys(key).given, steps, params[0], constants), pairs.key[0, 0]
    )
    runs = pairs.key.shape[0]
    blank = jax.tree.map(
        lambda s: jnp.zeros((s.shape[0], runs, agents, *s.shape[1:]), s.dtype), shapes
    )

    def alone(pairs: PairNoise) -> list[jax.Array]:
        found = simulated.added(algorithm, blank, pairs, steps, params[0], constants)
        return [jnp.moveaxis(getattr(found, name), 1, 0) for name in names]

    def one(pair: jax.Array) -> tuple:
        this = PairNoise(pairs.key[:, pair][:, None], *(x[pair][None] for x in pairs[1:]))
        return tuple(
            jnp.stack([found[:, :, this.ends[0, end]] for end in (0, 1)]) for found in alone(this)
        )

    return tuple(alone(pairs)), jax.lax.map(one, some)


def own_fields(
    claimed: Algorithm, heard: dict[str, Field], found: Taken
) -> Iterator[tuple[str, Field]]:
    """Every field's noise without what pairs added."""
    for name, added in zip(simulated.noise_names(claimed), found.added, strict=True):
        field = heard[name]
        yield name, field._replace(value=field.value + field.scale * added)


def pair_fields(
    claimed: Algorithm, shared: Shared, heard: dict[str, Field], found: Taken
) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Per field what some pairs share, at either end, in units of what they should: independent
    standard normal numbers (run, round, pair, coordinate), NaN where there is none.
    """
    ends, loud = shared.ends()[found.some], weights(shared)[found.some]
    for name, both in zip(simulated.noise_names(claimed), found.ends, strict=True):
        scale = heard[name].scale
        sides = []
        for end in (0, 1):
            # (pair, run, round, coordinate), as (run, round, pair, coordinate).
            drawn = np.moveaxis(both[:, end], 0, 2) / loud[:, end][:, None]
            there = np.where((scale[:, :, ends] != 0).all(axis=3), 1.0, 0.0)
            field = Field(drawn, np.zeros_like(drawn), np.broadcast_to(there, drawn.shape), None)
            sides.append(standard(bare(claimed), field))
        yield name, sides[0], sides[1]


def opposite(name: str, ends: np.ndarray, one: np.ndarray, two: np.ndarray) -> Test:
    """What is added at one end is subtracted at the other; no chance is involved."""
    loud = np.isfinite(one) & np.isfinite(two)
    apart = loud & ~(np.abs(one + two) <= _OPPOSITE * (1 + np.abs(one)))
    same = int(np.sum(apart & (np.abs(one - two) <= _OPPOSITE * (1 + np.abs(one)))))
    count, worst = int(apart.sum()), int(np.argmax(apart.sum(axis=(0, 1, 3))))
    seen = f"{count:,} of {int(loud.sum()):,} numbers are not opposite at the two ends"
    if count:
        seen += f", first of all between agents {ends[worst, 0]} and {ends[worst, 1]}"
    return Test(
        "ends",
        f"{name}, shared by pairs",
        int(loud.sum()),
        float(count == 0),
        seen,
        "both ends of a pair add the same number, so that it does not cancel"
        if same > count / 2
        else "the two ends of a pair do not have the same noise, so that it does not cancel",
    )


def pair_tests(
    claimed: Algorithm, shared: Shared, heard: dict[str, Field], found: Taken, rounding: float
) -> Iterator[Test]:
    """Everything about what pairs share."""
    law, every = claimed.law.residual, dict[str, np.ndarray]()
    for name, one, two in pair_fields(claimed, shared, heard, found):
        yield opposite(name, shared.ends()[found.some], one, two)
        label = f"{name}, shared by pairs"
        every[label] = one
        for test in noise_tests.of_values(label, one, law, rounding, "pair"):
            yield _said(test)
    for test in noise_tests.relations(every, law, "pairs"):
        yield _said(test)


def own_tests(
    claimed: Algorithm, heard: dict[str, Field], found: Taken, rounding: float, seed: int
) -> Iterator[Test]:
    """Everything about what agents add of their own."""
    law, every = claimed.law.residual, dict[str, np.ndarray]()
    for name, field in own_fields(claimed, heard, found):
        if not np.any(field.scale != 0):
            continue
        label = f"{name}, own noise"
        every[label] = standard(claimed, field, seed)
        for test in noise_tests.of_values(label, every[label], law, rounding):
            yield _own(test)
    yield from noise_tests.relations(every, law)


def whitened(residual: np.ndarray, shared: Shared) -> np.ndarray:
    """Residuals (run, round, agent, coordinate) of own and shared noise as independent numbers:
    each agent's given those of the agents before it that have any.
    """
    flat = np.moveaxis(residual, 2, -1).reshape(-1, shared.agents)
    found, every = np.full_like(flat, np.nan), covariance(shared)
    there, of = np.unique(np.isfinite(flat), axis=0, return_inverse=True)
    for number, loud in enumerate(there):
        if loud.any():
            rows = np.flatnonzero(of.ravel() == number)
            root = np.linalg.cholesky(every[np.ix_(loud, loud)])
            found[np.ix_(rows, loud)] = np.linalg.solve(root, flat[np.ix_(rows, loud)].T).T
    shape = np.moveaxis(residual, 2, -1).shape
    return np.moveaxis(found.reshape(shape), -1, 2)


def _said(test: Test) -> Test:
    return replace(test, means=MEANS.get(test.kind, "what a pair shares is not Gaussian noise"))


def _own(test: Test) -> Test:
    if test.kind not in ("scale", "law", "tails"):
        return test
    return replace(
        test, means="own noise is missing or too small, on which everybody else's protection rests"
    )
