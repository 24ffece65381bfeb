"""The part of an audit's report that is about the noise: what was tested, on how many numbers,
and a picture beside the claimed law.
"""

from __future__ import annotations

import csv
import io
import math
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

from hearsay.audit.noise_tests import KINDS
from hearsay.mechanisms import MECHANISMS
from hearsay.report.numbers import count, power_of_ten
from hearsay.report.page import Table, picture
from hearsay.report.plot_style import line_style, styled

if TYPE_CHECKING:
    from hearsay.audit.residuals import Residuals


def noise_words(noise: Residuals) -> str:
    if not noise.numbers:
        return "The messages carry no noise: there is none to test."
    return (
        f"{noise.numbers:,} residuals (what was sent less the value before its noise, in units of"
        f" the claimed scale) of {count(noise.runs, 'run')} went through {len(noise.tests)} tests."
        f" If the noise is {noise.mechanism} noise as claimed, any of them fails with probability"
        f" {noise.level:g} at most."
    )


def noise_section(noise: Residuals) -> dict[str, object]:
    """What the template is given; no table where there is no noise."""
    if not noise.numbers:
        return {"words": noise_words(noise), "table": None}
    header = [
        "what was tested",
        "tests",
        "numbers",
        "worst",
        "p of the worst, among all",
        "verdict",
    ]
    shown = (
        f"Left: how often residuals of each size were seen (bars, {len(noise.shown):,} of them)"
        " and the claimed density (line), on a logarithmic scale. Right: quantiles; on the"
        " line the noise is as claimed."
    )
    return {
        "words": noise_words(noise),
        "table": Table("Tests of the noise", header, noise_rows(noise)),
        "picture": picture("noise", noise_figure(noise), shown),
    }


def noise_rows(noise: Residuals) -> list[list[object]]:
    lines: list[list[object]] = []
    for kind, test in noise.worst().items():
        same = [t for t in noise.tests if t.kind == kind]
        p = noise.adjusted(test)
        said = "FAILS" if p <= noise.level else "passes"
        largest = max(t.numbers for t in same)
        what = KINDS[kind]
        if kind == "agents" and "pairs" in noise.worst():
            what += ", but for what pairs share"
        lines.append([what, len(same), largest, f"{test.where}: {test.effect}", f"{p:.2g}", said])
    return lines


def noise_figure(noise: Residuals) -> Figure:
    law, x = MECHANISMS[noise.law].standard, np.sort(noise.shown)
    with styled():
        figure = Figure(figsize=(7.2, 3.1), layout="constrained")
        left, right = figure.subplots(1, 2)
        reach = float(max(np.abs(x).max(), law.isf(0.5 / len(x))))
        edges = np.linspace(-reach, reach, 61)
        heights, _ = np.histogram(x, edges, density=True)
        left.stairs(
            heights,
            edges,
            fill=True,
            color=line_style(0)["color"],
            alpha=0.35,
            label="seen",
            baseline=1e-9,
        )
        grid = np.linspace(-reach, reach, 400)
        left.plot(grid, law.pdf(grid), color=line_style(1)["color"], label="claimed")
        left.set_yscale("log")
        left.set_ylim(0.3 / len(x), 1.5)
        left.yaxis.set_major_formatter(
            FuncFormatter(lambda y, _: power_of_ten(round(math.log10(y))))
        )
        left.yaxis.set_minor_locator(NullLocator())
        left.set_xlabel("residual, in claimed scales")
        left.set_ylabel("density")
        left.legend(loc="upper right")
        level = (np.arange(len(x)) + 0.5) / len(x)
        some = np.unique(
            np.r_[
                : min(50, len(x)),
                np.linspace(0, len(x) - 1, 300).astype(int),
                max(0, len(x) - 50) : len(x),
            ]
        )
        right.plot(grid, grid, color=line_style(1)["color"], linewidth=1.0, label="claimed")
        right.plot(
            law.ppf(level[some]),
            x[some],
            ".",
            markersize=3.5,
            color=line_style(0)["color"],
            label="seen",
        )
        right.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        right.yaxis.set_major_locator(MaxNLocator(5, integer=True))
        right.set_xlabel("quantile of the claimed law")
        right.set_ylabel("quantile of the residuals")
        right.legend(loc="upper left")
    return figure


def noise_csv(noise: Residuals) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["kind", "where", "numbers", "p", "p_among_all", "seen"])
    writer.writerows(
        [t.kind, t.where, t.numbers, f"{t.p:.6g}", f"{noise.adjusted(t):.6g}", t.effect]
        for t in noise.tests
    )
    return text.getvalue()
