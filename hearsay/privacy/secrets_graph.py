"""Who shares a secret with whom: the graph, without any noise scale."""

from __future__ import annotations

from functools import cached_property, lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components

# Vertex connectivity takes a maximum flow per agent; larger graphs get a bound by an eigenvalue.
_LARGEST_FLOWS, _LARGEST_EIGENVALUES = 128, 2000


class Level(NamedTuple):
    """Agents of a tree at one distance from its root."""

    agents: np.ndarray
    parents: np.ndarray
    # of the secret that an agent shares with its parent
    pairs: np.ndarray


class SecretsGraph:
    """Neighbours, components, trees and connectivity of the graph of secrets.

    Args:
      agents: how many there are.
      pairs: who shares a secret, (smaller, larger); none: every two agents do.
    """

    def __init__(self, agents: int, pairs: tuple[tuple[int, int], ...]) -> None:
        self.agents, self._pairs = agents, pairs
        self.complete = len(pairs) in (0, agents * (agents - 1) // 2)
        self._trees: dict[int, list[Level]] = {}

    @cached_property
    def ends(self) -> np.ndarray:
        """The pairs, (pair, 2)."""
        if self.complete:
            return np.stack(np.triu_indices(self.agents, 1), axis=1)
        return np.array(self._pairs, np.int64).reshape(-1, 2)

    @cached_property
    def _rows(self) -> sparse.csr_array:
        """Row i holds the neighbours of agent i; the numbers are those of the pairs, from 1 on."""
        one, two = self.ends.T
        number = np.arange(1, len(one) + 1)
        places = np.concatenate([one, two]), np.concatenate([two, one])
        shape = (self.agents, self.agents)
        return sparse.coo_array((np.concatenate([number, number]), places), shape).tocsr()

    @cached_property
    def degrees(self) -> np.ndarray:
        return np.diff(self._rows.indptr)

    @cached_property
    def component_of(self) -> np.ndarray:
        """The number of each agent's component."""
        return connected_components(self._rows, directed=False)[1]

    @cached_property
    def components(self) -> tuple[tuple[int, ...], ...]:
        """Agents that secrets connect, in order of their first agents."""
        found: dict[int, list[int]] = {}
        for agent, name in enumerate(self.component_of.tolist()):
            found.setdefault(name, []).append(agent)
        return tuple(tuple(members) for members in found.values())

    @cached_property
    def rotates(self) -> bool:
        """Whether numbering every agent one higher, the last one 0, gives the same graph."""
        turned = np.sort((self.ends + 1) % self.agents, axis=1)
        order = np.lexsort(turned.T[::-1])
        return bool(np.array_equal(turned[order], self.ends))

    def tree(self, root: int) -> list[Level]:
        """A breadth-first tree of the root's component whose branches at the root are of about the
        same size: an agent goes to the smallest branch that it may join.
        """
        if root not in self._trees:
            self._trees[root] = self._grown(root)
        return self._trees[root]

    @cached_property
    def _around(self) -> list[list[tuple[int, int]]]:
        """For every agent its neighbours, each with the number of the pair."""
        rows, starts = self._rows, self._rows.indptr.tolist()
        found = list(zip(rows.indices.tolist(), (rows.data - 1).tolist(), strict=True))
        return [found[start:end] for start, end in pairwise(starts)]

    def _grown(self, root: int) -> list[Level]:
        around = self._around
        distance, branch = [-1] * self.agents, [-1] * self.agents
        distance[root] = 0
        level = [(agent, root, pair) for agent, pair in around[root]]
        size = {}
        for agent, _, _ in level:
            distance[agent], branch[agent], size[agent] = 1, agent, 1
        levels = []
        while level:
            levels.append(Level(*np.array(level, np.int64).T))
            below: dict[int, int] = {}
            for agent, _, _ in level:
                for child, _ in around[agent]:
                    if distance[child] < 0:
                        below[child] = below.get(child, 0) + 1
            level = []
            # Who has the least choice chooses first.
            for child in sorted(below, key=below.__getitem__):
                least, chosen = self.agents, (-1, -1)
                for parent, pair in around[child]:
                    if distance[parent] == len(levels) and size[branch[parent]] < least:
                        least, chosen = size[branch[parent]], (parent, pair)
                distance[child] = len(levels) + 1
                branch[child] = branch[chosen[0]]
                size[branch[child]] += 1
                level.append((child, *chosen))
        return levels

    @cached_property
    def connectivity(self) -> int:
        """How many agents must leave before the others fall apart; n - 1 of a complete graph. Of a
        large graph a number that is proved not to be above it.
        """
        if self.complete:
            return self.agents - 1
        if len(self.components) > 1:
            return 0
        if self.agents <= _LARGEST_FLOWS:
            import networkx as nx

            return int(nx.node_connectivity(nx.Graph(self.ends.tolist())))
        if self.agents > _LARGEST_EIGENVALUES:
            return 1
        # Fiedler 1973: the second eigenvalue of the Laplacian is at most the connectivity.
        ties = (self._rows > 0).toarray().astype(float)
        values = np.linalg.eigvalsh(np.diag(ties.sum(1)) - ties)
        return max(1, int(np.ceil(values[1] - 1e-9 * values[-1])))


@lru_cache(maxsize=16)
def graph_of(agents: int, pairs: tuple[tuple[int, int], ...]) -> SecretsGraph:
    """One object per graph, since what it found out is the same whatever the noise."""
    return SecretsGraph(agents, pairs)
