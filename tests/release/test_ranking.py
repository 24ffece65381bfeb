"""The area under the ROC curve: against scikit-learn, and where it says nothing."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from hearsay.release.ranking import area_under


@pytest.mark.parametrize("seed", range(4))
def test_it_is_that_of_scikit_learn(seed):
    rng = np.random.default_rng(seed)
    labels = rng.random(300) < 0.05
    labels[:2] = True, False
    # Rounded: many are tied.
    scores = (rng.normal(size=300) + labels).round(1)
    assert area_under(scores, labels) == pytest.approx(roc_auc_score(labels, scores), abs=1e-12)


def test_a_constant_guesses_and_one_class_has_none():
    assert area_under(np.zeros(5), np.arange(5) < 2) == 0.5
    assert math.isnan(area_under(np.arange(3.0), np.ones(3, bool)))
