"""A network that moves on, round by round: the engine with its program, arrays and carry in hand.

`simulate` measures one (session.py), regret and eavesdroppers watch one through a tap.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from hearsay.base import Algorithm
from hearsay.graphs import Graph
from hearsay.problems.problem import Problem
from hearsay.release.readouts import ReadOut, begin
from hearsay.simulation import engine
from hearsay.simulation.program import program


class Rounds:
    """All agents, for several seeds side by side.

    Args:
      seeds: of the noise; the data stream is the same for all.
      spread: standard deviation of the agents' random start.
      readouts: averages of messages to carry along; dropped where messages show no model.
      apart: noise that agents share is drawn pair by pair, as deployed agents do.
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
    ) -> None:
        self.algorithm, self.seeds, self.step = algorithm, list(seeds), 0
        self.readouts = tuple(readouts) if algorithm.shows else ()
        self.on(problem)
        self.setting = engine.surroundings(algorithm, problem, graph, self.seeds, apart=apart)
        carry = engine.start(self.program, problem, self.setting, self.seeds, spread)
        self.carry = carry._replace(kept=begin(self.readouts, carry.readout, algorithm.remembers))

    def on(self, problem: Problem) -> None:
        """Go on with that problem: the same records, computed in smaller parts."""
        self.problem, self.program = problem, program(self.algorithm, problem)

    @property
    def models(self) -> jax.Array:
        """(seed, agent, d)."""
        return self.carry.readout

    def advance(self, count: int, tap: engine.Tap | None = None) -> Any:
        """Run so many more rounds; what the tap saw in them, (round, seed, ...)."""
        problem, seen = self.problem, None
        steps = np.arange(self.step, self.step + count)
        shared = len(self.setting.columns) > 0
        inputs = engine.inputs(self.algorithm, problem, steps, self.readouts, shared_columns=shared)
        block = engine.block_length(
            count, len(self.seeds), problem.agents, problem.dimension, problem.dtype.itemsize
        )
        if tap is None:
            self.carry = engine.advance(
                self.carry, self.setting, inputs, program=self.program, block=block
            )
        else:
            self.carry, seen = engine.observe(
                self.carry, self.setting, inputs, program=self.program, block=block, tap=tap
            )
        self.step += count
        return seen
