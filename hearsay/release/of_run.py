"""The released model of a simulated run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hearsay import _validate as require
from hearsay.base import Algorithm
from hearsay.graphs import Graph
from hearsay.graphs.channels import channel
from hearsay.release import predicting
from hearsay.release.model import GUESSED, SIMULATED, UNSEEDED, ReleasedModel, how_made
from hearsay.release.readouts import ReadOut, as_readout

if TYPE_CHECKING:
    from hearsay.simulation.result import Run


def released(run: Run, kind: Any, of: Any, neighbours: bool, seed: int | None) -> ReleasedModel:
    """What `Run.release` says."""
    require_shown(run.algorithm)
    readout = _kept(run, kind)
    place = 0 if seed is None else _place(run, seed)
    whose, words = chosen(run.algorithm, run.graph, of, neighbours)
    params = run.averages[readout.name][place, whose].mean(axis=0)
    rounds = int(run.steps[-1])
    predictor = predicting.of(run.problem.task)
    return ReleasedModel(
        params,
        f"{readout.of_rounds(rounds)} of {words}",
        readout.name,
        run.algorithm.name,
        run.problem.name,
        predictor,
        run.certificate,
        _warnings(run),
        _accuracy(run, predictor, params),
        run.problem.schema,
        how_made(run.algorithm, rounds, run.graph.agents),
    )


def _warnings(run: Run) -> tuple[str, ...]:
    # Not which seed it was: what may be published must not say how to take its noise off.
    guessed = run.problem.schema is not None and min(run.seeds) < GUESSED
    simulated: tuple[str, ...] = (UNSEEDED if guessed else SIMULATED,)
    if run.faults is not None and run.faults.absences:
        simulated += ("agents that were away count with the last message that they had sent",)
    if len(run.seeds) == 1:
        return simulated
    return (
        *simulated,
        f"the certificate is that of one noise seed, and the run has {len(run.seeds)}: the models"
        " of several seeds together cost as much as so many runs; publish one",
    )


def require_shown(algorithm: Algorithm) -> None:
    """Messages that show no model can be averaged, and the average is no model."""
    if not algorithm.shows:
        raise ValueError(
            f"algorithm must be one whose messages show a model, got {algorithm.name}, which sends"
            f" {', '.join(algorithm.channels)}: an average of them is none (Algorithm.shown can say"
            " which model follows from them)"
        )


def chosen(algorithm: Algorithm, graph: Graph, of: Any, neighbours: bool) -> tuple[list[int], str]:
    """(whose messages are averaged, the same in words).

    Args:
      of: "all", or the number of an agent.
      neighbours: with those that this agent hears.
    """
    agents, neighbours = graph.agents, require.flag("neighbours", neighbours)
    if isinstance(of, str):
        require.one_of("of", of, ["all"])
        return list(range(agents)), f"all {agents} agents" if agents > 1 else "the one agent"
    agent = require.natural("of", of)
    if agent >= agents:
        require.fail("of", f'"all" or an agent\'s number below {agents}', agent)
    # What is made of everybody's messages has theirs in it already.
    if not neighbours or algorithm.shows_all:
        return [agent], f"agent {agent}"
    heard = hears(algorithm, graph, agent)
    several = "s" if len(heard) != 1 else ""
    return sorted(
        {agent, *heard}
    ), f"agent {agent} and the {len(heard)} agent{several} that it hears"


@require.plain_arguments
def hears(algorithm: Algorithm, graph: Graph, agent: int) -> list[int]:
    """Those whose models an agent hears."""
    field = "params" if "params" in algorithm.channels else next(iter(algorithm.channels))
    return sorted(channel(algorithm.channels[field]).row(graph, agent))


def _kept(run: Run, kind: Any) -> ReadOut:
    if not run.readouts:
        raise ValueError(
            "release must have been asked for when the run was made, got none:"
            ' simulate(release="tail")'
        )
    if kind is None:
        return run.readouts[0]
    wanted = as_readout("kind", kind)
    same = [one for one in run.readouts if one == wanted or kind == one.name]
    if not same:
        require.fail(
            "kind",
            f"an average that the run kept ({', '.join(map(str, run.readouts))}; simulate(release="
            "...) keeps others)",
            wanted,
        )
    return same[0]


def _place(run: Run, seed: int) -> int:
    if seed not in run.seeds:
        require.fail("seed", f"one of the run's, {run.seeds}", seed)
    return run.seeds.index(seed)


def _accuracy(run: Run, predictor: predicting.Predictor, params: np.ndarray) -> float | None:
    """On the test set, where there is one and the model predicts labels."""
    problem, network = run.problem, predictor.model
    if not run.tested or (network is not None and network.scores is None):
        return None
    said, labels = predictor.predict(params, problem.test_features), problem.test_labels
    return float(np.mean(said == labels if problem.classification else (said - labels) ** 2))
