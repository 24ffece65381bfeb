"""Agents that share noise: keys cross a ring of messages, every pair has the same ones in every
round, also after deaths at awkward moments, and whoever never comes is named.
"""

from __future__ import annotations

import itertools
import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("zenoh")

import hearsay as hs
from hearsay.deploy import agent as agents
from hearsay.deploy import deployment as plans
from hearsay.deploy import tls
from hearsay.deploy.deployment import deployment
from hearsay.deploy.host import Refused, Stopped
from hearsay.deploy.secrets import PairSecrets
from hearsay.deploy.settings import load
from tests.deploy.networks import NAMES, Processes, Threads, models, wait_for, write

NOISE = {"name": "ldp-online", "mechanism": "gaussian", "noise": 1.0}
SETTINGS = {"algorithm": NOISE, "privacy": {"delta": 1e-5}}
ROUNDS = 4


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    folder = tmp_path_factory.mktemp("authority") / "keys"
    tls.make(folder, {name: ["127.0.0.1"] for name in NAMES})
    return folder


@pytest.fixture
def secret(monkeypatch):
    """Plans have secrets on the complete graph."""
    plain = plans.build_algorithm

    def built(*args):
        return replace(plain(*args), secrets=hs.Secrets(colluders=1))

    monkeypatch.setattr(plans, "build_algorithm", built)


def network(folder: Path, keys: Path, names=NAMES, **more) -> Path:
    given = {"names": names, "secure": True, "run_table": {"steps": ROUNDS}, **SETTINGS, **more}
    given["network"] = {"keys": str(keys), **given.get("network", {})}
    return write(folder, **given)


def recorded(monkeypatch) -> dict[tuple[str, int, int], set[bytes]]:
    """The keys of (an agent's file, its partner, a round) that noise could be drawn from."""
    found: dict[tuple[str, int, int], set[bytes]] = {}
    plain = PairSecrets.committed

    def committed(self, round):
        for partner in self._names:
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


def test_keys_cross_a_ring_and_every_pair_has_the_same(tmp_path, keys, secret, monkeypatch):
    found = recorded(monkeypatch)
    with Threads(load(network(tmp_path, keys)), None) as fleet:
        fleet.start_all()
        fleet.models()
    require_pairs(found, NAMES)
    for path in tmp_path.glob("**/*.keys"):
        assert b"chains" not in path.read_bytes(), "nothing is kept of a run that is over"
