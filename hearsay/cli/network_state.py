"""`hearsay network status`, `spent`, `report` and `release`: what is read of agents that are
at work or done.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hearsay._interrupts import counting
from hearsay.cli.folders import require_writable
from hearsay.cli.json_output import Json, answer, answering, of_release
from hearsay.cli.network_options import Allow, Every, Page, net_file, of_network, require_extra
from hearsay.cli.network_watch import WatchedPage
from hearsay.cli.screen import console, errors, network_table, spent_table, watching

if TYPE_CHECKING:
    from hearsay.deploy.settings import Network
    from hearsay.deploy.transport import Observer


@answering
@of_network
def status(
    config: Path,
    once: Annotated[bool, typer.Option("--once", help="Print once and end.")] = False,
    page: Page = None,
    every: Every = 10.0,
    json: Json = False,
) -> None:
    """Who is in which round, with whom, and what has been spent; live until Ctrl-C.

    With --once or --json, exit code 5: somebody was not reached.
    """
    require_extra()
    from hearsay.deploy.launch import observe, statuses
    from hearsay.deploy.settings import load

    found = load(config)
    if page is not None:
        require_writable(page.parent)
    with observe(found) as observer:
        if json or once or not (page or console.is_terminal):
            seen = statuses(found, observer)
            answer(**{one.name: one.facts for one in seen})
            console.print(
                network_table(found, [(s.name, s.facts, s.facts is not None) for s in seen])
            )
            if page is not None:
                shown = WatchedPage(found, page, None)
                shown.saw(seen)
                shown.finish()
                shown.require_written()
            if not all(one.facts for one in seen):
                raise typer.Exit(5)
            return
        _live(found, observer, None if page is None else WatchedPage(found, page, every))


def _live(found: Network, observer: Observer, page: WatchedPage | None) -> None:
    """Until Ctrl-C, or until all are done where there is a page that says so."""
    from hearsay.deploy.launch import statuses

    try:
        with counting() as interrupts, watching() as show:
            while not interrupts.times and not (page and page.watch.all_done):
                seen = statuses(found, observer, seconds=0.5)
                rows = [(s.name, s.facts, s.facts is not None) for s in seen]
                show(network_table(found, rows, lines=console.height))
                if page is not None:
                    page.saw(seen)
                time.sleep(0.5)
    finally:
        # Whatever ended it: nobody shall take an old page for a new one.
        if page is not None:
            page.finish()
    if page is not None:
        page.require_written()


@answering
def spent(
    place: Annotated[
        Path | None,
        typer.Argument(
            metavar="NETWORK",
            help=(
                "A net.toml, the folder in which it lies, or that which it calls state; nothing"
                " where a net.toml lies in this one."
            ),
            show_default=False,
        ),
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", help="A net.toml: the same as an option.")
    ] = None,
) -> None:
    """What the agents on this host have spent, run by run and in all:
    read from ledgers and budget files, nothing is asked. Exit code 6: a file cannot be read.
    """
    require_extra()
    from hearsay.deploy.spending import places
    from hearsay.deploy.spending import spent as read

    found, wrong = read(places(net_file(None, config) if place is None else place))
    answer(**found)
    console.print(spent_table(found))
    for text in wrong:
        errors.print(text, style="red", soft_wrap=True)
    if wrong:
        raise typer.Exit(6)


@answering
@of_network
def report(
    config: Path,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the page (default: out/network-RUN).")
    ] = None,
    allow: Allow = None,
) -> None:
    """Write a page about what the agents on this host did: rounds and budgets over time, who was
    skipped when, the certificate. Read from their ledgers: nobody is asked, nobody is disturbed.

    Exit code 6: a ledger cannot be read, or does not belong to this file; the others are drawn.
    """
    require_extra()
    from hearsay.deploy.history import read
    from hearsay.report.deployed import deployed_report

    history = read(config, allow or ())
    folder = out or Path("out") / f"network-{history.network.run}"
    require_writable(folder)
    page = deployed_report(history, folder)
    answer(run=history.network.run, report=page, wrong=history.wrong)
    console.print(f"Report: {page}", soft_wrap=True)
    for text in history.wrong:
        errors.print(text, style="red", soft_wrap=True, markup=False)
    if history.wrong:
        raise typer.Exit(6)


@answering
@of_network
def release(
    config: Path,
    name: Annotated[
        str | None,
        typer.Option(
            help=(
                "One agent's model, with those that it heard (default: the mean of all agents that"
                " have run on this host)."
            )
        ),
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option(
            help="The average: tail or exponential (default: as [run] of net.toml has it, or tail)."
        ),
    ] = None,
    own: Annotated[
        bool, typer.Option("--own", help="With --name: of its own messages alone.")
    ] = False,
    rehearsal: Annotated[
        bool,
        typer.Option(
            "--rehearsal", help="Also of a run with --simulate-noise, marked as NOT PRIVATE."
        ),
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the model (default: out/release-RUN).")
    ] = None,
    allow: Allow = None,
) -> None:
    """Write the model that may be published, with its certificate: an average of messages that
    were sent and heard, which costs nothing more.

    Read from averages beside the ledgers, while agents run or after; nothing private is read.
    """
    require_extra()
    from hearsay.deploy.releasing import release as released
    from hearsay.deploy.settings import load

    model = released(config, name, kind=kind, own=own, rehearsal=rehearsal, allowed=allow or ())
    folder = out or Path("out") / f"release-{load(config, settle=False).run}"
    require_writable(folder)
    model.save(folder)
    answer(**of_release(model, folder))
    console.print(f"{model}", soft_wrap=True, highlight=False, markup=False)
    console.print(f"Released model: {folder}", soft_wrap=True)
