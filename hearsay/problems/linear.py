"""Logistic and ridge regression as problems on a network of agents.

`data` is one of

    a name              "digits", "breast-cancer", "mushrooms"; for ridge also "linear"
    a Dataset           dealt out to `agents` by the `partition` rule
    one set per agent   [(features, labels), ...] with `feature_bound` (and `label_bound` for
                        numbers), or [Dataset, ...]; sets may differ in length

The functions that end in _task make what is public of the problem, from what is public of the data.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hearsay import _validate as require
from hearsay.privacy.adjacency import REPLACE
from hearsay.problems.data import datasets
from hearsay.problems.data.datasets import Dataset
from hearsay.problems.data.holdings import Facts, Holdings, deal, gather, one_each, served, sets_of
from hearsay.problems.losses.domains import Ball
from hearsay.problems.losses.linear import Logistic, Squared, polynomial
from hearsay.problems.losses.loss import Loss
from hearsay.problems.problem import Problem, holding
from hearsay.problems.sampling.samplers import Arrivals
from hearsay.problems.task import Task

Data = str | Dataset | Sequence[Dataset | tuple[Any, Any]]


@require.known_arguments
def logistic(
    data: Data = "digits",
    *,
    agents: int | None = None,
    partition: str | None = None,
    ridge: float = 0.01,
    per_step: int = 1,
    head_start: int = 0,
    radius: float = 1e5,
    clip: float | None = None,
    approximate: bool = False,
    feature_bound: float | None = None,
    test: tuple[Any, Any] | None = None,
    data_dir: str | None = None,
    seed: int = 0,
    adjacency: str = REPLACE,
) -> Problem:
    """l2-regularised logistic regression.

    Args:
      data: a name, a Dataset, or one set per agent (above); labels are 0 or 1.
      agents: how many (5 unless given); with one set per agent it follows from them.
      partition: the rule that deals out one data set ("iid" unless given).
      ridge: the regulariser is ridge / 2 times the squared norm of the model.
      per_step: records that reach each agent per step.
      head_start: records that each agent holds before step 0.
      radius: of the ball that models are projected onto.
      clip: the l2 norm that every record's gradient is brought down to; None leaves it as it is.
      approximate: replace the loss by its degree-2 polynomial (see losses/linear.py).
      feature_bound: with pairs (features, labels): the l2 norm that longer records are scaled down
        to; chosen from what the features mean, not from these records.
      test: with one set per agent: a pair (features, labels) to test on, beside what Datasets
        bring; without any there are no test metrics.
      data_dir: folder of raw files, for the named sets that need one.
      seed: of the partition, the test set and the sampling.
      adjacency: what certificates protect, "replace" (one record is replaced by any other) or
        "zero-out" (by an empty one; privacy/adjacency.py).

    Example:
      Two hospitals, of which one has three times as many patients:

      >>> import numpy as np
      >>> import hearsay as hs
      >>> rng = np.random.default_rng(0)
      >>> wards = [(rng.normal(size=(n, 3)), rng.integers(0, 2, n)) for n in (100, 300)]
      >>> problem = hs.problems.logistic(wards, feature_bound=2.0)
      >>> problem.agents, problem.counts.tolist()
      (2, [100, 300])
    """
    require.flag("approximate", approximate)
    bounds = {"feature_bound": feature_bound}
    held = held_by(data, agents, partition, bounds, test, data_dir, seed, "binary")
    task = logistic_task(
        held.facts,
        ridge=ridge,
        per_step=per_step,
        head_start=head_start,
        radius=radius,
        clip=clip,
        approximate=approximate,
        seed=seed,
        adjacency=adjacency,
    )
    return holding(task, *held[1:])


@require.known_arguments
def logistic_task(
    data: Facts,
    *,
    ridge: float = 0.01,
    per_step: int = 1,
    head_start: int = 0,
    radius: float = 1e5,
    clip: float | None = None,
    approximate: bool = False,
    seed: int = 0,
    adjacency: str = REPLACE,
) -> Task:
    """What is public of `logistic` on such data; arguments as there."""
    domain, loss = Ball(radius), Logistic(data.feature_bound, ridge, 1.0, clip)
    chosen: Loss = (
        polynomial(loss, domain, data.shape[0])
        if require.flag("approximate", approximate)
        else loss
    )
    return linear_task(data, chosen, domain, Arrivals(per_step, head_start), seed, adjacency)


@require.known_arguments
def ridge(
    data: Data = "linear",
    *,
    agents: int | None = None,
    partition: str | None = None,
    ridge: float = 0.01,
    per_step: int = 1,
    head_start: int = 0,
    radius: float = 5.0,
    clip: float | None = None,
    dimension: int = 10,
    records: int = 2000,
    feature_bound: float | None = None,
    label_bound: float | None = None,
    test: tuple[Any, Any] | None = None,
    data_dir: str | None = None,
    seed: int = 0,
    adjacency: str = REPLACE,
) -> Problem:
    """Ridge regression, by default on a stream of linear measurements.

    Args:
      data: a name, a Dataset, or one set per agent (above).
      agents: how many (5 unless given); with one set per agent it follows from them.
      partition: the rule that deals out one data set ("iid" unless given).
      ridge: the regulariser is ridge / 2 times the squared norm of the model.
      per_step: records that reach each agent per step.
      head_start: records that each agent holds before step 0.
      radius: of the ball that models are projected onto.
      clip: the l2 norm that every record's gradient is brought down to; None leaves it as it is.
      dimension: of the "linear" stream.
      records: of the "linear" stream, per agent.
      feature_bound: with pairs (features, labels): the l2 norm that longer records are scaled down
        to; chosen from what the features mean, not from these records.
      label_bound: with pairs: labels are clipped to that size.
      test: with one set per agent: a pair (features, labels) to test on, beside what Datasets
        bring; without any there are no test metrics.
      data_dir: folder of raw files, for the named sets that need one.
      seed: of the stream, the partition, the test set and the sampling.
      adjacency: what certificates protect, "replace" (one record is replaced by any other) or
        "zero-out" (by an empty one; privacy/adjacency.py).

    Example:
      >>> import hearsay as hs
      >>> hs.problems.ridge(agents=2, records=50, dimension=3).shape
      (3,)
    """
    records = require.count("records", records)
    if isinstance(data, str) and data == "linear":
        many = 5 if agents is None else require.count("agents", agents)
        data = datasets.linear_stream(records=many * records, dimension=dimension, seed=seed)
    bounds = {"feature_bound": feature_bound, "label_bound": label_bound}
    held = held_by(data, agents, partition, bounds, test, data_dir, seed, "numbers")
    labels = [
        own[:count] for own, count in zip(held.records.labels, held.facts.counts, strict=True)
    ]
    classes = set(np.unique(np.concatenate(labels))) == {0.0, 1.0}
    task = ridge_task(
        held.facts._replace(classification=classes),
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
def ridge_task(
    data: Facts,
    *,
    ridge: float = 0.01,
    per_step: int = 1,
    head_start: int = 0,
    radius: float = 5.0,
    clip: float | None = None,
    seed: int = 0,
    adjacency: str = REPLACE,
) -> Task:
    """What is public of `ridge` on such data; arguments as there."""
    loss = Squared(data.feature_bound, ridge, data.label_bound, clip)
    arrivals = Arrivals(per_step, head_start)
    return linear_task(data, loss, Ball(radius), arrivals, seed, adjacency)


@require.plain_arguments
def linear_task(
    data: Facts, loss: Loss, domain: Ball, arrivals: Arrivals, seed: int, adjacency: str
) -> Task:
    served(arrivals, data.counts)
    return Task(
        data.name,
        loss,
        domain,
        data.shape,
        data.counts,
        arrivals,
        data.classification,
        data.assumptions,
        seed,
        adjacency=adjacency,
        schema=data.schema,
    )


@require.plain_arguments
def held_by(
    data: Any,
    agents: int | None,
    rule: str | None,
    bounds: dict[str, Any],
    test: Any,
    data_dir: str | None,
    seed: int,
    labels: str,
) -> Holdings:
    """Whose records are whose, whichever way the data are given; `labels` are "binary", "classes"
    or "numbers". `bounds` are what in_order takes for pairs, and Datasets have themselves.
    """
    if one_each(data):
        return _one_each(data, agents, rule, bounds, test, labels)
    for name, value in {**bounds, "test": test}.items():
        if value is not None:
            why = "left out where one data set is dealt out (it has its own)"
            require.fail(name, why, value)
    if isinstance(data, str) and data == "linear":
        raise ValueError(
            "data 'linear' is a regression stream: use it with the ridge loss (--loss ridge)"
        )
    if isinstance(data, str):
        every = labels == "classes"
        data = datasets.load(data, data_dir=data_dir, seed=seed, every_class=every)
    require.instance(
        "data",
        data,
        Dataset,
        "the name of a data set, a Dataset (hearsay.problems.from_arrays makes one), or a list"
        " with one set for every agent",
    )
    _check(data, labels)
    return deal(data, agents, rule, seed)


def _check(one: Dataset, labels: str) -> None:
    if labels != "numbers":
        classes = one.classes or 2 if labels == "classes" else 2
        datasets.check_classification(one.features, one.labels, classes)


def _one_each(
    data: Sequence[Any],
    agents: int | None,
    rule: str | None,
    bounds: dict[str, Any],
    test: Any,
    labels: str,
) -> Holdings:
    pairs = any(not isinstance(one, Dataset) for one in data)
    for name, value in bounds.items():
        if pairs and value is None:
            why = "it must hold for every record that an agent could have had"
            raise ValueError(f"{name} must be given with pairs (features, labels), got None: {why}")
        if not pairs and value is not None:
            require.fail(name, "left out where every agent's Dataset has its own", value)

    def make(features: Any, marks: Any) -> Dataset:
        return datasets.in_order(features, marks, **bounds)

    sets = sets_of(data, Dataset, make, agents, rule)
    for agent, one in enumerate(sets):
        try:
            _check(one, labels)
        except ValueError as error:
            raise ValueError(f"data of agent {agent}: {error}") from error
    held = gather(sets)
    return held if test is None else _tested(held, test, labels)


def _tested(held: Holdings, test: Any, labels: str) -> Holdings:
    """With those records to test on, too."""
    if not isinstance(test, (list, tuple)) or len(test) != 2:
        require.fail("test", "a pair (features, labels)", type(test).__name__)
    known = held.facts
    bounds: dict[str, Any] = {"feature_bound": known.feature_bound}
    if labels == "numbers":
        bounds["label_bound"] = known.label_bound
    elif labels == "classes":
        bounds["classes"] = known.classes
    try:
        one = datasets.in_order(*test, **bounds)
    except ValueError as error:
        raise ValueError(f"test: {error}") from error
    if one.features.shape[1:] != known.shape:
        require.fail("test", f"records of shape {known.shape}", one.features.shape[1:])
    return held._replace(
        test_features=np.concatenate([held.test_features, one.features]),
        test_labels=np.concatenate([held.test_labels, one.labels]),
    )
