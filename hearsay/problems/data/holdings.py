"""Whose records are whose: one data set that a rule deals out, or one set for every agent; and what
is public of them.

One set per agent is a list whose entry i is agent i's: a Dataset (Images for neural networks), or a
pair (features, labels) in order of arrival. Sets may differ in length. What they must share is the
shape of a record, and the bounds: the problem has the largest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from hearsay import _validate as require
from hearsay.privacy.certificate import who
from hearsay.privacy.recursion import Assumption
from hearsay.problems.data.datasets import Dataset
from hearsay.problems.data.images import Images
from hearsay.problems.data.partition import partition as split
from hearsay.problems.data.records import Records, dealt, padded
from hearsay.problems.sampling.samplers import Arrivals
from hearsay.tables.schema import Schema

T = TypeVar("T", Dataset, Images)
AGENTS, RULE = 5, "iid"


class Facts(NamedTuple):
    """What is public of the agents' data: nothing here is read off a record.

    The bounds are for linear models, `classification` (labels are classes) for those of numbers,
    `classes` for softmax and neural networks; `schema` where records were made from tables.
    """

    name: str
    shape: tuple[int, ...]
    counts: np.ndarray
    feature_bound: float = math.inf
    label_bound: float = math.inf
    assumptions: tuple[Assumption, ...] = ()
    classification: bool = True
    classes: int = 2
    bytes: bool = False
    schema: Schema | None = None


class Holdings(NamedTuple):
    """What is public of the data, the agents' records, and a test set."""

    facts: Facts
    records: Records
    test_features: np.ndarray
    test_labels: np.ndarray


@require.plain_arguments
def deal(data: Dataset | Images, agents: int | None, rule: str | None, seed: int) -> Holdings:
    """One data set, dealt out by a rule."""
    agents = AGENTS if agents is None else require.count("agents", agents)
    parts = split(RULE if rule is None else rule, data.labels, agents, seed)
    records = dealt(data.features, data.labels, parts)
    return Holdings(_facts([data], records), records, data.test_features, data.test_labels)


def gather(sets: Sequence[Dataset | Images]) -> Holdings:
    """One data set for every agent."""
    for agent, one in enumerate(sets):
        if one.features.shape[1:] != sets[0].features.shape[1:]:
            shape = "records of the shape that agent 0's have"
            found = f"{one.features.shape[1:]} and {sets[0].features.shape[1:]}"
            require.fail(f"data of agent {agent}", shape, found)
        if one.features.dtype != sets[0].features.dtype:
            kinds = f"{one.features.dtype} and {sets[0].features.dtype}"
            require.fail(f"data of agent {agent}", "bytes or numbers as agent 0's are", kinds)
        if not len(one.labels):
            require.fail(f"data of agent {agent}", "one record or more", "none")
    records = padded(
        [len(one.labels) for one in sets], ((one.features, one.labels) for one in sets)
    )
    return Holdings(
        _facts(sets, records),
        records,
        np.concatenate([one.test_features for one in sets]),
        np.concatenate([one.test_labels for one in sets]),
    )


def _facts(sets: Sequence[Dataset | Images], records: Records) -> Facts:
    names = list(dict.fromkeys(one.name for one in sets))
    known: dict[str, Any] = {"bytes": records.features.dtype == np.uint8}
    linear = [one for one in sets if isinstance(one, Dataset)]
    if linear:
        known["feature_bound"] = max(one.feature_bound for one in linear)
        known["label_bound"] = max(one.label_bound for one in linear)
        known["assumptions"] = _reasons(linear)
        known["classes"] = max(one.classes or 2 for one in linear)
    else:
        known["classes"] = max(one.classes for one in sets if isinstance(one, Images))
    return Facts(", ".join(names), records.shape, records.held, **known)


def _reasons(sets: Sequence[Dataset]) -> tuple[Assumption, ...]:
    """Why the bounds hold; for whom where it is not for all the same reason."""
    found: dict[Assumption, list[int]] = {}
    for agent, one in enumerate(sets):
        fact = bounded(one.bound_kind, one.feature_bound, one.bound_reason)
        found.setdefault(fact, []).append(agent)
    if len(found) == 1:
        return tuple(found)
    return tuple(
        Assumption(fact.kind, f"{who(agents, len(sets))}: {fact.text}")
        for fact, agents in found.items()
    )


@require.plain_arguments
def bounded(kind: str, bound: float, reason: str) -> Assumption:
    """That features are no longer than that, and why."""
    text = f"every record has features of l2 norm at most {bound:.4g}: {reason}"
    return Assumption(kind, text)


def one_each(data: Any) -> bool:
    """Is it one set per agent?"""
    if isinstance(data, (list, tuple)) and not len(data):
        require.fail("data", "one set for every agent", "an empty list")
    return isinstance(data, (list, tuple))


def sets_of(
    data: Sequence[Any], kind: type[T], make: Callable[[Any, Any], T], agents: Any, rule: Any
) -> list[T]:
    """Everybody's set, pairs made into one by `make`; errors name the agent."""
    if rule is not None:
        require.fail("partition", "left out where data are one set per agent", rule)
    if agents is not None and require.count("agents", agents) != len(data):
        require.fail("agents", f"left out, or the {len(data)} that have a set each in data", agents)
    found = []
    for agent, one in enumerate(data):
        if isinstance(one, kind):
            found.append(one)
            continue
        if not isinstance(one, (list, tuple)) or len(one) != 2:
            rule = f"a pair (features, labels) or {kind.__name__}"
            require.fail(f"data of agent {agent}", rule, f"{type(one).__name__}")
        try:
            found.append(make(*one))
        except (TypeError, ValueError) as error:
            raise ValueError(f"data of agent {agent}: {error}") from error
    return found


def served(arrivals: Arrivals, counts: np.ndarray, name: str = "per_step") -> None:
    """Every agent has the records of one step at least."""
    if counts.min() < arrivals.per_step:
        short = int(np.argmin(counts))
        rule = f"at most the {counts[short]} records of agent {short}"
        require.fail(name, rule, arrivals.per_step)
