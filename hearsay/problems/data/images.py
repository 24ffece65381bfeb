"""Image data sets: records of any shape with a class each, kept as bytes until a model reads them.

    mnist    60,000 + 10,000 of 28 x 28 x 1, 10 classes  from a data folder or a download
                                                         (files.py), sha256-checked
    cifar10  50,000 + 10,000 of 32 x 32 x 3, 10 classes  from a data folder
    digits    1,438 +    360 of  8 x  8 x 1, 10 classes  in scikit-learn

Nothing is augmented and nothing is scaled by what the data say: a byte v becomes v / 255.
"""

from __future__ import annotations

import gzip
import os
import struct
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hearsay import _validate as require
from hearsay.problems.data import files

Folder = str | os.PathLike[str] | None


@dataclass(frozen=True, eq=False)
class Images:
    """Records of several classes, such as images, and the same for testing.

    Args:
      name: what reports call it.
      features: (records, ...), bytes or numbers.
      labels: (records,), whole numbers from 0 to classes - 1.
      test_features: as `features`.
      test_labels: as `labels`.
      classes: how many there are.
    """

    name: str
    features: np.ndarray
    labels: np.ndarray
    test_features: np.ndarray
    test_labels: np.ndarray
    classes: int

    def __post_init__(self) -> None:
        require.settle(self, classes=lambda name, value: require.count(name, value, 2))
        for part in ("", "test_"):
            features, labels = getattr(self, f"{part}features"), getattr(self, f"{part}labels")
            if features.ndim < 2 or features.shape[1:] != self.features.shape[1:]:
                wanted = " x ".join(map(str, self.features.shape[1:])) or "one or more axes"
                require.fail(
                    f"{part}features",
                    f"records of shape {wanted}",
                    f"an array of shape {features.shape}",
                )
            if labels.shape != features.shape[:1]:
                require.fail(
                    f"{part}labels",
                    f"{len(features)} labels, one per record",
                    f"shape {labels.shape}",
                )
            if not np.all((labels >= 0) & (labels < self.classes) & (labels == np.floor(labels))):
                row = int(
                    np.argmin(
                        (labels >= 0) & (labels < self.classes) & (labels == np.floor(labels))
                    )
                )
                require.fail(
                    f"{part}labels",
                    f"whole numbers from 0 to {self.classes - 1}",
                    f"{labels[row]} in row {row}",
                )
            if not np.issubdtype(features.dtype, np.integer) and not np.isfinite(features).all():
                row = int(np.argmin(np.isfinite(features).reshape(len(features), -1).all(axis=1)))
                require.fail(f"{part}features", "finite numbers", f"one that is not, in row {row}")

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one record."""
        return self.features.shape[1:]

    def subset(self, records: int | None, test_records: int | None, seed: int) -> Images:
        """So many records of each part, drawn at random; None keeps all."""
        records, test_records = (
            require.optional(require.count)(name, wanted)
            for name, wanted in (("records", records), ("test_records", test_records))
        )
        rng = np.random.default_rng([require.seed("seed", seed), *b"thinned"])
        kept = []
        for features, labels, wanted, name in (
            (self.features, self.labels, records, "records"),
            (self.test_features, self.test_labels, test_records, "test_records"),
        ):
            order = rng.permutation(len(labels))
            if wanted is not None and wanted > len(labels):
                require.fail(name, f"at most the {len(labels):,} of {self.name}", wanted)
            rows = np.sort(order[:wanted]) if wanted is not None else slice(None)
            kept += [features[rows], labels[rows]]
        return Images(self.name, kept[0], kept[1], kept[2], kept[3], self.classes)


@require.known_arguments
def load_images(name: str, *, data_dir: Folder = None) -> Images:
    """A set of images by name: "mnist", "cifar10" or "digits".

    Args:
      name: of the data set.
      data_dir: a folder of raw files, for the data sets that need one (see `files.locate`).

    Example:
      >>> import hearsay as hs
      >>> hs.problems.load_images("digits").shape
      (8, 8, 1)
    """
    require.one_of("data", name, IMAGES)
    return IMAGES[name](data_dir)


@require.known_arguments
def from_records(
    features: Any,
    labels: Any,
    *,
    classes: int | None = None,
    name: str = "custom",
    test_fraction: float = 0.2,
    seed: int = 0,
) -> Images:
    """A user's own records of several classes.

    Args:
      features: (records, ...), bytes (read as v / 255) or numbers (read as they are).
      labels: (records,), whole numbers from 0.
      classes: how many there are; one more than the largest label unless given.
      name: what reports call it.
      test_fraction: how many records are set aside for testing.
      seed: of the permutation that sets them aside.

    Example:
      >>> import numpy as np
      >>> import hearsay as hs
      >>> images = hs.problems.from_records(np.zeros((10, 4, 4, 1)), np.arange(10) % 3)
      >>> images.classes
      3
    """
    features, labels = _read(features, labels)
    test_fraction, seed = (
        require.fraction("test_fraction", test_fraction),
        require.seed("seed", seed),
    )
    order = np.random.default_rng([seed, *b"split"]).permutation(len(labels))
    test, train = np.split(order, [max(1, round(test_fraction * len(labels)))])
    count = int(labels.max()) + 1 if classes is None else classes
    return Images(name, features[train], labels[train], features[test], labels[test], count)


def in_order(features: Any, labels: Any, *, classes: int, name: str = "custom") -> Images:
    """As `from_records`, with the records in the order in which they are given and none set aside:
    one agent's own.
    """
    features, labels = _read(features, labels)
    return Images(name, features, labels, features[:0], labels[:0], classes)


def _read(features: Any, labels: Any) -> tuple[np.ndarray, np.ndarray]:
    features, labels = np.asarray(features), require.array("labels", labels)
    if features.dtype != np.uint8:
        features = require.array("features", features).astype(np.float32)
    if labels.shape != features.shape[:1]:
        require.fail("labels", f"one per record ({len(features)})", f"shape {labels.shape}")
    return features, labels


def _mnist(data_dir: Folder) -> Images:
    parts = [
        _idx(files.locate(f"mnist-{part}", data_dir))
        for part in ("train-images", "train-labels", "test-images", "test-labels")
    ]
    return Images("mnist", parts[0][..., None], parts[1], parts[2][..., None], parts[3], 10)


def _idx(path: Path) -> np.ndarray:
    """An idx file: two zero bytes, the type (8: bytes), the number of axes, their lengths,
    the content.
    """
    with gzip.open(path, "rb") as stream:
        content = stream.read()
    zero, kind, axes = struct.unpack(">HBB", content[:4])
    if zero != 0 or kind != 8:
        require.fail(str(path), "an idx file of bytes", f"the first bytes {content[:4]!r}")
    shape = struct.unpack(f">{axes}I", content[4 : 4 + 4 * axes])
    return np.frombuffer(content, np.uint8, offset=4 + 4 * axes).reshape(shape)


def _cifar10(data_dir: Folder) -> Images:
    path = files.locate("cifar10", data_dir)
    try:
        with np.load(path) as archive:
            parts = [archive[name] for name in ("x_train", "y_train", "x_test", "y_test")]
    except (zipfile.BadZipFile, KeyError) as error:
        raise ValueError(
            f"{path} must hold x_train, y_train, x_test and y_test: {error}"
        ) from error
    return Images("cifar10", parts[0], parts[1], parts[2], parts[3], 10)


def _digits(_: Folder) -> Images:
    from sklearn.datasets import load_digits

    pixels, digit = load_digits(return_X_y=True)
    scaled = np.round(pixels * (255 / 16)).astype(np.uint8).reshape(-1, 8, 8, 1)
    return from_records(scaled, digit.astype(np.uint8), classes=10, name="digits")


IMAGES = {"mnist": _mnist, "cifar10": _cifar10, "digits": _digits}
