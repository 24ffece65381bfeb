"""NetworkRegressor: agents learn together to predict a number."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from sklearn.base import RegressorMixin

from hearsay import _validate as require
from hearsay.config import DELTA, EPSILON
from hearsay.estimators import arrays
from hearsay.estimators.network import NetworkEstimator
from hearsay.graphs import Graph
from hearsay.privacy.adjacency import ZERO_OUT
from hearsay.tables.columns import Column
from hearsay.tables.schema import Schema


class NetworkRegressor(RegressorMixin, NetworkEstimator):
    """A number, learned by a network of agents that show each other noisy messages only.

    `fit` chooses its settings by a rehearsal on made-up records, runs them on a simulated network,
    and keeps the model that may be published. `predict` and `score` use that model and nothing
    else; predictions may lie outside the target's range.

    Args:
      epsilon: what each agent may spend.
      delta: at which.
      schema: what is public of the tables, a Schema or the path of a schema.toml; None where `fit`
        is given arrays.
      agents: how many, where one table or one (X, y) is dealt out; 5 unless given.
      graph: who hears whom: a Graph, the name of one, or None for the usual one.
      colluders: how many of the other agents may work together against one, where pairs of agents
        share secrets; None: all of them, and nobody has secrets.
      model: "linear", the only one for numbers.
      adjacency: what the certificate protects: "zero-out" (one record against an empty one) or
        "replace" (against any other).
      ranges: of arrays: one public (low, high) for all columns, or one for each.
      target_range: of arrays: the public (low, high) of the target.
      ranges_are_public: of arrays: take ranges from the records where none are given. What they
        say of somebody is then not covered, and the certificate says so.
      random_state: an integer below 2^31; a RandomState or Generator to draw one from; None for
        one from the operating system. How records are dealt out, batches and the simulated noise
        follow from it: whoever knows it, or tries them all, can take the noise off again.
      verbose: say on standard error how far the rehearsal and the run are.

    Attributes are those of NetworkClassifier, without `classes_`.

    docs/estimators.md has examples.
    """

    def __init__(
        self,
        epsilon: float = EPSILON,
        delta: float = DELTA,
        *,
        schema: Schema | str | os.PathLike | None = None,
        agents: int | None = None,
        graph: Graph | str | None = None,
        colluders: int | None = None,
        model: str = "linear",
        adjacency: str = ZERO_OUT,
        ranges: Any = None,
        target_range: Any = None,
        ranges_are_public: bool = False,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.schema = schema
        self.agents = agents
        self.graph = graph
        self.colluders = colluders
        self.model = model
        self.adjacency = adjacency
        self.ranges = ranges
        self.target_range = target_range
        self.ranges_are_public = ranges_are_public
        self.random_state = random_state
        self.verbose = verbose

    def predict(self, table: Any) -> np.ndarray:
        """The number of every row, in the target's own units."""
        features = self._features(table)
        return self.model_.predict(features, encoded=True)

    def score(self, table: Any, y: Any = None, sample_weight: Any = None) -> float:
        """The share of the target's variance that is explained, R^2.

        Args:
          table: with a schema a table; else an array.
          y: the right answers; None: the table's own column of the target, clipped to its range.
          sample_weight: of every row; all the same unless given.
        """
        if y is None and self.schema is not None:
            y = self._truth(table)
        return super().score(table, y, sample_weight)

    def _from_schema(self, schema: Schema) -> None:
        if schema.classes is not None:
            rule = "a number for a regressor (NetworkClassifier tells levels apart)"
            require.fail(f"target {schema.target!r} of the schema", rule, "a category")
        self._require_linear()

    def _target(self, y: np.ndarray, public: bool) -> Column:
        self._require_linear()
        return arrays.target_range_of(self.target_range, public, y)

    def _require_linear(self) -> None:
        if self.model != "linear":
            require.fail("model", "linear where the target is a number", self.model)

    def _written(self, y: np.ndarray) -> np.ndarray:
        return np.asarray(y, np.float64)

    def _read_off(self) -> list[str]:
        return [] if self.target_range is not None else ["range of the target"]
