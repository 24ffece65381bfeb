"""What floating-point arithmetic adds to a sensitivity, and the bound on what is heard that keeps it small.

The recursion of privacy/recursion.py is about real numbers. A process computes with float64: every update is off by a rounding error that depends on the state, so two runs
on neighbouring data may move apart by it, and a neighbour can choose where it falls by sending huge numbers that cancel later. So

1. everything that is heard (and the agent's own message, which is as public) is clipped to |value| <= H before it is used. That is post-processing of the transcript and
   costs nothing; no honest agent sends more, H = R + 16 n G + 128 sqrt(K) b, with R the domain's reach, G a bound on gradients, b the largest noise scale.
2. The rounding is counted. With u = 2^-53 all intermediate results of one update lie below

       M_k = R + max(1, coupling_k) (2 w + 1) (H + R) + step_k (G + D_k),        w = the agent's weights together, D_k = what trackers have drifted (below)

   so a coordinate of the result is off by at most r_k = u (64 M_k + (m_k + d + 64) step_k G), with m_k records in the batch: an update, its projection and the
   noise's input take fewer than 64 operations, a mean of m_k gradients of d-term products m_k + d more. Two runs: twice that. In l2

       Phi_e(k+1) <= l_k Phi_e(k) + 2 sqrt(d) r_k,      Phi_e(0) = 0,

   is added to Phi at every step, whichever steps use the record. A message whose noise is that of a step (gradient perturbation: scale step_k b_k) moves by 2 sqrt(d) r_k
   more; a tracker by 2 sqrt(d) u (64 (G + D_k) + (m_k + d + 64) G) more.

A tracker's drift is z(k+1) = (1 - beta c) z(k) + beta (heard - c (g + noise)) with beta c < 1, so |z(k+1)| <= |z(k)| + beta_k (w H + c H): D_k is the sum. It is
the same in both runs, and rounds alike; it only makes other numbers round more coarsely.

P4's update (x - z) / (eta tau) is off by u (64 tau R / (eta tau) + (d + 64) G) l^tau per coordinate and run, in every round: it goes into C e of privacy/rounding.py.

float32 would lose 2^29 times as much: deployed runs that are to be private use float64. Where no bound on gradients is known (a declared change), G counts as 0 here and the
certificate says so.
"""

from __future__ import annotations

import math

import numpy as np

from hearsay.base import Algorithm
from hearsay.graphs import Graph
from hearsay.privacy import rounding
from hearsay.privacy.recursion import Account, forward
from hearsay.problems.losses import LinearLoss
from hearsay.problems.problem import Problem

_U = 2.0**-53
_OPERATIONS = 64
_UNHEARD_OF = 128.0  # noise of so many scales has a probability below e^-128


def loudest(algorithm: Algorithm, problem: Problem, graph: Graph, messages: int) -> float:
    """H: no honest agent sends a number beyond it in so many messages."""
    return (
        _reach(problem)
        + 16 * graph.agents * _gradient(problem)
        + _UNHEARD_OF * math.sqrt(messages) * _noise(algorithm, graph, messages)
    )


def extra(
    algorithm: Algorithm, problem: Problem, graph: Graph, agent: int, account: Account, messages: int
) -> np.ndarray:
    """Per message, what rounding adds to the shift over the noise scale: epsilon for Laplace noise, |shift| / sigma for Gaussian, delta for ternary."""
    k, d, gradient = np.arange(messages), problem.dimension, _gradient(problem)
    step, batch = (
        algorithm.step_size(k),
        np.minimum(algorithm.sampling.sizes(k, problem.arrivals), problem.counts[agent]),
    )
    loud, reach = loudest(algorithm, problem, graph, messages), _reach(problem)
    weight = float(graph.row_sums[agent] + graph.handed_out[agent])
    drift = np.append(0.0, np.cumsum(_tracking(algorithm, k) * weight * loud))[:-1]
    size = (
        reach + np.maximum(1.0, _coupling(algorithm, k)) * (2 * weight + 1) * (loud + reach) + step * (gradient + drift)
    )
    products = (batch + d + 64) * gradient
    off = 2 * math.sqrt(d) * _U * (_OPERATIONS * size + products * step)
    phi = forward(account.recursion.contraction(k), off)[:-1]
    tracker = 2 * math.sqrt(d) * _U * (_OPERATIONS * (gradient + drift) + products)
    norm = 1.0 if algorithm.mechanism == "gaussian" else math.sqrt(d)
    shifts = []
    for release in account.releases:
        with np.errstate(divide="ignore", invalid="ignore"):
            if release.state:
                moved = release.state * phi + (tracker if release.fresh else 0.0)
                shifts.append(norm * moved / release.scale(k))
            else:  # message k + 1 carries the update of step k under the noise of step k
                over = np.where(step > 0, off / (step * release.scale(k)), 0.0)
                shifts.append(norm * np.append(0.0, over)[:-1])
    found = np.stack(shifts)
    return np.sqrt(np.sum(found**2, axis=0)) if algorithm.mechanism == "gaussian" else np.sum(found, axis=0)


def factorized(algorithm: Algorithm, problem: Problem, agent: int, rho: float) -> float:
    """rho with the rounding of every round's update taken in."""
    factors, level = algorithm.factors, float(algorithm.noise_for(agent)(0))
    assert factors is not None
    rate, d, gradient = float(algorithm.step_size(0)), problem.dimension, _gradient(problem)
    tau = int(algorithm.sampling.sizes(np.array([0]), problem.arrivals)[0])
    low, high = problem.loss.curvature
    stretch = max(1.0, abs(1 - rate * low), abs(1 - rate * high)) ** tau if math.isfinite(high) else 1.0 + tau
    off = (
        2
        * _U
        * stretch
        * (_OPERATIONS * tau * (_reach(problem) + tau * rate * gradient) / (rate * tau) + (d + 64) * gradient)
    )
    more = math.sqrt(d) * rounding.encoded(factors, np.full(factors.rounds, off)) / level
    return (math.sqrt(2 * rho) + more) ** 2 / 2 * (1 + 1e-9)


def bounded(problem: Problem) -> bool:
    """A bound on gradients is known."""
    return math.isfinite(problem.change) and problem.declared is None


def _gradient(problem: Problem) -> float:
    """G: no mean gradient, nor the mean of the sizes of its terms, is larger in any coordinate. For |residual a| + regulariser."""
    if not bounded(problem):
        return 0.0
    reach, loss = _reach(problem), problem.loss
    data = loss.clip if not isinstance(loss, LinearLoss) else loss.unclipped_change(reach)
    return float(data or 0.0) + abs(loss.regulariser) * reach


def _reach(problem: Problem) -> float:
    return problem.domain.reach(problem.dimension)


def _coupling(algorithm: Algorithm, k: np.ndarray) -> np.ndarray:
    law = getattr(algorithm, "coupling", None)
    return np.ones(len(k)) if law is None else law(k)


def _tracking(algorithm: Algorithm, k: np.ndarray) -> np.ndarray:
    law = getattr(algorithm, "tracking", None)
    return np.zeros(len(k)) if law is None else law(k)


def _noise(algorithm: Algorithm, graph: Graph, messages: int) -> float:
    """The largest scale of anybody's noise, on the message."""
    k = np.arange(messages)
    fields = algorithm.rates(k, graph.agents)
    noises = [np.max(value) for name, value in fields._asdict().items() if "noise" in name]
    factor = max(1.0, float(np.max(fields.step)))
    if algorithm.factors is not None:
        diagonal, _, others = rounding.rows(algorithm.factors)
        factor *= float(np.max(np.abs(diagonal) + others))
    return factor * float(max(noises))
