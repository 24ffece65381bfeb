"""Assumptions 1-5, Theorems 2-7 and Corollaries 1-3 of paper P3.

With alpha_k = a_1 (k + a_2)^-alpha, beta_k = a_1 (k + a_2)^-beta, gamma_k = ceil(a_3 (k + a_2)^gamma) and noise scale b (k + a_2)^eta every condition but the
bound on alpha_k / beta_k is one on exponents. Each public function is one of them, in plain numbers, for a planner to call.

Three things the paper leaves out are checked here and named where they are: the steps must sum to infinity (Theorems 3 and 6), a_1 mu must pass
1 - beta when alpha = 1 (Theorems 4 and 7), and a rate of 0 is no convergence (Corollaries 1 and 2 allow it).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hearsay.base import Finding
from hearsay.graphs import Graph
from hearsay.problems.problem import Problem
from hearsay.problems.sampling import Fresh, History, Resample, Sampling, Sized, Subset
from hearsay.schedules import Constant, PowerLaw, SampleSize, Schedule
from hearsay.theory.findings import below

if TYPE_CHECKING:
    from hearsay.algorithms.sample_sizes import GradientPerturbation, OutputPerturbation


def output_rate(alpha: float, beta: float, eta: float) -> float:
    """Theorem 4, alpha < 1: the expected squared error falls at least like k^-rate (alpha = 1: times ln k, and see `slow_start`).

    For alpha < 1 the proof asks no more than 0 < beta < alpha and a rate above 0; the theorem's own limit on eta is tighter.
    """
    return _exact(min(3 * beta - 2 * alpha - 2 * eta, alpha - beta))


def gradient_rate(alpha: float, beta: float, eta: float) -> float:
    """Theorem 7, in the same way."""
    return _exact(min(beta - 2 * eta, alpha - beta - 2 * eta))


def slow_start(beta: float, scale: float, mu: float) -> float:
    """a_1 mu - 1 + beta, which the rate does not pass when alpha = 1 (Theorems 4 and 7)."""
    return _exact(scale * mu - 1 + beta)


def oracle_exponent(rate: float, gamma: float) -> float:
    """Corollary 3 for any schedule: an expected squared error e takes K ~ e^(-1/rate) steps, which is K^(1 + gamma) sampled gradients, e^-exponent."""
    return (1 + gamma) / rate if rate > 0 else math.inf


def output_noise_limit(alpha: float, beta: float) -> float:
    """Theorem 4: the largest eta."""
    return _exact((3 * beta - 2) / 2)


def gradient_noise_limit(alpha: float, beta: float) -> float:
    """Theorem 7: the largest eta."""
    return _exact(min(beta, alpha - beta) / 2)


def output_series(alpha: float, beta: float, gamma: float, eta: float) -> dict[str, float]:
    """The sums of Assumption 4: terms fall like k^-p, and the sum is finite when p > 1."""
    falls = {
        "sum step^2/coupling": 2 * alpha - beta,
        "sum coupling^2 noise^2": 2 * beta - 2 * eta,
        "sum step^2/(size coupling)": 2 * alpha + gamma - beta,
        "sum step^2/size": 2 * alpha + gamma,
    }
    return {name: _exact(p) for name, p in falls.items()}


def gradient_series(alpha: float, beta: float, gamma: float, eta: float) -> dict[str, float]:
    """The sums of Assumption 5, as printed (its step/size is step^2/size in the proof, which is weaker)."""
    falls = {
        "sum step^2/coupling": 2 * alpha - beta,
        "sum step^2/(size coupling)": 2 * alpha + gamma - beta,
        "sum step^2 noise^2/coupling": 2 * alpha + -2 * eta - beta,
        "sum step/size": alpha + gamma,
        "sum step^2 noise^2": 2 * alpha - 2 * eta,
    }
    return {name: _exact(p) for name, p in falls.items()}


class Case(NamedTuple):
    """A case of Theorem 2: how far inside it the exponents lie, and by how much its last inequality holds."""

    name: str
    inside: float
    margin: float


def output_budget(alpha: float, beta: float, gamma: float, eta: float, scale: float) -> Case:
    """Theorem 2: the case that applies; with a margin above 0 the paper's budget is finite for ever. scale: a_1 of the coupling."""
    if beta < 1:
        return Case("(iii)", min(beta, _exact(1 - beta)), _exact(alpha + gamma - beta + eta - 1))
    if beta > 1:
        return Case("none", _exact(1 - beta), -math.inf)
    inside = _exact(1 - (alpha + gamma - scale))
    if inside > 0:
        return Case("(i)", inside, _exact(alpha + gamma + eta - 2))
    return Case("(ii)", -inside, _exact(scale + eta - 1))


def gradient_budget(gamma: float, eta: float) -> float:
    """Theorem 5: with a margin above 0 the paper's budget is finite for ever."""
    return _exact(gamma + eta - 1)


def largest_ratio(step: PowerLaw, coupling: PowerLaw) -> float:
    """sup_k alpha_k / beta_k. With one shift for both it is met at k = 0; with two the ratio may first rise."""
    if step.exponent > coupling.exponent:
        return math.inf
    first = float(step(0) / coupling(0))
    if step.exponent == coupling.exponent:
        return max(first, step.scale / coupling.scale)
    top = _peak(step, coupling)
    return max(first, *(float(step(k) / coupling(k)) for k in (math.floor(top), math.ceil(top))))


def ratio_limits(
    step0: float, coupling0: float, agents: int, second: float, mu: float, largest: float
) -> tuple[float, float]:
    """The two terms that sup_k alpha_k / beta_k must not pass (Assumptions 4 and 5). second: sigma_2; largest: every agent's L_i."""
    gap, square = 1 - second, agents * largest**2  # the paper's L^2 is the sum of all L_i^2
    inner = 6 * square * step0 + agents * gap * mu * coupling0
    return (
        2 * gap / (3 * mu) if mu > 0 else math.inf,
        gap**2 * mu**2 * coupling0 / (16 * inner * (coupling0 + 1) * square),
    )


def sample_sizes(algorithm: OutputPerturbation | GradientPerturbation, graph: Graph, problem: Problem) -> list[Finding]:
    """Nothing for other algorithms: baselines that inherit the update do not inherit its theorems."""
    form = _FORMS.get(type(algorithm).name)
    if form is None:
        return []
    premises = [*_objective(problem), _draws(algorithm.sampling), *_graph(graph)]
    laws = _laws(algorithm, problem)
    if laws is None:
        detail = "they are stated for power laws with a step and a coupling above 0; the schedules here are not"
        return [*premises, Finding("Theorems 2-7", False, detail)]
    limit = _limit(form, laws, graph, problem, premises)
    rates = _rates(form, laws, problem, premises)
    budget = _budget(form, laws, getattr(algorithm, "feedback", False))
    claim = "converges in mean square, at a budget (by the paper's formula) that is finite for ever"
    both = _conclusion(form.both, claim, [*premises, *rates, *budget])
    return [*premises, *limit, *rates, _oracle(laws, rates[-1]), *budget, both, *_shapes(form, laws)]


class _Form(NamedTuple):
    """What the paper calls its statements about one of the two algorithms, and their formulas."""

    assumption: str
    limit: str
    rates: str
    budget: str
    both: str
    series: Callable[[float, float, float, float], dict[str, float]]
    rate: Callable[[float, float, float], float]
    noise_limit: Callable[[float, float], float]


_FORMS = {
    "output-perturbation": _Form(
        "Assumption 4", "Theorem 3", "Theorem 4", "Theorem 2", "Corollary 1",
        output_series, output_rate, output_noise_limit,
    ),
    "gradient-perturbation": _Form(
        "Assumption 5", "Theorem 6", "Theorem 7", "Theorem 5", "Corollary 2",
        gradient_series, gradient_rate, gradient_noise_limit,
    ),
}  # fmt: skip


class _Laws(NamedTuple):
    """The schedules as power laws; a record's weight in a step's mean falls like k^-fades."""

    step: PowerLaw
    coupling: PowerLaw
    size: PowerLaw
    noise: tuple[PowerLaw, ...]
    fades: float

    @property
    def alpha(self) -> float:
        return -self.step.exponent

    @property
    def beta(self) -> float:
        return -self.coupling.exponent

    @property
    def gamma(self) -> float:
        return self.size.exponent

    @property
    def eta(self) -> float:
        """Of the agent whose noise grows fastest: convergence depends on it."""
        return max((law.exponent for law in self.noise if law.scale > 0), default=-math.inf)

    @property
    def slowest(self) -> float:
        """Of the agent whose noise grows most slowly: budgets depend on it. An agent without noise has none."""
        return min(law.exponent if law.scale > 0 else -math.inf for law in self.noise)


def _laws(algorithm: OutputPerturbation | GradientPerturbation, problem: Problem) -> _Laws | None:
    sampling, noise = algorithm.sampling, algorithm.noise
    own = (
        sampling.size if isinstance(sampling, Sized) else PowerLaw(1.0, 1.0)
    )  # a history grows by as much at every step
    size = own or Constant(float(problem.arrivals.per_step))
    schedules = (algorithm.step, algorithm.coupling, size, *(noise if isinstance(noise, tuple) else (noise,)))
    laws = [law for s in schedules if (law := _law(s)) is not None]
    if len(laws) < len(schedules) or min(laws[0].scale, laws[1].scale) <= 0:
        return None
    runs_out = not sampling.grows and bool(np.isfinite(problem.counts).any())
    fades = 0.0 if runs_out or isinstance(sampling, Resample) else laws[2].exponent
    return _Laws(laws[0], laws[1], laws[2], tuple(laws[3:]), fades)


def _law(schedule: Schedule) -> PowerLaw | None:
    law = schedule.law if isinstance(schedule, SampleSize) else schedule
    return law.upper() if isinstance(law, (Constant, PowerLaw)) else None


def _objective(problem: Problem) -> list[Finding]:
    mu, largest = problem.smoothness
    found = [
        below("Assumption 1, strong convexity", 0.0, mu, "mu of every agent's objective"),
        below("Assumption 1, smoothness", largest, math.inf, "L of every agent's objective"),
    ]
    if problem.loss.clip is not None and problem.smoothness != problem.loss.curvature:
        detail = "mu and L are known of the objective without clipping, which clipped gradients do not belong to"
        found.append(Finding("Assumption 1, clipping", False, detail))
    return found


def _draws(sampling: Sampling) -> Finding:
    holds = isinstance(sampling, (Fresh, Subset, Resample))
    detail = (
        "a step's records are drawn anew, from the stream or from the local data set (whose mean is then the objective)"
    )
    if not holds:
        detail = f"{type(sampling).__name__} brings records back in a fixed order: given the past, a gradient is not unbiased"
    return Finding("Assumption 2", holds, detail)


def _graph(graph: Graph) -> list[Finding]:
    weights, columns = graph.weights, np.asarray(graph.weights.sum(axis=0)).ravel()
    gap = float(np.abs(columns - graph.row_sums).max())
    least = min([float(np.min(1 - graph.row_sums)), *weights.data.tolist()])
    one_way = (weights.astype(bool) != weights.T.astype(bool)).nnz
    return [
        Finding("Assumption 3, undirected", one_way == 0, f"{one_way // 2} edges go one way only"),
        below("Assumption 3, weights", 0.0, least, "smallest weight, an agent's own included"),
        below("Assumption 3, doubly stochastic", gap, 1e-9, "largest distance of a column's sum from 1", strict=False),
        below("Assumption 3, sigma_2", graph.second_singular_value, 1.0, "second singular value of the mixing matrix"),
    ]


def _limit(form: _Form, laws: _Laws, graph: Graph, problem: Problem, premises: list[Finding]) -> list[Finding]:
    """Assumption 4 or 5, and Theorem 3 or 6 from the first step on at which its bounds hold: the past before it is a start like any other."""
    constants = (graph.agents, graph.second_singular_value, *problem.smoothness)

    def settled(k: float) -> bool:
        step, coupling = float(laws.step(k)), float(laws.coupling(k))
        return step / coupling <= min(ratio_limits(step, coupling, *constants))

    left, ratio = ratio_limits(float(laws.step(0)), float(laws.coupling(0)), *constants), largest_ratio(*laws[:2])
    bounds = [
        below(f"{form.assumption}, ratio, {which} bound", ratio, right, "largest step/coupling", strict=False)
        for which, right in zip(("first", "second"), left, strict=True)
    ]
    series = [
        below(f"{form.assumption}, {name}", 1.0, fall, "the terms fall like k^-p with p above 1")
        for name, fall in form.series(laws.alpha, laws.beta, laws.gamma, laws.eta).items()
    ]
    unsaid = "alpha, so that the steps sum to infinity (the proof needs it, the assumption leaves it out)"
    series.append(below(f"{form.limit}, sum step", laws.alpha, 1.0, unsaid, strict=False))
    start = first_step(settled, max(0.0, _peak(*laws[:2]))) if laws.alpha > laws.beta else math.inf
    shown = f"from step {start:,.0f} on" if start < 1e6 else f"from about step {start:.3g} on"
    shown = "from no step on" if math.isinf(start) else shown
    burn_in = Finding(f"{form.limit}, first step", start < math.inf, f"both bounds on step/coupling hold {shown}")
    claim = f"every agent converges to the optimum, in mean square and almost surely (the bounds hold {shown})"
    return [*bounds, *series, burn_in, _conclusion(form.limit, claim, [*premises, *series, burn_in])]


def first_step(holds: Callable[[float], bool], start: float) -> float:
    """The first step, from `start` on, at which a condition holds that stays true once it is; infinite where no float reaches it."""
    low, high = math.ceil(start) - 1.0, float(math.ceil(start))
    while not holds(high):
        low, high = high, 2 * high + 1
        if high > 1e300:
            return math.inf
    while high - low > max(1.0, 1e-9 * high):
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _rates(form: _Form, laws: _Laws, problem: Problem, premises: list[Finding]) -> list[Finding]:
    """Theorem 4 or 7. Noise that falls is O(k^0)."""
    name, mu = form.rates, problem.smoothness[0]
    alpha, beta, eta = laws.alpha, laws.beta, max(0.0, laws.eta)
    found = [
        below(f"{name}, step", alpha, 1.0, "alpha", strict=False),
        below(f"{name}, coupling", 0.0, beta, "beta"),
        below(f"{name}, order", beta, alpha, "beta against alpha"),
        below(f"{name}, sample size", 0.0, laws.gamma, "gamma", strict=False),
        below(f"{name}, noise", eta, form.noise_limit(alpha, beta), "largest noise exponent eta", strict=False),
    ]
    rate, factor = form.rate(alpha, beta, eta), ""
    if alpha == 1:
        slow = slow_start(beta, laws.step.scale, mu)
        text = "1 - beta against a_1 mu, for a rate above 0 (the theorem leaves it out)"
        found.append(below(f"{name}, scale", 1 - beta, 1 - beta + slow, text))
        rate, factor = min(rate, slow), "ln(k) "
    promise = f"falls at least like {factor}k^-{rate:.4g}" if rate > 0 else "is not promised to fall"
    final = _conclusion(f"{name}, rate", f"expected squared error {promise}", [*premises, *found])
    return [*found, final._replace(holds=final.holds and rate > 0, margin=rate)]


def _oracle(laws: _Laws, rate: Finding) -> Finding:
    if not rate.holds or rate.margin is None:
        return Finding("Corollary 3", False, "without a rate no number of sampled gradients is promised")
    steps, records = 1 / rate.margin, oracle_exponent(rate.margin, laws.gamma)
    extra = ", up to logarithms" if laws.alpha == 1 else ""
    detail = f"accuracy e needs about e^-{steps:.4g} steps and e^-{records:.4g} sampled gradients per agent{extra}"
    return Finding("Corollary 3", True, detail)


def _budget(form: _Form, laws: _Laws, feedback: bool) -> list[Finding]:
    """Theorem 2 or 5. Both let one record of every step change, each with the weight 1 / gamma_k."""
    name, found = form.budget, []
    if feedback:
        detail = "it is about agents that keep their own state without its noise; with feedback the certificate alone answers"
        return [Finding(f"{name}, budget", False, detail)]
    if laws.fades < laws.gamma:
        detail = "a finite data set or draws with replacement: no weight falls like 1/gamma_k, so gamma counts as 0 here (not for the rates)"
        found.append(Finding(f"{name}, weights", False, detail, laws.fades - laws.gamma))
    if form.series is gradient_series:
        margin = gradient_budget(laws.fades, laws.slowest)
        return [*found, _finite(name, "gamma + eta > 1", margin)]
    case = output_budget(laws.alpha, laws.beta, laws.fades, laws.slowest, laws.coupling.scale)
    return [
        *found,
        below(f"{name}, step", 0.0, min(laws.alpha, 1.0), "alpha above 0"),
        below(f"{name}, step at most", laws.alpha, 1.0, "alpha", strict=False),
        below(f"{name}, noise", 0.0, laws.slowest, "smallest noise exponent eta", strict=False),
        below(f"{name}, first coupling", float(laws.coupling(0)), 1.0, "beta_0 = a_1/a_2^beta"),
        Finding(f"{name}, case", case.inside > 0 or case.name == "(ii)", _CASES[case.name][0], case.inside),
        _finite(name, f"case {case.name}, {_CASES[case.name][1]}", case.margin),
    ]


# The case's own conditions, and the inequality that then makes the budget finite.
_CASES = {
    "(i)": ("case (i): beta = 1 and alpha + gamma - a_1 < 1", "alpha + gamma + eta > 2"),
    "(ii)": ("case (ii): beta = 1 and alpha + gamma - a_1 >= 1", "a_1 + eta > 1"),
    "(iii)": ("case (iii): 0 < beta < 1", "alpha + gamma - beta + eta > 1"),
    "none": ("no case: beta is above 1", "there is none"),
}


def _finite(name: str, rule: str, margin: float) -> Finding:
    return Finding(
        f"{name}, budget",
        margin > 0,
        f"the paper's budget is finite for ever when {rule}: {margin:.4g} to spare",
        margin,
    )


def _shapes(form: _Form, laws: _Laws) -> list[Finding]:
    """(k + s)^p and (k + t)^p have the same exponent, which is all that the theorems' O() keeps."""
    shifts = {law.shift for law in (laws.step, laws.coupling, laws.size, *laws.noise) if law.exponent != 0}
    if len(shifts) <= 1 and laws.step.scale == laws.coupling.scale:
        return []
    detail = "stated for one shift a_2 of all schedules and one scale a_1 of step and coupling; with others the exponents hold, the constants do not"
    return [Finding(f"{form.rates}, schedules", False, detail)]


def _conclusion(name: str, claim: str, parts: list[Finding]) -> Finding:
    failing = [f.name for f in parts if not f.holds]
    return Finding(name, not failing, f"{claim}, if these held: {'; '.join(failing)}" if failing else claim)


def _peak(step: PowerLaw, coupling: PowerLaw) -> float:
    """Where the ratio alpha_k / beta_k is largest, for a step that falls faster than the coupling."""
    alpha, beta = -step.exponent, -coupling.exponent
    return max(0.0, (beta * step.shift - alpha * coupling.shift) / (alpha - beta))


def _exact(value: float) -> float:
    """Without the last digits: 3 * 0.9 - 2 - 2 * 0.35 is 0, not 2e-16, and a condition met with equality must read so."""
    return round(value, 12)
