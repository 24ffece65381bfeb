"""Assumptions 1-5, Theorems 1-5, Corollary 1 and Remark 22 of paper P2. The numbers are in tracking_constants.py.

The paper's rates and budgets are about schemes: steps, sample size and noise that follow the planned horizon K. A GradientTracking does not say how it was
planned, so `gradient_tracking` reports what holds of its steps, and `s1_findings` and `s2_findings` take a scheme's exponents.

What decides is what the proofs need. Constants are Euclidean norms where the paper prints spectral radii, and column sums of C, which (8) has, where it prints row
sums. Theorem 3 rests on rho(A_K) < 1 itself: Assumption 5 does not imply it, with either constants. Theorem 2 needs neither the bounds on
a_1, a_2, a_3 nor the conditions with ">= 1": all that its proof uses is p_beta < p_alpha < p_gamma < 1 and a rate above 0.

Theorem 1's "almost surely" compares the last states of runs with different K as if they were one run, and gets from a bound on a sum over k < K that its last term goes to 0.
With Assumption 3 the mean-square limit follows from Theorems 2 and 3; without it, what the proofs give is a limit of the mean over k.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from hearsay.base import Finding
from hearsay.graphs import Graph
from hearsay.problems.problem import Problem
from hearsay.problems.sampling import Fresh, Resample, Subset
from hearsay.schedules import Constant, PowerLaw, Schedule
from hearsay.theory.exponents import oracle_exponent
from hearsay.theory.findings import below
from hearsay.theory.sample_sizes import first_step
from hearsay.theory.tracking_constants import (
    Constants,
    Exponents,
    NoiseExponents,
    Steps,
    budget_peak_s1,
    budget_peak_s2,
    constants,
    contracts,
    coupling_limit,
    deficits,
    descent,
    gap,
    printed_constants,
    s1_budget,
    s1_conditions,
    s1_rate,
    s1_steps,
    s2_oracle_exponent,
    step_limits,
)

if TYPE_CHECKING:
    from hearsay.algorithms.gradient_tracking import GradientTracking

LARGEST = 600  # agents up to which dense singular values take no noticeable time


def gradient_tracking(algorithm: GradientTracking, graph: Graph, problem: Problem) -> list[Finding]:
    """What can be said of an instance. Nothing for other algorithms: baselines that inherit the update do not inherit its theorems."""
    if type(algorithm).name != "gradient-tracking":
        return []
    found = [*_premises(graph, problem), _draws(algorithm)]
    if algorithm.variant == "printed":
        detail = "they are proved for (7) and (8), which keep the column sums of C; the printed update (6) keeps its row sums"
        return [*found, Finding("Theorems 1-5", False, detail)]
    values = [_value(law) for law in (algorithm.coupling, algorithm.tracking, algorithm.step)]
    if any(value is None or value <= 0 for value in values):
        detail = "they are stated for a step, a coupling and a tracking above 0 that do not change in a run; here one does, or is 0"
        return [*found, Finding("Theorems 1-5", False, detail)]
    detail = (
        "rates and budgets are about steps, sample sizes and noise that follow the planned horizon, which an instance does not tell: "
        "ask s1_findings or s2_findings (hearsay.theory.gradient_tracking)"
    )
    return [
        *found,
        *_constant_steps(Steps._make(values), graph, problem, found),
        Finding("Theorems 1-5", False, detail),
    ]


def s1_findings(
    horizon: int, a: Exponents, p: Exponents, noise: NoiseExponents, graph: Graph, problem: Problem
) -> list[Finding]:
    """Scheme (S1) as `scheme_s1(horizon, a=a, p=p, noise=noise)` builds it: Assumptions 1-4, Theorems 1, 2 and 4, Corollary 1 (i), Remark 22."""
    steps, premises = s1_steps(horizon, a, p), _premises(graph, problem)
    conditions = [
        below(f"Assumption 4, {name}", left, right, name, strict)
        for name, (left, right, strict) in s1_conditions(p, noise).items()
    ]
    rate = _s1_rate(p, noise, premises)
    size = math.floor(a[3] * horizon ** p[3]) + 1
    budget = [
        below(f"Theorem 4, {what}", 0.0, q, f"{what}' budget is O((K+1)^-q), by the paper's formula, with q")
        for what, q in zip(("trackers", "states"), s1_budget(p, noise), strict=True)
    ]
    budget += [*_heard("Theorem 4", steps, graph), _records("Theorem 4", size, problem)]
    about = _about(graph, problem, premises)
    bounds = about or _s1_bounds(horizon, a, p, graph, problem, steps)
    limit = "E |grad F|^2 goes to 0 as K grows (with Assumption 3 by Theorem 2; without it in the mean over k)"
    small = _named(bounds, "Assumption 4, a_")
    claim = "a polynomial rate, and a budget that by the paper's formula does not grow with K"
    peak = budget_peak_s1(min(s1_budget(p, noise)))
    text = "the bound ln(K+2)/(K+1)^q on the budget falls from this K on (without the ln, where no noise exponent is 1: from 0)"
    return [
        *premises, *conditions, *bounds, _conclusion("Theorem 1", limit, [*premises[:-1], *conditions, *small]),
        rate, _s1_oracle(p, rate), *budget, _conclusion("Corollary 1 (i)", claim, [rate, *budget]),
        below("Remark 22", peak, float(horizon), text, strict=False),
    ]  # fmt: skip


def s2_findings(
    horizon: int, coupling: float, tracking: float, step: float, growth: float, noise: NoiseExponents, graph: Graph, problem: Problem
) -> list[Finding]:  # fmt: skip
    """Scheme (S2) as `scheme_s2(horizon, ...)` builds it: Assumptions 1-3 and 5, Theorems 1, 3 and 5, Corollary 1 (ii), Remark 22."""
    steps, premises = Steps(coupling, tracking, step), _premises(graph, problem)
    shape = [
        below("Assumption 5, p_m", 1.0, growth, "growth of the sample size"),
        below("Assumption 5, noise", max(noise), 1.0, "larger of p_zeta and p_eta"),
        below("Assumption 5, noise above 0", 0.0, min(noise), "smaller of p_zeta and p_eta"),
    ]
    bounds = _constant_steps(steps, graph, problem, premises)
    rate = _s2_rate(growth, noise, [*premises, *shape, *bounds])
    size = math.floor(growth**horizon) + 1
    text = "1/p_m against the noise: the budget is O(K (p_m p)^-K), by the paper's formula"
    budget = [below("Theorem 5, noise", 1 / growth, min(noise), text)]
    budget += [*_heard("Theorem 5", steps, graph), _records("Theorem 5", size, problem)]
    claim = "an exponential rate, and a budget that by the paper's formula does not grow with K"
    peak = budget_peak_s2(growth * min(noise))
    return [
        *premises, *shape, *bounds, rate, _s2_oracle(growth, rate), *budget,
        _conclusion("Corollary 1 (ii)", claim, [rate, *budget]),
        below("Remark 22", peak, float(horizon), "the bound K (p_m p)^-K on the budget falls from this K on", strict=False),
    ]  # fmt: skip


def _premises(graph: Graph, problem: Problem) -> list[Finding]:
    spread, gather = graph.roots()
    mu, smooth = problem.smoothness
    found = [
        below("Assumption 1, tree of R", 0, len(spread), "agents whose states reach everybody"),
        below("Assumption 1, tree of C'", 0, len(gather), "agents whom everybody's trackers reach"),
        below("Assumption 1, common root", 0, len(spread & gather), "agents that are both"),
        below("Assumption 2 (i)", smooth, math.inf, "L of every agent's objective"),
        below(
            "Assumption 3", 0.0, mu, "mu of every agent's objective, and so the PL constant of their mean (Remark 14)"
        ),
    ]
    if problem.loss.clip is not None and problem.smoothness != problem.loss.curvature:
        detail = "mu and L are known of the objective without clipping, which clipped gradients do not belong to"
        found.insert(-1, Finding("Assumption 2 (i), clipping", False, detail))
    return found


def _draws(algorithm: GradientTracking) -> Finding:
    anew, name = isinstance(algorithm.sampling, (Fresh, Subset, Resample)), type(algorithm.sampling).__name__
    how = (
        "draws a step's records anew"
        if anew
        else "brings records back in a fixed order: given the past, a gradient is biased"
    )
    return Finding("Assumption 2 (ii)", anew, f"{name} {how}")


def _value(law: Schedule) -> float | None:
    if isinstance(law, PowerLaw) and law.exponent == 0:
        return law.scale
    return law.value if isinstance(law, Constant) else None


def _about(graph: Graph, problem: Problem, premises: list[Finding]) -> list[Finding]:
    """Why the constants are not to be had, if they are not."""
    if graph.agents == 1 or graph.agents > LARGEST:
        detail = f"the constants are about 2 to {LARGEST} agents (beyond, their singular values take too long), here {graph.agents}"
    elif not all(f.holds for f in premises if f.name.startswith("Assumption 1")):
        detail = "without Assumption 1 v_1'v_2 is 0, or v_1 and v_2 are not unique"
    elif not 0 < problem.smoothness[1] < math.inf:
        detail = "without a finite L above 0 there are no bounds on the step"
    else:
        return []
    return [Finding("Lemma 1", False, detail)]


def _constant_steps(steps: Steps, graph: Graph, problem: Problem, premises: list[Finding]) -> list[Finding]:
    """Lemma 1, the bounds of Assumption 5, and what they are there for."""
    if about := _about(graph, problem, premises):
        return about
    mu, smooth = problem.smoothness
    c, printed = (make(graph, steps.coupling, steps.tracking) for make in (constants, printed_constants))
    found = _lemma_1(steps, graph, c, printed)
    rows, columns = 1 / graph.row_sums.max(), 1 / graph.handed_out.max()
    limits, radii = step_limits(c, mu, smooth), step_limits(printed, mu, smooth)
    smoothest = c.agents / (15 * c.overlap * smooth)
    found += [
        below("Assumption 5, tracking", steps.tracking, min(columns, _inverse(c.r2)), "beta < min{1/column sum of C, 1/r_L2}"),
        _bounded("Assumption 5, coupling", steps.coupling, min(rows, _inverse(c.r1)), "alpha < min{1/row sum of R, 1/r_L1}"),
        _bounded("Assumption 5, coupling against tracking", steps.coupling, coupling_limit(c, steps.tracking),
                 "alpha < sqrt(330n) v_1'v_2 r_L2 beta / (66n |v_1| rho_W2 rho_L1)", coupling_limit(printed, steps.tracking)),
        _bounded("Assumption 5, step", steps.step, min(1.0, smoothest), "gamma < min{1, n/(15 v_1'v_2 L)}"),
        _bounded("Assumption 5, Q_1", steps.step, limits[0] * steps.coupling, "gamma < Q_1 alpha", radii[0] * steps.coupling),
        _bounded("Assumption 5, Q_2", steps.step, limits[1] * steps.tracking, "gamma < Q_2 beta", radii[1] * steps.tracking),
    ]  # fmt: skip
    if min(c.r1, c.r2) <= 0:
        detail = "without (35) and (50) in the Euclidean norm there is no A_K; a smaller coupling or tracking, or other weights, may help"
        return [*found, Finding("Lemma A.9, rho(A_K)", False, detail)]
    matrix = deficits(c, steps, mu, smooth)
    shown = 1 - gap(deficits(printed, steps, mu, smooth, printed=True)) if min(printed.r1, printed.r2) > 0 else math.nan
    spare, (cost, gain) = gap(matrix), descent(matrix, c, steps, smooth)
    detail = f"rho(A_K) = 1 - {spare:.4g} must be below 1 (as printed, with spectral radii: {shown:.10g})"
    claim = "(83), c'(I - M_K)^-1 b against what a step gains: the mean over k of E |grad F|^2 is O(1/K) when noise and 1/m fall with K"
    return [*found, Finding("Lemma A.9, rho(A_K)", spare > 0, detail, spare), below("Theorem 1", cost, gain, claim)]


def _lemma_1(steps: Steps, graph: Graph, c: Constants, printed: Constants) -> list[Finding]:
    rows = float(np.asarray(graph.pushed.sum(axis=1)).max())
    found = [
        below("Lemma 1, nonnegative, states", steps.coupling * float(graph.row_sums.max()), 1.0,
              "alpha times the largest row sum of R (at 1, which the lemma allows, (ii) may fail)"),
        below("Lemma 1, nonnegative, trackers", steps.tracking * float(graph.handed_out.max()), 1.0,
              f"beta times the largest column sum of C (the paper bounds row sums, {steps.tracking * rows:.4g} here, which (8) does not have)"),
        below("Lemma 1 (i)", 0.0, c.overlap, f"v_1'v_2, with |v_1| = {c.v1:.4g} and |v_2| = {c.v2:.4g}"),
    ]  # fmt: skip
    for who, lemma, step, r, radius in (
        ("states", "Lemma A.5, (35)", steps.coupling, c.r1, printed.r1),
        ("trackers", "Lemma A.6, (50)", steps.tracking, c.r2, printed.r2),
    ):
        found += [
            below(f"Lemma 1 (ii), {who}", 1 - step * radius, 1.0, f"spectral radius; r = {radius:.4g}"),
            below(lemma, 1 - step * r, 1.0, f"contraction of {who} in the Euclidean norm, where the paper takes the spectral radius; r = {r:.4g}"),
        ]  # fmt: skip
    return found


def _bounded(name: str, left: float, right: float, text: str, printed: float | None = None) -> Finding:
    also = "" if printed is None else f" (as printed, with spectral radii: {printed:.4g})"
    return below(name, left, right, text + also)


def _inverse(r: float) -> float:
    return 1 / r if r > 0 else math.inf


def _s1_bounds(horizon: int, a: Exponents, p: Exponents, graph: Graph, problem: Problem, steps: Steps) -> list[Finding]:
    """Lemma 1 at this K, Assumption 4's bounds on a_1, a_2, a_3, and the K that its proof starts from."""
    mu, smooth = problem.smoothness
    c, printed = (make(graph, steps.coupling, steps.tracking) for make in (constants, printed_constants))
    rows, columns = 1 / graph.row_sums.max(), 1 / graph.handed_out.max()
    found = [
        *_lemma_1(steps, graph, c, printed),
        below("Assumption 4, a_1", a[0], min(rows, _inverse(printed.r1)), "a_1 < min{1/row sum of R, 1/r_L1}; what is used is alpha_K"),
        below("Assumption 4, a_2", a[1], min(columns, _inverse(printed.r2)), "a_2 < min{1/column sum of C, 1/r_L2}; what is used is beta_K"),
        below("Assumption 4, a_3", a[2], c.agents / (4 * c.overlap * smooth), "a_3 < n/(4 v_1'v_2 L); what is used is gamma_K"),
    ]  # fmt: skip
    first = first_horizon(a, p, graph, mu, smooth)
    text = "rho(A_K) < 1 from this K on, so that Theorem 2's bound means something"
    return [*found, below("Theorem 2, first horizon", first, float(horizon), text, strict=False)]


def first_horizon(a: Exponents, p: Exponents, graph: Graph, mu: float, smooth: float) -> float:
    """K_0 of (88), with rho(A_K) < 1 for 1 - omega_K: infinite where no float reaches it. Uses r(alpha) >= r(0) - alpha |L|^2 / 2."""
    c = constants(graph, 0.0, 0.0)
    if min(c.r1, c.r2, mu) <= 0 or not p[1] < p[0] < p[2]:
        return math.inf

    def holds(horizon: float) -> bool:
        s = s1_steps(horizon, a, p)
        at = c._replace(r1=c.r1 - s.coupling * c.l1**2 / 2, r2=c.r2 - s.tracking * c.l2**2 / 2)
        return min(at.r1, at.r2) > 0 and contracts(deficits(at, s, mu, smooth))

    return first_step(holds, 0.0)


def _s1_rate(p: Exponents, noise: NoiseExponents, premises: list[Finding]) -> Finding:
    rate, (alpha, beta, gamma, _) = s1_rate(p, noise), p
    order = Finding("the order 0 < p_beta < p_alpha < p_gamma < 1", 0 < beta < alpha < gamma < 1, "")
    claim = (
        f"E |grad F|^2 falls at least like K^-{rate:.4g}"
        if rate > 0
        else f"a bound K^-({rate:.4g}), which does not fall"
    )
    final = _conclusion("Theorem 2", claim, [*premises, order])
    return final._replace(holds=final.holds and rate > 0, margin=rate)


def _s1_oracle(p: Exponents, rate: Finding) -> Finding:
    name = "Theorem 2, oracle complexity"
    if not rate.holds or rate.margin is None:
        return Finding(name, False, "without a rate no number of sampled gradients is promised")
    records = oracle_exponent(rate.margin, p[3])
    return Finding(
        name,
        True,
        f"error e takes about e^-{1 / rate.margin:.4g} steps and e^-{records:.4g} sampled gradients per agent",
    )


def _s2_rate(growth: float, noise: NoiseExponents, parts: list[Finding]) -> Finding:
    """Theorem 3. Of Assumption 5 only what rho(A_K) < 1 does not replace."""
    needed = [f for f in parts if not f.name.startswith("Assumption 5") or "noise" in f.name or "p_m" in f.name]
    needed = [f for f in needed if f.name not in ("Theorem 1", "Lemma 1 (ii), states", "Lemma 1 (ii), trackers")]
    spare = next((f.margin for f in parts if f.name == "Lemma A.9, rho(A_K)"), None)
    rho = 1 - spare if spare is not None else math.inf
    factor = max(rho, 1 / growth, noise[0] ** 2, noise[1] ** 2)
    spare = 1 - factor if factor > rho else spare  # keeps what 1 - rho would lose
    final = _conclusion(
        "Theorem 3", f"E |grad F|^2 falls at least like (1 - {spare:.4g})^K" if spare else "no factor", needed
    )
    return final._replace(margin=spare)


def _s2_oracle(growth: float, rate: Finding) -> Finding:
    name = "Theorem 3, oracle complexity"
    if not rate.holds or rate.margin is None:
        return Finding(name, False, "without a rate no number of sampled gradients is promised")
    power, steps = s2_oracle_exponent(growth, 1 - rate.margin), -1 / math.log1p(-rate.margin)
    return Finding(
        name,
        True,
        f"error e takes about {steps:.4g} ln(1/e) steps and e^-{power:.4g} ln(1/e) sampled gradients per agent",
    )


def _heard(theorem: str, steps: Steps, graph: Graph) -> list[Finding]:
    """0 < alpha sum_j R_ij < 1 and 0 < beta sum_j C_ij < 1 for every agent: with nobody to hear nothing of a record is forgotten."""
    found = []
    trackers = np.asarray(graph.pushed.sum(axis=1)).ravel()
    for what, step, sums in (("R", steps.coupling, graph.row_sums), ("C", steps.tracking, trackers)):
        low, high = step * float(sums.min()), step * float(sums.max())
        detail = f"every agent's row sum of {what}, times the step, must be between 0 and 1: {low:.4g} to {high:.4g}"
        found.append(Finding(f"{theorem}, rows of {what}", 0 < low and high < 1, detail, min(low, 1 - high)))
    return found


def _records(theorem: str, size: int, problem: Problem) -> Finding:
    text = "m_K different records of every agent (a fixed data set ends the growth of m_K, and K with it)"
    return below(f"{theorem}, records", size, float(problem.counts.min()), text, strict=False)


def _named(found: Sequence[Finding], start: str) -> list[Finding]:
    return [f for f in found if f.name.startswith(start)]


def _conclusion(name: str, claim: str, parts: list[Finding]) -> Finding:
    failing = "; ".join(f.name for f in parts if not f.holds)
    return Finding(name, not failing, f"not promised, because of {failing} (otherwise: {claim})" if failing else claim)
