"""Poisson batches: a slow obvious version in NumPy, coins that are independent, slots that suffice;
and faults that must not pass unseen.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hearsay as hs
from hearsay.certification.describing import accounts
from hearsay.config import named_algorithm
from hearsay.planning import as_table
from hearsay.privacy.participation import PATTERNS, Every, Sampled
from hearsay.privacy.sampled import overflow
from hearsay.problems.data.records import Records
from hearsay.problems.losses.linear import HalfSquared, Logistic, Squared
from hearsay.problems.losses.neural_loss import NeuralLoss, from_function
from hearsay.problems.sampling.batches import Batch, Blocks, Window
from hearsay.problems.sampling.poisson import OVERFLOW, Poisson, default_cap
from hearsay.problems.sampling.samplers import SAMPLERS, Arrivals, Coins
from hearsay.simulation import engine, keys
from tests.problems.test_sampling import PARAMS, gradients, one, streams

LOSSES = {
    "clipped": Squared(1.0, 0.3, label_bound=1.0, clip=0.3),
    "logistic": Logistic(1.0, 0.2),
}
COUNTS, STEPS = [70, 31, 3], 25
PROBLEM = hs.problems.ridge(agents=3, records=50, dimension=2, ridge=0.2)
ALGORITHM = hs.gradient_perturbation(sampling=Poisson(0.2), noise=0.1, step="0.5*(k+1)^-0.7")
CASES = {
    "one block": (Poisson(0.2), Arrivals()),
    "several blocks": (Poisson(0.4), Arrivals(block=8)),
    "over the cap": (Poisson(0.3, cap=9), Arrivals(block=4)),
    "mostly empty": (Poisson(0.02), Arrivals()),
    "all": (Poisson(1.0), Arrivals(block=32)),
}


def fallen(words: np.ndarray, rate: float, held: int) -> np.ndarray:
    return np.flatnonzero(words[:held] < np.floor(rate * 2.0**32))


def by_hand(loss, records: Records, rows: np.ndarray, rate: float) -> np.ndarray:
    """Coins -> sum over the selected records / (rate N)."""
    a, b = np.asarray(records.features), np.asarray(records.labels)
    each = np.asarray(loss.clipped_residual(a @ np.asarray(PARAMS), b, a))[:, None] * a
    total = sum((each[row] for row in rows), np.zeros(2))
    return total / (rate * int(records.held)) + loss.regulariser * np.asarray(PARAMS)


def require_the_slow_version(sampling: Poisson, arrivals: Arrivals, loss) -> None:
    records = streams(COUNTS)
    found = gradients(records, PARAMS, sampling=sampling, loss=loss, arrivals=arrivals, steps=STEPS)
    base = jax.random.split(jax.random.key(0), len(COUNTS))
    for agent, held in enumerate(COUNTS):
        for k in range(STEPS):
            key = jax.random.fold_in(base[agent], k)
            words = np.asarray(jax.random.bits(key, (max(COUNTS),), jnp.uint32))
            rows = fallen(words, sampling.rate, held)[: sampling.slots(held)]
            expected = by_hand(loss, one(records, agent), rows, sampling.rate)
            np.testing.assert_allclose(found[k, agent], expected, atol=1e-12)


@pytest.mark.parametrize(
    ("case", "loss"), [*((case, "clipped") for case in CASES), ("several blocks", "logistic")]
)
def test_the_compiled_batch_is_the_slow_one(case, loss):
    require_the_slow_version(*CASES[case], LOSSES[loss])


class ByDrawnSize(Poisson):
    """FAULT: divides by the number of records that were drawn."""

    def batch(self, *args):
        batch, state = super().batch(*args)
        assert isinstance(batch, Batch)
        total = jnp.maximum(jnp.sum(batch.weights), 1e-9)
        return Batch(batch.features, batch.labels, batch.weights / total, batch.loss), state


class RegularisedByRecord(Poisson):
    """FAULT: the regulariser is part of every record, so that the batch's size shows."""

    def batch(self, state, loss, *rest):
        batch, state = super().batch(state, loss, *rest)
        drawn = jnp.sum(batch.weights)

        class Shown(Batch):
            def gradient(self, params):
                return super().gradient(params) + (drawn - 1) * self.loss.regulariser * params

        return Shown(batch.features, batch.labels, batch.weights, loss), state


class OneCoin(Poisson):
    """FAULT: every step has the coins of step 0."""

    def batch(self, state, loss, records, step, window, arrivals, key):
        return super().batch(
            state, loss, records, step, window, arrivals, jax.random.key(7, impl="threefry2x32")
        )


@pytest.mark.parametrize("fault", [ByDrawnSize, RegularisedByRecord, OneCoin])
def test_faults_are_not_the_slow_version(fault):
    with pytest.raises(AssertionError):
        require_the_slow_version(fault(0.2), Arrivals(), LOSSES["clipped"])


def require_no_size(sampling: Poisson) -> None:
    """Records without a gradient: what a message is made from must not tell how many were drawn."""
    empty = Records(jnp.zeros((2, 40, 2)), jnp.zeros((2, 40)), jnp.asarray([40, 23], jnp.int32))
    loss = HalfSquared(1.0, 0.5)
    found = np.asarray(
        gradients(empty, PARAMS, sampling=sampling, loss=loss, arrivals=Arrivals(), steps=STEPS)
    )
    expected = np.broadcast_to(loss.regulariser * np.asarray(PARAMS), found.shape)
    np.testing.assert_array_equal(found, expected)


def test_the_size_of_a_batch_shows_nowhere():
    require_no_size(Poisson(0.3))
    with pytest.raises(AssertionError):
        require_no_size(RegularisedByRecord(0.3))


def drawn(sampling: Poisson, counts: list[int], steps: int) -> np.ndarray:
    """(step, agent, row): which records are in which batch, found by their gradients."""
    most = max(counts)
    features = jnp.broadcast_to(jnp.eye(most), (len(counts), most, most))
    labels = jnp.ones((len(counts), most))
    records = Records(features, labels, jnp.asarray(counts, jnp.int32))
    found = gradients(
        records, jnp.zeros(most), sampling=sampling, loss=HalfSquared(1.0), arrivals=Arrivals(),
        steps=steps,
    )  # fmt: skip
    share = 1 / (sampling.rate * np.array(counts))
    weights = -np.asarray(found) / share[:, None]
    np.testing.assert_allclose(weights, np.rint(weights), atol=1e-9)
    return np.rint(weights).astype(int)


def require_independent(used: np.ndarray, rate: float) -> None:
    """Binomial counts, of single coins and of pairs in two rounds and at two agents, within 6
    standard deviations: about 320 two-sided comparisons, false-alarm rate 320 x 2e-9 = 7e-7.
    """
    steps = len(used)

    def near(count: np.ndarray, chance: float, trials: int) -> None:
        limit = 6 * math.sqrt(trials * chance * (1 - chance))
        assert np.abs(count - trials * chance).max() < limit

    near(used.sum(axis=0), rate, steps)
    for lag in (1, 2, 7):
        near((used[lag:] * used[:-lag]).sum(axis=0), rate**2, steps - lag)
    near((used[:, 0] * used[:, 1]).sum(axis=0), rate**2, steps)
    near((used[:, :, 1:] * used[:, :, :-1]).sum(axis=0), rate**2, steps)


def test_coins_have_their_probability_and_are_independent():
    used = drawn(Poisson(0.25), [30, 30], 2500)
    assert set(np.unique(used)) == {0, 1}
    require_independent(used, 0.25)
    with pytest.raises(AssertionError):
        require_independent(drawn(OneCoin(0.25), [30, 30], 400), 0.25)


def test_padding_is_never_drawn():
    used = drawn(Poisson(0.5), [40, 11], 60)
    assert used[:, 1, 11:].sum() == 0
    assert used[:, 1, :11].sum(axis=0).min() > 0  # false-alarm rate 11 x 2^-60


@pytest.mark.parametrize(("held", "rate"), [(1, 0.3), (2, 0.9), (40, 0.05), (91, 0.2), (120, 0.5)])
def test_overflow_is_the_sum_of_the_binomials_tail(held, rate):
    """Exact fractions: never below, and not 1e-5 above."""
    q = Fraction(rate)
    chances = [math.comb(held - 1, j) * q**j * (1 - q) ** (held - 1 - j) for j in range(held)]
    for cap in range(1, held + 1):
        exact, found = sum(chances[cap:], Fraction(0)), overflow(held, rate, cap)
        assert exact <= Fraction(found) <= exact * (1 + Fraction(1, 10**5))
        assert hs.Poisson(rate, cap).overflow(held, Arrivals()) == found
    cap = default_cap(held, rate)
    assert overflow(held, rate, cap) <= OVERFLOW
    assert cap == 1 or overflow(held, rate, cap - 1) > OVERFLOW


def test_slots_of_large_and_of_full_batches():
    assert Poisson(0.05).slots(12_000) == 776
    assert Poisson(1.0).slots(50) == 50
    assert Poisson(1.0).overflow(50, Arrivals()) == 0.0
    assert Poisson(0.5, cap=80).slots(50) == 50
    caps = [Poisson(0.1).slots(n) for n in range(1, 400)]
    assert caps == sorted(caps)


def test_what_its_privacy_side_says():
    sampling, arrivals = Poisson(0.05, cap=40), Arrivals()
    assert sampling.pattern(200, arrivals) == Sampled(0.05)
    assert isinstance(Sampled(0.05), Every)
    assert PATTERNS["Sampled"] is Sampled
    assert "probability 0.05" in str(Sampled(0.05))
    assert "secret" in str(Sampled(0.05))
    assert sampling.inclusion(200, arrivals) == 0.05
    assert float(sampling.exposure(3.0, 200, arrivals)(0)) == pytest.approx(0.3, rel=1e-15)
    assert sampling.load(200, arrivals) == (0.0, 4.0)
    assert sampling.secret
    assert hs.Subset.secret
    assert hs.Subset(5).inclusion(20, arrivals) == 0.25
    assert hs.Subset(50).inclusion(20, arrivals) == 1.0
    assert hs.Subset("(k+1)^0.5").inclusion(20, arrivals) is None
    for name in set(SAMPLERS) - {"poisson", "subset"}:
        plain = SAMPLERS[name]()
        assert not plain.secret
        assert plain.inclusion(20, arrivals) is None
        assert plain.overflow(20, arrivals) == 0.0


def test_bad_input():
    for rate in (0.0, -0.1, 1.5):
        with pytest.raises(ValueError, match="rate must be above 0 and at most 1, got"):
            Poisson(rate)
    with pytest.raises(ValueError, match=r"rate must be at least 2\^-32"):
        Poisson(1e-10)
    with pytest.raises(ValueError, match="cap must be at least 1, got 0"):
        Poisson(0.5, cap=0)
    with pytest.raises(ValueError, match="on an endless stream, got poisson"):
        Poisson(0.5).pattern(math.inf, Arrivals())
    task = replace(PROBLEM.task, counts=np.full(3, np.inf))
    with pytest.raises(ValueError, match="on an endless stream, got poisson"):
        hs.certify(ALGORITHM, task, hs.graphs.ring(3), 5)


def test_a_rate_that_leaves_most_batches_empty_is_warned_of():
    problem = hs.problems.ridge(agents=3, records=60, dimension=2)
    few, enough = (
        hs.certify(hs.gradient_perturbation(sampling=Poisson(q)), problem, hs.graphs.ring(3), 5)
        for q in (0.01, 0.2)
    )
    assert any("most batches are empty" in warning for warning in few.warnings)
    assert not any("most batches are empty" in warning for warning in enough.warnings)


def test_the_federated_methods_say_why_they_cannot():
    with pytest.raises(ValueError, match="whose batch is its local steps"):
        hs.correlated_federated(horizon=4, sampling=Poisson(0.1)).check(
            hs.graphs.complete(3), hs.problems.ridge(agents=3, records=60, dimension=2).task
        )


def simulate(**options):
    usual = {"steps": 12, "seeds": [1, 2], "every": 4, "reference": False, "regret": False}
    return hs.simulate(ALGORITHM, PROBLEM, hs.graphs.ring(3), **{**usual, **options})


@pytest.mark.slow
def test_neither_block_length_nor_the_company_of_other_seeds_matters(monkeypatch):
    whole = simulate().models
    assert not np.array_equal(whole[0], whole[1])
    np.testing.assert_array_equal(simulate(every=6).models, whole)
    np.testing.assert_allclose(simulate(seeds=[2]).models[0], whole[1], rtol=0, atol=1e-14)
    engine.block_length.cache_clear()
    monkeypatch.setattr(engine, "_CPU_DRAWN_BYTES", 1)
    np.testing.assert_array_equal(simulate().models, whole)
    engine.block_length.cache_clear()


def test_a_resumed_run_is_the_same(tmp_path):
    def stop(done, *_):
        if done >= 4:
            raise KeyboardInterrupt

    whole = simulate()
    simulate(folder=tmp_path, progress=stop)
    done = simulate(folder=tmp_path, resume=True)
    np.testing.assert_array_equal(done.models, whole.models)


def test_each_noise_seed_has_coins_of_its_own():
    """Of 3 agents, 2 seeds and 12 steps no two batches of 17 records are alike but by chance: that
    17 fair-ish coins (0.2) agree has probability 0.68^17 = 1.4e-3, all of 12 steps 1e-34.
    """
    own = keys.coin_keys(keys.noise_keys(jnp.asarray([1, 2]), 3))
    data = np.asarray(jax.random.key_data(own)).reshape(6, -1)
    assert len(np.unique(data, axis=0)) == 6
    silent = hs.gradient_perturbation(sampling=Poisson(0.2), noise=0.0)
    models = hs.simulate(
        silent, PROBLEM, hs.graphs.ring(3), steps=4, seeds=[1, 2], reference=False, regret=False
    ).models
    assert not np.allclose(models[0], models[1], atol=1e-6)


def test_the_network_runs_it_by_hand():
    """A run without noise is the recursion with batches drawn from the seed's own keys."""
    silent = hs.gradient_perturbation(sampling=Poisson(0.3), noise=0.0, step="0.4", coupling="0.3")
    graph, seed, steps = hs.graphs.ring(3), 5, 3
    found = hs.simulate(
        silent, PROBLEM, graph, steps=steps, seeds=[seed], reference=False, regret=False
    ).models[0]
    own = keys.coin_keys(keys.noise_keys(jnp.asarray([seed]), 3))[0]
    weights = graph.weights.toarray()
    models, loss = np.zeros((3, 2)), PROBLEM.loss
    for k in range(steps):
        moved = np.empty_like(models)
        for i, held in enumerate(PROBLEM.counts):
            key = jax.random.fold_in(own[i], k)
            words = np.asarray(jax.random.bits(key, (PROBLEM.most,), jnp.uint32))
            rows = fallen(words, 0.3, held)
            a, b = PROBLEM.features[i][rows], PROBLEM.labels[i][rows]
            slope = loss.clipped_residual(a @ models[i], b, a)
            gradient = slope @ a / (0.3 * held) + loss.regulariser * models[i]
            heard = weights[i] @ models - weights[i].sum() * models[i]
            moved[i] = models[i] + 0.3 * heard - 0.4 * gradient
        models = moved
    np.testing.assert_allclose(found, models, atol=1e-12)


@pytest.mark.parametrize("sampling", [Poisson(0.3), hs.Subset(9)], ids=str)
def test_coins_from_the_operating_system_take_the_place_of_a_key(sampling):
    """The same batch as the slow version makes of the same words; a subset is in the order of its
    words.
    """
    rng = np.random.default_rng(4)
    words = rng.integers(0, 2**64, 35, np.uint64)
    held = Records(*(np.asarray(part)[1] for part in streams(COUNTS)))
    coins = sampling.draw(lambda count: words[:count], held)
    placed, arrivals, loss = held.placed(jnp.dtype(float)), Arrivals(), LOSSES["logistic"]
    windows = sampling.windows(np.arange(1), np.array([31]), arrivals)
    window = Window(windows.start[0, 0], jnp.asarray(windows.size[0, 0]), windows.blocks[0])
    batch, _ = sampling.batch(
        (), loss, placed, jnp.asarray(0), window, arrivals, Coins(jnp.asarray(coins.values))
    )
    assert isinstance(batch, (Batch, Blocks))
    if isinstance(sampling, Poisson):
        halves = np.ascontiguousarray(words).view(np.uint32)
        rows, rate = fallen(halves, 0.3, 31), 0.3
    else:
        rows, rate = np.argsort(words[:31])[:9], 9 / 31
    expected = by_hand(loss, placed, rows, rate)
    np.testing.assert_allclose(batch.gradient(PARAMS), expected, atol=1e-12)


def test_a_subsets_order_has_no_ties():
    """Numbers that are equal are drawn again: the sort would put the lower row first."""
    asked = []

    def words(count):
        asked.append(count)
        return np.array([3, 3, 1], np.uint64) if len(asked) == 1 else np.array([2, 9, 1], np.uint64)

    held = Records(np.zeros((3, 2)), np.zeros(3), np.asarray(3))
    assert hs.Subset(2).draw(words, held).values.tolist() == [2, 0, 1]
    assert asked == [3, 3]
    with pytest.raises(TypeError, match="the batches of Cyclic are not secret"):
        hs.Cyclic().draw(words, held)


@pytest.mark.parametrize("clip", [None, 0.3])
def test_methods_with_a_private_state_are_certified_for_the_heaviest_batch(clip):
    """All coins fall: the data's gradients of two states differ by 1 / rate times what a mean's do.
    The certified interval and clip bound are just that, and those of a mean would be too small.
    """
    loss = Squared(1.0, 0.1, label_bound=1.0, clip=clip)
    task = replace(PROBLEM.task, loss=loss, counts=np.array([4, 4, 4]))
    sampling = Poisson(0.25)
    known = accounts(hs.dsgd(sampling=sampling), task, hs.graphs.ring(3), 0)
    records = Records(jnp.eye(2)[jnp.zeros(4, int)], jnp.zeros(4), jnp.asarray(4, jnp.int32))
    window = Window(jnp.asarray(0), jnp.asarray(4), jnp.asarray(1))
    coins = Coins(jnp.zeros(4, jnp.uint32))
    batch, _ = sampling.batch((), loss, records, jnp.asarray(0), window, Arrivals(), coins)
    near, far = (jnp.array([x, 0.0]) for x in (-1.0, 1.0))
    moved = float(jnp.linalg.norm(batch.gradient(far) - batch.gradient(near)))
    low, high = known[0].recursion.curvature
    if clip is None:
        assert moved / 2 == pytest.approx(high)
        assert moved / 2 > 3 * loss.curvature[1]
        assert low == pytest.approx(loss.regulariser)
        return
    bound = float(known[1].recursion.exposure(0)) + 2 * loss.regulariser
    assert moved == pytest.approx(bound)
    assert moved > 2 * (2 * clip + 2 * loss.regulariser)


@pytest.mark.parametrize("sampling", [Poisson(0.05), Poisson(0.2, cap=30)], ids=str)
def test_a_table_of_the_configuration_builds_the_same_sampler(sampling):
    algorithm = hs.gradient_perturbation(sampling=sampling)
    table = as_table(algorithm)
    assert table["sampling"] == "poisson"
    assert named_algorithm(table, steps=10) == algorithm


@pytest.mark.parametrize(
    ("sampling", "arrivals"),
    [
        (Poisson(0.5), Arrivals()),
        (Poisson(0.5), Arrivals(block=4)),
        (Poisson(0.5, cap=4), Arrivals()),
        (hs.Subset(6), Arrivals()),
        (hs.Subset(6), Arrivals(block=4)),
    ],
    ids=["poisson", "poisson in blocks", "poisson with a cap", "subset", "subset in blocks"],
)
def test_a_record_that_is_not_in_the_batch_is_not_looked_at(sampling, arrivals):
    """Its gradient overflows: were it in a slot of weight 0, the others would be added up another
    way, and rounded otherwise.
    """
    rng, held = np.random.default_rng(0), 12
    features, labels = rng.normal(size=(held, 5)), rng.normal(size=held)
    start = {"w": jnp.asarray(rng.normal(size=(5, 4))), "v": jnp.asarray(rng.normal(size=4))}
    model, params = from_function(
        lambda p, record: (jnp.tanh(record[0] @ p["w"]) @ p["v"] - record[1]) ** 2, start
    )
    loss = NeuralLoss(model, clip=1.0)
    inside = [1, 2, 3, 5, 7]
    coins = np.where(np.isin(np.arange(held), inside), 0, 2**32 - 1).astype(np.uint32)
    if isinstance(sampling, hs.Subset):
        coins = rng.permutation(held).astype(np.int32)
        inside = coins[:6].tolist()
    window = jax.tree.map(
        lambda a: jnp.asarray(a.ravel()[0]),
        sampling.windows(np.zeros(1, int), np.array([held]), arrivals),
    )

    @jax.jit
    def gradient(labels):
        records = Records(jnp.asarray(features), labels, jnp.asarray(held))
        given = None, loss, records, jnp.asarray(0), window, arrivals, Coins(jnp.asarray(coins))
        return sampling.batch(*given)[0].gradient(jnp.asarray(params))

    expected = np.asarray(gradient(jnp.asarray(labels)))
    seen = []
    for row in range(held):
        huge = labels.copy()
        huge[row] = 1e200
        found = np.asarray(gradient(jnp.asarray(huge)))
        seen.append(found.tobytes() != expected.tobytes())
    if getattr(sampling, "cap", None):
        inside = inside[: sampling.cap]
    assert np.flatnonzero(seen).tolist() == sorted(inside)
