"""The report of an attack (templates/attack.html): every reconstruction beside the truth, and the
error against the noise level.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hearsay._files import private, write_atomically
from hearsay.privacy.certificate import few
from hearsay.report.numbers import count, quantity, spread
from hearsay.report.page import Picture, Table, picture, write
from hearsay.report.plot_style import FAINT, SOFT, axes_or_new, line_style, new_figure, styled

if TYPE_CHECKING:
    from hearsay.audit.dlg import Reconstruction, Sweep

NAME, CSV = private("report.html"), private("reconstructions.csv")
_ROWS = 10  # more pictures say no more


def attack_report(sweep: Sweep, folder: str | Path) -> Path:
    """Write private-report.html and private-reconstructions.csv into the folder; returns the
    page's path.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    first, algorithm, problem = sweep.found[0][0], sweep.algorithm, sweep.problem
    figure, ax = new_figure()
    error_against_noise(sweep, ax)
    shown = (
        "Error of the reconstruction: mean over targets, bars of one standard error. Dashed: the"
        " mean of public images, which knows nothing of the run."
    )
    write_atomically(folder / CSV, to_csv(sweep).encode())
    return write(
        folder / NAME,
        "attack.html",
        title=f"Attack on {algorithm.name}, {problem.name}",
        about=(
            f"{problem.loss}; step {first.step}, {count(len(first.truth), 'record')} in the batch;"
            f" {count(len(sweep.found[0]), 'target')} at each of"
            f" {count(len(sweep.levels), 'noise level')}"
        ),
        left=few(sweep.left, ", ") if sweep.left else "",
        verdict=_verdict(sweep),
        prior=bool(sweep.options.get("prior")),
        labels_known=sweep.options.get("labels") == "known",
        gallery=_pictures(sweep),
        errors=picture("errors", figure, shown),
        levels=_table(sweep),
    )


def error_against_noise(sweep: Sweep, ax: Axes | None = None) -> Axes:
    """Root mean squared pixel error over the noise level, with the error of a guess that
    knows nothing as a line.
    """
    ax = axes_or_new(ax)
    with styled():
        style = {**line_style(0), "marker": "o", "markersize": 4, "capsize": 3}
        ax.errorbar(
            sweep.levels, sweep.mean, yerr=sweep.standard_error, label="reconstruction", **style
        )
        ax.axhline(
            sweep.blind, color=SOFT, linestyle=(0, (4, 2)), linewidth=1.2, label="mean public image"
        )
        ax.set_xlabel("noise, as a multiple of the configured one")
        ax.set_ylabel("error of a pixel (root mean square)")
        ax.set_ylim(bottom=0)
        ax.margins(x=0.04)
        ax.legend()
    return ax


def gallery(sweep: Sweep) -> Figure:
    """One row for each record under attack: the truth, then the reconstruction at every level,
    with its error below.
    """
    rows = [
        (target, record)
        for target, one in enumerate(sweep.found[0])
        for record in range(len(one.truth))
    ][:_ROWS]
    columns = 1 + len(sweep.levels)
    with styled():
        figure = Figure(figsize=(1.2 * columns, 1.45 * len(rows)), layout="constrained")
        grid = figure.subplots(len(rows), columns, squeeze=False)
        for line, (target, record) in zip(grid, rows, strict=True):
            one = sweep.found[0][target]
            _image(
                line[0],
                one.truth[record],
                one,
                f"agent {one.agent}, class {one.true_labels[record]}",
            )
            for ax, row in zip(line[1:], sweep.found, strict=True):
                image = row[target].guess.images[record]
                error = float(np.sqrt(np.mean((image - one.truth[record]) ** 2)))
                _image(ax, image, one, f"{error:.3f}")
        grid[0][0].set_title("truth", fontsize=8.5)
        for ax, level in zip(grid[0][1:], sweep.levels, strict=True):
            ax.set_title(f"noise × {level:g}" if level else "no noise", fontsize=8.5)
    return figure


def _image(ax: Axes, image: np.ndarray, one: Reconstruction, note: str) -> None:
    # The truth may lie in any range; the range of what is true is what all pictures of a row
    # are drawn in.
    low, high = min(0.0, float(one.truth.min())), max(1.0, float(one.truth.max()))
    pixels = np.clip((image - low) / (high - low), 0, 1)
    ax.imshow(pixels.squeeze(), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    ax.set_xlabel(note, fontsize=7.5, labelpad=2)
    ax.set_xticks([])
    ax.set_yticks([])
    for spine in ax.spines.values():
        spine.set_visible(True)
        spine.set_color(FAINT)


def _pictures(sweep: Sweep) -> Picture:
    held = sum(len(one.truth) for one in sweep.found[0])
    more = f" The first {_ROWS} of {held} records." if held > _ROWS else ""
    caption = (
        "The record, and what was made of the agent's messages at every noise level, with the root"
        f" mean squared error of a pixel.{more}"
    )
    return picture("gallery", gallery(sweep), caption)


def _verdict(sweep: Sweep) -> str:
    learnt = [
        level for level, mean in zip(sweep.levels, sweep.mean, strict=True) if mean < sweep.blind
    ]
    if len(learnt) == len(sweep.levels):
        verdict = (
            "At every level the reconstruction is nearer to the record than a guess that knows"
            " nothing of the run."
        )
    elif learnt:
        named = ", ".join(f"{level:g}" for level in learnt)
        verdict = (
            "The reconstruction is nearer to the record than a guess that knows nothing of the run"
            f" at noise × {named}, and not at the other levels."
        )
    else:
        verdict = (
            "At no level is the reconstruction nearer to the record than a guess that knows nothing"
            " of the run."
        )
    if len(learnt) < len(sweep.levels):
        verdict += (
            " That is about pixels: an eye may still read a picture whose speckle costs more than a"
            " blank page would. Look at them."
        )
    return verdict


def _table(sweep: Sweep) -> Table:
    rows: list[list[object]] = []
    for level, row in zip(sweep.levels, sweep.found, strict=True):
        errors = np.array([one.error for one in row])
        deviation = float(errors.std(ddof=1)) if len(errors) > 1 else 0.0
        right = sum(int((one.guess.labels == one.true_labels).sum()) for one in row)
        rows.append(
            [
                f"{level:g}",
                spread(float(errors.mean()), deviation, len(errors)),
                quantity(float(np.mean(errors**2)), 3),
                f"{right} of {sum(len(one.true_labels) for one in row)}",
                quantity(float(np.mean([one.guess.mismatch for one in row])), 3),
            ]
        )
    rows.append(
        ["the mean public image", quantity(sweep.blind, 3), quantity(sweep.blind**2, 3), None, None]
    )
    header = [
        "noise ×",
        "root mean squared error",
        "mean squared error",
        "labels right",
        "mismatch",
    ]
    caption = (
        "Mean ± standard deviation over targets. Mismatch: squared distance of the messages in"
        " units of their noise; about 1 where noise explains it"
    )
    return Table(caption, header, rows)


def to_csv(sweep: Sweep) -> str:
    """One row per noise level and target."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        [
            "level",
            "agent",
            "step",
            "seed",
            "label",
            "label_guessed",
            "rmse",
            "mse",
            "rmse_blind",
            "mismatch",
        ]
    )
    for level, row in zip(sweep.levels, sweep.found, strict=True):
        for one in row:
            names = (
                " ".join(map(str, labels.tolist()))
                for labels in (one.true_labels, one.guess.labels)
            )
            numbers = (one.error, one.error**2, one.blind, one.guess.mismatch)
            writer.writerow(
                [
                    f"{level:g}",
                    one.agent,
                    one.step,
                    one.seed,
                    *names,
                    *(f"{n:.6g}" for n in numbers),
                ]
            )
    return text.getvalue()
