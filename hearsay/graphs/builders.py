"""Graphs by name, from networkx, and from edges, with a rule for their weights.

Builders take any number of agents and a weight rule: a number (the same on every edge), "uniform"
(1 / (1 + largest degree)), "metropolis" (1 / (1 + the larger of the two degrees)) or, for directed
graphs, "degree". networkx does the graph theory.
"""

from __future__ import annotations

from collections.abc import Callable

import networkx as nx
import numpy as np
from scipy import sparse

from hearsay import _validate as require
from hearsay.graphs.graph import Graph, from_weights, pair, require_connected

Rule = str | float


def from_networkx(graph: nx.Graph, weight: Rule = "metropolis", name: str = "custom") -> Graph:
    """Any connected networkx graph; nodes are numbered in their order. weight="given" reads the
    edges' weights.

    A directed graph (edge j -> i: agent i hears agent j) gives the pair R and C that gradient
    tracking needs; its rule is "degree" or a number.
    """
    if graph.is_directed():
        return _from_digraph(
            graph, "degree" if isinstance(weight, str) and weight == "metropolis" else weight, name
        )
    if graph.number_of_nodes() == 0:
        raise ValueError("graph must have at least one agent, got none")
    plain = nx.convert_node_labels_to_integers(nx.Graph(graph))
    plain.remove_edges_from(list(nx.selfloop_edges(plain)))
    require_connected(plain)
    if isinstance(weight, str) and weight == "given":
        _check_given(plain)
    else:
        rule = _rule(weight, plain)
        for i, j in plain.edges:
            plain.edges[i, j]["weight"] = rule(i, j)
    return from_weights(
        nx.to_scipy_sparse_array(plain, nodelist=range(len(plain)), dtype=np.float64), name
    )


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


def ring(agents: int, weight: Rule = "metropolis") -> Graph:
    agents = require.count("agents", agents, 2)
    return from_networkx(nx.cycle_graph(agents) if agents > 2 else nx.path_graph(2), weight, "ring")


def star(agents: int, weight: Rule = "metropolis") -> Graph:
    """Agent 0 in the middle."""
    agents = require.count("agents", agents, 2)
    return from_networkx(nx.star_graph(agents - 1), weight, "star")


def complete(agents: int, weight: Rule = "metropolis") -> Graph:
    agents = require.count("agents", agents, 2)
    return from_networkx(nx.complete_graph(agents), weight, "complete")


def grid(agents: int, weight: Rule = "metropolis") -> Graph:
    """The most square grid with that many agents."""
    agents = require.count("agents", agents, 2)
    rows = max(r for r in range(1, int(agents**0.5) + 1) if agents % r == 0)
    return from_networkx(nx.grid_2d_graph(rows, agents // rows), weight, "grid")


def exponential(agents: int, weight: Rule = "metropolis") -> Graph:
    """Every agent talks to those 1, 2, 4, ... places further round the ring."""
    agents = require.count("agents", agents, 2)
    hops = [2**h for h in range(max(1, (agents - 1).bit_length()))]
    return from_networkx(nx.circulant_graph(agents, hops), weight, "exponential")


def random(agents: int, weight: Rule = "metropolis", *, degree: int = 4, seed: int = 0) -> Graph:
    """A random graph in which every agent has `degree` neighbours;
    drawn again until it is connected.
    """
    agents = require.count("agents", agents, 2)
    degree, seed = (
        min(require.count("degree", degree, 2), agents - 1),
        require.natural("seed", seed),
    )
    if agents * degree % 2:
        raise ValueError(
            f"agents * degree must be even (no such graph exists otherwise), got {agents} *"
            f" {degree}"
        )
    for attempt in range(100):
        graph = nx.random_regular_graph(degree, agents, seed=seed + attempt)
        if nx.is_connected(graph):
            return from_networkx(graph, weight, "random")
    raise ValueError(
        f"no connected {degree}-regular graph on {agents} agents in 100 draws; raise the degree"
    )


def directed_ring(agents: int, weight: Rule = "degree") -> Graph:
    """Everybody hears the one before it."""
    agents = require.count("agents", agents, 2)
    return from_networkx(nx.cycle_graph(agents, create_using=nx.DiGraph), weight, "directed-ring")


def random_digraph(
    agents: int, weight: Rule = "degree", *, degree: int = 3, seed: int = 0
) -> Graph:
    """A random directed graph, unbalanced on purpose: a directed ring in random order, so that
    everybody reaches everybody, and in the mean `degree` - 1 more edges per agent, drawn with
    preference for some agents.
    """
    agents = require.count("agents", agents, 2)
    degree = require.count("degree", degree)
    rng = np.random.default_rng([require.natural("seed", seed), *b"digraph"])
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


def edges(agents: int, edges: list, weight: Rule | None = None, *, directed: bool = False) -> Graph:
    """Any graph, edge by edge: [i, j] or [i, j, weight].

    `directed`: agent j hears agent i. Edges without a weight of their own take `weight`,
    by default "metropolis", or "degree" where directed.
    """
    agents = require.count("agents", agents, 2)
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


def five_agents(agents: int = 5, weight: Rule = 1.0) -> Graph:
    """Two different directed graphs on five agents in the style of paper P2's Fig. 1 (which prints
    no weights): agent 0 is the common root, neither is strongly connected, and both are unbalanced.
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


def _check_given(graph: nx.Graph) -> None:
    for i, j, data in graph.edges(data=True):
        data["weight"] = require.nonnegative(
            f"weight of the edge from {i} to {j}", data.get("weight", 1.0)
        )


def _rule(weight: Rule, graph: nx.Graph) -> Callable[[int, int], float]:
    degree = dict(graph.degree)
    if isinstance(weight, str) and weight not in ("uniform", "metropolis"):
        require.fail("weight", 'a positive number, "uniform" or "metropolis"', weight)
    if isinstance(weight, str) and weight == "uniform":
        largest = max(degree.values())
        return lambda i, j: 1.0 / (1 + largest)
    if isinstance(weight, str):
        return lambda i, j: 1.0 / (1 + max(degree[i], degree[j]))
    value = require.positive("weight", weight)
    return lambda i, j: value
