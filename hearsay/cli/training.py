"""`hearsay run` and `hearsay compare`."""

from __future__ import annotations

import functools
import math
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from hearsay.cli.building import Rows, built, costed, rehearsed, typed, with_costs, with_noise
from hearsay.cli.folders import claim, claim_run, interrupted
from hearsay.cli.json_output import answer, answering, of_release, of_run
from hearsay.cli.options import NAMES, CostsText, Flag, Out, Overwrite, Resume, configurable
from hearsay.cli.screen import console, costs_table, hint, note, progress_bar, summary, typeable
from hearsay.cli.several import taking_part


@answering
@configurable()
def run(
    config: Any,
    budget: Annotated[
        float | None,
        typer.Option(
            help=(
                "Stop before any agent has spent more than this epsilon (ternary messages: before"
                " its delta exceeds --delta)."
            )
        ),
    ] = None,
    costs: CostsText = None,
    out: Out = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
    no_privacy: Annotated[
        bool, Flag("--no-privacy", help="Allow a run whose budget is infinite.")
    ] = False,
    devices: Annotated[
        str | None,
        typer.Option(
            help=(
                "Deal the agents out to so many devices, or all that there are in all processes"
                " (docs/many-machines.md)."
            )
        ),
    ] = None,
) -> None:
    """Train on a simulated network; leaves a folder with certificate, metrics, checkpoint, report
    and the model that may be published.

    Files whose names begin with private- hold what no certificate covers (docs/releasing.md).
    Without an algorithm (and without --steps or any setting of one) the settings are those that a
    rehearsal on made-up records chooses (docs/settings.md). Without --noise or --epsilon the noise
    is set so that every agent spends epsilon = 10.
    """
    config = with_costs(config, costs)
    crew, where = taking_part(devices)
    if resume:
        from hearsay.config import load

        if out is None or not (out / "config.toml").exists():
            raise ValueError(f"--resume needs --out with the folder of a run, got {out}")
        name, kept = config.algorithm.get("name"), load(out / "config.toml")
        same = name == kept.algorithm.get("name") and len(config.algorithm) == 1
        tables = ("problem", "graph", "privacy", "run", "secrets", "faults", "costs")
        if any(getattr(config, table) for table in tables) or (config.algorithm and not same):
            raise ValueError(
                "--resume continues the run that is in --out as it is: give no other settings (only"
                " --budget and --devices)"
            )
        config = kept.allowing(name)
    rows = Rows()
    if not resume:
        config, _ = rehearsed(config, rows)
    config = config.merged({"privacy": {"budget": budget}})
    name = config.algorithm.get("name", "ldp-online").replace(":", ".")
    data = config.problem.get("data", "digits")
    loss = config.problem.get("loss")
    data = loss if loss in ("estimation", "synthetic") else data  # these make their own
    data = "tables" if "schema" in config.problem else data
    folder = out or Path("out") / f"{name}-{data}-{time.strftime('%Y%m%d-%H%M%S')}"
    _run(with_noise(config), rows, folder, resume, overwrite, no_privacy, crew, where)


def _run(
    config: Any,
    rows: Rows,
    out: Path,
    resume: bool,
    overwrite: bool,
    no_privacy: bool,
    crew: Any,
    devices: int | str | None,
) -> None:
    from hearsay._files import write_atomically
    from hearsay._version import VERSION
    from hearsay.certification import unit
    from hearsay.config import dump, in_force
    from hearsay.release.readouts import USUAL
    from hearsay.simulation.simulating import fulfil
    from hearsay.tradeoff.beside import with_beside

    crew.by_first(lambda: claim_run(out, resume, overwrite))
    promised, timeline = crew.together(lambda: _promised(config, rows, no_privacy))
    if not resume:
        of = f"# by hearsay {VERSION}, whose defaults hold for what is not said\n"
        written = (of + dump(in_force(config), out)).encode()
        crew.by_first(lambda: write_atomically(out / "config.toml", written))
    with progress_bar(unit(promised.algorithm)) as show:
        result = fulfil(
            promised,
            seeds=config.seeds,
            every=config.every,
            folder=out,
            resume=resume,
            overwrite=overwrite,
            release=config.release or USUAL,
            progress=functools.partial(show, "training"),
            notify=functools.partial(console.print, highlight=False, soft_wrap=True),
            devices=devices,
        )
    result = with_beside(result, devices)
    if crew.first:
        _reported(result, out, timeline)
    if result.interrupted:
        again = typeable("hearsay", "run", *typed(config), "--resume", "--out", out)
        console.print(f"Continue with: {again}", soft_wrap=True, highlight=False, markup=False)
        raise typer.Exit(130)


def _promised(config: Any, rows: Rows, no_privacy: bool) -> tuple[Any, Any]:
    """(what the configuration asks for, settled before it begins; what it would take on the network
    of its costs, if it has one).
    """
    from hearsay.config import build_faults
    from hearsay.simulation.promise import promise

    algorithm, problem, graph = built(config, rows)
    faults = build_faults(config, algorithm, problem, graph)
    promised = promise(
        algorithm,
        problem,
        graph,
        steps=config.steps,
        budget=config.privacy.get("budget"),
        delta=config.delta,
        faults=faults,
    )
    if not promised.certificate.finite and not no_privacy:
        budgets = promised.certificate.budgets.kinds
        reason = next(b.reason for b in budgets if math.isinf(b.epsilon))
        raise ValueError(
            f"the privacy budget would be infinite ({reason}); use --no-privacy to run anyway"
        )
    timeline = costed(config, algorithm, problem, graph, promised.allowed, faults)
    return promised, timeline


def _reported(result: Any, out: Path, timeline: Any) -> None:
    """What is left in the folder, and on the screen."""
    name = result.algorithm.name
    timeline = None if timeline is None else timeline.at(result.steps)
    report = result.report(out, timeline)
    print(result.certificate)
    answer(**of_run(result, timeline), folder=out, report=report, released=None)
    summary({name: result})
    if timeline is not None:
        costs_table({name: result}, {name: timeline})
    hint({name: result})
    if result.stopped:
        note(f"Stopped early: {result.stopped}")
    console.print(f"Report: {report}", soft_wrap=True)
    _released(result, out / "released")


def _released(result: Any, folder: Path) -> None:
    """Save the model that may be published, and say what it is; nothing where there is none."""
    if not result.releasable:
        return
    model = result.release(folder=folder)
    answer(released=of_release(model, folder))
    console.print(f"\n{model}", soft_wrap=True, highlight=False, markup=False)
    console.print(f"Released model: {folder}", soft_wrap=True)


@answering
@configurable("algorithm")
def compare(
    algorithms: Annotated[list[str], typer.Argument(help=f"Two or more of {NAMES}.")],
    config: Any,
    costs: CostsText = None,
    out: Out = None,
) -> None:
    """Run several algorithms on one problem and graph, at the same --noise or the same --epsilon,
    and compare them in one report; with --costs also at equal time and at equal traffic.
    """
    if len(set(algorithms)) < 2 or len(set(algorithms)) < len(algorithms):
        raise ValueError(
            f"compare needs two or more different algorithms, got {' '.join(algorithms)}"
        )
    from hearsay.certification import unit
    from hearsay.config import build_faults
    from hearsay.release.readouts import USUAL
    from hearsay.report.comparison import comparison_report
    from hearsay.simulation.optimum import Reference
    from hearsay.simulation.simulating import simulate
    from hearsay.tradeoff.beside import with_beside

    out = out or Path("out") / f"compare-{time.strftime('%Y%m%d-%H%M%S')}"
    claim(out)
    runs: dict[str, Any] = {}
    config = with_noise(with_costs(config, costs).allowing(*algorithms), algorithms)
    rows = Rows()
    parts = {name: built(config.merged({"algorithm": {"name": name}}), rows) for name in algorithms}
    faults = {name: build_faults(config, *three) for name, three in parts.items()}
    timelines = {
        name: costed(config, *three, config.steps, faults[name]) for name, three in parts.items()
    }
    shared = parts[algorithms[0]][1]
    reference = Reference(shared)
    try:
        for name, (algorithm, problem, graph) in parts.items():
            with progress_bar(unit(algorithm)) as show:
                done = simulate(
                    algorithm,
                    problem,
                    graph,
                    steps=config.steps,
                    seeds=config.seeds,
                    every=config.every,
                    delta=config.delta,
                    reference=reference,
                    release=config.release or USUAL,
                    faults=faults[name],
                    progress=functools.partial(show, name),
                )
            runs[name] = with_beside(done)
            if runs[name].interrupted:
                break
    except KeyboardInterrupt:
        if not runs:
            raise
    summary(runs)
    hint(runs)
    missing = [name for name in algorithms if name not in runs or runs[name].interrupted]
    notes = [f"INTERRUPTED: {', '.join(missing)} did not come to the end."] if missing else []
    priced = {n: t.at(runs[n].steps) for n, t in timelines.items() if n in runs and t is not None}
    if priced:
        costs_table(runs, priced)
    title = f"Comparison on {shared.name}"
    report = comparison_report(runs, out, title, notes=notes, timelines=priced)
    found = {name: of_run(one, priced.get(name)) for name, one in runs.items()}
    answer(runs=found, missing=missing, report=report)
    console.print(f"Report: {report}", soft_wrap=True)
    if missing:
        interrupted("The report has what is done.")
