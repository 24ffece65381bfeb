"""Keys of three kinds: an agent's own, one that two neighbours share, one that everybody has."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hearsay as hs
from hearsay._parts import Keys
from hearsay.base import Algorithm, Message, Noise, Private, State
from hearsay.deploy.deployment import require_deployable
from hearsay.graphs.pairs import edges, slots
from hearsay.privacy.recursion import Release
from hearsay.problems.sampling.samplers import Cyclic, Sampling
from hearsay.schedules import Constant, Schedule
from hearsay.simulation import engine, keys
from hearsay.simulation.rounds import Rounds

GRAPH = hs.graphs.star(5)


@dataclass(frozen=True, kw_only=True)
class PairNoise(Algorithm):
    """DSGD whose noise is made of what neighbours share: one adds it, the other takes it off."""

    channels: ClassVar[dict[str, str]] = {"params": "mixing"}
    keys: ClassVar[tuple[str, ...]] = ("own", "pairs")

    name: str = "pair-noise"
    step: Schedule = Constant(0.1)
    noise: Noise = Constant(1.0)
    mechanism: str = "gaussian"
    sampling: Sampling = field(default_factory=Cyclic)

    def draw(self, key: Keys, params: jax.Array) -> Message:
        shared = jax.vmap(lambda one: self.fresh_noise(one, params))(key.pairs.key)
        return Message(jnp.sum(key.pairs.sign[:, None] * shared, axis=0))

    def prepare(self, state: State, batch: Any, rates: Any):
        return Message(Private(state.params, rates.noise)), state

    def update(self, state, sent, inbox, batch, rates, domain):
        heard = inbox.total.params + inbox.own.params * sent.params
        return State(domain.project(heard - rates.step * batch.gradient(state.params)))

    def leak(self, heard: float) -> Schedule:
        return Constant(1.0)

    def releases(self, agent, curvature):
        return (Release("params", self.noise_for(agent)),)


def problem(agents: int = 5):
    return hs.problems.ridge(agents=agents, records=12, dimension=3, seed=0, radius=3.0)


def test_pairs_are_numbered_by_their_ends():
    assert edges(GRAPH).tolist() == [[0, 1], [0, 2], [0, 3], [0, 4]]
    one_way = hs.graphs.from_weights([[0, 0, 0.2], [0.3, 0, 0], [0, 0.4, 0]])
    assert edges(one_way).tolist() == [[0, 1], [0, 2], [1, 2]]
    assert slots(one_way).tolist() == [[0, 1], [0, 2], [1, 2]]


def test_both_ends_of_an_edge_have_one_key_and_opposite_signs():
    found = keys.of(("own", "pairs"), GRAPH, jnp.asarray([4, 5]))
    data = np.asarray(jax.random.key_data(found.pairs.key))
    sign = np.asarray(found.pairs.sign)
    assert sign[0].tolist() == [[1, 1, 1, 1], *([-1, 0, 0, 0] for _ in range(4))]
    for run in range(2):
        for leaf in range(1, 5):
            np.testing.assert_array_equal(data[run, 0, leaf - 1], data[run, leaf, 0])
    different = np.concatenate(
        [data[0, 0], data[1, 0], jax.random.key_data(found.own).reshape(-1, 2)]
    )
    assert len(np.unique(different, axis=0)) == len(different)
    # The number of a pair's edge does not enter: the same pair in another graph has the same key.
    whole = keys.of(("own", "pairs"), hs.graphs.complete(5), jnp.asarray([4]))
    other = jax.random.key_data(whole.pairs.key)[0, 0]
    np.testing.assert_array_equal(np.asarray(other), data[0, 0])


def test_the_public_key_is_the_same_for_all_agents_and_differs_between_seeds():
    found = keys.of(("own", "public"), GRAPH, jnp.asarray([4, 5]))
    data = np.asarray(jax.random.key_data(found.public.key))
    assert found.pairs is None
    assert (data == data[:, :1]).all()
    assert (data[0, 0] != data[1, 0]).any()
    assert np.asarray(found.public.edges)[1, 3].tolist() == [2, -1, -1, -1]
    assert np.asarray(found.public.count).tolist() == [[4] * 5] * 2


def test_what_is_not_declared_is_not_there():
    """So that the compiled programs of algorithms with keys of their own know nothing of others."""
    setting = engine.surroundings(hs.dsgd(), problem(), GRAPH, [3])
    assert len(jax.tree.leaves((setting.noise_keys, setting.relays))) == 1
    np.testing.assert_array_equal(
        jax.random.key_data(setting.noise_keys.own),
        jax.random.key_data(keys.noise_keys(jnp.asarray([3]), 5)),
    )


def test_other_seeds_on_the_same_graph_are_those_of_a_new_setting():
    kinds = ("own", "pairs", "public")
    new = keys.of(kinds, GRAPH, jnp.asarray([8, 9, 10]))
    again = keys.seeded(keys.of(kinds, GRAPH, jnp.asarray([0])), 5, jnp.asarray([8, 9, 10]))
    for one, two in zip(jax.tree.leaves(new), jax.tree.leaves(again), strict=True):
        same = jax.random.key_data if jnp.issubdtype(one.dtype, jax.dtypes.prng_key) else np.asarray
        np.testing.assert_array_equal(same(one), same(two))


def drawn(seen):
    return seen.draws.params


def test_noise_of_pairs_cancels_in_the_sum_over_agents():
    """To rounding: every pair's noise is added once and taken off once."""
    found = np.asarray(Rounds(PairNoise(), problem(), GRAPH, [0, 1]).advance(6, tap=drawn))
    assert found.shape == (6, 2, 5, 3)
    assert np.abs(found.sum(axis=2)).max() < 1e-13
    # A leaf has one pair: its noise is a standard normal number, taken off at the hub.
    leaves = found[:, :, 1:].reshape(-1)
    assert len(np.unique(leaves)) == len(leaves)
    # 144 of them: their mean square is 1 within 5 standard errors, wrong by chance once in 10^6.
    assert abs(np.mean(leaves**2) - 1) < 5 * np.sqrt(2 / len(leaves))


def test_keys_of_pairs_cannot_be_deployed_yet():
    with pytest.raises(ValueError, match="without keys of pairs, got pair-noise.*simulate it"):
        require_deployable(PairNoise(), GRAPH)


def test_public_coins_of_a_deployed_run_come_from_its_words():
    first, again, other = (keys.public_key(words) for words in ("run 1 a", "run 1 a", "run 2 a"))
    data = [jax.random.key_data(key).tolist() for key in (first, again, other)]
    assert data[0] == data[1] != data[2]
    # Known on every machine: words of the digest, smallest byte first.
    assert keys.public_key("").dtype == keys.of(("own",), GRAPH, jnp.asarray([0])).own.dtype
