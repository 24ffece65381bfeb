"""Asynchronous gossip: one edge at a time, from a coin that everybody sees."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import hearsay as hs
from hearsay.audit.distinguish import distinguish
from hearsay.audit.overhear import unfollowed
from hearsay.audit.residuals import residuals
from hearsay.base import Message
from hearsay.certification.describing import rounded
from hearsay.deploy.inbox import Listener
from hearsay.deploy.privatize import Lattice
from hearsay.deploy.steps import Steps
from hearsay.graphs.channels import channel, mixer
from hearsay.graphs.pairs import edges
from hearsay.privacy.verification import verify_text
from hearsay.problems import Ball, Squared
from hearsay.simulation import engine
from hearsay.simulation.rounds import Rounds
from tests.factories import holding, keys_of, uniform

STAR, TICKS = hs.graphs.star(5), 40


def problem():
    return hs.problems.ridge(agents=5, records=12, dimension=3, seed=0, radius=3.0)


def watched(seen):
    return seen.draws, seen.sent.params, seen.states.params, seen.states.scale


@pytest.fixture(scope="module")
def rounds():
    """What was seen of 40 ticks of two seeds on a star, each array (tick, seed, agent, ...)."""
    network = Rounds(hs.asynchronous_gossip(noise=0.5), problem(), STAR, [0, 1])
    return jax.tree.map(np.asarray, network.advance(TICKS, tap=watched))


def test_the_two_ends_of_one_edge_are_awake_and_all_agents_know_which(rounds):
    draws, sent, states, scale = rounds
    assert (draws.edge == draws.edge[:, :, :1]).all()
    ends = edges(STAR)[(draws.edge[:, :, 0] * 4).astype(int)]
    for tick, seed in np.ndindex(TICKS, 2):
        awake = np.flatnonzero(draws.asleep[tick, seed] == 0)
        assert awake.tolist() == ends[tick, seed].tolist()
        asleep = np.setdiff1d(np.arange(5), awake)
        assert not sent[tick, seed, asleep].any()
        if tick + 1 < TICKS:
            for kept in (states, scale):
                np.testing.assert_array_equal(
                    kept[tick, seed, asleep], kept[tick + 1, seed, asleep]
                )
            assert (scale[tick + 1, seed, awake] == np.float64(0.05) * 0.5).all()
    assert (draws.edge[:, 0, 0] != draws.edge[:, 1, 0]).all()


def test_every_edge_wakes_equally_often():
    """2,000 ticks on ten edges: a chi-square test that fails by chance once in 10^6 seeds."""
    algorithm, graph = hs.asynchronous_gossip(), hs.graphs.complete(5)
    own = keys_of(algorithm, graph, agent=2, seed=7)
    coins = np.asarray(algorithm.draws(own, jnp.arange(2000), jnp.zeros(1), ()).edge)
    counts = np.bincount((coins * 10).astype(int), minlength=10)
    assert stats.chisquare(counts).pvalue > 1e-6


def test_both_ends_go_on_from_the_average():
    """Without gradients: models of a run by hand, mean kept, and agents come together."""
    start = np.random.default_rng(0).normal(size=(2, 5, 3))
    network = Rounds(hs.asynchronous_gossip(noise=None, step=0.0), problem(), STAR, [3, 4])
    network.carry = engine.begin(network.program, network.setting.records, jnp.asarray(start))
    draws, *_ = network.advance(TICKS, tap=watched)
    ends = edges(STAR)[(np.asarray(draws.edge)[:, 0, 0] * 4).astype(int)]
    models = start[0].copy()
    for pair in ends:
        models[pair] = models[pair].mean(axis=0)
    np.testing.assert_allclose(network.models[0], models, atol=1e-13)
    np.testing.assert_allclose(models.mean(axis=0), start[0].mean(axis=0), atol=1e-13)
    assert np.ptp(models, axis=0).max() < 0.2 * np.ptp(start[0], axis=0).max()


def test_the_certificate_counts_every_tick_and_says_so(rounds):
    """Half the ticks of the hub's neighbours cost them nothing: what was used under these coins is
    below the certificate, which holds for all coins.
    """
    algorithm = hs.asynchronous_gossip(noise=0.5, mechanism="laplace", sampling=hs.Fresh())
    data = hs.problems.ridge(agents=5, records=60, dimension=3, seed=0, radius=3.0)
    found = hs.certify(algorithm, data, STAR, TICKS)
    assert "every tick is counted as if the agent were awake" in " ".join(str(found).split())
    # One record per tick, each used once: a use costs sqrt(d) C / b, and only where it is awake.
    once = np.sqrt(3) * data.change / 0.5
    assert found.epsilon == pytest.approx([once] * 5)
    _, verdict = verify_text(found.to_json())
    assert verdict.holds
    awake = 1 - rounds[0].asleep[:, 0]
    assert awake.sum() == 2 * TICKS
    assert (awake.sum(axis=0)[1:] < TICKS / 2).all()


@pytest.mark.parametrize("graph", [STAR, hs.graphs.ring(5)], ids=lambda g: g.name)
def test_a_deployed_agent_hears_what_the_engine_says(graph):
    """On every edge, to the last bit; a missing message is left out with its weight."""
    values, ends = np.random.default_rng(0).normal(size=(5, 3)), edges(graph)
    algorithm, all_ = hs.asynchronous_gossip(), mixer(graph, "waking", jnp.dtype(float))
    for number, pair in enumerate(ends):
        public = np.float64((number + 0.5) / len(ends))
        told = engine.heard([all_], Message(jnp.asarray(values)), public)
        for agent in range(5):
            listen = Listener(algorithm, graph, agent, 100.0, Message, np.float64)
            heard = {j: {"params": values[j]} for j in listen.hears}
            _, inbox = listen({"params": values[agent]}, heard, public)
            np.testing.assert_array_equal(inbox.total.params, told.total.params[agent])
            assert inbox.own.params == told.own.params[agent] == (0.5 if agent in pair else 1.0)
            _, alone = listen({"params": values[agent]}, {}, public)
            assert alone.own.params == 1.0 and not alone.total.params.any()
            assert set(channel("waking").row_at(graph, agent, public)) <= set(listen.hears)


def test_deployed_agents_share_the_coin_and_nothing_else():
    data, algorithm = problem(), hs.asynchronous_gossip(noise=1.0)
    steps = [Steps(algorithm, data.task, data.records.of(i), i, STAR) for i in range(5)]
    noises = [Lattice(one, {}, "run digest") for one in steps]
    carries, again = [one.start() for one in steps], Lattice(steps[0], {}, "another digest")
    coins = [[float(noise.coin(step)) for step in range(6)] for noise in noises]
    assert all(found == coins[0] for found in coins)
    assert [float(again.coin(step)) for step in range(6)] != coins[0]
    for step in range(6):
        ends = edges(STAR)[int(coins[0][step] * 4)]
        for agent in range(5):
            _, carries[agent] = noises[agent].message(step, carries[agent])
            assert float(carries[agent].states.asleep) == (agent not in ends)


def test_the_price_of_rounding_knows_the_weights_of_an_awake_edge():
    """They are 1/2 and 1/2, however small the graph's own are."""
    graph = hs.graphs.ring(5, weight=0.001)
    assert rounded(hs.asynchronous_gossip(), problem().task, graph, 0, 1.0).weight == 1.0
    assert rounded(hs.adp2sgd(), problem().task, graph, 0, 1.0).weight < 0.01


@pytest.mark.slow
def test_audits_find_nothing_beyond_the_certificate():
    """If the certificate holds, this fails with probability 1e-3 at most; the seed is fixed."""
    graph = hs.graphs.ring(3, weight=0.3)
    data = holding(Squared(1.0, 0.1, 1.0, 1.0), *uniform(3, 12, 1), Ball(50.0))
    algorithm = hs.asynchronous_gossip(step=0.5, noise=2.0, mechanism="laplace")
    found = distinguish(algorithm, data, graph, agent=1, steps=4, runs=1000, error=1e-3)
    assert found.holds


@pytest.mark.slow
def test_the_noise_in_its_messages_is_what_the_certificate_counts():
    """A false alarm in 1,000 seeds; the seed is fixed."""
    algorithm = hs.asynchronous_gossip(noise=0.5)
    assert residuals(algorithm, problem(), STAR, steps=6, runs=200, level=1e-3).holds


def test_who_replays_messages_with_fixed_weights_refuses():
    assert unfollowed(hs.asynchronous_gossip(), STAR)
    assert unfollowed(hs.weighted_erm(averaging=1), STAR)
    assert not unfollowed(hs.weighted_erm(), STAR)


def test_edges_must_go_both_ways():
    one_way = hs.graphs.from_weights(np.roll(np.eye(5), 1, axis=0) * 0.3)
    with pytest.raises(ValueError, match="weights must be symmetric"):
        hs.certify(hs.asynchronous_gossip(), problem(), one_way, 5, delta=1e-5)
