"""Secret batches of deployed agents: where they come from, that a round has one of them however
often its agent dies, and that nothing tells who is in them.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sqlite3
from contextlib import closing
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

import hearsay as hs
from hearsay.base import Inbox
from hearsay.certification.describing import accounts, message_bound, own_amplified, rounded
from hearsay.deploy.agent import Agent
from hearsay.deploy.coins import Secret
from hearsay.deploy.history import read
from hearsay.deploy.settings import load
from hearsay.deploy.steps import Steps
from hearsay.deploy.transport import Transport
from hearsay.problems.data.records import Records
from hearsay.problems.losses.neural_loss import NeuralLoss, from_function
from hearsay.problems.losses.torch_clipping import blocks
from hearsay.problems.sampling.samplers import Coins, Poisson
from tests.deploy.networks import Threads, run_threads, write

TWO = ("alice", "bob")
POISSON = {"name": "gradient-perturbation", "sampling": "poisson", "sample_rate": 0.3}


def network(folder, algorithm=POISSON, steps=6, run="test"):
    return write(
        folder,
        run=run,
        file=f"{run}.toml",
        names=TWO,
        graph={"kind": "complete"},
        algorithm={"noise": 1.0, **algorithm},
        privacy={},
        run_table={"steps": steps},
    )


def held(rows: int) -> Records:
    return Records(np.zeros((rows, 2)), np.zeros(rows), np.asarray(rows))


def test_a_round_has_coins_of_its_own_and_keeps_them():
    batches = Secret(Poisson(0.5), held(64))
    first, kept = batches.at(0), batches.kept(0)
    assert batches.at(0) is first
    second = batches.at(1)
    # 64 words of 32 bits: none of them is the same but with probability 64 x 2^-32.
    assert not np.any(np.asarray(first.values) == np.asarray(second.values))
    with pytest.raises(ValueError, match="a round has one batch"):
        batches.at(0)
    again = Secret(Poisson(0.5), held(64))
    again.restore(0, kept)
    np.testing.assert_array_equal(again.at(0).values, first.values)
    other = Secret(Poisson(0.5), held(64)).at(0)
    assert not np.any(np.asarray(first.values) == np.asarray(other.values))
    with pytest.raises(ValueError, match="the ledger has no coins of message 3"):
        again.restore(3, {})


def test_they_come_from_the_operating_system(monkeypatch):
    """The words of a round follow from 32 bytes of its own, and from nothing else."""
    asked = []

    def urandom(count):
        asked.append(count)
        return bytes([len(asked)]) * count

    monkeypatch.setattr(os, "urandom", urandom)
    one, other = (Secret(hs.Subset(5), held(40)) for _ in range(2))
    orders = [np.asarray(batches.at(k).values) for batches in (one, other) for k in range(3)]
    assert asked == [32] * 6
    assert all(sorted(order) == list(range(40)) for order in orders)
    assert len({tuple(order) for order in orders}) == 6


def test_their_law():
    """20,000 coins of 0.3 within 6 standard deviations (2e-9); 1,000 subsets of 5 of 20, each
    record in 250 of them within 6 (4e-8 for all).
    """
    batches = Secret(Poisson(0.3), held(20_000))
    fell = np.asarray(batches.at(0).values) < np.uint32(0.3 * 2**32)
    assert abs(fell.sum() - 6000) < 6 * np.sqrt(20_000 * 0.21)
    batches, counts = Secret(hs.Subset(5), held(20)), np.zeros(20)
    for step in range(1000):
        counts[np.asarray(batches.at(step).values)[:5]] += 1
    assert np.abs(counts - 250).max() < 6 * np.sqrt(1000 * 0.25 * 0.75)


def used_in(monkeypatch) -> list[tuple[int, int, bytes]]:
    """(agent, round, secret) of every batch that an update uses."""
    found, update = [], Steps.update

    def updated(self, step, *args):
        found.append((self.agent, step, self.batches.kept(step)["coins"].tobytes()))
        return update(self, step, *args)

    monkeypatch.setattr(Steps, "update", updated)
    return found


class Died(Exception):
    """In the place of a process that is killed."""


def kill_alice(monkeypatch, kills: set[tuple[str, int]]) -> None:
    """At those moments, once each."""

    def wrap(method: str, before: str, after: str) -> None:
        plain = getattr(Agent, method)

        def wrapped(self, number, *args):
            def die(moment: str) -> None:
                if self.name == "alice" and (moment, number) in kills:
                    kills.discard((moment, number))
                    raise Died(moment)

            die(before)
            result = plain(self, number, *args)
            die(after)
            return result

        monkeypatch.setattr(Agent, method, wrapped)

    wrap("_commit", "before ledger", "after ledger")
    wrap("_publish", "", "after publish")
    wrap("_update", "", "after update")


def run_with_deaths(path) -> int:
    deaths = 0
    with Threads(load(path), None) as fleet:
        fleet.start_all()
        while isinstance(fleet.join("alice"), Died):
            deaths += 1
            fleet.start("alice")
        fleet.models()
    return deaths


def require_one_batch(found: list[tuple[int, int, bytes]], rounds: int) -> None:
    assert {(agent, step) for agent, step, _ in found} == {
        (agent, step) for agent in range(2) for step in range(rounds)
    }
    # Another secret for the same round would be a second batch.
    assert len(set(found)) == 2 * rounds
    assert len({secret for *_, secret in found}) == 2 * rounds, "coins shared between rounds"


@pytest.mark.parametrize(
    "algorithm",
    [POISSON, {"name": "gradient-perturbation", "sampling": "subset", "sample_size": 4}],
    ids=["poisson", "subset"],
)
def test_a_round_has_one_batch_whenever_the_agent_dies(algorithm, tmp_path, monkeypatch):
    """The coins of a round are in the ledger before its message leaves, and before its batch is
    used.
    """
    found = used_in(monkeypatch)
    moments = ("before ledger", "after ledger", "after publish", "after update")
    kill_alice(monkeypatch, {(moment, number + 1) for number, moment in enumerate(moments)})
    assert run_with_deaths(network(tmp_path, algorithm)) == 4
    assert len(found) > 12, "the batch of a round was used again after a death"
    require_one_batch(found, 6)


def test_coins_that_are_drawn_again_after_a_death_would_be_seen(tmp_path, monkeypatch):
    found = used_in(monkeypatch)
    monkeypatch.setattr(Secret, "restore", lambda *_: None)
    kill_alice(monkeypatch, {("after update", 2)})
    assert run_with_deaths(network(tmp_path, steps=4)) == 1
    with pytest.raises(AssertionError):
        require_one_batch(found, 4)


def test_the_ledger_has_the_coins_of_the_last_round_only(tmp_path, monkeypatch):
    found, path = used_in(monkeypatch), network(tmp_path, steps=4)
    kill_alice(monkeypatch, {("after update", 3)})
    with Threads(load(path), None) as fleet:
        fleet.start_all()
        assert isinstance(fleet.join("alice"), Died)
        fleet.stop("bob")
        with closing(sqlite3.connect(load(path).members[0].ledger)) as db:
            state = db.execute("SELECT arrays FROM state").fetchone()[0]
            rows = db.execute("SELECT * FROM rounds").fetchall()
    kept = b"".join(value for row in rows for value in row if isinstance(value, bytes))
    secrets = {step: secret for agent, step, secret in found if agent == 0}
    assert secrets[3] in state
    assert not any(secrets[step] in state for step in range(3))
    assert not any(secret in kept for secret in secrets.values())


def told(path, monkeypatch, caplog, word: int) -> tuple[list, list, list]:
    """(logs, answers and sizes of messages, what ledgers and reports say) of a run in which every
    coin is that word.
    """
    caplog.clear()
    publish, hello, seen = Transport.publish, Agent._hello, []

    def published(self, round, payload):
        seen.append((round, len(payload)))
        publish(self, round, payload)

    def answered(self, what):
        found = hello(self, what)
        if found and what == "hello":
            seen.append(tuple(sorted(json.loads(found))))
        return found

    with monkeypatch.context() as patch:
        patch.setattr(Transport, "publish", published)
        patch.setattr(Agent, "_hello", answered)
        patch.setattr(
            Poisson, "draw", lambda self, words, records: Coins(
                np.full(records.labels.shape[0], word, np.uint32)
            )
        )  # fmt: skip
        run_threads(load(path), None)
    logs = sorted(
        re.sub(r"127.0.0.1:\d+", "", record.getMessage())
        for record in caplog.records
        if record.name.startswith("hearsay")
    )
    agents = [
        (agent.spent, agent.sent, agent.messages, agent.skipped) for agent in read(path).agents
    ]
    return logs, sorted(set(seen), key=repr), agents


def test_nothing_tells_how_many_records_were_drawn(tmp_path, monkeypatch, caplog):
    """All coins fall, or none does: logs, answers, sizes of messages, ledgers and reports say the
    same. What they say of a batch's size would differ.
    """
    caplog.set_level(logging.INFO)
    full, none = (
        told(network(tmp_path / str(word), steps=4), monkeypatch, caplog, word)
        for word in (0, 2**32 - 1)
    )
    assert full == none
    assert any("round 4 of 4" in line for line in full[0])
    update = Steps.update

    def talkative(self, step, *args):
        drawn = int(np.sum(np.asarray(self.batches.at(step).values) == 0))
        logging.getLogger("hearsay.agent").info("a batch of %d records", drawn)
        return update(self, step, *args)

    monkeypatch.setattr(Steps, "update", talkative)
    full, none = (
        told(network(tmp_path / f"told {word}", steps=2), monkeypatch, caplog, word)
        for word in (0, 2**32 - 1)
    )
    assert full != none, "the comparison must see an agent that logs it"


@pytest.mark.slow
def test_a_deployed_certificate_rests_on_secret_batches(tmp_path):
    """What is calibrated and certified is what runs: with as much noise, batches that are charged
    in full cost more than twice as much.
    """
    folder, noise = tmp_path / "secret", {"mechanism": "gaussian", "noise": 1.0}
    path = write(
        folder,
        names=TWO,
        graph={"kind": "complete"},
        algorithm={**POISSON, **noise},
        privacy={"epsilon": 2.0, "delta": 1e-5, "adjacency": "zero-out"},
        run_table={"steps": 4},
    )
    agents = run_threads(load(path), None)
    certificate = agents["alice"].plan.certificate
    assert "secret batches" in certificate.budgets[0].basis
    assert 1.9 < certificate.budgets[0].epsilon <= 2.0
    assert isinstance(agents["alice"].steps.batches, Secret)
    plan = agents["alice"].plan
    full = accounts(plan.algorithm, plan.task, plan.graph, 0)[0]
    assert full.certified(4, 1e-5).epsilon > 2 * certificate.budgets[0].epsilon


def test_a_slot_does_not_change_how_a_network_s_gradient_is_rounded():
    """An empty record moves the others to other slots. A margin of huge terms that cancel is then
    rounded otherwise, and with it a clipped gradient from one end to the other: no error that a
    certificate counts covers that, so that it may not happen.
    """
    rng, rows, d = np.random.default_rng(0), 100, 30
    features, point = rng.normal(size=(rows, d)) * 1e8, rng.normal(size=d) * 1e3
    features -= np.outer(features @ point, point) / (point @ point)
    features[0] = 0.0  # the empty one
    given = [(features / 1e12, np.zeros(rows))] * 2
    problem = hs.problems.logistic(
        given, feature_bound=1.0, clip=1.0, adjacency="zero-out", radius=1e5
    )
    squared, _ = from_function(lambda p, record: (record[0] @ p - record[1]) ** 2, jnp.zeros(d))
    task = replace(problem.task, loss=NeuralLoss(squared, clip=1.0))
    algorithm = hs.gradient_perturbation(step=1.0, noise=0.01, sampling=hs.Poisson(0.9, rows))
    graph = hs.graphs.ring(2)

    steps = Steps(algorithm, task, Records(features, features @ point, np.array(rows)), 0, graph)
    kind = steps.message()[0]
    here = kind(params=jnp.asarray(point))

    class Fixed:
        def at(self, step):
            words = np.zeros(rows, np.uint32)
            words[0] = 0 if step == 0 else 2**32 - 1
            return Coins(jnp.asarray(words))

    def after(step):
        inbox = Inbox(here, kind(params=jnp.zeros(d)))
        return np.asarray(steps.update(step, steps.start(), here, inbox).states.params)

    steps.batches = Fixed()
    account = own_amplified(algorithm, task, graph, 0)[0]
    numbers = rounded(algorithm, task, graph, 0, message_bound(algorithm, task, graph, 3))
    allowed = 0.01 * float(account._errors(2, numbers)[0]) / np.sqrt(d)
    assert allowed < 1e-6
    # All records at once would move it by one record's whole clip on some machines: 0.011.
    assert np.linalg.norm(after(0) - after(1)) <= allowed
    assert steps.program.loss.microbatch == 1
    steps.rehearsed(0)
    assert steps.program.loss.microbatch is None
    # Torch takes empty slots too: how many are filled may not show in the time.
    assert len(list(blocks(np.array([1.0, 0.0, 0.0]), 1))) == 3
    assert len(list(blocks(np.zeros(3), 1))) == 3 and not list(blocks(np.zeros(3), 2))
