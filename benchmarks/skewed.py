"""Columns that span several powers of ten: counted evenly, or by powers (scale = "log").

    python -m benchmarks.skewed [--draws 5]

Each task is a table with public ranges, dealt out to agents, and fitted twice at the same
epsilon: with the ranges as they are, and with scale = "log" where values span powers of ten. `died`
and `costs` are made-up visits to five hospitals (age, C-reactive protein, troponin and income with
zeros): who dies, and what it costs. `cancer` is breast-cancer in its own units, where some columns
are lengths and areas of which the largest are ten and more times the smallest; ranges are half and
twice of the ends, rounded, that its description publishes. Accuracy and area under the ROC curve,
of costs the share of the variance of their logarithm that is explained; means over draws of the
rows and of the noise.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import r2_score, roc_auc_score

import hearsay as hs

Table = dict[str, np.ndarray]


def visits(draw: int, rows: int = 3000) -> Table:
    rng = np.random.default_rng(draw)
    age, crp = rng.integers(18, 96, rows), np.exp(rng.normal(1.5, 2.0, rows))
    troponin = np.where(rng.random(rows) < 0.3, 0, np.exp(rng.normal(2, 2.5, rows)))
    income = np.where(rng.random(rows) < 0.12, 0, np.exp(rng.normal(10, 1.1, rows)))
    risk = 0.04 * (age - 60) + 0.9 * (np.log(crp) - 1.5) + 0.35 * np.log1p(troponin) - 2.4
    costs = 6 + 0.9 * np.log1p(crp) + 0.3 * np.log1p(troponin) + 0.01 * age
    return {
        "age": age,
        "crp": crp,
        "troponin": troponin,
        "income": income,
        "died": np.where(risk + rng.normal(0, 0.7, rows) > 0, "yes", "no"),
        "costs": np.exp(costs + rng.normal(0, 0.5, rows)),
    }


def visited(target: str, scale: str) -> hs.Schema:
    columns: dict[str, Any] = {
        "age": hs.Number(18, 100),
        "crp": hs.Number(0.1, 3000, scale=scale),
        "troponin": hs.Number(0.1, 50_000, scale=scale),
        "income": hs.Number(100, 1e6, scale=scale),
    }
    last = {"died": hs.Category(["no", "yes"]), "costs": hs.Number(100, 2e6, scale=scale)}
    return hs.Schema({**columns, target: last[target]}, target=target)


def cancer(scale: str) -> tuple[Table, hs.Schema]:
    found = load_breast_cancer()
    table = dict(zip(found.feature_names, found.data.T, strict=True))
    columns: dict[str, Any] = {}
    for name, values in table.items():
        low, high = (float(f"{end:.1g}") for end in (values.min(), values.max()))
        wide = low > 0 and high / low >= 10
        columns[name] = hs.Number(low / 2, high * 2, scale=scale if wide else "linear")
    table["kind"] = found.target_names[found.target]
    columns["kind"] = hs.Category(list(found.target_names))
    return table, hs.Schema(columns, target="kind")


def split(table: Table, draw: int, test: int) -> tuple[list[Table], Table]:
    """Five agents, and rows to test on."""
    order = np.random.default_rng(draw).permutation(len(next(iter(table.values()))))
    parts = [order[:test], *np.array_split(order[test:], 5)]
    held, *agents = ({name: values[part] for name, values in table.items()} for part in parts)
    return agents, held


def measured(table: Table, schema: hs.Schema, epsilon: float, draw: int) -> list[float]:
    agents, held = split(table, draw, len(next(iter(table.values()))) // 5)
    given = {"epsilon": epsilon, "schema": schema, "random_state": 1000 + draw}
    truth = held[schema.target]
    if schema.classes is None:
        said = hs.NetworkRegressor(**given).fit(agents).predict(held)
        return [r2_score(np.log(truth), np.log(np.clip(said, 100, 2e6)))]
    model = hs.NetworkClassifier(**given).fit(agents)
    chance = model.predict_proba(held)[:, 1]
    return [model.score(held), roc_auc_score(truth == schema.classes[1], chance)]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--draws", type=int, default=5)
    draws = range(parser.parse_args().draws)
    print(f"{'task':<16}{'epsilon':>8}{'linear':>16}{'log':>16}")
    for task in ("died", "costs", "cancer"):
        for epsilon in (1.0, 2.0):
            shown = []
            for scale in ("linear", "log"):
                found = []
                for draw in draws:
                    table, schema = (
                        cancer(scale) if task == "cancer" else (visits(draw), visited(task, scale))
                    )
                    found.append(measured(table, schema, epsilon, draw))
                shown.append(", ".join(f"{one:.3f}" for one in np.mean(found, axis=0)))
            print(f"{task:<16}{epsilon:>8g}{shown[0]:>16}{shown[1]:>16}", flush=True)


if __name__ == "__main__":
    main()
