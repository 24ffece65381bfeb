"""Samplers: the batches are the records they should be, and their privacy side says so truly."""

from __future__ import annotations

import math
from functools import lru_cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hearsay.privacy import participation
from hearsay.problems.losses.linear import HalfSquared, Logistic, PolynomialLogistic, Squared
from hearsay.problems.sampling import sized as module
from hearsay.problems.sampling.batches import Blocks, Statistics
from hearsay.problems.sampling.samplers import (
    SAMPLERS,
    Arrivals,
    Batch,
    Cyclic,
    Fresh,
    History,
    Poisson,
    Records,
    Resample,
    Subset,
    Window,
)

D = 2
LOSSES = {
    "ridge": Squared(1.0, 0.3, label_bound=1.0),
    "polynomial": PolynomialLogistic(1.0, 0.1, margin_bound=3.0),
    "logistic": Logistic(1.0, 0.2),
    "clipped": Squared(1.0, 0.3, label_bound=1.0, clip=0.3),
}
PARAMS = jnp.array([0.7, -0.4])


def streams(counts: list[int], seed: int = 0, d: int = D) -> Records:
    """One stream per count, padded with rows that would show up if anyone read them."""
    rng = np.random.default_rng(seed)
    most = max(counts)
    features = rng.normal(size=(len(counts), most, d))
    features /= np.maximum(1, np.linalg.norm(features, axis=2, keepdims=True))
    labels = rng.integers(0, 2, (len(counts), most)).astype(float)
    for i, held in enumerate(counts):
        features[i, held:], labels[i, held:] = 1e6, 1e6
    return Records(jnp.asarray(features), jnp.asarray(labels), jnp.asarray(counts, jnp.int32))


def one(records: Records, agent: int) -> Records:
    return Records(*(part[agent] for part in records))


def gradients(
    records: Records, params: jax.Array, *, sampling, loss, arrivals: Arrivals, steps: int
) -> jax.Array:
    """The gradient at a fixed point of every step and agent, (time, agent, d),
    vectorised over agents as a run does it.
    """
    windows = sampling.windows(np.arange(steps), np.asarray(records.held, float), arrivals)
    return _gradients(
        records,
        params,
        windows,
        sampling=sampling.kernel,
        loss=loss,
        arrivals=arrivals,
        steps=steps,
    )


@partial(jax.jit, static_argnames=("sampling", "loss", "arrivals", "steps"))
def _gradients(
    records, params: jax.Array, windows, *, sampling, loss, arrivals: Arrivals, steps: int
) -> jax.Array:
    base = jax.random.split(jax.random.key(0), records[0].shape[0])

    def step(state, inputs):
        k, window = inputs

        def agent(state, records, start, size, key):
            here = Window(start, size, window.blocks)
            batch, state = sampling.batch(
                state, loss, records, k, here, arrivals, jax.random.fold_in(key, k)
            )
            return batch.gradient(params), state

        found, state = jax.vmap(agent)(state, records, window.start, window.size, base)
        return state, found

    start = jax.vmap(lambda r: sampling.prepare(loss, r, arrivals))(records)
    return jax.lax.scan(step, start, (jnp.arange(steps), windows))[1]


def plain_mean(loss, records: Records, rows, params=PARAMS) -> np.ndarray:
    a, b = np.asarray(records.features)[rows], np.asarray(records.labels)[rows]
    each = loss.clipped_residual(a @ np.asarray(params), b, a)[:, None] * a
    return each.mean(axis=0) + loss.regulariser * np.asarray(params)


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
    """Agents with very different counts, several blocks of 256 records,
    and long after the last record has arrived.
    """
    records, arrivals, steps = streams(COUNTS), Arrivals(37, head_start), 20
    found = gradients(
        records, PARAMS, sampling=History(method), loss=LOSSES[loss], arrivals=arrivals, steps=steps
    )  # fmt: skip
    for agent, held in enumerate(COUNTS):
        for k in range(steps):
            rows = np.arange(min(head_start + (k + 1) * 37, held))
            expected = plain_mean(LOSSES[loss], one(records, agent), rows)
            np.testing.assert_allclose(found[k, agent], expected, atol=1e-12)


@pytest.mark.parametrize("method", ["full", "statistics"])
def test_a_history_that_has_arrived_stays_what_it_is_however_many_steps_follow(method):
    """(step + 1) * per_step passes 2^31, with 100,000 records a step after 21,000 of them."""
    records, loss = one(streams([6, 9]), 1), LOSSES["ridge"]
    whole = np.asarray(
        Batch(records.features, records.labels, jnp.full(9, 1 / 9), loss).gradient(PARAMS)
    )
    for arrivals in (Arrivals(100_003), Arrivals(2, 100_003), Arrivals(2**40, 2**40)):
        sampling, window = History(method), Window(*np.zeros(3, np.int32))
        state = sampling.prepare(loss, records, arrivals)
        batch = jax.jit(
            partial(sampling.batch, loss=loss, arrivals=arrivals, key=None, window=window)
        )
        for step in (0, 3, 4, 5, 21_473, 21_474, 42_946, 42_947, 2**30 - 1, 2**31 - 2):
            found, state = batch(state, records=records, step=jnp.int32(step))
            np.testing.assert_allclose(found.gradient(PARAMS), whole, rtol=1e-5)


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
    found = gradients(
        records, PARAMS, sampling=Fresh(), loss=LOSSES["logistic"], arrivals=arrivals, steps=4
    )
    for agent in range(2):
        for k in range(4):
            expected = plain_mean(
                LOSSES["logistic"], one(records, agent), np.arange(3 * k, 3 * k + 3)
            )
            np.testing.assert_allclose(found[k, agent], expected, atol=1e-12)


def test_cyclic_goes_round_in_order_and_leaves_out_the_remainder():
    counts = [10, 7, 3]
    records, arrivals = streams(counts), Arrivals(3)
    found = gradients(
        records, PARAMS, sampling=Cyclic(), loss=LOSSES["logistic"], arrivals=arrivals, steps=9
    )
    for agent, held in enumerate(counts):
        for k in range(9):
            first = 3 * (k % (held // 3))
            expected = plain_mean(
                LOSSES["logistic"], one(records, agent), np.arange(first, first + 3)
            )
            np.testing.assert_allclose(found[k, agent], expected, atol=1e-12)


def test_resample_draws_uniformly_from_the_real_records():
    """Each of 5 records in 4,000 draws: within 6 standard deviations, false-alarm rate 5 x 2e-9;
    padding never.
    """
    records = one(streams([5, 9]), 0)
    keys = jax.random.split(jax.random.key(1), 1000)
    window = Window(jnp.asarray(0), jnp.asarray(4), jnp.asarray(1))
    draw = partial(
        Resample().batch, (), LOSSES["ridge"], records, jnp.asarray(0), window, Arrivals(4)
    )
    batches = jax.vmap(lambda key: draw(key)[0])(keys)
    drawn = np.asarray(batches.features).reshape(-1, D)
    match = np.all(drawn[:, None] == np.asarray(records.features)[None, :5], axis=-1)
    assert match.sum(axis=1).tolist() == [1] * 4000
    assert np.abs(match.sum(axis=0) - 800).max() < 6 * math.sqrt(4000 * 0.2 * 0.8)
    np.testing.assert_allclose(batches.weights.sum(axis=1), 1.0)


def weights_of_records(
    sampling, counts: list[int], arrivals: Arrivals, steps: int
) -> list[np.ndarray]:
    """Per agent (record, step): the weight of a record in the mean gradient,
    measured by replacing it.
    """
    loss, records = LOSSES["ridge"], streams(counts)
    run = partial(
        gradients, params=PARAMS, sampling=sampling, loss=loss, arrivals=arrivals, steps=steps
    )
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
        np.testing.assert_allclose(
            moved[agent, held:, :last], 0, atol=1e-9, err_msg="padding was used"
        )
        found.append(moved[agent, :held, :last])
    return found


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize(("per_step", "head_start"), [(1, 0), (3, 0), (3, 4)])
def test_exposure_and_pattern_are_what_replacing_a_record_shows(name, per_step, head_start):
    """One record at a time is replaced.

    Its weight never exceeds the exposure, and its uses fit one allowed pattern.
    """
    counts, steps, change = [14, 11], 15, 2.5
    arrivals = Arrivals(per_step, head_start)
    # No coin of 11 falls in some step with a probability of 15 x 0.2^11 = 3e-7.
    sampling = Poisson(0.8) if name == "poisson" else SAMPLERS[name]()
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
            assert np.any(np.all(used <= allowed, axis=1)), (
                "a record was used where its pattern does not allow it"
            )
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
    assert Cyclic().pattern(10, arrivals) == participation.Periodic(3)
    assert History().pattern(10, arrivals) == participation.FromArrival()
    assert Resample().pattern(10, arrivals) == participation.Every()
    with pytest.raises(
        ValueError, match="per_step must be at most the agent's 2 records to go round them, got 3"
    ):
        Cyclic().pattern(2, arrivals)


def test_only_a_fresh_stream_ends():
    assert Fresh().lasts(10, Arrivals(3)) == 3
    assert Fresh().lasts(9, Arrivals(3)) == 3
    assert all(
        sampler().lasts(10, Arrivals(3)) == math.inf for sampler in (History, Cyclic, Resample)
    )


# What is written for a size, and the number of records that it means at step k.
LAWS = {
    "power": ("(k+1)^1.1", lambda k: math.ceil((k + 1) ** 1.1)),
    "steep": ("(k+1)^2.2", lambda k: math.ceil((k + 1) ** 2.2)),  # passes 256 and 512 records
    "geometric": ("2*1.4^k", lambda k: math.ceil(2 * 1.4**k)),
    "floor": ("floor(0.6*(k+1)^1.5)+1", lambda k: math.floor(0.6 * (k + 1) ** 1.5) + 1),
    "slow": ("ceil(0.5*(k+5)^0.5)", lambda k: math.ceil(0.5 * (k + 5) ** 0.5)),
    "seven": (7, lambda k: 7),
    "several blocks": (600, lambda k: 600),
    "per step": (None, lambda k: 3),
}
ARRIVALS = Arrivals(3)  # what a size of None means
# All growing laws run one compiled program, so they are tested in one go.
GROUPS = {
    "growing": ["power", "steep", "geometric", "floor", "slow"],
    **{law: [law] for law in ("seven", "several blocks", "per step")},
}


def fresh_rows(size, held: int, steps: int) -> list[list[int]]:
    """The next records at every step, for as long as there are enough."""
    batches, used = [], 0
    for k in range(steps):
        if used + size(k) > held:
            break
        batches.append(list(range(used, used + size(k))))
        used += size(k)
    return batches


def cyclic_rows(size, held: int, steps: int, constant: bool) -> list[list[int]]:
    """Record by record round the data set; a constant size starts again where a full
    batch no longer fits.
    """
    batches, place = [], 0
    for k in range(steps):
        if constant and place + size(k) > held:
            place = 0
        batch = []
        for _ in range(min(size(k), held)):
            batch.append(place % held)
            place += 1
        batches.append(batch)
    return batches


@pytest.mark.parametrize("loss", ["ridge", "logistic"])
@pytest.mark.parametrize("group", GROUPS)
def test_a_fresh_batch_is_the_plain_mean_of_the_next_records(group, loss):
    """Several blocks of 256 records, agents whose streams end at different steps,
    and padding after each.
    """
    counts, steps = [5000, 1700, 601, 600, 256, 40, 3], 21
    records = streams(counts)
    for law in GROUPS[group]:
        written, size = LAWS[law]
        found = gradients(
            records,
            PARAMS,
            sampling=Fresh(written),
            loss=LOSSES[loss],
            arrivals=ARRIVALS,
            steps=steps,
        )
        for agent, held in enumerate(counts):
            for k, rows in enumerate(fresh_rows(size, held, steps)):
                expected = plain_mean(LOSSES[loss], one(records, agent), rows)
                np.testing.assert_allclose(
                    found[k, agent], expected, atol=1e-12, err_msg=f"{law}, step {k}"
                )


@pytest.mark.parametrize("loss", ["ridge", "logistic"])
@pytest.mark.parametrize("group", GROUPS)
def test_a_cyclic_batch_begins_where_the_last_one_ended(group, loss):
    """Round data sets of very different sizes, and all of a data set, each record once,
    where the size has passed it.
    """
    counts, steps = [1000, 700, 513, 256, 31, 7, 3], 21
    records = streams(counts)
    for law in GROUPS[group]:
        written, size = LAWS[law]
        found = gradients(
            records,
            PARAMS,
            sampling=Cyclic(written),
            loss=LOSSES[loss],
            arrivals=ARRIVALS,
            steps=steps,
        )
        for agent, held in enumerate(counts):
            for k, rows in enumerate(cyclic_rows(size, held, steps, constant=group != "growing")):
                expected = plain_mean(LOSSES[loss], one(records, agent), rows)
                np.testing.assert_allclose(
                    found[k, agent], expected, atol=1e-12, err_msg=f"{law}, step {k}"
                )


def markers(counts: tuple[int, ...]) -> Records:
    """Records that tell themselves apart: record r has feature 1 in coordinate r only and label 1;
    so have the rows of padding.
    """
    most = max(counts)
    features = np.broadcast_to(np.eye(most), (len(counts), most, most))
    return Records(
        jnp.asarray(features), jnp.ones((len(counts), most)), jnp.asarray(counts, jnp.int32)
    )


@lru_cache
def shares(sampling, counts: tuple[int, ...], steps: int) -> np.ndarray:
    """(time, agent, row): the weight of every row in the mean gradient, padding included."""
    records, origin = markers(counts), jnp.zeros(max(counts))
    found = gradients(
        records, origin, sampling=sampling, loss=HalfSquared(1.0), arrivals=ARRIVALS, steps=steps
    )
    return -np.asarray(found)  # the residual at the origin is -1


RANDOM = {"subset": Subset, "resample": Resample}


DRAWN, DRAWN_STEPS = (700, 300, 31, 3), 21


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("name", RANDOM)
def test_drawn_batches_have_the_right_number_of_real_records(name, group):
    """Whole multiplicities that add up to the size, no padding, and all of the data set,
    each record once, where the size reaches it.
    """
    for law in GROUPS[group]:
        written, size = LAWS[law]
        weights, most = shares(RANDOM[name](written), DRAWN, DRAWN_STEPS), 0
        for agent, held in enumerate(DRAWN):
            for k in range(DRAWN_STEPS):
                many = min(size(k), held)
                times = weights[k, agent] * many
                np.testing.assert_allclose(times, np.rint(times), atol=1e-9)
                times = np.rint(times).astype(int)
                assert times.sum() == many
                assert times[held:].sum() == 0, "padding was used"
                if size(k) >= held:
                    assert times[:held].tolist() == [1] * held
                most = max(most, times.max())
        if name == "subset":
            assert most == 1, "a subset is drawn without replacement"
        elif law in ("steep", "several blocks"):
            assert most > 1, "drawn with replacement"
        if law == "seven":
            used = {tuple(np.flatnonzero(row > 0)) for row in weights[:, 0]}
            assert len(used) == DRAWN_STEPS, "every step draws anew"


@pytest.mark.parametrize("name", RANDOM)
def test_the_gradient_of_a_drawn_batch_is_the_mean_of_what_was_drawn(name):
    """Which records are drawn does not depend on what is in them:
    the markers say which, and how often.
    """
    written, size = LAWS["steep"]
    sampling, records = RANDOM[name](written), streams(list(DRAWN))
    weights = shares(sampling, DRAWN, DRAWN_STEPS)
    for loss in (LOSSES["ridge"], LOSSES["logistic"]):
        found = gradients(
            records, PARAMS, sampling=sampling, loss=loss, arrivals=ARRIVALS, steps=DRAWN_STEPS
        )
        for agent, held in enumerate(DRAWN):
            for k in range(DRAWN_STEPS):
                rows = np.repeat(
                    np.arange(700), np.rint(weights[k, agent] * min(size(k), held)).astype(int)
                )
                expected = plain_mean(loss, one(records, agent), rows)
                np.testing.assert_allclose(found[k, agent], expected, atol=1e-12)


def test_subsets_are_uniform():
    """3 to 4 of 10 records in 2,000 steps: each record's count within 6 standard deviations,
    false-alarm rate 10 x 2e-9.
    """
    steps = 2000
    sizes = np.array([math.ceil(3 * (k + 1) ** 0.02 - 1e-12) for k in range(steps)])
    assert set(sizes) == {3, 4}
    used = shares(Subset("3*(k+1)^0.02"), (10, 17), steps)[:, 0, :10] > 0
    chance = sizes / 10
    deviation = math.sqrt(np.sum(chance * (1 - chance)))
    assert np.abs(used.sum(axis=0) - chance.sum()).max() < 6 * deviation


def test_draws_with_replacement_differ_between_blocks():
    """1,500 draws from 1,501 records in six blocks hit n (1 - (1 - 1/n)^m) = 949 of them, within 6
    standard deviations: false-alarm rate 2e-9 (blocks that repeated each other would hit 236).
    """
    held, drawn = 1501, 1500
    times = np.rint(shares(Resample(drawn), (held,), 1)[0, 0] * drawn)
    miss, both = (1 - 1 / held) ** drawn, (1 - 2 / held) ** drawn
    deviation = math.sqrt(held * miss * (1 - miss) + held * (held - 1) * (both - miss**2))
    assert abs(np.sum(times > 0) - held * (1 - miss)) < 6 * deviation


@pytest.mark.parametrize("group", ["growing", "seven", "per step"])
def test_a_fresh_stream_never_uses_a_record_twice(group):
    counts, steps = (60, 31), 25
    for law in GROUPS[group]:
        sampling = Fresh(LAWS[law][0])
        weights = shares(sampling, counts, steps)
        for agent, held in enumerate(counts):
            last = int(sampling.lasts(held, ARRIVALS))
            assert 2 < last <= steps
            uses = (weights[:last, agent] > 0).sum(axis=0)
            consumed = sum(LAWS[law][1](k) for k in range(last))
            assert uses.tolist() == [1] * consumed + [0] * (60 - consumed)


@pytest.mark.parametrize("law", LAWS)
def test_lasts_is_the_number_of_steps_that_can_be_served_in_full(law):
    written, size = LAWS[law]
    for held in [*range(260), 599, 600, 601, 1199, 1200, 5000, 70_000]:
        served, used = 0, 0
        while used + size(served) <= held:
            used += size(served)
            served += 1
        assert Fresh(written).lasts(held, ARRIVALS) == served
    assert Fresh(written).lasts(math.inf, ARRIVALS) == math.inf
    assert all(
        sampler(written).lasts(10, ARRIVALS) == math.inf for sampler in (Cyclic, Subset, Resample)
    )


@pytest.mark.parametrize("name", ["fresh", "cyclic", "subset", "resample"])
def test_windows_do_not_depend_on_how_steps_are_grouped(name):
    """Chunks of a run, the late ones beyond step 1,024 too, see what one long run would."""
    sampling, held = SAMPLERS[name]("(k+1)^0.5"), np.array([40, 31, 100_000])
    whole = sampling.windows(np.arange(2600), held, ARRIVALS)
    for first, last in ((0, 1), (0, 7), (7, 40), (1000, 1023), (1023, 1025), (2100, 2600)):
        part = sampling.windows(np.arange(first, last), held, ARRIVALS)
        for there, here in zip(whole, part, strict=True):
            np.testing.assert_array_equal(there[first:last], here)
    sizes = np.array([math.isqrt(k) + 1 for k in range(2600)])  # ceil(sqrt(k + 1))
    np.testing.assert_array_equal(whole.size, np.minimum(sizes[:, None], held))
    np.testing.assert_array_equal(whole.blocks, 1)
    assert all(part.dtype == np.int32 for part in whole)
    if name == "fresh":
        np.testing.assert_array_equal(whole.start[:, 2], np.cumsum(sizes) - sizes)
    elif name == "cyclic":
        for agent, n in enumerate(held):
            capped = np.minimum(sizes, n)
            np.testing.assert_array_equal(whole.start[:, agent], (np.cumsum(capped) - capped) % n)
    else:
        assert not whole.start.any()


def test_blocks_are_as_many_as_the_largest_batch_needs():
    held = np.array([100, 1000, 700])
    for name in ("cyclic", "subset", "resample"):
        window = SAMPLERS[name]("(k+1)^2.2").windows(np.arange(40), held, ARRIVALS)
        assert window.blocks.tolist() == [
            -(-min(math.ceil((k + 1) ** 2.2), 1000) // 256) for k in range(40)
        ]


@pytest.mark.parametrize("name", ["fresh", "cyclic", "subset", "resample"])
def test_one_compiled_program_serves_every_growing_schedule_and_any_horizon(name):
    """Late steps, large batches and other laws run the same program;
    a constant size is part of what is compiled.
    """
    records, traces = streams([700, 300]), []

    @partial(jax.jit, static_argnames="sampling")
    def gradient(records, step, window, *, sampling):
        traces.append(sampling)
        batch, _ = sampling.batch(
            (), LOSSES["logistic"], records, step, window, ARRIVALS, jax.random.key(1)
        )
        return batch.gradient(PARAMS)

    for law in ("power", "steep", "geometric", "floor", "slow"):
        sampling = SAMPLERS[name](LAWS[law][0])
        for step in (0, 1, 12, 20, 3000) if law in ("power", "slow") else (0, 1, 12, 20):
            window = sampling.windows(np.array([step]), np.array([700, 300]), ARRIVALS)
            window = Window(window.start[0, 1], window.size[0, 1], window.blocks[0])
            gradient(one(records, 1), step, window, sampling=sampling.kernel)
    assert len(traces) == 1
    assert SAMPLERS[name](7).kernel != SAMPLERS[name](8).kernel
    assert SAMPLERS[name]().kernel == SAMPLERS[name]()


@pytest.mark.parametrize("loss", ["ridge", "polynomial"])
def test_two_moments_give_the_gradient_of_the_records_themselves(loss, monkeypatch):
    """Up to 64 parameters a quadratic loss is summed up by its statistics;
    from 65 on, or for any other loss, block by block.
    """

    def form(d: int, which=loss):
        sampling, records = Cyclic("(k+1)^2.2"), one(streams([1000, 900], d=d), 1)
        window = sampling.windows(np.array([17]), np.array([900]), ARRIVALS)
        window = Window(window.start[0, 0], window.size[0, 0], window.blocks[0])
        return sampling.batch(
            (), LOSSES[which], records, jnp.asarray(17), window, ARRIVALS, jax.random.key(5)
        )[0]

    quick = form(64)
    assert isinstance(quick, Statistics)
    assert all(isinstance(form(*case), Blocks) for case in ((65,), (2, "logistic"), (2, "clipped")))
    monkeypatch.setattr(module, "_STATISTICS", 0)
    plain = form(64)
    assert isinstance(plain, Blocks)
    params = jnp.asarray(np.random.default_rng(0).normal(size=64) / 8)
    np.testing.assert_allclose(quick.gradient(params), plain.gradient(params), atol=1e-12)


def test_more_parameters_than_moments_are_worth():
    """65 parameters of a quadratic loss, over several blocks: the plain mean, from the records."""
    counts, steps, size = [900, 650], 18, LAWS["steep"][1]
    records = streams(counts, d=65)
    params = jnp.asarray(np.random.default_rng(0).normal(size=65) / 8)
    found = gradients(
        records,
        params,
        sampling=Cyclic("(k+1)^2.2"),
        loss=LOSSES["ridge"],
        arrivals=ARRIVALS,
        steps=steps,
    )
    for agent, held in enumerate(counts):
        for k, rows in enumerate(cyclic_rows(size, held, steps, constant=False)):
            expected = plain_mean(LOSSES["ridge"], one(records, agent), rows, params)
            np.testing.assert_allclose(found[k, agent], expected, atol=1e-12)


def test_a_constant_size_of_one_block_is_taken_in_one_piece():
    records = one(streams([900]), 0)
    for size, kind in ((256, Batch), (257, Statistics)):
        window = Window(jnp.asarray(0), jnp.asarray(size), jnp.asarray(2))
        batch, _ = Fresh(size).batch(
            (), LOSSES["ridge"], records, jnp.asarray(0), window, ARRIVALS, jax.random.key(0)
        )
        assert isinstance(batch, kind)
        expected = plain_mean(LOSSES["ridge"], records, range(size))
        np.testing.assert_allclose(batch.gradient(PARAMS), expected, atol=1e-12)


@pytest.mark.parametrize("group", ["growing", "seven"])
@pytest.mark.parametrize("name", ["fresh", "cyclic", "subset", "resample"])
def test_exposure_and_pattern_of_a_size_are_what_replacing_a_record_shows(name, group):
    """One record at a time is replaced: its weight never exceeds the exposure, reaches it, and its
    uses are allowed (for a rolling window: exactly what the pattern says of this very record).
    """
    counts, steps, change = [19, 7], 12, 2.5
    for law in GROUPS[group]:
        sampling, size = SAMPLERS[name](LAWS[law][0]), LAWS[law][1]
        for held, weights in zip(
            counts, weights_of_records(sampling, counts, ARRIVALS, steps), strict=True
        ):
            last = weights.shape[1]
            weights = np.where(np.abs(weights) < 1e-9, 0, weights)
            exposure = sampling.exposure(1.0, held, ARRIVALS)(np.arange(last))
            np.testing.assert_allclose(
                sampling.exposure(change, held, ARRIVALS)(np.arange(last)), change * exposure
            )
            assert np.all(weights <= exposure * (1 + 1e-9))
            sizes = np.array([min(size(k), held) for k in range(last)])
            whole = sizes == held
            if name == "resample":  # its exposure allows for all draws hitting the same record
                np.testing.assert_array_equal(exposure[~whole], 1.0)
                reached = whole | (sizes == 1)
            else:
                reached = sizes > 0
            np.testing.assert_allclose(weights.max(axis=0)[reached], exposure[reached], rtol=1e-9)
            allowed = sampling.pattern(held, ARRIVALS).uses(last)
            assert all(np.any(np.all(used <= allowed, axis=1)) for used in weights > 0)
            if name == "cyclic" and group == "growing":
                np.testing.assert_array_equal(weights > 0, allowed)


@pytest.mark.parametrize("law", LAWS)
def test_growing_patterns(law):
    written, sized = LAWS[law][0], Cyclic(LAWS[law][0])
    assert Fresh(written).pattern(1000, ARRIVALS) == participation.Once()
    assert (
        Subset(written).pattern(1000, ARRIVALS)
        == Resample(written).pattern(1000, ARRIVALS)
        == participation.Every()
    )
    if (size := sized.constant(ARRIVALS)) is not None:
        assert sized.pattern(1000, ARRIVALS) == participation.Periodic(1000 // size)
    else:
        assert sized.pattern(1000, ARRIVALS) == participation.Rolling(sized.size, 1000)
    with pytest.raises(
        ValueError,
        match="sampling must be fresh, subset or resample on an endless stream, got cyclic",
    ):
        sized.pattern(math.inf, ARRIVALS)


def test_a_cyclic_size_above_the_data_set_is_all_of_it_at_every_step():
    assert Cyclic(10).pattern(7, ARRIVALS) == participation.Periodic(1)
    assert float(Cyclic(10).exposure(2.0, 7, ARRIVALS)(3)) == 2.0 / 7
    for weights in shares(Cyclic(10), (7, 12), 4)[:, 0]:
        np.testing.assert_allclose(weights, [1 / 7] * 7 + [0] * 5)


def test_arrived_counts_the_records_that_the_objective_is_about():
    held = np.array([100, 30])
    for k in range(20):
        used = sum(math.ceil((j + 1) ** 1.1) for j in range(k + 1))
        assert Fresh("(k+1)^1.1").arrived(k, held, ARRIVALS).tolist() == [
            min(used, 100),
            min(used, 30),
        ]
        assert Fresh().arrived(k, held, Arrivals(3, 4)).tolist() == [
            min(4 + 3 * (k + 1), n) for n in held
        ]
        for sampler in (Cyclic, Subset, Resample):
            assert sampler("(k+1)^1.1").arrived(k, held, ARRIVALS).tolist() == [100, 30]


@pytest.mark.parametrize("name", ["fresh", "cyclic", "subset", "resample"])
def test_a_size_that_grows_very_fast_is_no_cause_for_warnings(name):
    """3^k leaves the floating-point numbers at step 647, long after any data set has been passed:
    nothing on the way may warn (or fail).
    """
    sampling, held = SAMPLERS[name]("3^k"), np.array([100])
    assert sampling.windows(np.arange(4), held, ARRIVALS).size[:, 0].tolist() == [1, 3, 9, 27]
    assert sampling.lasts(100, ARRIVALS) == (4 if name == "fresh" else math.inf)
    assert len(sampling.pattern(100, ARRIVALS).uses(4)) > 0


def test_sizes_beyond_the_counter_are_refused_and_not_wrapped_round():
    """On an endless stream 2^k passes 2^31 records at step 31: a wrapped size would silently give a
    gradient over no records.
    """
    try:
        window = Fresh("2^k").windows(np.array([30, 31, 40]), np.array([math.inf]), ARRIVALS)
    except (ValueError, OverflowError):
        return
    assert window.size.dtype.itemsize == 8
    assert window.size[:, 0].tolist() == [2**30, 2**31, 2**40]
