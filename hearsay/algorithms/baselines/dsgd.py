"""Decentralized stochastic gradient descent with noise on what is shared (Pu et al. 2021), and DOLA
(Li et al. 2018).

    x_i(k+1) = Proj[ sum_j a_ij (x_j(k) + n_j(k)) - alpha_k g_i(k) ]
        (the sum includes j = i, with the noise that was sent)

The two differ in their schedules only: DOLA takes alpha_k proportional to 1/sqrt(k) and noise in
proportion to alpha_k, that is a constant budget per step. The projection onto the problem's domain
is DOLA's; for DSGD it is the large ball that keeps the bound on gradients true.

Everything but the gradient term is a function of the transcript, so the next state forgets the
private one (a_k = 0): Phi(k+1) <= alpha_k max(|mu|, L) Phi(k) + alpha_k c_k [used at k].
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import jax
import numpy as np

from hearsay.base import Algorithm, Inbox, Noise, Private, per_agent_rates
from hearsay.graphs import Graph
from hearsay.privacy.float64 import Magnitudes
from hearsay.privacy.recursion import MEMORYLESS, Release
from hearsay.problems.losses.domains import Domain
from hearsay.problems.problem import Problem
from hearsay.problems.sampling.samplers import Cyclic, Sampling
from hearsay.schedules import PowerLaw, Schedule, nonnegative


class State(NamedTuple):
    params: jax.Array


class Message(NamedTuple):
    params: Any


class Rates(NamedTuple):
    step: Any
    noise: Any


@dataclass(frozen=True, kw_only=True)
class Dsgd(Algorithm):
    """Decentralized SGD.

    Options: step and noise (schedules), mechanism, sampling (Cyclic() by default), average.
    """

    name: ClassVar[str] = "dsgd"
    channels: ClassVar[dict[str, str]] = {"params": "mixing"}

    step: Schedule = PowerLaw(0.5, -0.75)
    noise: Noise = PowerLaw(1.0, 0.1)
    mechanism: str = "laplace"
    sampling: Sampling = field(default_factory=Cyclic)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "step", nonnegative("step", self.step))

    def init(self, params: jax.Array) -> State:
        return State(params)

    def draw(self, key: jax.Array, params: jax.Array) -> Message:
        return Message(self.fresh_noise(key, params))

    def prepare(self, state: State, batch, rates: Rates) -> tuple[Message, State]:
        return Message(Private(state.params, rates.noise)), state

    def update(
        self, state: State, sent: Message, inbox: Inbox, batch, rates: Rates, domain: Domain
    ) -> State:
        heard = inbox.total.params + inbox.own.params * sent.params
        return State(domain.project(heard - rates.step * batch.gradient(state.params)))

    def predict(self, state: State) -> jax.Array:
        return state.params

    def rates(self, steps: np.ndarray, agents: int) -> Rates:
        return Rates._make(per_agent_rates(law, steps, agents) for law in (self.step, self.noise))

    @property
    def step_size(self) -> Schedule:
        return self.step

    def magnitudes(self, agent: int, agents: int) -> Magnitudes:
        return Magnitudes(self.step)

    def leak(self, graph: Graph, agent: int) -> Schedule:
        return MEMORYLESS

    def releases(self, agent: int, curvature: tuple[float, float]) -> tuple[Release, ...]:
        return (Release("params", self.noise_for(agent)),)

    def check(self, graph: Graph, problem: Problem) -> None:
        super().check(graph, problem)
        graph.require_symmetric()
        graph.require_row_sums_below(
            1.0, "an agent's own weight in the average must not be negative"
        )


@dataclass(frozen=True, kw_only=True)
class Dola(Dsgd):
    """DSGD with DOLA's schedules: steps like 1/sqrt(k), noise in proportion to the step."""

    name: ClassVar[str] = "dola"

    step: Schedule = PowerLaw(0.5, -0.5)
    noise: Noise = PowerLaw(1.0, -0.5)
