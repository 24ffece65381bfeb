"""What an amplified certificate takes for granted, held against the code.

An account of secret batches (privacy/sampled.py) says that every message is a mixture by one coin:
given the transcript and the coins of all other records it has one value with the record in its
batch and one without, no further apart than the account's shift; no other message knows that coin;
and without the record it is the same, to the last bit, whatever the record is. So coins are thrown
by hand, along random transcripts, with other coins of all other records in each:

    one message     the coin of one step moves one message at most, and no message is moved by those
                    of two steps; all others stay equal to the last bit, whichever of its other
                    coins have fallen. A private state that is carried on (momentum of gradients
                    before their noise) shows here
    no look         where no coin of the record falls, all messages are equal to the last bit
                    whether it is there, replaced or emptied. Reading rows of a batch without their
                    weights, or records beside the batch, shows here
    shift           a coin moves its message no further than the account allows, whichever of two
                    records it is about, and what is between the two is within it as well
    empty record    one that is emptied keeps its coin and its slot: whether it is in a batch must
                    not show. A batch that is divided by the number drawn, or a size that is
                    sent along, shows here

No chance is involved: a finding is a counterexample, none is no proof.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hearsay import _validate as require
from hearsay.audit.brute_force import random_transcripts
from hearsay.audit.contract import Broken, NotDone, Subject, among
from hearsay.audit.likelihood import changed_row
from hearsay.audit.messages import (
    Scene,
    Transcript,
    bare,
    coin_draws,
    decided,
    follow,
    scene,
)
from hearsay.audit.pairs import Pair, candidates
from hearsay.base import Algorithm
from hearsay.certification.describing import own_amplified
from hearsay.graphs import Graph, ring, star
from hearsay.mechanisms.mechanism import in_units
from hearsay.privacy.adjacency import REPLACE, ZERO_OUT
from hearsay.privacy.sampled import PoissonAccount, SampledAccount, SubsetAccount
from hearsay.problems import Ball, Problem, Squared
from hearsay.problems.data.records import Records as Held
from hearsay.problems.sampling.batches import BLOCK
from hearsay.problems.sampling.samplers import Arrivals, Poisson, Records, Sampling, Subset
from hearsay.schedules import Constant, SampleSize
from hearsay.simulation.program import Program, program

# What float64 may add to a ratio of 1, or leave of a difference of 0.
_EXACT = 1e-9
_STEPS, _AGENT, _HELD, _TRANSCRIPTS = 5, 1, 5, 20


@dataclass(frozen=True, eq=False)
class Thrown:
    """What throwing coins showed.

    Args:
      moved: (step of the coin, message): whether it moved that message by so much as a bit.
      seen: (message): whether it tells one record from another that is in no batch.
      shift: the largest move over what the account allows.
      empty: the largest move that the coin of an empty record made, over the same.
    """

    moved: np.ndarray
    seen: np.ndarray
    shift: float
    empty: float

    @property
    def alone(self) -> bool:
        """Every coin has a message of its own."""
        return bool(np.all(self.moved.sum(axis=0) <= 1) and np.all(self.moved.sum(axis=1) <= 1))

    @property
    def holds(self) -> bool:
        unseen = self.alone and not self.seen.any()
        return unseen and self.shift <= 1 + _EXACT and self.empty <= _EXACT

    @property
    def words(self) -> str:
        """What is wrong first."""
        found = f"largest move of a coin / allowed {self.shift:.4f}"
        if self.seen.any():
            return (
                f"messages {_listed(self.seen)} show what a record is that is in no batch; {found}"
            )
        for step, shown in enumerate(self.moved):
            if shown.sum() > 1:
                return f"the batch of step {step} shows in the messages {_listed(shown)}; {found}"
        for message, steps in enumerate(self.moved.T):
            if steps.sum() > 1:
                return f"message {message} shows the batches of the steps {_listed(steps)}; {found}"
        if self.empty > _EXACT:
            return (
                f"whether an empty record is in a batch shows, by {self.empty:.3g} of what a record"
                f" may do; {found}"
            )
        return found


def _listed(places: np.ndarray) -> str:
    return ", ".join(str(place) for place in np.flatnonzero(places))


class Throws(NamedTuple):
    """Of every transcript (a leading axis).

    Args:
      keys: of the coins of all other records, and of public ones.
      public: whether public coins are drawn; otherwise all are at 0.
      own: (step): where the record's own coins have fallen, before one is turned.
      places: (step): where the record stands in batches that have an order.
    """

    keys: jax.Array
    public: Any
    own: Any
    places: Any


class Limits(NamedTuple):
    """How far messages may move, (field, message).

    Args:
      coin: by a coin of the record.
      record: by another record in its place.
    """

    coin: Any
    record: Any


@require.plain_arguments
def throw(
    algorithm: Algorithm, problem: Problem, graph: Graph, *, agent: int = 0, steps: int = _STEPS
) -> Thrown:
    """The coins of one record thrown by hand, one of them turned in each of the steps, along random
    transcripts.

    Args:
      algorithm: one whose certificate counts on secret batches.
      problem: of a linear model whose loss bounds its records.

    Example:
      >>> import hearsay as hs
      >>> problem = hs.problems.ridge(agents=3, records=18, dimension=1, adjacency="zero-out")
      >>> secret = hs.gradient_perturbation(sampling=hs.Poisson(0.5), mechanism="gaussian")
      >>> throw(secret, problem, hs.graphs.ring(3)).holds
      True
    """
    algorithm.check(graph, problem.task)
    found = own_amplified(algorithm, problem.task, graph, agent)
    known = [account for account in found if isinstance(account, SampledAccount)]
    if not known:
        require.fail(
            "algorithm", "one whose secret batches cost less", f"{algorithm.name}: they do not"
        )
    plain, names = bare(algorithm), list(algorithm.channels)
    limits = Limits(
        # Of a record that comes or goes, whatever else the certificate is about.
        np.minimum.reduce([account.full.limits(names, steps) for account in known]),
        np.minimum.reduce([account.limits(names, steps) for account in known]),
    )
    public = scene(plain, problem, graph, agent, steps)
    size = known[0].size if isinstance(known[0], SubsetAccount) else 1
    given = (
        _transcripts(plain, graph, agent, steps, problem.dimension),
        _throws(public.key, steps, size),
        public,
        jax.tree.map(jnp.asarray, limits),
    )
    moved, seen = np.zeros((steps, steps), bool), np.zeros(steps, bool)
    shift = empty = 0.0
    # The first record of a batch and the last have places that no other one has.
    for row in (0, int(problem.counts[agent]) - 1):
        pairs = _pairs(plain, problem, graph, agent, steps, row)
        both = jax.tree.map(
            lambda *parts: jnp.stack(parts),
            *[jax.tree.map(lambda a, b: jnp.stack([a, b]), *pair[:2]) for pair in pairs],
        )
        one = _thrown(both, *given, program=program(plain, problem))
        moved |= np.asarray(one.moved).any(axis=0)
        seen |= np.asarray(one.seen).any(axis=0)
        shift = max(shift, float(np.max(one.coin)), float(np.max(one.record)))
        # A subset has another record in the place of one that it leaves out.
        if isinstance(known[0], PoissonAccount):
            emptied = ["emptied" in pair.words for pair in pairs]
            empty = max(empty, float(np.max(np.asarray(one.coin)[emptied, 1], initial=0.0)))
    return Thrown(moved, seen, shift, empty)


def _pairs(
    algorithm: Algorithm, problem: Problem, graph: Graph, agent: int, steps: int, row: int
) -> list[Pair]:
    """Whatever the certificate is about, both kinds of record are worth a coin."""
    pairs = candidates(algorithm, problem, graph, agent, steps, row=row)
    if problem.adjacency != ZERO_OUT:
        pairs += candidates(algorithm, problem.under(ZERO_OUT), graph, agent, steps, row=row)
    return pairs


class _Found(NamedTuple):
    """Of one pair, by whatever transcript (see `Thrown`); lengths are over what is allowed.

    Args:
      moved, seen: see there.
      coin: how far a coin moves a message, of either record.
      record: how far the two are apart.
    """

    moved: jax.Array
    seen: jax.Array
    coin: jax.Array
    record: jax.Array


@partial(jax.jit, static_argnames="program")
def _thrown(
    pairs: Records,
    transcripts: Transcript,
    throws: Throws,
    scene: Scene,
    limits: Limits,
    *,
    program: Program,
) -> _Found:
    """Of every pair (a leading axis)."""
    count = len(scene.steps)
    turns = jnp.eye(count, dtype=bool)

    def one(two: Records, row: jax.Array, transcript: Transcript, throws: Throws) -> _Found:
        here, places = scene._replace(key=throws.keys), throws.places
        draws = coin_draws(program.algorithm, scene, throws.keys, throws.public)

        def values(records: Records, inside: jax.Array) -> tuple[tuple, tuple]:
            coins = decided(program, here, records, row, inside, places)
            return follow(program, here, records, transcript, draws, coins)

        # As they fell, with one of them turned, and none fallen.
        fell = throws.own[None]
        own = jnp.concatenate([fell, fell ^ turns, jnp.zeros_like(fell)])
        over_own = jax.vmap(values, in_axes=(None, 0))
        found, scales = jax.vmap(over_own, in_axes=(0, None))(two, own)
        moved, seen = jnp.zeros((count, count), bool), jnp.zeros(count, bool)
        coin, record = jnp.zeros(2), jnp.zeros(())
        for field, (value, scale) in enumerate(zip(found, scales, strict=True)):
            # (which of the two, own coins, message, number).
            flat, units = (x.reshape(2, count + 2, count, -1) for x in (value, scale))
            moved |= jnp.any(flat[:, 1:-1] != flat[:, :1], axis=(0, 3))
            seen |= jnp.any(flat[0, -1] != flat[1, -1], axis=-1)
            turned = _lengths(flat[:, 1:-1], flat[:, :1], units[:, :1], limits.coin[field])
            coin = jnp.maximum(coin, jnp.max(turned, axis=(1, 2)))
            apart = _lengths(flat[0], flat[1], units[0], limits.record[field])
            record = jnp.maximum(record, jnp.max(apart))
        return _Found(moved, seen, coin, record)

    def pair(two: Records) -> _Found:
        row = changed_row(*(jax.tree.map(lambda x, i=i: x[i], two) for i in (0, 1)))
        each = jax.vmap(one, in_axes=(None, None, 0, 0))(two, row, transcripts, throws)
        return jax.tree.map(lambda x: jnp.max(x, axis=0), each)

    return jax.vmap(pair)(pairs)


def _lengths(one: jax.Array, other: jax.Array, scale: jax.Array, limit: jax.Array) -> jax.Array:
    """(..., message): how far apart messages are, over what is allowed."""
    length = jnp.sqrt(jnp.sum(in_units(one, other, scale)[0] ** 2, axis=-1))
    return jnp.where(length == 0, 0.0, length / limit.reshape(*(1,) * (length.ndim - 1), -1))


def _throws(key: jax.Array, steps: int, size: int) -> Throws:
    """In the first transcript no coin falls but the one that is turned."""
    rng = np.random.default_rng(0)
    own = rng.integers(0, 2, (_TRANSCRIPTS, steps)) > 0
    own[0] = False
    return Throws(
        jax.random.split(key, _TRANSCRIPTS),
        jnp.arange(_TRANSCRIPTS) % 2 > 0,
        jnp.asarray(own),
        jnp.asarray(rng.integers(0, size, (_TRANSCRIPTS, steps)), jnp.int32),
    )


def _transcripts(
    algorithm: Algorithm, graph: Graph, agent: int, steps: int, dimension: int
) -> Transcript:
    """Random ones; public coins are up, and everybody is heard."""
    names, coins = list(algorithm.channels), set(algorithm.coins)
    plain = random_transcripts(0, _TRANSCRIPTS, steps, len(names), dimension, 1.5)
    up, weight = jnp.ones((_TRANSCRIPTS, steps)), float(graph.row_sums[agent])
    return Transcript(
        tuple(up if n in coins else p for n, p in zip(names, plain.sent, strict=True)),
        tuple(weight * up if n in coins else p for n, p in zip(names, plain.heard, strict=True)),
    )


# The contract: see checking.py.

_SAMPLERS: tuple[Sampling, ...] = (Poisson(0.5), Subset(SampleSize(Constant(3.0))))
_LOSS = Squared(1.0, 0.1, label_bound=2.0)


def claimed(one: Subject, thorough: bool = True) -> str:
    """Where an algorithm declares that it amplifies, coins are alone and do what they may."""
    algorithm = one.algorithm
    if not algorithm.amplifies:
        raise NotDone("it does not claim that secret batches cost less")
    if not algorithm.law.amplifies or algorithm.factors is not None:
        raise NotDone("with this noise secret batches do not cost less")
    worst, tried = 0.0, 0
    worlds = [(s, a, BLOCK) for s in _SAMPLERS for a in (ZERO_OUT, REPLACE)]
    worlds.append((_SAMPLERS[0], REPLACE, 2))
    for sampling, adjacency, block in worlds if thorough else worlds[:1]:
        found = among(replace(algorithm, sampling=sampling), 4)
        problem = small(adjacency, 2, block)
        graph = _graph(found, problem)
        try:
            seen = throw(found, problem, graph, agent=_AGENT)
        except (AttributeError, TypeError):
            # It may need all records of a batch at once.
            if block == BLOCK:
                raise
            continue
        if not seen.holds:
            raise Broken(
                f"it declares amplifies = True, and must not: {seen.words} ({sampling}, a record is"
                f" changed by {adjacency})"
            )
        if not seen.moved.any():
            raise Broken("no coin ever moved a message: throwing them shows nothing")
        worst, tried = max(worst, seen.shift), tried + 1
    return f"{tried} small worlds; largest move of a coin / allowed {worst:.4f}"


@require.plain_arguments
def small(adjacency: str, dimension: int = 1, block: int = BLOCK) -> Problem:
    """Ridge regression of four agents, which hold so few records that every batch there may be is
    drawn, an empty one, too.
    """
    rng = np.random.default_rng(0)
    features = rng.uniform(-1, 1, (4, _HELD, dimension)) / math.sqrt(dimension)
    labels, counts = rng.uniform(-2, 2, (4, _HELD)), np.full(4, _HELD)
    return Problem(
        "small",
        _LOSS,
        Ball(4.0),
        (dimension,),
        counts,
        Arrivals(1, 0, block),
        records=Held(features, labels, counts),
        test_features=features[0],
        test_labels=labels[0],
        classification=False,
        adjacency=adjacency,
    )


def _graph(algorithm: Algorithm, problem: Problem) -> Graph:
    """The first of two that it takes."""
    for graph in (star(4), ring(4)):
        try:
            algorithm.check(graph, problem.task)
        except ValueError as error:
            why = str(error)
            continue
        return graph
    raise Broken(f"it runs on no small problem with secret batches: {why}")
