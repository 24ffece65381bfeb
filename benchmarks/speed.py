"""How fast, beside the bare alternatives, in one run: python -m benchmarks.speed [--quick]

Every time is the best of several warm calls on the same data in the same process; ratios are
what counts.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

import hearsay as hs
from hearsay.algorithms import LdpOnline
from hearsay.certification.describing import _cost
from hearsay.problems.data.datasets import from_arrays
from hearsay.simulation import engine, keys

AGENTS, D, STEPS = 5, 117, 2000
REPEATS = 3 if "--quick" in sys.argv else 9


def best(call: Callable[[], object]) -> float:
    call()
    times = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        jax.block_until_ready(call())
        times.append(time.perf_counter() - began)
    return min(times)


def stream_problem() -> hs.problems.Problem:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(14_000, D))
    labels = (features @ rng.normal(size=D) > 0).astype(float)
    return hs.problems.logistic(from_arrays(features, labels, feature_bound=1.0), agents=AGENTS)


def bare_scan(problem: hs.problems.Problem, graph: hs.graphs.Graph) -> Callable[[], object]:
    """The same arithmetic with nothing around it: one jit, one scan, noise drawn in the loop."""
    weights = jnp.asarray(graph.weights.toarray(), jnp.float32)
    own = -weights.sum(axis=1)
    features, labels = problem.device_records.features, problem.device_records.labels

    @jax.jit
    def run(key: jax.Array) -> jax.Array:
        def step(theta: jax.Array, t: jax.Array) -> tuple[jax.Array, None]:
            scale = (t + 1.0) ** 0.1
            noisy = theta + scale * jax.random.laplace(jax.random.fold_in(key, t), theta.shape)
            a, b = features[:, t], labels[:, t]
            residual = jax.nn.sigmoid(jnp.sum(a * theta, axis=1)) - b
            gradient = residual[:, None] * a + 0.01 * theta
            pull = weights @ noisy + own[:, None] * theta
            theta = theta + (t + 1.0) ** -0.65 * pull - (t + 1.0) ** -0.77 * gradient
            norm = jnp.sqrt(jnp.sum(theta * theta, axis=1, keepdims=True))
            return theta * jnp.minimum(1.0, 1e5 / norm), None

        return jax.lax.scan(step, jnp.zeros((AGENTS, D)) + 1e-9, jnp.arange(STEPS))[0]

    key = jax.random.key(0)
    return lambda: run(key)


def numpy_loop(problem: hs.problems.Problem, graph: hs.graphs.Graph) -> Callable[[], object]:
    weights = graph.weights.toarray()
    own = -weights.sum(axis=1)[:, None]

    def run() -> np.ndarray:
        rng, theta = np.random.default_rng(0), np.zeros((AGENTS, D))
        for t in range(STEPS):
            noisy = theta + rng.laplace(scale=(t + 1.0) ** 0.1, size=theta.shape)
            a, b = problem.features[:, t], problem.labels[:, t]
            residual = 1 / (1 + np.exp(-np.sum(a * theta, axis=1))) - b
            gradient = residual[:, None] * a + 0.01 * theta
            theta = (
                theta
                + (t + 1.0) ** -0.65 * (weights @ noisy + own * theta)
                - (t + 1.0) ** -0.77 * gradient
            )
            norm = np.sqrt(np.sum(theta * theta, axis=1, keepdims=True))
            theta = theta * np.minimum(1.0, 1e5 / np.maximum(norm, 1e-30))
        return theta

    return run


def simulation() -> None:
    problem, graph = stream_problem(), hs.graphs.ring(AGENTS, weight=0.3)
    algorithm = hs.ldp_online(noise=hs.PowerLaw(1.0, 0.1), sampling=hs.Fresh())

    def run(
        chosen: LdpOnline, seeds: int | list[int] = 1, **options: object
    ) -> Callable[[], object]:
        return lambda: hs.simulate(
            chosen,
            problem,
            graph,
            steps=STEPS,
            seeds=seeds,
            reference=False,
            regret=False,
            **options,
        )

    ours, bare, loop = (
        best(run(algorithm, every=STEPS)),
        best(bare_scan(problem, graph)),
        best(numpy_loop(problem, graph)),
    )
    measured = best(run(algorithm))
    print(f"5 agents, ring, logistic d = {D}, 1 record per agent and step, {STEPS} steps, float32:")
    row("  hearsay, measured at the end", ours, bare)
    row("  hearsay, measured 100 times", measured, bare)
    row("  bare jit(lax.scan)", bare, bare)
    row("  vectorised NumPy", loop, bare)
    where_time_goes(algorithm, problem, graph)
    together = best(run(algorithm, seeds=20, every=STEPS))
    print(
        f"20 seeds: one call {together:.3f} s, 20 calls {20 * ours:.3f} s, throughput x"
        f" {20 * ours / together:.1f}"
    )
    history = replace(algorithm, sampling=hs.History("full"))
    row("  full history (exact, chunked)", best(run(history, every=STEPS)), bare)


def where_time_goes(
    algorithm: LdpOnline, problem: hs.problems.Problem, graph: hs.graphs.Graph
) -> None:
    """Drawing the noise of a whole run, alone."""
    agent_keys = keys.noise_keys(jnp.asarray([0]), AGENTS)[0]

    @jax.jit
    def draw(steps: jax.Array) -> jax.Array:
        one = jax.vmap(
            lambda key, step: algorithm.draw(keys.at(key, step), jnp.zeros(D)).params,
            in_axes=(0, None),
        )
        return jax.vmap(lambda step: one(agent_keys, step))(steps)

    seconds = best(lambda: draw(jnp.arange(STEPS)))
    samples = STEPS * AGENTS * D
    print(
        f"  of that, drawing {samples:,} Laplace samples: {seconds * 1e3:.1f} ms,"
        f" {seconds / samples * 1e9:.1f} ns a sample"
    )
    block = engine.block_length(STEPS, 1, AGENTS, D, 4)
    print(f"  (noise is drawn for {block} steps at once, from the same keys as step by step)")


def statistics() -> None:
    """Ridge with sufficient statistics: the cost of a step must not depend on
    how long the history is.
    """
    problem = hs.problems.ridge(agents=AGENTS, dimension=50, records=10_000)
    algorithm, graph = hs.ldp_online(noise=hs.PowerLaw(1.0, 0.1)), hs.graphs.ring(AGENTS)
    from hearsay.simulation.session import Session

    ratios = []
    for _ in range(REPEATS):
        session = Session(algorithm, problem, graph, [0], False, False, 0.0, None)
        times = []
        for _ in range(10):
            began = time.perf_counter()
            session.advance(1000)
            session.models.block_until_ready()
            times.append(time.perf_counter() - began)
        ratios.append((times[-1], times[1]))
    last, first = (min(r[i] for r in ratios) for i in (0, 1))
    print(
        f"ridge by statistics, d = 50: steps 1000-2000 {first * 1e3:.1f} ms, steps 9000-10000"
        f" {last * 1e3:.1f} ms, ratio {last / first:.2f}"
    )


def certificates() -> None:
    problem, graph = stream_problem(), hs.graphs.ring(AGENTS, weight=0.3)
    algorithm = hs.ldp_online(noise=[hs.PowerLaw(1.0, 0.1 + 0.01 * i) for i in range(1, 6)])
    for horizon in (2000, float("inf")):
        times = []
        for _ in range(REPEATS):
            _cost.cache_clear()
            began = time.perf_counter()
            hs.certify(algorithm, problem, graph, horizon)
            times.append(time.perf_counter() - began)
        print(f"certificate, 5 different agents, horizon {horizon}: {min(times) * 1e3:.0f} ms")


def row(name: str, seconds: float, reference: float) -> None:
    print(f"{name:<36} {seconds * 1e3:8.1f} ms   {seconds / reference:6.2f} x bare scan")


if __name__ == "__main__":
    simulation()
    statistics()
    certificates()
