"""Run one agent twice, on data that differ in one record, against the same transcript: how far apart are its messages?

A certificate bounds this gap for every pair of adjacent data sets and every transcript. Here both are chosen (by the caller: at random, or to hurt), the two
trajectories are replayed with the agent's own update, and the gap of what it would send (before noise) is measured in l2 and l1. Everything that is on
the transcript is the same in both runs: what the others sent, and also the agent's own noisy messages.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hearsay import keys
from hearsay.base import Algorithm, Inbox
from hearsay.graphs import Graph
from hearsay.mixing import mixer
from hearsay.privacy.recursion import Account, forward
from hearsay.problems.domains import Domain
from hearsay.problems.losses import Loss
from hearsay.problems.problem import Problem
from hearsay.problems.sampling import Arrivals, Records, Window


class Transcript(NamedTuple):
    """Per message field, arrays (time, d): what the agent sent, noise included, and the weighted sum of what it heard."""

    sent: tuple[jax.Array, ...]
    heard: tuple[jax.Array, ...]


def gaps(
    algorithm: Algorithm,
    problem: Problem,
    graph: Graph,
    agent: int,
    first: Records,
    second: Records,
    transcripts: Transcript,
) -> tuple[np.ndarray, np.ndarray]:
    """l2 and l1 gap of the agent's messages, (transcript, field, time), for data `first` against `second`; transcripts have a leading axis."""
    pair = [replay(algorithm, problem, graph, agent, records, transcripts) for records in (first, second)]
    # A field without a vector axis (a flag) counts as a vector of one.
    difference = [np.asarray(a - b).reshape(*a.shape[:2], -1) for a, b in zip(*pair, strict=True)]
    return (
        np.stack([np.sqrt(np.sum(d**2, axis=-1)) for d in difference], axis=1),
        np.stack([np.sum(np.abs(d), axis=-1) for d in difference], axis=1),
    )


def replay(
    algorithm: Algorithm, problem: Problem, graph: Graph, agent: int, records: Records, transcripts: Transcript
) -> tuple:
    """The agent's messages before noise, per field an array (transcript, time, d), on the given data and transcripts."""
    steps = np.arange(transcripts.sent[0].shape[1])
    dtype = records.features.dtype
    rates = jax.tree.map(lambda r: jnp.asarray(r[:, agent], dtype), algorithm.rates(steps, graph.agents))
    windows = algorithm.sampling.windows(steps, problem.counts, problem.arrivals)
    windows = Window(windows.start[:, agent], windows.size[:, agent], windows.blocks)
    own = tuple(mixer(graph, kind, dtype).own[agent] for kind in algorithm.channels.values())
    key = keys.sampling_keys(0, graph.agents)[agent]
    return _replay(
        records, transcripts, jnp.asarray(steps), rates, windows, own, key,
        algorithm=algorithm, loss=problem.loss, domain=problem.domain, arrivals=problem.arrivals,
    )  # fmt: skip


@partial(jax.jit, static_argnames=("algorithm", "loss", "domain", "arrivals"))
def _replay(
    records: Records,
    transcripts: Transcript,
    steps: jax.Array,
    rates: Any,
    windows: Window,
    own: tuple,
    key: jax.Array,
    *,
    algorithm: Algorithm,
    loss: Loss,
    domain: Domain,
    arrivals: Arrivals,
) -> tuple:
    origin = domain.project(jnp.zeros(records.features.shape[-1], records.features.dtype))
    silent = jax.tree.map(jnp.zeros_like, algorithm.draw(key, origin))

    def step(carry: tuple, inputs: tuple) -> tuple[tuple, Any]:
        state, sampler = carry
        k, rate, window, transcript = inputs
        batch, sampler = algorithm.sampling.batch(sampler, loss, records, k, window, arrivals, keys.at(key, k))
        message, state = algorithm.send(silent, state, batch, rate)
        make = type(message)
        inbox = Inbox(make(*transcript.heard), make(*own))
        return (algorithm.update(state, make(*transcript.sent), inbox, batch, rate, domain), sampler), tuple(message)

    def one(transcript: Transcript) -> tuple:
        start = (algorithm.init(origin), algorithm.sampling.prepare(loss, records, arrivals))
        return jax.lax.scan(step, start, (steps, rates, windows, transcript))[1]

    return jax.vmap(one)(transcripts)


def certified(account: Account, steps: int) -> np.ndarray:
    """The certified l2 gap of every release, (field, time): the worst over the participation pattern at each step."""
    contraction, jump, exposure = account.recursion.coefficients(steps)
    uses = account.pattern.uses(steps)
    phi = np.stack([forward(contraction, jump * used)[:-1] for used in uses])
    bounds = [release.state * phi + release.fresh * exposure * uses for release in account.releases]
    return np.stack([bound.max(axis=0) for bound in bounds])


def random_transcripts(seed: int, count: int, steps: int, fields: int, dimension: int, size: float) -> Transcript:
    """Heavy-tailed noise around a drifting point: transcripts that an honest run would never produce are the interesting ones."""
    rng = np.random.default_rng(seed)

    def walk() -> jax.Array:
        drift = np.cumsum(rng.normal(size=(count, steps, dimension)), axis=1) * size / np.sqrt(steps)
        return jnp.asarray(drift + size * rng.standard_t(2, size=(count, steps, dimension)))

    return Transcript(tuple(walk() for _ in range(fields)), tuple(walk() for _ in range(fields)))
