"""The commands of a real network: one agent, all agents on this machine, certificates,
and a look at who is where.
"""

from __future__ import annotations

import logging
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Annotated, Any

import typer

from hearsay.cli.folders import require_writable
from hearsay.cli.screen import console, errors, network_table, spent_table, watching

NetConfig = Annotated[Path, typer.Option("--config", help="The network's net.toml.")]
Insecure = Annotated[
    bool,
    typer.Option(
        "--insecure",
        help="Allow plain TCP between machines: anybody can listen, forge and disturb.",
    ),
]
NoPrivacy = Annotated[
    bool, typer.Option("--no-privacy", help="Allow a run whose budget is infinite.")
]
Seed = Annotated[
    int | None,
    typer.Option(
        "--simulate-noise",
        metavar="SEED",
        help="NOT PRIVATE, for tests: the simulator's noise of that seed.",
    ),
]
Allow = Annotated[
    list[str] | None,
    typer.Option(
        help=(
            "A place (package.module:Class) that net.toml may name as its algorithm: Python imports"
            " it. Names of installed packages need none; repeatable."
        )
    ),
]

network = typer.Typer(
    no_args_is_help=True,
    help="Agents as processes on real machines, peer to peer (docs/network.md).",
)


def agent(
    config: NetConfig,
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
    _require_extra()
    from hearsay.deploy.agent import Agent
    from hearsay.deploy.deployment import deployment, require_safe
    from hearsay.deploy.diagnosis import Expiry
    from hearsay.deploy.host import save_model
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
    log = logging.getLogger("hearsay.agent")
    found = load(config, allow or ())
    require_safe(found, insecure)
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
    print(one.plan.certificate.of(one.number), flush=True)
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
        log.info(
            "the agent's own model is in %s: it carries no noise of its own, so keep it here", path
        )
    except Exception as error:
        raise _ended(error) from None


@network.command()
def init(
    folder: Annotated[Path, typer.Argument(help="A new folder.")],
    agents: Annotated[int, typer.Option(help="How many agents.")] = 5,
    data: Annotated[
        str, typer.Option(help="The public data set to deal out: digits, breast-cancer, mushrooms.")
    ] = "digits",
    port: Annotated[int, typer.Option(help="The first agent's port; the others follow.")] = 7447,
    plain: Annotated[
        bool, typer.Option("--plain", help="Plain TCP on this machine instead of TLS.")
    ] = False,
) -> None:
    """Make a folder to start from: net.toml, a file of records for every agent,
    test certificates.
    """
    _require_extra()
    from hearsay.deploy.launch import initialise

    config = initialise(
        folder,
        agents=agents,
        data=data,
        port=port,
        secure=not plain,
        progress=lambda t: console.print(t, soft_wrap=True),
    )
    console.print(f"Try it with: hearsay network up --config {config}", soft_wrap=True)


@network.command()
def keys(
    config: NetConfig,
    out: Annotated[
        Path | None, typer.Option(help="The folder (default: what net.toml calls keys).")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")] = False,
) -> None:
    """Make a test certificate authority and a certificate for every agent.

    For production use an authority of your own (docs/operations.md).
    """
    _require_extra()
    from hearsay.deploy.launch import make_keys
    from hearsay.deploy.settings import load

    folder = out or load(config).keys
    if folder is None:
        raise ValueError("keys in [network] must name a folder, or give --out")
    make_keys(folder, config, overwrite=overwrite)
    console.print(
        f"Wrote ca.pem, ca.key and a certificate for every agent to {folder}.", soft_wrap=True
    )
    console.print(
        "Each host needs ca.pem and its own NAME.pem and NAME.key; ca.key stays with you.",
        soft_wrap=True,
    )


@network.command(name="check")
def check_network(config: NetConfig, allow: Allow = None) -> None:
    """Print the certificate of a network before anything runs; reads nobody's records.

    Exit code 3: the budget is infinite.
    """
    _require_extra()
    from hearsay.deploy.deployment import deployment
    from hearsay.deploy.settings import load

    found = load(config, allow or ())
    plan = deployment(found, None)
    print(plan.certificate)
    relays = plan.phases.relays
    passed = f", each passed on {relays} times (averaging)" if relays else ""
    console.print(
        f"\n{plan.messages} messages of {', '.join(found.names)}{passed}; configuration"
        f" {found.digest[:16]}",
        soft_wrap=True,
    )
    if not plan.certificate.finite:
        raise typer.Exit(3)


@network.command()
def up(
    config: NetConfig,
    simulate_noise: Seed = None,
    insecure: Insecure = False,
    no_privacy: NoPrivacy = False,
    allow: Allow = None,
) -> None:
    """Start every agent as a process of this machine and watch them;
    one that is killed is started again. Ctrl-C stops all; the same command continues.
    """
    _require_extra()
    from hearsay.deploy.budget import sizes
    from hearsay.deploy.deployment import deployment, require_safe
    from hearsay.deploy.launch import Fleet, observe, statuses
    from hearsay.deploy.settings import load

    found = load(config, allow or ())
    require_safe(found, insecure)
    plan = deployment(found, None)  # errors in the file are reported once, here
    options = ["--insecure"] * insecure + ["--no-privacy"] * no_privacy
    options += [] if simulate_noise is None else ["--simulate-noise", str(simulate_noise)]
    options += [word for place in allow or () for word in ("--allow", place)]
    fleet = Fleet(config, found, options)
    last: dict[str, Any] = {}
    for number in (signal.SIGTERM, signal.SIGHUP):
        # Whoever ends this command ends its agents.
        signal.signal(number, signal.default_int_handler)
    try:
        fleet.start()
        with observe(found) as observer, watching() as show:
            going = True
            while going:
                going = fleet.watch()
                seen = (
                    {
                        one.name: one.facts
                        for one in statuses(found, observer, seconds=0.2)
                        if one.facts
                    }
                    if going
                    else {}
                )
                last.update(seen)
                for name, spent in zip(found.names, sizes(plan.certificate), strict=True):
                    # It may have ended before it was asked again.
                    if name in last and fleet.processes[name].poll() == 0:
                        last[name] |= {"done": True, "spent": spent, "waiting_for": []}
                show(
                    network_table(
                        found, [(n, last.get(n), n in seen) for n in found.names], fleet.restarts
                    )
                )
                time.sleep(0.3 if going else 0.0)
    except KeyboardInterrupt:
        errors.print("stopping all agents ...")
        fleet.stop()
        console.print(f"Continue with: hearsay network up --config {config}", soft_wrap=True)
        raise typer.Exit(130) from None
    finally:
        fleet.stop()
    if fleet.failed:
        for name, code in fleet.failed.items():
            log = found.members[found.index(name)].state / f"{name}.log"
            errors.print(
                f"{name} ended with code {code}; the end of {log}:", style="red", soft_wrap=True
            )
            errors.print(
                "".join(log.read_text(errors="replace").splitlines(keepends=True)[-3:]),
                markup=False,
                highlight=False,
                soft_wrap=True,
            )
        raise typer.Exit(5)
    console.print(
        f"All {len(found.names)} agents are done. Models, certificates, logs and ledgers:"
        f" {found.state}",
        soft_wrap=True,
    )


@network.command()
def status(
    config: NetConfig,
    once: Annotated[bool, typer.Option("--once", help="Print once and end.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON once and end.")] = False,
) -> None:
    """Who is in which round, with whom, and what has been spent; live until Ctrl-C.

    With --once or --json, exit code 5: somebody was not reached.
    """
    _require_extra()
    import json as library

    from hearsay.deploy.launch import observe, statuses
    from hearsay.deploy.settings import load

    found = load(config)
    with observe(found) as observer:
        if json or once or not console.is_terminal:
            seen = statuses(found, observer)
            if json:
                print(library.dumps({one.name: one.facts for one in seen}, indent=2))
            else:
                console.print(
                    network_table(found, [(s.name, s.facts, s.facts is not None) for s in seen])
                )
            if not all(one.facts for one in seen):
                raise typer.Exit(5)
            return
        try:
            with watching() as show:
                while True:
                    seen = statuses(found, observer, seconds=0.5)
                    show(
                        network_table(found, [(s.name, s.facts, s.facts is not None) for s in seen])
                    )
                    time.sleep(0.5)
        except KeyboardInterrupt:
            return


@network.command()
def spent(
    place: Annotated[Path, typer.Argument(help="A net.toml, or the folder that it calls state.")],
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """What the agents on this host have spent, run by run and in all:
    read from ledgers and budget files, nothing is asked. Exit code 6: a file cannot be read.
    """
    _require_extra()
    import json as library

    from hearsay.deploy.spending import places
    from hearsay.deploy.spending import spent as read
    from hearsay.privacy.codec import encode

    found, wrong = read(places(place))
    if json:
        print(library.dumps(encode(found), indent=2))
    else:
        console.print(spent_table(found))
    for text in wrong:
        errors.print(text, style="red", soft_wrap=True)
    if wrong:
        raise typer.Exit(6)


@network.command()
def report(
    config: NetConfig,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the page (default: out/network-RUN).")
    ] = None,
    allow: Allow = None,
) -> None:
    """Write a page about what the agents on this host did: rounds and budgets over time, who was
    skipped when, the certificate. Read from their ledgers: nobody is asked, nobody is disturbed.

    Exit code 6: a ledger cannot be read, or does not belong to this file; the others are drawn.
    """
    _require_extra()
    from hearsay.deploy.history import read
    from hearsay.report.deployed import deployed_report

    history = read(config, allow or ())
    folder = out or Path("out") / f"network-{history.network.run}"
    require_writable(folder)
    console.print(f"Report: {deployed_report(history, folder)}", soft_wrap=True)
    for text in history.wrong:
        errors.print(text, style="red", soft_wrap=True, markup=False)
    if history.wrong:
        raise typer.Exit(6)


@network.command()
def release(
    config: NetConfig,
    name: Annotated[
        str | None,
        typer.Option(
            help=(
                "One agent's model, with those that it heard (default: the mean of all agents that"
                " have run on this host)."
            )
        ),
    ] = None,
    kind: Annotated[str, typer.Option(help="The average: tail or exponential.")] = "tail",
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
    _require_extra()
    from hearsay.deploy.releasing import release as released
    from hearsay.deploy.settings import load

    model = released(config, name, kind=kind, own=own, rehearsal=rehearsal, allowed=allow or ())
    folder = out or Path("out") / f"release-{load(config, allow or ()).run}"
    require_writable(folder)
    model.save(folder)
    console.print(f"{model}", soft_wrap=True, highlight=False, markup=False)
    console.print(f"Released model: {folder}", soft_wrap=True)


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


def _require_extra() -> None:
    missing = []
    for module in ("zenoh", "safetensors", "cryptography"):
        try:
            __import__(module)
        except ImportError:
            missing.append(module)
    if missing:
        raise ValueError(
            f"{', '.join(missing)} must be installed to run a network: pip install '.[network]' in"
            " a checkout of hearsay"
        )
