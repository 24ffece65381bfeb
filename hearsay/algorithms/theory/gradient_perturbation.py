"""What paper P3 says of gradient perturbation: Assumption 5, Theorems 5-7, Corollary 2."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearsay.algorithms.theory.exponents import (
    gradient_budget,
    gradient_noise_limit,
    gradient_rate,
    gradient_series,
)
from hearsay.algorithms.theory.findings import Finding, below
from hearsay.algorithms.theory.two_time_scales import LASTS, Form, Laws, two_time_scales
from hearsay.graphs import Graph
from hearsay.problems.task import Task

if TYPE_CHECKING:
    from hearsay.algorithms.gradient_perturbation import GradientPerturbation


def gradient_perturbation(
    algorithm: GradientPerturbation, graph: Graph, problem: Task
) -> list[Finding]:
    """The findings about one configuration."""
    form = Form(
        "Assumption 5",
        "Theorem 6",
        "Theorem 7",
        "Theorem 5",
        "Corollary 2",
        gradient_series,
        gradient_rate,
        gradient_noise_limit,
        _finite,
    )
    return two_time_scales(form, algorithm, graph, problem)


def _finite(laws: Laws) -> list[Finding]:
    total = 1 + gradient_budget(laws.fades, laws.slowest)
    return [below("Theorem 5, budget", 1.0, total, f"{LASTS}: gamma + eta")]
