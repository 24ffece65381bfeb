"""A picture of the network: agents as dots, coloured by their epsilon, and who hears whom."""

from __future__ import annotations

from collections.abc import Sequence

import networkx as nx
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize, to_rgb
from matplotlib.ticker import FuncFormatter, MaxNLocator

from hearsay.graphs import Graph
from hearsay.report.numbers import quantity
from hearsay.report.plot_style import INK, NODE, SHADES, SOFT, UNBOUNDED, axes_or_new, styled

_CIRCLES = ("ring", "complete", "exponential")
_NAMED = 150  # agents that still have room for a label
_LAID_OUT = 400  # a spring layout takes time in proportion to the square of the agents
_LINKS = 20_000


def network(graph: Graph, ax: Axes | None = None, values: Sequence[float] | None = None) -> Axes:
    """The graph; `values` (epsilon per agent) colour the agents.

    Arrows point from speaker to listener where links go one way.
    """
    ax = axes_or_new(ax)
    with styled():
        place = _positions(graph)
        named = graph.agents <= _NAMED
        _links(ax, graph, place, named)
        colours = (
            _colours(ax, values)
            if values is not None
            else np.full(graph.agents, NODE, dtype=object)
        )
        size = float(np.clip(5200 / graph.agents, 8, 380))
        ax.scatter(
            place[:, 0],
            place[:, 1],
            s=size,
            c=list(colours),
            edgecolors=SOFT,
            linewidths=0.5 if named else 0,
            zorder=2,
            rasterized=graph.agents > _LAID_OUT,
        )
        if named:
            points = float(np.clip(0.5 * size**0.5, 4, 9))
            for agent, (x, y) in enumerate(place):
                ink = INK if _light(colours[agent]) else "white"
                ax.text(
                    x,
                    y,
                    str(agent),
                    ha="center",
                    va="center_baseline",
                    fontsize=points,
                    color=ink,
                    zorder=3,
                )
        ax.set_aspect("equal")
        ax.margins(0.12)
        ax.axis("off")
    return ax


def _positions(graph: Graph) -> np.ndarray:
    agent = np.arange(graph.agents)
    if graph.name == "grid":
        # Numbered row by row: the farthest neighbour of agent 0 is the first of the second row.
        across = int(graph.weights.indices[: graph.weights.indptr[1]].max())
        return np.stack([agent % across, -(agent // across)], axis=1).astype(np.float64)
    if graph.name in _CIRCLES or graph.agents > _LAID_OUT:
        # From the top, clockwise, as one reads a clock.
        angle = np.pi / 2 - 2 * np.pi * agent / graph.agents
        return np.stack([np.cos(angle), np.sin(angle)], axis=1)
    # Without weights: a layout would take them for distances.
    plain = nx.Graph(graph.to_networkx().edges)
    plain.add_nodes_from(agent.tolist())
    if graph.agents <= 60:
        found = nx.kamada_kawai_layout(plain)
    else:
        found = nx.spring_layout(plain, seed=0, iterations=80)
    return np.array([found[a] for a in agent.tolist()])


def _links(ax: Axes, graph: Graph, place: np.ndarray, arrows: bool) -> None:
    pairs = np.stack(graph.weights.nonzero(), axis=1)  # (listener, speaker)
    if not graph.symmetric and arrows:
        for listener, speaker in pairs:
            ax.annotate(
                "",
                place[listener],
                place[speaker],
                zorder=1,
                arrowprops={
                    "arrowstyle": "-|>",
                    "color": SOFT,
                    "lw": 0.7,
                    "shrinkA": 8,
                    "shrinkB": 9,
                },
            )
        return
    pairs = np.unique(np.sort(pairs, axis=1), axis=0)
    drawn = pairs[:: -(-len(pairs) // _LINKS)] if len(pairs) else pairs
    if len(drawn) < len(pairs):
        note = f"{len(drawn):,} of {len(pairs):,} links drawn"
        ax.text(
            0.5, 0.0, note, transform=ax.transAxes, ha="center", va="top", fontsize=8, color=SOFT
        )
    # One line with gaps instead of one object per link: ten times smaller and faster.
    ends = place[drawn]
    gaps = np.full((len(drawn), 1, 2), np.nan)
    path = np.concatenate([ends, gaps], axis=1).reshape(-1, 2)
    width, alpha = (1.1, 1.0) if len(drawn) <= 300 else (0.6, 0.6 if len(drawn) <= 3000 else 0.15)
    ax.plot(
        *path.T,
        color="#9aa5b1",
        linewidth=width,
        alpha=alpha,
        zorder=1,
        rasterized=len(drawn) > 3000,
    )


def _colours(ax: Axes, values: Sequence[float]) -> np.ndarray:
    """One colour per agent, and a scale beside the picture when the finite values differ."""
    epsilon = np.asarray(values, np.float64)
    bounded = np.isfinite(epsilon)
    colours = np.full(len(epsilon), UNBOUNDED, dtype=object)
    if not bounded.all():
        ax.scatter([], [], s=50, color=UNBOUNDED, label="infinite epsilon")
        ax.legend(loc="upper center", bbox_to_anchor=(0.5, 0.0))
    if not bounded.any():
        return colours
    low, high = float(epsilon[bounded].min()), float(epsilon[bounded].max())
    if high - low <= 1e-6 * high:
        colours[bounded] = NODE
        return colours
    scale = ScalarMappable(Normalize(low, high), SHADES)
    # Not one by one: many agents have the same few.
    known, place = np.unique(epsilon[bounded], return_inverse=True)
    shades = np.empty(len(known), dtype=object)
    shades[:] = [tuple(shade) for shade in scale.to_rgba(known)]
    colours[bounded] = shades[place.ravel()]
    bar = ax.figure.colorbar(scale, ax=ax, shrink=0.7, aspect=22, pad=0.03, label="epsilon")
    bar.locator = MaxNLocator(5)
    bar.formatter = FuncFormatter(lambda value, _: quantity(value))
    bar.outline.set_visible(False)  # type: ignore[operator]
    bar.update_ticks()
    return colours


def _light(colour: object) -> bool:
    red, green, blue = to_rgb(colour)  # type: ignore[arg-type]
    return 0.299 * red + 0.587 * green + 0.114 * blue > 0.55
