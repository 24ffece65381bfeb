"""Agents with tables of their own: the same schema and the same files give, deployed, the records,
the task and the epsilon of a simulation.
"""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np
import pytest

import hearsay as hs
from hearsay.deploy import budget
from hearsay.deploy.deployment import deployment
from hearsay.deploy.records import own
from hearsay.deploy.releasing import release
from hearsay.deploy.settings import difference, load
from tests.deploy.networks import NAMES, run_threads, write

SEED = 3
COUNTS = (30, 21, 12, 30, 9)
INPUTS = {
    "age": hs.Number(0, 120, "middle"),
    "bmi": hs.Number(10, 60, "flag"),
    "ward": hs.Category(["north", "south"], "other"),
}
SCHEMAS = {
    "classes": hs.Schema({**INPUTS, "ill": hs.Category(["no", "yes"])}, "ill"),
    "three": hs.Schema({**INPUTS, "stage": hs.Category(["0", "1", "2"])}, "stage"),
    "numbers": hs.Schema({**INPUTS, "cost": hs.Number(0, 100)}, "cost"),
}


def files(folder, kind="classes", counts=COUNTS, **tables):
    """A network whose agents have tables: commas, semicolons, other orders, Parquet."""
    import pandas as pd

    SCHEMAS[kind].save(folder / "schema.toml")
    rng, paths = np.random.default_rng(0), []
    for agent, (name, count) in enumerate(zip(NAMES, counts, strict=True)):
        age = rng.uniform(0, 130, count).round(2)
        table = pd.DataFrame(
            {
                "patient": [f"{name}-{i}" for i in range(count)],
                "age": np.where(age < 10, np.nan, age),
                "bmi": np.where(rng.random(count) < 0.2, np.nan, rng.normal(27, 6, count).round(1)),
                "ward": rng.choice(["north", "south", "east"], count),
                "ill": np.where(age + rng.normal(0, 20, count) > 60, "yes", "no"),
                "stage": np.digitize(age, [40, 80]),
                "cost": (age / 2 + rng.normal(0, 5, count)).round(2),
            }
        )
        paths.append(folder / f"{name}.{'parquet' if agent == 1 else 'csv'}")
        if agent == 1:
            table.to_parquet(paths[-1])
        elif agent == 2:
            table[table.columns[::-1]].to_csv(paths[-1], sep=";", decimal=",", index=False)
        else:
            table.to_csv(paths[-1], encoding="utf-16" if agent == 3 else "utf-8")
    agents = {
        name: {"data": path.name, "records": count}
        for name, path, count in zip(NAMES, paths, counts, strict=True)
    }
    tables = {"problem": {"schema": "schema.toml", **tables.pop("problem", {})}, **tables}
    return write(folder, agents=agents, **tables), paths


@pytest.mark.parametrize("kind", SCHEMAS)
def test_records_task_and_epsilon_are_the_simulations(tmp_path, kind):
    path, tables = files(tmp_path, kind, problem={"ridge": 0.01, "clip": 0.5})
    network = load(path)
    simulated = hs.problems.tabular(tables, SCHEMAS[kind], ridge=0.01, clip=0.5)
    for agent in range(5):
        task, records, rows = own(network, agent)
        assert task.digest() == simulated.task.digest()
        assert task.schema == simulated.schema and task.assumptions == simulated.assumptions
        np.testing.assert_array_equal(records.features, simulated.features[agent])
        np.testing.assert_array_equal(records.labels, simulated.labels[agent])
        assert records.held == COUNTS[agent] and rows.shape == (COUNTS[agent], 32)
    plan = deployment(network, None)
    # The same certificate from the task of the simulation, and the same ideal one.
    again = budget.certificate(
        plan.algorithm, replace(simulated.task, name="test"), plan.graph, plan.messages, None
    )
    assert replace(again, names=plan.certificate.names).to_json() == plan.certificate.to_json()
    ideal = [
        hs.certify(plan.algorithm, one, plan.graph, plan.messages).epsilon
        for one in (plan.task, simulated)
    ]
    assert ideal[0] == ideal[1]


def test_a_rehearsed_network_ends_with_the_models_of_a_simulation(tmp_path):
    path, tables = files(tmp_path)
    agents = run_threads(load(path), SEED)
    plan = agents["alice"].plan
    problem = hs.problems.tabular(tables, SCHEMAS["classes"])
    options = {"steps": plan.messages, "seeds": [SEED], "reference": False, "regret": False}
    run = hs.simulate(plan.algorithm, problem, plan.graph, **options)
    deployed = np.stack([agents[n].model for n in NAMES])
    np.testing.assert_allclose(deployed, run.models[0], rtol=0, atol=1e-6)
    assert np.abs(deployed).max() > 1e-3
    # What is published reads tables as the simulation's does.
    folder = release(path, rehearsal=True).save(tmp_path / "released")
    model = hs.load_model(folder)
    assert model.schema == SCHEMAS["classes"] and model.made["rounds"] == str(plan.messages)
    wanted = run.release()
    np.testing.assert_allclose(model.params, wanted.params, rtol=0, atol=1e-6)
    np.testing.assert_array_equal(model.predict(tables[0]), wanted.predict(tables[0]))


def test_the_content_of_the_schema_is_what_agents_agree_on(tmp_path):
    path, _ = files(tmp_path)
    network, schema = load(path), SCHEMAS["classes"]
    assert network.public["problem"]["schema"]["columns"]["age"]["range"] == [0.0, 120.0]
    changed = {**schema.columns, "age": hs.Number(0, 100, "middle")}
    hs.Schema(changed, "ill").save(tmp_path / "schema.toml")
    other = load(path)
    assert other.digest != network.digest
    assert difference(network.public, other.public) == (
        "[problem] schema.columns.age.range is [0.0, 120.0] here and [0.0, 100.0] there"
    )
    # Records have the order of the columns, which a hash of JSON would not tell.
    swapped = {name: schema.columns[name] for name in ("bmi", "age", "ward", "ill")}
    hs.Schema(swapped, "ill").save(tmp_path / "schema.toml")
    assert load(path).digest != network.digest
    assert "schema.order is ['age', " in difference(network.public, load(path).public)
    # Where it lies is each host's own business.
    (tmp_path / "elsewhere").mkdir()
    schema.save(tmp_path / "elsewhere" / "s.toml")
    path.write_text(path.read_text().replace("schema.toml", "elsewhere/s.toml"))
    assert load(path).digest == network.digest


def test_rows_are_known_again_whatever_the_schema_makes_of_them(tmp_path):
    path, _ = files(tmp_path)
    first = own(load(path), 0)
    columns = {"bmi": hs.Number(20, 30, "middle"), "cost": hs.Number(0, 10), "ill": hs.Ignored()}
    hs.Schema(columns, "cost").save(tmp_path / "schema.toml")
    second = own(load(path), 0)
    assert second.task.digest() != first.task.digest()
    np.testing.assert_array_equal(second.rows, first.rows)


def test_owners_are_told_what_was_counted_and_logs_are_not(tmp_path, caplog):
    path, tables = files(tmp_path)
    with caplog.at_level(logging.INFO, "hearsay.agent"):
        logging.getLogger("hearsay.owner").setLevel(logging.WARNING)
        deployment(load(path), 0)
        assert not any("clipped" in record.getMessage() for record in caplog.records)
    with caplog.at_level(logging.INFO, "hearsay.owner"):
        plan = deployment(load(path), 0)
    (line,) = [r.getMessage() for r in caplog.records if "clipped" in r.getMessage()]
    assert line.startswith(f"{tables[0]}: 30 rows; age: ")
    assert "clipped to 0..120" in line and "unknown levels taken as other" in line
    text = plan.certificate.to_json() + str(plan.certificate)
    assert not any(word in text for word in ("unknown level", "gap", "clipped to 0..120"))


def test_owners_are_told_of_columns_that_hardly_fill_their_range(tmp_path, caplog):
    path, _ = files(tmp_path)
    columns = {**SCHEMAS["classes"].columns, "age": hs.Number(0, 1e6, "middle")}
    hs.Schema(columns, "ill").save(tmp_path / "schema.toml")
    with caplog.at_level(logging.INFO, "hearsay.owner"):
        own(load(path), 0)
    told = {record.name for record in caplog.records if "a tenth of" in record.getMessage()}
    assert told == {"hearsay.owner"}
    assert any('scale = "log"' in record.getMessage() for record in caplog.records)


def test_more_rows_than_announced_are_not_used_and_fewer_refused(tmp_path, caplog):
    path, _ = files(tmp_path)
    text = path.read_text()
    path.write_text(text.replace("records = 12", "records = 10"))
    found = own(load(path), 2)
    assert found.records.held == 10 and len(found.rows) == 10
    assert not found.records.features[10:].any()
    assert "has 12 records, and net.toml says 10: the last 2 are not used" in caplog.text
    path.write_text(text.replace("records = 12", "records = 13"))
    with pytest.raises(ValueError, match=r"agent carol: .*must hold the 13 records .*got 12"):
        own(load(path), 2)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("records = 12", "", "records must be given for every agent or for none"),
        ('"schema.toml"', '"nowhere.toml"', "nowhere.toml is not there: hearsay schema FILE.csv"),
        ('"schema.toml"', '"schema.toml"\ntest = "x"', r"test in \[problem\] must be left out"),
        ('"schema.toml"', '"schema.toml"\nloss = "ridge"', "must be left out with a schema"),
        ('"schema.toml"', '"schema.toml"\nfeature_bound = 2.0', r"key in \[problem\] must be one"),
    ],
)
def test_settings_that_are_wrong(tmp_path, old, new, message):
    path, _ = files(tmp_path)
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        own(load(path), None)


def test_a_schema_needs_the_numbers_of_rows(tmp_path):
    SCHEMAS["classes"].save(tmp_path / "schema.toml")
    path = write(tmp_path, problem={"schema": "schema.toml"})
    with pytest.raises(ValueError, match=r"records in \[agents.NAME\] must be given with a schema"):
        load(path)


def test_errors_name_agent_file_row_and_column_and_no_value(tmp_path):
    path, tables = files(tmp_path)
    lines = tables[0].read_text().splitlines()
    lines[4] = lines[4].replace(",yes,", ",31337,").replace(",no,", ",31337,")
    tables[0].write_text("\n".join(lines))
    with pytest.raises(
        ValueError, match=r"data of agent alice: .*row 4 \(line 5\), column 'ill'"
    ) as e:
        own(load(path), 0)
    assert "31337" not in str(e.value)
    assert e.value.__cause__ is None and e.value.__suppress_context__


def test_a_table_without_a_schema_is_told_what_it_needs(tmp_path):
    path, _ = files(tmp_path)
    text = path.read_text().replace('schema = "schema.toml"', "dimension = 3\nfeature_bound = 1.0")
    path.write_text(text)
    with pytest.raises(ValueError, match="a table with a header needs a schema"):
        own(load(path), 0)
