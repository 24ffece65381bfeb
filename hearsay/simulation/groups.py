"""Networks of many agents: a loop over groups of agents, with one group's program inside.

Copies of an agent's program, one for each, take a compiler as long as there are agents. A loop has
the program once: compiling a thousand agents takes as long as compiling one group of them.

On a CPU a group is one agent, whose work fills the cores. On an accelerator the agents of a group
are computed side by side (side_by_side.py), and there are as many in it as the device's memory
suffices for and its kernels can use (memory.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from hearsay import _validate as require
from hearsay.problems.losses.loss import Loss
from hearsay.problems.losses.neural_loss import NeuralLoss
from hearsay.simulation.side_by_side import side_by_side

# Up to so many agents have a copy of the program each on a CPU, and are one group elsewhere.
COPIES = 8


@require.plain_arguments
def in_groups(function: Callable, size: int | None) -> Callable:
    """Like `jax.vmap`, but so many at a time, in as even groups as there can be.

    Args:
      function: of one agent's arrays.
      size: the most agents that are computed at once; None: all of them.
    """
    each = alone(function) if size == 1 else side_by_side(function)

    def run(*args: Any) -> Any:
        agents = len(jax.tree.leaves(args)[0])
        if size is None or size >= agents:
            return each(*args)
        groups = -(-agents // size)
        width = -(-agents // groups)

        def one(start: jax.Array) -> Any:
            return each(*jax.tree.map(lambda x: lax.dynamic_slice_in_dim(x, start, width), args))

        # The last group is moved back to end with the last agent: some are computed twice.
        starts = jnp.minimum(jnp.arange(groups, dtype=jnp.int32) * width, agents - width)
        return jax.tree.map(lambda x: _joined(x, agents), lax.map(one, starts))

    return run


def most_at_once(loss: Loss) -> int | None:
    """How many agents' gradients an accelerator may compute at once; None: everybody's."""
    return loss.group if isinstance(loss, NeuralLoss) else None


def alone(function: Callable) -> Callable:
    """The function of a group that is one agent."""

    def run(*args: Any) -> Any:
        found = function(*jax.tree.map(lambda x: x[0], args))
        return jax.tree.map(lambda x: jnp.asarray(x)[None], found)

    return run


def _joined(found: jax.Array, agents: int) -> jax.Array:
    """(group, agent of it, ...) as (agent, ...)."""
    groups, width, *rest = found.shape
    if groups * width == agents:
        return found.reshape(agents, *rest)
    before = found[:-1].reshape((groups - 1) * width, *rest)
    return jnp.concatenate([before, found[-1, groups * width - agents :]])
