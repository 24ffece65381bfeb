"""Neural networks as losses: the same numbers as a plain loop, bounds that hold,
and clear refusals.
"""

from __future__ import annotations

import math
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hearsay as hs
from hearsay.algorithms.theory.findings import findings
from hearsay.problems.losses.neural_loss import NeuralLoss, from_function, from_module
from hearsay.problems.problem import Problem
from hearsay.problems.sampling.batches import Batch
from hearsay.simulation import memory

AGENTS, D = 4, 5


def linear_pair(clip: float | None, norm: str = "l2") -> tuple[Problem, Problem]:
    """Logistic regression twice: as a generalised linear model,
    and as a network that happens to be one.
    """
    data = hs.problems.from_arrays(
        np.random.default_rng(0).normal(size=(60, D)), np.arange(60) % 2, feature_bound=1.0, seed=0
    )
    first = hs.problems.logistic(data, agents=AGENTS, clip=clip, ridge=0.1, per_step=2)

    def value(params, record):
        feature, label = record
        margin = feature @ params["w"]
        return jnp.logaddexp(0.0, margin) - label * margin

    model, _ = from_function(value, {"w": np.zeros(D)})
    return first, replace(
        first,
        loss=NeuralLoss(model, 0.1, clip, norm, compute="float32"),
        smoothness=(math.nan, math.nan),
    )


FEDERATED = ("correlated-federated", "federated-independent", "federated-noiseless")


@pytest.mark.parametrize("name", hs.REGISTRY)
def test_a_network_that_is_a_linear_model_takes_its_path(name):
    """Agents one after the other instead of as one array, gradients by automatic differentiation:
    the same trajectory for every algorithm.
    """
    linear, network = linear_pair(clip=0.3)
    options = {"sampling": hs.Cyclic(2), **({"horizon": 9} if name in FEDERATED else {})}
    if name != "federated-noiseless":
        options["noise"] = hs.Constant(0.1)
    algorithm = hs.REGISTRY[name](**options)
    graph = hs.graphs.ring(AGENTS)
    runs = [
        hs.simulate(
            algorithm,
            p,
            graph,
            steps=6,
            seeds=2,
            every=3,
            reference=False,
            regret=False,
            delta=1e-5,
        )
        for p in (linear, network)
    ]
    assert np.abs(runs[0].models).max() > 0
    # The network's clip keeps a little room for rounding.
    np.testing.assert_allclose(runs[1].models, runs[0].models, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_a_growing_history_of_a_network_is_that_of_the_linear_model():
    linear, network = linear_pair(clip=0.3)
    algorithm = hs.ldp_online(noise=0.1)
    runs = [
        hs.simulate(algorithm, p, hs.graphs.ring(AGENTS), steps=6, seeds=1, reference=False)
        for p in (linear, network)
    ]
    np.testing.assert_allclose(runs[1].models, runs[0].models, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_no_record_moves_a_batch_gradient_by_more_than_its_bound(norm):
    rng = np.random.default_rng(1)
    problem = hs.problems.neural(
        "digits", model="mlp", agents=2, clip=0.2, norm=norm, records=100, test_records=10
    )
    size, order = 8, 1 if norm == "l1" else 2
    params = jnp.asarray(problem.start + rng.normal(size=problem.start.shape))
    features, labels = (
        rng.integers(0, 256, (size, 8, 8, 1)).astype(np.uint8),
        rng.integers(0, 10, size).astype(float),
    )
    gradient = jax.jit(
        lambda x, y: Batch(x, y, jnp.full(size, 1 / size), problem.loss).gradient(params)
    )
    base = gradient(features, labels)
    for _ in range(10):
        other, wrong = features.copy(), labels.copy()
        other[3], wrong[3] = rng.integers(0, 256, (8, 8, 1)), rng.integers(0, 10)
        moved = np.linalg.norm(np.asarray(gradient(other, wrong) - base, np.float64), order)
        assert 0 < moved <= problem.change / size


class Tiny(eqx.Module):
    layer: eqx.nn.Linear

    def __call__(self, image):
        return self.layer(image.ravel())


def tiny(classes: int = 10, width: int = 64) -> Tiny:
    return Tiny(eqx.nn.Linear(width, classes, key=jax.random.key(0)))


@pytest.mark.slow
def test_a_module_and_a_plain_function_are_the_same_model():
    module = tiny()

    def value(params, record):
        image, label = record
        scores = params[0] @ image.ravel() + params[1]
        return jax.nn.logsumexp(scores) - scores[label.astype(int)]

    weights = [np.asarray(module.layer.weight), np.asarray(module.layer.bias)]
    scores = lambda params, image: params[0] @ image.ravel() + params[1]  # noqa: E731
    pair = [module, from_function(value, weights, scores=scores)]
    shared = {"agents": 3, "records": 90, "test_records": 30}
    problems = [hs.problems.neural("digits", model=m, **shared) for m in pair]
    runs = [hs.simulate(hs.dsgd(noise=0.01), p, hs.graphs.ring(3), steps=5) for p in problems]
    np.testing.assert_allclose(runs[0].models, runs[1].models, rtol=1e-6, atol=1e-9)
    np.testing.assert_array_equal(runs[0].metrics["accuracy"], runs[1].metrics["accuracy"])


def test_a_function_without_scores_has_a_loss_and_no_accuracy():
    pair = from_function(
        lambda params, record: jnp.sum((params - record[0].ravel()) ** 2), np.zeros(64)
    )
    problem = hs.problems.neural("digits", model=pair, agents=3, records=30, test_records=10)
    run = hs.simulate(hs.dsgd(noise=0.01), problem, hs.graphs.ring(3), steps=4)
    assert np.isfinite(run.metrics["test_loss"]).all() and np.isnan(run.metrics["accuracy"]).all()


def test_metrics_are_those_of_a_plain_loop():
    problem = hs.problems.neural("digits", model=tiny(), agents=3, records=50, test_records=23)
    run = hs.simulate(hs.dsgd(noise=0.1), problem, hs.graphs.ring(3), steps=3, seeds=2)
    weight, bias = np.split(run.models, [640], axis=-1)
    scores = np.einsum(
        "sack,tk->satc", weight.reshape(2, 3, 10, 64), problem.test_features.reshape(-1, 64) / 255.0
    )
    scores += bias[:, :, None, :]
    labels = problem.test_labels.astype(int)
    hits = (scores.argmax(-1) == labels).mean(axis=2)
    np.testing.assert_allclose(run.metrics["accuracy"][-1], hits.mean(axis=1), rtol=1e-6)
    np.testing.assert_allclose(run.metrics["accuracy_worst"][-1], hits.min(axis=1), rtol=1e-6)
    lost = (
        np.log(np.exp(scores).sum(-1))
        - np.take_along_axis(scores, labels[None, None, :, None], -1)[..., 0]
    )
    np.testing.assert_allclose(run.metrics["test_loss"][-1], lost.mean(axis=(1, 2)), rtol=1e-6)


# Certificates.


def test_a_clip_is_the_only_thing_a_certificate_rests_on():
    problem = hs.problems.neural("digits", model=tiny(), agents=3, clip=0.5)
    certificate = hs.certify(hs.ldp_online(), problem, hs.graphs.ring(3), 50)
    assert certificate.finite and certificate.budgets[0].basis == "clip bound 0.5"
    assert any(
        "clipped to l2 norm 0.5" in a.text and a.kind == "enforced"
        for a in certificate.budgets[0].assumptions
    )
    open_ended = hs.problems.neural("digits", model=tiny(), agents=3, clip=None)
    for algorithm in (hs.ldp_online(), hs.gradient_perturbation(sampling=hs.Cyclic(5))):
        lost = hs.certify(algorithm, open_ended, hs.graphs.ring(3), 50)
        assert not lost.finite and "give the problem a clip" in lost.budgets[0].reason


def test_the_budget_of_a_state_is_the_clip_recursion_by_hand():
    """Phi(k+1) = |1 - leak| Phi(k) + step 2 B from the first use on;
    each message costs sqrt(d) Phi / b.
    """
    problem = hs.problems.neural("digits", model=tiny(), agents=3, clip=0.5)
    algorithm = hs.ldp_online(step="0.1*(k+1)^-0.7", coupling="0.2*(k+1)^-0.6", noise="2*(k+1)^0.1")
    phi, total = 0.0, 0.0
    for k in range(30):
        total += math.sqrt(problem.dimension) * phi / (2 * (k + 1) ** 0.1)
        leak = 0.2 * (k + 1) ** -0.6 * float(hs.graphs.ring(3).row_sums[0])
        phi = abs(1 - leak) * phi + 0.1 * (k + 1) ** -0.7 * 2 * 0.5
    found = hs.certify(algorithm, problem, hs.graphs.ring(3), 30).epsilon[0]
    assert total <= found <= total * (1 + 1e-6)


def test_an_l1_clip_saves_the_factor_of_the_dimension():
    def problem(norm: str) -> Problem:
        return hs.problems.neural("digits", model=tiny(), agents=3, clip=0.5, norm=norm)

    algorithm = hs.gradient_perturbation(sampling=hs.Cyclic(5))
    budgets = [
        hs.certify(algorithm, problem(norm), hs.graphs.ring(3), 50).epsilon[0]
        for norm in ("l2", "l1")
    ]
    assert budgets[0] / budgets[1] == pytest.approx(math.sqrt(650), rel=1e-9)
    assert isinstance(problem("l1").domain, hs.problems.Box)
    with pytest.raises(ValueError, match="domain must be a Box where gradients are clipped in l1"):
        replace(problem("l1"), domain=hs.problems.Ball(1.0))


def test_theory_says_that_it_has_nothing_to_say():
    problem = hs.problems.neural("digits", model=tiny(), agents=3)
    found = findings(hs.ldp_online(), hs.graphs.ring(3), problem)
    assert (
        len(found) == 1 and not found[0].holds and "no known Lipschitz constant" in found[0].detail
    )


# Refusals.


class Normed(eqx.Module):
    layer: eqx.nn.Linear
    norm: eqx.nn.BatchNorm

    def __call__(self, image):
        return self.norm(self.layer(image.ravel()))


def test_batch_norm_is_refused_with_the_reason():
    norm = eqx.nn.BatchNorm(10, axis_name="batch", mode="batch")
    with pytest.raises(ValueError, match=r"(?s)BatchNorm.*mix records.*GroupNorm"):
        hs.problems.neural("digits", model=Normed(tiny().layer, norm))


def test_models_that_do_not_fit_the_records_are_named_with_both_shapes():
    with pytest.raises(
        ValueError,
        match=r"model must take records of shape 8 x 8 x 1 \(digits\), but Tiny with 290",
    ):
        hs.problems.neural("digits", model=tiny(width=28))
    with pytest.raises(ValueError, match="model must be one that gives 10 scores, one per class"):
        hs.problems.neural("digits", model=tiny(classes=7))
    with pytest.raises(ValueError, match="model must be one of .*did you mean 'resnet18'"):
        hs.problems.neural("digits", model="resnet-18")
    with pytest.raises(ValueError, match=r"from_function\(loss, params\) makes one"):
        hs.problems.neural("digits", model=lambda params, record: 0.0)
    with pytest.raises(
        ValueError, match="loss must be a function that gives one number for one record"
    ):
        hs.problems.neural(
            "digits", model=from_function(lambda p, r: p * r[0].ravel(), np.zeros(64))
        )


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"clip": -1.0}, "clip must be positive"),
        ({"norm": "l3"}, "norm must be one of l2, l1"),
        ({"microbatch": 0}, "microbatch must be at least 1"),
        ({"compute": "float16"}, "compute must be one of tf32, float32, bfloat16"),
        ({"data": "imagenet"}, "data must be one of mnist, cifar10, digits"),
    ],
)
def test_bad_options_name_their_argument(options, match):
    with pytest.raises(ValueError, match=match):
        hs.problems.neural(**{"data": "digits", "model": "mlp", **options})


def test_a_reference_needs_a_convex_problem():
    from hearsay.simulation.optimum import Reference

    with pytest.raises(ValueError, match="this needs a model of one number per record"):
        Reference(hs.problems.neural("digits", model=tiny()))


def test_a_gpu_that_is_not_there_is_said():
    if any(d.platform == "gpu" for d in jax.devices()):
        pytest.skip("there is one")
    with pytest.raises(
        ValueError, match=r"device must be one that jax finds on this machine \(cpu\), got 'gpu'"
    ):
        memory.choose("gpu")


# Memory.


def test_a_microbatch_is_chosen_from_the_memory_and_stated():
    problem = hs.problems.neural("digits", model=tiny(), agents=3)
    algorithm = hs.dsgd(sampling=hs.Cyclic(64))
    each = memory.record_bytes(problem)
    assert memory.fitted(algorithm, problem).loss.microbatch is None
    tight = memory.fitted(algorithm, problem, free=4 * 20 * each)
    assert tight.loss.microbatch == 16
    assert "16 at a time" in memory.summary(algorithm, tight, hs.graphs.ring(3))
    assert "cpu device" in memory.summary(algorithm, tight, hs.graphs.ring(3))


@pytest.mark.slow
def test_a_microbatch_that_does_not_fit_is_halved_and_said(monkeypatch):
    from hearsay.simulation import engine

    problem = hs.problems.neural("digits", model=tiny(), agents=3, records=60, test_records=10)
    algorithm, said, real = hs.dsgd(noise=0.1, sampling=hs.Cyclic(8)), [], engine.advance

    def limited(*args, program, **more):
        if (program.loss.microbatch or 8) > 2:
            raise jax.errors.JaxRuntimeError(
                "RESOURCE_EXHAUSTED: Out of memory allocating 123 bytes"
            )
        return real(*args, program=program, **more)

    whole = hs.simulate(algorithm, problem, hs.graphs.ring(3), steps=5)
    monkeypatch.setattr(engine, "advance", limited)
    run = hs.simulate(algorithm, problem, hs.graphs.ring(3), steps=5, notify=said.append)
    assert [text for text in said if "out of memory" in text] == [
        "out of memory: going on with microbatches of 4",
        "out of memory: going on with microbatches of 2",
    ]
    assert run.problem.loss.microbatch == 2
    np.testing.assert_allclose(run.models, whole.models, rtol=1e-6, atol=1e-9)
    assert (
        any(text.startswith("expected time: ") for text in said)
        and "parameters; cpu device" in said[0]
    )


def test_other_failures_are_not_taken_for_a_lack_of_memory(monkeypatch):
    from hearsay.simulation import engine

    def broken(*args, **more):
        raise jax.errors.JaxRuntimeError("INTERNAL: something else")

    problem = hs.problems.neural("digits", model=tiny(), agents=3, records=60, test_records=10)
    monkeypatch.setattr(engine, "advance", broken)
    with pytest.raises(jax.errors.JaxRuntimeError, match="something else"):
        hs.simulate(hs.dsgd(noise=0.1), problem, hs.graphs.ring(3), steps=5)


def test_a_run_resumes_where_it_was(tmp_path):
    problem = hs.problems.neural("digits", model=tiny(), agents=3, records=60, test_records=10)
    algorithm, graph = hs.dsgd(noise=0.1), hs.graphs.ring(3)
    whole = hs.simulate(algorithm, problem, graph, steps=6, every=2)
    hs.simulate(algorithm, problem, graph, steps=4, every=2, folder=tmp_path)
    rest = hs.simulate(
        algorithm,
        replace(problem, loss=replace(problem.loss, microbatch=1)),
        graph,
        steps=6,
        every=2,
        folder=tmp_path,
        resume=True,
    )
    np.testing.assert_allclose(rest.models, whole.models, rtol=1e-6)
    np.testing.assert_allclose(rest.metrics["test_loss"], whole.metrics["test_loss"], rtol=1e-6)


@pytest.mark.slow
def test_lower_precision_changes_little():
    def value(compute: str) -> np.ndarray:
        problem = hs.problems.neural(
            "digits", model=tiny(), agents=3, records=60, test_records=10, compute=compute
        )
        return hs.simulate(hs.dsgd(noise=0.0), problem, hs.graphs.ring(3), steps=4).models

    exact = value("float32")
    assert 0 < np.abs(value("bfloat16") - exact).max() < 0.02
    np.testing.assert_allclose(value("tf32"), exact, atol=2e-3)


def test_named_models_start_from_the_seed():
    first, again, other = (
        hs.problems.neural("digits", model="mlp", seed=seed) for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first.start, again.start)
    assert np.any(first.start != other.start) and first.loss.model is other.loss.model


def test_modules_keep_their_parameters():
    model, vector = from_module(tiny())
    assert model.size == vector.size == 650
    np.testing.assert_allclose(
        model.unravel(jnp.asarray(vector)).layer.bias, tiny().layer.bias, rtol=1e-6
    )


def test_more_local_steps_than_a_block_holds_are_refused():
    problem = hs.problems.neural("digits", model=tiny(), agents=3)
    algorithm = hs.correlated_federated(horizon=2, sampling=hs.Fresh(64))
    with pytest.raises(ValueError, match="at most 32 records a round"):
        algorithm.check(hs.graphs.ring(3), problem)


def test_the_expected_time_follows_batches_that_grow():
    from hearsay.simulation.session import Session

    problem = hs.problems.neural("digits", model=tiny(), agents=3)
    grows = hs.output_perturbation(sampling=hs.Resample("(k+1)^1.4"))
    steady, growing = (
        Session(algorithm, problem, hs.graphs.ring(3), [0])
        for algorithm in (hs.dsgd(sampling=hs.Cyclic(8)), grows)
    )
    assert steady._work(0, 10) == steady._work(60, 70) == 10
    # 1 to 26 records, and 316 to 383, in blocks of 32.
    assert (growing._work(0, 10), growing._work(60, 70)) == (10, 114)
    # From there on all 479 or 480 records of an agent.
    assert growing._work(90, 100) == 10 * 15
