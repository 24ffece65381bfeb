"""Softmax regression: a linear model of K classes.

The model is a matrix Theta (K, d), raveled. A record is (a, y): features of l2 norm at most
`feature_bound` = Ba, and a class y of 0, ..., K - 1. With the margins m = Theta a and
p = exp(m) / sum_k exp(m_k), the data part of its loss is log sum_k exp(m_k) - m_y, and

    gradient    u a',  u = p - e_y          longest    sqrt(2) Ba
    Hessian     (diag p - p p') (x) a a'    change     2 sqrt(2) Ba
                                            curvature  [r, Ba^2 / 2 + r]

**Longest.** |u a'| = |u| |a|, and |u|^2 = (1 - p_y)^2 + sum_{k != y} p_k^2 <= 2 (1 - p_y)^2 < 2.

**Change.** For two records (a, y), (c, z) with residuals u, v,

    |u a' - v c'|^2 = |u|^2 |a|^2 + |v|^2 |c|^2 - 2 (u.v) (a.c) < 8 Ba^2

No model attains it, and with d >= 2 no smaller bound holds for all: unless a and c lie on one line
their margins are free of each other, so that u and v both come as close to e_j - e_y as one likes
while c is close to -a. Such models are large: |Theta (a + c)| <= R |a + c| in a ball of radius R.

**Curvature.** v' (diag p - p p') v is the variance of v_k when k is drawn from p, at most
(max v - min v)^2 / 4 <= |v|^2 / 2.

**The clip** B scales u down to norm B / |a| where it is longer: u is projected onto a ball, so the
gradient stays within B (change <= 2 B, longest <= B) and moves no faster, but for K > 2 it is no
gradient of a convex function any more. Its Jacobian is a product S H of symmetric matrices with
0 <= S <= 1 (the projection's) and 0 <= H <= L = Ba^2 / 2 (the Hessian), which may turn vectors, and
whose symmetric part may be negative. What holds is

    |S H - (L / 3) I| <= 2 L / 3                                                               (*)

so that |c I - t (S H + r I)| <= max(|c - t (r - L / 3)|, |c - t (r + L)|) for all c and t: all that
a certificate uses of a curvature interval (`Loss.curvature`) holds for [r - L / 3, r + L], for
means over records and along segments, too, since (*) is convex. Proof of (*), L = 1: the left side
is convex in S and in H, so the worst ones are projections; two projections split space into lines,
on which S H is 0 or 1, and planes, on which they project onto lines at an angle with cosine c. With
x = c^2, the largest eigenvalue of (S H - I / 3)' (S H - I / 3) there is
1/9 + x / 6 + sqrt(x^2 / 36 + x (1 - x) / 9), which grows with x up to 4/9 at x = 1. For K = 2 all
residuals lie on the line of (1, -1), where the clip is that of linear.py: [r, r + L] stays.

**Rounding.** Probabilities come from margins (counted as L R, privacy/float64.py) by K
exponentials, their sum and a quotient: p is off by fewer than K + 16 roundings, and P_k there
counts d + 64, with d = K times the columns.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from hearsay import _validate as require
from hearsay.problems.losses.domains import namespace, shortened
from hearsay.problems.losses.loss import BoundedLoss, refuse


@dataclass(frozen=True)
class Softmax(BoundedLoss):
    """log sum_k exp(m_k) - m_y at the margins m = Theta a, for classes y of 0, ..., classes - 1.

    Args:
      feature_bound: the largest l2 norm of a record's features; infinite where none is known.
      classes: how many, at least 2.
      ridge: the regulariser is ridge / 2 times the squared norm of the model.
      clip: the l2 norm that every record's gradient is brought down to; None leaves it as it is.

    Example:
      >>> import hearsay as hs
      >>> loss = hs.problems.Softmax(feature_bound=1.0, classes=3)
      >>> loss.dimension((5,)), loss.curvature
      (15, (0.0, 0.5))
    """

    feature_bound: float
    classes: int
    ridge: float = 0.0
    clip: float | None = None

    def __post_init__(self) -> None:
        require.settle(
            self,
            feature_bound=require.bound_or_infinite,
            classes=lambda name, value: require.count(name, value, 2),
            ridge=require.nonnegative,
            clip=require.optional(require.bound),
        )

    def dimension(self, record: tuple[int, ...]) -> int:
        return self.classes * record[-1]

    def margins(self, params: Any, features: Any) -> Any:
        return features @ params.reshape(self.classes, -1).T

    def residual(self, margins: Any, labels: Any) -> Any:
        """p - e_y."""
        grown = namespace(margins).exp(_below_0(margins))
        return grown / grown.sum(axis=-1, keepdims=True) - self._chosen(margins, labels)

    def values(self, margin: Any, labels: Any) -> Any:
        xp, below = namespace(margin), _below_0(margin)
        own = xp.where(self._chosen(margin, labels), below, 0.0).sum(axis=-1)
        return xp.log(xp.exp(below).sum(axis=-1)) - own

    def predict(self, margin: Any) -> Any:
        return namespace(margin).argmax(margin, axis=-1).astype(margin.dtype)

    def score(
        self, params: jax.Array, features: jax.Array, labels: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        margins = self.margins(params, features)
        return self.values(margins, labels), (self.predict(margins) == labels).astype(params.dtype)

    def gradient_sum(self, params: Any, features: Any, labels: Any, weights: Any) -> Any:
        residual = self.clipped_residual(self.margins(params, features), labels, features)
        return ((weights[:, None] * residual).T @ features).ravel()

    def clipped_residual(self, margins: Any, labels: Any, features: Any) -> Any:
        """The residual, brought down where the record's gradient would be longer than `clip`."""
        residual = self.residual(margins, labels)
        if self.clip is None:
            return residual
        xp, limit = namespace(margins), self.residual_limit(features)
        # Below the smallest bound lengths cannot be told (domains.shortened): such a record counts
        # nothing. No residual is as long as 2.
        limit = xp.where(limit >= require.SMALLEST_BOUND, xp.minimum(limit, 2.0), 0.0)
        clipped = shortened(residual, limit[..., None])
        # One entry that is not a number leaves the length of the others unknown.
        return xp.where(xp.isfinite(clipped).all(axis=-1, keepdims=True), clipped, 0.0)

    @property
    def curvature(self) -> tuple[float, float]:
        steepest = self.feature_bound**2 / 2
        turns = self.clip is not None and self.classes > 2
        return self.ridge - (steepest / 3 if turns else 0.0), self.ridge + steepest

    def unclipped_change(self, reach: float) -> float:
        return 2 * math.sqrt(2) * self.feature_bound

    def unclipped_longest(self, reach: float) -> float:
        return math.sqrt(2) * self.feature_bound

    def require_labels(self, labels: np.ndarray) -> None:
        known = (labels == np.floor(labels)) & (labels >= 0) & (labels < self.classes)
        if not known.all():
            refuse("labels", f"whole numbers from 0 to {self.classes - 1} for {self}", ~known)

    def _chosen(self, margins: Any, labels: Any) -> Any:
        """Whether a class is the record's own."""
        classes = namespace(margins).arange(self.classes, dtype=labels.dtype)
        return labels[..., None] == classes.reshape(*(1 for _ in labels.shape), -1)


def _below_0(margins: Any) -> Any:
    """The margins less the largest of a record's: the same probabilities, and no overflow."""
    return margins - margins.max(axis=-1, keepdims=True)
