"""What a budget means: no run ends with a certificate above it,
whatever the algorithm and the mechanism.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

import hearsay as hs
from hearsay.certification import allowance, calibrate, certify, messages_within, unit
from hearsay.mechanisms import MECHANISMS
from hearsay.simulation.promise import allowed_steps

STEPS, DELTA = 20, 1e-3
PROBLEM = hs.problems.ridge(agents=3, records=40, dimension=2, ridge=0.3, radius=3.0, clip=1.0)
GRAPH = hs.graphs.ring(3)
NOISE = [40.0, 60.0, 50.0]
ONE_MECHANISM = ("correlated-federated", "federated-independent", "federated-noiseless")
NOISY = [n for n in hs.REGISTRY if n != "federated-noiseless"]
PAIRS = [(n, m) for n in NOISY for m in MECHANISMS if m == "gaussian" or n not in ONE_MECHANISM]


def spent(algorithm, messages: int, delta: float) -> np.ndarray:
    """The numbers of a certificate that a budget is about."""
    found = certify(algorithm, PROBLEM, GRAPH, messages, delta=delta)
    return np.array([b.compared for b in found.budgets])


@pytest.mark.parametrize(("name", "mechanism"), PAIRS)
def test_no_certificate_is_above_its_budget(name, mechanism):
    algorithm = hs.REGISTRY[name](mechanism=mechanism, noise=NOISE)
    after = {m: spent(algorithm, m, DELTA) for m in (STEPS, STEPS // 2)}
    for whole in (
        after[STEPS],
        after[STEPS // 2],
        np.nextafter(after[STEPS // 2], 0),
        0.4 * after[STEPS],
    ):
        budget, delta = whole.tolist(), DELTA
        if unit(algorithm) == "delta":
            budget, delta = [2.0, 1e-3, 50.0], float(whole.max())
        limits = np.array(allowance(algorithm, budget, delta))
        try:
            steps, why = allowed_steps(algorithm, PROBLEM, GRAPH, STEPS, budget, delta)
        except ValueError as nothing:
            assert "nothing can be sent: agent" in str(nothing)
            assert np.any(spent(algorithm, 1, delta) > limits * (1 - 1e-5))
            continue
        found = certify(algorithm, PROBLEM, GRAPH, steps, delta=delta)
        if mechanism != "laplace":
            assert all(e <= b for e, b in zip(found.epsilon, budget, strict=True))
        assert np.all(spent(algorithm, steps, delta) <= limits), "nor is what it is counted in"
        if steps == STEPS:
            assert why is None
        elif "ran dry" not in why:
            assert np.any(spent(algorithm, steps + 1, delta) > limits * (1 - 1e-5)), (
                "no message is held back without need"
            )


def test_ternary_messages_stop_at_the_delta_that_was_given():
    """Their epsilon is 0 until their delta is 1, where it is infinite:
    the delta is what a budget stops at.
    """
    algorithm = hs.ternary_dsgd(noise=5.0, sampling=hs.History())
    whole = spent(algorithm, STEPS, 0.5)
    assert whole.max() == 1.0, "left alone, the messages tell everything"
    told: list[float] = []
    run = hs.simulate(
        algorithm,
        PROBLEM,
        GRAPH,
        steps=STEPS,
        budget=2.0,
        delta=0.3,
        reference=False,
        progress=lambda *a: told.append(a[2]),
    )
    sent = int(run.steps[-1])
    assert 1 < sent < STEPS
    assert run.certificate.epsilon == [0.0] * 3 and run.certificate.slack <= 0.3
    assert spent(algorithm, sent + 1, 0.3).max() > 0.3
    assert (
        run.stopped
        == f"agent 0 may spend delta = 0.3: message {sent} would exceed it and was not sent"
    )
    np.testing.assert_allclose(
        run.spent[-1], [b.delta for b in run.certificate.budgets], rtol=1e-12
    )
    assert told[-1] == run.spent[-1].max(), "progress tells the same number"


def test_a_budget_of_ternary_messages_needs_a_delta():
    algorithm = hs.ternary_dsgd(noise=5.0)
    for call in (
        lambda: hs.simulate(algorithm, PROBLEM, GRAPH, steps=3, budget=2.0),
        lambda: messages_within(algorithm, PROBLEM, GRAPH, 3, 2.0),
        lambda: allowance(algorithm, [2.0], None),
    ):
        with pytest.raises(
            ValueError, match="delta must be given for a budget of ternary messages"
        ):
            call()
    with pytest.raises(ValueError, match="delta must be given to calibrate a ternary quantizer"):
        calibrate(algorithm, PROBLEM, GRAPH, 3, 2.0)


@pytest.mark.parametrize("horizon", [STEPS, math.inf])
def test_a_calibrated_ternary_quantizer_spends_the_delta_that_was_given(horizon):
    algorithm = hs.ternary_dsgd(
        noise=hs.PowerLaw(5.0, 0.6), step=hs.PowerLaw(0.1, -0.9), sampling=hs.Fresh()
    )
    found = certify(
        calibrate(algorithm, PROBLEM, GRAPH, horizon, 2.0, delta=0.01), PROBLEM, GRAPH, horizon
    )
    assert found.epsilon == [0.0] * 3
    assert 0.0099 < found.slack <= 0.01
