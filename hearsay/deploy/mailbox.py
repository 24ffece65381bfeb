"""Messages that have arrived, checked, until their round comes.

Whatever arrives is either the one message that a neighbour owes for a round that is still to come,
or it is dropped, counted by sender and reason, and named in the log (the first of a kind, then
the 10th, the 100th and so on). Or it says that the sender no longer has that message, and which
it has. Rounds too far ahead are dropped as well, which bounds the memory: they are fetched when
their time comes.
"""

from __future__ import annotations

import logging
import re
import threading
from collections import Counter
from collections.abc import Iterable, Mapping

import numpy as np

from hearsay.deploy.messages import Format, Rejected

log = logging.getLogger("hearsay.agent")
_ROUND = re.compile(r"0|[1-9][0-9]{0,9}")
_AHEAD_BYTES, _AHEAD_MOST = 64 * 2**20, 16

_LET_GO = re.compile(rb"hearsay: messages before ([0-9]{1,10}) were let go")

Fields = dict[str, np.ndarray]


def let_go(before: int) -> bytes:
    """What is answered instead of a message that is no longer kept."""
    return b"hearsay: messages before %d were let go" % before


class Mailbox:
    """`put` is called by the network's threads, the rest by the agent's."""

    def __init__(
        self,
        format: Format,
        hears: Iterable[str],
        last_round: int,
        heard: dict[str, int],
        instances: Mapping[str, str] | None = None,
    ) -> None:
        """`instances`: which process of each name is believed;
        a message of one that has not been greeted yet must wait.
        """
        self._format, self._hears, self._last_round = format, tuple(hears), last_round
        self._ahead = max(2, min(_AHEAD_MOST, _AHEAD_BYTES // format.largest))
        self._arrived, self._held, self._round = (
            threading.Condition(),
            dict[int, dict[str, Fields]](),
            0,
        )
        self._instances = dict.fromkeys(self._hears, "") if instances is None else instances
        self._heard = dict(heard)  # the last round that was heard of each, also before a restart
        self._dropped: Counter[tuple[str, str]] = Counter()
        self._twofold: set[str] = set()
        self._quiet: Counter[str] = Counter()
        self._let_go: dict[str, int] = {}
        self._news = False

    @property
    def heard(self) -> dict[str, int]:
        with self._arrived:
            return dict(self._heard)

    @property
    def dropped(self) -> dict[str, int]:
        """How many messages were dropped, by reason."""
        with self._arrived:
            total: Counter[str] = Counter()
            for (_, reason), count in self._dropped.items():
                total[reason] += count
            return dict(total)

    @property
    def twofold(self) -> set[str]:
        """Who has sent two different messages for one round: two processes run from one ledger."""
        with self._arrived:
            return set(self._twofold)

    def put(self, sender: str, round_text: str, payload: bytes) -> None:
        """A message that claims to be that agent's of that round."""
        try:
            if sender not in self._hears:
                raise Rejected("unknown sender")
            if not _ROUND.fullmatch(round_text) or int(round_text) >= self._last_round:
                raise Rejected("wrong key")
            step = int(round_text)
            if sender not in self._instances:
                self._ignore("not greeted")
                return
            if notice := _LET_GO.fullmatch(payload):
                self._lost(sender, min(int(notice[1]), self._last_round))
                return
            fields = self._format.decode(payload, sender, step, self._instances[sender])
        except Rejected as rejection:
            self._count(sender, rejection.reason)
            return
        with self._arrived:
            # Also what comes too late to be used has left its sender, which must not
            # noise it again.
            self._heard[sender] = max(step, self._heard.get(sender, -1))
            if step > self._round and sender not in self._held.get(self._round, ()):
                self._news = True  # its message of this round is lost, and can be asked for
                self._arrived.notify_all()
            if not self._round <= step < self._round + self._ahead:
                # An old round is a re-sent message after a restart, or a replay: either way it
                # changes nothing.
                self._quiet["old round" if step < self._round else "too early"] += 1
                return
            kept = self._held.setdefault(step, {})
            if sender not in kept:
                kept[sender] = fields
                self._arrived.notify_all()
                return
            same = all(np.array_equal(kept[sender][name], fields[name]) for name in fields)
            if not same:
                self._twofold.add(sender)
                self._arrived.notify_all()
        if not same:
            self._count(sender, "second message for one round")

    def _lost(self, sender: str, before: int) -> None:
        with self._arrived:
            more = before > self._let_go.get(sender, 0)
            self._let_go[sender] = max(before, self._let_go.get(sender, 0))
        if more:
            log.warning(
                "%s has discarded its messages before %d, and what is missing of them is lost",
                sender,
                before,
            )

    def lost(self, step: int) -> set[str]:
        """Who no longer has its message of that round."""
        with self._arrived:
            return {name for name, before in self._let_go.items() if step < before}

    def begin(self, step: int) -> None:
        """Everything before this round is over."""
        with self._arrived:
            self._round = step
            for old in [r for r in self._held if r < step]:
                del self._held[old]

    def wait(self, step: int, timeout: float, whom: Iterable[str] | None = None) -> list[str]:
        """Until everybody (or everybody in `whom`) has been heard in that round,
        there is other news, or the time is up: who is missing.
        """
        wanted = set(self._hears if whom is None else whom)
        with self._arrived:
            self._arrived.wait_for(
                lambda: self._news or wanted <= self._held.get(step, {}).keys(), timeout
            )
            self._news = False
            return [name for name in self._hears if name not in self._held.get(step, ())]

    def rest(self, timeout: float) -> None:
        """Until there is news, or the time is up."""
        with self._arrived:
            self._arrived.wait_for(lambda: self._news, timeout)
            self._news = False

    def wake(self) -> None:
        """There is news that is no message: whoever waits should look up."""
        with self._arrived:
            self._news = True
            self._arrived.notify_all()

    def take(self, step: int) -> dict[str, Fields]:
        with self._arrived:
            return dict(self._held.get(step, {}))

    def ignored(self) -> dict[str, int]:
        """Messages that came again or too early, which no rule forbids."""
        with self._arrived:
            return dict(self._quiet)

    def _ignore(self, reason: str) -> None:
        with self._arrived:
            self._quiet[reason] += 1

    def _count(self, sender: str, reason: str) -> None:
        with self._arrived:
            self._dropped[sender, reason] += 1
            count = self._dropped[sender, reason]
        if count == 10 ** (len(str(count)) - 1):
            log.warning(
                "dropped a message that claims to be from %s: %s (%d so far)", sender, reason, count
            )
