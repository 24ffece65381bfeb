"""Paper P4, section V-B: a CNN on MNIST by online federated learning (Fig. 4).

As printed: 10 learners, half of the records dealt out evenly and of the other half all of digit l
at learner l + 1, two convolutions and three dense layers (cnn-p4), (epsilon, delta) = (2, 1e-3),
tau in {5, 10}, one step size for all methods. Every record is used once: R is what the shortest
stream serves, at most 1000.

Not printed, and chosen here: R, what bounds a gradient (a clip B), eta (out of `STEPS`, the one
that suits MF (iii), tau = 5 best; eta_g = 1).

The paper's noise rests on S = 2 B / tau for what one record does to a round's message. That holds
where local steps do not stretch a difference (convex, eta <= 2/L). For a network every local
step after the record's may differ, and all that a clip proves is S = 2 B, tau times as much. "As
printed" has the noise of the paper's formula, "certified" that of the certificate.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hearsay import _validate as require
from hearsay import graphs
from hearsay.algorithms import CorrelatedFederated
from hearsay.algorithms.baselines.federated_independent import federated_independent
from hearsay.algorithms.baselines.federated_noiseless import federated_noiseless
from hearsay.certification import calibrate
from hearsay.experiments import images
from hearsay.experiments.common import Progress, Table, save_tables
from hearsay.experiments.images import (
    CLIP,
    Runs,
    Scale,
    better,
    caution,
    curves,
    ends,
    gradient_candidates,
    scale_of,
    small_model,
)
from hearsay.graphs import Graph
from hearsay.privacy.certificate import show
from hearsay.problems.data.images import load_images
from hearsay.problems.neural import neural
from hearsay.problems.problem import Problem
from hearsay.problems.sampling.samplers import Fresh
from hearsay.schedules import Constant, SampleSize

LEARNERS, TAUS, EPSILON, DELTA = 10, (5, 10), 2.0, 1e-3
STEPS = (0.003, 0.01, 0.03, 0.1)
SMALL, PAPER = Scale(50, 5600, 500), Scale(1000)
KINDS = {
    "MF (i), tree": "tree",
    "MF (ii), dense": "dense",
    "MF (iii), toeplitz": "toeplitz",
    "independent": "identity",
}
BEST, CHEAP = "MF (iii), toeplitz", f"gradient-perturbation at ε = {images.EPSILON:g}"


def problem_and_graph(
    data: str, scale: Scale, model: str | None, learners: int, data_dir: str | None
) -> tuple[Problem, Graph]:
    """model: a name in models.py; None is the small one."""
    found = load_images(data, data_dir=data_dir)
    chosen = small_model(found.shape, found.classes) if model is None else model
    problem = neural(
        found, model=chosen, agents=learners, partition="half_by_label", clip=CLIP, **scale.data()
    )
    return problem, graphs.complete(learners)


def method(kind: str, rounds: int, tau: int, step: float) -> CorrelatedFederated:
    """One of KINDS or "noiseless", its noise still to be set."""
    shared: dict[str, Any] = {
        "horizon": rounds,
        "step": Constant(step),
        "sampling": Fresh(SampleSize(Constant(float(tau)))),
    }
    if kind == "noiseless":
        return federated_noiseless(**shared)
    if kind == "independent":
        return federated_independent(**shared)
    return CorrelatedFederated(factorization=KINDS[kind], **shared)


def printed_noise(algorithm: CorrelatedFederated, problem: Problem) -> CorrelatedFederated:
    """V = S max |c| / sqrt(2 rho) with S = 2 B / tau and rho = (sqrt(epsilon + log
    1/delta) - sqrt(log 1/delta))^2 (Lemma IV.8).
    """
    log = math.log(1 / DELTA)
    rho = (math.sqrt(EPSILON + log) - math.sqrt(log)) ** 2
    level = (
        problem.change / algorithm.local_steps * algorithm.factors.sensitivity / math.sqrt(2 * rho)
    )
    return replace(algorithm, noise=Constant(level))


def certified_noise(
    algorithm: CorrelatedFederated, problem: Problem, graph: Graph
) -> CorrelatedFederated:
    return calibrate(algorithm, problem, graph, algorithm.horizon, EPSILON, delta=DELTA)  # type: ignore[return-value]


def rounds_of(problem: Problem, tau: int, most: int) -> int:
    return min(most, int(problem.counts.min()) // tau)


def names(dense: bool = True) -> list[str]:
    """What can be run.

    The dense factorization is fitted in time R^3, so a first look leaves it out.
    """
    kinds = [kind for kind in KINDS if dense or kind != "MF (ii), dense"]
    each = [
        *(f"{kind}, as printed" for kind in kinds),
        *(f"{kind}, certified" for kind in (BEST, "independent")),
    ]
    return [*(f"τ = {tau}: {name}" for tau in TAUS for name in (*each, "noiseless")), CHEAP]


def best_step(
    problem: Problem, graph: Graph, most: int, progress: Progress
) -> tuple[float, dict[float, float]]:
    """The step with which MF (iii) as printed ends best, tau = 5, one seed;
    and how every one ended.
    """
    rounds, scores = rounds_of(problem, TAUS[0], most), {}
    for step in STEPS:
        ready = printed_noise(method(BEST, rounds, TAUS[0], step), problem)
        found = images.run(ready, problem, graph, rounds, 1, delta=DELTA)
        scores[step] = float(np.nan_to_num(found.final("accuracy")[0]))
        progress("steps", len(scores), len(STEPS))
    return max(scores, key=lambda step: scores[step]), scores


def figure_4(
    problem: Problem,
    graph: Graph,
    most: int,
    seeds: int,
    step: float,
    only: Sequence[str],
    progress: Progress,
) -> Runs:
    runs: Runs = {}
    wanted = [name for name in only if name != CHEAP]
    for name in wanted:
        head, what = name.split(": ", 1)
        tau, (kind, _, way) = int(head.split()[-1]), what.rpartition(", ")
        rounds = rounds_of(problem, tau, most)
        ready = method(kind or way, rounds, tau, step)
        if way == "as printed":
            ready = printed_noise(ready, problem)
        elif way == "certified":
            ready = certified_noise(ready, problem, graph)
        runs[name] = images.run(ready, problem, graph, rounds, seeds, delta=DELTA)
        progress("Fig. 4", len(runs), len(wanted))
    if CHEAP in only:
        rounds, size = rounds_of(problem, TAUS[0], most), min(200, int(problem.counts.min()))
        options = gradient_candidates(size, (0.1, 0.3, 1.0))
        runs[CHEAP] = better(
            options, problem, graph, rounds, seeds, images.EPSILON, "small budget", progress
        )
    return runs


def reproduce(
    folder: Path,
    *,
    data_dir: str | None,
    seeds: int,
    scale: str | float,
    progress: Progress,
    data: str = "mnist",
    only: Sequence[str] | None = None,
    step: float | None = None,
    learners: int = LEARNERS,
) -> Path:
    """only: the names in names() to run (all; a small run leaves out the dense factorization);
    step: eta, instead of the best of STEPS.
    """
    from hearsay.report.comparison import comparison_report

    chosen, full = scale_of(scale, SMALL, PAPER), scale == "paper"
    wanted = (
        names(full) if only is None else [require.one_of("only", name, names()) for name in only]
    )
    problem, graph = problem_and_graph(data, chosen, "cnn-p4" if full else None, learners, data_dir)
    scores: dict[float, float] = {}
    if step is None:
        step, scores = best_step(problem, graph, chosen.steps, progress)
    runs = figure_4(problem, graph, chosen.steps, seeds, step, wanted, progress)
    table = ends(
        runs,
        f"At the end, {seeds} seed{'s' if seeds > 1 else ''}; Gaussian budgets at the δ that is"
        " given with them",
    )
    save_tables(folder, {"ends": table, "curves": curves(runs), "steps": _steps(scores)})
    notes = [*_about(problem, step, scores), *_about_runs(runs)]
    title = (
        f"Paper P4: a CNN on {'MNIST' if data == 'mnist' else data} by online federated learning"
        " (Fig. 4)"
    )
    return comparison_report(
        {}, folder, title, notes=notes, tables=[table, _steps(scores)], figures=_figures(runs)
    )


def _steps(scores: dict[float, float]) -> Table:
    rows = [[f"{step:g}", f"{score:.4f}"] for step, score in scores.items()]
    return (
        f"{BEST} as printed, τ = {TAUS[0]}: where every step leads, one seed",
        ["η", "test accuracy"],
        rows,
    )


def _figures(runs: Runs) -> list[tuple[str, Any]]:
    from hearsay.report import plots
    from hearsay.report.plot_style import new_figure

    drawn = []
    for tau in TAUS:
        for way in ("as printed", "certified"):
            here = {
                name.split(": ", 1)[1]: run
                for name, run in runs.items()
                if name.startswith(f"τ = {tau}:") and name.endswith((way, "noiseless"))
            }
            if not here:
                continue
            figure, ax = new_figure()
            plots.compare(here, "accuracy", ax)
            ax.set_xlabel("round")
            noise = (
                "noise by the paper's S = 2 B / τ"
                if way == "as printed"
                else "noise by the certified S = 2 B"
            )
            drawn.append(
                (f"Fig. 4, τ = {tau}, {noise}: test accuracy of the released model.", figure)
            )
    return drawn


def _about(problem: Problem, step: float, scores: dict[float, float]) -> list[str]:
    swept = (
        f"the best of {', '.join(f'{s:g}' for s in scores)} for {BEST} as printed, τ = {TAUS[0]},"
        " which favours it"
        if scores
        else "given"
    )
    served = {tau: int(problem.counts.min()) // tau for tau in TAUS}
    return [
        f"As printed: {problem.agents} learners, half of the records even and half by digit,"
        f" ({EPSILON:g}, {DELTA:g}), τ in {{5, 10}}, one step size for all methods. The network is "
        f"{problem.loss.model}"  # type: ignore[attr-defined]
        f"{'' if 'cnn-p4' in str(problem.loss) else ', where the paper has a CNN (--scale paper)'}"
        ". "
        f"Not printed and chosen here: the step η = {step:g} ({swept}; η_g = 1), the clip {CLIP:g}"
        " that bounds a gradient, and the number of rounds: learners hold "
        f"{int(problem.counts.min()):,} to {int(problem.counts.max()):,} records, each is used"
        f" once, and the shortest stream serves {served[5]:,} rounds of 5 and {served[10]:,}"
        " of 10.",
    ]


def _about_runs(runs: Runs) -> list[str]:
    shown = {name: f"{100 * run.final('accuracy')[0]:.1f} %" for name, run in runs.items()}
    said = []
    for tau in TAUS:
        mine = {name.split(": ", 1)[1]: name for name in runs if name.startswith(f"τ = {tau}:")}
        if not mine:
            continue
        line = (
            f"τ = {tau}: " + ", ".join(f"{what} {shown[name]}" for what, name in mine.items()) + "."
        )
        if (printed := mine.get(f"{BEST}, as printed")) is not None:
            budget = runs[printed].certificate
            paper = max(b.paper_epsilon or 0.0 for b in budget.budgets)
            line += (
                f" The paper's formula says that {BEST} as printed costs ε = {paper:.4g}; what a"
                " clip proves for a network, where every local step after a record's may differ,"
                f" is {show(max(budget.epsilon))}."
            )
        said.append(line)
    score = {name: run.final("accuracy")[0] for name, run in runs.items()}
    pairs = [
        [score[f"τ = {tau}: {kind}, as printed"] for tau in TAUS]
        for kind in KINDS
        if all(f"τ = {tau}: {kind}, as printed" in score for tau in TAUS)
    ]
    if pairs:
        said.append(
            "The paper finds that all methods do better with τ = 10: here"
            f" {sum(b > a for a, b in pairs)} of {len(pairs)} with noise do."
        )
    if CHEAP in runs:
        said.append(
            "Beside it the library's cheapest way, noise on gradients of batches that go round the"
            f" records: {shown[CHEAP]} at ε = {images.EPSILON:g}, δ = {images.DELTA:g}."
        )
    guess = max(run.guessing or 0.0 for run in runs.values())
    return [*said, f"Always naming the commonest class scores {100 * guess:.1f} %. {caution(runs)}"]
