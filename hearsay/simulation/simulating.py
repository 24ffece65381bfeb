"""Simulate a network: a thin host loop around the compiled engine that measures, reports progress,
checkpoints and can stop.

A run is reproducible from (algorithm, problem, graph, seeds): noise keys depend on (seed, agent,
step) and sampling keys on (the problem's seed, agent, step) only, so neither the chunk length, nor
how many seeds run side by side, nor an interruption changes a trajectory (up to rounding).
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from hearsay import _validate as require
from hearsay._files import cache_folder, held, warn_once
from hearsay._interrupts import stopping
from hearsay.base import Algorithm
from hearsay.graphs import Graph
from hearsay.problems.problem import Problem
from hearsay.release.readouts import USUAL, as_readouts
from hearsay.simulation import checkpoint
from hearsay.simulation.faults import Faults
from hearsay.simulation.identity import Identity
from hearsay.simulation.layout import layout
from hearsay.simulation.memory import fitted, free_bytes, summary
from hearsay.simulation.optimum import Reference
from hearsay.simulation.processes import Crew
from hearsay.simulation.promise import Promise, promise
from hearsay.simulation.result import Run
from hearsay.simulation.session import Session

Progress = Callable[[int, int, float], None]
# What the number of a seed takes, and its keys.
_SEED_BYTES = 50.0


@require.known_arguments
def simulate(
    algorithm: Algorithm,
    problem: Problem,
    graph: Graph,
    *,
    steps: int,
    seeds: int | Sequence[int] = 1,
    every: int | None = None,
    budget: float | Sequence[float] | None = None,
    delta: float | None = None,
    reference: Reference | bool = True,
    regret: bool = True,
    spread: float = 0.0,
    release: Any = USUAL,
    faults: Faults | None = None,
    folder: str | os.PathLike | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
    notify: Callable[[str], None] | None = None,
    checkpoint_seconds: float = 10.0,
    devices: int | str | None = None,
) -> Run:
    """Run the algorithm on all agents at once, for each seed, and measure.

    Ctrl-C saves a checkpoint (given a folder) and returns what has been measured so far;
    `Run.stopped` says why a run ended early.

    Args:
      algorithm: what every agent does.
      problem: with everybody's records.
      graph: who hears whom.
      steps: how many rounds.
      seeds: how many noise seeds to run side by side (0, 1, ...), or a list of them. The data
        stream is the same for all.
      every: steps between two measurements (default: about 100 measurements; a run that is
        continued keeps its own).
      budget: epsilon that no agent may exceed (at `delta` where one is given), one number or one
        per agent: the run ends before the first message that would. Ternary messages have
        epsilon = 0 at a delta that grows: with a budget they end before it exceeds `delta`.
      delta: also certify epsilon at this delta (needed for Gaussian noise, and for a budget of
        ternary messages).
      reference: measure against the running optimum; False skips it (large networks), a Reference
        shares it between runs.
      regret: measure regret too (it costs agents x all records at every measured step).
      spread: standard deviation of the agents' random start; 0 starts everybody at the origin.
      release: the averages of messages to keep for `Run.release`: some of "tail", "exponential",
        "mean", "last", or read-outs of release/readouts.py with options of their own. The first
        one, over all agents, is measured beside the agents' own models. None or () keeps nothing.
      faults: what goes wrong on the network (`hearsay.Faults`); the certificate allows for any
        message to be missing. None: everything is delivered.
      folder: where checkpoints go; refused where it holds a run, unless that is continued or
        replaced.
      resume: continue from the checkpoint in the folder, for more steps where `steps` is larger.
      overwrite: replace the run that is in the folder.
      progress: called with (steps done, steps to do, largest budget spent in the unit of
        `certification.unit`) after each chunk.
      notify: called with a line of text: what computes where, in how much memory, how long it will
        take, and what had to be changed to fit.
      checkpoint_seconds: between two checkpoints.
      devices: over how many devices the agents are dealt out, or "all" that jax finds, in all
        processes that take part (docs/many-machines.md); None: one. It changes nothing but
        rounding, and a checkpoint may be continued on any number of them.

    Example:
      >>> import hearsay as hs
      >>> problem, graph = hs.problems.ridge(agents=2, records=50), hs.graphs.ring(2)
      >>> run = hs.simulate(hs.ldp_online(), problem, graph, steps=10, seeds=2)
      >>> run.models.shape
      (2, 2, 10)
    """
    promised = promise(
        algorithm, problem, graph, steps=steps, budget=budget, delta=delta, faults=faults
    )
    return fulfil(
        promised,
        seeds=seeds,
        every=every,
        reference=reference,
        regret=regret,
        spread=spread,
        release=release,
        folder=folder,
        resume=resume,
        overwrite=overwrite,
        progress=progress,
        notify=notify,
        checkpoint_seconds=checkpoint_seconds,
        devices=devices,
    )


def fulfil(
    promised: Promise,
    *,
    seeds: int | Sequence[int] = 1,
    every: int | None = None,
    reference: Reference | bool = True,
    regret: bool = True,
    spread: float = 0.0,
    release: Any = USUAL,
    folder: str | os.PathLike | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
    notify: Callable[[str], None] | None = None,
    checkpoint_seconds: float = 10.0,
    devices: int | str | None = None,
) -> Run:
    """Run what was promised; the arguments are those of `simulate`."""
    p, steps = promised, promised.steps
    # The models of all agents, as states and as read out.
    each = 2.0 * p.graph.agents * p.problem.dimension * p.problem.dtype.itemsize
    seed_list = as_seeds(seeds, each)
    every = require.optional(require.count)("every", every)
    checkpoint_seconds = require.nonnegative("checkpoint_seconds", checkpoint_seconds)
    spread = require.nonnegative("spread", spread)
    readouts = as_readouts("release", release)
    if resume and folder is None:
        raise ValueError("folder must be given to resume a run")
    where = layout(p.graph.agents, devices)
    if where is not None and p.faults is not None:
        require.fail("devices", "left out with faults: they are simulated on one device", devices)
    crew = Crew(where is not None and jax.process_count() > 1)
    home = None if folder is None or not crew.first else Path(folder)
    with ExitStack() as stack:
        enable_compilation_cache()
        tell = notify if notify is not None and crew.first else lambda text: None
        progress = progress if crew.first else None
        free = crew.least(free_bytes()) if crew.several else None
        problem = fitted(p.algorithm, p.problem, free, seeds=len(seed_list))
        identity = None
        if folder is not None or crew.several:
            start = (seed_list, spread, readouts, p.faults)
            identity = Identity.of(p.algorithm, problem, p.graph, *start)
        crew.agree(
            identity and identity.mark,
            (every, steps, p.allowed, folder is None, resume, overwrite, regret),
            reference is False,
        )
        crew.by_first(lambda: stack.enter_context(held(home)))
        keeper, stored = None, None
        if folder is not None and identity is not None:
            keeper = _Keeper(home, identity, checkpoint_seconds, crew)
            stored, every = keeper.begun(resume, overwrite, every)
        every = every or max(1, math.ceil(steps / 100))
        tell(summary(p.algorithm, problem, p.graph, len(seed_list), where))
        if p.faults is not None:
            tell(f"faults: {p.faults}; every message is charged, heard or not")
            # A run in a folder may be meant to go on later.
            if folder is None and (never := p.faults.after(p.steps)):
                (warn_once if notify is None else tell)(
                    f"faults: {never} would come after the last round, {p.steps - 1}, and do not"
                )
        session = Session(
            p.algorithm,
            problem,
            p.graph,
            seed_list,
            reference,
            regret,
            spread,
            p.delta,
            tell,
            readouts,
            p.faults,
            where,
        )
        session.allowed = p.allowed
        began = time.perf_counter()
        with stopping() as interrupts:
            if stored is not None:
                session.restore(stored)
                _require_at_most(p.allowed, steps, session.step)
            stopped = _to_the_end(session, p, every, keeper, progress, interrupts, crew)
            certificate, measured = p.after(session.step), session.results()
        return Run(
            p.algorithm,
            session.problem,
            p.graph,
            certificate,
            seed_list,
            *measured,
            session.rounds.gathered(session.models, 1),
            stopped,
            time.perf_counter() - began,
            session.rounds.readouts,
            session.released(),
            faults=p.faults,
            hearing=session.hearing(),
        )


@dataclass
class _Keeper:
    """Where checkpoints go, and when. Of several processes the first has the folder, and all take
    part: each has some of the agents.
    """

    home: Path | None
    identity: Identity
    seconds: float
    crew: Crew
    saved: float = 0.0

    def begun(
        self, resume: bool, overwrite: bool, every: int | None
    ) -> tuple[dict[str, np.ndarray] | None, int | None]:
        """(the checkpoint of the run, if it is to be continued; its measuring interval, if one is
        known). Refused where the folder holds another run.
        """
        self.crew.by_first(lambda: checkpoint.require_free(self._folder, resume, overwrite))
        if not resume:
            return None, every
        packed = self.crew.by_first(lambda: checkpoint.packed(self._folder))
        stored = checkpoint.unpacked(packed)
        return stored, self.identity.interval(stored, every)

    def save(self, session: Session, every: int) -> None:
        arrays = {**self.identity.arrays(every), **session.arrays()}
        self.crew.by_first(lambda: checkpoint.save(self._folder, arrays))
        self.saved = time.perf_counter()

    @property
    def _folder(self) -> Path:
        """For the first process to ask for."""
        assert self.home is not None
        return self.home

    @property
    def due(self) -> bool:
        return time.perf_counter() - self.saved > self.seconds


def _to_the_end(
    session: Session,
    promised: Promise,
    every: int,
    keeper: _Keeper | None,
    progress: Progress | None,
    interrupts: stopping,
    crew: Crew,
) -> str | None:
    """Why the run ended early, if it did. An impatient Ctrl-C must not cost the result: this
    runs under the guard.
    """
    stopped = promised.stopped
    try:
        _loop(session, promised.allowed, every, keeper, progress, interrupts, crew)
    except KeyboardInterrupt:
        stopped = f"interrupted after {session.step} of {promised.allowed} steps"
        session.measure()
    session.models.block_until_ready()
    if keeper is not None:
        keeper.save(session, every)
    if np.all(np.isfinite(session.rounds.gathered(session.models, 1))):
        return stopped
    lost = "the models are no longer finite numbers: smaller steps or less noise are needed"
    return f"{stopped}; {lost}" if stopped else lost


def _require_at_most(allowed: int, steps: int, done: int) -> None:
    if done > allowed:
        limit = f"a budget that allows {allowed}" if allowed < steps else f"steps = {steps}"
        raise ValueError(
            f"the checkpoint has {done} steps done, more than {limit}: nothing to resume"
        )


def _loop(
    session: Session,
    allowed: int,
    every: int,
    keeper: _Keeper | None,
    progress: Progress | None,
    interrupts: stopping,
    crew: Crew,
) -> None:
    if keeper is not None:
        keeper.saved = time.perf_counter()
    ahead = sorted({*range(every, allowed, every), allowed})
    spent = (
        {}
        if progress is None
        else dict(zip(ahead, session.spending(ahead).largest.tolist(), strict=True))
    )
    while session.step < allowed:
        before = session.models
        session.advance(min(every - session.step % every, allowed - session.step))
        session.measure()
        before.block_until_ready()  # at most one chunk ahead of the device, so that Ctrl-C is heard
        if progress is not None:
            progress(session.step, allowed, spent[session.step])
        due, stop = crew.decided(keeper is not None and keeper.due, interrupts.requested)
        if keeper is not None and due:
            keeper.save(session, every)
        if stop and session.step < allowed:
            raise KeyboardInterrupt


def enable_compilation_cache() -> None:
    """Keep compiled programs in the user's cache folder, so that the next run of the same
    shape starts at once; where it cannot be written, say so once and keep none.
    """
    if getattr(jax.config, "jax_compilation_cache_dir", None) is not None:
        return
    folder = cache_folder() / "compiled"
    if not _writable(folder):
        # jax would warn of every program, in words of its own.
        warn_once(
            f"{folder} cannot be written: compiled programs are not kept, and every command"
            " compiles its own (HEARSAY_CACHE names another folder)"
        )
        return
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)


def _writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK | os.X_OK)


def as_seeds(seeds: int | Sequence[int], each: float = 0.0) -> list[int]:
    """So many of them, from 0 on, or those that a list names.

    Args:
      seeds: how many, or which.
      each: the bytes that a run with one of them takes at least.
    """
    if not require.is_sequence(seeds) and not isinstance(seeds, range):
        count = require.count("seeds", seeds)
        return list(range(require.room("seeds", count, lambda n: n * (each + _SEED_BYTES))))
    found = list(require.each(require.natural)("seeds", seeds))
    if found and max(found) >= 2**31:
        require.fail("seeds", "below 2^31", max(found))
    if not found:
        require.fail("seeds", "a number or a list with at least one seed", seeds)
    if len(set(found)) < len(found):
        require.fail("seeds", "a list that names every seed once: the same twice is one run", found)
    return found
