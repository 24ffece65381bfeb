"""`hearsay attack`."""

from __future__ import annotations

import functools
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from hearsay.cli.building import built, with_noise
from hearsay.cli.folders import claim, interrupted
from hearsay.cli.json_output import answer, answering, of_sweep
from hearsay.cli.options import Flag, Out, configurable, word
from hearsay.cli.screen import attack_table, console, progress_bar


@answering
@configurable("seeds")
def attack(
    config: Any,
    levels: Annotated[
        str, typer.Option(help="Multiples of the noise, e.g. 0,0.5,1,2.")
    ] = "0,0.5,1,1.5,2",
    targets: Annotated[
        int, typer.Option(help="Records to attack: one of agent 0, 1, ... in turn.")
    ] = 3,
    at_step: Annotated[
        int, typer.Option(help="Attack the batch of this step; step 0 is the easiest.")
    ] = 0,
    restarts: Annotated[
        int, typer.Option(help="Descents from random images; the best fit is kept.")
    ] = 3,
    iterations: Annotated[int, typer.Option(help="The most steps of a descent.")] = 200,
    prior: Annotated[
        bool, Flag("--prior", help="Also use what public images look like (a stronger attack).")
    ] = False,
    known_labels: Annotated[
        bool, Flag("--known-labels", help="Tell the attacker the labels.")
    ] = False,
    out: Out = None,
) -> None:
    """Try to reconstruct training images from what agents send (the DLG attack),
    at several noise levels; leaves a report with the pictures.
    """
    from hearsay.audit.dlg import against_noise
    from hearsay.report.attack import attack_report
    from hearsay.simulation.simulating import enable_compilation_cache

    config = with_noise(
        config.merged({"problem": {"loss": "neural", "model": "cnn-p1", **config.problem}})
    )
    folder = out or Path("out") / f"attack-{time.strftime('%Y%m%d-%H%M%S')}"
    claim(folder)
    enable_compilation_cache()
    algorithm, problem, graph = built(config)
    with progress_bar() as show:
        sweep = against_noise(
            algorithm,
            problem,
            graph,
            levels=[word(part) for part in levels.split(",")],
            targets=targets,
            step=at_step,
            restarts=restarts,
            iterations=iterations,
            prior=prior,
            labels="known" if known_labels else "inferred",
            progress=functools.partial(show, "attack"),
        )
    attack_table(sweep)
    report = attack_report(sweep, folder)
    answer(**of_sweep(sweep), report=report)
    console.print(f"Report: {report}", soft_wrap=True)
    if sweep.left:
        interrupted("The report has the noise levels that are done.")
