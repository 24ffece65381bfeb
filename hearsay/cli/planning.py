"""`hearsay plan`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import typer

from hearsay.cli.building import Rows, built, horizon_of, rehearsed, typed
from hearsay.cli.folders import require_writable
from hearsay.cli.json_output import (
    answer,
    answering,
    of_certificate,
    of_findings,
    of_rehearsal,
)
from hearsay.cli.options import Flag, configurable, word
from hearsay.cli.screen import console, plan_table, theory_table, typeable


@answering
@configurable("steps", "seeds")
def plan(
    config: Any,
    horizon: Annotated[str, typer.Option(help="Number of messages, or inf.")] = "inf",
    epsilons: Annotated[
        str | None,
        typer.Option(help="One target per agent, e.g. 1,1,2,4,8 (instead of --epsilon)."),
    ] = None,
    exponents: Annotated[
        bool,
        Flag(
            "--exponents",
            help="Choose the exponents of all schedules too, for the fastest promised rate.",
        ),
    ] = False,
    samples: Annotated[
        float | None, typer.Option(help="The most records that each agent may use.")
    ] = None,
    out: Annotated[
        Path, typer.Option(help="Where the configuration goes, for hearsay run --config.")
    ] = Path("plan.toml"),
) -> None:
    """Choose the noise (and, on request, the exponents) that meets a privacy target,
    and write a configuration that runs it.

    Without an algorithm all settings are chosen: those that a rehearsal on made-up records finds
    best (docs/settings.md).
    """
    from hearsay._files import write_atomically
    from hearsay.config import dump
    from hearsay.planning import plan as library_plan

    targets: Any = config.privacy.get("epsilon")
    if epsilons is not None:
        targets = [word(part) for part in epsilons.split(",")]
    if targets is None:
        raise ValueError("a plan needs a target: --epsilon, or --epsilons with one per agent")
    require_writable(out.parent)
    rows = Rows()
    if horizon_of(horizon) == math.inf and not exponents and samples is None:
        written, found = rehearsed(config.merged({"privacy": {"epsilon": targets}}), rows)
        if found is not None:
            _rehearsal(written, found, out)
            return
    algorithm, problem, graph = built(config.without("privacy", "epsilon"), rows)
    found = library_plan(
        algorithm,
        problem,
        graph,
        horizon_of(horizon),
        targets,
        delta=config.delta,
        exponents=exponents,
        samples=samples,
    )
    print(found.certificate)
    answer(
        algorithm=found.algorithm.name,
        **of_certificate(found.certificate),
        options={name: str(value) for name, value in found.algorithm.options.items()},
        rate=found.rate,
        oracle=found.oracle,
        records=found.records,
        conditions=of_findings(found.findings),
        config=out,
        certificate=found.certificate,
    )
    plan_table(found)
    theory_table(list(found.findings))
    out.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(out, dump(found.config(config), out.parent).encode())
    _say_how(out, *typed(config))


def _rehearsal(config: Any, found: Any, out: Path) -> None:
    """Say what was chosen and what it costs, and write it."""
    from hearsay._files import write_atomically
    from hearsay.certification import certify
    from hearsay.config import dump

    certificate = certify(found.algorithm, found.task, found.graph, found.rounds, delta=found.delta)
    print(certificate)
    answer(
        algorithm=found.algorithm.name,
        **of_certificate(certificate),
        **of_rehearsal(found),
        config=out,
        certificate=certificate,
    )
    out.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(out, dump(config, out.parent).encode())
    _say_how(out)


def _say_how(out: Path, *typed_again: str) -> None:
    again = typeable("hearsay", "run", *typed_again, "--config", out)
    console.print(f"Run it with: {again}", soft_wrap=True, highlight=False, markup=False)
