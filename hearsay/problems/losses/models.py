"""Neural networks as Equinox modules: one record's image (height, width, channels) in [0, 1] to
logits, one per class.

    mlp       dense 128, 64, tanh; for flat features too
    cnn-p1    5x5 convolutions of stride 2 with 16 and 32 filters, dense 32, classes, tanh; the last
              layer begins small. P1 gives no architecture ("a CNN"); this one tolerates the paper's
              first step of 1, and is smooth, so a gradient-matching attack can differentiate
              its gradients
    cnn-p3    5x5 convolutions with 16 and 32 filters, sigmoid, 2x2 max pooling each, one dense
              layer (P3, Section V; the paper does not give the filter size): 28,938 parameters
              on 28 x 28 x 1
    cnn-p4    3x3 convolutions with 32 filters each, 2x2 max pooling each, dense 64, 32, classes,
              ReLU (P4, Section V-B)
    resnet18  the variant usual for small images (3x3 stem, no pooling before the blocks, widths 64
              to 512) with GroupNorm: 11.2 million parameters

Convolutions keep the image's size ("same" padding). Pooling comes before the activation, which is
increasing: the values are the same, at a quarter of the work. Nothing here mixes records: a norm
over the batch would make clipping record by record meaningless.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from hearsay import _validate as require
from hearsay.problems.losses.layers import ChannelsFirstConv, Conv, GroupNorm, Linear, max_pool

Activation = Callable[[jax.Array], jax.Array]


class Dense(eqx.Module):
    """Linear layers with an activation between them; `last` is the gain of the last one,
    where it is another.
    """

    layers: tuple[Linear, ...]
    activation: Activation = eqx.field(static=True)

    def __init__(
        self,
        key: jax.Array,
        sizes: tuple[int, ...],
        activation: Activation,
        gain: float,
        last: float | None = None,
    ) -> None:
        keys = jax.random.split(key, len(sizes) - 1)
        gains = [*(gain for _ in sizes[2:]), gain if last is None else last]
        pairs = zip(keys, sizes[:-1], sizes[1:], gains, strict=True)
        self.layers = tuple(Linear(k, before, after, gain=g) for k, before, after, g in pairs)
        self.activation = activation

    def __call__(self, x: jax.Array) -> jax.Array:
        x = x.ravel()
        for layer in self.layers[:-1]:
            x = self.activation(layer(x))
        return self.layers[-1](x)


class Cnn(eqx.Module):
    """Convolutions, each pooled or strided down by two, then dense layers."""

    convolutions: tuple[Conv, ...]
    dense: Dense
    activation: Activation = eqx.field(static=True)
    pooled: bool = eqx.field(static=True)

    def __init__(
        self,
        key: jax.Array,
        shape: tuple[int, int, int],
        filters: tuple[int, ...],
        size: int,
        units: tuple[int, ...],
        activation: Activation,
        *,
        pooled: bool = True,
        gain: float = 1.0,
        last: float | None = None,
    ) -> None:
        *keys, rest = jax.random.split(key, len(filters) + 1)
        height, width, channels = shape
        convolutions = []
        for k, count in zip(keys, filters, strict=True):
            convolutions.append(
                Conv(k, channels, count, size, stride=1 if pooled else 2, gain=gain)
            )
            channels = count
            height, width = (
                (height // 2, width // 2) if pooled else (-(-height // 2), -(-width // 2))
            )
        self.convolutions = tuple(convolutions)
        self.dense = Dense(rest, (height * width * channels, *units), activation, gain, last)
        self.activation, self.pooled = activation, pooled

    def __call__(self, x: jax.Array) -> jax.Array:
        for layer in self.convolutions:
            x = self.activation(max_pool(layer(x)) if self.pooled else layer(x))
        return self.dense(x)


class Block(eqx.Module):
    """Two normalised 3x3 convolutions beside an identity,
    or a 1x1 convolution where the shape changes.
    """

    convolutions: tuple[Conv, Conv]
    norms: tuple[GroupNorm, GroupNorm]
    shortcut: tuple[Conv, GroupNorm] | None

    def __init__(self, key: jax.Array, channels: int, filters: int, stride: int) -> None:
        a, b, c = jax.random.split(key, 3)
        self.convolutions = (
            Conv(a, channels, filters, 3, stride=stride, bias=False, gain=2.0),
            Conv(b, filters, filters, 3, bias=False, gain=2.0),
        )
        # A last scale of zero starts the block as its shortcut, which keeps 18 layers stable
        # without a warm-up.
        self.norms = GroupNorm(filters), GroupNorm(filters, scale=0.0)
        changes = stride != 1 or channels != filters
        self.shortcut = (
            (Conv(c, channels, filters, 1, stride=stride, bias=False), GroupNorm(filters))
            if changes
            else None
        )

    def __call__(self, x: jax.Array) -> jax.Array:
        inner = jax.nn.relu(self.norms[0](self.convolutions[0](x)))
        inner = self.norms[1](self.convolutions[1](inner))
        beside = x if self.shortcut is None else self.shortcut[1](self.shortcut[0](x))
        return jax.nn.relu(inner + beside)


class ResNet(eqx.Module):
    stem: Conv
    norm: GroupNorm
    blocks: tuple[Block, ...]
    head: Linear

    def __init__(
        self, key: jax.Array, shape: tuple[int, int, int], classes: int, widths: tuple[int, ...]
    ) -> None:
        first, last, *keys = jax.random.split(key, 2 + 2 * len(widths))
        self.stem = Conv(first, shape[-1], widths[0], 3, bias=False, gain=2.0)
        self.norm = GroupNorm(widths[0])
        blocks, channels = [], widths[0]
        for i, k in enumerate(keys):
            blocks.append(Block(k, channels, widths[i // 2], 2 if i % 2 == 0 and i else 1))
            channels = widths[i // 2]
        self.blocks = tuple(blocks)
        self.head = Linear(last, channels, classes)

    def __call__(self, x: jax.Array) -> jax.Array:
        x = jax.nn.relu(self.norm(self.stem(x)))
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(axis=(0, 1)))


def _image(shape: tuple[int, ...]) -> tuple[int, int, int]:
    if len(shape) != 3:
        require.fail("shape", "(height, width, channels) for a convolutional network", shape)
    return shape[0], shape[1], shape[2]


def mlp(key: jax.Array, shape: tuple[int, ...], classes: int) -> Dense:
    return Dense(key, (math.prod(shape), 128, 64, classes), jnp.tanh, 1.0)


def cnn_p1(key: jax.Array, shape: tuple[int, ...], classes: int) -> Cnn:
    return Cnn(key, _image(shape), (16, 32), 5, (32, classes), jnp.tanh, pooled=False, last=0.01)


def cnn_p3(key: jax.Array, shape: tuple[int, ...], classes: int) -> Cnn:
    return Cnn(key, _image(shape), (16, 32), 5, (classes,), jax.nn.sigmoid)


def cnn_p4(key: jax.Array, shape: tuple[int, ...], classes: int) -> Cnn:
    return Cnn(key, _image(shape), (32, 32), 3, (64, 32, classes), jax.nn.relu, gain=2.0)


def resnet18(key: jax.Array, shape: tuple[int, ...], classes: int) -> ResNet:
    return ResNet(key, _image(shape), classes, (64, 128, 256, 512))


MODELS: dict[str, Callable[..., eqx.Module]] = {
    "mlp": mlp,
    "cnn-p1": cnn_p1,
    "cnn-p3": cnn_p3,
    "cnn-p4": cnn_p4,
    "resnet18": resnet18,
}


def refuse_batchnorm(module: Any) -> None:
    """Refuses layers that carry statistics from record to record,
    wherever they sit in the module.
    """
    stateful = (eqx.nn.BatchNorm, eqx.nn.SpectralNorm, eqx.nn.StateIndex)
    found = jax.tree_util.tree_leaves_with_path(
        module, is_leaf=lambda node: isinstance(node, stateful)
    )
    for path, node in found:
        if isinstance(node, stateful):
            where = f"{type(node).__name__} at module{jax.tree_util.keystr(path)}"
            rule = (
                "free of BatchNorm and other layers with a state: they mix records, so clipping"
                " records one by one would bound nothing; use GroupNorm"
            )
            raise ValueError(f"module must be {rule}, got {where}")


def with_fast_convolutions(module: Any) -> Any:
    """The same module, with every plain `eqx.nn.Conv2d` in a form whose per-record weight
    gradients are cheap.
    """

    def is_plain(node: Any) -> bool:
        return (
            type(node) is eqx.nn.Conv2d
            and node.groups == 1
            and set(node.dilation) == {1}
            and node.padding_mode == "ZEROS"
        )

    def quick(node: Any) -> Any:
        if not is_plain(node):
            return node
        return ChannelsFirstConv(node.weight, node.bias, tuple(node.stride), node.padding)

    return jax.tree.map(quick, module, is_leaf=is_plain)
