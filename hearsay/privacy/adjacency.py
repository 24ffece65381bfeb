"""Which two data sets a budget makes hard to tell apart.

    replace     one record of one agent is replaced by any other admissible record
    zero-out    one record is replaced by an empty one, whose gradient is 0 wherever it is taken. It
                keeps its place in the order, its turn in a batch and its share of the mean: how
                many records an agent holds is public, and so is what a sum is divided by

Zero-out is what the epsilon of Opacus and TensorFlow Privacy means, up to the public number of
records. The regulariser is no part of a record: it pulls in both data sets alike.

A budget under zero-out implies one under replace, in two steps, by way of the data set E in which
the record is empty: P(D) <= e^epsilon P(E) + delta <= e^epsilon (e^epsilon P(D') + delta) + delta,

    (epsilon, delta) under zero-out   implies   (2 epsilon, (1 + e^epsilon) delta) under replace

and, for zero-concentrated privacy, rho under zero-out implies 4 rho (a group of two). Nothing
implies zero-out but a bound on gradients themselves: where only their differences are known (a
declared change), there is none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from hearsay import _validate as require
from hearsay.mechanisms.convert import grown

REPLACE = "replace"
ZERO_OUT = "zero-out"
RELATIONS = {
    REPLACE: (
        "two data sets of one agent that differ in one record (replaced by any other admissible"
        " record)"
    ),
    ZERO_OUT: (
        "two data sets of one agent, one of which has an empty record, whose gradient is 0, in the"
        " place of one record (zero-out; how many records an agent holds stays public). For one"
        " record replaced by any other it means (2 epsilon, (1 + e^epsilon) delta)"
    ),
}


@dataclass(frozen=True)
class Adjacency:
    """Which two data sets a budget makes hard to tell apart.

    Args:
      relation: "replace": one record of one agent is replaced by any other admissible record;
        "zero-out": it is replaced by an empty one, whose gradient is 0.

    Example:
      >>> Adjacency("zero-out").relation
      'zero-out'
    """

    relation: str = REPLACE

    def __post_init__(self) -> None:
        require.one_of("relation", self.relation, RELATIONS)

    def __str__(self) -> str:
        return RELATIONS[self.relation]


def implied(epsilon: float, delta: float = 0.0) -> tuple[float, float]:
    """(epsilon, delta) under replace that a budget under zero-out implies; (inf, 1) is none.

    Args:
      epsilon: under zero-out.
      delta: of it.

    Example:
      >>> implied(1.0)
      (2.0, 0.0)
    """
    epsilon = require.nonnegative_or_infinite("epsilon", epsilon)
    delta = require.nonnegative_or_infinite("delta", delta)
    if math.isinf(epsilon):
        return math.inf, 1.0
    lost = grown(epsilon) * delta if delta else 0.0
    return (2 * epsilon, lost) if lost < 1 else (math.inf, 1.0)
