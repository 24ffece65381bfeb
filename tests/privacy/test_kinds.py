"""Agents of one kind: certified once, and exactly as they would be one by one."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest

import hearsay as hs
from hearsay.algorithms import LdpOnline
from hearsay.certification import certifying, epsilon_after, kinds, messages_within, spending
from hearsay.certification.certifying import deployed, deployed_numbers
from hearsay.experiments.printed_tracking import PrintedTracking
from hearsay.graphs.pairs import edges
from hearsay.privacy import Certificate, coalition_balls, coalition_search
from hearsay.privacy.budgets import LISTED, AgentBudget, Budgets
from hearsay.privacy.coalition_prices import branch_prices
from hearsay.privacy.coalitions import Shared
from hearsay.privacy.recursion import Release
from hearsay.privacy.runs import ranges, read_ranges, read_runs, runs
from hearsay.privacy.verification import verify
from hearsay.problems.losses.domains import Box
from hearsay.problems.task import Declared
from hearsay.simulation.spent import Spending
from tests.test_contract import ALGORITHMS, noisy, planned, taken

AGENTS, HORIZON, DELTA = 16, 6, 1e-5
PRINTED = "printed-tracking"


def singles(algorithm, problem, graph, **options):
    """Every agent by itself, as if nothing were known of what they have in common."""
    return kinds.Kinds(np.arange(graph.agents), list(range(graph.agents)))


@pytest.fixture
def one_by_one(monkeypatch):
    """From here on, nobody is certified together with anybody."""

    def switch() -> None:
        for module in (certifying, spending):
            monkeypatch.setattr(module, "kinds", singles)

    return switch


def uneven(seed: int, **changes) -> hs.Problem:
    """What is public of a problem whose agents hold 20, 30 or 40 records, in any order."""
    task = hs.problems.ridge(agents=2, records=40, dimension=3, radius=3.0).task
    rng = np.random.default_rng(seed)
    return replace(task, counts=rng.choice([20, 30, 40], AGENTS), **changes)


def network(directed: bool) -> hs.Graph:
    """Agents hear two, three or four others, and trackers are handed out otherwise."""
    grid = hs.graphs.grid(AGENTS, weight=0.15)
    return hs.graphs.pair(grid, hs.graphs.star(AGENTS, weight=0.02)) if directed else grid


def built(name: str, seed: int, **more):
    """An algorithm with noise of three levels, in any order."""
    rng, kind = np.random.default_rng(100 + seed), PrintedTracking
    if name != PRINTED:
        kind = hs.REGISTRY[name]
        more |= {"sampling": hs.Cyclic(1), "horizon": 40} if planned(name) else {}
        if not noisy(name) or "noise" not in taken(name):
            return kind(**more)
    levels = rng.choice([1.0, 2.0, 3.0], AGENTS).tolist()
    laws = [
        hs.Constant(x) if name != PRINTED and planned(name) else hs.PowerLaw(x, 0.1) for x in levels
    ]
    if name == "federated-noiseless":
        return kind(**more)
    extra = {"tracker_noise": [law.scaled(2) for law in laws[::-1]]} if "tracking" in name else {}
    if name == "weighted-erm" and seed % 2:
        extra["weights"] = tuple(rng.choice([1.0, 2.0], AGENTS).tolist())
    return kind(noise=laws, **extra, **more)


def merged(algorithm, problem, graph) -> int:
    """How many agents are certified as somebody else."""
    return AGENTS - len(kinds.kinds(algorithm, problem, graph).first)


def same(one: Certificate, two: Certificate) -> None:
    """Every number, word, description and warning, of every agent."""
    assert one == replace(two, budgets=one.budgets)
    for a, b in zip(one.budgets, two.budgets, strict=True):
        assert repr(a) == repr(b)


@pytest.mark.filterwarnings("ignore:printed-tracking")
@pytest.mark.parametrize("name", [*ALGORITHMS, PRINTED])
@pytest.mark.parametrize("seed", [0, 1])
def test_every_algorithm_is_certified_as_agent_by_agent(name, seed, one_by_one):
    algorithm, problem = built(name, seed), uneven(seed)
    # Without end a growing history takes long.
    horizon = HORIZON if algorithm.sampling.grows else math.inf
    graph = network("tracking" in name)
    clipped = uneven(seed, loss=replace(problem.loss, clip=0.5))
    asked = [(problem, HORIZON), (clipped, horizon), (problem.under("zero-out"), HORIZON)]
    assert merged(algorithm, problem, graph), "the test would be about nothing"
    together = [hs.certify(algorithm, p, graph, h, delta=DELTA) for p, h in asked]
    curves = epsilon_after(algorithm, problem, graph, [1, 5], DELTA)
    one_by_one()
    for found, (p, h) in zip(together, asked, strict=True):
        same(found, hs.certify(algorithm, p, graph, h, delta=DELTA))
    np.testing.assert_array_equal(curves, epsilon_after(algorithm, problem, graph, [1, 5], DELTA))


@pytest.mark.parametrize("name", [n for n in ALGORITHMS if n != "federated-noiseless"])
def test_deployed_runs_too(name, one_by_one):
    algorithm, problem, graph = built(name, 1), uneven(1), network("tracking" in name)
    given = (algorithm, problem, graph, HORIZON, DELTA)
    assert len(kinds.kinds(algorithm, problem, graph, deployed=True).first) < AGENTS
    found, said = deployed(*given), deployed_numbers(*given)
    one_by_one()
    same(found, deployed(*given))
    assert said == deployed_numbers(*given)


@pytest.mark.parametrize(
    "option",
    [
        {"mechanism": "laplace"},
        pytest.param({"sampling": hs.Poisson(0.2)}, marks=pytest.mark.slow),
        pytest.param({"sampling": hs.Subset(3)}, marks=pytest.mark.slow),
        {"correlation": "toeplitz", "horizon": 8},
    ],
    ids=str,
)
def test_other_laws_and_samplers_too(option, one_by_one):
    """Four agents of two kinds: what secret batches are worth takes a while to find."""
    noise, counts = [hs.Constant(x) for x in (1.0, 2.0, 1.0, 2.0)], [20, 30, 20, 30]
    usual = {"mechanism": "gaussian", "sampling": hs.Cyclic(2)}
    algorithm = hs.gradient_perturbation(**{**usual, **option}, noise=noise)
    problem, graph = replace(uneven(0), counts=np.array(counts)), hs.graphs.star(4, weight=0.15)
    assert kinds.kinds(algorithm, problem, graph).kind.tolist() == [0, 1, 0, 1]
    found = hs.certify(algorithm, problem, graph, HORIZON, delta=DELTA)
    one_by_one()
    same(found, hs.certify(algorithm, problem, graph, HORIZON, delta=DELTA))


@pytest.mark.parametrize("frozen", [False, True])
def test_declared_changes_and_lost_messages_too(frozen, one_by_one):
    declared = {"declared": Declared(1.0, frozen), "domain": Box(-3.0, 3.0)}
    algorithm, problem = built("ldp-online", 0), uneven(0, **declared)
    graph = replace(network(False), lossy=True)
    found = hs.certify(algorithm, problem, graph, HORIZON)
    one_by_one()
    same(found, hs.certify(algorithm, problem, graph, HORIZON))


@pytest.mark.parametrize("where", ["complete", "ring", "grid"])
def test_secrets_too(where, one_by_one):
    """By position in the graph of secrets: on a grid nothing is known to be the same."""
    pairs = "complete" if where == "complete" else getattr(hs.graphs, where)(AGENTS)
    secrets = hs.Secrets(colluders=1, ratio=2.0, graph=pairs)
    algorithm = hs.dsgd(mechanism="gaussian", secrets=secrets, noise=2.0)
    problem, graph = uneven(0), network(False)
    assert merged(algorithm, problem, graph) == (0 if where == "grid" else AGENTS - 3)
    found = hs.certify(algorithm, problem, graph, HORIZON, delta=DELTA)
    assert verify(found).holds
    one_by_one()
    same(found, hs.certify(algorithm, problem, graph, HORIZON, delta=DELTA))


def test_noise_and_stops_are_found_as_agent_by_agent(one_by_one):
    rng = np.random.default_rng(3)
    targets = rng.choice([0.5, 2.0, 9.0], AGENTS).tolist()
    problem, graph = uneven(2), network(False)
    given = {
        at: (built(name, 2), problem, graph, 12)
        for name, at in (("ldp-online", None), ("adp2sgd", DELTA))
    }
    ready = [hs.calibrate(*one, targets, delta=at) for at, one in given.items()]
    stops = [messages_within(*one, targets, at) for at, one in given.items()]
    one_by_one()
    assert ready == [hs.calibrate(*one, targets, delta=at) for at, one in given.items()]
    assert stops == [messages_within(*one, targets, at) for at, one in given.items()]
    assert all(0 <= stop < 12 for stop, _ in stops), "the test would be about nothing"


# Who may be put together.


class Careless(LdpOnline):
    """It says that nothing but records and noise matters, and what it hears does."""

    agent_facts = ()


class Silent(LdpOnline):
    """It says nothing, whatever its parent says."""


@dataclass(frozen=True, kw_only=True)
class Picky(LdpOnline):
    """Its noise is that of another agent."""

    def releases(self, agent, curvature):
        return (Release("params", self.noise.scaled(1 + agent)),)


def test_what_an_algorithm_does_not_say_is_seen_by_these_tests(one_by_one):
    given = (Careless(noise=2.0), uneven(0), network(False), HORIZON)
    wrong = hs.certify(*given)
    one_by_one()
    with pytest.raises(AssertionError):
        same(wrong, hs.certify(*given))


@pytest.mark.parametrize("kind", [Silent, Picky])
def test_who_says_nothing_is_certified_agent_by_agent(kind):
    problem, graph = replace(uneven(0), counts=np.full(AGENTS, 20)), hs.graphs.ring(AGENTS)
    algorithm = kind(noise=2.0)
    assert len(kinds.kinds(algorithm, problem, graph).first) == AGENTS
    found = hs.certify(algorithm, problem, graph, HORIZON)
    assert len(set(found.epsilon)) == (AGENTS if kind is Picky else 1)
    own = hs.certify(hs.ldp_online(noise=2.0), problem, graph, HORIZON)
    assert found.epsilon[0] == own.epsilon[0] and len(own.budgets.kinds) == 1


@dataclass(frozen=True, kw_only=True)
class Listed(LdpOnline):
    """Its noise is multiplied by a number of each agent's own, of which it makes no tuple."""

    agent_facts = ("heard",)

    louder: Any = ()

    def releases(self, agent, curvature):
        return (Release("params", self.noise.scaled(float(np.ravel(self.louder[agent])[0]))),)


@pytest.mark.parametrize("form", [list, np.array, lambda x: np.array(x)[:, None], np.float32])
def test_entries_of_agents_count_whatever_holds_them(form):
    """Agents that are alike in all else must not get the budget of one with more noise."""
    louder = [9.0, 1.0] * (AGENTS // 2)
    algorithm = Listed(noise=2.0, louder=form(louder))
    problem, graph = replace(uneven(0), counts=np.full(AGENTS, 20)), hs.graphs.ring(AGENTS)
    assert kinds.kinds(algorithm, problem, graph).kind.tolist() == [0, 1] * (AGENTS // 2)
    found = hs.certify(algorithm, problem, graph, HORIZON).epsilon
    assert found[1] == pytest.approx(9 * found[0])


def test_facts_have_names():
    class Wrong(LdpOnline):
        agent_facts = ("degree",)

    with pytest.raises(ValueError, match="agent_facts must be one of heard"):
        kinds.kinds(Wrong(), uneven(0), network(False))


# Very many agents.


@pytest.fixture(scope="module")
def crowd():
    """20,000 agents of ten kinds: whatever is done once per agent shows."""
    many = 20_000
    task = replace(uneven(0), counts=20 + np.random.default_rng(0).integers(0, 10, many))
    return hs.ldp_online(noise=9.0), task, hs.graphs.ring(many)


def test_every_kind_is_described_once(crowd, monkeypatch):
    calls = []
    describe = certifying.describe
    monkeypatch.setattr(
        certifying, "describe", lambda *given: calls.append(given[3]) or describe(*given)
    )
    found = hs.certify(*crowd, 30)
    assert len(calls) == len(found.budgets.kinds) == 10
    held = crowd[1].counts
    assert calls == [int(np.argmax(held == held[agent])) for agent in calls]
    for agent in (0, 1, 777, 19_999):
        alone, _ = describe(*crowd, agent, 30)
        assert found.descriptions[found.budgets[agent].description] == alone
        assert found.budgets[agent].agent == agent


def test_its_certificate_is_short_and_comes_back(crowd):
    found = hs.certify(*crowd, 30)
    text = found.to_json()
    assert len(text) < 110_000, "two or three characters for each agent, and ten kinds"
    again = Certificate.from_json(text)
    assert again == found and hash(again) == hash(found) and again.to_json() == text
    verdict = verify(again)
    assert verdict.holds and verdict.numbers == 20_000
    assert len(str(found)) < 4000 and "agents (" in str(found)
    assert found.of(7).epsilon == [found.epsilon[7]]
    cheap = found.budgets.changed(lambda b: replace(b, epsilon=b.epsilon * 0.99))
    wrong = verify(replace(found, budgets=cheap)).wrong
    assert len(wrong) == 10 and all("epsilon must be at least" in text for text in wrong)
    one = replace(found.budgets[4], epsilon=0.0)
    wrong = verify(replace(found, budgets=found.budgets.put(one))).wrong
    assert [text.partition(":")[0] for text in wrong] == ["agent 4"]


def test_certificates_of_few_agents_are_written_as_ever(crowd):
    algorithm, task, _ = crowd
    for agents in (3, LISTED, LISTED + 1):
        small = replace(task, counts=task.counts[:agents])
        found = hs.certify(algorithm, small, hs.graphs.ring(agents), 30)
        body = json.loads(found.to_json())["budgets"]
        assert isinstance(body, list) == (agents <= LISTED)
        assert Certificate.from_json(found.to_json()) == found
        if agents <= LISTED:
            assert [entry["agent"] for entry in body] == list(range(agents))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda b: b.pop("kind"), "a list, or an object with the keys"),
        (lambda b: b.update(more=1), "a list, or an object with the keys"),
        (lambda b: b.update(agents="0-99"), "budgets.kind must be the kinds of the 100 agents"),
        (lambda b: b.update(agents="9-0"), "budgets.agents must be ranges that rise"),
        (lambda b: b.update(agents="0-999999998"), "budgets.agents must be at most"),
        (lambda b: b.update(agents=[0, 1]), "budgets.agents must be numbers and ranges"),
        (lambda b: b.update(kind="0*" + "9" * 9), "budgets.kind must be at most"),
        (lambda b: b.update(kind="0*20000000000000"), "budgets.kind must be numbers and runs"),
        (lambda b: b.update(kind="-1*20000"), "budgets.kind must be numbers and runs"),
        (lambda b: b.update(kind="0*20000"), "in the order of their first agents"),
        (lambda b: b.update(kind="0*19999 10"), "budgets.kind must be below the 10 kinds"),
        (lambda b: b["kinds"].reverse(), "in the order of their first agents"),
        (lambda b: b["kinds"][3].update(agent=77), "in the order of their first agents"),
        (lambda b: b["kinds"][3].update(epsilon=-1), r"kinds\[3\]: epsilon must be zero"),
    ],
)
def test_damaged_kinds_are_refused_in_words(crowd, change, words):
    body = json.loads(hs.certify(*crowd, 30).to_json())
    change(body["budgets"])
    body.pop("digest")
    with pytest.raises(ValueError, match=words):
        Certificate.from_json(json.dumps(body))


def test_budgets_are_read_like_a_tuple():
    one = AgentBudget(0, 1.5, "basis", "every step", "step 3")
    listed = tuple(replace(one, agent=i, epsilon=1.0 + (i % 3 == 1)) for i in (4, 7, 5, 8))
    found = Budgets.of("budgets", listed)
    assert len(found) == 4 and len(found.kinds) == 2 and found == listed
    assert tuple(found) == listed and found[1:3] == listed[1:3] and found[-1] == listed[-1]
    assert [(g.budget.agent, g.agents.tolist()) for g in found.groups()] == [
        (4, [4, 7]),
        (5, [5, 8]),
    ]
    assert found.each(lambda b: b.epsilon) == [b.epsilon for b in listed]
    assert tuple(found.put(replace(one, agent=5))) == (
        *listed[:2],
        replace(one, agent=5),
        listed[3],
    )
    for wrong in (3, "x", [1]):
        with pytest.raises((TypeError, ValueError), match="budgets must be"):
            Budgets.of("budgets", wrong)
    with pytest.raises(IndexError):
        found[4]


def test_numbers_as_short_texts():
    rng = np.random.default_rng(0)
    for numbers in (np.arange(0), np.arange(7), np.unique(rng.integers(0, 50, 30))):
        assert read_ranges("numbers", ranges(numbers)).tolist() == numbers.tolist()
        again = read_runs("numbers", runs(numbers // 3))
        assert again.tolist() == (numbers // 3).tolist()


def test_texts_of_strangers_say_nothing_twice_and_are_short_of_memory():
    """Of 10^8 agents, which is as many characters, a verifier took 20 s and 6 GB."""
    for wrong in ("0-1 2", "1 0-0", "007", "٣", "0-99999999", "0-99999999 " * 9 + "0"):
        with pytest.raises(ValueError, match="numbers must be"):
            read_ranges("numbers", wrong)
    for wrong in ("0*2 0", "3 0*0", "5*1", "03", "٣", "0*99999999"):
        with pytest.raises(ValueError, match="numbers must be"):
            read_runs("numbers", wrong)


def test_what_was_spent_is_kept_by_kind():
    rng = np.random.default_rng(0)
    for agents in (2, 3, 40):
        curves = np.cumsum(rng.exponential(size=(5, 3)), axis=0)
        spent = curves[:, rng.integers(0, 3, agents)]
        found = Spending.of(spent)
        np.testing.assert_array_equal(found.whole, spent)
        every = np.arange(found.curves.shape[1])
        np.testing.assert_allclose(found.median(every), np.median(spent, axis=1), rtol=1e-15)
        np.testing.assert_array_equal(found.largest, spent.max(axis=1))
        assert len(found.to_csv(np.arange(5)).splitlines()[0].split(",")) == agents + 1
    wide = Spending(found.curves, np.zeros(LISTED + 1, int))
    assert wide.to_csv(np.arange(5)).startswith("step,kind_0,")


def test_columns_of_agents_that_were_away_say_whose_they_are():
    """Of one kind in the certificate, half have left early: their column is not the kind's."""
    rng = np.random.default_rng(0)
    spent = np.array([[1.0, 1.0, 2.0], [1.0, 5.0, 9.0]])[:, rng.integers(0, 3, LISTED + 30)]
    head, *rows = Spending.of(spent).to_csv(np.arange(2)).splitlines()
    assert "kind" not in head
    for place, name in enumerate(head.split(",")[1:]):
        for agent in read_ranges("agents", name.removeprefix("agents ")).tolist():
            found = [float(row.split(",")[place + 1]) for row in rows]
            assert found == spent[:, agent].tolist()


# Very large graphs of secrets.


@pytest.fixture
def by_the_nearest(monkeypatch):
    """Small graphs are taken for very large ones."""
    monkeypatch.setattr(coalition_search, "_LARGEST", 1)
    monkeypatch.setattr(coalition_search, "_STEPS", 1)
    monkeypatch.setattr(coalition_search, "_affordable", lambda agents, colluders: False)


def secret_graph(seed: int) -> Shared:
    """Ten agents in a ring with a few more pairs, everybody and every pair as loud as it likes."""
    rng = np.random.default_rng(seed)
    ring = {tuple(sorted((i, (i + 1) % 10))) for i in range(10)}
    more = {tuple(sorted(rng.choice(10, 2, replace=False).tolist())) for _ in range(8)}
    pairs = tuple(sorted(ring | more))
    ratios = tuple(rng.uniform(0.3, 5.0, len(pairs)).tolist())
    return Shared(10, ratios, pairs, tuple(rng.uniform(0.5, 2.0, 10).tolist()))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("most", [4, 512])
def test_no_coalition_leaves_less_than_the_nearest_agents_give(
    seed, most, by_the_nearest, monkeypatch
):
    """Every coalition of up to three others, against trees of few agents and of all."""
    monkeypatch.setattr(coalition_balls, "_TREE", most)
    shared = secret_graph(seed)
    assert shared.nearby
    for agent, colluders in product(range(10), range(4)):
        others = [j for j in range(10) if j != agent]
        worst = max(shared.price(agent, some) for some in combinations(others, colluders))
        assert 1 <= shared.gain(agent, colluders).value <= worst**-0.5
    assert shared.gain(0, 0).value > 1.05, "the test would be about nothing"


def test_nothing_is_lost_where_secrets_are_a_tree(by_the_nearest):
    """Against nobody the bound is then the exact price, whoever asks."""
    pairs = tuple(((i - 1) // 2, i) for i in range(1, 15))
    rng = np.random.default_rng(0)
    shared = Shared(15, tuple(rng.uniform(0.5, 3.0, 14).tolist()), pairs, tuple(range(1, 16)))
    search = coalition_search.Search(15, shared.ratios, shared.pairs, shared.scales)
    found = coalition_balls.ball_prices(search.graph, search.scales**2, search.ties, np.arange(15))
    exact = [shared.price(agent, []) for agent in range(15)]
    np.testing.assert_allclose(found[:, 0], exact, rtol=1e-12)
    whole = [
        branch_prices(search.graph.tree(agent), search.scales**2, search.ties, agent)
        for agent in range(15)
    ]
    for agent, prices in enumerate(whole):
        np.testing.assert_allclose(found[agent, : len(prices)], prices, rtol=1e-12)


def test_trees_are_the_same_everywhere():
    """Not by NumPy's random numbers: another release would find other gains."""
    assert coalition_balls._shuffled(8).tolist() == [3, 4, 1, 5, 0, 6, 7, 2]  # by whole numbers
    found = coalition_balls._shuffled(10_000)
    assert sorted(found.tolist()) == list(range(10_000))
    # No trend: ranks and places are as good as independent (5 standard deviations).
    assert abs(np.corrcoef(found, np.arange(10_000))[0, 1]) < 0.05


def test_a_hub_of_secrets_takes_no_memory(monkeypatch):
    """Whoever is near it is near everybody: a file with a million leaves must not list them for
    each of the leaves.
    """
    listed, neighbours = [], coalition_balls._neighbours

    def counted(graph, trees, agents):
        listed.append(int(graph.degrees[agents].sum()))
        return neighbours(graph, trees, agents)

    monkeypatch.setattr(coalition_balls, "_neighbours", counted)
    agents = 6000
    shared = Shared(agents, (2.0,), tuple((0, leaf) for leaf in range(1, agents)))
    assert shared.nearby and shared.gain(0, 0).value > 60
    # A leaf's tree ends at the hub.
    assert shared.gain(1, 0).value == pytest.approx(1.8**0.5, abs=0.01)
    assert max(listed) < 2_000_000


def test_gains_of_many_agents_are_rounded_down_to_few_kinds(monkeypatch):
    """A certificate by secret batches takes a tenth of a second for each kind. 150 agents of a
    random graph are of few, none gets more than without rounding, and hardly less.
    """
    graph = hs.graphs.random(150, degree=6, seed=1)
    pairs = tuple(map(tuple, edges(graph).tolist()))
    shared = Shared(150, (30.0,), pairs)
    rounded = [[shared.gain(agent, q).value for q in range(6)] for agent in range(150)]
    monkeypatch.setattr(coalition_search, "_ROUNDED", 150)
    plain = Shared(150, (30.0,), pairs)
    exact = [[plain.gain(agent, q).value for q in range(6)] for agent in range(150)]
    assert len(np.unique(exact, axis=0)) > 100
    assert len(np.unique(rounded, axis=0)) <= 64
    assert (np.array(rounded) <= exact).all()
    assert (np.array(rounded) >= 0.98 * np.array(exact)).all()
    positions = shared.positions()
    assert len(set(positions)) <= 64
    for agent, first in enumerate(positions):
        assert rounded[agent] == rounded[first]


def test_agents_by_the_nearest_are_of_few_kinds():
    """4,000 agents on a random graph of secrets, certified and verified in a few kinds."""
    many = 4000
    graph = hs.graphs.random(many, degree=6, seed=1)
    secrets = hs.Secrets(colluders=1, ratio=2.0, graph=graph)
    algorithm = hs.dsgd(mechanism="gaussian", noise=5.0, secrets=secrets)
    task = replace(uneven(0), counts=np.full(many, 20))
    found = hs.certify(algorithm, task, graph, HORIZON, delta=DELTA)
    assert found.secrets.nearby and 1 < len(found.budgets.kinds) <= 64
    assert max(found.epsilon) < 0.5 * max(found.all_collude)
    assert verify(found).holds
    low, high = (found.epsilon.index(pick(found.epsilon)) for pick in (min, max))
    swapped = replace(
        found.budgets[high],
        **{
            name: getattr(found.budgets[low], name)
            for name in ("epsilon", "rho", "curve", "description", "assumptions")
        },
    )
    wrong = verify(replace(found, budgets=found.budgets.put(swapped))).wrong
    assert any(text.startswith(f"agent {high}: gain must be at most") for text in wrong)
