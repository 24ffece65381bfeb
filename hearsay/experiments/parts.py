"""Finished parts of an experiment, kept on disk until the whole of it is done.

An experiment is many simulations and one report at the end. While `keeping` is entered every
simulation that has come to its end is written to a folder `parts`, under a fingerprint of all that
it depends on, so that the same command goes on where an interrupt, a kill or a full disk ended it.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hearsay.base import Algorithm
from hearsay.graphs import Graph
from hearsay.privacy.certificate import Certificate, show
from hearsay.problems.problem import Problem
from hearsay.simulation import checkpoint
from hearsay.simulation.result import Run
from hearsay.simulation.simulating import fingerprint
from hearsay.simulation.simulating import simulate as library_simulate

FOLDER, PAGE = "parts", "interrupted.html"


@dataclass
class Parts:
    """The parts of one experiment: `done` are those of this call, the `found` first ones of them
    came from an earlier one.
    """

    home: Path
    done: list[Run] = field(default_factory=list)
    found: int = 0

    def page(self, title: str) -> Path:
        """What there is so far, marked as no more than that."""
        from hearsay.report.comparison import comparison_report

        rows = [
            [
                r.algorithm.name,
                r.problem.name,
                int(r.steps[-1]),
                len(r.seeds),
                show(max(r.certificate.epsilon)),
            ]
            for r in self.done
        ]
        table = (
            "Runs that are finished",
            ["algorithm", "problem", "steps", "seeds", "largest epsilon"],
            rows,
        )
        note = (
            "INTERRUPTED: this is no report of the experiment, only a list of its runs that are"
            " finished and kept."
        )
        return comparison_report(
            {}, self.home, title, notes=[note], tables=[table] if rows else [], name=PAGE
        )


_current: ContextVar[Parts | None] = ContextVar("parts", default=None)


@contextlib.contextmanager
def keeping(folder: Path) -> Iterator[Parts]:
    """Keep what is finished in that folder; when all of it is, the parts are removed."""
    parts = Parts(folder)
    token = _current.set(parts)
    try:
        yield parts
    finally:
        _current.reset(token)
    shutil.rmtree(folder / FOLDER, ignore_errors=True)
    (folder / PAGE).unlink(missing_ok=True)


def complete(run: Run) -> Run:
    """An experiment made of cut-off runs would be a false report: an interrupted one ends it."""
    if run.interrupted:
        raise KeyboardInterrupt
    return run


def simulate(algorithm: Algorithm, problem: Problem, graph: Graph, **options: Any) -> Run:
    """hearsay.simulate, unless this very run is already there."""
    parts = _current.get()
    if parts is None:
        return complete(library_simulate(algorithm, problem, graph, **options))
    asked = {k: v for k, v in options.items() if k != "reference"} | {
        "reference": bool(options.get("reference", True))
    }
    mark = fingerprint(algorithm, problem, graph, tuple(sorted(asked.items())))
    path = parts.home / FOLDER / f"{mark[:32]}.npz"
    if path.exists():
        run = _read(path, algorithm, problem, graph)
        parts.found += 1
    else:
        run = complete(library_simulate(algorithm, problem, graph, **options))
        path.parent.mkdir(parents=True, exist_ok=True)
        checkpoint.write(path, _arrays(run))
    parts.done.append(run)
    return run


def _arrays(run: Run) -> dict[str, np.ndarray]:
    return {
        "certificate": np.array(run.certificate.to_json()),
        "seeds": np.array(run.seeds),
        "steps": run.steps,
        "spent": run.spent,
        "models": run.models,
        "stopped": np.array(run.stopped or ""),
        "seconds": np.array(run.seconds),
        **{f"raw_{name}": values for name, values in run.raw.items()},
    }


def _read(path: Path, algorithm: Algorithm, problem: Problem, graph: Graph) -> Run:
    stored = checkpoint.read(path)
    certificate = Certificate.from_json(str(stored["certificate"]))
    raw = {
        name[len("raw_") :]: values for name, values in stored.items() if name.startswith("raw_")
    }
    return Run(
        algorithm,
        problem,
        graph,
        certificate,
        stored["seeds"].tolist(),
        stored["steps"],
        raw,
        stored["spent"],
        stored["models"],
        str(stored["stopped"]) or None,
        float(stored["seconds"]),
    )
