"""Rehearsed settings on real data sets, beside the rule's and the three that tell what they are
worth: guessing, alone, no noise.

    python -m benchmarks.settings [--splits 20] [--seeds 2] [--epsilon 1 2] [--data digits]

    breast-cancer, digits, mushrooms    as hearsay's data sets, five agents
    digits-10                           all ten digits, softmax
    wine, iris                          three agents, as tables: columns mapped from their range to
                                        [-1, 1], a constant, rows divided by their length; softmax
    diabetes                            five agents, numbers: the share of variance explained

Adjacency is zero-out, delta = 1e-5, everybody hears everybody; nobody is trusted, or one colluder
is planned for (secrets). Measured is the released model, on records set aside: mean over
splits and noise seeds, simulated by tradeoff/trial.py, which tests hold against the engine.
Settings follow from public facts and are the same for all splits. None of these data sets was
looked at to choose made-up records or candidates.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import hearsay as hs
from hearsay.release.readouts import Tail
from hearsay.tradeoff import usual_graph
from hearsay.tradeoff.choices import COUPLING, Law, by_the_rule, secrets_for
from hearsay.tradeoff.contest import exchanged, guessing
from hearsay.tradeoff.rehearsing import nobody
from hearsay.tradeoff.sizes import some_of
from hearsay.tradeoff.trial import exchange, tried

DELTA = 1e-5
Make = Callable[[int], Any]


def named(build: Callable[..., Any], data: str) -> Make:
    return lambda seed: build(data, ridge=0.0, adjacency="zero-out", seed=seed)


def table(load: Callable[[], Any], agents: int, classes: bool = True) -> Make:
    """A set of scikit-learn as a table; its ranges are taken to be public."""

    def make(seed: int) -> Any:
        bunch = load()
        features, labels = np.asarray(bunch.data, float), np.asarray(bunch.target, float)
        low, high = features.min(axis=0), features.max(axis=0)
        rows = np.c_[2 * (features - low) / (high - low) - 1, np.ones(len(features))]
        columns: dict[str, Any] = {
            f"x{i}": hs.Number(*ends) for i, ends in enumerate(zip(low, high, strict=True))
        }
        if classes:
            columns["y"] = hs.Category([f"{label:g}" for label in np.unique(labels)])
            rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        else:
            columns["y"] = hs.Number(labels.min(), labels.max())
            rows /= np.sqrt(rows.shape[1])
            labels = 2 * (labels - labels.min()) / (labels.max() - labels.min()) - 1
        order = np.random.default_rng(seed).permutation(len(labels))
        test, rest = np.split(order, [len(order) // 5])
        parts = [one[: len(rest) // agents] for one in np.array_split(rest, agents)]
        sets = [(rows[one], labels[one]) for one in parts]
        options = {"feature_bound": 1.0, "ridge": 0.0, "test": (rows[test], labels[test])}
        options |= {"adjacency": "zero-out", "seed": seed}
        if not classes:
            found = hs.problems.ridge(sets, label_bound=1.0, radius=100.0, **options)
        else:
            count = len(np.unique(labels))
            found = hs.problems.softmax(sets, classes=count, **options)
        return replace(found, schema=hs.Schema(columns, "y"))

    return make


def sets() -> dict[str, Make]:
    from sklearn import datasets

    return {
        "breast-cancer": named(hs.problems.logistic, "breast-cancer"),
        "digits": named(hs.problems.logistic, "digits"),
        "digits-10": named(hs.problems.softmax, "digits"),
        "mushrooms": named(hs.problems.logistic, "mushrooms"),
        "wine": table(datasets.load_wine, 3),
        "iris": table(datasets.load_iris, 3),
        "diabetes": table(lambda: datasets.load_diabetes(scaled=False), 5, classes=False),
    }


def mean_score(
    problems: list[Any], passed: Any, column: Any, readout: Any, seeds: int, together: bool = True
) -> float:
    """Of a setting over the splits, each with noise of its own."""

    def score(number: int) -> float:
        own = range(seeds * number, seeds * (number + 1))
        return tried(problems[number], passed, [column], (readout,), own, together).mean()

    with threadpool_limits(1):
        return float(np.mean([score(number) for number in range(len(problems))]))


def row(name: str, make: Make, epsilon: float, colluders: int | None, given: Any) -> str:
    """One line of the table."""
    problems = [make(seed) for seed in range(given.splits)]
    task = replace(problems[0].task, seed=0)
    graph, apart = usual_graph(task.agents), nobody(task.agents)
    found = hs.rehearse(task, graph, epsilon, delta=DELTA, colluders=colluders)
    secrets = secrets_for(colluders, task.agents)
    law = Law(task, graph, epsilon, DELTA, secrets)
    ruled = by_the_rule(task, graph, epsilon, DELTA, secrets)
    single = by_the_rule(task, apart, epsilon, DELTA)
    own = Law(task, apart, epsilon, DELTA, None).column(single)
    alone = exchange(apart, COUPLING, np.zeros((0, 2)))
    # Agents are alike: what the first finds by a rehearsal of its own holds for all.
    first = some_of(task, [0])
    by_itself = hs.rehearse(first, nobody(1), epsilon, delta=DELTA)
    tried_out = Law(task, apart, epsilon, DELTA, None).column(by_itself.choice)
    rows = {
        "alone": (alone, own, Tail(0.25)),
        "alone, rehearsed": (alone, tried_out, by_itself.readout),
        "rule": (exchanged(ruled, law), law.column(ruled), Tail(0.25)),
        "rehearsed": (exchanged(found.choice, law), law.column(found.choice), found.readout),
        "no noise": (
            exchanged(found.choice, law),
            law.column(found.choice, quiet=True),
            found.readout,
        ),
    }
    means = {"guessing": np.mean([guessing(one) for one in problems])}
    for title, way in rows.items():
        means[title] = mean_score(problems, *way, given.seeds, not title.startswith("alone"))
    who = "all others hostile" if colluders is None else "one colluder"
    numbers = " | ".join(f"{value:.3f}" for value in means.values())
    return f"| {name} | {epsilon:g} | {who} | {numbers} | {found.choice.words} |"


def asked(description: str | None, splits: int) -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--splits", type=int, default=splits)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--epsilon", type=float, nargs="+", default=[1.0, 2.0])
    parser.add_argument("--data", nargs="+")
    return parser.parse_args()


def main() -> None:
    given, known = asked(__doc__, 20), sets()
    heads = "data | epsilon | | guessing | alone | alone, rehearsed | rule | rehearsed | no noise"
    print(f"| {heads} | settings |\n|{'---|' * 10}")
    for name in given.data or known:
        for epsilon in given.epsilon:
            for colluders in (None, 1):
                print(row(name, known[name], epsilon, colluders, given), flush=True)


if __name__ == "__main__":
    main()
