"""What the best settings would reach, for each of the rows of the README's table: an upper bound.

    python -m benchmarks.best_settings [--splits 20] [--epsilon 1 2 4]

The table's rows have settings that follow from public facts. Is "alone" weak because its settings
are? Here plain DP gradient descent, written down in NumPy (all records in every round, Gaussian
noise for zero-out at delta = 1e-5, exactly calibrated), goes through every number of rounds, step
size, clip bound and read-out below, and takes the setting that is best **on the test rows**:
nobody can have that, it costs privacy that is not counted. It is measured again with
noise that the choice has not seen. Three ways:

    alone      each of five hospitals descends with its own records
    together   they average their five noisy gradients in every round; all others are hostile
    central    one server has all records

The same data, splits and accuracies as `hearsay frontier breast-cancer --graph ring --splits 20`.
"""

from __future__ import annotations

import argparse
import itertools
import math

import numpy as np
from scipy import special

import hearsay as hs
from hearsay.mechanisms import Gaussian

DELTA, AGENTS = 1e-5, 5
ROUNDS, CLIPS = (5, 10, 20, 40, 80, 160), (0.1, 0.25, 0.5, 1.0)
STEPS = np.geomspace(0.5, 512.0, 11, dtype=np.float32)
TAILS = (0.0, 0.25, 0.5)  # shares of the last models that are averaged; 0: the last one
WAYS = ("alone", "together", "central")
Data = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def dealt(splits: int) -> Data:
    """Features (split, agent, record, feature) and labels; test rows (split, row, feature) and
    theirs.
    """
    each = [
        hs.problems.logistic("breast-cancer", agents=AGENTS, ridge=0.0, seed=split)
        for split in range(splits)
    ]
    names = ("features", "labels", "test_features", "test_labels")
    x, y, tx, ty = (np.stack([getattr(p, n) for p in each]).astype(np.float32) for n in names)
    return x, y, tx, ty


def accuracies(
    way: str, data: Data, epsilon: float, rounds: int, clip: float, steps: np.ndarray, seeds: list
) -> np.ndarray:
    """Of the released model, for every read-out and step size: the mean over splits, seeds and
    agents.
    """
    x, y, tx, ty = data
    if way == "central":
        x, y = (a.reshape(len(a), 1, -1, *a.shape[3:]) for a in (x, y))
    splits, agents, records, features = x.shape
    # Zero-concentrated privacy of `rounds` sums of vectors of length `clip` at most.
    multiplier = math.sqrt(rounds / (2 * Gaussian().number(epsilon, DELTA)))
    length = np.linalg.norm(x, axis=-1)
    models = np.zeros((splits, agents, features, len(steps) * len(seeds)), np.float32)
    scale = np.repeat(steps, len(seeds))
    generators = [np.random.default_rng([rounds, seed]) for seed in seeds]
    summed, used = {tail: np.zeros_like(models) for tail in TAILS}, dict.fromkeys(TAILS, 0)
    for k in range(rounds):
        wrong = special.expit(x @ models) - y[..., None]
        norms = np.abs(wrong) * length[..., None]
        gradient = x.swapaxes(-1, -2) @ (wrong * np.minimum(1, clip / np.maximum(norms, 1e-12)))
        drawn = np.stack([g.standard_normal(models.shape[:3]) for g in generators], axis=-1)
        noise = np.tile(drawn.astype(np.float32), len(steps))
        gradient = (gradient + multiplier * clip * noise) / records
        if way == "together":
            gradient = gradient.mean(axis=1, keepdims=True)
        models = models - scale * gradient
        for tail in TAILS:
            if k >= min(rounds - 1, math.floor(rounds * (1 - tail))):
                summed[tail] += models
                used[tail] += 1
    found = []
    for tail in TAILS:
        said = tx[:, None] @ (summed[tail] / used[tail]) > 0
        right = (said == (ty > 0)[:, None, :, None]).mean(axis=(0, 1, 2))
        found.append(right.reshape(len(steps), len(seeds)).mean(axis=1))
    return np.array(found)


def best(way: str, data: Data, epsilon: float) -> tuple[float, float, str]:
    """The best accuracy as chosen, the same setting's with other noise, and the setting."""
    top, chosen = -1.0, (0, 0.0, 0, 0)
    for rounds, clip in itertools.product(ROUNDS, CLIPS):
        found = accuracies(way, data, epsilon, rounds, clip, STEPS, [0, 1])
        tail, step = np.unravel_index(np.argmax(found), found.shape)
        if found[tail, step] > top:
            top, chosen = float(found[tail, step]), (rounds, clip, int(step), int(tail))
    rounds, clip, step, tail = chosen
    again = accuracies(way, data, epsilon, rounds, clip, STEPS[[step]], list(range(2, 8)))[tail, 0]
    words = f"{rounds} rounds, step {STEPS[step]:.3g}, clip {clip}, the last {TAILS[tail]:.0%}"
    return top, float(again), words


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--epsilon", type=float, nargs="+", default=[1.0, 2.0, 4.0])
    arguments = parser.parse_args()
    data = dealt(arguments.splits)
    many = len(ROUNDS) * len(CLIPS) * len(STEPS) * len(TAILS)
    print(f"the best of {many:,} settings, chosen on test rows; {arguments.splits} splits")
    print(f"{'way':10} {'epsilon':>7}  {'chosen':>6}  {'other noise':>11}  setting")
    for way, epsilon in itertools.product(WAYS, arguments.epsilon):
        top, again, words = best(way, data, epsilon)
        print(f"{way:10} {epsilon:7g}  {top:6.3f}  {again:11.3f}  {words}", flush=True)


if __name__ == "__main__":
    main()
