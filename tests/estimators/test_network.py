"""Estimators on tables and arrays: whose rows are whose, what they predict with, what they keep."""

from __future__ import annotations

import csv
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.validation import has_fit_parameter

import hearsay as hs
from hearsay.estimators import fitting
from tests.estimators import quick

SCHEMA = hs.Schema(
    {
        "patient": hs.Ignored(),
        "age": hs.Number(0, 120),
        "ward": hs.Category(["north", "south"]),
        "ill": hs.Category(["yes", "no"]),
    },
    target="ill",
)
NUMBERS = hs.Schema({"age": hs.Number(0, 120), "dose": hs.Number(5, 25)}, target="dose")


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting, "rehearse", quick.rehearse)


def table(seed: int, rows: int = 60) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    age, south = rng.uniform(0, 120, rows), rng.random(rows) < 0.5
    return {
        "patient": [f"{seed}-{row}" for row in range(rows)],
        "ward": np.where(south, "south", "north"),
        "age": age,
        "ill": np.where(age > 60, "yes", "no"),
        "dose": 5 + age / 6,
    }


def written(path: Path, columns: dict[str, Any]) -> Path:
    with path.open("w", newline="") as handle:
        writer = csv.writer(handle)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    return path


TABLES = [table(seed) for seed in range(3)]
X = np.column_stack([np.concatenate([t["age"] for t in TABLES])])
Y = np.concatenate([t["ill"] for t in TABLES])


def classifier(epsilon: float = 50.0, **options: Any) -> hs.NetworkClassifier:
    return hs.NetworkClassifier(epsilon, **{"random_state": 0, **options})


@pytest.fixture(scope="module")
def fitted() -> hs.NetworkClassifier:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitting, "rehearse", quick.rehearse)
        return classifier(schema=SCHEMA).fit(TABLES)


def test_files_frames_and_columns_are_the_same_tables(fitted, tmp_path):
    paths = [written(tmp_path / f"{k}.csv", own) for k, own in enumerate(TABLES)]
    frames = [pandas.DataFrame(own) for own in TABLES]
    for tables, schema in ((paths, SCHEMA.save(tmp_path / "schema.toml")), (frames, SCHEMA)):
        same = classifier(schema=schema).fit(tables)
        np.testing.assert_allclose(same.model_.params, fitted.model_.params, rtol=1e-12)
        assert same.certificate_.to_json() == fitted.certificate_.to_json()
    assert [str(one) for one in fitted.counted_] == [
        f"table of agent {agent}: 60 rows" for agent in range(3)
    ]
    assert fitted.problem_.counts.tolist() == [60, 60, 60]
    assert fitted.graph_.agents == 3


def test_it_predicts_with_the_released_model_alone(fitted):
    new = table(9)
    assert fitted.classes_.tolist() == ["yes", "no"]
    np.testing.assert_array_equal(fitted.predict(new), fitted.model_.predict(new))
    chances = fitted.predict_proba(new)
    np.testing.assert_array_equal(chances, fitted.model_.predict_proba(new))
    margins = fitted.decision_function(new)
    np.testing.assert_allclose(chances[:, 1], 1 / (1 + np.exp(-margins)), rtol=1e-9)
    right = float(np.mean(fitted.predict(new) == new["ill"]))
    assert fitted.score(new) == right == fitted.score(new, new["ill"]) > 0.8
    assert fitted.n_features_in_ == 2 and fitted.feature_names_in_.tolist() == ["age", "ward"]
    assert max(fitted.certificate_.epsilon) <= 50.0
    assert fitted.certificate_.adjacency == "zero-out"


def test_a_pickle_holds_no_record(fitted):
    content = pickle.dumps(fitted)
    again = pickle.loads(content)
    np.testing.assert_array_equal(again.predict(TABLES[0]), fitted.predict(TABLES[0]))
    assert not any(hasattr(again, name) for name in ("problem_", "run_", "counted_"))
    # Nor where its noise came from, nor how right it was on anybody's rows.
    assert fitted.random_state is not None and again.random_state is None
    assert again.model_.accuracy is None
    for array in (fitted.problem_.features, fitted.run_.models):
        assert np.ascontiguousarray(array).tobytes()[:64] not in content
    with pytest.raises(ValueError, match="report must be asked of the estimator that was fitted"):
        again.report("nowhere")


def test_the_report_keeps_what_may_be_published_apart(fitted, tmp_path):
    page = fitted.report(tmp_path)
    assert page.parent == tmp_path and page.name.startswith("private-")
    model = hs.load_model(tmp_path / "released")
    np.testing.assert_array_equal(model.params, fitted.model_.params)
    assert model.schema == SCHEMA


def test_one_table_is_dealt_out():
    whole = {name: np.concatenate([own[name] for own in TABLES]) for name in TABLES[0]}
    one = classifier(schema=SCHEMA, agents=4).fit(whole)
    assert one.problem_.counts.tolist() == [45] * 4
    target = whole.pop("ill")
    frame = classifier(schema=SCHEMA, agents=4).fit(pandas.DataFrame(whole), target)
    np.testing.assert_allclose(frame.model_.params, one.model_.params, rtol=1e-12)
    rows = [dict(zip(whole, row, strict=True)) for row in zip(*whole.values(), strict=True)]
    same = classifier(schema=SCHEMA, agents=4).fit(rows, target)
    np.testing.assert_allclose(same.model_.params, one.model_.params, rtol=1e-12)


def test_errors_name_rows_as_they_were_given(tmp_path):
    strange = Y.copy()
    strange[97] = "perhaps"
    arrays = classifier(ranges=(0, 120), classes=["yes", "no"])
    with pytest.raises(ValueError, match=r"^y must be .*another in row 97 \(counted from 0\)"):
        arrays.fit(X, strange)
    message = r"^data of agent 1: y must be .*another in row 7 \(counted from 0\)"
    with pytest.raises(ValueError, match=message):
        arrays.fit([(X[:90], Y[:90]), (X[90:], strange[90:])])
    whole = {name: np.concatenate([own[name] for own in TABLES]) for name in TABLES[0]}
    whole["ill"] = strange
    with pytest.raises(ValueError, match=r"^table, row 98, column 'ill' must be one of yes, no"):
        classifier(schema=SCHEMA).fit(whole)
    path = written(tmp_path / "all.csv", whole)
    with pytest.raises(ValueError, match=r"all.csv, row 98 \(line 99\), column 'ill' must be one"):
        classifier(schema=SCHEMA).fit(path)
    del whole["ill"]
    with pytest.raises(ValueError, match=r"^table, row 98, column 'ill' must be one of yes, no"):
        classifier(schema=SCHEMA).fit(whole, strange)


def test_pairs_of_arrays_one_for_each_agent():
    pairs = [(X[:50], Y[:50]), (X[50:70], Y[50:70]), (X[70:], Y[70:])]
    model = classifier(ranges=(0, 120), classes=["yes", "no"]).fit(pairs)
    assert model.problem_.counts.tolist() == [50, 20, 110]
    # As scikit-learn sorts them, whatever the list was.
    assert model.classes_.tolist() == ["no", "yes"]
    assert model.score(X, Y) > 0.8
    texts = [str(one.text) for one in model.problem_.assumptions]
    assert not any("read off" in text for text in texts)
    with pytest.raises(ValueError, match="data of agent 1: .*X has 2 features, but"):
        model.fit([pairs[0], (np.ones((4, 2)), Y[:4])])
    with pytest.raises(ValueError, match=r"tables\[1\] must be a pair"):
        model.fit([pairs[0], X])


def test_what_is_read_off_the_records_is_declared():
    model = classifier(ranges_are_public=True).fit(X, Y)
    (said,) = [one for one in model.problem_.assumptions if "read off" in one.text]
    assert said.kind == "declared"
    assert said.text.endswith("not covered: ranges of the columns, classes")
    assert "read off the records" in str(model.certificate_)
    assert model.schema_.inputs == {"x0": hs.Number(float(X.min()), float(X.max()))}
    given = classifier(ranges=(0, 120), ranges_are_public=True).fit(X, Y)
    (said,) = [one for one in given.problem_.assumptions if "read off" in one.text]
    assert said.text.endswith("not covered: classes")


@pytest.mark.parametrize(
    ("options", "data", "text"),
    [
        ({}, (X, Y), "ranges must be given for arrays"),
        ({"ranges": (0, 120)}, (X, Y), "classes must be given for arrays"),
        (
            {"ranges": (0, 120), "classes": ["a", "b"]},
            (X, Y),
            "'another in row 0 .counted from 0.'",
        ),
        ({"ranges_are_public": True}, (X, None), "requires y to be passed"),
        ({"ranges_are_public": True, "agents": 2}, ([(X, Y)] * 3, None), "agents must be left out"),
        ({"schema": SCHEMA, "agents": 2}, (TABLES, None), "agents must be left out"),
        ({"schema": SCHEMA}, (TABLES[0], Y), "inconsistent numbers of samples"),
        ({"schema": NUMBERS}, (TABLES, None), "must be a category for a classifier"),
        ({"schema": "none.toml"}, (TABLES, None), "none.toml is not there"),
        ({"schema": SCHEMA, "graph": "rnig"}, (TABLES, None), "graph must be one of"),
        ({"schema": SCHEMA, "graph": hs.graphs.ring(4)}, (TABLES, None), "graph must be one of"),
        ({"schema": SCHEMA, "random_state": -1}, (TABLES, None), "random_state must be"),
        ({"schema": SCHEMA, "random_state": 2**31}, (TABLES, None), "below 2\\^31"),
        ({"schema": SCHEMA, "model": "mpl"}, (TABLES, None), "model must be one of"),
        (
            {"schema": SCHEMA, "ranges": (0, 1)},
            (TABLES, None),
            "ranges must be left out with",
        ),
        (
            {"schema": SCHEMA, "classes": np.array([0, 1])},
            (TABLES, None),
            "classes must be left out",
        ),
        ({"schema": SCHEMA, "ranges_are_public": True}, (TABLES, None), "public must be left out"),
        ({"ranges": {"age": (0, 9)}, "classes": "ab"}, (X, Y), "a schema has them by name"),
        ({}, (TABLES, None), "or a table together with schema="),
    ],
)
def test_what_is_wrong_is_named(options, data, text):
    with pytest.raises((ValueError, TypeError, OSError), match=text):
        classifier(**options).fit(*data)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"sample_weight": np.ones(9)}, "sample_weight must be left out of fit: rows have no weig"),
        (
            {"ranges": (0, 120)},
            r"when the estimator is made: NetworkClassifier\(ranges=...\)",
        ),
        ({"tset": None}, "tset must be left out of fit: there is no such argument"),
    ],
)
def test_what_fit_does_not_take_is_answered(given, text):
    """In words, and no weight is taken for one that counts (scikit-learn looks for the name)."""
    with pytest.raises(TypeError, match=text):
        classifier(schema=SCHEMA).fit(TABLES, **given)
    assert not has_fit_parameter(classifier(), "sample_weight")


def test_a_regression_in_the_units_of_its_target(tmp_path):
    model = hs.NetworkRegressor(500.0, random_state=0, schema=NUMBERS).fit(TABLES, test=table(9))
    new = table(8)
    said = model.predict(new)
    assert model.score(new) > 0.9 and abs(said.mean() - new["dose"].mean()) < 1
    assert model.model_.accuracy == pytest.approx(
        np.mean((model.predict(table(9)) - table(9)["dose"]) ** 2) / 100
    )
    arrays = hs.NetworkRegressor(500.0, random_state=0, ranges=(0, 120), target_range=(5, 25))
    found = arrays.fit(X, 5 + X[:, 0] / 6)
    assert found.score(X, 5 + X[:, 0] / 6) > 0.9
    with pytest.raises(ValueError, match="target_range must be given for arrays"):
        hs.NetworkRegressor(ranges=(0, 120)).fit(X, X[:, 0])
    with pytest.raises(ValueError, match="must be a number for a regressor"):
        hs.NetworkRegressor(schema=SCHEMA).fit(TABLES)
    with pytest.raises(ValueError, match="model must be linear where the target is a number"):
        hs.NetworkRegressor(schema=NUMBERS, model="mlp").fit(TABLES)


def test_the_seed_settles_the_noise_and_none_is_secret(fitted):
    same = clone(fitted).fit(TABLES)
    np.testing.assert_array_equal(same.model_.params, fitted.model_.params)
    others = [
        classifier(schema=SCHEMA, random_state=state).fit(TABLES)
        for state in (1, None, np.random.default_rng(5), np.random.RandomState(5))
    ]
    seeds = {one.run_.seeds[0] for one in others}
    assert len(seeds) == 4 and 0 not in seeds


def test_colluders_that_are_planned_for():
    one = classifier(2.0, schema=SCHEMA, colluders=1).fit(TABLES)
    assert one.certificate_.colluders == 1 and max(one.certificate_.epsilon) <= 2.0
    assert max(one.certificate_.all_collude) > 2.0


def test_a_network_by_its_name():
    model = classifier(schema=SCHEMA, model="mlp").fit(TABLES)
    network, params = model.model_.network()
    assert network.name == "mlp" and params.size == network.size
    assert model.predict_proba(TABLES[0]).shape == (60, 2)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(TABLES[0]), model.predict(TABLES[0]))


def test_pipelines_on_the_public_side():
    """A step that learns nothing, and the cross-validation of the whole."""
    shifted = make_pipeline(
        FunctionTransformer(lambda ages: ages - 60.0),
        classifier(ranges=(-60, 60), classes=["no", "yes"], agents=2),
    )
    assert cross_val_score(shifted, X, Y, cv=2).mean() > 0.8


def test_what_a_rehearsal_warns_of_is_a_warning(monkeypatch):
    def doubtful(*words: Any, **options: Any) -> Any:
        return quick.rehearse(*words, **options, warnings=("no better than a guess",))

    monkeypatch.setattr(fitting, "rehearse", doubtful)
    with pytest.warns(UserWarning, match="no better than a guess"):
        classifier(schema=SCHEMA).fit(TABLES)


def test_nothing_is_predicted_before_a_fit():
    for method in ("predict", "predict_proba", "decision_function", "score"):
        with pytest.raises(NotFittedError):
            getattr(hs.NetworkClassifier(schema=SCHEMA), method)(TABLES[0])


def test_an_encoder_is_a_step_that_learns_nothing():
    encoder = hs.TableEncoder(SCHEMA)
    found = clone(encoder).fit_transform(TABLES[0])
    np.testing.assert_array_equal(found, SCHEMA.encode(TABLES[0], target=False).features)
    assert encoder.get_feature_names_out().tolist() == list(SCHEMA.entries)


def test_a_range_for_the_worst_case_costs_what_is_learned():
    """docs/tables.md: stays of some days between 0 and 365 are all at the same place."""
    rng = np.random.default_rng(0)

    def table(rows: int) -> dict[str, np.ndarray]:
        days = np.minimum(np.exp(rng.normal(1.2, 0.8, rows)), 100)
        return {"days": days, "costs": 900 + 620 * days + rng.normal(0, 300, rows)}

    tables, held_out = [table(500) for _ in range(3)], table(500)

    def explained(days: int, costs: int) -> float:
        columns = {"days": hs.Number(0, days), "costs": hs.Number(0, costs)}
        model = hs.NetworkRegressor(
            epsilon=2, schema=hs.Schema(columns, target="costs"), random_state=1
        )
        return float(model.fit(tables).score(held_out))

    good = explained(40, 40_000)
    with pytest.warns(UserWarning, match="days, costs: Nine tenths of a column's numbers in a"):
        assert good > explained(365, 200_000) + 0.2
