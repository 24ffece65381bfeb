"""What a run's model is worth, as a picture and a sentence: guessing, an agent alone at the same
epsilon, the model of all together, the same settings without noise.
"""

from __future__ import annotations

import math

from matplotlib.axes import Axes

from hearsay.report.numbers import quantity
from hearsay.report.page import picture
from hearsay.report.plot_style import (
    COLOURS,
    SOFT,
    axes_or_new,
    new_figure,
    styled,
    write_ticks,
)
from hearsay.simulation.result import Run
from hearsay.simulation.worth import Worth, worth

TOGETHER, OWN = "together", "agents' own models"
MEANING = {
    TOGETHER: "the model that may be released",
    OWN: "their mean: none was kept that may be released",
    "alone": "every agent by itself with the same epsilon and settings that it rehearsed by itself",
    "without noise": "the same settings",
    "guessing": "always the commonest label",
    "always naming the mean": "of the test labels",
}


def worth_section(run: Run) -> dict[str, object]:
    """Empty where nothing was measured beside the run."""
    found = None if run.beside is None else worth(run)
    if found is None:
        return {}
    figure, ax = new_figure(5.0, 2.3)
    ladder(found, ax)
    kind = "Test accuracy" if found.unit is None else f"Root mean squared error, {found.unit}"
    dots = " Small dots: each agent alone." if found.each else ""
    facts = [
        (name.capitalize(), f"{shown(found, value)}: {MEANING[name]}")
        for name, value in reversed(_rungs(found).items())
    ]
    if found.explained is not None:
        what = "of the target's variance, which the released model explains"
        facts.append(("R²", f"{quantity(found.explained, 3)} {what}"))
    return {
        "picture": picture("worth", figure, f"{kind}.{dots}", f"{kind}: {in_words(found)}"),
        "facts": facts,
        "gains": gains(found),
        "no_better": found.no_better,
    }


def _rungs(found: Worth) -> dict[str, float]:
    """What is compared, from a guess to no noise at all."""
    rungs = {**found.beside, TOGETHER if found.released else OWN: found.reached}
    if found.clean is not None:
        rungs["without noise"] = rungs.pop("without noise")
    return rungs


def ladder(found: Worth, ax: Axes | None = None) -> Axes:
    """A row for each, with what lies between it and a guess."""
    ax, values = axes_or_new(ax), _rungs(found)
    with styled():
        for row, name in enumerate(values):
            colour = COLOURS[0] if name in (TOGETHER, OWN) else SOFT
            if not math.isfinite(values[name]):
                # A run that diverged: words, where no place on the axis is its own.
                words = f" {shown(found, values[name])}"
                ax.annotate(words, (found.guess, row), va="center", color=colour)
                continue
            ax.plot([found.guess, values[name]], [row, row], color=colour, linewidth=1.2)
            ax.plot(values[name], row, "o", color=colour, markersize=7)
            if name == "alone":
                ax.plot(found.each, [row] * len(found.each), ".", color=SOFT, markersize=4)
            ax.annotate(
                shown(found, values[name]),
                (values[name], row),
                xytext=(0, 7),
                textcoords="offset points",
                ha="center",
                color=colour,
            )
        ax.axvline(found.guess, color=SOFT, linewidth=0.8, linestyle=":")
        ax.set_yticks(range(len(values)), list(values))
        ax.set_ylim(-0.5, len(values) - 0.3)
        ax.margins(x=0.08)
        ax.grid(axis="y", visible=False)
        percent = found.unit is None
        write_ticks(ax, lambda x: f"{100 * x:.4g} %" if percent else quantity(x, 3))
    return ax


def gains(found: Worth) -> str:
    """What joining adds, what the noise costs, and what a guess has."""
    if not math.isfinite(found.reached):
        return f"The model that was learned has {shown(found, found.reached)}: it diverged."
    said = []
    if found.alone is not None and math.isfinite(found.alone):
        said.append(f"Joining: {_change(found, found.alone)} than alone at the same epsilon.")
    if found.clean is not None and math.isfinite(found.clean):
        said.append(f"Noise: {_change(found, found.clean)} than without.")
    said.append(f"In all {_change(found, found.guess)} than {_guess(found)}.")
    return " ".join(said)


def in_words(found: Worth) -> str:
    """All of it in a line, the best that one expects first."""
    return ", ".join(f"{shown(found, v)} {name}" for name, v in reversed(_rungs(found).items()))


def shown(found: Worth, value: float) -> str:
    if found.unit is None and math.isfinite(value):
        return f"{100 * value:.1f} %"
    return quantity(value, 3)


def _change(found: Worth, other: float) -> str:
    """How much better or worse it is than another."""
    if found.unit is None:
        points = round(100 * (found.reached - other), 1)
        return f"{abs(points):.1f} points of accuracy {'more' if points >= 0 else 'less'}"
    ratio = found.ratio(found.reached, other)
    if not math.isfinite(ratio):
        return "an error far larger"
    percent = round(100 * (1 - ratio), 1)
    scale = ", by its logarithm," if found.log else ""
    return f"an error {abs(percent):.1f} % {'smaller' if percent >= 0 else 'larger'}{scale}"


def _guess(found: Worth) -> str:
    return "always naming the commonest label" if found.unit is None else "always naming the mean"
