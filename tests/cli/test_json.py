"""`--json`: one object on standard output, with the keys that docs/command-line.md lists."""

from __future__ import annotations

import json
import math
import re
import tomllib
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

import hearsay as hs
from hearsay._version import VERSION
from hearsay.audit import checking, dlg, whole
from hearsay.audit.residuals import Residuals
from hearsay.cli import commands, json_output
from hearsay.deploy import launch
from hearsay.experiments import EXPERIMENTS, demo
from hearsay.report import attack as attack_page
from hearsay.report import comparison as comparison_page
from hearsay.report import frontier as frontier_page
from hearsay.report import run as run_page
from hearsay.tradeoff import running
from tests.deploy.networks import write
from tests.tradeoff.test_frontier import fake

PAGE = Path(__file__).resolve().parents[2] / "docs" / "command-line.md"
ROWS = dict(re.findall(r"^\| `hearsay ([\w -]+)` \| (.+) \|$", PAGE.read_text(), re.MULTILINE))
# These print no numbers.
WITHOUT = {"schema", "network init", "network keys"}
RIDGE = ["--loss", "ridge", "--agents", "3"]
RIDGE += ["--set", "problem.records=20", "--set", "problem.dimension=2"]
TINY = [*RIDGE, "--steps", "4", "--seeds", "1", "--noise", "0.5"]


def documented(command: str) -> set[str]:
    """The keys that the page says."""
    row = ROWS[command]
    like = re.match(r"those of `hearsay (\w+)`", row)
    return (documented(like[1]) if like else set()) | set(re.findall(r"`(\w+)`", row))


def answered(*words: Any, code: int = 0) -> dict[str, Any]:
    result = CliRunner().invoke(commands.app, [*map(str, words), "--json"])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    # NaN and Infinity are no JSON.
    return json.loads(result.stdout, parse_constant=lambda word: pytest.fail(word))


@pytest.fixture
def unpainted(monkeypatch):
    """Pages without pictures: they take most of the time, and other tests draw them."""

    def page(found, folder, *_, **__):
        path = Path(folder) / "private-report.html"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        return path

    monkeypatch.setattr(run_page, "run_report", page)
    monkeypatch.setattr(comparison_page, "comparison_report", page)
    monkeypatch.setattr(frontier_page, "frontier_report", page)
    monkeypatch.setattr(attack_page, "attack_report", page)


def known() -> dict[str, set[str]]:
    """Every command with its options."""
    found: dict[str, set[str]] = {}

    def walk(command: Any, path: str) -> None:
        for name, inner in getattr(command, "commands", {}).items():
            walk(inner, f"{path} {name}".strip())
        if not hasattr(command, "commands"):
            found[path] = {option for one in command.params for option in one.opts}

    walk(typer.main.get_command(commands.app), "")
    return found


def test_every_command_that_prints_numbers_has_it_and_is_on_the_page():
    with_it = {name for name, options in known().items() if "--json" in options}
    assert with_it == set(ROWS) == set(known()) - WITHOUT


def test_a_run_and_a_comparison(tmp_path, unpainted):
    found = answered("run", "dsgd", *TINY, "--out", tmp_path / "run")
    assert found.keys() == documented("run")
    assert found["epsilon"] == max(b["epsilon"] for b in found["certificate"]["budgets"])
    assert found["certificate"] == json.loads((tmp_path / "run" / "certificate.json").read_text())
    error = found["metrics"]["test_error"]
    rows = (tmp_path / "run" / "private-metrics.csv").read_text().splitlines()
    last = dict(zip(rows[0].split(","), rows[-1].split(","), strict=True))
    assert error == {"mean": pytest.approx(float(last["test_error"])), "deviation": 0.0}
    assert found["released"].keys() == documented("network release")
    assert Path(found["report"]).is_file() and Path(found["released"]["folder"]).is_dir()
    both = answered("compare", "dsgd", "dola", *TINY, "--out", tmp_path / "both")
    assert both.keys() == documented("compare") and list(both["runs"]) == ["dsgd", "dola"]
    of_a_run = documented("run") - {"folder", "report", "released"}
    assert all(one.keys() == of_a_run for one in both["runs"].values())
    # Times are not the same twice.
    same = [{**one, "seconds": 0} for one in (both["runs"]["dsgd"], found)]
    assert same[0] == {key: same[1][key] for key in of_a_run}


def test_a_plan_and_what_a_verifier_says(tmp_path):
    words = ["plan", "dsgd", *RIDGE, "--epsilon", "2", "--horizon", "5"]
    found = answered(*words, "--out", tmp_path / "plan.toml")
    assert found.keys() == documented("plan") and found["epsilon"] == pytest.approx(2.0)
    file = tmp_path / "certificate.json"
    file.write_text(json.dumps(found["certificate"]))
    good = answered("verify", file)
    assert good.keys() == documented("verify") and good["holds"]
    assert good["files"][0]["epsilon"] == found["epsilon"]
    file.write_text(json.dumps({**found["certificate"], "horizon": 50.0}))
    (tmp_path / "nothing.json").write_bytes(b"\xff")
    bad = answered("verify", file, tmp_path / "nothing.json", code=2)
    assert [one["holds"] for one in bad["files"]] == [False, False] and not bad["holds"]
    assert "its digest does not match" in bad["files"][0]["wrong"][0]


def test_infinity_is_a_word_and_a_refusal_leaves_nothing_on_standard_output(tmp_path):
    words = ["certify", "dsgd", *RIDGE, "--noise", "none", "--horizon", "3"]
    assert answered(*words, code=3)["budgets"][0]["epsilon"] == "infinite"
    result = CliRunner().invoke(commands.app, ["run", "dsgd", *RIDGE, "--noise", "none", "--json"])
    assert isinstance(result.exception, ValueError) and result.stdout == ""
    shape = json_output.plain({1: (np.float32(2), math.nan, Path("a")), "x": np.eye(2)})
    assert shape == {"1": [2.0, None, "a"], "x": [[1.0, 0.0], [0.0, 1.0]]}


def test_a_rehearsal_has_the_keys_that_the_page_says():
    found = SimpleNamespace(
        choice=SimpleNamespace(to_json=dict), words="", score=0.9, clean=0.95, alone=0.7,
        guess=0.6, warnings=(),
    )  # fmt: skip
    said = PAGE.read_text().partition("\nA rehearsal ")[2].partition("\n\n")[0]
    shape = json_output.of_rehearsal(found)
    assert {*shape, *shape["made_up"]} == set(re.findall(r"`(\w+)`", said))


def test_the_lists(tmp_path):
    found = answered("algorithms")
    assert found.keys() == documented("algorithms")
    assert {"dsgd", "ldp-online"} <= {one["name"] for one in found["algorithms"] if one["usable"]}
    files = answered("data", "--data-dir", tmp_path)
    assert files.keys() == documented("data") and files["files"][0]["key"] == "mushrooms"


def test_a_frontier_and_the_demonstration(tmp_path, monkeypatch, unpainted):
    monkeypatch.setattr(running, "measure", fake)
    words = ["--epsilon", "1,2", "--splits", "1", "--seeds", "1", "--series", "alone"]
    found = answered("frontier", "digits", *words, "--out", tmp_path / "one")
    assert found.keys() == documented("frontier") and found["epsilons"] == [1.0, 2.0]
    alone = [one for one in found["points"] if one["series"] == "alone"]
    assert [one["accuracy"]["mean"] for one in alone] == pytest.approx([0.6, 0.7])

    def released(folder: Path) -> Any:
        problem, graph = hs.problems.ridge(agents=3, records=20, dimension=2), hs.graphs.ring(3)
        run = hs.simulate(hs.dsgd(noise=1), problem, graph, steps=3, reference=False, regret=False)
        return run.release(folder=folder)

    monkeypatch.setattr(demo, "release", released)
    shown = answered("demo", "--out", tmp_path / "two")
    assert shown.keys() == documented("demo")
    assert shown["released"].keys() == documented("network release")


def test_checks_audits_and_attacks(tmp_path, monkeypatch, unpainted):
    check = checking.Check("pure", "the same twice", False, "it is not")
    report = checking.Report(hs.dsgd(), (check,), False)
    monkeypatch.setattr(checking, "check_algorithm", lambda *_, **__: report)
    found = answered("check-algorithm", "dsgd", code=4)
    assert found.keys() == documented("check-algorithm") and not found["passed"]
    assert found["checks"] == [check._asdict()]

    noise = Residuals((), 1e-3, "laplace", "laplace", 2, 2, 0, np.empty(0))
    monkeypatch.setattr(whole, "residuals", lambda *args, **options: noise)
    audited = answered("audit", "dsgd", *TINY[:-4], "--noise", "1", "--only", "noise",
                       "--out", tmp_path / "audit")  # fmt: skip
    assert audited.keys() == documented("audit")
    kept = json.loads((tmp_path / "audit" / "private-audit.json").read_text())
    assert kept == {key: audited[key] for key in kept}

    one = SimpleNamespace(
        guess=SimpleNamespace(labels=np.array([1])), true_labels=np.array([1]), seconds=2.0
    )
    sweep = SimpleNamespace(
        levels=(0.0, 1.0), mean=np.array([0.1, 0.2]), standard_error=np.zeros(2),
        found=((one,), (one,)), blind=0.3, left=(),
    )  # fmt: skip
    one.error = 0.1
    monkeypatch.setattr(dlg, "against_noise", lambda *_, **__: sweep)
    words = ["attack", "dsgd", "--data", "digits", "--model", "mlp", "--agents", "2"]
    attacked = answered(*words, "--noise", "1", "--clip", "1", "--out", tmp_path / "attack")
    assert attacked.keys() == documented("attack")
    assert attacked["levels"][1] == {
        "noise": 1.0, "error": 0.2, "standard_error": 0.0, "labels_right": 1, "targets": 1,
        "seconds": 2.0,
    }  # fmt: skip


def test_an_experiment(tmp_path, monkeypatch):
    def experiment(folder, **options):
        (folder / "ends.csv").write_text("a\n1\n")
        return folder / "report.html"

    monkeypatch.setitem(EXPERIMENTS, "p1-mushrooms", experiment)
    found = answered("reproduce", "p1-mushrooms", "--seeds", "2", "--out", tmp_path)
    assert found.keys() == documented("reproduce")
    assert (found["seeds"], found["tables"]) == (2, [str(tmp_path / "ends.csv")])


def test_a_network_before_it_runs(tmp_path):
    path = write(tmp_path)
    found = answered("network", "check", "--config", path)
    assert found.keys() == documented("network check") and found["messages"] == 12
    assert found["epsilon"] == pytest.approx(8.0, rel=1e-6)
    alice = answered("agent", "--config", path, "--name", "alice", "--check", "--simulate-noise", 1)
    assert alice.keys() == documented("agent") and alice["model"] is None
    assert len(alice["certificate"]["budgets"]) == 1
    assert answered("network", "spent", path) == {}


def test_a_folder_to_start_from_has_the_budget_that_was_asked_for(tmp_path, monkeypatch):
    monkeypatch.setattr(launch, "choose", lambda config, progress: None)
    asked = ["network", "init", str(tmp_path / "net"), "--epsilon", "2", "--delta", "1e-7"]
    runner = CliRunner()
    assert runner.invoke(commands.app, [*asked, "--agents", "3", "--plain"]).exit_code == 0
    read = tomllib.loads((tmp_path / "net" / "net.toml").read_text(encoding="utf-8"))
    assert read["privacy"] == {"epsilon": 2.0, "delta": 1e-7} and len(read["agents"]) == 3


def test_all_agents_of_a_network(tmp_path, monkeypatch):
    class Fleet:
        restarts, failed = {"alice": 1, "bob": 0}, {"bob": 5}
        refused: ClassVar = {}

        def __init__(self, config, found, options):
            self.network = found
            self.processes = {name: SimpleNamespace(poll=lambda: 0) for name in found.names}
            (found.members[1].state).mkdir(parents=True)
            (found.members[1].state / "bob.log").write_text("stopped\n")

        def start(self): ...
        def stop(self, at_once): ...

        def watch(self):
            return False

    @contextmanager
    def observe(found):
        yield None

    monkeypatch.setattr(launch, "Fleet", Fleet)
    monkeypatch.setattr(launch, "observe", observe)
    found = answered("network", "up", "--config", write(tmp_path, names=("alice", "bob")), code=5)
    assert found.keys() == documented("network up")
    assert found["failed"] == {"bob": 5} and found["restarts"]["alice"] == 1


def test_the_version_and_completion(monkeypatch, tmp_path):
    runner = CliRunner()
    assert runner.invoke(commands.app, ["--version"]).stdout == f"hearsay {VERSION}\n"
    monkeypatch.setenv("HOME", str(tmp_path))
    asked = {"_HEARSAY_COMPLETE": "complete_bash", "COMP_WORDS": "hearsay net", "COMP_CWORD": "1"}
    found = runner.invoke(commands.app, [], env=asked, prog_name="hearsay")
    assert found.stdout.split() == ["network"]
    asked |= {"COMP_WORDS": "hearsay network re", "COMP_CWORD": "2"}
    found = runner.invoke(commands.app, [], env=asked, prog_name="hearsay")
    assert found.stdout.split() == ["report", "release"]
    script = runner.invoke(
        commands.app, [], env={"_HEARSAY_COMPLETE": "source_bash"}, prog_name="hearsay"
    )
    assert "complete -o default -F _hearsay_completion hearsay" in script.stdout
    assert not list(tmp_path.iterdir()), "nothing is written unless it is asked for"
