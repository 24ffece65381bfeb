"""Assumptions 2 and 4 and Theorems 1-5 of paper P1."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from hearsay import _validate as require
from hearsay.algorithms.theory.findings import Finding, below
from hearsay.graphs import Graph
from hearsay.privacy.adjacency import REPLACE
from hearsay.problems.task import Task
from hearsay.schedules import Constant, PowerLaw

if TYPE_CHECKING:
    from hearsay.algorithms.ldp_online import LdpOnline


def ldp_online(algorithm: LdpOnline, graph: Graph, problem: Task) -> list[Finding]:
    """Assumptions 2 and 4 and Theorems 1-5 of paper P1."""
    second, smallest = graph.coupling_eigenvalues
    findings = [
        below("Assumption 2", -1.0, smallest, "smallest eigenvalue of the coupling matrix above -1")
    ]
    laws = (algorithm.step, algorithm.coupling)
    noise = algorithm.noise if isinstance(algorithm.noise, tuple) else (algorithm.noise,)
    noise = tuple(PowerLaw(s.value, 0.0) if isinstance(s, Constant) else s for s in noise)
    if not all(isinstance(law, PowerLaw) for law in (*laws, *noise)):
        return [
            *findings,
            Finding(
                "Theorems 1-5", False, "they are stated for power laws; the schedules here are not"
            ),
        ]
    assert isinstance(algorithm.step, PowerLaw)
    assert isinstance(algorithm.coupling, PowerLaw)
    v, u = -algorithm.step.exponent, -algorithm.coupling.exponent
    grow = max(s.exponent for s in noise if isinstance(s, PowerLaw))
    step0, coupling0 = float(algorithm.step(0)), float(algorithm.coupling(0))
    findings += [
        below("Assumption 4, noise", grow, 0.5, "largest noise exponent"),
        below(
            "Assumption 4, (4) left",
            grow + 0.5,
            u,
            "largest noise exponent + 1/2 against the coupling's decay u",
        ),
        below("Assumption 4, (4) middle", u, v, "coupling's decay u against the step's decay v"),
        below("Assumption 4, (4) right", v, 1.0, "step's decay v"),
    ]
    if (
        graph.agents == 1
        or algorithm.coupling(0) == 0
        or algorithm.coupling(1) >= algorithm.coupling(0)
    ):
        return [
            *findings,
            Finding(
                "Theorems 1-5", False, "they are about several agents and a coupling that decays"
            ),
        ]
    if {algorithm.step.shift, algorithm.coupling.shift} != {1.0}:
        # (k+s)^-p = s^-p (k/s+1)^-p: the theorems' laws in the time k/s; their rates hold, their
        # first step t0 does not carry over.
        detail = (
            "burn-in times and first-step conditions are stated for schedules in (k+1); these have"
            " another shift"
        )
        beta = rate(u, v, grow)
        findings += [
            Finding("Theorems 1-4", False, detail),
            _rate("Theorems 1 and 3, rate", "squared tracking error", beta),
        ]
    else:
        findings += _strongly_convex(problem, second, smallest, step0, coupling0, u, v, grow)
        findings += _convex(problem, second, smallest, step0, coupling0, u, v)
    premises = all(f.holds for f in findings if f.name.startswith("Assumption 4"))
    findings = [f if premises or "rate" not in f.name else _void(f) for f in findings]
    return [*findings, *_private(algorithm, problem, noise, u, v)]


@require.plain_arguments
def rate(u: float, v: float, grow: float) -> float:
    """beta of Theorems 1 and 3: the expected squared tracking error falls at least like t^-beta."""
    return min(1 - v, 2 * u - 2 * grow - 1)


def _strongly_convex(
    problem: Task,
    second: float,
    smallest: float,
    step0: float,
    coupling0: float,
    u: float,
    v: float,
    grow: float,
) -> list[Finding]:
    mu, largest = problem.smoothness
    if mu <= 0:
        return [Finding("Theorems 1 and 3", False, "they need strong convexity (ridge > 0)")]
    beta = rate(u, v, grow)
    # The paper prints delta_2 without its minus sign in the bound on lambda_0; delta_2 is negative.
    found = [
        below(
            "Theorem 1, coupling",
            coupling0,
            -1 / (3 * smallest),
            "gamma_0 <= 1/(-3 delta_m)",
            strict=False,
        ),
        below(
            "Theorem 1, step",
            step0,
            coupling0 * -second * mu / (mu**2 + 8 * largest**2),
            "lambda_0 <= gamma_0 (-delta_2) mu / (mu^2 + 8 L^2)",
            strict=False,
        ),
        _rate("Theorems 1 and 3, rate", "squared tracking error", beta),
    ]
    if u < v:
        ratio = (mu**2 + 8 * largest**2) * step0 / (-second * mu * coupling0)
        found.append(
            _burn_in(
                "Theorem 3, t0",
                max(_power(-3 * smallest * coupling0, 1 / u), _power(ratio, 1 / (v - u))),
            )
        )
    return found


def _convex(
    problem: Task,
    second: float,
    smallest: float,
    step0: float,
    coupling0: float,
    u: float,
    v: float,
) -> list[Finding]:
    largest = problem.smoothness[1]
    # Variance of a random vector in a set of diameter C is at most C^2/2; gradients are at most C
    # plus the regulariser's reach.
    change = problem.change_under(REPLACE)
    spread = change**2 / 2
    bound = (change + problem.loss.regulariser * problem.domain.reach(problem.dimension)) ** 2
    weight = 2 * (largest**2 + spread + bound)
    found = [
        below("Theorem 2, exponents", (1 + 2 * u) / 3, v, "(1 + 2u)/3 against v"),
        below("Theorem 2, exponents left", 2 / 3, (1 + 2 * u) / 3, "(1 + 2u)/3 above 2/3"),
        below(
            "Theorem 2, coupling",
            coupling0,
            -1 / (3 * smallest),
            "gamma_0 <= 1/(-3 delta_m)",
            strict=False,
        ),
        below(
            "Theorem 2, step",
            step0,
            -second * coupling0 / weight,
            "lambda_0 <= -delta_2 gamma_0 / 2(L^2 + kappa^2 + D^2)",
            strict=False,
        ),
        _rate("Theorems 2 and 4, rate", "instantaneous regret", (1 - v) / 2),
    ]
    if 3 * v > 2 * u + 1:
        ratio = weight * step0 / (-second * coupling0)
        start = max(
            _power(-3 * smallest * coupling0, 1 / u), _power(ratio, 2 / (3 * v - 2 * u - 1))
        )
        found.append(_burn_in("Theorem 4, t0'", start))
    return found


def _private(
    algorithm: LdpOnline, problem: Task, noise: tuple, u: float, v: float
) -> list[Finding]:
    slowest = min(s.exponent for s in noise)
    if algorithm.feedback:
        margin = slowest if problem.smoothness[0] > 0 else -math.inf
        detail = (
            "with feedback the budget is finite forever when the loss is strongly convex and the"
            " noise grows"
        )
    else:
        margin = v - u + slowest
        detail = "the budget is finite forever when v - u + (noise exponent) > 0 for every agent"
    return [Finding("Theorem 5 (ii)", margin > 0, f"{detail}: {margin:.4g}", margin)]


def _rate(name: str, what: str, beta: float) -> Finding:
    promise = f"falls at least like t^-{beta:.4g}" if beta > 0 else "is not promised to fall"
    return Finding(name, beta > 0, f"{what} {promise}", beta)


def _void(finding: Finding) -> Finding:
    return finding._replace(
        holds=False,
        detail=f"not promised, because Assumption 4 fails ({finding.detail} if it held)",
    )


def _burn_in(name: str, start: float) -> Finding:
    steps = math.ceil(max(0.0, start - 1)) if start < 1e15 else math.inf
    if math.isinf(start):
        return Finding(name, False, "the rate is promised from no step that a float can hold", None)
    shown = f"{steps:,}" if steps < 1e6 else f"about {start:.3g}"
    return Finding(name, True, f"the rate is promised from step {shown} on", None)


def _power(base: float, exponent: float) -> float:
    if base <= 0:
        return 0.0
    logarithm = math.log(base) * exponent
    return math.exp(logarithm) if logarithm < 700 else math.inf
