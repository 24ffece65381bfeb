"""What a reader of a certificate sees: whole after a round trip, rounded up, with its assumptions,
and equal to the smallest true bound.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hearsay import algorithm, ldp_online
from hearsay.algorithms import Dsgd, GradientPerturbation
from hearsay.base import Inbox, Message, State
from hearsay.certification import accounts, calibrate, certify, messages_within, spent_after
from hearsay.graphs import ring
from hearsay.graphs.secrets import Secrets
from hearsay.privacy import AgentBudget, Certificate
from hearsay.privacy.adding import add_up
from hearsay.privacy.certificate import show, show_horizon
from hearsay.privacy.recursion import Assumption
from hearsay.problems import ridge
from hearsay.problems.losses.domains import Ball
from hearsay.problems.losses.linear import Squared
from hearsay.problems.sampling.samplers import Batch, Fresh, Resample, Subset
from hearsay.schedules import Constant, PowerLaw
from tests.factories import holding

ENFORCED, DECLARED = (
    Assumption("enforced", "gradients are clipped to 1"),
    Assumption("declared", "the stream never ends"),
)


def certificate(**changes) -> Certificate:
    budgets = (
        AgentBudget(
            0, 1.23449, "basis A", "every step", "step 3", 7.5, 0.9, None, "", (ENFORCED, DECLARED)
        ),
        AgentBudget(
            1,
            math.inf,
            "basis B",
            "once",
            "",
            None,
            None,
            None,
            "messages carry no noise",
            (ENFORCED,),
        ),
    )
    return replace(
        Certificate("ldp-online", math.inf, "laplace", budgets, 1e-5, ("mind the step",)), **changes
    )


@pytest.mark.parametrize("horizon", [2000, math.inf])
def test_json_round_trip(horizon):
    this = certificate(horizon=horizon)
    text = this.to_json()
    assert Certificate.from_json(text) == this
    assert Certificate.from_json(text).to_json() == text
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert json.loads(text)["budgets"][1]["epsilon"] == "infinite"


def test_words_that_look_like_numbers_are_words():
    this = certificate(names=("nan", "infinite"), algorithm="infinite")
    assert Certificate.from_json(this.to_json()) == this
    low = replace(this.budgets[0], paper_epsilon=-math.inf)
    assert Certificate.from_json(certificate(budgets=(low,)).to_json()) == certificate(
        budgets=(low,)
    )


def test_a_formula_below_zero_is_shown():
    """A paper's formula with a coupling above 1 may be."""
    assert (
        show(-0.1234) == "-0.1234" and show(1e-321) == "1e-300" and show(1.797e308) == "1.797e+308"
    )
    negative = replace(certificate().budgets[0], paper_epsilon=-0.5)
    assert "-0.5000" in str(certificate(budgets=(negative,)))


def test_damaged_json_is_refused_in_words():
    whole = certificate().to_json()
    for text in (
        "",
        "null",
        "[]",
        "3",
        whole[:100],
        whole.replace('"epsilon": ', '"epsilon": 0.1, "epsilon": ', 1),
    ):
        with pytest.raises(ValueError, match="certificate must be"):
            Certificate.from_json(text)
    refused = "must be"
    for key in json.loads(whole):
        missing = {k: v for k, v in json.loads(whole).items() if k != key}
        if key in ("algorithm", "horizon", "mechanism", "budgets"):
            with pytest.raises(ValueError, match=rf"certificate\.{key} must be given"):
                Certificate.from_json(json.dumps(missing))
        for wrong in (-1, {}):
            with pytest.raises((TypeError, ValueError), match=refused):
                Certificate.from_json(json.dumps({**missing, key: wrong}))
    first, *rest = json.loads(whole)["budgets"]
    for key in first:
        for wrong in (-1, {}, True) if key != "paper_epsilon" else ({}, True, "x"):
            damaged = {**json.loads(whole), "budgets": [{**first, key: wrong}, *rest]}
            with pytest.raises((TypeError, ValueError), match=refused):
                Certificate.from_json(json.dumps(damaged))


def test_an_epsilon_without_its_delta_is_no_certificate():
    plain = replace(certificate().budgets[0], epsilon_at_delta=None)
    for mechanism in ("gaussian", "ternary"):
        with pytest.raises(ValueError, match="delta must be given"):
            certificate(mechanism=mechanism, delta=None, budgets=(plain,))


def test_the_part_of_nobody_is_refused():
    found = certificate()
    assert [b.agent for b in found.of(1).budgets] == [1]
    with pytest.raises(ValueError, match="agent must be one that this certificate is about, got 9"):
        found.of(9)
    with pytest.raises(ValueError, match=r"agent must be the number of an agent \(add_up adds"):
        Certificate.of(found, found)


def test_runs_on_the_same_records_add_up_agent_by_agent():
    problem, graph = ridge(agents=3, records=60), ring(3)
    pure = certify(Dsgd(noise=Constant(50.0)), problem, graph, 20, delta=1e-6)
    gaussian = Dsgd(noise=Constant(50.0), mechanism="gaussian")
    slack = certify(gaussian, problem, graph, 20, delta=1e-5)
    found = add_up(pure, slack, slack)
    wanted = np.add(pure.epsilon, np.multiply(2, slack.epsilon))
    assert np.all(np.array(found.epsilon) >= wanted)
    np.testing.assert_allclose(found.epsilon, wanted, rtol=1e-12)
    # Pure epsilons are at no delta, also where the certificate has one to compare with.
    assert found.delta == pytest.approx([2e-5] * 3)
    assert found.protects == pure.adjacencies and found.agents == [0, 1, 2]
    said = str(found)
    assert "the same records in all runs" in said and "drawn anew" in said
    assert all(warning in said for warning in (*pure.warnings, *slack.warnings))


def test_deltas_of_agents_add_up_to_no_guarantee():
    problem, graph = ridge(agents=3, records=60), ring(3)
    one = certify(algorithm("ternary-dsgd", noise=100.0), problem, graph, 2)
    deltas = [b.delta for b in one.budgets]
    assert 0 < max(deltas) < 1
    found = add_up(one, one)
    assert found.delta == pytest.approx([min(1.0, 2 * delta) for delta in deltas])
    many = add_up(*[one] * 1000)
    assert many.delta == [1.0] * 3 and many.epsilon == [math.inf] * 3


def test_certificates_that_cannot_be_added_are_refused():
    problem, graph = ridge(agents=3, records=60), ring(3)
    one = certify(Dsgd(noise=Constant(50.0)), problem, graph, 20)
    other = ridge(agents=3, records=60, adjacency="zero-out")
    empty = certify(Dsgd(noise=Constant(50.0)), other, graph, 20)
    with pytest.raises(ValueError, match="certificates must be two or more, got 1"):
        add_up(one)
    with pytest.raises(ValueError, match="certificates must be of the same agents, 3 in the first"):
        add_up(one, one.of(1))
    with pytest.raises(ValueError, match="certificates must be all about"):
        add_up(one, empty)
    sharing = Dsgd(noise=Constant(50.0), mechanism="gaussian", secrets=Secrets(colluders=1))
    shared = certify(sharing, problem, graph, 20, delta=1e-5)
    with pytest.raises(ValueError, match="certificates must be without shared noise"):
        add_up(shared, shared)
    with pytest.raises(TypeError, match="certificates must be certificates"):
        add_up(one, 2.0)  # type: ignore[arg-type]
    # Simulated subsets are the same in every run of a problem: together they hide less.
    subsets = GradientPerturbation(noise=Constant(20.0), sampling=Subset(2))
    secret = certify(subsets, problem, graph, 1, delta=1e-9)
    assert secret.amplified(0)
    with pytest.raises(ValueError, match="certificates must be of deployed runs where batches are"):
        add_up(secret, secret)
    names = [replace(one, names=names) for names in (("a", "b", "c"), ("c", "a", "b"))]
    with pytest.raises(ValueError, match="certificates must be of the same agents"):
        add_up(*names)
    with pytest.raises(ValueError, match="cannot be verified"):
        add_up(*[Certificate("a", 5, "laplace", (AgentBudget(0, 1.0, "b", "p", "d"),))] * 2)


def test_infinite_budgets_are_shown_as_such_with_their_reason():
    this = certificate()
    row = next(line for line in str(this).splitlines() if line.split()[:1] == ["1"])
    assert "infinite" in row and "messages carry no noise" in row
    assert not this.finite and certificate(budgets=this.budgets[:1]).finite
    assert "infinite horizon" in str(this) and "2,000 messages" in str(certificate(horizon=2000))
    assert show_horizon(math.inf) == "infinite horizon"


def test_every_assumption_is_listed_with_its_kind_and_agents():
    text = str(certificate())
    assert "[enforced] gradients are clipped to 1\n" in text + "\n"
    assert "[declared] the stream never ends (agent 0)" in text
    assert certificate().shared_assumptions() == [(ENFORCED, [0, 1]), (DECLARED, [0])]
    for part in (
        "differ in one record",
        "every message of every agent",
        "not covered",
        "warning: mind the step",
    ):
        assert part in text


def test_the_paper_formula_is_never_called_a_guarantee():
    assert "not a guarantee" in str(certificate())
    without = tuple(replace(b, paper_epsilon=None) for b in certificate().budgets)
    assert "paper" not in str(certificate(budgets=without))


def test_many_agents_are_shortened_to_the_worst():
    budgets = tuple(replace(certificate().budgets[0], agent=i, epsilon=1.0 + i) for i in range(30))
    text = str(certificate(budgets=budgets))
    assert "... and 10 more agents, with epsilon between 1.000 and 10.00" in text
    assert "30.00" in text and "\n     19" in text and "\n      9" not in text


def test_agents_with_the_same_budget_share_a_row():
    one = certificate().budgets[0]
    budgets = tuple(replace(one, agent=i, epsilon=2.0 if i == 7 else 1.0) for i in range(10_000))
    text = str(certificate(budgets=budgets))
    assert len(text) < 3000
    assert "0–6, 8–9999" in text and "more agents" not in text
    ternary = tuple(replace(one, agent=i, epsilon=0.0, delta=i / 1000) for i in range(500))
    assert "480 more agents, with delta between 0.0000 and 0.4790" in str(
        certificate(budgets=ternary)
    )


def test_named_agents_are_called_by_their_names():
    text = str(certificate(names=("alice", "bob")))
    assert "  alice  " in text and "(agent alice)" in text


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(st.floats(1e-9, 1e12))
def test_printed_numbers_are_rounded_up(value):
    printed = float(show(value).replace(",", ""))
    assert value * (1 - 1e-12) <= printed <= value * 1.00101 + 1e-12


def test_printed_numbers_one_by_one():
    shown = [
        (1.23441, "1.235"),
        (0.99991, "1.0000"),
        (0.0012341, "0.001235"),
        (12345.1, "12,346"),
        (2.0, "2.000"),
    ]
    for value, text in shown:
        assert show(value) == text
    assert (show(0.0), show(None), show(math.inf)) == ("0.0000", "-", "infinite")


# Certificates of real runs.


@pytest.fixture(scope="module")
def setting():
    return ridge(agents=3, records=60, dimension=2, radius=2.0), ring(3)


def options(**changes):
    return ldp_online(
        **{
            "step": PowerLaw(0.1, -0.7),
            "coupling": PowerLaw(0.4, -0.6),
            "noise": PowerLaw(5.0, 0.2),
            **changes,
        }
    )


def test_a_certificate_is_the_smallest_true_bound(setting):
    problem, graph = setting
    algorithm = options(noise=[PowerLaw(s, 0.2) for s in (1.0, 2.0, 4.0)])
    found = certify(algorithm, problem, graph, 50, delta=1e-5)
    for agent, budget in enumerate(found.budgets):
        bounds = [a.cost(50).value for a in accounts(algorithm, problem, graph, agent)]
        assert budget.epsilon == min(bounds)
        assert 0 < budget.epsilon_at_delta <= budget.epsilon
        assert budget.assumptions and budget.pattern.startswith("history")
    assert found.epsilon[0] > found.epsilon[1] > found.epsilon[2]


@pytest.mark.parametrize("sampling", [None, Fresh()], ids=["history", "fresh"])
def test_spent_ends_at_the_certificate(setting, sampling):
    problem, graph = setting
    algorithm = options(**({} if sampling is None else {"sampling": sampling}))
    curve = spent_after(algorithm, problem, graph, range(1, 41))
    assert curve.shape == (40, 3) and np.all(np.diff(curve, axis=0) >= 0)
    np.testing.assert_allclose(
        curve[-1], certify(algorithm, problem, graph, 40).epsilon, rtol=1e-12
    )


@pytest.mark.slow
def test_a_run_that_never_ends_costs_more_and_says_what_it_takes_for_granted(setting):
    problem, graph = setting
    algorithm = options()
    for delta in (None, 1e-5):
        ever = certify(algorithm, problem, graph, math.inf, delta=delta)
        # 60 records: the first 60 steps are the same whether or not the stream goes on.
        assert all(
            e > f
            for e, f in zip(
                ever.epsilon, certify(algorithm, problem, graph, 60).epsilon, strict=True
            )
        )
        assert any(
            a.kind == "declared" and "never ends" in a.text for a in ever.budgets[0].assumptions
        )
    longest = accounts(algorithm, problem, graph, 0, endless=True)[0].message_costs(30_000)
    assert ever.epsilon[0] >= longest.sum()
    assert ever.budgets[0].epsilon_at_delta <= ever.epsilon[0]


def test_a_budget_stops_before_the_message_that_would_pass_it(setting):
    problem, graph = setting
    algorithm = options(noise=[PowerLaw(s, 0.2) for s in (5.0, 2.0, 5.0)])
    curve = spent_after(algorithm, problem, graph, range(1, 41))
    for m in (1, 7, 38):
        # The curve and the certificate sum in different orders: a budget must hold both.
        need = max(curve[m, 1], certify(algorithm, problem, graph, m + 1).epsilon[1])
        assert need == pytest.approx(curve[m, 1], rel=1e-12)
        assert messages_within(algorithm, problem, graph, 40, [1e9, need, 1e9]) == (m + 1, 1)
        assert messages_within(
            algorithm, problem, graph, 40, [1e9, np.nextafter(need, 0), 1e9]
        ) == (m, 1)
    assert messages_within(algorithm, problem, graph, 40, [1e9] * 3)[0] == 40


def test_calibrated_certificates_meet_their_targets(setting):
    problem, graph = setting
    targets = [0.5, 2.0, 9.0]
    for horizon in (50, math.inf):
        found = certify(
            calibrate(options(), problem, graph, horizon, targets), problem, graph, horizon
        )
        assert all(t * (1 - 1e-4) <= e <= t for e, t in zip(found.epsilon, targets, strict=True))


def test_clip_bound_holds_for_a_memoryless_state_with_a_regulariser():
    """Two records, nearly parallel, whose clipped gradients a transcript can make
    point either way at will.
    """
    step, clip, horizon = 0.5, 0.01, 40
    loss = Squared(1.0, ridge=0.9, label_bound=1.0, clip=clip)
    along, across = np.array([1.0, 0.0]), np.array([0.0, 1.0])
    records = [(along + s * across) / np.sqrt(1.01) for s in (0.1, -0.1)]
    features = np.tile(records[0], (2, 1, 1))
    problem = holding(loss, features, np.zeros((2, 1)), Ball(10.0))
    algorithm = Dsgd(step=Constant(step), noise=Constant(1.0), sampling=Resample())
    known = accounts(algorithm, problem, ring(2), 0)
    phi = min((a.message_costs(horizon)[0] / np.sqrt(2) for a in known), key=np.sum)
    states = [State(jnp.zeros(2))] * 2
    rates = jax.tree.map(lambda law: jnp.asarray(law[0, 0]), algorithm.rates(np.arange(1), 2))
    for k in range(horizon):
        assert float(jnp.linalg.norm(states[0].params - states[1].params)) <= phi[k] * (1 + 1e-9), k
        heard = Inbox(Message(jnp.asarray((-1) ** k * 4.0 * across)), Message(jnp.asarray(0.5)))
        states = [
            algorithm.update(
                state,
                Message(jnp.zeros(2)),
                heard,
                Batch(jnp.asarray([a]), jnp.zeros(1), jnp.ones(1), loss),
                rates,
                problem.domain,
            )
            for state, a in zip(states, records, strict=True)
        ]


def test_a_negative_step_size_is_refused_or_priced(setting):
    problem, graph = setting
    try:
        found = certify(options(step=Constant(-0.01)), problem, graph, 50).epsilon
    except ValueError:
        return
    assert min(found) > 0
