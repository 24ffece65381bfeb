"""Weighted distributed private empirical risk minimisation (Kang et al. 2021), without
their server.

Agents who add less noise, because they hold more records or ask for less privacy, deserve more
weight in the common model:

    x_i(k+1) = sum_j a_ij x_j(k) - alpha_k w_i (g_i(k) + n_i(k)),        mean of w = 1

Weights are public: they may follow the agents' announced budgets, never their data. The accounting
is gradient perturbation's (sample_sizes.py): a weight scales gradient and noise alike.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from hearsay import _validate as require
from hearsay.algorithms.sample_sizes import GradientPerturbation, Rates
from hearsay.base import Noise
from hearsay.graphs import Graph
from hearsay.privacy.float64 import Magnitudes
from hearsay.problems.problem import Problem
from hearsay.problems.sampling.samplers import Cyclic, Sampling
from hearsay.schedules import Constant, PowerLaw, Product, Schedule


@dataclass(frozen=True, kw_only=True)
class WeightedErm(GradientPerturbation):
    """Gradient perturbation with a weight per agent.

    weights: one number per agent, scaled to a mean of 1; none weighs by the inverse of the noise's
    first variance, so that agents with the same noise count the same.
    """

    name: ClassVar[str] = "weighted-erm"

    weights: tuple[float, ...] | None = None
    step: Schedule = PowerLaw(0.5, -0.8)
    coupling: Schedule = Constant(0.9)
    noise: Noise = Constant(1.0)
    mechanism: str = "gaussian"
    sampling: Sampling = field(default_factory=Cyclic)

    def __post_init__(self) -> None:
        super().__post_init__()
        require.settle(self, weights=require.optional(require.each(require.positive)))

    def rates(self, steps: np.ndarray, agents: int) -> Rates:
        plain = super().rates(steps, agents)
        return plain._replace(step=plain.step * self.shares(agents))

    def shares(self, agents: int) -> np.ndarray:
        """The weights, with a mean of 1."""
        if self.weights is not None:
            given = np.array(self.weights)
        else:
            first = np.array([float(self.noise_for(i)(0)) for i in range(agents)])
            given = np.ones(agents) if np.any(first == 0) else first**-2
        return given / given.mean()

    def magnitudes(self, agent: int, agents: int) -> Magnitudes:
        step = Product(self.step, Constant(float(self.shares(agents)[agent])))
        return Magnitudes(step, self.coupling, step_noise=Product(step, self.noise_for(agent)))

    def check(self, graph: Graph, problem: Problem) -> None:
        super().check(graph, problem)
        if self.weights is not None and len(self.weights) != graph.agents:
            require.fail(
                "weights",
                f"one number for each of the {graph.agents} agents",
                f"{len(self.weights)} numbers",
            )
