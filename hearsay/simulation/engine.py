"""The compiled heart of a simulation: many steps, all agents, all seeds.

`trajectory` is the one loop there is, a scan over blocks of steps. The noise of a block is drawn in
one go before its steps run (a third of the cost of drawing it step by step, from the same keys, so
the block size never changes a result), agents and seeds are vectorised, and batches are formed once
for all seeds. `advance` is the loop compiled.

**The tap.** Code that wants to see more than where a run ends (what was sent and heard, models of
every round) hands `trajectory` a function of a `Round`: what it returns is stacked over the steps
and comes back beside the carry. Without a tap the compiled program holds no trace of it. `observe`
is the loop compiled with a tap; audits that need arrays of their own in it call `trajectory` inside
a function that they compile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial, wraps
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hearsay.base import Algorithm, Inbox, Keys
from hearsay.graphs import Graph
from hearsay.graphs.channels import mixer
from hearsay.problems.problem import Problem
from hearsay.problems.sampling.samplers import Window
from hearsay.problems.task import Task
from hearsay.release.readouts import ReadOut, averaged, round_weights, shown
from hearsay.simulation import delivery, keys, shared
from hearsay.simulation.groups import COPIES, in_groups, most_at_once
from hearsay.simulation.program import Carry, Program, held_rates

# On a CPU a block of noise should still be in the cache when its steps use it; elsewhere few
# kernels should draw much.
_CPU_DRAWN_BYTES, _DRAWN_BYTES = 4 * 2**20, 2**29
# Up to so many agents every one has a column of its own in the arrays that steps bring.
_OWN_COLUMNS = 1024


class Setting(NamedTuple):
    """Device arrays that stay the same throughout a run."""

    # Records or a Stream with a leading axis of agents; one of them per agent where agents are
    # computed one after the other.
    records: Any
    mixers: Any
    noise_keys: Keys
    # (agent,), or (seed, agent) where every seed is to have batches of its own.
    sampling_keys: jax.Array
    constants: Any = ()
    # The weights of the phases after a message, (phase, 2); () where there are none.
    relays: Any = ()
    # What the noise is drawn from that pairs of agents share; () where there is none.
    pairs: Any = ()
    # What goes wrong on the network (delivery.py); () where nothing does.
    faults: Any = ()
    # Of every agent the column of the steps' inputs that is its own, where agents with the same
    # number of records share one (very many agents); () where everybody has a column.
    columns: Any = ()


class Inputs(NamedTuple):
    """What steps bring, one row each."""

    steps: Any
    rates: Any
    windows: Window
    # Of averages of messages, (step, 2, slot); () where there are none.
    weights: Any = ()
    # Which links deliver by a plan, (step, link); () where there is none.
    planned: Any = ()
    # The network in that round, found inside the loop (delivery.py); () where nothing goes wrong.
    weather: Any = ()


class Round(NamedTuple):
    """What a tap sees of one round of one seed, all agents at once.

    states: before the round. draws: its randomness. sent: the messages, one per agent.
    inbox: what everybody heard in the last phase. by_agent(f): runs f(batch, ...) for every agent.
    relayed: what everybody sent in the last phase: the messages, unless they were averaged.
    """

    program: Program
    step: jax.Array
    rates: Any
    states: Any
    draws: Any
    sent: Any
    inbox: Inbox
    by_agent: Callable[[Callable], Callable]
    relayed: Any


Tap = Callable[[Round], Any]
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


@partial(jax.jit, static_argnames=("program", "block"))
@full_precision
def advance(
    carry: Carry, setting: Setting, inputs: Inputs, *, program: Program, block: int
) -> Carry:
    """Run the given steps."""
    TRACES["advance"] += 1
    return trajectory(program, carry, setting, inputs, block=block)[0]


@partial(jax.jit, static_argnames=("program", "block", "tap"))
@full_precision
def observe(
    carry: Carry, setting: Setting, inputs: Inputs, *, program: Program, block: int, tap: Tap
) -> tuple[Carry, Any]:
    """Run the given steps with a tap, which must be a function of a module: it is compiled in."""
    return trajectory(program, carry, setting, inputs, block=block, tap=tap)


def trajectory(
    program: Program,
    carry: Carry,
    setting: Setting,
    inputs: Inputs,
    *,
    block: int,
    tap: Tap | None = None,
) -> tuple[Carry, Any]:
    """(the carry after the given steps, what the tap saw: (step, seed, ...), or None)."""
    algorithm, params = program.algorithm, carry.readout[0, 0]
    batch_keys = setting.sampling_keys
    if algorithm.sampling.per_seed:
        batch_keys = keys.coin_keys(setting.noise_keys.own)
    per_seed = batch_keys.ndim == 2

    def draw_block(steps: jax.Array) -> Any:
        """(step, seed, agent, ...) of randomness."""

        def one(keys: Keys) -> Any:
            return algorithm.draws(keys.given, steps, params, setting.constants)

        own = jax.vmap(jax.vmap(one, out_axes=1), out_axes=1)(setting.noise_keys)
        return shared.added(algorithm, own, setting.pairs, steps, params, setting.constants)

    def one_step(carry: Carry, row: tuple[Inputs, Any]) -> tuple[Carry, Any]:
        now, draws = own_columns(row[0], setting.columns), row[1]
        before, memory = carry, carry.memory
        if setting.faults:
            weather, memory = setting.faults.round(now.steps, memory, now.planned)
            now = now._replace(weather=weather)
            before = carry._replace(states=delivery.Late(carry.states, memory.past))
        states, sampler, seen, shown = _all_seeds(
            partial(exchange, program, setting, now, tap),
            before,
            draws,
            (batch_keys, per_seed),
            program.loss.unrolled,
        )
        if setting.faults:
            states, memory = states.states, memory._replace(past=states.past)
        readout = carry.readout
        if algorithm.average:
            merge = jax.vmap(jax.vmap(program.averaged, in_axes=(0, 0, None)), in_axes=(0, 0, None))
            readout = merge(readout, states, now.steps)
        kept = averaged(carry.kept, shown, now.weights)
        return Carry(states, readout, sampler, kept, memory), seen

    def one_block(carry: Carry, inputs: Inputs) -> tuple[Carry, Any]:
        return jax.lax.scan(one_step, carry, (inputs, draw_block(inputs.steps)))

    blocks = jax.tree.map(lambda x: x.reshape(-1, block, *x.shape[1:]), inputs)
    carry, seen = jax.lax.scan(one_block, carry, blocks)
    if not algorithm.average:
        carry = carry._replace(readout=jax.vmap(jax.vmap(algorithm.predict))(carry.states))
    return carry, jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), seen)


def _all_seeds(
    one_round: Callable, carry: Carry, draws: Any, batch_keys: tuple[Any, bool], unrolled: bool
) -> tuple[Any, Any, Any, Any]:
    """The sampler's state comes back without a seed axis: it does not depend on the seed. Nor does
    a batch, unless the keys it is drawn from have such an axis (the flag beside them).
    """
    own, per_seed = batch_keys
    if not unrolled:
        axes = (0, 0, None, 0 if per_seed else None, 0)
        return jax.vmap(one_round, in_axes=axes, out_axes=(0, None, 0, 0))(
            carry.states, draws, carry.sampler, own, carry.kept
        )
    count = len(jax.tree.leaves(carry.states)[0])
    agents = jax.tree.leaves(carry.states)[0].shape[1]
    if count > 1 and (together() or agents > COPIES):

        def alone(states: Any, noise: Any, kept: Any, keys: tuple) -> tuple[Any, Any, Any, Any]:
            return one_round(states, noise, carry.sampler, keys[0] if keys else own, kept)

        every = in_groups(alone, None if together() else 1)
        found = every(carry.states, draws, carry.kept, (own,) if per_seed else ())
        return found[0], pick(found[1], 0), found[2], found[3]
    each = ((*pick((carry.states, draws, carry.kept), seed), seed) for seed in range(count))
    seeds = [
        one_round(states, noise, carry.sampler, own[seed] if per_seed else own, kept)
        for states, noise, kept, seed in each
    ]
    states, seen, shown = (stacked([found[part] for found in seeds]) for part in (0, 2, 3))
    return states, seeds[0][1], seen, shown


def exchange(
    program: Program,
    setting: Setting,
    now: Inputs,
    tap: Tap | None,
    states: Any,
    draws: Any,
    sampler: Any,
    batch_keys: jax.Array,
    kept: Any = (),
) -> tuple[Any, Any, Any, Any]:
    """One round of one seed: everybody sends, everybody hears, everybody updates.

    The batch is formed where it is used, inside the loop over agents: what does not differ between
    agents (the step) stays a scalar there. The compiler shares the work between the places.
    """
    algorithm, (step, rates, window, *_) = program.algorithm, now
    if setting.faults:
        states, past = states
        setting = setting._replace(mixers=setting.faults.mixers(now.weather, past))
        states = setting.faults.begun(program, now.weather, states)
    form = partial(program.batch, step, window.blocks)
    each = all_agents(program, setting.records)
    data = (sampler, setting.records, window.start, window.size, batch_keys)

    def send(draws: Any, state: Any, data: tuple, rates: Any) -> tuple[Any, Any]:
        return algorithm.send(draws, state, form(*data)[0], rates)

    def update(state: Any, sent: Any, inbox: Inbox, data: tuple, rates: Any) -> tuple[Any, Any]:
        batch, sampler = form(*data)
        return algorithm.update(state, sent, inbox, batch, rates, program.domain), sampler

    def by_agent(function: Callable) -> Callable:
        run = each(lambda data, args: function(form(*data)[0], *args))
        return lambda *args: run(data, args)

    draws = shared.mixed(algorithm, draws, setting.pairs)
    sent, ready = each(send)(draws, states, data, rates)
    # Everybody knows the coin of a round: agent 0's is as good as any.
    coin = algorithm.coin(pick(draws, 0))
    last, inbox = relay(setting, sent, heard(setting.mixers, sent, coin), coin)
    after, sampler = each(update)(ready, last, inbox, data, rates)
    seen = None
    if tap is not None:
        seen = tap(Round(program, step, rates, states, draws, sent, inbox, by_agent, last))
    model = shown(algorithm, program.domain, kept, last, inbox, rates)
    if setting.faults:
        # Who is away sends nothing: neither its state nor what its messages show moves on.
        present, shown_before = now.weather.present, kept.model if kept else ()
        after = delivery.where(present, after, states)
        after = delivery.Late(after, delivery.remembered(past, sent))
        model = delivery.where(present, model, shown_before)
    return after, sampler, seen, model


def heard(mixers: Sequence[Any], sent: Any, coin: Any = None) -> Inbox:
    """What everybody hears of what everybody has sent, per message field (agents, ...).

    Args:
      coin: the round's public coin, where weights follow from one (graphs/channels.py).
    """
    mixers = [mixer.at(coin) for mixer in mixers]
    total = type(sent)(*(mixer.total(value) for mixer, value in zip(mixers, sent, strict=True)))
    return Inbox(total, type(sent)(*(mixer.own for mixer in mixers)))


def relay(setting: Setting, sent: Any, inbox: Inbox, coin: Any = None) -> tuple[Any, Inbox]:
    """(what everybody sent, what everybody heard) in the last phase of a round, which the message
    itself begins: see `Algorithm.relays`.
    """
    if not len(setting.relays):
        return sent, inbox

    def phase(carry: tuple, weights: jax.Array) -> tuple[tuple, None]:
        now, before, inbox = carry
        after = jax.vmap(passed_on, in_axes=(None, 0, 0, 0))(weights, now, before, inbox)
        return (after, now, heard(setting.mixers, after, coin)), None

    (last, _, inbox), _ = jax.lax.scan(phase, (sent, sent, inbox), setting.relays)
    return last, inbox


def passed_on(weights: jax.Array, now: Any, before: Any, inbox: Inbox) -> Any:
    """What one agent makes of a phase for the next: deployed agents call it too.

    Args:
      weights: of the average, and of what was sent in the phase before.
      now, before: what the agent sent in this phase and in the one before it.
      inbox: what it heard.
    """
    return jax.tree.map(
        lambda v, old, total, own: weights[0] * (total + own * v) - weights[1] * old,
        now,
        before,
        inbox.total,
        inbox.own,
    )


class PerAgent(list):
    """One item for each agent, in arrays of their own:
    a slice of one large array would be copied at every step.
    """


jax.tree_util.register_pytree_node(
    PerAgent, lambda items: (list(items), None), lambda _, items: PerAgent(items)
)


def all_agents(program: Program, records: Any) -> Callable[[Callable], Callable]:
    """How a function of one agent becomes one of all: vmap, or for networks one agent after the
    other (copies of the program, or a loop where there are many), or groups side by side.
    """
    if isinstance(records, PerAgent):
        return partial(one_by_one, agents=len(records))
    if not program.loss.unrolled:
        return jax.vmap
    return partial(in_groups, size=most_at_once(program.loss) if together() else 1)


def one_by_one(function: Callable, agents: int) -> Callable:
    """Like vmap over the agents, but one after the other.

    Convolutions with weights of each agent's own would become grouped ones,
    which are slow everywhere (30 ms instead of 14 ms for five ResNets on a GPU).
    """

    def unrolled(*args: Any) -> Any:
        return stacked([function(*pick(args, agent)) for agent in range(agents)])

    return unrolled


def pick(tree: Any, index: Any) -> Any:
    """The index-th part of everything."""
    return jax.tree.map(lambda x: x[index], tree, is_leaf=lambda x: isinstance(x, PerAgent))


def stacked(trees: list) -> Any:
    return jax.tree.map(lambda *parts: jnp.stack(parts), *trees)


def surroundings(
    algorithm: Algorithm,
    problem: Problem,
    graph: Graph,
    seeds: Sequence[int],
    *,
    apart: bool = False,
) -> Setting:
    """The arrays of a run with those seeds.

    Args:
      apart: noise that agents share is drawn pair by pair (simulation/shared.py).
    """
    dtype, relays = problem.dtype, algorithm.relays(graph)
    return Setting(
        placed(problem),
        tuple(mixer(graph, kind, dtype) for kind in algorithm.channels.values()),
        keys.of(algorithm.keys, graph, jnp.asarray(seeds)),
        keys.sampling_keys(problem.seed, graph.agents),
        algorithm.constants(dtype),
        jnp.asarray(relays, dtype) if len(relays) else (),
        shared.of(algorithm, graph.agents, seeds, dtype, apart=apart),
        columns=jnp.asarray(columns(problem.counts)[1]) if problem.agents > _OWN_COLUMNS else (),
    )


def placed(problem: Problem) -> Any:
    """The problem's records as the engine wants them."""
    if not problem.loss.unrolled or together() or problem.agents > COPIES:
        return problem.device_records
    return PerAgent(
        problem.records.of(agent).placed(problem.dtype) for agent in range(problem.agents)
    )


def together() -> bool:
    """Whether networks of all agents are computed at once: not on a CPU, where one agent's work
    fills the cores.
    """
    return jax.devices()[0].platform != "cpu"


def inputs(
    algorithm: Algorithm,
    problem: Task,
    steps: np.ndarray,
    readouts: Sequence[ReadOut] = (),
    *,
    shared_columns: bool = False,
) -> Inputs:
    """Rates and windows of those steps, as the run's precision holds them, and the weights of
    averages of their messages.

    Args:
      shared_columns: one column for all agents that have as many records, and of rates that are
        everybody's: `own_columns` takes them apart where they are used.
    """
    steps = np.asarray(steps, np.int32)
    held = columns(problem.counts)[0] if shared_columns else problem.counts
    rates = held_rates(algorithm, steps, problem.agents, problem.dtype, once=shared_columns)
    windows = algorithm.sampling.windows(steps, held, problem.arrivals)
    return Inputs(steps, rates, windows, round_weights(readouts, steps, problem.dtype))


def columns(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(the different numbers of records, the place there of every agent's).

    Where all are different they are in the order of the agents: as many columns as agents are taken
    for everybody's own (`own_columns`).
    """
    held, place = np.unique(counts, return_inverse=True)
    if len(held) == len(counts):
        return counts, np.arange(len(counts), dtype=np.int32)
    return held, place.astype(np.int32)


def own_columns(now: Inputs, place: Any) -> Inputs:
    """One step's inputs with a column for every agent."""
    if not len(place):
        return now

    def everybodys(rate: jax.Array) -> jax.Array:
        return rate if len(rate) == len(place) else jnp.broadcast_to(rate, place.shape)

    start, size, blocks = now.windows
    windows = now.windows
    if len(start) < len(place):
        windows = Window(start[place], size[place], blocks)
    return now._replace(rates=jax.tree.map(everybodys, now.rates), windows=windows)


def start(
    program: Program, problem: Problem, setting: Setting, seeds: Sequence[int], spread: float
) -> Carry:
    """Agents begin at the problem's start plus independent normal noise of standard deviation
    `spread`, projected: nothing about the data.
    """
    own = keys.start_keys(jnp.asarray(seeds), problem.agents)
    centre = np.asarray(problem.first_models, problem.dtype)
    return begin_about(own, setting.records, spread, centre, program=program)


@partial(jax.jit, static_argnames=("program",))
def begin_about(
    own: jax.Array, records: Any, spread: float, centre: jax.Array, *, program: Program
) -> Carry:
    """The carry of agents that begin about those centres (agent, d), from keys (seed, agent)."""

    def point(key: jax.Array, centre: jax.Array) -> jax.Array:
        return centre + spread * jax.random.normal(key, centre.shape, centre.dtype)

    return begin(program, records, jax.vmap(jax.vmap(point), in_axes=(0, None))(own, centre))


def begin(program: Program, records: Any, points: jax.Array) -> Carry:
    """The carry of agents that begin at those points (seed, agent, d)."""
    states, models = jax.vmap(jax.vmap(program.start))(points)
    return Carry(states, models, all_agents(program, records)(program.sampler)(records))


@lru_cache(maxsize=128)
def block_length(chunk: int, seeds: int, agents: int, dimension: int, itemsize: int) -> int:
    """The most steps whose noise fits in the drawing budget, as a divisor of the chunk."""
    budget = _CPU_DRAWN_BYTES if jax.devices()[0].platform == "cpu" else _DRAWN_BYTES
    most = max(1, budget // (seeds * agents * dimension * itemsize))
    return max(b for b in range(1, chunk + 1) if chunk % b == 0 and b <= most)
