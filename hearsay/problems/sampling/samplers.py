"""How an agent turns its stream of records into the gradient of a step, and what that says
about privacy.

A sampler answers two questions from one object, so that they cannot disagree: which records enter
the gradient of step k (`batch`), and how often one record may do so, with what weight (`pattern`,
`exposure`).

    History      all records that have arrived, each once (paper P1)
                 weight 1 / min(H + (k+1) N, held)
    Fresh        the next ones of the stream, never again; then it ends
                 1 / size
    Cyclic       the next ones of the local data set in its fixed order, round and round
                 1 / size
    Subset       drawn from the local data set without replacement, anew at every step
                 1 / size
    Resample     drawn with replacement (paper P3's bootstrap)
                 up to 1: all draws may be the same record

`size` is the number of records per step: N = `per_step` of the problem's arrivals unless the
sampler has a schedule of its own, which may grow forever (paper P3). Sizes that pass an agent's
data set mean all of it, each record once; a fresh stream that cannot serve a step ends the run.

A batch is a small pytree with `gradient(params)`, the mean gradient plus the regulariser's. Batches
that grow are worked through in blocks of a fixed width, so that one compiled program serves every
step and the memory is that of a block, whatever the size.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from hearsay import _validate as require
from hearsay.privacy import participation
from hearsay.problems.data.stream import Stream
from hearsay.problems.losses.linear import Loss
from hearsay.problems.sampling.batches import (
    BLOCK,
    Batch,
    Blocks,
    Prefix,
    Records,
    Statistics,
    Window,
    two_moments,
)
from hearsay.schedules import Arrived, Constant, PowerLaw, SampleSize, Schedule, Share, sample_size

# Up to so many parameters, two moments of a batch are cheaper than its records (they
# serve all seeds).
_STATISTICS = 64


@dataclass(frozen=True)
class Arrivals:
    """How records reach an agent: `head_start` of them before step 0, then `per_step` with every
    step; large batches are worked through `block` at a time.
    """

    per_step: int = 1
    head_start: int = 0
    block: int = BLOCK

    def __post_init__(self) -> None:
        require.settle(
            self, per_step=require.count, head_start=require.natural, block=require.count
        )


@dataclass(frozen=True)
class Sampling(ABC):
    grows: ClassVar[bool] = False  # over an infinite horizon, new records must keep arriving
    needs_data_set: ClassVar[bool] = False  # cannot serve from an endless stream
    distinct: ClassVar[bool] = False  # no record is in a batch twice

    def prepare(self, loss: Loss, records: Records | Stream, arrivals: Arrivals) -> Any:
        """The sampler's own state for one agent; nothing unless a sampler needs one."""
        return ()

    @abstractmethod
    def batch(
        self,
        state: Any,
        loss: Loss,
        records: Records | Stream,
        step: jax.Array,
        window: Window,
        arrivals: Arrivals,
        key: jax.Array,
    ) -> tuple[Any, Any]:
        """(batch of this step, next state), for one agent."""

    @abstractmethod
    def windows(self, steps: np.ndarray, held: np.ndarray, arrivals: Arrivals) -> Window:
        """Where the steps' records lie, for agents that hold so many;
        on the host, as whole numbers.
        """

    @abstractmethod
    def size_law(self, arrivals: Arrivals) -> Schedule:
        """Records per step, where the agents have as many."""

    def sizes(self, steps: np.ndarray, arrivals: Arrivals) -> np.ndarray:
        """`size_law` at those steps."""
        return self.size_law(arrivals)(np.asarray(steps))

    @abstractmethod
    def pattern(self, held: float, arrivals: Arrivals) -> participation.Participation: ...

    @abstractmethod
    def exposure(self, change: float, held: float, arrivals: Arrivals) -> Schedule:
        """c_k: how far replacing one record moves the mean gradient, at a fixed point. held = inf:
        the stream never ends.
        """

    @abstractmethod
    def arrived(self, step: int, held: np.ndarray, arrivals: Arrivals) -> np.ndarray:
        """How many records each agent can have learnt from once step `step` has begun:
        those that its objective is about.
        """

    def lasts(self, held: float, arrivals: Arrivals) -> float:
        """The number of steps that `held` records serve."""
        return math.inf

    def check(self, held: np.ndarray) -> None:
        """Raise ValueError where agents with so many records cannot be sampled like this."""
        if self.needs_data_set and np.isinf(held).any():
            raise ValueError(
                "sampling must be fresh, subset or resample on an endless stream, got"
                f" {type(self).__name__.lower()}: it needs a data set to go through"
            )

    @property
    def in_order(self) -> int | None:
        """How many records every batch holds one by one, none of them twice
        (`AbstractBatch.descended`); None where batches are not like that.
        """
        return None

    @property
    def kernel(self) -> Sampling:
        """The same sampler without its schedule: what is compiled."""
        return self

    def __str__(self) -> str:
        return type(self).__name__.lower()


@dataclass(frozen=True)
class History(Sampling):
    """All records that have arrived so far.

    Args:
      method: "full" (any loss), "statistics" (two moments instead of the records, exact for losses
        that are quadratic in the margin), or "auto" (statistics where they are exact).
    """

    grows: ClassVar[bool] = True
    needs_data_set: ClassVar[bool] = True
    method: str = "auto"

    def __post_init__(self) -> None:
        require.one_of("method", self.method, ["auto", "full", "statistics"])

    def uses_statistics(self, loss: Loss) -> bool:
        if self.method == "statistics" and loss.affine() is None:
            raise ValueError(
                "method must be 'full' for"
                f" {type(loss).__name__}{' with clipping' if loss.clip else ''}: statistics are"
                " exact only for losses that are quadratic in the margin"
            )
        return self.method != "full" and loss.affine() is not None

    def prepare(self, loss: Loss, records: Records | Stream, arrivals: Arrivals) -> Any:
        if not self.uses_statistics(loss) or isinstance(records, Stream):
            return ()
        first = min(arrivals.head_start, records.labels.shape[0])
        present = jnp.arange(first) < records.held
        weight = present / jnp.maximum(1, jnp.minimum(first, records.held))
        return two_moments(
            loss,
            records.features[:first],
            records.labels[:first],
            weight.astype(records.features.dtype),
        )

    def batch(
        self,
        state: Any,
        loss: Loss,
        records: Records | Stream,
        step: jax.Array,
        window: Window,
        arrivals: Arrivals,
        key: jax.Array,
    ) -> tuple[Any, Any]:
        assert isinstance(records, Records)
        limit = arrivals.head_start + (step + 1) * arrivals.per_step
        if not self.uses_statistics(loss):
            return Prefix(records, limit, loss, arrivals.block), state
        rows = limit - arrivals.per_step + jnp.arange(arrivals.per_step)
        fresh = rows < records.held
        rows = jnp.minimum(rows, records.labels.shape[0] - 1)
        features, labels = records.features[rows], records.labels[rows]
        weight = fresh.astype(features.dtype) / jnp.minimum(limit, records.held).astype(
            features.dtype
        )
        second, first = two_moments(loss, features, labels, weight)
        keep = 1 - jnp.sum(weight)
        second, first = keep * state[0] + second, keep * state[1] + first
        return Statistics(second, first, loss), (second, first)

    def windows(self, steps: np.ndarray, held: np.ndarray, arrivals: Arrivals) -> Window:
        # A history begins at the first record and ends with the step.
        nothing = np.zeros((len(steps), len(held)), np.int32)
        return Window(nothing, nothing, nothing[:, 0])

    def size_law(self, arrivals: Arrivals) -> Schedule:
        return Arrived(arrivals.head_start, arrivals.per_step)

    def pattern(self, held: float, arrivals: Arrivals) -> participation.Participation:
        return participation.History()

    def exposure(self, change: float, held: float, arrivals: Arrivals) -> Schedule:
        change, held, n = require.positive("change", change), _held(held), arrivals.per_step
        return Share(change, PowerLaw(float(n), 1.0, 1.0 + arrivals.head_start / n), held)

    def arrived(self, step: int, held: np.ndarray, arrivals: Arrivals) -> np.ndarray:
        return _arrived(step, held, arrivals)


@dataclass(frozen=True)
class Sized(Sampling):
    """A sampler with a number of records per step: a whole number or a growing schedule such as
    "(k+1)^1.1"; None takes the problem's `per_step`.
    """

    size: Schedule | None = None

    def __post_init__(self) -> None:
        if self.size is not None:
            object.__setattr__(self, "size", sample_size("size", self.size))

    @abstractmethod
    def rows(
        self, records: Records, window: Window, key: jax.Array
    ) -> Callable[[jax.Array], jax.Array]:
        """The function from places 0, 1, ... of a batch to rows;
        what it gives for a place past the size does not matter.
        """

    def batch(
        self,
        state: Any,
        loss: Loss,
        records: Records | Stream,
        step: jax.Array,
        window: Window,
        arrivals: Arrivals,
        key: jax.Array,
    ) -> tuple[Any, Any]:
        width, dtype = self.width(arrivals), records.dtype
        find = None if isinstance(records, Stream) else self.rows(records, window, key)

        def take(index: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
            place = index * width + jnp.arange(width)
            weights = jnp.where(place < window.size, 1 / window.size.astype(dtype), 0).astype(dtype)
            if isinstance(records, Stream):
                return (*records.draw(jax.random.fold_in(key, index), width), weights)
            assert find is not None
            rows = find(place)
            # A stream that has ended gives nothing.
            weights = jnp.where(rows < records.held, weights, 0)
            rows = jnp.minimum(rows, records.labels.shape[0] - 1)
            return records.features[rows], records.labels[rows], weights

        if width >= self.most(arrivals):
            return Batch(*take(jnp.asarray(0)), loss), state
        blocks = Blocks(take, window.blocks, loss)
        if loss.affine() is not None and records.dimension <= _STATISTICS:
            return blocks.statistics(records.dimension, dtype), state
        return blocks, state

    def size_law(self, arrivals: Arrivals) -> Schedule:
        return Constant(float(arrivals.per_step)) if self.size is None else self.size

    def constant(self, arrivals: Arrivals) -> int | None:
        """The size if it never changes."""
        if self.size is None:
            return arrivals.per_step
        law = self.size.law if isinstance(self.size, SampleSize) else self.size
        return int(self.size(0)) if isinstance(law, Constant) else None

    @property
    def in_order(self) -> int | None:
        size = None if self.size is None else self.constant(Arrivals())
        return size if self.distinct and size is not None and size <= BLOCK else None

    def most(self, arrivals: Arrivals) -> float:
        constant = self.constant(arrivals)
        return math.inf if constant is None else constant

    def width(self, arrivals: Arrivals) -> int:
        """Records per block: a property of the sampler, not of the run,
        so that longer runs draw the same records.
        """
        return int(min(arrivals.block, self.most(arrivals)))

    def __str__(self) -> str:
        return (
            super().__str__()
            if self.size is None
            else f"{super().__str__()} with {self.size} records a step"
        )

    @property
    def kernel(self) -> Sized:
        if self.size is None or self.constant(Arrivals()) is not None:
            return self
        return replace(self, size=PowerLaw(1.0, 1.0))

    def windows(self, steps: np.ndarray, held: np.ndarray, arrivals: Arrivals) -> Window:
        sizes = np.minimum(self.sizes(steps, arrivals)[:, None], held[None, :])
        if sizes.max() >= 2**31:
            require.fail(
                "size", "below 2^31 records a step", f"{sizes.max():g} by step {steps[-1]}"
            )
        blocks = -(-sizes.max(axis=1) // self.width(arrivals))
        return Window(
            *(a.astype(np.int32) for a in (self.starts(steps, held, arrivals), sizes, blocks))
        )

    def starts(self, steps: np.ndarray, held: np.ndarray, arrivals: Arrivals) -> np.ndarray:
        return np.zeros((len(steps), len(held)))

    def exposure(self, change: float, held: float, arrivals: Arrivals) -> Schedule:
        change, held = require.positive("change", change), _held(held)
        if (size := self.constant(arrivals)) is not None:
            return Constant(change / min(size, held))
        assert self.size is not None
        return Share(change, self.size, held)

    def arrived(self, step: int, held: np.ndarray, arrivals: Arrivals) -> np.ndarray:
        return _arrived(step, held, arrivals) if self.size is None else held


@dataclass(frozen=True)
class Fresh(Sized):
    """Each record in one batch only; a run ends when some agent's stream does.

    Args:
      size: records per step: a whole number, or a schedule such as "(k+1)^1.1"; None takes the
        problem's `per_step`.
    """

    distinct: ClassVar[bool] = True
    grows: ClassVar[bool] = True

    def rows(
        self, records: Records, window: Window, key: jax.Array
    ) -> Callable[[jax.Array], jax.Array]:
        return lambda place: window.start + place

    def starts(self, steps: np.ndarray, held: np.ndarray, arrivals: Arrivals) -> np.ndarray:
        used = self._consumed(int(steps[-1]) + 1, arrivals)[steps]
        # An endless stream has no rows to find; its records come from the step's key.
        return np.where(np.isinf(held)[None, :], 0.0, used[:, None])

    def _consumed(self, steps: int, arrivals: Arrivals) -> np.ndarray:
        """Records used before step 0, 1, ..., steps (and some further ones)."""
        return _cumulative(
            self.size or Constant(float(arrivals.per_step)), math.inf, _rounded_up(steps + 1)
        )

    def pattern(self, held: float, arrivals: Arrivals) -> participation.Participation:
        return participation.Once()

    def exposure(self, change: float, held: float, arrivals: Arrivals) -> Schedule:
        # A stream that cannot fill a batch ends the run instead.
        return super().exposure(change, math.inf, arrivals)

    def arrived(self, step: int, held: np.ndarray, arrivals: Arrivals) -> np.ndarray:
        if self.size is None:
            return _arrived(step, held, arrivals)
        return np.minimum(self._consumed(step + 1, arrivals)[step + 1], held)

    def lasts(self, held: float, arrivals: Arrivals) -> float:
        held = require.nonnegative_or_infinite("held", held)  # none at all last for no step
        if math.isinf(held):
            return math.inf
        if (size := self.constant(arrivals)) is not None:
            return int(held // size)
        many = 64
        while (used := self._consumed(many, arrivals))[-1] <= held:
            many *= 4
        return int(np.searchsorted(used, held, side="right")) - 1


@dataclass(frozen=True)
class Cyclic(Sized):
    """Round the local data set in its (shuffled) order.

    With a constant size the last held % size records are never used, so that every record's
    turns are exactly T = held // size steps apart; with a growing one each batch begins where the
    last one ended.

    Args:
      size: as for `Fresh`.
    """

    distinct: ClassVar[bool] = True
    needs_data_set: ClassVar[bool] = True

    def rows(
        self, records: Records, window: Window, key: jax.Array
    ) -> Callable[[jax.Array], jax.Array]:
        return lambda place: (window.start + place) % records.held

    def starts(self, steps: np.ndarray, held: np.ndarray, arrivals: Arrivals) -> np.ndarray:
        if (size := self.constant(arrivals)) is not None:
            return (steps[:, None] % np.maximum(1, held // size)[None, :]) * size
        length = _rounded_up(int(steps[-1]) + 1)
        assert self.size is not None
        return np.stack(
            [_cumulative(self.size, h, length)[steps] % h for h in held.tolist()], axis=1
        )

    def pattern(self, held: float, arrivals: Arrivals) -> participation.Participation:
        held = _held(held)
        self.check(np.asarray([held]))
        if (size := self.constant(arrivals)) is None:
            assert self.size is not None
            return participation.Rolling(self.size, int(held))
        if held < size and self.size is None:
            raise ValueError(
                f"per_step must be at most the agent's {held:g} records to go round them, got"
                f" {size}"
            )
        return participation.Cyclic(max(1, int(held) // size))


@dataclass(frozen=True)
class Subset(Sized):
    """A new random subset at every step; the same for all noise seeds of a run.

    Args:
      size: as for `Fresh`.
    """

    distinct: ClassVar[bool] = True

    def rows(
        self, records: Records, window: Window, key: jax.Array
    ) -> Callable[[jax.Array], jax.Array]:
        most = records.labels.shape[0]
        order = jnp.argsort(
            jnp.where(jnp.arange(most) < records.held, jax.random.uniform(key, (most,)), 2.0)
        )
        return lambda place: order[jnp.minimum(place, most - 1)]

    def pattern(self, held: float, arrivals: Arrivals) -> participation.Participation:
        return participation.Every()


@dataclass(frozen=True)
class Resample(Sized):
    """Independent draws with replacement, the same for all noise seeds of a run.

    A size that reaches the data set means all of it, once.

    Args:
      size: as for `Fresh`.
    """

    def rows(
        self, records: Records, window: Window, key: jax.Array
    ) -> Callable[[jax.Array], jax.Array]:
        def find(place: jax.Array) -> jax.Array:
            # A key for every place, so that the width of a block does not matter.
            drawn = jax.vmap(
                lambda p: jax.random.randint(jax.random.fold_in(key, p), (), 0, records.held)
            )(place)
            return jnp.where(window.size >= records.held, place, drawn)

        return find

    def pattern(self, held: float, arrivals: Arrivals) -> participation.Participation:
        return participation.Every()

    def exposure(self, change: float, held: float, arrivals: Arrivals) -> Schedule:
        change, held = require.positive("change", change), _held(held)
        # Nothing stops all draws from hitting the same record; a bound that holds surely
        # must allow it.
        if (size := self.constant(arrivals)) is not None:
            return Constant(change if size < held else change / held)
        assert self.size is not None
        return Share(change, self.size, held, repeats=True)


SAMPLERS: dict[str, type[Sampling]] = {
    "history": History,
    "fresh": Fresh,
    "cyclic": Cyclic,
    "subset": Subset,
    "resample": Resample,
}


def _held(held: float) -> float:
    return require.positive_or_infinite("held", held)


def _arrived(step: int, held: np.ndarray, arrivals: Arrivals) -> np.ndarray:
    return np.minimum(arrivals.head_start + (step + 1) * arrivals.per_step, held)


def _rounded_up(length: int) -> int:
    """So that few different lengths are ever asked for."""
    return 1 << max(10, (length - 1).bit_length())


@lru_cache(maxsize=256)
def _cumulative(size: Schedule, most: float, length: int) -> np.ndarray:
    """Records used before step 0, 1, ..., length - 1 when no step uses more than `most`."""
    with np.errstate(over="ignore"):  # a size beyond all bounds is more than any agent holds
        return np.append(0.0, np.cumsum(np.minimum(size(np.arange(length - 1)), most)))
