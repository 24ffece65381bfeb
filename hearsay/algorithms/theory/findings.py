"""One finding: a condition of a paper, whether it holds, and by how much."""

from __future__ import annotations

import math
from typing import NamedTuple

from hearsay import _validate as require
from hearsay.base import Algorithm
from hearsay.graphs import Graph
from hearsay.problems.task import Task, public


class Finding(NamedTuple):
    """One condition of a paper's theory: does it hold, and by how much.
    margin > 0 means it holds with that much to spare.
    """

    name: str
    holds: bool
    detail: str
    margin: float | None = None


def findings(algorithm: Algorithm, graph: Graph, problem: Task) -> list[Finding]:
    """What the source paper's theory says of this configuration."""
    problem = public(problem)
    if not math.isfinite(problem.smoothness[1]):
        text = (
            "the gradients of a neural network have no known Lipschitz constant: the paper's"
            " theorems say nothing of this run"
        )
        return [Finding("smoothness", False, text)]
    return algorithm.theory(graph, problem)


@require.plain_arguments
def below(name: str, left: float, right: float, text: str, strict: bool = True) -> Finding:
    """left < right (or <=), with the margin right - left."""
    holds = left < right if strict else left <= right
    return Finding(
        name, holds, f"{text}: needs {left:.4g} {'<' if strict else '<='} {right:.4g}", right - left
    )
