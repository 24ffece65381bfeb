"""Certificates for an algorithm on a problem and a graph, before anything is sent, ideal and
deployed; and the noise that meets a budget.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from hearsay import _validate as require
from hearsay.base import Algorithm
from hearsay.certification.colluding import curve, least_noise, on_a_lattice
from hearsay.certification.describing import (
    SKIPPED,
    account_cost,
    amplified,
    best_account,
    describe,
    message_bound,
    rounded,
)
from hearsay.certification.kinds import Kinds, kinds
from hearsay.graphs import Graph
from hearsay.privacy.account import Account, Assumption, Bound, Numbers
from hearsay.privacy.adjacency import REPLACE
from hearsay.privacy.budgets import AgentBudget, Budgets
from hearsay.privacy.certificate import Certificate
from hearsay.privacy.description import Description, numbers
from hearsay.problems.task import Task, public


@require.known_arguments
def certify(
    algorithm: Algorithm,
    problem: Task,
    graph: Graph,
    horizon: float,
    *,
    delta: float | None = None,
    adjacency: str | None = None,
    colluders: int | None = None,
) -> Certificate:
    """The budget of every agent for the messages 0 .. horizon-1, or without end with horizon = inf.

    Over a finite horizon the agents' actual records count; over an infinite one the stream is taken
    to go on (a declared assumption).

    Args:
      algorithm: what the agents run, with its noise.
      problem: what they learn.
      graph: who hears whom.
      horizon: the number of messages, or math.inf.
      delta: adds the (usually much smaller) epsilon at that delta for Laplace noise, and is needed
        for Gaussian noise.
      adjacency: "replace" or "zero-out" instead of the problem's own.
      colluders: state epsilons against so many of the other agents, instead of the number that the
        algorithm's secrets are planned for (`AgentBudget.curve` has them all).

    Example:
      >>> import hearsay as hs
      >>> task, graph = hs.problems.ridge(agents=2, records=50).task, hs.graphs.ring(2)
      >>> certificate = hs.certify(hs.ldp_online(noise=60.0), task, graph, 20)
      >>> certificate.finite, len(certificate.epsilon)
      (True, 2)
    """
    require.instance(
        "algorithm", algorithm, Algorithm, "an algorithm such as hearsay.ldp_online(...)"
    )
    problem = public(problem)
    problem = problem if adjacency is None else problem.under(adjacency)
    # Secrets must be worth something as planned; what they are worth against others is stated.
    algorithm.check(graph, problem)
    algorithm = algorithm if colluders is None else algorithm.facing(colluders, graph.agents)
    horizon = require.horizon("horizon", horizon)
    delta = _checked_delta(algorithm, delta)
    found = kinds(algorithm, problem, graph)
    described = [
        describe(algorithm, problem, graph, agent, horizon, delta) for agent in found.first
    ]
    if graph.lossy:
        described = [(replace(d, further=(*d.further, *SKIPPED)), b) for d, b in described]
    return _certificate(algorithm, problem, graph, horizon, delta, found, described)


def deployed(
    algorithm: Algorithm,
    problem: Task,
    graph: Graph,
    messages: int,
    delta: float | None,
    further: Sequence[Assumption] = (),
) -> Certificate:
    """The same for agents as processes: what the lattice of the noise and the rounding of float64
    cost is taken in.

    Args:
      messages: how many each agent sends.
      delta: as for `certify`.
      further: what the deployment rests on beside the algorithm and the problem.
    """
    problem = public(problem)
    messages, delta = _checked(algorithm, messages, delta)
    further = (*on_a_lattice(algorithm, graph.agents), *further)
    found, plain = _deployed(algorithm, problem, graph, messages, delta)
    described = [(replace(one, further=(*one.further, *further)), cost) for one, cost in plain]
    return _certificate(algorithm, problem, graph, messages, delta, found, described)


def deployed_numbers(
    algorithm: Algorithm, problem: Task, graph: Graph, messages: int, delta: float | None
) -> list[Numbers]:
    """What such a certificate would say of every agent, for who looks for messages or noise that
    meet a budget.
    """
    messages, delta = _checked(algorithm, messages, delta)
    found, described = _deployed(algorithm, public(problem), graph, messages, delta)
    each = [numbers(description, messages, delta) for description, _ in described]
    return [each[kind] for kind in found.kind.tolist()]


def _deployed(
    algorithm: Algorithm, problem: Task, graph: Graph, messages: int, delta: float | None
) -> tuple[Kinds, list[tuple[Description, Bound]]]:
    """The kinds of agents, and what the budget of each follows from."""
    algorithm.check(graph, problem)
    described, runs = [], 0 < messages < math.inf
    heard = message_bound(algorithm, problem, graph, messages) if runs else 0.0
    found = kinds(algorithm, problem, graph, deployed=True)
    for agent in found.first:
        plain, cost = describe(algorithm, problem, graph, agent, messages, delta)
        float64 = rounded(algorithm, problem, graph, agent, heard) if runs else None
        described.append((replace(plain, float64=float64), cost))
    return found, described


def describe_deployed(
    algorithm: Algorithm,
    problem: Task,
    graph: Graph,
    agent: int,
    messages: int,
    delta: float | None = None,
) -> Description:
    """What one agent's budget in a deployed run follows from."""
    problem = public(problem)
    messages = require.count("messages", messages)
    delta = require.optional(require.fraction)("delta", delta)
    plain, _ = describe(algorithm, problem, graph, agent, messages, delta)
    heard = message_bound(algorithm, problem, graph, messages)
    return replace(plain, float64=rounded(algorithm, problem, graph, agent, heard))


@require.known_arguments
def calibrate(
    algorithm: Algorithm,
    problem: Task,
    graph: Graph,
    horizon: float,
    epsilon: float | Sequence[float],
    *,
    delta: float | None = None,
    colluders: int | None = None,
) -> Algorithm:
    """The same algorithm with every agent's noise scaled to a budget.

    Args:
      algorithm: whose noise schedules keep their form.
      problem: a Task, or a Problem, of which only the Task is used.
      graph: who hears whom.
      horizon: the number of messages, or math.inf.
      epsilon: what each agent's budget is at most: one number, or one per agent.
      delta: at which `epsilon` holds; needed for Gaussian noise. Laplace noise without one meets
        `epsilon` as a pure one, and with one as `epsilon_at_delta` of its certificate, which takes
        less noise.
      colluders: against how many of the other agents `epsilon` is to hold, instead of the number
        that the algorithm's secrets are planned for. With secrets no agent's budget is above its
        `epsilon`; some may be below, since everybody's noise protects everybody.

    Example:
      >>> import hearsay as hs
      >>> task, graph = hs.problems.ridge(agents=2, records=50).task, hs.graphs.ring(2)
      >>> algorithm = hs.calibrate(hs.ldp_online(), task, graph, 20, epsilon=[1, 4])
      >>> certificate = hs.certify(algorithm, task, graph, 20)
      >>> [round(epsilon, 3) for epsilon in certificate.epsilon]
      [1.0, 4.0]
    """
    problem = public(problem)
    algorithm = algorithm if colluders is None else algorithm.facing(colluders, graph.agents)
    algorithm.check(graph, problem)
    horizon = require.horizon("horizon", horizon)
    targets = require.per_agent("epsilon", epsilon, graph.agents)
    delta = require.optional(require.fraction)("delta", delta)
    alone, every = replace(algorithm, secrets=None), np.array(targets)
    found = kinds(alone, problem, graph).split(every)
    factors = found.each(
        [
            _least_factor(alone, problem, graph, agent, horizon, targets[agent], delta)
            for agent in found.first
        ]
    ).tolist()
    if (shared := algorithm.shared(graph.agents)) is not None and algorithm.secrets is not None:
        factors = least_noise(shared, algorithm.secrets.colluders, factors)
        found = found.split(np.array(factors))
    ready = algorithm.with_noise(factors)
    for agent in found.first:
        _require_scaled(algorithm, ready, agent, factors[agent])
    # Not where what agents share would follow from other numbers than those that were scaled.
    ready.shared(graph.agents)
    return ready


def _least_factor(
    algorithm: Algorithm,
    problem: Task,
    graph: Graph,
    agent: int,
    horizon: float,
    target: float,
    delta: float | None,
) -> float:
    """By what the noise of an agent that shares none is multiplied to meet its target."""
    account, _ = best_account(algorithm, problem, graph, agent, horizon, delta)
    least = _factor(account, target, horizon, delta)
    # Secret batches may cost more at the noise that is given, and less at that of the budget.
    for other in amplified(algorithm, problem, graph, agent):
        if other != account and math.isfinite(horizon):
            # Not where no noise gives that budget by this proof.
            with suppress(ValueError):
                least = min(least, _factor(other, target, horizon, delta))
    return least


@lru_cache(maxsize=1024)
def _factor(account: Account, target: float, horizon: float, delta: float | None) -> float:
    """A search, for some accounts: agents with the same one share it."""
    return account.factor(target, horizon, delta)


def _require_scaled(before: Algorithm, after: Algorithm, agent: int, factor: float) -> None:
    """Noise that `with_noise` does not reach would leave the budget where it was."""
    pairs = zip(before.releases(agent, (0.0, 0.0)), after.releases(agent, (0.0, 0.0)), strict=True)
    for old, new in pairs:
        if not float(new.scale(0)) >= float(old.scale(0)) * factor * (1 - 1e-12):
            raise ValueError(
                f"the noise of {old.name} must grow with the fields of {after.name} that are"
                " annotated as Noise for a budget to be met, and does not: annotate its scale so"
            )


class HorizonBudgets(NamedTuple):
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


@require.known_arguments
def budget_by_horizon(
    make: Callable[[int], Algorithm],
    problem: Task,
    graph: Graph,
    horizons: Sequence[int],
    *,
    delta: float | None = None,
) -> HorizonBudgets:
    """The budget as a function of the planned horizon.

    It is for schemes whose steps, sample sizes and noise depend on the horizon (paper P2,
    Remark 22).

    Args:
      make: from a horizon to the algorithm that is planned for it.
      problem: a Task, or a Problem, of which only the Task is used.
      graph: who hears whom.
      horizons: two or more, increasing.
      delta: as for `certify`.

    Example:
      >>> import hearsay as hs
      >>> problem, graph = hs.problems.ridge(agents=5, records=2000), hs.graphs.five_agents()
      >>> hs.budget_by_horizon(hs.scheme_s2, problem, graph, [100, 200]).horizons.tolist()
      [100, 200]
    """
    if not callable(make):
        raise TypeError(
            "make must be a function from a horizon to the algorithm that is planned for it, such"
            f" as hearsay.scheme_s2, got {make!r:.80}"
        )
    lengths = list(require.each(require.count)("horizons", horizons))
    if len(lengths) < 2 or sorted(set(lengths)) != lengths:
        require.fail("horizons", "two or more increasing numbers", lengths)
    costs = [max(certify(make(h), problem, graph, h, delta=delta).epsilon) for h in lengths]
    return HorizonBudgets(np.array(lengths), np.array(costs))


def _certificate(
    algorithm: Algorithm,
    problem: Task,
    graph: Graph,
    horizon: float,
    delta: float | None,
    found: Kinds,
    described: list[tuple[Description, Bound]],
) -> Certificate:
    budgets, warnings, places = [], list[str](), dict[Description, int]()
    for agent, (description, cost) in zip(found.first, described, strict=True):
        place = places.setdefault(description, len(places))
        paper = None
        # The papers' formulas are about replaced records: beside another number they would mislead.
        comparable = problem.adjacency == REPLACE
        if comparable and not (math.isinf(horizon) or math.isinf(problem.change)):
            paper = algorithm.paper_epsilon(graph, agent, problem, int(horizon), delta)
        got, account = numbers(description, horizon, delta), description.account
        budgets.append(
            AgentBudget(
                agent,
                got.epsilon,
                account.basis,
                str(account.pattern),
                _dominated_by(account, cost, horizon),
                paper,
                got.epsilon_at_delta,
                got.rho,
                got.reason,
                description.assumptions,
                got.delta,
                description=place,
                curve=curve(algorithm, graph, agent, description, horizon, delta),
            )
        )
        warnings += account.warnings(horizon)
    held = np.unique(problem.counts)
    warnings += algorithm.sampling.warnings(held)
    if algorithm.sampling.secret and not all(d.account.amplified for d, _ in described):
        warnings += _charged_in_full(algorithm, problem, graph, horizon, delta, found)
    if problem.frozen and algorithm.gradient_at_state:
        warnings.append(_FROZEN)
    if not math.isinf(horizon):
        warnings += _stream_too_short(algorithm, problem, int(horizon))
    elif algorithm.sampling.grows and np.isfinite(held).all():
        warnings.append(_data_set_ends(algorithm, problem))
    return Certificate(
        algorithm.name,
        horizon,
        algorithm.law.name,
        Budgets(budgets, found.kind),
        delta,
        tuple(dict.fromkeys(warnings)),
        descriptions=tuple(places),
        secrets=algorithm.shared(graph.agents),
    )


@lru_cache(maxsize=4096)
def _dominated_by(account: Account, found: Bound, horizon: float) -> str:
    return account.dominated_by(found, horizon)


def _checked(
    algorithm: Algorithm, messages: float, delta: float | None
) -> tuple[int, float | None]:
    """What a deployed run's budget is about, in plain numbers."""
    found = require.horizon("messages", messages)
    return found, _checked_delta(algorithm, delta)  # type: ignore[return-value]


def _checked_delta(algorithm: Algorithm, delta: float | None) -> float | None:
    """A delta where the law reads its number at one."""
    if algorithm.law.at_delta:
        return algorithm.law.required(delta)
    return require.optional(require.fraction)("delta", delta)


_FROZEN = (
    "NOT a guarantee for records: it takes all other gradients to be the same in both runs (paper"
    " P3's adjacency), while this algorithm takes them at states that the record has moved; give"
    " the problem a feature_bound instead of frozen for one that is"
)


def _charged_in_full(
    algorithm: Algorithm,
    problem: Task,
    graph: Graph,
    horizon: float,
    delta: float | None,
    found: Kinds,
) -> list[str]:
    """Why secret batches do not make it cheaper, where they do not."""
    arrivals = problem.arrivals
    counts = np.unique(problem.counts).tolist()
    chances = [algorithm.sampling.inclusion(held, arrivals) for held in counts]
    if all(chance is None or chance >= 1 for chance in chances):
        return []
    if not algorithm.law.amplifies:
        why = f"{algorithm.law.name} messages have no proof"
    elif algorithm.factors is not None:
        why = "noise that later messages take back is private and carried on"
    elif not algorithm.amplifies:
        why = (
            f"{algorithm.name} takes its gradients at a private point, or carries a private state"
            " on"
        )
    else:
        known = (amplified(algorithm, problem, graph, agent) for agent in found.first)
        reasons = [account_cost(a, horizon, delta).reason for each in known for a in each]
        why = next(filter(None, reasons), "that costs no more here")
    return [f"batches are secret and charged as if a record were in every one: {why}"]


def _stream_too_short(algorithm: Algorithm, problem: Task, messages: int) -> list[str]:
    held = np.unique(problem.counts).tolist()
    last = min(algorithm.sampling.lasts(count, problem.arrivals) for count in held)
    return (
        [f"the shortest stream serves {last} steps: a run ends there, before message {messages}"]
        if last < messages
        else []
    )


def _data_set_ends(algorithm: Algorithm, problem: Task) -> str:
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
