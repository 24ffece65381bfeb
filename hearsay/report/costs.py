"""Runs compared at equal time and at equal traffic, not only after equally many rounds: what
comparison.py shows where it is known what messages and computing cost (simulation/costs.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from hearsay.report import plots
from hearsay.report.numbers import duration, quantity, size, spread
from hearsay.report.plot_style import new_figure
from hearsay.report.run import CURVES, RELEASED

if TYPE_CHECKING:
    from hearsay.simulation.costs import Timeline
    from hearsay.simulation.measured import Measured


class Equal(NamedTuple):
    """What every run had reached when the first of them was at its end.

    Args:
      limit: seconds or bytes.
      steps: the last measured step of each run by then.
      values: (mean, standard deviation over seeds) of the metric at that step.
    """

    limit: float
    steps: dict[str, int]
    values: dict[str, tuple[float, float]]


def main_metric(runs: Mapping[str, Measured]) -> str | None:
    """The first that all of them have measured: what is published before agents' own models."""
    shared = (
        m for m in (*RELEASED, *CURVES) if all(plots.measured(run, m) for run in runs.values())
    )
    return next(shared, None) if runs else None


def equal(
    runs: Mapping[str, Measured], timelines: Mapping[str, Timeline], metric: str, what: str
) -> Equal:
    """The metric at the largest number of seconds (or bytes) that every run has come to. A run
    stands where it was last measured by then: nothing is interpolated.

    Args:
      runs: what is compared.
      timelines: of each, at its measured steps.
      metric: of the runs.
      what: "seconds" or "bytes".
    """
    used = {name: np.asarray(getattr(timelines[name], what), float) for name in runs}
    limit = min(float(values[-1]) for values in used.values())
    last = {name: int(np.searchsorted(one, limit, side="right")) - 1 for name, one in used.items()}
    values = {name: run.metrics[metric][last[name]] for name, run in runs.items()}
    return Equal(
        limit,
        {name: int(run.steps[last[name]]) for name, run in runs.items()},
        {
            name: (float(v.mean()), float(v.std(ddof=1)) if len(v) > 1 else 0.0)
            for name, v in values.items()
        },
    )


def cost_table(
    runs: Mapping[str, Measured], timelines: Mapping[str, Timeline]
) -> tuple[str, list[str], list[list[str]]]:
    """(caption, header, rows): what each run takes, and the metric at the end, at equal time and
    at equal traffic.
    """
    header = ["run", "simulated time", "traffic", "a round of an agent sends"]
    rows = [
        [
            name,
            duration(float(timelines[name].seconds[-1])),
            size(float(timelines[name].bytes[-1])),
            size(float(timelines[name].traffic.sent.mean())),
        ]
        for name in runs
    ]
    caption = "What messages and computing take"
    if (metric := main_metric(runs)) is not None:
        caption += f", and the {plots.LABELS[metric]} at the end, at equal time and equal traffic"
        found = [equal(runs, timelines, metric, what) for what in ("seconds", "bytes")]
        limits = [f"after {duration(found[0].limit)}", f"after {size(found[1].limit)}"]
        header += ["at the end", *limits]
        percent = "accuracy" in metric
        for row, (name, run) in zip(rows, runs.items(), strict=True):
            seeds = len(run.seeds)
            row += [spread(*run.final(metric), seeds, percent)]
            row += [
                f"{spread(*one.values[name], seeds, percent)} (step {one.steps[name]:,})"
                for one in found
            ]
    return caption, header, rows


def cost_figures(
    runs: Mapping[str, Measured], timelines: Mapping[str, Timeline]
) -> list[tuple[str, Figure]]:
    """(caption, figure): the main metric against seconds, and against bytes."""
    if (metric := main_metric(runs)) is None:
        return []
    drawn = []
    for along in (along_seconds(timelines), along_bytes(timelines)):
        figure, ax = new_figure()
        plots.compare(runs, metric, ax, along)
        drawn.append((f"{plots.LABELS[metric].capitalize()} against {along.label}.", figure))
    return drawn


def along_seconds(timelines: Mapping[str, Timeline]) -> plots.Along:
    """The simulated clock as an axis."""
    values = {name: line.seconds for name, line in timelines.items()}
    return plots.Along("simulated seconds", values, quantity)


def along_bytes(timelines: Mapping[str, Timeline]) -> plots.Along:
    """What was sent as an axis."""
    values = {name: line.bytes for name, line in timelines.items()}
    return plots.Along("traffic of all agents", values, size)
