"""The pairs of agents that an edge joins, whichever way it points: numbered in the order of
(smaller agent, larger agent), so that everybody who knows the graph counts them alike.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from scipy import sparse

from hearsay import _validate as require
from hearsay.graphs.graph import Graph


@lru_cache(maxsize=8)
def edges(graph: Graph) -> np.ndarray:
    """(edge, 2): the smaller and the larger agent of each pair. A deployed agent asks in every
    round, so it is worked out once for a graph.

    Args:
      graph: who hears whom.

    Example:
      >>> import hearsay as hs
      >>> edges(hs.graphs.ring(4)).tolist()
      [[0, 1], [0, 3], [1, 2], [2, 3]]
    """
    either = sparse.triu(graph.weights + graph.weights.T, k=1).tocoo()
    pairs = np.stack([either.row, either.col], axis=1).astype(np.int32)
    return require.kept(pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))])


def slots(graph: Graph) -> np.ndarray:
    """(agent, slot): the numbers of each agent's edges in increasing order, then -1.

    Args:
      graph: who hears whom.

    Example:
      >>> import hearsay as hs
      >>> slots(hs.graphs.star(4)).tolist()
      [[0, 1, 2], [0, -1, -1], [1, -1, -1], [2, -1, -1]]
    """
    ends = edges(graph)
    agent = ends.ravel()
    # By agent, and within one by the number of the edge.
    order = np.argsort(agent, kind="stable")
    degrees = np.bincount(agent, minlength=graph.agents)
    place = np.arange(agent.size) - np.repeat(np.cumsum(degrees) - degrees, degrees)
    found = np.full((graph.agents, int(degrees.max())), -1, np.int32)
    found[agent[order], place] = order // 2
    return found
