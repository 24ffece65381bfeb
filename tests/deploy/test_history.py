"""The report of a network that really ran: all that the ledgers say, read without disturbing
anybody, and escaped.
"""

from __future__ import annotations

import csv
import json
import sqlite3
import sys
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

import hearsay.cli.commands as commands
from hearsay.deploy import mark
from hearsay.deploy.budget import sizes
from hearsay.deploy.history import read
from hearsay.deploy.ledger import Ledger
from hearsay.deploy.settings import load
from hearsay.privacy.certificate import show
from hearsay.report.deployed import deployed_report
from tests.cli.test_json import documented
from tests.deploy import networks
from tests.report.test_html import checked

ROUNDS = 4
EVIL = "<script>alert(1)</script>"


def network(folder, **more):
    more = {"network": {"policy": "skip", "patience": 2.5}, **more}
    return networks.write(
        folder, names=("alice", "bob", "carol"), run_table={"steps": ROUNDS}, **more
    )


def begin(path, name, noise="lattice", configuration=None) -> Ledger:
    """The ledger of an agent that has sent nothing yet."""
    found = load(path)
    about = {"run": found.run, "agent": name, "configuration": configuration or found.digest}
    return Ledger(found.members[found.index(name)].ledger, about | {"noise": noise})


def send(ledger, rounds, spent, skipped=None):
    """Messages with a budget each; `skipped` says whom the agent did without before a message."""
    networks.entered(ledger)
    for round in range(rounds):
        notes = {"skipped": (skipped or {}).get(round, []), "heard": {}}
        ledger.commit(round, b"x" * 10, spent[round], notes, {"a": np.zeros(1)})


def budgets(path) -> list[float]:
    from hearsay.deploy.deployment import deployment

    return sizes(deployment(load(path), None).certificate)


@pytest.fixture
def run(tmp_path):
    """alice is done, bob is on his way, carol is on another host."""
    path = network(tmp_path)
    limit = budgets(path)[0]
    with begin(path, "alice") as ledger:
        send(ledger, 4, [0.0, limit / 4, limit / 2, limit], {1: ["bob"], 2: ["bob", "carol"]})
        ledger.finish(3, {"a": np.ones(1)})
    with begin(path, "bob") as ledger:
        send(ledger, 2, [0.0, limit / 8])
    return path


def command(monkeypatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["hearsay", *words])
    with pytest.raises(SystemExit) as ended:
        commands.main()
    return int(ended.value.code or 0)


def test_what_the_ledgers_say_is_what_the_page_says(run, tmp_path):
    history = read(run)
    alice, bob, carol = history.agents
    limit = budgets(run)[0]
    assert (alice.done, bob.done, carol.done) == (True, False, False)
    assert (alice.messages, bob.messages, carol.messages) == (4, 2, 0)
    assert alice.spent == (0.0, limit / 4, limit / 2, limit)
    assert alice.skipped == ((0, "bob"), (1, "bob"), (1, "carol")) and not bob.skipped
    assert alice.at == tuple(sorted(alice.at)) and alice.sent == 40
    assert history.wrong == () and history.plan.certificate.names == ("alice", "bob", "carol")

    page = checked(deployed_report(history, tmp_path / "page"))
    assert page.count("<svg ") == 4  # network, rounds, budgets, skips
    assert "<td>done</td>" in page and "<td>not done</td>" in page
    assert "<td>no ledger here</td>" in page and "of carol here" in page
    assert "silent for 2.5 s" in page and ">0–1</td>" in page
    assert f">{show(limit)}</td>" in page and f">{show(limit / 8)}</td>" in page
    assert load(run).digest[:32] in page and "NOT PRIVATE" not in page
    assert "Something is wrong" not in page
    with (tmp_path / "page" / "rounds.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(r["agent"], r["message"], r["skipped_before"]) for r in rows] == [
        ("alice", "0", ""),
        ("alice", "1", "bob"),
        ("alice", "2", "bob carol"),
        ("alice", "3", ""),
        ("bob", "0", ""),
        ("bob", "1", ""),
    ]
    assert [float(r["at"]) for r in rows[:4]] == pytest.approx(alice.at, abs=1e-3)


def test_a_running_agent_is_not_disturbed(run, tmp_path):
    place = load(run).members[2].ledger
    with begin(run, "carol") as ledger:
        send(ledger, 1, [0.0])
        files = {p: p.read_bytes() for p in place.parent.iterdir() if p.name.startswith("carol")}
        assert read(run).agents[2].messages == 1
        # The index of SQLite's log also counts its readers.
        assert {p for p in files if files[p] != p.read_bytes()} <= {
            place.with_name("carol.ledger-shm")
        }
        send_more = {"skipped": [], "heard": {}}
        ledger.commit(1, b"y", 0.1, send_more, {"a": np.zeros(1)})
    assert read(run).agents[2].messages == 2


def test_a_rehearsal_is_called_one(tmp_path):
    path = network(tmp_path)
    with begin(path, "bob", noise="seed 3") as ledger:
        send(ledger, 1, [0.0])
    page = checked(deployed_report(read(path), tmp_path / "page"))
    assert "<strong>NOT PRIVATE: </strong>the noise of bob came from a seed." in page
    assert "NOT PRIVATE: this is a rehearsal" in page


def test_under_policy_wait_nobody_is_skipped(tmp_path):
    path = network(tmp_path, network={"policy": "wait"})
    with begin(path, "bob") as ledger:
        send(ledger, 1, [0.0])
    page = checked(deployed_report(read(path), tmp_path / "page"))
    assert "Nobody: under policy wait" in page


def test_hostile_names_and_paths_are_escaped(tmp_path):
    state = "<script>x"
    path = network(tmp_path / "<script>", network={"policy": "skip", "state": state})
    with begin(path, "alice") as ledger:
        send(ledger, 2, [0.0, 0.0], {1: [EVIL]})
    history = read(path)
    agents = tuple(replace(a, name=EVIL if a.name == "alice" else a.name) for a in history.agents)
    plan = replace(
        history.plan,
        certificate=replace(history.plan.certificate, names=(EVIL, "bob", "carol")),
        graph=replace(history.plan.graph, name=EVIL),
        stopped=EVIL,
    )
    named = replace(history, agents=agents, plan=plan, wrong=(EVIL,))
    page = checked(deployed_report(named, tmp_path / "page"))
    assert page.count("&lt;script&gt;") > 10
    assert "&lt;script&gt;/&lt;script&gt;x" in page  # the folder of the ledgers


def test_what_is_wrong_is_said_and_the_rest_is_drawn(run, tmp_path, monkeypatch, capsys):
    found = load(run)
    out = tmp_path / "page"
    assert command(monkeypatch, "network", "report", "--config", str(run), "--out", str(out)) == 0
    assert "report.html" in capsys.readouterr().out

    with begin(run, "carol", configuration="0" * 64) as ledger:
        send(ledger, 1, [0.0])
    with closing(sqlite3.connect(found.members[1].ledger)) as db:
        db.execute("UPDATE rounds SET epsilon = 0 WHERE round = 1")
        db.commit()
    words = ["network", "report", "--config", str(run), "--out", str(out)]
    assert command(monkeypatch, *words, "--json") == 6
    captured = capsys.readouterr()
    assert json.loads(captured.out).keys() == documented("network report")
    said = " ".join(captured.err.split())
    assert "carol.ledger was begun with another configuration than this net.toml" in said
    assert "the row of message 1 in" in said and "bob.ledger is damaged" in said
    page = checked(out / "report.html")
    assert "This page is private" not in page
    assert "Something is wrong" in page and "1 of 3 have a ledger on this host" in page


def test_a_ledger_behind_its_mark_and_a_budget_above_the_certificate(run):
    found = load(run)
    standing = mark.standing_of(found.members[1].ledger)
    with closing(mark.Mark(found.members[1].ledger)) as one:
        one.write(5, standing.seal)
    limit = budgets(run)[2]
    with begin(run, "carol") as ledger:
        send(ledger, 1, [2 * limit])
    behind, above = read(run).wrong
    assert "bob.ledger has 2 messages, and message 5 may have left" in behind
    assert above.startswith(f"carol has spent {2 * limit:.6g} by its ledger")


def test_where_nothing_ran_there_is_nothing_to_draw(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no ledger with a message of run test in"):
        read(network(tmp_path))
