"""The best distinguisher there is, run many times: a lower bound on what an agent's messages
really give away.

Take two data sets D, D' of one agent that differ in one record, run the whole network on each
of them thousands of times, and ask of every transcript which it was. Given all that was sent,
the agent's messages before noise are known under either (messages.py), and what the others send
has the same law under both, so the log-likelihood ratio of the transcript is a sum over the
agent's messages k,

    L = sum_k log p(sent_k | m_k(D)) - log p(sent_k | m_k(D'))

(for secret batches with mixtures in the place of p, for shared noise with what a coalition leaves
of it, likelihood.py)

with p the density of the noise that the code adds (its scale is measured, not read off a schedule),
the chance of a ternary value, or that of a rounding cell. Noise that is correlated over time is
made independent first (`whitener`). By Neyman and Pearson no other test is stronger. A second score
looks for noise that was used twice, by this agent or by another one (whose noise a conspirator
knows): how near is some residual to another one under D', over the same under D. It takes no
likelihood to be right, and neither does the bound (bounds.py): a wrong score makes it weaker,
never false.

Certificates of many messages are looser than any number of runs can show: pure epsilon adds up
worst cases, each of which has probability 1/2 under Laplace noise, so K equal messages reach it in
a share 2^-K of the runs. Audit a few dominant messages where a tight bound is wanted.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from hearsay import _validate as require
from hearsay.audit import bounds
from hearsay.audit.coalitions import facing, worst
from hearsay.audit.likelihood import SCORES, runner
from hearsay.audit.pairs import Pair, candidates
from hearsay.base import Algorithm
from hearsay.certification import certify
from hearsay.graphs import Graph
from hearsay.privacy.certificate import AgentBudget
from hearsay.problems.problem import Problem
from hearsay.problems.sampling.samplers import Records

_PILOT = 250  # runs to choose a pair with


@dataclass(frozen=True)
class Claim:
    """One certified number and what the audit shows of it.

    what: "epsilon", "epsilon at delta", "mu" or "delta"; most: the largest bound that so many runs
    could have shown, had every run been told right.
    """

    what: str
    lower: float
    certified: float
    score: str
    most: float

    @property
    def holds(self) -> bool:
        return self.lower <= self.certified


@dataclass(frozen=True, eq=False)
class AgentAudit:
    """claims: the certificate's own number first.

    The curve is the empirical trade-off of false positives and false negatives;
    `allowed(rates)` the certified one. coalition: who colludes, where agents share noise.
    """

    agent: int
    claims: tuple[Claim, ...]
    confidence: float
    runs: int
    pair: str
    curve: tuple[np.ndarray, np.ndarray]
    allowed: Callable[[np.ndarray], np.ndarray]
    coalition: tuple[int, ...] | None = None

    @property
    def lower(self) -> float:
        return self.claims[0].lower

    @property
    def certified(self) -> float:
        return self.claims[0].certified

    @property
    def holds(self) -> bool:
        return all(claim.holds for claim in self.claims)


@require.plain_arguments
def distinguish(
    algorithm: Algorithm,
    problem: Problem,
    graph: Graph,
    *,
    agent: int = 0,
    pair: Pair | tuple[Records, Records] | None = None,
    steps: int = 2,
    runs: int = 20_000,
    delta: float | None = None,
    error: float = 1e-3,
    seed: int = 0,
    certified: Algorithm | None = None,
    colluders: int | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> AgentAudit:
    """Audit the messages 0 .. steps-1 of one agent with so many runs in all, half of them on
    either data set.

    Args:
      pair: two data sets of that agent, as Found.pair of `search` has them; without one, the worst
        of a few dozen (pairs.py).
      error: the probability that some claim's lower bound is above the truth.
      certified: the algorithm whose certificate is held against the runs, where that is another one
        (planted faults).
      colluders: where agents share noise, the auditor is the worst coalition of so many others
        (coalitions.py), and is held against the certificate's epsilon for that many; unless given,
        as many as the secrets are planned for.
    """
    if require.count("runs", runs) < 8:
        require.fail("runs", "at least 8: half of them choose, half of them judge", runs)
    require.fraction("error", error)
    if problem.endless or problem.loss.unrolled:
        require.fail(
            "problem",
            "one with a data set and a linear model (one_run audits the others)",
            problem.name,
        )
    algorithm.check(graph, problem.task)
    certificate = certify(
        certified or algorithm, problem, graph, require.count("steps", steps), delta=delta
    )
    if colluders is None and algorithm.secrets is not None:
        colluders = algorithm.secrets.colluders
    budget = facing(certificate, agent, colluders)
    against = None
    if colluders is not None and certificate.secrets is not None:
        against = worst(certificate.secrets, agent, colluders)
    secret = certificate.amplified(agent)
    run = runner(algorithm, problem, graph, agent, steps, runs // 2, secret=secret, against=against)
    options = candidates(algorithm, problem, graph, agent, steps, seed) if pair is None else []
    before = 2 * _PILOT * len(options)
    if pair is None:
        told, pilot = [], run
        if against is not None:
            # Shared noise hides all pairs alike, and takes long to draw.
            alone = replace(algorithm, secrets=None)
            pilot = runner(alone, problem, graph, agent, steps, runs // 2, secret=secret)
        for tried, one in enumerate(options):
            progress(2 * _PILOT * tried, before + 2 * (runs // 2))
            told.append(_mean_separation(pilot, one, seed))
        pair = options[int(np.argmax(told))]
    first, second = (pair.first, pair.second) if isinstance(pair, Pair) else pair
    words = pair.words if isinstance(pair, Pair) else "given"
    each = runs // 2
    scores = [
        run(
            records,
            first,
            second,
            seed,
            side,
            each,
            lambda done, side=side: progress(before + side * each + done, before + 2 * each),
        )
        for side, records in enumerate((first, second))
    ]
    at_delta = delta if algorithm.law.at_delta else None
    wanted = _claimed(budget, delta, at_delta is not None)
    shown = [
        bounds.strongest(scores[0], scores[1], measure, error / len(wanted))
        for _, measure, _ in wanted
    ]
    claims = tuple(
        Claim(
            what,
            s.value,
            limit,
            SCORES[s.score],
            bounds.most_shown(each, measure, error / len(wanted)),
        )
        for (what, measure, limit), s in zip(wanted, shown, strict=True)
    )
    # All runs: it is a picture, not a bound.
    curve = bounds.trade_off(scores[0][:, shown[0].score], scores[1][:, shown[0].score])
    coalition = None if against is None else against.members
    limit = _limit(budget, at_delta)
    return AgentAudit(agent, claims, 1 - error, runs, words, curve, limit, coalition)


def _claimed(
    budget: AgentBudget, delta: float | None, at_delta: bool
) -> list[tuple[str, Callable[..., Any], float]]:
    """Every number of a certificate, with the measure that a test can hold against it.

    Args:
      at_delta: its epsilon holds at delta; else it is pure.
    """
    at, named = (
        partial(bounds.epsilon_shown, delta=delta or 0.0),
        f"epsilon at delta={delta or 0:g}",
    )
    if budget.delta is not None:
        return [("delta", bounds.delta_shown, budget.delta)]
    if budget.rho is not None:
        return [(named, at, budget.epsilon), ("mu", bounds.mu_shown, math.sqrt(2 * budget.rho))]
    if at_delta:
        # Of secret batches, which have no rho.
        return [(named, at, budget.epsilon)]
    pure: list[tuple[str, Callable[..., Any], float]] = [
        ("epsilon", bounds.epsilon_shown, budget.epsilon)
    ]
    return (
        pure if budget.epsilon_at_delta is None else [*pure, (named, at, budget.epsilon_at_delta)]
    )


def _limit(budget: AgentBudget, at_delta: float | None) -> Callable[[np.ndarray], np.ndarray]:
    """The certified trade-off: the lowest false negative rate for each false positive rate."""
    if budget.rho is not None:
        return partial(bounds.gaussian_curve, math.sqrt(2 * budget.rho))
    if budget.delta is not None:
        return partial(bounds.pure_curve, 0.0, delta=budget.delta)
    return partial(bounds.pure_curve, budget.epsilon, delta=at_delta or 0.0)


def _mean_separation(run: Callable[..., np.ndarray], pair: Pair, seed: int) -> float:
    """How much the likelihood ratio differs between the two data sets,
    on average over a few runs.
    """
    sides = [
        run(records, *pair[:2], seed + 1, side, _PILOT)[:, 0]
        for side, records in enumerate(pair[:2])
    ]
    return float(np.mean(np.clip(sides[0], -50, 50)) - np.mean(np.clip(sides[1], -50, 50)))
