"""Assumptions 1-5, Theorems 2-7 and Corollaries 1-3 of paper P3: what output_perturbation.py and
gradient_perturbation.py share.

With alpha_k = a_1 (k + a_2)^-alpha, beta_k = a_1 (k + a_2)^-beta, gamma_k = ceil(a_3
(k + a_2)^gamma) and noise scale b (k + a_2)^eta every condition but the bound on alpha_k / beta_k
is one on exponents. They are in exponents.py, in plain numbers, for a planner to call.

Three things the paper leaves out are checked here and named where they are: the steps must sum to
infinity (Theorems 3 and 6), a_1 mu must pass 1 - beta when alpha = 1 (Theorems 4 and 7), and a rate
of 0 is no convergence (Corollaries 1 and 2 allow it).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hearsay.algorithms.theory.exponents import (
    forgetting_rate,
    largest_ratio,
    oracle_exponent,
    peak,
    ratio_limits,
)
from hearsay.algorithms.theory.findings import Finding, below
from hearsay.algorithms.theory.onset import first_step
from hearsay.graphs import Graph
from hearsay.problems.sampling.samplers import Fresh, Poisson, Resample, Sampling, Sized, Subset
from hearsay.problems.task import Task
from hearsay.schedules import Constant, PowerLaw, SampleSize, Schedule

if TYPE_CHECKING:
    from hearsay.algorithms.gradient_perturbation import GradientPerturbation
    from hearsay.algorithms.output_perturbation import OutputPerturbation

LASTS = "finite forever, by the paper's formula"


def two_time_scales(
    form: Form, algorithm: OutputPerturbation | GradientPerturbation, graph: Graph, problem: Task
) -> list[Finding]:
    """The findings about one of the two algorithms."""
    premises = [*_objective(problem), _draws(algorithm.sampling, problem), *_graph(graph)]
    laws = _laws(algorithm, problem)
    if laws is None:
        detail = (
            "they are stated for power laws with a step and a coupling above 0; the schedules here"
            " are not"
        )
        return [*premises, Finding("Theorems 2-7", False, detail)]
    limit = _limit(form, laws, graph, problem, premises)
    rates = _rates(form, laws, problem, premises)
    budget = form.finite(laws)
    claim = "mean-square convergence at a budget, by the paper's formula, that is finite forever"
    both = _conclusion(form.both, claim, [*premises, *rates, *budget])
    return [*premises, *limit, *rates, _oracle(laws, rates[-1]), *budget, both, *_notes(form, laws)]


class Form(NamedTuple):
    """What the paper calls its statements about one of the two algorithms, and their formulas."""

    assumption: str
    limit: str
    rates: str
    budget: str
    both: str
    series: Callable[[float, float, float, float], dict[str, float]]
    rate: Callable[[float, float, float], float]
    noise_limit: Callable[[float, float], float]
    # Theorem 2 or 5: both let one record of every step change, each with the weight 1 / gamma_k.
    finite: Callable[[Laws], list[Finding]]


class Laws(NamedTuple):
    """The schedules as power laws, and their exponents."""

    step: PowerLaw
    coupling: PowerLaw
    alpha: float
    beta: float
    gamma: float
    eta: float  # of the agent whose noise grows fastest: convergence depends on it
    # Of the agent whose noise grows most slowly: budgets depend on it; minus infinity for one
    # without noise.
    slowest: float
    fades: float  # a record's weight in the mean of a step falls like k^-fades
    alike: bool  # one scale of step and coupling, one shift of all


def _laws(algorithm: OutputPerturbation | GradientPerturbation, problem: Task) -> Laws | None:
    sampling, scales = algorithm.sampling, algorithm.noise
    # A history grows by as much at every step; a Poisson batch stays as large, on average.
    history = Constant(1.0) if isinstance(sampling, Poisson) else PowerLaw(1.0, 1.0)
    size = (sampling.size if isinstance(sampling, Sized) else history) or Constant(
        float(problem.arrivals.per_step)
    )
    schedules = (
        algorithm.step,
        algorithm.coupling,
        size,
        *(scales if isinstance(scales, tuple) else (scales,)),
    )
    laws = [law for s in schedules if (law := _law(s)) is not None]
    if len(laws) < len(schedules) or min(laws[0].scale, laws[1].scale) <= 0:
        return None
    step, coupling, records, *noise = laws
    runs_out = not sampling.grows and bool(np.isfinite(problem.counts).any())
    return Laws(
        step,
        coupling,
        alpha=-step.exponent,
        beta=-coupling.exponent,
        gamma=records.exponent,
        eta=max((law.exponent for law in noise if law.scale > 0), default=-math.inf),
        slowest=min(law.exponent if law.scale > 0 else -math.inf for law in noise),
        fades=0.0 if runs_out or isinstance(sampling, Resample) else records.exponent,
        alike=step.scale == coupling.scale
        and len({law.shift for law in laws if law.exponent != 0}) <= 1,
    )


def _law(schedule: Schedule) -> PowerLaw | None:
    law = schedule.law if isinstance(schedule, SampleSize) else schedule
    return law.upper() if isinstance(law, (Constant, PowerLaw)) else None


def _objective(problem: Task) -> list[Finding]:
    mu, largest = problem.smoothness
    found = [
        below("Assumption 1, strong convexity", 0.0, mu, "mu of every agent's objective"),
        below("Assumption 1, smoothness", largest, math.inf, "L of every agent's objective"),
    ]
    if problem.loss.clip is not None and problem.smoothness != problem.loss.curvature:
        detail = (
            "mu and L are known of the objective without clipping, which clipped gradients do not"
            " belong to"
        )
        found.append(Finding("Assumption 1, clipping", False, detail))
    return found


def _draws(sampling: Sampling, problem: Task) -> Finding:
    anew, finite = (
        isinstance(sampling, (Fresh, Subset, Resample)),
        bool(np.isfinite(problem.counts).all()),
    )
    whole = finite and not (
        isinstance(sampling, Sized) and sampling.constant(problem.arrivals) is not None
    )
    if isinstance(sampling, Poisson):
        detail = (
            "a Poisson batch's gradient is unbiased (but for records over its cap), and its"
            " variance does not vanish where the records agree: the theorems bound that of a mean"
        )
    elif anew:
        detail = (
            "a step's records are drawn anew, from the stream or from the local data set (whose"
            " mean is then the objective)"
        )
    elif whole:
        detail = (
            "from the step on at which a batch is the whole local data set, a gradient is the"
            " objective's own"
        )
    else:
        detail = (
            f"{type(sampling).__name__} brings records back in a fixed order: given the past, a"
            " gradient is biased"
        )
    holds = not isinstance(sampling, Poisson) and (anew or whole)
    return Finding("Assumption 2", holds, detail)


def _graph(graph: Graph) -> list[Finding]:
    weights, columns = graph.weights, np.asarray(graph.weights.sum(axis=0)).ravel()
    gap = float(np.abs(columns - graph.row_sums).max())
    least = min([float(np.min(1 - graph.row_sums)), *weights.data.tolist()])
    one_way = (weights.astype(bool) != weights.T.astype(bool)).nnz
    return [
        Finding("Assumption 3, undirected", one_way == 0, f"{one_way // 2} edges go one way only"),
        below("Assumption 3, weights", 0.0, least, "smallest weight, an agent's own included"),
        below(
            "Assumption 3, doubly stochastic",
            gap,
            1e-9,
            "largest distance of a column's sum from 1",
            strict=False,
        ),
        below(
            "Assumption 3, sigma_2",
            graph.second_singular_value,
            1.0,
            "second singular value of the mixing matrix",
        ),
    ]


def _limit(
    form: Form, laws: Laws, graph: Graph, problem: Task, premises: list[Finding]
) -> list[Finding]:
    """Assumption 4 or 5, and Theorem 3 or 6 from the first step on at which its bounds hold:
    the past before it is a start like any other.
    """
    constants = (graph.agents, graph.second_singular_value, *problem.smoothness)

    def limits(k: float) -> tuple[float, float]:
        return ratio_limits(float(laws.step(k)), float(laws.coupling(k)), *constants)

    def settled(k: float) -> bool:
        step = float(laws.step(k))  # 0 where a float cannot hold it: nothing is known there
        return step > 0 and step / float(laws.coupling(k)) <= min(limits(k))

    ratio = largest_ratio(laws.step, laws.coupling)
    bounds = [
        below(
            f"{form.assumption}, ratio, {which} bound",
            ratio,
            right,
            "largest step/coupling",
            strict=False,
        )
        for which, right in zip(("first", "second"), limits(0), strict=True)
    ]
    unsaid = (
        "alpha, so that the steps sum to infinity (the proof needs it, the assumption leaves it"
        " out)"
    )
    series = [
        *(
            below(
                f"{form.assumption}, {name}", 1.0, fall, "the terms fall like k^-p with p above 1"
            )
            for name, fall in form.series(laws.alpha, laws.beta, laws.gamma, laws.eta).items()
        ),
        below(f"{form.limit}, sum step", laws.alpha, 1.0, unsaid, strict=False),
    ]
    start = 0.0 if all(f.holds for f in bounds) else math.inf
    if start and laws.alpha > laws.beta:
        start = first_step(settled, peak(laws.step, laws.coupling))
    shown = (
        f"step {start:,.0f}"
        if start < 1e6
        else f"about step {start:.3g}"
        if start < math.inf
        else "no known step"
    )
    burn_in = Finding(
        f"{form.limit}, first step",
        start < math.inf,
        f"both bounds on step/coupling hold from {shown} on",
    )
    claim = "every agent converges to the optimum, in mean square and almost surely"
    return [
        *bounds,
        *series,
        burn_in,
        _conclusion(form.limit, claim, [*premises, *series, burn_in]),
    ]


def _rates(form: Form, laws: Laws, problem: Task, premises: list[Finding]) -> list[Finding]:
    """Theorem 4 or 7. Noise that falls is O(k^0)."""
    name, mu = form.rates, problem.smoothness[0]
    alpha, beta, eta = laws.alpha, laws.beta, max(0.0, laws.eta)
    found = [
        below(f"{name}, step", alpha, 1.0, "alpha", strict=False),
        below(f"{name}, coupling", 0.0, beta, "beta"),
        below(f"{name}, order", beta, alpha, "beta against alpha"),
        below(f"{name}, sample size", 0.0, laws.gamma, "gamma", strict=False),
        below(
            f"{name}, noise",
            eta,
            form.noise_limit(alpha, beta),
            "largest noise exponent eta",
            strict=False,
        ),
    ]
    rate, factor = form.rate(alpha, beta, eta), ""
    if alpha == 1:
        slow = forgetting_rate(beta, laws.step.scale, mu)
        text = "1 - beta against a_1 mu, for a rate above 0 (the theorem leaves it out)"
        found.append(below(f"{name}, scale", 1 - beta, 1 - beta + slow, text))
        rate, factor = min(rate, slow), "ln(k) "
    claim = f"expected squared error falls at least like {factor}k^-{rate:.4g}"
    final = _conclusion(
        f"{name}, rate",
        claim if rate > 0 else f"a bound k^-({rate:.4g}), which does not fall",
        [*premises, *found],
    )
    return [*found, final._replace(holds=final.holds and rate > 0, margin=rate)]


def _oracle(laws: Laws, rate: Finding) -> Finding:
    if not rate.holds or rate.margin is None:
        return Finding(
            "Corollary 3", False, "without a rate no number of sampled gradients is promised"
        )
    steps, records = 1 / rate.margin, oracle_exponent(rate.margin, laws.gamma)
    extra = ", up to logarithms" if laws.alpha == 1 else ""
    detail = (
        f"accuracy e needs about e^-{steps:.4g} steps and e^-{records:.4g} sampled gradients per"
        f" agent{extra}"
    )
    return Finding("Corollary 3", True, detail)


def _notes(form: Form, laws: Laws) -> list[Finding]:
    """Where the configuration is not of the paper's form, and what that changes;
    the findings above take it into account.
    """
    found = []
    if laws.fades < laws.gamma:
        detail = (
            "a finite data set or draws with replacement: no weight falls like 1/gamma_k forever,"
            " so gamma counts as 0 here (not for the rates)"
        )
        found.append(Finding(f"{form.budget}, weights", False, detail, laws.fades - laws.gamma))
    if not laws.alike:
        detail = (
            "stated for one scale of step and coupling and one shift of all schedules; with others"
            " the exponents hold, the constants do not"
        )
        found.append(Finding(f"{form.rates}, schedules", False, detail))
    return found


def _conclusion(name: str, claim: str, parts: list[Finding]) -> Finding:
    failing = "; ".join(f.name for f in parts if not f.holds)
    return Finding(
        name,
        not failing,
        f"not promised, because of {failing} (otherwise: {claim})" if failing else claim,
    )
