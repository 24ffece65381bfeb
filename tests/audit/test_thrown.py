"""Coins thrown by hand (audit/secret_batches.py): what an algorithm of one's own, or a sampler, can
let a record show beside its coin is refused, and what is right passes. No chance is involved.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, final

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hearsay as hs
from hearsay.algorithms.noisy_gradient import NoisyGradient
from hearsay.audit.secret_batches import _graph as graph_of
from hearsay.audit.secret_batches import small, throw
from hearsay.base import Message
from hearsay.problems import Squared
from hearsay.problems.sampling.batches import Batch
from hearsay.problems.sampling.samplers import Poisson, Subset

STAR = hs.graphs.star(4)


class Keeping(NamedTuple):
    params: Any
    scale: Any
    memory: Any


def honest(batch, own, memory):
    return batch.gradient(own), memory


@final
@dataclass(frozen=True, kw_only=True)
class Teller(NoisyGradient):
    """A noisy gradient step with whatever `told` makes of a batch in the place of the gradient."""

    amplifies: ClassVar[bool] = True

    name: str = "teller"
    step: hs.Constant = hs.Constant(0.3)
    noise: hs.Constant = hs.Constant(1.0)
    mechanism: str = "gaussian"
    sampling: Any = Poisson(0.5)
    told: Callable = honest

    def init(self, params):
        return Keeping(params, jnp.zeros((), params.dtype), jnp.zeros((), params.dtype))

    def update(self, state, sent, inbox, batch, rates, domain):
        own = domain.project(sent.params)
        found, memory = self.told(batch, own, state.memory)
        moved = domain.project(own - rates.step * found)
        return Keeping(moved, rates.step * rates.noise, memory)


# Half a gradient leaves room below what a record may do: a cheat moves no message too far.


def half(batch, own):
    return 0.5 * batch.gradient(own)


def unweighted(batch, own, memory):
    """The longest of all rows, in whatever slot, without the weights."""
    return half(batch, own) + 0.01 * jnp.max(jnp.abs(batch.rows()[0])), memory


def mean_of_slots(batch, own, memory):
    return half(batch, own) + 0.01 * jnp.mean(batch.rows()[0]), memory


def number_drawn(batch, own, memory):
    return half(batch, own) + 0.01 * (batch.weights > 0).sum(), memory


def by_slot(batch, own, memory):
    """Later slots count less."""
    weights = batch.weights * jnp.linspace(1.0, 0.9, len(batch.weights))
    return batch.loss.gradient_sum(own, *batch.rows(), weights), memory


def last_place(batch, own, memory):
    """Of a batch in order, one place alone."""
    features, labels = batch.rows()
    found = batch.loss.gradient_sum(own, features[-1:], labels[-1:], jnp.ones(1, own.dtype))
    return 0.5 * found, memory


def captured(batch, own, memory):
    """All records of the agent, out of the function that takes blocks of them."""
    take = getattr(batch, "take", None)
    cells = [c.cell_contents for c in take.__closure__] if take else []
    seen = sum(jnp.sum(c.features) for c in cells if hasattr(c, "features"))
    return half(batch, own) + 0.01 * seen, memory


def momentum(batch, own, memory):
    """So faint that no bound is passed."""
    return half(batch, own) + 1e-12 * memory, batch.gradient(own).sum() + 0.5 * memory


def own_clip(batch, own, memory):
    """Clipped at the longest gradient so far."""
    found = half(batch, own)
    clip = jnp.maximum(memory, jnp.linalg.norm(found) / 2)
    return found * jnp.minimum(1, clip / (jnp.linalg.norm(found) + 1e-9)), clip


def warm_start(batch, own, memory):
    """The first batch stays."""
    first = jnp.where(memory == 0, half(batch, own).sum(), memory)
    return half(batch, own) + 1e-3 * first, first


def seen_before(batch, own, memory):
    """More of a record that was in an earlier batch, of those that are like one of the two: no coin
    alone shows it.
    """
    like = batch.rows()[0][:, 0] * batch.rows()[1] * (batch.weights > 0)
    here = (jnp.max(like) > 1.99).astype(own.dtype)
    return half(batch, own) * (1 + 0.1 * memory * here), jnp.maximum(memory, here)


def second_number(batch, own, memory):
    """The number of records drawn, in messages of two numbers or more."""
    found = half(batch, own)
    return found.at[1:].add(0.01 * (batch.weights > 0).sum()), memory


@dataclass(frozen=True)
class Padded(Poisson):
    """All records in every batch; those whose coins have not fallen have weight 0."""

    def batch(self, state, loss, records, step, window, arrivals, key):
        words = self.coins(key, records) if not hasattr(key, "values") else key
        fell = words.values <= np.uint32(int(self.rate * 2**32) - 1)
        share = 1 / (self.rate * records.held.astype(records.dtype))
        weights = jnp.where(fell, share, 0).astype(records.dtype)
        return Batch(records.features, records.labels, weights, loss), state


@dataclass(frozen=True)
class DrawnMean(Poisson):
    """The sum is divided by the number of records that were drawn."""

    def batch(self, state, loss, records, step, window, arrivals, key):
        batch, state = super().batch(state, loss, records, step, window, arrivals, key)
        filled = (batch.weights > 0).astype(batch.weights.dtype)
        return Batch(
            batch.features, batch.labels, filled / jnp.maximum(1, filled.sum()), loss
        ), state


def secret(sampling=Poisson(0.5), **options):
    return hs.gradient_perturbation(
        step=0.3, coupling=0.3, noise=1.0, mechanism="gaussian", sampling=sampling, **options
    )


@pytest.mark.parametrize("adjacency", ["zero-out", "replace"])
@pytest.mark.parametrize("sampling", [Poisson(0.5), Subset(3)], ids=["poisson", "subset"])
def test_a_coin_moves_one_message_as_far_as_it_may(sampling, adjacency):
    found = throw(secret(sampling), small(adjacency), STAR, agent=1)
    assert found.holds and found.empty == pytest.approx(0, abs=1e-12)
    # The change of a replaced record is a bound that no two records of this loss reach.
    least = 1 - 1e-9 if isinstance(sampling, Poisson) else 0.7
    assert least <= found.shift <= 1 + 1e-9
    # A gradient is sent with the next message; the last one is never sent.
    np.testing.assert_array_equal(found.moved, np.eye(5, k=1, dtype=bool))


def test_what_is_not_amplified_has_no_coins_to_throw():
    with pytest.raises(ValueError, match="secret batches cost less"):
        throw(hs.dsgd(sampling=Poisson(0.5)), small("zero-out"), STAR)


# What is told -> (of which sampler, what the check sees, the numbers of a message, the records of a
# block).
NO_BATCH, TWO_COINS, EMPTY = "is in no batch", "shows in the messages", "empty record"
CHEATS = {
    mean_of_slots: (Padded(0.5), NO_BATCH, 1, 256),
    captured: (Poisson(0.5), NO_BATCH, 1, 2),
    number_drawn: (Poisson(0.5), EMPTY, 1, 256),
    second_number: (Poisson(0.5), EMPTY, 2, 256),
    by_slot: (Poisson(0.5), EMPTY, 1, 256),
    last_place: (Subset(3), "allowed 1.1250", 1, 256),
    momentum: (Poisson(0.5), TWO_COINS, 1, 256),
    own_clip: (Subset(3), TWO_COINS, 1, 256),
    warm_start: (Poisson(0.5), TWO_COINS, 1, 256),
    seen_before: (Poisson(0.5), TWO_COINS, 1, 256),
    honest: (DrawnMean(0.5), EMPTY, 1, 256),
}


@pytest.mark.parametrize("told", CHEATS, ids=lambda told: told.__name__)
def test_what_shows_beside_a_coin_is_refused(told):
    """However little: but for one place alone of a batch, nothing moves further than it may."""
    sampling, words, numbers, block = CHEATS[told]
    algorithm, problem = Teller(told=told, sampling=sampling), small("replace", numbers, block)
    found = throw(algorithm, problem, STAR, agent=1)
    assert not found.holds and words in found.words
    within = found.shift <= 1 + 1e-9
    assert within == (told not in (last_place, honest))
    assert found.alone == (words != TWO_COINS) and found.seen.any() == (words == NO_BATCH)


def test_a_certificate_says_that_a_sampler_is_from_outside():
    """The check of an algorithm is about hearsay's samplers."""
    for sampling, times in ((Poisson(0.5), 0), (DrawnMean(0.5), 1)):
        found = hs.certify(secret(sampling), small("zero-out"), STAR, 5, delta=1e-5)
        assert " ".join(str(found).split()).count("author of the sampler DrawnMean") == times


def test_the_check_of_an_algorithm_refuses_them():
    certified = hs.certify(Teller(told=momentum), small("zero-out"), STAR, 5, delta=1e-5)
    assert "secret batches" in certified.budgets[1].basis, "the claim is taken at its word"
    report = hs.check_algorithm(Teller(told=second_number), only=["secret batches"], thorough=False)
    assert not report.passed and "must not" in report.failed[0].detail


@pytest.mark.slow
def test_the_check_looks_at_batches_in_blocks():
    report = hs.check_algorithm(Teller(told=captured), only=["secret batches"])
    assert not report.passed and "is in no batch" in report.failed[0].detail


@pytest.mark.parametrize("adjacency", ["zero-out", "replace"])
def test_an_empty_batch_shows_no_record(adjacency):
    """Its slots hold zeros: who reads them without their weights reads nothing."""
    found = throw(Teller(told=unweighted), small(adjacency), STAR, agent=1)
    assert found.holds and found.shift > 0.5


class Hidden(NamedTuple):
    params: Any
    kept: Any


@final
@dataclass(frozen=True, kw_only=True)
class Blabbing(NoisyGradient):
    """What is kept of all batches goes out where a public coin is up."""

    amplifies: ClassVar[bool] = True
    coins: ClassVar[tuple[str, ...]] = ("kept",)

    name: str = "blabbing"
    step: hs.Constant = hs.Constant(0.3)
    noise: hs.Constant = hs.Constant(1.0)
    mechanism: str = "gaussian"
    sampling: Any = Poisson(0.5)

    def init(self, params):
        return Keeping(params, jnp.zeros((), params.dtype), jnp.zeros((), params.dtype))

    def draw(self, key, params):
        return Hidden(self.fresh_noise(key, params), jax.random.uniform(key))

    def finish(self, noised, draws, state):
        said = jnp.where(draws.kept > 0.5, 0.1 * state.memory, 0.0)
        return Message(noised.params + said), state

    def update(self, state, sent, inbox, batch, rates, domain):
        own = domain.project(sent.params)
        found = batch.gradient(own)
        moved = domain.project(own - rates.step * found)
        return Keeping(moved, rates.step * rates.noise, state.memory + found.sum())


def test_what_shows_only_where_a_public_coin_is_up_is_refused():
    found = throw(Blabbing(), small("zero-out"), STAR, agent=1)
    assert not found.alone
    report = hs.check_algorithm(Blabbing(), only=["brute force"], thorough=False)
    assert not report.passed and "allowed" in report.failed[0].detail


OWN = {
    "gradient-perturbation": hs.gradient_perturbation(mechanism="gaussian"),
    "sdm-dsgd": hs.sdm_dsgd(),
    "adp2sgd": hs.adp2sgd(),
    "pdop": hs.pdop(),
    "weighted-erm": hs.weighted_erm(),
    "asynchronous-gossip": hs.asynchronous_gossip(),
}


@pytest.mark.slow
@pytest.mark.parametrize("double", [True, False], ids=["float64", "float32"])
@pytest.mark.parametrize("name", OWN)
def test_hearsays_own_hold_to_the_last_bit(name, double):
    """In either precision, in blocks and at once; how far a message moves is held in float64."""
    with jax.enable_x64(double):
        for sampling in (Poisson(0.5), Subset(3)):
            for block in (256, 2):
                problem = small("replace", 3, block)
                algorithm = replace(OWN[name], sampling=sampling)
                found = throw(algorithm, problem, graph_of(algorithm, problem), agent=1)
                assert found.alone and not found.seen.any() and found.moved.any()
                assert found.holds or not double


def test_zero_out_taken_as_half_of_replace_is_caught(monkeypatch):
    """Of the squared loss a gradient of 2 (4 + 2) = 12 is certified as half of 16."""
    right = throw(secret(), small("zero-out"), STAR, agent=1)
    monkeypatch.setattr(
        Squared, "unclipped_longest", lambda self, reach: self.unclipped_change(reach) / 2
    )
    found = throw(secret(), small("zero-out"), STAR, agent=1)
    assert right.holds and not found.holds
    assert found.shift == pytest.approx(1.5)
