"""Agents of about one size: what is best for 30 records is bad for 20,000.

An agent that learns by itself has settings for as many records as it holds, whoever else there is:
with those of all agents' mean it would look worse than it is, and joining better.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hearsay.problems.data.records import padded
from hearsay.problems.problem import Problem, holding
from hearsay.problems.task import Task

# The travel that a bound is least at is in proportion to the records; within a class it is off by
# at most the root of this, and the bound by 1 %.
ALIKE, MOST = 1.25, 16


def classes(sizes: np.ndarray, most: int = MOST) -> list[np.ndarray]:
    """The agents of each class, the smallest sizes first: none is more than `ALIKE` times another
    of its class, or as much as makes so many classes.

    Args:
      sizes: of all agents, positive.
      most: how many classes there may be.

    Example:
      >>> [agents.tolist() for agents in classes(np.array([91, 20_000, 30, 90]))]
      [[2], [0, 3], [1]]
    """
    widest = max(ALIKE, float((sizes.max() / sizes.min()) ** (1 / most)) * (1 + 1e-9))
    kinds, place = np.unique(sizes, return_inverse=True)
    first, number, found = kinds[0], 0, np.zeros(len(kinds), int)
    for at, size in enumerate(kinds):
        if size > first * widest:
            first, number = size, number + 1
        found[at] = number
    return [np.flatnonzero(found[place.ravel()] == one) for one in range(number + 1)]


def held_by(problem: Problem, agents: np.ndarray) -> Problem:
    """What those agents have, the same test set beside it.

    Args:
      problem: of all agents.
      agents: some of them, in order.
    """
    if len(agents) == problem.agents:
        return problem
    held = problem.counts[agents].tolist()
    rows = [
        (problem.features[agent][:many], problem.labels[agent][:many])
        for agent, many in zip(agents.tolist(), held, strict=True)
    ]
    task, test = some_of(problem.task, agents), (problem.test_features, problem.test_labels)
    return holding(task, padded(held, rows), *test)


def some_of(task: Task, agents: np.ndarray) -> Task:
    """What is public of those agents alone.

    Args:
      task: of all agents.
      agents: some of them, in order.
    """
    if len(agents) == task.agents:
        return task
    counts = task.counts[agents]
    start = None if task.start is None else task.first_models[agents]
    first = min(task.arrivals.head_start, int(counts.max()))
    return replace(
        task, counts=counts, start=start, arrivals=replace(task.arrivals, head_start=first)
    )
