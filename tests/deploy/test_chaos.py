"""Agents are killed with SIGKILL at every kind of moment, and links are cut: the run ends as if nothing had happened."""

from __future__ import annotations

import random
import socket
import threading
import time
from collections import defaultdict

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
        name, step, digest = line.split()
        left[name, int(step)].add(digest)
    network = load(path)
    import hashlib

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
                assert left[member.name, step] == {hashlib.sha256(payload).hexdigest()}, (member.name, step)


def chaos(tmp_path, seed, each, random_kills, seconds):
    rng = random.Random(f"chaos {seed} {each}")
    path, witness = write(tmp_path, run_table={"steps": STEPS}), tmp_path / "witness"
    kills = planned_kills(rng, each)
    with Processes([path], seed=seed, kills=kills, witness=str(witness), pace=0.02) as fleet:
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
    """Noise from the operating system: what left twice is the same bytes, although no seed could bring them back."""
    _, restarts = chaos(tmp_path, seed=None, each=2, random_kills=2, seconds=120)
    assert restarts >= 10
