"""The compiled heart of a simulation: many steps, all agents, all seeds.

`advance` is a scan over blocks of steps. The noise of a block is drawn in one go before its steps
run (a third of the cost of drawing it step by step, from the same keys, so the block size never
changes a result), agents and seeds are vectorised, and batches are formed once for all seeds.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial, wraps
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hearsay.base import Algorithm, Inbox
from hearsay.problems.data.stream import Stream
from hearsay.problems.losses.domains import Domain
from hearsay.problems.losses.linear import Loss
from hearsay.problems.problem import Problem
from hearsay.problems.sampling.samplers import Arrivals, Records, Sampling, Window
from hearsay.simulation import keys

# On a CPU a block of noise should still be in the cache when its steps use it; elsewhere few
# kernels should draw much.
_CPU_DRAWN_BYTES, _DRAWN_BYTES = 4 * 2**20, 2**29


class Carry(NamedTuple):
    """What a run carries from step to step, and what a checkpoint holds.

    Leading axes: (seed, agent) for states, (agent,) for the sampler.
    """

    states: Any
    readout: jax.Array
    sampler: Any


class Setting(NamedTuple):
    """Device arrays that stay the same throughout a run."""

    # Records or a Stream with a leading axis of agents; one of them per agent where agents are
    # computed one after the other.
    records: Any
    mixers: Any
    noise_keys: jax.Array
    sampling_keys: jax.Array
    constants: Any = ()


TRACES = {"advance": 0}  # counted by the tests: a run traces once per chunk length


def full_precision(function: Callable) -> Callable:
    """Matrix products in full float32: the shortened ones of a GPU would be off
    by parts in a thousand.
    """

    @wraps(function)
    def traced(*args: Any, **options: Any) -> Any:
        with jax.default_matmul_precision("highest"):
            return function(*args, **options)

    return traced


@partial(jax.jit, static_argnames=("algorithm", "loss", "domain", "arrivals", "block"))
@full_precision
def advance(
    carry: Carry,
    setting: Setting,
    steps: jax.Array,
    rates: Any,
    windows: Window,
    *,
    algorithm: Algorithm,
    loss: Loss,
    domain: Domain,
    arrivals: Arrivals,
    block: int,
) -> Carry:
    """Run the given steps; `rates` and `windows` hold one row per step."""
    TRACES["advance"] += 1
    params = carry.readout[0, 0]

    def draw_block(block_steps: jax.Array) -> Any:
        """(step, seed, agent, ...) of randomness."""

        def one(key: jax.Array) -> Any:
            return algorithm.draws(key, block_steps, params, setting.constants)

        return jax.vmap(jax.vmap(one, out_axes=1), out_axes=1)(setting.noise_keys)

    def one_step(carry: Carry, inputs: tuple) -> tuple[Carry, None]:
        step, rate, window, draws = inputs
        form = partial(form_batch, algorithm, loss, arrivals, step, window.blocks)
        one_round = partial(
            exchange, algorithm, form, setting, rate, window, domain, unrolled=loss.unrolled
        )
        if loss.unrolled:
            each = (pick((carry.states, draws), seed) for seed in range(len(setting.noise_keys)))
            seeds = [one_round(states, noise, carry.sampler) for states, noise in each]
            states, sampler = stacked([found[0] for found in seeds]), seeds[0][1]
        else:
            # Nothing about the data depends on the seed, so the sampler's state comes back without
            # a seed axis.
            states, sampler = jax.vmap(one_round, in_axes=(0, 0, None), out_axes=(0, None))(
                carry.states, draws, carry.sampler
            )
        readout = carry.readout
        if algorithm.average:
            merge = jax.vmap(
                jax.vmap(algorithm.averaged, in_axes=(0, 0, None)), in_axes=(0, 0, None)
            )
            readout = merge(readout, states, step)
        return Carry(states, readout, sampler), None

    def one_block(carry: Carry, inputs: tuple) -> tuple[Carry, None]:
        steps, rates, windows = inputs
        return jax.lax.scan(one_step, carry, (steps, rates, windows, draw_block(steps)))

    blocks = jax.tree.map(lambda x: x.reshape(-1, block, *x.shape[1:]), (steps, rates, windows))
    carry, _ = jax.lax.scan(one_block, carry, blocks)
    if not algorithm.average:
        carry = carry._replace(readout=jax.vmap(jax.vmap(algorithm.predict))(carry.states))
    return carry


def form_batch(
    algorithm: Algorithm,
    loss: Loss,
    arrivals: Arrivals,
    step: jax.Array,
    blocks: jax.Array,
    state: Any,
    records: Records | Stream,
    start: jax.Array,
    size: jax.Array,
    key: jax.Array,
) -> tuple:
    window = Window(start, size, blocks)
    return algorithm.sampling.batch(
        state, loss, records, step, window, arrivals, keys.at(key, step)
    )


def exchange(
    algorithm: Algorithm,
    form: Any,
    setting: Setting,
    rate: Any,
    window: Window,
    domain: Domain,
    states: Any,
    draws: Any,
    sampler: Any,
    *,
    unrolled: bool = False,
) -> tuple[Any, Any]:
    """One round of one seed: everybody sends, everybody hears, everybody updates.

    The batch is formed where it is used, inside the loop over agents: what does not differ between
    agents (the step) stays a scalar there. The compiler shares the work between the two places.
    """
    each = partial(one_by_one, agents=len(setting.records)) if unrolled else jax.vmap

    def send(draws: Any, state: Any, data: tuple, rate: Any) -> tuple[Any, Any]:
        return algorithm.send(draws, state, form(*data)[0], rate)

    def update(state: Any, sent: Any, inbox: Inbox, data: tuple, rate: Any) -> tuple[Any, Any]:
        batch, sampler = form(*data)
        return algorithm.update(state, sent, inbox, batch, rate, domain), sampler

    data = (sampler, setting.records, window.start, window.size, setting.sampling_keys)
    sent, states = each(send)(draws, states, data, rate)
    total = type(sent)(
        *(mixer.total(value) for mixer, value in zip(setting.mixers, sent, strict=True))
    )
    own = type(sent)(*(mixer.own for mixer in setting.mixers))
    return each(update)(states, sent, Inbox(total, own), data, rate)


class PerAgent(list):
    """One item for each agent, in arrays of their own:
    a slice of one large array would be copied at every step.
    """


jax.tree_util.register_pytree_node(
    PerAgent, lambda items: (list(items), None), lambda _, items: PerAgent(items)
)


def one_by_one(function: Callable, agents: int) -> Callable:
    """Like vmap over the agents, but one after the other.

    Convolutions with weights of each agent's own would become grouped ones,
    which are slow everywhere (30 ms instead of 14 ms for five ResNets on a GPU).
    """

    def unrolled(*args: Any) -> Any:
        return stacked([function(*pick(args, agent)) for agent in range(agents)])

    return unrolled


def pick(tree: Any, index: int) -> Any:
    """The index-th part of everything."""
    return jax.tree.map(lambda x: x[index], tree, is_leaf=lambda x: isinstance(x, PerAgent))


def stacked(trees: list) -> Any:
    return jax.tree.map(lambda *parts: jnp.stack(parts), *trees)


def placed(problem: Problem) -> Any:
    """The problem's records as the engine wants them."""
    if not problem.loss.unrolled:
        return problem.device_records
    return PerAgent(
        problem.records.of(agent).placed(problem.dtype) for agent in range(problem.agents)
    )


def start(
    algorithm: Algorithm, problem: Problem, setting: Setting, seeds: jax.Array, spread: float
) -> Carry:
    """Agents begin at the problem's start plus independent normal noise of standard deviation
    `spread`, projected: nothing about the data.
    """
    own = keys.start_keys(seeds, problem.agents)
    return _start(
        own, setting.records, spread, np.asarray(problem.first_models, problem.dtype),
        algorithm=algorithm, loss=problem.loss, domain=problem.domain, arrivals=problem.arrivals,
    )  # fmt: skip


@partial(jax.jit, static_argnames=("algorithm", "loss", "domain", "arrivals"))
def _start(
    own: jax.Array,
    records: Records | Stream,
    spread: float,
    centre: jax.Array,
    *,
    algorithm: Algorithm,
    loss: Loss,
    domain: Domain,
    arrivals: Arrivals,
) -> Carry:
    shape, dtype = centre.shape[1:], centre.dtype

    def place(key: jax.Array, centre: jax.Array) -> jax.Array:
        return domain.project(centre + spread * jax.random.normal(key, shape, dtype))

    models = jax.vmap(jax.vmap(place), in_axes=(0, None))(own, centre)
    prepare = partial(_prepared, algorithm.sampling, loss, arrivals)
    sampler = (
        one_by_one(prepare, len(records))(records)
        if isinstance(records, PerAgent)
        else jax.vmap(prepare)(records)
    )
    return Carry(jax.vmap(jax.vmap(algorithm.init))(models), models, sampler)


def _prepared(sampling: Sampling, loss: Loss, arrivals: Arrivals, records: Records | Stream) -> Any:
    return sampling.prepare(loss, records, arrivals)


@lru_cache(maxsize=128)
def block_length(chunk: int, seeds: int, agents: int, dimension: int, itemsize: int) -> int:
    """The most steps whose noise fits in the drawing budget, as a divisor of the chunk."""
    budget = _CPU_DRAWN_BYTES if jax.devices()[0].platform == "cpu" else _DRAWN_BYTES
    most = max(1, budget // (seeds * agents * dimension * itemsize))
    return max(b for b in range(1, chunk + 1) if chunk % b == 0 and b <= most)
