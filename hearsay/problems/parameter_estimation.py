"""Distributed parameter estimation (paper P3, section V) as a problem."""

from __future__ import annotations

import math

import numpy as np

from hearsay import _validate as require
from hearsay.privacy.adjacency import REPLACE
from hearsay.privacy.recursion import Assumption
from hearsay.problems.data import datasets
from hearsay.problems.data.stream import Stream
from hearsay.problems.losses.domains import Ball, Box
from hearsay.problems.losses.linear import HalfSquared
from hearsay.problems.problem import Problem
from hearsay.problems.task import Declared

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


@require.known_arguments
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
    adjacency: str = REPLACE,
) -> Problem:
    """Distributed parameter estimation (paper P3, section V).

    Sensors have an endless stream of linear measurements of one unknown vector. A record is
    b = u.x* + noise v with u ~ N(0, R), R as printed (6 x 6); its gradient is (u.x - b) u. Nothing
    bounds a Gaussian record, so a budget needs `clip` or `change`. Algorithms that take gradients
    at a private state also need `feature_bound` or `frozen`.

    Args:
      agents: how many sensors.
      target: x*, the same in every coordinate.
      noise: the standard deviation of a measurement.
      change: the declaration that one record moves its gradient by at most so much in l1 (0.2 in
        the paper, and here if `clip` is not given either).
      frozen: the paper's adjacency (see `Declared`).
      clip: the l2 norm that every record's gradient is brought down to: enforced.
      feature_bound: the length that regressors are shortened to, which gives the loss a curvature
        interval.
      radius: of the set that models are projected onto.
      seed: of the stream.
      adjacency: what certificates protect, "replace" or, with a clip, "zero-out"
        (privacy/adjacency.py).

    Example:
      >>> import hearsay as hs
      >>> hs.problems.estimation(agents=3, clip=1.0).endless
      True
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
        require.seed("seed", seed),
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
        shape=stream.shape,
        counts=np.full(agents, np.inf),
        records=stream,
        test_features=features,
        test_labels=features @ truth + noise * rng.normal(size=1000),
        classification=False,
        assumptions=(Assumption(kind, f"records are made up on the spot, {length}"),),
        seed=seed,
        optimum=truth,
        start=np.array(_FIRST),
        declared=None if clip is not None else Declared(0.2 if change is None else change, frozen),
        smoothness=(float(values[0]), float(values[-1])),
        adjacency=adjacency,
    )
