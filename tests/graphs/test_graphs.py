"""Graphs: every builder gives what its name says, weights obey their rule,
and bad input is named.
"""

from __future__ import annotations

from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
from scipy import linalg, sparse

import hearsay as hs
from hearsay import graphs

UNDIRECTED = ("ring", "star", "complete", "grid", "exponential", "random")

SIZES = [2, 3, 5, 8, 12]


def dense_coupling(graph: graphs.Graph) -> np.ndarray:
    weights = graph.weights.toarray()
    return weights - np.diag(weights.sum(axis=1))


def expected_degrees(kind: str, n: int) -> list[int]:
    """Neighbour counts from each graph's definition, sorted."""
    if kind == "ring":
        return [min(2, n - 1)] * n
    if kind == "star":
        return [1] * (n - 1) + [n - 1]
    if kind == "complete":
        return [n - 1] * n
    if kind == "random":
        return [min(4, n - 1)] * n
    if kind == "grid":
        rows = max(r for r in range(1, n + 1) if n % r == 0 and r * r <= n)
        cols = n // rows
        near = [
            (abs(a // cols - b // cols) + abs(a % cols - b % cols)) == 1
            for a in range(n)
            for b in range(n)
        ]
        return np.array(near).reshape(n, n).sum(axis=1).tolist()
    hops = {(s * 2**h) % n for h in range(10) for s in (1, -1) if 2**h < n}
    return [len(hops - {0})] * n


@pytest.mark.parametrize("kind", UNDIRECTED)
@pytest.mark.parametrize("n", SIZES)
def test_builders_are_connected_symmetric_and_have_the_right_degrees(kind, n):
    graph = graphs.BUILDERS[kind](n)
    weights = graph.weights.toarray()
    assert graph.agents == n
    assert graph.name == kind
    assert graph.symmetric
    assert np.all(np.diag(weights) == 0)
    np.testing.assert_array_equal(weights, weights.T)
    assert nx.is_connected(nx.from_numpy_array(weights))
    assert sorted((weights > 0).sum(axis=1).tolist()) == sorted(expected_degrees(kind, n))
    assert graph.edges == int((weights > 0).sum())
    np.testing.assert_allclose(graph.row_sums, weights.sum(axis=1), rtol=1e-15)


@pytest.mark.parametrize("kind", UNDIRECTED)
@pytest.mark.parametrize("n", SIZES)
def test_metropolis_weights_make_the_mixing_matrix_doubly_stochastic(kind, n):
    graph = graphs.BUILDERS[kind](n, "metropolis")
    mixing = np.eye(n) + dense_coupling(graph)
    assert mixing.min() >= -1e-15
    np.testing.assert_allclose(mixing.sum(axis=0), 1, atol=1e-14)
    np.testing.assert_allclose(mixing.sum(axis=1), 1, atol=1e-14)
    degree = (graph.weights.toarray() > 0).sum(axis=1)
    for i, j in zip(*graph.weights.nonzero(), strict=True):
        assert graph.weights[i, j] == pytest.approx(1 / (1 + max(degree[i], degree[j])))


def test_other_weight_rules():
    assert set(graphs.star(5, "uniform").weights.data) == {1 / 5}
    assert set(graphs.ring(5, 0.3).weights.data) == {0.3}
    for bad in ("metropolitan", "0.3"):
        with pytest.raises(
            ValueError, match='weight must be a positive number, "uniform" or "metropolis", got'
        ):
            graphs.ring(5, bad)
    for bad in (0.0, -0.1, float("nan")):
        with pytest.raises(ValueError, match="weight must be"):
            graphs.ring(5, bad)


def test_ring_neighbours_and_star_centre():
    for i in range(6):
        assert set(graphs.ring(6).weights[[i]].nonzero()[1]) == {(i - 1) % 6, (i + 1) % 6}
    assert set(graphs.star(6).weights[[0]].nonzero()[1]) == {1, 2, 3, 4, 5}


@pytest.mark.parametrize(
    "graph", [graphs.ring(5, 0.3), graphs.grid(12), graphs.star(7), graphs.random(40, degree=3)]
)
def test_coupling_eigenvalues_against_dense_numpy(graph):
    values = np.linalg.eigvalsh(dense_coupling(graph))
    np.testing.assert_allclose(
        graph.coupling_eigenvalues, (values[-2], values[0]), rtol=1e-10, atol=1e-14
    )


@pytest.mark.parametrize(
    "graph", [graphs.random(640), graphs.star(620), graphs.grid(625)], ids=lambda g: g.name
)
def test_coupling_eigenvalues_of_large_graphs_take_the_sparse_path_and_agree(graph, monkeypatch):
    values = np.linalg.eigvalsh(dense_coupling(graph))
    monkeypatch.setattr(
        np.linalg, "eigvalsh", lambda *_: pytest.fail("more than 600 agents must not be made dense")
    )
    np.testing.assert_allclose(graph.coupling_eigenvalues, (values[-2], values[0]), rtol=1e-6)


def test_coupling_eigenvalues_of_one_agent_are_zero():
    assert graphs.from_weights([[0.0]]).coupling_eigenvalues == (0.0, 0.0)


def test_from_networkx_numbers_nodes_in_order_and_reads_given_weights():
    source = nx.Graph()
    source.add_nodes_from(["b", "a", "c"])
    source.add_weighted_edges_from([("a", "b", 0.2), ("b", "c", 0.1), ("c", "c", 9.0)])
    expected = np.array([[0, 0.2, 0.1], [0.2, 0, 0], [0.1, 0, 0]])
    np.testing.assert_allclose(graphs.from_networkx(source, "given").weights.toarray(), expected)
    rule = graphs.from_networkx(source, 0.25).weights.toarray()
    np.testing.assert_allclose(rule, 0.25 * (expected > 0))
    assert source.edges["a", "b"]["weight"] == 0.2, "the caller's graph is left as it was"


def test_to_networkx_points_from_speaker_to_listener():
    graph = graphs.from_weights([[0, 0.5, 0], [0, 0, 0.25], [0.125, 0, 0]])
    assert {(j, i, d["weight"]) for j, i, d in graph.to_networkx().edges(data=True)} == {
        (1, 0, 0.5), (2, 1, 0.25), (0, 2, 0.125)
    }  # fmt: skip


def test_from_networkx_errors():
    with pytest.raises(ValueError, match="graph must have at least one agent, got none"):
        graphs.from_networkx(nx.Graph())
    with pytest.raises(ValueError, match=r"graph is not connected: \{0,1\} and \{2,3,4\}"):
        graphs.from_networkx(nx.Graph([(0, 1), (2, 3), (3, 4)]))


def block(*parts: int) -> np.ndarray:
    return linalg.block_diag(*(np.ones((p, p)) for p in parts))


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (block(2, 3), r"graph is not connected: \{0,1\} and \{2,3,4\}$"),
        (block(12, 1), r"graph is not connected: \{0,1,2,3,4,5,6,7,\.\.\.\} and \{12\}$"),
        (np.eye(7), r"\{0\} and \{1\} and \{2\} and \{3\} and 3 more$"),
        ([[0, -0.5], [0.5, 0]], r"weights\[0,1\] must be zero or positive, got -0.5"),
        ([[0, np.nan], [0.5, 0]], "weights must be finite, got NaN or infinity"),
        ([[0, np.inf], [0.5, 0]], "weights must be finite, got NaN or infinity"),
        (np.ones((2, 3)), r"weights must be a square matrix, got \(2, 3\)"),
    ],
)
def test_from_weights_errors(matrix, message):
    with pytest.raises(ValueError, match=message):
        graphs.from_weights(matrix)
    with pytest.raises(ValueError, match=message):
        graphs.from_weights(sparse.csr_array(matrix))


def test_weights_without_a_second_axis_are_named():
    with pytest.raises(ValueError, match="weights must be a square matrix"):
        graphs.from_weights([0.5, 0.5])


def test_asymmetric_weights_are_accepted_until_symmetry_is_asked_for():
    graph = graphs.from_weights([[0, 0.2, 0.1], [0.3, 0, 0], [0.1, 0, 0]])
    assert not graph.symmetric
    for ask in (graph.require_symmetric, lambda: graph.coupling_eigenvalues):
        with pytest.raises(
            ValueError, match=r"weights must be symmetric, got w\[0,1\] = 0.2 and w\[1,0\] = 0.3"
        ):
            ask()
    graphs.from_weights([[0, 0.2], [0.2 + 1e-14, 0]]).require_symmetric()


def test_the_diagonal_is_ignored():
    graph = graphs.from_weights([[5.0, 0.2], [0.2, -3.0]])
    np.testing.assert_array_equal(graph.weights.toarray(), [[0, 0.2], [0.2, 0]])
    assert graph.edges == 2


def test_the_callers_matrix_is_left_as_it_was():
    matrix = sparse.csr_array(np.array([[5.0, 0.2], [0.2, 3.0]]))
    graphs.from_weights(matrix)
    np.testing.assert_array_equal(matrix.toarray(), [[5.0, 0.2], [0.2, 3.0]])


def test_requirements_name_the_agent():
    graph = graphs.star(5, 0.3)
    with pytest.raises(
        ValueError, match=r"the weights of agent 0 must sum to at most 1, got 1.2 \(why\)"
    ):
        graph.require_row_sums_below(1.0, "why")
    graph.require_row_sums_below(1.2, "why")
    with pytest.raises(ValueError, match="the graph has 5 agents and the problem has 4"):
        graph.require_agents(4)


def test_random_graphs():
    with pytest.raises(ValueError, match=r"agents \* degree must be even .* got 5 \* 3"):
        graphs.random(5, degree=3)
    with pytest.raises(ValueError, match="degree must be at least 2, got 1"):
        graphs.random(6, degree=1)
    same, other = graphs.random(20, seed=3), graphs.random(20, seed=4)
    assert np.array_equal(same.weights.toarray(), graphs.random(20, seed=3).weights.toarray())
    assert not np.array_equal(same.weights.toarray(), other.weights.toarray())
    for seed in range(30):  # two-regular graphs are often several rings: they must be drawn again
        assert nx.is_connected(
            nx.from_numpy_array(graphs.random(9, degree=2, seed=seed).weights.toarray())
        )


@pytest.mark.parametrize("kind", UNDIRECTED)
def test_builders_name_a_bad_number_of_agents(kind):
    with pytest.raises(ValueError, match="agents must be at least 2, got 1"):
        graphs.BUILDERS[kind](1)
    with pytest.raises(TypeError, match="agents must be a whole number, got 5.0"):
        graphs.BUILDERS[kind](5.0)


def test_directed_builders():
    ring = graphs.directed_ring(5)
    assert ring.weights.toarray()[1, 0] == 0.5
    assert ring.edges == 5
    digraph = graphs.random_digraph(12, degree=4, seed=3)
    assert not digraph.symmetric
    assert np.all(digraph.row_sums < 1)
    assert np.all(digraph.handed_out < 1)
    assert np.abs(digraph.row_sums - digraph.handed_out).max() > 0.05, "unbalanced on purpose"
    everybody = set(range(12))
    assert digraph.roots() == (everybody, everybody)
    assert (graphs.random_digraph(12, degree=4, seed=3).weights != digraph.weights).nnz == 0
    five = graphs.five_agents()
    assert five.roots() == ({0, 1}, {0, 1})
    assert np.abs(five.weights.toarray() - five.pushed.toarray()).max() == 1
    with pytest.raises(ValueError, match="agents must be 5 for this pair of graphs, got 6"):
        graphs.five_agents(agents=6)


def test_directed_networkx_graphs():
    """Edge j -> i: agent i hears agent j; R shares by what is heard, C by who hears."""
    flow = nx.DiGraph([(0, 1), (1, 2), (2, 0), (0, 2)])
    graph = graphs.from_networkx(flow)
    np.testing.assert_allclose(
        graph.weights.toarray(), [[0, 0, 1 / 2], [1 / 2, 0, 0], [1 / 3, 1 / 3, 0]]
    )
    np.testing.assert_allclose(
        graph.pushed.toarray(), [[0, 0, 1 / 2], [1 / 3, 0, 0], [1 / 3, 1 / 2, 0]]
    )
    np.testing.assert_allclose(graph.handed_out, [2 / 3, 1 / 2, 1 / 2])
    assert graphs.from_networkx(flow, weight=0.2).weights.data.tolist() == [0.2] * 4
    nx.set_edge_attributes(flow, 0.7, "weight")
    assert graphs.from_networkx(flow, weight="given").weights.toarray()[1, 0] == 0.7
    with pytest.raises(
        ValueError,
        match='weight must be a positive number, "degree" or "given" for a directed graph',
    ):
        graphs.from_networkx(flow, weight="uniform")


def test_weights_are_zero_or_positive_however_a_graph_is_made():
    """Who hears +1 and -0.9 hears 0.1 in all, and 1 or -0.9 where a message is lost: certificates
    of lossy graphs are about what lies between hearing nobody and hearing all.
    """
    matrix = np.array([[0.0, 1.0, 0.0], [1.0, 0.0, -0.9], [0.0, -0.9, 0.0]])
    with pytest.raises(ValueError, match=r"weights must be finite, and zero or positive, got -0.9"):
        graphs.Graph(sparse.csr_array(matrix), lossy=True)
    for wrong in (-1e-300, np.nan, np.inf):
        with pytest.raises(ValueError, match="push must be finite, and zero or positive"):
            graphs.Graph(graphs.ring(3).weights, push=np.diag([wrong] * 3))


def test_a_pair_is_lossy_where_one_of_the_two_is():
    ring, star = graphs.ring(4), graphs.star(4)
    assert graphs.pair(replace(ring, lossy=True), star).lossy
    assert graphs.pair(ring, replace(star, lossy=True)).lossy
    assert not graphs.pair(ring, star).lossy


def test_a_pair_needs_the_same_agents():
    with pytest.raises(ValueError, match="the graph has 4 agents and the problem has 5"):
        graphs.pair(graphs.directed_ring(5), graphs.directed_ring(4))


def test_a_digest_covers_all_that_a_run_depends_on():
    ring = graphs.directed_ring(4)
    same = replace(ring, weights=ring.weights.copy(), name="another name")
    assert same.digest() == ring.digest()
    shuffled = sparse.csr_array(ring.weights.tocoo().tocsc().tocsr())
    assert replace(ring, weights=shuffled).digest() == ring.digest()
    others = [
        replace(ring, weights=ring.weights * 0.5),
        replace(ring, push=ring.pushed * 0.5),  # the trackers' graph
        replace(ring, push=ring.pushed.T.tocsr()),
        replace(ring, lossy=True),
        graphs.directed_ring(5),
    ]
    assert len({graph.digest() for graph in [ring, *others]}) == 6


def test_weights_that_are_there_twice_are_added_up_as_floats():
    twice = np.array([200, 100, 200, 100], np.uint8), ([0, 0, 1, 1], [1, 1, 0, 0])
    assert graphs.from_weights(sparse.coo_array(twice, shape=(2, 2))).weights[0, 1] == 300


def test_who_is_said_to_take_directed_graphs_does():
    problem, ring = hs.problems.ridge(agents=3, records=20), hs.graphs.directed_ring(3)
    lopsided = hs.graphs.from_weights([[0, 0.3, 0], [0, 0, 0.3], [0.3, 0.2, 0]])
    hs.gradient_tracking().check(lopsided, problem.task)
    for algorithm in (hs.gradient_perturbation(), hs.output_perturbation()):
        algorithm.check(ring, problem.task)
        with pytest.raises(ValueError, match=f"doubly stochastic.*{algorithm.name} needs that"):
            algorithm.check(lopsided, problem.task)
    with pytest.raises(ValueError, match="weights must be symmetric.*: dsgd needs that"):
        hs.dsgd().check(ring, problem.task)
