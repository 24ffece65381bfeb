"""What paper P3 says of output perturbation: Assumption 4, Theorems 2-4, Corollary 1.

With `feedback` the network's mean is free of noise and (A - I) n stands for A n in the
disagreement: the proofs of Theorems 3 and 4 hold with other constants, none of which is in a
condition. Theorem 2 does not carry over.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from hearsay.algorithms.theory.exponents import (
    output_budget,
    output_noise_limit,
    output_rate,
    output_series,
)
from hearsay.algorithms.theory.findings import Finding, below
from hearsay.algorithms.theory.two_time_scales import LASTS, Form, Laws, two_time_scales
from hearsay.graphs import Graph
from hearsay.problems.task import Task

if TYPE_CHECKING:
    from hearsay.algorithms.output_perturbation import OutputPerturbation


def output_perturbation(
    algorithm: OutputPerturbation, graph: Graph, problem: Task
) -> list[Finding]:
    """The findings about one configuration."""
    form = Form(
        "Assumption 4",
        "Theorem 3",
        "Theorem 4",
        "Theorem 2",
        "Corollary 1",
        output_series,
        output_rate,
        output_noise_limit,
        partial(_finite, algorithm.feedback),
    )
    return two_time_scales(form, algorithm, graph, problem)


def _finite(feedback: bool, laws: Laws) -> list[Finding]:
    name = "Theorem 2"
    if feedback:
        detail = (
            "it is about agents that keep their own state without its noise; with feedback the"
            " certificate alone answers"
        )
        return [Finding(f"{name}, budget", False, detail)]
    case = output_budget(laws.alpha, laws.beta, laws.fades, laws.slowest, laws.coupling.scale)
    where, least, what = _CASES[case.name]
    return [
        below(f"{name}, step", 0.0, laws.alpha, "alpha"),
        below(f"{name}, step at most", laws.alpha, 1.0, "alpha", strict=False),
        below(f"{name}, noise", 0.0, laws.slowest, "smallest noise exponent eta", strict=False),
        below(f"{name}, first coupling", float(laws.coupling(0)), 1.0, "beta_0 = a_1/a_2^beta"),
        Finding(
            f"{name}, case",
            case.inside > 0 or case.name == "(ii)",
            f"case {case.name}: {where}",
            case.inside,
        ),
        below(
            f"{name}, budget", least, least + case.margin, f"{LASTS}, in case {case.name}: {what}"
        ),
    ]


# The case's own conditions; then the inequality that makes the budget finite.
_CASES = {
    "(i)": ("beta = 1 and alpha + gamma - a_1 < 1", 2.0, "alpha + gamma + eta"),
    "(ii)": ("beta = 1 and alpha + gamma - a_1 >= 1", 1.0, "a_1 + eta"),
    "(iii)": ("0 < beta < 1", 1.0, "alpha + gamma - beta + eta"),
    "none": ("beta is above 1", 1.0, "nothing is promised"),
}
