"""How figures look: quiet, and readable without colour vision (the Okabe-Ito colours,
with dashes for the second round of them).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from hearsay.report.numbers import power_of_ten, quantity

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#AA4499", "#E69F00", "#56B4E9")
DASHES = ("-", (0, (4, 1.6)), (0, (1, 1.3)))
INK, SOFT, FAINT = "#24292f", "#6b7480", "#e4e7eb"
NODE, UNBOUNDED = "#cfe0ee", "#D55E00"
SHADES = LinearSegmentedColormap.from_list("hearsay", ["#e3eef7", "#7fb3d5", "#2a78ac", "#0b3c5d"])

RC: dict[str, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9,
    "text.color": INK,
    "text.parse_math": False,  # a run named "$a$" must appear as it was written
    "axes.edgecolor": SOFT,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.xmargin": 0.01,
    "grid.color": FAINT,
    "grid.linewidth": 0.6,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.major.size": 3,
    "ytick.major.size": 3,
    "lines.linewidth": 1.6,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "legend.handlelength": 1.8,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "svg.fonttype": "none",
    "svg.hashsalt": "hearsay",  # the same figure gives the same bytes
}


def styled() -> Any:
    """A context in which figures are made and saved in this style."""
    return matplotlib.rc_context(RC)  # type: ignore[arg-type]


def new_figure(width: float = 5.0, height: float = 3.1) -> tuple[Figure, Axes]:
    """A figure of our own, unknown to pyplot, so that nothing has to close it."""
    with styled():
        figure = Figure(figsize=(width, height), layout="constrained")
        return figure, figure.add_subplot()


def axes_or_new(ax: Axes | None) -> Axes:
    """The caller's axes, or a pyplot figure, which a notebook shows by itself."""
    if ax is not None:
        return ax
    from matplotlib import pyplot

    with styled():
        return pyplot.subplots(figsize=(5.0, 3.1), layout="constrained")[1]


def line_style(index: int) -> dict[str, Any]:
    return {
        "color": COLOURS[index % len(COLOURS)],
        "linestyle": DASHES[index // len(COLOURS) % len(DASHES)],
    }


def log_scale(ax: Axes, values: Iterable[np.ndarray]) -> bool:
    """Use a logarithmic axis when the values, past the first measured step, are positive and span
    more than a decade.

    The first step is left out because all models start alike: an exact zero there says nothing
    about the rest.
    """
    later = np.concatenate([np.ravel(v[1:] if len(v) > 1 else v) for v in values])
    later = later[np.isfinite(later)]
    if not later.size or later.min() <= 0 or later.max() / later.min() <= 10:
        return False
    decades = math.log10(later.max() / later.min())
    ax.set_yscale("log", nonpositive="mask")
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if decades < 2.5 else (1,)))
    ax.yaxis.set_minor_locator(NullLocator())
    return True


def plain_ticks(ax: Axes, percent: bool = False) -> None:
    """Numbers written out. To be called last: a change of scale forgets the formatter."""
    ax.xaxis.set_major_formatter(
        FuncFormatter(lambda x, _: f"{x:,.0f}" if float(x).is_integer() else "")
    )
    ax.yaxis.set_major_formatter(
        FuncFormatter(lambda y, _: f"{quantity(100 * y, 3)} %" if percent else _tick(y))
    )


def write_ticks(ax: Axes, shown: Callable[[float], str]) -> None:
    """A few numbers on the horizontal axis, written that way; after `plain_ticks`."""
    ax.xaxis.set_major_locator(MaxNLocator(5))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: shown(x)))


def _tick(value: float) -> str:
    if value == 0 or 1e-3 <= abs(value) < 1e6:
        return quantity(value)
    exponent = math.log10(abs(value))
    if value > 0 and abs(exponent - round(exponent)) < 1e-9:
        return power_of_ten(round(exponent))
    return quantity(value, 3)
