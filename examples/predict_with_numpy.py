"""Predictions of a released linear model with NumPy alone, for people who have no hearsay.

    python predict_with_numpy.py RELEASED NEW.csv > predictions.csv

RELEASED has model.safetensors and schema.toml. NEW.csv is UTF-8 with commas and a header; its
columns may be in any order, and numbers have a decimal point. What hearsay does beyond that (other
separators and encodings, 1.0 for the level 1, digests that show damage) is not here; the numbers
are the same (tests/release/test_tables.py).
"""

from __future__ import annotations

import csv
import json
import sys
import tomllib

import numpy as np

GAPS = ("", "na", "n/a", "nan", "null")


def weights_of(folder):
    """The numbers of a model.safetensors: 8 bytes say how long its header is."""
    with open(f"{folder}/model.safetensors", "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        kind = {"F64": "<f8", "F32": "<f4"}[header["params"]["dtype"]]
        return np.frombuffer(file.read(), kind)


def unit(column, value):
    """A number from its range to -1 ... 1."""
    low, high = column["range"]
    value, scale = min(max(value, low), high), column.get("scale", "linear")
    if scale == "log":
        low, high, value = np.log([low, high, value])
    return 2 * (value - low) / (high - low) - 1


def entries(column, cell):
    """What a cell becomes in a record."""
    gap, cell = column.get("gap", "refuse"), str(cell).strip()
    missing = cell.lower() in GAPS and cell not in column.get("levels", ())
    if missing and gap == "refuse":
        raise ValueError("this column must be filled in")
    if column["kind"] == "number":
        middle = missing and gap in ("middle", "flag")
        value = 0.0 if middle else unit(column, float(gap if missing else cell))
        return [value, float(missing)] if gap == "flag" else [value]
    levels = column["levels"] + ([] if "other" in column["levels"] else ["other"])
    level = gap if missing else cell
    return [float(one == (level if level in levels else "other")) for one in levels]


def predict(folder, rows):
    """A number for every row, or by level of the target how likely it is."""
    weights = weights_of(folder)
    with open(f"{folder}/schema.toml", "rb") as file:
        schema = tomllib.load(file)
    target = schema["columns"].pop(schema["target"])
    inputs = {k: c for k, c in schema["columns"].items() if c["kind"] != "ignored"}
    said = []
    for row in rows:
        record = np.array([v for k, c in inputs.items() for v in entries(c, row[k])] + [1.0])
        if target["kind"] == "number":
            score = weights @ record / np.sqrt(len(inputs) + 1)
            low, high = target["range"]
            if target.get("scale") == "log":
                said.append(np.exp(np.log(low) + (score + 1) / 2 * np.log(high / low)))
            else:
                said.append(low + (score + 1) / 2 * (high - low))
            continue
        record /= np.linalg.norm(record)
        scores = weights.reshape(-1, len(record)) @ record  # a row per class; of two classes one
        scores = np.append(0.0, scores) if len(scores) == 1 else scores
        chances = np.exp(scores - scores.max())
        said.append(dict(zip(target["levels"], chances / chances.sum(), strict=True)))
    return said


def main():
    folder, table = sys.argv[1:]
    with open(table, newline="", encoding="utf-8-sig") as file:
        said = predict(folder, list(csv.DictReader(file)))
    writer = csv.writer(sys.stdout, lineterminator="\n")
    for place, one in enumerate(said):
        if isinstance(one, dict):
            if not place:
                writer.writerow(["predicted", *one])
            writer.writerow([max(one, key=one.get), *one.values()])
        else:
            if not place:
                writer.writerow(["predicted"])
            writer.writerow([one])


if __name__ == "__main__":
    main()
