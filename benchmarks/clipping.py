"""What clipping costs: python -m benchmarks.clipping [--models cnn-p3,cnn-p4] [--opacus-python
PATH] [--sweep] [--quick]

A step is one gradient per agent (5 agents x 50 images unless told), agents unrolled in one compiled
program. All programs take turns in one run and the table has their best and median times: ratios
are what counts. With a Python that has torch and Opacus (a subprocess, so that two thread pools
never compete) the same network and batch go through its GradSampleModule: per-record gradients,
norms, clipped sum. Compare with it on quiet cores only: on busy ones its threads wait for each
other and its times grow tenfold, ours do not.
"""

from __future__ import annotations

import argparse
import subprocess
import time
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from hearsay.problems.losses import layers
from hearsay.problems.losses.models import MODELS
from hearsay.problems.losses.per_record import gradient_sum

OPACUS = r"""
import sys, time, warnings
warnings.filterwarnings("ignore")
import torch
from torch import nn
from torch.nn import functional as F
from opacus import GradSampleModule

def p3(c, s):
    return nn.Sequential(
        nn.Conv2d(c, 16, 5, padding=2), nn.Sigmoid(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 5, padding=2), nn.Sigmoid(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * (s // 4) ** 2, 10))

def p4(c, s):
    return nn.Sequential(
        nn.Conv2d(c, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * (s // 4) ** 2, 64), nn.ReLU(),
        nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))

name, agents, batch, size, channels = sys.argv[1], *map(int, sys.argv[2:])
make = {"cnn-p3": p3, "cnn-p4": p4}[name]
plain = [make(channels, size) for _ in range(agents)]
private = [GradSampleModule(make(channels, size), loss_reduction="sum") for _ in range(agents)]
x, y = torch.rand(agents, batch, channels, size, size), torch.randint(0, 10, (agents, batch))

def unclipped():
    for i, net in enumerate(plain):
        net.zero_grad()
        F.cross_entropy(net(x[i]), y[i], reduction="sum").backward()

def clipped():
    for i, net in enumerate(private):
        F.cross_entropy(net(x[i]), y[i], reduction="sum").backward()
        params = list(net.parameters())
        norms = torch.stack([p.grad_sample.flatten(1).norm(dim=1) for p in params]).norm(dim=0)
        scale = (1 / (norms + 1e-6)).clamp(max=1)
        for p in params:
            p.summed_grad = torch.einsum("i,i...", scale, p.grad_sample)
            p.grad_sample = None

for call in (unclipped, clipped):
    call(); call()
print("ready", flush=True)
for line in sys.stdin:
    call = {"unclipped": unclipped, "clipped": clipped}[line.strip()]
    began = time.perf_counter()
    call()
    print(time.perf_counter() - began, flush=True)
"""


class Opacus:
    """The other library, answering "clipped" or "unclipped" with the seconds
    one step took there.
    """

    def __init__(
        self, python: str, model: str, agents: int, batch: int, shape: tuple[int, int, int]
    ) -> None:
        command = [python, "-c", OPACUS, model, *map(str, (agents, batch, shape[0], shape[2]))]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.process.stdout.readline()

    def step(self, what: str) -> float:
        assert self.process.stdin is not None and self.process.stdout is not None
        print(what, file=self.process.stdin, flush=True)
        return float(self.process.stdout.readline())

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def programs(
    model: str, agents: int, batch: int, shape: tuple[int, int, int], sweep: bool
) -> dict[str, Callable]:
    nets = [MODELS[model](jax.random.key(i), shape, 10) for i in range(agents)]
    params = [eqx.filter(net, eqx.is_inexact_array) for net in nets]
    static = eqx.filter(nets[0], eqx.is_inexact_array, inverse=True)
    rng = np.random.default_rng(0)
    images = jnp.asarray(rng.random((agents, batch, *shape)), jnp.float32)
    labels = jnp.asarray(rng.integers(0, 10, (agents, batch)))
    weights = jnp.full(batch, 1 / batch)
    print(f"{model}: {sum(leaf.size for leaf in jax.tree.leaves(params[0])):,} parameters")

    def value(params: Any, image: jax.Array, label: jax.Array) -> jax.Array:
        logits = eqx.combine(params, static)(image)
        return jax.nn.logsumexp(logits) - logits[label]

    def library(params: Any, images: jax.Array, labels: jax.Array, weights: jax.Array) -> Any:
        with layers.summed_gradients():
            return jax.grad(lambda p: weights @ jax.vmap(value, (None, 0, 0))(p, images, labels))(
                params
            )

    def step(one: Callable, looped: bool = False) -> Callable[[], object]:
        @jax.jit
        def unrolled(params: list, images: jax.Array, labels: jax.Array) -> list:
            return [one(p, images[i], labels[i], weights) for i, p in enumerate(params)]

        @jax.jit
        def scanned(params: Any, images: jax.Array, labels: jax.Array) -> Any:
            return jax.lax.map(lambda args: one(*args, weights), (params, images, labels))

        if looped:
            stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *params)
            return lambda: scanned(stacked, images, labels)
        return lambda: unrolled(params, images, labels)

    def ours(**options: Any) -> Callable:
        return lambda *args: gradient_sum(value, *args, **options)

    chosen = {
        "unclipped, library's gradient": step(library),
        "unclipped": step(ours()),
        "clipped": step(ours(clip=1.0)),
        "clipped, agents in a loop": step(ours(clip=1.0), looped=True),
        "clipped, l1": step(ours(clip=1.0, norm="l1")),
    }
    if sweep:
        for size in (1, 4, 8, 13, 25, 50):
            chosen[f"clipped, {size} at a time"] = step(ours(clip=1.0, microbatch=size))
            chosen[f"unclipped, {size} at a time"] = step(ours(microbatch=size))
    return chosen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--models", default="cnn-p3,cnn-p4")
    parser.add_argument("--agents", type=int, default=5)
    parser.add_argument("--batch", type=int, default=50)
    parser.add_argument("--shape", default="28,28,1")
    parser.add_argument("--opacus-python", default="")
    parser.add_argument("--sweep", action="store_true", help="microbatch sizes too")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    height, width, channels = map(int, options.shape.split(","))
    shape = (height, width, channels)
    print(
        f"jax {jax.__version__}, {jax.devices()[0].device_kind}; {options.agents} agents x"
        f" {options.batch} images"
    )
    for model in options.models.split(","):
        table(model, shape, options)


def table(model: str, shape: tuple[int, int, int], options: argparse.Namespace) -> None:
    calls = programs(model, options.agents, options.batch, shape, options.sweep)
    other = None
    if options.opacus_python and model in ("cnn-p3", "cnn-p4"):
        other = Opacus(options.opacus_python, model, options.agents, options.batch, shape)
    for call in calls.values():
        jax.block_until_ready(call())
    times: dict[str, list[float]] = {}
    for _ in range(5 if options.quick else 20):
        for name, call in calls.items():
            jax.block_until_ready(call())
            began = time.perf_counter()
            jax.block_until_ready(call())
            times.setdefault(name, []).append(time.perf_counter() - began)
        for what in ("unclipped", "clipped") if other else ():
            other.step(what)
            times.setdefault(f"Opacus, {what}", []).append(other.step(what))
    if other:
        other.close()
    reference = times["unclipped, library's gradient"]
    for name, seconds in times.items():
        ratio, middle = min(seconds) / min(reference), np.median(seconds) / np.median(reference)
        print(
            f"  {name:<32} best {min(seconds) * 1e3:7.1f} ms ({ratio:5.2f} x library)   median"
            f" {np.median(seconds) * 1e3:7.1f} ms ({middle:5.2f} x)"
        )


if __name__ == "__main__":
    main()
