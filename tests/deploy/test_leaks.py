"""Nothing private leaves: not in messages, logs or answers,
not in what is left behind by a crash.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from hearsay.deploy import privatize
from hearsay.deploy.agent import Agent
from hearsay.deploy.launch import observe, statuses
from hearsay.deploy.ledger import Ledger
from hearsay.deploy.settings import load
from hearsay.deploy.transport import Transport
from hearsay.mechanisms import lattice
from tests.deploy.networks import NAMES, SECONDS, Processes, Threads, run_threads, write

SETTINGS = {
    "ldp-online": {},
    "gradient-tracking": {"graph": {"kind": "directed-ring"}},
    "gradient-perturbation": {
        "algorithm": {"name": "gradient-perturbation", "sampling": "cyclic", "sample_size": 2}
    },
    "secret batches": {
        "algorithm": {
            "name": "gradient-perturbation",
            "sampling": "poisson",
            "sample_rate": 0.2,
            "noise": 1.0,
        },
        "privacy": {},
    },
    "correlated-federated": {
        "algorithm": {"name": "correlated-federated", "sampling": "cyclic", "sample_size": 2}
    },
    "adp2sgd": {},
}


def private_numbers(tmp_path):
    """Records of unmistakable numbers: no double of theirs occurs anywhere by chance."""
    rng = np.random.default_rng(5)
    for name in NAMES[:3]:
        np.savez(
            tmp_path / f"{name}.npz",
            features=rng.uniform(0.1, 0.4, (20, 4)),
            labels=rng.integers(0, 2, 20),
        )
    return {
        "problem": {"loss": "logistic", "dimension": 4, "feature_bound": 1.0, "radius": 10.0},
        "agents": {name: {"data": f"{name}.npz", "records": 20} for name in NAMES[:3]},
        "names": NAMES[:3],
        "run_table": {"steps": 12},
    }


def needles(values) -> set[bytes]:
    """The bytes of every number, but for those that mean nothing."""
    flat = np.unique(np.asarray(values, np.float64))
    return {np.float64(v).tobytes() for v in flat if v not in (0.0, 1.0, -1.0)}


@pytest.mark.parametrize("name", SETTINGS)
def test_no_record_and_no_state_in_what_is_sent_answered_or_logged(
    name, tmp_path, monkeypatch, caplog
):
    caplog.set_level(logging.DEBUG)
    settings = {"algorithm": {"name": name}, **private_numbers(tmp_path), **SETTINGS[name]}
    network = load(write(tmp_path, **settings))
    sent, answers, private = [], [], set()
    publish, hello, message = Transport.publish, Agent._hello, privatize.Lattice.message

    def published(self, round, payload):
        sent.append(payload)
        publish(self, round, payload)

    def answered(self, what):
        answers.append(hello(self, what) or b"")
        return answers[-1]

    def noised(self, step, carry):
        if step > 0:  # the common starting point is public
            fields, _ = self._steps.prepare(step, carry)
            for leaf in jax.tree.leaves((carry, fields)):
                if np.size(leaf) > 1:
                    private.update(needles(leaf))
        return message(self, step, carry)

    monkeypatch.setattr(Transport, "publish", published)
    monkeypatch.setattr(Agent, "_hello", answered)
    monkeypatch.setattr(privatize.Lattice, "message", noised)
    agents = run_threads(network, None)
    for agent in agents.values():
        private |= needles(agent.plan.records.features) | needles(agent.model)
    assert len(sent) == 36 and len(private) > 200 and answers
    public = b"".join([*sent, *answers])
    found = [needle for needle in private if needle in public]
    if name == "adp2sgd":  # a model that was sent is public, and is what a sleeping agent still has
        found = [needle for needle in found if not any(needle in message for message in sent)]
    assert found == []
    # A log of hearsay's own; an agent leaves those of other libraries at warnings.
    text = "\n".join(
        r.getMessage()
        for r in caplog.records
        if r.name.startswith("hearsay") or r.levelno >= logging.WARNING
    )
    assert "round 12 of 12" in text
    for needle in private:
        number = float(np.frombuffer(needle)[0])
        assert repr(number) not in text
        assert f"{number:.6f}" not in text


def test_the_search_sees_a_state_that_is_sent_without_noise(tmp_path, monkeypatch):
    """A test that cannot fail is none:
    without noise the same search finds states in the messages.
    """
    network = load(write(tmp_path, **private_numbers(tmp_path)))
    sent, private, publish, message = [], set(), Transport.publish, privatize.Lattice.message

    def published(self, round, payload):
        sent.append(payload)
        publish(self, round, payload)

    def noised(self, step, carry):
        if step > 0:
            private.update(needles(self._steps.prepare(step, carry)[0].params.value))
        return message(self, step, carry)

    monkeypatch.setattr(Transport, "publish", published)
    monkeypatch.setattr(privatize.Lattice, "message", noised)
    monkeypatch.setattr(lattice, "noised", lambda value, *_: value)
    run_threads(network, None)
    assert all(needle in b"".join(sent) for needle in private)


CRASH = (
    "import sys, hearsay.cli, hearsay.deploy.steps as steps\ndef broken(self, step, carry): raise"
    " ValueError(f'bad features {self.records.features.tolist()}')\nsteps.Steps.prepare ="
    " broken\nsys.argv = ['hearsay', 'agent', '--config', sys.argv[1], '--name',"
    " 'alice']\nhearsay.cli.main()\n"
)


def test_a_crash_says_where_and_not_what(tmp_path):
    """`hearsay agent`, with a computation that fails and says what it was given."""
    settings = private_numbers(tmp_path) | {"names": NAMES[:2], "graph": {"kind": "complete"}}
    path = write(tmp_path, **settings)
    with Threads(load(path), None) as fleet:
        fleet.start("bob")
        words = [sys.executable, "-c", CRASH, str(path)]
        crashed = subprocess.run(
            words, capture_output=True, text=True, cwd=tmp_path, timeout=SECONDS
        )
    said = crashed.stdout + crashed.stderr
    assert crashed.returncode == 70, said
    assert "failed: ValueError in" in said and "line 2" in said
    assert "Traceback" not in said
    with np.load(tmp_path / "alice.npz") as stored:
        numbers = [repr(float(v)) for v in stored["features"].ravel()]
    everything = said + "".join(
        file.read_text(errors="replace")
        for file in tmp_path.rglob("*")
        if file.suffix in (".log", ".txt")
    )
    assert not any(number in everything for number in numbers)


def test_no_core_dumps_and_private_files(tmp_path):
    path = write(tmp_path, names=NAMES[:2], graph={"kind": "complete"})
    network = load(path)
    with Processes([path], names=NAMES[:2], hold={"alice": 3}) as fleet:
        fleet.start_all()
        fleet.wait_until_held("alice")
        with observe(network) as observer:
            facts = statuses(network, observer, seconds=SECONDS)
        assert all(one.facts for one in facts)
        limits = Path(f"/proc/{fleet.running['alice'].pid}/limits").read_text().splitlines()
        assert next(line for line in limits if line.startswith("Max core file size")).split()[
            4:6
        ] == ["0", "0"]
        assert json.dumps([one.facts for one in facts])
        state = network.members[0].state
        assert state.stat().st_mode & 0o077 == 0
        assert all(file.stat().st_mode & 0o077 == 0 for file in state.glob("alice.ledger*"))


def test_a_sleeping_agent_sends_the_same_bytes_whatever_it_has(tmp_path):
    """0 times a negative number is -0: the signs of what was not sent would tell of it."""
    path = write(tmp_path, algorithm={"name": "adp2sgd", "activity": 0.3}, run_table={"steps": 20})
    agents = run_threads(load(path), None)
    asleep = set()
    for agent in agents.values():
        for step in range(20):
            with Ledger(agent.member.ledger, {}) as ledger:
                fields = agent.format.decode(
                    ledger.message(step), agent.name, step, ledger.instance
                )
            if fields["awake"] == 0:
                asleep.add(fields["params"].tobytes())
    assert asleep == {bytes(8 * 4)}
