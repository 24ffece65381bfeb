"""What a run had spent when it was measured: a curve per kind of agents, and everybody's kind."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hearsay.privacy.budgets import LISTED
from hearsay.privacy.runs import ranges


class Spending(NamedTuple):
    """Budgets over time, in the unit of `certification.unit`.

    Args:
      curves: (time, kind).
      kind: of every agent, as in the run's certificate, or of its curve alone (`by_curve`).
      by_curve: agents are put together by what they have spent: of one kind in the certificate,
        those that were away have spent less than the others.

    Example:
      >>> Spending.of(np.array([[0.0, 0.0, 0.0], [1.0, 2.0, 1.0]])).kind
      array([0, 1, 0])
    """

    curves: np.ndarray
    kind: np.ndarray
    by_curve: bool = False

    @classmethod
    def of(cls, spent: np.ndarray) -> Spending:
        """From a curve per agent.

        Args:
          spent: (time, agent).
        """
        _, first, kind = np.unique(spent, axis=1, return_index=True, return_inverse=True)
        order = np.argsort(first)
        return cls(spent[:, first[order]], np.argsort(order)[kind.ravel()], by_curve=True)

    @property
    def whole(self) -> np.ndarray:
        """(time, agent): what is the same for many agents is there for each."""
        return self.curves[:, self.kind]

    @property
    def largest(self) -> np.ndarray:
        """(time,): of anybody."""
        return self.curves.max(axis=1)

    @property
    def counts(self) -> np.ndarray:
        """How many agents are of each kind."""
        return np.bincount(self.kind, minlength=self.curves.shape[1])

    def agents(self, kinds: np.ndarray | list[int]) -> np.ndarray:
        """The agents of these kinds, in order.

        Args:
          kinds: as in `kind`.
        """
        return np.flatnonzero(np.isin(self.kind, kinds))

    def median(self, kinds: np.ndarray) -> np.ndarray:
        """(time,): over the agents of these kinds, as `np.median` has it.

        Args:
          kinds: as in `kind`.
        """
        curves, counts = self.curves[:, kinds], self.counts[kinds]
        order = np.argsort(curves, axis=1)
        ordered, ends = np.take_along_axis(curves, order, 1), np.cumsum(counts[order], axis=1)
        total, rows = int(counts.sum()), np.arange(len(curves))
        ways = [(ends > place).argmax(axis=1) for place in ((total - 1) // 2, total // 2)]
        return (ordered[rows, ways[0]] + ordered[rows, ways[1]]) / 2

    def to_csv(self, steps: np.ndarray) -> str:
        """One row per measured step, and a column per agent; of many agents, per kind of the
        certificate, or per curve, with the numbers of those whose it is.

        Args:
          steps: (time,).
        """
        listed = len(self.kind) <= LISTED
        table, what = (self.whole, "agent") if listed else (self.curves, "kind")
        names = [f"{what}_{i}" for i in range(table.shape[1])]
        if self.by_curve and not listed:
            # A number alone would be read as that of a kind in the certificate.
            order = np.argsort(self.kind, kind="stable")
            whose = np.split(order, np.cumsum(self.counts)[:-1])
            names = [f"agents {ranges(agents)}" for agents in whose]
        head = "step," + ",".join(names)
        rows = (
            f"{int(s)}," + ",".join(f"{e:.10g}" for e in row)
            for s, row in zip(steps, table, strict=True)
        )
        return "\n".join([head, *rows]) + "\n"
