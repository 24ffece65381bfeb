"""What the experiments share."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hearsay._files import write_atomically
from hearsay.experiments.parts import complete, simulate
from hearsay.graphs import Graph
from hearsay.problems.problem import Problem
from hearsay.simulation.optimum import Reference

Progress = Callable[[str, int, int], None]
Table = tuple[str, list[str], list[list[str]]]


def conditions(title: str, findings: list[Any]) -> Table:
    """A table of theory findings."""
    rows = [[f.name, "yes" if f.holds else "no", f.detail] for f in findings]
    return title, ["condition", "holds", "detail"], rows


def save_tables(folder: Path, tables: dict[str, Table]) -> None:
    """One CSV file per table, beside the report."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, (_, header, rows) in tables.items():
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([header, *rows])
        write_atomically(folder / f"{name}.csv", text.getvalue().encode())


def swept(
    candidates: dict[float, Any],
    problem: Problem,
    graph: Graph,
    steps: int,
    reference: Reference,
    spread: float = 0.0,
    delta: float | None = None,
) -> tuple[Any, float]:
    """The candidate with the smallest tracking error over the whole run (three seeds),
    and its key.
    """
    scores = {}
    for key, candidate in candidates.items():
        run = complete(
            simulate(
                candidate,
                problem,
                graph,
                steps=steps,
                seeds=3,
                every=max(1, steps // 100),
                reference=reference,
                regret=False,
                spread=spread,
                delta=delta,
            )
        )
        scores[key] = float(run.metrics["tracking_error"].mean())
    best = min(scores, key=lambda s: np.nan_to_num(scores[s], nan=np.inf))
    return candidates[best], best


def stepped(algorithm: Any, powers: range) -> dict[float, Any]:
    """The algorithm with its step size multiplied by powers of two."""
    return {2.0**p: replace(algorithm, step=algorithm.step.scaled(2.0**p)) for p in powers}


__all__ = [
    "Progress",
    "Table",
    "complete",
    "conditions",
    "save_tables",
    "simulate",
    "stepped",
    "swept",
]
