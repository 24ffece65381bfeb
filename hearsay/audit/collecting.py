"""All that agents send in runs with a simulation's keys, beside what it was before its noise: what
residuals.py tests the noise of.

Values and scales are those that the claimed algorithm hands over, without its `privatize`: noise
that is added otherwise than claimed shows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hearsay import _validate as require
from hearsay.algorithms import QuantizedDsgd
from hearsay.audit import shared_noise
from hearsay.audit.precision import double_precision
from hearsay.audit.shared_noise import Taken
from hearsay.audit.standard_form import Field
from hearsay.base import Algorithm, Keys
from hearsay.graphs import Graph
from hearsay.problems.problem import Problem
from hearsay.simulation import engine, keys
from hearsay.simulation import shared as simulated
from hearsay.simulation.engine import Inputs, Round, Setting
from hearsay.simulation.program import Program, kernel, program
from hearsay.simulation.shared import PairNoise, Sharing

_BYTES = 2**27
# A seed has so many runs of its own; their seeds are whole numbers of 64 bits.
_RUNS, _SEEDS = 2**24, 2**39


@require.plain_arguments
@double_precision()
def collect(
    algorithm: Algorithm,
    claimed: Algorithm,
    problem: Problem,
    graph: Graph,
    steps: int,
    runs: int,
    seed: int,
    progress: Callable[[int, int], None],
    *,
    apart: bool = False,
) -> tuple[dict[str, Field], Taken | None]:
    """Per message field, all that was sent in so many runs with keys of a simulation,
    and what it was before its noise; and what pairs of agents added to it.

    Args:
      apart: noise that agents share is drawn pair by pair.
    """
    agents, k = graph.agents, np.arange(steps)
    if not 0 <= seed < _SEEDS:
        require.fail("seed", "at least 0 and below 2^39", seed)
    if runs > _RUNS:
        require.fail("runs", "at most 2^24", runs)
    setting = engine.surroundings(algorithm, problem, graph, [0], apart=apart)
    real, sharing = program(algorithm, problem), algorithm.shared(agents)
    inputs = engine.inputs(algorithm, problem, k)
    rates = engine.inputs(claimed, problem, k).rates
    start = jnp.asarray(problem.first_models, problem.dtype)
    chunk = max(
        1, min(runs, _BYTES // (32 * steps * agents * problem.dimension * len(algorithm.channels)))
    )
    some = np.empty(0, int)
    if apart and sharing is not None:
        some = shared_noise.chosen(sharing, runs * steps * problem.dimension)
    found, drawn = [], []
    for begin in range(0, runs, chunk):
        seeds = seed * _RUNS + begin + jnp.arange(chunk)
        pairs = simulated.seeded(setting.pairs, seeds)
        part = _simulate(
            keys.seeded(setting.noise_keys, agents, seeds),
            pairs,
            setting,
            start,
            inputs,
            rates,
            real=real,
            claimed=kernel(claimed),
        )
        found.append(jax.tree.map(np.asarray, part))
        if isinstance(pairs, PairNoise):
            each = shared_noise.taken(
                pairs, some, inputs.steps, start, setting.constants, algorithm=real.algorithm
            )
            drawn.append(jax.tree.map(np.asarray, each))
        progress(min(begin + chunk, runs), runs)
    every = jax.tree.map(lambda *parts: np.concatenate(parts)[:runs], *found)
    # A field without a vector axis (a flag) counts as a vector of one.
    shaped = jax.tree.map(
        lambda x: np.asarray(x, np.float64).reshape(runs, steps, agents, -1), every
    )
    sent, values, scales, coin = shaped
    heard = {
        name: Field(
            sent[i],
            np.broadcast_to(values[i], sent[i].shape),
            np.broadcast_to(scales[i], sent[i].shape),
            coin,
        )
        for i, name in enumerate(algorithm.channels)
    }
    return heard, _joined(drawn, some, runs) if drawn else None


def _joined(drawn: list[tuple[tuple, tuple]], some: np.ndarray, runs: int) -> Taken:
    """What pairs added in all runs."""
    added, ends = zip(*drawn, strict=True)
    return Taken(
        tuple(np.concatenate(part)[:runs] for part in zip(*added, strict=True)),
        tuple(np.concatenate(part, axis=2)[:, :, :runs] for part in zip(*ends, strict=True)),
        some,
    )


def _before_noise(
    algorithm: Algorithm, draws: Any, state: Any, batch: Any, rates: Any
) -> tuple[tuple, tuple]:
    """(values, scales) of the message's fields.

    What `finish` does to a value and to a value plus one scale says what becomes of noise there.
    """
    fields, after = algorithm.prepare(state, batch, rates)
    values, scales = (type(fields)(*(part[i] for part in fields)) for i in (0, 1))
    if isinstance(algorithm, QuantizedDsgd):
        return tuple(values), tuple(scales)
    plain, _ = algorithm.finish(values, draws, after)
    loud, _ = algorithm.finish(
        type(fields)(*(v + s for v, s in zip(values, scales, strict=True))), draws, after
    )
    return tuple(plain), tuple(
        jnp.where(a == b, 0.0, getattr(scales, name, 0.0) + 0 * b)
        for name, a, b in zip(type(plain)._fields, loud, plain, strict=True)
    )


@partial(jax.jit, static_argnames=("real", "claimed"))
@engine.full_precision
def _simulate(
    own: Keys,
    pairs: Sharing,
    setting: Setting,
    start: jax.Array,
    inputs: Inputs,
    rates: Any,
    *,
    real: Program,
    claimed: Algorithm,
) -> tuple:
    """(sent, values, scales, coin), per field (run, round, agent, ...): the rounds are the
    engine's own. rates: of the claimed algorithm.
    """

    def tap(seen: Round) -> tuple:
        """Beside every message what the claimed algorithm would have added noise to."""
        before = seen.by_agent(
            lambda batch, draws, state, now: _before_noise(claimed, draws, state, batch, now)
        )
        known = before(seen.draws, seen.states, engine.pick(rates, seen.step))
        return (tuple(seen.sent), *known, getattr(seen.draws, "rounding", None))

    def run(own: Keys, pairs: Sharing) -> Any:
        """(round, run, ...) of those runs."""
        points = jnp.broadcast_to(start, (len(own.own), *start.shape))
        carry, block = engine.begin(real, setting.records, points), len(inputs.steps)
        keyed = setting._replace(noise_keys=own, pairs=pairs)
        return engine.trajectory(real, carry, keyed, inputs, block=block, tap=tap)[1]

    if real.loss.unrolled:
        # Of what pairs share only the keys differ between runs.
        def one(keyed: tuple) -> Any:
            own, key = jax.tree.map(lambda x: x[None], keyed)
            mine = pairs._replace(key=key) if isinstance(pairs, PairNoise) else pairs
            return engine.pick(run(own, mine), (slice(None), 0))

        return jax.lax.map(one, (own, pairs.key if isinstance(pairs, PairNoise) else None))
    return jax.tree.map(lambda x: x.swapaxes(0, 1), run(own, pairs))
