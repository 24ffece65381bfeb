"""Paper P1, section VII-A: online logistic regression on the mushrooms data (Fig. 1 and Table I).

As printed: five agents in a ring with weight 0.3, a ball of radius 1e5, agents 1-3 hold the edible
records and 4-5 the poisonous ones, Laplace noise of scale (t+1)^(0.1 + 0.01 i) on every message
of every method, lambda_t = (t+1)^-0.77, gamma_t = (t+1)^-0.65, 2000 iterations; Table I at 0.1
(t+1)^(0.1 + 0.01 i) times 1 to 6, up to 5000 iterations.

Not printed, and chosen here: records per iteration (1), the ridge ("proportional to 1/N": 0.3,
which brings Table I's iteration counts to the paper's order of magnitude), the random start
(standard normal), the step sizes of the other methods (the best of a sweep over powers of two), C
and L (derived from the data's encoding). Records that have arrived stay in the history; the stream
ends after 1,100 to 1,600 of them per agent. The numbers are in data/p1.toml.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hearsay.base import Algorithm
from hearsay.certification import certify, spent_after
from hearsay.experiments import settings
from hearsay.experiments.runner import (
    Experiment,
    Findings,
    conditions,
    powers_of_two,
    swept,
    with_step_factors,
)
from hearsay.experiments.settings import Settings, Table
from hearsay.graphs import Graph
from hearsay.privacy.certificate import show
from hearsay.problems import Problem
from hearsay.schedules import PowerLaw
from hearsay.simulation.optimum import Reference
from hearsay.simulation.result import Run

SETTINGS = settings.read("p1-mushrooms")


def noise(found: Settings, level: float) -> tuple[PowerLaw, ...]:
    """One law per agent, with an exponent that grows with its number."""
    law, agents = found["noise"], range(1, found["problem"]["agents"] + 1)
    return tuple(PowerLaw(level, law["exponent"] + law["spread"] * i) for i in agents)


def problem_and_graph(data_dir: str | None) -> tuple[Problem, Graph]:
    return SETTINGS.problem(data_dir=data_dir), SETTINGS.graph()


def algorithms(level: float = 1.0) -> dict[str, Algorithm]:
    """All with the same noise, as in Fig. 1; the step scales of the last three are to be swept."""
    same = noise(SETTINGS, level)
    return {name: SETTINGS.algorithm(name, noise=same) for name in SETTINGS["algorithms"]}


def figure_1(
    experiment: Experiment, problem: Problem, graph: Graph, reference: Reference
) -> tuple[dict[str, Run], dict[str, Any]]:
    """The runs, and the step of each that was swept."""
    steps = experiment.share(SETTINGS["steps"], SETTINGS["least"])
    measured: dict[str, Any] = {"reference": reference, "spread": SETTINGS["spread"]}
    runs, sweep = {}, {}
    for name, algorithm in experiment.each("Fig. 1", algorithms().items()):
        if name != "ldp-online":
            options = with_step_factors(algorithm, powers_of_two(*SETTINGS["sweep"]))
            algorithm, scale = swept(experiment, options, problem, graph, steps, **measured)
            sweep[name] = {"step": algorithm.step_size, "scale": scale}
        runs[name] = experiment.run(algorithm, problem, graph, steps=steps, **measured)
    return runs, sweep


def table_1(experiment: Experiment, problem: Problem, graph: Graph, reference: Reference) -> Table:
    """Iterations until the agents' mean model is within 1 of the optimum, per noise level,
    with the budgets spent by then.
    """
    steps = experiment.share(SETTINGS["table_steps"], SETTINGS["least"])
    paper, rows = SETTINGS["printed"], []
    printed = zip(paper["levels"], paper["iterations"], paper["budgets"], strict=True)
    for level, iterations, budget in experiment.each("Table I", printed):
        algorithm = algorithms(paper["base"] * level)["ldp-online"]
        run = experiment.run(
            algorithm,
            problem,
            graph,
            steps=steps,
            every=1,
            reference=reference,
            regret=False,
            spread=SETTINGS["spread"],
        )
        error = run.metrics["mean_model_error"].mean(axis=1)
        reached = np.nonzero(error <= 1.0)[0]
        when = int(reached[0]) if len(reached) else None
        spent = spent_after(algorithm, problem, graph, [when or steps]).max()
        forever = max(certify(algorithm, problem, graph, math.inf).epsilon)
        ours = str(when) if when is not None else f"> {steps} (at {error[-1]:.3f})"
        rows.append(
            [
                f"x{level:g}",
                str(iterations),
                ours,
                f"{budget:.2f}",
                show(float(spent)),
                show(forever),
            ]
        )
    return SETTINGS.table("table-1", rows)


def measure(experiment: Experiment) -> Findings:
    problem, graph = problem_and_graph(experiment.data_dir)
    reference, printed = Reference(problem), algorithms()["ldp-online"]
    runs, sweep = figure_1(experiment, problem, graph, reference)
    low, high = problem.loss.curvature
    return Findings(
        runs=runs,
        saved=runs,
        tables={
            "table-1": table_1(experiment, problem, graph, reference),
            "conditions": conditions(SETTINGS.text("conditions"), printed.theory(graph, problem)),
        },
        values={
            "problem": problem,
            "sweep": sweep,
            "low": low,
            "high": high,
            "weight": SETTINGS["graph"]["weight"],
            "smallest": graph.coupling_eigenvalues[1],
            "first": SETTINGS["printed"]["budgets"][0],
            "at_one": max(
                certify(
                    algorithms(SETTINGS["printed"]["base"])["ldp-online"],
                    problem,
                    graph,
                    SETTINGS["steps"],
                ).epsilon
            ),
        },
    )
