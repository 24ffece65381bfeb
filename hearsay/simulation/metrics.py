"""How good the models are, against the best that the data so far allow (optimum.py)."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hearsay import _validate as require
from hearsay.problems.data.records import as_features
from hearsay.problems.data.stream import Stream
from hearsay.problems.losses.loss import BoundedLoss, Loss
from hearsay.problems.losses.softmax import Softmax
from hearsay.problems.problem import Problem
from hearsay.problems.sampling.samplers import Records
from hearsay.release.readouts import everybodys
from hearsay.simulation.engine import full_precision
from hearsay.simulation.optimum import risk

WATCHED = 16  # regret is measured on at most so many agents' models: it costs agents x all records


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
    released_accuracy: jax.Array


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
    kept: tuple[jax.Array, jax.Array] | None = None,
    share: jax.Array | None = None,
) -> Measured:
    """All metrics of the models (seed, agent, d) at one step, and of what may be released: the
    slots and shares of an average of messages.

    `share` is what each row counts in a mean over all agents, where not all rows are agents
    (layout.py); `watched` are numbers of rows.
    """
    seen = models[:, watched]
    error = jnp.sum((seen - best[None, None]) ** 2, axis=-1)
    mean = _mean(models, share)
    objective = partial(risk, loss, records, arrived, share=share)
    regret = (
        jax.vmap(jax.vmap(objective))(seen) - best_value
        if with_regret
        else jnp.full_like(error, jnp.nan)
    )
    assert isinstance(loss, BoundedLoss)

    def tested(margin: jax.Array, labels: jax.Array) -> jax.Array:
        hit = (loss.predict(margin) == labels) if classification else (margin - labels) ** 2
        return jnp.mean(hit.astype(models.dtype), axis=-1)

    margin = _margins(loss, test_features, seen)
    nothing = jnp.full_like(error, jnp.nan)
    return Measured(
        error,
        regret,
        jnp.sqrt(jnp.sum((mean - best[None]) ** 2, axis=-1)),
        _disagreement(models, share),
        tested(margin, test_labels[None, None]),
        nothing,
        nothing,
        nothing[:, 0]
        if kept is None
        else tested(_margins(loss, test_features, everybodys(*kept, share)), test_labels[None]),
    )


def _margins(loss: Loss, features: jax.Array, models: jax.Array) -> jax.Array:
    """Of every model (..., d) and record, as one product."""
    if isinstance(loss, Softmax):
        rows = models.reshape(*models.shape[:-1], loss.classes, -1)
        return jnp.einsum("mw,...kw->...mk", features, rows)
    return jnp.einsum("md,...d->...m", features, models)


def _mean(values: jax.Array, share: jax.Array | None) -> jax.Array:
    """Over the agents of (seed, agent, ...)."""
    return values.mean(axis=1) if share is None else jnp.einsum("a,sa...->s...", share, values)


def _disagreement(models: jax.Array, share: jax.Array | None) -> jax.Array:
    off = models - _mean(models, share)[:, None]
    return _mean(jnp.sum(off**2, axis=-1), share)


@partial(jax.jit, static_argnames=("loss",))
def measure_neural(
    models: jax.Array,
    watched: jax.Array,
    test: tuple,
    train: tuple,
    kept: tuple[jax.Array, jax.Array] | None = None,
    *,
    loss: Loss,
    share: jax.Array | None = None,
) -> Measured:
    """The metrics of neural networks: there is no best model to compare with.

    `test` and `train` are blocks of (features, labels, weights), see `blocked`; `kept` and `share`
    as for `measure`.
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
    free = nothing[:, 0]
    if kept is not None:
        free = jax.lax.map(lambda params: average(params, test)[1], everybodys(*kept, share))
    return Measured(
        nothing,
        nothing,
        nothing[:, 0],
        _disagreement(models, share),
        hit,
        trained[:, 1].reshape(seen.shape[:2]),
        value,
        free,
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
    """The first records of every agent's stream, about so many in all; of evenly spaced agents
    where there are more of them.
    """
    agents = np.arange(problem.agents)
    if problem.agents > count:
        agents = np.unique(np.linspace(0, problem.agents - 1, count).astype(int))
    each = np.minimum(problem.counts[agents], -(-count // problem.agents)).astype(int)
    agent = np.repeat(agents, each)
    place = np.arange(len(agent)) - np.repeat(np.cumsum(each) - each, each)
    return problem.features[agent, place], problem.labels[agent, place]


@require.plain_arguments
def watched_agents(agents: int) -> np.ndarray:
    return np.unique(np.linspace(0, agents - 1, min(agents, WATCHED)).astype(int))
