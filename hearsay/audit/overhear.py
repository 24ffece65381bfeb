"""What an eavesdropper has: everything about a run that is public, and every message that was sent.

The rounds are the engine's own, with the keys of a simulation: the messages are those that
`simulate` with the same seed exchanges. A tap on `update`, which is handed what its agent has just
sent, is all that is added.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hearsay import _validate as require
from hearsay.base import Algorithm, held_rates
from hearsay.graphs import Graph
from hearsay.graphs.channels import mixer
from hearsay.problems.losses.domains import Domain
from hearsay.problems.losses.linear import Loss
from hearsay.problems.problem import Problem, as_features
from hearsay.problems.sampling.batches import Window
from hearsay.problems.sampling.samplers import Arrivals, Records
from hearsay.simulation import engine, keys


class Public(NamedTuple):
    """What anybody may know of a run: the algorithm with its schedules, the model and where it
    starts, who hears whom, how many records there are. No record.
    """

    algorithm: Algorithm
    loss: Loss
    domain: Domain
    arrivals: Arrivals
    graph: Graph
    counts: np.ndarray
    start: np.ndarray

    def size(self, agent: int, step: int) -> int:
        """How many records are in that agent's batch of that step."""
        return int(
            min(
                self.algorithm.sampling.sizes(np.array([step]), self.arrivals)[0],
                self.counts[agent],
            )
        )

    @property
    def rounds(self) -> float:
        """How many messages an agent can send."""
        lasts = [
            self.algorithm.sampling.lasts(held, self.arrivals) for held in self.counts.tolist()
        ]
        return min(*lasts, self.algorithm.rounds)


def public(algorithm: Algorithm, problem: Problem, graph: Graph) -> Public:
    start = (
        np.zeros(problem.dimension)
        if problem.start is None
        else np.asarray(problem.start, np.float64)
    )
    start = np.broadcast_to(start, (problem.agents, problem.dimension))
    return Public(
        algorithm, problem.loss, problem.domain, problem.arrivals, graph, problem.counts, start
    )


@require.plain_arguments
def overhear(
    algorithm: Algorithm, problem: Problem, graph: Graph, rounds: int, seed: int = 0
) -> list[Any]:
    """The messages of every round of a run with that noise seed,
    each field an array (agents, ...).
    """
    algorithm.check(graph, problem)
    dtype, agents = problem.dtype, graph.agents
    seeds = jnp.asarray([require.count("seed", seed, 0)])
    setting = engine.Setting(
        engine.placed(problem),
        tuple(mixer(graph, kind, dtype) for kind in algorithm.channels.values()),
        keys.noise_keys(seeds, agents),
        keys.sampling_keys(problem.seed, agents),
        algorithm.constants(dtype),
    )
    carry = engine.start(algorithm.kernel, problem, setting, seeds, 0.0)
    states, sampler, heard = engine.pick(carry.states, 0), carry.sampler, []
    steps = np.arange(require.count("rounds", rounds), dtype=np.int32)
    rates = held_rates(algorithm.rates(steps, agents), dtype)
    windows = algorithm.sampling.windows(steps, problem.counts, problem.arrivals)
    for k in steps:
        rate, window = engine.pick((rates, windows), int(k))
        states, sampler, sent = _round(
            states,
            sampler,
            setting,
            k,
            rate,
            window,
            algorithm=algorithm.kernel,
            loss=problem.loss,
            domain=problem.domain,
            arrivals=problem.arrivals,
        )
        heard.append(jax.tree.map(np.asarray, sent))
    return heard


class _Tapped:
    """An algorithm whose update also hands out what was sent."""

    def __init__(self, algorithm: Algorithm):
        self.send: Callable[..., Any] = algorithm.send
        self._update = algorithm.update

    def update(self, state: Any, sent: Any, *rest: Any) -> tuple[Any, Any]:
        return self._update(state, sent, *rest), sent


@partial(jax.jit, static_argnames=("algorithm", "loss", "domain", "arrivals"))
@engine.full_precision
def _round(
    states: Any,
    sampler: Any,
    setting: engine.Setting,
    step: jax.Array,
    rate: Any,
    window: Window,
    *,
    algorithm: Algorithm,
    loss: Loss,
    domain: Domain,
    arrivals: Arrivals,
) -> tuple[Any, Any, Any]:
    params = jax.vmap(algorithm.predict)(states)[0]
    draws = jax.vmap(
        lambda key: engine.pick(algorithm.draws(key, step[None], params, setting.constants), 0)
    )(setting.noise_keys[0])
    form = partial(engine.form_batch, algorithm, loss, arrivals, step, window.blocks)
    tapped: Any = _Tapped(algorithm)
    (states, sent), sampler = engine.exchange(
        tapped, form, setting, rate, window, domain, states, draws, sampler, unrolled=loss.unrolled
    )
    return states, sampler, sent


@require.plain_arguments
def batch_records(
    known: Public, problem: Problem, agent: int, step: int
) -> tuple[np.ndarray, np.ndarray]:
    """PRIVATE: the features and labels of that batch, to hold a reconstruction against.

    Nothing that attacks may call this.
    """
    sampling, dtype, size = known.algorithm.sampling, problem.dtype, known.size(agent, step)
    labels, held = (
        jnp.asarray(problem.labels[agent], dtype),
        jnp.asarray(problem.counts[agent], jnp.int32),
    )
    records = Records(as_features(problem.features[agent], dtype), labels, held)
    windows = sampling.windows(np.array([step]), problem.counts, problem.arrivals)
    start, width = (jnp.asarray(part[0, agent]) for part in windows[:2])
    window = Window(start, width, jnp.asarray(windows.blocks[0]))
    key = keys.at(keys.sampling_keys(problem.seed, problem.agents)[agent], jnp.asarray(step))
    state = sampling.prepare(problem.loss, records, problem.arrivals)
    batch, _ = sampling.batch(
        state, problem.loss, records, jnp.asarray(step), window, problem.arrivals, key
    )
    features, labels_ = batch.rows()
    return as_numbers(np.asarray(features[:size])), np.asarray(labels_[:size], np.int64)


def as_numbers(features: np.ndarray) -> np.ndarray:
    """Bytes as the numbers that a model reads them as."""
    return (
        features / 255.0
        if np.issubdtype(features.dtype, np.integer)
        else np.asarray(features, np.float64)
    )
