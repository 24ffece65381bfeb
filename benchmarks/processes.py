"""Several processes on one accelerator: what a step takes when others compute beside it.

    python -m benchmarks.processes [--counts 1 2 3] [--steps 100] [--batch 55] [--model resnet18]

Each process takes whole steps of gradient tracking on ResNet18 (5 agents, random images), as the
runs of paper P2 do. The table says how many
steps a second come out of one, two and more of them together, as they are and, where the driver has
a control daemon for it, with NVIDIA's multi-process service, which lets kernels of different
processes run at the same time.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

DAEMON = "nvidia-cuda-mps-control"
PIPE = "CUDA_MPS_PIPE_DIRECTORY"


def work(model: str, batch: int, steps: int) -> None:
    """One process: compiles, says that it is ready, and times steps whenever it is told to."""
    import jax

    import hearsay as hs
    from benchmarks.networks import random_images, whole_step
    from hearsay.simulation.simulating import enable_compilation_cache

    enable_compilation_cache()
    images = random_images((28, 28, 1), 2000)
    problem = hs.problems.neural(images, model=model, agents=5, clip=None)
    run = whole_step(problem, batch, steps)
    jax.block_until_ready(run())
    print("ready", flush=True)
    for _ in sys.stdin:
        began = time.perf_counter()
        jax.block_until_ready(run())
        print(time.perf_counter() - began, flush=True)


def started(count: int, arguments: argparse.Namespace, pipe: str) -> list[subprocess.Popen]:
    command = [sys.executable, "-m", "benchmarks.processes", "--worker"]
    command += [
        "--model",
        arguments.model,
        "--steps",
        str(arguments.steps),
        "--batch",
        str(arguments.batch),
    ]
    env = {**os.environ, PIPE: pipe, "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.1"}
    return [
        subprocess.Popen(
            command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        for _ in range(count)
    ]


def answer(worker: subprocess.Popen) -> str:
    assert worker.stdout is not None
    line = worker.stdout.readline().strip()
    if not line:
        raise RuntimeError(f"a process ended with code {worker.wait()} before it had measured")
    return line


def measured(workers: list[subprocess.Popen]) -> list[float]:
    """The seconds that each of them takes, all at the same time."""
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
    return [float(answer(worker)) for worker in workers]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--counts", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch", type=int, default=55)
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        work(arguments.model, arguments.batch, arguments.steps)
        return
    with tempfile.TemporaryDirectory() as folder:
        # Where nobody listens, so that these are on their own.
        groups = {"alone": str(Path(folder) / "nobody")}
        if shutil.which(DAEMON):
            groups["with the service"] = folder
            subprocess.run([DAEMON, "-d"], env={**os.environ, PIPE: folder}, check=True)
        one: float | None = None
        print("processes                ms a step   steps a second, all   times one", flush=True)
        try:
            # One group after the other: the second finds the programs that the first compiled.
            for name, pipe in groups.items():
                workers = started(max(arguments.counts), arguments, pipe)
                try:
                    one = report(name, workers, arguments, one)
                finally:
                    for worker in workers:
                        worker.kill()
        finally:
            if len(groups) > 1:
                subprocess.run(
                    [DAEMON], env={**os.environ, PIPE: folder}, input="quit\n", text=True
                )


def report(
    name: str, workers: list[subprocess.Popen], arguments: argparse.Namespace, one: float | None
) -> float | None:
    """A line for every number of processes; the rate of one process, which others are shown
    against.
    """
    try:
        for worker in workers:
            answer(worker)
    except RuntimeError as reason:
        print(f"{name}: {reason}", flush=True)
        return one
    for count in arguments.counts:
        found = measured(workers[:count])
        rate = sum(arguments.steps / seconds for seconds in found)
        one = one or rate / count
        each = 1000 * sum(found) / count / arguments.steps
        print(f"{count}, {name:20} {each:10.2f} {rate:21.1f} {rate / one:11.2f}", flush=True)
    return one


if __name__ == "__main__":
    main()
