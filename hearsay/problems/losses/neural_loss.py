"""Neural networks as losses: any model of one record, its parameters raveled to one vector.

    value(params, feature, label)     the loss of ONE record            params: a pytree of arrays
    scores(params, feature)           a score for every class, or None

A model sees one record at a time, so no record can reach another one's gradient (BatchNorm could:
it is refused). Nothing bounds the curvature of such a loss: a budget rests on `clip` alone, which
brings every record's gradient (all parameters together) down to that l2 or l1 norm before anything
is added up:

    |g| <= B for every record,  so replacing one record changes a gradient by at most 2 B,
                                and emptying it (zero-out adjacency) by at most B,
                                wherever it is taken

An l1 clip costs Laplace noise no factor sqrt(d); an l2 clip does.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from hearsay import _validate as require
from hearsay.privacy.adjacency import REPLACE
from hearsay.problems.losses import hosts, per_record
from hearsay.problems.losses.domains import Domain
from hearsay.problems.losses.formats import FORMATS, Format
from hearsay.problems.losses.loss import Loss
from hearsay.problems.losses.models import MODELS, refuse_batchnorm, with_fast_convolutions


@dataclass(frozen=True, eq=False)
class Model:
    """A model of one record.

    Two models are the same only if they are one object: what is compiled depends on it.

    Args:
      name: what reports call it.
      size: how many parameters it has in all.
      unravel: from a vector of parameters to what `value` and `scores` take.
      value: (params, feature, label) -> the loss of one record.
      scores: (params, feature) -> a score for every class; None: accuracy cannot be measured.
      host: what computes it outside of JAX (hosts.py), where something else does.
      module: from what `unravel` gives to the module with those parameters; None: there is none.
      straight: every convolution's weight is used by that layer alone, once for a record, outside
        of loops, `jax.vmap` and `jax.jit`, inside of which many uses look like one (factors.py).
    """

    name: str
    size: int
    unravel: Callable[[jax.Array], Any]
    value: Callable[[Any, jax.Array, jax.Array], jax.Array]
    scores: Callable[[Any, jax.Array], jax.Array] | None
    host: hosts.Host | None = None
    module: Callable[[Any], Any] | None = None
    straight: bool = False

    def __post_init__(self) -> None:
        require.settle(self, size=require.count, straight=require.flag)

    def __repr__(self) -> str:
        return f"{self.name} with {self.size:,} parameters"


@dataclass(frozen=True)
class NeuralLoss(Loss):
    """The loss of a neural network, with every record's gradient clipped.

    Args:
      model: what is trained.
      ridge: the regulariser is ridge / 2 times the squared norm of the model.
      clip: what the norm of every record's gradient is brought down to; None leaves it as it is.
      norm: the norm that is clipped, "l2" or "l1".
      microbatch: the most records whose gradients are held at once (None: all of a batch).
      compute: "tf32" (where the device has it), "float32" or "bfloat16".
      group: the most agents whose gradients an accelerator computes at once (None: all of them).
    """

    convex: ClassVar[bool] = False
    unrolled: ClassVar[bool] = True

    model: Model
    ridge: float = 0.0
    clip: float | None = None
    norm: str = "l2"
    # How it is computed, not what: no part of a run's identity.
    microbatch: int | None = field(default=None, repr=False)
    compute: str = "tf32"
    group: int | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        require.instance(
            "model",
            self.model,
            Model,
            "a Model (hearsay.problems.from_module or from_function makes one)",
        )
        require.settle(self, ridge=require.nonnegative, clip=require.optional(require.bound))
        require.settle(
            self,
            microbatch=require.optional(require.count),
            group=require.optional(require.count),
        )
        require.one_of("norm", self.norm, ["l2", "l1"])
        require.one_of("compute", self.compute, FORMATS)
        if self.model.host is not None and self.compute == "bfloat16":
            require.fail("compute", f"tf32 or float32 for {self.model}", self.compute)

    def dimension(self, record: tuple[int, ...]) -> int:
        return self.model.size

    def gradient_sum(
        self, params: jax.Array, features: jax.Array, labels: jax.Array, weights: jax.Array
    ) -> jax.Array:
        how: dict[str, Any] = {"clip": self.clip, "norm": self.norm, "microbatch": self.microbatch}
        if self.model.host is not None:
            return hosts.gradient_sum(self.model.host, params, features, labels, weights, **how)
        with jax.default_matmul_precision(FORMATS[self.compute].products):
            tree = per_record.gradient_sum(
                self.value,
                self.model.unravel(params),
                features,
                labels,
                weights,
                **how,
                form=self._kept,
                straight=self.model.straight,
            )
        return jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(tree)]).astype(
            params.dtype
        )

    def program(self, record: tuple[int, ...], kind: np.dtype) -> bytes:
        """A fingerprint of what the model computes for records of that shape:
        its program and the constants in it.
        """
        if self.model.host is not None:
            return self.model.host.program(record, hosts.precision())
        dtype = jnp.result_type(float)
        shapes = (
            ((self.model.size,), dtype),
            (record, kind if kind == np.uint8 else dtype),
            ((), dtype),
        )
        traced = jax.make_jaxpr(lambda vector, *one: self.value(self.model.unravel(vector), *one))(
            *(jax.ShapeDtypeStruct(*shape) for shape in shapes)
        )
        # Addresses are another process's.
        found = hashlib.sha256(re.sub(r"0x[0-9a-f]+", "", str(traced.jaxpr)).encode())
        for constant in jax.tree.leaves(traced.consts):
            found.update(np.asarray(constant).tobytes())
        return found.digest()

    def value(self, params: Any, feature: jax.Array, label: jax.Array) -> jax.Array:
        """The loss of one record."""
        cast, feature = self._cast(params, feature)
        return self.model.value(cast, feature, label).astype(jax.tree.leaves(params)[0].dtype)

    def score(
        self, params: jax.Array, features: jax.Array, labels: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        with jax.default_matmul_precision(FORMATS[self.compute].products):
            values = jax.vmap(self.value, in_axes=(None, 0, 0))(
                self.model.unravel(params), features, labels
            )
        if self.model.scores is None:
            return values, jnp.full_like(values, jnp.nan)
        chosen = jnp.argmax(self.scores(params, features), axis=1)
        return values, (chosen == labels.astype(chosen.dtype)).astype(params.dtype)

    def scores(self, params: jax.Array, features: jax.Array) -> jax.Array:
        """A score for every record and class."""
        model, tree = self.model.scores, self.model.unravel(params)
        assert model is not None
        with jax.default_matmul_precision(FORMATS[self.compute].products):
            return jax.vmap(lambda feature: model(*self._cast(tree, feature)))(features)

    def _cast(self, params: Any, feature: jax.Array) -> tuple[Any, jax.Array]:
        """In the precision of the computation; bytes become numbers in [0, 1]."""
        dtype = FORMATS[self.compute].stored or jax.tree.leaves(params)[0].dtype
        if jnp.issubdtype(feature.dtype, jnp.integer):
            feature = feature.astype(dtype) / 255
        return jax.tree.map(lambda leaf: leaf.astype(dtype), params), feature.astype(dtype)

    @property
    def _kept(self) -> Format:
        """How a batch's gradients are kept until they are summed: accelerators do as they come out
        of the model, so that nothing is rounded; a CPU in the parameters' precision.
        """
        form = FORMATS[self.compute]
        return form if jax.default_backend() != "cpu" else form._replace(stored=None)

    @cached_property
    def apart(self) -> NeuralLoss:  # type: ignore[override]
        """One record at a time, by the same instructions for each: no curvature bounds what the
        rounding of a margin does to a gradient.
        """
        return replace(self, microbatch=1)

    @property
    def curvature(self) -> tuple[float, float]:
        return -math.inf, math.inf

    def change(self, domain: Domain, dimension: int, adjacency: str = REPLACE) -> float:
        if self.clip is None:
            return math.inf
        return 2 * self.clip if adjacency == REPLACE else self.clip

    @property
    def note(self) -> str:
        clipped = (
            "records' gradients are not clipped"
            if self.clip is None
            else f"records' gradients clipped to {self.norm} norm {self.clip:g}"
        )
        held = "" if self.microbatch is None else f", {self.microbatch} at a time"
        return f"{self.model}, {clipped}{held}, {self.compute} products"

    def __str__(self) -> str:
        return str(self.model)


def cross_entropy(scores: jax.Array, label: jax.Array) -> jax.Array:
    return jax.nn.logsumexp(scores) - scores[label.astype(jnp.int32)]


@lru_cache(maxsize=64)
def _named(name: str, shape: tuple[int, ...], classes: int) -> Model:
    found = from_module(MODELS[name](jax.random.key(0), shape, classes), name=name)[0]
    return replace(found, straight=True)


@require.plain_arguments
def named(name: str, shape: tuple[int, ...], classes: int, seed: int) -> tuple[Model, np.ndarray]:
    """One of models.py, and its first parameters."""
    require.one_of("model", name, MODELS)
    first = MODELS[name](jax.random.key(seed), shape, classes)
    return _named(name, tuple(shape), classes), raveled(eqx.filter(first, eqx.is_inexact_array))


def from_module(module: eqx.Module, *, name: str | None = None) -> tuple[Model, np.ndarray]:
    """A Model from an Equinox module, and its parameters as they are in the module.

    Args:
      module: maps one record's features to a score for every class.
      name: what reports call it; the module's class unless given.

    Example:
      >>> import equinox as eqx
      >>> import jax
      >>> import hearsay as hs
      >>> model, first = hs.problems.from_module(eqx.nn.Linear(4, 3, key=jax.random.key(0)))
      >>> model
      Linear with 15 parameters
    """
    refuse_batchnorm(module)
    arrays, rest = eqx.partition(with_fast_convolutions(module), eqx.is_inexact_array)

    def whole(params: Any) -> eqx.Module:
        # In this order a weight may be more than an array (layers.Factored).
        return eqx.combine(rest, params)

    def scores(params: Any, feature: jax.Array) -> jax.Array:
        return whole(params)(feature)  # type: ignore[operator]

    def value(params: Any, feature: jax.Array, label: jax.Array) -> jax.Array:
        return cross_entropy(scores(params, feature), label)

    vector, called = raveled(arrays), name or type(module).__name__
    return Model(called, vector.size, _unraveler(arrays), value, scores, module=whole), vector


def from_function(
    loss: Callable[[Any, tuple], jax.Array],
    params: Any,
    *,
    scores: Callable | None = None,
    name: str | None = None,
) -> tuple[Model, np.ndarray]:
    """A Model from any loss of one record, and its parameters.

    Args:
      loss: loss(params, (feature, label)), one number.
      params: a pytree of floating-point arrays to begin with.
      scores: scores(params, feature), a score for every class; needed to measure accuracy only.
      name: what reports call it; the function's name unless given.

    Example:
      >>> import jax.numpy as jnp
      >>> import hearsay as hs
      >>> def squared(params, record):
      ...     feature, label = record
      ...     return (feature @ params - label) ** 2
      >>> model, first = hs.problems.from_function(squared, jnp.zeros(3))
      >>> model
      squared with 3 parameters
    """
    if not callable(loss):
        require.fail("loss", "a function loss(params, (feature, label)) of one record", loss)
    leaves = jax.tree.leaves(params)
    if not leaves or not all(eqx.is_inexact_array_like(leaf) for leaf in leaves):
        require.fail("params", "a pytree of floating-point arrays", jax.tree.structure(params))

    def value(params: Any, feature: jax.Array, label: jax.Array) -> jax.Array:
        found = loss(params, (feature, label))
        if jnp.shape(found) != ():
            require.fail(
                "loss",
                "a function that gives one number for one record",
                f"shape {jnp.shape(found)}",
            )
        return found

    vector = raveled(params)
    found = name or getattr(loss, "__qualname__", type(loss).__name__)
    return Model(str(found), vector.size, _unraveler(params), value, scores), vector


def from_host(
    host: hosts.Host,
    name: str,
    *,
    scored: bool = True,
    module: Callable[[Any], Any] | None = None,
) -> Model:
    """A Model that something else computes.

    Args:
      host: what does.
      name: what reports call it.
      scored: its scores are those of classes.
      module: as for `Model`, from a vector.
    """
    scores = host.scores_of if scored else None
    same = lambda vector: vector  # noqa: E731
    return Model(name, host.size, same, host.value_of, scores, module=module, host=host)


def raveled(tree: Any) -> np.ndarray:
    return np.concatenate([np.asarray(leaf, np.float64).ravel() for leaf in jax.tree.leaves(tree)])


def _unraveler(tree: Any) -> Callable[[jax.Array], Any]:
    leaves, structure = jax.tree.flatten(tree)
    shapes = [np.shape(leaf) for leaf in leaves]
    ends = np.cumsum([math.prod(shape) for shape in shapes]).tolist()

    def unravel(vector: jax.Array) -> Any:
        starts = [0, *ends[:-1]]
        parts = [
            vector[a:b].reshape(shape) for a, b, shape in zip(starts, ends, shapes, strict=True)
        ]
        return jax.tree.unflatten(structure, parts)

    return unravel
