"""`hearsay fit` and `hearsay predict`: from tables to a model, and to predictions for new rows."""

from __future__ import annotations

import csv
import errno
import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from sklearn.metrics import roc_auc_score
from typer.testing import CliRunner

import hearsay as hs
from hearsay import config
from hearsay.cli import commands
from hearsay.cli.before import KEPT as KEPT_TABLES
from hearsay.cli.folders import KEPT
from hearsay.estimators import fitting
from hearsay.simulation import simulating
from hearsay.tradeoff import beside
from tests.cli.test_json import documented
from tests.estimators import quick

SCHEMA = hs.Schema(
    {
        "patient": hs.Ignored(),
        "age": hs.Number(0, 120, gap="middle"),
        "ward": hs.Category(["north", "south"]),
        "ill": hs.Category(["yes", "no"]),
    },
    target="ill",
)
PRIVATE = {
    "private-checkpoint.npz",
    "private-metrics.csv",
    "private-models.npz",
    "private-report.html",
    "private-seed.txt",
    "private-tables.json",
}


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting, "rehearse", quick.rehearse)


def rows(seed: int, many: int = 50) -> list[dict[str, Any]]:
    rng = np.random.default_rng(seed)
    return [
        {
            "patient": f"{seed}-{row}",
            "ward": ("north", "south")[row % 2],
            "age": f"{(age := rng.uniform(0, 120)):.2f}",
            "ill": "yes" if age > 60 else "no",
        }
        for row in range(many)
    ]


def write(path: Path, table: list[dict[str, Any]], names: list[str] | None = None) -> Path:
    with path.open("w", newline="") as handle:
        writer = csv.DictWriter(handle, names or list(table[0]), extrasaction="ignore")
        writer.writeheader()
        writer.writerows(table)
    return path


def call(*words: Any, code: int = 0) -> Any:
    result = CliRunner().invoke(commands.app, [str(word) for word in words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hospitals")
    SCHEMA.save(folder / "schema.toml")
    for seed, name in enumerate(("north", "south", "east", "held-out")):
        write(folder / f"{name}.csv", rows(seed))
    # Another order, no target, a gap, and a ward that nobody knows.
    new = [{**row, "ward": "west", "age": ""} if not k else row for k, row in enumerate(rows(9, 5))]
    write(folder / "new.csv", new, ["age", "patient", "ward"])
    return folder


@pytest.fixture(scope="module")
def words(home: Path) -> list[Any]:
    tables = [home / f"{name}.csv" for name in ("north", "south", "east")]
    return ["fit", home / "schema.toml", *tables, "--epsilon", 50, "--test", home / "held-out.csv"]


@pytest.fixture(scope="module")
def made(home: Path, words: list[Any]) -> tuple[Path, Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitting, "rehearse", quick.rehearse)
        return home / "out", call(*words, "--out", home / "out", "--seed", 4)


def test_a_fit_leaves_what_may_be_published_apart(made, home, words):
    folder, result = made
    there = {path.name for path in folder.iterdir()}
    public = {"released", "budget.csv", "certificate.json", "certificate.txt", "run.json"}
    assert there - {"private-checkpoint.previous.npz"} == PRIVATE | public
    released = {path.name for path in (folder / "released").iterdir()}
    assert released == {"model.safetensors", "certificate.json", "schema.toml", "made.txt"}
    model = hs.load_model(folder / "released")
    assert model.schema == SCHEMA and model.accuracy is None
    command = model.made["command"]
    assert command.startswith("hearsay fit schema.toml north.csv south.csv east.csv --epsilon 50")
    # Neither the seed of the noise nor what the test table says is in it.
    assert not any("seed=4" in text or "is 4" in text for text in model.warnings)
    assert (folder / "private-seed.txt").read_text() == "4"
    shown = result.output
    assert "not rehearsed" in shown and "Released model, may be published" in shown
    assert "area under the ROC curve" in shown
    assert "north.csv: 50 rows" in shown and "guessing" in shown and "without noise" in shown
    same = hs.NetworkClassifier(50.0, schema=SCHEMA, random_state=4).fit(words[2:5])
    np.testing.assert_allclose(same.model_.params, model.params, rtol=1e-12)
    call("verify", folder / "released" / "certificate.json")


def test_predictions_for_new_rows(made, home, tmp_path):
    released = made[0] / "released"
    result = call("predict", released, home / "new.csv", "--keep", "patient", "--probabilities")
    found = list(csv.DictReader(result.stdout.splitlines()))
    columns = ["patient", "predicted_ill", "probability_yes", "probability_no"]
    assert [list(row) for row in found] == [columns] * 5
    assert [row["patient"] for row in found] == [f"9-{k}" for k in range(5)]
    for row in found[1:]:
        yes = float(row["probability_yes"])
        assert row["predicted_ill"] == ("yes" if yes > 0.5 else "no")
        assert yes + float(row["probability_no"]) == pytest.approx(1)
    assert "1 gap taken as the middle" in result.stderr and "unknown level" in result.stderr
    file = tmp_path / "predictions.csv"
    call("predict", released, home / "new.csv", "--out", file)
    lines = file.read_text().splitlines()
    assert lines == ["predicted_ill", *(row["predicted_ill"] for row in found)]


def test_a_table_that_has_its_target_is_tested(made, home, tmp_path):
    released = made[0] / "released"
    result = call("predict", released, home / "held-out.csv", "--json")
    found = json.loads(result.stdout)
    assert found.keys() == documented("predict") and found["rows"] == 50
    said = hs.load_model(released).predict(home / "held-out.csv")
    truth = [row["ill"] for row in rows(3)]
    assert found["columns"] == {"predicted_ill": said.tolist()}
    assert found["accuracy"] == np.mean(said == truth) > 0.8
    chance = hs.load_model(released).predict_proba(home / "held-out.csv")[:, 1]
    ranked = roc_auc_score([label == "no" for label in truth], chance)
    assert found["auc"] == pytest.approx(ranked) and ranked > 0.8
    # A target that nobody has filled in is no reason to refuse.
    empty = write(tmp_path / "empty.csv", [{**row, "ill": ""} for row in rows(3, 4)])
    result = call("predict", released, empty)
    assert len(result.stdout.splitlines()) == 5 and "not tested" in result.stderr
    assert "accuracy" not in result.stderr


def test_a_regression_predicts_in_its_units(home, tmp_path, monkeypatch):
    monkeypatch.setattr(quick, "NUMBERS", 60)
    schema = hs.Schema({"age": hs.Number(0, 120), "dose": hs.Number(5, 25)}, target="dose")
    schema.save(tmp_path / "schema.toml")
    tables = [
        write(tmp_path / f"{k}.csv", [{**r, "dose": 5 + float(r["age"]) / 6} for r in rows(k)])
        for k in range(2)
    ]
    call("fit", tmp_path / "schema.toml", *tables, "--epsilon", 500, "--out", tmp_path / "out")
    result = call("predict", tmp_path / "out" / "released", tables[0])
    said = [float(line) for line in result.stdout.splitlines()[1:]]
    assert 4 < min(said) < max(said) < 26 and "root mean squared error on" in result.stderr
    with pytest.raises(ValueError, match="--probabilities must be left out for 'dose'"):
        call("predict", tmp_path / "out" / "released", tables[0], "--probabilities")


def test_errors_of_a_regression_are_in_its_own_unit(tmp_path, monkeypatch):
    monkeypatch.setattr(quick, "NUMBERS", 20)
    schema = hs.Schema({"age": hs.Number(0, 120), "dose": hs.Number(5, 25)}, target="dose")
    schema.save(tmp_path / "schema.toml")
    tables = [
        write(tmp_path / f"{k}.csv", [{**r, "dose": 5 + float(r["age"]) / 6} for r in rows(k)])
        for k in range(3)
    ]
    words = ["fit", tmp_path / "schema.toml", *tables[:2], "--test", tables[2], "--epsilon", 500]
    result = call(*words, "--out", tmp_path / "out", "--json")
    found = json.loads(result.stdout)
    model = hs.load_model(tmp_path / "out" / "released")
    truth = np.array([5 + float(row["age"]) / 6 for row in rows(2)])
    error = np.sqrt(np.mean((model.predict(tables[2]) - truth) ** 2))
    assert found["error"] == pytest.approx(error, rel=1e-5)
    assert found["released"]["error"] == pytest.approx(error, rel=1e-5)
    assert found["guessing"] == pytest.approx(truth.std())
    assert found["r2"] == pytest.approx(1 - error**2 / truth.var(), rel=1e-4)
    # A tenth of its range would be 2: these are no numbers on the scale from -1 to 1.
    assert 0 < found["without_noise"] < truth.std() and found["alone"] > 0
    assert found["released"]["accuracy"] is None
    assert '"nan"' not in result.stdout and found["metrics"]["tracking_error"]["mean"] is None
    page = (tmp_path / "out" / "private-report.html").read_text()
    assert "root mean squared, in the unit of &#39;dose&#39;" in page
    noisy = call(*words[:-1], 0.01, "--out", tmp_path / "two", "--seed", 3)
    said = " ".join(noisy.output.split())
    assert "in the unit of 'dose'" in said and "R^2 -" in said
    assert f"{truth.std():.4g} always naming the mean" in said
    assert f"no better than always naming the mean (error {truth.std():.4g}" in said


def test_what_is_cut_off_after_its_training_says_how_to_go_on(home, words, tmp_path, monkeypatch):
    """The command that it offers is the one that works: the folder named, and no seed."""
    original, given = fitting.simulate, ["hearsay", *map(str, words)]
    monkeypatch.setattr("sys.argv", [*given, "--seed", "5", "--overwrite"])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(beside, "with_beside", stop)
    told = call(*words, "--seed", 5, code=130).output
    (folder,) = Path("out").iterdir()
    assert (
        f"Interrupted. {KEPT} To go on: {shlex.join([*given, '--out', f'{folder}'])} --resume"
        in told
    )

    # A disk that is full: the same.
    monkeypatch.setattr(beside, "with_beside", full)
    with pytest.raises(ValueError, match=rf"No space left.*{KEPT} Make room, .*--resume"):
        call(*words, "--out", folder, "--resume")
    # Of a run that was to be replaced, and still is there, nothing is to be continued.
    monkeypatch.setattr(fitting, "simulate", stop)
    told = call(*words, "--out", folder, "--overwrite", code=130).output
    assert "Nothing is left of it. To start it again" in told

    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(fitting, "rehearse", quick.rehearse)
    monkeypatch.setattr(fitting, "simulate", original)
    call(*words, "--out", folder, "--resume")
    assert (folder / "private-seed.txt").read_text() == "5"


def test_a_second_fit_on_the_same_tables_says_what_both_cost(home, words, tmp_path):
    """Known from the folders beside it: renamed tables, and a fit that was overwritten, too."""
    first, second = tmp_path / "first", tmp_path / "second"
    assert "adds its epsilon" in call(*words, "--out", first, "--seed", 3).output
    again = call(*words, "--out", second, "--seed", 3, "--json")
    assert json.loads(again.stdout)["before"] == [], "the same model again tells nothing more"
    copy = tmp_path / "copied.csv"
    copy.write_bytes(Path(words[3]).read_bytes())
    told = call("fit", words[1], copy, *words[5:], "--out", first, "--overwrite")
    assert "These tables, or some of them, were fitted once before (first)." in told.stderr
    assert "together they cost epsilon 100 at delta 2e-05, and not 50" in told.stderr
    found = call(*words[:-2], "--out", tmp_path / "third", "--seed", 3, "--delta", 1e-6, "--json")
    assert len(json.loads(found.stdout)["before"]) == 2, "what was overwritten, too"
    assert "The seed is the same: so is the noise of both" in found.stderr
    (first / KEPT_TABLES).write_text("[[0]]")
    (second / KEPT_TABLES).unlink()
    third = call(*words, "--out", second, "--overwrite", "--adjacency", "replace")
    assert "once before (third). Who" in third.stderr and "hearsay.add_up" in third.stderr


def test_noise_is_not_blamed_where_a_range_is_far_too_wide(home, tmp_path, monkeypatch):
    wide = hs.Schema({"age": hs.Number(0, 1e9), "ill": SCHEMA.columns["ill"]}, target="ill")
    wide.save(tmp_path / "wide.toml")
    tables = [home / f"{name}.csv" for name in ("north", "south", "held-out")]
    words = ["fit", tmp_path / "wide.toml", *tables[:2], "--test", tables[2], "--epsilon", 50]
    told = " ".join(call(*words, "--out", tmp_path / "out").stderr.split())
    assert "without noise: a larger epsilon will not help" in told and 'scale = "log"' in told
    before = told.partition("rehearsed:")[0]
    assert "age: nine tenths in a tenth of 0..1e+09" in before, "said before it is paid for"
    assert before.count("no epsilon covers a range that is read off these rows") == 1
    files = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert not any(b"nine tenths" in path.read_bytes() for path in files)
    predicted = call("predict", tmp_path / "out" / "released", tables[2])
    assert "read off these rows" not in predicted.stderr, "nothing is learned from these"


def stop(*_: Any, **__: Any) -> Any:
    raise KeyboardInterrupt


def full(*_: Any, **__: Any) -> Any:
    raise OSError(errno.ENOSPC, "cannot write it: No space left on device", "x")


def test_a_fit_without_a_schema_says_what_to_type(home, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    north = write(tmp_path / "north ward.csv", rows(0, 4))
    drafted = "hearsay schema 'north ward.csv' -o schema.toml drafts it; fill it in, then hearsay"
    with pytest.raises(ValueError, match=f"{drafted} fit schema.toml 'north ward.csv' b.csv"):
        call("fit", north.name, "b.csv")
    call("schema", north.name, "-o", "schema.toml", "--target", "ill")
    with pytest.raises(ValueError, match="there is a schema.toml here, then hearsay fit schema"):
        call("fit", north.name)
    with pytest.raises(ValueError, match="TABLES must be given, one file for every agent"):
        call("fit", home / "schema.toml")
    with pytest.raises(ValueError, match="model must be one of linear, mlp, .*got 'nosuch'"):
        call("fit", home / "schema.toml", north, "--model", "nosuch")
    with pytest.raises(ValueError, match="--agents must be left out with several tables"):
        call("fit", home / "schema.toml", north, home / "south.csv", "--agents", 3)
    with pytest.raises(ValueError, match="must be another table than .*, and has the same rows"):
        copy = write(tmp_path / "copy.csv", rows(0, 4)[::-1])
        call("fit", home / "schema.toml", north, home / "south.csv", copy, "--out", "o")


def test_one_file_is_one_agent_unless_it_is_dealt_out(home, tmp_path, monkeypatch):
    monkeypatch.setattr("hearsay.report.run.run_report", lambda run, folder, *_: folder)
    monkeypatch.setattr("hearsay.tradeoff.beside.with_beside", lambda run, *_: run)
    monkeypatch.setattr(quick, "CLASSES", 2)
    folder = tmp_path / "a folder"
    words = ["fit", home / "schema.toml", home / "north.csv", "--epsilon", 50, "--seed", 4]
    alone = call(*words, "--out", folder)
    said = " ".join(alone.output.split())
    assert "One file is one agent, which learns by itself" in said and "--agents 5" in said
    assert "of the one agent" in said and "all 1 agents" not in said
    # What is suggested can be typed.
    assert f"hearsay predict '{folder}/released' NEW.csv" in alone.output
    dealt = call(*words, "--agents", 3, "--out", tmp_path / "dealt")
    assert "One file" not in dealt.output and "of all 3 agents" in dealt.output
    assert dealt.stderr.count("north.csv: 50 rows") == 1
    model = hs.load_model(tmp_path / "dealt" / "released")
    assert "--agents 3" in model.made["command"]


def test_defaults_are_the_same_wherever_one_starts():
    words = {
        option.name: option.default
        for name in ("fit", "init")
        for option in _command(name).params
        if option.name in ("epsilon", "delta")
    }
    assert words == {"epsilon": config.EPSILON, "delta": config.DELTA}
    for estimator in (hs.NetworkClassifier(), hs.NetworkRegressor()):
        assert (estimator.epsilon, estimator.delta) == (config.EPSILON, config.DELTA)


def _command(name: str) -> Any:
    known = typer.main.get_command(commands.app).commands
    return (known | known["network"].commands)[name]


def test_what_is_wrong_is_named(made, home, tmp_path):
    released = made[0] / "released"
    short = write(tmp_path / "short.csv", rows(3, 4), ["patient", "ward"])
    with pytest.raises(ValueError, match="short.csv must have the schema's columns, and has no"):
        call("predict", released, short)
    with pytest.raises(ValueError, match="--keep must name columns of .*, which has no 'name'"):
        call("predict", released, home / "new.csv", "--keep", "name")
    with pytest.raises(ValueError, match="must be the folder of a released model"):
        call("predict", made[0], home / "new.csv")
    plain = hs.problems.ridge(agents=2, records=30, dimension=3)
    run = hs.simulate(hs.dsgd(noise=0.1), plain, hs.graphs.ring(2), steps=2)
    run.release(folder=tmp_path / "plain")
    with pytest.raises(ValueError, match="must have a schema to read tables"):
        call("predict", tmp_path / "plain", home / "new.csv")


def test_a_fit_answers_in_json_and_refuses_to_replace_another(made, home, words, tmp_path):
    found = json.loads(call(*words, "--out", tmp_path / "one", "--json").stdout)
    assert found.keys() == documented("fit")
    assert found["released"]["folder"] == str(tmp_path / "one" / "released")
    assert found["epsilon"] <= 50 and found["adjacency"] == "zero-out"
    with pytest.raises(ValueError, match="holds a run: --resume continues it"):
        call(*words, "--out", made[0])
    with pytest.raises(ValueError, match="--seed must be left out with --resume"):
        call(*words, "--out", made[0], "--resume", "--seed", 4)
    with pytest.raises(ValueError, match="--resume needs --out with the folder of a fit"):
        call(*words, "--out", tmp_path / "none", "--resume")
    # Its seed is a new one, unless it is given.
    seeds = {(folder / "private-seed.txt").read_text() for folder in (made[0], tmp_path / "one")}
    assert len(seeds) == 2


def test_a_fit_that_was_interrupted_goes_on(made, words, tmp_path, monkeypatch):
    kept = simulating.Session.advance

    def advance(self: Any, steps: int) -> None:
        if self.step >= 20:
            raise KeyboardInterrupt
        kept(self, steps)

    with monkeypatch.context() as patch:
        patch.setattr(simulating.Session, "advance", advance)
        stopped = call(*words, "--out", tmp_path / "out", "--seed", 4, code=130)
    assert KEPT in stopped.stderr and stopped.stderr.strip().endswith("--resume")
    assert not (tmp_path / "out" / "released").exists()
    call(*words, "--out", tmp_path / "out", "--resume")
    models = [hs.load_model(one / "released").params for one in (tmp_path / "out", made[0])]
    np.testing.assert_allclose(models[0], models[1], rtol=1e-9)
