"""Records that arrive while the network runs: an agent's file, followed as it grows.

With `follow` in [network] the file of an agent holds the records that have arrived so far, and
`records` says how many there will be. A round waits until those of its batch are in the file, as in
a simulation they arrive with the step (`head_start`, `per_step`): what the rounds compute is the
same, to the last bit, as if all records had been there from the beginning.

    a line counts once its line end is written; a cell has no line ends in it
    lines are added and nothing else: a record that was read must stay as it is
    a table's numbers are refused until a row shows that their commas or points are no thousands
    separators (tables/cells.py): rows that show it belong to the first that are written
    records that were read are in the budget file (lifetime.py) and known to the ledger before a
    message can show anything of them

Batches are of what has arrived (`Sampling.grows`: all of it, or the next ones). When a message is
sent shows when records came; the certificate says so.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from hearsay.deploy.host import Stopped
from hearsay.deploy.records import Own, own
from hearsay.problems.data.records import Records
from hearsay.problems.sampling.samplers import Sampling

if TYPE_CHECKING:
    from hearsay.deploy.settings import Network

# A file that takes long to read is read less often: of the time so much is spent on it, at most.
_SHARE = 0.2


class Following:
    """The records of one agent that have arrived.

    Args:
      network: of which that agent is one; it names the file.
      agent: its number.
      found: what was read of the file so far.
      sampling: which of the records a round needs.
    """

    def __init__(self, network: Network, agent: int, found: Own, sampling: Sampling) -> None:
        assert isinstance(found.records, Records)
        self._network, self._agent, self._sampling = network, agent, sampling
        self._arrivals = found.task.arrivals
        self.records, self.rows = found.records, found.rows
        self.planned = int(found.records.held)
        self._seen, self._next = (-1, 0), 0.0

    def needed(self, step: int) -> int:
        """How many records must have arrived for that round's batch."""
        held = np.array([self.planned])
        return int(self._sampling.arrived(step, held, self._arrivals)[0])

    @property
    def parts(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """What must stay as it is: the rows as they are in the file, and what was made of them. Two
        cells may count as the same one in a budget, and mean different things to a schema.
        """
        many = len(self.rows)
        return self.rows, self.records.features[:many], self.records.labels[:many]

    def look(self) -> bool:
        """There are more than before."""
        member = self._network.members[self._agent]
        assert member.data is not None
        began = time.monotonic()
        if began < self._next:
            return False
        try:
            stat = member.data.stat()
            if (seen := (stat.st_size, stat.st_mtime_ns)) == self._seen:
                return False
            found = own(self._network, self._agent)
        except (ValueError, OSError) as error:
            raise Stopped(f"{error}. Mend {member.data}, and start this agent again") from None
        took, self._seen = time.monotonic() - began, seen
        self._next = began + took / _SHARE
        assert isinstance(found.records, Records)
        self._require_added(found.rows, found.records)
        more = len(found.rows) > len(self.rows)
        self.records, self.rows = found.records, found.rows
        return more

    def _require_added(self, rows: np.ndarray, records: Records) -> None:
        """To the rows that were there before; also what has been made of these is the same."""
        many = min(len(self.rows), len(rows))
        same = np.zeros(len(self.rows), bool)
        same[:many] = True
        for old, new in (
            (self.rows, rows),
            (self.records.features, records.features),
            (self.records.labels, records.labels),
        ):
            alike = old[:many] == new[:many]
            same[:many] &= alike.all(axis=tuple(range(1, alike.ndim)))
        if not same.all():
            path = self._network.members[self._agent].data
            raise Stopped(
                f"record {int(np.argmin(same)) + 1} of {path} has changed or is gone since it was"
                " read: lines may be added and nothing else (a program that writes all of it anew"
                " must write another file, and rename that). Put it back, and start this agent"
                " again"
            )
