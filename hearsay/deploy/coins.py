"""What decides the batches of a deployed agent.

Where the records of a batch are secret (`Sampling.secret`: Poisson, Subset), budgets may rest on
that, so nobody may be able to guess them: every round has 32 bytes of the operating system's own,
which SHAKE-128 makes into as many numbers as there are records (mechanisms/lattice.py `Key`). The
bytes of a round go into the ledger with its message, as part of the state, before the message
leaves. An agent that is started again finds them there: a round whose message may have left has one
batch. The next round's take their place. That erases nothing: SQLite's log and free pages, or the
other one of two state files, may hold those of earlier rounds, as they hold earlier states before
their noise, until something else is written there. Whoever gets the ledger's files is not covered.

Neither which records are in a batch nor how many is told to anybody: not in messages, logs, status
or reports. Every round works on the same number of slots, with as many random numbers and as many
comparisons, whatever they are. Not the same are memory addresses (which rows are read), and with
them the state of caches; the order in which a subset's numbers are sorted; and the noise, whose
drawing takes a time of its own (mechanisms/lattice.py). Nothing of it depends on what the records
say.

In a rehearsal batches come from the simulator's keys, like the noise. Those of other samplers are
public: they come from the plan's seed, or from no chance at all.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from hearsay.mechanisms.lattice import Key
from hearsay.problems.data.records import Records
from hearsay.problems.sampling.samplers import Coins, Sampling

_NAME, _BYTES = "coins", 32


class Seeded:
    """Batches from a key that others may know.

    Args:
      key: the agent's, for all rounds.
    """

    def __init__(self, key: Any) -> None:
        self._key = key

    def at(self, step: int) -> Any:
        """What the batch of that round is drawn from."""
        return self._key

    def kept(self, step: int) -> dict[str, np.ndarray]:
        """What the ledger must keep with that round's message."""
        return {}

    def restore(self, step: int, stored: Mapping[str, np.ndarray]) -> None:
        """Go on after that round's message, from what was kept with it."""


class Secret:
    """Batches from the operating system's random numbers, one for every round.

    Args:
      sampling: how the agent draws them.
      records: the agent's.
    """

    def __init__(self, sampling: Sampling, records: Records) -> None:
        self._sampling, self._records = sampling, records
        self._round, self._secret, self._coins = -1, b"", Coins(None)

    def at(self, step: int) -> Coins:
        """The coins of that round: those that it had before, or new ones for a later round."""
        if step < self._round:
            raise ValueError(
                f"round must be at least {self._round}, whose batch has been drawn, got {step}: a"
                " round has one batch"
            )
        if step > self._round:
            self._begin(step, os.urandom(_BYTES))
        return self._coins

    def _begin(self, step: int, secret: bytes) -> None:
        key = Key(secret, private=True)
        drawn = self._sampling.draw(lambda count: key.words(count)[0], self._records)
        self._round, self._secret = step, secret
        self._coins = Coins(jnp.asarray(drawn.values))

    def kept(self, step: int) -> dict[str, np.ndarray]:
        """What the ledger must keep with that round's message."""
        self.at(step)
        return {_NAME: np.frombuffer(self._secret, np.uint8)}

    def restore(self, step: int, stored: Mapping[str, np.ndarray]) -> None:
        """Go on after that round's message, from what was kept with it."""
        if _NAME not in stored or stored[_NAME].size != _BYTES:
            raise ValueError(
                f"the ledger has no coins of message {step}, which decide the batch of its round:"
                " another version began it; finish with the version that began it"
            )
        self._begin(step, np.asarray(stored[_NAME], np.uint8).tobytes())
