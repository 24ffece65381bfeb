"""One runner for all experiments: settings in, folder with a report out.

`reproduce` reads what the files say (settings.py), lets the experiment's own function measure, and
writes what it found: a folder per run, a CSV file per table, and report.html with the notes.
"""

from __future__ import annotations

import csv
import importlib
import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from hearsay._files import write_atomically
from hearsay.base import Algorithm
from hearsay.experiments import settings
from hearsay.experiments.parts import complete, simulate
from hearsay.experiments.settings import Settings, Table
from hearsay.graphs import Graph
from hearsay.problems import Problem
from hearsay.simulation.optimum import Reference
from hearsay.simulation.result import Run

Progress = Callable[[str, int, int], None]
Item = TypeVar("Item")
# The papers' data sets are public: the name says nothing else.
REPORT = "report.html"


@dataclass(frozen=True, eq=False)
class Experiment:
    """An experiment that is being run.

    Args:
      settings: what the files say about it.
      seeds: how many noise seeds every curve has.
      scale: a share of the paper's iterations, or the name of a scale.
      data_dir: where data files are.
      progress: called with a stage, how much of it is done, and of how much.
      first_seed: the seeds are this one and those that follow it.
    """

    settings: Settings
    seeds: int = 1
    scale: str | float = 1.0
    data_dir: str | None = None
    progress: Progress = lambda stage, done, total: None
    first_seed: int = 0

    def share(self, count: float, least: int) -> int:
        """That share of a number which the scale is, but no less than `least`."""
        return max(least, round(count * float(self.scale)))

    def each(self, stage: str, items: Iterable[Item]) -> Iterator[Item]:
        """The items one by one; what is done is shown when the next one is asked for."""
        todo = list(items)
        for index, item in enumerate(todo):
            yield item
            self.progress(stage, index + 1, len(todo))

    def run(self, algorithm: Algorithm, problem: Problem, graph: Graph, **options: Any) -> Run:
        """With all seeds, unless told otherwise."""
        seeds = [*range(self.first_seed, self.first_seed + self.seeds)]
        return complete(simulate(algorithm, problem, graph, **{"seeds": seeds, **options}))


@dataclass(eq=False)
class Findings:
    """What a measure returns.

    Args:
      runs: set side by side in the report.
      tables: in the report, and a CSV file each.
      files: a CSV file each, and not in the report.
      figures: with their captions.
      saved: runs that get a folder of their own, by its path.
      values: what the notes and the title speak of.
    """

    runs: Mapping[str, Run] = field(default_factory=dict)
    tables: Mapping[str, Table] = field(default_factory=dict)
    files: Mapping[str, Table] = field(default_factory=dict)
    figures: list[tuple[str, Any]] = field(default_factory=list)
    saved: Mapping[str, Run] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)


def reproduce(
    name: str,
    folder: Path,
    *,
    data_dir: str | None,
    seeds: int,
    scale: str | float,
    progress: Progress,
    first_seed: int = 0,
    problem: Mapping[str, Any] | None = None,
    **options: Any,
) -> Path:
    """Run the experiment and write folder/report.html and what belongs to it.

    Args:
      name: of the experiment.
      first_seed: the noise seeds are this one and those that follow it.
      problem: keys of its problem to replace, for a test on other data.
      options: of its own measure.
    """
    found = settings.read(name).replaced(problem=problem or {})
    experiment = Experiment(found, seeds, scale, data_dir, progress, first_seed)
    file, function = found["measure"].split(":")
    measure = getattr(importlib.import_module(f"{__package__}.{file}"), function)
    return write(folder, experiment, measure(experiment, **options))


def write(folder: Path, experiment: Experiment, found: Findings) -> Path:
    from hearsay.report.comparison import comparison_report

    for path, run in found.saved.items():
        run.save(folder / path)
    save_tables(folder, {**found.tables, **found.files})
    return comparison_report(
        found.runs,
        folder,
        experiment.settings.title(**found.values),
        notes=[*quick_look(experiment), *experiment.settings.notes(found.values)],
        tables=list(found.tables.values()),
        figures=found.figures,
        name=REPORT,
    )


def quick_look(experiment: Experiment) -> list[str]:
    """What a reader of a shortened experiment's report has to know first."""
    scale = experiment.scale
    if isinstance(scale, str) or scale >= 1:
        return []
    whole = "small scale" if "scales" in experiment.settings.keys else "paper's iterations"
    return [
        f"A quick look, at {scale:g} times the {whole}: where the figures and tables below name one"
        " of the paper's, they are of the shorter run."
    ]


def save_tables(folder: Path, tables: Mapping[str, Table]) -> None:
    """One CSV file per table, beside the report."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, (_, header, rows) in tables.items():
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([header, *rows])
        write_atomically(folder / f"{name}.csv", text.getvalue().encode())


def conditions(title: str, findings: list[Any]) -> Table:
    """A table of theory findings."""
    rows = [[f.name, "yes" if f.holds else "no", f.detail] for f in findings]
    return title, ["condition", "holds", "detail"], rows


def swept(
    experiment: Experiment,
    candidates: Mapping[float, Any],
    problem: Problem,
    graph: Graph,
    steps: int,
    reference: Reference,
    spread: float = 0.0,
) -> tuple[Any, float]:
    """The candidate with the smallest tracking error over the whole run (three seeds), and its
    key.
    """
    scores = {}
    for key, candidate in candidates.items():
        run = experiment.run(
            candidate,
            problem,
            graph,
            steps=steps,
            seeds=3,
            every=max(1, steps // 100),
            reference=reference,
            regret=False,
            spread=spread,
        )
        scores[key] = float(run.metrics["tracking_error"].mean())
    best = min(scores, key=lambda s: np.nan_to_num(scores[s], nan=np.inf))
    return candidates[best], best


def with_step_factors(algorithm: Any, factors: Iterable[float]) -> dict[float, Any]:
    """The algorithm with its step size multiplied by each factor."""
    return {f: replace(algorithm, step=algorithm.step.scaled(f)) for f in factors}


def powers_of_two(least: int, most: int, by: int = 1) -> list[float]:
    """2^least, ..., 2^most."""
    return [2.0**power for power in range(least, most + 1, by)]
