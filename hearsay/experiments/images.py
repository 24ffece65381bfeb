"""What the experiments with neural networks share: two scales, runs side by side, and the same
budget spent better.

    small    minutes on two CPU cores: fewer steps and records, for a first look
    paper    the printed numbers, for a GPU

The papers assume that gradients change by at most C when a record is replaced, and do not say what
makes them. Here it is a clip: every record's gradient is brought down to norm `CLIP`, so C = 2
CLIP. What a paper prints is run as it is printed, learning or not; `better` shows what can be
had beside it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hearsay import _validate as require
from hearsay.algorithms import GradientPerturbation
from hearsay.base import Algorithm
from hearsay.certification import calibrate, certify
from hearsay.experiments.common import Progress, Table, complete, simulate
from hearsay.graphs import Graph
from hearsay.privacy.certificate import show
from hearsay.problems.losses.models import Dense
from hearsay.problems.losses.neural_loss import Model, from_module
from hearsay.problems.problem import Problem
from hearsay.problems.sampling.samplers import Cyclic
from hearsay.schedules import Constant, SampleSize
from hearsay.simulation.result import Run

CLIP = 1.0
# A budget that means something, for what is shown beside the papers' settings.
EPSILON, DELTA = 8.0, 1e-5
POINTS = 20  # times that a run is measured: a test set costs as much as many steps

Trial = tuple[Algorithm, Problem, Graph]
Runs = dict[str, Run]


@dataclass(frozen=True)
class Scale:
    """steps: of every run; records, test_records: how many of the data set are used (None: all)."""

    steps: int
    records: int | None = None
    test_records: int | None = None

    def data(self) -> dict[str, Any]:
        return {"records": self.records, "test_records": self.test_records}


def scale_of(scale: str | float, small: Scale, paper: Scale) -> Scale:
    """ "small", "paper", or a number:
    that share of the small one's steps and records, for a test.
    """
    if isinstance(scale, str):
        return {"small": small, "paper": paper}[require.one_of("scale", scale, ["small", "paper"])]
    if not 0 < require.number("scale", scale) <= 1:
        require.fail("scale", "small, paper, or a number above 0 and at most 1", scale)
    cut: Callable[[int | None, int], int] = lambda many, least: max(  # noqa: E731
        least, round((many or least) * float(scale))
    )
    return Scale(cut(small.steps, 2), cut(small.records, 300), cut(small.test_records, 50))


@lru_cache(maxsize=8)
def small_model(shape: tuple[int, ...], classes: int) -> tuple[Model, np.ndarray]:
    """One hidden layer of 16: for a first look where the paper's network would take hours on two
    cores. One object per shape, so that it is compiled once.
    """
    sizes = (math.prod(shape), 16, classes)
    return from_module(
        Dense(jax.random.key(0), sizes, jnp.tanh, 1.0), name="one hidden layer of 16"
    )


def train(trials: dict[str, Trial], steps: int, seeds: int, stage: str, progress: Progress) -> Runs:
    """Every trial for so many steps."""
    runs: Runs = {}
    for name, (algorithm, problem, graph) in trials.items():
        runs[name] = run(algorithm, problem, graph, steps, seeds)
        progress(stage, len(runs), len(trials))
    return runs


def run(
    algorithm: Algorithm,
    problem: Problem,
    graph: Graph,
    steps: int,
    seeds: int,
    points: int = POINTS,
    delta: float = DELTA,
) -> Run:
    every, at = max(1, -(-steps // points)), delta_of(algorithm, delta)
    with np.errstate(invalid="ignore"):  # without a clip the papers' formulas may say inf - inf
        return complete(
            simulate(algorithm, problem, graph, steps=steps, seeds=seeds, every=every, delta=at)
        )


def delta_of(algorithm: Algorithm, delta: float = DELTA) -> float | None:
    """Laplace noise has a pure epsilon, and these are so large that to look for a smaller one
    at a delta is in vain.
    """
    return delta if algorithm.law.at_delta else None


def better(
    candidates: Sequence[Algorithm],
    problem: Problem,
    graph: Graph,
    steps: int,
    seeds: int,
    epsilon: float,
    stage: str,
    progress: Progress,
) -> Run:
    """The candidate that ends with the highest accuracy, each with noise that spends `epsilon`
    (at DELTA for Gaussian noise).
    """
    tried = []
    for candidate in candidates:
        ready = calibrate(candidate, problem, graph, steps, epsilon, delta=DELTA)
        tried.append(run(ready, problem, graph, steps, seeds))
        progress(stage, len(tried), len(candidates))
    return max(tried, key=lambda found: np.nan_to_num(found.final("accuracy")[0], nan=0.0))


def gradient_candidates(size: int, steps: Sequence[float]) -> list[Algorithm]:
    """Noise on clipped mean gradients of large batches, each record once per pass:
    the cheapest way to privacy that the library has for networks.
    """
    shared: dict[str, Any] = {
        "coupling": Constant(0.9),
        "noise": Constant(1.0),
        "mechanism": "gaussian",
    }
    sampling = Cyclic(SampleSize(Constant(float(size))))
    return [
        GradientPerturbation(step=Constant(step), sampling=sampling, **shared) for step in steps
    ]


def steps_times(algorithm: Any, factors: Sequence[float]) -> list[Algorithm]:
    """The algorithm with its step size multiplied."""
    return [replace(algorithm, step=algorithm.step.scaled(factor)) for factor in factors]


def certified(algorithm: Algorithm, problem: Problem, graph: Graph, steps: int) -> float:
    return max(certify(algorithm, problem, graph, steps, delta=delta_of(algorithm)).epsilon)


def ends(runs: Runs, caption: str) -> Table:
    """Budget and accuracy of every run at its end."""
    rows = []
    for name, found in runs.items():
        budgets = found.certificate.budgets
        paper = [
            np.nan_to_num(b.paper_epsilon, nan=np.inf, posinf=np.inf)
            for b in budgets
            if b.paper_epsilon is not None
        ]
        at = (
            f" (δ = {found.certificate.slack:g})"
            if found.certificate.slack and found.certificate.finite
            else ""
        )
        rows.append(
            [
                name,
                show(max(paper)) if paper else "-",
                show(max(found.certificate.epsilon)) + at,
                *_accuracies(found),
                str(found.algorithm.step_size),
                f"{found.seconds:.0f} s",
            ]
        )
    header = [
        "run",
        "ε by the paper's formula",
        "ε certified",
        "test accuracy",
        "worst agent",
        "training accuracy",
        "step",
        "time",
    ]
    return caption, header, rows


def _accuracies(found: Run) -> list[str]:
    # One seed has no spread, which is not a spread of 0.
    form = "{:.4f} ± {:.4f}" if len(found.seeds) > 1 else "{:.4f}"
    return [
        form.format(*found.final(metric))
        for metric in ("accuracy", "accuracy_worst", "train_accuracy")
    ]


def margin(runs: Runs) -> float:
    """Two standard errors of an accuracy near 1/2 on the test records:
    smaller differences between runs say nothing.
    """
    return 1 / math.sqrt(min(len(run.problem.test_labels) for run in runs.values()))


def caution(runs: Runs) -> str:
    """How far the accuracies can be trusted, for the notes of a report."""
    first = next(iter(runs.values()))
    seeds, records = len(first.seeds), len(first.problem.test_labels)
    return (
        f"{seeds} seed{'s' if seeds > 1 else ''} and {records:,} test records: differences below"
        f" about {100 * margin(runs):.1f} points say nothing. Where several steps were tried, the"
        " best by that same test accuracy is shown, and the search is not charged to the budget:"
        " such a run had more chances than one that is as printed."
    )


def curves(runs: Runs) -> Table:
    """Accuracy over time."""
    rows = [
        [
            name,
            str(int(step)),
            f"{found.metrics['accuracy'][t].mean():.5g}",
            f"{found.metrics['train_accuracy'][t].mean():.5g}",
        ]
        for name, found in runs.items()
        for t, step in enumerate(found.steps)
    ]
    return "Accuracy over time", ["run", "step", "test accuracy", "training accuracy"], rows
