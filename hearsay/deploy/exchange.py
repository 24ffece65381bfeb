"""What one agent knows of everybody's keys, and what follows from it: from its own introduction to
the confirmed keys of all its pairs.

    1  its own introduction is made and written down, then shown
    2  when the introductions of all its partners are in the ledger: the keys of its pairs are
       worked out and written down, the X25519 key is erased, then its confirmation is shown
    3  when all partners have confirmed their keys, and everybody's card is there to be passed
       on: the first message may be made

An agent that goes on alone would be of no use to those behind it on the graph, so everybody waits
for the cards of all (introduction and confirmation), also of those it shares nothing with.

**What is refused.** A card that does not verify (introductions.py) is not kept and not passed on.
The log names the agent and who handed it on, and the agent goes on waiting for a better one:
somebody on the way may have changed it. Where nobody else can be to blame it is refused at once
(`Refused`, nothing was sent): the card came from the agent itself, two introductions of this run
are signed by one agent, a confirmed tag is not the expected one.

After the first message there is nothing to agree on any more: cards are only shown to those who are
behind.
"""

from __future__ import annotations

import hmac
import json
import logging
import threading
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType

from hearsay.deploy.cards import Card
from hearsay.deploy.deployment import Deployment
from hearsay.deploy.host import Refused
from hearsay.deploy.introductions import (
    LARGEST,
    TAG_BYTES,
    Introduction,
    Invalid,
    Reader,
    Run,
    Signer,
)
from hearsay.deploy.ledger import Ledger, LedgerError
from hearsay.deploy.rows import TREAT, broken
from hearsay.deploy.secrets import PairSecrets, agree, public_bytes
from hearsay.deploy.settings import Member, Network
from hearsay.privacy.coalitions import Shared

log = logging.getLogger("hearsay.agent")
_NEW_RUN = "Nothing was sent; begin a run with a new name"


def exchange(network: Network, number: int, plan: Deployment, ledger: Ledger) -> Exchange:
    """That of one agent, whose plan has secrets."""
    shared = plan.algorithm.shared(len(network.members))
    assert shared is not None
    run = Run(network.run, network.digest, plan.fingerprint)
    return Exchange(network.members, number, run, partners_of(shared), ledger)


def partners_of(shared: Shared) -> list[list[int]]:
    """With whom each agent shares noise."""
    found: list[list[int]] = [[] for _ in range(shared.agents)]
    for one, other in shared.ends().tolist():
        found[one].append(other)
        found[other].append(one)
    return [sorted(partners) for partners in found]


class Exchange:
    """The cards that an agent holds, and its own secrets (`pairs`).

    Args:
      members: all agents of the network.
      number: this agent's.
      run: of which all statements must be.
      partners: with whom each agent shares noise.
      ledger: this agent's.
    """

    def __init__(
        self,
        members: Sequence[Member],
        number: int,
        run: Run,
        partners: Sequence[Sequence[int]],
        ledger: Ledger,
    ) -> None:
        self.names, self.number, self._run = [m.name for m in members], number, run
        self._member, self._partners, self._ledger = members[number], partners, ledger
        if (credentials := self._member.credentials) is None:
            raise ValueError(f"agent {self._member.name} must have a certificate to share secrets")
        credentials.verify(self._member.name, self._member.peer.host)
        self._signer = Signer(credentials, run, self._member.name, ledger.instance)
        self._reader = Reader(credentials, run)
        self._certificate = str(credentials.certificate)
        mine = {j: self.names[j] for j in partners[number]}
        about = " ".join((ledger.instance, *run.words().values()))
        self.pairs = PairSecrets(ledger.path.with_name(ledger.path.name + ".keys"), mine, about)
        self._lock, self._cards = threading.Lock(), dict[int, Card]()
        self._known, self._doubts = dict[int, Introduction](), dict[int, str]()
        self._warned: set[tuple[str, int]] = set()
        self._compared: set[int] = set()

    def open(self, last: int | None, done: bool) -> None:
        """Go on from what is on disk, or begin.

        Args:
          last: the round of the ledger's last message; None where it has none.
          done: no message follows it.
        """
        self._cards = self._ledger.cards()
        if done:
            self.pairs.finish()
        elif last is not None:
            self.pairs.restore(last)
        elif self.pairs.used:
            raise LedgerError(
                f"{self._ledger.path} has no message, and messages were made with the keys beside"
                f" it: it is not the latest one. {TREAT}"
            )
        elif not self._continued():
            self._begin()
        else:
            self._move_on()

    def _continued(self) -> bool:
        """This agent's introduction of this run is in the ledger, and its keys are on disk."""
        try:
            mine = self._kept(self.number)
        except (Invalid, KeyError):
            # There is none yet, or the configuration was changed before anything was sent.
            return False
        if not self.pairs.known:
            raise LedgerError(
                f"{self._ledger.path}.keys is not there or is another's, and the ledger beside it"
                f" holds an introduction with the keys that it had. {TREAT}"
            )
        unconfirmed = self._cards[self.number].stage < 2
        if unconfirmed and mine.fingerprint != self._signer.fingerprint:
            raise LedgerError(
                f"certificate {self._certificate!r} must be the one that {self._member.name} has"
                " introduced itself with until its keys are confirmed, got another: put that one"
                " back, or begin a run with a new name"
            )
        try:
            self._known = {number: self._kept(number) for number in self._cards}
        except (Invalid, IndexError) as error:
            raise broken(self._ledger.path, "an introduction", str(error)) from None
        return True

    def _kept(self, number: int) -> Introduction:
        said = self._cards[number].introduction
        return self._reader.introduction(self.names[number], said, kept=True)

    def _begin(self) -> None:
        if self.pairs.known and self.pairs.private is None:
            raise LedgerError(
                f"{self._ledger.path} has no introduction of {self._member.name}, and the keys"
                f" beside it are agreed on: it is not the latest one. {TREAT}"
            )
        if self.pairs.private is None:
            self.pairs.make()
        private = self.pairs.private
        assert private is not None
        said = self._signer.introduction(public_bytes(private), self.pairs.nonce)
        try:
            self._known = {self.number: self._reader.introduction(self._member.name, said)}
        except Invalid as reason:
            raise ValueError(
                f"certificate {self._certificate!r} must be one that others believe an introduction"
                f" of {self._member.name} from, got one of which they would say: {reason}"
            ) from None
        cards = {self.number: Card(said)}
        self._ledger.keep(cards, anew=True)
        self._cards = cards
        self._move_on()

    def receive(self, found: Iterable[tuple[int, str, bytes]], met: Mapping[str, str]) -> bool:
        """Take what others handed on. Whether there is something to show that was not there before.

        Args:
          found: an agent's number, who handed its card on, and the card.
          met: the instances of neighbours' ledgers, as they said themselves.
        """
        new = dict[int, Card]()
        for number, sender, given in found:
            try:
                card = self._read(number, given, met)
            except Invalid as reason:
                self._doubt(number, sender, str(reason))
                continue
            held = new.get(number, self._cards.get(number, Card()))
            if card.stage > held.stage:
                new[number] = card
                self._doubts.pop(number, None)
        if not new:
            return False
        self._ledger.keep(new)
        with self._lock:
            self._cards |= new
        self._move_on()
        return True

    def _read(self, number: int, given: bytes, met: Mapping[str, str]) -> Card:
        # Escapes of JSON take six bytes at most.
        most = 6 * (2 * LARGEST + 2 * TAG_BYTES * len(self.names))
        if len(given) > most:
            raise Invalid(f"it has {len(given)} bytes, and {most} are the most")
        name, card, held = self.names[number], unpacked(given), self._known.get(number)
        if card.introduction == self._cards.get(number, Card()).introduction and held is not None:
            said = held
        else:
            said = self._reader.introduction(name, card.introduction)
        if held is not None and said.said != held.said:
            raise Refused(self._twofold(number))
        if met.get(name, said.instance) != said.instance:
            raise Refused(self._twofold(number))
        if card.confirmation:
            self._reader.confirmation(said, card.confirmation, len(self._partners[number]))
        if number == self.number and card.stage > self._cards[number].stage:
            raise Refused(self._twofold(number))
        self._known[number] = said
        return card

    def _twofold(self, number: int) -> str:
        name = self.names[number]
        if number == self.number:
            return (
                f"another process has introduced itself as {name}, with its certificate: it runs"
                f" elsewhere, or this is not its latest ledger. End the other one. {_NEW_RUN}"
            )
        return (
            f"{name} has introduced itself twice, with different keys: it has lost its ledger, or"
            f" runs twice. {_NEW_RUN}"
        )

    def _doubt(self, number: int, sender: str, reason: str) -> None:
        name = self.names[number]
        if sender == name:
            raise Refused(f"the keys of {name} must not be used: {reason}. {_NEW_RUN}")
        self._doubts[number] = f"what {sender} hands on as {name}'s is not: {reason}"
        if (sender, number) not in self._warned:
            self._warned.add((sender, number))
            log.warning("%s", self._doubts[number])

    def _move_on(self) -> None:
        """Work out the keys once all partners are known, and compare what they have confirmed."""
        mine, partners = self._known[self.number], self._partners[self.number]
        if not self.pairs.agreed and all(j in self._known for j in partners):
            private = self.pairs.private
            assert private is not None
            try:
                self.pairs.begin(
                    {
                        j: agree(
                            private, mine, self._known[j], first=self.number < j, run=self._run
                        )
                        for j in partners
                    }
                )
            except ValueError as error:
                raise Refused(str(error)) from None
        if not self.pairs.agreed:
            return
        if self._cards[self.number].stage < 2:
            said = self._signer.confirmation(mine.key, mine.nonce, self.pairs.shown)
            card = self._cards[self.number]._replace(confirmation=said)
            self._ledger.keep({self.number: card})
            with self._lock:
                self._cards[self.number] = card
        for j in set(partners) - self._compared:
            if self._cards.get(j, Card()).stage == 2:
                self._compare(j, self.pairs.expected[j])
                self._compared.add(j)
        if len(self._compared) == len(partners):
            self.pairs.confirm()

    def _compare(self, number: int, expected: bytes) -> None:
        theirs = self._partners[number]
        card, said = self._cards[number], self._known[number]
        tags = self._reader.confirmation(said, card.confirmation, len(theirs))
        if not hmac.compare_digest(tags[theirs.index(self.number)], expected):
            raise Refused(
                f"the keys that {said.agent} and {self._member.name} share do not match:"
                f" {said.agent} holds another introduction of {self._member.name} (of an earlier"
                f" ledger), or does not own the key that it shows. {_NEW_RUN}"
            )

    def lacking(self) -> dict[int, str]:
        """Whose card is not complete, and what is known against those that were handed on.

        While somebody has not introduced itself, nobody else can be to blame.
        """
        stages = self.stages()
        least = "0" if "0" in stages else "1"
        return {n: self._doubts.get(n, "") for n, stage in enumerate(stages) if stage == least}

    def shared_with(self) -> str:
        """The names of the agent's partners, as a log has room for them."""
        names = [self.names[j] for j in self._partners[self.number]]
        more = f" and {len(names) - 10} more" if len(names) > 10 else ""
        return ", ".join(names[:10]) + more

    def stages(self) -> str:
        """Of every agent, how much of its card is here: a digit each (cards.py)."""
        with self._lock:
            return "".join(str(self._cards.get(n, Card()).stage) for n in range(len(self.names)))

    def card(self, number: int) -> bytes | None:
        """What is handed on of that agent."""
        with self._lock:
            found = self._cards.get(number)
        return None if found is None else packed(found)

    def close(self) -> None:
        self.pairs.close()

    def __enter__(self) -> Exchange:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()


def packed(card: Card) -> bytes:
    return json.dumps([part.decode() for part in card]).encode()


def unpacked(given: bytes) -> Card:
    try:
        introduction, confirmation = json.loads(given)
        return Card(introduction.encode(), confirmation.encode())
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise Invalid("it cannot be read") from None
