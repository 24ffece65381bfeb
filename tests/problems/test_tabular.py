"""Tables as problems: the schema says what is learned, and a task knows nothing else of them."""

from __future__ import annotations

import numpy as np
import pytest

import hearsay as hs
from hearsay.config import Config, build, build_task, dump, load
from hearsay.problems import table_facts, tabular, tabular_task
from hearsay.problems.data.table_rows import read_rows
from hearsay.problems.losses.linear import Logistic, Squared
from hearsay.problems.losses.neural_loss import NeuralLoss
from hearsay.problems.losses.softmax import Softmax

INPUTS = {"age": hs.Number(0, 120, "middle"), "ward": hs.Category(["n", "s"])}
TWO = hs.Schema({**INPUTS, "ill": hs.Category(["no", "yes"])}, "ill")
THREE = hs.Schema({**INPUTS, "stage": hs.Category(["0", "1", "2"])}, "stage")
NUMBER = hs.Schema({**INPUTS, "cost": hs.Number(0, 50)}, "cost")


def tables(counts=(20, 12), seed=0):
    rng, found = np.random.default_rng(seed), []
    for count in counts:
        age = rng.uniform(20, 90, count)
        found.append(
            {
                "age": age,
                "ward": rng.choice(["n", "s", "x"], count).tolist(),
                "ill": np.where(age > 55, "yes", "no").tolist(),
                "cost": age / 2,
                "stage": np.digitize(age, [40, 70]),
            }
        )
    return found


@pytest.mark.parametrize(
    ("schema", "loss"),
    [
        (TWO, Logistic(1.0)),
        (THREE, Softmax(1.0, 3)),
        (NUMBER, Squared(1.0, label_bound=1.0)),
    ],
)
def test_the_target_says_what_is_learned(schema, loss):
    problem = tabular(tables(), schema)
    assert problem.loss == loss
    assert problem.classification == (schema is not NUMBER)
    assert problem.schema is schema and problem.adjacency == "zero-out"
    assert problem.arrivals.head_start == 20 and problem.counts.tolist() == [20, 12]
    one = schema.encode(tables()[1])
    np.testing.assert_array_equal(problem.features[1, :12], one.features)
    np.testing.assert_array_equal(problem.labels[1, :12], one.labels)
    assert not problem.features[1, 12:].any()


def test_a_network_by_its_name():
    problem = tabular(tables(), TWO, model="mlp", test=tables((7,), 3)[0])
    assert isinstance(problem.loss, NeuralLoss) and problem.loss.clip == 1.0
    assert problem.test_features.shape == (7, TWO.width)
    with pytest.raises(ValueError, match="model must be left out where the target is a number"):
        tabular(tables(), NUMBER, model="mlp")


@pytest.mark.parametrize("model", [None, "mlp"])
def test_a_task_is_made_from_the_schema_and_the_counts_alone(model):
    problem = tabular(tables(), TWO, clip=0.5, model=model)
    task = tabular_task(table_facts(TWO, [20, 12]), clip=0.5, model=model)
    assert task.digest() == problem.task.digest()
    assert task.assumptions == problem.assumptions and task.schema == problem.schema
    algorithm, graph = hs.gradient_perturbation(noise=1.0), hs.graphs.complete(2)
    certificates = [hs.certify(algorithm, t, graph, 20, delta=1e-5) for t in (task, problem)]
    assert certificates[0].to_json() == certificates[1].to_json()


def test_a_certificate_depends_on_the_schema_and_the_counts_only():
    """Whatever is in the cells, and however many of them were clipped or missing."""
    other = [{**one, "age": [np.nan, 1e30] * (len(one["age"]) // 2)} for one in tables(seed=9)]
    algorithm, graph = hs.ldp_online(noise=1.0), hs.graphs.complete(2)
    texts = {
        hs.certify(algorithm, tabular(data, TWO), graph, 20).to_json() for data in (tables(), other)
    }
    assert len(texts) == 1


def test_owners_are_told_and_nobody_else():
    heard = []
    tabular(tables(), TWO, names=["north", "south"], test=tables((5,), 2)[0], notify=heard.append)
    assert [counted.name for counted in heard] == ["north", "south", "test"]
    assert str(heard[0]).startswith("north: 20 rows; ward: ")


@pytest.mark.slow
@pytest.mark.parametrize("schema", [TWO, THREE])
def test_it_learns(schema):
    problem = tabular(tables((200, 200)), schema, test=tables((300,), 5)[0])
    algorithm = hs.dsgd(step=2.0, noise=0.0, sampling=hs.History())
    options = {"steps": 200, "seeds": 1, "reference": False, "regret": False}
    run = hs.simulate(algorithm, problem, hs.graphs.complete(2), **options)
    assert run.metrics["accuracy"][-1].min() > (0.9 if schema is TWO else 0.75)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"data": []}, "data must be one table for every agent"),
        ({"agents": 3}, "agents must be left out, or the 2 that have a table each, got 3"),
        ({"names": ["a"]}, "names must be one for each of the 2 tables"),
        ({"per_step": 13}, "per_step must be at most the 12 records of agent 1, got 13"),
        ({"schema": "nowhere.toml"}, "nowhere.toml is not there: hearsay schema FILE.csv drafts"),
        ({"data": [{"age": [1]}]}, "table of agent 0 must have the schema's columns, and has no"),
    ],
)
def test_what_cannot_be_made(given, message):
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        tabular(**{"data": tables(), "schema": TWO, **given})


def files(folder):
    import pandas as pd

    TWO.save(folder / "schema.toml")
    for name, one in zip(("north", "south"), tables(), strict=True):
        pd.DataFrame(one).to_csv(folder / f"{name}.csv")
    pd.DataFrame(tables((20,), 1)[0]).to_csv(folder / "held-out.csv")
    return {"schema": "schema.toml", "data": ["north.csv", "south.csv"], "test": "held-out.csv"}


def test_a_configuration_takes_paths_from_its_own_folder(tmp_path, monkeypatch):
    keys = files(tmp_path)
    (tmp_path / "deep" / "er").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    typed = Config({**keys, "ridge": 0.1})
    monkeypatch.chdir(tmp_path / "deep")
    moved = Config({k: _up(v) for k, v in keys.items()} | {"ridge": 0.1})
    path = tmp_path / "deep" / "er" / "config.toml"
    path.write_text(dump(moved, path.parent))
    assert '"../../north.csv"' in path.read_text()
    monkeypatch.chdir("/")
    problem = build(load(path))[1]
    monkeypatch.chdir(tmp_path)
    again = build(typed)[1]
    assert problem.task.digest() == again.task.digest()
    np.testing.assert_array_equal(problem.features, again.features)
    assert problem.test_features.shape == (20, TWO.width)


def _up(value):
    return [f"../{one}" for one in value] if isinstance(value, list) else f"../{value}"


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        ({"schema": "s.toml", "loss": "ridge"}, "loss in .* must be left out with a schema: its t"),
        ({"data": ["a.csv", "b.csv"]}, r"data in \[problem\] must be one name without a schema"),
        ({"schema": "s.toml"}, r"data in \[problem\] must be given with tables \(--data\)"),
        ({"loss": "tabular", "data": "a.csv"}, r"schema in \[problem\] must be given with tables"),
        ({"schema": "s.toml", "data": "a.csv", "partition": "iid"}, r"key in \[problem\] must be"),
    ],
)
def test_configurations_of_tables_that_are_wrong(problem, message):
    with pytest.raises(ValueError, match=message):
        build(Config(problem))


def test_a_task_of_tables_elsewhere():
    task = build_task(
        Config({"schema": "s.toml", "clip": 0.3}), table_facts(TWO, [5, 6]), ["schema"]
    )
    assert task.digest() == tabular_task(table_facts(TWO, [5, 6]), clip=0.3).digest()


def test_a_file_is_one_agents_and_is_not_tested_on(tmp_path):
    for name in ("north", "south"):
        (tmp_path / f"{name}.csv").write_text("age,ill\n31,no\n70,yes\n")
    north, south = tmp_path / "north.csv", tmp_path / "south.csv"
    schema = hs.Schema({"age": hs.Number(0, 120), "ill": hs.Category(["no", "yes"])}, target="ill")
    with pytest.raises(ValueError, match="data must be files that differ"):
        hs.problems.tabular([north, south, tmp_path / "." / "north.csv"], schema)
    with pytest.raises(ValueError, match="test must be files that differ"):
        hs.problems.tabular([north, south], schema, test=south)


def test_a_copy_under_another_name_is_found_by_its_rows(tmp_path):
    schema = hs.Schema({"age": hs.Number(0, 120), "ill": hs.Category(["no", "yes"])}, target="ill")

    def write(name, *lines):
        (tmp_path / name).write_text("\n".join(lines))
        return tmp_path / name

    north = write("north.csv", "patient,age,ill", "a,31,no", "b,70,yes", "c,70,yes")
    south = write("south.csv", "patient,age,ill", "d,31,no", "e,70,yes", "f,70,yes")
    # Other people with the same numbers, and no column that the schema names: other rows.
    assert hs.problems.tabular([north, south], schema).counts.tolist() == [3, 3]
    message = (
        r"copy.csv must be another table than .*north.csv, and has the same rows: .* Leave one"
    )
    copy = write("copy.csv", "ill;age;patient", "yes;70,0;b", "yes;70;c", "no;31;a")
    for given in ({"data": [north, south, copy]}, {"data": [north, south], "test": copy}):
        with pytest.raises(ValueError, match=message):
            hs.problems.tabular(schema=schema, **given)
    # Copies in memory are somebody's experiment.
    frame = {"age": [31, 70], "ill": ["no", "yes"]}
    assert hs.problems.tabular([frame, frame], schema).agents == 2


def test_rows_that_were_read_serve_again():
    told = []
    rows = read_rows(tables(), TWO, test=tables((5,), 2)[0], notify=told.append)
    first, again = (tabular(rows, TWO, clip=clip) for clip in (0.5, 1.0))
    plain = tabular(tables(), TWO, test=tables((5,), 2)[0], clip=0.5)
    assert len(told) == 3 and first.records.digest() == plain.records.digest()
    assert np.array_equal(first.test_features, plain.test_features)
    # The same numbers in memory, and not once more.
    assert np.shares_memory(first.features, again.features)
    with pytest.raises(ValueError, match="schema must be that of the rows that were read"):
        tabular(rows, NUMBER)
