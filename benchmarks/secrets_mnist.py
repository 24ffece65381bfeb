"""Shared secrets on MNIST: cnn-p4, zero-out adjacency, delta = 1e-5; made for an accelerator.

    python -m benchmarks.secrets_mnist prepare [--cases ...]    on any machine, minutes
    python -m benchmarks.secrets_mnist run --out FOLDER [--cases ...] [--seeds 10 11 12]
        [--steps SCHEDULE ...] [--seconds 550] [--data out/data] [--rounds N] [--records N]
    python -m benchmarks.secrets_mnist show FOLDER

`prepare` finds the noise that meets each case's epsilon, and the epsilon of the same noise against
every number of colluders, and writes both to benchmarks/secrets_mnist.json: `run` needs no
accountant. Every run is written to FOLDER/runs.jsonl as it ends, with the test accuracy of the
released model (an average of all agents' messages; release/readouts.py). It ends by itself before
--seconds: what is left over is named, and the same command goes on with it.

    central      a trusted server with all records
    hostile      no secrets: the budget holds whatever all others do
    qN           secrets between every two agents, planned for N colluders
    wide         a tenth of the records in a batch, instead of a twentieth
    correlated   noise correlated over time (banded, as wide as the distance between two uses of a
                 record) on cyclic batches; otherwise every record enters a batch by a secret coin

--rounds and --records make tiny versions of the cases, with the noise of the whole ones: they show
that it runs, and their accuracy means nothing.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from scipy import sparse

import hearsay as hs
from hearsay.graphs import Graph
from hearsay.release.readouts import Exponential, Tail, read
from hearsay.simulation.memory import fitted
from hearsay.simulation.rounds import Rounds
from hearsay.simulation.simulating import enable_compilation_cache

DELTA, RECORDS = 1e-5, 60_000
READ_OUTS = (Tail(0.25), Exponential(0.98))
PREPARED = Path(__file__).with_suffix(".json")
CHUNK = 100  # rounds between two looks at the clock


@dataclass(frozen=True)
class Case:
    """One line of the table.

    Args:
      agents: how many share the records.
      epsilon: of every agent.
      colluders: planned for; None: no secrets.
      step: the size of a step, unless told otherwise.
      rounds: messages of each agent.
      rate: the share of its records in a batch.
      talk: who hears whom.
      averaging: exchanges after a message (with Chebyshev's weights on a ring).
      ratio: of shared to own noise.
      correlated: over time.
    """

    agents: int
    epsilon: float
    colluders: int | None = None
    step: str = "8*(k+1)^-0.2"
    rounds: int = 400
    rate: float = 0.05
    talk: str = "complete"
    averaging: int = 1
    ratio: float = 10**0.5
    correlated: bool = False


CASES = {
    "20-q10": Case(20, 1.0, 10, "6*(k+1)^-0.2"),
    "20-q0": Case(20, 1.0, 0),
    "central": Case(1, 1.0),
    "20-hostile": Case(20, 1.0, None, "3*(k+1)^-0.2"),
    "20-q10-wide": Case(20, 1.0, 10, "6*(k+1)^-0.2", rate=0.1),
    "20-q0-wide": Case(20, 1.0, 0, rate=0.1),
    "central-wide": Case(1, 1.0, rate=0.1),
    "5-ring-q1": Case(5, 3.0, 1, talk="ring", averaging=4),
    "5-ring-hostile": Case(5, 3.0, None, "5*(k+1)^-0.2", talk="ring", averaging=4),
    "central-eps3": Case(1, 3.0),
    "100-q50": Case(100, 1.0, 50, "6*(k+1)^-0.2"),
    "100-q0": Case(100, 1.0, 0),
    "100-hostile": Case(100, 1.0, None, "1.5*(k+1)^-0.2"),
    "central-eps8": Case(1, 8.0, rounds=2000),
    "central-eps8-wide": Case(1, 8.0, rounds=2000, rate=0.1),
    "20-q0-correlated-eps8": Case(20, 8.0, 0, rounds=2000, ratio=10.0, correlated=True),
    "20-q10-correlated-eps8": Case(20, 8.0, 10, rounds=2000, ratio=10.0, correlated=True),
    "5-q1-correlated-eps8": Case(5, 8.0, 1, rounds=2000, ratio=10.0, correlated=True),
    "20-q0-eps8": Case(20, 8.0, 0, rounds=2000, ratio=10.0),
}


def algorithm(case: Case, step: str, noise: float, records: int) -> Any:
    several, size = case.agents > 1, round(case.rate * records / case.agents)
    over_time: dict[str, Any] = {"sampling": hs.Poisson(case.rate)}
    if case.correlated:
        over_time = {
            "sampling": hs.Cyclic(size),
            "correlation": "banded",
            "width": round(1 / case.rate),
            "horizon": case.rounds,
        }
    secrets = None
    if case.colluders is not None:
        secrets = hs.Secrets(case.colluders, ratio=case.ratio, graph="complete")
    return hs.gradient_perturbation(
        step=step,
        coupling=0.99,
        noise=noise,
        mechanism="gaussian",
        averaging=case.averaging if several else 0,
        chebyshev=several and case.talk == "ring",
        secrets=secrets,
        **over_time,
    )


def problem(case: Case, records: int, data: str | None) -> Any:
    return hs.problems.neural(
        "mnist",
        model="cnn-p4",
        agents=case.agents,
        clip=1.0,
        records=records,
        adjacency="zero-out",
        data_dir=data,
        seed=0,
    )


def talking(case: Case) -> Graph:
    if case.agents == 1:
        return Graph(sparse.csr_array((1, 1)), "alone")
    return hs.graphs.ring(case.agents) if case.talk == "ring" else hs.graphs.complete(case.agents)


def prepare(names: list[str], data: str | None) -> None:
    """Noise and budgets of the cases, into the file beside this one."""
    known = json.loads(PREPARED.read_text()) if PREPARED.exists() else {}
    for name in names:
        case, began = CASES[name], time.perf_counter()
        task, graph = problem(case, RECORDS, data).task, talking(case)
        ready = hs.calibrate(
            algorithm(case, case.step, 1.0, RECORDS),
            task,
            graph,
            case.rounds,
            case.epsilon,
            delta=DELTA,
        )
        found = hs.certify(ready, task, graph, case.rounds, delta=DELTA)
        curve = {str(point.colluders): point.epsilon for point in found.budgets[0].curve}
        known[name] = {
            "case": asdict(case),
            "noise": float(ready.noise_for(0)(0)),
            "certified": max(found.epsilon),
            "curve": curve,
        }
        PREPARED.write_text(json.dumps(known, indent=1) + "\n")
        print(f"{name}: {known[name]} ({time.perf_counter() - began:.0f} s)", flush=True)


def run(
    name: str, step: str, seeds: list[int], arguments: Any, left: float
) -> dict[str, Any] | None:
    """What the case's released model is worth; None where the time does not suffice."""
    case, kept = CASES[name], json.loads(PREPARED.read_text())[name]
    if {key: value for key, value in kept["case"].items() if key != "step"} != {
        key: value for key, value in asdict(case).items() if key != "step"
    }:
        raise ValueError(f"{PREPARED.name} must be of the case as it is, prepare {name} again")
    began = time.perf_counter()
    rounds = arguments.rounds or case.rounds
    records = arguments.records or RECORDS
    task = problem(case, records, arguments.data)
    ready = algorithm(case, step, kept["noise"], records)
    task = fitted(ready, task)
    network = Rounds(ready, task, talking(case), seeds, readouts=READ_OUTS)
    first = each = 0.0
    while network.step < rounds:
        start, size = time.perf_counter(), min(CHUNK, rounds - network.step)
        network.advance(size)
        network.models.block_until_ready()
        # The first one was compiled on the way.
        each = (time.perf_counter() - start) / size if first else 0.0
        first = first or time.perf_counter() - start
        if time.perf_counter() - began + each * (rounds - network.step) > left:
            print(f"{name}: stopped in round {network.step}, {each:.3f} s a round", flush=True)
            return None
    slots = np.asarray(network.carry.kept.slots)
    messages = read(network.readouts, slots, network.step, axis=1)
    predicted = jax.jit(lambda model, images: task.loss.scores(model, images).argmax(axis=1))
    images = np.array_split(task.test_features, 10)

    def score(model: np.ndarray) -> float:
        found = np.concatenate([predicted(model, block) for block in images])
        return float(np.mean(found == task.test_labels))

    return {
        "name": name,
        "step": step,
        "seeds": seeds,
        "rounds": rounds,
        "records": records,
        "released": {
            kind: [score(model.mean(axis=0)) for model in models]
            for kind, models in messages.items()
        },
        "own": [score(np.asarray(models[0])) for models in network.models],
        "disagreement": float(np.std(np.asarray(network.models), axis=1).mean()),
        "first_chunk_s": round(first, 1),
        "ms_per_round": round(1000 * each, 1),
        "seconds": round(time.perf_counter() - began, 1),
        "device": jax.devices()[0].device_kind,
    }


def show(folder: Path) -> str:
    """One line per run and read-out."""
    prepared = json.loads(PREPARED.read_text())
    lines = [
        f"{'case':<24} {'epsilon':>8} {'all collude':>11}  {'step':<14} {'seeds':<8}"
        f" {'read-out':<12} released (least to most)    own"
    ]
    for line in (folder / "runs.jsonl").read_text().splitlines():
        one = json.loads(line)
        kept = prepared[one["name"]]
        # Without secrets a budget holds against all others anyway; a server is trusted.
        worst = max(kept["curve"].values(), default=kept["certified"])
        worst = "-" if kept["case"]["agents"] == 1 else f"{worst:.4g}"
        for kind, each in one["released"].items():
            lines.append(
                f"{one['name']:<24} {kept['certified']:>8.6f} {worst:>11}  {one['step']:<14}"
                f" {one['seeds'][0]}-{one['seeds'][-1]:<5} {kind:<12} {np.mean(each):.4f}"
                f" ({min(each):.4f} to {max(each):.4f})  {np.mean(one['own']):.4f}"
            )
    return "\n".join(lines)


def run_all(arguments: Any) -> None:
    """All that is asked for and not there yet, while the time lasts."""
    enable_compilation_cache()
    arguments.out.mkdir(parents=True, exist_ok=True)
    path, began, left_out = arguments.out / "runs.jsonl", time.perf_counter(), []
    there = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    done = {(one["name"], one["step"], tuple(one["seeds"])) for one in there}
    with path.open("a") as file:
        for name in arguments.cases:
            for step in arguments.steps or [CASES[name].step]:
                left = arguments.seconds - (time.perf_counter() - began)
                if (name, step, tuple(arguments.seeds)) in done:
                    continue
                found = run(name, step, arguments.seeds, arguments, left) if left > 0 else None
                if found is None:
                    left_out.append(f"{name} with step {step}")
                    continue
                print(json.dumps(found), file=file, flush=True)
                print(found, flush=True)
    print(show(arguments.out))
    if left_out:
        print(f"no time left for {', '.join(left_out)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb in ("prepare", "run", "show"):
        one = verbs.add_parser(verb)
        if verb == "show":
            one.add_argument("folder", type=Path)
            continue
        one.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES))
        one.add_argument("--data", default=None, help="folder of the raw files")
        if verb == "run":
            one.add_argument("--out", type=Path, required=True)
            one.add_argument("--seeds", type=int, nargs="+", default=[10, 11, 12])
            one.add_argument("--steps", nargs="+", default=None, help="numbers or schedules")
            one.add_argument("--seconds", type=float, default=550)
            one.add_argument("--rounds", type=int, default=None)
            one.add_argument("--records", type=int, default=None)
    arguments = parser.parse_args()
    if arguments.verb == "prepare":
        prepare(arguments.cases, arguments.data)
    elif arguments.verb == "show":
        print(show(arguments.folder))
    else:
        run_all(arguments)


if __name__ == "__main__":
    main()
