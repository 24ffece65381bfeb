"""Paper P2, section IV, as printed: ResNet18 on MNIST and CIFAR-10 (Figs. 2-6).

p2_convex.py has the same schemes on convex problems, and Remark 22.

As printed: five agents, the training records split evenly, K = 2000, and

    S1  alpha = 0.04,  beta = 0.005,  gamma = 0.05,  m = 53,
        noise (k+1)^p,  p = -0.1, 0.1, 0.2
    S2  alpha = 0.1,   beta = 0.01,   gamma = 0.1,   m = 55,
        noise p^K,      p = 0.9994, 0.9996, 0.9998

The other methods (Figs. 5, 6) have the step, the sampling and the noise of S2 with p = 0.9996. All
of these are functions of K = 2000; shorter runs keep them. Not printed, and chosen here: the two
graphs and their weights, the ring of the methods that need symmetric ones (p2_convex.py), the ball
(1e5), and what bounds a gradient. "As printed" nothing does, and there is no certificate; budgets
are those of the same runs with a clip. ResNet18 has GroupNorm where the original has BatchNorm: a
norm over a batch mixes records, so that no clip of a record's gradient would bound what it does. At
scale "small" a dense network stands in for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from hearsay import _validate as require
from hearsay.base import Algorithm
from hearsay.certification import certify
from hearsay.experiments import p2_convex
from hearsay.experiments.common import Progress, Table, save_tables
from hearsay.experiments.images import (
    CLIP,
    DELTA,
    EPSILON,
    Runs,
    Scale,
    Trial,
    better,
    caution,
    certified,
    curves,
    delta_of,
    ends,
    gradient_candidates,
    margin,
    scale_of,
    small_model,
    steps_times,
    train,
)
from hearsay.experiments.p2_convex import HORIZON, S1, S2
from hearsay.graphs import Graph
from hearsay.privacy.certificate import show
from hearsay.problems.data.images import load_images
from hearsay.problems.neural import neural
from hearsay.problems.problem import Problem
from hearsay.problems.sampling.samplers import Cyclic

AGENTS = 5
SMALL, PAPER = Scale(60, 1500, 300), Scale(HORIZON)
SCHEMES = p2_convex.as_printed(Cyclic)
OTHERS = p2_convex.others(SCHEMES[S2])
OWN, CHEAP = (
    f"{S2}, clipped, best step at its own budget",
    f"gradient-perturbation at ε = {EPSILON:g}",
)
OWN_FACTORS = (0.25, 1.0, 4.0, 16.0)
RUNS = [*SCHEMES, *OTHERS, OWN, CHEAP]
TITLES = {"mnist": "MNIST", "cifar10": "CIFAR-10"}


class Setting(NamedTuple):
    """The problem as printed and with a clip, the pair of directed graphs and the ring."""

    free: Problem
    clipped: Problem
    pair: Graph
    ring: Graph


def setting(data: str, scale: Scale, model: str | None, data_dir: str | None) -> Setting:
    """model: a name in models.py; None is the small one."""
    images = load_images(data, data_dir=data_dir)
    chosen = small_model(images.shape, images.classes) if model is None else model
    # The history of ldp-online grows by as many records a step as the others sample.
    options: dict[str, Any] = {
        "model": chosen,
        "agents": AGENTS,
        "per_step": p2_convex.size(SCHEMES[S2]),
    }
    free, clipped = (neural(images, clip=clip, **options, **scale.data()) for clip in (None, CLIP))
    return Setting(free, clipped, *p2_convex.networks())


def figures_2_to_6(
    found: Setting, steps: int, seeds: int, only: Sequence[str], progress: Progress
) -> Runs:
    """The schemes and the other methods as printed and, beside them, what S2's budget and a
    far smaller one can buy.
    """
    free, clipped, pair, ring = found
    trials: dict[str, Trial] = {
        **{name: (scheme, free, pair) for name, scheme in SCHEMES.items()},
        **{name: (other, free, ring) for name, other in OTHERS.items()},
    }
    runs = train(
        {name: trial for name, trial in trials.items() if name in only},
        steps,
        seeds,
        "as printed",
        progress,
    )
    if OWN in only:
        same = certified(SCHEMES[S2], clipped, pair, steps)
        options = steps_times(SCHEMES[S2], OWN_FACTORS)
        runs[OWN] = better(options, clipped, pair, steps, seeds, same, "same budget", progress)
    if CHEAP in only:
        options = gradient_candidates(min(200, int(clipped.counts.min())), (0.1, 0.3, 1.0))
        runs[CHEAP] = better(
            options, clipped, ring, steps, seeds, EPSILON, "small budget", progress
        )
    return runs


def figure_6(found: Setting) -> Table:
    """What every method would cost with the clip, for K + 1 messages."""
    rows, messages = [], HORIZON + 1
    methods: dict[str, tuple[Algorithm, Graph]] = {
        **{name: (scheme, found.pair) for name, scheme in SCHEMES.items()},
        **{name: (other, found.ring) for name, other in OTHERS.items()},
    }
    for name, (algorithm, graph) in methods.items():
        certificate = certify(algorithm, found.clipped, graph, messages, delta=delta_of(algorithm))
        paper = [b.paper_epsilon for b in certificate.budgets if b.paper_epsilon is not None]
        delta = "-" if certificate.slack is None else show(certificate.slack)
        rows.append(
            [name, show(max(paper)) if paper else "-", show(max(certificate.epsilon)), delta]
        )
    header = ["method", "ε by its paper's formula", "ε certified", "δ"]
    what = (
        f"{messages:,} messages, gradients clipped to {CLIP:g}, batches that go round the records"
    )
    return f"Fig. 6: the largest budget of an agent, {what}", header, rows


def reproduce(
    folder: Path,
    *,
    data_dir: str | None,
    seeds: int,
    scale: str | float,
    progress: Progress,
    data: str = "mnist",
    only: Sequence[str] | None = None,
    model: str | None = None,
) -> Path:
    """only: the names in RUNS to run (all); model: another network than the scale's own."""
    from hearsay.report.comparison import comparison_report

    wanted = [require.one_of("only", name, RUNS) for name in (RUNS if only is None else only)]
    chosen = scale_of(scale, SMALL, PAPER)
    found = setting(data, chosen, model or ("resnet18" if scale == "paper" else None), data_dir)
    runs = figures_2_to_6(found, chosen.steps, seeds, wanted, progress)
    model = found.clipped.loss.model  # type: ignore[attr-defined]
    what = f"{model}, clip {CLIP:g}, {int(found.clipped.counts.min()):,} records per agent"
    tables = {
        "ends": ends(
            runs, f"After {chosen.steps:,} iterations, {seeds} seed{'s' if seeds > 1 else ''}"
        ),
        "budgets": p2_convex.budgets(found.clipped, found.pair, what),
        "figure-6": figure_6(found),
    }
    save_tables(folder, {**tables, "curves": curves(runs)})
    title = f"Paper P2: gradient tracking on {TITLES.get(data, data)} (Figs. 2-6)"
    shown = {name: found for name, found in runs.items() if name not in OTHERS} or runs
    notes = [*_about(found, chosen), *_about_budgets(tables), *_about_runs(runs)]
    return comparison_report(
        shown, folder, title, notes=notes, tables=list(tables.values()), figures=_figures(runs)
    )


reproduce_cifar: Callable[..., Path] = partial(reproduce, data="cifar10")


def _figures(runs: Runs) -> list[tuple[str, Any]]:
    from hearsay.report import plots
    from hearsay.report.plot_style import new_figure, styled

    drawn, names = [], list(SCHEMES)
    for number, chosen, what in (
        (2, names[:3], "S1 with three noise exponents"),
        (3, names[3:], "S2 with three noise levels"),
        (4, [S1, S2], "S1 against S2"),
        (5, [S1, S2, *OTHERS], "the other methods with the noise of S2"),
    ):
        here = {name: runs[name] for name in chosen if name in runs}
        for metric, part in (("train_accuracy", "training"), ("accuracy", "testing")):
            if not here:
                continue
            figure, ax = new_figure(*((7.5, 4.0) if number == 5 else (5.0, 3.1)))
            plots.compare(here, metric, ax)
            if len(here) > 6:
                with styled():
                    ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
            drawn.append((f"Fig. {number}, {part}: {what}.", figure))
    return drawn


def _about(found: Setting, scale: Scale) -> list[str]:
    model, short = found.free.loss.model, scale.steps < HORIZON  # type: ignore[attr-defined]
    cut = (
        f"{scale.steps} of the paper's {HORIZON} iterations, with the steps, samples and noise of"
        f" all {HORIZON}"
    )
    return [
        f"Settings as printed, {cut if short else f'{HORIZON} iterations'}; the network is"
        f" {model}. "
        + (
            "The paper's ResNet18 takes a GPU (--scale paper). "
            if "resnet18" not in model.name
            else "It has GroupNorm, because BatchNorm mixes records. "
        )
        + "Not printed and chosen here: the pair of graphs in the style of Fig. 1 and its weights"
        f" ({p2_convex.WEIGHT:g}), a ring with the same weight for the methods that need"
        f" symmetric ones, batches that go round the records, and the clip {CLIP:g} of what has a"
        " budget. ldp-online learns from all records that have arrived,"
        f" {found.free.arrivals.per_step} more at every step.",
    ]


def _about_budgets(tables: dict[str, Table]) -> list[str]:
    rows = {row[0]: row for row in tables["budgets"][2]}
    (_, paper, every, cyclic, period), low, high = (
        rows[S2],
        rows["S1, p = -0.1"],
        rows["S1, p = 0.2"],
    )
    return [
        (
            "As printed nothing bounds what one record does to a gradient, so there is no"
            f" certificate: the budget is infinite. With a clip of {CLIP:g} and {HORIZON:,} steps"
            f" {S2} costs agent {p2_convex.AGENT} {paper} by the paper's formula, {every} certified"
            f" if a record may be in every batch, and {cyclic} if it is in one out of"
            f" {period}{': that makes no difference' if every == cyclic else ''}. A network has no"
            " known curvature: once a record has moved a model, every later gradient may differ by"
            " twice the clip, whether the record is used again or not. Laplace noise also pays a"
            " factor sqrt(d) for a bound in l2."
        ),
        (
            "The paper says that smaller noise parameters make a smaller budget. By its own"
            f" formula it is the other way round: {low[1]} for p = -0.1 and {high[1]} for p = 0.2"
            f" in S1 (certified, cyclic: {low[3]} and {high[3]})."
        ),
    ]


def _about_runs(runs: Runs) -> list[str]:
    score = {name: run.final("accuracy")[0] for name, run in runs.items()}
    shown = {name: f"{100 * value:.1f} %" for name, value in score.items()}
    least, guess = margin(runs), max(run.guessing or 0.0 for run in runs.values())
    verdict: Callable[[float], str] = lambda d: (  # noqa: E731
        "holds" if d > least else "does not hold" if d < -least else "cannot be told"
    )
    said = [f"Always naming the commonest class scores {100 * guess:.1f} %. {caution(runs)}"]
    for name, order in (("S1", list(SCHEMES)[:3]), ("S2", list(SCHEMES)[3:])):
        if all(key in score for key in order):  # from the least noise to the most
            last = ", ".join(f"{shown[key]} for {key.split(', ')[1]}" for key in order)
            said.append(
                f"{name} ends at {last}: that less noise is better, as Fig."
                f" {2 if name == 'S1' else 3} says, {verdict(score[order[0]] - score[order[2]])}."
            )
    if S1 in score and S2 in score:
        said.append(
            f"Fig. 4 has S2 ({S2[4:]}) ahead of S1 ({S1[4:]}): {verdict(score[S2] - score[S1])}."
        )
    rivals = [name for name in OTHERS if name in score]
    if S2 in score and rivals:
        ahead, near = (
            [f"{name} ({shown[name]})" for name in rivals if low < score[name] - score[S2] <= high]
            for low, high in ((least, 1), (-least, least))
        )
        said.append(
            f"Fig. 5 has S2 ahead of all others; here clearly better than its {shown[S2]}:"
            f" {p2_convex._listed(ahead)}; about the same: {p2_convex._listed(near)}. The same"
            " noise is not the same protection (Fig. 6 below)."
        )
    if OWN in runs:
        own = runs[OWN]
        said.append(
            f"With the clip and the certified budget of {S2} ({show(max(own.certificate.epsilon))})"
            f" the best of {len(OWN_FACTORS)} steps is {own.algorithm.step_size} and gives"
            f" {shown[OWN]}."
        )
    if CHEAP in runs:
        said.append(
            "The library's cheapest way, noise on the gradients of large batches, has"
            f" {shown[CHEAP]} at ε = {EPSILON:g}, δ = {DELTA:g} (step"
            f" {runs[CHEAP].algorithm.step_size})."
        )
    return [" ".join(said)]
