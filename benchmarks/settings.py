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
splits and noise seeds, simulated by the engine. Settings are chosen before any record is read and
are the same for all splits. None of these data sets was looked at to choose made-up records or
candidates.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

import hearsay as hs
from hearsay.release.readouts import Tail
from hearsay.tradeoff import usual_graph
from hearsay.tradeoff.choices import Choice, by_the_rule, secrets_for
from hearsay.tradeoff.rehearsing import guessing, nobody

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


def score(problem: Any, graph: Any, choice: Choice, readout: Any, noise: Any, seeds: Any) -> float:
    """Of the released model; without edges the mean over the agents' own."""
    prepared = choice.prepared(problem)
    algorithm = replace(choice.algorithm, noise=noise)
    run = hs.simulate(
        algorithm, prepared, graph, steps=choice.rounds, seeds=seeds, every=8, delta=DELTA,
        reference=False, regret=False, release=(readout,),
    )  # fmt: skip
    models = run.averages[readout.name]
    models = models.mean(axis=1, keepdims=True) if graph.edges else models
    flat = models.reshape(-1, models.shape[-1])
    margins = [prepared.loss.margins(one, prepared.test_features) for one in flat]
    if problem.classification:
        named = [np.asarray(prepared.loss.predict(one)) for one in margins]
        return float(np.mean([one == problem.test_labels for one in named]))
    wrong = np.mean([(one - problem.test_labels) ** 2 for one in margins])
    return float(1 - wrong / problem.test_labels.var())


def row(name: str, make: Make, epsilon: float, colluders: int | None, given: Any) -> str:
    """One line of the table."""
    problems = [make(seed) for seed in range(given.splits)]
    task = replace(problems[0].task, seed=0)
    graph, apart = usual_graph(task.agents), nobody(task.agents)
    found = hs.rehearse(task, graph, epsilon, delta=DELTA, colluders=colluders)
    secrets = secrets_for(colluders, task.agents)
    ruled = by_the_rule(task, graph, epsilon, DELTA, secrets)
    single = by_the_rule(task, apart, epsilon, DELTA)

    def noise(choice: Choice, on: Any) -> Any:
        prepared = choice.prepared(task)
        return hs.calibrate(
            choice.algorithm, prepared, on, choice.rounds, epsilon, delta=DELTA
        ).noise

    rows = {
        "alone": (apart, single, Tail(), noise(single, apart)),
        "rule": (graph, ruled, Tail(0.25), noise(ruled, graph)),
        "rehearsed": (graph, found.choice, found.readout, found.algorithm.noise),
        "no noise": (graph, replace(found.choice, colluders=None), found.readout, 0.0),
    }
    means = {"guessing": np.mean([guessing(one) for one in problems])}
    for title, (on, choice, readout, level) in rows.items():
        seeds = [0] if title == "no noise" else None
        means[title] = np.mean(
            [
                score(
                    one, on, choice, readout,
                    hs.Constant(level) if isinstance(level, float) else level,
                    seeds or [given.seeds * number + s for s in range(given.seeds)],
                )
                for number, one in enumerate(problems)
            ]
        )  # fmt: skip
    who = "all others hostile" if colluders is None else "one colluder"
    numbers = " | ".join(f"{value:.3f}" for value in means.values())
    return f"| {name} | {epsilon:g} | {who} | {numbers} | {found.choice.words} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--epsilon", type=float, nargs="+", default=[1.0, 2.0])
    parser.add_argument("--data", nargs="+")
    given = parser.parse_args()
    known = sets()
    heads = "data | epsilon | | guessing | alone | rule | rehearsed | no noise | settings"
    print(f"| {heads} |\n|{'---|' * 9}")
    for name in given.data or known:
        for epsilon in given.epsilon:
            for colluders in (None, 1):
                print(row(name, known[name], epsilon, colluders, given), flush=True)


if __name__ == "__main__":
    main()
