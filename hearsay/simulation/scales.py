"""What an algorithm sends, held against the noise that its `releases` declare, before a run begins.

A certificate counts the scale of every release; the noise that a message gets has the scale that
`prepare` returns. For hearsay's own algorithms tests hold the two together, for a class from
outside nobody has. So, for all of a run's steps and agents:

    the scale may follow from   rates, and parts of the state that nothing else enters
    it must be at least         what the release declares, in every coordinate

What a value depends on is asked of jax: one agent's round is vectorised over everything that is
private or not known beforehand (records, batch, draws, what is heard, the rest of the state), and
what comes out without that axis does not depend on it. Then only the scales are computed, for
blocks of steps, apart from the loop that runs: no trajectory and no compiled program changes.

Where the noise of an earlier step shows (a release with a delay) public coins may have a say, the
factor between the two is the algorithm's own, and only the first half is held (`hearsay
check-algorithm` measures the second). Deployed agents compare every message (deploy/privatize.py).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hearsay import _validate as require
from hearsay.base import Algorithm, Inbox, Private
from hearsay.certification.kinds import kinds
from hearsay.graphs import Graph
from hearsay.problems.problem import Problem
from hearsay.simulation import keys
from hearsay.simulation.program import Program, held_rates, program

# Numbers per block of steps.
_BLOCK = 2**20
# By how much, relatively, a scale may be off: rates are rounded to the run's precision.
_ROUNDINGS = 8


class Unknown(NamedTuple):
    """What of one agent's round is private, or not known beforehand."""

    state: Any
    sampler: Any
    records: Any
    window: Any
    step: Any
    key: Any
    draws: Any
    inbox: Inbox


@require.plain_arguments
def require_declared(algorithm: Algorithm, problem: Problem, graph: Graph, steps: int) -> None:
    """Raise ValueError where a message of those steps would get less noise than is declared, or
    noise of a scale that the declaration cannot be held against.
    """
    run, unknown = program(algorithm, problem), _unknown(algorithm, problem)
    releases = {r.name: r for r in algorithm.releases(0, (0.0, 0.0))}
    rate = _one_rate(algorithm, problem)
    late = [name for name, release in releases.items() if release.delay]
    _known(run, unknown, rate, late, coins=True)
    prompt = [name for name in releases if name not in late]
    known = _known(run, unknown, rate, prompt, coins=False)
    if not prompt:
        return
    columns = held_rates(algorithm, np.arange(1), problem.agents, problem.dtype, once=True)
    width = max(len(column[0]) for column in columns)
    needed = _declared(algorithm, problem, graph, width)
    margin = 1 - _ROUNDINGS * float(jnp.finfo(problem.dtype).eps)
    state = jax.tree.map(lambda x: jnp.broadcast_to(x, (width, *x.shape)), unknown.state)
    block = max(1, _BLOCK // width)
    for first in range(0, steps, block):
        k = np.arange(first, min(first + block, steps))
        rates = held_rates(algorithm, k, problem.agents, problem.dtype, once=True)
        rates = jax.tree.map(lambda r: np.broadcast_to(r, (len(r), width)), rates)
        found, state = _scales(rates, state, unknown, run=run, known=known)
        for name, scale in zip(algorithm.channels, found, strict=True):
            if name not in prompt:
                continue
            least, certified = np.asarray(scale, np.float64), needed(name, k)
            short = ~(least >= certified * margin)
            if short.any():
                row, agent = np.argwhere(short)[0].tolist()
                raise ValueError(
                    f"the scale of the noise of {name} must be at least the"
                    f" {float(certified[row, agent])!r} that releases of {algorithm.name} declare"
                    f" (round {k[row]}, agent {agent}), got {float(least[row, agent])!r}"
                    " from prepare"
                )


def _unknown(algorithm: Algorithm, problem: Problem) -> Unknown:
    """Of agent 0, at the start: what is of importance are shapes, and the state's constants."""
    sampling, dtype, run = algorithm.sampling, problem.dtype, program(algorithm, problem)
    records = problem.records.of(0).placed(dtype)
    windows = sampling.windows(np.arange(1), problem.counts[:1], problem.arrivals)
    state, model = run.start(jnp.asarray(problem.first_models[0], dtype))
    sampler = jax.eval_shape(run.sampler, records)
    own = jax.random.key(0, impl="threefry2x32")
    draws = jax.eval_shape(
        lambda: algorithm.draws(
            keys.stand_in(algorithm.keys, own), jnp.arange(1), model, algorithm.constants(dtype)
        )
    )
    draws = jax.tree.map(lambda x: jnp.zeros(x.shape[1:], x.dtype), draws)
    message = algorithm.message(*(jnp.zeros_like(model) for _ in algorithm.channels))
    return Unknown(
        state,
        jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), sampler),
        records,
        jax.tree.map(lambda x: jnp.asarray(x).ravel()[0], windows),
        jnp.asarray(0, jnp.int32),
        own,
        draws,
        Inbox(message, algorithm.message(*(jnp.zeros((), dtype) for _ in algorithm.channels))),
    )


def _round(
    run: Program, state: Any, unknown: Unknown, rates: Any
) -> tuple[list[jax.Array], list[jax.Array]]:
    """(the scales of one agent's message, the leaves of its next state)."""
    algorithm, window = run.algorithm, unknown.window
    batch, _ = run.batch(
        unknown.step,
        window.blocks,
        unknown.sampler,
        unknown.records,
        window.start,
        window.size,
        unknown.key,
    )
    fields, after = prepared(algorithm, state, batch, rates)
    scales = [jnp.asarray(part.scale) for part in fields]
    sent, after = algorithm.finish(
        type(fields)(*(part.value for part in fields)), unknown.draws, after
    )
    after = algorithm.update(after, sent, unknown.inbox, batch, rates, run.domain)
    given, got = (jax.tree.map(jnp.shape, part) for part in (state, after))
    if given != got or type(state) is not type(after):
        raise ValueError(
            f"update of {algorithm.name} must return a state of the same type and shape as it is"
            f" given, {given}, got {got}"
        )
    return scales, jax.tree.leaves(after)


def prepared(algorithm: Algorithm, state: Any, batch: Any, rates: Any) -> tuple[Any, Any]:
    """What `prepare` returns, if it is what the contract says."""
    found = algorithm.prepare(state, batch, rates)
    if not isinstance(found, tuple) or len(found) != 2 or isinstance(found[0], Private):
        raise ValueError(
            f"prepare of {algorithm.name} must return (message, state), got {type(found).__name__}"
        )
    for name, part in zip(algorithm.channels, found[0], strict=False):
        if not isinstance(part, Private):
            raise ValueError(
                f"prepare of {algorithm.name} must return Private(value, scale) for {name}, got"
                f" {type(part).__name__}"
            )
    return found


def _known(
    run: Program, unknown: Unknown, rate: Any, fields: list[str], *, coins: bool
) -> tuple[int, ...]:
    """Which leaves of the state the scales of those fields follow from, beside the rates.

    Args:
      coins: public coins count as known, too.
    """
    algorithm, follows = run.algorithm, partial(_follows, run, unknown, rate, coins)
    places = [list(algorithm.channels).index(name) for name in fields]

    def held(known: tuple[int, ...]) -> list[int]:
        """The places that do not follow from them."""
        return [at for at in places if not follows(known, lambda scales, _, at=at: scales[at])]

    if not held(()):
        return ()
    known = _entered_by_nothing(run, unknown, follows)
    for place in held(known):
        raise ValueError(
            f"the scale of the noise of {list(algorithm.channels)[place]} must follow from rates"
            f" alone in prepare of {algorithm.name}, or from parts of the state that nothing else"
            " enters, and depends on the model, the records or what is heard: its releases declare"
            " a schedule"
        )
    return known


def _entered_by_nothing(run: Program, unknown: Unknown, follows: Callable) -> tuple[int, ...]:
    """The leaves of the state that go on from rates and from one another alone."""
    point = jnp.zeros((2, *unknown.inbox.total[0].shape), unknown.inbox.total[0].dtype)
    known: tuple[int, ...] = tuple(
        leaf
        for leaf in range(len(jax.tree.leaves(unknown.state)))
        if independent(lambda x, leaf=leaf: jax.tree.leaves(run.algorithm.init(x))[leaf], point)
    )
    while known != (
        still := tuple(
            leaf for leaf in known if follows(known, lambda _, after, leaf=leaf: after[leaf])
        )
    ):
        known = still
    return known


def foreseen(algorithm: Algorithm, problem: Problem) -> tuple[int, ...]:
    """Which leaves of the state are the same whatever the data: those that nothing private and
    nothing heard enters, such as a count of rounds.
    """
    run, unknown = program(algorithm, problem), _unknown(algorithm, problem)
    return _entered_by_nothing(
        run, unknown, partial(_follows, run, unknown, _one_rate(algorithm, problem), True)
    )


def _one_rate(algorithm: Algorithm, problem: Problem) -> Any:
    """The rates of one agent and step, by shape and type."""
    columns = held_rates(algorithm, np.arange(1), problem.agents, problem.dtype, once=True)
    return jax.tree.map(lambda r: jax.ShapeDtypeStruct((), r.dtype), columns)


def _follows(
    run: Program,
    unknown: Unknown,
    rate: Any,
    coins: bool,
    known: tuple[int, ...],
    part: Callable,
) -> bool:
    """That part of a round follows from rates and those leaves of the state alone, and from coins
    if they count.
    """
    leaves, structure = jax.tree.flatten(unknown.state)
    rates = jax.tree.map(lambda r: jnp.zeros((), r.dtype), rate)
    public = set(run.algorithm.coins) if coins else set()

    def same(part: Any, fixed: Any) -> Any:
        """With the public coins among its fields as they are."""
        names = public & set(part._fields)
        return part._replace(**{name: getattr(fixed, name) for name in names})

    def one(others: Unknown) -> jax.Array:
        # All is vectorised over, but for what is known.
        mixed = [leaves[i] if i in known else leaf for i, leaf in enumerate(others.state)]
        inbox = Inbox(
            same(others.inbox.total, unknown.inbox.total),
            unknown.inbox.own if coins else others.inbox.own,
        )
        others = others._replace(draws=same(others.draws, unknown.draws), inbox=inbox)
        return part(*_round(run, jax.tree.unflatten(structure, mixed), others, rates))

    given = unknown._replace(state=leaves)
    return independent(one, jax.tree.map(lambda x: jnp.stack([x, x]), given))


def independent(function: Callable, given: Any) -> bool:
    """What the function gives does not depend on what it is vectorised over."""
    try:
        jax.eval_shape(jax.vmap(function, out_axes=None), given)
    except ValueError as error:
        if "out_axes" not in str(error):
            raise
        return False
    return True


@partial(jax.jit, static_argnames=("run", "known"))
def _scales(
    rates: Any, states: Any, unknown: Unknown, *, run: Program, known: tuple[int, ...]
) -> tuple[list[jax.Array], Any]:
    """(the least scale of every field in any coordinate (step, column), the states after them)."""
    structure = jax.tree.structure(unknown.state)

    def one(state: Any, rate: Any) -> tuple[Any, list[jax.Array]]:
        scales, after = _round(run, state, unknown, rate)
        start = jax.tree.leaves(unknown.state)
        kept = [leaf if i in known else start[i] for i, leaf in enumerate(after)]
        return jax.tree.unflatten(structure, kept), [jnp.min(scale) for scale in scales]

    every = jax.vmap(one)
    if not known:
        return jax.vmap(lambda rate: every(states, rate)[1])(rates), states
    states, found = jax.lax.scan(every, states, rates)
    return found, states


def _declared(
    algorithm: Algorithm, problem: Problem, graph: Graph, width: int
) -> Callable[[str, np.ndarray], np.ndarray]:
    """The declared scales of a field in those steps, (step, column): the largest of all agents
    where they share a column.
    """
    found = kinds(algorithm, problem.task, graph)
    each = [{r.name: r.scale for r in algorithm.releases(a, (0.0, 0.0))} for a in found.first]

    def needed(name: str, k: np.ndarray) -> np.ndarray:
        laws = {law: law(k) for law in {one[name] for one in each}}
        scales = np.stack([laws[one[name]] for one in each], axis=1)
        if width == 1:
            return scales.max(axis=1, keepdims=True)
        return found.each(scales)

    return needed
