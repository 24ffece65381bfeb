"""Faults as data: what may be asked for, whom it would isolate, and which methods it suits."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

import hearsay as hs
from hearsay._files import Notice
from hearsay.simulation.promise import promise

GRAPH = hs.graphs.ring(5, weight=0.3)
PROBLEM = hs.problems.ridge(agents=5, records=40, dimension=3)
LDP = hs.ldp_online()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"loss": 1.0}, "loss must be zero, or a share below 1, got 1"),
        ({"loss": -0.1}, "loss must be zero or positive"),
        ({"loss": 0.9, "burst": 2.0}, "burst must be at least 9 rounds with loss = 0.9, got 2"),
        ({"burst": 3.0}, "burst must be left out without a loss"),
        ({"asleep": 0.9, "nap": 1.0}, "nap must be at least 9 rounds with asleep = 0.9"),
        ({"nap": 0.5}, "nap must be at least 1 round"),
        ({"stragglers": 1.1}, "stragglers must be a share between 0 and 1"),
        ({"late": 0.0}, "late must be above 0 and at most 1"),
        ({"latency": (2, 1)}, "latency must be one number of rounds, or the least and the most"),
        ({"away": 3.0}, "away must be left out without churn"),
        ({"leave": [(1, 0)]}, "leave must be at least 1"),
        ({"leave": [(1, 3), (1, 4)]}, "leave must be a list that names every agent once"),
        ({"leave": [(1, 3)], "join": [(1, 5)]}, "leave of agent 1 must be after it has joined"),
        ({"join": [3]}, r"join must be a list of \(agent, round\)"),
        ({"partitions": [(5, 5, [[0]])]}, "until in partitions must be after 5"),
        ({"partitions": [(1, 5, [[0, 1], [1]])]}, "partitions must be made of groups that name"),
        ({"links": [(0, 1, 2)]}, r"links must be a list of \(hearer, sender, since, until\)"),
        ({"plan": 3}, r"plan must be an object with a method heard\(step\), got 3"),
        ({"seed": -1}, "seed must be at least 0"),
    ],
)
def test_what_makes_no_sense_is_refused(options, words):
    with pytest.raises((ValueError, TypeError), match=words):
        hs.Faults(**options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"leave": [(5, 3)]}, "leave in faults must be about agents below 5, got 5"),
        (
            {"links": [(0, 2, 1, 3)]},
            r"links in faults must be about links of the graph, got \(0, 2",
        ),
        ({"latency": 20}, "latency must be below the 20 rounds of the run, got 20"),
        (
            {"leave": [(1, 3), (4, 7)]},
            "isolate anybody for good: agent 0 would hear nobody any more when the run ends, after"
            " round 19",
        ),
        ({"partitions": [(3, 20, [[2], [3]])]}, "agents 2, 3 would hear nobody"),
        ({"links": [(1, 0, 4, 25), (4, 0, 0, 25)]}, "agent 0 would not be heard by anybody"),
        ({"leave": [(i, 5) for i in range(5)]}, "everybody has left before round 19"),
        ({"churn": 0.9999999, "seed": 1}, "faults must (not isolate anybody|leave somebody)"),
    ],
)
def test_faults_that_isolate_somebody_for_good_say_whom(options, words):
    with pytest.raises(ValueError, match=words):
        promise(LDP, PROBLEM, GRAPH, steps=20, faults=hs.Faults(**options))


def test_what_heals_before_the_end_isolates_nobody():
    faults = hs.Faults(partitions=[(3, 19, [[0], [1], [2]])], links=[(1, 0, 4, 19), (4, 0, 0, 19)])
    found = promise(LDP, PROBLEM, GRAPH, steps=20, faults=faults)
    assert found.graph.lossy
    assert found.faults == faults


def test_the_certificate_is_that_of_a_graph_that_loses_messages():
    found = promise(LDP, PROBLEM, GRAPH, steps=20, faults=hs.Faults(loss=0.1))
    lossy = hs.certify(LDP, PROBLEM, replace(GRAPH, lossy=True), 20)
    assert found.certificate == lossy
    assert found.certificate != hs.certify(LDP, PROBLEM, GRAPH, 20)
    said = [a.text for a in found.certificate.budgets[0].assumptions]
    assert any("any neighbour may be left out in any round" in text for text in said)
    assert found.after(7) == hs.certify(LDP, PROBLEM, replace(GRAPH, lossy=True), 7)
    plain = hs.certify(LDP, PROBLEM, GRAPH, 20).budgets[0].assumptions
    assert not any("left out in any round" in a.text for a in plain)


def test_a_lossy_graph_needs_faults():
    with pytest.raises(ValueError, match="give faults=hearsay.Faults"):
        promise(LDP, PROBLEM, replace(GRAPH, lossy=True), steps=5)


def test_a_budget_ends_a_run_by_what_a_lossy_graph_costs():
    half = promise(LDP, PROBLEM, GRAPH, steps=20, faults=hs.Faults(loss=0.1)).after(10)
    run = hs.simulate(
        LDP,
        PROBLEM,
        GRAPH,
        steps=20,
        budget=max(half.epsilon),
        faults=hs.Faults(loss=0.1),
        regret=False,
        reference=False,
    )
    assert run.steps[-1] == 10
    assert run.certificate.epsilon == half.epsilon


TRACKING = hs.gradient_tracking(step=0.05, noise=0.1)


def test_a_method_that_needs_every_message_runs_only_when_asked_and_with_a_true_budget():
    with pytest.raises(ValueError, match=r"cannot do without a message: .*Faults\(unfit=True\)"):
        promise(TRACKING, PROBLEM, GRAPH, steps=9, faults=hs.Faults(loss=0.1))
    found = promise(TRACKING, PROBLEM, GRAPH, steps=9, faults=hs.Faults(loss=0.1, unfit=True))
    assert found.certificate.epsilon == hs.certify(TRACKING, PROBLEM, GRAPH, 9).epsilon
    assert "cannot do without were lost" in found.certificate.warnings[-1]
    assert "cannot do without were lost" in found.after(4).warnings[-1]


@pytest.mark.parametrize(
    ("algorithm", "options", "words"),
    [
        (
            hs.correlated_federated(horizon=9, mechanism="gaussian"),
            {"unfit": True},
            "correlated-federated cannot run with faults: everybody must apply the same average",
        ),
        (
            hs.gradient_perturbation(averaging=2, chebyshev=True),
            {},
            "chebyshev must be false with faults",
        ),
        (hs.gradient_perturbation(averaging=2), {"latency": 1}, "latency must be 0"),
        (hs.asynchronous_gossip(), {"latency": (0, 2)}, "latency must be 0 for asynchronous"),
    ],
)
def test_methods_that_faults_do_not_suit_are_refused(algorithm, options, words):
    with pytest.raises(ValueError, match=words):
        promise(algorithm, PROBLEM, GRAPH, steps=9, delta=1e-5, faults=hs.Faults(**options))


def test_lost_shares_of_trackers_no_longer_add_up():
    """Without noise the trackers of all agents add up to their gradients: with loss they do not,
    and the models run away from the optimum that they find without.
    """
    silent = hs.gradient_tracking(step=0.1, coupling=0.5, tracking=0.5, noise=0.0)
    task = hs.problems.ridge(agents=5, records=40, dimension=3, per_step=40)
    options = {"steps": 150, "regret": False, "every": 150}
    whole = hs.simulate(silent, task, GRAPH, **options).final("tracking_error")[0]
    lossy = hs.simulate(silent, task, GRAPH, faults=hs.Faults(loss=0.2, unfit=True), **options)
    assert lossy.final("tracking_error")[0] > 20 * whole


def test_who_heard_whom_is_counted_and_kept(tmp_path):
    faults = hs.Faults(links=[(0, 1, 0, 5)], leave=[(3, 4)])
    run = hs.simulate(LDP, PROBLEM, GRAPH, steps=8, faults=faults, regret=False)
    found = run.hearing
    ends = zip(found.hearer.tolist(), found.sender.tolist(), strict=True)
    number = {pair: link for link, pair in enumerate(ends)}
    assert found.sent.tolist() == [8, 8, 8, 4, 8]
    assert found.heard[number[0, 1]] == 3
    assert found.heard[number[1, 0]] == 8
    assert found.heard[number[2, 3]] == found.heard[number[3, 2]] == 4
    assert found.links[number[2, 3]] == 1.0
    assert found.hears[0] == pytest.approx(11 / 16)
    assert found.is_heard[1] == pytest.approx(11 / 16)
    assert found.share == pytest.approx(found.heard.sum() / (4 * 16 + 8))
    run.save(tmp_path)
    rows = (tmp_path / "hearing.csv").read_text().splitlines()
    assert rows[0] == "hearer,sender,sent,heard"
    assert "0,1,8,3" in rows
    assert len(rows) == 1 + GRAPH.edges
    few = replace(found, heard=np.tile(found.heard, 20_000), hearer=np.tile(found.hearer, 20_000),
                  sender=np.tile(found.sender, 20_000))  # fmt: skip
    assert few.to_csv().splitlines()[1] == "0,8,0.6875,1.0"


def test_what_comes_after_the_end_of_a_run_is_said():
    faults = hs.Faults(join=[(1, 10)], leave=[(2, 2)], links=[(0, 1, 3, 5)])
    told: list[str] = []
    options = {"steps": 3, "faults": faults, "reference": False, "regret": False}
    words = r"join = \(\(1, 10\),\), links = .* would come after the last round, 2, and do not"
    hs.simulate(LDP, PROBLEM, GRAPH, notify=told.append, **options)
    assert [line for line in told if re.search(words, line)]
    with pytest.warns(Notice, match=words):
        hs.simulate(LDP, PROBLEM, GRAPH, **options)
    assert not faults.after(11)
