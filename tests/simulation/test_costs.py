"""Cost models: the clock against a simulation event by event, bytes against deployed agents, laws
against what they say.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse, stats

import hearsay as hs
from hearsay.problems.sampling.samplers import Poisson
from hearsay.simulation import clock, cost_laws
from hearsay.simulation.costs import Costs
from hearsay.simulation.traffic import traffic

RIDGE = hs.problems.ridge(agents=6, records=120, dimension=3)
DSGD = hs.dsgd(noise=1.0)
ARRIVES, SENDS, GIVES_UP = range(3)


class Events:
    """The same network, one event after the other, as somebody would tell it.

    At equal times messages arrive before anybody sends or gives up waiting.
    """

    def __init__(self, costs, algorithm, problem, graph, steps):
        self.traffic = traffic(algorithm, problem, graph)
        self.lines = clock.Lines(costs, self.traffic)
        self.computing = list(clock._computing(costs, algorithm, problem, steps))
        self.patience, self.last = costs.patience, steps * self.traffic.exchanges
        agents = range(graph.agents)
        links = list(zip(self.traffic.source.tolist(), self.traffic.target.tolist(), strict=True))
        self.links = {pair: number for number, pair in enumerate(links)}
        self.hears = {i: [j for j, to in links if to == i] for i in agents}
        self.heard_by = {i: [to for j, to in links if j == i] for i in agents}
        self.arrived, self.due = defaultdict(dict), defaultdict(dict)
        self.free = dict.fromkeys(agents, 0.0)
        self.number, self.waits = dict.fromkeys(agents, 0), dict.fromkeys(agents, None)
        self.delivered = np.zeros((self.last, len(links)), bool)
        self.ends = np.zeros((self.last, graph.agents))
        self.queue = []
        for i in agents:
            self.compute(i, 0.0)
        while self.queue:
            time, kind, *what = heapq.heappop(self.queue)
            (self.arrives, self.sends, self.gives_up)[kind](time, *what)

    def compute(self, i, now):
        number, phases = self.number[i], self.traffic.exchanges
        if number < self.last:
            work = self.computing[number // phases][i] if number % phases == 0 else 0.0
            ready = max(now + work, self.free[i])
            heapq.heappush(self.queue, (ready, SENDS, i))

    def sends(self, now, i):
        number = self.number[i]
        travel, sending = self.lines.at(number)
        self.free[i] = now + sending[i]
        for to in self.heard_by[i]:
            at = now + travel[self.links[i, to]]
            # Over one link messages keep their order.
            at = max([at, *self.due[to, i].values()])
            self.due[to, i][number] = at
            heapq.heappush(self.queue, (at, ARRIVES, to, i, number))
        fallen = {j for j in self.hears[i] if max(self.arrived[i, j], default=-1) < number - 2}
        self.waits[i] = set(self.hears[i]) - (set() if self.patience is None else fallen)
        if self.patience is not None:
            heapq.heappush(self.queue, (now + self.patience, GIVES_UP, i, number))
        self.look(now, i)

    def arrives(self, now, i, j, number):
        self.arrived[i, j][number] = now
        self.look(now, i)

    def gives_up(self, now, i, number):
        if self.waits[i] is not None and self.number[i] == number:
            self.goes_on(now, i)

    def look(self, now, i):
        waits, number = self.waits[i], self.number[i]
        if waits is not None and all(number in self.arrived[i, j] for j in waits):
            self.goes_on(now, i)

    def goes_on(self, now, i):
        number = self.number[i]
        for j in self.hears[i]:
            due = self.due[i, j].get(number, math.inf)
            self.delivered[number, self.links[j, i]] = due <= now
        self.ends[number, i], self.waits[i], self.number[i] = now, None, number + 1
        self.compute(i, now)


def hold(costs, algorithm, problem, graph, steps=40):
    """The two agree on when every round ends, for everybody, and on who was heard."""
    slow = Events(costs, algorithm, problem, graph, steps)
    phases = slow.traffic.exchanges
    found = list(clock.rounds(costs, algorithm, problem, slow.traffic, steps))
    np.testing.assert_allclose(
        [one.times for one in found], slow.ends[phases - 1 :: phases], rtol=1e-12
    )
    line = costs.timeline(algorithm, problem, graph, steps)
    heard = [line.heard(step, phase) for step in range(steps) for phase in range(phases)]
    np.testing.assert_array_equal(heard, slow.delivered)
    assert line.lost == np.sum(~slow.delivered)
    np.testing.assert_allclose(line.seconds[1:], slow.ends[phases - 1 :: phases].max(axis=1))
    assert line.seconds[0] == line.bytes[0] == 0
    return line


NETWORKS = {
    "constant": Costs(0.05, 1e4, 0.02),
    "all zero but the line": Costs(0, 1e3, 0),
    "a slow one": Costs(0.01, 1e6, (0.1, 0.1, 0.9, 0.1, 0.1, 0.1)),
    "drawn": Costs("uniform:0.01:0.2", "lognormal:2e4:1", "lognormal:0.05:0.7", seed=3),
    "jitter": Costs("lognormal:0.05:0.5:1.5", "lognormal:2e4:0:0.4", "uniform:0:0.1:0.8"),
    "by records": Costs(0.01, 1e6, 0.0, per_record=0.003),
}


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("patience", [None, 0.05, 0.2])
@pytest.mark.parametrize("graph", [hs.graphs.ring(6), hs.graphs.star(6)], ids=lambda g: g.name)
def test_the_clock_is_that_of_a_simulation_event_by_event(name, patience, graph):
    line = hold(replace(NETWORKS[name], patience=patience), DSGD, RIDGE, graph)
    assert (line.lost == 0) if patience is None else True
    if name == "a slow one" and patience == 0.05:
        # Nobody waits for it once it is behind, so that the others do not stand still.
        assert np.sort(line.ended)[-2] < line.ended[2] / 2 and line.lost


@pytest.mark.parametrize("patience", [None, 0.1])
def test_relays_are_exchanges_of_their_own(patience):
    plain = hs.gradient_perturbation(noise=1.0)
    twice = replace(plain, averaging=2)
    costs = replace(NETWORKS["jitter"], patience=patience)
    for algorithm in (plain, twice):
        hold(costs, algorithm, RIDGE, hs.graphs.ring(6), steps=15)
    line = costs.timeline(twice, RIDGE, hs.graphs.ring(6), 15)
    for step in range(15):
        # A round's link is one that has delivered in all its exchanges.
        every = [line.heard(step, exchange) for exchange in range(3)]
        np.testing.assert_array_equal(line.heard(step), np.all(every, axis=0))
    one, three = (traffic(a, RIDGE, hs.graphs.ring(6)) for a in (plain, twice))
    assert (one.exchanges, three.exchanges) == (1, 3) and three.total == 3 * one.total
    # Nothing is computed in a relay: only its latency is added.
    still = Costs(0.05, 1e9, 1.0)
    seconds = [still.timeline(a, RIDGE, hs.graphs.ring(6), 4).seconds[-1] for a in (plain, twice)]
    assert seconds == pytest.approx([4 * 1.05, 4 * 1.15], rel=1e-3)


def test_a_directed_graph_and_two_patterns_of_links():
    pairs = [[i, (i + far) % 6] for i in range(6) for far in (1, 2)]
    trackers = hs.graphs.edges(6, pairs, weight=0.2, directed=True)
    graph = hs.graphs.pair(hs.graphs.directed_ring(6), trackers)
    algorithm = hs.gradient_tracking(noise=1.0)
    found = traffic(algorithm, RIDGE, graph)
    # Everybody who hears an agent in any field is sent the whole message, once.
    assert found.heard_by.tolist() == [2] * 6
    hold(NETWORKS["jitter"], algorithm, RIDGE, graph)
    with pytest.raises(ValueError, match="patience must be left out for gradient-tracking, got 1:"):
        Costs(0.1, 1e6, 0.1, patience=1).timeline(algorithm, RIDGE, graph, 3)


def test_links_are_in_one_order_whatever_that_of_the_weights():
    weights = hs.graphs.star(6).weights
    back = [np.arange(a, b)[::-1] for a, b in zip(weights.indptr, weights.indptr[1:], strict=False)]
    order = np.concatenate(back)
    parts = (weights.data[order], weights.indices[order], weights.indptr)
    other = hs.graphs.Graph(sparse.csr_array(parts, shape=weights.shape))
    assert other.weights.indices.tolist() != weights.indices.tolist()
    found = traffic(DSGD, RIDGE, other)
    assert found.source.tolist() == weights.indices.tolist()
    assert other.weights.indices.tolist() == weights.indices[order].tolist()


def test_messages_share_a_line():
    """The centre of a star sends five messages and hears five: each takes a fifth of its line,
    however fast the others' lines are; the next message waits until the line is free.
    """
    star = hs.graphs.star(6)
    size = traffic(DSGD, RIDGE, star).message
    line = Costs(0.0, (size, *[1000.0 * size] * 5), 0.0).timeline(DSGD, RIDGE, star, 3)
    np.testing.assert_allclose(line.seconds, [0, 5, 10, 15])
    fast = Costs(0.0, (1000.0 * size, *[size] * 5), 0.0).timeline(DSGD, RIDGE, star, 3)
    np.testing.assert_allclose(fast.seconds, [0, 1, 2, 3])
    mean = Costs((0.0, 0.2, 0.4, 0.4, 0.4, 0.6), 1e12, 0.0).timeline(DSGD, RIDGE, star, 1)
    np.testing.assert_allclose(mean.ended, [0.3, 0.1, 0.2, 0.2, 0.2, 0.3], atol=1e-6)


def test_an_agent_alone_only_computes():
    alone = hs.graphs.Graph(sparse.csr_array((6, 6)), "alone")
    line = Costs(0.3, 1e5, (1, 2, 3, 4, 5, 6)).timeline(DSGD, RIDGE, alone, 10)
    assert line.bytes[-1] == 0 and line.ended.tolist() == [10, 20, 30, 40, 50, 60]


def test_through_a_server_messages_go_up_and_an_average_comes_down():
    algorithm = hs.federated_noiseless(horizon=5, sampling=hs.Fresh(2))
    size = traffic(algorithm, RIDGE, hs.graphs.ring(6)).message
    slow = Costs(0.5, 1e9, (1, 1, 1, 1, 1, 2), server=6.0 * size)
    line = slow.timeline(algorithm, RIDGE, hs.graphs.ring(6), 5)
    # Two seconds of the slowest, half a second and one for six messages, up and down.
    assert line.seconds[-1] == pytest.approx(5 * (2 + 2 * 1.5)) and line.bytes[-1] == 5 * 12 * size
    own = Costs(0.5, (1e9, 1e9, 1e9, 1e9, 1e9, size / 4.0), 0.0, server=1e12)
    line = own.timeline(algorithm, RIDGE, hs.graphs.ring(6), 1)
    assert line.seconds[-1] == pytest.approx(2 * 4.5)
    each = replace(own, latency=(0, 0, 0, 0, 0, 3), bandwidth=1e12)
    assert each.timeline(algorithm, RIDGE, hs.graphs.ring(6), 1).seconds[-1] == pytest.approx(6)
    with pytest.raises(ValueError, match="everybody must apply the same average"):
        replace(slow, patience=1.0).timeline(algorithm, RIDGE, hs.graphs.ring(6), 5)


def test_what_it_takes_to_bring_all_records_to_a_server():
    uneven = replace(RIDGE.task, counts=np.array([10, 10, 10, 10, 10, 70]))
    found = Costs(0.5, 320.0, 0.0, server=1e9).collecting(uneven)
    # Three numbers and a label of eight bytes each; the longest line decides.
    assert found == (120 * 32, 0.5 + 70 * 32 / 320)
    shared = Costs(0.5, 1e9, 0.0, server=6 * 32.0).collecting(uneven)
    assert shared.seconds == pytest.approx(0.5 + 70)
    with pytest.raises(ValueError, match="must be a data set to be collected, got a stream"):
        Costs(0.5, 1e9, 0.0).collecting(hs.problems.estimation(agents=3).task)


def test_records_take_time_as_the_sampler_uses_them():
    per_record = Costs(0.0, 1e12, 0.0, per_record=1.0)

    def rounds(sampling, counts=(20, 20, 20, 20, 20, 20)):
        task = replace(RIDGE.task, counts=np.array(counts))
        algorithm = replace(DSGD, sampling=sampling)
        return np.diff(per_record.timeline(algorithm, task, hs.graphs.ring(6), 100).seconds)

    np.testing.assert_allclose(rounds(hs.Cyclic(5)), 5, atol=1e-6)
    # One more record arrives in every round, until all are there.
    np.testing.assert_allclose(rounds(hs.History()), np.minimum(np.arange(100) + 1, 20), atol=1e-6)
    assert rounds(Poisson(0.25), (20, 20, 20, 20, 20, 60))[-1] == pytest.approx(15, abs=1e-6)


def test_bytes_are_those_that_deployed_agents_send(tmp_path, monkeypatch):
    pytest.importorskip("zenoh")
    from hearsay.deploy.settings import load
    from hearsay.deploy.transport import Transport
    from tests.deploy.networks import run_threads, write

    sent, plain = [], Transport.publish

    def publish(self, round, payload):
        sent.append(len(payload) * len(self.heard_by))
        plain(self, round, payload)

    monkeypatch.setattr(Transport, "publish", publish)
    relayed = {"name": "gradient-perturbation", "averaging": 1}
    names, steps = ("agent--1", "agent--2", "agent--3"), {"steps": 2}
    path = write(tmp_path, run="trialrun", names=names, algorithm=relayed, run_table=steps)
    agents = run_threads(load(path), 3)
    plan = agents["agent--1"].plan
    found = Costs(0.1, 1e6, 0.1).timeline(plan.algorithm, plan.task, plan.graph, 2)
    # Three agents, two hearers, two exchanges in each of two rounds; the header has room to spare
    # in steps of eight bytes.
    assert len(sent) == 12 and abs(sum(sent) - found.bytes[-1]) <= 24 * 8


@pytest.mark.parametrize(
    "name", ["adp2sgd", "gradient-tracking", "asynchronous-gossip", "sdm-dsgd"]
)
def test_a_message_is_as_long_as_a_deployed_agents(tmp_path, name):
    pytest.importorskip("zenoh")
    from hearsay.deploy.agent import Agent
    from hearsay.deploy.settings import load
    from tests.deploy.networks import write
    from tests.deploy.test_equivalence import tables

    names = [f"agent--{number}" for number in range(5)]
    path = write(tmp_path, run="trialrun", names=names, **tables(name))
    agent = Agent(load(path), names[0], rehearsal=3, no_privacy=True)
    zeros = {field: np.zeros(shape) for field, shape in agent.format.shapes.items()}
    payload = agent.format.encode(names[0], 1000, zeros, "0" * 32)
    plan = agent.plan
    found = traffic(plan.algorithm, plan.task, plan.graph)
    assert found.message == len(payload)
    assert found.heard_by[0] == len(agent.heard_by) and found.hears[0] == len(agent.hears)


def test_laws_are_drawn_once_and_jitter_anew():
    """Medians and deviations of 4,000 draws: each is off by more than 6 of its standard errors
    with probability below 1e-8.
    """
    many, error = 4000, 6 / math.sqrt(4000)
    law = cost_laws.read("latency", "lognormal:0.05:0.5:0.2", hs._validate.nonnegative)
    base = law.once(0, cost_laws.LATENCY, many)
    assert np.log(base).mean() == pytest.approx(math.log(0.05), abs=0.5 * error)
    assert np.log(base).std() == pytest.approx(0.5, abs=0.5 * error)
    rounds = [np.log(law.at(base, 0, cost_laws.LATENCY, k) / base) for k in range(3)]
    assert all(abs(one.std() - 0.2) < 0.2 * error for one in rounds)
    assert abs(np.corrcoef(rounds)[0, 1]) < error and abs(np.corrcoef(rounds)[1, 2]) < error
    # The same again, whatever was drawn between; others for another seed or purpose.
    again = np.log(law.at(base, 0, cost_laws.LATENCY, 1) / base)
    np.testing.assert_array_equal(again, rounds[1])
    assert not np.any(law.once(1, cost_laws.LATENCY, many) == base)
    assert not np.any(law.once(0, cost_laws.COMPUTE, many) == base)
    flat = cost_laws.read("latency", "uniform:2:5", hs._validate.nonnegative)
    assert stats.kstest(flat.once(0, 0, many), "uniform", (2, 3)).pvalue > 1e-8


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"latency": -1}, "latency must be zero or positive, got -1"),
        ({"latency": "lognormal:0.1"}, "latency must be a number, a list"),
        ({"latency": "normal:0.1:0.2"}, "latency must be a number, a list"),
        ({"latency": "uniform:a:b"}, "latency must be a number, a list"),
        ({"latency": "uniform:3:2"}, "high end of latency must be at least the low end 3, got 2"),
        ({"latency": "uniform:nan:2"}, "low end of latency must be finite, got nan"),
        ({"latency": []}, "latency must be a number, a list"),
        ({"bandwidth": 0}, "bandwidth must be positive, got 0"),
        ({"bandwidth": "uniform:0:5"}, "low end of bandwidth must be positive, got 0"),
        ({"bandwidth": [1, -1]}, "bandwidth must be positive, got -1"),
        ({"compute": "lognormal:1:-1"}, "sigma of compute must be zero or positive, got -1"),
        ({"compute": "lognormal:1:1:-1"}, "jitter of compute must be zero or positive, got -1"),
        ({"patience": 0}, "patience must be positive, got 0"),
        ({"server": 0}, "server must be positive, got 0"),
        ({"per_record": -1}, "per_record must be zero or positive, got -1"),
        ({"seed": -1}, "seed must be at least 0, got -1"),
    ],
)
def test_what_cannot_be_is_refused(given, said):
    with pytest.raises(ValueError, match=said):
        Costs(**{"latency": 0.1, "bandwidth": 1e6, "compute": 0.1, **given})


def test_a_list_must_have_one_for_each_agent():
    short = Costs(0.1, (1e6, 1e6), 0.1)
    for call in (
        lambda: short.timeline(DSGD, RIDGE, hs.graphs.ring(6), 3),
        lambda: short.collecting(RIDGE),
    ):
        with pytest.raises(ValueError, match="bandwidth must be one number, or one for each of "):
            call()


@pytest.fixture(scope="module")
def run():
    return hs.simulate(DSGD, RIDGE, hs.graphs.ring(6), steps=20, every=6, seeds=2)


def test_a_run_has_its_costs_beside_its_metrics(run):
    costs = NETWORKS["drawn"]
    found = run.costs(costs)
    whole = costs.timeline(run.algorithm, run.problem, run.graph, 20)
    assert found.steps.tolist() == run.steps.tolist() == [0, 6, 12, 18, 20]
    np.testing.assert_array_equal(found.seconds, whole.seconds[run.steps])
    assert found.bytes[-1] == 20 * whole.traffic.total
    rows = found.to_csv().splitlines()
    assert rows[0] == "step,seconds,bytes" and len(rows) == 6
    assert rows[-1] == f"20,{found.seconds[-1]:.10g},{found.bytes[-1]}"
    assert repr(found).startswith("Timeline(20 steps, ")


def test_a_run_in_which_all_were_heard_has_no_costs_of_one_that_lost_messages(run):
    late = replace(NETWORKS["a slow one"], patience=0.05)
    with pytest.raises(ValueError, match="patience must be left out for a run in which everybody"):
        run.costs(late)
    plan = late.timeline(run.algorithm, run.problem, run.graph, 20)
    failing = hs.simulate(
        DSGD, RIDGE, run.graph, steps=20, every=6, seeds=2, faults=hs.Faults(plan=plan)
    )
    assert failing.costs(late).lost == plan.lost and failing.graph.lossy
    # What the run has heard is what the plan says.
    delivered = sum(plan.heard(step) for step in range(20))
    np.testing.assert_array_equal(failing.hearing.heard, delivered)
    with pytest.raises(ValueError, match="costs must be those that the plan in faults was made"):
        failing.costs(NETWORKS["a slow one"])
    # A patience that never ends is none.
    kind = replace(NETWORKS["a slow one"], patience=1e9)
    assert run.costs(kind).seconds[-1] == run.costs(NETWORKS["a slow one"]).seconds[-1]


def test_how_many_rounds_are_over_in_a_time_and_with_a_traffic():
    line = Costs(0.1, 1e9, 0.4).timeline(DSGD, RIDGE, hs.graphs.ring(6), 10)
    each = line.traffic.total
    assert line.within(seconds=2.6) == 5 and line.within(bytes=3 * each) == 3
    assert line.within(bytes=3 * each - 1) == 2 and line.within(seconds=0.1) == 0
    assert line.within(2.6, 3 * each) == 3 and line.within() == line.within(1e9) == 10
    with pytest.raises(ValueError, match="seconds must be zero or positive, got -1"):
        line.within(seconds=-1)


def test_a_plan_of_who_was_heard_has_a_digest_and_an_end():
    costs = replace(NETWORKS["jitter"], patience=0.05)
    graph = hs.graphs.star(6)
    plans = [costs.timeline(DSGD, RIDGE, graph, steps) for steps in (10, 10, 11)]
    plans += [replace(costs, seed=1).timeline(DSGD, RIDGE, graph, 10)]
    marks = [plan.digest() for plan in plans]
    assert marks[0] == marks[1] and len(set(marks)) == 3
    # In the order of the graph's weights: the links that a row lists are those that it hears.
    lost = sum(~plans[0].heard(step) for step in range(10))
    assert lost.shape == graph.weights.indices.shape and lost.sum() == plans[0].lost > 0
    with pytest.raises(ValueError, match="step must be one of the 10 rounds of the timeline"):
        plans[0].heard(10)


def test_ten_thousand_agents_for_a_hundred_rounds():
    task = replace(RIDGE.task, counts=np.full(10_000, 5))
    line = Costs(0.05, 1e6, 0.1).timeline(DSGD, task, hs.graphs.ring(10_000), 100)
    size = line.traffic.message
    assert line.seconds[-1] == pytest.approx(100 * (0.15 + 2 * size / 1e6))
    assert line.bytes[-1] == 100 * 20_000 * size
