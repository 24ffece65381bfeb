"""What a run will do and what it costs, settled before it begins: how many steps may run, and the
certificate. `simulate` makes one promise and keeps it; the command line looks at it first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hearsay import _validate as require
from hearsay.base import Algorithm
from hearsay.certification import allowance, certify, limit_in_words, messages_within
from hearsay.graphs import Graph
from hearsay.privacy.certificate import Certificate
from hearsay.problems.problem import Problem, require_records
from hearsay.problems.task import Task


@dataclass(frozen=True, eq=False)
class Promise:
    """What a run will do and what it costs, settled before it begins; made by `promise`.

    certificate: for all the steps that were asked for. allowed: how many of them may run, and
    `stopped` why not all.
    """

    algorithm: Algorithm
    problem: Problem
    graph: Graph
    steps: int
    delta: float | None
    certificate: Certificate
    allowed: int
    stopped: str | None

    def after(self, steps: int) -> Certificate:
        """The certificate of a run that ended after so many steps."""
        if steps == self.steps:
            return self.certificate
        return certify(self.algorithm, self.problem, self.graph, steps, delta=self.delta)


def promise(
    algorithm: Algorithm,
    problem: Problem,
    graph: Graph,
    *,
    steps: int,
    budget: float | Sequence[float] | None = None,
    delta: float | None = None,
) -> Promise:
    """What `simulate` promises for these arguments: what a certificate lacks, or a budget forbids,
    is said before the run, not after it.
    """
    steps, delta = require.count("steps", steps), require.optional(require.fraction)("delta", delta)
    require_records(problem)
    certificate = certify(algorithm, problem, graph, steps, delta=delta)
    if graph.lossy:
        raise ValueError(
            "a simulation delivers every message: lossy graphs are for deployed agents (policy"
            " skip)"
        )
    allowed, stopped = allowed_steps(algorithm, problem, graph, steps, budget, delta)
    return Promise(algorithm, problem, graph, steps, delta, certificate, allowed, stopped)


def allowed_steps(
    algorithm: Algorithm,
    problem: Task,
    graph: Graph,
    steps: int,
    budget: Any,
    delta: float | None,
) -> tuple[int, str | None]:
    """How many steps may run: the stream must last and no agent may pass its budget."""
    steps = require.count("steps", steps)
    allowed, stopped = steps, None
    held, place = np.unique(problem.counts, return_inverse=True)
    each = [algorithm.sampling.lasts(count, problem.arrivals) for count in held.tolist()]
    if min(each) < allowed:
        allowed, short = int(min(each)), int(np.argmin(np.array(each)[place]))
        stopped = f"the stream of agent {short} ran dry after {allowed} steps"
    if algorithm.rounds < allowed:
        allowed = int(algorithm.rounds)
        stopped = f"the noise is planned for {allowed} rounds: message {allowed} was not sent"
    if budget is not None:
        limits = require.per_agent("budget", budget, graph.agents)
        within, agent = messages_within(algorithm, problem, graph, allowed, limits, delta)
        if within < allowed:
            allowed = within
            most = limit_in_words(algorithm, allowance(algorithm, limits, delta)[agent], delta)
            stopped = (
                f"agent {agent} may spend {most}: message {within} would exceed it and was not sent"
            )
    if allowed == 0:
        raise ValueError(f"nothing can be sent: {stopped}")
    return allowed, stopped
