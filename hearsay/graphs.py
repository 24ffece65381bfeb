"""Who hears whom, and with what weight.

`Graph.weights[i, j]` is the weight that agent i gives to what it hears from agent j (no diagonal). From the same weights
an algorithm takes either of the two matrices that the literature uses:

    coupling matrix   W = weights - diag(row sums)        W 1 = 0          own weight  -sum_j w_ij
    mixing matrix     A = I + W                           A 1 = 1          own weight  1 - sum_j w_ij

Builders take any number of agents and a weight rule: a number (the same on every edge), "uniform" (1 / (1 + largest
degree)) or "metropolis" (1 / (1 + the larger of the two degrees)). networkx does the graph theory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import networkx as nx
import numpy as np
from scipy import sparse

from hearsay import _validate as check

Rule = str | float


@dataclass(frozen=True, eq=False)
class Graph:
    """Weights between agents; immutable. Build one with the functions of this module."""

    weights: sparse.csr_array
    name: str = "custom"

    @property
    def agents(self) -> int:
        return self.weights.shape[0]

    @property
    def edges(self) -> int:
        """Directed edges: messages per round."""
        return self.weights.nnz

    @cached_property
    def row_sums(self) -> np.ndarray:
        """What agent i gives to all its neighbours together."""
        return np.asarray(self.weights.sum(axis=1)).ravel()

    @cached_property
    def symmetric(self) -> bool:
        difference = self.weights - self.weights.T
        return difference.nnz == 0 or float(np.abs(difference.data).max()) <= 1e-12

    @cached_property
    def coupling_eigenvalues(self) -> tuple[float, float]:
        """(second largest, smallest) eigenvalue of the coupling matrix W: delta_2 and delta_m of paper P1."""
        self.require_symmetric()
        if self.agents == 1:
            return 0.0, 0.0
        matrix = self.weights - sparse.diags_array(self.row_sums)
        if self.agents <= 600:
            values = np.linalg.eigvalsh(matrix.toarray())
            return float(values[-2]), float(values[0])
        # W is negative semidefinite, so W - I/1000 has an inverse; without it the eigenvalues near 0 of a long ring take for ever.
        top = sparse.linalg.eigsh(sparse.csc_array(matrix), k=2, sigma=1e-3, return_eigenvectors=False, tol=1e-9)
        low = sparse.linalg.eigsh(matrix, k=1, which="SA", return_eigenvectors=False, tol=1e-9)
        return float(np.sort(top)[0]), float(low[0])

    def to_networkx(self) -> nx.DiGraph:
        """Edge j -> i when agent i hears agent j."""
        return nx.from_scipy_sparse_array(self.weights.T, create_using=nx.DiGraph)

    def require_agents(self, agents: int) -> None:
        if agents != self.agents:
            raise ValueError(f"the graph has {self.agents} agents and the problem has {agents}: they must be equal")

    def require_symmetric(self) -> None:
        if not self.symmetric:
            gap = abs(self.weights - self.weights.T).tocoo()
            worst = int(np.argmax(gap.data))
            i, j = int(gap.row[worst]), int(gap.col[worst])
            raise ValueError(
                f"weights must be symmetric, got w[{i},{j}] = {self.weights[i, j]:g} and w[{j},{i}] = {self.weights[j, i]:g}"
            )

    def require_doubly_stochastic(self) -> None:
        """The mixing matrix A = I + W has rows that sum to 1 by construction: its columns must too, and its diagonal must be positive."""
        columns = np.asarray(self.weights.sum(axis=0)).ravel()
        worst = int(np.argmax(np.abs(columns - self.row_sums)))
        if abs(columns[worst] - self.row_sums[worst]) > 1e-9:
            raise ValueError(
                f"the mixing matrix must be doubly stochastic, got column {worst} with sum {1 - self.row_sums[worst] + columns[worst]:g}"
            )
        fullest = int(np.argmax(self.row_sums))
        if self.row_sums[fullest] >= 1:
            raise ValueError(
                f"the mixing matrix must have a positive diagonal, got {1 - self.row_sums[fullest]:g} in row {fullest} "
                f"(its weights sum to {self.row_sums[fullest]:g})"
            )

    @cached_property
    def second_singular_value(self) -> float:
        """sigma_2 of the mixing matrix A = I + W: how slowly disagreement fades."""
        if self.agents == 1:
            return 0.0
        if self.symmetric:
            second, smallest = self.coupling_eigenvalues
            return max(abs(1 + second), abs(1 + smallest))
        matrix = sparse.eye_array(self.agents) + self.weights - sparse.diags_array(self.row_sums)
        if self.agents <= 600:
            return float(np.linalg.svd(matrix.toarray(), compute_uv=False)[1])
        return float(np.sort(sparse.linalg.svds(matrix.tocsc(), k=2, return_singular_vectors=False))[0])

    def require_row_sums_below(self, limit: float, why: str) -> None:
        worst = int(np.argmax(self.row_sums))
        if self.row_sums[worst] > limit * (1 + 1e-12):
            raise ValueError(
                f"the weights of agent {worst} must sum to at most {limit:g}, got {self.row_sums[worst]:g} ({why})"
            )


def from_weights(matrix: Any, name: str = "custom") -> Graph:
    """A graph from a matrix of weights (dense or sparse, the diagonal is ignored); checked for sign and connection."""
    shape = np.shape(matrix) if not sparse.issparse(matrix) else matrix.shape
    if len(shape) != 2 or shape[0] != shape[1]:
        check.fail("weights", "a square matrix", shape)
    weights = sparse.csr_array(matrix, dtype=np.float64, copy=True)
    weights.setdiag(0.0)
    weights.eliminate_zeros()
    weights.sort_indices()
    if not np.all(np.isfinite(weights.data)):
        raise ValueError("weights must be finite, got NaN or infinity")
    if weights.nnz and weights.data.min() < 0:
        coo = weights.tocoo()
        worst = int(np.argmin(coo.data))
        check.fail(f"weights[{coo.row[worst]},{coo.col[worst]}]", "zero or positive", float(coo.data[worst]))
    graph = Graph(weights, name)
    _require_connected(nx.from_scipy_sparse_array(weights, create_using=nx.DiGraph).to_undirected())
    return graph


def from_mixing(matrix: Any, name: str = "custom") -> Graph:
    """A graph from a full mixing matrix A, diagonal included; checked row by row for being stochastic (paper P3, Assumption 3, needs the columns too)."""
    dense = matrix.toarray() if sparse.issparse(matrix) else np.asarray(matrix, dtype=np.float64)
    if dense.ndim != 2 or dense.shape[0] != dense.shape[1]:
        check.fail("matrix", "square", dense.shape)
    if not np.all(np.isfinite(dense)):
        raise ValueError("matrix must be finite, got NaN or infinity")
    if dense.min() < 0:
        i, j = np.unravel_index(int(np.argmin(dense)), dense.shape)
        check.fail(f"matrix[{i},{j}]", "zero or positive", float(dense[i, j]))
    for axis, what in ((1, "row"), (0, "column")):
        sums = dense.sum(axis=axis)
        worst = int(np.argmax(np.abs(sums - 1)))
        if abs(sums[worst] - 1) > 1e-9:
            raise ValueError(f"matrix must be doubly stochastic, got {what} {worst} with sum {sums[worst]:g}")
    return from_weights(dense, name)


def from_networkx(graph: nx.Graph, weight: Rule = "metropolis", name: str = "custom") -> Graph:
    """Any connected undirected networkx graph; nodes are numbered in their order. weight="given" reads the edges' weights."""
    if graph.is_directed():
        raise ValueError("graph must be undirected here: paper P1 and its baselines need symmetric weights")
    if graph.number_of_nodes() == 0:
        raise ValueError("graph must have at least one agent, got none")
    plain = nx.convert_node_labels_to_integers(nx.Graph(graph))
    plain.remove_edges_from(list(nx.selfloop_edges(plain)))
    _require_connected(plain)
    if weight != "given":
        rule = _rule(weight, plain)
        for i, j in plain.edges:
            plain.edges[i, j]["weight"] = rule(i, j)
    return from_weights(nx.to_scipy_sparse_array(plain, nodelist=range(len(plain)), dtype=np.float64), name)


def ring(agents: int, weight: Rule = "metropolis") -> Graph:
    check.count("agents", agents, 2)
    return from_networkx(nx.cycle_graph(agents) if agents > 2 else nx.path_graph(2), weight, "ring")


def star(agents: int, weight: Rule = "metropolis") -> Graph:
    """Agent 0 in the middle."""
    check.count("agents", agents, 2)
    return from_networkx(nx.star_graph(agents - 1), weight, "star")


def complete(agents: int, weight: Rule = "metropolis") -> Graph:
    check.count("agents", agents, 2)
    return from_networkx(nx.complete_graph(agents), weight, "complete")


def grid(agents: int, weight: Rule = "metropolis") -> Graph:
    """The most square grid with that many agents."""
    check.count("agents", agents, 2)
    rows = max(r for r in range(1, int(agents**0.5) + 1) if agents % r == 0)
    return from_networkx(nx.grid_2d_graph(rows, agents // rows), weight, "grid")


def exponential(agents: int, weight: Rule = "metropolis") -> Graph:
    """Every agent talks to those 1, 2, 4, ... places further round the ring."""
    check.count("agents", agents, 2)
    hops = [2**h for h in range(max(1, (agents - 1).bit_length()))]
    return from_networkx(nx.circulant_graph(agents, hops), weight, "exponential")


def random(agents: int, weight: Rule = "metropolis", *, degree: int = 4, seed: int = 0) -> Graph:
    """A random graph in which every agent has `degree` neighbours; drawn again until it is connected."""
    check.count("agents", agents, 2)
    degree = min(check.count("degree", degree, 2), agents - 1)
    if agents * degree % 2:
        raise ValueError(f"agents * degree must be even (no such graph exists otherwise), got {agents} * {degree}")
    for attempt in range(100):
        graph = nx.random_regular_graph(degree, agents, seed=seed + attempt)
        if nx.is_connected(graph):
            return from_networkx(graph, weight, "random")
    raise ValueError(f"no connected {degree}-regular graph on {agents} agents in 100 draws; raise the degree")


BUILDERS: dict[str, Callable[..., Graph]] = {
    "ring": ring,
    "star": star,
    "complete": complete,
    "grid": grid,
    "exponential": exponential,
    "random": random,
}


def _rule(weight: Rule, graph: nx.Graph) -> Callable[[int, int], float]:
    degree = dict(graph.degree)
    if isinstance(weight, str) and weight not in ("uniform", "metropolis"):
        check.fail("weight", 'a positive number, "uniform" or "metropolis"', weight)
    if weight == "uniform":
        largest = max(degree.values())
        return lambda i, j: 1.0 / (1 + largest)
    if weight == "metropolis":
        return lambda i, j: 1.0 / (1 + max(degree[i], degree[j]))
    value = check.positive("weight", weight)
    return lambda i, j: value


def _require_connected(graph: nx.Graph) -> None:
    parts = sorted((sorted(part) for part in nx.connected_components(graph)), key=lambda part: part[0])
    if len(parts) > 1:
        shown = " and ".join("{" + ",".join(map(str, p[:8])) + (",..." if len(p) > 8 else "") + "}" for p in parts[:4])
        more = f" and {len(parts) - 4} more" if len(parts) > 4 else ""
        raise ValueError(f"graph is not connected: {shown}{more}")
