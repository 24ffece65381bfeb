"""The curve of a certificate: its text, its points, and what a certificate refuses to be."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

import hearsay as hs
from hearsay.privacy import Certificate
from hearsay.privacy.curve import Colluding
from hearsay.privacy.description import Adversary

DELTA, STEPS = 1e-5, 10
PROBLEM = hs.problems.ridge(agents=5, records=40, dimension=3, radius=3.0, clip=0.5)
GRAPH = hs.graphs.ring(5)


def made(secrets: hs.Secrets | None = hs.Secrets(2, 10**0.5), noise=2.0) -> Certificate:
    algorithm = hs.gradient_perturbation(mechanism="gaussian", noise=noise, secrets=secrets)
    return hs.certify(algorithm, PROBLEM, GRAPH, STEPS, delta=DELTA)


def cells(line: str) -> list[str]:
    return line.split()


def test_the_text_has_the_column_and_the_curve():
    found = made()
    lines = str(found).splitlines()
    head = next(line for line in lines if line.startswith("  agent"))
    assert "epsilon  all others collude" in head
    row = cells(lines[lines.index(head) + 1])
    own = made(None)
    assert row[2] == cells(str(own).splitlines()[5])[1] != row[1]
    place = next(i for i, line in enumerate(lines) if line.startswith("    colluders"))
    assert cells(lines[place]) == ["colluders", "0", "1", "2", "3", "all", "4"]
    told = cells(lines[place + 1])
    assert told[:2] == ["every", "agent"] and told[4] == row[1] and told[-1] == row[2]
    assert "worst coalitions: closed form" in lines[place + 2]
    text = str(found)
    for word in (
        "up to 2 of the other agents may behave arbitrarily",
        "at most 2 of the 4 other agents collude",
        "Whoever does not counts as a colluder",
        "SIM-CDP",
        "unlimited computing power",
        "nobody else's noise",
        "(mu_i + mu_j)-GDP",
        "pairs of agents have secrets in",
    ):
        assert word in " ".join(text.split())
    for word in ("collude", "colluders", "secrets"):
        assert word not in str(own)


def test_agents_that_differ_have_a_line_each():
    noise = [1.0, 2.0, 2.0, 2.0, 3.0]
    lines = str(made(noise=noise)).splitlines()
    place = next(i for i, line in enumerate(lines) if line.startswith("    colluders"))
    names = [line.strip().split("  ")[0] for line in lines[place + 1 : place + 4]]
    assert names == ["agent 0", "agents 1–3", "agent 4"]
    # More curves than are told one by one.
    problem = hs.problems.ridge(agents=12, records=20, dimension=2, clip=0.5)
    many = hs.certify(
        hs.gradient_perturbation(
            mechanism="gaussian", noise=[1.0 + i / 9 for i in range(12)], secrets=hs.Secrets(1, 2.0)
        ),
        problem,
        hs.graphs.ring(12),
        STEPS,
        delta=DELTA,
    )
    assert "... and 4 more agents" in str(many)


def test_ways_of_finding_the_worst_are_told_apart():
    ring = hs.Secrets(1, 2.0, hs.graphs.ring(5))
    assert "worst coalitions: exact" in str(made(ring))
    mixed = hs.Secrets(1, 2.0, ((0, 1), (1, 2), (2, 3), (3, 4), (0, 4), (0, 2)))
    certificate = made(mixed)
    assert {p.how for b in certificate.budgets for p in b.curve} == {"exact"}
    complete = made().budgets[0].curve
    assert [p.how for p in complete[:4]] == ["closed form"] * 4


def test_epsilon_at_a_number_of_colluders():
    found = made()
    assert found.colluders == 2 and found.at(2) == found.epsilon
    assert found.at(4) == found.all_collude == made(None).epsilon
    assert found.at(0) < found.at(1) < found.at(2) < found.at(3) < found.at(4)
    assert found.budgets[1].at(3) == found.at(3)[1]
    assert "if 2 collude" in found.collusion and "if all others collude" in found.collusion
    assert made(hs.Secrets(0, 2.0)).collusion.startswith("if nobody colludes")
    with pytest.raises(
        ValueError, match=r"colluders must be one of 0, 1, 2, 3, 4, .*certify.*got 5"
    ):
        found.at(5)
    with pytest.raises(ValueError, match="colluders must be"):
        found.at(-1)
    own = made(None)
    assert own.colluders is None and own.collusion == "" and own.all_collude == own.epsilon
    with pytest.raises(ValueError, match="colluders must be left out where no noise is shared"):
        own.at(1)


def test_a_curve_of_many_agents_has_some_points_and_others_are_stated():
    problem = hs.problems.ridge(agents=20, records=20, dimension=2, clip=0.5)
    algorithm = hs.gradient_perturbation(
        mechanism="gaussian", noise=2.0, secrets=hs.Secrets(10, 10**0.5)
    )
    graph = hs.graphs.ring(20)
    found = hs.certify(algorithm, problem, graph, STEPS, delta=DELTA)
    sizes = [point.colluders for point in found.budgets[0].curve]
    assert sizes[0] == 0 and sizes[-1] == 19 and 10 in sizes and len(sizes) < 15
    assert 7 not in sizes
    with pytest.raises(ValueError, match="certify"):
        found.at(7)
    stated = hs.certify(algorithm, problem, graph, STEPS, delta=DELTA, colluders=7)
    assert stated.at(7) == stated.epsilon and stated.at(4) == found.at(4)
    assert found.at(4)[0] < stated.epsilon[0] < found.at(9)[0]


def test_json_keeps_it_and_earlier_files_are_read():
    found = made()
    assert Certificate.from_json(found.to_json()) == found
    assert found.of(3).budgets[0].curve == found.budgets[3].curve
    assert Certificate.from_json(found.of(3).to_json()) == found.of(3)
    own = made(None)
    earlier = json.loads(own.to_json())
    del earlier["digest"], earlier["secrets"]
    for budget in earlier["budgets"]:
        del budget["curve"]
    for description in earlier["descriptions"]:
        del description["gain"], description["adversary"]["colluders"]
    assert Certificate.from_json(json.dumps(earlier)) == own


def test_points_are_in_order_and_never_fall():
    low, high = Colluding(0, 1.0, "exact"), Colluding(1, 2.0, "exact")
    budget = made(None).budgets[0]
    replace(budget, curve=(low, high))
    for points, message in (
        ((high, low), "curve must be of increasing numbers of colluders"),
        ((low, low), "curve must be of increasing numbers of colluders"),
        ((replace(low, epsilon=2.5), high), r"curve must be never falling: 2.5 against 0"),
        ((replace(low, epsilon=math.inf), high), "curve must be never falling"),
    ):
        with pytest.raises(ValueError, match=message):
            replace(budget, curve=points)
    for number in (math.nan, -1.0):
        with pytest.raises(ValueError, match="epsilon must be"):
            Colluding(0, number, "exact")


def test_certificates_whose_curves_are_not_those_of_their_secrets_are_refused():
    found, own = made(), made(None)
    first, *rest = found.budgets

    def with_curve(curve) -> Certificate:
        return replace(found, budgets=(replace(first, curve=curve), *rest))

    assert with_curve(first.curve) == found
    for call, message in (
        (lambda: with_curve(()), "curve of agent 0 must be up to all 4 others colluding"),
        (lambda: with_curve(first.curve[:-1]), "curve of agent 0 must be up to all 4 others"),
        (
            lambda: with_curve((*first.curve[:2], *first.curve[3:])),
            "curve of agent 0 must be with the planned number of colluders, 2",
        ),
        (
            lambda: replace(found, budgets=(replace(first, epsilon=first.curve[1].epsilon), *rest)),
            "curve of agent 0 must be at epsilon = .* for 2 colluders",
        ),
        (lambda: replace(found, secrets=None), "curve of agent 0 must be left out"),
        (lambda: replace(own, secrets=found.secrets), "curve of agent 0 must be up to all 4"),
        (
            lambda: replace(found, secrets=replace(found.secrets, agents=4)),
            "secrets must be of more than 4 agents, whose budget is stated, got 4",
        ),
        (
            lambda: replace(
                found,
                secrets=replace(found.secrets, agents=4),
                budgets=tuple(replace(b, curve=b.curve[:-1]) for b in found.budgets),
            ),
            "secrets must be of more than 4 agents, whose budget is stated, got 4",
        ),
        (
            lambda: replace(
                found,
                secrets=None,
                budgets=tuple(replace(b, curve=()) for b in found.budgets),
            ),
            "secrets must be given where budgets count on a number of colluders",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_adversaries_in_words():
    assert "all other agents follow the plan" in str(Adversary(colluders=0))
    assert "one of the other agents may behave arbitrarily, the rest" in str(Adversary(colluders=1))
    assert "up to 3 of the other agents may behave arbitrarily and pool" in str(
        Adversary(colluders=3)
    )
    honest = str(Adversary(others="honest", colluders=3))
    assert "follow the protocol" in honest and "at most 3 of them tell the secrets" in honest
    assert any("break the key agreement" in text for text in Adversary(colluders=0).trust)
