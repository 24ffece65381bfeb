"""Gradient tracking and growing sample sizes, compilation included: python -m benchmarks.tracking

Run it on a quiet machine; an empty compilation cache is used, so that compiling counts.
"""

from __future__ import annotations

import os
import resource
import tempfile
import time
from collections.abc import Callable
from functools import partial

os.environ["HEARSAY_CACHE"] = tempfile.mkdtemp(prefix="hearsay-bench-")

import numpy as np

import hearsay as hs
from hearsay.experiments.p3_estimation import forms
from hearsay.problems.data.datasets import from_arrays
from hearsay.simulation import engine


def timed(name: str, call: Callable[[], object]) -> None:
    traces, began = engine.TRACES["advance"], time.perf_counter()
    call()
    seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"  {name:<72} {seconds:6.1f} s, {engine.TRACES['advance'] - traces} compilation(s), peak"
        f" {peak:.2f} GiB"
    )


def main() -> None:
    rng = np.random.default_rng(0)
    problem, ring = hs.problems.estimation(frozen=True), hs.graphs.ring(6)
    print("growing sample sizes, estimation example, 50 seeds x 2000 steps x 6 agents:")
    for name, algorithm in forms("fresh").items():
        timed(
            f"{name} form, {algorithm.sampling}",
            partial(hs.simulate, algorithm, problem, ring, steps=2000, seeds=50),
        )
    print("gradient tracking:")
    features = rng.normal(size=(5 * 1200, 1000))
    labels = (features @ rng.normal(size=1000) > 0).astype(float)
    wide = hs.problems.logistic(
        from_arrays(features, labels, feature_bound=1.0, test_fraction=0.1), agents=5
    )
    tracking = hs.gradient_tracking(sampling=hs.Cyclic(53))
    timed(
        "5 agents, d = 1000, 2000 steps, batch 53, logistic",
        lambda: hs.simulate(tracking, wide, hs.graphs.five_agents(), steps=2000),
    )
    many = hs.problems.logistic(
        from_arrays(
            rng.normal(size=(500 * 20, 100)), rng.integers(0, 2, 500 * 20), feature_bound=1.0
        ),
        agents=500,
    )
    small = hs.gradient_tracking(sampling=hs.Cyclic(5))
    for degree in (4, 8, 16):
        graph = hs.graphs.random_digraph(500, degree=degree)
        name = f"500 agents, d = 100, 1000 steps, {graph.edges} + {graph.pushed.nnz} edges"
        timed(
            name,
            partial(hs.simulate, small, many, graph, steps=1000, reference=False, regret=False),
        )


if __name__ == "__main__":
    main()
