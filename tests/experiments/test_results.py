"""What docs/reproducing.md says of the runs as printed is what the files in docs/results say."""

from __future__ import annotations

import csv
import json
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
NAMES = ("p1-mnist", "p2-mnist", "p3-mnist", "p4-mnist")


def in_files() -> set[tuple[str, ...]]:
    found = set()
    for name in NAMES:
        with (DOCS / "results" / name / "ends.csv").open() as file:
            found |= {(name, *row[:5]) for row in list(csv.reader(file))[1:]}
    return found


def in_docs() -> set[tuple[str, ...]]:
    lines = (DOCS / "reproducing.md").read_text().splitlines()
    rows = [tuple(cell.strip() for cell in line.strip("|").split(" | ")) for line in lines]
    return {row for row in rows if row[0] in NAMES}


def test_every_run_has_its_row_and_every_row_its_run():
    assert in_docs() == in_files()


def test_results_say_where_they_come_from_and_what_is_missing():
    for name in NAMES:
        about = json.loads((DOCS / "results" / name / "about.json").read_text())
        assert name in about["command"] and about["device"] and about["minutes"] > 0
        assert isinstance(about["left_out"], list)
        assert (DOCS / "results" / name / "figure.png").stat().st_size > 1000


def test_verdicts_rest_on_the_runs():
    """The orders that the table of figures claims."""
    score = {row[:2]: float(row[4].split()[0]) for row in in_files()}
    p2 = [score["p2-mnist", f"S1, p = {p}"] for p in (-0.1, 0.1, 0.2)]
    assert p2[0] > p2[1] + 0.02 > p2[2] + 0.04
    assert score["p2-mnist", "S2, p = 0.9994"] > score["p2-mnist", "S2, p = 0.9996"] + 0.02
    for tau in (5, 10):
        alone = score["p4-mnist", f"τ = {tau}: independent, as printed"]
        assert score["p4-mnist", f"τ = {tau}: MF (iii), toeplitz, as printed"] > 2 * alone
        assert abs(score["p4-mnist", f"τ = {tau}: MF (i), tree, as printed"] - alone) < 0.1
    assert score["p3-mnist", "output-perturbation, as printed"] < 0.12
    ours = score["p1-mnist", "gradient-perturbation at ε = 8"]
    assert ours > max(s for (name, run), s in score.items() if name == "p1-mnist" and run[0] != "g")
