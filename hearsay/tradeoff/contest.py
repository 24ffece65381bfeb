"""Which of the candidates around the rule's setting (choices.py, or arriving.py where records
arrive meanwhile) is best on made-up records.

All of them are tried on one draw of every kind (made_up.py, trial.py), then the best few and some
variants on other draws. The one with the best mean over the kinds wins; another than the rule's
must be better by `MARGIN`, which is what chance may do.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hearsay import _validate as require
from hearsay.graphs import Graph
from hearsay.graphs.secrets import Secrets
from hearsay.problems.problem import Problem
from hearsay.problems.task import Task
from hearsay.release.readouts import READOUTS, ReadOut
from hearsay.tradeoff import arriving, kept, rule
from hearsay.tradeoff.choices import (
    CLIPS,
    COUPLING,
    RELEASED,
    STEEPEST,
    TRAVELS,
    Choice,
    Epsilon,
    Law,
    around,
    by_the_rule,
    varied,
)
from hearsay.tradeoff.made_up import KINDS, fewer, made_up
from hearsay.tradeoff.trial import Column, exchange, tried

SEEDS = 4
FINALISTS = 4
# The first draw of every kind is for the choice of finalists, the others for the choice among them.
FIRST, LATER = (0,), (1, 2)
MARGIN = 0.002
# Nanoseconds of one core that a round of trials may take; what a record costs beside its
# parameters in one column and round, and what each parameter adds.
WORK = 5e9
PER_RECORD, PER_PARAMETER = 30.0, 0.3
FEWEST = 20

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, eq=False)
class Asked:
    """All that enters a choice."""

    task: Task
    graph: Graph
    epsilon: Epsilon
    delta: float
    secrets: Secrets | None
    seed: int
    arriving: bool = False  # records arrive as the task says; otherwise all are there

    @property
    def key(self) -> str:
        """The same for the same choice only."""
        # Of a schema only what made-up rows depend on: names and ranges are no part of it.
        inputs = {} if self.task.schema is None else self.task.schema.inputs
        schema = [(type(one).__name__, len(one.entries("x"))) for one in inputs.values()]
        constants: tuple[Any, ...] = (
            SEEDS,
            FINALISTS,
            FIRST,
            LATER,
            MARGIN,
            WORK,
            FEWEST,
            STEEPEST,
            rule.WORTH,
            rule.UNLIKE,
            TRAVELS,
            CLIPS,
            KINDS,
            RELEASED,
        )
        constants += (arriving.MOST,) if self.arriving else ()
        known = (self.epsilon, self.delta, self.secrets, self.seed, self.task.adjacency, schema)
        facts = (self.task.digest(), self.graph.digest())
        return kept.key(known, facts, constants)


class Contest:
    """The candidates on the made-up records of one task."""

    def __init__(self, asked: Asked, tell: Progress) -> None:
        self.as_one = arriving.together(asked.task) if asked.arriving else 1
        self.task = asked.task
        if asked.arriving:
            asked = replace(asked, task=arriving.coarse(asked.task, self.as_one))
        self.asked, self.tell = asked, tell
        self.law = Law(asked.task, asked.graph, asked.epsilon, asked.delta, asked.secrets)
        self.done, self.total = 0, len(KINDS) * (len(FIRST) + len(LATER))

    def chosen(self) -> tuple[Choice, dict[str, float]]:
        """The best, and what it and the rule's setting score."""
        first = self.first()
        finalists = [first[0]]
        if len(first) > 1:
            means = self.means(first, FIRST)
            # To four digits: what machines round otherwise must not decide.
            ranked = sorted(
                range(1, len(first)), key=lambda at: (-round(means[:, at].max(), 4), at)
            )
            finalists += [first[at] for at in ranked[:FINALISTS]]
            finalists += [other for one in finalists[:3] for other in self._varied(one)]
        finalists = list(dict.fromkeys(finalists))
        means = self.means(finalists, LATER)
        place, kind = _best(means)
        choice = replace(finalists[place], readout=RELEASED[kind])
        scores = self._scores(choice, float(means[kind, place]), float(means[0, 0]))
        return arriving.finer(choice, self.task, self.as_one), scores

    def first(self) -> list[Choice]:
        """The candidates, the rule's first."""
        asked, make = self.asked, arriving.around if self.asked.arriving else around
        return make(asked.task, asked.graph, asked.epsilon, asked.delta, asked.secrets)

    def ruled(self) -> Choice:
        """The rule's by itself."""
        asked = self.asked
        if asked.arriving:
            return self.first()[0]
        return by_the_rule(asked.task, asked.graph, asked.epsilon, asked.delta, asked.secrets)

    def _varied(self, choice: Choice) -> Iterator[Choice]:
        if self.asked.arriving:
            return arriving.varied(choice)
        return varied(choice, self.asked.task)

    def problems(self, choices: Sequence[Choice], draws: Sequence[int]) -> list[Problem]:
        return trial_problems(self.asked.task, choices, draws, self.asked.seed)

    def means(self, choices: Sequence[Choice], draws: Sequence[int]) -> np.ndarray:
        """(read-out, choice): the mean over kinds, draws and noise."""
        columns = [self.law.column(one) for one in choices]
        problems = self.problems(choices, draws)
        found = []
        with side_by_side() as pool:
            trials = (pool.submit(self._tried, problem, choices, columns) for problem in problems)
            for trial in list(trials):
                self.tell("rehearsing", min(self.done, self.total - 1), self.total)
                found.append(trial.result())
                self.done += 1
        return np.mean(found, axis=0)

    def _tried(
        self, problem: Problem, choices: Sequence[Choice], columns: Sequence[Column]
    ) -> np.ndarray:
        found = np.zeros((len(RELEASED), len(choices)))
        kinds = [(one.averaging, one.chebyshev, one.weights) for one in choices]
        for kind in dict.fromkeys(kinds):
            own = [at for at, one in enumerate(kinds) if one == kind]
            passed = exchanged(choices[own[0]], self.law)
            some = [columns[at] for at in own]
            if self.asked.arriving:
                some += [one.cut(arriving.half_way(self.asked.task)) for one in some]
            scores = tried(problem, passed, some, averages(), range(SEEDS)).mean(axis=2)
            found[:, own] = scores.reshape(len(RELEASED), -1, len(own)).mean(axis=1)
        return found

    def _scores(self, choice: Choice, score: float, ruled: float) -> dict[str, float]:
        quiet, loud = self.law.column(choice, quiet=True), self.law.column(choice)
        readout, passed = (choice.average,), exchanged(choice, self.law)
        half = loud.cut(arriving.half_way(self.asked.task))

        def measured(problem: Problem) -> tuple[float, ...]:
            clean = tried(problem, passed, [quiet], readout, [0]).mean()
            if not self.asked.arriving:
                return clean, guessing(problem)
            noisy = tried(problem, passed, [loud, half], readout, range(SEEDS))[0]
            return clean, guessing(problem), *noisy.mean(axis=1)

        with side_by_side() as pool:
            found = list(pool.map(measured, self.problems([choice], LATER)))
        means = np.mean(found, axis=0).tolist()
        known = dict(zip(("clean", "guess", "score", "half"), means, strict=False))
        return {"score": score, "ruled": ruled, **known}


@contextmanager
def side_by_side() -> Iterator[ThreadPoolExecutor]:
    """Trials run beside each other, each on one core: so its numbers do not depend on how many
    there are.
    """
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1), ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
        yield pool


def averages() -> tuple[ReadOut, ...]:
    return tuple(READOUTS[name]() for name in RELEASED)


def exchanged(choice: Choice, law: Law) -> Any:
    """What messages of that choice go through."""
    return exchange(law.graph, COUPLING, choice.algorithm.relays(law.graph), law.shared(choice))


def guessing(problem: Problem) -> float:
    """The accuracy of always naming the commonest label; for numbers, the mean explains nothing."""
    if not problem.classification:
        return 0.0
    return float(
        np.unique(problem.test_labels, return_counts=True)[1].max() / len(problem.test_labels)
    )


@require.plain_arguments
def trial_problems(
    task: Task, choices: Sequence[Choice], draws: Sequence[int], seed: int
) -> list[Problem]:
    """Made-up records of every kind, so few that trying those choices stays within `WORK`."""
    rounds = sum(one.rounds for one in choices) * SEEDS * len(KINDS) * len(draws)
    each = PER_PARAMETER * task.dimension + PER_RECORD * task.dimension / task.shape[0]
    most = int(WORK / (rounds * each * task.agents))
    # Very many agents: fewer kinds, so that each keeps some records.
    kinds = KINDS[: max(2, math.ceil(len(KINDS) * min(1.0, most / FEWEST)))]
    small = fewer(task, max(FEWEST, most))
    return [made_up(small, kind, 100 * seed + draw) for draw in draws for kind in kinds]


def _best(means: np.ndarray) -> tuple[int, int]:
    """(the choice, the read-out) with the best mean; the earlier one unless a later is better by
    `MARGIN`.
    """
    found, best = (0, 0), round(float(means[0, 0]), 4)
    for place in range(means.shape[1]):
        for kind in range(means.shape[0]):
            if round(float(means[kind, place]), 4) > best + MARGIN:
                found, best = (place, kind), round(float(means[kind, place]), 4)
    return found
