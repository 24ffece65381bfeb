"""A training step of neural networks: 5 agents, ResNet18, batch 55, with and without per-record
clipping, against the floor.

    python -m benchmarks.networks [--model resnet18] [--batch 55] [--data mnist] [--steps 20]

Floor: the floating-point operations of the five batch gradients (products and convolutions) at
the rate that a large matrix product reaches here. What lies between: kernels that do not fill the
device, normalisation and activations (memory-bound), noise, mixing and the update of five models.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

import hearsay as hs
from hearsay.problems.data.images import Images
from hearsay.simulation.session import Session


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


def step_time(problem, batch: int, steps: int) -> float:
    """One step of gradient tracking (both messages noised, mixed and applied), in milliseconds."""
    algorithm = hs.gradient_tracking(
        step=0.05, coupling=0.04, tracking=0.005, sampling=hs.Cyclic(batch)
    )
    session = Session(
        algorithm, problem, hs.graphs.five_agents(weight=0.1), [0], False, False, 0.0, None
    )
    return milliseconds(lambda: (session.advance(steps), session.models)[1], repeat=3) / steps


def gradients_time(problem, batch: int) -> tuple[float, float]:
    """Five batch gradients one after the other, nothing else:
    milliseconds, and their floating-point operations.
    """
    loss = problem.loss
    features, labels = (
        problem.device_records.features[:, :batch],
        problem.device_records.labels[:, :batch],
    )
    weights = jnp.full(batch, 1 / batch, problem.dtype)
    start = jnp.asarray(problem.start, problem.dtype)

    def five(start, features, labels):
        return [
            loss.gradient_sum(start * (1 + i), features[i], labels[i], weights) for i in range(5)
        ]

    program = jax.make_jaxpr(five)(start, features, labels)
    return milliseconds(jax.jit(five), start, features, labels), operations(program.jaxpr)


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


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--batch", type=int, default=55)
    parser.add_argument("--shape", type=int, nargs=3, default=(28, 28, 1))
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--computes", nargs="+", default=["tf32", "bfloat16", "float32"])
    options = parser.parse_args()
    device = jax.devices()[0]
    images = random_images(tuple(options.shape), 5 * 4 * options.batch)
    problem = hs.problems.neural(images, model=options.model, agents=5, clip=None)
    print(
        f"{options.model}, {problem.dimension:,} parameters, 5 agents, batch {options.batch},"
        f" {device.device_kind}"
    )
    print(
        f"{'products':10} {'clipping':22} {'gradients':>10} {'whole step':>11} {'floor':>8}  "
        " (milliseconds)"
    )
    for compute in options.computes:
        precision = {"tf32": "tensorfloat32", "bfloat16": "bfloat16", "float32": "highest"}[compute]
        rate = product_rate(precision, 8192 if device.platform == "gpu" else 1024)
        plain = None
        for clip in (None, 1.0):
            case = replace(problem, loss=replace(problem.loss, clip=clip, compute=compute))
            try:
                gradients, flops = gradients_time(case, options.batch)
                plain = flops if plain is None else plain
                whole = step_time(case, options.batch, options.steps)
            except jax.errors.JaxRuntimeError as error:
                print(f"{compute:10} {'every record' if clip else 'none':22} {str(error)[:60]}")
                continue
            finally:
                jax.clear_caches()
            floor = 1000 * plain / rate
            print(
                f"{compute:10} {'every record' if clip else 'none':22} {gradients:10.2f}"
                f" {whole:11.2f} {floor:8.2f}",
                flush=True,
            )
        print(
            f"{'':10} a large product reaches {rate / 1e12:.1f} TFLOP/s; five batch gradients are"
            f" {plain / 1e12:.3f} TFLOP"
        )
    stats = device.memory_stats() or {}
    if "peak_bytes_in_use" in stats:
        print(f"peak memory {stats['peak_bytes_in_use'] / 2**30:.1f} GiB")


if __name__ == "__main__":
    main()
