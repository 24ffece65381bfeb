"""Paper P4, section V-B: a CNN on MNIST by online federated learning (Fig. 4).

As printed: 10 learners, half of the records dealt out evenly and of the other half all of digit l
at learner l + 1, two convolutions and three dense layers (cnn-p4), (epsilon, delta) = (2, 1e-3),
tau in {5, 10}, one step size for all methods. Every record is used once: R is what the shortest
stream serves, at most 1000.

Not printed, and chosen here: R, what bounds a gradient (a clip B), eta (out of a few, the one
that suits MF (iii), tau = 5 best; eta_g = 1).

The paper's noise rests on S = 2 B / tau for what one record does to a round's message. That holds
where local steps do not stretch a difference (convex, eta <= 2/L). For a network every local
step after the record's may differ, and all that a clip proves is S = 2 B, tau times as much. "As
printed" has the noise of the paper's formula, "certified" that of the certificate. The numbers are
in data/p4.toml.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from hearsay.certification import calibrate
from hearsay.experiments import settings
from hearsay.experiments.beside import Wanted, cheapest, chosen, secret_names, with_secrets
from hearsay.experiments.images import (
    CHEAP,
    CLIP,
    Runs,
    accuracies,
    curves,
    ends,
    problems,
    run,
    scale_of,
    scales,
)
from hearsay.experiments.parts import OutOfTime, or_left
from hearsay.experiments.runner import Experiment, Findings
from hearsay.experiments.settings import Table
from hearsay.graphs import Graph
from hearsay.problems import Problem
from hearsay.schedules import Constant

SETTINGS = settings.read("p4-mnist")
TAUS, STEPS = SETTINGS["taus"], SETTINGS["steps"]
EPSILON, DELTA = (SETTINGS["budget"][key] for key in ("epsilon", "delta"))
BEST, DENSE = "MF (iii), toeplitz", "MF (ii), dense"
KINDS = [kind for kind in SETTINGS["algorithms"] if kind not in ("noiseless", "cheap", "secret")]
SECRET = list(secret_names(SETTINGS))


def method(kind: str, rounds: int, tau: int, step: float) -> Any:
    """One of KINDS or "noiseless", its noise still to be set."""
    return SETTINGS.algorithm(kind, rounds, step=step, sample_size=tau)


def printed_noise(algorithm: Any, problem: Problem) -> Any:
    """V = S max |c| / sqrt(2 rho) with S = 2 B / tau and rho = (sqrt(epsilon + log
    1/delta) - sqrt(log 1/delta))^2 (Lemma IV.8).
    """
    log = math.log(1 / DELTA)
    rho = (math.sqrt(EPSILON + log) - math.sqrt(log)) ** 2
    level = (
        problem.change / algorithm.local_steps * algorithm.factors.sensitivity / math.sqrt(2 * rho)
    )
    return replace(algorithm, noise=Constant(level))


def certified_noise(algorithm: Any, problem: Problem, graph: Graph) -> Any:
    return calibrate(algorithm, problem, graph, algorithm.horizon, EPSILON, delta=DELTA)


def rounds_of(problem: Problem, tau: int, most: int) -> int:
    return min(most, int(problem.counts.min()) // tau)


def names(whole: bool = True) -> list[str]:
    """What can be run.

    The dense factorization is fitted in time R^3, and secret batches take an accountant, so a first
    look leaves them out.
    """
    each = [
        *(f"{kind}, as printed" for kind in KINDS if whole or kind != DENSE),
        *(f"{kind}, certified" for kind in (BEST, "independent")),
        "noiseless",
    ]
    tried = [f"τ = {tau}: {name}" for tau, name in product(TAUS, each)]
    return [*tried, CHEAP, *(SECRET if whole else ())]


def best_step(
    experiment: Experiment, problem: Problem, graph: Graph, most: int
) -> tuple[float, dict[float, float]]:
    """The step with which MF (iii) as printed ends best, tau = 5, one seed;
    and how every one ended.
    """
    rounds, scores = rounds_of(problem, TAUS[0], most), {}
    for step in experiment.each("steps", STEPS):
        ready = printed_noise(method(BEST, rounds, TAUS[0], step), problem)
        found = run(experiment, ready, problem, graph, rounds, DELTA, seeds=1)
        scores[step] = float(np.nan_to_num(found.final("accuracy")[0]))
    return max(scores, key=lambda step: scores[step]), scores


def figure_4(
    experiment: Experiment,
    problem: Problem,
    graph: Graph,
    most: int,
    step: float,
    only: Wanted,
) -> Runs:
    runs: Runs = {}
    for name in experiment.each("Fig. 4", (name for name in only if name not in (CHEAP, *SECRET))):
        head, what = name.split(": ", 1)
        tau, (kind, _, way) = int(head.split()[-1]), what.rpartition(", ")
        rounds = rounds_of(problem, tau, most)
        with or_left(name):
            ready = method(kind or way, rounds, tau, step)
            if way == "as printed":
                ready = printed_noise(ready, problem)
            elif way == "certified":
                ready = certified_noise(ready, problem, graph)
            runs[name] = run(experiment, ready, problem, graph, rounds, DELTA)
    rounds = rounds_of(problem, TAUS[0], most)
    if CHEAP in only:
        with or_left(CHEAP):
            runs[CHEAP] = cheapest(experiment, problem, graph, rounds, only[CHEAP])
    runs |= with_secrets(experiment, problem, graph, rounds, only)
    if not runs:
        raise OutOfTime("there was no time for a single run")
    return runs


def measure(
    experiment: Experiment,
    only: Sequence[str] | Wanted | None = None,
    step: float | None = None,
) -> Findings:
    """Fig. 4, with the paper's noise and with the certified one.

    Args:
      only: the names in names() to run (all; a small run leaves out the dense factorization).
      step: eta, instead of the best of STEPS.
    """
    scale = scale_of(experiment.scale, *scales(experiment.settings))
    wanted = chosen(names(experiment.scale == "paper") if only is None else only, names())
    (problem,) = problems(experiment, scale, (CLIP,))
    graph = experiment.settings.graph(agents=problem.agents)
    scores: dict[float, float] = {}
    # What is not the paper's has steps of its own.
    if step is None and any(name not in (CHEAP, *SECRET) for name in wanted):
        step, scores = best_step(experiment, problem, graph, scale.steps)
    runs = figure_4(experiment, problem, graph, scale.steps, step or STEPS[0], wanted)
    data = experiment.settings["problem"]["data"]
    return Findings(
        tables={"ends": ends(experiment, runs), "steps": _steps(scores)},
        files={"curves": curves(runs)},
        figures=_figures(runs),
        values={
            **accuracies(runs),
            **_about(runs),
            "data": "MNIST" if data == "mnist" else data,
            "learners": problem.agents,
            "model": problem.loss.model,  # type: ignore[attr-defined]
            "as_printed": "cnn-p4" in str(problem.loss),
            "step": step,
            "scores": scores,
            "fewest": int(problem.counts.min()),
            "most": int(problem.counts.max()),
        },
    )


def _steps(scores: dict[float, float]) -> Table:
    rows = [[f"{step:g}", f"{score:.4f}"] for step, score in scores.items()]
    return SETTINGS.table("steps", rows, best=BEST, tau=TAUS[0])


def _figures(runs: Runs) -> list[tuple[str, Any]]:
    from hearsay.report import plots
    from hearsay.report.plot_style import new_figure

    drawn = []
    for tau, way in product(TAUS, ("as printed", "certified")):
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
        drawn.append((SETTINGS.text("figure", tau=tau, noise=SETTINGS.text(way)), figure))
    return drawn


def _about(runs: Runs) -> dict[str, Any]:
    """What the notes say about the runs, those of each tau together."""
    groups = {}
    for tau in TAUS:
        mine = {name.split(": ", 1)[1]: name for name in runs if name.startswith(f"τ = {tau}:")}
        found = runs.get(mine.get(f"{BEST}, as printed", ""))
        budgets = found.certificate.budgets if found else ()
        if mine:
            groups[tau] = {
                "runs": mine,
                "paper": max(b.paper_epsilon or 0.0 for b in budgets) if found else None,
                "certified": max(found.certificate.epsilon) if found else None,
            }
    score = {name: run.final("accuracy")[0] for name, run in runs.items()}
    both = [[f"τ = {tau}: {kind}, as printed" for tau in TAUS] for kind in KINDS]
    pairs = [[score[name] for name in pair] for pair in both if all(n in score for n in pair)]
    return {
        "budget": SETTINGS["budget"],
        "best": BEST,
        "taus": TAUS,
        "groups": groups,
        "pairs": len(pairs),
        "improved": sum(b > a for a, b in pairs),
        "cheap": CHEAP,
    }
