"""gradient-perturbation with noise that is correlated over time: which row of the noise is in which
message, what the messages cost against linear algebra, and what is refused.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, fields, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hearsay as hs
from hearsay.algorithms import GradientPerturbation
from hearsay.audit.residuals import residuals
from hearsay.audit.search import search
from hearsay.base import Algorithm
from hearsay.certification import accounts, messages_within, spent_after
from hearsay.mechanisms.factorized.kinds import FACTORIZATIONS
from hearsay.mechanisms.gaussian import Gaussian
from hearsay.problems import Squared
from hearsay.simulation import keys
from hearsay.simulation.rounds import Rounds
from tests.factories import holding, uniform

AGENTS, DELTA = 4, 1e-5
RING = hs.graphs.ring(AGENTS, weight=0.3)
KINDS = list(FACTORIZATIONS)


def method(correlation: str | None = "toeplitz", horizon: int = 8, **options) -> Algorithm:
    chosen = {"step": "0.5*(k+1)^-0.5", "coupling": 0.6, "noise": 0.7, "mechanism": "gaussian"}
    chosen |= {"sampling": hs.Cyclic(3), "correlation": correlation} | options
    if correlation is not None:
        chosen["horizon"] = horizon
    return hs.gradient_perturbation(**chosen)


def setting(records: int = 12, **options):
    return hs.problems.ridge(
        agents=AGENTS, records=records, dimension=3, radius=50.0, clip=1.0, **options
    )


def without_gradients():
    """Records without features and no ridge: nothing but noise moves a model."""
    problem = setting(ridge=0.0)
    blank = problem.records._replace(features=np.zeros_like(problem.features))
    return replace(problem, records=blank)


def messages_of(algorithm, problem, steps: int, seed: int = 7):
    """(sent, what everybody had after the last phase) of a run, (step, agent, d)."""
    rounds = Rounds(algorithm, problem, RING, [seed])
    sent, last = rounds.advance(steps, tap=_sent)
    return np.asarray(sent)[:, 0], np.asarray(last)[:, 0]


def _sent(seen):
    return seen.sent.params, seen.relayed.params


def noise_in(sent, last, algorithm, noise: float) -> np.ndarray:
    """Row by row, what was added to the mean of the messages before: message k + 1 less what
    message k made of it, over alpha_k V.
    """
    weights = RING.weights.toarray()
    mixing = np.eye(AGENTS) - np.diag(weights.sum(axis=1)) + weights
    k = np.arange(len(sent) - 1)
    mixed = np.einsum("ij,tjd->tid", mixing, last[:-1])
    beta = algorithm.coupling(k)[:, None, None]
    before = (1 - beta) * last[:-1] + beta * mixed
    return (sent[1:] - before) / (algorithm.step(k)[:, None, None] * noise)


@pytest.mark.parametrize(
    ("kind", "averaging"),
    [
        ("tree", 0),
        ("banded", 2),
        *(pytest.param(kind, 0, marks=pytest.mark.slow) for kind in KINDS if kind != "tree"),
    ],
)
def test_message_k_plus_1_carries_row_k_times_the_step_of_its_gradient(kind, averaging):
    algorithm, problem = method(kind, averaging=averaging), without_gradients()
    sent, last = messages_of(algorithm, problem, 8)
    np.testing.assert_array_equal(sent[0], 0.0)
    found = noise_in(sent, last, algorithm, 0.7)
    fresh = np.stack([drawn(agent, 16) for agent in range(AGENTS)], axis=1)
    rows = algorithm.factors.increments(0, 7)
    expected = np.einsum("tw,wad->tad", rows, fresh[: rows.shape[1]])
    np.testing.assert_allclose(found, expected, atol=1e-10)
    if kind != "tree":
        # C times the noise of the messages is independent noise again.
        white = np.einsum("tw,wad->tad", algorithm.factors.encoder()[:7, :7], found)
        np.testing.assert_allclose(white, fresh[:7], atol=1e-10)


def drawn(agent: int, many: int) -> np.ndarray:
    """xi of one agent, straight from the keys."""
    key = keys.noise_keys(jnp.asarray([7]), AGENTS)[0, agent]
    draw = lambda w: Gaussian().draw(jax.random.fold_in(key, w), (3,), jnp.dtype(float))  # noqa: E731
    return np.stack([np.asarray(draw(w)) for w in range(many)])


@dataclass(frozen=True, kw_only=True)
class Misaligned(GradientPerturbation):
    """Message k carries row k: the noise of a step that has not been taken yet."""

    def draws(self, key, steps, params, constants):
        return super().draws(key, steps + 1, params, constants)


@dataclass(frozen=True, kw_only=True)
class OtherStep(GradientPerturbation):
    """Noise is multiplied by the step size of the next step."""

    def rates(self, steps, agents):
        later = super().rates(steps + 1, agents).step
        right = super().rates(steps, agents)
        return right._replace(noise=right.noise * later / right.step)


def faulty(kind, right):
    return kind(**{f.name: getattr(right, f.name) for f in fields(right)})


def test_noise_of_the_wrong_row_is_caught():
    """By the alignment above."""
    right = method("toeplitz", horizon=9)
    wrong, problem = faulty(Misaligned, right), without_gradients()
    found, misplaced = (noise_in(*messages_of(a, problem, 8), a, 0.7) for a in (right, wrong))
    assert np.abs(found[1:] - misplaced[:-1]).max() < 1e-10
    assert np.abs(found - misplaced).max() > 0.1


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Misaligned, OtherStep])
def test_the_tests_of_the_noise_catch_both_faults(kind):
    """False alarm on right code: 1e-3 at most."""
    right, problem = method("toeplitz", horizon=9), setting()
    assert residuals(right, problem, RING, steps=4, runs=300).holds
    assert not residuals(
        faulty(kind, right), problem, RING, steps=4, runs=300, certified=right
    ).holds


@pytest.mark.slow
def test_noise_with_another_step_size_is_caught():
    """A smaller step's noise on a larger step's gradient costs more than certified."""
    right = method("toeplitz", horizon=6, step="0.5*(k+1)^-0.9", sampling=hs.Fresh(2))
    problem = holding(Squared(1.0, 0.1, label_bound=1.0, clip=1.0), *uniform(AGENTS, 12))
    fine, off = (
        search(algorithm, problem, RING, steps=3, iterations=1)
        for algorithm in (right, faulty(OtherStep, right))
    )
    assert fine.worst <= 1 + 1e-9 and fine.total > 0.5
    assert off.worst > 1.2


def patterns(rounds: int, separation: int):
    every = itertools.product([False, True], repeat=rounds)
    for used in map(np.flatnonzero, every):
        if len(used) and (len(used) == 1 or np.diff(used).min() >= separation):
            yield used


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sampling", [hs.Cyclic(4), hs.Fresh(2), hs.Subset(6)], ids=str)
def test_the_price_is_that_of_the_covariance_of_the_messages(kind, sampling):
    """Brute force: the full covariance of what t messages carry and the worst pattern of shifts,
    in either direction each.
    """
    algorithm, problem = method(kind, horizon=6, sampling=sampling), setting()
    account = accounts(algorithm, problem, RING, 0)[0]
    size = {"cyclic": 4, "fresh": 2, "subset": 6}[str(sampling).split()[0]]
    separation = {"cyclic": 3, "fresh": 7, "subset": 1}[str(sampling).split()[0]]
    moved, alpha = problem.change / size, algorithm.step(np.arange(6))
    for t in range(1, 7):
        noise = 0.7 * alpha[:t, None] * algorithm.factors.increments(0, t)
        inverse, worst = np.linalg.inv(noise @ noise.T), 0.0
        for used in patterns(t, separation):
            for signs in itertools.product([1.0, -1.0], repeat=len(used)):
                shift = np.zeros(t)
                shift[used] = moved * alpha[used] * np.array(signs)
                worst = max(worst, float(shift @ inverse @ shift) / 2)
        claimed = account.cost(t).value
        assert claimed >= worst * (1 - 1e-12)
        # The tree counts nodes that no message uses, and the dense one a bound on repeated use.
        loose = {"tree": 3.0, "dense": 1.15}.get(kind, 1 + 1e-8)
        assert claimed <= worst * loose
        assert account.spent([t])[0] == claimed


def test_identity_is_priced_as_independent_noise():
    problem = setting(records=30)
    for sampling in (hs.Cyclic(6), hs.Fresh(2), hs.Cyclic(30)):
        for messages in (1, 4, 10, 12):
            costs = [
                hs.certify(
                    method(c, horizon=12, sampling=sampling), problem, RING, messages, delta=DELTA
                )
                for c in ("identity", None)
            ]
            assert costs[0].epsilon == pytest.approx(costs[1].epsilon, rel=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_a_budget_stops_a_run_and_a_shorter_run_costs_less(kind):
    algorithm, problem = method(kind, horizon=12, noise=3.0), setting()
    spent = spent_after(algorithm, problem, RING, list(range(13)))[:, 0]
    assert spent[0] == 0 and np.all(np.diff(spent) >= 0) and spent[4] < spent[12]
    half = 1.0001 * hs.certify(algorithm, problem, RING, 6, delta=DELTA).epsilon[0]
    sent, _ = messages_within(algorithm, problem, RING, 12, half, DELTA)
    assert 6 <= sent < 12
    run = hs.simulate(algorithm, problem, RING, steps=12, budget=half, delta=DELTA)
    assert int(run.steps[-1]) == sent and max(run.certificate.epsilon) <= half
    assert "the first" in run.certificate.budgets[0].dominated_by


def test_calibrated_noise_meets_its_budget_and_correlation_helps():
    """What is left of the noise in sums of steps, for the same budget."""
    problem, noise = setting(records=60), {}
    for kind in ("identity", "banded"):
        wanted = method(kind, horizon=60, sampling=hs.Cyclic(6), width=None)
        ready = hs.calibrate(wanted, problem, RING, 60, 2.0, delta=DELTA)
        assert hs.certify(ready, problem, RING, 60, delta=DELTA).epsilon[0] == pytest.approx(2.0)
        noise[kind] = float(ready.noise(0)) * ready.factors.error()
    assert noise["banded"] < 0.62 * noise["identity"]


def test_resuming_continues_the_same_noise(tmp_path):
    problem, algorithm = setting(), method("blt", horizon=12)
    whole = hs.simulate(algorithm, problem, RING, steps=12, every=3, delta=DELTA)
    hs.simulate(algorithm, problem, RING, steps=6, every=3, delta=DELTA, folder=tmp_path)
    rest = hs.simulate(
        algorithm, problem, RING, steps=12, every=3, delta=DELTA, folder=tmp_path, resume=True
    )
    np.testing.assert_array_equal(rest.models, whole.models)


def test_a_run_ends_with_the_planned_noise():
    problem, algorithm = setting(), method(horizon=5)
    run = hs.simulate(algorithm, problem, RING, steps=9, delta=DELTA)
    assert int(run.steps[-1]) == 5 and run.certificate.finite
    assert run.stopped == "the noise is planned for 5 rounds: message 5 was not sent"
    longer = hs.certify(algorithm, problem, RING, 9, delta=DELTA)
    assert longer.epsilon[0] == math.inf
    assert longer.budgets[0].reason == "the noise is planned for 5 rounds"


def test_records_in_every_step_are_charged_in_every_step_and_it_says_so():
    problem = setting(head_start=12)
    certificate = hs.certify(method(sampling=hs.History()), problem, RING, 8, delta=DELTA)
    account = certificate.descriptions[0].account
    assert account.separation == 1 and account.moved == pytest.approx(problem.change / 12)
    assert "as if a record were in the batch of every round" in certificate.budgets[0].basis


@pytest.mark.parametrize("sampling", [hs.Poisson(0.25), hs.Subset(3)], ids=str)
def test_secret_batches_are_not_amplified_with_correlated_noise(sampling):
    """C = [[1, 0], [1, 1]] has a counterexample to amplified rounds; the certificate says so."""
    problem = setting()
    found = hs.certify(method(sampling=sampling), problem, RING, 8, delta=DELTA)
    assert any("noise that later messages take back is private" in text for text in found.warnings)
    column = method(sampling=sampling).factors.sensitivity_repeated(1, 8)
    moved = problem.change / 3
    assert found.budgets[0].rho == pytest.approx((moved * column / 0.7) ** 2 / 2, rel=1e-8)
    alone = hs.certify(method(None, sampling=sampling), problem, RING, 8, delta=DELTA)
    assert alone.epsilon[0] < found.epsilon[0] and not alone.warnings


def test_bad_input_is_named():
    problem = setting()
    with pytest.raises(ValueError, match="correlation must be one of .*did you mean 'toeplitz'"):
        method("toeplits")
    with pytest.raises(ValueError, match="mechanism must be gaussian with a correlation, got 'lap"):
        method(mechanism="laplace")
    with pytest.raises(ValueError, match="noise must be a constant: the factorization shapes"):
        method(noise="(k+1)^0.1")
    with pytest.raises(ValueError, match="horizon must be given with a correlation"):
        replace(method(), horizon=None)
    with pytest.raises(ValueError, match="horizon must be left out without a correlation, got 8"):
        replace(method(), correlation=None)
    with pytest.raises(ValueError, match="width must be left out for toeplitz"):
        method(width=3)
    with pytest.raises(ValueError, match="step must be positive in every round, got '0 in round 2"):
        hs.certify(method(step=hs.Geometric(1e-200, 1e-100)), problem, RING, 5, delta=DELTA)
    for sampling in (hs.Cyclic("(k+1)^1.2"), hs.Fresh("(k+1)^0.5"), hs.History()):
        with pytest.raises(
            ValueError, match="sampling must be one whose steps use a constant number of records"
        ):
            hs.certify(method(sampling=sampling), problem, RING, 5, delta=DELTA)
