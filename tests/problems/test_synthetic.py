"""The synthetic(alpha, beta) data: what it is drawn from, what is enforced,
and what does not change.
"""

from __future__ import annotations

import numpy as np
import pytest

import hearsay as hs
from hearsay.problems import synthetic
from hearsay.problems.synthetic_learners import _learner


def learners(count, alpha, beta, records=2, dimension=1000):
    """Unshortened features of many learners, (count, records, dimension), and their labels."""
    drawn = [
        _learner(np.random.default_rng([7, k]), records, dimension, alpha, beta)
        for k in range(count)
    ]
    return np.stack([d[0] for d in drawn]), np.stack([d[1] for d in drawn])


def test_shapes_and_labels():
    problem = synthetic(agents=3, records=7, dimension=5)
    assert problem.features.shape == (3, 7, 5)
    assert problem.labels.shape == (3, 7)
    assert problem.test_features.shape == (300, 5)
    assert set(np.unique(problem.labels)) <= {0.0, 1.0}
    assert problem.classification
    assert problem.counts.tolist() == [7, 7, 7]
    assert problem.name == "synthetic(0.1, 0.1)"


def test_records_have_variances_that_fall_like_j_to_the_minus_1_2():
    """The sample variance of m normal values is chi-square: a relative error above 5 sqrt(2/m) has
    probability below 6e-7, for 20 coordinates 1.2e-5.
    """
    features, *_ = _learner(np.random.default_rng(0), 20_000, 20, 0.1, 0.1)
    expected = np.arange(1, 21) ** -1.2
    assert np.all(np.abs(features.var(axis=0, ddof=1) / expected - 1) < 5 * np.sqrt(2 / 20_000))


def test_the_shift_of_the_means_has_variance_beta():
    """B_k is the mean over 1000 coordinates up to a variance below 0.01:
    400 of them have a sample variance within 5 sqrt(2/400) of beta + that (false alarm 6e-7).
    """
    features, _ = learners(400, 0.0, 0.5)
    shifts = features.mean(axis=(1, 2))
    assert abs(shifts.var(ddof=1) / 0.5 - 1) < 5 * np.sqrt(2 / 400) + 0.02


def test_heterogeneity_of_features_grows_with_beta():
    spread = [
        learners(200, 0.0, beta, dimension=100)[0].mean(axis=(1, 2)).var()
        for beta in (0.0, 0.1, 1.0)
    ]
    assert 0 < spread[0] < spread[1] / 3 < spread[2] / 9


def test_heterogeneity_of_models_grows_with_alpha():
    """With beta = 1 a learner's mean margin has a standard deviation of about 14 without and 100
    with alpha = 1, against 2 to 3 within a learner: more of the learners have one label only.
    """

    def mixed(alpha):
        _, labels = learners(400, alpha, 1.0, records=40, dimension=100)
        share = labels.mean(axis=1)
        return np.mean(share * (1 - share))

    assert mixed(0.0) > 1.5 * mixed(0.1) > 1.5 * 1.2 * mixed(1.0) > 0


def test_labels_are_the_sign_of_the_learners_own_margin():
    """Every learner's records are separable by a hyperplane with an intercept: its own."""
    rng = np.random.default_rng([0, 4, *b"synthetic"])
    centre, shift = np.sqrt(0.1) * rng.normal(), np.sqrt(0.1) * rng.normal()
    weights, bias, mean = (
        rng.normal(centre, 1.0, 6),
        rng.normal(centre, 1.0),
        rng.normal(shift, 1.0, 6),
    )
    problem = synthetic(agents=5, records=300, dimension=6, feature_bound=1e6)
    np.testing.assert_array_equal(problem.labels[4], problem.features[4] @ weights + bias > 0)
    assert np.abs(problem.features[4].mean(axis=0) - mean).max() < 0.4


def test_the_bound_is_enforced_and_declared_so():
    problem = synthetic(agents=4, records=200, dimension=10, feature_bound=2.0)
    for features in (problem.features, problem.test_features):
        norms = np.linalg.norm(features, axis=-1)
        assert norms.max() <= 2.0
        assert np.sum(norms > 2.0 - 1e-9) > 10, "nothing was shortened: the test shows nothing"
    assert problem.loss.feature_bound == 2.0
    assert problem.change == 4.0
    assert problem.assumptions[0].kind == "enforced"


def test_more_learners_or_records_do_not_change_those_there_are():
    small, large = (
        synthetic(agents=2, records=5, dimension=4),
        synthetic(agents=4, records=9, dimension=4),
    )
    np.testing.assert_array_equal(small.features, large.features[:2, :5])
    np.testing.assert_array_equal(small.test_features, large.test_features[:200])
    assert not np.array_equal(
        small.features, synthetic(agents=2, records=5, dimension=4, seed=1).features
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"agents": 0}, "agents"),
        ({"records": 0}, "records"),
        ({"alpha": -1.0}, "alpha"),
        ({"beta": float("nan")}, "beta"),
        ({"feature_bound": 0.0}, "feature_bound"),
        ({"per_step": 6}, "per_step must be at most the 5 records"),
        ({"seed": -1}, "seed"),
    ],
)
def test_bad_arguments_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        synthetic(**{"agents": 2, "records": 5, "dimension": 3, **options})


def test_it_can_be_asked_for_by_name():
    assert hs.problems.PROBLEMS["synthetic"] is synthetic
