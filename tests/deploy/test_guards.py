"""What would noise a state twice without anybody counting it: old ledgers, copies, second processes, records that change."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing

import numpy as np
import pytest

from hearsay.deploy import mark
from hearsay.deploy.agent import Agent
from hearsay.deploy.ledger import LedgerError
from hearsay.deploy.settings import load
from tests.deploy.networks import NAMES, Processes, free_ports, run_threads, write
from tests.deploy.test_chaos import size_of, wait_for

TWO = {"names": NAMES[:2], "graph": {"kind": "complete"}}


def copied(path, target) -> None:
    """A consistent copy of alice's ledger with its mark, as a snapshot of the whole disk would make it."""
    source = load(path).members[0].ledger
    target.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(f"file:{source}?mode=ro", uri=True)) as old, closing(sqlite3.connect(target)) as new:
        old.backup(new)
        instance = new.execute("SELECT value FROM about WHERE key = 'instance'").fetchone()[0]
        last, seal = new.execute("SELECT round, seal FROM rounds ORDER BY round DESC LIMIT 1").fetchone()
    mark.make(target, instance)
    with closing(mark.Mark(target)) as found:
        found.write(last, seal)


def test_a_backup_that_is_put_back_is_refused(tmp_path):
    path = write(tmp_path, run_table={"steps": 400}, **TWO)
    network = load(path)
    ledger, backup = network.members[0].ledger, tmp_path / "backup"
    with Processes([path], names=NAMES[:2], pace=0.02, seed=None) as fleet:
        fleet.start_all()
        wait_for(lambda: size_of(network, 0) > 5, 60)
        copied(path, backup)
        wait_for(lambda: size_of(network, 0) > 20, 60)
        fleet.running["alice"].kill()
        fleet.running["alice"].join()
        for file in ledger.parent.glob("alice.ledger*"):
            file.unlink()
        shutil.copy(backup, ledger)
        shutil.copy(mark.place(backup), mark.place(ledger))
        before = size_of(network, 0)
        fleet.start("alice")
        fleet.running["alice"].join(30)
        assert fleet.running["alice"].exitcode == 6
        assert "it is not the latest one" in fleet.log("alice").read_text()
        assert size_of(network, 0) == before, "nothing may be noised"


def elsewhere(path, tmp_path):
    """alice's net.toml on another host: another endpoint, another folder for her state."""
    network = load(path)
    text = path.read_text().replace(network.members[0].endpoint, f"tcp/127.0.0.1:{free_ports(1)[0]}")
    text = text.replace("[agents.alice]", '[agents.alice]\nstate = "elsewhere"')
    other = tmp_path / "elsewhere.toml"
    other.write_text(text)
    assert load(other).digest == network.digest
    return other


def test_a_second_process_with_a_ledger_of_its_own_is_refused(tmp_path):
    path = write(tmp_path, run_table={"steps": 300}, **TWO)
    other = elsewhere(path, tmp_path)
    with Processes([path], names=NAMES[:2], pace=0.02) as fleet:
        fleet.start_all()
        wait_for(lambda: size_of(load(path), 0) > 3, 60)
        first = fleet.running["alice"]
        second = fleet.start("alice", [str(other)], log=str(tmp_path / "second.log"))
        second.join(30)
        assert second.exitcode == 6
        assert "knows another process as alice" in (tmp_path / "second.log").read_text()
        assert size_of(load(other), 0) == 0, "nothing may be noised"
        assert first.is_alive()


@pytest.mark.slow
def test_two_processes_from_copies_of_one_ledger_are_stopped_by_their_neighbours(tmp_path):
    """Nothing tells a copy from its original before both have spoken; then everybody who hears them stops."""
    path = write(tmp_path, run_table={"steps": 400}, **TWO)
    other, network = elsewhere(path, tmp_path), load(path)
    with Processes([path], names=NAMES[:2], pace=0.02, seed=None) as fleet:
        fleet.start_all()
        wait_for(lambda: size_of(network, 0) > 3, 60)
        for name in NAMES[:2]:
            fleet.running[name].kill()
            fleet.running[name].join()
        copied(path, load(other).members[0].ledger)
        # bob can be reached by both: the other alice, who connects, needs no endpoint that he knows.
        second = fleet.start("alice", [str(other)], log=str(tmp_path / "second.log"))
        fleet.start_all()
        bob, first = fleet.running["bob"], fleet.running["alice"]
        wait_for(lambda: 6 in (bob.exitcode, first.exitcode, second.exitcode), 60)
        said = fleet.log("bob").read_text() + fleet.log("alice").read_text() + (tmp_path / "second.log").read_text()
        # Side by side they are caught by what they say; one that comes late is refused, because the other is ahead of it.
        assert "alice sent two different messages for one round" in said or "it is not the latest one" in said
        second.kill()


def small_files(tmp_path):
    rng = np.random.default_rng(0)
    for name in NAMES[:2]:
        np.savez(tmp_path / f"{name}.npz", features=rng.uniform(-0.5, 0.5, (20, 3)), labels=rng.integers(0, 2, 20))
    return write(
        tmp_path,
        problem={"loss": "logistic", "dimension": 3, "feature_bound": 1.0, "radius": 10.0},
        agents={name: {"data": f"{name}.npz", "records": 20} for name in NAMES[:2]},
        run_table={"steps": 6},
        **TWO,
    )


def test_records_must_not_change_during_a_run(tmp_path):
    path = small_files(tmp_path)
    run_threads(load(path), None)
    with np.load(tmp_path / "alice.npz") as stored:
        features, labels = stored["features"], stored["labels"]
    np.savez(tmp_path / "alice.npz", features=features[::-1], labels=labels[::-1])
    with pytest.raises(LedgerError, match="the records changed since .*alice.ledger was begun"):
        Agent(load(path), "alice").run()


def test_the_plan_must_not_change_during_a_run(tmp_path):
    path = small_files(tmp_path)
    run_threads(load(path), None)
    agent = Agent(load(path), "alice")
    object.__setattr__(agent.plan, "algorithm", agent.plan.algorithm.with_noise([1.01, 1.01]))
    with pytest.raises(LedgerError, match="the plan changed"):
        agent.run()


def test_a_rehearsal_is_never_continued_as_a_private_run(tmp_path):
    path = small_files(tmp_path)
    run_threads(load(path), 3)
    with pytest.raises(LedgerError, match="belongs to another noise"):
        Agent(load(path), "alice").run()


@pytest.mark.slow
def test_a_neighbour_that_was_replaced_is_noticed(tmp_path):
    """bob's folder is lost in the middle: alice, whose ledger remembers him, goes no further with another bob."""
    path = write(tmp_path, run_table={"steps": 400}, **TWO)
    network = load(path)
    with Processes([path], names=NAMES[:2], pace=0.02) as fleet:
        fleet.start_all()
        wait_for(lambda: size_of(network, 0) > 5, 60)
        for name in NAMES[:2]:
            fleet.running[name].kill()
            fleet.running[name].join()
        for file in network.members[1].state.glob("bob.ledger*"):
            file.unlink()
        fleet.start_all()
        wait_for(lambda: 6 in [fleet.running[name].exitcode for name in NAMES[:2]], 40)
        codes = [fleet.running[name].exitcode for name in NAMES[:2]]
        assert 6 in codes
        assert size_of(network, 1) == 0, "nothing may be noised"
