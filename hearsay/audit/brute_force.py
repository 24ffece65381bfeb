"""Run one agent twice, on data that differ in one record, against the same transcript: how far
apart are its messages?

A certificate bounds this gap for every pair of adjacent data sets and every transcript. Here
both are chosen (by the caller: at random, or to hurt), the two trajectories are replayed with
the agent's own update, and the gap of what it would send (before noise) is measured in l2 and l1.
Everything that is on the transcript is the same in both runs: what the others sent, and also the
agent's own noisy messages.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from hearsay import _validate as require
from hearsay.audit.messages import Scene, Transcript, follow, scene, silent_draws
from hearsay.base import Algorithm
from hearsay.certification.describing import own_accounts
from hearsay.graphs import Graph
from hearsay.problems.sampling.samplers import Records
from hearsay.problems.task import Task, public
from hearsay.simulation.program import Program, program

__all__ = ["Transcript", "allowed", "gaps", "random_transcripts", "replay"]


@require.plain_arguments
def gaps(
    algorithm: Algorithm,
    problem: Task,
    graph: Graph,
    agent: int,
    first: Records,
    second: Records,
    transcripts: Transcript,
) -> tuple[np.ndarray, np.ndarray]:
    """l2 and l1 gap of the agent's messages, (transcript, field, time), for data `first` against
    `second`; transcripts have a leading axis.
    """
    pair = [
        replay(algorithm, problem, graph, agent, records, transcripts)
        for records in (first, second)
    ]
    # A field without a vector axis (a flag) counts as a vector of one.
    difference = [np.asarray(a - b).reshape(*a.shape[:2], -1) for a, b in zip(*pair, strict=True)]
    return (
        np.stack([np.sqrt(np.sum(d**2, axis=-1)) for d in difference], axis=1),
        np.stack([np.sum(np.abs(d), axis=-1) for d in difference], axis=1),
    )


@require.plain_arguments
def replay(
    algorithm: Algorithm,
    problem: Task,
    graph: Graph,
    agent: int,
    records: Records,
    transcripts: Transcript,
) -> tuple:
    """The agent's messages before noise, per field an array (transcript, time, d),
    on the given data and transcripts.
    """
    found = scene(algorithm, problem, graph, agent, transcripts.sent[0].shape[1])
    return _replay(records, transcripts, found, program=program(algorithm, problem))


@partial(jax.jit, static_argnames="program")
def _replay(records: Records, transcripts: Transcript, scene: Scene, *, program: Program) -> tuple:
    draws = silent_draws(program.algorithm, scene)
    return jax.vmap(lambda transcript: follow(program, scene, records, transcript, draws)[0])(
        transcripts
    )


@require.plain_arguments
def allowed(
    algorithm: Algorithm, problem: Task, graph: Graph, agent: int, steps: int
) -> np.ndarray:
    """(field, time): how far the certificate lets each message move, in units of the agent's own
    noise; the smallest of all its bounds.
    """
    known = own_accounts(algorithm, public(problem), graph, agent)
    return np.minimum.reduce([account.limits(list(algorithm.channels), steps) for account in known])


@require.plain_arguments
def random_transcripts(
    seed: int, count: int, steps: int, fields: int, dimension: int, size: float
) -> Transcript:
    """Heavy-tailed noise around a drifting point: transcripts that an honest run would never
    produce are the interesting ones.
    """
    rng = np.random.default_rng(seed)

    def walk() -> jax.Array:
        drift = (
            np.cumsum(rng.normal(size=(count, steps, dimension)), axis=1) * size / np.sqrt(steps)
        )
        return jnp.asarray(drift + size * rng.standard_t(2, size=(count, steps, dimension)))

    return Transcript(tuple(walk() for _ in range(fields)), tuple(walk() for _ in range(fields)))
