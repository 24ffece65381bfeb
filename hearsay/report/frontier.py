"""The report of a frontier (templates/frontier.html): accuracy against epsilon for every series."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hearsay._files import private
from hearsay.privacy.adjacency import REPLACE, ZERO_OUT
from hearsay.privacy.certificate import show
from hearsay.report.numbers import count
from hearsay.report.page import Cell, Table, picture, write
from hearsay.report.plot_style import (
    SOFT,
    axes_or_new,
    line_style,
    new_figure,
    plain_ticks,
    styled,
)

if TYPE_CHECKING:
    from hearsay.tradeoff.points import Point
    from hearsay.tradeoff.running import Frontier

NAME = private("report.html")
_TOGETHER = "secret-batches"
# For people who see such a picture for the first time.
_READING = (
    "How to read it: more privacy to the left, better answers above (on an axis that may not begin"
    " at 0). Epsilon limits what anybody can learn of one record from all that was ever sent:"
    " {odds} change by a factor of at most e^epsilon (for 1: 2.7, for 2: 7.4, for 4: 55), but for"
    ' a chance of delta. Joining pays where a line of the network, such as "{together}" (nobody'
    ' trusted), lies above "alone" at the same epsilon. Lines whose bands overlap may lie so by'
    " chance, and one that is no higher than guessing has learned nothing."
)
_ODDS = {
    ZERO_OUT: "the odds that the record was there, and not an empty one in its place,",
    REPLACE: "the odds of one guess at the record against another",
}


def frontier_report(found: Frontier, folder: str | Path) -> Path:
    """Write private-report.html and its picture, private-frontier.png, into the folder; returns the
    path of the page.
    """
    with styled():
        drawn(found).savefig(Path(folder) / private("frontier.png"), dpi=150)
    shown = (
        "Test accuracy of the released model. Lines: mean over splits and noise seeds. Bands: one"
        " standard deviation. Grey: what does not depend on epsilon."
    )
    if found.note:
        shown += " Hollow: the same runs at the epsilon that they have if all others collude."
    together = next((label for key, label, _ in found.rows if key == _TOGETHER), _TOGETHER)
    shown += f" {_READING.format(odds=_ODDS[found.adjacency], together=together)}"
    return write(
        Path(folder) / NAME,
        "frontier.html",
        title=f"What joining buys on {found.problem}",
        about=found.title,
        missing=", ".join(found.missing),
        verdict=verdict(found),
        picture=picture("frontier", drawn(found), shown),
        accuracies=accuracies(found),
        details=_details(found),
    )


def drawn(found: Frontier) -> Figure:
    """The picture of the page."""
    figure, ax = new_figure(7.2, 4.8)
    accuracy_against_epsilon(found, ax)
    return figure


def verdict(found: Frontier) -> str:
    """What an agent gains by joining, in a sentence; "" where one of the two is missing."""
    parts = []
    for epsilon in found.epsilons:
        pair = [found.point(key, epsilon) for key in ("alone", _TOGETHER, "central")]
        if pair[0] is None or pair[1] is None:
            continue
        server = "" if pair[2] is None else f" (a trusted server: {pair[2].mean:.3f})"
        most = found.point("alone-largest", epsilon)
        giant = "" if most is None else f" (who has most records: {most.mean:.3f})"
        parts.append(
            f"at epsilon = {epsilon:g} alone {pair[0].mean:.3f}{giant}, together"
            f" {pair[1].mean:.3f}{_with_secrets(found, epsilon)}{server}"
        )
    return f"Accuracy {'; '.join(parts)}." if parts else ""


def _with_secrets(found: Frontier, epsilon: float) -> str:
    """What shared secrets add to a verdict, never without what they cost if all others collude."""
    shared = [p for p in found.points if p.all_collude is not None and p.epsilon == epsilon]
    if not shared:
        return ""
    # The fewest colluders that there are, rather than none.
    one = next((p for p in shared if p.series != "secrets-0"), shared[0])
    return f", with {one.label}: {one.mean:.3f} (epsilon {one.all_collude:.3g} if all collude)"


def accuracy_against_epsilon(found: Frontier, ax: Axes | None = None) -> Axes:
    """A line with a band for every series; a grey line where epsilon does not matter."""
    ax = axes_or_new(ax)
    lines = 0
    with styled():
        for _, label, row in found.rows:
            points = [p for p in row if p is not None]
            if points and points[0].epsilon is None:
                ax.axhline(points[0].mean, color=SOFT, linewidth=1, linestyle=":")
                ax.annotate(
                    label,
                    (1, points[0].mean),
                    xycoords=("axes fraction", "data"),
                    ha="right",
                    va="bottom",
                    color=SOFT,
                    fontsize=8,
                )
                continue
            style = line_style(lines)
            lines += 1
            at = [p.epsilon for p in points if p.epsilon is not None]
            ax.plot(at, [p.mean for p in points], marker="o", markersize=3.5, label=label, **style)
            _if_all_collude(ax, points, style["color"])
            ax.fill_between(
                at,
                [p.mean - p.deviation for p in points],
                [p.mean + p.deviation for p in points],
                color=style["color"],
                alpha=0.08,
                linewidth=0,
            )
        ax.set_xscale("log")
        ax.set_xticks(found.epsilons)
        ax.minorticks_off()
        ax.set_xlabel(f"epsilon of every agent, at delta = {found.delta:g} ({found.adjacency})")
        ax.set_ylabel("test accuracy")
        plain_ticks(ax, percent=True)
        ax.set_xticks(found.epsilons, [f"{e:g}" for e in found.epsilons])
        if lines:
            # Lines may be anywhere: beside them.
            ax.figure.legend(loc="outside lower center", ncols=2, fontsize=8)
    return ax


def _if_all_collude(ax: Axes, points: list[Point], color: str) -> None:
    """A hollow mark for every point that counts on others, at the epsilon that does not."""
    for p in points:
        if p.all_collude is None or p.epsilon is None:
            continue
        ends, level = [p.epsilon, p.all_collude], [p.mean, p.mean]
        ax.plot(ends, level, color=color, linewidth=0.7, linestyle=":")
        ax.plot(ends[1:], level[1:], color=color, marker="o", markersize=5, markerfacecolor="none")


def accuracies(found: Frontier) -> Table:
    """One row per series, one column per epsilon."""
    rows = [
        [label, *(None if p is None else p.cell for p in points)] for _, label, points in found.rows
    ]
    header = ["", *(f"epsilon = {e:g}" for e in found.epsilons)]
    title = "Accuracy of the released model: mean ± standard deviation"
    return Table(f"{title}. {found.note}" if found.note else title, header, rows)


def _details(found: Frontier) -> Table:
    rows = [
        [
            p.label,
            "–" if p.epsilon is None else f"{p.epsilon:g}",
            Cell(show(p.spent), "" if p.series == "guessing" else _folder(p)),
            "–" if p.all_collude is None else show(p.all_collude),
            f"{p.own_mean:.3f}",
            count(p.values.size, "run"),
            p.settings,
        ]
        for p in found.points
    ]
    header = [
        "series",
        "epsilon asked for",
        "certified",
        "if all others collude",
        "agents' own models",
        "",
        "settings",
    ]
    return Table("Every point, with its certificate and its settings", header, rows)


def _folder(point: Point) -> str:
    name = point.series if point.epsilon is None else f"{point.series}-{point.epsilon:g}"
    return f"points/{name}/certificate.json"
