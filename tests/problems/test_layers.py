"""Layers against the library's own, with first and second derivatives."""

from __future__ import annotations

import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hearsay.problems.losses import layers
from hearsay.problems.losses.layers import Conv, GroupNorm, convolve, max_pool

CASES = [
    ((7, 6), 3, 4, 3, 1, "SAME"),
    ((9, 8), 9, 2, 5, 2, "SAME"),
    ((8, 8), 2, 3, 1, 2, "SAME"),
    ((5, 5), 8, 2, 1, 1, "SAME"),
    ((8, 7), 2, 3, 3, 2, "VALID"),
    ((8, 8), 9, 3, 3, 3, ((3, 0), (1, 4))),
]


def normal(seed: int, *shape: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape))


def library(x, weight, strides, padding):
    with layers.summed_gradients():
        return convolve(x, weight, strides, padding)


def derivatives(function, *inputs):
    """Value, gradient, and gradient of a function of the gradient."""
    places = tuple(range(len(inputs)))

    def scalar(*a):
        return jnp.sum(jnp.sin(function(*a)))

    def of_gradient(*a):
        return sum(jnp.sum(jnp.cos(g)) for g in jax.grad(scalar, places)(*a))

    every = jax.jit(
        lambda *a: (function(*a), jax.grad(scalar, places)(*a), jax.grad(of_gradient, places)(*a))
    )
    return jax.tree.leaves(every(*inputs))


@pytest.mark.parametrize(
    "backend, size, channels, filters, taps, stride, padding",
    [*(("cpu", *case) for case in CASES), ("gpu", *CASES[1])],
)
def test_convolution_and_its_derivatives_are_the_librarys(
    monkeypatch, backend, size, channels, filters, taps, stride, padding
):
    """The form for other devices is plain jax too, so it is checked here by name."""
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    x, weight = normal(0, *size, channels), normal(1, taps, taps, channels, filters)
    ours = derivatives(lambda x, w: convolve(x, w, (stride, stride), padding), x, weight)
    theirs = derivatives(lambda x, w: library(x, w, (stride, stride), padding), x, weight)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-10)


def value(weight, image):
    return jnp.sum(jnp.tanh(convolve(image, weight)))


def test_per_record_weight_gradients_are_those_of_each_record():
    images, weight = normal(0, 4, 6, 6, 2), normal(1, 3, 3, 2, 5)
    together = jax.jit(jax.vmap(jax.grad(value), (None, 0)))(weight, images)
    with layers.summed_gradients():
        one = jax.jit(jax.grad(value))
        apart = np.stack([one(weight, image) for image in images])
    np.testing.assert_allclose(together, apart, atol=1e-12)


def test_per_record_weight_gradients_are_no_grouped_convolutions():
    """Those are what makes the library's per-record gradients slow."""
    images, weight = normal(0, 4, 6, 6, 2), normal(1, 3, 3, 2, 5)
    per_record = jax.vmap(jax.grad(value), (None, 0))
    grouped = re.compile(r"(feature|batch)_group_count=(?!1\b)")
    assert not grouped.search(str(jax.make_jaxpr(per_record)(weight, images)))
    with layers.summed_gradients():
        assert grouped.search(
            str(jax.make_jaxpr(jax.vmap(jax.grad(value), (None, 0)))(weight, images))
        )


def test_the_choice_of_gradients_ends_with_its_block():
    with pytest.raises(RuntimeError), layers.summed_gradients():
        raise RuntimeError
    assert "custom_vjp" in str(jax.make_jaxpr(convolve)(normal(0, 4, 4, 1), normal(1, 3, 3, 1, 1)))


@pytest.mark.parametrize("size", [(6, 4), (7, 5)])
def test_max_pool_is_the_librarys(size):
    x = normal(0, *size, 3)

    def window(x):
        return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (2, 2, 1), (2, 2, 1), "VALID")

    for a, b in zip(derivatives(max_pool, x), derivatives(window, x), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-12)


def test_equal_entries_of_a_window_share_one_gradient():
    gradient = jax.grad(lambda x: jnp.sum(max_pool(x)))(jnp.zeros((4, 4, 2)))
    np.testing.assert_array_equal(gradient.reshape(2, 2, 2, 2, 2).sum(axis=(1, 3)), 1)


def test_a_strided_convolution_without_bias():
    layer = Conv(jax.random.key(0), 3, 5, 3, stride=2, bias=False)
    assert layer(normal(0, 7, 8, 3)).shape == (4, 4, 5) and layer.bias is None


def test_group_norm_is_equinoxs():
    x = normal(0, 5, 6, 8) * 3 + 1
    ours = eqx.tree_at(lambda n: (n.scale, n.bias), GroupNorm(8, 4), (normal(1, 8), normal(2, 8)))
    theirs = eqx.tree_at(
        lambda n: (n.weight, n.bias), eqx.nn.GroupNorm(4, 8), (ours.scale, ours.bias)
    )
    np.testing.assert_allclose(
        ours(x), jnp.moveaxis(theirs(jnp.moveaxis(x, -1, 0)), 0, -1), atol=1e-10
    )


def test_group_norm_on_accelerators_is_the_same(monkeypatch):
    norm = eqx.tree_at(lambda n: (n.scale, n.bias), GroupNorm(8, 4), (normal(1, 8), normal(2, 8)))

    def found():
        return jax.vjp(lambda n, x: n(x), norm, normal(0, 5, 6, 8) * 3 + 1)

    wanted, back = found()
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    ours, ours_back = found()
    np.testing.assert_allclose(ours, wanted, atol=1e-10)
    pairs = zip(*(jax.tree.leaves(b(jnp.sin(wanted))) for b in (ours_back, back)), strict=True)
    for a, b in pairs:
        np.testing.assert_allclose(a, b, atol=1e-9)
    # Sums of bfloat16 numbers are taken in float32.
    short = norm(jnp.full((2, 2, 8), 256.0, jnp.bfloat16).at[0, 0].set(258.0))
    assert short.dtype == jnp.bfloat16 and np.isfinite(np.asarray(short, np.float32)).all()


def test_groups_must_divide_the_channels():
    with pytest.raises(ValueError, match="groups must be a divisor of the 6 channels, got 4"):
        GroupNorm(6, 4)


def test_initial_weights_keep_the_scale_of_their_input():
    weight = layers.initial(jax.random.key(0), (5, 5, 16, 32), 2.0)
    assert float(jnp.var(weight)) == pytest.approx(2 / 400, rel=0.1)
