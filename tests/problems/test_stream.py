"""Endless streams: records with the promised law and length, the same ones however
a run is cut into pieces.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hearsay as hs
from hearsay.certification import spent_after
from hearsay.problems.data.stream import Stream
from hearsay.problems.losses.linear import HalfSquared
from hearsay.problems.sampling.samplers import Arrivals, Fresh, Resample, Subset, Window
from hearsay.simulation import engine, keys

FACTOR = np.array([[1.5, 0.0, 0.0], [0.4, 0.8, 0.0], [-0.3, 0.2, 1.1]])
TARGET = np.array([0.5, -1.0, 2.0])
COVARIANCE = FACTOR @ FACTOR.T
GRAPH = hs.graphs.ring(6)


def stream(spread: float = 0.7, bound: float = math.inf, target=TARGET) -> Stream:
    return Stream(jnp.asarray(FACTOR), jnp.asarray(target), jnp.asarray(spread), jnp.asarray(bound))


def draw(source: Stream, seed: int = 0, count: int = 1000) -> tuple[np.ndarray, np.ndarray]:
    features, labels = source.draw(jax.random.key(seed), count)
    return np.asarray(features), np.asarray(labels)


def test_regressors_have_the_promised_mean_and_covariance():
    """200,000 records: every mean, covariance and fourth moment within 6 standard deviations,
    false-alarm rate 12 x 2e-9.
    """
    count = 200_000
    features, _ = draw(stream(), count=count)
    variance = np.diag(COVARIANCE)
    assert np.all(np.abs(features.mean(axis=0)) < 6 * np.sqrt(variance / count))
    spread = np.sqrt((np.outer(variance, variance) + COVARIANCE**2) / count)
    assert np.all(np.abs(features.T @ features / count - COVARIANCE) < 6 * spread)
    fourth = np.mean((features / np.sqrt(variance)) ** 4, axis=0)
    assert np.all(np.abs(fourth - 3) < 6 * math.sqrt(96 / count)), (
        "normal, and not merely of that covariance"
    )


def test_measurement_noise_is_normal_and_has_nothing_to_do_with_the_regressors():
    """200,000 records: mean, variance, fourth moment and correlations within 6 standard deviations,
    false-alarm rate 6 x 2e-9.
    """
    count = 200_000
    features, labels = draw(stream(), count=count)
    noise = (labels - features @ TARGET) / 0.7
    assert abs(noise.mean()) < 6 / math.sqrt(count)
    assert abs(noise.var() - 1) < 6 * math.sqrt(2 / count)
    assert abs(np.mean(noise**4) - 3) < 6 * math.sqrt(96 / count)
    assert np.all(np.abs(features.T @ noise / count) < 6 * np.sqrt(np.diag(COVARIANCE) / count))


def test_labels_are_the_target_seen_through_the_regressors_plus_noise():
    """From one key: the noise is that of a stream that measures nothing,
    and the spread scales it.
    """
    features, labels = draw(stream())
    same, noise = draw(stream(spread=1.0, target=np.zeros(3)))
    np.testing.assert_array_equal(features, same)
    np.testing.assert_allclose(labels, features @ TARGET + 0.7 * noise, rtol=1e-12)
    _, clean = draw(stream(spread=0.0))
    np.testing.assert_allclose(clean, features @ TARGET, rtol=1e-12)


def test_long_regressors_are_shortened_and_short_ones_left_alone():
    free, _ = draw(stream())
    features, labels = draw(stream(bound=1.2))
    length = np.linalg.norm(free, axis=1)
    assert 0.2 < np.mean(length > 1.2) < 0.9
    assert np.linalg.norm(features, axis=1).max() <= 1.2 * (1 + 1e-14)
    np.testing.assert_array_equal(features[length <= 1.2], free[length <= 1.2])
    long = length > 1.2
    np.testing.assert_allclose(
        features[long], free[long] * (1.2 / length[long])[:, None], rtol=1e-12
    )
    _, noise = draw(stream(spread=1.0, target=np.zeros(3)))
    np.testing.assert_allclose(
        labels,
        features @ TARGET + 0.7 * noise,
        rtol=1e-12,
        err_msg="what is measured is the shortened one",
    )


def test_a_key_is_a_batch():
    one, two = draw(stream(), seed=3, count=50), draw(stream(), seed=4, count=50)
    again = draw(stream(), seed=3, count=50)
    np.testing.assert_array_equal(one[0], again[0])
    np.testing.assert_array_equal(one[1], again[1])
    assert not np.intersect1d(one[0], two[0]).size
    assert len(np.unique(one[0])) == 150
    assert one[0].dtype == np.float64
    single = Stream(*(part.astype(jnp.float32) for part in stream()))
    assert single.draw(jax.random.key(0), 5)[0].dtype == jnp.float32


def block_by_block(
    source: Stream, key: jax.Array, size: int, width: int
) -> tuple[np.ndarray, np.ndarray]:
    """The first `size` records of the blocks 0, 1, ... of one step."""
    blocks = [source.draw(jax.random.fold_in(key, b), width) for b in range(-(-size // width))]
    features, labels = (np.concatenate([np.asarray(block[i]) for block in blocks]) for i in (0, 1))
    return features[:size], labels[:size]


@pytest.mark.parametrize(
    ("sampler", "size"),
    [
        (Fresh, None),
        (Fresh, 600),
        (Fresh, "(k+1)^2.2"),
        (Subset, "(k+1)^2.2"),
        (Resample, 600),
        (Resample, "(k+1)^2.2"),
    ],
)
def test_a_batch_is_the_plain_mean_of_the_first_records_of_its_blocks(sampler, size):
    """On a stream every draw is new, so the three samplers that can serve from it do the same."""
    source, loss, params, arrivals = (
        stream(),
        HalfSquared(math.inf, clip=1.5),
        jnp.array([0.3, 0.1, -0.2]),
        Arrivals(3),
    )
    sampling = sampler(size)
    windows = sampling.windows(np.array([0, 16]), np.array([math.inf]), arrivals)
    for i, step in enumerate((0, 16)):
        many = {None: 3, "(k+1)^2.2": math.ceil((step + 1) ** 2.2)}.get(size, size)
        assert windows.size[i, 0] == many
        window = Window(windows.start[i, 0], jnp.asarray(windows.size[i, 0]), windows.blocks[i])
        key = jax.random.key(step)
        batch, _ = sampling.batch((), loss, source, jnp.asarray(step), window, arrivals, key)
        a, b = block_by_block(source, key, many, 3 if size is None else 256)
        residual = a @ np.asarray(params) - b
        residual *= np.minimum(
            1, 1.5 / np.maximum(np.linalg.norm(a, axis=1) * np.abs(residual), 1e-30)
        )
        np.testing.assert_allclose(batch.gradient(params), residual @ a / many, atol=1e-12)


def test_the_estimation_problem_is_the_papers():
    """Section V: R, x* = 0.5 in six coordinates, unit noise, and the known optimum."""
    problem = hs.problems.estimation(agents=4)
    source = problem.records
    assert source.factor.shape == (4, 6, 6)
    covariance = np.einsum("aij,akj->aik", source.factor, source.factor)
    for found in covariance:
        assert np.diag(found).tolist() == pytest.approx([2.0] * 6)
        assert (
            found[0, 1] == pytest.approx(1)
            and found[0, 3] == pytest.approx(1)
            and found[1, 3] == pytest.approx(1)
        )
        assert np.abs(found[np.ix_([2, 4, 5], [0, 1, 3])]).max() < 1e-12
    assert problem.optimum.tolist() == [0.5] * 6
    assert np.asarray(source.target).tolist() == [[0.5] * 6] * 4
    assert np.asarray(source.spread).tolist() == [1.0] * 4
    assert np.all(np.isinf(problem.counts))
    bounded = hs.problems.estimation(feature_bound=2.0)
    features = bounded.records._replace(
        **{n: getattr(bounded.records, n)[0] for n in Stream._fields}
    ).draw(jax.random.key(0), 500)[0]
    assert np.linalg.norm(features, axis=1).max() <= 2 * (1 + 1e-14)
    assert np.linalg.norm(bounded.test_features, axis=1).max() <= 2 * (1 + 1e-14)
    assert bounded.loss.curvature == (0.0, 4.0)


def algorithm(size="(k+1)^2.2", noise="(k+1)^0.05"):
    step, coupling = "0.1*(k+1)^-0.6", "0.5*(k+1)^-0.5"
    return hs.output_perturbation(step=step, coupling=coupling, noise=noise, sampling=Fresh(size))


def run(steps: int, every: int = 4, seed: int = 0, **options):
    problem = hs.problems.estimation(seed=seed)
    return hs.simulate(algorithm(**options), problem, GRAPH, steps=steps, every=every, seeds=[0, 3])


@pytest.mark.slow
def test_neither_chunks_nor_the_length_of_a_run_change_its_records():
    """Measured at other steps, or stopped early: wherever two runs measure the same step they
    found the same models.
    """
    whole = run(16)
    for other in (run(16, 16), run(8)):
        common = np.intersect1d(whole.steps, other.steps)
        assert common[-1] == other.steps[-1] > 0
        here, there = np.searchsorted(whole.steps, common), np.searchsorted(other.steps, common)
        for name in ("tracking_error", "consensus_error", "mean_model_error"):
            np.testing.assert_allclose(whole.raw[name][here], other.raw[name][there], rtol=1e-9)
        if other.steps[-1] == 16:
            np.testing.assert_allclose(whole.models, other.models, rtol=1e-10)
    assert np.abs(whole.models - run(16, seed=1).models).min() > 0, (
        "another seed of the problem, other records"
    )
    assert np.abs(whole.models[0] - whole.models[1]).min() > 0, (
        "another seed of the run, other noise"
    )


@pytest.mark.slow
def test_a_run_without_noise_is_the_plain_loop_over_the_drawn_records():
    """x(k+1) = (1 - beta) x + beta sum_j a_ij x_j - alpha mean((u.x - b) u),
    each agent with the records of its own key.
    """
    steps = 16
    found = run(steps, seed=5, noise=None)
    weights = GRAPH.weights.toarray() + np.diag(1 - GRAPH.row_sums)
    own, models = keys.sampling_keys(5, 6), np.tile([3.0, 1.0, 1.0, 3.0, 3.0, 1.0], (6, 1))
    # All agents measure with the same law.
    source = Stream(*(part[0] for part in found.problem.records))
    for k in range(steps):
        size, slope = math.ceil((k + 1) ** 2.2), np.zeros_like(models)
        for i in range(6):
            a, b = block_by_block(source, keys.at(own[i], k), size, 256)
            slope[i] = (a @ models[i] - b) @ a / size
        coupling = 0.5 * (k + 1) ** -0.5
        models = (
            (1 - coupling) * models + coupling * weights @ models - 0.1 * (k + 1) ** -0.6 * slope
        )
    np.testing.assert_allclose(found.models[0], models, rtol=1e-10)
    np.testing.assert_array_equal(
        found.models[0], found.models[1], err_msg="seeds differ in noise and not in data"
    )


def test_every_growing_schedule_runs_the_same_program():
    run(8)
    before = engine.TRACES["advance"]
    run(20)
    run(8, size="2*1.3^k")
    run(8, size="floor((k+1)^1.5)+1")
    assert engine.TRACES["advance"] == before


@pytest.mark.parametrize(
    "options",
    [{}, {"feature_bound": 3.0}, {"clip": 1.0}, {"clip": 1.0, "feature_bound": 3.0}],
    ids=str,
)
def test_what_is_spent_along_a_run_ends_at_its_certificate(options):
    """With a clip and no bound on the regressors one of the two bounds is undefined:
    the other one must still hold along the run.
    """
    problem, this = hs.problems.estimation(**options), algorithm("(k+1)^1.1")
    epsilon = hs.certify(this, problem, GRAPH, 8).epsilon
    np.testing.assert_allclose(spent_after(this, problem, GRAPH, [8])[0], epsilon, rtol=1e-9)
    assert np.all(np.isfinite(epsilon)) == bool(options)


def test_a_stream_has_no_data_set_to_go_through():
    for sampler in (hs.Cyclic("(k+1)^1.1"), hs.History()):
        with pytest.raises(
            ValueError, match="sampling must be fresh, subset or resample on an endless stream, got"
        ):
            hs.simulate(
                hs.output_perturbation(sampling=sampler), hs.problems.estimation(), GRAPH, steps=2
            )
