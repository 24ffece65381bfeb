"""Finished parts of an experiment, kept on disk until the whole of it is done.

An experiment is many simulations and one report at the end. While `keeping` is entered everything
that has come to its end (a simulation, a measured regret, the attacks at one level of noise) is
written to a folder `parts`, under a fingerprint of all that it depends on, so that the same command
goes on where an interrupt, a kill or a full disk ended it.

With a limit on the time (an accelerator that is lent for so many minutes) a run that would not be
finished in what is left is left out: `OutOfTime`. Experiments then go on with their next run
(`or_left`), and say at the end what is missing.
"""

from __future__ import annotations

import contextlib
import math
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from hearsay.base import Algorithm
from hearsay.graphs import Graph
from hearsay.privacy.certificate import Certificate, show
from hearsay.problems import Problem
from hearsay.simulation import checkpoint
from hearsay.simulation.identity import fingerprint
from hearsay.simulation.regret import Comparators, Regret
from hearsay.simulation.regret import online_regret as library_regret
from hearsay.simulation.result import Run
from hearsay.simulation.session import Expected
from hearsay.simulation.simulating import simulate as library_simulate
from hearsay.simulation.spent import Spending

if TYPE_CHECKING:
    from hearsay.audit.dlg import Reconstruction

FOLDER, PAGE = "parts", "interrupted.html"
# Models of a run beyond so many bytes are not kept: no report of an experiment reads them.
MOST_MODELS = 1 << 20
Arrays = dict[str, np.ndarray]
Kept = TypeVar("Kept")


class OutOfTime(Exception):
    """A run would not be finished in the time that is left."""


class Part(NamedTuple):
    """What the page of an interrupted experiment says about a part."""

    algorithm: str
    problem: str
    steps: int
    seeds: int
    epsilon: str


@dataclass
class Parts:
    """The parts of one experiment: `done` are those of this call (by their marks), `found` of them
    came from an earlier one, and `left` are the names of what there was no time for.

    Args:
      deadline: when there is no time left, by time.monotonic().
      tell: called with a line of text about every run that begins.
    """

    home: Path
    deadline: float = math.inf
    tell: Callable[[str], None] = lambda text: None
    done: dict[str, Part] = field(default_factory=dict)
    found: int = 0
    left: list[str] = field(default_factory=list)
    # Whether something is being made right now.
    busy: bool = False

    def allow(self, seconds: float = 0.0) -> None:
        """Refuses what takes longer than there is time for."""
        remaining = self.deadline - time.monotonic()
        if remaining <= seconds:
            raise OutOfTime(
                f"{seconds:.0f} s more would be needed, and {max(0.0, remaining):.0f} s are left"
            )

    def page(self, title: str) -> Path:
        """What there is so far, marked as no more than that."""
        from hearsay.report.comparison import comparison_report

        header = ["algorithm", "problem", "steps", "seeds", "largest epsilon"]
        table = ("Runs that are finished", header, [list(part) for part in self.done.values()])
        note = (
            "INTERRUPTED: this is no report of the experiment, only a list of its runs that are"
            " finished and kept."
        )
        return comparison_report(
            {}, self.home, title, notes=[note], tables=[table] if self.done else [], name=PAGE
        )


_current: ContextVar[Parts | None] = ContextVar("parts", default=None)


@contextlib.contextmanager
def keeping(
    folder: Path,
    seconds: float = math.inf,
    tell: Callable[[str], None] = lambda text: None,
) -> Iterator[Parts]:
    """Keep what is finished in that folder; when all of it is, the parts are removed.

    Args:
      seconds: what would not be finished within them is left out.
      tell: called with a line of text about every run that begins.
    """
    parts = Parts(folder, time.monotonic() + seconds, tell)
    token = _current.set(parts)
    try:
        yield parts
    finally:
        _current.reset(token)
    if parts.left:
        return
    shutil.rmtree(folder / FOLDER, ignore_errors=True)
    (folder / PAGE).unlink(missing_ok=True)


@contextlib.contextmanager
def or_left(name: str) -> Iterator[None]:
    """Where there is no time for what is done inside, its name is noted and the caller goes on."""
    try:
        yield
    except OutOfTime as reason:
        parts = _current.get()
        assert parts is not None
        parts.left.append(name)
        parts.tell(f"{name} is left out: {reason}")


def complete(run: Run) -> Run:
    """An experiment made of cut-off runs would be a false report: an interrupted one ends it."""
    if run.interrupted:
        raise KeyboardInterrupt
    return run


def simulate(algorithm: Algorithm, problem: Problem, graph: Graph, **options: Any) -> Run:
    """hearsay.simulate, unless this very run is already there. The papers release no averages of
    messages, so none are kept.
    """
    options = {"release": (), **options}
    asked = {**options, "reference": bool(options.get("reference", True))}
    parts = _current.get()

    def watch(text: str) -> None:
        """A run that has just been timed goes on only where it will be finished."""
        if parts is not None:
            parts.tell(f"{algorithm.name}: {text}")
            if isinstance(text, Expected):
                parts.allow(text.seconds)

    return _kept(
        fingerprint(algorithm, problem, graph, tuple(sorted(asked.items()))),
        lambda: complete(library_simulate(algorithm, problem, graph, notify=watch, **options)),
        _arrays,
        lambda stored: _run(stored, algorithm, problem, graph),
        lambda run: Part(
            algorithm.name,
            problem.name,
            int(run.steps[-1]),
            len(run.seeds),
            show(max(run.certificate.epsilon)),
        ),
    )


def regret(
    algorithm: Any, problem: Problem, graph: Graph, rounds: int, seeds: int, against: Comparators
) -> Regret:
    """online_regret, unless this very one is already there."""
    return _kept(
        fingerprint(algorithm, problem, graph, ("regret", rounds, seeds)),
        lambda: library_regret(algorithm, problem, graph, rounds, seeds, against=against),
        lambda found: {
            "models": found.models,
            "losses": found.losses,
            **({} if found.accuracy is None else {"accuracy": found.accuracy}),
        },
        lambda stored: Regret(
            algorithm.local_steps,
            stored["models"],
            stored["losses"],
            stored.get("accuracy"),
            against,
        ),
        lambda found: Part(algorithm.name, problem.name, rounds, seeds, "-"),
    )


def attacked(
    algorithm: Algorithm, problem: Problem, graph: Graph, level: float, **options: Any
) -> tuple[Reconstruction, ...]:
    """What `against_noise` finds at one level, unless it is already there."""
    from hearsay.audit import dlg

    asked = {key: value for key, value in options.items() if key != "progress"}

    def attack() -> tuple[Reconstruction, ...]:
        return dlg.against_noise(algorithm, problem, graph, levels=(level,), **options).found[0]

    return _kept(
        fingerprint(algorithm, problem, graph, ("attack", level, *sorted(asked.items()))),
        attack,
        _pictures,
        _reconstructions,
        lambda found: Part(f"attack on {algorithm.name}", problem.name, 1, len(found), "-"),
    )


def _kept(
    mark: str,
    make: Callable[[], Kept],
    arrays: Callable[[Kept], Arrays],
    restored: Callable[[Mapping[str, np.ndarray]], Kept],
    about: Callable[[Kept], Part],
) -> Kept:
    """What is stored under the mark, or else made, and stored."""
    parts = _current.get()
    if parts is None:
        return make()
    path = parts.home / FOLDER / f"{mark[:32]}.npz"
    if path.exists():
        found = restored(checkpoint.read(path))
        # Experiments may ask for the same part twice.
        parts.found += mark not in parts.done
    else:
        parts.allow()
        parts.busy = True
        try:
            found = make()
        finally:
            parts.busy = False
        path.parent.mkdir(parents=True, exist_ok=True)
        checkpoint.write(path, arrays(found))
    parts.done[mark] = about(found)
    return found


def _arrays(run: Run) -> Arrays:
    return {
        "certificate": np.array(run.certificate.to_json()),
        "seeds": np.array(run.seeds),
        "steps": run.steps,
        "spent": run.spent,
        "models": run.models if run.models.nbytes <= MOST_MODELS else run.models[..., :0],
        "stopped": np.array(run.stopped or ""),
        "seconds": np.array(run.seconds),
        **{f"raw_{name}": values for name, values in run.raw.items()},
    }


def _run(
    stored: Mapping[str, np.ndarray], algorithm: Algorithm, problem: Problem, graph: Graph
) -> Run:
    raw = {name[len("raw_") :]: found for name, found in stored.items() if name.startswith("raw_")}
    return Run(
        algorithm,
        problem,
        graph,
        Certificate.from_json(str(stored["certificate"])),
        stored["seeds"].tolist(),
        stored["steps"],
        raw,
        Spending.of(stored["spent"]),
        stored["models"],
        str(stored["stopped"]) or None,
        float(stored["seconds"]),
    )


_NUMBERS = ("agent", "step", "seed", "error", "blind", "seconds")
_GUESS = ("images", "labels", "mismatch", "mismatches")


def _pictures(found: tuple[Reconstruction, ...]) -> Arrays:
    stored: Arrays = {"many": np.array(len(found))}
    for index, one in enumerate(found):
        named = {name: getattr(one, name) for name in (*_NUMBERS, "truth", "true_labels")}
        guessed = {f"guess_{name}": getattr(one.guess, name) for name in _GUESS}
        stored |= {f"{index}_{name}": np.asarray(v) for name, v in {**named, **guessed}.items()}
    return stored


def _reconstructions(stored: Mapping[str, np.ndarray]) -> tuple[Reconstruction, ...]:
    from hearsay.audit.dlg import Guess, Reconstruction

    found = []
    for index in range(int(stored["many"])):
        known: dict[str, Any] = {n: stored[f"{index}_{n}"].item() for n in _NUMBERS}
        known |= {name: stored[f"{index}_{name}"] for name in ("truth", "true_labels")}
        guess: dict[str, Any] = {name: stored[f"{index}_guess_{name}"] for name in _GUESS}
        guess["mismatch"] = guess["mismatch"].item()
        found.append(Reconstruction(guess=Guess(**guess), **known))
    return tuple(found)
