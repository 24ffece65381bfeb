"""The numerical searches behind kinds.py, and the worst participation pattern.

A search that stops early costs accuracy, never privacy: what it returns is a factorization whatever
its numbers are, and sensitivity and error are computed from those numbers. Results are kept and
shared, so they are read-only.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
import scipy
from scipy import linalg, optimize

OBJECTIVES = ("max", "mean")
# Relative duality gap of the error at which the dense search stops, and the iterations after which
# it stops whatever the gap.
_GAP, _ITERATIONS = 1e-5, 100


def share_of_rounds(rounds: int, objective: str) -> np.ndarray:
    """How much entry r of the first column of a lower Toeplitz B counts, squared,
    in the mean squared error of all rounds or in that of the last round, which is the largest.
    """
    return 1 - np.arange(rounds) / rounds if objective == "mean" else np.ones(rounds)


@lru_cache(maxsize=4)
def dense(
    rounds: int, multipliers: tuple[float, ...] | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(C, C^-1, v) with the smallest ||A C^-1||_F among matrices with column norms 1
    (P4, equation 7), C lower triangular.

    With X = C'C the problem is: minimise tr(A'A X^-1) subject to diag X = 1. Its Lagrangian
    is smallest at

        X(v) = V^(-1/2) M(v)^(1/2) V^(-1/2),    M(v) = V^(1/2) A'A V^(1/2),    V = diag(v),

    so the multipliers of the optimum obey v = phi(v) = diag M(v)^(1/2) (Denisov et al. 2022,
    Theorem 3.2). phi is a square root of v in first order, so v <- phi(v)^2 / v leaves less of the
    error than v <- phi(v). Every v bounds the optimum from both sides: from above by the error of
    X(v) scaled to diagonal 1, from below by the dual value (tr M^(1/2))^2 / sum v. The search ends
    when the two agree. `multipliers` is a v to take as it is: any makes a factorization.
    """
    gram = np.minimum.outer(np.arange(rounds, 0, -1.0), np.arange(rounds, 0, -1.0))  # A'A
    v = np.ones(rounds) if multipliers is None else np.array(multipliers)
    from threadpoolctl import threadpool_limits  # comes with scikit-learn

    # Threads of an eigenvalue search wait for each other so often that a second one is a loss on a
    # busy machine.
    with threadpool_limits(1):
        for _ in range(_ITERATIONS):
            used, half = v, np.sqrt(v)
            values, vectors = linalg.eigh(
                half[:, None] * gram * half, check_finite=False, driver="evd"
            )
            roots = np.sqrt(values)
            if multipliers is not None:
                break
            diagonal = vectors**2 @ roots  # phi(v)
            # A times V^(1/2) diag(X)^(1/2) vectors.
            spread = np.cumsum(np.sqrt(diagonal)[:, None] * vectors, axis=0)
            upper, lower = np.sum(np.sum(spread**2, axis=0) / roots), np.sum(roots) ** 2 / np.sum(v)
            if upper <= lower * (1 + 2 * _GAP):
                break
            v = diagonal**2 / v
        root = (vectors * roots) @ vectors.T
    scale = np.sqrt(np.diag(root))
    root /= scale[:, None] * scale  # X(v) scaled to diagonal 1: the factors V^(-1/2) cancel
    # A Cholesky factor L of X with its rows and columns reversed gives the lower triangular C = J
    # L' J.
    encoder = np.ascontiguousarray(linalg.cholesky(root[::-1, ::-1], lower=True).T[::-1, ::-1])
    encoder /= np.linalg.norm(encoder, axis=0)
    inverse = linalg.solve_triangular(encoder, np.eye(rounds), lower=True)
    return _frozen(encoder), _frozen(inverse), _frozen(used)


@lru_cache(maxsize=64)
def banded(rounds: int, bands: int, objective: str) -> np.ndarray:
    """The falling coefficients c, c_0 = 1, of a banded Toeplitz C with the smallest
    log ||c||^2 + log sum_r w_r b_r^2, b(z) = 1 / ((1 - z) c(z)).

    The unknowns are the logarithms of the steps c_j - c_{j+1}: falling coefficients keep 1 / c(z)
    bounded (Enestrom and Kakeya), so that no trial point overflows. db / dc_j = -z^j b(z) / c(z),
    so the gradient takes one more division by c(z) and one correlation.
    """
    weights = share_of_rounds(rounds, objective)

    def loss(x: np.ndarray) -> tuple[float, np.ndarray]:
        steps = np.exp(x)
        c = np.cumsum(steps[::-1])[::-1]
        b = scipy.signal.lfilter([1.0], c, np.ones(rounds))
        weighted, divided = weights * b, scipy.signal.lfilter([1.0], c, b)
        size, squared = c @ c, weighted @ b
        along = np.array([weighted[j:] @ divided[: rounds - j] for j in range(bands)])
        slope = 2 * c / size - 2 * along / squared
        return np.log(size) + np.log(squared), steps * np.cumsum(slope)

    root = np.cumprod(1 - 0.5 / np.append(np.inf, np.arange(1, bands)))
    found = _minimise(loss, np.log(-np.diff(root, append=0.0)))
    c = np.cumsum(np.exp(found)[::-1])[::-1]
    return _frozen(c / c[0])


@lru_cache(maxsize=64)
def blt(rounds: int, buffers: int, objective: str) -> np.ndarray:
    """p_1 > q_1 > p_2 > ... > q_n in (0, 1) with the smallest log ||c||^2 + log sum_r w_r b_r^2 for
    the c and b that they generate (class Blt).

    The unknowns are the logarithms of the steps of -log p_1, -log q_1, ..., so that every point
    is in order. With F_x = z / (1 - x z), dc / dp = F_p c, dc / dq = -F_q c, db / dp = -F_p b and
    db / dq = F_q b: the gradient is a few more filters of order one.
    """
    weights, impulse = share_of_rounds(rounds, objective), np.eye(1, rounds)[0]
    sign = np.tile([1.0, -1.0], buffers)

    def loss(x: np.ndarray) -> tuple[float, np.ndarray]:
        steps = np.exp(x)
        both = np.exp(-np.cumsum(steps))
        c, b = (
            cascade(both[0::2], both[1::2], impulse),
            cascade(both[1::2], both[0::2], np.ones(rounds)),
        )
        weighted, size = weights * b, c @ c
        squared = weighted @ b
        through = [scipy.signal.lfilter([0.0, 1.0], [1.0, -pole], [c, b]) for pole in both]
        slope = sign * [2 * (c @ fc) / size - 2 * (weighted @ fb) / squared for fc, fb in through]
        return np.log(size) + np.log(squared), -steps * np.cumsum((slope * both)[::-1])[::-1]

    start = np.log(np.diff(np.geomspace(3 / rounds, 4.0, 2 * buffers), prepend=0.0))
    return _frozen(np.exp(-np.cumsum(np.exp(_minimise(loss, start)))))


def cascade(poles: np.ndarray, zeros: np.ndarray, series: np.ndarray) -> np.ndarray:
    """The power series times prod_i (1 - zeros_i z) / (1 - poles_i z), one factor after the other:
    nothing is ever subtracted from its near equal.
    """
    for pole, zero in zip(poles, zeros, strict=True):
        series = scipy.signal.lfilter([1.0, -zero], [1.0, -pole], series)
    return series


def reciprocal(coefficients: np.ndarray, rounds: int) -> np.ndarray:
    """The first `rounds` coefficients of 1 / c(z)."""
    return scipy.signal.lfilter([1.0], coefficients, np.eye(1, rounds)[0])


def heaviest(values: np.ndarray, separation: int, uses: int) -> np.ndarray:
    """The largest sum of values over at most `uses` of the rounds (first axis), any two at least
    `separation` apart; for all columns at once.

    After m passes best[j] is the largest sum over at most m rounds from j on: some first round
    i >= j, then the best of m - 1 from i + separation on.
    """
    rounds = len(values)
    best = np.zeros((rounds + separation, *values.shape[1:]))
    for _ in range(uses):
        first = values + best[separation:]
        best[:rounds] = np.maximum.accumulate(np.maximum(first, 0.0)[::-1])[::-1]
    return best[0]


def heaviest_of_all(values: np.ndarray, separation: int) -> np.ndarray:
    """The same with as many rounds as there is room for: one pass, from the last round back."""
    rounds = len(values)
    best = np.zeros((rounds + separation, *values.shape[1:]))
    for j in range(rounds - 1, -1, -1):
        best[j] = np.maximum(best[j + 1], values[j] + best[j + separation])
    return best[0]


def _minimise(
    loss: Callable[[np.ndarray], tuple[float, np.ndarray]], start: np.ndarray
) -> np.ndarray:
    return optimize.minimize(
        loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 1000, "ftol": 1e-13}
    ).x


def _frozen(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array
