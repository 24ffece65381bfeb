"""A learning problem on a network: a loss, a domain, and every agent's stream of records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import jax.numpy as jnp
import numpy as np

from hearsay import _validate as check
from hearsay.privacy.recursion import Assumption
from hearsay.problems import datasets
from hearsay.problems.domains import Ball, Domain
from hearsay.problems.losses import Logistic, Loss, Squared, polynomial
from hearsay.problems.partition import partition as split
from hearsay.problems.sampling import Arrivals, Records


@dataclass(frozen=True, eq=False)
class Problem:
    """features (agents, most, d) and labels (agents, most) hold the streams in order of arrival; rows past counts[i] are padding."""

    name: str
    loss: Loss
    domain: Domain
    features: np.ndarray
    labels: np.ndarray
    counts: np.ndarray
    test_features: np.ndarray
    test_labels: np.ndarray
    arrivals: Arrivals = Arrivals()
    classification: bool = True
    assumptions: tuple[Assumption, ...] = field(default=())
    seed: int = 0

    @property
    def agents(self) -> int:
        return self.features.shape[0]

    @property
    def dimension(self) -> int:
        return self.features.shape[2]

    @cached_property
    def records(self) -> Records:
        """The streams as device arrays, in the precision that jax is set to."""
        dtype = jnp.result_type(float)
        return Records(
            jnp.asarray(self.features, dtype), jnp.asarray(self.labels, dtype), jnp.asarray(self.counts, jnp.int32)
        )

    def arrived(self, step: int) -> np.ndarray:
        """How many records each agent has seen once step `step` has begun."""
        return np.minimum(self.arrivals.head_start + (step + 1) * self.arrivals.per_step, self.counts)

    @property
    def change(self) -> float:
        """C: how far one record's gradient moves, at most, when the record is replaced."""
        return self.loss.change(self.domain, self.dimension)

    def privacy_assumptions(self, curvature: bool = True) -> tuple[Assumption, ...]:
        """What a bound rests on: the loss's curvature interval and change bound, or (curvature=False) the clip alone."""
        loss = self.loss
        low, high = loss.curvature
        facts = [Assumption("enforced", f"models are projected onto the {self.domain} after every step")]
        if not curvature:
            return (*facts, Assumption("enforced", f"every record's gradient is clipped to l2 norm {loss.clip:g}"))
        kind = f"curvature interval [{low:.4g}, {high:.4g}] of the {type(loss).__name__} loss from |a| <= {loss.feature_bound:.4g}"
        facts.append(Assumption("derived", kind))
        if loss.clip is not None and 2 * loss.clip <= self.change * (1 + 1e-12):
            text = f"every record's gradient is clipped to l2 norm {loss.clip:g}, so one record changes it by at most {self.change:.4g}"
            facts.append(Assumption("enforced", text))
        else:
            reason = "features and label both replaced" + (
                "" if isinstance(loss, Logistic) else f", over the {self.domain}"
            )
            facts.append(
                Assumption("derived", f"one record changes a gradient by at most C = {self.change:.4g} ({reason})")
            )
        return (*self.assumptions, *facts)


def logistic(
    data: str | datasets.Dataset = "digits",
    *,
    agents: int = 5,
    partition: str = "iid",
    ridge: float = 0.01,
    per_step: int = 1,
    head_start: int = 0,
    radius: float = 1e5,
    clip: float | None = None,
    approximate: bool = False,
    data_dir: str | None = None,
    seed: int = 0,
) -> Problem:
    """l2-regularised logistic regression. `approximate` replaces the loss by its degree-2 polynomial (see losses.py)."""
    data = _dataset(data, data_dir, seed)
    datasets.check_classification(data.features, data.labels)
    check.flag("approximate", approximate)
    domain = Ball(radius)
    loss: Loss = Logistic(data.feature_bound, ridge, 1.0, clip)
    if approximate:
        loss = polynomial(loss, domain, data.features.shape[1])  # type: ignore[arg-type]
    return _assemble(data, loss, domain, agents, partition, Arrivals(per_step, head_start), seed, classification=True)


def ridge(
    data: str | datasets.Dataset = "linear",
    *,
    agents: int = 5,
    partition: str = "iid",
    ridge: float = 0.01,
    per_step: int = 1,
    head_start: int = 0,
    radius: float = 5.0,
    clip: float | None = None,
    dimension: int = 10,
    records: int = 2000,
    data_dir: str | None = None,
    seed: int = 0,
) -> Problem:
    """Ridge regression, by default on a stream of linear measurements (`records` per agent in `dimension` dimensions)."""
    check.count("agents", agents)
    if isinstance(data, str) and data == "linear":
        data = datasets.linear_stream(records=agents * records, dimension=dimension, seed=seed)
    data = _dataset(data, data_dir, seed)
    loss = Squared(data.feature_bound, ridge, data.label_bound, clip)
    return _assemble(
        data,
        loss,
        Ball(radius),
        agents,
        partition,
        Arrivals(per_step, head_start),
        seed,
        classification=set(np.unique(data.labels)) == {0.0, 1.0},
    )


PROBLEMS: dict[str, Callable[..., Problem]] = {"logistic": logistic, "ridge": ridge}


def _dataset(data: str | datasets.Dataset, data_dir: str | None, seed: int) -> datasets.Dataset:
    if isinstance(data, str) and data == "linear":
        raise ValueError("data 'linear' is a regression stream: use it with the ridge loss (--loss ridge)")
    if isinstance(data, str):
        return datasets.load(data, data_dir=data_dir, seed=seed)
    check.instance(
        "data", data, datasets.Dataset, "the name of a data set, or a Dataset (hearsay.problems.from_arrays makes one)"
    )
    return data


def _assemble(
    data: datasets.Dataset,
    loss: Loss,
    domain: Domain,
    agents: int,
    rule: str,
    arrivals: Arrivals,
    seed: int,
    classification: bool,
) -> Problem:
    agents = check.count("agents", agents)
    check.count("per_step", arrivals.per_step)
    check.count("head_start", arrivals.head_start, 0)
    parts = split(rule, data.labels, agents, seed)
    counts = np.array([len(p) for p in parts])
    if counts.min() < arrivals.per_step:
        short = int(np.argmin(counts))
        raise ValueError(
            f"per_step must be at most the records of every agent, got {arrivals.per_step} and agent {short} holds {counts[short]}"
        )
    most = int(counts.max())
    features = np.zeros((agents, most, data.features.shape[1]))
    labels = np.zeros((agents, most))
    for i, rows in enumerate(parts):
        features[i, : len(rows)], labels[i, : len(rows)] = data.features[rows], data.labels[rows]
    facts = (
        Assumption(
            data.bound_kind,
            f"every record has features of l2 norm at most {data.feature_bound:.4g}: {data.bound_reason}",
        ),
    )
    return Problem(
        data.name,
        loss,
        domain,
        features,
        labels,
        counts,
        data.test_features,
        data.test_labels,
        arrivals,
        classification,
        facts,
        seed,
    )
