"""What several runs on the same records cost together: basic composition, agent by agent.

If run r is (epsilon_r, delta_r)-private for an agent's records, all runs together are
(sum epsilon_r, sum delta_r)-private for them, also where settings of a later run were chosen by
what earlier ones sent (Dwork and Roth 2014, Theorem 3.16 and Section 3.5). It holds for any laws of
noise, and is not the least that can be shown: for Gaussian noise rho adds up to less, which is how
deployed agents count (`lifetime`).

That the records are the same, each at the same agent, and that the noise is not, is in no
certificate: a result says that it rests on it. A record that is at two agents costs what both of
them spend; two simulations with one seed have the same noise, and their difference has none.

Budgets that rest on secret batches are independent of each other only where the batches are:
simulated subsets are drawn from the problem's seed, the same in every run, so that such
certificates are refused unless they are of deployed runs, whose batches nobody draws again.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from hearsay import _validate as require
from hearsay.mechanisms import MECHANISMS
from hearsay.privacy.certificate import Certificate, show

DECLARED = (
    "every agent had the same records in all runs, no record was at two agents, and nothing else"
    " was published of them",
    "the noise of every run was drawn anew: simulations with the same seed have the same noise, and"
    " a run of several seeds is several runs",
)


class AddedUp(NamedTuple):
    """What several runs on the same records cost together.

    Args:
      agents: their numbers.
      epsilon: per agent.
      delta: per agent; 0 where epsilon is pure, and 1 (no guarantee) where they come to as much.
      runs: the algorithms, in order.
      protects: the adjacency that all certificates have.
      rests_on: what no certificate says, and the warnings of all.
    """

    agents: list[int]
    epsilon: list[float]
    delta: list[float]
    runs: tuple[str, ...]
    protects: str
    rests_on: tuple[str, ...]

    def __str__(self) -> str:
        top = int(np.argmax(self.epsilon))
        at = f" at delta = {show(max(self.delta))}" if max(self.delta) else ""
        lines = [
            f"{len(self.runs)} runs on the same records ({', '.join(self.runs)})",
            f"  epsilon   at most {show(self.epsilon[top])}{at} (agent {self.agents[top]})",
            f"  protects  {self.protects}",
            *(f"  rests on  {text}" for text in self.rests_on),
        ]
        return "\n".join(lines)


def add_up(*certificates: Certificate) -> AddedUp:
    """What runs on the same records cost together: epsilons and deltas add, agent by agent.

    Args:
      certificates: of the same agents, under the same adjacency, without shared noise and, in
        simulations, without secret batches.

    Example:
      >>> import hearsay as hs
      >>> problem, graph = hs.problems.ridge(agents=3, records=60), hs.graphs.ring(3)
      >>> one = hs.certify(hs.dsgd(noise=50.0), problem, graph, 20)
      >>> both = hs.add_up(one, one)
      >>> max(both.epsilon) >= 2 * max(one.epsilon), max(both.delta)
      (True, 0.0)
    """
    if len(certificates) < 2:
        require.fail("certificates", "two or more", len(certificates))
    for one in certificates:
        require.instance("certificates", one, Certificate, "certificates")
    first = certificates[0]
    for one in certificates:
        if one.secrets is not None:
            rule = "without shared noise, whose epsilon depends on who colludes in each run"
            require.fail("certificates", rule, one.algorithm)
        if not one.descriptions:
            rule = (
                "with what their budgets follow from: those of earlier versions cannot be verified"
            )
            require.fail("certificates", rule, one.algorithm)
        if not one.deployed and any(d.account.amplified for d in one.descriptions):
            rule = "of deployed runs where batches are secret: simulations draw the same ones again"
            require.fail("certificates", rule, one.algorithm)
        agents = one.budgets.agents
        if not len(agents) or len(np.unique(agents)) < len(agents):
            require.fail("certificates", "about some agents, each once", one.algorithm)
        if one.names != first.names:
            require.fail("certificates", f"of the same agents, {first.names}", one.names)
        if not np.array_equal(agents, first.budgets.agents):
            rule = f"of the same agents, {len(first.budgets)} in the first"
            require.fail("certificates", rule, f"{len(one.budgets)} in {one.algorithm}")
        if one.adjacencies != first.adjacencies:
            require.fail("certificates", f"all about {first.adjacencies}", one.adjacencies)
        if one.adversaries != first.adversaries:
            rule = f"all against someone who {first.adversaries}"
            require.fail("certificates", rule, one.adversaries)
    epsilon = _summed([one.epsilon for one in certificates])
    delta = _summed([_deltas(one) for one in certificates])
    warnings = dict.fromkeys(text for one in certificates for text in one.warnings)
    return AddedUp(
        first.budgets.agents.tolist(),
        [math.inf if slack >= 1 else spent for spent, slack in zip(epsilon, delta, strict=True)],
        [min(1.0, slack) for slack in delta],
        tuple(one.algorithm for one in certificates),
        first.adjacencies,
        (*DECLARED, *warnings),
    )


def _deltas(certificate: Certificate) -> list[float]:
    """At which each agent's epsilon holds: its own, the certificate's, or none."""
    law = MECHANISMS[certificate.mechanism]
    usual = certificate.delta or 0.0 if law.at_delta else 0.0
    return certificate.budgets.each(lambda b: max(usual, b.delta or 0.0))


def _summed(columns: list[list[float]]) -> list[float]:
    """Rounded up: a sum must not be less than its parts."""
    sums = (math.fsum(row) for row in zip(*columns, strict=True))
    return [math.nextafter(total, math.inf) if total else 0.0 for total in sums]
