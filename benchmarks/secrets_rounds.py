"""What shared secrets cost a simulated round: python -m benchmarks.secrets_rounds [--quick]

A round of five agents that share noise with each other, beside one without, at
d = 100,000. Both run in turn on the same data; the best of several.
"""

from __future__ import annotations

import sys
import time

import jax
import numpy as np

import hearsay as hs
from hearsay.simulation.rounds import Rounds

AGENTS, D, RECORDS = 5, 100_000, 40
REPEATS, ROUNDS = (3, 5) if "--quick" in sys.argv else (12, 20)


def problem() -> hs.problems.Problem:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(AGENTS * RECORDS, D)).astype(np.float32)
    features /= np.linalg.norm(features, axis=1, keepdims=True) * (1 + 1e-6)
    data = hs.problems.from_arrays(features, rng.integers(0, 2, len(features)), feature_bound=1.0)
    return hs.problems.logistic(data, agents=AGENTS, clip=1.0)


def simulated() -> None:
    """Milliseconds of a round with and without secrets."""
    task, graph = problem(), hs.graphs.complete(AGENTS)
    cases = {"without secrets": None, "with secrets": hs.Secrets(colluders=1, graph="complete")}
    networks, best = {}, dict.fromkeys(cases, np.inf)
    for name, secrets in cases.items():
        algorithm = hs.gradient_perturbation(
            noise=1.0, mechanism="gaussian", step=0.1, sampling=hs.Cyclic(8), secrets=secrets
        )
        networks[name] = Rounds(algorithm, task, graph, [0])
        networks[name].advance(ROUNDS)
    for _ in range(REPEATS):
        for name, network in networks.items():
            jax.block_until_ready(network.carry)
            began = time.perf_counter()
            network.advance(ROUNDS)
            jax.block_until_ready(network.carry)
            best[name] = min(best[name], (time.perf_counter() - began) / ROUNDS)
    print(f"simulated, complete graph of {AGENTS}, d = {D:,}, per round:")
    for name, seconds in best.items():
        print(f"  {name:<16} {1000 * seconds:8.2f} ms")
    print(f"  ratio            {best['with secrets'] / best['without secrets']:8.2f}")


def main() -> None:
    simulated()


if __name__ == "__main__":
    main()
