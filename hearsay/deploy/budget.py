"""The certificate of a deployed run: that of the algorithm, with what the lattice and the
arithmetic cost and what may go wrong on a network taken in.

Noise on a lattice is not the ideal noise of the mathematics, and float64 is not the real numbers:
rounding to the lattice (mechanisms/rounding.py) and the rounding of every update
(privacy/float64.py) add a little to the sensitivity, and `certification.deployed` counts both.
Messages that may be skipped change how fast an agent forgets: that is in the coefficients, from
`Graph.lossy`. What a rehearsal spends is printed too, with the warning that it protects nobody.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from hearsay.base import Algorithm
from hearsay.certification import allowance, deployed, limit_in_words
from hearsay.certification.certifying import deployed_numbers, describe_deployed
from hearsay.certification.describing import SKIPPED, best_account, gradients_bounded
from hearsay.graphs import Graph
from hearsay.privacy.account import Assumption, most_messages
from hearsay.privacy.certificate import Certificate
from hearsay.privacy.certificate import show as show
from hearsay.privacy.description import REHEARSED, spending
from hearsay.problems.task import Task

if TYPE_CHECKING:
    from hearsay.deploy.deployment import Deployment

_NOISE = (
    Assumption(
        "enforced",
        "noise lies on a lattice and comes from the operating system's random numbers; rounding to"
        " it is counted",
    ),
    Assumption(
        "enforced",
        "what is heard is clipped to a bound that no honest agent exceeds; the rounding of float64"
        " is counted",
    ),
)
_UNCOUNTED = Assumption(
    "declared",
    "no bound on gradients is known, so the rounding of float64 inside them is not counted",
)
_LEDGER = (
    Assumption(
        "enforced",
        "a message is on disk before it leaves, and is only ever sent again as the same bytes",
    ),
    Assumption(
        "declared",
        "there is one ledger and no older copy of it and of its mark is ever run (neighbours are"
        " asked, but need not tell the truth)",
    ),
)
_KEYS = (
    Assumption(
        "enforced",
        "keys that agents share are made for this run, confirmed by both ends before any noise is"
        " added, and erased round by round",
    ),
    Assumption(
        "declared",
        "the authority behind the agents' certificates stands behind no second one in anybody's"
        " name: whoever holds that can share noise in the agent's place, and the agent counts as a"
        " colluder",
    ),
)
_RELAYED = (
    Assumption(
        "enforced",
        "what is passed on after a message (averaging) is a function of messages as they were sent"
        " and heard, and of public weights, never of the agent's state: it costs nothing, its"
        " rounding included, and the budget counts a round's one message",
    ),
)
_FOLLOWED = (
    Assumption(
        "declared",
        "messages wait for records, so that the time at which one is sent shows when records came:"
        " that is taken to say nothing about any one of them",
    ),
)
_REHEARSED = "NOT PRIVATE: this is a rehearsal, its noise comes from a seed"


def certificate(
    algorithm: Algorithm,
    problem: Task,
    graph: Graph,
    messages: int,
    delta: float | None,
    *,
    rehearsed: bool = False,
    followed: bool = False,
) -> Certificate:
    """Every agent's budget for so many messages. `followed`: records arrive meanwhile."""
    facts = (*((REHEARSED,) if rehearsed else _NOISE), *_LEDGER, *(SKIPPED if graph.lossy else ()))
    facts += _KEYS if algorithm.secrets is not None and not rehearsed else ()
    facts += _RELAYED if len(algorithm.relays(graph)) else ()
    facts += _FOLLOWED if followed else ()
    facts += () if gradients_bounded(problem) else (_UNCOUNTED,)
    found = deployed(algorithm, problem, graph, messages, delta, facts)
    warnings = (*found.warnings, *([_REHEARSED] if rehearsed else []))
    return replace(found, warnings=warnings, deployed=not rehearsed)


def curve(plan: Deployment, agent: int) -> np.ndarray:
    """What the agent has spent after each message: epsilon, or delta for ternary messages.

    Never less than the truth, never falling.
    """
    delta = plan.certificate.delta
    arguments = (plan.algorithm, plan.task, plan.graph, agent, plan.messages, delta)
    return spending(describe_deployed(*arguments), plan.messages, delta)


def numbers(plan: Deployment) -> int:
    """How many numbers with noise a run sends."""
    account, _ = best_account(
        plan.algorithm, plan.task, plan.graph, 0, plan.messages, plan.certificate.delta
    )
    return plan.messages * account.numbers


def sizes(found: Certificate) -> list[float]:
    """Per agent, what the whole run costs in the unit of `curve`: pure epsilon for Laplace noise,
    also where a target or a limit is about epsilon at delta (`AgentBudget.compared`).
    """
    return found.budgets.each(lambda b: b.epsilon if b.delta is None else b.delta)


def within(
    algorithm: Algorithm,
    problem: Task,
    graph: Graph,
    messages: int,
    budget: Sequence[float],
    delta: float | None,
) -> tuple[int, str]:
    """How many messages every agent can send within its budget (as `allowance` reads it), and who
    binds.
    """
    limits = allowance(algorithm, budget, delta)

    def affordable(messages: int) -> bool:
        found = deployed_numbers(algorithm, problem, graph, messages, delta)
        return all(each.compared <= limit for each, limit in zip(found, limits, strict=True))

    low = most_messages(affordable, messages)
    more = deployed_numbers(algorithm, problem, graph, low + 1, delta)
    spent = [each.compared for each in more]
    agent = int(np.argmax(np.array(spent) - np.array(limits)))
    most = limit_in_words(algorithm, limits[agent], delta)
    if low == 0:
        raise ValueError(
            f"nothing can be sent: agent {agent} may spend {most}, and its"
            f" first message costs {spent[agent]:.4g}"
        )
    return low, f"agent {agent} may spend {most}: message {low} would exceed it"
