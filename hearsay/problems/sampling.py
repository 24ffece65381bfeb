"""How an agent turns its stream of records into the gradient of a step, and what that says about privacy.

Records arrive `per_step` = N at a time, in the order of the agent's stream, after a `head_start` of H that are there from the beginning. A sampler answers two questions from one object, so that they cannot
disagree: which records enter the gradient of step k (`batch`), and how often one record may do so, with what weight (`pattern`, `exposure`).

    History      all records that have arrived, each once (paper P1)          weight 1 / min(H + (k+1) N, held)
    Fresh        the next N of the stream (head start first), never again; then it ends  1 / N
    Cyclic       N at a time round the local data set in its fixed order                1 / N, one use in T steps
    Resample     N drawn with replacement from the local data set                       up to 1: all N draws may be the same record

A batch is a small pytree with `gradient(params)`, the mean gradient plus the regulariser's.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from hearsay import _validate as check
from hearsay.privacy import participation
from hearsay.problems.losses import Loss
from hearsay.schedules import Constant, PowerLaw, Schedule, Share

_BLOCK = (
    256  # records per pass over a history: wide enough for fast products, narrow enough that early steps stay cheap
)


class Arrivals(NamedTuple):
    """How records reach an agent: `head_start` of them before step 0, then `per_step` with every step."""

    per_step: int = 1
    head_start: int = 0


class Records(NamedTuple):
    """One agent's data: features (most, d), labels (most,), and how many of the rows are real."""

    features: jax.Array
    labels: jax.Array
    held: jax.Array


class Batch(eqx.Module):
    """Records with weights that sum to one."""

    features: jax.Array
    labels: jax.Array
    weights: jax.Array
    loss: Loss = eqx.field(static=True)

    def gradient(self, params: jax.Array) -> jax.Array:
        data = self.loss.gradient_sum(params, self.features, self.labels, self.weights)
        return data + self.loss.regulariser * params


class Prefix(eqx.Module):
    """The first `limit` rows of the agent's data (as many of them as are real), in blocks: the cost grows with the history, the memory does not."""

    records: Records
    limit: jax.Array
    loss: Loss = eqx.field(static=True)

    def gradient(self, params: jax.Array) -> jax.Array:
        seen = jnp.minimum(self.limit, self.records.held)
        size = min(_BLOCK, self.records.labels.shape[0])

        def add(index: jax.Array, total: jax.Array) -> jax.Array:
            # The last block is moved back to end at the last row; the mask leaves out what an earlier block has counted.
            start = jnp.minimum(index * size, self.records.labels.shape[0] - size)
            features = jax.lax.dynamic_slice_in_dim(self.records.features, start, size)
            labels = jax.lax.dynamic_slice_in_dim(self.records.labels, start, size)
            row = start + jnp.arange(size)
            mask = (row >= index * size) & (row < seen)
            return total + self.loss.gradient_sum(params, features, labels, mask.astype(params.dtype))

        # `limit` is the same for all agents, so the loop bound stays scalar when agents are vectorised.
        blocks = (jnp.minimum(self.limit, self.records.labels.shape[0]) + size - 1) // size
        total = jax.lax.fori_loop(0, blocks, add, jnp.zeros_like(params))
        return total / seen.astype(params.dtype) + self.loss.regulariser * params


class Statistics(eqx.Module):
    """mean(a a') and mean(residual(0, b) a) of all records so far: the whole history of a loss that is quadratic in the margin."""

    second: jax.Array
    first: jax.Array
    loss: Loss = eqx.field(static=True)

    def gradient(self, params: jax.Array) -> jax.Array:
        slope = self.loss.affine()
        assert slope is not None
        return slope * (self.second @ params) + self.first + self.loss.regulariser * params


@dataclass(frozen=True)
class Sampling(ABC):
    grows: ClassVar[bool] = False  # over an infinite horizon, new records must keep arriving

    def prepare(self, loss: Loss, records: Records, arrivals: Arrivals) -> Any:
        """The sampler's own state for one agent; nothing unless a sampler needs one."""
        return ()

    @abstractmethod
    def batch(
        self, state: Any, loss: Loss, records: Records, step: jax.Array, arrivals: Arrivals, key: jax.Array
    ) -> tuple[Any, Any]:
        """(batch of this step, next state)."""

    @abstractmethod
    def pattern(self, held: int, arrivals: Arrivals) -> participation.Participation: ...

    @abstractmethod
    def exposure(self, change: float, held: float, arrivals: Arrivals) -> Schedule:
        """c_k: how far replacing one record moves the mean gradient, at a fixed point. held = inf: the stream never ends."""

    def lasts(self, held: int, arrivals: Arrivals) -> float:
        """The number of steps that `held` records serve."""
        return math.inf


@dataclass(frozen=True)
class History(Sampling):
    """method: "statistics" (losses quadratic in the margin), "full" (any loss), or "auto" (statistics where they are exact)."""

    grows: ClassVar[bool] = True
    method: str = "auto"

    def __post_init__(self) -> None:
        check.one_of("method", self.method, ["auto", "full", "statistics"])

    def uses_statistics(self, loss: Loss) -> bool:
        if self.method == "statistics" and loss.affine() is None:
            raise ValueError(
                f"method must be 'full' for {type(loss).__name__}{' with clipping' if loss.clip else ''}: "
                "statistics are exact only for losses that are quadratic in the margin"
            )
        return self.method != "full" and loss.affine() is not None

    def prepare(self, loss: Loss, records: Records, arrivals: Arrivals) -> Any:
        if not self.uses_statistics(loss):
            return ()
        first = min(arrivals.head_start, records.labels.shape[0])
        present = jnp.arange(first) < records.held
        weight = present / jnp.maximum(1, jnp.minimum(first, records.held))
        return self._moments(
            loss, records.features[:first], records.labels[:first], weight.astype(records.features.dtype)
        )

    def _moments(
        self, loss: Loss, features: jax.Array, labels: jax.Array, weight: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        offset = loss.residual(jnp.zeros_like(labels), labels)
        return (features * weight[:, None]).T @ features, (weight * offset) @ features

    def batch(
        self, state: Any, loss: Loss, records: Records, step: jax.Array, arrivals: Arrivals, key: jax.Array
    ) -> tuple[Any, Any]:
        limit = arrivals.head_start + (step + 1) * arrivals.per_step
        if not self.uses_statistics(loss):
            return Prefix(records, limit, loss), state
        rows = limit - arrivals.per_step + jnp.arange(arrivals.per_step)
        fresh = rows < records.held
        rows = jnp.minimum(rows, records.labels.shape[0] - 1)
        features, labels = records.features[rows], records.labels[rows]
        weight = fresh.astype(features.dtype) / jnp.minimum(limit, records.held).astype(features.dtype)
        second, first = self._moments(loss, features, labels, weight)
        keep = 1 - jnp.sum(weight)
        second, first = keep * state[0] + second, keep * state[1] + first
        return Statistics(second, first, loss), (second, first)

    def pattern(self, held: int, arrivals: Arrivals) -> participation.Participation:
        return participation.History()

    def exposure(self, change: float, held: float, arrivals: Arrivals) -> Schedule:
        n = arrivals.per_step
        return Share(change, PowerLaw(float(n), 1.0, 1.0 + arrivals.head_start / n), held)


@dataclass(frozen=True)
class Fresh(Sampling):
    """Each record in one batch only; a run ends when some agent's stream does."""

    grows: ClassVar[bool] = True

    def batch(
        self, state: Any, loss: Loss, records: Records, step: jax.Array, arrivals: Arrivals, key: jax.Array
    ) -> tuple[Any, Any]:
        return _window(loss, records, step * arrivals.per_step, arrivals.per_step), state

    def pattern(self, held: int, arrivals: Arrivals) -> participation.Participation:
        return participation.Once()

    def exposure(self, change: float, held: float, arrivals: Arrivals) -> Schedule:
        return Constant(change / arrivals.per_step)

    def lasts(self, held: int, arrivals: Arrivals) -> float:
        return held // arrivals.per_step


@dataclass(frozen=True)
class Cyclic(Sampling):
    """The last held % N records are never used, so that every record's turns are exactly T = held // N steps apart."""

    def batch(
        self, state: Any, loss: Loss, records: Records, step: jax.Array, arrivals: Arrivals, key: jax.Array
    ) -> tuple[Any, Any]:
        period = records.held // arrivals.per_step
        return _window(loss, records, (step % period) * arrivals.per_step, arrivals.per_step), state

    def pattern(self, held: int, arrivals: Arrivals) -> participation.Participation:
        if held < arrivals.per_step:
            raise ValueError(
                f"per_step must be at most the agent's {held} records to go round them, got {arrivals.per_step}"
            )
        return participation.Cyclic(held // arrivals.per_step)

    def exposure(self, change: float, held: float, arrivals: Arrivals) -> Schedule:
        return Constant(change / arrivals.per_step)


@dataclass(frozen=True)
class Resample(Sampling):
    """Independent draws with replacement, the same for all noise seeds of a run."""

    def batch(
        self, state: Any, loss: Loss, records: Records, step: jax.Array, arrivals: Arrivals, key: jax.Array
    ) -> tuple[Any, Any]:
        rows = jax.random.randint(key, (arrivals.per_step,), 0, records.held)
        weights = jnp.full((arrivals.per_step,), 1.0 / arrivals.per_step, records.features.dtype)
        return Batch(records.features[rows], records.labels[rows], weights, loss), state

    def pattern(self, held: int, arrivals: Arrivals) -> participation.Participation:
        return participation.Every()

    def exposure(self, change: float, held: float, arrivals: Arrivals) -> Schedule:
        # Nothing stops all draws from hitting the same record; a bound that holds surely must allow it.
        return Constant(change)


SAMPLERS: dict[str, type[Sampling]] = {"history": History, "fresh": Fresh, "cyclic": Cyclic, "resample": Resample}


def _window(loss: Loss, records: Records, start: jax.Array, size: int) -> Batch:
    features = jax.lax.dynamic_slice_in_dim(records.features, start, size)
    labels = jax.lax.dynamic_slice_in_dim(records.labels, start, size)
    return Batch(features, labels, jnp.full((size,), 1.0 / size, features.dtype), loss)
