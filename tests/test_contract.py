"""Every registered algorithm through the same suite."""

from __future__ import annotations

import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hearsay as hs
from hearsay.base import Inbox
from hearsay.config import Config, build
from hearsay.problems.problem import Problem
from hearsay.problems.sampling.samplers import Window
from hearsay.simulation import engine, keys
from hearsay.simulation.metrics import Reference

# What is measured on the way is not looked at. Chunks of one length, on problems of one shape:
# tests of an algorithm share a compiled program.
BARE = {"delta": 1e-5, "reference": False, "regret": False, "every": 4}
ALGORITHMS = list(hs.REGISTRY)


def small_problem(
    seed: int = 0, agents: int = 4, records: int = 12, per_step: int = 1, ridge: float = 0.3
) -> Problem:
    """Ridge regression in three dimensions, a little different at every agent."""
    return hs.problems.ridge(
        agents=agents,
        records=records,
        dimension=3,
        per_step=per_step,
        ridge=ridge,
        seed=seed,
        radius=3.0,
    )


# A growing fresh stream would run dry on these few records; the rest makes the random forms do
# something in every step.
NOISELESS = "federated-noiseless"  # takes no noise
FEDERATED = ("correlated-federated", "federated-independent", NOISELESS)
OPTIONS = {
    **{name: {"sampling": hs.Cyclic(1), "horizon": 40} for name in FEDERATED},
    "output-perturbation": {"sampling": hs.Cyclic("(k+1)^0.6")},
    "gradient-perturbation": {"sampling": hs.Subset("(k+1)^0.6")},
}
# No randomness but the noise.
STILL = {
    "adp2sgd": {"activity": 1.0},
    "sdm-dsgd": {"keep": 1.0},
    "quantized-dsgd": {"resolution": 1e-9},
}
DELTA = 1e-5


def with_noise(name: str, level: float, **more):
    law = hs.Constant(level) if name in FEDERATED else hs.PowerLaw(level, 0.1)
    noise = {} if name == NOISELESS else {"noise": None if level == 0 else law}
    return hs.REGISTRY[name](**noise, **OPTIONS.get(name, {}), **more)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_simulator_equals_a_plain_loop_over_agents(name):
    """The slow obvious version: one agent at a time, neighbours' messages summed by hand."""
    problem, graph, steps, seed = small_problem(), hs.graphs.star(4), 8, 3
    algorithm = with_noise(name, 0.2)
    noise_key = keys.noise_keys(jnp.asarray([seed]), 4)[0]
    sample_key = keys.sampling_keys(problem.seed, 4)
    weights = graph.weights.toarray()
    # Each function by itself and for one agent; compiled only because thousands of single
    # operations take far longer.
    form, draw, send, update = (
        jax.jit(f)
        for f in (
            lambda state, mine, k, window, key: algorithm.sampling.batch(
                state, problem.loss, mine, k, window, problem.arrivals, key
            ),
            lambda key, k: jax.tree.map(
                lambda x: x[0], algorithm.draws(key, k[None], jnp.zeros(3), constants)
            ),
            algorithm.send,
            lambda state, sent, inbox, batch, rate: algorithm.update(
                state, sent, inbox, batch, rate, problem.domain
            ),
        )
    )
    constants = algorithm.constants(jnp.dtype(float))
    records = [jax.tree.map(lambda x, i=i: x[i], problem.device_records) for i in range(4)]
    states = [algorithm.init(jnp.zeros(3)) for _ in range(4)]
    samplers = [
        algorithm.sampling.prepare(problem.loss, records[i], problem.arrivals) for i in range(4)
    ]
    for k in range(steps):
        rates = algorithm.rates(np.array([k]), 4)
        windows = algorithm.sampling.windows(np.array([k]), problem.counts, problem.arrivals)
        batches, sent = [], []
        for i in range(4):
            rate = type(rates)(*(r[0, i] for r in rates))
            window = Window(
                *(jnp.asarray(part[0, i]) for part in windows[:2]), jnp.asarray(windows.blocks[0])
            )
            batch, samplers[i] = form(
                samplers[i], records[i], jnp.asarray(k), window, keys.at(sample_key[i], k)
            )
            message, states[i] = send(draw(noise_key[i], jnp.asarray(k)), states[i], batch, rate)
            batches.append((batch, rate))
            sent.append(message)
        new = []
        for i in range(4):
            heard = (np.ones((4, 4)) - np.eye(4)) / 4 if name in FEDERATED else weights
            total = type(sent[i])(
                *(sum(heard[i, j] * sent[j][f] for j in range(4)) for f in range(len(sent[i])))
            )
            rest = {"mixing": 1 - weights[i].sum(), "average": 1 / 4}
            own = type(sent[i])(
                *(rest.get(c, -weights[i].sum()) for c in algorithm.channels.values())
            )
            new.append(update(states[i], sent[i], Inbox(total, own), *batches[i]))
        states = new
    run = hs.simulate(algorithm, problem, graph, steps=steps, seeds=[seed], **BARE)
    expected = np.stack([algorithm.predict(s) for s in states])
    np.testing.assert_allclose(run.models[0], expected, rtol=0, atol=1e-12)


# Not asked of these: their quantisation, ternary values, weights or server steps have other limits.
OTHERS = ("dola", "ternary-dsgd", "quantized-dsgd", "weighted-erm", *FEDERATED)
SHORT = ("ldp-online",)  # half a minute each for those that draw for every step
ARRIVING = [
    pytest.param(n, marks=() if n in SHORT else pytest.mark.slow)
    for n in ALGORITHMS
    if n not in OTHERS
]


@pytest.mark.parametrize("name", ARRIVING)
def test_noise_free_network_reaches_the_centralized_optimum(name):
    """Agents with different data: the error falls like the step size, so the step must get small,
    and slowly enough to arrive.
    """
    problem, steps = small_problem(per_step=12), 600_000
    options = {"step": hs.PowerLaw(2.5, -1.0, shift=20.0), "noise": None, **STILL.get(name, {})}
    if name == "ldp-online":
        options["coupling"] = hs.Constant(1.0)
    if name == "sdm-dsgd":
        options["coupling"] = hs.Constant(0.9)
        options["step"] = options["step"].scaled(1 / 0.9)  # theta scales the whole move
    if name in OPTIONS:
        options |= {"coupling": hs.Constant(0.9), "sampling": hs.Cyclic()}
    if name == "gradient-tracking":
        options |= {
            "coupling": hs.Constant(0.3),
            "tracking": hs.Constant(0.3),
            "step": hs.Constant(0.05),
        }
    algorithm = hs.REGISTRY[name](**options)
    run = hs.simulate(
        algorithm, problem, hs.graphs.complete(4), steps=steps, every=steps, delta=DELTA
    )
    best = Reference(problem).at(steps).params
    assert np.abs(run.models - best).max() < 1e-6
    assert run.final("tracking_error")[0] < 1e-12


@pytest.mark.parametrize("name", ALGORITHMS)
def test_relabelling_agents_permutes_the_result(name):
    problem, order = small_problem(), np.array([2, 0, 3, 1])
    weights = hs.graphs.star(4).weights.toarray()
    shuffled = replace(
        problem,
        records=problem.records._replace(
            features=problem.features[order],
            labels=problem.labels[order],
            held=problem.counts[order],
        ),
        counts=problem.counts[order],
    )
    algorithm = with_noise(name, 0, **STILL.get(name, {}))
    if name == "gradient-perturbation":
        algorithm = replace(algorithm, sampling=hs.Cyclic("(k+1)^0.6"))  # draws nothing
    one = hs.simulate(algorithm, problem, hs.graphs.from_weights(weights), steps=8, **BARE)
    again = hs.graphs.from_weights(weights[np.ix_(order, order)])
    two = hs.simulate(algorithm, shuffled, again, steps=8, **BARE)
    np.testing.assert_allclose(two.models[0], one.models[0][order], atol=1e-12)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_traced_once_however_many_chunks(name):
    problem = small_problem(records=14)  # no other test has programs of this shape
    algorithm = with_noise(name, 0.123)
    before = engine.TRACES["advance"]
    hs.simulate(algorithm, problem, hs.graphs.ring(4), steps=8, **BARE)
    assert engine.TRACES["advance"] == before + 1
    hs.simulate(algorithm, problem, hs.graphs.ring(4), steps=8, **BARE)
    assert engine.TRACES["advance"] == before + 1, (
        "a second run of the same shape must not trace again"
    )


@pytest.mark.parametrize("name", ALGORITHMS)
def test_seeds_side_by_side_equal_seeds_one_by_one(name):
    problem, graph, algorithm = small_problem(), hs.graphs.ring(4), with_noise(name, 0.3)
    together = hs.simulate(algorithm, problem, graph, steps=8, seeds=[4, 9], **BARE)
    for index, seed in enumerate((4, 9)):
        alone = hs.simulate(algorithm, problem, graph, steps=8, seeds=[seed], **BARE)
        np.testing.assert_allclose(together.models[index], alone.models[0], atol=1e-12)
    assert (np.abs(together.models[0] - together.models[1]).max() > 1e-3) == (name != NOISELESS)


def test_an_algorithm_without_noise_has_no_budget_and_takes_no_noise():
    problem, graph, algorithm = small_problem(), hs.graphs.ring(4), with_noise(NOISELESS, 0)
    assert not hs.certify(algorithm, problem, graph, 12, delta=DELTA).finite
    for given in (1, np.float32(0.5), [1.0, 0.0, 0.0, 0.0]):
        with pytest.raises(ValueError, match="noise must be left out for federated-noiseless"):
            hs.federated_noiseless(noise=given)
    with pytest.raises(ValueError, match="no amount of noise"):
        hs.calibrate(algorithm, problem, graph, 12, 1.0, delta=DELTA)


def test_an_option_that_nothing_reads_is_not_there():
    with pytest.raises(TypeError, match="coupling"):
        hs.adp2sgd(coupling=0.1)
    with pytest.raises(ValueError, match=r"key in \[algorithm\] must be one of .*, got 'coupling'"):
        build(Config(problem={"loss": "ridge"}, algorithm={"name": "adp2sgd", "coupling": 0.1}))


@pytest.mark.parametrize("name", [n for n in ALGORITHMS if n != NOISELESS])
def test_every_algorithm_certifies_and_calibrates(name):
    problem, graph = small_problem(), hs.graphs.ring(4)
    algorithm = with_noise(name, 0.5)
    assert hs.certify(algorithm, problem, graph, 12, delta=DELTA).finite or name == "ternary-dsgd"
    targets = [0.5, 1.0, 2.0, 4.0]
    calibrated = hs.calibrate(algorithm, problem, graph, 12, targets, delta=DELTA)
    if name == "ternary-dsgd":  # its budget is delta, at epsilon = 0
        budgets = hs.certify(calibrated, problem, graph, 12).budgets
        assert all(b.epsilon == 0 and DELTA * (1 - 1e-6) <= b.delta <= DELTA for b in budgets)
        assert hs.certify(with_noise(name, 1e-9), problem, graph, 12).budgets[0].epsilon == math.inf
        return
    epsilon = hs.certify(calibrated, problem, graph, 12, delta=DELTA).epsilon
    for got, asked in zip(epsilon, targets, strict=True):
        assert got <= asked
        assert got >= asked * (1 - 1e-6)
    assert not hs.certify(with_noise(name, 0), problem, graph, 12, delta=DELTA).finite


@pytest.mark.parametrize("name", ALGORITHMS)
def test_bad_options_name_their_argument(name):
    cls, problem = hs.REGISTRY[name], small_problem()
    with pytest.raises(ValueError, match="mechanism must be one of"):
        cls(mechanism="laplacian")
    with pytest.raises(ValueError, match="noise must be zero or positive"):
        cls(noise=-1.0)
    with pytest.raises(ValueError, match="sampling must be a sampler"):
        cls(sampling="history")
    with pytest.raises(ValueError, match="step must be a number"):
        cls(step="fast")
    per_agent = (
        "left out"
        if name == "federated-noiseless"
        else "one schedule, or one for each of the 4 agents"
    )
    with pytest.raises(ValueError, match=f"noise must be {per_agent}"):
        hs.certify(cls(noise=[1.0, 2.0]), problem, hs.graphs.ring(4), 5)
    with pytest.raises(ValueError, match="the graph has 5 agents and the problem has 4"):
        hs.simulate(cls(), problem, hs.graphs.ring(5), steps=5)
    lopsided = hs.graphs.from_weights(
        [[0, 0.2, 0, 0.2], [0.3, 0, 0.2, 0], [0, 0.2, 0, 0.2], [0.2, 0, 0.2, 0]]
    )
    symmetric = r"weights must be symmetric, got w\[0,1\] = 0.2 and w\[1,0\] = 0.3"
    balanced = "the mixing matrix must be doubly stochastic, got column 0 with sum 1.1"
    if name not in ("gradient-tracking", *FEDERATED):
        with pytest.raises(ValueError, match=f"{symmetric}|{balanced}"):
            hs.certify(cls(), problem, lopsided, 5)
