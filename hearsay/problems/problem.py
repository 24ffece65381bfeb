"""A learning problem to simulate: a Task, which is public, and everybody's records."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import numpy as np

from hearsay import _validate as require
from hearsay.problems.data.records import Records
from hearsay.problems.data.stream import Stream
from hearsay.problems.losses.loss import BoundedLoss
from hearsay.problems.task import Task


@dataclass(frozen=True, eq=False, kw_only=True)
class Problem(Task):
    """A Task with the records, a test set, and the best model where it is known.

    What needs no records should be given `problem.task`.

    Args:
      records: everybody's, with an axis of agents; the fields of `Task` come before it.
      test_features: to test on; empty unless given.
      test_labels: as many.
      optimum: the best model, where it is known.
    """

    records: Records | Stream = field(repr=False)
    test_features: np.ndarray = field(default=None, repr=False)  # type: ignore[arg-type]
    test_labels: np.ndarray = field(default=None, repr=False)  # type: ignore[arg-type]
    optimum: np.ndarray | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, shape in (("test_features", (0, *self.shape)), ("test_labels", (0,))):
            if getattr(self, name) is None:
                object.__setattr__(self, name, np.zeros(shape))
        require.settle(self, test_labels=require.array, optimum=require.optional(require.array))
        # A network clips what it makes of its records, and may read them as bytes.
        if isinstance(self.loss, BoundedLoss):
            require.settle(self, test_features=require.array)
        object.__setattr__(self, "records", self._checked())

    def _checked(self) -> Records | Stream:
        """The records as arrays that nobody writes to, and that are what the task says of them."""
        if isinstance(self.records, Stream):
            if not self.endless:
                require.fail("counts", "infinite for an endless stream", self.counts)
            return Stream(*map(require.array, Stream._fields, self.records))
        require.instance("records", self.records, Records, "Records, or an endless Stream")
        features, labels, held = self.records
        labels = require.array("labels", labels)
        if isinstance(self.loss, BoundedLoss):
            features = require.array("features", features)
        padded = (self.agents, self.most)
        if features.shape != (*padded, *self.shape) or labels.shape != padded:
            require.fail(
                "records",
                f"features of shape {(*padded, *self.shape)} and labels of shape {padded}",
                f"{features.shape} and {labels.shape}",
            )
        if not np.array_equal(held, self.counts):
            require.fail(
                "counts", f"the {held} that are held (a Task may have others)", self.counts
            )
        if (features.dtype == np.uint8) != self.bytes:
            require.fail("bytes", "true where features are bytes, and only there", self.bytes)
        if isinstance(self.loss, BoundedLoss):
            self.loss.require_admissible(features, labels)
        return Records(require.kept(features), require.kept(labels), self.counts)

    @cached_property
    def task(self) -> Task:
        """The public part: what holds whatever the records are."""
        return Task(**task_fields(self))

    @property
    def stream(self) -> Stream | None:
        return self.records if isinstance(self.records, Stream) else None

    @property
    def features(self) -> np.ndarray:
        """(agents, most, ...); an endless stream holds none."""
        if isinstance(self.records, Stream):
            return np.zeros((self.agents, 0, *self.shape))
        return self.records.features

    @property
    def labels(self) -> np.ndarray:
        """(agents, most)"""
        if isinstance(self.records, Stream):
            return np.zeros((self.agents, 0))
        return self.records.labels

    @property
    def device_records(self) -> Records | Stream:
        """The records as device arrays, in the precision that jax is set to now."""
        kept = self.__dict__.get("_placed")
        if kept is None or kept[0] != self.dtype:
            kept = self.__dict__["_placed"] = (self.dtype, self.records.placed(self.dtype))
        return kept[1]


def require_records(problem: Any) -> None:
    """A Task is not enough to run."""
    require.instance(
        "problem", problem, Problem, "a problem with records, such as hearsay.problems.logistic()"
    )


def task_fields(task: Task) -> dict[str, Any]:
    """What is public of it, by name."""
    return {f.name: getattr(task, f.name) for f in fields(Task)}


def holding(
    task: Task,
    records: Records | Stream,
    test_features: np.ndarray | None = None,
    test_labels: np.ndarray | None = None,
    optimum: np.ndarray | None = None,
) -> Problem:
    """The problem of a task with those records."""
    return Problem(
        **task_fields(task),
        records=records,
        test_features=test_features,  # type: ignore[arg-type]
        test_labels=test_labels,  # type: ignore[arg-type]
        optimum=optimum,
    )
