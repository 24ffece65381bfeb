"""The losses of generalised linear models, each with the bounds that a certificate needs.

A record is (a, b): features of l2 norm at most `feature_bound` = Ba, and a label. With the margin
m = a.theta, the data part of a record's gradient is residual(m, b) a, and

    logistic      softplus(m) - b m,  b in {0, 1}   + r/2 |theta|^2
                  curvature [r, Ba^2/4 + r]         change  2 Ba                  longest  Ba
    squared       (m - b)^2,          |b| <= Bb     + r |theta|^2
                  curvature [2r, 2 Ba^2 + 2r]       change  2 Ba^2 R + 4 Ba Bb    2 Ba (Ba R + Bb)
    half squared  (m - b)^2 / 2,      |b| <= Bb     + r/2 |theta|^2
                  curvature [r, Ba^2 + r]           change  Ba^2 R + 2 Ba Bb      Ba (Ba R + Bb)
    polynomial    c0 + m/2 + s/2 m^2 - b m          + r/2 |theta|^2
                  curvature [r, s Ba^2 + r]         change  s Ba^2 R + Ba         Ba (s Ba R + 1/2)

`change` bounds how far one record's gradient can move when the record is replaced, over a domain
that reaches to norm R: |residual| <= 1 for the logistic loss; for the quadratic ones a a' - c c'
has spectral norm at most Ba^2 and the terms linear in the features differ by at most 2 Ba Bb (times
2), or Ba. The regulariser does not depend on the record and cancels.

`longest` bounds the gradient itself, Ba times the largest residual: how far it moves when the
record is emptied (zero-out adjacency). It is no half of the change: squared, Ba = Bb = 1, R = 5 has
change 14 and longest 12. An empty record is one without features (a = 0 has gradient 0), so
emptying a record is one way of replacing it, and `longest` is never above `change`.

With `clip` = B every record's gradient (its data part) is scaled down to norm B, so change <= 2 B
and longest <= B whatever the data. The clip acts on the scalar residual, whose clipped value still
does not decrease in the margin and has the same slope bound: convexity and the curvature interval
stay.

The polynomial loss is the logistic one with softplus(m) - m/2 = log(2 cosh(m/2)) replaced by its
Chebyshev interpolant of degree 2 on |m| <= Ba R. Its gradients need only two statistics of the
data, mean(a a') and mean((1/2 - b) a), whatever the number of records.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import numpy as np

from hearsay import _validate as require
from hearsay.problems.losses.domains import Domain, namespace
from hearsay.problems.losses.loss import SLACK, BoundedLoss, refuse


@dataclass(frozen=True)
class LinearLoss(BoundedLoss):
    """A generalised linear model's loss.

    Args:
      feature_bound: the largest l2 norm of a record's features; infinite where none is known.
      ridge: the regulariser is ridge / 2 times the squared norm of the model.
      label_bound: the largest size of a label.
      clip: the l2 norm that every record's gradient is brought down to; None leaves it as it is.
    """

    feature_bound: float
    ridge: float = 0.0
    label_bound: float = 1.0
    clip: float | None = None

    def __post_init__(self) -> None:
        # Infinity: no bound is known, and only a clip or a declaration can give a budget.
        require.settle(
            self, feature_bound=require.bound_or_infinite, label_bound=require.bound_or_infinite
        )
        require.settle(self, ridge=require.nonnegative, clip=require.optional(require.bound))

    @abstractmethod
    def residual(self, margin: Any, labels: Any) -> Any:
        """Derivative of the data part by the margin."""

    def margins(self, params: Any, features: Any) -> Any:
        return features @ params

    @property
    def label_range(self) -> tuple[float, float]:
        """What `unclipped_change` takes labels to be."""
        return -self.label_bound, self.label_bound

    def require_labels(self, labels: np.ndarray) -> None:
        low, high = self.label_range
        outside = ~((low * SLACK <= labels) & (labels <= high * SLACK))
        if self.clip is None and outside.any():
            refuse("labels", f"between {low:g} and {high:g} for {self}", outside)

    def dimension(self, record: tuple[int, ...]) -> int:
        return record[-1]

    def score(
        self, params: jax.Array, features: jax.Array, labels: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        margin = features @ params
        return self.values(margin, labels), (self.predict(margin) == labels).astype(params.dtype)

    def gradient_sum(
        self, params: jax.Array, features: jax.Array, labels: jax.Array, weights: jax.Array
    ) -> jax.Array:
        residual = self.clipped_residual(features @ params, labels, features)
        return (residual * weights) @ features

    def clipped_residual(self, margin: Any, labels: Any, features: Any) -> Any:
        """The residual, brought down where the record's gradient would be longer than `clip`."""
        residual = self.residual(margin, labels)
        if self.clip is None:
            return residual
        xp, limit = namespace(margin), self.residual_limit(features)
        clipped = xp.clip(residual, -limit, limit)
        return xp.where(xp.isfinite(clipped), clipped, 0.0)

    def predict(self, margin: jax.Array) -> jax.Array:
        """The label that a margin stands for."""
        return (margin > 0).astype(margin.dtype)


@dataclass(frozen=True)
class Logistic(LinearLoss):
    """log(1 + exp(m)) - b m at the margin m = a.theta, for labels b that are 0 or 1.

    Args:
      feature_bound: as for `LinearLoss`, and so are the other three.
      ridge: as there.
      label_bound: as there.
      clip: as there.
    """

    @property
    def label_range(self) -> tuple[float, float]:
        return 0.0, 1.0

    def residual(self, margin: Any, labels: Any) -> Any:
        return 0.5 + 0.5 * namespace(margin).tanh(margin / 2) - labels

    def values(self, margin: Any, labels: Any) -> Any:
        return namespace(margin).logaddexp(0.0 * margin, margin) - labels * margin

    @property
    def curvature(self) -> tuple[float, float]:
        return self.ridge, self.feature_bound**2 / 4 + self.ridge

    def unclipped_change(self, reach: float) -> float:
        return 2 * self.feature_bound

    def unclipped_longest(self, reach: float) -> float:
        return self.feature_bound


@dataclass(frozen=True)
class Squared(LinearLoss):
    """(a.theta - b)^2 + ridge |theta|^2: ridge regression.

    Args:
      feature_bound: as for `LinearLoss`.
      ridge: the regulariser is ridge times the squared norm of the model.
      label_bound: as for `LinearLoss`.
      clip: as for `LinearLoss`.
    """

    def residual(self, margin: Any, labels: Any) -> Any:
        return 2 * (margin - labels)

    def values(self, margin: Any, labels: Any) -> Any:
        return (margin - labels) ** 2

    @property
    def regulariser(self) -> float:
        return 2 * self.ridge

    @property
    def curvature(self) -> tuple[float, float]:
        return 2 * self.ridge, 2 * self.feature_bound**2 + 2 * self.ridge

    def unclipped_change(self, reach: float) -> float:
        return 2 * self.feature_bound**2 * reach + 4 * self.feature_bound * self.label_bound

    def unclipped_longest(self, reach: float) -> float:
        return 2 * self.feature_bound * (self.feature_bound * reach + self.label_bound)

    def affine(self) -> float | None:
        return 2.0 if self.clip is None else None

    def predict(self, margin: jax.Array) -> jax.Array:
        return (margin > 0.5).astype(margin.dtype)


@dataclass(frozen=True)
class HalfSquared(LinearLoss):
    """Least squares as paper P3 writes it: the gradient of a record is (a.theta - b) a.

    Args:
      feature_bound: as for `LinearLoss`, and so are the other three.
      ridge: as there.
      label_bound: as there.
      clip: as there.
    """

    def residual(self, margin: Any, labels: Any) -> Any:
        return margin - labels

    def values(self, margin: Any, labels: Any) -> Any:
        return (margin - labels) ** 2 / 2

    @property
    def curvature(self) -> tuple[float, float]:
        return self.ridge, self.feature_bound**2 + self.ridge

    def unclipped_change(self, reach: float) -> float:
        return self.feature_bound**2 * reach + 2 * self.feature_bound * self.label_bound

    def unclipped_longest(self, reach: float) -> float:
        return self.feature_bound * (self.feature_bound * reach + self.label_bound)

    def affine(self) -> float | None:
        return 1.0 if self.clip is None else None


@dataclass(frozen=True)
class PolynomialLogistic(LinearLoss):
    """Logistic loss through its degree-2 Chebyshev interpolant; no clipping.

    Args:
      feature_bound: as for `LinearLoss`.
      ridge: as for `LinearLoss`.
      label_bound: as for `LinearLoss`.
      clip: None: its gradients come from statistics, not from records.
      margin_bound: the interpolant is that on margins up to so much.
    """

    margin_bound: float = 4.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require.settle(self, margin_bound=require.bound)
        if self.clip is not None:
            require.fail(
                "clip",
                "None for the polynomial loss (its gradients come from statistics, not records)",
                self.clip,
            )

    @cached_property
    def coefficients(self) -> tuple[float, float]:
        """(c0, s): log(2 cosh(m/2)) is replaced by c0 + s/2 m^2."""
        even = np.polynomial.Chebyshev.interpolate(
            lambda m: np.log(2 * np.cosh(m / 2)), 2, domain=[-self.margin_bound, self.margin_bound]
        )
        power = even.convert(kind=np.polynomial.Polynomial).coef
        return float(power[0]), float(2 * power[2])

    @cached_property
    def approximation_error(self) -> tuple[float, float]:
        """The largest error of the loss and of its derivative by the margin,
        over the margins allowed.
        """
        m = np.linspace(-self.margin_bound, self.margin_bound, 20_001)
        c0, s = self.coefficients
        value = np.abs(np.log(2 * np.cosh(m / 2)) - c0 - s / 2 * m**2)
        slope = np.abs(1 / (1 + np.exp(-m)) - 0.5 - s * m)
        return float(value.max()), float(slope.max())

    @property
    def note(self) -> str:
        value, slope = self.approximation_error
        return (
            f"stands in for the logistic loss: off by at most {value:.3g}, its slope by"
            f" {slope:.3g}, on margins up to {self.margin_bound:g}"
        )

    @property
    def label_range(self) -> tuple[float, float]:
        return 0.0, 1.0

    def residual(self, margin: Any, labels: Any) -> Any:
        return 0.5 + self.coefficients[1] * margin - labels

    def values(self, margin: Any, labels: Any) -> Any:
        c0, s = self.coefficients
        return c0 + margin / 2 + s / 2 * margin**2 - labels * margin

    @property
    def curvature(self) -> tuple[float, float]:
        return self.ridge, self.coefficients[1] * self.feature_bound**2 + self.ridge

    def unclipped_change(self, reach: float) -> float:
        return self.coefficients[1] * self.feature_bound**2 * reach + self.feature_bound

    def unclipped_longest(self, reach: float) -> float:
        return self.feature_bound * (self.coefficients[1] * self.feature_bound * reach + 0.5)

    def affine(self) -> float | None:
        return self.coefficients[1]


def polynomial(loss: Logistic, domain: Domain, dimension: int) -> PolynomialLogistic:
    """The polynomial stand-in for a logistic loss on a domain small enough for
    it (margins up to 30).
    """
    dimension = require.count("dimension", dimension)
    margin = loss.feature_bound * domain.reach(dimension)
    if not margin <= 30 or not math.isfinite(margin):
        require.fail(
            "radius",
            f"at most {30 / loss.feature_bound:g} for the polynomial loss (it follows a parabola)",
            domain.reach(dimension),
        )
    return PolynomialLogistic(
        loss.feature_bound, loss.ridge, loss.label_bound, loss.clip, margin_bound=margin
    )
