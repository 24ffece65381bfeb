"""Waiting for neighbours: until they have answered, until their message of a round is there, until
they are done.

**Messages come by themselves.** TCP loses none; only a link that broke does. So a message is
asked for only

- when its sender's link was made anew since the last one was heard: what was under way
  then is lost,
- when a later round of the same sender has been heard,
- when it has not come in four times the time that rounds have taken here (exchanges of the same
  phase, where a round has several), and not before a second (but by half the deadline); then after
  twice that time, and so on.

A question is a few bytes, but its answer is the whole message: on a slow line a question too many
costs a round. No message is asked for twice at a time, and a question has no time limit of its own:
it ends with an answer (the message, or that there is none yet) or with the link.

Questions are asked of all at once and answered on the network's threads. This thread waits for the
mailbox alone, looks up when links come and go, and twice a second.

Where records arrive while the network runs (following.py) a neighbour that is connected may be
waiting for its own: only time in which somebody is not connected counts towards the deadline.

While somebody is not connected, their endpoint is dialled (diagnosis.py): the log, every ten
seconds, and the last word say why.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial

from hearsay._interrupts import Request
from hearsay.deploy.diagnosis import Diagnosis, Expiry
from hearsay.deploy.host import Stopped
from hearsay.deploy.mailbox import Fields, Mailbox
from hearsay.deploy.phases import Phases
from hearsay.deploy.settings import Network
from hearsay.deploy.transport import Transport

log = logging.getLogger("hearsay.agent")
_LOOK = 0.5  # seconds after which a waiting agent looks whether it is to stop
# Seconds before somebody who has answered, but is not ready, is asked again; doubled every time,
# up to _LOOK.
_NUDGE = 0.05
_ASK = 1.0  # seconds before a message is asked for, at least
_SLOW = 10e6 / 8  # bytes a second: what a line is taken for before anything was heard over it
_BREATH = 0.01  # seconds between two looks at the same thing
# Questions that one neighbour may leave open: under "skip" a liar would collect one in every round.
_MOST = 4
_SMOOTH = 8  # rounds
_WORD = 10.0  # seconds between two words in the log; the first comes after half of them
# Seconds without a link after which one who said that it is done has left, and not only
# lost its link.
_GONE = 2.0
_ONE = Phases()
_DIAL = 2.0  # seconds before the endpoint of one who is not connected is dialled


class Neighbours:
    """Whom an agent waits for, and what it asks them.

    `waiting_for` is for those who look from outside.
    """

    def __init__(
        self,
        network: Network,
        name: str,
        transport: Transport,
        mailbox: Mailbox,
        stop: Request,
        message_bytes: int,
        phases: Phases = _ONE,
    ) -> None:
        self.network, self.name, self.transport, self.mailbox = network, name, transport, mailbox
        self.waiting_for, self._told = list[str](), set[str]()
        self._hears, self._heard_by, self._stop = (
            set(transport.hears),
            set(transport.heard_by),
            stop,
        )
        peers = [member.peer for member in network.members]
        credentials = network.members[network.index(name)].credentials
        self.diagnosis = Diagnosis(transport.me, peers, credentials)
        self._expiry = Expiry(name, None if credentials is None else credentials.certificate)
        # How long exchanges take here, by their phase: a relay waits for nobody's gradient.
        self._phases, self._usual = phases, [message_bytes / _SLOW] * phases.count
        self._without = list[str]()
        # How often each had come when it was last known to lack nothing.
        self._linked: dict[str, int] = {}
        self._lock, self._open = threading.Lock(), set[tuple[str, str]]()

    def greet(self, agrees: Callable[[str, bytes], bool], optional: bool) -> None:
        """Until every neighbour has answered and agrees.

        `optional`: those who are away are not waited for, but somebody who hears
        this agent must answer.
        """
        waiting, answers = self._hears | self._heard_by, dict[str, bytes]()
        clock, pace = Clock(self), Pace(0.0, _NUDGE, _LOOK)
        while waiting:
            linked = {name: self.transport.met(name) for name in waiting}
            asked = waiting & self.transport.alive()
            for name in pace.due(self.unasked(asked, "hello")):
                self.ask(name, "hello", partial(self._greeted, answers, name, time.monotonic()))
            self.mailbox.rest(pace.left(asked))
            for name in sorted(set(answers) & waiting):
                if agrees(name, answers.pop(name)):
                    waiting.discard(name)
                    self._linked[name] = linked[name]
            self.waiting_for = sorted(waiting)
            self.require_running()
            here = waiting & self.transport.alive()
            enough = (self._heard_by - waiting or not self._heard_by) and not here
            if optional and enough and clock.passed > self.network.patience:
                break
            if waiting and clock.over(waiting - here):
                raise Stopped(
                    f"{', '.join(sorted(waiting))} did not answer within {self.network.deadline:g}"
                    f" s{self.reasons(waiting - here)}: nothing was sent. Start this agent again"
                    " when they run and can be reached"
                )
            if waiting and clock.word(waiting - here):
                log.info(
                    "waiting for %s to start%s",
                    ", ".join(sorted(waiting)),
                    self.reasons(waiting - here),
                )
        self.waiting_for = []

    def _greeted(self, answers: dict[str, bytes], name: str, asked: float, answer: bytes) -> None:
        # A message 0 may be a whole round trip behind ours: its sender had to be answered first.
        self._usual[0] = max(self._usual[0], time.monotonic() - asked)
        answers[name] = answer

    def gather(self, step: int) -> tuple[dict[str, Fields], list[str]]:
        """The neighbours' messages of that exchange, and who is left out."""
        phase = self._phases.phase(step)
        # Nobody stops at a deadline without having asked, however long one slow neighbour has made
        # rounds last.
        first = max(_ASK, min(4 * self._usual[phase], self.network.deadline / 2))
        clock, parted, pause = Clock(self), False, 0.0
        pace, overtaken, left = Pace(first, 2 * first), set[str](), set[str]()
        while missing := self.mailbox.wait(step, pause, worth := self._worth_waiting_for(step)):
            self.waiting_for = missing
            self.require_running()
            gone = set(missing) - self.transport.alive()
            parted = parted or bool(gone)
            beginners = self._beginners(step) & set(missing)
            if left != (left := gone & beginners):
                clock = Clock(self)
            patience = self._patience(beginners)
            if self.network.follow and not gone and patience >= self.network.deadline:
                clock.forgive()
            if clock.passed > patience or not set(missing) & worth:
                break
            if patience > self.network.deadline and clock.over(gone):
                raise Stopped(self._silence(step, missing, gone))
            if clock.word(gone):
                away = " (not connected)" if gone else ""
                log.info(
                    "waiting for message %s of %s%s%s",
                    self._phases.name(step),
                    ", ".join(missing),
                    away,
                    self.reasons(gone),
                )
            self._ask_for(step, set(missing) - gone, pace, overtaken)
            pause = min(pace.left(set(missing) - gone), max(_BREATH, patience - clock.passed))
        if missing != self._without:
            log.info(
                "from message %s on without %s",
                self._phases.name(step),
                ", ".join(missing) or "nobody",
            )
        self.waiting_for, self._without = [], missing
        if not missing and not parted:
            self._usual[phase] += (clock.passed - self._usual[phase]) / _SMOOTH
        return self.mailbox.take(step), missing

    def _ask_for(self, step: int, names: set[str], pace: Pace, overtaken: set[str]) -> None:
        heard, what = self.mailbox.heard, str(step)
        names = self.unasked(names, what)
        linked = {name: self.transport.met(name) for name in names}
        later = {name for name in names if heard.get(name, -1) > step} - overtaken
        anew = {name for name in names if linked[name] != self._linked.get(name)}
        overtaken |= later
        for name in pace.due(names, at_once=anew | later):
            self._linked[name] = linked[name]
            self.ask(name, what, partial(self.mailbox.put, name, what))

    def part(self) -> None:
        """Answer for the messages until all who hear this agent are done,
        and tell those it hears that it is.
        """
        told, clock, pace = dict[str, bytes](), Clock(self), Pace(0.0, _NUDGE, _LOOK)
        away, what = dict[str, float](), f"done/{self.name}"
        while not self._stop.is_set():
            untold, alive = self._hears - set(told), self.transport.alive()
            # Who has said that it is done and then left needs no word any more: its answer was lost
            # with its link. Who still listens has lost its link only, and waits for the word.
            lost = (untold & self._told) - alive
            for name in lost - set(away):
                self.diagnosis.forget(name)
            away = {name: away.get(name, clock.passed) for name in lost}
            quiet = {name for name, since in away.items() if clock.passed - since >= _GONE}
            self.diagnosis.dial(quiet)
            untold -= {name for name in quiet if self.diagnosis.answers(name) is False}
            asked = untold & alive
            for name in pace.due(self.unasked(asked, what)):
                self.ask(name, what, partial(told.__setitem__, name))
            missing = self._heard_by - self._told
            if not missing and not untold:
                return
            if self.network.follow and missing | (self._hears - set(told)) <= alive:
                clock.forgive()
            if clock.passed > self.network.deadline:
                who = ", ".join(sorted(missing | untold))
                log.info(
                    "ends without word from %s: if they still need messages, start this agent"
                    " again",
                    who,
                )
                return
            self.waiting_for = sorted(missing)
            self.mailbox.rest(pace.left(asked))

    def hear_done(self, name: str) -> bytes | None:
        """A neighbour that hears this agent says that it needs nothing more of it."""
        if name not in self._heard_by:
            return None
        self._told.add(name)
        self.mailbox.wake()
        return b"heard"

    def require_running(self) -> None:
        if self._stop.is_set():
            raise Stopped("stopped on request; the same command continues")

    def watch_certificate(self) -> None:
        self._expiry.watch()

    def _worth_waiting_for(self, step: int) -> set[str]:
        """Everybody; under "skip" who is there and has kept up, and who has yet to begin."""
        if self.network.policy == "wait":
            return self._hears
        heard = self.mailbox.heard
        there = (self.transport.alive() & self._hears) - self.mailbox.lost(step)
        return self._beginners(step) | {name for name in there if heard.get(name, -1) >= step - 2}

    def _beginners(self, step: int) -> set[str]:
        """Under "skip", in the first exchange: those who have never sent anything, be they there
        or not.

        Each has answered before. It may be waiting for somebody who starts later, or have given
        that up until it is started again: those who went on without it would have spent all that
        they may on each other before it begins.
        """
        begun = step > 0 or self.network.policy == "wait"
        return set() if begun else self._hears - set(self.mailbox.heard) - self.mailbox.lost(step)

    def _patience(self, beginners: set[str]) -> float:
        """How long an exchange waits before it does without those who are missing. For beginners:
        from when one of them last came or went.
        """
        if self.network.policy == "wait":
            return math.inf
        return self.network.deadline if beginners else self.network.patience

    def unasked(self, names: set[str], what: str) -> set[str]:
        """Those of whom it is not being asked already, and who have not left
        too many questions open.
        """
        with self._lock:
            open_ = Counter(name for name, _ in self._open)
            return {
                name for name in names if (name, what) not in self._open and open_[name] < _MOST
            }

    def ask(self, name: str, what: str, answered: Callable[[bytes], None]) -> None:
        """Without waiting: `answered` is called on a thread of the network's."""

        def ended() -> None:
            with self._lock:
                self._open.discard((name, what))
            self.mailbox.wake()

        with self._lock:
            self._open.add((name, what))
        self.transport.inquire(name, what, max(self.network.deadline, _WORD), answered, ended)

    def _silence(self, step: int, missing: list[str], gone: set[str]) -> str:
        who = ", ".join(
            f"{name} ({'not connected' if name in gone else 'connected, but silent'})"
            for name in missing
        )
        return (
            f"no message {self._phases.name(step)} from {who} within {self.network.deadline:g}"
            f" s{self.reasons(gone)}."
            " Nothing is lost: when they are back, start this agent again with the same command (a"
            ' longer deadline in [network] waits longer; policy = "skip" does without them)'
        )

    def reasons(self, gone: Iterable[str]) -> str:
        """Why they are not connected, as far as it is known, for the end of a sentence."""
        known = [why for name in sorted(gone) if (why := self.diagnosis.why(name))]
        return f" ({'; '.join(known)})" if known else ""


class Clock:
    """How long one thing has been waited for, and what is due meanwhile."""

    def __init__(self, neighbours: Neighbours) -> None:
        self._neighbours, self._began = neighbours, time.monotonic()
        self._next_word, self._next_dial = self._began + _WORD / 2, self._began + _DIAL

    @property
    def passed(self) -> float:
        return time.monotonic() - self._began

    def word(self, gone: Iterable[str]) -> bool:
        """It is time for a line in the log.

        Whoever is `gone` is dialled before, so that there is something to say.
        """
        now = time.monotonic()
        if now > self._next_dial:
            self._next_dial = now + _WORD
            self._neighbours.diagnosis.dial(gone)
        if now <= self._next_word:
            return False
        self._next_word = now + _WORD
        self._neighbours.watch_certificate()
        return True

    def forgive(self) -> None:
        """What has passed does not count."""
        self._began = time.monotonic()

    def over(self, gone: Iterable[str]) -> bool:
        """The deadline has passed. The last word says why, so it waits for that."""
        if self.passed <= self._neighbours.network.deadline:
            return False
        diagnosis = self._neighbours.diagnosis
        diagnosis.dial(unknown := [name for name in gone if not diagnosis.why(name)])
        diagnosis.wait(unknown)
        return True


class Pace:
    """When to ask each neighbour: first after `start` seconds, or at once where there is reason to,
    and again after pauses that double from `pause` up to `most`.
    """

    def __init__(self, start: float, pause: float, most: float = float("inf")) -> None:
        self._first, self._pause, self._most = time.monotonic() + start, pause, most
        self._next, self._pauses = dict[str, float](), dict[str, float]()

    def due(self, names: Iterable[str], at_once: Iterable[str] = ()) -> list[str]:
        now = time.monotonic()
        found = [
            name
            for name in sorted(names)
            if name in at_once or self._next.get(name, self._first) <= now
        ]
        for name in found:
            pause = self._pauses.get(name, self._pause)
            self._next[name], self._pauses[name] = now + pause, min(2 * pause, self._most)
        return found

    def left(self, names: Iterable[str]) -> float:
        """Until the next of them is due, but not longer than an agent may sleep."""
        soonest = min((self._next.get(name, self._first) for name in names), default=float("inf"))
        return min(_LOOK, max(_BREATH, soonest - time.monotonic()))
