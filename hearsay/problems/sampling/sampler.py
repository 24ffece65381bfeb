"""What a sampler is: which records enter the gradient of a step, and how often one record may, with
what weight. The samplers there are: samplers.py.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import numpy as np

from hearsay import _validate as require
from hearsay.privacy import participation
from hearsay.privacy.account import Account
from hearsay.problems.data.stream import Stream
from hearsay.problems.losses.loss import Loss
from hearsay.problems.sampling.batches import (
    BLOCK,
    Records,
    Window,
)
from hearsay.schedules import Schedule


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

    def arrived(self, step: int | np.ndarray, held: np.ndarray) -> np.ndarray:
        """Records that each agent has seen by that step, of those that it will hold."""
        return np.minimum(self.head_start + (step + 1) * self.per_step, held)


class Coins(NamedTuple):
    """What decides a secret batch, drawn by a deployed agent's operating system: in place of a key.

    Args:
      values: as `Sampling.draw` gives them, on the device.
    """

    values: Any


@dataclass(frozen=True)
class Sampling(ABC):
    grows: ClassVar[bool] = False  # over an infinite horizon, new records must keep arriving
    needs_data_set: ClassVar[bool] = False  # cannot serve from an endless stream
    distinct: ClassVar[bool] = False  # no record is in a batch twice
    # Which records share a batch is secret: nobody learns of it, and deployed agents draw it from
    # their operating system.
    secret: ClassVar[bool] = False
    # Every noise seed of a simulation has batches of its own.
    per_seed: ClassVar[bool] = False

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
        key: jax.Array | Coins,
    ) -> tuple[Any, Any]:
        """(batch of this step, next state), for one agent."""

    def draw(self, words: Callable[[int], np.ndarray], records: Records) -> Coins:
        """What decides the batch of one step of an agent with those records.

        Args:
          words: gives so many uniform 64-bit numbers that nobody can guess.
          records: the agent's; only how many there are matters.
        """
        raise TypeError(f"the batches of {type(self).__name__} are not secret")

    def coins(self, key: jax.Array, records: Records) -> Coins:
        """What decides the secret batch of one step in a simulation.

        Args:
          key: of the agent and step.
          records: the agent's; only how many there are matters.
        """
        raise TypeError(f"the batches of {type(self).__name__} are not secret")

    def decided(self, coins: Coins, row: Any, inside: Any, place: Any = None) -> Coins:
        """The same coins, except that one record is in the batch or is not: what an auditor puts in
        the place of the one coin that it does not know.

        Args:
          coins: of one step.
          row: of the record.
          inside: whether it is in the batch; the other records keep their coins or their order.
          place: where a batch has an order and always as many records: the record is in it at that
            place, instead of the one that is there otherwise. None: the first, and the others move.
        """
        raise TypeError(f"the batches of {type(self).__name__} are not secret")

    @abstractmethod
    def windows(self, steps: np.ndarray, held: np.ndarray, arrivals: Arrivals) -> Window:
        """Where the steps' records lie, for agents that hold so many;
        on the host, as whole numbers.
        """

    @abstractmethod
    def size_law(self, held: float, arrivals: Arrivals) -> Schedule:
        """Records per step of an agent that holds so many, before it runs out of them."""

    def sizes(self, steps: np.ndarray, held: float, arrivals: Arrivals) -> np.ndarray:
        """`size_law` at those steps."""
        return self.size_law(held, arrivals)(np.asarray(steps))

    def terms(self, held: float, arrivals: Arrivals) -> Schedule:
        """How many records' gradients a step adds up, at most; more than `held` count as that."""
        return self.size_law(held, arrivals)

    def width(self, rows: int, arrivals: Arrivals) -> int:
        """The most records that a gradient is computed from at once."""
        return min(arrivals.block, rows)

    @abstractmethod
    def pattern(self, held: float, arrivals: Arrivals) -> participation.Participation: ...

    def amplified(
        self,
        charged: Callable[[float], Account],
        task: Any,
        held: float,
    ) -> tuple[Account, ...]:
        """Accounts that rest on its batches being secret; none unless a sampler has a proof.

        Args:
          charged: from the change of a record's gradient to the account of a record that is in
            every batch, messages having no memory.
          task: what is public: the changes of a gradient, and what happens to a record.
          held: how many records the agent has.
        """
        return ()

    @abstractmethod
    def exposure(self, change: float, held: float, arrivals: Arrivals) -> Schedule:
        """c_k: how far replacing one record moves the mean gradient, at a fixed point. held = inf:
        the stream never ends.
        """

    def load(self, held: float, arrivals: Arrivals) -> tuple[float, float]:
        """The smallest and the largest sum of a batch's weights: 1, where a batch is a mean."""
        return 1.0, 1.0

    def inclusion(self, held: float, arrivals: Arrivals) -> float | None:
        """The probability with which a record is in a step's batch, the same at every step; None
        where batches are not random, or not secret.
        """
        return None

    def overflow(self, held: float, arrivals: Arrivals) -> float:
        """The probability that a step leaves out records because its batch is full, whatever any
        single record's coin says.
        """
        return 0.0

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

    def warnings(self, held: np.ndarray) -> list[str]:
        """What a certificate for agents with so many records should point out."""
        return []

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
