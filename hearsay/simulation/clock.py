"""The simulated clock of synchronous rounds, all agents at once.

In round k agent i computes for c_i(k) seconds, sends its message as soon as its line is free, and
goes on when it has every neighbour's message of the round (policy wait):

    s_i(k)   = max( t_i(k) + c_i(k), f_i(k) )                it sends
    f_i(k+1) = s_i(k) + (messages it sends) b / w_i          its line is free again
    a_ij(k)  = s_j(k) + l_ij(k) + b / (the share of the line)      j's message is at i
    t_i(k+1) = max( s_i(k), max_j a_ij(k) )                  its round ends

with b the bytes of a message, w_i the bytes a second of i's line, each way, and l_ij the latency.
The messages of an exchange share a line evenly: from j to i goes the smaller one of w_j over the
messages that j sends and w_i over those that i hears. Messages over one link keep their order. In
the exchanges that follow a message in the same round (relays) nothing is computed.

With patience p an agent goes on after p seconds without those who have not been heard (policy
skip), and as deployed agents it does not wait at all for whom it has heard nothing of for more
than two exchanges when it sends (deploy/neighbours.py):

    t_i(k+1) = min( s_i(k) + p, max( s_i(k), max a_ij(k) over the j that are waited for ) )

and what is not there by then is lost.

Through a server: it has the average when the last message has come up, its line shared by all
agents, and the average comes down the same way.

The work of an exchange is that of a few operations per link (tests/simulation/test_costs.py holds
it against a simulation event by event).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hearsay.simulation.cost_laws import BANDWIDTH, COMPUTE, LATENCY, Law
from hearsay.simulation.traffic import Traffic

if TYPE_CHECKING:
    from hearsay.base import Algorithm
    from hearsay.problems.task import Task
    from hearsay.simulation.costs import Costs

# Rounds whose batch sizes are worked out at once.
_BLOCK = 64


class Ended(NamedTuple):
    """A round that is over.

    Args:
      times: (agent,), when it was for each of them.
      heard: of each of its exchanges, which links delivered in time, (link,); None: all of them.
    """

    times: np.ndarray
    heard: list[np.ndarray | None]


class Lines:
    """The agents' lines, exchange by exchange."""

    def __init__(self, costs: Costs, traffic: Traffic) -> None:
        self._seed, self._traffic, self._server = costs.seed, traffic, costs.server
        self._latency, self._bandwidth = costs.law("latency"), costs.law("bandwidth")
        self._speed = self._bandwidth.once(costs.seed, BANDWIDTH, traffic.agents)
        self._ends = traffic.source, traffic.target
        self._counts = traffic.heard_by, traffic.hears
        self._delay = self._once(self._latency)
        self._known: tuple[np.ndarray, np.ndarray] | None = None

    def _once(self, law: Law) -> np.ndarray:
        """(link,); with a server (2 agents,): up, then down."""
        agents = self._traffic.agents
        if self._traffic.served:
            return (
                np.tile(law.values, 2) if law.table else law.once(self._seed, LATENCY, 2 * agents)
            )
        source, target = self._ends
        if law.table:
            each = np.asarray(law.values)
            return (each[source] + each[target]) / 2
        return law.once(self._seed, LATENCY, len(source))

    def at(self, exchange: int) -> tuple[np.ndarray, np.ndarray]:
        """(seconds that a message takes over each link, seconds for which each agent's line is
        taken by its own messages).
        """
        if self._known is not None:
            return self._known
        delay = self._latency.at(self._delay, self._seed, LATENCY, exchange)
        speed = self._bandwidth.at(self._speed, self._seed, BANDWIDTH, exchange)
        size, (sends, hears) = self._traffic.message, self._counts
        if self._traffic.served:
            each = size * np.maximum(1 / speed, self._traffic.agents / self._server)
            found = delay + np.tile(each, 2), size / speed
        else:
            up, down = size * sends / speed, size * hears / speed
            source, target = self._ends
            found = delay + np.maximum(up[source], down[target]), up
        if not self._latency.jitter and not self._bandwidth.jitter:
            self._known = found
        return found


def rounds(
    costs: Costs, algorithm: Algorithm, problem: Task, traffic: Traffic, steps: int
) -> Iterator[Ended]:
    """The rounds of a run, one after the other."""
    lines, times = Lines(costs, traffic), np.zeros(traffic.agents)
    free, exchange = np.zeros(traffic.agents), 0
    waiting = Waiting(traffic, costs.patience)
    for computing in _computing(costs, algorithm, problem, steps):
        times, heard = times + computing, list[np.ndarray | None]()
        for _ in range(traffic.exchanges):
            travel, sending = lines.at(exchange)
            if traffic.served:
                up, down = np.split(travel, 2)
                times = np.max(times + up) + down
                heard.append(None)
            else:
                times = np.maximum(times, free)
                free = times + sending
                times, delivered = waiting(times, travel)
                heard.append(delivered)
            exchange += 1
        yield Ended(times, heard)


class Waiting:
    """When agents go on, and without whom.

    Args:
      traffic: who hears whom.
      patience: seconds; None: agents wait for everybody.
    """

    def __init__(self, traffic: Traffic, patience: float | None) -> None:
        self._source, self._target, self._patience = traffic.source, traffic.target, patience
        self._hearing = np.flatnonzero(traffic.hears)
        self._begins = traffic.begins[self._hearing]
        # When the messages of the last exchange and of the one before it were there.
        never = np.full(len(traffic.source), -np.inf)
        self._last, self._before = never, never

    def __call__(
        self, sent: np.ndarray, travel: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """(when each agent goes on, which links have delivered by then; None: all of them)."""
        there = np.maximum(sent[self._source] + travel, self._last)
        before, self._before, self._last = self._before, self._last, there
        if self._patience is None:
            return self._after(sent, there), None
        begun = sent[self._target]
        # Messages keep their order, so the oldest of the three was there first.
        awaited = before <= begun
        ends = self._after(sent, np.where(awaited, there, -np.inf))
        ends = np.minimum(ends, sent + self._patience)
        heard = there <= ends[self._target]
        return ends, None if heard.all() else heard

    def _after(self, sent: np.ndarray, there: np.ndarray) -> np.ndarray:
        """Both sent and heard."""
        found = sent.copy()
        if len(there):
            latest = np.maximum.reduceat(there, self._begins)
            found[self._hearing] = np.maximum(found[self._hearing], latest)
        return found


def _computing(
    costs: Costs, algorithm: Algorithm, problem: Task, steps: int
) -> Iterator[np.ndarray]:
    """(agent,), the seconds that each computes in every round."""
    law = costs.law("compute")
    usual = law.once(costs.seed, COMPUTE, problem.agents)
    held, place = np.unique(problem.counts, return_inverse=True)
    for first in range(0, steps, _BLOCK):
        block = np.arange(first, min(first + _BLOCK, steps))
        used = np.zeros((len(held), len(block)))
        if costs.per_record:
            sampling, arrivals = algorithm.sampling, problem.arrivals
            sizes = [sampling.sizes(block, float(many), arrivals) for many in held]
            used = np.minimum(sizes, held[:, None])
        for step, records in zip(block.tolist(), used.T, strict=True):
            own = law.at(usual, costs.seed, COMPUTE, step)
            yield own + costs.per_record * records[place]
