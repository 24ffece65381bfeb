"""Two-time-scale stochastic approximation with growing sample sizes (paper P3), noise on the output
or on the gradient.

With A = [a_ij] doubly stochastic, g_i(k) the mean gradient over gamma_k records and n_i(k) the
noise of step k,

    output     x_i(k+1) = (1 - beta_k) x_i + beta_k sum_j a_ij (x_j + n_j) - alpha_k g_i(k)
               (2)  (the sum includes j = i)
    gradient   x_i(k+1) = (1 - beta_k) x_i + beta_k sum_j a_ij x_j - alpha_k (g_i(k) + n_i(k))
               (Algorithm 2)

The number of records per step is the sampler's: sampling=Fresh(size="(k+1)^1.1"). A mean over more
and more of them is what makes the budget finite.

Output perturbation. The message is x_i + n_i, so everything but (1 - beta_k) x_i - alpha_k g_i
is on the transcript: a_k = 1 - beta_k, step alpha_k, exposure C / gamma_k. `feedback` couples
through the agent's own noisy message, x_i + beta_k (sum_j a_ij y_j - y_i) - alpha_k g_i: with
A doubly stochastic the noise cancels in the network mean, and a_k = 1. The paper's Lemma 1
drops the last term of its sum and takes the gradient at the same point in both runs; it is what
`paper_epsilon` evaluates.

Gradient perturbation. An agent's message is x_i itself, and that is already private. Here it is put
together as the sum of what is private,

    s_i(k+1) = (1 - beta_k) x_i + beta_k sum_j a_ij x_j - alpha_k g_i(k),
        message x_i(k+1) = s_i(k+1) - alpha_k n_i(k)

and x_i, once sent, is on the transcript: the next s_i keeps nothing private of the last one, its
gradient is taken at a public point, and a message moves by alpha_k C / gamma_k under noise of scale
alpha_k b_k. So a use at step k costs C / (gamma_k b_k), whatever the loss's curvature. The model
that an agent reads out for itself is s_i, before the noise of its last step: like every read-out it
must stay private. K messages carry K - 1 noisy gradients; the certificate counts K.

Reference: J. Wang and J.-F. Zhang, Differentially Private Distributed Stochastic Optimization with
Time-Varying Sample Sizes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hearsay import _validate as require
from hearsay.base import Algorithm, Finding, Inbox, Noise, Private, per_agent_rates
from hearsay.graphs import Graph
from hearsay.privacy.float64 import Magnitudes
from hearsay.privacy.recursion import MEMORYLESS, Release, forward
from hearsay.problems.losses.domains import Domain
from hearsay.problems.problem import Problem
from hearsay.problems.sampling.samplers import Cyclic, Sampling
from hearsay.schedules import Constant, PowerLaw, Product, SampleSize, Schedule, nonnegative


class Message(NamedTuple):
    params: Any


class Rates(NamedTuple):
    step: Any
    coupling: Any
    noise: Any


@dataclass(frozen=True, kw_only=True)
class _TwoTimeScale(Algorithm):
    """What both forms share: the schedules alpha_k and beta_k and the conditions on the graph."""

    channels: ClassVar[dict[str, str]] = {"params": "mixing"}

    step: Schedule = PowerLaw(0.5, -0.9)
    coupling: Schedule = PowerLaw(0.5, -0.6)
    noise: Noise = PowerLaw(1.0, 0.05)
    mechanism: str = "laplace"
    sampling: Sampling = field(default_factory=lambda: Cyclic(SampleSize(PowerLaw(1.0, 1.1))))

    def __post_init__(self) -> None:
        super().__post_init__()
        require.settle(self, step=nonnegative, coupling=nonnegative)
        worst = max((0, 1, 10**6), key=lambda k: float(self.coupling(k)))
        if float(self.coupling(worst)) >= 1:
            require.fail(
                "coupling",
                "below 1 at every step",
                f"{float(self.coupling(worst)):g} at step {worst}",
            )

    def draw(self, key: jax.Array, params: jax.Array) -> Any:
        return Message(self.fresh_noise(key, params))

    def rates(self, steps: np.ndarray, agents: int) -> Rates:
        laws = (self.step, self.coupling, self.noise)
        return Rates._make(per_agent_rates(law, steps, agents) for law in laws)

    @property
    def step_size(self) -> Schedule:
        return self.step

    def check(self, graph: Graph, problem: Problem) -> None:
        super().check(graph, problem)
        graph.require_doubly_stochastic()


class State(NamedTuple):
    params: jax.Array


@dataclass(frozen=True, kw_only=True)
class OutputPerturbation(_TwoTimeScale):
    """Output perturbation with growing sample sizes (paper P3, Algorithm 1).

    step, coupling: the schedules alpha_k and beta_k < 1. noise: the Laplace scale sigma_k (or the
    Gaussian's standard deviation), one schedule or one per agent. sampling: the sampler with its
    sample size gamma_k. feedback: couple through the agent's own noisy message. average: read out a
    running average of the models.

    Example: output_perturbation(step="0.5*(k+1)^-0.9", coupling="0.5*(k+1)^-0.6",
    noise="(k+1)^0.05", sampling=Fresh("(k+1)^1.1"))
    """

    name: ClassVar[str] = "output-perturbation"

    feedback: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        require.flag("feedback", self.feedback)

    def init(self, params: jax.Array) -> State:
        return State(params)

    def prepare(self, state: State, batch, rates: Rates) -> tuple[Message, State]:
        return Message(Private(state.params, rates.noise)), state

    def update(
        self, state: State, sent: Message, inbox: Inbox, batch, rates: Rates, domain: Domain
    ) -> State:
        heard = inbox.total.params + inbox.own.params * sent.params  # sum_j a_ij (x_j + n_j)
        own = sent.params if self.feedback else state.params
        # (2)
        moved = (
            state.params
            + rates.coupling * (heard - own)
            - rates.step * batch.gradient(state.params)
        )
        return State(domain.project(moved))

    def predict(self, state: State) -> jax.Array:
        return state.params

    def magnitudes(self, agent: int, agents: int) -> Magnitudes:
        return Magnitudes(self.step, self.coupling)

    def leak(self, graph: Graph, agent: int) -> Schedule:
        return Constant(0.0) if self.feedback else self.coupling

    def releases(self, agent: int, curvature: tuple[float, float]) -> tuple[Release, ...]:
        return (Release("params", self.noise_for(agent)),)

    def theory(self, graph: Graph, problem: Problem) -> list[Finding]:
        from hearsay.algorithms.theory import sample_sizes

        return sample_sizes(self, graph, problem)

    def paper_epsilon(
        self, graph: Graph, agent: int, problem: Problem, horizon: int, delta: float | None = None
    ) -> float | None:
        """Theorem 1 with Lemma 1 as printed: sum over k = 1 .. horizon - 1 of Delta_k / sigma_k,
        the sum in (3) ending at l = k - 2.
        """
        if self.mechanism != "laplace":
            return None
        k = np.arange(horizon)
        jump = self.step(k) * problem.change / self.sampling.sizes(k, problem.arrivals)
        phi = forward(1 - self.coupling(k), jump)[:-1]
        # The right Delta_k less its last term, which Lemma 1 leaves out (except at k = 1, where it
        # is all there is).
        delta = phi - np.concatenate([[0.0, 0.0], jump[1:-1]])[: len(phi)]
        with np.errstate(divide="ignore", invalid="ignore"):
            return _l1(problem) * float(np.sum((delta / self.noise_for(agent)(k))[1:]))


def _l1(problem: Problem) -> float:
    """The paper's C is about l1; ours is about l2 unless the problem says otherwise."""
    return 1.0 if problem.norm == "l1" else math.sqrt(problem.dimension)


class Pending(NamedTuple):
    """The next message before its noise, and the noise scale that it will get:
    alpha_k b_k of the step that made it (0 for the first).
    """

    params: jax.Array
    scale: jax.Array


@dataclass(frozen=True, kw_only=True)
class GradientPerturbation(_TwoTimeScale):
    """Gradient perturbation with growing sample sizes (paper P3, Algorithm 2).

    Options as for OutputPerturbation; `noise` is the scale of the noise on the gradient.

    Example: gradient_perturbation(step="0.5*(k+1)^-0.8", coupling="0.5*(k+1)^-0.5",
    noise="(k+1)^0.1", sampling=Fresh("(k+1)^1.2"))
    """

    name: ClassVar[str] = "gradient-perturbation"
    gradient_at_state: ClassVar[bool] = False

    step: Schedule = PowerLaw(0.5, -0.8)
    coupling: Schedule = PowerLaw(0.5, -0.5)
    noise: Noise = PowerLaw(1.0, 0.1)
    sampling: Sampling = field(default_factory=lambda: Cyclic(SampleSize(PowerLaw(1.0, 1.2))))

    # Subclasses carry more in their draws, messages and states.
    def init(self, params: jax.Array) -> Any:
        return Pending(params, jnp.zeros((), params.dtype))

    def prepare(self, state: Any, batch, rates: Rates) -> tuple[Message, Any]:
        return Message(Private(state.params, state.scale)), state

    def update(
        self, state: Any, sent: Any, inbox: Inbox, batch, rates: Rates, domain: Domain
    ) -> Any:
        # Where the gradient's bound holds; a large ball never acts.
        own = domain.project(sent.params)
        heard = inbox.total.params + inbox.own.params * sent.params
        moved = own + rates.coupling * (heard - own) - rates.step * batch.gradient(own)
        return Pending(domain.project(moved), rates.step * rates.noise)

    def predict(self, state: Any) -> jax.Array:
        return state.params

    def magnitudes(self, agent: int, agents: int) -> Magnitudes:
        noise = Product(self.step, self.noise_for(agent))
        return Magnitudes(self.step, self.coupling, step_noise=noise)

    def leak(self, graph: Graph, agent: int) -> Schedule:
        return MEMORYLESS

    def step_noise(self, steps: np.ndarray, agent: int, agents: int) -> np.ndarray:
        rates = self.rates(steps, agents)
        return rates.step[:, agent] * rates.noise[:, agent]

    def releases(self, agent: int, curvature: tuple[float, float]) -> tuple[Release, ...]:
        return (Release("gradient", self.noise_for(agent), state=0.0, fresh=1.0),)

    def theory(self, graph: Graph, problem: Problem) -> list[Finding]:
        from hearsay.algorithms.theory import sample_sizes

        return sample_sizes(self, graph, problem)

    def paper_epsilon(
        self, graph: Graph, agent: int, problem: Problem, horizon: int, delta: float | None = None
    ) -> float | None:
        """Theorem 5 as printed: sum over k = 1 .. horizon of C / (gamma_k sigma_k),
        which leaves out k = 0.
        """
        if self.mechanism != "laplace" or type(self) is not GradientPerturbation:
            return None
        k = np.arange(1, horizon + 1)
        share = problem.change / self.sampling.sizes(k, problem.arrivals)
        with np.errstate(divide="ignore"):
            return _l1(problem) * float(np.sum(share / self.noise_for(agent)(k)))
