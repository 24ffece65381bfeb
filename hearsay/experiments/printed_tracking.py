"""Gradient tracking as paper P2 prints it for an agent, (4) and (6), for comparison only.

    x_i(k+1) = x_i(k) + alpha sum_j R_ij (xn_j - x_i) - gamma y_i(k)                          (4)
    y_i(k+1) = y_i(k) + beta sum_j C_ij (yn_j - y_i) + g_i(k+1) - g_i(k)                      (6)

It keeps 1 - beta sum_j C_ij of the own tracker, a row sum, and uses no noise of its own. The
proofs are about another form, with column sums (algorithms/gradient_tracking.py). On an unbalanced
graph this one does not converge even without noise, and no budget is offered for it.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, ClassVar, final

from hearsay.algorithms.theory.findings import Finding
from hearsay.algorithms.theory.gradient_tracking import assumptions
from hearsay.algorithms.tracking import Message, State, Tracking
from hearsay.base import Inbox
from hearsay.graphs import Graph
from hearsay.problems.losses.domains import Domain
from hearsay.problems.task import Task


@final
@dataclass(frozen=True, kw_only=True)
class PrintedTracking(Tracking):
    """Gradient tracking with the row sums that are printed.

    Args:
      step: gamma.
      coupling: alpha.
      tracking: beta.
      noise: the scale of the noise on states, one schedule or one per agent.
      tracker_noise: the same on trackers; that of the states unless given.
      mechanism: "laplace" or "gaussian".
      sampling: the sampler with its sample size m.
      average: read out a running average of the models.
    """

    channels: ClassVar[dict[str, str]] = {"params": "coupling", "tracker": "pulling"}
    uncertified: ClassVar[str] = "no budget is offered for the printed variant"
    agent_facts: ClassVar[tuple[str, ...]] = ("heard", "pushed")

    name: str = "printed-tracking"

    def update(
        self, state: State, sent: Message, inbox: Inbox, batch: Any, rates: Any, domain: Domain
    ) -> State:
        pull = inbox.total.params + inbox.own.params * state.params  # sum_j R_ij (xn_j - x_i)
        push = inbox.total.tracker + inbox.own.tracker * state.tracker  # sum_j C_ij (yn_j - y_i)
        params = state.params + rates.coupling * pull - rates.step * state.tracker  # (4)
        # (6)
        return State(domain.project(params), state.drift + rates.tracking * push, state.tracker)

    def check(self, graph: Graph, problem: Task) -> None:
        super().check(graph, problem)
        graph.require_common_root()
        warnings.warn(
            "printed-tracking does not converge on unbalanced graphs and has no certificate",
            stacklevel=3,
        )

    def theory(self, graph: Graph, problem: Task) -> list[Finding]:
        detail = (
            "they are proved for (7) and (8), with column sums of C; the printed update (6) has its"
            " row sums"
        )
        found = assumptions(self.sampling, graph, problem)
        return [*found, Finding("Theorems 1-5", False, detail)]
