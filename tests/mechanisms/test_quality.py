"""The simulation's noise as algorithms and the engine really draw it: the right law in every field,
nothing shared between fields, steps, agents, seeds or coordinates, no key used for two things in a
run. And what floating-point noise is not good for: the attack that lattice noise is there to stop.

test_noise.py looks at single draws of laplace and gaussian. Seeds are fixed; false-alarm rates say
how often another seed would fail.
"""

from __future__ import annotations

import math
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import hearsay as hs
from hearsay.mechanisms import MECHANISMS
from hearsay.mechanisms import words as generator
from hearsay.mechanisms.factorized.kinds import FACTORIZATIONS, factorization
from hearsay.mechanisms.factorized.stream import noise_stream
from hearsay.simulation import keys

# A public coin is everybody's: its key is not an agent's own.
ALGORITHMS = [name for name in hs.REGISTRY if hs.REGISTRY[name]().keys == ("own",)]
FEDERATED = ("correlated-federated", "federated-independent", "federated-noiseless")
SAMPLERS = list(MECHANISMS)
LAWS = {"laplace": stats.laplace, "gaussian": stats.norm, "ternary": stats.uniform}
AGENTS, SEEDS = 3, [3, 5]


def algorithm_of(name: str):
    noise = {} if name == "federated-noiseless" else {"noise": hs.Constant(0.1)}
    return hs.REGISTRY[name](**noise, **({"horizon": 40} if name in FEDERATED else {}))


def block_of_draws(algorithm, steps: np.ndarray, dimension: int):
    """(step, seed, agent, ...) per field, as the engine draws a block of steps;
    not compiled as a whole, because most algorithms share the pieces.
    """
    params, own = jnp.zeros(dimension), keys.noise_keys(jnp.asarray(SEEDS), AGENTS)
    constants = algorithm.constants(params.dtype)

    def one(key):
        return algorithm.draws(key, jnp.asarray(steps), params, constants)

    block = jax.vmap(jax.vmap(one, out_axes=1), out_axes=1)(own)
    return {field: np.asarray(draws) for field, draws in block._asdict().items()}


def uniforms(algorithm, field: str, draws: np.ndarray) -> np.ndarray:
    """Draws put through their distribution function.

    What is correlated over rounds on purpose is whitened first: xi = D^-1 noise.
    """
    if algorithm.name in FEDERATED:
        increments = algorithm.factors.increments(0, len(draws))[:, : len(draws)]
        return stats.norm.cdf(
            np.linalg.solve(increments, draws.reshape(len(draws), -1)).reshape(draws.shape)
        )
    return LAWS[algorithm.mechanism if field not in algorithm.coins else "ternary"].cdf(draws)


DISTINCT = (
    "ldp-online",
    "gradient-tracking",
    "gradient-perturbation",
    "correlated-federated",
    "adp2sgd",
    "ternary-dsgd",
)


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in DISTINCT else pytest.mark.slow) for n in ALGORITHMS]
)
def test_streams_of_an_algorithm(name):
    """Every (step, seed, agent, field) is a stream of 8,000 coordinates.

    Kolmogorov-Smirnov for each, false-alarm rate 1e-8 each; for every pair, the correlation of
    values and of sizes within 6.5 / sqrt(8000), 8e-11 each: together below 1e-6 for an algorithm.
    """
    algorithm, size = algorithm_of(name), 8000
    streams = []
    for field, draws in block_of_draws(algorithm, np.arange(4), size).items():
        # One number a step, as adp2sgd's coin: many steps instead of many coordinates.
        if draws.ndim == 3:
            draws = block_of_draws(algorithm, np.arange(4 * size), 1)[field]
            draws = np.moveaxis(draws.reshape(size, 4, 2, AGENTS), 0, -1)
        assert draws.shape == (4, 2, AGENTS, size)
        streams.append(uniforms(algorithm, field, draws).reshape(-1, size))
    levels = np.concatenate(streams)
    for level in levels:
        assert stats.kstest(level, "uniform", method="asymp").pvalue > 1e-8
    for feature in (levels, np.abs(levels - 0.5)):
        assert np.abs(np.corrcoef(feature) - np.eye(len(levels))).max() < 6.5 / np.sqrt(size)


@pytest.mark.parametrize("size", [40_000, 40_001])
@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_coordinates_of_one_draw(name, dtype, size):
    """Neighbours, and coordinates half a draw apart, which share a block of the generator:
    chi-square of the pairs over 8 x 8 equal cells, false-alarm rate 1e-7 for each of 84 tables.
    """
    draw = MECHANISMS[name].draw(jax.random.key(17), (size,), jnp.dtype(dtype))
    cell = np.minimum((LAWS[name].cdf(np.asarray(draw, np.float64)) * 8).astype(int), 7)
    half = (size + 1) // 2
    for lag in (1, 2, 3, half - 1, half, half + 1, size // 4):
        pairs = np.bincount(cell[:-lag] * 8 + cell[lag:], minlength=64)
        assert stats.chisquare(pairs).pvalue > 1e-7, lag


@pytest.mark.parametrize("name", FACTORIZATIONS)
def test_correlated_noise_is_normal_in_every_round(name):
    """Each round over its standard deviation |D[r]|: Kolmogorov-Smirnov, scale and symmetry;
    3 x 8 x 7 checks at 1e-8. test_factorized.py has the covariances.
    """
    case = factorization(name, 8, **({"bands": 3} if name == "banded" else {}))
    stream, size = noise_stream(case, jax.random.key(23), (30_000,), "float32"), 30_000
    for row in case.increments(0, 8):
        noise = np.asarray(stream.next(), np.float64) / np.linalg.norm(row)
        assert stats.kstest(noise, "norm", method="asymp").pvalue > 1e-8
        assert abs((noise**2).mean() - 1) < 5.8 * np.sqrt(2 / size)
        assert abs(np.sum(noise > 0) - size / 2) < 5.8 * np.sqrt(size / 4)


@partial(jax.jit, static_argnums=1)
def derived(parents: jax.Array, count: int) -> jax.Array:
    return jax.vmap(lambda key: jax.vmap(lambda i: jax.random.fold_in(key, i))(jnp.arange(count)))(
        parents
    ).ravel()


def word_of(key: jax.Array) -> jax.Array:
    high, low = jax.random.key_data(key).astype(jnp.uint64)
    return (high << 32) | low


@cache
def other_keys(steps: int) -> np.ndarray:
    """What keys.py derives for anything but the noise of a step:
    of agents, of steps before they are split into fields, of starts and of batches.
    """
    own, starts = (
        make(jnp.asarray(SEEDS), AGENTS).ravel() for make in (keys.noise_keys, keys.start_keys)
    )
    batches = jnp.concatenate([derived(keys.sampling_keys(seed, AGENTS), steps) for seed in SEEDS])
    return np.asarray(
        jax.vmap(word_of)(
            jnp.concatenate([own, derived(own, steps), starts, batches, derived(batches, 8)])
        )
    )


@pytest.mark.parametrize("name", [name for name in ALGORITHMS if name not in FEDERATED])
def test_every_draw_of_a_run_has_a_key_of_its_own(name, monkeypatch):
    """Two seeds, 60 steps, in blocks as the engine draws them, where every draw is replaced by its
    key: exactly the keys of (seed, agent, step, field), each once, none of them a key of batches or
    starts. Chance of a collision among 64-bit keys: 12 x 1e-12.
    """
    for mechanism in MECHANISMS.values():
        monkeypatch.setattr(type(mechanism), "draw", lambda self, key, shape, dtype: word_of(key))
    monkeypatch.setattr(jax.random, "uniform", lambda key, shape, dtype: word_of(key))
    algorithm, steps = algorithm_of(name), 60
    blocks = [
        block_of_draws(algorithm, np.arange(start, start + 20), 1) for start in range(0, steps, 20)
    ]
    used = np.concatenate([draws.ravel() for block in blocks for draws in block.values()])
    own = keys.noise_keys(jnp.asarray(SEEDS), AGENTS).ravel()
    fields = 2 if name in ("gradient-tracking", "adp2sgd", "sdm-dsgd", "quantized-dsgd") else 1
    expected = jax.vmap(word_of)(derived(derived(own, steps), fields))
    np.testing.assert_array_equal(np.sort(used), np.sort(expected))
    everything = np.concatenate([used, other_keys(steps)])
    assert len(np.unique(everything)) == len(everything)


@pytest.mark.parametrize("name", FEDERATED)
def test_correlated_noise_comes_from_one_key_for_each_column(name):
    """The draws of a run are D xi with xi_w drawn from the key of (seed, agent, w).

    It is drawn again wherever it enters, always as the same xi_w; no two share a key.
    """
    algorithm, steps, size = algorithm_of(name), 30, 4
    (draws,) = block_of_draws(algorithm, np.arange(steps), size).values()
    own = keys.noise_keys(jnp.asarray(SEEDS), AGENTS)
    columns = derived(own.ravel(), steps)
    assert len(np.unique(jax.vmap(word_of)(columns))) == len(columns)
    fresh = jax.vmap(lambda key: MECHANISMS["gaussian"].draw(key, (size,), draws.dtype))(columns)
    mixed = algorithm.factors.increments(0, steps)[:, :steps] @ np.asarray(fresh).reshape(
        -1, steps, size
    )
    np.testing.assert_allclose(np.moveaxis(draws, 0, 2).reshape(-1, steps, size), mixed, atol=1e-12)


def test_the_hole_of_textbook_noise_in_numpy():
    """Mironov 2012.

    At epsilon = 0.1, four outputs in five of numpy's Laplace noise rule out one of the two values
    for certain.

    numpy returns v -+ scale log(...) of one of 2^53 numbers; the attacker looks whether any of
    those near the right one gives the very output.
    """
    scale, rng = 10.0, np.random.default_rng(0)

    def reachable(output: float, value: float) -> bool:
        half = math.exp(-abs(output - value) / scale) / 2
        near = np.rint((1 - half if output > value else half) * 2**53) + np.arange(-24, 25)
        return any(
            output
            == (
                value - scale * math.log(2.0 - u - u)
                if u >= 0.5
                else value + scale * math.log(u + u)
            )
            for u in (near * 2.0**-53).tolist()
            if 0 < u < 1
        )

    for value, other in ((0.0, 1.0), (1.0, 0.0)):
        outputs = rng.laplace(value, scale, 500).tolist()
        assert all(reachable(y, value) for y in outputs)  # the attacker knows the sampler
        # private: more than exp(-0.1) = 0.9.
        assert np.mean([reachable(y, other) for y in outputs]) < 0.3


@pytest.mark.parametrize("name", ("laplace", "gaussian"))
def test_the_hole_of_the_simulation_in_single_precision(name, monkeypatch):
    """All 2^24 draws there are: more than three quarters of them turn 0 into a number that 1 cannot
    become. No statistics: the sets are complete.
    """
    index = jnp.arange(2**24, dtype=jnp.uint32)
    monkeypatch.setattr(generator, "words", lambda key, shape: ((index >> 1) << 9) | (index & 1))
    mechanism, dtype = MECHANISMS[name], jnp.dtype("float32")
    draws = mechanism.draw(jax.random.key(0), (2**24,), dtype)
    zero, one = (np.asarray(mechanism.add(dtype.type(v), draws, dtype.type(10))) for v in (0, 1))
    one = np.sort(one)
    some = zero[:: 2**6]
    place = np.minimum(np.searchsorted(one, some), len(one) - 1)
    assert np.mean(one[place] != some) > 0.75
