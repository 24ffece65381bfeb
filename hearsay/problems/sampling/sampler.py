"""What a sampler is: which records enter the gradient of a step, and how often one record may, with
what weight. The samplers there are: samplers.py.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

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

    def arrived(self, step: int, held: np.ndarray) -> np.ndarray:
        """Records that each agent has seen by that step, of those that it will hold."""
        return np.minimum(self.head_start + (step + 1) * self.per_step, held)


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
