"""Noise: the right distributions in both precisions, and no key of a run used twice.

The seeds are fixed, so these tests do not flicker. The false-alarm rates say how often a change of
seed alone would fail a test.
"""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import hearsay as hs
from hearsay.mechanisms import MECHANISMS
from hearsay.mechanisms import words as generator
from hearsay.simulation import keys

ADDITIVE = ("laplace", "gaussian")

SAMPLES = 200_000
REFERENCE = {"laplace": stats.laplace, "gaussian": stats.norm}
VARIANCE = {"laplace": 2.0, "gaussian": 1.0}
KURTOSIS = {"laplace": 6.0, "gaussian": 3.0}
PRECISIONS = [np.dtype("float32"), np.dtype("float64")]


def draw(name: str, dtype: np.dtype, seed: int = 0, samples: int = SAMPLES) -> np.ndarray:
    return np.asarray(MECHANISMS[name].draw(jax.random.key(seed), (samples,), dtype))


@pytest.mark.parametrize("dtype", PRECISIONS, ids=str)
@pytest.mark.parametrize("name", ADDITIVE)
def test_distribution(name, dtype):
    """Kolmogorov-Smirnov against scipy; false-alarm rate 1e-6 for each of the four cases."""
    sample = draw(name, dtype)
    assert sample.dtype == dtype
    assert stats.kstest(sample.astype(np.float64), REFERENCE[name].cdf).pvalue > 1e-6


@pytest.mark.parametrize("dtype", PRECISIONS, ids=str)
@pytest.mark.parametrize("name", ADDITIVE)
def test_tails(name, dtype):
    """How many samples lie beyond the 1 - 1e-3 quantile, either side:
    Poisson(200), false-alarm rate below 1e-6 a side.
    """
    sample, far = draw(name, dtype, seed=1), REFERENCE[name].isf(1e-3)
    low, high = stats.poisson.ppf([2.5e-7, 1 - 2.5e-7], SAMPLES * 1e-3)
    for count in (np.sum(sample > far), np.sum(sample < -far)):
        assert low <= count <= high


@pytest.mark.parametrize("dtype", PRECISIONS, ids=str)
@pytest.mark.parametrize("name", ADDITIVE)
def test_mean_variance_and_symmetry(name, dtype):
    """Three averages within 5 standard errors, and the sign independent of the size;
    false-alarm rate 4 x 6e-7 a case.
    """
    sample = draw(name, dtype, seed=2).astype(np.float64)
    assert abs(sample.mean()) < 5 * np.sqrt(VARIANCE[name] / SAMPLES)
    spread = (KURTOSIS[name] - 1) * VARIANCE[name] ** 2
    assert abs((sample**2).mean() - VARIANCE[name]) < 5 * np.sqrt(spread / SAMPLES)
    assert abs(np.sum(sample > 0) - SAMPLES / 2) < 5 * np.sqrt(SAMPLES / 4)
    sizes = np.abs(sample) - np.abs(sample).mean()
    assert abs(np.corrcoef(np.sign(sample), sizes)[0, 1]) < 5 / np.sqrt(SAMPLES)


@pytest.mark.parametrize("dtype", PRECISIONS, ids=str)
@pytest.mark.parametrize("name", ADDITIVE)
def test_samples_are_finite_and_nonzero_at_every_extreme_word(name, dtype, monkeypatch):
    """A zero would reveal the value, an infinity would end the run:
    both ends of the generator's range, both signs.
    """
    top = 2**32 - 1
    low, high = np.array([0, 1, top - 1, top], np.uint32), np.array([0, 0, top, top], np.uint32)
    extremes = low if dtype == np.float32 else np.stack([high, low])
    monkeypatch.setattr(generator, "words", lambda key, shape: jnp.asarray(extremes.reshape(shape)))
    sample = np.asarray(MECHANISMS[name].draw(jax.random.key(0), (4,), dtype))
    assert np.all(np.isfinite(sample))
    assert np.all(sample != 0)
    np.testing.assert_array_equal(np.sign(sample), [-1, 1, -1, 1])
    # The probability of a half cell at either end.
    tail = 2.0 ** -(24 if dtype == np.float32 else 53)
    laplace, gaussian = (-np.log(tail), tail), (np.sqrt(np.pi / 2) * tail, stats.norm.isf(tail / 2))
    exact = laplace if name == "laplace" else gaussian
    np.testing.assert_allclose(np.abs(sample), np.repeat(exact, 2), rtol=1e-3)


@pytest.mark.parametrize("name", ADDITIVE)
def test_no_zeros_or_infinities_in_a_large_sample(name):
    sample = draw(name, np.dtype("float32"), seed=3, samples=2_000_000)
    assert np.all(np.isfinite(sample))
    assert np.all(sample != 0)


def threefry(key: tuple[int, int], block: tuple[int, int]) -> tuple[int, int]:
    """Threefry-2x32 with 20 rounds, as printed in Salmon et al. 2011."""
    mask, turns = 2**32 - 1, (13, 15, 26, 6, 17, 29, 16, 24)
    schedule = (*key, key[0] ^ key[1] ^ 0x1BD11BDA)
    x, y = (block[0] + schedule[0]) & mask, (block[1] + schedule[1]) & mask
    for number in range(20):
        turn = turns[number % 8]
        x = (x + y) & mask
        y = (((y << turn) | (y >> (32 - turn))) & mask) ^ x
        if number % 4 == 3:
            inject = number // 4 + 1
            x = (x + schedule[inject % 3]) & mask
            y = (y + schedule[(inject + 1) % 3] + inject) & mask
    return x, y


def test_words_are_the_blocks_of_the_published_generator():
    """Its published test vectors first, then every word of a draw;
    an odd number leaves the last word of a block over.
    """
    assert threefry((0, 0), (0, 0)) == (0x6B200159, 0x99BA4EFE)
    assert threefry((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3)) == (0xC4923A9C, 0x483DF7A0)
    key = jax.random.key(11)
    parts = tuple(int(part) for part in jax.random.key_data(key))
    for count in (6, 7):
        half = (count + 1) // 2
        blocks = [threefry(parts, (i, half + i)) for i in range(half)]
        expected = [block[0] for block in blocks] + [block[1] for block in blocks]
        assert generator.words(key, (count,)).tolist() == expected[:count]
    assert generator.words(key, (2, 3)).ravel().tolist() == generator.words(key, (6,)).tolist()
    assert generator.words(key, ()).shape == ()


@pytest.mark.parametrize("dtype", PRECISIONS, ids=str)
def test_coordinates_of_one_message_are_uncorrelated(dtype):
    """40,000 messages of 5 coordinates: 10 pairs, values and sizes, within 6 standard errors;
    false-alarm rate 20 x 2e-9.
    """
    draw_many = jax.vmap(lambda key: MECHANISMS["laplace"].draw(key, (5,), dtype))
    sample = np.asarray(jax.jit(draw_many)(jax.random.split(jax.random.key(4), 40_000)), np.float64)
    for values in (sample, np.abs(sample)):
        assert np.abs(np.corrcoef(values.T) - np.eye(5)).max() < 6 / np.sqrt(40_000)


@pytest.mark.parametrize("name", ADDITIVE)
def test_add_scales_the_draw(name):
    value, drawn = jnp.array([1.0, -2.0]), jnp.array([0.5, 3.0])
    np.testing.assert_array_equal(MECHANISMS[name].add(value, drawn, jnp.asarray(2.0)), [2.0, 4.0])
    np.testing.assert_array_equal(MECHANISMS[name].add(value, drawn, jnp.asarray(0.0)), value)


def test_streams_of_agents_steps_seeds_and_fields_are_uncorrelated():
    """24 streams, 276 pairs, each correlation within 6 standard errors:
    false-alarm rate 276 x 2e-9 = 6e-7.
    """
    algorithm, size = hs.ldp_online(), 20_000

    @jax.jit
    def stream(s, a, step, field):
        key = keys.at(keys.noise_keys(jnp.arange(2), 3)[s, a], step)
        return algorithm.fresh_noise(key, jnp.zeros(size), field)

    streams = [
        stream(*where) for where in itertools.product(range(2), range(3), range(2), range(2))
    ]
    correlation = np.corrcoef(np.stack(streams)) - np.eye(24)
    assert np.abs(correlation).max() < 6 / np.sqrt(size)


def test_derived_keys_never_repeat():
    """Seeds x agents x steps x (noise fields, sampling) and the random starts;
    chance of a collision among 64-bit keys: 2e-11.
    """
    seeds, agents, steps = jnp.arange(4), 12, jnp.arange(150)

    def over(children, parents):
        return jax.vmap(
            lambda key: jax.vmap(lambda child: jax.random.fold_in(key, child))(children)
        )(parents).ravel()

    @jax.jit
    def all_keys():
        agent = keys.noise_keys(seeds, agents).ravel()
        noise = jax.vmap(lambda key: jax.vmap(lambda step: keys.at(key, step))(steps))(
            agent
        ).ravel()
        drawing = jnp.concatenate([keys.sampling_keys(seed, agents) for seed in range(4)])
        sampling = jax.vmap(lambda key: jax.vmap(lambda step: keys.at(key, step))(steps))(
            drawing
        ).ravel()
        starts = keys.start_keys(seeds, agents).ravel()
        return jnp.concatenate(
            [agent, noise, over(jnp.arange(2), noise), drawing, sampling, starts]
        )

    everything = all_keys()
    data = np.asarray(jax.random.key_data(everything))
    assert len(np.unique(data, axis=0)) == len(data) == 4 * 12 * (1 + 150 + 2 * 150 + 1 + 150 + 1)


def test_a_whole_run_uses_every_key_once(monkeypatch):
    """Record the key of every draw that a run really makes: noise, batches and random starts."""
    places = {"words": generator, "randint": jax.random, "normal": jax.random}
    used: dict[str, list[tuple]] = {name: [] for name in places}

    def recording(name):
        original = getattr(places[name], name)

        def wrapped(key, *args, **kwargs):
            jax.debug.callback(
                lambda d: used[name].append(tuple(np.ravel(d).tolist())), jax.random.key_data(key)
            )
            return original(key, *args, **kwargs)

        return wrapped

    for name, place in places.items():
        monkeypatch.setattr(place, name, recording(name))
    problem = hs.problems.ridge(agents=3, records=9, dimension=2, per_step=2, radius=3.0)
    # A scale of its own: nothing compiled is shared.
    algorithm = hs.dsgd(noise=0.07310317, sampling=hs.Resample())
    hs.simulate(
        algorithm,
        problem,
        hs.graphs.ring(3),
        steps=5,
        seeds=[3, 5],
        every=5,
        spread=1.0,
        reference=False,
    )
    jax.effects_barrier()
    noise, batches, starts = used["words"], used["randint"], used["normal"]
    assert len(noise) == len(set(noise)) == 2 * 3 * 5
    assert len(starts) == len(set(starts)) == 2 * 3
    # A batch is formed where it is used, so the same key may be read twice for the same batch,
    # which all seeds share: one for each of its two places.
    assert len(set(batches)) == 3 * 5 * 2
    assert len({*noise, *batches, *starts}) == 30 + 6 + 30
