"""Averages of messages over the rounds of a run, in memory that does not grow with them.

An agent's own model never leaves it: no noise has been added to it. Its messages have left, with
their noise, and a certificate counts all of them. Whatever is computed from messages alone (its
own, its neighbours', everybody's) and from public numbers is post-processing: it costs nothing
beyond that certificate. An average over many rounds carries far less noise than one message.

    last           the last message
    mean           of all messages
    exponential    weights decay^0, decay^1, ... from the last message backwards, scaled to sum 1
    tail           the mean of the last messages: at least the share `share` of all of them, at most
                   1 - (1 - share)^2 (a half to three quarters, unless told otherwise)

**Bounded memory.** Every read-out is a few slots (vectors of the model's size), and a round does

    slot <- keep(k) slot + add(k) message(k)

with numbers that depend on the round k alone. The tail is that of alpha-suffix averaging by blocks
(Rakhlin, Shamir and Sridharan 2012): rounds are cut into blocks, each longer by 1 / (1 - share)
than all before it, and two slots hold the mean of the present block and of the one before it. What
is read out after K rounds is the mean of both blocks: it does not depend on when a run was meant to
end, so a run may be stopped, budgeted or continued.

**What is not free**: choosing among read-outs, or when to stop, by looking at private data. Which
rounds are averaged is fixed by the round number alone.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hearsay import _validate as require
from hearsay.base import Algorithm, Inbox
from hearsay.problems.losses.domains import Domain


class ReadOut(ABC):
    """A way to average messages over rounds."""

    name: ClassVar[str]
    slots: ClassVar[int] = 1

    @abstractmethod
    def weights(self, steps: np.ndarray) -> np.ndarray:
        """(step, 2, slot): what those rounds keep of each slot, and add of the message."""

    def mix(self, rounds: int) -> np.ndarray:
        """The shares of the slots in what is read out after so many rounds."""
        return np.ones(1)

    @abstractmethod
    def of_rounds(self, rounds: int, first: int = 0) -> str:
        """Which of so many rounds it averages, in words; `first` is the number of the first."""


@dataclass(frozen=True)
class Last(ReadOut):
    """The last message, without any average.

    Example:
      >>> Last().of_rounds(400)
      'message 399'
    """

    name: ClassVar[str] = "last"

    def weights(self, steps: np.ndarray) -> np.ndarray:
        return np.tile([[[0.0], [1.0]]], (len(steps), 1, 1))

    def of_rounds(self, rounds: int, first: int = 0) -> str:
        return f"message {first + rounds - 1}"


@dataclass(frozen=True)
class Mean(ReadOut):
    """The mean of all messages.

    Example:
      >>> Mean().of_rounds(400)
      'the mean of messages 0 to 399'
    """

    name: ClassVar[str] = "mean"

    def weights(self, steps: np.ndarray) -> np.ndarray:
        add = 1.0 / (np.asarray(steps, float) + 1)
        return np.stack([1 - add, add], axis=1)[..., None]

    def of_rounds(self, rounds: int, first: int = 0) -> str:
        return f"the mean of messages {first} to {first + rounds - 1}"


@dataclass(frozen=True)
class Exponential(ReadOut):
    """Messages with weights that fall by `decay` per round, backwards from the last.

    Args:
      decay: between 0 and 1; about 1 / (1 - decay) messages count.

    Example:
      >>> Exponential(0.9).of_rounds(400)
      'messages 0 to 399 with weights that fall by 0.9 per round from the last one'
    """

    decay: float = 0.95
    name: ClassVar[str] = "exponential"

    def __post_init__(self) -> None:
        require.settle(self, decay=require.fraction)

    def weights(self, steps: np.ndarray) -> np.ndarray:
        # Scaled to sum 1: (1 - decay^(k+1)) / (1 - decay) is the sum of the weights so far.
        before, after = (-np.expm1((steps + n) * math.log(self.decay)) for n in (0.0, 1.0))
        return np.stack([self.decay * before / after, (1 - self.decay) / after], axis=1)[..., None]

    def of_rounds(self, rounds: int, first: int = 0) -> str:
        return (
            f"messages {first} to {first + rounds - 1} with weights that fall by {self.decay:g} per"
            " round from the last one"
        )


@dataclass(frozen=True)
class Tail(ReadOut):
    """The mean of the last messages, by blocks of growing length.

    Args:
      share: of all messages that are averaged, at least; at most it is 1 - (1 - share)^2.

    Example:
      >>> Tail().of_rounds(400)
      'the mean of messages 128 to 399'
    """

    share: float = 0.5
    name: ClassVar[str] = "tail"
    slots: ClassVar[int] = 2

    def __post_init__(self) -> None:
        require.settle(self, share=require.fraction)

    def blocks(self, rounds: int) -> list[int]:
        """Where blocks begin, up to the first beginning that is not before `rounds`."""
        found = [0, 1]
        while found[-1] < rounds:
            # A number that should be whole may come out above it by a rounding error.
            longer = math.ceil(found[-1] / (1 - self.share) * (1 - 1e-12))
            found.append(max(found[-1] + 1, longer))
        return found

    def weights(self, steps: np.ndarray) -> np.ndarray:
        steps = np.asarray(steps, int)
        found = np.zeros((len(steps), 2, 2))
        found[:, 0] = 1.0
        if not len(steps):
            return found
        begins = np.array(self.blocks(int(steps.max()) + 1))
        block = np.searchsorted(begins, steps, side="right") - 1
        add = 1.0 / (steps - begins[block] + 1)
        rows = np.arange(len(steps))
        found[rows, 0, block % 2], found[rows, 1, block % 2] = 1 - add, add
        return found

    def _kept(self, rounds: int) -> tuple[int, int, int]:
        """(the present block, where it begins, where the one before it begins)."""
        rounds = max(rounds, 1)
        begins = [b for b in self.blocks(rounds) if b < rounds]
        block = len(begins) - 1
        return block, begins[block], begins[block - 1] if block else begins[block]

    def mix(self, rounds: int) -> np.ndarray:
        block, present, before = self._kept(rounds)
        found = np.zeros(2)
        found[block % 2] = max(rounds, 1) - present
        found[1 - block % 2] = present - before
        return found / found.sum()

    def of_rounds(self, rounds: int, first: int = 0) -> str:
        return f"the mean of messages {first + self._kept(rounds)[2]} to {first + rounds - 1}"


READOUTS: dict[str, type[ReadOut]] = {kind.name: kind for kind in (Tail, Exponential, Mean, Last)}
# One kind: two vectors per agent, and a simulation of tiny models loses 2 % of its speed.
USUAL: tuple[ReadOut, ...] = (Tail(),)


def as_readout(name: str, value: Any) -> ReadOut:
    """A read-out from what people write: one of READOUTS by name, or itself."""
    if isinstance(value, ReadOut):
        return value
    return READOUTS[require.one_of(name, value, READOUTS)]()


def as_readouts(name: str, value: Any) -> tuple[ReadOut, ...]:
    """Several of them, each kind once; None: none."""
    given = (value,) if isinstance(value, (str, ReadOut)) else () if value is None else value
    if not require.is_sequence(given):
        require.fail(name, f"a list of some of {', '.join(READOUTS)}", value)
    found = tuple(as_readout(name, one) for one in given)
    if len({one.name for one in found}) < len(found):
        require.fail(name, "a list that names every kind once", [one.name for one in found])
    return found


class Kept(NamedTuple):
    """What a run carries of its read-outs.

    model: what messages have shown last, (seed, agent, d), where the next one needs it; else ().
    slots: (seed, slot, agent, d).
    """

    model: Any
    slots: Any


def begin(readouts: Sequence[ReadOut], models: jax.Array, remember: bool) -> Any:
    """Before the first message, when all slots hold the models (seed, agent, d) that agents begin
    with, which say nothing of their records; () where nothing is to be averaged.

    Args:
      remember: what a round shows depends on what was shown before it.
    """
    if not readouts:
        return ()
    seeds, agents, dimension = models.shape
    shape = (seeds, sum(one.slots for one in readouts), agents, dimension)
    return Kept(models if remember else (), jnp.broadcast_to(models[:, None], shape))


def round_weights(readouts: Sequence[ReadOut], steps: np.ndarray, dtype: Any) -> Any:
    """(step, 2, slot) for all of them together; () where there is none."""
    if not readouts:
        return ()
    found = np.concatenate([one.weights(np.asarray(steps)) for one in readouts], axis=2)
    return np.ascontiguousarray(found, dtype)


def shown(
    algorithm: Algorithm, domain: Domain, kept: Any, sent: Any, inbox: Inbox, rates: Any
) -> Any:
    """The models that a round of one seed shows, all agents at once: from what was sent and heard
    and from what was shown before, never from a state. () where nothing is kept.
    """
    if not kept:
        return ()

    def one(model: Any, sent: Any, inbox: Inbox, rates: Any) -> jax.Array:
        return algorithm.shown(model, sent, inbox, rates, domain)

    return jax.vmap(one)(kept.model if algorithm.remembers else None, sent, inbox, rates)


def averaged(kept: Any, shown: jax.Array, weights: jax.Array) -> Any:
    """What is carried after a round that showed models (seed, agent, d)."""
    if not kept:
        return kept
    keep, add = (row[None, :, None, None] for row in weights)
    remembers = not isinstance(kept.model, tuple)
    return Kept(shown if remembers else (), keep * kept.slots + add * shown[:, None])


@require.plain_arguments
def shares(readouts: Sequence[ReadOut], which: str, rounds: int) -> np.ndarray:
    """Of all slots in what that one reads out after so many rounds."""
    parts = [one.mix(rounds) * (one.name == which) for one in readouts]
    return np.concatenate(parts)


@require.plain_arguments
def read(
    readouts: Sequence[ReadOut], slots: np.ndarray, rounds: int, axis: int
) -> dict[str, np.ndarray]:
    """What each of them reads out after so many rounds, by name: `slots` without its slot axis."""

    def one(which: str) -> np.ndarray:
        part = shares(readouts, which, rounds)
        used = np.flatnonzero(part)
        mixed = np.tensordot(part[used], slots.take(used, axis=axis), (0, axis))
        return mixed.astype(slots.dtype)

    return {readout.name: one(readout.name) for readout in readouts}


def everybodys(slots: jax.Array, shares: jax.Array, agents: jax.Array | None = None) -> jax.Array:
    """Slots (seed, slot, agent, d) with those shares of the first of them, as the mean over all
    agents: (seed, d).

    Args:
      agents: what each of them counts in the mean, where not all count alike.
    """
    used = slots[:, : len(shares)]
    if agents is None:
        return jnp.einsum("k,skad->sd", shares, used) / slots.shape[2]
    return jnp.einsum("k,a,skad->sd", shares, agents, used)
