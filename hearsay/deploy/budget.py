"""The certificate of a deployed run: that of the algorithm, with what the lattice and the
arithmetic cost and what may go wrong on a network taken in.

Noise on a lattice is not the ideal noise of the mathematics, and float64 is not the real numbers:
rounding to the lattice (mechanisms/rounding.py) and the rounding of every update (arithmetic.py)
add a little to the sensitivity, and both are counted here. Messages that may be skipped change how
fast an agent forgets: certify does that, from `Graph.lossy`. What a rehearsal spends is printed
too, with the warning that it protects nobody.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from hearsay.base import Algorithm
from hearsay.certification import account_spent, allowance, best_account, certify, unit
from hearsay.deploy import arithmetic
from hearsay.graphs import Graph
from hearsay.mechanisms import rounding
from hearsay.privacy.certificate import AgentBudget, Certificate
from hearsay.privacy.certificate import show as show
from hearsay.privacy.one_mechanism import OneMechanism
from hearsay.privacy.recursion import Account, Assumption, message_costs
from hearsay.problems.task import Task

if TYPE_CHECKING:
    from hearsay.deploy.plan import Plan

# Converting a budget to epsilon takes a millisecond: longer runs convert every so many messages and
# round up in between.
_EXACT = 2000

_NOISE = (
    Assumption(
        "enforced",
        "noise lies on a lattice and comes from the operating system's random numbers; rounding to"
        " it is counted",
    ),
    Assumption(
        "enforced",
        "what is heard is clipped to a bound that no honest agent passes; the rounding of float64"
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
_SKIP = (
    Assumption(
        "enforced",
        "any neighbour may be left out in any round: the largest coefficient over all such cases is"
        " counted",
    ),
    Assumption("declared", "which messages arrive in time does not depend on the records"),
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
) -> Certificate:
    """Every agent's budget for so many messages."""
    ideal = certify(algorithm, problem, graph, messages, delta=delta)
    facts = (*(() if rehearsed else _NOISE), *_LEDGER, *(_SKIP if graph.lossy else ()))
    facts += () if arithmetic.bounded(problem) else (_UNCOUNTED,)
    spending = _Spending(algorithm, problem, graph, messages, delta)
    budgets = tuple(
        replace(spending.deployed(b), assumptions=(*b.assumptions, *facts)) for b in ideal.budgets
    )
    warnings = (*ideal.warnings, *([_REHEARSED] if rehearsed else []))
    return replace(ideal, budgets=budgets, warnings=warnings, deployed=not rehearsed)


def curve(plan: Plan, agent: int) -> np.ndarray:
    """What the agent has spent after each message: epsilon, or delta for ternary messages.

    Never less than the truth, never falling.
    """
    return _Spending(
        plan.algorithm, plan.task, plan.graph, plan.messages, plan.certificate.delta
    ).curve(agent)


def numbers(plan: Plan) -> int:
    """How many numbers with noise a run sends."""
    return (
        plan.messages
        * _Spending(plan.algorithm, plan.task, plan.graph, plan.messages, None).numbers
    )


def sizes(found: Certificate) -> list[float]:
    """Per agent, the number that a target or a limit is about, in the unit of `curve`."""
    return [b.epsilon if b.delta is None else b.delta for b in found.budgets]


def within(
    algorithm: Algorithm,
    problem: Task,
    graph: Graph,
    messages: int,
    budget: Sequence[float],
    delta: float | None,
) -> tuple[int, str]:
    """How many messages every agent can send within its budget (as certify.allowance reads it),
    and who binds.
    """
    limits, what = allowance(algorithm, budget, delta), unit(algorithm)
    low, high = 0, messages + 1
    while high - low > 1:
        middle = (low + high) // 2
        spent = sizes(certificate(algorithm, problem, graph, middle, delta))
        low, high = (
            (middle, high)
            if all(s <= limit for s, limit in zip(spent, limits, strict=True))
            else (low, middle)
        )
    spent = sizes(certificate(algorithm, problem, graph, low + 1, delta))
    agent = int(np.argmax(np.array(spent) - np.array(limits)))
    if low == 0:
        raise ValueError(
            f"nothing can be sent: agent {agent} may spend {what} = {limits[agent]:g}, and its"
            f" first message costs {spent[agent]:.4g}"
        )
    return low, f"agent {agent} may spend {what} = {limits[agent]:g}: message {low} would exceed it"


class _Spending:
    """From ideal budgets to those of a deployed run of so many messages."""

    def __init__(
        self,
        algorithm: Algorithm,
        problem: Task,
        graph: Graph,
        messages: int,
        delta: float | None,
    ) -> None:
        self.algorithm, self.problem, self.graph, self.messages, self.delta = (
            algorithm,
            problem,
            graph,
            messages,
            delta,
        )
        # How many numbers with noise a message has.
        self.numbers = problem.dimension * len(algorithm.releases(0, (0.0, 0.0)))

    def account(self, agent: int) -> tuple[Account | OneMechanism, np.ndarray]:
        """What this agent's budget is computed from, and what arithmetic adds to each message's
        shift over the scale of its noise.
        """
        account, _ = best_account(self.algorithm, self.problem, self.graph, agent, self.messages)
        if isinstance(account, OneMechanism) or account.void:
            return account, np.zeros(self.messages)
        found = arithmetic.extra(
            self.algorithm, self.problem, self.graph, agent, account, self.messages
        )
        return account, np.nan_to_num(found, nan=math.inf)

    def curve(self, agent: int) -> np.ndarray:
        account, more = self.account(agent)
        counts = np.arange(1, self.messages + 1)
        ideal = account_spent(account, tuple(counts.tolist()))
        total = (
            np.sqrt(np.cumsum(more**2))
            if self.algorithm.mechanism == "gaussian"
            else np.cumsum(more)
        )
        every = -(-self.messages // _EXACT)
        marks = np.unique(np.append(counts[every - 1 :: every], self.messages))
        spent = [self.spent(agent, float(ideal[m - 1]), float(total[m - 1]), int(m)) for m in marks]
        return np.maximum.accumulate(np.array(spent))[np.searchsorted(marks, counts)]

    def spent(self, agent: int, ideal: float, more: float, messages: int) -> float:
        """After so many messages, in the unit of the budget."""
        numbers = messages * self.numbers
        if not (math.isfinite(ideal) and math.isfinite(more)):
            return math.inf
        if self.algorithm.mechanism == "laplace":
            return rounding.laplace(ideal + more, numbers)
        if self.algorithm.mechanism == "ternary":
            return rounding.ternary(ideal + more, numbers)
        assert self.delta is not None
        return rounding.gaussian_epsilon(self.rho(agent, ideal, more, numbers), self.delta, numbers)

    def rho(self, agent: int, ideal: float, more: float, numbers: int) -> float:
        if self.algorithm.factors is not None:
            moved = arithmetic.factorized(self.algorithm, self.problem, agent, ideal)
            return rounding.factorized(moved, self.algorithm.factors, self.problem.dimension)
        return rounding.gaussian((math.sqrt(2 * ideal) + more) ** 2 / 2, numbers)

    def deployed(self, ideal: AgentBudget) -> AgentBudget:
        if self.messages == 0 or ideal.reason or not math.isfinite(ideal.epsilon):
            return ideal
        agent, mechanism = ideal.agent, self.algorithm.mechanism
        account, more = self.account(agent)
        if mechanism == "gaussian":
            assert ideal.rho is not None
            total = float(np.sqrt(np.sum(more**2)))
            rho = (
                self.rho(agent, ideal.rho, total, self.messages * self.numbers)
                if math.isfinite(total)
                else math.inf
            )
            return replace(
                ideal, rho=rho, epsilon=self.spent(agent, ideal.rho, total, self.messages)
            )
        total = float(np.sum(more))
        if mechanism == "ternary":
            assert ideal.delta is not None
            own = min(1.0, self.spent(agent, ideal.delta, total, self.messages))
            return replace(ideal, delta=own, epsilon=ideal.epsilon if own < 1 else math.inf)
        pure, at_delta = (
            self.spent(agent, ideal.epsilon, total, self.messages),
            ideal.epsilon_at_delta,
        )
        if at_delta is not None:
            assert isinstance(account, Account) and self.delta is not None
            each = message_costs(account, self.messages)
            found = (
                pure
                if each is None
                else rounding.laplace_epsilon(each + more[None, :], self.delta, self.numbers)
            )
            at_delta = min(pure, found)
        return replace(ideal, epsilon=pure, epsilon_at_delta=at_delta)
