"""gradient-perturbation with correlated noise on the lattice: rows and step sizes, restarts,
budgets, and the simulator's messages in a rehearsal.
"""

from __future__ import annotations

from dataclasses import replace

import jax
import numpy as np
import pytest
from scipy import stats

import hearsay as hs
from hearsay.base import Inbox
from hearsay.certification.certifying import deployed, describe_deployed
from hearsay.deploy.deployment import deployment
from hearsay.deploy.privatize import Lattice
from hearsay.deploy.settings import load
from hearsay.deploy.steps import Steps
from hearsay.privacy.verification import verify
from tests.deploy.networks import NAMES, run_threads, write
from tests.deploy.test_equivalence import simulated

AGENTS, DIMENSION, ROUNDS, NOISE, DELTA = 3, 500, 7, 0.7, 1e-5
GRAPH = hs.graphs.ring(AGENTS)


def method(correlation: str | None = "toeplitz", **options):
    chosen = {"step": "0.5*(k+1)^-0.5", "coupling": 0.6, "noise": NOISE, "mechanism": "gaussian"}
    chosen |= {"sampling": hs.Cyclic(3), **options}
    if correlation is not None:
        chosen |= {"correlation": correlation, "horizon": ROUNDS}
    return hs.gradient_perturbation(**chosen)


def without_gradients():
    problem = hs.problems.ridge(
        agents=AGENTS, records=12, dimension=DIMENSION, ridge=0.0, radius=1e3, clip=1.0
    )
    blank = problem.records._replace(features=np.zeros_like(problem.features))
    return replace(problem, records=blank)


def talk(
    algorithm, problem, secrets: dict[int, bytes], restart: int = -1, lost: int = -1
) -> np.ndarray:
    """What agent 0 sends to neighbours that are silent; before message `restart` its process begins
    again with what its ledger has, less the secret of message `lost`.
    """
    steps = Steps(algorithm, problem.task, problem.records.of(0), 0, GRAPH)
    noise, carry, sent = Lattice(steps, secrets), steps.start(), []
    for step in range(ROUNDS):
        if step == restart:
            noise = Lattice(steps, {k: one for k, one in secrets.items() if k != lost})
        message, carry = noise.message(step, carry)
        message = jax.tree.map(np.asarray, message)
        heard = Inbox(type(message)(np.zeros(DIMENSION)), type(message)(np.float64(0.5)))
        carry = steps.update(step, carry, message, heard)
        sent.append(message.params)
    return np.stack(sent)


@pytest.mark.parametrize(
    "kind",
    ["tree", *(pytest.param(k, marks=pytest.mark.slow) for k in ("toeplitz", "banded", "dense"))],
)
def test_message_k_plus_1_carries_row_k_times_its_step(kind):
    """What is added to the public part, over alpha_k V, has the covariance D D': made independent,
    3,000 numbers are normal (p below 1e-6: the rate of false alarms per kind).
    """
    algorithm, secrets = method(kind), dict[int, bytes]()
    sent = talk(algorithm, without_gradients(), secrets)
    np.testing.assert_array_equal(sent[0], 0.0)
    assert sorted(secrets) == list(range(1, ROUNDS)), "a row's secret is kept with its message"
    k = np.arange(ROUNDS - 1)
    # Silent neighbours: x + beta (x / 2 - x).
    before = (1 - algorithm.coupling(k)[:, None] / 2) * sent[:-1]
    noise = (sent[1:] - before) / (algorithm.step(k)[:, None] * NOISE)
    rows = algorithm.factors.increments(0, ROUNDS - 1)
    white = np.linalg.solve(np.linalg.cholesky(rows @ rows.T), noise)
    assert stats.kstest(white.ravel(), "norm").pvalue > 1e-6
    if kind == "tree":
        # Half of its rows have one term, the others more: a row too early or too late shows.
        wrong = np.linalg.solve(np.linalg.cholesky(rows @ rows.T), np.roll(noise, 1, axis=0))
        assert stats.kstest(wrong.ravel(), "norm").pvalue < 1e-9


@pytest.mark.parametrize("restart", [2, pytest.param(5, marks=pytest.mark.slow)])
def test_a_restart_takes_back_the_noise_that_was_sent(restart):
    secrets: dict[int, bytes] = {}
    algorithm, problem = method("tree"), without_gradients()
    whole = talk(algorithm, problem, secrets)
    np.testing.assert_array_equal(talk(algorithm, problem, secrets, restart), whole)
    # Message 4 takes back what message 2 brought: without that secret, noise that nobody added.
    without = talk(algorithm, problem, secrets, restart=3, lost=2)
    np.testing.assert_array_equal(without[:4], whole[:4])
    assert np.abs(without[4] - whole[4]).max() > 0.1


def test_messages_with_other_noise_than_certified_do_not_leave():
    problem, algorithm = without_gradients(), method()
    steps = Steps(algorithm, problem.task, problem.records.of(0), 0, GRAPH)
    noise, carry = Lattice(steps, {}), steps.start()
    for scale, words in ((0.0, "at least the certified"), (0.36, "the certified")):
        quiet = carry._replace(states=carry.states._replace(scale=np.float64(scale)))
        with pytest.raises(ValueError, match=f"correlated noise of params must be {words}"):
            noise.message(1, quiet)


@pytest.mark.parametrize("kind", ["toeplitz", "tree", "banded"])
def test_a_deployed_budget_is_the_ideal_one_and_a_little_more(kind):
    problem = hs.problems.ridge(agents=AGENTS, records=12, dimension=4, radius=3.0, clip=1.0)
    algorithm = method(kind, noise=5.0)
    for messages in (1, 4, ROUNDS):
        ideal = hs.certify(algorithm, problem, GRAPH, messages, delta=DELTA)
        found = deployed(algorithm, problem, GRAPH, messages, DELTA)
        assert ideal.epsilon[0] < found.epsilon[0] < ideal.epsilon[0] * (1 + 1e-6)
        assert verify(found).holds and not verify(halved(found)).holds
    description = describe_deployed(algorithm, problem, GRAPH, 0, ROUNDS)
    account, float64 = description.account, description.float64
    curve = account.spending(ROUNDS, DELTA, float64)
    assert np.all(np.diff(curve) >= 0) and curve[2] < curve[-1]
    assert curve[-1] == found.epsilon[0]
    # What float64 adds grows with the radius, whatever the rows are.
    wide = replace(float64, heard=1e6 * float64.heard)
    rho = account.cost(ROUNDS).value
    assert account.rounded(rho, 0.0, ROUNDS, wide) > account.rounded(rho, 0.0, ROUNDS, float64)


def halved(certificate):
    less = (replace(b, epsilon=b.epsilon / 2) for b in certificate.budgets)
    return replace(certificate, budgets=tuple(less))


@pytest.mark.parametrize("kind", ["banded", pytest.param("tree", marks=pytest.mark.slow)])
def test_rehearsed_agents_send_what_the_simulator_sends(kind, tmp_path):
    table = {"name": "gradient-perturbation", "correlation": kind, "mechanism": "gaussian"}
    table |= {"noise": 1.0, "sampling": "cyclic", "sample_size": 5}
    path = write(tmp_path, algorithm=table, privacy={"epsilon": 8.0, "delta": 1e-5})
    agents = run_threads(load(path), 3)
    found = np.stack([agents[n].model for n in NAMES])
    np.testing.assert_allclose(found, simulated(path), rtol=0, atol=1e-6)
    assert np.abs(found).max() > 1e-3
    plan = deployment(load(path), None)
    assert plan.algorithm.horizon == plan.messages == 12
    assert 7.9 < max(plan.certificate.epsilon) <= 8.0
