"""`hearsay reproduce` and `hearsay data`."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Annotated

import typer

from hearsay.cli import folders
from hearsay.cli.folders import claim, interrupted
from hearsay.cli.json_output import answer, answering
from hearsay.cli.options import DataDir
from hearsay.cli.screen import console, progress_bar


@answering
def reproduce(
    experiment: Annotated[
        str,
        typer.Argument(
            help=(
                "On convex problems: p1-mushrooms, p2-convex, p3-estimation, p4-logistic. With"
                " neural networks: p1-mnist, p1-cifar, p1-table2, "
                "p2-mnist, p2-cifar, p3-mnist, p4-mnist."
            )
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(help="Folder for the results (default: out/EXPERIMENT).")
    ] = None,
    data_dir: DataDir = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            help=(
                "Noise seeds per curve (10 on convex problems; with neural networks 1 for a small"
                " run and 3 for the paper's)."
            )
        ),
    ] = None,
    scale: Annotated[
        str | None,
        typer.Option(
            help=(
                "small, paper, or a number up to 1. Convex problems: that share of the iterations"
                " (small is 0.1, paper is 1, the default). "
                "Neural networks: small (the default) takes minutes on two cores, paper has the"
                " printed numbers and wants a GPU."
            )
        ),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the report that is in --out.")
    ] = False,
) -> None:
    """Repeat a paper's experiment with its settings;
    the report says where our numbers differ, and why.
    """
    from hearsay.experiments import EXPERIMENTS, scale_and_seeds
    from hearsay.experiments.parts import keeping
    from hearsay.experiments.runner import REPORT

    options = scale_and_seeds(experiment, scale, seeds)
    folder = out or Path("out") / experiment
    with folders.command():
        claim(folder)
        if (folder / REPORT).exists() and not overwrite:
            raise ValueError(f"{folder} holds a report: --overwrite replaces it")
        try:
            with keeping(folder) as parts, progress_bar() as show:
                report = EXPERIMENTS[experiment](
                    folder, data_dir=data_dir, progress=show, **options
                )
        except KeyboardInterrupt:
            if not parts.done:
                raise
            page = parts.page(f"{experiment}, interrupted")
            interrupted(f"{len(parts.done)} runs are kept and need not be repeated ({page}).")
        if parts.found:
            console.print(f"{parts.found} of {len(parts.done)} runs were there from before.")
        console.print(f"Report: {report}", soft_wrap=True)
        answer(
            experiment=experiment,
            report=report,
            tables=sorted(folder.glob("*.csv")),
            runs=len(parts.done),
            from_before=parts.found,
            **options,
        )


@answering
def data(
    data_dir: DataDir = None,
    fetch: Annotated[
        list[str] | None,
        typer.Option(help="Download a file into the cache, by its key; repeatable."),
    ] = None,
) -> None:
    """Say which data files are here, and whether they are what they should be."""
    from rich.table import Table

    from hearsay import _validate as require
    from hearsay.problems.data import files

    for key in fetch or []:
        require.one_of("fetch", key, files.FILES)
        with progress_bar() as show:
            path = files.locate(key, data_dir, progress=functools.partial(show, key))
        console.print(f"{key}: {path}", soft_wrap=True)
    table = Table(title="Data files (digits and breast-cancer come with scikit-learn)")
    for column in ("key", "file", "where", "checksum"):
        table.add_column(column, overflow="fold")
    found = files.status(data_dir)
    answer(
        files=[
            {"key": s.key, "file": s.file.path, "found": s.found, "intact": s.checksum_ok}
            for s in found
        ]
    )
    for status in found:
        verdict = {True: "ok", False: "[red]WRONG[/red]", None: "-"}[status.checksum_ok]
        table.add_row(status.key, status.file.path, str(status.found or "missing"), verdict)
    console.print(table)
