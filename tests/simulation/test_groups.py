"""Networks of many agents: a loop over groups has one program, and the results of the copies."""

from __future__ import annotations

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hearsay as hs
from hearsay.simulation import engine, memory
from hearsay.simulation.groups import in_groups
from hearsay.simulation.program import program
from hearsay.simulation.rounds import Rounds

ALGORITHM = hs.gradient_perturbation(
    noise=0.1, mechanism="gaussian", step=0.5, sampling=hs.Poisson(0.5), secrets=hs.Secrets(1)
)


def network(agents: int, **changes) -> hs.problems.Problem:
    layer = eqx.nn.Linear(64, 10, key=jax.random.key(0))
    model = eqx.nn.Sequential([eqx.nn.Lambda(jnp.ravel), layer])
    problem = hs.problems.neural(
        "digits", model=model, agents=agents, records=4 * agents, test_records=10
    )
    return replace(problem, loss=replace(problem.loss, **changes))


def models(problem: hs.problems.Problem, seeds=(0, 1), algorithm=ALGORITHM) -> np.ndarray:
    rounds = Rounds(algorithm, problem, hs.graphs.ring(problem.agents), list(seeds))
    rounds.advance(3)
    return np.asarray(rounds.models)


@pytest.mark.parametrize(("agents", "size"), [(5, 1), (6, 3), (7, 3)])
def test_groups_are_as_good_as_everybody_at_once(agents, size):
    """Groups that do not divide the agents too, and keys, whole numbers and pairs of results."""
    keys = jax.random.split(jax.random.key(0), agents)
    numbers = jnp.arange(agents)

    def one(key, number):
        drawn = jax.random.normal(key, (3,))
        return (drawn * number, number + 1), key

    found = in_groups(one, size)(keys, numbers)
    right = jax.vmap(one)(keys, numbers)
    for ours, wanted in zip(jax.tree.leaves(found), jax.tree.leaves(right), strict=True):
        if jnp.issubdtype(ours.dtype, jax.dtypes.prng_key):
            ours, wanted = jax.random.key_data(ours), jax.random.key_data(wanted)
        np.testing.assert_allclose(ours, wanted, rtol=1e-6)


@pytest.mark.slow
def test_a_loop_over_agents_has_the_results_of_copies(monkeypatch):
    problem = network(5)
    copies = models(problem)
    monkeypatch.setattr(engine, "COPIES", 4)
    np.testing.assert_allclose(models(problem), copies, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_groups_side_by_side_have_the_same_result(monkeypatch):
    problem = network(5)
    copies = models(problem)
    monkeypatch.setattr(engine, "together", lambda: True)
    for group in (1, 2, 3):
        grouped = replace(problem, loss=replace(problem.loss, group=group))
        np.testing.assert_allclose(models(grouped), copies, rtol=1e-5, atol=1e-6)


def equations(jaxpr) -> int:
    inner = [p.jaxpr for e in jaxpr.eqns for p in e.params.values() if hasattr(p, "jaxpr")]
    return len(jaxpr.eqns) + sum(equations(one) for one in inner)


def size_of_program(problem: hs.problems.Problem, seeds=(0,)) -> int:
    algorithm = hs.dsgd(noise=0.1, sampling=hs.Cyclic(2))
    compiled = program(algorithm, problem)
    inputs = engine.inputs(algorithm, problem, np.arange(1))

    def run(inputs):
        graph = hs.graphs.ring(problem.agents)
        setting = engine.surroundings(algorithm, problem, graph, seeds)
        carry = engine.start(compiled, problem, setting, seeds, 0.0)
        return engine.trajectory(compiled, carry, setting, inputs, block=1)

    return equations(jax.make_jaxpr(run)(inputs).jaxpr)


def test_a_program_is_as_long_for_many_agents_as_for_few(monkeypatch):
    """What a compiler takes follows the program's length: that of 60 agents is that of 20, and
    shorter than that of the copies that 5 agents have.
    """
    many = size_of_program(network(60))
    assert many == size_of_program(network(20)) < size_of_program(network(5))
    assert size_of_program(network(20), seeds=(0, 1, 2)) < 1.1 * many
    monkeypatch.setattr(engine, "together", lambda: True)
    grouped = [size_of_program(network(agents, group=4)) for agents in (20, 60)]
    assert grouped[0] == grouped[1]


def test_groups_are_chosen_from_the_memory_and_stated(monkeypatch):
    problem, graph = network(12), hs.graphs.ring(12)
    each = memory.record_bytes(problem) * memory.widest(ALGORITHM, problem)
    # On a CPU agents take turns, whatever the memory.
    assert memory.fitted(ALGORITHM, problem).loss.group is None
    monkeypatch.setattr(memory, "together", lambda: True)
    assert memory.fitted(ALGORITHM, problem).loss.group is None
    tight = memory.fitted(ALGORITHM, problem, free=2 * 5 * each)
    assert (tight.loss.group, tight.loss.microbatch) == (5, None)
    assert "records of 5 agents at once" in memory.summary(ALGORITHM, tight, graph)
    assert memory.fitted(ALGORITHM, problem, free=2 * 5 * each, seeds=2).loss.group == 2
    # Where not even one agent's records fit, they are cut too.
    tiny = memory.fitted(ALGORITHM, problem, free=each // 4)
    assert tiny.loss.group == 1 and tiny.loss.microbatch == 2
    # Gradients that are not clipped are summed as they are computed.
    free = replace(problem, loss=replace(problem.loss, clip=None))
    assert memory.record_bytes(free) < memory.record_bytes(problem)
    # Few agents are one group, as their copies were.
    assert memory.fitted(ALGORITHM, network(8), free=each).loss.group is None


@pytest.mark.slow
def test_a_group_that_does_not_fit_is_halved_and_said(monkeypatch):
    problem, said, real = network(12), [], engine.advance

    def limited(*args, program, **more):
        loss = program.loss
        if (loss.group or 12) > 1 or (loss.microbatch or 4) > 2:
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes")
        return real(*args, program=program, **more)

    graph, plain = hs.graphs.ring(12), replace(ALGORITHM, secrets=None)
    whole = hs.simulate(plain, problem, graph, steps=2, delta=1e-5)
    monkeypatch.setattr(memory, "together", lambda: True)
    monkeypatch.setattr(engine, "advance", limited)
    run = hs.simulate(plain, problem, graph, steps=2, delta=1e-5, notify=said.append)
    assert [text for text in said if "out of memory" in text] == [
        "out of memory: going on with groups of 6 agents",
        "out of memory: going on with groups of 3 agents",
        "out of memory: going on with groups of 1 agent",
        "out of memory: going on with microbatches of 2",
    ]
    assert (run.problem.loss.group, run.problem.loss.microbatch) == (1, 2)
    np.testing.assert_allclose(run.models, whole.models, rtol=1e-5, atol=1e-6)


def test_a_group_is_a_whole_number():
    with pytest.raises(ValueError, match="group must be at least 1, got 0"):
        network(2, group=0)
