"""Problems: data that cannot be used is refused by name,
and a problem says what its bounds rest on.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from hearsay import problems
from hearsay.problems import from_arrays, logistic, ridge
from hearsay.problems.data.records import dealt, padded
from hearsay.problems.losses.linear import Logistic, PolynomialLogistic, Squared

RNG = np.random.default_rng(0)
FEATURES = RNG.normal(size=(40, 3))
LABELS = (FEATURES[:, 0] > 0).astype(float)


def data(**options):
    return from_arrays(FEATURES, LABELS, feature_bound=2.0, **options)


def texts(problem, kind: str) -> str:
    return " | ".join(a.text for a in problem.privacy_assumptions() if a.kind == kind)


def test_a_problem_from_the_users_own_arrays():
    problem = logistic(data(), agents=3, ridge=0.05, per_step=2, head_start=4, radius=7.0)
    assert (problem.agents, problem.dimension, problem.name) == (3, 3, "custom")
    assert isinstance(problem.loss, Logistic)
    assert problem.counts.tolist() == [11, 11, 10]
    assert problem.features.shape == (3, 11, 3)
    assert problem.change == 4.0
    assert problem.domain.radius == 7.0
    assert problem.classification
    held = np.concatenate([problem.features[i, : problem.counts[i]] for i in range(3)])
    source = data()
    rows = {tuple(r) for r in held}
    assert len(held) == 32
    assert rows == {tuple(r) for r in source.features}, (
        "every training record is held by exactly one agent"
    )
    assert np.all(problem.features[2, 10:] == 0), "padding"
    for i in range(3):
        for j in range(problem.counts[i]):
            match = np.all(source.features == problem.features[i, j], axis=1)
            assert source.labels[match].tolist() == [problem.labels[i, j]], (
                "labels stay with their features"
            )


def test_arrived_counts_what_each_agent_has_seen():
    problem = logistic(data(), agents=3, per_step=2, head_start=3)
    for step in range(10):
        expected = [min(3 + 2 * (step + 1), held) for held in problem.counts]
        assert problem.arrived(step).tolist() == expected


def test_device_arrays_follow_the_precision_of_jax():
    records = logistic(data(), agents=3).device_records
    assert records.features.dtype == records.labels.dtype == jnp.float64
    assert records.held.tolist() == [11, 11, 10]


@pytest.mark.parametrize("make", [logistic, ridge])
def test_errors_name_their_argument(make):
    given = data()
    with pytest.raises(
        ValueError,
        match="per_step must be at most the 10 records of agent 2, got 11",
    ):
        make(given, agents=3, per_step=11)
    with pytest.raises(ValueError, match="per_step must be at least 1, got 0"):
        make(given, agents=3, per_step=0)
    with pytest.raises(ValueError, match="head_start must be at least 0, got -1"):
        make(given, agents=3, head_start=-1)
    with pytest.raises(ValueError, match="agents must be at least 1, got 0"):
        make(given, agents=0)
    with pytest.raises(TypeError, match="agents must be a whole number, got 2.5"):
        make(given, agents=2.5)
    with pytest.raises(
        ValueError, match=r"every agent must hold at least one record, .* leaves agents 32–34 empty"
    ):
        make(given, agents=35)
    with pytest.raises(ValueError, match="partition must be one of .* did you mean 'dirichlet'"):
        make(given, agents=3, partition="dirichlt:0.5")
    with pytest.raises(ValueError, match="ridge must be zero or positive, got -1"):
        make(given, agents=3, ridge=-1.0)
    with pytest.raises(ValueError, match="clip must be positive, got 0"):
        make(given, agents=3, clip=0)
    with pytest.raises(ValueError, match="radius must be positive, got 0"):
        make(given, agents=3, radius=0)
    with pytest.raises(ValueError, match="data set must be one of .* did you mean 'digits'"):
        make("digit", agents=3)


def test_bad_arrays_are_refused_by_row():
    broken = FEATURES.copy()
    broken[7, 1] = np.nan
    with pytest.raises(ValueError, match="features must be finite, got nan in row 7, column 1"):
        from_arrays(broken, LABELS, feature_bound=1.0)
    with pytest.raises(ValueError, match="labels must be 0 or 1, got 2 in row 0"):
        from_arrays(FEATURES, 0 * LABELS + 2, feature_bound=1.0)
    with pytest.raises(ValueError, match="labels must be finite, got nan in row 0"):
        from_arrays(FEATURES, LABELS * np.nan, feature_bound=1.0, label_bound=1.0)
    with pytest.raises(ValueError, match="feature_bound must be given"):
        from_arrays(FEATURES, LABELS)


def test_logistic_regression_refuses_regression_labels():
    with pytest.raises(ValueError, match="labels must be 0 or 1, got"):
        logistic(from_arrays(FEATURES, FEATURES[:, 0], feature_bound=2.0, label_bound=3.0))
    with pytest.raises(ValueError, match="labels must be 0 or 1, got"):
        logistic(problems.linear_stream(records=30, dimension=2))


def test_ridge_regression_on_classification_data_is_scored_by_accuracy():
    problem = ridge(data(), agents=3)
    assert problem.classification
    assert isinstance(problem.loss, Squared)
    assert problem.loss.label_bound == 1.0
    regression = from_arrays(FEATURES, FEATURES[:, 0], feature_bound=2.0, label_bound=0.5)
    assert not ridge(regression, agents=3).classification
    assert ridge(regression, agents=3).loss.label_bound == 0.5


def test_the_default_stream_of_ridge_regression():
    problem = ridge(agents=2, records=15, dimension=4)
    assert problem.features.shape == (2, 15, 4)
    assert problem.counts.tolist() == [15, 15]
    np.testing.assert_allclose(problem.change, 2 * 5.0 + 4 * problem.loss.label_bound)


def test_the_polynomial_problem_needs_a_domain_small_enough_for_it():
    problem = logistic(data(), agents=3, approximate=True, radius=4.0)
    assert isinstance(problem.loss, PolynomialLogistic)
    assert problem.loss.margin_bound == 8.0
    with pytest.raises(
        ValueError, match="radius must be at most 15 for the polynomial loss .* got 100000.0"
    ):
        logistic(data(), agents=3, approximate=True)
    with pytest.raises(ValueError, match="clip must be None for the polynomial loss"):
        logistic(data(), agents=3, approximate=True, radius=4.0, clip=1.0)


def test_assumptions_say_what_enforces_or_proves_each_bound():
    plain = logistic(data(), agents=3, ridge=0.1, radius=7.0)
    assert "every record has features of l2 norm at most 2" in texts(plain, "enforced")
    assert "models are projected onto the ball of radius 7" in texts(plain, "enforced")
    assert "curvature interval [0.1, 1.1] of the Logistic loss from |a| <= 2" in texts(
        plain, "derived"
    )
    assert "at most C = 4 (features and label both replaced)" in texts(plain, "derived")
    clipped = logistic(data(), agents=3, clip=0.5)
    assert "clipped to l2 norm 0.5, so one record changes it by at most 1" in texts(
        clipped, "enforced"
    )
    assert "at most C" not in texts(clipped, "derived")
    loose = logistic(data(), agents=3, clip=50.0)
    assert "clipped" not in texts(loose, "enforced"), (
        "a clip that never binds is not what the bound rests on"
    )
    squared = ridge(data(), agents=3, radius=4.0)
    assert f"at most C = {squared.change:.4g}" in texts(squared, "derived")
    assert "over the ball of radius 4" in texts(squared, "derived")


@pytest.mark.parametrize("counts", [(2, 2, 2), (3, 1, 2)])
def test_records_are_dealt_to_all_agents_at_once(counts):
    """As one after the other would get them, with zeros after the last."""
    rng = np.random.default_rng(0)
    features, labels = rng.normal(size=(6, 2)), rng.integers(0, 2, 6)
    parts = np.split(rng.permutation(6), np.cumsum(counts)[:-1])
    found = dealt(features, labels, parts)
    right = padded(counts, ((features[rows], labels[rows]) for rows in parts))
    for ours, wanted in zip(found, right, strict=True):
        np.testing.assert_array_equal(ours, wanted)
        assert ours.dtype == wanted.dtype
