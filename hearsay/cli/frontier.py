"""What `hearsay frontier` and the demonstration do: measure, show the table, write the report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hearsay.cli.screen import console, frontier_table, progress_bar


def run_frontier(
    config: Any,
    folder: Path,
    *,
    epsilons: Sequence[float],
    delta: float,
    splits: int,
    seeds: int,
    series: Sequence[str] | None = None,
    colluders: Sequence[int] | None = None,
) -> tuple[str, ...]:
    """Measure and report; returns the points that an interruption has left out."""
    from hearsay.config import build_graph, build_problem, loss_of
    from hearsay.report.frontier import verdict
    from hearsay.simulation.memory import choose
    from hearsay.tradeoff import frontier

    if config.secrets:
        raise ValueError(
            "[secrets] must be left out for hearsay frontier: its series are planned for numbers of"
            " colluders themselves (--colluders)"
        )
    if config.run.get("device"):
        choose(config.run["device"])
    # The noise ends training before weights grow: a penalty on them only costs accuracy.
    usual = {"ridge": 0.0} if loss_of(config) in ("logistic", "softmax") else {}
    config = config.merged({"problem": {**usual, **config.problem}})
    with progress_bar() as show:
        found = frontier(
            lambda seed: build_problem(config, seed=seed),
            lambda agents: build_graph(config, agents),
            epsilons,
            delta=delta,
            adjacency=config.problem.get("adjacency", "zero-out"),
            splits=splits,
            seeds=seeds,
            series=series,
            colluders=colluders,
            folder=folder,
            progress=lambda name, done, total: show("frontier", done, total, note=name),
        )
    report = found.report(folder)
    frontier_table(found)
    if said := verdict(found):
        console.print(said, soft_wrap=True, highlight=False)
    if found.found:
        console.print(f"{found.found} points were there from before.")
    console.print(f"Report: {report}", soft_wrap=True)
    return found.missing


def run_demo(folder: Path) -> tuple[str, ...]:
    """The demonstration; returns the points that an interruption has left out."""
    from hearsay.experiments import demo

    missing = run_frontier(
        demo.CONFIG,
        folder,
        epsilons=demo.EPSILONS,
        delta=demo.CONFIG.privacy["delta"],
        splits=demo.SPLITS,
        seeds=demo.SEEDS,
        series=demo.SERIES,
    )
    if not missing:
        console.print(str(demo.release(folder / "released")), soft_wrap=True, highlight=False)
        console.print(f"Released model: {folder / 'released'}", soft_wrap=True)
        console.print(
            "The papers' methods in the same picture: hearsay frontier breast-cancer",
            soft_wrap=True,
            highlight=False,
        )
    return missing
