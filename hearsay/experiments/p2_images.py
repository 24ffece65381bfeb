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
(1e5), and what bounds a gradient. Not as printed: batches go round the records, where Algorithm 1
draws them anew; ldp-online has one new record a step and all so far, as in its own paper. "As
printed" nothing does, and there is no certificate; budgets are those of the same runs with a clip.
ResNet18 has GroupNorm where the original has BatchNorm: a norm over a batch mixes records, so that
no clip of a record's gradient would bound what it does. At scale "small" a dense network stands in
for it. The numbers are in data/p2.toml.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hearsay.algorithms import QuantizedDsgd
from hearsay.base import Algorithm
from hearsay.certification import certify
from hearsay.experiments import settings
from hearsay.experiments.beside import Own, Wanted, side_by_side
from hearsay.experiments.images import (
    CHEAP,
    CLIP,
    Runs,
    Trial,
    accuracies,
    curves,
    delta_of,
    ends,
    margin,
    problems,
    scale_of,
    scales,
)
from hearsay.experiments.p2_convex import legend_beside
from hearsay.experiments.p2_schemes import (
    AGENT,
    HORIZON,
    S1,
    S2,
    as_printed,
    budgets,
    networks,
    others,
    size,
)
from hearsay.experiments.p2_schemes import SETTINGS as CONVEX
from hearsay.experiments.runner import Experiment, Findings
from hearsay.experiments.settings import Table
from hearsay.graphs import Graph
from hearsay.privacy.certificate import show
from hearsay.problems import Problem
from hearsay.problems.sampling.samplers import Cyclic

SETTINGS = settings.read("p2-mnist")
SCHEMES = as_printed(Cyclic)
OTHERS = others(SCHEMES[S2])
OWN = SETTINGS.text("own", s2=S2)
HISTORY = "ldp-online"


def methods() -> dict[str, tuple[Algorithm, Graph]]:
    """The schemes on the pair of directed graphs, the others on the ring."""
    pair, ring = networks()
    return {
        **{name: (scheme, pair) for name, scheme in SCHEMES.items()},
        **{name: (other, ring) for name, other in OTHERS.items()},
    }


def in_blocks(problem: Problem) -> Problem:
    """A history in blocks that do not compute much more than has arrived: 256 records of five
    agents fill a device with ResNet18.
    """
    block = min(problem.arrivals.block, SETTINGS["block"])
    return replace(problem, arrivals=replace(problem.arrivals, block=block))


def figure_6(clipped: Problem, history: Problem) -> Table:
    """What every method would cost with the clip, for K + 1 messages."""
    rows, messages = [], HORIZON + 1
    for name, (algorithm, graph) in methods().items():
        problem = history if name == HISTORY else clipped
        certificate = certify(algorithm, problem, graph, messages, delta=delta_of(algorithm))
        paper = [b.paper_epsilon for b in certificate.budgets if b.paper_epsilon is not None]
        delta = "-" if certificate.slack is None else show(certificate.slack)
        rows.append(
            [name, show(max(paper)) if paper else "-", show(max(certificate.epsilon)), delta]
        )
    return SETTINGS.table("figure-6", rows, messages=messages, clip=CLIP)


def measure(experiment: Experiment, only: Sequence[str] | Wanted | None = None) -> Findings:
    """The schemes and the other methods as printed and, beside them, what S2's budget and a far
    smaller one can buy.

    Args:
      only: the names of the runs to make (all).
    """
    scale = scale_of(experiment.scale, *scales(experiment.settings))
    free, clipped = problems(experiment, scale, per_step=size(SCHEMES[S2]))
    pair, ring = networks()
    trials: dict[str, Trial] = {name: (a, free, graph) for name, (a, graph) in methods().items()}
    # One record a step, as its own paper has it, and all of them at every step.
    history = [in_blocks(p) for p in problems(experiment, scale, per_step=1)]
    trials[HISTORY] = (OTHERS[HISTORY], history[0], ring)
    own = Own(OWN, SCHEMES[S2], pair, SETTINGS["factors"])
    runs = side_by_side(experiment, trials, own, clipped, ring, scale.steps, only)
    model: Any = clipped.loss.model  # type: ignore[attr-defined]
    what = SETTINGS.text("what", model=model, clip=CLIP, records=int(clipped.counts.min()))
    tables = {
        "ends": ends(experiment, runs, steps=scale.steps),
        "budgets": budgets(clipped, pair, what),
        "figure-6": figure_6(clipped, history[1]),
    }
    data = experiment.settings["problem"]["data"]
    return Findings(
        runs={name: run for name, run in runs.items() if name not in OTHERS} or runs,
        tables=tables,
        files={"curves": curves(runs)},
        figures=_figures(runs),
        values={
            **_about(runs),
            "data": SETTINGS["names"].get(data, data),
            "steps": scale.steps,
            "model": model,
            "per_step": history[0].arrivals.per_step,
            "rows": {row[0]: row for row in tables["budgets"][2]},
        },
    )


def _figures(runs: Runs) -> list[tuple[str, Any]]:
    from hearsay.report import plots
    from hearsay.report.plot_style import new_figure

    drawn, names = [], list(SCHEMES)
    parts = {2: names[:3], 3: names[3:], 4: [S1, S2], 5: [S1, S2, *OTHERS]}
    for number, chosen in parts.items():
        here = {name: runs[name] for name in chosen if name in runs}
        for metric, part in (("train_accuracy", "training"), ("accuracy", "testing")):
            if not here:
                continue
            figure, ax = new_figure(*((7.5, 4.0) if number == 5 else (5.0, 3.1)))
            plots.compare(here, metric, ax)
            if len(here) > 6:
                legend_beside(ax)
            what = CONVEX.text(f"figure-{number}")
            drawn.append((CONVEX.text("figure", number=number, kind=part, what=what), figure))
    return drawn


def _about(runs: Runs) -> dict[str, Any]:
    """What the notes say about the runs; None, or nothing, where they were not made."""
    score = {name: run.final("accuracy")[0] for name, run in runs.items()}
    least, shown = margin(runs), accuracies(runs)

    def verdict(difference: float) -> str:
        if difference > least:
            return "holds"
        return "does not hold" if difference < -least else "cannot be told"

    names, orders = list(SCHEMES), []
    # From the least noise to the most.
    for scheme, figure, order in (("S1", 2, names[:3]), ("S2", 3, names[3:])):
        if all(name in score for name in order):
            said = verdict(score[order[0]] - score[order[2]])
            powers = {name: name.split(", ")[1] for name in order}
            orders.append({"scheme": scheme, "figure": figure, "runs": powers, "verdict": said})
    rivals = {name: score[name] - score[S2] for name in OTHERS if name in score and S2 in score}
    ahead, near = (
        [f"{name} ({shown['score'][name]})" for name, by in rivals.items() if low < by <= high]
        for low, high in ((least, 1), (-least, least))
    )
    return {
        **shown,
        "horizon": HORIZON,
        "agent": AGENT,
        "weight": CONVEX["pair"]["weight"],
        "threshold": CONVEX["threshold"],
        "grid": QuantizedDsgd().resolution,
        "s1": S1,
        "s2": S2,
        "orders": orders,
        "faster": verdict(score[S2] - score[S1]) if S1 in score and S2 in score else None,
        "rivals": {"ahead": ahead, "near": near} if rivals else None,
        "own": OWN,
        "cheap": CHEAP,
        "step": {name: run.algorithm.step_size for name, run in runs.items()},
        "own_budget": max(runs[OWN].certificate.epsilon) if OWN in runs else None,
        "tried": len(SETTINGS["factors"]),
    }
