"""The noise that pairs of agents share, in a simulation: its law, that it cancels, that it is
fresh, and that a rehearsed agent draws the same.
"""

from __future__ import annotations

from dataclasses import replace

import jax
import numpy as np
import pytest

import hearsay as hs
from hearsay.deploy.privatize import Rehearsal
from hearsay.deploy.steps import Steps
from hearsay.privacy.coalitions import Shared
from hearsay.simulation.engine import Round
from hearsay.simulation.rounds import Rounds
from hearsay.simulation.shared import PairNoise, mixing_matrix

AGENTS, DIMENSION, ROUNDS, SEED = 5, 50, 300, 3
PROBLEM = hs.problems.ridge(agents=AGENTS, records=30, dimension=DIMENSION, clip=0.5)
GRAPH = hs.graphs.ring(AGENTS)
PAIRS = ((0, 1), (0, 4), (1, 2), (1, 4), (2, 3), (3, 4))
SHARED = {
    "complete": Shared(AGENTS, (10**0.5,)),
    "scales": Shared(AGENTS, (2.0,), (), (1.0, 2.0, 0.5, 1.5, 3.0)),
    "pairs": Shared(AGENTS, (1.0, 2.0, 3.0, 0.5, 1.5, 2.5), PAIRS, (1.0, 2.0, 0.5, 1.5, 3.0)),
}


def covariance(shared: Shared) -> np.ndarray:
    """Of all noise, agent by agent, from its definition."""
    scales = np.broadcast_to(np.array(shared.scales), shared.agents)
    found = np.diag(scales**2)
    for (one, two), weights in zip(shared.ends(), shared.weights(), strict=True):
        apart = np.zeros(shared.agents)
        apart[one], apart[two] = 1.0, -1.0
        found = found + (weights[0] * scales[one]) ** 2 * np.outer(apart, apart)
    return found


@pytest.mark.parametrize("name", SHARED)
def test_the_mixing_matrix_is_a_root_whose_columns_sum_up_to_own_scales(name):
    shared = SHARED[name]
    scales = np.broadcast_to(np.array(shared.scales), AGENTS)
    matrix = scales[:, None] * mixing_matrix(shared)
    np.testing.assert_allclose(matrix @ matrix.T, covariance(shared), atol=1e-12)
    np.testing.assert_allclose(matrix.sum(axis=0), scales, atol=1e-12)


@pytest.mark.parametrize("ratio", [300.0, 1e3, 1e4])
def test_columns_sum_up_to_own_scales_however_loud_shared_noise_is(ratio):
    """Rounding leaves a difference along the sums themselves, which must not turn them round."""
    for agents in (2, 5, 20):
        sums = mixing_matrix(Shared(agents, (ratio,))).sum(axis=0)
        np.testing.assert_allclose(sums, 1.0, atol=1e-5)


def draws_of(seen: Round) -> dict[str, jax.Array]:
    return {name: getattr(seen.draws, name) for name in seen.sent._fields}


def sent_of(seen: Round) -> dict[str, jax.Array]:
    return seen.sent._asdict()


def drawn(algorithm: hs.Algorithm, *, apart: bool = False, rounds: int = ROUNDS) -> dict:
    """Per field the noise of scale 1 of every message, (round, agent, d)."""
    found = Rounds(algorithm, PROBLEM, GRAPH, [SEED], apart=apart)
    return {name: np.asarray(x)[:, 0] for name, x in found.advance(rounds, draws_of).items()}


def noised(name: str) -> hs.Algorithm:
    shared = SHARED[name]
    scales = np.broadcast_to(np.array(shared.scales), AGENTS)
    ratio = shared.ratios[0] if len(shared.ratios) == 1 else shared.ratios
    return hs.gradient_perturbation(
        mechanism="gaussian",
        noise=tuple(hs.Constant(scale) for scale in scales),
        sampling=hs.Cyclic(30),
        secrets=hs.Secrets(0, ratio, shared.pairs or "complete"),
    )


@pytest.mark.parametrize(
    ("name", "apart"),
    [("complete", False), ("pairs", False), ("pairs", True)],
    ids=["complete-mixed", "pairs-mixed", "pairs-apart"],
)
def test_noise_has_the_covariance_of_its_proof_and_cancels_in_the_sum(name, apart):
    """15,000 numbers of each agent: 6 standard errors for every entry of the covariance, 2e-9 each,
    5e-8 for all 25.
    """
    algorithm, shared = noised(name), SHARED[name]
    assert algorithm.shared(AGENTS) == shared
    scales = np.broadcast_to(np.array(shared.scales), AGENTS)[:, None]
    (noise,) = drawn(algorithm, apart=apart).values()
    (own,) = drawn(replace(algorithm, secrets=None)).values()
    every = (scales * noise).transpose(1, 0, 2).reshape(AGENTS, -1)
    expected, count = covariance(shared), ROUNDS * DIMENSION
    error = np.sqrt((np.outer(np.diag(expected), np.diag(expected)) + expected**2) / count)
    assert np.all(np.abs(every @ every.T / count - expected) < 6 * error)
    # The sum is that of the agents' own noise, number by number.
    loud = np.sqrt(np.diag(expected).sum())
    np.testing.assert_allclose(
        (scales * noise).sum(axis=1), (scales * own).sum(axis=1), atol=1e-13 * loud
    )
    assert np.abs(noise - own).max() > 1


def test_shared_noise_is_fresh_in_every_round_and_field():
    """Correlations of 50 numbers' products over 300 rounds, 15,000 in all: below 6 / sqrt(15000),
    2e-9 each.
    """
    algorithm = hs.gradient_tracking(mechanism="gaussian", secrets=hs.Secrets(0, 10**0.5))
    both = drawn(algorithm, apart=True)
    own = drawn(replace(algorithm, secrets=None), apart=True)
    assert len(both) == 2
    one, two = (both[name] - own[name] for name in both)
    for noise in (one, two):
        assert noise.std() == pytest.approx(np.sqrt(10 * (AGENTS - 1)), rel=0.05)
        later = np.corrcoef(noise[:-1].ravel(), noise[1:].ravel())[0, 1]
        assert abs(later) < 6 / np.sqrt(noise[1:].size / AGENTS)
        assert len(np.unique(noise[:, 0, 0])) == ROUNDS
    fields = np.corrcoef(one.ravel(), two.ravel())[0, 1]
    assert abs(fields) < 6 / np.sqrt(one.size / AGENTS)
    # Nor is it that of an agent's own noise, or of another pair.
    mixed = np.corrcoef(one[:, 0].ravel(), own[next(iter(own))][:, 0].ravel())[0, 1]
    assert abs(mixed) < 6 / np.sqrt(one[:, 0].size)


def test_a_pair_of_its_own_is_opposite_at_both_ends():
    algorithm = replace(
        noised("complete"), secrets=hs.Secrets(0, 2.0, ((0, 1), (1, 2), (2, 3), (3, 4)))
    )
    (both,) = drawn(algorithm, apart=True, rounds=5).values()
    (own,) = drawn(replace(algorithm, secrets=None), rounds=5).values()
    noise = both - own
    # Agent 0 has one secret, with agent 1; agent 1 another one, with agent 2, and so on.
    ends = -np.cumsum(noise, axis=1)
    np.testing.assert_allclose(ends[:, -1], 0, atol=1e-12)
    assert np.abs(np.corrcoef(ends[:, 0].ravel(), ends[:, 1].ravel())[0, 1]) < 6 / np.sqrt(250)


@pytest.mark.parametrize(
    "algorithm",
    [
        pytest.param(noised("pairs"), id="P3"),
        pytest.param(
            hs.gradient_tracking(mechanism="gaussian", secrets=hs.Secrets(1, 2.0)), id="P2"
        ),
        pytest.param(
            hs.ldp_online(mechanism="gaussian", noise=0.5, secrets=hs.Secrets(1, 2.0)),
            id="P1",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            hs.correlated_federated(sampling=hs.Cyclic(10), horizon=6, secrets=hs.Secrets(1, 2.0)),
            id="P4",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_rehearsed_agent_draws_the_noise_of_the_simulation(algorithm):
    rounds = Rounds(algorithm, PROBLEM, GRAPH, [SEED], apart=True)
    assert isinstance(rounds.setting.pairs, PairNoise)
    sent = rounds.advance(1, sent_of)
    for agent in (0, 3):
        records = PROBLEM.records.of(agent)
        steps = Steps(algorithm, PROBLEM.task, records, agent, GRAPH)
        message, _ = Rehearsal(steps, SEED).message(0, steps.start())
        for name, value in message._asdict().items():
            np.testing.assert_allclose(value, sent[name][0, 0, agent], rtol=1e-12, atol=1e-12)


def test_runs_without_secrets_draw_what_they_drew():
    algorithm = hs.gradient_perturbation(mechanism="gaussian", noise=1.0)
    assert Rounds(algorithm, PROBLEM, GRAPH, [SEED]).setting.pairs == ()
