"""The files of this folder, from the breast-cancer data set that comes with scikit-learn (the
Wisconsin diagnostic data of the UCI repository, licensed CC BY 4.0).

569 patients in a random order: 91 for each of five hospitals, 100 that nobody trains on, and 14 new
ones whose diagnosis is yet unknown. Added here, and made up: a patient's number, and one cell in a
hundred that is empty. The ranges in schema.toml are those that were published with the data.

    python examples/hospitals/make.py
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer

from hearsay import Category, Ignored, Number, Schema
from hearsay.problems.data.datasets import BREAST_CANCER_RANGES

HERE = Path(__file__).parent
HOSPITALS, EACH, HELD_OUT = ("north", "south", "east", "west", "central"), 91, 100
EMPTY = 0.01


def main() -> None:
    data = load_breast_cancer()
    names = [str(name).replace(" ", "_") for name in data.feature_names]
    low, high = np.array(BREAST_CANCER_RANGES).transpose(2, 1, 0).reshape(2, -1)
    rng = np.random.default_rng(2026)
    order, numbers = rng.permutation(len(data.target)), rng.permutation(len(data.target)) + 1000
    empty = rng.random(data.data.shape) < EMPTY

    def write(file: str, rows: np.ndarray, diagnosis: bool = True) -> None:
        with (HERE / file).open("w", newline="", encoding="utf-8") as stream:
            lines = csv.writer(stream, lineterminator="\n")
            lines.writerow(["patient", *names, *(["diagnosis"] if diagnosis else [])])
            for row in rows:
                cells = [
                    "" if e else f"{v:g}" for v, e in zip(data.data[row], empty[row], strict=True)
                ]
                label = [str(data.target_names[data.target[row]])] if diagnosis else []
                lines.writerow([numbers[row], *cells, *label])

    for place, hospital in enumerate(HOSPITALS):
        write(f"{hospital}.csv", order[place * EACH : (place + 1) * EACH])
    rest = order[len(HOSPITALS) * EACH :]
    write("held-out.csv", rest[:HELD_OUT])
    write("new-patients.csv", rest[HELD_OUT:], diagnosis=False)
    columns = {"patient": Ignored()}
    columns |= {
        n: Number(a, b, "middle")
        for n, a, b in zip(names, low.tolist(), high.tolist(), strict=True)
    }
    columns["diagnosis"] = Category(("benign", "malignant"))
    Schema(columns, "diagnosis").save(HERE / "schema.toml")


if __name__ == "__main__":
    main()
