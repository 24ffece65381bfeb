"""An algorithm's functions compiled for one agent: what simulation/engine.py does for all
agents at once.

The same functions of the same algorithm files, with the same batches, unless these are secret
(coins.py); a round is `prepare`, noise (privatize.py), `finish`, and, when the neighbours have been
heard, `update`. In a rehearsal (noise from a seed) `send` draws the simulator's noise, and batches
are drawn, from the simulator's keys.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hearsay.base import Algorithm, Inbox, Keys
from hearsay.deploy.coins import Secret, Seeded
from hearsay.graphs import Graph
from hearsay.problems.data.records import Records
from hearsay.problems.data.stream import Stream
from hearsay.problems.sampling.samplers import Window
from hearsay.problems.task import Task
from hearsay.simulation import engine, keys, shared
from hearsay.simulation.program import Carry, Program, program

CARRIED = "{:03d}"  # the names of the carried arrays in the ledger
_BLOCK = 256  # steps whose rates are worked out at once


class Now(NamedTuple):
    """What a step brings to this agent."""

    step: Any
    rates: Any
    window: Window
    key: Any


class Steps:
    """The rounds of agent number `agent`, one function after the other."""

    def __init__(
        self,
        algorithm: Algorithm,
        task: Task,
        records: Records | Stream,
        agent: int,
        graph: Graph,
    ) -> None:
        self.algorithm, self.task, self.agent, self.graph = algorithm, task, agent, graph
        self.dtype, self.program = task.dtype, program(algorithm, task)
        self.records = records.placed(self.dtype)
        self.batches: Secret | Seeded = Seeded(keys.sampling_keys(task.seed, task.agents)[agent])
        if algorithm.sampling.secret and isinstance(records, Records):
            self.batches = Secret(algorithm.sampling, records)
            # The record's coin moves others to other slots (privacy/float64.py).
            self.program = replace(self.program, loss=task.loss.apart)
        self._block: tuple[int, Any] = (-1, None)

    def start(self) -> Carry:
        centre = jnp.asarray(self.task.first_models[self.agent], self.dtype)
        return _start(centre, self.records, program=self.program)

    def message(self) -> tuple[type, dict[str, tuple[int, ...]]]:
        """The type of a message, and the shapes of its fields."""
        state = self.start()
        message = jax.eval_shape(
            partial(_rehearse, program=self.program),
            self.keys(0).given,
            state,
            self.records,
            self._now(0),
            self.algorithm.constants(self.dtype),
            (),
            jnp.asarray(self.agent),
        )[0]
        return type(message), {name: value.shape for name, value in message._asdict().items()}

    def arrive(self, records: Records) -> None:
        """From now on with more of them."""
        self.records = records.placed(self.dtype)

    def keys(self, seed: int) -> Keys:
        """The agent's keys in a simulation with that seed."""
        every = keys.of(self.algorithm.keys, self.graph, jnp.asarray([seed]))
        return engine.pick(every, (0, self.agent))

    def rehearsed(self, seed: int) -> None:
        """From now on with the batches of a simulation with that seed, which are not secret, and
        with its arithmetic.
        """
        self.program = program(self.algorithm, self.task)
        own = keys.sampling_keys(self.task.seed, self.task.agents)[self.agent]
        if self.algorithm.sampling.per_seed:
            own = keys.coin_keys(self.keys(seed).own)
        self.batches = Seeded(own)

    def coin(self, step: int, key: Any) -> Any:
        """The public coin of that step, where weights follow from one."""
        if type(self.algorithm).coin is Algorithm.coin:
            return None
        like = jnp.zeros(self.task.dimension, self.dtype)
        return np.asarray(_coin(key, step, like, program=self.program))

    def prepare(self, step: int, carry: Carry) -> tuple[Any, Carry]:
        """The message of that step before its noise: private."""
        return _prepare(carry, self.records, self._now(step), program=self.program)

    def finish(self, step: int, noised: Any, carry: Carry, key: Any) -> tuple[Any, Carry]:
        if type(self.algorithm).finish is Algorithm.finish:
            return noised, carry
        return _finish(key, noised, carry, self._now(step), program=self.program)

    def rehearse(
        self, step: int, carry: Carry, key: Any, constants: Any, pairs: Any = ()
    ) -> tuple[Any, Carry]:
        """The simulator's message.

        Args:
          pairs: what the noise is drawn from that the agent shares with others.
        """
        now, agent = self._now(step), jnp.asarray(self.agent)
        return _rehearse(
            key, carry, self.records, now, constants, pairs, agent, program=self.program
        )

    def pairs(self, seed: int) -> Any:
        """What the noise that the agent shares is drawn from in a simulation with that seed."""
        return shared.mine(self.algorithm, self.graph.agents, self.agent, seed, self.dtype)

    def update(self, step: int, carry: Carry, sent: Any, inbox: Inbox) -> Carry:
        return _update(carry, sent, inbox, self.records, self._now(step), program=self.program)

    def shown(self, step: int, model: Any, sent: Any, inbox: Inbox) -> np.ndarray:
        """The model that the agent's messages show after that step: no state enters."""
        if not self.algorithm.remembers:
            return np.asarray(sent.params)
        rates = self._now(step).rates
        return np.asarray(_shown(model, sent, inbox, rates, program=self.program))

    def predict(self, carry: Carry) -> np.ndarray:
        return np.asarray(
            carry.readout if self.algorithm.average else self.algorithm.predict(carry.states)
        )

    def _now(self, step: int) -> Now:
        first = step - step % _BLOCK
        if self._block[0] != first:
            steps = np.arange(first, first + _BLOCK)
            steps = steps[steps < self.algorithm.rounds]
            found = engine.inputs(self.algorithm, self.task, steps)
            mine = jax.tree.map(lambda r: np.ascontiguousarray(r[:, self.agent]), found.rates)
            self._block = first, found._replace(rates=mine)
        now = engine.pick(self._block[1], step - first)
        start, size, blocks = now.windows
        window = Window(start[self.agent], size[self.agent], blocks)
        return Now(now.steps, now.rates, window, self.batches.at(step))


def _batch(program: Program, carry: Carry, records: Any, now: Now) -> tuple[Any, Any]:
    start, size, blocks = now.window
    return program.batch(now.step, blocks, carry.sampler, records, start, size, now.key)


@partial(jax.jit, static_argnames="program")
@engine.full_precision
def _start(centre: jax.Array, records: Any, *, program: Program) -> Carry:
    state, model = program.start(centre)
    return Carry(state, model if program.algorithm.average else (), program.sampler(records))


@partial(jax.jit, static_argnames="program")
@engine.full_precision
def _prepare(carry: Carry, records: Any, now: Now, *, program: Program) -> tuple[Any, Carry]:
    batch, _ = _batch(program, carry, records, now)
    fields, state = program.algorithm.prepare(carry.states, batch, now.rates)
    return fields, carry._replace(states=state)


@partial(jax.jit, static_argnames="program")
@engine.full_precision
def _shown(model: Any, sent: Any, inbox: Inbox, rates: Any, *, program: Program) -> jax.Array:
    return program.algorithm.shown(model, sent, inbox, rates, program.domain)


@partial(jax.jit, static_argnames="program")
def _coin(key: Any, step: Any, like: jax.Array, *, program: Program) -> Any:
    return program.algorithm.coin(program.algorithm.draw(keys.at(key, step), like))


@partial(jax.jit, static_argnames="program")
def _finish(
    key: Any, noised: Any, carry: Carry, now: Now, *, program: Program
) -> tuple[Any, Carry]:
    algorithm = program.algorithm
    # Only what `finish` uses of the draws is computed: their noise is not.
    draws = algorithm.draw(keys.at(key, now.step), algorithm.predict(carry.states))
    message, state = algorithm.finish(noised, draws, carry.states)
    return message, carry._replace(states=state)


@partial(jax.jit, static_argnames="program")
@engine.full_precision
def _rehearse(
    key: Any,
    carry: Carry,
    records: Any,
    now: Now,
    constants: Any,
    pairs: Any,
    agent: jax.Array,
    *,
    program: Program,
) -> tuple[Any, Carry]:
    algorithm, like = program.algorithm, program.algorithm.predict(carry.states)
    steps = jnp.asarray(now.step)[None]
    own = algorithm.draws(key, steps, like, constants)
    draws = engine.pick(shared.of_agent(algorithm, own, pairs, agent, steps, like, constants), 0)
    batch, _ = _batch(program, carry, records, now)
    message, state = algorithm.send(draws, carry.states, batch, now.rates)
    return message, carry._replace(states=state)


@partial(jax.jit, static_argnames="program")
@engine.full_precision
def _update(
    carry: Carry, sent: Any, inbox: Inbox, records: Any, now: Now, *, program: Program
) -> Carry:
    algorithm = program.algorithm
    batch, sampler = _batch(program, carry, records, now)
    state = algorithm.update(carry.states, sent, inbox, batch, now.rates, program.domain)
    average = algorithm.average
    readout = program.averaged(carry.readout, state, jnp.asarray(now.step)) if average else ()
    return Carry(state, readout, sampler)
