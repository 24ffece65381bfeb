"""What a simulation leaves behind: numbers in memory, and a folder that anyone can read."""

from __future__ import annotations

import csv
import io
import os
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hearsay._files import private, write_atomically
from hearsay.base import Algorithm
from hearsay.graphs import Graph
from hearsay.privacy.certificate import Certificate
from hearsay.problems.problem import Problem
from hearsay.release.readouts import ReadOut
from hearsay.simulation.faults import Faults
from hearsay.simulation.hearing import Hearing
from hearsay.simulation.measured import Measured
from hearsay.simulation.saved import BUDGET, CERTIFICATE, RUN, facts
from hearsay.simulation.saved import METRICS as TABLE
from hearsay.simulation.spent import Spending

if TYPE_CHECKING:
    from hearsay.release.model import ReleasedModel
    from hearsay.simulation.costs import Costs, Timeline

METRICS = {
    "tracking_error": (
        "squared distance to the running optimum, mean over (at most 16 evenly spaced) agents"
    ),
    "regret": "instantaneous regret against the running optimum, mean over agents",
    "dynamic_regret": "sum of the instantaneous regrets so far (trapezoids between measured steps)",
    "mean_model_error": "distance of the agents' mean model to the running optimum",
    "consensus_error": "mean squared distance of the agents to their mean model",
    "accuracy": "accuracy on the test set, mean over agents",
    "train_accuracy": "accuracy on (about 1,000 of) the training records, mean over agents",
    "accuracy_worst": "accuracy on the test set of the worst agent",
    "test_error": (
        "mean squared error on the test set, mean over agents (of labels as records have them: a"
        " table's target on the scale from -1 to 1)"
    ),
    "test_loss": "loss on the test set, mean over agents",
    "released_accuracy": (
        "accuracy on the test set of the model that may be released: an average of messages, over"
        " rounds and agents"
    ),
    "released_error": (
        "mean squared error on the test set of the model that may be released, on the same scale:"
        " an average of messages, over rounds and agents"
    ),
}


class Beside(NamedTuple):
    """What a run's released model is to be compared with, each as the test accuracy (or mean
    squared error) of a released model; None where it was not measured.

    Args:
      guess: always the commonest label, or the mean.
      clean: the same settings without noise.
      alone: every agent by itself with the same epsilon and settings that it has rehearsed by
        itself: the mean over agents.
      each: the same for every agent; None where all are alike.
    """

    guess: float | None
    clean: float | None
    alone: float | None
    each: tuple[float, ...] | None = None


@dataclass(frozen=True, eq=False, repr=False)
class Run(Measured):
    """What a simulation has measured, its models and its certificate.

    Args:
      algorithm: as it was run.
      problem: as it was run.
      graph: as it was run.
      certificate: what the run cost.
      seeds: of the noise.
      steps: (time,), after which it was measured.
      raw: metrics, each (time, seed) or (time, seed, watched agent).
      spending: budgets over time, by kind of agents (`spent`: by agent).
      models: (seed, agent, dimension), at the end.
      stopped: why it ended early; None if it did not.
      seconds: how long it took.
      readouts: the averages of messages that it kept.
      averages: what each of them found, by name: (seed, agent, dimension).
      beside: what its accuracy is to be compared with, where somebody measured it.
      faults: what went wrong on the network; None: nothing.
      hearing: who heard whom, where not everything was delivered.
    """

    algorithm: Algorithm
    problem: Problem
    graph: Graph
    certificate: Certificate
    seeds: list[int]
    steps: np.ndarray
    raw: dict[str, np.ndarray]
    spending: Spending
    models: np.ndarray
    stopped: str | None
    seconds: float
    readouts: tuple[ReadOut, ...] = ()
    averages: dict[str, np.ndarray] = field(default_factory=dict)
    beside: Beside | None = None
    faults: Faults | None = None
    hearing: Hearing | None = None

    @cached_property
    def metrics(self) -> dict[str, np.ndarray]:
        """Every metric that the problem has, as (time, seed)."""
        if not self.problem.loss.convex:
            means = {
                name: self.raw[name].mean(axis=2)
                for name in ("accuracy", "train_accuracy", "test_loss")
            }
            tested = {**means, "accuracy_worst": self.raw["accuracy"].min(axis=2)}
            if not self.tested:
                tested = {"train_accuracy": means["train_accuracy"]}
            return {**tested, "consensus_error": self.raw["consensus_error"], **self._released}
        regret = self.raw["regret"].mean(axis=2)
        widths = np.diff(self.steps)[:, None]
        summed = np.cumsum(
            np.vstack([np.zeros(regret.shape[1]), widths * (regret[1:] + regret[:-1]) / 2]), axis=0
        )
        score = self.raw["accuracy"]
        out = {
            "tracking_error": self.raw["tracking_error"].mean(axis=2),
            "regret": regret,
            "dynamic_regret": summed,
            "mean_model_error": self.raw["mean_model_error"],
            "consensus_error": self.raw["consensus_error"],
        }
        if not self.tested:
            return out
        if self.problem.classification:
            own = {"accuracy": score.mean(axis=2), "accuracy_worst": score.min(axis=2)}
        else:
            own = {"test_error": score.mean(axis=2)}
        return {**out, **own, **self._released}

    @property
    def _released(self) -> dict[str, np.ndarray]:
        """How good the model is that may be released, where the run kept one and has a test set."""
        if not self.averages or not self.tested:
            return {}
        name = "released_accuracy" if self.problem.classification else "released_error"
        return {name: self.raw["released_accuracy"]}

    @property
    def releasable(self) -> bool:
        """It kept averages of messages, and they are numbers."""
        found = self.averages.values()
        return bool(found) and all(bool(np.all(np.isfinite(one))) for one in found)

    @property
    def interrupted(self) -> bool:
        return (self.stopped or "").startswith("interrupted")

    @property
    def tested(self) -> bool:
        """There are records to test on."""
        return len(self.problem.test_labels) > 0

    @property
    def guessing(self) -> float | None:
        """The test accuracy of always naming the commoner label; None for regression, and where
        there is no test set.
        """
        if not self.problem.classification or not self.tested:
            return None
        return float(
            np.unique(self.problem.test_labels, return_counts=True)[1].max()
            / len(self.problem.test_labels)
        )

    def _repr_html_(self) -> str:
        from hearsay.report.inline import run_html

        return run_html(self)

    def to_csv(self) -> str:
        """One row per measured step and seed."""
        metrics = self.metrics
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["step", "seed", *metrics, "spent_max"])
        label = self.spending.largest
        for t, step in enumerate(self.steps):
            for s, seed in enumerate(self.seeds):
                writer.writerow(
                    [
                        int(step),
                        seed,
                        *(f"{m[t, s]:.10g}" for m in metrics.values()),
                        f"{label[t]:.10g}",
                    ]
                )
        return text.getvalue()

    def spent_csv(self) -> str:
        """One row per measured step: what each agent had spent by then, or of many each kind."""
        return self.spending.to_csv(self.steps)

    def save(self, folder: str | os.PathLike) -> Path:
        """Write certificate, metrics, budgets and final models; each file is whole or not there.

        Names of files that no certificate covers begin with `private-`. `hearsay.load_run` reads
        the folder again, for tables and figures.
        """
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        buffer = io.BytesIO()
        np.savez(buffer, models=self.models)
        for name, content in {
            CERTIFICATE: self.certificate.to_json().encode(),
            "certificate.txt": (str(self.certificate) + "\n").encode(),
            TABLE: self.to_csv().encode(),
            BUDGET: self.spent_csv().encode(),
            private("models.npz"): buffer.getvalue(),
            **({} if self.hearing is None else {"hearing.csv": self.hearing.to_csv().encode()}),
            RUN: facts(self).encode(),  # the last: what it names is there
        }.items():
            write_atomically(path / name, content)
        return path

    def release(
        self,
        kind: str | ReadOut | None = None,
        of: str | int = "all",
        *,
        neighbours: bool = True,
        seed: int | None = None,
        folder: str | os.PathLike | None = None,
    ) -> ReleasedModel:
        """The model that may be published: an average of messages, which costs nothing beyond the
        certificate (release/readouts.py).

        Args:
          kind: which of the averages that the run kept (`simulate(release=...)`): "tail" unless
            told otherwise.
          of: "all" agents, or the number of one.
          neighbours: of one agent: also of those that it hears, each with the same weight.
          seed: of the noise; the run's first unless given.
          folder: where to save it.

        Example:
          >>> import hearsay as hs
          >>> problem, graph = hs.problems.ridge(agents=3, records=60), hs.graphs.ring(3)
          >>> run = hs.simulate(hs.dsgd(noise=0.1), problem, graph, steps=20)
          >>> run.release().average_of
          'the mean of messages 8 to 19 of all 3 agents'
        """
        from hearsay.release.of_run import released

        found = released(self, kind, of, neighbours, seed)
        if folder is not None:
            found.save(folder)
        return found

    def costs(self, costs: Costs) -> Timeline:
        """What the run would have cost on such a network by every measured step: seconds and
        bytes, beside the metrics.

        Args:
          costs: what messages and computing cost; without a patience that loses messages, unless
            the run was simulated with what it loses, `faults=Faults(plan=costs.timeline(...))`.

        Example:
          >>> import hearsay as hs
          >>> problem, graph = hs.problems.ridge(agents=3, records=60), hs.graphs.ring(3)
          >>> run = hs.simulate(hs.dsgd(noise=0.1), problem, graph, steps=20)
          >>> run.costs(hs.Costs(latency=0.05, bandwidth=1.25e6, compute=0.1))
          Timeline(20 steps, 3.011 s, 42,240 bytes)
        """
        found = costs.timeline(self.algorithm, self.problem, self.graph, int(self.steps[-1]))
        found.require_of(self.faults)
        return found.at(self.steps)

    def report(self, folder: str | os.PathLike, timeline: Timeline | None = None) -> Path:
        """Save the run and write a self-contained private-report.html; returns its path.

        Args:
          folder: where both go.
          timeline: what the run would cost (`Run.costs`): becomes costs.csv, and its end is on the
            page.
        """
        from hearsay.report.run import run_report

        path = self.save(folder)
        if timeline is not None:
            write_atomically(path / "costs.csv", timeline.to_csv().encode())
        return run_report(self, path, timeline)
