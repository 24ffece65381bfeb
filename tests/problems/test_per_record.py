"""Clipped sums against a plain loop, and the bound on every record in float32."""

from __future__ import annotations

import functools
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hearsay.problems.losses import per_record
from hearsay.problems.losses.formats import FORMATS
from hearsay.problems.losses.models import Cnn
from hearsay.problems.losses.per_record import fitting_microbatch, gradient_sum, record_bytes

RECORDS, CLIP = 7, 0.3


def network(dtype=jnp.float64):
    module = Cnn(jax.random.key(0), (6, 6, 1), (3,), 3, (3,), jnp.tanh)
    params, static = eqx.partition(module, eqx.is_inexact_array)

    def value(params, image, label):
        logits = eqx.combine(params, static)(image)
        return jax.nn.logsumexp(logits) - logits[label]

    return value, jax.tree.map(lambda leaf: leaf.astype(dtype), params)


def batch(seed=0):
    rng = np.random.default_rng(seed)
    weights = rng.random(RECORDS)
    weights[2] = 0
    features = (
        rng.normal(size=(RECORDS, 6, 6, 1)) * np.logspace(-2, 1, RECORDS)[:, None, None, None]
    )
    return jnp.asarray(features), jnp.asarray(rng.integers(0, 3, RECORDS)), jnp.asarray(weights)


@functools.cache
def looped(clip, norm):
    """The definition, one record after the other, in NumPy."""
    value, params = network()
    total, gradient = 0.0, jax.jit(jax.grad(value))
    for feature, label, weight in zip(*batch(), strict=True):
        vector = flat(gradient(params, feature, label))
        length = np.linalg.norm(vector, {"l1": 1, "l2": 2}[norm])
        total = total + float(weight) * vector * (1 if clip is None else min(1, clip / length))
    return total


def flat(tree):
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])


CHOICES = [
    *itertools.product(["l1", "l2"], [CLIP], [None, 3]),
    *itertools.product(["l2"], [None], [None, 3]),
    ("l2", CLIP, 1),
]


@pytest.mark.parametrize("norm, clip, microbatch", CHOICES)
def test_the_sum_is_that_of_a_plain_loop(norm, clip, microbatch):
    value, params = network()
    features, labels, weights = batch()
    ours = jax.jit(
        lambda p: gradient_sum(
            value, p, features, labels, weights, clip=clip, norm=norm, microbatch=microbatch
        )
    )(params)
    assert jax.tree.structure(ours) == jax.tree.structure(params)
    np.testing.assert_allclose(flat(ours), looped(clip, norm), rtol=1e-6, atol=1e-9)


def test_other_devices_give_the_same(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    value, params = network()
    for clip in (None, CLIP):
        ours = jax.jit(lambda p, c=clip: gradient_sum(value, p, *batch(), clip=c))(params)
        np.testing.assert_allclose(flat(ours), looped(clip, "l2"), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("far", [False, True], ids=["summed at once", "one by one"])
def test_gradients_kept_in_bfloat16_are_the_same_to_the_last_bit(far):
    """They come out of the model in it; they are measured and summed in float32."""

    def value(params, feature, label):
        short = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), params)
        return jnp.tanh(short @ feature.astype(jnp.bfloat16)).sum().astype(jnp.float32)

    features = np.random.default_rng(0).normal(size=(5, 40)).astype(np.float32)
    # Squares of it overflow.
    features[3] *= 1e25 if far else 1
    rows = (value, jnp.ones(40, jnp.float32), features, jnp.zeros(5), jnp.ones(5, jnp.float32))
    wide, short = (gradient_sum(*rows, clip=0.2, form=FORMATS[n]) for n in ("float32", "bfloat16"))
    assert short.dtype == jnp.float32
    np.testing.assert_array_equal(short, wide)
    assert np.linalg.norm(short) <= 5 * 0.2


def linear(params, feature, label):
    """A loss whose gradient is the record itself."""
    return params[0] @ feature[:2] + params[1] @ feature[2:] + 0 * label


@functools.partial(jax.jit, static_argnames=("clip", "norm", "microbatch"))
def linear_program(rows, clip, norm, microbatch):
    params = (jnp.ones(2, rows.dtype), jnp.ones(rows.shape[1] - 2, rows.dtype))
    ones = jnp.ones(len(rows), rows.dtype)
    options = {"clip": clip, "norm": norm, "microbatch": microbatch}
    return gradient_sum(linear, params, rows, 0 * ones, ones, **options)


def linear_sum(rows, clip, norm, microbatch=None):
    return flat(linear_program(np.asarray(rows, np.float32), clip, norm, microbatch))


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    scale=st.floats(-20, 20),
    spread=st.floats(0, 15),
    clip=st.sampled_from([1e-3, 700.0]),
    norm=st.sampled_from(["l1", "l2"]),
)
def test_no_record_counts_more_than_the_clip(seed, scale, spread, clip, norm):
    rng = np.random.default_rng(seed)
    record = (rng.normal(size=(1, 40)) * 10.0 ** (scale + rng.uniform(-spread, 0, 40))).astype(
        np.float32
    )
    ours = linear_sum(record, clip, norm).astype(np.float64)
    order = {"l1": 1, "l2": 2}[norm]
    length = np.linalg.norm(record[0].astype(np.float64), order)
    assert np.linalg.norm(ours, order) <= clip
    np.testing.assert_allclose(ours, record[0] * min(1, clip / length), rtol=2e-4, atol=1e-37)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_record_without_a_finite_gradient_counts_nothing(bad):
    rows = np.random.default_rng(0).normal(size=(5, 6)).astype(np.float32)
    clean = linear_sum(rows[[0, 2, 3]], 0.5, "l2")
    rows[1, 3], rows[4, 0] = bad, bad
    np.testing.assert_allclose(linear_sum(rows, 0.5, "l2"), clean, atol=1e-6)
    np.testing.assert_allclose(linear_sum(rows, 0.5, "l2", microbatch=2), clean, atol=1e-6)
    np.testing.assert_array_equal(linear_sum(rows[1:2], 0.5, "l2"), 0)


@pytest.mark.parametrize("norm, small, size", [("l2", 2e-4, 2_000_000), ("l1", 5e-8, 2_000_003)])
def test_small_entries_are_not_lost_beside_a_large_one(norm, small, size):
    """In one running sum of float32 numbers each of these 2 million entries would
    vanish beside the 1.
    """
    gradient = jnp.full(size, small, jnp.float32).at[0].set(1)
    quick = lambda g: per_record.factor_of(per_record.size_of(g, norm), g, 1.0, norm)  # noqa: E731
    for factor in (quick, lambda g: per_record.careful(g, 1.0, norm)[1]):
        exact = np.asarray(gradient, np.float64) * float(jax.jit(factor)(gradient))
        length = np.abs(exact).sum() if norm == "l1" else np.linalg.norm(exact)
        assert 1 - 3e-4 < length <= 1


def test_a_short_gradient_is_left_as_it_is():
    row = np.full((1, 5), 1e-25, np.float32)
    np.testing.assert_array_equal(linear_sum(row, 1.0, "l2"), row[0])
    np.testing.assert_array_equal(linear_sum(0 * row, 1.0, "l2"), 0)


def test_a_microbatch_bounds_the_memory_of_the_program():
    value, params = network(jnp.float32)
    features, labels, weights = (jnp.repeat(rows, 20, axis=0) for rows in batch())

    def held(microbatch):
        step = jax.jit(
            lambda p: gradient_sum(
                value, p, features, labels, weights, clip=1.0, microbatch=microbatch
            )
        )
        return step.lower(params).compile().memory_analysis().temp_size_in_bytes

    assert held(7) < held(140) / 5


def test_memory_estimates():
    value, params = network()
    features, labels, _ = batch()
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(params))
    assert record_bytes(value, params, features[0], labels[0]) > size
    # Without a clip no record's gradient is held.
    product = lambda weights, feature, label: jnp.sum((feature @ weights - label) ** 2)  # noqa: E731
    one = (product, jnp.zeros((200, 50)), jnp.zeros(200), jnp.zeros(()))
    assert 0 < per_record.added_bytes(*one) < one[1].nbytes / 10 < record_bytes(*one) / 10
    assert [fitting_microbatch(100, a) for a in (1, 100, 399, 400, 10_000)] == [1, 1, 2, 4, 64]


@pytest.mark.parametrize(
    "options, message",
    [
        ({"clip": 0.0}, "clip must be positive, got 0.0"),
        ({"norm": "l3"}, "norm must be one of l1, l2, got 'l3'"),
        ({"microbatch": 0}, "microbatch must be at least 1, got 0"),
    ],
)
def test_bad_options_name_their_argument(options, message):
    value, params = network()
    with pytest.raises(ValueError, match=message):
        gradient_sum(value, params, *batch(), **options)


@pytest.mark.slow
def test_what_is_added_up_is_what_was_measured():
    """Gradients computed again, with weights on them, may be others:
    here by a layer whose rule for reverse mode is not linear, and by roundings of bfloat16.
    """

    @jax.custom_vjp
    def odd(x):
        return x

    odd.defvjp(lambda x: (x, None), lambda _, g: (g / jnp.maximum(jnp.abs(g), 1e-9),))

    def value(params, feature, label):
        return jnp.sum(odd(params @ feature))

    ours = gradient_sum(
        value, jnp.zeros((3, 100)), jnp.full((1, 100), 10.0), jnp.zeros(1), jnp.ones(1), clip=1.0
    )
    assert np.linalg.norm(ours) <= 1.0

    def rounded(params, feature, label):
        first, second = (leaf.astype(jnp.bfloat16) for leaf in params)
        scores = second @ jnp.maximum(first @ feature.astype(jnp.bfloat16), 0)
        return (jax.nn.logsumexp(scores) - scores[0]).astype(jnp.float32)

    weights = jnp.ones((8, 4), jnp.float32), jnp.full((4, 8), 1e4, jnp.float32)
    for scale in (1.0, 0.3, 0.07):
        record = jnp.full((1, 4), scale, jnp.float32)
        ours = gradient_sum(
            rounded, weights, record, jnp.zeros(1), jnp.ones(1, jnp.float32), clip=1.0
        )
        assert np.linalg.norm(flat(ours).astype(np.float64)) <= 1.0
