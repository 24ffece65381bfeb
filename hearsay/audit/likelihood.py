"""How likely a transcript is under each of two data sets, for thousands of runs of the whole
network at once.

The rounds are the engine's own, with the keys of a simulation; its tap hands out what the audited
agent sent and heard. Its messages before noise are then worked out under both data sets
(messages.py), and two scores of the run follow: the log-likelihood ratio, and a search for noise
that was used twice (see distinguish.py).

**Secret batches** (`Poisson`, `Subset`) are drawn anew in every run. Where a certificate counts on
their secrecy, the auditor knows the coins of all other records (for a subset, their order), and not
the coin of the record in question. Message k is then a mixture: with v_out its value without the
record, v_in(D) with it, and q the chance that it is in a batch,

    p(sent_k | D) = (1 - q) p(sent_k | v_out) + q p(sent_k | v_in(D))

and, messages having no memory, the likelihood is the product over k. Where a certificate holds
whichever batches are drawn, the auditor knows all coins of a run.

**Shared noise** is drawn pair by pair, and the auditor is a coalition (coalitions.py): it takes off
what it knows from the keys of its members, and what it expects from the noise of all other agents.
What is left of the agent's own and shared noise is Gaussian again, around another point and with
another scale.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hearsay.algorithms import QuantizedDsgd
from hearsay.audit.coalitions import Left
from hearsay.audit.messages import (
    Scene,
    Transcript,
    bare,
    decided,
    follow,
    scene,
    whitener,
)
from hearsay.base import Algorithm
from hearsay.graphs import Graph
from hearsay.mechanisms.mechanism import in_units
from hearsay.problems.problem import Problem
from hearsay.problems.sampling.samplers import Records
from hearsay.simulation import engine, keys, shared
from hearsay.simulation.engine import Inputs, Round, Setting
from hearsay.simulation.program import Program, program

SCORES = ("likelihood ratio", "repeated noise")
_CHUNK, _BYTES = 250, 2**28  # runs at once
_SHARED_CHUNK = 1000  # the same where agents share noise
_MASKED = 64  # of so many pairs the unknown ones are drawn for nothing, in one program for all
_LAGS = 16  # how many messages back repeated noise is looked for


class Setup(NamedTuple):
    """Arrays of a network that stay the same from run to run; `scene` is the audited agent's."""

    setting: Setting
    inputs: Inputs
    centre: jax.Array
    scene: Scene
    white: jax.Array
    # The chance that a record is in a batch, if the auditor does not know whether it is.
    chance: jax.Array | None
    coalition: Coalition | None = None


class Coalition(NamedTuple):
    """What an auditor knows of noise that agents share: the pairs of its members, how the other
    honest agents' noise enters what it expects (agent,), and the scale of what is left.
    """

    theirs: shared.PairNoise
    weights: jax.Array
    spread: jax.Array


def runner(
    algorithm: Algorithm,
    problem: Problem,
    graph: Graph,
    agent: int,
    steps: int,
    each: int,
    *,
    secret: bool = False,
    against: Left | None = None,
) -> Callable[..., np.ndarray]:
    """run(held, first, second, seed, side, runs):
    scores (run, kind) of runs in which the agent holds `held`.

    Args:
      secret: the certificate counts on secret batches, so that the auditor does not know which of
        them hold the record in question.
      against: what a coalition leaves of the agent's noise, where agents share some.
    """
    plain, agents = bare(algorithm), graph.agents
    held = float(problem.counts[agent])
    chance = algorithm.sampling.inclusion(held, problem.arrivals) if secret else None
    setting = engine.surroundings(algorithm, problem, graph, [0], apart=True)
    setup = Setup(
        setting,
        engine.inputs(algorithm, problem, np.arange(steps)),
        jnp.asarray(problem.first_models, problem.dtype),
        scene(plain, problem, graph, agent, steps),
        jnp.asarray(whitener(plain, steps)),
        None if chance is None else jnp.asarray(chance, problem.dtype),
        None if against is None else _coalition(setting, against, problem.dtype),
    )
    fits = max(1, _BYTES // (8 * steps * agents * problem.dimension * 8))
    chunk = min(_CHUNK if against is None else _SHARED_CHUNK, fits, each)
    if against is not None:
        # What pairs draw is too much to be drawn for nothing in the last part.
        chunk = -(-each // -(-each // chunk))

    def run(
        held: Records,
        first: Records,
        second: Records,
        seed: int,
        side: int,
        runs: int,
        progress: Callable[[int], None] = lambda done: None,
    ) -> np.ndarray:
        found = []
        for begin in range(0, runs, chunk):
            # Seeds of their own for either side, whatever the number of runs.
            seeds = (2 * seed + side) * 2**24 + begin + jnp.arange(chunk)
            part = scores(
                seeds,
                agent,
                held,
                first,
                second,
                setup,
                real=program(algorithm, problem),
                plain=program(plain, problem),
            )
            found.append(np.asarray(part))
            progress(min(begin + chunk, runs))
        return np.round(np.concatenate(found)[:runs], 6)  # equal but for rounding errors is equal

    return run


def _coalition(setting: Setting, against: Left, dtype: Any) -> Coalition:
    every = setting.pairs
    if len(every.ends) <= _MASKED:
        known = np.isin(np.asarray(every.ends), against.members).any(axis=1)
        theirs = every._replace(weights=every.weights * jnp.asarray(known)[:, None])
    else:
        theirs = shared.known_to(every, against.members)
    return Coalition(
        theirs,
        jnp.asarray(against.weights, dtype),
        jnp.asarray(against.spread, dtype),
    )


@partial(jax.jit, static_argnames=("real", "plain"))
@engine.full_precision
def scores(
    seeds: jax.Array,
    agent: jax.Array,
    held: Records,
    first: Records,
    second: Records,
    setup: Setup,
    *,
    real: Program,
    plain: Program,
) -> jax.Array:
    """(run, kind) for runs with those noise seeds: the rounds are the engine's own,
    with the keys of a simulation.
    """
    algorithm, setting = real.algorithm, setup.setting
    records = jax.tree.map(lambda all_, one: all_.at[agent].set(one), setting.records, held)
    own = keys.seeded(setting.noise_keys, setup.centre.shape[0], seeds)
    drawn, axis = setup.scene.key, None
    if algorithm.sampling.secret:
        coins = keys.coin_keys(own.own)
        setting = setting._replace(sampling_keys=coins)
        drawn, axis = coins[:, agent], 0
    points = jnp.broadcast_to(setup.centre, (len(seeds), *setup.centre.shape))
    phases = len(setting.relays)

    def tap(seen: Round) -> tuple:
        relayed = tuple(seen.relayed) if phases else None
        mine = (tuple(seen.sent), tuple(seen.inbox.total), relayed)
        return engine.pick(mine, agent), seen.draws

    _, (said, draws) = engine.trajectory(
        real,
        engine.begin(real, records, points),
        setting._replace(
            records=records, noise_keys=own, pairs=shared.seeded(setting.pairs, seeds)
        ),
        setup.inputs,
        block=len(setup.inputs.steps),
        tap=tap,
    )

    expected = _expected(algorithm, setup, draws, seeds, agent)

    def one(transcript: Transcript, draws: Any, key: jax.Array, expected: Any) -> jax.Array:
        mine = jax.tree.map(lambda x: x[:, agent], draws)
        here = setup.scene._replace(key=key)
        left = partial(_left, algorithm, setup, expected)
        if setup.chance is None:
            known = [follow(plain, here, data, transcript, mine) for data in (first, second)]
            each = [
                log_likelihood(algorithm, transcript.sent, *left(part), mine, setup.white)
                for part in known
            ]
        else:
            row = changed_row(first, second)
            # Beside the record both data sets are the same.
            sides = ((first, False), (first, True), (second, True))
            out, *known = [
                follow(plain, here, data, transcript, mine, decided(plain, here, data, row, inside))
                for data, inside in sides
            ]
            each = [
                mixed_log_likelihood(
                    algorithm, transcript.sent, left(out), left(part), setup.chance
                )
                for part in known
            ]
        near = [_nearest(algorithm, transcript.sent, *part, draws, agent) for part in known]
        return jnp.stack([each[0] - each[1], jnp.log(near[1]) - jnp.log(near[0])])

    return jax.vmap(one, in_axes=(1, 1, axis, 1))(Transcript(*said), draws, drawn, expected)


def _expected(
    algorithm: Algorithm, setup: Setup, draws: Any, seeds: jax.Array, agent: jax.Array
) -> tuple[jax.Array, ...]:
    """What a coalition expects of the agent's noise, per field that has any (time, run, ...), in
    units of its own: what the members share with it, and what all other noise says of the rest.
    """
    if setup.coalition is None:
        return ()
    theirs, weights, _ = setup.coalition
    known = jax.tree.map(jnp.zeros_like, draws)
    if len(theirs.ends):
        keyed = shared.seeded(theirs, seeds)
        steps, params = setup.inputs.steps, setup.centre[0]
        known = shared.alone(algorithm, draws, keyed, steps, params, setup.setting.constants)
    found = []
    for name in shared.noise_names(algorithm):
        said, noise = getattr(known, name), getattr(draws, name)
        found.append(said[:, :, agent] + jnp.einsum("j,trj...->tr...", weights, noise - said))
    return tuple(found)


def _left(
    algorithm: Algorithm, setup: Setup, expected: tuple, part: tuple[tuple, tuple]
) -> tuple[tuple, tuple]:
    """(values, scales) of messages, with what a coalition expects of the noise in the values, and
    the scales of what is left of it.
    """
    if setup.coalition is None:
        return part
    values, scales = (list(items) for items in part)
    for name, noise in zip(shared.noise_names(algorithm), expected, strict=True):
        place = list(algorithm.channels).index(name)
        values[place] = values[place] + scales[place] * noise
        scales[place] = scales[place] * setup.coalition.spread
    return tuple(values), tuple(scales)


def changed_row(first: Records, second: Records) -> jax.Array:
    """The row in which two data sets differ."""
    features = (first.features != second.features).reshape(len(first.labels), -1).any(axis=1)
    return jnp.argmax(features | (first.labels != second.labels))


def log_likelihood(
    algorithm: Algorithm, sent: tuple, values: tuple, scales: tuple, draws: Any, white: jax.Array
) -> jax.Array:
    """log p of all that the agent sent, up to what does not depend on its data."""
    if isinstance(algorithm, QuantizedDsgd):
        (message,), (value,), (scale,) = sent, values, scales
        edge = message - algorithm.resolution * draws.rounding
        low, high = (in_units(edge + w, value, scale)[0] for w in (0.0, algorithm.resolution))
        return jnp.sum(jnp.log(algorithm.law.between(low, high) + 1e-30))
    total = jnp.zeros(())
    for field in zip(sent, values, scales, strict=True):
        total += algorithm.law.log_density(*field, white)
    return total


def mixed_log_likelihood(
    algorithm: Algorithm,
    sent: tuple,
    out: tuple[tuple, tuple],
    inside: tuple[tuple, tuple],
    chance: jax.Array,
) -> jax.Array:
    """log p of all that the agent sent, up to what does not depend on its data, where a secret coin
    decides of every message whether the record is in it.

    Args:
      out, inside: (values, scales) of the messages without and with the record.
      chance: of the coin.
    """

    def each(values: tuple, scales: tuple) -> jax.Array:
        """log p of every message."""
        one = jnp.eye(1)

        def message(sent: tuple, values: tuple, scales: tuple) -> jax.Array:
            found = jnp.zeros(())
            for said, value, scale in zip(sent, values, scales, strict=True):
                found += algorithm.law.log_density(said[None], value[None], scale[None], one)
            return found

        return jax.vmap(message)(sent, values, scales)

    return jnp.sum(jnp.logaddexp(jnp.log1p(-chance) + each(*out), jnp.log(chance) + each(*inside)))


def _nearest(
    algorithm: Algorithm, sent: tuple, values: tuple, scales: tuple, draws: Any, agent: jax.Array
) -> jax.Array:
    """How near some residual of the agent comes to another one, or to noise of another
    agent in the same step.
    """
    if not algorithm.law.adds_noise or isinstance(algorithm, QuantizedDsgd):
        return jnp.ones(())
    names = [name for name in algorithm.channels if name not in algorithm.coins]
    places = [list(algorithm.channels).index(name) for name in names]
    parts = [in_units(sent[p], values[p], scales[p])[0] for p in places]
    found = jnp.stack(parts, axis=1)  # (time, field, d)
    # What carries no noise repeats nothing: every such entry is put at a place of its own.
    loud = jnp.stack([scales[p] for p in places], axis=1) != 0
    far = 1e6 * (1 + jnp.arange(found.size, dtype=found.dtype)).reshape(found.shape)
    found = jnp.where(loud, found, far)
    flat = found.reshape(-1, found.shape[-1])
    own = [
        jnp.min(jnp.max(jnp.abs(flat[lag:] - flat[:-lag]), axis=1))
        for lag in range(1, min(_LAGS, len(flat) - 1) + 1)
    ]
    noise = jnp.stack([getattr(draws, name) for name in names], axis=2)  # (time, agent, field, d)
    apart = jnp.max(jnp.abs(found[:, None] - noise), axis=-1)
    others = (jnp.arange(noise.shape[1]) != agent)[None, :, None]
    return (
        jnp.minimum(jnp.min(jnp.stack([*own, jnp.inf])), jnp.min(jnp.where(others, apart, jnp.inf)))
        + 1e-12
    )
