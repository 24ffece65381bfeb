"""The set that models are kept in: convex, closed, with a cheap Euclidean projection (a projection never widens a gap between two states)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from hearsay import _validate as check


def namespace(array: Any) -> Any:
    """jax.numpy for a run, NumPy for the float64 reference on the host: one formula serves both."""
    return np if isinstance(array, np.ndarray) else jnp


@dataclass(frozen=True)
class Ball:
    """All parameters of l2 norm at most `radius`."""

    radius: float = 1e5

    def __post_init__(self) -> None:
        check.positive("radius", self.radius)

    def project(self, params: Any) -> Any:
        xp = namespace(params)
        # Scaled by the largest entry first: the square of a far-away point must not overflow, or it would be projected to the origin.
        largest = xp.maximum(xp.max(xp.abs(params)), 1e-30)
        scaled = params / largest
        norm = largest * xp.sqrt(xp.sum(scaled * scaled))
        return params * xp.minimum(1.0, self.radius / xp.maximum(norm, 1e-30))

    def reach(self, dimension: int) -> float:
        """The largest l2 norm in the set."""
        return self.radius

    def __str__(self) -> str:
        return f"ball of radius {self.radius:g}"


@dataclass(frozen=True)
class Box:
    """All parameters with every coordinate in [low, high]."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if check.number("high", self.high) <= check.number("low", self.low):
            check.fail("high", f"above low = {self.low:g}", self.high)

    def project(self, params: Any) -> Any:
        return namespace(params).clip(params, self.low, self.high)

    def reach(self, dimension: int) -> float:
        return max(abs(self.low), abs(self.high)) * math.sqrt(dimension)

    def __str__(self) -> str:
        return f"box [{self.low:g}, {self.high:g}]"


Domain = Ball | Box
