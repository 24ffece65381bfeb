"""`--costs` and [costs]: simulated time and traffic of runs and comparisons."""

from __future__ import annotations

import json
import tomllib

import pytest
from typer.testing import CliRunner

from hearsay.cli import commands
from hearsay.report import comparison as comparison_page
from hearsay.report import run as run_page
from hearsay.simulation import engine

TINY = ["--loss", "ridge", "--agents", "3", "--set", "problem.records=20"]
TINY += ["--set", "problem.dimension=2", "--steps", "4", "--seeds", "1", "--noise", "0.5"]
COSTS = "latency=0.1,bandwidth=1e6,compute=lognormal:0.2:0"


def call(*words, code=0):
    result = CliRunner().invoke(commands.app, [*map(str, words)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result


def test_a_run_and_a_comparison_say_what_they_take(tmp_path, monkeypatch):
    pages = []

    def page(found, folder, *_, timelines=None, **__):
        pages.append(timelines)
        return folder

    monkeypatch.setattr(run_page, "run_report", page)
    monkeypatch.setattr(comparison_page, "comparison_report", page)
    words = ["run", "dsgd", *TINY, "--costs", COSTS, "--out", tmp_path / "run"]
    found = json.loads(call(*words, "--json").stdout)
    assert found["costs"]["seconds"] == pytest.approx(4 * 0.3, rel=0.01)
    rows = (tmp_path / "run" / "costs.csv").read_text().splitlines()
    assert rows[-1].split(",")[2] == str(found["costs"]["bytes"])
    # The file that repeats the run has them too.
    kept = tomllib.loads((tmp_path / "run" / "config.toml").read_text())["costs"]
    assert kept == {"latency": 0.1, "bandwidth": 1e6, "compute": "lognormal:0.2:0"}
    both = ["compare", "dsgd", "dola", *TINY, "--costs", COSTS, "--out", tmp_path / "both"]
    shown = call(*both, "--json").stdout
    assert json.loads(shown)["runs"]["dola"]["costs"] == found["costs"]
    assert list(pages[-1]) == ["dsgd", "dola"]
    assert pages[-1]["dsgd"].seconds[-1] == found["costs"]["seconds"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("latency", "--costs must be key=value,key=value, got 'latency'"),
        ("latency=1", r"bandwidth in \[costs\] must be given"),
        ("speed=1", r"key in \[costs\] must be one of"),
    ],
)
def test_mistakes_are_found_before_anything_runs(tmp_path, text, said, monkeypatch):
    monkeypatch.setattr(engine, "advance", lambda *_, **__: pytest.fail("a run was started"))
    for words in (["run", "dsgd"], ["compare", "dsgd", "dola"]):
        with pytest.raises(ValueError, match=said):
            call(*words, *TINY, "--costs", text, "--out", tmp_path)


def test_with_patience_the_run_loses_what_comes_too_late(tmp_path, monkeypatch):
    monkeypatch.setattr(run_page, "run_report", lambda run, folder, *_: folder)
    late = "latency=0.1,bandwidth=1e6,compute=lognormal:0.2:0.8:0.5,patience=0.15"
    words = ["run", "output-perturbation", *TINY, "--costs", late, "--out", tmp_path]
    found = json.loads(call(*words, "--json").stdout)
    heard = (tmp_path / "hearing.csv").read_text()
    assert found["costs"]["seconds"] > 0 and heard
    with pytest.raises(ValueError, match=r"patience in \[costs\] must be left out with \[faults\]"):
        call(*words, "--set", "faults.loss=0.2", "--overwrite")
    plain = late.replace(",patience=0.15", "")
    with pytest.raises(ValueError, match="faults must be those that a patience makes"):
        call(*words[:-4], "--costs", plain, "--set", "faults.loss=0.2", "--out", tmp_path / "two")


def test_costs_of_a_resumed_run_are_its_own(tmp_path):
    (tmp_path / "config.toml").write_text('[algorithm]\nname = "dsgd"\n')
    with pytest.raises(ValueError, match="--resume continues the run that is in --out as it is"):
        call("run", "--resume", "--out", tmp_path, "--costs", COSTS)
