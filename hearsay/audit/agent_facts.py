"""What an algorithm says that it looks up of an agent, held against what it does look up.

Agents of one kind (certification/kinds.py) are certified once, by the author's word
(`Algorithm.agent_facts`). Here everybody is described by itself, on small networks whose agents
hear with the same weight over different numbers of edges, hand out what they do not hear, and have
neighbours with other records and other noise. No number is computed: what budgets follow from is
the same, or it is not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from hearsay.audit.contract import STEPS, Broken, NotDone, Subject, among
from hearsay.base import Algorithm
from hearsay.certification.describing import own_accounts, own_amplified, rounded
from hearsay.certification.kinds import kinds
from hearsay.graphs import Graph, from_weights, pair, ring, star
from hearsay.problems.task import Task, public

# In eighths, whose sums are exact. Everybody hears with weight 1/2 in all, over two edges or three.
_ALIKE = np.array(
    [[0, 2, 1, 0, 1], [2, 0, 2, 0, 0], [1, 2, 0, 1, 0], [0, 0, 1, 0, 3], [1, 0, 0, 3, 0]]
)
# Everybody hears with weight 1/4 in all; agent 0 hands out 5/8, the others less.
_UNEVEN = np.array(
    [[0, 1, 1, 0, 0], [1, 0, 1, 0, 0], [1, 0, 0, 1, 0], [1, 0, 0, 0, 1], [2, 0, 0, 0, 0]]
)
# Of the agents' records and noise; of four agents the last ones.
_HELD, _LOUDER = (24, 30, 24, 24, 24), (1.0, 1.0, 2.0, 1.0, 1.0)
_LEVELS = (((24,) * 5, (1.0,) * 5), (_HELD, (1.0,) * 5), ((24,) * 5, _LOUDER))


def agent_facts(one: Subject) -> str:
    """Agents that are certified together would be certified alike one by one."""
    if vars(type(one.algorithm)).get("agent_facts") is None:
        raise NotDone("it does not say what it looks up: every agent is certified by itself")
    networks = together = 0
    for algorithm, task, graph in _worlds(one):
        networks += 1
        for deployed in (False, True) if _deployable(algorithm, graph) else (False,):
            found = kinds(algorithm, task, graph, deployed=deployed)
            firsts = [_described(algorithm, task, graph, i, deployed) for i in found.first]
            for agent, kind in enumerate(found.kind.tolist()):
                first = found.first[kind]
                if agent == first:
                    continue
                together += 1
                own = _described(algorithm, task, graph, agent, deployed)
                differ = [name for name, what in own.items() if what != firsts[kind][name]]
                if differ:
                    said = ", ".join(type(algorithm).agent_facts or ()) or "nothing"
                    raise Broken(
                        f"agent_facts must name all that is looked up of an agent, and says {said}:"
                        f" agents {first} and {agent} of a network ({graph.name}) would be"
                        f" certified together, and differ in {', '.join(differ)}"
                    )
    return f"{together} agents that are certified as another one, in {networks} small networks"


def _worlds(one: Subject) -> Iterator[tuple[Algorithm, Task, Graph]]:
    """Everything that is accepted: the algorithm as it is, and with noise of two levels."""
    alike, uneven = (from_weights(w / 8) for w in (_ALIKE, _UNEVEN))
    back = from_weights(_UNEVEN.T / 8)
    graphs = [
        one.graph, ring(4), star(4), star(5, weight=0.125), alike, uneven, back,
        pair(alike, uneven), pair(alike, back),
    ]  # fmt: skip
    for graph in (*graphs, *(replace(graph, lossy=True) for graph in graphs[1:5])):
        for held, louder in _LEVELS:
            task = replace(public(one.problem), counts=np.array(held[-graph.agents :]))
            factors = louder[-graph.agents :]
            algorithm = among(one.algorithm, graph.agents)
            try:
                algorithm.check(graph, task)
                algorithm = algorithm if set(factors) == {1.0} else algorithm.with_noise(factors)
                algorithm.check(graph, task)
            except ValueError:
                continue
            yield algorithm, task, graph


def _deployable(algorithm: Algorithm, graph: Graph) -> bool:
    try:
        algorithm.magnitudes(0, graph.agents)
    except ValueError:
        return False
    return True


def _described(
    algorithm: Algorithm, task: Task, graph: Graph, agent: int, deployed: bool
) -> dict[str, Any]:
    """All that a budget of that agent follows from, less what it shares with others."""
    found: dict[str, Any] = {
        "its accounts": [
            own_accounts(algorithm, task, graph, agent, endless=endless)
            for endless in (False, True)
        ],
        "what secret batches are worth": own_amplified(algorithm, task, graph, agent),
        # What is undefined is the same as what is undefined.
        "paper_epsilon": repr(algorithm.paper_epsilon(graph, agent, task, STEPS, 1e-5)),
    }
    if deployed:
        found["the rounding of its updates"] = rounded(algorithm, task, graph, agent, 1.0)
    return found
