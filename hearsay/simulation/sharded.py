"""The engine on several devices: the loop of engine.py, run by every device for its own agents.

Every device runs `trajectory` as it is, on its block of agents (layout.py). What agents exchange
goes through mixers that talk to the other devices (graphs/halo.py); so does noise that is mixed
between all agents (shared.py). The noise of a pair whose agents are on two devices is drawn on
both, from the pair's key. Everything else is an agent's own. Keys depend on the number of an agent
and of a step alone: on any number of devices a run is the same, to rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from hearsay.base import Algorithm
from hearsay.graphs import Graph
from hearsay.graphs.halo import AXIS, mixer
from hearsay.problems.problem import Problem
from hearsay.problems.sampling.samplers import Window
from hearsay.release.readouts import Kept
from hearsay.simulation import engine, keys, metrics, shared
from hearsay.simulation.layout import Layout
from hearsay.simulation.program import Carry, Program

# They stand where a type has arrays, one for all arrays below.
_ALL: Any = PartitionSpec()
_FIRST: Any
_SECOND: Any
_THIRD: Any
_FIRST, _SECOND, _THIRD = (PartitionSpec(*[None] * axis, AXIS) for axis in range(3))


def surroundings(
    algorithm: Algorithm, problem: Problem, graph: Graph, seeds: Sequence[int], layout: Layout
) -> engine.Setting:
    """The arrays of a run with those seeds, each device's where it is."""
    dtype, relays = problem.dtype, algorithm.relays(graph)
    mixers = tuple(mixer(graph, kind, dtype, layout.blocks) for kind in algorithm.channels.values())
    found = keys.of(algorithm.keys, graph, jnp.asarray(seeds))
    return engine.Setting(
        placed(problem, layout),
        jax.tree.map(layout.deal, mixers),
        jax.tree.map(lambda x: layout.place(x, 1), found),
        layout.place(keys.sampling_keys(problem.seed, graph.agents)),
        jax.tree.map(layout.repeat, algorithm.constants(dtype)),
        layout.repeat(np.asarray(relays, dtype)) if len(relays) else (),
        _sharing(shared.of(algorithm, graph.agents, seeds, dtype), layout),
    )


def placed(problem: Problem, layout: Layout) -> Any:
    """Everybody's records, with no array of all of them on any one device."""
    records = problem.records
    one = type(records)(*(np.asarray(part)[:1] for part in records)).placed(problem.dtype)
    return jax.tree.map(
        lambda part, like: layout.place(np.asarray(part)).astype(like.dtype), records, one
    )


def _sharing(pairs: shared.Sharing, layout: Layout) -> Any:
    blocks = layout.blocks
    if isinstance(pairs, shared.Mixed):
        # Nobody uses the draws of what fills up a block.
        matrix = np.zeros((blocks.rows, blocks.rows), pairs.matrix.dtype)
        matrix[:, blocks.row_of] = np.asarray(pairs.matrix)[blocks.agent_of]
        return shared.MixedRows(layout.deal(matrix))
    if isinstance(pairs, shared.PairNoise):
        return _dealt(pairs, layout)
    return pairs


def _dealt(pairs: shared.PairNoise, layout: Layout) -> shared.PairNoise:
    """To every device the pairs of which it has an agent, with the places of its agents; an end
    that is elsewhere gets weight 0.
    """
    blocks = layout.blocks
    rows = blocks.row_of[np.asarray(pairs.ends)]
    shard, weights = rows // blocks.width, np.asarray(pairs.weights)
    lists = [np.flatnonzero((shard == s).any(axis=1)) for s in range(blocks.shards)]
    most = max(1, *map(len, lists))
    which = np.zeros((blocks.shards, most), int)
    here = np.zeros((blocks.shards, most, 2), bool)
    for s, own in enumerate(lists):
        which[s, : len(own)], here[s, : len(own)] = own, shard[own] == s
    pair, mine = which.ravel(), here.reshape(-1, 2)
    return shared.PairNoise(
        layout.deal(pairs.key[:, pair], 1),
        layout.deal(np.where(mine, rows[pair] % blocks.width, 0).astype(np.int32)),
        layout.deal(np.where(mine, weights[pair], 0).astype(weights.dtype)),
    )


def inputs(steps: engine.Inputs, layout: Layout) -> engine.Inputs:
    """What steps bring, each agent's part where it is."""
    start, size, blocks = steps.windows
    return engine.Inputs(
        layout.repeat(steps.steps),
        jax.tree.map(lambda law: layout.place(law, 1), steps.rates),
        Window(layout.place(start, 1), layout.place(size, 1), layout.repeat(blocks)),
        jax.tree.map(layout.repeat, steps.weights),
    )


def start(
    program: Program,
    problem: Problem,
    setting: engine.Setting,
    seeds: Sequence[int],
    spread: float,
    layout: Layout,
) -> Carry:
    """Where agents begin; as `engine.start`."""
    own = layout.place(keys.start_keys(jnp.asarray(seeds), problem.agents), 1)
    centre = layout.place(np.asarray(problem.first_models, problem.dtype))
    return _start(own, setting.records, spread, centre, program=program, mesh=layout.mesh)


@partial(jax.jit, static_argnames=("program", "mesh"))
def _start(
    own: jax.Array, records: Any, spread: float, centre: jax.Array, *, program: Program, mesh: Mesh
) -> Carry:
    return jax.shard_map(
        partial(engine.begin_about, program=program),
        mesh=mesh,
        in_specs=(_SECOND, _FIRST, _ALL, _FIRST),
        out_specs=Carry(_SECOND, _SECOND, _FIRST, _ALL),
        check_vma=False,
    )(own, records, spread, centre)


def specs(carry: Carry, setting: engine.Setting) -> tuple[Carry, engine.Setting, engine.Inputs]:
    """Along which axis the arrays of a run are dealt out to devices."""
    kept = Kept(_SECOND, _THIRD) if carry.kept else _ALL
    noise = shared.PairNoise(_SECOND, _FIRST, _FIRST)
    pairs: Any = noise if isinstance(setting.pairs, shared.PairNoise) else _FIRST
    return (
        Carry(_SECOND, _SECOND, _FIRST, kept),
        engine.Setting(_FIRST, _FIRST, _SECOND, _FIRST, _ALL, _ALL, pairs),
        engine.Inputs(_ALL, _SECOND, Window(_SECOND, _SECOND, _ALL), _ALL),
    )


@partial(jax.jit, static_argnames=("program", "block", "mesh"))
@engine.full_precision
def advance(
    carry: Carry,
    setting: engine.Setting,
    inputs: engine.Inputs,
    *,
    program: Program,
    block: int,
    mesh: Mesh,
) -> Carry:
    """Run the given steps."""
    engine.TRACES["advance"] += 1
    held, around, now = specs(carry, setting)

    def one_device(carry: Carry, setting: engine.Setting, inputs: engine.Inputs) -> Carry:
        return engine.trajectory(program, carry, setting, inputs, block=block)[0]

    return jax.shard_map(
        one_device, mesh=mesh, in_specs=(held, around, now), out_specs=held, check_vma=False
    )(carry, setting, inputs)


def measure(
    layout: Layout,
    models: jax.Array,
    watched: np.ndarray,
    records: Any,
    arrived: np.ndarray,
    *best_and_test: Any,
    kept: tuple[jax.Array, np.ndarray] | None,
    **options: Any,
) -> metrics.Measured:
    """`metrics.measure` of models on several devices; every process has all of what it finds."""
    return _compiled(metrics.measure, layout.mesh, *options.items())(
        models,
        layout.repeat(layout.blocks.row_of[watched]),
        records,
        layout.place(arrived),
        *map(layout.repeat, best_and_test),
        kept=_kept(kept, layout),
        share=_share(models, layout),
    )


def measure_neural(
    layout: Layout,
    models: jax.Array,
    watched: np.ndarray,
    *test_and_train: Any,
    kept: tuple[jax.Array, np.ndarray] | None,
    **options: Any,
) -> metrics.Measured:
    """The same for `metrics.measure_neural`."""
    return _compiled(metrics.measure_neural, layout.mesh, *options.items())(
        models,
        layout.repeat(layout.blocks.row_of[watched]),
        *jax.tree.map(layout.repeat, test_and_train),
        kept=_kept(kept, layout),
        share=_share(models, layout),
    )


@lru_cache(maxsize=64)
def _compiled(function: Any, mesh: Mesh, *options: tuple[str, Any]) -> Any:
    whole = partial(function.__wrapped__, **dict(options))
    return jax.jit(whole, out_shardings=NamedSharding(mesh, _ALL))


def _kept(kept: tuple[jax.Array, np.ndarray] | None, layout: Layout) -> Any:
    return None if kept is None else (kept[0], layout.repeat(kept[1]))


def _share(models: jax.Array, layout: Layout) -> jax.Array:
    return layout.deal(layout.blocks.share.astype(models.dtype))
