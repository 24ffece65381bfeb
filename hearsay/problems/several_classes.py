"""Softmax regression, linear models of several classes, as problems on a network of agents.

`data` is one of those that `logistic` takes (linear.py), with labels 0, ..., classes - 1: a name
("digits" has the ten digits), a Dataset that has its classes, or one set per agent.
"""

from __future__ import annotations

from typing import Any

from hearsay import _validate as require
from hearsay.privacy.adjacency import REPLACE
from hearsay.problems.data.holdings import Facts
from hearsay.problems.linear import Data, held_by, linear_task
from hearsay.problems.losses.domains import Ball
from hearsay.problems.losses.softmax import Softmax
from hearsay.problems.problem import Problem, holding
from hearsay.problems.sampling.samplers import Arrivals
from hearsay.problems.task import Task


@require.known_arguments
def softmax(
    data: Data = "digits",
    *,
    classes: int | None = None,
    agents: int | None = None,
    partition: str | None = None,
    ridge: float = 0.01,
    per_step: int = 1,
    head_start: int = 0,
    radius: float = 1e5,
    clip: float | None = None,
    feature_bound: float | None = None,
    test: tuple[Any, Any] | None = None,
    data_dir: str | None = None,
    seed: int = 0,
    adjacency: str = REPLACE,
) -> Problem:
    """l2-regularised softmax regression: a linear model of several classes.

    Args:
      data: a name, a Dataset, or one set per agent (above).
      classes: with pairs (features, labels): how many there are, whether or not these records have
        all of them; labels are 0, ..., classes - 1.
      agents: how many (5 unless given); with one set per agent it follows from them.
      partition: the rule that deals out one data set ("iid" unless given).
      ridge: the regulariser is ridge / 2 times the squared norm of the model.
      per_step: records that reach each agent per step.
      head_start: records that each agent holds before step 0.
      radius: of the ball that models are projected onto.
      clip: the l2 norm that every record's gradient is brought down to; None leaves it as it is.
      feature_bound: with pairs (features, labels): the l2 norm that longer records are scaled down
        to; chosen from what the features mean, not from these records.
      test: with one set per agent: a pair (features, labels) to test on, beside what Datasets
        bring; without any there are no test metrics.
      data_dir: folder of raw files, for the named sets that need one.
      seed: of the partition, the test set and the sampling.
      adjacency: what certificates protect, "replace" (one record is replaced by any other) or
        "zero-out" (by an empty one; privacy/adjacency.py).

    Example:
      >>> import hearsay as hs
      >>> problem = hs.problems.softmax("digits", agents=3)
      >>> problem.loss.classes, problem.dimension
      (10, 640)
    """
    bounds = {"feature_bound": feature_bound, "classes": classes}
    held = held_by(data, agents, partition, bounds, test, data_dir, seed, "classes")
    task = softmax_task(
        held.facts,
        ridge=ridge,
        per_step=per_step,
        head_start=head_start,
        radius=radius,
        clip=clip,
        seed=seed,
        adjacency=adjacency,
    )
    return holding(task, *held[1:])


@require.known_arguments
def softmax_task(
    data: Facts,
    *,
    ridge: float = 0.01,
    per_step: int = 1,
    head_start: int = 0,
    radius: float = 1e5,
    clip: float | None = None,
    seed: int = 0,
    adjacency: str = REPLACE,
) -> Task:
    """What is public of `softmax` on such data; arguments as there."""
    loss = Softmax(data.feature_bound, data.classes, ridge, clip)
    arrivals = Arrivals(per_step, head_start)
    return linear_task(data, loss, Ball(radius), arrivals, seed, adjacency)
