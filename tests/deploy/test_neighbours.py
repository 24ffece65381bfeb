"""When a neighbour is asked, and when not: a network of this test's own making,
so that nothing depends on how fast a machine is.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from hearsay._interrupts import Request
from hearsay.deploy import greeting
from hearsay.deploy import neighbours as module
from hearsay.deploy.host import Stopped
from hearsay.deploy.links import Peer
from hearsay.deploy.mailbox import Mailbox
from hearsay.deploy.messages import Format
from hearsay.deploy.neighbours import Neighbours
from hearsay.deploy.phases import Phases
from hearsay.deploy.settings import load
from tests.deploy.networks import SECONDS, wait_for, write

FORMAT = Format("wards", "c" * 64, {"params": (3,)}, np.dtype("<f8"))
HEARS = ("bob", "carol")


def message(sender: str, step: int) -> bytes:
    return FORMAT.encode(sender, step, {"params": np.full(3, float(step))})


class Line:
    """A transport that only notes down who is asked for what; the test answers."""

    def __init__(self, mailbox: Mailbox) -> None:
        self.hears = self.heard_by = HEARS
        self.me, self.mailbox = Peer("alice", "tcp/127.0.0.1:1"), mailbox
        self.here, self.times = set(HEARS), Counter(HEARS)
        self.asked: list[tuple[str, str]] = []
        self.open: dict[tuple[str, str], list] = {}

    def alive(self) -> set[str]:
        return set(self.here)

    def met(self, name: str) -> int:
        return self.times[name]

    def inquire(self, name, what, timeout, answered, ended) -> None:
        assert (name, what) not in self.open, "two questions for one message"
        self.asked.append((name, what))
        self.open[name, what] = [answered, ended]

    def answer(self, name: str, what: str, payload: bytes | None) -> None:
        answered, ended = self.open.pop((name, what))
        if payload is not None:
            answered(payload)
        ended()

    def come_back(self, name: str) -> None:
        self.here.add(name)
        self.times[name] += 1
        self.mailbox.wake()


class Round:
    """`gather` on a thread of its own."""

    def __init__(self, alice: Neighbours, step: int) -> None:
        self.found: list = []
        self._thread = threading.Thread(target=self._run, args=(alice, step), daemon=True)
        self._thread.start()

    def _run(self, alice: Neighbours, step: int) -> None:
        try:
            self.found.append(alice.gather(step))
        except Stopped as stopped:
            self.found.append(stopped)

    def result(self):
        self._thread.join(SECONDS)
        return self.found[0]


@pytest.fixture
def world(tmp_path, monkeypatch):
    """alice, who hears bob and carol; nobody is asked because of the time unless a test says so."""

    def make(ask: float = SECONDS, **network):
        monkeypatch.setattr(module, "_ASK", ask)
        found = load(write(tmp_path, names=("alice", *HEARS), network=network))
        mailbox = Mailbox(FORMAT, HEARS, 1000, {})
        line = Line(mailbox)
        alice = Neighbours(found, "alice", line, mailbox, Request(), FORMAT.largest)  # type: ignore[arg-type]
        greeting = threading.Thread(
            target=alice.greet, args=(lambda name, answer: answer == b"yes", False)
        )
        greeting.start()
        for name in HEARS:
            wait_for(lambda name=name: (name, "hello") in line.open)
            line.answer(name, "hello", b"no")
            wait_for(lambda name=name: (name, "hello") in line.open)
            line.answer(name, "hello", b"yes")
        greeting.join(SECONDS)
        line.asked.clear()
        return alice, line, mailbox

    return make


def test_messages_that_come_are_not_asked_for(world):
    alice, line, mailbox = world()
    for step in range(5):
        going = Round(alice, step)
        for name in HEARS:
            mailbox.put(name, str(step), message(name, step))
        heard, missing = going.result()
        assert set(heard) == set(HEARS) and missing == []
        mailbox.begin(step + 1)
    assert line.asked == []


def test_a_later_round_is_a_reason_to_ask_at_once(world):
    alice, line, mailbox = world()
    going = Round(alice, 0)
    mailbox.put("carol", "0", message("carol", 0))
    mailbox.put("bob", "1", message("bob", 1))
    wait_for(lambda: line.asked == [("bob", "0")])
    mailbox.put("bob", "2", message("bob", 2))  # while the answer is under way
    line.answer("bob", "0", message("bob", 0))
    assert set(going.result()[0]) == set(HEARS) and line.asked == [("bob", "0")]


def test_a_link_that_was_made_anew_is_a_reason_to_ask_at_once(world):
    alice, line, mailbox = world()
    going = Round(alice, 0)
    mailbox.put("carol", "0", message("carol", 0))
    line.here.discard("bob")
    mailbox.wake()
    wait_for(lambda: alice.waiting_for == ["bob"])
    assert line.asked == [], "nobody is there to be asked"
    line.come_back("bob")
    wait_for(lambda: line.asked == [("bob", "0")])
    line.answer("bob", "0", None)  # not yet
    line.come_back("bob")
    wait_for(lambda: len(line.asked) == 2)
    mailbox.put("bob", "0", message("bob", 0))  # which he then sends by himself
    assert going.result()[1] == []


def test_time_is_a_reason_to_ask_everybody_at_once(world):
    alice, line, _ = world(ask=0.01)
    alice._usual = [0.0]
    going = Round(alice, 0)
    for turn in range(3):
        wait_for(lambda turn=turn: len(line.asked) == 2 * (turn + 1))
        assert set(line.open) == {("bob", "0"), ("carol", "0")}, "both are open at the same time"
        for name in HEARS:
            line.answer(name, "0", message(name, 0) if turn == 2 else None)
    assert set(going.result()[0]) == set(HEARS)


def test_questions_become_ever_rarer(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    pace, asked = module.Pace(1.0, 2.0), {"bob": [], "carol": []}
    while now[0] < 140:
        for name in pace.due(asked, at_once={"carol"} if now[0] == 100.5 else ()):
            asked[name].append(now[0] - 100)
        assert 0 < pace.left(asked) <= 0.5
        now[0] += 0.25
    assert asked == {"bob": [1.0, 3.0, 7.0, 15.0, 31.0], "carol": [0.5, 2.5, 6.5, 14.5, 30.5]}
    assert pace.left([]) == 0.5, "nobody to ask"


def test_the_first_question_waits_for_four_times_what_rounds_take(world):
    alice, _, mailbox = world()
    usual = []
    for step in range(40):
        going = Round(alice, step)
        wait_for(lambda: set(alice.waiting_for) == set(HEARS))
        time.sleep(0.02)
        for name in HEARS:
            mailbox.put(name, str(step), message(name, step))
        going.result()
        mailbox.begin(step + 1)
        usual.append(alice._usual[0])
    assert usual[-1] > 0.015, "a smoothed time"


def test_nobody_stops_at_a_deadline_without_having_asked(world):
    """However long rounds have taken: one slow neighbour must not keep others from being
    asked for what was lost.
    """
    alice, line, _ = world(ask=0.01, deadline=4.0)
    alice._usual = [1000.0]
    going = Round(alice, 0)
    wait_for(lambda: len(line.asked) == 2)
    for name in HEARS:
        line.answer(name, "0", message(name, 0))
    assert going.result()[1] == []


@pytest.mark.parametrize("length", [32, 1_000_000])
def test_an_instance_that_would_crowd_out_what_this_agent_says_is_refused(length):
    """It is kept for good and told to all neighbours,
    who hear no answer of more than a megabyte.
    """
    answer = {
        "config": "c",
        "public": {},
        "instance": "a" * length,
        "instances": {},
        "heard": {},
        "private": True,
    }
    assert (greeting.read("mallory", json.dumps(answer).encode()) is not None) == (length == 32)


def test_who_was_away_says_nothing_of_how_long_messages_take(world):
    alice, line, mailbox = world()
    before = alice._usual[0]
    line.here.discard("bob")
    going = Round(alice, 0)
    wait_for(lambda: alice.waiting_for)
    mailbox.put("carol", "0", message("carol", 0))
    line.come_back("bob")
    mailbox.put("bob", "0", message("bob", 0))
    going.result()
    assert alice._usual[0] == before


def test_under_skip_a_liar_costs_patience_and_no_more(world):
    """bob has sent a message of a far round, so that every round asks him for his,
    and never answers: no round waits for the answer.
    """
    alice, line, mailbox = world(policy="skip", patience=0.05, deadline=SECONDS)
    mailbox.put("bob", "900", message("bob", 900))
    for step in range(6):
        mailbox.put("carol", str(step), message("carol", step))
        began = time.monotonic()
        heard, missing = Round(alice, step).result()
        assert missing == ["bob"] and set(heard) == {"carol"}
        assert time.monotonic() - began < SECONDS / 2, "the question is still open"
        mailbox.begin(step + 1)
    assert line.asked == [("bob", str(step)) for step in range(4)], (
        "no more than four are left open"
    )
    mailbox.put("carol", "6", message("carol", 6))
    line.here.discard("bob")
    assert Round(alice, 6).result()[1] == ["bob"]


@pytest.mark.parametrize("step", [0, 1])
def test_under_skip_the_first_message_is_waited_for_until_the_deadline(world, monkeypatch, step):
    """bob is there and has not begun: he may wait for somebody who starts later. Whoever went on
    without him would have sent all its messages before he sends one.
    """
    alice, line, mailbox = world(policy="skip", patience=1.0, deadline=100.0)
    passed, looks = [0.0], []
    alive = line.alive
    monkeypatch.setattr(module.Clock, "passed", property(lambda self: passed[0]))
    line.alive = lambda: looks.append(1) or alive()  # type: ignore[method-assign]
    mailbox.begin(step)
    mailbox.put("carol", str(step), message("carol", step))
    one = Round(alice, step)
    passed[0] = 99.0
    mailbox.wake()
    before = len(looks)
    wait_for(lambda: one.found or len(looks) > before + 4)
    if step == 1:
        assert one.result()[1] == ["bob"], "later ones cost patience alone"
        return
    assert not one.found
    mailbox.put("bob", "0", message("bob", 0))
    assert one.result()[1] == []
    # Nobody waits for ever: nor for one who never begins, nor for one who is not there.
    mailbox._heard.clear(), mailbox._held.clear()
    mailbox.put("carol", "0", message("carol", 0))
    passed[0] = 101.0
    assert Round(alice, 0).result()[1] == ["bob"]
    line.here.discard("bob")
    assert Round(alice, 0).result()[1] == ["bob"]


def test_where_records_arrive_only_time_without_a_neighbour_counts(world, monkeypatch):
    """bob waits for his records, for as long as that takes; then his link breaks."""
    alice, line, mailbox = world(deadline=100.0)
    alice.network = replace(alice.network, follow=True)
    now, looks = [0.0], []
    alive = line.alive
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    line.alive = lambda: looks.append(1) or alive()  # type: ignore[method-assign]
    mailbox.put("carol", "0", message("carol", 0))
    one = Round(alice, 0)

    def after(seconds: float) -> None:
        now[0] += seconds
        before = len(looks)
        mailbox.wake()
        wait_for(lambda: one.found or len(looks) > before + 2)

    for _ in range(5):
        after(99.0)
        after(99.0)
    assert not one.found
    line.here.discard("bob")
    after(99.0)
    assert not one.found
    line.come_back("bob")
    after(99.0)
    line.here.discard("bob")
    after(99.0)
    assert not one.found, "what passed before he came back counts no more"
    after(2.0)
    assert isinstance(one.result(), Stopped) and "bob (not connected)" in str(one.result())


def test_under_skip_who_gives_up_before_its_first_message_is_waited_for_too(world):
    """bob leaves without having sent anything, because somebody whom he hears starts later still:
    the wait begins anew, and again when he is back.
    """
    alice, line, mailbox = world(policy="skip", patience=SECONDS, deadline=100.0)
    now = [0.0]
    began = list[float]()

    class Clock(module.Clock):
        def __init__(self, neighbours: Neighbours) -> None:
            super().__init__(neighbours)
            began.append(now[0])

        passed = property(lambda self: now[0] - began[-1])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "Clock", Clock)
        mailbox.put("carol", "0", message("carol", 0))
        one = Round(alice, 0)
        wait_for(lambda: began == [0.0])
        for time_, change in ((90.0, line.here.discard), (180.0, line.here.add)):
            now[0] = time_
            change("bob")
            mailbox.wake()
            wait_for(lambda time_=time_: one.found or began[-1] == time_)
        now[0] = 270.0
        mailbox.put("bob", "0", message("bob", 0))
        heard, missing = one.result()
        assert set(heard) == {"bob", "carol"} and missing == [] and began == [0.0, 90.0, 180.0]


def test_a_deadline_says_who_is_connected(world):
    alice, line, _ = world(deadline=0.1)
    line.here.discard("carol")
    said = str(Round(alice, 0).result())
    where = alice.network.members[2].endpoint.partition("/")[2]
    assert (
        "no message 0 from bob (connected, but silent), carol (not connected) within 0.1 s"
        f" ({where}: connection refused)" in said
    )


def parting(alice: Neighbours, line: Line) -> threading.Thread:
    """alice is done, and has asked all others whether they have heard it."""
    thread = threading.Thread(target=alice.part)
    thread.start()
    wait_for(lambda: all((name, "done/alice") in line.open for name in HEARS))
    return thread


def leave_without_an_answer(alice: Neighbours, line: Line) -> None:
    """bob and carol are done, too; bob answers, and carol's link is gone before she does."""
    for name in HEARS:
        assert alice.hear_done(name) == b"heard"
    line.here.discard("carol")
    line.answer("bob", "done/alice", b"heard")


def test_who_was_done_and_left_is_not_waited_for(world, monkeypatch):
    """The last word of two can always be lost: carol has heard all she needs,
    and her answer went with her link.
    """
    monkeypatch.setattr(module, "_GONE", 0.0)
    alice, line, _ = world()
    thread = parting(alice, line)
    leave_without_an_answer(alice, line)
    thread.join(SECONDS)
    assert not thread.is_alive()


def test_who_was_done_and_has_lost_its_link_is_told_when_it_is_back(world, monkeypatch):
    """carol's process is there, on a busy machine or a bad line: without the word she would wait
    until her deadline.
    """
    monkeypatch.setattr(module, "_GONE", 0.0)
    alice, line, _ = world()
    host, _, port = alice.network.members[2].endpoint.partition("/")[2].rpartition(":")
    with socket.create_server((host, int(port))):
        thread = parting(alice, line)
        leave_without_an_answer(alice, line)
        wait_for(lambda: alice.diagnosis.answers("carol"))
        assert thread.is_alive()
        line.come_back("carol")
        line.answer("carol", "done/alice", b"heard")
        thread.join(SECONDS)
        assert not thread.is_alive()


def test_the_end_is_told_and_heard(world):
    alice, line, _ = world()
    thread = parting(alice, line)
    for name in HEARS:
        line.answer(name, "done/alice", b"heard")
    assert alice.hear_done("bob") == b"heard" and alice.hear_done("mallory") is None
    assert thread.is_alive()
    assert alice.hear_done("carol") == b"heard"
    thread.join(SECONDS)
    assert not thread.is_alive()
    assert json.dumps(alice.waiting_for)


@pytest.mark.parametrize("follow", [False, True])
def test_who_is_done_stays_for_those_that_wait_for_records(world, follow):
    """bob and carol hear alice and are in an earlier round, however long that lasts."""
    alice, line, mailbox = world()
    alice.network = replace(alice.network, follow=follow)
    thread = parting(alice, line)
    for name in HEARS:
        line.answer(name, "done/alice", b"heard")
    alice.network = replace(alice.network, deadline=0.01)
    mailbox.wake()
    if not follow:
        thread.join(SECONDS)
        assert not thread.is_alive()
        return
    passed = time.monotonic()
    wait_for(lambda: not thread.is_alive() or time.monotonic() > passed + 0.2)
    assert thread.is_alive()
    line.here.discard("carol")
    thread.join(SECONDS)
    assert not thread.is_alive()


def test_every_phase_of_a_round_has_its_usual_time(world):
    """A relay comes at once, a gradient takes its time: neither makes the other's question early
    or late.
    """
    alice, _, mailbox = world()
    alice._phases, alice._usual = Phases(2), [0.0, 0.0]
    for step in range(8):
        going = Round(alice, step)
        if not step % 2:
            wait_for(lambda: set(alice.waiting_for) == set(HEARS))
            time.sleep(0.05)
        for name in HEARS:
            mailbox.put(name, str(step), message(name, step))
        going.result()
        mailbox.begin(step + 1)
    assert alice._usual[0] > 2 * alice._usual[1]


def test_a_deadline_names_the_relay(world):
    alice, _, _ = world(deadline=0.1)
    alice._phases, alice._usual = Phases(3), [0.0] * 3
    assert "no message 4 (round 1, relay 1 of 2) from bob" in str(Round(alice, 4).result())
