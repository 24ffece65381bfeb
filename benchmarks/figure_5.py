"""Why is P1's method ahead of S2 in paper P2's Fig. 5? The same schedules with one thing changed at
a time, at a size for two CPU cores: python -m benchmarks.figure_5

    python -m benchmarks.figure_5 [--model cnn-p1] [--steps 2000] [--seeds 3] [--runs NAME ...]

MNIST, all records, five agents, as in `hearsay reproduce p2-mnist`, but for the network: one hidden
layer of 16 (12,730 parameters) where the paper has ResNet18, or another one by name. Test accuracy
is of 2,000 records. The two suspects were

    records   P1's method has all records so far in every gradient, S2 has 55
    noise     P1's method takes in its neighbours' noise only, times a small weight; S2 takes in
              that of states over R and that of trackers over C, its own included

Each gets the other's records and weights, and S2's two noises are taken away one by one. Prints a
line per run and writes figure-5.csv (figure-5-MODEL.csv) after each of them.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import hearsay as hs
from benchmarks.results import write
from hearsay.algorithms.gradient_tracking import GradientTracking
from hearsay.algorithms.ldp_online import LdpOnline
from hearsay.algorithms.output_perturbation import OutputPerturbation
from hearsay.base import Algorithm
from hearsay.experiments.images import small_model
from hearsay.experiments.p2_schemes import S2, SETTINGS, as_printed, others
from hearsay.experiments.printed_tracking import PrintedTracking
from hearsay.graphs import Graph
from hearsay.problems import Problem
from hearsay.problems.data.images import load_images
from hearsay.problems.sampling.samplers import Cyclic, History, Subset

HEADER = ["run", "test accuracy", "worst agent", "best on the way", "steps", "seeds", "time"]
NONE = hs.Constant(0.0)
WEIGHTS = (0.03, 0.3)


def runs() -> Iterator[tuple[str, Algorithm, Graph]]:
    """Everything but what a name says is S2's with p = 0.9996, or the weights of Fig. 5."""
    pair, ring = (SETTINGS.graph(name) for name in ("pair", "ring"))
    s2 = as_printed(Cyclic)[S2]
    history, output = others(s2)["ldp-online"], others(s2)["output-perturbation"]
    assert isinstance(s2, GradientTracking)
    assert isinstance(history, LdpOnline) and isinstance(output, OutputPerturbation)
    ours = replace(history, sampling=s2.sampling)
    printed = PrintedTracking(
        step=s2.step, coupling=s2.coupling, tracking=s2.tracking, noise=s2.noise,
        sampling=s2.sampling,
    )  # fmt: skip
    yield "S2", s2, pair
    yield "S2, all records so far", replace(s2, sampling=History()), pair
    yield "S2, records drawn anew", replace(s2, sampling=Subset(s2.sampling.size)), pair
    yield "S2, no noise on states", replace(s2, noise=NONE, tracker_noise=s2.noise), pair
    yield "S2, no noise on trackers", replace(s2, tracker_noise=NONE), pair
    yield "S2, no noise", replace(s2, noise=None, tracker_noise=None), pair
    yield "S2, beta / 10", replace(s2, tracking=s2.tracking.scaled(0.1)), pair
    for weight in WEIGHTS:
        yield f"S2, weights {weight:g}", s2, SETTINGS.graph("pair", weight=weight)
    yield "S2, agents' form (4), (6)", printed, pair
    yield "ldp-online", history, ring
    yield "ldp-online, 55 records", ours, ring
    yield "ldp-online, 55 records, no noise", replace(ours, noise=None), ring
    for weight in WEIGHTS:
        yield (
            f"ldp-online, 55 records, weights {weight:g}",
            ours,
            SETTINGS.graph("ring", weight=weight),
        )
    yield "output-perturbation", output, ring
    yield "output-perturbation, all records so far", replace(output, sampling=History()), ring
    yield "output-perturbation, own noise out again", replace(output, feedback=True), ring


def mnist(model: str | None) -> Problem:
    images = load_images("mnist")
    return hs.problems.neural(
        images,
        model=model or small_model(images.shape, images.classes),
        agents=5,
        clip=None,
        test_records=2000,
    )


def measured(
    name: str, algorithm: Algorithm, graph: Graph, problem: Problem, steps: int, seeds: int
) -> list[str]:
    began = time.perf_counter()
    every = max(1, steps // 8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of the agents' form: it has no certificate
        run = hs.simulate(
            algorithm, problem, graph, steps=steps, seeds=seeds, every=every, regret=False,
            reference=False,
        )  # fmt: skip
    form = "{:.4f} ± {:.4f}" if seeds > 1 else "{:.4f}"
    last = [form.format(*run.final(metric)) for metric in ("accuracy", "accuracy_worst")]
    best = run.metrics["accuracy"].mean(axis=1).max()
    seconds = f"{time.perf_counter() - began:.0f} s"
    return [name, *last, f"{best:.4f}", str(steps), str(seeds), seconds]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--model")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--runs", nargs="+", metavar="NAME")
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    given = parser.parse_args()
    problem, found = mnist(given.model), [HEADER]
    given.out.mkdir(parents=True, exist_ok=True)
    path = given.out / f"figure-5{f'-{given.model}' if given.model else ''}.csv"
    for name, algorithm, graph in runs():
        if given.runs is None or name in given.runs:
            found.append(measured(name, algorithm, graph, problem, given.steps, given.seeds))
            print(*found[-1], sep=", ", flush=True)
            write(path, found)


if __name__ == "__main__":
    main()
