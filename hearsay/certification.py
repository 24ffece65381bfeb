"""Certificates for an algorithm on a problem and a graph: before anything is sent,
and step by step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from hearsay import _validate as require
from hearsay.base import Algorithm
from hearsay.graphs import Graph
from hearsay.mechanisms import convert
from hearsay.privacy.calibrate import as_horizon, cost, noise_factor, rho_for
from hearsay.privacy.certificate import AgentBudget, Certificate
from hearsay.privacy.horizon import Bound
from hearsay.privacy.one_mechanism import OneMechanism
from hearsay.privacy.participation import Every
from hearsay.privacy.recursion import Account, message_costs, prices, spent, spent_at
from hearsay.problems.task import Task, public

_cost = lru_cache(maxsize=4096)(cost)


@lru_cache(maxsize=1024)
def account_spent(account: Account | OneMechanism, messages: tuple[int, ...]) -> np.ndarray:
    """Budget used after those numbers of messages, in the account's own unit."""
    if isinstance(account, OneMechanism):
        return np.append(0.0, account.spent(max(messages, default=0)))[
            np.asarray(messages, dtype=int)
        ]
    return spent_at(account, messages)


def certify(
    algorithm: Algorithm,
    problem: Task,
    graph: Graph,
    horizon: float,
    *,
    delta: float | None = None,
) -> Certificate:
    """The budget of every agent for the messages 0 .. horizon-1, or for ever with horizon = inf.

    Over a finite horizon the agents' actual records count; over an infinite one the stream is taken
    to go on (a declared assumption). `delta` adds the (usually much smaller) epsilon at that delta
    for Laplace noise, and is needed for Gaussian noise.
    """
    require.instance(
        "algorithm", algorithm, Algorithm, "an algorithm such as hearsay.ldp_online(...)"
    )
    problem = public(problem)
    algorithm.check(graph, problem)
    horizon = as_horizon(horizon)
    delta = require.optional(require.fraction)("delta", delta)
    if algorithm.mechanism == "gaussian":
        delta = _required(delta)
    budgets, warnings = [], []
    for agent in range(graph.agents):
        account, found = best_account(algorithm, problem, graph, agent, horizon)
        budgets.append(_budget(algorithm, problem, graph, agent, account, found, horizon, delta))
        warnings += _explosion(account, horizon)
    if problem.frozen and algorithm.gradient_at_state:
        warnings.append(_FROZEN)
    if not math.isinf(horizon):
        warnings += _dry(algorithm, problem, int(horizon))
    if math.isinf(horizon) and algorithm.sampling.grows and np.isfinite(problem.counts).all():
        warnings.append(_ends(algorithm, problem))
    return Certificate(
        algorithm.name,
        horizon,
        algorithm.mechanism,
        tuple(budgets),
        delta,
        tuple(dict.fromkeys(warnings)),
    )


def calibrate(
    algorithm: Algorithm,
    problem: Task,
    graph: Graph,
    horizon: float,
    epsilon: float | Sequence[float],
    *,
    delta: float | None = None,
) -> Algorithm:
    """The same algorithm with every agent's noise scaled so that its budget is at most its
    `epsilon` (one number, or one per agent).
    """
    problem = public(problem)
    algorithm.check(graph, problem)
    horizon = as_horizon(horizon)
    targets = require.per_agent("epsilon", epsilon, graph.agents)
    delta = require.optional(require.fraction)("delta", delta)
    factors = []
    for agent, target in enumerate(targets):
        account, _ = best_account(algorithm, problem, graph, agent, horizon)
        factors.append(noise_factor(account, target, horizon, delta))
    return algorithm.with_noise(factors)


class Planned(NamedTuple):
    """What runs planned for different horizons cost: the largest epsilon over agents of a run
    planned for K steps, K = horizons.
    """

    horizons: np.ndarray
    epsilon: np.ndarray

    @property
    def peak(self) -> int:
        """The planned horizon that costs most."""
        return int(self.horizons[int(np.argmax(self.epsilon))])

    @property
    def slope(self) -> float:
        """d log epsilon / d log K at the long end: below 0 the budget vanishes as longer runs are
        planned, above 0 it grows without bound.
        """
        (k0, k1), (e0, e1) = self.horizons[-2:], self.epsilon[-2:]
        return float(np.log(e1 / e0) / np.log(k1 / k0))

    @property
    def limit(self) -> float:
        """Where that slope leads."""
        return 0.0 if self.slope < 0 else math.inf if self.slope > 0 else float(self.epsilon[-1])


def planned(
    make: Callable[[int], Algorithm],
    problem: Task,
    graph: Graph,
    horizons: Sequence[int],
    *,
    delta: float | None = None,
) -> Planned:
    """The budget as a function of the planned horizon, for schemes whose steps,
    sample sizes and noise depend on it (paper P2, Remark 22).
    """
    problem = public(problem)
    lengths = list(require.each(require.count)("horizons", horizons))
    if len(lengths) < 2 or sorted(set(lengths)) != lengths:
        require.fail("horizons", "two or more increasing numbers", lengths)
    costs = [max(certify(make(h), problem, graph, h, delta=delta).epsilon) for h in lengths]
    return Planned(np.array(lengths), np.array(costs))


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
            account_spent(account, wanted) for account in algorithm.accounts(graph, agent, problem)
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
    return "delta" if algorithm.mechanism == "ternary" else "epsilon"


def as_epsilon(algorithm: Algorithm, spent: np.ndarray, delta: float | None) -> np.ndarray:
    """`spent_after` in the unit that people read (`unit`): epsilon, at delta for Gaussian noise;
    delta itself for ternary messages.
    """
    if algorithm.mechanism != "gaussian":
        return spent
    delta = _required(delta)
    distinct, where = np.unique(spent, return_inverse=True)
    return np.array([convert.gaussian_epsilon(float(rho), delta) for rho in distinct])[
        where
    ].reshape(spent.shape)


def allowance(algorithm: Algorithm, budget: Sequence[float], delta: float | None) -> list[float]:
    """What every agent may spend, in the algorithm's `unit`, so that its certificate is within its
    budget: an epsilon, at delta for Gaussian noise.

    Ternary messages keep to every epsilon as long as their delta stays below 1. How much of it may
    be used up is for the user to say, so `delta` must be given, and no agent's own may exceed it.
    """
    limits, delta = (
        list(require.each(require.positive)("budget", budget)),
        require.optional(require.fraction)("delta", delta),
    )
    if algorithm.mechanism == "laplace":
        return limits
    delta = _required(delta, algorithm.mechanism)
    return [delta] * len(limits) if algorithm.mechanism == "ternary" else limits


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
    horizon, delta = (
        require.natural("horizon", horizon),
        require.optional(require.fraction)("delta", delta),
    )
    within = allowance(algorithm, require.per_agent("budget", budget, graph.agents), delta)
    limits = np.array(within, dtype=float)
    if algorithm.mechanism == "gaussian":
        each = {limit: rho_for(limit, _required(delta)) for limit in set(within)}
        limits = np.array([each[limit] for limit in within])
    # What is spent never falls with the number of messages: look for the last one that every
    # agent can afford.
    low, high = 0, horizon + 1
    while high - low > 1:
        middle = (low + high) // 2
        affordable = bool(np.all(spent_after(algorithm, problem, graph, [middle])[0] <= limits))
        low, high = (middle, high) if affordable else (low, middle)
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


def _required(delta: float | None, mechanism: str = "gaussian") -> float:
    if delta is None and mechanism == "ternary":
        raise ValueError(
            "delta must be given for a budget of ternary messages: it is what they spend, at"
            " epsilon = 0"
        )
    if delta is None:
        raise ValueError("delta must be given for Gaussian noise: it has no pure epsilon")
    return require.fraction("delta", delta)


def best_account(
    algorithm: Algorithm, problem: Task, graph: Graph, agent: int, horizon: float
) -> tuple[Account | OneMechanism, Bound]:
    """The account with the smallest bound, and that bound."""
    problem = public(problem)
    agent, horizon = require.natural("agent", agent), as_horizon(horizon)
    if agent >= graph.agents:
        require.fail("agent", f"below the {graph.agents} agents of the graph", agent)
    accounts = algorithm.accounts(graph, agent, problem, endless=math.isinf(horizon))
    return min(((a, _cost(a, horizon)) for a in accounts), key=lambda pair: pair[1].value)


def _budget(
    algorithm: Algorithm,
    problem: Task,
    graph: Graph,
    agent: int,
    account: Account | OneMechanism,
    found: Bound,
    horizon: float,
    delta: float | None,
) -> AgentBudget:
    epsilon, rho, at_delta, own = found.value, None, None, None
    if algorithm.mechanism == "gaussian":
        rho, epsilon = found.value, convert.gaussian_epsilon(found.value, _required(delta))
    elif algorithm.mechanism == "ternary":
        own = min(1.0, found.value)
        epsilon = 0.0 if own < 1 else math.inf
    elif delta is not None and math.isfinite(found.value):
        assert isinstance(account, Account)
        at_delta = _laplace_at_delta(account, found, horizon, delta)
    unbounded = math.isinf(horizon) or math.isinf(problem.change)
    paper = (
        None if unbounded else algorithm.paper_epsilon(graph, agent, problem, int(horizon), delta)
    )
    return AgentBudget(
        agent,
        float(epsilon),
        account.basis,
        str(account.pattern),
        _dominates(account, found, horizon),
        paper,
        at_delta,
        rho,
        found.reason
        or ("" if own is None or own < 1 else "delta reaches 1: messages tell everything"),
        account.assumptions,
        own,
    )


@lru_cache(maxsize=4096)
def _laplace_at_delta(account: Account, found: Bound, horizon: float, delta: float) -> float:
    """epsilon at delta.

    Over an infinite horizon the messages from N on cost at most `tail` of pure epsilon together
    (the certified total less what the first N cost), and composing an (epsilon, delta) mechanism
    with a pure one adds their epsilons and leaves delta as it is.
    """
    steps = found.summed_to if math.isinf(horizon) else int(horizon)
    # Over an infinite horizon the table below holds only what is spent by step N; for a pattern
    # that may start later that proves nothing.
    if steps == 0 or (math.isinf(horizon) and not isinstance(account.pattern, Every)):
        return found.value
    each = message_costs(account, steps)
    if each is None:
        return found.value
    tail = max(0.0, found.value - float(each.sum(axis=1).max())) if math.isinf(horizon) else 0.0
    return min(found.value, convert.laplace_epsilon(each, delta) + tail)


def _dominates(account: Account | OneMechanism, found: Bound, horizon: float) -> str:
    """What the budget is spent on: which use of a record is dearest,
    or which messages tell most.
    """
    if not math.isfinite(found.value) or found.value == 0:
        return ""
    if isinstance(account, OneMechanism):
        return f"one mechanism for all {account.rounds:,} rounds"
    steps = found.summed_to if math.isinf(horizon) else int(horizon)
    if account.mechanism == "gaussian":
        curve = spent(account, steps)
        half = int(np.searchsorted(curve, 0.5 * curve[-1]))
        return (
            f"half is spent by message {half:,}; dearest message"
            f" {int(np.argmax(np.diff(curve, prepend=0.0))):,}"
        )
    w = prices(account, steps)
    top = int(np.argmax(w))
    text = f"step {top} (price {w[top]:.3g})"
    if isinstance(account.pattern, Every):
        needed = int(np.searchsorted(np.cumsum(np.sort(w)[::-1]), 0.5 * w.sum())) + 1
        text = f"half of it pays for a record's use at {needed} of {len(w):,} steps; dearest {text}"
    return text


_FROZEN = (
    "NOT a guarantee for records: it takes all other gradients to be the same in both runs (paper"
    " P3's adjacency), while this algorithm takes them at states that the record has moved; give"
    " the problem a feature_bound instead of frozen for one that is"
)


def _dry(algorithm: Algorithm, problem: Task, messages: int) -> list[str]:
    last = min(algorithm.sampling.lasts(held, problem.arrivals) for held in problem.counts.tolist())
    return (
        [f"the shortest stream serves {last} steps: a run ends there, before message {messages}"]
        if last < messages
        else []
    )


def _ends(algorithm: Algorithm, problem: Task) -> str:
    """An infinite horizon on a data set that ends is a statement about another, longer data set:
    say so where it cannot be missed.
    """
    fewest, most = int(problem.counts.min()), int(problem.counts.max())
    last = algorithm.sampling.lasts(fewest, problem.arrivals)
    # A history goes on when nothing new arrives, but its weights no longer fall.
    if math.isinf(last):
        last = max(0, fewest - problem.arrivals.head_start) // problem.arrivals.per_step
    return (
        f"these agents hold {fewest} to {most} records, which last for {last} steps: a longer run"
        " on these very records is not covered by this number; certify its number of messages"
        " instead"
    )


def _explosion(account: Account | OneMechanism, horizon: float) -> list[str]:
    """Trap (c) of the mathematics: a step so large that two states are thrown apart instead
    of pulled together.
    """
    if isinstance(account, OneMechanism):
        return []
    rec = account.recursion
    k = np.arange(max(1, int(min(2000, horizon))))
    factor = rec.contraction(k)
    if factor[0] <= 1 + 1e-9 or not 0 < rec.curvature[1] < math.inf:
        return []
    bad = int(np.argmax(factor <= 1)) if np.any(factor <= 1) else len(k)
    limit = (2 - float(rec.leak(0))) / rec.curvature[1]
    return [
        f"{'the first step spreads' if bad == 1 else f'the first {bad} steps spread'} two states"
        f" apart (factor up to {factor.max():.3g}); a first step size of at most {limit:.3g}"
        " would not"
    ]
