"""Paper P1, section VII-B and C: a CNN on MNIST (Fig. 2, Table II) and on CIFAR-10 (Fig. 3).

As printed: five learners in a circle, weights 0.3, 40 % of class i at learner i and the rest
evenly, a ball of radius 1e5,

    step (t+1)^-0.71,  coupling 0.01 (t+1)^-0.7,
    Laplace noise sqrt(2) (t+1)^(0.1 + 0.02 i),  600 iterations                      (Figs. 2, 3)
    noise 0.05 (t+1)^(0.1 + 0.01 i) times 0.5, 1, 1.5, 2,  3000 iterations,
    and the error of the DLG attacker                                                (Table II)

dsgd with the same steps and noise; dola with noise 0.35/(t+1); pdop with noise 0.5 0.98^t; their
steps by their own rules. Not printed, and chosen here: the network (cnn-p1 in models.py), records
per iteration (one; gradients are over all that have arrived), what bounds a gradient (a clip), and
the scales of dola's and pdop's steps. "as printed" runs without the clip, so it has no certificate.
The numbers are in data/p1.toml.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from hearsay.algorithms import LdpOnline
from hearsay.base import Algorithm
from hearsay.experiments import parts, settings
from hearsay.experiments.beside import Own, Wanted, side_by_side
from hearsay.experiments.images import (
    CHEAP,
    CLIP,
    DELTA,
    Runs,
    Trial,
    certified,
    curves,
    ends,
    problems,
    reached,
    run,
    scale_of,
    scales,
)
from hearsay.experiments.p1_mushrooms import noise
from hearsay.experiments.runner import Experiment, Findings
from hearsay.experiments.settings import Settings
from hearsay.graphs import Graph
from hearsay.privacy.certificate import show
from hearsay.problems import Problem

if TYPE_CHECKING:
    from hearsay.audit.dlg import Sweep

FIGURE, TABLE = settings.read("p1-mnist"), settings.read("p1-table2")
PRINTED, CLIPPED = "ldp-online, as printed", "ldp-online, clipped"
OWN = "ldp-online, best step at its own budget"


def printed(found: Settings = FIGURE, level: float = 1.0) -> LdpOnline:
    """With `level` times the printed noise."""
    return found.algorithm("ldp-online", noise=noise(found, found["noise"]["scale"] * level))  # type: ignore[return-value]


def others() -> dict[str, Algorithm]:
    same = noise(FIGURE, FIGURE["noise"]["scale"])
    return {
        "dsgd": FIGURE.algorithm("dsgd", noise=same),
        "dola": FIGURE.algorithm("dola"),
        "pdop": FIGURE.algorithm("pdop"),
    }


def figure(experiment: Experiment, only: Sequence[str] | Wanted | None = None) -> Findings:
    """Fig. 2 or 3 and, beside it, what the same budget and a far smaller one can buy.

    Args:
      only: the names of the runs to make (all).
    """
    (small, paper), graph = scales(experiment.settings), experiment.settings.graph()
    scale = scale_of(experiment.scale, small, paper)
    free, clipped = problems(experiment, scale)
    trials: dict[str, Trial] = {
        PRINTED: (printed(), free, graph),
        CLIPPED: (printed(), clipped, graph),
        **{name: (algorithm, clipped, graph) for name, algorithm in others().items()},
    }
    own = Own(OWN, printed(), graph, FIGURE["factors"])
    runs = side_by_side(experiment, trials, own, clipped, graph, scale.steps, only)
    return Findings(
        runs=runs,
        tables={"ends": ends(experiment, runs, steps=scale.steps)},
        files={"curves": curves(runs)},
        values={
            "steps": scale.steps,
            "paper": paper.steps,
            "dimension": free.dimension,
            "clip": CLIP,
            "delta": DELTA,
            "cheap": CHEAP,
            "budget": certified(printed(), clipped, graph, scale.steps),
        },
    )


def table_2(experiment: Experiment) -> Findings:
    """Accuracy, budget and the attacker's error against the level of noise."""
    from hearsay.report.attack import error_against_noise, gallery
    from hearsay.report.plot_style import new_figure

    (small, paper), graph = scales(TABLE), TABLE.graph()
    scale = scale_of(experiment.scale, small, paper)
    free, clipped = problems(experiment, scale)
    sweep = attacks(experiment, free, graph)
    runs: Runs = {}
    rows = []
    for index, level in experiment.each("training", enumerate(TABLE["printed"]["levels"])):
        algorithm = printed(TABLE, level)
        coupling = algorithm.coupling.scaled(TABLE["stronger"])
        pair = {
            f"×{level:g}": algorithm,
            f"×{level:g}, coupling × {TABLE['stronger']:g}": replace(algorithm, coupling=coupling),
        }
        made = {name: run(experiment, a, free, graph, scale.steps) for name, a in pair.items()}
        runs |= made
        formula = max(
            algorithm.paper_epsilon(graph, i, clipped, scale.steps) or 0.0
            for i in range(graph.agents)
        )
        budget = certified(algorithm, clipped, graph, scale.steps)
        rows.append([f"×{level:g}", *_row(made, index, sweep), show(formula), show(budget)])
    values = {"steps": scale.steps, "paper": paper.steps, "stronger": TABLE["stronger"]}
    chart, ax = new_figure()
    error_against_noise(sweep, ax)
    return Findings(
        runs=runs,
        tables={
            "table2": TABLE.table("table2", rows, seeds=experiment.seeds, **values),
            "ends": ends(experiment, runs, steps=scale.steps),
        },
        files={"curves": curves(runs)},
        figures=[(TABLE.text("errors"), chart), (TABLE.text("pictures"), gallery(sweep))],
        values=values,
    )


def attacks(experiment: Experiment, problem: Problem, graph: Graph) -> Sweep:
    """The DLG attacker at every level of noise; what is finished is kept."""
    from hearsay.audit.dlg import Sweep

    tiny = not isinstance(experiment.scale, str)
    options = dict(TABLE["attack"]["tiny" if tiny else "full"])
    if not tiny:
        least, most = options["targets"]
        options["targets"] = max(least, min(experiment.seeds, most))
    levels = tuple(map(float, TABLE["printed"]["levels"]))
    total, found = len(levels) * options["targets"], []

    def count(before: int, done: int, _: int) -> None:
        experiment.progress("attack", before + done, total)

    for index, level in enumerate(levels):
        before = index * options["targets"]
        found.append(
            parts.attacked(
                printed(TABLE), problem, graph, level, progress=partial(count, before), **options
            )
        )
        count(before, options["targets"], total)
    del options["targets"]
    return Sweep(printed(TABLE), problem, options, levels, tuple(found))


def _row(made: Runs, level: int, sweep: Sweep) -> list[str]:
    """Both accuracies of both runs and the attacker's error, each beside the paper's."""
    paper, errors = TABLE["printed"], sweep.errors[level]
    cells: list[Any] = []
    for metric, column in (("train_accuracy", "training"), ("accuracy", "test")):
        cells += [reached(one, metric) for one in made.values()]
        cells.append(f"{paper[column][level]:.4f}")
    spread = f" ± {errors.std(ddof=1) / math.sqrt(len(errors)):.4f}" if len(errors) > 1 else ""
    return [*cells, f"{np.mean(errors):.4f}{spread}", f"{paper['error'][level]:.4f}"]
