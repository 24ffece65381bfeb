"""How well a model tells two classes apart, whichever of them is the rarer.

Where 97 rows in 100 have one label, always naming it is right for 97 of 100, and so is nearly every
model: accuracy says little there. The area under the ROC curve is the chance that of two rows, one
of each class, the model gives the second class the higher probability for the right one. Guessing
has 0.5, whatever the shares.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import stats

from hearsay.release.model import ReleasedModel


def area(model: ReleasedModel, features: np.ndarray, labels: np.ndarray) -> float | None:
    """The area under the ROC curve; None of a model that does not tell two classes apart.

    Args:
      model: that was released.
      features: of the rows, as the model takes them.
      labels: of the rows, 0 or 1.
    """
    if model.predictor.classes != 2:
        return None
    scores = model.predictor.scores(model.params, features)
    found = area_under(scores[:, 1] - scores[:, 0], labels == 1)
    return None if math.isnan(found) else found


def area_under(scores: np.ndarray, second: np.ndarray) -> float:
    """Of scores; undefined (nan) where all rows are of one class.

    Args:
      scores: higher for what is taken for the second class.
      second: which rows are of it.

    Example:
      >>> area_under(np.array([0.1, 0.4, 0.35, 0.8]), np.array([False, False, True, True]))
      0.75
    """
    many, few = int(second.sum()), int((~second).sum())
    if not many or not few:
        return math.nan
    # Ties count half.
    above = stats.rankdata(scores)[second].sum() - many * (many + 1) / 2
    return float(above / (many * few))
