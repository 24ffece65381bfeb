"""What a message of a secret batch loses where its record moves it in both data sets, by as much or
by less.

Given the messages so far, and the coins of all other records, a message is the noise around m
where the record's coin has not fallen, in both data sets, and around m + x or m + x' where it has,
|x| at most the shift s and |x'| at most the other shift s' <= s. A record that is replaced has
s' = s. One that is emptied in its place has s' = 0, and in a deployed run what rounding does: it
moves other records to other slots, and a sum in another order may be rounded to another point. With
q the rate and N(x) the law of the noise around x,

    P = (1 - q) N(0) + q N(x)    against    Q = (1 - q) N(0) + q N(x').

**Nothing is worse than two that pull in opposite directions along one line, as far as they can**,
one number each: (1 - q) N(0) + q N(s) against (1 - q) N(0) + q N(-s').

*Proof.* H_a(P | Q) is the integral of (P - a Q)^+, at first for a >= 1. Let a = 1 + q (c - 1) and
b = a / c. Then P - a Q = q (N(x) - c ((1 - b) N(0) + b N(x'))), point by point (Balle, Barthe and
Gaboardi 2018, Theorem 2), with c >= a >= 1 and 0 <= b <= 1. With U = dN(0) / dN(x), V = dN(x') /
dN(x) and W = (1 - b) U + b V, whose mean under N(x) is 1,

    H_a(P | Q) = q E(1 - c W)^+ = q (1 - c + c E(W - 1/c)^+)                     under N(x).

Whatever u and v with (1 - b) u + b v = 1/c,

    E(W - 1/c)^+  <=  (1 - b) E(U - u)^+ + b E(V - v)^+,

and E(U - u)^+ = H_u(N(0) | N(x)) is at most what one number that moves by s gives, E(V - v)^+ =
H_v(N(x') | N(x)) what one gives that moves by s + s' (convert.py for Laplace laws; a Gaussian one
has directions alone). That bounds all pairs by one number. For x = s and x' = -s' in one dimension
U and V fall together (the noise is log-concave), so that one point z has W <= 1/c beyond it and W
>= 1/c before it; with u = U(z) and v = V(z) nothing was lost, and the bound is that pair's own.
(Where W does not pass 1/c, u and v at or above the largest values of U and V, or at or below the
smallest, do the same.)

For a < 1, H_a(P | Q) = 1 - a + a H_(1/a)(Q | P): the pair the other way round, whose worst is N(s')
against N(-s) by the same proof, the mirror image of the same two. So that pair dominates at every
a; turned round it dominates Q against P; and compositions of it, each direction by itself, dominate
those of messages that are chosen by looking at earlier ones (Zhu, Dong and Wang 2022, Theorem 10).

**Rounding up is safe**: larger s and s' allow more pairs, and a smaller rate q' is a mixture of q
with what both have in common, N(0).

In pure epsilon the densities' quotient is at most (1 - q + q e^s) / (1 - q + q e^-s'), s and s' in
the norm of the law; turned round it is smaller, as s' <= s.

References: Balle, Barthe, Gaboardi, Privacy amplification by subsampling, NeurIPS 2018. Zhu, Dong,
Wang, Optimal accounting of differential privacy via characteristic function, AISTATS 2022.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from hearsay import _validate as require

if TYPE_CHECKING:
    from hearsay.mechanisms.mechanism import Mechanism

# The noise beyond it has so little mass that it may count as an infinite loss.
BEYOND = 1e-22
# Steps of a search, far more than it takes, and how close it comes: what it leaves open is counted,
# and is the square of that.
_STEPS, _CLOSE = 200, 1e-11


def opposed_pure(shift: np.ndarray, other: np.ndarray | float, rate: float) -> np.ndarray:
    """What messages cost, in pure epsilon, that a record moves by `shift` in one data set and by
    `other`, at most as much, in the other one, where it is in each with probability `rate`.
    """
    rate, shift = require.fraction("rate", rate), require.array("shift", shift)
    other = require.array("other", other)
    with np.errstate(over="ignore"):
        more = np.minimum(shift, np.log1p(rate * np.expm1(shift)))
    lost = rate * np.expm1(-other)
    # Near -1 it has lost the digits of 1 - q.
    near = np.logaddexp(math.log1p(-rate), math.log(rate) - other)
    return more - np.where(lost > -0.5, np.log1p(np.maximum(lost, -0.5)), near)


def opposed_losses(law: Mechanism, shift: float, other: float, rate: float, cell: float) -> Any:
    """The privacy loss distribution of one message, on a grid of that width: the one with the least
    losses that is never below the truth (Doroshenko et al. 2022), in both directions.
    """
    from dp_accounting.pld import privacy_loss_distribution as pld

    tail = float(law.standard.isf(BEYOND))

    def cells(one: float, two: float, point: float) -> int:
        return math.ceil(loss(law, one, two, rate, point) / cell)

    def deltas(one: float, two: float) -> np.ndarray:
        epsilon = np.arange(cells(one, two, one + tail) + 1) * cell
        return opposed_deltas(law, one, two, rate, epsilon)

    def direction(one: float, two: float, above: np.ndarray, turned: np.ndarray) -> Any:
        # Both mixtures lie beyond the two ends with less than that mass; what is lost below the
        # lower end counts as the loss there.
        return connected(above, turned, max(cells(two, one, tail), 0), cell)

    there = deltas(shift, other)
    if shift == other:  # its own mirror image
        return pld.PrivacyLossDistribution(direction(shift, other, there, there))
    back = deltas(other, shift)
    return pld.PrivacyLossDistribution(
        direction(shift, other, there, back), direction(other, shift, back, there)
    )


def connected(above: np.ndarray, turned: np.ndarray, below: int, cell: float) -> Any:
    """One direction of a privacy loss distribution, on a grid that is never below the truth.

    Args:
      above: H_a(P | Q) at a = e^0, e^cell, ...
      turned: H_a(Q | P) there: H_(1/a)(P | Q) = 1 - 1/a + H_a(Q | P) / a.
      below: how many points of the grid there are below 0.
    """
    from dp_accounting.pld import pld_pmf

    ratio = np.arange(-below, 0) * cell
    lower = -np.expm1(ratio) + np.exp(ratio) * turned[below:0:-1]
    return pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(
        cell, -below, len(above) - 1, np.minimum(np.concatenate([lower, above]), 1.0)
    )


def opposed_deltas(
    law: Mechanism, shift: float, other: float, rate: float, epsilon: np.ndarray
) -> np.ndarray:
    """H_a of the pair at a = e^epsilon, epsilon >= 0: q T(t - s) - (1 - q) (a - 1) T(t) - q a T(t +
    s') with T the mass beyond a point, and t where the quotient of the densities is a. That is the
    largest value over all t, so that a t which is off by rounding loses the square of that.

    Where t is only known to lie between two points, the lower one loses the integral of a Q - P up
    to t, at most e^h - 1 times what P has between them, h how much the quotient's log grows.
    """
    t, high = law.opposed_point(shift, other, rate, epsilon)
    tail, mass = law.standard.logsf, law.standard.sf
    with np.errstate(divide="ignore"):
        # log(e^epsilon - 1), also where e^epsilon is larger than all floats.
        excess = epsilon + np.log(-np.expm1(-epsilon))
        still = math.log1p(-rate) if rate < 1 else -math.inf
    lost = np.exp(still + excess + tail(t)) + np.exp(math.log(rate) + epsilon + tail(t + other))
    moved = rate * mass(t - shift)
    between = moved - rate * mass(high - shift) + (1 - rate) * (mass(t) - mass(high))
    h = loss(law, shift, other, rate, high) - loss(law, shift, other, rate, t)
    return np.maximum(moved - lost, 0.0) + np.expm1(np.maximum(h, 0.0)) * np.maximum(between, 0.0)


def narrowed(
    function: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]],
    low: np.ndarray,
    high: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Closer ends around the zeros of increasing functions, which stay between them: by Newton's
    method, a step as far beyond, and halves.

    Args:
      function: (values, slopes) at points, one each of the functions with those places.
    """
    low, high = low.copy(), high.copy()
    point = low.copy()
    places = np.flatnonzero(low < high)
    for step in range(_STEPS):
        if not len(places):
            break
        value, slope = _tried(function, point[places], places, low, high)
        width = _CLOSE * (1 + np.abs(point[places]))
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            newton = -value / slope
            past = point[places] + 2 * newton + np.copysign(width / 2, newton)
        _tried(function, _inside(past, places, low, high), places, low, high)
        # Where a function bends, Newton's steps may be too short.
        closer = np.full(len(places), np.nan) if step % 3 == 2 else point[places] + newton
        point[places] = _inside(closer, places, low, high)
        places = places[high[places] - low[places] > width]
    return low, high


def _tried(
    function: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]],
    points: np.ndarray,
    places: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """The function's values there, after which its zeros have closer ends."""
    value, slope = function(points, places)
    low[places] = np.where(value <= 0, np.maximum(points, low[places]), low[places])
    high[places] = np.where(value >= 0, np.minimum(points, high[places]), high[places])
    return value, slope


def _inside(
    points: np.ndarray, places: np.ndarray, low: np.ndarray, high: np.ndarray
) -> np.ndarray:
    """Those points, or the middle where they are not between the ends."""
    inside = (points > low[places]) & (points < high[places])
    return np.where(inside, points, (low[places] + high[places]) / 2)


def loss(law: Mechanism, shift: float, other: float, rate: float, point: Any) -> Any:
    """log of the quotient of the densities at a point."""
    density = law.standard.logpdf
    still = (math.log1p(-rate) if rate < 1 else -math.inf) + density(point)
    toward, away = (math.log(rate) + density(point - s) for s in (shift, -other))
    return np.logaddexp(still, toward) - np.logaddexp(still, away)
