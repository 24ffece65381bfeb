"""`hearsay fit`: one table per agent, learned from on a simulated network."""

from __future__ import annotations

import functools
import secrets
import shlex
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from hearsay.cli import folders
from hearsay.cli.folders import claim, interrupted
from hearsay.cli.json_output import answer, answering, of_rehearsal, of_release, of_run
from hearsay.cli.options import Out, Overwrite, Resume
from hearsay.cli.screen import Owner, console, hint, note, progress_bar, summary

RELEASED = "released"


@answering
def fit(
    schema: Annotated[
        Path,
        typer.Argument(
            help="What is public of the tables: a schema.toml (hearsay schema drafts one)."
        ),
    ],
    tables: Annotated[
        list[Path], typer.Argument(help="One table for every agent: CSV, TSV or Parquet files.")
    ],
    epsilon: Annotated[float, typer.Option(help="What every agent may spend.")] = 2.0,
    delta: Annotated[float, typer.Option(help="At which epsilon holds.")] = 1e-5,
    colluders: Annotated[
        int | None,
        typer.Option(
            help=(
                "How many of the other agents may work together against one, where pairs of agents"
                " share secrets (default: all of them, and nobody has secrets)."
            )
        ),
    ] = None,
    test: Annotated[
        Path | None,
        typer.Option(help="A table to test on, of people whose rows are in no agent's table."),
    ] = None,
    model: Annotated[str, typer.Option(help="linear, or a neural network: mlp.")] = "linear",
    graph: Annotated[
        str | None,
        typer.Option(help="ring, star, complete, ... (default: complete up to 10 agents)."),
    ] = None,
    adjacency: Annotated[
        str, typer.Option(help="What is protected: zero-out or replace (docs/adjacency.md).")
    ] = "zero-out",
    seed: Annotated[
        int | None,
        typer.Option(
            help=(
                "Of the simulated noise: whoever knows it can take it off again (default: drawn"
                " from the operating system, and kept in a private file)."
            )
        ),
    ] = None,
    out: Out = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
) -> None:
    """Learn from one table per agent on a simulated network, and write the model that may be
    published into OUT/released.

    Settings come from a rehearsal on made-up records, which sees nothing private. Files whose names
    begin with private- hold what no certificate covers.
    """
    from hearsay import problems
    from hearsay._files import private, write_atomically
    from hearsay.estimators.fitting import graph_of, rehearsed, run_rehearsed
    from hearsay.simulation import checkpoint
    from hearsay.tables.schema import Schema

    folder = out or Path("out") / f"fit-{schema.stem}-{time.strftime('%Y%m%d-%H%M%S')}"
    with folders.command():
        claim(folder)
        if checkpoint.exists(folder) and not resume and not overwrite:
            raise ValueError(
                f"{folder} holds a run: --resume continues it, --overwrite replaces it"
            )
        seed, public = _seed(seed, folder, resume), Schema.load(schema)
        for text in public.warnings:
            note(f"{schema}: {text}")
        problem = problems.tabular(
            tables,
            public,
            test=test,
            model=None if model == "linear" else model,
            adjacency=adjacency,
            seed=seed,
            notify=Owner(),
        )
        network = graph_of(graph, problem.agents)
        with progress_bar() as show:
            found = rehearsed(
                problem, network, epsilon=epsilon, delta=delta, colluders=colluders, progress=show
            )
        _say(found.words)
        for text in found.warnings:
            note(text)
        write_atomically(folder / private("seed.txt"), str(seed).encode())
        with progress_bar() as show:
            result = run_rehearsed(
                found,
                problem,
                network,
                delta=delta,
                seed=seed,
                folder=folder,
                resume=resume,
                progress=functools.partial(show, "training"),
            )
        if result.run.interrupted:
            interrupted("Its checkpoint is kept, and --resume goes on from there.")
        command = _command(schema, tables, epsilon, delta, colluders, model, graph, adjacency)
        _finished(result, folder, command)


def _finished(result: Any, folder: Path, command: str) -> None:
    """Write what there is, and say it."""
    from hearsay.tradeoff.beside import with_beside

    run = with_beside(result.run)
    model = replace(result.model, made={**result.model.made, "command": command})
    report, released = run.report(folder), model.save(folder / RELEASED)
    answer(
        **of_run(run),
        rehearsal=of_rehearsal(result.rehearsal),
        folder=folder,
        report=report,
        released=of_release(model, released),
    )
    print(model)
    if run.tested:
        summary({run.algorithm.name: run})
        hint({run.algorithm.name: run})
    _say(f"Report, private: {report}")
    _say(f"Released model, may be published: {released}")
    _say(f"Predictions: hearsay predict {released} NEW.csv")


def _seed(given: int | None, folder: Path, resume: bool) -> int:
    """The seed of the noise: as given, that of the run that goes on, or a new one."""
    from hearsay import _validate as require
    from hearsay._files import private

    file = folder / private("seed.txt")
    if resume:
        if given is not None:
            raise ValueError("--seed must be left out with --resume: the run has its own")
        if not file.exists():
            raise ValueError(f"--resume needs --out with the folder of a fit, got {folder}")
        given = int(file.read_text(encoding="ascii"))
    return secrets.randbelow(2**31) if given is None else require.natural("seed", given)


def _say(text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def _command(
    schema: Path,
    tables: list[Path],
    epsilon: float,
    delta: float,
    colluders: int | None,
    model: str,
    graph: str | None,
    adjacency: str,
) -> str:
    """As it may be published: files without their folders, and no seed."""
    words = ["hearsay", "fit", schema.name, *(table.name for table in tables)]
    words += ["--epsilon", f"{epsilon:g}", "--delta", f"{delta:g}"]
    words += [] if colluders is None else ["--colluders", f"{colluders}"]
    words += [] if model == "linear" else ["--model", model]
    words += [] if graph is None else ["--graph", graph]
    return shlex.join([*words, "--adjacency", adjacency])
