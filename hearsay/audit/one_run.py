"""A whole audit from one run: many canaries at once, for models where two trajectories per record
are too dear (neural networks).

Each of m records of one agent is one of two, by a fair coin: itself, or the same features under
another label (under zero-out adjacency: itself, or empty). Changing a coin replaces (or empties)
one record, so the certificate limits how often anybody can guess coins from what the agent sends
(bounds.py; Steinke, Nasr and Jagielski 2023). The guesser here sees messages only. From message k
on, it expects the model

    m(k+1) = update of m(k), with what was heard
             and the mean of both gradients of every canary in the batch

and what is left over leans towards -step (g - g') of the canaries that are themselves, towards
+step (g - g') of the others, all gradients taken at m(k). The inner product with g - g', over the
variance of the noise and summed over the steps that use the canary, is its score; the sign of a
score is the guess, and the smallest ones are left out.

The guesser knows which canaries are in a batch, also where batches are secret, and is held against
a certificate that does not rest on that (batches.py).

One bound for one agent: the same m coins serve all of its records, so nothing has to be run again.
A small bound proves nothing, a bound above the certificate disproves it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from hearsay import _validate as require
from hearsay.audit.batches import openly
from hearsay.audit.bounds import one_run_epsilon
from hearsay.audit.empty import EMPTY, with_empty
from hearsay.audit.messages import bare, membership, scene
from hearsay.audit.overhear import overhear, unfollowed
from hearsay.base import Algorithm, Inbox
from hearsay.certification import certify
from hearsay.graphs import Graph
from hearsay.graphs.channels import mixer
from hearsay.privacy.adjacency import ZERO_OUT
from hearsay.problems.data.records import Records, as_features
from hearsay.problems.losses.loss import Loss
from hearsay.problems.problem import Problem
from hearsay.simulation import engine
from hearsay.simulation.program import Program, program


@dataclass(frozen=True)
class OneRun:
    """`right` of `guesses` guesses about `canaries` coins: epsilon is at least `lower` (at delta),
    except with probability 1 - confidence.
    """

    agent: int
    canaries: int
    guesses: int
    right: int
    lower: float
    certified: float
    confidence: float
    delta: float

    @property
    def holds(self) -> bool:
        return self.lower <= self.certified

    @property
    def most(self) -> float:
        """The largest bound that so many guesses could have shown: all of them right."""
        return one_run_epsilon(
            self.canaries, self.guesses, self.guesses, 1 - self.confidence, self.delta
        )


@require.plain_arguments
def one_run(
    algorithm: Algorithm,
    problem: Problem,
    graph: Graph,
    *,
    agent: int = 0,
    steps: int = 100,
    canaries: int = 300,
    guesses: int | None = None,
    delta: float | None = None,
    error: float = 1e-3,
    seed: int = 0,
) -> OneRun:
    """Run the network once for so many steps with canaries among that agent's records.

    Args:
      canaries: at most so many; those of its first records that the steps use.
      guesses: how many coins are guessed (two thirds); fixed before the run, because choosing the
        best number afterwards would have to be paid for.
      delta: at which epsilon is bounded and certified; needed for Gaussian noise.
    """
    require.fraction("error", error)
    if "params" not in algorithm.channels or not algorithm.law.adds_noise:
        require.fail("algorithm", "one whose messages are models with noise", algorithm.name)
    if rule := unfollowed(algorithm, graph):
        require.fail("algorithm", rule, algorithm.name)
    if problem.endless or not problem.classification:
        require.fail(
            "problem",
            "a classification with a data set: a canary is a record under another label",
            problem.name,
        )
    weights = membership(algorithm, problem, graph, agent, require.count("steps", steps), seed)
    used = np.flatnonzero(weights[:-1].any(axis=0))[: require.count("canaries", canaries)]
    if len(used) == 0:
        require.fail("steps", "at least 2, so that a message shows what a record did", steps)
    most = (
        2 * len(used) // 3 if guesses is None else min(require.count("guesses", guesses), len(used))
    )
    rng = np.random.default_rng([seed, *b"canaries"])
    coins = rng.integers(0, 2, len(used)).astype(bool)
    classes = int(problem.labels.max()) + 1
    itself = problem.labels[agent, used]
    other, known = (itself + rng.integers(1, classes, len(used))) % classes, problem
    if problem.adjacency == ZERO_OUT:
        other, known = np.full(len(used), EMPTY), replace(problem, loss=with_empty(problem.loss))
    both, labels = np.stack([itself, other]), problem.labels.copy()
    labels[agent, used] = np.where(coins, both[0], both[1])
    records = Records(problem.features, labels, problem.counts)
    heard = overhear(algorithm, replace(known, records=records), graph, steps, seed)
    scores = _scores(
        algorithm,
        known,
        graph,
        agent,
        heard,
        problem.features[agent, used],
        both,
        weights[:, used],
    )
    sure = np.argsort(-np.abs(scores), kind="stable")[:most]
    right = int(np.sum((scores[sure] > 0) == coins[sure]))
    # The guesser knows who is in a batch.
    budget = certify(openly(algorithm), problem, graph, steps, delta=delta).budgets[agent]
    # And where agents share noise, has nobody's keys.
    certified = budget.curve[0].epsilon if budget.curve else budget.epsilon
    slack = delta if algorithm.law.at_delta else 0.0
    lower = one_run_epsilon(len(used), most, right, error, slack or 0.0)
    return OneRun(agent, len(used), most, right, lower, certified, 1 - error, slack or 0.0)


class _Expected(eqx.Module):
    """A batch as the guesser knows it: both gradients of every canary, half each."""

    features: jax.Array
    labels: jax.Array
    weights: jax.Array
    loss: Loss = eqx.field(static=True)

    def gradient(self, params: jax.Array) -> jax.Array:
        halves = [
            self.loss.gradient_sum(params, self.features, labels, 0.5 * self.weights)
            for labels in self.labels
        ]
        return halves[0] + halves[1] + self.loss.regulariser * params


def _scores(
    algorithm: Algorithm,
    problem: Problem,
    graph: Graph,
    agent: int,
    heard: list[Any],
    features: np.ndarray,
    labels: np.ndarray,
    weights: np.ndarray,
) -> np.ndarray:
    """One score per canary: positive speaks for the record itself."""
    dtype, steps = problem.dtype, len(heard)
    public = scene(bare(algorithm), problem, graph, agent, steps)
    mixers = [mixer(graph, kind, dtype) for kind in algorithm.channels.values()]
    compiled = program(algorithm, problem)
    scores, width = np.zeros(len(features)), int(np.count_nonzero(weights, axis=1).max())
    for k in range(steps - 1):
        rows = np.flatnonzero(weights[k])
        if len(rows) == 0:
            continue
        # The same number at every step, so that one program serves all; what is repeated
        # weighs nothing.
        padded = np.resize(rows, width)
        share = np.where(np.arange(width) < len(rows), weights[k, padded], 0.0)
        batch = (
            as_features(features[padded], dtype),
            jnp.asarray(labels[:, padded], dtype),
            jnp.asarray(share, dtype),
        )
        said = jax.tree.map(jnp.asarray, heard[k])
        sent, inbox = engine.pick((said, engine.heard(mixers, said)), agent)
        rate = engine.pick(public.rates, k)
        found = _canary_scores(
            batch,
            sent,
            inbox,
            jnp.asarray(heard[k + 1].params[agent]),
            rate,
            program=compiled,
        )
        noise = float(rate.noise) or 1.0
        scores[rows] += (
            np.asarray(found)[: len(rows)] * share[: len(rows)] * float(rate.step) / noise**2
        )
    return scores


@partial(jax.jit, static_argnames=("program",))
def _canary_scores(
    batch: tuple,
    sent: Any,
    inbox: Inbox,
    after: jax.Array,
    rate: Any,
    *,
    program: Program,
) -> jax.Array:
    """How far the next message leans towards each canary of the batch being itself."""
    algorithm, loss, (features, labels, weights) = program.algorithm, program.loss, batch
    state, here = program.start(sent.params)
    expected = algorithm.predict(
        algorithm.update(
            state,
            sent,
            inbox,
            _Expected(features, labels, weights, loss),
            rate,
            program.domain,
        )
    )

    def one(feature: jax.Array, label: jax.Array) -> jax.Array:
        alone = jnp.ones((1,), here.dtype)
        itself, other = (
            loss.gradient_sum(here, feature[None], label[i][None], alone) for i in (0, 1)
        )
        return -jnp.vdot(after - expected, itself - other)

    return jax.lax.map(lambda record: one(*record), (features, labels.T))
