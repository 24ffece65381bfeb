"""The released model: an average of messages, with the certificate that covers it.

A certificate counts every message of a run, so whatever follows from messages and public numbers
costs nothing more (post-processing). The model that an agent has for itself is not among that: no
noise has been added to it since its last message.

A model of tables has their schema: it takes tables as their owners have them, and answers with a
level of the target, or with a number in the target's own units. One without takes records whose
features were prepared as the problem's were.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from hearsay import _validate as require
from hearsay._version import VERSION
from hearsay.base import Algorithm
from hearsay.privacy.certificate import Certificate, few, show
from hearsay.problems.losses.neural_loss import Model
from hearsay.release.predicting import Predictor
from hearsay.simulation.own_unit import in_own_unit, unit
from hearsay.tables.schema import Schema

FREE = (
    "it is computed from messages that were sent, with their noise, and from public numbers alone:"
    " the certificate counts every one of those messages, and what follows from them costs nothing"
    " more"
)
UNBOUNDED = "NOT PRIVATE: the budget of the run is infinite"
SIMULATED = (
    "the noise of a simulation follows from its seed: whoever knows the seed, or tries all 2^31 of"
    " them, can take it off again (deployed agents draw theirs from the operating system)"
)
# Of people's own tables: seeds below this are the first that anybody would try.
GUESSED = 2**16
UNSEEDED = (
    "NOT PRIVATE: the noise came from a seed that is easily guessed, and whoever guesses it can"
    " take it off again (hearsay fit draws a secret one, deployed agents draw their noise from the"
    " operating system)"
)


@dataclass(frozen=True, eq=False, repr=False)
class ReleasedModel:
    """A model that may be published, made of messages alone.

    Args:
      params: one vector.
      average_of: whose messages of which rounds, in words.
      kind: the name of the read-out (release/readouts.py).
      algorithm: the name of the algorithm that sent them.
      problem: what the data are called.
      predictor: how the parameters are used.
      certificate: what the run cost every agent.
      warnings: what keeps it from being private, or is to be known before it is published.
      accuracy: on the test set: the share of right labels, or the mean squared error of a
        regression, of labels as records have them; None where there is no test set. It is about
        records, and in no saved file.
      schema: of the tables that it was learned from; None where records were no rows of tables.
      made: how it was made, as texts by name: version, algorithm, rounds, settings.
    """

    params: np.ndarray
    average_of: str
    kind: str
    algorithm: str
    problem: str
    predictor: Predictor
    certificate: Certificate
    warnings: tuple[str, ...] = ()
    accuracy: float | None = None
    schema: Schema | None = None
    made: Mapping[str, str] = field(default_factory=dict)
    why: str = field(default=FREE, init=False)

    def __post_init__(self) -> None:
        params = require.array("params", self.params)
        if params.ndim != 1 or not np.all(np.isfinite(params)):
            require.fail("params", "one vector of finite numbers (did the run diverge?)", params)
        object.__setattr__(self, "params", params)
        if not self.certificate.finite and self.private:
            object.__setattr__(self, "warnings", (UNBOUNDED, *self.warnings))
        if self.schema is not None:
            self._require_fitting(self.schema)

    def _require_fitting(self, schema: Schema) -> None:
        shape, wanted = tuple(self.predictor.facts["shape"]), (schema.width,)
        if shape != wanted:
            require.fail("schema", f"one whose records have shape {shape}, as the model's", wanted)
        if (schema.classes is not None) != self.predictor.classification:
            said = "a category" if self.predictor.classification else "a number"
            require.fail("schema", f"one whose target is {said}, as the model's", schema.target)
        if schema.classes and len(schema.classes) != self.predictor.classes:
            rule = f"one whose target has {self.predictor.classes} levels, as the model's"
            require.fail("schema", rule, len(schema.classes))

    @property
    def private(self) -> bool:
        """Nothing says that it is not."""
        return not any(text.startswith("NOT PRIVATE") for text in self.warnings)

    @property
    def classes(self) -> np.ndarray | None:
        """What it tells apart, in the order of the columns of `predict_proba`: levels of the
        target where there is a schema, else the labels 0, 1, ...; None for a regression.
        """
        if self.predictor.classes is None:
            return None
        if self.schema is not None:
            return np.array(self.schema.classes, dtype=object)
        return np.arange(float(self.predictor.classes))

    def predict(self, table: Any, *, encoded: bool = False) -> np.ndarray:
        """What the model says of every row: a level of the target, or a number in its units; of a
        model without a schema the label, or the number, as the problem had them.

        Args:
          table: with a schema: a path to a table, a frame, columns by name, a list of rows (each
            its values by name), or an array with one column for each of `schema.inputs`. Without
            one: an array of features, prepared as the problem's were.
          encoded: with a schema: the table is an array of features that `Schema.encode` has made.
            They have more columns than a table (a constant), and are refused unless this is said.
        """
        said = self.predictor.predict(self.params, self._features(table, encoded))
        return said if self.schema is None else self.schema.decode(said)

    def predict_proba(self, table: Any, *, encoded: bool = False) -> np.ndarray:
        """The probability of every class (`classes`) for every row; arguments as for `predict`.

        They are what the model says and not how often it is right: noise makes it more, or less,
        sure of itself than it should be.
        """
        if not self.predictor.classification:
            raise ValueError(
                f"the model must tell classes apart to have their probabilities, got a regression"
                f" on {self.problem}"
            )
        return self.predictor.probabilities(self.params, self._features(table, encoded))

    def _features(self, table: Any, encoded: bool) -> np.ndarray:
        if require.flag("encoded", encoded) or self.schema is None:
            return np.asarray(table)
        return features_of(self.schema, table)

    def to_sklearn(self) -> Any:
        """The same linear model in scikit-learn: LogisticRegression or LinearRegression with the
        coefficients set; with a schema behind a TableEncoder, as one pipeline that takes tables.

        Example:
          >>> import hearsay as hs
          >>> problem, graph = hs.problems.logistic("breast-cancer"), hs.graphs.ring(5)
          >>> model = hs.simulate(hs.dsgd(noise=0.1), problem, graph, steps=20).release()
          >>> test = problem.test_features
          >>> bool((model.to_sklearn().predict(test) == model.predict(test)).all())
          True
        """
        from hearsay.estimators.exporting import exported

        return exported(self)

    def network(self) -> tuple[Model, np.ndarray]:
        """The network and its released parameters, as `hearsay.problems.neural(model=...)` takes
        them: to go on training from there, or to compute with.
        """
        model = self.predictor.model
        if model is None:
            raise ValueError(
                "the released model must be a network that is at hand, got"
                f" {self.predictor.facts.get('model', self.predictor.facts['loss'])}"
            )
        return model, np.asarray(self.params)

    def module(self) -> Any:
        """The network as the Equinox (or PyTorch) module that it was made from, with the released
        parameters: it maps one record's features (PyTorch: a batch of them) to scores.
        """
        model, params = self.network()
        if model.module is None:
            raise ValueError(
                f"the network must come from a module, got {model} from a function: network() has"
                " it with its parameters"
            )
        return model.module(model.unravel(jnp.asarray(params)))

    def __repr__(self) -> str:
        return f"ReleasedModel({self.algorithm} on {self.problem}: {self.average_of})"

    def __str__(self) -> str:
        slack = self.certificate.slack
        top = show(max(self.certificate.epsilon)) + ("" if slack is None else f" at {slack:g}")
        lines = [
            f"Released model: {self.algorithm} on {self.problem}, {len(self.params):,} numbers"
        ]
        lines += [f"  average of  {self.average_of}"]
        if self.schema is not None:
            lines.append(
                f"  predicts    {self.schema.target}, from {few(list(self.schema.inputs), ', ')}"
            )
        if self.accuracy is not None:
            lines.append(self._tested(self.accuracy))
        lines += [f"  epsilon     at most {top} for any agent ({self.certificate.adjacency})"]
        if self.certificate.collusion:
            lines.append(f"              {self.certificate.collusion}")
        lines += [f"  free        {self.why}"]
        return "\n".join([*lines, *(f"  warning     {text}" for text in self.warnings)])

    def _tested(self, found: float) -> str:
        if self.predictor.classification:
            return f"  accuracy    {found:.4g}"
        error = in_own_unit(found, self.schema)
        return f"  test error  {error:.4g} (root mean squared, {unit(self.schema)})"

    def save(self, folder: str | os.PathLike) -> Path:
        """Write it into the folder (release/folder.py says which files); returns the folder."""
        from hearsay.release.folder import save

        return save(self, folder)


def features_of(schema: Schema, table: Any) -> np.ndarray:
    """Records of the rows of a table, of rows by name, or of an array with a column per input.

    Args:
      schema: of the table.
      table: as `ReleasedModel.predict` takes it.
    """
    found = as_table(table)
    if isinstance(found, np.ndarray) and found.shape[1:] == (schema.width,):
        require.fail(
            "table",
            f"an array with {len(schema.inputs)} columns, one for each input of the schema"
            " (encoded=True for features that Schema.encode has made)",
            f"shape {found.shape}",
        )
    return schema.encode(found, target=False).features


def as_table(table: Any) -> Any:
    """A list of rows by name as columns by name, other lists as arrays; anything else as it is."""
    if is_rows(table):
        names = list(dict.fromkeys(name for row in table for name in row))
        return {name: [row.get(name) for row in table] for name in names}
    if isinstance(table, (list, tuple)):
        # As one type, numbers of one row would depend on what stands in the others.
        return np.array(table, object)
    # Arrays of jax and others, which are no frames.
    if hasattr(table, "__array__") and not hasattr(table, "columns"):
        return np.asarray(table)
    return table


def is_rows(table: Any) -> bool:
    """Is it one table, as a list of rows by name, and no list of tables?"""
    cell = (str, int, float, bool, type(None), np.generic)
    return (
        isinstance(table, (list, tuple))
        and len(table) > 0
        and all(isinstance(row, Mapping) for row in table)
        and all(isinstance(value, cell) for row in table for value in row.values())
    )


@require.plain_arguments
def how_made(algorithm: Algorithm, rounds: int, agents: int) -> dict[str, str]:
    """How a model of that run was made, as texts."""
    settings = {
        name: few(value, ", ") if isinstance(value, tuple) else str(value)
        for name, value in algorithm.options.items()
        if value is not None
    }
    known = {"hearsay": VERSION, "algorithm": algorithm.name}
    return {**known, "agents": str(agents), "rounds": str(rounds), **settings}
