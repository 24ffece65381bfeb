"""Agents of very different sizes: all count the same, or by how exact what they say is.

    python -m benchmarks.unequal [--draws 3] [--seeds 4]

Accuracy of the released model on test rows (diabetes: the share of the variance that is
explained), settings by rehearsal for each way, everybody hears everybody, all others hostile,
zero-out; means over draws of who has which rows, and noise seeds. Three ways: `equal`; `exact`,
weights by the error of an agent's gradient alone; `rule`, those that the library takes, which also
counts that agents' populations may differ (tradeoff/rule.py, UNLIKE). In "unlike giant" they do:
four agents of 1,000 rows follow one rule and one of 8,000 follows another, and test rows are as
many of each agent.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from unittest import mock

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits

import hearsay as hs
from hearsay.tradeoff import rule

Rows = tuple[np.ndarray, np.ndarray]
# The constants of the rule for each way.
WAYS = {"equal": {"WORTH": np.inf}, "exact": {"UNLIKE": 0.0}, "rule": {"UNLIKE": rule.UNLIKE}}


def dealt(features: np.ndarray, labels: np.ndarray, sizes: list[int], test: int, draw: int):
    """Rows for agents of those sizes, and others as test rows."""
    order = np.random.default_rng(draw).permutation(len(features))
    parts = np.split(order[: sum(sizes) + test], np.cumsum(sizes))
    *agents, tested = ((features[part], labels[part]) for part in parts)
    return agents, tested


def short(features: np.ndarray) -> np.ndarray:
    """With a constant, at most 1 long."""
    full = np.column_stack([features, np.ones(len(features))])
    return full / np.maximum(1.0, np.linalg.norm(full, axis=1, keepdims=True))


def cancer(draw: int) -> hs.problems.Problem:
    features, labels = load_breast_cancer(return_X_y=True)
    spread = features.max(0) - features.min(0)
    scaled = (features - features.min(0)) / spread * 2 - 1
    agents, test = dealt(short(scaled), labels, [25, 50, 90, 250], 150, draw)
    return hs.problems.logistic(
        agents, feature_bound=1.0, ridge=0.0, test=test, adjacency="zero-out"
    )


def digits(draw: int) -> hs.problems.Problem:
    features, labels = load_digits(return_X_y=True)
    agents, test = dealt(short(features / 16), labels, [30, 60, 120, 300, 800], 400, draw)
    return hs.problems.softmax(
        agents, feature_bound=1.0, ridge=0.0, classes=10, test=test, adjacency="zero-out"
    )


def diabetes(draw: int) -> hs.problems.Problem:
    features, labels = load_diabetes(return_X_y=True)
    full = np.column_stack([features / np.abs(features).max(0), np.ones(len(features))])
    scaled = full / np.sqrt(full.shape[1])
    agents, test = dealt(scaled, (labels - 180) / 180, [25, 50, 90, 200], 75, draw)
    return hs.problems.ridge(
        agents, feature_bound=1.0, label_bound=1.0, ridge=0.0, test=test, adjacency="zero-out"
    )


def unlike(draw: int) -> hs.problems.Problem:
    rng = np.random.default_rng(0)
    one = rng.normal(size=10)
    other = 0.2 * one + rng.normal(size=10)
    rng = np.random.default_rng([draw, 1])

    def rows(count: int, slope: np.ndarray) -> Rows:
        features = rng.normal(size=(count, 10))
        features /= np.maximum(1, np.linalg.norm(features, axis=1, keepdims=True))
        chance = 1 / (1 + np.exp(-8 * features @ slope))
        return features, (rng.random(count) < chance).astype(float)

    agents = [*(rows(1000, one) for _ in range(4)), rows(8000, other)]
    several, alone = rows(4000, one), rows(1000, other)
    test = (np.concatenate([several[0], alone[0]]), np.concatenate([several[1], alone[1]]))
    return hs.problems.logistic(
        agents, feature_bound=1.0, ridge=0.0, test=test, adjacency="zero-out"
    )


DATA: dict[str, tuple[Callable[[int], hs.problems.Problem], tuple[float, ...]]] = {
    "breast-cancer, 25, 50, 90 and 250": (cancer, (1.0, 2.0)),
    "digits-10, 30, 60, 120, 300 and 800": (digits, (1.0, 2.0, 8.0)),
    "diabetes, 25, 50, 90 and 200": (diabetes, (1.0, 2.0)),
    "unlike giant, 4 times 1,000 and 8,000": (unlike, (0.5, 2.0, 8.0)),
}


def score(problem: hs.problems.Problem, epsilon: float, seeds: int) -> float:
    graph = hs.graphs.complete(problem.agents)
    found = hs.rehearse(problem.task, graph, epsilon)
    run = hs.simulate(
        found.algorithm,
        found.prepared(problem),
        graph,
        steps=found.rounds,
        seeds=seeds,
        delta=1e-5,
        reference=False,
        regret=False,
        release=(found.readout,),
    )
    if problem.classification:
        return float(run.final("released_accuracy")[0])
    return float(1 - run.final("released_error")[0] / problem.test_labels.var())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=4)
    options = parser.parse_args()
    print(f"{'records':40}epsilon  {'  '.join(f'{way:>6}' for way in WAYS)}", flush=True)
    for name, (make, budgets) in DATA.items():
        for epsilon in budgets:
            began, reached = time.perf_counter(), []
            for constants in WAYS.values():
                with mock.patch.multiple(rule, **constants):
                    drawn = [score(make(k), epsilon, options.seeds) for k in range(options.draws)]
                reached.append(float(np.mean(drawn)))
            cells = "  ".join(f"{value:6.3f}" for value in reached)
            took = time.perf_counter() - began
            print(f"{name:40}{epsilon:7g}  {cells}   ({took:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
