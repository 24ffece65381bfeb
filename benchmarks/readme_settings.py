"""The four settings that README showed before settings were rehearsed, at the same epsilon:

    python -m benchmarks.readme_settings

on the ten digits (softmax) and mushrooms (logistic), five agents in a ring, delta = 1e-5, zero-out;
accuracy of the released model (and of the agents' own), mean over four splits. To be compared with
`python -m benchmarks.tables`, which has no settings at all.
"""

from __future__ import annotations

import numpy as np

import hearsay as hs

DELTA, SPLITS, AGENTS = 1e-5, 4, 5
GROWING = hs.SampleSize(hs.PowerLaw(50.0, 0.5))
SETTINGS = {
    "ldp-online, 100 rounds": (
        hs.ldp_online(
            step=hs.PowerLaw(6.0, -0.77),
            coupling=hs.PowerLaw(0.5, -0.75),
            noise=hs.PowerLaw(1.0, 0.1),
            mechanism="gaussian",
        ),
        100,
        60,
    ),
    "ldp-online, 300 rounds": (
        hs.ldp_online(
            step=hs.PowerLaw(6.0, -0.6), noise=hs.PowerLaw(1.0, 0.1), mechanism="gaussian"
        ),
        300,
        250,
    ),
    "gradient-perturbation, growing samples, 200 rounds": (
        hs.gradient_perturbation(
            step=hs.PowerLaw(4.0, -0.6), mechanism="gaussian", sampling=hs.Cyclic(GROWING)
        ),
        200,
        0,
    ),
    "gradient-perturbation, 200 records, 100 rounds": (
        hs.gradient_perturbation(mechanism="gaussian", sampling=hs.Cyclic(200)),
        100,
        0,
    ),
}
PROBLEMS = {"digits": hs.problems.softmax, "mushrooms": hs.problems.logistic}


def accuracies(data: str, name: str, epsilon: float) -> tuple[float, float]:
    """(of the released model, of the agents' own), over splits."""
    algorithm, rounds, head_start = SETTINGS[name]
    graph, found = hs.graphs.ring(AGENTS), []
    for seed in range(SPLITS):
        keys = {"seed": seed, "head_start": head_start, "adjacency": "zero-out"}
        problem = PROBLEMS[data](data, agents=AGENTS, **keys)
        ready = hs.calibrate(algorithm, problem, graph, rounds, epsilon, delta=DELTA)
        run = hs.simulate(
            ready, problem, graph, steps=rounds, seeds=1, every=rounds, delta=DELTA, regret=False
        )
        found.append([run.final(key)[0] for key in ("released_accuracy", "accuracy")])
    released, own = np.mean(found, axis=0)
    return float(released), float(own)


def main() -> None:
    for data in PROBLEMS:
        for epsilon in (1.0, 2.0):
            for name in SETTINGS:
                released, own = accuracies(data, name, epsilon)
                print(f"{data}, epsilon {epsilon:g}, {name}: {released:.3f} ({own:.3f})")


if __name__ == "__main__":
    main()
