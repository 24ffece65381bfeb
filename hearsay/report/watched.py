"""The page of a network that is being watched (templates/watched.html): where its agents are, what
deserves an alarm, how far they came while somebody watched. It is drawn anew every few seconds, and
a browser that has it open loads it again as often.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from hearsay.privacy.certificate import few, show
from hearsay.report.numbers import duration, instant
from hearsay.report.page import Table, picture, write
from hearsay.report.plot_style import (
    COLOURS,
    INK,
    NODE,
    SOFT,
    UNBOUNDED,
    line_style,
    new_figure,
    plain_ticks,
    styled,
)

if TYPE_CHECKING:
    from hearsay.deploy.watching import Watch, Watched

_LINES = 12  # more labelled lines than this cannot be told apart
_NAMED = 40  # agents whose names have room in the picture
_DRAWN = 5000  # links, both ways, that a picture has room for
_LISTED = 100  # alarms
_POINTS = 100  # of a line
_WAITS = "#fbe3cd"


def watched_page(watch: Watch, file: Path, title: str, every: float | None) -> Path:
    """Write the page; returns its path.

    Args:
      watch: what has been seen.
      file: where the page goes.
      title: of it.
      every: after so many seconds it will be written again; None: this is the last one.
    """
    agents, alarms = list(watch.agents.values()), watch.alarms()
    pictures = []
    if sum(len(agent.said.hears) for agent in agents if agent.said) <= 2 * _DRAWN:
        pictures.append(picture("links", _links(agents), "Who hears whom now. " + _LEGEND))
    if any(len(agent.rounds) > 1 for agent in agents):
        pictures.append(picture("rounds", _rounds(agents), "Rounds while somebody watched."))
    return write(
        file,
        "watched.html",
        title=title,
        about=f"As of {instant(watch.at)} UTC",
        # As browsers read it: a whole number without separators.
        every=None if every is None else f"{every:.0f}",
        done=watch.all_done,
        headline=_headline(watch, agents),
        alarms=[f"{a.name} {a.why} (since {instant(a.since)})" for a in alarms[:_LISTED]],
        more=max(0, len(alarms) - _LISTED),
        pictures=pictures,
        agents=_table(watch, agents),
    )


def _headline(watch: Watch, agents: list[Watched]) -> list[tuple[str, str, str]]:
    here, said = sum(agent.reached for agent in agents), [a.said for a in agents if a.said]
    done = sum(agent.done for agent in agents)
    tiles = [("Agents", f"{here} of {len(agents)} reached", f"{done} of them done")]
    if not said:
        return tiles
    first, last = min(one.round for one in said), max(one.round for one in said)
    between = f"{first:,}" if first == last else f"{first:,} to {last:,}"
    tiles.append(("Round", f"{between} of {max(one.of for one in said):,}", _pace(watch)))
    most = max(said, key=lambda one: one.spent)
    whose = [a.name for a in agents if a.said and a.said.spent == most.spent]
    whose_words = "every agent" if len(whose) == len(agents) else few(whose, ", ", 3)
    return [*tiles, (f"Largest {most.unit or 'budget'} so far", show(most.spent), whose_words)]


def _pace(watch: Watch) -> str:
    if watch.all_done:
        return "all are done"
    left = watch.left
    return "nobody knows yet for how long" if left is None else f"about {duration(left)} more"


def _table(watch: Watch, agents: list[Watched]) -> Table:
    header = ("agent", "round", "spent", "connected to", "waiting for", "dropped", "last change")
    rows = list[list[object]]()
    for agent in agents:
        said = agent.said
        if said is None:
            rows.append([agent.name, "not reached", *[None] * (len(header) - 2)])
            continue
        place = "done" if agent.done else f"{said.round:,} of {said.of:,}"
        linked = f"{len(said.alive & said.hears)} of {len(said.hears)}"
        rows.append(
            [
                agent.name,
                place,
                show(said.spent),
                linked if agent.reached else "ended" if agent.done else "not reached",
                few(sorted(said.waiting_for), ", ", 4) if agent.reached else None,
                said.dropped,
                None if agent.stood is None else instant(agent.stood),
            ]
        )
    return Table(f"What every agent last said of itself, at {instant(watch.at)} UTC", header, rows)


_LEGEND = (
    "Grey lines: connected; dashed: not. Blue: at work; pale: waits for somebody; orange: not"
    " reached; white: done."
)


def _links(agents: list[Watched]) -> Figure:
    """Agents on a circle, as on the page of a run."""
    figure, ax = new_figure(5.0, 3.9)
    angle = np.pi / 2 - 2 * np.pi * np.arange(len(agents)) / len(agents)
    points = zip(np.cos(angle).tolist(), np.sin(angle).tolist(), strict=True)
    place = dict(zip((agent.name for agent in agents), points, strict=True))
    size = float(np.clip(5200 / len(agents), 12, 160))
    with styled():
        pairs = _pairs(agents)
        for state, colour, style in ((True, SOFT, "-"), (False, UNBOUNDED, "--")):
            lines = [
                [place[name] for name in sorted(pair)] for pair in pairs if pairs[pair] is state
            ]
            ax.add_collection(
                LineCollection(lines, colors=colour, linestyles=style, linewidths=0.8)
            )
        x, y = zip(*place.values(), strict=True)
        colours = [_colour(agent) for agent in agents]
        ax.scatter(x, y, s=size, c=colours, edgecolors=SOFT, linewidths=0.7, zorder=3)
        if len(agents) <= _NAMED:
            for name, (across, up) in place.items():
                side = "center" if abs(across) < 0.2 else "left" if across > 0 else "right"
                at = (1.12 * across, 1.16 * up)
                ax.annotate(name, at, ha=side, va="center", color=INK, fontsize=8)
        ax.set_aspect("equal")
        ax.margins(0.2)
        ax.axis("off")
    return figure


def _colour(agent: Watched) -> str:
    here = _WAITS if agent.waited else NODE
    return "white" if agent.done else here if agent.reached else UNBOUNDED


def _pairs(agents: list[Watched]) -> dict[frozenset[str], bool]:
    """Who hears whom, and whether that is so now: both ways, where it is to be both ways."""
    found: dict[frozenset[str], bool] = {}
    for agent in agents:
        said = agent.said
        for other in sorted(said.hears) if said else ():
            up = agent.done or (agent.reached and said is not None and other in said.alive)
            pair = frozenset((agent.name, other))
            found[pair] = found.get(pair, True) and up
    return found


def _rounds(agents: list[Watched]) -> Figure:
    figure, ax = new_figure()
    begin = min(agent.rounds[0][0] for agent in agents if agent.rounds)
    span = max(agent.rounds[-1][0] for agent in agents if agent.rounds) - begin
    name, seconds = next(
        (name, size)
        for name, size in (
            ("days", 86400.0),
            ("hours", 3600.0),
            ("minutes", 60.0),
            ("seconds", 1.0),
        )
        if span >= 3 * size or size == 1.0
    )
    named = len(agents) <= _LINES
    with styled():
        for index, agent in enumerate(agents):
            # A name that starts with "_" would be left out of the legend.
            style = line_style(index) if named else {"color": COLOURS[0], "alpha": 0.5, "lw": 0.8}
            # As many points as can be seen, the last one always.
            seen = agent.rounds[:: -max(1, len(agent.rounds) // _POINTS)]
            x = [(at - begin) / seconds for at, _ in seen]
            ax.plot(x, [round for _, round in seen], label=f" {agent.name}", **style)
        ax.set_xlabel(f"{name} since the watching began")
        ax.set_ylabel("round")
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_major_locator(MaxNLocator(7, integer=True))
        plain_ticks(ax)
        if named:
            ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure
