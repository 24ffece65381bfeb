"""Image data: what is read is what is published, and a wrong file or array is named."""

from __future__ import annotations

import gzip
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

import hearsay as hs
from hearsay.problems.data import files
from hearsay.problems.data.images import Images, from_records, load_images
from hearsay.problems.data.partition import partition


def available(key: str) -> bool:
    return any(s.key == key and s.found for s in files.status())


needs_mnist = pytest.mark.skipif(
    "not available('mnist-train-images')", reason="MNIST is not on this machine"
)
needs_cifar = pytest.mark.skipif(
    "not available('cifar10')", reason="CIFAR-10 is not on this machine"
)


@needs_mnist
def test_mnist_has_its_published_counts():
    data = load_images("mnist")
    assert data.features.shape == (60_000, 28, 28, 1) and data.features.dtype == np.uint8
    assert np.bincount(data.labels).tolist() == [
        5923,
        6742,
        5958,
        6131,
        5842,
        5421,
        5918,
        6265,
        5851,
        5949,
    ]
    assert np.bincount(data.test_labels).tolist() == [
        980,
        1135,
        1032,
        1010,
        982,
        892,
        958,
        1028,
        974,
        1009,
    ]


@needs_cifar
def test_cifar_has_its_published_counts_and_means():
    data = load_images("cifar10")
    assert data.features.shape == (50_000, 32, 32, 3) and data.test_features.shape == (
        10_000,
        32,
        32,
        3,
    )
    assert np.all(np.bincount(data.labels) == 5000) and np.all(
        np.bincount(data.test_labels) == 1000
    )
    np.testing.assert_allclose(
        data.test_features.mean(axis=(0, 1, 2)) / 255, [0.4942, 0.4851, 0.4504], atol=5e-5
    )


@needs_mnist
def test_a_corrupted_file_is_named_with_its_checksum(tmp_path):
    shutil.copytree(Path(os.environ["HEARSAY_DATA"]) / "mnist", tmp_path / "mnist")
    path = tmp_path / "mnist" / "t10k-labels-idx1-ubyte.gz"
    path.chmod(0o644)
    path.parent.chmod(0o755)
    content = gzip.decompress(path.read_bytes())
    path.unlink()
    path.write_bytes(gzip.compress(content[:-1] + bytes([content[-1] ^ 1])))
    with pytest.raises(
        files.ChecksumError, match=r"t10k-labels-idx1-ubyte.gz must have sha256 f7ae60f9"
    ):
        load_images("mnist", data_dir=str(tmp_path))


def test_digits_come_with_scikit_learn():
    data = load_images("digits")
    assert (
        data.shape == (8, 8, 1)
        and data.classes == 10
        and len(data.labels) + len(data.test_labels) == 1797
    )
    assert data.features.max() == 255


@pytest.mark.parametrize(
    ("features", "labels", "match"),
    [
        (
            np.zeros((4, 3, 3)),
            np.array([0, 1, 2, 1.5]),
            "labels must be whole numbers from 0 to 2, got .1.5",
        ),
        (np.zeros((4, 3, 3)), np.zeros(3), "labels must be one per record"),
        (np.full((4, 3), np.nan), np.array([0, 1, 0, 1]), "features must be finite"),
    ],
)
def test_bad_records_are_named(features, labels, match):
    with pytest.raises(ValueError, match=match):
        from_records(features, labels, classes=3 if labels.size == 4 and labels.max() > 1 else 2)


def test_test_images_of_another_shape_are_refused():
    with pytest.raises(
        ValueError, match="test_features must be records of shape 3 x 3, got .an array of shape"
    ):
        Images(
            "odd", np.zeros((2, 3, 3)), np.array([0, 1]), np.zeros((2, 4, 3)), np.array([0, 1]), 2
        )


def test_thinning_is_a_draw_that_the_seed_fixes():
    data = load_images("digits")
    few, again, other = (data.subset(50, 20, seed) for seed in (1, 1, 2))
    assert len(few.labels) == 50 and len(few.test_labels) == 20
    np.testing.assert_array_equal(few.features, again.features)
    assert np.any(few.features != other.features)
    with pytest.raises(ValueError, match="records must be at most the 1,438 of digits, got 99999"):
        data.subset(99_999, None, 0)


def test_half_by_label_is_paper_p4s_split():
    """Half evenly, the other half by digit: 30,000 and 30,000 of MNIST;
    here 2,000 labels in the same proportions.
    """
    labels = np.repeat(np.arange(10), 200)
    parts = partition("half_by_label", labels, agents=10, seed=0)
    assert sorted(np.concatenate(parts).tolist()) == list(range(2000))
    for agent, rows in enumerate(parts):
        own = np.mean(labels[rows] == agent)
        # Of an agent's 100 even rows a tenth is its own class, and all of the other 100 or so.
        assert 0.45 < own < 0.65
        assert len(set(labels[rows])) >= 8


def test_a_dominant_class_is_paper_p1s_split():
    labels = np.repeat(np.arange(10), 100)
    parts = partition("dominant:0.4", labels, agents=5, seed=0)
    for agent, rows in enumerate(parts):
        assert np.sum(labels[rows] == agent) == 40


def test_the_problem_keeps_bytes():
    problem = hs.problems.neural("digits", model="mlp", agents=3)
    assert problem.features.dtype == np.uint8 and problem.records.features.dtype == np.uint8
    assert problem.device_records.dtype == problem.dtype
