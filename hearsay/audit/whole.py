"""A whole audit in three parts, each of which can fail in its own way:

    noise   residuals.py    is the noise what the certificate takes it for? Fails with a stated
                            chance of a false alarm
    search  search.py       do worst-case records and transcripts move a message further than the
                            certificate allows? No chance is involved; where a certificate
                            counts on secret batches, coins are thrown by hand as well
                            (secret_batches.py), where it counts on shared noise, coalitions are
                            tried (coalitions.py)
    runs    distinguish.py  is a lower bound on epsilon, from thousands of runs, above the
                            certificate? (one_run.py for neural networks.) Where agents share noise,
                            the auditor is the worst coalition: of nobody, of as many as are planned
                            for, of all others

None can replace another: the search takes the noise for granted, the runs look at one pair of data
sets, and the residuals say nothing about states. What is finished when somebody interrupts stays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from hearsay import _validate as require
from hearsay.audit.brute_force import allowed
from hearsay.audit.coalitions import Colluded, colluding, sizes
from hearsay.audit.distinguish import AgentAudit, distinguish
from hearsay.audit.messages import bare, membership, scene
from hearsay.audit.one_run import OneRun, one_run
from hearsay.audit.overhear import unfollowed
from hearsay.audit.residuals import Residuals, residuals
from hearsay.audit.search import Found, search, unsearchable
from hearsay.audit.secret_batches import Thrown, throw
from hearsay.base import Algorithm
from hearsay.certification import certify
from hearsay.graphs import Graph
from hearsay.problems.losses.loss import BoundedLoss
from hearsay.problems.problem import Problem
from hearsay.problems.task import Task

PARTS = ("noise", "search", "runs")
_EXACT = 1e-9  # what float64 may add to a ratio of 1
_ITERATIONS = 8  # of the climb: most of the way in a third of the time
# Numbers that pairs draw in all runs together, and the runs that are done whatever they draw.
_DRAWN, _FEWEST = 200_000_000, 1000


@dataclass(frozen=True, eq=False)
class Searched:
    """What the search reached of one agent's bounds: of the whole budget, and of the message
    where it came least and most near. like: the agent in the same situation that was searched for
    it, or itself. coins: what throwing coins by hand showed, where the certificate counts on secret
    batches. coalitions: the worst ones that were tried, where it counts on shared noise.
    """

    agent: int
    budget: float
    least: float
    most: float
    like: int
    coins: Thrown | None = None
    coalitions: tuple[Colluded, ...] = ()

    @property
    def within(self) -> bool:
        """No message moved further than it may."""
        return max(self.budget, self.most) <= 1 + _EXACT

    @property
    def holds(self) -> bool:
        coins = self.coins is None or self.coins.holds
        return self.within and coins and all(one.holds for one in self.coalitions)


@dataclass(eq=False)
class Audit:
    """What was found so far.

    skipped: parts that cannot be done here, and why; missing: parts that were interrupted,
    and the agents that are left; alike: agents that were not run, because another one (its number)
    is in the same situation.
    """

    steps: int
    error: float
    agents: tuple[int, ...]
    noise: Residuals | None = None
    searched: list[Searched] = field(default_factory=list)
    found: list[AgentAudit | OneRun] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    missing: dict[str, list[int]] = field(default_factory=dict)
    alike: dict[int, int] = field(default_factory=dict)

    @property
    def holds(self) -> bool:
        return all(
            one.holds
            for one in (*([self.noise] if self.noise else []), *self.searched, *self.found)
        )


@require.plain_arguments
def audit(
    algorithm: Algorithm,
    problem: Problem,
    graph: Graph,
    *,
    steps: int = 5,
    runs: int = 10_000,
    delta: float | None = None,
    agents: Sequence[int] | None = None,
    parts: Sequence[str] = PARTS,
    error: float = 1e-3,
    seed: int = 0,
    progress: Callable[[str, int, int], None] = lambda part, done, total: None,
) -> Audit:
    """Every part for every agent (or those given; the noise is always everybody's).

    All lower bounds together are wrong with probability `error` at most, and all tests of the noise
    together raise a false alarm with probability `error` at most. An interrupt (Ctrl-C) ends the
    audit; what is finished by then is returned, and `missing` says what is not.

    Where agents share noise, coalitions of several sizes are played against every agent, or,
    without `agents`, against one of each situation.
    """
    chosen = tuple(range(graph.agents)) if agents is None else tuple(dict.fromkeys(agents))
    for agent in chosen:
        if require.count("agents", agent, 0) >= graph.agents:
            require.fail("agents", f"numbers of agents, 0 to {graph.agents - 1}", agent)
    for part in parts:
        require.one_of("parts", part, PARTS)
    require.fraction("error", error)
    found = Audit(require.count("steps", steps), error, chosen)
    known: dict[bytes, Searched] = {}
    work: dict[str, Callable[[int], Any]] = {
        "search": lambda agent: found.searched.append(
            _searched(algorithm, problem, graph, agent, found, seed, known, delta)
        ),
        "runs": lambda agent: found.found.extend(
            _distinguished(algorithm, problem, graph, agent, found, runs, delta, seed, progress)
        ),
    }
    reasons = {
        part: unavailable(part, algorithm, problem, graph, steps, delta)
        for part in PARTS
        if part in parts
    }
    found.skipped = {part: why for part, why in reasons.items() if why}
    found.missing = {part: list(chosen) for part, why in reasons.items() if not why}
    if algorithm.secrets is not None and agents is None and "runs" in found.missing:
        found.alike = _alike(algorithm, problem, graph, steps, delta)
        found.missing["runs"] = [agent for agent in chosen if agent not in found.alike]
    try:
        for part in list(found.missing):
            if part == "noise":
                found.noise = residuals(
                    algorithm,
                    problem,
                    graph,
                    steps=steps,
                    level=error,
                    seed=seed,
                    progress=partial(progress, part),
                )
            else:
                progress(part, 0, len(chosen))
                for agent in tuple(found.missing[part]):
                    work[part](agent)
                    found.missing[part].remove(agent)
                    if part == "search":
                        progress(part, len(found.searched), len(chosen))
            del found.missing[part]
    except KeyboardInterrupt:
        pass
    return found


@require.plain_arguments
def unavailable(
    part: str, algorithm: Algorithm, problem: Task, graph: Graph, steps: int, delta: float | None
) -> str:
    """Why a part says nothing about this configuration, if so."""
    if part == "search":
        if rule := unsearchable(problem):
            return f"the problem would have to be {rule}"
        if not certify(algorithm, problem, graph, steps, delta=delta).finite:
            return "there is no certificate to hold a search against"
    if part == "runs":
        if problem.endless:
            return "neighbouring data sets need a data set, and this is an endless stream"
        if problem.loss.unrolled:
            if rule := unfollowed(algorithm, graph):
                return f"the algorithm would have to be {rule}"
            models = "params" in algorithm.channels and algorithm.law.adds_noise
            return (
                "" if models else "canaries are looked for in messages that are models with noise"
            )
        if not isinstance(problem.loss, BoundedLoss) or problem.declared:
            return "only a linear model's loss says which records there may be"
    return ""


def _searched(
    algorithm: Algorithm,
    problem: Problem,
    graph: Graph,
    agent: int,
    audit: Audit,
    seed: int,
    known: dict[bytes, Searched],
    delta: float | None,
) -> Searched:
    here = situation(algorithm, problem, graph, agent, audit.steps)
    if here not in known:
        reached: Found = search(
            algorithm,
            problem,
            graph,
            agent=agent,
            steps=audit.steps,
            iterations=_ITERATIONS,
            seed=seed,
        )
        certificate = certify(algorithm, problem, graph, audit.steps, delta=delta)
        coins = None
        if certificate.amplified(agent):
            coins = throw(algorithm, problem, graph, agent=agent, steps=audit.steps)
        known[here] = Searched(
            agent, reached.total, reached.tightness, float(reached.ratio.max()), agent, coins
        )
    tried = colluding(algorithm, problem, graph, agent, audit.steps, delta)
    return replace(known[here], agent=agent, coalitions=tried)


def _alike(
    algorithm: Algorithm, problem: Task, graph: Graph, steps: int, delta: float | None
) -> dict[int, int]:
    """Agents whose messages, noise and neighbours in the graph of secrets are like those of an
    earlier one, and which one that is.
    """
    first, found = dict[Any, int](), dict[int, int]()
    for budget in certify(algorithm, problem, graph, steps, delta=delta).budgets:
        here = situation(algorithm, problem, graph, budget.agent, steps)
        points = tuple(f"{point.epsilon:.9g}" for point in budget.curve)
        if (one := first.setdefault((here, points), budget.agent)) != budget.agent:
            found[budget.agent] = one
    return found


@require.plain_arguments
def situation(algorithm: Algorithm, problem: Task, graph: Graph, agent: int, steps: int) -> bytes:
    """All that the search depends on, except what multiplies gaps and bounds alike:
    agents with the same one need one search.
    """
    plain = bare(algorithm)
    limit = allowed(plain, problem, graph, agent, steps)
    public = scene(plain, problem, graph, agent, steps)
    weights = membership(plain, problem, graph, agent, steps)
    rates = [
        np.asarray(rate) / (np.max(rate) or 1.0) if "noise" in name else np.asarray(rate)
        for name, rate in public.rates._asdict().items()
    ]
    used = np.flatnonzero(weights.any(axis=0))
    parts = (
        limit / (limit.max() or 1.0),
        *rates,
        *public.own,
        public.start,
        weights[:, used],
        used,
    )
    return b"".join(np.round(np.asarray(part, np.float64), 9).tobytes() for part in parts)


def _distinguished(
    algorithm: Algorithm,
    problem: Problem,
    graph: Graph,
    agent: int,
    audit: Audit,
    runs: int,
    delta: float | None,
    seed: int,
    progress: Callable[[str, int, int], None],
) -> list[AgentAudit] | list[OneRun]:
    """One finding, or one for every number of colluders that is looked at."""
    run = [one for one in audit.agents if one not in audit.alike]
    place, count = run.index(agent), len(run)
    if problem.loss.unrolled:
        done = one_run(
            algorithm,
            problem,
            graph,
            agent=agent,
            steps=audit.steps,
            delta=delta,
            error=audit.error / count,
            seed=seed,
        )
        progress("runs", place + 1, count)
        return [done]
    against: list[int | None] = [*sizes(algorithm, graph.agents)] or [None]
    share, points = audit.error / (count * len(against)), count * len(against)
    if (shared := algorithm.shared(graph.agents)) is not None:
        numbers = len(shared.ends()) * audit.steps * problem.dimension * len(algorithm.channels)
        runs = min(runs, max(_FEWEST, _DRAWN // (numbers * points)))
    found = []
    for number, colluders in enumerate(against):
        before = place * len(against) + number
        found.append(
            distinguish(
                algorithm,
                problem,
                graph,
                agent=agent,
                steps=audit.steps,
                runs=runs,
                delta=delta,
                error=share,
                seed=seed,
                colluders=colluders,
                progress=lambda done, total, before=before: progress(  # type: ignore[misc]
                    "runs", before * total + done, points * total
                ),
            )
        )
    return found
