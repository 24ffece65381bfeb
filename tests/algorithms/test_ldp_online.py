"""Paper P1: the error falls as promised, the other methods do worse at the same noise,
and the options do what they say.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

import hearsay as hs
from hearsay.algorithms.theory.ldp_online import rate


def slopes(run: hs.Run, start: int) -> np.ndarray:
    """Log-log slope of the tracking error over time, one per seed."""
    late = run.steps >= start
    x = np.log(run.steps[late])
    return np.array(
        [
            np.polyfit(x, np.log(run.metrics["tracking_error"][late, s]), 1)[0]
            for s in range(len(run.seeds))
        ]
    )


@pytest.mark.parametrize(
    ("v", "u", "grow"),
    [(0.77, 0.65, (0.11, 0.12, 0.13, 0.14)), (0.8, 0.72, (0.05,) * 4), (0.7, 0.68, (0.02,) * 4)],
    ids=["paper", "slow noise", "slower noise"],
)
def test_tracking_error_falls_at_least_at_the_promised_rate(v, u, grow):
    """20 seeds; the upper end of a 99.9 % interval of the mean slope lies below -beta:
    a false alarm needs a slope that is not there.
    """
    problem = hs.problems.ridge(agents=4, records=4100, dimension=5, ridge=0.2)
    noise = [hs.PowerLaw(1.0, g) for g in grow]
    algorithm = hs.ldp_online(step=hs.PowerLaw(1.0, -v), coupling=hs.PowerLaw(1.0, -u), noise=noise)
    run = hs.simulate(
        algorithm,
        problem,
        hs.graphs.ring(4),
        steps=4000,
        seeds=20,
        every=50,
        regret=False,
        spread=1.0,
    )
    found = slopes(run, 200)
    upper = found.mean() + stats.t.ppf(0.999, len(found) - 1) * stats.sem(found)
    assert rate(u, v, max(grow)) > 0
    assert upper <= -rate(u, v, max(grow))


@pytest.mark.slow
def test_beats_the_other_methods_at_equal_noise():
    """Fig. 1's setting in small: growing noise on every message, data split by label;
    10 seeds, every seed of P1 below every other one.
    """
    problem = hs.problems.logistic("breast-cancer", agents=5, partition="by_label", ridge=0.3)
    graph = hs.graphs.ring(5, weight=0.3)
    noise = [hs.PowerLaw(0.3, 0.1 + 0.01 * i) for i in range(1, 6)]
    ours = hs.simulate(
        hs.ldp_online(noise=noise), problem, graph, steps=800, seeds=10, regret=False
    )
    worst = ours.metrics["tracking_error"][-1].max()
    for cls, step in ((hs.dsgd, hs.PowerLaw), (hs.dola, hs.PowerLaw), (hs.pdop, hs.Geometric)):
        shape = 0.998 if step is hs.Geometric else -0.5
        for scale in (0.1, 0.3, 1.0, 3.0):
            other = hs.simulate(
                cls(step=step(scale, shape), noise=noise),
                problem,
                graph,
                steps=800,
                seeds=10,
                regret=False,
            )
            assert worst < np.nanmin(
                np.nan_to_num(other.metrics["tracking_error"][-1], nan=np.inf, posinf=np.inf)
            )


@pytest.mark.slow
def test_feedback_cancels_noise_in_the_mean_model():
    problem = hs.problems.ridge(agents=5, records=900, dimension=4, ridge=0.2)
    graph = hs.graphs.ring(5)
    plain = hs.ldp_online(noise=hs.PowerLaw(1.0, 0.1))
    free = hs.simulate(replace(plain, noise=None), problem, graph, steps=800, every=800).final(
        "mean_model_error"
    )[0]
    noisy = hs.simulate(plain, problem, graph, steps=800, seeds=10, every=800).final(
        "mean_model_error"
    )[0]
    cancelled = hs.simulate(
        replace(plain, feedback=True), problem, graph, steps=800, seeds=10, every=800
    )
    assert cancelled.final("mean_model_error")[0] < 0.3 * noisy
    assert cancelled.final("mean_model_error")[0] > 0.9 * free


def test_full_history_and_statistics_are_the_same_algorithm():
    problem = hs.problems.ridge(agents=3, records=50, dimension=4)
    runs = [
        hs.simulate(
            hs.ldp_online(sampling=hs.History(m)), problem, hs.graphs.ring(3), steps=70, seeds=2
        )
        for m in ("full", "statistics")
    ]
    np.testing.assert_allclose(runs[0].models, runs[1].models, atol=1e-11)


@pytest.mark.slow
def test_polynomial_loss_comes_close_to_the_logistic_one():
    """Same data and noise: the surrogate's models predict nearly as well,
    at a fraction of the cost per step.
    """
    options = {"agents": 4, "per_step": 5, "radius": 4.0, "ridge": 0.05}
    graph, algorithm = hs.graphs.complete(4), hs.ldp_online(step=hs.PowerLaw(4.0, -0.6), noise=None)
    scores = [
        hs.simulate(
            algorithm,
            hs.problems.logistic("breast-cancer", approximate=a, **options),
            graph,
            steps=300,
        ).final("accuracy")[0]
        for a in (False, True)
    ]
    assert abs(scores[0] - scores[1]) < 0.03
    assert min(scores) > 0.78


def test_paper_formula_by_the_definition():
    """tau_t = sum_p prod_q growth_q lambda_{p-1} + lambda_{t-1}, summed as printed."""
    problem, graph = (
        hs.problems.logistic("digits", agents=3, ridge=0.1),
        hs.graphs.ring(3, weight=0.2),
    )
    algorithm, horizon = hs.ldp_online(noise=hs.PowerLaw(2.0, 0.1)), 12
    k = np.arange(horizon)
    step, growth = (
        algorithm.step(k),
        1 - 0.4 * algorithm.coupling(k) + algorithm.step(k) * problem.loss.curvature[1],
    )
    total = 0.0
    for t in range(1, horizon):
        tau = sum(np.prod(growth[p:t]) * step[p - 1] for p in range(1, t)) + step[t - 1]
        total += np.sqrt(problem.dimension) * problem.change * tau / algorithm.noise(t)
    assert algorithm.paper_epsilon(graph, 0, problem, horizon) == pytest.approx(total, rel=1e-12)
