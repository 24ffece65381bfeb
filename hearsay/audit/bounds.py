"""Lower bounds on a budget from counts, each wrong with at most a given probability (NumPy and
SciPy only).

**Two data sets, many runs.** An attacker says "the first" when a score reaches a threshold: rightly
in a share TPR of the runs on the first data set, wrongly in a share FPR of those on the second. A
mechanism that is

    (epsilon, delta)-private  has  TPR <= e^epsilon FPR + delta
                              so   epsilon >= log((TPR - delta) / FPR)
    mu-Gaussian private       has  TPR <= N(N^-1(FPR) + mu)
                              so   mu >= N^-1(TPR) - N^-1(FPR)
    (0, delta)-private        has  TPR <= FPR + delta
                              so   delta >= TPR - FPR

Clopper-Pearson limits, exact for any score, put TPR low and FPR high, each wrong with half of the
allowed probability. Score, threshold and direction are chosen on one half of the runs and judged on
the other, so that choosing costs nothing. Nothing is fitted: a normal law fitted to Laplace scores
proves budgets that are not there.

**One run, many canaries** (Steinke, Nasr and Jagielski 2023). m records are each one of two, by
a fair coin; v of r guesses are right. Given all guesses and the coins before it, a coin is the
guessed one with probability at most q = e^epsilon / (1 + e^epsilon) under pure epsilon: Bayes'
rule with a fair prior, the later coins averaged out. So v is at most Binomial(r, q) in law. With
delta > 0 each coin may in addition be given away, by events that have a total probability of at
most 2 m delta; spent on i coins at a time they lift the chance of v right guesses by at most 2 m
delta max_i P(v > Binomial(r, q) >= v - i) / i (their Theorem 5.2). The bound is the largest epsilon
for which the outcome would be too lucky.

References: Clopper and Pearson 1934. Jagielski, Ullman and Oprea, Auditing differentially private
machine learning, NeurIPS 2020. Steinke, Nasr and Jagielski, Privacy auditing with one (1) training
run, NeurIPS 2023. Dong, Roth and Su, Gaussian differential privacy, JRSS B 2022.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy import optimize, stats

from hearsay import _validate as require

_THRESHOLDS, _STRICTER = 2000, 200


@require.plain_arguments
def at_least(hits: Any, trials: int, error: float) -> Any:
    """The probability of a hit is at least this, except with probability `error`."""
    hits = np.asarray(hits)
    return np.where(hits == 0, 0.0, stats.beta.ppf(error, np.maximum(hits, 1), trials - hits + 1))


@require.plain_arguments
def at_most(hits: Any, trials: int, error: float) -> Any:
    hits = np.asarray(hits)
    return np.where(
        hits == trials, 1.0, stats.beta.ppf(1 - error, hits + 1, np.maximum(trials - hits, 1))
    )


@require.plain_arguments
def epsilon_shown(low: Any, high: Any, delta: float = 0.0) -> Any:
    """Of a true positive rate of at least `low` and a false positive rate of at most `high`;
    never negative.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.maximum(0.0, np.log(np.maximum(np.asarray(low) - delta, 0.0) / high))


def mu_shown(low: Any, high: Any) -> Any:
    return np.maximum(
        0.0, np.nan_to_num(stats.norm.ppf(low) - stats.norm.ppf(high), nan=0.0, neginf=0.0)
    )


def delta_shown(low: Any, high: Any) -> Any:
    return np.maximum(0.0, np.asarray(low) - high)


class Shown(NamedTuple):
    """A lower bound and the test that shows it: score number `score` at least `threshold`,
    with `swapped` roles of the data sets.
    """

    value: float
    score: int
    swapped: bool
    threshold: float
    true_positives: float
    false_positives: float


@require.plain_arguments
def strongest(
    first: np.ndarray, second: np.ndarray, measure: Callable[[Any, Any], Any], error: float
) -> Shown:
    """The bound that scores (run, kind) under two data sets show;
    large scores speak for the first.
    """
    chosen = max(
        (
            (
                *_best_threshold(
                    sign * a[: len(a) // 2, kind], sign * b[: len(b) // 2, kind], measure, error
                ),
                kind,
                swapped,
            )
            for kind in range(first.shape[1])
            for swapped, (sign, a, b) in enumerate(((1, first, second), (-1, second, first)))
        ),
        key=lambda found: found[0],
    )
    _, threshold, kind, swapped = chosen
    sign, a, b = (-1, second, first) if swapped else (1, first, second)
    says = [sign * part[len(part) // 2 :, kind] >= threshold for part in (a, b)]
    low = at_least(says[0].sum(), len(says[0]), error / 2)
    high = at_most(says[1].sum(), len(says[1]), error / 2)
    rates = float(says[0].mean()), float(says[1].mean())
    return Shown(float(measure(low, high)), kind, bool(swapped), float(threshold), *rates)


@require.plain_arguments
def most_shown(runs: int, measure: Callable[[Any, Any], Any], error: float) -> float:
    """The largest bound that so many runs on either data set could show:
    every judged one told right.
    """
    judged = runs - runs // 2
    return float(measure(at_least(judged, judged, error / 2), at_most(0, judged, error / 2)))


def _best_threshold(
    a: np.ndarray, b: np.ndarray, measure: Callable[[Any, Any], Any], error: float
) -> tuple[float, float]:
    levels = np.unique(np.concatenate([a, b]))
    levels = levels[
        np.unique(np.linspace(0, len(levels) - 1, min(len(levels), _THRESHOLDS)).astype(int))
    ]
    hits = [len(part) - np.searchsorted(np.sort(part), levels) for part in (a, b)]
    # Stricter than the verdict: the best of many thresholds is partly the luckiest, most of all
    # where few runs decide.
    found = measure(
        at_least(hits[0], len(a), error / _STRICTER), at_most(hits[1], len(b), error / _STRICTER)
    )
    best = int(np.argmax(found))
    return float(found[best]), float(levels[best])


@require.plain_arguments
def trade_off(
    first: np.ndarray, second: np.ndarray, points: int = 400
) -> tuple[np.ndarray, np.ndarray]:
    """(false positive rates, false negative rates) of "the first data set", over thresholds,
    from all to none.
    """
    levels = np.unique(np.concatenate([first, second]))
    levels = np.append(
        levels[np.unique(np.linspace(0, len(levels) - 1, points).astype(int))], np.inf
    )
    positives = [1 - np.searchsorted(np.sort(part), levels) / len(part) for part in (second, first)]
    return positives[0], 1 - positives[1]


@require.plain_arguments
def pure_curve(epsilon: float, rates: np.ndarray, delta: float = 0.0) -> np.ndarray:
    """The lowest false negative rate at each false positive rate under (epsilon, delta)."""
    factor = math.exp(min(epsilon, 700.0))
    return np.maximum(0.0, np.maximum(1 - delta - factor * rates, (1 - delta - rates) / factor))


@require.plain_arguments
def gaussian_curve(mu: float, rates: np.ndarray) -> np.ndarray:
    """The same under mu-Gaussian privacy."""
    if math.isinf(mu):
        return np.zeros_like(rates)
    return stats.norm.cdf(stats.norm.ppf(1 - rates) - mu)


@require.plain_arguments
def lucky(epsilon: float, canaries: int, guesses: int, right: int, delta: float = 0.0) -> float:
    """At most how likely `right` or more right guesses are under (epsilon, delta),
    with a fair coin for each of the canaries.
    """
    q = 1 / (1 + math.exp(-epsilon))
    chance = float(stats.binom.sf(right - 1, guesses, q))
    if delta > 0 and right > 0:
        below = np.cumsum(stats.binom.pmf(np.arange(right - 1, -1, -1), guesses, q))
        chance += 2 * canaries * delta * float(np.max(below / np.arange(1, right + 1)))
    return min(1.0, chance)


@require.plain_arguments
def one_run_epsilon(
    canaries: int, guesses: int, right: int, error: float, delta: float = 0.0
) -> float:
    """The largest epsilon that the outcome rules out, except with probability `error`."""
    require.count("guesses", guesses, 0)
    if not 0 <= right <= guesses <= canaries:
        require.fail(
            "right",
            f"at most the guesses, and those at most the {canaries} canaries",
            (right, guesses),
        )
    if lucky(0.0, canaries, guesses, right, delta) > error:
        return 0.0
    excess = lambda epsilon: lucky(epsilon, canaries, guesses, right, delta) - error  # noqa: E731
    high = 1.0
    while excess(high) <= 0:
        high *= 2
    return optimize.bisect(excess, 0.0, high, xtol=1e-9) - 1e-9
