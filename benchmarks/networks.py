"""A training step of neural networks: 5 agents, ResNet18, batch 55, with and without per-record
clipping, against the floor, and the kernels in which its time goes.

    python -m benchmarks.networks [--model resnet18] [--batch 55] [--steps 20]

Floor: the floating-point operations of the five batch gradients (products and convolutions) at
the rate that a large matrix product reaches here. What lies between is in the profile: kernels that
do not fill the device, normalisation and activations (memory-bound), noise, mixing and the update
of five models. "busy" is the time in which some kernel runs.
"""

from __future__ import annotations

import argparse
import collections
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import hearsay as hs
from hearsay.problems.data.images import Images
from hearsay.simulation.engine import one_by_one, together
from hearsay.simulation.session import Session
from hearsay.simulation.side_by_side import side_by_side


def milliseconds(function, *args, repeat: int = 5) -> float:
    jax.block_until_ready(function(*args))
    found = []
    for _ in range(repeat):
        began = time.perf_counter()
        jax.block_until_ready(function(*args))
        found.append(time.perf_counter() - began)
    return 1000 * float(np.median(found))


def product_rate(precision: str, n: int) -> float:
    """Floating-point operations per second of an n x n product."""
    dtype = jnp.bfloat16 if precision == "bfloat16" else jnp.float32
    a = jax.random.normal(jax.random.key(0), (n, n), dtype)
    multiply = jax.jit(
        lambda a: jnp.matmul(a, a, precision=None if precision == "bfloat16" else precision)
    )
    return 2 * n**3 / (milliseconds(multiply, a) / 1000)


def random_images(shape: tuple[int, ...], records: int) -> Images:
    rng = np.random.default_rng(0)
    features, labels = (
        rng.integers(0, 256, (records, *shape)).astype(np.uint8),
        rng.integers(0, 10, records),
    )
    return Images("random bytes", features, labels, features[:100], labels[:100], 10)


def whole_step(problem, batch: int, steps: int) -> Callable[[], jax.Array]:
    """Steps of gradient tracking (both messages noised, mixed and applied)."""
    algorithm = hs.gradient_tracking(
        step=0.05, coupling=0.04, tracking=0.005, sampling=hs.Cyclic(batch)
    )
    graph = hs.graphs.five_agents(weight=0.1)
    session = Session(algorithm, problem, graph, [0], False, False, 0.0, None)

    def run() -> jax.Array:
        session.advance(steps)
        return session.models

    return run


def gradients(problem, batch: int) -> tuple[Callable[[], jax.Array], float]:
    """Five batch gradients as the engine computes them, nothing else; and the floating-point
    operations of five plain ones.
    """
    records = problem.device_records
    features, labels = records.features[:, :batch], records.labels[:, :batch]
    weights = jnp.full((5, batch), 1 / batch, problem.dtype)
    scales = 1 + jnp.arange(5, dtype=problem.dtype)[:, None]
    start = scales * jnp.asarray(problem.start, problem.dtype)
    loss = problem.loss
    each = side_by_side if together() else partial(one_by_one, agents=5)
    five = jax.jit(each(loss.gradient_sum))
    plain = jax.make_jaxpr(replace(loss, clip=None).gradient_sum)(
        start[0], features[0], labels[0], weights[0]
    )
    return lambda: five(start, features, labels, weights), 5 * operations(plain.jaxpr)


def operations(jaxpr) -> float:
    """Floating-point operations of all products and convolutions of a program:
    two for every multiplication.
    """
    total = 0.0
    for equation in jaxpr.eqns:
        inner = [p.jaxpr for p in equation.params.values() if hasattr(p, "jaxpr")]
        total += sum(operations(getattr(one, "jaxpr", one)) for one in inner)
        shapes = [v.aval.shape for v in equation.invars if hasattr(v.aval, "shape")]
        out = float(np.prod(equation.outvars[0].aval.shape))
        if equation.primitive.name == "dot_general":
            total += (
                2
                * out
                * float(
                    np.prod(
                        [shapes[0][axis] for axis in equation.params["dimension_numbers"][0][0]]
                    )
                )
            )
        elif equation.primitive.name == "conv_general_dilated":
            spec = equation.params["dimension_numbers"].rhs_spec  # out, in, space
            total += 2 * out * float(np.prod([shapes[1][axis] for axis in spec[1:]]))
    return total


def kernels(run: Callable[[], object], steps: int) -> tuple[float, float, list[tuple]]:
    """(milliseconds a step in which the device computes, kernels a step, and for every kind of
    kernel its milliseconds and how many there are in a step, the largest first).
    """
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            jax.block_until_ready(run())
        file = next(Path(folder).rglob("*.xplane.pb"))
        data = jax.profiler.ProfileData.from_file(str(file))
        events = [
            (event.name, event.start_ns, event.duration_ns)
            for plane in data.planes
            if "GPU" in plane.name
            for line in plane.lines
            if line.name.startswith("Stream")
            for event in line.events
        ]
    spent, count = collections.Counter[str](), collections.Counter[str]()
    busy, end = 0.0, 0.0
    for name, start, duration in sorted(events, key=lambda event: event[1]):
        kind = re.sub(r"[_.]\d+$", "", name)
        spent[kind] += duration
        count[kind] += 1
        busy += max(0.0, start + duration - max(start, end))
        end = max(end, start + duration)
    largest = [(kind, t / 1e6 / steps, count[kind] / steps) for kind, t in spent.most_common()]
    return busy / 1e6 / steps, len(events) / steps, largest


def line(options: argparse.Namespace, compute: str, clip: float | None) -> None:
    """One line of the table, and the largest kernels of a step under it."""
    precision = {"tf32": "tensorfloat32", "bfloat16": "bfloat16", "float32": "highest"}[compute]
    device = jax.devices()[0]
    images = random_images(tuple(options.shape), 5 * 4 * options.batch)
    problem = hs.problems.neural(images, model=options.model, agents=5, clip=clip, compute=compute)
    five, flops = gradients(problem, options.batch)
    step = whole_step(problem, options.batch, options.steps)
    for ready in (five, step):
        jax.block_until_ready(ready())
    print("READY", flush=True)
    sys.stdin.readline()
    rate = product_rate(precision, 8192 if device.platform == "gpu" else 1024)
    alone = milliseconds(five)
    whole = milliseconds(step) / options.steps
    busy, many, largest = kernels(step, options.steps)
    peak = (device.memory_stats() or {}).get("peak_bytes_in_use", 0) / 2**30
    print(
        f"{compute:10} {'every record' if clip else 'none':14} {alone:10.2f} {whole:11.2f}"
        f" {busy:8.2f} {many:8.0f} {1000 * flops / rate:8.2f} {rate / 1e12:9.1f} {peak:9.1f}"
    )
    for kind, spent, count in largest[: options.kernels]:
        print(f"    {spent:7.3f} ms in {count:5.1f}  {kind[:90]}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--batch", type=int, default=55)
    parser.add_argument("--shape", type=int, nargs=3, default=(28, 28, 1))
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--computes", nargs="+", default=["tf32", "bfloat16"])
    parser.add_argument("--clips", nargs="+", default=["none", "1"])
    parser.add_argument("--kernels", type=int, default=10, help="of the largest to show")
    parser.add_argument("--line", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.line:
        compute, clip = options.line
        return line(options, compute, None if clip == "none" else float(clip))
    print(f"{options.model}, 5 agents, batch {options.batch}, {jax.devices()[0].device_kind}")
    print(
        f"{'products':10} {'clipping':14} {'gradients':>10} {'whole step':>11} {'busy':>8}"
        f" {'kernels':>8} {'floor':>8} {'TFLOP/s':>9} {'peak GiB':>9}   (ms a step)"
    )
    command = [sys.executable, "-m", "benchmarks.networks", *sys.argv[1:], "--line"]
    settings = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    processes = [
        subprocess.Popen(
            [*command, compute, clip],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=settings,
        )
        for compute in options.computes
        for clip in options.clips
    ]
    # They compile at the same time, and are timed one after the other.
    ready = [process.stdout.readline() == "READY\n" for process in processes]
    for process, compiled in zip(processes, ready, strict=True):
        if compiled:
            print(process.communicate("go\n")[0], end="", flush=True)
    return None


if __name__ == "__main__":
    main()
