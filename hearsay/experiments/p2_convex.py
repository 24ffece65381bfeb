"""Paper P2, section IV, on convex problems: the effect of the noise (Figs. 2, 3), S1 against S2 (Fig. 4), other methods (Figs. 5, 6) and the budgets.

As printed, for five agents and K = 2000 planned steps:

    S1    alpha = 72/2000^0.987 = 0.04,  beta = 0.95/2000^0.69 = 0.005,  gamma = 98/2000^0.997 = 0.05,  m = floor(0.00007 K^1.78) + 1 = 53,  noise (k+1)^p,  p = -0.1, 0.1, 0.2
    S2    alpha = 0.1,  beta = 0.01,  gamma = 0.1,  m = floor(1.002^K) + 1 = 55,  noise p^K for every k,  p = 0.9994, 0.9996, 0.9998

Fig. 4 compares p = 0.1 with p = 0.9996; Figs. 5 and 6 give the other methods the steps, the sampling number and the noise of the latter.

In the place of ResNet18 on MNIST and CIFAR-10: logistic regression on digits (odd or even, 287 records per agent) and ridge regression on a linear stream, with the
12,000 records per agent of the paper's MNIST. Not printed, and chosen here: the two graphs and their weights (`graphs.five_agents`, 0.1), the ring of
the methods that need symmetric weights (0.1 as well), C, the regularisers, the clip of the linear problem, the grid and threshold of the quantizers.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hearsay import graphs
from hearsay.algorithms import (
    Dola, Dsgd, GradientPerturbation, GradientTracking, LdpOnline, OutputPerturbation, QuantizedDsgd, TernaryDsgd,
    WeightedErm, scheme_s1, scheme_s2,
)  # fmt: skip
from hearsay.base import Algorithm
from hearsay.certify import Planned, calibrate, certify, planned
from hearsay.experiments.common import Progress, Table, complete, conditions, save_tables, stepped
from hearsay.graphs import Graph
from hearsay.metrics import Reference
from hearsay.privacy.certificate import show
from hearsay.problems.problem import Problem, estimation, logistic, ridge
from hearsay.problems.sampling import Arrivals, Cyclic, History, Sized, Subset
from hearsay.run import Run
from hearsay.schedules import Constant, PowerLaw
from hearsay.simulate import simulate

HORIZON, RECORDS, WEIGHT = 2000, 12_000, 0.1
S1, S2 = "S1, p = 0.1", "S2, p = 0.9996"  # the two of Fig. 4
PEAKS = {"S1": 88, "S2": 626}  # Remark 22: from there on a longer plan costs less
AGENT = 2  # hears one agent over each graph, with weight 1 in graphs.five_agents()
THRESHOLD, DELTA = (
    2.0,
    0.1,
)  # of the ternary quantizer: its range, and the delta at which it joins the table at equal budgets
SCORE = {"digits": "accuracy", "linear": "tracking_error"}

Runs = dict[str, dict[str, Run]]


def size(algorithm: Algorithm) -> int:
    return int(algorithm.sampling.sizes(np.zeros(1), Arrivals())[0])


def problems(data_dir: str | None = None, horizon: int = HORIZON) -> dict[str, Problem]:
    """With as many new records per step for ldp-online's history as the other methods sample."""
    arriving = size(scheme_s2(horizon))
    return {
        "digits": logistic("digits", agents=5, ridge=0.01, per_step=arriving, data_dir=data_dir),
        "linear": ridge(agents=5, records=RECORDS, dimension=5, ridge=0.05, clip=1.0, per_step=arriving),
    }


def networks() -> tuple[Graph, Graph]:
    """The pair of directed graphs, and the ring for the methods that need symmetric weights."""
    return graphs.five_agents(WEIGHT), graphs.ring(5, WEIGHT)


def schemes(horizon: int) -> dict[str, GradientTracking]:
    """Figs. 2 and 3, planned for `horizon` steps."""
    return {
        **{f"S1, p = {p}": scheme_s1(horizon, noise=(p, p)) for p in (-0.1, 0.1, 0.2)},
        **{f"S2, p = {p}": scheme_s2(horizon, noise=(p, p)) for p in (0.9994, 0.9996, 0.9998)},
    }


def as_printed(sampling: type[Sized]) -> dict[str, GradientTracking]:
    """The same for K = 2000, with S1's steps rounded as the paper prints them."""
    steps: dict[str, Any] = {"coupling": Constant(0.04), "tracking": Constant(0.005), "step": Constant(0.05)}
    found = {}
    for name, scheme in schemes(HORIZON).items():
        rounded = replace(scheme, **steps) if name.startswith("S1") else scheme
        found[name] = replace(rounded, sampling=sampling(Constant(float(size(scheme)))))
    return found


def others(scheme: GradientTracking) -> dict[str, Algorithm]:
    """The other methods with the step, the sampling and the noise of a scheme (S2 in the paper)."""
    first = float(scheme.step(0))
    shared: dict[str, Any] = {"step": scheme.step, "noise": scheme.noise, "sampling": scheme.sampling}
    return {
        "ldp-online": LdpOnline(step=scheme.step, coupling=scheme.coupling, noise=scheme.noise),
        "output-perturbation": OutputPerturbation(coupling=scheme.coupling, **shared),
        "gradient-perturbation": GradientPerturbation(coupling=scheme.coupling, **shared),
        "dsgd": Dsgd(**shared),
        "dola": Dola(**{**shared, "step": PowerLaw(first, -0.5)}),
        "ternary-dsgd": TernaryDsgd(**{**shared, "noise": Constant(THRESHOLD)}),
        "quantized-dsgd": QuantizedDsgd(**shared),
        "quantized-dsgd, no noise": QuantizedDsgd(**{**shared, "noise": None}),
        "weighted-erm": WeightedErm(mechanism="laplace", **shared),
    }


def declared() -> Problem:
    """C = 1 and gradients that do not react to the state, as the paper reckons, with its 12,000 records per agent: for certificates only."""
    return replace(estimation(agents=5, change=1.0, frozen=True), counts=np.full(5, float(RECORDS)))


def figures_2_to_6(found: dict[str, Problem], steps: int, seeds: int, progress: Progress) -> Runs:
    """Every scheme and every other method on both problems."""
    pair, ring = networks()
    tracking = schemes(steps)
    wanted = {**{k: (a, pair) for k, a in tracking.items()}, **{k: (a, ring) for k, a in others(tracking[S2]).items()}}
    runs: Runs = {}
    for index, (kind, problem) in enumerate(found.items()):
        reference, runs[kind] = Reference(problem), {}
        for j, (name, (algorithm, graph)) in enumerate(wanted.items()):
            runs[kind][name] = _run(algorithm, problem, graph, steps, seeds, reference)
            progress("Figs. 2-6", index * len(wanted) + j + 1, len(found) * len(wanted))
    return runs


def ends(runs: Runs) -> Table:
    """All runs: budget, accuracy and error at the end."""
    digits, linear = runs["digits"], runs["linear"]
    rows = [
        [name, run.graph.name, _budget(run), f"{100 * run.final('accuracy')[0]:.1f} %", _error(run), _budget(linear[name]), _error(linear[name])]
        for name, run in digits.items()
    ]  # fmt: skip
    header = ["method", "graph", "digits: certified ε", "accuracy", "squared error", "linear: certified ε", "squared error"]  # fmt: skip
    last = f"{int(next(iter(digits.values())).steps[-1]):,}"
    return f"Figs. 2-6 after {last} steps; the methods on the ring have the noise, step and samples of {S2}", header, rows  # fmt: skip


def budgets(problem: Problem, graph: Graph, what: str) -> Table:
    """The paper's K = 2000 in three columns: its formula, a record in every batch, and a record in one batch out of T. K + 1 messages, as it counts."""
    rows, messages = [], HORIZON + 1
    samplers = (as_printed(Subset), as_printed(Cyclic))
    for name, scheme in samplers[0].items():
        paper = scheme.paper_epsilon(graph, AGENT, problem, messages)
        certified = [certify(options[name], problem, graph, messages).epsilon[AGENT] for options in samplers]
        period = int(problem.counts[AGENT]) // size(scheme)
        # What rests on a declaration is no guarantee and is rounded to the nearest; a certificate is rounded up.
        shown = [f"{e:,.1f}" if e >= 100 else f"{e:.4g}" for e in certified] if problem.frozen else map(show, certified)
        rows.append([name, f"{paper:,.0f}", *shown, str(period)])
    header = ["scheme", "the paper's formula", "certified, every step", "certified, cyclic", "T"]
    return f"ε of agent {AGENT} for {messages:,} messages: {what}", header, rows


def remark_22(points: int, progress: Progress) -> tuple[Table, dict[str, dict[str, Planned]]]:
    """epsilon against the planned horizon K, under the paper's declarations with C = 1: where does each of the three columns peak?"""
    problem, (pair, _) = declared(), networks()
    rows, curves = [], {}
    makers: tuple[Callable[..., GradientTracking], ...] = (scheme_s1, scheme_s2)
    for index, ((name, claim), make) in enumerate(zip(PEAKS.items(), makers, strict=True)):
        lengths = _lengths(make, points)
        formula = [make(k).paper_epsilon(graphs.five_agents(), AGENT, problem, k) for k in lengths]
        curves[name] = {
            "the paper's formula": Planned(np.array(lengths), np.array(formula)),
            "certified, every step": planned(partial(make, sampling=Subset), problem, pair, lengths),
            "certified, cyclic": planned(partial(make, sampling=Cyclic), problem, pair, lengths),
        }
        peaks = [c.peak for c in curves[name].values()]
        rows.append([name, str(claim), *(f"{k:,} (m = {size(make(k))})" for k in peaks)])
        progress("Remark 22", index + 1, len(PEAKS))
    header = ["scheme", "Remark 22", *curves["S1"]]
    caption = (
        f"The planned horizon K that costs most, for K from {lengths[0]} to {lengths[-1]:,}, with its sample size m"
    )
    return (caption, header, rows), curves


def _lengths(make: Callable[[int], GradientTracking], points: int) -> list[int]:
    """A geometric grid, and both sides of the jumps of the sample size up to K = 1250: between two jumps a longer plan costs more, so peaks lie there."""
    jumps = 50 + np.flatnonzero(np.diff([size(make(k)) for k in range(50, 1251)]))
    return sorted(
        {*np.geomspace(50, 4000, points).round().astype(int).tolist(), *jumps.tolist(), *(jumps + 1).tolist()}
    )


def equal_budgets(found: dict[str, Problem], steps: int, seeds: int, progress: Progress) -> dict[str, dict[str, list[Run]]]:  # fmt: skip
    """Every method that has an epsilon at the certified budget of S2 and at a tenth of it, each with its best step out of a sweep over powers of four."""
    pair, ring = networks()
    tracking = schemes(steps)
    methods = {k: (a, ring) for k, a in others(tracking[S2]).items() if "no noise" not in k}
    dola = methods["dola"][0]
    methods["dola"] = (replace(dola, noise=PowerLaw(1.0, -0.5)), ring)  # its own schedule: in proportion to the step
    methods = {S1: (tracking[S1], pair), S2: (tracking[S2], pair), **methods}
    best: dict[str, dict[str, list[Run]]] = {}
    for index, (kind, problem) in enumerate(found.items()):
        full, reference = max(certify(tracking[S2], problem, pair, steps).epsilon), Reference(problem)
        best[kind] = {}
        for j, (name, (algorithm, graph)) in enumerate(methods.items()):
            best[kind][name] = []
            for target in (full, full / 10):
                options = stepped(algorithm, range(-6, 3, 2)).values()
                ready = [calibrate(option, problem, graph, steps, target, delta=DELTA) for option in options]
                tried = [_run(option, problem, graph, steps, seeds, reference) for option in ready]
                best[kind][name].append(min(tried, key=_throughout))
            progress("equal budgets", index * len(methods) + j + 1, len(found) * len(methods))
    return best


def _throughout(run: Run) -> float:
    """The mean squared error over the whole run."""
    return float(np.nan_to_num(run.metrics["tracking_error"].mean(), nan=np.inf))


def equal_table(kind: str, best: dict[str, list[Run]]) -> Table:
    full, less = (show(max(run.certificate.epsilon)) for run in best[S2])
    rows = [[name, _budget(runs[0]), _result(kind, runs[0]), str(runs[0].algorithm.step_size), _budget(runs[1]), _result(kind, runs[1]), str(runs[1].algorithm.step_size)] for name, runs in best.items()]  # fmt: skip
    what = "accuracy, squared error" if kind == "digits" else "squared error"
    header = ["method", "budget", what, "step", "budget", what, "step"]
    return f"{kind}: every method at the certified ε of {S2} ({full}) and at a tenth of it ({less}), step from a sweep", header, rows  # fmt: skip


def weights(found: dict[str, Problem], steps: int, seeds: int, progress: Progress) -> Table:
    """The weights of the pair, which the paper does not print: they do not enter the certificate, but they scale the noise that comes in."""
    pairs = {w: graphs.five_agents(w) for w in (1.0, 0.3, 0.1)}
    tracking = schemes(steps)
    # S1 takes large steps for short plans: what an agent hears must not outweigh itself.
    usable = {w: g for w, g in pairs.items() if float(tracking[S1].coupling(0)) * g.row_sums.max() < 1}
    rows = []
    for index, (weight, graph) in enumerate(usable.items()):
        row = [f"{weight:g}"]
        for kind, problem in found.items():
            reference = Reference(problem)
            row += [_result(kind, _run(tracking[k], problem, graph, steps, seeds, reference)) for k in (S1, S2)]
        rows.append(row)
        progress("weights", index + 1, len(usable))
    header = ["weight", *(f"{kind}: {name}" for kind in found for name in (S1, S2))]
    return "What the weights of the pair do at the same noise and budget (accuracy and squared error)", header, rows


def two_forms(steps: int, data_dir: str | None, progress: Progress) -> tuple[Table, dict[str, float]]:
    """The two algorithms that the paper prints, without noise and on all local records at every step."""
    everything: dict[str, Any] = {"agents": 5, "head_start": RECORDS}
    cases = {
        "digits, split evenly": logistic("digits", ridge=0.01, data_dir=data_dir, **everything),
        "digits, split by label": logistic("digits", ridge=0.01, partition="by_label", data_dir=data_dir, **everything),
        "linear": ridge(records=RECORDS, dimension=5, ridge=0.05, **everything),
    }
    rows, printed = [], {}
    for index, (name, problem) in enumerate(cases.items()):
        row, reference = [name], Reference(problem)
        for variant in ("compact", "printed"):
            algorithm = GradientTracking(
                step=Constant(0.5), coupling=Constant(0.3), tracking=Constant(0.3), noise=None, variant=variant, sampling=History()
            )  # fmt: skip
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="variant='printed'")  # not converging is the point
                run = complete(simulate(algorithm, problem, graphs.five_agents(), steps=steps, every=steps // 2, reference=reference, regret=False))  # fmt: skip
            half, end = np.sqrt(run.metrics["tracking_error"][[1, -1], 0])
            row += [f"{half:.2g}", f"{end:.2g}"]
        rows.append(row)
        printed[name] = float(end)
        progress("two forms", index + 1, len(cases))
    header = ["problem", f"compact (7), (8): {steps // 2:,} steps", f"{steps:,}", f"agents' (4), (6): {steps // 2:,} steps", f"{steps:,}"]  # fmt: skip
    return ("The two printed algorithms without noise: distance to the optimum", header, rows), printed


def reproduce(folder: Path, *, data_dir: str | None, seeds: int, scale: float, progress: Progress) -> Path:
    """Run the experiment and write folder/report.html, with one sub-folder per problem and run."""
    from hearsay.report.html import comparison_report

    steps = max(20, round(HORIZON * scale))
    found, (pair, _) = problems(data_dir, steps), networks()
    runs = figures_2_to_6(found, steps, seeds, progress)
    for kind, named in runs.items():
        for name, run in named.items():
            run.save(folder / kind / name)
    peaks, curves = remark_22(max(5, round(30 * scale)), progress)
    best = equal_budgets(found, steps, seeds, progress)
    forms, printed = two_forms(steps, data_dir, progress)
    own = problems(data_dir)
    measured = {
        "ends": ends(runs),
        "budgets-declared": budgets(declared(), graphs.five_agents(), "C = 1 declared, no curvature, 12,000 records, weights 1"),
        **{f"budgets-{kind}": budgets(p, pair, f"{kind}, C = {p.change:.3g} and curvature {_interval(p)}, nothing declared") for kind, p in own.items()},
        "peaks": peaks,
        **{f"equal-budgets-{kind}": equal_table(kind, best[kind]) for kind in best},
        "two-forms": forms,
        "weights": weights(found, steps, seeds, progress),
    }  # fmt: skip
    save_tables(folder, measured)
    tables = [
        *measured.values(),
        *(conditions(f"The paper's conditions for {name} on {kind}", schemes(steps)[name].theory(pair, problem)) for name in (S1, S2) for kind, problem in found.items()),
    ]  # fmt: skip
    six = {name: runs["digits"][name] for name in schemes(steps)}
    return comparison_report(
        six, folder, "Paper P2: gradient tracking on convex problems (Figs. 2-6)",
        notes=_notes(runs, best, curves, printed), tables=tables, figures=_figures(runs, curves),
    )  # fmt: skip


def _figures(runs: Runs, curves: dict[str, dict[str, Planned]]) -> list[tuple[str, Any]]:
    from hearsay.report import plots
    from hearsay.report.style import SOFT, line_style, log_scale, new_figure, plain_ticks, styled

    six, drawn = list(next(iter(runs.values())))[:6], []
    chosen = {2: six[:3], 3: six[3:], 4: [S1, S2], 5: [S1, S2, *list(runs["digits"])[6:]]}
    what = {2: "S1 with three noise exponents", 3: "S2 with three noise levels", 4: "S1 against S2", 5: "the other methods, with the noise of S2"}  # fmt: skip
    for number, names in chosen.items():
        for kind, metric in SCORE.items():
            figure, ax = new_figure(*((6.5, 4.2) if number == 5 else (5.0, 3.1)))
            plots.compare({k: runs[kind][k] for k in names}, metric, ax)
            drawn.append((f"Fig. {number} on {kind}: {what[number]}.", figure))
    for kind, named in runs.items():
        figure, ax = new_figure(6.5, 4.2)
        plots.compare_budgets({k: named[k] for k in chosen[5] if named[k].certificate.mechanism == "laplace"}, ax)
        drawn.append((f"Fig. 6(a) on {kind}: certified budget spent, the same noise for all but S1.", figure))
    figure, ax = new_figure()
    plots.compare_budgets({kind: named["ternary-dsgd"] for kind, named in runs.items()}, ax)
    drawn.append(("Fig. 6(b): the delta of ternary messages, which have no epsilon.", figure))
    for name, lines in curves.items():
        figure, ax = new_figure()
        with styled():
            for index, (label, curve) in enumerate(lines.items()):
                ax.plot(curve.horizons, curve.epsilon, label=label, **line_style(index))
            ax.axvline(PEAKS[name], color=SOFT, linewidth=0.8, linestyle=":", label=f"Remark 22: K = {PEAKS[name]}")
            ax.set_xlabel("planned horizon K")
            ax.set_ylabel("epsilon of the whole run")
            log_scale(ax, [c.epsilon for c in lines.values()])
            plain_ticks(ax)
            ax.legend()
        drawn.append((f"Figs. 2(e), 3(e): epsilon against the planned horizon, {name}, C = 1 declared.", figure))
    return drawn


def _run(algorithm: Algorithm, problem: Problem, graph: Graph, steps: int, seeds: int, reference: Reference) -> Run:
    return complete(simulate(algorithm, problem, graph, steps=steps, seeds=seeds, reference=reference, regret=False))


def _error(run: Run) -> str:
    return "{:.3g} ± {:.1g}".format(*run.final("tracking_error"))


def _result(kind: str, run: Run) -> str:
    return f"{100 * run.final('accuracy')[0]:.1f} %, {_error(run)}" if kind == "digits" else _error(run)


def _budget(run: Run) -> str:
    cert = run.certificate
    return show(max(cert.epsilon)) if cert.slack is None else f"delta = {show(cert.slack)}"


def _interval(problem: Problem) -> str:
    return "[{:.3g}, {:.3g}]".format(*problem.loss.curvature)


def _notes(runs: Runs, best: Any, curves: Any, printed: dict[str, float]) -> list[str]:
    return []
