"""Regret of the models that an online federated run releases (paper P4, equation 1).

In round r everybody holds x(r), and n learners see tau fresh records each. With f_r the mean loss
over these n tau records, after R rounds

    dynamic regret   tau sum_r [ f_r(x(r)) - min f_r ]                                  (1)
                     min over the domain, a new one in every round
    static regret    tau sum_r [ f_r(x(r)) - f_r(x*) ]
                     x* the minimiser of sum_r f_r over the domain

and the averages are these over R tau. Clipping is part of an algorithm, not of the loss.

The minima are over the domain's ball, which the released models are kept in too. Without a ball
they need not exist: a round's n tau records are often linearly separable (always, when there are
no more of them than dimensions), and the infimum of a logistic loss is then 0 and reached nowhere.
Each comes with a proven gap (optimum.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import jax
import numpy as np
from threadpoolctl import threadpool_limits

from hearsay import _validate as require
from hearsay.algorithms.correlated_federated import CorrelatedFederated
from hearsay.graphs import Graph
from hearsay.problems.problem import Problem
from hearsay.problems.sampling.samplers import Fresh
from hearsay.simulation.engine import Round, pick
from hearsay.simulation.optimum import TOLERANCE, Minima, minima
from hearsay.simulation.rounds import Rounds
from hearsay.simulation.simulating import as_seeds, enable_compilation_cache

_CHUNK = 128  # rounds per call: correlated noise is drawn for all of them at once


@dataclass(frozen=True, eq=False)
class Comparators:
    """What regret is measured against: it depends on the data only,
    so several algorithms can share it.
    """

    features: np.ndarray
    labels: np.ndarray
    each: Minima
    fixed: Minima
    fixed_values: np.ndarray

    @property
    def rounds(self) -> int:
        return len(self.labels)

    @property
    def variation(self) -> float:
        """C_R = sum_r |x_r* - x*|^2, where every round has one minimiser (a ridge above 0)."""
        return float(np.sum((self.each.params - self.fixed.params) ** 2))


@dataclass(frozen=True, eq=False)
class Regret:
    """Arrays (rounds, seeds), of the models x(0), ..., x(R-1) (rounds, seeds, d)."""

    local_steps: int
    models: np.ndarray
    losses: np.ndarray
    accuracy: np.ndarray | None
    comparators: Comparators

    @property
    def dynamic(self) -> np.ndarray:
        """Summed up to and including each round."""
        return self.local_steps * np.cumsum(
            self.losses - self.comparators.each.values[:, None], axis=0
        )

    @property
    def static(self) -> np.ndarray:
        return self.local_steps * np.cumsum(
            self.losses - self.comparators.fixed_values[:, None], axis=0
        )

    def averaged(self, kind: str = "dynamic") -> np.ndarray:
        """Regret / (R tau) if the run had ended after each round."""
        summed = getattr(self, require.one_of("kind", kind, ["dynamic", "static"]))
        return summed / (self.local_steps * np.arange(1, len(summed) + 1)[:, None])

    @property
    def gap(self) -> float:
        """How far the averaged dynamic regret is off, at most, because minima are computed:
        it is too small by no more than this.
        """
        return float(np.mean(self.comparators.each.gap))


def online_regret(
    algorithm: CorrelatedFederated,
    problem: Problem,
    graph: Graph,
    rounds: int,
    seeds: int | Sequence[int] = 1,
    *,
    against: Comparators | None = None,
) -> Regret:
    """Run the algorithm and measure every model that it releases.

    `against`: from `comparators`, to share it between runs.
    """
    rounds = require.count("rounds", rounds)
    _require_online(algorithm, rounds)
    algorithm.check(graph, problem.task)
    found = as_seeds(seeds)
    against = comparators(problem, rounds, algorithm.local_steps) if against is None else against
    if against.labels.shape != (rounds, problem.agents * algorithm.local_steps):
        require.fail(
            "against", "comparators for the same rounds and local steps", against.labels.shape
        )
    models = released(algorithm, problem, graph, rounds, found)
    loss = replace(problem.linear, clip=None)
    margin = np.einsum("rmd,rsd->rsm", against.features, models, optimize=True)
    data = loss.values(margin, against.labels[:, None, :]).mean(axis=2)
    losses = data + loss.regulariser / 2 * np.sum(models**2, axis=2)
    accuracy = None
    if problem.classification:
        test = np.einsum("md,rsd->rsm", problem.test_features, models, optimize=True)
        accuracy = np.mean(np.asarray(loss.predict(test)) == problem.test_labels, axis=2)
    return Regret(algorithm.local_steps, models, losses, accuracy, against)


def comparators(
    problem: Problem, rounds: int, local_steps: int, tolerance: float = TOLERANCE
) -> Comparators:
    """The minima of every round and of all rounds together."""
    rounds, local_steps = require.count("rounds", rounds), require.count("local_steps", local_steps)
    used = rounds * local_steps
    if used > problem.counts.min():
        require.fail(
            "rounds",
            f"at most the {problem.counts.min() // local_steps:g} that the records last for",
            rounds,
        )
    shape = (problem.agents, rounds, local_steps)
    features = (
        problem.features[:, :used]
        .reshape(*shape, -1)
        .swapaxes(0, 1)
        .reshape(rounds, -1, problem.dimension)
    )
    labels = problem.labels[:, :used].reshape(shape).swapaxes(0, 1).reshape(rounds, -1)
    loss = replace(problem.linear, clip=None)
    # Threads cost more than they gain on many small matrices, and far more on a busy machine.
    with threadpool_limits(1):
        each = minima(loss, problem.domain, features, labels, tolerance)
        together = features.reshape(1, -1, problem.dimension), labels.reshape(1, -1)
        fixed = minima(loss, problem.domain, *together, tolerance)
    values = loss.values(features @ fixed.params[0], labels).mean(axis=1)
    values += loss.regulariser / 2 * np.sum(fixed.params**2)
    return Comparators(features, labels, each, fixed, values)


def released(
    algorithm: CorrelatedFederated, problem: Problem, graph: Graph, rounds: int, seeds: list[int]
) -> np.ndarray:
    """x(0), ..., x(rounds-1) of every seed, (rounds, seeds, d): all learners hold the same,
    so these are learner 0's.
    """
    rounds = require.count("rounds", rounds)
    enable_compilation_cache()
    network = Rounds(algorithm, problem, graph, seeds)
    chunks = (min(_CHUNK, rounds - first) for first in range(0, rounds, _CHUNK))
    return np.concatenate(
        [np.asarray(network.advance(chunk, tap=_first_model), np.float64) for chunk in chunks]
    )


def _first_model(seen: Round) -> jax.Array:
    """Learner 0's model before the round."""
    return seen.program.algorithm.predict(pick(seen.states, 0))


def _require_online(algorithm: CorrelatedFederated, rounds: int) -> None:
    require.instance(
        "algorithm",
        algorithm,
        CorrelatedFederated,
        "a federated one: all learners must hold the same model",
    )
    if not isinstance(algorithm.sampling, Fresh):
        require.fail(
            "sampling",
            "fresh where regret is measured: each record is seen once",
            str(algorithm.sampling),
        )
    if rounds > algorithm.rounds:
        require.fail(
            "rounds", f"at most the {algorithm.rounds:g} that the noise is planned for", rounds
        )
