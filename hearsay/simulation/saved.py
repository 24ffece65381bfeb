"""A run that is read again from the folder that `Run.save` wrote: its numbers, not its parts.

    run.json               names of algorithm, problem and graph, how many agents, why it stopped
                           early, and the digest of the certificate that belongs to it
    certificate.json       what it cost
    budget.csv             what had been spent at every measured step
    private-metrics.csv    metrics, a row per measured step and seed

Records, weights and messages are not in the folder, so nothing can be computed from a SavedRun that
was not measured; tables (`final`) and figures (`plot`, report/plots.py, report/comparison.py) are
made from it as from a Run. Numbers of the two tables have the ten digits that were written; the
certificate has all of its digits.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np

from hearsay import _validate as require
from hearsay._files import private
from hearsay.privacy.certificate import Certificate
from hearsay.privacy.runs import read_ranges
from hearsay.simulation.measured import Measured
from hearsay.simulation.spent import Spending

if TYPE_CHECKING:
    from hearsay.simulation.result import Run

RUN, CERTIFICATE, BUDGET, METRICS = (
    "run.json",
    "certificate.json",
    "budget.csv",
    private("metrics.csv"),
)
FORMAT = "hearsay run 1"
# What only a Run has: for each of them something is needed that is in no folder.
_ABSENT = ("release", "costs", "report", "save", "raw", "models", "averages", "hearing", "faults")


class Named(NamedTuple):
    """All that is known of an algorithm or a problem."""

    name: str


class NamedGraph(NamedTuple):
    """All that is known of a graph."""

    name: str
    agents: int


@dataclass(frozen=True, eq=False, repr=False)
class SavedRun(Measured):
    """What a simulation has measured, read again: for tables and figures.

    Args:
      algorithm: its name.
      problem: its name.
      graph: its name, and how many agents there were.
      certificate: what the run cost.
      seeds: of the noise.
      steps: (time,), after which it was measured.
      metrics: by name, each (time, seed).
      spending: budgets over time (`spent`: by agent).
      stopped: why it ended early; None if it did not.
    """

    algorithm: Named
    problem: Named
    graph: NamedGraph
    certificate: Certificate
    seeds: list[int]
    steps: np.ndarray
    metrics: dict[str, np.ndarray]
    spending: Spending
    stopped: str | None

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            why = f"{type(self).__name__!r} object has no attribute {name!r}"
            if name in _ABSENT:
                why = (
                    f"a run that is read again has no {name}: records, weights and messages are not"
                    " in its folder (simulate it again; hs.load_model reads a released model)"
                )
            raise AttributeError(why)


def facts(run: Run) -> str:
    """What run.json says."""
    said = {
        "format": FORMAT,
        "algorithm": run.algorithm.name,
        "problem": run.problem.name,
        "graph": run.graph.name,
        "agents": run.graph.agents,
        "stopped": run.stopped,
        "certificate": _digest(run.certificate.to_json()),
        "budget": _digest_of(run.spent_csv().encode()),
    }
    return json.dumps(said, indent=2) + "\n"


def load_run(folder: str | os.PathLike) -> SavedRun:
    """What `Run.save` wrote, for tables and figures: metrics, budgets over time and certificate.

    Args:
      folder: that of `Run.save`, `Run.report` or `hearsay run`.

    Example:
      >>> import tempfile
      >>> import hearsay as hs
      >>> problem, graph = hs.problems.ridge(agents=3, records=60), hs.graphs.ring(3)
      >>> run = hs.simulate(hs.dsgd(noise=0.1), problem, graph, steps=20)
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     hs.load_run(run.save(folder))
      SavedRun(dsgd on linear-stream, 20 steps, 1 seeds)
    """
    path = Path(folder)
    for name in (RUN, CERTIFICATE, BUDGET, METRICS):
        if not (path / name).is_file():
            raise FileNotFoundError(f"{path} must hold a saved run, and has no {name}")
    known = _facts(path / RUN)
    proof = (path / CERTIFICATE).read_text(encoding="utf-8")
    certificate = Certificate.from_json(proof)
    if _digest(proof) != known["certificate"]:
        raise ValueError(f"{path / CERTIFICATE} must be that of the run beside it, and is another")
    if _digest_of((path / BUDGET).read_bytes()) != known["budget"]:
        raise ValueError(f"{path / BUDGET} must be that of the run beside it, and is another")
    agents = require.count(f"agents in {path / RUN}", known["agents"])
    steps, seeds, metrics = _metrics(path / METRICS)
    return SavedRun(
        Named(str(known["algorithm"])),
        Named(str(known["problem"])),
        NamedGraph(str(known["graph"]), agents),
        certificate,
        seeds,
        steps,
        metrics,
        _spending(path / BUDGET, steps, agents, certificate),
        known["stopped"],
    )


def _digest(certificate: str) -> str:
    return str(json.loads(certificate).get("digest"))


def _digest_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _facts(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{file} must be JSON: {error}") from error
    keys = {"format", "algorithm", "problem", "graph", "agents", "stopped", "certificate", "budget"}
    if not isinstance(found, dict) or set(found) != keys or found["format"] != FORMAT:
        require.fail(str(file), f"a {FORMAT}", found)
    return found


def _table(file: Path) -> tuple[list[str], np.ndarray]:
    """(the names of its columns, its numbers)."""
    try:
        head, *rows = csv.reader(io.StringIO(file.read_text(encoding="utf-8")))
        numbers = np.array([[float(cell) for cell in row] for row in rows])
        return head, numbers.reshape(len(rows), len(head))
    except ValueError as error:
        raise ValueError(f"{file} must be a table of numbers: {error}") from error


def _metrics(file: Path) -> tuple[np.ndarray, list[int], dict[str, np.ndarray]]:
    """(steps, seeds, metrics by name): the file has all seeds of a step together."""
    head, rows = _table(file)
    steps = np.unique(rows[:, 0].astype(int))
    seeds = rows[: len(rows) // max(len(steps), 1), 1].astype(int)
    whole = len(rows) > 0 and len(rows) == len(steps) * len(seeds)
    wanted = np.stack([np.repeat(steps, len(seeds)), np.tile(seeds, len(steps))], axis=1)
    if head[:2] != ["step", "seed"] or not whole or not np.array_equal(rows[:, :2], wanted):
        require.fail(str(file), "a row for every measured step and seed", f"{len(rows)} rows")
    shape = (len(steps), len(seeds))
    # The last column is in budget.csv as well.
    found = {name: rows[:, place].reshape(shape) for place, name in enumerate(head)}
    return steps, seeds.tolist(), {name: found[name] for name in head[2:-1]}


def _spending(file: Path, steps: np.ndarray, agents: int, certificate: Certificate) -> Spending:
    """What `Spending.to_csv` wrote: by agent, by kind of the certificate, or by curve."""
    head, rows = _table(file)
    names, curves = head[1:], rows[:, 1:]
    if not np.array_equal(rows[:, 0], steps):
        require.fail(str(file), "a row for every measured step", f"{len(rows)} rows")
    kind = certificate.budgets.kind
    if names == [f"agent_{i}" for i in range(agents)]:
        return Spending.of(curves)
    if names == [f"kind_{i}" for i in range(len(certificate.budgets.kinds))]:
        return Spending(curves, kind)
    whose = [read_ranges(str(file), name.removeprefix("agents ")) for name in names]
    if not np.array_equal(np.sort(np.concatenate(whose)), np.arange(agents)):
        require.fail(str(file), f"a curve for each of the {agents} agents", names)
    kind = np.empty(agents, np.int64)
    for place, some in enumerate(whose):
        kind[some] = place
    return Spending(curves, kind, by_curve=True)
