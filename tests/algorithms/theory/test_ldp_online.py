"""Theory checks: paper P1's conditions by name, against hand computations
and brute-force searches.
"""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

import hearsay as hs
from hearsay.algorithms.theory.findings import below
from hearsay.algorithms.theory.ldp_online import rate
from hearsay.problems import from_arrays
from hearsay.schedules import Constant, Geometric, PowerLaw

RNG = np.random.default_rng(0)
DATA = from_arrays(RNG.normal(size=(50, 2)), RNG.integers(0, 2, 50), feature_bound=1.0)
PROBLEM = hs.problems.logistic(DATA, agents=5, ridge=0.3)
RING = hs.graphs.ring(5, weight=0.3)
# The paper's own settings (Section VII-A): noise scales (t+1)^(0.1 + 0.01 i) for agents 1 to 5.
PAPER = hs.ldp_online(
    step=PowerLaw(1.0, -0.77),
    coupling=PowerLaw(1.0, -0.65),
    noise=[PowerLaw(1.0, 0.1 + 0.01 * i) for i in range(1, 6)],
)


def findings(algorithm=PAPER, graph=RING, problem=PROBLEM) -> dict:
    found = algorithm.theory(graph, problem)
    assert len({f.name for f in found}) == len(found), "every condition has a name of its own"
    return {f.name: f for f in found}


def promised_from(finding) -> int:
    match = re.search(r"from step ([\d,]+) on", finding.detail)
    assert match, finding.detail
    return int(match[1].replace(",", ""))


def test_the_papers_ring_violates_its_own_assumption_2():
    """Smallest eigenvalue of a ring of 5 with weight w: w (2 cos(4 pi / 5) - 2) = -1.085."""
    found = findings()["Assumption 2"]
    assert not found.holds
    assert found.margin == pytest.approx(1 + 0.3 * (2 * math.cos(4 * math.pi / 5) - 2))
    assert found.margin == pytest.approx(-0.085, abs=5e-4)
    assert findings(graph=hs.graphs.ring(5, weight=0.27))["Assumption 2"].holds


def test_theorem_1_asks_for_a_smaller_coupling_than_the_paper_uses():
    found = findings()["Theorem 1, coupling"]
    assert not found.holds
    assert "1 <= 0.3071" in found.detail
    assert found.margin == pytest.approx(0.307 - 1, abs=5e-4)
    weaker = hs.ldp_online(coupling=PowerLaw(0.307, -0.65))
    assert findings(weaker)["Theorem 1, coupling"].holds


def test_exponents_of_the_papers_settings():
    """Noise up to 0.15, u = 0.65, v = 0.77: the left inequality of (4) is an equality,
    so the strict one fails and the rate is 0.
    """
    found = findings()
    assert found["Assumption 4, noise"].holds
    assert found["Assumption 4, noise"].margin == pytest.approx(0.35)
    assert found["Assumption 4, (4) left"].margin == pytest.approx(0, abs=1e-12)
    assert not found["Assumption 4, (4) left"].holds
    assert found["Assumption 4, (4) middle"].margin == pytest.approx(0.12)
    assert found["Assumption 4, (4) right"].margin == pytest.approx(0.23)
    assert found["Theorems 1 and 3, rate"].margin == pytest.approx(0, abs=1e-12)
    assert found["Theorem 2, exponents"].margin == pytest.approx(0.77 - 2.3 / 3)
    assert found["Theorem 2, exponents left"].margin == pytest.approx(0.1)
    assert found["Theorems 2 and 4, rate"].margin == pytest.approx(0.115)
    assert found["Theorem 5 (ii)"].margin == pytest.approx(0.77 - 0.65 + 0.11)


@pytest.mark.parametrize(("u", "v", "grow"), [(0.65, 0.77, 0.1), (0.9, 0.95, 0.1), (0.6, 0.7, 0.2)])
def test_rate_formula(u, v, grow):
    assert rate(u, v, grow) == min(1 - v, 2 * u - 2 * grow - 1)
    algorithm = hs.ldp_online(
        step=PowerLaw(1, -v), coupling=PowerLaw(1, -u), noise=PowerLaw(1, grow)
    )
    found = findings(algorithm)["Theorems 1 and 3, rate"]
    assert found.holds == (rate(u, v, grow) > 0)
    assert found.margin == pytest.approx(rate(u, v, grow))
    assert ("falls at least like t^-" in found.detail) == found.holds


def test_steps_of_theorems_1_and_2_against_a_hand_computation():
    """mu = 0.3, L = 1/4 + 0.3, C = 2, delta_2 = 0.3 (2 cos(2 pi/5) - 2), kappa^2 = C^2/2,
    D = C + 0.3 R.
    """
    problem = hs.problems.logistic(DATA, agents=5, ridge=0.3, radius=10.0)
    found, second = findings(problem=problem), 0.3 * (2 * math.cos(2 * math.pi / 5) - 2)
    first = -second * 0.3 / (0.3**2 + 8 * 0.55**2)
    assert found["Theorem 1, step"].margin == pytest.approx(first - 1)
    weight = 2 * (0.55**2 + 2.0 + (2 + 0.3 * 10.0) ** 2)
    assert found["Theorem 2, step"].margin == pytest.approx(-second / weight - 1)
    assert not found["Theorem 1, step"].holds


def first_step(conditions) -> int:
    """The first step from which all conditions hold, by trying every one."""
    ok = np.logical_and.reduce(conditions)
    assert ok[-1]
    return int(np.nonzero(~ok)[0].max(initial=-1)) + 1


@pytest.mark.parametrize(("step0", "coupling0"), [(0.02, 1.0), (0.05, 3.0), (0.001, 0.2)])
def test_t0_of_theorem_3_against_a_search_over_steps(step0, coupling0):
    """From t0 on the shrunken step and coupling satisfy what Theorem 1 asks of the first ones."""
    algorithm = hs.ldp_online(
        step=PowerLaw(step0, -0.95), coupling=PowerLaw(coupling0, -0.6), noise=0.1
    )
    second, smallest = RING.coupling_eigenvalues
    mu, largest = PROBLEM.loss.curvature
    t = np.arange(1_000_000)
    conditions = [
        algorithm.coupling(t) <= 1 / (-3 * smallest),
        algorithm.step(t) <= algorithm.coupling(t) * -second * mu / (mu**2 + 8 * largest**2),
    ]
    finding = findings(algorithm)["Theorem 3, t0"]
    assert finding.holds
    assert promised_from(finding) == first_step(conditions)


def test_another_shift_promises_no_first_step():
    """t0 is stated for (k+1)^-p; taken over unchanged it would be too early."""
    algorithm = hs.ldp_online(
        step=PowerLaw(0.3, -0.95, 20.0), coupling=PowerLaw(3.0, -0.6, 20.0), noise=0.1
    )
    found = findings(algorithm)
    assert "Theorem 3, t0" not in found
    assert not found["Theorems 1-4"].holds
    assert found["Theorems 1 and 3, rate"].margin == pytest.approx(min(0.05, 0.2))


def test_t0_of_theorem_4_against_a_hand_computation():
    problem = hs.problems.logistic(DATA, agents=5, ridge=0.0, radius=1.0)
    algorithm = hs.ldp_online(step=PowerLaw(0.05, -0.95), coupling=PowerLaw(2.0, -0.6), noise=0.1)
    second, smallest = RING.coupling_eigenvalues
    weight = 2 * (0.25**2 + 2.0 + 4.0)
    expected = max(
        (-3 * smallest * 2.0) ** (1 / 0.6),
        (weight * 0.05 / (-second * 2.0)) ** (2 / (3 * 0.95 - 2 * 0.6 - 1)),
    )
    assert promised_from(findings(algorithm, problem=problem)["Theorem 4, t0'"]) == math.ceil(
        expected - 1
    )


def test_a_burn_in_beyond_all_floats_is_said_and_not_computed():
    found = findings(hs.ldp_online(step=PowerLaw(1.0, -0.6501), coupling=PowerLaw(1.0, -0.65)))[
        "Theorem 3, t0"
    ]
    assert not found.holds
    assert "no step that a float can hold" in found.detail
    far = findings(hs.ldp_online(step=PowerLaw(1.0, -0.77), coupling=PowerLaw(1.0, -0.65)))[
        "Theorem 3, t0"
    ]
    assert "about " in far.detail


def test_without_strong_convexity_theorems_1_and_3_do_not_apply():
    found = findings(problem=hs.problems.logistic(DATA, agents=5, ridge=0.0))
    assert not found["Theorems 1 and 3"].holds
    assert "strong convexity" in found["Theorems 1 and 3"].detail
    assert "Theorem 1, coupling" not in found
    assert "Theorem 2, coupling" in found


@pytest.mark.parametrize(
    "change",
    [{"step": Geometric(1.0, 0.99)}, {"coupling": Constant(0.3)}, {"noise": Geometric(1.0, 1.01)}],
)
def test_schedules_outside_the_theorems_are_said_to_be_so(change):
    found = findings(hs.ldp_online(**change))
    assert list(found) == ["Assumption 2", "Theorems 1-5"]
    assert not found["Theorems 1-5"].holds
    assert "power laws" in found["Theorems 1-5"].detail


def test_constant_noise_is_a_power_law_of_exponent_zero():
    found = findings(hs.ldp_online(noise=0.5))
    assert found["Assumption 4, noise"].margin == 0.5
    assert found["Theorem 5 (ii)"].margin == pytest.approx(0.12)


def test_feedback_needs_strong_convexity_and_growing_noise():
    flat = hs.problems.logistic(DATA, agents=5, ridge=0.0)
    assert findings(hs.ldp_online(feedback=True, noise=PowerLaw(1, 0.1)))[
        "Theorem 5 (ii)"
    ].margin == pytest.approx(0.1)
    assert not findings(hs.ldp_online(feedback=True, noise=0.5))["Theorem 5 (ii)"].holds
    assert not findings(hs.ldp_online(feedback=True, noise=PowerLaw(1, 0.1)), problem=flat)[
        "Theorem 5 (ii)"
    ].holds


@pytest.mark.parametrize("noise", [PowerLaw(1.0, 0.1), PowerLaw(1.0, -0.05), PowerLaw(1.0, -0.3)])
@pytest.mark.parametrize("feedback", [False, True])
def test_theorem_5_agrees_with_the_certificate_over_an_infinite_horizon(noise, feedback):
    """The finding speaks of a finite budget forever; the privacy engine decides it on its own."""
    algorithm = hs.ldp_online(
        step=PowerLaw(0.5, -0.77), coupling=PowerLaw(0.5, -0.65), noise=noise, feedback=feedback
    )
    holds = findings(algorithm)["Theorem 5 (ii)"].holds
    assert hs.certify(algorithm, PROBLEM, RING, math.inf).finite or not holds


@pytest.mark.parametrize(
    "coupling", [PowerLaw(0.3, 0.0), PowerLaw(0.0, -0.6)], ids=["constant", "none"]
)
def test_a_coupling_that_does_not_decay_is_a_finding_and_not_a_crash(coupling):
    assert not findings(hs.ldp_online(coupling=coupling))["Assumption 4, (4) left"].holds


def test_a_single_agent_is_a_finding_and_not_a_crash():
    alone = hs.problems.logistic(DATA, agents=1, ridge=0.3)
    assert findings(graph=hs.graphs.from_weights([[0.0]]), problem=alone)


def test_below():
    assert below("x", 1.0, 2.0, "t") == ("x", True, "t: needs 1 < 2", 1.0)
    assert not below("x", 2.0, 2.0, "t").holds
    assert below("x", 2.0, 2.0, "t", strict=False).holds


def test_only_papers_with_conditions_have_findings():
    assert hs.dsgd().theory(RING, PROBLEM) == []
