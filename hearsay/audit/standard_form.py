"""Noise of any mechanism as independent numbers of one law: what residuals.py takes out of
messages, in the form that noise_tests.py tests.

added to values         (sent - value) / scale: standard Laplace or normal
correlated over rounds  the declared factorization D makes the noise D xi; the inverse Cholesky
                        factor of D D' makes it independent again (messages.whitener)
rounded to a grid       a message says in which cell the noise fell. A point is drawn from the
                        claimed law within the cell: the result has that law exactly if the
                        noise has it
ternary                 the same with the three values' chances |v| / r and 1 - |v| / r, as standard
                        normal numbers; besides, the number of values that are not 0 is tested
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from hearsay.algorithms import QuantizedDsgd
from hearsay.audit import noise_tests
from hearsay.audit.messages import whitener
from hearsay.audit.noise_tests import Test
from hearsay.base import Algorithm
from hearsay.mechanisms import Mechanism


class Field(NamedTuple):
    """What one message field was and should have been, each (run, round, agent, coordinate).

    coin: which way it was rounded, or None.
    """

    sent: np.ndarray
    value: np.ndarray
    scale: np.ndarray
    coin: np.ndarray | None


def standard(claimed: Algorithm, field: Field, seed: int = 0) -> np.ndarray:
    """Residuals as independent numbers of one law, NaN where there is no noise."""
    loud = field.scale != 0
    with np.errstate(invalid="ignore", divide="ignore"):
        if not claimed.law.adds_noise:
            low, chance = claimed.law.levels(field.sent, field.value, field.scale)
            return np.where(loud, _within(claimed.law, low, low + chance, seed), np.nan)
        if isinstance(claimed, QuantizedDsgd):
            assert field.coin is not None
            edge = field.sent - claimed.resolution * field.coin - field.value
            low, high = (
                claimed.law.standard.cdf((edge + w) / field.scale)
                for w in (0.0, claimed.resolution)
            )
            return np.where(loud, _within(claimed.law, low, high, seed), np.nan)
        x = np.where(loud, (field.sent - field.value) / field.scale, np.nan)
    if claimed.factors is None:
        return x
    # What carries no noise (the first message, where noise comes with the next one) counts as 0 in
    # what the others are made of.
    white = np.einsum("st,rtad->rsad", whitener(claimed, x.shape[1]), np.where(loud, x, 0.0))
    return np.where(loud, white, np.nan)


def _within(law: Mechanism, low: np.ndarray, high: np.ndarray, seed: int) -> np.ndarray:
    """A value of the law between those levels: of that law again, and independent,
    if the levels are those of the cell in which such a value fell.
    """
    place = np.random.default_rng([seed, *b"cells"]).random(low.shape)
    return law.standard.ppf(np.clip(low + place * (high - low), 1e-300, 1 - 1e-16))


def ternary_tests(name: str, field: Field, law: Mechanism) -> list[Test]:
    loud = field.scale != 0
    _, chance = law.levels(field.sent, field.value, np.where(loud, field.scale, 1.0))
    odd = (field.sent != 0) & ~np.isclose(np.abs(field.sent), field.scale, rtol=1e-5)
    found = [_support(name, loud & (odd | (chance <= 0)), loud)]
    share = np.minimum(np.abs(field.value / np.where(loud, field.scale, np.inf)), 1.0)
    hits = np.where(loud, (field.sent != 0).astype(float), np.nan)
    chances = dict(noise_tests.groups(name, np.where(loud, share, np.nan)))
    for where, part in noise_tests.groups(name, hits):
        found += noise_tests.rate(where, part, chances[where])
    return found


def grid_tests(name: str, field: Field, claimed: Algorithm) -> list[Test]:
    if not isinstance(claimed, QuantizedDsgd):
        return []
    places = field.sent / claimed.resolution
    return [
        _support(
            name, np.abs(places - np.round(places)) > 1e-6 * (1 + np.abs(places)), field.scale != 0
        )
    ]


def _support(name: str, wrong: np.ndarray, loud: np.ndarray) -> Test:
    count = int(np.sum(wrong & loud))
    return Test(
        "support",
        name,
        int(loud.sum()),
        float(count == 0),
        f"{count:,} values that cannot have been sent",
    )


def rounding(field: Field, claimed: Algorithm, dtype: Any) -> float:
    """How far apart two residuals of one draw may come to lie.

    Numbers on a grid were given their place in the cell by the auditor: no two are equal.
    """
    if isinstance(claimed, QuantizedDsgd):
        return 0.0
    loud = field.scale != 0
    size = (np.abs(field.sent) + np.abs(field.value))[loud] / field.scale[loud]
    return float(64 * jnp.finfo(dtype).eps * (1 + size.max()))
