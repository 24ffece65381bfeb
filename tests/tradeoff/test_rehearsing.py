"""Rehearsals: settings from public facts alone, kept, and never dearer than asked."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import replace

import numpy as np
import pytest

import hearsay as hs
from hearsay.problems.data.holdings import Facts
from hearsay.problems.linear import logistic_task, ridge_task
from hearsay.problems.task import Task
from hearsay.tradeoff import choices, contest, kept, made_up, rehearsing, rule, usual_graph
from hearsay.tradeoff.made_up import KINDS

DELTA = 1e-5


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HEARSAY_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def quick(monkeypatch):
    """Few candidates on few made-up records: the way of a choice, not its quality."""
    monkeypatch.setattr(contest, "KINDS", KINDS[:2])
    monkeypatch.setattr(contest, "LATER", (1,))
    monkeypatch.setattr(contest, "WORK", 1e7)
    monkeypatch.setattr(contest, "SEEDS", 2)
    monkeypatch.setattr(choices, "TRAVELS", (1.0, 2.0))
    monkeypatch.setattr(choices, "CLIPS", (1.0, 0.5))


def facts(agents: int = 5, records: int = 60, width: int = 6, **options) -> Task:
    data = Facts("nobody's", (width,), np.full(agents, records), 1.0, 1.0)
    return logistic_task(data, ridge=0.0, adjacency="zero-out", **options)


def held(seed: int) -> hs.problems.Problem:
    rng = np.random.default_rng(seed)
    sets = [(rng.normal(size=(60, 6)), rng.integers(0, 2, 60)) for _ in range(3)]
    return hs.problems.logistic(sets, feature_bound=1.0, ridge=0.0, seed=seed)


def test_the_choice_is_a_function_of_public_facts(quick, tmp_path, monkeypatch):
    one, other = held(1), held(2)
    assert not np.array_equal(one.features, other.features)
    first = hs.rehearse(one, hs.graphs.complete(3), 1.0)
    monkeypatch.setenv("HEARSAY_CACHE", str(tmp_path / "another"))
    second = hs.rehearse(other, hs.graphs.complete(3), 1.0)
    assert (first.choice, first.scores, first.words) == (
        second.choice, second.scores, second.words
    )  # fmt: skip
    assert first.task.digest() == second.task.digest()
    assert isinstance(first.prepared(one), hs.problems.Problem)
    assert first.prepared(one).loss.clip == first.task.loss.clip is not None


@pytest.mark.parametrize("worth", [rule.WORTH, np.inf])
def test_what_pairs_of_unequal_agents_share_cancels_in_a_trial(worth, monkeypatch):
    """As in a run, whose noise is calibrated: the mean of all messages has own noise only."""
    monkeypatch.setattr(rule, "WORTH", worth)
    task, graph = replace(facts(3), counts=[20, 60, 240]), hs.graphs.complete(3)
    law = choices.Law(task, graph, 1.0, DELTA, choices.secrets_for(1, 3))
    choice = choices.by_the_rule(task, graph, 1.0, DELTA, law.secrets)
    assert (choice.weights is None) == (worth == np.inf)
    column, shared = law.column(choice), contest.exchanged(choice, law).shared
    own = np.multiply(column.noise, choice.weights or 1.0)
    assert own.max() > 1.2 * own.min() and np.abs(own[:, None] * shared).max() > 0.5 * own.min()
    np.testing.assert_allclose(own @ shared, 0, atol=1e-6 * own.max())


@pytest.mark.parametrize(
    ("epsilon", "colluders"), [(1.0, None), ((0.5, 1.0, 2.0, 1.0, 1.0), None), (1.0, 1)]
)
def test_no_agent_spends_more_than_asked(quick, epsilon, colluders):
    for adjacency in ("zero-out", "replace"):
        found = hs.rehearse(
            facts().under(adjacency), hs.graphs.ring(5), epsilon, colluders=colluders
        )
        sent = hs.certify(found.algorithm, found.task, found.graph, found.rounds, delta=DELTA)
        target = np.broadcast_to(epsilon, 5)
        assert np.all(np.array(sent.epsilon) <= target * (1 + 1e-9))
        # Nothing is given away either.
        assert np.all(np.array(sent.epsilon) >= 0.99 * target)
        assert (found.algorithm.secrets is not None) == (colluders is not None)
        for number in (found.choice.step, found.choice.clip):
            assert float(f"{number:.3g}") == number


def test_a_small_agent_does_not_drown_the_others(quick, monkeypatch):
    """In a plain mean the noise of 20 records is all there is."""
    task = facts(3, 2000, 12)
    task = replace(task, counts=np.array([20, 300, 2000]))
    graph = hs.graphs.complete(3)
    found = hs.rehearse(task, graph, 1.0)
    assert found.choice.weights is not None and "agents weighted" in found.words
    sent = hs.certify(found.algorithm, found.task, graph, found.rounds, delta=DELTA)
    assert min(sent.epsilon) > 0.99 and max(sent.epsilon) <= 1.0
    monkeypatch.setattr("hearsay.tradeoff.rule.WORTH", np.inf)
    plain = hs.rehearse(task, graph, 1.0)
    assert plain.choice.weights is None
    assert found.score > plain.score + 0.05


def test_a_choice_is_made_once(quick, monkeypatch):
    first = hs.rehearse(facts(), hs.graphs.complete(5), 1.0)

    def never(*given):
        raise AssertionError("it was chosen again")

    monkeypatch.setattr(rehearsing, "Contest", never)
    again = hs.rehearse(facts(seed=7), hs.graphs.complete(5), 1.0)
    assert (again.choice, again.scores, again.warnings) == (
        first.choice, first.scores, first.warnings
    )  # fmt: skip
    for other in (
        {"task": facts(records=61)},
        {"task": facts().under("replace")},
        {"epsilon": 1.1},
        {"delta": 1e-6},
        {"colluders": 1},
        {"seed": 1},
        {"graph": hs.graphs.ring(5)},
    ):
        given = {"task": facts(), "graph": hs.graphs.complete(5), "epsilon": 1.0, **other}
        with pytest.raises(AssertionError, match="again"):
            hs.rehearse(**given)


def test_names_and_ranges_of_columns_change_no_choice(quick, monkeypatch):
    """Arrays whose ranges are read off them have other ones in every fold."""

    def table(levels: tuple[str, ...] = ("a", "b"), **numbers: hs.Number) -> Task:
        columns = {**numbers, "ward": hs.Category(levels), "ill": hs.Category(("no", "yes"))}
        counts = np.full(5, 60)
        schema = hs.Schema(columns, target="ill")
        return hs.problems.tabular_task(hs.problems.table_facts(schema, counts))

    graph = hs.graphs.complete(5)
    first = hs.rehearse(table(age=hs.Number(0, 120)), graph, 1.0)

    def never(*_: object) -> None:
        raise AssertionError("again")

    monkeypatch.setattr(rehearsing, "Contest", never)
    assert hs.rehearse(table(("x", "y"), bmi=hs.Number(5, 99)), graph, 1.0).choice == first.choice
    for other in (
        table(("x", "y", "z"), bmi=hs.Number(5, 99)),
        table(bmi=hs.Number(5, 99, gap="flag")),
        table(bmi=hs.Number(5, 99), age=hs.Number(0, 120)),
    ):
        with pytest.raises(AssertionError, match="again"):
            hs.rehearse(other, graph, 1.0)


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: "",
        lambda text: text[: len(text) // 2],
        lambda text: text.replace('"step": ', '"step": 1'),
        lambda text: json.dumps({"choice": {}, "mark": "x"}),
        lambda text: "[" * 100_000,
    ],
)
def test_a_damaged_file_is_made_again(quick, damage):
    first = hs.rehearse(facts(), hs.graphs.complete(5), 1.0)
    (file,) = kept.place("x").parent.glob("[0-9a-f]*.json")
    whole = file.read_text()
    file.write_text(damage(whole))
    again = hs.rehearse(facts(), hs.graphs.complete(5), 1.0)
    assert (again.choice, again.scores) == (first.choice, first.scores)
    assert file.read_text() == whole


def test_a_file_of_other_keys_is_made_again(quick):
    first = hs.rehearse(facts(), hs.graphs.complete(5), 1.0)
    (file,) = kept.place("x").parent.glob("[0-9a-f]*.json")
    kept.write(file.stem, {"choice": {"rounds": 8, "speed": 1}, "scores": {}, "warnings": []})
    assert hs.rehearse(facts(), hs.graphs.complete(5), 1.0).choice == first.choice


@pytest.mark.parametrize(
    "forged",
    [
        {"rounds": "3"},
        {"rounds": 0},
        {"readout": "nope"},
        {"clip": -1.0},
        {"step": float("nan")},
        {"rate": 2.0},
    ],
    ids=str,
)
def test_a_forged_choice_is_made_again(quick, forged):
    """Its mark is right: anybody who can write there can make one."""
    first = hs.rehearse(facts(), hs.graphs.complete(5), 1.0)
    (file,) = kept.place("x").parent.glob("[0-9a-f]*.json")
    found = kept.read(file.stem)
    kept.write(file.stem, {**found, "choice": {**found["choice"], **forged}})
    assert hs.rehearse(facts(), hs.graphs.complete(5), 1.0).choice == first.choice
    kept.write(file.stem, {**found, "scores": dict.fromkeys(found["scores"], "much")})
    assert hs.rehearse(facts(), hs.graphs.complete(5), 1.0).choice == first.choice


@pytest.mark.parametrize("asked", [None, 1])
def test_no_file_says_whom_a_budget_holds_against(quick, asked):
    """A plan for nobody colluding has less noise: 6.9 instead of 1 if all others collude."""
    graph = hs.graphs.complete(5)
    hs.rehearse(facts(), graph, 1.0, colluders=asked)
    (file,) = kept.place("x").parent.glob("[0-9a-f]*.json")
    found = kept.read(file.stem)
    forged = {**found["choice"], "colluders": 0, "ratio": 100.0}
    kept.write(file.stem, {**found, "choice": forged})
    again = hs.rehearse(facts(), graph, 1.0, colluders=asked)
    assert again.choice.colluders == asked
    sent = hs.certify(again.algorithm, again.task, graph, again.rounds, delta=1e-5)
    assert max(sent.epsilon) <= 1.0
    assert (sent.secrets is None) == (asked is None)


def test_a_folder_that_takes_nothing_is_no_error(quick, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HEARSAY_CACHE", str(tmp_path / "file"))
    assert hs.rehearse(facts(), hs.graphs.complete(5), 1.0).rounds > 0


def test_two_at_once_leave_one_whole_file():
    value = {"choice": {"rounds": 8}, "text": "x" * 100_000}
    seen: list[bool] = []

    def write() -> None:
        for _ in range(20):
            kept.write("name", value)
            seen.append(kept.read("name") == value)

    threads = [threading.Thread(target=write) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(seen) == 80 and all(seen)
    assert [path.name for path in kept.place("name").parent.iterdir()] == ["name.json"]


def test_a_hopeless_task_is_said_to_be(quick):
    found = hs.rehearse(facts(records=20, width=30), hs.graphs.complete(5), 0.1)
    (line,) = found.warnings
    assert line.startswith("this will be no better than guessing") and line in str(found)
    assert "times the records" in line and "epsilon about" in line
    assert found.score < found.guess + 0.05
    # Whatever the real classes are, which nobody has looked at.
    share = f"on made-up records the commonest is {found.guess:.0%}"
    assert f"classes that are about equally common: {share}" in line
    assert "classes being about equally common" in found.words
    again = hs.rehearse(facts(records=20, width=30), hs.graphs.complete(5), 0.1)
    assert again.warnings == found.warnings
    assert not hs.rehearse(facts(records=2000), hs.graphs.complete(5), 4.0).warnings


@pytest.mark.slow
def test_breast_cancer_is_not_hopeless_and_gains_by_the_rehearsal():
    task = hs.problems.logistic("breast-cancer", ridge=0.0, adjacency="zero-out").task
    found = hs.rehearse(task, hs.graphs.complete(5), 2.0)
    assert not found.warnings and found.score >= found.scores.ruled
    assert found.guess < found.alone < found.score < found.clean


@pytest.mark.slow
def test_a_table_is_rehearsed_within_half_a_minute_of_two_cores():
    task = facts(agents=10, records=2000, width=100)
    began = time.process_time()
    hs.rehearse(task, hs.graphs.complete(10), 1.0)
    assert time.process_time() - began < 60


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_made_up_records_have_the_public_facts(kind):
    for task in (facts(records=40), ridge_task(Facts("x", (5,), np.array([30, 50]), 2.0, 3.0))):
        found = made_up.made_up(task, kind, 0)
        lengths = np.linalg.norm(found.features, axis=2)
        assert found.counts.tolist() == task.counts.tolist()
        assert lengths.max() <= task.loss.feature_bound
        assert lengths.max() > 0.5 * task.loss.feature_bound
        if task.classification:
            assert 0.2 < found.test_labels.mean() < 0.8
        else:
            assert np.abs(found.test_labels).max() <= 3.0 and found.test_labels.var() > 0.05
        assert not np.array_equal(found.features, made_up.made_up(task, kind, 1).features)


def test_made_up_rows_of_a_table_are_rows_of_that_table():
    columns = {
        "age": hs.Number(0, 120, gap="flag"),
        "ward": hs.Category(["north", "south"]),
        "ill": hs.Category(["no", "yes"]),
    }
    schema = hs.Schema(columns, "ill")
    task = replace(facts(records=50, width=schema.width), schema=schema)
    for kind in KINDS:
        features = made_up.made_up(task, kind, 0).features[0]
        np.testing.assert_allclose(np.linalg.norm(features, axis=1), 1.0)
        rows = features / features[:, -1:]
        age, missing, *ward, _ = rows.T
        assert np.abs(age).max() <= 1 + 1e-9 and set(np.round(missing, 9)) <= {0.0, 1.0}
        assert np.all(age[missing > 0.5] == 0)
        np.testing.assert_allclose(np.sum(ward, axis=0), 1.0)


def test_other_kinds_of_tasks(quick):
    data = Facts("numbers", (4,), np.full(3, 300), 1.0, 1.0, classification=False)
    ridge = hs.rehearse(ridge_task(data, adjacency="zero-out"), hs.graphs.complete(3), 4.0)
    assert ridge.guess == 0.0 and ridge.score > 0.1 and "variance explained" in ridge.words
    assert ridge.task.loss.clip is not None
    digits = hs.problems.softmax("digits", agents=3, ridge=0.0, adjacency="zero-out").task
    softmax = hs.rehearse(digits, hs.graphs.complete(3), 4.0)
    assert softmax.guess + 0.1 < softmax.score < softmax.clean


def test_neural_networks_have_the_rules_settings():
    task = hs.problems.neural("digits", model="mlp", agents=3, clip=1.0).task
    found = hs.rehearse(task, hs.graphs.complete(3), 2.0)
    assert found.score is None and found.words.startswith("by the rule for neural networks")
    sent = hs.certify(found.algorithm, found.task, found.graph, found.rounds, delta=DELTA)
    assert max(sent.epsilon) <= 2.0


def test_who_hears_whom_where_nobody_says_it():
    assert usual_graph(10).name == "complete" and usual_graph(1).edges == 0
    assert {len(usual_graph(30).weights[[i]].indices) for i in range(30)} == {6}


def test_what_is_asked_is_checked():
    with pytest.raises(ValueError, match="epsilon must be"):
        hs.rehearse(facts(), hs.graphs.complete(5), -1.0)
    with pytest.raises(ValueError, match="delta must be"):
        hs.rehearse(facts(), hs.graphs.complete(5), 1.0, delta=2.0)
    with pytest.raises(ValueError, match="colluders"):
        hs.rehearse(facts(), hs.graphs.complete(5), 1.0, colluders=4)


def test_alone_is_what_agents_would_rehearse_by_themselves(quick):
    """Not the rule's setting, which would make joining look better than it is."""
    data = Facts("nobody's", (6,), np.array([60, 600, 62, 58]), 1.0, 1.0)
    task, graph = logistic_task(data, ridge=0.0, adjacency="zero-out"), hs.graphs.complete(4)
    epsilon = (1.0, 1.0, 1.0, 1.00003)
    small, large = rehearsing.by_themselves(task, epsilon, DELTA)
    assert (small.agents.tolist(), large.agents.tolist()) == ([0, 2, 3], [1])
    for one, records in ((small, 60), (large, 600)):
        by_itself = hs.rehearse(
            facts(agents=1, records=records), rehearsing.nobody(1), 1.0, delta=DELTA
        )
        assert (one.choice, one.score) == (by_itself.choice, by_itself.score)
    found = hs.rehearse(task, graph, list(epsilon), delta=DELTA)
    assert found.alone == pytest.approx((3 * small.score + large.score) / 4)
    # Nobody beside it: together is alone.
    assert by_itself.alone == by_itself.score


def test_other_agents_of_a_size_have_their_own_travel(quick):
    task, choice = facts(), choices.Choice(64, 1.0, 0.25)
    one = rehearsing.Single(np.arange(5), choice, 100.0, 0.9)
    assert one.chosen(105.0, task) == choice
    more, less = one.chosen(200.0, task), one.chosen(50.0, task)
    assert (more.rounds, more.step, less.rounds, less.step) == (128, 1.0, 32, 1.0)
    assert {more.clip, less.clip} == {0.25}


def test_alone_is_kept_and_no_warning_is_looked_for(quick, monkeypatch):
    """An agent alone is often no better than a guess; what would help it nobody asked."""
    task = facts(records=5)
    monkeypatch.setattr(rehearsing.advice, "warnings", lambda *given: pytest.fail("asked"))
    first = rehearsing.by_themselves(task, 0.1, DELTA)
    monkeypatch.setattr(rehearsing, "Contest", lambda *given: pytest.fail("rehearsed again"))
    second = rehearsing.by_themselves(task, 0.1, DELTA)
    assert [one.choice for one in first] == [one.choice for one in second]
