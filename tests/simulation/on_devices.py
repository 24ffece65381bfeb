"""What the processes of test_devices.py run: `python -m tests.simulation.on_devices FOLDER STEPS
CASE ...` simulates each case up to so many steps on all devices of all processes, with a checkpoint
in FOLDER/CASE that it continues if there is one, and leaves what it found as FOLDER/CASE.npz.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np

import hearsay as hs
from hearsay.simulation import checkpoint, shared
from hearsay.simulation.processes import join

AGENTS, SEEDS, EVERY = 9, 2, 2
SECRET = {"mechanism": "gaussian", "secrets": hs.Secrets(colluders=2)}
CASES: dict[str, Any] = {
    "P1": lambda: hs.ldp_online(noise=0.1),
    "P2": lambda: hs.gradient_tracking(noise=0.1),
    "P3": lambda: hs.output_perturbation(noise=0.1, sampling=hs.Cyclic("(k+1)^0.6")),
    "P4": lambda: hs.correlated_federated(noise=0.1, sampling=hs.Cyclic(1), horizon=40),
    "secrets": lambda: hs.dsgd(noise=0.1, **SECRET),
    "pairs": lambda: hs.dsgd(noise=0.1, **SECRET),
    "gossip": lambda: hs.asynchronous_gossip(noise=0.1),
    "network": lambda: hs.dsgd(noise=0.01, mechanism="gaussian", sampling=hs.Cyclic(2)),
}


def problem(case: str) -> Any:
    if case == "network":
        return hs.problems.neural("digits", model="mlp", agents=AGENTS, clip=0.5)
    return hs.problems.ridge(agents=AGENTS, records=12, dimension=3, seed=1)


def simulated(case: str, steps: int, folder: Path | None = None, **options: Any) -> hs.Run:
    algorithm, usual = CASES[case](), shared.MIXED
    # As where there are very many agents.
    shared.MIXED = 1 if case == "pairs" else usual
    try:
        return hs.simulate(
            algorithm,
            problem(case),
            hs.graphs.random(AGENTS, degree=4),
            steps=steps,
            seeds=SEEDS,
            every=EVERY,
            delta=None if algorithm.mechanism == "laplace" else 1e-5,
            spread=0.5,
            folder=folder,
            resume=folder is not None and checkpoint.exists(folder),
            **options,
        )
    finally:
        shared.MIXED = usual


def numbers(run: hs.Run) -> dict[str, np.ndarray]:
    """All that a run found, by name."""
    return {"models": run.models, **run.averages, **run.metrics}


def main(folder: Path, steps: int, cases: list[str]) -> None:
    jax.config.update("jax_enable_x64", True)
    join()
    for case in cases:
        run = simulated(case, steps, folder / case, devices="all")
        np.savez(folder / f"{case}-{jax.process_index()}.npz", **numbers(run))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
