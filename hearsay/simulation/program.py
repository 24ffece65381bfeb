"""An algorithm as a run uses it: its schedules as numbers in the run's precision, and apart from
them what is compiled.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import numpy as np

from hearsay.base import Algorithm, noise_rates, schedule_fields
from hearsay.schedules import Constant


def kernel(algorithm: Algorithm) -> Algorithm:
    """The same algorithm with its schedules blanked out: what is compiled. `prepare` and `update`
    see schedules through `rates` only, so runs that differ in nothing but schedules (a sweep,
    calibrated noise) share one compiled program.
    """
    blank: dict[str, Any] = {name: Constant(0.0) for name in schedule_fields(type(algorithm))}
    return replace(algorithm, sampling=algorithm.sampling.kernel, **blank)


def held_rates(algorithm: Algorithm, steps: np.ndarray, agents: int, dtype: Any) -> Any:
    """The algorithm's rates as the run's precision holds them.

    Noise that compiled programs would flush to 0 is raised to what they keep:
    never less than a certificate counts.
    """
    rates, least = algorithm.rates(steps, agents), float(np.finfo(dtype).tiny) * 2.0**24
    noises = noise_rates(type(algorithm), rates)

    def held(name: str, law: np.ndarray) -> np.ndarray:
        raised = np.where(law > 0, np.maximum(law, least), law) if name in noises else law
        return np.ascontiguousarray(raised, dtype)

    return type(rates)(**{name: held(name, law) for name, law in rates._asdict().items()})


def averaged(algorithm: Algorithm, average: jax.Array, state: Any, step: jax.Array) -> jax.Array:
    """The running read-out of one agent, weighted in proportion to the step so that early models
    fade (Polyak averaging).
    """
    share = 2.0 / (step + 2.0)
    return average + share.astype(average.dtype) * (algorithm.predict(state) - average)
