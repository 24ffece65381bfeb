"""A network is named by its net.toml or the folder in which that lies, or not at all in there."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from hearsay.cli import agent, network, network_state, network_up
from hearsay.cli.network_options import net_file
from hearsay.cli.screen import console, spent_table, typeable

COMMANDS = (
    *(agent.agent, network.keys, network.check_network, network.plan_network, network_up.up),
    *(network_state.status, network_state.report, network_state.release),
)


@pytest.fixture
def wards(tmp_path) -> Path:
    (tmp_path / "wards").mkdir()
    (tmp_path / "wards" / "net.toml").touch()
    (tmp_path / "empty").mkdir()
    return tmp_path / "wards"


def test_every_way_leads_to_the_same_file(wards, monkeypatch):
    file = wards / "net.toml"
    for ways in ((wards, None), (file, None), (None, file), (None, wards), (file, file)):
        assert net_file(*ways) == file
    monkeypatch.chdir(wards)
    assert net_file(None, None) == Path("net.toml")
    # Another name is what it is; what is not there is for the one who reads it to say.
    assert net_file(wards / "second.toml", None) == wards / "second.toml"


def test_what_names_no_network_says_what_does(wards, monkeypatch):
    monkeypatch.chdir(wards.parent / "empty")
    with pytest.raises(ValueError, match=r"must be named, and there is no net\.toml in this"):
        net_file(None, None)
    with pytest.raises(ValueError, match=r"empty must hold a net\.toml"):
        net_file(wards.parent / "empty", None)
    with pytest.raises(ValueError, match="must be named once, got .* and --config"):
        net_file(wards, wards / "other.toml")


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.__name__)
def test_every_command_of_a_network_takes_both(command):
    asked = inspect.signature(command).parameters
    assert {"place", "file"} <= set(asked) and "config" not in asked


def run(**more):
    usual = {"run": "first", "messages": 5, "of": 9, "spent": 0.5, "counted": 1.0, "delta": 1e-5}
    usual |= {"adjacency": "zero-out", "mechanism": "gaussian", "began": 0.0, "last": 1.0}
    return {**usual, **more}


def agent_of(*runs, delta=1e-5):
    facts = {"runs": list(runs), "total": 1.5, "delta": delta, "adjacency": "zero-out"}
    return {**facts, "all_collude": None}


def printed(found) -> str:
    with console.capture() as seen:
        console.print(spent_table(found), width=100)
    return " ".join(seen.get().split())


def test_what_all_budgets_share_is_said_once():
    said = printed({"alice": agent_of(run(), run()), "bob": agent_of(run())})
    assert said.count("zero-out") == said.count("1e-05") == 1
    assert "every ε at δ = 1e-05 (zero-out)" in said


@pytest.mark.parametrize(
    "other",
    [
        agent_of(run(delta=1e-6)),
        agent_of(run(), delta=1e-6),
        agent_of(run(adjacency="replace")),
        agent_of(run(delta=None, adjacency=None)),
    ],
)
def test_what_they_do_not_share_stands_with_each(other):
    said = printed({"alice": agent_of(run()), "bob": other})
    assert "every ε" not in said and said.count("zero-out") >= 3


def test_no_file_is_taken_for_an_option():
    said = typeable("hearsay", "network", "up", Path("-dash"), "--page", Path("a b.html"))
    assert said == "hearsay network up ./-dash --page 'a b.html'"
