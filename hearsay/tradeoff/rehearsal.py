"""Which of several settings: a trial on made-up records, of which everything is public.

The records have the public facts of the task (how many each agent holds, how many features, of
which norm at most) and nothing else of it: features whose principal axes carry variances 1, 1/2,
1/3, ... (those of measured data are correlated, too) and labels of a logistic model with random
weights. Whatever is chosen on them is a function of the Task.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hearsay.base import Algorithm
from hearsay.certification import calibrate
from hearsay.graphs import Graph
from hearsay.problems.data.records import padded
from hearsay.problems.losses.linear import LinearLoss
from hearsay.problems.problem import Problem, holding
from hearsay.problems.task import Task
from hearsay.tradeoff.measuring import measured
from hearsay.tradeoff.series import Candidate

_MARGIN = 3.0  # the standard deviation of a made-up record's margin
_TESTED = 1000
_SEEDS = 4


def chosen(
    candidates: Sequence[Candidate],
    task: Task,
    graph: Graph,
    epsilon: float,
    delta: float,
    together: bool = True,
) -> tuple[Candidate, Algorithm]:
    """The candidate that does best on made-up records, with its noise calibrated on the task.

    Where there is one only, or the model is no linear one (made-up images would say nothing), it is
    the first.
    """
    ready = [
        (one, calibrate(one.algorithm, task, graph, one.rounds, epsilon, delta=delta))
        for one in (candidates if isinstance(task.loss, LinearLoss) else candidates[:1])
    ]
    if len(ready) == 1:
        return ready[0]
    trial = made_up(task)
    scores = [
        measured(algorithm, trial, graph, one.rounds, range(_SEEDS), delta, together).released
        for one, algorithm in ready
    ]
    return ready[int(np.argmax([score.mean() for score in scores]))]


def made_up(task: Task) -> Problem:
    """A problem with the task's public facts and no record of anybody.

    Args:
      task: of a linear model that tells two classes apart.

    Example:
      >>> import hearsay as hs
      >>> from hearsay.tradeoff.rehearsal import made_up
      >>> made_up(hs.problems.logistic("digits").task).counts.tolist()
      [288, 288, 287, 287, 287]
    """
    task = task.task
    rng = np.random.default_rng([*b"rehearsal"])
    total, columns = int(task.counts.sum()), task.shape[0]
    axes = np.linalg.qr(rng.standard_normal((columns, columns)))[0]
    spread = 1.0 / np.sqrt(np.arange(1, columns + 1))
    features = (rng.standard_normal((total + _TESTED, columns)) * spread) @ axes.T
    # A little below the bound, whatever rounding does.
    size = task.linear.feature_bound * (1 - 1e-9)
    features *= size / np.linalg.norm(features, axis=1, keepdims=True)
    margins = features @ (axes @ rng.standard_normal(columns))
    chance = 1 / (1 + np.exp(-_MARGIN * margins / margins.std()))
    labels = (rng.random(len(chance)) < chance).astype(np.float64)
    ends = np.cumsum(task.counts)[:-1]
    held = zip(np.split(features[:total], ends), np.split(labels[:total], ends), strict=True)
    return holding(task, padded(task.counts.tolist(), held), features[total:], labels[total:])
