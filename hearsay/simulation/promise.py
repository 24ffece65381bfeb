"""What a run will do and what it costs, settled before it begins: how many steps may run, and the
certificate. `simulate` makes one promise and keeps it; the command line looks at it first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hearsay import _validate as require
from hearsay.algorithms.outside import is_own
from hearsay.base import Algorithm
from hearsay.certification import allowance, certify, limit_in_words, messages_within
from hearsay.graphs import Graph
from hearsay.graphs.channels import channel
from hearsay.privacy.certificate import Certificate
from hearsay.problems.problem import Problem, require_records
from hearsay.problems.task import Task
from hearsay.simulation.faults import Faults
from hearsay.simulation.scales import require_declared

# Of methods that need every message, and whose budgets do not depend on who is heard.
_UNFIT = (
    "messages that this method cannot do without were lost (faults): budgets do not depend on who"
    " is heard, and hold; what it learns is not what its proofs are about"
)


@dataclass(frozen=True, eq=False)
class Promise:
    """What a run will do and what it costs, settled before it begins; made by `promise`.

    certificate: for all the steps that were asked for. allowed: how many of them may run, and
    `stopped` why not all. faults: what goes wrong on the network; the graph is then one on which
    any message may be missing, which is what is certified.
    """

    algorithm: Algorithm
    problem: Problem
    graph: Graph
    steps: int
    delta: float | None
    certificate: Certificate
    allowed: int
    stopped: str | None
    faults: Faults | None = None

    def after(self, steps: int) -> Certificate:
        """The certificate of a run that ended after so many steps."""
        if steps == self.steps:
            return self.certificate
        found = certify(self.algorithm, self.problem, self.graph, steps, delta=self.delta)
        return _warned(found, self.faults, self.graph)


def promise(
    algorithm: Algorithm,
    problem: Problem,
    graph: Graph,
    *,
    steps: int,
    budget: float | Sequence[float] | None = None,
    delta: float | None = None,
    faults: Faults | None = None,
) -> Promise:
    """What `simulate` promises for these arguments: what a certificate lacks, or a budget forbids,
    is said before the run, not after it.
    """
    steps, delta = require.count("steps", steps), require.optional(require.fraction)("delta", delta)
    require_records(problem)
    graph = failing(algorithm, problem, graph, steps, faults)
    certificate = certify(algorithm, problem, graph, steps, delta=delta)
    if graph.lossy and faults is None:
        raise ValueError(
            "a simulation without faults delivers every message, and the graph is lossy: give"
            " faults=hearsay.Faults(...) too"
        )
    certificate = _warned(certificate, faults, graph)
    allowed, stopped = allowed_steps(algorithm, problem, graph, steps, budget, delta)
    # Of hearsay's own methods tests hold what is sent against what is declared.
    if not is_own(type(algorithm)) and not algorithm.uncertified:
        require_declared(algorithm, problem, graph, allowed)
    return Promise(algorithm, problem, graph, steps, delta, certificate, allowed, stopped, faults)


def failing(
    algorithm: Algorithm, problem: Task, graph: Graph, steps: int, faults: Faults | None
) -> Graph:
    """The graph that is certified: one on which any message may be missing, where anything goes
    wrong. For methods that need every message (`Faults.unfit`) it stays as it is: their budgets
    are the same on both.
    """
    if faults is None:
        return graph
    require.instance("faults", faults, Faults, "hearsay.Faults(...)")
    graph.require_agents(problem.agents)
    faults.check(algorithm, graph, steps)
    fit = all(channel(name).may_skip for name in algorithm.channels.values())
    return replace(graph, lossy=fit)


def _warned(certificate: Certificate, faults: Faults | None, graph: Graph) -> Certificate:
    if faults is None or graph.lossy:
        return certificate
    return replace(certificate, warnings=(*certificate.warnings, _UNFIT))


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
    held, first = np.unique(problem.counts, return_index=True)
    lasts = [algorithm.sampling.lasts(count, problem.arrivals) for count in held.tolist()]
    if min(lasts) < allowed:
        allowed = int(min(lasts))
        agent = min(one for one, last in zip(first.tolist(), lasts, strict=True) if last == allowed)
        stopped = f"the stream of agent {agent} ran dry after {allowed} steps"
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
