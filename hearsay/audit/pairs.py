"""Pairs of adjacent data sets that are worth telling apart.

A certificate speaks of every pair, so an auditor may choose. A record does most where its gradient
is long and the other's points the other way, where its features have equal coordinates (a gap of
l2 length G is then sqrt(d) G in l1, what Laplace noise is paid for), at the step where a use is
costliest; and beside other records that pull the two states together as little as possible. Which
of these matters depends on the algorithm: a pilot decides (distinguish.py), `search` goes further.

Under zero-out adjacency the other record is empty: for a linear model, one without features.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hearsay import _validate as require
from hearsay.audit.messages import bare, membership
from hearsay.base import Algorithm
from hearsay.certification.describing import own_accounts
from hearsay.graphs import Graph
from hearsay.privacy.adjacency import ZERO_OUT
from hearsay.problems.losses.linear import HalfSquared, LinearLoss, Squared
from hearsay.problems.losses.loss import BoundedLoss
from hearsay.problems.losses.softmax import Softmax
from hearsay.problems.problem import Problem
from hearsay.problems.sampling.samplers import Records
from hearsay.problems.task import Task

_ENDLESS = 1e3  # features where nothing bounds them: a clip does


class Pair(NamedTuple):
    first: Records
    second: Records
    words: str


@require.plain_arguments
def candidates(
    algorithm: Algorithm,
    problem: Problem,
    graph: Graph,
    agent: int,
    steps: int,
    seed: int = 0,
    row: int | None = None,
) -> list[Pair]:
    """A few dozen pairs: kinds of the two records, times lines along which they lie,
    times what the agent holds beside them.

    Args:
      row: of the record; None: the one whose replacement can move messages most.
    """
    loss = problem.loss
    if not isinstance(loss, BoundedLoss) or problem.declared:
        require.fail(
            "problem",
            "a linear model's whose loss bounds the records: only then is it known which there"
            " may be",
            problem.name,
        )
    plain = bare(algorithm)
    if row is None:
        used = membership(plain, problem, graph, agent, steps)
        row = costliest_row(plain, problem, graph, agent, used, -1)
    own = jax.tree.map(lambda x: x[agent], problem.device_records)
    beside = {
        "its own records": own,
        "records without features": own._replace(features=jnp.zeros_like(own.features)),
    }
    if algorithm.sampling.secret:
        # A subset has another record in the place of one that it leaves out.
        beside["copies of the other one"] = own
    size = loss.feature_bound if np.isfinite(loss.feature_bound) else _ENDLESS
    (low, top), d = label_range(loss), problem.shape[-1]
    rng = np.random.default_rng([seed, *b"pairs"])
    lines = {
        "equal coordinates": np.ones(d),
        "one coordinate": np.eye(d)[0],
        "a random line": rng.normal(size=d),
    }
    kinds = {
        "opposite labels": ((1, top), (1, low)),
        "opposite features": ((1, top), (-1, top)),
        "one without features": ((1, low), (0, low)),
    }
    if problem.adjacency == ZERO_OUT:
        kinds = {f"emptied, label {b:g}": ((1, b), (0, b)) for b in (low, top)}
    found = []
    for held, records in beside.items():
        for line, direction in list(lines.items())[: 1 if d == 1 else None]:
            unit = size * direction / np.linalg.norm(direction)
            for kind, two in kinds.items():
                if held.startswith("copies"):
                    records = _copies(own, two[1], unit)
                made = [
                    records._replace(
                        features=records.features.at[row].set(
                            jnp.asarray(turn * unit, problem.dtype)
                        ),
                        labels=records.labels.at[row].set(label),
                    )
                    for turn, label in two
                ]
                found.append(
                    Pair(made[0], made[1], f"record {row}: {kind} along {line}, beside {held}")
                )
    return found


def _copies(own: Records, kind: tuple[float, float], unit: np.ndarray) -> Records:
    """As many records as the agent holds, all of that kind."""
    turn, label = kind
    features = jnp.broadcast_to(jnp.asarray(turn * unit, own.dtype), own.features.shape)
    return own._replace(features=features, labels=jnp.full_like(own.labels, label))


@require.plain_arguments
def costliest_row(
    algorithm: Algorithm, problem: Task, graph: Graph, agent: int, weights: np.ndarray, step: int
) -> int:
    """The record whose replacement can move that message most, or all messages (step -1)."""
    account = own_accounts(algorithm, problem, graph, agent)[0]
    return int(np.argmax(account.told(weights, step, list(algorithm.channels))))


def label_range(loss: BoundedLoss) -> tuple[float, float]:
    """What labels may be. Where a loss bounds none, a clip makes large ones all the same."""
    if isinstance(loss, Softmax):
        return 0.0, loss.classes - 1.0
    assert isinstance(loss, LinearLoss)
    top = loss.label_bound if np.isfinite(loss.label_bound) else 100.0
    return (-top if isinstance(loss, (Squared, HalfSquared)) else 0.0), top
