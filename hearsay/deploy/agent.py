"""The rounds of one agent.

    wait for the records of round k, where they arrive meanwhile       (following.py)
    draw the coins of round k's batch where it is secret               (coins.py)
    prepare the message of round k, add its noise                      (steps.py, privatize.py)
    write message, state and budget to the ledger, wait for the disk   (ledger.py)
    publish                                                            (transport.py)
    wait for the neighbours' messages of round k;
    ask for those that were lost                                       (mailbox.py, neighbours.py)
    with averaging: make a relay of them, write it to the ledger,
    publish it, wait for the neighbours' relays; m times               (inbox.py, phases.py)
    update; k + 1

A process that dies anywhere in this is started again with the same command. It finds its last
message in the ledger, sends the same bytes, and goes on from there, with the same batch. In the
middle of a round, too: a relay needs the message before it and no noise, batch or gradient.

**Before any noise is added** every neighbour must have answered: that it holds the same
configuration (by hash; the first difference is named), that it takes this process for the agent and
no other (a ledger has a random `instance`; neighbours remember the first they meet), and that it
has heard nothing from this agent that is not in its ledger. A ledger that is older than what was
sent (a backup that was put back, an empty folder), or a second process of the same name elsewhere,
would add noise to rounds a second time: the agent refuses. So it does when its records or its plan
are no longer those that the ledger was begun with. And where noise is shared (`secrets`), the keys
of all pairs must have been agreed on and confirmed (exchange.py, gossip.py, secrets.py). Whoever is
away later leaves the noise that it shares uncancelled: it costs accuracy, and nobody's privacy.

**What is heard** is clipped to a bound that no honest agent exceeds, weighed and added
up (inbox.py).

**A silent neighbour.** Policy "wait": go on waiting, with a line in the log, and stop when the
deadline is over; nothing is lost, the same command continues. Policy "skip": after `patience`
seconds (at once, if it is known to be gone) its term is left out of the sum, with its weight
(graphs/channels.py), and the certificate allows for that in every round.

**The end.** An agent that is done still answers for its messages until all who hear it have said
that they are done too.
"""

from __future__ import annotations

import json
import logging
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from hearsay._interrupts import Request, stopping
from hearsay._version import VERSION
from hearsay.base import Inbox
from hearsay.certification import unit
from hearsay.certification.describing import message_bound
from hearsay.deploy import averages, budget, greeting
from hearsay.deploy.answers import OWN_RECORDS
from hearsay.deploy.deployment import Deployment, deployment
from hearsay.deploy.exchange import Exchange, exchange
from hearsay.deploy.following import Following
from hearsay.deploy.gossip import WORD, Gossip
from hearsay.deploy.host import Refused, harden_process
from hearsay.deploy.inbox import Listener
from hearsay.deploy.ledger import Ledger, LedgerError
from hearsay.deploy.lifetime import Account
from hearsay.deploy.mailbox import Fields, Mailbox, let_go
from hearsay.deploy.messages import Format
from hearsay.deploy.neighbours import Clock, Neighbours
from hearsay.deploy.privatize import REHEARSAL, Lattice, Rehearsal
from hearsay.deploy.rows import TREAT
from hearsay.deploy.settings import SCHEMA, Network
from hearsay.deploy.steps import CARRIED, Steps
from hearsay.deploy.transport import Transport
from hearsay.graphs.channels import channel
from hearsay.problems.data.records import Records
from hearsay.simulation.program import Carry, flatten, unflatten

log = logging.getLogger("hearsay.agent")
_OUTBOX = 2**30  # bytes of messages that are kept before those that everybody has are discarded
_WORD = 10.0  # seconds between two words in the log
_LOOK = 0.5  # seconds between two looks at a file in which records arrive
_MOVED = "put them back as they were, or begin a run with a new name"
# Seconds for which an agent that disagrees still answers, so that the others learn of it too.
_LISTEN = 3.0


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
        plan: Deployment | None = None,
    ) -> None:
        self.network, self.name, self.number = network, name, network.index(name)
        self.member = network.members[self.number]
        self.plan = plan or deployment(network, self.number, data, rehearsed=rehearsal is not None)
        algorithm, task, graph = self.plan.algorithm, self.plan.task, self.plan.graph
        if (records := self.plan.records) is None:
            raise ValueError(f"plan must be agent {name}'s own, with its records, got nobody's")
        self.total, self._relays = self.plan.messages, algorithm.relays(graph)
        self.phases = self.plan.phases
        self.spent = budget.curve(self.plan, self.number)
        certificate = self.plan.certificate
        if not np.isfinite(certificate.budgets[self.number].epsilon) and not no_privacy:
            reason = certificate.budgets[self.number].reason
            raise ValueError(
                f"the privacy budget would be infinite ({reason}); use --no-privacy to run all the"
                " same"
            )
        limit = None if network.lifetime is None else network.lifetime[self.number]
        rehearsed = rehearsal is not None
        self.account = Account(
            self.member, self.plan, self.number, network.run, limit, rehearsed=rehearsed
        )
        self.plan = self.account.certified(self.plan, self.number)
        self.steps = Steps(algorithm, task, records, self.number, graph)
        self._rehearsal = rehearsal
        message, shapes = self.steps.message()
        self._listen = Listener(
            algorithm,
            graph,
            self.number,
            message_bound(algorithm, task, graph, self.plan.messages),
            message,
            self.steps.dtype,
        )
        names = network.names
        self._numbers = {name: number for number, name in enumerate(names)}
        self.hears = [names[j] for j in self._listen.hears]
        self.heard_by = [names[j] for j in self._hearers()]
        self.format = Format(
            network.run, network.digest, shapes, np.dtype(self.steps.dtype).newbyteorder("<")
        )
        self._averages = averages.Averages(self.member, self.steps, self._listen)
        self._stop, self._instances = Request(), dict[str, str]()
        self._round, self._committed, self._done, self._settled = 0, 0, False, 0
        self._last: tuple[int, bytes] | None = None

    def _hearers(self) -> list[int]:
        graph, channels = self.plan.graph, set(self.plan.algorithm.channels.values())
        others = [j for j in range(graph.agents) if j != self.number]
        return [
            j
            for j in others
            if any(self.number in channel(name).row(graph, j) for name in channels)
        ]

    def run(self) -> np.ndarray:
        harden_process()
        about = {"run": self.network.run, "agent": self.name, "configuration": self.network.digest}
        about |= self.phases.about
        about["noise"] = "lattice" if self._rehearsal is None else f"seed {self._rehearsal}"
        with (
            Ledger(self.member.ledger, about) as self.ledger,
            self._exchange() as self.exchange,
            stopping(self._stop),
        ):
            self._pin()
            log.info("%s", self.account.lifetime)
            if (following := self.plan.following) is not None:
                there, planned = len(following.rows), following.planned
                log.info("%d of %d records have arrived", there, planned)
            if self._rehearsal is None:
                self.noise: Lattice | Rehearsal = Lattice(
                    self.steps,
                    self._secrets(),
                    f"{self.network.run} {self.network.digest}",
                    None if self.exchange is None else self.exchange.pairs,
                )
            else:
                log.warning(REHEARSAL.format(seed=self._rehearsal))
                self.noise = Rehearsal(self.steps, self._rehearsal)
            return self._run()

    def _exchange(self) -> AbstractContextManager[Exchange | None]:
        """None where nothing is shared, and in a rehearsal, whose keys are the simulator's."""
        if self.plan.algorithm.secrets is None or self._rehearsal is not None:
            return nullcontext()
        return exchange(self.network, self.number, self.plan, self.ledger)

    def _secrets(self) -> dict[int, bytes]:
        """Those of the noise, by the round of their gradient: a relay has none."""
        found = self.ledger.secrets().items()
        return {self.phases.round(number): secret for number, secret in found}

    def _pin(self) -> None:
        """Records and plan must be those that the ledger was begun with:
        a record that moves is used more often than was certified.
        """
        if self.plan.following is not None:
            self.ledger.pin_rows("records", self.plan.following.parts, _MOVED)
        elif isinstance(self.plan.records, Records):
            parts = (self.plan.records.features, self.plan.records.labels)
            content = b"".join(np.ascontiguousarray(part).tobytes() for part in parts)
            self.ledger.pin("records", content, _MOVED)
        self.ledger.pin(
            "plan",
            self.plan.words,
            "another version works it out otherwise; finish with the version that began it",
        )

    def _enter(self) -> None:
        """What this run will spend is written down before its first message can leave;
        once for a ledger.
        """
        if why := self.account.enter(self.ledger.instance):
            raise Refused(why)
        self.plan = self.account.certified(self.plan, self.number)

    def _run(self) -> np.ndarray:
        carry, entry = self.steps.start(), self.ledger.last()
        self._instances.update(self.ledger.met())
        self.mailbox = Mailbox(
            self.format,
            self.hears,
            self.phases.first(self.total),
            self.ledger.heard(),
            self._instances,
        )
        self._averages.begin(
            {
                "run": self.network.run,
                "configuration": self.network.digest,
                "agent": self.name,
                "instance": self.ledger.instance,
                "noise": "lattice" if self._rehearsal is None else f"seed {self._rehearsal}",
                "plan": self.plan.fingerprint,
            },
            0 if entry is None else self.phases.round(entry.round) + entry.done,
        )
        if entry is not None:
            self._enter()
            carry = unflatten(entry.arrays, carry, CARRIED, "ledger")
            if not entry.done:
                self.steps.batches.restore(self.phases.round(entry.round), entry.arrays)
            self._round, self._committed, self._done = entry.round, entry.round + 1, entry.done
            self.mailbox.begin(entry.round)
        if self.exchange is not None:
            last = None if entry is None else self.phases.round(entry.round)
            self.exchange.open(last, self._done)
        peers = {member.name: member.peer for member in self.network.members}
        self.transport = Transport(
            self.network.run,
            self.member.peer,
            [peers[n] for n in self.hears],
            [peers[n] for n in self.heard_by],
            self.member.credentials,
            on_message=self._arrived,
            outbox=self._outbox,
            hello=self._hello,
            largest=max(self.format.largest, 2**20),
            on_link=self.mailbox.wake,
        )
        self.neighbours = Neighbours(
            self.network,
            self.name,
            self.transport,
            self.mailbox,
            self._stop,
            self.format.largest,
            self.phases,
        )
        self.gossip = None if self.exchange is None else Gossip(self.exchange, self.neighbours)
        self.subscribed = self.transport.subscribed()
        with self.transport:
            log.info(
                "%s listens on %s; hears %s",
                self.name,
                self.member.endpoint,
                ", ".join(self.hears) or "nobody",
            )
            if entry is not None:
                name = self.phases.name(entry.round)
                word = "done before" if entry.done else f"goes on from message {name}"
                log.info("the ledger has %d messages: %s", entry.round + 1, word)
            self._greet(-1 if entry is None else entry.round)
            if self.gossip is not None and entry is None:
                self._agree(self.gossip)
            if not self._done:
                self._arrive(self._round)
                if entry is None and self.plan.following is not None:
                    carry = self.steps.start()  # with its head start
                carry = self._rounds(carry, entry.payload if entry is not None else None)
            passed = f" and {self.total * self.phases.relays} relays" * (self.phases.relays > 0)
            log.info(
                "done: %d messages%s sent, spent %s",
                self.total,
                passed,
                budget.show(self.spent[-1]),
            )
            self.neighbours.part()
        return self.steps.predict(carry)

    def _rounds(self, carry: Carry, unsent: bytes | None) -> Carry:
        """From the message `unsent`, which is in the ledger and may or may not have left,
        or from the beginning.
        """
        told, skipped = time.monotonic(), list[str]()
        relay, before = dict[str, np.ndarray](), None
        for number in range(self._round, self.phases.first(self.total)):
            self._round = number
            self.neighbours.require_running()
            self._require_single(self.mailbox.twofold)
            self._arrive(number)
            if unsent is None:
                payload, sent, carry = self._say(number, carry, relay, skipped)
            else:
                payload, unsent, before = unsent, None, self._before(number)
                sent = self.format.decode(payload, self.name, number, self.ledger.instance)
            self._publish(number, payload)
            if self.exchange is not None and not self.phases.phase(number):
                self.exchange.pairs.committed(self.phases.round(number))
            heard, skipped = self.neighbours.gather(number)
            if set(self.heard_by) <= set(self.hears) - set(skipped):
                # Who has sent its message of this exchange needs none of earlier ones any more.
                self._settled = number
            if not self.phases.ends(number):
                relay, before = self._relay(number, sent, heard, before), sent
                self.mailbox.begin(number + 1)
                continue
            carry, before = self._update(number, carry, sent, heard), None
            self.mailbox.begin(number + 1)
            step = self.phases.round(number)
            if time.monotonic() - told > _WORD or step + 1 == self.total:
                told = time.monotonic()
                log.info(
                    "round %d of %d, spent %s", step + 1, self.total, budget.show(self.spent[step])
                )
                self.neighbours.watch_certificate()
                self._tidy()
        self.ledger.finish(self._round, flatten(carry, CARRIED))
        self._done = True
        if self.exchange is not None:
            self.exchange.pairs.finish()
        return carry

    def _arrive(self, number: int) -> None:
        """Wait for the records of that round's batch, where they come while the network runs."""
        following = self.plan.following
        if following is None:
            return
        before, clock = following.rows, Clock(self.neighbours)
        needed = following.needed(self.phases.round(number))
        while len(following.rows) < needed:
            self.neighbours.waiting_for = [OWN_RECORDS]
            self.neighbours.require_running()
            if not following.look():
                if clock.word(()):
                    log.info("waiting for record %d of %d", needed, following.planned)
                self._stop.wait(_LOOK)
        self.neighbours.waiting_for = []
        if following.rows is not before:
            self._take_in(following)

    def _take_in(self, following: Following) -> None:
        """What has arrived: known to the ledger and in the budget file before it is used."""
        self.account.grow(following.rows)
        if self._committed:
            self._enter()
        self.ledger.pin_rows("records", following.parts, _MOVED)
        self.steps.arrive(following.records)

    def _say(
        self, number: int, carry: Carry, relay: Fields, skipped: list[str]
    ) -> tuple[bytes, Fields, Carry]:
        """(what goes out in that exchange and is on disk, the same in numbers, the state after)."""
        if not self.phases.phase(number):
            message, carry = self.noise.message(self.phases.round(number), carry)
            sent = {name: np.asarray(value) for name, value in message._asdict().items()}
        else:
            sent = relay
        payload = self.format.encode(self.name, number, sent, self.ledger.instance)
        self._commit(number, payload, skipped, carry)
        if self.phases.relays:
            # What is passed on may depend on what was sent and on nothing else, not even on the
            # sign of a zero.
            sent = self.format.decode(payload, self.name, number, self.ledger.instance)
        return payload, sent, carry

    def _commit(self, number: int, payload: bytes, skipped: list[str], carry: Carry) -> None:
        if number == 0:
            self._enter()
        notes = {"skipped": skipped, "heard": self.mailbox.heard}
        step, relay = self.phases.round(number), self.phases.phase(number) > 0
        self.ledger.commit(
            number,
            payload,
            float(self.spent[step]),
            notes,
            None if relay else flatten(carry, CARRIED) | self.steps.batches.kept(step),
            b"" if relay else self.noise.secret(step),
            self._settled,
        )
        self._committed = number + 1
        if (
            self.network.policy == "skip"
            and (left := self.ledger.bound(self.network.keep)) is not None
        ):
            why = "they took more than keep in [network] allows"
            log.warning(
                "discarded the messages before %d, which somebody may still lack: %s", left, why
            )

    def _publish(self, number: int, payload: bytes) -> None:
        self._last = number, payload
        self.transport.publish(number, payload)

    def _update(self, number: int, carry: Carry, sent: Fields, heard: dict[str, Fields]) -> Carry:
        step = self.phases.round(number)
        own, inbox = self._inbox(step, sent, heard)
        self._averages.add(step, own, inbox, self._numbered(heard))
        return self.steps.update(step, carry, own, inbox)

    def _relay(
        self, number: int, sent: Fields, heard: dict[str, Fields], before: Fields | None
    ) -> Fields:
        """What is passed on in the next exchange."""
        own, inbox = self._inbox(self.phases.round(number), sent, heard)
        return self._listen.relayed(self._relays[self.phases.phase(number)], own, inbox, before)

    def _inbox(self, step: int, sent: Fields, heard: dict[str, Fields]) -> tuple[Any, Inbox]:
        return self._listen(sent, self._numbered(heard), self.noise.coin(step))

    def _numbered(self, heard: dict[str, Fields]) -> dict[int, Fields]:
        return {self._numbers[name]: fields for name, fields in heard.items()}

    def _before(self, number: int) -> Fields | None:
        """What the agent sent in the exchange before the ledger's last, where the next relay needs
        it.
        """
        phase = self.phases.phase(number)
        if phase == 0 or self.phases.ends(number) or not self._relays[phase][1]:
            return None
        payload = self.ledger.message(number - 1)
        if payload is None:
            raise LedgerError(
                f"{self.member.ledger} lacks message {number - 1}, which the next relay follows"
                f" from. {TREAT}"
            )
        return self.format.decode(payload, self.name, number - 1, self.ledger.instance)

    def _greet(self, last: int) -> None:
        """With no message left to send there is nothing to ask.

        Under "skip", once the run has begun, whoever is away is not waited for.
        """
        if last < self.phases.first(self.total) - 1:
            optional = self.network.policy == "skip" and last >= 0
            self.neighbours.greet(lambda name, answer: self._agrees(name, answer, last), optional)

    def _agree(self, gossip: Gossip) -> None:
        """On the keys of noise that is shared, with everybody, before any is added."""
        try:
            gossip.gather(self._instances)
        except Refused:
            self._stop.wait(_LISTEN)
            raise
        assert self.exchange is not None
        log.info("shares noise with %s", self.exchange.shared_with())

    def _arrived(self, sender: str, what: str, payload: bytes) -> None:
        """On a thread of the network's."""
        if what != WORD:
            self.mailbox.put(sender, what, payload)
        elif getattr(self, "gossip", None) is not None:
            assert self.gossip is not None
            self.gossip.told(sender, payload)

    def _agrees(self, name: str, answer: bytes, last: int) -> bool:
        theirs = greeting.read(name, answer)
        if theirs is None:
            return False
        if theirs.config != self.network.digest:
            self._stop.wait(_LISTEN)
            raise Refused(greeting.disagreement(name, self.network.public, theirs.public))
        if theirs.private != self.noise.private:
            self._stop.wait(_LISTEN)
            raise Refused(greeting.rehearsal(name, theirs.private))
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

    def _tidy(self) -> None:
        """Discard old messages once they take much room and all who hear
        this agent are past them.
        """
        if self.ledger.size() < _OUTBOX:
            return
        reached = []
        for name in self.heard_by:
            answer = self.transport.ask(name, "hello", timeout=2.0)
            try:
                reached.append(int(json.loads(answer or b"{}")["round"]))
            except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
                return
        # In the last phase of a round, when no relay follows from the message before it.
        self.ledger.forget(min([*map(self.phases.first, reached), self._round]))

    def _outbox(self, step: int) -> bytes | None:
        last = self._last
        found = last[1] if last is not None and last[0] == step else self.ledger.message(step)
        return let_go(self.ledger.oldest()) if found is None and step < self._committed else found

    def _hello(self, what: str) -> bytes | None:
        """What anybody in the network may know of this agent."""
        if not hasattr(self, "gossip"):
            return None  # the session is only being opened
        if what.startswith("done/"):
            return self.neighbours.hear_done(what.removeprefix("done/"))
        if what != "hello":
            return None if self.gossip is None else self.gossip.answer(what)
        number, sent, phases = self._round, self._committed, self.phases
        status: dict[str, Any] = {
            "schema": SCHEMA,
            "version": VERSION,
            "agent": self.name,
            "config": self.network.digest,
            "public": self.network.public,
            "round": self.total if self._done else phases.round(number),
            "of": self.total,
            "done": self._done,
            "private": self.noise.private,
            "spent": float(self.spent[phases.round(sent - 1)]) if sent else 0.0,
            "unit": unit(self.plan.algorithm),
            "delta": self.plan.certificate.slack,
            "instance": self.ledger.instance,
            "instances": self._instances,
            "heard": self.mailbox.heard,
            "alive": sorted(self.transport.alive()),
            "waiting_for": self.neighbours.waiting_for,
            "dropped": {**self.mailbox.dropped, **self.transport.refused},
            "hears": self.hears,
            "subscribed": self.transport.subscribed(),
        }
        if phases.relays:
            status |= {"relay": phases.phase(number), "relays": phases.relays}
        return json.dumps(status).encode()

    def _require_single(self, twofold: set[str]) -> None:
        if twofold:
            raise Refused(
                f"{', '.join(sorted(twofold))} sent two different messages for one round: two"
                " processes run from copies of one ledger. End both; what they sent twice is not"
                " covered by their certificate"
            )
