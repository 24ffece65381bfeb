"""What `hearsay certify` prints and writes: one certificate, or one for each adjacency."""

from __future__ import annotations

import json as json_
from collections.abc import Mapping, Sequence
from pathlib import Path

from hearsay._files import write_atomically
from hearsay.base import Algorithm
from hearsay.certification import certify
from hearsay.graphs import Graph
from hearsay.privacy.certificate import Certificate, name, show
from hearsay.problems.task import Task

_MOST = 20  # agents in the table of both numbers


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
        return {"": certify(*given, delta=delta, colluders=colluders)}
    return {
        one: certify(*given, delta=delta, adjacency=one, colluders=colluders) for one in adjacencies
    }


def printed(found: Mapping[str, Certificate], *, json: bool) -> str:
    """All of them, as text with a table of both numbers at the end, or as JSON by adjacency."""
    if json:
        whole = {adjacency: json_.loads(one.to_json()) for adjacency, one in found.items()}
        return found[""].to_json() if "" in found else json_.dumps(whole, indent=2)
    parts = [str(one) for one in found.values()]
    return "\n\n".join(parts if "" in found else [*parts, _both(found)])


def _both(found: Mapping[str, Certificate]) -> str:
    """The same run's budget under either adjacency, an agent a line."""
    first = next(iter(found.values()))
    unit = "epsilon" if all(b.delta is None for b in first.budgets) else "delta"
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
