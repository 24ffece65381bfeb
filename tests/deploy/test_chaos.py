"""Agents are killed with SIGKILL at every kind of moment, and links are cut:
the run ends as if nothing had happened.
"""

from __future__ import annotations

import hashlib
import itertools
import random
import threading
from collections import defaultdict

import numpy as np
import pytest

from hearsay.deploy import budget, links
from hearsay.deploy.agent import Agent
from hearsay.deploy.deployment import deployment
from hearsay.deploy.host import Refused, Stopped
from hearsay.deploy.ledger import Ledger
from hearsay.deploy.settings import load
from tests.deploy.networks import (
    NAMES,
    SECONDS,
    Gate,
    Processes,
    Threads,
    Wire,
    models,
    run_threads,
    size_of,
    wait_for,
    write,
)  # fmt: skip
from tests.deploy.worker import POINTS

STEPS = 12
THREE = NAMES[:3]


def planned_kills(
    rng: random.Random, names, steps: int, each: int
) -> dict[str, list[tuple[int, str]]]:
    """Every kind of moment, in random rounds."""
    moments = itertools.cycle(POINTS)
    return {name: [(rng.randrange(steps), next(moments)) for _ in range(each)] for name in names}


def check_ledgers(path, witness) -> None:
    """Every message left as one string of bytes only, which the ledger holds;
    the ledger's budget is exact.
    """
    left: dict[tuple[str, int], set[str]] = defaultdict(set)
    for line in witness.read_text().splitlines():
        name, step, digest, *_ = line.split()
        left[name, int(step)].add(digest)
    network = load(path)
    for number, member in enumerate(network.members):
        plan = deployment(network, number)
        curve = budget.curve(plan, number)
        about = {"run": network.run, "agent": member.name, "configuration": network.digest}
        with Ledger(member.ledger, about) as ledger:
            history, exchanges = ledger.history(), plan.phases.first(plan.messages)
            assert [row[0] for row in history] == list(range(exchanges))
            # A relay costs nothing.
            spent = np.repeat(curve, plan.phases.count)
            np.testing.assert_array_equal([row[1] for row in history], spent)
            for step in range(exchanges):
                payload = ledger.message(step)
                kept = (
                    left[member.name, step]
                    if payload is None
                    else {hashlib.sha256(payload).hexdigest()}
                )
                assert left[member.name, step] == kept and len(kept) == 1, (member.name, step)


def chaos(
    tmp_path, seed, *, names=THREE, steps=STEPS, each=2, random_kills=0, kills=None, settings=None,
    **options,
):  # fmt: skip
    rng = random.Random(f"chaos {seed} {each}")
    path = write(tmp_path, names=names, run_table={"steps": steps}, **(settings or {}))
    witness = tmp_path / "witness"
    kills = kills or planned_kills(rng, names, steps, each)
    with Processes(
        [path], seed=seed, names=names, kills=kills, witness=str(witness), **options
    ) as fleet:
        fleet.start_all()
        stop = threading.Event()

        def also_at_random() -> None:
            for _ in range(random_kills):
                if stop.wait(rng.uniform(0.2, 1.5)):
                    return
                victim = fleet.running[rng.choice(names)]
                if victim.is_alive():
                    victim.kill()

        thread = threading.Thread(target=also_at_random)
        thread.start()
        try:
            restarts = fleet.watch(2 * SECONDS)
        finally:
            stop.set()
            thread.join()
    check_ledgers(path, witness)
    assert restarts >= sum(len(set(one)) for one in kills.values())
    return path


def calm(tmp_path, names=THREE, steps=STEPS, **settings) -> np.ndarray:
    """The models of an undisturbed run."""
    undisturbed = run_threads(
        load(write(tmp_path / "calm", names=names, run_table={"steps": steps}, **settings)), 3
    )
    return np.stack([undisturbed[name].model for name in names])


def test_a_kill_at_every_kind_of_moment_changes_nothing(tmp_path):
    """The simulator's noise, so that the undisturbed run is known: equal to the last bit."""
    path = chaos(tmp_path / "chaos", seed=3)
    np.testing.assert_array_equal(models(path), calm(tmp_path))


def test_real_noise_is_never_drawn_twice_for_a_message_that_left(tmp_path):
    """Noise from the operating system: what left twice is the same bytes, although no seed could
    bring them back. Messages and states in files, as large ones are.
    """
    chaos(tmp_path, seed=None, names=NAMES[:2], each=3, large=64)


AVERAGED = {
    "graph": {"kind": "ring", "weight": 0.25},
    "algorithm": {
        "name": "gradient-perturbation",
        "sampling": "cyclic",
        "sample_size": 3,
        "averaging": 2,
        "chebyshev": True,
    },
}
# Every kind of moment in all exchanges of one round, and in the first of the next.
PLACES = (3, 4, 5, 6)
MOMENTS = [(number, point) for point in POINTS for number in PLACES]


@pytest.mark.parametrize(
    ("seed", "large", "moments"),
    [
        # Six of them, each of another kind.
        (3, None, list(zip(itertools.cycle(PLACES), POINTS, strict=False))),
        pytest.param(3, None, MOMENTS, marks=pytest.mark.slow),
        pytest.param(None, 64, MOMENTS, marks=pytest.mark.slow),
    ],
    ids=["six", "all", "all, real noise, in files"],
)
def test_a_kill_in_any_exchange_of_a_round_changes_nothing(tmp_path, seed, large, moments):
    """A relay is made again from messages, or sent again as it was; no gradient, no batch and no
    noise is.
    """
    assert len({point for _, point in moments}) == len(POINTS)
    kills = {name: moments[number::3] for number, name in enumerate(THREE)}
    path = chaos(
        tmp_path / "chaos", seed, steps=4, kills=kills, large=large, settings=AVERAGED
    )  # fmt: skip
    if seed is not None:
        np.testing.assert_array_equal(models(path), calm(tmp_path, THREE, 4, **AVERAGED))


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "large"), [(3, None), (None, 64)])
def test_many_kills_change_nothing(tmp_path, seed, large):
    path = chaos(
        tmp_path / "chaos", seed=seed, names=NAMES, steps=40, each=6, random_kills=6, large=large
    )
    if seed is not None:
        np.testing.assert_array_equal(models(path), calm(tmp_path, NAMES, 40))


def test_a_partition_heals(tmp_path, monkeypatch):
    """Not a byte between alice and bob, in the middle of a run: both give the link up, wait,
    make it anew, and ask for what was lost.
    """
    monkeypatch.setattr(links, "LEASE_MS", 1000)
    path = write(tmp_path, names=THREE, run_table={"steps": STEPS})
    network, gate = load(path), Gate(4)
    wire = Wire(network.members[1].peer.port)
    # Alice, who connects to bob, finds him at the end of the wire.
    through = tmp_path / "alice.toml"
    through.write_text(
        path.read_text().replace(network.members[1].endpoint, f"tcp/127.0.0.1:{wire.port}")
    )
    assert load(through).digest == network.digest
    with Threads(network) as fleet:
        for name in THREE[1:]:
            fleet.start(name)
        alice = fleet.start("alice", gate, network=load(through))
        with gate:
            wire.cut.set()
        wait_for(
            lambda: alice.transport.alive() == {"carol"} and alice.neighbours.waiting_for == ["bob"]
        )
        assert size_of(network, 0) in (5, 6) and all(map(fleet.runs, THREE)), (
            "bob's message 4 may have come before"
        )
        wire.cut.clear()
        np.testing.assert_array_equal(fleet.models(), calm(tmp_path))
    wire.close()


def test_a_deadline_stops_an_agent_and_says_why_and_the_same_command_goes_on(tmp_path):
    two = {"names": NAMES[:2], "graph": {"kind": "complete"}}
    network, gate = load(write(tmp_path, **two)), Gate(4)
    with Threads(network) as fleet:
        fleet.start("bob")
        fleet.start("alice", gate)
        with gate:
            fleet.stop("bob")
            object.__setattr__(network, "deadline", 0.3)
        ended = fleet.join("alice")
        assert isinstance(ended, Stopped) and not isinstance(ended, Refused)
        where = network.members[1].endpoint.partition("/")[2]
        assert f"from bob (not connected) within 0.3 s ({where}: connection refused)" in str(ended)
        assert "start this agent again" in str(ended)
        object.__setattr__(network, "deadline", SECONDS)
        fleet.start_all()
        np.testing.assert_array_equal(
            fleet.models(), calm(tmp_path, NAMES[:2], graph={"kind": "complete"})
        )


def test_skip_goes_on_without_a_silent_neighbour(tmp_path):
    """carol ends and never comes back: alice and bob finish, the ledger names whom they did
    without, and nobody waits.
    """
    settings = {"network": {"policy": "skip", "patience": SECONDS}, "graph": {"kind": "complete"}}
    network, gate = load(write(tmp_path, names=THREE, **settings)), Gate(4)
    with Threads(network, None) as fleet:
        for name in THREE[1:]:
            fleet.start(name)
        fleet.start("alice", gate)
        with gate:
            fleet.stop("carol")
        wait_for(lambda: all(fleet.agents[name]._done for name in THREE[:2]))
        # At the end they would wait for her to say that she is done.
        object.__setattr__(network, "deadline", 0.1)
        fleet.join(*THREE[:2])
    about = {"run": network.run, "agent": "alice", "configuration": network.digest}
    with Ledger(network.members[0].ledger, about) as ledger:
        without = [notes["skipped"] for _, _, notes in ledger.history()]
    assert without[0] == [] and without[-1] == ["carol"]


def test_skip_begins_with_everybody(tmp_path, monkeypatch):
    """carol has answered all others and dies before her first message: nobody goes on without her,
    and she misses nothing.
    """
    settings = {"network": {"policy": "skip"}, "graph": {"kind": "complete"}}
    network = load(write(tmp_path, names=THREE, **settings))
    others = THREE[:2]
    with Threads(network, None) as fleet:
        with monkeypatch.context() as dying:
            agree = Agent._greet

            def greet(agent: Agent, last: int) -> None:
                agree(agent, last)
                if agent.name == "carol":
                    wait_for(lambda: all(fleet.agents[name]._committed for name in others))
                    raise RuntimeError("killed")

            dying.setattr(Agent, "_greet", greet)
            fleet.start_all()
            assert isinstance(fleet.join("carol"), RuntimeError)

        def alone(agent: Agent) -> bool:
            gone = hasattr(agent, "transport") and "carol" not in agent.transport.alive()
            return gone and (agent._round > 0 or agent.neighbours.waiting_for == ["carol"])

        wait_for(lambda: all(alone(fleet.agents[name]) for name in others))
        fleet.start("carol")
        fleet.models()
    for number, name in enumerate(THREE):
        about = {"run": network.run, "agent": name, "configuration": network.digest}
        with Ledger(network.members[number].ledger, about) as ledger:
            assert all(notes["skipped"] == [] for _, _, notes in ledger.history())


def test_who_was_away_for_long_is_told_what_it_lost(tmp_path, caplog):
    """Policy skip with room for a few messages: carol comes back, does without those that
    were discarded, and ends.
    """
    settings = {
        "network": {"policy": "skip", "patience": SECONDS, "keep": 1000},
        "graph": {"kind": "complete"},
    }
    network, gate = load(write(tmp_path, names=THREE, **settings)), Gate(4)
    with Threads(network, None) as fleet:
        for name in THREE[1:]:
            fleet.start(name)
        fleet.start("alice", gate)
        with gate:
            fleet.stop("carol")
        wait_for(lambda: all(fleet.agents[name]._done for name in THREE[:2]))
        assert (
            0
            < fleet.agents["alice"].ledger.size()
            <= 1000
            < 300 * fleet.agents["alice"].ledger.oldest()
        )
        fleet.start("carol")
        fleet.models()
    assert (
        "discarded the messages before" in caplog.text
        and "has discarded its messages before" in caplog.text
    )
    with Ledger(network.members[2].ledger, {}) as ledger:
        without = [notes["skipped"] for _, _, notes in ledger.history()]
    assert (
        len(without) == fleet.agents["carol"].total
        and without[1] == []
        and without[-1] == ["alice", "bob"]
    )
