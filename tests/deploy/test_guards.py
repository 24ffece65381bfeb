"""What would add noise to a state twice without anybody counting it: old ledgers, copies,
second processes, records that change.
"""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing

import numpy as np
import pytest

from hearsay.deploy import mark
from hearsay.deploy.agent import Agent
from hearsay.deploy.host import Refused
from hearsay.deploy.ledger import LedgerError
from hearsay.deploy.settings import load
from tests.deploy.networks import (
    NAMES,
    Gate,
    Threads,
    free_ports,
    run_threads,
    size_of,
    wait_for,
    write,
)

TWO = {"names": NAMES[:2], "graph": {"kind": "complete"}}


def copied(path, target) -> None:
    """A consistent copy of alice's ledger with its mark, as a snapshot of the
    whole disk would make it.
    """
    source = load(path).members[0].ledger
    target.parent.mkdir(parents=True, exist_ok=True)
    with (
        closing(sqlite3.connect(f"file:{source}?mode=ro", uri=True)) as old,
        closing(sqlite3.connect(target)) as new,
    ):
        old.backup(new)
        instance = new.execute("SELECT value FROM about WHERE key = 'instance'").fetchone()[0]
        last, seal = new.execute(
            "SELECT round, seal FROM rounds ORDER BY round DESC LIMIT 1"
        ).fetchone()
    mark.make(target, instance)
    with closing(mark.Mark(target)) as found:
        found.write(last, seal)


def refusal(ended) -> str:
    """Why an agent was refused: what `hearsay agent` ends with exit code 6 for."""
    assert isinstance(ended, Refused), ended
    return str(ended)


def test_a_backup_that_is_put_back_is_refused(tmp_path):
    path = write(tmp_path, **TWO)
    network = load(path)
    ledger, backup, early, late = network.members[0].ledger, tmp_path / "backup", Gate(2), Gate(5)
    with Threads(network, None) as fleet:
        fleet.start("bob")
        fleet.start("alice", early, late)
        with early:
            copied(path, backup)
        with late:  # bob has heard message 4
            fleet.agents["alice"]._stop.set()
        fleet.join("alice")
        for file in ledger.parent.glob("alice.ledger*"):
            file.unlink()
        shutil.copy(backup, ledger)
        shutil.copy(mark.place(backup), mark.place(ledger))
        fleet.start("alice")
        assert "it is not the latest one" in refusal(fleet.join("alice"))
        assert size_of(network, 0) == 3, "nothing may be noised"


def elsewhere(path, tmp_path):
    """alice's net.toml on another host: another endpoint, another folder for her state."""
    network = load(path)
    text = path.read_text().replace(
        network.members[0].endpoint, f"tcp/127.0.0.1:{free_ports(1)[0]}"
    )
    text = text.replace("[agents.alice]", '[agents.alice]\nstate = "elsewhere"')
    other = tmp_path / "elsewhere.toml"
    other.write_text(text)
    assert load(other).digest == network.digest
    return load(other)


def test_a_second_process_with_a_ledger_of_its_own_is_refused(tmp_path):
    path, gate = write(tmp_path, **TWO), Gate(3)
    other = elsewhere(path, tmp_path)
    with Threads(load(path)) as fleet:
        fleet.start("bob")
        fleet.start("alice", gate)
        with gate:
            fleet.start("alice", network=other, called="second")
            assert "knows another process as alice" in refusal(fleet.join("second"))
            assert size_of(other, 0) == 0, "nothing may be noised"
            assert fleet.runs("alice")


def test_an_empty_folder_is_refused(tmp_path):
    """As if the agent ran on another host: its neighbours know the process that they met."""
    network, gate = load(write(tmp_path, **TWO)), Gate(3)
    with Threads(network) as fleet:
        fleet.start("bob")
        fleet.start("alice", gate)
        with gate:
            fleet.agents["alice"]._stop.set()
        fleet.join("alice")
        for file in network.members[0].state.glob("alice.ledger*"):
            file.unlink()
        fleet.start("alice")
        assert "knows another process as alice" in refusal(fleet.join("alice"))
        assert size_of(network, 0) == 0, "nothing may be noised"
        assert fleet.runs("bob")


def test_two_processes_from_copies_of_one_ledger_are_stopped_by_their_neighbours(tmp_path):
    """Nothing tells a copy from its original before both have spoken;
    then everybody who hears them stops.
    """
    path, gate = write(tmp_path, **TWO), Gate(3)
    other = elsewhere(path, tmp_path)
    with Threads(load(path), None) as fleet:
        fleet.start("bob")
        fleet.start("alice", gate)
        with gate:
            for name in NAMES[:2]:
                fleet.agents[name]._stop.set()
        fleet.join()
        copied(path, other.members[0].ledger)
        shutil.copy(load(path).members[0].spent, other.members[0].spent)
        gates = {name: Gate(4) for name in ("bob", "alice", "second")}
        fleet.start("bob", gates["bob"])
        fleet.start("alice", gates["alice"])
        fleet.start("alice", gates["second"], network=other, called="second")
        # Both have noised message 4, each in its own way, and bob is in that round.
        with gates["bob"]:
            with gates["alice"], gates["second"]:
                pass
            wait_for(lambda: fleet.agents["bob"].mailbox.twofold)
        assert "alice sent two different messages for one round" in refusal(fleet.join("bob"))


def test_one_agent_cannot_run_twice(tmp_path):
    network, gate = load(write(tmp_path, **TWO)), Gate(2)
    with Threads(network) as fleet:
        fleet.start("bob")
        fleet.start("alice", gate)
        with gate:
            fleet.start("alice", called="second")
            with pytest.raises(LedgerError, match="already running"):
                raise fleet.join("second")
            assert fleet.runs("alice")


def test_another_configuration_is_named_before_anything_is_sent(tmp_path):
    path = write(tmp_path, **TWO)
    other = tmp_path / "other.toml"
    other.write_text(path.read_text().replace("epsilon = 8.0", "epsilon = 9.0"))
    with Threads(load(path)) as fleet:
        fleet.start("alice")
        fleet.start("bob", network=load(other))
        said = [refusal(fleet.join(name)) for name in NAMES[:2]]
    assert "[privacy] epsilon is 8.0 here and 9.0 there" in said[0]
    assert "[privacy] epsilon is 9.0 here and 8.0 there" in said[1]
    assert size_of(load(path), 0) == size_of(load(path), 1) == 0


def small_files(tmp_path):
    rng = np.random.default_rng(0)
    for name in NAMES[:2]:
        np.savez(
            tmp_path / f"{name}.npz",
            features=rng.uniform(-0.5, 0.5, (20, 3)),
            labels=rng.integers(0, 2, 20),
        )
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


def test_a_neighbour_that_was_replaced_is_noticed(tmp_path):
    """bob's folder is lost in the middle: alice, whose ledger remembers him,
    goes no further with another bob.
    """
    network, gate = load(write(tmp_path, **TWO)), Gate(3)
    with Threads(network) as fleet:
        fleet.start("bob")
        fleet.start("alice", gate)
        with gate:
            for name in NAMES[:2]:
                fleet.agents[name]._stop.set()
        fleet.join()
        for file in network.members[1].state.glob("bob.ledger*"):
            file.unlink()
        fleet.start_all()
        wait_for(lambda: any(isinstance(ended, Refused) for ended in fleet.ended.values()))
        fleet.stop()
        assert size_of(network, 1) == 0, "nothing may be noised"
