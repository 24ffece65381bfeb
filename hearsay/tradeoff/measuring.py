"""The test accuracy of what a run releases, and of the agents' own models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hearsay.base import Algorithm
from hearsay.graphs import Graph
from hearsay.privacy.certificate import Certificate
from hearsay.problems.problem import Problem
from hearsay.release import predicting
from hearsay.release.readouts import Tail
from hearsay.simulation.result import Run
from hearsay.simulation.simulating import simulate
from hearsay.tradeoff.rule import CHUNK, TAIL


class Measured(NamedTuple):
    """Of one run: accuracies (seed,) of the released model and of the agents' own (their mean),
    and what it cost.
    """

    released: np.ndarray
    own: np.ndarray
    certificate: Certificate


def trained(
    algorithm: Algorithm,
    problem: Problem,
    graph: Graph,
    rounds: int,
    seeds: Sequence[int],
    delta: float,
) -> Run:
    """The run, with the average of messages that the rule releases; KeyboardInterrupt where the
    user has ended it.
    """
    run = simulate(
        algorithm,
        problem,
        graph,
        steps=rounds,
        seeds=list(seeds),
        every=CHUNK,
        delta=delta,
        reference=False,
        regret=False,
        release=(Tail(TAIL),),
    )
    if run.interrupted:
        raise KeyboardInterrupt
    return run


def measured(run: Run, together: bool = True) -> Measured:
    """What the run's models are worth on its test set.

    Args:
      run: as `trained` leaves it.
      together: the released model averages everybody's messages; otherwise each agent releases the
        average of its own, and the accuracy is the mean over agents.
    """
    own = run.metrics["accuracy"][-1]
    if together:
        return Measured(run.metrics["released_accuracy"][-1], own, run.certificate)
    problem, (kept,) = run.problem, run.readouts
    predictor = predicting.of(problem.task)
    right = [
        [
            np.mean(predictor.predict(one, problem.test_features) == problem.test_labels)
            for one in agents
        ]
        for agents in run.averages[kept.name]
    ]
    return Measured(np.mean(right, axis=1), own, run.certificate)
