"""From a problem to the model that may be published: settings from a rehearsal, which sees no
record, a simulated run with them, and the average of its messages.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple

from hearsay import _validate as require
from hearsay.graphs import BUILDERS, Graph
from hearsay.problems.losses.models import MODELS
from hearsay.problems.problem import Problem
from hearsay.release.model import ReleasedModel
from hearsay.simulation.result import Run
from hearsay.simulation.simulating import simulate
from hearsay.tradeoff import Rehearsal, rehearse, usual_graph

LINEAR = "linear"


class Fitted(NamedTuple):
    """What a fit leaves: the run holds private models, the released model may be published."""

    run: Run
    rehearsal: Rehearsal
    model: ReleasedModel


def network_of(model: Any) -> Any:
    """What `problems.tabular` takes for the name of a model: None for the linear one."""
    if isinstance(model, str):
        require.one_of("model", model, (LINEAR, *MODELS))
    return None if model == LINEAR else model


def graph_of(graph: Any, agents: int) -> Graph:
    """A graph of so many agents, from what people write: None for the usual one, a name, or
    itself.
    """
    if graph is None:
        return usual_graph(agents)
    if isinstance(graph, str):
        return BUILDERS[require.one_of("graph", graph, BUILDERS)](agents)
    require.instance("graph", graph, Graph, "a Graph (hearsay.graphs), the name of one, or None")
    if graph.agents != agents:
        require.fail("graph", f"one of the {agents} agents that have tables", graph.agents)
    return graph


def rehearsed(
    problem: Problem,
    graph: Graph,
    *,
    epsilon: float,
    delta: float,
    colluders: int | None = None,
    progress: Callable[..., None] | None = None,
) -> Rehearsal:
    """The settings for that problem, from what is public of it."""
    return rehearse(
        problem.task, graph, epsilon, delta=delta, colluders=colluders, progress=progress
    )


def run_rehearsed(
    rehearsal: Rehearsal,
    problem: Problem,
    graph: Graph,
    *,
    delta: float,
    seed: int,
    folder: str | os.PathLike | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Callable[[int, int, float], None] | None = None,
) -> Fitted:
    """Run the settings of a rehearsal on the problem that it was about, and release the model."""
    run = simulate(
        rehearsal.algorithm,
        rehearsal.prepared(problem),
        graph,
        steps=rehearsal.rounds,
        seeds=[seed],
        delta=delta,
        reference=False,
        regret=False,
        release=(rehearsal.readout,),
        folder=folder,
        resume=resume,
        overwrite=overwrite,
        progress=progress,
    )
    return Fitted(run, rehearsal, run.release())
