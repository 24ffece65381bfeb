"""An algorithm's functions compiled for one agent: what simulation/engine.py does for all
agents at once.

The same functions of the same algorithm files, with the same batches; a round is `prepare`, noise
(privatize.py), `finish`, and, when the neighbours have been heard, `update`. In a rehearsal (noise
from a seed) `send` draws the simulator's noise from the simulator's keys.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hearsay.base import Algorithm, Inbox
from hearsay.problems.data.records import Records
from hearsay.problems.data.stream import Stream
from hearsay.problems.sampling.samplers import Window
from hearsay.problems.task import Task
from hearsay.simulation import engine, keys

_BLOCK = 256  # steps whose rates are worked out at once
_STATIC = ("algorithm", "loss", "domain", "arrivals")


class Carry(NamedTuple):
    """What an agent carries from round to round;
    a read-out only where it is an average of past models.
    """

    state: Any
    readout: Any
    sampler: Any


class Steps:
    """The rounds of agent number `agent`, one function after the other."""

    def __init__(
        self, algorithm: Algorithm, task: Task, records: Records | Stream, agent: int
    ) -> None:
        self.algorithm, self.task, self.agent, self.dtype = algorithm, task, agent, task.dtype
        self.static = {
            "algorithm": algorithm.kernel,
            "loss": task.loss,
            "domain": task.domain,
            "arrivals": task.arrivals,
        }
        self.records = records.placed(self.dtype)
        self.sampling_key = keys.sampling_keys(task.seed, task.agents)[agent]
        self.centre = jnp.asarray(task.first_models[agent], self.dtype)
        self._rates: tuple[int, Any, Any] = (-1, None, None)

    def start(self) -> Carry:
        return _start(self.centre, self.records, **self.static)

    def message(self) -> tuple[type, dict[str, tuple[int, ...]]]:
        """The type of a message, and the shapes of its fields."""
        state = self.start()
        message = jax.eval_shape(
            partial(_rehearse, constants=self.algorithm.constants(self.dtype), **self.static),
            keys.noise_keys(jnp.asarray([0]), 1)[0, 0], state, self.records, self._now(0),
        )[0]  # fmt: skip
        return type(message), {name: value.shape for name, value in message._asdict().items()}

    def prepare(self, step: int, carry: Carry) -> tuple[Any, Carry]:
        """The message of that step before its noise: private."""
        return _prepare(carry, self.records, self._now(step), **self.static)

    def finish(self, step: int, noised: Any, carry: Carry, key: jax.Array) -> tuple[Any, Carry]:
        if type(self.algorithm).finish is Algorithm.finish:
            return noised, carry
        return _finish(key, noised, carry, self._now(step), **self.static)

    def rehearse(
        self, step: int, carry: Carry, key: jax.Array, constants: Any
    ) -> tuple[Any, Carry]:
        """The simulator's message."""
        return _rehearse(
            key, carry, self.records, self._now(step), constants=constants, **self.static
        )

    def update(self, step: int, carry: Carry, sent: Any, inbox: Inbox) -> Carry:
        return _update(carry, sent, inbox, self.records, self._now(step), **self.static)

    def predict(self, carry: Carry) -> np.ndarray:
        return np.asarray(
            carry.readout if self.algorithm.average else self.algorithm.predict(carry.state)
        )

    def _now(self, step: int) -> tuple:
        """(step, rates, window, sampling key) of this agent."""
        first = step - step % _BLOCK
        if self._rates[0] != first:
            steps = np.arange(first, first + _BLOCK)
            steps = steps[steps < self.algorithm.rounds]
            rates = jax.tree.map(
                lambda r: np.ascontiguousarray(r[:, self.agent], self.dtype),
                self.algorithm.rates(steps, self.task.agents),
            )
            windows = self.algorithm.sampling.windows(steps, self.task.counts, self.task.arrivals)
            self._rates = first, rates, windows
        _, rates, windows = self._rates
        row = step - first
        window = Window(
            windows.start[row, self.agent], windows.size[row, self.agent], windows.blocks[row]
        )
        return np.int32(step), engine.pick(rates, row), window, self.sampling_key


def flatten(carry: Carry) -> dict[str, np.ndarray]:
    """The carried arrays by number, for the ledger."""
    return {f"{index:03d}": np.asarray(leaf) for index, leaf in enumerate(jax.tree.leaves(carry))}


def unflatten(arrays: dict[str, np.ndarray], like: Carry) -> Carry:
    leaves, structure = jax.tree.flatten(like)
    found = [arrays[f"{index:03d}"] for index in range(len(leaves))]
    for stored, leaf in zip(found, leaves, strict=True):
        if stored.shape != leaf.shape or stored.dtype != leaf.dtype:
            raise ValueError(
                "the ledger's state has another shape than this run's: it belongs to another"
                " version"
            )
    return jax.tree.unflatten(structure, [jnp.asarray(leaf) for leaf in found])


def _batch(static: dict[str, Any], carry: Carry, records: Any, now: tuple) -> tuple[Any, Any]:
    step, _, window, key = now
    return engine.form_batch(
        static["algorithm"], static["loss"], static["arrivals"], step, window.blocks,
        carry.sampler, records, window.start, window.size, key,
    )  # fmt: skip


@partial(jax.jit, static_argnames=_STATIC)
@engine.full_precision
def _start(centre: jax.Array, records: Any, **static: Any) -> Carry:
    algorithm, model = static["algorithm"], static["domain"].project(centre)
    sampler = algorithm.sampling.prepare(static["loss"], records, static["arrivals"])
    return Carry(algorithm.init(model), model if algorithm.average else (), sampler)


@partial(jax.jit, static_argnames=_STATIC)
@engine.full_precision
def _prepare(carry: Carry, records: Any, now: tuple, **static: Any) -> tuple[Any, Carry]:
    batch, _ = _batch(static, carry, records, now)
    fields, state = static["algorithm"].prepare(carry.state, batch, now[1])
    return fields, carry._replace(state=state)


@partial(jax.jit, static_argnames=_STATIC)
def _finish(
    key: jax.Array, noised: Any, carry: Carry, now: tuple, **static: Any
) -> tuple[Any, Carry]:
    algorithm = static["algorithm"]
    # Only what `finish` uses of the draws is computed: their noise is not.
    draws = algorithm.draw(keys.at(key, now[0]), algorithm.predict(carry.state))
    message, state = algorithm.finish(noised, draws, carry.state)
    return message, carry._replace(state=state)


@partial(jax.jit, static_argnames=_STATIC)
@engine.full_precision
def _rehearse(
    key: jax.Array, carry: Carry, records: Any, now: tuple, *, constants: Any, **static: Any
) -> tuple[Any, Carry]:
    algorithm = static["algorithm"]
    draws = engine.pick(
        algorithm.draws(key, jnp.asarray(now[0])[None], algorithm.predict(carry.state), constants),
        0,
    )
    batch, _ = _batch(static, carry, records, now)
    message, state = algorithm.send(draws, carry.state, batch, now[1])
    return message, carry._replace(state=state)


@partial(jax.jit, static_argnames=_STATIC)
@engine.full_precision
def _update(
    carry: Carry, sent: Any, inbox: Inbox, records: Any, now: tuple, **static: Any
) -> Carry:
    algorithm = static["algorithm"]
    batch, sampler = _batch(static, carry, records, now)
    state = algorithm.update(carry.state, sent, inbox, batch, now[1], static["domain"])
    readout = (
        algorithm.averaged(carry.readout, state, jnp.asarray(now[0])) if algorithm.average else ()
    )
    return Carry(state, readout, sampler)
