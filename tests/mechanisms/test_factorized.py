"""Noise streams: exactly the rows of D xi, resumable anywhere, never R x d in memory,
and with the covariance that the theory counts on.
"""

from __future__ import annotations

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hearsay.mechanisms import MECHANISMS
from hearsay.mechanisms.factorized.kinds import (
    Banded,
    Blt,
    Dense,
    Factorization,
    Identity,
    Toeplitz,
    Tree,
)
from hearsay.mechanisms.factorized.stream import draw_rounds, noise_stream
from hearsay.simulation import checkpoint

HORIZONS = [1, 2, 7, 64, 100]
F32, F64 = np.dtype("float32"), np.dtype("float64")
SHAPE = (2, 3)  # one for most tests, so that they share what is compiled


def every(rounds: int) -> list[Factorization]:
    kinds = [Identity(rounds), Tree(rounds), Toeplitz(rounds), Dense(rounds), Blt(rounds)]
    return [*kinds, Banded(rounds, min(rounds, 5)), Banded(rounds, 1)]


CASES = [case for rounds in HORIZONS for case in every(rounds)]


@partial(jax.jit, static_argnums=(1, 2))
def fresh(key: jax.Array, shape: tuple[int, ...], dtype: np.dtype) -> jax.Array:
    """xi: more columns than any case needs."""
    return jax.vmap(
        lambda w: MECHANISMS["gaussian"].draw(jax.random.fold_in(key, w), shape, dtype)
    )(jnp.arange(200))


def times_fresh(
    matrix: np.ndarray, key: jax.Array, shape: tuple[int, ...], dtype: np.dtype = F64
) -> np.ndarray:
    """A matrix times xi as one product in float64: the slow, obvious reference."""
    return np.tensordot(
        matrix, np.asarray(fresh(key, shape, dtype), np.float64)[: matrix.shape[1]], axes=1
    )


def dense_noise(
    case: Factorization, key: jax.Array, shape: tuple[int, ...], dtype: np.dtype = F64
) -> np.ndarray:
    return times_fresh(case.increments(0, case.rounds), key, shape, dtype)


def drain(stream, rounds: int) -> np.ndarray:
    return np.stack([np.asarray(stream.next()) for _ in range(rounds)])


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_streams_are_the_rows_of_the_product(case):
    key = jax.random.key(5)
    noise = drain(noise_stream(case, key, SHAPE, F64), case.rounds)
    np.testing.assert_allclose(noise, dense_noise(case, key, SHAPE), rtol=0, atol=1e-11)
    np.testing.assert_allclose(
        np.cumsum(noise, axis=0), times_fresh(case.decoder(), key, SHAPE), rtol=0, atol=1e-10
    )


@pytest.mark.parametrize("case", every(100), ids=repr)
def test_single_precision_streams_agree_to_rounding(case):
    key = jax.random.key(6)
    stream = noise_stream(case, key, (50,), "float32")
    noise = drain(stream, case.rounds)
    assert noise.dtype == F32
    np.testing.assert_allclose(noise, dense_noise(case, key, (50,), F32), rtol=0, atol=3e-5)


@pytest.mark.parametrize("case", [Identity(100), Tree(100), Toeplitz(100), Dense(100)], ids=repr)
@pytest.mark.parametrize("block", [3, 1000])
def test_the_block_never_changes_the_noise(case, block):
    key = jax.random.key(7)
    noise = drain(noise_stream(case, key, SHAPE, F64, block=block), case.rounds)
    np.testing.assert_allclose(noise, dense_noise(case, key, SHAPE), rtol=0, atol=1e-11)


@pytest.mark.parametrize("case", [case for case in CASES if case.rounds in (1, 7, 64)], ids=repr)
def test_resuming_at_every_point_gives_the_very_same_noise(case, tmp_path):
    make = partial(noise_stream, case, jax.random.key(8), SHAPE, F64)
    expected, stream = drain(make(), case.rounds), make()
    for r in range(case.rounds + 1):
        saved = stream.state()
        assert all(isinstance(value, np.ndarray) for value in saved.values())
        if r in (0, 1, case.rounds):  # through a file, as a run does it
            checkpoint.save(tmp_path, saved)
            saved = checkpoint.load(tmp_path)
        resumed = make(state=saved)
        assert resumed.round == r
        following = min(3, case.rounds - r)
        if following:
            np.testing.assert_array_equal(drain(resumed, following), expected[r : r + following])
        if r < case.rounds:
            stream.next()
    np.testing.assert_array_equal(drain(make(), case.rounds), expected)


def test_a_saved_state_is_not_touched_by_what_follows():
    """The recursions update their memory in place."""
    for case in (Blt(20), Banded(20, 4)):
        stream = noise_stream(case, jax.random.key(0), SHAPE, F64)
        drain(stream, 6)
        saved = stream.state()
        kept = saved["memory"].copy()
        after = drain(stream, 5)
        np.testing.assert_array_equal(saved["memory"], kept)
        for _ in range(2):
            np.testing.assert_array_equal(
                drain(noise_stream(case, jax.random.key(0), SHAPE, F64, state=saved), 5), after
            )


@pytest.mark.parametrize("case", [case for case in CASES if case.rounds in (7, 100)], ids=repr)
def test_the_pure_function_gives_the_same_rows(case):
    """Compiled once for traced rounds of a static number, and vectorised over keys."""
    keys, length = jax.random.split(jax.random.key(9), 3), min(5, case.rounds)
    rows, chunk = case.device_rows(F64), 4 if case.rounds < 100 else 32

    @jax.jit
    def together(start: jax.Array) -> jax.Array:
        return jax.vmap(
            lambda key: draw_rounds(rows, key, start + jnp.arange(length), SHAPE, F64, chunk)
        )(keys)

    expected = np.stack([dense_noise(case, key, SHAPE) for key in keys])
    for start in {0, (case.rounds - length) // 2, case.rounds - length}:
        part = expected[:, start : start + length]
        np.testing.assert_allclose(together(jnp.asarray(start)), part, rtol=0, atol=1e-11)


@pytest.mark.parametrize("case", every(7), ids=repr)
def test_compiled_rounds_outside_the_horizon_are_not_numbers(case):
    """What is traced cannot be refused, but it cannot pass for noise either."""
    noise = draw_rounds(case.device_rows(F64), jax.random.key(0), jnp.arange(-1, 9), (2,), F64)
    np.testing.assert_array_equal(
        np.isnan(noise), np.repeat([[1], [0], [0], [0], [0], [0], [0], [0], [1], [1]], 2, 1)
    )


@pytest.mark.parametrize("case", every(12), ids=repr)
def test_covariance_of_the_prefix_sums(case):
    """40,000 coordinates, 78 pairs of rounds, each within 6 standard errors of (B B')_rs:
    false-alarm rate 7 x 78 x 2e-9 = 1e-6 in all.
    """
    samples = 40_000
    sums = np.cumsum(
        drain(noise_stream(case, jax.random.key(10), (samples,), F32), 12).astype(np.float64),
        axis=0,
    )
    expected = case.decoder() @ case.decoder().T
    spread = np.sqrt((np.outer(np.diag(expected), np.diag(expected)) + expected**2) / samples)
    assert np.all(np.abs(sums @ sums.T / samples - expected) <= 6 * spread)


def test_every_column_is_drawn_from_a_key_of_its_own():
    key = jax.random.key(11)
    xi = fresh(key, (20_000,), F32)[:30]
    # 435 pairs: false-alarm rate 1e-6.
    assert np.abs(np.corrcoef(xi) - np.eye(30)).max() < 6 / np.sqrt(20_000)
    stream = noise_stream(Identity(30), key, (20_000,), F32)
    np.testing.assert_array_equal(drain(stream, 30), xi)


def largest(jaxpr) -> int:
    """Elements of the largest array that a traced function makes, in loops and calls too."""
    sizes = [0]
    for equation in jaxpr.eqns:
        sizes += [math.prod(v.aval.shape) for v in equation.outvars if hasattr(v.aval, "shape")]
        for value in equation.params.values():
            for inner in value if isinstance(value, (tuple, list)) else (value,):
                inner = getattr(inner, "jaxpr", inner)
                if hasattr(inner, "eqns"):
                    sizes.append(largest(inner))
    return max(sizes)


@pytest.mark.parametrize(
    "case", [Identity(4000), Tree(4000), Toeplitz(4000), Blt(4000), Dense(256)], ids=repr
)
def test_no_array_of_all_rounds_is_made(case):
    """The largest intermediate is a chunk of xi, or a block of noise, of size d: never R x d."""
    dimension, block, chunk = 10_000, 8, 4
    rows = case.device_rows(F32)
    traced = jax.make_jaxpr(lambda k, r: draw_rounds(rows, k, r, (dimension,), F32, chunk))(
        jax.random.key(0), jnp.arange(block)
    )
    assert largest(traced.jaxpr) <= max(block, chunk) * dimension < case.rounds * dimension / 10


@pytest.mark.parametrize(
    ("case", "vectors"),
    [
        (Identity(4000), 1),
        (Tree(4000), 1),
        (Toeplitz(4000), 8),
        (Dense(256), 8),
        (Blt(4000, 3), 3),
        (Banded(4000, 6), 5),
    ],
    ids=repr,
)
def test_a_stream_keeps_as_many_vectors_as_it_promises(case, vectors):
    dimension = 10_007  # so that its arrays are told apart from all others

    def held() -> int:
        return (
            sum(a.size for a in jax.live_arrays() if a.ndim and a.shape[-1] == dimension)
            // dimension
        )

    before = held()
    options = {"block": 8} if case.name in ("toeplitz", "dense") else {}
    stream = noise_stream(case, jax.random.key(0), (dimension,), F32, **options)
    for _ in range(20):
        stream.next().block_until_ready()
        assert held() - before <= vectors
    assert sum(value.size for value in stream.state().values()) <= vectors * dimension + 100


@pytest.mark.parametrize("case", every(7), ids=repr)
def test_the_round_past_the_horizon_is_refused(case):
    stream = noise_stream(case, jax.random.key(0), SHAPE, F64)
    drain(stream, 7)
    for _ in range(2):
        with pytest.raises(ValueError, match="made for 7 rounds and all of them have been sent"):
            stream.next()
    with pytest.raises(ValueError, match="made for 7 rounds"):
        noise_stream(case, jax.random.key(0), SHAPE, F64, state=stream.state()).next()


@pytest.mark.parametrize("case", every(7), ids=repr)
def test_another_runs_state_is_refused(case):
    key, shape = jax.random.key(0), SHAPE
    stream = noise_stream(case, key, shape, F64)
    drain(stream, 3)
    saved = stream.state()
    others = {
        "factorization": [(other, key, shape, F64) for other in every(7) if other != case],
        "shape": [(case, key, (3,), F64), (case, key, (3, 2), F64)],
        "dtype": [(case, key, shape, F32)],
        "key check": [(case, jax.random.key(1), shape, F64)],
    }
    longer = Banded(8, case.bands) if isinstance(case, Banded) else type(case)(8)
    others["factorization"].append((longer, key, shape, F64))
    for name, arguments in others.items():
        for argument in arguments:
            with pytest.raises(
                ValueError, match=f"cannot resume the noise of another run: its {name} is"
            ):
                noise_stream(*argument, state=saved)
    elsewhere = {**saved, "sensitivity and error": saved["sensitivity and error"] * 1.0001}
    with pytest.raises(ValueError, match="its sensitivity and error is"):
        noise_stream(case, key, shape, F64, state=elsewhere)
    with pytest.raises(ValueError, match="it lacks round"):
        noise_stream(case, key, shape, F64, state={k: v for k, v in saved.items() if k != "round"})


def test_bad_arguments_are_refused_by_name():
    with pytest.raises(TypeError, match="key must be one key"):
        noise_stream(Toeplitz(4), 0, (2,), F64)
    with pytest.raises(TypeError, match="key must be one key"):
        noise_stream(Toeplitz(4), jax.random.split(jax.random.key(0)), (2,), F64)
    with pytest.raises(ValueError, match="shape must be at least 0"):
        noise_stream(Toeplitz(4), jax.random.key(0), (-2,), F64)
    with pytest.raises(ValueError, match="block must be at least 1"):
        noise_stream(Toeplitz(4), jax.random.key(0), (2,), F64, block=0)
    with pytest.raises(ValueError, match="block must be left out"):
        noise_stream(Blt(4), jax.random.key(0), (2,), F64, block=2)
    saved = noise_stream(Blt(4), jax.random.key(0), (2,), F64).state()
    with pytest.raises(ValueError, match=r"memory in the state must be of shape \(4, 2\)"):
        noise_stream(
            Blt(4), jax.random.key(0), (2,), F64, state={**saved, "memory": np.zeros((3, 2))}
        )
