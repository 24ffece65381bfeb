"""The papers' image experiments at full size, within a given number of minutes.

    python -m benchmarks.papers --minutes 20 --out OUT [--only p4-mnist p3-mnist] [--seeds 3]
        [--first-seed 1]

For an accelerator that is lent for a while: experiments in order of importance, each into its own
folder, and every run of them kept as soon as it is finished. What is in OUT already is not run
again, so the same command goes on where time ended. A run says how long it will take once its
first steps are timed, and is left out where that is more than what is left; the report of an
experiment is written in any case, without the runs that are missing, which `about.json` names
beside the device and the minutes. Runs that differ in numbers only share their compiled program.
With --first-seed 1 and --seeds 2 the seeds are 1 and 2, to go with an earlier call's 0
(benchmarks.results puts them together). An experiment that fails says why and keeps what it has;
the next one begins, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shlex
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax

from hearsay.experiments import EXPERIMENTS
from hearsay.experiments.parts import FOLDER, OutOfTime, Parts, keeping

ORDER = ["p4-mnist", "p3-mnist", "p1-mnist", "p2-mnist", "p1-table2", "p1-cifar", "p2-cifar"]
ABOUT = "about.json"


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


def one(name: str, folder: Path, seconds: float, options: argparse.Namespace) -> bool:
    """Run what there is time for, and write what is there; whether nothing failed."""
    well, before, began = True, about(folder), time.monotonic()

    def tell(text: str) -> None:
        print(f"[{name} {time.monotonic() - began:6.1f} s] {text[:150]}", flush=True)

    only = {"only": options.runs} if options.runs else {}
    with keeping(folder, seconds, tell) as parts, ended_after(seconds, parts):
        try:
            EXPERIMENTS[name](
                folder,
                data_dir=options.data_dir,
                seeds=options.seeds,
                first_seed=options.first_seed,
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
            "command": shlex.join(["python", "-m", "benchmarks.papers", *sys.argv[1:]]),
            "device": jax.devices()[0].device_kind,
            "jax": jax.__version__,
            "seeds": options.seeds,
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
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--scale", default="paper")
    parser.add_argument("--data-dir")
    options = parser.parse_args()
    if options.scale not in ("small", "paper"):
        options.scale = float(options.scale)
    deadline, well = time.monotonic() + 60 * options.minutes, True
    for name in options.only:
        folder = options.out / name
        if about(folder)["left_out"] == [] and not (folder / FOLDER).exists():
            print(f"{name}: done before")
        elif (left := deadline - time.monotonic()) > 0:
            well &= one(name, folder, left, options)
        else:
            print(f"{name}: no time left")
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
