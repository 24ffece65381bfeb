"""How far one machine goes: python -m benchmarks.scale

1,000 agents on a random 6-regular graph, d = 100, 200 steps: time, peak memory, and the cost of
mixing against the number of edges.
"""

from __future__ import annotations

import resource
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

import hearsay as hs
from hearsay.graphs.channels import Dense, mixer
from hearsay.problems.data.datasets import from_arrays

D, STEPS = 100, 200


def main() -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(1000 * 250, D)).astype(np.float64)
    labels = (features @ rng.normal(size=D) > 0).astype(float)
    problem = hs.problems.logistic(from_arrays(features, labels, feature_bound=1.0), agents=1000)
    del features
    graph = hs.graphs.random(1000, degree=6, seed=0)
    algorithm = hs.ldp_online(noise=hs.PowerLaw(0.1, 0.1))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    began = time.perf_counter()
    run = hs.simulate(
        algorithm, problem, graph, steps=STEPS, every=20, reference=False, regret=False
    )
    seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"1,000 agents, 6-regular, d = {D}, {STEPS} steps, full history: {seconds:.1f} s"
        " (compilation included)"
    )
    print(
        f"peak memory {peak:.2f} GiB ({before:.2f} GiB before the run); accuracy"
        f" {run.final('accuracy')[0]:.3f}"
    )
    mixing()


def mixing() -> None:
    print("mixing one message per agent, d = 100, milliseconds:")
    print(f"{'agents':>8} {'edges':>9} {'sparse':>9} {'dense':>9} {'ns/edge':>9}")
    for agents in (1000, 2000, 4000, 8000):
        graph = hs.graphs.random(agents, degree=6, seed=1)
        values = jnp.asarray(np.random.default_rng(0).normal(size=(agents, D)), jnp.float32)
        sparse = clock(partial(_total, mixer(graph, "mixing", jnp.float32)), values)
        dense = clock(
            partial(_apply, Dense(jnp.asarray(graph.weights.toarray(), jnp.float32))), values
        )
        print(
            f"{agents:8d} {graph.edges:9d} {sparse * 1e3:9.3f} {dense * 1e3:9.3f}"
            f" {sparse / graph.edges * 1e9:9.1f}"
        )


_total = jax.jit(lambda mixer, values: mixer.total(values))
_apply = jax.jit(lambda others, values: others(values))


def clock(function, values: jax.Array) -> float:
    function(values).block_until_ready()
    times = []
    for _ in range(20):
        began = time.perf_counter()
        function(values).block_until_ready()
        times.append(time.perf_counter() - began)
    return min(times)


if __name__ == "__main__":
    main()
