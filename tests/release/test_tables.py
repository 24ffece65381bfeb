"""Released models of tables: their schema goes with them, they read tables, and scikit-learn has
the same linear models.
"""

from __future__ import annotations

import pickle
import runpy
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import hearsay as hs
from hearsay.release.folder import MADE, SCHEMA
from hearsay.release.model import ReleasedModel
from hearsay.simulation.own_unit import in_own_unit

INPUTS = {
    "age": hs.Number(0, 120, gap="middle"),
    "ward": hs.Category(["north", "south"]),
    "patient": hs.Ignored(),
}
TARGETS = {
    "ill": hs.Category(["yes", "no"]),
    "colour": hs.Category(["red", "green", "blue"]),
    "dose": hs.Number(5, 25),
    "titre": hs.Number(1, 10_000, scale="log"),
}
ROWS = 40
NUMPY = Path(__file__).resolve().parents[2] / "examples" / "predict_with_numpy.py"


def schema_for(target: str) -> hs.Schema:
    return hs.Schema({**INPUTS, target: TARGETS[target]}, target=target)


def table_for(target: str, seed: int = 0) -> dict[str, list[Any]]:
    rng = np.random.default_rng(seed)
    age, south = rng.uniform(0, 120, ROWS), rng.random(ROWS) < 0.5
    said = {
        "ill": np.where(age + 30 * south > 75, "yes", "no"),
        "colour": np.array(["red", "green", "blue"])[(age // 41).astype(int)],
        "dose": 5 + age / 10 + 4 * south,
        "titre": np.exp(age / 20 + 2 * south),
    }[target]
    return {
        "patient": [f"p{k}" for k in range(ROWS)],
        "ward": np.where(south, "south", "north").tolist(),
        target: said.tolist(),
        "age": age.tolist(),
    }


def run_of(target: str, **options: Any) -> hs.Run:
    tables = [table_for(target, seed) for seed in range(3)]
    problem = hs.problems.tabular(
        tables, schema_for(target), test=table_for(target, 9), adjacency="zero-out", **options
    )
    algorithm = hs.gradient_perturbation(
        mechanism="gaussian", step=1.0, noise=0.05, sampling=hs.History("full")
    )
    return hs.simulate(
        algorithm,
        problem,
        hs.graphs.complete(3),
        steps=6,
        delta=1e-5,
        regret=False,
        reference=False,
    )


@pytest.fixture(scope="module", params=list(TARGETS))
def run(request: pytest.FixtureRequest) -> hs.Run:
    return run_of(request.param)


def test_a_model_of_tables_reads_tables(run: hs.Run, tmp_path: Path) -> None:
    accuracy = run.release(folder=tmp_path).accuracy
    model = hs.load_model(tmp_path)
    schema, target = model.schema, model.schema.target
    assert schema.digest == run.problem.schema.digest
    table = table_for(target, 9)
    said = model.predict(table)
    rows = [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]
    for row in rows:
        del row[target]
    np.testing.assert_array_equal(model.predict(rows), said)
    features = schema.encode(table, target=False).features
    np.testing.assert_array_equal(model.predict(features, encoded=True), said)
    if target == "titre":
        wrong = np.mean(np.log(said / np.array(table[target])) ** 2)
        assert wrong == pytest.approx(accuracy * np.log(100) ** 2), "half the powers from 1 to 10^4"
        factor = np.exp(np.sqrt(wrong))
        assert in_own_unit(accuracy, schema) == pytest.approx(factor)
        assert f"{factor:.4g} (root mean squared, as a factor of 'titre' (2:" in str(run.release())
        return
    if schema.classes is None:
        wrong = np.mean((said - np.array(table[target])) ** 2)
        assert wrong == pytest.approx(accuracy * 10.0**2), "half the range of 5 to 25"
        assert model.classes is None and 0 < said.min() < said.max() < 30
        return
    assert set(said) <= set(schema.classes) and said.dtype == object
    assert np.mean(said == np.array(table[target])) == pytest.approx(accuracy)
    assert model.classes.tolist() == list(schema.classes)
    chances = model.predict_proba(table)
    np.testing.assert_allclose(chances.sum(axis=1), 1.0)
    np.testing.assert_array_equal(model.classes[chances.argmax(axis=1)], said)


def test_scikit_learn_has_the_same_model(run: hs.Run) -> None:
    model = run.release()
    table = table_for(model.schema.target, 5)
    found = model.to_sklearn()
    if model.classes is None:
        np.testing.assert_allclose(found.predict(table), model.predict(table), rtol=1e-12)
        again = pickle.loads(pickle.dumps(found))
        np.testing.assert_array_equal(again.predict(table), found.predict(table))
        return
    np.testing.assert_array_equal(found.predict(table), model.predict(table))
    np.testing.assert_allclose(
        found.predict_proba(table), model.predict_proba(table), rtol=1e-12, atol=1e-12
    )
    assert found.classes_.tolist() == list(model.schema.classes)
    again = pickle.loads(pickle.dumps(found))
    np.testing.assert_array_equal(again.predict(table), model.predict(table))


def test_numpy_alone_predicts_the_same(run: hs.Run, tmp_path: Path) -> None:
    """examples/predict_with_numpy.py, for who has the folder and no hearsay."""
    model = run.release(folder=tmp_path)
    table = {**table_for(model.schema.target, 5)}
    table["age"][:3], table["ward"][0] = ["", -7.0, 500.0], "west"
    rows = [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]
    said = runpy.run_path(str(NUMPY))["predict"](tmp_path, rows)
    if model.classes is None:
        np.testing.assert_allclose(said, model.predict(table), rtol=1e-9)
        return
    chances = [[one[level] for level in model.classes] for one in said]
    np.testing.assert_allclose(chances, model.predict_proba(table), rtol=1e-9)


def test_without_a_schema_the_linear_model_alone() -> None:
    problem = hs.problems.ridge(agents=2, records=30, dimension=3)
    model = hs.simulate(hs.dsgd(noise=0.1), problem, hs.graphs.ring(2), steps=5).release()
    features = np.eye(3)
    np.testing.assert_allclose(
        model.to_sklearn().predict(features), model.predict(features), rtol=1e-12
    )
    assert model.schema is None and model.classes is None
    with pytest.raises(ValueError, match="must tell classes apart"):
        model.predict_proba(features)


def test_arrays_have_one_column_for_each_input(run: hs.Run) -> None:
    model = run.release()
    wanted = model.predict({"ward": ["north", "south"], "age": [30, 90]})
    rows = [[30, "north"], [90, "south"]]
    for array in (np.array(rows, dtype=object), rows):
        np.testing.assert_array_equal(model.predict(array), wanted)
    encoded = model.schema.encode(np.array(rows, dtype=object), target=False).features
    for array in (encoded, jax.numpy.asarray(encoded), encoded.tolist()):
        with pytest.raises(ValueError, match="2 columns, one for each input .*encoded=True for"):
            model.predict(array)
    np.testing.assert_array_equal(model.predict(encoded, encoded=True), wanted)


@pytest.fixture(scope="module")
def network() -> ReleasedModel:
    return run_of("colour", model="mlp").release()


def test_a_network_comes_back_whole(network: ReleasedModel, tmp_path: Path) -> None:
    network.save(tmp_path)
    model = hs.load_model(tmp_path)
    table, (program, params) = table_for("colour", 9), model.network()
    module, features = model.module(), model.schema.encode(table, target=False).features
    scores = np.asarray(jax.vmap(module)(jax.numpy.asarray(features)))
    np.testing.assert_array_equal(model.classes[scores.argmax(axis=1)], model.predict(table))
    assert program.size == params.size
    with pytest.raises(ValueError, match="must be linear for scikit-learn, got mlp"):
        model.to_sklearn()
    # Parameters and network go on where they were.
    pairs = [(features, np.zeros(ROWS)), (features, np.ones(ROWS))]
    start = hs.problems.neural(pairs, model=(program, params), classes=3).first_models
    np.testing.assert_array_equal(start, [params, params])


@pytest.fixture(scope="module")
def released() -> ReleasedModel:
    return run_of("ill").release()


def test_another_schema_is_refused(released: ReleasedModel, tmp_path: Path) -> None:
    released.save(tmp_path)
    file = tmp_path / SCHEMA
    text = file.read_text()
    file.write_text(text.replace("120", "110"))
    with pytest.raises(ValueError, match="schema.toml is another schema than that of the model"):
        hs.load_model(tmp_path)
    file.write_text(text + "# the same but for a comment\n")
    assert hs.load_model(tmp_path).schema == released.schema
    file.unlink()
    with pytest.raises(FileNotFoundError, match="the model beside it reads tables by it"):
        hs.load_model(tmp_path)
    plain = hs.problems.ridge(agents=2, records=30, dimension=3)
    run = hs.simulate(hs.dsgd(noise=0.1), plain, hs.graphs.ring(2), steps=2)
    file.write_text(text)
    run.release(folder=tmp_path)
    assert not file.exists(), "what the folder had of another model is gone"
    file.write_text(text)
    with pytest.raises(ValueError, match="does not belong to the model beside it"):
        hs.load_model(tmp_path)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"target": "colour"}, "whose target has 2 levels, as the model's, got 3"),
        ({"target": "dose"}, "whose target is a category, as the model's"),
        ({"columns": {"age": hs.Number(0, 1), "ill": TARGETS["ill"]}}, r"have shape \(5,\)"),
    ],
)
def test_a_schema_must_fit_the_model(released: ReleasedModel, change: Any, text: str) -> None:
    columns = change.get("columns", {**INPUTS, **TARGETS})
    target = change.get("target", "ill")
    keep = {**INPUTS, target: TARGETS[target]} if "columns" not in change else columns
    with pytest.raises(ValueError, match=text):
        replace(released, schema=hs.Schema(keep, target=target))


def test_a_linear_model_is_no_network(released: ReleasedModel) -> None:
    with pytest.raises(ValueError, match="must be a network that is at hand, got Logistic"):
        released.network()


def test_it_says_how_it_was_made(released: ReleasedModel, tmp_path: Path) -> None:
    replace(released, made={**released.made, "command": "hearsay fit"}).save(tmp_path)
    made, said = hs.load_model(tmp_path).made, (tmp_path / MADE).read_text()
    assert made["rounds"] == "6" and made["hearsay"] == hs.__version__
    assert made["agents"] == "3" and made["step"] == "1" and made["command"] == "hearsay fit"
    assert all(text in said for text in made.values())
    assert "predicts    ill, from age, ward" in said


def test_a_pickle_has_a_network_that_is_built_again(run: hs.Run) -> None:
    model = run.release()
    again, table = pickle.loads(pickle.dumps(model)), table_for(model.schema.target, 5)
    np.testing.assert_array_equal(again.predict(table), model.predict(table))
    assert again.certificate.to_json() == model.certificate.to_json()


def test_a_network_without_a_name_is_in_no_pickle(network: ReleasedModel) -> None:
    again, table = pickle.loads(pickle.dumps(network)), table_for("colour", 5)
    np.testing.assert_array_equal(again.predict(table), network.predict(table))
    facts = {**network.predictor.facts, "named": False}
    strange = replace(network, predictor=replace(network.predictor, facts=facts))
    with pytest.raises(TypeError, match="builds by name to be pickled, got mlp"):
        pickle.dumps(strange)
