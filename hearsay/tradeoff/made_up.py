"""Records that nobody has: several kinds of made-up data with the public facts of a task.

What is known of a task is how many records of how many entries there are, a bound on their norm,
and with a schema which entries are numbers, which are categories, and which is the constant.
Nothing is known of how entries vary together or how labels depend on them, and settings that are
best for one kind of data are bad for another. So there are several kinds, unlike each other in what
matters to noisy gradient descent:

    spectrum    how unevenly the principal axes share the variance (the k-th has k^-p)
    common      the length of what all records have in common, in units of what they differ in:
                tables mapped to [-1, 1] have a constant and columns that sit off the middle
    signal      labels depend on the leading axes, on all entries alike, or on entries in units of
                their own spread
    clarity     how far labels are decided by the record
    share       of the first class
    lengths     all records as long as the bound, or of several lengths

and blocks of entries of which one is 1, as categories have them. Labels are drawn from a logistic
(or softmax, or linear) model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hearsay.problems.data.records import padded
from hearsay.problems.problem import Problem, holding
from hearsay.problems.task import Task
from hearsay.tables.columns import Category

TESTED = 1000


@dataclass(frozen=True)
class Kind:
    """One kind of made-up data.

    Args:
      name: for who looks at the scores.
      spectrum: p, variances of the principal axes fall like k^-p.
      common: what records have in common, over what they differ in.
      signal: "leading", "entries" or "units": what labels depend on.
      clarity: the standard deviation of the margin (over that of the noise, for numbers).
      share: of the first class; for numbers where labels have their middle.
      level: all records are as long as the bound.
      blocks: entries are blocks of which one is 1.
    """

    name: str
    spectrum: float
    common: float
    signal: str
    clarity: float
    share: float = 0.5
    level: bool = True
    blocks: bool = False


KINDS = (
    Kind("spread out", 1.0, 0.0, "entries", 3.0),
    Kind("off the middle", 1.0, 2.0, "leading", 8.0, share=0.35),
    Kind("categories", 0.5, 0.0, "units", 6.0, blocks=True),
    Kind("clear", 1.0, 0.5, "leading", 12.0, level=False),
    Kind("flat", 0.0, 1.0, "entries", 6.0, share=0.6),
    Kind("steep", 2.0, 1.0, "units", 6.0, share=0.3, level=False),
)


def made_up(task: Task, kind: Kind, seed: int) -> Problem:
    """A problem with the task's public facts and no record of anybody.

    Args:
      task: of a linear model.
      kind: of data.
      seed: of the draw.
    """
    task = task.task
    rng = np.random.default_rng([*b"rehearse", KINDS.index(kind), seed])
    total = int(task.counts.sum())
    raw = _entries(task, kind, rng, total + TESTED)
    signals = _signals(kind, raw, rng, _outputs(task))
    labels = _labels(task, kind, signals, rng)
    features = _bounded(task, kind, raw)
    ends = np.cumsum(task.counts)[:-1]
    held = zip(np.split(features[:total], ends), np.split(labels[:total], ends), strict=True)
    records = padded(task.counts.tolist(), held)
    return holding(task, records, features[total:], labels[total:])


def _outputs(task: Task) -> int:
    """How many margins a record has."""
    return task.dimension // task.shape[0]


def _factors(kind: Kind, rng: np.random.Generator, rows: int, columns: int) -> np.ndarray:
    """Numbers that vary together, of variance 1 on average."""
    spread = np.arange(1, columns + 1) ** (-kind.spectrum / 2)
    axes = np.linalg.qr(rng.standard_normal((columns, columns)))[0]
    spread *= math.sqrt(columns / np.sum(spread**2))
    return (rng.standard_normal((rows, columns)) * spread) @ axes.T


def _entries(task: Task, kind: Kind, rng: np.random.Generator, rows: int) -> np.ndarray:
    columns = task.shape[0]
    if task.schema is not None:
        return _table(task.schema, kind, rng, rows)
    if kind.blocks:
        return _one_hot(rng, _factors(kind, rng, rows, columns), _sizes(rng, columns))
    shared = rng.standard_normal(columns)
    return _factors(kind, rng, rows, columns) + kind.common * shared


def _table(schema: Any, kind: Kind, rng: np.random.Generator, rows: int) -> np.ndarray:
    """Rows of a table with that schema, as its entries: numbers of which some sit off the middle
    of their range, categories of which some levels are rare, the constant.
    """
    inputs = list(schema.inputs.values())
    varied = _factors(kind, rng, rows, len(inputs))
    found = []
    for column, own in zip(inputs, varied.T, strict=True):
        if isinstance(column, Category):
            width = len(column.entries("x"))
            noisy = own[:, None] * rng.standard_normal(width) + rng.gumbel(size=(rows, width))
            chance = rng.dirichlet(np.ones(width))
            level = np.argmax(noisy + np.log(chance + 1e-3), axis=1)
            found.append(np.eye(width)[level])
            continue
        middle = rng.uniform(-1, 1) * kind.common / (1 + kind.common)
        wide = rng.uniform(0.1, 0.6) / (1 + kind.common)
        gaps = np.zeros((rows, len(column.entries("x")) - 1))
        if gaps.shape[1]:
            gaps[:, 0] = rng.random(rows) < 0.1
        value = np.clip(middle + wide * own, -1, 1)[:, None]
        found += [np.where(gaps.any(axis=1, keepdims=True), 0.0, value), gaps]
    return np.concatenate([*found, np.ones((rows, 1))], axis=1)


def _sizes(rng: np.random.Generator, columns: int) -> list[int]:
    """Blocks of two to nine entries that make up so many."""
    found: list[int] = []
    while (left := columns - sum(found)) > 0:
        found.append(min(left, int(rng.integers(2, 10))))
    return found


def _one_hot(rng: np.random.Generator, varied: np.ndarray, sizes: list[int]) -> np.ndarray:
    found, begin = [], 0
    for size in sizes:
        own = varied[:, begin : begin + size]
        noisy = 2 * own + rng.gumbel(size=own.shape) + np.log(rng.dirichlet(np.ones(size)) + 1e-3)
        found.append(np.eye(size)[np.argmax(noisy, axis=1)])
        begin += size
    return np.concatenate(found, axis=1)


def _signals(kind: Kind, entries: np.ndarray, rng: np.random.Generator, outputs: int) -> np.ndarray:
    """(rows, outputs), each of mean 0 and variance 1."""
    centred = entries - entries.mean(axis=0)
    columns = entries.shape[1]
    if kind.signal == "leading":
        few = min(columns, max(outputs, 5))
        axes = np.linalg.eigh(centred.T @ centred)[1][:, ::-1][:, :few]
        # The sign of an axis is the solver's choice.
        axes = axes * np.sign(axes[np.argmax(np.abs(axes), axis=0), np.arange(few)])
        weights = axes @ rng.standard_normal((few, outputs))
    else:
        weights = rng.standard_normal((columns, outputs))
        if kind.signal == "units":
            weights /= np.maximum(entries.std(axis=0), 0.05)[:, None]
    found = centred @ weights
    return found / np.maximum(found.std(axis=0), 1e-12)


def _labels(task: Task, kind: Kind, signals: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    if not task.classification:
        noise = rng.standard_normal(len(signals)) / kind.clarity
        value = (2 * kind.share - 1) + (signals[:, 0] + 1.5 * noise) / 4
        return task.loss.label_bound * np.clip(value, -1, 1)  # type: ignore[attr-defined]
    if signals.shape[1] == 1:
        shift = np.quantile(signals[:, 0], 1 - kind.share)
        chance = 1 / (1 + np.exp(-kind.clarity * (signals[:, 0] - shift)))
        return (rng.random(len(chance)) < chance).astype(np.float64)
    noisy = kind.clarity * signals + rng.gumbel(size=signals.shape)
    return np.argmax(noisy, axis=1).astype(np.float64)


def _bounded(task: Task, kind: Kind, entries: np.ndarray) -> np.ndarray:
    """Within the bound on features, and a little below it whatever rounding does."""
    size = task.loss.feature_bound * (1 - 1e-9)  # type: ignore[attr-defined]
    lengths = np.linalg.norm(entries, axis=1, keepdims=True)
    if task.schema is not None and (factor := task.schema.factor) is not None:
        return entries * (size / factor)
    if kind.level or task.schema is not None:
        return entries * (size / np.maximum(lengths, 1e-12))
    most = np.quantile(lengths, 0.99)
    return entries * (size / np.maximum(lengths, most))


def fewer(task: Task, most: int) -> Task:
    """The same with at most so many records per agent."""
    arrivals = replace(task.arrivals, head_start=min(most, task.most))
    return replace(task, counts=np.minimum(task.counts, most), arrivals=arrivals)
