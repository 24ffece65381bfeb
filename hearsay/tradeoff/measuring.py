"""The test accuracy of what a run releases, and of the agents' own models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hearsay.base import Algorithm
from hearsay.graphs import Graph
from hearsay.privacy.certificate import Certificate
from hearsay.problems.problem import Problem
from hearsay.simulation.simulating import simulate
from hearsay.tradeoff.rule import CHUNK


class Measured(NamedTuple):
    """Of one run: accuracies (seed,) of the released model and of the agents' own (their mean),
    and what it cost.
    """

    released: np.ndarray
    own: np.ndarray
    certificate: Certificate


def measured(
    algorithm: Algorithm,
    problem: Problem,
    graph: Graph,
    rounds: int,
    seeds: Sequence[int],
    delta: float,
    together: bool = True,
) -> Measured:
    """Run it and test it; KeyboardInterrupt where the user has ended it."""
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
    )
    if run.interrupted:
        raise KeyboardInterrupt
    own = run.metrics["accuracy"][-1]
    return Measured(own, own, run.certificate)
