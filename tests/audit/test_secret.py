"""Audits of secret batches: likelihood ratios are exact mixtures, lower bounds come near the
certificate and stay below it, and every fault that an amplified certificate could hide is caught.

The integrals involve no chance; coins thrown by hand are in test_thrown.py. Statements from runs
are wrong with probability 1e-3 at most each; there are four of them about right code here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize, stats

import hearsay as hs
from hearsay.audit.batches import openly
from hearsay.audit.distinguish import _claimed, _limit, distinguish
from hearsay.audit.likelihood import changed_row, runner
from hearsay.audit.messages import membership
from hearsay.audit.one_run import one_run
from hearsay.audit.pairs import candidates
from hearsay.certification import describing
from hearsay.problems import Ball, Squared
from hearsay.problems.sampling.samplers import Poisson, Subset
from hearsay.simulation import keys
from hearsay.simulation.program import Program
from tests.factories import holding, uniform

AGENTS, HELD = 3, 6
GRAPH = hs.graphs.ring(AGENTS, weight=0.3)
# Labels so large that a clipped gradient is as long as it may be wherever a run goes.
LOSS = Squared(1.0, 0.1, label_bound=10.0, clip=1.0)


def problem_of(adjacency: str = "zero-out", dimension: int = 1):
    return holding(LOSS, *uniform(AGENTS, HELD, dimension), Ball(50.0), adjacency=adjacency)


def pair_of(algorithm, problem, steps: int, words: str, beside: str = "without features"):
    return next(
        pair
        for pair in candidates(algorithm, problem, GRAPH, 1, steps)
        if words in pair.words and pair.words.endswith(beside)
    )


def perturbed(sampling, noise=0.2, **options):
    """One noisy gradient that counts: the noise of later ones is far larger."""
    noise = noise if isinstance(noise, hs.Constant) else hs.PowerLaw(noise, 6.0)
    options = {"step": 0.3, "coupling": 0.3, "noise": noise, **options}
    return hs.gradient_perturbation(sampling=sampling, **options)


# What one coin decides.


@pytest.mark.parametrize("sampling", [Poisson(0.4), Subset(2)], ids=["poisson", "subset"])
def test_a_coin_is_decided_and_the_others_stay(sampling):
    problem = problem_of()
    records = jax.tree.map(lambda x: x[0], problem.device_records)
    windows = sampling.windows(np.arange(1), problem.counts, problem.arrivals)
    window = jax.tree.map(lambda x: jnp.asarray(x[0, 0] if x.ndim == 2 else x[0]), windows)

    def drawn(coins):
        batch, _ = sampling.batch(
            (), LOSS, records, jnp.asarray(0), window, problem.arrivals, coins
        )
        rows = (batch.features[:, None, 0] == records.features[None, :, 0]) & (
            batch.weights[:, None] > 0
        )
        return set(np.flatnonzero(rows.any(axis=0)))

    for seed in range(20):
        key = jax.random.key(seed, impl="threefry2x32")
        coins = sampling.coins(key, records)
        usual = drawn(coins)
        assert drawn(key) == usual
        within, without = (drawn(sampling.decided(coins, 3, inside)) for inside in (True, False))
        assert usual == (within if 3 in usual else without)
        if isinstance(sampling, Poisson):
            assert within - {3} == without == usual - {3}
        else:
            order = [row for row in np.asarray(coins.values) if row != 3]
            assert within == {3, order[0]} and without == set(order[:2])


KINDS = {
    "poisson emptied": (perturbed(Poisson(0.4)), "zero-out", "emptied, label 10"),
    "three messages": (
        perturbed(Poisson(0.4), noise=hs.Constant(0.3)), "zero-out", "emptied, label 10"),
    "poisson replaced, gaussian": (
        perturbed(Poisson(0.4), mechanism="gaussian"), "replace", "opposite labels"),
    "subset replaced": (perturbed(Subset(2)), "replace", "opposite labels"),
    "coordinates kept": (hs.sdm_dsgd(sampling=Poisson(0.5), noise=0.5), "zero-out", "emptied"),
    "asleep": (hs.adp2sgd(sampling=Poisson(0.5), noise=0.5), "replace", "opposite labels"),
}  # fmt: skip
SLOW = ("three messages", "poisson replaced, gaussian", "coordinates kept", "asleep")


@pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=pytest.mark.slow if k in SLOW else ()) for k in KINDS]
)
def test_likelihood_ratios_of_secret_batches_are_exact(kind):
    """E[exp(-L)] = 1 under the first data set, and E[exp(L)] = 1 under the second, over noise and
    coins.

    Within 5 standard errors of 4,000 runs: fails by chance once in 10^6.
    """
    algorithm, adjacency, words = KINDS[kind]
    # Those that share their compiled program with other tests here have two messages.
    steps = 4 if kind in SLOW else 2
    problem = problem_of(adjacency, 2 if kind in ("coordinates kept", "asleep") else 1)
    pair = pair_of(algorithm, problem, steps, words)
    run = runner(algorithm, problem, GRAPH, 1, steps, 4000, secret=True)
    for side, records in enumerate(pair[:2]):
        ratio = np.exp((1 if side else -1) * run(records, *pair[:2], 3, side, 4000)[:, 0])
        assert ratio.std() > 0.02  # the data sets do differ
        assert abs(ratio.mean() - 1) < 5 * ratio.std() / math.sqrt(len(ratio))


def test_the_ratio_of_one_message_is_what_one_writes_down():
    """Message 1 is step / (rate held) + noise if the record is in the batch, and noise if not."""
    rate, scale, algorithm = 0.4, 0.3 * 0.2, perturbed(Poisson(0.4))
    problem = problem_of()
    pair = pair_of(algorithm, problem, 2, "emptied, label 10")
    run = runner(algorithm, problem, GRAPH, 1, 2, 250, secret=True)
    scores = run(pair.first, *pair[:2], 3, 0, 250)[:, 0]
    own = keys.noise_keys(6 * 2**24 + jnp.arange(250), AGENTS)
    noise = jax.vmap(lambda key: algorithm.draws(key, jnp.arange(2), jnp.zeros(1), ()).params)(
        own[:, 1]
    )[:, 1, 0]
    coins = jax.vmap(lambda key: algorithm.sampling.coins(keys.at(key, 0), pair.first).values)(
        keys.coin_keys(own)[:, 1]
    )
    row = int(changed_row(*pair[:2]))
    inside = np.asarray(coins)[:, row] < math.floor(rate * 2**32)
    assert 60 < inside.sum() < 140
    moved = 0.3 / (rate * HELD)
    sent = moved * inside + scale * np.asarray(noise)
    density = lambda x: np.exp(-np.abs(x) / scale)  # noqa: E731
    expected = np.log((1 - rate) + rate * density(sent - moved) / density(sent))
    np.testing.assert_allclose(scores, expected, atol=2e-6)


# Lower bounds.


def test_the_audit_comes_within_a_tenth_of_the_certificate():
    """Half of the runs of Laplace noise show the whole of an amplified epsilon."""
    algorithm, problem = perturbed(Poisson(0.4)), problem_of()
    pair = pair_of(algorithm, problem, 2, "emptied, label 10")
    found = distinguish(algorithm, problem, GRAPH, agent=1, steps=2, pair=pair, runs=160_000)
    shift = 1 / (0.4 * HELD * 0.2)
    exact = math.log1p(0.4 * math.expm1(shift))
    assert found.certified == pytest.approx(exact, rel=0.02)
    assert 0.9 * found.certified <= found.lower <= found.certified
    # In full, with a record in every batch, it would be twice as much.
    assert shift > 1.5 * found.certified


def test_gaussian_secret_batches_have_one_claim_at_their_delta():
    """There is no rho: nothing is claimed at delta = 0."""
    algorithm = perturbed(Poisson(0.4), mechanism="gaussian")
    budget = hs.certify(algorithm, problem_of(), GRAPH, 2, delta=0.05).budgets[1]
    ((what, measure, limit),) = _claimed(budget, 0.05, True)
    assert what == "epsilon at delta=0.05" and limit == budget.epsilon
    assert measure(0.04, 1e-6) == 0 < measure(0.06, 1e-6)
    assert _limit(budget, 0.05)(np.array([0.0]))[0] == pytest.approx(0.95)


@pytest.mark.slow
def test_gaussian_secret_batches_are_audited_at_their_delta():
    algorithm = perturbed(Poisson(0.4), 0.25, mechanism="gaussian")
    problem = problem_of()
    pair = pair_of(algorithm, problem, 2, "emptied, label 10")
    found = distinguish(
        algorithm, problem, GRAPH, agent=1, steps=2, pair=pair, runs=60_000, delta=0.05
    )
    (claim,) = found.claims
    assert claim.what == "epsilon at delta=0.05"
    assert 0.7 * claim.certified <= claim.lower <= claim.certified


def test_subsets_are_drawn_anew_in_every_run():
    """With one and the same batch in every run the bound would be that of a record in it, which an
    amplified certificate is far below.
    """
    algorithm, problem = perturbed(Subset(2), 0.3), problem_of("replace")
    pair = pair_of(algorithm, problem, 2, "opposite labels", "copies of the other one")
    found = distinguish(algorithm, problem, GRAPH, agent=1, steps=2, pair=pair, runs=40_000)
    exact = math.log1p(2 / HELD * math.expm1(2 / (2 * 0.3)))
    assert found.certified == pytest.approx(exact, rel=0.02)
    assert 0.8 * found.certified <= found.lower <= found.certified
    row = int(changed_row(*pair[:2]))
    assert membership(algorithm, problem, GRAPH, 1, 2)[0, row] > 0, "it is in that very batch"


@pytest.mark.slow
def test_coins_that_a_certificate_does_not_count_on_are_known_to_the_auditor():
    """dsgd keeps a private state, so that its certificate holds whichever batches are drawn."""
    problem = problem_of()
    algorithm = hs.dsgd(step=0.3, noise=0.2, sampling=Poisson(0.4))
    pair = pair_of(algorithm, problem, 2, "emptied, label 10")
    found = distinguish(algorithm, problem, GRAPH, agent=1, steps=2, pair=pair, runs=20_000)
    amplified = math.log1p(0.4 * math.expm1(found.certified))
    assert amplified < found.lower <= found.certified


@pytest.mark.slow
def test_canaries_in_poisson_batches_are_held_to_a_certificate_in_full():
    """The guesser knows the coins of this very run: with those of another one, half of the guesses
    are right. The bound is above the truth with probability 1e-3 at most.
    """
    problem = hs.problems.logistic(agents=2, clip=1.0, adjacency="zero-out")
    algorithm = hs.gradient_perturbation(
        step=0.5, coupling=0.5, noise=0.01, mechanism="gaussian", sampling=Poisson(0.02)
    )
    found = one_run(
        algorithm, problem, hs.graphs.ring(2), steps=100, canaries=719, delta=1e-5, seed=3
    )
    assert found.holds and found.right > 0.75 * found.guesses
    secret = hs.certify(algorithm, problem, hs.graphs.ring(2), 100, delta=1e-5).budgets[0]
    assert found.certified > 2 * secret.epsilon
    assert hs.certify(openly(algorithm), problem, hs.graphs.ring(2), 100, delta=1e-5).budgets[
        0
    ].epsilon == pytest.approx(found.certified)


# Planted faults.


@dataclass(frozen=True)
class SameCoins(Poisson):
    """Right in itself; `Program.batch` below throws its coins once for all rounds."""


RARE = 0.1
# Twice a shift of 2.5 under Laplace noise.
TWO_USES = hs.pdop(
    sampling=Poisson(RARE),
    step=hs.Constant(0.3),
    noise=hs.Constant(0.3 / (RARE * HELD) / 2.5),
)


def of_two_uses(algorithm):
    problem, steps = problem_of(), 3
    pair = pair_of(TWO_USES, problem, steps, "emptied, label 10")
    return distinguish(
        algorithm, problem, GRAPH, agent=1, steps=steps, pair=pair, runs=80_000, certified=TWO_USES
    )


@pytest.mark.slow
def test_coins_thrown_anew_in_every_round_pass():
    """Refused by chance once in 1,000 times."""
    found = of_two_uses(TWO_USES)
    assert 0.4 * found.certified < found.lower <= found.certified


@pytest.mark.slow
def test_coins_shared_between_rounds_are_caught(monkeypatch):
    """A record that is in both batches or in none: by several standard errors."""
    throwing = Program.batch

    def once(self, step, blocks, sampler, records, start, size, key):
        first = jnp.zeros_like(step) if isinstance(self.algorithm.sampling, SameCoins) else step
        return throwing(self, first, blocks, sampler, records, start, size, key)

    monkeypatch.setattr(Program, "batch", once)
    found = of_two_uses(replace(TWO_USES, sampling=SameCoins(RARE)))
    exact = math.log1p(RARE * math.expm1(5.0))
    assert found.certified == pytest.approx(2 * math.log1p(RARE * math.expm1(2.5)), rel=1e-6)
    assert found.certified < found.lower <= exact


def test_amplification_claimed_for_correlated_noise_is_caught(monkeypatch):
    """The exact epsilon of two noisy gradients, by a double integral, against a claim that even
    counts the largest column of C in each of three messages.
    """
    rate, delta, problem = 0.2, 1e-4, problem_of()
    algorithm = hs.gradient_perturbation(
        correlation="toeplitz",
        horizon=3,
        mechanism="gaussian",
        noise=1 / (rate * HELD),
        step=0.3,
        coupling=0.3,
        sampling=Poisson(rate),
    )
    encoder = algorithm.factors.encoder()[:2, :2]
    x = np.linspace(-9.0, 13.0, 1101)

    def messages(used: tuple[int, int]) -> np.ndarray:
        at = encoder @ used
        return np.outer(stats.norm.pdf(x - at[0]), stats.norm.pdf(x - at[1]))

    still = messages((0, 0))
    mixed = sum(
        rate ** sum(used) * (1 - rate) ** (2 - sum(used)) * messages(used)
        for used in ((0, 0), (0, 1), (1, 0), (1, 1))
    )

    def over(epsilon: float) -> float:
        passed = np.maximum(mixed - math.exp(epsilon) * still, 0.0)
        return float(passed.sum()) * (x[1] - x[0]) ** 2 - delta

    exact = float(optimize.brentq(over, 0.1, 20.0, xtol=1e-6))
    right = hs.certify(algorithm, problem, GRAPH, 3, delta=delta).budgets[1]
    assert "secret batches" not in right.basis and right.epsilon >= exact

    claims = describing.own_amplified

    def as_if_independent(algorithm, problem, graph, agent):
        louder = algorithm.noise.scaled(1 / np.linalg.norm(encoder, axis=0).max())
        plain = replace(algorithm, correlation=None, horizon=None, noise=louder)
        return claims(plain, problem, graph, agent)

    monkeypatch.setattr(describing, "own_amplified", as_if_independent)
    wrong = hs.certify(algorithm, problem, GRAPH, 3, delta=delta).budgets[1]
    assert "secret batches" in wrong.basis
    assert wrong.epsilon < 0.95 * exact
