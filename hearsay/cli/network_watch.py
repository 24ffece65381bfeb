"""`hearsay network status --page`: the page of a network that somebody watches."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hearsay.cli.screen import console, note

if TYPE_CHECKING:
    from hearsay.deploy.launch import Status
    from hearsay.deploy.settings import Member, Network

# Seconds after which the ledger of an agent that is not reached is looked at again, at first and in
# the end: it has a row for every message.
_SOON, _LATE = 2.0, 60.0


class WatchedPage:
    """Written anew as time goes by, and once more at the end.

    Args:
      network: whose page it is.
      file: where it goes.
      every: so many seconds; None: it is written at the end alone.
      clock: seconds since some day that all agree on, which never go back.
    """

    def __init__(
        self,
        network: Network,
        file: Path,
        every: float | None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        from hearsay.deploy.watching import Watch

        begin, zero = time.time(), time.monotonic()
        self.clock = clock or (lambda: begin + time.monotonic() - zero)
        self.network, self.file, self.every = network, file, every
        self.watch = Watch(network.names, network.digest, once=every is None)
        if file.is_dir():
            raise ValueError(f"--page must be a file, got the folder {file}")
        self._due, self.failed = -float("inf"), False
        # By agent: when its ledger is looked at next, and how long to wait after that.
        self._look_at: dict[str, tuple[float, float]] = {}
        if every is not None:
            console.print(f"Page to watch: {file}", soft_wrap=True)

    def saw(self, seen: Sequence[Status]) -> None:
        """What all agents answered just now."""
        at = self.clock()
        self.watch.saw(at, {one.name: one.facts for one in seen})
        self._look(at)
        if self.every is not None and at >= self._due:
            self._due = at + self.every
            self._write(self.every)

    def finish(self) -> None:
        """As it was last seen, with what ledgers say by now; nothing where nothing was seen."""
        if self.watch.agents:
            self._look_at.clear()
            self._look(self.clock())
            self._write(None)

    def require_written(self) -> None:
        """At the end, when nothing is tried again."""
        if self.failed:
            raise ValueError(f"{self.file} was not written")

    def _write(self, every: float | None) -> None:
        from hearsay.report.watched import watched_page

        try:
            watched_page(self.watch, self.file, f"Run {self.network.run}", every)
            self.failed = False
        except OSError as error:
            # A full disk may have room again: whoever watches goes on.
            if not self.failed:
                note(f"{self.file} cannot be written ({error})")
            self.failed = True

    def _look(self, at: float) -> None:
        """An agent that is done ends, and is not reached either: its ledger says so, where it lies
        on this host.
        """
        for member in self.network.members:
            agent = self.watch.agents[member.name]
            if agent.reached or agent.done:
                self._look_at.pop(member.name, None)
                continue
            due, wait = self._look_at.get(member.name, (at, _SOON))
            if at >= due:
                self._look_at[member.name] = (at + wait, min(2 * wait, _LATE))
                if (ended := _ended(member, self.network.digest)) is not None:
                    agent.ended(*ended)


def _ended(member: Member, configuration: str) -> tuple[int, float, bool] | None:
    """How many rounds a run had that is done by its ledger, what they have cost, and whether its
    noise is a secret; None where the ledger does not say so.
    """
    from hearsay.deploy import phases
    from hearsay.deploy.rows import LedgerError, overview

    try:
        if not member.ledger.exists():
            return None
        found = overview(member.ledger)
    except (LedgerError, OSError):
        return None  # the alarm that it is not reached is enough
    mine = found.about.get("configuration") == configuration
    if not (found.done and mine and found.rows):
        return None
    messages = found.rows[:: phases.of_ledger(found.about).count]
    return len(messages), messages[-1].epsilon, found.about.get("noise") == "lattice"
