"""A released linear model as scikit-learn's own.

    logistic    P(1) = 1 / (1 + exp(-a.theta))         LogisticRegression, coef_ = [theta]
    softmax     P(k) ~ exp(a.theta_k)                  LogisticRegression, coef_ = [theta_0, ...]
    squared     a.theta, in the target's own units     LinearRegression
                low + (a.theta + 1) (high - low) / 2:  coef_ = theta (high - low) / 2, and the
                                                       middle of the range as intercept_
    on a log scale: exp of that, between the logarithms of low and high; TransformedTargetRegressor

A record of a table has a constant among its entries, so that no other intercept is needed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hearsay.estimators.encoder import TableEncoder
from hearsay.release.model import ReleasedModel
from hearsay.tables.columns import LOG

_LOGISTIC = ("Logistic", "PolynomialLogistic", "Softmax")
_SQUARED = ("Squared", "HalfSquared")


def exported(model: ReleasedModel) -> Any:
    """What `ReleasedModel.to_sklearn` says."""
    from sklearn.pipeline import Pipeline

    loss, classification = model.predictor.facts["loss"], model.predictor.classification
    if loss in _LOGISTIC:
        found = _logistic(model)
    elif loss in _SQUARED and not classification:
        found = _linear(model)
    elif loss in _SQUARED:
        raise ValueError(
            "the model must be logistic, softmax or a regression for scikit-learn, got a regression"
            f" on labels 0 and 1 ({model.problem}), which has no probabilities"
        )
    else:
        raise ValueError(
            f"the model must be linear for scikit-learn, got {model.predictor.facts.get('model')}:"
            " module() has the network itself, network() the parameters with it"
        )
    if model.schema is None:
        return found
    return Pipeline([("encoder", TableEncoder(model.schema)), ("model", found)])


def _logistic(model: ReleasedModel) -> Any:
    from sklearn.linear_model import LogisticRegression

    found, params, classes = LogisticRegression(), np.asarray(model.params, float), model.classes
    assert classes is not None
    width = int(model.predictor.facts["shape"][0])
    found.coef_ = params.reshape(-1, width)
    if len(found.coef_) == 2:
        # Of two classes scikit-learn has one row: what the second has over the first.
        found.coef_ = found.coef_[1:] - found.coef_[:1]
    found.intercept_ = np.zeros(len(found.coef_))
    found.classes_, found.n_features_in_ = classes, width
    return found


def _linear(model: ReleasedModel) -> Any:
    from sklearn.linear_model import LinearRegression

    found, params = LinearRegression(), np.asarray(model.params, float)
    # As `ReleasedModel.predict` says it in the target's own units.
    column = model.schema.number if model.schema else None
    low, high = (-1.0, 1.0) if column is None else (column.low, column.high)
    powers = column is not None and column.scale == LOG
    if powers:
        low, high = np.log([low, high])
    found.coef_, found.intercept_ = params * ((high - low) / 2), (low + high) / 2
    found.n_features_in_ = len(params)
    return _by_powers(found) if powers else found


def _by_powers(found: Any) -> Any:
    """A fitted regression of logarithms as one of the numbers themselves."""
    from sklearn.compose import TransformedTargetRegressor
    from sklearn.preprocessing import FunctionTransformer

    outer = TransformedTargetRegressor(found, func=np.log, inverse_func=np.exp)
    outer.regressor_, outer._training_dim = found, 1
    outer.transformer_ = FunctionTransformer(
        np.log, np.exp, validate=True, check_inverse=outer.check_inverse
    ).fit(np.ones((1, 1)))
    return outer
