"""Figures of a run.

Every function draws into `ax`, or into a new figure when there is none, and returns the axes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from matplotlib.axes import Axes

from hearsay import _validate as require
from hearsay.mechanisms import MECHANISMS
from hearsay.privacy.certificate import show
from hearsay.report.network_plot import network
from hearsay.report.numbers import who
from hearsay.report.plot_style import (
    INK,
    SHADES,
    SOFT,
    axes_or_new,
    line_style,
    log_scale,
    plain_ticks,
    styled,
    write_ticks,
)

if TYPE_CHECKING:
    from hearsay.simulation.measured import Measured
    from hearsay.simulation.result import Run

__all__ = [
    "LABELS",
    "Along",
    "agents",
    "budget",
    "compare",
    "compare_budgets",
    "curve",
    "measured",
    "network",
    "surface",
]

LABELS = {
    "tracking_error": "squared distance to the optimum",
    "regret": "regret at this step",
    "dynamic_regret": "regret summed so far",
    "mean_model_error": "distance of mean model to optimum",
    "consensus_error": "squared distance to mean model",
    "accuracy": "test accuracy",
    "accuracy_worst": "test accuracy of the worst agent",
    "test_error": "mean squared test error",
    "train_accuracy": "training accuracy",
    "released_accuracy": "accuracy of the released model",
    "released_error": "error of the released model",
    "test_loss": "test loss",
}
_LINES = 12  # more labelled lines than this cannot be told apart


class Along(NamedTuple):
    """What curves are drawn against instead of steps.

    Args:
      label: of the axis.
      values: where each run stood at its measured steps.
      shown: how a number on the axis is written.
    """

    label: str
    values: Mapping[str, np.ndarray]
    shown: Callable[[float], str]


def curve(run: Measured, metric: str, ax: Axes | None = None, label: str | None = None) -> Axes:
    """One metric over time: the mean over seeds, and the range from the lowest seed
    to the highest as a band.

    Curves that are drawn into the same axes have a legend: each is labelled by its algorithm and
    its largest budget, and numbered where that is the same, unless a label is given.
    """
    taken = [] if ax is None else ax.get_legend_handles_labels()[1]
    return compare({label or _called(run, taken): run}, metric, ax)


def _called(run: Measured, taken: Sequence[str]) -> str:
    """Its algorithm and what it has spent, unlike any other on the axes."""
    unit = MECHANISMS[run.certificate.mechanism].unit
    name = f"{run.algorithm.name}, {unit} = {show(float(run.spending.largest[-1]))}"
    same = (name if number == 1 else f"{name} ({number})" for number in itertools.count(1))
    return next(one for one in same if one not in taken)


def compare(
    runs: Mapping[str, Measured], metric: str, ax: Axes | None = None, along: Along | None = None
) -> Axes:
    """One metric of several runs, each labelled by its key; against steps unless told."""
    ax = axes_or_new(ax)
    drawn, before = [], len(ax.get_lines())
    with styled():
        for index, (name, run) in enumerate(runs.items()):
            values = run.metrics[require.one_of("metric", metric, run.metrics)]
            if measured(run, metric):
                place = along.values[name] if along else run.steps
                _trace(ax, place, values, before + index, name)
                drawn.append(values)
        ax.set_xlabel(along.label if along else "step")
        ax.set_ylabel(LABELS.get(metric, metric.replace("_", " ")))
        percent = "accuracy" in metric
        if not drawn:
            _say(ax, "not measured")
        elif not percent and metric != "dynamic_regret":
            # A running sum is read by its slope, which a logarithm hides.
            log_scale(ax, drawn)
        plain_ticks(ax, percent)
        if along is not None:
            write_ticks(ax, along.shown)
        if drawn and (len(runs) > 1 or len(ax.get_legend_handles_labels()[1]) > 1):
            ax.legend()
    return ax


def agents(run: Run, ax: Axes | None = None) -> Axes:
    """The squared distance to the optimum of every (watched) agent, each the mean over seeds."""
    ax = axes_or_new(ax)
    with styled():
        error = run.raw["tracking_error"].mean(axis=1)
        for index in range(error.shape[1]):
            ax.plot(run.steps, error[:, index], label=f"agent {index + 1}", **line_style(index))
        ax.set_xlabel("step")
        ax.set_ylabel(LABELS["tracking_error"])
        log_scale(ax, [error])
        plain_ticks(ax)
        if error.shape[1] <= _LINES:
            ax.legend(ncols=2)
    return ax


def surface(
    x: np.ndarray,
    y: np.ndarray,
    values: np.ndarray,
    labels: tuple[str, str],
    ax: Axes | None = None,
) -> Axes:
    """A function of two parameters, values (y, x): shades with labelled level lines;
    blank where it is infinite.
    """
    ax = axes_or_new(ax)
    shown = np.ma.masked_invalid(values)
    with styled():
        ax.pcolormesh(
            x, y, shown, shading="gouraud" if not shown.mask.any() else "nearest", cmap=SHADES
        )
        if shown.count() > 3:
            ax.clabel(
                ax.contour(x, y, shown, levels=8, colors=INK, linewidths=0.6),
                fontsize=7.5,
                fmt="%.3g",
            )
        ax.set_xlabel(labels[0])
        ax.set_ylabel(labels[1])
        ax.grid(False)
    return ax


def measured(run: Measured, metric: str) -> bool:
    """Whether the run has finite values of this metric; without a reference it has none of the
    distances and regrets.
    """
    values = run.metrics.get(metric)
    # The last row alone if there is one only; a running sum starts at zero even if nothing
    # is ever added.
    return values is not None and bool(np.isfinite(values[min(1, len(values) - 1) :]).any())


def budget(run: Measured, ax: Axes | None = None) -> Axes:
    """What each agent has spent after each message: epsilon, at delta for Gaussian noise.

    Agents with the same curve share a line; more than 12 different curves become a band with the
    largest drawn out.
    """
    ax = axes_or_new(ax)
    with styled():
        spending = run.spending
        curves = spending.curves
        finite = [kinds for kinds in _alike(curves) if np.isfinite(curves[-1, kinds[0]])]
        if not finite:
            _say(ax, "infinite for every agent")
        elif len(finite) > _LINES:
            _budget_band(ax, run, np.concatenate(finite))
        else:
            for index, kinds in enumerate(finite):
                label = who(spending.agents(kinds), run.graph.agents)
                ax.plot(run.steps, curves[:, kinds[0]], label=label, **line_style(index))
        ax.set_xlabel("step")
        ax.set_ylabel(_spent(run))
        if finite:
            spent = curves[:, np.concatenate(finite)]
            # From zero, as a running sum should be read, unless that would flatten most agents
            # onto the axis.
            if not (spent[-1].max() > 30 * spent[-1].min() > 0 and log_scale(ax, [spent])):
                ax.set_ylim(bottom=0)
            plain_ticks(ax)
            _budget_legend(ax, run)
    return ax


def compare_budgets(runs: Mapping[str, Measured], ax: Axes | None = None) -> Axes:
    """The largest budget that any agent has spent, for several runs with the same kind of noise."""
    ax = axes_or_new(ax)
    with styled():
        drawn = []
        for index, (name, run) in enumerate(runs.items()):
            spent = run.spending.largest
            if np.isfinite(spent[-1]):
                ax.plot(run.steps, spent, label=name, **line_style(index))
                drawn.append(spent[:, None])
            else:
                ax.plot([], [], label=f"{name}: infinite", **line_style(index))
        ax.set_xlabel("step")
        ax.set_ylabel(_spent(next(iter(runs.values()))))
        if drawn:
            log_scale(ax, drawn)
            plain_ticks(ax)
        ax.legend()
    return ax


def _spent(run: Measured) -> str:
    law = MECHANISMS[run.certificate.mechanism]
    at = {"delta": " (at epsilon = 0)"}.get(law.unit, "")
    if law.at_delta:
        at = f" (delta = {run.certificate.delta:g})"
    return f"{law.unit} spent{at}"


def _budget_band(ax: Axes, run: Measured, kinds: np.ndarray) -> None:
    spent = run.spending.curves[:, kinds]
    largest = int(np.argmax(spent[-1]))
    agent = run.spending.agents([kinds[largest]])[0]
    colour = line_style(0)["color"]
    ax.fill_between(
        run.steps,
        spent.min(axis=1),
        spent.max(axis=1),
        color=colour,
        alpha=0.18,
        linewidth=0,
        label="all agents",
    )
    ax.plot(run.steps, run.spending.median(kinds), label="median agent", **line_style(0))
    label = f"agent {agent}, the largest"
    ax.plot(run.steps, spent[:, largest], label=label, **line_style(1))


def _budget_legend(ax: Axes, run: Measured) -> None:
    spending = run.spending
    unbounded = spending.agents(np.flatnonzero(~np.isfinite(spending.curves[-1])))
    if unbounded.size:
        label = f"{who(unbounded, run.graph.agents)}: infinite"
        ax.plot([], [], linestyle="none", label=label)
    beside = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)}
    ax.legend(**beside if len(ax.get_legend_handles_labels()[0]) > 1 else {"loc": "lower right"})


def _alike(curves: np.ndarray) -> list[list[int]]:
    """Kinds grouped by equal curves, the largest final budget first."""
    groups: list[list[int]] = []
    for kind in np.argsort(-curves[-1], kind="stable").tolist():
        if groups and np.allclose(curves[:, groups[-1][0]], curves[:, kind], rtol=1e-6, atol=0):
            groups[-1].append(kind)
        else:
            groups.append([kind])
    return groups


def _trace(ax: Axes, steps: np.ndarray, values: np.ndarray, index: int, name: str) -> None:
    style = line_style(index)
    # A name that starts with "_" would be left out of the legend.
    label = f" {name}" if name.startswith("_") else name
    with np.errstate(invalid="ignore"):
        mean = values.mean(axis=1)
    ax.plot(steps, np.where(np.isfinite(mean), mean, np.nan), label=label, **style)
    if values.shape[1] > 1:
        low, high = values.min(axis=1), values.max(axis=1)
        shown = np.isfinite(low) & np.isfinite(high)
        ax.fill_between(
            steps, low, high, where=shown, color=style["color"], alpha=0.18, linewidth=0
        )


def _say(ax: Axes, text: str) -> None:
    ax.text(0.5, 0.5, text, transform=ax.transAxes, ha="center", va="center", color=SOFT)
    ax.set_yticks([])
