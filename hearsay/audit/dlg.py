"""Deep leakage from gradients (Zhu, Liu and Han 2019): which records would make an agent send
what it sent?

The eavesdropper has all that is public and every message (overhear.py), but no record, no private
state and no noise. It makes up the records of one agent's batch and moves their pixels until the
messages that the algorithm would send fit those that it did send (matching.py):

    minimise over x in the range of a pixel:  sum (p(x) - observed)^2 / variance of the noise

by L-BFGS from several random images; the best fit is kept, whatever its error, which an attacker
cannot know. Labels are inferred by trying: those whose messages fit best while every image is the
mean of public ones (the problem's test images stand for those). `prior` adds, beyond the published
attack, what public images look like: (x - mean)^2 / variance of every pixel, so that the guess is
the likeliest image and falls back to the mean one where the noise leaves nothing to see.

An attack that fails proves nothing: a better one may succeed. The certificate is the guarantee;
this shows what it is worth.

Reference: L. Zhu, Z. Liu and S. Han, Deep Leakage from Gradients.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import linear_sum_assignment, minimize
from threadpoolctl import threadpool_limits

from hearsay import _validate as require
from hearsay.audit.matching import scene_of, score, target_of
from hearsay.audit.overhear import Public, as_numbers, batch_records, overhear, unfollowed
from hearsay.base import Algorithm
from hearsay.graphs import Graph
from hearsay.problems.problem import Problem

MOST = 8  # records in a batch: more cannot be told apart by descent from random images
_LIKELY = 2000  # public images that are looked at


class Kind(NamedTuple):
    """What records look like, from public images: shape, range of a pixel, number of classes,
    mean and standard deviation of every pixel.
    """

    shape: tuple[int, ...]
    low: float
    high: float
    classes: int
    mean: np.ndarray
    spread: np.ndarray


class Guess(NamedTuple):
    """images (records, ...), labels (records,), and how far the predicted messages are from the
    observed ones: about 1 if noise explains the rest.
    """

    images: np.ndarray
    labels: np.ndarray
    mismatch: float
    mismatches: np.ndarray  # of every restart


@dataclass(frozen=True, eq=False)
class Reconstruction:
    """A guess held against the truth.

    error: the root mean squared error of a pixel; blind: that of the mean public image,
    which knows nothing of the run.
    """

    agent: int
    step: int
    seed: int
    truth: np.ndarray
    true_labels: np.ndarray
    guess: Guess
    error: float
    blind: float
    seconds: float


@dataclass(frozen=True, eq=False)
class Sweep:
    """Reconstructions at several noise levels, found[level][target];
    each target is the same record and the same draws at every level.
    """

    algorithm: Algorithm
    problem: Problem
    options: Mapping[str, Any]
    levels: tuple[float, ...]
    found: tuple[tuple[Reconstruction, ...], ...]
    left: tuple[float, ...] = ()  # levels that an interrupt left out

    @property
    def errors(self) -> np.ndarray:
        """(level, target)."""
        return np.array([[one.error for one in row] for row in self.found])

    @property
    def mean(self) -> np.ndarray:
        return self.errors.mean(axis=1)

    @property
    def standard_error(self) -> np.ndarray:
        many = self.errors.shape[1]
        return (
            self.errors.std(axis=1, ddof=1) / math.sqrt(many)
            if many > 1
            else np.zeros(len(self.levels))
        )

    @property
    def blind(self) -> float:
        """The error of a guess that knows nothing of the run."""
        return float(np.mean([one.blind for one in self.found[0]]))


@require.plain_arguments
def reconstruct(
    algorithm: Algorithm,
    problem: Problem,
    graph: Graph,
    *,
    agent: int = 0,
    step: int = 0,
    seed: int = 0,
    restarts: int = 3,
    iterations: int = 200,
    labels: str = "inferred",
    prior: bool = False,
) -> Reconstruction:
    """Run the network with that noise seed for step + 2 rounds, attack what that agent sent, and
    hold the outcome against its records of that step.

    Args:
      restarts, iterations: descents from random images, and the most steps of each.
      labels: "inferred", or "known" to an attacker who has them from elsewhere.
      prior: also use what public images look like.
    """
    require.instance("problem", problem, Problem, "a problem such as hearsay.problems.neural(...)")
    require.one_of("labels", labels, ["inferred", "known"])
    _check_effort(restarts, iterations)
    kind = kind_of(problem)
    algorithm.check(graph, problem.task)
    rule = unfollowed(algorithm, graph)
    if algorithm.sampling.per_seed:
        rule = "one whose batches have a public size"
    if rule:
        require.fail("algorithm", rule, algorithm.name)
    known = Public(algorithm, problem.task, graph)
    _check_target(known, agent, step)
    heard = overhear(algorithm, problem, graph, step + 2, seed)
    truth, true_labels = batch_records(known, problem, agent, step)
    began = time.perf_counter()
    guess = invert(
        known,
        heard,
        kind,
        agent=agent,
        step=step,
        seed=seed,
        restarts=restarts,
        iterations=iterations,
        labels=true_labels if labels == "known" else None,
        prior=prior,
    )
    seconds = time.perf_counter() - began
    guess = _paired(guess, truth)
    errors = _error(guess.images, truth), _error(kind.mean[None], truth)
    return Reconstruction(agent, step, seed, truth, true_labels, guess, *errors, seconds)


@require.plain_arguments
def against_noise(
    algorithm: Algorithm,
    problem: Problem,
    graph: Graph,
    *,
    levels: Sequence[float] = (0.0, 0.5, 1.0, 1.5, 2.0),
    targets: int = 3,
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
    **options: Any,
) -> Sweep:
    """Attack the algorithm with its noise multiplied by each level.

    Targets are agents 0, 1, ... in turn, each with a noise seed of its own.

    options: step, restarts, iterations, labels and prior of `reconstruct`.

    Ctrl-C ends the sweep after the last level that is whole; before the first one it is raised.
    """
    factors = tuple(require.nonnegative("levels", level) for level in levels)
    if not factors:
        require.fail("levels", "one or more noise factors", list(levels))
    total = len(factors) * require.count("targets", targets)
    rows: list[tuple[Reconstruction, ...]] = []
    try:
        for factor in factors:
            louder, row = algorithm.with_noise([factor] * graph.agents), []
            for target in range(targets):
                agent = target % graph.agents
                row.append(
                    reconstruct(louder, problem, graph, agent=agent, seed=seed + target, **options)
                )
                progress(len(rows) * targets + len(row), total)
            rows.append(tuple(row))
    except KeyboardInterrupt:
        if not rows:
            raise
    done = len(rows)
    return Sweep(algorithm, problem, options, factors[:done], tuple(rows), factors[done:])


def kind_of(problem: Problem) -> Kind:
    images, shape = problem.test_features[:_LIKELY], problem.test_features.shape[1:]
    if problem.endless or len(shape) not in (2, 3) or not len(images):
        rule = "one about images, with some to test on (hearsay.problems.neural)"
        require.fail("problem", rule, f"{problem.name}, whose records have shape {shape}")
    numbers = as_numbers(images)
    low, high = (
        (0.0, 1.0) if images.dtype == np.uint8 else (float(numbers.min()), float(numbers.max()))
    )
    return Kind(
        shape,
        low,
        high,
        int(problem.test_labels.max()) + 1,
        numbers.mean(axis=0),
        numbers.std(axis=0),
    )


def _check_target(known: Public, agent: int, step: int) -> None:
    agents, last = known.graph.agents, known.rounds - 2
    if require.count("agent", agent, 0) >= agents:
        require.fail("agent", f"one of 0 to {agents - 1}", agent)
    if require.count("step", step, 0) > last:
        rule = (
            f"at most {last:g} (the attack compares two messages, and the run ends after"
            f" {last + 2:g})"
        )
        require.fail("step", rule, step)
    if (size := known.size(agent, step)) > MOST:
        require.fail(
            "the batch",
            f"at most {MOST} records (per_step, or the sampler's size)",
            f"{size} at step {step}",
        )


@require.plain_arguments
def _check_effort(restarts: int, iterations: int) -> None:
    require.count("restarts", restarts)
    require.count("iterations", iterations)


@require.plain_arguments
def invert(
    known: Public,
    heard: list[Any],
    kind: Kind,
    *,
    agent: int,
    step: int,
    seed: int = 0,
    restarts: int = 3,
    iterations: int = 200,
    labels: np.ndarray | None = None,
    prior: bool = False,
) -> Guess:
    """The attack itself: what is public and what was heard in, images out.

    In float64, because a fit is a small difference of messages.
    """
    _check_effort(restarts, iterations)
    _check_target(known, agent, step)
    if len(heard) < step + 2:
        require.fail(
            "heard",
            f"the messages of at least {step + 2} rounds to attack step {step}",
            f"{len(heard)} rounds",
        )
    rng = np.random.default_rng([seed, *b"attack"])
    many = (known.size(agent, step), *kind.shape)
    # Threads would wait for each other in products of this size.
    with jax.enable_x64(True), threadpool_limits(1):
        made_up = [
            (jnp.asarray(rng.uniform(kind.low, kind.high, many)), jnp.full(many[:1], float(c)))
            for c in (0, 1)
        ]
        blanks = jnp.stack([made_up[0][0][0], made_up[1][0][0]])
        setup, scene = scene_of(known, heard, agent, step, blanks)
        setup, target = target_of(known, setup, scene, heard, agent, step, *made_up)
        sure = prior / np.maximum(kind.spread, 0.02 * (kind.high - kind.low)) ** 2
        pull = (jnp.asarray(kind.mean), jnp.asarray(sure))

        def fit(images: jax.Array, labels: jax.Array) -> tuple:
            return score(images, labels, scene, target, pull, setup)

        chosen = _infer(fit, kind, many) if labels is None else np.asarray(labels)
        found = [
            _descended(fit, chosen, kind, rng.uniform(kind.low, kind.high, many), iterations)
            for _ in range(restarts)
        ]
        best = int(np.argmin([value for value, _ in found]))
        mismatches = np.array([target.mismatch(value) for value, _ in found])
    return Guess(found[best][1], chosen, float(mismatches[best]), mismatches)


def _descended(
    fit: Any, labels: np.ndarray, kind: Kind, first: np.ndarray, iterations: int
) -> tuple[float, np.ndarray]:
    named = jnp.asarray(labels, jnp.float64)

    def value(flat: np.ndarray) -> tuple[float, np.ndarray]:
        found, slope = fit(jnp.asarray(flat.reshape(first.shape)), named)
        return float(found), np.asarray(slope, np.float64).ravel()

    limits = [(kind.low, kind.high)] * first.size
    options = {
        "maxiter": iterations,
        "maxfun": 2 * iterations,
        "ftol": 1e-14,
        "gtol": 1e-12,
        "maxcor": 30,
    }
    result = minimize(
        value, first.ravel(), jac=True, method="L-BFGS-B", bounds=limits, options=options
    )
    return float(result.fun), result.x.reshape(first.shape)


def _infer(fit: Any, kind: Kind, many: tuple[int, ...]) -> np.ndarray:
    """Labels by trying, one record after the other (twice round where there are several),
    while every image is the mean one.
    """
    images, labels = jnp.broadcast_to(jnp.asarray(kind.mean), many), np.zeros(many[0], np.int64)
    for place in list(range(many[0])) * min(2, many[0]):
        tried = []
        for label in range(kind.classes):
            labels[place] = label
            tried.append(float(fit(images, jnp.asarray(labels, jnp.float64))[0]))
        labels[place] = int(np.argmin(tried))
    return labels


def _paired(guess: Guess, truth: np.ndarray) -> Guess:
    """The made-up records in the order of the true ones that they are nearest to:
    a batch has no order.
    """
    distance = (
        ((guess.images[None] - truth[:, None]) ** 2)
        .reshape(len(truth), len(truth), -1)
        .mean(axis=2)
    )
    order = linear_sum_assignment(distance)[1]
    return guess._replace(images=guess.images[order], labels=guess.labels[order])


def _error(images: np.ndarray, truth: np.ndarray) -> float:
    return float(np.sqrt(np.mean((images - truth) ** 2)))
