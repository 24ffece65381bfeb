"""Networks of very many agents: how long they compile, and what a round takes.

    python -m benchmarks.many_agents compile [--agents 5 100] [--rounds 5]
    python -m benchmarks.many_agents linear [--agents 100 1000 10000 100000] [--dimension 100]
        [--secrets]
    python -m benchmarks.many_agents prepare
    python -m benchmarks.many_agents networks [--agents 1000] [--rounds 400] [--data FOLDER]

Each takes --out FOLDER, where its results are written line by line as they come, and --minutes,
before which it ends by itself, with what is left out named.

    compile    cnn-p4 on random images, batches of 8: seconds to compile, and of a round
    linear     logistic regression, 5 records for each agent, one of them in a batch, Gaussian
               noise, a 6-regular graph, the usual read-out; --secrets: shared over the same graph
    networks   cnn-p4 on MNIST, 60 records for each agent and every one of them clipped, secrets and
               messages over a 6-regular graph with 8 averaging exchanges, zero-out adjacency,
               epsilon = 1 at delta = 1e-5 against 2 colluders
    prepare    the noise for that, and what it costs against other numbers of colluders, into the
               file beside this one: `networks` needs no accountant
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

import hearsay as hs
from hearsay.problems.data.holdings import Facts
from hearsay.problems.data.images import Images
from hearsay.problems.data.records import Records
from hearsay.problems.linear import logistic_task
from hearsay.problems.problem import holding
from hearsay.release.readouts import USUAL, Exponential, Tail, read
from hearsay.simulation.memory import fitted, summary
from hearsay.simulation.rounds import Rounds

PREPARED = Path(__file__).with_suffix(".json")
EPSILON, DELTA, COLLUDERS, RATIO = 1.0, 1e-5, 2, 30.0
RECORDS, RATE, EXCHANGES = 60, 0.05, 8


class Notes:
    """Results, on the screen and in a file, and the clock."""

    def __init__(self, options: Any) -> None:
        self.began, self.seconds = time.perf_counter(), 60 * options.minutes
        self.file = None
        if options.out is not None:
            options.out.mkdir(parents=True, exist_ok=True)
            self.file = (options.out / f"{options.part}.jsonl").open("a")

    def write(self, **found: Any) -> None:
        line = json.dumps({**found, "device": jax.devices()[0].device_kind})
        print(line, flush=True)
        if self.file is not None:
            print(line, file=self.file, flush=True)

    @property
    def left(self) -> float:
        return self.seconds - (time.perf_counter() - self.began)


def peak_gib() -> float:
    """Of the device's memory where it has its own, else of the process; so far."""
    stats = jax.devices()[0].memory_stats() or {}
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return round(stats.get("peak_bytes_in_use", most) / 2**30, 2)


def advanced(network: Rounds, count: int, clock: Any = time.perf_counter) -> float:
    """How long so many rounds take."""
    began = clock()
    network.advance(count)
    network.models.block_until_ready()
    return clock() - began


def compile_times(options: Any, notes: Notes) -> None:
    """Of the whole program of a round."""
    for agents in options.agents or (5, 100):
        rng = np.random.default_rng(0)
        features = rng.integers(0, 256, (agents * RECORDS, 28, 28, 1)).astype(np.uint8)
        labels = rng.integers(0, 10, agents * RECORDS)
        images = Images("random bytes", features, labels, features[:100], labels[:100], 10)
        problem = hs.problems.neural(images, model="cnn-p4", agents=agents, clip=1.0)
        algorithm = hs.gradient_perturbation(
            step=1.0, noise=0.1, mechanism="gaussian", sampling=hs.Cyclic(8)
        )
        network = Rounds(algorithm, fitted(algorithm, problem), hs.graphs.ring(agents), [0])
        first = advanced(network, 1)
        each = min(advanced(network, 1) for _ in range(options.rounds or 5))
        notes.write(
            part="compile",
            agents=agents,
            compile_s=round(first - each, 2),
            round_s=round(each, 4),
            peak_gib=peak_gib(),
        )


def linear_problem(agents: int, dimension: int) -> hs.problems.Problem:
    """Records of length 1, labelled by a plane with some labels wrong."""
    rng, held = np.random.default_rng(0), 5
    features = rng.standard_normal((agents, held, dimension), np.float32).astype(float)
    features /= np.linalg.norm(features, axis=2, keepdims=True) * (1 + 1e-9)
    truth = rng.standard_normal(dimension)
    labels = (features @ truth + 0.3 * rng.standard_normal((agents, held)) > 0).astype(float)
    counts = np.full(agents, held)
    task = logistic_task(Facts("plane", (dimension,), counts, 1.0, 1.0))
    tested = rng.standard_normal((1000, dimension))
    tested /= np.linalg.norm(tested, axis=1, keepdims=True) * (1 + 1e-9)
    right = (tested @ truth > 0).astype(float)
    return holding(task, Records(features, labels, counts), tested, right)


def linear(options: Any, notes: Notes) -> None:
    """The time of a round, by the number of agents."""
    for agents in options.agents or (100, 1000, 10_000, 100_000):
        if notes.left < 0:
            print(f"no time left for {agents} agents", flush=True)
            continue
        began = time.perf_counter()
        graph = hs.graphs.random(agents, degree=6, seed=0)
        drawn = time.perf_counter() - began
        problem = linear_problem(agents, options.dimension)
        algorithm = hs.gradient_perturbation(
            step=2.0,
            noise=0.2,
            mechanism="gaussian",
            sampling=hs.Cyclic(1),
            secrets=hs.Secrets(1, ratio=3.0, graph=graph) if options.secrets else None,
        )
        network = Rounds(algorithm, problem, graph, [0], readouts=USUAL)
        network.models.block_until_ready()
        built = time.perf_counter() - began
        first = advanced(network, 10)
        # A second of work at a time, so that small networks are not all dispatch.
        chunk = int(min(max(10, 10 / advanced(network, 10)), 1000))
        warm = advanced(network, chunk)
        times = [warm, *(advanced(network, chunk) for _ in range(2 if warm < 5 else 1))][1:]
        slots = np.asarray(network.carry.kept.slots)
        model = read(network.readouts, slots, network.step, axis=1)["tail"][0].mean(axis=0)
        margins = problem.test_features @ model
        notes.write(
            part="linear",
            agents=agents,
            dimension=options.dimension,
            secrets=options.secrets,
            graph_s=round(drawn, 2),
            built_s=round(built, 2),
            first_s=round(first, 2),
            round_ms=round(1000 * min(times) / chunk, 4),
            ns_per_agent=round(1e9 * min(times) / chunk / agents, 1),
            # Of all cores together: what other programs on the machine do not change.
            cpu_ms=round(1000 * advanced(network, chunk, time.process_time) / chunk, 4),
            peak_gib=peak_gib(),
            rounds=network.step,
            accuracy=round(float(np.mean((margins > 0) == problem.test_labels)), 4),
        )


def networks_case(agents: int, noise: float, alone: bool = False) -> tuple[Any, hs.graphs.Graph]:
    """The algorithm and who hears whom; `alone`: without secrets."""
    graph = hs.graphs.random(agents, degree=6, seed=0) if not alone else hs.graphs.ring(agents)
    algorithm = hs.gradient_perturbation(
        step="8*(k+1)^-0.2",
        coupling=0.99,
        noise=noise,
        mechanism="gaussian",
        averaging=EXCHANGES,
        chebyshev=True,
        sampling=hs.Poisson(RATE),
        secrets=None if alone else hs.Secrets(COLLUDERS, ratio=RATIO, graph=graph),
    )
    return algorithm, graph


def networks_problem(agents: int, data: str | None) -> hs.problems.Problem:
    return hs.problems.neural(
        "mnist",
        model="cnn-p4",
        agents=agents,
        clip=1.0,
        records=RECORDS * agents,
        adjacency="zero-out",
        data_dir=data,
        seed=0,
    )


def prepare(options: Any, notes: Notes) -> None:
    """The noise of `networks`, and its budgets: those of agents without secrets whose noise is as
    many times louder as secrets are worth to the agent that they are worth least to
    (docs/secrets.md).
    """
    known = json.loads(PREPARED.read_text()) if PREPARED.exists() else {}
    for agents in options.agents or (1000,):
        began, rounds = time.perf_counter(), options.rounds or 400
        shared = networks_case(agents, 1.0)[0].secrets.shared(agents)
        gains = [
            min(shared.gain(agent, count).value for agent in range(agents)) for count in range(6)
        ]
        plain, pair = networks_case(2, 1.0, alone=True)
        task = networks_problem(2, options.data).task
        ready = hs.calibrate(plain, task, pair, rounds, EPSILON, delta=DELTA)
        noise = float(ready.noise_for(0)(0)) / gains[COLLUDERS]

        def epsilon(gain: float) -> float:
            louder = networks_case(2, noise * gain, alone=True)[0]  # noqa: B023
            return max(hs.certify(louder, task, pair, rounds, delta=DELTA).epsilon)  # noqa: B023

        known[str(agents)] = {
            "rounds": rounds,
            "noise": noise,
            "certified": epsilon(gains[COLLUDERS]),
            "curve": {str(count): epsilon(gain) for count, gain in enumerate(gains)},
        }
        PREPARED.write_text(json.dumps(known, indent=1) + "\n")
        seconds = round(time.perf_counter() - began, 1)
        notes.write(part="prepare", agents=agents, seconds=seconds, **known[str(agents)])


def networks(options: Any, notes: Notes) -> None:
    """Networks by the thousand: seconds, and what the released model is worth."""
    for agents in options.agents or (1000,):
        kept = json.loads(PREPARED.read_text())[str(agents)]
        rounds = options.rounds or kept["rounds"]
        algorithm, graph = networks_case(agents, kept["noise"])
        problem = fitted(algorithm, networks_problem(agents, options.data))
        print(summary(algorithm, problem, graph), flush=True)
        began = time.perf_counter()
        network = Rounds(algorithm, problem, graph, [0], readouts=(Tail(0.25), Exponential(0.98)))
        network.models.block_until_ready()
        built, chunk = time.perf_counter() - began, min(options.chunk, rounds)
        first, times = advanced(network, chunk), [0.0]
        while network.step + chunk <= rounds and times[-1] < notes.left:
            times.append(advanced(network, chunk))
        each = min(times[1:], default=first) / chunk
        notes.write(
            part="networks",
            agents=agents,
            rounds=network.step,
            of=rounds,
            built_s=round(built, 2),
            compile_s=round(first - chunk * each, 1),
            running_s=round(chunk * each + sum(times), 1),
            round_ms=round(1000 * each, 1),
            peak_gib=peak_gib(),
            group=problem.loss.group,  # type: ignore[attr-defined]
            epsilon=kept["certified"],
            delta=DELTA,
            **scores(network),
        )


def scores(network: Rounds) -> dict[str, Any]:
    """The test accuracy of the average of all messages, and of some agents' own models."""
    problem = network.problem
    predicted = jax.jit(lambda model, images: problem.loss.scores(model, images).argmax(axis=1))  # type: ignore[attr-defined]

    def score(model: np.ndarray) -> float:
        images = np.array_split(problem.test_features, 10)
        found = np.concatenate([predicted(model, block) for block in images])
        return round(float(np.mean(found == problem.test_labels)), 4)

    slots = np.asarray(network.carry.kept.slots)
    messages = read(network.readouts, slots, network.step, axis=1)
    own = [score(np.asarray(network.models[0, agent])) for agent in range(5)]
    return {
        "released": {kind: score(models[0].mean(axis=0)) for kind, models in messages.items()},
        "own": own,
    }


PARTS = {"compile": compile_times, "linear": linear, "prepare": prepare, "networks": networks}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=list(PARTS))
    parser.add_argument("--agents", type=int, nargs="+", default=None)
    parser.add_argument("--rounds", type=int, default=None)
    parser.add_argument("--dimension", type=int, default=100, help="of linear")
    parser.add_argument("--secrets", action="store_true", help="of linear")
    parser.add_argument("--chunk", type=int, default=20, help="of networks: rounds at a time")
    parser.add_argument("--data", default=None, help="folder of MNIST's raw files")
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--minutes", type=float, default=60.0)
    options = parser.parse_args()
    PARTS[options.part](options, Notes(options))


if __name__ == "__main__":
    main()
