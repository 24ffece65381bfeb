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
    def rows(self) -> sparse.csr_array:
        """Row i holds the neighbours of agent i; the numbers are those of the pairs, from 1 on."""
        one, two = self.ends.T
        number = np.arange(1, len(one) + 1)
        places = np.concatenate([one, two]), np.concatenate([two, one])
        shape = (self.agents, self.agents)
        return sparse.coo_array((np.concatenate([number, number]), places), shape).tocsr()

    @cached_property
    def degrees(self) -> np.ndarray:
        return np.diff(self.rows.indptr)

    @cached_property
    def component_of(self) -> np.ndarray:
        """The number of each agent's component."""
        return connected_components(self.rows, directed=False)[1]

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
    def _around(self) -> list[list[int]]:
        """For every agent its neighbours."""
        found, starts = self.rows.indices.tolist(), self.rows.indptr.tolist()
        return [found[start:end] for start, end in pairwise(starts)]

    def _grown(self, root: int) -> list[Level]:
        around = self._around
        near = around[root]
        branch = [-1] * self.agents
        branch[root], size = root, dict.fromkeys(near, 1)
        for agent in near:
            branch[agent] = agent
        levels = [(near, [root] * len(near))]
        missing = int((self.component_of == self.component_of[root]).sum()) - 1 - len(near)
        while missing:
            offers: dict[int, list[int]] = {}
            for agent in levels[-1][0]:
                for child in around[agent]:
                    if branch[child] < 0:
                        offers.setdefault(child, []).append(agent)
            # Who has the least choice chooses first.
            children = sorted(offers, key=lambda child: len(offers[child]))
            parents = []
            for child in children:
                chosen = min(offers[child], key=lambda parent: size[branch[parent]])
                parents.append(chosen)
                branch[child] = branch[chosen]
                size[branch[chosen]] += 1
            levels.append((children, parents))
            missing -= len(children)
        return [self._level(*level) for level in levels]

    def _level(self, agents: list[int], parents: list[int]) -> Level:
        numbers = self.rows[agents, parents] - 1
        return Level(np.array(agents), np.array(parents), numbers)

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
        ties = (self.rows > 0).toarray().astype(float)
        values = eigenvalues(np.diag(ties.sum(1)) - ties)
        return max(1, int(np.ceil(values[1] - 1e-9 * values[-1])))


def eigenvalues(matrix: np.ndarray) -> np.ndarray:
    """Of a symmetric matrix, the smallest first: on one core, where they do not depend on how many
    there are, and no core waits for another that is busy elsewhere.
    """
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):
        return np.linalg.eigvalsh(matrix)


@lru_cache(maxsize=16)
def graph_of(agents: int, pairs: tuple[tuple[int, int], ...]) -> SecretsGraph:
    """One object per graph, since what it found out is the same whatever the noise."""
    return SecretsGraph(agents, pairs)
