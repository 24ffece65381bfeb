"""`hearsay network`: folders, keys and certificates of a network, and all its agents on this
machine. What is read of agents at work or done: network_state.py.
"""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from hearsay.cli.json_output import answer, answering, of_certificate, of_rehearsal
from hearsay.cli.network_options import Allow, Insecure, NetConfig, NoPrivacy, Seed, require_extra
from hearsay.cli.network_state import release, report, spent, status
from hearsay.cli.screen import console, errors, network_table, note, watching

network = typer.Typer(
    no_args_is_help=True,
    help="Agents as processes on real machines, peer to peer (docs/network.md).",
)


@network.command()
def init(
    folder: Annotated[Path, typer.Argument(help="A new folder.")],
    schema: Annotated[
        Path | None, typer.Option(help="The schema.toml of tables of your own (with --data).")
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            help=(
                "With --schema: a table, once for every agent. Without: the public data set to"
                " deal out, digits (the default), breast-cancer or mushrooms."
            )
        ),
    ] = None,
    epsilon: Annotated[
        float | None, typer.Option(help="What every record may cost (default: 5).")
    ] = None,
    delta: Annotated[float, typer.Option(help="At which epsilon holds.")] = 1e-5,
    colluders: Annotated[
        int | None,
        typer.Option(help="Share noise, against so many of the others that pool what they know."),
    ] = None,
    agents: Annotated[
        int | None, typer.Option(help="How many agents (default: 5, or one for each table).")
    ] = None,
    port: Annotated[int, typer.Option(help="The first agent's port; the others follow.")] = 7447,
    plain: Annotated[
        bool, typer.Option("--plain", help="Plain TCP on this machine instead of TLS.")
    ] = False,
) -> None:
    """Make a folder to start from: net.toml with rehearsed settings, and test certificates.

    For tables of your own give --schema, and --data once for every agent; otherwise a public data
    set is dealt out.
    """
    require_extra()
    from hearsay.deploy.launch import initialise
    from hearsay.deploy.own_tables import initialise_tables

    def say(text: str) -> None:
        console.print(text, soft_wrap=True, highlight=False, markup=False)

    budget = 5.0 if epsilon is None else epsilon
    if schema is not None:
        if agents not in (None, len(data or ())):
            raise ValueError(
                f"--agents must be left out: there is one for each table, got {agents}"
            )
        config = initialise_tables(
            folder,
            schema,
            [Path(path) for path in data or ()],
            epsilon=budget,
            delta=delta,
            colluders=colluders,
            port=port,
            secure=not plain,
            notify=say,
        )
    else:
        if len(data or ()) > 1 or colluders is not None:
            raise ValueError(
                "--schema must be given with several tables or --colluders: it says what is public"
                " of them (hearsay schema drafts one)"
            )
        config = initialise(
            folder,
            agents=5 if agents is None else agents,
            data=data[0] if data else "digits",
            port=port,
            epsilon=budget,
            secure=not plain,
            progress=say,
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
    require_extra()
    from hearsay.deploy.launch import make_keys
    from hearsay.deploy.settings import load

    folder = out or load(config, settle=False).keys
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
@answering
def check_network(config: NetConfig, allow: Allow = None) -> None:
    """Print the certificate of a network before anything runs; reads nobody's records.

    Exit code 3: the budget is infinite.
    """
    require_extra()
    from hearsay.deploy.deployment import deployment
    from hearsay.deploy.settings import load

    found = load(config, allow or ())
    plan = deployment(found, None)
    print(plan.certificate)
    relays = plan.phases.relays
    answer(
        run=found.run,
        agents=found.names,
        messages=plan.messages,
        relays=relays,
        configuration=found.digest,
        **of_certificate(plan.certificate),
        **({} if found.chosen is None else of_rehearsal(found.chosen)),
        certificate=plan.certificate,
    )
    passed = f", each passed on {relays} times (averaging)" if relays else ""
    console.print(
        f"\n{plan.messages} messages of {', '.join(found.names)}{passed}; configuration"
        f" {found.digest[:16]}",
        soft_wrap=True,
    )
    if found.chosen is not None:
        _say(found.chosen)
    if not plan.certificate.finite:
        raise typer.Exit(3)


@network.command(name="plan")
@answering
def plan_network(config: NetConfig, allow: Allow = None) -> None:
    """Choose settings for a net.toml that has none, by rehearsal on made-up records
    (docs/settings.md), and write them into it; comments stay.
    """
    require_extra()
    from hearsay.deploy.choosing import write
    from hearsay.deploy.settings import load

    found = load(config, allow or ())
    write(config, found)
    answer(run=found.run, config=config, **of_rehearsal(found.chosen))
    _say(found.chosen)
    console.print(f"Wrote them to {config}.", soft_wrap=True)


def _say(chosen: Any) -> None:
    """What was chosen, and what to expect of it."""
    console.print(chosen.words, soft_wrap=True, highlight=False, markup=False)
    for line in chosen.warnings:
        note(f"WARNING: {line}")


@network.command()
@answering
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
    require_extra()
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
                if found.policy == "wait" and fleet.refused:
                    # Nobody can go on without them, and starting them again changes nothing.
                    break
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
    answer(
        run=found.run,
        agents={name: last.get(name) for name in found.names},
        restarts=fleet.restarts,
        failed=fleet.failed,
        state=found.state,
    )
    if fleet.failed:
        # Who was stopped because of the others has nothing to say.
        for name, code in (fleet.refused or fleet.failed).items():
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


for command in (status, spent, report, release):
    network.command()(command)
