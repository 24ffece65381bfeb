"""`hearsay audit`: every part in plain words, with what it does not show;
an interrupt keeps what is finished.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from hearsay.cli.building import built, with_noise
from hearsay.cli.folders import claim
from hearsay.cli.json_output import answer, answering
from hearsay.cli.options import Out, configurable
from hearsay.cli.screen import console, progress_bar


@answering
@configurable("seeds")
def audit(
    config: Any,
    runs: Annotated[
        int, typer.Option(help="Runs per agent, half of them on either data set.")
    ] = 10_000,
    agent: Annotated[
        list[int] | None, typer.Option(help="Only this agent; repeatable (default: every one).")
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            help="Only this part: noise, search or runs; repeatable (default: all three)."
        ),
    ] = None,
    out: Out = None,
) -> None:
    """Attack a configuration: test its noise, search for the worst case, and tell two data sets
    that differ in one record apart by the messages.

    Without --steps 5 messages are audited (pure epsilon adds up worst cases that grow rare: few
    messages give tight bounds). Exit code 4: the noise is not the claimed one, or a certificate is
    exceeded. Ctrl-C keeps what is finished (exit code 130).
    """
    from hearsay.audit.whole import PARTS

    config = with_noise(
        config.merged({"run": {"precision": 64, "steps": config.run.get("steps", 5)}})
    )
    folder = out or Path("out") / f"audit-{time.strftime('%Y%m%d-%H%M%S')}"
    claim(folder)
    code = run_audit(
        built(config),
        folder=folder,
        steps=config.steps,
        runs=runs,
        delta=config.delta,
        agents=agent,
        parts=only or PARTS,
    )
    if code:
        raise typer.Exit(code)


_COLOURS = {
    "EXCEEDED": "red",
    "FAILS": "red",
    "holds": "green",
    "passes": "green",
    "no certificate": "yellow",
}


def run_audit(
    built: tuple[Any, Any, Any],
    *,
    folder: Path,
    steps: int,
    runs: int,
    delta: float | None,
    agents: Sequence[int] | None,
    parts: Sequence[str],
) -> int:
    """Audit, print, write the report; returns the exit code:
    0, 4 (something failed) or 130 (interrupted).
    """
    from hearsay.audit.whole import audit as audited
    from hearsay.report.audit import audit_report
    from hearsay.report.audit_findings import as_data, verdicts

    algorithm, problem, graph = built
    with progress_bar() as show:
        found = audited(
            algorithm,
            problem,
            graph,
            steps=steps,
            runs=runs,
            delta=delta,
            agents=agents,
            parts=parts,
            progress=show,
        )
    for part, why in found.skipped.items():
        _say(f"{part}: not done, because {why}")
    _noise(found)
    _search(found)
    _runs(found, algorithm.name)
    failures = verdicts(found)
    for line in failures:
        _say(line, style="red")
    if not failures:
        _say("Nothing failed. An audit can disprove a certificate, never prove it.")
    if found.missing:
        _say("Interrupted: this audit is partial. Go on with the same command and:", style="yellow")
        for part, left in found.missing.items():
            _say(
                f"  --only {part}"
                + ("" if part == "noise" else "".join(f" --agent {agent}" for agent in left))
            )
    report = audit_report(found, algorithm, problem, folder)
    answer(**as_data(found, algorithm, problem), report=report)
    _say(f"Report: {report}")
    return 4 if failures else 130 if found.missing else 0


def _noise(found: Any) -> None:
    from hearsay.report.audit_noise import noise_rows, noise_words

    if found.noise is None:
        return
    if found.noise.numbers:
        rows = [
            [what, f"{numbers:,}", p, verdict]
            for what, _, numbers, _, p, verdict in noise_rows(found.noise)
        ]
        _table("The noise", ("what was tested", "numbers", "p", "verdict"), rows)
    _say(noise_words(found.noise))


def _search(found: Any) -> None:
    from hearsay.report.audit_findings import search_rows, search_words

    if found.searched:
        header = (
            "agent",
            "whole budget reached",
            "least of a message",
            "most of a message",
            "searched",
            "verdict",
        )
        _table("The worst case that a search found", header, search_rows(found.searched))
        _say(search_words(found.searched))


def _runs(found: Any, name: str) -> None:
    from hearsay.report.audit_findings import alike_words, rows, runs_words

    if not found.found:
        return
    shown = [
        [agent, what, f"{lower:.4g}", f"{certified:.4g}", f"{most:.4g}", verdict]
        for agent, what, lower, certified, most, verdict, _ in rows(found.found)
    ]
    header = ("agent", "what", "lower bound", "certificate", "could have shown", "verdict")
    _table(f"{name}: two data sets told apart by {found.steps} messages", header, shown)
    for line in (*runs_words(found.found), *alike_words(found)):
        _say(line)


def _table(title: str, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    table = Table(*header, title=title)
    for *cells, verdict in rows:
        colour = _COLOURS[verdict]
        table.add_row(*map(str, cells), f"[{colour}]{verdict}[/{colour}]")
    console.print(table)


def _say(text: str, style: str | None = None) -> None:
    console.print(text, style=style, soft_wrap=True, highlight=False, markup=False)
