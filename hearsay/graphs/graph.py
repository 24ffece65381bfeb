"""Who hears whom, and with what weight.

`Graph.weights[i, j]` is the weight that agent i gives to what it hears from agent j (no diagonal).
From the same weights an algorithm takes either of the two matrices that the literature uses:

    coupling matrix   W = weights - diag(row sums)        W 1 = 0         own weight  -sum_j w_ij
    mixing matrix     A = I + W                           A 1 = 1         own weight  1 - sum_j w_ij

Builders take any number of agents and a weight rule: a number (the same on every edge), "uniform"
(1 / (1 + largest degree)) or "metropolis" (1 / (1 + the larger of the two degrees)). networkx does
the graph theory.

Directed graphs serve gradient tracking (paper P2), where states are pulled over `weights` = R and
trackers are pushed over a second matrix `push` = C, with

    pushing matrix    C - diag(column sums)               1' (...) = 0     own weight  -sum_j c_ji:
                      an agent knows the weights it hands out

An edge j -> i means that agent i hears agent j. `weight="degree"` shares evenly:
R_ij = 1 / (1 + what i hears), C_ij = 1 / (1 + who hears j).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import networkx as nx
import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from hearsay import _validate as require

_DIRECTED = (
    "gradient-tracking takes any directed graph, gradient-perturbation and output-perturbation one"
    " with a doubly stochastic mixing matrix (directed_ring)"
)


@dataclass(frozen=True, eq=False)
class Graph:
    """Weights between agents; immutable.

    The functions of graphs/builders.py and this module build one.

    Args:
      weights: entry (i, j) is what agent i hears agent j with; a sparse matrix without a diagonal.
      name: what reports call it.
      push: the trackers' weights C where they differ from the states' weights R.
      lossy: any edge may fail to deliver in any round: its term is then left out, and certificates
        allow for it.
    """

    weights: sparse.csr_array
    name: str = "custom"
    # The trackers' weights C where they differ from the states' weights R.
    push: sparse.csr_array | None = None
    # Any edge may fail to deliver in any round: its term is then left out, and certificates
    # allow for it.
    lossy: bool = False

    def __post_init__(self) -> None:
        require.settle(self, weights=_kept, push=require.optional(_kept), lossy=require.flag)

    @property
    def pushed(self) -> sparse.csr_array:
        """C: over which trackers travel."""
        return self.weights if self.push is None else self.push

    @cached_property
    def handed_out(self) -> np.ndarray:
        """Column sums of C: what agent i's tracker is weighted with by all who hear it together."""
        return np.asarray(self.pushed.sum(axis=0)).ravel()

    @cached_property
    def pushed_sums(self) -> np.ndarray:
        """Row sums of C: what agent i gives to all the trackers that it hears together."""
        return np.asarray(self.pushed.sum(axis=1)).ravel()

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
        """(second largest, smallest) eigenvalue of the coupling matrix W:
        delta_2 and delta_m of paper P1.
        """
        self.require_symmetric()
        if self.agents == 1:
            return 0.0, 0.0
        matrix = self.weights - sparse.diags_array(self.row_sums)
        if self.agents <= 600:
            values = np.linalg.eigvalsh(matrix.toarray())
            return float(values[-2]), float(values[0])
        # W is negative semidefinite, so W - I/1000 has an inverse; without it the eigenvalues near
        # 0 of a long ring take forever.
        top = sparse.linalg.eigsh(
            sparse.csc_array(matrix), k=2, sigma=1e-3, return_eigenvectors=False, tol=1e-9
        )
        low = sparse.linalg.eigsh(matrix, k=1, which="SA", return_eigenvectors=False, tol=1e-9)
        return float(np.sort(top)[0]), float(low[0])

    def digest(self) -> str:
        """A fingerprint of all that a run depends on: who hears whom and with what weight,
        states and trackers, and whether messages may be lost.
        """
        found = hashlib.sha256(f"{self.agents} lossy={self.lossy}".encode())
        for matrix in (self.weights, self.pushed):
            plain = matrix.copy()
            # Sorts too: the same weights in another order are the same graph.
            plain.sum_duplicates()
            for array, kind in (
                (plain.indptr, np.int64),
                (plain.indices, np.int64),
                (plain.data, np.float64),
            ):
                found.update(np.ascontiguousarray(array, kind).tobytes())
        return found.hexdigest()

    def to_networkx(self) -> nx.DiGraph:
        """Edge j -> i when agent i hears agent j."""
        return nx.from_scipy_sparse_array(self.weights.T, create_using=nx.DiGraph)

    def require_agents(self, agents: int) -> None:
        if agents != self.agents:
            raise ValueError(
                f"the graph has {self.agents} agents and the problem has {agents}: they must be"
                " equal"
            )

    def require_symmetric(self, by: str = "") -> None:
        """Refuse other weights; `by`: who needs them, an algorithm."""
        if not self.symmetric:
            gap = abs(self.weights - self.weights.T).tocoo()
            worst = int(np.argmax(gap.data))
            i, j = int(gap.row[worst]), int(gap.col[worst])
            raise ValueError(
                f"weights must be symmetric, got w[{i},{j}] = {self.weights[i, j]:g} and w[{j},{i}]"
                f" = {self.weights[j, i]:g}" + (by and f": {by} needs that; {_DIRECTED}")
            )

    def require_doubly_stochastic(self, by: str = "") -> None:
        """The mixing matrix A = I + W has rows that sum to 1 by construction: its columns must too,
        and its diagonal must be positive. `by`: who needs that, an algorithm.
        """
        columns = np.asarray(self.weights.sum(axis=0)).ravel()
        worst = int(np.argmax(np.abs(columns - self.row_sums)))
        if abs(columns[worst] - self.row_sums[worst]) > 1e-9:
            raise ValueError(
                f"the mixing matrix must be doubly stochastic, got column {worst} with sum"
                f" {1 - self.row_sums[worst] + columns[worst]:g}"
                + (by and f": {by} needs that; {_DIRECTED}")
            )
        fullest = int(np.argmax(self.row_sums))
        if self.row_sums[fullest] >= 1:
            raise ValueError(
                "the mixing matrix must have a positive diagonal, got"
                f" {1 - self.row_sums[fullest]:g} in row {fullest} (its weights sum to"
                f" {self.row_sums[fullest]:g})"
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
        return float(
            np.sort(sparse.linalg.svds(matrix.tocsc(), k=2, return_singular_vectors=False))[0]
        )

    def roots(self) -> tuple[set[int], set[int]]:
        """(agents whose states reach everybody over R, agents whom everybody's trackers reach over
        C): the roots of paper P2's Assumption 1.
        """
        return _roots(_flow(self.weights)), _roots(_flow(self.pushed).reverse())

    def require_common_root(self) -> None:
        """Paper P2, Assumption 1: spanning trees in G_R and in the transpose of G_C,
        with a root in common.
        """
        from_, to = self.roots()
        if not from_:
            raise ValueError(
                f"no agent's state reaches everybody over R: {_stranded(_flow(self.weights))}"
            )
        if not to:
            raise ValueError(
                "no agent is reached by everybody's tracker over C:"
                f" {_stranded(_flow(self.pushed).reverse(), 'is not reached by the trackers of')}"
            )
        if not from_ & to:
            raise ValueError(
                f"R and C must have a root in common, but states spread from {_listed(from_)} only"
                f" and trackers gather at {_listed(to)} only"
            )

    def require_row_sums_below(self, limit: float, why: str) -> None:
        worst = int(np.argmax(self.row_sums))
        if self.row_sums[worst] > limit * (1 + 1e-12):
            raise ValueError(
                f"the weights of agent {worst} must sum to at most {limit:g}, got"
                f" {self.row_sums[worst]:g} ({why})"
            )


@require.known_arguments
def from_weights(matrix: Any, name: str = "custom") -> Graph:
    """A graph from a matrix of weights, checked for sign and connection.

    Args:
      matrix: dense or sparse; the diagonal is ignored.
      name: what reports call it.

    Example:
      >>> import hearsay as hs
      >>> hs.graphs.from_weights([[0, 0.4], [0.4, 0]]).agents
      2
    """
    shape = np.shape(matrix) if not sparse.issparse(matrix) else matrix.shape
    if len(shape) != 2 or shape[0] != shape[1]:
        require.fail("weights", "a square matrix", shape)
    weights = _float64("weights", matrix).copy()
    weights.setdiag(0.0)
    weights.eliminate_zeros()
    weights.sort_indices()
    if not np.all(np.isfinite(weights.data)):
        raise ValueError("weights must be finite, got NaN or infinity")
    if weights.nnz and weights.data.min() < 0:
        coo = weights.tocoo()
        worst = int(np.argmin(coo.data))
        require.fail(
            f"weights[{coo.row[worst]},{coo.col[worst]}]",
            "zero or positive",
            float(coo.data[worst]),
        )
    graph = Graph(weights, name)
    require_connected(weights)
    return graph


@require.known_arguments
def pair(states: Graph, trackers: Graph, name: str | None = None) -> Graph:
    """States travel over the first graph (R), trackers over the second (C).

    Args:
      states: whose weights are R.
      trackers: whose weights are C; as many agents.
      name: what reports call it; the two names unless given.

    Example:
      >>> import hearsay as hs
      >>> hs.graphs.pair(hs.graphs.ring(5), hs.graphs.star(5)).name
      'ring and star'
    """
    trackers.require_agents(states.agents)
    label = name or (
        states.name if states.name == trackers.name else f"{states.name} and {trackers.name}"
    )
    lossy = states.lossy or trackers.lossy
    return Graph(states.weights, label, trackers.pushed, lossy)


@require.known_arguments
def from_mixing(matrix: Any, name: str = "custom") -> Graph:
    """A graph from a full mixing matrix A, diagonal included, whose rows and columns sum to 1.

    Args:
      matrix: doubly stochastic (paper P3, Assumption 3); dense or sparse.
      name: what reports call it.

    Example:
      >>> import hearsay as hs
      >>> hs.graphs.from_mixing([[0.6, 0.4], [0.4, 0.6]]).row_sums.tolist()
      [0.4, 0.4]
    """
    dense = require.array(
        "matrix", _float64("matrix", matrix).toarray() if sparse.issparse(matrix) else matrix
    )
    if dense.ndim != 2 or dense.shape[0] != dense.shape[1]:
        require.fail("matrix", "square", dense.shape)
    if not np.all(np.isfinite(dense)):
        raise ValueError("matrix must be finite, got NaN or infinity")
    if dense.min() < 0:
        i, j = np.unravel_index(int(np.argmin(dense)), dense.shape)
        require.fail(f"matrix[{i},{j}]", "zero or positive", float(dense[i, j]))
    for axis, what in ((1, "row"), (0, "column")):
        sums = dense.sum(axis=axis)
        worst = int(np.argmax(np.abs(sums - 1)))
        if abs(sums[worst] - 1) > 1e-9:
            raise ValueError(
                f"matrix must be doubly stochastic, got {what} {worst} with sum {sums[worst]:g}"
            )
    return from_weights(dense, name)


def _kept(name: str, matrix: Any) -> sparse.csr_array:
    """Weights that nobody can write to: a certificate speaks of what was checked.

    None is negative: where messages may be lost, what is heard is then between nothing and all of
    it, and certificates count on that.
    """
    found = _float64(name, matrix)
    wrong = found.data[~(np.isfinite(found.data) & (found.data >= 0))]
    if len(wrong):
        require.fail(name, "finite, and zero or positive", float(wrong[0]))
    return sparse.csr_array(
        (require.kept(found.data), found.indices, found.indptr), shape=found.shape
    )


def _float64(name: str, matrix: Any) -> sparse.csr_array:
    """Sums of float16 or int8 weights are no sums of weights."""
    if not sparse.issparse(matrix):
        return sparse.csr_array(require.array(name, matrix))
    if matrix.dtype.kind not in "biuf":
        require.fail(name, "a matrix of real numbers", matrix.dtype)
    # Before entries that are there twice are added up.
    return sparse.csr_array(matrix.astype(np.float64))


def require_connected(weights: sparse.csr_array) -> None:
    """Whichever way edges point."""
    count, part_of = csgraph.connected_components(weights, directed=False)
    if count <= 1:
        return
    _, first = np.unique(part_of, return_index=True)
    parts = [np.flatnonzero(part_of == part_of[agent]).tolist() for agent in np.sort(first)[:4]]
    shown = " and ".join(
        "{" + ",".join(map(str, p[:8])) + (",..." if len(p) > 8 else "") + "}" for p in parts
    )
    more = f" and {count - 4} more" if count > 4 else ""
    raise ValueError(f"graph is not connected: {shown}{more}")


def _flow(weights: sparse.csr_array) -> nx.DiGraph:
    """Edge j -> i where agent i hears agent j."""
    return nx.from_scipy_sparse_array(weights.T, create_using=nx.DiGraph)


def _roots(flow: nx.DiGraph) -> set[int]:
    """Nodes from which every other can be reached:
    the only source of the graph of strongly connected parts.
    """
    parts = nx.condensation(flow)
    sources = [part for part, degree in parts.in_degree if degree == 0]
    return set(parts.nodes[sources[0]]["members"]) if len(sources) == 1 else set()


def _stranded(flow: nx.DiGraph, verb: str = "does not reach") -> str:
    """Who the best-connected agent misses."""
    reach = {node: nx.descendants(flow, node) | {node} for node in flow}
    best = max(reach, key=lambda node: (len(reach[node]), -node))
    return f"agent {best}, the best placed, {verb} {_listed(set(flow) - reach[best])}"


def _listed(agents: set[int]) -> str:
    shown = ", ".join(map(str, sorted(agents)[:8])) + (", ..." if len(agents) > 8 else "")
    return f"agent {shown}" if len(agents) == 1 else f"agents {shown}"
