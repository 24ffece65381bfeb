"""Sums of clipped per-record gradients: sum_i w_i clip_B(g_i), where g_i is the gradient of record
i's loss by all parameters.

    clip_B(g) = g min(1, B / |g|)       |g| the l1 or l2 norm over all parameters together

Every record counts with norm at most B, whatever its data: a sensitivity rests on that, so rounding
may not break it. Norms are summed in blocks of at most BLOCK terms, level by level, so that each
level adds a relative error of at most BLOCK roundings, however many parameters there are (one
running sum would lose small terms beside a large one: with 11 million parameters a norm could come
out 20 % short). The norm is then raised by `margin`, the sum of all those errors, about 1e-4 for 11
million parameters in float32, and by what squares rounded to 0 may hide. Where a sum overflows, the
records are taken one by one with entries scaled by their largest. A record whose gradient is not
finite, beyond 1e36 or 1e30 clips long counts nothing.

What is added up is what was measured: the very arrays whose norms were taken, scaled and summed
in the parameters' precision. The usual shortcut, norms first and then one gradient of the
reweighted sum of losses, computes those gradients a second time: in other roundings (with bfloat16
a cancellation in the first pass came out 20 times the clip in the second), or not in proportion
to the weights at all (a layer with a rule of its own). On accelerators the deep convolutions of our
own networks are kept in factors, with a proof of their own (factors.py). A batch is worked through
in microbatches, which bounds the memory and, on a CPU, keeps the work in the cache.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from hearsay import _validate as require
from hearsay.problems.losses import factors, layers
from hearsay.problems.losses.domains import FAR
from hearsay.problems.losses.formats import EXACT, Format

Value = Callable[[Any, Any, Any], jax.Array]

BLOCK = 256  # terms per running sum in a norm
# Bytes of `record_bytes` that a CPU's microbatch may have (measured; the estimate counts every
# intermediate).
CACHE = 32 << 20


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
    form: Format = EXACT,
    straight: bool = False,
) -> Any:
    """sum_i weights_i clip(gradient of value(params, features_i, labels_i)), shaped like `params`;
    without `clip` the plain weighted sum.

    `microbatch` records are worked on at a time; None takes as many as suit the machine. `form` is
    how `value` computes: its `stored` is the precision in which the gradients of single records are
    kept, one in which they come out of `value`. `straight`: every layer is used once, outside of
    loops.
    """
    require.one_of("norm", norm, ("l1", "l2"))
    clip = require.optional(require.bound)("clip", clip)
    microbatch = require.optional(require.count)("microbatch", microbatch)
    size = min(microbatch or suited(value, params, features, labels), weights.shape[0])

    def block(features: jax.Array, labels: jax.Array, weights: jax.Array) -> Any:
        if clip is None:
            return unclipped(value, params, features, labels, weights)
        batch = features, labels, weights
        if straight and norm == "l2" and (chosen := in_factors(value, params, batch, clip, form)):
            return clipped_in_factors(value, params, batch, clip, form, chosen)
        return clipped(value, params, batch, clip, norm, form)

    return _in_blocks(block, params, (features, labels, weights), size)


def suited(value: Value, params: Any, features: jax.Array, labels: jax.Array) -> int:
    """Records at a time: what stays in a CPU's cache; on other devices the whole batch."""
    records = features.shape[0]
    if jax.default_backend() != "cpu" or records <= 1:
        return max(records, 1)
    return max(1, CACHE // record_bytes(value, params, features[0], labels[0]))


def _in_blocks(block: Callable[..., Any], params: Any, batch: tuple, size: int) -> Any:
    """The sum of `block` over a batch cut into equal blocks of at most `size`;
    rows that fill up the last one have weight 0.
    """
    records = batch[-1].shape[0]
    if size >= records:
        return block(*batch)
    blocks = -(-records // size)
    size = -(-records // blocks)
    features, labels, weights = batch
    short = blocks * size - records
    fill = lambda rows: jnp.concatenate([rows, rows[:short]]) if short else rows  # noqa: E731
    weights = jnp.concatenate([weights, jnp.zeros(short, weights.dtype)])
    cut = [
        rows.reshape(blocks, size, *rows.shape[1:])
        for rows in (fill(features), fill(labels), weights)
    ]

    def add(total: Any, rows: list) -> tuple[Any, None]:
        return jax.tree.map(jnp.add, total, block(*rows)), None

    return lax.scan(add, jax.tree.map(jnp.zeros_like, params), cut)[0]


def weighted(
    value: Value, params: Any, features: jax.Array, labels: jax.Array, weights: jax.Array
) -> Any:
    """The gradient of the weighted sum of losses, as one."""

    def total(params: Any) -> jax.Array:
        return jnp.vdot(weights, jax.vmap(value, (None, 0, 0))(params, features, labels))

    # On a CPU the library's weight gradient of a convolution is slow inside a loop: 10
    # times, measured.
    if jax.default_backend() == "cpu":
        return jax.grad(total)(params)
    with layers.summed_gradients():
        return jax.grad(total)(params)


def wide(gradient: jax.Array) -> jax.Array:
    """In the precision in which gradients are measured and summed: bfloat16 becomes float32."""
    return gradient.astype(jnp.float32) if gradient.dtype == jnp.bfloat16 else gradient


def summed(scales: jax.Array, gradient: jax.Array) -> jax.Array:
    """Over the records, in full precision whatever the model computes in."""
    gradient = wide(gradient)
    scales = scales.astype(gradient.dtype)
    if jax.default_backend() == "cpu":
        return jnp.tensordot(scales, gradient, 1, precision="highest")
    # A sum reads bfloat16 as it is stored; a product would want it in float32, in memory.
    return jnp.sum(scales.reshape(-1, *(1 for _ in gradient.shape[1:])) * gradient, axis=0)


def unclipped(
    value: Value, params: Any, features: jax.Array, labels: jax.Array, weights: jax.Array
) -> Any:
    """Of matrices the sum is one product over the batch, so that outer products of single
    records are never stored.
    """
    batched = weighted(value, params, features, labels, weights)
    if jax.default_backend() != "cpu":
        return batched
    gradients = jax.vmap(jax.grad(value), (None, 0, 0))(params, features, labels)
    return jax.tree.map(lambda g, b: b if b.ndim == 2 else summed(weights, g), gradients, batched)


def clipped(
    value: Value, params: Any, batch: tuple, clip: float, norm: str, form: Format = EXACT
) -> Any:
    features, labels, weights = batch
    # The barrier: nothing of a gradient may be computed once for its norm and once more
    # for the sum.
    gradients = lax.optimization_barrier(
        jax.vmap(jax.grad(value), (None, 0, 0))(_in(params, form), features, labels)
    )
    sizes = jax.vmap(lambda g: size_of(g, norm))(gradients)
    scales = (weights * factor_of(sizes, params, clip, norm)).astype(sizes.dtype)
    return lax.cond(
        jnp.all(jnp.isfinite(sizes)),
        lambda: jax.tree.map(lambda gradient: summed(scales, gradient), gradients),
        lambda: one_by_one(gradients, weights, clip, norm),
    )


def _in(params: Any, form: Format) -> Any:
    if form.stored is None:
        return params
    return jax.tree.map(lambda leaf: leaf.astype(form.stored), params)


def in_factors(
    value: Value, params: Any, batch: tuple, clip: float, form: Format
) -> tuple[factors.Slot, ...]:
    """The convolutions whose gradients are not written out, record by record: on accelerators and
    in single precision alone.
    """
    single = all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(params))
    if jax.default_backend() == "cpu" or not single or clip < factors.LEAST_CLIP:
        return ()
    features, labels, _ = batch
    return factors.slots(value, _in(params, form), features[0], labels[0])


def clipped_in_factors(
    value: Value,
    params: Any,
    batch: tuple,
    clip: float,
    form: Format,
    chosen: tuple[factors.Slot, ...],
) -> Any:
    """The same sum with the gradients of some convolutions in factors."""
    (features, labels, weights), digits = batch, form.digits
    gradients, rows = factors.gradients(value, _in(params, form), features, labels, chosen, digits)
    sizes = jax.vmap(lambda g: size_of(g, "l2"))(gradients)
    sizes = sizes + sum(jnp.square(factors.length(one, digits)) for one in rows)
    # A record that is not finite, or whose length is not, counts nothing.
    finite = jnp.isfinite(sizes)
    scales = weights * factor_of(jnp.where(finite, sizes, 1), params, clip, "l2")
    scales = jnp.where(finite, scales, 0).astype(sizes.dtype)

    def added(gradient: jax.Array) -> jax.Array:
        counts = finite.reshape(-1, *(1 for _ in gradient.shape[1:]))
        return summed(scales, jnp.where(counts, gradient, 0))

    total = jax.tree.map(added, gradients)
    products = [factors.summed(one, scales, digits) for one in rows]
    return factors.joined(total, params, chosen, products)


def one_by_one(gradients: Any, weights: jax.Array, clip: float, norm: str) -> Any:
    """The same sum for batches in which a gradient is huge or not finite: slower, and rare.

    Of the very gradients that are at hand: were they computed anew, one record would change the
    rounding of all others.
    """

    def add(total: Any, record: tuple) -> tuple[Any, None]:
        gradient, weight = record
        gradient = jax.tree.map(wide, gradient)
        finite, factor = careful(gradient, clip, norm)
        # Not a product: 0 times an infinity is not 0.
        grown = lambda t, g: jnp.where(finite, t + (weight * factor).astype(g.dtype) * g, t)  # noqa: E731
        return jax.tree.map(grown, total, gradient), None

    nothing = jax.tree.map(lambda g: jnp.zeros_like(wide(g[0])), gradients)
    return lax.scan(add, nothing, (gradients, weights))[0]


def size_of(gradient: Any, norm: str) -> jax.Array:
    """One record's sum of squares (l2) or of absolute values (l1); not finite if an entry is not,
    or where the sum overflows.
    """
    leaves = [wide(leaf) for leaf in jax.tree.leaves(gradient)]
    terms = [jnp.abs(leaf) if norm == "l1" else jnp.square(leaf) for leaf in leaves]
    return jnp.stack([_blocked_sum(term.ravel()) for term in terms]).sum()


def factor_of(size: jax.Array, params: Any, clip: Any, norm: str, unit: Any = 1.0) -> jax.Array:
    """What brings a gradient of that (finite) size, in that unit, to norm `clip` or less."""
    # Squares below the smallest number may have been rounded to 0: so much each of them may hide.
    hidden = sum(leaf.size for leaf in jax.tree.leaves(params)) * float(jnp.finfo(size.dtype).tiny)
    length = size + hidden if norm == "l1" else jnp.sqrt(size + hidden)
    factor = jnp.minimum(1, clip / (length * (1 + margin(params))) / unit)
    # A factor near the smallest normal number has too few digits to be trusted once it is weighted:
    # such a gradient counts nothing.
    return jnp.where(factor >= require.SMALLEST_BOUND, factor, 0)


def careful(gradient: Any, clip: float, norm: str) -> tuple[jax.Array, jax.Array]:
    """Whether a gradient is finite (as good as: below FAR), and its factor (else 0),
    with entries scaled by the largest so that no sum overflows.
    """
    largest = jnp.stack(
        [jnp.max(jnp.abs(leaf), initial=0) for leaf in jax.tree.leaves(gradient)]
    ).max()
    # A compiled program may flush the reciprocal of more to 0, and the length with it; not a number
    # counts as more.
    finite = largest <= FAR
    unit = jnp.where(finite, jnp.maximum(largest, 1), 1)
    size = size_of(jax.tree.map(lambda leaf: leaf / unit, gradient), norm)
    # Scaled back last: a clip over a unit could be below the smallest normal number.
    factor = factor_of(size, gradient, clip, norm, unit)
    return finite, jnp.where(finite, factor, 0)


def _blocked_sum(terms: jax.Array) -> jax.Array:
    for width in _widths(terms.size):
        rows = -(-terms.size // width)
        terms = jnp.pad(terms, (0, rows * width - terms.size)) if terms.size % width else terms
        # Without the barrier the compiler may join the levels into one running sum, which the
        # margin does not cover.
        terms = lax.optimization_barrier(terms.reshape(rows, width).sum(axis=1))
    return terms.sum()


def _widths(size: int) -> list[int]:
    """How many terms each level of a sum adds up: divisors where there are good ones,
    since filling up costs a copy.
    """
    widths = []
    while size > 1:
        most = min(size, BLOCK)
        width = max(w for w in range(1, most + 1) if size % w == 0)
        widths.append(width if 8 * width >= most else most)
        size = -(-size // widths[-1])
    return widths


def margin(params: Any) -> float:
    """Bound of the relative error of a norm: a rounding per term and level, one per leaf,
    and 16 for the term, root, product and quotient.
    """
    leaves = jax.tree.leaves(params)
    most = max(sum(_widths(leaf.size)) for leaf in leaves)
    return (most + len(leaves) + 16) * float(jnp.finfo(jnp.result_type(*leaves)).eps)


def record_bytes(value: Value, params: Any, feature: Any, label: Any) -> int:
    """An upper estimate of the memory of one record's gradient: all intermediates of its program,
    as if none were freed.
    """
    shaped = lambda leaf: jax.ShapeDtypeStruct(jnp.shape(leaf), jnp.result_type(leaf))  # noqa: E731
    arguments = jax.tree.map(shaped, (params, feature, label))
    return _bytes(jax.make_jaxpr(jax.grad(value))(*arguments).jaxpr)


def added_bytes(value: Value, params: Any, feature: Any, label: Any) -> int:
    """The same of one record more where gradients are not clipped: they are summed as they are
    computed, and none is held.
    """

    def of(records: int) -> int:
        rows = lambda leaf: jax.ShapeDtypeStruct((records, *leaf.shape), leaf.dtype)  # noqa: E731
        weights = jax.ShapeDtypeStruct((records,), jax.tree.leaves(params)[0].dtype)
        batch = (rows(feature), rows(label), weights)
        return _bytes(jax.make_jaxpr(partial(weighted, value))(params, *batch).jaxpr)

    return max(1, of(3) - of(2))


def _bytes(jaxpr: Any) -> int:
    total = 0
    for equation in jaxpr.eqns:
        inner = [p.jaxpr for p in equation.params.values() if hasattr(p, "jaxpr")]
        held = (
            v.aval.size * v.aval.dtype.itemsize
            for v in equation.outvars
            if hasattr(v.aval, "dtype")
        )
        total += max(sum(_bytes(one) for one in inner), sum(held))
    return total


def fitting_microbatch(bytes_per_record: int, available_bytes: int) -> int:
    """The largest power of two of records that fit, at least 1."""
    held = require.natural("available_bytes", available_bytes) // require.count(
        "bytes_per_record", bytes_per_record
    )
    return 1 << max(0, held.bit_length() - 1)
