"""What the log has about a neighbour that cannot be reached, and a certificate that ends."""

from __future__ import annotations

import logging
import socket
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest

pytest.importorskip("zenoh")
pytest.importorskip("cryptography")

from hearsay.deploy import diagnosis, tls
from hearsay.deploy.agent import Agent
from hearsay.deploy.diagnosis import Diagnosis, Expiry, dial
from hearsay.deploy.host import Stopped
from hearsay.deploy.links import Credentials, Peer
from hearsay.deploy.settings import load
from hearsay.deploy.transport import Transport
from tests.deploy.networks import NAMES, free_ports, write

USE = {"on_message": print, "outbox": lambda k: b"", "hello": lambda what: b"", "largest": 1000}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("keys")
    for authority in ("ours", "theirs"):
        tls.make(found / authority, {"alice": [], "bob": []})
    return found


def credentials(folder, name: str, authority: str = "ours") -> Credentials:
    keys = folder / authority
    return Credentials(keys / "ca.pem", keys / f"{name}.pem", keys / f"{name}.key")


@pytest.fixture(scope="module")
def bob(folder):
    peers = [
        Peer(name, f"tls/127.0.0.1:{port}")
        for name, port in zip(("alice", "bob"), free_ports(2), strict=True)
    ]
    with Transport("run", peers[1], [peers[0]], [], credentials(folder, "bob"), **USE):
        yield peers[1]


def test_a_neighbour_that_answers_as_it_should(bob, folder):
    assert dial(bob, credentials(folder, "alice")) == ""


def test_what_is_wrong_is_said(bob, folder):
    ours, nobody = credentials(folder, "alice"), free_ports(1)[0]
    assert dial(Peer("bob", f"tls/127.0.0.1:{nobody}"), ours) == "connection refused"
    assert dial(Peer("bob", f"tcp/127.0.0.1:{nobody}"), None) == "connection refused"
    assert dial(Peer("bob", "tls/nowhere.invalid:7447"), ours).startswith("name does not resolve (")
    assert dial(Peer("carol", bob.endpoint), ours) == "its certificate is that of bob"
    elsewhere = Peer("bob", bob.endpoint.replace("127.0.0.1", "127.0.0.2"))
    with closing(socket.create_server(("127.0.0.2", 0))) as silent:
        quiet = Peer("bob", f"tls/127.0.0.2:{silent.getsockname()[1]}")
        assert dial(quiet, ours, seconds=0.1) == "no answer within 0.1 s"
    assert dial(elsewhere, ours) == "connection refused"
    theirs = credentials(folder, "alice", "theirs")
    assert dial(bob, theirs).startswith("certificate verify failed: ")
    mixed = Credentials(ours.ca, theirs.certificate, theirs.key)
    assert dial(bob, mixed).startswith("TLS failed: "), (
        "bob does not accept it, and says so after the handshake"
    )


def test_reasons_are_looked_for_in_the_background(bob, folder):
    me = Peer("alice", f"tls/127.0.0.1:{free_ports(1)[0]}")
    wrong = Peer("bob", f"tls/127.0.0.1:{free_ports(1)[0]}")
    found = Diagnosis(me, [me, wrong], credentials(folder, "alice"))
    assert found.why("bob") == ""
    found.dial(["bob"])
    found.wait(["bob"])
    assert found.why("bob") == f"{wrong.endpoint.removeprefix('tls/')}: connection refused"
    found = Diagnosis(bob, [me, bob], credentials(folder, "bob"))
    found.dial(["alice"])
    found.wait(["alice"])
    assert found.why("alice").endswith(
        ": connection refused; alice connects to this agent, so look at its log too"
    )


def test_the_last_word_of_an_agent_says_why_nobody_answered(tmp_path, folder):
    """bob's certificate is of another authority. alice is there before him, and says what is wrong
    with him; he is refused at once.
    """
    network = load(
        write(tmp_path, names=NAMES[:2], graph={"kind": "complete"}, secure=True,
              network={"keys": str(folder / "ours"), "deadline": 0.2})
    )  # fmt: skip
    alice, bob = (member.peer for member in network.members)
    there = Transport("run", bob, [alice], [], credentials(folder, "bob", "theirs"), **USE)
    with there, pytest.raises(Stopped) as stopped:
        Agent(network, "alice", rehearsal=3).run()
    assert (
        f"bob did not answer within 0.2 s ({bob.endpoint.removeprefix('tls/')}: certificate verify"
        " failed: " in str(stopped.value)
    )
    ours, theirs = credentials(folder, "bob"), credentials(folder, "bob", "theirs")
    with pytest.raises(
        ValueError,
        match=r"bob.pem' must be signed by the authority in '.*ca.pem', .*got 'one that is not \(",
    ):
        Credentials(ours.ca, theirs.certificate, theirs.key).verify("bob", "127.0.0.1")


def test_a_certificate_that_ends_is_mentioned_once_a_day_and_when_it_has_ended(
    monkeypatch, caplog, folder
):
    now, day = [1000.0], 86400.0
    end = datetime.now(UTC) + timedelta(days=2.5)

    class Calendar(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.now(tz) + timedelta(seconds=now[0] - 1000)

    monkeypatch.setattr(tls, "expiry", lambda path: end)
    monkeypatch.setattr(diagnosis, "datetime", Calendar)
    monkeypatch.setattr(diagnosis.time, "monotonic", lambda: now[0])
    with caplog.at_level(logging.WARNING, "hearsay.agent"):
        watch = Expiry("carol", folder)
        for _ in range(5 * 24):
            watch.watch()
            now[0] += day / 24
    said = [record.getMessage() for record in caplog.records]
    assert said[:3] == [f"the certificate of carol expires in {days} days" for days in (2, 1, 0)]
    assert (
        said[3].startswith(f"the certificate of carol expired on {end:%Y-%m-%d} ")
        and "its links are closed" in said[3]
    )
    assert all("expired on" in text for text in said[3:]) and len(said) <= 6
    Expiry("carol", None).watch()
