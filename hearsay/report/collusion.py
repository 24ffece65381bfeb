"""The curve of a certificate over the number of colluders, as a part of its section: drawn, as a
table, and in words.
"""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

from hearsay.privacy.certificate import Certificate, show
from hearsay.privacy.curve import ALL, found_how, table
from hearsay.report.numbers import who
from hearsay.report.page import Table, picture
from hearsay.report.plot_style import (
    INK,
    SOFT,
    axes_or_new,
    line_style,
    log_scale,
    new_figure,
    plain_ticks,
    styled,
)

_LINES = 8  # different curves that a figure can tell apart


def collusion_section(cert: Certificate) -> dict[str, object]:
    """What the template is given; empty where no noise is shared."""
    if cert.secrets is None:
        return {}
    figure, ax = new_figure()
    colluding(cert, ax)
    worst, planned = show(max(b.all_collude for b in cert.budgets.kinds)), cert.colluders
    described = (
        f"epsilon against the number of colluders; {show(max(cert.epsilon))} at the planned"
        f" {planned}, {worst} if {ALL}"
    )
    sizes, rows, rest = table(cert)
    heads = ["colluders", *map(str, sizes[:-1]), f"all {sizes[-1]}"]
    return {
        "lead": (
            f"Agents share noise that cancels between them. Epsilon above holds if at most"
            f" {planned} of the {sizes[-1]} others collude. If all of them do, an agent's own noise"
            f" is what is left: epsilon is then {worst} at most, and that number rests neither on"
            " the others nor on cryptography."
        ),
        "picture": picture(
            "collusion",
            figure,
            "Epsilon against the worst coalition of so many of the others. Dashed: planned for.",
            described,
        ),
        "table": Table(
            f"Epsilon if so many of the others collude, rounded up (worst coalitions:"
            f" {found_how(cert)})",
            heads,
            [[whose, *cells] for whose, cells in rows],
        ),
        "rest": rest,
    }


def colluding(cert: Certificate, ax: Axes | None = None) -> Axes:
    """epsilon against the number of colluders, a line for agents with the same curve; of many
    different ones the range, and the largest.
    """
    ax = axes_or_new(ax)
    with styled():
        sizes = [point.colluders for point in cert.budgets[0].curve]
        kinds = cert.budgets.groups()
        values = np.array([[point.epsilon for point in kind.budget.curve] for kind in kinds])
        values = np.where(np.isfinite(values), values, np.nan)
        groups = _alike(values)
        if len(groups) > _LINES:
            shade = {"color": line_style(0)["color"], "alpha": 0.18, "linewidth": 0}
            ax.fill_between(
                sizes, values.min(axis=0), values.max(axis=0), label="all agents", **shade
            )
            groups = groups[:1]
        for index, group in enumerate(groups):
            agents = np.sort(np.concatenate([kinds[place].agents for place in group]))
            label = who(agents, len(cert.budgets))
            ax.plot(sizes, values[group[0]], label=label, marker="o", ms=3.5, **line_style(index))
        ax.set_xlabel("colluders among the others, the worst ones")
        ax.set_ylabel(f"epsilon (delta = {cert.delta:g})")
        if not (np.isfinite(values).any() and log_scale(ax, [values.T])):
            ax.set_ylim(bottom=0)
        _mark(ax, cert, sizes, values)
        plain_ticks(ax)
        if len(groups) > 1 or len(kinds) > len(groups[0]):
            ax.legend(loc="upper left")
    return ax


def _mark(ax: Axes, cert: Certificate, sizes: list[int], values: np.ndarray) -> None:
    """Where budgets are kept, and what they are if everybody else colludes."""
    planned = cert.colluders or 0
    ax.axvline(planned, color=SOFT, linewidth=0.9, linestyle=(0, (4, 1.6)))
    ax.annotate(
        "planned",
        (planned, 0.03),
        xycoords=("data", "axes fraction"),
        xytext=(4, 0),
        textcoords="offset points",
        color=INK,
        fontsize=8,
    )
    top = show(max(b.all_collude for b in cert.budgets.kinds))
    place = np.nanmax(values[:, -1]) if np.isfinite(values[:, -1]).any() else 0.0
    ax.annotate(
        f"{ALL}: {top}",
        (sizes[-1], place),
        xytext=(-6, 4),
        textcoords="offset points",
        ha="right",
        color=INK,
        fontsize=8,
    )


def _alike(values: np.ndarray) -> list[list[int]]:
    """Kinds by equal curves, the largest at its end first."""
    groups: dict[tuple[str, ...], list[int]] = {}
    for kind in np.argsort(-np.nan_to_num(values[:, -1]), kind="stable").tolist():
        groups.setdefault(tuple(f"{value:.6g}" for value in values[kind]), []).append(kind)
    return list(groups.values())
