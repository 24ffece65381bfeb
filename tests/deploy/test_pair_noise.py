"""What deployed agents' noise shares: the same numbers at both ends of every pair, sums in which it
cancels, messages as loud as planned. Keys are from a stand-in that everybody can compute.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, replace

import jax
import numpy as np
import pytest
from scipy import stats

import hearsay as hs
from hearsay import graphs
from hearsay.certification import colluding
from hearsay.certification.certifying import deployed, describe_deployed
from hearsay.certification.describing import message_bound
from hearsay.deploy.pair_noise import PairNoise, message_scale, rounded_up
from hearsay.deploy.privatize import Lattice
from hearsay.deploy.steps import Steps
from hearsay.privacy.description import spending

AGENTS, DIMENSION = 3, 500
SECRETS = hs.Secrets(colluders=0, ratio=2.0)
COMMON = {"mechanism": "gaussian", "sampling": hs.Cyclic(), "secrets": SECRETS}
ALGORITHMS = {
    "P1": hs.ldp_online(step=0.1, coupling=0.5, noise="2*(k+1)^0.3", **COMMON),
    "P1, each its own": hs.ldp_online(step=0.1, coupling=0.5, noise=[1.0, 3.0, 20.0], **COMMON),
    "P2": hs.gradient_tracking(
        step=0.125, coupling=0.25, tracking=0.25, noise=2.0, tracker_noise=0.7, **COMMON
    ),
    "P3": hs.gradient_perturbation(
        step="0.5*(k+1)^-0.3", coupling=0.5, noise="2*(k+1)^0.1", **COMMON
    ),
    "weights": hs.weighted_erm(
        step="0.5*(k+1)^-0.3", noise=[1.0, 3.0, 2.0], weights=(4.0, 1.0, 2.0), **COMMON
    ),
    "P4, nothing taken back": hs.correlated_federated(
        factorization="identity",
        horizon=50,
        step=0.1,
        noise=2.0,
        sampling=hs.Fresh(1),
        secrets=SECRETS,
    ),
}


class Known:
    """The keys of one agent's pairs, from the numbers of the pair."""

    def __init__(self, agent: int) -> None:
        self.agent, self.asked = agent, list[tuple[int, int, int]]()

    def noise_key(self, neighbour: int, round: int, field: int) -> bytes:
        self.asked.append((neighbour, round, field))
        pair = sorted((self.agent, neighbour))
        return hashlib.sha256(f"{pair} {round} {field}".encode()).digest()


def blank():
    """No record moves anything: messages differ from public points by their noise alone."""
    problem = hs.problems.ridge(
        agents=AGENTS, records=12, dimension=DIMENSION, ridge=0.0, radius=1e3, clip=1.0
    )
    features = np.zeros_like(problem.features)
    return replace(problem, records=problem.records._replace(features=features))


def steps_of(algorithm) -> list[Steps]:
    problem, graph = blank(), graphs.complete(AGENTS)
    return [Steps(algorithm, problem.task, problem.records.of(i), i, graph) for i in range(AGENTS)]


def noises(algorithm, step: int) -> dict[str, np.ndarray]:
    """(agent, number): what the message of that round adds, field by field."""
    found: dict[str, list[np.ndarray]] = {}
    for agent, steps in enumerate(steps_of(algorithm)):
        carry = steps.start()
        if algorithm.delay:
            # A message that the step before made, with the scale of its noise.
            sent, _ = Lattice(steps, {}, pairs=Known(agent)).message(0, carry)
            heard = hs.base.Inbox(*(jax.tree.map(lambda x: 0.5 * x, sent) for _ in range(2)))
            heard = heard._replace(own=jax.tree.map(lambda x: np.float64(0.5), sent))
            carry = steps.update(step - 1, carry, sent, heard)
        fields, _ = steps.prepare(step, carry)
        message, _ = Lattice(steps, {}, pairs=Known(agent)).message(step, carry)
        for name, value in message._asdict().items():
            one = np.asarray(value) - np.asarray(getattr(fields, name).value)
            found.setdefault(name, []).append(one)
    return {name: np.array(each) for name, each in found.items()}


LOUD = ["P1, each its own", "P2", "P3", "weights", "P4, nothing taken back"]


@pytest.mark.parametrize("name", LOUD)
def test_messages_are_as_loud_as_planned_and_their_sum_is_quiet(name):
    """Chi-squared, of 500 numbers each. False alarms: 1 in 100,000 for each of some 30 numbers."""
    algorithm, step = ALGORITHMS[name], 3
    shared = algorithm.shared(AGENTS)
    for field, added in noises(algorithm, step).items():
        own = PairNoise(algorithm, shared, 0, Known(0))._own(step, field)
        total = np.sum(added.sum(axis=0) ** 2) / np.sum(own**2)
        assert min(stats.chi2.cdf(total, DIMENSION), stats.chi2.sf(total, DIMENSION)) > 5e-6
        for agent in range(AGENTS):
            size = own[agent] ** 2 * shared.variance(agent)
            total = np.sum(added[agent] ** 2) / size
            assert min(stats.chi2.cdf(total, DIMENSION), stats.chi2.sf(total, DIMENSION)) > 5e-6


@pytest.mark.parametrize("name", ALGORITHMS)
def test_both_ends_have_the_same_scale_grid_and_key(name):
    algorithm, step = ALGORITHMS[name], 7
    shared = algorithm.shared(AGENTS)
    keys = [Known(agent) for agent in range(AGENTS)]
    each = [PairNoise(algorithm, shared, agent, keys[agent]) for agent in range(AGENTS)]
    for number, field in enumerate(algorithm.channels):
        found = [one.of(step, field) for one in each]
        assert len({grid for _, grid, _ in found}) == 1
        laws = [message_scale(algorithm, field, agent, AGENTS) for agent in range(AGENTS)]
        own = [float(law(step - algorithm.delay)) for law in laws]
        for i in range(AGENTS):
            for sign, scale, key in found[i][2]:
                (j,) = (j for j in range(AGENTS) if j != i and (-sign, scale, key) in found[j][2])
                assert sign == (1 if i < j else -1)
                planned = 2.0 * math.sqrt(own[i] * own[j])
                assert planned * (1 - 1e-9) <= scale <= planned * (1 + 4e-6)
                assert min(scale, own[i]) >= 2**36 * found[i][1]
        assert all((step, number) == asked[1:] for one in keys for asked in one.asked[-2:])


@pytest.mark.parametrize("name", ALGORITHMS)
def test_noise_on_messages_is_worth_what_is_certified(name):
    """tau_i from the covariance of what is really sent, over the own noise of the schedules."""
    algorithm, step = ALGORITHMS[name], 7
    shared = algorithm.shared(AGENTS)
    for field in algorithm.channels:
        found = [PairNoise(algorithm, shared, i, Known(i)).of(step, field) for i in range(AGENTS)]
        covariance = np.diag([own**2 for own, _, _ in found])
        for (i, j), scale in zip(shared.ends(), [found[0][2][0], *found[2][2]], strict=True):
            ends = np.eye(AGENTS)[i] - np.eye(AGENTS)[j]
            covariance += scale[1] ** 2 * np.outer(ends, ends)
        left = np.diag(np.linalg.inv(covariance)) ** -0.5
        for agent in range(AGENTS):
            law = message_scale(algorithm, field, agent, AGENTS)
            own = float(law(step - algorithm.delay))
            gain = shared.gain(agent, 0).value
            assert gain <= left[agent] / own <= gain * (1 + 1e-5)


@dataclass(frozen=True)
class Dip(hs.schedules.Schedule):
    """A user's own schedule, quieter in one round that nobody looks at beforehand."""

    level: float

    def __call__(self, k):
        return np.where(np.asarray(k) == 100, 0.01, 1.0) * self.level

    def scaled(self, factor):
        return Dip(self.level * factor)


def test_a_round_in_another_proportion_is_refused():
    """Others' noise protects: in that round it would not, and the certificate counts on it."""
    algorithm = hs.ldp_online(noise=[hs.Constant(1.0), Dip(1.0), Dip(2.0)], **COMMON)
    noise = PairNoise(algorithm, algorithm.shared(AGENTS), 0, Known(0))
    noise.of(99, "params")
    with pytest.raises(ValueError, match=r"the proportion .* got 0.01 times .* in round 100"):
        noise.of(100, "params")


def test_noise_of_an_earlier_step_is_not_sent_with_what_is_shared_in_this_one():
    """An agent that has slept would send more noise than the others' is in proportion to."""
    with pytest.raises(ValueError, match="with an activity below 1: who sleeps sends nothing"):
        hs.adp2sgd(secrets=SECRETS)
    steps = steps_of(ALGORITHMS["P3"])[1]
    carry = steps.start()
    late = carry._replace(states=carry.states._replace(scale=np.float64(1.0)))
    with pytest.raises(ValueError, match="scale of params in round 90 must be at most 0.4"):
        Lattice(steps, {}, pairs=Known(1)).message(90, late)


def test_weights_that_follow_the_noise_are_refused():
    problem, graph = blank(), graphs.complete(AGENTS)
    rule = "weights must be given with secrets where agents differ in their noise"
    with pytest.raises(ValueError, match=rule):
        hs.weighted_erm(noise=[1.0, 2.0, 3.0], **COMMON).shared(AGENTS)
    with pytest.raises(ValueError, match=rule):
        plain = hs.weighted_erm(**COMMON)
        hs.calibrate(plain, problem, graph, 10, [1.0, 2.0, 3.0], delta=1e-5)


def test_the_own_noise_is_that_of_the_message():
    """alpha b of the step before, where a message carries its noise; b of the step elsewhere."""
    delayed, plain = ALGORITHMS["P3"], ALGORITHMS["P1"]
    for algorithm, expected in (
        (delayed, float(delayed.step(6)) * float(delayed.noise(6))),
        (plain, float(plain.noise(7))),
    ):
        own, _, _ = PairNoise(algorithm, algorithm.shared(AGENTS), 1, Known(1)).of(7, "params")
        assert expected <= own <= expected * (1 + 3e-6)


def test_a_first_message_without_noise_stays_public():
    steps = steps_of(ALGORITHMS["P3"])[1]
    keys = Known(1)
    message, _ = Lattice(steps, {}, pairs=keys).message(0, steps.start())
    np.testing.assert_array_equal(message.params, steps.start().states.params)
    assert not keys.asked


def test_scales_that_differ_in_their_last_bits_are_the_same():
    rng = np.random.default_rng(0)
    scales = np.append(rng.lognormal(0, 5, 10_000), 2.0 ** np.arange(-20, 20))
    up = rounded_up(scales)
    for other in (np.nextafter(scales, 0), np.nextafter(scales, np.inf)):
        np.testing.assert_array_equal(rounded_up(other), up)
    assert np.all(up > scales) and np.all(up < scales * (1 + 2.1e-6))


def test_secrets_beyond_the_proof_are_not_deployed(monkeypatch):
    """No graph that fits into a machine has so many."""
    monkeypatch.setattr(colluding, "totals_bits", lambda pairs, degree: 4096.0)
    with pytest.raises(ValueError, match="secrets must be of fewer pairs to be deployed, got 3"):
        deployed(ALGORITHMS["P1"], blank(), graphs.complete(AGENTS), 50, 1e-5)


def test_what_does_not_fit_is_refused():
    algorithm = ALGORITHMS["P1"]
    steps = steps_of(algorithm)[0]
    with pytest.raises(ValueError, match="pairs must be the keys of the secrets"):
        Lattice(steps, {})
    bare = steps_of(replace(algorithm, secrets=None))[0]
    with pytest.raises(ValueError, match="pairs must be the keys of the secrets"):
        Lattice(bare, {}, pairs=Known(0))
    correlated = hs.gradient_perturbation(correlation="toeplitz", horizon=5, noise=1.0, **COMMON)
    with pytest.raises(ValueError, match=".secrets. must be left out with the correlated noise"):
        Lattice(steps_of(correlated)[0], {}, pairs=Known(0))
    # Own noise of 1 beside that of 1000: more apart than one grid has room for.
    far = hs.ldp_online(noise=[1.0, 1.0, 1000.0], **COMMON)
    last = steps_of(far)[2]
    with pytest.raises(ValueError, match="own_scale must be between .* closer together"):
        Lattice(last, {}, pairs=Known(2)).message(0, last.start())


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_deployed_certificate_is_the_ideal_one_but_for_rounding(name):
    """For every agent, and to the same number message by message. What is more than 1e-6 is float64
    arithmetic in a domain of radius 1,000.
    """
    algorithm, graph, problem = ALGORITHMS[name], graphs.complete(AGENTS), blank()
    algorithm = algorithm.with_noise([20.0] * AGENTS)
    ideal = hs.certify(algorithm, problem, graph, 50, delta=1e-5)
    found = deployed(algorithm, problem, graph, 50, 1e-5)
    for one, other in zip(found.budgets, ideal.budgets, strict=True):
        assert other.epsilon <= one.epsilon <= other.epsilon * (1 + 2e-5)
        assert math.isfinite(one.epsilon)
        # Three pairs, two at each agent: 2 pi^2 2^72 / (1 + 2 2) / ln 2 = 2.7e22 bits.
        (said,) = (a.text for a in one.assumptions if "on the lattice" in a.text)
        assert "1 +- 2^-(10^22)" in said
    spent = spending(describe_deployed(algorithm, problem, graph, 0, 50, 1e-5), 50, 1e-5)
    assert spent[-1] == pytest.approx(found.budgets[0].epsilon, rel=1e-9)


def test_the_bound_on_messages_has_room_for_what_is_shared():
    problem, graph = blank(), graphs.complete(AGENTS)
    for algorithm in ALGORITHMS.values():
        bare = replace(algorithm, secrets=None)
        noise = message_bound(algorithm, problem, graph, 10)
        least = message_bound(bare, problem, graph, 10)
        shared = algorithm.shared(AGENTS)
        most = math.sqrt(max(shared.variance(i) for i in range(AGENTS)))
        assert least < noise <= most * least
        zero = message_bound(bare.with_noise([0.0] * AGENTS), problem, graph, 10)
        if not isinstance(algorithm.noise, tuple):
            assert noise - zero == pytest.approx(most * (least - zero), rel=1e-9)
