"""Whoever does not belong: other certificates, members that forge, replays, and floods of things that are not messages."""

from __future__ import annotations

import json
import sqlite3
import threading
import time

import numpy as np
import pytest

zenoh = pytest.importorskip("zenoh")

from hearsay.deploy import certificates  # noqa: E402
from hearsay.deploy.ledger import Ledger  # noqa: E402
from hearsay.deploy.messages import Format  # noqa: E402
from hearsay.deploy.settings import load  # noqa: E402
from tests.deploy.networks import NAMES, Processes, models, run_threads, write  # noqa: E402

THREE = NAMES[:3]
HOSTS = {name: ["127.0.0.1", "localhost"] for name in THREE}
SETTINGS = {"names": THREE, "graph": {"kind": "complete"}, "run_table": {"steps": 300}}


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certificates")
    certificates.make(folder / "keys", HOSTS)
    certificates.make(folder / "others", HOSTS)
    return folder


@pytest.fixture(scope="module")
def calm(tmp_path_factory):
    """The models of an undisturbed run."""
    agents = run_threads(load(write(tmp_path_factory.mktemp("calm"), **SETTINGS)), 3)
    return np.stack([agents[name].model for name in THREE])


def session(endpoint: str, folder, name: str):
    """A peer of somebody's own making, with that certificate."""
    config = {
        "mode": "peer",
        "listen": {"endpoints": []},
        "connect": {"endpoints": [endpoint], "timeout_ms": 3000, "exit_on_failure": True},
        "scouting": {"multicast": {"enabled": False}, "gossip": {"enabled": False}},
        "transport": {
            "link": {
                "tls": {
                    "root_ca_certificate": str(folder / "ca.pem"),
                    "enable_mtls": True,
                    "connect_certificate": str(folder / f"{name}.pem"),
                    "connect_private_key": str(folder / f"{name}.key"),
                }
            }
        },
    }
    return zenoh.open(zenoh.Config.from_json5(json.dumps(config)))


def started(tmp_path, keys, **more):
    path = write(tmp_path, secure=True, network={"keys": str(keys / "keys"), **more}, **SETTINGS)
    fleet = Processes([path], names=THREE, pace=0.01)
    fleet.start_all()
    return path, load(path), fleet


def status(network, fleet) -> dict:
    from hearsay.deploy.launch import look, observe

    with observe(network) as observer:
        return {one.name: one.facts for one in look(network, observer, seconds=10)}


def malformed(count: int, good: bytes):
    """Things that are not messages, in many ways."""
    rng = np.random.default_rng(7)
    for i in range(count):
        kind = i % 8
        if kind == 0:
            yield rng.bytes(int(rng.integers(0, 400)))
        elif kind == 1:
            yield good[: int(rng.integers(0, len(good)))]
        elif kind == 2:
            flipped = bytearray(good)
            flipped[int(rng.integers(8, len(good) - 40))] ^= int(rng.integers(1, 256))
            yield bytes(flipped)
        elif kind == 3:
            yield good + rng.bytes(1 + i % 64)
        elif kind == 4:
            yield (2**60).to_bytes(8, "little") + good[8:]
        elif kind == 5:
            yield b"\x80\x04\x95" + rng.bytes(64)  # the start of a pickle
        elif kind == 6:
            yield b"[" * 2000
        else:
            yield good[:-8] + np.array([np.nan]).tobytes()


def test_ten_thousand_malformed_messages_from_a_member(tmp_path, keys, calm):
    """carol's own certificate, so the network lets them in; alice drops every one, learns what she would have learnt, and does not grow."""
    path, network, fleet = started(tmp_path, keys)
    with fleet:
        shapes = {"params": (4,)}
        good = Format(network.run, "0" * 64, shapes, np.dtype("<f8")).encode("carol", 5, {"params": np.ones(4)})
        facts = status(network, fleet)
        assert all(facts.values()), "the agents run"
        intruder = session(network.members[0].endpoint, keys / "keys", "carol")
        pid = fleet.running["alice"].pid
        for i, payload in enumerate(malformed(1000, good)):
            intruder.put(f"hearsay/{network.run}/carol/{i % 400}", payload)
        before = resident(pid)
        for i, payload in enumerate(malformed(9000, good)):
            intruder.put(f"hearsay/{network.run}/carol/{i % 400}", payload)
        time.sleep(0.5)
        grown = resident(pid) - before
        dropped = status(network, fleet)["alice"]["dropped"]
        intruder.close()
        assert fleet.watch(120) == 0
    np.testing.assert_array_equal(models(path), calm)
    assert grown < 30 * 2**20
    assert sum(dropped.values()) > 1000, dropped
    text = fleet.log("alice").read_text()
    assert "dropped a message that claims to be from carol" in text
    assert "wrong configuration" in text and "not safetensors" in text


def resident(pid: int) -> int:
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * 4096


def test_forgeries_unknown_certificates_and_replays(tmp_path, keys, calm):
    """A well-formed message with huge numbers under another's name, from a member; a stranger's certificate; alice's old messages, again and again."""
    path, network, fleet = started(tmp_path, keys)
    with fleet:
        assert all(status(network, fleet).values())
        with pytest.raises(zenoh.ZError):
            session(network.members[0].endpoint, keys / "others", "bob")
        shape = Format(network.run, network.digest, {"params": (4,)}, np.dtype("<f8"))
        instance = status(network, fleet)["bob"]["instance"]
        forger = session(network.members[0].endpoint, keys / "keys", "carol")
        stop = threading.Event()

        def forge() -> None:
            step = 0
            while not stop.is_set() and step < 300:
                for ahead in range(4):
                    forged = shape.encode("bob", step + ahead, {"params": np.full(4, 1e6)}, instance)
                    forger.put(f"hearsay/{network.run}/bob/{step + ahead}", forged)
                    forger.put(f"hearsay/{network.run}/*/{step + ahead}", forged)  # a pattern that matches bob's key
                old = shape.encode("carol", max(0, step - 5), {"params": np.full(4, 1e6)})
                forger.put(f"hearsay/{network.run}/carol/{max(0, step - 200)}", old)
                step += 1
                time.sleep(0.005)

        thread = threading.Thread(target=forge)
        thread.start()
        assert fleet.watch(120) == 0
        stop.set()
        thread.join()
        forger.close()
    np.testing.assert_array_equal(models(path), calm)


@pytest.mark.slow
def test_replaying_a_members_own_old_messages_changes_nothing(tmp_path, keys, calm):
    """The bytes that bob really sent in early rounds, sent again with bob's own certificate."""
    path, network, fleet = started(tmp_path, keys)
    with fleet:
        time.sleep(2.0)
        wait_until_round(network, fleet, 20)
        replayer = session(network.members[0].endpoint, keys / "keys", "bob")
        db = sqlite3.connect(f"file:{network.members[1].ledger}?mode=ro", uri=True)
        old = db.execute("SELECT round, payload FROM rounds WHERE round < 15 ORDER BY round").fetchall()
        db.close()
        assert len(old) == 15
        for _ in range(20):
            for step, payload in old:
                replayer.put(f"hearsay/{network.run}/bob/{step}", payload)  # an old round
                replayer.put(f"hearsay/{network.run}/bob/{step + 40}", payload)  # an old message under a new round
        replayer.close()
        assert fleet.watch(120) == 0
    np.testing.assert_array_equal(models(path), calm)
    with Ledger(network.members[0].ledger, {"run": network.run}) as ledger:
        assert len(ledger.history()) == 300


def wait_until_round(network, fleet, step: int) -> None:
    end = time.monotonic() + 150
    while min((facts or {"round": -1})["round"] for facts in status(network, fleet).values()) < step:
        assert time.monotonic() < end
        time.sleep(0.1)
