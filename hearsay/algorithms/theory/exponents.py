"""Paper P3's conditions on exponents, in plain numbers: rates, limits on the noise, series that
must converge, and Theorem 2's cases.

alpha_k = a_1 (k + a_2)^-alpha, beta_k = a_1 (k + a_2)^-beta, gamma_k = ceil(a_3 (k + a_2)^gamma),
noise scale b (k + a_2)^eta.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from hearsay import _validate as require
from hearsay.schedules import PowerLaw


@require.plain_arguments
def output_rate(alpha: float, beta: float, eta: float) -> float:
    """Theorem 4, alpha < 1: the expected squared error falls at least like k^-rate (alpha = 1:
    times ln k, and see `forgetting_rate`).

    For alpha < 1 the proof asks no more than 0 < beta < alpha and a rate above 0; the theorem's own
    limit on eta is tighter.
    """
    return exact(min(3 * beta - 2 * alpha - 2 * eta, alpha - beta))


@require.plain_arguments
def gradient_rate(alpha: float, beta: float, eta: float) -> float:
    """Theorem 7, in the same way."""
    return exact(min(beta - 2 * eta, alpha - beta - 2 * eta))


@require.plain_arguments
def forgetting_rate(beta: float, scale: float, mu: float) -> float:
    """a_1 mu - 1 + beta: how fast the start is forgotten when alpha = 1, which the rate does not
    pass (Theorems 4 and 7).
    """
    return exact(scale * mu - 1 + beta)


@require.plain_arguments
def oracle_exponent(rate: float, gamma: float) -> float:
    """Corollary 3 for any schedule: an expected squared error e takes K ~ e^(-1/rate) steps,
    which is K^(1 + gamma) sampled gradients, e^-exponent.
    """
    return (1 + gamma) / rate if rate > 0 else math.inf


@require.plain_arguments
def output_noise_limit(alpha: float, beta: float) -> float:
    """Theorem 4: the largest eta."""
    return exact((3 * beta - 2) / 2)


@require.plain_arguments
def gradient_noise_limit(alpha: float, beta: float) -> float:
    """Theorem 7: the largest eta."""
    return exact(min(beta, alpha - beta) / 2)


@require.plain_arguments
def output_series(alpha: float, beta: float, gamma: float, eta: float) -> dict[str, float]:
    """The sums of Assumption 4: terms fall like k^-p, and the sum is finite when p > 1."""
    falls = {
        "sum step^2/coupling": 2 * alpha - beta,
        "sum coupling^2 noise^2": 2 * beta - 2 * eta,
        "sum step^2/(size coupling)": 2 * alpha + gamma - beta,
        "sum step^2/size": 2 * alpha + gamma,
    }
    return {name: exact(p) for name, p in falls.items()}


@require.plain_arguments
def gradient_series(alpha: float, beta: float, gamma: float, eta: float) -> dict[str, float]:
    """The sums of Assumption 5, as printed (its step/size is step^2/size in the proof,
    which is weaker).
    """
    falls = {
        "sum step^2/coupling": 2 * alpha - beta,
        "sum step^2/(size coupling)": 2 * alpha + gamma - beta,
        "sum step^2 noise^2/coupling": 2 * alpha - beta - 2 * eta,
        "sum step/size": alpha + gamma,
        "sum step^2 noise^2": 2 * alpha - 2 * eta,
    }
    return {name: exact(p) for name, p in falls.items()}


class Case(NamedTuple):
    """A case of Theorem 2: how far inside it the exponents lie,
    and by how much its last inequality holds.
    """

    name: str
    inside: float
    margin: float


@require.plain_arguments
def output_budget(alpha: float, beta: float, gamma: float, eta: float, scale: float) -> Case:
    """Theorem 2: the case that applies; with a margin above 0 the paper's budget is finite for
    ever. scale: a_1 of the coupling.
    """
    if beta < 1:
        return Case("(iii)", min(beta, exact(1 - beta)), exact(alpha + gamma - beta + eta - 1))
    if beta > 1:
        return Case("none", exact(1 - beta), -math.inf)
    inside = exact(1 - (alpha + gamma - scale))
    if inside > 0:
        return Case("(i)", inside, exact(alpha + gamma + eta - 2))
    return Case("(ii)", -inside, exact(scale + eta - 1))


@require.plain_arguments
def gradient_budget(gamma: float, eta: float) -> float:
    """Theorem 5: with a margin above 0 the paper's budget is finite forever."""
    return exact(gamma + eta - 1)


def largest_ratio(step: PowerLaw, coupling: PowerLaw) -> float:
    """sup_k alpha_k / beta_k.

    With one shift for both it is met at k = 0; with two the ratio may first rise.
    """
    if step.exponent > coupling.exponent:
        return math.inf
    first = float(step(0) / coupling(0))
    if step.exponent == coupling.exponent:
        return max(first, step.scale / coupling.scale)
    top = peak(step, coupling)
    return max(first, *(float(step(k) / coupling(k)) for k in (math.floor(top), math.ceil(top))))


@require.plain_arguments
def ratio_limits(
    step0: float, coupling0: float, agents: int, second: float, mu: float, largest: float
) -> tuple[float, float]:
    """The two terms that sup_k alpha_k / beta_k must not pass (Assumptions 4 and 5).

    second: sigma_2; largest: every agent's L_i.
    """
    # The paper's L^2 is the sum of all L_i^2.
    gap, square = max(0.0, 1 - second), agents * largest**2
    inner = 6 * square * step0 + agents * gap * mu * coupling0
    return (
        2 * gap / (3 * mu) if mu > 0 else math.inf,
        gap**2 * mu**2 * coupling0 / (16 * inner * (coupling0 + 1) * square),
    )


def peak(step: PowerLaw, coupling: PowerLaw) -> float:
    """Where the ratio alpha_k / beta_k is largest, for a step that falls
    faster than the coupling.
    """
    alpha, beta = -step.exponent, -coupling.exponent
    return max(0.0, (beta * step.shift - alpha * coupling.shift) / (alpha - beta))


@require.plain_arguments
def exact(value: float) -> float:
    """Without the last digits: 3 * 0.9 - 2 - 2 * 0.35 is 0, not 2e-16, and a condition met with
    equality must read so.
    """
    return round(value, 12)
