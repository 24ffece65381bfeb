"""What deployed agents may release: the same as in a simulation, from messages alone."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import hearsay as hs
from hearsay.cli.commands import app
from hearsay.config import build_problem
from hearsay.deploy import averages, releasing
from hearsay.deploy.deployment import deployment
from hearsay.deploy.host import Refused
from hearsay.deploy.releasing import release
from hearsay.deploy.settings import load
from tests.cli.test_json import documented
from tests.deploy.networks import Gate, Threads, run_threads, wait_for, write

SEED, NAMES = 3, ("alice", "bob", "carol", "dave")


def simulated(path: Path) -> hs.Run:
    network = load(path)
    plan = deployment(network, None)
    return hs.simulate(
        plan.algorithm,
        build_problem(network.config, agents=len(network.members)),
        plan.graph,
        steps=plan.messages,
        seeds=[SEED],
        delta=None if plan.algorithm.mechanism == "laplace" else 1e-5,
        reference=False,
        regret=False,
        release=("tail", "exponential"),
    )


TABLES: dict[str, dict[str, Any]] = {
    "averaging": {"name": "gradient-perturbation", "averaging": 1, "sampling": "cyclic"},
    "adp2sgd": {"name": "adp2sgd"},
    "correlated-federated": {
        "name": "correlated-federated",
        "sampling": "cyclic",
        "sample_size": 2,
    },
}


@pytest.mark.parametrize("name", TABLES)
def test_a_rehearsed_network_releases_what_a_simulation_does(name: str, tmp_path: Path) -> None:
    path = write(tmp_path, names=NAMES, graph={"kind": "star"}, algorithm=TABLES[name])
    run_threads(load(path), SEED)
    run = simulated(path)
    for kind in ("tail", "exponential"):
        found = release(path, kind=kind, rehearsal=True)
        np.testing.assert_allclose(found.params, run.release(kind).params, rtol=1e-9, atol=1e-12)
        assert found.average_of == run.release(kind).average_of
    near, wanted = release(path, "carol", rehearsal=True), run.release(of=2, neighbours=True)
    alone = run.release(of=2, neighbours=False)
    # Sleepers' messages are empty: neighbours' are not kept there.
    wanted = alone if name == "adp2sgd" else wanted
    np.testing.assert_allclose(near.params, wanted.params, rtol=1e-9, atol=1e-12)
    own = release(path, "carol", own=True, rehearsal=True)
    np.testing.assert_allclose(own.params, alone.params, rtol=1e-9, atol=1e-12)


def test_a_rehearsal_is_not_released_as_private(tmp_path: Path) -> None:
    path = write(tmp_path, names=NAMES[:2], run_table={"steps": 3})
    with pytest.raises(FileNotFoundError, match="no averages of messages of run test"):
        release(path)
    run_threads(load(path), SEED)
    with pytest.raises(ValueError, match="NOT PRIVATE"):
        release(path)
    words = ["network", "release", "--config", str(path), "--out", str(tmp_path / "out")]
    refused = CliRunner().invoke(app, words)
    assert refused.exit_code and not (tmp_path / "out").exists()
    found = json.loads(CliRunner().invoke(app, [*words, "--rehearsal", "--json"]).stdout)
    assert found.keys() == documented("network release") and not found["private"]
    assert not hs.load_model(tmp_path / "out").private


def test_private_agents_release_without_their_ledgers(tmp_path: Path) -> None:
    """On a running network, which it does not disturb; and when the ledgers are gone."""
    path = write(tmp_path, names=NAMES[:2], run_table={"steps": 6})
    network, gate = load(path), Gate(4)
    with Threads(network, None) as fleet:
        fleet.start("alice", gate)
        fleet.start("bob")
        with gate:
            early = release(path, "alice")
        fleet.models()
    assert early.average_of == "the mean of messages 1 to 3 of alice and the agents that it heard"
    for member in network.members:
        for file in tmp_path.rglob(f"{member.name}.ledger*"):
            shutil.rmtree(file) if file.is_dir() else file.unlink()
    found = release(path)
    assert found.private and found.certificate.deployed
    assert found.average_of == "the mean of messages 2 to 5 of all 2 agents"
    one = averages.stored(network.members[0].averages)
    assert set(one.arrays) == {"own", "near"} and one.about["noise"] == "lattice"
    assert network.members[0].averages.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("ahead", [0, 1])
def test_a_restart_counts_no_round_twice(ahead: int, tmp_path: Path) -> None:
    """Stopped with message 3 in the ledger, with averages of the rounds before it, and with
    averages of its own round too.
    """
    path = write(tmp_path, names=NAMES[:2], run_table={"steps": 6})
    network, gate, other = load(path), Gate(3), Gate(3)
    with Threads(network, SEED) as fleet:
        fleet.start("bob", other)
        agent = fleet.start("alice", gate)
        with gate:
            if ahead:
                other.opened.set()
                wait_for(lambda: agent.mailbox.heard.get("bob", -1) >= 3)
            agent._stop.set()
        fleet.join("alice")
        assert averages.stored(network.members[0].averages).rounds == 3 + ahead
        other.opened.set()
        fleet.start("alice")
        fleet.models()
    after = averages.stored(network.members[0].averages)
    assert (after.first, after.rounds) == (0, 6)
    run = simulated(path)
    np.testing.assert_allclose(after.read("own")["tail"], run.averages["tail"][0, 0], rtol=1e-9)


def test_averages_that_are_lost_begin_anew(tmp_path: Path) -> None:
    path = write(tmp_path, names=NAMES[:2], run_table={"steps": 6})
    network, gate = load(path), Gate(3)
    file = network.members[0].averages
    with Threads(network, SEED) as fleet:
        fleet.start("bob")
        agent = fleet.start("alice", gate)
        with gate:
            agent._stop.set()
        fleet.join("alice")
        file.write_bytes(file.read_bytes()[:-3])
        with pytest.raises(ValueError, match="alice.averages must be a whole safetensors file"):
            release(path, "alice", rehearsal=True)
        fleet.start("alice")
        fleet.models()
    found = release(path, "alice", own=True, rehearsal=True)
    assert found.average_of == "the mean of messages 4 to 5 of alice"
    both = release(path, rehearsal=True).average_of
    assert both == "the mean of messages 4 to 5 of alice; the mean of messages 2 to 5 of bob"


def test_a_certificate_is_that_of_the_plan_that_ran(tmp_path: Path, monkeypatch) -> None:
    """Another version may work out other noise from the same net.toml."""
    path = write(tmp_path, names=NAMES[:2], run_table={"steps": 3})
    with Threads(load(path), None) as fleet:
        fleet.start_all()
        fleet.models()
    assert release(path).private

    def newer(*args: Any, **options: Any) -> Any:
        plan = deployment(*args, **options)
        return replace(plan, algorithm=plan.algorithm.with_noise([2.0, 2.0]))

    monkeypatch.setattr(releasing, "deployment", newer)
    with pytest.raises(ValueError, match="must be the one that alice has run by, got another"):
        release(path)


def test_agents_that_rehearse_and_agents_that_do_not_refuse_each_other(tmp_path: Path) -> None:
    # Their models together would be released as private ones.
    path = write(tmp_path, names=NAMES[:2], run_table={"steps": 3})
    network = load(path)
    with Threads(network, None) as private, Threads(network, SEED) as rehearsed:
        private.start("alice")
        rehearsed.start("bob")
        ends = private.join("alice"), rehearsed.join("bob")
    assert all(isinstance(end, Refused) for end in ends), ends
    assert str(ends[0]).startswith("bob adds noise from a seed (--simulate-noise), and this")
    assert str(ends[1]).startswith("this process adds noise from a seed")
    assert not network.members[0].averages.exists()
