"""A network that moves on, round by round: the engine with its program, arrays and carry in hand.

`simulate` measures one (session.py), regret and eavesdroppers watch one through a tap.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import numpy as np

from hearsay.base import Algorithm
from hearsay.graphs import Graph
from hearsay.problems.problem import Problem
from hearsay.release.readouts import ReadOut, begin
from hearsay.simulation import engine, sharded
from hearsay.simulation.delivery import delivery, planned
from hearsay.simulation.faults import Faults
from hearsay.simulation.layout import Layout
from hearsay.simulation.program import Carry, program


class Rounds:
    """All agents, for several seeds side by side.

    Args:
      seeds: of the noise; the data stream is the same for all.
      spread: standard deviation of the agents' random start.
      readouts: averages of messages to carry along; dropped where messages show no model.
      apart: noise that agents share is drawn pair by pair, as deployed agents do.
      faults: what goes wrong on the network; None: nothing.
      layout: which device has which agents; None: one device has all. Not with faults.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        problem: Problem,
        graph: Graph,
        seeds: Sequence[int],
        spread: float = 0.0,
        readouts: Sequence[ReadOut] = (),
        apart: bool = False,
        faults: Faults | None = None,
        layout: Layout | None = None,
    ) -> None:
        self.algorithm, self.seeds, self.step = algorithm, list(seeds), 0
        self.layout = layout
        self.readouts = tuple(readouts) if algorithm.shows else ()
        self.on(problem)
        self.faults = faults
        if layout is None:
            self.setting = engine.surroundings(algorithm, problem, graph, self.seeds, apart=apart)
            carry = engine.start(self.program, problem, self.setting, self.seeds, spread)
        else:
            assert faults is None, "faults are on one device"
            self.setting = sharded.surroundings(algorithm, problem, graph, self.seeds, layout)
            carry = sharded.start(self.program, problem, self.setting, self.seeds, spread, layout)
        memory = carry.memory
        if faults is not None:
            failing = delivery(faults, algorithm, problem, graph)
            memory = failing.begin(self._message(carry), len(self.seeds))
            self.setting = self.setting._replace(faults=failing)
        # Of who is away the last message stands for what it would show.
        remember = algorithm.remembers or (faults is not None and faults.absences)
        kept = begin(self.readouts, carry.readout, remember)
        self.carry = carry._replace(kept=kept, memory=memory)

    def _message(self, carry: Carry) -> Any:
        """One agent's message, by shape and type."""
        inputs = engine.inputs(self.algorithm, self.problem, np.arange(1))
        one = partial(engine.trajectory, self.program, block=1, tap=_sent)
        seen = jax.eval_shape(one, carry, self.setting, inputs)[1]
        return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[3:], x.dtype), seen)

    def on(self, problem: Problem) -> None:
        """Go on with that problem: the same records, computed in smaller parts."""
        self.problem, self.program = problem, program(self.algorithm, problem)

    @property
    def models(self) -> jax.Array:
        """(seed, agent, d); with a layout, a row for every row of its blocks."""
        return self.carry.readout

    def gathered(self, array: jax.Array, axis: int) -> np.ndarray:
        """An array of the carry as one of the host's, with the agents in order along that axis."""
        return np.asarray(array) if self.layout is None else self.layout.gathered(array, axis)

    @property
    def whole(self) -> Carry:
        """The carry with the agents in the order of their numbers, whatever the layout."""
        return self.carry if self.layout is None else self.layout.in_order(self.carry)

    @property
    def shapes(self) -> Carry:
        """Of `whole`."""
        return self.carry if self.layout is None else self.layout.like(self.carry)

    def go_on_from(self, whole: Carry, step: int) -> None:
        """Continue with what `whole` was after so many rounds, on whatever devices it was."""
        self.carry = whole if self.layout is None else self.layout.out_again(whole)
        self.step = step

    def advance(self, count: int, tap: engine.Tap | None = None) -> Any:
        """Run so many more rounds; what the tap saw in them, (round, seed, ...)."""
        problem, seen = self.problem, None
        steps = np.arange(self.step, self.step + count)
        shared = len(self.setting.columns) > 0
        inputs = engine.inputs(self.algorithm, problem, steps, self.readouts, shared_columns=shared)
        if self.faults is not None and self.faults.plan is not None:
            links = len(self.setting.faults.hearer)
            inputs = inputs._replace(planned=planned(self.faults.plan, steps, links))
        here = problem.agents if self.layout is None else self.layout.blocks.width
        block = engine.block_length(
            count, len(self.seeds), here, problem.dimension, problem.dtype.itemsize
        )
        if self.layout is not None:
            assert tap is None, "what a tap sees is not gathered from several devices"
            self.carry = sharded.advance(
                self.carry,
                self.setting,
                sharded.inputs(inputs, self.layout),
                program=self.program,
                block=block,
                mesh=self.layout.mesh,
            )
        elif tap is None:
            self.carry = engine.advance(
                self.carry, self.setting, inputs, program=self.program, block=block
            )
        else:
            self.carry, seen = engine.observe(
                self.carry, self.setting, inputs, program=self.program, block=block, tap=tap
            )
        self.step += count
        return seen


def _sent(round: engine.Round) -> Any:
    return round.sent
