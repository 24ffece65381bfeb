"""A learning problem on a network: a loss, a domain, and every agent's stream of records."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import jax.numpy as jnp
import numpy as np

from hearsay import _validate as require
from hearsay.privacy.recursion import Assumption
from hearsay.problems.data import datasets
from hearsay.problems.data.partition import partition as split
from hearsay.problems.data.stream import Stream
from hearsay.problems.losses.domains import Ball, Box, Domain
from hearsay.problems.losses.linear import (
    HalfSquared,
    LinearLoss,
    Logistic,
    Loss,
    Squared,
    polynomial,
)
from hearsay.problems.neural import neural
from hearsay.problems.sampling.samplers import Arrivals, Records
from hearsay.problems.synthetic import synthetic


@dataclass(frozen=True)
class Declared:
    """The user's word for how far replacing one record moves its gradient, in l1 norm, wherever the
    gradient is taken.

    `frozen` adds paper P3's adjacency (its Definition 1), in which the sampled gradients ARE the
    data: all other gradients are then the same in both runs, although a run takes them at states
    that the record has moved. It reproduces the paper's sums; certificates warn of it.
    """

    change: float
    frozen: bool = False

    def __post_init__(self) -> None:
        require.settle(self, change=require.bound, frozen=require.flag)


@dataclass(frozen=True, eq=False)
class Problem:
    """features (agents, most, ...) and labels (agents, most) hold the streams in order of arrival;
    rows past counts[i] are padding.

    An endless `stream` makes its records up as they are needed: then counts are infinite, and its
    `optimum` is known. `start` is where agents begin, one point or one per agent (the origin unless
    given). `smoothness` is [mu, L] of every agent's objective where it is known to be narrower than
    the loss's curvature interval: theory may use it, certificates must not.
    """

    name: str
    loss: Loss
    domain: Domain
    features: np.ndarray
    labels: np.ndarray
    counts: np.ndarray
    test_features: np.ndarray
    test_labels: np.ndarray
    arrivals: Arrivals = Arrivals()
    classification: bool = True
    assumptions: tuple[Assumption, ...] = field(default=())
    seed: int = 0
    stream: Stream | None = None
    optimum: np.ndarray | None = None
    start: np.ndarray | None = None
    declared: Declared | None = None
    smoothness: tuple[float, float] = (math.nan, math.nan)

    def __post_init__(self) -> None:
        if math.isnan(self.smoothness[0]):
            object.__setattr__(self, "smoothness", self.loss.curvature)
        require.settle(
            self,
            seed=require.natural,
            smoothness=require.interval,
            labels=require.array,
            test_labels=require.array,
        )
        require.settle(
            self,
            optimum=require.optional(require.array),
            start=require.optional(require.array),
            counts=_counts,
        )
        # A network clips what it makes of its records, and may read them as bytes.
        if isinstance(self.loss, LinearLoss):
            require.settle(self, features=require.array, test_features=require.array)
            self.loss.require_admissible(self.features, self.labels)
        # A certificate speaks of what was checked here.
        for name in ("features", "labels", "counts"):
            object.__setattr__(self, name, require.kept(getattr(self, name)))
        if self.stream is not None:
            object.__setattr__(
                self, "stream", Stream(*map(require.array, Stream._fields, self.stream))
            )
        if self.declared and not isinstance(self.domain, Box):
            # Projecting onto a ball may lengthen a distance in l1; clipping coordinates never does.
            require.fail(
                "domain", "a Box where the change of a gradient is declared in l1", self.domain
            )
        if self.norm == "l1" and not isinstance(self.domain, Box):
            require.fail("domain", "a Box where gradients are clipped in l1", self.domain)
        if self.declared and self.loss.clip is not None:
            require.fail(
                "clip",
                "None where the change of a gradient is declared: the clip enforces one",
                self.loss.clip,
            )

    @property
    def agents(self) -> int:
        return self.features.shape[0]

    @property
    def dimension(self) -> int:
        """The number of parameters."""
        return self.loss.dimension(self.features.shape[2:])

    @property
    def first_models(self) -> np.ndarray:
        """Where agents begin, before the projection: (agents, dimension)."""
        shape = (self.agents, self.dimension)
        return np.broadcast_to(np.zeros(shape) if self.start is None else self.start, shape)

    @property
    def linear(self) -> LinearLoss:
        """The loss, for what only a generalised linear model has: bounds of its own,
        and a best model that can be found.
        """
        if not isinstance(self.loss, LinearLoss):
            raise ValueError(
                f"this needs a convex problem (logistic, ridge, ...), and {self.loss} is none"
            )
        return self.loss

    @property
    def norm(self) -> str:
        """The norm that `change` is about."""
        return "l1" if self.declared else self.loss.norm

    @property
    def dtype(self) -> jnp.dtype:
        """The precision that jax is set to."""
        return jnp.result_type(float)

    @cached_property
    def records(self) -> Records | Stream:
        """The streams as device arrays."""
        dtype = self.dtype
        if self.stream is not None:
            return Stream(*(jnp.asarray(part, dtype) for part in self.stream))
        return Records(
            as_features(self.features, dtype),
            jnp.asarray(self.labels, dtype),
            jnp.asarray(self.counts, jnp.int32),
        )

    def records_of(self, agent: int) -> Records | Stream:
        """One agent's stream, in arrays of its own."""
        dtype = self.dtype
        if self.stream is not None:
            return Stream(*(jnp.asarray(part[agent], dtype) for part in self.stream))
        held = jnp.asarray(self.counts[agent], jnp.int32)
        return Records(
            as_features(self.features[agent], dtype), jnp.asarray(self.labels[agent], dtype), held
        )

    def arrived(self, step: int) -> np.ndarray:
        """How many records each agent has seen once step `step` has begun."""
        return np.minimum(
            self.arrivals.head_start + (step + 1) * self.arrivals.per_step, self.counts
        )

    @property
    def change(self) -> float:
        """C: how far one record's gradient moves, at most, when the record is replaced."""
        if self.declared:
            return self.declared.change
        if isinstance(self.loss, LinearLoss):
            self.loss.require_range(
                self.domain.reach(self.dimension), float(jnp.finfo(self.dtype).max)
            )
        # A loss may be anybody's: what it says is held to what a sensitivity can be.
        return require.positive_or_infinite(
            "the loss's change", self.loss.change(self.domain, self.dimension)
        )

    @property
    def frozen(self) -> bool:
        """Gradients are declared not to react to what a record has done to the state."""
        return self.declared is not None and self.declared.frozen

    def privacy_assumptions(self, curvature: bool = True) -> tuple[Assumption, ...]:
        """What a bound rests on: the loss's curvature interval and change bound,
        or (curvature=False) the clip alone.
        """
        loss = self.loss
        low, high = loss.curvature
        facts = [
            Assumption("enforced", f"models are projected onto the {self.domain} after every step")
        ]
        if self.declared:
            text = (
                f"replacing one record changes its gradient by at most C = {self.change:g} in l1"
                " norm, wherever it is taken; nothing here enforces it"
            )
            declared = [Assumption("declared", text)]
            if self.frozen:
                text = (
                    "the sampled gradients are the data (paper P3, Definition 1): they do not react"
                    " to what a record has done to the state"
                )
                declared.append(Assumption("declared", text))
            elif math.isfinite(high):
                declared.append(
                    Assumption(
                        "derived",
                        f"curvature interval [{low:.4g}, {high:.4g}] of the {type(loss).__name__}"
                        " loss",
                    )
                )
            return (*self.assumptions, *facts, *declared)
        if not curvature or not isinstance(loss, LinearLoss):
            if loss.clip is None:
                return (
                    *facts,
                    Assumption(
                        "declared",
                        "nothing is known of the records' gradients: they are not clipped",
                    ),
                )
            clipped = (
                f"every record's gradient is clipped to {loss.norm} norm {loss.clip:g}, so one"
                f" record changes it by at most {2 * loss.clip:g}"
            )
            return (*self.assumptions, *facts, Assumption("enforced", clipped))
        kind = (
            f"curvature interval [{low:.4g}, {high:.4g}] of the {type(loss).__name__} loss from |a|"
            f" <= {loss.feature_bound:.4g}"
        )
        facts.append(Assumption("derived", kind))
        if loss.clip is not None and 2 * loss.clip <= self.change * (1 + 1e-12):
            text = (
                f"every record's gradient is clipped to l2 norm {loss.clip:g}, so one record"
                f" changes it by at most {self.change:.4g}"
            )
            facts.append(Assumption("enforced", text))
        else:
            reason = "features and label both replaced" + (
                "" if isinstance(loss, Logistic) else f", over the {self.domain}"
            )
            facts.append(
                Assumption(
                    "derived",
                    f"one record changes a gradient by at most C = {self.change:.4g} ({reason})",
                )
            )
        return (*self.assumptions, *facts)


def logistic(
    data: str | datasets.Dataset = "digits",
    *,
    agents: int = 5,
    partition: str = "iid",
    ridge: float = 0.01,
    per_step: int = 1,
    head_start: int = 0,
    radius: float = 1e5,
    clip: float | None = None,
    approximate: bool = False,
    data_dir: str | None = None,
    seed: int = 0,
) -> Problem:
    """l2-regularised logistic regression.

    `approximate` replaces the loss by its degree-2 polynomial (see losses/linear.py).
    """
    data = _dataset(data, data_dir, seed)
    datasets.check_classification(data.features, data.labels)
    require.flag("approximate", approximate)
    domain = Ball(radius)
    loss: Loss = Logistic(data.feature_bound, ridge, 1.0, clip)
    if approximate:
        loss = polynomial(loss, domain, data.features.shape[1])  # type: ignore[arg-type]
    return _assemble(
        data,
        loss,
        domain,
        agents,
        partition,
        Arrivals(per_step, head_start),
        seed,
        classification=True,
    )


def ridge(
    data: str | datasets.Dataset = "linear",
    *,
    agents: int = 5,
    partition: str = "iid",
    ridge: float = 0.01,
    per_step: int = 1,
    head_start: int = 0,
    radius: float = 5.0,
    clip: float | None = None,
    dimension: int = 10,
    records: int = 2000,
    data_dir: str | None = None,
    seed: int = 0,
) -> Problem:
    """Ridge regression, by default on a stream of linear measurements (`records` per agent in
    `dimension` dimensions).
    """
    agents, records = require.count("agents", agents), require.count("records", records)
    if isinstance(data, str) and data == "linear":
        data = datasets.linear_stream(records=agents * records, dimension=dimension, seed=seed)
    data = _dataset(data, data_dir, seed)
    loss = Squared(data.feature_bound, ridge, data.label_bound, clip)
    return _assemble(
        data,
        loss,
        Ball(radius),
        agents,
        partition,
        Arrivals(per_step, head_start),
        seed,
        classification=set(np.unique(data.labels)) == {0.0, 1.0},
    )


# Paper P3, section V: the covariance of every sensor's regressors, and where the estimates begin.
_COVARIANCE = np.array(
    [
        [2, 1, 0, 1, 0, 0],
        [1, 2, 0, 1, 0, 0],
        [0, 0, 2, 0, 0, 0],
        [1, 1, 0, 2, 0, 0],
        [0, 0, 0, 0, 2, 0],
        [0, 0, 0, 0, 0, 2],
    ],
    float,
)
_FIRST = (3.0, 1.0, 1.0, 3.0, 3.0, 1.0)


def estimation(
    *,
    agents: int = 6,
    target: float = 0.5,
    noise: float = 1.0,
    change: float | None = None,
    frozen: bool = False,
    clip: float | None = None,
    feature_bound: float | None = None,
    radius: float = 1e5,
    seed: int = 0,
) -> Problem:
    """Distributed parameter estimation (paper P3, section V): sensors with an endless stream of
    linear measurements of one unknown vector.

    A record is b = u.x* + noise v with u ~ N(0, R), R as printed (6 x 6), x* = `target` in every
    coordinate; its gradient is (u.x - b) u. Nothing bounds a Gaussian record, so a budget needs one
    of: `clip`, which bounds every record's gradient and is enforced; `change`, the declaration that
    one record moves its gradient by at most so much in l1 (0.2 in the paper, and here if neither
    is given). Algorithms that take gradients at a private state also need `feature_bound`, which
    shortens regressors to that length and so gives the loss a curvature interval, or `frozen`, the
    paper's adjacency (see Declared).
    """
    agents, dimension = require.count("agents", agents), len(_FIRST)
    if clip is not None and change is not None:
        raise ValueError(
            "change must be left out when records are clipped (the clip enforces one), got"
            f" {change} and clip {clip}"
        )
    if clip is not None and frozen:
        raise ValueError(
            "frozen must be left out when records are clipped: it is a declaration, and a clip is"
            " enforced"
        )
    radius, noise, seed = (
        require.bound("radius", radius),
        require.nonnegative("noise", noise),
        require.natural("seed", seed),
    )
    bound = math.inf if feature_bound is None else require.bound("feature_bound", feature_bound)
    loss = HalfSquared(bound, 0.0, math.inf, clip)
    truth = np.full(dimension, require.number("target", target))
    factor = np.linalg.cholesky(_COVARIANCE)
    everyone = (agents, *(1,) * 2)
    stream = Stream(
        np.tile(factor, everyone), np.tile(truth, (agents, 1)),
        np.full(agents, noise), np.full(agents, bound),
    )  # fmt: skip
    rng = np.random.default_rng([seed, *b"estimation"])
    features = rng.normal(size=(1000, dimension)) @ factor.T
    features = features if feature_bound is None else datasets.shorten(features, bound)
    kind = "enforced" if feature_bound is not None else "derived"
    length = (
        f"of l2 norm at most {bound:g}"
        if feature_bound is not None
        else "normal regressors of any length"
    )
    values = np.linalg.eigvalsh(_COVARIANCE)
    return Problem(
        "estimation",
        loss,
        Box(-radius, radius) if clip is None else Ball(radius),
        np.zeros((agents, 0, dimension)),
        np.zeros((agents, 0)),
        np.full(agents, np.inf),
        features,
        features @ truth + noise * rng.normal(size=1000),
        classification=False,
        assumptions=(Assumption(kind, f"records are made up on the spot, {length}"),),
        seed=seed,
        stream=stream,
        optimum=truth,
        start=np.array(_FIRST),
        declared=None if clip is not None else Declared(0.2 if change is None else change, frozen),
        smoothness=(float(values[0]), float(values[-1])),
    )


PROBLEMS: dict[str, Callable[..., Problem]] = {
    "logistic": logistic,
    "ridge": ridge,
    "estimation": estimation,
    "synthetic": synthetic,
    "neural": neural,
}


def _dataset(data: str | datasets.Dataset, data_dir: str | None, seed: int) -> datasets.Dataset:
    if isinstance(data, str) and data == "linear":
        raise ValueError(
            "data 'linear' is a regression stream: use it with the ridge loss (--loss ridge)"
        )
    if isinstance(data, str):
        return datasets.load(data, data_dir=data_dir, seed=seed)
    require.instance(
        "data",
        data,
        datasets.Dataset,
        "the name of a data set, or a Dataset (hearsay.problems.from_arrays makes one)",
    )
    return data


def as_features(features: np.ndarray, dtype: jnp.dtype) -> jnp.ndarray:
    """On the device; bytes stay bytes, a model reads them as it needs them."""
    return jnp.asarray(features) if features.dtype == np.uint8 else jnp.asarray(features, dtype)


def _counts(name: str, given: Any) -> np.ndarray:
    """How many records each agent holds:
    whole numbers, or infinite for a stream that never ends.
    """
    found = require.array(name, given)
    if found.ndim != 1 or not np.all((found >= 1) & (found == np.floor(found))):
        require.fail(name, "one whole number of at least 1 for each agent", given)
    return found if np.isinf(found).any() else found.astype(np.int64)


def held_by(
    parts: list[np.ndarray], features: np.ndarray, labels: np.ndarray, arrivals: Arrivals
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """features (agents, most, ...), labels (agents, most) and counts (agents,) of agents that hold
    those rows, padded to the longest stream.
    """
    counts = np.array([len(p) for p in parts])
    if counts.min() < arrivals.per_step:
        short = int(np.argmin(counts))
        raise ValueError(
            f"per_step must be at most the records of every agent, got {arrivals.per_step} and"
            f" agent {short} holds {counts[short]}"
        )
    held = np.zeros((len(parts), int(counts.max()), *features.shape[1:]), features.dtype)
    marked = np.zeros(held.shape[:2])
    for i, rows in enumerate(parts):
        held[i, : len(rows)], marked[i, : len(rows)] = features[rows], labels[rows]
    return held, marked, counts


def _assemble(
    data: datasets.Dataset,
    loss: Loss,
    domain: Domain,
    agents: int,
    rule: str,
    arrivals: Arrivals,
    seed: int,
    classification: bool,
) -> Problem:
    agents = require.count("agents", agents)
    parts = split(rule, data.labels, agents, seed)
    features, labels, counts = held_by(parts, data.features, data.labels, arrivals)
    facts = (
        Assumption(
            data.bound_kind,
            f"every record has features of l2 norm at most {data.feature_bound:.4g}:"
            f" {data.bound_reason}",
        ),
    )
    return Problem(
        data.name,
        loss,
        domain,
        features,
        labels,
        counts,
        data.test_features,
        data.test_labels,
        arrivals,
        classification,
        facts,
        seed,
    )
