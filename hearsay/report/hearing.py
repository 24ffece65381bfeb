"""Who heard whom in a run on a network that failed: a section of its page (templates/run.html)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hearsay.report.numbers import count
from hearsay.report.page import Table, picture
from hearsay.report.plot_style import SHADES, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from hearsay.simulation.hearing import Hearing
    from hearsay.simulation.result import Run

# More agents than this are shown as a distribution, and only the least heard by number.
_MATRIX, _ROWS = 40, 20


def hearing_section(run: Run) -> dict[str, object]:
    """Empty where everything was delivered."""
    if run.hearing is None or run.faults is None:
        return {}
    found = run.hearing
    figure, ax = new_figure(5.0, 3.9)
    caption = matrix(found, ax) if len(found.sent) <= _MATRIX else distribution(found, ax)
    order = np.argsort(found.hears, kind="stable")[:_ROWS].tolist()
    rows = [
        (i, f"{found.sent[i]:,}", _percent(found.hears[i]), _percent(found.is_heard[i]))
        for i in (sorted(order) if len(found.sent) <= _ROWS else order)
    ]
    least = f"the {_ROWS} that heard least" if len(found.sent) > _ROWS else "by agent"
    return {
        "lead": (
            f"Faults: {run.faults}. Of what was sent, {_percent(found.share)} was heard, over"
            f" {count(len(found.heard), 'link')}. Every message is charged, heard or not; the"
            " certificate allows for any of them to be missing. Faults are drawn from a seed, and"
            " say nothing of anybody's records."
        ),
        "picture": picture("hearing", figure, caption),
        "table": Table(
            f"Who heard how much, {least}", ("agent", "messages sent", "hears", "is heard"), rows
        ),
    }


def matrix(found: Hearing, ax: Axes) -> str:
    """A square for every link, darker where more was heard; returns its caption."""
    agents = len(found.sent)
    shares = np.full((agents, agents), np.nan)
    shares[found.hearer, found.sender] = found.links
    shown = ax.imshow(shares, vmin=0, vmax=1, cmap=SHADES, interpolation="nearest")
    ax.figure.colorbar(shown, ax=ax, label="share heard")
    ax.set(xlabel="sender", ylabel="hearer")
    ax.grid(visible=False)
    return "Share of a sender's messages that each hearer heard; no square: no link."


def distribution(found: Hearing, ax: Axes) -> str:
    """How many agents heard how much; returns its caption."""
    for shares, label in ((found.hears, "hears"), (found.is_heard, "is heard")):
        ax.hist(shares, bins=np.linspace(0, 1, 41).tolist(), histtype="step", label=label)
    ax.set(xlabel="share of messages", ylabel="agents")
    ax.legend()
    return "Share of messages that agents heard, and that were heard of them."


def _percent(share: float) -> str:
    return f"{100 * float(share):.1f} %"
