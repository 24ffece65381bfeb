"""Settings without a rehearsal, which takes seconds for every shape of data."""

from __future__ import annotations

from typing import Any

import hearsay as hs
from hearsay.tradeoff.choices import Choice

# Least squares on records that are shorter than 1 take many steps; networks are not to learn here.
CLASSES, NUMBERS, NETWORK = 40, 600, 3


def rehearse(
    task: Any,
    graph: Any,
    epsilon: float,
    *,
    delta: float = 1e-5,
    colluders: int | None = None,
    progress: Any = None,
    warnings: tuple[str, ...] = (),
) -> hs.Rehearsal:
    """All records in every step, which is of the size that the loss allows."""
    steep = task.loss.curvature[1]
    rounds = NETWORK if not task.loss.convex else CLASSES if task.classification else NUMBERS
    choice = Choice(rounds, 1 / steep if steep < 1e9 else 1.0, colluders=colluders, readout="tail")
    prepared = choice.prepared(task)
    algorithm = hs.calibrate(choice.algorithm, prepared, graph, rounds, epsilon, delta=delta)
    return hs.Rehearsal(
        algorithm,
        rounds,
        choice.average,
        prepared,
        graph,
        epsilon,
        delta,
        choice,
        None,
        warnings,
    )
