"""Data sets: bounds hold, records do not influence one another, and bad input is named."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pytest

from hearsay.problems.data import datasets
from hearsay.problems.data.datasets import (
    Dataset,
    check_classification,
    encode_mushrooms,
    from_arrays,
)

load, linear_stream = datasets.load, datasets.linear_stream
MUSHROOM_FILE = "mushrooms/agaricus-lepiota.data"
FIRST_MUSHROOM = "p,x,s,n,t,p,f,c,n,k,e,e,s,s,w,w,p,w,o,p,k,s,u"


@pytest.fixture
def data_folder():
    places = [os.environ.get("HEARSAY_DATA"), Path(__file__).parents[3] / "shared" / "data"]
    for place in places:
        if place and (Path(place) / MUSHROOM_FILE).is_file():
            return Path(place)
    pytest.skip(f"{MUSHROOM_FILE} is neither in HEARSAY_DATA nor in ../shared/data")


def every_record(dataset):
    return np.vstack([dataset.features, dataset.test_features])


@pytest.mark.parametrize(
    ("name", "records", "columns"), [("digits", 1797, 64), ("breast-cancer", 569, 30)]
)
def test_embedded_sets_obey_their_bound(name, records, columns):
    data = load(name)
    assert every_record(data).shape == (records, columns)
    assert len(data.test_labels) == round(0.2 * records)
    assert data.features.dtype == data.labels.dtype == np.float64
    norms = np.linalg.norm(every_record(data), axis=1)
    assert data.feature_bound == data.label_bound == 1.0
    assert norms.max() <= 1.0
    assert norms.max() > 1 - 1e-12  # the bound is used, not merely respected
    assert data.bound_kind == "enforced"
    assert set(np.unique(data.labels)) == {0.0, 1.0}


def test_digits_label_is_parity_and_direction_is_kept():
    from sklearn.datasets import load_digits

    raw, data = load_digits(), load("digits", test_fraction=0.0)
    directions = raw.data / np.linalg.norm(raw.data, axis=1, keepdims=True)
    own = data.features / np.linalg.norm(data.features, axis=1, keepdims=True)
    source = np.argmax(own[:50] @ directions.T, axis=1)
    np.testing.assert_allclose(own[:50], directions[source], atol=1e-12)
    np.testing.assert_array_equal(data.labels[:50], raw.target[source] % 2)


def test_breast_cancer_ranges_are_the_published_table_and_said_to_be_public():
    from sklearn.datasets import load_breast_cancer

    rows = re.findall(
        r"^.*\((?:mean|standard error|worst)\):\s+([\d.]+)\s+([\d.]+)$",
        load_breast_cancer().DESCR,
        re.M,
    )
    published = np.array(rows, dtype=float)
    assert published.shape == (30, 2)
    ours = np.array(datasets.BREAST_CANCER_RANGES).transpose(1, 0, 2).reshape(30, 2)
    np.testing.assert_array_equal(ours, published)
    assert "treated as public" in load("breast-cancer").bound_reason


@pytest.mark.parametrize(
    ("name", "loader"), [("digits", "load_digits"), ("breast-cancer", "load_breast_cancer")]
)
def test_one_record_never_changes_another(name, loader, monkeypatch):
    """A mean, a deviation or a maximum taken from the data would move the other records."""
    import sklearn.datasets

    before = load(name, test_fraction=0.0).features
    original, target = getattr(sklearn.datasets, loader)(return_X_y=True)
    for factor in (1000.0, -1000.0):
        raw = original.copy()
        raw[17] *= factor
        monkeypatch.setattr(sklearn.datasets, loader, lambda raw=raw, **_: (raw, target))
        after = load(name, test_fraction=0.0).features
        assert (before != after).any(axis=1).sum() <= 1
        assert np.linalg.norm(after, axis=1).max() <= 1.0


def test_split_is_a_seeded_permutation():
    features = np.arange(50.0).reshape(50, 1) / 50
    labels = (np.arange(50) % 2).astype(float)
    first, again, other = (
        from_arrays(features, labels, feature_bound=1.0, seed=s) for s in (0, 0, 1)
    )
    np.testing.assert_array_equal(first.features, again.features)
    assert not np.array_equal(first.features, other.features)
    rows = np.rint(every_record(first)[:, 0] * 50).astype(int)
    assert sorted(rows) == list(range(50)) and list(rows) != list(range(50))
    np.testing.assert_array_equal(np.concatenate([first.labels, first.test_labels]), rows % 2)
    assert len(first.test_labels) == 10


def test_unknown_name_is_suggested_and_all_are_listed():
    with pytest.raises(
        ValueError,
        match="one of digits, breast-cancer, mushrooms, got 'mushroom'; did you mean 'mushrooms'",
    ):
        load("mushroom")


def test_mushrooms_file(data_folder):
    data = load("mushrooms", data_dir=data_folder)
    records = every_record(data)
    assert records.shape == (8124, 117)
    assert data.labels.sum() + data.test_labels.sum() == 3916
    assert set(np.unique(records)) == {0.0, 1.0}
    edges = np.cumsum([0, *map(len, datasets.MUSHROOM_COLUMNS.values())])[:-1]
    assert (np.add.reduceat(records, edges, axis=1) == 1).all()
    assert (records.sum(axis=0) > 0).all()  # every letter of the list occurs in the file
    unknown_root = records[:, edges[10] + datasets.MUSHROOM_COLUMNS["stalk-root"].index("?")]
    assert unknown_root.sum() == 2480
    assert data.feature_bound == np.sqrt(22) and data.label_bound == 1.0
    assert data.bound_kind == "derived" and "exactly one" in data.bound_reason


def test_mushroom_encoding_by_hand():
    features, labels = encode_mushrooms([FIRST_MUSHROOM, "e" + FIRST_MUSHROOM[1:]])
    assert features.shape == (2, 117)
    np.testing.assert_array_equal(labels, [1.0, 0.0])
    names = [
        f"{column}={letter}"
        for column, letters in datasets.MUSHROOM_COLUMNS.items()
        for letter in letters
    ]
    hot = [names[k] for k in np.flatnonzero(features[0])]
    assert hot == [
        f"{column}={letter}"
        for column, letter in zip(
            datasets.MUSHROOM_COLUMNS, FIRST_MUSHROOM.split(",")[1:], strict=True
        )
    ]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (
            FIRST_MUSHROOM.replace("t,p,f", "t,z,f"),
            "row 1, column 'odor' must be one of 'acflmnpsy', got 'z'",
        ),
        ("x" + FIRST_MUSHROOM[1:], "row 1, column 'label' must be one of 'ep', got 'x'"),
        (FIRST_MUSHROOM.replace("t,p,f", "t,,f"), "row 1, column 'odor' .* got ''"),
        (FIRST_MUSHROOM[:-2], "row 1 must have 23 columns, got 22"),
    ],
)
def test_mushroom_letters_outside_the_list_are_named(bad, message):
    with pytest.raises(ValueError, match=message):
        encode_mushrooms([FIRST_MUSHROOM, bad])


def test_own_arrays_are_shortened_to_the_bound_and_short_ones_kept():
    features = np.array([[3.0, 4.0], [0.3, 0.4], [0.0, 2.0], [1e200, 0.0], [1e308, 1e308]])
    data = from_arrays(features, [0, 1, 0, 1, 1], feature_bound=2.0, test_fraction=0.0)
    ordered = data.features[np.lexsort(data.features.T)]
    expected = np.array([[2.0, 0.0], [0.3, 0.4], [np.sqrt(2), np.sqrt(2)], [1.2, 1.6], [0.0, 2.0]])
    np.testing.assert_allclose(ordered, expected, rtol=1e-14)
    assert (np.linalg.norm(data.features, axis=1) <= 2.0).all()
    assert features[0, 0] == 3.0  # the caller's array is left alone
    assert data.bound_kind == "enforced" and data.label_bound == 1.0 and data.name == "custom"


def test_rounding_never_leaves_a_record_above_the_bound():
    rng = np.random.default_rng(0)
    for bound in (0.1, 1.0, 7.3):
        features = rng.standard_normal((2000, 33)) * 100
        data = from_arrays(features, np.zeros(2000), feature_bound=bound)
        assert np.linalg.norm(every_record(data), axis=1).max() <= bound


def test_blocks_of_rows_change_nothing(monkeypatch):
    features = np.random.default_rng(0).normal(size=(50, 3)) * 2
    features[3] = 1e200
    whole = datasets.shorten(features, 1.0)
    monkeypatch.setattr(datasets, "_ROWS", 7)
    np.testing.assert_array_equal(datasets.shorten(features, 1.0), whole)
    with pytest.raises(ValueError, match="got nan in row 20, column 1"):
        features[20, 1] = np.nan
        datasets.from_arrays(features, np.zeros(50), feature_bound=1.0)


def test_own_real_labels_are_clipped_when_a_bound_is_given():
    data = from_arrays(
        np.zeros((3, 1)), [-9.0, 0.5, 9.0], feature_bound=1, label_bound=2, test_fraction=0.0
    )
    assert sorted(data.labels) == [-2.0, 0.5, 2.0]
    assert data.label_bound == 2 and "clipped to 2" in data.bound_reason


def test_bound_reason_reveals_nothing_of_the_records():
    reasons = {
        from_arrays(np.full((4, 2), size), np.zeros(4), feature_bound=1.0).bound_reason
        for size in (0.1, 99.0)
    }
    assert len(reasons) == 1


def test_missing_feature_bound_is_explained():
    with pytest.raises(
        ValueError, match="feature_bound must be given, got None.*cannot be measured"
    ):
        from_arrays(np.zeros((3, 1)), np.zeros(3))


@pytest.mark.parametrize(
    ("features", "labels", "message"),
    [
        (
            [[0.0, 0.0], [0.0, np.nan]],
            [0, 1],
            "features must be finite, got nan in row 1, column 1",
        ),
        (
            [[0.0, 0.0], [np.inf, 0.0]],
            [0, 1],
            "features must be finite, got inf in row 1, column 0",
        ),
        ([[0.0], [0.0], [np.nan]], [0, 2, 3], "labels must be 0 or 1, got 2 in row 1"),
        ([[0.0], [np.nan], [0.0]], [0, 0, 3], "features must be finite, got nan in row 1"),
        ([[0.0]], [np.nan], "labels must be 0 or 1, got nan in row 0"),
        ([[0.0]], [-1], "labels must be 0 or 1, got -1 in row 0"),
        ([0.0, 1.0], [0, 1], r"features must have shape \(records, columns\), got \(2,\)"),
        ([[0.0], [1.0]], [0], r"labels must have shape \(2,\), one per record, got \(1,\)"),
        ([["a"]], [0], "features must be an array of real numbers"),
    ],
)
def test_bad_arrays_name_the_first_bad_row(features, labels, message):
    with pytest.raises(ValueError, match=message):
        check_classification(features, labels)
    with pytest.raises(ValueError, match=message):
        from_arrays(features, labels, feature_bound=1.0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"feature_bound": 0.0}, "feature_bound must be positive, got 0.0"),
        ({"feature_bound": np.inf}, "feature_bound must be finite, got inf"),
        ({"label_bound": -1.0}, "label_bound must be positive, got -1.0"),
        ({"label_bound": 1.0, "labels": [0.0, np.inf]}, "labels must be finite, got inf in row 1"),
        ({"test_fraction": 1.0}, "test_fraction must be at least 0 and below 1, got 1.0"),
        ({"test_fraction": 0.9}, "must leave a training record, got 0.9 of 2"),
        ({"seed": -1}, "seed must be at least 0, got -1"),
    ],
)
def test_bad_options_are_named(options, message):
    arguments = {
        "features": np.zeros((2, 1)),
        "labels": [0.0, 1.0],
        "feature_bound": 1.0,
        **options,
    }
    with pytest.raises((ValueError, TypeError), match=message):
        from_arrays(arguments.pop("features"), arguments.pop("labels"), **arguments)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"bound_kind": "measured"},
            "bound_kind must be one of enforced, derived, declared, got 'measured'",
        ),
        (
            {"features": np.full((2, 4), 0.6)},
            "^features must be within feature_bound 1, got 1.2 in row 0",
        ),
        ({"test_features": np.full((1, 4), 0.6)}, "^test_features must be within feature_bound"),
        (
            {"labels": np.array([0.0, 1.5])},
            "^labels must be within label_bound 1, got 1.5 in row 1",
        ),
    ],
)
def test_a_dataset_refuses_a_bound_that_its_own_records_break(changes, message):
    fields = {"features": np.zeros((2, 4)), "labels": np.zeros(2), "bound_kind": "declared"}
    fields |= {"test_features": np.zeros((1, 4)), "test_labels": np.zeros(1)}
    Dataset(name="x", feature_bound=1.0, label_bound=1.0, bound_reason="a promise", **fields)
    with pytest.raises(ValueError, match=message):
        Dataset(
            name="x",
            feature_bound=1.0,
            label_bound=1.0,
            bound_reason="a promise",
            **{**fields, **changes},
        )


def test_linear_stream_fills_the_ball_evenly():
    data = linear_stream(records=20_000, dimension=3, feature_bound=2.0, seed=1)
    norms = np.linalg.norm(data.features, axis=1)
    assert norms.max() <= 2.0
    # P(norm <= r) = (r/2)^3; the deviation of each share is below 0.0036, so 0.018 is five of them.
    for radius in (0.8, 1.2, 1.6):
        assert abs((norms <= radius).mean() - (radius / 2) ** 3) < 0.018
    # Each coordinate has variance bound^2 / (d + 2) = 0.8, so the mean's deviation is 0.0064.
    assert np.abs(data.features.mean(axis=0)).max() < 0.032


def test_linear_stream_labels_follow_the_truth():
    data = linear_stream(records=20_000, dimension=3, noise=0.1, seed=1)
    assert data.truth is not None
    assert np.linalg.norm(data.truth) == pytest.approx(1.0)
    solved, *_ = np.linalg.lstsq(data.features, data.labels, rcond=None)
    # Each weight's deviation is 0.1 / sqrt(20000 / 5) = 0.0016.
    np.testing.assert_allclose(solved, data.truth, atol=0.008)
    assert np.std(data.labels - data.features @ data.truth) == pytest.approx(0.1, rel=0.03)
    assert data.label_bound == pytest.approx(1.4) and data.bound_kind == "enforced"


def test_linear_stream_without_noise_is_exact_and_clips():
    exact = linear_stream(records=100, dimension=4, noise=0.0)
    np.testing.assert_allclose(exact.labels, exact.features @ exact.truth, atol=1e-15)
    clipped = linear_stream(records=100, dimension=4, noise=0.0, label_bound=0.05)
    assert np.abs(clipped.labels).max() == 0.05
    assert (np.abs(exact.labels) > 0.05).any()


def test_linear_stream_truth_and_test_part_depend_on_the_seed_only():
    short, long, other = (
        linear_stream(records=n, dimension=2, seed=s) for n, s in ((5, 0), (50, 0), (5, 1))
    )
    np.testing.assert_array_equal(short.truth, long.truth)
    np.testing.assert_array_equal(short.test_features, long.test_features)
    assert not np.array_equal(short.truth, other.truth)
    assert not np.array_equal(short.features, short.test_features[:5])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"records": 0}, "records must be at least 1, got 0"),
        ({"dimension": 2.5}, "dimension must be a whole number, got 2.5"),
        ({"noise": -0.1}, "noise must be zero or positive, got -0.1"),
        ({"feature_bound": np.nan}, "feature_bound must be finite, got nan"),
    ],
)
def test_linear_stream_names_bad_arguments(options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        linear_stream(**{"records": 5, "dimension": 2, **options})
