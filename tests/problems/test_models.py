"""The networks: shapes, parameter counts, and that nothing in them mixes records."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hearsay.problems.losses.layers import ChannelsFirstConv
from hearsay.problems.losses.models import (
    MODELS,
    Cnn,
    Dense,
    ResNet,
    refuse_batchnorm,
    with_fast_convolutions,
)

COUNTS = {
    ("mlp", (28, 28, 1)): 109_386,
    ("cnn-p1", (28, 28, 1)): 63_786,
    ("cnn-p3", (28, 28, 1)): 28_938,
    ("cnn-p4", (28, 28, 1)): 112_394,
    ("cnn-p3", (32, 32, 3)): 34_538,
    ("resnet18", (28, 28, 1)): 11_172_810,
    # The count of the variant with BatchNorm: a scale and a bias per channel either way.
    (
        "resnet18",
        (32, 32, 3),
    ): 11_173_962,
}


@pytest.mark.parametrize("name, shape", COUNTS)
def test_shapes_and_parameter_counts(name, shape):
    module = eqx.filter_eval_shape(MODELS[name], jax.random.key(0), shape, 10)
    arrays, static = eqx.partition(module, lambda leaf: hasattr(leaf, "shape"))
    logits = jax.eval_shape(
        lambda a, x: eqx.combine(a, static)(x), arrays, jax.ShapeDtypeStruct(shape, jnp.float64)
    )
    assert logits.shape == (10,)
    assert sum(leaf.size for leaf in jax.tree.leaves(arrays)) == COUNTS[name, shape]
    refuse_batchnorm(module)


@pytest.mark.parametrize("name", ["mlp", "cnn-p1", "cnn-p4"])
def test_initial_logits_are_moderate_and_differ_by_image(name):
    module = MODELS[name](jax.random.key(0), (28, 28, 1), 10)
    images = jnp.asarray(np.random.default_rng(0).random((3, 28, 28, 1)))
    logits = jax.jit(lambda images: jax.vmap(module)(images))(images)
    assert float(jnp.abs(logits).max()) < 20 and float(jnp.std(logits, axis=0).max()) > 1e-4


@pytest.mark.slow
def test_a_small_resnet_is_finite_and_starts_as_its_shortcuts():
    module = ResNet(jax.random.key(0), (8, 8, 1), 3, (4,))
    image = jnp.asarray(np.random.default_rng(0).random((8, 8, 1)))
    gradient = jax.jit(jax.grad(lambda m: jnp.sum(m(image) ** 2)))(module)
    assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(gradient))
    block = module.blocks[0]
    x = jnp.asarray(np.random.default_rng(1).random((8, 8, 4)))
    np.testing.assert_allclose(jax.jit(lambda x: block(x))(x), x, atol=1e-12)


def test_pooling_first_changes_nothing():
    """An increasing activation may follow the pooling."""
    module = MODELS["cnn-p3"](jax.random.key(0), (8, 8, 1), 4)
    x = hidden = jnp.asarray(np.random.default_rng(0).random((8, 8, 1)))
    for layer in module.convolutions:
        full = jax.nn.sigmoid(layer(hidden))
        hidden = full.reshape(full.shape[0] // 2, 2, full.shape[1] // 2, 2, -1).max(axis=(1, 3))
    np.testing.assert_allclose(module(x), module.dense(hidden), atol=1e-12)


def test_an_mlp_takes_flat_features():
    assert MODELS["mlp"](jax.random.key(0), (30,), 2)(jnp.ones(30)).shape == (2,)


def test_odd_images_and_the_shapes_of_their_layers_agree():
    for pooled in (True, False):
        module = Cnn(jax.random.key(0), (9, 7, 2), (3, 4), 3, (5, 2), jnp.tanh, pooled=pooled)
        assert jax.eval_shape(module, jnp.ones((9, 7, 2))).shape == (2,)


def test_a_convolutional_network_needs_an_image():
    with pytest.raises(
        ValueError,
        match="shape must be .height, width, channels. for a convolutional network, got .30,.",
    ):
        MODELS["cnn-p3"](jax.random.key(0), (30,), 2)


class Holder(eqx.Module):
    parts: dict


@pytest.mark.parametrize("kind", ["BatchNorm", "SpectralNorm", "StateIndex"])
def test_layers_that_mix_records_are_refused_by_place(kind):
    layer = {
        "BatchNorm": lambda: eqx.nn.BatchNorm(4, "records", mode="batch"),
        "SpectralNorm": lambda: eqx.nn.SpectralNorm(
            eqx.nn.Linear(2, 2, key=jax.random.key(0)), "weight", key=jax.random.key(1)
        ),
        "StateIndex": lambda: eqx.nn.StateIndex(jnp.zeros(2)),
    }[kind]()
    module = Holder({"first": eqx.nn.GroupNorm(2, 4), "second": [layer]})
    with pytest.raises(
        ValueError,
        match=rf"clipping records one by one would bound nothing.*{kind} at module.*second",
    ):
        refuse_batchnorm(module)


def equinox_cnn(**options):
    keys = jax.random.split(jax.random.key(0), 3)
    return eqx.nn.Sequential(
        [
            eqx.nn.Conv2d(2, 4, 3, key=keys[0], **options),
            eqx.nn.Lambda(jnp.tanh),
            eqx.nn.Conv2d(4, 6, 3, padding="SAME", use_bias=False, key=keys[1]),
            eqx.nn.Lambda(jnp.ravel),
        ]
    )


@pytest.mark.parametrize(
    "options", [{"stride": 2, "padding": 1}, {"padding": ((1, 2), (0, 1))}, {"dilation": 2}]
)
def test_quickened_modules_have_the_same_values_and_gradients(options):
    module = equinox_cnn(**options)
    quick = with_fast_convolutions(module)
    assert isinstance(quick[2], ChannelsFirstConv)
    assert isinstance(quick[0], eqx.nn.Conv2d if "dilation" in options else ChannelsFirstConv)
    images = jnp.asarray(np.random.default_rng(0).normal(size=(3, 2, 8, 8)))

    @eqx.filter_jit
    def derivatives(module):
        gradient = eqx.filter_grad(lambda module, image: jnp.sum(jnp.sin(module(image))))
        return jax.tree.leaves(
            (jax.vmap(module)(images), jax.vmap(gradient, (None, 0))(module, images))
        )

    for a, b in zip(derivatives(quick), derivatives(module), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-12)


def test_quickened_leaves_other_modules_alone():
    module = Dense(jax.random.key(0), (3, 2), jnp.tanh, 1.0)
    assert eqx.tree_equal(with_fast_convolutions(module), module)
