"""Where every exchange of a run has its place.

A round of a method with averaging (algorithms/averaging.py) is the message of a gradient and then m
relays, in which agents pass on what they have made of messages so far. Each of these m + 1
exchanges has a number of its own,

    number = round * (m + 1) + phase,    phase 0 the gradient's message, 1 .. m the relays

and that number is the round on the wire, in the ledger and its mark, in the mailbox, and in what
neighbours say that they have heard. Noise, batches, rates and budget go by the round. Without
relays the two are the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Phases:
    """How many exchanges a round has.

    Args:
      count: m + 1.

    Example:
      >>> phases = Phases(3)
      >>> phases.round(7), phases.phase(7), phases.first(2)
      (2, 1, 6)
      >>> phases.name(7), Phases().name(7)
      ('7 (round 2, relay 1 of 2)', '7')
    """

    count: int = 1

    @property
    def relays(self) -> int:
        return self.count - 1

    def round(self, number: int) -> int:
        return number // self.count

    def phase(self, number: int) -> int:
        return number % self.count

    def first(self, round: int) -> int:
        """The number of the message of that round's gradient; of as many rounds, how many exchanges
        they have in all.
        """
        return round * self.count

    def ends(self, number: int) -> bool:
        """The round's last exchange: the update follows it."""
        return self.phase(number) == self.relays

    def name(self, number: int) -> str:
        """For people: the number, and what it stands for where that is not plain."""
        if not self.relays:
            return str(number)
        phase = self.phase(number)
        what = f"relay {phase} of {self.relays}" if phase else "gradient"
        return f"{number} (round {self.round(number)}, {what})"

    @property
    def about(self) -> dict[str, str]:
        """What a ledger says of them: nothing where there are no relays."""
        return {"phases": str(self.count)} if self.relays else {}


def of_ledger(about: dict[str, Any]) -> Phases:
    """The phases of the run that a ledger is about."""
    return Phases(int(about.get("phases", "1")))
