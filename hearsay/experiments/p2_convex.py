"""Paper P2, section IV, on convex problems: the effect of the noise (Figs. 2, 3), S1 against S2
(Fig. 4), other methods (Figs. 5, 6) and the budgets; the schemes are in p2_schemes.py.

In the place of ResNet18 on MNIST and CIFAR-10: logistic regression on digits (odd or even, 287
records per agent) and ridge regression on a linear stream, with the 12,000 records per agent of the
paper's MNIST. Not printed, and chosen here: the two graphs and their weights (`graphs.five_agents`,
0.1), the ring of the methods that need symmetric weights (0.1 as well), C, the regularisers, the
clip of the linear problem, the grid and the threshold of the quantizers. Not as printed: batches go
round the records, where Algorithm 1 draws each of them anew.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from hearsay import graphs
from hearsay.algorithms import GradientTracking
from hearsay.algorithms.theory.gradient_tracking import s1_findings, s2_findings
from hearsay.base import Algorithm
from hearsay.certification import calibrate, certify
from hearsay.experiments.p2_notes import (
    Best,
    Problems,
    Runs,
    about_budgets,
    about_runs,
    about_settings,
    accuracy,
    budget,
    error,
    last_step,
    result,
)
from hearsay.experiments.p2_schemes import (
    HORIZON,
    RECORDS,
    S1,
    S2,
    SETTINGS,
    Curves,
    budgets,
    declared,
    networks,
    others,
    remark_22,
    s2,
    schemes,
    size,
)
from hearsay.experiments.printed_tracking import PrintedTracking
from hearsay.experiments.runner import (
    Experiment,
    Findings,
    conditions,
    powers_of_two,
    with_step_factors,
)
from hearsay.experiments.settings import Table
from hearsay.graphs import Graph
from hearsay.problems import Problem
from hearsay.problems.sampling.samplers import History
from hearsay.schedules import Constant, PowerLaw
from hearsay.simulation.optimum import Reference
from hearsay.simulation.result import Run


def problems(data_dir: str | None = None, horizon: int = HORIZON) -> Problems:
    """ldp-online's history grows by as many records per step as the other methods sample."""
    new = size(s2(horizon))
    return {
        "digits": SETTINGS.problem("digits", per_step=new, data_dir=data_dir),
        "linear": SETTINGS.problem("linear", per_step=new),
    }


def figures_2_to_6(experiment: Experiment, found: Problems, steps: int) -> Runs:
    """Every scheme and every other method on both problems."""
    pair, ring = networks()
    tracking = schemes(steps)
    wanted = {
        **{k: (a, pair) for k, a in tracking.items()},
        **{k: (a, ring) for k, a in others(tracking[S2]).items()},
    }
    runs: Runs = {kind: {} for kind in found}
    references = _references(found)
    for kind, name in experiment.each("Figs. 2-6", product(found, wanted)):
        runs[kind][name] = _run(experiment, *wanted[name], references[kind], steps)
    return runs


def ends(runs: Runs) -> Table:
    """All runs: budget, accuracy and error at the end."""
    rows = []
    for name, run in runs["digits"].items():
        other = runs["linear"][name]
        first = [run.graph.name, budget(run), accuracy(run), error(run)]
        rows.append([name, *first, budget(other), error(other)])
    return SETTINGS.table("ends", rows, steps=last_step(runs), s2=S2)


def equal_budgets(experiment: Experiment, found: Problems, steps: int) -> Best:
    """Every method at the certified budget of S2 and at a tenth of it, each with its best step out
    of a sweep over powers of four.
    """
    pair, ring = networks()
    tracking = schemes(steps)
    methods: dict[str, tuple[Any, Graph]] = {
        S1: (tracking[S1], pair),
        S2: (tracking[S2], pair),
        **{k: (a, ring) for k, a in others(tracking[S2]).items() if "no noise" not in k},
    }
    # In proportion to its step.
    methods["dola"] = (replace(methods["dola"][0], noise=PowerLaw(1.0, -0.5)), ring)
    best: Best = {kind: {} for kind in found}
    references = _references(found)
    for kind, name in experiment.each("equal budgets", product(found, methods)):
        problem, (algorithm, graph) = found[kind], methods[name]
        full = max(certify(tracking[S2], problem, pair, steps).epsilon)
        best[kind][name] = []
        for target in (full, full / 10):
            options = with_step_factors(algorithm, powers_of_two(*SETTINGS["sweep"])).values()
            # The target is a pure epsilon: only a law that has none meets it at a delta.
            delta = SETTINGS["delta"] if algorithm.law.needs_delta else None
            ready = [
                calibrate(option, problem, graph, steps, target, delta=delta) for option in options
            ]
            tried = [_run(experiment, one, graph, references[kind], steps) for one in ready]
            best[kind][name].append(min(tried, key=_throughout))
    return best


def equal_table(kind: str, best: dict[str, list[Run]]) -> Table:
    rows = []
    for name, runs in best.items():
        parts = [[budget(run), result(kind, run), str(run.algorithm.step_size)] for run in runs]
        rows.append([name, *parts[0], *parts[1]])
    what = "accuracy, squared error" if kind == "digits" else "squared error"
    return SETTINGS.table("equal-budgets", rows, kind=kind, s2=S2, result=what)


def weights(experiment: Experiment, found: Problems, steps: int) -> Table:
    """The paper does not print the weights of its pair.

    They do not enter the certificate, but they scale the noise that comes in.
    """
    tracking = schemes(steps)
    pairs = {w: graphs.five_agents(weight=w) for w in SETTINGS["weights"]}
    # S1 takes large steps for short plans: what an agent hears must not outweigh itself.
    usable = {
        w: g for w, g in pairs.items() if float(tracking[S1].coupling(0)) * g.row_sums.max() < 1
    }
    rows, references = [], _references(found)
    for weight, graph in experiment.each("weights", usable.items()):
        made = [
            result(kind, _run(experiment, tracking[name], graph, references[kind], steps))
            for kind, name in product(found, (S1, S2))
        ]
        rows.append([f"{weight:g}", *made])
    return SETTINGS.table("weights", rows, s1=S1, s2=S2)


def two_forms(experiment: Experiment, steps: int) -> Table:
    """The two algorithms that the paper prints, without noise and on all local
    records at every step.
    """
    quiet: dict[str, Any] = {
        "step": Constant(0.5),
        "coupling": Constant(0.3),
        "tracking": Constant(0.3),
        "noise": None,
    }
    rows, graph = [], graphs.five_agents()
    for name, keys in experiment.each("two forms", SETTINGS["forms"].items()):
        where = {"data_dir": experiment.data_dir} if keys["loss"] == "logistic" else {}
        problem = SETTINGS.problem(keys, **where)
        row, reference = [name], Reference(problem)
        variants: tuple[type[Algorithm], ...] = (GradientTracking, PrintedTracking)
        for variant in variants:
            form = variant(**quiet, sampling=History())
            with warnings.catch_warnings():
                # Not to converge is the point.
                warnings.filterwarnings("ignore", message="printed-tracking does not converge")
                run = experiment.run(
                    form,
                    problem,
                    graph,
                    steps=steps,
                    seeds=1,
                    every=steps // 2,
                    reference=reference,
                    regret=False,
                )
            row += [
                f"{distance:.2g}" for distance in np.sqrt(run.metrics["tracking_error"][[1, -1], 0])
            ]
        rows.append(row)
    return SETTINGS.table("two-forms", rows, half=steps // 2, steps=steps)


def measure(experiment: Experiment) -> Findings:
    steps = experiment.share(HORIZON, SETTINGS["least"])
    found, full = problems(experiment.data_dir, steps), problems(experiment.data_dir)
    pair, _ = networks()
    runs = figures_2_to_6(experiment, found, steps)
    plans = SETTINGS["plans"]
    peaks, curves = remark_22(experiment, experiment.share(plans["points"], plans["least"]))
    best = equal_budgets(experiment, found, steps)
    noise = {name: (p, p) for name, p in SETTINGS["chosen"].items()}
    a, p = (tuple(SETTINGS["S1"][key]) for key in ("a", "p"))
    conditions_s1 = s1_findings(HORIZON, a, p, noise["S1"], pair, full["digits"])  # type: ignore[arg-type]
    conditions_s2 = s2_findings(
        HORIZON, **SETTINGS["S2"], noise=noise["S2"], graph=pair, problem=full["digits"]
    )
    tables = {
        "ends": ends(runs),
        "budgets-declared": budgets(
            declared(), graphs.five_agents(), SETTINGS.text("declared", records=RECORDS)
        ),
        **{f"budgets-{kind}": budgets(p, pair, _basis(kind, p)) for kind, p in full.items()},
        "peaks": peaks,
        **{f"equal-budgets-{kind}": equal_table(kind, best[kind]) for kind in best},
        "two-forms": two_forms(experiment, steps),
        "weights": weights(experiment, found, steps),
        "conditions-s1": conditions(SETTINGS.text("conditions", scheme=S1), conditions_s1),
        "conditions-s2": conditions(SETTINGS.text("conditions", scheme=S2), conditions_s2),
    }
    return Findings(
        runs={name: runs["digits"][name] for name in schemes(steps)},
        saved={
            f"{kind}/{name}": run for kind, named in runs.items() for name, run in named.items()
        },
        tables=tables,
        figures=_figures(runs, curves),
        values={
            **about_budgets(full, tables, curves),
            **about_runs(runs, best, tables),
            **about_settings(runs),
        },
    )


def _figures(runs: Runs, curves: Curves) -> list[tuple[str, Any]]:
    from hearsay.report import plots
    from hearsay.report.plot_style import new_figure

    names, drawn = list(runs["digits"]), []
    parts = {2: names[:3], 3: names[3:6], 4: [S1, S2], 5: [S1, S2, *names[6:]]}
    for number, chosen in parts.items():
        for kind, metric in (("digits", "accuracy"), ("linear", "tracking_error")):
            figure, ax = new_figure(*((7.5, 4.0) if number == 5 else (5.0, 3.1)))
            plots.compare({k: runs[kind][k] for k in chosen}, metric, ax)
            if number == 5:
                legend_beside(ax)
            what = SETTINGS.text(f"figure-{number}")
            drawn.append((SETTINGS.text("figure", number=number, kind=kind, what=what), figure))
    for kind, named in runs.items():
        figure, ax = new_figure(7.5, 4.0)
        laplace = {k: named[k] for k in parts[5] if not named[k].algorithm.law.needs_delta}
        plots.compare_budgets(laplace, ax)
        legend_beside(ax)
        drawn.append((SETTINGS.text("figure-6a", kind=kind), figure))
    figure, ax = new_figure()
    plots.compare_budgets({kind: named["ternary-dsgd"] for kind, named in runs.items()}, ax)
    drawn.append((SETTINGS.text("figure-6b"), figure))
    return [*drawn, *(_planned(name, lines) for name, lines in curves.items())]


def _planned(name: str, lines: dict[str, Any]) -> tuple[str, Any]:
    """epsilon against the planned horizon, with the peak that Remark 22 names."""
    from hearsay.report.plot_style import (
        SOFT,
        line_style,
        log_scale,
        new_figure,
        plain_ticks,
        styled,
    )

    figure, ax = new_figure()
    peak = SETTINGS["peaks"][name]
    with styled():
        for index, (label, curve) in enumerate(lines.items()):
            ax.plot(curve.horizons, curve.epsilon, label=label, **line_style(index))
        dotted: dict[str, Any] = {"color": SOFT, "linewidth": 0.8, "linestyle": ":"}
        ax.axvline(peak, label=f"Remark 22: K = {peak}", **dotted)
        ax.set_xlabel("planned horizon K")
        ax.set_ylabel("epsilon of the whole run")
        log_scale(ax, [curve.epsilon for curve in lines.values()])
        plain_ticks(ax)
        ax.legend()
    return SETTINGS.text("planned", number=2 if name == "S1" else 3, scheme=name), figure


def legend_beside(ax: Any) -> None:
    from hearsay.report.plot_style import styled

    with styled():
        ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))


def _references(found: Problems) -> dict[str, Reference]:
    return {kind: Reference(problem) for kind, problem in found.items()}


def _run(
    experiment: Experiment, algorithm: Algorithm, graph: Graph, reference: Reference, steps: int
) -> Run:
    options: dict[str, Any] = {"steps": steps, "reference": reference, "regret": False}
    return experiment.run(algorithm, reference.problem, graph, **options)


def _throughout(run: Run) -> float:
    """The mean squared error over the whole run."""
    return float(np.nan_to_num(run.metrics["tracking_error"].mean(), nan=np.inf))


def _basis(kind: str, problem: Problem) -> str:
    low, high = problem.loss.curvature
    return SETTINGS.text("basis", kind=kind, change=problem.change, low=low, high=high)
