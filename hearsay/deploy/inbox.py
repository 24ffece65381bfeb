"""What one agent hears, from the messages that reached it: `Inbox` as the engine defines it
(simulation/engine.py, `heard`), worked out for one row.

Every number is first brought within what an honest agent could have sent (privacy/float64.py): that
keeps rounding errors, which are counted, small. Neighbours are then weighed and added up in the
order of their numbers, so that the result does not depend on who came first. Who was not heard is
left out together with its weight (graphs/channels.py).

With averaging the same goes for every exchange of a round, and `relayed` is what an agent makes of
one for the next. The clip is then that of relays (graphs/relaying.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from hearsay.base import Algorithm, Inbox
from hearsay.deploy.mailbox import Fields
from hearsay.graphs import Graph
from hearsay.graphs.channels import channel
from hearsay.simulation import engine

_passed_on = jax.jit(engine.passed_on)


class Listener:
    """The inbox of agent number `agent`.

    Args:
      limit: the largest number that an honest agent's models and gradients can hold.
      message: the type of a message.
      dtype: the run's precision, in which sums are taken.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        graph: Graph,
        agent: int,
        limit: float,
        message: type,
        dtype: Any,
    ) -> None:
        self._graph, self._agent = graph, agent
        self._channels, self._message, self._dtype = algorithm.channels, message, np.dtype(dtype)
        self._ranges = {
            field: (0.0, 1.0) if field in algorithm.coins else (-limit, limit)
            for field in algorithm.channels
        }
        self.weights = {
            field: channel(name).row(graph, agent) for field, name in algorithm.channels.items()
        }
        self._rooms: dict[str, tuple[np.ndarray, np.ndarray]] = {}

    @property
    def hears(self) -> list[int]:
        """The agents that it listens to, in any field."""
        return sorted({j for row in self.weights.values() for j in row})

    def __call__(
        self, sent: Fields, heard: Mapping[int, Fields], coin: Any = None
    ) -> tuple[Any, Inbox]:
        """(the agent's own message, its inbox), from messages by the number of their sender.

        The inbox's arrays are written over by the next call.

        Args:
          coin: the round's public coin, where weights follow from one.
        """
        sent = {field: within(values, *self._ranges[field]) for field, values in sent.items()}
        total, own = {}, {}
        for field, name in self._channels.items():
            row = self.weights[field]
            if coin is not None:
                row = channel(name).row_at(self._graph, self._agent, coin)
            row = {j: w for j, w in row.items() if j in heard}
            total[field] = self._total(field, sent[field], row, heard)
            own[field] = self._dtype.type(
                channel(name).own(self._graph, self._agent, sum(row.values()))
            )
        kind = self._message
        return kind(**sent), Inbox(kind(**total), kind(**own))

    def together(self, sent: Any, heard: Mapping[int, Fields]) -> np.ndarray:
        """The mean of the agent's own model and of those that it heard, each with the same weight:
        of messages, as the call gave and took them.
        """
        found = np.array(sent.params, self._dtype)
        numbers = sorted(j for j in self.weights["params"] if j in heard)
        for j in numbers:
            found += within(heard[j]["params"], *self._ranges["params"])
        return found / self._dtype.type(1 + len(numbers))

    def relayed(
        self, weights: Sequence[float], sent: Any, inbox: Inbox, before: Fields | None
    ) -> Fields:
        """What the agent passes on next, as in a simulation (`engine.passed_on`): a function of
        messages as they were sent and heard, and of public weights. Nothing private enters.

        Args:
          weights: of the average and of what was passed on before it (`Algorithm.relays`).
          sent, inbox: of this phase, as the call gave them.
          before: what the agent sent in the phase before; None where its weight is 0.
        """
        old = sent
        if before is not None:
            old = self._message(
                **{field: within(before[field], *self._ranges[field]) for field in before}
            )
        found = _passed_on(np.asarray(weights, self._dtype), sent, old, inbox)
        return {field: np.asarray(values) for field, values in found._asdict().items()}

    def _total(
        self, field: str, like: np.ndarray, row: dict[int, float], heard: Mapping[int, Fields]
    ) -> np.ndarray:
        # Written over in every round: fresh memory for large messages costs more than
        # adding them up.
        summed, one = self._rooms.setdefault(field, (np.empty_like(like), np.empty_like(like)))
        if not row:
            summed.fill(0)
        for number, j in enumerate(sorted(row)):
            np.multiply(
                within(heard[j][field], *self._ranges[field]),
                self._dtype.type(row[j]),
                out=one if number else summed,
            )
            if number:
                summed += one
        return summed


def within(values: np.ndarray, low: float, high: float) -> np.ndarray:
    """Clipped, where there is anything to clip."""
    if values.size and low <= values.min() and values.max() <= high:
        return values
    return np.clip(values, low, high)
