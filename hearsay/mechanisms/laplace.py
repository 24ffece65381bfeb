"""Laplace noise: density exp(-|z| / b) / 2b in every coordinate, variance 2 b^2.

One random word gives one sample: its lowest bit the sign, its high bits the magnitude -log(u), u in
(0, 1). The sample is finite and never exactly 0.

These are floating-point samples of an idealised distribution. They are right for simulation; a
deployment needs noise on a lattice, because the low bits of a floating-point sum can betray the
value (Mironov 2012).

A message costs pure epsilon, its l1 shift over b, and costs add up. At a delta > 0 many messages
cost less than that sum (mechanisms/convert.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy

from hearsay.mechanisms import convert, lattice, rounding
from hearsay.mechanisms.mechanism import Mechanism, from_its_tail

if TYPE_CHECKING:
    import jax

    from hearsay.mechanisms.lattice import Key


@dataclass(frozen=True)
class Laplace(Mechanism):
    """Noise of pure epsilon."""

    name = "laplace"
    composes = amplifies = True

    def draw(self, key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
        """Standard Laplace samples (b = 1)."""
        import jax.numpy as jnp

        from hearsay.mechanisms.words import signed_uniform

        sign, uniform = signed_uniform(key, shape, dtype)
        magnitude = -jnp.log(uniform)
        return jnp.where(sign, magnitude, -magnitude)

    def composed(self, each: np.ndarray, delta: float, numbers: int | None = None) -> float | None:
        if numbers is None:
            return convert.laplace_epsilon(each, delta)
        return rounding.laplace_epsilon(each, delta, numbers)

    def factor(self, number: float, epsilon: float, delta: float | None) -> float:
        """Pure epsilon is proportional to 1 / scale."""
        return float(number / epsilon * (1 + 1e-12))

    def sampled_loss(self, shift: float, rate: float, cell: float) -> Any:
        from dp_accounting.pld import privacy_loss_distribution as pld

        return pld.from_laplace_mechanism(
            1 / shift, value_discretization_interval=cell, sampling_prob=rate
        )

    def opposed_point(
        self, shift: float, other: float, rate: float, epsilon: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """(1 - q) + q e^(2 t - s) = e^epsilon (1 - q + q e^-s') where 0 <= t <= s, and (1 - q) + q
        e^-s = e^epsilon (1 - q + q e^(-2 t - s')) where -s' <= t <= 0.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            excess = epsilon + np.log(-np.expm1(-epsilon)) + np.log1p(-rate) - np.log(rate)
            t = np.minimum((shift + np.logaddexp(epsilon - other, excess)) / 2, shift)
            # log(e^-s - e^excess), of a positive number where t is below 0.
            before = np.log1p(-np.exp(np.minimum(excess + shift, 0.0))) - shift
            t = np.where(t < 0, np.maximum((epsilon - before - other) / 2, -other), t)
        return t, t

    def rounded(self, ideal: float, more: float, numbers: int) -> float:
        return rounding.laplace(ideal + more, numbers)

    def lattice(self, value: Any, scale: float, key: Key) -> np.ndarray:
        return lattice.noised(value, scale, lattice.discrete_laplace, key)

    @property
    def residual(self) -> Mechanism:
        return self

    @property
    def standard(self) -> Any:
        return scipy.stats.laplace

    @property
    def crowding(self) -> float:
        return 0.25

    def size(self, residuals: np.ndarray) -> tuple[float, float, float]:
        """Sizes are exponential, so their sum is a gamma variable."""
        total, n = float(np.sum(np.abs(residuals))), len(residuals)
        return (
            total / n,
            float(scipy.stats.gamma.cdf(total, n)),
            float(scipy.stats.gamma.sf(total, n)),
        )

    def between(self, low: jax.Array, high: jax.Array) -> jax.Array:
        import jax.numpy as jnp

        low, high = from_its_tail(low, high)
        below = lambda x: jnp.where(  # noqa: E731
            x < 0, 0.5 * jnp.exp(jnp.minimum(x, 0.0)), 1 - 0.5 * jnp.exp(-jnp.maximum(x, 0.0))
        )
        return below(high) - below(low)
