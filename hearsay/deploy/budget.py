"""The certificate of a deployed run: that of the algorithm, with what the lattice costs and what may go wrong on a network taken in.

Noise on a lattice is not the ideal noise of the mathematics: rounding adds a little to the sensitivity (privacy/rounding.py), and it is counted here. Messages that may be
skipped change how fast an agent forgets: certify does that, from `Graph.lossy`. What a rehearsal spends is printed too, with the warning that it protects nobody.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from hearsay.base import Algorithm
from hearsay.certify import best_account, certify, spent_after
from hearsay.graphs import Graph
from hearsay.privacy import rounding
from hearsay.privacy.certificate import AgentBudget, Certificate
from hearsay.privacy.certificate import show as show
from hearsay.privacy.recursion import Account, Assumption, message_costs
from hearsay.problems.problem import Problem

if TYPE_CHECKING:
    from hearsay.deploy.plan import Plan

_EXACT = 2000  # converting a budget to epsilon takes a millisecond: longer runs convert every so many messages and round up in between

_LATTICE = Assumption(
    "enforced", "noise lies on a lattice and comes from the operating system's random numbers; rounding to the lattice is counted"
)
_LEDGER = Assumption("enforced", "a message is on disk before it leaves, and is only ever sent again as the same bytes")
_SKIP = (
    Assumption("enforced", "any neighbour may be left out in any round: the largest coefficient over all such cases is counted"),
    Assumption("declared", "which messages arrive in time does not depend on the records"),
)
_REHEARSED = "NOT PRIVATE: this is a rehearsal, its noise comes from a seed"


def certificate(
    algorithm: Algorithm, problem: Problem, graph: Graph, messages: int, delta: float | None, *, rehearsed: bool = False
) -> Certificate:
    """Every agent's budget for so many messages."""
    ideal = certify(algorithm, problem, graph, messages, delta=delta)
    facts = (*(() if rehearsed else (_LATTICE,)), _LEDGER, *(_SKIP if graph.lossy else ()))
    budgets = tuple(_deployed(b, algorithm, problem, graph, messages, delta, facts) for b in ideal.budgets)
    return replace(ideal, budgets=budgets, warnings=(*ideal.warnings, *([_REHEARSED] if rehearsed else [])))


def curve(plan: Plan, agent: int) -> np.ndarray:
    """What the agent has spent after each message: epsilon, or delta for ternary messages. Never less than the truth, never falling."""
    algorithm, per_message, delta = plan.algorithm, _numbers(plan.algorithm, plan.problem), plan.certificate.delta
    counts = np.arange(1, plan.messages + 1)
    ideal = spent_after(algorithm, plan.problem, plan.graph, counts.tolist(), agents=[agent])[:, 0]
    every = -(-plan.messages // _EXACT)
    marks = np.unique(np.append(counts[every - 1 :: every], plan.messages))
    spent = [_spent(algorithm, plan.problem, ideal[m - 1], int(m) * per_message, delta) for m in marks]
    return np.maximum.accumulate(np.array(spent))[np.searchsorted(marks, counts)]


def within(
    algorithm: Algorithm, problem: Problem, graph: Graph, messages: int, limits: Sequence[float], delta: float | None
) -> tuple[int, str]:
    """How many messages every agent can send within its limit, and who binds."""
    low, high = 0, messages + 1
    while high - low > 1:
        middle = (low + high) // 2
        spent = _shown(certificate(algorithm, problem, graph, middle, delta))
        low, high = (middle, high) if all(s <= limit for s, limit in zip(spent, limits, strict=True)) else (low, middle)
    spent = _shown(certificate(algorithm, problem, graph, low + 1, delta))
    agent = int(np.argmax(np.array(spent) - np.array(limits)))
    if low == 0:
        raise ValueError(f"nothing can be sent: agent {agent} may spend {limits[agent]:g}, and its first message costs {spent[agent]:.4g}")
    return low, f"agent {agent} may spend {limits[agent]:g}: message {low} would exceed it"


def _shown(found: Certificate) -> list[float]:
    """In the unit of `curve`: ternary messages spend delta."""
    return [budget.epsilon if budget.delta is None else budget.delta for budget in found.budgets]


def _numbers(algorithm: Algorithm, problem: Problem) -> int:
    """How many numbers with noise a message has."""
    return problem.dimension * len(algorithm.releases(0, (0.0, 0.0)))


def _spent(algorithm: Algorithm, problem: Problem, ideal: float, numbers: int, delta: float | None) -> float:
    if not math.isfinite(ideal):
        return math.inf
    if algorithm.mechanism == "laplace":
        return rounding.laplace(ideal, numbers)
    if algorithm.mechanism == "ternary":
        return rounding.ternary(ideal, numbers)
    assert delta is not None
    return rounding.gaussian_epsilon(_rho(algorithm, problem, ideal, numbers), delta, numbers)


def _rho(algorithm: Algorithm, problem: Problem, ideal: float, numbers: int) -> float:
    if algorithm.factors is not None:
        return rounding.factorized(ideal, algorithm.factors, problem.dimension)
    return rounding.gaussian(ideal, numbers)


def _deployed(
    ideal: AgentBudget, algorithm: Algorithm, problem: Problem, graph: Graph, messages: int, delta: Any, facts: tuple
) -> AgentBudget:
    numbers, facts = messages * _numbers(algorithm, problem), (*ideal.assumptions, *facts)
    if algorithm.mechanism == "gaussian":
        assert ideal.rho is not None
        if not math.isfinite(ideal.rho):
            return replace(ideal, assumptions=facts)
        rho = _rho(algorithm, problem, ideal.rho, numbers)
        return replace(ideal, rho=rho, epsilon=rounding.gaussian_epsilon(rho, delta, numbers), assumptions=facts)
    if algorithm.mechanism == "ternary":
        assert ideal.delta is not None
        own = min(1.0, rounding.ternary(ideal.delta, numbers))
        return replace(ideal, delta=own, epsilon=ideal.epsilon if own < 1 else math.inf, assumptions=facts)
    pure, at_delta = _spent(algorithm, problem, ideal.epsilon, numbers, delta), ideal.epsilon_at_delta
    if at_delta is not None:
        account, _ = best_account(algorithm, problem, graph, ideal.agent, messages)
        assert isinstance(account, Account)
        each = message_costs(account, messages)
        found = pure if each is None else rounding.laplace_epsilon(each, delta, _numbers(algorithm, problem))
        at_delta = min(pure, found)
    return replace(ideal, epsilon=pure, epsilon_at_delta=at_delta, assumptions=facts)
