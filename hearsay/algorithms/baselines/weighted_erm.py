"""Weighted distributed private empirical risk minimisation (Kang et al. 2021), without
their server.

Agents who add less noise, because they hold more records or ask for less privacy, deserve more
weight in the common model:

    x_i(k+1) = sum_j a_ij x_j(k) - alpha_k w_i (g_i(k) + n_i(k)),        mean of w = 1

Weights are public: they may follow the agents' announced budgets, never their data. The accounting
is that of noisy gradients (noisy_gradient.py): a weight scales gradient and noise alike.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, final

import numpy as np

from hearsay import _validate as require
from hearsay._parts import distinct
from hearsay.algorithms.averaging import AveragedGradient
from hearsay.algorithms.noisy_gradient import Pending
from hearsay.base import Inbox, Magnitudes, Message, Noise
from hearsay.graphs import Graph
from hearsay.problems.losses.domains import Domain
from hearsay.problems.sampling.samplers import Cyclic, Sampling
from hearsay.problems.task import Task
from hearsay.schedules import Constant, PowerLaw, Product, Schedule, below_one


@final
@dataclass(frozen=True, kw_only=True)
class WeightedErm(AveragedGradient):
    """Gradient perturbation with a weight per agent.

    Args:
      weights: one number per agent, scaled to a mean of 1; none weighs by the inverse of the
        noise's first variance, so that agents with the same noise count the same.
      step: alpha_k.
      coupling: how far an agent moves towards the average in a step, below 1.
      noise: the scale of the noise on the gradient, one schedule or one per agent.
      mechanism: "gaussian" or "laplace".
      sampling: Cyclic() unless given.
      average: read out a running average of the models.
      secrets: Gaussian noise that pairs of agents share (`hearsay.Secrets`).
      averaging: how many more exchanges follow each message; they cost no privacy (averaging.py).
      chebyshev: with weights that bring agents together faster.
      momentum: of messages, which costs no privacy either (averaging.py).

    Example:
      >>> import hearsay as hs
      >>> hs.weighted_erm(weights=(1, 1, 4)).shares(3)
      array([0.5, 0.5, 2. ])
    """

    amplifies: ClassVar[bool] = True
    agent_facts: ClassVar[tuple[str, ...]] = ()

    name: str = "weighted-erm"
    weights: tuple[float, ...] | None = None
    step: Schedule = PowerLaw(0.5, -0.8)
    coupling: Schedule = Constant(0.9)
    noise: Noise = Constant(1.0)
    mechanism: str = "gaussian"
    sampling: Sampling = field(default_factory=Cyclic)

    def __post_init__(self) -> None:
        super().__post_init__()
        require.settle(
            self,
            coupling=below_one,
            weights=require.optional(require.each(require.positive)),
        )

    def update(
        self, state: Pending, sent: Message, inbox: Inbox, batch: Any, rates: Any, domain: Domain
    ) -> Pending:
        # rates.step is alpha_k w_i.
        return self.stepped(state, sent, inbox, batch, rates, domain)

    def magnitudes(self, agent: int, agents: int) -> Magnitudes:
        step = Product(self.step, Constant(float(self.shares(agents)[agent])))
        return replace(
            super().magnitudes(agent, agents),
            step=step,
            coupling=self.coupling,
            step_noise=Product(step, self.noise_for(agent)),
        )

    def rates(self, steps: np.ndarray, agents: int) -> Any:
        plain = super().rates(steps, agents)
        return plain._replace(step=plain.step * self.shares(agents))

    def shares(self, agents: int) -> np.ndarray:
        """The weights, with a mean of 1."""
        if self.weights is not None:
            given = np.array(self.weights)
        else:
            law = self.noise if isinstance(self.noise, tuple) else (self.noise,) * agents
            known, place = distinct(law)
            first = np.array([float(one(0)) for one in known])[place]
            given = np.ones(agents) if np.any(first == 0) else first**-2
        return given / given.mean()

    def noise_weights(self, agents: int) -> np.ndarray:
        self._require_one_each(agents)
        shares = self.shares(agents)
        if self.weights is None and np.any(shares != shares[0]):
            # They would change with the noise, and with them what everybody's noise is worth.
            require.fail("weights", "given with secrets where agents differ in their noise", None)
        return shares

    def check(self, graph: Graph, problem: Task) -> None:
        super().check(graph, problem)
        self._require_one_each(graph.agents)

    def _require_one_each(self, agents: int) -> None:
        if self.weights is not None and len(self.weights) != agents:
            require.fail(
                "weights",
                f"one number for each of the {agents} agents",
                f"{len(self.weights)} numbers",
            )
