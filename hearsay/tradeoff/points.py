"""What one series measures at one epsilon, and the folder in which it is kept.

points/SERIES-EPSILON/private-point.json    accuracies, settings, and a mark of all it depends on
points/SERIES-EPSILON/certificate.json      what it cost (several where splits differ in public
                                            facts: certificate-2.json, ...)
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from hearsay._files import private, renamed, write_atomically
from hearsay._version import VERSION
from hearsay.graphs import Graph
from hearsay.problems.problem import Problem
from hearsay.tradeoff import kept, rule
from hearsay.tradeoff.measuring import measured, trained
from hearsay.tradeoff.rehearsal import planned
from hearsay.tradeoff.series import Series, apart
from hearsay.tradeoff.sizes import ALIKE, held_by

_OLD = "point.json"
FOLDER, NAME = "points", private(_OLD)


@dataclass(frozen=True)
class Point:
    """One series at one epsilon.

    Args:
      series: its key.
      label: what readers see.
      epsilon: what every agent may spend; None where a series has one point for all.
      spent: the largest certified epsilon, infinite without noise, 0 for a guess.
      settings: what the rule chose, in words.
      released: accuracy of the released model, one row per split and one number per seed.
      own: of the agents' own models (mean over agents), likewise.
      mark: two points with the same one are the same.
      all_collude: where agents share secrets, the largest epsilon of the same run if all others
        collude.
    """

    series: str
    label: str
    epsilon: float | None
    spent: float
    settings: str
    released: list[list[float]]
    own: list[list[float]]
    mark: str = ""
    all_collude: float | None = None

    @property
    def values(self) -> np.ndarray:
        """(split, seed)."""
        return np.array(self.released)

    @property
    def mean(self) -> float:
        return float(self.values.mean())

    @property
    def deviation(self) -> float:
        """Over all splits and seeds."""
        values = self.values
        return float(values.std(ddof=1)) if values.size > 1 else 0.0

    @property
    def own_mean(self) -> float:
        return float(np.mean(self.own))

    @property
    def cell(self) -> str:
        """What a table shows of it; in brackets epsilon if all others collude."""
        worst = "" if self.all_collude is None else f" [{self.all_collude:.3g}]"
        return f"{self.mean:.3f} ± {self.deviation:.3f}{worst}"


def measure(
    series: Series,
    epsilon: float,
    problems: Sequence[Problem],
    graph: Graph,
    seeds: Sequence[int],
    delta: float,
    mark: str,
) -> tuple[Point, list[str]]:
    """(the point, its certificates as JSON)."""
    plans: dict[str, Any] = {}
    worst: float | None = None
    released, own, certificates, spent, words = [], [], dict[str, None](), 0.0, dict[str, None]()
    for number, problem in enumerate(problems):
        # No two splits share their noise.
        own_seeds = [number * len(seeds) + seed for seed in seeds]
        means = np.zeros((2, len(own_seeds)))
        for placed, heard, share, who in _parts(series, *series.stand(problem, graph)):
            # Splits with the same public facts have the same settings.
            public = replace(placed.task, seed=0).digest()
            if public not in plans:
                plans[public] = planned(series, placed.task, heard, epsilon, delta)
            candidate, algorithm = plans[public]
            run = trained(algorithm, placed, heard, candidate.rounds, own_seeds, delta)
            found = measured(run, series.together)
            means += share * np.array([found.released, found.own])
            spent = max(spent, *found.certificate.epsilon)
            for budget in found.certificate.budgets.kinds:
                if budget.curve:
                    worst = max(worst or 0.0, budget.curve[-1].epsilon)
            if series.private and not spent <= epsilon:
                raise RuntimeError(
                    f"{series.key} must spend at most {epsilon:g}, and its certificate says"
                    f" {spent:g}: nothing was kept of it; please report this"
                )
            certificates[found.certificate.to_json()] = None
            words[who + candidate.words] = None
        released.append(means[0].tolist())
        own.append(means[1].tolist())
    at = epsilon if series.private else None
    point = Point(series.key, series.label, at, spent, "; ".join(words), released, own, mark, worst)
    return point, list(certificates)


def _parts(
    series: Series, problem: Problem, graph: Graph
) -> Iterator[tuple[Problem, Graph, float, str]]:
    """Who has a run of their own: (their problem, who hears whom, which share of all agents they
    are, what they are called before their settings).
    """
    parts = series.parts(problem.counts)
    if len(parts) == 1:
        yield problem, graph, 1.0, ""
        return
    for agents in parts:
        few, many = problem.counts[agents].min(), problem.counts[agents].max()
        who = f"{few:,} records: " if few == many else f"{few:,} to {many:,} records: "
        yield held_by(problem, agents), apart(len(agents)), len(agents) / problem.agents, who


def guessing(problems: Sequence[Problem]) -> Point:
    """Always naming the label that is commoner in the test set."""
    best = [
        [float(np.unique(p.test_labels, return_counts=True)[1].max() / len(p.test_labels))]
        for p in problems
    ]
    return Point("guessing", "guessing", None, 0.0, "always the commoner label", best, best)


def marked(
    series: Series,
    epsilon: float,
    problems: Sequence[Problem],
    graph: Graph,
    seeds: Sequence[int],
    delta: float,
) -> str:
    """A fingerprint of all that a point depends on."""
    constants = (
        rule.DISTANCE,
        rule.TAIL,
        rule.MOST,
        rule.WORK,
        rule.AGREED,
        rule.SHAKEN,
        rule.WORTH,
        rule.UNLIKE,
        kept.EDITION,
        ALIKE,
    )
    at = epsilon if series.private else math.inf
    known = (VERSION, series.key, at, delta, list(seeds), graph.digest(), constants)
    digest = hashlib.sha256(repr(known).encode())
    for problem in problems:
        digest.update(f"{problem.adjacency} {problem.task.digest()}".encode())
        digest.update(problem.records.digest().encode())
        for array in (problem.test_features, problem.test_labels):
            digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def place(folder: Path, series: Series, epsilon: float) -> Path:
    return folder / FOLDER / (f"{series.key}-{epsilon:g}" if series.private else series.key)


def write(home: Path, point: Point, certificates: Sequence[str]) -> None:
    """The certificates first: a point is there once they are."""
    home.mkdir(parents=True, exist_ok=True)
    for number, text in enumerate(certificates):
        name = "certificate.json" if number == 0 else f"certificate-{number + 1}.json"
        write_atomically(home / name, text.encode())
    write_atomically(home / NAME, json.dumps(asdict(point), indent=1).encode())


def read(home: Path, mark: str) -> Point | None:
    """The point that was kept there, if it is this one and whole."""
    renamed(home, _OLD)
    path = home / NAME
    if not path.exists():
        return None
    try:
        found = Point(**json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"{path} must be a point that hearsay frontier wrote, got {error}: remove it to run"
            " it again"
        ) from error
    return found if found.mark == mark and (home / "certificate.json").exists() else None
