"""The simulator on whatever device jax finds: python -m benchmarks.device.

Checks it against a CPU run of the same seeds, then times it.
"""

from __future__ import annotations

import time

import jax
import numpy as np

import hearsay as hs
from hearsay.problems.data.datasets import from_arrays


def problem(agents: int, records: int, d: int) -> hs.problems.Problem:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(agents * records * 5 // 4, d))
    labels = (features @ rng.normal(size=d) > 0).astype(float)
    return hs.problems.logistic(from_arrays(features, labels, feature_bound=1.0), agents=agents)


def main() -> None:
    device = jax.devices()[0]
    print(f"jax {jax.__version__}, {device.platform} {device.device_kind}")
    algorithm = hs.ldp_online(noise=hs.PowerLaw(0.1, 0.1))
    small, ring = problem(5, 300, 50), hs.graphs.ring(5)
    ours = hs.simulate(algorithm, small, ring, steps=200, seeds=3)
    with jax.default_device(jax.devices("cpu")[0]):
        there = hs.simulate(algorithm, problem(5, 300, 50), ring, steps=200, seeds=3)
    gap = np.abs(ours.models - there.models).max() / np.abs(there.models).max()
    print(f"200 steps, 3 seeds, against the CPU: largest relative difference {gap:.1e} (float32)")
    print(
        f"certificate: {ours.certificate.epsilon[0]:.4f}; infinite horizon"
        f" {hs.certify(algorithm, small, ring, float('inf')).epsilon[0]:.4f}"
    )
    for agents, d, seeds, steps in ((5, 117, 20, 2000), (1000, 100, 1, 200), (1000, 1000, 1, 200)):
        case = problem(agents, 250 if agents > 5 else 2100, d)
        graph = hs.graphs.ring(agents) if agents < 10 else hs.graphs.random(agents, degree=6)
        chosen = hs.ldp_online(
            noise=hs.PowerLaw(0.1, 0.1), sampling=hs.Fresh() if agents < 10 else hs.History()
        )
        times = []
        for _ in range(3):
            began = time.perf_counter()
            hs.simulate(
                chosen,
                case,
                graph,
                steps=steps,
                seeds=seeds,
                every=steps,
                reference=False,
                regret=False,
            )
            times.append(time.perf_counter() - began)
        print(
            f"{agents} agents, d = {d}, {seeds} seeds, {steps} steps: first {times[0]:.2f} s, then"
            f" {min(times[1:]):.3f} s"
        )


if __name__ == "__main__":
    main()
