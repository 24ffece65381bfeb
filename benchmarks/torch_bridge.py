"""Clipped gradients of a PyTorch module, here and in Opacus: python -m benchmarks.torch_bridge
[--threads 1] [--batches 32,128] [--rounds 20]

Needs torch and Opacus. One process, one network (two convolutions, GroupNorm, a dense layer; 28 x
28 images), the same records: a step is the sum of one batch's clipped per-record gradients. Opacus:
GradSampleModule (its usual hooks, and its functorch mode), norms, clipped sum, as its optimizer
does it. Here: what a run calls, `NeuralLoss.gradient_sum`, compiled by JAX, with all that crosses
between the two libraries. They take turns; the table has best times by the clock and of the
processor (all threads), and the ratios. On busy cores the clock says little, and several threads of
torch wait for each other: there, compare processor time with --threads 1.
"""

from __future__ import annotations

import argparse
import copy
import time
import warnings
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from hearsay.problems.losses.neural_loss import NeuralLoss
from hearsay.problems.torch_modules import torch_model

CLIP, SHAPE = 1.0, (1, 28, 28)


def programs(batch: int) -> dict[str, Callable[[], np.ndarray]]:
    import torch
    from opacus.grad_sample import GradSampleModule
    from torch import nn
    from torch.nn import functional

    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(1, 16, 5, padding=2),
        nn.GroupNorm(4, 16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 5, padding=2),
        nn.GroupNorm(8, 32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 49, 10),
    )
    x, y = torch.rand(batch, *SHAPE), torch.randint(0, 10, (batch,))

    def opacus(functorch: bool) -> Callable[[], np.ndarray]:
        private = GradSampleModule(
            copy.deepcopy(module), loss_reduction="sum", force_functorch=functorch
        )

        def step() -> np.ndarray:
            functional.cross_entropy(private(x), y, reduction="sum").backward()
            own = list(private.parameters())
            norms = torch.stack([p.grad_sample.flatten(1).norm(dim=1) for p in own]).norm(dim=0)
            scales = (CLIP / (norms + 1e-6)).clamp(max=1)
            total = [torch.einsum("i,i...", scales, p.grad_sample).flatten() for p in own]
            for parameter in own:
                parameter.grad_sample = None
            return torch.cat(total).numpy()

        return step

    model, first = torch_model(module, SHAPE)
    loss = NeuralLoss(model, clip=CLIP, compute="float32")
    summed = jax.jit(loss.gradient_sum)
    rows = (jnp.asarray(first), jnp.asarray(x.numpy()), jnp.asarray(y.numpy()), jnp.ones(batch))
    return {
        "Opacus, hooks": opacus(False),
        "Opacus, functorch": opacus(True),
        "hearsay": lambda: np.asarray(summed(*rows)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batches", default="32,128")
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    import opacus
    import torch

    warnings.filterwarnings("ignore", category=UserWarning)
    torch.set_num_threads(options.threads)
    print(
        f"torch {torch.__version__}, Opacus {opacus.__version__}, jax {jax.__version__},"
        f" {torch.get_num_threads()} threads"
    )
    for batch in map(int, options.batches.split(",")):
        table(batch, options.rounds)


def table(batch: int, rounds: int) -> None:
    calls = programs(batch)
    found = {name: call() for name, call in calls.items()}
    apart = max(np.abs(found[name] - found["hearsay"]).max() for name in found)
    clocks: dict[str, list[float]] = {name: [] for name in calls}
    processors: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            began, used = time.perf_counter(), time.process_time()
            call()
            processors[name].append(time.process_time() - used)
            clocks[name].append(time.perf_counter() - began)
    print(f"batch of {batch}: sums differ by at most {apart:.1e}")
    for name in calls:
        best = [min(times[name]) for times in (clocks, processors)]
        ours = [min(times["hearsay"]) for times in (clocks, processors)]
        print(
            f"  {name:<18} {best[0] * 1e3:7.1f} ms, processor {best[1] * 1e3:7.1f} ms; hearsay"
            f" takes {ours[0] / best[0]:.2f} and {ours[1] / best[1]:.2f} times as long"
        )


if __name__ == "__main__":
    main()
