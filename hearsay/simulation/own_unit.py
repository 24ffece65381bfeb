"""How far predictions of a number are off, as people read it: root mean squared errors in the
target's own unit, and the share of the variance that is explained.

A run measures mean squared errors e of labels as records have them; a table's target y goes from
its public range [low, high] to [-1, 1]. So in the unit of y the root mean squared error is
sqrt(e) (high - low) / 2. Always naming the mean of the test labels has the error sqrt(var), and
R^2 = 1 - e / var.

With scale = "log" the logarithm of y goes from log(low) to log(high), and sqrt(e) becomes a factor,
(high / low)^(sqrt(e) / 2): 2 is as far off as twice, or half. R^2 is then that of the logarithms.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hearsay.tables.columns import LOG
from hearsay.tables.schema import Schema

if TYPE_CHECKING:
    from hearsay.simulation.measured import Measured


class Errors(NamedTuple):
    """Of a run that predicts a number; None where something was not measured.

    Args:
      own: of the agents' own models: (mean, standard deviation over seeds).
      released: of the model that may be released, likewise.
      explained: R^2 of the released model, the mean over seeds.
      guess: of always naming the mean.
      clean: of the same settings without noise.
      alone: of every agent by itself with the same epsilon.
      unit: in words.
      log: errors are factors, and their logarithms are what was measured.
    """

    own: tuple[float, float]
    released: tuple[float, float] | None
    explained: float | None
    guess: float
    clean: float | None
    alone: float | None
    unit: str
    log: bool = False


def in_own_unit(squared: float, schema: Schema | None) -> float:
    """A mean squared error as a root mean squared one in the target's unit, or as a factor of it.

    Args:
      squared: of labels as records have them.
      schema: of the tables that records were made from, if they were.
    """
    root, column = math.sqrt(squared), schema.number if schema else None
    if column is None:
        return root
    if column.scale == LOG:
        # A run that diverged has no error that a float can hold.
        with np.errstate(over="ignore"):
            return float(np.exp(root / 2 * (np.log(column.high) - np.log(column.low))))
    return root * (column.high - column.low) / 2


def unit(schema: Schema | None) -> str:
    """In words."""
    if schema is None:
        return "in the unit of the labels"
    if schema.number is not None and schema.number.scale == LOG:
        return f"as a factor of {schema.target!r} (2: twice or half)"
    return f"in the unit of {schema.target!r}"


def errors_of(run: Measured) -> Errors | None:
    """What a run says of a number; None where it tells classes apart or was not tested."""
    if "test_error" not in run.metrics:
        return None
    schema, spread = run.problem.schema, float(run.problem.test_labels.var())

    def rooted(metric: str) -> tuple[float, float]:
        found = np.array([in_own_unit(one, schema) for one in run.metrics[metric][-1]])
        return float(found.mean()), float(found.std(ddof=1)) if len(found) > 1 else 0.0

    def shown(squared: float | None) -> float | None:
        return None if squared is None else in_own_unit(squared, schema)

    kept = "released_error" in run.metrics
    known = kept and spread > 0
    return Errors(
        rooted("test_error"),
        rooted("released_error") if kept else None,
        1 - run.final("released_error")[0] / spread if known else None,
        in_own_unit(spread, schema),
        shown(run.beside.clean if run.beside else None),
        shown(run.beside.alone if run.beside else None),
        unit(schema),
        schema is not None and schema.number is not None and schema.number.scale == LOG,
    )
