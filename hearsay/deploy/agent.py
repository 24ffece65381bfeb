"""The rounds of one agent.

    prepare the message of round k, noise it                                       (steps.py, privatize.py)
    write message, state and budget to the ledger, wait for the disk               (ledger.py)
    publish                                                                        (transport.py)
    wait for the neighbours' messages of round k; ask for those that do not come   (mailbox.py)
    update; k + 1

A process that dies anywhere in this is started again with the same command. It finds its last message in the ledger, sends the same bytes, and goes on from there.

**Before anything is noised** every neighbour must have answered: that it holds the same configuration (by hash; the first difference is named), that it takes
this process for the agent and no other (a ledger has a random `instance`; neighbours remember the first they meet), and that it has heard nothing from this agent that
is not in its ledger. A ledger that is older than what was sent (a backup that was put back, an empty folder), or a second process of the same name elsewhere, would
noise rounds a second time: the agent refuses. So it does when its records or its plan are no longer those that the ledger was begun with.

**What is heard** is clipped to a bound that no honest agent passes before it is used (arithmetic.py): it keeps rounding errors, which are counted, small.

**A silent neighbour.** Policy "wait": go on waiting, with a word in the log, and stop when the deadline is over; nothing is lost, the same command continues. Policy "skip":
after `patience` seconds (at once, if it is known to be gone) its term is left out of the sum, with its weight (mixing.py), and the certificate allows for that in
every round.

**The end.** An agent that is done still answers for its messages until all who hear it have said that they are done too.
"""

from __future__ import annotations

import json
import logging
import re
import threading
import time
from pathlib import Path

import numpy as np

from hearsay._version import VERSION
from hearsay.base import Inbox
from hearsay.certify import unit
from hearsay.deploy import arithmetic, budget, greeting, steps
from hearsay.deploy.host import Refused, Stopped, settle
from hearsay.deploy.ledger import Ledger
from hearsay.deploy.mailbox import Fields, Mailbox
from hearsay.deploy.messages import Format
from hearsay.deploy.plan import Plan, planned
from hearsay.deploy.privatize import REHEARSAL, Lattice, Rehearsal
from hearsay.deploy.settings import SCHEMA, Network
from hearsay.deploy.transport import Transport
from hearsay.interrupts import stopping
from hearsay.mixing import listening, own_weight

log = logging.getLogger("hearsay.agent")
_NUDGE = 0.05  # seconds before a message that has not come is asked for; doubled every time, up to a second
_OUTBOX = 2**30  # bytes of messages that are kept before those that everybody has are let go
_WORD = 10.0  # seconds between two words in the log
_LISTEN = 3.0  # seconds for which an agent that disagrees still answers, so that the others learn of it too


class Agent:
    """One agent of a network. `run()` returns its model."""

    def __init__(
        self,
        network: Network,
        name: str,
        *,
        rehearsal: int | None = None,
        no_privacy: bool = False,
        data: Path | None = None,
        plan: Plan | None = None,
    ) -> None:
        self.network, self.name, self.number = network, name, network.index(name)
        self.member = network.members[self.number]
        self.plan = plan or planned(network, self.number, data, rehearsed=rehearsal is not None)
        algorithm, problem, graph = self.plan.algorithm, self.plan.problem, self.plan.graph
        self.total, self._loudest = (
            self.plan.messages,
            arithmetic.loudest(algorithm, problem, graph, self.plan.messages),
        )
        self.spent = budget.curve(self.plan, self.number)
        certificate = self.plan.certificate
        if not np.isfinite(certificate.budgets[self.number].epsilon) and not no_privacy:
            reason = certificate.budgets[self.number].reason
            raise ValueError(f"the privacy budget would be infinite ({reason}); use --no-privacy to run all the same")
        self.steps = steps.Steps(algorithm, problem, self.number)
        self._rehearsal = rehearsal
        weights = {field: listening(graph, channel, self.number) for field, channel in algorithm.channels.items()}
        self._weights = weights
        names = network.names
        self.hears = [names[j] for j in sorted({j for row in weights.values() for j in row})]
        self.heard_by = [names[j] for j in self._hearers()]
        self._message, shapes = self.steps.message()
        self.format = Format(network.run, network.digest, shapes, np.dtype(self.steps.dtype).newbyteorder("<"))
        self._told, self._stop, self._instances = set[str](), threading.Event(), dict[str, str]()
        self._round, self._committed, self._done, self._waiting_for = 0, 0, False, list[str]()
        self._last: tuple[int, bytes] | None = None
        self._without, self._settled = list[str](), 0
        self._rooms: dict[str, tuple[np.ndarray, np.ndarray]] = {}

    def _hearers(self) -> list[int]:
        graph, channels = self.plan.graph, set(self.plan.algorithm.channels.values())
        others = [j for j in range(graph.agents) if j != self.number]
        return [j for j in others if any(self.number in listening(graph, channel, j) for channel in channels)]

    def run(self) -> np.ndarray:
        settle()
        about = {"run": self.network.run, "agent": self.name, "configuration": self.network.digest}
        about["noise"] = "lattice" if self._rehearsal is None else f"seed {self._rehearsal}"
        with Ledger(self.member.ledger, about) as self.ledger, stopping(self._stop):
            self._pin()
            if self._rehearsal is None:
                self.noise: Lattice | Rehearsal = Lattice(self.steps, self.ledger.secrets())
            else:
                log.warning(REHEARSAL.format(seed=self._rehearsal))
                self.noise = Rehearsal(self.steps, self._rehearsal)
            return self._run()

    def _pin(self) -> None:
        """Records and plan must be those that the ledger was begun with: a record that moves is used more often than was certified."""
        problem = self.plan.problem
        if problem.stream is None:
            parts = (problem.features[self.number], problem.labels[self.number])
            content = b"".join(np.ascontiguousarray(part).tobytes() for part in parts)
            self.ledger.pin("records", content, "put them back as they were, or begin a run with a new name")
        numbers = re.compile(
            r"[0-9]+\.[0-9]+(e[-+]?[0-9]+)?"
        )  # to nine digits: another processor may round the last ones otherwise
        plan = numbers.sub(lambda found: f"{float(found[0]):.9g}", repr((self.plan.algorithm, self.total))).encode()
        self.ledger.pin("plan", plan, "another version works it out otherwise; finish with the version that began it")

    def _run(self) -> np.ndarray:
        carry, entry = self.steps.start(), self.ledger.last()
        self._instances.update(self.ledger.met())
        self.mailbox = Mailbox(self.format, self.hears, self.total, self.ledger.heard(), self._instances)
        if entry is not None:
            carry = steps.unflatten(entry.arrays, carry)
            self._round, self._committed, self._done = entry.round, entry.round + 1, entry.done
            self.mailbox.begin(entry.round)
        peers = {member.name: member.peer for member in self.network.members}
        self.transport = Transport(
            self.network.run, self.member.peer, [peers[n] for n in self.hears], [peers[n] for n in self.heard_by],
            self.member.credentials, on_message=self.mailbox.put, outbox=self._outbox, hello=self._hello,
            largest=max(self.format.largest, 2**20),
        )  # fmt: skip
        self.subscribed = self.transport.subscribed()
        with self.transport:
            log.info("%s listens on %s; hears %s", self.name, self.member.endpoint, ", ".join(self.hears) or "nobody")
            if entry is not None:
                word = "done before" if entry.done else f"goes on from message {entry.round}"
                log.info("the ledger has %d messages: %s", entry.round + 1, word)
            self._greet(-1 if entry is None else entry.round)
            if not self._done:
                carry = self._rounds(carry, entry.payload if entry is not None else None)
            self._serve()
        return self.steps.predict(carry)

    def _rounds(self, carry: steps.Carry, unsent: bytes | None) -> steps.Carry:
        """From the message `unsent`, which is in the ledger and may or may not have left, or from the beginning."""
        told, skipped = time.monotonic(), list[str]()
        for step in range(self._round, self.total):
            self._round = step
            self._require_running()
            self._require_single(self.mailbox.twofold)
            if unsent is None:
                message, carry = self.noise.message(step, carry)
                sent = {name: np.asarray(value) for name, value in message._asdict().items()}
                payload = self.format.encode(self.name, step, sent, self.ledger.instance)
                self._commit(step, payload, skipped, carry)
            else:
                payload, unsent = unsent, None
                sent = self.format.decode(payload, self.name, step, self.ledger.instance)
            self._publish(step, payload)
            heard, skipped = self._gather(step)
            carry = self._update(step, carry, sent, heard)
            self.mailbox.begin(step + 1)
            if time.monotonic() - told > _WORD or step + 1 == self.total:
                told = time.monotonic()
                log.info("round %d of %d, spent %s", step + 1, self.total, budget.show(self.spent[step]))
                self._tidy()
        self.ledger.finish(self.total - 1, steps.flatten(carry))
        self._done = True
        return carry

    def _commit(self, step: int, payload: bytes, skipped: list[str], carry: steps.Carry) -> None:
        notes = {"skipped": skipped, "heard": self.mailbox.heard}
        secret = self.noise.secret(step)
        self.ledger.commit(step, payload, float(self.spent[step]), notes, steps.flatten(carry), secret, self._settled)
        self._committed = step + 1

    def _publish(self, step: int, payload: bytes) -> None:
        self._last = step, payload
        self.transport.publish(step, payload)

    def _gather(self, step: int) -> tuple[dict[str, Fields], list[str]]:
        """The neighbours' messages of that round, and who is left out."""
        began = time.monotonic()
        word, pause = began + _WORD, _NUDGE
        self._fetch(step, [name for name in self.mailbox.wait(step, 0.0) if self.mailbox.heard.get(name, -1) > step])
        while missing := self.mailbox.wait(step, pause, self._worth_waiting_for(step)):
            self._waiting_for = missing
            self._require_running()
            gone, now = [name for name in missing if name not in self.transport.alive()], time.monotonic()
            if self.network.policy == "skip" and (
                now - began > self.network.patience or not set(missing) & self._worth_waiting_for(step)
            ):
                break
            self._fetch(step, [name for name in missing if name not in gone])
            if now - began > self.network.deadline:
                raise Stopped(self._silence(step, missing, gone))
            if now > word:
                word = now + _WORD
                log.info("waiting for message %d of %s%s", step, ", ".join(missing), " (not connected)" if gone else "")
            pause = min(2 * pause, 1.0)
        if missing != self._without:
            log.info("from round %d on without %s", step, ", ".join(missing) or "nobody")
        self._waiting_for, self._without = [], missing
        if set(self.heard_by) <= set(self.hears) - set(missing):
            self._settled = step  # who has sent its message of this round needs none of earlier ones any more
        return self.mailbox.take(step), missing

    def _worth_waiting_for(self, step: int) -> set[str]:
        """Everybody; under "skip" those who are there and have kept up."""
        if self.network.policy == "wait":
            return set(self.hears)
        heard = self.mailbox.heard
        return {name for name in self.transport.alive() & set(self.hears) if heard.get(name, -1) >= step - 2}

    def _fetch(self, step: int, names: list[str]) -> None:
        for name in names:
            if (found := self.transport.fetch(name, step, timeout=2.0)) is not None:
                self.mailbox.put(name, str(step), found)

    def _silence(self, step: int, missing: list[str], gone: list[str]) -> str:
        who = ", ".join(f"{name} ({'not connected' if name in gone else 'connected, but silent'})" for name in missing)
        return (
            f"no message {step} from {who} within {self.network.deadline:g} s. Nothing is lost: when they are back, start this agent "
            'again with the same command (a longer deadline in [network] waits longer; policy = "skip" does without them)'
        )

    def _update(self, step: int, carry: steps.Carry, sent: Fields, heard: dict[str, Fields]) -> steps.Carry:
        """Neighbours are added up in the order of their numbers, so that the result does not depend on who came first."""
        limit, names, dtype = self._loudest, self.network.names, self.steps.dtype
        ranges = {field: self.plan.algorithm.ranges.get(field, (-limit, limit)) for field in sent}
        sent = {field: within(values, *ranges[field]) for field, values in sent.items()}
        total, own = {}, {}
        for field, channel in self.plan.algorithm.channels.items():
            row = {j: w for j, w in self._weights[field].items() if names[j] in heard}
            # Written over in every round: fresh memory for large messages costs more than adding them up.
            summed, one = self._rooms.setdefault(field, (np.empty_like(sent[field]), np.empty_like(sent[field])))
            if not row:
                summed.fill(0)
            for number, j in enumerate(sorted(row)):
                np.multiply(
                    within(heard[names[j]][field], *ranges[field]), dtype.type(row[j]), out=one if number else summed
                )
                if number:
                    summed += one
            total[field] = summed
            own[field] = dtype.type(own_weight(self.plan.graph, channel, self.number, sum(row.values())))
        kind = self._message
        return self.steps.update(step, carry, kind(**sent), Inbox(kind(**total), kind(**own)))

    def _greet(self, last: int) -> None:
        """Until every neighbour has answered. Under "skip", once the run has begun, those who are away are not waited for, but somebody who hears this agent must answer.
        With nothing left to noise there is nothing to ask."""
        waiting, began = {*self.hears, *self.heard_by}, time.monotonic()
        word, pause, optional = began + _WORD, _NUDGE, self.network.policy == "skip" and last >= 0
        while waiting and last < self.total - 1:
            for name in sorted(waiting & self.transport.alive()):
                answer = self.transport.ask(name, "hello", timeout=2.0)
                if answer is not None and self._agrees(name, answer, last):
                    waiting.discard(name)
            self._waiting_for, now = sorted(waiting), time.monotonic()
            self._require_running()
            enough = (set(self.heard_by) - waiting or not self.heard_by) and not waiting & self.transport.alive()
            if optional and enough and now - began > self.network.patience:
                return
            if waiting and now - began > self.network.deadline:
                raise Stopped(
                    f"{', '.join(sorted(waiting))} did not answer within {self.network.deadline:g} s: nothing was sent. Start this agent again when they run"
                )
            if waiting and now > word:
                word = now + _WORD
                log.info("waiting for %s to start", ", ".join(sorted(waiting)))
            if waiting:
                self._stop.wait(pause)
                pause = min(2 * pause, 0.5)
        self._waiting_for = []

    def _agrees(self, name: str, answer: bytes, last: int) -> bool:
        theirs = greeting.read(name, answer)
        if theirs is None:
            return False
        if theirs.config != self.network.digest:
            self._stop.wait(_LISTEN)
            raise Refused(greeting.disagreement(name, self.network.public, theirs.public))
        if name not in self._instances:
            self._instances[name] = self.ledger.meet(name, theirs.instance)
        known_as = theirs.instances.get(self.name)
        heard = theirs.heard.get(self.name, -1)
        if why := greeting.impostor(
            self.name, self.ledger.instance, known_as, name, self._instances[name], theirs.instance
        ):
            raise Refused(why)
        if heard > last:
            raise Refused(greeting.outdated(self.name, self.member.ledger, last, name, heard))
        return known_as is not None  # not before the neighbour has taken this process for the agent

    def _serve(self) -> None:
        """Answer for the messages until all who hear this agent are done, and tell those it hears that it is."""
        log.info("done: %d messages sent, spent %s", self.total, budget.show(self.spent[-1]))
        began, untold = time.monotonic(), set(self.hears)
        while not self._stop.is_set():
            for name in sorted(untold & self.transport.alive()):
                if self.transport.ask(name, f"done-{self.name}", timeout=2.0) is not None:
                    untold.discard(name)
            missing = set(self.heard_by) - self._told
            if not missing and not untold:
                return
            if time.monotonic() - began > self.network.deadline:
                log.info(
                    "ends without word from %s: if they still need messages, start this agent again",
                    ", ".join(sorted(missing | untold)),
                )
                return
            self._waiting_for = sorted(missing)
            self._stop.wait(0.1)

    def _tidy(self) -> None:
        """Let go of old messages once they take much room and all who hear this agent are past them."""
        if self.ledger.size() < _OUTBOX:
            return
        reached = []
        for name in self.heard_by:
            answer = self.transport.ask(name, "hello", timeout=2.0)
            try:
                reached.append(int(json.loads(answer or b"{}")["round"]))
            except (ValueError, KeyError, TypeError, RecursionError):
                return
        self.ledger.forget(min([*reached, self._round]))

    def _outbox(self, step: int) -> bytes | None:
        last = self._last
        return last[1] if last is not None and last[0] == step else self.ledger.message(step)

    def _hello(self, what: str) -> bytes | None:
        """What anybody in the network may know of this agent."""
        if what.startswith("done-") and what[5:] in self.heard_by:
            self._told.add(what[5:])
            return b"heard"
        if what != "hello":
            return None
        step, sent = self._round, self._committed
        status = {
            "schema": SCHEMA, "version": VERSION, "agent": self.name, "config": self.network.digest, "public": self.network.public,
            "round": self.total if self._done else step, "of": self.total, "done": self._done, "private": self.noise.private,
            "spent": float(self.spent[sent - 1]) if sent else 0.0, "unit": unit(self.plan.algorithm), "delta": self.plan.certificate.slack,
            "instance": self.ledger.instance, "instances": self._instances, "heard": self.mailbox.heard, "alive": sorted(self.transport.alive()), "waiting_for": self._waiting_for,
            "dropped": {**self.mailbox.dropped, **self.transport.refused}, "hears": self.hears, "subscribed": self.transport.subscribed(),
        }  # fmt: skip
        return json.dumps(status).encode()

    def _require_single(self, twofold: set[str]) -> None:
        if twofold:
            raise Refused(
                f"{', '.join(sorted(twofold))} sent two different messages for one round: two processes run from copies of one ledger. End both; "
                "what they noised twice is not covered by their certificate"
            )

    def _require_running(self) -> None:
        if self._stop.is_set():
            raise Stopped("stopped on request; the same command continues")


def within(values: np.ndarray, low: float, high: float) -> np.ndarray:
    """Clipped, where there is anything to clip."""
    if values.size and low <= values.min() and values.max() <= high:
        return values
    return np.clip(values, low, high)
