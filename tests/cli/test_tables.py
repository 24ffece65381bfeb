"""Tables on the command line: drafts of schemas, one file per agent, and what their owners see."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest

import hearsay as hs
from hearsay.problems.data import table_rows
from tests.cli.test_cli import call

SCHEMA = hs.Schema(
    {"age": hs.Number(0, 100), "ward": hs.Category(["n", "s"]), "ill": hs.Category(["no", "yes"])},
    "ill",
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for name, count in {"a": 12, "b": 9, "t": 20}.items():
        age = rng.integers(20, 120, count)
        rows = [f"p{i};{a};n;{'yes' if a > 60 else 'no'}" for i, a in enumerate(age)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["id;age;ward;ill", *rows]))
    SCHEMA.save(tmp_path / "s.toml")
    return tmp_path


TABLES = ["--schema", "s.toml", "--data", "a.csv", "--data", "b.csv"]
QUICK = ["--steps", "5", "--seeds", "1", "--noise", "1.0", "--graph", "complete"]


def test_a_draft_goes_to_the_screen_or_to_a_file_that_is_not_there_yet(folder):
    shown = call("schema", "a.csv", "--target", "ill")
    assert 'target = "ill"' in shown.stdout and "range = []  # FILL IN" in shown.stdout
    assert "somebody's" in shown.stderr and "3 lines of the draft to be filled in" in shown.stderr
    call("schema", "a.csv", "-o", "draft.toml", "--target", "ill")
    assert (folder / "draft.toml").read_text() == shown.stdout
    with pytest.raises(ValueError, match=r"draft.toml must not be there yet: .*by hand"):
        call("schema", "a.csv", "-o", "draft.toml")
    call("schema", "a.csv", "-o", "open.toml", "--target", "ill", "--ranges-are-public")
    assert hs.Schema.load("open.toml").classes == ("no", "yes")


def test_certificates_follow_from_the_schema_and_the_numbers_of_rows(folder):
    words = [
        "certify",
        *TABLES,
        "--noise",
        "1.0",
        "--graph",
        "complete",
        "--horizon",
        "9",
        "--json",
    ]
    first = call(*words)
    text = (folder / "a.csv").read_text()
    (folder / "a.csv").write_text(text.replace(";n;", ";x;").replace(";yes", ";no"))
    again = call(*words)
    assert json.loads(first.stdout) == json.loads(again.stdout)
    assert "unknown levels" in again.stderr and "unknown levels" not in first.stderr


@pytest.mark.parametrize("words", [["run"], ["compare", "dsgd", "dola", *QUICK[2:]]])
def test_every_file_is_read_once(folder, monkeypatch, words):
    read, kept = [], table_rows.Schema.encode

    def encode(self, source, **keys):
        read.append(str(source))
        return kept(self, source, **keys)

    def settled(whole, task, graph, show):
        return whole.merged({"algorithm": {"name": "dsgd", "noise": 1.0}}), found

    def simulated(algorithm, problem, *_, **__):
        # All that a run needs is there.
        assert problem.test_labels.shape == (20,)
        raise RuntimeError("far enough")

    found = SimpleNamespace(words="", warnings=())
    monkeypatch.setattr(table_rows.Schema, "encode", encode)
    monkeypatch.setattr("hearsay.tradeoff.settled.settled", settled)
    for name in ("promise", "simulate"):
        monkeypatch.setattr(f"hearsay.simulation.simulating.{name}", simulated)
    with pytest.raises(RuntimeError, match="far enough"):
        call(*words, *TABLES, "--test", "t.csv", "--out", "o")
    assert read == ["a.csv", "b.csv", "t.csv"]


@pytest.mark.slow
def test_owners_are_told_once_and_runs_repeat(folder):
    out = call("compare", "dsgd", "ldp-online", *TABLES, *QUICK, "--out", "c").stderr
    assert out.count("a.csv: 12 rows") == out.count("b.csv: 9 rows") == 1
    call("run", *TABLES, *QUICK, "--test", "t.csv", "--out", "one")
    config = (folder / "one" / "config.toml").read_text()
    assert 'data = ["../a.csv", "../b.csv"]' in config and 'schema = "../s.toml"' in config
    call("run", "--config", "one/config.toml", "--out", "two")
    first, again = (np.load(folder / name / "private-models.npz") for name in ("one", "two"))
    assert all(np.array_equal(first[key], again[key]) for key in first)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["certify", "--data", "a.csv", "--data", "b.csv"], "must be one name without a schema"),
        (["certify", "--schema", "s.toml"], r"data in \[problem\] must be given with tables"),
        (
            ["certify", *TABLES, "--loss", "ridge"],
            "loss in .problem. must be left out with a schem",
        ),
        (["certify", *TABLES, "--agents", "3"], "agents must be left out, or the 2 that have a ta"),
        (
            ["certify", *TABLES, "--partition", "iid"],
            r"key in \[problem\] must be one of data, sch",
        ),
        (["certify", "--data", "a.csv"], "data set must be one of"),
        (["frontier"], "frontier needs either a data set by its name .* or tables"),
        (["frontier", "digits", *TABLES], "frontier needs either a data set by its name"),
        (["frontier", *TABLES], "--test must name a table to test on"),
    ],
)
def test_what_is_refused(folder, words, message):
    with pytest.raises(ValueError, match=message):
        call(*words)


def test_hundreds_of_levels_are_warned_of(folder):
    levels = [f"name {i}" for i in range(300)]
    hs.Schema({**SCHEMA.columns, "ward": hs.Category(levels)}, "ill").save("s.toml")
    said = call(
        "certify", *TABLES, "--noise", "1.0", "--horizon", "3", "--graph", "complete"
    ).stderr
    assert "s.toml: 'ward' has 300 levels: they look like names of people" in said


@pytest.mark.slow
def test_a_frontier_of_tables(folder):
    words = ["--epsilon", "4", "--splits", "1", "--seeds", "1", "--series", "alone,secret-batches"]
    shown = call(
        "frontier", *TABLES, "--test", "t.csv", *words, "--graph", "complete", "--out", "f"
    )
    assert shown.stderr.count("a.csv: 12 rows") == 1
    assert (folder / "f" / "private-report.html").exists()
