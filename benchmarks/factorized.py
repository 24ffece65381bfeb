"""Correlated noise: error of the factorizations, time per round and memory of the streams: python
-m benchmarks.factorized [--quick]

Every stream runs in a process of its own, one after the other, so that its peak memory is its
own. jax-privacy's streaming noise runs beside ours where that library can be imported (pip install
jax-privacy==2.0.0); ratios are what counts.
"""

from __future__ import annotations

import gc
import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hearsay.mechanisms.factorized.kinds import FACTORIZATIONS, factorization
from hearsay.mechanisms.factorized.stream import noise_stream

D, R, BANDS = 62_000, 1000, 16
QUICK = "--quick" in sys.argv
OURS = ("identity", "tree", "toeplitz", "dense", "blt", "banded")
# Rounds to time: theirs cost too much to run all of them.
THEIRS = {"toeplitz": 20, "dense": 9, "blt": 200}
DENSE_SECONDS = 30.0


def main() -> None:
    error_table([64, 256, 1000] if QUICK else [64, 128, 256, 512, 1000, 1024, 2048, 4096, 8192])
    print(
        f"\nstreams, d = {D:,}, R = {R}, float32, {os.cpu_count()} cores, load"
        f" {os.getloadavg()[0]:.1f}:"
    )
    print(f"  {'':<24}{'ms per round':>14}{'slowest round':>16}{'peak MB':>10}")
    ours = {name: measured("ours", name) for name in OURS}
    if importlib.util.find_spec("jax_privacy") is None:
        print("  jax-privacy is not installed here: nothing to compare with")
        return
    theirs = {name: measured("jax-privacy", name) for name in THEIRS}
    print("ours as a part of jax-privacy's cost:")
    for name, other in (
        ("tree", "toeplitz"),
        ("toeplitz", "toeplitz"),
        ("dense", "dense"),
        ("blt", "blt"),
    ):
        time_share, space_share = (ours[name][key] / theirs[other][key] for key in ("mean", "peak"))
        print(
            f"  {name:<9} beside its {other:<9} time 1 / {1 / time_share:<6.1f} memory 1 /"
            f" {1 / space_share:.1f}"
        )


def error_table(horizons: list[int]) -> None:
    print("sensitivity x root-mean-square error of the prefix sums, one participation:")
    print(
        f"  {'R':>6}"
        + "".join(f"{name:>12}" for name in (*FACTORIZATIONS, "blt mean", "dense [s]"))
    )
    predicted, previous = 0.0, 0
    for rounds in horizons:
        row = {}
        for name in FACTORIZATIONS:
            if name == "dense":
                if rounds > 1000 and predicted * (rounds / previous) ** 3 > DENSE_SECONDS:
                    continue
                began = time.perf_counter()
            case = factorization(name, rounds, **({"bands": BANDS} if name == "banded" else {}))
            row[name] = f"{case.sensitivity * case.error():.4f}"
            if name == "dense":
                predicted, previous = time.perf_counter() - began, rounds
                row["dense [s]"] = f"{predicted:.1f}"
        mean = factorization("blt", rounds, objective="mean")
        row["blt mean"] = f"{mean.sensitivity * mean.error():.4f}"
        columns = (*FACTORIZATIONS, "blt mean", "dense [s]")
        print(
            f"  {rounds:>6}" + "".join(f"{row.get(name, '-'):>12}" for name in columns), flush=True
        )
    print(
        f"  (banded: {BANDS} bands; blt: 4 buffers; dense where it is expected to take less than"
        f" {DENSE_SECONDS:g} s)"
    )


def measured(whose: str, name: str) -> dict[str, float]:
    # Large arrays straight from the system and straight back, so that the peak is that of
    # arrays in use.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}
    command = [
        sys.executable,
        "-m",
        "benchmarks.factorized",
        "--case",
        whose,
        name,
        *(["--quick"] if QUICK else []),
    ]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise RuntimeError(done.stderr)
    found = json.loads(done.stdout.splitlines()[-1])
    print(
        f"  {whose + ' ' + name:<24}{found['mean'] * 1e3:>14.2f}"
        f"{found['slowest'] * 1e3:>16.1f}{found['peak']:>10.0f}",
        flush=True,
    )
    return found


def one_case(whose: str, name: str) -> None:
    """Compile on a first stream, then time a second one and watch its memory."""
    begin, rounds = our_streams(name) if whose == "ours" else their_streams(name)
    step = begin()
    for r in range(2):
        jax.block_until_ready(step(r))
    del step
    gc.collect()
    before = memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    step, times = begin(), []
    for r in range(rounds):
        began = time.perf_counter()
        jax.block_until_ready(step(r))
        times.append(time.perf_counter() - began)
    print(
        json.dumps(
            {"mean": float(np.mean(times)), "slowest": max(times), "peak": memory("VmHWM") - before}
        )
    )


def memory(field: str) -> float:
    """Megabytes (10^6)."""
    status = Path("/proc/self/status").read_text()
    return int(status.split(field + ":")[1].split()[0]) * 1024 / 1e6


Step = Callable[[int], Any]


def our_streams(name: str) -> tuple[Callable[[], Step], int]:
    case = factorization(name, R, **({"bands": BANDS} if name == "banded" else {}))

    def begin() -> Step:
        stream = noise_stream(case, jax.random.key(0), (D,), "float32")
        return lambda r: stream.next()

    return begin, 200 if QUICK else R


def their_streams(name: str) -> tuple[Callable[[], Step], int]:
    """jax-privacy's privatizer, compiled, with its state updated in place;
    the dense one at rounds spread over the whole run.
    """
    from jax_privacy import noise_addition

    privatizer = noise_addition.matrix_factorization_privatizer(
        their_matrix(name), stddev=1.0, prng_key=0
    )
    update = jax.jit(lambda state: privatizer.update(jnp.zeros(D), state), donate_argnums=0)

    def begin() -> Step:
        held = [jax.tree.map(jnp.array, privatizer.init(jnp.zeros(D)))]

        def step(r: int) -> jax.Array:
            state = (
                jnp.asarray((2 * r + 1) * R // (2 * THEIRS["dense"]))
                if name == "dense"
                else held.pop()
            )
            noise, state = update(state)
            held[:] = [state]
            return noise

        return step

    return begin, THEIRS[name]


def their_matrix(name: str) -> Any:
    from jax_privacy.matrix_factorization import buffered_toeplitz, toeplitz

    case: Any = factorization(name, R)
    if name == "dense":
        return jnp.asarray(case.increments(0, R), jnp.float32)
    if name == "toeplitz":
        return toeplitz.inverse_as_streaming_matrix(
            jnp.asarray(case.encoder_coefficients()[: R - 1], jnp.float32)
        )
    poles, zeros = case.poles()
    apart = poles[:, None] - poles + np.eye(len(poles))
    # c_r = sum_i scale_i poles_i^(r-1).
    scale = np.prod(poles[:, None] - zeros, axis=1) / np.prod(apart, axis=1)
    built = buffered_toeplitz.BufferedToeplitz.build(
        buf_decay=poles, output_scale=scale, dtype=jnp.float32
    )
    return built.inverse_as_streaming_matrix()


if __name__ == "__main__":
    if "--case" in sys.argv:
        place = sys.argv.index("--case")
        one_case(*sys.argv[place + 1 : place + 3])
    else:
        main()
