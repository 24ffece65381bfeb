"""All messages of an agent together as one Gaussian mechanism (paper P4): B (C G + xi),
released row by row.

Whatever the order of release and however later rows of G depend on earlier outputs (Denisov et al.
2022, Theorem 2.1), the transcript is a function of C G + V xi, so it costs rho = S^2 |C 1_P|^2 / 2
V^2 of zero-concentrated privacy, S being how far one round's row of G moves and P the rounds that
use the record.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hearsay import _validate as require
from hearsay.privacy.participation import Participation
from hearsay.privacy.recursion import OUTWARD, Assumption


@dataclass(frozen=True)
class OneMechanism:
    """rho of all `rounds` messages together; it is charged in full with the first of them."""

    rho: float
    rounds: int
    pattern: Participation
    basis: str
    assumptions: tuple[Assumption, ...] = ()
    mechanism: str = "gaussian"

    def __post_init__(self) -> None:
        require.settle(self, rho=require.positive_or_infinite, rounds=require.count)

    def spent(self, messages: int) -> np.ndarray:
        """After each of the messages."""
        curve = np.full(require.natural("messages", messages), self.rho * OUTWARD)
        curve[self.rounds :] = np.inf  # no noise was planned for these
        return curve
