"""Kinds of agents: those of one kind have the same description, and are certified once.

What the engine asks of an agent's number, it asks to look up

    the records that it holds          Task.counts
    how much it hears                  Graph.row_sums, for `leak`
    the scales of its noise            fields annotated as Noise, for `releases`
    what else its algorithm looks up   Algorithm.agent_facts, and fields with an entry per agent
    what its shared noise is worth     its position in the graph of secrets (Shared.positions)
    in a deployed run, all weights     of what it hears, pushes and hands out, for its arithmetic

and everything else is the same for all agents. So agents for whom these are equal, to the last bit,
have equal descriptions, budgets and curves. That an algorithm's own methods ask for no more is its
author's word, `agent_facts`; hearsay's tests compare every one of hearsay's algorithms with what is
computed agent by agent, and check_algorithm those of others (audit/agent_facts.py). A class that
does not say so itself, one that inherits it included, has a kind for every agent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np

from hearsay import _validate as require
from hearsay._parts import distinct
from hearsay.base import Algorithm
from hearsay.graphs import Graph
from hearsay.problems.task import Task, public

# What an algorithm may look up of an agent beside its records, its noise and its own fields.
FACTS: dict[str, Callable[[Graph], np.ndarray]] = {
    "heard": lambda graph: graph.row_sums,
    "pushed": lambda graph: graph.pushed_sums,
    "handed_out": lambda graph: graph.handed_out,
}


class Kinds(NamedTuple):
    """Which agents have the same description.

    Args:
      kind: of every agent, from 0 on.
      first: the first agent of every kind; kinds are in the order of these.
    """

    kind: np.ndarray
    first: list[int]

    def each(self, values: Sequence[Any] | np.ndarray) -> np.ndarray:
        """What every agent has, from what every kind has.

        Args:
          values: one per kind, or an array whose last axis is that of the kinds.
        """
        return np.asarray(values)[..., self.kind]

    def split(self, *columns: Any) -> Kinds:
        """Kinds whose agents have the same numbers too.

        Args:
          columns: one number for each agent, each.
        """
        return _numbered(self.kind, *(np.asarray(column) for column in columns))


def kinds(algorithm: Algorithm, problem: Task, graph: Graph, *, deployed: bool = False) -> Kinds:
    """The kinds of agents in a run.

    Args:
      algorithm: what the agents run.
      problem: what they learn.
      graph: who hears whom.
      deployed: what bounds the rounding of an agent's arithmetic is described too.

    Example:
      >>> import hearsay as hs
      >>> task, graph = hs.problems.ridge(agents=5, records=50).task, hs.graphs.star(5)
      >>> kinds(hs.ldp_online(), task, graph)
      Kinds(kind=array([0, 1, 1, 1, 1]), first=[0, 1])
    """
    problem, agents = public(problem), graph.agents
    own = vars(type(algorithm)).get("agent_facts")
    if own is None:
        return Kinds(np.arange(agents), list(range(agents)))
    for name in own:
        require.one_of("agent_facts", name, FACTS)
    columns = [FACTS[name](graph) for name in (FACTS if deployed else own)]
    columns += [problem.counts]
    for field in fields(algorithm):
        value = getattr(algorithm, field.name)
        # Lists and arrays too: a class that makes no tuples of them looks them up all the same.
        if require.is_sequence(value) and len(value) == agents:
            columns.append(_places(value))
    if (shared := algorithm.shared(agents)) is not None:
        columns.append(np.array(shared.positions()))
    return _numbered(*columns)


def _places(entries: Any) -> np.ndarray:
    """Of every agent's entry its place among the different ones."""
    try:
        return distinct(tuple(entries))[1]
    except TypeError:  # rows, which cannot be looked up
        return distinct(tuple(map(repr, np.asarray(entries).tolist())))[1]


def _numbered(*columns: np.ndarray) -> Kinds:
    """Kinds by the rows of these columns."""
    kind = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        if np.all(column == column[0]):
            continue
        values, place = np.unique(column, return_inverse=True)
        kind = np.unique(kind * len(values) + place.ravel(), return_inverse=True)[1].ravel()
    _, first = np.unique(kind, return_index=True)
    order = np.argsort(first)
    renamed = np.empty(len(order), np.int64)
    renamed[order] = np.arange(len(order))
    return Kinds(renamed[kind], first[order].tolist())
