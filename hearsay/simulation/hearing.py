"""Who heard whom, where not everything is delivered (faults.py): counted in the loop, a number per
link, and nothing about anybody's records.
"""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from typing import Any

import numpy as np

# A table of more links than this is written agent by agent.
_LINKS = 100_000


@dataclass(frozen=True, eq=False)
class Hearing:
    """Who heard whom in a run.

    Args:
      hearer: (link,), the agent that listens.
      sender: (link,), the agent that it listens to.
      heard: (link,), in how many rounds a message was delivered.
      sent: (agent,), how many messages each has sent, heard or not: all of them are charged.
    """

    hearer: np.ndarray
    sender: np.ndarray
    heard: np.ndarray
    sent: np.ndarray

    @property
    def links(self) -> np.ndarray:
        """(link,): the share of the sender's messages that were heard."""
        return _share(self.heard, self.sent[self.sender])

    @property
    def hears(self) -> np.ndarray:
        """(agent,): of what its neighbours sent, the share that it heard."""
        return self._by(self.hearer)

    @property
    def is_heard(self) -> np.ndarray:
        """(agent,): of what it sent to its neighbours, the share that was heard."""
        return self._by(self.sender)

    @property
    def share(self) -> float:
        """Of all that was sent over all links."""
        return float(_share(self.heard.sum(), self.sent[self.sender].sum()))

    def _by(self, agents: np.ndarray) -> np.ndarray:
        counts = (
            np.bincount(agents, weights, len(self.sent))
            for weights in (self.heard, self.sent[self.sender])
        )
        return _share(*counts)

    def to_csv(self) -> str:
        """One row per link; one per agent where there are more than 100,000 links."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        if len(self.heard) <= _LINKS:
            writer.writerow(["hearer", "sender", "sent", "heard"])
            columns: tuple[Any, ...] = (
                self.hearer,
                self.sender,
                self.sent[self.sender],
                self.heard,
            )
        else:
            writer.writerow(["agent", "sent", "hears", "is_heard"])
            shares = (self.hears.round(6), self.is_heard.round(6))
            columns = (np.arange(len(self.sent)), self.sent, *shares)
        writer.writerows(zip(*(column.tolist() for column in columns), strict=True))
        return text.getvalue()


def _share(part: Any, whole: Any) -> np.ndarray:
    """0 where nothing was sent."""
    return np.asarray(part) / np.maximum(np.asarray(whole), 1)
