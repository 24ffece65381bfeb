"""The moving parts of one simulation: the carried state, what has been measured so far,
and how both go into a checkpoint.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hearsay.base import Algorithm
from hearsay.certification.spending import epsilon_by_kind
from hearsay.graphs import Graph
from hearsay.problems.problem import Problem
from hearsay.release.readouts import ReadOut, read
from hearsay.simulation import sharded
from hearsay.simulation.faults import Faults
from hearsay.simulation.hearing import Hearing
from hearsay.simulation.layout import Layout
from hearsay.simulation.memory import halved
from hearsay.simulation.metrics import (
    Measured,
    blocked,
    measure,
    measure_neural,
    training_sample,
    watched_agents,
)
from hearsay.simulation.optimum import Reference
from hearsay.simulation.program import Carry, flatten, unflatten
from hearsay.simulation.rounds import Rounds
from hearsay.simulation.spent import Spending

_CARRIED = "carry_{}"


class Expected(str):
    """A line that says how long a run will take, with the seconds."""

    seconds: float

    def __new__(cls, text: str, seconds: float) -> Expected:
        found = super().__new__(cls, text)
        found.seconds = seconds
        return found


class Session:
    """The moving parts of one simulation.

    Args:
      reference: measure against the running optimum, or against one that is shared.
      regret: measure regret too.
      spread: standard deviation of the agents' random start.
      delta: at which budgets are shown.
      tell: called with a line of text when something had to be changed to fit.
      readouts: averages of messages to carry along; the first one is measured, over all agents.
      faults: what goes wrong on the network.
      layout: which device has which agents; None: one device has all.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        problem: Problem,
        graph: Graph,
        seeds: list[int],
        reference: Reference | bool = True,
        regret: bool = True,
        spread: float = 0.0,
        delta: float | None = None,
        tell: Callable[[str], None] = lambda text: None,
        readouts: Sequence[ReadOut] = (),
        faults: Faults | None = None,
        layout: Layout | None = None,
    ):
        self.algorithm, self.graph = algorithm, graph
        self.regret, self.delta, self.tell = regret, delta, tell
        self.dtype = problem.dtype
        self.rounds = Rounds(
            algorithm, problem, graph, seeds, spread, readouts, faults=faults, layout=layout
        )
        convex = problem.loss.convex
        found = Reference(problem) if reference is True and convex else reference
        self.reference = found if isinstance(found, Reference) and convex else None
        self.watched = watched_agents(graph.agents)
        self.test: tuple
        if convex:
            self.test = (
                jnp.asarray(problem.test_features, self.dtype),
                jnp.asarray(problem.test_labels, self.dtype),
            )
        else:
            sample = training_sample(problem)
            test = (problem.test_features, problem.test_labels)
            # Without a test set what is measured on it is left out of the result (result.py).
            parts = (test if len(test[1]) else sample, sample)
            self.test = tuple(blocked(*part, self.dtype) for part in parts)
        self.allowed, self._watched_calls = 0, 0
        self.at: list[int] = []
        self.measured: list[Any] = []
        # How many messages each agent has paid for, at every measured step, where it differs.
        self.charged: list[Any] = []
        self.measure()

    @property
    def problem(self) -> Problem:
        return self.rounds.problem

    @property
    def step(self) -> int:
        return self.rounds.step

    @property
    def carry(self) -> Carry:
        return self.rounds.carry

    @property
    def models(self) -> jax.Array:
        return self.rounds.models

    def advance(self, chunk: int) -> None:
        if not self.problem.loss.unrolled:
            self.rounds.advance(chunk)
            return
        # On a CPU convolutions inside a compiled loop run on a single core, and a large model gains
        # nothing from one.
        size = 1 if jax.devices()[0].platform == "cpu" else chunk
        for _ in range(chunk // size):
            if self._watched_calls < 2:
                self._watched(size)
            else:
                self.rounds.advance(size)

    def _watched(self, size: int) -> None:
        """The first two calls of a large model: does a microbatch fit,
        and how long will the run take?
        """
        began, before = time.perf_counter(), (self.rounds.carry, self.step)
        try:
            self.rounds.advance(size)
            self.models.block_until_ready()
        except jax.errors.JaxRuntimeError as error:
            smaller = (
                halved(self.problem, self.algorithm) if "RESOURCE_EXHAUSTED" in str(error) else None
            )
            if smaller is None:
                raise
            # The round may have been counted before the device failed.
            self.rounds.carry, self.rounds.step = before
            self.rounds.on(smaller[0])
            self.tell(f"out of memory: going on with {smaller[1]}")
            self._watched(size)
            return
        self._watched_calls += 1
        if self._watched_calls == 2:  # the first one was compiled on the way
            spent, left = time.perf_counter() - began, self.allowed - self.step
            done, ahead = self._work(before[1], self.step), self._work(self.step, self.allowed)
            grown = ", which grow" if ahead * size > 1.1 * done * left else ""
            text = (
                f"expected time: {_duration(spent * ahead / done)} for {left:,} more steps of"
                f" {_duration(spent / size)} (measured){grown}, and what measuring takes"
            )
            self.tell(Expected(text, spent * ahead / done))

    def _work(self, first: int, last: int) -> float:
        """What the steps before the last one take, in blocks of records."""
        sampling, problem = self.algorithm.sampling, self.problem
        held = float(problem.counts.max())
        sizes = np.minimum(sampling.sizes(np.arange(first, last), held, problem.arrivals), held)
        return float(np.ceil(sizes / sampling.width(problem.most, problem.arrivals)).sum())

    def measure(self) -> None:
        """Start measuring the current models; the numbers are read only when someone needs them,
        so the device need not wait.
        """
        if self.at and self.at[-1] == self.step:
            return
        if self._absences:
            self.charged.append(self.carry.memory.charged)
        if not self.problem.loss.convex:
            self.at.append(self.step)
            self.measured.append(
                self._by_layout(measure_neural, sharded.measure_neural)(
                    self.models,
                    self.watched,
                    *self.test,
                    kept=self._kept(),
                    loss=self.problem.loss,
                )
            )
            return
        arrived = self.arrived(self.step)
        best, value = np.full(self.problem.dimension, np.nan), np.nan
        if self.reference is not None:
            best, value = self.reference.of(arrived)
        self.at.append(self.step)
        self.measured.append(
            self._by_layout(measure, sharded.measure)(
                self.models,
                self.watched,
                self.rounds.setting.records,
                arrived,
                np.asarray(best, self.dtype),
                np.asarray(value, self.dtype),
                *self.test,
                loss=self.problem.loss,
                classification=self.problem.classification,
                with_regret=self.regret,
                kept=self._kept(),
            )
        )

    def _by_layout(self, one: Callable, several: Callable) -> Callable:
        """What measures models on one device, or on several."""
        layout = self.rounds.layout
        return one if layout is None else partial(several, layout)

    def _kept(self) -> tuple[jax.Array, np.ndarray] | None:
        """The slots of all read-outs, and the shares of the first one's in what it reads out."""
        if not self.rounds.readouts:
            return None
        mix = self.rounds.readouts[0].mix(self.step)
        return self.carry.kept.slots, np.asarray(mix, self.dtype)

    def released(self) -> dict[str, np.ndarray]:
        """What every read-out has found, by name: (seed, agent, d)."""
        if not self.step or not self.rounds.readouts:
            return {}
        slots = self.rounds.gathered(self.carry.kept.slots, 2)
        return read(self.rounds.readouts, slots, self.step, axis=1)

    def arrived(self, step: int) -> np.ndarray:
        return self.algorithm.sampling.arrived(step, self.problem.counts, self.problem.arrivals)

    def results(self) -> tuple[np.ndarray, dict[str, np.ndarray], Spending]:
        """(steps, metrics (time, seed[, watched agent]), what was spent)."""
        return np.array(self.at), self.metrics(), self.spent()

    def metrics(self) -> dict[str, np.ndarray]:
        rows = jax.device_get(self.measured)
        return {
            name: np.stack([np.asarray(getattr(row, name), np.float64) for row in rows])
            for name in Measured._fields
        }

    def spending(self, steps: list[int]) -> Spending:
        """What every agent has spent when those numbers of steps are done, if it was always
        there.
        """
        given = (self.algorithm, self.problem, self.graph, steps, self.delta)
        spent, found = epsilon_by_kind(*given)
        return Spending(spent, found.kind)

    @property
    def _absences(self) -> bool:
        return self.rounds.faults is not None and self.rounds.faults.absences

    def spent(self) -> Spending:
        """What every agent had spent at every measured step: who is away sends nothing, and has
        paid for the messages up to its last one.
        """
        if not self._absences:
            return self.spending(self.at)
        paid = np.stack([np.asarray(one) for one in jax.device_get(self.charged)])
        counts, places = np.unique(paid, return_inverse=True)
        by_count = self.spending(counts.tolist())
        return Spending.of(by_count.curves[places.reshape(paid.shape), by_count.kind])

    def hearing(self) -> Hearing | None:
        """Who heard whom; None where everything is delivered."""
        if self.rounds.faults is None:
            return None
        memory, network = self.carry.memory, self.rounds.setting.faults
        parts = (network.hearer, network.sender, memory.heard, memory.sent)
        return Hearing(*(np.asarray(part) for part in parts))

    def arrays(self) -> dict[str, np.ndarray]:
        return {
            "step": np.array(self.step),
            "at": np.array(self.at),
            **flatten(self.rounds.whole, _CARRIED),
            **self.metrics(),
            **({"charged": np.stack(jax.device_get(self.charged))} if self._absences else {}),
        }

    def restore(self, stored: dict[str, np.ndarray]) -> None:
        """Go on from what `arrays` gave for the same run."""
        whole = unflatten(stored, self.rounds.shapes, _CARRIED, "checkpoint")
        self.rounds.go_on_from(whole, int(stored["step"]))
        self.at = stored["at"].tolist()
        self.measured = [
            Measured(*(stored[name][t] for name in Measured._fields)) for t in range(len(self.at))
        ]
        if self._absences:
            self.charged = list(stored["charged"])
        # Walk the same way again: its last digits depend on the warm starts.
        if self.reference is not None:
            for step in self.at:
                self.reference.of(self.arrived(step))


def _duration(seconds: float) -> str:
    if seconds < 1:
        return f"{1000 * seconds:.3g} ms"
    return f"{seconds:.3g} s" if seconds < 120 else f"{seconds / 60:.3g} min"
