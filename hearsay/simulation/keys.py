"""Randomness: every key of a run is derived here, from (run seed, agent, step, purpose), and
is used once.

There are three kinds (`Keys`): an agent's own, one that it shares with each neighbour (from the two
numbers of the pair, the smaller first), and one that everybody has. An algorithm declares what it
uses; what nobody uses is not derived.

jax's counter-based generator makes each of them independent of how steps are grouped, how many
seeds run side by side, and of resuming.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hearsay._parts import Keys, Pairs, Public
from hearsay.graphs import Graph
from hearsay.graphs.pairs import edges, slots

_NOISE, _SAMPLING, _START, _PAIRS, _PUBLIC, _SECRETS, _FAULTS = range(7)
# Noise keys are folded with steps, below 2^31, and from 2^32 downwards with the streams of
# correlated noise (mechanisms/factorized/stream.py): far from both.
_COINS = 3 * 2**30


def of(kinds: Sequence[str], graph: Graph, seeds: jax.Array) -> Keys:
    """The keys of those kinds, every array with leading axes (seed, agent).

    Args:
      kinds: "own", "pairs", "public", as `Algorithm.keys` declares them.
      graph: who hears whom.
      seeds: of the noise.
    """
    pairs = public = None
    if "pairs" in kinds or "public" in kinds:
        mine, ends = slots(graph), edges(graph)
        if "pairs" in kinds:
            side = jnp.where(ends[mine, 0] == jnp.arange(graph.agents)[:, None], 1, -1)
            pairs = Pairs(None, jnp.where(mine < 0, 0, side)[None], jnp.asarray(ends[mine])[None])
        if "public" in kinds:
            count = jnp.full((1, graph.agents), len(ends), jnp.int32)
            public = Public(None, jnp.asarray(mine)[None], count)
    return seeded(Keys(None, pairs, public), graph.agents, seeds)


def seeded(like: Keys, agents: int, seeds: jax.Array) -> Keys:
    """The same kinds of key on the same graph, from other seeds."""
    pairs, public, runs = like.pairs, like.public, len(seeds)
    if pairs is not None:
        ends, sign = _for_all(runs, pairs.ends), _for_all(runs, pairs.sign)
        pairs = Pairs(_pair_keys(seeds, ends), sign, ends)
    if public is not None:
        one = _purposed(seeds, _PUBLIC)
        key = jnp.broadcast_to(one[:, None], (runs, agents))
        public = Public(key, _for_all(runs, public.edges), _for_all(runs, public.count))
    return Keys(noise_keys(seeds, agents), pairs, public)


def stand_in(kinds: Sequence[str], key: jax.Array) -> Any:
    """What `Algorithm.draws` takes, of an agent with one edge in a graph of one: for whoever wants
    to know the shapes of its draws, and nothing about a run.
    """
    one = jnp.zeros(1, jnp.int32)
    pairs = Pairs(key[None], one + 1, jnp.zeros((1, 2), jnp.int32)) if "pairs" in kinds else None
    public = Public(key, one, one[0] + 1) if "public" in kinds else None
    return Keys(key, pairs, public).given


def _for_all(runs: int, fact: jax.Array) -> jax.Array:
    return jnp.broadcast_to(fact[:1], (runs, *fact.shape[1:]))


@jax.jit
def _pair_keys(seeds: jax.Array, ends: jax.Array) -> jax.Array:
    def one(run: jax.Array, pair: jax.Array) -> jax.Array:
        return jax.random.fold_in(jax.random.fold_in(run, pair[0]), pair[1])

    every = jax.vmap(jax.vmap(one, in_axes=(None, 0)), in_axes=(None, 0))
    return jax.vmap(every)(_purposed(seeds, _PAIRS), ends)


@partial(jax.jit, static_argnums=1)
def _purposed(seeds: jax.Array, purpose: int) -> jax.Array:
    return jax.vmap(
        lambda seed: jax.random.fold_in(jax.random.key(seed, impl="threefry2x32"), purpose)
    )(seeds)


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


def coin_keys(own: jax.Array) -> jax.Array:
    """For every noise key one for the coins of secret batches, of which each seed has its own
    (`Sampling.per_seed`); `at` gives the key of one step.
    """
    one = partial(jax.random.fold_in, data=_COINS)
    return jax.vmap(one)(own.ravel()).reshape(own.shape)


@jax.jit
def secret_keys(seeds: jax.Array, ends: jax.Array) -> jax.Array:
    """One key per (seed, pair) for the noise that the two agents share; `at` gives the key of one
    step.

    Args:
      ends: (pair, 2), the smaller and the larger agent.
    """

    def one(run: jax.Array, pair: jax.Array) -> jax.Array:
        return jax.random.fold_in(jax.random.fold_in(run, pair[0]), pair[1])

    return jax.vmap(jax.vmap(one, in_axes=(None, 0)), in_axes=(0, None))(
        _purposed(seeds, _SECRETS), ends
    )


def fault_key(seed: int, purpose: int) -> jax.Array:
    """What the faults of a network are drawn from; `at` gives the key of one step."""
    run = jax.random.fold_in(jax.random.key(seed, impl="threefry2x32"), _FAULTS)
    return jax.random.fold_in(run, purpose)


def public_key(words: str) -> jax.Array:
    """The key of public coins that everybody finds from the same words."""
    digest = hashlib.sha256(f"hearsay public coins {words}".encode()).digest()
    data = jnp.asarray(np.frombuffer(digest[:8], np.dtype("<u4")).astype(np.uint32))
    return jax.random.wrap_key_data(data, impl="threefry2x32")


def at(key: Any, step: Any) -> Any:
    """What `Algorithm.draw` takes in that step: of an agent's own key, or of its `Keys`."""
    return key.at(step).given if isinstance(key, Keys) else jax.random.fold_in(key, step)


@partial(jax.jit, static_argnums=(1, 2))
def _per_agent(seeds: jax.Array, agents: int, purpose: int) -> jax.Array:
    run = jax.vmap(
        lambda seed: jax.random.fold_in(jax.random.key(seed, impl="threefry2x32"), purpose)
    )(seeds)
    return jax.vmap(
        lambda key: jax.vmap(lambda agent: jax.random.fold_in(key, agent))(jnp.arange(agents))
    )(run)
