"""Noise that is calibrated to epsilon at a number of colluders costs that epsilon there, for every
kind of algorithm and graph of secrets; with all others colluding it costs what it would unshared.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import hearsay as hs
from hearsay.certification import deployed, epsilon_after, messages_within

DELTA, STEPS, EPSILON = 1e-5, 12, 1.5
ROOT10 = 10**0.5


def torus(rows: int) -> tuple[tuple[int, int], ...]:
    pairs = set()
    for i in range(rows):
        for j in range(rows):
            here = i * rows + j
            for there in (i * rows + (j + 1) % rows, (i + 1) % rows * rows + j):
                pairs.add((min(here, there), max(here, there)))
    return tuple(sorted(pairs))


def circulant(agents: int, jumps: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    found = {tuple(sorted((i, (i + jump) % agents))) for i in range(agents) for jump in jumps}
    return tuple(sorted(found))


# agents, the graph of secrets, colluders
NETWORKS = {
    "complete": (5, "complete", 2),
    "ring": (5, hs.graphs.ring(5), 1),
    "torus": (16, torus(4), 2),
    "circulant": (16, circulant(16, (1, 2, 4, 8)), 3),
    "random": (10, hs.graphs.random(10, degree=4, seed=3), 2),
    "pairs": (4, ((0, 1), (1, 2), (2, 3), (0, 3), (0, 2)), 1),
}


def task(agents: int, adjacency: str = "replace") -> hs.problems.Task:
    return hs.problems.ridge(
        agents=agents, records=40, dimension=3, ridge=0.3, radius=3.0, clip=0.5, adjacency=adjacency
    ).task


def gradient(secrets: hs.Secrets | None, **more) -> hs.Algorithm:
    return hs.gradient_perturbation(mechanism="gaussian", noise=1.0, secrets=secrets, **more)


# Papers P1, P2 (two fields), P3 (both forms, secret batches, correlated noise), P4.
ALGORITHMS = {
    "P1": lambda s: hs.ldp_online(mechanism="gaussian", noise="0.5*(k+1)^0.1", secrets=s),
    "P2": lambda s: hs.gradient_tracking(mechanism="gaussian", secrets=s),
    "P3 output": lambda s: hs.output_perturbation(mechanism="gaussian", secrets=s),
    "P3 gradient": gradient,
    "P3 Poisson": lambda s: gradient(s, sampling=hs.Poisson(0.2)),
    "P3 correlated": lambda s: gradient(
        s, sampling=hs.Cyclic(10), correlation="banded", width=3, horizon=STEPS
    ),
    "P4": lambda s: hs.correlated_federated(sampling=hs.Cyclic(10), horizon=STEPS, secrets=s),
}


def adjacency_of(name: str) -> str:
    return "zero-out" if name == "P3 Poisson" else "replace"


def epsilons(algorithm: hs.Algorithm, problem: hs.problems.Task, graph: hs.graphs.Graph, **more):
    return np.array(hs.certify(algorithm, problem, graph, STEPS, delta=DELTA, **more).epsilon)


@pytest.mark.parametrize("network", NETWORKS)
def test_calibrated_noise_costs_what_was_asked_for(network):
    agents, who, colluders = NETWORKS[network]
    problem, graph = task(agents), hs.graphs.ring(agents)
    plain = gradient(hs.Secrets(colluders, ROOT10, who))
    found = hs.calibrate(plain, problem, graph, STEPS, EPSILON, delta=DELTA)
    certified = epsilons(found, problem, graph)
    assert certified.max() == pytest.approx(EPSILON, rel=1e-6) and certified.max() <= EPSILON
    # Everybody in the same position: nobody has more noise than needed.
    if network not in ("pairs", "random"):
        np.testing.assert_allclose(certified, EPSILON, rtol=1e-6)
    # Planned for one number, calibrated for another.
    other = hs.calibrate(plain, problem, graph, STEPS, EPSILON, delta=DELTA, colluders=0)
    assert epsilons(other, problem, graph).max() == pytest.approx(EPSILON, rel=1e-6)
    assert (
        epsilons(plain, problem, graph, colluders=0).max() < epsilons(plain, problem, graph).min()
    )


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_meets_its_target_and_its_own_noise_is_what_it_was(name):
    problem, graph = task(5, adjacency_of(name)), hs.graphs.ring(5, weight=0.3)
    found = hs.calibrate(
        ALGORITHMS[name](hs.Secrets(2, ROOT10)), problem, graph, STEPS, EPSILON, delta=DELTA
    )
    certificate = hs.certify(found, problem, graph, STEPS, delta=DELTA)
    np.testing.assert_allclose(certificate.epsilon, EPSILON, rtol=1e-6)
    assert max(certificate.epsilon) <= EPSILON
    assert certificate.epsilon == certificate.at(2)
    without = hs.certify(replace(found, secrets=None), problem, graph, STEPS, delta=DELTA)
    assert certificate.all_collude == without.epsilon
    assert certificate.at(4) == without.epsilon
    curve = np.array([point.epsilon for point in certificate.budgets[0].curve])
    assert np.all(np.diff(curve) > 0)
    settled = any("settled before the run" in a.text for a in certificate.budgets[0].assumptions)
    assert settled == certificate.amplified(0)
    if name == "P3 Poisson":
        # The search for noise is long there.
        assert certificate.amplified(0)
        return
    # Less noise than without secrets, which is the point of them.
    alone = hs.calibrate(replace(found, secrets=None), problem, graph, STEPS, EPSILON, delta=DELTA)
    field = next(name for name in found.options if name.endswith("noise"))
    assert found.noise_for(0, field)(0) < 0.7 * alone.noise_for(0, field)(0)


def test_golden_prices_show_in_rho():
    """rho is the own noise's times [S_H^-1]_ii: complete graph and ring of 5, c^2 = 10."""
    problem, graph = task(5), hs.graphs.ring(5)
    for who, golden in (
        ("complete", (0.215686, 0.268293, 0.354839, 0.523810, 1)),
        (hs.graphs.ring(5), (0.237750, 0.326220, 1, 1, 1)),
    ):
        algorithm = gradient(hs.Secrets(0, ROOT10, who))
        own = hs.certify(replace(algorithm, secrets=None), problem, graph, STEPS, delta=DELTA)
        for colluders, price in enumerate(golden):
            found = hs.certify(algorithm, problem, graph, STEPS, delta=DELTA, colluders=colluders)
            ratio = found.budgets[0].rho / own.budgets[0].rho
            assert ratio == pytest.approx(price, abs=1e-6)


def test_agents_with_noise_and_targets_of_their_own():
    problem, graph = task(5), hs.graphs.ring(5)
    noise = tuple(hs.PowerLaw(scale, 0.1) for scale in (1.0, 1.2, 0.8, 2.0, 1.5))
    ratios = tuple(np.linspace(1.0, 4.0, 10))
    targets = np.array([1.0, 2.0, 1.5, 1.2, 3.0])
    for ratio in (ROOT10, ratios):
        algorithm = replace(gradient(hs.Secrets(1, ratio)), noise=noise)
        found = hs.calibrate(algorithm, problem, graph, STEPS, targets, delta=DELTA)
        certified = epsilons(found, problem, graph)
        assert np.all(certified <= targets)
        assert (certified / targets).max() == pytest.approx(1.0, rel=1e-6)
        assert found.shared(5).ratios == ((ratio,) if ratio == ROOT10 else ratios)
        own = epsilons(replace(found, secrets=None), problem, graph)
        certificate = hs.certify(found, problem, graph, STEPS, delta=DELTA)
        assert certificate.all_collude == own.tolist()


def test_one_target_is_met_by_agents_whose_noise_differs():
    problem, graph = task(5), hs.graphs.ring(5)
    algorithm = replace(
        gradient(hs.Secrets(1, ROOT10, hs.graphs.ring(5))),
        noise=tuple(hs.Constant(scale) for scale in (1.0, 3.0, 1.0, 0.5, 2.0)),
    )
    found = hs.calibrate(algorithm, problem, graph, STEPS, EPSILON, delta=DELTA)
    certified = epsilons(found, problem, graph)
    assert certified.max() <= EPSILON and certified.max() == pytest.approx(EPSILON, rel=1e-6)


def test_budgets_stop_a_run_at_the_planned_number_of_colluders():
    problem = hs.problems.ridge(agents=5, records=40, dimension=3, radius=3.0, clip=0.5)
    graph = hs.graphs.ring(5)
    # All records in every message, so that each costs something.
    algorithm = gradient(hs.Secrets(2, ROOT10), sampling=hs.Cyclic(40))
    algorithm = hs.calibrate(algorithm, problem, graph, STEPS, EPSILON, delta=DELTA)
    limit = float(epsilon_after(algorithm, problem, graph, [5], DELTA).max()) * (1 + 1e-6)
    messages, _ = messages_within(algorithm, problem, graph, STEPS, limit, DELTA)
    unshared = messages_within(
        replace(algorithm, secrets=None), problem, graph, STEPS, limit, DELTA
    )
    assert unshared[0] < messages == 5
    run = hs.simulate(algorithm, problem, graph, steps=STEPS, seeds=1, delta=DELTA, budget=limit)
    assert int(run.certificate.horizon) == 5 and "may spend" in run.stopped
    assert max(run.certificate.epsilon) <= limit < max(run.certificate.all_collude)
    assert run.spent[-1].max() == pytest.approx(max(run.certificate.epsilon), rel=1e-6)
    assert run.certificate.secrets == algorithm.shared(5)


def test_a_number_beyond_the_plan_can_be_stated_and_not_planned():
    problem, graph = task(5), hs.graphs.ring(5)
    algorithm = gradient(hs.Secrets(1))
    found = hs.certify(algorithm, problem, graph, STEPS, delta=DELTA, colluders=4)
    assert found.epsilon == found.all_collude and found.colluders == 4
    assert found.secrets == algorithm.shared(5)
    with pytest.raises(ValueError, match="colluders must be at most 4, all others, got 5"):
        hs.certify(algorithm, problem, graph, STEPS, delta=DELTA, colluders=5)
    with pytest.raises(ValueError, match="colluders must be below 4"):
        hs.calibrate(algorithm, problem, graph, STEPS, 1.0, delta=DELTA, colluders=4)
    for call in (hs.certify, lambda *a, **k: hs.calibrate(*a, 1.0, **k)):
        with pytest.raises(ValueError, match="colluders must be left out without secrets"):
            call(gradient(None), problem, graph, STEPS, delta=DELTA, colluders=1)


def test_another_number_leaves_a_random_graph_and_its_ratio_as_they_are():
    secrets = hs.Secrets(1, graph="random", degree=4)
    assert secrets.facing(3, 8).shared(8) == secrets.shared(8)
    many = hs.Secrets(2, 3.0)
    assert many.facing(5, 302).shared(302) == many.shared(302) != hs.Secrets(5, 3.0).shared(302)
    assert hs.Secrets(1).facing(0, 5).shared(5) == hs.Secrets(1).shared(5)


def test_a_deployed_certificate_has_the_curve_too():
    problem, graph = task(4), hs.graphs.ring(4)
    algorithm = gradient(hs.Secrets(1, ROOT10))
    ideal = hs.certify(algorithm, problem, graph, STEPS, delta=DELTA)
    rounded = deployed(algorithm, problem, graph, STEPS, DELTA)
    for one, two in zip(ideal.budgets, rounded.budgets, strict=True):
        for point, with_rounding in zip(one.curve, two.curve, strict=True):
            assert point.epsilon <= with_rounding.epsilon <= point.epsilon * (1 + 1e-3)
