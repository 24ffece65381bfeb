"""Sums of clipped per-record gradients: sum_i w_i clip_B(g_i), where g_i is the gradient of record i's loss by all parameters.

    clip_B(g) = g min(1, B / |g|)       |g| the l1 or l2 norm over all parameters together

Every record counts with norm at most B, whatever its data: a sensitivity rests on that, so rounding may not break it. Norms are
taken of g / max|g|, so no square under- or overflows, and summed in blocks of BLOCK, level by level, so that each level adds a relative error of at most
BLOCK units of rounding, however many parameters there are (one running sum would lose small terms beside a large one: with
11 million parameters the norm could come out 20 % short). The norm is then raised by `margin`, the sum of all those errors: about
5e-5 for 11 million parameters in float32. A record whose gradient is not finite counts nothing.

    vmap        one pass: per-record gradients of a microbatch in memory, their norms, their weighted sum
    two_pass    norms first, then one gradient of the reweighted sum of losses: gradients are summed as they are made

Both go through a batch in microbatches, which bounds the memory and, on a CPU, keeps the work in the cache.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from hearsay import _validate as check
from hearsay.problems import layers

Value = Callable[[Any, Any, Any], jax.Array]

BLOCK = 256  # terms per running sum in a norm
CACHE = (
    32 << 20
)  # bytes of `record_bytes` that a CPU's microbatch may have (measured; the estimate counts every intermediate)
METHODS = ("auto", "vmap", "two_pass")


def gradient_sum(
    value: Value,
    params: Any,
    features: jax.Array,
    labels: jax.Array,
    weights: jax.Array,
    *,
    clip: float | None = None,
    norm: str = "l2",
    microbatch: int | None = None,
    method: str = "auto",
) -> Any:
    """sum_i weights_i clip(gradient of value(params, features_i, labels_i)), shaped like `params`; without `clip` the plain weighted sum.

    `microbatch` records are worked on at a time; None takes as many as suit the machine.
    """
    check.one_of("norm", norm, ("l1", "l2"))
    check.one_of("method", method, METHODS)
    if clip is not None:
        check.positive("clip", clip)
    if microbatch is not None:
        check.count("microbatch", microbatch)
    if method == "auto":
        method = chosen(params, weights.shape[0])
    size = microbatch or suited(value, params, features, labels)

    def block(features: jax.Array, labels: jax.Array, weights: jax.Array) -> Any:
        if clip is None:
            return weighted(value, params, features, labels, weights)
        sum_of = one_pass if method == "vmap" else two_passes
        return sum_of(value, params, features, labels, weights, clip, norm)

    return _in_blocks(block, params, (features, labels, weights), size)


def chosen(params: Any, records: int) -> str:
    """The faster method: one pass, unless the gradients of one batch would fill a device's memory."""
    size = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(params))
    return "vmap" if size * records <= 16 << 30 else "two_pass"


def suited(value: Value, params: Any, features: jax.Array, labels: jax.Array) -> int:
    """Records at a time: what stays in a CPU's cache; on other devices the whole batch."""
    records = features.shape[0]
    if jax.default_backend() != "cpu" or records <= 1:
        return max(records, 1)
    return fitting_microbatch(record_bytes(value, params, features[0], labels[0]), CACHE)


def _in_blocks(block: Callable[..., Any], params: Any, batch: tuple, size: int) -> Any:
    """The sum of `block` over a batch cut into equal blocks of at most `size`; rows that fill up the last one have weight 0."""
    records = batch[-1].shape[0]
    if size >= records:
        return block(*batch)
    blocks = -(-records // size)
    size = -(-records // blocks)
    features, labels, weights = batch
    short = blocks * size - records
    fill = lambda rows: jnp.concatenate([rows, rows[:short]]) if short else rows  # noqa: E731
    weights = jnp.concatenate([weights, jnp.zeros(short, weights.dtype)])
    cut = [rows.reshape(blocks, size, *rows.shape[1:]) for rows in (fill(features), fill(labels), weights)]

    def add(total: Any, rows: list) -> tuple[Any, None]:
        return jax.tree.map(jnp.add, total, block(*rows)), None

    return lax.scan(add, jax.tree.map(jnp.zeros_like, params), cut)[0]


def weighted(value: Value, params: Any, features: jax.Array, labels: jax.Array, weights: jax.Array) -> Any:
    """The ordinary gradient of the weighted sum of losses."""

    def total(params: Any) -> jax.Array:
        return jnp.vdot(weights, jax.vmap(value, (None, 0, 0))(params, features, labels))

    # On a CPU the library's weight gradient of a convolution is slow inside a loop: 10 times, measured.
    if jax.default_backend() == "cpu":
        return jax.grad(total)(params)
    with layers.summed_gradients():
        return jax.grad(total)(params)


def one_pass(
    value: Value, params: Any, features: jax.Array, labels: jax.Array, weights: jax.Array, clip: float, norm: str
) -> Any:
    gradients = jax.vmap(jax.grad(value), (None, 0, 0))(params, features, labels)
    finite, factors = jax.vmap(lambda g: factor(g, clip, norm))(gradients)
    scales = (weights * factors).astype(factors.dtype)

    def combined(gradients: Any) -> Any:
        return jax.tree.map(lambda leaf: jnp.tensordot(scales.astype(leaf.dtype), leaf, 1), gradients)

    def emptied(gradients: Any) -> Any:
        # 0 times an infinity is not 0.
        keep = lambda leaf: jnp.where(finite.reshape(-1, *[1] * (leaf.ndim - 1)), leaf, 0)  # noqa: E731
        return combined(jax.tree.map(keep, gradients))

    return lax.cond(jnp.all(finite), combined, emptied, gradients)


def two_passes(
    value: Value, params: Any, features: jax.Array, labels: jax.Array, weights: jax.Array, clip: float, norm: str
) -> Any:
    def one(feature: jax.Array, label: jax.Array) -> tuple[jax.Array, jax.Array]:
        return factor(jax.grad(value)(params, feature, label), clip, norm)

    finite, factors = jax.vmap(one)(features, labels)
    # A record that counts nothing is replaced by one that has a gradient, with weight 0: 0 times an infinity is not 0.
    row = jnp.where(finite, jnp.arange(finite.shape[0]), jnp.argmax(finite))
    total = weighted(value, params, features[row], labels[row], (weights * factors).astype(factors.dtype))
    return jax.tree.map(lambda leaf: jnp.where(jnp.any(finite), leaf, 0), total)


def factor(gradient: Any, clip: float, norm: str) -> tuple[jax.Array, jax.Array]:
    """Whether one record's gradient is finite, and the number that brings its norm to at most `clip` (0 where it is not finite)."""
    leaves = [leaf for leaf in jax.tree.leaves(gradient) if leaf.size]
    largest = jnp.stack([jnp.max(jnp.abs(leaf)) for leaf in leaves]).max()
    finite = jnp.isfinite(largest)
    unit = jnp.where(finite, jnp.maximum(largest, 1e-30), 1)
    terms = [jnp.abs(leaf) / unit if norm == "l1" else jnp.square(leaf / unit) for leaf in leaves]
    total = sum((_blocked_sum(term.ravel()) for term in terms), start=jnp.zeros((), largest.dtype))
    length = total if norm == "l1" else jnp.sqrt(total)
    factors = jnp.minimum(1, clip / unit / (length * (1 + margin(leaves))))
    return finite, jnp.where(finite, factors, 0)


def _blocked_sum(terms: jax.Array) -> jax.Array:
    while terms.size > 1:
        rows = -(-terms.size // BLOCK)
        terms = jnp.pad(terms, (0, rows * BLOCK - terms.size)) if rows > 1 else terms
        # Without the barrier the compiler may join the levels into one running sum, which the margin does not cover.
        terms = lax.optimization_barrier(terms.reshape(rows, -1).sum(axis=1))
    return terms.reshape(())


def margin(leaves: list) -> float:
    """Bound of the relative error of a norm: BLOCK roundings per level, one per leaf, and 16 for the term, root, product and quotient."""
    levels = max(math.ceil(math.log(max(leaf.size, 2), BLOCK)) for leaf in leaves)
    return (BLOCK * levels + len(leaves) + 16) * float(jnp.finfo(jnp.result_type(*leaves)).eps)


def record_bytes(value: Value, params: Any, feature: Any, label: Any) -> int:
    """An upper estimate of the memory of one record's gradient: all intermediates of its program, as if none were freed."""
    shaped = lambda leaf: jax.ShapeDtypeStruct(jnp.shape(leaf), jnp.result_type(leaf))  # noqa: E731
    arguments = jax.tree.map(shaped, (params, feature, label))
    return _bytes(jax.make_jaxpr(jax.grad(value))(*arguments).jaxpr)


def _bytes(jaxpr: Any) -> int:
    total = 0
    for equation in jaxpr.eqns:
        inner = [p.jaxpr for p in equation.params.values() if hasattr(p, "jaxpr")]
        held = (v.aval.size * v.aval.dtype.itemsize for v in equation.outvars if hasattr(v.aval, "dtype"))
        total += max(sum(_bytes(one) for one in inner), sum(held))
    return total


def fitting_microbatch(bytes_per_record: int, available_bytes: int) -> int:
    """The largest power of two of records that fit, at least 1."""
    check.count("bytes_per_record", bytes_per_record)
    return 1 << max(0, (available_bytes // bytes_per_record).bit_length() - 1)
