"""`hearsay certify`: one certificate, or one for each adjacency."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from hearsay._files import write_atomically
from hearsay.base import Algorithm
from hearsay.certification import calibrate
from hearsay.certification import certify as certified
from hearsay.cli.building import built, horizon_of
from hearsay.cli.json_output import answer, answering, plain
from hearsay.cli.options import configurable
from hearsay.cli.screen import algorithm_line, console, theory_table
from hearsay.graphs import Graph
from hearsay.privacy.certificate import Certificate, name, show
from hearsay.problems.task import Task

_MOST = 20  # agents in the table of both numbers


@answering
@configurable("steps", "seeds", "colluders")
def certify(
    config: Any,
    horizon: Annotated[str, typer.Option(help="Number of messages, or inf.")] = "inf",
    colluders: Annotated[
        int | None,
        typer.Option(
            help=(
                "State epsilon against so many of the other agents: of the noise that [secrets] in"
                " --config plans, or of secrets that are planned for so many."
            )
        ),
    ] = None,
    theory: Annotated[bool, typer.Option(help="Also print the paper's conditions.")] = True,
    out: Annotated[
        Path | None,
        typer.Option(
            help=(
                "Folder to write certificate.json to (with --adjacency both:"
                " certificate-replace.json and certificate-zero-out.json)."
            )
        ),
    ] = None,
) -> None:
    """Print the privacy certificate of a configuration, before anything is sent.

    With --adjacency both it prints the certificate of the same run under either adjacency. Exit
    code 3: the budget is infinite.
    """
    messages = horizon_of(horizon)
    target = config.privacy.get("epsilon")
    config, adjacencies = _adjacencies(config)
    if colluders is not None and "colluders" not in config.secrets:
        config, colluders = config.merged({"secrets": {"colluders": colluders}}), None
    algorithm, problem, graph = built(config.without("privacy", "epsilon"))
    if target is not None:
        algorithm = calibrate(algorithm, problem, graph, messages, target, delta=config.delta)
    found = certificates(algorithm, problem, graph, messages, config.delta, adjacencies, colluders)
    print(printed(found))
    answer(**(plain(found[""]) if "" in found else found))
    if out is not None:
        written(found, out)
    console.print(f"\n{algorithm_line(algorithm)}", soft_wrap=True, highlight=False)
    if theory:
        from hearsay.algorithms.theory.findings import findings

        theory_table(findings(algorithm, graph, problem))
    if not all(certificate.finite for certificate in found.values()):
        raise typer.Exit(3)


def _adjacencies(config: Any) -> tuple[Any, tuple[str, ...]]:
    """(the configuration, what to certify it under); of two neither is the problem's own."""
    if config.problem.get("adjacency") != "both":
        return config, ()
    if "epsilon" in config.privacy:
        raise ValueError(
            "--adjacency must be replace or zero-out where --epsilon chooses the noise, got both:"
            " give the noise (--noise) for both numbers of the same run"
        )
    from hearsay.privacy.adjacency import RELATIONS

    return config.without("problem", "adjacency"), tuple(RELATIONS)


def certificates(
    algorithm: Algorithm,
    problem: Task,
    graph: Graph,
    horizon: float,
    delta: float | None,
    adjacencies: Sequence[str],
    colluders: int | None = None,
) -> dict[str, Certificate]:
    """By adjacency; under the problem's own, by the name "", where none is given."""
    given = (algorithm, problem, graph, horizon)
    if not adjacencies:
        return {"": certified(*given, delta=delta, colluders=colluders)}
    return {
        one: certified(*given, delta=delta, adjacency=one, colluders=colluders)
        for one in adjacencies
    }


def printed(found: Mapping[str, Certificate]) -> str:
    """All of them, with a table of both numbers at the end."""
    parts = [str(one) for one in found.values()]
    return "\n\n".join(parts if "" in found else [*parts, _both(found)])


def _both(found: Mapping[str, Certificate]) -> str:
    """The same run's budget under either adjacency, an agent a line."""
    first = next(iter(found.values()))
    unit = "epsilon" if all(b.delta is None for b in first.budgets.kinds) else "delta"
    lines = [f"The same run under both adjacencies, {unit}:", ""]
    lines.append("  agent" + "".join(f"{adjacency:>12}" for adjacency in found))
    for place, budget in enumerate(first.budgets[:_MOST]):
        numbers = [getattr(one.budgets[place], unit) for one in found.values()]
        cells = "".join(f"{show(number):>12}" for number in numbers)
        lines.append(f"  {name(budget.agent, first.names):>5}{cells}")
    more = len(first.budgets) - _MOST
    return "\n".join([*lines, *([f"  ... and {more:,} more agents"] if more > 0 else [])])


def written(found: Mapping[str, Certificate], folder: Path) -> list[Path]:
    """Where they are now, for `hearsay verify`."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for adjacency, one in found.items():
        path = folder / (f"certificate-{adjacency}.json" if adjacency else "certificate.json")
        write_atomically(path, one.to_json().encode())
        paths.append(path)
    return paths
