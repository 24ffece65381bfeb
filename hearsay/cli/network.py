"""`hearsay network`: folders, keys and certificates of a network. All its agents on this machine:
network_up.py. What is read of agents at work or done: network_state.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from hearsay.cli.json_output import answer, answering, of_certificate, of_rehearsal
from hearsay.cli.network_adopt import adopt
from hearsay.cli.network_options import Allow, of_network, require_extra
from hearsay.cli.network_state import release, report, spent, status
from hearsay.cli.network_up import up
from hearsay.cli.screen import console, note, typeable
from hearsay.config import DELTA, EPSILON

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
    epsilon: Annotated[float, typer.Option(help="What every record may cost.")] = EPSILON,
    delta: Annotated[float, typer.Option(help="At which epsilon holds.")] = DELTA,
    colluders: Annotated[
        int | None,
        typer.Option(help="Share noise, against so many of the others that pool what they know."),
    ] = None,
    records: Annotated[
        int | None,
        typer.Option(
            help=(
                "With --schema: how many rows each table will have in the end, where they go on"
                " growing while the network runs."
            )
        ),
    ] = None,
    per_step: Annotated[
        int, typer.Option(help="With --records: how many rows come with every round.")
    ] = 1,
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
    budget = {"epsilon": epsilon, "delta": delta}
    given: dict[str, Any] = {**budget, "port": port, "secure": not plain}
    if records is not None and schema is None:
        raise ValueError("--records must be given with --schema: tables of your own can grow")
    if schema is None:
        config = _dealt_out(folder, data or ["digits"], agents, colluders, given)
    else:
        given |= {"colluders": colluders, "records": records, "per_step": per_step}
        config = _of_tables(folder, schema, data or [], agents, given)
    _print(f"Try it with: {typeable('hearsay', 'network', 'up', config.parent)}")


def _dealt_out(
    folder: Path, data: list[str], agents: int | None, colluders: int | None, given: dict[str, Any]
) -> Path:
    """The net.toml of a public data set that is dealt out."""
    from hearsay.deploy.launch import initialise

    if len(data) > 1 or colluders is not None:
        raise ValueError(
            "--schema must be given with several tables or --colluders: it says what is public"
            " of them (hearsay schema drafts one)"
        )
    many = 5 if agents is None else agents
    return initialise(folder, agents=many, data=data[0], progress=_print, **given)


def _of_tables(
    folder: Path, schema: Path, data: list[str], agents: int | None, given: dict[str, Any]
) -> Path:
    """The net.toml of tables of one's own."""
    from hearsay.deploy.own_tables import initialise_tables

    if agents not in (None, len(data)):
        raise ValueError(f"--agents must be left out: there is one for each table, got {agents}")
    return initialise_tables(folder, schema, [Path(one) for one in data], notify=_print, **given)


def _print(text: str) -> None:
    console.print(text, soft_wrap=True, highlight=False, markup=False)


@network.command()
@of_network
def keys(
    config: Path,
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
@of_network
def check_network(config: Path, allow: Allow = None) -> None:
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
@of_network
def plan_network(config: Path, allow: Allow = None) -> None:
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
    _print(chosen.words)
    for line in chosen.warnings:
        note(f"WARNING: {line}")


for command in (up, status, spent, adopt, report, release):
    network.command()(command)
