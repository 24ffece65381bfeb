"""Prices of coalitions against slow, obvious versions; bounds never below the truth."""

from __future__ import annotations

import json
import math
import pickle
import time
from itertools import combinations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hearsay.privacy import coalition_search as search
from hearsay.privacy.coalition_prices import all_variances
from hearsay.privacy.coalitions import Gain, Shared, planned_ratio
from hearsay.privacy.codec import decode, encode, read
from hearsay.privacy.secrets_graph import SecretsGraph


def pairs_of(graph):
    return tuple(sorted((min(edge), max(edge)) for edge in graph.edges))


TORUS = pairs_of(nx.convert_node_labels_to_integers(nx.grid_2d_graph(4, 4, periodic=True)))
RING = pairs_of(nx.cycle_graph(5))
CIRCULANT = pairs_of(nx.circulant_graph(16, [1, 2, 4, 8]))


def covariance(shared, honest):
    """S_H, entry by entry."""
    scale = list(shared.scales) * (shared.agents if len(shared.scales) == 1 else 1)
    pairs = shared.pairs or tuple(combinations(range(shared.agents), 2))
    ratios = list(shared.ratios) * (len(pairs) if len(shared.ratios) == 1 else 1)
    found = np.diag([scale[j] ** 2 for j in honest])
    for (one, two), ratio in zip(pairs, ratios, strict=True):
        if one in honest and two in honest:
            e = np.zeros(len(honest))
            e[honest.index(one)], e[honest.index(two)] = 1, -1
            found += ratio**2 * scale[one] * scale[two] * np.outer(e, e)
    return found, scale


def slow_price(shared, agent, coalition):
    honest = [j for j in range(shared.agents) if j not in coalition]
    found, scale = covariance(shared, honest)
    place = honest.index(agent)
    return scale[agent] ** 2 * np.linalg.inv(found)[place, place]


def slow_worst(shared, agent, colluders):
    others = [j for j in range(shared.agents) if j != agent]
    return max(slow_price(shared, agent, c) for c in combinations(others, colluders))


@st.composite
def networks(draw, most=7):
    """Any graph, also one that is not connected; equal or different scales and ratios."""
    agents = draw(st.integers(1, most))
    every = list(combinations(range(agents), 2))
    pairs = tuple(pair for pair in every if draw(st.booleans()))
    secrets = len(pairs) or len(every)
    number = st.floats(0.05, 20)
    ratios = draw(st.one_of(st.tuples(number), st.tuples(*[number] * secrets)))
    scales = draw(st.one_of(st.tuples(number), st.tuples(*[number] * agents)))
    return Shared(agents, ratios or (1.0,), pairs, scales)


@given(networks(), st.data())
@settings(max_examples=80, deadline=None, derandomize=True)
def test_price_is_the_inverse_and_the_conditional_variance(shared, data):
    agent = data.draw(st.integers(0, shared.agents - 1))
    coalition = data.draw(st.sets(st.integers(0, shared.agents - 1))) - {agent}
    price = shared.price(agent, coalition)
    assert 0 < price <= 1
    assert price == pytest.approx(slow_price(shared, agent, coalition), rel=1e-9)
    # Lemma 0: the variance of i's noise given all other honest noises.
    honest = [j for j in range(shared.agents) if j not in coalition and j != agent] + [agent]
    found, scale = covariance(shared, honest)
    known = found[:-1, :-1]
    left = found[-1, -1] - found[-1, :-1] @ np.linalg.solve(known, found[:-1, -1])
    assert price == pytest.approx(scale[agent] ** 2 / left, rel=1e-8)


@given(networks(most=5))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_gain_is_that_of_the_worst_coalition_of_all(shared):
    for agent in range(shared.agents):
        gains = [shared.gain(agent, q) for q in range(shared.agents)]
        for q, gain in enumerate(gains):
            worst = max(slow_worst(shared, agent, fewer) for fewer in range(q + 1))
            assert gain.how in ("exact", "closed form")
            assert gain.value == pytest.approx(worst**-0.5, rel=2e-9)
            assert gain.value <= worst**-0.5 * (1 + 1e-12)
        values = [gain.value for gain in gains]
        assert values == sorted(values, reverse=True)
        assert gains[-1].value == 1.0


@pytest.mark.parametrize(
    ("shared", "golden"),
    [
        (Shared(5, (10**0.5,)), [0.215686, 0.268293, 0.354839, 0.523810, 1]),
        (Shared(5, (10**0.5,), RING), [0.237750, 0.326220, 1, 1, 1]),
        (Shared(16, (10**0.5,), TORUS), [0.088421, 0.101452, 0.124036, 0.180376, 1]),
        (Shared(16, (10**0.5,), CIRCULANT), [0.075950, 0.082448, 0.090556, 0.101174]),
        (Shared(5, (1.0,)), [1 / 3, 0.4, 0.5, 2 / 3, 1]),
    ],
)
def test_golden(shared, golden):
    for agent in (0, shared.agents - 1):
        prices = [shared.gain(agent, q).value ** -2 for q in range(len(golden))]
        assert prices == pytest.approx(golden, abs=6e-7)


def test_the_worst_coalition_of_a_complete_graph_has_the_largest_scales():
    scales = (0.5, 3.0, 1.0, 2.0, 0.2, 1.5)
    shared = Shared(6, (1.3,), (), scales)
    for agent in range(6):
        others = sorted((j for j in range(6) if j != agent), key=lambda j: -scales[j])
        for q in range(6):
            assert shared.price(agent, others[:q]) == pytest.approx(
                slow_worst(shared, agent, q), rel=1e-10
            )
    spelled_out = Shared(6, (1.3,), tuple(combinations(range(6), 2)), scales)
    assert [spelled_out.gain(2, q) for q in range(6)] == [shared.gain(2, q) for q in range(6)]


@pytest.mark.parametrize("seed", range(4))
def test_bounds_are_never_above_the_truth(monkeypatch, seed):
    """240 random graphs, all agents and numbers of colluders: nothing is tried one by one, so that
    what is left are the bounds.
    """
    random = np.random.default_rng(seed)
    seen = set()
    for _ in range(60):
        agents = int(random.integers(3, 7))
        graph = nx.gnp_random_graph(agents, random.uniform(0.3, 1), seed=int(random.integers(1e6)))
        if not graph.edges:
            continue
        pairs, spread = pairs_of(graph), random.choice([0.0, 1.0])
        ratios = random.choice([0.3, 3, 100]) * np.exp(spread * random.normal(size=len(pairs)))
        scales = np.exp(spread * random.normal(size=agents))
        shared = Shared(agents, tuple(ratios), pairs, tuple(scales))
        exact = [[shared.gain(i, q).value for q in range(agents)] for i in range(agents)]
        with monkeypatch.context() as patch:
            patch.setattr(search, "_COALITIONS", 0)
            bounded = Shared(agents, tuple(ratios), pairs, tuple(scales))
            for agent in range(agents):
                gains = [bounded.gain(agent, q) for q in range(agents)]
                values = [gain.value for gain in gains]
                seen |= {gain.how for gain in gains}
                assert all(np.array(values) <= np.array(exact[agent]) * (1 + 1e-12))
                assert values == sorted(values, reverse=True)
    assert seen == {"exact", "bound: disjoint branches", "bound: spectral gap"}


def test_bounds_of_a_large_sparse_network_are_close_to_what_an_attack_reaches():
    graph = nx.random_regular_graph(8, 100, seed=3)
    shared = Shared(100, (10**0.5,), pairs_of(graph))
    for q in (2, 4, 6):
        gain = shared.gain(0, q)
        assert gain.how.startswith("bound")
        attacked = shared.price(0, list(graph[0])[:q])
        assert attacked <= gain.value**-2 <= 1.5 * attacked


def test_ratios_without_end_lead_to_the_noise_of_the_honest_component():
    """price -> s_i^2 / sum of s_j^2 over the honest agents that secrets still connect with i; at
    ratios where a Cholesky factorization of S loses the own noise altogether.
    """
    scales = (0.5, 3.0, 1.0, 2.0, 0.2)
    shared = Shared(5, (1e6,), RING, scales)
    assert shared.price(2, [0]) == pytest.approx(1 / (1 + 9 + 4 + 0.04), rel=1e-9)
    assert shared.price(2, [1, 4]) == pytest.approx(1 / (1 + 4), rel=1e-9)
    assert shared.price(2, [1, 3]) == 1.0
    assert shared.gain(2, 0).value == pytest.approx(math.sqrt(14.29), rel=1e-8)
    own, ties = np.ones(40), np.full((40, 40), 1e12)
    assert all_variances(own, ties) == pytest.approx(np.full(40, 40.0), rel=1e-10)


def test_weights_and_variance():
    shared = Shared(3, (2.0, 0.5), ((0, 1), (1, 2)), (1.0, 4.0, 1.0))
    assert shared.ends().tolist() == [[0, 1], [1, 2]]
    # c_01 = 2 sqrt(1 x 4) = 4, c_12 = 0.5 sqrt(4 x 1) = 1
    assert shared.weights() == pytest.approx(np.array([[4.0, 1.0], [0.25, 1.0]]))
    assert [shared.variance(i) for i in range(3)] == pytest.approx([17.0, 2.0625, 2.0])
    for agent in range(3):
        found, scale = covariance(shared, [0, 1, 2])
        assert shared.variance(agent) == pytest.approx(found[agent, agent] / scale[agent] ** 2)
    assert Shared(4, (1.0,)).ends().tolist() == [list(p) for p in combinations(range(4), 2)]


def test_who_is_connected():
    apart = Shared(6, (1.0,), ((0, 1), (1, 2), (3, 4)))
    assert apart.alone() == (5,)
    assert apart.components() == ((0, 1, 2), (3, 4), (5,))
    assert not apart.connected()
    assert apart.connectivity() == 0
    assert apart.gain(5, 0) == Gain(1.0, "exact")
    assert Shared(16, (1.0,), TORUS).connected()
    assert Shared(16, (1.0,), TORUS).connectivity() == 4
    assert Shared(300, (1.0,)).connectivity() == 299
    assert Shared(1, (1.0,)).alone() == (0,)


def test_connectivity_of_a_large_graph_is_a_bound_below(monkeypatch):
    graph = nx.circulant_graph(30, [1, 2, 3, 5, 7])
    exact = nx.node_connectivity(graph)
    monkeypatch.setattr("hearsay.privacy.secrets_graph._LARGEST_FLOWS", 10)
    bound = SecretsGraph(30, pairs_of(graph)).connectivity
    assert 3 <= bound <= exact == 10


def test_a_tree_reaches_everybody_once_by_secrets():
    graph = nx.random_regular_graph(6, 60, seed=1)
    pairs = pairs_of(graph)
    tree = SecretsGraph(60, pairs).tree(7)
    agents = np.concatenate([level.agents for level in tree])
    assert sorted([7, *agents.tolist()]) == list(range(60))
    above = {7}
    for level in tree:
        assert set(level.parents.tolist()) <= above
        for agent, parent, pair in zip(*(part.tolist() for part in level), strict=True):
            assert pairs[pair] == (min(agent, parent), max(agent, parent))
        above = set(level.agents.tolist())


@pytest.mark.parametrize(
    ("agents", "colluders", "pairs", "scales"),
    [
        (5, 0, (), (1.0,)),
        (5, 2, (), (1.0,)),
        (5, 1, RING, (1.0,)),
        (5, 2, (), (0.5, 3.0, 1.0, 2.0, 0.2)),
        (16, 3, TORUS, (1.0,)),
        (100, 3, pairs_of(nx.random_regular_graph(6, 100, seed=2)), (1.0,)),
    ],
)
def test_the_planned_ratio_is_the_smallest_within_a_tenth(agents, colluders, pairs, scales):
    ratio = planned_ratio(agents, colluders, pairs, scales)
    assert f"{ratio:.3g}" == f"{ratio:g}"
    step = 10.0 ** (math.floor(math.log10(ratio)) - 2)

    def furthest(value):
        """How far above its limit sqrt(price) is, for the agent for whom it is furthest."""
        limit, now = (search.Search(agents, (r,), pairs, scales) for r in (1e6, value))
        return max(
            limit.worst(i, colluders)[0].value / now.worst(i, colluders)[0].value
            for i in range(agents)
        )

    assert furthest(ratio) <= 1.1 * (1 + 1e-9) < furthest(ratio - step) * (1 + 2e-9)


def test_the_planned_ratio_of_a_complete_graph_is_known():
    """h (1 + r^2) / (1 + h r^2) = 1.21."""
    for agents, colluders in ((5, 2), (20, 10), (100, 50)):
        honest = agents - colluders
        exact = math.sqrt((honest - 1.21) / (0.21 * honest))
        assert exact <= planned_ratio(agents, colluders) <= exact + 0.01


def test_no_ratio_is_planned_where_an_agent_would_stand_alone():
    star = ((0, 1), (0, 2), (0, 3), (1, 2))
    with pytest.raises(ValueError, match=r"colluders must be .* got 1: .* agents 3, .* fewer coll"):
        planned_ratio(4, 1, star)
    with pytest.raises(ValueError, match="colluders must be at most 3"):
        planned_ratio(4, 4)
    with pytest.raises(ValueError, match="agents 0, 1, 2, 3,"):
        planned_ratio(4, 3)


@given(networks())
@settings(max_examples=30, deadline=None, derandomize=True)
def test_it_is_written_and_read_exactly(shared):
    text = json.dumps(encode(shared))
    found = decode(Shared, read(text, "secrets"), "secrets")
    assert found == shared and hash(found) == hash(shared)
    shared.gain(0, 0)
    assert pickle.loads(pickle.dumps(shared)) == shared


@pytest.mark.parametrize(
    ("field", "value", "rule"),
    [
        ("agents", 0, "agents must be at least 1"),
        ("agents", 2, "pairs must be of agents 0 to 1"),
        ("ratios", [0.0], "ratios must be positive"),
        ("ratios", ["infinite"], "ratios must be finite"),
        ("ratios", [1e7], "ratios must be between 1e-06 and 1e"),
        ("ratios", [1.0, 2.0, 3.0], "ratios must be one number, or one for each of the 2 pairs"),
        ("ratios", [], "ratios must be one number"),
        ("pairs", [[1, 0]], "pairs must be two agents each, the smaller one first"),
        ("pairs", [[1, 1]], "pairs must be two agents each, the smaller one first"),
        ("pairs", [[1, 2], [0, 1]], "pairs must be in order and each there once"),
        ("pairs", [[0, 1], [0, 1]], "pairs must be in order and each there once"),
        ("pairs", [[-1, 2]], "pairs must be at least 0"),
        ("pairs", [[0, 1, 2]], "a list of 2"),
        ("scales", [-1.0], "scales must be positive"),
        ("scales", [1.0, 2.0], "scales must be one number, or one for each of the 3 agents"),
        ("scales", "nan", "scales must be a list"),
    ],
)
def test_damaged_data_is_refused_by_name(field, value, rule):
    data = encode(Shared(3, (1.0, 2.0), ((0, 1), (1, 2))))
    with pytest.raises(ValueError, match=rule):
        decode(Shared, {**data, field: value}, "secrets")


@pytest.mark.parametrize(
    ("call", "rule"),
    [
        (lambda s: s.gain(0, -1), "colluders must be at least 0"),
        (lambda s: s.gain(0, 5), "colluders must be at most 4"),
        (lambda s: s.gain(5, 0), "agent must be at most 4"),
        (lambda s: s.price(-1, []), "agent must be at least 0"),
        (lambda s: s.price(0, [1, 7]), "coalition must be at most 4"),
        (lambda s: s.price(0, [0, 1]), "coalition must be of others than agent 0"),
        (lambda s: s.variance(9), "agent must be at most 4"),
    ],
)
def test_agents_that_are_not_there_are_refused_by_name(call, rule):
    with pytest.raises(ValueError, match=rule):
        call(Shared(5, (1.0,)))


@pytest.mark.slow
def test_curves_of_large_networks_are_found_in_seconds():
    """In seconds of CPU, so that other load does not count."""
    scales = tuple(np.random.default_rng(0).uniform(0.5, 2, 300))
    sparse = pairs_of(nx.random_regular_graph(20, 1000, seed=1))
    for shared, most, seconds in (
        (Shared(300, (3.0,)), 300, 1),
        (Shared(300, (3.0,), (), scales), 300, 2),
        (Shared(16, (3.0,), TORUS), 16, 3),
        (Shared(1000, (3.0,), sparse), 16, 10),
    ):
        start = time.process_time()
        for agent in range(shared.agents):
            for q in range(most):
                shared.gain(agent, q)
        assert time.process_time() - start < seconds
