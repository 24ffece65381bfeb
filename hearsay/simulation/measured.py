"""What tables and figures need of a run, whether it was made just now or is read again."""

from __future__ import annotations

from typing import Any

import numpy as np

from hearsay import _validate as require
from hearsay.privacy.certificate import Certificate
from hearsay.simulation.spent import Spending


class Measured:
    """Numbers over steps and seeds, budgets over time, and a certificate.

    `algorithm`, `problem` and `graph` have at least a name, the graph also `agents`.
    """

    algorithm: Any
    problem: Any
    graph: Any
    certificate: Certificate
    seeds: list[int]
    steps: np.ndarray
    spending: Spending
    stopped: str | None
    metrics: Any  # by name, each (time, seed)
    beside: Any = None

    @property
    def spent(self) -> np.ndarray:
        """(time, agent), in the unit of `certification.unit`."""
        return self.spending.whole

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.algorithm.name} on {self.problem.name},"
            f" {int(self.steps[-1])} steps, {len(self.seeds)} seeds)"
        )

    def final(self, metric: str) -> tuple[float, float]:
        """(mean, standard deviation over seeds) of a metric at the last measured step."""
        require.one_of("metric", metric, self.metrics)
        last = self.metrics[metric][-1]
        return float(last.mean()), float(last.std(ddof=1)) if len(last) > 1 else 0.0

    def plot(
        self, metric: str = "tracking_error", ax: Any = None, *, label: str | None = None
    ) -> Any:
        """Draw a metric over time with its band over seeds; returns the matplotlib axes.

        Args:
          metric: one of `metrics`.
          ax: drawn into; several runs in the same axes have a legend.
          label: what the legend calls the run; its algorithm and what it has spent unless given.
        """
        from hearsay.report.plots import curve

        return curve(self, metric, ax, label)
