"""How good a published model of five files is, with no settings at all:
python -m benchmarks.tables [--data breast-cancer,digits,mushrooms] [--splits 20] [--epsilon 1,2]

A data set is dealt out anew for every split: 20 % to test on, the rest into five CSV files with a
header and an id column. NetworkClassifier is given the files, a public schema, epsilon and delta =
1e-5, and nothing else; the adjacency is zero-out. What is measured is the released model on the
test file: once with nobody trusted, once with one colluder planned for. Guessing names the
commonest class.

    breast-cancer    30 numbers, ranges printed in the data set's description
    digits           64 pixels from 0 to 16, 10 classes
    mushrooms        22 categories with the letters of the data set's description (HEARSAY_DATA)
"""

from __future__ import annotations

import argparse
import csv
import tempfile
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import hearsay as hs
from hearsay.problems.data import files
from hearsay.problems.data.datasets import _BREAST_CANCER_RANGES, MUSHROOM_COLUMNS

AGENTS, DELTA, TESTED = 5, 1e-5, 0.2
TRUST = {"all others hostile": None, "one colluder": 1}


class Rows(NamedTuple):
    """A data set as people have it, and what is public of it."""

    schema: hs.Schema
    columns: dict[str, Sequence[Any]]

    def __len__(self) -> int:
        return len(self.columns[self.schema.target])

    def write(self, path: Path, rows: np.ndarray) -> Path:
        """Those rows as a CSV file, with their numbers as identifiers."""
        with path.open("w", newline="", encoding="utf-8") as handle:
            writer = csv.writer(handle)
            writer.writerow(["id", *self.columns])
            writer.writerows([row, *(own[row] for own in self.columns.values())] for row in rows)
        return path


def breast_cancer() -> Rows:
    from sklearn.datasets import load_breast_cancer

    found = load_breast_cancer()
    # Ten means, then ten standard errors, then ten worst values.
    ranges = [one[part] for part in range(3) for one in _BREAST_CANCER_RANGES]
    names = [str(name) for name in found.feature_names]
    columns: dict[str, Any] = {name: hs.Number(*r) for name, r in zip(names, ranges, strict=True)}
    levels = [str(name) for name in found.target_names]
    schema = hs.Schema({**columns, "diagnosis": hs.Category(levels)}, target="diagnosis")
    target = [levels[label] for label in found.target]
    return Rows(
        schema, {**dict(zip(names, found.data.T.tolist(), strict=True)), "diagnosis": target}
    )


def digits() -> Rows:
    from sklearn.datasets import load_digits

    found = load_digits()
    names = [f"pixel {row}.{column}" for row in range(8) for column in range(8)]
    columns: dict[str, Any] = {name: hs.Number(0, 16) for name in names}
    levels = [str(digit) for digit in range(10)]
    schema = hs.Schema({**columns, "digit": hs.Category(levels)}, target="digit")
    pixels = dict(zip(names, found.data.T.tolist(), strict=True))
    return Rows(schema, {**pixels, "digit": [str(label) for label in found.target]})


def mushrooms() -> Rows:
    lines = files.locate("mushrooms", None).read_text(encoding="ascii").split()
    letters = np.array([line.split(",") for line in lines])
    named = {"edible": "ep", **MUSHROOM_COLUMNS}
    columns = {name: hs.Category(list(known)) for name, known in named.items()}
    schema = hs.Schema(columns, target="edible")
    return Rows(schema, dict(zip(named, letters.T.tolist(), strict=True)))


DATA = {"breast-cancer": breast_cancer, "digits": digits, "mushrooms": mushrooms}


def measured(rows: Rows, epsilon: float, colluders: int | None, splits: int) -> tuple[Any, float]:
    """(accuracies of the released model, split by split, seconds of all fits)."""
    found, seconds = [], 0.0
    for split in range(splits):
        order = np.random.default_rng([split, *b"tables"]).permutation(len(rows))
        tested, rest = np.split(order, [round(TESTED * len(rows))])
        with tempfile.TemporaryDirectory() as folder:
            home = Path(folder)
            paths = [
                rows.write(home / f"hospital-{agent}.csv", own)
                for agent, own in enumerate(np.array_split(rest, AGENTS))
            ]
            held_out = rows.write(home / "held-out.csv", tested)
            began = time.perf_counter()
            model = hs.NetworkClassifier(
                epsilon, DELTA, schema=rows.schema, colluders=colluders, random_state=split
            )
            found.append(model.fit(paths).score(held_out))
            seconds += time.perf_counter() - began
            assert max(model.certificate_.epsilon) <= epsilon
            if not split:
                print(f"  {model.rehearsal_.words}", flush=True)
    return np.array(found), seconds


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default=",".join(DATA))
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--epsilon", default="1,2")
    asked = parser.parse_args()
    warnings.simplefilter("always")
    lines = []
    for name in asked.data.split(","):
        rows = DATA[name]()
        counts = np.unique(rows.columns[rows.schema.target], return_counts=True)[1]
        for epsilon in map(float, asked.epsilon.split(",")):
            for trust, colluders in TRUST.items():
                print(f"{name}, epsilon {epsilon:g}, {trust}:", flush=True)
                scores, seconds = measured(rows, epsilon, colluders, asked.splits)
                lines.append(
                    f"{name:<14} {epsilon:>7g}  {trust:<18}  {scores.mean():.3f} ±"
                    f" {scores.std(ddof=1):.3f}  {counts.max() / counts.sum():.3f}"
                    f"  {seconds / asked.splits:5.1f} s"
                )
                print(lines[-1], flush=True)
    print(f"\n{'data':<14} epsilon  {'trust':<18}  accuracy       guess  a fit")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
