"""Agents are killed with SIGKILL at every kind of moment, and links are cut: the run ends as if nothing had happened."""

from __future__ import annotations

import hashlib
import random
import socket
import sqlite3
import threading
import time
from collections import defaultdict
from contextlib import closing

import numpy as np
import pytest

from hearsay.deploy import budget
from hearsay.deploy.ledger import Ledger
from hearsay.deploy.plan import planned
from hearsay.deploy.settings import load
from tests.deploy.networks import NAMES, Processes, models, run_threads, write
from tests.deploy.worker import POINTS

STEPS = 40


def planned_kills(rng: random.Random, each: int) -> dict[str, list[tuple[int, str]]]:
    """Every kind of moment for every agent, in random rounds."""
    return {name: [(rng.randrange(STEPS), POINTS[i % len(POINTS)]) for i in range(each)] for name in NAMES}


def check_ledgers(path, witness) -> None:
    """Every message left as one string of bytes only, which the ledger holds; the ledger's budget is exact."""
    left: dict[tuple[str, int], set[str]] = defaultdict(set)
    for line in witness.read_text().splitlines():
        name, step, digest, *_ = line.split()
        left[name, int(step)].add(digest)
    network = load(path)
    for number, member in enumerate(network.members):
        plan = planned(network, number)
        curve = budget.curve(plan, number)
        about = {"run": network.run, "agent": member.name, "configuration": network.digest}
        with Ledger(member.ledger, about) as ledger:
            history = ledger.history()
            assert [row[0] for row in history] == list(range(plan.messages))
            np.testing.assert_array_equal([row[1] for row in history], curve)
            for step in range(plan.messages):
                payload = ledger.message(step)
                kept = left[member.name, step] if payload is None else {hashlib.sha256(payload).hexdigest()}
                assert left[member.name, step] == kept and len(kept) == 1, (member.name, step)


def chaos(tmp_path, seed, each, random_kills, seconds, **options):
    rng = random.Random(f"chaos {seed} {each}")
    path, witness = write(tmp_path, run_table={"steps": STEPS}), tmp_path / "witness"
    kills = planned_kills(rng, each)
    with Processes([path], seed=seed, kills=kills, witness=str(witness), pace=0.02, **options) as fleet:
        fleet.start_all()
        stop = threading.Event()

        def also_at_random() -> None:
            for _ in range(random_kills):
                if stop.wait(rng.uniform(0.2, 1.5)):
                    return
                victim = fleet.running[rng.choice(NAMES)]
                if victim.is_alive():
                    victim.kill()

        thread = threading.Thread(target=also_at_random)
        thread.start()
        try:
            restarts = fleet.watch(seconds)
        finally:
            stop.set()
            thread.join()
    check_ledgers(path, witness)
    return path, restarts


def test_thirty_kills_change_nothing(tmp_path):
    """The simulator's noise, so that the undisturbed run is known: equal to the last bit."""
    path, restarts = chaos(tmp_path / "chaos", seed=3, each=6, random_kills=6, seconds=170)
    assert restarts >= 30
    calm = write(tmp_path / "calm", run_table={"steps": STEPS})
    undisturbed = run_threads(load(calm), 3)
    np.testing.assert_array_equal(models(path), np.stack([undisturbed[name].model for name in NAMES]))


def test_real_noise_is_never_drawn_twice_for_a_message_that_left(tmp_path):
    """Noise from the operating system: what left twice is the same bytes, although no seed could bring them back. Messages and states in files, as large ones are."""
    _, restarts = chaos(tmp_path, seed=None, each=2, random_kills=2, seconds=120, large=64)
    assert restarts >= 10


class Wire:
    """A TCP wire to a port that can be cut: bytes stop, and nobody is told."""

    def __init__(self, target: int) -> None:
        self.target, self.cut, self._ends = target, threading.Event(), list[socket.socket]()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port, self.carried = self._listener.getsockname()[1], 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near = self._listener.accept()[0]
                self._ends.append(near)
                far = socket.create_connection(("127.0.0.1", self.target))
                self._ends.append(far)
            except OSError:
                if self._listener.fileno() < 0:
                    return
                continue
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._carry, args=(source, sink), daemon=True).start()

    def _carry(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                while self.cut.is_set():
                    time.sleep(0.01)
                sink.sendall(data)
                self.carried += len(data)
        except OSError:
            pass
        finally:
            for end in (source, sink):
                end.close()

    def close(self) -> None:
        for end in (self._listener, *self._ends):
            end.close()


def test_a_partition_heals(tmp_path):
    """Five seconds without a byte between alice and bob, in the middle of a run: both wait, and go on when it is over."""
    path = write(tmp_path, names=NAMES[:3], run_table={"steps": 150})
    network = load(path)
    wire = Wire(int(network.members[1].endpoint.rpartition(":")[2]))
    through = tmp_path / "alice.toml"  # alice, who connects to bob, finds him at the end of the wire
    through.write_text(path.read_text().replace(network.members[1].endpoint, f"tcp/127.0.0.1:{wire.port}"))
    assert load(through).digest == network.digest
    with Processes([path], names=NAMES[:3], pace=0.02) as fleet:
        for name in NAMES[1:3]:
            fleet.start(name)
        fleet.start("alice", [str(through)])
        wait_for(lambda: wire.carried > 20_000 and size_of(network, 0) > 5, 60)
        wire.cut.set()
        time.sleep(0.5)
        before = size_of(network, 0)
        time.sleep(4.5)
        assert size_of(network, 0) - before <= 2, "the wire was not cut"
        assert all(process.is_alive() for process in fleet.running.values())
        wire.cut.clear()
        assert fleet.watch(90) == 0
    wire.close()
    calm = run_threads(load(write(tmp_path / "calm", names=NAMES[:3], run_table={"steps": 150})), 3)
    np.testing.assert_array_equal(models(path), np.stack([calm[name].model for name in NAMES[:3]]))


def wait_for(condition, seconds: float) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


def size_of(network, number: int) -> int:
    """How many messages are in a ledger that is in use, or is only being made."""
    if not (path := network.members[number].ledger).exists():
        return 0
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
        if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'rounds'").fetchone():
            return 0
        return db.execute("SELECT count(*) FROM rounds").fetchone()[0]


def test_a_deadline_stops_an_agent_and_says_why_and_the_same_command_goes_on(tmp_path):
    path = write(
        tmp_path, names=NAMES[:2], network={"deadline": 1.5}, graph={"kind": "complete"}, run_table={"steps": 60}
    )
    with Processes([path], names=NAMES[:2], pace=0.05) as fleet:
        fleet.start_all()
        wait_for(lambda: size_of(load(path), 0) > 5, 60)
        fleet.running["bob"].kill()
        fleet.running["alice"].join(30)
        assert fleet.running["alice"].exitcode == 5
        text = fleet.log("alice").read_text()
        assert "from bob (not connected) within 1.5 s" in text
        assert "start this agent again" in text
        fleet.start_all()
        assert fleet.watch(60) == 0
    calm = run_threads(
        load(write(tmp_path / "calm", names=NAMES[:2], graph={"kind": "complete"}, run_table={"steps": 60})), 3
    )
    np.testing.assert_array_equal(models(path), np.stack([calm[name].model for name in NAMES[:2]]))


def test_skip_goes_on_without_a_silent_neighbour(tmp_path):
    """carol is killed and never comes back: alice and bob finish, the ledger names whom they did without, and nobody waits for long."""
    settings = {"network": {"policy": "skip", "patience": 0.5, "deadline": 5}, "graph": {"kind": "complete"}}
    path = write(tmp_path, names=NAMES[:3], run_table={"steps": 40}, **settings)
    network = load(path)
    with Processes([path], names=NAMES[:3], seed=None, pace=0.05) as fleet:
        fleet.start_all()
        wait_for(lambda: size_of(network, 0) > 5, 60)
        fleet.running.pop("carol").kill()
        assert fleet.watch(60) == 0
    about = {"run": network.run, "agent": "alice", "configuration": network.digest}
    with Ledger(network.members[0].ledger, about) as ledger:
        without = [notes["skipped"] for _, _, notes in ledger.history()]
    assert without[0] == [] and without[-1] == ["carol"]


@pytest.mark.slow
def test_an_old_ledger_is_refused(tmp_path):
    """A backup that is put back would noise rounds again that the neighbours have heard already."""
    path = write(tmp_path, names=NAMES[:2], graph={"kind": "complete"}, run_table={"steps": 400})
    network = load(path)
    with Processes([path], names=NAMES[:2], pace=0.02) as fleet:
        fleet.start_all()
        wait_for(lambda: size_of(network, 0) > 10, 60)
        fleet.running["alice"].kill()
        fleet.running["alice"].join()
        for file in network.members[0].state.glob("alice.ledger*"):
            file.unlink()  # as if it ran on another host, or from an empty folder
        fleet.start("alice")
        fleet.running["alice"].join(30)
        assert fleet.running["alice"].exitcode == 6
        assert "knows another process as alice" in fleet.log("alice").read_text()
        assert size_of(network, 0) == 0, "nothing may be noised"
        assert fleet.running["bob"].is_alive()


def test_another_configuration_is_named_before_anything_is_sent(tmp_path):
    path = write(tmp_path, names=NAMES[:2], graph={"kind": "complete"}, run_table={"steps": 400})
    other = tmp_path / "other.toml"
    other.write_text(path.read_text().replace("epsilon = 8.0", "epsilon = 9.0"))
    with Processes([path], names=NAMES[:2]) as fleet:
        fleet.start("alice")
        fleet.start("bob", [str(other)])
        for name in NAMES[:2]:
            fleet.running[name].join(30)
        texts = [fleet.log(name).read_text() for name in NAMES[:2]]
    assert any(
        "[privacy] epsilon is 8.0 here and 9.0 there" in t or "[privacy] epsilon is 9.0 here and 8.0 there" in t
        for t in texts
    )
    assert size_of(load(path), 0) == 0


def test_one_agent_cannot_run_twice(tmp_path):
    path = write(tmp_path, names=NAMES[:2], graph={"kind": "complete"})
    with Processes([path], names=NAMES[:2]) as fleet:
        first = fleet.start("alice")
        wait_for(lambda: load(path).members[0].ledger.exists(), 60)
        second = fleet.start("alice")
        second.join(30)
        assert second.exitcode not in (0, None)
        assert "already running" in fleet.log("alice").read_text()
        assert first.is_alive()
        first.kill()
