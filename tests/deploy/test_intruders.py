"""Whoever does not belong: other certificates, members that forge, replays,
and floods of things that are not messages.
"""

from __future__ import annotations

import numpy as np
import pytest

zenoh = pytest.importorskip("zenoh")

from hearsay.deploy import tls, transport  # noqa: E402
from hearsay.deploy.messages import Format  # noqa: E402
from hearsay.deploy.settings import load  # noqa: E402
from tests.deploy.networks import (  # noqa: E402
    NAMES,
    Gate,
    Threads,
    run_threads,
    session,
    wait_for,
    write,
)

THREE = NAMES[:3]
HOSTS = {name: ["127.0.0.1", "localhost"] for name in THREE}
SETTINGS = {"names": THREE, "graph": {"kind": "complete"}}
ROUNDS = 12
BLOCK = zenoh.CongestionControl.BLOCK


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certificates")
    tls.make(folder / "keys", HOSTS)
    tls.make(folder / "others", HOSTS)
    return folder


@pytest.fixture(scope="module")
def calm(tmp_path_factory):
    """The models of an undisturbed run."""
    agents = run_threads(load(write(tmp_path_factory.mktemp("calm"), **SETTINGS)), 3)
    return np.stack([agents[name].model for name in THREE])


@pytest.fixture
def held(tmp_path, keys):
    """Three agents over TLS, in round 5, where alice stands at a gate:
    the run cannot end before whoever disturbs it has.
    """
    network = load(write(tmp_path, secure=True, network={"keys": str(keys / "keys")}, **SETTINGS))
    gate = Gate(5)
    with Threads(network) as fleet:
        for name in THREE[1:]:
            fleet.start(name)
        fleet.start("alice", gate)
        with gate:
            yield network, fleet, gate


def unharmed(fleet: Threads, gate: Gate, calm: np.ndarray) -> None:
    gate.opened.set()
    np.testing.assert_array_equal(fleet.models(), calm)


def told(session, key: str) -> bytes | None:
    return transport._ask(session, key, 1000, 1.0, print)


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


def test_ten_thousand_malformed_messages_from_a_member(held, keys, calm, caplog):
    """carol's own certificate, so the network lets them in; alice drops every one,
    learns what she would have learnt, and does not grow.
    """
    network, fleet, gate = held
    alice = fleet.agents["alice"]
    good = Format(network.run, "0" * 64, {"params": (4,)}, np.dtype("<f8")).encode(
        "carol", 5, {"params": np.ones(4)}
    )
    with session(network.members[0].endpoint, keys / "keys", "carol") as intruder:
        wait_for(
            lambda: intruder.put(f"hearsay/{network.run}/carol/0", b"") or alice.mailbox.dropped
        )

        def flood(count: int) -> int:
            before = sum(alice.mailbox.dropped.values())
            for i, payload in enumerate(malformed(count, good)):
                intruder.put(
                    f"hearsay/{network.run}/carol/{i % 20}", payload, congestion_control=BLOCK
                )
            wait_for(
                lambda: sum(alice.mailbox.dropped.values()) >= before + count,
                "every one is counted",
            )
            return resident()

        before = flood(8000)
        assert flood(2000) - before < 30 * 2**20, "it grows"
    unharmed(fleet, gate, calm)
    assert "dropped a message that claims to be from carol" in caplog.text
    assert "wrong configuration" in caplog.text and "not safetensors" in caplog.text


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def test_forgeries_and_unknown_certificates(held, keys, calm):
    """A stranger's certificate; and, from a member, well-formed messages with huge numbers under
    another's name, for rounds that are still to come.
    """
    network, fleet, gate = held
    with pytest.raises(zenoh.ZError):
        session(network.members[0].endpoint, keys / "others", "bob", seconds=1)
    shape = Format(network.run, network.digest, {"params": (4,)}, np.dtype("<f8"))
    alice, bob = fleet.agents["alice"], fleet.agents["bob"].ledger.instance
    with session(network.members[0].endpoint, keys / "keys", "carol") as forger:
        own = f"hearsay/{network.run}/carol/0"
        wait_for(lambda: forger.put(own, b"") or alice.mailbox.dropped.get("not safetensors"))
        for step in range(5, ROUNDS):
            forged = shape.encode("bob", step, {"params": np.full(4, 1e6)}, bob)
            for whose in ("bob", "*"):  # the pattern matches bob's key
                forger.put(
                    f"hearsay/{network.run}/{whose}/{step}", forged, congestion_control=BLOCK
                )
            old = shape.encode("carol", step, {"params": np.full(4, 1e6)})
            forger.put(f"hearsay/{network.run}/carol/{step}", old, congestion_control=BLOCK)
        # Her last one is in, so all before it have been let in or not.
        wait_for(lambda: alice.mailbox.dropped.get("another process of this name") == ROUNDS - 5)
        unharmed(fleet, gate, calm)


def test_replaying_a_members_own_old_messages_changes_nothing(held, keys, calm):
    """The bytes that bob really sent in early rounds, sent again with bob's own certificate."""
    network, fleet, gate = held
    alice, bob = fleet.agents["alice"], fleet.agents["bob"]
    old = [(step, bob._outbox(step)) for step in range(4)]
    assert all(payload for _, payload in old)
    with session(network.members[0].endpoint, keys / "keys", "bob") as replayer:
        own = f"hearsay/{network.run}/bob/"
        wait_for(lambda: replayer.put(own + "0", b"") or alice.mailbox.dropped)
        for step, payload in old:
            replayer.put(f"{own}{step}", payload, congestion_control=BLOCK)  # an old round
            # An old message under a new round.
            replayer.put(f"{own}{step + 6}", payload, congestion_control=BLOCK)
        wait_for(
            lambda: (
                alice.mailbox.dropped.get("wrong round") == 4
                and alice.mailbox.ignored().get("old round") == 4
            )
        )
        unharmed(fleet, gate, calm)


def test_a_member_cannot_say_that_another_is_done(held, keys, calm):
    """alice would leave while bob still needs her messages. What carol says of herself is heard."""
    network, fleet, gate = held
    alice, key = fleet.agents["alice"], f"hearsay/{network.run}/alice"
    with session(network.members[0].endpoint, keys / "keys", "carol") as liar:
        wait_for(lambda: told(liar, f"{key}/hello"))
        for other in ("done/bob", "done-bob", "done/*", "*/bob", "**"):
            assert told(liar, f"{key}/{other}") is None
        assert alice.neighbours._told == set()
        assert told(liar, f"{key}/done/carol") == b"heard" and alice.neighbours._told == {"carol"}
    unharmed(fleet, gate, calm)
