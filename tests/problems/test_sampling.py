"""Samplers: the batches are the records they should be, and their privacy side says so truly."""

from __future__ import annotations

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hearsay.privacy import participation
from hearsay.problems.losses import Logistic, PolynomialLogistic, Squared
from hearsay.problems.sampling import SAMPLERS, Arrivals, Cyclic, Fresh, History, Records, Resample, Window

D = 2
LOSSES = {
    "ridge": Squared(1.0, 0.3, label_bound=1.0),
    "polynomial": PolynomialLogistic(1.0, 0.1, margin_bound=3.0),
    "logistic": Logistic(1.0, 0.2),
    "clipped": Squared(1.0, 0.3, label_bound=1.0, clip=0.3),
}
PARAMS = jnp.array([0.7, -0.4])


def streams(counts: list[int], seed: int = 0) -> Records:
    """One stream per count, padded with rows that would show up if anyone read them."""
    rng = np.random.default_rng(seed)
    most = max(counts)
    features = rng.normal(size=(len(counts), most, D))
    features /= np.maximum(1, np.linalg.norm(features, axis=2, keepdims=True))
    labels = rng.integers(0, 2, (len(counts), most)).astype(float)
    for i, held in enumerate(counts):
        features[i, held:], labels[i, held:] = 1e6, 1e6
    return Records(jnp.asarray(features), jnp.asarray(labels), jnp.asarray(counts, jnp.int32))


def one(records: Records, agent: int) -> Records:
    return Records(*(part[agent] for part in records))


def gradients(records: Records, params: jax.Array, *, sampling, loss, arrivals: Arrivals, steps: int) -> jax.Array:
    """The gradient at a fixed point of every step and agent, (time, agent, d), vectorised over agents as a run does it."""
    windows = sampling.windows(np.arange(steps), np.asarray(records.held, float), arrivals)
    return _gradients(records, params, windows, sampling=sampling.kernel, loss=loss, arrivals=arrivals, steps=steps)


@partial(jax.jit, static_argnames=("sampling", "loss", "arrivals", "steps"))
def _gradients(records, params: jax.Array, windows, *, sampling, loss, arrivals: Arrivals, steps: int) -> jax.Array:
    base = jax.random.split(jax.random.key(0), records[0].shape[0])

    def step(state, inputs):
        k, window = inputs

        def agent(state, records, start, size, key):
            here = Window(start, size, window.blocks)
            batch, state = sampling.batch(state, loss, records, k, here, arrivals, jax.random.fold_in(key, k))
            return batch.gradient(params), state

        found, state = jax.vmap(agent)(state, records, window.start, window.size, base)
        return state, found

    start = jax.vmap(lambda r: sampling.prepare(loss, r, arrivals))(records)
    return jax.lax.scan(step, start, (jnp.arange(steps), windows))[1]


def plain_mean(loss, records: Records, rows) -> np.ndarray:
    a, b = np.asarray(records.features)[rows], np.asarray(records.labels)[rows]
    each = loss.clipped_residual(a @ np.asarray(PARAMS), b, a)[:, None] * a
    return each.mean(axis=0) + loss.regulariser * np.asarray(PARAMS)


COUNTS = [620, 300, 256, 257, 37, 40, 5]


@pytest.mark.parametrize("head_start", [0, 50, 256, 1000])
@pytest.mark.parametrize(
    ("loss", "method"),
    [
        ("ridge", "full"),
        ("ridge", "statistics"),
        ("polynomial", "statistics"),
        ("logistic", "full"),
        ("clipped", "full"),
    ],
)
def test_history_is_the_plain_mean_at_every_step(loss, method, head_start):
    """Agents with very different counts, several blocks of 256 records, and long after the last record has arrived."""
    records, arrivals, steps = streams(COUNTS), Arrivals(37, head_start), 20
    found = gradients(
        records, PARAMS, sampling=History(method), loss=LOSSES[loss], arrivals=arrivals, steps=steps
    )  # fmt: skip
    for agent, held in enumerate(COUNTS):
        for k in range(steps):
            rows = np.arange(min(head_start + (k + 1) * 37, held))
            expected = plain_mean(LOSSES[loss], one(records, agent), rows)
            np.testing.assert_allclose(found[k, agent], expected, atol=1e-12)


def test_history_picks_statistics_only_where_they_are_exact():
    assert History().uses_statistics(LOSSES["ridge"])
    assert History().uses_statistics(LOSSES["polynomial"])
    assert not History().uses_statistics(LOSSES["logistic"])
    assert not History().uses_statistics(LOSSES["clipped"])
    assert not History("full").uses_statistics(LOSSES["ridge"])
    with pytest.raises(ValueError, match="method must be 'full' for Squared with clipping"):
        History("statistics").uses_statistics(LOSSES["clipped"])
    with pytest.raises(ValueError, match="method must be 'full' for Logistic:"):
        History("statistics").uses_statistics(LOSSES["logistic"])
    with pytest.raises(ValueError, match="method must be one of .* did you mean 'statistics'"):
        History("statistic")


def test_fresh_uses_each_record_in_the_step_it_arrives():
    records, arrivals = streams([12, 12]), Arrivals(3)
    found = gradients(records, PARAMS, sampling=Fresh(), loss=LOSSES["logistic"], arrivals=arrivals, steps=4)
    for agent in range(2):
        for k in range(4):
            expected = plain_mean(LOSSES["logistic"], one(records, agent), np.arange(3 * k, 3 * k + 3))
            np.testing.assert_allclose(found[k, agent], expected, atol=1e-12)


def test_cyclic_goes_round_in_order_and_leaves_out_the_remainder():
    counts = [10, 7, 3]
    records, arrivals = streams(counts), Arrivals(3)
    found = gradients(records, PARAMS, sampling=Cyclic(), loss=LOSSES["logistic"], arrivals=arrivals, steps=9)
    for agent, held in enumerate(counts):
        for k in range(9):
            first = 3 * (k % (held // 3))
            expected = plain_mean(LOSSES["logistic"], one(records, agent), np.arange(first, first + 3))
            np.testing.assert_allclose(found[k, agent], expected, atol=1e-12)


def test_resample_draws_uniformly_from_the_real_records():
    """Each of 5 records in 4,000 draws: within 6 standard deviations, false-alarm rate 5 x 2e-9; padding never."""
    records = one(streams([5, 9]), 0)
    keys = jax.random.split(jax.random.key(1), 1000)
    window = Window(jnp.asarray(0), jnp.asarray(4), jnp.asarray(1))
    draw = partial(Resample().batch, (), LOSSES["ridge"], records, jnp.asarray(0), window, Arrivals(4))
    batches = jax.vmap(lambda key: draw(key)[0])(keys)
    drawn = np.asarray(batches.features).reshape(-1, D)
    match = np.all(drawn[:, None] == np.asarray(records.features)[None, :5], axis=-1)
    assert match.sum(axis=1).tolist() == [1] * 4000
    assert np.abs(match.sum(axis=0) - 800).max() < 6 * math.sqrt(4000 * 0.2 * 0.8)
    np.testing.assert_allclose(batches.weights.sum(axis=1), 1.0)


def weights_of_records(sampling, counts: list[int], arrivals: Arrivals, steps: int) -> list[np.ndarray]:
    """Per agent (record, step): the weight of a record in the mean gradient, measured by replacing it."""
    loss, records = LOSSES["ridge"], streams(counts)
    run = partial(gradients, params=PARAMS, sampling=sampling, loss=loss, arrivals=arrivals, steps=steps)
    before, found = np.asarray(run(records)), []
    moved = np.zeros((len(counts), max(counts), steps))
    for row in range(max(counts)):
        features = records.features.at[:, row].set(jnp.array([0.1, 0.9]))
        labels = records.labels.at[:, row].set(-1.0)
        after = np.asarray(run(Records(features, labels, records.held)))
        for agent in range(len(counts)):
            full = plain_mean(loss, Records(features[agent], labels[agent], None), [row])
            full = full - plain_mean(loss, one(records, agent), [row])
            moved[agent, row] = (after[:, agent] - before[:, agent]) @ full / (full @ full)
    for agent, held in enumerate(counts):
        last = int(min(steps, sampling.lasts(held, arrivals)))
        np.testing.assert_allclose(moved[agent, held:, :last], 0, atol=1e-9, err_msg="padding was used")
        found.append(moved[agent, :held, :last])
    return found


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize(("per_step", "head_start"), [(1, 0), (3, 0), (3, 4)])
def test_exposure_and_pattern_are_what_replacing_a_record_shows(name, per_step, head_start):
    """One record at a time is replaced. Its weight never exceeds the exposure, and its uses fit one allowed pattern."""
    counts, steps, change = [14, 11], 15, 2.5
    sampling, arrivals = SAMPLERS[name](), Arrivals(per_step, head_start)
    for agent, weights in enumerate(weights_of_records(sampling, counts, arrivals, steps)):
        held, last = counts[agent], weights.shape[1]
        weights = np.where(np.abs(weights) < 1e-9, 0, weights)
        exposure = sampling.exposure(change, held, arrivals)(np.arange(last))
        assert np.all(change * weights <= exposure * (1 + 1e-9))
        if name != "resample":  # its exposure allows for all draws hitting the same record
            np.testing.assert_allclose(change * weights.max(axis=0), exposure, rtol=1e-9)
        elif per_step == 1:
            np.testing.assert_allclose(weights.max(axis=0), 1.0, rtol=1e-9)
        allowed = sampling.pattern(held, arrivals).uses(last)
        for used in weights > 0:
            assert np.any(np.all(used <= allowed, axis=1)), "a record was used where its pattern does not allow it"
        if name == "cyclic":
            for used in weights[: held - held % per_step] > 0:
                assert np.any(np.all(used == allowed, axis=1))
        if name == "history":
            assert np.all(weights[:1] > 0), "the first record is in every gradient"


def test_an_endless_history_has_an_exposure_that_a_power_law_bounds():
    endless = History().exposure(2.0, math.inf, Arrivals(3, 4))
    k = np.arange(1000)
    np.testing.assert_allclose(endless(k), 2.0 / (4 + 3 * (k + 1)))
    assert np.all(endless.upper()(k) >= endless(k))


def test_patterns():
    arrivals = Arrivals(3)
    assert Fresh().pattern(10, arrivals) == participation.Once()
    assert Cyclic().pattern(10, arrivals) == participation.Cyclic(3)
    assert History().pattern(10, arrivals) == participation.History()
    assert Resample().pattern(10, arrivals) == participation.Every()
    with pytest.raises(ValueError, match="per_step must be at most the agent's 2 records to go round them, got 3"):
        Cyclic().pattern(2, arrivals)


def test_only_a_fresh_stream_ends():
    assert Fresh().lasts(10, Arrivals(3)) == 3
    assert Fresh().lasts(9, Arrivals(3)) == 3
    assert all(sampler().lasts(10, Arrivals(3)) == math.inf for sampler in (History, Cyclic, Resample))
