"""A researcher's package of its own (examples/gossip_package), from the command line, with nothing
of hearsay touched: listed, run, certified, verified, checked, audited, reported, deployed.

Its metadata are made by setuptools from its own pyproject.toml, into a folder on the path: what pip
leaves of it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import hearsay as hs
from hearsay.audit import checking
from hearsay.cli import commands
from hearsay.config import build_problem
from hearsay.deploy.deployment import deployment
from hearsay.deploy.settings import load
from tests.deploy.networks import run_threads, write

ROOT = Path(hs.__file__).parents[1]
EXAMPLE = ROOT / "examples" / "gossip_package"
PAGE = ROOT / "docs" / "adding-an-algorithm.md"
SMALL = ["--loss", "ridge", "--agents", "3", "--set", "problem.records=20"]
SMALL += ["--set", "problem.dimension=2"]
STEPS = ["--steps", "6"]


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The folder that the package is installed into."""
    source = tmp_path_factory.mktemp("source") / "package"
    target = tmp_path_factory.mktemp("site")
    shutil.copytree(EXAMPLE, source, ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", "from setuptools import setup; setup()",
         "egg_info", "--egg-base", str(target)],
        cwd=source, check=True, capture_output=True,
    )  # fmt: skip
    shutil.copy(source / "plain_gossip.py", target)
    return target


@pytest.fixture
def installed(site, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(site)
    monkeypatch.setenv("HEARSAY_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    sys.modules.pop("plain_gossip", None)
    yield tmp_path
    sys.modules.pop("plain_gossip", None)


def call(*words: object, code: int = 0) -> str:
    result = CliRunner().invoke(commands.app, [str(w) for w in words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.output


def test_the_module_is_short():
    assert len((EXAMPLE / "plain_gossip.py").read_text(encoding="utf-8").splitlines()) <= 70


def test_it_is_listed_without_being_imported(installed):
    assert "plain_gossip:PlainGossip of plain-gossip" in call("algorithms")
    assert "plain_gossip" not in sys.modules


@pytest.mark.parametrize("name", ["plain-gossip", "plain_gossip:PlainGossip"])
def test_it_is_run_certified_verified_and_reported(installed, name):
    call("run", name, *SMALL, *STEPS, "--seeds", "2", "--epsilon", "5", "--out", "run")
    assert "plain-gossip" in Path("run/private-report.html").read_text(encoding="utf-8")
    found = json.loads(Path("run/certificate.json").read_text())
    assert found["algorithm"] == "plain-gossip"
    assert max(budget["epsilon"] for budget in found["budgets"]) <= 5
    said = call("verify", "run/certificate.json")
    assert "all 3 numbers follow" in said and "nothing has checked it" in said
    text = call("certify", name, *SMALL, "--noise", "40", "--horizon", "6")
    assert "author of the algorithm says" in re.sub(r"\s+", " ", text)
    call("plan", name, *SMALL, "--horizon", "6", "--epsilon", "3", "--out", "plan.toml")
    typed = [name] if ":" in name else []
    call("run", *typed, "--config", "plan.toml", "--seeds", "1", "--out", "planned")
    with pytest.raises(ValueError, match=r"left|give no other|needs --out|checkpoint|holds"):
        call("run", "dsgd", "--resume", "--out", "run")
    call("run", *typed, "--resume", "--out", "run")


def test_a_folder_of_a_run_alone_does_not_import_its_algorithm(installed):
    place = "plain_gossip:PlainGossip"
    call("run", place, *SMALL, *STEPS, "--seeds", "1", "--epsilon", "5", "--out", "run")
    for words in (["--resume", "--out", "run"], ["--config", "run/config.toml", "--out", "new"]):
        with pytest.raises(ValueError, match="must not make Python import a module by itself"):
            call("run", *words)


@pytest.mark.slow
def test_it_is_audited(installed):
    audit = ["audit", "plain-gossip", *SMALL, "--steps", "2", "--epsilon", "2", "--agent", "0"]
    said = call(*audit, "--only", "search", "--out", "audit")
    assert "Nothing failed" in said
    assert Path("audit/private-report.html").exists()


@pytest.mark.slow
def test_it_is_compared_and_attacked_by_runs(installed):
    call("compare", "plain-gossip", "dsgd", *SMALL, *STEPS, "--seeds", "1", "--out", "both")
    assert "plain-gossip" in Path("both/private-report.html").read_text(encoding="utf-8")
    audit = ["audit", "plain-gossip", *SMALL, "--steps", "2", "--epsilon", "2", "--runs", "2000"]
    assert "Nothing failed" in call(*audit, "--out", "audit")


def wrong(folder: Path, leak: str) -> str:
    """The example with another leak, by its place."""
    text = (EXAMPLE / "plain_gossip.py").read_text(encoding="utf-8")
    (folder / "wrong_gossip.py").write_text(text.replace("self.pull.scaled(heard)", leak))
    return "wrong_gossip:PlainGossip"


def test_check_algorithm_ends_with_what_it_found(installed, monkeypatch):
    """With the checks that take no time; all of them are in tests/audit/test_checking.py."""
    few = {name: checking._CHECKS[name] for name in ("declaration", "affine leak")}
    monkeypatch.setattr(checking, "_CHECKS", few)
    monkeypatch.setattr(checking, "CHECKS", tuple(few))
    monkeypatch.syspath_prepend(installed)
    said = call("check-algorithm", "plain-gossip", "--set", "pull=0.5")
    assert said.count("holds ") == 2 and "Noted for this source" in said
    words = ["certify", "plain-gossip", *SMALL, "--noise", "40", "--horizon", "6"]
    said = call(*words, "--set", "algorithm.pull=0.5")
    assert "searched for counterexamples" in re.sub(r"\s+", " ", said)
    # Another coupling than the one that was checked.
    assert "nothing has checked it" in re.sub(r"\s+", " ", call(*words))
    place = wrong(installed, "self.pull.scaled(heard**2)")
    said = call("check-algorithm", place, code=4)
    sys.modules.pop("wrong_gossip", None)
    assert "FAILS  affine leak" in said and "is not to be believed" in said


@pytest.mark.slow
def test_check_algorithm_catches_a_wrong_leak(installed, monkeypatch):
    monkeypatch.syspath_prepend(installed)
    said = call("check-algorithm", "plain-gossip")
    assert said.count("holds ") == 13 and "Not shown: that no counterexample exists" in said
    said = call("check-algorithm", wrong(installed, "Constant(1.0)"), code=4)
    sys.modules.pop("wrong_gossip", None)
    for name in ("brute force", "search"):
        found = re.search(rf"FAILS  {name}:.*?found / allowed ([0-9.]+)", said, flags=re.DOTALL)
        assert found is not None and float(found[1]) > 1.5


def test_it_is_deployed(installed):
    path = write(
        installed,
        names=("alice", "bob", "carol"),
        algorithm={"name": "plain-gossip"},
        run_table={"steps": 5},
    )
    agents = run_threads(load(path), 3)
    network, plan = load(path), deployment(load(path), None)
    problem = build_problem(network.config, agents=3)
    run = hs.simulate(
        plan.algorithm, problem, plan.graph, steps=plan.messages, seeds=[3], reference=False,
        regret=False,
    )  # fmt: skip
    deployed = np.stack([agents[n].model for n in network.names])
    np.testing.assert_allclose(deployed, run.models[0], rtol=0, atol=1e-6)
    said = call("network", "check", "--config", path)
    assert "plain-gossip" in said
    assert plan.certificate.deployed and not plan.certificate.descriptions[0].checked


def commands_of_the_page() -> list[list[str]]:
    part = PAGE.read_text(encoding="utf-8").partition("## In a package of your own")[2]
    block = re.search(r"```console\n(.*?)```", part.partition("\n## ")[0], flags=re.DOTALL)
    assert block is not None
    lines = block[1].replace("\\\n", " ").splitlines()
    return [line.removeprefix("$ ").split() for line in lines if line.startswith("$ ")]


@pytest.mark.slow
def test_the_commands_on_the_page_run(site, tmp_path):
    """As processes, in this order; what installs is done already. The stamp of the check is in the
    certificate that comes after it.
    """
    path = os.pathsep.join([str(site), str(ROOT)])
    env = {**os.environ, "PYTHONPATH": path, "HEARSAY_CACHE": str(tmp_path / "cache")}
    said = {}
    for words in commands_of_the_page():
        if words[0] != "hearsay":
            assert words[:2] == ["pip", "install"]
            continue
        done = subprocess.run(
            [sys.executable, "-m", "hearsay.cli", *words[1:]],
            cwd=tmp_path, env=env, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, (words, done.stderr)
        said[words[1]] = done.stdout
    assert {"algorithms", "check-algorithm", "run", "verify", "audit"} <= set(said)
    assert "Noted for this source" in said["check-algorithm"]
    assert "found none" in re.sub(r"\s+", " ", said["verify"])
