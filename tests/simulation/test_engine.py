"""The tap: it sees the rounds that run, changes nothing in them, and costs nothing where it is not
used. The carry's codec.
"""

from __future__ import annotations

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hearsay as hs
from hearsay.audit.overhear import overhear
from hearsay.simulation import engine, promise
from hearsay.simulation.program import Carry, Program, flatten, kernel, program, unflatten
from hearsay.simulation.rounds import Rounds

PROBLEM = hs.problems.synthetic(agents=4, records=40, dimension=3, feature_bound=2.0, radius=4.0)
GRAPH = hs.graphs.ring(4, weight=0.25)
ALGORITHM = hs.gradient_tracking(
    step=0.05, coupling=0.4, tracking=0.05, noise=0.1, sampling=hs.Cyclic(3)
)
STEPS = 6


def everything(seen: engine.Round):
    return seen.step, seen.states, seen.sent, seen.inbox


def own_gradient(seen: engine.Round):
    """With each agent's batch in hand."""
    return seen.by_agent(lambda batch, state: batch.gradient(state.params))(seen.states)


def nothing(seen: engine.Round):
    return ()


def network(seeds=(3, 5), algorithm=ALGORITHM) -> Rounds:
    return Rounds(algorithm, PROBLEM, GRAPH, list(seeds))


def test_the_tap_sees_the_rounds_that_run():
    watched, plain = network(), network()
    step, states, sent, inbox = watched.advance(STEPS, tap=everything)
    np.testing.assert_array_equal(step, np.arange(STEPS)[:, None].repeat(2, axis=1))
    for k in range(STEPS):
        before = plain.carry.states
        for found, right in zip(states, before, strict=True):
            np.testing.assert_allclose(found[k], right, rtol=0, atol=1e-13)
        plain.advance(1)
    for found, right in zip(
        jax.tree.leaves(watched.carry), jax.tree.leaves(plain.carry), strict=True
    ):
        np.testing.assert_allclose(found, right, rtol=0, atol=1e-13)
    # What was heard is what was sent, weighed by the graph.
    total = np.einsum("ij,ksjd->ksid", GRAPH.weights.toarray(), sent.params)
    np.testing.assert_allclose(inbox.total.params, total, atol=1e-13)
    assert watched.step == plain.step == STEPS


def test_an_eavesdropper_hears_what_the_tap_saw():
    sent = network().advance(STEPS, tap=everything)[2]
    for k, message in enumerate(overhear(ALGORITHM, PROBLEM, GRAPH, STEPS, seed=5)):
        for name, values in message._asdict().items():
            np.testing.assert_allclose(values, getattr(sent, name)[k, 1], rtol=0, atol=1e-13)


def test_a_tap_has_every_agents_batch():
    """Step 0 from the origin, on the agent's first three records."""
    found = network().advance(1, tap=own_gradient)
    for agent in range(4):
        a, b = PROBLEM.features[agent, :3], PROBLEM.labels[agent, :3]
        right = PROBLEM.loss.gradient_sum(np.zeros(3), a, b, np.full(3, 1 / 3))
        np.testing.assert_allclose(found[0, 0, agent], right, atol=1e-13)


def equations(jaxpr) -> int:
    inner = [p.jaxpr for e in jaxpr.eqns for p in e.params.values() if hasattr(p, "jaxpr")]
    return len(jaxpr.eqns) + sum(equations(one) for one in inner)


def test_what_is_not_looked_at_costs_nothing():
    """The program with an idle tap has the equations of the one without; one that looks has more,
    so that the count would see a difference.
    """
    rounds = network()
    inputs = engine.inputs(ALGORITHM, PROBLEM, np.arange(STEPS))

    def count(tap):
        return equations(
            jax.make_jaxpr(
                lambda carry, setting, inputs: engine.trajectory(
                    rounds.program, carry, setting, inputs, block=STEPS, tap=tap
                )
            )(rounds.carry, rounds.setting, inputs).jaxpr
        )

    assert count(None) == count(nothing) < count(own_gradient)


@pytest.mark.slow
def test_a_tap_sees_large_models_too():
    """Agents and seeds that are computed one after the other."""
    layer = eqx.nn.Linear(64, 10, key=jax.random.key(0))
    model = eqx.nn.Sequential([eqx.nn.Lambda(jnp.ravel), layer])
    problem = hs.problems.neural("digits", model=model, agents=3, records=60, test_records=10)
    algorithm = hs.dsgd(noise=0.1, sampling=hs.Cyclic(2))
    rounds = Rounds(algorithm, problem, hs.graphs.ring(3), [0, 1])
    first = np.asarray(rounds.models)
    sent = rounds.advance(1, tap=everything)[2]
    assert sent.params.shape == (1, 2, 3, problem.dimension)
    # Messages of step 0 are the first models with noise, another one for every agent and seed.
    noise = (sent.params[0] - first).reshape(6, -1)
    assert len(np.unique(noise[:, 0])) == 6
    # The mean of 650 |Laplace(0.1)| is within five standard errors: false-alarm rate 4e-6.
    np.testing.assert_allclose(np.abs(noise).mean(axis=1), 0.1, atol=5 * 0.1 / np.sqrt(650))


@pytest.mark.slow
def test_networks_side_by_side_have_the_same_result(monkeypatch):
    layer = eqx.nn.Linear(64, 10, key=jax.random.key(0))
    model = eqx.nn.Sequential([eqx.nn.Lambda(jnp.ravel), layer])
    problem = hs.problems.neural("digits", model=model, agents=3, records=60, test_records=10)
    algorithm = hs.gradient_perturbation(
        noise=0.1,
        mechanism="gaussian",
        step=0.5,
        sampling=hs.Poisson(0.5),
        secrets=hs.Secrets(1),
    )

    def models() -> np.ndarray:
        rounds = Rounds(algorithm, problem, hs.graphs.ring(3), [0, 1])
        rounds.advance(3)
        return np.asarray(rounds.models)

    copies = models()
    monkeypatch.setattr(engine, "together", lambda: True)
    np.testing.assert_allclose(models(), copies, rtol=1e-5, atol=1e-6)
    monkeypatch.undo()
    # Accelerators only: on a CPU one agent's work fills the cores.
    assert not engine.together()


def test_programs_are_what_compilation_depends_on():
    one = program(ALGORITHM, PROBLEM)
    assert one == program(replace(ALGORITHM, step=hs.Constant(0.7)), PROBLEM)
    assert hash(one) == hash(program(replace(ALGORITHM, noise=hs.Constant(9.0)), PROBLEM))
    assert one != program(replace(ALGORITHM, mechanism="gaussian"), PROBLEM)
    assert one != Program(kernel(ALGORITHM), replace(PROBLEM.loss, ridge=0.5), *one_rest(one))


@pytest.mark.parametrize("noise", [0.1, (0.1, 0.2, 0.1, 0.3)])
@pytest.mark.parametrize("held", [(41, 20, 41, 33), (41, 20, 37, 33)], ids=["some", "none"])
def test_agents_with_as_many_records_share_a_column(held, noise, monkeypatch):
    """Very many agents: what steps bring is there once, and every bit is the same; also where no
    two agents have as many records.
    """
    uneven = hs.problems.synthetic(agents=4, records=41, dimension=3, feature_bound=2.0, radius=4.0)
    counts = np.array(held)
    records = uneven.records._replace(held=counts)
    problem = replace(uneven, counts=counts, records=records)
    algorithm = replace(ALGORITHM, noise=tuple(map(hs.Constant, np.broadcast_to(noise, 4))))
    if noise == 0.1:
        algorithm = replace(ALGORITHM, noise=hs.Constant(0.1))
    # Everybody is through with its records after another number of steps.
    algorithm = replace(algorithm, sampling=hs.Cyclic(8))
    found = []
    for most in (1024, 3):
        monkeypatch.setattr(engine, "_OWN_COLUMNS", most)
        rounds = Rounds(algorithm, problem, GRAPH, [3, 5])
        assert len(rounds.setting.columns) == (0 if most == 1024 else 4)
        rounds.advance(STEPS)
        found.append(np.asarray(rounds.models))
    np.testing.assert_array_equal(*found)
    shared = engine.inputs(algorithm, problem, np.arange(STEPS), shared_columns=True)
    assert shared.windows.size.shape == (STEPS, len(set(held))) and shared.rates.step.shape == (
        STEPS,
        1,
    )
    assert shared.rates.noise.shape == (STEPS, 1 if noise == 0.1 else 4)


def one_rest(one: Program):
    return one.domain, one.arrivals


def test_a_carry_comes_back_from_its_arrays():
    carry = network().carry
    stored = flatten(carry, "part {}")
    assert list(stored)[:2] == ["part 0", "part 1"]
    back = unflatten(stored, carry, "part {}", "file")
    for found, right in zip(jax.tree.leaves(back), jax.tree.leaves(carry), strict=True):
        np.testing.assert_array_equal(found, right)
    damaged = (
        {**stored, "part 0": stored["part 0"][:1]},
        {**stored, "part 0": stored["part 0"].astype(np.float32)},
        {name: array for name, array in stored.items() if name != "part 1"},
    )
    for arrays in damaged:
        with pytest.raises(ValueError, match="the file's state has another shape than this run's"):
            unflatten(arrays, carry, "part {}", "file")
    assert isinstance(back, Carry)


def test_a_run_is_certified_once(monkeypatch):
    asked, real = [], promise.certify

    def counted(*args, **options):
        asked.append(args[3])
        return real(*args, **options)

    monkeypatch.setattr(promise, "certify", counted)
    run = hs.simulate(ALGORITHM, PROBLEM, GRAPH, steps=5, reference=False, regret=False)
    assert asked == [5]
    assert run.certificate.horizon == 5
    # A run that ends early is certified for what it sent.
    spent = float(run.spent[3].max())
    early = hs.simulate(
        ALGORITHM, PROBLEM, GRAPH, steps=5, every=1, budget=spent, reference=False, regret=False
    )
    assert early.certificate.horizon == int(early.steps[-1]) < 5
    assert asked == [5, 5, early.certificate.horizon]


@pytest.mark.slow
def test_observations_do_not_depend_on_the_blocks():
    rounds = network()
    inputs = engine.inputs(ALGORITHM, PROBLEM, np.arange(STEPS))
    found = [
        engine.observe(
            rounds.carry, rounds.setting, inputs, program=rounds.program, block=block,
            tap=everything,
        )[1][2].params
        for block in (1, 2, STEPS)
    ]  # fmt: skip
    for other in found[1:]:
        np.testing.assert_allclose(found[0], other, rtol=0, atol=1e-13)
    assert jnp.asarray(found[0]).shape == (STEPS, 2, 4, 3)
