"""Every registered algorithm through the same suite.

Which algorithms a test speaks of follows from what they declare (channels, coins, mechanism, the
options of their builder), never from a list of names here.
"""

from __future__ import annotations

import doctest
import importlib
import inspect
import math
import pkgutil
import re
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hearsay as hs
from hearsay import algorithms, experiments
from hearsay.algorithms import registry
from hearsay.base import Algorithm, Inbox, noise_fields
from hearsay.config import Config, build
from hearsay.planning import as_table
from hearsay.problems.losses.domains import Ball
from hearsay.problems.problem import Problem
from hearsay.problems.sampling.samplers import Window
from hearsay.simulation import engine, keys
from hearsay.simulation.optimum import Reference
from tests.factories import keys_of

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


DELTA = 1e-5
# Where an algorithm's own sample sizes would run dry on these few records.
OPTIONS = {
    "output-perturbation": {"sampling": hs.Cyclic("(k+1)^0.6")},
    "gradient-perturbation": {"sampling": hs.Subset("(k+1)^0.6")},
}
# Coins that leave nothing to chance.
STILL = {
    "adp2sgd": {"activity": 1.0},
    "sdm-dsgd": {"keep": 1.0},
    "quantized-dsgd": {"resolution": 1e-9},
}


def taken(name: str) -> set[str]:
    """The options of the builder of that name."""
    return set(inspect.signature(hs.REGISTRY[name]).parameters)


def planned(name: str) -> bool:
    """Its noise is planned for a number of rounds, and constant."""
    return hs.REGISTRY[name]().rounds < math.inf


def noisy(name: str) -> bool:
    """It takes noise at all."""
    return "noise" in hs.REGISTRY[name]().options


def with_noise(name: str, level: float, **more) -> Algorithm:
    law = hs.Constant(level) if planned(name) else hs.PowerLaw(level, 0.1)
    noise = {"noise": None if level == 0 else law} if noisy(name) else {}
    plan = {"sampling": hs.Cyclic(1), "horizon": 40} if planned(name) else {}
    return hs.REGISTRY[name](**{**noise, **plan, **OPTIONS.get(name, {}), **more})


def public_coins(name: str) -> bool:
    """The weights of its rounds follow from a coin that everybody sees."""
    return "public" in hs.REGISTRY[name]().keys


def test_every_algorithm_with_coins_can_be_made_still():
    """But for those whose very weights are a public coin."""
    coins = {name for name in ALGORITHMS if hs.REGISTRY[name]().coins}
    assert set(STILL) == {name for name in coins if not public_coins(name)}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_simulator_equals_a_plain_loop_over_agents(name):
    """The slow obvious version: one agent at a time, neighbours' messages summed by hand."""
    problem, graph, steps, seed = small_problem(), hs.graphs.star(4), 8, 3
    algorithm = with_noise(name, 0.2)
    noise_key = [keys_of(algorithm, graph, agent, seed) for agent in range(4)]
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
        batches, sent, drawn = [], [], []
        for i in range(4):
            rate = type(rates)(*(r[0, i] for r in rates))
            window = Window(
                *(jnp.asarray(part[0, i]) for part in windows[:2]), jnp.asarray(windows.blocks[0])
            )
            batch, samplers[i] = form(
                samplers[i], records[i], jnp.asarray(k), window, keys.at(sample_key[i], k)
            )
            drawn.append(draw(noise_key[i], jnp.asarray(k)))
            message, states[i] = send(drawn[i], states[i], batch, rate)
            batches.append((batch, rate))
            sent.append(message)
        new, awake = [], np.zeros((4, 4))
        if public_coins(name):
            # Star: edge number e joins agents 0 and e + 1.
            other = 1 + int(3 * float(algorithm.coin(drawn[k % 4])))
            awake[0, other] = awake[other, 0] = 0.5
        for i in range(4):
            channels = list(algorithm.channels.values())
            heard = {"average": (np.ones((4, 4)) - np.eye(4)) / 4, "waking": awake}
            total = type(sent[i])(
                *(
                    sum(heard.get(channel, weights)[i, j] * sent[j][f] for j in range(4))
                    for f, channel in enumerate(channels)
                )
            )
            rest = {"mixing": 1 - weights[i].sum(), "average": 1 / 4}
            rest["waking"] = 1 - awake[i].sum()
            own = type(sent[i])(*(rest.get(c, -weights[i].sum()) for c in channels))
            new.append(update(states[i], sent[i], Inbox(total, own), *batches[i]))
        states = new
    run = hs.simulate(algorithm, problem, graph, steps=steps, seeds=[seed], **BARE)
    expected = np.stack([algorithm.predict(s) for s in states])
    np.testing.assert_allclose(run.models[0], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_noise_free_network_reaches_the_centralized_optimum(name):
    """Agents with different data, all of them in every batch. With steps like 1/k the distance to
    the optimum falls like the step: four times the steps leave a quarter of it. Methods whose step
    stays constant get there outright.
    """
    algorithm = hs.REGISTRY[name]()
    if algorithm.inexact:
        pytest.skip(algorithm.inexact)
    problem, steps = small_problem(per_step=12), 6000
    options = {"step": hs.PowerLaw(2.5, -1.0, shift=20.0), "sampling": hs.Cyclic()}
    if noisy(name):
        options["noise"] = None
    if "coupling" in taken(name):
        options["coupling"] = hs.Constant(0.9)
    if "keep" in taken(name):
        options["step"] = options["step"].scaled(1 / 0.9)  # theta scales the whole move
    exact = "tracking" in taken(name) or planned(name)
    if "tracking" in taken(name):
        options |= {"coupling": hs.Constant(0.3), "tracking": hs.Constant(0.3)}
    if exact:
        options["step"] = hs.Constant(0.05)
    if planned(name):  # a local step for every record, so one record is a full gradient
        problem, options = small_problem(records=1), options | {"horizon": steps}
        options["sampling"] = hs.Cyclic(1)
    algorithm = hs.REGISTRY[name](**{**options, **STILL.get(name, {})})
    graph, every = hs.graphs.complete(4), steps // 4
    reference = Reference(problem)
    run = hs.simulate(
        algorithm, problem, graph, steps=steps, every=every, delta=DELTA, reference=reference
    )
    best, error = reference.at(steps).params, np.sqrt(run.metrics["tracking_error"][:, 0])
    assert np.abs(run.models - best).max() < (1e-6 if exact else 1e-3)
    if not exact:
        assert 0.2 < error[-1] / error[1] < 0.3


@pytest.mark.parametrize("name", ALGORITHMS)
def test_relabelling_agents_permutes_the_result(name):
    if public_coins(name):
        pytest.skip("a public coin names an edge by its number, which follows from the agents'")
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
    # No sampler that draws.
    law = hs.Cyclic(1) if planned(name) else hs.Cyclic("(k+1)^0.6")
    algorithm = with_noise(name, 0, **{"sampling": law, **STILL.get(name, {})})
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
    differ = np.abs(together.models[0] - together.models[1]).max() > 1e-3
    assert differ == (noisy(name) or public_coins(name))


@pytest.mark.parametrize("name", [n for n in ALGORITHMS if not noisy(n)])
def test_an_algorithm_without_noise_has_no_budget_and_takes_no_noise(name):
    problem, graph, algorithm = small_problem(), hs.graphs.ring(4), with_noise(name, 0)
    assert not hs.certify(algorithm, problem, graph, 12, delta=DELTA).finite
    for given in (1, np.float32(0.5), [1.0, 0.0, 0.0, 0.0]):
        with pytest.raises(ValueError, match=f"noise must be left out for {name}"):
            hs.REGISTRY[name](noise=given)
        with pytest.raises(ValueError, match=f"noise must be left out for {name}"):
            replace(algorithm, noise=given)
    with pytest.raises(ValueError, match="no amount of noise"):
        hs.calibrate(algorithm, problem, graph, 12, 1.0, delta=DELTA)


def test_an_option_that_nothing_reads_is_not_there():
    with pytest.raises(TypeError, match="coupling"):
        hs.adp2sgd(coupling=0.1)
    with pytest.raises(ValueError, match=r"key in \[algorithm\] must be one of .*, got 'coupling'"):
        build(Config(problem={"loss": "ridge"}, algorithm={"name": "adp2sgd", "coupling": 0.1}))


@pytest.mark.parametrize("name", [n for n in ALGORITHMS if noisy(n)])
def test_every_algorithm_certifies_and_calibrates(name):
    problem, graph = small_problem(), hs.graphs.ring(4)
    algorithm = with_noise(name, 0.5)
    ternary = algorithm.mechanism == "ternary"
    assert hs.certify(algorithm, problem, graph, 12, delta=DELTA).finite or ternary
    targets = [0.5, 1.0, 2.0, 4.0]
    calibrated = hs.calibrate(algorithm, problem, graph, 12, targets, delta=DELTA)
    if ternary:  # its budget is delta, at epsilon = 0
        budgets = hs.certify(calibrated, problem, graph, 12).budgets
        assert all(b.epsilon == 0 and DELTA * (1 - 1e-6) <= b.delta <= DELTA for b in budgets)
        assert hs.certify(with_noise(name, 1e-9), problem, graph, 12).budgets[0].epsilon == math.inf
        return
    budgets = hs.certify(calibrated, problem, graph, 12, delta=DELTA).budgets
    # Laplace noise at a delta is found by a search.
    close = 1e-4 if algorithm.law.composes else 1e-6
    for budget, asked in zip(budgets, targets, strict=True):
        assert asked * (1 - close) <= budget.compared <= asked
    if algorithm.law.composes:
        pure = hs.calibrate(algorithm, problem, graph, 12, targets)
        assert hs.certify(pure, problem, graph, 12).epsilon == pytest.approx(targets, rel=1e-6)
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
    per_agent = "one schedule, or one for each of the 4 agents" if noisy(name) else "left out"
    with pytest.raises(ValueError, match=f"noise must be {per_agent}"):
        hs.certify(cls(noise=[1.0, 2.0]), problem, hs.graphs.ring(4), 5)
    with pytest.raises(ValueError, match="the graph has 5 agents and the problem has 4"):
        hs.simulate(cls(), problem, hs.graphs.ring(5), steps=5)
    lopsided = hs.graphs.from_weights(
        [[0, 0.2, 0, 0.2], [0.3, 0, 0.2, 0], [0, 0.2, 0, 0.2], [0.2, 0, 0.2, 0]]
    )
    symmetric = r"weights must be symmetric, got w\[0,1\] = 0.2 and w\[1,0\] = 0.3"
    balanced = "the mixing matrix must be doubly stochastic, got column 0 with sum 1.1"
    # Trackers travel over directed graphs, averages over none.
    if set(cls().channels.values()) <= {"coupling", "mixing"}:
        ways = f"{cls().name} needs that; gradient-tracking takes any directed graph"
        with pytest.raises(ValueError, match=f"({symmetric}|{balanced}): {ways}"):
            hs.certify(cls(), problem, lopsided, 5)


# What an algorithm declares.


def concrete() -> list[type[Algorithm]]:
    """Every class in algorithms/ and experiments/ that can be built."""
    modules = [
        importlib.import_module(found.name)
        for package in (algorithms, experiments)
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    ]
    kinds = {
        item
        for module in modules
        for item in vars(module).values()
        if inspect.isclass(item) and issubclass(item, Algorithm) and not inspect.isabstract(item)
    }
    return sorted(kinds, key=lambda kind: kind.__name__)


def test_concrete_classes_are_final():
    """An abstract class may be shared; theorems and options of a concrete one must not be."""
    kinds = concrete()
    assert len(kinds) == 14
    for kind in kinds:
        assert getattr(kind, "__final__", False), f"{kind.__name__} is not marked @final"
        assert all(inspect.isabstract(base) for base in kind.__bases__), kind.__bases__


def test_every_concrete_class_has_its_own_file_and_is_registered():
    built = {type(build()) for build in hs.REGISTRY.values()}
    assert {k for k in concrete() if k.__module__.startswith("hearsay.algorithms.")} == built
    assert len({kind.__module__ for kind in concrete()}) == len(concrete())


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_name_is_one_thing_everywhere(name):
    """REGISTRY, hearsay's own names, certificates, and a configuration that repeats it."""
    algorithm = with_noise(name, 0.5)
    assert algorithm.name == name
    assert getattr(hs, registry.VERBS[name]) is hs.REGISTRY[name]
    assert hs.certify(algorithm, small_problem(), hs.graphs.ring(4), 3, delta=DELTA).algorithm == (
        name
    )
    config = Config(problem={"loss": "ridge"}, algorithm=as_table(algorithm), run={"steps": 40})
    assert build(config)[0] == algorithm
    assert replace(algorithm, average=True).name == name
    with pytest.raises(ValueError, match="name must be one of"):
        replace(algorithm, name="another")


@pytest.mark.parametrize("name", ALGORITHMS)
def test_what_is_drawn_and_sent(name):
    """A draw for every field that is noised; coins lie between 0 and 1; every field of a message
    has a channel, and what is no coin has a release.
    """
    algorithm, params = with_noise(name, 0.5), jnp.zeros(64)
    draws = algorithm.draws(
        keys_of(algorithm, hs.graphs.ring(4), agent=1, seed=3),
        jnp.arange(20),
        params,
        algorithm.constants(params.dtype),
    )
    noises = set(draws._fields) - set(algorithm.coins)
    for coin in set(algorithm.coins) & set(draws._fields):
        values = np.asarray(getattr(draws, coin))
        assert 0 <= values.min() <= values.max() <= 1
    assert algorithm.message._fields == tuple(algorithm.channels)
    assert set(algorithm.coins) <= set(draws._fields)
    for agent in range(2):
        releases = algorithm.releases(agent, (0.0, 1.0))
        assert (
            {r.name for r in releases} == noises == set(algorithm.channels) - set(algorithm.coins)
        )
    rates = algorithm.rates(np.arange(3), 2)
    assert set(noise_fields(type(algorithm))) <= set(rates._fields)
    assert all(law.shape == (3, 2) for law in rates)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_leak_is_affine_in_what_is_heard(name):
    algorithm, k = with_noise(name, 0.5), np.arange(5)
    ends = [algorithm.leak(heard)(k) for heard in (0.0, 0.8)]
    for share in (0.25, 0.5):
        between = algorithm.leak(0.8 * share)(k)
        np.testing.assert_allclose(between, (1 - share) * ends[0] + share * ends[1], rtol=1e-12)


class Steep:
    """A batch whose gradient is steep, for the update's dependence on what is heard alone."""

    size = 1

    def gradient(self, params):
        return 3.0 * params

    def descended(self, params, step):
        return params - step * 3.0 * params


@pytest.mark.parametrize("name", ALGORITHMS)
def test_declared_magnitudes_are_those_of_the_update(name):
    """The derivative of the next model by what is heard is at most `coupling`, that of a drift at
    most `tracking`; `finish` moves a value by at most `resolution`; a release with delay has the
    scale that the state will ask for.
    """
    algorithm, k, agents = with_noise(name, 0.5), 3, 2
    declared = algorithm.magnitudes(1, agents)
    rates = algorithm.rates(np.arange(5), agents)
    rate = type(rates)(*(jnp.asarray(law[k, 1]) for law in rates))
    state, params = algorithm.init(jnp.full(3, 0.3)), jnp.full(3, 0.3)
    draws = jax.tree.map(
        lambda x: x[0],
        algorithm.draws(
            keys_of(algorithm, hs.graphs.ring(4), agent=1),
            jnp.asarray([k]),
            params,
            algorithm.constants(params.dtype),
        ),
    )
    coins = {name: jnp.zeros_like(getattr(draws, name)) for name in algorithm.coins}
    draws = draws._replace(**coins)
    sent, state = algorithm.send(draws, state, Steep(), rate)
    own = algorithm.message(*(jnp.asarray(0.4) for _ in sent))

    def after(total):
        return algorithm.update(state, sent, Inbox(total, own), Steep(), rate, Ball(1e9))

    total = jax.tree.map(jnp.zeros_like, sent)
    slopes = jax.jacobian(after)(total)
    limits = {"params": declared.coupling, "drift": declared.tracking}
    for part, limit in limits.items():
        if hasattr(slopes, part):
            for field in set(algorithm.channels) - set(algorithm.coins):
                slope = np.abs(getattr(getattr(slopes, part), field)).max()
                assert slope <= float(limit(k)) * (1 + 1e-6), (part, field)
    private, _ = algorithm.prepare(state, Steep(), rate)
    noised = type(private)(*(field.value for field in private))
    finished, _ = algorithm.finish(noised, draws, state)
    for field in set(noised._fields) - set(algorithm.coins):
        moved = np.abs(getattr(finished, field) - getattr(noised, field)).max()
        assert moved <= declared.resolution * (1 + 1e-6)
    delayed = [r for r in algorithm.releases(1, (0.0, 1.0)) if r.delay]
    assert (declared.step_noise is None) == (not delayed)
    assert float(declared.step(k)) == float(rates.step[k, 1])
    if delayed:
        scale = algorithm.prepare(after(total), Steep(), rate)[0].params.scale
        np.testing.assert_allclose(np.max(scale), float(declared.step_noise(k)), rtol=1e-6)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_example_in_the_docstring_runs(name):
    module = importlib.import_module(registry.ENTRIES[name].place.partition(":")[0])
    found = doctest.testmod(module)
    assert found.attempted >= 2
    assert not found.failed


def test_names_are_listed_without_the_machinery_that_runs_them():
    """The registry's file imports nothing of jax, nor of hearsay."""
    source = inspect.getsource(registry)
    assert "import jax" not in source and "from hearsay" not in source
    assert all(len(entry.summary) <= 80 for entry in registry.ENTRIES.values())
    assert list(hs.REGISTRY) == list(registry.ENTRIES)


def test_the_readme_names_every_algorithm():
    """And none that is not there."""
    readme = (Path(hs.__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    table = readme.partition("| methods of four papers")[2].partition("| problems |")[0]
    assert set(re.findall(r"`([a-z0-9-]+)`", table)) == set(registry.ENTRIES)
