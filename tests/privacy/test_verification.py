"""`verify` accepts what certify makes and refuses every number that is too low, whatever the proof,
the law of the noise and the horizon; damage of a file is seen.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest

import hearsay as hs
from hearsay.certification import certify, deployed
from hearsay.privacy import Assumption, Certificate, Every, Periodic, verification
from hearsay.privacy.certificate import Lifetime
from hearsay.privacy.verification import TOLERANCE, verify, verify_text

DELTA, STEPS = 1e-5, 20
NUMBERS = ("epsilon", "rho", "delta", "epsilon_at_delta")
FEDERATED = ("correlated-federated", "federated-independent", "federated-noiseless")
PROBLEM = hs.problems.ridge(agents=4, records=40, dimension=3, ridge=0.3, radius=3.0)
CLIPPED = hs.problems.ridge(agents=4, records=40, dimension=3, ridge=0.3, radius=3.0, clip=0.5)
GRAPH = hs.graphs.ring(4, weight=0.3)
# A tenth more for every agent, so that none has the description of another.
NOISE = [60.0, 66.0, 72.0, 78.0]


def algorithm(name: str, mechanism: str | None = None) -> hs.base.Algorithm:
    more: dict = {} if mechanism is None else {"mechanism": mechanism}
    if name in FEDERATED:
        more |= {"sampling": hs.Cyclic(2), "horizon": 25}
    if name != "federated-noiseless":
        constant = name in FEDERATED or name == "dola"
        laws = [hs.Constant(n) if constant else hs.PowerLaw(n, 0.1) for n in NOISE]
        more["noise"] = tuple(laws)
    return hs.REGISTRY[name](**more)


def cases() -> list[tuple[str, str | None]]:
    found: list[tuple[str, str | None]] = []
    for name in hs.REGISTRY:
        laws = ("laplace", "gaussian") if name not in FEDERATED else (None,)
        found += [(name, law) for law in (laws if "ternary" not in name else (None,))]
    return found


def made(name: str, law: str | None, horizon: float, kind: str) -> Certificate:
    problem = CLIPPED if kind == "clipped" else PROBLEM
    this = algorithm(name, law)
    if kind == "deployed":
        return replace(deployed(this, problem, GRAPH, int(horizon), DELTA), deployed=True)
    # The epsilon at delta of an infinite horizon composes thousands of messages, which takes a
    # minute: that number is finite here.
    pure = math.isinf(horizon) and not this.law.needs_delta
    return certify(this, problem, GRAPH, horizon, delta=None if pure else DELTA)


def usual() -> Certificate:
    return made("ldp-online", "laplace", STEPS, "ideal")


@pytest.mark.parametrize("kind", ["ideal", "clipped", "infinite", "deployed"])
@pytest.mark.parametrize("name, law", cases())
def test_what_certify_makes_holds_and_no_number_can_be_lowered(name, law, kind):
    horizon = math.inf if kind == "infinite" else STEPS
    certificate = made(name, law, horizon, kind)
    again, verdict = verify_text(certificate.to_json())
    assert again == certificate
    assert verdict.holds, verdict.wrong
    assert not any("above" in note for note in verdict.notes)
    for place, budget in enumerate(certificate.budgets):
        for number in NUMBERS:
            value = getattr(budget, number)
            if value is None or value == 0:
                continue
            # The first number below what rounding may lose.
            lower = 1e300 if math.isinf(value) else np.nextafter(value * (1 - TOLERANCE), 0.0)
            lowered = [*certificate.budgets]
            lowered[place] = replace(budget, **{number: float(lower)})
            refused = verify(replace(certificate, budgets=tuple(lowered)))
            assert len(refused.wrong) == 1
            assert f"agent {budget.agent}: {number} must be at least" in refused.wrong[0]


def test_every_kind_of_number_is_among_the_cases():
    """The property above says something of each of them, finite and infinite."""
    seen: set[tuple[str, bool]] = set()
    for name, law, horizon, kind in (
        ("ldp-online", "laplace", STEPS, "ideal"),
        ("ldp-online", "gaussian", STEPS, "deployed"),
        ("ternary-dsgd", None, STEPS, "deployed"),
        ("ternary-dsgd", None, math.inf, "ideal"),
        ("correlated-federated", None, STEPS, "deployed"),
        ("correlated-federated", None, math.inf, "ideal"),
    ):
        for budget in made(name, law, horizon, kind).budgets:
            for number in NUMBERS:
                if (value := getattr(budget, number)) is not None:
                    seen.add((number, math.isfinite(value)))
    assert seen >= {(n, True) for n in NUMBERS} | {("epsilon", False), ("rho", False)}


def test_a_claim_above_its_cost_is_true_and_said():
    certificate = usual()
    higher = tuple(replace(b, epsilon=2 * b.epsilon) for b in certificate.budgets)
    verdict = verify(replace(certificate, budgets=higher))
    assert verdict.holds and "every agent: epsilon is claimed above its cost" in verdict.notes[0]
    hopeless = (replace(certificate.budgets[0], epsilon=math.inf), *certificate.budgets[1:])
    assert verify(replace(certificate, budgets=hopeless)).holds


def test_the_tolerance_is_within_the_margin_that_numbers_have():
    from hearsay.mechanisms.convert import OUTWARD

    assert OUTWARD * (1 - TOLERANCE) > 1 + 8e-10


def wrong_of(certificate: Certificate) -> str:
    verdict = verify(certificate)
    assert not verdict.holds
    return " | ".join(verdict.wrong)


def described(certificate: Certificate, **changes) -> Certificate:
    """With another account in the first description."""
    first, *rest = certificate.descriptions
    account = replace(first.account, **changes)
    return replace(certificate, descriptions=(replace(first, account=account), *rest))


def test_numbers_of_another_run_are_refused():
    certificate = usual()
    account = certificate.descriptions[0].account
    assert "epsilon must be at least" in wrong_of(replace(certificate, horizon=STEPS + 1))
    assert "epsilon must be at least" in wrong_of(replace(certificate, horizon=math.inf))
    assert "epsilon_at_delta must be at least" in wrong_of(replace(certificate, delta=1e-9))
    assert "epsilon must be at least" in wrong_of(described(certificate, dimension=4))
    assert "epsilon must be at least" in wrong_of(
        described(certificate, releases=tuple(account.scaled(0.99).releases))
    )
    steeper = replace(account.recursion, step=account.recursion.step.scaled(1.01))
    assert "epsilon must be at least" in wrong_of(described(certificate, recursion=steeper))
    gaussian = made("ldp-online", "gaussian", STEPS, "ideal")
    assert "epsilon must be at least" in wrong_of(replace(gaussian, delta=1e-6))
    assert "mechanism must be as described" in wrong_of(
        described(certificate, mechanism="gaussian")
    )
    assert verify(replace(certificate, horizon=STEPS - 1)).holds


def test_words_must_be_those_of_the_description():
    certificate = certify(hs.dsgd(sampling=hs.Cyclic(2), noise=1.0), PROBLEM, GRAPH, STEPS)
    assert isinstance(certificate.descriptions[0].account.pattern, Periodic)
    used = wrong_of(described(certificate, pattern=Every()))
    assert "pattern must be as described" in used and "epsilon must be at least" in used
    first, *rest = certificate.budgets
    for change in (
        {"pattern": "once"},
        {"basis": "magic"},
        {"assumptions": first.assumptions[:-1]},
        {"assumptions": (*first.assumptions, Assumption("enforced", "all is well"))},
    ):
        changed = replace(certificate, budgets=(replace(first, **change), *rest))
        assert f"{next(iter(change))} must be as described" in wrong_of(changed)


def test_budgets_that_are_gone_or_in_disorder_are_seen():
    certificate = usual()
    first, second, *rest = certificate.budgets
    assert "budgets must not be empty" in wrong_of(replace(certificate, budgets=()))
    assert "a budget is gone" in wrong_of(replace(certificate, budgets=(first, *rest)))
    swapped = (replace(first, agent=1), replace(second, agent=0), *rest)
    assert "increasing order" in wrong_of(replace(certificate, budgets=swapped))
    assert "increasing order" in wrong_of(replace(certificate, budgets=(first, first)))
    # The numbers of one agent under the name of another: agent 0 has the least noise.
    fields = {name: getattr(rest[-1], name) for name in NUMBERS}
    exchanged = (replace(first, **fields), second, *rest)
    assert "agent 0: epsilon must be at least" in wrong_of(replace(certificate, budgets=exchanged))


def test_numbers_that_are_missing_or_invented_are_refused():
    certificate = usual()
    first, *rest = certificate.budgets
    without = replace(certificate, budgets=(replace(first, epsilon_at_delta=None), *rest))
    assert "epsilon_at_delta must be stated" in wrong_of(without)
    invented = replace(certificate, budgets=(replace(first, rho=0.5), *rest))
    assert "rho must be left out" in wrong_of(invented)
    for budget in (replace(first, description=None), replace(first, description=1)):
        assert not verify(replace(certificate, budgets=(budget, *rest))).holds


def test_old_certificates_load_and_cannot_be_recomputed():
    body = json.loads(usual().to_json())
    del body["digest"], body["descriptions"]
    for budget in body["budgets"]:
        del budget["description"]
    certificate, verdict = verify_text(json.dumps(body))
    assert certificate is not None and certificate.epsilon == usual().epsilon
    assert len(verdict.wrong) == 1 and "cannot be recomputed" in verdict.wrong[0]


def test_a_deployed_run_says_how_it_rounds():
    certificate = usual()
    assert "must describe its arithmetic" in wrong_of(replace(certificate, deployed=True))
    real = made("ldp-online", "laplace", STEPS, "deployed")
    assert "a deployed run must be finite" in wrong_of(replace(real, horizon=math.inf))
    coarse = replace(real.descriptions[0], float64=replace(real.descriptions[0].float64, heard=1e9))
    descriptions = (coarse, *real.descriptions[1:])
    assert "epsilon must be at least" in wrong_of(replace(real, descriptions=descriptions))


def test_lifetimes_must_be_possible():
    certificate = usual()
    first, *rest = certificate.budgets
    for lifetime, text in (
        (Lifetime(0.0, first.epsilon, 0.0), ""),
        (Lifetime(2.0, 9.0, 0.0, ("monday",)), ""),
        (Lifetime(9.0, 2.0, 0.0, ("monday",)), "lifetime.before must be at most"),
        (Lifetime(0.0, first.epsilon / 2, 0.0), "lifetime.total must be at least"),
        (Lifetime(1.0, 9.0, 0.0), "lifetime.before must be 0"),
    ):
        this = replace(certificate, budgets=(replace(first, lifetime=lifetime), *rest))
        verdict = verify(this)
        assert verdict.holds == (not text) and text in " ".join(verdict.wrong)
        assert any("other runs is not in this file" in note for note in verdict.notes)
    gaussian = made("ldp-online", "gaussian", STEPS, "ideal")
    own, *rest = gaussian.budgets
    pure = replace(own, lifetime=Lifetime(0.0, own.epsilon, 0.0))
    assert "lifetime.delta" in wrong_of(replace(gaussian, budgets=(pure, *rest)))


def test_all_budgets_together_must_be_little_enough(monkeypatch):
    """Thousands of descriptions, each just small enough, would keep a reader busy for days."""
    found = made("ldp-online", "gaussian", STEPS, "plain")
    one = found.descriptions[0].account.effort(STEPS).operations
    assert len(found.descriptions) == 4 and verify(found).holds
    monkeypatch.setattr(verification, "_IN_ALL", 4 * one - 1)
    [text] = verify(found).wrong
    assert text.startswith("messages times patterns of uses of all budgets must be at most")
    monkeypatch.setattr(verification, "_IN_ALL", 4 * one)
    assert verify(found).holds


def test_what_is_declared_is_named():
    certificate = certify(algorithm("ldp-online"), PROBLEM, GRAPH, math.inf)
    assert any("the stream never ends" in text for text in verify(certificate).trusted)


def same(one: str, other: str) -> bool:
    """The same numbers, written otherwise."""
    try:
        return json.loads(one) == json.loads(other)
    except ValueError:
        return False


def test_every_flipped_digit_and_every_cut_is_seen():
    """Of the file as it lies on a disk: some flips would even leave a certificate that is true."""
    text = usual().to_json()
    rng, digits = np.random.default_rng(0), [m.start() for m in re.finditer(r"\d", text)]
    for place in rng.choice(digits, 60, replace=False):
        other = str((int(text[place]) + int(rng.integers(1, 10))) % 10)
        damaged = text[:place] + other + text[place + 1 :]
        # The last digits of a number may be more than it needs.
        if same(damaged, text):
            continue
        assert not verify_text(damaged)[1].holds, text[place - 40 : place + 10]
    for end in (0, 1, len(text) // 2, len(text) - 3):
        assert not verify_text(text[:end])[1].holds


def keys(value, path=()):
    if isinstance(value, dict):
        for key, inner in value.items():
            yield (*path, key)
            yield from keys(inner, (*path, key))
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield from keys(inner, (*path, place))


def altered(body, path, change):
    """A deep copy without the digest, with `change` made where the path ends."""
    copy = json.loads(json.dumps({k: v for k, v in body.items() if k != "digest"}))
    inner = copy
    for part in path[:-1]:
        inner = inner[part]
    change(inner, path[-1])
    return json.dumps(copy)


@pytest.mark.parametrize("kind", ["ideal", "deployed"])
@pytest.mark.parametrize("name, law", [("gradient-tracking", "laplace"), ("ternary-dsgd", None)])
def test_keys_of_a_description_cannot_go_nor_be_unknown_or_of_another_type(name, law, kind):
    """Without the digest, which sees all of it."""
    certificate = made(name, law, STEPS, kind).of(0)
    body = json.loads(certificate.to_json())
    assert verify_text(altered(body, ("algorithm",), lambda inner, key: None))[1].holds
    paths = [p for p in keys(body["descriptions"], ("descriptions",)) if p[-1] != "kind"]
    assert len(paths) > 30
    for path in paths:
        where = ".".join(str(p) for p in path if not isinstance(p, int))
        gone = verify_text(altered(body, path, lambda inner, key: inner.pop(key)))[1]
        if path[-1] in ("gain", "colluders"):
            # Earlier versions wrote none of these; without shared noise they say nothing.
            assert gone.holds, where
        else:
            assert f"{path[-1]} must be given, and is missing" in gone.wrong[0], where

        def wrong_type(inner, key):
            inner[key] = 7 if isinstance(inner[key], (str, list, dict, bool)) else "seven"

        refused = verify_text(altered(body, path, wrong_type))[1]
        assert not refused.holds, where
        assert path[-1] in refused.wrong[0], refused.wrong

        def not_a_number(inner, key):
            inner[key] = math.nan

        assert not verify_text(altered(body, path, not_a_number))[1].holds, where

    def unknown(inner, key):
        inner[key] = 1.0

    for path in {p[:-1] for p in paths}:
        refused = verify_text(altered(body, (*path, "surprise"), unknown))[1]
        assert "surprise" in refused.wrong[0]


@pytest.mark.parametrize("key", ["scale", "dimension", "held", "weight", "heard", "state"])
def test_negative_numbers_are_refused_with_their_place(key):
    certificate = made("ldp-online", "laplace", STEPS, "deployed")
    body = json.loads(certificate.to_json())
    path = next(p for p in keys(body["descriptions"], ("descriptions",)) if p[-1] == key)
    # The scale that is meant is that of the noise.
    if key == "scale":
        path = ("descriptions", 0, "account", "releases", 0, "scale", "scale")

    def negate(inner, name):
        inner[name] = -abs(inner[name])

    refused = verify_text(altered(body, path, negate))[1]
    assert "descriptions[0]" in refused.wrong[0] and key in refused.wrong[0]


def test_fitted_factorizations_are_written_down():
    """Verified without a search, whose last digits depend on the machine."""
    for kind in ("banded", "blt", "dense", "tree", "toeplitz", "identity"):
        this = hs.correlated_federated(
            factorization=kind, horizon=24, sampling=hs.Cyclic(2), noise=1.0
        )
        certificate = deployed(this, PROBLEM, GRAPH, STEPS, DELTA)
        text = certificate.to_json()
        assert Certificate.from_json(text) == certificate
        assert verify_text(text)[1].holds
        factors = certificate.descriptions[0].account.factors
        assert factors.written() == factors
        stored = {"banded": "diagonals", "blt": "decays", "dense": "multipliers"}.get(kind)
        if stored is None:
            continue
        body = json.loads(text)
        path = ("descriptions", 0, "account", "factors", stored)

        def reverse(inner, key):
            inner[key] = [-value for value in inner[key][::-1]]

        assert stored in verify_text(altered(body, path, reverse))[1].wrong[0]

        def shorten(inner, key):
            inner[key] = inner[key][:-1]

        assert stored in verify_text(altered(body, path, shorten))[1].wrong[0]


def test_algorithms_from_outside_are_marked_as_declared():
    class Mine(hs.algorithms.LdpOnline):
        pass

    certificate = certify(Mine(noise=1.0), PROBLEM, GRAPH, STEPS)
    assert not certificate.descriptions[0].checked
    verdict = verify(certificate)
    assert verdict.holds and any("author of the algorithm" in text for text in verdict.trusted)
    assert usual().descriptions[0].checked


def test_agents_share_descriptions():
    certificate = certify(hs.ldp_online(noise=1.0), PROBLEM, GRAPH, STEPS)
    assert len(certificate.descriptions) == 1
    assert {b.description for b in certificate.budgets} == {0}
    different = usual()
    assert len(different.descriptions) == 4
    only = different.of(2)
    assert only.descriptions == (different.descriptions[2],) and verify(only).holds


def test_a_budget_under_zero_out_is_not_one_under_replace():
    """Secret batches have a proof for each: the account's must be what the description says."""
    algorithm = hs.gradient_perturbation(mechanism="gaussian", noise=0.3, sampling=hs.Poisson(0.1))
    problem = hs.problems.logistic("breast-cancer", agents=2)
    wide, narrow = (
        json.loads(
            certify(
                algorithm, problem, hs.graphs.ring(2), 200, delta=1e-5, adjacency=adjacency
            ).to_json()
        )
        for adjacency in ("replace", "zero-out")
    )
    for budget, cheaper in zip(wide["budgets"], narrow["budgets"], strict=True):
        assert cheaper["epsilon"] < 0.6 * budget["epsilon"]
        budget["epsilon"] = cheaper["epsilon"]
    for description in wide["descriptions"]:
        description["account"]["relation"] = "zero-out"
    del wide["digest"]
    _, verdict = verify_text(json.dumps(wide))
    assert not verdict.holds
    assert "adjacency must be the proof's, zero-out, got 'replace'" in verdict.wrong[0]
