"""How good the models are, against the best that the data so far allow.

The reference is the minimiser of the running objective (paper P1, (2)): the mean over agents of
their mean loss over the records that have arrived,

    F_t(theta) = 1/n sum_i 1/m_i(t) sum_{k < m_i(t)} l(theta, record_ik),
        theta*(t) = argmin over the domain

found centrally and without noise, by Newton's method in float64 with the factor of an earlier
Hessian kept for as long as it serves. Clipping is part of an algorithm, not of the objective: what
it costs shows in the metrics.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import linalg

from hearsay import _validate as require
from hearsay.problems.data.records import as_features
from hearsay.problems.data.stream import Stream
from hearsay.problems.losses.linear import LinearLoss, Loss
from hearsay.problems.problem import Problem
from hearsay.problems.sampling.samplers import Records
from hearsay.simulation.engine import full_precision

_TOLERANCE = 1e-9
WATCHED = 16  # regret is measured on at most so many agents' models: it costs agents x all records


class Optimum(NamedTuple):
    params: np.ndarray
    value: float


class Reference:
    """theta*(t) of a problem, each computed once; ask for steps in increasing order to
    profit from warm starts.
    """

    def __init__(self, problem: Problem):
        self._loss = replace(problem.linear, clip=None)
        self.problem = problem
        self._found: dict[tuple[int, ...], Optimum] = {}
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
        key = tuple(arrived.tolist())
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
        self._params = self._newton(objective, self._params)
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
        self, loss: LinearLoss, features: np.ndarray, labels: np.ndarray, weights: np.ndarray
    ):
        self.loss, self.features, self.labels, self.weights = loss, features, labels, weights

    def value(self, params: np.ndarray) -> float:
        data = self.loss.values(self.features @ params, self.labels)
        return float(self.weights @ data + self.loss.regulariser / 2 * params @ params)

    def gradient(self, params: np.ndarray) -> np.ndarray:
        residual = self.loss.residual(self.features @ params, self.labels)
        return self.features.T @ (self.weights * residual) + self.loss.regulariser * params

    def factor(self, params: np.ndarray) -> tuple:
        margin, h = self.features @ params, 1e-5
        up, down = (self.loss.residual(margin + s, self.labels) for s in (h, -h))
        curvature = self.weights * np.maximum((up - down) / (2 * h), 0)
        hessian = (self.features * curvature[:, None]).T @ self.features
        return linalg.cho_factor(hessian + (self.loss.regulariser + 1e-10) * np.eye(len(params)))

    def descend(
        self, params: np.ndarray, direction: np.ndarray, gradient: np.ndarray
    ) -> np.ndarray:
        now, along, step = self.value(params), float(gradient @ direction), 1.0
        while step > 1e-8 and self.value(params - step * direction) > now - 1e-4 * step * along:
            step /= 2
        return params - step * direction


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


class Measured(NamedTuple):
    """Per seed (rows) and, but for the models' own errors, per watched agent.

    What has no meaning for a loss is nan.
    """

    tracking_error: jax.Array
    regret: jax.Array
    mean_model_error: jax.Array
    consensus_error: jax.Array
    accuracy: jax.Array
    train_accuracy: jax.Array
    test_loss: jax.Array


@partial(jax.jit, static_argnames=("loss", "classification", "with_regret"))
@full_precision
def measure(
    models: jax.Array,
    watched: jax.Array,
    records: Records | Stream,
    arrived: jax.Array,
    best: jax.Array,
    best_value: jax.Array,
    test_features: jax.Array,
    test_labels: jax.Array,
    *,
    loss: Loss,
    classification: bool,
    with_regret: bool = True,
) -> Measured:
    """All metrics of the models (seed, agent, d) at one step."""
    seen = models[:, watched]
    error = jnp.sum((seen - best[None, None]) ** 2, axis=-1)
    mean = models.mean(axis=1)
    objective = partial(risk, loss, records, arrived)
    regret = (
        jax.vmap(jax.vmap(objective))(seen) - best_value
        if with_regret
        else jnp.full_like(error, jnp.nan)
    )
    margin = jnp.einsum("md,sad->sam", test_features, seen)
    labels = test_labels[None, None]
    assert isinstance(loss, LinearLoss)
    hit = (loss.predict(margin) == labels) if classification else (margin - labels) ** 2
    nothing = jnp.full_like(error, jnp.nan)
    return Measured(
        error,
        regret,
        jnp.sqrt(jnp.sum((mean - best[None]) ** 2, axis=-1)),
        _disagreement(models),
        jnp.mean(hit.astype(models.dtype), axis=-1),
        nothing,
        nothing,
    )


def _disagreement(models: jax.Array) -> jax.Array:
    return jnp.mean(jnp.sum((models - models.mean(axis=1, keepdims=True)) ** 2, axis=-1), axis=1)


@partial(jax.jit, static_argnames=("loss",))
def measure_network(
    models: jax.Array, watched: jax.Array, test: tuple, train: tuple, *, loss: Loss
) -> Measured:
    """The metrics of neural networks: there is no best model to compare with.

    `test` and `train` are blocks of (features, labels, weights), see `blocked`.
    """

    def average(params: jax.Array, blocks: tuple) -> jax.Array:
        def add(total: jax.Array, block: tuple) -> tuple[jax.Array, None]:
            features, labels, weights = block
            return total + jnp.stack(
                [weights @ part for part in loss.score(params, features, labels)]
            ), None

        return jax.lax.scan(add, jnp.zeros(2, models.dtype), blocks)[0]

    # One model after the other: with weights of their own, their convolutions would become
    # grouped ones.
    seen = models[:, watched]
    tested = jax.lax.map(lambda params: average(params, test), seen.reshape(-1, seen.shape[-1]))
    trained = jax.lax.map(lambda params: average(params, train), seen.reshape(-1, seen.shape[-1]))
    value, hit = (column.reshape(seen.shape[:2]) for column in tested.T)
    nothing = jnp.full_like(value, jnp.nan)
    return Measured(
        nothing,
        nothing,
        nothing[:, 0],
        _disagreement(models),
        hit,
        trained[:, 1].reshape(seen.shape[:2]),
        value,
    )


def blocked(features: np.ndarray, labels: np.ndarray, dtype: jnp.dtype, width: int = 500) -> tuple:
    """Records in blocks of one width, with weights that sum to one."""
    count = len(labels)
    width = min(width, count)
    padded = np.minimum(np.arange(-(-count // width) * width), count - 1).reshape(-1, width)
    weights = (np.arange(padded.size).reshape(padded.shape) < count) / count
    return (
        as_features(features[padded], dtype),
        jnp.asarray(labels[padded], dtype),
        jnp.asarray(weights, dtype),
    )


@require.plain_arguments
def training_sample(problem: Problem, count: int = 1000) -> tuple[np.ndarray, np.ndarray]:
    """The first records of every agent's stream, about so many in all."""
    each = np.minimum(problem.counts, -(-count // problem.agents)).astype(int)
    rows = [(agent, place) for agent, n in enumerate(each) for place in range(n)]
    agent, place = np.array(rows).T
    return problem.features[agent, place], problem.labels[agent, place]


def risk(loss: Loss, records: Records | Stream, arrived: jax.Array, params: jax.Array) -> jax.Array:
    """F_t: the mean over agents of their mean loss over the records that have arrived,
    or of their expected loss on a stream.
    """
    regulariser = loss.regulariser / 2 * jnp.sum(params * params)
    if isinstance(records, Stream):
        slope = replace(loss, clip=None).affine()  # type: ignore[type-var]
        assert slope is not None
        off = jnp.einsum("nij,ni->nj", records.factor, params[None, :] - records.target)
        return slope / 2 * jnp.mean(jnp.sum(off * off, axis=1) + records.spread**2) + regulariser
    rows = jnp.arange(records.labels.shape[1])
    weights = (rows[None, :] < arrived[:, None]) / (arrived[:, None] * arrived.shape[0])
    assert isinstance(loss, LinearLoss)
    data = loss.values(records.features @ params, records.labels)
    return jnp.sum(weights * data) + regulariser


@require.plain_arguments
def watched_agents(agents: int) -> np.ndarray:
    return np.unique(np.linspace(0, agents - 1, min(agents, WATCHED)).astype(int))
