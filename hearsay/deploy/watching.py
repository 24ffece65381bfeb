"""A network over the time that somebody watches it: what its agents said of themselves, since when
nothing changes, and what deserves an alarm.

What an agent says comes from another machine, and may be anything: only numbers, names of agents
and truth values are taken from it, each where it belongs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

# Of each agent: more are thinned out, so that months of them stay as many.
_MOST = 1000


class Alarm(NamedTuple):
    """Args:
    name: of whom.
    why: in words.
    since: when it began, as given to `saw`.
    """

    name: str
    why: str
    since: float


class Said(NamedTuple):
    """What is understood of an agent's answer."""

    round: int
    of: int
    done: bool
    private: bool
    spent: float
    unit: str
    config: str
    waiting_for: frozenset[str]
    alive: frozenset[str]
    hears: frozenset[str]
    dropped: int


# Of an agent that has ended before anybody watched: what it spends is not known to be epsilon.
_NOBODY: frozenset[str] = frozenset()
UNHEARD = Said(0, 0, False, True, 0.0, "", "", _NOBODY, _NOBODY, _NOBODY, 0)


def understood(facts: Any, names: frozenset[str]) -> Said | None:
    """An answer, as far as it is one; None where it is not."""
    if not isinstance(facts, Mapping):
        return None
    dropped = facts.get("dropped")
    counts = dropped.values() if isinstance(dropped, Mapping) else ()
    said = Said(
        round=_count(facts.get("round")),
        of=_count(facts.get("of")),
        done=facts.get("done") is True,
        private=facts.get("private") is not False,
        spent=_number(facts.get("spent")),
        unit="delta" if facts.get("unit") == "delta" else "epsilon",
        config=config if isinstance(config := facts.get("config"), str) else "",
        waiting_for=_names(facts.get("waiting_for"), names),
        alive=_names(facts.get("alive"), names),
        hears=_names(facts.get("hears"), names),
        dropped=sum(map(_count, counts)),
    )
    return said if said.of > 0 else None


def _count(value: Any) -> int:
    plain = isinstance(value, int) and not isinstance(value, bool)
    return min(value, 2**53) if plain and value > 0 else 0


def _number(value: Any) -> float:
    if isinstance(value, float):
        return value if value > 0 else 0.0
    return float(_count(value))


def _names(value: Any, known: frozenset[str]) -> frozenset[str]:
    listed = isinstance(value, Sequence) and not isinstance(value, str)
    return known.intersection(v for v in value if isinstance(v, str)) if listed else frozenset()


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
    # How much had been dropped when it was first heard, and when there was more.
    first_dropped: int | None = None
    dropping: float | None = None
    rounds: list[tuple[float, int]] = field(default_factory=list)

    @property
    def done(self) -> bool:
        return self.said is not None and self.said.done

    @property
    def dropped(self) -> int:
        """What was dropped since the watching began."""
        return 0 if self.said is None else self.said.dropped - (self.first_dropped or 0)

    def ended(self, rounds: int, spent: float) -> None:
        """Its ledger says that it is done, after how many rounds, and what they have cost."""
        said = self.said or UNHEARD
        self.said = said._replace(done=True, round=rounds, of=rounds, spent=spent)
        self.waited = {}

    def saw(self, at: float, said: Said | None) -> None:
        self.reached = said is not None
        if said is None:
            self.missed = at if self.missed is None else self.missed
            return
        before, self.said, self.missed = self.said, said, None
        if before is None or before.round != said.round:
            self.stood = at
        self.waited = {name: self.waited.get(name, at) for name in sorted(said.waiting_for)}
        if self.first_dropped is None or said.dropped < self.first_dropped:
            # Another process, which counts anew.
            self.first_dropped, self.dropping = said.dropped, None
        elif self.dropped and self.dropping is None:
            self.dropping = at
        self.rounds.append((at, said.round))
        if len(self.rounds) > _MOST:
            del self.rounds[1:-1:2]


class Watch:
    """All of them.

    Args:
      names: in the order of net.toml.
      config: the hash of its configuration.
      patience: for so many seconds nothing is wrong that may pass.
    """

    def __init__(self, names: Sequence[str], config: str, patience: float = 60.0) -> None:
        self.names, self.config, self.patience = tuple(names), config, patience
        self.agents: dict[str, Watched] = {}
        self.at = 0.0

    def saw(self, at: float, facts: Mapping[str, Any]) -> None:
        """What the agents answered then, by name; None of one that did not."""
        self.at, known = at, frozenset(self.names)
        for name in self.names:
            agent = self.agents.setdefault(name, Watched(name, at))
            agent.saw(at, understood(facts.get(name), known))

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
            if said.config not in ("", self.config):
                found.append(Alarm(name, "it has another configuration", agent.began))
            if agent.dropping is not None:
                what = f"{agent.dropped:,} things came to it that were no messages"
                found.append(Alarm(name, what, agent.dropping))
        if agent.done:
            return found
        if agent.missed is not None:
            words = "was never reached"
            if said is not None:
                words = f"is not reached, and was in round {said.round} of {said.of} before"
            return [*found, *self._lasting(name, words, agent.missed)]
        for other, since in agent.waited.items():
            found += self._lasting(name, f"waits for {other}", since)
        if agent.stood is not None and not agent.waited:
            found += self._lasting(
                name, f"stands in round {said.round if said else 0}", agent.stood
            )
        return found

    def _lasting(self, name: str, why: str, since: float) -> list[Alarm]:
        return [Alarm(name, why, since)] if self.at - since >= self.patience else []

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
