"""What every law of noise knows of itself.

A mechanism turns a value into what may leave an agent. Its law decides how it is drawn, what a
message costs, in which unit a budget is counted and how that is read as an epsilon, what a lattice
adds to it, and how an auditor tells it from another law. All of that is one class and one file per
law (laplace.py, gaussian.py, ternary.py): a new law is a new file, and nobody else asks for names.

An account adds up one number per agent, the law's own:

    law        number    one field moves by x noise scales in l2, d coordinates    unit of budgets
    laplace    epsilon   sqrt(d) x                                                 epsilon
    gaussian   rho       x^2 / 2                                                   epsilon, at delta
    ternary    delta     sqrt(d) x                                                 delta

A simulation adds noise in two halves, so that the costly one can be done for many steps at once:
`draw` turns a key into randomness that depends on neither value nor scale, `add` turns value, draw
and scale into what is sent. Nothing here imports jax until something is drawn: certificates are
computed and checked without it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from hearsay import _validate as require

if TYPE_CHECKING:
    import jax

    from hearsay.mechanisms.lattice import Key


class Reading(NamedTuple):
    """The number of an account as a certificate prints it: the fields of an AgentBudget.

    epsilon is pure, or holds at the certificate's delta (`Mechanism.at_delta`), or at the agent's
    own `delta`; `reason` says why there is no budget, where there is none.
    """

    epsilon: float
    rho: float | None = None
    delta: float | None = None
    reason: str = ""


@dataclass(frozen=True)
class Mechanism(ABC):
    """A law of noise: how it is drawn, what it costs and how its budget is read."""

    name: ClassVar[str]
    # What a certificate calls it: "gaussian noise", "ternary messages".
    noun: ClassVar[str] = "noise"
    # What a budget is counted in: "epsilon" or "delta".
    unit: ClassVar[str] = "epsilon"
    # A target or a limit means nothing without a delta.
    needs_delta: ClassVar[bool] = False
    # The account's number becomes an epsilon at the certificate's delta only.
    at_delta: ClassVar[bool] = False
    # What a record's uses cost adds up: a budget is a sum of prices (privacy/recursion.py).
    additive: ClassVar[bool] = True
    # What is sent is value + scale * draw, so that the value and the message tell the draw.
    adds_noise: ClassVar[bool] = True
    # From what each message costs there follows a smaller epsilon at a delta (`composed`).
    composes: ClassVar[bool] = False
    # Secret batches make messages cost less (`sampled_loss`).
    amplifies: ClassVar[bool] = False
    # Sums of draws are of the same law, so that pairs of agents may share noise
    # (graphs/secrets.py).
    shares: ClassVar[bool] = False

    # Drawing.

    @abstractmethod
    def draw(self, key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
        """Randomness of scale 1, from a key."""

    def add(self, value: jax.Array, draw: jax.Array, scale: jax.Array) -> jax.Array:
        """What is sent: the value with noise of that scale."""
        return value + scale * draw

    # What messages cost.

    def stretch(self, dimension: int) -> float:
        """How long a vector of l2 length 1 can be in the norm that the law counts in: l1 here."""
        return float(np.sqrt(dimension))

    def cost(self, ratio: Any, dimension: int) -> Any:
        """What one field costs whose value moves by `ratio` noise scales in l2, in the account's
        own number.
        """
        return self.stretch(dimension) * ratio

    def together(self, shifts: np.ndarray, axis: int | None = None) -> Any:
        """What several shifts, each in the law's norm over the scale of its noise, add up to."""
        return np.sum(shifts, axis=axis)

    def cumulative(self, shifts: np.ndarray) -> np.ndarray:
        """`together` of the first one, of the first two, ..."""
        return np.cumsum(shifts)

    # How an account's number is read, and its inverse.

    def required(self, delta: float | None) -> float | None:
        """`delta`, checked; ValueError where a budget of this law needs one and there is none."""
        return require.optional(require.fraction)("delta", delta)

    def epsilon(self, number: float, delta: float | None, numbers: int | None = None) -> float:
        """The account's number in the law's `unit`.

        Args:
          number: what the account adds up to (`rounded` already, where `numbers` is given).
          delta: the certificate's.
          numbers: how many numbers were sent with noise of a lattice; None for ideal noise.
        """
        return number

    def epsilons(self, spent: np.ndarray, delta: float | None) -> np.ndarray:
        """`epsilon` of every entry, for ideal noise."""
        return spent

    def budget(self, number: float, delta: float | None, numbers: int | None = None) -> Reading:
        """The account's number as the fields of a certificate; arguments as for `epsilon`."""
        return Reading(float(self.epsilon(number, delta, numbers)))

    def composed(self, each: np.ndarray, delta: float, numbers: int | None = None) -> float | None:
        """epsilon at delta from the costs of all messages, shape (pattern, message), where that can
        be less than their sum; None where the law has no such curve.

        Args:
          numbers: how many numbers each message has on a lattice; None for ideal noise.
        """
        return None

    def allowance(self, limit: float, delta: float | None) -> float:
        """What an agent may spend, in the law's `unit`, so that its certificate stays within the
        epsilon `limit`.
        """
        self.required(delta)
        return limit

    def number(self, limit: float, delta: float | None) -> float:
        """The largest number of an account whose `epsilon` is at most `limit`."""
        return limit

    @abstractmethod
    def factor(self, number: float, epsilon: float, delta: float | None) -> float:
        """By how much noise must grow for an account of `number` to cost at most `epsilon`."""

    # Secret batches (mechanisms/amplification.py).

    def sampled_loss(self, shift: float, rate: float, cell: float) -> Any:
        """The privacy loss distribution of one message whose value moves by `shift` noise scales,
        in the law's norm, where a record is in its batch with probability `rate`.
        """
        raise ValueError(f"{self.name} messages have no privacy loss distribution")

    def opposed_point(
        self, shift: float, other: float, rate: float, epsilon: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The ends of an interval in which the densities of such messages of two records, that move
        them by `shift` and by `other` in opposite directions, have the quotient e^epsilon, epsilon
        >= 0 (mechanisms/opposed.py).
        """
        raise ValueError(f"{self.name} messages have no privacy loss distribution")

    def widest_loss(self, shift: float) -> float:
        """No loss of such a message is larger, but with a negligible probability."""
        return shift

    # Noise on a lattice.

    @abstractmethod
    def rounded(self, ideal: float, more: float, numbers: int) -> float:
        """The account's number for noise on a lattice (mechanisms/rounding.py).

        Args:
          ideal: that of ideal noise.
          more: what rounding errors shift messages by, put `together`.
          numbers: how many numbers are sent in all.
        """

    @abstractmethod
    def lattice(self, value: Any, scale: float, key: Key) -> np.ndarray:
        """What may leave a deployed agent: the value with exact noise (mechanisms/lattice.py), as
        `add` in a simulation.

        float64 multiples of `lattice.grid(scale)`, or of the scale itself (ternary). Rounding them
        to float32 afterwards costs no privacy: the sum has been formed before.
        """

    def lattice_shared(
        self,
        value: Any,
        scale: float,
        grid: float,
        key: Key,
        terms: Sequence[tuple[int, float, bytes]],
    ) -> np.ndarray:
        """`lattice`, with noise that pairs of agents share (mechanisms/shared_lattice.py).

        Args:
          grid: that of all agents.
          terms: for every pair of the agent: +1 or -1, the scale of their noise, their key.
        """
        raise ValueError(f"{self.name} noise cannot be shared")

    # For an auditor, who knows the value and asks what was added to it.

    @property
    @abstractmethod
    def residual(self) -> Mechanism:
        """The law in which an auditor writes down the noise (audit/standard_form.py)."""

    @property
    @abstractmethod
    def standard(self) -> Any:
        """The distribution of `residual` at scale 1, as SciPy has it."""

    @property
    @abstractmethod
    def crowding(self) -> float:
        """The integral of the squared density of `standard`: how often two draws are close."""

    @abstractmethod
    def size(self, residuals: np.ndarray) -> tuple[float, float, float]:
        """(their scale over the claimed one, the chance of a smaller one, of a larger one), if they
        are independent numbers of `standard`.
        """

    def energy(self, residual: jax.Array, white: jax.Array) -> jax.Array:
        """-log of the density of `residual` up to a constant; for a shift of that many scales, what
        it costs in the account's number.

        Args:
          residual: (time, ...), in units of the noise's scale.
          white: the matrix (time, time) that makes noise of different times independent.
        """
        return abs(residual).sum()

    def log_density(
        self, sent: jax.Array, value: jax.Array, scale: jax.Array, white: jax.Array
    ) -> jax.Array:
        """log p of what was sent, up to what does not depend on the value; each (time, ...)."""
        import jax.numpy as jnp

        residual, unit = in_units(sent, value, scale)
        return -(self.energy(residual, white) + jnp.sum(jnp.log(unit)))

    @abstractmethod
    def between(self, low: jax.Array, high: jax.Array) -> jax.Array:
        """The chance that noise of scale 1 lies between the two."""

    def levels(
        self, sent: np.ndarray, value: np.ndarray, scale: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """(the chance of a smaller message, the chance of this one), for laws of few messages."""
        raise NotImplementedError(f"{self.name} noise has no two equal messages")


def in_units(sent: jax.Array, value: jax.Array, scale: jax.Array) -> tuple[jax.Array, jax.Array]:
    """(what was added, in units of its scale; the units).

    A message without noise gets a unit of rounding errors, so that any difference counts.
    """
    import jax.numpy as jnp

    tiny = 1e3 * jnp.finfo(sent.dtype).eps
    unit = jnp.maximum(jnp.abs(scale), tiny * (1 + jnp.abs(value)))
    return (sent - value) / unit, unit


def from_its_tail(low: jax.Array, high: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The same interval of a symmetric law, mirrored into the lower tail where it lies in the upper
    one, so that no difference of two numbers near 1 is formed.
    """
    import jax.numpy as jnp

    flip = low > 0
    return jnp.where(flip, -high, low), jnp.where(flip, -low, high)
