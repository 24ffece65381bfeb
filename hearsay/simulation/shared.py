"""The noise that pairs of agents share, in a simulation (graphs/secrets.py).

All agents' noise of a round, own and shared, is one Gaussian vector per coordinate. There are two
ways to draw it, of the same joint law:

`Mixed`, which runs have unless there are very many agents: M times the agents' own draws, with
M M' = the covariance of all noise, and rows of M that sum up to the own scales, so that the sum
over all agents is that of their own noise alone, but for rounding. It takes no further draws.

`PairNoise`, which tells the secrets apart, for audits, rehearsals and very many agents: a pair's
noise is what `Algorithm.draws` makes of the pair's key, a field and a step. At the pair's smaller
end it is added, at the larger one subtracted, in units of each end's own noise.

Where noise is correlated over time, both apply to the streams of it: mixing agents and mixing times
commute, so that own and shared noise have the same factorization.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hearsay.base import Algorithm, Keys
from hearsay.graphs.halo import AXIS
from hearsay.privacy.coalitions import Shared
from hearsay.simulation import keys

# Of the pairs' noise that is held at once.
_BYTES, _CPU_BYTES = 2**28, 8 * 2**20
# Up to so many agents a product with a matrix of signs adds up faster than single additions.
_DENSE = 64
# Up to so many agents their noise is mixed in one product.
MIXED = 1024


class PairNoise(NamedTuple):
    """What the noise of pairs is drawn from.

    Args:
      key: (seed, pair), of all rounds.
      ends: (pair, 2), the agents of each, the smaller first.
      weights: (pair, 2), what a draw of scale 1 is multiplied by at either end: the sign, and the
        pair's scale over the agent's own.
    """

    key: jax.Array
    ends: jax.Array
    weights: jax.Array


class Mixed(NamedTuple):
    """How agents' draws become noise that they partly share.

    Args:
      matrix: M, (agent, agent), in units of each agent's own noise.
    """

    matrix: jax.Array


class MixedRows(NamedTuple):
    """The same where agents are on several devices.

    Args:
      matrix: the rows of M of the device's own agents, a column for every row of all devices.
    """

    matrix: jax.Array


Sharing = PairNoise | Mixed | MixedRows | tuple[()]


def of(
    algorithm: Algorithm, agents: int, seeds: Any, dtype: Any, *, apart: bool = False
) -> Sharing:
    """What the agents of a run share; () where they share nothing.

    Args:
      apart: with every pair's noise by itself.
    """
    shared = algorithm.shared(agents)
    if shared is None:
        return ()
    if agents <= MIXED and not apart:
        return Mixed(jnp.asarray(mixing_matrix(shared), dtype))
    ends = jnp.asarray(shared.ends(), jnp.int32)
    signed = shared.weights() * np.array([1.0, -1.0])
    return PairNoise(keys.secret_keys(jnp.asarray(seeds), ends), ends, jnp.asarray(signed, dtype))


def seeded(pairs: Sharing, seeds: jax.Array) -> Sharing:
    """The same, with noise from other seeds."""
    if not isinstance(pairs, PairNoise):
        return pairs
    return pairs._replace(key=keys.secret_keys(seeds, pairs.ends))


def known_to(pairs: PairNoise, members: Sequence[int]) -> PairNoise:
    """The pairs of which at least one agent is among the members."""
    theirs = np.flatnonzero(np.isin(np.asarray(pairs.ends), members).any(axis=1))
    return PairNoise(pairs.key[:, theirs], pairs.ends[theirs], pairs.weights[theirs])


def alone(algorithm: Algorithm, draws: Any, *args: Any) -> Any:
    """What pairs add to draws (step, seed, agent, ...), by itself; arguments as for `added`."""
    return added(algorithm, jax.tree.map(jnp.zeros_like, draws), *args)


@lru_cache(maxsize=64)
def mixing_matrix(shared: Shared) -> np.ndarray:
    """M of `Mixed`: a root of the covariance, turned so that its columns sum up to the own scales.

    Example:
      >>> both = mixing_matrix(Shared(2, (3.0,)))
      >>> (both @ both.T).round(6).tolist(), both.sum(axis=0).round(6).tolist()
      ([[10.0, -9.0], [-9.0, 10.0]], [1.0, 1.0])
    """
    agents, ends = shared.agents, shared.ends()
    scales = np.broadcast_to(np.asarray(shared.scales, dtype=float), (agents,))
    loud = (shared.weights()[:, 0] * scales[ends[:, 0]]) ** 2
    covariance = np.diag(scales**2)
    np.add.at(covariance, (ends, ends), loud[:, None])
    np.add.at(covariance, (ends[:, 0], ends[:, 1]), -loud)
    np.add.at(covariance, (ends[:, 1], ends[:, 0]), -loud)
    values, vectors = np.linalg.eigh(covariance)
    root = (vectors * np.sqrt(values)) @ vectors.T
    # A reflection takes the sums of the columns to the own scales: both have the same length, but
    # for rounding beside loud shared noise, which would turn everything round.
    sums = root.sum(axis=0)
    turned = sums - scales * (np.linalg.norm(sums) / np.linalg.norm(scales))
    length = float(turned @ turned)
    if length > 1e-16 * float(scales @ scales):
        root = root - np.outer(root @ turned, turned) * (2 / length)
    return root / scales[:, None]


def added(
    algorithm: Algorithm,
    draws: Any,
    pairs: Sharing,
    steps: jax.Array,
    params: jax.Array,
    constants: Any,
) -> Any:
    """Draws (step, seed, agent, ...) with every pair's noise, where it is drawn by itself."""
    if not isinstance(pairs, PairNoise):
        return draws
    names = noise_names(algorithm)
    own = tuple(getattr(draws, name) for name in names)
    count = len(pairs.ends)
    once = _at_once(_size(own[0]), count)
    blocks = -(-count // once)
    padded = _padded(pairs._replace(key=pairs.key.T), blocks * once)
    chunks = jax.tree.map(lambda x: x.reshape(blocks, once, *x.shape[1:]), padded)

    def one(key: jax.Array) -> tuple[jax.Array, ...]:
        found = algorithm.draws(Keys(key).given, steps, params, constants)
        return tuple(getattr(found, name) for name in names)

    def add(total: tuple, chunk: PairNoise) -> tuple[tuple, None]:
        # (step, seed, pair, ...)
        noise = jax.vmap(jax.vmap(one, out_axes=1), in_axes=1, out_axes=1)(chunk.key)
        return tuple(_spread(t, v, chunk) for t, v in zip(total, noise, strict=True)), None

    total, _ = jax.lax.scan(add, own, chunks)
    return draws._replace(**dict(zip(names, total, strict=True)))


def mixed(algorithm: Algorithm, draws: Any, pairs: Sharing) -> Any:
    """Draws (agent, ...) of one step and seed with what is shared, where they are mixed.

    It is done step by step: a product over a whole block would move its axes in memory.
    """
    if not isinstance(pairs, (Mixed, MixedRows)):
        return draws
    own = {name: getattr(draws, name) for name in noise_names(algorithm)}
    if isinstance(pairs, MixedRows):
        own = {name: jax.lax.all_gather(noise, AXIS, tiled=True) for name, noise in own.items()}
    return draws._replace(**{name: pairs.matrix @ noise for name, noise in own.items()})


def _spread(total: jax.Array, noise: jax.Array, chunk: PairNoise) -> jax.Array:
    """Every pair's noise at its two ends."""
    agents = total.shape[2]
    if agents <= _DENSE:
        here = jax.nn.one_hot(chunk.ends, agents, dtype=total.dtype)
        signs = jnp.einsum("pe,pea->ap", chunk.weights, here)
        return total + jnp.einsum("ap,tsp...->tsa...", signs, noise)
    for end in (0, 1):
        weight = chunk.weights[:, end].reshape(-1, *(1 for _ in noise.shape[3:]))
        total = total.at[:, :, chunk.ends[:, end]].add(weight * noise)
    return total


def of_agent(
    algorithm: Algorithm,
    own: Any,
    pairs: Sharing,
    agent: jax.Array,
    steps: jax.Array,
    params: jax.Array,
    constants: Any,
) -> Any:
    """The same for one agent by itself, as a deployed rehearsal has it.

    Args:
      own: the agent's own draws, (step, ...).
      pairs: those of the agent, `mine`.
    """
    if not isinstance(pairs, PairNoise):
        return own
    names = noise_names(algorithm)
    found = {name: getattr(own, name) for name in names}
    for number in range(len(pairs.ends)):
        drawn = algorithm.draws(Keys(pairs.key[number]).given, steps, params, constants)
        weight = jnp.where(pairs.ends[number, 0] == agent, *pairs.weights[number])
        for name in names:
            found[name] = found[name] + weight * getattr(drawn, name)
    return own._replace(**found)


def mine(algorithm: Algorithm, agents: int, agent: int, seed: int, dtype: Any) -> Sharing:
    """The pairs of one agent, of one seed."""
    every = of(algorithm, agents, [seed], dtype, apart=True)
    if not isinstance(every, PairNoise):
        return ()
    here = np.flatnonzero((np.asarray(every.ends) == agent).any(axis=1))
    return PairNoise(every.key[0, here], every.ends[here], every.weights[here])


def noise_names(algorithm: Algorithm) -> list[str]:
    """The message fields that carry noise."""
    return [name for name in algorithm.channels if name not in algorithm.coins]


def _size(own: jax.Array) -> int:
    """Bytes of one pair's noise of a field."""
    return max(1, own.size // own.shape[2] * own.dtype.itemsize)


def _at_once(size: int, count: int) -> int:
    budget = _CPU_BYTES if jax.devices()[0].platform == "cpu" else _BYTES
    return max(1, min(count, budget // size))


def _padded(pairs: PairNoise, length: int) -> PairNoise:
    """With pairs that nobody hears, up to that many."""
    missing = length - len(pairs.ends)
    if not missing:
        return pairs
    again = jax.tree.map(lambda x: jnp.concatenate([x, x[:1].repeat(missing, axis=0)]), pairs)
    return again._replace(weights=again.weights.at[len(pairs.ends) :].set(0))
