"""Budgets of deployed runs: never below the ideal ones, hardly above them,
and true whatever messages are skipped.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hearsay as hs
from hearsay.algorithms import LdpOnline
from hearsay.certification import accounts, certify, epsilon_after, spent_after, unit
from hearsay.deploy import budget
from hearsay.deploy.deployment import Deployment, deployment
from hearsay.deploy.settings import Network, read
from hearsay.privacy import RecursionAccount, account, description, float64
from hearsay.privacy.certificate import Lifetime
from hearsay.privacy.verification import verify, verify_text

DELTA = 1e-5
RIDGE = {"loss": "ridge", "records": 40, "dimension": 3, "radius": 2.0}


def network(
    algorithm: dict[str, Any],
    privacy: dict[str, Any],
    *,
    steps: int = 20,
    policy: str = "wait",
    agents: int = 3,
    **tables: Any,
) -> Network:
    given = {
        "network": {"run": "wards", "policy": policy},
        "agents": {f"agent{i}": {"endpoint": f"tcp/127.0.0.1:{7000 + i}"} for i in range(agents)},
        "problem": RIDGE,
        "graph": {"kind": "ring"},
        "algorithm": algorithm,
        "privacy": privacy,
        "run": {"steps": steps},
        **tables,
    }
    return read(given, Path("/nowhere"))


ALGORITHMS: dict[str, dict[str, Any]] = {
    "laplace": {"name": "ldp-online", "noise": "50*(k+1)^0.1"},
    "laplace, one for each": {
        "name": "ldp-online",
        "noise": [50.0, 70.0, 90.0],
        "sampling": "cyclic",
    },
    "gaussian": {"name": "ldp-online", "mechanism": "gaussian", "noise": "50*(k+1)^0.1"},
    "output perturbation": {"name": "output-perturbation", "noise": "10*(k+1)^0.05"},
    "gradient perturbation": {"name": "gradient-perturbation", "noise": "10*(k+1)^0.1"},
    "gradient tracking": {"name": "gradient-tracking", "noise": 100.0},
    "dsgd": {"name": "dsgd", "noise": 20.0, "step": 0.05},
    "ternary": {"name": "ternary-dsgd", "noise": 5000.0},
    "factorized": {
        "name": "correlated-federated",
        "sampling": "cyclic",
        "sample_size": "5",
        "noise": 20.0,
    },
    "factorized tree": {
        "name": "correlated-federated",
        "factorization": "tree",
        "sampling": "cyclic",
        "sample_size": "5",
        "noise": 20.0,
    },
}


def plan_of(name: str, **options: Any) -> Deployment:
    return deployment(network(ALGORITHMS[name], {"delta": DELTA}, **options), None)


def ideal_of(plan: Deployment, messages: float | None = None) -> hs.Certificate:
    return certify(
        plan.algorithm,
        plan.task,
        plan.graph,
        messages or plan.messages,
        delta=plan.certificate.delta,
    )


def compared(certificate: hs.Certificate) -> np.ndarray:
    """What a target or a limit is compared with."""
    return np.array([b.compared for b in certificate.budgets])


def shown(certificate: hs.Certificate) -> np.ndarray:
    """In the unit of `curve`: epsilon, or delta for ternary messages."""
    return np.array([b.epsilon if b.delta is None else b.delta for b in certificate.budgets])


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_little_more_than_the_ideal_budget_and_never_less(name):
    plan = plan_of(name)
    ideal, found = ideal_of(plan), plan.certificate
    assert (found.horizon, found.mechanism, found.delta) == (20, ideal.mechanism, DELTA)
    for ours, theirs in zip(found.budgets, ideal.budgets, strict=True):
        pairs = [(ours.epsilon, theirs.epsilon), (ours.rho, theirs.rho), (ours.delta, theirs.delta)]
        for got, wanted in (*pairs, (ours.epsilon_at_delta, theirs.epsilon_at_delta)):
            assert (got is None) == (wanted is None)
            if got is None or wanted is None:
                continue
            assert math.isfinite(got)
            assert got > wanted or got == wanted == 0
            assert got == pytest.approx(wanted, rel=1e-6)
        if ours.epsilon_at_delta is not None:
            assert ours.epsilon_at_delta <= ours.epsilon


@pytest.mark.parametrize("policy", ["wait", "skip"])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_what_an_agent_writes_is_verified_from_its_file_alone(name, policy):
    """With its name, with what it spent in other runs, and without the other agents."""
    if policy == "skip" and name.startswith(("gradient tracking", "factorized")):
        pytest.skip("cannot do without a message")
    found = plan_of(name, policy=policy).certificate
    before = Lifetime(1.0, 1e9, 0.5, ("monday",), 3)
    found = replace(found, budgets=tuple(replace(b, lifetime=before) for b in found.budgets))
    again, verdict = verify_text(found.of(1).to_json())
    assert again == found.of(1) and again.deployed and verdict.holds, verdict.wrong
    assert any("there is one ledger" in text for text in verdict.trusted)
    halved = [
        replace(b, epsilon=b.epsilon / 2, delta=b.delta and b.delta / 2) for b in again.budgets
    ]
    assert not verify(replace(again, budgets=tuple(halved))).holds


# As it is before anything is kept.
_NUMBERS = description._numbers.__wrapped__


def in_exact_arithmetic(monkeypatch, more: float = 0.0) -> None:
    """Leave out what float64 costs, or count so much for every message instead."""
    monkeypatch.setattr(float64, "shifts", lambda *arguments: np.full(arguments[-1], more))
    # What was computed before is kept, and what is computed here must not be.
    monkeypatch.setattr(description, "_numbers", _NUMBERS)


def again(plan: Deployment) -> hs.Certificate:
    return budget.certificate(
        plan.algorithm, plan.task, plan.graph, plan.messages, plan.certificate.delta
    )


def test_rounding_is_counted_for_every_number_that_is_sent(monkeypatch):
    """Laplace messages: 2^-36 for each, one or two fields of three numbers in twenty messages."""
    in_exact_arithmetic(monkeypatch)
    for name, fields in (("laplace", 1), ("gradient tracking", 2)):
        plan = plan_of(name)
        more = shown(plan.certificate) - shown(ideal_of(plan))
        np.testing.assert_allclose(more, 20 * 3 * fields * 2.0**-36, rtol=1e-3)


def test_arithmetic_is_counted_for_every_message(monkeypatch):
    plans = {name: plan_of(name) for name in ("laplace", "gaussian", "ternary")}
    before = {name: (again(plan), budget.curve(plan, 1)) for name, plan in plans.items()}
    in_exact_arithmetic(monkeypatch)
    for name, plan in plans.items():
        exact = again(plan)
        assert np.all(shown(before[name][0]) > shown(exact))
        assert np.all(before[name][1] >= budget.curve(plan, 1))
    in_exact_arithmetic(monkeypatch, 1e-3)
    for name in ("laplace", "ternary"):
        grown = shown(again(plans[name])) - shown(ideal_of(plans[name]))
        np.testing.assert_allclose(grown, 20 * 1e-3, rtol=1e-5)
        curve = budget.curve(plans[name], 1)
        assert curve[-1] == pytest.approx(shown(again(plans[name]))[1], rel=1e-12)
        assert curve[0] == pytest.approx(1e-3, rel=1e-5), (
            "message 0 is the same start in both runs, but for its rounding"
        )
    found, ideal = (
        again(plans["gaussian"]).budgets[0].rho,
        ideal_of(plans["gaussian"]).budgets[0].rho,
    )
    assert found is not None
    assert ideal is not None
    assert math.sqrt(2 * found) == pytest.approx(
        math.sqrt(2 * ideal) + math.sqrt(20) * 1e-3, rel=1e-7
    )


def test_arithmetic_that_nothing_bounds_is_an_infinite_budget(monkeypatch):
    plans = [plan_of(name) for name in ("laplace", "gaussian", "ternary")]
    in_exact_arithmetic(monkeypatch, math.nan)
    for plan in plans:
        assert again(plan).epsilon == [math.inf] * 3
        assert np.all(np.isinf(budget.curve(plan, 0)))


def test_what_the_certificate_rests_on():
    texts = {a.text: a.kind for a in plan_of("laplace").certificate.budgets[0].assumptions}
    assert any("lattice" in text and kind == "enforced" for text, kind in texts.items())
    assert any(
        "on disk before it leaves" in text and kind == "enforced" for text, kind in texts.items()
    )
    assert not any("left out" in text for text in texts)
    texts = {
        a.text: a.kind for a in plan_of("laplace", policy="skip").certificate.budgets[0].assumptions
    }
    assert any(
        "may be left out in any round" in text and kind == "enforced"
        for text, kind in texts.items()
    )
    assert any(
        "does not depend on the records" in text and kind == "declared"
        for text, kind in texts.items()
    )


def test_a_rehearsal_is_called_what_it_is():
    found = deployment(network(ALGORITHMS["laplace"], {}), None, rehearsed=True).certificate
    assert "NOT PRIVATE: this is a rehearsal, its noise comes from a seed" in found.warnings
    assert not any("lattice" in a.text for b in found.budgets for a in b.assumptions)
    assert not any("NOT PRIVATE" in warning for warning in plan_of("laplace").certificate.warnings)


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("policy", ["wait", "skip"])
def test_the_curve_ends_at_the_certificate_and_never_falls(name, policy):
    if policy == "skip" and name.startswith(("gradient tracking", "factorized")):
        pytest.skip("cannot do without a message")
    plan = plan_of(name, policy=policy)
    counts = np.arange(1, plan.messages + 1)
    for agent in range(3):
        curve = budget.curve(plan, agent)
        assert curve.shape == (plan.messages,)
        assert np.all(np.diff(curve) >= 0)
        assert curve[-1] == pytest.approx(shown(plan.certificate)[agent], rel=1e-12)
        ideal = epsilon_after(plan.algorithm, plan.task, plan.graph, counts.tolist(), DELTA)[
            :, agent
        ]
        assert np.all(curve >= ideal)
        np.testing.assert_allclose(curve, ideal, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", ["laplace", "gaussian", "ternary"])
def test_the_curve_is_a_certificate_of_every_shorter_run(name):
    """What the ledger says has been spent, when a run ends early,
    is a certificate for those messages.
    """
    plan = plan_of(name)
    curve = budget.curve(plan, 1)
    for messages in (1, 2, 7, 20):
        shorter = budget.certificate(plan.algorithm, plan.task, plan.graph, messages, DELTA)
        assert curve[messages - 1] >= shown(shorter)[1] * (1 - 1e-12)
        assert curve[messages - 1] == pytest.approx(shown(shorter)[1], rel=1e-6, abs=1e-8)


def test_no_noise_is_an_infinite_budget():
    plan = deployment(network({"name": "ldp-online", "noise": 0.0}, {}), None)
    assert plan.certificate.epsilon == [math.inf] * 3
    assert all("no noise" in b.reason for b in plan.certificate.budgets)
    curve = budget.curve(plan, 0)
    assert np.all(np.isinf(curve[1:])), "message 0 is the start, which is public"


def test_long_runs_are_rounded_up_between_marks(monkeypatch):
    in_exact_arithmetic(monkeypatch)
    plan = deployment(network(ALGORITHMS["laplace"], {}, steps=4501), None)
    counts = np.arange(1, 4502)
    curve = budget.curve(plan, 0)
    ideal = spent_after(plan.algorithm, plan.task, plan.graph, counts.tolist(), agents=[0])[:, 0]
    exact = ideal + counts * 3 * 2.0**-36
    assert np.all(curve >= exact)
    assert np.all(np.diff(curve) >= 0)
    marks = counts % 3 == 0  # ceil(4501 / 2000)
    np.testing.assert_allclose(curve[marks], exact[marks], rtol=1e-12)
    assert curve[-1] == pytest.approx(plan.certificate.epsilon[0], rel=1e-12)
    assert len(np.unique(curve)) <= 2001
    for count in (1, 2, 100, 4499):
        following = min(4501, -(-count // 3) * 3)
        assert curve[count - 1] == pytest.approx(exact[following - 1], rel=1e-12)


@pytest.mark.parametrize("name", ["gaussian", "ternary", "factorized"])
def test_rounding_up_holds_for_every_mechanism(name, monkeypatch):
    plan = plan_of(name, steps=23)
    exact = budget.curve(plan, 0)
    monkeypatch.setattr(account, "_EXACT", 7)
    coarse = budget.curve(plan, 0)
    assert coarse.shape == exact.shape
    assert np.all(coarse >= exact)
    assert coarse[-1] == exact[-1]
    np.testing.assert_array_equal(coarse[3::4], exact[3::4])
    assert len(np.unique(coarse)) <= 7


@pytest.mark.parametrize("name", [name for name in ALGORITHMS if not name.startswith("factorized")])
@pytest.mark.parametrize("share", [0.15, 0.5, 0.93])
def test_within_finds_the_last_message_that_all_can_afford(name, share):
    plan = plan_of(name)
    whole = compared(plan.certificate)
    arguments = (plan.algorithm, plan.task, plan.graph)
    first = compared(budget.certificate(*arguments, 1, DELTA))
    limits = (first + np.array([share, 0.95, 2.0]) * (whole - first)).tolist()
    asked, delta = limits, DELTA
    # An epsilon of 0 at the delta that is spent: the limit is the delta that is given, the
    # same for all.
    if name == "ternary":
        delta = limits[0]
        asked, limits = [2.0] * 3, [delta] * 3
    found, why = budget.within(*arguments, 20, asked, delta)
    assert 1 <= found < 20
    assert np.all(compared(budget.certificate(*arguments, found, DELTA)) <= limits)
    over = compared(budget.certificate(*arguments, found + 1, DELTA)) > limits
    binding = int(np.argmax(over))
    assert over.any()
    if over.sum() == 1:
        most = f"{unit(plan.algorithm)} = {limits[binding]:g}"
        most += f" at delta = {DELTA:g}" if plan.algorithm.law.name == "laplace" else ""
        assert why == f"agent {binding} may spend {most}: message {found} would exceed it"


def test_within_a_generous_budget_everything_can_be_sent():
    for name in ("laplace", "factorized", "ternary"):
        plan = plan_of(name)
        limits = shown(plan.certificate).tolist()
        delta = max(limits) if name == "ternary" else DELTA
        assert budget.within(plan.algorithm, plan.task, plan.graph, 20, limits, delta)[0] == 20


def test_nothing_can_be_sent():
    plan = plan_of("gradient perturbation")
    with pytest.raises(
        ValueError,
        match="nothing can be sent: agent 1 may spend epsilon = 1e-06 at delta = 1e-05, and its"
        " first message costs",
    ):
        budget.within(plan.algorithm, plan.task, plan.graph, 20, [10.0, 1e-6, 10.0], DELTA)
    # All rounds are one mechanism, of which the first message costs the leading block.
    plan = plan_of("factorized")
    arguments = (plan.algorithm, plan.task, plan.graph)
    first = budget.certificate(*arguments, 1, DELTA).epsilon[0]
    assert first < 0.9 * plan.certificate.epsilon[0]
    assert 1 <= budget.within(*arguments, 20, [1.0001 * first] * 3, DELTA)[0] < 20
    with pytest.raises(ValueError, match="nothing can be sent: agent 0 may spend"):
        budget.within(*arguments, 20, [0.999 * first] * 3, DELTA)


def test_a_plan_stops_before_its_budget_is_exceeded():
    whole = plan_of("laplace")
    limit = 0.5 * whole.certificate.epsilon[0]
    plan = deployment(network(ALGORITHMS["laplace"], {"budget": limit}), None)
    assert plan.messages < 20
    assert max(plan.certificate.epsilon) <= limit
    assert (
        plan.stopped
        == f"agent 0 may spend epsilon = {limit:g}: message {plan.messages} would exceed it"
    )
    assert whole.stopped is None


@pytest.mark.parametrize(
    "name", ["laplace", "gaussian", "output perturbation", "factorized", "dsgd"]
)
@pytest.mark.parametrize("policy", ["wait", "skip"])
def test_noise_is_calibrated_so_that_rounding_is_paid_for(name, policy):
    if name == "factorized" and policy == "skip":
        pytest.skip("cannot do without a message")
    targets = [1.0, 2.0, 3.0] if name != "factorized" else [2.0] * 3
    table = {**ALGORITHMS[name], "noise": 1.0}
    plan = deployment(network(table, {"epsilon": targets, "delta": DELTA}, policy=policy), None)
    for got, target in zip(compared(plan.certificate), targets, strict=True):
        assert got <= target
        assert got == pytest.approx(target, rel=1e-4)
    # Without a delta the target of Laplace noise is a pure epsilon.
    if plan.algorithm.law.composes:
        assert all(
            pure > target for pure, target in zip(plan.certificate.epsilon, targets, strict=True)
        )
        pure = deployment(network(table, {"epsilon": targets}, policy=policy), None).certificate
        assert pure.epsilon == pytest.approx(targets, rel=1e-4) and pure.delta is None


# Messages that may be skipped.

LOSSY = {
    "name": "ldp-online",
    "step": "1.6*(k+1)^-0.5",
    "coupling": "0.3*(k+1)^-1.5",
    "noise": "50*(k+1)^0.2",
}
TRIANGLE = {
    "edges": [["agent0", "agent1", 0.2], ["agent0", "agent2", 0.3], ["agent1", "agent2", 0.1]]
}


def lossy(table: dict[str, Any], steps: int, policy: str = "skip", **tables: Any) -> Deployment:
    privacy = {"delta": DELTA} if table.get("mechanism") == "gaussian" else {}
    return deployment(
        network(table, privacy, steps=steps, policy=policy, graph=TRIANGLE, **tables), None
    )


def slow_and_obvious(
    plan: Deployment, agent: int, uses: list[list[bool]], exposure: list[float]
) -> dict[tuple, float]:
    """What the agent spends, epsilon or rho, whoever it hears in every round (the key),
    by the recursion as privacy/recursion.py prints it.
    """
    algorithm, loss = plan.algorithm, plan.task.loss
    assert isinstance(algorithm, LdpOnline)
    mu, smooth = loss.curvature
    weights = plan.graph.weights.toarray()[agent]
    neighbours = np.flatnonzero(weights).tolist()
    subsets = [
        s for size in range(len(neighbours) + 1) for s in itertools.combinations(neighbours, size)
    ]
    found: dict[tuple, float] = {}
    for heard in itertools.product(subsets, repeat=plan.messages - 1):
        costs = []
        for used in uses:
            apart, total = 0.0, 0.0
            for k in range(plan.messages):
                ratio = apart / float(algorithm.noise_for(agent)(k))
                total += (
                    ratio**2 / 2
                    if algorithm.mechanism == "gaussian"
                    else math.sqrt(plan.task.dimension) * ratio
                )
                if k + 1 < plan.messages:
                    step = float(algorithm.step(k))
                    kept = 1 - float(algorithm.coupling(k)) * sum(weights[j] for j in heard[k])
                    apart = (
                        max(abs(kept - step * mu), abs(kept - step * smooth)) * apart
                        + step * exposure[k] * used[k]
                    )
            costs.append(total)
        found[heard] = max(costs)
    return found


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
@pytest.mark.parametrize("agent", [0, 1, 2])
def test_skipping_costs_as_much_as_the_worst_of_all_patterns(mechanism, agent):
    plan = lossy({**LOSSY, "mechanism": mechanism}, steps=4)
    # A history, one new record at a time.
    exposure = [plan.task.change / (k + 1) for k in range(4)]
    patterns = slow_and_obvious(plan, agent, [[True] * 4], exposure)
    assert len(patterns) == 2 ** (2 * 3)
    worst, (first, second, third) = max((cost, heard) for heard, cost in patterns.items())
    own = plan.certificate.budgets[agent]
    got = own.epsilon if mechanism == "laplace" else own.rho
    assert got is not None
    assert got >= max(patterns.values())
    assert got == pytest.approx(worst, rel=1e-7)
    everybody = tuple(j for j in range(3) if j != agent)
    assert (second, third) == (everybody, ()), (
        "hearing all is worst in one round and hearing nobody in another: both ends count"
    )
    hears_all = patterns[everybody, everybody, everybody]
    assert (
        ideal_of(lossy({**LOSSY, "mechanism": mechanism}, steps=4, policy="wait")).epsilon[agent]
        < own.epsilon
    )
    plain = lossy({**LOSSY, "mechanism": mechanism}, steps=4, policy="wait").certificate.budgets[
        agent
    ]
    assert (plain.epsilon if mechanism == "laplace" else plain.rho) == pytest.approx(
        hears_all, rel=1e-7
    )
    assert first in ((), everybody, *((j,) for j in everybody)), (
        "two equal states stay equal, whoever is heard in round 0"
    )


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
def test_so_it_does_for_records_that_come_round_again(mechanism):
    """Two records each, used in turn; Gaussian budgets do not add up over uses,
    so the two patterns differ in kind.
    """
    table = {**LOSSY, "mechanism": mechanism, "sampling": "cyclic"}
    plan = lossy(table, steps=4, problem={**RIDGE, "records": 2})
    uses = [[k % 2 == offset for k in range(4)] for offset in range(2)]
    patterns = slow_and_obvious(plan, 1, uses, [plan.task.change] * 4)
    own = plan.certificate.budgets[1]
    got = own.epsilon if mechanism == "laplace" else own.rho
    assert got is not None
    assert got >= max(patterns.values())
    assert got == pytest.approx(max(patterns.values()), rel=1e-7)


@pytest.mark.parametrize("steps", [1, 2, 30, 200])
@pytest.mark.parametrize(
    "table",
    [LOSSY, ALGORITHMS["laplace"], ALGORITHMS["gaussian"], ALGORITHMS["laplace, one for each"]],
)
def test_skipping_never_costs_less(table, steps):
    with_skips, without = lossy(table, steps), lossy(table, steps, "wait")
    assert np.all(shown(with_skips.certificate) >= shown(without.certificate))
    for agent in range(3):
        assert np.all(budget.curve(with_skips, agent) >= budget.curve(without, agent))
    if steps > 2:
        assert np.all(shown(with_skips.certificate) > shown(without.certificate))


@pytest.mark.parametrize(
    "table",
    [
        {**ALGORITHMS["laplace"], "feedback": True},
        ALGORITHMS["output perturbation"],
        {**ALGORITHMS["output perturbation"], "feedback": True},
        ALGORITHMS["gradient perturbation"],
        ALGORITHMS["dsgd"],
        ALGORITHMS["ternary"],
    ],
)
def test_algorithms_that_forget_alike_whoever_is_heard_pay_nothing_for_skipping(table):
    with_skips, without = (
        deployment(network(table, {"delta": DELTA}, policy=policy), None)
        for policy in ("skip", "wait")
    )
    np.testing.assert_array_equal(shown(with_skips.certificate), shown(without.certificate))
    np.testing.assert_array_equal(budget.curve(with_skips, 0), budget.curve(without, 0))


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("gradient tracking", "a share of a tracker that is not heard is lost"),
        ("factorized", "everybody must apply the same average"),
    ],
)
def test_algorithms_that_need_every_message_say_so(name, why):
    key = ALGORITHMS[name]["name"]
    with pytest.raises(
        ValueError, match=rf"{key} cannot do without a message \(policy skip\): {why}"
    ):
        plan_of(name, policy="skip")


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
def test_skipping_for_ever_has_no_certificate(mechanism):
    plan = lossy({"name": "ldp-online", "mechanism": mechanism, "noise": "50*(k+1)^0.2"}, steps=10)
    delta = plan.certificate.delta
    for found in (
        certify(plan.algorithm, plan.task, plan.graph, math.inf, delta=delta),
        budget.certificate(plan.algorithm, plan.task, plan.graph, math.inf, delta),  # type: ignore[arg-type]
    ):
        assert found.epsilon == [math.inf] * 3
        reasons = {b.reason for b in found.budgets}
        assert reasons == {
            "where messages may be skipped only a number of messages can be certified"
        }
    plain = replace(plan.graph, lossy=False)
    assert certify(plan.algorithm, plan.task, plain, math.inf, delta=delta).finite, (
        "it is the skipping that makes it infinite"
    )


def test_the_leak_lies_between_hearing_all_and_hearing_nobody():
    plan = lossy(LOSSY, steps=5)
    for agent, known in enumerate(
        accounts(plan.algorithm, plan.task, plan.graph, i)[0] for i in range(3)
    ):
        assert isinstance(known, RecursionAccount)
        least, k = known.recursion.least, np.arange(5)
        assert least is not None
        np.testing.assert_array_equal(least(k), 0.0)
        row = plan.graph.weights.toarray()[agent].sum()
        np.testing.assert_allclose(known.recursion.leak(k), 0.3 * (k + 1.0) ** -1.5 * row)
