"""Theory checks of paper P3: every condition against hand computations, its own boundary,
and the sums and recursions that it is about.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

import hearsay as hs
from hearsay.algorithms.theory.exponents import (
    forgetting_rate,
    gradient_budget,
    gradient_noise_limit,
    gradient_rate,
    gradient_series,
    largest_ratio,
    oracle_exponent,
    output_budget,
    output_noise_limit,
    output_rate,
    output_series,
    ratio_limits,
)
from hearsay.algorithms.theory.onset import first_step
from hearsay.problems import from_arrays
from hearsay.schedules import Constant, Geometric, PowerLaw

RNG = np.random.default_rng(0)
DATA = from_arrays(RNG.normal(size=(60, 2)), RNG.integers(0, 2, 60), feature_bound=1.0)
HELD = hs.problems.logistic(DATA, agents=6, ridge=0.3)  # ten records per agent
ESTIMATION = hs.problems.estimation()  # mu = 1, L = 4, an endless stream
RING = hs.graphs.ring(6)  # sigma_2 = 1/3 + 2/3 cos(60 degrees) = 2/3
FORMS = {"output": hs.output_perturbation, "gradient": hs.gradient_perturbation}


def algorithm(form, alpha, beta, gamma, eta, scale=0.5, shift=1.0, **options):
    sampling = options.pop("sampling", hs.Fresh(PowerLaw(1.0, gamma, shift)))
    return FORMS[form](
        step=PowerLaw(scale, -alpha, shift), coupling=PowerLaw(scale, -beta, shift),
        noise=options.pop("noise", PowerLaw(1.0, eta, shift)), sampling=sampling, **options,
    )  # fmt: skip


def findings(chosen, graph=RING, problem=ESTIMATION) -> dict:
    found = chosen.theory(graph, problem)
    assert len({f.name for f in found}) == len(found), "every condition has a name of its own"
    return {f.name: f for f in found}


def failing(found: dict) -> set[str]:
    return {name for name, finding in found.items() if not finding.holds}


# alpha, beta, gamma, eta that satisfy every theorem, with something to spare everywhere.
GOOD = {"output": (0.95, 0.8, 1.0, 0.05), "gradient": (0.95, 0.6, 1.0, 0.05)}


@pytest.mark.parametrize("form", FORMS)
def test_a_configuration_that_satisfies_all(form):
    """a_2 = 10^60 makes step/coupling 10^-9 and 10^-21; nothing is then left to fail."""
    found = findings(algorithm(form, *GOOD[form], shift=1e60))
    assert failing(found) == set()
    start = "Theorem 3, first step" if form == "output" else "Theorem 6, first step"
    assert "from step 0 on" in found[start].detail


# What the paper says of its own examples.


def test_the_papers_output_run_misses_theorem_4_and_the_bounds_of_assumption_4():
    found = findings(algorithm("output", 0.9, 0.6, 1.1, 0.05))
    assert failing(found) == {
        "Assumption 4, ratio, first bound",
        "Assumption 4, ratio, second bound",
        "Theorem 4, noise",
        "Theorem 4, rate",
        "Corollary 1",
        "Corollary 3",
    }
    assert found["Theorem 4, noise"].margin == pytest.approx((3 * 0.6 - 2) / 2 - 0.05)
    assert found["Theorem 4, rate"].margin == pytest.approx(3 * 0.6 - 2 * 0.9 - 2 * 0.05)
    assert found["Theorem 2, budget"].margin == pytest.approx(0.9 + 1.1 - 0.6 + 0.05 - 1)
    assert "(iii)" in found["Theorem 2, case"].detail
    assert found["Assumption 4, ratio, first bound"].margin == pytest.approx(2 / 9 - 1)
    # (1/3)^2 1^2 0.5 / (16 (6 L^2 0.5 + 6 (1/3) 0.5) 1.5 L^2), L^2 = 6 * 4^2 = 96
    second = 0.5 / 9 / (16 * (288 + 1) * 1.5 * 96)
    assert found["Assumption 4, ratio, second bound"].margin == pytest.approx(second - 1, rel=1e-12)
    assert ratio_limits(0.5, 0.5, 6, 2 / 3, 1.0, 4.0) == pytest.approx((2 / 9, second))


def test_the_papers_gradient_run_misses_a_sum_of_assumption_5_but_not_theorem_7():
    found = findings(algorithm("gradient", 0.8, 0.5, 1.2, 0.1))
    assert failing(found) == {
        "Assumption 5, ratio, first bound", "Assumption 5, ratio, second bound",
        "Assumption 5, sum step^2 noise^2/coupling", "Theorem 6",
    }  # fmt: skip
    assert found["Assumption 5, sum step^2 noise^2/coupling"].margin == pytest.approx(
        2 * 0.8 - 0.5 - 0.2 - 1
    )
    assert found["Theorem 7, noise"].margin == pytest.approx(0.15 - 0.1)
    assert found["Theorem 7, rate"].margin == pytest.approx(0.1)
    assert found["Theorem 5, budget"].margin == pytest.approx(0.3)
    assert found["Corollary 2"].holds
    assert "e^-10 steps and e^-22 sampled gradients" in found["Corollary 3"].detail


def test_the_papers_mnist_schedules_miss_assumption_4_and_their_bootstrap_theorem_2():
    """2 * 0.51 - 2 * 0.01 = 1. Its 12,000 records per agent are reached, and every gradient is of
    all of them from then on.
    """
    schedules = (0.76, 0.51, 1.4, 0.01, 0.01, 2.0)
    found = findings(algorithm("output", *schedules))
    assert found["Assumption 4, sum coupling^2 noise^2"].margin == 0
    assert not found["Assumption 4, sum coupling^2 noise^2"].holds
    assert found["Theorem 4, rate"].margin == pytest.approx(-0.01)
    assert found["Theorem 2, budget"].margin == pytest.approx(0.66)
    drawn = findings(
        algorithm("output", *schedules, sampling=hs.Resample("(k+2)^1.4")), problem=HELD
    )
    assert drawn["Theorem 2, budget"].margin == pytest.approx(0.66 - 1.4)
    assert math.ceil(12_000 ** (1 / 1.4)) - 2 < 2_000


def test_remark_8_names_a_configuration_with_rate_0():
    first, second = (
        findings(algorithm("output", 1, 0.9, 1.06, 0.35)),
        findings(algorithm("output", 0.9, 0.8, 1.8, 0.2)),
    )
    for found in (first, second):
        assert found["Theorem 4, noise"].margin == 0
        assert found["Theorem 4, noise"].holds
    assert first["Theorem 4, rate"].margin == 0
    assert {"Theorem 4, rate", "Corollary 1"} <= failing(first)
    assert first["Theorem 3"].holds
    assert second["Theorem 4, rate"].margin == pytest.approx(0.1)
    assert second["Corollary 1"].holds
    assert second["Assumption 4, sum step^2/coupling"].margin == 0
    assert not second["Theorem 3"].holds


def test_remark_10_with_constant_sample_sizes_misses_a_sum_of_assumption_5():
    assert not findings(algorithm("gradient", 1, 0.6, 0.0, 0.1))[
        "Assumption 5, sum step/size"
    ].holds
    assert findings(algorithm("gradient", 1, 0.6, 0.01, 0.1))["Assumption 5, sum step/size"].holds


def test_remark_11_needs_a_scale_that_it_does_not_name():
    """alpha = 1, beta = 0.6: the rate is min(a_1 mu - 0.4, 0.4, 0.2), with mu = 1."""
    assert findings(algorithm("gradient", 1, 0.6, 1.1, 0.1, scale=0.9))["Corollary 2"].holds
    found = findings(algorithm("gradient", 1, 0.6, 1.1, 0.1, scale=0.4))
    assert found["Theorem 7, scale"].margin == pytest.approx(0, abs=1e-12)
    assert {"Theorem 7, scale", "Theorem 7, rate", "Corollary 2"} <= failing(found)


@pytest.mark.parametrize("small", [0.001, 0.01, 0.05])
def test_corollary_3_is_the_special_case_of_the_oracle_exponent(small):
    rate = gradient_rate(1 - small, 0.5 + small, small)
    assert rate == pytest.approx(0.5 - 4 * small)
    assert oracle_exponent(rate, small) == pytest.approx((1 + small) / (0.5 - 4 * small))
    found = findings(algorithm("gradient", 1 - small, 0.5 + small, small, small))
    assert (
        f"e^-{(1 + small) / (0.5 - 4 * small):.4g} sampled gradients" in found["Corollary 3"].detail
    )
    assert not found["Theorem 5, budget"].holds, (
        "the corollary's own schedule has no finite budget: 2 e < 1"
    )


def test_no_rate_promises_no_number_of_gradients():
    assert oracle_exponent(0.0, 1.0) == oracle_exponent(-0.1, 1.0) == math.inf
    assert oracle_exponent(0.25, 1.5) == 10


# Conditions on exponents: their boundaries, and the sums they are about.


@pytest.mark.parametrize(
    ("form", "name", "edge", "move"),
    [
        ("output", "sum step^2/coupling", (0.8, 0.6, 1.0, 0.0), (0.01, 0, 0, 0)),
        ("output", "sum coupling^2 noise^2", (0.9, 0.6, 1.0, 0.1), (0, 0, 0, -0.01)),
        ("output", "sum step^2/(size coupling)", (0.6, 0.4, 0.2, 0.0), (0, -0.01, 0, 0)),
        ("output", "sum step^2/size", (0.4, 0.2, 0.2, 0.0), (0, 0, 0.01, 0)),
        ("gradient", "sum step^2/coupling", (0.8, 0.6, 1.0, 0.0), (0, -0.01, 0, 0)),
        ("gradient", "sum step^2/(size coupling)", (0.6, 0.4, 0.2, 0.0), (0, 0, 0.01, 0)),
        ("gradient", "sum step^2 noise^2/coupling", (0.8, 0.4, 1.0, 0.1), (0, 0, 0, -0.01)),
        ("gradient", "sum step/size", (0.8, 0.5, 0.2, 0.0), (0.01, 0, 0, 0)),
        ("gradient", "sum step^2 noise^2", (0.6, 0.1, 1.0, 0.1), (0, 0, 0, -0.01)),
    ],
)
def test_series_diverge_at_the_boundary_and_converge_inside(form, name, edge, move):
    name = f"Assumption {4 if form == 'output' else 5}, {name}"
    at, inside = (
        findings(algorithm(form, *edge))[name],
        findings(algorithm(form, *np.add(edge, move)))[name],
    )
    assert at.margin == 0
    assert not at.holds
    assert inside.holds
    assert 0 < inside.margin < 0.03


@pytest.mark.parametrize(
    ("series", "form"), [(output_series, "output"), (gradient_series, "gradient")]
)
def test_series_exponents_are_those_of_the_schedules(series, form):
    """The decay of each term, measured between two late steps;
    the name of a condition is its formula.
    """
    chosen = algorithm(form, 0.9, 0.7, 0.3, 0.1)
    late = np.array([1e11, 1e12])
    values = {
        "step": chosen.step(late), "coupling": chosen.coupling(late), "noise": chosen.noise(late),
        "size": chosen.sampling.size.law(late),
    }  # fmt: skip
    assert len(series(0.9, 0.7, 0.3, 0.1)) == {"output": 4, "gradient": 5}[form]
    for name, fall in series(0.9, 0.7, 0.3, 0.1).items():
        formula = name.removeprefix("sum ").replace("^", "**").replace(" ", "*")
        term = eval(formula, {}, values)
        assert -math.log10(term[1] / term[0]) == pytest.approx(fall, abs=1e-6)


@pytest.mark.parametrize("form", FORMS)
def test_steps_that_sum_to_a_finite_number_do_not_converge(form):
    """alpha = 1.1 satisfies every sum that the assumption names;
    the model then moves only so far.
    """
    found = findings(algorithm(form, 1.1, 0.9, 1.0, 0.0, shift=1e60))
    theorem = {"output": "Theorem 3", "gradient": "Theorem 6"}[form]
    assert not any("Assumption" in name for name in failing(found))
    assert found[f"{theorem}, sum step"].margin == pytest.approx(-0.1)
    assert not found[theorem].holds


@pytest.mark.parametrize(
    ("form", "exponents", "name"),
    [
        ("output", (1.01, 0.9, 1.0, 0.0), "Theorem 4, step"),
        ("output", (0.9, 0.9, 1.0, 0.0), "Theorem 4, order"),
        ("output", (0.9, 0.0, 1.0, 0.0), "Theorem 4, coupling"),
        ("output", (0.9, 0.8, 1.0, 0.21), "Theorem 4, noise"),
        ("gradient", (1.01, 0.5, 1.0, 0.0), "Theorem 7, step"),
        ("gradient", (0.9, 0.9, 1.0, 0.0), "Theorem 7, order"),
        ("gradient", (0.9, 0.0, 1.0, 0.0), "Theorem 7, coupling"),
        ("gradient", (0.9, 0.2, 1.0, 0.11), "Theorem 7, noise"),
        ("gradient", (0.9, 0.7, 1.0, 0.11), "Theorem 7, noise"),
    ],
)
def test_each_hypothesis_of_the_rate_theorems_voids_the_rate(form, exponents, name):
    found = findings(algorithm(form, *exponents))
    rate, corollary = (
        name.split(",")[0] + ", rate",
        {"output": "Corollary 1", "gradient": "Corollary 2"}[form],
    )
    assert {name, rate, corollary, "Corollary 3"} <= failing(found)
    assert name in found[rate].detail
    assert found[name].margin <= 0


def test_limits_of_the_noise_exponent():
    assert output_noise_limit(1.0, 0.9) == pytest.approx(0.35)
    assert gradient_noise_limit(0.9, 0.2) == pytest.approx(0.1)
    assert gradient_noise_limit(0.9, 0.7) == pytest.approx(0.1)
    assert findings(algorithm("gradient", 0.9, 0.2, 1.0, 0.1))["Theorem 7, noise"].holds


def slope(values: np.ndarray) -> float:
    """Log-log slope over the last factor of four."""
    return math.log(values[-1] / values[len(values) // 4]) / math.log(4)


def lyapunov(
    alpha: float, noise_fall: float, spread_fall: float, pull: float, steps: int = 200_000
) -> np.ndarray:
    """E[V] of (29) with every constant 1: it shrinks by 1 - pull k^-alpha and gains
    k^-noise_fall + k^-spread_fall.
    """
    k = np.arange(1, steps + 1, dtype=float)
    keep, gain = np.maximum(0.0, 1 - pull * k**-alpha), k**-noise_fall + k**-spread_fall
    value, out = 1.0, np.empty(steps)
    for i in range(steps):
        out[i] = value
        value = keep[i] * value + gain[i]
    return out


@pytest.mark.parametrize(
    ("alpha", "beta", "eta", "pull"),
    [
        (0.9, 0.8, 0.2, 1),
        (0.9, 0.75, 0.1, 1),
        (0.8, 0.75, 0.3, 1),
        (1.0, 0.9, 0.1, 3),
        (1.0, 0.8, 0.05, 0.1),
    ],
)
def test_rates_against_the_recursion_of_the_proof(alpha, beta, eta, pull):
    """The squared disagreement is V / a_k, a_k ~ k^(beta - alpha);
    gains as the proofs of Theorems 4 and 7 name them.
    """
    scale = np.arange(1, 200_001) ** (alpha - beta)
    for rate, gains in [
        (output_rate, (2 * beta - 2 * eta, 3 * alpha - 2 * beta)),
        (gradient_rate, (2 * alpha - 2 * eta, 3 * alpha - 2 * beta - 2 * eta)),
    ]:
        promised = rate(alpha, beta, eta)
        if alpha == 1:
            promised = min(promised, forgetting_rate(beta, pull, 1.0))
        assert -slope(lyapunov(alpha, *gains, pull) * scale) == pytest.approx(promised, abs=0.06)


def test_rate_at_alpha_1_is_said_with_its_logarithm():
    """min(a_1 mu - 1 + beta, 3 beta - 2 eta - 2, 1 - beta) = min(0.3, 0.3, 0.2) and,
    with a_1 = 0.3, min(0.1, ...).
    """
    found = findings(algorithm("output", 1, 0.8, 1.0, 0.05))
    assert found["Theorem 4, rate"].margin == pytest.approx(0.2)
    assert "ln(k) k^-0.2" in found["Theorem 4, rate"].detail
    assert "up to logarithms" in found["Corollary 3"].detail
    assert findings(algorithm("output", 1, 0.8, 1.0, 0.05, scale=0.3))[
        "Theorem 4, rate"
    ].margin == pytest.approx(0.1)
    below_one = findings(algorithm("output", 0.99, 0.8, 1.0, 0.05, scale=0.3))
    assert "Theorem 4, scale" not in below_one
    assert "ln" not in below_one["Theorem 4, rate"].detail


# Budgets.


@pytest.mark.parametrize(
    ("case", "alpha", "beta", "gamma", "eta", "scale"),
    [
        ("(i)", 0.9, 1.0, 0.6, 0.6, 0.9),
        ("(i)", 0.9, 1.0, 0.6, 0.4, 0.9),
        ("(ii)", 1.0, 1.0, 1.0, 0.3, 0.5),
        ("(ii)", 1.0, 1.0, 1.0, 0.7, 0.5),
        ("(iii)", 0.9, 0.6, 1.1, 0.05, 0.5),
        ("(iii)", 0.9, 0.6, 0.5, 0.05, 0.5),
    ],
)
def test_theorem_2_against_the_sensitivity_that_it_sums(case, alpha, beta, gamma, eta, scale):
    """Delta_k / sigma_k falls like k^-(1 + margin); Delta by its recursion,
    with every constant as in the theorem.
    """
    k = np.arange(1, 400_001, dtype=float)
    keep, jump, ratio = 1 - scale * k**-beta, scale * k ** (-alpha - gamma), np.empty(len(k))
    delta = 0.0
    for i in range(len(k)):
        delta = keep[i] * delta + jump[i]
        ratio[i] = delta / k[i] ** eta
    found = output_budget(alpha, beta, gamma, eta, scale)
    assert found.name == case
    assert -slope(ratio) == pytest.approx(1 + found.margin, abs=0.02)
    named = findings(algorithm("output", alpha, beta, gamma, eta, scale))
    assert case in named["Theorem 2, case"].detail
    assert named["Theorem 2, case"].holds
    assert named["Theorem 2, case"].margin == pytest.approx(found.inside)
    assert named["Theorem 2, budget"].holds == (found.margin > 0)
    assert named["Theorem 2, budget"].margin == pytest.approx(found.margin)


def test_theorem_2_at_its_boundaries():
    assert output_budget(0.9, 0.6, 0.6, 0.1, 0.5) == ("(iii)", 0.4, 0.0)
    # alpha + gamma - a_1 = 1 belongs to (ii).
    assert output_budget(1.0, 1.0, 0.5, 0.5, 0.5) == ("(ii)", 0.0, 0.0)
    assert output_budget(1.0, 1.0, 0.4, 0.6, 0.5) == ("(i)", 0.1, 0.0)
    assert not findings(algorithm("output", 0.9, 0.6, 0.6, 0.1))["Theorem 2, budget"].holds
    assert findings(algorithm("output", 1.0, 1.0, 0.5, 0.6))["Theorem 2, case"].holds
    beyond = findings(algorithm("output", 1.0, 1.1, 1.0, 1.0))
    assert {"Theorem 2, case", "Theorem 2, budget"} <= failing(beyond)
    assert beyond["Theorem 2, case"].margin == pytest.approx(-0.1)
    assert not findings(algorithm("output", 0.9, 0.0, 1.0, 1.0))["Theorem 2, case"].holds


def test_theorem_2_names_its_other_hypotheses():
    found = findings(algorithm("output", 1.2, 0.6, 1.0, -0.1))
    assert {"Theorem 2, step at most", "Theorem 2, noise"} <= failing(found)
    assert found["Theorem 2, budget"].holds
    assert found["Theorem 2, first coupling"].margin == pytest.approx(0.5)
    assert not findings(algorithm("output", 0.0, 0.0, 1.0, 0.1))["Theorem 2, step"].holds


def test_theorem_5_at_its_boundary():
    assert gradient_budget(0.9, 0.1) == 0
    assert not findings(algorithm("gradient", 0.8, 0.5, 0.9, 0.1))["Theorem 5, budget"].holds
    assert findings(algorithm("gradient", 0.8, 0.5, 0.91, 0.1))["Theorem 5, budget"].holds


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "exponents", [(0.9, 0.6, 1.1, 0.05), (0.8, 0.5, 1.2, 0.1), (0.9, 0.6, 0.2, 0.0)]
)
@pytest.mark.parametrize("sampler", [hs.Fresh, hs.Cyclic, hs.Subset, hs.Resample])
def test_finite_budgets_agree_with_the_certificate_over_an_infinite_horizon(
    form, exponents, sampler
):
    """The privacy engine decides on its own, and may know more:
    the paper lets a record of every step change.
    """
    chosen = algorithm(form, *exponents, sampling=sampler(PowerLaw(1.0, exponents[2])))
    budget = findings(chosen, problem=HELD)[
        {"output": "Theorem 2, budget", "gradient": "Theorem 5, budget"}[form]
    ]
    assert hs.certify(chosen, HELD, RING, math.inf).finite or not budget.holds


@pytest.mark.parametrize(("form", "theorem"), [("output", "Theorem 2"), ("gradient", "Theorem 5")])
def test_the_slowest_noise_decides_the_budget_and_the_fastest_the_rate(form, theorem):
    rate = {"output": "Theorem 4", "gradient": "Theorem 7"}[form]
    noise = [PowerLaw(1.0, e) for e in (0.02, 0.01, 0.03, 0.02, 0.02, 0.02)]
    alpha, beta, gamma, _ = GOOD[form]
    mixed = findings(algorithm(form, *GOOD[form], noise=noise))
    slow, fast = (findings(algorithm(form, alpha, beta, gamma, e)) for e in (0.01, 0.03))
    for name in (f"{rate}, rate", f"{rate}, noise"):
        assert mixed[name].margin == pytest.approx(fast[name].margin)
    assert mixed[f"{theorem}, budget"].margin == pytest.approx(slow[f"{theorem}, budget"].margin)
    assert slow[f"{theorem}, budget"].margin < fast[f"{theorem}, budget"].margin
    assert slow[f"{rate}, noise"].margin > fast[f"{rate}, noise"].margin


@pytest.mark.parametrize("form", FORMS)
def test_without_noise_the_rate_stands_and_the_budget_does_not(form):
    theorem, rate = {"output": ("Theorem 2", "Theorem 4"), "gradient": ("Theorem 5", "Theorem 7")}[
        form
    ]
    found = findings(algorithm(form, *GOOD[form], noise=None))
    assert found[f"{rate}, rate"].holds
    assert (
        next(f.margin for name, f in found.items() if "noise^2" in name and "Assumption" in name)
        == math.inf
    )
    assert not found[f"{theorem}, budget"].holds
    assert found[f"{theorem}, budget"].margin == -math.inf
    one_silent = [PowerLaw(1.0, 0.05)] * 5 + [Constant(0.0)]
    assert not findings(algorithm(form, *GOOD[form], noise=one_silent))[f"{theorem}, budget"].holds


def test_falling_noise_counts_as_constant_for_the_rate():
    rate = findings(algorithm("gradient", 0.95, 0.6, 1.0, -0.3))["Theorem 7, rate"]
    assert rate.holds
    assert rate.margin == pytest.approx(0.95 - 0.6)


def test_with_feedback_theorem_2_does_not_speak():
    plain, fed = (findings(algorithm("output", *GOOD["output"], feedback=f)) for f in (False, True))
    assert plain["Corollary 1"].holds
    assert "certificate" in fed["Theorem 2, budget"].detail
    assert {"Theorem 2, budget", "Corollary 1"} <= failing(fed)
    assert fed["Theorem 4, rate"] == plain["Theorem 4, rate"]


# Samplers.


@pytest.mark.parametrize(
    ("sampling", "problem", "gamma", "fades"),
    [
        (hs.Fresh(), ESTIMATION, 0.0, 0.0),
        (hs.Fresh(5), ESTIMATION, 0.0, 0.0),
        (hs.Fresh("(k+1)^1.3"), HELD, 1.3, 1.3),
        (hs.Subset("floor((k+1)^1.3)+1"), ESTIMATION, 1.3, 1.3),
        (hs.Subset("(k+1)^1.3"), HELD, 1.3, 0.0),
        (hs.Cyclic("(k+1)^1.3"), HELD, 1.3, 0.0),
        (hs.Resample("(k+1)^1.3"), HELD, 1.3, 0.0),
        (hs.Resample("(k+1)^1.3"), ESTIMATION, 1.3, 0.0),
        (hs.History(), HELD, 1.0, 1.0),
    ],
    ids=lambda value: value.name if isinstance(value, hs.problems.Problem) else str(value),
)
def test_sample_sizes_as_the_rates_and_as_the_budgets_see_them(sampling, problem, gamma, fades):
    found = findings(algorithm("gradient", 0.8, 0.5, 0.0, 0.1, sampling=sampling), problem=problem)
    assert found["Assumption 2"].holds
    assert found["Theorem 7, sample size"].margin == gamma
    assert f"e^-{(1 + gamma) / 0.1:.4g} sampled gradients" in found["Corollary 3"].detail
    assert found["Theorem 5, budget"].margin == pytest.approx(fades + 0.1 - 1)
    assert ("Theorem 5, weights" in found) == (fades < gamma)
    if fades < gamma:
        assert found["Theorem 5, weights"].margin == fades - gamma


def test_batches_in_a_fixed_order_are_biased_until_they_are_the_whole_data_set():
    growing, constant = (
        algorithm("gradient", 0.8, 0.5, 0.0, 0.1, sampling=hs.Cyclic(s)) for s in ("(k+1)^0.5", 2)
    )
    assert "whole" in findings(growing, problem=HELD)["Assumption 2"].detail
    assert {"Assumption 2", "Theorem 7, rate", "Corollary 2"} <= failing(
        findings(constant, problem=HELD)
    )
    limit = findings(algorithm("output", *GOOD["output"], sampling=hs.Cyclic(2)), problem=HELD)[
        "Theorem 3"
    ]
    assert not limit.holds
    assert "because of Assumption 2 (" in limit.detail


# The ratio's bounds, objectives and graphs.


@pytest.mark.parametrize(
    ("step", "coupling"),
    [
        (PowerLaw(0.5, -0.9), PowerLaw(0.7, -0.6)),
        (PowerLaw(0.5, -0.9, 40.0), PowerLaw(0.7, -0.6)),
        (PowerLaw(0.5, -0.9), PowerLaw(0.7, -0.6, 40.0)),
        (PowerLaw(0.5, -0.6, 3.0), PowerLaw(0.7, -0.6)),
        (PowerLaw(0.5, -0.6), PowerLaw(0.7, -0.6, 3.0)),
    ],
)
def test_largest_ratio_against_a_search(step, coupling):
    k = np.arange(1_000_000)
    assert largest_ratio(step, coupling) == pytest.approx(
        float(np.max(step(k) / coupling(k))), rel=1e-5
    )


@pytest.mark.parametrize("form", FORMS)
def test_a_step_that_outlasts_the_coupling_has_no_largest_ratio(form):
    found = findings(algorithm(form, 0.6, 0.7, 1.0, 0.0))
    bounds = [f for name, f in found.items() if "bound" in name]
    assert len(bounds) == 2
    assert all(f.margin == -math.inf and not f.holds for f in bounds)
    assert (
        "no known step"
        in found[
            {"output": "Theorem 3, first step", "gradient": "Theorem 6, first step"}[form]
        ].detail
    )


@pytest.mark.parametrize(
    ("scale", "shifts"), [(0.01, (1, 1)), (0.01, (200, 1)), (0.01, (1, 7)), (0.1, (10_000, 1))]
)
def test_the_first_step_of_theorem_3_against_a_search_over_steps(scale, shifts):
    """In the last of them the ratio starts below its bounds, passes them, and comes back:
    the first step is that of its return.
    """
    problem = hs.problems.logistic(DATA, agents=6, ridge=5.0)
    step, coupling = PowerLaw(scale, -1.0, shifts[0]), PowerLaw(0.9, -0.4, shifts[1])
    chosen = hs.output_perturbation(step=step, coupling=coupling, noise=0.1, sampling=hs.Fresh(1))
    k = np.arange(1_000_000)
    settled = step(k) / coupling(k) <= np.minimum(
        *ratio_limits(step(k), coupling(k), 6, 2 / 3, 5.0, 5.25)
    )
    assert settled[-1]
    expected = int(np.nonzero(~settled)[0].max()) + 1
    assert expected > 10
    assert settled[0] == (shifts[0] == 10_000)
    assert (
        f"from step {expected:,} on"
        in findings(chosen, problem=problem)["Theorem 3, first step"].detail
    )


def test_first_step():
    assert first_step(lambda k: k >= 1234, 0.0) == 1234
    assert first_step(lambda k: True, 3.2) == 4
    assert first_step(lambda k: k >= 1e40, 0.0) == pytest.approx(1e40, rel=1e-8)
    assert first_step(lambda k: False, 0.0) == math.inf


def test_ratio_limits_of_flat_and_of_disconnected_objectives():
    assert ratio_limits(0.5, 0.5, 6, 0.5, 0.0, 1.0) == (math.inf, 0.0)
    assert ratio_limits(0.5, 0.5, 6, 1.2, 1.0, 1.0) == (0.0, 0.0)
    assert ratio_limits(0.5, 0.5, 6, 0.5, 1.0, math.inf)[1] == 0


@pytest.mark.parametrize("exponents", [GOOD["output"], (3.0, 0.5, 1.0, 0.0)])
def test_without_strong_convexity_nothing_is_promised(exponents):
    flat = hs.problems.logistic(DATA, agents=6, ridge=0.0)
    found = findings(algorithm("output", *exponents), problem=flat)
    assert found["Assumption 1, strong convexity"].margin == 0
    assert {
        "Assumption 1, strong convexity",
        "Theorem 3",
        "Theorem 4, rate",
        "Corollary 1",
    } <= failing(found)
    assert found["Theorem 2, budget"].holds, "privacy does not depend on it"


def test_a_clip_takes_the_known_smoothness_away_unless_it_is_the_losss_own():
    chosen = algorithm("output", *GOOD["output"])
    clipped = findings(chosen, problem=hs.problems.estimation(clip=1.0))
    assert {"Assumption 1, clipping", "Theorem 4, rate"} <= failing(clipped)
    own = findings(chosen, problem=hs.problems.logistic(DATA, agents=6, ridge=0.3, clip=0.5))
    assert "Assumption 1, clipping" not in own
    assert own["Theorem 4, rate"].holds


def test_assumption_3_of_one_way_lopsided_and_heavy_graphs():
    chosen = algorithm("output", *GOOD["output"])
    circle = hs.graphs.from_weights(0.4 * np.roll(np.eye(6), 1, axis=1))
    found = findings(chosen, graph=circle)
    assert "6 edges" in found["Assumption 3, undirected"].detail
    assert {n for n in failing(found) if "Assumption 3" in n} == {"Assumption 3, undirected"}
    # |0.6 + 0.4 exp(i pi / 3)|: a circulant matrix is normal
    assert found["Assumption 3, sigma_2"].margin == pytest.approx(1 - math.sqrt(0.36 + 0.16 + 0.24))
    lopsided = 0.3 * (np.roll(np.eye(6), 1, axis=1) + np.roll(np.eye(6), -1, axis=1))
    lopsided[0, 1] = 0.1
    found = findings(chosen, graph=hs.graphs.from_weights(lopsided))
    assert found["Assumption 3, doubly stochastic"].margin == pytest.approx(1e-9 - 0.2)
    assert {"Assumption 3, doubly stochastic", "Theorem 4, rate"} <= failing(found)
    heavy = findings(chosen, graph=hs.graphs.ring(6, weight=0.5))
    assert heavy["Assumption 3, weights"].margin == pytest.approx(0)
    # Even ring, no own weight: eigenvalue -1.
    assert heavy["Assumption 3, sigma_2"].margin == pytest.approx(0)
    assert findings(chosen)["Assumption 3, weights"].margin == pytest.approx(1 / 3)


def test_a_single_agent_is_no_crash():
    alone = hs.problems.logistic(DATA, agents=1, ridge=0.3)
    assert findings(algorithm("output", *GOOD["output"]), hs.graphs.from_weights([[0.0]]), alone)[
        "Corollary 1"
    ].holds


# Configurations that are not of the paper's form.


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "change",
    [
        {"step": Geometric(0.5, 0.99)},
        {"coupling": Geometric(0.5, 0.99)},
        {"noise": Geometric(1.0, 1.01)},
        {"sampling": hs.Fresh(Geometric(1.0, 1.01))},
        {"step": 0.0},
        {"coupling": 0.0},
    ],
    ids=str,
)
def test_schedules_outside_the_theorems_are_said_to_be_so(form, change):
    found = findings(FORMS[form](**{"sampling": hs.Fresh(2), **change}))
    assert failing(found) == {"Theorems 2-7"}
    assert [name for name in found if "Assumption" not in name] == ["Theorems 2-7"]


def test_constants_are_power_laws_of_exponent_zero():
    found = findings(
        hs.output_perturbation(step=0.1, coupling=0.5, noise=0.5, sampling=hs.Fresh(2))
    )
    assert found["Assumption 4, sum step^2/coupling"].margin == -1
    assert found["Theorem 2, budget"].margin == -1
    assert found["Theorem 4, sample size"].margin == 0


@pytest.mark.parametrize(
    "change",
    [
        {"step": PowerLaw(0.5, -0.95, 9.0)},
        {"noise": PowerLaw(1.0, 0.05, 2.0)},
        {"coupling": PowerLaw(0.4, -0.8)},
    ],
    ids=str,
)
def test_other_shifts_and_scales_cost_the_constants_and_not_the_rate(change):
    base = {
        "step": PowerLaw(0.5, -0.95),
        "coupling": PowerLaw(0.5, -0.8),
        "noise": PowerLaw(1.0, 0.05),
    }
    plain, other = (
        findings(hs.output_perturbation(**base | c, sampling=hs.Fresh("(k+1)^1")))
        for c in ({}, change)
    )
    assert "Theorem 4, schedules" not in plain
    assert not other["Theorem 4, schedules"].holds
    for name in ("Theorem 4, rate", "Theorem 2, budget", "Corollary 1"):
        assert other[name] == plain[name]


def test_constant_noise_has_no_shift():
    assert "Theorem 4, schedules" not in findings(
        algorithm("output", 0.95, 0.8, 1.0, 0.0, shift=3.0, noise=0.5)
    )


@pytest.mark.parametrize("baseline", [hs.adp2sgd, hs.sdm_dsgd])
def test_baselines_that_inherit_the_update_do_not_inherit_the_theorems(baseline):
    assert baseline().theory(RING, HELD) == []
