"""Paper P2, section IV, on convex problems: the effect of the noise (Figs. 2, 3), S1 against S2
(Fig. 4), other methods (Figs. 5, 6) and the budgets.

As printed, for five agents and K = 2000 planned steps:

    S1    alpha = 72/2000^0.987 = 0.04,  beta = 0.95/2000^0.69 = 0.005,
          gamma = 98/2000^0.997 = 0.05,  m = floor(0.00007 K^1.78) + 1 = 53
          noise (k+1)^p,  p = -0.1, 0.1, 0.2
    S2    alpha = 0.1,  beta = 0.01,  gamma = 0.1,  m = floor(1.002^K) + 1 = 55
          noise p^K for every k,  p = 0.9994, 0.9996, 0.9998

Fig. 4 compares p = 0.1 with p = 0.9996; Figs. 5 and 6 give the other methods the steps, the
sampling number and the noise of the latter.

In the place of ResNet18 on MNIST and CIFAR-10: logistic regression on digits (odd or even, 287
records per agent) and ridge regression on a linear stream, with the 12,000 records per agent of the
paper's MNIST. Not printed, and chosen here: the two graphs and their weights (`graphs.five_agents`,
0.1), the ring of the methods that need symmetric weights (0.1 as well), C, the regularisers, the
clip of the linear problem, the grid and the threshold of the quantizers.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hearsay import algorithms, graphs
from hearsay.algorithms.baselines.dola import dola
from hearsay.algorithms.gradient_tracking import GradientTracking, scheme_s1, scheme_s2
from hearsay.algorithms.theory.gradient_tracking import s1_findings, s2_findings
from hearsay.base import Algorithm
from hearsay.certification import Planned, calibrate, certify, planned
from hearsay.experiments.common import (
    Progress,
    Table,
    complete,
    conditions,
    save_tables,
    simulate,
    stepped,
)
from hearsay.experiments.printed_tracking import PrintedTracking
from hearsay.graphs import Graph
from hearsay.privacy.certificate import show
from hearsay.problems import Problem, Task, estimation, logistic, ridge
from hearsay.problems.sampling.samplers import Arrivals, Cyclic, History, Sized, Subset
from hearsay.schedules import Constant, PowerLaw
from hearsay.simulation.optimum import Reference
from hearsay.simulation.result import Run

HORIZON = 2000
RECORDS = 12_000
WEIGHT = 0.1  # of every edge, on the pair of graphs and on the ring
# S1's constants and exponents: alpha, beta, gamma, m.
A, P = (72.0, 0.95, 98.0, 0.00007), (0.987, 0.69, 0.997, 1.78)
ALPHA, BETA, GAMMA, GROWTH = 0.1, 0.01, 0.1, 1.002  # S2's
S1, S2 = "S1, p = 0.1", "S2, p = 0.9996"  # the two of Fig. 4
PEAKS = {"S1": 88, "S2": 626}  # Remark 22: from there on a longer plan costs less
AGENT = 2  # hears one agent over each graph, with weight 1 in graphs.five_agents()
THRESHOLD = 2.0  # of the ternary quantizer
DELTA = 0.1  # its budget in the table at equal budgets: it has no epsilon

Runs = dict[str, dict[str, Run]]
Best = dict[str, dict[str, list[Run]]]
Curves = dict[str, dict[str, Planned]]


def size(algorithm: Algorithm) -> int:
    """Records per step."""
    return int(algorithm.sampling.sizes(np.zeros(1), Arrivals())[0])


def s1(horizon: int, power: float = 0.1, sampling: type[Sized] = Cyclic) -> GradientTracking:
    return scheme_s1(horizon, a=A, p=P, noise=(power, power), sampling=sampling)


def s2(horizon: int, base: float = 0.9996, sampling: type[Sized] = Cyclic) -> GradientTracking:
    steps = {"coupling": ALPHA, "tracking": BETA, "step": GAMMA, "growth": GROWTH}
    return scheme_s2(horizon, **steps, noise=(base, base), sampling=sampling)


def schemes(horizon: int) -> dict[str, GradientTracking]:
    """Figs. 2 and 3, planned for `horizon` steps."""
    return {
        **{f"S1, p = {p}": s1(horizon, p) for p in (-0.1, 0.1, 0.2)},
        **{f"S2, p = {p}": s2(horizon, p) for p in (0.9994, 0.9996, 0.9998)},
    }


def as_printed(sampling: type[Sized]) -> dict[str, GradientTracking]:
    """The same for K = 2000, with S1's steps rounded as the paper prints them."""
    steps: dict[str, Any] = {
        "coupling": Constant(0.04),
        "tracking": Constant(0.005),
        "step": Constant(0.05),
    }
    found = {}
    for name, scheme in schemes(HORIZON).items():
        rounded = replace(scheme, **steps) if name.startswith("S1") else scheme
        found[name] = replace(rounded, sampling=sampling(Constant(float(size(scheme)))))
    return found


def others(scheme: GradientTracking) -> dict[str, Algorithm]:
    """The other methods with the step, the sampling and the noise of a scheme (S2 in the paper)."""
    shared: dict[str, Any] = {
        "step": scheme.step,
        "noise": scheme.noise,
        "sampling": scheme.sampling,
    }
    return {
        "ldp-online": algorithms.LdpOnline(
            step=scheme.step, coupling=scheme.coupling, noise=scheme.noise
        ),
        "output-perturbation": algorithms.OutputPerturbation(coupling=scheme.coupling, **shared),
        "gradient-perturbation": algorithms.GradientPerturbation(
            coupling=scheme.coupling, **shared
        ),
        "dsgd": algorithms.Dsgd(**shared),
        "dola": dola(**{**shared, "step": PowerLaw(float(scheme.step(0)), -0.5)}),
        "ternary-dsgd": algorithms.TernaryDsgd(**{**shared, "noise": Constant(THRESHOLD)}),
        "quantized-dsgd": algorithms.QuantizedDsgd(**shared),
        "quantized-dsgd, no noise": algorithms.QuantizedDsgd(**{**shared, "noise": None}),
        "weighted-erm": algorithms.WeightedErm(mechanism="laplace", **shared),
    }


def networks() -> tuple[Graph, Graph]:
    """The pair of directed graphs, and the ring for the methods that need symmetric weights."""
    return graphs.five_agents(weight=WEIGHT), graphs.ring(5, WEIGHT)


def problems(data_dir: str | None = None, horizon: int = HORIZON) -> dict[str, Problem]:
    """ldp-online's history grows by as many records per step as the other methods sample."""
    new = size(s2(horizon))
    return {
        "digits": logistic("digits", agents=5, ridge=0.01, per_step=new, data_dir=data_dir),
        "linear": ridge(agents=5, records=RECORDS, dimension=5, ridge=0.05, clip=1.0, per_step=new),
    }


def declared() -> Task:
    """C = 1 and gradients that do not react to the state, as the paper reckons,
    with its 12,000 records.
    """
    endless = estimation(agents=5, change=1.0, frozen=True).task
    return replace(endless, counts=np.full(5, RECORDS))


def figures_2_to_6(found: dict[str, Problem], steps: int, seeds: int, progress: Progress) -> Runs:
    """Every scheme and every other method on both problems."""
    pair, ring = networks()
    tracking = schemes(steps)
    wanted = {
        **{k: (a, pair) for k, a in tracking.items()},
        **{k: (a, ring) for k, a in others(tracking[S2]).items()},
    }
    runs: Runs = {}
    for index, (kind, problem) in enumerate(found.items()):
        reference, runs[kind] = Reference(problem), {}
        for j, (name, (algorithm, graph)) in enumerate(wanted.items()):
            runs[kind][name] = _run(algorithm, problem, graph, steps, seeds, reference)
            progress("Figs. 2-6", index * len(wanted) + j + 1, len(found) * len(wanted))
    return runs


def ends(runs: Runs) -> Table:
    """All runs: budget, accuracy and error at the end."""
    rows = []
    for name, run in runs["digits"].items():
        other = runs["linear"][name]
        rows.append(
            [
                name,
                run.graph.name,
                _budget(run),
                _accuracy(run),
                _error(run),
                _budget(other),
                _error(other),
            ]
        )
    header = [
        "method",
        "graph",
        "digits: budget",
        "accuracy",
        "squared error",
        "linear: budget",
        "squared error",
    ]
    caption = (
        f"Figs. 2-6 after {_last(runs):,} steps. Methods on the ring have the noise, step and"
        f" samples of {S2}"
    )
    return caption, header, rows


def budgets(problem: Task, graph: Graph, what: str) -> Table:
    """K = 2000 in three columns: the paper's formula, a record in every batch,
    a record in one batch out of T. K + 1 messages, as the paper counts.
    """
    rows, messages = [], HORIZON + 1
    samplers = (as_printed(Subset), as_printed(Cyclic))
    for name, scheme in samplers[0].items():
        paper = scheme.paper_epsilon(graph, AGENT, problem, messages)
        certified = [
            certify(options[name], problem, graph, messages).epsilon[AGENT] for options in samplers
        ]
        # What rests on a declaration is no guarantee and is rounded to the nearest; a certificate
        # is rounded up.
        nearest = [f"{e:,.1f}" if e >= 100 else f"{e:.4g}" for e in certified]
        shown = nearest if problem.frozen else [show(e) for e in certified]
        rows.append(
            [name, f"{paper:,.0f}", *shown, str(int(problem.counts[AGENT]) // size(scheme))]
        )
    header = ["scheme", "the paper's formula", "certified, every step", "certified, cyclic", "T"]
    return f"ε of agent {AGENT} for {messages:,} messages: {what}", header, rows


def remark_22(points: int, progress: Progress) -> tuple[Table, Curves]:
    """epsilon against the planned horizon K, under the paper's declarations with C = 1:
    where does each of the three columns peak?
    """
    problem, (pair, _) = declared(), networks()
    rows, curves = [], {}
    makers: dict[str, Callable[..., GradientTracking]] = {"S1": s1, "S2": s2}
    for index, (name, make) in enumerate(makers.items()):
        lengths = _lengths(make, points)
        formula = [make(k).paper_epsilon(graphs.five_agents(), AGENT, problem, k) for k in lengths]
        curves[name] = {
            "the paper's formula": Planned(np.array(lengths), np.array(formula)),
            "certified, every step": planned(
                partial(make, sampling=Subset), problem, pair, lengths
            ),
            "certified, cyclic": planned(partial(make, sampling=Cyclic), problem, pair, lengths),
        }
        peaks = [curve.peak for curve in curves[name].values()]
        rows.append([name, str(PEAKS[name]), *(f"{k:,} (m = {size(make(k)):,})" for k in peaks)])
        progress("Remark 22", index + 1, len(makers))
    caption = (
        f"The planned horizon K that costs most, among K = {lengths[0]} to {lengths[-1]:,}, and its"
        " sample size m"
    )
    return (caption, ["scheme", "Remark 22", *curves["S1"]], rows), curves


def _lengths(make: Callable[[int], GradientTracking], points: int) -> list[int]:
    """A geometric grid, and both sides of the jumps of the sample size up to K = 1500:
    between two jumps a longer plan costs more.
    """
    jumps = 50 + np.flatnonzero(np.diff([size(make(k)) for k in range(50, 1501)]))
    grid = np.geomspace(50, 4000, points).round().astype(int)
    return sorted({*grid.tolist(), *jumps.tolist(), *(jumps + 1).tolist()})


def equal_budgets(found: dict[str, Problem], steps: int, seeds: int, progress: Progress) -> Best:
    """Every method at the certified budget of S2 and at a tenth of it, each with its best step out
    of a sweep over powers of four.
    """
    pair, ring = networks()
    tracking = schemes(steps)
    methods = {k: (a, ring) for k, a in others(tracking[S2]).items() if "no noise" not in k}
    own = replace(methods["dola"][0], noise=PowerLaw(1.0, -0.5))  # in proportion to its step
    methods = {S1: (tracking[S1], pair), S2: (tracking[S2], pair), **methods, "dola": (own, ring)}
    best: Best = {}
    for index, (kind, problem) in enumerate(found.items()):
        full, reference = (
            max(certify(tracking[S2], problem, pair, steps).epsilon),
            Reference(problem),
        )
        best[kind] = {}
        for j, (name, (algorithm, graph)) in enumerate(methods.items()):
            best[kind][name] = []
            for target in (full, full / 10):
                options = stepped(algorithm, range(-6, 3, 2)).values()
                ready = [
                    calibrate(option, problem, graph, steps, target, delta=DELTA)
                    for option in options
                ]
                tried = [_run(option, problem, graph, steps, seeds, reference) for option in ready]
                best[kind][name].append(min(tried, key=_throughout))
            progress("equal budgets", index * len(methods) + j + 1, len(found) * len(methods))
    return best


def equal_table(kind: str, best: dict[str, list[Run]]) -> Table:
    rows = []
    for name, runs in best.items():
        parts = [[_budget(run), _result(kind, run), str(run.algorithm.step_size)] for run in runs]
        rows.append([name, *parts[0], *parts[1]])
    part = ["budget", "accuracy, squared error" if kind == "digits" else "squared error", "step"]
    caption = (
        f"{kind}: every method at the certified budget of {S2} and at a tenth of it, best step of a"
        " sweep"
    )
    return caption, ["method", *part, *part], rows


def weights(found: dict[str, Problem], steps: int, seeds: int, progress: Progress) -> Table:
    """The paper does not print the weights of its pair.

    They do not enter the certificate, but they scale the noise that comes in.
    """
    tracking = schemes(steps)
    pairs = {w: graphs.five_agents(weight=w) for w in (1.0, 0.3, 0.1)}
    # S1 takes large steps for short plans: what an agent hears must not outweigh itself.
    usable = {
        w: g for w, g in pairs.items() if float(tracking[S1].coupling(0)) * g.row_sums.max() < 1
    }
    rows = []
    for index, (weight, graph) in enumerate(usable.items()):
        row = [f"{weight:g}"]
        for kind, problem in found.items():
            reference = Reference(problem)
            row += [
                _result(kind, _run(tracking[k], problem, graph, steps, seeds, reference))
                for k in (S1, S2)
            ]
        rows.append(row)
        progress("weights", index + 1, len(usable))
    header = ["weight", *(f"{kind}: {name}" for kind in found for name in (S1, S2))]
    return "What the weights of the pair do, at the same noise and the same budget", header, rows


def two_forms(steps: int, data_dir: str | None, progress: Progress) -> Table:
    """The two algorithms that the paper prints, without noise and on all local
    records at every step.
    """
    whole: dict[str, Any] = {"agents": 5, "head_start": RECORDS}
    cases = {
        "digits, split evenly": logistic("digits", ridge=0.01, data_dir=data_dir, **whole),
        "digits, split by label": logistic(
            "digits", ridge=0.01, partition="by_label", data_dir=data_dir, **whole
        ),
        "linear": ridge(records=RECORDS, dimension=5, ridge=0.05, **whole),
    }
    quiet: dict[str, Any] = {
        "step": Constant(0.5),
        "coupling": Constant(0.3),
        "tracking": Constant(0.3),
        "noise": None,
    }
    rows, graph = [], graphs.five_agents()
    for index, (name, problem) in enumerate(cases.items()):
        row, reference = [name], Reference(problem)
        variants: tuple[type[Algorithm], ...] = (GradientTracking, PrintedTracking)
        for variant in variants:
            form = variant(**quiet, sampling=History())
            with warnings.catch_warnings():
                # Not to converge is the point.
                warnings.filterwarnings("ignore", message="printed-tracking does not converge")
                run = simulate(
                    form,
                    problem,
                    graph,
                    steps=steps,
                    every=steps // 2,
                    reference=reference,
                    regret=False,
                )
            row += [
                f"{error:.2g}"
                for error in np.sqrt(complete(run).metrics["tracking_error"][[1, -1], 0])
            ]
        rows.append(row)
        progress("two forms", index + 1, len(cases))
    after = [f"after {steps // 2:,} steps", f"after {steps:,}"]
    header = [
        "problem",
        *(f"{form}, {when}" for form in ("compact (7), (8)", "agents' (4), (6)") for when in after),
    ]
    return (
        "The two printed algorithms on the pair, without noise: distance to the optimum",
        header,
        rows,
    )


def reproduce(
    folder: Path, *, data_dir: str | None, seeds: int, scale: float, progress: Progress
) -> Path:
    """Run the experiment and write folder/report.html, with one sub-folder per problem and run."""
    from hearsay.report.comparison import comparison_report

    steps = max(20, round(HORIZON * scale))
    found, full, (pair, _) = problems(data_dir, steps), problems(data_dir), networks()
    runs = figures_2_to_6(found, steps, seeds, progress)
    for kind, named in runs.items():
        for name, run in named.items():
            run.save(folder / kind / name)
    peaks, curves = remark_22(max(5, round(30 * scale)), progress)
    best = equal_budgets(found, steps, seeds, progress)
    tables = {
        "ends": ends(runs),
        "budgets-declared": budgets(
            declared(),
            graphs.five_agents(),
            f"C = 1 declared, curvature off, {RECORDS:,} records, weights 1",
        ),
        **{
            f"budgets-{kind}": budgets(problem, pair, _basis(kind, problem))
            for kind, problem in full.items()
        },
        "peaks": peaks,
        **{f"equal-budgets-{kind}": equal_table(kind, best[kind]) for kind in best},
        "two-forms": two_forms(steps, data_dir, progress),
        "weights": weights(found, steps, seeds, progress),
        "conditions-s1": conditions(
            f"The paper's conditions for {S1} on digits",
            s1_findings(HORIZON, A, P, (0.1, 0.1), pair, full["digits"]),
        ),
        "conditions-s2": conditions(
            f"The paper's conditions for {S2} on digits",
            s2_findings(
                HORIZON, ALPHA, BETA, GAMMA, GROWTH, (0.9996, 0.9996), pair, full["digits"]
            ),
        ),
    }
    save_tables(folder, tables)
    return comparison_report(
        {name: runs["digits"][name] for name in schemes(steps)},
        folder,
        "Paper P2: gradient tracking on convex problems (Figs. 2-6)",
        notes=[*_about_budgets(full, tables, curves), *_about_runs(runs, best, tables)],
        tables=list(tables.values()),
        figures=_figures(runs, curves),
    )


def _figures(runs: Runs, curves: Curves) -> list[tuple[str, Any]]:
    from hearsay.report import plots
    from hearsay.report.plot_style import (
        SOFT,
        line_style,
        log_scale,
        new_figure,
        plain_ticks,
        styled,
    )

    def beside(ax: Any) -> None:
        with styled():
            ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))

    names, drawn = list(runs["digits"]), []
    for number, chosen, what in (
        (2, names[:3], "S1 with three noise exponents"),
        (3, names[3:6], "S2 with three noise levels"),
        (4, [S1, S2], "S1 against S2"),
        (5, [S1, S2, *names[6:]], "the other methods with the noise of S2"),
    ):
        for kind, metric in (("digits", "accuracy"), ("linear", "tracking_error")):
            figure, ax = new_figure(*((7.5, 4.0) if number == 5 else (5.0, 3.1)))
            plots.compare({k: runs[kind][k] for k in chosen}, metric, ax)
            if number == 5:
                beside(ax)
            drawn.append((f"Fig. {number}, {kind}: {what}.", figure))
    for kind, named in runs.items():
        figure, ax = new_figure(7.5, 4.0)
        plots.compare_budgets(
            {k: named[k] for k in chosen if not named[k].algorithm.law.needs_delta}, ax
        )
        beside(ax)
        drawn.append(
            (f"Fig. 6(a), {kind}: certified budget spent. The same noise for all but S1.", figure)
        )
    figure, ax = new_figure()
    plots.compare_budgets({kind: named["ternary-dsgd"] for kind, named in runs.items()}, ax)
    drawn.append(("Fig. 6(b): the delta of ternary messages, which have no epsilon.", figure))
    for name, lines in curves.items():
        figure, ax = new_figure()
        with styled():
            for index, (label, curve) in enumerate(lines.items()):
                ax.plot(curve.horizons, curve.epsilon, label=label, **line_style(index))
            ax.axvline(
                PEAKS[name],
                color=SOFT,
                linewidth=0.8,
                linestyle=":",
                label=f"Remark 22: K = {PEAKS[name]}",
            )
            ax.set_xlabel("planned horizon K")
            ax.set_ylabel("epsilon of the whole run")
            log_scale(ax, [curve.epsilon for curve in lines.values()])
            plain_ticks(ax)
            ax.legend()
        number = 2 if name == "S1" else 3
        drawn.append(
            (
                f"Fig. {number}(e): epsilon of {name} against the planned horizon, C = 1 declared.",
                figure,
            )
        )
    return drawn


def _about_budgets(full: dict[str, Problem], tables: dict[str, Table], curves: Curves) -> list[str]:
    rows = {row[0]: row for row in tables["budgets-declared"][2]}
    (_, paper, every, cyclic, period), graph, problem = rows[S1], graphs.five_agents(), declared()
    per_agent = [
        as_printed(Subset)[S1].paper_epsilon(graph, i, problem, HORIZON + 1) or 0.0
        for i in range(5)
    ]
    worst = int(np.argmax(per_agent))
    bare = certify(as_printed(Subset)[S1], problem, graph, HORIZON + 1).epsilon[AGENT]
    react = {
        kind: certify(as_printed(Subset)[S1], p, graph, HORIZON + 1).epsilon[AGENT]
        / (bare * p.change * p.dimension**0.5)
        for kind, p in full.items()
    }
    top = {
        name: {label: curve.peak for label, curve in lines.items()}
        for name, lines in curves.items()
    }
    formula = "the paper's formula"
    return [
        (
            f"Lemma 2 overcounts. With C = 1, K = {HORIZON} and {S1} it gives {paper} for agent"
            f" {AGENT}; what the messages of the compact form can tell is {every} if a record may"
            f" be in every batch, and {cyclic} if each is in one batch out of {period}, as"
            f" {RECORDS:,} records allow. The lemma adds up |Delta g(k)| + |Delta g(k-1)| at every"
            " step, where the differences telescope: a tracker is its gradient plus what the"
            " transcript tells. It also takes both gradients at the same point, which leaves out L"
            " Phi, the reaction of later gradients to a state that the record has moved. With the"
            " derived curvature the bound for every step changes by a factor of"
            f" {react['digits']:.2f} on digits and {react['linear']:.2f} on linear: the reaction"
            " costs, and strong convexity gives some of it back. C is not printed; with an"
            " enforced or derived one the budgets are those of the two tables below the first."
        ),
        (
            f"The lemma's number depends on the weights: agent {worst} hears no tracker at all and"
            f" would pay {per_agent[worst]:,.0f} instead of {paper}. The certificate does not"
            " depend on them, because everything that is mixed has been sent."
        ),
        (
            "The paper says of both schemes that smaller noise parameters make a smaller budget."
            f" It is the other way round, by its own formula too: {rows['S1, p = -0.1'][1]} for p ="
            f" -0.1 and {rows['S1, p = 0.2'][1]} for p = 0.2 in S1."
        ),
        (
            f"Remark 22 lets the budget fall from K = {PEAKS['S1']} on in S1 and from {PEAKS['S2']}"
            " in S2, from the order of growth alone. By Lemma 2 itself it peaks at K ="
            f" {top['S1'][formula]} and {top['S2'][formula]}, because m is a whole number: up to K"
            f" = {top['S1'][formula]} S1 samples {size(s1(top['S1'][formula]))} record a step. For"
            f" cyclic batches S1 costs most at K = {top['S1']['certified, cyclic']:,}, the shortest"
            f" plan here, and S2 at {top['S2']['certified, cyclic']:,}, the longest: with"
            f" {RECORDS:,} records larger batches come back sooner."
        ),
    ]


def _about_runs(runs: Runs, best: Best, tables: dict[str, Table]) -> list[str]:
    digits, linear = runs["digits"], runs["linear"]
    rivals = [k for k in list(digits)[6:] if "no noise" not in k]
    ahead = {
        kind: [k for k in rivals if _better(kind, named[k], named[S2])]
        for kind, named in runs.items()
    }
    cheaper = [
        k
        for k in rivals
        if k != "ternary-dsgd" and all(_cost(r[k]) < _cost(r[S2]) for r in runs.values())
    ]
    agrees = all(
        _better(kind, r[S2], r[S1]) and _cost(r[S1]) < _cost(r[S2]) for kind, r in runs.items()
    )
    start, lowest = linear[S1].metrics["tracking_error"].mean(axis=1)[0], _lowest(linear[S1])
    ternary = digits["ternary-dsgd"]
    reached = ternary.steps[ternary.spent.max(axis=1) >= 1]
    failing = [
        row[0]
        for name in ("conditions-s1", "conditions-s2")
        for row in tables[name][2]
        if row[1] == "no"
    ]
    problem, forms = digits[S2].problem, {row[0]: row for row in tables["two-forms"][2]}
    right = np.mean(
        (problem.test_features @ Reference(problem).of(problem.counts).params > 0)
        == problem.test_labels
    )
    even, apart = forms["digits, split evenly"], forms["digits, split by label"]
    return [
        (
            "The paper prints two algorithms. Its agents' update (4), (6) keeps a row sum of C;"
            " its proofs use (7), (8), with column sums. Without noise the former is at a distance"
            f" of {even[4]} from the optimum on digits in the end, {apart[4]} where agents hold"
            f" different labels, and the latter at {even[2]} and {apart[2]}. All runs here are of"
            " (7), (8)."
        ),
        (
            f"On digits the best model for all records is right about {100 * right:.1f} % of the"
            f" test records, guessing about {100 * (digits[S2].guessing or 0):.1f} %. After"
            f" {_last(runs):,} steps {S2} has {_accuracy(digits[S2])} and {S1}"
            f" {_accuracy(digits[S1])}; on linear their squared errors are {_error(linear[S2])} and"
            f" {_error(linear[S1])}, from {_short(float(start))} at the start. Fig. 4 says that S2"
            f" is faster and S1 cheaper, which {'holds' if agrees else 'does not hold'} on both:"
            f" certified budgets of {_budget(digits[S2])} and {_budget(digits[S1])} on digits,"
            f" {_budget(linear[S2])} and {_budget(linear[S1])} on linear. With p > 0 the noise of"
            f" S1 grows: the error of {S1} on linear is smallest after {lowest:,} steps."
        ),
        (
            "Figs. 5 and 6 say that S2 learns faster than the others and that both schemes cost"
            f" less. At the same noise {_listed(ahead['digits'])} did better than S2 on digits and"
            f" {_listed(ahead['linear'])} on linear, and a smaller certified budget than S2 on both"
            f" problems had {_listed(cheaper)}. Neither says much: the same noise is not the same"
            " protection. S1 keeps its own settings here; with those of S2, which the paper gives"
            " it, it is S2."
        ),
        (
            f"At the same certified budget gradient tracking {_verdict(best)}. Of what a record did"
            f" to a private state {1 - GAMMA * problem.loss.curvature[0]:.4g} is left a step later"
            f" (1 - gamma mu on digits), where output-perturbation leaves at most {1 - ALPHA:g},"
            " and every step pays for two messages. It runs on directed graphs, and none of the"
            " others does."
        ),
        (
            "Ternary messages have no epsilon. Their delta on digits"
            f" {f'reaches 1 by message {int(reached[0]):,}' if len(reached) else 'stays below 1'}"
            " (the paper: 800 iterations), and on linear it is"
            f" {show(linear['ternary-dsgd'].certificate.slack)} at the end. Quantization alone has"
            " no finite budget: a value is never sent as a point further away than the grid is"
            " wide."
        ),
        f"Not satisfied by the printed settings on digits: {'; '.join(failing)}.",
        (
            "Not printed and chosen here: the pair of graphs in the style of the paper's Fig. 1"
            f" and its weights ({WEIGHT:g}: larger ones let in more noise at the same budget, as a"
            " table below shows), a ring with the same weight for all methods that need symmetric"
            f" weights, ridge {problem.loss.ridge:g} and {linear[S2].problem.loss.ridge:g},"
            f" records' gradients clipped to {linear[S2].problem.loss.clip:g} on linear, a ternary"
            f" threshold of {THRESHOLD:g} and a grid of {algorithms.QuantizedDsgd().resolution:g}."
            " The history of ldp-online grows by m records a step, dola's steps fall like"
            " 1/sqrt(k) from the same first one, weighted-erm has a coupling of"
            f" {algorithms.WeightedErm().coupling}, and all noise is Laplace. Digits has"
            f" {problem.counts.min()} records per agent, so that with cyclic batches a record is in"
            f" one out of {problem.counts.min() // size(digits[S2].algorithm)}."
        ),
    ]


def _verdict(best: Best) -> str:
    """How the better of S1 and S2 stands against the best other method, in words."""
    said = []
    for kind, named in best.items():
        for index in range(2):
            scores = {
                name: _score(kind, runs[index])
                for name, runs in named.items()
                if name != "ternary-dsgd"
            }
            mine = max((S1, S2), key=lambda k: scores[k])
            top = max((k for k in scores if k not in (S1, S2)), key=lambda k: scores[k])
            results = "; ".join(f"{k}: {_result(kind, named[k][index])}" for k in (mine, top))
            outcome = "wins" if scores[mine] > scores[top] else "loses"
            said.append(f"{outcome} on {kind} at {_budget(named[S2][index])} ({results})")
    return _listed(said)


def _run(
    algorithm: Algorithm,
    problem: Problem,
    graph: Graph,
    steps: int,
    seeds: int,
    reference: Reference,
) -> Run:
    return complete(
        simulate(
            algorithm, problem, graph, steps=steps, seeds=seeds, reference=reference, regret=False
        )
    )


def _last(runs: Runs) -> int:
    return int(runs["digits"][S2].steps[-1])


def _throughout(run: Run) -> float:
    """The mean squared error over the whole run."""
    return float(np.nan_to_num(run.metrics["tracking_error"].mean(), nan=np.inf))


def _score(kind: str, run: Run) -> float:
    return run.final("accuracy")[0] if kind == "digits" else -run.final("tracking_error")[0]


def _better(kind: str, run: Run, other: Run) -> bool:
    return _score(kind, run) > _score(kind, other)


def _lowest(run: Run) -> int:
    """The step at which the error was smallest."""
    return int(run.steps[np.argmin(run.metrics["tracking_error"].mean(axis=1))])


def _cost(run: Run) -> float:
    return max(run.certificate.epsilon)


def _budget(run: Run) -> str:
    slack = run.certificate.slack
    return show(_cost(run)) if slack is None else f"delta = {show(slack)}"


def _accuracy(run: Run) -> str:
    return f"{100 * run.final('accuracy')[0]:.1f} %"


def _error(run: Run) -> str:
    mean, spread = run.final("tracking_error")
    shown = "0" if spread < 1e-9 * mean else f"{spread:,.0f}" if spread >= 10 else f"{spread:.1g}"
    return f"{_short(mean)} ± {shown}"


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _result(kind: str, run: Run) -> str:
    return f"{_accuracy(run)}, {_error(run)}" if kind == "digits" else _error(run)


def _basis(kind: str, problem: Problem) -> str:
    low, high = problem.loss.curvature
    return (
        f"{kind}, C = {problem.change:.3g} and curvature [{low:.3g}, {high:.3g}], nothing declared"
    )


def _listed(names: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1]))) if names else "none"
