"""What is used up message by message, in which unit, and how many messages fit a budget."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hearsay import _validate as require
from hearsay.base import Algorithm
from hearsay.certification.describing import account_spent, accounts, best_account
from hearsay.graphs import Graph
from hearsay.privacy.account import most_messages
from hearsay.problems.task import Task, public


def spent_after(
    algorithm: Algorithm,
    problem: Task,
    graph: Graph,
    messages: Sequence[int],
    agents: Sequence[int] | None = None,
) -> np.ndarray:
    """Budget used after those numbers of messages, shape (len(messages), agents):
    pure epsilon for Laplace noise, rho for Gaussian noise, delta for ternary messages.
    """
    problem = public(problem)
    wanted, curves = require.each(require.natural)("messages", messages), []
    for agent in (
        range(graph.agents) if agents is None else require.each(require.natural)("agents", agents)
    ):
        options = [
            account_spent(account, wanted) for account in accounts(algorithm, problem, graph, agent)
        ]
        # Each bound holds for the whole run, so the smaller of them holds at every step.
        curves.append(
            np.minimum.reduce([np.nan_to_num(o, nan=np.inf, posinf=np.inf) for o in options])
        )
    return np.stack(curves, axis=1)


def unit(algorithm: Algorithm) -> str:
    """What a budget is counted in: "epsilon", or "delta" for ternary messages,
    whose epsilon is 0 while their delta is below 1 and infinite from there on.
    """
    return algorithm.law.unit


def as_epsilon(algorithm: Algorithm, spent: np.ndarray, delta: float | None) -> np.ndarray:
    """`spent_after` in the unit that people read (`unit`): epsilon, at delta for Gaussian noise;
    delta itself for ternary messages.
    """
    return algorithm.law.epsilons(spent, delta)


def allowance(algorithm: Algorithm, budget: Sequence[float], delta: float | None) -> list[float]:
    """What every agent may spend, in the algorithm's `unit`, so that its certificate is within its
    budget: an epsilon, at delta for Gaussian noise.

    Ternary messages keep to every epsilon as long as their delta stays below 1. How much of it may
    be used up is for the user to say, so `delta` must be given, and no agent's own may exceed it.
    """
    limits = list(require.each(require.positive)("budget", budget))
    delta = require.optional(require.fraction)("delta", delta)
    return [algorithm.law.allowance(limit, delta) for limit in limits]


def messages_within(
    algorithm: Algorithm,
    problem: Task,
    graph: Graph,
    horizon: int,
    budget: float | Sequence[float],
    delta: float | None = None,
) -> tuple[int, int]:
    """(how many messages every agent can send within its `allowance`, the agent that binds)."""
    problem = public(problem)
    horizon = require.natural("horizon", horizon)
    delta = require.optional(require.fraction)("delta", delta)
    within = allowance(algorithm, require.per_agent("budget", budget, graph.agents), delta)
    each = {limit: algorithm.law.number(limit, delta) for limit in set(within)}
    limits = np.array([each[limit] for limit in within], dtype=float)

    def affordable(messages: int) -> bool:
        return bool(np.all(spent_after(algorithm, problem, graph, [messages])[0] <= limits))

    low = most_messages(affordable, horizon)
    # A certificate sums in another order: where the two differ in their last digits, it is the
    # certificate that must be within the budget.
    while low and np.any(_certified(algorithm, problem, graph, low) > limits):
        low -= 1
    if low == horizon:
        return horizon, 0
    over = np.maximum(
        spent_after(algorithm, problem, graph, [low + 1])[0],
        _certified(algorithm, problem, graph, low + 1),
    )
    return low, int(np.argmax(over > limits))


def _certified(algorithm: Algorithm, problem: Task, graph: Graph, messages: int) -> np.ndarray:
    """What the certificate of so many messages says of every agent, in the accounts' own unit."""
    return np.array(
        [best_account(algorithm, problem, graph, i, messages)[1].value for i in range(graph.agents)]
    )
