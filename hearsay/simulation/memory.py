"""Where a run computes, how much memory it takes there, and networks cut to fit it: into groups of
agents (groups.py), and into microbatches of records where one agent's do not fit either.
"""

from __future__ import annotations

import os
from dataclasses import replace

import jax
import numpy as np

from hearsay import _validate as require
from hearsay.base import Algorithm
from hearsay.graphs import Graph
from hearsay.problems.losses import per_record
from hearsay.problems.losses.neural_loss import NeuralLoss
from hearsay.problems.problem import Problem
from hearsay.simulation.engine import together
from hearsay.simulation.groups import COPIES, most_at_once
from hearsay.simulation.layout import Layout

# Of the free memory, for the gradients of a microbatch: on a CPU the compiler keeps more than an
# estimate sees, and where many networks are computed at once far less (measured).
_SHARE, _SHARE_TOGETHER = 0.25, 2.0
# For those of a group of agents, and how many bytes keep any device busy: larger groups are no
# faster.
_SHARE_GROUP, _BUSY = 0.5, 16 << 30


def choose(name: str) -> None:
    """Compute on the first device of that kind: "cpu" or "gpu"."""
    require.one_of("device", name, ["cpu", "gpu"])
    try:
        # Of this process, where there are several.
        found = jax.local_devices(backend=name)
    except RuntimeError as error:
        here = ", ".join(sorted({device.platform for device in jax.devices()}))
        raise ValueError(
            f"device must be one that jax finds on this machine ({here}), got {name!r}: {error}"
        ) from error
    jax.config.update("jax_default_device", found[0])


def free_bytes() -> int:
    """Memory that the device has left, as far as it says."""
    device = jax.local_devices()[0]
    stats = (device.memory_stats() or {}) if device.platform != "cpu" else {}
    if "bytes_limit" in stats:
        return int(stats["bytes_limit"] - stats.get("bytes_in_use", 0))
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def widest(algorithm: Algorithm, problem: Problem) -> int:
    """The most records that one gradient is computed from at once."""
    return algorithm.sampling.width(problem.most, problem.arrivals)


def record_bytes(problem: Problem) -> int:
    """What one record's gradient takes, about."""
    loss = problem.loss
    assert isinstance(loss, NeuralLoss)
    if loss.model.host is not None:
        return loss.model.host.record_bytes(problem.shape, problem.dtype)
    vector = jax.ShapeDtypeStruct((problem.dimension,), problem.dtype)
    params = jax.eval_shape(loss.model.unravel, vector)
    feature = jax.ShapeDtypeStruct(
        problem.shape,
        np.dtype(np.uint8) if problem.bytes else problem.dtype,
    )
    summed = loss.clip is None and together()
    estimate = per_record.added_bytes if summed else per_record.record_bytes
    return estimate(loss.value, params, feature, jax.ShapeDtypeStruct((), problem.dtype))


@require.plain_arguments
def fitted(
    algorithm: Algorithm, problem: Problem, free: int | None = None, seeds: int = 1
) -> Problem:
    """The problem with groups and a microbatch that fit into memory, unless it has them:
    a neural network holds a gradient for every record of it and, where networks are computed side
    by side, for every agent of a group and every seed.
    """
    loss, free = problem.loss, free_bytes() if free is None else free
    if not isinstance(loss, NeuralLoss):
        return problem
    group = loss.group or _fitting_group(algorithm, problem, free, seeds)
    if group != loss.group:
        loss = replace(loss, group=group)
        problem = replace(problem, loss=loss)
    if loss.microbatch is not None:
        return problem
    share = _SHARE_TOGETHER if together() else _SHARE
    most = per_record.fitting_microbatch(
        _at_once(problem, seeds) * record_bytes(problem), int(share * free)
    )
    wide = widest(algorithm, problem)
    return problem if most >= wide else replace(problem, loss=replace(loss, microbatch=most))


def _fitting_group(algorithm: Algorithm, problem: Problem, free: int, seeds: int) -> int | None:
    """The most agents whose gradients fit, at least 1; None where all do."""
    if not _divisible(problem):
        return None
    each = seeds * widest(algorithm, problem) * record_bytes(problem)
    most = max(1, int(min(_SHARE_GROUP * free, _BUSY)) // each)
    return None if most >= problem.agents else most


def _divisible(problem: Problem) -> bool:
    """There are groups of agents on accelerators, where agents are many."""
    return together() and problem.agents > COPIES


def _at_once(problem: Problem, seeds: int) -> int:
    """Networks that are computed at once."""
    return _group(problem) * seeds if together() else 1


def _group(problem: Problem) -> int:
    """How many agents are computed at once."""
    return min(most_at_once(problem.loss) or problem.agents, problem.agents)


def halved(problem: Problem, algorithm: Algorithm) -> tuple[Problem, str] | None:
    """The problem in groups of half the size or, where a group is one agent, with half the
    microbatch, and what it is now in words; None where it cannot be halved.
    """
    loss = problem.loss
    if not isinstance(loss, NeuralLoss):
        return None
    if _divisible(problem) and (group := _group(problem) // 2):
        smaller = replace(problem, loss=replace(loss, group=group))
        return smaller, f"groups of {group} agent{'' if group == 1 else 's'}"
    now = (loss.microbatch or widest(algorithm, problem)) // 2
    if not now:
        return None
    return replace(problem, loss=replace(loss, microbatch=now)), f"microbatches of {now}"


@require.plain_arguments
def summary(
    algorithm: Algorithm,
    problem: Problem,
    graph: Graph,
    seeds: int = 1,
    layout: Layout | None = None,
) -> str:
    """One line: what will run, where, and the memory that it needs."""
    device = jax.devices()[0]
    where = f"{device.platform} device ({device.device_kind})" if layout is None else str(layout)
    itemsize = problem.dtype.itemsize
    data = problem.features.size * (1 if problem.bytes else itemsize)
    state = graph.agents * problem.dimension * itemsize
    text = (
        f"{algorithm.name} on {problem.name}: {graph.agents} agents ({graph.name}, {graph.edges}"
        f" messages a round), {problem.dimension:,} parameters; {where},"
        f" {itemsize * 8}-bit, data {_size(data)}, {_size(state)} per state"
    )
    if isinstance(problem.loss, NeuralLoss):
        at_once = min(
            problem.loss.microbatch or widest(algorithm, problem), widest(algorithm, problem)
        )
        # States, messages, noise, the updated states and two averages of messages of every seed,
        # and the gradients of a microbatch.
        needed = (
            data + 6 * seeds * state + at_once * _at_once(problem, seeds) * record_bytes(problem)
        )
        of = f" of {_group(problem)} agents" if _group(problem) < problem.agents else ""
        text += (
            f", about {_size(needed)} in all with the gradients of {at_once} records{of} at once"
            f" (free: {_size(free_bytes())})"
        )
    return text + (
        f". {type(problem.loss).__name__}: {problem.loss.note}" if problem.loss.note else ""
    )


def _size(count: float) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.2f} MiB"
