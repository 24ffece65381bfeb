"""What is public and what is private are two types: budgets, plans and theory are given a Task, and
cannot see a record; and data may be given one set per agent.
"""

from __future__ import annotations

import doctest
import inspect
import math
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

import hearsay as hs
from hearsay.algorithms.theory.findings import findings
from hearsay.audit.search import search
from hearsay.certification import messages_within, spent_after
from hearsay.planning import plan
from hearsay.problems import PROBLEMS, TASKS, Problem, Records, Task
from hearsay.problems.data.holdings import Facts
from hearsay.simulation.identity import fingerprint

GRAPH = hs.graphs.ring(3)
RNG = np.random.default_rng(0)
FEATURES, LABELS = RNG.normal(size=(30, 2)), np.arange(30.0) % 2
DATA = hs.problems.from_arrays(FEATURES, LABELS, feature_bound=1.5)
CONVEX = hs.problems.logistic(DATA, agents=3, clip=0.5)
PIXELS = RNG.integers(0, 256, (24, 4, 4, 1)).astype(np.uint8)
IMAGES = hs.problems.from_records(PIXELS, np.arange(24) % 3)
EXAMPLES = {
    "logistic": CONVEX,
    "ridge": hs.problems.ridge(agents=3, records=20, dimension=2),
    "estimation": hs.problems.estimation(agents=3, frozen=True),
    "synthetic": hs.problems.synthetic(agents=3, records=9, dimension=2),
    "neural": hs.problems.neural(IMAGES, model="mlp", agents=3),
}


class Trap:
    """In the place of everybody's records: whoever looks at them is caught."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"records were looked at: {name}")

    def __iter__(self) -> Any:
        raise AssertionError("records were looked at")


def without_records(problem: Problem) -> Problem:
    """The same problem with no records, no test set and no optimum in it."""
    emptied = replace(problem)
    for name in ("records", "test_features", "test_labels", "optimum"):
        object.__setattr__(emptied, name, Trap())
    return emptied


def account(problem: Task, algorithm: Any) -> list[Any]:
    """All that is worked out before a run."""
    found = [
        hs.certify(algorithm, problem, GRAPH, 7, delta=0.01).to_json(),
        hs.certify(algorithm, problem, GRAPH, 0, delta=0.01).to_json(),
        repr(hs.calibrate(algorithm, problem, GRAPH, 7, 2.0, delta=0.01)),
        repr(plan(algorithm, problem, GRAPH, 7, 2.0, delta=0.01).algorithm),
        spent_after(algorithm, problem, GRAPH, [1, 4, 7]).tobytes(),
        messages_within(algorithm, problem, GRAPH, 7, 3.0, 0.01),
        repr(findings(algorithm, GRAPH, problem)),
    ]
    # A plan keeps the task, not the records.
    assert type(plan(algorithm, problem, GRAPH, 7, 2.0, delta=0.01).problem) is Task
    return found


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_problem_is_certified_without_its_records_to_the_last_bit(name):
    problem = EXAMPLES[name]
    algorithm = hs.output_perturbation(noise=2.0, sampling=hs.Fresh(1))
    whole = account(problem, algorithm)
    assert account(problem.task, algorithm) == whole
    assert account(without_records(problem), algorithm) == whole
    again = Task(**{f.name: getattr(problem, f.name) for f in fields(Task)})
    assert account(again, algorithm) == whole


def test_budgets_against_the_planned_horizon_need_no_records():
    def make(horizon: int) -> Any:
        return hs.output_perturbation(noise=float(horizon), sampling=hs.Fresh(1))

    one, two, three = (
        hs.budget_by_horizon(make, p, GRAPH, [3, 5]).epsilon
        for p in (CONVEX, CONVEX.task, without_records(CONVEX))
    )
    np.testing.assert_array_equal(one, two)
    np.testing.assert_array_equal(one, three)


def reachable(value: Any, seen: dict[int, Any]) -> list[np.ndarray]:
    """All arrays that can be got at from it: fields, entries, and what functions close over."""
    if id(value) in seen or isinstance(value, (type, str, int, float)):
        return []
    seen[id(value)] = value
    found = [value] if isinstance(value, np.ndarray) else []
    parts: list[Any] = list(getattr(value, "__dict__", {}).values())
    parts += [cell.cell_contents for cell in getattr(value, "__closure__", None) or ()]
    if isinstance(value, dict):
        parts += value.values()
    elif isinstance(value, (list, tuple)):
        parts += value
    elif isinstance(value, np.ndarray) and value.base is not None:
        parts.append(value.base)
    for part in parts:
        found += reachable(part, seen)
    return found


@pytest.mark.parametrize("name", EXAMPLES)
def test_no_record_can_be_reached_from_what_the_accounting_receives(name, monkeypatch):
    problem, received = EXAMPLES[name], []
    algorithm = hs.output_perturbation(noise=2.0, sampling=hs.Fresh(1))
    for method in ("check", "own_accounts", "paper_epsilon", "theory"):
        real = getattr(type(algorithm), method)

        def watched(self, *args, real=real, **kwargs):
            received.extend(a for a in (*args, *kwargs.values()) if isinstance(a, Task))
            return real(self, *args, **kwargs)

        monkeypatch.setattr(type(algorithm), method, watched)
    account(problem, algorithm)
    assert received
    private = [*problem.records[:2], problem.test_features, problem.test_labels]
    for task in received:
        assert type(task) is Task
        for array in reachable(task, {}):
            assert not any(np.shares_memory(array, part) for part in private)
    assert any(np.shares_memory(array, private[0]) for array in reachable(problem, {})), (
        "the walk finds records where there are any"
    )


@pytest.mark.slow
def test_the_search_for_neighbours_makes_its_records_up():
    algorithm = hs.ldp_online(step=0.5, noise=1.0)
    one, two = (
        search(algorithm, p, GRAPH, steps=2, iterations=1)
        for p in (CONVEX, without_records(CONVEX))
    )
    assert one.total == two.total
    np.testing.assert_array_equal(one.ratio, two.ratio)


def test_a_task_may_have_other_counts_and_a_problem_may_not():
    algorithm = hs.ldp_online(noise=1.0)
    more = replace(CONVEX.task, counts=[8, 8, 80])
    assert hs.certify(algorithm, more, GRAPH, 50).finite
    with pytest.raises(ValueError, match=r"records must be features of shape \(3, 80, 2\)"):
        replace(CONVEX, counts=[8, 8, 80])
    with pytest.raises(ValueError, match="counts must be the .* that are held"):
        replace(CONVEX, counts=[8, 7, 8])


def test_a_run_needs_records():
    with pytest.raises(TypeError, match="problem must be a problem with records"):
        hs.simulate(hs.ldp_online(), CONVEX.task, GRAPH, steps=2)
    with pytest.raises(TypeError, match="problem must be a problem such as"):
        hs.certify(hs.ldp_online(), DATA, GRAPH, 2)


def test_a_task_says_nothing_of_records_and_a_problem_does_not_print_them():
    assert "records" not in repr(CONVEX)
    assert not hasattr(CONVEX.task, "features")


def test_digests_tell_tasks_and_records_apart():
    task, records = CONVEX.task, CONVEX.records
    assert task.digest() == replace(task, name="other").digest() == replace(task).digest()
    changed = [
        replace(task, seed=1),
        replace(task, counts=[8, 8, 9]),
        replace(task, start=np.ones(2)),
        replace(task, start=np.zeros(2)),
        replace(task, loss=replace(task.loss, ridge=0.5)),
        replace(task, domain=hs.problems.Ball(3.0)),
    ]
    assert len({t.digest() for t in (task, *changed)}) == 7
    flipped = records._replace(labels=1 - records.labels)
    assert len({records.digest(), flipped.digest()}) == 2
    marks = {
        fingerprint(hs.ldp_online(), problem, GRAPH, ())
        for problem in (
            CONVEX,
            replace(CONVEX, seed=1),
            replace(CONVEX, records=flipped),
            replace(CONVEX, test_labels=1 - CONVEX.test_labels),
        )
    }
    assert len(marks) == 4
    stream = EXAMPLES["estimation"].records
    assert stream.digest() != stream._replace(spread=2 * stream.spread).digest()


def test_two_models_with_one_name_are_two_tasks():
    def loss(power: int) -> Task:
        def value(params, record):
            image, label = record
            return (params["w"] * image.mean() - label) ** power

        pair = hs.problems.from_function(value, {"w": np.ones(())}, name="mine")
        return hs.problems.neural(IMAGES, model=pair, agents=2).task

    assert loss(2).digest() == loss(2).digest() != loss(4).digest()


@pytest.mark.parametrize("name", TASKS)
def test_a_task_has_the_defaults_of_its_problem(name):
    whole, public = (inspect.signature(made[name]).parameters for made in (PROBLEMS, TASKS))
    shared = set(public) - {"data"}
    assert shared <= set(whole)
    assert {n: public[n].default for n in shared} == {n: whole[n].default for n in shared}


def test_a_task_from_what_is_public_is_that_of_the_problem():
    data = Facts(DATA.name, (2,), CONVEX.counts, 1.5, 1.0, CONVEX.assumptions)
    task = hs.problems.TASKS["logistic"](data, clip=0.5)
    assert task.digest() == CONVEX.task.digest()
    algorithm = hs.ldp_online(noise=1.0)
    one, two = (hs.certify(algorithm, t, GRAPH, 9).to_json() for t in (task, CONVEX))
    assert one == two


# One set per agent.


def dealt(problem: Problem) -> list[tuple[np.ndarray, np.ndarray]]:
    return [(problem.features[i, :n], problem.labels[i, :n]) for i, n in enumerate(problem.counts)]


def same(one: Problem, two: Problem) -> bool:
    """To the last bit, so that runs are the same too."""
    return (one.task.digest(), one.records.digest()) == (two.task.digest(), two.records.digest())


def test_sets_of_their_own_are_what_the_same_records_dealt_out_are():
    """To the last bit: models and budgets."""
    short = replace(CONVEX.task, counts=[8, 5, 7])
    held = CONVEX.records._replace(held=np.array([8, 5, 7]))
    one = replace(CONVEX, counts=short.counts, records=held)
    two = hs.problems.logistic(dealt(one), feature_bound=1.5, clip=0.5)
    assert (two.agents, two.counts.tolist()) == (3, [8, 5, 7])
    assert one.task.digest() == two.task.digest()
    algorithm = hs.ldp_online(step=0.3, noise=0.1)
    runs = [hs.simulate(algorithm, p, GRAPH, steps=4, seeds=1, every=4) for p in (one, two)]
    np.testing.assert_array_equal(runs[0].models, runs[1].models)
    assert runs[0].certificate.epsilon == runs[1].certificate.epsilon


def test_ridge_and_data_sets_of_their_own():
    one = hs.problems.ridge(agents=3, records=10, dimension=2, clip=1.0)
    pairs = hs.problems.ridge(dealt(one), feature_bound=1.0, label_bound=1.4, clip=1.0)
    assert same(one, pairs)
    sets = [
        hs.problems.from_arrays(f, b, feature_bound=bound, label_bound=2.0, name=f"ward {i}")
        for i, ((f, b), bound) in enumerate(zip(dealt(one), (1.0, 3.0, 1.0), strict=True))
    ]
    problem = hs.problems.ridge(sets)
    assert problem.name == "ward 0, ward 1, ward 2"
    assert (problem.linear.feature_bound, problem.linear.label_bound) == (3.0, 2.0), "over all"
    assert [a.text.partition(":")[0] for a in problem.assumptions] == ["agents 0, 2", "agent 1"]
    assert len(problem.test_labels) == sum(len(s.test_labels) for s in sets)


def test_images_of_their_own():
    one = EXAMPLES["neural"]
    two = hs.problems.neural(dealt(one), model="mlp", classes=3)
    assert two.bytes
    assert same(one, two)
    parts = [replace(IMAGES, features=f, labels=b) for f, b in dealt(one)]
    three = hs.problems.neural(parts, model="mlp")
    assert len(three.test_labels) == 3 * len(IMAGES.test_labels)
    assert same(one, three)


@pytest.mark.parametrize("name", ["logistic", "neural"])
def test_without_a_test_set_there_are_no_test_metrics(name, tmp_path):
    options = {"feature_bound": 1.5} if name == "logistic" else {"classes": 3, "model": "mlp"}
    problem = PROBLEMS[name](dealt(EXAMPLES[name]), **options)
    assert len(problem.test_labels) == 0
    run = hs.simulate(hs.ldp_online(noise=1.0), problem, GRAPH, steps=2, seeds=1, every=1)
    assert not {"accuracy", "accuracy_worst", "test_error", "test_loss"} & set(run.metrics)
    assert run.guessing is None
    assert all(np.isfinite(run.metrics["consensus_error"]).ravel())


def test_a_test_set_may_be_given_beside_them():
    sets = dealt(CONVEX)
    problem = hs.problems.logistic(sets, feature_bound=1.5, test=(9 * FEATURES, LABELS))
    assert problem.test_features.shape == (30, 2)
    assert np.linalg.norm(problem.test_features, axis=1).max() <= 1.5
    images = hs.problems.neural(
        dealt(EXAMPLES["neural"]), model="mlp", classes=3, test=(PIXELS[:5], np.arange(5) % 3)
    )
    assert images.test_features.shape == (5, 4, 4, 1)


@pytest.mark.parametrize("example", [Task, hs.problems.logistic])
def test_the_examples_of_the_docstrings_run(example):
    parser = doctest.DocTestParser()
    found = parser.get_doctest(inspect.getdoc(example), {}, example.__name__, None, 0)
    assert found.examples
    assert doctest.DocTestRunner().run(found).failed == 0


BAD = FEATURES.copy()
BAD[3, 1] = math.nan
HALF = (FEATURES[:10], LABELS[:10])
BOUND = {"feature_bound": 1.0}


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (
            [HALF, (BAD, LABELS)],
            BOUND,
            "data of agent 1: features must be finite, got nan in row 3",
        ),
        ([HALF, (FEATURES[:, :1], LABELS)], BOUND, "data of agent 1 must be records of the shape"),
        ([HALF, (FEATURES[:0], LABELS[:0])], BOUND, "data of agent 1 must be one record or more"),
        ([HALF, (FEATURES, 2 * LABELS)], BOUND, "data of agent 1: labels must be 0 or 1, got 2"),
        ([HALF, (FEATURES, LABELS[:3])], BOUND, "data of agent 1: labels must have shape"),
        (
            [HALF, FEATURES],
            BOUND,
            r"data of agent 1 must be a pair \(features, labels\) or Dataset",
        ),
        ([], BOUND, "data must be one set for every agent, got 'an empty"),
        ([HALF, HALF], {}, r"feature_bound must be given with pairs \(features, labels\)"),
        ([DATA, DATA], BOUND, "feature_bound must be left out where every agent's Dataset"),
        (DATA, BOUND, "feature_bound must be left out where one data set is dealt out"),
        ([HALF, HALF], {**BOUND, "agents": 3}, "agents must be left out, or the 2 that have a set"),
        ([HALF, HALF], {**BOUND, "partition": "iid"}, "partition must be left out where data are"),
        ([HALF, HALF], {**BOUND, "per_step": 11}, "per_step must be at most the 10 records of"),
        ([HALF, HALF], {**BOUND, "test": FEATURES}, r"test must be a pair \(features, labels\)"),
        ([HALF, HALF], {**BOUND, "test": (BAD, LABELS)}, "test: features must be finite"),
        (
            [HALF, HALF],
            {**BOUND, "test": (FEATURES[:, :1], LABELS)},
            "test must be records of shape",
        ),
    ],
)
def test_what_is_wrong_with_which_agents_set(data, options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        hs.problems.logistic(data, **options)
    if "agents" not in options and isinstance(data, list) and options == BOUND and len(data) > 1:
        hs.problems.logistic([HALF, HALF], agents=2, **options)


@pytest.mark.parametrize(
    ("sets", "options", "message"),
    [
        (
            [(PIXELS, np.arange(24))],
            {"classes": 3},
            "data of agent 0: labels must be whole numbers",
        ),
        ([(PIXELS, np.arange(24) % 3)], {}, "classes must be given with pairs"),
        ([IMAGES], {"classes": 3}, "classes must be left out where every agent's Images"),
        ([IMAGES], {"records": 3}, "records must be left out where data are one set per agent"),
        (IMAGES, {"classes": 3}, "classes must be left out where one data set is dealt out"),
        (
            [(PIXELS, np.arange(24) % 3), (PIXELS / 255, np.arange(24) % 3)],
            {"classes": 3},
            "data of agent 1 must be bytes or numbers as agent 0's are",
        ),
        (
            [(PIXELS, np.arange(24) % 3), (PIXELS[:, :3], np.arange(24) % 3)],
            {"classes": 3},
            "data of agent 1 must be records of the shape that agent 0's have",
        ),
    ],
)
def test_what_is_wrong_with_which_agents_images(sets, options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        hs.problems.neural(sets, model="mlp", **options)


def test_label_bounds_of_pairs():
    with pytest.raises(ValueError, match="label_bound must be given with pairs"):
        hs.problems.ridge([HALF], feature_bound=1.0)
    found = hs.problems.ridge([HALF], feature_bound=1.0, label_bound=0.5)
    assert found.labels.max() == 0.5, "clipped, as every label that could have been there"


def test_records_and_a_task_must_fit():
    features, labels, held = CONVEX.records
    for wrong in (
        Records(features[:, :7], labels, held),
        Records(features, labels[:2], held),
        Records(features[..., :1], labels, held),
    ):
        with pytest.raises(ValueError, match="records must be features of shape"):
            replace(CONVEX, records=wrong)
    with pytest.raises(ValueError, match="counts must be infinite for an endless stream"):
        replace(EXAMPLES["estimation"], counts=[5, 5, 5])
    with pytest.raises(ValueError, match="bytes must be true where features are bytes"):
        replace(EXAMPLES["neural"], bytes=False)
