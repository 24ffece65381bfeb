"""Convolutions in which images and weights both are an agent's own, for all agents at once.

`jax.vmap` makes one convolution with groups of them, which libraries run many times slower than the
work it is. Here it becomes

    one product of patches for all agents     where one agent's convolution would not fill the
                                              device (the small images of deep layers), or agents
                                              are many and their patches small
    a convolution for each agent              elsewhere

A line of a traced program (side_by_side.py) says what kind of convolution it is: the values, or a
gradient by the images (both with few taps), or a gradient by the weights, whose "taps" are the
positions of an output and whose output are the taps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

# A convolution of one agent has enough work for a device if its output has so many tiles of
# TILE x TILE numbers (positions of all records x filters): with 5 agents on an H200 the layers of
# ResNet18 with 28 x 28 and 14 x 14 positions have, those with fewer have not (measured).
FULL, TILE = 64, 128
# Up to so many agents have a convolution each in the program; more take turns in a loop.
COPIES = 8
# A turn of that loop takes as long as writing and reading so many bytes of patches, about.
TURN = 32 << 20


def convolved(line: Any, images: jax.Array, weights: jax.Array) -> jax.Array:
    """What the line computes, with a leading axis of agents."""
    params = line.params
    patched = _small(line) or (len(images) > COPIES and _patch_bytes(line) <= TURN)
    if params["feature_group_count"] == params["batch_group_count"] == 1 and patched:
        by = _weights_by_patches if by_weights(line) else _by_patches
        return by(images, weights, params)
    return _one_by_one(line, images, weights)


def by_weights(line: Any) -> bool:
    """Whether it is the gradient of a convolution by its weights: more taps than positions."""
    _, right, out = line.params["dimension_numbers"]
    shape, taps = line.outvars[0].aval.shape, line.invars[1].aval.shape
    return math.prod(taps[i] for i in right[2:]) > math.prod(shape[i] for i in out[2:])


def _small(line: Any) -> bool:
    """Whether one agent's convolution leaves most of a device idle; a gradient by the weights is
    as large as the convolution that it belongs to.
    """
    _, right, out = line.params["dimension_numbers"]
    shape, taps = line.outvars[0].aval.shape, line.invars[1].aval.shape
    if by_weights(line):
        rows, columns = math.prod(taps) // taps[right[0]], taps[right[0]]
    else:
        rows, columns = math.prod(shape) // shape[out[1]], shape[out[1]]
    return -(-rows // TILE) * -(-columns // TILE) < FULL


def _patch_bytes(line: Any) -> int:
    """Of one agent: what a product of patches reads, once for every number that it adds up."""
    _, right, out = line.params["dimension_numbers"]
    result, taps = line.outvars[0].aval, line.invars[1].aval.shape
    rows = result.size // result.shape[out[1]]
    return rows * (math.prod(taps) // taps[right[0]]) * result.dtype.itemsize


def _one_by_one(line: Any, images: jax.Array, weights: jax.Array) -> jax.Array:
    """A convolution for each agent. Filters, or a gradient by them, are brought into the order that
    libraries compute in (out, height, width, in) for all agents at once.
    """
    left, right, out = line.params["dimension_numbers"]
    after = None
    if by_weights(line):
        order = (out[1], *out[2:], out[0])
        out = tuple(order.index(i) for i in out)
        after = (0, *(order.index(i) + 1 for i in range(len(order))))
    else:
        order = (right[0], *right[2:], right[1])
        right = tuple(order.index(i) for i in right)
        weights = jnp.transpose(weights, (0, *(i + 1 for i in order)))
    numbers = lax.ConvDimensionNumbers(left, right, out)
    one = partial(line.primitive.bind, **{**line.params, "dimension_numbers": numbers})
    if len(images) <= COPIES:
        found = jnp.stack([one(*pair) for pair in zip(images, weights, strict=True)])
    else:
        found = lax.map(lambda pair: one(*pair), (images, weights))
    return found if after is None else jnp.transpose(found, after)


def _by_patches(images: jax.Array, weights: jax.Array, params: Any) -> jax.Array:
    """(record, position) x (tap, channel) times (tap, channel) x filter, for every agent."""
    left, right, out = params["dimension_numbers"]
    flat = _ordered(weights, (*right[2:], right[1], right[0]))
    taps, filters = flat.shape[1:-2], flat.shape[-1]
    padded = _padded(_ordered(images, (left[0], *left[2:], left[1])), params)
    many = _positions(padded, taps, params["rhs_dilation"], params["window_strides"])
    patches = _patches(padded, taps, many, params["window_strides"], params["rhs_dilation"])
    agents, records, *_, channels = padded.shape
    found = _product(
        patches.reshape(agents, -1, math.prod(taps) * channels),
        flat.reshape(agents, -1, filters),
        ((2,), (1,)),
        params,
    ).reshape(agents, records, *many, filters)
    return _unordered(found, (out[0], *out[2:], out[1]))


def _weights_by_patches(images: jax.Array, weights: jax.Array, params: Any) -> jax.Array:
    """(tap, channel) x (record, position) times (record, position) x filter, for every agent. In
    the line's own terms channels are the images' records, and records their channels.
    """
    left, right, out = params["dimension_numbers"]
    flat = _ordered(weights, (right[1], *right[2:], right[0]))
    places, filters = flat.shape[2:-1], flat.shape[-1]
    padded = _padded(_ordered(images, (left[1], *left[2:], left[0])), params)
    taps = _positions(padded, places, params["rhs_dilation"], params["window_strides"])
    patches = _patches(padded, taps, places, params["rhs_dilation"], params["window_strides"])
    agents, channels = len(padded), padded.shape[-1]
    found = _product(
        patches.reshape(agents, -1, math.prod(taps) * channels),
        flat.reshape(agents, -1, filters),
        ((1,), (1,)),
        params,
    ).reshape(agents, *taps, channels, filters)
    return _unordered(found, (*out[2:], out[0], out[1]))


def _ordered(array: jax.Array, order: Sequence[int]) -> jax.Array:
    """An agent's axes in that order, after the axis of agents."""
    return jnp.transpose(array, (0, *(i + 1 for i in order)))


def _unordered(array: jax.Array, order: Sequence[int]) -> jax.Array:
    return jnp.transpose(array, (0, *(order.index(i) + 1 for i in range(len(order)))))


def _product(left: jax.Array, right: jax.Array, over: tuple, params: Any) -> jax.Array:
    return lax.dot_general(
        left,
        right,
        (over, ((0,), (0,))),
        precision=params["precision"],
        preferred_element_type=params["preferred_element_type"],
    )


def _padded(images: jax.Array, params: Any) -> jax.Array:
    """(agent, record, *positions, channel), with zeros around and between the positions."""
    pads = [
        (low, high, apart - 1)
        for (low, high), apart in zip(params["padding"], params["lhs_dilation"], strict=True)
    ]
    if all(pad == (0, 0, 0) for pad in pads):
        return images
    nothing = (0, 0, 0)
    return lax.pad(images, jnp.zeros((), images.dtype), (nothing, nothing, *pads, nothing))


def _positions(
    padded: jax.Array, taps: Sequence[int], apart: Sequence[int], strides: Sequence[int]
) -> list[int]:
    """How many places a window of so many taps has."""
    sides = padded.shape[2:-1]
    return [
        (side - (k - 1) * gap - 1) // stride + 1
        for side, k, gap, stride in zip(sides, taps, apart, strides, strict=True)
    ]


def _patches(
    images: jax.Array,
    shifts: Sequence[int],
    window: Sequence[int],
    step: Sequence[int],
    gap: Sequence[int],
) -> jax.Array:
    """(agent, record, *window, shift, channel): what lies at the window's places, `step` apart,
    for every shift by multiples of `gap`.
    """
    cut = []
    for place in product(*(range(count) for count in shifts)):
        start = [i * g for i, g in zip(place, gap, strict=True)]
        stop = [s + (n - 1) * d + 1 for s, n, d in zip(start, window, step, strict=True)]
        low, high = (0, 0, *start, 0), (*images.shape[:2], *stop, images.shape[-1])
        cut.append(lax.slice(images, low, high, (1, 1, *step, 1)))
    # A compiler that is left to merge the shifts into the product fails on odd sizes (an abort,
    # seen with jax 0.11).
    return lax.optimization_barrier(jnp.stack(cut, axis=-2))
