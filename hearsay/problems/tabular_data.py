"""Learning from tables: one table per agent, and a public schema that makes records of their rows.

The schema says what is learned. A target with two levels: logistic regression; with more: softmax
regression; a number: ridge regression; and a network by its name, where there are levels. All
records are there before the first step, and one of them is emptied in the adjacency that
certificates speak of (zero-out), unless said otherwise.

What is public is the schema and how many rows each agent has: `table_facts` and `tabular_task` are
made from these alone, and a simulation on files and an agent that has only its own arrive at the
same task.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hearsay import _validate as require
from hearsay.privacy.adjacency import ZERO_OUT
from hearsay.problems.data.holdings import Facts, bounded
from hearsay.problems.data.table_rows import TableRows, read_rows
from hearsay.problems.linear import logistic_task, ridge_task
from hearsay.problems.neural_networks import neural_task
from hearsay.problems.problem import Problem, holding
from hearsay.problems.several_classes import softmax_task
from hearsay.problems.task import Task
from hearsay.tables.counting import Counted
from hearsay.tables.schema import Schema

_NETWORK_CLIP = 1.0
# Models of numbers between -1 and 1, from records no longer than 1; classes have no such scale.
_NUMBERS_RADIUS, _CLASSES_RADIUS = 5.0, 1e5


@require.known_arguments
def tabular(
    data: Sequence[Any] | TableRows,
    schema: Any,
    *,
    agents: int | None = None,
    test: Any = None,
    model: Any = None,
    clip: float | None = None,
    ridge: float = 0.0,
    radius: float | None = None,
    per_step: int = 1,
    head_start: int | None = None,
    names: Sequence[str] | None = None,
    notify: Callable[[Counted], None] | None = None,
    seed: int = 0,
    adjacency: str = ZERO_OUT,
) -> Problem:
    """Learning from tables, one for each agent.

    Args:
      data: one table per agent, as `Schema.encode` takes them: paths, frames, dicts of columns; or
        what `read_rows` has made of them and of `test`.
      schema: a Schema, or the path of a schema.toml.
      agents: left out, or as many as there are tables.
      test: a table to test on, or several.
      model: a network by its name ("mlp"), or one as `neural` takes it; a linear model unless
        given.
      clip: the l2 norm that every record's gradient is brought down to; None leaves that of a
        linear model as it is, and brings a network's down to 1.
      ridge: the regulariser is ridge / 2 times the squared norm of the model (ridge regression:
        ridge times it).
      radius: of the ball that models are projected onto; 1e5 for classes and 5 for numbers unless
        given.
      per_step: records that reach each agent per step, after the head start.
      head_start: records that each agent holds before step 0; all of them unless given.
      names: what errors and the owner's lines call the tables; their paths unless given.
      notify: is given what was counted in every table, for its owner only.
      seed: of a network's start and of the sampling.
      adjacency: what certificates protect, "replace" (one record is replaced by any other) or
        "zero-out" (by an empty one; privacy/adjacency.py).

    Example:
      >>> import hearsay as hs
      >>> schema = hs.Schema(
      ...     {"age": hs.Number(0, 120), "ill": hs.Category(["no", "yes"])}, target="ill"
      ... )
      >>> wards = [{"age": [31, 58], "ill": ["no", "yes"]}, {"age": [70], "ill": ["yes"]}]
      >>> problem = hs.problems.tabular(wards, schema)
      >>> problem.counts.tolist(), problem.loss.feature_bound
      ([2, 1], 1.0)
    """
    public = Schema.of(schema)
    if not isinstance(data, TableRows):
        rows = read_rows(data, public, test=test, names=names, notify=notify)
    elif public == data.schema and test is None and names is None:
        rows = data
    else:
        raise ValueError("schema must be that of the rows that were read, and no test or names")
    many = rows.records.agents
    if agents is not None and require.count("agents", agents) != many:
        require.fail("agents", f"left out, or the {many} that have a table each", agents)
    task = tabular_task(
        table_facts(public, rows.records.held),
        model=model,
        clip=clip,
        ridge=ridge,
        radius=radius,
        per_step=per_step,
        head_start=head_start,
        seed=seed,
        adjacency=adjacency,
    )
    return holding(task, rows.records, rows.test_features, rows.test_labels)


@require.known_arguments
def table_facts(schema: Schema, counts: Any, name: str | None = None) -> Facts:
    """What is public of tables: their schema and how many rows each agent has.

    Args:
      schema: of all of them.
      counts: rows by agent.
      name: what reports call the data; after the target unless given.

    Example:
      >>> import hearsay as hs
      >>> columns = {"age": hs.Number(0, 120), "ill": hs.Category(["no", "yes"])}
      >>> facts = hs.problems.table_facts(hs.Schema(columns, target="ill"), [120, 90])
      >>> facts.shape, facts.feature_bound
      ((2,), 1.0)
    """
    if schema.classes:
        how = "is divided by its own length"
    else:
        how = f"is divided by {schema.factor:.4g}, and labels are clipped to a public range"
    reason = (
        "a public schema makes it of one row (numbers are clipped to public ranges, categories have"
        f" public levels), and it {how}."
    )
    return Facts(
        name or f"tables ({schema.target})",
        (schema.width,),
        np.asarray(counts),
        1.0,
        1.0,
        (bounded("enforced", 1.0, reason),),
        classification=schema.classes is not None,
        classes=len(schema.classes or ()),
        schema=schema,
    )


@require.known_arguments
def tabular_task(
    data: Facts,
    *,
    model: Any = None,
    clip: float | None = None,
    ridge: float = 0.0,
    radius: float | None = None,
    per_step: int = 1,
    head_start: int | None = None,
    seed: int = 0,
    adjacency: str = ZERO_OUT,
) -> Task:
    """What is public of `tabular` on such data (`table_facts`); arguments as there."""
    if data.schema is None:
        raise ValueError("data must have a schema (table_facts makes them), got none")
    head = int(max(data.counts)) if head_start is None else head_start
    if model is not None:
        return _network(data, model, clip, ridge, radius, per_step, head, seed, adjacency)
    usual = _CLASSES_RADIUS if data.schema.classes else _NUMBERS_RADIUS
    return _linear(data)(
        data,
        ridge=ridge,
        per_step=per_step,
        head_start=head,
        radius=usual if radius is None else radius,
        clip=clip,
        seed=seed,
        adjacency=adjacency,
    )


def _linear(data: Facts) -> Callable[..., Task]:
    """Which linear model the target asks for."""
    if not data.classification:
        return ridge_task
    return logistic_task if data.classes == 2 else softmax_task


def _network(
    data: Facts,
    model: Any,
    clip: float | None,
    ridge: float,
    radius: float | None,
    per_step: int,
    head_start: int,
    seed: int,
    adjacency: str,
) -> Task:
    if not data.classification:
        rule = "left out where the target is a number: networks here tell classes apart"
        require.fail("model", rule, model)
    return neural_task(
        data,
        model=model,
        clip=_NETWORK_CLIP if clip is None else clip,
        ridge=ridge,
        per_step=per_step,
        head_start=head_start,
        radius=_CLASSES_RADIUS if radius is None else radius,
        seed=seed,
        adjacency=adjacency,
    )
