"""Settings for records that arrive round by round: the sums of the derivation, trials that are the
engine's, and budgets that are kept.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import hearsay as hs
from hearsay.problems.data.holdings import Facts
from hearsay.problems.linear import logistic_task
from hearsay.problems.task import Task
from hearsay.release.readouts import Exponential, Tail
from hearsay.tradeoff import arriving, choices, contest
from hearsay.tradeoff.choices import Choice, Law
from hearsay.tradeoff.made_up import KINDS
from hearsay.tradeoff.trial import exchange, released

DELTA, READOUTS = 1e-5, (Tail(), Exponential())


@pytest.fixture
def quick(tmp_path, monkeypatch):
    """Few candidates on few made-up records: the way of a choice, not its quality."""
    monkeypatch.setenv("HEARSAY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(contest, "KINDS", KINDS[:2])
    monkeypatch.setattr(contest, "LATER", (1,))
    monkeypatch.setattr(contest, "WORK", 1e7)
    monkeypatch.setattr(contest, "SEEDS", 2)
    monkeypatch.setattr(choices, "CLIPS", (1.0,))
    monkeypatch.setattr(arriving, "TRAVELS", (1.0, 2.0))


def facts(counts=(40, 40, 30), head_start: int = 4, per_step: int = 3) -> Task:
    data = Facts("nobody's", (4,), np.array(counts), 1.0, 1.0)
    return logistic_task(
        data, ridge=0.0, adjacency="zero-out", head_start=head_start, per_step=per_step
    )


def left(steps: np.ndarray, noise: np.ndarray, records: np.ndarray, spent: float = 1.0) -> float:
    """The noise in the model when noise of that shape is as loud as `spent` asks for: the slow
    obvious version.
    """
    cost = sum(1 / (n * b) ** 2 for n, b in zip(records, noise, strict=True))
    factor = np.sqrt(cost / spent)
    return sum((a * factor * b) ** 2 for a, b in zip(steps, noise, strict=True))


def test_the_sums_of_the_derivation():
    records = np.arange(1.0, 201.0)
    travel, last = 50.0, 200.0
    even, growing = np.full(200, travel / 200), records * travel / records.sum()
    for steps in (even, growing):
        best = np.sqrt(steps / records) / steps
        least = left(steps, best, records)
        np.testing.assert_allclose(least, np.sum(steps / records) ** 2)
        for shape in (np.ones(200), 1 / records, best * (1 + 0.1 * np.cos(records))):
            assert left(steps, shape, records) >= least * (1 - 1e-12)
    constant = left(even, np.ones(200), records)
    found = left(growing, 1 / records, records)
    np.testing.assert_allclose(found, (travel * 200 / records.sum()) ** 2)
    assert found < 4.05 * (travel / last) ** 2 < constant / 50


def test_steps_grow_and_noise_falls_with_the_records():
    task = facts()
    choice = Choice(12, 0.5, begun=arriving.begun(task))
    there = task.arrivals.head_start + (np.arange(12) + 1) * task.arrivals.per_step
    np.testing.assert_allclose(
        choice.steps(np.arange(12)) / choice.steps(0), there / there[0], 1e-2
    )
    np.testing.assert_allclose(
        choice.fading(np.arange(12)) / choice.fading(0), there[0] / there, 1e-2
    )
    assert choice.steps(11) == pytest.approx(0.5, rel=5e-3)
    # Every round costs the same.
    cost = 1 / (there * choice.fading(np.arange(12))) ** 2
    assert cost.max() < 1.02 * cost.min()


@pytest.mark.parametrize("averaging", [0, 1])
def test_a_trial_has_the_engines_rounds(averaging):
    rng = np.random.default_rng(3)
    sets = [(rng.normal(size=(n, 3)), rng.integers(0, 2, n).astype(float)) for n in (19, 13, 22)]
    problem = hs.problems.logistic(
        sets, feature_bound=2.0, clip=0.4, ridge=0.1, head_start=4, per_step=2, test=sets[0]
    )
    choice = Choice(12, 0.5, averaging=averaging, begun=arriving.begun(problem.task))
    graph = hs.graphs.complete(3)
    law = Law(problem.task, graph, 2.0, DELTA, None)
    column = law.column(choice, quiet=True)
    algorithm = replace(choice.algorithm, noise=hs.Constant(0.0))
    run = hs.simulate(
        algorithm, problem, graph, steps=12, seeds=1, delta=DELTA, reference=False, regret=False,
        release=READOUTS,
    )  # fmt: skip
    passed = exchange(graph, choices.COUPLING, algorithm.relays(graph))
    found = released(problem, passed, [column, replace(column, arrived=None)], READOUTS, [0])
    whole = released(problem, passed, [replace(column, arrived=None)], READOUTS, [0])
    for place, one in enumerate(READOUTS):
        expected = run.averages[one.name][0].mean(axis=0)
        np.testing.assert_allclose(found[place][0][0, 0], expected, atol=2e-5)
        assert not np.allclose(whole[place][0][0, 0], expected, atol=1e-3)


def test_its_noise_is_as_loud_as_the_certificate_asks_for():
    """What is calibrated on the task, in every round and for every agent."""
    task, graph = facts(), hs.graphs.complete(3)
    choice = Choice(14, 0.5, choices.clips(task)[0], begun=arriving.begun(task))
    law = Law(task, graph, (1.0, 2.0, 4.0), DELTA, None)
    column = law.column(choice)
    asked = hs.calibrate(
        choice.algorithm, choice.prepared(task), graph, 14, epsilon=[1.0, 2.0, 4.0], delta=DELTA
    )
    for agent in range(3):
        expected = asked.noise_for(agent)(np.arange(14))
        np.testing.assert_allclose(column.noise[agent] * column.fading, expected, rtol=1e-9)
        steps = asked.step(np.arange(14))
        np.testing.assert_allclose(column.step * column.pace, steps, rtol=1e-9)


def test_many_rounds_are_taken_as_one_in_a_trial():
    task = facts((5000, 5000, 4000), head_start=0, per_step=2)
    many = arriving.together(task)
    assert many > 1
    small = arriving.coarse(task, many)
    assert arriving.until_all_are_there(small) <= arriving.MOST
    graph = hs.graphs.complete(3)
    chosen = arriving.around(small, graph, 2.0, DELTA, None)[0]
    fine = arriving.finer(chosen, task, many)
    assert fine.rounds == many * chosen.rounds >= arriving.until_all_are_there(task)
    # The same way in all, and the same noise in it.
    travels = [one.steps(np.arange(one.rounds)).sum() for one in (chosen, fine)]
    assert travels[1] == pytest.approx(travels[0], rel=0.02)
    noises = []
    for one, facts_ in ((chosen, small), (fine, task)):
        asked = hs.calibrate(
            one.algorithm, one.prepared(facts_), graph, one.rounds, epsilon=2.0, delta=DELTA
        )
        every = np.arange(one.rounds)
        noises.append(np.sum((asked.step(every) * asked.noise_for(0)(every)) ** 2))
    assert noises[1] == pytest.approx(noises[0], rel=0.05)


@pytest.mark.parametrize(("epsilon", "colluders"), [(2.0, None), ((1.0, 2.0, 4.0), None), (2.0, 1)])
def test_no_agent_spends_more_than_asked(quick, epsilon, colluders):
    task, graph = facts(), hs.graphs.complete(3)
    found = hs.rehearse(task, graph, epsilon, delta=DELTA, colluders=colluders, arriving=True)
    assert found.choice.begun is not None and found.rounds >= arriving.until_all_are_there(task)
    assert found.task.arrivals == task.arrivals
    sent = hs.certify(found.algorithm, found.task, graph, found.rounds, delta=DELTA)
    limits = np.broadcast_to(epsilon, 3)
    assert np.all(np.array(sent.epsilon) <= limits) and np.all(sent.epsilon > 0.999 * limits)
    again = hs.rehearse(task, graph, epsilon, delta=DELTA, colluders=colluders, arriving=True)
    assert again.choice == found.choice
    whole = hs.rehearse(task, graph, epsilon, delta=DELTA, colluders=colluders)
    assert whole.choice.begun is None and whole.scores.half is None
    assert 0 < found.scores.half < 1 and "half-way" in found.words


def test_settings_are_chosen_by_what_they_give_half_way_too(quick, monkeypatch):
    """The mean of the two scores, of the same trials, is what candidates are ranked by."""
    asked = contest.Asked(facts(), hs.graphs.complete(3), 2.0, DELTA, None, 0, arriving=True)
    one = contest.Contest(asked, lambda *told: None)
    some = one.first()[:3]
    both = one.means(some, (0,))
    parts = []
    for cut in (arriving.half_way(asked.task), 10**6):
        monkeypatch.setattr(arriving, "half_way", lambda task, cut=cut: cut)
        parts.append(one.means(some, (0,)))
    # Cut beyond its end a column is the whole one.
    np.testing.assert_allclose(both, parts[0])
    assert not np.allclose(both, parts[1])
    halves = 2 * both - parts[1]
    columns = [
        one.law.column(choice).cut(arriving.until_all_are_there(asked.task) // 2) for choice in some
    ]
    slow = [
        contest.tried(
            problem, contest.exchanged(some[0], one.law), columns, contest.averages(), range(2)
        )
        for problem in one.problems(some, (0,))
    ]
    np.testing.assert_allclose(halves, np.mean(slow, axis=(0, 3)), atol=1e-6)


def test_records_that_are_all_there_do_not_arrive(quick):
    task = facts(head_start=40)
    found = hs.rehearse(task, hs.graphs.complete(3), 2.0, arriving=True)
    assert found.choice.begun is None


def test_networks_of_neurons_are_not_rehearsed_as_they_arrive():
    data = hs.problems.neural("digits", model="mlp", agents=3, clip=1.0, head_start=4, per_step=3)
    with pytest.raises(ValueError, match="name an algorithm"):
        hs.rehearse(data.task, hs.graphs.complete(3), 2.0, arriving=True)


@pytest.mark.slow
@pytest.mark.parametrize("data", ["breast-cancer", "digits"])
def test_from_nothing_nearly_as_good_as_with_all_records_there(data, tmp_path, monkeypatch):
    """Within six points at epsilon 2, where the defaults of ldp-online are not. Both data sets
    were looked at for whether the form of the schedules works, and for what a choice is by.
    """
    monkeypatch.setenv("HEARSAY_CACHE", str(tmp_path))
    graph = hs.graphs.complete(5)
    problem = hs.problems.logistic(data, agents=5, ridge=0.0, adjacency="zero-out", per_step=1)

    def accuracy(algorithm, problem, rounds, readout) -> float:
        run = hs.simulate(
            algorithm, problem, graph, steps=rounds, seeds=8, delta=DELTA, release=(readout,)
        )
        assert max(run.certificate.epsilon) <= 2.0
        return run.final("released_accuracy")[0]

    come, there = (hs.rehearse(problem.task, graph, 2.0, arriving=one) for one in (True, False))
    scores = [
        accuracy(one.algorithm, one.prepared(problem), one.rounds, one.readout)
        for one in (come, there)
    ]
    assert scores[0] > scores[1] - 0.06
    plain = hs.ldp_online(noise="1*(k+1)^0.1", mechanism="gaussian")
    rounds = problem.most
    plain = hs.calibrate(plain, problem, graph, rounds, epsilon=2.0, delta=DELTA)
    assert scores[0] > accuracy(plain, problem, rounds, Tail()) + 0.05
