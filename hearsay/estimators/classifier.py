"""NetworkClassifier: agents learn together to tell classes apart."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets

from hearsay import _validate as require
from hearsay.config import DELTA, EPSILON
from hearsay.estimators import arrays
from hearsay.estimators.network import NetworkEstimator
from hearsay.graphs import Graph
from hearsay.privacy.adjacency import ZERO_OUT
from hearsay.tables.columns import Column
from hearsay.tables.schema import Schema


class NetworkClassifier(ClassifierMixin, NetworkEstimator):
    """Classes, learned by a network of agents that show each other noisy messages only.

    `fit` chooses its settings by a rehearsal on made-up records, runs them on a simulated network,
    and keeps the model that may be published. `predict`, `predict_proba`, `decision_function` and
    `score` use that model and nothing else.

    Args:
      epsilon: what each agent may spend.
      delta: at which.
      schema: what is public of the tables, a Schema or the path of a schema.toml; None where `fit`
        is given arrays.
      agents: how many, where one table or one (X, y) is dealt out; 5 unless given.
      graph: who hears whom: a Graph, the name of one, or None for the usual one.
      colluders: how many of the other agents may work together against one, where pairs of agents
        share secrets; None: all of them, and nobody has secrets.
      model: "linear", or the name of a network, such as "mlp".
      adjacency: what the certificate protects: "zero-out" (one record against an empty one) or
        "replace" (against any other).
      ranges: of arrays: one public (low, high) for all columns, or one for each.
      classes: of arrays: all classes that there can be.
      ranges_are_public: of arrays: take ranges and classes from the records where none are given.
        What they say of somebody is then not covered, and the certificate says so.
      random_state: an integer below 2^31; a RandomState or Generator to draw one from; None for
        one from the operating system. How records are dealt out, batches and the simulated noise
        follow from it: whoever knows it, or tries them all, can take the noise off again.
      verbose: say on standard error how far the rehearsal and the run are.

    Attributes:
      model_: the ReleasedModel.
      certificate_: what the run cost every agent.
      rehearsal_: which settings were chosen, and how they did on made-up records.
      classes_: in the order of the columns of `predict_proba`.
      schema_: what is public of the columns, also where it was made for arrays.
      graph_: who heard whom.
      counted_: what was clipped, unknown or missing in every table, each for its owner only.
      problem_, run_: as they were run; these and `counted_` are private, and in no pickle.
      n_features_in_, feature_names_in_: of the columns that are read.

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
        classes: Any = None,
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
        self.classes = classes
        self.ranges_are_public = ranges_are_public
        self.random_state = random_state
        self.verbose = verbose

    def predict(self, table: Any) -> np.ndarray:
        """The class of every row."""
        features = self._features(table)
        said = self.model_.predictor.predict(self.model_.params, features)
        return self.classes_[said.astype(np.int64)]

    def predict_proba(self, table: Any) -> np.ndarray:
        """(rows, classes): what the released model says, noise and all."""
        features = self._features(table)
        return self.model_.predict_proba(features, encoded=True)

    def decision_function(self, table: Any) -> np.ndarray:
        """The margin of the second class, (rows,); of more than two classes a score for each."""
        features = self._features(table)
        scores = self.model_.predictor.scores(self.model_.params, features)
        return scores if scores.shape[1] > 2 else scores[:, 1] - scores[:, 0]

    def score(self, table: Any, y: Any = None, sample_weight: Any = None) -> float:
        """The share of right answers.

        Args:
          table: with a schema a table; else an array.
          y: the right answers; None: the table's own column of the target.
          sample_weight: of every row; all the same unless given.
        """
        if y is None and self.schema is not None:
            y = self._truth(table)
        return super().score(table, y, sample_weight)

    def _from_schema(self, schema: Schema) -> None:
        if schema.classes is None:
            rule = "a category for a classifier (NetworkRegressor predicts numbers)"
            require.fail(f"target {schema.target!r} of the schema", rule, "a number")
        self.classes_ = np.array(schema.classes, dtype=object)

    def _target(self, y: np.ndarray, public: bool) -> Column:
        check_classification_targets(y)
        self.classes_ = arrays.classes_of(self.classes, public, np.unique(y))
        if len(self.classes_) < 2:
            require.fail("y", "of two classes or more", "one class")
        return arrays.levels(self.classes_)

    def _written(self, y: np.ndarray) -> np.ndarray:
        arrays.require_known(y, self.classes_)
        texts = np.array([str(one) for one in self.classes_.tolist()], dtype=object)
        return texts[np.searchsorted(self.classes_, y)]

    def _read_off(self) -> list[str]:
        return [] if self.classes is not None else ["classes"]
