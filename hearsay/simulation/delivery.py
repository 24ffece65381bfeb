"""What a round delivers on a network that fails: faults (faults.py) inside the compiled loop.

A link is a pair (hearer, sender); all of them are numbered row by row. `Delivery.round` says of one
round which links deliver and who is there, from the seed, the number of the round and the little
that must be remembered from the round before (which links are down, who sleeps: `Memory`, carried
like the agents' states, so that neither blocks nor resuming change anything). It costs a few
numbers per link, for all seeds of a run together.

From that follow the weights of the round (wires.py). What is `None` here cannot go wrong in this
run, and nothing of it is compiled.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy import sparse

from hearsay import _validate as require
from hearsay.base import Algorithm
from hearsay.graphs import Graph
from hearsay.problems.problem import Problem
from hearsay.simulation import keys
from hearsay.simulation.faults import Faults, Plan, links
from hearsay.simulation.program import Program
from hearsay.simulation.wires import numbered, wires

# What is drawn, each from a stream of its own; presence has number 1 (faults.py).
_LINKS, _SLEEP, _LATE, _CHURN, _SLOW, _AGES = 0, 2, 3, 4, 5, 6


class Weather(NamedTuple):
    """One round of the network.

    heard: (link,). present: (agent,), None where everybody always is. back: (agent,), who is there
    again and begins anew; None where nobody ever comes back.
    """

    heard: jax.Array
    present: jax.Array | None
    back: jax.Array | None


class Memory(NamedTuple):
    """What is carried from round to round.

    heard: (link,), in how many rounds it delivered. sent: (agent,), how many messages each has
    sent. charged: (agent,), one more than the number of the last of them. down: (link,), asleep,
    gone: (agent,). aired: (age, agent), whose earlier messages are on their way, and past: those
    messages, (seed, age, agent, ...) per field, the latest first.
    """

    heard: jax.Array
    sent: jax.Array
    charged: jax.Array
    down: Any = ()
    asleep: Any = ()
    gone: Any = ()
    aired: Any = ()
    past: Any = ()


class Late(NamedTuple):
    """Everybody's state, and the messages that are still on their way: what one seed of a run takes
    from round to round.
    """

    states: Any
    past: Any


class Stretches(eqx.Module):
    """Something that begins in a round with one chance and ends with another, so that it is there
    in so large a share of the rounds; in round 0 by that share.
    """

    share: jax.Array
    begins: jax.Array
    ends: jax.Array

    def __call__(self, drawn: jax.Array, before: jax.Array, first: jax.Array) -> jax.Array:
        later = jnp.where(before, drawn >= self.ends, drawn < self.begins)
        return jnp.where(first, drawn < self.share, later)


def stretches(share: float, mean: float) -> Stretches:
    """Of that mean length."""
    chances = (share, share / (1 - share) / mean, 1 / mean)
    return Stretches(*(jnp.float32(chance) for chance in chances))


class Delivery(eqx.Module):
    """The faults of a run on its graph, as device arrays; made by `delivery`.

    hearer, sender: (link,). ages: (link,), rounds that messages take. slow: (agent,), the chance
    that its message comes too late. joins, leaves: (agent,). split: (since, until, the links that
    it cuts) of partitions, (partition, ...). outages: (links, since, until). start: (agent, d),
    where whoever comes back begins.
    """

    key: jax.Array
    hearer: jax.Array
    sender: jax.Array
    wires: tuple[Any, ...]
    loss: jax.Array | Stretches | None
    sleep: Stretches | None
    slow: jax.Array | None
    churn: Stretches | None
    joins: jax.Array | None
    leaves: jax.Array | None
    ages: jax.Array | None
    split: tuple[jax.Array, ...] | None
    outages: tuple[jax.Array, ...] | None
    start: jax.Array | None
    oldest: int = eqx.field(static=True)
    agents: int = eqx.field(static=True)
    catches_up: bool = eqx.field(static=True)

    def begin(self, message: Any, seeds: int) -> Memory:
        """Before the first round.

        Args:
          message: one agent's, by shape and type.
          seeds: of the run.
        """
        count, n = len(self.hearer), self.agents
        none, past = jnp.zeros(n, bool), ()
        if self.oldest:
            shape = (seeds, self.oldest, n)
            past = jax.tree.map(lambda x: jnp.zeros((*shape, *x.shape), x.dtype), message)
        return Memory(
            jnp.zeros(count, jnp.int32),
            jnp.zeros(n, jnp.int32),
            jnp.zeros(n, jnp.int32),
            jnp.zeros(count, bool) if isinstance(self.loss, Stretches) else (),
            none if self.sleep is not None else (),
            none if self.churn is not None else (),
            jnp.zeros((self.oldest, n), bool) if self.oldest else (),
            past,
        )

    def round(self, step: jax.Array, memory: Memory, planned: Any) -> tuple[Weather, Memory]:
        """(that round, what is remembered after it, but for its messages).

        Args:
          planned: (link,), which of them deliver by a plan; () without one.
        """
        n, first = self.agents, step == 0
        up, memory = self._up(step, first, memory, planned)
        present = back = None
        if self.joins is not None and self.leaves is not None:
            present = (self.joins <= step) & (step < self.leaves)
        if self.churn is not None:
            gone = self.churn(self._draw(_CHURN, step, n), memory.gone, first)
            back = memory.gone & ~gone
            present = ~gone if present is None else present & ~gone
            memory = memory._replace(gone=gone)
        aired = listening = jnp.ones(n, bool) if present is None else present
        if self.sleep is not None:
            asleep = self.sleep(self._draw(_SLEEP, step, n), memory.asleep, first)
            aired = aired & ~asleep
            listening = listening if self.catches_up else aired
            memory = memory._replace(asleep=asleep)
        if self.slow is not None:
            aired = aired & (self._draw(_LATE, step, n) >= self.slow)
        if self.ages is None:
            spoken = aired[self.sender]
        else:
            every = jnp.concatenate([aired[None], memory.aired])
            spoken = every[self.ages, self.sender]
            memory = memory._replace(aired=every[: self.oldest])
        heard = up & spoken & listening[self.hearer]
        here = jnp.ones(n, bool) if present is None else present
        memory = memory._replace(
            heard=memory.heard + heard,
            sent=memory.sent + here,
            charged=jnp.where(here, step + 1, memory.charged).astype(jnp.int32),
        )
        return Weather(heard, present, back), memory

    def _up(
        self, step: jax.Array, first: jax.Array, memory: Memory, planned: Any
    ) -> tuple[jax.Array, Memory]:
        """Which links work in that round, whoever is there."""
        count = len(self.hearer)
        up = jnp.ones(count, bool) if isinstance(planned, tuple) else planned
        if self.loss is not None:
            drawn = self._draw(_LINKS, step, count)
            if isinstance(self.loss, Stretches):
                down = self.loss(drawn, memory.down, first)
                memory = memory._replace(down=down)
            else:
                down = drawn < self.loss
            up = up & ~down
        if self.split is not None:
            since, until, cut = self.split
            active = (since <= step) & (step < until)
            up = up & ~jnp.any(active[:, None] & cut, axis=0)
        if self.outages is not None:
            which, since, until = self.outages
            active = (since <= step) & (step < until)
            hit = jnp.zeros(count, jnp.int32).at[which].max(active.astype(jnp.int32))
            up = up & (hit == 0)
        return up, memory

    def _draw(self, purpose: int, step: jax.Array, count: int) -> jax.Array:
        # Always of one type: faults are the same in either precision.
        key = keys.at(jax.random.fold_in(self.key, purpose), step)
        return jax.random.uniform(key, (count,), jnp.float32)

    def begun(self, program: Program, weather: Weather, states: Any) -> Any:
        """The states, anew for those who are back."""
        if self.start is None:
            return states
        fresh, _ = jax.vmap(program.start)(self.start)
        return where(weather.back, fresh, states)

    def mixers(self, weather: Weather, past: Any) -> list[Any]:
        """What takes the place of the channels' own mixers in that round.

        Args:
          past: earlier messages of one seed, (age, agent, ...) per field; () where none are late.
        """
        fields = past if self.oldest else [()] * len(self.wires)
        pairs = zip(self.wires, fields, strict=True)
        return [wires.at(weather.heard, self.ages, old) for wires, old in pairs]


def remembered(past: Any, sent: Any) -> Any:
    """Earlier messages of one seed once these have been sent: the oldest are no longer needed."""
    if isinstance(past, tuple) and not past:
        return past
    return jax.tree.map(lambda old, new: jnp.concatenate([new[None], old[:-1]]), past, sent)


def where(chosen: jax.Array | None, one: Any, other: Any) -> Any:
    """Agent by agent, in arrays (agent, ...); `one` where nobody chooses."""
    if chosen is None:
        return one

    def pick(a: jax.Array, b: jax.Array) -> jax.Array:
        return jnp.where(chosen.reshape(-1, *(1 for _ in a.shape[1:])), a, b)

    return jax.tree.map(pick, one, other)


def delivery(faults: Faults, algorithm: Algorithm, problem: Problem, graph: Graph) -> Delivery:
    """The arrays of a run with those faults; `Faults.check` has passed."""
    pattern, n, dtype = links(algorithm, graph), graph.agents, problem.dtype
    hearer = np.repeat(np.arange(n, dtype=np.int32), np.diff(pattern.indptr))
    sender = pattern.indices.astype(np.int32)
    joins, leaves = faults.presence(n)
    bounded = faults.join or faults.leave or (faults.churn and faults.away is None)
    loss: Any = None
    if faults.loss:
        loss = jnp.float32(faults.loss)
        if faults.burst is not None:
            loss = stretches(faults.loss, faults.burst)
    slow = None
    if faults.stragglers:
        chosen = jax.random.uniform(keys.fault_key(faults.seed, _SLOW), (n,), jnp.float32)
        slow = jnp.where(chosen < faults.stragglers, jnp.float32(faults.late), 0)
    returning = faults.churn > 0 and faults.away is not None
    return Delivery(
        key=keys.fault_key(faults.seed, 0),
        hearer=jnp.asarray(hearer),
        sender=jnp.asarray(sender),
        wires=tuple(wires(name, graph, pattern, dtype) for name in algorithm.channels.values()),
        loss=loss,
        sleep=stretches(faults.asleep, faults.nap) if faults.asleep else None,
        slow=slow,
        churn=_churn(faults) if returning else None,
        joins=jnp.asarray(joins) if bounded else None,
        leaves=jnp.asarray(leaves) if bounded else None,
        ages=_ages(faults, len(hearer)),
        split=_split(faults, hearer, sender, n),
        outages=_outages(faults, pattern),
        start=jnp.asarray(problem.first_models, dtype) if returning else None,
        oldest=faults.ages[1],
        agents=n,
        catches_up=faults.catches_up,
    )


def planned(plan: Plan, steps: np.ndarray, count: int) -> np.ndarray:
    """(step, link): what the plan says of those rounds.

    Args:
      count: of links.
    """
    found = [np.asarray(plan.heard(int(step))) for step in steps]
    for step, row in zip(steps, found, strict=True):
        if row.shape != (count,) or row.dtype != bool:
            rule = f"one truth value for each of the {count} links"
            require.fail(f"heard({step}) of the plan", rule, f"{row.dtype} {row.shape}")
    return np.stack(found)


def _churn(faults: Faults) -> Stretches:
    """Everybody is there in round 0."""
    assert faults.away is not None
    return Stretches(jnp.float32(0), jnp.float32(faults.rate), jnp.float32(1 / faults.away))


def _ages(faults: Faults, count: int) -> jax.Array | None:
    least, most = faults.ages
    if not most:
        return None
    return jax.random.randint(
        keys.fault_key(faults.seed, _AGES), (count,), least, most + 1, jnp.int32
    )


def _split(faults: Faults, hearer: np.ndarray, sender: np.ndarray, n: int) -> Any:
    if not faults.partitions:
        return None
    groups = faults.groups(n)
    since, until = (jnp.asarray([p[end] for p in faults.partitions], jnp.int32) for end in (0, 1))
    return since, until, jnp.asarray(groups[:, hearer] != groups[:, sender])


def _outages(faults: Faults, pattern: sparse.csr_array) -> Any:
    if not faults.links:
        return None
    listed = np.array(faults.links)
    which = numbered(pattern)[listed[:, 0], listed[:, 1]] - 1
    return tuple(jnp.asarray(part, jnp.int32) for part in (which, listed[:, 2], listed[:, 3]))
