"""Joining on MNIST: agents with 12,000 records each, a convolutional network, all others hostile.

    python -m benchmarks.joining --out FOLDER [--epsilon 1 3] [--methods secret correlated ...]
        [--steps 2 "5*(k+1)^-0.2"] [--seeds 3] [--first-seed 0] [--rounds 400] [--agents 5]
        [--rate 0.05] [--seconds 500]
    python -m benchmarks.joining --show FOLDER        a table of what is there

    secret      gradient-perturbation with Poisson batches and an averaging round, everybody hears
                everybody
    correlated  the same on cyclic batches, noise correlated over time (banded, as wide as the
                distance between two uses of a record)
    alone       one agent with its own records, Poisson batches
    central     a trusted server with everybody's records
    noiseless   all agents, no noise

Every run is written to FOLDER/joining.jsonl as it ends, with its certificate's epsilon, step size,
and the test accuracy of the released model and of the agents' own: mean and spread over seeds. It
stops by itself before --seconds. Adjacency is zero-out, delta = 1e-5. The step size is looked for
on the test set where several are given: a figure chosen so is named as such.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

import hearsay as hs
from hearsay.graphs import Graph
from hearsay.release.readouts import Exponential, Tail

DELTA = 1e-5
READ_OUTS = (Tail(0.25), Exponential(0.98))


def algorithm(method: str, arguments: Any, step: str) -> Any:
    """The method, its noise still to be set."""
    common = {
        "step": step,
        "coupling": 0.99,
        "noise": 1.0,
        "mechanism": "gaussian",
        "averaging": 0 if method in ("alone", "central") else 1,
    }
    if method != "correlated":
        return hs.gradient_perturbation(**common, sampling=hs.Poisson(arguments.rate))
    size = round(arguments.rate * arguments.records / arguments.agents)
    return hs.gradient_perturbation(
        **common,
        sampling=hs.Cyclic(size),
        correlation="banded",
        width=round(1 / arguments.rate),
        horizon=arguments.rounds,
    )


def problem(method: str, arguments: Any) -> Any:
    agents = 1 if method == "central" else arguments.agents
    whole = hs.problems.neural(
        "mnist",
        model="cnn-p4",
        agents=agents,
        clip=arguments.clip,
        records=arguments.records,
        adjacency="zero-out",
        seed=0,
    )
    if method != "alone":
        return whole
    first = hs.problems.neural(
        "mnist",
        model="cnn-p4",
        agents=1,
        clip=arguments.clip,
        records=arguments.records // arguments.agents,
        adjacency="zero-out",
        seed=0,
    )
    return first


def run(method: str, step: str, epsilon: float | None, arguments: Any) -> dict[str, Any]:
    task = problem(method, arguments)
    graph = (
        hs.graphs.complete(task.agents)
        if task.agents > 1
        else Graph(sparse.csr_array((1, 1)), "alone")
    )
    ready = algorithm("secret" if method == "noiseless" else method, arguments, step)
    began = time.perf_counter()
    if epsilon is None:
        ready = ready.with_noise([0.0] * task.agents)
    else:
        ready = hs.calibrate(ready, task, graph, arguments.rounds, epsilon, delta=DELTA)
    calibrated = time.perf_counter() - began
    found = hs.simulate(
        ready,
        task,
        graph,
        steps=arguments.rounds,
        seeds=range(arguments.first_seed, arguments.first_seed + arguments.seeds),
        delta=DELTA,
        every=arguments.rounds,
        release=READ_OUTS,
    )
    scores = {
        str(kind): [found.release(kind, seed=seed).accuracy for seed in found.seeds]
        for kind in READ_OUTS
    }
    own = found.final("accuracy")
    return {
        "method": method,
        "epsilon": epsilon,
        "certified": max(found.certificate.epsilon),
        "noise": str(ready.noise),
        "first_seed": arguments.first_seed,
        "step": step,
        "clip": arguments.clip,
        "rate": arguments.rate,
        "rounds": arguments.rounds,
        "agents": task.agents,
        "records": arguments.records,
        "released": {kind: float(np.mean(each)) for kind, each in scores.items()},
        "released_each": scores,
        "own": own,
        "calibrated_s": round(calibrated, 1),
        "seconds": round(time.perf_counter() - began, 1),
    }


def show(folder: Path) -> None:
    """One line per run: test accuracy of each read-out, mean and range over seeds."""
    print(
        "method      epsilon  certified  seeds   rate  clip  step              read-out"
        "                 released (least to most)  agents' own"
    )
    for line in (folder / "joining.jsonl").read_text().splitlines():
        one = json.loads(line)
        first = one["first_seed"]
        for kind, each in one["released_each"].items():
            epsilon = "-" if one["epsilon"] is None else f"{one['epsilon']:g}"
            print(
                f"{one['method']:<11} {epsilon:>7}  {one['certified']:>9.6f}"
                f"  {first}-{first + len(each) - 1:<5} {one['rate']:<5g} {one['clip']:<5g}"
                f" {one['step']:<17} {kind:<24} {np.mean(each):.4f}"
                f" ({min(each):.4f} to {max(each):.4f})  {one['own'][0]:.4f}"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--show", type=Path)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--epsilon", type=float, nargs="+", default=[1.0, 3.0])
    parser.add_argument("--methods", nargs="+", default=["secret", "correlated"])
    parser.add_argument("--steps", nargs="+", default=["2"], help="numbers or schedules")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=400)
    parser.add_argument("--agents", type=int, default=5)
    parser.add_argument("--records", type=int, default=60_000)
    parser.add_argument("--rate", type=float, default=0.05)
    parser.add_argument("--clip", type=float, default=1.0)
    parser.add_argument("--seconds", type=float, default=500)
    arguments = parser.parse_args()
    if arguments.show:
        show(arguments.show)
        return
    arguments.out.mkdir(parents=True, exist_ok=True)
    began, longest = time.perf_counter(), 0.0
    with (arguments.out / "joining.jsonl").open("a") as file:
        for method in arguments.methods:
            for step in arguments.steps:
                for epsilon in [None] if method == "noiseless" else arguments.epsilon:
                    passed = time.perf_counter() - began
                    if passed + longest > arguments.seconds:
                        print(f"stopped after {passed:.0f} s", flush=True)
                        return
                    found = run(method, step, epsilon, arguments)
                    longest = max(longest, found["seconds"])
                    print(json.dumps(found), file=file, flush=True)
                    short = ("method", "epsilon", "step", "clip", "released", "own", "seconds")
                    print({key: found[key] for key in short}, flush=True)


if __name__ == "__main__":
    main()
