"""Settings for records that arrive while the agents learn: `head_start` of them before the first
round, `per_step` more with every round.

A gradient of n records moves by change / n when one of them does, so that early rounds are dear.
With steps a_k, noise b_k on the gradient and n_k records, what is spent is in proportion to the sum
of 1 / (n_k b_k)^2, and the noise in the model to the sum of (a_k b_k)^2. For given steps the second
is least, under a given first, with (a_k b_k)^2 in proportion to a_k / n_k, and is then in
proportion to

    (sum_k a_k / n_k)^2

(Cauchy and Schwarz). With n_k growing from nothing to N over as many rounds, and a travel of A in
all, that is (A log N / N)^2 for equal steps, (2 A / N)^2 for steps in proportion to n_k, and
(A / N)^2 if nobody moves before the last record is there. The second is nearly as good as waiting,
and has a model on the way:

    a_k in proportion to n_k,    b_k in proportion to 1 / n_k

Every round then costs the same. Who can wait for the last record should: a model on the way is what
all of this is for, and so settings are tried by the mean of two scores, half-way and in the end.

As many rounds as it takes until all records have arrived, or those and as many again as the rule
takes when all are there; the rule's travel in all (rule.py), or more or less; the rest is chosen as
otherwise (choices.py). tests/tradeoff/test_arriving.py holds the sums against each other.

Where there are very many rounds a trial takes several of them as one, with as many records more at
a time: m rounds with steps of a and noise b move a model as one does with m a and b / sqrt(m).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from hearsay.graphs import Graph
from hearsay.graphs.secrets import Secrets
from hearsay.problems.task import Task
from hearsay.tradeoff import rule
from hearsay.tradeoff.choices import TRAVELS, Choice, Epsilon, by_the_rule, clips, largest, rounded

# Rounds of a trial, at most.
MOST = 2 * rule.MOST


def until_all_are_there(task: Task) -> int:
    """How many rounds that is."""
    missing = max(0, task.most - task.arrivals.head_start)
    return math.ceil(missing / task.arrivals.per_step)


def half_way(task: Task) -> int:
    """How many rounds half of that is."""
    return max(1, until_all_are_there(task) // 2)


def together(task: Task) -> int:
    """How many rounds a trial takes as one."""
    return math.ceil((until_all_are_there(task) + rule.MOST) / MOST)


def coarse(task: Task, rounds: int) -> Task:
    """With so many rounds as one."""
    arrivals = replace(task.arrivals, per_step=rounds * task.arrivals.per_step)
    return replace(task, arrivals=arrivals)


def finer(choice: Choice, task: Task, rounds: int) -> Choice:
    """What was chosen for the coarse task, for the task itself."""
    if rounds == 1:
        return choice
    return replace(
        choice,
        rounds=choice.rounds * rounds,
        step=rounded(choice.step / rounds),
        begun=begun(task),
    )


def begun(task: Task) -> float:
    """How many rounds' records are there before the first."""
    return rounded(task.arrivals.head_start / task.arrivals.per_step)


def around(
    task: Task, graph: Graph, epsilon: Epsilon, delta: float, secrets: Secrets | None
) -> list[Choice]:
    """The rule's travel over the rounds until all records are there first."""
    found, least = [], max(1, until_all_are_there(task))
    for clip in clips(task):
        base = replace(by_the_rule(task, graph, epsilon, delta, secrets, clip), begun=begun(task))
        travel = base.rounds * base.step
        for rounds in (least, least + base.rounds):
            longer = replace(base, rounds=rounds, rate=1.0)
            # The steps' mean, in units of the last of them.
            mean = float(np.mean(longer.pace(np.arange(rounds))))
            for factor in TRAVELS:
                step = min(largest(task), rounded(factor * travel / (rounds * mean)))
                found.append(replace(longer, step=step))
    return list(dict.fromkeys(found))


def varied(choice: Choice) -> Iterator[Choice]:
    """A good choice with one thing changed."""
    if not choice.averaging:
        yield replace(choice, averaging=1)
