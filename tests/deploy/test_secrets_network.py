"""Agents that share noise: keys cross a ring of messages, every pair has the same ones in every
round, and whoever never comes is named. See test_shared_runs.py for what agents say then.
"""

from __future__ import annotations

import itertools
import logging
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("zenoh")

from hearsay.deploy import agent as agents
from hearsay.deploy import neighbours, tls
from hearsay.deploy.deployment import deployment
from hearsay.deploy.gossip import Gossip
from hearsay.deploy.host import Refused, Stopped, harden_process
from hearsay.deploy.introductions import Signer
from hearsay.deploy.ledger import LedgerError
from hearsay.deploy.secrets import PairSecrets
from hearsay.deploy.settings import load
from hearsay.graphs import secrets as secrets_of_graphs
from hearsay.privacy import coalitions
from tests.deploy.networks import (
    NAMES,
    Gate,
    Threads,
    size_of,
    write,
)

NOISE = {"name": "ldp-online", "mechanism": "gaussian", "noise": 1.0}
SETTINGS = {"algorithm": NOISE, "privacy": {"delta": 1e-5}, "secrets": {"colluders": 1}}
ROUNDS = 4


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    folder = tmp_path_factory.mktemp("authority") / "keys"
    tls.make(folder, {name: ["127.0.0.1"] for name in NAMES})
    return folder


def network(folder: Path, keys: Path, names=NAMES, **more) -> Path:
    given = {"names": names, "secure": True, "run_table": {"steps": ROUNDS}, **SETTINGS, **more}
    given["network"] = {"keys": str(keys), **given.get("network", {})}
    return write(folder, **given)


def recorded(monkeypatch) -> dict[tuple[str, int, int], set[bytes]]:
    """The keys of (an agent's file, its partner, a round) that noise could be drawn from."""
    found: dict[tuple[str, int, int], set[bytes]] = {}
    plain = PairSecrets.committed

    def committed(self, round):
        # A message that is sent again has no key any more.
        for partner in self._names if round >= self._round else ():
            key = self.noise_key(partner, round, 0)
            found.setdefault((self._file.path.name, partner, round), set()).add(key)
        plain(self, round)

    monkeypatch.setattr(PairSecrets, "committed", committed)
    return found


def require_pairs(found: dict, names, rounds: int = ROUNDS) -> None:
    seen = set()
    for (one, first), (two, second) in itertools.combinations(enumerate(names), 2):
        for step in range(rounds):
            here = found[f"{first}.ledger.keys", two, step]
            assert here == found[f"{second}.ledger.keys", one, step]
            assert len(here) == 1, "a round has one key"
            seen |= here
    assert len(seen) == rounds * len(names) * (len(names) - 1) // 2


@pytest.mark.parametrize("kind", ["ring", "directed-ring"])
def test_keys_cross_a_ring_and_every_pair_has_the_same(kind, tmp_path, keys, monkeypatch):
    found, tables = recorded(monkeypatch), {"graph": {"kind": kind}}
    if kind == "directed-ring":
        tracking = {"name": "gradient-tracking", "mechanism": "gaussian", "noise": 1.0}
        tables |= {"algorithm": tracking}
    with Threads(load(network(tmp_path, keys, **tables)), None) as fleet:
        fleet.start_all()
        fleet.models()
    require_pairs(found, NAMES)
    for path in tmp_path.glob("**/*.keys"):
        assert b"chains" not in path.read_bytes(), "nothing is kept of a run that is over"


def test_who_never_comes_is_named(tmp_path, keys, monkeypatch, caplog):
    """Alice hears bob and erin, who are there, and shares noise with carol and dave, who never
    come.
    """
    caplog.set_level(logging.INFO, "hearsay.agent")
    monkeypatch.setattr(neighbours, "_WORD", 0.2)
    found = load(network(tmp_path, keys))
    with Threads(found, None) as fleet:
        for name in ("bob", "erin"):
            fleet.start(name)
        fleet.start("alice", network=replace(found, deadline=1.0))
        ended = fleet.join("alice")
        assert isinstance(ended, Stopped) and not isinstance(ended, Refused)
        assert "no keys of carol, dave within 1 s" in str(ended)
        assert "nothing was sent. Start this agent again when they run" in str(ended)
        assert "waiting for the keys of carol, dave" in caplog.text
        assert size_of(found, 0) == 0


def test_keys_that_do_not_match_stop_both_before_any_noise(tmp_path, keys, monkeypatch):
    monkeypatch.setattr(agents, "_LISTEN", 0.1)
    plain = Signer.confirmation

    def wrong(self, key, nonce, tags):
        if self._words["agent"] == "bob":
            tags = [bytes(16)] * len(tags)
        return plain(self, key, nonce, tags)

    monkeypatch.setattr(Signer, "confirmation", wrong)
    found = load(network(tmp_path, keys, NAMES[:3], graph={"kind": "complete"}))
    with Threads(found, None) as fleet:
        fleet.start_all()
        ended = fleet.join("alice")
        assert isinstance(ended, Refused)
        assert "the keys that bob and alice share do not match" in str(ended)
        assert size_of(found, 0) == 0


def test_a_member_cannot_make_an_agent_hold_what_is_no_card(tmp_path, keys, monkeypatch):
    """Bob answers for carol's card with something long, and for digits with nonsense; carol's own
    link brings the right ones.
    """
    plain = Gossip.answer

    def answered(self, what):
        if self._neighbours.name == "bob" and what == "keys-2":
            return b"x" * 500_000
        if self._neighbours.name == "bob" and what == "keys":
            return b"9" * 3
        return plain(self, what)

    monkeypatch.setattr(Gossip, "answer", answered)
    path = network(tmp_path, keys, NAMES[:3], graph={"kind": "complete"})
    with Threads(load(path), None) as fleet:
        fleet.start_all()
        fleet.models()


def test_secrets_need_certificates_unless_it_is_a_rehearsal(tmp_path):
    found = load(write(tmp_path, names=NAMES[:3], **SETTINGS))
    with pytest.raises(ValueError, match="endpoints must be tls .* nobody can say whose key it is"):
        deployment(found, None)
    assert deployment(found, None, rehearsed=True).algorithm.secrets is not None


@pytest.mark.parametrize("rehearsed", [False, True])
def test_shared_noise_is_not_correlated_over_rounds_when_deployed(rehearsed, tmp_path, keys):
    """Nor in a rehearsal, which would show a run that nobody can have."""
    correlated = {"correlation": "toeplitz", "sampling": "cyclic", "sample_size": 3}
    algorithm = {**NOISE, "name": "gradient-perturbation", **correlated}
    path = network(tmp_path, keys, NAMES[:3], algorithm=algorithm)
    with pytest.raises(ValueError, match=".secrets. must be left out with the correlated") as said:
        deployment(load(path), None, rehearsed=rehearsed)
    assert "no correlation in [algorithm]" in str(said.value)


def test_agents_that_work_out_another_ratio_have_another_plan(tmp_path, keys, monkeypatch):
    """Ends of a pair at different scales would protect less than was certified: on the complete
    graph of 5 the price is 0.52 and not 0.25 for one whose partners share twice as much.
    """
    found = load(network(tmp_path, keys, NAMES[:3]))
    here = deployment(found, None).fingerprint
    monkeypatch.setattr(coalitions, "planned_ratio", lambda *_: 3.66)
    secrets_of_graphs._shared.cache_clear()
    try:
        there = deployment(found, None).fingerprint
    finally:
        secrets_of_graphs._shared.cache_clear()
    assert there != here


def test_a_certificate_says_what_keys_of_pairs_rest_on(tmp_path, keys):
    found = load(network(tmp_path, keys, NAMES[:3]))
    words = str(deployment(found, None).certificate)
    assert "confirmed by both ends before any noise is added" in words
    assert "the authority behind the agents' certificates stands behind no second one" in words
    assert "the authority" not in str(deployment(found, None, rehearsed=True).certificate)


@pytest.mark.skipif(not Path("/proc/self/coredump_filter").exists(), reason="Linux only")
def test_dumps_that_are_piped_to_a_program_hold_no_page():
    filter = Path("/proc/self/coredump_filter")
    before = filter.read_text().strip()
    filter.write_text("0x33")
    try:
        harden_process()
        assert int(filter.read_text(), 16) == 0
    finally:
        filter.write_text(f"0x{before}")


def test_backups_of_ledger_and_keys_in_all_combinations(tmp_path, keys, monkeypatch):
    """Alice's files as they were at message 0 beside those of message 2. Old keys alone go on with
    the same ones; whatever has an old ledger is refused, and its rounds get no second noise.
    """
    found = recorded(monkeypatch)
    known = load(network(tmp_path, keys, NAMES[:3], graph={"kind": "complete"}))
    ledger, early, late = known.members[0].ledger, Gate(0), Gate(2)
    saved = {}

    def save(when: str) -> None:
        saved[when] = {file.name: file.read_bytes() for file in ledger.parent.glob("alice.ledger*")}

    def restore(ledger_of: str, keys_of: str) -> None:
        for file in ledger.parent.glob("alice.ledger*"):
            file.unlink()
        for name in saved[ledger_of] | saved[keys_of]:
            source = keys_of if name.endswith(".keys") else ledger_of
            if name in saved[source]:
                (ledger.parent / name).write_bytes(saved[source][name])

    with Threads(known, None) as fleet:
        for name in NAMES[:3]:
            fleet.start(name, *([early, late] if name == "alice" else []))
        with early:
            save("old")
        with late:
            fleet.agents["alice"]._stop.set()
        fleet.join("alice")
        save("new")
        restore("old", "new")
        fleet.start("alice")
        ended = fleet.join("alice")
        assert isinstance(ended, LedgerError) and "it is not the latest one" in str(ended)
        restore("old", "old")
        fleet.start("alice")
        ended = fleet.join("alice")
        assert isinstance(ended, Refused) and "has heard message" in str(ended)
        assert size_of(known, 0) == 1, "no message is made anew"
        restore("new", "old")
        fleet.start("alice")
        fleet.models()
    require_pairs(found, NAMES[:3])


@pytest.mark.parametrize(
    ("noise", "ratio", "words"),
    [
        (1.0, 0.001, "own noise must be at most 128 times .* got 1000 times"),
        (1.0, 5000.0, "shared noise must be at most 2048 times .* got 5000 times"),
        ([1.0, 2.0, 600.0], 2.0, "own noise must be at most 128 times .* got 600 times"),
    ],
)
def test_scales_too_far_apart_for_one_grid_are_no_plan(tmp_path, keys, noise, ratio, words):
    """Carol alone would have failed at her first message, when the others had sent theirs."""
    algorithm, secrets = {**NOISE, "noise": noise}, {"colluders": 1, "ratio": ratio}
    path = network(tmp_path, keys, NAMES[:3], algorithm=algorithm, secrets=secrets)
    with pytest.raises(ValueError, match=words):
        deployment(load(path), None)
    assert deployment(load(path), None, rehearsed=True).algorithm.secrets is not None


def test_secrets_that_cannot_be_are_refused_by_name_before_any_agent_starts(tmp_path, keys):
    alone = {"colluders": 1, "edges": [["alice", "bob"], ["bob", "carol"], ["alice", "carol"]]}
    with pytest.raises(ValueError, match="got agents dave, erin without any: shared noise does"):
        deployment(load(network(tmp_path, keys, secrets=alone)), None)
    apart = {"colluders": 1, "edges": [["alice", "dave"], ["bob", "carol"], ["carol", "erin"]]}
    with pytest.raises(ValueError, match="got 2 parts: agents alice, dave share nothing with"):
        deployment(load(network(tmp_path, keys, secrets=apart)), None)
    loud = {"colluders": 1, "ratio": 5000.0}
    with pytest.raises(
        ValueError, match="shared noise must be at most 2048 times .* got 5000 times"
    ):
        deployment(load(network(tmp_path, keys, secrets=loud)), None)
