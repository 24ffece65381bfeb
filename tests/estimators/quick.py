"""Settings without a rehearsal, which takes seconds for every shape of data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import hearsay as hs
from hearsay.release.readouts import ReadOut, Tail

# Least squares on records that are shorter than 1 take many steps; networks are not to learn here.
CLASSES, NUMBERS, NETWORK = 40, 600, 3


@dataclass(frozen=True)
class Quick:
    """What an estimator asks of a rehearsal."""

    algorithm: Any
    rounds: int
    readout: ReadOut = Tail()
    words: str = "not rehearsed"
    warnings: tuple[str, ...] = ()

    def prepared(self, problem: Any) -> Any:
        return problem


def rehearse(
    task: Any,
    graph: Any,
    epsilon: float,
    *,
    delta: float = 1e-5,
    colluders: int | None = None,
    progress: Any = None,
) -> Quick:
    """All records in every step, of the size that the loss allows."""
    steep = task.loss.curvature[1]
    algorithm = hs.gradient_perturbation(
        mechanism="gaussian",
        step=1 / steep if steep < 1e9 else 1.0,
        coupling=0.9,
        sampling=hs.History("full"),
        secrets=None if colluders is None else hs.Secrets(colluders=colluders),
    )
    rounds = NETWORK if not task.loss.convex else CLASSES if task.classification else NUMBERS
    return Quick(hs.calibrate(algorithm, task, graph, rounds, epsilon, delta=delta), rounds)
