"""The frontier: every series at every epsilon, kept as it is finished."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hearsay import _validate as require
from hearsay._files import held, private, renamed, write_atomically
from hearsay.graphs import Graph
from hearsay.privacy.certificate import show
from hearsay.problems.problem import Problem, require_records
from hearsay.problems.task import Task
from hearsay.tradeoff.points import FOLDER, Point, guessing, marked, measure, place, read, write
from hearsay.tradeoff.rule import prepared
from hearsay.tradeoff.series import Series
from hearsay.tradeoff.sharing import chosen_series
from hearsay.tradeoff.sizes import classes

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, eq=False)
class Frontier:
    """Accuracy against epsilon, series by series.

    Args:
      points: what was measured, in the order of the series.
      problem: its name.
      graph: its name.
      agents: how many.
      records: the fewest and the most that an agent holds.
      epsilons: what was asked for.
      delta: at which.
      adjacency: what neighbouring data sets differ in.
      missing: points that an interruption has left out, in words.
      found: how many were there from before.
    """

    points: tuple[Point, ...]
    problem: str
    graph: str
    agents: int
    records: tuple[int, int]
    epsilons: tuple[float, ...]
    delta: float
    adjacency: str
    missing: tuple[str, ...] = ()
    found: int = 0

    def at(self, series: str, epsilon: float | None = None) -> Point:
        """The point of a series; its only one where it has one for all."""
        if (found := self.point(series, epsilon)) is not None:
            return found
        known = ", ".join(dict.fromkeys(point.series for point in self.points))
        raise ValueError(
            f"series must be one of {known} with a point at epsilon = {epsilon}, got {series!r}"
        )

    @property
    def rows(self) -> list[tuple[str, str, list[Point | None]]]:
        """(key, label, a point per epsilon), one row per series; the same point in every column
        where a series has one for all.
        """
        found = dict.fromkeys((point.series, point.label) for point in self.points)
        return [(key, label, [self.point(key, e) for e in self.epsilons]) for key, label in found]

    def point(self, series: str, epsilon: float | None = None) -> Point | None:
        """As `at`, or None where there is none."""
        return next(
            (p for p in self.points if p.series == series and p.epsilon in (epsilon, None)), None
        )

    def __str__(self) -> str:
        wide = max(len(label) for _, label, _ in self.rows)
        cells = [[p.cell if p else "-" for p in points] for _, _, points in self.rows]
        each = max(14, *(len(cell) for row in cells for cell in row))
        heads = [f"eps = {e:g}" for e in self.epsilons]
        lines = [self.title, *([self.note] if self.note else [])]
        for label, row in zip(["", *(row[1] for row in self.rows)], [heads, *cells], strict=True):
            lines.append("   ".join([f"{label:{wide}}", *(f"{c:{each}}" for c in row)]).rstrip())
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        from hearsay.report.inline import frontier_html

        return frontier_html(self)

    @property
    def note(self) -> str:
        """What brackets in the table mean; "" where there are none."""
        shares = any(point.all_collude is not None for point in self.points)
        return "In brackets: epsilon of the same run if all others collude." if shares else ""

    @property
    def title(self) -> str:
        """What was measured, in one line."""
        few, many = self.records
        each = f"{few:,}" if few == many else f"{few:,} to {many:,}"
        splits, seeds = self.points[0].values.shape[0], max(p.values.shape[1] for p in self.points)
        return (
            f"{self.problem}: {self.agents} agents with {each} records each, {self.graph},"
            f" delta = {self.delta:g}, {self.adjacency}; accuracy of the released model, mean ±"
            f" standard deviation over {_many(splits, 'split')} and {_many(seeds, 'noise seed')}"
        )

    def to_csv(self) -> str:
        """One row per point."""
        head = "series,epsilon,certified,all_collude,accuracy,deviation,own_models,splits,seeds"
        rows = [
            [
                p.series,
                "" if p.epsilon is None else f"{p.epsilon:g}",
                show(p.spent),
                "" if p.all_collude is None else show(p.all_collude),
                f"{p.mean:.6f}",
                f"{p.deviation:.6f}",
                f"{p.own_mean:.6f}",
                *p.values.shape,
                p.settings,
            ]
            for p in self.points
        ]
        return _csv([[*head.split(","), "settings"], *rows])

    def runs_csv(self) -> str:
        """One row per run: every split and seed."""
        head = ["series", "epsilon", "split", "seed", "released", "own_models"]
        rows = [
            [p.series, "" if p.epsilon is None else f"{p.epsilon:g}", split, seed, value, own]
            for p in self.points
            for split, (values, owns) in enumerate(zip(p.released, p.own, strict=True))
            for seed, (value, own) in enumerate(zip(values, owns, strict=True))
        ]
        return _csv([head, *rows])

    def report(self, folder: str | os.PathLike) -> Path:
        """Write the table, as text and CSV, and a page, all of them private; returns the path of
        the page.
        """
        from hearsay.report.frontier import frontier_report

        home = Path(folder)
        home.mkdir(parents=True, exist_ok=True)
        texts = {
            "frontier.txt": f"{self}\n",
            "frontier.csv": self.to_csv(),
            "runs.csv": self.runs_csv(),
        }
        if (home / FOLDER).is_dir():
            renamed(home, *texts, "report.html")
        for name, text in texts.items():
            write_atomically(home / private(name), text.encode())
        return frontier_report(self, home)


@require.plain_arguments
def frontier(
    problem: Problem | Callable[..., Problem],
    graph: Graph | Callable[[int], Graph],
    epsilons: Sequence[float] = (1.0, 2.0, 4.0),
    *,
    delta: float = 1e-5,
    adjacency: str = "zero-out",
    splits: int = 1,
    seeds: int = 4,
    series: Sequence[str] | None = None,
    colluders: Sequence[int] | int | None = None,
    folder: str | os.PathLike | None = None,
    progress: Progress | None = None,
) -> Frontier:
    """Accuracy against epsilon for everybody alone, on the network, and at a trusted server.

    The settings come from rules that see public facts only (tradeoff/rule.py). Ctrl-C returns the
    points that are finished; the same call with the same folder goes on from there.

    Args:
      problem: a classification problem with a test set, or a function that makes one for a `seed`,
        such as functools.partial(hearsay.problems.logistic, "digits", ridge=0.0).
      graph: who hears whom, or a function of the number of agents.
      epsilons: what every agent may spend.
      delta: at which.
      adjacency: "zero-out" or "replace".
      splits: how many times the records are split anew (seeds 0, 1, ... of the function).
      seeds: noise seeds for each split.
      series: some of tradeoff.sharing.KEYS, or secrets-N for N colluders; all unless given.
      colluders: that the series "secrets" is planned for, beside none and half of the others: 1
        unless given.
      folder: where points and their certificates are kept.
      progress: called with what is done, and how much of how much.

    Example:
      >>> import hearsay as hs
      >>> problem = hs.problems.logistic("digits", agents=3, ridge=0.0)
      >>> found = hs.frontier(problem, hs.graphs.ring(3), [2.0], seeds=1, series=["central"])
      >>> [point.series for point in found.points]
      ['guessing', 'central']
    """
    spend = tuple(sorted(set(require.each(require.positive)("epsilons", epsilons))))
    if not spend:
        require.fail("epsilons", "at least one number", epsilons)
    delta, seeds = require.fraction("delta", delta), require.count("seeds", seeds)
    problems = _splits(problem, require.count("splits", splits), adjacency)
    first = problems[0]
    on = graph if isinstance(graph, Graph) else graph(first.agents)
    on.require_agents(first.agents)
    alike = len(classes(first.counts)) == 1
    wanted = chosen_series(series, first.agents, colluders, alike)
    points, missing, found = [guessing(problems)], list[str](), 0
    home = None if folder is None else Path(folder)
    todo = [(one, e) for one in wanted for e in (spend if one.private else spend[-1:])]
    with held(home):
        for done, (one, epsilon) in enumerate(todo):
            name = one.key + (f" at {epsilon:g}" if one.private else "")
            if missing:
                missing.append(name)
                continue
            if progress is not None:
                progress(name, done, len(todo))
            try:
                point, kept = _point(home, one, epsilon, problems, on, range(seeds), delta)
            except KeyboardInterrupt:
                missing.append(name)
                continue
            points.append(point)
            found += kept
        if progress is not None and not missing:
            progress("done", len(todo), len(todo))
    held_by = np.concatenate([p.counts for p in problems])
    return Frontier(
        tuple(points),
        first.name,
        on.name,
        first.agents,
        (int(held_by.min()), int(held_by.max())),
        spend,
        delta,
        adjacency,
        tuple(missing),
        found,
    )


def _point(
    home: Path | None,
    series: Series,
    epsilon: float,
    problems: list[Problem],
    graph: Graph,
    seeds: Sequence[int],
    delta: float,
) -> tuple[Point, bool]:
    """(what is kept in the folder, or else measured and kept, whether it was there)."""
    mark = marked(series, epsilon, problems, graph, seeds, delta)
    where = None if home is None else place(home, series, epsilon)
    before = None if where is None else read(where, mark)
    if before is not None:
        return before, True
    try:
        point, certificates = measure(series, epsilon, problems, graph, seeds, delta, mark)
    except ValueError as error:
        raise ValueError(
            f"{series.key} cannot be measured here: {error} (name the other series to leave it out)"
        ) from error
    if where is not None:
        write(where, point, certificates)
    return point, False


def _splits(problem: Any, splits: int, adjacency: str) -> list[Problem]:
    if isinstance(problem, Problem) and splits > 1:
        require.fail("splits", "1 for one problem (give a function of the seed instead)", splits)
    if isinstance(problem, Task):
        require_records(problem)
    made = [problem] if isinstance(problem, Task) else [problem(seed=s) for s in range(splits)]
    return [prepared(_classifying(one).under(adjacency)) for one in made]


def _classifying(problem: Any) -> Problem:
    require_records(problem)
    if not problem.classification:
        require.fail(
            "problem",
            "a classification problem: the frontier is about accuracy, and for regression hearsay"
            " compare shows errors",
            problem.name,
        )
    if problem.endless:
        require.fail("problem", "one with finitely many records", problem.name)
    if not len(problem.test_labels):
        require.fail("problem", "one with records to test on", problem.name)
    return problem


def _many(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _csv(rows: list[list[Any]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()
