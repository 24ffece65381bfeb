"""scikit-learn's own checks for estimators."""

from __future__ import annotations

import warnings

import pytest
from sklearn.utils.estimator_checks import check_estimator

import hearsay as hs
from hearsay.estimators import fitting
from tests.estimators import quick

ESTIMATORS = {
    "classifier": hs.NetworkClassifier(1000.0, ranges_are_public=True, agents=2),
    "regressor": hs.NetworkRegressor(1000.0, ranges_are_public=True, agents=2),
}
UNHELD: dict[str, dict[str, str]] = {"classifier": {}, "regressor": {}}


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting, "rehearse", quick.rehearse)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ESTIMATORS)
def test_the_checks_that_apply_pass(kind: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = check_estimator(
            ESTIMATORS[kind], expected_failed_checks=UNHELD[kind], on_skip=None, on_fail=None
        )
    failed = {
        one["check_name"]: repr(one["exception"]) for one in found if one["status"] == "failed"
    }
    assert not failed
