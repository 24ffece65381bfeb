"""A network over the time that somebody watches it: what its agents said of themselves, since when
nothing changes, and what deserves an alarm.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, NamedTuple

from hearsay.deploy.answers import OWN_RECORDS, Said, understood

# Of each agent: more are thinned out, so that months of them stay as many.
_MOST = 1000
# Rounds whose length is remembered; so many times the usual length is long.
_RECENT, _LONG = 21, 3.0

_NOBODY: frozenset[str] = frozenset()
_UNHEARD = Said(0, 1, False, True, 0.0, "", None, _NOBODY, _NOBODY, _NOBODY, 0)


class Alarm(NamedTuple):
    """Args:
    name: of whom.
    why: in words.
    since: when it began, as given to `saw`.
    """

    name: str
    why: str
    since: float


@dataclass
class Watched:
    """One agent.

    Args:
      name: of it.
      began: when the watching did.
    """

    name: str
    began: float
    said: Said | None = None
    reached: bool = False
    # Since when: it is not reached, its round stands, each name is waited for.
    missed: float | None = None
    stood: float | None = None
    waited: dict[str, float] = field(default_factory=dict)
    # How long its last rounds took.
    took: deque[float] = field(default_factory=lambda: deque(maxlen=_RECENT))
    # How much had been dropped when it was first heard, and when there was more.
    first_dropped: int = 0
    dropping: float | None = None
    rounds: list[tuple[float, int]] = field(default_factory=list)

    @property
    def done(self) -> bool:
        return self.said is not None and self.said.done

    @property
    def dropped(self) -> int:
        """What was dropped since the watching began."""
        return 0 if self.said is None else self.said.dropped - self.first_dropped

    @property
    def usual(self) -> float:
        """How long a round takes; 0 while nobody knows."""
        return median(self.took) if self.took else 0.0

    def ended(self, rounds: int, spent: float, private: bool) -> None:
        """Its ledger says that it is done, after how many rounds, and what they have cost."""
        said = self.said or _UNHEARD
        self.said = said._replace(
            done=True, round=rounds, of=rounds, spent=spent, private=said.private and private
        )
        self.waited = {}

    def saw(self, at: float, said: Said | None) -> None:
        self.reached = said is not None
        if said is None:
            self.missed = at if self.missed is None else self.missed
            return
        before, self.said, self.missed = self.said, said, None
        self._count(at, before, said)
        if before is None or before.round != said.round or self.stood is None:
            if before is not None and self.stood is not None and said.round > before.round:
                self.took.append((at - self.stood) / (said.round - before.round))
            self.stood = at
        self.waited = {name: self.waited.get(name, at) for name in sorted(said.waiting_for)}
        self.rounds.append((at, said.round))
        if len(self.rounds) > _MOST:
            del self.rounds[1:-1:2]

    def _count(self, at: float, before: Said | None, said: Said) -> None:
        """What is dropped."""
        if before is None:
            self.first_dropped = said.dropped
        elif said.dropped < before.dropped:
            # Another process, which counts anew.
            self.first_dropped, self.dropping = 0, at if said.dropped else None
        elif self.dropped and self.dropping is None:
            self.dropping = at


class Watch:
    """All of them.

    Args:
      names: in the order of net.toml.
      config: the hash of its configuration.
      patience: for so many seconds nothing is wrong that may pass.
      once: there is one look only, and whoever is not reached is an alarm.
    """

    def __init__(
        self, names: Sequence[str], config: str, patience: float = 60.0, once: bool = False
    ) -> None:
        self.names, self.config, self.patience, self.once = tuple(names), config, patience, once
        self.agents: dict[str, Watched] = {}
        self.at = 0.0

    def saw(self, at: float, facts: Mapping[str, Any]) -> None:
        """What the agents answered then, by name; None of one that did not."""
        self.at = at
        for name in self.names:
            agent = self.agents.setdefault(name, Watched(name, at))
            agent.saw(at, self._known(understood(facts.get(name))))

    def _known(self, said: Said | None) -> Said | None:
        """With no other names in it than those of agents: it may name anybody."""
        if said is None:
            return None
        mine = frozenset(self.names)
        return said._replace(
            waiting_for=said.waiting_for & (mine | {OWN_RECORDS}),
            alive=said.alive & mine,
            hears=said.hears & mine,
        )

    @property
    def all_done(self) -> bool:
        return bool(self.agents) and all(agent.done for agent in self.agents.values())

    def alarms(self) -> list[Alarm]:
        """What deserves a look, the oldest first."""
        found = [alarm for agent in self.agents.values() for alarm in self._alarms(agent)]
        return sorted(found, key=lambda alarm: alarm.since)

    def _alarms(self, agent: Watched) -> list[Alarm]:
        name, said, found = agent.name, agent.said, list[Alarm]()
        if said is not None:
            if not said.private:
                found.append(Alarm(name, "its noise follows from a seed: NOT PRIVATE", agent.began))
            if said.config not in (None, self.config):
                found.append(Alarm(name, "it has another configuration", agent.began))
            if agent.dropping is not None:
                what = f"{agent.dropped:,} things came to it that were no messages"
                found.append(Alarm(name, what, agent.dropping))
        if agent.done:
            return found
        if agent.missed is not None:
            words, since = self._gone(agent), agent.missed
            return [*found, Alarm(name, words, since)] if self._over(since, self.once) else found
        # Of rounds that take long the one that is under way may, too.
        long = _LONG * agent.usual
        found += [
            Alarm(name, f"waits for {other}", since)
            for other, since in agent.waited.items()
            if other != OWN_RECORDS and self._over(since, longer=long)
        ]
        if agent.stood is not None and not agent.waited and self._over(agent.stood, longer=long):
            found.append(Alarm(name, f"stands in round {said.round if said else 0}", agent.stood))
        return found

    def _over(self, since: float, at_once: bool = False, longer: float = 0.0) -> bool:
        return at_once or self.at - since >= max(self.patience, longer)

    def _gone(self, agent: Watched) -> str:
        """An agent that is not reached: of one that was near its end nobody knows why."""
        if agent.said is None:
            return "was never reached"
        words = f"is not reached, and was in round {agent.said.round} of {agent.said.of} before"
        near = agent.said.round == agent.said.of or self._left(agent) < self.patience
        return f"{words}: it may be done" if near else words

    @property
    def left(self) -> float | None:
        """Seconds until the last one is done, at the pace since the watching began; None while
        nobody knows.
        """
        going = [agent for agent in self.agents.values() if not agent.done]
        if not all(agent.reached for agent in going):
            return None
        left = [self._left(agent) for agent in going]
        return max(left, default=0.0) if all(map(math.isfinite, left)) else None

    def _left(self, agent: Watched) -> float:
        (first, begun), (last, reached) = agent.rounds[0], agent.rounds[-1]
        if reached <= begun:
            return math.inf
        of = agent.said.of if agent.said else 0
        return (of - reached) * (last - first) / (reached - begun)
