"""Noise for deployment: whole multiples of a power-of-two grid, with exactly the distribution that
the proof assumes (NumPy, on the host).

A floating-point sum value + noise betrays the value through its low bits (Mironov 2012): which
numbers it can reach depends on the value. Here a value is rounded to a multiple of `grid(scale)`,
a function of the public noise scale only, and a whole number X of grid steps is added in
integers, with

    laplace     P(X = x) proportional to exp(-|x| / t)        epsilon = D1 / t
    gaussian    P(X = x) proportional to exp(-x^2 / 2 t^2)    rho = D2^2 / 2 t^2
    t = scale / grid in [2^36, 2^37);  D1, D2: the l1 and l2 distance of the rounded values,
    in grid steps

in every coordinate (Canonne, Kamath and Steinke 2020, Theorems 4 and 14 for rho, which is that of
zCDP). grid t = scale exactly, so a message costs what Laplace noise of that b or Gaussian noise of
that sigma costs, at the sensitivity of the rounded values (`rounding_sensitivity`). Every output
is a multiple of the grid that every value can reach. Pure epsilon and rho hold as they stand;
(epsilon, delta) curves of continuous noise need `curve_slack`.

**The samples are exact.** Take U uniform in [0, 1) as a sequence of bits without end.

    floor(-t ln U) >= x  iff  U <= exp(-x/t):
        the geometric law, P(X >= x) = exp(-x/t).                                         (1)
    For X = 2^m H + L the geometric law is a product: H = floor(-(t / 2^m) ln U),
        and L uniform on 0 .. 2^m - 1, kept if U' < exp(-L/t).                            (2)
    A random sign, with -0 thrown away, makes it two-sided.                               (3)
    Y of (3), kept if U'' < exp(-(|Y|/t - 1)^2 / 2), is the discrete Gaussian:
        both exponents add up to -Y^2 / 2t^2 - 1/2.                                       (4)

Of U, U', U'' the first bits are drawn, and floating point decides where it can: its error, that of
the bits not drawn and that of np.log and np.exp (taken as 2^-45 relative, a hundred times what they
have) stay below 2^-40 together. What lies nearer to an edge is settled in correctly rounded decimal
arithmetic, with as many further bits of the same U as that takes (`Uniform`). So no decision is
ever made wrongly, and the law of X is (1)-(4) itself: no truncated tail, which pure epsilon would
not forgive, no delta, and the same key gives the same noise on every machine. (2) takes m with
2^m <= 2^-16 t, so that all but 2^-16 of L are kept unseen.

**Overflow.** Rounded values and sums saturate at +-2^61 steps (2^24 to 2^25 scales), X at +-2^62.
Saturating a value moves no two values apart. The rest is a function of the exact sum: where X
saturates the sum does too, as 2^62 - 2^61 = 2^61. So is the conversion to float64, which is exact
up to 2^53 steps and rounds beyond. (Gaussian: a proposal is cut at 2^62, which changes its law by
less than exp(-2^24).)

**What remains** is that the bits are those of SHAKE-128 on 256 bits of the operating system's,
not ideal ones: the guarantee holds against adversaries who cannot tell the two apart (128-bit
security). hashlib has it everywhere; it is half as fast again as os.urandom, and a seeded test
takes the same path; NumPy's own generators are not cryptographic. Time is not constant: it depends
on the noise. A NaN is refused, and that refusal is not private.

References: Mironov, On significance of the least significant bits for differential privacy,
CCS 2012. Canonne, Kamath, Steinke, The discrete Gaussian for differential privacy, NeurIPS 2020.
Karney, Sampling exactly from the normal distribution, ACM TOMS 2016 (deciding by as many bits
as it takes).
"""

from __future__ import annotations

import decimal
import hashlib
import math
import os
import threading
import warnings
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from hearsay import _validate as require
from hearsay.mechanisms.rounding import GRID_BITS, TERNARY_BITS
from hearsay.mechanisms.rounding import curve_slack as curve_slack

SATURATION, _CUT = 2**61, 2**62
_SPLIT = 16  # (2)
_ERROR = 2.0**-40
_SHORT = 2**44  # a U whose first word is smaller has too few known bits for that error; one in 2^20
_LEAST, _MOST = 2.0**-20, 2.0**44  # scales in grid steps for which the error bounds are stated
_CHUNK = 2**15  # samples at once: they stay in the cache
_ONE = Fraction(1)


class Key:
    """Secret random bits, each given out once: `Key.fresh()` from the operating system,
    `Key.simulated(...)` for tests, which protects nobody.

    Every read replaces the secret by its successor, so a key that is stolen later does not bring
    back the noise of earlier messages. Whoever sends a message again must send the bytes it has
    kept: a key never draws the same noise twice. For that reason it cannot be copied either, nor
    used in a process that was forked from the one that made it.
    """

    def __init__(self, secret: bytes, private: bool) -> None:
        self._secret, self._process, self._lock, self.private = (
            secret,
            os.getpid(),
            threading.Lock(),
            private,
        )

    @classmethod
    def fresh(cls) -> Key:
        return cls(os.urandom(32), private=True)

    @classmethod
    def simulated(cls, *seed: int) -> Key:
        """The same bits for the same numbers, say (run, agent, step).

        Anybody can guess them and subtract the noise.
        """
        name = ",".join(str(require.seed("seed", part)) for part in seed)
        warnings.warn(
            "noise from a seed is NOT PRIVATE: use Key.fresh() for data that needs protection",
            stacklevel=2,
        )
        return cls(
            hashlib.sha256(f"hearsay simulated noise {name}".encode()).digest(), private=False
        )

    def words(self, count: int) -> tuple[np.ndarray, bytes]:
        """`count` uniform 64-bit words, and a secret of their own from which `Uniform` draws the
        bits that follow them.
        """
        if os.getpid() != self._process:
            raise RuntimeError(
                "a key must be used in the process that made it: a forked copy would repeat its"
                " noise"
            )
        with self._lock:
            block = hashlib.shake_128(self._secret).digest(64 + 8 * count)
            self._secret = block[:32]
        return np.frombuffer(block, "<u8", offset=64), block[32:64]

    def __reduce__(self) -> Any:
        raise TypeError("a key cannot be copied or saved: the copy would repeat its noise")

    def __repr__(self) -> str:
        return "Key(private)" if self.private else "Key(simulated, NOT PRIVATE)"


# (key, scale in grid steps, how many) -> so many whole numbers.
Sampler = Callable[[Key, float, int], np.ndarray]


class Uniform:
    """A real U uniform in [0, 1) whose leading bits are known;
    `index` says which of a block's numbers it is, so that its further bits are its own.
    """

    def __init__(self, known: Any, bits: int, more: bytes, index: Any) -> None:
        self.known, self.bits, self._more, self._read = (
            int(known),
            bits,
            more + int(index).to_bytes(8, "little"),
            0,
        )

    def extend(self) -> None:
        self.known, self.bits = (self.known << 64) | self.word(), self.bits + 64

    def word(self) -> int:
        """64 further bits, each given out once."""
        found = hashlib.shake_128(self._more + self._read.to_bytes(8, "little")).digest(8)
        self._read += 1
        return int.from_bytes(found, "little")

    def below_exp(self, exponent: Fraction, weight: Fraction = _ONE) -> bool:
        """weight U < exp(-exponent).

        All U with these leading bits lie on the same side, or more bits are drawn.
        """
        while exponent > 0 or weight > 1:
            low, high = exp_bounds(exponent, self.bits)
            if (self.known + 1) * weight <= low:
                return True
            if self.known * weight >= high:
                return False
            self.extend()
        return True

    def floor_log(self, rate: Fraction) -> int:
        """floor(-rate ln U): a guess, put right by exact comparisons."""
        while self.known < _SHORT:
            self.extend()
        found = max(0, int(rate * Fraction(self.bits * math.log(2) - math.log(self.known))))
        while self.below_exp((found + 1) / rate):
            found += 1
        while not self.below_exp(found / rate):
            found -= 1
        return found


def exp_bounds(exponent: Fraction, bits: int) -> tuple[int, int]:
    """Whole numbers around 2^bits exp(-exponent), at most two apart.

    decimal rounds the quotient, exp and the product correctly to D digits, so the product is off
    by less than 2^bits 10^(1-D) (2 + exponent) exp(-exponent) < 2^(bits+2) 10^(1-D) < 1e-9 with
    D = bits/3 + 20.
    """
    context = decimal.Context(prec=bits // 3 + 20, Emin=decimal.MIN_EMIN, Emax=decimal.MAX_EMAX)
    quotient = context.divide(
        decimal.Decimal(-exponent.numerator), decimal.Decimal(exponent.denominator)
    )
    value = Fraction(context.multiply(context.exp(quotient), decimal.Decimal(2**bits)))
    slack = Fraction(1, 10**9)
    return math.floor(value - slack), math.ceil(value + slack)


def _geometric(words: np.ndarray, more: bytes, rate: float) -> np.ndarray:
    """(1): floor(-rate ln U) for U that begin with the given words, rate < 2^17."""
    estimate = np.log((words | np.uint64(1)).astype(np.float64) * 2.0**-64)
    estimate *= -rate
    whole = np.floor(estimate)
    estimate -= whole
    margin, found = rate * _ERROR, whole.astype(np.int64)
    unsure = (estimate < margin) | (estimate > 1 - margin) | (words < _SHORT)
    for i in np.flatnonzero(unsure):
        found[i] = min(Uniform(words[i], 64, more, i).floor_log(Fraction(rate)), _CUT)
    return found


def _laplace_block(key: Key, scale: float, count: int) -> np.ndarray:
    """(1)-(3), from two words a sample; slightly fewer samples than asked for."""
    words, more = key.words(2 * count)
    fine = words[count:]
    low = max(0, math.frexp(scale)[1] - 1 - _SPLIT)
    size = np.minimum(_geometric(words[:count], more, math.ldexp(scale, -low)), _CUT >> low) << low
    kept = np.ones(count, bool)
    if low:  # from the lowest bit: the sign, L, and the first bits of U'
        part, test, bits = (
            ((fine >> 1) & np.uint64(2**low - 1)).astype(np.int64),
            fine >> (1 + low),
            63 - low,
        )
        size += part
        # U' >= 1 - 2^-16; below that, it is below exp(-L/t).
        for i in np.flatnonzero(test >= (2**_SPLIT - 1) << (bits - _SPLIT)):
            kept[i] = Uniform(test[i], bits, more, count + i).below_exp(
                int(part[i]) / Fraction(scale)
            )
    sign = (fine & np.uint64(1)).astype(np.int64)
    kept &= (size + 1) > sign  # -0
    return ((size ^ -sign) + sign)[kept]


def _gaussian_block(key: Key, scale: float, count: int) -> np.ndarray:
    """(4): 0.76 of the proposals are kept where the scale is large."""
    found = _laplace_block(key, scale, count)
    words, more = key.words(len(found))
    chance = np.abs(found) / scale
    chance -= 1.0
    chance = np.exp(-0.5 * chance * chance)
    chance -= words * 2.0**-64
    kept = chance > 0
    for i in np.flatnonzero(np.abs(chance) <= _ERROR):
        exponent = (abs(int(found[i])) / Fraction(scale) - 1) ** 2 / 2
        kept[i] = Uniform(words[i], 64, more, i).below_exp(exponent)
    return found[kept]


def _sample(block: Sampler, key: Key, scale: float, size: int) -> np.ndarray:
    """The first `size` samples that blocks of about the right length give."""
    require.instance("key", key, Key, "a key such as Key.fresh()")
    scale, size = require.positive("scale", scale), require.count("size", size, least=0)
    if not _LEAST <= scale <= _MOST:
        require.fail("scale", "between 2^-20 and 2^44 grid steps", scale)
    out, filled, share = np.empty(size, np.int64), 0, 0.75 if block is _gaussian_block else 1.0
    while filled < size:
        found = block(key, scale, min(_CHUNK, int((size - filled) / share) + 8))[: size - filled]
        out[filled : filled + len(found)] = found
        filled += len(found)
    return out


def discrete_laplace(key: Key, scale: float, size: int) -> np.ndarray:
    """`size` whole numbers X (int64) with P(X = x) proportional to exp(-|x| / scale)."""
    return _sample(_laplace_block, key, scale, size)


def discrete_gaussian(key: Key, scale: float, size: int) -> np.ndarray:
    """`size` whole numbers X (int64) with P(X = x) proportional to exp(-x^2 / 2 scale^2)."""
    return _sample(_gaussian_block, key, scale, size)


def grid(scale: float) -> float:
    """The largest power of two that is at most scale / 2^36."""
    scale = require.positive("scale", scale)
    if not 2.0**-900 <= scale <= 2.0**900:
        require.fail("scale", "between 2^-900 and 2^900", scale)
    return math.ldexp(1.0, math.frexp(scale)[1] - 1 - GRID_BITS)


def quantize(value: Any, grid: float) -> np.ndarray:
    """The nearest multiples of the grid, counted in grid steps (int64), saturating at 2^61.

    Dividing by a power of two is exact.
    """
    mantissa, exponent = math.frexp(require.positive("grid", grid))
    if mantissa != 0.5:
        require.fail("grid", "a power of two", grid)
    value = _numbers(value)
    with np.errstate(over="ignore", under="ignore"):
        steps = np.rint(np.ldexp(value, 1 - exponent))
    return np.clip(steps, -float(SATURATION), float(SATURATION)).astype(np.int64)


def _numbers(value: Any) -> np.ndarray:
    value = np.asarray(value, np.float64)
    if np.isnan(value).any():
        require.fail("value", "a number in every coordinate", "NaN")
    return value


def ternary(value: Any, scale: float, key: Key) -> np.ndarray:
    """scale times the sign of the value with probability k / 2^53, else 0 (never -0), in float64;
    k = 2^53 min(1, |value| / scale) to the nearest whole number.

    A probability of 1/2 or more is off by at most 2^-54, the error of the division, which is a
    multiple of 2^-53 already; a smaller one by 2^-55 + 2^-54. So per coordinate two values have a
    total variation distance of at most |difference| / scale + 2^-52, and 0 if they are equal. Equal
    signs: the distance is that of the two probabilities, both off by 3 2^-55 at most. Opposite
    signs: it is the larger of them, and |difference| the sum of both sizes. The saturation at 1 is
    a projection.
    """
    require.instance("key", key, Key, "a key such as Key.fresh()")
    value, scale = _numbers(value), require.positive("scale", scale)
    with np.errstate(over="ignore", under="ignore"):
        chance = np.rint(np.minimum(np.abs(value) / scale, 1.0) * 2.0**TERNARY_BITS).astype(
            np.uint64
        )
    words = key.words(value.size)[0].reshape(value.shape)
    return np.where(words >> (64 - TERNARY_BITS) < chance, np.copysign(scale, value), 0.0)


def noised(value: Any, scale: float, sample: Sampler, key: Key) -> np.ndarray:
    """value + noise of that scale, in float64 multiples of `grid(scale)`: the value rounded to the
    grid and a sample of whole grid steps, added in integers.
    """
    scale = require.positive("scale", scale)
    step = grid(scale)
    steps = quantize(value, step)
    noise = sample(key, scale / step, steps.size).reshape(steps.shape)
    return np.clip(steps + noise, -SATURATION, SATURATION) * step


def rounding_sensitivity(grid: float, dimension: int, norm: str) -> float:
    """How much further apart two vectors can be once both are rounded to the grid: d grid in "l1",
    sqrt(d) grid in "l2", grid in "linf".

    Rounding moves each of the d coordinates of either vector by at most grid / 2, so the difference
    of the two moves by at most grid in each: the triangle inequality adds the norm of (grid, ...,
    grid). Saturating is a projection of each coordinate and brings them no further apart. Where the
    vectors are equal so are the rounded ones.

    It goes into the sensitivity of a release: Phi(k) becomes Phi(k) + sqrt(d) grid where
    Phi(k) > 0. That is right for Laplace noise too, whose cost is sqrt(d) Phi / b: sqrt(d) sqrt(d)
    grid is the l1 term. With `grid(b)` a Laplace message costs at most d 2^-36 = d 1.5e-11 more
    epsilon; 1000 messages of 62,000 coordinates together 0.0009. Gaussian noise: Phi / sigma grows
    by sqrt(d) 2^-36, for 62,000 coordinates 3.6e-9.
    """
    grid, dimension = require.positive("grid", grid), require.count("dimension", dimension)
    require.one_of("norm", norm, ("l1", "l2", "linf"))
    power = {"l1": 1.0, "l2": 0.5, "linf": 0.0}[norm]
    return (
        math.nextafter(dimension**power, math.inf) * grid
        if power == 0.5
        else dimension**power * grid
    )
