"""Momentum of messages: what it does, that it costs nothing, and that momentum of the private state
would be caught.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import hearsay as hs
from hearsay.algorithms.averaging import AveragedGradient, Moving
from hearsay.base import Noise
from hearsay.schedules import Schedule
from hearsay.simulation.rounds import Rounds
from tests.factories import holding, uniform

GRAPH = hs.graphs.ring(3)
OPTIONS: dict[str, Any] = {"mechanism": "gaussian", "noise": 0.5, "sampling": hs.Cyclic(3)}
HEAVY = hs.gradient_perturbation(momentum=0.6, step=0.1, coupling=0.4, **OPTIONS)


def problem() -> hs.problems.Problem:
    return holding(hs.problems.HalfSquared(1.0, 0.1), *uniform(3, 9, 2))


@pytest.mark.parametrize("averaging", [0, 2])
def test_what_is_kept_follows_from_messages(averaging: int) -> None:
    """u(k), from the tap's messages in NumPy, is all that the state has beyond the next message."""
    algorithm = replace(HEAVY, averaging=averaging)
    rounds = Rounds(algorithm, problem(), GRAPH, [0])
    sent, inbox = rounds.advance(5, tap=lambda seen: (seen.relayed.params, seen.inbox))
    heard = np.asarray(inbox.total.params) + np.asarray(inbox.own.params)[..., None] * sent
    point = sent + 0.4 * (heard - sent)
    np.testing.assert_allclose(rounds.carry.states.before[0], point[-1, 0], rtol=1e-12)


def test_momentum_is_the_heavy_ball() -> None:
    """One agent that hears nobody, without noise: x(k+1) = x + m (x - x(k-1)) - alpha grad f(x)."""
    alone = replace(HEAVY, noise=hs.Constant(0.0), coupling=hs.Constant(0.0))
    data = holding(hs.problems.HalfSquared(1.0, 0.1), *uniform(2, 3, 2))
    run = hs.simulate(alone, data, hs.graphs.ring(2), steps=6, delta=1e-5, regret=False)
    features, labels = data.features[0], data.labels[0]
    old = now = np.zeros(2)
    for _ in range(6):
        gradient = features.T @ (features @ now - labels) / 3 + 0.1 * now
        old, now = now, now + 0.6 * (now - old) - 0.1 * gradient
    np.testing.assert_allclose(run.models[0, 0], now, rtol=1e-9)


def test_certificates_do_not_depend_on_it() -> None:
    plain = replace(HEAVY, momentum=0.0)
    for sampling in (hs.Cyclic(3), hs.Poisson(0.4)):
        one, two = (
            hs.certify(replace(a, sampling=sampling), problem(), GRAPH, 20, delta=1e-5)
            for a in (plain, HEAVY)
        )
        assert one.to_json() == two.to_json()


def test_no_adversary_gets_above_its_certificate() -> None:
    found = hs.check_algorithm(HEAVY, only=["brute force"], thorough=False)
    assert found.passed, str(found)


@dataclass(frozen=True, kw_only=True)
class Private(AveragedGradient):
    """The fault: the last move before its noise is made again."""

    name: str = "private-momentum"
    step: Schedule = hs.Constant(0.1)
    coupling: Schedule = hs.Constant(0.4)
    noise: Noise = hs.Constant(0.5)
    mechanism: str = "gaussian"
    sampling: Any = hs.Cyclic(3)

    def update(
        self, state: Any, sent: Any, inbox: Any, batch: Any, rates: Any, domain: Any
    ) -> Moving:
        found = self.stepped(state, sent, inbox, batch, rates, domain)
        return found._replace(before=jnp.asarray(found.params))


def test_momentum_of_the_private_state_is_caught() -> None:
    found = hs.check_algorithm(Private(momentum=0.6), only=["brute force"], thorough=False)
    assert not found.passed and "certificate allows" in str(found), str(found)


def test_bad_momentum_is_named_and_not_deployed() -> None:
    for wrong in (1.0, -0.1):
        with pytest.raises(ValueError, match="momentum must be"):
            hs.gradient_perturbation(momentum=wrong)
    with pytest.raises(ValueError, match="momentum must be 0 in a deployed run"):
        HEAVY.magnitudes(0, 3)
