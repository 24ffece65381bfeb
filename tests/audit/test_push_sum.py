"""A method from the literature written from docs/adding-an-algorithm.md: push-sum, whose messages
have a part that is public and goes without noise.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, final

import jax.numpy as jnp
import numpy as np
import pytest

import hearsay as hs
from hearsay.base import Algorithm, Noise, Private
from hearsay.certification import accounts
from hearsay.privacy.recursion import Release
from hearsay.problems.sampling.samplers import Cyclic, Sampling
from hearsay.schedules import Constant, PowerLaw, Schedule

PROBLEM = hs.problems.ridge(agents=5, records=40, dimension=2, radius=3.0)
GRAPH = hs.graphs.random_digraph(5, seed=1)


class Part(NamedTuple):
    """A sum and its weight: the state, a message, and the draws of its noise."""

    params: Any
    mass: Any


@dataclass(frozen=True, kw_only=True)
class PushSum(Algorithm):
    """Subgradient-push (Nedic and Olshevsky 2015) with noisy sums.

        y_i(k+1) = sum_j a_ij y_j(k),    x_i(k+1) = sum_j a_ij (x_j(k) + n_j(k)) - alpha_k g_i(z_i),
        z_i = what is heard of x over what is heard of y

    Sensitivity. What is heard and sent is on the transcript, so nothing private is carried on but
    the last gradient. The weights y follow from the graph alone: they go without noise.
    """

    channels: ClassVar[dict[str, str]] = {"params": "pushing", "mass": "pushing"}
    message: ClassVar[type] = Part
    gradient_at_state: ClassVar[bool] = False

    name: str = "push-sum"
    step: Schedule = PowerLaw(0.5, -0.75)
    noise: Noise = Constant(1.0)
    mechanism: str = "laplace"
    sampling: Sampling = field(default_factory=Cyclic)

    def init(self, params):
        return Part(params, jnp.ones_like(params))

    def prepare(self, state, batch, rates):
        return Part(Private(state.params, rates.noise), Private(self.public(state), 0.0)), state

    def public(self, state):
        return state.mass

    def update(self, state, sent, inbox, batch, rates, domain):
        x = inbox.total.params + (1 + inbox.own.params) * sent.params
        y = inbox.total.mass + (1 + inbox.own.mass) * sent.mass
        return Part(x - rates.step * batch.gradient(domain.project(x / y)), y)

    def predict(self, state):
        return state.params / state.mass

    def shown(self, model, sent, inbox, rates, domain):
        return sent.params / sent.mass

    def leak(self, heard):
        return Constant(1.0)

    def releases(self, agent, curvature):
        return Release("params", self.noise_for(agent)), Release("mass", Constant(0.0), state=0.0)


@final
@dataclass(frozen=True, kw_only=True)
class Telling(PushSum):
    """The same, with a model in what is said to be public."""

    name: str = "telling"

    def public(self, state):
        return state.mass + 1e-6 * state.params


def test_a_public_part_of_a_message_costs_nothing():
    report = hs.check_algorithm(
        PushSum, thorough=False, only=["messages", "scales", "calibration", "brute force", "search"]
    )
    assert report.passed, str(report)
    assert "found / allowed 1.0000" in report.checks[-1].detail, "the bound is reached"
    ready = hs.calibrate(PushSum(), PROBLEM, GRAPH, 20, 5.0)
    assert max(hs.certify(ready, PROBLEM, GRAPH, 20).epsilon) == pytest.approx(5.0)


def test_what_a_message_tells_of_a_record_is_a_number():
    (account,) = accounts(PushSum(), PROBLEM, GRAPH, 0)
    assert np.isfinite(account.limits(["params", "mass"], 6)).all()
    assert not account.limits(["params", "mass"], 6)[1].any()
    assert np.isfinite(account.told(np.eye(6), -1, ["params", "mass"])).all()


def test_it_is_not_taken_for_public_where_it_shows_the_data():
    report = hs.check_algorithm(Telling, thorough=False, only=["brute force", "search"])
    assert [check.name for check in report.failed] == ["brute force", "search"], str(report)
    (release,) = [r for r in PushSum().releases(0, (0.0, 0.0)) if r.name == "mass"]

    class Counted(PushSum):
        def releases(self, agent, curvature):
            return Release("params", self.noise_for(agent)), Release("mass", release.scale)

    assert not hs.certify(Counted(), PROBLEM, GRAPH, 20).finite


def test_without_noise_it_arrives():
    quiet = PushSum(noise=0.0, step="0.5*(k+1)^-0.6", sampling=hs.Cyclic(40))
    run = hs.simulate(quiet, PROBLEM, GRAPH, steps=4000, every=4000)
    spread = np.abs(run.models[0] - run.models[0].mean(axis=0)).max()
    assert spread < 0.02 and run.final("tracking_error")[0] < 1e-3
