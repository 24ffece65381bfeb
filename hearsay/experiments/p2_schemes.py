"""Paper P2's two schemes, the methods that they are compared with, and what all of them cost: for
the experiments on convex problems and on images alike.

As printed, for five agents and K = 2000 planned steps:

    S1    alpha = 72/2000^0.987 = 0.04,  beta = 0.95/2000^0.69 = 0.005,
          gamma = 98/2000^0.997 = 0.05,  m = floor(0.00007 K^1.78) + 1 = 53
          noise (k+1)^p,  p = -0.1, 0.1, 0.2
    S2    alpha = 0.1,  beta = 0.01,  gamma = 0.1,  m = floor(1.002^K) + 1 = 55
          noise p^K for every k,  p = 0.9994, 0.9996, 0.9998

Fig. 4 compares p = 0.1 with p = 0.9996; Figs. 5 and 6 give the other methods the steps, the
sampling number and the noise of the latter. The numbers are in data/p2.toml.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from hearsay import graphs
from hearsay.algorithms.gradient_tracking import GradientTracking, scheme_s1, scheme_s2
from hearsay.base import Algorithm
from hearsay.certification import HorizonBudgets, budget_by_horizon, certify
from hearsay.experiments import settings
from hearsay.experiments.runner import Experiment
from hearsay.experiments.settings import Table
from hearsay.graphs import Graph
from hearsay.privacy.certificate import show
from hearsay.problems.sampling.samplers import Arrivals, Cyclic, Sized, Subset
from hearsay.problems.task import Task
from hearsay.schedules import Constant, PowerLaw

SETTINGS = settings.read("p2-convex")
HORIZON, RECORDS, AGENT = (SETTINGS[key] for key in ("horizon", "records", "agent"))
# The two of Fig. 4.
S1, S2 = (SETTINGS.text(name, p=SETTINGS["chosen"][name]) for name in ("S1", "S2"))
FORMULA, EVERY, CYCLIC = SETTINGS["tables"]["peaks"]["header"][2:]

Curves = dict[str, dict[str, HorizonBudgets]]


def size(algorithm: Algorithm) -> int:
    """Records per step."""
    return int(algorithm.sampling.sizes(np.zeros(1), math.inf, Arrivals())[0])


def s1(
    horizon: int, power: float = SETTINGS["chosen"]["S1"], sampling: type[Sized] = Cyclic
) -> GradientTracking:
    a, p = (tuple(SETTINGS["S1"][key]) for key in ("a", "p"))
    return scheme_s1(horizon, a=a, p=p, noise=(power, power), sampling=sampling)  # type: ignore[arg-type]


def s2(
    horizon: int, base: float = SETTINGS["chosen"]["S2"], sampling: type[Sized] = Cyclic
) -> GradientTracking:
    return scheme_s2(horizon, **SETTINGS["S2"], noise=(base, base), sampling=sampling)


SCHEMES: dict[str, Callable[..., GradientTracking]] = {"S1": s1, "S2": s2}


def schemes(horizon: int) -> dict[str, GradientTracking]:
    """Figs. 2 and 3, planned for `horizon` steps."""
    return {
        SETTINGS.text(name, p=p): make(horizon, p)
        for name, make in SCHEMES.items()
        for p in SETTINGS["noises"][name]
    }


def as_printed(sampling: type[Sized]) -> dict[str, GradientTracking]:
    """The same for K = 2000, with S1's steps rounded as the paper prints them."""
    steps: Any = {name: Constant(value) for name, value in SETTINGS["S1"]["printed"].items()}
    found = {}
    for name, scheme in schemes(HORIZON).items():
        rounded = replace(scheme, **steps) if name.startswith("S1") else scheme
        found[name] = replace(rounded, sampling=sampling(Constant(float(size(scheme)))))
    return found


def others(scheme: GradientTracking) -> dict[str, Algorithm]:
    """The other methods with the step, the sampling and the noise of a scheme (S2 in the paper)."""
    same: dict[str, Any] = {
        "step": scheme.step,
        "noise": scheme.noise,
        "sampling": scheme.sampling,
    }
    coupled = {"coupling": scheme.coupling}
    own: dict[str, dict[str, Any]] = {
        "ldp-online": {"step": scheme.step, "noise": scheme.noise, **coupled},
        "output-perturbation": {**same, **coupled},
        "gradient-perturbation": {**same, **coupled},
        "dola": {**same, "step": PowerLaw(float(scheme.step(0)), -0.5)},
        "ternary-dsgd": {**same, "noise": SETTINGS["threshold"]},
        "quantized-dsgd, no noise": {**same, "noise": None},
    }
    return {
        name: SETTINGS.algorithm(name, **own.get(name, same)) for name in SETTINGS["algorithms"]
    }


def networks() -> tuple[Graph, Graph]:
    """The pair of directed graphs, and the ring for the methods that need symmetric weights."""
    return SETTINGS.graph("pair"), SETTINGS.graph("ring")


def declared() -> Task:
    """C = 1 and gradients that do not react to the state, as the paper counts,
    with its 12,000 records.
    """
    return replace(SETTINGS.problem("declared").task, counts=np.full(5, RECORDS))


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
    return SETTINGS.table("budgets", rows, agent=AGENT, messages=messages, what=what)


def remark_22(experiment: Experiment, points: int) -> tuple[Table, Curves]:
    """epsilon against the planned horizon K, under the paper's declarations with C = 1:
    where does each of the three columns peak?
    """
    problem, (pair, _) = declared(), networks()
    rows, curves, lengths = [], {}, [0]
    for name, make in experiment.each("Remark 22", SCHEMES.items()):
        lengths = _lengths(make, points)
        formula = [make(k).paper_epsilon(graphs.five_agents(), AGENT, problem, k) for k in lengths]
        every, cyclic = (
            budget_by_horizon(partial(make, sampling=kind), problem, pair, lengths)
            for kind in (Subset, Cyclic)
        )
        paper = HorizonBudgets(np.array(lengths), np.array(formula))
        curves[name] = {FORMULA: paper, EVERY: every, CYCLIC: cyclic}
        peaks = [curve.peak for curve in curves[name].values()]
        shown = (f"{k:,} (m = {size(make(k)):,})" for k in peaks)
        rows.append([name, str(SETTINGS["peaks"][name]), *shown])
    return SETTINGS.table("peaks", rows, first=lengths[0], last=lengths[-1]), curves


def _lengths(make: Callable[[int], GradientTracking], points: int) -> list[int]:
    """A geometric grid, and both sides of the jumps of the sample size: between two jumps a longer
    plan costs more.
    """
    plans = SETTINGS["plans"]
    first, most = plans["shortest"], plans["jumps"]
    jumps = first + np.flatnonzero(np.diff([size(make(k)) for k in range(first, most + 1)]))
    grid = np.geomspace(first, plans["longest"], points).round().astype(int)
    return sorted({*grid.tolist(), *jumps.tolist(), *(jumps + 1).tolist()})
