"""`hearsay agent`: one agent of a real network."""

from __future__ import annotations

import logging
import sys
import traceback
from pathlib import Path
from typing import Annotated

import typer

from hearsay.cli.json_output import answer, answering, of_certificate
from hearsay.cli.network_options import Allow, Insecure, NoPrivacy, Seed, of_network, require_extra


@answering
@of_network
def agent(
    config: Path,
    name: Annotated[str, typer.Option(help="Which agent of net.toml this process is.")],
    data: Annotated[
        Path | None,
        typer.Option(help="The file with this agent's records (instead of net.toml's)."),
    ] = None,
    simulate_noise: Seed = None,
    insecure: Insecure = False,
    no_privacy: NoPrivacy = False,
    allow: Allow = None,
    check: Annotated[
        bool,
        typer.Option("--check", help="Read everything, print the certificate, and send nothing."),
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Log warnings only.")] = False,
) -> None:
    """Run ONE agent: it reads its own records, exchanges noisy messages with its neighbours, and
    keeps a ledger that survives a kill at any moment.

    The same command continues a run that was interrupted. Exit code 5: stopped, say because a
    neighbour stayed silent; try again later, nothing is lost. 6: refused, because neighbours
    disagree or the ledger is not the latest one; trying again changes nothing.
    """
    require_extra()
    from hearsay.deploy.host import save_model, share_heaps

    share_heaps()
    from hearsay.deploy.agent import Agent
    from hearsay.deploy.deployment import deployment, require_safe
    from hearsay.deploy.diagnosis import Expiry
    from hearsay.deploy.ledger import LedgerError
    from hearsay.deploy.settings import load
    from hearsay.simulation.memory import choose
    from hearsay.simulation.simulating import enable_compilation_cache

    logging.basicConfig(
        stream=sys.stderr,
        level=logging.WARNING,
        format="%(asctime)s %(levelname)s %(message)s",
        force=True,
    )
    logging.getLogger("hearsay").setLevel(logging.WARNING if quiet else logging.INFO)
    logging.getLogger("hearsay.owner").setLevel(logging.INFO if check else logging.WARNING)
    log = logging.getLogger("hearsay.agent")
    found = load(config, allow or ())
    require_safe(found, insecure)
    found.members[found.index(name)].require_folder()
    if found.chosen is not None:
        log.info("%s", found.chosen.words)
        for line in found.chosen.warnings:
            log.warning("%s", line)
    if (own := found.members[found.index(name)].credentials) is not None:
        own.verify(name, found.members[found.index(name)].peer.host)
    enable_compilation_cache()
    if found.config.run.get("device"):
        choose(found.config.run["device"])
    plan = deployment(found, found.index(name), data, rehearsed=simulate_noise is not None)
    try:
        one = Agent(found, name, rehearsal=simulate_noise, no_privacy=no_privacy, plan=plan)
    except LedgerError as error:
        raise _ended(error) from None
    own_certificate = one.plan.certificate.of(one.number)
    print(own_certificate, flush=True)
    answer(
        agent=name,
        run=found.run,
        messages=plan.messages,
        **of_certificate(own_certificate),
        model=None,
        certificate=own_certificate,
    )
    if plan.stopped:
        log.warning(
            "%d messages instead of %d: %s", plan.messages, found.config.steps, plan.stopped
        )
    if own is not None:
        Expiry(name, own.certificate).watch()
    if check:
        return
    try:
        model = one.run()
        path = save_model(one.member.state, name, model, one.plan)
        answer(model=path)
        log.info(
            "the agent's own model is in %s: it carries no noise of its own, so keep it here", path
        )
    except Exception as error:
        raise _ended(error) from None


def _ended(error: Exception) -> typer.Exit:
    """Say in the log why an agent ends; with which exit code."""
    from hearsay.deploy.host import Refused, Stopped
    from hearsay.deploy.ledger import LedgerError, LedgerUnavailable

    log = logging.getLogger("hearsay.agent")
    if isinstance(error, (Refused, LedgerError)) and not isinstance(error, LedgerUnavailable):
        log.error("refused: %s", error)
        return typer.Exit(6)
    if isinstance(error, (Stopped, OSError, LedgerUnavailable)):
        log.error("stopped: %s", error)
        return typer.Exit(5)
    # Whatever an exception has to say may quote a record or a state: its kind and its place are all
    # that a log may have.
    place = traceback.extract_tb(error.__traceback__)[-1]
    log.critical(
        "failed: %s in %s, line %s (%s)",
        type(error).__name__,
        place.filename,
        place.lineno,
        place.name,
    )
    return typer.Exit(70)
