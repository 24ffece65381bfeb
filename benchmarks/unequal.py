"""Agents of very different sizes: all count the same, or by how exact what they say is.

    python -m benchmarks.unequal [--draws 3] [--seeds 4] [--colluders 1] [--only digits]

Accuracy of the released model on test rows (diabetes: the share of the variance that is
explained), settings by rehearsal for each way, everybody hears everybody, all others hostile,
zero-out; means over draws of who has which rows, and noise seeds. Three ways: `equal`; `exact`,
weights by the error of an agent's gradient alone; `rule`, those that the library takes, which also
counts that agents' populations may differ (tradeoff/rule.py, UNLIKE). In "unlike giant" they do:
four agents of 1,000 rows follow one rule and one of 8,000 follows another, and test rows are as
many of each agent.

With --colluders pairs of agents share noise, planned for so many of the others, and there are other
ways: `equal`; `unshared`, weights for the noise that agents would have without secrets (before they
were taken from what is left); `rule`. Beside them stands the least and the largest epsilon that an
agent's certificate says.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits

import hearsay as hs
from hearsay.tradeoff import kept, rule

Rows = tuple[np.ndarray, np.ndarray]
_weights = rule.weights


def unshared(*facts: Any) -> tuple[float, ...] | None:
    """The rule's weights without the last fact, what pairs share."""
    return _weights(*facts[:4])


# What of the rule is another for each way.
WAYS: dict[str, dict[str, Any]] = {
    "equal": {"WORTH": np.inf},
    "exact": {"UNLIKE": 0.0},
    "rule": {"UNLIKE": rule.UNLIKE},
}
SECRET: dict[str, dict[str, Any]] = {
    "equal": {"WORTH": np.inf},
    "unshared": {"weights": unshared},
    "rule": {"UNLIKE": rule.UNLIKE},
}


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


def turned(draw: int) -> hs.problems.Problem:
    """Breast-cancer, and the agent with as many rows as all others has their labels turned."""
    features, labels = load_breast_cancer(return_X_y=True)
    spread = features.max(0) - features.min(0)
    scaled = short((features - features.min(0)) / spread * 2 - 1)
    agents, test = dealt(scaled, labels, [60, 60, 60, 60, 240], 80, draw)
    agents[-1] = (agents[-1][0], 1 - agents[-1][1])
    # Four of five agents have the right ones, and test rows are as many of each agent.
    wrong = np.arange(len(test[1])) % 5 == 0
    return hs.problems.logistic(
        agents,
        feature_bound=1.0,
        ridge=0.0,
        test=(test[0], np.where(wrong, 1 - test[1], test[1])),
        adjacency="zero-out",
    )


DATA: dict[str, tuple[Callable[[int], hs.problems.Problem], tuple[float, ...]]] = {
    "breast-cancer, 25, 50, 90 and 250": (cancer, (1.0, 2.0)),
    "digits-10, 30, 60, 120, 300 and 800": (digits, (1.0, 2.0, 8.0)),
    "diabetes, 25, 50, 90 and 200": (diabetes, (1.0, 2.0)),
    "unlike giant, 4 times 1,000 and 8,000": (unlike, (0.5, 2.0, 8.0)),
}


# With secrets, also.
SHARED = {**DATA, "turned giant, 4 times 60 and 240": (turned, (0.5, 1.0, 2.0))}
BUDGETS = (0.5, 1.0, 2.0)


def score(
    problem: hs.problems.Problem, epsilon: float, seeds: int, colluders: int | None
) -> tuple[float, float, float]:
    """(what the released model is worth, the least and the largest epsilon that is certified)."""
    graph = hs.graphs.complete(problem.agents)
    found = hs.rehearse(problem.task, graph, epsilon, colluders=colluders)
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
    spent = run.certificate.epsilon
    if problem.classification:
        return float(run.final("released_accuracy")[0]), min(spent), max(spent)
    share = 1 - run.final("released_error")[0] / problem.test_labels.var()
    return float(share), min(spent), max(spent)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--colluders", type=int)
    parser.add_argument("--only", default="", help="records whose name has this in it")
    options = parser.parse_args()
    colluders = options.colluders
    ways = WAYS if colluders is None else SECRET
    head = "  ".join(f"{way:>6}" for way in ways)
    print(f"{'records':40}epsilon  {head}", flush=True)
    for name, (make, budgets) in (DATA if colluders is None else SHARED).items():
        if options.only not in name:
            continue
        for epsilon in budgets if colluders is None else BUDGETS:
            began, cells = time.perf_counter(), list[str]()
            for way, changed in ways.items():
                # What is chosen in another way is not kept under the same name.
                own = mock.patch.object(kept, "EDITION", (kept.EDITION, way))
                with own, mock.patch.multiple(rule, **changed):
                    drawn = [
                        score(make(k), epsilon, options.seeds, colluders)
                        for k in range(options.draws)
                    ]
                reached, least, most = np.mean(drawn, axis=0)
                spent = "" if colluders is None else f" [{least:.2f} to {most:.2f}]"
                cells.append(f"{reached:6.3f}{spent}")
            took = time.perf_counter() - began
            print(f"{name:40}{epsilon:7g}  {'  '.join(cells)}   ({took:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
