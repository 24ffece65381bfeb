"""What a message of a secret batch loses where a record is replaced by another one.

Given the messages so far, and the coins of all other records, a message is the noise around m
where the record's coin has not fallen, in both data sets, and around m + x or m + x' where it has,
|x| and |x'| at most the shift s. With q the rate and N(x) the law of the noise around x,

    P = (1 - q) N(0) + q N(x)    against    Q = (1 - q) N(0) + q N(x').

**Nothing is worse than two records that pull in opposite directions along one line**, one number
each: (1 - q) N(0) + q N(s) against (1 - q) N(0) + q N(-s).

*Proof.* H_a(P | Q) is the integral of (P - a Q)^+, at first for a >= 1. Let a = 1 + q (c - 1) and
b = a / c. Then P - a Q = q (N(x) - c ((1 - b) N(0) + b N(x'))), point by point (Balle, Barthe and
Gaboardi 2018, Theorem 2), with c >= a >= 1 and 0 <= b <= 1. With U = dN(0) / dN(x), V = dN(x') /
dN(x) and W = (1 - b) U + b V, whose mean under N(x) is 1,

    H_a(P | Q) = q E(1 - c W)^+ = q (1 - c + c E(W - 1/c)^+)                     under N(x).

Whatever u and v with (1 - b) u + b v = 1/c,

    E(W - 1/c)^+  <=  (1 - b) E(U - u)^+ + b E(V - v)^+,

and E(U - u)^+ = H_u(N(0) | N(x)) is at most what one number that moves by s gives, E(V - v)^+ =
H_v(N(x') | N(x)) what one gives that moves by 2 s (convert.py for Laplace laws; a Gaussian one has
directions alone). That bounds all pairs by one number. For x = s and x' = -s in one dimension U and
V fall together (the noise is log-concave), so that one point z has W <= 1/c beyond it and W >= 1/c
before it; with u = U(z) and v = V(z) nothing was lost, and the bound is that pair's own. (Where W
does not pass 1/c, u and v at or above the largest values of U and V, or at or below the smallest,
do the same.)

For a < 1, H_a(P | Q) = 1 - a + a H_(1/a)(Q | P): the pair the other way round, which is in the
same class, and the worst pair is its own mirror image. So it dominates at every a and in both
directions, and compositions of it dominate those of messages that are chosen by looking at earlier
ones (Zhu, Dong and Wang 2022, Theorem 10).

**Rounding up is safe**: a larger s allows more pairs, and a smaller rate q' is a mixture of q with
what both have in common, N(0).

In pure epsilon the densities' quotient is at most (1 - q + q e^s) / (1 - q + q e^-s), s in the norm
of the law.

References: Balle, Barthe, Gaboardi, Privacy amplification by subsampling, NeurIPS 2018. Zhu, Dong,
Wang, Optimal accounting of differential privacy via characteristic function, AISTATS 2022.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from hearsay import _validate as require

if TYPE_CHECKING:
    from hearsay.mechanisms.mechanism import Mechanism

# The noise beyond it has so little mass that it may count as an infinite loss.
_TAIL = 1e-22


def opposed_pure(pure: np.ndarray, rate: float) -> np.ndarray:
    """What messages of that pure epsilon cost for a record that is replaced, in pure epsilon, where
    a record is in each with probability `rate`; `pure` is that of a record that is emptied.
    """
    rate, pure = require.fraction("rate", rate), require.array("pure", pure)
    with np.errstate(over="ignore"):
        more = np.minimum(pure, np.log1p(rate * np.expm1(pure)))
    return more - np.log1p(rate * np.expm1(-pure))


def opposed_losses(law: Mechanism, shift: float, rate: float, cell: float) -> Any:
    """The privacy loss distribution of one message, on a grid of that width: the one with the least
    losses that is never below the truth (Doroshenko et al. 2022).
    """
    from dp_accounting.pld import pld_pmf
    from dp_accounting.pld import privacy_loss_distribution as pld

    tail = float(law.standard.isf(_TAIL))
    # Both mixtures lie beyond the two ends with less than that mass; what is lost below the lower
    # end counts as the loss there.
    lowest = -math.ceil(_loss(law, shift, rate, tail) / cell)
    highest = math.ceil(_loss(law, shift, rate, shift + tail) / cell)
    above = opposed_deltas(law, shift, rate, np.arange(highest + 1) * cell)
    ratio = np.arange(lowest, 0) * cell
    below = -np.expm1(ratio) + np.exp(ratio) * above[-lowest:0:-1]
    pmf = pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(
        cell, lowest, highest, np.minimum(np.concatenate([below, above]), 1.0)
    )
    return pld.PrivacyLossDistribution(pmf)


def opposed_deltas(law: Mechanism, shift: float, rate: float, epsilon: np.ndarray) -> np.ndarray:
    """H_a of the pair at a = e^epsilon, epsilon >= 0: q T(t - s) - (1 - q) (a - 1) T(t) - q a T(t +
    s) with T the mass beyond a point, and t where the quotient of the densities is a. That is the
    largest value over all t, so that a t which is off by rounding loses the square of that.
    """
    t, tail = law.opposed_point(shift, rate, epsilon), law.standard.logsf
    with np.errstate(divide="ignore"):
        # log(e^epsilon - 1), also where e^epsilon is larger than all floats.
        excess = epsilon + np.log(-np.expm1(-epsilon))
        still = math.log1p(-rate) if rate < 1 else -math.inf
    lost = np.exp(still + excess + tail(t)) + np.exp(math.log(rate) + epsilon + tail(t + shift))
    return np.maximum(rate * law.standard.sf(t - shift) - lost, 0.0)


def _loss(law: Mechanism, shift: float, rate: float, point: float) -> float:
    """log of the quotient of the densities at a point."""
    density = law.standard.logpdf
    still = (math.log1p(-rate) if rate < 1 else -math.inf) + density(point)
    toward, away = (math.log(rate) + density(point - s) for s in (shift, -shift))
    return float(np.logaddexp(still, toward) - np.logaddexp(still, away))
