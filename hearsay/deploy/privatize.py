"""Where a deployed agent's noise comes from.

`Lattice` is the real thing: the algorithm's `prepare` gives the values that must not leave and the
scales of their noise; each is rounded to a grid and noised in whole numbers, from the operating
system's random numbers (mechanisms/lattice.py, mechanisms/factorized/lattice.py). No seed of
anybody's enters. A value whose scale is 0 is public by the algorithm's own account (the common
starting point, coordinates that are not sent) and goes as it is.

`Rehearsal` draws the simulator's noise from the simulator's keys, so that a deployed run can be
held against a simulated one. Anybody who knows the seed can subtract the noise: it protects nobody,
and says so.
"""

from __future__ import annotations

import os
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hearsay.base import Private
from hearsay.deploy.steps import Carry, Steps
from hearsay.mechanisms import lattice
from hearsay.mechanisms.factorized.lattice import FactorizedNoise
from hearsay.simulation import keys

REHEARSAL = (
    "NOT PRIVATE: noise from seed {seed} can be subtracted by anybody who knows it. Use"
    " --simulate-noise for tests only, never with real records."
)


class Lattice:
    """`secrets`, round by round, bring correlated noise back after a restart, because later rounds
    take it back; independent noise is never drawn twice.
    """

    private = True

    def __init__(self, steps: Steps, secrets: dict[int, bytes]) -> None:
        self._steps, self._key, self._secrets = steps, lattice.Key.fresh(), secrets
        algorithm = steps.algorithm
        # For what is random and not secret (who sleeps, which coordinates travel): two words for
        # jax's generator.
        self._public = jax.random.wrap_key_data(
            jnp.asarray(np.frombuffer(os.urandom(8), np.uint32)), impl="threefry2x32"
        )
        self._correlated: FactorizedNoise | None = None
        if algorithm.factors is not None:
            scale = float(algorithm.noise_for(steps.agent)(0))
            if scale > 0:
                self._correlated = FactorizedNoise(
                    algorithm.factors, self._draw, scale, steps.problem.dimension
                )

    def message(self, step: int, carry: Carry) -> tuple[Any, Carry]:
        """(what may leave, the state after it)."""
        fields, carry = self._steps.prepare(step, carry)
        noised = type(fields)(
            *(jnp.asarray(self._noised(step, field), self._steps.dtype) for field in fields)
        )
        return self._steps.finish(step, noised, carry, self._public)

    def secret(self, step: int) -> bytes:
        """What the ledger must keep with that round's message."""
        return self._secrets.get(step, b"")

    def _draw(self, step: int) -> bytes:
        return self._secrets.setdefault(step, os.urandom(32))

    def _noised(self, step: int, field: Private) -> np.ndarray:
        value = np.asarray(field.value, np.float64)
        if self._correlated is not None:
            return self._correlated.privatize(value, step)
        # A scale that was rounded to the run's precision may be a hair below the certified one.
        margin = 1 + 8 * float(jnp.finfo(self._steps.dtype).eps)
        scale, law = np.asarray(field.scale, np.float64) * margin, self._steps.algorithm.law
        if not np.all(scale >= 0):
            raise ValueError("the scale of the noise must be zero or positive")
        if scale.ndim == 0:
            return law.lattice(value, float(scale), self._key) if scale > 0 else value
        out = value.copy()
        for size in np.unique(scale[scale > 0]):
            here = scale == size
            out[here] = law.lattice(value[here], float(size), self._key)
        return out


class Rehearsal:
    """The noise of `simulate` with that seed."""

    private = False

    def __init__(self, steps: Steps, seed: int) -> None:
        self._steps = steps
        self._key = keys.noise_keys(jnp.asarray([seed]), steps.problem.agents)[0, steps.agent]
        self._constants = steps.algorithm.constants(steps.dtype)

    def secret(self, step: int) -> bytes:
        return b""

    def message(self, step: int, carry: Carry) -> tuple[Any, Carry]:
        return self._steps.rehearse(step, carry, self._key, self._constants)
