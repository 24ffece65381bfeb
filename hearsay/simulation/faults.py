"""What goes wrong on a simulated network, as data: links that lose messages or are slow, agents
that sleep, straggle, leave, come back or join late, partitions that heal.

There is one meaning, that of deployed agents with policy "skip" (deploy/): a round is a number, and
a message that is not there for round k is left out of round k together with its weight. Every fault
is an answer to "does agent i hear agent j in round k, and is i there at all". Everything is drawn
from one seed and from nothing private; what each fault means for a certificate, and why it is
covered, is in docs/faults.md. What a simulation does with them: delivery.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, Protocol, runtime_checkable

import jax
import numpy as np
from scipy import sparse

from hearsay import _validate as require
from hearsay.base import Algorithm
from hearsay.graphs import Graph
from hearsay.graphs.channels import channel
from hearsay.simulation import fault_rules as rules
from hearsay.simulation import keys
from hearsay.simulation.fault_rules import NEVER

# The rounds that `churn` speaks of.
PER = 100


@runtime_checkable
class Plan(Protocol):
    """Who hears whom, worked out elsewhere."""

    def heard(self, step: int) -> np.ndarray:
        """For every link, in the order of `Graph.weights` (row by row): whether the agent of that
        row hears the other in that round.
        """
        ...


@require.known_arguments
@dataclass(frozen=True, kw_only=True, repr=False)
class Faults:
    """What goes wrong, and when; rounds are counted from 0.

    Agents that sleep, straggle or are not heard go on computing and sending, and are charged for
    every message. Agents that are away (left, or not yet there) send nothing and compute nothing.

    Args:
      loss: the share of messages that every link loses.
      burst: the mean number of rounds for which a link that fails stays down; None: every message
        is lost or not by itself.
      asleep: the share of rounds in which an agent is asleep, and not heard.
      nap: the mean number of rounds that it sleeps at a stretch.
      catches_up: an agent that was asleep hears what it has missed once it is back, as deployed
        agents do, for which messages are kept; False: what was sent meanwhile is lost to it.
      stragglers: the share of agents that are slow.
      late: the share of a slow agent's messages that come too late for their round.
      latency: rounds that messages take, one number, or the least and the most, drawn once for
        every link: round k hears what was sent in round k - latency.
      churn: the share of the agents that leaves in 100 rounds.
      away: the mean number of rounds after which one that has left by `churn` comes back, to begin
        anew at the public start; None: it has left for good.
      leave: (agent, round) for agents that leave for good: there is no message of that round.
      join: (agent, round) for agents that join late, at the public start: that round's message is
        their first.
      partitions: (since, until, groups): from one round until before another, agents hear nobody
        outside their own group; those in none of the groups are one more.
      links: (hearer, sender, since, until): the one does not hear the other in those rounds.
      plan: an object whose `heard(step)` says which links deliver in a round (`Plan`).
      unfit: run methods too that cannot do without a message, to see how they fail.
      seed: what is drawn is drawn from it: the same for every noise seed of a run.

    Example:
      >>> import hearsay as hs
      >>> hs.Faults(loss=0.2, partitions=[(100, 200, [[0, 1], [2, 3]])]).partitions
      ((100, 200, ((0, 1), (2, 3))),)
    """

    loss: float = 0.0
    burst: float | None = None
    asleep: float = 0.0
    nap: float = 10.0
    catches_up: bool = True
    stragglers: float = 0.0
    late: float = 0.5
    latency: int | tuple[int, int] = 0
    churn: float = 0.0
    away: float | None = None
    leave: tuple[tuple[int, int], ...] = ()
    join: tuple[tuple[int, int], ...] = ()
    partitions: tuple[tuple[int, int, tuple[tuple[int, ...], ...]], ...] = ()
    links: tuple[tuple[int, int, int, int], ...] = ()
    plan: Plan | None = None
    unfit: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        require.settle(
            self,
            loss=rules.below_one,
            burst=require.optional(rules.at_least_one),
            asleep=rules.below_one,
            nap=rules.at_least_one,
            catches_up=require.flag,
            stragglers=rules.at_most_one,
            late=require.share,
            latency=rules.latency,
            churn=rules.below_one,
            away=require.optional(rules.at_least_one),
            leave=rules.rounds_of_agents,
            join=rules.rounds_of_agents,
            partitions=require.each(rules.partition),
            links=require.each(rules.outage),
            unfit=require.flag,
            seed=require.seed,
        )
        if self.plan is not None and not isinstance(self.plan, Plan):
            require.fail("plan", "an object with a method heard(step)", self.plan)
        if self.burst is not None and not self.loss:
            require.fail("burst", "left out without a loss", self.burst)
        if self.away is not None and not self.churn:
            require.fail("away", "left out without churn", self.away)
        rules.require_reachable("burst", "loss", self.loss, self.burst)
        rules.require_reachable("nap", "asleep", self.asleep, self.nap)
        for agent, last in self.leave:
            if dict(self.join).get(agent, 0) >= last:
                require.fail(f"leave of agent {agent}", "after it has joined", last)

    @property
    def options(self) -> dict[str, Any]:
        """What is not as usual."""
        found = {f.name: getattr(self, f.name) for f in fields(self)}
        return {f.name: found[f.name] for f in fields(self) if found[f.name] != f.default}

    def __repr__(self) -> str:
        return f"Faults({', '.join(f'{name}={v!r}' for name, v in self.options.items())})"

    def __str__(self) -> str:
        """In one line, as reports say it."""
        said = [f"{name} = {_plainly(v)}" for name, v in self.options.items() if name != "plan"]
        said += ["a plan of its own"] if self.plan is not None else []
        return ", ".join(said) or "none"

    @property
    def ages(self) -> tuple[int, int]:
        """The least and the most rounds that a message takes."""
        return (self.latency, self.latency) if isinstance(self.latency, int) else self.latency

    @property
    def absences(self) -> bool:
        """Some agents are away in some rounds."""
        return bool(self.churn or self.leave or self.join)

    def after(self, steps: int) -> str:
        """What would begin after so many rounds only, in words; "" if nothing would."""
        found: dict[str, list[tuple]] = {
            "join": [event for event in self.join if event[1] >= steps],
            "leave": [event for event in self.leave if event[1] >= steps],
            "partitions": [event for event in self.partitions if event[0] >= steps],
            "links": [event for event in self.links if event[2] >= steps],
        }
        return ", ".join(f"{name} = {_plainly(tuple(v))}" for name, v in found.items() if v)

    def check(self, algorithm: Algorithm, graph: Graph, steps: int) -> None:
        """Raise ValueError for what cannot be run, or would isolate somebody for good.

        Args:
          steps: how many rounds are to run.
        """
        self._require_agents(graph)
        self._require_fit(algorithm, graph)
        if self.ages[1] >= require.count("steps", steps):
            require.fail("latency", f"below the {steps} rounds of the run", self.ages[1])
        pattern = links(algorithm, graph)
        if self.plan is not None and not _same(pattern, graph.weights):
            require.fail("plan", "left out where trackers travel over other links", self.plan)
        for hearer, sender, *_ in self.links:
            if not pattern[hearer, sender]:
                require.fail("links in faults", "about links of the graph", (hearer, sender))
        self._require_nobody_isolated(pattern, steps)

    def presence(self, agents: int) -> tuple[np.ndarray, np.ndarray]:
        """(the first round of every agent, the first after its last one): of those who come back
        (`away`) only what is certain.
        """
        joins, leaves = np.zeros(agents, np.int32), np.full(agents, NEVER, np.int32)
        if self.churn and self.away is None:
            drawn = jax.random.uniform(keys.fault_key(self.seed, 1), (agents,), np.float32)
            rounds = np.log1p(-np.asarray(drawn, float)) / math.log1p(-self.rate)
            leaves = np.minimum(1 + np.floor(rounds), NEVER).astype(np.int32)
        for agent, step in self.join:
            joins[agent] = step
            # A departure that was drawn is counted from the first round on.
            leaves[agent] = min(NEVER, int(leaves[agent]) + step)
        for agent, step in self.leave:
            leaves[agent] = min(int(leaves[agent]), step)
        return joins, leaves

    @property
    def rate(self) -> float:
        """The chance that an agent leaves in one round."""
        return -math.expm1(math.log1p(-self.churn) / PER)

    def groups(self, agents: int) -> np.ndarray:
        """(partition, agent): the number of the group."""
        found = np.zeros((len(self.partitions), agents), np.int32)
        for row, (_, _, groups) in zip(found, self.partitions, strict=True):
            for number, group in enumerate(groups):
                row[list(group)] = number + 1
        return found

    def _require_agents(self, graph: Graph) -> None:
        named = {
            "leave": [agent for agent, _ in self.leave],
            "join": [agent for agent, _ in self.join],
            "partitions": [a for *_, groups in self.partitions for group in groups for a in group],
            "links": [agent for hearer, sender, *_ in self.links for agent in (hearer, sender)],
        }
        for name, agents in named.items():
            if agents and max(agents) >= graph.agents:
                require.fail(f"{name} in faults", f"about agents below {graph.agents}", max(agents))

    def _require_fit(self, algorithm: Algorithm, graph: Graph) -> None:
        """What needs every message is refused, unless it was asked for and its certificate does not
        depend on who is heard.
        """
        channels = [channel(name) for name in algorithm.channels.values()]
        for one in channels:
            if one.links(graph) is None:
                raise ValueError(f"{algorithm.name} cannot run with faults: {one.needs_all}")
            if one.may_skip:
                continue
            if not self.unfit:
                raise ValueError(
                    f"{algorithm.name} cannot do without a message: {one.needs_all}"
                    " (Faults(unfit=True) runs it all the same, to see how it fails)"
                )
            if any(algorithm.leak(float(w)) != algorithm.leak(0.0) for w in set(graph.row_sums)):
                raise ValueError(
                    f"{algorithm.name} cannot run with faults: its certificate depends on who is"
                    " heard, and it needs all"
                )
        if algorithm.relays(graph)[:, 1].any():
            raise ValueError(
                "chebyshev must be false with faults, got true: its weights take every message for"
                " granted"
            )
        momentary = any(one.of_its_round for one in channels)
        if self.ages[1] and (momentary or len(algorithm.relays(graph))):
            raise ValueError(
                f"latency must be 0 for {algorithm.name} as it is set up, got {self.latency}: what"
                " agents exchange in a round is of that round only"
            )

    def _require_nobody_isolated(self, pattern: sparse.csr_array, steps: int) -> None:
        last, agents = steps - 1, pattern.shape[0]
        joins, leaves = self.presence(agents)
        here = (joins <= last) & (last < leaves)
        if not here.any():
            raise ValueError(f"faults must leave somebody: everybody has left before round {last}")
        hearer = np.repeat(np.arange(agents), np.diff(pattern.indptr))
        sender = pattern.indices
        up = here[hearer] & here[sender]
        for (since, until, _), group in zip(self.partitions, self.groups(agents), strict=True):
            if since <= last < until:
                up &= group[hearer] == group[sender]
        down = {(i, j) for i, j, since, until in self.links if since <= last < until}
        if down:
            up &= [pair not in down for pair in zip(hearer.tolist(), sender.tolist(), strict=True)]
        for ends, verb in ((hearer, "hear nobody"), (sender, "not be heard by anybody")):
            had, has = (np.bincount(ends[kept], minlength=agents) for kept in (slice(None), up))
            cut = np.flatnonzero(here & (had > 0) & (has == 0)).tolist()
            if cut:
                who = ", ".join(map(str, cut[:8])) + (", ..." if len(cut) > 8 else "")
                raise ValueError(
                    f"faults must not isolate anybody for good: agent{'s' * (len(cut) > 1)} {who}"
                    f" would {verb} any more when the run ends, after round {last} (let partitions"
                    " and links heal before it, and agents that leave come back: away)"
                )


def links(algorithm: Algorithm, graph: Graph) -> sparse.csr_array:
    """Entry (i, j) where agent i hears agent j in some field of a message."""
    found: Any = None
    for name in dict.fromkeys(algorithm.channels.values()):
        one = channel(name).links(graph)
        if one is not None:
            parts = (np.ones(one.nnz), one.indices, one.indptr)
            pattern = sparse.csr_array(parts, shape=one.shape, copy=True)
            found = pattern if found is None else found + pattern
    assert found is not None
    found.sort_indices()
    return found


def _plainly(value: Any) -> str:
    """A list of many agents only by its length."""
    if isinstance(value, tuple) and len(value) > 8:
        return f"{len(value)} of them"
    return repr(value) if isinstance(value, tuple) else str(value)


def _same(one: sparse.csr_array, two: sparse.csr_array) -> bool:
    same = one.nnz == two.nnz
    return same and bool(np.all(one.indptr == two.indptr) and np.all(one.indices == two.indices))
