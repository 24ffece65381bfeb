"""What floating-point arithmetic adds to a sensitivity, and the bound on what is heard that
keeps it small.

The recursion of privacy/recursion.py is about real numbers. A process computes with float64:
every update is off by a rounding error that depends on the state, so two runs on neighbouring
data may move apart by it, and a neighbour can choose where it falls by sending huge numbers that
cancel later. So

1. everything that is heard (and the agent's own message, which is as public) is clipped
   to |value| <= H before it is used. That is post-processing of the transcript and costs nothing;
   no honest agent sends more, H = 2 R + 16 n G + 128 sqrt(K) b, with R the domain's reach, G a
   bound on gradients, b the largest noise scale.
2. The rounding is counted. With u = 2^-53 all intermediate results of one update lie below

       M_k = R + max(1, coupling_k) (2 w + 1) (H + R) + step_k (G + D_k),
             w = all weights that the agent hears and hands out with,
             D_k = what trackers have drifted

   so a coordinate of the result is off by at most r_k = u (16 M_k + step_k P_k),
   P_k = (3 m_k + d + 64) (G + L R) with m_k records in the batch: an update, its projection
   and what goes into the noise take fewer than 16 operations beside the projection's norm, which
   adds 2 u (d + 16) R in l2; a mean of m_k gradients of d-term products (or two moments that are
   carried along) 3 m_k + d + 64, and L R is what a margin of size R can do to a gradient.
   Two runs: twice that. In l2

       Phi_e(k+1) <= l_k Phi_e(k) + off_k,  off_k = 2 (sqrt(d) r_k + 2 u (d + 16) R),  Phi_e(0) = 0,

   is added to Phi at every step, whichever steps use the record. A message whose noise is that of
   the step before it (gradient perturbation, a release with delay 1) moves by off_k more; a
   tracker by 2 sqrt(d) u (16 (G + D_k) + P_k) more.

A tracker's drift is z(k+1) = (1 - beta c) z(k) + beta (heard - c (g + noise)) with beta c < 1,
so |z(k+1)| <= |z(k)| + beta_k w H: D_k is the sum. It is the same in both runs, and rounds alike;
it only makes other numbers round more coarsely.

P4's update (x - z) / (eta tau) is off by u l^tau (16 (R + tau eta G) / eta + P) per coordinate and
run, in every round: it goes into C e of mechanisms/rounding.py.

All of it grows with the radius of the domain: a smaller one (problem's `radius`) costs less.
float32 would lose 2^29 times as much: deployed runs that are to be private use float64. Clipped
gradients of neural networks have margins of their own (problems/losses/per_record.py). Where no
bound on gradients is known (a declared change), G counts as 0 here and the certificate says so.
"""

from __future__ import annotations

import math

import numpy as np

from hearsay.base import Algorithm, noise_rates
from hearsay.graphs import Graph
from hearsay.privacy.recursion import Account, forward
from hearsay.problems.losses.linear import LinearLoss
from hearsay.problems.task import Task

_U = 2.0**-53
_OPERATIONS = 16
_UNHEARD_OF = 128.0  # noise of so many scales has a probability below e^-128


def loudest(algorithm: Algorithm, problem: Task, graph: Graph, messages: int) -> float:
    """H: no honest agent sends a model, gradient or tracker beyond it in so many messages."""
    reach, noise = _reach(problem), _noise(algorithm, graph, messages)
    gradient = _gradient(problem) if bounded(problem) else reach
    return (
        2 * reach
        + 16 * graph.agents * gradient
        + _UNHEARD_OF * math.sqrt(messages) * noise
        + algorithm.magnitudes(0, graph.agents).resolution
    )


def extra(
    algorithm: Algorithm,
    problem: Task,
    graph: Graph,
    agent: int,
    account: Account,
    messages: int,
) -> np.ndarray:
    """Per message, what rounding adds to the shift over the noise scale:
    epsilon for Laplace noise, |shift| / sigma for Gaussian, delta for ternary.
    """
    k, d, gradient = np.arange(messages), problem.dimension, _gradient(problem)
    large = algorithm.magnitudes(agent, graph.agents)
    step = large.step(k)
    loud, reach = loudest(algorithm, problem, graph, messages), _reach(problem)
    weight = float(
        graph.row_sums[agent] + graph.handed_out[agent] + graph.pushed.sum(axis=1)[agent]
    )
    drift = np.append(0.0, np.cumsum(large.tracking(k) * weight * loud))[:-1]
    size = (
        reach
        + np.maximum(1.0, large.coupling(k)) * (2 * weight + 1) * (loud + reach)
        + step * (gradient + drift)
    )
    batch = np.minimum(algorithm.sampling.sizes(k, problem.arrivals), problem.counts[agent])
    products = (3 * batch + d + 64) * (gradient + _bend(problem))
    off = 2 * _U * (math.sqrt(d) * (_OPERATIONS * size + step * products) + 2 * (d + 16) * reach)
    tracker = 2 * math.sqrt(d) * _U * (_OPERATIONS * (gradient + drift) + products)
    phi = forward(account.recursion.contraction(k), off)[:-1]
    norm = 1.0 if algorithm.mechanism == "gaussian" else math.sqrt(d)
    shifts = []
    for release in account.releases:
        with np.errstate(divide="ignore", invalid="ignore"):
            if not release.delay:
                shifts.append(
                    norm
                    * (release.state * phi + (tracker if release.fresh else 0.0))
                    / release.scale(k)
                )
            else:
                if large.step_noise is None:
                    raise ValueError(
                        f"magnitudes of {algorithm.name} must tell the scale of its delayed noise,"
                        " got none"
                    )
                own = large.step_noise(k)
                shifts.append(norm * np.append(0.0, np.where(own > 0, off / own, 0.0))[:-1])
    found = np.stack(shifts)
    return (
        np.sqrt(np.sum(found**2, axis=0))
        if algorithm.mechanism == "gaussian"
        else np.sum(found, axis=0)
    )


def factorized(algorithm: Algorithm, problem: Task, agent: int, rho: float) -> float:
    """rho with the rounding of every round's update taken in."""
    factors, level = algorithm.factors, float(algorithm.noise_for(agent)(0))
    assert factors is not None
    rate, d, gradient = float(algorithm.step_size(0)), problem.dimension, _gradient(problem)
    tau = int(algorithm.sampling.sizes(np.array([0]), problem.arrivals)[0])
    low, high = problem.loss.curvature
    stretch = (
        max(1.0, abs(1 - rate * low), abs(1 - rate * high)) ** tau
        if math.isfinite(high)
        else 1.0 + tau
    )
    products = (d + 64) * (gradient + _bend(problem))
    off = (
        2
        * _U
        * stretch
        * (_OPERATIONS * (_reach(problem) + tau * rate * gradient) / rate + products)
    )
    more = math.sqrt(d) * factors.encoded(np.full(factors.rounds, off)) / level
    return (math.sqrt(2 * rho) + more) ** 2 / 2 * (1 + 1e-9)


def bounded(problem: Task) -> bool:
    """A bound on gradients is known."""
    return math.isfinite(problem.change) and problem.declared is None


def _gradient(problem: Task) -> float:
    """G: no mean gradient, nor the mean of the sizes of its terms, is larger in any coordinate."""
    if not bounded(problem):
        return 0.0
    loss, known = problem.loss, []
    if loss.clip is not None:
        known.append(loss.clip)
    if isinstance(loss, LinearLoss):
        known.append(loss.unclipped_change(_reach(problem)))
    return min(known) + abs(loss.regulariser) * _reach(problem)


def _bend(problem: Task) -> float:
    """L R, where the loss has a curvature: how far a gradient moves when its margin is off by
    as much as it is large.
    """
    high = problem.loss.curvature[1]
    return abs(high) * _reach(problem) if math.isfinite(high) else 0.0


def _reach(problem: Task) -> float:
    return problem.domain.reach(problem.dimension)


def _noise(algorithm: Algorithm, graph: Graph, messages: int) -> float:
    """The largest scale of anybody's noise, on the message."""
    k = np.arange(messages)
    fields = algorithm.rates(k, graph.agents)
    noises = [np.max(value) for value in noise_rates(type(algorithm), fields).values()]
    factor = max(1.0, float(np.max(fields.step)))
    if algorithm.factors is not None:
        diagonal, _, others = algorithm.factors.rows()
        factor *= float(np.max(np.abs(diagonal) + others))
    return factor * float(max(noises))
