"""The best models there are, found centrally and without noise: what runs are measured against.

Two questions are asked, and each has its answer by Newton's method (for models of several classes
by L-BFGS) in float64, with the same objective (clipping is part of an algorithm, not of the
objective: what it costs shows in the metrics) and the same second derivative:

`Reference`: the minimiser of the running objective (paper P1, (2)), the mean over agents of their
mean loss over the records that have arrived,

    F_t(theta) = 1/n sum_i 1/m_i(t) sum_{k < m_i(t)} l(theta, record_ik),
        theta*(t) = argmin over the domain

one large problem after the other, on any domain. Each begins where the last one ended, and the
factor of an earlier Hessian is kept for as long as it serves.

`minima`: those of many small losses over a ball, each with a proven gap. For any multiplier m > 0
on |x|^2 <= rho^2 and any x, with s = |grad f(x) + m x|,

    f(x) + m/2 (|x|^2 - rho^2) - s^2 / 2m   <=   min over the ball   <=   f(projection of x)

and all losses here are at least 0. Newton's method finds x for a multiplier and, on log |x(m)|, the
multiplier, for all losses at once.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import linalg, optimize

from hearsay import _validate as require
from hearsay.problems.data.stream import Stream
from hearsay.problems.losses.domains import Ball, Domain
from hearsay.problems.losses.linear import LinearLoss
from hearsay.problems.losses.loss import BoundedLoss, Loss
from hearsay.problems.losses.softmax import Softmax
from hearsay.problems.problem import Problem
from hearsay.problems.sampling.samplers import Records

# Of the running optimum: how long its gradient may be.
_TOLERANCE = 1e-9
# Of a minimum over a ball, in units of the mean loss of a record.
TOLERANCE = 1e-6
_ITERATIONS = 400
# Of L-BFGS; with a ridge of 0.01 a few dozen are enough.
_STEPS = 2000


class Optimum(NamedTuple):
    params: np.ndarray
    value: float


class Reference:
    """theta*(t) of a problem, each computed once; ask for steps in increasing order to
    profit from warm starts.
    """

    def __init__(self, problem: Problem):
        self._several = isinstance(problem.loss, Softmax)
        known: Any = problem.loss if self._several else problem.linear
        self._loss: LinearLoss | Softmax = replace(known, clip=None)
        self.problem = problem
        self._found: dict[bytes, Optimum] = {}
        self._params = np.zeros(problem.dimension)
        self._factor: tuple | None = None
        # All records in order of arrival, so that those of any step are a prefix.
        place, agent = np.nonzero(
            (np.arange(problem.labels.shape[1])[None, :] < problem.counts[:, None]).T
        )
        self._agent = agent
        self._features, self._labels = problem.features[agent, place], problem.labels[agent, place]

    def at(self, step: int) -> Optimum:
        return self.of(self.problem.arrived(step))

    def of(self, arrived: np.ndarray) -> Optimum:
        """The best on the first arrived[i] records of every agent i."""
        if self.problem.optimum is not None:
            return Optimum(self.problem.optimum, float(self._known()))
        # A number for each of very many agents would be kept for every step otherwise.
        key = hashlib.sha256(np.asarray(arrived, float).tobytes()).digest()
        if key not in self._found:
            self._found[key] = self._solve(arrived.astype(int))
        return self._found[key]

    def _known(self) -> jax.Array:
        problem = self.problem
        return risk(
            problem.loss,
            problem.device_records,
            jnp.ones(problem.agents),
            jnp.asarray(problem.optimum),
        )

    def _solve(self, arrived: np.ndarray) -> Optimum:
        p, seen = self.problem, int(arrived.sum())
        weights = 1 / (p.agents * arrived[self._agent[:seen]])
        objective = _Objective(self._loss, self._features[:seen], self._labels[:seen], weights)
        search = _quasi_newton if self._several else self._newton
        self._params = search(objective, self._params)
        nearest = p.domain.project(self._params)
        if np.any(nearest != self._params):
            self._params = _projected(objective, nearest, p)
        return Optimum(self._params.copy(), objective.value(self._params))

    def _newton(self, objective: _Objective, start: np.ndarray) -> np.ndarray:
        params, gradient = start, objective.gradient(start)
        for _ in range(100):
            size = float(np.linalg.norm(gradient))
            if size < _TOLERANCE:
                break
            if self._factor is None:
                self._factor = objective.factor(params)
            trial = params - linalg.cho_solve(self._factor, gradient)
            slope = objective.gradient(trial)
            if float(np.linalg.norm(slope)) > 0.3 * size:
                # The kept factor has aged (or Newton's step is too long): a fresh one, and a step
                # that goes down.
                self._factor = objective.factor(params)
                trial = objective.descend(
                    params, linalg.cho_solve(self._factor, gradient), gradient
                )
                slope = objective.gradient(trial)
            params, gradient = trial, slope
        return params


class _Objective:
    """The running objective in NumPy float64."""

    def __init__(
        self,
        loss: LinearLoss | Softmax,
        features: np.ndarray,
        labels: np.ndarray,
        weights: np.ndarray,
    ):
        self.loss, self.features, self.labels, self.weights = loss, features, labels, weights

    def value(self, params: np.ndarray) -> float:
        data = self.loss.values(self.loss.margins(params, self.features), self.labels)
        return float(self.weights @ data + self.loss.regulariser / 2 * params @ params)

    def gradient(self, params: np.ndarray) -> np.ndarray:
        if isinstance(self.loss, Softmax):
            data = self.loss.gradient_sum(params, self.features, self.labels, self.weights)
            return data + self.loss.regulariser * params
        residual = self.loss.residual(self.features @ params, self.labels)
        return self.features.T @ (self.weights * residual) + self.loss.regulariser * params

    def factor(self, params: np.ndarray) -> tuple:
        assert isinstance(self.loss, LinearLoss)
        curved = self.weights * curvature(self.loss, self.features @ params, self.labels)
        hessian = (self.features * curved[:, None]).T @ self.features
        return linalg.cho_factor(hessian + (self.loss.regulariser + 1e-10) * np.eye(len(params)))

    def descend(
        self, params: np.ndarray, direction: np.ndarray, gradient: np.ndarray
    ) -> np.ndarray:
        now, along, step = self.value(params), float(gradient @ direction), 1.0
        while step > 1e-8 and self.value(params - step * direction) > now - 1e-4 * step * along:
            step /= 2
        return params - step * direction


def _quasi_newton(objective: _Objective, start: np.ndarray) -> np.ndarray:
    """For models of several classes, whose Hessian has (classes x columns)^2 entries."""
    options = {"maxiter": _STEPS, "maxfun": 2 * _STEPS, "ftol": 0.0, "gtol": _TOLERANCE / 10}
    found = optimize.minimize(
        lambda params: (objective.value(params), objective.gradient(params)),
        start,
        jac=True,
        method="L-BFGS-B",
        options={**options, "maxcor": 30},
    )
    return found.x


def _projected(objective: _Objective, start: np.ndarray, problem: Problem) -> np.ndarray:
    """Accelerated projected gradient, for an optimum on the edge of the domain."""
    rate = 1 / problem.loss.curvature[1]
    params, ahead, momentum = start, start, 1.0
    for _ in range(20_000):
        moved = problem.domain.project(ahead - rate * objective.gradient(ahead))
        following = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        ahead = moved + (momentum - 1) / following * (moved - params)
        if np.linalg.norm(moved - params) < _TOLERANCE * rate:
            return moved
        params, momentum = moved, following
    return params


def curvature(loss: LinearLoss, margin: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The second derivative of each record's loss by the margin, as a difference of the first:
    Newton's steps need no more digits, and the minima that have been published were found with it.
    """
    h = 1e-5
    up, down = (loss.residual(margin + s, labels) for s in (h, -h))
    return np.maximum((up - down) / (2 * h), 0)


class Minima(NamedTuple):
    """Of several losses at once: values (k,), each at most `gap` above the true minimum,
    and where they are reached (k, d).
    """

    values: np.ndarray
    gap: np.ndarray
    params: np.ndarray


def minima(
    loss: LinearLoss,
    domain: Domain,
    features: np.ndarray,
    labels: np.ndarray,
    tolerance: float = TOLERANCE,
) -> Minima:
    """The minima over a ball of k mean losses, features (k, m, d) and labels (k, m)."""
    tolerance = require.positive("tolerance", tolerance)
    if not isinstance(domain, Ball):
        require.fail("domain", "a Ball where regret is measured", domain)
    assert isinstance(domain, Ball)
    radius, (count, _, dimension) = domain.radius, features.shape
    value, gap, params = (
        np.full(count, np.inf),
        np.full(count, np.inf),
        np.zeros((count, dimension)),
    )
    x, multiplier = np.zeros((count, dimension)), np.full(count, np.nan)
    # Multipliers that are known to be too small and too large.
    low, high = np.zeros(count), np.full(count, np.inf)
    todo = np.arange(count)
    for _ in range(_ITERATIONS):
        now = _Step(loss, features[todo], labels[todo], x[todo], multiplier[todo], radius)
        better = now.upper < value[todo]
        value[todo[better]], params[todo[better]] = now.upper[better], now.feasible[better]
        gap[todo] = np.minimum(gap[todo], np.maximum(value[todo] - now.lower, 0))
        on = gap[todo] > tolerance
        if not on.any():
            break
        # |x - x(m)| <= slope / m: only where that is less than the distance to the sphere does |x|
        # say on which side m lies.
        sure = now.slope < now.multiplier * np.abs(now.norm - radius)
        long = now.norm > radius
        low[todo[sure & long]] = now.multiplier[sure & long]
        high[todo[sure & ~long]] = now.multiplier[sure & ~long]
        multiplier[todo] = np.where(
            sure, _inside(now.better, low[todo], high[todo]), now.multiplier
        )
        x[todo] = now.moved
        todo = todo[on]
    return Minima(value, gap, params)


class _Step:
    """One of Newton's steps on f(x) + m/2 |x|^2 for every f, the bounds that x proves,
    and the multiplier that |x| suggests.
    """

    def __init__(
        self, loss: LinearLoss, features: Any, labels: Any, x: Any, multiplier: Any, radius: float
    ):
        margin = np.matvec(features, x)
        gradient = (
            np.vecmat(loss.residual(margin, labels), features) / labels.shape[1]
            + loss.regulariser * x
        )
        self.norm = np.linalg.norm(x, axis=1)
        # At the start x = 0, and |x(m)| <= |grad f(0)| / m: not too small.
        first = np.maximum(np.linalg.norm(gradient, axis=1) / radius, 1e-12)
        self.multiplier = m = np.where(np.isnan(multiplier), first, multiplier)
        curved = curvature(loss, margin, labels) / labels.shape[1]
        hessian = np.matmul((features * curved[:, :, None]).swapaxes(1, 2), features)
        hessian += (loss.regulariser + m)[:, None, None] * np.eye(x.shape[1])
        pull = gradient + m[:, None] * x
        ahead, shrink = np.moveaxis(np.linalg.solve(hessian, np.stack([pull, x], axis=2)), 2, 0)
        furthest = np.abs(np.matvec(features, ahead)).max(axis=1)
        # The third derivative of a logistic loss is at most its second: steps of this length always
        # go down (Sun and Tran-Dinh 2019, nu = 2).
        length = np.log1p(furthest) / np.maximum(furthest, 1e-12)
        self.moved = x - np.minimum(length, 1.0)[:, None] * ahead
        # d log|x(m)| / d log m = -m x'H^-1 x / |x|^2: a straight line for a quadratic loss in a
        # large ball, close to one otherwise.
        size = np.maximum(self.norm, 1e-100)
        bend = np.maximum(m * np.sum(x * shrink, axis=1) / size**2, 1e-3)
        self.better = m * np.exp(np.clip(np.log(size / radius) / bend, -7, 7))
        self.feasible = x * np.minimum(1.0, radius / np.maximum(self.norm, 1e-300))[:, None]

        def value(point: Any) -> Any:
            data = loss.values(np.matvec(features, point), labels).mean(axis=1)
            return data + loss.regulariser / 2 * np.sum(point**2, axis=1)

        self.upper = value(self.feasible)
        self.slope = np.linalg.norm(pull, axis=1)
        dual = value(x) + m / 2 * (self.norm**2 - radius**2) - self.slope**2 / (2 * m)
        self.lower = np.maximum(dual, 0.0)


def _inside(wanted: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """The wanted multiplier, or one between those known where it does not lie there."""
    bottom, top = (
        np.maximum(low, 1e-4 * np.minimum(high, 1e300)),
        np.minimum(high, 1e4 * np.maximum(low, 1e-300)),
    )
    return np.where((wanted > low) & (wanted < high), wanted, np.sqrt(bottom * top))


def risk(
    loss: Loss,
    records: Records | Stream,
    arrived: jax.Array,
    params: jax.Array,
    share: jax.Array | None = None,
) -> jax.Array:
    """F_t: the mean over agents of their mean loss over the records that have arrived,
    or of their expected loss on a stream.

    Args:
      share: what each row counts in a mean over agents, where not all count alike.
    """
    regulariser = loss.regulariser / 2 * jnp.sum(params * params)
    if isinstance(records, Stream):
        slope = replace(loss, clip=None).affine()  # type: ignore[type-var]
        assert slope is not None
        off = jnp.einsum("nij,ni->nj", records.factor, params[None, :] - records.target)
        each = jnp.sum(off * off, axis=1) + records.spread**2
        return slope / 2 * (jnp.mean(each) if share is None else share @ each) + regulariser
    rows = jnp.arange(records.labels.shape[1])
    if share is None:
        weights = (rows[None, :] < arrived[:, None]) / (arrived[:, None] * arrived.shape[0])
    else:
        weights = (rows[None, :] < arrived[:, None]) * (share / arrived)[:, None]
    assert isinstance(loss, BoundedLoss)
    data = loss.values(loss.margins(params, records.features), records.labels)
    return jnp.sum(weights * data) + regulariser
