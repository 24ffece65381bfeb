"""`hearsay network up`: all agents of a network as processes of this machine, watched."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from hearsay._interrupts import counting
from hearsay.cli.folders import require_writable
from hearsay.cli.json_output import answer, answering
from hearsay.cli.network_options import (
    Allow,
    Every,
    Insecure,
    NoPrivacy,
    Page,
    Seed,
    of_network,
    require_extra,
)
from hearsay.cli.network_watch import WatchedPage
from hearsay.cli.screen import console, errors, network_table, typeable, watching

if TYPE_CHECKING:
    from hearsay.deploy.launch import Fleet
    from hearsay.deploy.settings import Network

_TOLD = 10  # of how many agents that failed the log is quoted
Facts = dict[str, dict[str, Any]]


@answering
@of_network
def up(
    config: Path,
    simulate_noise: Seed = None,
    insecure: Insecure = False,
    no_privacy: NoPrivacy = False,
    allow: Allow = None,
    page: Page = None,
    every: Every = 10.0,
) -> None:
    """Start every agent as a process of this machine and watch them;
    one that is killed is started again. Ctrl-C stops all; the same command continues.
    """
    require_extra()
    from hearsay.deploy.budget import sizes
    from hearsay.deploy.deployment import deployment, require_safe
    from hearsay.deploy.launch import Fleet, crowded
    from hearsay.deploy.settings import load

    found = load(config, allow or ())
    if page is not None:
        require_writable(page.parent)
    require_safe(found, insecure)
    for member in found.members:
        member.require_folder()
    plan = deployment(found, None)  # errors in the file are reported once, here
    options = ["--insecure"] * insecure + ["--no-privacy"] * no_privacy
    options += [] if simulate_noise is None else ["--simulate-noise", str(simulate_noise)]
    options += [word for place in allow or () for word in ("--allow", place)]
    if why := crowded(len(found.names)):
        errors.print(why, style="yellow", soft_wrap=True)
    fleet = Fleet(config, found, options)
    shown = None if page is None else WatchedPage(found, page, every)
    last = _run(fleet, dict(zip(found.names, sizes(plan.certificate), strict=True)), shown)
    answer(
        run=found.run,
        agents={name: last.get(name) for name in found.names},
        restarts=fleet.restarts,
        failed=fleet.failed,
        state=found.state,
    )
    if fleet.failed:
        _say_why(fleet)
        raise typer.Exit(5)
    console.print(
        f"All {len(found.names)} agents are done. Models, certificates, logs and ledgers:"
        f" {found.state}",
        soft_wrap=True,
    )
    marked = [] if simulate_noise is None else ["--rehearsal"]
    release = typeable("hearsay", "network", "release", config, *marked)
    console.print(
        f"The model that their messages make: {release}",
        soft_wrap=True,
        highlight=False,
        markup=False,
    )


def _run(fleet: Fleet, budgets: dict[str, float], page: WatchedPage | None = None) -> Facts:
    """What every agent has last said of itself, once all have ended; they end with this command,
    whoever ends it.
    """
    with counting() as interrupts:
        try:
            fleet.start()
            last = _watched(fleet, budgets, interrupts, page)
            if last is None:
                errors.print("stopping all agents ...")
        finally:
            fleet.stop(at_once=lambda: interrupts.times > 1)
            if page is not None:
                page.finish()
        if last is not None:
            return last
        again = typeable("hearsay", "network", "up", fleet.config)
        console.print(f"Continue with: {again}", soft_wrap=True, highlight=False, markup=False)
        raise typer.Exit(130)


def _watched(
    fleet: Fleet, budgets: dict[str, float], interrupts: counting, page: WatchedPage | None
) -> Facts | None:
    """Show what agents say of themselves until all have ended, or nobody can go on; None where this
    was interrupted before.
    """
    from hearsay.deploy.launch import observe, statuses

    network, last = fleet.network, {}
    with observe(network) as observer, watching() as show:
        going = True
        while going:
            if interrupts.times:
                return None
            going = fleet.watch()
            if network.policy == "wait" and fleet.refused:
                # Nobody can go on without them, and starting them again changes nothing.
                break
            asked = statuses(network, observer, seconds=0.2) if going else []
            seen = {one.name: one.facts for one in asked if one.facts}
            if page is not None:
                page.saw(asked)
            last.update(seen)
            for name, spent in budgets.items():
                # It may have ended before it was asked again.
                if name in last and fleet.processes[name].poll() == 0:
                    last[name] |= {"done": True, "spent": spent, "waiting_for": []}
            rows = [(name, last.get(name), name in seen) for name in network.names]
            show(network_table(network, rows, fleet.restarts, console.height))
            time.sleep(0.3 if going else 0.0)
    return last


def _say_why(fleet: Fleet) -> None:
    """The end of the logs of those that have failed."""
    # Who was stopped because of the others has nothing to say.
    ended = fleet.refused or fleet.failed
    for name, code in list(ended.items())[:_TOLD]:
        log = _log(fleet.network, name)
        errors.print(
            f"{name} ended with code {code}; the end of {log}:", style="red", soft_wrap=True
        )
        said = log.read_text(errors="replace")
        errors.print(
            "".join(said.splitlines(keepends=True)[-3:]),
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
        if not said.endswith("\n"):
            errors.print(f"{log} breaks off: its disk may be full.", style="red", soft_wrap=True)
    if len(ended) > _TOLD:
        more = ", ".join(list(ended)[_TOLD:])
        errors.print(f"So ended, with their own codes: {more}", style="red", soft_wrap=True)


def _log(network: Network, name: str) -> Path:
    return network.members[network.index(name)].state / f"{name}.log"
