"""Layers whose weight gradients stay cheap when they are wanted record by record.

Arrays are channels last, and a layer sees one record: (height, width, channels). Differentiating
a shared convolution for each record with `vmap(grad(...))` turns its weight gradient into a
convolution with as many groups as records, which compilers run many times slower than the work it
is. `convolve` writes that gradient as the product it is,

    patches(x) (positions, taps x in)
    out = patches(x) w    d/dw = patches(x)' g    d/dx = the transposed convolution of g

so records become the batch axis of one product, while values and d/dx are ordinary convolutions
with the records in the batch axis. Both rules are made of differentiable operations, so gradients
of gradients (gradient-matching attacks) are exact. Like every function with a rule of its own for
reverse mode, `convolve` and `max_pool` refuse forward mode (`jax.jvp`).

Which form is fastest depends on the machine and is decided when a program is traced: a
CPU keeps the patches and reads the values off them too, elsewhere the values come from the
library's convolution. Inside `summed_gradients()` weight gradients are those of the library, for
batch gradients.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from contextvars import ContextVar
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax

from hearsay import _validate as require

Pads = tuple[tuple[int, int], tuple[int, int]]
Strides = tuple[int, int]


class Seen(NamedTuple):
    """Shapes of what a convolution sees of a record, and of what it gives."""

    sees: jax.ShapeDtypeStruct
    gives: jax.ShapeDtypeStruct


class Factored(eqx.Module):
    """A convolution's weight whose gradient is wanted in factors (factors.py): "by" `sees` it is
    what the layer sees, "by" `gives` the cotangent of what it gives. Both stand for nothing in the
    layer's value. Without them it is asked for their shapes (`probing`).
    """

    weight: jax.Array
    place: int = eqx.field(static=True)
    sees: jax.Array | None = None
    gives: jax.Array | None = None


_summed: ContextVar[bool] = ContextVar("summed", default=False)
_met: ContextVar[list[tuple[int, Seen]] | None] = ContextVar("met", default=None)
# Below it a patch is a few scattered numbers, and copying whole image rows is faster (measured).
FEW_CHANNELS = 8


@contextlib.contextmanager
def summed_gradients() -> Iterator[None]:
    """While tracing inside, convolutions differentiate as the library does:
    fastest where only a batch's summed gradient is wanted.
    """
    token = _summed.set(True)
    try:
        yield
    finally:
        _summed.reset(token)


@contextlib.contextmanager
def probing() -> Iterator[list[tuple[int, Seen]]]:
    """While tracing inside, every convolution with a `Factored` weight says its place and what it
    sees and gives, as often as it is used.
    """
    found: list[tuple[int, Seen]] = []
    token = _met.set(found)
    try:
        yield found
    finally:
        _met.reset(token)


def convolve(
    x: jax.Array,
    weight: jax.Array | Factored,
    strides: Strides = (1, 1),
    padding: str | Pads = "SAME",
) -> jax.Array:
    """x (height, width, in) with weight (rows, columns, in, out), in the weight's precision."""
    factored = weight if isinstance(weight, Factored) else None
    weight = weight.weight if isinstance(weight, Factored) else weight
    x = x.astype(weight.dtype)
    pads = resolved(padding, x.shape[:2], weight.shape[:2], strides)
    if factored is not None:
        return _in_factors(x, factored, strides, pads)
    if _summed.get():
        return _library(x, weight, strides, pads)
    return _convolve(x, weight, strides, pads)


def resolved(padding: Any, sizes: tuple, taps: tuple, strides: Strides) -> Pads:
    if isinstance(padding, str):
        padding = lax.padtype_to_pads(sizes, taps, strides, padding)
    (top, bottom), (left, right) = padding
    return (int(top), int(bottom)), (int(left), int(right))


def _in_factors(x: jax.Array, factored: Factored, strides: Strides, pads: Pads) -> jax.Array:
    if factored.sees is not None:
        return _shown(x, factored.weight, factored.sees, factored.gives, strides, pads)
    given, met = _library(x, factored.weight, strides, pads), _met.get()
    assert met is not None
    shapes = (jax.ShapeDtypeStruct(one.shape, one.dtype) for one in (x, given))
    met.append((factored.place, Seen(*shapes)))
    return given


@partial(jax.custom_vjp, nondiff_argnums=(4, 5))
def _shown(x: Any, weight: Any, sees: Any, gives: Any, strides: Strides, pads: Pads) -> jax.Array:
    return _library(x, weight, strides, pads)


def _shown_forward(x: Any, weight: Any, sees: Any, gives: Any, strides: Any, pads: Any) -> tuple:
    return _library(x, weight, strides, pads), (x, weight)


def _shown_backward(strides: Strides, pads: Pads, saved: tuple, cotangent: jax.Array) -> tuple:
    x, weight = saved
    by_x = _transposed(cotangent, weight, x.shape, strides, pads)
    return by_x, jnp.zeros_like(weight), x, cotangent


_shown.defvjp(_shown_forward, _shown_backward)


def _library(x: jax.Array, weight: jax.Array, strides: Strides, pads: Pads) -> jax.Array:
    return lax.conv_general_dilated(
        x[None], weight, strides, pads, dimension_numbers=("NHWC", "HWIO", "NHWC")
    )[0]


@partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def _convolve(x: jax.Array, weight: jax.Array, strides: Strides, pads: Pads) -> jax.Array:
    return _library(x, weight, strides, pads)


def _forward(
    x: jax.Array, weight: jax.Array, strides: Strides, pads: Pads
) -> tuple[jax.Array, tuple]:
    if jax.default_backend() != "cpu":
        return _library(x, weight, strides, pads), (x, weight, None)
    columns, subscripts, out = _columns(x, weight.shape, strides, pads)
    values = jnp.einsum(f"{subscripts},ko->po", columns, weight.reshape(-1, weight.shape[-1]))
    return values.reshape(*out, -1), (x, weight, columns)


def _backward(
    strides: Strides, pads: Pads, saved: tuple, cotangent: jax.Array
) -> tuple[jax.Array, jax.Array]:
    x, weight, columns = saved
    fresh, subscripts, _ = _columns(x, weight.shape, strides, pads)
    # A GPU's compiler that is left to merge the shifts into the product fails on odd sizes (an
    # abort, seen with jax 0.11).
    columns = lax.optimization_barrier(fresh) if columns is None else columns
    flat = cotangent.reshape(-1, weight.shape[-1])
    by_weight = jnp.einsum(f"{subscripts},po->ko", columns, flat).reshape(weight.shape)
    return _transposed(cotangent, weight, x.shape, strides, pads), by_weight


def _transposed(
    cotangent: jax.Array, weight: jax.Array, shape: tuple, strides: Strides, pads: Pads
) -> jax.Array:
    """d/dx as one more plain convolution, of the cotangent spread out to the strides:
    the form that a CPU runs fast inside loops too.
    """
    spread = []
    for axis in (0, 1):
        taps, step, low = weight.shape[axis], strides[axis], pads[axis][0]
        reached = (cotangent.shape[axis] - 1) * step + 1
        spread.append((taps - 1 - low, shape[axis] + low - reached, step - 1))
    zero = jnp.zeros((), cotangent.dtype)
    padded = lax.pad(cotangent, zero, (*spread, (0, 0, 0)))
    return _library(padded, weight[::-1, ::-1].transpose(0, 1, 3, 2), (1, 1), ((0, 0), (0, 0)))


_convolve.defvjp(_forward, _backward)


def patches(
    x: jax.Array, weight: tuple[int, ...], strides: Strides, padding: str | Pads
) -> jax.Array:
    """Every patch of x that a filter of that shape meets, (positions, taps x in), for at least
    FEW_CHANNELS.
    """
    pads = resolved(padding, x.shape[:2], weight[:2], strides)
    found, read, _ = _columns(x, weight, strides, pads)
    assert read == "pk"
    return found


def _columns(
    x: jax.Array, weight: tuple[int, ...], strides: Strides, pads: Pads
) -> tuple[jax.Array, str, tuple[int, int]]:
    """Every patch that a filter meets, how its axes are to be read (p: positions, k: taps x in),
    and the output's height and width.
    """
    rows, columns, channels, _ = weight
    if (rows, columns) == (1, 1) and strides == (1, 1) and pads == ((0, 0), (0, 0)):
        return x.reshape(-1, channels), "pk", (x.shape[0], x.shape[1])
    padded = jnp.pad(x, (*pads, (0, 0)))
    height, width = (
        (padded.shape[0] - rows) // strides[0] + 1,
        (padded.shape[1] - columns) // strides[1] + 1,
    )
    ends = (height - 1) * strides[0] + 1, (width - 1) * strides[1] + 1
    shifted = [
        lax.slice(padded, (i, j, 0), (i + ends[0], j + ends[1], channels), (*strides, 1))
        for i in range(rows)
        for j in range(columns)
    ]
    if channels < FEW_CHANNELS:
        stacked = jnp.stack([jnp.moveaxis(one, -1, 0) for one in shifted])
        return stacked.reshape(-1, height * width), "kp", (height, width)
    return jnp.stack(shifted, axis=2).reshape(height * width, -1), "pk", (height, width)


@jax.custom_vjp
def max_pool(x: jax.Array) -> jax.Array:
    """The largest of each 2 x 2 window (an odd last row or column is left out);
    the first of equals takes the gradient.
    """
    return _winner(x)[0]


def _winner(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    x = x[: x.shape[0] // 2 * 2, : x.shape[1] // 2 * 2]
    a, b, c, d = x[::2, ::2], x[::2, 1::2], x[1::2, ::2], x[1::2, 1::2]
    left, right = jnp.where(a >= b, a, b), jnp.where(c >= d, c, d)
    place = jnp.where(left >= right, jnp.where(a >= b, 0, 1), jnp.where(c >= d, 2, 3))
    return jnp.where(left >= right, left, right), place.astype(jnp.int8)


def _pool_forward(x: jax.Array) -> tuple[jax.Array, tuple]:
    value, place = _winner(x)
    return value, (place, x)


def _pool_backward(saved: tuple, cotangent: jax.Array) -> tuple[jax.Array]:
    place, x = saved
    rows, columns, channels = cotangent.shape
    corner = jnp.arange(4, dtype=jnp.int8).reshape(1, 2, 1, 2, 1)
    spread = jnp.where(place[:, None, :, None] == corner, cotangent[:, None, :, None], 0)
    left_out = (0, x.shape[0] - 2 * rows), (0, x.shape[1] - 2 * columns), (0, 0)
    return (jnp.pad(spread.reshape(2 * rows, 2 * columns, channels), left_out),)


max_pool.defvjp(_pool_forward, _pool_backward)


def initial(key: jax.Array, shape: tuple[int, ...], gain: float) -> jax.Array:
    """Normal weights of variance gain / fan-in: gain 1 (LeCun) for saturating activations,
    2 (He) for rectified ones.
    """
    return jax.random.normal(key, shape) * math.sqrt(gain / math.prod(shape[:-1]))


class Conv(eqx.Module):
    """A square convolution, channels last."""

    weight: jax.Array
    bias: jax.Array | None
    stride: int = eqx.field(static=True)
    padding: str = eqx.field(static=True)

    def __init__(
        self,
        key: jax.Array,
        channels: int,
        filters: int,
        size: int,
        *,
        stride: int = 1,
        padding: str = "SAME",
        bias: bool = True,
        gain: float = 1.0,
    ) -> None:
        self.weight = initial(key, (size, size, channels, filters), gain)
        self.bias = jnp.zeros(filters) if bias else None
        self.stride = require.count("stride", stride)
        self.padding = require.one_of("padding", padding, ("SAME", "VALID"))

    def __call__(self, x: jax.Array) -> jax.Array:
        out = convolve(x, self.weight, (self.stride, self.stride), self.padding)
        return out if self.bias is None else out + self.bias[None, None]


class Linear(eqx.Module):
    weight: jax.Array
    bias: jax.Array

    def __init__(self, key: jax.Array, features: int, units: int, *, gain: float = 1.0) -> None:
        self.weight = initial(key, (features, units), gain)
        self.bias = jnp.zeros(units)

    def __call__(self, x: jax.Array) -> jax.Array:
        return x @ self.weight + self.bias


class GroupNorm(eqx.Module):
    """Centres and scales groups of channels by one record's own mean and variance;
    unlike BatchNorm it mixes no records.
    """

    scale: jax.Array
    bias: jax.Array
    groups: int = eqx.field(static=True)

    def __init__(self, channels: int, groups: int = 32, *, scale: float = 1.0) -> None:
        self.groups = min(require.count("groups", groups), channels)
        if channels % self.groups:
            require.fail("groups", f"a divisor of the {channels} channels", groups)
        self.scale, self.bias = jnp.full(channels, scale), jnp.zeros(channels)

    def __call__(self, x: jax.Array) -> jax.Array:
        if jax.default_backend() != "cpu":
            return self._by_channel(x)
        split = x.reshape(*x.shape[:-1], self.groups, -1)
        mean = split.mean(axis=(0, 1, 3), keepdims=True)
        centred = split - mean
        variance = (centred * centred).mean(axis=(0, 1, 3), keepdims=True)
        return (centred * lax.rsqrt(variance + 1e-5)).reshape(x.shape) * self.scale[
            None, None
        ] + self.bias[None, None]

    def _by_channel(self, x: jax.Array) -> jax.Array:
        """The same as a slope and an offset for every channel, from two sums over positions: few
        passes over memory, which is what a norm costs on an accelerator, and as few backwards.
        """
        wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
        sums = jnp.stack([wide.mean(axis=(0, 1)), (wide * wide).mean(axis=(0, 1))])
        mean, square = sums.reshape(2, self.groups, -1).mean(axis=2)
        spread = lax.rsqrt(jnp.maximum(square - mean * mean, 0) + 1e-5)
        each = x.shape[-1] // self.groups
        slope = jnp.repeat(spread, each) * self.scale
        offset = self.bias - jnp.repeat(mean, each) * slope
        return (wide * slope[None, None] + offset[None, None]).astype(x.dtype)


class ChannelsFirstConv(eqx.Module):
    """An `eqx.nn.Conv2d` (channels first, no groups, no dilation) by way of `convolve`."""

    weight: jax.Array
    bias: jax.Array | None
    strides: Strides = eqx.field(static=True)
    padding: Any = eqx.field(static=True)

    def __call__(self, x: jax.Array, *, key: jax.Array | None = None) -> jax.Array:
        out = convolve(
            jnp.moveaxis(x, 0, -1), self.weight.transpose(2, 3, 1, 0), self.strides, self.padding
        )
        out = jnp.moveaxis(out, -1, 0)
        return out if self.bias is None else out + self.bias
