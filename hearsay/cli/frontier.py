"""`hearsay frontier` and `hearsay demo`: measure, show the table, write the report."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from hearsay.cli import folders
from hearsay.cli.folders import claim, interrupted
from hearsay.cli.json_output import answer, answering, of_frontier, of_release
from hearsay.cli.options import CHOSEN_BY_RULE, Out, configurable, word
from hearsay.cli.screen import Owner, console, frontier_table, progress_bar


@answering
@configurable(*CHOSEN_BY_RULE)
def frontier(
    config: Any,
    problem: Annotated[
        str | None,
        typer.Argument(
            help=(
                "The data: digits, breast-cancer, mushrooms (logistic regression); mnist, cifar10"
                " (neural networks). Or tables: --schema, --data and --test."
            )
        ),
    ] = None,
    epsilon: Annotated[
        str, typer.Option(help="What every agent may spend: several numbers, e.g. 1,2,4.")
    ] = "1,2,4",
    delta: Annotated[float, typer.Option(help="At which epsilon holds.")] = 1e-5,
    splits: Annotated[
        int, typer.Option(help="How many times records are dealt out anew, and others tested on.")
    ] = 5,
    seeds: Annotated[int, typer.Option(help="Noise seeds for each split.")] = 4,
    series: Annotated[
        str | None,
        typer.Option(help="Some rows of the table only, e.g. alone,secret-batches,secrets-1."),
    ] = None,
    colluders: Annotated[
        str | None,
        typer.Option(
            help=(
                "How many of the others may collude where pairs of agents share secrets: one"
                " number or several, e.g. 1,3 (beside none and half of them). 1 unless given."
            )
        ),
    ] = None,
    out: Out = None,
) -> None:
    """Accuracy against epsilon: every agent alone, all together with nobody trusted or with shared
    secrets, a trusted server. Settings come from a rule that sees no private data; every point has
    its certificate.

    Under zero-out adjacency unless --adjacency says otherwise. Ctrl-C keeps the points that are
    finished; the same command with the same --out goes on.
    """
    tables = "schema" in config.problem
    if tables == (problem is not None):
        raise ValueError(
            "frontier needs either a data set by its name (hearsay frontier breast-cancer) or"
            " tables (--schema, --data and --test)"
        )
    folder = out or Path("out") / f"frontier-{problem or 'tables'}"
    claim(folder)
    missing = run_frontier(
        config if tables else config.merged({"problem": {"data": problem}}),
        folder,
        epsilons=[word(part) for part in epsilon.split(",")],
        delta=delta,
        splits=splits,
        seeds=seeds,
        series=series.split(",") if series else None,
        colluders=[word(part) for part in colluders.split(",")] if colluders else None,
    )
    if missing:
        interrupted("The points that are finished are kept and will not be run again.")


@answering
def demo(out: Out = Path("out/demo")) -> None:
    """Five hospitals in a ring learn together what none may show to the others: what that buys at
    epsilon = 1, 2 and 4, and the model that may be published. A minute or two.
    """
    with folders.command():
        folder = out or Path("out/demo")
        claim(folder)
        if run_demo(folder):
            interrupted("The points that are finished are kept and will not be run again.")


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
    from hearsay.config import build_graph, build_problem, loss_of, tabulated
    from hearsay.report.frontier import verdict
    from hearsay.simulation.memory import choose
    from hearsay.tradeoff import frontier as measured

    if config.secrets:
        raise ValueError(
            "[secrets] must be left out for hearsay frontier: its series are planned for numbers of"
            " colluders themselves (--colluders)"
        )
    if config.faults:
        raise ValueError(
            "[faults] must be left out for hearsay frontier: its settings are chosen for networks"
            " that deliver everything"
        )
    if config.run.get("device"):
        choose(config.run["device"])
    # The noise ends training before weights grow: a penalty on them only costs accuracy.
    usual = {"ridge": 0.0} if loss_of(config) in ("logistic", "softmax") else {}
    config = config.merged({"problem": {**usual, **config.problem}})
    build: Any = functools.partial(build_problem, config)
    if tabulated(config):
        if "test" not in config.problem:
            raise ValueError("--test must name a table to test on, for hearsay frontier on tables")
        # Nothing is dealt out: a split is another seed of the sampling.
        build = functools.partial(replace, build_problem(config, notify=Owner()))
    with progress_bar() as show:
        found = measured(
            lambda seed: build(seed=seed),
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
    answer(**of_frontier(found), report=report)
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
        model = demo.release(folder / "released")
        answer(released=lambda: of_release(model, folder / "released"))
        console.print(str(model), soft_wrap=True, highlight=False)
        console.print(f"Released model: {folder / 'released'}", soft_wrap=True)
        console.print(
            "The papers' methods in the same picture: hearsay frontier breast-cancer",
            soft_wrap=True,
            highlight=False,
        )
    return missing
