"""What an eavesdropper has: everything about a run that is public, and every message that was sent.

The rounds are those of a simulation, with its keys: the messages are those that `simulate` with the
same seed exchanges, seen through the engine's tap.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hearsay import _validate as require
from hearsay.base import Algorithm
from hearsay.graphs import Graph
from hearsay.problems.problem import Problem, require_records
from hearsay.problems.sampling.batches import Window
from hearsay.problems.task import Task
from hearsay.simulation import keys
from hearsay.simulation.engine import Round
from hearsay.simulation.rounds import Rounds


class Public(NamedTuple):
    """What anybody may know of a run: the algorithm with its schedules, the task, and who hears
    whom. No record.
    """

    algorithm: Algorithm
    task: Task
    graph: Graph

    def size(self, agent: int, step: int) -> int:
        """How many records are in that agent's batch of that step."""
        held = self.task.counts[agent]
        sizes = self.algorithm.sampling.sizes(np.array([step]), float(held), self.task.arrivals)
        return int(min(sizes[0], held))

    @property
    def rounds(self) -> float:
        """How many messages an agent can send."""
        sampling, arrivals = self.algorithm.sampling, self.task.arrivals
        lasts = [sampling.lasts(held, arrivals) for held in self.task.counts.tolist()]
        return min(*lasts, self.algorithm.rounds)


@require.plain_arguments
def overhear(
    algorithm: Algorithm, problem: Problem, graph: Graph, rounds: int, seed: int = 0
) -> list[Any]:
    """The messages of every round of a run with that noise seed,
    each field an array (agents, ...).
    """
    require_records(problem)
    algorithm.check(graph, problem.task)
    network = Rounds(algorithm, problem, graph, [require.count("seed", seed, 0)])
    # Round by round: all messages of a large model would not fit on its device, and on a CPU its
    # convolutions inside a compiled loop run on a single core.
    return [
        jax.tree.map(lambda field: np.asarray(field[0, 0]), network.advance(1, tap=_sent))
        for _ in range(require.count("rounds", rounds))
    ]


def unfollowed(algorithm: Algorithm, graph: Graph) -> str:
    """Why those who replay overheard messages with the graph's own weights cannot follow this
    algorithm, if so.
    """
    if type(algorithm).coin is not Algorithm.coin:
        return "one whose weights are the same in every round"
    return "one with a single exchange per round" if len(algorithm.relays(graph)) else ""


def _sent(seen: Round) -> Any:
    return seen.sent


@require.plain_arguments
def batch_records(
    known: Public, problem: Problem, agent: int, step: int
) -> tuple[np.ndarray, np.ndarray]:
    """PRIVATE: the features and labels of that batch, to hold a reconstruction against.

    Nothing that attacks may call this.
    """
    sampling, dtype, size = known.algorithm.sampling, problem.dtype, known.size(agent, step)
    records = problem.records.of(agent).placed(dtype)
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
