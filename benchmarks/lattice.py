"""Lattice noise, samples a second: python -m benchmarks.lattice [--quick]

A million samples at a time at the scale that is deployed, one thread. OpenDP's samplers run beside
ours where that library can be imported (pip install opendp), turn by turn so that both meet the
same load; NumPy's floating-point samplers show what exactness costs. Ratios are what counts.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from hearsay.mechanisms import MECHANISMS, lattice
from hearsay.mechanisms.lattice import Key

SAMPLERS = {"laplace": lattice.discrete_laplace, "gaussian": lattice.discrete_gaussian}
QUICK = "--quick" in sys.argv
SCALE, COUNT, THEIRS, DIMENSION = 2.0**36 * 1.3, 10**6, 20_000, 62_000
TURNS = 3 if QUICK else 10


def main() -> None:
    print(
        f"million samples a second, scale {SCALE:.3g} grid steps, {os.cpu_count()} cores, load"
        f" {os.getloadavg()[0]:.1f}:"
    )
    print(f"  {'':<10}{'hearsay':>10}{'opendp':>10}{'ratio':>8}{'numpy (not private)':>22}")
    key, rng = Key.fresh(), np.random.default_rng()
    for name, sampler in SAMPLERS.items():
        rivals = {
            "hearsay": (lambda sampler=sampler: sampler(key, SCALE, COUNT), COUNT),
            "numpy": (
                lambda name=name: (rng.laplace if name == "laplace" else rng.normal)(
                    0.0, SCALE, COUNT
                ),
                COUNT,
            ),
        }
        if importlib.util.find_spec("opendp") is not None:
            rivals["opendp"] = (opendp_sampler(name), THEIRS)
        rate = {
            rival: count / seconds / 1e6 for rival, (seconds, count) in turn_by_turn(rivals).items()
        }
        opendp = (
            f"{rate['opendp']:>10.3f}{rate['hearsay'] / rate['opendp']:>8.0f}"
            if "opendp" in rate
            else f"{'-':>10}{'-':>8}"
        )
        print(f"  {name:<10}{rate['hearsay']:>10.2f}{opendp}{rate['numpy']:>22.1f}", flush=True)
    value = rng.normal(size=DIMENSION)
    calls = {
        name: (lambda law=MECHANISMS[name]: law.lattice(value, 0.1, key), 1) for name in SAMPLERS
    }
    times = ", ".join(
        f"{name} {seconds * 1e3:.1f} ms" for name, (seconds, _) in turn_by_turn(calls).items()
    )
    print(f"one message of {DIMENSION:,} coordinates, rounding and sum included: {times}")


def turn_by_turn(rivals: dict[str, tuple[Callable[[], Any], int]]) -> dict[str, tuple[float, int]]:
    """The best time of each, and how many samples it took for."""
    best = dict.fromkeys(rivals, float("inf"))
    for _ in range(TURNS):
        for rival, (call, _count) in rivals.items():
            began = time.perf_counter()
            call()
            best[rival] = min(best[rival], time.perf_counter() - began)
    return {rival: (best[rival], count) for rival, (_call, count) in rivals.items()}


def opendp_sampler(name: str) -> Callable[[], Any]:
    import opendp.prelude as dp

    dp.enable_features("contrib")
    metric = dp.l1_distance(T=int) if name == "laplace" else dp.l2_distance(T=float)
    make = dp.m.make_laplace if name == "laplace" else dp.m.make_gaussian
    measurement, value = make(dp.vector_domain(dp.atom_domain(T=int)), metric, SCALE), [0] * THEIRS
    return lambda: measurement(value)


if __name__ == "__main__":
    main()
