"""Randomness: every key of a run is derived here, from (run seed, agent, step, purpose), and
is used once.

jax's counter-based generator makes each of them independent of how steps are grouped, how many
seeds run side by side, and of resuming.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp

_NOISE, _SAMPLING, _START = 0, 1, 2


def noise_keys(seeds: jax.Array, agents: int) -> jax.Array:
    """One key per (seed, agent) for the noise of a run; `at` gives the key of one step."""
    return _per_agent(seeds, agents, _NOISE)


def start_keys(seeds: jax.Array, agents: int) -> jax.Array:
    """One key per (seed, agent) for a random start."""
    return _per_agent(seeds, agents, _START)


@partial(jax.jit, static_argnums=1)
def sampling_keys(seed: int, agents: int) -> jax.Array:
    """One key per agent for drawing batches; the same for all seeds of a run,
    so that they see the same data.
    """
    run = jax.random.fold_in(jax.random.key(seed, impl="threefry2x32"), _SAMPLING)
    return jax.vmap(lambda agent: jax.random.fold_in(run, agent))(jnp.arange(agents))


def at(key: jax.Array, step: jax.Array) -> jax.Array:
    return jax.random.fold_in(key, step)


@partial(jax.jit, static_argnums=(1, 2))
def _per_agent(seeds: jax.Array, agents: int, purpose: int) -> jax.Array:
    run = jax.vmap(
        lambda seed: jax.random.fold_in(jax.random.key(seed, impl="threefry2x32"), purpose)
    )(seeds)
    return jax.vmap(
        lambda key: jax.vmap(lambda agent: jax.random.fold_in(key, agent))(jnp.arange(agents))
    )(run)
