"""The papers' image experiments at full size, within a given number of minutes.

    python -m benchmarks.papers --minutes 20 --out OUT [--only p4-mnist p3-mnist] [--seeds 3]
        [--first-seed 1] [--runs NAME ...] [--found STEP ...] [--after docs/results]

For an accelerator that is lent for a while: experiments in order of importance, each into its own
folder, and every run of them kept as soon as it is finished. What is in OUT already is not run
again, so the same command goes on where time ended. A run says how long it will take once its
first steps are timed, and is left out where that is more than what is left; the report of an
experiment is written in any case, without the runs that are missing, which `about.json` names
beside the device and the minutes. Runs that differ in numbers only share their compiled program.
With --first-seed 1 and --seeds 2 the seeds are 1 and 2, to go with an earlier call's 0
(benchmarks.results puts them together). With --after those results it runs what they lack of
`--seeds` noise seeds, where a run took less than two minutes a seed; with --minutes 0 it only says
what that is, and how long it should take. What was the best of several steps is not searched again:
further seeds are of the step that was found (--found: those of --runs). An experiment that fails
says why and keeps what it has; the next one begins, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import shlex
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax

from benchmarks import results
from hearsay.experiments import EXPERIMENTS
from hearsay.experiments.parts import FOLDER, OutOfTime, Parts, keeping

ORDER = ["p4-mnist", "p3-mnist", "p1-mnist", "p2-mnist", "p1-table2", "p1-cifar", "p2-cifar"]
ABOUT = "about.json"
# A run that takes longer has one noise seed.
LONG = 120.0


class Wanted(NamedTuple):
    """Runs of an experiment (None: all), each with its step where it was found before, with so
    many noise seeds, and the seconds that they took elsewhere (0: nobody knows).
    """

    name: str
    runs: dict[str, str | None] | None
    first_seed: int
    seeds: int
    seconds: float = 0.0

    def __str__(self) -> str:
        last = self.first_seed + self.seeds - 1
        runs = "; ".join(self.runs or ["all"])
        took = f"about {self.seconds / 60:.1f}" if self.seconds else "nobody knows how many"
        return (
            f"{self.name}, seeds {self.first_seed} to {last}: {runs}"
            f" ({took} minutes without compiling)"
        )

    def command(self, options: argparse.Namespace) -> str:
        """What makes these runs and no others."""
        asked = ["--minutes", f"{options.minutes:g}", "--out", str(options.out)]
        asked += ["--only", self.name, "--seeds", str(self.seeds)]
        asked += ["--first-seed", str(self.first_seed)] if self.first_seed else []
        asked += ["--scale", str(options.scale)] if options.scale != "paper" else []
        if self.runs:
            asked += ["--runs", *self.runs]
            steps = [step for step in self.runs.values() if step]
            asked += ["--found", *steps] if steps else []
        return shlex.join(["python", "-m", "benchmarks.papers", *asked])


def lacking(name: str, folder: Path, seeds: int) -> list[Wanted]:
    """What an experiment's results lack of so many seeds."""
    if not (folder / results.ENDS).exists():
        return [Wanted(name, None, 0, seeds)]
    header, *rows = results.table(folder / results.ENDS)
    found: dict[int, list[tuple[str, str | None, float]]] = {}
    for row in rows:
        said = dict(zip(header, row, strict=True))
        there = len(said[results.SEEDS].split())
        each = float(said[results.TIME].split()[0]) / there
        if there < seeds and each < LONG:
            took = each * (seeds - there)
            found.setdefault(there, []).append((row[0], said.get(results.STEP), took))
    return [
        Wanted(
            name,
            {run: step for run, step, _ in runs},
            there,
            seeds - there,
            sum(took for *_, took in runs),
        )
        for there, runs in sorted(found.items())
    ]


def about(folder: Path) -> dict[str, Any]:
    path = folder / ABOUT
    return json.loads(path.read_text()) if path.exists() else {"minutes": 0.0, "left_out": None}


@contextlib.contextmanager
def ended_after(seconds: float, parts: Parts) -> Iterator[None]:
    """Ends a run that is under way then: steps that grow take longer than the first ones say."""

    def end(*_: object) -> None:
        if parts.busy:
            raise OutOfTime("time is over")

    signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def one(wanted: Wanted, folder: Path, seconds: float, options: argparse.Namespace) -> bool:
    """Run what there is time for, and write what is there; whether nothing failed."""
    name, well, before, began = wanted.name, True, about(folder), time.monotonic()

    def tell(text: str) -> None:
        print(f"[{name} {time.monotonic() - began:6.1f} s] {text[:150]}", flush=True)

    only = {"only": wanted.runs} if wanted.runs else {}
    with keeping(folder, seconds, tell) as parts, ended_after(seconds, parts):
        try:
            EXPERIMENTS[name](
                folder,
                data_dir=options.data_dir,
                seeds=wanted.seeds,
                first_seed=wanted.first_seed,
                scale=options.scale,
                progress=lambda stage, done, total: tell(f"{stage}: {done} of {total}"),
                **only,
            )
        except OutOfTime as reason:
            parts.left.append("the report")
            tell(str(reason))
        except Exception:
            well = False
            parts.left.append("the report")
            traceback.print_exc()
        folder.mkdir(parents=True, exist_ok=True)
        spent = (time.monotonic() - began) / 60
        found = {
            "command": wanted.command(options),
            "device": jax.devices()[0].device_kind,
            "jax": jax.__version__,
            "seeds": wanted.seeds,
            "minutes": round(before["minutes"] + spent, 2),
            "runs": len(parts.done),
            "left_out": parts.left,
        }
        (folder / ABOUT).write_text(json.dumps(found, indent=1, ensure_ascii=False))
        tell(f"{len(parts.done)} runs, {spent:.1f} minutes; left out: {parts.left or 'nothing'}")
    return well


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--minutes", type=float, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", nargs="+", default=ORDER, choices=ORDER, metavar="EXPERIMENT")
    parser.add_argument("--runs", nargs="+", help="names of runs within an experiment")
    parser.add_argument("--found", nargs="+", metavar="STEP", help="the step of each of --runs")
    parser.add_argument("--after", type=Path, metavar="RESULTS", help="run what these lack")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--scale", default="paper")
    parser.add_argument("--data-dir")
    options = parser.parse_args()
    if options.scale not in ("small", "paper"):
        options.scale = float(options.scale)
    if options.found and len(options.found) != len(options.runs or ()):
        parser.error("--found names one step for each of --runs")
    if options.after and (options.runs or options.first_seed):
        parser.error("--after says itself which runs and seeds")
    if options.after:
        found = (lacking(name, options.after / name, options.seeds) for name in options.only)
        asked = list(itertools.chain(*found))
        print("\n".join(map(str, asked)) or "nothing is lacking", flush=True)
    else:
        steps = options.found or itertools.repeat(None)
        runs = dict(zip(options.runs, steps, strict=False)) if options.runs else None
        asked = [Wanted(name, runs, options.first_seed, options.seeds) for name in options.only]
    deadline, well = time.monotonic() + 60 * options.minutes, True
    for wanted in asked:
        # Beside results every group of seeds has a folder of its own.
        folder = options.out / wanted.name / (f"from-{wanted.first_seed}" if options.after else "")
        if about(folder)["left_out"] == [] and not (folder / FOLDER).exists():
            print(f"{wanted.name}: done before")
        elif (left := deadline - time.monotonic()) > 0:
            well &= one(wanted, folder, left, options)
        else:
            print(f"{wanted.name}: no time left")
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
