"""How cards travel: who shares noise with whom need not be who hears whom.

Every agent answers

    keys        a digit for each agent of the network: how much of its card it holds (exchange.py)
    keys-NUMBER the card of that agent

to those who hear it, and tells them its digits when they change. Whoever sees that a neighbour
holds more of a card than itself asks for it, of one neighbour at a time, and checks it before it
keeps it. So a card crosses a ring of n agents in n / 2 steps of a question and an answer each, and
every link carries it twice: the introduction, and with the confirmation.

What is told may be lost, when a link breaks or is only being made. So digits are also asked for
when a neighbour has come, and after pauses that double from one second on; a card that a neighbour
does not hand over is asked of the next one. In between the agent sleeps until something arrives.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from hearsay.deploy.exchange import Exchange
from hearsay.deploy.host import Stopped
from hearsay.deploy.neighbours import Clock, Neighbours, Pace

log = logging.getLogger("hearsay.agent")
WORD = "keys"
_AGAIN, _SELDOM = 1.0, 30.0  # seconds between two questions for the same digits
_PATIENCE = 2.0  # seconds before a card is asked of somebody else
_NUMBER = re.compile(r"0|[1-9][0-9]{0,5}")


@dataclass
class _Question:
    """For a card: when it was asked, how much of it was promised then, and whether it came."""

    since: float
    promised: str
    answered: bool = False

    def open(self, now: float) -> bool:
        """It may still be answered."""
        return not self.answered and now - self.since < _PATIENCE

    def again(self, found: str, now: float) -> bool:
        """There is more of the card now; or no answer came, and whoever was asked may have died
        over it (`unasked` knows which questions are still under way).
        """
        return found > self.promised or not (self.answered or self.open(now))


class Gossip:
    """`told`, `answer` and what is asked for run on the network's threads, `gather` on the agent's.

    Args:
      exchange: what the agent holds.
      neighbours: whom it may ask.
    """

    def __init__(self, exchange: Exchange, neighbours: Neighbours) -> None:
        self._exchange, self._neighbours = exchange, neighbours
        self._lock, self._digits = threading.Lock(), dict[str, str]()
        self._arrived: list[tuple[int, str, bytes]] = []
        # By agent, of whom its card was asked.
        self._asked: dict[int, dict[str, _Question]] = {}

    def answer(self, what: str) -> bytes | None:
        """To a question of a neighbour's."""
        if what == WORD:
            return self._exchange.stages().encode()
        number = what.removeprefix(f"{WORD}-")
        return self._exchange.card(int(number)) if _NUMBER.fullmatch(number) else None

    def told(self, name: str, digits: bytes) -> None:
        """A neighbour says how much it holds."""
        agents = len(self._exchange.names)
        if not re.fullmatch(rb"[012]{%d}" % agents, digits):
            return
        with self._lock:
            self._digits[name] = digits.decode()
            for asked in self._asked.values():
                if name in asked and asked[name].answered:
                    # What it handed over then was not good enough, or it has more of it now.
                    del asked[name]
        self._neighbours.mailbox.wake()

    def gather(self, met: Mapping[str, str]) -> None:
        """Until everybody's card is complete and all keys are confirmed.

        Args:
          met: the instances of neighbours' ledgers, as they said themselves.
        """
        neighbours, exchange = self._neighbours, self._exchange
        clock, pace, linked = Clock(neighbours), Pace(0.0, _AGAIN, _SELDOM), dict[str, int]()
        self._tell()
        while True:
            with self._lock:
                arrived, self._arrived = self._arrived, []
            if exchange.receive(arrived, met):
                self._tell()
            lacking = exchange.lacking()
            names = [exchange.names[number] for number in lacking]
            neighbours.waiting_for = names
            if not lacking:
                return
            neighbours.require_running()
            here = set(neighbours.transport.hears) & neighbours.transport.alive()
            anew = {n for n in here if linked.get(n) != neighbours.transport.met(n)}
            for name in pace.due(neighbours.unasked(here, WORD), at_once=anew):
                linked[name] = neighbours.transport.met(name)
                neighbours.ask(name, WORD, partial(self.told, name))
            self._ask_for(here)
            self._speak(clock, names, [why for why in lacking.values() if why])
            neighbours.mailbox.rest(pace.left(neighbours.unasked(here, WORD)))

    def _tell(self) -> None:
        self._neighbours.transport.tell(WORD, self._exchange.stages().encode())

    def _ask_for(self, here: set[str]) -> None:
        held, now, questions = self._exchange.stages(), time.monotonic(), list[tuple[int, str]]()
        with self._lock:
            digits = {name: found for name, found in self._digits.items() if name in here}
            for number in range(len(held)):
                asked = self._asked.setdefault(number, {})
                better = {
                    name
                    for name, found in digits.items()
                    if found[number] > held[number]
                    and (name not in asked or asked[name].again(found[number], now))
                }
                if not better or any(one.open(now) for one in asked.values()):
                    continue
                if free := self._neighbours.unasked(better, f"{WORD}-{number}"):
                    # Not everybody's cards of the same neighbour.
                    name = sorted(free)[number % len(free)]
                    asked[name] = _Question(now, digits[name][number])
                    questions.append((number, name))
        for number, name in questions:
            self._neighbours.ask(name, f"{WORD}-{number}", partial(self._take, number, name))

    def _take(self, number: int, name: str, card: bytes) -> None:
        with self._lock:
            question = self._asked.get(number, {}).get(name)
            # A question has one answer: more of them would only fill the memory.
            if question is not None and not question.answered:
                question.answered = True
                self._arrived.append((number, name, card))

    def _speak(self, clock: Clock, names: list[str], doubts: list[str]) -> None:
        neighbours = self._neighbours
        known = set(neighbours.transport.neighbours)
        gone = (set(names) & known) - neighbours.transport.alive()
        why = "".join(f"; {doubt}" for doubt in doubts)
        if clock.over(gone):
            raise Stopped(
                f"no keys of {', '.join(names)} within {neighbours.network.deadline:g} s"
                f"{neighbours.reasons(gone)}{why}: noise is shared with them, and nothing was sent."
                " Start this agent again when they run"
            )
        if clock.word(gone):
            log.info(
                "waiting for the keys of %s%s%s", ", ".join(names), neighbours.reasons(gone), why
            )
