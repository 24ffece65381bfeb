"""What runs cost on a slow network, and how fast that is worked out.

python -m benchmarks.costs --figure docs/results/costs.png
    ways to learn at the same epsilon, against rounds, simulated seconds and bytes
python -m benchmarks.costs --clock [--agents 100000] [--rounds 1000]
    seconds that the simulated clock takes: constant costs, drawn ones, and with patience
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from scipy import sparse

import hearsay as hs
from hearsay.graphs import Graph
from hearsay.report import plots
from hearsay.report.costs import along_bytes, along_seconds, cost_table, main_metric
from hearsay.report.plot_style import styled
from hearsay.tradeoff import rule, series

EPSILON, DELTA, AGENTS = 4.0, 1e-5, 10
# Telephones: a line of a megabit a second, and one in six takes twice as long as most.
COSTS = hs.Costs(
    latency="lognormal:0.05:0.5:0.3", bandwidth=1.25e5, compute="lognormal:0.2:0.7:0.2"
)


def ways(problem: Any) -> dict[str, tuple[Any, Graph, int]]:
    """(algorithm, graph, rounds) by name, all with settings from the same rule."""
    ring, complete = hs.graphs.ring(AGENTS), hs.graphs.complete(AGENTS)
    chosen = rule.setting(problem, ring, EPSILON, DELTA)
    plain = replace(rule.noisy_gradient(chosen), averaging=0, chebyshev=False)
    averaged = replace(plain, averaging=chosen.averaging or 3, chebyshev=True)
    server = series.correlated_federated(problem.task, complete, chosen, 0.3)
    tracking = series.gradient_tracking(problem.task, ring, chosen, 0.6)
    return {
        "ring": (plain, ring, chosen.rounds),
        f"ring, {averaged.averaging} relays": (averaged, ring, chosen.rounds),
        "all hear all": (plain, complete, chosen.rounds),
        "server (P4)": (server, complete, chosen.rounds),
        "ring, tracking (P2)": (tracking, ring, chosen.rounds),
    }


def figure(path: str) -> None:
    data = hs.problems.logistic("breast-cancer", agents=AGENTS, adjacency="zero-out")
    problem = rule.prepared(data)
    runs, timelines = {}, {}
    for name, (algorithm, graph, rounds) in ways(problem).items():
        noisy = hs.calibrate(algorithm, problem, graph, rounds, EPSILON, delta=DELTA)
        run = hs.simulate(
            noisy, problem, graph, steps=rounds, seeds=10, every=1, delta=DELTA, reference=False
        )
        runs[name], timelines[name] = run, run.costs(COSTS)
    caption, header, rows = cost_table(runs, timelines)
    print(f"{caption}\n| {' | '.join(header)} |\n|{'---|' * len(header)}")
    for row in rows:
        print(f"| {' | '.join(row)} |")
    metric = main_metric(runs)
    assert metric is not None
    drawn = Figure(figsize=(11, 3.2), layout="constrained")
    axes = (None, along_seconds(timelines), along_bytes(timelines))
    for ax, along in zip(drawn.subplots(1, 3), axes, strict=True):
        means = {
            name: replace(
                run,
                seeds=[0],
                raw={n: v.mean(axis=1, keepdims=True) for n, v in run.raw.items()},
            )
            for name, run in runs.items()
        }
        plots.compare(means, metric, ax, along)
    with styled():
        drawn.savefig(path, dpi=120)


def clock(agents: int, rounds: int) -> None:
    rng = np.random.default_rng(0)
    # Everybody hears about six others.
    ends = np.concatenate([[np.arange(agents), rng.permutation(agents)] for _ in range(3)], axis=1)
    ends = ends[:, ends[0] != ends[1]]
    both = np.concatenate([ends, ends[::-1]], axis=1)
    weights = sparse.csr_array((np.full(both.shape[1], 0.1), tuple(both)), shape=(agents,) * 2)
    small = hs.problems.ridge(agents=2, records=20, dimension=100).task
    task = replace(small, counts=np.full(agents, 10))
    drawn = replace(COSTS, bandwidth="lognormal:1.25e5:0.5")
    cases = {
        "constant": hs.Costs(0.05, 1.25e5, 0.2),
        "drawn, with jitter": drawn,
        "the same with patience": replace(drawn, patience=1.0),
    }
    for name, costs in cases.items():
        began = time.perf_counter()
        line = costs.timeline(hs.dsgd(noise=1.0), task, Graph(weights), rounds)
        seconds = time.perf_counter() - began
        print(f"{name}: {seconds:.1f} s, {1000 * seconds / rounds:.1f} ms a round; {line}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--figure")
    parser.add_argument("--clock", action="store_true")
    parser.add_argument("--agents", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=1000)
    given = parser.parse_args()
    if given.figure:
        figure(given.figure)
    if given.clock:
        clock(given.agents, given.rounds)


if __name__ == "__main__":
    main()
