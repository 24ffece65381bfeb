"""Deployed agents with policy skip equal a simulation with the same faults: what is left out, it is
left out of both with its weight.

The network's part is played by the mailbox: a message that the faults lose is answered for by the
notice that its sender no longer has it, so that nobody waits for a time.
"""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hearsay as hs
from hearsay.config import build_problem
from hearsay.deploy import agent as agents_of
from hearsay.deploy.deployment import Deployment, deployment
from hearsay.deploy.mailbox import Mailbox
from hearsay.deploy.settings import load
from hearsay.simulation.delivery import delivery
from tests.deploy.networks import NAMES, SECONDS, Threads, write

SEED, STEPS = 3, 12
FAULTS = hs.Faults(
    loss=0.2,
    asleep=0.2,
    nap=3.0,
    stragglers=0.4,
    partitions=[(3, 6, [[0, 1]])],
    links=[(2, 3, 7, 9), (3, 4, 0, 2)],
    seed=4,
)
METHODS = {
    "ldp-online": {"name": "ldp-online"},
    "averaging": {
        "name": "gradient-perturbation",
        "sampling": "cyclic",
        "sample_size": 3,
        "averaging": 1,
    },
    "asynchronous-gossip": {"name": "asynchronous-gossip", "noise": 0.5},
}


def heard(plan: Deployment, problem: hs.problems.Problem) -> set[tuple[int, int, int]]:
    """(round, hearer, sender) for all that is delivered."""
    network = delivery(FAULTS, plan.algorithm, problem, plan.graph)
    memory = network.begin((), 1)

    def one(memory, step):
        weather, memory = network.round(step, memory, ())
        return memory, weather.heard

    found = np.asarray(jax.lax.scan(one, memory, jnp.arange(STEPS, dtype=jnp.int32))[1])
    hearer, sender = np.asarray(network.hearer).tolist(), np.asarray(network.sender).tolist()
    return {(k, hearer[e], sender[e]) for k, e in zip(*np.nonzero(found), strict=True)}


def losing(delivered: set[tuple[int, int, int]], exchanges: int) -> type[Mailbox]:
    """A mailbox that gets what the faults deliver; on a ring whom an agent hears says who it is."""
    owners = {frozenset({NAMES[i - 1], NAMES[(i + 1) % len(NAMES)]}): i for i in range(len(NAMES))}

    class Losing(Mailbox):
        def put(self, sender: str, round_text: str, payload: bytes) -> None:
            number, owner = int(round_text), owners[frozenset(self._hears)]
            if (number // exchanges, owner, NAMES.index(sender)) in delivered:
                super().put(sender, round_text, payload)
                return
            with self._arrived:
                self._heard[sender] = max(number, self._heard.get(sender, -1))
            self._lost(sender, number + 1)
            self.wake()

    return Losing


@pytest.mark.parametrize("method", METHODS)
def test_policy_skip_does_what_a_simulation_with_the_same_faults_does(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noise = "noise" in METHODS[method]
    path = write(
        tmp_path,
        network={"policy": "skip", "patience": SECONDS},
        algorithm=METHODS[method],
        **({"privacy": {}} if noise else {}),
    )
    network = load(path)
    plan = deployment(network, None, rehearsed=True)
    problem = build_problem(network.config, agents=len(NAMES))
    delivered = heard(plan, problem)
    assert plan.messages == STEPS
    assert 0.4 < len(delivered) / (STEPS * plan.graph.edges) < 0.8
    exchanges = 1 + len(plan.algorithm.relays(plan.graph))
    monkeypatch.setattr(agents_of, "Mailbox", losing(delivered, exchanges))
    with Threads(network, SEED) as fleet:
        fleet.start_all()
        deployed = fleet.models()
    options = {"steps": STEPS, "seeds": [SEED], "reference": False, "regret": False}
    options |= {} if plan.algorithm.mechanism == "laplace" else {"delta": 1e-5}
    run, plain = (
        hs.simulate(
            plan.algorithm,
            problem,
            hs.graphs.ring(len(NAMES)),
            faults=faults,
            **options,
        )
        for faults in (FAULTS, None)
    )
    np.testing.assert_allclose(deployed, run.models[0], rtol=0, atol=1e-6)
    assert run.hearing.heard.sum() == len(delivered)
    assert np.abs(run.models - plain.models).max() > 1e-3, "faults must have done something"
