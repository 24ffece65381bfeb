"""Secret batches: every record enters every batch by a coin of its own.

In each step an agent throws, for every record that it holds, a coin that falls with probability q
(`rate`). The batch is the records whose coins fell, and its gradient is

    (sum of their clipped gradients) / (q N) + the regulariser's,        N = records held, public

which is the mean over all N records on average over the coins. q N is public; dividing by the
number of records that were drawn would let one record move the weight of all others, and show how
many there were. An empty batch has gradient 0 (and the regulariser's), and its message gets noise
like any other. Which records are in a batch, and how many, is secret: then a record that is rarely
in a batch costs less (privacy/sampled.py); charged in full it is as if it were in every one.

**A fixed number of slots.** Whatever was drawn, a step works on `cap` slots: the j-th of them holds
the j-th record whose coin fell; where fewer did, a slot reads the first of them again, with weight
0, and where none did, zeros. A record whose coin has not fallen is not looked at, so that nothing
of it can show, not even to an algorithm that reads a batch without its weights, and not even in
how the gradients of others are rounded (where one of them overflows, a batch is added up another
way, losses/per_record.py). Records over the cap are left out. That depends on another record only
if the OTHERS fill all slots, p = P(Binomial(N - 1, q) >= cap), which `overflow` gives and an
amplified budget adds to its delta in every round. The default cap is the smallest with p <= 1e-12,
800 or so for q N = 600.

A coin falls if 32 random bits, as a whole number, are below floor(2^32 q): with probability q at
most, and at least q - 2^-32.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from hearsay import _validate as require
from hearsay.privacy import participation
from hearsay.privacy.account import Account
from hearsay.privacy.adjacency import ZERO_OUT
from hearsay.privacy.sampled import PoissonAccount, overflow
from hearsay.problems.data.records import Records
from hearsay.problems.data.stream import Stream
from hearsay.problems.losses.loss import Loss
from hearsay.problems.sampling.batches import Batch, Blocks, Window
from hearsay.problems.sampling.sampler import Arrivals, Coins, Sampling
from hearsay.schedules import Constant, Schedule

# How likely the others may fill all slots in a step, unless the user sets a cap.
OVERFLOW = 1e-12
_WORDS = 2**32  # what a coin's bits can be


@require.known_arguments
@dataclass(frozen=True)
class Poisson(Sampling):
    """Every record of the local data set by its own secret coin, anew at every step.

    Coins are independent over records, steps, agents and, unlike the batches of other samplers,
    noise seeds: they are part of what an agent keeps secret, like its noise. In a simulation they
    come from the noise seed, agent and step; a deployed agent takes them from its operating system.

    Args:
      rate: the probability with which a record is in a batch, at most 1.
      cap: the most records of a batch, the number of slots that every step works through; None:
        so many that a record is left out with probability 1e-12 at most.

    Example:
      >>> import hearsay as hs
      >>> hs.Poisson(0.05).slots(12_000)
      776
    """

    distinct: ClassVar[bool] = True
    needs_data_set: ClassVar[bool] = True
    secret: ClassVar[bool] = True
    per_seed: ClassVar[bool] = True

    rate: float
    cap: int | None = None

    def __post_init__(self) -> None:
        require.settle(self, rate=_rate, cap=require.optional(require.count))

    def batch(
        self,
        state: Any,
        loss: Loss,
        records: Records | Stream,
        step: jax.Array,
        window: Window,
        arrivals: Arrivals,
        key: jax.Array | Coins,
    ) -> tuple[Any, Any]:
        assert isinstance(records, Records)
        rows, dtype = records.labels.shape[0], records.dtype
        width, slots = self.width(rows, arrivals), self.slots(rows)
        words = (key if isinstance(key, Coins) else self.coins(key, records)).values
        fell = (words <= np.uint32(math.floor(self.rate * _WORDS) - 1)) & (
            jnp.arange(rows) < records.held
        )
        # How many coins have fallen up to each row: the j-th slot's record is where it reaches j.
        count = jnp.cumsum(fell, dtype=jnp.int32)
        # As many comparisons whatever fell, and no loop: a GPU would wait for each of its rounds.
        found = jnp.searchsorted(
            count, jnp.arange(1, slots + 1, dtype=jnp.int32), method="scan_unrolled"
        )
        share = 1 / (self.rate * records.held.astype(dtype))

        def take(index: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
            place = index * width + jnp.arange(width, dtype=jnp.int32)
            drawn = found[jnp.minimum(place, slots - 1)]
            filled = (drawn < rows) & (place < window.size)
            row = jnp.where(filled, drawn, found[0])
            weights = jnp.where(filled, share, 0).astype(dtype)
            # In an empty batch that is past the last record, and zeros are read.
            read = lambda part: jnp.asarray(part).at[row].get(mode="fill", fill_value=0)  # noqa: E731
            return read(records.features), read(records.labels), weights

        if width >= slots:
            return Batch(*take(jnp.asarray(0, jnp.int32)), loss), state
        return Blocks(take, window.blocks, loss), state

    def draw(self, words: Callable[[int], np.ndarray], records: Records) -> Coins:
        # A 64-bit word has two coins.
        rows = records.labels.shape[0]
        return Coins(np.ascontiguousarray(words(-(-rows // 2)), "<u8").view("<u4")[:rows])

    def coins(self, key: jax.Array, records: Records) -> Coins:
        return Coins(jax.random.bits(key, (records.labels.shape[0],), jnp.uint32))

    def decided(self, coins: Coins, row: Any, inside: Any, place: Any = None) -> Coins:
        word = jnp.where(inside, np.uint32(0), np.uint32(_WORDS - 1))
        return Coins(jnp.asarray(coins.values).at[row].set(word))

    def slots(self, held: float) -> int:
        """The most records of a batch for an agent that holds so many."""
        count = self._held(held)
        return default_cap(count, self.rate) if self.cap is None else min(self.cap, count)

    def width(self, rows: int, arrivals: Arrivals) -> int:
        return min(arrivals.block, self.slots(rows))

    def windows(self, steps: np.ndarray, held: np.ndarray, arrivals: Arrivals) -> Window:
        slots = np.array([self.slots(h) for h in held.tolist()])
        blocks = -(-slots.max() // self.width(int(held.max()), arrivals))
        every = np.ones((len(steps), 1), np.int32)
        size = (every * slots).astype(np.int32)
        return Window(np.zeros_like(size), size, (every[:, 0] * blocks).astype(np.int32))

    def size_law(self, held: float, arrivals: Arrivals) -> Schedule:
        """On average over the coins."""
        return Constant(self.rate * self._held(held))

    def terms(self, held: float, arrivals: Arrivals) -> Schedule:
        return Constant(float(self.slots(held)))

    def load(self, held: float, arrivals: Arrivals) -> tuple[float, float]:
        return 0.0, self.slots(held) / (self.rate * self._held(held))

    def pattern(self, held: float, arrivals: Arrivals) -> participation.Participation:
        self._held(held)
        return participation.Sampled(self.rate)

    def exposure(self, change: float, held: float, arrivals: Arrivals) -> Schedule:
        return Constant(require.positive("change", change) / (self.rate * self._held(held)))

    def amplified(
        self, charged: Callable[[float], Account], task: Any, held: float
    ) -> tuple[Account, ...]:
        change = task.change_under(ZERO_OUT)
        if self.rate >= 1 or not math.isfinite(change):
            return ()
        count = self._held(held)
        account = charged(change)
        return (PoissonAccount(account, count, self.rate, self.slots(held), task.adjacency),)

    def inclusion(self, held: float, arrivals: Arrivals) -> float:
        return self.rate

    def overflow(self, held: float, arrivals: Arrivals) -> float:
        return overflow(self._held(held), self.rate, self.slots(held))

    def arrived(self, step: int, held: np.ndarray, arrivals: Arrivals) -> np.ndarray:
        return held

    def warnings(self, held: np.ndarray) -> list[str]:
        return [
            f"most batches are empty: a rate of {self.rate:.4g} takes {self.rate * count:.3g} of"
            f" the {count:,} records on average"
            for count in sorted(set(held.tolist()))
            if self.rate * count < 1
        ]

    def _held(self, held: float) -> int:
        held = require.positive_or_infinite("held", held)
        self.check(np.asarray([held]))
        return int(held)

    def __str__(self) -> str:
        most = "" if self.cap is None else f", at most {self.cap} records"
        return f"poisson with rate {self.rate:g}{most}"


@lru_cache(maxsize=1024)
def default_cap(held: int, rate: float) -> int:
    """The fewest slots that overflow with a probability of at most `OVERFLOW`."""
    low, high = 1, held
    while low < high:
        middle = (low + high) // 2
        low, high = (
            (low, middle) if overflow(held, rate, middle) <= OVERFLOW else (middle + 1, high)
        )
    return low


def _rate(name: str, given: Any) -> float:
    found = require.share(name, given)
    if found * _WORDS < 1:
        require.fail(name, "at least 2^-32: coins have 32 bits", given)
    return found
