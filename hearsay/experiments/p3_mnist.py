"""Paper P3, section V: a CNN on MNIST by output perturbation with growing sample sizes (Fig. 5).

As printed: five agents, the records split evenly, two convolutions of 16 and 32 filters with
sigmoids and max pooling (cnn-p3), batches drawn with replacement,

    step 0.01 (k+2)^-0.76,  coupling 0.01 (k+2)^-0.51,  Laplace noise (k+2)^0.01,
    ceil((k+2)^1.4) records,  2000 iterations,  "over 80 %"

and [42] (dola) with a step of 0.01, batches of 50 and the same noise. Not printed, and chosen here:
the graph (a ring, weights 1/3), the filters' size, what bounds a gradient (a clip), the ball (1e5).

The printed steps add up to about 0.2: whatever the gradients say, that does not lead far. So the
same runs are shown with 10, 100 and 1000 times the step, at the printed noise, and the best of them
with the noise that the printed configuration's own certified budget demands. The numbers are in
data/p3.toml.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hearsay.certification import certify
from hearsay.experiments import settings
from hearsay.experiments.beside import Own, Wanted, side_by_side
from hearsay.experiments.images import (
    CHEAP,
    CLIP,
    Trial,
    accuracies,
    curves,
    ends,
    problems,
    scale_of,
    scales,
)
from hearsay.experiments.runner import Experiment, Findings, with_step_factors
from hearsay.experiments.settings import Table
from hearsay.graphs import Graph
from hearsay.privacy.certificate import show
from hearsay.problems import Problem

SETTINGS = settings.read("p3-mnist")
HORIZON, FACTORS = SETTINGS["horizon"], SETTINGS["factors"]
PRINTED, CLIPPED, OTHER, OWN = (
    SETTINGS.text(name) for name in ("printed", "clipped", "other", "own")
)
FASTER = {SETTINGS.text("faster", factor=factor): factor for factor in FACTORS}


def printed(factor: float = 1.0, sampling: str = "resample") -> Any:
    """With that many times the printed step."""
    return with_step_factors(SETTINGS.algorithm("printed", sampling=sampling), [float(factor)])[
        factor
    ]


def other() -> Any:
    return SETTINGS.algorithm("other")


def budgets(problem: Problem, graph: Graph, messages: int) -> Table:
    """With the clip, for every step factor: the paper's formula, and certificates for three ways to
    draw the same number of records.
    """
    rows = []
    for factor in (1, *FACTORS):
        options = [printed(factor, way) for way in SETTINGS["ways"].values()]
        found = [max(certify(option, problem, graph, messages).epsilon) for option in options]
        formula = options[0].paper_epsilon(graph, 0, problem, messages)
        rows.append([f"× {factor:,}", show(formula), *map(show, found)])
    return SETTINGS.table("budgets", rows, messages=messages, clip=CLIP)


def measure(experiment: Experiment, only: Sequence[str] | Wanted | None = None) -> Findings:
    """Fig. 5 and, beside it, what the same budget and a far smaller one can buy.

    Args:
      only: the names of the runs to make (all).
    """
    scale = scale_of(experiment.scale, *scales(experiment.settings))
    free, clipped = problems(experiment, scale)
    graph = experiment.settings.graph()
    trials: dict[str, Trial] = {
        PRINTED: (printed(), free, graph),
        CLIPPED: (printed(), clipped, graph),
        OTHER: (other(), free, graph),
        **{name: (printed(factor), free, graph) for name, factor in FASTER.items()},
    }
    own = Own(OWN, printed(), graph, (1.0, *map(float, FACTORS)))
    runs = side_by_side(experiment, trials, own, clipped, graph, scale.steps, only)
    data = experiment.settings["problem"]["data"]
    table, best = budgets(clipped, graph, HORIZON), runs.get(OWN)
    return Findings(
        runs=runs,
        tables={"ends": ends(experiment, runs, steps=scale.steps), "budgets": table},
        files={"curves": curves(runs)},
        values={
            **accuracies(runs),
            "data": "MNIST" if data == "mnist" else data,
            "steps": scale.steps,
            "horizon": HORIZON,
            "model": free.loss.model,  # type: ignore[attr-defined]
            "records": int(free.counts.min()),
            "total": [float(np.sum(printed().step(np.arange(n)))) for n in (scale.steps, HORIZON)],
            "names": {"printed": PRINTED, "other": OTHER, "own": OWN},
            "faster": FASTER,
            "cheap": CHEAP,
            "promised": SETTINGS["promised"],
            "reached": PRINTED in runs
            and runs[PRINTED].final("accuracy")[0] > SETTINGS["promised"],
            "own": best
            and {
                "budget": max(best.certificate.epsilon),
                "step": best.algorithm.step_size,
                "noise": best.algorithm.noise_for(0),
            },
            "first": table[2][0],
        },
    )
