"""Models that another library computes, with NumPy as that library: what crosses, and how often."""

from __future__ import annotations

import sys
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hearsay as hs
from hearsay.problems.data.holdings import Facts
from hearsay.problems.losses import hosts
from hearsay.problems.losses.neural_loss import NeuralLoss, from_function, from_host
from hearsay.problems.neural_networks import neural_task
from hearsay.simulation import memory

CLASSES, WIDTH, RECORDS = 3, 4, 6


class Plain(hosts.Host):
    """Softmax regression in NumPy, one record after the other."""

    size, outputs = CLASSES * WIDTH, CLASSES

    def __init__(self):
        self.calls = []

    def gradient_sum(self, vector, features, labels, weights, *, clip, norm, microbatch):
        self.calls.append(("gradient_sum", len(weights), microbatch))
        total = np.zeros_like(vector)
        for feature, label, weight in zip(features, labels, weights, strict=True):
            feature = hosts.as_numbers(feature, vector.dtype)
            scores = vector.reshape(CLASSES, WIDTH) @ feature
            chances = np.exp(scores - scores.max())
            chances /= chances.sum()
            own = np.outer(chances - np.eye(CLASSES)[int(label)], feature).ravel()
            length = np.linalg.norm(own, 1 if norm == "l1" else 2)
            if weight:
                total += weight * own * (1 if clip is None else min(1, clip / length))
        return total

    def values(self, vector, features, labels):
        self.calls.append(("values", len(labels), None))
        scores = features @ vector.reshape(CLASSES, WIDTH).T
        whole = np.log(np.exp(scores).sum(axis=1))
        return whole - scores[np.arange(len(labels)), labels.astype(int)]

    def scores(self, vector, features):
        self.calls.append(("scores", len(features), None))
        return features @ vector.reshape(CLASSES, WIDTH).T

    def program(self, shape, dtype):
        return repr((shape, dtype)).encode()

    def record_bytes(self, shape, dtype):
        return 1000


def in_jax(params, record):
    feature, label = record
    scores = params.reshape(CLASSES, WIDTH) @ feature
    return jax.nn.logsumexp(scores) - scores[label.astype(jnp.int32)]


def losses(clip=0.3, norm="l2"):
    """The same model twice: as JAX computes it, and as NumPy does."""
    model, _ = from_function(
        in_jax,
        np.zeros(CLASSES * WIDTH),
        scores=lambda p, x: p.reshape(CLASSES, WIDTH) @ x,
    )
    host = Plain()
    pair = (model, from_host(host, "plain"))
    return *(NeuralLoss(one, clip=clip, norm=norm) for one in pair), host


def batch(seed=0):
    rng = np.random.default_rng(seed)
    features = jnp.asarray(rng.normal(size=(RECORDS, WIDTH)))
    labels = jnp.asarray(rng.integers(0, CLASSES, RECORDS).astype(float))
    return features, labels, jnp.asarray(rng.random(RECORDS)).at[2].set(0)


def vectors(count):
    return jnp.asarray(np.random.default_rng(1).normal(size=(count, CLASSES * WIDTH)))


@pytest.mark.parametrize("norm, clip", [("l2", 0.3), ("l1", 0.3), ("l2", None)])
def test_sums_values_and_scores_are_those_of_jax(norm, clip):
    ours, theirs, _ = losses(clip, norm)
    features, labels, _ = batch()
    point = vectors(1)[0]
    for found, wanted in zip(
        jax.jit(lambda p: (theirs.gradient_sum(p, *batch()), *theirs.score(p, features, labels)))(
            point
        ),
        (ours.gradient_sum(point, *batch()), *ours.score(point, features, labels)),
        strict=True,
    ):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-12)


def test_under_vmap_over_agents_and_seeds_everything_is_as_in_a_loop():
    _, loss, _ = losses()
    features, labels, weights = (jnp.stack([a, b]) for a, b in zip(batch(), batch(3), strict=True))
    points = vectors(6).reshape(3, 2, -1)
    program = jax.jit(
        jax.vmap(
            jax.vmap(
                lambda p, x, y, w: (
                    loss.gradient_sum(p, x, y, w),
                    *loss.score(p, x, y),
                    loss.scores(p, x),
                )
            ),
            in_axes=(0, None, None, None),
        )
    )
    found = program(points, features, labels, weights)
    for seed in range(3):
        for agent in range(2):
            point, rows = points[seed, agent], (features[agent], labels[agent])
            alone = (
                loss.gradient_sum(point, *rows, weights[agent]),
                *loss.score(point, *rows),
                loss.scores(point, rows[0]),
            )
            for part, wanted in zip(found, alone, strict=True):
                np.testing.assert_array_equal(part[seed, agent], wanted)


def test_one_call_works_through_a_whole_batch():
    """A call for every record would cost more than the model."""
    _, loss, host = losses()
    loss = replace(loss, microbatch=2)
    features, labels, weights = batch()
    point = vectors(1)[0]
    jax.block_until_ready(loss.gradient_sum(point, features, labels, weights))
    jax.block_until_ready(loss.score(point, features, labels))
    assert sorted(host.calls) == [
        ("gradient_sum", RECORDS, 2),
        ("scores", RECORDS, None),
        ("values", RECORDS, None),
    ]


def test_a_run_takes_the_same_path_and_measures_the_same():
    ours, theirs, _ = losses()
    rng = np.random.default_rng(2)
    sets = [(rng.normal(size=(8, WIDTH)), rng.integers(0, CLASSES, 8)) for _ in range(2)]
    first = vectors(1)[0]
    runs = []
    for loss in (ours, theirs):
        problem = hs.problems.neural(
            sets, model=(loss.model, np.asarray(first)), classes=CLASSES, test=sets[0], clip=0.3
        )
        algorithm = hs.gradient_perturbation(
            step=0.5, noise=0.1, mechanism="gaussian", sampling=hs.Cyclic(3)
        )
        runs.append(
            hs.simulate(algorithm, problem, hs.graphs.ring(2), steps=2, seeds=1, delta=1e-5)
        )
    np.testing.assert_allclose(runs[1].models, runs[0].models, rtol=1e-4, atol=1e-6)
    for name in ("accuracy", "test_loss"):
        np.testing.assert_allclose(runs[1].metrics[name], runs[0].metrics[name], rtol=1e-4)
    assert runs[0].certificate.epsilon == runs[1].certificate.epsilon


def test_its_own_estimate_of_memory_and_fingerprint_are_used():
    _, loss, host = losses()
    sets = [(np.zeros((8, WIDTH)), np.zeros(8)) for _ in range(2)]
    problem = hs.problems.neural(
        sets, model=(loss.model, np.zeros(loss.model.size)), classes=CLASSES
    )
    algorithm = hs.gradient_perturbation(sampling=hs.Cyclic(8))
    assert memory.fitted(algorithm, problem, 4 * 2500).loss.microbatch == 2
    before = problem.digest()
    host.program = lambda shape, dtype: b"another program"
    assert problem.digest() != before


def test_what_it_cannot_round_is_refused():
    _, loss, _ = losses()
    with pytest.raises(ValueError, match="compute must be tf32 or float32 for plain with 12"):
        replace(loss, compute="bfloat16")


class Module:
    """What Python knows of a torch module without torch."""


Module.__module__ = "torch.nn.modules.module"


class Net(Module):
    pass


def test_a_torch_module_is_known_without_torch_and_shown_the_way():
    with pytest.raises(
        ValueError, match=r"from_torch\(module, dataset\) \(pip install 'hearsay-dp"
    ):
        hs.problems.neural("digits", model=Net())


@pytest.mark.parametrize(
    "call",
    [
        lambda: hs.problems.from_torch(Net(), []),
        lambda: hs.problems.torch_model(Net(), (3,)),
        lambda: hs.problems.state_dict(Net(), [1.0]),
        lambda: neural_task(Facts("made up", (2,), np.array([3, 3])), model=Net()),
    ],
    ids=["from_torch", "torch_model", "state_dict", "task"],
)
def test_without_torch_a_sentence_says_what_to_install(call, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError, match=r"must be installed .*pip install 'hearsay-dp\[torch\]'"):
        call()
