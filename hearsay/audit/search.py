"""Look for adjacent data sets and a transcript that bring an agent's messages as far apart as its
certificate allows.

Everything that a certificate quantifies over is a variable here: all records of the agent, the
record that replaces one of them, and the whole transcript (what the agent sent, noise included, and
what it heard). From structured and random starts the gap of one message,

    ratio(field, k) = |difference of the messages k| / noise scale
                      over  (state Phi(k) + fresh c_k [used]) / b_k     (privacy/recursion.py)

climbs along the signs of its differences, and records are put back into their admissible set
(features in the ball of the loss's bound, labels in their range) after every step. Under zero-out
adjacency the other record is empty, which is one without features, and stays so. Each start has a
message of its own to push; one start in every kind pushes the whole budget (l1 gaps over scales, or
half the squares of l2 ones for Gaussian noise). A ratio above 1 disproves the certificate, whatever
the reason: a wrong coefficient, too little noise, a record used too often. A ratio near 1 says that
the certificate is not loose.

Which way is up is seen by nudging one coordinate after the other: batches that grow are loops
of data-dependent length, which have no reverse mode, and the sign of a difference is all
that is needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from hearsay import _validate as require
from hearsay.audit.brute_force import allowed
from hearsay.audit.messages import (
    Scene,
    Transcript,
    bare,
    follow,
    membership,
    scene,
    silent_draws,
    whitener,
)
from hearsay.audit.pairs import costliest_row, label_range
from hearsay.base import Algorithm
from hearsay.certification import spent_after
from hearsay.graphs import Graph
from hearsay.privacy.adjacency import ZERO_OUT
from hearsay.problems.losses.domains import shortened
from hearsay.problems.losses.loss import BoundedLoss
from hearsay.problems.losses.softmax import Softmax
from hearsay.problems.sampling.samplers import Records
from hearsay.problems.task import Task, public
from hearsay.simulation.engine import full_precision
from hearsay.simulation.program import Program, program

# Coordinates that one step of the climb looks along; more variables than that take turns.
_DIRECTIONS = 128
_NUDGE = 1e-6  # of a variable's range: enough in float64 to see which way is up
_KINDS = 6
_BYTES = 2**28  # of nudged variables at once


class Variables(NamedTuple):
    """What is searched over: the agent's records, the record that takes the place of one of them,
    and the transcript.
    """

    features: jax.Array
    labels: jax.Array
    other_feature: jax.Array
    other_label: jax.Array
    transcript: Transcript


@dataclass(frozen=True, eq=False)
class Found:
    """ratio (field, time): the largest gap found over the certified one; total:
    the same for the whole budget; pair and transcript: what reached it.
    """

    ratio: np.ndarray
    total: float
    allowed: np.ndarray
    row: int
    pair: tuple[Records, Records]
    transcript: Transcript

    @property
    def worst(self) -> float:
        return max(self.total, float(self.ratio.max()))

    @property
    def tightness(self) -> float:
        """The smallest ratio among the messages that may move at all."""
        return float(self.ratio[self.allowed > 0].min())


@require.plain_arguments
def search(
    algorithm: Algorithm,
    problem: Task,
    graph: Graph,
    *,
    agent: int = 0,
    steps: int = 10,
    starts: int = 1,
    iterations: int = 25,
    seed: int = 0,
) -> Found:
    """The worst found for that agent over messages 0 .. steps-1.

    Args:
      starts: searches per message and kind of start (six kinds).
      iterations: points on every climb; 1 leaves the starts as they are.
    """
    require.count("steps", steps)
    require.count("starts", starts)
    require.count("iterations", iterations)
    problem = public(problem)
    if rule := unsearchable(problem):
        require.fail("problem", rule, problem.name)
    algorithm.check(graph, problem)
    plain = bare(algorithm)
    limit = allowed(plain, problem, graph, agent, steps)
    budget = float(spent_after(plain, problem, graph, [steps])[0, agent])
    targets = [*zip(*np.nonzero(limit), strict=True), (0, -1)]
    weights = membership(plain, problem, graph, agent, steps)
    used = np.flatnonzero(weights.any(axis=0))  # what no step looks at changes nothing
    rows = [costliest_row(plain, problem, graph, agent, weights, int(k)) for _, k in targets]
    repeated = [(t, r) for t, r in zip(targets, rows, strict=True) for _ in range(_KINDS * starts)]
    rng = np.random.default_rng([seed, *b"search"])
    begin = _starts(plain, problem, graph, agent, steps, (len(repeated), len(used)), rng)
    ranges = _ranges(plain, problem, begin)
    held = Held(_blank(problem, agent), jnp.asarray(used))
    limits = Limits(
        jnp.asarray(limit), jnp.asarray(budget), jnp.asarray(whitener(plain, steps)), held
    )
    nudged = 8 * (_DIRECTIONS + 1) * sum(part[0].size for part in jax.tree.leaves(begin))
    outcome = _climb(
        begin,
        jnp.asarray([t for t, _ in repeated]),
        jnp.asarray([r for _, r in repeated]),
        ranges,
        _turns(ranges, iterations, rng),
        scene(plain, problem, graph, agent, steps),
        limits,
        program=program(plain, problem),
        together=max(1, min(len(repeated), _BYTES // nudged)),
    )
    ratios, totals, best = (jax.tree.map(np.asarray, part) for part in outcome)
    place = int(np.argmax(totals))
    reached: Variables = jax.tree.map(lambda x: jnp.asarray(x[place]), best)
    if label_range(_bounded(problem))[0] == 0:  # classes; on the way they may lie between
        reached = reached._replace(
            labels=jnp.round(reached.labels), other_label=jnp.round(reached.other_label)
        )
    row = repeated[place][1]
    return Found(
        ratios.max(axis=0), float(totals.max()), limit, row, *_neighbours(reached, row, held)
    )


def unsearchable(problem: Task) -> str:
    """Why there is nothing to search over, if so."""
    loss = problem.loss
    known = (
        isinstance(loss, BoundedLoss) and np.isfinite(loss.feature_bound) and not problem.declared
    )
    if not problem.endless and known:
        return ""
    return (
        "a linear model's, with a data set and a bound on its features: only then is it known which"
        " records there may be"
    )


def _bounded(problem: Task) -> BoundedLoss:
    assert isinstance(problem.loss, BoundedLoss)
    return problem.loss


def _starts(
    algorithm: Algorithm,
    problem: Task,
    graph: Graph,
    agent: int,
    steps: int,
    sizes: tuple[int, int],
    rng: np.random.Generator,
) -> Variables:
    """Six kinds in turn.

    The other records have no features (they contract least), or full ones along one line (most),
    or anything; the two records are opposite in their labels, or in their features, or one of
    them has none.
    """
    loss, d, (count, rows) = _bounded(problem), problem.dimension, sizes
    (low, top), width = label_range(loss), problem.shape[-1]
    kind = np.arange(count) % _KINDS
    line = rng.normal(size=(count, width))
    line[::2] = np.sign(line[::2])  # equal coordinates are the costliest in l1
    line *= loss.feature_bound / np.linalg.norm(line, axis=1, keepdims=True)
    others = rng.normal(size=(count, rows, width))
    others *= loss.feature_bound / np.linalg.norm(others, axis=2, keepdims=True)
    size = np.select([kind <= 1, kind == 5], [0.0, rng.uniform(size=count)], 1.0)[:, None, None]
    others = size * np.where((kind == 5)[:, None, None], others, line[:, None, :])
    # A class is one from start to end: which it is called is no matter, since models may be any.
    between = low if isinstance(loss, Softmax) else 0.5 * (low + top)
    labels = np.where((kind <= 1)[:, None], between, rng.choice([low, top], (count, rows)))
    turn = np.select([kind == 1, (kind == 3) | (kind == 4)], [-1.0, 0.0], 1.0)[:, None]
    turn = 0.0 * turn if problem.adjacency == ZERO_OUT else turn
    other_label = np.where((kind == 1) | (kind == 4), top, low)
    wide = np.select([kind <= 2, kind <= 4], [0.01, 1.0], rng.uniform(size=count))
    reach = min(problem.domain.reach(d), 10.0) * wide[:, None, None]

    def walk(name: str, total: float) -> jax.Array:
        if name in algorithm.coins:
            return jnp.full((count, steps), total)
        return jnp.asarray(
            reach * rng.choice([-1.0, 1.0], (count, 1, 1)) * rng.uniform(0.5, 1, (count, steps, d))
        )

    names, weight = list(algorithm.channels), float(graph.row_sums[agent])
    transcript = Transcript(
        tuple(walk(n, 1.0) for n in names), tuple(walk(n, weight) for n in names)
    )
    # The record that will be replaced comes last; _neighbours puts it in its place.
    replaced = np.concatenate([others, line[:, None, :]], axis=1)
    marked = np.concatenate([labels, np.full((count, 1), top)], axis=1)
    own, other = (jnp.asarray(p, problem.dtype) for p in (replaced, turn * line))
    return Variables(own, jnp.asarray(marked), other, jnp.asarray(other_label), transcript)


def _ranges(algorithm: Algorithm, problem: Task, begin: Variables) -> Variables:
    """How far one unit of a climb moves each variable; coins stay."""
    loss = _bounded(problem)
    low, top = label_range(loss)
    labels = 0.0 if isinstance(loss, Softmax) else top - low
    reach = min(problem.domain.reach(problem.dimension), 10.0)
    steps = [0.0 if name in algorithm.coins else reach for name in algorithm.channels]
    walk = tuple(
        jnp.full_like(part[0], size)
        for part, size in zip(begin.transcript.sent, steps, strict=True)
    )
    free = 0.0 if problem.adjacency == ZERO_OUT else 1.0  # the record in the place of one of them
    sizes = (loss.feature_bound, labels, free * loss.feature_bound, free * labels)
    records = [jnp.full_like(part[0], size) for part, size in zip(begin[:4], sizes, strict=True)]
    return Variables(records[0], records[1], records[2], records[3], Transcript(walk, walk))


def _turns(ranges: Variables, iterations: int, rng: np.random.Generator) -> jax.Array:
    """(iteration, direction): the coordinates that each step looks along,
    of those that may move.
    """
    free = np.flatnonzero(np.asarray(ravel_pytree(ranges)[0]))
    return jnp.asarray([rng.permutation(free)[:_DIRECTIONS] for _ in range(iterations)])


class Held(NamedTuple):
    """Blank records, as many as the agent has, and the rows that the search fills in."""

    own: Records
    used: jax.Array


def _blank(task: Task, agent: int) -> Records:
    held = jnp.asarray(task.counts[agent], jnp.int32)
    features = jnp.zeros((task.most, *task.shape), task.dtype)
    return Records(features, jnp.zeros(task.most, task.dtype), held)


def _neighbours(
    found: Variables, row: Any, held: Held
) -> tuple[tuple[Records, Records], Transcript]:
    """Two data sets that differ in that row."""
    own = held.own
    features, labels = (
        own.features.at[held.used].set(found.features[:-1]),
        own.labels.at[held.used].set(found.labels[:-1]),
    )
    first = Records(
        features.at[row].set(found.features[-1]), labels.at[row].set(found.labels[-1]), own.held
    )
    second = Records(
        features.at[row].set(found.other_feature), labels.at[row].set(found.other_label), own.held
    )
    return (first, second), found.transcript


class Limits(NamedTuple):
    """The certified gaps in units of noise (field, time), the certified budget,
    what makes noise independent, and what the agent holds.
    """

    each: jax.Array
    total: jax.Array
    white: jax.Array
    held: Held


def _measure(
    program: Program, scene: Scene, limits: Limits, variables: Variables, row: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """(ratio of every message, ratio of the whole budget)."""
    draws, (pair, transcript) = (
        silent_draws(program.algorithm, scene),
        _neighbours(variables, row, limits.held),
    )
    both = jax.tree.map(lambda *parts: jnp.stack(parts), *pair)
    values, scales = jax.vmap(lambda records: follow(program, scene, records, transcript, draws))(
        both
    )
    moved = [
        over(v[0] - v[1], s[0]).reshape(v.shape[1], -1) for v, s in zip(values, scales, strict=True)
    ]
    l2 = jnp.stack([jnp.sqrt(jnp.sum(m**2, axis=1)) for m in moved])
    total = sum(program.algorithm.law.energy(m, limits.white) for m in moved)
    return jnp.where(l2 == 0, 0.0, l2 / limits.each), jnp.asarray(total / limits.total)


def _admissible(loss: BoundedLoss, found: Variables) -> Variables:
    """Records put back where records may be; a transcript may be anything."""
    low, top = label_range(loss)

    labels, other = jnp.clip(found.labels, low, top), jnp.clip(found.other_label, low, top)
    features, other_feature = (
        shortened(part, loss.feature_bound) for part in (found.features, found.other_feature)
    )
    return Variables(features, labels, other_feature, other, found.transcript)


@partial(jax.jit, static_argnames=("program", "together"))
@full_precision
def _climb(
    begin: Variables,
    targets: jax.Array,
    rows: jax.Array,
    ranges: Variables,
    along: jax.Array,
    scene: Scene,
    limits: Limits,
    *,
    program: Program,
    together: int,
) -> tuple[jax.Array, jax.Array, Variables]:
    """(ratios (start, field, time), totals (start,), the variables that were best for each start's
    target): the largest on the way.
    """
    (reach, unravel), iterations = ravel_pytree(ranges), len(along)
    loss = program.loss
    assert isinstance(loss, BoundedLoss)

    def inside(flat: jax.Array) -> jax.Array:
        return ravel_pytree(_admissible(loss, unravel(flat)))[0]

    def climb(flat: jax.Array, row: jax.Array, target: jax.Array) -> tuple:
        def step(carry: tuple, inputs: tuple) -> tuple[tuple, None]:
            flat, best, reached, ratios, totals = carry
            rate, along = inputs
            nowhere = jnp.zeros((len(along) + 1, len(flat)), flat.dtype)
            nudges = nowhere.at[1 + jnp.arange(len(along)), along].set(reach[along])
            found, total = jax.vmap(lambda f: _measure(program, scene, limits, unravel(f), row))(
                flat[None] + _NUDGE * nudges
            )
            goals = jnp.where(target[1] < 0, total, found[:, target[0], target[1]])
            # Nudged points may lie just outside the admissible set: only the first one counts.
            kept = jnp.where(goals[0] > reached, flat, best), jnp.maximum(goals[0], reached)
            most = jnp.fmax(found[0], ratios), jnp.fmax(total[0], totals)
            move = jnp.zeros_like(flat).at[along].set(jnp.sign(goals[1:] - goals[0]))
            return (inside(flat + rate * reach * move), *kept, *most), None

        rates = 0.5 * 0.02 ** (jnp.arange(iterations) / iterations)
        first = (inside(flat), flat, -jnp.inf, jnp.zeros_like(limits.each), jnp.zeros(()))
        (_, best, _, ratios, totals), _ = jax.lax.scan(step, first, (rates, along))
        return ratios, totals, unravel(best)

    flat = jax.vmap(lambda v: ravel_pytree(v)[0])(begin)
    if together == len(flat):
        return jax.vmap(climb)(flat, rows, targets)
    return jax.lax.map(lambda start: climb(*start), (flat, rows, targets), batch_size=together)


def over(gap: jax.Array, scale: jax.Array) -> jax.Array:
    """gap / scale, 0 where nothing moved by more than rounding: a message without noise may say
    what does not depend on the data, to the last bit.
    """
    still = jnp.abs(gap) <= jnp.minimum(1e-13, 1e-6 * jnp.abs(scale))
    return jnp.where(still, 0.0, gap / jnp.where(still, 1.0, scale))
