"""A coalition against noise that agents share (privacy/coalitions.py), as an auditor plays it.

The coalition K sees every message, has its members' records and keys, and subtracts what it shares
with anybody from everybody's messages. As in every audit it also knows the records of all others
but one, so that it knows the noise of every other honest agent: what is left of the audited agent's
noise is Gaussian, around

    - sum_j P_ij / P_ii noise_j    over the other honest agents j,    P = S_H^-1

with variance 1 / P_ii. That is the law in likelihood ratios (likelihood.py). Covariances are put
together here from the definition, c_ij = ratio_ij sqrt(s_i s_j), in units of each agent's own
noise, and coalitions are tried one by one: what a certificate says of them is held against that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import combinations
from typing import NamedTuple

import numpy as np

from hearsay import _validate as require
from hearsay.base import Algorithm
from hearsay.certification import certify
from hearsay.graphs import Graph
from hearsay.privacy.certificate import AgentBudget, Certificate
from hearsay.privacy.coalitions import Shared
from hearsay.privacy.description import numbers
from hearsay.problems.task import Task

# So many coalitions are tried one by one; where there are more, those who share most with the agent
# are taken.
_COALITIONS = 2000
# What rounding gains outwards, and discretized privacy losses, may add to a ratio of 1.
_EXACT = 1e-6


class Left(NamedTuple):
    """What a coalition leaves unknown of one agent's noise.

    Args:
      members: of the coalition.
      weights: (agent,), of the other honest agents' noise in what is expected of the agent's.
      spread: its standard deviation, over that of the agent's own noise.
    """

    members: tuple[int, ...]
    weights: np.ndarray
    spread: float


@dataclass(frozen=True)
class Colluded:
    """One agent against one coalition.

    Args:
      agent: whose messages.
      members: of the coalition.
      found: epsilon against it.
      certified: the certificate's, for as many colluders.
    """

    agent: int
    members: tuple[int, ...]
    found: float
    certified: float

    @property
    def holds(self) -> bool:
        return self.found <= self.certified * (1 + _EXACT)

    @property
    def words(self) -> str:
        return (
            f"with {together(self.members)} agent {self.agent} has epsilon {self.found:.4g}, and"
            f" the certificate says {self.certified:.4g}: it counts noise as protection that a"
            " coalition knows, or that nobody adds"
        )


def together(members: tuple[int, ...]) -> str:
    """Who colludes, in words."""
    if not members:
        return "nobody colluding"
    if len(members) > 8:
        return f"{len(members)} agents colluding"
    named = ", ".join(map(str, members))
    return f"agent {named} colluding" if len(members) == 1 else f"agents {named} colluding"


def weights(shared: Shared) -> np.ndarray:
    """(pair, 2): how loud a pair's noise is at either end, in units of that agent's own."""
    ends = shared.ends()
    scales = np.broadcast_to(np.asarray(shared.scales, float), shared.agents)[ends]
    loud = np.asarray(shared.ratios, float) * np.sqrt(scales[:, 0] * scales[:, 1])
    return loud[:, None] / scales


def covariance(shared: Shared, members: tuple[int, ...] = ()) -> np.ndarray:
    """(agent, agent): of all agents' noise in units of their own, without what the members share
    with anybody.
    """
    found, ends, loud = np.eye(shared.agents), shared.ends(), weights(shared)
    kept = ~np.isin(ends, members).any(axis=1)
    (one, two), (here, there) = ends[kept].T, loud[kept].T
    np.add.at(found, (one, one), here**2)
    np.add.at(found, (two, two), there**2)
    found[one, two] = found[two, one] = -here * there
    return found


def left(shared: Shared, agent: int, members: tuple[int, ...]) -> Left:
    """What that coalition does not know of the agent's noise."""
    honest = np.setdiff1d(np.arange(shared.agents), members)
    place = int(np.searchsorted(honest, agent))
    unknown = covariance(shared, members)[np.ix_(honest, honest)]
    row = np.linalg.solve(unknown, np.eye(len(honest))[place])
    found = np.zeros(shared.agents)
    found[honest] = -row / row[place]
    found[agent] = 0.0
    return Left(members, found, 1 / math.sqrt(row[place]))


def worst(shared: Shared, agent: int, colluders: int) -> Left:
    """The coalition of so many others that leaves least, of those that are tried."""
    others = [other for other in range(shared.agents) if other != agent]
    if not 0 <= colluders <= len(others):
        require.fail("colluders", f"at most the {len(others)} other agents", colluders)
    if math.comb(len(others), colluders) > _COALITIONS:
        ends, loud = shared.ends(), weights(shared)
        ties = np.zeros(shared.agents)
        for one, two in ((0, 1), (1, 0)):
            mine = ends[:, one] == agent
            ties[ends[mine, two]] = loud[mine, one]
        tried = [tuple(sorted(sorted(others, key=lambda j: -ties[j])[:colluders]))]
    else:
        tried = list(combinations(others, colluders))
    return min((left(shared, agent, one) for one in tried), key=lambda found: found.spread)


def sizes(algorithm: Algorithm, agents: int) -> list[int]:
    """The numbers of colluders that an audit looks at: none, as many as planned for, all others.

    Empty where agents share nothing.
    """
    if algorithm.secrets is None:
        return []
    return sorted({0, algorithm.secrets.colluders, agents - 1})


def facing(certificate: Certificate, agent: int, colluders: int | None) -> AgentBudget:
    """The agent's budget against that many colluders, from its curve; None: as it is stated."""
    budget = certificate.budgets[agent]
    if colluders is None:
        return budget
    known = {point.colluders: point.epsilon for point in budget.curve}
    if colluders not in known:
        rule = f"one of those that the certificate speaks of, {', '.join(map(str, known))}"
        require.fail("colluders", rule if known else "left out without secrets", colluders)
    rho, shared = budget.rho, certificate.secrets
    if rho is not None:
        assert shared is not None and budget.description is not None
        planned = certificate.descriptions[budget.description].gain
        rho *= (planned / shared.gain(agent, colluders).value) ** 2
    return replace(budget, epsilon=known[colluders], rho=rho)


def colluding(
    algorithm: Algorithm, problem: Task, graph: Graph, agent: int, steps: int, delta: float | None
) -> tuple[Colluded, ...]:
    """The epsilon of the agent's own noise and of what a coalition leaves of the rest, beside the
    certificate's, for the worst coalition of every size in `sizes`.
    """
    certificate = certify(algorithm, problem, graph, steps, delta=delta)
    shared, budget, found = certificate.secrets, certificate.budgets[agent], list[Colluded]()
    if shared is None or budget.description is None:
        return ()
    description = certificate.descriptions[budget.description]
    for colluders in sizes(algorithm, graph.agents):
        against = worst(shared, agent, colluders)
        point = replace(
            description,
            gain=max(1.0, against.spread),
            adversary=replace(description.adversary, colluders=colluders),
            # Agents that differ in words only share what follows.
            further=(),
        )
        certified = facing(certificate, agent, colluders).epsilon
        epsilon = numbers(point, steps, delta).epsilon
        found.append(Colluded(agent, against.members, epsilon, certified))
    return tuple(found)
