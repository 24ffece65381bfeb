"""Assumptions 1-5, Theorems 1-5, Corollary 1 and Remark 22 of paper P2.

The numbers are in tracking_constants.py.

The paper's rates and budgets are about schemes: steps, sample size and noise that follow the
planned horizon K. A GradientTracking does not say how it was planned, so `gradient_tracking`
reports what holds of its steps and its sampler, and `s1_findings` and `s2_findings` take a
scheme's exponents.

What decides here is what the proofs need. Constants are Euclidean norms where the paper prints
spectral radii, and column sums of C, which (8) has, where it prints row sums. Theorem 3 rests on
rho(A_K) < 1 itself, which Assumption 5 does not imply, with either constants. Theorem 2 rests on
p_beta < p_alpha < p_gamma < 1 and a rate above 0: a fixed u > 0 has A_K u <= (1 - omega_K) u for
large K, whatever a_1, a_2, a_3 and the conditions with ">= 1".

Theorem 1's "almost surely" compares the last states of runs with different K as if they were
one run, and takes the last term of a sum over k <= K to 0 because the sums are bounded. With
Assumption 3 the mean-square limit follows from Theorems 2 and 3; without it, what the proofs give
is a limit of the mean over k.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from hearsay import _validate as require
from hearsay.algorithms.theory.exponents import oracle_exponent
from hearsay.algorithms.theory.findings import Finding, below
from hearsay.algorithms.theory.tracking_constants import (
    Constants,
    Exponents,
    NoiseExponents,
    Steps,
    budget_peak_s1,
    budget_peak_s2,
    constants,
    coupling_limit,
    deficits,
    descent,
    first_horizon,
    gap,
    printed_constants,
    s1_budget,
    s1_conditions,
    s1_rate,
    s1_steps,
    s2_oracle_exponent,
    step_limits,
)
from hearsay.graphs import Graph
from hearsay.problems.sampling.samplers import Fresh, Poisson, Resample, Sampling, Subset
from hearsay.problems.task import Task
from hearsay.schedules import Constant, PowerLaw, Schedule

if TYPE_CHECKING:
    from hearsay.algorithms.gradient_tracking import GradientTracking

LARGEST = 300  # agents up to which dense singular values take no noticeable time


def gradient_tracking(algorithm: GradientTracking, graph: Graph, problem: Task) -> list[Finding]:
    """What can be said of an instance."""
    found = assumptions(algorithm.sampling, graph, problem)
    values = [_value(law) for law in (algorithm.coupling, algorithm.tracking, algorithm.step)]
    if any(value is None or value <= 0 for value in values):
        detail = (
            "they are about a step, a coupling and a tracking above 0 that stay the same in a run;"
            " here one does not"
        )
    else:
        detail = (
            "rates and budgets are about steps, sample sizes and noise that follow the planned"
            " horizon, which an instance does not tell: ask s1_findings or s2_findings"
            " (hearsay.theory.gradient_tracking)"
        )
        found += _constant_steps(Steps._make(values), graph, problem, found)
    return [*found, Finding("Theorems 1-5", False, detail)]


def assumptions(sampling: Sampling, graph: Graph, problem: Task) -> list[Finding]:
    """What all theorems of the paper ask of the problem, the graphs and the sampler."""
    return [*_premises(graph, problem), _draws(sampling)]


@require.plain_arguments
def s1_findings(
    horizon: int, a: Exponents, p: Exponents, noise: NoiseExponents, graph: Graph, problem: Task
) -> list[Finding]:
    """Scheme (S1) as `scheme_s1(horizon, a=a, p=p, noise=noise)` builds it: Assumptions 1-4,
    Theorems 1, 2 and 4, Corollary 1 (i), Remark 22.
    """
    steps, premises = _positive(s1_steps(horizon, a, p)), _premises(graph, problem)
    conditions = [
        below(f"Assumption 4, {name}", left, right, name, strict)
        for name, (left, right, strict) in s1_conditions(p, noise).items()
    ]
    bounds = _about(graph, problem, premises) or _s1_bounds(horizon, a, p, graph, problem, steps)
    small = [f for f in bounds if f.name == "Lemma 1" or f.name.startswith("Assumption 4")]
    limit = (
        "E |grad F|^2 goes to 0 as K grows (with Assumption 3 by Theorem 2; without it in the mean"
        " over k)"
    )
    rate, falls = _s1_rate(p, noise, premises), s1_budget(p, noise)
    budget = [
        below(
            f"Theorem 4, {what}",
            0.0,
            q,
            f"{what}' budget is O((K+1)^-q), by the paper's formula, with q",
        )
        for what, q in zip(("trackers", "states"), falls, strict=True)
    ]
    budget += [
        *_heard("Theorem 4", steps, graph),
        _records("Theorem 4", a[3] * horizon ** p[3], problem),
    ]
    claim = "a polynomial rate, and a budget that by the paper's formula does not grow with K"
    peak = (
        "ln(K+2)/(K+1)^q, the bound on the budget, falls from this K on (without ln, which only a"
        " noise exponent of 1 needs: from 0)"
    )
    return [
        *premises,
        *conditions,
        *bounds,
        _conclusion("Theorem 1", limit, [*premises[:-1], *conditions, *small]),
        rate,
        _s1_oracle(p, rate),
        *budget,
        _conclusion("Corollary 1 (i)", claim, [rate, *budget]),
        below("Remark 22", budget_peak_s1(min(falls)), horizon, peak, strict=False),
    ]


@require.plain_arguments
def s2_findings(
    horizon: int,
    coupling: float,
    tracking: float,
    step: float,
    growth: float,
    noise: NoiseExponents,
    graph: Graph,
    problem: Task,
) -> list[Finding]:
    """Scheme (S2) as `scheme_s2(horizon, ...)` builds it: Assumptions 1-3 and 5, Theorems 1,
    3 and 5, Corollary 1 (ii), Remark 22.
    """
    steps, premises = _positive(Steps(coupling, tracking, step)), _premises(graph, problem)
    shape = [
        below("Assumption 5, p_m", 1.0, growth, "growth of the sample size"),
        below("Assumption 5, noise below 1", max(noise), 1.0, "larger of p_zeta and p_eta"),
        below("Assumption 5, noise above 0", 0.0, min(noise), "smaller of p_zeta and p_eta"),
    ]
    bounds = _constant_steps(steps, graph, problem, premises)
    rate = _s2_rate(growth, noise, bounds, [*premises, *shape])
    text = "1/p_m against the noise: the budget is O(K (p_m p)^-K), by the paper's formula"
    size = growth**horizon if horizon * math.log(growth) < 700 else math.inf
    budget = [below("Theorem 5, noise", 1 / growth, min(noise), text)]
    budget += [*_heard("Theorem 5", steps, graph), _records("Theorem 5", size, problem)]
    claim = "an exponential rate, and a budget that by the paper's formula does not grow with K"
    peak = "K (p_m p)^-K, the bound on the budget, falls from this K on"
    return [
        *premises, *shape, *bounds, rate, _s2_oracle(growth, rate), *budget,
        _conclusion("Corollary 1 (ii)", claim, [rate, *budget]),
        below("Remark 22", budget_peak_s2(growth * min(noise)), horizon, peak, strict=False),
    ]  # fmt: skip


def _premises(graph: Graph, problem: Task) -> list[Finding]:
    spread, gather = graph.roots()
    mu, smooth = problem.smoothness
    found = [
        below("Assumption 1, tree of R", 0, len(spread), "agents whose states reach everybody"),
        below("Assumption 1, tree of C'", 0, len(gather), "agents whom everybody's trackers reach"),
        below("Assumption 1, common root", 0, len(spread & gather), "agents that are both"),
        below("Assumption 2 (i)", smooth, math.inf, "L of every agent's objective"),
        below(
            "Assumption 3",
            0.0,
            mu,
            "mu of every agent's objective, hence a PL constant of their mean (Remark 14)",
        ),
    ]
    if problem.loss.clip is not None and problem.smoothness != problem.loss.curvature:
        detail = (
            "mu and L are known of the objective without clipping, which clipped gradients do not"
            " belong to"
        )
        found.insert(-1, Finding("Assumption 2 (i), clipping", False, detail))
    return found


def _draws(sampling: Sampling) -> Finding:
    anew, name = (
        isinstance(sampling, (Fresh, Subset, Resample)),
        type(sampling).__name__,
    )
    biased = "brings records back in a fixed order: given the past, a gradient is biased"
    if isinstance(sampling, Poisson):
        biased = "draws batches whose size varies: their variance is not that of a mean"
    how = "draws the records of a step anew" if anew else biased
    return Finding("Assumption 2 (ii)", anew, f"{name} {how}")


def _value(law: Schedule) -> float | None:
    if isinstance(law, PowerLaw) and law.exponent == 0:
        return law.scale
    return law.value if isinstance(law, Constant) else None


def _positive(steps: Steps) -> Steps:
    return Steps._make(require.positive(name, value) for name, value in steps._asdict().items())


def _about(graph: Graph, problem: Task, premises: list[Finding]) -> list[Finding]:
    """Why the constants are not to be had, if they are not."""
    if graph.agents == 1 or graph.agents > LARGEST:
        detail = (
            f"the constants are offered for 2 to {LARGEST} agents (their singular values take"
            f" long), here {graph.agents}"
        )
    elif not all(f.holds for f in premises if f.name.startswith("Assumption 1")):
        detail = "without Assumption 1 v_1'v_2 is 0, or v_1 or v_2 is not unique"
    elif not 0 < problem.smoothness[1] < math.inf:
        detail = "without a finite L above 0 there are no bounds on the step"
    else:
        return []
    return [Finding("Lemma 1", False, detail)]


def _constant_steps(
    steps: Steps, graph: Graph, problem: Task, premises: list[Finding]
) -> list[Finding]:
    """Lemma 1, the bounds of Assumption 5, and what they are there for."""
    if about := _about(graph, problem, premises):
        return about
    c, printed = (
        make(graph, steps.coupling, steps.tracking) for make in (constants, printed_constants)
    )
    found = [*_lemma_1(steps, graph, c, printed), *_assumption_5(steps, graph, c, printed, problem)]
    if not c.contract:
        detail = (
            "without (35) and (50) in the Euclidean norm there is no A_K; other weights may help"
        )
        return [
            *found,
            *(Finding(name, False, detail) for name in ("Theorem 1", "Lemma A.9, rho(A_K)")),
        ]
    mu, smooth = problem.smoothness
    matrix = deficits(c, steps, mu, smooth)
    shown = 1 - gap(deficits(printed, steps, mu, smooth, printed=True))
    spare, (cost, gain) = gap(matrix), descent(matrix, c, steps, smooth)
    detail = (
        f"rho(A_K) must be below 1: {1 - spare:.10g} (as printed, with spectral radii:"
        f" {shown:.10g})"
    )
    claim = (
        "(83), what disagreement costs against what a step gains: where noise and 1/m fall with K,"
        " the mean over k of E |grad F|^2 is O(1/K)"
    )
    return [
        *found,
        Finding("Lemma A.9, rho(A_K)", spare > 0, detail, spare),
        below("Theorem 1", cost, gain, claim),
    ]


def _lemma_1(steps: Steps, graph: Graph, c: Constants, printed: Constants) -> list[Finding]:
    alpha, beta = steps.coupling, steps.tracking
    rows = beta * float(np.asarray(graph.pushed.sum(axis=1)).max())
    text = "in the Euclidean norm, where the paper takes the spectral radius; r ="
    return [
        below(
            "Lemma 1, rows of R",
            alpha * float(graph.row_sums.max()),
            1.0,
            "alpha times the largest row sum (at 1, which the lemma allows, (ii) may fail)",
        ),
        below(
            "Lemma 1, columns of C",
            beta * float(graph.handed_out.max()),
            1.0,
            f"beta times the largest column sum (the paper bounds row sums, {rows:.4g}, which (8)"
            " has not)",
        ),
        below(
            "Lemma 1 (i)",
            0.0,
            c.overlap,
            f"v_1'v_2, where |v_1| = {c.v1:.4g} and |v_2| = {c.v2:.4g}",
        ),
        below(
            "Lemma 1 (ii), states",
            1 - alpha * printed.r1,
            1.0,
            f"spectral radius; r_L1 = {printed.r1:.4g}",
        ),
        below(
            "Lemma 1 (ii), trackers",
            1 - beta * printed.r2,
            1.0,
            f"spectral radius; r_L2 = {printed.r2:.4g}",
        ),
        below("Lemma A.5, (35)", 1 - alpha * c.r1, 1.0, f"contraction of states {text} {c.r1:.4g}"),
        below(
            "Lemma A.6, (50)", 1 - beta * c.r2, 1.0, f"contraction of trackers {text} {c.r2:.4g}"
        ),
    ]


def _assumption_5(
    steps: Steps, graph: Graph, c: Constants, printed: Constants, problem: Task
) -> list[Finding]:
    alpha, beta, gamma = steps
    mu, smooth = problem.smoothness
    ratio, radius = coupling_limit(c, beta), coupling_limit(printed, beta)
    (q1, q2), (p1, p2) = step_limits(c, mu, smooth), step_limits(printed, mu, smooth)
    return [
        below(
            "Assumption 5, coupling",
            alpha,
            _small(graph.row_sums, c.r1),
            "alpha < min{1/row sum of R, 1/r_L1}",
        ),
        below(
            "Assumption 5, tracking",
            beta,
            _small(graph.handed_out, c.r2),
            "beta < min{1/column sum of C, 1/r_L2}",
        ),
        below(
            "Assumption 5, coupling against tracking",
            alpha,
            ratio,
            f"alpha against beta (as printed, with spectral radii, below {radius:.4g})",
        ),
        below(
            "Assumption 5, step",
            gamma,
            min(1.0, c.agents / (15 * c.overlap * smooth)),
            "gamma < min{1, n/(15 v_1'v_2 L)}",
        ),
        below(
            "Assumption 5, Q_1",
            gamma,
            q1 * alpha,
            f"gamma < Q_1 alpha (as printed, with spectral radii, {p1 * alpha:.4g})",
        ),
        below(
            "Assumption 5, Q_2",
            gamma,
            q2 * beta,
            f"gamma < Q_2 beta (as printed, with spectral radii, {p2 * beta:.4g})",
        ),
    ]


def _small(sums: np.ndarray, r: float) -> float:
    """min{1/sum, 1/r}; the second holds by itself, since 1 - step r is a norm
    (or a spectral radius).
    """
    return min(1 / float(sums.max()), 1 / r if r > 0 else math.inf)


def _s1_bounds(
    horizon: int, a: Exponents, p: Exponents, graph: Graph, problem: Task, steps: Steps
) -> list[Finding]:
    """Lemma 1 at this K, Assumption 4's bounds on a_1, a_2, a_3, and the K that the proof
    of Theorem 2 starts from.
    """
    mu, smooth = problem.smoothness
    c, printed = (
        make(graph, steps.coupling, steps.tracking) for make in (constants, printed_constants)
    )
    first, text = (
        first_horizon(a, p, graph, mu, smooth),
        "rho(A_K) < 1, and Theorem 2's bound with it, from this K on",
    )
    return [
        *_lemma_1(steps, graph, c, printed),
        below(
            "Assumption 4, a_1",
            a[0],
            _small(graph.row_sums, printed.r1),
            "a_1 < min{1/row sum of R, 1/r_L1}; what is used is alpha_K",
        ),
        below(
            "Assumption 4, a_2",
            a[1],
            _small(graph.handed_out, printed.r2),
            "a_2 < min{1/column sum of C, 1/r_L2}; what is used is beta_K",
        ),
        below(
            "Assumption 4, a_3",
            a[2],
            c.agents / (4 * c.overlap * smooth),
            "a_3 < n/(4 v_1'v_2 L); what is used is gamma_K",
        ),
        below("Theorem 2, first horizon", first, horizon, text, strict=False),
    ]


def _s1_rate(p: Exponents, noise: NoiseExponents, premises: list[Finding]) -> Finding:
    rate, (alpha, beta, gamma, _) = s1_rate(p, noise), p
    order = Finding(
        "the order 0 < p_beta < p_alpha < p_gamma < 1", 0 < beta < alpha < gamma < 1, ""
    )
    claim = f"E |grad F|^2 falls at least like K^-{rate:.4g} as K grows"
    final = _conclusion(
        "Theorem 2",
        claim if rate > 0 else f"a bound K^({-rate:.4g}), which does not fall",
        [*premises, order],
    )
    return final._replace(holds=final.holds and rate > 0, margin=rate)


def _s2_rate(
    growth: float, noise: NoiseExponents, bounds: list[Finding], premises: list[Finding]
) -> Finding:
    """Theorem 3, from rho(A_K) < 1 itself."""
    needed = [f for f in bounds if f.name.startswith("Lemma")]
    spare = needed[-1].margin if needed[-1].margin is not None else -math.inf  # 1 - rho(A_K)
    spare = min(spare, 1 - 1 / growth, *(1 - p**2 for p in noise))
    claim = (
        f"E |grad F|^2 falls at least like (1 - {spare:.4g})^K"
        if spare > 0
        else "a bound that does not fall"
    )
    return _conclusion("Theorem 3", claim, [*premises, *needed])._replace(margin=spare)


def _s1_oracle(p: Exponents, rate: Finding) -> Finding:
    if not rate.holds or rate.margin is None:
        return Finding(
            "Theorem 2, oracle complexity",
            False,
            "without a rate no number of sampled gradients is promised",
        )
    records = (
        f"e^-{1 / rate.margin:.4g} steps and e^-{oracle_exponent(rate.margin, p[3]):.4g} sampled"
        " gradients per agent"
    )
    return Finding("Theorem 2, oracle complexity", True, f"error e takes about {records}")


def _s2_oracle(growth: float, rate: Finding) -> Finding:
    if not rate.holds or rate.margin is None:
        return Finding(
            "Theorem 3, oracle complexity",
            False,
            "without a rate no number of sampled gradients is promised",
        )
    power, steps = s2_oracle_exponent(growth, rate.margin), -1 / math.log1p(-rate.margin)
    records = f"{steps:.4g} ln(1/e) steps and e^-{power:.4g} ln(1/e) sampled gradients per agent"
    return Finding("Theorem 3, oracle complexity", True, f"error e takes about {records}")


def _heard(theorem: str, steps: Steps, graph: Graph) -> list[Finding]:
    """0 < alpha sum_j R_ij < 1 and 0 < beta sum_j C_ij < 1 for every agent:
    who hears nobody forgets nothing of a record.
    """
    found = []
    trackers = np.asarray(graph.pushed.sum(axis=1)).ravel()
    for what, step, sums in (
        ("R", steps.coupling, graph.row_sums),
        ("C", steps.tracking, trackers),
    ):
        low, high = step * float(sums.min()), step * float(sums.max())
        detail = (
            f"row sums of {what}, times the step, must be between 0 and 1 for every agent:"
            f" {low:.4g} to {high:.4g}"
        )
        found.append(
            Finding(f"{theorem}, rows of {what}", low > 0 and high < 1, detail, min(low, 1 - high))
        )
    return found


def _records(theorem: str, law: float, problem: Task) -> Finding:
    size = math.floor(law) + 1 if law < math.inf else law
    text = (
        "m_K different records of every agent (a fixed data set ends the growth of m_K, and of K"
        " with it)"
    )
    return below(f"{theorem}, records", size, float(problem.counts.min()), text, strict=False)


def _conclusion(name: str, claim: str, parts: list[Finding]) -> Finding:
    failing = "; ".join(f.name for f in parts if not f.holds)
    return Finding(
        name,
        not failing,
        f"not promised, because of {failing} (otherwise: {claim})" if failing else claim,
    )
