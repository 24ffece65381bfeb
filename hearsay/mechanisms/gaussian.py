"""Gaussian noise of standard deviation sigma in every coordinate (floating point:
for simulation, see laplace.py).

A message costs zero-concentrated privacy rho, half the square of its l2 shift over sigma. All
shifts of a run are one long vector, so they add up like its coordinates do: the root of the sum of
squares. Such a budget is not additive in the uses of a record, and is an epsilon only at a delta.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy
from scipy import special

from hearsay import _validate as require
from hearsay.mechanisms import convert, lattice, rounding, shared_lattice
from hearsay.mechanisms.mechanism import Mechanism, Reading, from_its_tail
from hearsay.mechanisms.opposed import narrowed

if TYPE_CHECKING:
    import jax

    from hearsay.mechanisms.lattice import Key


@dataclass(frozen=True)
class Gaussian(Mechanism):
    """Noise of zero-concentrated privacy rho, read as an epsilon at a delta."""

    name = "gaussian"
    needs_delta = at_delta = amplifies = shares = True
    additive = False

    def draw(self, key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
        """Standard normal samples: sqrt(2) erfinv(u) is a half-normal magnitude for uniform u,
        and the sign has a bit of its own.
        """
        import jax
        import jax.numpy as jnp

        from hearsay.mechanisms.words import signed_uniform

        sign, uniform = signed_uniform(key, shape, dtype)
        magnitude = dtype.type(2**0.5) * jax.scipy.special.erfinv(uniform)
        return jnp.where(sign, magnitude, -magnitude)

    def stretch(self, dimension: int) -> float:
        """1: the law counts in l2."""
        return 1.0

    def cost(self, ratio: Any, dimension: int) -> Any:
        return ratio**2 / 2

    def together(self, shifts: np.ndarray, axis: int | None = None) -> Any:
        return np.sqrt(np.sum(shifts**2, axis=axis))

    def cumulative(self, shifts: np.ndarray) -> np.ndarray:
        return np.sqrt(np.cumsum(shifts**2))

    def required(self, delta: float | None) -> float:
        if delta is None:
            raise ValueError("delta must be given for Gaussian noise: it has no pure epsilon")
        return require.fraction("delta", delta)

    def epsilon(self, number: float, delta: float | None, numbers: int | None = None) -> float:
        delta = self.required(delta)
        if numbers is None:
            return convert.gaussian_epsilon(number, delta)
        return rounding.gaussian_epsilon(number, delta, numbers)

    def epsilons(self, spent: np.ndarray, delta: float | None) -> np.ndarray:
        delta = self.required(delta)
        # A conversion is a root search: each number once.
        distinct, where = np.unique(spent, return_inverse=True)
        found = np.array([self.epsilon(float(rho), delta) for rho in distinct])
        return found[where].reshape(spent.shape)

    def budget(self, number: float, delta: float | None, numbers: int | None = None) -> Reading:
        return Reading(float(self.epsilon(number, delta, numbers)), rho=number)

    def number(self, limit: float, delta: float | None) -> float:
        """The largest rho (to one part in 10^6, from below) whose epsilon at `delta` is at most
        `limit`.
        """
        delta = self.required(delta)
        # A conversion is a root search, whose last digits do not always grow with rho: the margin
        # covers every smaller rho too.
        most = require.positive("epsilon", limit) * (1 - 1e-8)
        low, high = 0.0, 1.0
        while convert.gaussian_epsilon(high, delta) <= most:
            low, high = high, 2 * high
        while high - low > 1e-6 * high:
            middle = (low + high) / 2
            within = convert.gaussian_epsilon(middle, delta) <= most
            low, high = (middle, high) if within else (low, middle)
        return low

    def factor(self, number: float, epsilon: float, delta: float | None) -> float:
        """rho is proportional to 1 / scale^2."""
        if delta is None:
            raise ValueError("delta must be given to calibrate Gaussian noise")
        return math.sqrt(number / self.number(epsilon, delta)) * (1 + 1e-12)

    def sampled_loss(self, shift: float, rate: float, cell: float) -> Any:
        from dp_accounting.pld import privacy_loss_distribution as pld

        return pld.from_gaussian_mechanism(
            1 / shift, value_discretization_interval=cell, sampling_prob=rate
        )

    def opposed_point(
        self, shift: float, other: float, rate: float, epsilon: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """c + e^(s z) = e^epsilon (c + e^(-s' z)) with z = t - (s - s') / 2 and c the odds of no
        record times e^(s s' / 2). Were both of length s the zero would be log(y) / s, log y =
        epsilon / 2 + asinh(c sinh(epsilon / 2)): it lies between that of the longer and that of the
        shorter one, and at most 40 beyond the shift, where no mass is left.
        """
        half = epsilon / 2
        with np.errstate(divide="ignore"):
            spread = shift * other / 2 + np.log1p(-rate) - np.log(rate)
            # log(c sinh(half)), also where either is larger than all floats.
            inner = spread + half + np.log(-np.expm1(-epsilon)) - math.log(2)
        large = inner > 20
        root = np.arcsinh(np.exp(np.where(large, 0.0, inner)))
        log = half + np.where(large, inner + math.log(2), root)
        middle = (shift - other) / 2
        far = np.full(log.shape, shift + 40 - middle)
        with np.errstate(divide="ignore", over="ignore"):
            ends = [
                np.minimum(np.divide(log, s, out=np.zeros_like(log), where=log > 0), far)
                for s in (max(shift, other), min(shift, other))
            ]

        def excess(z: np.ndarray, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            toward, away = shift * z, -other * z
            loss = np.logaddexp(spread, toward) - np.logaddexp(spread, away)
            slope = shift * special.expit(toward - spread) + other * special.expit(away - spread)
            return loss - epsilon[places], slope

        low, high = narrowed(excess, *ends)
        return low + middle, high + middle

    def widest_loss(self, shift: float) -> float:
        """The library leaves out noise beyond about ten standard deviations."""
        return shift * shift / 2 + 10 * shift

    def rounded(self, ideal: float, more: float, numbers: int) -> float:
        return rounding.gaussian((math.sqrt(2 * ideal) + more) ** 2 / 2, numbers)

    def lattice(self, value: Any, scale: float, key: Key) -> np.ndarray:
        return lattice.noised(value, scale, lattice.discrete_gaussian, key)

    def lattice_shared(
        self,
        value: Any,
        scale: float,
        grid: float,
        key: Key,
        terms: Sequence[tuple[int, float, bytes]],
    ) -> np.ndarray:
        return shared_lattice.noised_shared(value, scale, grid, key, terms)

    @property
    def residual(self) -> Mechanism:
        return self

    @property
    def standard(self) -> Any:
        return scipy.stats.norm

    @property
    def crowding(self) -> float:
        return float(0.5 / np.sqrt(np.pi))

    def size(self, residuals: np.ndarray) -> tuple[float, float, float]:
        """The sum of their squares is a chi-squared variable."""
        total, n = float(np.sum(residuals**2)), len(residuals)
        return (
            np.sqrt(total / n),
            float(scipy.stats.chi2.cdf(total, n)),
            float(scipy.stats.chi2.sf(total, n)),
        )

    def energy(self, residual: jax.Array, white: jax.Array) -> jax.Array:
        return ((white @ residual.reshape(len(residual), -1)) ** 2).sum() / 2

    def between(self, low: jax.Array, high: jax.Array) -> jax.Array:
        import jax

        low, high = from_its_tail(low, high)
        return jax.scipy.stats.norm.cdf(high) - jax.scipy.stats.norm.cdf(low)
