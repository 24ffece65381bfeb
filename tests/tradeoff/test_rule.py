"""The rule that chooses settings: public facts in, settings out."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import linalg, sparse

import hearsay as hs
from hearsay.graphs import Graph
from hearsay.problems.data.holdings import Facts
from hearsay.problems.linear import logistic_task
from hearsay.problems.problem import Problem
from hearsay.problems.several_classes import softmax_task
from hearsay.problems.task import Task
from hearsay.release.readouts import Exponential, ReadOut, Tail
from hearsay.tradeoff import rule, weighing
from hearsay.tradeoff.choices import secrets_for
from hearsay.tradeoff.rehearsal import made_up
from hearsay.tradeoff.rule import averaging_rounds, noisy_gradient, prepared, setting

DELTA = 1e-5


def facts(agents: int = 5, records: int = 91, dimension: int = 30) -> Task:
    """A task whose records nobody has ever seen."""
    data = Facts("nobody's", (dimension,), np.full(agents, records), 1.0, 1.0)
    return prepared(logistic_task(data, ridge=0.0).under("zero-out"))


def nobody(agents: int) -> Graph:
    return Graph(sparse.csr_array((agents, agents)), "alone")


def noise_of_one_round(task: Task, graph: Graph, epsilon: float) -> float:
    found = hs.calibrate(noisy_gradient(rule.Setting(8, 1.0)), task, graph, 8, epsilon, delta=DELTA)
    return float(found.noise_for(0)(0)) / math.sqrt(8)


@pytest.mark.parametrize(("agents", "epsilon"), [(5, 1.0), (5, 4.0), (3, 2.0)])
def test_the_travel_is_the_one_that_the_bound_is_least_at(agents, epsilon):
    task, graph = facts(agents), hs.graphs.complete(agents)
    found = setting(task, graph, epsilon, DELTA)
    level = task.dimension * noise_of_one_round(task, graph, epsilon) ** 2 / agents
    best = rule.DISTANCE / math.sqrt(level)
    # Within a hundredth of the least bound, which is flat there: (x + 1/x)/2 <= 1.01 for x >= 0.87.
    assert 0.86 * best <= found.rounds * found.step <= best * (1 + 1e-9)
    assert found.step <= 4.0 and found.rounds % rule.CHUNK == 0 and found.rate == 1


def test_more_agents_records_or_budget_travel_further():
    def travel(task, graph, epsilon):
        found = setting(task, graph, epsilon, DELTA)
        return found.rounds * found.step

    base = travel(facts(), hs.graphs.ring(5), 1.0)
    assert travel(facts(), hs.graphs.ring(5), 2.0) > base
    assert travel(facts(records=200), hs.graphs.ring(5), 1.0) > base
    assert travel(facts(agents=1), nobody(1), 1.0) < base
    assert travel(facts(), nobody(5), 1.0) == travel(facts(agents=1), nobody(1), 1.0)


def unequal(counts: list[int]) -> Task:
    task = facts(len(counts))
    arrivals = replace(task.arrivals, head_start=max(counts))
    return replace(task, counts=np.array(counts), arrivals=arrivals)


def test_agents_count_by_how_exact_their_gradients_are():
    graph, task = hs.graphs.complete(3), unequal([60, 300, 5000])
    found = setting(task, graph, 2.0, DELTA)
    noise = [noise_of_one_round(unequal([one] * 3), graph, 2.0) for one in task.counts]
    error = task.change**2 * (rule.UNLIKE**2 + 1 / task.counts)
    exact = 1 / (error + task.dimension * np.square(noise))
    np.testing.assert_allclose(found.weights, exact / exact.mean(), rtol=6e-3)
    # A gradient is not taken where the message of one agent is.
    assert found.averaging >= 1
    assert found.rounds * found.step > 3 * (
        rule.DISTANCE / math.sqrt(task.dimension * np.mean(np.square(noise)) / 3)
    )
    algorithm = noisy_gradient(found)
    assert (algorithm.name, algorithm.weights) == ("weighted-erm", found.weights)


def test_agents_count_by_their_records_where_noise_is_little_and_those_are_few():
    found = np.array(rule.weights(unequal([20, 60]), hs.graphs.complete(2), math.inf, DELTA))
    error = rule.UNLIKE**2 + 1 / np.array([20, 60])
    np.testing.assert_allclose(found[1] / found[0], error[0] / error[1], rtol=6e-3)


@pytest.mark.parametrize("epsilon", [0.5, 8.0, math.inf])
def test_where_all_are_exact_a_giant_does_not_decide_alone(epsilon):
    """Its patients may be unlike those of the others (benchmarks/unequal.py)."""
    graph = hs.graphs.complete(2)
    assert rule.weights(unequal([40_000, 1_200_000]), graph, epsilon, DELTA) is None


def test_who_may_spend_more_counts_more():
    found = rule.weights(facts(3), hs.graphs.complete(3), (1.0, 2.0, 4.0), DELTA)
    assert found[0] < found[1] < found[2]


def error_of(task: Task, noise: np.ndarray, weights: np.ndarray) -> float:
    """Of the mean gradient of one round with so much own noise in every message: the slow way."""
    own = task.change**2 * (rule.UNLIKE**2 + 1 / task.counts)
    return float(np.sum(weights**2 * own) + task.dimension * np.sum(noise**2) / 64)


def left(task: Task, epsilon, secrets, weights) -> tuple[np.ndarray, hs.WeightedErm]:
    """(own noise in everybody's messages, the algorithm that certificates are about)."""
    chosen = rule.Setting(64, 1.0, secrets=secrets, weights=weights)
    graph = hs.graphs.complete(task.agents)
    found = hs.calibrate(noisy_gradient(chosen), task, graph, 64, epsilon, delta=DELTA)
    noise = [float(found.noise_for(agent)(0)) for agent in range(task.agents)]
    return np.multiply(noise, weights or 1.0), found


@pytest.mark.parametrize(
    ("counts", "epsilon", "colluders"),
    [
        ([60, 300, 1500], 0.5, 1),
        ([25, 50, 90, 250], 1.0, 1),
        ([91, 91, 91, 91], (0.5, 1.0, 1.0, 2.0), 1),
        ([30, 800], 1.0, 0),
        ([1, 40, 300], 0.5, 1),
        # All but one may collude: nearly as if nothing were shared.
        ([30, 60, 120, 300], 1.0, 2),
    ],
)
def test_with_secrets_agents_count_by_the_noise_that_is_left(counts, epsilon, colluders):
    """The least error that a search finds is no better by a fifth, weights for noise without
    secrets are no better, and nobody keeps back a budget whose noise matters: with those weights
    small agents spent a quarter of theirs.
    """
    task, secrets = unequal(counts), secrets_for(colluders, len(counts))
    graph = hs.graphs.complete(task.agents)
    chosen = rule.weights(task, graph, epsilon, DELTA, secrets)
    assert setting(task, graph, epsilon, DELTA, secrets).weights == chosen
    own, algorithm = left(task, epsilon, secrets, chosen)
    spent = hs.certify(algorithm, task, graph, 64, delta=DELTA).epsilon
    found = error_of(task, own, np.array(chosen))
    for other in (rule.weights(task, graph, epsilon, DELTA), None):
        noise, _ = left(task, epsilon, secrets, other)
        assert found <= error_of(task, noise, np.array(other or 1.0) * np.ones(task.agents)) * 1.01
    assert np.all(np.array(spent) <= np.array(epsilon) * (1 + 1e-9))
    used = np.array(spent) / epsilon
    # Who was worth more if it counted more: the others are exact enough as they are.
    worth = np.array(chosen) * (rule.UNLIKE**2 + 1 / task.counts) * task.change**2
    assert np.all((used > 0.85) | (worth > found / task.agents * 0.9))
    rng = np.random.default_rng(0)
    for _ in range(20):
        tried = np.array(chosen) * np.exp(0.4 * rng.standard_normal(task.agents))
        tried = tuple((tried / tried.mean()).tolist())
        noise, _ = left(task, epsilon, secrets, tried)
        assert error_of(task, noise, np.array(tried)) > found / 1.2


def test_the_norm_is_that_of_agents_without_secrets_and_of_a_trusted_server():
    sampling, noise = np.array([0.03, 0.02, 0.01]), np.array([0.3, 0.2, 0.05])
    assert weighing.norm(3, 1.0) == pytest.approx(2.0)
    exact = 1 / (sampling + 10 * noise**2)
    plain = weighing.by_norm(sampling, noise, 10.0, 2.0)
    np.testing.assert_allclose(plain, exact / exact.mean(), rtol=1e-9)
    # Noise is that of the largest w_i a_i: all are as large, but who is exact without.
    flat = weighing.by_norm(sampling, noise, 1000.0, weighing.norm(3, 1 / 3)) * noise
    np.testing.assert_allclose(flat, flat[0], rtol=0.1)


def test_agents_that_are_alike_count_the_same_with_secrets():
    graph, secrets = hs.graphs.complete(4), secrets_for(1, 4)
    assert rule.weights(facts(4), graph, 0.1, DELTA, secrets) is None
    assert rule.weights(unequal([91, 91, 92, 91]), graph, 0.1, DELTA, secrets) is None


@pytest.mark.parametrize("counts", [[91, 91, 91], [91, 92, 91], [100, 100, 120]])
def test_agents_that_differ_little_all_count_the_same(counts):
    task, graph = unequal(counts), hs.graphs.complete(3)
    found = setting(task, graph, 2.0, DELTA)
    assert found.weights is None and found.averaging == 0
    assert noisy_gradient(found).name == "gradient-perturbation"
    assert rule.weights(unequal([60, 9000]), nobody(2), 2.0, DELTA) is None


def test_the_rule_cannot_see_records(monkeypatch):
    problem = prepared(hs.problems.logistic("digits", agents=3, ridge=0.0))
    graph = hs.graphs.ring(3)
    want = setting(problem.task, graph, 2.0, DELTA)

    def private(*_):
        pytest.fail("the rule looked at a record")

    for name in ("features", "labels", "device_records"):
        monkeypatch.setattr(Problem, name, property(private))
    object.__setattr__(problem, "test_labels", None)
    assert setting(problem, graph, 2.0, DELTA) == want
    assert made_up(problem.task).counts.tolist() == problem.counts.tolist()


def test_made_up_records_are_the_same_whatever_the_records():
    first, other = (hs.problems.logistic("digits", agents=3, seed=seed) for seed in (0, 1))
    one, two = made_up(first.task), made_up(replace(other, seed=0).task)
    assert not np.array_equal(first.labels, other.labels)
    assert np.array_equal(one.features, two.features) and np.array_equal(one.labels, two.labels)
    assert 0.2 < one.labels.mean() < 0.8


def test_the_clip_leaves_the_first_step_and_halves_the_change():
    plain = hs.problems.logistic("digits", agents=3, ridge=0.0).under("zero-out")
    clipped = prepared(plain)
    assert clipped.loss.clip == 0.5 and clipped.change == plain.change / 2
    margins, labels = np.zeros(5), np.array([0.0, 1, 0, 1, 1])
    # The residual at the origin is 1/2: a record's gradient there is no longer than the clip.
    assert np.abs(clipped.loss.residual(margins, labels)).max() * 1.0 <= clipped.loss.clip
    own = hs.problems.logistic("digits", agents=3, clip=0.2)
    assert prepared(own).loss.clip == 0.2
    assert prepared(own).arrivals.head_start == own.most


def test_the_clip_of_several_classes_leaves_the_first_step_as_it_is():
    data = Facts("nobody's", (30,), np.full(5, 91), 2.0, 9.0, classes=10)
    plain = softmax_task(data, ridge=0.0).under("zero-out")
    clipped = prepared(plain)
    longest = 2.0 * np.linalg.norm(plain.loss.residual(np.zeros((1, 10)), np.zeros(1)))
    assert clipped.loss.clip == pytest.approx(longest, rel=1e-12) == clipped.change
    # 1 / L of a loss with curvature Ba^2 / 2; with noise no larger.
    assert setting(clipped, hs.graphs.ring(5), math.inf, DELTA).step == 0.5
    found = setting(clipped, hs.graphs.ring(5), 2.0, DELTA)
    assert 0 < found.step <= 0.5 and found.rate == 1.0


@pytest.mark.parametrize("graph", [hs.graphs.ring(9), hs.graphs.star(6), hs.graphs.grid(9)])
def test_averaging_rounds_bring_disagreement_down_to_a_tenth(graph):
    rounds, faster = averaging_rounds(graph)
    relays = noisy_gradient(rule.Setting(8, 1.0, averaging=rounds, chebyshev=faster)).relays(graph)
    dense = graph.weights.toarray()
    mixing = np.eye(graph.agents) + dense - np.diag(dense.sum(axis=1))
    before = now = np.eye(graph.agents)
    for own, earlier in relays:
        before, now = now, own * mixing @ now - earlier * before
    left = np.linalg.norm(now - 1 / graph.agents, 2)
    assert left <= rule.AGREED * (1 + 1e-9)
    fewer = rule._chebyshev_left(graph.second_singular_value, rounds - 1)
    assert fewer > rule.AGREED


def test_shared_noise_is_averaged_away():
    secrets, ring = hs.Secrets(1, ratio=3.0), hs.graphs.ring(9)
    loud = rule.loudness(secrets, 9)
    # Eight others share noise of variance 9 with everybody.
    assert loud == pytest.approx(math.sqrt(1 + 8 * 9))
    rounds, faster = averaging_rounds(ring, loud)
    assert faster and rounds > averaging_rounds(ring)[0]
    assert rule._chebyshev_left(ring.second_singular_value, rounds) * loud <= rule.AGREED
    # A gradient is not to be taken at a single message, also where everybody hears everybody.
    assert averaging_rounds(hs.graphs.complete(9), loud) == (1, False)
    assert setting(facts(9), ring, 2.0, DELTA, secrets).averaging == rounds


def test_with_secrets_the_rule_counts_own_noise_only():
    task, graph, secrets = facts(), hs.graphs.complete(5), hs.Secrets(1, ratio=10**0.5)
    plain, found = (setting(task, graph, 2.0, DELTA, one) for one in (None, secrets))
    assert noisy_gradient(found).secrets == secrets and plain.secrets is None
    # Of the mean of all messages: less by the root of the price against one colluder.
    level = task.dimension * noise_of_one_round(task, graph, 2.0) ** 2 * 0.268293 / 5
    best = rule.DISTANCE / math.sqrt(level)
    assert 0.86 * best <= found.rounds * found.step <= best * (1 + 1e-6)
    assert found.rounds * found.step > 1.5 * plain.rounds * plain.step


def test_who_hears_nobody_or_everybody_needs_no_averaging_rounds():
    assert averaging_rounds(nobody(3)) == (0, False)
    assert averaging_rounds(hs.graphs.complete(5)) == (0, False)


def test_too_much_work_takes_secret_batches(monkeypatch):
    # Eight rounds with all records would be more.
    monkeypatch.setattr(rule, "WORK", 91 * 4)
    monkeypatch.setattr(rule, "MOST", 16)
    monkeypatch.setattr(rule, "RATES", (1.0, 0.2))
    # An account of its own for every number of rounds takes seconds.
    monkeypatch.setattr(rule, "_noise_law", lambda *_: lambda rounds: 0.05 * math.sqrt(rounds))
    found = setting(facts(agents=1), nobody(1), 4.0, DELTA)
    assert (found.rate, found.rounds) == (0.2, 16)
    assert noisy_gradient(found).sampling == hs.Poisson(0.2)


@pytest.mark.parametrize("records", [1, 91, 200_000, 400_000, 3_000_000, 20_000_000])
@pytest.mark.parametrize("level", [1e-9, 3e-4, 1e-3, 3e-3, 10.0])
def test_few_options_are_asked_for_their_noise_and_none_is_missed(monkeypatch, records, level):
    task, asked = facts(3, records), set()

    def noise(rate: float, rounds: int) -> float:
        return level * math.sqrt(rounds) * rate**-0.3

    def law(task, graph, rate, *_):
        return lambda rounds: (asked.add((rate, rounds)), noise(rate, rounds))[1]

    monkeypatch.setattr(rule, "_noise_law", law)
    chosen = setting(task, hs.graphs.complete(3), 1.0, DELTA)
    # All of them, one after the other.
    reach, curved = rule.DISTANCE, task.loss.curvature[1]
    found = []
    for rate in rule.RATES:
        for rounds in rule._rounds(rate):
            if rounds * rate * records > rule.WORK and rate > rule.RATES[-1]:
                break
            batch = (1 / rate - 1) * task.change**2 / records
            size = (task.dimension * noise(rate, rounds) ** 2 + batch) / 3
            step = min(1 / curved, reach / math.sqrt(rounds * size))
            bound = reach**2 / (2 * step * rounds) + step * size / 2
            found.append((bound, rate, rounds, step))
        if found and found[-1][1:3] == (rate, rule._rounds(rate)[-1]):
            break
    least = min(found)[0]
    want = next(one for one in found if one[0] <= 1.01 * least)
    assert (chosen.rate, chosen.rounds, chosen.step) == want[1:]
    if records == 20_000_000 and level < 1e-3:
        assert asked == {(0.01, 512)}


def test_without_a_budget_there_is_nothing_to_weigh():
    found = setting(facts(), hs.graphs.ring(5), math.inf, DELTA)
    assert (found.rounds, found.step) == (rule.MOST, 4.0)


def test_the_step_of_a_neural_network_follows_the_noise(monkeypatch):
    """The steps that were best on MNIST (5 x 12,000 records, clip 1): about 2 on the network at
    epsilon = 1, 1 alone, 4 at a server.
    """
    task = hs.problems.neural("digits", model="mlp", agents=5).task
    for graph, noise, step in (
        (hs.graphs.complete(5), 0.00646, 1.9),
        (nobody(5), 0.00646, 0.85),
        (nobody(1), 0.00129, 4.0),
    ):
        monkeypatch.setattr(rule, "_noise_law", lambda *_, b=noise: lambda rounds: b)
        found = rule.neural_setting(task, graph, 1.0, DELTA)
        assert found.step == pytest.approx(step, rel=0.01) and found.rounds == 400
    assert rule.neural_setting(task, nobody(1), math.inf, DELTA).step == 4.0


def scale(algorithm: hs.GradientPerturbation, task: Task, rounds: int) -> float:
    """Of everybody's noise at epsilon = 2."""
    graph = hs.graphs.complete(task.agents)
    found = hs.calibrate(algorithm, task, graph, rounds, 2.0, delta=DELTA)
    return float(found.noise_for(0)(0))


@pytest.mark.parametrize("kind", ["banded", "toeplitz", "blt"])
def test_correlated_noise_on_batches_is_no_quieter_than_with_all_records(kind):
    """|C 1| <= sum_p |C 1_p| <= b max_p |C 1_p| for the rounds p, p + b, ... of each batch."""
    task, rounds = facts(records=24, dimension=3), 48
    plain = noisy_gradient(rule.Setting(rounds, 1.0))
    whole = replace(plain, correlation=kind, horizon=rounds)
    with_all = scale(whole, task, rounds)
    for batches in (2, 4, 8):
        some = scale(replace(whole, sampling=hs.Cyclic(24 // batches)), task, rounds)
        assert some >= with_all * (1 - 1e-6)
    assert some > 1.01 * with_all


def noise_in(readout: ReadOut, rounds: int) -> np.ndarray:
    """What every round's noise counts for in the released model, where the loss is flat."""
    slots = np.zeros((readout.slots, rounds))
    for step in range(rounds):
        keep, add = readout.weights(np.array([step]))[0]
        slots *= keep[:, None]
        slots[:, step] += add
    messages = readout.mix(rounds) @ slots
    return np.append(np.cumsum(messages[:0:-1])[::-1], 0.0)


@pytest.mark.parametrize("readout", [Tail(), Exponential()], ids=lambda one: one.name)
def test_correlated_noise_leaves_no_less_in_the_released_model(readout):
    """Why it is no candidate of a rehearsal (docs/settings.md)."""
    task, rounds = facts(records=96, dimension=3), 128
    plain = noisy_gradient(rule.Setting(rounds, 1.0))
    weights = noise_in(readout, rounds)
    independent = scale(plain, task, rounds) * np.linalg.norm(weights)
    for batches in (2, 8):
        own = replace(plain, correlation="banded", width=batches, horizon=rounds)
        own = replace(own, sampling=hs.Cyclic(96 // batches))
        encoder = own.factors.encoder_coefficients()
        taken_back = linalg.solve_triangular(
            linalg.toeplitz(encoder, 0 * encoder), np.eye(rounds), lower=True
        )
        assert scale(own, task, rounds) * np.linalg.norm(weights @ taken_back) > independent


def test_the_table_of_unequal_agents_is_what_its_command_printed():
    docs = Path(__file__).parents[2] / "docs"
    printed = (docs / "results" / "unequal.txt").read_text(encoding="utf-8").splitlines()[3:]
    page = (docs / "settings.md").read_text(encoding="utf-8")
    _, _, section = page.partition("## Agents of different sizes")
    number = r" ([\d.]+) \|"
    shown = re.findall(rf"^\|.* \|{number * 4}$", section.partition("\n## ")[0], re.MULTILINE)
    rows = [re.split(r" {2,}", line.strip()) for line in printed]
    assert shown == [tuple(row[1:]) for row in rows] and len(shown) == 10
    # Never much below the plain mean, and far above it where noise differs.
    gained = [float(row[4]) - float(row[2]) for row in rows]
    assert min(gained) > -0.005 and max(gained) > 0.3
