"""What an amplified certificate takes for granted, held against the code.

An account of secret batches (privacy/sampled.py) says that every message is a mixture by one coin:
given the transcript and the coins of all other records it has one value with the record in its
batch and one without, no further apart than the account's shift; and no other message knows that
coin. So one coin is thrown by hand, in one step at a time, along random transcripts:

    one message     a coin moves one message at most, and no message is moved by the coins of two
                    steps; all others stay equal to the last bit. A private state that is carried
                    on (momentum of gradients before their noise) shows here
    shift           the message moves no further than the account allows
    empty record    one that is emptied keeps its coin and its slot: whether it is in a batch must
                    not show. A batch that is divided by the number drawn, or a size that is
                    sent along, shows here

No chance is involved: a finding is a counterexample, none is no proof.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

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
    decided,
    follow,
    scene,
    silent_draws,
)
from hearsay.audit.pairs import candidates
from hearsay.base import Algorithm
from hearsay.certification.describing import own_amplified
from hearsay.graphs import Graph, ring, star
from hearsay.mechanisms.mechanism import in_units
from hearsay.privacy.adjacency import REPLACE, ZERO_OUT
from hearsay.privacy.sampled import PoissonAccount, SampledAccount
from hearsay.problems import Ball, Problem, Squared
from hearsay.problems.data.records import Records as Held
from hearsay.problems.sampling.samplers import Arrivals, Poisson, Records, Sampling, Subset
from hearsay.schedules import Constant, SampleSize
from hearsay.simulation.program import Program, program

# What float64 may add to a ratio of 1, or leave of a difference of 0.
_EXACT = 1e-9
_STEPS, _AGENT, _HELD, _TRANSCRIPTS = 5, 1, 8, 20


@dataclass(frozen=True, eq=False)
class Thrown:
    """What throwing one coin at a time showed.

    Args:
      moved: (step of the coin, message): whether it moved that message by so much as a bit.
      shift: the largest move over what the account allows.
      empty: the largest move that the coin of an empty record made, over the same.
    """

    moved: np.ndarray
    shift: float
    empty: float

    @property
    def alone(self) -> bool:
        """Every coin has a message of its own."""
        return bool(np.all(self.moved.sum(axis=0) <= 1) and np.all(self.moved.sum(axis=1) <= 1))

    @property
    def holds(self) -> bool:
        return self.alone and self.shift <= 1 + _EXACT and self.empty <= _EXACT

    @property
    def words(self) -> str:
        """What is wrong first."""
        found = f"largest move of a coin / allowed {self.shift:.4f}"
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


@require.plain_arguments
def throw(
    algorithm: Algorithm, problem: Problem, graph: Graph, *, agent: int = 0, steps: int = _STEPS
) -> Thrown:
    """One coin of one record thrown by hand in each of the steps, along random transcripts.

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
    # Of a record that comes or goes, whatever else the certificate is about.
    limit = np.minimum.reduce([account.full.limits(names, steps) for account in known])
    pairs = candidates(plain, problem, graph, agent, steps)
    # Whatever the certificate is about, both kinds of record are worth a coin.
    if problem.adjacency != ZERO_OUT:
        pairs += candidates(plain, problem.under(ZERO_OUT), graph, agent, steps)
    both = jax.tree.map(
        lambda *parts: jnp.stack(parts),
        *[jax.tree.map(lambda a, b: jnp.stack([a, b]), *pair[:2]) for pair in pairs],
    )
    moved, ratios = _thrown(
        both,
        _transcripts(plain, graph, agent, steps, problem.dimension),
        scene(plain, problem, graph, agent, steps),
        jnp.asarray(limit),
        program=program(plain, problem),
    )
    # (pair, which of the two, step of the coin).
    shifts = np.asarray(ratios)
    emptied = ["emptied" in pair.words for pair in pairs]
    # A subset has another record in the place of one that it leaves out.
    kept = isinstance(known[0], PoissonAccount)
    empty = float(shifts[emptied, 1].max(initial=0.0)) if kept else 0.0
    return Thrown(np.asarray(moved), float(shifts.max()), empty)


@partial(jax.jit, static_argnames="program")
def _thrown(
    pairs: Records, transcripts: Transcript, scene: Scene, limit: jax.Array, *, program: Program
) -> tuple[jax.Array, jax.Array]:
    """((step, message): moved, by whatever pair and transcript; (pair, side, step): the largest
    move over what is allowed).
    """
    draws, count = silent_draws(program.algorithm, scene), len(scene.steps)

    def one(records: Records, row: jax.Array, transcript: Transcript) -> tuple:
        def values(inside: jax.Array) -> tuple[tuple, tuple]:
            coins = decided(program, scene, records, row, inside)
            return follow(program, scene, records, transcript, draws, coins)

        # The first has the record in no batch; then in one batch each.
        found, scales = jax.vmap(values)(jnp.eye(count + 1, count, k=-1) > 0)
        moved, ratios = jnp.zeros((count, count), bool), jnp.zeros(count)
        for field, (value, scale) in enumerate(zip(found, scales, strict=True)):
            flat = value.reshape(count + 1, count, -1)
            moved |= jnp.any(flat[1:] != flat[:1], axis=-1)
            units = in_units(value[1:], value[:1], scale[:1])[0].reshape(count, count, -1)
            length = jnp.sqrt(jnp.sum(units**2, axis=-1))
            each = jnp.where(length == 0, 0.0, length / limit[field][None])
            ratios = jnp.maximum(ratios, jnp.max(each, axis=1))
        return moved, ratios

    def pair(two: Records) -> tuple[jax.Array, jax.Array]:
        row = changed_row(*(jax.tree.map(lambda x, i=i: x[i], two) for i in (0, 1)))
        over = jax.vmap(one, in_axes=(None, None, 0))
        moved, ratios = jax.vmap(lambda records: over(records, row, transcripts))(two)
        return jnp.any(moved, axis=(0, 1)), jnp.max(ratios, axis=1)

    moved, ratios = jax.vmap(pair)(pairs)
    return jnp.any(moved, axis=0), ratios


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
    worlds = [(s, a) for s in _SAMPLERS for a in (ZERO_OUT, REPLACE)]
    for sampling, adjacency in worlds if thorough else worlds[:1]:
        found, problem = among(replace(algorithm, sampling=sampling), 4), small(adjacency)
        graph = _graph(found, problem)
        seen = throw(found, problem, graph, agent=_AGENT)
        if not seen.holds:
            raise Broken(
                f"it declares amplifies = True, and must not: {seen.words} ({sampling}, a record is"
                f" changed by {adjacency})"
            )
        if not seen.moved.any():
            raise Broken("no coin ever moved a message: throwing them shows nothing")
        worst, tried = max(worst, seen.shift), tried + 1
    return f"{tried} samplers and adjacencies; largest move of a coin / allowed {worst:.4f}"


def small(adjacency: str) -> Problem:
    """Scalar ridge regression of four agents."""
    rng = np.random.default_rng(0)
    features = rng.uniform(-1, 1, (4, _HELD, 1))
    labels, counts = rng.uniform(-2, 2, (4, _HELD)), np.full(4, _HELD)
    return Problem(
        "small",
        _LOSS,
        Ball(4.0),
        (1,),
        counts,
        Arrivals(1, 0),
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
