"""The ternary quantizer: unbiased, three values, and a total variation distance that adds up
as the certificate says.
"""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hearsay as hs
from hearsay.mechanisms import MECHANISMS

TERNARY = MECHANISMS["ternary"]


def law(value: float, scale: float) -> np.ndarray:
    """Probabilities of -r, 0, r, the obvious way."""
    size = min(abs(value) / scale, 1.0)
    return np.array([size if value < 0 else 0.0, 1 - size, size if value > 0 else 0.0])


def test_three_values_with_the_right_probabilities():
    """200,000 draws per value: every frequency within 6 standard deviations,
    false-alarm rate 15 x 2e-9.
    """
    values = jnp.array([-3.0, -0.4, 0.0, 0.7, 1.9])
    draws = TERNARY.draw(jax.random.key(0), (200_000, 5), jnp.dtype(jnp.float64))
    sent = np.asarray(TERNARY.add(values[None], draws, jnp.asarray(2.0)))
    assert set(np.unique(sent)) == {-2.0, 0.0, 2.0}
    for column, value in enumerate(values.tolist()):
        expected = law(value, 2.0)
        found = np.array([np.mean(sent[:, column] == v) for v in (-2.0, 0.0, 2.0)])
        assert np.all(
            np.abs(found - expected) <= 6 * np.sqrt(expected * (1 - expected) / 200_000) + 1e-12
        )


def test_without_a_threshold_nothing_is_quantized():
    value = jnp.array([0.3, -7.0])
    np.testing.assert_array_equal(
        TERNARY.add(value, jnp.array([0.5, 0.5]), jnp.asarray(0.0)), value
    )


def test_total_variation_is_at_most_the_distance_over_the_threshold():
    grid = np.linspace(-2.5, 2.5, 41)
    for a, b in itertools.product(grid, grid):
        distance = np.abs(law(a, 2.0) - law(b, 2.0)).sum() / 2
        assert distance <= abs(a - b) / 2.0 + 1e-12
        if 0 <= a <= 2 and 0 <= b <= 2:
            assert distance == pytest.approx(abs(a - b) / 2.0)


def test_a_run_of_ternary_messages_costs_delta():
    """DSGD's recursion with the threshold in the place of the noise scale:
    delta is what epsilon is for Laplace noise of that scale.
    """
    problem, graph = (
        hs.problems.ridge(agents=3, records=20, dimension=2, radius=1.0),
        hs.graphs.ring(3),
    )
    step = hs.PowerLaw(0.02, -0.5)
    ternary = hs.ternary_dsgd(step=step, noise=hs.Constant(40.0))
    laplace = hs.dsgd(step=step, noise=hs.Constant(40.0))
    certificate = hs.certify(ternary, problem, graph, 15)
    assert [b.delta for b in certificate.budgets] == hs.certify(laplace, problem, graph, 15).epsilon
    assert certificate.epsilon == [0.0] * 3
    assert certificate.slack == max(b.delta for b in certificate.budgets)
    assert "delta" in str(certificate)
    assert hs.Certificate.from_json(certificate.to_json()) == certificate
    leaky = hs.certify(hs.ternary_dsgd(step=step, noise=hs.Constant(0.001)), problem, graph, 15)
    assert not leaky.finite
    assert "delta reaches 1" in leaky.budgets[0].reason
    with pytest.raises(ValueError, match="delta must be given to calibrate a ternary quantizer"):
        hs.calibrate(ternary, problem, graph, 15, 1.0)


def test_messages_of_the_quantized_baseline_lie_on_the_grid_and_average_out():
    """Noise-free quantization: 4,000 seeds, mean within 6 standard errors (false-alarm rate 12 x
    2e-9); and no finite budget.
    """
    problem, graph = (
        hs.problems.ridge(agents=3, records=20, dimension=4, radius=5.0),
        hs.graphs.ring(3),
    )
    algorithm = hs.quantized_dsgd(noise=None, resolution=0.5, step=hs.Constant(0.1))
    assert not hs.certify(algorithm, problem, graph, 3).finite
    noisy = hs.quantized_dsgd(noise=hs.Constant(1.0), resolution=0.5, step=hs.Constant(0.1))
    assert (
        hs.certify(noisy, problem, graph, 3).epsilon
        == hs.certify(
            hs.dsgd(noise=hs.Constant(1.0), step=hs.Constant(0.1)), problem, graph, 3
        ).epsilon
    )
    state = algorithm.init(jnp.array([0.1, -0.74, 2.0, 0.26]))
    rates = algorithm.rates(np.array([0]), 1)
    rate = type(rates)(*(r[0, 0] for r in rates))
    keys = jax.random.split(jax.random.key(3), 4000)
    sent = np.asarray(
        jax.vmap(
            lambda k: algorithm.send(algorithm.draw(k, state.params), state, None, rate)[0].params
        )(keys)
    )
    np.testing.assert_allclose(sent / 0.5, np.round(sent / 0.5), atol=1e-12)
    assert np.abs(sent - np.asarray(state.params)).max() < 0.5
    assert np.all(
        np.abs(sent.mean(axis=0) - np.asarray(state.params))
        <= 6 * sent.std(axis=0) / np.sqrt(4000) + 1e-12
    )
    with pytest.raises(ValueError, match="resolution must be positive, got 0"):
        hs.quantized_dsgd(resolution=0.0)


def test_weights_of_the_weighted_baseline():
    """Inverse variances with a mean of 1;
    a weight scales an agent's step and leaves its budget alone.
    """
    problem, graph = hs.problems.ridge(agents=4, records=20, dimension=2), hs.graphs.ring(4)
    noise = [hs.Constant(s) for s in (1.0, 1.0, 2.0, 4.0)]
    algorithm = hs.weighted_erm(noise=noise)
    inverse = np.array([1, 1, 0.25, 0.0625])
    np.testing.assert_allclose(algorithm.shares(4), inverse / inverse.mean())
    np.testing.assert_allclose(
        algorithm.rates(np.array([0, 1]), 4).step[1], 0.5 * 2**-0.8 * inverse / inverse.mean()
    )
    even = hs.weighted_erm(noise=noise, weights=(1, 1, 1, 1))
    budgets = [hs.certify(a, problem, graph, 20, delta=1e-5).epsilon for a in (algorithm, even)]
    assert budgets[0] == budgets[1]
    run = hs.simulate(
        hs.weighted_erm(noise=None, weights=(1, 1, 1, 3)), problem, graph, steps=3, delta=1e-5
    )
    assert np.isfinite(run.models).all()
    with pytest.raises(ValueError, match="weights must be one number for each of the 4 agents"):
        hs.certify(hs.weighted_erm(weights=(1, 2)), problem, graph, 20, delta=1e-5)
    with pytest.raises(ValueError, match="weights must be positive"):
        hs.weighted_erm(weights=(1, 0))
