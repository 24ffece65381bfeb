"""`verify` finds again what secrets are worth: every gain that is too high and every point of a
curve that is too low is refused, and so is what would take too long.
"""

from __future__ import annotations

import json
import time
from dataclasses import replace

import numpy as np
import pytest

import hearsay as hs
from hearsay.certification import deployed
from hearsay.privacy import Certificate
from hearsay.privacy.certificate import Lifetime
from hearsay.privacy.coalitions import Shared
from hearsay.privacy.curve import Colluding
from hearsay.privacy.verification import TOLERANCE, verify, verify_text

DELTA, STEPS, ROOT10 = 1e-5, 10, 10**0.5
PROBLEM = hs.problems.ridge(agents=5, records=40, dimension=3, radius=3.0, clip=0.5)
GRAPH = hs.graphs.ring(5)
SECRETS = {
    "complete": hs.Secrets(2, ROOT10),
    "ring": hs.Secrets(1, ROOT10, hs.graphs.ring(5)),
    "ratios": hs.Secrets(1, tuple(np.linspace(1.0, 3.0, 10))),
}


def made(secrets: hs.Secrets = SECRETS["complete"], kind: str = "ideal") -> Certificate:
    algorithm = hs.gradient_perturbation(
        mechanism="gaussian", noise=[2.0, 2.2, 2.4, 2.6, 2.8], secrets=secrets
    )
    if kind == "deployed":
        return replace(deployed(algorithm, PROBLEM, GRAPH, STEPS, DELTA), deployed=True)
    return hs.certify(algorithm, PROBLEM, GRAPH, STEPS, delta=DELTA)


def wrong_of(certificate: Certificate) -> str:
    verdict = verify(certificate)
    assert not verdict.holds
    return " | ".join(verdict.wrong)


def with_point(certificate: Certificate, agent: int, place: int, **changes) -> Certificate:
    budgets = [*certificate.budgets]
    points = [*budgets[agent].curve]
    points[place] = replace(points[place], **changes)
    budgets[agent] = replace(budgets[agent], curve=tuple(points))
    return replace(certificate, budgets=tuple(budgets))


def with_gain(certificate: Certificate, place: int, gain: float) -> Certificate:
    descriptions = [*certificate.descriptions]
    descriptions[place] = replace(descriptions[place], gain=gain)
    return replace(certificate, descriptions=tuple(descriptions))


@pytest.mark.parametrize("kind", ["ideal", "deployed"])
@pytest.mark.parametrize("secrets", SECRETS)
def test_what_certify_makes_holds_and_no_point_can_be_lowered(secrets, kind):
    certificate = made(SECRETS[secrets], kind)
    again, verdict = verify_text(certificate.to_json())
    assert again == certificate and verdict.holds, verdict.wrong
    # rho and epsilon of each, and five points.
    assert verdict.numbers == 5 * (2 + 5)
    assert any("if all others collude" in note for note in verdict.notes)
    assert any("at most" in text and "collude" in text for text in verdict.trusted)
    assert any("SIM-CDP" in text for text in verdict.trusted)
    # Scales of the others' noise are not in an agent's own description.
    assert any("own and shared noise is, is as stated" in text for text in verdict.trusted)
    planned = certificate.colluders
    for agent, budget in enumerate(certificate.budgets):
        for place, point in enumerate(budget.curve):
            lower = float(np.nextafter(point.epsilon * (1 - TOLERANCE), 0.0))
            least = budget.curve[place - 1].epsilon if place else 0.0
            if point.colluders == planned or lower < least:
                continue  # refused when it is made: tests/privacy/test_curve.py
            lowered = with_point(certificate, agent, place, epsilon=lower)
            text = f"agent {agent}: epsilon of the curve against {point.colluders} colluders must"
            assert text in wrong_of(lowered)


def test_a_gain_above_what_secrets_are_worth_is_refused():
    certificate = made()
    for place, description in enumerate(certificate.descriptions):
        raised = with_gain(certificate, place, description.gain * (1 + 2 * TOLERANCE))
        assert f"agent {place}: gain must be at most {description.gain!r}" in wrong_of(raised)
        less = with_gain(certificate, place, description.gain * 0.9)
        # Its own budget costs more then.
        assert "epsilon must be at least" in wrong_of(less)
    # Lower numbers with the gain that gives them: all of them follow, but for the secrets.
    first, *rest = certificate.descriptions
    louder = replace(first, gain=2 * first.gain)
    account = louder.protected.certified(STEPS, DELTA, None)
    budget = replace(
        certificate.budgets[0],
        epsilon=account.epsilon,
        rho=account.rho,
        curve=tuple(
            replace(p, epsilon=min(p.epsilon, account.epsilon)) if p.colluders <= 2 else p
            for p in certificate.budgets[0].curve
        ),
    )
    forged = replace(
        certificate,
        descriptions=(louder, *rest),
        budgets=(budget, *certificate.budgets[1:]),
    )
    assert "agent 0: gain must be at most" in wrong_of(forged)


def test_other_secrets_than_those_that_were_used_are_refused():
    certificate = made()
    shared = certificate.secrets
    quieter = replace(shared, ratios=(1.0,))
    found = wrong_of(replace(certificate, secrets=quieter))
    assert "gain must be at most" in found and "epsilon of the curve against 0" in found
    fewer = replace(shared, pairs=((0, 1), (1, 2), (2, 3), (3, 4)))
    assert "gain must be at most" in wrong_of(replace(certificate, secrets=fewer))
    uneven = replace(shared, scales=(1.0, 0.5, 0.5, 0.5, 0.5))
    assert "gain must be at most" in wrong_of(replace(certificate, secrets=uneven))
    # Louder secrets are worth more: the numbers are true, but the words are about others.
    louder = verify(replace(certificate, secrets=replace(shared, ratios=(4.0,))))
    assert len(louder.wrong) == 5 and all("shared noise 3.162" not in w for w in louder.wrong)
    assert all("assumptions must say" in w and "shared noise 4 times" in w for w in louder.wrong)


def test_how_the_worst_coalition_was_found_must_be_as_it_is():
    changed = with_point(made(), 1, 0, how="exact")
    assert "agent 1: how of the curve against 0 colluders must be 'closed form'" in wrong_of(
        changed
    )


def test_a_colluder_more_in_words_alone_changes_the_numbers():
    """The description says against how many: another number there is another gain."""
    certificate = made()
    first, *rest = certificate.descriptions
    more = replace(first, adversary=replace(first.adversary, colluders=3))
    with pytest.raises(ValueError, match="curve of agent 0 must be at epsilon"):
        replace(certificate, descriptions=(more, *rest))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda body: body.pop("secrets"), "curve of agent 0 must be left out"),
        (
            lambda body: body["secrets"].update(agents=6, scales=[1.0]),
            "curve of agent 0 must be up to all 5",
        ),
        (lambda body: body["secrets"].update(pairs=[[1, 0]]), "pairs must be two agents each"),
        (lambda body: body["secrets"].update(pairs=[[0, 1], [0, 1]]), "pairs must be in order"),
        (lambda body: body["secrets"].update(pairs=[[0, 9]]), "pairs must be of agents 0 to 4"),
        (lambda body: body["secrets"].update(ratios=[1.0, 2.0]), "ratios must be one number"),
        (lambda body: body["secrets"].update(ratios=[-1.0]), "ratios must be positive"),
        (lambda body: body["secrets"].update(ratios=["infinite"]), "ratios must be"),
        (lambda body: body["secrets"].update(scales=[1.0, 2.0]), "scales must be one number"),
        (lambda body: body["secrets"].pop("ratios"), "ratios must be given, and is missing"),
        (lambda body: body["secrets"].update(colour=1), "secrets.colour must be one of the keys"),
        (lambda body: body["budgets"][0].pop("curve"), "curve of agent 0 must be up to all 4"),
        (lambda body: body["budgets"][0]["curve"].pop(), "curve of agent 0 must be up to all 4"),
        (lambda body: body["budgets"][0]["curve"].pop(2), "with the planned number"),
        (lambda body: body["budgets"][0]["curve"].reverse(), "of increasing numbers of colluders"),
        (lambda body: body["budgets"][0]["curve"][4].update(epsilon=0.01), "never falling"),
        (lambda body: body["budgets"][0]["curve"][0].pop("how"), "how must be given"),
        (lambda body: body["budgets"][0]["curve"][0].update(epsilon="low"), "must be a number"),
        (lambda body: body["descriptions"][0].update(gain=0.5), "gain must be 1, or more"),
        (
            lambda body: body["descriptions"][0]["adversary"].update(colluders=None),
            "gain must be 1, or more against a number of colluders",
        ),
    ],
)
def test_damaged_files_are_refused_with_the_place(damage, message):
    body = json.loads(made().to_json())
    del body["digest"]
    damage(body)
    certificate, verdict = verify_text(json.dumps(body))
    assert certificate is None and message in " ".join(verdict.wrong)


@pytest.mark.parametrize("key", ["gain", "colluders"])
def test_what_earlier_versions_did_not_write_cannot_be_left_out_with_secrets(key):
    body = json.loads(made().to_json())
    del body["digest"]
    for description in body["descriptions"]:
        del (description if key == "gain" else description["adversary"])[key]
    verdict = verify_text(json.dumps(body))[1]
    message = "epsilon must be at least" if key == "gain" else "gain must be 1, or more against"
    assert not verdict.holds and message in verdict.wrong[0]


def hostile(shared: Shared, points: int = 0) -> Certificate:
    """A file that asks for the worst coalitions of a network that nobody can search."""
    certificate = made()
    first = certificate.budgets[0]
    planned = next(p for p in first.curve if p.colluders == 2)
    sizes = sorted({2, *range(3, 3 + points), shared.agents - 1})
    curve = tuple(Colluding(q, planned.epsilon, "exact") for q in sizes)
    return replace(
        certificate,
        secrets=shared,
        budgets=(replace(first, curve=curve),),
        descriptions=certificate.descriptions[:1],
    )


@pytest.mark.parametrize(
    ("shared", "points", "message"),
    [
        (Shared(10**9, (1.0,), ((0, 1),)), 0, "agents of secrets must be at most"),
        (Shared(10_000, (1.0,)), 0, "pairs of secrets must be at most"),
        (Shared(2_000, (1.0,)), 1_000, "points of a curve must be at most"),
    ],
)
def test_what_would_take_too_long_is_refused_at_once(shared, points, message):
    begun = time.process_time()
    assert message in wrong_of(hostile(shared, points))
    assert time.process_time() - begun < 2


def test_many_budgets_of_a_large_network_are_refused_at_once():
    certificate = made()
    first = certificate.budgets[0]
    pairs = tuple((i, j) for i in range(1_500) for j in range(i + 1, min(i + 20, 1_500)))
    for shared, message in (
        (Shared(1_500, (1.0,), pairs), "budgets times pairs of secrets must be at most"),
        (Shared(2_000, (1.0,)), "budgets times agents^2 of secrets must be at most"),
    ):
        sizes = (2, shared.agents - 1)
        curve = tuple(Colluding(q, first.epsilon, "exact") for q in sizes)
        every = tuple(replace(first, agent=i, curve=curve) for i in range(shared.agents))
        large = replace(
            certificate, secrets=shared, budgets=every, descriptions=certificate.descriptions[:1]
        )
        begun = time.process_time()
        assert message in wrong_of(large)
        assert time.process_time() - begun < 5


def test_a_lifetime_without_the_number_for_all_colluding_is_refused():
    certificate = made()
    first, *rest = certificate.budgets
    enough = Lifetime(0.0, first.epsilon, DELTA, (), 0, 2, first.all_collude)
    assert verify(replace(certificate, budgets=(replace(first, lifetime=enough), *rest))).holds
    for known, message in (
        (replace(enough, all_collude=None), "lifetime.all_collude must be stated"),
        (replace(enough, all_collude=first.epsilon), "lifetime.all_collude must be at least"),
        (replace(enough, colluders=3), "lifetime.colluders must be at most this run's 2, got 3"),
        (replace(enough, colluders=None), "lifetime.colluders must be at most this run's 2"),
    ):
        changed = replace(certificate, budgets=(replace(first, lifetime=known), *rest))
        assert message in wrong_of(changed)


def test_one_number_of_colluders_stands_for_all_agents():
    """The heading of all epsilons has the largest: beside it a number for fewer would be false."""
    body = json.loads(made().to_json())
    del body["digest"]
    body["descriptions"][0]["adversary"]["colluders"] = 3
    first = body["budgets"][0]
    first["epsilon"] = first["curve"][3]["epsilon"]
    certificate, verdict = verify_text(json.dumps(body))
    assert certificate is None
    assert "colluders must be the same number for all agents, got '2, 3'" in verdict.wrong[0]


@pytest.mark.parametrize("left_out", ["follow the plan", "SIM-CDP", "worst coalition", "a person"])
def test_what_shared_noise_rests_on_must_be_said(left_out):
    certificate = made()
    descriptions = tuple(
        replace(d, further=tuple(a for a in d.further if left_out not in a.text))
        for d in certificate.descriptions
    )
    budgets = tuple(
        replace(b, assumptions=descriptions[b.description].assumptions) for b in certificate.budgets
    )
    quiet = replace(certificate, descriptions=descriptions, budgets=budgets)
    assert "assumptions must say what shared noise rests on" in wrong_of(quiet)


def test_very_many_small_networks_are_refused_at_once():
    """Trying all coalitions takes a second for an agent of 18, and there may be 2,000 of them."""
    pairs = tuple(
        (18 * part + i, 18 * part + j) for part in range(50) for i in range(18) for j in range(i)
    )
    pairs = tuple(sorted((min(pair), max(pair)) for pair in pairs))
    ratios = tuple(1 + 0.001 * i for i in range(len(pairs)))
    begun = time.process_time()
    assert "secrets must connect all agents" in wrong_of(hostile(Shared(900, ratios, pairs), 10))
    assert time.process_time() - begun < 2
