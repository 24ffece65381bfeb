"""The synthetic(alpha, beta) data of Li et al. 2020 ("Federated optimization in heterogeneous
networks", section 5.1), binary as in paper P4's section V-A.

    u_k ~ N(0, alpha),   weights w_k ~ N(u_k, 1) in every coordinate,   bias c_k ~ N(u_k, 1)
                         how much the models of the learners differ
    B_k ~ N(0, beta),    mean v_k ~ N(B_k, 1) in every coordinate
                         how much their features differ
    records  a ~ N(v_k, diag(j^-1.2)),    label 1 where a.w_k + c_k > 0, else 0

alpha and beta are variances. The label is the likelier class, as Li et al. take it (their argmax),
not a draw. They have ten classes, with ten rows of weights around the same u_k, which shifts all
classes alike and so never changes a label; with two classes and one row of weights u_k does matter.

The draw is of Li et al.'s records as they are; a record longer than `feature_bound` is then
shortened to it, after its label is known. There is no intercept column, so a learner's bias is
something that the common model can only find through the learner's mean. In 100 dimensions the
means have length about 10 and the records lie within about 2 of them: most learners have nearly one
label, and what one model for all has to learn is which mean belongs to which.
"""

from __future__ import annotations

import numpy as np

from hearsay import _validate as require
from hearsay.privacy.adjacency import REPLACE
from hearsay.privacy.recursion import Assumption
from hearsay.problems.data import datasets
from hearsay.problems.data.records import Records
from hearsay.problems.losses.domains import Ball
from hearsay.problems.losses.linear import Logistic
from hearsay.problems.problem import Problem
from hearsay.problems.sampling.samplers import Arrivals

_TEST = 100  # test records of every learner


@require.known_arguments
def synthetic(
    *,
    agents: int = 20,
    records: int = 5000,
    dimension: int = 100,
    alpha: float = 0.1,
    beta: float = 0.1,
    ridge: float = 0.0,
    clip: float | None = None,
    feature_bound: float = 10.0,
    radius: float = 10.0,
    per_step: int = 1,
    head_start: int = 0,
    seed: int = 0,
    adjacency: str = REPLACE,
) -> Problem:
    """Logistic regression on synthetic(alpha, beta): every learner has a distribution of its own.

    The test set has as many records from every learner. A learner's records do not depend on how
    many learners there are, nor its first ones on `records`.

    Args:
      agents: how many learners.
      records: of each learner, in order of arrival.
      dimension: of the features.
      alpha: how much the learners' models differ.
      beta: how much their features differ.
      ridge: the regulariser is ridge / 2 times the squared norm of the model.
      clip: the l2 norm that every record's gradient is brought down to; None leaves it as it is.
      feature_bound: the l2 norm that longer records are scaled down to.
      radius: of the ball that models are projected onto.
      per_step: records that reach each agent per step.
      head_start: records that each agent holds before step 0.
      seed: of the draws and of the sampling.
      adjacency: what certificates protect, "replace" (one record is replaced by any other) or
        "zero-out" (by an empty one; privacy/adjacency.py).

    Example:
      >>> import hearsay as hs
      >>> hs.problems.synthetic(agents=2, records=10, dimension=3).counts.tolist()
      [10, 10]
    """
    agents, records = require.count("agents", agents), require.count("records", records)
    dimension, seed = require.count("dimension", dimension), require.seed("seed", seed)
    alpha, beta = require.nonnegative("alpha", alpha), require.nonnegative("beta", beta)
    bound = require.bound("feature_bound", feature_bound)
    arrivals = Arrivals(per_step, head_start)
    if arrivals.per_step > records:
        require.fail("per_step", f"at most the {records} records of a learner", arrivals.per_step)
    drawn = [
        _learner(np.random.default_rng([seed, k, *b"synthetic"]), records, dimension, alpha, beta)
        for k in range(agents)
    ]
    features, labels, test_features, test_labels = (
        np.stack(part) for part in zip(*drawn, strict=True)
    )
    reason = (
        f"every record has features of l2 norm at most {bound:.4g}: each record with an l2 norm"
        f" above {bound:g} is scaled down to it."
    )
    counts = np.full(agents, records)
    return Problem(
        f"synthetic({alpha:g}, {beta:g})",
        Logistic(bound, ridge, 1.0, clip),
        Ball(radius),
        (dimension,),
        counts,
        arrivals,
        assumptions=(Assumption("enforced", reason),),
        seed=seed,
        records=Records(_shortened(features, bound), labels, counts),
        test_features=_shortened(test_features, bound).reshape(-1, dimension),
        test_labels=test_labels.ravel(),
        adjacency=adjacency,
    )


def _learner(
    rng: np.random.Generator, records: int, dimension: int, alpha: float, beta: float
) -> tuple[np.ndarray, ...]:
    """(features, labels, test features, test labels) of one learner."""
    centre, shift = np.sqrt(alpha) * rng.normal(), np.sqrt(beta) * rng.normal()
    weights, bias = rng.normal(centre, 1.0, dimension), rng.normal(centre, 1.0)
    mean, deviation = rng.normal(shift, 1.0, dimension), np.arange(1, dimension + 1) ** -0.6
    # The test records first: the number of training records must not change them.
    test, train = (rng.normal(mean, deviation, (count, dimension)) for count in (_TEST, records))
    label = [(part @ weights + bias > 0).astype(np.float64) for part in (train, test)]
    return train, label[0], test, label[1]


def _shortened(features: np.ndarray, bound: float) -> np.ndarray:
    return datasets.shorten(features.reshape(-1, features.shape[-1]), bound).reshape(features.shape)
