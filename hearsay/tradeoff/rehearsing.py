"""Settings that learn, chosen without looking at anybody's records: a rehearsal.

Candidates around the rule's setting (choices.py) are tried on several kinds of made-up records of
exactly the task's shape (contest.py). Everything that enters is public: a Task, a graph, epsilon,
delta. So the choice costs no privacy, and everybody who makes it finds the same.

What is chosen is kept in the cache folder (`HEARSAY_CACHE`). The noise is calibrated anew by every
call: nothing that a cache holds can make a run cost more than epsilon.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial

import numpy as np
from scipy import sparse

from hearsay import _validate as require
from hearsay.base import Algorithm
from hearsay.certification import calibrate
from hearsay.graphs import Graph, builders
from hearsay.graphs.secrets import Secrets
from hearsay.problems.task import Task, public
from hearsay.release.readouts import ReadOut
from hearsay.tradeoff import advice, kept, rule
from hearsay.tradeoff.arriving import until_all_are_there
from hearsay.tradeoff.choices import (
    RELEASED,
    AnyTask,
    Choice,
    Epsilon,
    by_the_rule,
    longer,
    rounded,
    secrets_for,
)
from hearsay.tradeoff.contest import FIRST, Asked, Contest, Progress, guessing
from hearsay.tradeoff.sizes import classes, some_of

# Sizes of agents that rehearse learning by themselves, at most.
SIZES = 4


@dataclass(frozen=True)
class Scores:
    """On made-up records: accuracy, or the share of variance that is explained.

    Args:
      score: of the choice.
      clean: of the same settings without noise.
      alone: of agents by themselves, with the same epsilon and rehearsals of their own.
      guess: of always naming the commonest label (or the mean).
      ruled: of the rule's setting.
      half: of the choice when half of the records have arrived; None where all are there. It and
        `score` count alike in the choice, and `ruled` is the mean of both.
    """

    score: float
    clean: float
    alone: float
    guess: float
    ruled: float
    half: float | None = None

    def __post_init__(self) -> None:
        require.settle(
            self,
            **dict.fromkeys(self.__dataclass_fields__, require.number)
            | {"half": require.optional(require.number)},
        )


@dataclass(frozen=True, eq=False)
class Rehearsal:
    """What was chosen, and how good it was on made-up records.

    Args:
      algorithm: with its noise calibrated.
      rounds: messages of each agent.
      readout: the average of messages to release.
      task: what is public, with the clip and, unless they arrive, all records there from the start.
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
        half = "" if s.half is None else f"{s.half:.2f} half-way, "
        guess = "by guessing" if numbers else "by guessing, classes being about equally common"
        return (
            f"rehearsed: {self.choice.words}; made-up records: {s.score:.2f}{what}"
            f" ({half}{s.clean:.2f} without noise, {s.alone:.2f} alone, {s.guess:.2f} {guess})"
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
    arriving: bool = False,
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
      arriving: records arrive round by round, as the task's `head_start` and `per_step` say;
        otherwise all are there from the start.
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
    comes = require.flag("arriving", arriving) and until_all_are_there(task) > 0
    if comes and not rule.travels(task):
        raise ValueError(
            "arriving must be False for neural networks, whose settings are not rehearsed: name an"
            " algorithm, or have all records there (head_start)"
        )
    asked = Asked(task, graph, spend, delta, secrets, require.seed("seed", seed), comes)
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
        asked = Asked(own, nobody(1), rounded(float(each[one])), delta, None, seed)
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


def _neural(asked: Asked) -> Choice:
    chosen = by_the_rule(asked.task, asked.graph, asked.epsilon, asked.delta, asked.secrets)
    return replace(chosen, readout=RELEASED[0])


def _remembered(
    asked: Asked, tell: Progress, advised: bool
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
    contest = Contest(asked, tell)
    choice, found = contest.chosen()
    scores = Scores(alone=found["score"] if asked.task.agents == 1 else _alone(asked), **found)
    tell("rehearsing", contest.total, contest.total)
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


def _alone(asked: Asked) -> float:
    """The mean over agents that have rehearsed learning by themselves."""
    found = by_themselves(asked.task, asked.epsilon, asked.delta, asked.seed)
    return sum(one.score * len(one.agents) for one in found) / asked.task.agents


def planned(secrets: Secrets | None) -> int | None:
    return None if secrets is None else secrets.colluders


def _above_guessing(asked: Asked, other: advice.Situation) -> float:
    """How much better than a guess the rule's setting is in another situation."""
    secrets = secrets_for(other.colluders, other.task.agents)
    there = replace(
        asked, task=other.task, graph=other.graph, epsilon=other.epsilon, secrets=secrets
    )
    trials = Contest(there, lambda name, done, total: None)
    choice = trials.ruled()
    score = float(trials.means([choice], FIRST).max())
    return score - float(np.mean([guessing(p) for p in trials.problems([choice], FIRST)]))
