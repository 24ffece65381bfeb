"""Data sets whose bounds hold for every record that could have been there.

A sensitivity proof needs ||a|| <= feature_bound and |b| <= label_bound for any record (a, b), not
only for those in the file. So nothing here is scaled by a mean, deviation or maximum of the data:
scaling uses public constants, and a record that is too long is shortened on its own. `bound_kind`
says why the bound holds:

    "enforced"   code in this file shortens each record to the bound
    "derived"    the encoding cannot produce a longer record
    "declared"   somebody promises it, and nothing checks the records that are not here

Everything is float64, whatever type of number was given; a cast to float32 may lengthen a record
by a relative 6e-8. Bounds lie between 1e-30 and 1e30 (_validate.py): beyond these the lengths of
records could not be told.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hearsay import _validate as require
from hearsay.problems.data import files

Folder = str | os.PathLike[str] | None
BOUND_KINDS = ("enforced", "derived", "declared")
_ROWS = 1024  # of a block

# The minima and maxima printed in the data set's description, of each mean, standard error and
# worst value.
BREAST_CANCER_RANGES = (
    ((6.981, 28.11), (0.112, 2.873), (7.93, 36.04)),  # radius
    ((9.71, 39.28), (0.36, 4.885), (12.02, 49.54)),  # texture
    ((43.79, 188.5), (0.757, 21.98), (50.41, 251.2)),  # perimeter
    ((143.5, 2501.0), (6.802, 542.2), (185.2, 4254.0)),  # area
    ((0.053, 0.163), (0.002, 0.031), (0.071, 0.223)),  # smoothness
    ((0.019, 0.345), (0.002, 0.135), (0.027, 1.058)),  # compactness
    ((0.0, 0.427), (0.0, 0.396), (0.0, 1.252)),  # concavity
    ((0.0, 0.201), (0.0, 0.053), (0.0, 0.291)),  # concave points
    ((0.106, 0.304), (0.008, 0.079), (0.156, 0.664)),  # symmetry
    ((0.05, 0.097), (0.001, 0.03), (0.055, 0.208)),  # fractal dimension
)

# The letters are a constant, so that the encoding is the same whichever records are present.
_MUSHROOM_LETTERS = """
    cap-shape=bcfksx cap-surface=fgsy cap-color=bcegnpruwy bruises=ft odor=acflmnpsy
    gill-attachment=af
    gill-spacing=cw gill-size=bn gill-color=beghknopruwy stalk-shape=et stalk-root=?bcer
    stalk-surface-above-ring=fksy stalk-surface-below-ring=fksy stalk-color-above-ring=bcegnopwy
    stalk-color-below-ring=bcegnopwy veil-type=p veil-color=nowy ring-number=not ring-type=eflnp
    spore-print-color=bhknoruwy population=acnsvy habitat=dglmpuw
"""
MUSHROOM_COLUMNS = {entry.split("=")[0]: entry.split("=")[1] for entry in _MUSHROOM_LETTERS.split()}


@dataclass(frozen=True, eq=False)
class Dataset:
    """Training and test records, with the bounds that every possible record obeys.

    No intercept column is added.

    Args:
      name: what reports call it.
      features: (records, dimension).
      labels: (records,); 0 or 1 for classification, or 0, ..., classes - 1.
      test_features: as `features`.
      test_labels: as `labels`.
      feature_bound: the largest l2 norm that a record's features may have.
      label_bound: the largest size of a label.
      bound_kind: what the bounds rest on: "enforced", "derived" or "declared".
      bound_reason: why they hold, as certificates print it.
      truth: the weights that made the labels, where they are known.
      classes: how many, where labels are classes of which there may be more than two.
    """

    name: str
    features: np.ndarray
    labels: np.ndarray
    test_features: np.ndarray
    test_labels: np.ndarray
    feature_bound: float
    label_bound: float
    bound_kind: str
    bound_reason: str
    truth: np.ndarray | None = None
    classes: int | None = None

    def __post_init__(self) -> None:
        if self.bound_kind not in BOUND_KINDS:
            raise ValueError(
                f"bound_kind must be one of {', '.join(BOUND_KINDS)}, got {self.bound_kind!r}"
            )
        require.settle(
            self,
            feature_bound=require.bound,
            label_bound=require.bound,
            truth=require.optional(require.array),
            classes=require.optional(_classes),
        )
        for part in ("", "test_"):
            features, labels = _arrays(
                getattr(self, f"{part}features"), getattr(self, f"{part}labels"), self.classes
            )
            object.__setattr__(self, f"{part}features", features)
            object.__setattr__(self, f"{part}labels", labels)
            with np.errstate(over="ignore"):
                norms = _by_rows(lambda rows: np.linalg.norm(rows, axis=1), features)
            slack = 1 + _rounding(features)
            _check_bounded(f"{part}features", norms, "feature_bound", self.feature_bound * slack)
            _check_bounded(f"{part}labels", np.abs(labels), "label_bound", self.label_bound)


@require.known_arguments
def load(
    name: str,
    *,
    data_dir: Folder = None,
    seed: int = 0,
    test_fraction: float = 0.2,
    every_class: bool = False,
) -> Dataset:
    """A classification data set by name: "digits", "breast-cancer" or "mushrooms".

    Label 1 is an odd digit, a benign tumour (as in scikit-learn) or a poisonous mushroom.

    Args:
      name: of the data set.
      data_dir: a folder of raw files, for the data sets that need one (see `files.locate`).
      seed: of the permutation that sets records aside for testing.
      test_fraction: how many are set aside.
      every_class: labels are all the classes that the data have: of digits the ten digits, not
        whether they are odd.

    Example:
      >>> import hearsay as hs
      >>> hs.problems.load("breast-cancer").features.shape
      (455, 30)
    """
    require.one_of("data set", name, NAMES)
    features, labels, feature_bound, kind, reason = _LOADERS[name](data_dir)
    classes = None
    if require.flag("every_class", every_class):
        labels, classes = _digit() if name == "digits" else labels, _CLASSES.get(name, 2)
    check_classification(features, labels, classes or 2)
    parts, largest = _split(features, labels, test_fraction, seed), float((classes or 2) - 1)
    return Dataset(name, *parts, feature_bound, largest, kind, reason, classes=classes)


@require.known_arguments
def from_arrays(
    features: Any,
    labels: Any,
    *,
    name: str = "custom",
    feature_bound: float | None = None,
    label_bound: float | None = None,
    classes: int | None = None,
    test_fraction: float = 0.2,
    seed: int = 0,
) -> Dataset:
    """A user's own arrays, with each record shortened to `feature_bound`.

    Args:
      features: (records, dimension).
      labels: (records,).
      name: what reports call it.
      feature_bound: the l2 norm that longer records are scaled down to; chosen from what the
        features mean, not from these records.
      label_bound: None: classification, labels are 0 or 1. Otherwise labels are real numbers, and
        are clipped to [-label_bound, label_bound].
      classes: labels are 0, ..., classes - 1, for `softmax`; instead of a label_bound.
      test_fraction: how many records are set aside for testing.
      seed: of the permutation that sets them aside.

    Example:
      >>> import hearsay as hs
      >>> data = hs.problems.from_arrays([[3, 4], [0, 1]] * 5, [0, 1] * 5, feature_bound=1.0)
      >>> len(data.labels), len(data.test_labels)
      (8, 2)
    """
    features, labels, bounds = _within(features, labels, feature_bound, label_bound, classes)
    parts = _split(features, labels, test_fraction, seed)
    return Dataset(name, *parts, *bounds, classes=classes)


def in_order(
    features: Any,
    labels: Any,
    *,
    name: str = "custom",
    feature_bound: float | None = None,
    label_bound: float | None = None,
    classes: int | None = None,
) -> Dataset:
    """As `from_arrays`, with the records in the order in which they are given and none set aside:
    one agent's own.
    """
    features, labels, bounds = _within(features, labels, feature_bound, label_bound, classes)
    parts = features, labels, features[:0], labels[:0]
    return Dataset(name, *parts, *bounds, classes=classes)


def _within(
    features: Any,
    labels: Any,
    feature_bound: float | None,
    label_bound: float | None,
    classes: int | None,
) -> tuple[np.ndarray, np.ndarray, tuple[float, float, str, str]]:
    """Records brought within their bounds; the bounds, and why they hold."""
    if feature_bound is None:
        raise ValueError(
            "feature_bound must be given, got None: it must hold for every record that could have"
            " been in the data, so it cannot be measured from those that are (their largest norm is"
            " itself private); choose it from what the features mean, and longer records are scaled"
            " down to it"
        )
    feature_bound = require.bound("feature_bound", feature_bound)
    label_bound = require.optional(require.bound)("label_bound", label_bound)
    classes = require.optional(_classes)("classes", classes)
    if label_bound is not None and classes is not None:
        require.fail("label_bound", "left out where labels are classes", label_bound)
    reason = f"By the caller's choice of bound, {_shortened(feature_bound)}"
    many = (classes or 2) if label_bound is None else None
    features, labels = _arrays(features, labels, many)
    if label_bound is None:
        label_bound = float((classes or 2) - 1)
    else:
        labels = np.clip(labels, -label_bound, label_bound)
        reason += f", and labels are clipped to {label_bound} in size"
    bounds = (feature_bound, label_bound, "enforced", f"{reason}.")
    return shorten(features, feature_bound), labels, bounds


@require.known_arguments
def linear_stream(
    *,
    records: int,
    dimension: int,
    noise: float = 0.1,
    seed: int = 0,
    feature_bound: float = 1.0,
    label_bound: float | None = None,
    test_records: int = 1000,
) -> Dataset:
    """Linear regression with known weights: b = a . truth + noise * N(0, 1), clipped.

    Features are uniform in the ball of radius `feature_bound`, and `truth` has norm 1. The weights
    and the test part depend on `seed` and `dimension` but not on `records`.

    Args:
      records: how many to train on.
      dimension: of the features.
      noise: the standard deviation of the labels.
      seed: of the draws.
      feature_bound: the largest norm of a record's features.
      label_bound: what labels are clipped to; the default, feature_bound + 4 noise, clips less than
        one label in 10,000.
      test_records: how many to test on.

    Example:
      >>> import hearsay as hs
      >>> hs.problems.linear_stream(records=50, dimension=3).features.shape
      (50, 3)
    """
    records, dimension = require.count("records", records), require.count("dimension", dimension)
    test_records, noise = (
        require.count("test_records", test_records),
        require.nonnegative("noise", noise),
    )
    feature_bound = require.bound("feature_bound", feature_bound)
    bound = require.bound(
        "label_bound", feature_bound + 4 * noise if label_bound is None else label_bound
    )
    with require.fits("dimension", dimension):
        truth = _rng(seed, b"truth").standard_normal(dimension)
    truth /= np.linalg.norm(truth)

    def draw(purpose: bytes, count: int) -> tuple[np.ndarray, np.ndarray]:
        rng = _rng(seed, purpose)
        features = rng.standard_normal((count, dimension))
        # A ball's volume grows as radius**dimension, so this root spreads the records evenly in it.
        radii = feature_bound * rng.uniform(size=(count, 1)) ** (1 / dimension)
        features *= radii / np.linalg.norm(features, axis=1, keepdims=True)
        features = shorten(features, feature_bound)
        return features, np.clip(
            features @ truth + noise * rng.standard_normal(count), -bound, bound
        )

    reason = (
        f"Records are drawn in a ball of radius {feature_bound} and labels are clipped to {bound}"
        " in size."
    )
    with require.fits("records", records):
        train = draw(b"stream", records)
    with require.fits("test_records", test_records):
        test = draw(b"test", test_records)
    return Dataset("linear-stream", *train, *test, feature_bound, bound, "enforced", reason, truth)


@require.plain_arguments
def check_classification(features: Any, labels: Any, classes: int = 2) -> None:
    """Refuses features that are not finite and labels that are not 0, ..., classes - 1,
    naming the first bad row.
    """
    _arrays(features, labels, _classes("classes", classes))


def encode_mushrooms(lines: Iterable[str]) -> tuple[np.ndarray, np.ndarray]:
    """One-hot features, 117 columns ordered as `MUSHROOM_COLUMNS`,
    and labels (poisonous 1, edible 0).
    """
    columns = {"label": "ep", **MUSHROOM_COLUMNS}
    starts = np.cumsum([0, *(len(letters) for letters in columns.values())])
    hot = []
    for row, line in enumerate(lines):
        record = line.strip().split(",")
        if len(record) != len(columns):
            raise ValueError(f"row {row} must have {len(columns)} columns, got {len(record)}")
        for letter, start, (column, letters) in zip(record, starts, columns.items(), strict=False):
            if len(letter) != 1 or letter not in letters:
                raise ValueError(
                    f"row {row}, column {column!r} must be one of {letters!r}, got {letter!r}"
                )
            hot.append(start + letters.index(letter))
    encoded = np.zeros((len(hot) // len(columns), starts[-1]))
    np.put_along_axis(encoded, np.reshape(hot, (-1, len(columns))), 1.0, axis=1)
    return encoded[:, 2:], encoded[:, 1]


_Records = tuple[np.ndarray, np.ndarray, float, str, str]
_Parts = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def _digits(_: object) -> _Records:
    from sklearn.datasets import load_digits

    pixels, digit = load_digits(return_X_y=True)
    reason = f"Pixels are divided by their public maximum of 16, then {_shortened(1.0)}."
    return shorten(pixels / 16.0, 1.0), (digit % 2).astype(np.float64), 1.0, "enforced", reason


def _digit() -> np.ndarray:
    """Which of the ten each of them is, in the same order."""
    from sklearn.datasets import load_digits

    return load_digits(return_X_y=True)[1].astype(np.float64)


def _breast_cancer(_: object) -> _Records:
    from sklearn.datasets import load_breast_cancer

    measured, benign = load_breast_cancer(return_X_y=True)
    low, high = np.array(BREAST_CANCER_RANGES).transpose(2, 1, 0).reshape(2, -1)
    features = np.clip(2 * (measured - low) / (high - low) - 1, -1.0, 1.0)
    reason = (
        "The published range of each feature is treated as public, mapped to [-1, 1] and clipped"
        " there, "
    )
    reason += f"then {_shortened(1.0)}."
    return shorten(features, 1.0), benign.astype(np.float64), 1.0, "enforced", reason


def _mushrooms(data_dir: Folder) -> _Records:
    lines = files.locate("mushrooms", data_dir).read_text(encoding="ascii").splitlines()
    reason = (
        "Each of the 22 categorical columns sets exactly one entry to 1, so every norm is sqrt(22)."
    )
    return *encode_mushrooms(lines), float(np.sqrt(len(MUSHROOM_COLUMNS))), "derived", reason


_LOADERS = {"digits": _digits, "breast-cancer": _breast_cancer, "mushrooms": _mushrooms}
NAMES = tuple(_LOADERS)
# Of those that have more than the two that `load` tells apart.
_CLASSES = {"digits": 10}


def _shortened(bound: float) -> str:
    return f"each record with an l2 norm above {bound} is scaled down to it"


def _rounding(features: np.ndarray) -> float:
    # More than the relative error of a computed norm of that many terms.
    return (features.shape[1] + 8) * float(np.finfo(np.float64).eps)


def shorten(features: Any, bound: float) -> np.ndarray:
    """Rows with an l2 norm above `bound` scaled down to it.

    Entries whose squares vanish are far below any bound that is allowed.
    """
    features, bound = require.array("features", features), require.bound("bound", bound)
    # So that rounding never leaves a record above the bound.
    target = bound * (1 - _rounding(features))
    shortened = features.copy()
    for rows in _blocks(len(features)):
        part = shortened[rows]
        with np.errstate(over="ignore"):
            above = np.linalg.norm(part, axis=1) > bound
        long = part[above]
        # A norm that overflowed becomes finite.
        long = long / np.abs(long).max(axis=1, keepdims=True)
        part[above] = long * (target / np.linalg.norm(long, axis=1, keepdims=True))
    return shortened


def _blocks(count: int) -> list[slice]:
    """Rows in blocks that stay in a processor's cache: of millions of records no second copy is
    made on the way.
    """
    return [slice(first, first + _ROWS) for first in range(0, count, _ROWS)]


def _by_rows(function: Callable[[np.ndarray], np.ndarray], features: np.ndarray) -> np.ndarray:
    """The function's value for every row."""
    return np.concatenate([function(features[rows]) for rows in _blocks(max(1, len(features)))])


def _classes(name: str, value: Any) -> int:
    return require.count(name, value, 2)


@require.plain_arguments
def allowed_labels(labels: np.ndarray, classes: int | None) -> tuple[np.ndarray, str]:
    """(which of them are a class, the rule in words); without classes any finite number will do."""
    if classes is None:
        return np.isfinite(labels), "finite"
    whole = (labels == np.floor(labels)) & (labels >= 0) & (labels < classes)
    return whole, "0 or 1" if classes == 2 else f"whole numbers from 0 to {classes - 1}"


def _arrays(
    features: Any, labels: Any, classes: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    features, labels = require.array("features", features), require.array("labels", labels)
    if features.ndim != 2 or features.shape[1] == 0:
        raise ValueError(f"features must have shape (records, columns), got {features.shape}")
    if labels.shape != features.shape[:1]:
        raise ValueError(
            f"labels must have shape {features.shape[:1]}, one per record, got {labels.shape}"
        )
    allowed, rule = allowed_labels(labels, classes)
    good = _by_rows(lambda rows: np.isfinite(rows).all(axis=1), features) & allowed
    if not good.all():
        row = int(np.argmin(good))
        if not allowed[row]:
            raise ValueError(f"labels must be {rule}, got {labels[row]:g} in row {row}")
        column = int(np.argmin(np.isfinite(features[row])))
        value = features[row, column]
        raise ValueError(f"features must be finite, got {value:g} in row {row}, column {column}")
    return features, labels


def _split(features: np.ndarray, labels: np.ndarray, test_fraction: float, seed: int) -> _Parts:
    test_fraction = require.nonnegative("test_fraction", test_fraction)
    if test_fraction >= 1:
        require.fail("test_fraction", "at least 0 and below 1", test_fraction)
    held_out = round(test_fraction * len(labels))
    if held_out >= len(labels):
        raise ValueError(
            f"test_fraction must leave a training record, got {test_fraction} of {len(labels)}"
        )
    order = _rng(seed, b"split").permutation(len(labels))
    train, test = order[held_out:], order[:held_out]
    return features[train], labels[train], features[test], labels[test]


def _rng(seed: int, purpose: bytes) -> np.random.Generator:
    # The purpose is part of the seed: other draws from the same user seed must not repeat these.
    return np.random.default_rng([require.seed("seed", seed), *purpose])


def _check_bounded(argument: str, sizes: np.ndarray, bound_name: str, bound: float) -> None:
    if (sizes > bound).any():
        row = int(np.argmax(sizes > bound))
        raise ValueError(
            f"{argument} must be within {bound_name} {bound:g}, got {sizes[row]:g} in row {row}"
        )
