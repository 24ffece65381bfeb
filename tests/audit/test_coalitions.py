"""Audits of noise that agents share: the auditor is a coalition that knows its keys, and what is
wrong with shared noise, or with its price, is caught and named.

Statements about runs are wrong with probability ERROR at most each; all tests of the noise of one
audit together raise a false alarm with probability LEVEL at most. Planted faults were caught with
each of 50 seeds (test_faults_are_caught_with_any_seed), so that 95 % confidence puts the power
above 94 %.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hearsay as hs
from hearsay.algorithms import GradientTracking
from hearsay.audit.coalitions import colluding, covariance, facing, left, sizes, together, worst
from hearsay.audit.contract import among
from hearsay.audit.distinguish import distinguish
from hearsay.audit.likelihood import runner
from hearsay.audit.pairs import candidates
from hearsay.audit.residuals import residuals
from hearsay.audit.shared_noise import whitened
from hearsay.audit.whole import Audit, Searched, audit
from hearsay.privacy.coalitions import Shared
from hearsay.problems import Squared
from hearsay.problems.problem import Problem
from hearsay.report.audit import audit_report
from hearsay.report.audit_findings import verdicts
from hearsay.simulation import keys, shared
from tests.factories import holding, uniform

AGENTS, STEPS, DELTA, ERROR, LEVEL = 5, 2, 0.1, 1e-5, 1e-3
GRAPH = hs.graphs.ring(AGENTS, weight=0.3)
SECRETS = hs.Secrets(colluders=1, ratio=math.sqrt(10))
LOUD = hs.gradient_perturbation(
    step=0.5, sampling=hs.Fresh(), mechanism="gaussian", secrets=SECRETS
)


def problem_of(adjacency: str = "replace") -> Problem:
    """Scalar records."""
    loss = Squared(1.0, 0.1, label_bound=1.0, clip=1.0)
    return holding(loss, *uniform(AGENTS, 12), adjacency=adjacency)


@cache
def calibrated(epsilon: float = 2.5):
    """At that epsilon against one colluder."""
    return hs.calibrate(LOUD, problem_of(), GRAPH, STEPS, epsilon, delta=DELTA)


def pair_of(algorithm, problem: Problem, steps: int):
    """Opposite labels (or a record that is emptied), beside records without features."""
    return next(
        pair
        for pair in candidates(algorithm, problem, GRAPH, 1, steps)
        if ("labels" in pair.words or "emptied" in pair.words) and "without" in pair.words
    )


# What a coalition leaves.


def test_what_is_left_is_the_price_that_certificates_use():
    """Covariances put together here against those of the accountant, which solves on its own."""
    rng = np.random.default_rng(0)
    ring = ((0, 1), (0, 4), (1, 2), (2, 3), (3, 4))
    uneven = Shared(
        5, tuple(rng.uniform(0.5, 3, 10)), tuple(zip(*np.triu_indices(5, 1), strict=True)),
        tuple(rng.uniform(0.5, 2, 5)),
    )  # fmt: skip
    for one in (Shared(5, (math.sqrt(10),)), Shared(5, (2.0,), ring), uneven):
        for members in ((), (2,), (0, 3), (0, 2, 3, 4)):
            found = left(one, 1, members)
            assert found.spread**-2 == pytest.approx(one.price(1, members), rel=1e-9)
            assert np.all(found.weights[[1, *members]] == 0)
        for colluders in range(5):
            least = worst(one, 1, colluders)
            assert len(least.members) == colluders
            assert least.spread == pytest.approx(one.gain(1, colluders).value, rel=1e-6)


def test_golden_prices_are_reached():
    """[S_H^-1]_ii of the complete graph of 5 with c^2 = 10 against 0 to 4 colluders."""
    complete = Shared(5, (math.sqrt(10),))
    found = [worst(complete, 0, colluders).spread ** -2 for colluders in range(5)]
    np.testing.assert_allclose(found, [0.215686, 0.268293, 0.354839, 0.523810, 1], atol=5e-7)


def test_noise_is_made_independent_also_where_some_agents_have_none():
    one = Shared(4, (1.5,))
    rng = np.random.default_rng(0)
    root = np.linalg.cholesky(covariance(one))
    drawn = np.einsum("ij,rtjd->rtid", root, rng.normal(size=(4000, 1, 4, 1)))
    drawn[:2000, :, 1] = np.nan
    found = whitened(drawn, one)
    assert np.array_equal(np.isnan(found), np.isnan(drawn))
    for part, there in ((found[:2000, 0, :, 0], [0, 2, 3]), (found[2000:, 0, :, 0], range(4))):
        # 5 standard errors of 2,000: by chance once in 10^5.
        np.testing.assert_allclose(np.cov(part[:, list(there)].T), np.eye(len(there)), atol=0.16)


def test_larger_networks_take_those_who_share_most():
    many = Shared(30, (1.0,), scales=tuple(1.0 + (np.arange(30) == 7)))
    found = worst(many, 0, 10)
    assert len(found.members) == 10 and 7 in found.members
    assert found.spread >= many.gain(0, 10).value


# Likelihood ratios and lower bounds.


KINDS = {
    "plain": (LOUD, "replace", False),
    "two fields": (
        hs.gradient_tracking(step=0.3, noise=8.0, mechanism="gaussian", secrets=SECRETS),
        "replace", False,
    ),
    "correlated": (
        hs.correlated_federated(
            horizon=4, factorization="toeplitz", sampling=hs.Fresh(2), secrets=SECRETS
        ),
        "replace", False,
    ),
    "secret batches": (replace(LOUD, sampling=hs.Poisson(0.5)), "zero-out", True),
    "quantized": (
        hs.quantized_dsgd(
            step=0.2, resolution=0.3, sampling=hs.Fresh(), mechanism="gaussian", secrets=SECRETS
        ),
        "replace", False,
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=() if k == "plain" else pytest.mark.slow) for k in KINDS]
)
def test_likelihood_ratios_are_exact_against_coalitions(kind):
    """E[exp(-L)] = 1 under the first data set, and E[exp(L)] = 1 under the second.

    Within 5 standard errors of 4,000 runs: fails by chance once in 10^5.
    """
    algorithm, adjacency, secret = KINDS[kind]
    problem = problem_of(adjacency)
    pair, sharing = pair_of(algorithm, problem, STEPS), algorithm.shared(AGENTS)
    told = []
    for colluders in (0, 1, 4):
        run = runner(
            algorithm, problem, GRAPH, 1, STEPS, 4000,
            secret=secret, against=worst(sharing, 1, colluders),
        )  # fmt: skip
        for side, records in enumerate(pair[:2]):
            found = run(records, *pair[:2], 0, side, 4000)[:, 0]
            ratio = np.exp((1 if side else -1) * found)
            assert ratio.std() > 0.02
            assert abs(ratio.mean() - 1) < 5 * ratio.std() / math.sqrt(len(ratio))
        told.append(np.abs(found).mean())
    # Who knows more tells the data sets apart better.
    assert told[0] < told[1] < told[2]


def audited(colluders: int, runs: int, seed: int = 0, certified=None):
    algorithm, problem = calibrated(), problem_of()
    return distinguish(
        algorithm, problem, GRAPH, agent=1, pair=pair_of(algorithm, problem, STEPS), steps=STEPS,
        runs=runs, delta=DELTA, error=ERROR, seed=seed, colluders=colluders, certified=certified,
    )  # fmt: skip


@pytest.mark.parametrize("colluders", [0, 1, 2, 4])
def test_a_coalition_reaches_most_of_its_epsilon_and_no_more(colluders):
    found = audited(colluders, 40_000)
    point = hs.certify(calibrated(), problem_of(), GRAPH, STEPS, delta=DELTA).budgets[1]
    assert found.certified == point.curve[colluders].epsilon
    assert len(found.coalition) == colluders
    assert found.holds
    # Large epsilons rest on events that are too rare for so few runs.
    assert found.lower >= (0.7 if colluders < 4 else 0.6) * found.certified
    assert found.claims[1].lower >= 0.85 * found.claims[1].certified


@pytest.mark.slow
@pytest.mark.parametrize("colluders", [0, 1, 2])
def test_a_hundred_audits_reach_their_epsilon_and_none_is_above_it(colluders):
    """0.85 of epsilon(q) in the mean of 100 audits of 200,000 runs. That one of them is above the
    truth by chance has probability 1e-3.
    """
    found = [audited(colluders, 200_000, seed) for seed in range(100)]
    shares = np.array([one.lower / one.certified for one in found])
    print(f"{colluders} colluders: {shares.min():.3f} to {shares.max():.3f}, {shares.mean():.3f}")
    assert all(one.holds for one in found)
    assert shares.mean() >= 0.85


def test_numbers_of_colluders_that_no_certificate_speaks_of_are_refused():
    alone, problem = replace(LOUD, secrets=None), problem_of()
    with pytest.raises(ValueError, match="colluders must be left out without secrets, got 1"):
        distinguish(alone, problem, GRAPH, runs=100, delta=DELTA, colluders=1)
    with pytest.raises(ValueError, match="colluders must be one of those .* 0, 1, 2, 3, 4, got 5"):
        distinguish(LOUD, problem, GRAPH, runs=100, delta=DELTA, colluders=5)


# Planted faults: shared noise.


IN_NOISE = (
    "none",
    "drawn once and reused in every round",
    "a generator keyed without the round",
    "the same noise in two fields",
    "a neighbour that adds no own noise",
)
IN_ARRAYS = ("the same sign at both ends", "the ratio as a variance")
SAID = {
    IN_NOISE[1]: "used again in another round",
    IN_NOISE[2]: "used again in another round",
    IN_NOISE[3]: "the same in two message fields",
    IN_NOISE[4]: "own noise is missing or too small",
    IN_ARRAYS[0]: "both ends of a pair add the same number",
    IN_ARRAYS[1]: "not as loud as the certificate counts",
    "one seed for all pairs": "pairs do not have noise of their own",
}
RIGHT = hs.gradient_tracking(step=0.3, noise=2.0, mechanism="gaussian", secrets=SECRETS)


@dataclass(frozen=True, kw_only=True)
class Planted(GradientTracking):
    """Right in itself: what pairs share has one of IN_NOISE, which is in its constants, so that one
    compiled program serves all.
    """

    fault: hs.Constant = hs.Constant(0.0)

    def constants(self, dtype):
        return jnp.asarray(int(self.fault(0)))

    def draws(self, key, steps, params, constants):
        return super().draws(key, steps, params, ())


def planted(fault: str) -> Planted:
    number = float(IN_NOISE.index(fault)) if fault in IN_NOISE else 0.0
    options = {f.name: getattr(RIGHT, f.name) for f in fields(RIGHT)}
    return Planted(**options, fault=hs.Constant(number))


@pytest.fixture
def plant(monkeypatch):
    """Puts a fault into the simulation's shared noise."""
    right = {"added": shared.added, "of": shared.of, "keys": keys.secret_keys}

    def added(algorithm, draws, pairs, steps, params, constants):
        if not isinstance(algorithm, Planted):
            return right["added"](algorithm, draws, pairs, steps, params, constants)
        blank = jax.tree.map(jnp.zeros_like, draws)
        steps = jnp.where(constants == 2, 0, steps)
        more = right["added"](algorithm, blank, pairs, steps, params, ())
        more = jax.tree.map(lambda x: jnp.where(constants == 1, x[:1], x), more)
        first, second = more
        more = type(more)(first, jnp.where(constants == 3, first, second))
        own = jax.tree.map(lambda x: jnp.where(constants == 4, x.at[:, :, 2].set(0.0), x), draws)
        return jax.tree.map(jnp.add, own, more)

    def put(fault: str) -> Planted:
        # Noise is drawn pair by pair only: simulations that mix it have a test of their own.
        monkeypatch.setattr(shared, "MIXED", 0)
        monkeypatch.setattr(shared, "added", added)
        if fault == "one seed for all pairs":
            monkeypatch.setattr(
                keys, "secret_keys", lambda seeds, ends: right["keys"](seeds, 0 * ends + ends[:1])
            )
        if fault in IN_ARRAYS:
            change = (
                jnp.abs if fault == IN_ARRAYS[0] else lambda w: jnp.sign(w) * jnp.sqrt(jnp.abs(w))
            )

            def of(*arguments, **options):
                found = right["of"](*arguments, **options)
                return found._replace(weights=change(found.weights))

            monkeypatch.setattr(shared, "of", of)
        return planted(fault)

    return put


def noise_of(algorithm, seed: int = 0, runs: int = 300):
    return residuals(
        algorithm, problem_of(), GRAPH, steps=4, runs=runs, level=LEVEL, seed=seed, certified=RIGHT
    )


@pytest.mark.parametrize("fault", SAID)
def test_faults_of_shared_noise_are_caught_and_named(fault, plant):
    found = noise_of(plant(fault))
    assert not found.holds
    (line,) = verdicts(Audit(4, LEVEL, (0,), noise=found))
    assert SAID[fault] in line


def test_right_shared_noise_passes_the_same_tests(plant):
    """Fails by chance once in 1,000 seeds."""
    found = noise_of(plant("none"))
    assert found.holds
    assert {"ends", "pairs", "rounds", "fields", "agents", "runs"} <= set(found.worst())


@pytest.mark.slow
@pytest.mark.parametrize("fault", SAID)
def test_faults_are_caught_with_any_seed(fault, plant):
    algorithm = plant(fault)
    assert not any(noise_of(algorithm, seed).holds for seed in range(1, 51))


@pytest.mark.slow
def test_right_shared_noise_hardly_ever_raises_an_alarm(plant):
    """Two alarms in 100 audits at 0.001 each have probability 5e-3."""
    algorithm = plant("none")
    assert sum(not noise_of(algorithm, seed).holds for seed in range(1, 101)) <= 1


@pytest.mark.slow
@pytest.mark.parametrize("right", [True, False])
def test_noise_that_simulations_mix_has_the_claimed_covariance(right, monkeypatch):
    """Fails by chance once in 1,000 seeds where it is right."""
    if not right:
        mixing = shared.mixing_matrix
        # Shared noise that is 5 % too quiet.
        monkeypatch.setattr(
            shared,
            "mixing_matrix",
            lambda one: mixing(replace(one, ratios=tuple(0.95 * r for r in one.ratios))),
        )
    found = residuals(RIGHT, problem_of(), GRAPH, steps=4, runs=2000, level=LEVEL)
    assert found.holds == right
    assert all("as simulated" in test.where for test in found.failed)


# Planted faults: the price.


def counted_all(monkeypatch) -> None:
    """The coalition's noise counts as protection: S of all agents in the place of S_H."""
    gain = Shared.gain
    monkeypatch.setattr(
        Shared, "gain", lambda one, agent, q: gain(one, agent, 0 if q < one.agents - 1 else q)
    )


def too_loud(monkeypatch) -> None:
    """Accounts of noise with c^2 = ratio^4 s^2, or c = ratio^2 s."""
    gain = Shared.gain
    monkeypatch.setattr(
        Shared,
        "gain",
        lambda one, agent, q: gain(replace(one, ratios=tuple(r * r for r in one.ratios)), agent, q),
    )


@pytest.mark.parametrize("fault", [None, counted_all, too_loud])
def test_coalitions_that_are_tried_catch_a_wrong_price(fault, monkeypatch):
    """No chance is involved."""
    if fault is not None:
        fault(monkeypatch)
    tried = colluding(LOUD, problem_of(), GRAPH, 1, STEPS, DELTA)
    assert [len(one.members) for one in tried] == sizes(LOUD, AGENTS) == [0, 1, 4]
    wrong = {None: [], counted_all: [1], too_loud: [0, 1]}[fault]
    assert [len(one.members) for one in tried if not one.holds] == wrong
    found = Audit(STEPS, ERROR, (1,), searched=[Searched(1, 1.0, 1.0, 1.0, 1, None, tried)])
    lines = verdicts(found)
    assert len(lines) == len(wrong) and found.holds == (not wrong)
    assert all("EXCEEDED" in line and "counts noise as protection" in line for line in lines)
    if fault is None:
        assert all(one.found == pytest.approx(one.certified, rel=1e-6) for one in tried)


@pytest.mark.parametrize("seeds", [1, pytest.param(50, marks=pytest.mark.slow)])
def test_runs_catch_a_coalition_whose_noise_is_counted(seeds, monkeypatch):
    """A coalition of two shows more than the epsilon of nobody."""
    calibrated()
    counted_all(monkeypatch)
    found = [audited(2, 40_000, seed) for seed in range(seeds)]
    assert sum(not one.holds for one in found) >= seeds - seeds // 50
    assert found[0].certified == hs.certify(
        calibrated(), problem_of(), GRAPH, STEPS, delta=DELTA
    ).budgets[1].curve[0].epsilon  # fmt: skip
    (line,) = verdicts(Audit(STEPS, ERROR, (1,), found=found[:1]))
    assert "agent 1 is EXCEEDED with agents 0, 2 colluding" in line


# A whole audit.


@pytest.mark.slow
def test_a_whole_audit_plays_coalitions_and_says_so(tmp_path):
    """Noise and bounds fail by chance once in 1,000 each."""
    algorithm, problem = calibrated(), problem_of()
    found = audit(algorithm, problem, GRAPH, steps=STEPS, runs=4000, delta=DELTA)
    assert found.holds and not found.missing and not found.skipped
    assert [one.agent for one in found.searched] == list(range(AGENTS))
    assert found.alike == {1: 0, 2: 0, 3: 0, 4: 0}
    assert [(one.agent, len(one.coalition)) for one in found.found] == [(0, 0), (0, 1), (0, 4)]
    page = audit_report(found, algorithm, problem, tmp_path).read_text()
    assert "EXCEEDED" not in page and "FAILS" not in page
    assert "Coalitions of 0, 1 and 4 other agents were tried" in page
    assert "4 colluding" in page and "not run, as in the same situation as agent 0" in page
    own = audit(algorithm, problem, GRAPH, steps=STEPS, runs=2000, delta=DELTA, agents=[3],
                parts=["runs"])  # fmt: skip
    assert [(one.agent, len(one.coalition)) for one in own.found] == [(3, 0), (3, 1), (3, 4)]


def test_words_name_who_colludes():
    assert together(()) == "nobody colluding"
    assert together((3,)) == "agent 3 colluding"
    assert together((1, 2)) == "agents 1, 2 colluding"
    assert together(tuple(range(9))) == "9 agents colluding"


def test_budgets_against_other_numbers_of_colluders_follow_the_gains():
    """rho is proportional to 1 / gain^2, and epsilon is the curve's."""
    certificate = hs.certify(LOUD, problem_of(), GRAPH, STEPS, delta=DELTA)
    assert facing(certificate, 1, None) == certificate.budgets[1]
    assert facing(certificate, 1, 1).rho == pytest.approx(certificate.budgets[1].rho)
    alone = hs.certify(replace(LOUD, secrets=None), problem_of(), GRAPH, STEPS, delta=DELTA)
    assert facing(certificate, 1, 4).rho == pytest.approx(alone.budgets[1].rho)
    assert facing(certificate, 1, 4).epsilon == pytest.approx(alone.budgets[1].epsilon)


# The contract.


def test_secrets_for_a_larger_network_fit_a_small_one():
    many = replace(LOUD, secrets=hs.Secrets(colluders=9, ratio=2.0, graph="random", degree=12))
    few = among(many, 4)
    assert few.secrets == hs.Secrets(colluders=2, ratio=2.0)
    few.check(hs.graphs.ring(4), hs.problems.ridge(agents=4, records=24, dimension=1).task)
    alone = replace(LOUD, secrets=None)
    assert among(alone, 4) is alone


@pytest.mark.slow
def test_an_outside_algorithm_with_secrets_passes_every_check():
    @dataclass(frozen=True, kw_only=True)
    class Outside(GradientTracking):
        """Not of hearsay."""

    options = {f.name: getattr(RIGHT, f.name) for f in fields(RIGHT)}
    secrets = hs.Secrets(colluders=9)
    report = hs.check_algorithm(Outside(**options | {"secrets": secrets}), thorough=False)
    assert report.passed, str(report)
