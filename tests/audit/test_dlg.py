"""The DLG attack: exact without noise, blind with much of it, on any algorithm's messages,
and never a look at private data.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hearsay as hs
from hearsay.audit.dlg import against_noise, invert, kind_of, reconstruct
from hearsay.audit.overhear import Public, overhear
from hearsay.problems.losses.neural_loss import from_function
from hearsay.problems.problem import Problem
from hearsay.simulation import keys

AGENTS = 3


@lru_cache
def model():
    """64 pixels, 12 sigmoid units, 10 classes."""
    rng = np.random.default_rng(0)
    shapes = {"hidden": (64, 12), "hidden_bias": (12,), "out": (12, 10), "out_bias": (10,)}
    params = {name: jnp.asarray(0.4 * rng.normal(size=shape)) for name, shape in shapes.items()}

    def scores(params, image):
        return (
            jax.nn.sigmoid(image.ravel() @ params["hidden"] + params["hidden_bias"]) @ params["out"]
            + params["out_bias"]
        )

    def loss(params, record):
        image, label = record
        found = scores(params, image)
        return jax.nn.logsumexp(found) - found[label.astype(int)]

    return from_function(loss, params, scores=scores)


@lru_cache
def problem(per_step: int = 1, clip: float | None = None) -> Problem:
    options = {"records": 60, "test_records": 200, "per_step": per_step, "clip": clip}
    return hs.problems.neural("digits", model=model(), agents=AGENTS, **options)


GRAPH = hs.graphs.ring(AGENTS)
# Messages on a grid, and weights that change from round to round.
REFUSED = ("quantized-dsgd", "asynchronous-gossip")


def algorithm(name: str, noise=None):
    federated = (
        {"sampling": hs.Fresh(1), "horizon": 8}
        if name.startswith(("correlated", "federated"))
        else {}
    )
    return hs.REGISTRY[name](noise=noise, **federated)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "dsgd",
        *(
            pytest.param(n, marks=pytest.mark.slow)
            for n in ("ldp-online", "gradient-tracking", "correlated-federated")
        ),
    ],
)
def test_without_noise_the_record_is_found(name):
    found = reconstruct(algorithm(name), problem(), GRAPH, agent=1, restarts=1, iterations=100)
    assert found.error < 0.01 < found.blind
    assert np.array_equal(found.guess.labels, found.true_labels)
    assert found.guess.mismatch < 1


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in hs.REGISTRY if n not in REFUSED])
def test_every_algorithm_gives_its_record_away_without_noise(name):
    """sdm-dsgd sends half of the coordinates; an agent of adp2sgd may be asleep,
    so that its activity is set to 1.
    """
    chosen = replace(algorithm(name), activity=1.0) if name == "adp2sgd" else algorithm(name)
    assert reconstruct(chosen, problem(clip=0.5), GRAPH, agent=2, iterations=300).error < 0.05


@pytest.mark.slow
def test_error_rises_with_the_noise_until_a_guess_is_as_good():
    levels = (0.0, 0.5, 2.0, 10.0)
    sweep = against_noise(
        algorithm("ldp-online", 0.02), problem(), GRAPH, levels=levels, targets=4, restarts=1
    )
    assert np.all(np.diff(sweep.mean) > 0)
    assert sweep.mean[0] < 0.01 and sweep.mean[1] < sweep.blind < sweep.mean[-1]
    assert sweep.standard_error.shape == (4,) and sweep.errors.shape == (4, 4)
    # With a prior the attack falls back to the guess instead of showing noise.
    likely = against_noise(
        algorithm("ldp-online", 0.02),
        problem(),
        GRAPH,
        levels=levels,
        targets=4,
        restarts=1,
        prior=True,
    )
    assert np.all(likely.mean[1:] < sweep.mean[1:])
    assert abs(likely.mean[-1] / likely.blind - 1) < 0.15


EFFORT = {"restarts": 1, "iterations": 40}


def test_what_attacks_sees_nothing_private():
    """The run is over; then every record and label is replaced:
    what the attacker finds stays the same to the last bit.
    """
    data, chosen = problem(), algorithm("ldp-online", 0.01)
    heard = overhear(chosen, data, GRAPH, 2)
    rng = np.random.default_rng(1)
    emptied = replace(
        data,
        records=data.records._replace(
            features=rng.integers(0, 255, data.features.shape).astype(np.uint8),
            labels=rng.permuted(data.labels, axis=1),
        ),
    )
    one, two = (
        invert(Public(chosen, p.task, GRAPH), heard, kind_of(p), agent=0, step=0, **EFFORT)
        for p in (data, emptied)
    )
    assert np.array_equal(one.images, two.images)
    assert one.mismatch == two.mismatch
    held = [value for value in vars(data.task).values() if isinstance(value, np.ndarray)]
    assert held
    assert not any(np.shares_memory(array, part) for array in held for part in data.records[:2])


@pytest.mark.parametrize(
    "name", ["ldp-online", pytest.param("correlated-federated", marks=pytest.mark.slow)]
)
def test_messages_are_those_of_a_simulation(name):
    """A model that a simulation reads out, plus nothing: the last noiseless message of ldp-online;
    the state that updates follow from for the other.
    """
    data, chosen, seed = problem(), algorithm(name, 0.3), 5
    heard = overhear(chosen, data, GRAPH, 3, seed)
    run = hs.simulate(chosen, data, GRAPH, steps=2, seeds=[seed], delta=1e-5)
    if name == "ldp-online":
        key = jax.random.fold_in(keys.noise_keys(jnp.asarray([seed]), AGENTS)[0][1], 2)
        scale = float(chosen.noise_for(1)(2))
        sent = run.models[0][1] + scale * np.asarray(
            chosen.draw(key, jnp.zeros(data.dimension)).params
        )
        np.testing.assert_allclose(heard[2].params[1], sent, atol=1e-12)
    else:
        mean = sum(heard[k].update.mean(axis=0) for k in range(2))
        np.testing.assert_allclose(run.models[0][0], data.start - 0.1 * mean, atol=1e-12)


@pytest.mark.slow
def test_a_batch_of_two_records_and_a_later_step():
    two = reconstruct(
        algorithm("dsgd"), problem(per_step=2), GRAPH, labels="known", restarts=2, iterations=300
    )
    assert two.guess.images.shape == two.truth.shape == (2, 8, 8, 1)
    assert two.error < 0.1 < two.blind
    later = reconstruct(algorithm("gradient-tracking"), problem(), GRAPH, step=3, restarts=1)
    assert later.error < 0.01


def test_labels_may_be_known_and_restarts_are_ranked_by_their_fit():
    found = reconstruct(
        algorithm("dsgd", 0.01), problem(), GRAPH, labels="known", restarts=3, iterations=5
    )
    assert np.array_equal(found.guess.labels, found.true_labels)
    assert found.guess.mismatch == found.guess.mismatches.min() and len(found.guess.mismatches) == 3


def test_the_same_call_gives_the_same_image():
    one, two = (
        reconstruct(algorithm("dsgd", 0.02), problem(), GRAPH, restarts=1, iterations=20)
        for _ in range(2)
    )
    assert np.array_equal(one.guess.images, two.guess.images)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"agent": 3}, "agent must be one of 0 to 2, got 3"),
        ({"step": 19}, "step must be at most 18 .*, got 19"),
        ({"restarts": 0}, "restarts must be at least 1"),
        ({"labels": "soft"}, "labels must be one of inferred, known"),
    ],
)
def test_bad_input_is_refused(options, message):
    chosen = hs.ldp_online(noise=None, sampling=hs.Fresh())
    with pytest.raises(ValueError, match=message):
        reconstruct(chosen, problem(), GRAPH, **options)


def test_what_cannot_be_attacked_is_refused():
    with pytest.raises(ValueError, match="problem must be one about images"):
        reconstruct(hs.dsgd(), hs.problems.logistic("digits", agents=AGENTS), GRAPH)
    with pytest.raises(ValueError, match="the batch must be at most 8 records .*'9 at step 0'"):
        reconstruct(hs.dsgd(), problem(per_step=9), GRAPH)
    with pytest.raises(ValueError, match="levels must be zero or positive"):
        against_noise(hs.dsgd(), problem(), GRAPH, levels=[-1.0])
    with pytest.raises(
        ValueError, match="nothing that agent 0 sent at steps 0 and 1 depends on the records"
    ):
        reconstruct(hs.dsgd(step=0.0, noise=None), problem(), GRAPH)
    with pytest.raises(ValueError, match="one whose weights are the same in every round"):
        reconstruct(algorithm("asynchronous-gossip"), problem(clip=0.5), GRAPH)


def test_report_shows_every_target_at_every_level(tmp_path):
    from hearsay.report.attack import attack_report

    sweep = against_noise(
        algorithm("dsgd", 0.02),
        problem(),
        GRAPH,
        levels=(0.0, 1.0),
        targets=2,
        restarts=1,
        iterations=30,
    )
    page = attack_report(sweep, tmp_path).read_text()
    assert page.count("<image ") == 2 * 3
    assert "no noise" in page and "noise × 1" in page and "src=" not in page
    rows = (tmp_path / "private-reconstructions.csv").read_text().splitlines()
    assert len(rows) == 1 + 2 * 2 and rows[0].startswith("level,agent,step,seed")
    assert attack_report(sweep, tmp_path / "again").read_text() == page
