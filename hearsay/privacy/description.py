"""What a certificate needs, as data, and the numbers that follow from it.

A description is all that one agent's budget is computed from: the coefficients of the algorithm
(leak, step, what each message shows), the public facts of the task (how far one record moves a
gradient, the curvature of the loss, how often a record is used, how many numbers a message has),
the noise, whom the budget protects against, and what it rests on. No record is in it, and nothing
that runs: whoever has the description can compute every number of the certificate again
(verification.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

import numpy as np

from hearsay import _validate as require
from hearsay.privacy.account import Account, Assumption, Numbers
from hearsay.privacy.adjacency import Adjacency as Adjacency
from hearsay.privacy.float64 import Float64

UNCHECKED = Assumption(
    "declared",
    "how far a record moves the state and the messages is as the author of the algorithm says:"
    " nothing has checked it",
)
REFUTED = Assumption(
    "declared",
    "how far a record moves the state and the messages is as the author of the algorithm says, and"
    " hearsay check-algorithm FAILED: this budget is not to be believed",
)
REHEARSED = Assumption(
    "declared", "NOT PRIVATE: the noise comes from a seed, and can be subtracted by who knows it"
)

# What an adversary may see, and how the other agents may behave, in words. Another proof may need
# another entry: what is not listed here cannot be certified.
EVERYTHING = "every message of every agent"
SEES = (EVERYTHING, "the messages that one other agent hears")
OTHERS = {
    "arbitrary": "the other agents may behave arbitrarily",
    "honest": "the other agents follow the protocol, and may pool what they know",
    "apart": "the other agents follow the protocol and keep what they know to themselves",
}


@dataclass(frozen=True)
class Adversary:
    """Whom a budget protects against; the default is the strongest.

    An algorithm whose proof needs more trust declares it (`Algorithm.adversary`).

    Args:
      sees: what of a run is known to it, one of `SEES`.
      others: how the other agents behave, one of `OTHERS`: "arbitrary", "honest" or "apart".
      colluders: how many of them may do so; the others follow the plan, and keep the secrets that
        they share. None: all of them.

    Example:
      >>> Adversary(others="honest").trust
      ('the other agents follow the protocol, and may pool what they know',)
    """

    # Keys of a description that earlier versions did not write.
    later: ClassVar[tuple[str, ...]] = ("colluders",)

    sees: str = EVERYTHING
    others: str = "arbitrary"
    colluders: int | None = None

    def __post_init__(self) -> None:
        require.one_of("sees", self.sees, SEES)
        require.one_of("others", self.others, OTHERS)
        require.settle(self, colluders=require.optional(require.natural))

    def __str__(self) -> str:
        if self.colluders is None:
            return f"sees {self.sees}; {OTHERS[self.others]}"
        if self.others != "arbitrary":
            tell = f"at most {self.colluders} of them tell the secrets that they share"
            return f"sees {self.sees}; {OTHERS[self.others]}; {tell}"
        if self.colluders == 0:
            return f"sees {self.sees}; all other agents follow the plan and keep their secrets"
        pooled = " and pool what they know" if self.colluders > 1 else ""
        many = "one" if self.colluders == 1 else f"up to {self.colluders}"
        return (
            f"sees {self.sees}; {many} of the other agents may behave arbitrarily{pooled}, the rest"
            " follow the plan and keep their secrets"
        )

    @property
    def trust(self) -> tuple[str, ...]:
        """What a reader must believe that the strongest adversary would not need."""
        seen: tuple[str, ...] = ()
        if self.sees != EVERYTHING:
            seen = (f"nobody sees more than {self.sees}",)
        if self.colluders is not None:
            seen += (
                f"at most {self.colluders} of the other agents collude: all others add their own"
                " noise as planned and keep the secrets that they share",
                "nobody can break the key agreement and the generator that secrets come from",
            )
        return seen if self.others == "arbitrary" else (*seen, OTHERS[self.others])


@dataclass(frozen=True)
class Description:
    """What one agent's budget follows from.

    Args:
      account: the coefficients, facts, noise and participation, with the proof that uses them.
      further: what it rests on beside the account's own assumptions.
      checked: the algorithm's coefficients have been through the contract's checks (hearsay's own
        in its tests, others in check_algorithm); otherwise they are its author's word.
      float64: what bounds the rounding of a deployed run; None: noise and arithmetic are ideal.
      adversary: whom the budget protects against.
      adjacency: what it protects.
      gain: by how much noise that the agent shares with others makes its own worth more, against
        as many colluders as the adversary has; the account is that of its own alone.
    """

    # Keys of a description that earlier versions did not write.
    later: ClassVar[tuple[str, ...]] = ("gain",)

    account: Account
    further: tuple[Assumption, ...] = ()
    checked: bool = True
    float64: Float64 | None = None
    adversary: Adversary = Adversary()
    adjacency: Adjacency = Adjacency()
    gain: float = 1.0

    def __post_init__(self) -> None:
        require.settle(self, checked=require.flag, gain=require.positive)
        if self.gain < 1 or (self.gain > 1 and self.adversary.colluders is None):
            require.fail("gain", "1, or more against a number of colluders", self.gain)
        if self.gain > 1 and not self.account.mechanism.shares:
            require.fail("gain", f"1 for {self.account.mechanism.name} noise", self.gain)
        if self.account.relation not in (None, self.adjacency.relation):
            require.fail(
                "adjacency", f"the proof's, {self.account.relation}", self.adjacency.relation
            )

    @property
    def protected(self) -> Account:
        """The account with what the agent shares."""
        return self.account if self.gain == 1 else self.account.scaled(self.gain)

    def against(self, colluders: int, gain: float) -> Description:
        """The same run against another number of colluders: a point of a curve. It does not say
        what it rests on, so that agents which differ in words only share its numbers.

        Args:
          colluders: of the other agents.
          gain: of what the agent shares, against so many.
        """
        adversary = replace(self.adversary, colluders=colluders)
        return replace(self, adversary=adversary, gain=gain, further=())

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """What all of it rests on."""
        return (*self.account.assumptions, *self.further)


def numbers(description: Description, horizon: float, delta: float | None) -> Numbers:
    """What a certificate over that horizon says of an agent.

    Args:
      description: of the agent.
      horizon: the number of messages, or inf.
      delta: of the certificate: Gaussian noise needs one, Laplace noise may have one.
    """
    horizon = require.horizon("horizon", horizon)
    return _numbers(description, horizon, require.optional(require.fraction)("delta", delta))


@lru_cache(maxsize=4096)
def _numbers(description: Description, horizon: float, delta: float | None) -> Numbers:
    return description.protected.certified(horizon, delta, description.float64)


def spending(description: Description, messages: int, delta: float | None) -> np.ndarray:
    """What an agent of a deployed run has spent after each message, in the unit of its mechanism.

    Never less than the truth, never falling.
    """
    require.instance("float64", description.float64, Float64, "given for a deployed run")
    assert description.float64 is not None
    return description.protected.spending(messages, delta, description.float64)
