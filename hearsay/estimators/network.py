"""What both estimators share: which data belong to whom, and the way from them to a released model.

    fit(tables)             a list with one table per agent (paths, frames), with a schema
    fit([(X, y), ...])      one pair of arrays per agent, with ranges (arrays.py)
    fit(X, y), fit(table)   as scikit-learn passes them: dealt out to `agents` agents at random,
                            which simulates a network of people who have never met

A fitted estimator predicts with the released model alone. The run and the problem hold private
records and models: they stay in memory, and no pickle has them.
"""

from __future__ import annotations

import os
import secrets
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import (
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from hearsay import _validate as require
from hearsay import problems
from hearsay.estimators import arrays
from hearsay.estimators.fitting import graph_of, network_of, rehearsed, run_rehearsed
from hearsay.estimators.verbose import Lines
from hearsay.privacy.recursion import Assumption
from hearsay.problems.data.table_rows import deal_rows, read_rows
from hearsay.problems.problem import Problem
from hearsay.release.model import as_table, features_of, is_rows
from hearsay.tables.columns import Column
from hearsay.tables.counting import Counted
from hearsay.tables.crowding import ADVICE
from hearsay.tables.schema import Schema
from hearsay.tradeoff.beside import with_beside

RELEASED = "released"
# Records and models of agents, what was counted in tables; and a rehearsal, whose programs no
# pickle takes.
_PRIVATE = ("problem_", "run_", "counted_", "rehearsal_")
_MOST = 2**31
_NO_WEIGHTS = (
    "rows have no weights, since a certificate counts on every row having the same share at most,"
    " and a row that is there twice pays twice. Where one class is rare, choose a threshold of your"
    " own for predict_proba; to weigh agents there is hearsay.weighted_erm(weights=...)"
)


class NetworkEstimator(BaseEstimator, ABC):
    """A model that agents learn together; NetworkClassifier and NetworkRegressor say how."""

    # Set by the constructors of both.
    epsilon: float
    delta: float
    schema: Any
    agents: int | None
    graph: Any
    colluders: int | None
    model: str
    adjacency: str
    ranges: Any
    ranges_are_public: bool
    random_state: Any
    verbose: bool

    def fit(self, tables: Any, y: Any = None, *, test: Any = None, **unknown: Any) -> Any:
        """Learn on a simulated network of agents.

        Args:
          tables: with a schema: one table per agent, a list of paths, frames or columns by name.
            Without one: a list of pairs (X, y), one per agent. A single table, or X with `y`, is
            dealt out to `agents` agents (5 unless given).
          y: the target, where `tables` is X and has none.
          test: a table (a pair of arrays where there is no schema) to test on, for the report.
            It is nobody's training record, and the certificate does not cover it.
          unknown: refused, with what to do instead; rows have no weights (`sample_weight`).
        """
        self._require_known(unknown)
        seed = _seed(self.random_state)
        given = self._from_arrays if self.schema is None else self._from_tables
        sources, whole, schema, tested = given(tables, y, test)
        problem = self._problem(sources, whole, schema, tested, seed)
        self._warn_of_crowds()
        self.graph_ = graph_of(self.graph, problem.agents)
        lines = Lines(bool(self.verbose))
        self.rehearsal_ = rehearsed(
            problem,
            self.graph_,
            epsilon=self.epsilon,
            delta=self.delta,
            colluders=self.colluders,
            progress=lines.rehearsing,
        )
        for text in self.rehearsal_.warnings:
            warnings.warn(text, stacklevel=2)
        found = run_rehearsed(
            self.rehearsal_,
            problem,
            self.graph_,
            delta=self.delta,
            seed=seed,
            progress=lines.training,
        )
        if found.run.interrupted:
            raise KeyboardInterrupt
        self.schema_, self.problem_, self.run_ = schema, found.run.problem, found.run
        self.model_, self.certificate_ = found.model, found.model.certificate
        return self

    def _require_known(self, unknown: dict[str, Any]) -> None:
        """Arguments that `fit` does not have, and settings that a schema has already."""
        mine = type(self).__name__
        for name in unknown:
            if name in self.get_params():
                why = f"it is given when the estimator is made: {mine}({name}=...).fit(...)"
            elif name == "sample_weight":
                why = _NO_WEIGHTS
            else:
                why = "there is no such argument"
            raise TypeError(f"{name} must be left out of fit: {why}")
        if self.schema is None:
            return
        for name in ("ranges", "classes", "target_range", "ranges_are_public"):
            given = getattr(self, name, None)
            if given is not None and given is not False:
                raise ValueError(
                    f"{name} must be left out with a schema, which says it of every column: change"
                    " it there, or leave the schema out and give arrays"
                )

    def _problem(
        self, sources: list[Any], whole: bool, schema: Schema, test: Any, seed: int
    ) -> Problem:
        """Of one table per agent, or of one for all that is dealt out (`whole`)."""
        self.counted_: list[Counted] = []
        told = {"test": test, "notify": self.counted_.append}
        if whole:
            # Read before it is dealt out: errors name rows as they were given.
            parts = partial(arrays.dealt, agents=self.agents, seed=seed)
            rows = deal_rows(sources[0], schema, parts, **told)
        else:
            rows = read_rows(sources, schema, **told)
        problem = problems.tabular(
            rows,
            schema,
            model=network_of(self.model),
            adjacency=self.adjacency,
            seed=seed,
        )
        read_off = [] if self.schema is not None else self._read_off()
        if self.schema is None and self.ranges is None:
            read_off.insert(0, "ranges of the columns")
        if not read_off:
            return problem
        said = Assumption("declared", arrays.READ_OFF.format(", ".join(read_off)))
        return replace(problem, assumptions=(*problem.assumptions, said))

    def _warn_of_crowds(self) -> None:
        """Before anything is run: such a model is bad for no other reason."""
        found = dict.fromkeys(name for one in self.counted_ for name in one.crowded)
        if found:
            warnings.warn(f"{', '.join(found)}: {ADVICE}", stacklevel=3)

    def _from_tables(self, tables: Any, y: Any, test: Any) -> tuple[Any, bool, Schema, Any]:
        """(everybody's table, False) or (the one that is dealt out, True), with their schema."""
        schema = Schema.of(self.schema)
        self.n_features_in_ = len(schema.inputs)
        self.feature_names_in_ = np.array(list(schema.inputs), dtype=object)
        self._from_schema(schema)
        if isinstance(tables, (list, tuple)) and y is None and not is_rows(tables):
            self._require_agents(len(tables))
            return list(tables), False, schema, test
        table = as_table(tables)
        if y is None and not isinstance(table, np.ndarray):
            return [table], True, schema, test
        columns = arrays.cells_of(table, schema, target=y is None)
        columns[schema.target] = column_or_1d(y)
        check_consistent_length(columns[schema.target], next(iter(columns.values())))
        return [columns], True, schema, test

    def _from_arrays(self, tables: Any, y: Any, test: Any) -> tuple[Any, bool, Schema, Any]:
        """The same of arrays, with the schema that is made for them."""
        if y is None:
            pairs = self._pairs(tables)
            self._require_agents(len(pairs))
        else:
            pairs = [self._checked(tables, y, reset=True)]
        features, targets = (np.concatenate(one) for one in zip(*pairs, strict=True))
        public = require.flag("ranges_are_public", self.ranges_are_public)
        columns = arrays.ranges_of(self.ranges, features.shape[1], public, features)
        names = getattr(self, "feature_names_in_", None)
        names = [f"x{index}" for index in range(len(columns))] if names is None else names
        predicted = self._target(targets, public)
        schema = arrays.schema_of([str(name) for name in names], columns, predicted)

        sources = []
        for agent, (own, own_target) in enumerate(pairs):
            with _named(f"data of agent {agent}" if y is None else ""):
                sources.append((own, self._written(own_target)))
        if test is not None:
            own, own_target = self._checked(*_pair("test", test), reset=False)
            with _named("test"):
                test = (own, self._written(own_target))
        return sources, y is not None, schema, test

    def _pairs(self, tables: Any) -> list[tuple[np.ndarray, np.ndarray]]:
        if not isinstance(tables, (list, tuple)) or not len(tables) or is_rows(tables):
            raise ValueError(
                f"This {type(self).__name__} estimator requires y to be passed, but the target y is"
                " None: give fit(X, y), a list of pairs (X, y) with one for every agent, or a"
                " schema and a list of tables"
            )
        pairs = []
        for agent, one in enumerate(tables):
            with _named(f"data of agent {agent}"):
                X, y = _pair(f"tables[{agent}]", one)
                pairs.append(self._checked(X, y, reset=agent == 0))
        return pairs

    def _require_agents(self, many: int) -> None:
        if self.agents is not None and require.count("agents", self.agents) != many:
            require.fail(
                "agents", f"left out, or the {many} that have data of their own", self.agents
            )

    def _checked(self, X: Any, y: Any, reset: bool) -> tuple[np.ndarray, np.ndarray]:
        """Arrays as scikit-learn has them."""
        numeric = isinstance(self, RegressorMixin)
        arrays.require_numbers("X", X)
        if numeric:
            arrays.require_numbers("y", y)
        with arrays.gaps_named():
            X, y = validate_data(self, X, y, reset=reset, dtype=np.float64, y_numeric=numeric)
        return X, column_or_1d(y, warn=True)

    def _features(self, table: Any) -> np.ndarray:
        """Records of the rows of a table, or of an array where the estimator was given arrays."""
        check_is_fitted(self, "model_")
        if self.schema is None:
            arrays.require_numbers("X", table)
            with arrays.gaps_named():
                table = validate_data(self, table, reset=False, dtype=np.float64)
        return features_of(self.schema_, table)

    def _truth(self, table: Any) -> np.ndarray:
        """What a table itself says of its target, within its range."""
        check_is_fitted(self, "model_")
        return self.schema_.decode(self.schema_.encode(as_table(table)).labels)

    @abstractmethod
    def _from_schema(self, schema: Schema) -> None:
        """What follows from it for the target."""

    @abstractmethod
    def _target(self, y: np.ndarray, public: bool) -> Column:
        """The column that stands for an array's target."""

    @abstractmethod
    def _written(self, y: np.ndarray) -> np.ndarray:
        """An array's target as the table has it."""

    @abstractmethod
    def _read_off(self) -> list[str]:
        """What was read off the records."""

    def report(self, folder: str | os.PathLike) -> Path:
        """Write the run's report into the folder, and the model that may be published into
        `released/` in it; returns the path of the page. Files whose names begin with private- hold
        what no certificate covers.

        Args:
          folder: where to; it is made.
        """
        check_is_fitted(self, "model_")
        if not hasattr(self, "run_"):
            raise ValueError(
                "report must be asked of the estimator that was fitted, got a copy that was"
                " pickled: pickles hold no records and no run"
            )
        page = with_beside(self.run_).report(folder)
        self.model_.save(Path(folder) / RELEASED)
        return page

    def __getstate__(self) -> dict[str, Any]:
        """Without what is private: a pickle of a model goes where models go."""
        state = super().__getstate__()
        found = {name: value for name, value in state.items() if name not in _PRIVATE}
        if "model_" in found:
            # Whoever knows where the noise came from can take it off again; how right a model is
            # tells of the rows that it was tested on.
            found["random_state"] = None
            found["model_"] = replace(found["model_"], accuracy=None)
        return found


@contextmanager
def _named(whose: str) -> Iterator[None]:
    """Errors that say whose data they are about; "" where there is no doubt."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{whose}: {error}" if whose else str(error)) from error


def _pair(name: str, value: Any) -> tuple[Any, Any]:
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        rule = "a pair (X, y), or a table together with schema= (hearsay schema drafts one)"
        require.fail(name, rule, type(value).__name__)
    return value[0], value[1]


def _seed(random_state: Any) -> int:
    """The seed of the noise, of the sampling and of how records are dealt out."""
    if random_state is None:
        return secrets.randbelow(_MOST)
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(_MOST))
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(_MOST))
    found = require.seed("random_state", random_state)
    if found >= _MOST:
        require.fail("random_state", "below 2^31", found)
    return found
