"""Clipped sums on accelerators without the gradients of single records: convolutions in factors.

The gradient of a convolution's weight by one record is a product of T rows, one for each position,

    G = sum_t a_t b_t'        a_t: the patch that the filter meets there, b_t: the cotangent there

and in a deep layer both factors together are far shorter than G (ResNet18's last ones: T = 16, 82
thousand numbers instead of 2.4 million). Its norm follows from products of rows, and the clipped
sum over a batch is one product of all records' rows:

    |G|^2 = sum_ts (a_t . a_s) (b_t . b_s)         sum_r c_r G_r = sum_r,t a_rt (c_r b_rt)'

So what is added up is not the very array that was measured, and the bound on every record needs a
proof of its own (per_record.py says what happens without one). Both sides start from the same
stored factors, a rounded to what the product takes (`digits`), so that the product rounds only c b.
With u the unit of float32, v that of the product's format, S = sum_t |a_t| |b_t|, and h what terms
that are rounded to 0 may hide,

    |computed |G|^2 - |G|^2|       <= (K + N + T^2 + 64) 2 u S^2
                                      + 2 h ((sum |a|)^2 + (sum |b|)^2) + 4 (T^2 + 16) tiny
    |sum_t a_t (rounded(c b_t) - c b_t)'| <= c v S

(dot products of K and N terms and a sum of T^2 of them, each off by at most a rounding per term
of its terms' sizes, and |a_t . a_s| <= |a_t| |a_s|). `length` is a bound of |G| that includes both,
a few parts in a thousand above it where rows cancel as in ResNet18 (S up to 3.5 |G|; with bfloat16
products one or two in a hundred); a record of which they cancel more is clipped more than it had to
be. c S is at most 230 clips: the sum over a batch rounds no worse than one of so many more records.
(A weight is 0 or at least 1e-12: with less, c b would be rounded to 0 and the like.)

A record whose lengths overflow float32 (a gradient beyond 1e19, patches beyond 1e12) counts
nothing. All of it depends on the record alone, so that no record moves what the others count.

Only where a layer's weight is used once and outside of loops (`Model.straight`), in single
precision, in l2: anything else takes the gradients of single records.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax

from hearsay.problems.losses import formats, layers
from hearsay.problems.losses.layers import Conv, Factored

# Factors must be so many times shorter than the gradient: patches are stored, and read again.
_SHORTER = 4
# A smaller clip, or patches that are longer together: what is rounded to 0 could count beside it.
LEAST_CLIP, _FAR = 1e-6, 1e12


class Slot(NamedTuple):
    """A convolution whose weight's gradient stays in factors.

    Args:
      place: of the layer among the convolutions of the model.
      seen: shapes of what it sees of a record, and of what it gives.
      strides, padding: of the layer.
    """

    place: int
    seen: layers.Seen
    strides: tuple[int, int]
    padding: str


def _is_conv(node: Any) -> bool:
    return isinstance(node, Conv)


def _with_weights(params: Any, weights: dict[int, Any]) -> Any:
    """The model with other weights in some of its convolutions."""
    nodes, structure = jax.tree.flatten(params, is_leaf=_is_conv)
    for place, weight in weights.items():
        nodes[place] = eqx.tree_at(
            lambda conv: conv.weight, nodes[place], weight, is_leaf=lambda leaf: leaf is None
        )
    return jax.tree.unflatten(structure, nodes)


def slots(value: Callable, params: Any, feature: jax.Array, label: jax.Array) -> tuple[Slot, ...]:
    """Which convolutions are worth it.

    Args:
      value: (params, feature, label) -> the loss of one record.
      params: of a model that uses every layer once.
      feature, label: of one record.
    """
    nodes = jax.tree.leaves(params, is_leaf=_is_conv)
    convs = {place: node for place, node in enumerate(nodes) if _is_conv(node)}
    probes = {place: Factored(conv.weight, place) for place, conv in convs.items()}

    def fresh(*args: Any) -> jax.Array:
        # Not `value` itself: a function that was traced before is not gone through again.
        return value(*args)

    with layers.probing() as met:
        jax.eval_shape(fresh, _with_weights(params, probes), feature, label)
    found = []
    for place, conv in convs.items():
        seen = [one for where, one in met if where == place]
        strides = (conv.stride, conv.stride)
        if len(seen) == 1 and _shorter(conv.weight.shape, seen[0].gives.shape):
            found.append(Slot(place, seen[0], strides, conv.padding))
    return tuple(found)


def _shorter(weight: tuple[int, ...], gives: tuple[int, ...]) -> bool:
    """Whether factors are much shorter than the gradient of a weight (rows, columns, in, out)."""
    positions, inward, out = math.prod(gives[:-1]), math.prod(weight[:-1]), weight[-1]
    few = weight[2] < layers.FEW_CHANNELS
    return not few and _SHORTER * positions * (inward + out) <= inward * out


class Rows(NamedTuple):
    """Of one layer and all records of a batch: patches (record, T, K), in the product's format, and
    cotangents (record, T, N).
    """

    patches: jax.Array
    cotangents: jax.Array


def gradients(
    value: Callable,
    params: Any,
    features: jax.Array,
    labels: jax.Array,
    chosen: Sequence[Slot],
    digits: int,
) -> tuple[Any, list[Rows]]:
    """(every record's gradient by all parameters but the chosen weights, which are None there; the
    factors of those).
    """
    nodes = jax.tree.leaves(params, is_leaf=_is_conv)
    kept = {slot.place: nodes[slot.place].weight for slot in chosen}
    rest = _with_weights(params, dict.fromkeys(kept, None))

    def loss(rest: Any, shown: list, feature: jax.Array, label: jax.Array) -> jax.Array:
        filled = {
            slot.place: Factored(kept[slot.place], slot.place, *one)
            for slot, one in zip(chosen, shown, strict=True)
        }
        return value(_with_weights(rest, filled), feature, label)

    nothing = [tuple(jnp.zeros(one.shape, one.dtype) for one in slot.seen) for slot in chosen]
    # The barrier: what is measured is what is multiplied, not something computed twice.
    by_rest, factors = lax.optimization_barrier(
        jax.vmap(jax.grad(loss, argnums=(0, 1)), (None, None, 0, 0))(
            rest, nothing, features, labels
        )
    )
    rows = []
    for slot, (seen, given) in zip(chosen, factors, strict=True):
        shape = kept[slot.place].shape
        patches = jax.vmap(lambda x: layers.patches(x, shape, slot.strides, slot.padding))(seen)  # noqa: B023
        flat = given.reshape(len(given), -1, given.shape[-1])
        rows.append(Rows(lax.optimization_barrier(_shortened(patches, digits)), flat))
    return by_rest, rows


def _shortened(values: jax.Array, digits: int) -> jax.Array:
    """Rounded to so many digits behind the leading one; bfloat16 has no more than 7."""
    if digits >= jnp.finfo(values.dtype).nmant:
        return values
    return lax.reduce_precision(values, exponent_bits=8, mantissa_bits=digits)


def _kept(rows: Rows, digits: int) -> int:
    """What the product keeps of the rows: no more than the format in which they are stored has."""
    return min(digits, int(jnp.finfo(rows.patches.dtype).nmant))


def length(rows: Rows, digits: int) -> jax.Array:
    """For every record a bound of the norm of what `summed` adds up of it, divided by its scale."""
    digits = _kept(rows, digits)
    patches, cotangents = (values.astype(jnp.float32) for values in rows)
    (_, count, inward), out = patches.shape, cotangents.shape[-1]
    unit, tiny = float(jnp.finfo(jnp.float32).eps), float(jnp.finfo(jnp.float32).tiny)
    by_patch = jnp.einsum("rtk,rsk->rts", patches, patches, precision="highest")
    by_cotangent = jnp.einsum("rtn,rsn->rts", cotangents, cotangents, precision="highest")
    hidden = (inward + out) * tiny
    # Rounded up: a rounding per term at the most, and what was rounded to 0.
    up = 1 + (inward + out + 64) * unit
    a = jnp.sqrt(up * jnp.diagonal(by_patch, axis1=1, axis2=2) + hidden)
    b = jnp.sqrt(up * jnp.diagonal(by_cotangent, axis1=1, axis2=2) + hidden)
    # Again rounded up: sums of T terms.
    up = 1 + (2 * count + 64) * unit
    both, seen, given = (up * terms.sum(axis=1) for terms in (a * b, a, b))
    squared = jnp.maximum(jnp.sum(by_patch * by_cotangent, axis=(1, 2)), 0)
    error = (inward + out + count**2 + 64) * 2 * unit
    bound = squared + error * both**2 + 2 * hidden * (seen**2 + given**2)
    bound = bound + 4 * (count**2 + 16) * tiny
    rounding = 2.0 ** -(digits + 1) + 4 * unit
    found = jnp.sqrt(bound) * (1 + 16 * unit) + rounding * both
    return jnp.where(seen <= _FAR, found, jnp.inf)


def summed(rows: Rows, scales: jax.Array, digits: int) -> jax.Array:
    """sum_r scales_r G_r, (K, N); a record of scale 0 counts nothing, whatever its numbers are."""
    digits = _kept(rows, digits)
    counts = (scales != 0)[:, None, None]
    scaled = scales[:, None, None] * rows.cotangents.astype(jnp.float32)
    kind = rows.patches.dtype
    cotangents = jnp.where(counts, _shortened(scaled, digits), 0).astype(kind)
    patches = jnp.where(counts, rows.patches, jnp.zeros((), kind))
    # Not as the caller's products are rounded: `length` holds for this format alone.
    return jnp.einsum(
        "rtk,rtn->kn",
        patches,
        cotangents,
        precision=formats.PRODUCTS.get(digits, formats.EXACT.products),
        preferred_element_type=jnp.float32,
    )


def joined(rest: Any, params: Any, chosen: Sequence[Slot], sums: Sequence[jax.Array]) -> Any:
    """A sum over all parameters, from that without the chosen weights and those of them."""
    nodes = jax.tree.leaves(params, is_leaf=_is_conv)
    weights = {
        slot.place: one.reshape(nodes[slot.place].weight.shape)
        for slot, one in zip(chosen, sums, strict=True)
    }
    return _with_weights(rest, weights)
