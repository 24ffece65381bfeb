"""Settings that learn, chosen without looking at anybody's records: a rehearsal.

Candidates around the rule's setting (choices.py) are simulated on several kinds of made-up records
of exactly the task's shape (made_up.py, trial.py), all of them first, then the best few and some
variants on other draws. The one with the best mean over the kinds wins; another than the rule's
must be better by `MARGIN`, which is what chance may do. Everything that enters is public: a Task,
a graph, epsilon, delta. So the choice costs no privacy, and everybody who makes it finds the same.

What is chosen is kept in the cache folder (`HEARSAY_CACHE`). The noise is calibrated anew by every
call: nothing that a cache holds can make a run cost more than epsilon.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from scipy import sparse

from hearsay import _validate as require
from hearsay.base import Algorithm
from hearsay.certification import calibrate
from hearsay.graphs import Graph, builders
from hearsay.graphs.secrets import Secrets
from hearsay.problems.problem import Problem
from hearsay.problems.task import Task, public
from hearsay.release.readouts import READOUTS, ReadOut
from hearsay.tradeoff import advice, kept, rule
from hearsay.tradeoff.choices import (
    CLIPS,
    COUPLING,
    RELEASED,
    STEEPEST,
    TRAVELS,
    AnyTask,
    Choice,
    Epsilon,
    Law,
    around,
    by_the_rule,
    longer,
    rounded,
    secrets_for,
    varied,
)
from hearsay.tradeoff.made_up import KINDS, fewer, made_up
from hearsay.tradeoff.sizes import classes, some_of
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
# Sizes of agents that rehearse learning by themselves, at most.
SIZES = 4

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Scores:
    """On made-up records: accuracy, or the share of variance that is explained.

    Args:
      score: of the choice.
      clean: of the same settings without noise.
      alone: of agents by themselves, with the same epsilon and rehearsals of their own.
      guess: of always naming the commonest label (or the mean).
      ruled: of the rule's setting.
    """

    score: float
    clean: float
    alone: float
    guess: float
    ruled: float

    def __post_init__(self) -> None:
        require.settle(self, **dict.fromkeys(self.__dataclass_fields__, require.number))


@dataclass(frozen=True, eq=False)
class Rehearsal:
    """What was chosen, and how good it was on made-up records.

    Args:
      algorithm: with its noise calibrated.
      rounds: messages of each agent.
      readout: the average of messages to release.
      task: what is public, with the clip and all records there from the start.
      graph: who hears whom.
      epsilon: what each agent may spend.
      delta: at which.
      choice: the settings by themselves.
      scores: on made-up records; None for neural networks, of which these would say little.
      warnings: that the answer will be no better than a guess, and what would help.
    """

    algorithm: Algorithm
    rounds: int
    readout: ReadOut
    task: Task
    graph: Graph
    epsilon: Epsilon
    delta: float
    choice: Choice
    scores: Scores | None
    warnings: tuple[str, ...] = ()

    @property
    def score(self) -> float | None:
        return None if self.scores is None else self.scores.score

    @property
    def clean(self) -> float | None:
        return None if self.scores is None else self.scores.clean

    @property
    def alone(self) -> float | None:
        return None if self.scores is None else self.scores.alone

    @property
    def guess(self) -> float | None:
        return None if self.scores is None else self.scores.guess

    @property
    def words(self) -> str:
        """In one line."""
        if self.scores is None:
            return (
                f"by the rule for neural networks, not rehearsed (made-up records say little of"
                f" them): {self.choice.words}"
            )
        s = self.scores
        numbers = not self.task.classification
        what = " of the variance explained" if numbers else ""
        guess = "by guessing" if numbers else "by guessing, classes being about equally common"
        return (
            f"rehearsed: {self.choice.words}; made-up records: {s.score:.2f}{what}"
            f" ({s.clean:.2f} without noise, {s.alone:.2f} alone, {s.guess:.2f} {guess})"
        )

    def prepared(self, problem: AnyTask) -> AnyTask:
        """The problem, or its task, with the changes that the settings count on.

        Args:
          problem: one with the public facts that were rehearsed.
        """
        return self.choice.prepared(problem)

    def __str__(self) -> str:
        return "\n".join([self.words, *self.warnings])


@require.plain_arguments
def rehearse(
    task: Task,
    graph: Graph,
    epsilon: float | Sequence[float],
    *,
    delta: float = 1e-5,
    colluders: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Rehearsal:
    """Settings for a task that nobody has looked at the records of.

    Args:
      task: what is public of the problem, or a problem, of which only that is used.
      graph: who hears whom.
      epsilon: what each agent may spend: one number, or one per agent.
      delta: at which.
      colluders: share noise between pairs of agents, planned for so many of the others colluding;
        None: every agent has its own noise only, and nobody is trusted.
      seed: of the made-up records.
      progress: called with what is being done, and how much of how much is.

    Example:
      >>> import hearsay as hs
      >>> task = hs.problems.logistic("digits", ridge=0.0, adjacency="zero-out").task
      >>> found = hs.rehearse(task, hs.graphs.complete(5), 2.0)
      >>> sent = hs.certify(found.algorithm, found.task, found.graph, found.rounds, delta=1e-5)
      >>> round(max(sent.epsilon), 3)
      2.0
    """
    task, delta = replace(public(task), seed=0), require.fraction("delta", delta)
    graph.require_agents(task.agents)
    if task.endless:
        require.fail("task", "one with finitely many records to rehearse", task.name)
    each = require.per_agent("epsilon", epsilon, task.agents)
    spend: Epsilon = each[0] if len(set(each)) == 1 else tuple(each)
    many = require.optional(require.natural)("colluders", colluders)
    secrets = secrets_for(many, task.agents)
    asked = _Asked(task, graph, spend, delta, secrets, require.seed("seed", seed))
    tell = progress or (lambda name, done, total: None)
    choice, scores, warnings = (
        _remembered(asked, tell, advised=True) if rule.travels(task) else (_neural(asked), None, ())
    )
    # Not in the cache: a file may be older than these words.
    if scores is not None and (said := advice.about(task, scores.guess)):
        warnings = tuple(f"{line} {said}" for line in warnings)
    prepared = choice.prepared(task)
    algorithm = calibrate(choice.algorithm, prepared, graph, choice.rounds, spend, delta=delta)
    return Rehearsal(
        algorithm,
        choice.rounds,
        choice.average,
        prepared,
        graph,
        spend,
        delta,
        choice,
        scores,
        warnings,
    )


@dataclass(frozen=True, eq=False)
class Single:
    """What agents of about one size choose where each learns by itself.

    Args:
      agents: of that size.
      choice: of the one that rehearsed.
      quiet: its records times its epsilon: another one's noise is in proportion to one over that.
      score: on made-up records.
    """

    agents: np.ndarray
    choice: Choice
    quiet: float
    score: float

    def chosen(self, quiet: float, task: Task) -> Choice:
        """For an agent with so many records times epsilon: it is worth so much more travel."""
        ratio = quiet / self.quiet
        return self.choice if 0.9 <= ratio <= 1.1 else longer(self.choice, ratio, task)


def by_themselves(
    task: Task, epsilon: Epsilon, delta: float, seed: int = 0, progress: Progress | None = None
) -> list[Single]:
    """Agents that learn by themselves, with settings that each has rehearsed: what joining is to be
    held against. One agent of each size rehearses, the middle one.

    Args:
      task: of all agents; its loss has curvature (`rule.travels`).
      epsilon: one for all, or one for each; to three digits, so that what was spent and what might
        be are one choice.
      delta: at which.
      seed: of the made-up records.
      progress: as for `rehearse`.
    """
    # Twice the epsilon takes about as much noise as twice the records.
    each = np.minimum(np.broadcast_to(epsilon, task.agents), 1e6)
    quiet, found = task.counts * each, []
    for agents in classes(quiet, SIZES):
        one = int(agents[np.argsort(quiet[agents], kind="stable")[len(agents) // 2]])
        own = some_of(task, np.array([one]))
        asked = _Asked(own, nobody(1), rounded(float(each[one])), delta, None, seed)
        choice, scores, _ = _remembered(asked, progress or (lambda *told: None), advised=False)
        found.append(Single(agents, choice, float(quiet[one]), scores.score))
    return found


@require.plain_arguments
def usual_graph(agents: int) -> Graph:
    """Who hears whom where nobody has said it: everybody everybody up to 10 agents, else six others
    that are drawn once and for all.
    """
    agents = require.count("agents", agents)
    if agents == 1:
        return nobody(1)
    if agents <= 10:
        return builders.complete(agents)
    return builders.random(agents, degree=6)


@require.plain_arguments
def nobody(agents: int) -> Graph:
    """Nobody hears anybody."""
    return Graph(sparse.csr_array((agents, agents)), "alone")


@dataclass(frozen=True, eq=False)
class _Asked:
    """All that enters a choice."""

    task: Task
    graph: Graph
    epsilon: Epsilon
    delta: float
    secrets: Secrets | None
    seed: int

    @property
    def key(self) -> str:
        """The same for the same choice only."""
        # Of a schema only what made-up rows depend on: names and ranges are no part of it.
        inputs = {} if self.task.schema is None else self.task.schema.inputs
        schema = [(type(one).__name__, len(one.entries("x"))) for one in inputs.values()]
        constants = (
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
        known = (self.epsilon, self.delta, self.secrets, self.seed, self.task.adjacency, schema)
        facts = (self.task.digest(), self.graph.digest())
        return kept.key(known, facts, constants)


def _neural(asked: _Asked) -> Choice:
    chosen = by_the_rule(asked.task, asked.graph, asked.epsilon, asked.delta, asked.secrets)
    return replace(chosen, readout=RELEASED[0])


def _remembered(
    asked: _Asked, tell: Progress, advised: bool
) -> tuple[Choice, Scores, tuple[str, ...]]:
    """From the cache, or chosen now and kept there; `advised`: with what would help where it is no
    better than a guess.

    A file may be anybody's. Whom a budget holds against is never read from it: that was asked for.
    """
    key = asked.key if advised else f"one-{asked.key}"
    found = kept.read(key)
    against = asked.secrets
    ratio = None if against is None else against.ratio
    try:
        if found is not None:
            choice = Choice(**{**found["choice"], "colluders": planned(against), "ratio": ratio})
            return choice, Scores(**found["scores"]), tuple(map(str, found["warnings"]))
    except (KeyError, TypeError, ValueError):
        # Somebody else's, or damaged: it is made again.
        pass
    choice, scores = _Trials(asked, tell).chosen()
    here = advice.Situation(asked.task, asked.graph, asked.epsilon, planned(asked.secrets))
    above = partial(_above_guessing, asked)
    warnings = (
        advice.warnings(here, scores.score, scores.guess, above, usual_graph) if advised else ()
    )
    kept.write(
        key,
        {"choice": asdict(choice), "scores": asdict(scores), "warnings": list(warnings)},
    )
    return choice, scores, warnings


def planned(secrets: Secrets | None) -> int | None:
    return None if secrets is None else secrets.colluders


def _above_guessing(asked: _Asked, other: advice.Situation) -> float:
    """How much better than a guess the rule's setting is in another situation."""
    secrets = secrets_for(other.colluders, other.task.agents)
    there = replace(
        asked, task=other.task, graph=other.graph, epsilon=other.epsilon, secrets=secrets
    )
    trials = _Trials(there, lambda name, done, total: None)
    choice = by_the_rule(there.task, there.graph, there.epsilon, there.delta, secrets)
    score = float(trials.means([choice], FIRST).max())
    return score - float(np.mean([guessing(p) for p in trials.problems([choice], FIRST)]))


class _Trials:
    """The candidates on the made-up records of one task."""

    def __init__(self, asked: _Asked, tell: Progress) -> None:
        self.asked, self.tell = asked, tell
        self.law = Law(asked.task, asked.graph, asked.epsilon, asked.delta, asked.secrets)
        self.done, self.total = 0, len(KINDS) * (len(FIRST) + len(LATER))

    def chosen(self) -> tuple[Choice, Scores]:
        asked = self.asked
        first = around(asked.task, asked.graph, asked.epsilon, asked.delta, asked.secrets)
        finalists = [first[0]]
        if len(first) > 1:
            means = self.means(first, FIRST)
            # To four digits: what machines round otherwise must not decide.
            ranked = sorted(
                range(1, len(first)), key=lambda at: (-round(means[:, at].max(), 4), at)
            )
            finalists += [first[at] for at in ranked[:FINALISTS]]
            finalists += [other for one in finalists[:3] for other in varied(one, asked.task)]
        finalists = list(dict.fromkeys(finalists))
        means = self.means(finalists, LATER)
        place, kind = _best(means)
        choice = replace(finalists[place], readout=RELEASED[kind])
        return choice, self._scores(choice, float(means[kind, place]), float(means[0, 0]))

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
            scores = tried(problem, passed, some, averages(), range(SEEDS))
            found[:, own] = scores.mean(axis=2)
        return found

    def _scores(self, choice: Choice, score: float, ruled: float) -> Scores:
        asked = self.asked
        quiet = self.law.column(choice, quiet=True)
        place = RELEASED.index(choice.readout)
        passed = exchanged(choice, self.law)

        def measured(problem: Problem) -> tuple[float, float]:
            clean = tried(problem, passed, [quiet], averages(), [0])
            return clean[place].mean(), guessing(problem)

        with side_by_side() as pool:
            found = list(pool.map(measured, self.problems([choice], LATER)))
        clean, guess = map(float, np.mean(found, axis=0))
        alone = score if asked.task.agents == 1 else self._alone()
        self.tell("rehearsing", self.total, self.total)
        return Scores(score, clean, alone, guess, ruled)

    def _alone(self) -> float:
        """The mean over agents that have rehearsed learning by themselves."""
        asked = self.asked
        found = by_themselves(asked.task, asked.epsilon, asked.delta, asked.seed)
        return sum(one.score * len(one.agents) for one in found) / asked.task.agents


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
