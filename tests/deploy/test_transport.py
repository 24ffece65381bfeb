"""Real sessions on loopback ports.

Where something must not arrive, a later message over the same link does.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

pytest.importorskip("zenoh")
pytest.importorskip("cryptography")
import zenoh

from hearsay.deploy import tls, transport
from hearsay.deploy.links import Credentials, Peer
from hearsay.deploy.transport import Observer, Transport
from tests.deploy.networks import SECONDS, Wire, worker_context
from tests.deploy.networks import wait_for as until

BLOCK = zenoh.CongestionControl.BLOCK


def free_ports(number):
    sockets = [socket.socket() for _ in range(number)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class World:
    """Named agents on free ports; closes whatever was opened."""

    def __init__(self, keys=None):
        self.names, self.keys, self.opened = ("ann", "bob", "cat"), keys, []
        protocol = "tcp" if keys is None else "tls"
        self.peers = {
            n: Peer(n, f"{protocol}/127.0.0.1:{p}")
            for n, p in zip(self.names, free_ports(3), strict=True)
        }

    def credentials(self, name, keys=None):
        keys = keys or self.keys
        return keys and Credentials(keys / "ca.pem", keys / f"{name}.pem", keys / f"{name}.key")

    def start(self, name, hears, heard_by=None, *, largest=1000, **callbacks):
        """An agent whose `got` is what it heard; heard by those it hears unless told."""
        got = []
        use = {
            "on_message": lambda sender, text, payload: got.append((sender, text, payload)),
            "outbox": lambda k: f"{name} {k}".encode() if k < 10 else None,
            "hello": lambda what: f"{name} says {what}".encode(),
        } | callbacks
        two = [
            [self.peers[n] for n in some]
            for some in (hears, hears if heard_by is None else heard_by)
        ]
        agent = Transport(
            "run", self.peers[name], *two, self.credentials(name), largest=largest, **use
        )
        agent.got = got
        self.opened.append(agent)
        return agent

    def stranger(self, name, towards, keys=None):
        """A bare session with a member's certificate and none of its manners."""
        ends = [self.peers[n].endpoint for n in towards]
        config = transport.session_config([], [], ends, self.credentials(name, keys), 1 << 30)
        session = transport._open(config, "nowhere")
        self.opened.append(session)
        return session

    def line(self):
        agents = [
            self.start("ann", ["bob"]),
            self.start("bob", ["ann", "cat"]),
            self.start("cat", ["bob"]),
        ]
        together(*agents)
        return agents

    def close(self):
        for each in self.opened:
            each.close()


def together(*agents):
    """Wait until all are present, and until what each subscribed to is known at the other end."""
    until(lambda: all(agent.alive() == set(agent.neighbours) for agent in agents))
    pairs = [
        (a, o) for a in agents for o in agents if o.me.name in a.hears and a.me.name in o.heard_by
    ]
    for agent, other in pairs:
        until(lambda a=agent, o=other: probe(o) or any(g[:2] == (o.me.name, "999") for g in a.got))
    for agent in agents:
        agent.publish(998, b"")  # behind the last probe
    for agent, other in pairs:
        until(lambda a=agent, o=other: any(g[:2] == (o.me.name, "998") for g in a.got))
    for agent in agents:
        agent.got.clear()


def probe(agent):
    agent.publish(999, b"")
    return False


def linked(session):
    return until(lambda: list(session.info.peers_zid()))


@pytest.fixture
def world():
    world = World()
    yield world
    world.close()


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keys")
    tls.make(folder, {"ann": [], "bob": [], "cat": []})
    return folder


@pytest.fixture
def safe(keys):
    world = World(keys)
    yield world
    world.close()


def test_every_message_arrives_once_and_in_order(world):
    ann, bob = world.start("ann", ["bob"]), world.start("bob", ["ann"])
    together(ann, bob)
    for k in range(20):
        ann.publish(k, b"a%d" % k)
        bob.publish(k, b"b%d" % k)
    for agent in (ann, bob):
        agent.publish(20, b"")
    until(lambda: all(agent.got and agent.got[-1][1] == "20" for agent in (ann, bob)))
    assert bob.got[:-1] == [("ann", str(k), b"a%d" % k) for k in range(20)]
    assert ann.got[:-1] == [("bob", str(k), b"b%d" % k) for k in range(20)]
    assert not ann.refused and not bob.refused


def test_a_message_of_eight_megabytes(world):
    ann, bob = (world.start(a, [b], largest=9_000_000) for a, b in (("ann", "bob"), ("bob", "ann")))
    together(ann, bob)
    payload = bytes(range(250)) * 32_000
    ann.publish(0, payload)
    assert until(lambda: bob.got) == [("ann", "0", payload)]


def test_a_missed_message_is_fetched_from_its_sender(world):
    ann, bob, _cat = world.line()
    assert ann.fetch("bob", 3, SECONDS) == b"bob 3"
    assert bob.fetch("cat", 3, SECONDS) == b"cat 3"
    assert ann.ask("bob", "hello", SECONDS) == b"bob says hello"
    began = time.monotonic()
    assert ann.fetch("bob", 12, SECONDS) is None, "no longer in the outbox"
    assert time.monotonic() - began < SECONDS / 2, "an answer, not a timeout"
    with pytest.raises(ValueError, match="agent must be one of bob, got 'cat'"):
        ann.fetch("cat", 3, 1)


def test_a_question_is_answered_without_waiting(world):
    """Every answer, and then the end; also where there is none, and where the link is lost."""
    stay = threading.Event()
    ann = world.start("ann", ["bob"])
    bob = world.start("bob", ["ann"], hello=lambda what: stay.wait(SECONDS) and b"late")
    together(ann, bob)
    said = []

    def ask(what):
        ended = threading.Event()
        ann.inquire("bob", what, SECONDS, said.append, ended.set)
        return ended

    assert ask("3").wait(SECONDS) and said == [b"bob 3"]
    assert ask("12").wait(SECONDS) and said == [b"bob 3"], "no longer in the outbox"
    ended = ask("hello")
    assert not ended.is_set() and ask("4").wait(0) is False, "bob is busy"
    met = ann.met("bob")
    stay.set()
    until(lambda: b"late" in said and b"bob 4" in said)
    bob.close()
    until(lambda: not ann.alive())
    assert ask("5").wait(SECONDS) and b"bob 5" not in said
    together(ann, world.start("bob", ["ann"]))
    assert ann.met("bob") == met + 1


@pytest.mark.parametrize("first", ["ann", "bob"])
def test_agents_start_in_any_order_and_come_back(world, first):
    """ann, who connects, has been refused by then."""
    second, wire = {"ann": "bob", "bob": "ann"}[first], Wire(world.peers["bob"].port)
    real = world.peers["bob"]
    if first == "ann":
        world.peers["bob"] = Peer("bob", f"tcp/127.0.0.1:{wire.port}")
    early = world.start(first, [second])
    world.peers["bob"] = real
    if first == "ann":
        until(lambda: wire.calls > 2)
    assert early.fetch(second, 0, SECONDS) is None
    for _ in range(2):
        late = world.start(second, [first])
        together(early, late)
        late.close()
        until(lambda: not early.alive())
    wire.close()


def stay(peers):
    """In a process of its own."""
    me, other = (Peer(*p) for p in peers)
    use = {
        "on_message": print,
        "outbox": lambda k: b"child",
        "hello": lambda what: b"child",
        "largest": 1000,
    }
    _kept = Transport("run", me, [other], [other], None, **use)
    signal.pause()


def test_a_killed_process_is_noticed_and_its_successor_found(world):
    ann = world.start("ann", ["bob"])
    for _ in range(2):
        process = worker_context().Process(
            target=stay, args=(pair(world, "bob", "ann"),), daemon=True
        )
        process.start()
        try:
            until(lambda: ann.alive() == {"bob"})
            assert ann.fetch("bob", 0, SECONDS) == b"child"
        finally:
            process.kill()
            process.join()
        until(lambda: not ann.alive())


def pair(world, *names):
    return [[world.peers[n].name, world.peers[n].endpoint] for n in names]


CHILD = """
import json, sys, time
from hearsay.deploy import transport
from hearsay.deploy.links import Peer
from hearsay.deploy.transport import Transport
transport.CLOSE_SECONDS = float(sys.argv[2])
me, other = (Peer(*p) for p in json.loads(sys.argv[1]))
use = dict(on_message=print, outbox=lambda k: b"child", hello=lambda what: b"child", largest=1000)
kept = Transport("run", me, [other], [other], None, **use)
while not kept.alive():
    time.sleep(0.01)
print("together", flush=True)
"""


@pytest.mark.parametrize("patience", [3.0, 0.0], ids=["a while", "not at all"])
def test_a_process_that_forgets_to_close_still_ends(world, patience):
    """With its own exit code, also where closing takes longer than it is waited for."""
    world.start("ann", ["bob"])
    words = [sys.executable, "-c", CHILD, json.dumps(pair(world, "bob", "ann")), str(patience)]
    ended = subprocess.run(words, stdout=subprocess.PIPE, text=True, timeout=SECONDS)
    assert (ended.returncode, ended.stdout) == (0, "together\n")


def test_nothing_travels_further_than_one_edge(world):
    ann, bob, cat = world.line()
    seen = []
    cat._session.declare_subscriber("hearsay/**", lambda sample: seen.append(str(sample.key_expr)))
    cat._session.declare_queryable(
        "hearsay/**", lambda query: seen.append(f"query {query.key_expr}")
    )
    until(lambda: probe(bob) or "hearsay/run/bob/999" in seen)
    ann.publish(1, b"for bob")
    assert ann.fetch("bob", 1, SECONDS) == b"bob 1"
    assert transport._ask(ann._session, "hearsay/run/cat/hello", 1000, 1.0, print) is None, (
        "no way from ann to cat"
    )
    until(lambda: ("ann", "1", b"for bob") in bob.got)
    bob.publish(2, b"for both")
    until(lambda: "hearsay/run/bob/2" in seen and ("bob", "2", b"for both") in ann.got)
    assert set(seen) == {"hearsay/run/bob/999", "hearsay/run/bob/2"}


@pytest.mark.parametrize("mode", ["client", "router", "peer"])
def test_an_agent_is_no_way_to_its_neighbours(world, mode):
    """Zenoh routes between regions, and a peer serves clients unless told not to."""
    ann, bob = world.start("ann", ["bob"]), world.start("bob", ["ann"])
    together(ann, bob)
    config = transport.session_config([], [], [world.peers["bob"].endpoint], None, 1000) | {
        "mode": mode
    }
    config["connect"] |= {"timeout_ms": 300, "exit_on_failure": mode == "client"}
    del config["gateway"]
    if mode == "client":
        with pytest.raises(OSError, match="Unable to connect"):
            transport._open(config, "nowhere")
        return
    session = transport._open(config, "nowhere")
    world.opened.append(session)
    seen = []
    session.declare_subscriber("hearsay/**", lambda sample: seen.append(str(sample.key_expr)))
    until(lambda: probe(bob) or seen)
    assert transport._ask(session, "hearsay/run/ann/hello", 1000, 0.5, print) is None
    ann.publish(1, b"for bob")
    until(lambda: ("ann", "1", b"for bob") in bob.got)
    bob.publish(2, b"")
    until(lambda: "hearsay/run/bob/2" in seen)
    assert not [key for key in seen if "/ann/" in key]


def test_an_agent_subscribes_to_those_it_hears_and_nobody_else(world):
    ann, bob = world.start("ann", [], ["bob"]), world.start("bob", ["ann"], [])
    together(ann, bob)
    assert ann.subscribed() == [] and bob.subscribed() == ["hearsay/run/ann/*"]
    assert ann.alive() == {"bob"} and ann.ask("bob", "hello", SECONDS) == b"bob says hello"
    bob.publish(0, b"to nobody")
    ann.publish(0, b"to bob")
    until(lambda: bob.got)
    assert not ann.got


def test_what_is_too_long_is_dropped_and_counted(world):
    bob = world.start("bob", ["ann"], largest=1000)
    ann = world.start("ann", ["bob"], largest=1_000_000, outbox=lambda k: bytes(1001))
    together(ann, bob)
    ann.publish(0, bytes(1001))
    ann.publish(1, bytes(900_000))  # dropped by Zenoh, as it arrives
    ann.publish(2, bytes(1000))
    assert until(lambda: bob.got) == [("ann", "2", bytes(1000))]
    assert bob.refused == {"oversized": 1} and bob.alive() == {"ann"}
    assert bob.fetch("ann", 0, SECONDS) is None and bob.refused == {"oversized": 2}
    with pytest.raises(ValueError, match="payload must be at most 1000 bytes, got '1001 bytes'"):
        bob.publish(0, bytes(1001))


def test_a_put_without_one_sender_is_refused(world):
    bob = world.start("bob", ["ann", "cat"])
    loose = world.stranger("ann", ["bob"])
    linked(loose)
    until(lambda: loose.put("hearsay/run/ann/0", b"", congestion_control=BLOCK) or bob.got)
    loose.put("hearsay/run/*/1", b"everybody", congestion_control=BLOCK)
    loose.delete("hearsay/run/ann/1", congestion_control=BLOCK)
    loose.put("hearsay/run/ann/2", b"", congestion_control=BLOCK)
    until(lambda: bob.got[-1][1] == "2" and bob.refused["unexpected"] == 3)
    assert {text for _, text, _ in bob.got} == {"0", "2"}


def test_a_callback_that_raises_is_counted_and_the_next_message_arrives(world):
    seen = []

    def fail(*received):
        seen.append(received)
        raise RuntimeError("broken callback")

    bob = world.start("bob", ["ann"], on_message=fail, outbox=fail, hello=fail)
    ann = world.start("ann", ["bob"])
    until(lambda: ann.alive() and bob.alive())
    until(lambda: probe(ann) or len(seen) > 1)
    assert ann.fetch("bob", 1, SECONDS) is None and ann.ask("bob", "hello", SECONDS) is None
    assert bob.refused["error"] >= 4 and str(bob.last_error) == "broken callback"
    assert bob.alive() == {"ann"}


def test_close_is_quick_and_can_be_repeated(world):
    ann, bob = world.start("ann", ["bob"]), world.start("bob", ["ann"])
    together(ann, bob)
    began = time.monotonic()
    ann.close()
    ann.close()
    assert time.monotonic() - began < transport.CLOSE_SECONDS + SECONDS / 2
    assert ann.alive() == set()
    with pytest.raises(OSError, match="the transport of ann is closed"):
        ann.publish(0, b"")


def test_an_answer_that_is_being_given_is_given_before_the_end(world):
    """It may be the word for which the other side waits, and nobody is left to be asked again."""
    asked, go, answers = threading.Event(), threading.Event(), []

    def slow(what):
        asked.set()
        assert go.wait(SECONDS)
        return b"heard"

    ann, bob = world.start("ann", ["bob"], hello=slow), world.start("bob", ["ann"])
    together(ann, bob)
    asker = threading.Thread(target=lambda: answers.append(bob.ask("ann", "hello", SECONDS)))
    asker.start()
    assert asked.wait(SECONDS)
    closing = threading.Thread(target=ann.close)
    closing.start()
    until(lambda: ann._closed, "it is being closed")
    go.set()
    closing.join(SECONDS)
    asker.join(SECONDS)
    assert answers == [b"heard"]


def test_an_answer_that_never_comes_does_not_keep_it_open(world, monkeypatch):
    monkeypatch.setattr(transport, "CLOSE_SECONDS", 0.05)
    never, asked = threading.Event(), threading.Event()

    def stuck(what):
        asked.set()
        never.wait(SECONDS)

    ann, bob = world.start("ann", ["bob"], hello=stuck), world.start("bob", ["ann"])
    together(ann, bob)
    asker = threading.Thread(target=lambda: bob.ask("ann", "hello", 1.0))
    asker.start()
    assert asked.wait(SECONDS)
    ann.close()
    assert ann._closed and not never.is_set()
    never.set()
    asker.join(SECONDS)


@pytest.mark.parametrize(
    ("name", "endpoint", "message"),
    [
        ("a/b", "tcp/127.0.0.1:1", "peer name must be 1 to 64 letters"),
        ("*", "tcp/127.0.0.1:1", "peer name must be 1 to 64 letters"),
        ("ann", "udp/127.0.0.1:1", 'endpoint of ann must be like "tcp/127.0.0.1:7447"'),
        ("ann", "tcp/127.0.0.1:70000", "endpoint of ann must be like"),
        ("ann", "tls/127.0.0.1:1#enable_mtls=false", "endpoint of ann must be like"),
        (
            "ann",
            "tls/[2001:db8::5]:7447",
            (
                "endpoint of ann must be a host name and a port under TLS, where Zenoh connects to"
                " no IPv6"
            ),
        ),
    ],
)
def test_names_and_endpoints_are_checked(name, endpoint, message):
    with pytest.raises(ValueError, match=message):
        Peer(name, endpoint)


def test_errors_name_the_endpoint(world, keys):
    world.start("ann", ["bob"])
    with pytest.raises(OSError, match=rf"{world.peers['ann'].endpoint}: .*in use"):
        world.start("ann", ["bob"])
    world.peers["cat"] = Peer("cat", "tls/127.0.0.1:1")
    with pytest.raises(
        ValueError, match="endpoint of cat must be tcp/… without credentials, got 'tls/127.0.0.1:1'"
    ):
        world.start("bob", ["cat"])
    world.keys = keys
    with pytest.raises(
        ValueError, match="endpoint of bob must be tls/… with credentials, got 'tcp"
    ):
        world.start("bob", ["cat"])
    with pytest.raises(ValueError, match="neighbour must be another agent"):
        world.start("bob", ["bob"])


def test_members_talk_over_tls(safe):
    ann, bob, cat = safe.line()
    for k, agent in enumerate((ann, bob, cat)):
        agent.publish(k, agent.me.name.encode())
    until(lambda: ann.got and cat.got and len(bob.got) == 2)
    assert ann.got == cat.got == [("bob", "1", b"bob")] and sorted(bob.got) == [
        ("ann", "0", b"ann"),
        ("cat", "2", b"cat"),
    ]
    assert (
        ann.fetch("bob", 3, SECONDS) == b"bob 3"
        and bob.ask("cat", "hello", SECONDS) == b"cat says hello"
    )


def loosen(monkeypatch, *flows):
    """Let everything pass these ways: Zenoh sends only what the other end says it wants, and that
    is not told to all.

    With egress open the forger knows whom to send to, and the ingress rules alone must hold.
    """
    strict = transport.access_rules

    def loose(*arguments):
        access = strict(*arguments)
        messages = ["put", "delete", "query", "reply", "declare_subscriber", "declare_queryable"]
        messages += ["liveliness_token", "liveliness_query", "declare_liveliness_subscriber"]
        rule = {
            "id": "loose",
            "permission": "allow",
            "flows": list(flows),
            "messages": messages,
            "key_exprs": ["hearsay/**"],
        }
        policy = {"rules": ["loose"], "subjects": [subject["id"] for subject in access["subjects"]]}
        return access | {
            "rules": [*access["rules"], rule],
            "policies": [*access["policies"], policy],
        }

    monkeypatch.setattr(transport, "access_rules", loose)


@pytest.mark.parametrize("flows", [(), ("egress",), ("egress", "ingress")])
def test_a_member_cannot_speak_for_another(safe, monkeypatch, flows):
    if flows:
        loosen(monkeypatch, *flows)
    bob = safe.start("bob", ["ann", "cat"])
    forger = safe.stranger("ann", ["bob"])
    linked(forger)
    asked = []
    _kept = forger.liveliness().declare_token("hearsay/run/cat/alive")
    forger.declare_queryable(
        "hearsay/run/cat/*", lambda query: asked.append(str(query.key_expr)), complete=True
    )
    until(lambda: forger.put("hearsay/run/ann/0", b"own", congestion_control=BLOCK) or bob.got)
    for key in ("cat/1", "*/1", "bob/1", "**"):
        forger.put(f"hearsay/run/{key}", b"forged", congestion_control=BLOCK)
    forger.put("hearsay/run/ann/2", b"own", congestion_control=BLOCK)
    until(lambda: ("ann", "2", b"own") in bob.got)
    if "ingress" in flows:  # the keys have a thread each
        until(
            lambda: ("cat", "1", b"forged") in bob.got and bob.alive() and bob.refused["unexpected"]
        )
    forged = {g[:2] for g in bob.got} - {("ann", "0"), ("ann", "2")}
    answered = bob.fetch("cat", 1, 1), asked
    if "ingress" in flows:
        assert (
            forged == {("cat", "1")}
            and asked
            and bob.alive() == {"cat"}
            and bob.refused["unexpected"]
        ), "this test can fail"
    else:
        assert not forged and answered == (None, []) and bob.alive() == set() and not bob.refused


@pytest.mark.parametrize("flows", [("egress",), ("egress", "ingress")])
def test_the_observer_cannot_publish(safe, monkeypatch, flows):
    loosen(monkeypatch, *flows)
    bob = safe.start("bob", ["ann"])
    forged = ("ann", "1", b"forged")
    with Observer("run", [safe.peers["bob"]], safe.credentials("observer")) as observer:

        def forge():
            observer._session.put("hearsay/run/ann/1", b"forged", congestion_control=BLOCK)
            return forged in bob.got

        assert observer.hello("bob", SECONDS) == b"bob says hello"
        until(forge) if "ingress" in flows else forge()
        assert observer.hello("bob", SECONDS) == b"bob says hello"
        fetched = transport._ask(observer._session, "hearsay/run/bob/1", 1000, 1.0, print)
    assert (set(bob.got), fetched) == (
        ({forged}, b"bob 1") if "ingress" in flows else (set(), None)
    )


@pytest.mark.parametrize("flows", [(), ("egress", "ingress")])
def test_only_an_agent_itself_says_that_it_is_done(safe, monkeypatch, flows):
    if flows:
        loosen(monkeypatch, *flows)
    asked = []
    safe.start("bob", ["ann", "cat"], hello=lambda what: asked.append(what) or b"heard")
    ann = safe.start("ann", ["bob"])
    until(lambda: ann.alive())
    assert ann.ask("bob", "done/ann", SECONDS) == b"heard"
    with pytest.raises(ValueError, match="or \"done/ann\", got 'done/cat'"):
        ann.ask("bob", "done/cat", 1)
    answered = transport._ask(ann._session, "hearsay/run/bob/done/cat", 1000, 1.0, print)
    assert (answered, asked) == (
        (b"heard", ["done/ann", "done/cat"]) if flows else (None, ["done/ann"])
    )


def test_only_those_who_hear_an_agent_can_listen_to_it(safe):
    """ann hears bob, bob does not hear ann; cat is a member that is no neighbour."""
    bob = safe.start("bob", [], ["ann"])
    ann = safe.start("ann", ["bob"], [])
    together(ann, bob)
    cat = safe.stranger("cat", ["bob"])
    linked(cat)
    for session, name in ((cat, "cat"), (ann._session, "ann")):
        session.put(f"hearsay/run/{name}/1", b"unheard", congestion_control=BLOCK)
    overheard = []
    cat.declare_subscriber(
        "hearsay/run/bob/*", lambda sample: overheard.append(str(sample.key_expr))
    )
    cat.declare_subscriber("hearsay/**", lambda sample: overheard.append(str(sample.key_expr)))
    assert transport._ask(cat, "hearsay/run/bob/1", 1000, 1.0, print) is None
    assert transport._ask(cat, "hearsay/run/bob/hello", 1000, 1.0, print) is None
    bob.publish(1, b"for ann")
    until(lambda: ann.got)
    assert not overheard and not bob.got
    assert (
        ann.fetch("bob", 1, SECONDS) == b"bob 1"
        and bob.ask("ann", "hello", SECONDS) == b"ann says hello"
    )
    assert bob.fetch("ann", 1, 1) is None


def test_a_certificate_of_another_authority_is_refused(safe, tmp_path):
    tls.make(tmp_path / "other", {"ann": []})
    bob = safe.start("bob", ["ann"])
    (tmp_path / "mixed").mkdir()
    for name, source in (
        ("ca.pem", safe.keys),
        ("ann.pem", tmp_path / "other"),
        ("ann.key", tmp_path / "other"),
    ):
        (tmp_path / "mixed" / name).write_bytes((source / name).read_bytes())
    strangers = [
        safe.stranger("ann", ["bob"], keys) for keys in (tmp_path / "other", tmp_path / "mixed")
    ]
    ann = safe.start("ann", ["bob"])
    together(ann, bob)  # the real one gets in while the others keep trying
    assert all(not list(stranger.info.peers_zid()) for stranger in strangers)
    assert list(map(str, bob._session.info.peers_zid())) == [str(ann._session.zid())]


def test_a_certificate_is_good_for_its_hosts_only(safe):
    """127.0.0.2 is this machine, but is in nobody's certificate: ann, who finds bob there,
    does not believe him.
    """
    wire = Wire(safe.peers["bob"].port, "127.0.0.2")
    bob = safe.start("bob", ["ann"])
    safe.peers["bob"] = Peer("bob", f"tls/127.0.0.2:{wire.port}")
    ann = safe.start("ann", ["bob"])
    until(lambda: wire.calls > 3)
    assert not bob.alive() and not ann.alive()
    with pytest.raises(
        ValueError,
        match=r"names of certificate '.*bob.pem' must include .* '127.0.0.2', got \['localhost",
    ):
        safe.start("bob", ["ann"])
    wire.close()


SIX = """
import sys, time
from pathlib import Path
from hearsay.deploy.links import Credentials, Peer
from hearsay.deploy.transport import Transport
keys, port = Path(sys.argv[1]), int(sys.argv[2])
peers = {"ann": Peer("ann", f"tls/six.test:{port}"), "bob": Peer("bob", f"tls/six.test:{port + 1}")}
use = dict(on_message=print, outbox=lambda k: b"", hello=lambda what: b"", largest=1000)
agents = [
    Transport(
        "run", peers[me], [peers[other]], [],
        Credentials(keys / "ca.pem", keys / f"{me}.pem", keys / f"{me}.key"), **use
    )
    for me, other in (("ann", "bob"), ("bob", "ann"))
]
while not all(agent.alive() for agent in agents):
    time.sleep(0.01)
print("together")
"""


@pytest.mark.skipif(
    not socket.has_ipv6
    or not shutil.which("unshare")
    or not hasattr(os, "geteuid")
    or os.geteuid() != 0,
    reason="needs IPv6, and root for a host name of its own",
)
def test_a_name_that_resolves_to_an_ipv6_address_will_do(tmp_path):
    """Under TLS Zenoh connects to no bracketed address, so names are the only way there is."""
    tls.make(tmp_path / "keys", {name: ["six.test"] for name in ("ann", "bob")})
    (tmp_path / "hosts").write_text("::1 six.test\n")
    with socket.socket(socket.AF_INET6) as one:
        one.bind(("::1", 0))
        port = one.getsockname()[1]
    inner = 'mount --bind "$1" /etc/hosts && shift && exec "$@"'
    words = [sys.executable, "-c", SIX, str(tmp_path / "keys"), str(port)]
    ended = subprocess.run(
        ["unshare", "--mount", "sh", "-c", inner, "sh", str(tmp_path / "hosts"), *words],
        capture_output=True, text=True, timeout=SECONDS, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert (ended.returncode, ended.stdout) == (0, "together\n"), ended.stderr


def test_the_observer_may_ask_who_is_there_and_nothing_else(safe):
    bob = safe.start("bob", ["ann"])
    with Observer(
        "run", [safe.peers["ann"], safe.peers["bob"]], safe.credentials("observer")
    ) as observer:
        assert observer.hello("bob", SECONDS) == b"bob says hello"
        assert observer.hello("ann", 0.1) is None
        overheard = []
        observer._session.declare_subscriber(
            "hearsay/run/bob/*", lambda sample: overheard.append(sample)
        )
        for key in ("ann/1", "observer/1"):
            observer._session.put(f"hearsay/run/{key}", b"forged", congestion_control=BLOCK)
        assert transport._ask(observer._session, "hearsay/run/bob/1", 1000, 1.0, print) is None
        ann = safe.start("ann", ["bob"])
        together(ann, bob)
        bob.publish(1, b"for ann")
        until(lambda: ann.got)
        assert observer.hello("ann", SECONDS) == b"ann says hello"
        assert not bob.got and not overheard


def test_the_observer_needs_no_certificate_on_plain_tcp(world):
    world.start("bob", ["ann"])
    with Observer("run", [world.peers["bob"]], None) as observer:
        assert observer.hello("bob", SECONDS) == b"bob says hello"


def test_bad_credentials_are_named(safe, tmp_path):
    good = safe.credentials("ann")
    me, other = safe.peers["ann"], [safe.peers["bob"]]
    text, foreign = tmp_path / "text.pem", tmp_path / "foreign"
    text.write_text("no certificate")
    tls.make(foreign, {"ann": []})
    cases = [
        (
            Credentials(good.ca, tmp_path / "missing.pem", good.key),
            ValueError,
            r"certificate of ann must be a PEM file that can be read, got '.*missing.pem \(No such",
        ),
        (
            Credentials(text, good.certificate, good.key),
            ValueError,
            "ca must be a PEM file with a certificate, got '.*text.pem'",
        ),
        (
            Credentials(good.ca, text, good.key),
            ValueError,
            "certificate must be a PEM file .* got '.*text.pem'",
        ),
        (
            Credentials(good.ca, good.certificate, safe.keys / "bob.key"),
            ValueError,
            "private key '.*bob.key', got '.*ann.pem'",
        ),
        (
            Credentials(foreign / "ca.pem", good.certificate, good.key),
            ValueError,
            "ann.pem' must be signed by the authority in '.*ca.pem', .*got 'one that is not ",
        ),
        (
            safe.credentials("bob"),
            ValueError,
            "common name in '.*bob.pem' must be the agent's name 'ann', got 'bob'",
        ),
    ]
    for credentials, kind, message in cases:
        with pytest.raises(kind, match=message):
            Transport(
                "run",
                me,
                other,
                other,
                credentials,
                on_message=print,
                outbox=print,
                hello=print,
                largest=10,
            )


@pytest.mark.parametrize(
    ("function", "year", "what"), [("expiry", 2020, "expired"), ("begin", 2120, "begins")]
)
def test_a_certificate_of_another_time_is_named(safe, monkeypatch, function, year, what):
    """It is, or the clock is wrong."""
    monkeypatch.setattr(tls, function, lambda path: datetime(year, 1, 1, tzinfo=UTC))
    today = r"on \d{4}-\d\d-\d\d by this host's clock"
    with pytest.raises(
        ValueError, match=f"ann.pem' must be valid today, {today}, got 'one that {what} on {year}-"
    ):
        safe.start("ann", ["bob"])
