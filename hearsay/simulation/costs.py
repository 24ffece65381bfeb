"""What a run would cost on a network of one's own: bytes, and seconds of a simulated clock.

Rounds are not worth the same: a round of one method sends twice the numbers of another's, or
several exchanges, or goes through a server. `Costs` says what the network is like (how long a
message is under way, how fast lines are, how long a round's computing takes: constants, one for
each agent, or drawn; cost_laws.py), and `Costs.timeline` what a run of an algorithm takes on it:
traffic.py counts bytes as deployed agents send them, clock.py lets agents wait for each other.

Nothing of it changes a run, and no record enters: a timeline follows from public facts.

With `patience` messages that come too late are lost. The timeline then says which (`heard`), so
that the run itself can be simulated with those faults; its budget is that of a lossy graph.
"""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import numpy as np

from hearsay import _validate as require
from hearsay.base import Algorithm
from hearsay.graphs import Graph
from hearsay.graphs.channels import channel
from hearsay.problems.task import Task
from hearsay.simulation import clock, cost_laws
from hearsay.simulation.faults import Faults
from hearsay.simulation.traffic import NUMBERS, Traffic, traffic

_LEAST: dict[str, require.Rule] = {
    "latency": require.nonnegative,
    "bandwidth": require.positive,
    "compute": require.nonnegative,
}


class Collected(NamedTuple):
    """What it takes to bring all records to one place: bytes in all, and seconds."""

    bytes: int
    seconds: float


@require.known_arguments
@dataclass(frozen=True)
class Costs:
    """What messages and computing cost on some network.

    A number is the same for all, a list has one for each agent; "uniform:LOW:HIGH" and
    "lognormal:MEDIAN:SIGMA" are drawn once for each agent or link, and a further ":JITTER" is
    drawn anew in every round (docs/costs.md).

    Args:
      latency: seconds that a message is under way on a link, however short it is; of a list, a
        link has the mean of its two ends.
      bandwidth: bytes a second of an agent's line, each way; its messages share it.
      compute: seconds that an agent computes in a round.
      per_record: seconds more for every record that a round's gradient uses.
      server: bytes a second of a server's line, each way, where messages go through one.
      patience: seconds after which an agent goes on without messages that are not there; None: it
        waits for all.
      seed: of what is drawn.

    Example:
      >>> import hearsay as hs
      >>> costs = hs.Costs(latency=0.05, bandwidth=1.25e6, compute="lognormal:0.1:0.5")
      >>> problem, graph = hs.problems.ridge(agents=4, records=60), hs.graphs.ring(4)
      >>> found = costs.timeline(hs.dsgd(noise=1.0), problem, graph, steps=10)
      >>> int(found.bytes[-1]), round(float(found.seconds[-1]), 2)
      (28160, 2.79)
    """

    latency: float | str | Sequence[float]
    bandwidth: float | str | Sequence[float]
    compute: float | str | Sequence[float]
    per_record: float = 0.0
    server: float = 1.25e8
    patience: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in _LEAST.items():
            found = cost_laws.written(name, getattr(self, name), least)
            object.__setattr__(self, name, found)
        require.settle(
            self,
            per_record=require.nonnegative,
            server=require.positive,
            patience=require.optional(require.positive),
            seed=require.seed,
        )

    def law(self, name: str) -> cost_laws.Law:
        """Latency, bandwidth or compute, read."""
        return cost_laws.read(name, getattr(self, name), _LEAST[name])

    def timeline(self, algorithm: Algorithm, problem: Task, graph: Graph, steps: int) -> Timeline:
        """When every round of a run would end, and what would have been sent by then.

        Args:
          algorithm: what every agent does.
          problem: how large its models are, and how many records a round uses.
          graph: who hears whom.
          steps: how many rounds.
        """
        steps = require.natural("steps", steps)
        self._check(algorithm, problem.agents)
        each = traffic(algorithm, problem, graph)
        seconds, late = np.zeros(steps + 1), list[list[np.ndarray | None]]()
        times = np.zeros(problem.agents)
        for step, (times, heard) in enumerate(clock.rounds(self, algorithm, problem, each, steps)):
            seconds[step + 1] = times.max()
            late.append([None if one is None else np.packbits(one) for one in heard])
        return Timeline(
            np.arange(steps + 1),
            seconds,
            each.total * np.arange(steps + 1, dtype=np.int64),
            times,
            each,
            tuple(map(tuple, late)) if self.patience is not None else (),
        )

    def collecting(self, problem: Task) -> Collected:
        """What it takes to bring everybody's records to a server that all trust, through its
        line: the cost of training there, which sends nothing any more.
        """
        if problem.endless:
            raise ValueError(f"{problem.name} must be a data set to be collected, got a stream")
        self._require_agents(problem.agents)
        numbers, width = int(np.prod(problem.shape)), 1 if problem.bytes else NUMBERS.itemsize
        sent = problem.counts * (numbers * width + NUMBERS.itemsize)
        speed = self.law("bandwidth").once(self.seed, cost_laws.BANDWIDTH, problem.agents)
        delay = self.law("latency").once(self.seed, cost_laws.LATENCY, problem.agents)
        slowest = delay + sent * np.maximum(1 / speed, problem.agents / self.server)
        return Collected(int(sent.sum()), float(slowest.max()))

    def _check(self, algorithm: Algorithm, agents: int) -> None:
        self._require_agents(agents)
        for one in map(channel, algorithm.channels.values()):
            if self.patience is not None and not one.may_skip:
                raise ValueError(
                    f"patience must be left out for {algorithm.name}, got {self.patience:g}:"
                    f" {one.needs_all}"
                )

    def _require_agents(self, agents: int) -> None:
        for name in _LEAST:
            if (law := self.law(name)).table and len(law.values) != agents:
                rule = f"one number, or one for each of the {agents} agents"
                require.fail(name, rule, f"{len(law.values)} numbers")


KEYS = tuple(f.name for f in fields(Costs))


@dataclass(frozen=True, eq=False, repr=False)
class Timeline:
    """When rounds end and what has been sent by then: what `Costs.timeline` finds.

    Args:
      steps: (time,), how many rounds are over.
      seconds: (time,), when they are for the last agent.
      bytes: (time,), sent by all agents so far, and by a server where there is one.
      ended: (agent,), when each has ended the last round.
      traffic: what a round sends.
      delivered: of every exchange of every round the links that delivered in time, as packed bits,
        None where all did; () where agents wait.
    """

    steps: np.ndarray
    seconds: np.ndarray
    bytes: np.ndarray
    ended: np.ndarray
    traffic: Traffic
    delivered: tuple[tuple[np.ndarray | None, ...], ...] = ()

    def heard(self, step: int, exchange: int | None = None) -> np.ndarray:
        """(link,), whether its message was there in time: in the order of `graph.weights`, by who
        hears and then by who is heard.

        Args:
          step: the round, from 0 on.
          exchange: of the round, where it has several; unless given, a link has delivered in a
            round if it has in all of them.
        """
        step, links = require.natural("step", step), len(self.traffic.source)
        if not self.delivered:
            return np.ones(links, bool)
        if step >= len(self.delivered):
            require.fail("step", f"one of the {len(self.delivered)} rounds of the timeline", step)
        every = self.delivered[step]
        chosen = every if exchange is None else (every[require.natural("exchange", exchange)],)
        found = np.ones(links, bool)
        for packed in chosen:
            if packed is not None:
                found &= np.unpackbits(packed, count=links) > 0
        return found

    def digest(self) -> str:
        """A fingerprint of who was heard when."""
        found = hashlib.sha256(repr(self.traffic.exchanges).encode())
        for array in (self.traffic.source, self.traffic.begins):
            found.update(np.ascontiguousarray(array, np.int64).tobytes())
        for number, packed in enumerate(one for row in self.delivered for one in row):
            if packed is not None:
                found.update(number.to_bytes(8, "little") + packed.tobytes())
        return found.hexdigest()

    @property
    def lost(self) -> int:
        """How many messages came too late."""
        links = len(self.traffic.source)
        packed = (one for row in self.delivered for one in row if one is not None)
        return sum(links - int(np.unpackbits(one, count=links).sum()) for one in packed)

    def require_of(self, faults: Faults | None) -> None:
        """Refuse to be the timeline of a run in which other messages were lost.

        Args:
          faults: of the run.
        """
        if faults is None:
            if self.lost:
                raise ValueError(
                    "patience must be left out for a run in which everybody was heard (or be"
                    f" longer), got one with which {self.lost:,} messages come too late"
                )
            return
        plan, rounds = faults.plan, range(int(self.steps[-1]))
        alone = replace(faults, plan=None) == type(faults)()
        if not alone or not isinstance(plan, Timeline):
            require.fail(
                "faults",
                "those that a patience makes, Faults(plan=costs.timeline(...)), for its costs to be"
                " known",
                str(faults),
            )
        if not all(np.array_equal(plan.heard(k), self.heard(k)) for k in rounds):
            raise ValueError("costs must be those that the plan in faults was made with")

    def at(self, steps: np.ndarray) -> Timeline:
        """The same at some of the steps: those at which a run was measured."""
        return replace(
            self, steps=self.steps[steps], seconds=self.seconds[steps], bytes=self.bytes[steps]
        )

    def within(self, seconds: float | None = None, bytes: float | None = None) -> int:
        """How many rounds are over in that time, with that traffic: for how many to plan a run.

        Args:
          seconds: of the simulated clock; None: any.
          bytes: sent by all together; None: any.
        """
        found = len(self.steps)
        for name, limit, used in (("seconds", seconds, self.seconds), ("bytes", bytes, self.bytes)):
            if limit is not None:
                limit = require.nonnegative(name, limit)
                found = min(found, int(np.searchsorted(used, limit, side="right")))
        return int(self.steps[found - 1])

    def to_csv(self) -> str:
        """One row per step."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["step", "seconds", "bytes"])
        for step, seconds, sent in zip(self.steps, self.seconds, self.bytes, strict=True):
            writer.writerow([int(step), f"{seconds:.10g}", int(sent)])
        return text.getvalue()

    def __repr__(self) -> str:
        late = f", {self.lost:,} messages too late" if self.lost else ""
        return (
            f"Timeline({int(self.steps[-1])} steps, {self.seconds[-1]:.4g} s,"
            f" {int(self.bytes[-1]):,} bytes{late})"
        )
