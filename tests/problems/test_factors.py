"""Clipped sums with convolutions in factors: against those with every record's gradient, and the
bound on every record against exact arithmetic.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hearsay.problems.losses import factors, layers, per_record
from hearsay.problems.losses.formats import EXACT, FORMATS
from hearsay.problems.losses.layers import Conv
from hearsay.problems.losses.models import resnet18
from hearsay.problems.losses.neural_loss import from_module, named
from hearsay.simulation.side_by_side import side_by_side

CLIP, RECORDS = 0.3, 5


class Net(eqx.Module):
    """A convolution whose factors are short (2 x 2 positions), and one whose gradient is."""

    first: Conv
    second: Conv
    twice: bool = eqx.field(static=True)

    def __init__(self, twice: bool = False) -> None:
        one, two = jax.random.split(jax.random.key(0))
        self.first = Conv(one, 2, 16, 3)
        self.second = Conv(two, 16, 16 if twice else 36, 3, stride=1 if twice else 2)
        self.twice = twice

    def __call__(self, x: jax.Array) -> jax.Array:
        x = jnp.tanh(self.second(jnp.tanh(self.first(x))))
        x = self.second(x)[:2, :2] if self.twice else x
        return x.sum(axis=(0, 1))[:4]


def network(twice: bool = False):
    params, static = eqx.partition(Net(twice), eqx.is_inexact_array)

    def value(params, feature, label):
        scores = eqx.combine(static, params)(feature.astype(jax.tree.leaves(params)[0].dtype))
        return (jax.nn.logsumexp(scores) - scores[label]).astype(scores.dtype)

    return value, jax.tree.map(lambda leaf: leaf.astype(jnp.float32), params)


def batch():
    rng = np.random.default_rng(0)
    features = (
        rng.normal(size=(RECORDS, 4, 4, 2)) * np.logspace(-2, 1, RECORDS)[:, None, None, None]
    )
    labels = rng.integers(0, 4, RECORDS)
    return jnp.asarray(features, jnp.float32), labels, jnp.asarray(rng.random(RECORDS), jnp.float32)


def flat(tree):
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])


@pytest.fixture(autouse=True)
def accelerator(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")


@lru_cache
def summed(straight, form=EXACT, **how):
    value, params = network()
    options = {"clip": CLIP, "straight": straight, "form": form, **how}
    return flat(jax.jit(lambda p: per_record.gradient_sum(value, p, *batch(), **options))(params))


@pytest.mark.parametrize("name, close", [("float32", 1e-4), ("tf32", 5e-3)])
def test_the_sum_is_that_of_single_records(name, close):
    whole, ours = summed(False), summed(True, FORMATS[name])
    assert np.linalg.norm(whole - ours) <= close * np.linalg.norm(whole)
    assert not np.array_equal(whole, ours), "no layer was kept in factors"


def test_bfloat16_is_as_close_as_its_products():
    whole, ours = (summed(s, FORMATS["bfloat16"]) for s in (False, True))
    assert ours.dtype == np.float32
    assert np.linalg.norm(whole - ours) <= 0.05 * np.linalg.norm(whole)


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
def test_patches_are_those_the_filter_meets(padding):
    rng = np.random.default_rng(0)
    for sizes, taps, stride in [((5, 4), 3, 2), ((4, 7), 2, 3)]:
        x, weight = rng.normal(size=(*sizes, 8)), rng.normal(size=(taps, taps, 8, 3))
        strides = (stride, stride)
        given, pull = jax.vjp(
            lambda w, x=x, strides=strides: jax.lax.conv_general_dilated(
                x[None], w, strides, padding, dimension_numbers=("NHWC", "HWIO", "NHWC")
            )[0],
            jnp.asarray(weight),
        )
        cotangent = rng.normal(size=given.shape)
        rows = layers.patches(jnp.asarray(x), weight.shape, strides, padding)
        ours = rows.T @ cotangent.reshape(-1, 3)
        np.testing.assert_allclose(ours.reshape(weight.shape), *pull(cotangent), atol=1e-5)


@pytest.mark.parametrize("together", [pytest.param(jax.vmap, marks=pytest.mark.slow), side_by_side])
def test_agents_side_by_side_have_their_own_sums(together):
    value, params = network()
    features, labels, weights = batch()
    both = features, features[::-1]

    def one(factor, features):
        scaled = jax.tree.map(lambda leaf: factor * leaf, params)
        return per_record.gradient_sum(
            value, scaled, features, labels, weights, clip=CLIP, straight=True, form=FORMATS["tf32"]
        )

    factors_of = jnp.float32([1.0, 1.1])
    found = jax.jit(together(one))(factors_of, jnp.stack(both))
    alone = jax.jit(one)
    for place, rows in enumerate(both):
        ours = flat(jax.tree.map(lambda leaf, place=place: leaf[place], found))
        np.testing.assert_allclose(ours, flat(alone(factors_of[place], rows)), atol=1e-4)


def test_microbatches_add_up():
    np.testing.assert_allclose(summed(True, microbatch=2), summed(True), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("digits", sorted(form.digits for form in FORMATS.values()))
@pytest.mark.parametrize("size", [1e-19, 1e-9, 1.0, 1e6, 1e15])
def test_no_record_counts_more_than_its_bound(digits, size):
    """Rows that cancel to every degree, in every format: what `summed` adds up of a record, in
    float64 from the numbers that it multiplies, is at most the scale times `length`.
    """
    rng, cases = np.random.default_rng(digits), 200
    kind = jnp.bfloat16 if digits == 7 else jnp.float32
    shape = (cases, 3, 24)
    patches, cotangents = rng.normal(size=shape), rng.normal(size=(cases, 3, 10))
    # The second half takes back the first, up to a part of it.
    part = 10.0 ** -rng.integers(0, 9, (cases, 1, 1))
    patches = np.concatenate([patches, patches + part * rng.normal(size=shape)], axis=1)
    cotangents = np.concatenate([cotangents, -cotangents], axis=1)
    other = 10.0 ** rng.integers(-6, 7, (cases, 1, 1))
    short = factors._shortened(jnp.asarray(patches / other, jnp.float32), digits).astype(kind)
    rows = factors.Rows(short, jnp.asarray(size * other * cotangents, kind))
    bound = np.asarray(factors.length(rows, digits), np.float64)
    known = np.isfinite(bound)  # what is not counts nothing
    assert known.all() or size == 1e15
    bound = np.where(known, bound, 0)
    scales = rng.random(cases) * np.minimum(1, CLIP / np.where(known, bound, np.inf))
    scales = scales.astype(np.float32)
    scaled = scales[:, None, None] * rows.cotangents.astype(jnp.float32)
    taken = np.asarray(factors._shortened(scaled, digits).astype(kind), np.float64)
    exact = np.einsum("rtk,rtn->rkn", np.asarray(rows.patches, np.float64), taken)
    sizes = np.linalg.norm(exact, axis=(1, 2))
    assert (sizes <= scales * bound).all()
    # Where nothing cancels, and nothing is rounded to 0, the bound is close.
    if size > 1e-19:
        close = sizes[known] / (scales * bound)[known]
        assert close.max() > (0.97 if digits == 7 else 0.99)
    added = factors.summed(rows, jnp.asarray(scales), digits)
    assert added.dtype == jnp.float32
    terms = np.abs(np.asarray(rows.patches, np.float64)), np.abs(taken)
    allowed = 2e-5 * np.einsum("rtk,rtn->kn", *terms) + 1e-30
    assert (np.abs(added - exact[known].sum(axis=0)) <= allowed).all()


def test_the_bound_is_that_of_the_format_in_which_rows_are_stored():
    """bfloat16 rounds this scale up by 0.3 %, whatever digits are asked for."""
    rows = factors.Rows(jnp.ones((1, 1, 8), jnp.bfloat16), jnp.ones((1, 1, 8), jnp.bfloat16))
    scale = jnp.float32([1 + 2**-8 + 2**-12])
    for _, digits, _ in FORMATS.values():
        counted = np.linalg.norm(np.asarray(factors.summed(rows, scale, digits), np.float64))
        assert counted <= scale[0] * factors.length(rows, digits)[0]


@pytest.mark.parametrize("digits, rounded", [(7, "DEFAULT"), (10, "HIGH"), (23, "HIGHEST")])
def test_the_product_is_the_one_of_the_bound_wherever_it_is_asked_for(digits, rounded):
    rows = factors.Rows(jnp.ones((1, 2, 8)), jnp.ones((1, 2, 8)))
    for around in ("bfloat16", "highest"):
        with jax.default_matmul_precision(around):
            found = jax.make_jaxpr(lambda: factors.summed(rows, jnp.ones(1), digits))()
        (product,) = (line for line in found.eqns if line.primitive.name == "dot_general")
        assert {one.name for one in product.params["precision"]} == {rounded}


def test_what_is_not_finite_counts_nothing_and_moves_nobody():
    features, labels, weights = batch()
    value, params = network()
    program = jax.jit(
        lambda x, w: per_record.gradient_sum(
            value, params, x, labels, w, clip=CLIP, straight=True, form=FORMATS["tf32"]
        )
    )
    without = flat(program(features, weights.at[2].set(0.0)))
    assert np.isfinite(flat(program(features.at[2].set(1e30), weights))).all()
    for bad in (np.inf, np.nan):
        np.testing.assert_array_equal(flat(program(features.at[2].set(bad), weights)), without)


def test_every_record_is_within_the_clip():
    value, params = network()
    features, labels, _ = batch()
    one = jax.jit(
        lambda x, y: per_record.gradient_sum(
            value,
            params,
            x,
            y,
            jnp.ones(1, jnp.float32),
            clip=CLIP,
            straight=True,
            form=FORMATS["tf32"],
        )
    )
    for place in range(RECORDS):
        here = slice(place, place + 1)
        found = flat(one(1e3 * features[here], labels[here])).astype(np.float64)
        assert 0.9 * CLIP < np.linalg.norm(found) <= CLIP


def test_only_layers_that_are_used_once_and_in_single_precision(monkeypatch):
    rows = batch()
    value, params = network()
    assert [slot.place for slot in per_record.in_factors(value, params, rows, CLIP, EXACT)] == [1]
    assert per_record.in_factors(value, params, rows, 1e-7, EXACT) == ()
    double = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), params)
    assert per_record.in_factors(value, double, rows, CLIP, EXACT) == ()
    value, params = network(twice=True)
    assert per_record.in_factors(value, params, rows, CLIP, EXACT) == ()
    value, params = network()
    monkeypatch.setattr(jax, "default_backend", lambda: "cpu")
    assert per_record.in_factors(value, params, rows, CLIP, EXACT) == ()


def test_networks_of_others_have_every_gradient_written_out():
    model = from_module(Net())[0]
    assert not model.straight
    with pytest.raises(TypeError, match="straight must be true or false"):
        replace(model, straight=1)
    assert named("cnn-p4", (4, 4, 1), 10, 0)[0].straight


def test_resnet18_keeps_its_deep_layers_in_factors():
    image, label = jax.ShapeDtypeStruct((28, 28, 1), jnp.float32), jax.ShapeDtypeStruct((), int)
    # Shapes alone: drawing 11 million parameters would take longer than all other tests.
    params = eqx.filter_eval_shape(resnet18, jax.random.key(0), image.shape, 10)
    chosen = factors.slots(lambda net, x, y: net(x)[y], params, image, label)
    convs = jax.tree.leaves(params, is_leaf=factors._is_conv)
    size = sum(leaf.size for leaf in jax.tree.leaves(params))
    assert sum(convs[slot.place].weight.size for slot in chosen) > 0.9 * size
    assert all(slot.seen.gives.shape[0] <= 7 for slot in chosen)
