"""Which of several settings: a trial on made-up records, of which everything is public.

The records have the public facts of the task (how many each agent holds, how many features, of
which norm at most) and nothing else of it: features whose principal axes carry variances 1, 1/2,
1/3, ... (those of measured data are correlated, too) and labels of a logistic model with random
weights. Whatever is chosen on them is a function of the Task.
"""

from __future__ import annotations

import numpy as np

from hearsay.base import Algorithm
from hearsay.certification import calibrate
from hearsay.graphs import Graph
from hearsay.problems.data.records import padded
from hearsay.problems.losses.linear import LinearLoss
from hearsay.problems.problem import Problem, holding
from hearsay.problems.task import Task
from hearsay.tradeoff.measuring import measured, trained
from hearsay.tradeoff.series import Candidate, Series

_MARGIN = 3.0  # the standard deviation of a made-up record's margin
_TESTED = 1000
_SEEDS = 4


def planned(
    series: Series, task: Task, graph: Graph, epsilon: float, delta: float
) -> tuple[Candidate, Algorithm]:
    """The setting of a series, and its algorithm with the noise calibrated on the task.

    Of several settings the one that does best on made-up records. Where the model is no linear one
    made-up images would say nothing: there it is the first.

    Args:
      series: as it stands on that task and graph.
      task: what is public of the problem.
      graph: who hears whom.
      epsilon: what each agent may spend.
      delta: at which.
    """
    candidates = series.candidates(task, graph, epsilon, delta)
    if not series.private:
        return candidates[0], candidates[0].algorithm
    ready = [
        (one, calibrate(one.algorithm, task, graph, one.rounds, epsilon, delta=delta))
        for one in (candidates if isinstance(task.loss, LinearLoss) else candidates[:1])
    ]
    if len(ready) == 1:
        return ready[0]
    trial = made_up(task)
    runs = [
        trained(algorithm, trial, graph, one.rounds, range(_SEEDS), delta)
        for one, algorithm in ready
    ]
    scores = [measured(run, series.together).released.mean() for run in runs]
    return ready[int(np.argmax(scores))]


def made_up(task: Task) -> Problem:
    """A problem with the task's public facts and no record of anybody.

    Args:
      task: of a linear model that tells two classes apart.

    Example:
      >>> import hearsay as hs
      >>> from hearsay.tradeoff.rehearsal import made_up
      >>> made_up(hs.problems.logistic("digits").task).counts.tolist()
      [288, 288, 288, 287, 287]
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
