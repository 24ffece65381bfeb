"""What is used up message by message, in which unit, and how many messages fit a budget."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from hearsay import _validate as require
from hearsay.base import Algorithm
from hearsay.certification.describing import (
    account_cost,
    account_epsilon,
    account_spent,
    accounts,
    amplified,
    best_account,
)
from hearsay.certification.kinds import Kinds, kinds
from hearsay.graphs import Graph
from hearsay.privacy.account import Account, most_messages
from hearsay.problems.task import Task, public


def spent_after(
    algorithm: Algorithm,
    problem: Task,
    graph: Graph,
    messages: Sequence[int],
    agents: Sequence[int] | None = None,
) -> np.ndarray:
    """Budget used after those numbers of messages whichever batches are drawn, shape
    (len(messages), agents): pure epsilon for Laplace noise, rho for Gaussian noise, delta for
    ternary messages.
    """
    problem = public(problem)
    wanted = require.each(require.natural)("messages", messages)
    found = kinds(algorithm, problem, graph)
    given = range(graph.agents) if agents is None else agents
    every = require.each(require.natural)("agents", given)
    if every and max(every) >= graph.agents:
        require.fail("agents", f"below the {graph.agents} agents of the graph", max(every))
    asked = found.kind[list(every)]
    # Kinds that nobody asks about are left out.
    used, place = np.unique(asked, return_inverse=True)
    curves = [
        _spent(algorithm, problem, graph, found.first[kind], wanted) for kind in used.tolist()
    ]
    return np.stack(curves, axis=1)[:, place.ravel()]


def _spent(
    algorithm: Algorithm, problem: Task, graph: Graph, agent: int, messages: tuple[int, ...]
) -> np.ndarray:
    known = accounts(algorithm, problem, graph, agent)
    options = [account_spent(account, messages) for account in known]
    # Each bound holds for the whole run, so the smaller of them holds at every step.
    return np.minimum.reduce([np.nan_to_num(o, nan=np.inf, posinf=np.inf) for o in options])


def unit(algorithm: Algorithm) -> str:
    """What a budget is counted in: "epsilon", or "delta" for ternary messages,
    whose epsilon is 0 while their delta is below 1 and infinite from there on.
    """
    return algorithm.law.unit


def epsilon_after(
    algorithm: Algorithm,
    problem: Task,
    graph: Graph,
    messages: Sequence[int],
    delta: float | None = None,
) -> np.ndarray:
    """Budget used after those numbers of messages as people read it (`unit`), shape
    (len(messages), agents): epsilon, at delta for Gaussian noise; delta for ternary messages.
    """
    spent, found = epsilon_by_kind(algorithm, problem, graph, messages, delta)
    return found.each(spent)


def epsilon_by_kind(
    algorithm: Algorithm,
    problem: Task,
    graph: Graph,
    messages: Sequence[int],
    delta: float | None = None,
) -> tuple[np.ndarray, Kinds]:
    """The same by kind of agents, (len(messages), kinds), and the kinds."""
    problem = public(problem)
    wanted = require.each(require.natural)("messages", messages)
    delta = require.optional(require.fraction)("delta", delta)
    found = kinds(algorithm, problem, graph)
    curves = [_spent(algorithm, problem, graph, agent, wanted) for agent in found.first]
    spent = algorithm.law.epsilons(np.stack(curves, axis=1), delta)
    for kind, agent in enumerate(found.first):
        for account in amplified(algorithm, problem, graph, agent):
            less = account.readable(account_spent(account, wanted, delta), delta)
            spent[:, kind] = np.minimum(spent[:, kind], less)
    return spent, found


def allowance(algorithm: Algorithm, budget: Sequence[float], delta: float | None) -> list[float]:
    """What every agent may spend, in the algorithm's `unit`, so that its certificate is within its
    budget: an epsilon, at delta where one is given.

    Ternary messages keep to every epsilon as long as their delta stays below 1. How much of it may
    be used up is for the user to say, so `delta` must be given, and no agent's own may exceed it.
    """
    limits = list(require.each(require.positive)("budget", budget))
    delta = require.optional(require.fraction)("delta", delta)
    known = {limit: algorithm.law.allowance(limit, delta) for limit in set(limits)}
    return [known[limit] for limit in limits]


def limit_in_words(algorithm: Algorithm, limit: float, delta: float | None) -> str:
    """What an agent may spend: an `allowance`, with the delta that tells it from a pure epsilon."""
    delta = require.optional(require.fraction)("delta", delta)
    at = f" at delta = {delta:g}" if delta is not None and algorithm.law.composes else ""
    return f"{unit(algorithm)} = {require.positive('limit', limit):g}{at}"


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
    found = kinds(algorithm, problem, graph).split(within)
    proofs = [
        (*accounts(algorithm, problem, graph, i), *amplified(algorithm, problem, graph, i))
        for i in found.first
    ]
    limits = [
        [_within(one, within[agent], delta) for one in known]
        for agent, known in zip(found.first, proofs, strict=True)
    ]

    def over(messages: int, certified: bool) -> np.ndarray:
        """Which kinds would have spent too much, by every proof there is."""
        much = list[bool]()
        for known, most in zip(proofs, limits, strict=True):
            each = (
                account_cost(a, messages, delta).value
                if certified
                else float(account_spent(a, (messages,), delta)[0])
                for a in known
            )
            much.append(not any(e <= limit for e, limit in zip(each, most, strict=True)))
        if delta is not None and algorithm.law.composes:
            # Pure epsilon is too much; the certificate's epsilon at delta may not be.
            for kind in np.flatnonzero(much).tolist():
                agent = found.first[kind]
                best, _ = best_account(algorithm, problem, graph, agent, messages, delta)
                much[kind] = not account_epsilon(best, messages, delta) <= within[agent]
        return np.array(much)

    low = most_messages(lambda messages: not over(messages, False).any(), horizon)
    # A certificate sums in another order: where the two differ in their last digits, it is the
    # certificate that must be within the budget.
    while low and over(low, True).any():
        low -= 1
    if low == horizon:
        return horizon, 0
    # Kinds are in the order of their first agents.
    return low, found.first[int(np.argmax(over(low + 1, False) | over(low + 1, True)))]


@lru_cache(maxsize=4096)
def _within(account: Account, limit: float, delta: float | None) -> float:
    return account.within(limit, delta)
