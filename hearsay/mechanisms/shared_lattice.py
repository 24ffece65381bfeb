"""Noise that two agents share: whole numbers from a key, the same at both ends on every machine.

`shared_noise` draws the discrete Gaussian, P(X = x) proportional to exp(-x^2 / 2 t^2), exactly as
lattice.py does, but from a key that two processes have and as fast as NumPy can look up tables. One
end adds X, the other -X, so both must arrive at the same integers although np.exp is off by its own
last bits on every machine. As in lattice.py, floating point decides only where it can be sure, and
the rest is settled in correctly rounded decimal arithmetic with further bits of the same number.

**The law.** Cut the whole numbers into strips [j 2^m, (j + 1) 2^m), j = -511 .. 510, with
2^m = 2^-5 times the power of two below t, and two tails. Take t0 = (32 + 2 k) 2^m, the smallest of
these with t0 >= t, k = 0 .. 16. With the integers A, W_j of `_table`, which depend on k only,

    W_j >= A exp(-x^2 / 2 t0^2) >= A exp(-x^2 / 2 t^2)  for every x of strip j,
    sum of all W = 2^64,

a proposal chooses strip j with probability W_j / 2^64 (Walker's alias method in integers), x in it
uniformly, and keeps x if U < A exp(-x^2 / 2 t^2) / W_j. So x comes out with a probability
proportional to exp(-x^2 / 2 t^2). A mirrored strip has the weight of its image, -1 - x for x, whose
exponent is no smaller. 0.93 or more of the proposals are kept.

A tail is cut into pieces of 16 strips, and piece K = 0, 1, .. chosen with probability 2^-(K+1):
over a piece the law falls by exp(-16 511 / 64^2) < 1/2, so that with W_tail >= 32 A exp(-511^2 / 2
(32 + 2 k)^2) every chance of keeping a number is at most 1. Nothing is cut off. (A whole number
beyond 64 bits would be reduced modulo 2^64, like every sum here.)

**The bits** of a call are the key stream of ChaCha20: 32 bytes from which further bits follow by
SHAKE-128, 32 bytes that are not used, then 16 bytes for each proposal. Proposals are judged one by
one, so the first numbers of a longer call are those of a shorter one. A key is for one call: used
twice it draws the same noise twice.

**The sum** (`noised_shared`). All agents round a field of a round to ONE grid that everybody can
compute (`common_grid`). [value], own noise and the terms of all pairs are whole numbers of grid
steps, added modulo 2^64; only the result saturates, at +-2^61 steps. So it is a function of the
exact sum, whatever overflows on the way and in whichever order. The proof of shared_rounding.py
needs that: a saturated intermediate would be no function of the sum. So much for privacy. As for
accuracy, scales are at most 2^48 steps (own: 2^44), and the noise of n pairs leaves +-2^60 only
if that of all together exceeds 2^12 / sqrt(n) of its standard deviations. Values saturate at 2^61
steps before noise is added, which brings no two of them further apart.

References: Walker, An efficient method for generating discrete random variables with general
distributions, ACM TOMS 1977. Bernstein, ChaCha, a variant of Salsa20, 2008.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from hearsay import _validate as require
from hearsay.mechanisms import lattice
from hearsay.mechanisms.lattice import SATURATION, Key, exp_bounds
from hearsay.mechanisms.rounding import GRID_BITS

KEY_BYTES = 32
# Scales in grid steps: at least those that the proof is about (shared_rounding.py).
LEAST, MOST = 2.0**GRID_BITS, 2.0**48
MOST_OWN = 2.0**44
# 2^32 numbers use 2^36 bytes, a quarter of what ChaCha20 has for one key.
_MOST_NUMBERS = 2**32
_HALF = 512  # the strips of either side, the tail being the last
_CELLS = 2 * _HALF
_FINE = 5  # 2^_FINE strips to the power of two below t
_PIECE = 4  # a piece of a tail has 2^_PIECE strips
_CELL_BITS = 54  # a cell of the alias table holds 2^54 of 2^64
_ERROR = 2.0**-40  # of floating point, in a probability
_CHUNK = 2**15  # proposals at once: they stay in the cache


class _Table(NamedTuple):
    """The weights of strips, and Walker's table of them.

    Args:
      height: A.
      weights: W_j of the strips j = 0 .. 510, and of the tail; a mirrored strip has the same.
      threshold: of each cell: below it the cell is its own strip, from it on it is its alias.
      alias: strips counted from 0, the leftmost.
      ratio: A / W of every strip, so counted; not a number for the tails.
    """

    height: int
    weights: tuple[int, ...]
    threshold: np.ndarray
    alias: np.ndarray
    ratio: np.ndarray


@lru_cache(maxsize=17)
def _table(width: int) -> _Table:
    """The same integers everywhere: decimal arithmetic is correctly rounded.

    Args:
      width: of t0, in strips.
    """
    *heights, last = (exp_bounds(Fraction(j * j, 2 * width**2), 64)[1] for j in range(_HALF))
    # So that the weights, rounded up, and those of both tails add up to 2^64.
    height = (2**127 - 2**73) // (sum(heights) + (2 << _PIECE) * last)
    weights = [(height * one >> 64) + 1 for one in heights]
    weights.append(2**63 - sum(weights))
    both = [*weights[::-1], *weights]
    threshold, alias = _alias(both)
    ratio = [height / one for one in both]
    ratio[0] = ratio[-1] = math.nan
    return _Table(
        height,
        tuple(weights),
        np.array(threshold, np.uint64),
        np.array(alias, np.int64),
        np.array(ratio),
    )


def _alias(weights: Sequence[int]) -> tuple[list[int], list[int]]:
    """Walker's table in integers: every cell holds its capacity, of one or two strips."""
    capacity = 1 << _CELL_BITS
    left, alias = list(weights), list(range(len(weights)))
    short = [i for i, one in enumerate(left) if one < capacity]
    long = [i for i, one in enumerate(left) if one > capacity]
    while short:
        i, j = short.pop(), long[-1]
        alias[i] = j
        left[j] -= capacity - left[i]
        if left[j] <= capacity:
            long.pop()
            if left[j] < capacity:
                short.append(j)
    return [min(one, capacity) for one in left], alias


class _Law:
    """Proposals for one scale, and which of them are kept."""

    def __init__(self, scale: float) -> None:
        mantissa, exponent = math.frexp(scale)
        self.low = exponent - 1 - _FINE
        self.table = _table(2 * math.ceil(mantissa * 2**_FINE))
        self.scale, self._rate = Fraction(scale), -0.5 / scale**2
        # What is not drawn of U counts as an error too.
        self._error = 2.0 ** (self.low - 64) + _ERROR

    def keep(self, words: np.ndarray, first: int, more: bytes) -> np.ndarray:
        """The whole numbers that proposals from those words, (proposal, 2), give.

        Args:
          first: the number of the first proposal.
          more: the secret of which further bits are made.
        """
        choice, place = words[:, 0], words[:, 1]
        cell = (choice >> np.uint64(_CELL_BITS)).view(np.int64)
        own = (choice & np.uint64(2**_CELL_BITS - 1)) < self.table.threshold.take(cell)
        strip = np.where(own, cell, self.table.alias.take(cell))
        found = (strip - _HALF) << self.low
        found += (place & np.uint64(2**self.low - 1)).view(np.int64)
        chance = found.astype(np.float64)
        chance *= chance
        chance *= self._rate
        np.exp(chance, out=chance)
        chance *= self.table.ratio.take(strip)
        chance -= (place >> np.uint64(self.low)) * 2.0 ** (self.low - 64)
        kept = chance > 0
        # Where the chance is not a number, in a tail, nothing is sure.
        for i in np.flatnonzero(~(np.abs(chance) > self._error)):
            settled = self.settled(int(strip[i]), int(place[i]), first + int(i), more)
            kept[i] = settled is not None
            found[i] = _wrapped(settled or 0)
        return found[kept]

    def settled(self, strip: int, place: int, index: int, more: bytes) -> int | None:
        """That proposal by exact comparisons; None: it is not kept."""
        if strip in (0, _CELLS - 1):
            return self._tail(strip > 0, index, more)
        found = ((strip - _HALF) << self.low) + (place & (2**self.low - 1))
        uniform = lattice.Uniform(place >> self.low, 64 - self.low, more, index)
        weight = self.table.weights[strip - _HALF if strip >= _HALF else _HALF - 1 - strip]
        return found if self._below(uniform, found, Fraction(weight)) else None

    def _tail(self, upper: bool, index: int, more: bytes) -> int | None:
        uniform = lattice.Uniform(0, 0, more, index)
        piece = 0
        while uniform.word() & 1:
            piece += 1
        low = self.low + _PIECE
        beyond = ((_HALF - 1) << self.low) + (piece << low) + (uniform.word() & (2**low - 1))
        found = beyond if upper else -1 - beyond
        # The share of W_tail that one strip of this piece has.
        weight = Fraction(self.table.weights[-1], 2 ** (piece + 1 + _PIECE))
        return found if self._below(uniform, found, weight) else None

    def _below(self, uniform: lattice.Uniform, found: int, weight: Fraction) -> bool:
        exponent = (found / self.scale) ** 2 / 2
        return uniform.below_exp(exponent, weight / self.table.height)


def _wrapped(number: int) -> int:
    """Modulo 2^64, as int64 has it."""
    return (number + 2**63) % 2**64 - 2**63


class _Stream:
    """The bits of a key.

    Args:
      key: 32 bytes.
    """

    def __init__(self, key: bytes) -> None:
        # Needed by deployed agents only, who have it.
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

        self._cipher = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()
        # The secret of which further bits are made.
        self.more = self._cipher.update(bytes(64))[:32]

    def words(self, proposals: int) -> np.ndarray:
        """(proposal, 2): the next ones."""
        block = self._cipher.update(bytes(16 * proposals))
        return np.frombuffer(block, "<u8").astype(np.uint64, copy=False).reshape(proposals, 2)


def shared_noise(key: bytes, scale: float, count: int) -> np.ndarray:
    """`count` whole numbers X (int64) with P(X = x) proportional to exp(-x^2 / 2 scale^2), the same
    for the same key and scale on every machine.

    Args:
      key: 32 secret bytes that two agents share, for this call alone.
      scale: in grid steps, 2^36 to 2^48.
      count: how many numbers.
    """
    if not (isinstance(key, bytes) and len(key) == KEY_BYTES):
        require.fail("key", "32 bytes", type(key).__name__)
    count = require.count("count", count, least=0)
    if count > _MOST_NUMBERS:
        require.fail("count", "at most 2^32 numbers from one key", count)
    law, stream = _Law(_in_range("scale", scale, MOST)), _Stream(key)
    out, filled, first = np.empty(count, np.int64), 0, 0
    while filled < count:
        words = stream.words(min(_CHUNK, int((count - filled) * 1.05) + 16))
        found = law.keep(words, first, stream.more)[: count - filled]
        out[filled : filled + len(found)] = found
        filled, first = filled + len(found), first + len(words)
    return out


def common_grid(scales: Sequence[float]) -> float:
    """The grid of one field in one round, the same for all agents.

    Args:
      scales: everybody's own noise and that of every pair: public numbers.
    """
    positive = [require.positive("scales", scale) for scale in scales]
    if not positive:
        require.fail("scales", "at least one noise scale", scales)
    return lattice.grid(min(positive))


def noised_shared(
    value: Any,
    own_scale: float,
    grid: float,
    key: Key,
    terms: Sequence[tuple[int, float, bytes]],
) -> np.ndarray:
    """value + own noise + the noise shared with others, in float64 multiples of the grid.

    Args:
      value: what must not leave as it is.
      own_scale: of the agent's own noise.
      grid: of `common_grid`.
      key: of the agent's own noise, such as `Key.fresh()`.
      terms: for every pair of the agent: +1 or -1, the scale of their noise, their key.
    """
    steps = lattice.quantize(value, grid)
    own = _in_range("own_scale", own_scale / grid, MOST_OWN)
    total = steps + lattice.discrete_gaussian(key, own, steps.size).reshape(steps.shape)
    for sign, scale, shared in terms:
        if sign not in (1, -1):
            require.fail("sign", "1 or -1", sign)
        noise = shared_noise(shared, scale / grid, steps.size).reshape(steps.shape)
        total = total + noise if sign > 0 else total - noise
    return np.clip(total, -SATURATION, SATURATION) * grid


def _in_range(name: str, steps: float, most: float) -> float:
    steps = require.positive(name, steps)
    if not LEAST <= steps <= most:
        require.fail(
            name,
            f"between 2^{GRID_BITS} and 2^{round(math.log2(most))} steps of the grid that all"
            " agents share: bring the noise scales of agents, and the ratio of shared to own noise,"
            " closer together",
            f"2^{math.log2(steps):.2f}",
        )
    return steps
