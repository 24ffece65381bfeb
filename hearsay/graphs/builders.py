"""Graphs by name, from networkx, and from edges, with a rule for their weights.

Builders take any number of agents and a weight rule: a number (the same on every edge), "uniform"
(1 / (1 + largest degree)), "metropolis" (1 / (1 + the larger of the two degrees)) or, for directed
graphs, "degree". networkx does the graph theory.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import networkx as nx
import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from hearsay import _validate as require
from hearsay.graphs.graph import Graph, from_weights, pair, require_connected
from hearsay.graphs.regular import regular_pairs

Rule = str | float
# Of an agent or an edge while its graph is made, at least.
_BYTES = 100.0


@require.known_arguments
def from_networkx(graph: nx.Graph, weight: Rule = "metropolis", name: str = "custom") -> Graph:
    """Any connected networkx graph; nodes are numbered in their order.

    A directed graph (edge j -> i: agent i hears agent j) gives the pair R and C that gradient
    tracking needs.

    Args:
      graph: a Graph or DiGraph of networkx; loops are left out.
      weight: a rule (see the module), or "given", which reads the edges' weights. Directed graphs
        take "degree", "given" or a number.
      name: what reports call it.

    Example:
      >>> import networkx as nx
      >>> import hearsay as hs
      >>> hs.graphs.from_networkx(nx.petersen_graph(), weight="uniform").agents
      10
    """
    if graph.is_directed():
        return _from_digraph(
            graph, "degree" if isinstance(weight, str) and weight == "metropolis" else weight, name
        )
    if graph.number_of_nodes() == 0:
        raise ValueError("graph must have at least one agent, got none")
    plain = nx.convert_node_labels_to_integers(nx.Graph(graph))
    plain.remove_edges_from(list(nx.selfloop_edges(plain)))
    nodes = range(len(plain))
    joined = nx.to_scipy_sparse_array(plain, nodelist=nodes, weight=None, dtype=np.float64)
    require_connected(joined)
    if isinstance(weight, str) and weight == "given":
        _check_given(plain)
        return from_weights(nx.to_scipy_sparse_array(plain, nodelist=nodes, dtype=np.float64), name)
    return from_weights(_weighted(joined, weight), name)


def _from_digraph(graph: nx.DiGraph, weight: Rule, name: str) -> Graph:
    if graph.number_of_nodes() == 0:
        raise ValueError("graph must have at least one agent, got none")
    plain = nx.convert_node_labels_to_integers(nx.DiGraph(graph))
    plain.remove_edges_from(list(nx.selfloop_edges(plain)))
    if isinstance(weight, str) and weight == "given":
        _check_given(plain)
        return from_weights(
            nx.to_scipy_sparse_array(plain, nodelist=range(len(plain)), dtype=np.float64).T, name
        )
    if isinstance(weight, str) and weight != "degree":
        require.fail(
            "weight", 'a positive number, "degree" or "given" for a directed graph', weight
        )
    ones = sparse.csr_array(
        nx.to_scipy_sparse_array(plain, nodelist=range(len(plain)), weight=None, dtype=np.float64).T
    )
    if not isinstance(weight, str):
        return from_weights(ones * require.positive("weight", weight), name)
    heard, hearers = np.asarray(ones.sum(axis=1)).ravel(), np.asarray(ones.sum(axis=0)).ravel()
    pulled = from_weights(sparse.diags_array(1 / (1 + heard)) @ ones, name)
    return pair(pulled, from_weights(ones @ sparse.diags_array(1 / (1 + hearers)), name))


@require.known_arguments
def ring(agents: int, weight: Rule = "metropolis") -> Graph:
    """Every agent hears the two next to it.

    Args:
      agents: how many, at least 2.
      weight: a number, "uniform" or "metropolis".

    Example:
      >>> import hearsay as hs
      >>> hs.graphs.ring(4, weight=0.3).row_sums.tolist()
      [0.6, 0.6, 0.6, 0.6]
    """
    agents = _agents(agents, lambda n: n)
    return from_networkx(nx.cycle_graph(agents) if agents > 2 else nx.path_graph(2), weight, "ring")


@require.known_arguments
def star(agents: int, weight: Rule = "metropolis") -> Graph:
    """Agent 0 hears everybody, and everybody hears agent 0.

    Args:
      agents: how many, at least 2.
      weight: a number, "uniform" or "metropolis".

    Example:
      >>> import hearsay as hs
      >>> hs.graphs.star(5).edges
      8
    """
    agents = _agents(agents, lambda n: n)
    return from_networkx(nx.star_graph(agents - 1), weight, "star")


@require.known_arguments
def complete(agents: int, weight: Rule = "metropolis") -> Graph:
    """Everybody hears everybody.

    Args:
      agents: how many, at least 2.
      weight: a number, "uniform" or "metropolis".

    Example:
      >>> import hearsay as hs
      >>> hs.graphs.complete(4).edges
      12
    """
    agents = _agents(agents, lambda n: n * n / 2)
    return from_networkx(nx.complete_graph(agents), weight, "complete")


@require.known_arguments
def grid(agents: int, weight: Rule = "metropolis") -> Graph:
    """The most square grid with that many agents.

    Args:
      agents: how many, at least 2.
      weight: a number, "uniform" or "metropolis".

    Example:
      >>> import hearsay as hs
      >>> hs.graphs.grid(6).edges
      14
    """
    agents = _agents(agents, lambda n: n)
    rows = max(r for r in range(1, int(agents**0.5) + 1) if agents % r == 0)
    return from_networkx(nx.grid_2d_graph(rows, agents // rows), weight, "grid")


@require.known_arguments
def exponential(agents: int, weight: Rule = "metropolis") -> Graph:
    """Every agent talks to those 1, 2, 4, ... places further round the ring.

    Args:
      agents: how many, at least 2.
      weight: a number, "uniform" or "metropolis".

    Example:
      >>> import hearsay as hs
      >>> hs.graphs.exponential(8).edges
      40
    """
    agents = _agents(agents, lambda n: n * math.log2(n))
    hops = [2**h for h in range(max(1, (agents - 1).bit_length()))]
    return from_networkx(nx.circulant_graph(agents, hops), weight, "exponential")


@require.known_arguments
def random(agents: int, weight: Rule = "metropolis", *, degree: int = 4, seed: int = 0) -> Graph:
    """A random connected graph in which every agent has the same number of neighbours.

    It is drawn again until it is connected.

    Args:
      agents: how many, at least 2.
      weight: a number, "uniform" or "metropolis".
      degree: neighbours of each agent; all others where there are fewer.
      seed: of the draw.

    Example:
      >>> import hearsay as hs
      >>> hs.graphs.random(10, degree=4, seed=1).edges
      40
    """
    degree, seed = require.count("degree", degree, 2), require.seed("seed", seed)
    agents = _agents(agents, lambda n: n * min(degree, n - 1) / 2)
    degree = min(degree, agents - 1)
    if agents * degree % 2:
        raise ValueError(
            f"agents * degree must be even (no such graph exists otherwise), got {agents} *"
            f" {degree}"
        )
    for attempt in range(100):
        joined = _joined(regular_pairs(agents, degree, seed + attempt), agents)
        if csgraph.connected_components(joined, directed=False)[0] == 1:
            return from_weights(_weighted(joined, weight), "random")
    raise ValueError(
        f"no connected {degree}-regular graph on {agents} agents in 100 draws; raise the degree"
    )


@require.known_arguments
def directed_ring(agents: int, weight: Rule = "degree") -> Graph:
    """Every agent hears the one before it.

    Args:
      agents: how many, at least 2.
      weight: a number, or "degree".

    Example:
      >>> import hearsay as hs
      >>> hs.graphs.directed_ring(5).edges
      5
    """
    agents = _agents(agents, lambda n: n)
    return from_networkx(nx.cycle_graph(agents, create_using=nx.DiGraph), weight, "directed-ring")


@require.known_arguments
def random_digraph(
    agents: int, weight: Rule = "degree", *, degree: int = 3, seed: int = 0
) -> Graph:
    """A random directed graph, unbalanced on purpose.

    It is a directed ring in random order, so that everybody reaches everybody, and in the mean
    `degree` - 1 more edges per agent, drawn with preference for some agents.

    Args:
      agents: how many, at least 2.
      weight: a number, or "degree".
      degree: edges per agent, in the mean and at most.
      seed: of the draw.

    Example:
      >>> import hearsay as hs
      >>> hs.graphs.random_digraph(20, degree=3).name
      'random-digraph'
    """
    agents = _agents(agents, lambda n: n)
    degree = require.count("degree", degree)
    rng = np.random.default_rng([require.seed("seed", seed), *b"digraph"])
    order = rng.permutation(agents)
    graph = nx.DiGraph()
    graph.add_nodes_from(range(agents))
    graph.add_edges_from(zip(order, np.roll(order, 1), strict=True))
    liking = rng.dirichlet(np.ones(agents))
    for source, target in zip(
        rng.choice(agents, (degree - 1) * agents, p=liking),
        rng.integers(0, agents, (degree - 1) * agents),
        strict=True,
    ):
        if source != target:
            graph.add_edge(int(source), int(target))
    return from_networkx(graph, weight, "random-digraph")


@require.known_arguments
def edges(agents: int, edges: list, weight: Rule | None = None, *, directed: bool = False) -> Graph:
    """Any graph, edge by edge.

    Args:
      agents: how many, at least 2.
      edges: pairs [i, j], or triples [i, j, weight]; all of one kind.
      weight: the rule for pairs, by default "metropolis", or "degree" where directed.
      directed: agent j hears agent i, and not the other way round.

    Example:
      >>> import hearsay as hs
      >>> hs.graphs.edges(3, [[0, 1, 0.3], [1, 2, 0.2]]).row_sums.tolist()
      [0.3, 0.5, 0.2]
    """
    agents = _agents(agents, lambda n: 0)
    links = []
    for edge in edges:
        if not isinstance(edge, (list, tuple)) or len(edge) not in (2, 3):
            require.fail("edges", "pairs of agents, or triples with a weight", edge)
        ends = [require.count("edges", end, 0) for end in edge[:2]]
        if max(ends) >= agents:
            require.fail("edges", f"between agents 0 to {agents - 1}", list(edge))
        links.append(
            (*ends, require.positive("weight of an edge", edge[2]) if len(edge) == 3 else None)
        )
    graph: nx.Graph = nx.DiGraph() if directed else nx.Graph()
    graph.add_nodes_from(range(agents))
    graph.add_weighted_edges_from(links)
    own = {link[2] is not None for link in links}
    if own == {True, False}:
        raise ValueError("edges must all have a weight, or none of them")
    if own == {True} and weight is not None:
        raise ValueError(
            f"weight must be left out where edges have weights of their own, got {weight!r}"
        )
    return from_networkx(graph, "given" if own == {True} else weight or "metropolis", "edges")


@require.known_arguments
def five_agents(agents: int = 5, weight: Rule = 1.0) -> Graph:
    """Two different directed graphs on five agents in the style of paper P2's Fig. 1.

    The figure prints no weights. Agent 0 is the common root, neither graph is strongly connected,
    and both are unbalanced.

    Args:
      agents: 5.
      weight: a number, or "degree".

    Example:
      >>> import hearsay as hs
      >>> hs.graphs.five_agents().pushed.nnz
      6
    """
    if require.count("agents", agents) != 5:  # the number itself is not used
        require.fail("agents", "5 for this pair of graphs", agents)
    edges = (
        [(0, 1), (1, 0), (0, 2), (1, 3), (2, 4), (0, 4)],  # states flow away from agents 0 and 1
        [(1, 0), (0, 1), (2, 1), (3, 0), (4, 3), (4, 2)],  # trackers flow towards them
    )
    graphs = []
    for links in edges:
        graph = nx.DiGraph()
        graph.add_nodes_from(range(5))
        graph.add_edges_from(links)
        graphs.append(from_networkx(graph, weight, "five-agents"))
    return pair(graphs[0], graphs[1])


BUILDERS: dict[str, Callable[..., Graph]] = {
    "ring": ring,
    "star": star,
    "complete": complete,
    "grid": grid,
    "exponential": exponential,
    "random": random,
    "directed-ring": directed_ring,
    "random-digraph": random_digraph,
    "five-agents": five_agents,
}


def _agents(agents: Any, links: Callable[[int], float]) -> int:
    """So many agents, if their graph has room.

    Args:
      links: how many edges the graph of so many has.
    """
    return require.room(
        "agents", require.count("agents", agents, 2), lambda n: _BYTES * (n + links(n))
    )


def _check_given(graph: nx.Graph) -> None:
    for i, j, data in graph.edges(data=True):
        data["weight"] = require.nonnegative(
            f"weight of the edge from {i} to {j}", data.get("weight", 1.0)
        )


def _joined(pairs: np.ndarray, agents: int) -> sparse.csr_array:
    """1 wherever two agents are a pair."""
    one, other = np.concatenate([pairs, pairs[:, ::-1]]).T
    return sparse.csr_array((np.ones(len(one)), (one, other)), shape=(agents, agents))


def _weighted(joined: sparse.csr_array, weight: Rule) -> sparse.csr_array:
    """The rule's weights, wherever two agents are joined."""
    if isinstance(weight, str) and weight not in ("uniform", "metropolis"):
        require.fail("weight", 'a positive number, "uniform" or "metropolis"', weight)
    found = sparse.csr_array(joined)
    degrees = np.diff(found.indptr)
    if isinstance(weight, str) and weight == "uniform":
        law = np.full(found.nnz, 1.0 / (1 + int(degrees.max(initial=0))))
    elif isinstance(weight, str):
        law = 1.0 / (1 + np.maximum(np.repeat(degrees, degrees), degrees[found.indices]))
    else:
        law = np.full(found.nnz, require.positive("weight", weight))
    return sparse.csr_array((law, found.indices, found.indptr), shape=found.shape)
