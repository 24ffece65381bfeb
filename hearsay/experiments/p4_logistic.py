"""Paper P4, section V-A: logistic regression by online federated learning (Fig. 3).

As printed: 20 learners, 100 dimensions, 5000 records each, tau = 5, R = 1000, synthetic(0.1, 0.1),
(epsilon, delta) in {(0.5, 1e-3), (2, 1e-3)}, ten repetitions, one step size for all but independent
noise, which has a smaller one.

Not printed, and chosen here: the step sizes (eta = 0.001 with eta_g = 1, so that eta tilde = 1/8L
exactly, the largest that Lemma IV.9 allows; a quarter of it where independent noise has the
smaller one), the bound on a record (features shortened to norm 10, hence B_g = 10), and the ball
(radius 10) that models are kept in and that the rounds' optima are taken over. The ten repetitions
differ in their noise; the data are the same. The numbers are in data/p4.toml.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from hearsay.algorithms import CorrelatedFederated
from hearsay.algorithms.theory.correlated_federated import bound_of, correlated_federated
from hearsay.certification import calibrate, certify
from hearsay.experiments import parts, settings
from hearsay.experiments.runner import Experiment, Findings, conditions
from hearsay.experiments.settings import Table
from hearsay.graphs import Graph
from hearsay.mechanisms.factorized.kinds import factorization
from hearsay.privacy.certificate import show
from hearsay.problems import Problem
from hearsay.schedules import Constant
from hearsay.simulation.regret import Comparators, Regret, comparators

SETTINGS = settings.read("p4-logistic")
EPSILONS, DELTA, TAU, STEP = (SETTINGS[key] for key in ("epsilons", "delta", "tau", "step"))
TOEPLITZ, SMALLER = "MF (iii), toeplitz", "independent, smaller step"
Results = dict[str, tuple[CorrelatedFederated, Regret]]


def problem_and_graph(rounds: int = SETTINGS["rounds"], **options: Any) -> tuple[Problem, Graph]:
    return SETTINGS.problem(records=TAU * rounds, **options), SETTINGS.graph()


def methods(rounds: int, step: float = STEP) -> dict[str, Any]:
    """All of Fig. 3; the noise is still to be calibrated."""
    return {
        name: SETTINGS.algorithm(
            name, rounds, step=(SETTINGS["smaller"] if name == SMALLER else 1.0) * step
        )
        for name in SETTINGS["algorithms"]
    }


def calibrated(algorithm: Any, problem: Problem, graph: Graph, epsilon: float) -> Any:
    if algorithm.name == "federated-noiseless":
        return algorithm
    return calibrate(algorithm, problem, graph, algorithm.horizon, epsilon, delta=DELTA)


def figure_3(
    experiment: Experiment, problem: Problem, graph: Graph, rounds: int, against: Comparators
) -> dict[float, Results]:
    found: dict[float, Results] = {epsilon: {} for epsilon in EPSILONS}
    made = methods(rounds)
    for epsilon, name in experiment.each("Fig. 3", product(EPSILONS, made)):
        ready = calibrated(made[name], problem, graph, epsilon)
        if name == "noiseless" and name in found[EPSILONS[0]]:
            found[epsilon][name] = found[EPSILONS[0]][name]
            continue
        # Without noise all seeds are the same.
        seeds = 1 if name == "noiseless" else experiment.seeds
        result = parts.regret(ready, problem, graph, rounds, seeds, against)
        found[epsilon][name] = (ready, result)
    return found


def finals(problem: Problem, graph: Graph, rounds: int, found: dict[float, Results]) -> Table:
    rows = []
    for epsilon, results in found.items():
        for name, (algorithm, regret) in results.items():
            certificate = certify(algorithm, problem, graph, rounds, delta=DELTA)
            paper = algorithm.paper_epsilon(graph, 0, problem, rounds, DELTA)
            accuracy, dynamic = (values[-1] for values in _measures(regret).values())
            rows.append(
                [
                    f"{epsilon:g}",
                    name,
                    f"{float(algorithm.step(0)):g}",
                    f"{float(algorithm.noise_for(0)(0)):.4g}",
                    show(certificate.epsilon[0]),
                    "-" if paper is None else show(paper),
                    *map(_spread, (accuracy, dynamic, regret.averaged("static")[-1])),
                ]
            )
    return SETTINGS.table("finals", rows, rounds=rounds, delta=DELTA)


def errors(longest: int, dense: int) -> Table:
    """Sensitivity times root-mean-square error of the prefix sums:
    what a factorization adds to every model, per unit of S / sqrt(2 rho).
    """
    rows, kinds = [], SETTINGS["factorizations"]["kinds"]
    for length in (r for r in SETTINGS["factorizations"]["lengths"] if r <= longest):
        known = [
            factorization(kind, length) for kind in kinds if kind != "dense" or length <= dense
        ]
        products = [f"{f.sensitivity * f.error():.4g}" for f in known]
        rows.append([f"{length:,}", *products, *["-"] * (len(kinds) - len(products))])
    return SETTINGS.table("factorizations", rows, dense=dense)


def best_steps(
    experiment: Experiment,
    problem: Problem,
    graph: Graph,
    found: dict[float, Results],
    powers: tuple[int, int],
) -> Table:
    """Every method at its own best step, by dynamic regret: is it the step or the noise?"""
    rows, seeds = [], min(experiment.seeds, SETTINGS["seeds"])
    names = [name for name in SETTINGS["algorithms"] if name not in ("noiseless", SMALLER)]
    for epsilon, name in experiment.each("best steps", product(found, names)):
        # The noise for this budget is the same for all steps up to 2/L.
        ready, regret = found[epsilon][name]
        scores = {}
        for step in (STEP * 2.0**p for p in range(powers[0], powers[1] + 1)):
            option = replace(ready, step=Constant(step))
            scores[step] = parts.regret(
                option, problem, graph, ready.horizon, seeds, regret.comparators
            )
        best = min(scores, key=lambda s: float(scores[s].averaged()[-1].mean()))
        ends = (_spread(values[-1]) for values in _measures(scores[best]).values())
        rows.append([f"{epsilon:g}", name, f"{best:g}", *ends])
    values = {"step": STEP, "least": powers[0], "most": powers[1], "seeds": seeds}
    return SETTINGS.table("best-steps", rows, **values)


def bounds(experiment: Experiment, rounds: int) -> Table:
    """Lemma IV.9 needs mu > 0, so beside it the measured regret with a ridge."""
    ridge, seeds = SETTINGS["ridge"], min(experiment.seeds, SETTINGS["seeds"])
    problem, graph = problem_and_graph(rounds, ridge=ridge)
    against, rows = comparators(problem, rounds, TAU), []
    step = 1 / (8 * problem.loss.curvature[1] * TAU)
    distance = float(np.linalg.norm(against.fixed.params))
    for epsilon, name in experiment.each("bounds", product(EPSILONS, (TOEPLITZ, "independent"))):
        ready = calibrated(methods(rounds, step)[name], problem, graph, epsilon)
        regret = parts.regret(ready, problem, graph, rounds, seeds, against)
        bound = bound_of(ready, problem, against.variation, distance)
        longest = np.linalg.norm(regret.models, axis=2).max()
        terms = (f"{value:.3g}" for value in (bound.total, *bound, longest))
        rows.append([f"{epsilon:g}", name, _spread(regret.averaged()[-1]), *terms])
    reach = problem.domain.reach(problem.dimension)
    return SETTINGS.table("bounds", rows, ridge=ridge, reach=reach)


def measure(experiment: Experiment) -> Findings:
    rounds = experiment.share(SETTINGS["rounds"], SETTINGS["least"])
    problem, graph = problem_and_graph(rounds)
    experiment.progress("optima", 0, 1)
    against = comparators(problem, rounds, TAU)
    experiment.progress("optima", 1, 1)
    found = figure_3(experiment, problem, graph, rounds, against)
    powers = SETTINGS["sweep" if float(experiment.scale) > SETTINGS["short"] else "short_sweep"]
    toeplitz = found[EPSILONS[0]][TOEPLITZ][0]
    lengths = SETTINGS["factorizations"]["lengths"]
    return Findings(
        tables={
            "finals": finals(problem, graph, rounds, found),
            "best-steps": best_steps(experiment, problem, graph, found, powers),
            "bounds": bounds(experiment, rounds),
            "factorizations": errors(
                experiment.share(lengths[-1], lengths[0]), max(lengths[0], rounds)
            ),
            "conditions": conditions(
                SETTINGS.text("conditions"), correlated_federated(toeplitz, graph, problem)
            ),
        },
        files=_curves(found),
        figures=_figures(found, experiment.seeds),
        values=_about(problem, graph, rounds, found),
    )


def _spread(values: np.ndarray) -> str:
    return f"{values.mean():.4f}" + (f" ± {values.std(ddof=1):.4f}" if len(values) > 1 else "")


def _measures(regret: Regret) -> dict[str, np.ndarray]:
    assert regret.accuracy is not None
    return {
        SETTINGS.text("accuracy"): regret.accuracy,
        SETTINGS.text("regret"): regret.averaged(),
    }


def _curves(found: dict[float, Results]) -> dict[str, Table]:
    """Mean and standard deviation of every method at every tenth round."""
    tables: dict[str, Table] = {}
    for epsilon, results in found.items():
        rows = []
        for name, (_, regret) in results.items():
            accuracy, summed = _measures(regret).values()
            for r in range(9, len(accuracy), 10):
                cells = [
                    f"{s:.6g}" for m in (accuracy[r], summed[r]) for s in (m.mean(), _deviation(m))
                ]
                rows.append([name, str(r + 1), *cells])
        tables[f"curves-{epsilon:g}"] = SETTINGS.table("curves", rows, epsilon=epsilon)
    return tables


def _deviation(values: np.ndarray) -> np.ndarray:
    return values.std(axis=-1, ddof=1) if values.shape[-1] > 1 else np.zeros(values.shape[:-1])


def _figures(found: dict[float, Results], seeds: int) -> list[tuple[str, Any]]:
    from hearsay.report.plot_style import new_figure

    figures = []
    for epsilon, measure in product(found, ("accuracy", "regret")):
        what = SETTINGS.text(measure)
        figure, ax = new_figure()
        _draw(ax, {n: _measures(r)[what] for n, (_, r) in found[epsilon].items()}, what)
        text = SETTINGS.text("figure", epsilon=epsilon, delta=DELTA, measure=what, seeds=seeds)
        figures.append((text, figure))
    return figures


def _draw(ax: Any, lines: dict[str, np.ndarray], what: str) -> None:
    """The mean over seeds of every method, with a band of one standard deviation."""
    from hearsay.report.plot_style import line_style, log_scale, plain_ticks, styled

    drawn = []
    with styled():
        for index, (name, values) in enumerate(lines.items()):
            # Enough for a figure.
            at = np.arange(0, len(values), max(1, len(values) // 250))
            mean, spread, style = values[at].mean(axis=1), _deviation(values[at]), line_style(index)
            ax.plot(at, mean, label=name, **style)
            band: dict[str, Any] = {"color": style["color"], "alpha": 0.18, "linewidth": 0}
            ax.fill_between(at, mean - spread, mean + spread, **band)
            drawn.append(mean[:, None])
        ax.set_xlabel("round")
        ax.set_ylabel(what)
        if percent := what == SETTINGS.text("accuracy"):
            ax.set_ylim(0.45, 1.0)
        else:
            log_scale(ax, drawn)
        plain_ticks(ax, percent)
        ax.legend(fontsize=7)


def _about(
    problem: Problem, graph: Graph, rounds: int, found: dict[float, Results]
) -> dict[str, Any]:
    curvature = problem.loss.curvature[1]
    algorithm = found[EPSILONS[0]][TOEPLITZ][0]
    (small, _, _), *_ = algorithm.sensitivities(problem)
    edge, large = (
        replace(algorithm, step=Constant(factor * 2 / curvature)).sensitivities(problem)[0][0]
        for factor in (1, 2)
    )
    against = found[EPSILONS[0]]["noiseless"][1].comparators
    return {
        "delta": DELTA,
        "epsilons": EPSILONS,
        "regrets": {
            e: {n: float(r.averaged()[-1].mean()) for n, (_, r) in results.items()}
            for e, results in found.items()
        },
        "curvature": curvature,
        "step": float(algorithm.step(0)),
        "small": small,
        "edge": edge,
        "large": large,
        "papers": [
            found[e][TOEPLITZ][0].paper_epsilon(graph, 0, problem, rounds, DELTA) for e in EPSILONS
        ],
        "reach": problem.domain.reach(problem.dimension),
        "together": against.labels.shape[1],
        "dimension": problem.dimension,
        "each": against.each,
        "fixed": against.fixed.values[0],
        "guess": max(problem.test_labels.mean(), 1 - problem.test_labels.mean()),
    }
