"""What is compiled, and what is carried from round to round: the same for a simulated network and
for a deployed agent.

A `Program` is an algorithm without its schedules, a loss, a domain and the way in which records
arrive. It is hashable: one static argument of every compiled function, so that runs which differ
in nothing else (seeds, schedules, data of the same shape) share their compiled code. Its methods
are the parts of ONE agent's round that need more than the algorithm; simulation/engine.py adds the
axes of agents and seeds, deploy/steps.py calls them as they are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hearsay.base import Algorithm, noise_rates, schedule_fields
from hearsay.problems.losses.domains import Domain
from hearsay.problems.losses.loss import Loss
from hearsay.problems.sampling.samplers import Arrivals, Coins, Window
from hearsay.problems.task import Task
from hearsay.schedules import Constant
from hearsay.simulation import keys


class Carry(NamedTuple):
    """What goes from round to round, and into a checkpoint or a ledger.

    Leading axes: (seed, agent) for states and read-out and (agent,) for the sampler in a
    simulation; none for a deployed agent, which keeps a read-out only where it is an average.
    `kept` is what a simulation carries of averages of messages (release/readouts.py), () where
    nobody asked for any; a deployed agent has those beside its carry, which is private. `memory` is
    what a network that fails remembers (delivery.py), () where nothing goes wrong.
    """

    states: Any
    readout: Any
    sampler: Any
    kept: Any = ()
    memory: Any = ()


@dataclass(frozen=True)
class Program:
    """What a function is compiled for; made by `program`."""

    algorithm: Algorithm
    loss: Loss
    domain: Domain
    arrivals: Arrivals

    def start(self, point: jax.Array) -> tuple[Any, jax.Array]:
        """(state, model) of an agent that begins there: the one rule by which agents start."""
        model = self.domain.project(point)
        return self.algorithm.init(model), model

    def sampler(self, records: Any) -> Any:
        """The sampler's state before the first step, for one agent's records."""
        return self.algorithm.sampling.prepare(self.loss, records, self.arrivals)

    def batch(
        self,
        step: jax.Array,
        blocks: jax.Array,
        sampler: Any,
        records: Any,
        start: jax.Array,
        size: jax.Array,
        key: jax.Array | Coins,
    ) -> tuple[Any, Any]:
        """(one agent's batch of that step, the sampler's next state)."""
        window = Window(start, size, blocks)
        # Coins are those of one step; a key serves all.
        own = key if isinstance(key, Coins) else keys.at(key, step)
        return self.algorithm.sampling.batch(
            sampler, self.loss, records, step, window, self.arrivals, own
        )

    def averaged(self, average: jax.Array, state: Any, step: jax.Array) -> jax.Array:
        return averaged(self.algorithm, average, state, step)


def program(algorithm: Algorithm, problem: Task) -> Program:
    """What is compiled for that algorithm on that problem."""
    return Program(kernel(algorithm), problem.loss, problem.domain, problem.arrivals)


def kernel(algorithm: Algorithm) -> Algorithm:
    """The same algorithm with its schedules blanked out: what is compiled. `prepare` and `update`
    see schedules through `rates` only, so runs that differ in nothing but schedules (a sweep,
    calibrated noise) share one compiled program. What agents share is in the arrays of a run.
    """
    blank: dict[str, Any] = {name: Constant(0.0) for name in schedule_fields(type(algorithm))}
    return replace(algorithm, sampling=algorithm.sampling.kernel, secrets=None, **blank)


def held_rates(
    algorithm: Algorithm, steps: np.ndarray, agents: int, dtype: Any, *, once: bool = False
) -> Any:
    """The algorithm's rates as the run's precision holds them.

    Noise that compiled programs would flush to 0 is raised to what they keep:
    never less than a certificate counts.

    Args:
      once: a single column where a rate is one schedule for all agents.
    """
    rates, least = algorithm.rates(steps, agents), float(np.finfo(dtype).tiny) * 2.0**24
    noises = noise_rates(type(algorithm), rates)

    def held(name: str, law: np.ndarray) -> np.ndarray:
        # What is one schedule for all has been spread without a copy.
        law = law[:, :1] if once and not law.strides[1] else law
        raised = np.where(law > 0, np.maximum(law, least), law) if name in noises else law
        return np.ascontiguousarray(raised, dtype)

    return type(rates)(**{name: held(name, law) for name, law in rates._asdict().items()})


def averaged(algorithm: Algorithm, average: jax.Array, state: Any, step: jax.Array) -> jax.Array:
    """The running read-out, weighted in proportion to the step so that early models
    fade (Polyak averaging).
    """
    share = 2.0 / (step + 2.0)
    return average + share.astype(average.dtype) * (algorithm.predict(state) - average)


def flatten(carry: Carry, name: str) -> dict[str, np.ndarray]:
    """The carried arrays by number, for a file that calls number i `name.format(i)`."""
    leaves = jax.tree.leaves(carry)
    return {name.format(number): np.asarray(leaf) for number, leaf in enumerate(leaves)}


def unflatten(stored: dict[str, np.ndarray], like: Carry, name: str, file: str) -> Carry:
    """What `flatten` took apart; arrays of another shape or type than this run's are refused."""
    leaves, structure = jax.tree.flatten(like)
    found = [stored.get(name.format(number)) for number in range(len(leaves))]
    for array, leaf in zip(found, leaves, strict=True):
        if array is None or array.shape != leaf.shape or array.dtype != leaf.dtype:
            raise ValueError(
                f"the {file}'s state has another shape than this run's: it belongs to another"
                " version"
            )
    return jax.tree.unflatten(
        structure, [_as(a, leaf) for a, leaf in zip(found, leaves, strict=True)]
    )


def _as(array: Any, like: Any) -> Any:
    """On the device, unless only its shape is known there (layout.py)."""
    return array if isinstance(like, jax.ShapeDtypeStruct) else jnp.asarray(array)
