"""What shared secrets cost in time, in one run: python -m benchmarks.secrets [--quick]

Simulated: a round of five agents that share noise with each other, beside one without, at
d = 100,000. Both run in turn on the same data; the best of several.

Deployed: numbers a second and core of the noise that both ends of a pair draw from their key,
beside the stream of bits alone and beside the noise that an agent draws for itself; then the noise
of a whole message. CPU time of one thread, the best of several.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable

import jax
import numpy as np

import hearsay as hs
from hearsay.mechanisms import lattice, shared_lattice
from hearsay.mechanisms.lattice import Key
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


def deployed() -> None:
    """Millions of numbers a second and core, and milliseconds of a message."""
    key, own, count = os.urandom(32), Key.fresh(), 10**6
    print("deployed, million numbers a second and core:")
    for exponent, factor in ((36, 1.0), (36, 1.03), (40, 1.99), (48, 1.0)):
        scale = 2.0**exponent * factor
        seconds = processor(lambda scale=scale: shared_lattice.shared_noise(key, scale, count))
        print(f"  shared, scale {factor:<4g} 2^{exponent} {count / seconds / 1e6:8.1f}")
    seconds = processor(lambda: stream(key, count))
    print(f"  its bits alone         {count / seconds / 1e6:8.1f}")
    seconds = processor(lambda: lattice.discrete_gaussian(own, 2.0**36, count))
    print(f"  own noise              {count / seconds / 1e6:8.1f}")
    value = np.random.default_rng(0).normal(size=D)
    grid = shared_lattice.common_grid([1.0, 3.2])
    for pairs in (0, 1, 4, 19):
        terms = [(1, 3.2, os.urandom(32)) for _ in range(pairs)]
        seconds = processor(
            lambda terms=terms: shared_lattice.noised_shared(value, 1.0, grid, own, terms)
        )
        print(f"  a message of {D:,} numbers with {pairs:2d} pairs {1000 * seconds:8.1f} ms")


def stream(key: bytes, count: int) -> None:
    bits = shared_lattice._Stream(key)
    for _ in range(count // 2**15 + 1):
        bits.words(2**15)


def processor(call: Callable[[], object]) -> float:
    """CPU seconds, the least of several."""
    call()
    found = []
    for _ in range(REPEATS):
        began = time.process_time()
        call()
        found.append(time.process_time() - began)
    return min(found)


def main() -> None:
    simulated()
    deployed()


if __name__ == "__main__":
    main()
