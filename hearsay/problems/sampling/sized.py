"""Samplers with a number of records per step, which may grow: the next ones of a stream, round a
data set, random subsets, draws with replacement.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from hearsay import _validate as require
from hearsay.privacy import participation
from hearsay.privacy.account import Account
from hearsay.privacy.adjacency import REPLACE
from hearsay.privacy.sampled import SubsetAccount
from hearsay.problems.data.stream import Stream
from hearsay.problems.losses.loss import Loss
from hearsay.problems.sampling.batches import (
    BLOCK,
    Batch,
    Blocks,
    Records,
    Window,
)
from hearsay.problems.sampling.sampler import Arrivals, Coins, Sampling
from hearsay.schedules import Constant, PowerLaw, SampleSize, Schedule, Share, sample_size

# Up to so many parameters, two moments of a batch are cheaper than its records (they
# serve all seeds).
_STATISTICS = 64


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
    def rows(self, records: Records, window: Window, key: Any) -> Callable[[jax.Array], jax.Array]:
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
        key: Any,
    ) -> tuple[Any, Any]:
        width, dtype = self._width(arrivals), records.dtype
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

    def size_law(self, held: float, arrivals: Arrivals) -> Schedule:
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

    def width(self, rows: int, arrivals: Arrivals) -> int:
        return min(rows, self._width(arrivals))

    def _width(self, arrivals: Arrivals) -> int:
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
        sizes = np.minimum(self.sizes(steps, math.inf, arrivals)[:, None], held[None, :])
        if sizes.max() >= 2**31:
            require.fail(
                "size", "below 2^31 records a step", f"{sizes.max():g} by step {steps[-1]}"
            )
        blocks = -(-sizes.max(axis=1) // self._width(arrivals))
        return Window(
            *(a.astype(np.int32) for a in (self.starts(steps, held, arrivals), sizes, blocks))
        )

    def starts(self, steps: np.ndarray, held: np.ndarray, arrivals: Arrivals) -> np.ndarray:
        return np.zeros((len(steps), len(held)))

    def exposure(self, change: float, held: float, arrivals: Arrivals) -> Schedule:
        change = require.positive("change", change)
        held = require.positive_or_infinite("held", held)
        if (size := self.constant(arrivals)) is not None:
            return Constant(change / min(size, held))
        assert self.size is not None
        return Share(change, self.size, held)

    def arrived(self, step: int, held: np.ndarray, arrivals: Arrivals) -> np.ndarray:
        return arrivals.arrived(step, held) if self.size is None else held


@require.known_arguments
@dataclass(frozen=True)
class Fresh(Sized):
    """Each record in one batch only; a run ends when some agent's stream does.

    Args:
      size: records per step: a whole number, or a schedule such as "(k+1)^1.1"; None takes the
        problem's `per_step`.
    """

    distinct: ClassVar[bool] = True
    grows: ClassVar[bool] = True

    def rows(self, records: Records, window: Window, key: Any) -> Callable[[jax.Array], jax.Array]:
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
            return arrivals.arrived(step, held)
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


@require.known_arguments
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

    def rows(self, records: Records, window: Window, key: Any) -> Callable[[jax.Array], jax.Array]:
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
        held = require.positive_or_infinite("held", held)
        self.check(np.asarray([held]))
        if (size := self.constant(arrivals)) is None:
            assert self.size is not None
            return participation.Rolling(self.size, int(held))
        if held < size and self.size is None:
            raise ValueError(
                f"per_step must be at most the agent's {held:g} records to go round them, got"
                f" {size}"
            )
        return participation.Periodic(max(1, int(held) // size))


@require.known_arguments
@dataclass(frozen=True)
class Subset(Sized):
    """A new random subset at every step, secret: which records share a batch is nobody's business.

    In a simulation it is the same for all noise seeds of a run; a deployed agent takes it from its
    operating system.

    Args:
      size: as for `Fresh`.
    """

    distinct: ClassVar[bool] = True
    secret: ClassVar[bool] = True

    def rows(self, records: Records, window: Window, key: Any) -> Callable[[jax.Array], jax.Array]:
        order = (key if isinstance(key, Coins) else self.coins(key, records)).values
        # What fills up the last block is the last record of the batch: one that is not in it must
        # not show, not even in how the gradients of others are rounded.
        return lambda place: order[jnp.minimum(place, window.size - 1)]

    def draw(self, words: Callable[[int], np.ndarray], records: Records) -> Coins:
        held = int(records.held)
        # Equal numbers would leave their order to the sort: without them all orders are as likely.
        while len(np.unique(drawn := words(held))) < held:
            continue
        return Coins(np.argsort(drawn).astype(np.int32))

    def coins(self, key: jax.Array, records: Records) -> Coins:
        most = records.labels.shape[0]
        drawn = jnp.where(jnp.arange(most) < records.held, jax.random.uniform(key, (most,)), 2.0)
        return Coins(jnp.argsort(drawn))

    def decided(self, coins: Coins, row: Any, inside: Any, place: Any = None) -> Coins:
        """First or last in the order: the place of one record is independent of the order of the
        others. At a given place it changes places with the record there.
        """
        order = jnp.asarray(coins.values)
        places, first = jnp.arange(len(order)), inside if place is None else False
        own = jnp.where(first, -1, len(order))
        found = order[jnp.argsort(jnp.where(order == row, own, places))]
        if place is not None:
            there = jnp.where(inside, place, len(order) - 1)
            found = found.at[there].set(row).at[-1].set(found[there])
        return Coins(found)

    def inclusion(self, held: float, arrivals: Arrivals) -> float | None:
        held = require.positive_or_infinite("held", held)
        if (size := self.constant(arrivals)) is None or math.isinf(held):
            return None
        return min(1.0, size / held)

    def pattern(self, held: float, arrivals: Arrivals) -> participation.Participation:
        return participation.Every()

    def amplified(
        self, charged: Callable[[float], Account], task: Any, held: float
    ) -> tuple[Account, ...]:
        size = self.constant(task.arrivals)
        if size is None or math.isinf(held) or size >= held:
            return ()
        # The other records of a batch differ too where the record is not in it, so that what counts
        # is a replaced one, whatever happens to the record itself (mechanisms/amplification.py).
        change = max(task.change, task.change_under(REPLACE))
        return (SubsetAccount(charged(change), int(held), size),)


@require.known_arguments
@dataclass(frozen=True)
class Resample(Sized):
    """Independent draws with replacement, the same for all noise seeds of a run.

    A size that reaches the data set means all of it, once.

    Args:
      size: as for `Fresh`.
    """

    def rows(self, records: Records, window: Window, key: Any) -> Callable[[jax.Array], jax.Array]:
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
        change = require.positive("change", change)
        held = require.positive_or_infinite("held", held)
        # Nothing stops all draws from hitting the same record; a bound that holds surely
        # must allow it.
        if (size := self.constant(arrivals)) is not None:
            return Constant(change if size < held else change / held)
        assert self.size is not None
        return Share(change, self.size, held, repeats=True)


def _rounded_up(length: int) -> int:
    """So that few different lengths are ever asked for."""
    return 1 << max(10, (length - 1).bit_length())


@lru_cache(maxsize=256)
def _cumulative(size: Schedule, most: float, length: int) -> np.ndarray:
    """Records used before step 0, 1, ..., length - 1 when no step uses more than `most`."""
    with np.errstate(over="ignore"):  # a size beyond all bounds is more than any agent holds
        return np.append(0.0, np.cumsum(np.minimum(size(np.arange(length - 1)), most)))
