"""Gradient tracking over directed graphs (paper P2), in the form that converges.

Agent i keeps a model x_i and a tracker y_i of the network's mean gradient. States travel over R,
trackers over C (graphs/), and

    xn_i = x_i + zeta_i,  yn_i = y_i + eta_i                                    (the two messages)
    x_i(k+1) = x_i(k) + alpha sum_j R_ij (xn_j - xn_i) - gamma y_i(k)           (7)
    y_i(k+1) = y_i(k) + beta ( sum_j C_ij yn_j - (sum_j C_ji) yn_i )
               + g_i(k+1) - g_i(k),     y_i(0) = g_i(0)                         (8)

with g_i(k) the mean gradient of step k's records at x_i(k). An agent needs to know only the weights
it hears with and those it hands out. What goes out over C comes in over C, noise and all, so sum_i
y_i = sum_i g_i at every step.

The paper prints two algorithms. Its agents' update (4), (6) keeps 1 - beta sum_j C_ij of the own
tracker, a row sum, and uses no noise of its own; every proof rests on the compact form (7), (8),
with column sums and the agent's own noisy values. On an unbalanced graph the former does not
converge even without noise; experiments/printed_tracking.py has it, for comparison only.

What the code keeps instead of y is the drift z_i = y_i - g_i, with z_i(0) = 0 and
z_i(k+1) = z_i(k) + beta (...): a function of the transcript. So is everything in (7) but
x_i - gamma g_i(x_i): a_k = 1, step gamma, exposure C / m. The state's message moves by Phi(k),
the tracker's by max(|mu|, L) Phi(k) + c_k [used at k]. The paper's Lemma 2 adds up |Delta
g(k)| + |Delta g(k-1)| where the differences telescope, and takes all gradients at the same point;
`paper_epsilon` evaluates it.

Reference: J. Chen, J. Wang and J.-F. Zhang, Differentially Private Gradient-Tracking-Based
Distributed Stochastic Optimization over Directed Graphs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np

from hearsay import _validate as require
from hearsay.algorithms.tracking import Message, State, Tracking
from hearsay.base import Inbox, Magnitudes
from hearsay.graphs import Graph
from hearsay.problems.losses.domains import Domain
from hearsay.problems.sampling.samplers import Cyclic, Sized
from hearsay.problems.task import Task
from hearsay.schedules import Constant, PowerLaw, SampleSize

if TYPE_CHECKING:
    from hearsay.algorithms.theory.findings import Finding


@final
@dataclass(frozen=True, kw_only=True)
class GradientTracking(Tracking):
    """Gradient tracking over directed graphs (paper P2).

    `scheme_s1` and `scheme_s2` build the paper's two schemes for a planned horizon.

    Args:
      step: gamma (a constant in the paper's schemes, as are the next two).
      coupling: alpha.
      tracking: beta.
      noise: the Laplace scale (or the Gaussian's standard deviation) on states, one schedule or
        one per agent.
      tracker_noise: the same on trackers; that of the states unless given.
      mechanism: "laplace" or "gaussian".
      sampling: the sampler with its sample size m.
      average: read out a running average of the models.
      secrets: Gaussian noise that pairs of agents share (`hearsay.Secrets`).

    Example:
      >>> import hearsay as hs
      >>> hs.gradient_tracking(step=0.05, noise="2*(k+1)^0.1").tracker_noise
      PowerLaw(scale=2.0, exponent=0.1, shift=1.0)
    """

    channels: ClassVar[dict[str, str]] = {"params": "coupling", "tracker": "pushing"}
    agent_facts: ClassVar[tuple[str, ...]] = ("heard", "pushed")

    name: str = "gradient-tracking"

    def update(
        self, state: State, sent: Message, inbox: Inbox, batch: Any, rates: Any, domain: Domain
    ) -> State:
        pull = inbox.total.params + inbox.own.params * sent.params  # sum_j R_ij (xn_j - xn_i)
        # sum_j C_ij yn_j - (sum_j C_ji) yn_i.
        push = inbox.total.tracker + inbox.own.tracker * sent.tracker
        params = state.params + rates.coupling * pull - rates.step * state.tracker  # (7)
        # (8)
        return State(domain.project(params), state.drift + rates.tracking * push, state.tracker)

    def magnitudes(self, agent: int, agents: int) -> Magnitudes:
        return Magnitudes(
            step=self.step, coupling=self.coupling, tracking=self.tracking, resolution=0.0
        )

    def check(self, graph: Graph, problem: Task) -> None:
        super().check(graph, problem)
        graph.require_common_root()
        for name, law, sums, what in (
            ("coupling", self.coupling, graph.row_sums, "weights it hears states with"),
            ("tracking", self.tracking, graph.handed_out, "weights it hands its tracker out with"),
        ):
            worst = int(np.argmax(sums))
            product = float(law(0)) * float(sums[worst])
            if product >= 1:
                raise ValueError(
                    f"{name} times the {what} must be below 1 for every agent, got {product:g} for"
                    f" agent {worst}"
                )
        size = (
            self.sampling.constant(problem.arrivals) if isinstance(self.sampling, Sized) else None
        )
        if size is not None and size > problem.counts.min():
            short = int(np.argmin(problem.counts))
            raise ValueError(
                f"the sample size must be at most the records of every agent, got {size} and agent"
                f" {short} holds {problem.counts[short]:g}"
            )

    def theory(self, graph: Graph, problem: Task) -> list[Finding]:
        from hearsay.algorithms.theory.gradient_tracking import gradient_tracking

        return gradient_tracking(self, graph, problem)


@require.known_arguments
def scheme_s1(
    horizon: int,
    *,
    a: tuple[float, float, float, float] = (72.0, 0.95, 98.0, 0.00007),
    p: tuple[float, float, float, float] = (0.987, 0.69, 0.997, 1.78),
    noise: tuple[float, float] = (0.1, 0.1),
    sampling: type[Sized] = Cyclic,
    **options: Any,
) -> GradientTracking:
    """Paper P2's scheme (S1) for a planned horizon K; the defaults are its experiment.

    alpha, beta, gamma = a_i / (K+1)^p_i, m = floor(a_4 K^p_4) + 1, noise (k+1)^p on states and
    trackers.

    Args:
      horizon: K.
      a: the scales of coupling, tracking, step and sample size.
      p: their exponents.
      noise: the exponents of the noise on states and trackers.
      sampling: the kind of sampler that takes m records per step.
      options: of `gradient_tracking`.

    Example:
      >>> import hearsay as hs
      >>> hs.scheme_s1(1000).noise
      PowerLaw(scale=1.0, exponent=0.1, shift=1.0)
    """
    horizon = require.count("horizon", horizon)
    scales = [require.positive(f"a[{i}]", value) for i, value in enumerate(a)]
    powers = [
        (require.nonnegative if i == 3 else require.positive)(f"p[{i}]", value)
        for i, value in enumerate(p)
    ]
    coupling, tracking, step = (
        Constant(scale / (horizon + 1) ** power)
        for scale, power in zip(scales[:3], powers[:3], strict=True)
    )
    size = math.floor(scales[3] * horizon ** powers[3]) + 1
    return GradientTracking(
        step=step,
        coupling=coupling,
        tracking=tracking,
        sampling=sampling(SampleSize(Constant(float(size)))),
        noise=PowerLaw(1.0, noise[0]),
        tracker_noise=PowerLaw(1.0, noise[1]),
        **options,
    )


@require.known_arguments
def scheme_s2(
    horizon: int,
    *,
    coupling: float = 0.1,
    tracking: float = 0.01,
    step: float = 0.1,
    growth: float = 1.002,
    noise: tuple[float, float] = (0.9996, 0.9996),
    sampling: type[Sized] = Cyclic,
    **options: Any,
) -> GradientTracking:
    """Paper P2's scheme (S2) for a planned horizon K.

    Constant alpha, beta, gamma, m = floor(growth^K) + 1, noise p^K (constant in k) on states and
    trackers.

    Args:
      horizon: K.
      coupling: alpha.
      tracking: beta.
      step: gamma.
      growth: of the sample size with the horizon.
      noise: p of states and of trackers, above 1 / growth.
      sampling: the kind of sampler that takes m records per step.
      options: of `gradient_tracking`.

    Example:
      >>> import hearsay as hs
      >>> hs.scheme_s2(100).sampling.size(0).item()
      2.0
    """
    horizon = require.count("horizon", horizon)
    growth = require.number("growth", growth)
    if growth <= 1:
        require.fail("growth", "above 1", growth)
    # Assumption 5
    levels = [
        require.fraction(name, p) for name, p in zip(("noise[0]", "noise[1]"), noise, strict=True)
    ]
    for name, p in zip(("noise[0]", "noise[1]"), levels, strict=True):
        if p <= 1 / growth:
            raise ValueError(
                f"{name} must be above 1/growth = {1 / growth:.6g}, or the budget grows with the"
                f" horizon (Theorem 5), got {p}: too small by {1 / growth - p:.3g}"
            )
    size = math.floor(growth**horizon) + 1
    return GradientTracking(
        step=Constant(step),
        coupling=Constant(coupling),
        tracking=Constant(tracking),
        sampling=sampling(SampleSize(Constant(float(size)))),
        noise=Constant(levels[0] ** horizon),
        tracker_noise=Constant(levels[1] ** horizon),
        **options,
    )
