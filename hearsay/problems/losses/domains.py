"""The set that models are kept in: convex, closed, with a cheap Euclidean projection
(a projection never widens a gap between two states).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from hearsay import _validate as require

FAR = 1e36  # beyond every bound, and its reciprocal is a normal number of float32


def namespace(array: Any) -> Any:
    """jax.numpy for a run, NumPy for the float64 reference on the host: one formula serves both."""
    return np if isinstance(array, np.ndarray) else jnp


def shortened(vectors: Any, bound: Any) -> Any:
    """Vectors (..., d) with those longer than `bound` brought down to it; up to a rounding or two,
    whatever their entries and whatever a bound may be (_validate.bound).
    """
    xp = namespace(vectors)
    # A compiled program divides by way of the reciprocal, in an order of its own, and flushes that
    # of a number beyond 8.5e37 to 0: nothing below may be as large. Clipping coordinates far beyond
    # every bound moves no point of the ball, and no two points apart.
    vectors = xp.clip(vectors, -FAR, FAR)
    # Scaled by the largest entry: the square of a tiny or huge entry vanishes or overflows, and a
    # length of 0 or infinity is not the vector's. Entries below the floor are no matter, because a
    # bound is never smaller.
    largest = xp.maximum(xp.max(xp.abs(vectors), axis=-1, keepdims=True), require.SMALLEST_BOUND)
    scaled = vectors / largest
    size = xp.sqrt(xp.sum(scaled * scaled, axis=-1, keepdims=True))
    # size lies between 1 and sqrt(d) where a vector is too long: neither side of the comparison nor
    # the quotient is lost.
    return xp.where(size > bound / largest, scaled * (bound / xp.maximum(size, 1.0)), vectors)


@dataclass(frozen=True)
class Ball:
    """All parameters of l2 norm at most `radius`.

    Args:
      radius: the largest norm.
    """

    radius: float = 1e5

    def __post_init__(self) -> None:
        require.settle(self, radius=require.bound)

    def project(self, params: Any) -> Any:
        return shortened(params, self.radius)

    def reach(self, dimension: int) -> float:
        """The largest l2 norm in the set."""
        return self.radius

    def __str__(self) -> str:
        return f"ball of radius {self.radius:g}"


@dataclass(frozen=True)
class Box:
    """All parameters with every coordinate in [low, high].

    Args:
      low: the smallest value of a coordinate.
      high: the largest.
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        require.settle(self, low=require.number, high=require.number)
        if self.high <= self.low:
            require.fail("high", f"above low = {self.low:g}", self.high)

    def project(self, params: Any) -> Any:
        return namespace(params).clip(params, self.low, self.high)

    def reach(self, dimension: int) -> float:
        return max(abs(self.low), abs(self.high)) * math.sqrt(dimension)

    def __str__(self) -> str:
        return f"box [{self.low:g}, {self.high:g}]"


Domain = Ball | Box
