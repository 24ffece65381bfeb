"""What the experiments with neural networks share: two scales, problems, runs and tables.

    small    minutes on two CPU cores: fewer steps and records, for a first look
    paper    the printed numbers, for a GPU

The papers assume that gradients change by at most C when a record is replaced, and do not say what
makes them. Here it is a clip: every record's gradient is brought down to norm `CLIP`, so C = 2
CLIP. What a paper prints is run as it is printed, learning or not; beside.py has what can be had
beside it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hearsay import _validate as require
from hearsay.base import Algorithm
from hearsay.certification import certify
from hearsay.experiments import settings
from hearsay.experiments.runner import Experiment
from hearsay.experiments.settings import Settings, Table
from hearsay.graphs import Graph
from hearsay.privacy.certificate import show
from hearsay.problems import Problem
from hearsay.problems.data.images import load_images
from hearsay.problems.losses.models import Dense
from hearsay.problems.losses.neural_loss import Model, from_module
from hearsay.simulation.result import Run

SHARED = settings.read("networks")
CLIP, EPSILON, DELTA = (SHARED[key] for key in ("clip", "epsilon", "delta"))
CHEAP = SHARED.text("cheap", epsilon=EPSILON)

Trial = tuple[Algorithm, Problem, Graph]
Runs = dict[str, Run]


@dataclass(frozen=True)
class Scale:
    """How much of an experiment is run.

    Args:
      steps: of every run.
      records, test_records: how many of the data set are used (None: all).
      model: the network's name in models.py (None: the problem's own, or a small one).
    """

    steps: int
    records: int | None = None
    test_records: int | None = None
    model: str | None = None

    def data(self) -> dict[str, Any]:
        return {"records": self.records, "test_records": self.test_records}


def scales(found: Settings) -> tuple[Scale, Scale]:
    """The small one and the paper's."""
    return Scale(**found["scales"]["small"]), Scale(**found["scales"]["paper"])


def scale_of(scale: str | float, small: Scale, paper: Scale) -> Scale:
    """ "small", "paper", or a number:
    that share of the small one's steps and records, for a test.
    """
    if isinstance(scale, str):
        return {"small": small, "paper": paper}[require.one_of("scale", scale, ["small", "paper"])]
    if not 0 < require.number("scale", scale) <= 1:
        require.fail("scale", "small, paper, or a number above 0 and at most 1", scale)

    def cut(many: int | None, least: int) -> int:
        return max(least, round((many or least) * float(scale)))

    return Scale(
        cut(small.steps, 2), cut(small.records, 300), cut(small.test_records, 50), small.model
    )


@lru_cache(maxsize=8)
def small_model(shape: tuple[int, ...], classes: int) -> tuple[Model, np.ndarray]:
    """One hidden layer of 16: for a first look where the paper's network would take hours on two
    cores. One object per shape, so that it is compiled once.
    """
    sizes = (math.prod(shape), 16, classes)
    return from_module(
        Dense(jax.random.key(0), sizes, jnp.tanh, 1.0), name="one hidden layer of 16"
    )


def problems(
    experiment: Experiment, scale: Scale, clips: Sequence[float | None] = (None, CLIP), **more: Any
) -> list[Problem]:
    """The experiment's problem with each of the clips (None: as printed, and without a budget)."""
    keys = experiment.settings["problem"]
    images = load_images(keys["data"], data_dir=experiment.data_dir)
    model = keys.get("model") or scale.model or small_model(images.shape, images.classes)
    more = {"model": model, **scale.data(), **more}
    return [experiment.settings.problem(data=images, clip=clip, **more) for clip in clips]


def run(
    experiment: Experiment,
    algorithm: Algorithm,
    problem: Problem,
    graph: Graph,
    steps: int,
    delta: float = DELTA,
    **options: Any,
) -> Run:
    options["every"] = max(1, -(-steps // SHARED["points"]))
    options["delta"] = delta_of(algorithm, delta)
    with np.errstate(invalid="ignore"):  # without a clip the papers' formulas may say inf - inf
        return experiment.run(algorithm, problem, graph, steps=steps, **options)


def delta_of(algorithm: Algorithm, delta: float = DELTA) -> float | None:
    """Laplace noise has a pure epsilon, and these are so large that to look for a smaller one
    at a delta has no effect.
    """
    return delta if algorithm.law.at_delta else None


def certified(algorithm: Algorithm, problem: Problem, graph: Graph, steps: int) -> float:
    return max(certify(algorithm, problem, graph, steps, delta=delta_of(algorithm)).epsilon)


def ends(experiment: Experiment, runs: Runs, **values: Any) -> Table:
    """Budget and accuracy of every run at its end."""
    rows = []
    for name, found in runs.items():
        certificate = found.certificate
        paper = [
            np.nan_to_num(b.paper_epsilon, nan=np.inf, posinf=np.inf)
            for b in certificate.budgets
            if b.paper_epsilon is not None
        ]
        slack = certificate.slack if certificate.finite else None
        rows.append(
            [
                name,
                show(max(paper)) if paper else "-",
                show(max(certificate.epsilon)) + (f" (δ = {slack:g})" if slack else ""),
                *_accuracies(found),
                str(found.algorithm.step_size),
                f"{found.seconds:.0f} s",
                " ".join(map(str, found.seeds)),
            ]
        )
    return experiment.settings.table("ends", rows, seeds=experiment.seeds, **values)


def _accuracies(found: Run) -> list[str]:
    return [reached(found, metric) for metric in ("accuracy", "accuracy_worst", "train_accuracy")]


def reached(found: Run, metric: str) -> str:
    """Mean and standard deviation over seeds; one seed has none, which is not one of 0."""
    form = "{:.4f} ± {:.4f}" if len(found.seeds) > 1 else "{:.4f}"
    return form.format(*found.final(metric))


def margin(runs: Runs) -> float:
    """Two standard errors of an accuracy near 1/2 on the test records:
    smaller differences between runs say nothing.
    """
    return 1 / math.sqrt(min(len(run.problem.test_labels) for run in runs.values()))


def accuracies(runs: Runs) -> dict[str, Any]:
    """What the notes say about accuracies: of every run, of guessing, and how far to trust them."""
    first = next(iter(runs.values()))
    caution = SHARED.text(
        "caution",
        seeds=len(first.seeds),
        records=len(first.problem.test_labels),
        points=100 * margin(runs),
    )
    return {
        "score": {
            name: f"{100 * found.final('accuracy')[0]:.1f} %" for name, found in runs.items()
        },
        "guess": 100 * max(found.guessing or 0.0 for found in runs.values()),
        "caution": caution.strip(),
        "epsilon": EPSILON,
        "delta": DELTA,
        "clip": CLIP,
    }


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
    return SHARED.table("curves", rows)
