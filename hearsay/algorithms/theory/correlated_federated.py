"""Assumptions IV.1-IV.4, Lemmas IV.8 and IV.9, Theorem IV.10 and Corollaries IV.11 and IV.12
of paper P4.

With r = eta eta_g tau (the paper's eta tilde), V^2 the variance of the mean of the learners'
noises, and C_R how far the rounds' minimisers lie from the minimiser of all, (dynamic regret) / (R
tau) is at most the sum of

    start          |x(0) - x*|^2 / (alpha R r)
    drift          (1/alpha) (r + alpha/12L + 1/mu) 2 L^2 r^2 B_g^2 / eta_g^2
                   without alpha/12L for independent noise
    noise          24 L (1 + sigma) r^2 |B|_F^2 d V^2 / (alpha^2 R)
                   r d V^2 / alpha for independent noise, (39)
    environment    (12 L + alpha mu) C_R / (alpha^2 R)

if r <= alpha / 8L (Lemma IV.9). The order of each term in R and in the privacy budget is
Theorem IV.10; its constants are those above, with V from Lemma IV.8.

For the losses here: convex with a ridge mu > 0 means alpha = 1, one minimiser, so sigma = 0.
Without a ridge alpha = 1 still holds, with mu = 0, and the drift term is infinite: the lemma is
silent. The paper has no projection; the bound is about runs in which no model leaves the ball. C_R
and x* need the data (hearsay.regret.Comparators.variation and .fixed). Corollary IV.12's third term
is printed without its 1/sqrt(R); Supplementary C has it, and so has `static_rate`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hearsay import _validate as require
from hearsay.algorithms.theory.findings import Finding, below
from hearsay.graphs import Graph
from hearsay.problems.losses.softmax import Softmax
from hearsay.problems.task import Task

if TYPE_CHECKING:
    from hearsay.algorithms.correlated_federated import CorrelatedFederated


class Terms(NamedTuple):
    """The four parts of a bound on (regret) / (R tau)."""

    start: float
    drift: float
    noise: float
    environment: float

    @property
    def total(self) -> float:
        return sum(self)


@require.plain_arguments
def regret_bound(
    *,
    smoothness: float,
    strength: float,
    gradient_bound: float,
    rate: float,
    server: float,
    rounds: int,
    dimension: int,
    variance: float,
    frobenius: float,
    variation: float,
    distance: float,
    alpha: float = 1.0,
    regularity: float = 0.0,
) -> Terms:
    """Lemma IV.9. smoothness L, strength mu, rate eta tilde, server eta_g, variance V^2,
    frobenius |B|_F^2, variation C_R, distance |x(0) - x*|, regularity sigma. Infinite in a term
    that divides by a mu of 0.
    """
    start, drift, environment = _shared(
        smoothness,
        strength,
        gradient_bound,
        rate,
        server,
        rounds,
        variation,
        distance,
        alpha,
        alpha / (12 * smoothness),
    )
    noise = (
        24
        * smoothness
        * (1 + regularity)
        * rate**2
        * frobenius
        * dimension
        * variance
        / (alpha**2 * rounds)
    )
    return Terms(start, drift, noise, environment)


@require.plain_arguments
def independent_bound(
    *,
    smoothness: float,
    strength: float,
    gradient_bound: float,
    rate: float,
    server: float,
    rounds: int,
    dimension: int,
    variance: float,
    variation: float,
    distance: float,
    alpha: float = 1.0,
) -> Terms:
    """The same for independent noise, (39)."""
    start, drift, environment = _shared(
        smoothness, strength, gradient_bound, rate, server, rounds, variation, distance, alpha, 0.0
    )
    return Terms(start, drift, rate * dimension * variance / alpha, environment)


def _shared(
    smoothness: float,
    strength: float,
    bound: float,
    rate: float,
    server: float,
    rounds: int,
    variation: float,
    distance: float,
    alpha: float,
    theta: float,
) -> tuple[float, float, float]:
    _require_step(rate, alpha / (8 * smoothness))
    slack = rate + theta + (1 / strength if strength > 0 else math.inf)
    return (
        distance**2 / (alpha * rounds * rate),
        slack * 2 * smoothness**2 * (rate / server) ** 2 * bound**2 / alpha,
        (12 * smoothness + alpha * strength) * variation / (alpha**2 * rounds),
    )


def _require_step(rate: float, limit: float) -> None:
    if not 0 < rate <= limit * (1 + 1e-12):
        require.fail("rate", f"above 0 and at most alpha / 8L = {limit:.4g} (Lemma IV.9)", rate)


@require.plain_arguments
def rate_step(rounds: int) -> float:
    """The order of eta tilde in Theorem IV.10, R^(-1/3) (ln R)^(-2/3)."""
    return rounds ** (-1 / 3) * math.log(rounds) ** (-2 / 3)


@require.plain_arguments
def static_step(rounds: int) -> float:
    """The order of eta tilde in Corollary IV.12, (R ln R)^(-1/2)."""
    return (rounds * math.log(rounds)) ** -0.5


@require.plain_arguments
def private_variance(
    gradient_bound: float,
    dimension: int,
    agents: int,
    local_steps: int,
    epsilon: float,
    delta: float,
) -> float:
    """d B_g^2 ln(1/delta) / (n tau^2 epsilon^2), the price of privacy in every rate."""
    return (
        dimension * gradient_bound**2 * math.log(1 / delta) / (agents * local_steps**2 * epsilon**2)
    )


@require.plain_arguments
def correlated_rate(
    rounds: int, rate: float, server: float, gradient_bound: float, price: float, variation: float
) -> Terms:
    """(32) without its constants; price from `private_variance`.

    With rate = rate_step(rounds) it is Theorem IV.10, (10).
    """
    noise = rate**2 * math.log(rounds) ** 2 * price
    return Terms(
        1 / (rounds * rate), (rate / server * gradient_bound) ** 2, noise, variation / rounds
    )


@require.plain_arguments
def independent_rate(
    rounds: int, rate: float, server: float, gradient_bound: float, price: float, variation: float
) -> Terms:
    """Corollary IV.11 without its constants."""
    return correlated_rate(rounds, rate, server, gradient_bound, price, variation)._replace(
        noise=rate * price
    )


@require.plain_arguments
def static_rate(
    rounds: int, server: float, gradient_bound: float, price: float, variation: float
) -> Terms:
    """Corollary IV.12 (static regret, strongly convex losses) without its constants."""
    order = math.sqrt(math.log(rounds) / rounds)
    drift = gradient_bound**2 / (server**2 * rounds * math.log(rounds))
    return Terms(order, drift, order * price, order * variation / rounds)


def gradient_bound(problem: Task) -> float:
    """B_g: the length of one record's gradient at most, over the ball, its regulariser included."""
    reach = problem.domain.reach(problem.dimension)
    if isinstance(problem.loss, Softmax):
        clip, several = problem.loss.clip, problem.loss
        data = several.unclipped_longest(reach)
        return min(data, math.inf if clip is None else clip) + several.regulariser * reach
    loss = problem.linear
    margin = loss.feature_bound * reach
    labels = (0.0, 1.0) if problem.classification else (-loss.label_bound, loss.label_bound)
    with np.errstate(over="ignore"):  # residuals rise with the margin, so the largest is at an end
        ends = [
            abs(float(loss.residual(np.asarray(m), b))) for m in (-margin, margin) for b in labels
        ]
    data = loss.feature_bound * max(ends)
    return min(data, math.inf if loss.clip is None else loss.clip) + loss.regulariser * reach


@require.plain_arguments
def bound_of(
    algorithm: CorrelatedFederated, problem: Task, variation: float, distance: float
) -> Terms:
    """Lemma IV.9 for an instance; (39) where its noise is independent.
    variation and distance come from the data.
    """
    strength, smoothness = problem.loss.curvature
    facts = {
        "smoothness": smoothness,
        "strength": strength,
        "gradient_bound": gradient_bound(problem),
        "rate": _rate(algorithm),
        "server": algorithm.server,
        "rounds": algorithm.horizon,
        "dimension": problem.dimension,
        "variance": _variance(algorithm, problem.agents),
        "variation": variation,
        "distance": distance,
    }
    if algorithm.factorization == "identity":
        return independent_bound(**facts)  # type: ignore[arg-type]
    frobenius = algorithm.horizon * algorithm.factors.error() ** 2
    return regret_bound(frobenius=frobenius, **facts)  # type: ignore[arg-type]


def _rate(algorithm: CorrelatedFederated) -> float:
    return float(algorithm.step(0)) * algorithm.server * algorithm.local_steps


def _variance(algorithm: CorrelatedFederated, agents: int) -> float:
    """V^2 = sum_i V_i^2 / n^2."""
    return float(np.sum([float(algorithm.noise_for(i)(0)) ** 2 for i in range(agents)])) / agents**2


def correlated_federated(
    algorithm: CorrelatedFederated, graph: Graph, problem: Task
) -> list[Finding]:
    """What can be said before the data are known.

    Nothing for the noiseless baseline, which has its own source.
    """
    if algorithm.name == "federated-noiseless":
        return []
    (strength, smoothness), rate, rounds = (
        problem.loss.curvature,
        _rate(algorithm),
        algorithm.horizon,
    )
    limit, bound = 1 / (8 * smoothness), gradient_bound(problem)
    convex = "alpha = 1 (convex); mu, the ridge, which the lemma divides by"
    premises = [
        below("Assumption IV.1, smoothness", smoothness, math.inf, "L of every record's loss"),
        below(
            "Assumption IV.2, gradients",
            bound,
            math.inf,
            "B_g, the length of a gradient in the ball",
        ),
        Finding(
            "Assumption IV.3, sigma",
            True,
            "convex losses: sigma <= 1, and 0 where a ridge leaves one minimiser",
        ),
        below("Assumption IV.4, mu", 0.0, strength, convex),
        below(
            "Lemma IV.9, step",
            rate,
            limit,
            "eta tilde = eta eta_g tau against alpha / 8L",
            strict=False,
        ),
    ]
    found = [*premises, *_sensitivity(algorithm, smoothness)]
    if (clip := problem.loss.clip) is not None and clip < _unclipped(problem):
        detail = (
            f"gradients are clipped to {clip:g}: the bound is about the clipped loss, the measured"
            " regret about the loss itself"
        )
        found.append(Finding("Assumption IV.2, clipping", False, detail))
    found.append(_lemma(algorithm, problem, premises))
    if rounds > 1:
        logs = math.log(rounds)
        found += [
            below(
                "Corollary IV.11, correlated noise is better",
                rate,
                1 / logs**2,
                "eta tilde against 1 / (ln R)^2",
            ),
            below("Corollary IV.12, strong convexity", 0.0, strength, "mu of every round's loss"),
            below(
                "Corollary IV.12, step",
                rate,
                1 / (10 * smoothness * logs),
                "eta tilde against 1 / (10 L ln R)",
                strict=False,
            ),
        ]
    return found


def _unclipped(problem: Task) -> float:
    """The longest gradient of the data without the clip."""
    loss = problem.loss if isinstance(problem.loss, Softmax) else problem.linear
    return loss.unclipped_longest(problem.domain.reach(problem.dimension))


def _sensitivity(algorithm: CorrelatedFederated, smoothness: float) -> list[Finding]:
    text = (
        "eta L: local steps must not stretch what a record has done, or S is more than 2 B_g / tau"
        " (the certificate counts it)"
    )
    return [
        below(
            "Lemma IV.8, sensitivity",
            float(algorithm.step(0)) * smoothness,
            2.0,
            text,
            strict=False,
        )
    ]


def _lemma(algorithm: CorrelatedFederated, problem: Task, premises: list[Finding]) -> Finding:
    name = (
        "Corollary IV.11, bound (39)"
        if algorithm.factorization == "identity"
        else "Lemma IV.9 and Theorem IV.10"
    )
    if failed := [f.name for f in premises if not f.holds]:
        return Finding(name, False, f"no bound: it rests on {', '.join(failed)}")
    known = bound_of(algorithm, problem, 0.0, 0.0)
    unit = bound_of(algorithm, problem, 1.0, 1.0)
    detail = (
        f"dynamic regret / (R tau) <= {known.drift:.3g} (local steps) + {known.noise:.3g} (noise) +"
        f" {unit.start:.3g} |x(0) - x*|^2 + {unit.environment:.3g} C_R while no model leaves the"
        " ball; x* and C_R are not known before the data are (hearsay.regret)"
    )
    return Finding(name, True, detail)
