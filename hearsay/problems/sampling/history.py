"""All records that have arrived so far, as they are or as two moments (paper P1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from hearsay import _validate as require
from hearsay.privacy import participation
from hearsay.problems.data.stream import Stream
from hearsay.problems.losses.loss import Loss
from hearsay.problems.sampling.batches import (
    Prefix,
    Records,
    Statistics,
    Window,
    two_moments,
)
from hearsay.problems.sampling.sampler import Arrivals, Coins, Sampling
from hearsay.schedules import Arrived, PowerLaw, Schedule, Share


@require.known_arguments
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
        key: jax.Array | Coins,
    ) -> tuple[Any, Any]:
        assert isinstance(records, Records)
        most = records.labels.shape[0]
        each, head = min(arrivals.per_step, most), min(arrivals.head_start, most)
        # One step after the last record nothing is new any more. Counting on would pass what 32
        # bits hold, and a history that is taken for a short one gives its records too much weight.
        last = -(-(most - head) // each)
        limit = head + (jnp.minimum(step, last) + 1) * each
        if not self.uses_statistics(loss):
            return Prefix(records, limit, loss, arrivals.block), state
        rows = limit - each + jnp.arange(each)
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

    def size_law(self, held: float, arrivals: Arrivals) -> Schedule:
        return Arrived(arrivals.head_start, arrivals.per_step)

    def pattern(self, held: float, arrivals: Arrivals) -> participation.Participation:
        return participation.FromArrival()

    def exposure(self, change: float, held: float, arrivals: Arrivals) -> Schedule:
        change = require.positive("change", change)
        held, n = require.positive_or_infinite("held", held), arrivals.per_step
        return Share(change, PowerLaw(float(n), 1.0, 1.0 + arrivals.head_start / n), held)

    def arrived(self, step: int, held: np.ndarray, arrivals: Arrivals) -> np.ndarray:
        return arrivals.arrived(step, held)
