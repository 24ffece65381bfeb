"""Averages of messages: those that the engine carries against NumPy on the messages themselves."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import hearsay as hs
from hearsay.algorithms.baselines.dsgd import Dsgd
from hearsay.release.readouts import Exponential, Last, Mean, Tail, as_readouts
from hearsay.simulation.engine import Round
from hearsay.simulation.rounds import Rounds
from tests.factories import holding, uniform

KINDS = (Tail(), Exponential(0.8), Mean(), Last())
STEPS = 12


def problem() -> hs.problems.Problem:
    return holding(hs.problems.HalfSquared(1.0, 0.1), *uniform(3, 8, 2))


def everything_sent(seen: Round) -> Any:
    """What a tap keeps of a round: all that anybody has sent and heard."""
    return seen.sent, seen.relayed, seen.inbox, seen.rates


def slow(kind: Any, models: np.ndarray) -> np.ndarray:
    """The average of models (round, ...), as one would write it down."""
    rounds = len(models)
    if isinstance(kind, Last):
        return models[-1]
    if isinstance(kind, Mean):
        return models.mean(axis=0)
    if isinstance(kind, Exponential):
        weights = kind.decay ** np.arange(rounds)[::-1]
        return np.tensordot(weights / weights.sum(), models, 1)
    starts = [0, 1]
    while starts[-1] < rounds:
        starts.append(2 * starts[-1])
    begun = [start for start in starts if start < rounds]
    return models[begun[max(0, len(begun) - 2)] :].mean(axis=0)


@pytest.mark.parametrize("rounds", [1, 2, 3, 4, 5, 16, 17])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_slots_hold_what_a_plain_average_gives(kind: Any, rounds: int) -> None:
    messages = np.random.default_rng(0).normal(size=(rounds, 4))
    slots = np.zeros((kind.slots, 4))
    for (keep, add), message in zip(kind.weights(np.arange(rounds)), messages, strict=True):
        slots = keep[:, None] * slots + add[:, None] * message
    np.testing.assert_allclose(kind.mix(rounds) @ slots, slow(kind, messages), rtol=1e-12)


def test_a_tail_is_at_least_its_share_and_never_all_but_the_first() -> None:
    for share in (0.2, 0.5, 0.8):
        for rounds in (30, 31, 100, 999):
            first = int(Tail(share).of_rounds(rounds).split()[-3])
            used = (rounds - first) / rounds
            assert share - 0.05 <= used <= 1 - (1 - share) ** 2 + 0.05


ALGORITHMS = {
    "dsgd": hs.dsgd(noise=0.3),
    "averaging": hs.gradient_perturbation(mechanism="gaussian", averaging=2, noise=0.3),
    "gradient-tracking": hs.gradient_tracking(noise=0.3),
    "average of own": hs.ldp_online(noise=0.3, average=True),
}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_engine_averages_what_was_sent(name: str) -> None:
    algorithm, graph = ALGORITHMS[name], hs.graphs.ring(3)
    plain = Rounds(algorithm, problem(), graph, [0, 5])
    with_them = Rounds(algorithm, problem(), graph, [0, 5], readouts=KINDS)
    _, relayed, *_ = plain.advance(STEPS, everything_sent)
    for count in (6, 6):
        with_them.advance(count)
    # Carrying averages along changes no trajectory.
    np.testing.assert_array_equal(plain.models, with_them.models)
    sent = np.asarray(relayed.params)
    first = 0
    for kind in KINDS:
        mine = np.asarray(with_them.carry.kept.slots)[:, first : first + kind.slots]
        found = np.tensordot(kind.mix(STEPS), mine, (0, 1))
        np.testing.assert_allclose(found, slow(kind, sent), rtol=1e-10, atol=1e-12)
        first += kind.slots


def test_nothing_is_carried_unless_it_is_asked_for() -> None:
    rounds = Rounds(hs.dsgd(), problem(), hs.graphs.ring(3), [0])
    assert rounds.carry.kept == ()
    assert hs.simulate(hs.dsgd(), problem(), hs.graphs.ring(3), steps=2, release=()).averages == {}


def test_silent_agents_show_what_they_sent_last() -> None:
    algorithm = hs.adp2sgd(activity=0.4)
    rounds = Rounds(algorithm, problem(), hs.graphs.ring(3), [1], readouts=(Mean(), Last()))
    sent, *_ = Rounds(algorithm, problem(), hs.graphs.ring(3), [1]).advance(STEPS, everything_sent)
    rounds.advance(STEPS)
    models, awake = np.asarray(sent.params)[:, 0], np.asarray(sent.awake)[:, 0]
    shown, now = [], np.zeros_like(models[0])
    for model, here in zip(models, awake, strict=True):
        now = np.where(here[:, None] > 0, model, now)
        shown.append(now)
    assert not awake.all()
    found = np.asarray(rounds.carry.kept.slots)[0]
    np.testing.assert_allclose(found[0], np.mean(shown, axis=0), rtol=1e-10, atol=1e-12)
    np.testing.assert_array_equal(found[1], shown[-1])


def test_gossip_counts_silence_as_silence() -> None:
    algorithm = hs.asynchronous_gossip(noise=0.3)
    rounds = Rounds(algorithm, problem(), hs.graphs.ring(3), [1], readouts=(Last(),))
    sent, *_ = Rounds(algorithm, problem(), hs.graphs.ring(3), [1]).advance(STEPS, everything_sent)
    rounds.advance(STEPS)
    models = np.asarray(sent.params)[:, 0]
    for agent in range(3):
        spoken = [model for model in models[:, agent] if np.any(model)]
        expected = spoken[-1] if spoken else np.zeros(2)
        np.testing.assert_array_equal(rounds.carry.kept.slots[0, 0, agent], expected)


def test_the_federated_model_follows_from_its_messages() -> None:
    algorithm = hs.correlated_federated(step=0.1, horizon=20, noise=0.2, sampling=hs.Fresh(2))
    stream = holding(hs.problems.HalfSquared(1.0, 0.1), *uniform(3, 40, 2))
    run = hs.simulate(algorithm, stream, hs.graphs.complete(3), steps=9, delta=1e-5, release="last")
    np.testing.assert_array_equal(run.averages["last"], run.models)
    assert run.release(of=1).average_of == "message 8 of agent 1"


@dataclass(frozen=True, kw_only=True)
class Confused(Dsgd):
    """DSGD that keeps another private state than it should."""

    def update(self, state: Any, sent: Any, *rest: Any) -> Any:
        return super().update(state, sent, *rest)._replace(params=sent.params + 100.0)


def test_what_is_shown_depends_on_messages_alone() -> None:
    algorithm = hs.dsgd(noise=0.3)
    before = Rounds(algorithm, problem(), hs.graphs.ring(3), [0], readouts=KINDS)
    before.advance(1)
    other = Rounds(Confused(noise=0.3), problem(), hs.graphs.ring(3), [0], readouts=KINDS)
    other.advance(1)
    # The same message has left; what is kept in private after it differs by 100.
    assert float(np.abs(np.asarray(before.models) - np.asarray(other.models)).min()) > 90
    np.testing.assert_array_equal(before.carry.kept.slots, other.carry.kept.slots)


def test_bad_readouts_are_named() -> None:
    with pytest.raises(ValueError, match="release must be one of tail, exponential, mean, last"):
        as_readouts("release", "median")
    with pytest.raises(ValueError, match="names every kind once"):
        as_readouts("release", ["tail", Tail(0.2)])
    with pytest.raises(ValueError, match="decay must be"):
        Exponential(1.0)
    with pytest.raises(ValueError, match="share must be"):
        Tail(0.0)


def test_a_resumed_run_keeps_its_averages(tmp_path: Any) -> None:
    algorithm, graph, options = hs.dsgd(noise=0.3), hs.graphs.ring(3), {"every": 4, "seeds": 2}
    whole = hs.simulate(algorithm, problem(), graph, steps=12, **options)
    hs.simulate(algorithm, problem(), graph, steps=8, folder=tmp_path, **options)
    resumed = hs.simulate(
        algorithm, problem(), graph, steps=12, folder=tmp_path, resume=True, **options
    )
    np.testing.assert_array_equal(whole.averages["tail"], resumed.averages["tail"])
    np.testing.assert_array_equal(
        whole.metrics["released_error"], resumed.metrics["released_error"]
    )
    with pytest.raises(ValueError, match="another configuration"):
        hs.simulate(
            algorithm,
            problem(),
            graph,
            steps=12,
            folder=tmp_path,
            resume=True,
            release=replace(Tail(), share=0.3),
            **options,
        )
