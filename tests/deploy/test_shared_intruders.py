"""Members that would make the noise of honest agents cancel, as real processes (attackers.py): the
others refuse in words before anything was sent. And where the confirmation of keys is taken away,
what honest agents say is as loud as ever, shown from the bytes that left; with keys that follow
from the value of X25519 alone it would not be.

False alarms: 1 in 100 million for each number that is compared.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("zenoh")

from hearsay.deploy import tls
from hearsay.deploy.exchange import packed
from hearsay.deploy.ledger import Ledger
from hearsay.deploy.settings import load
from hearsay.privacy.coalitions import Shared
from tests.deploy.captures import Capture, require_unrelated, require_variance, still
from tests.deploy.networks import NAMES, Processes, size_of

THREE, ROUNDS, RATIO = NAMES[:3], 2, 2.0
SHARED = Shared(3, (RATIO,))
BOB = 1  # who shares with alice, before him, and carol, after him: with opposite signs


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    folder = tmp_path_factory.mktemp("authority") / "keys"
    tls.make(folder, {name: ["127.0.0.1"] for name in THREE})
    return folder


def network(folder: Path, keys: Path, **more) -> Path:
    return still(folder, keys, names=THREE, rounds=ROUNDS, **more)


def captured(path: Path, folder: str, **options) -> np.ndarray:
    """(round, agent, coordinate): what left in a run that came to its end."""
    (place := path.parent / folder).mkdir()
    with Processes([path], seed=None, names=THREE, capture=str(place), **options) as fleet:
        fleet.start_all()
        assert fleet.watch() == 0
    return Capture(place, THREE).messages(ROUNDS)


def refused(path: Path, honest, **options) -> dict[str, str]:
    """What honest agents, of whom none has sent anything, said at their end."""
    with Processes([path], seed=None, names=THREE, **options) as fleet:
        fleet.start_all()
        for name in honest:
            fleet.running[name].join(300)
            assert fleet.running[name].exitcode not in (None, 0), f"{name} goes on"
        found = load(path)
        assert not any(size_of(found, found.index(name)) for name in honest)
        return {name: fleet.log(name).read_text() for name in honest}


@pytest.mark.parametrize(
    ("attack", "why"),
    [
        ("copied", "the keys that carol and {name} share do not match"),
        pytest.param(
            "shifted", "the keys that carol and {name} share do not match", marks=pytest.mark.slow
        ),
        pytest.param(
            "zero", "the public key of carol must give a secret value", marks=pytest.mark.slow
        ),
    ],
)
def test_a_key_that_is_not_carols_is_refused_before_anything_is_sent(attack, why, tmp_path, keys):
    said = refused(network(tmp_path, keys), THREE[:2], attack={"carol": attack})
    for name, text in said.items():
        assert why.format(name=name) in text and "Nothing was sent" in text, text


@pytest.mark.slow
@pytest.mark.parametrize("attack", ["copied", "shifted"])
def test_a_key_of_somebody_else_makes_nothing_cancel_even_unconfirmed(attack, tmp_path, keys):
    """Bob adds what he shares with carol, who shows alice's key, and subtracts what he shares with
    alice. Carol can take her part of it away: what is certified against her is the rest.
    """
    options = {"attack": {"carol": attack}, "weak": "unconfirmed"}
    sent = captured(network(tmp_path, keys), "capture", **options)
    require_variance(sent[:, BOB], SHARED.variance(BOB))
    assert sent[:, BOB].var() - RATIO**2 > 1 / SHARED.price(BOB, [2])


@pytest.mark.slow
@pytest.mark.parametrize("attack", ["copied", "shifted"])
def test_with_keys_of_the_value_alone_it_would(attack, tmp_path, keys):
    """So the test above can fail: nothing but own noise is left of bob's."""
    options = {"attack": {"carol": attack}, "weak": "broken"}
    sent = captured(network(tmp_path, keys), "capture", **options)
    require_variance(sent[:, BOB], 1.0)


def begin_anew(path: Path) -> None:
    """Without ledgers, as if nothing had been run."""
    for member in load(path).members:
        shutil.rmtree(member.state, ignore_errors=True)


@pytest.mark.slow
@pytest.mark.parametrize("weak", [None, "broken"])
def test_the_same_plan_run_twice_has_other_noise(weak, tmp_path, keys):
    """Carol has kept key and nonce, and says in the second run what she said in the first; the
    others have new keys. In the broken design everybody has kept them, and the difference of two
    runs shows own noise alone.
    """
    path, runs = network(tmp_path, keys), []
    for folder, attack in (("first", "static"), ("second", "static" if weak else "again")):
        attacks = dict.fromkeys(THREE if weak else ["carol"], attack)
        runs.append(captured(path, folder, attack=attacks, weak=weak))
        begin_anew(path)
    for agent in range(2):
        left = 1.0 if weak else SHARED.variance(agent)
        require_variance(runs[0][:, agent] - runs[1][:, agent], 2 * left)
        if not weak:
            require_unrelated(runs[0][:, agent].ravel(), runs[1][:, agent].ravel())
    assert np.array_equal(runs[0][:, 2], runs[1][:, 2]) == (weak is None)


@pytest.mark.slow
def test_cards_of_an_earlier_run_are_refused(tmp_path, keys):
    """Bob and carol hear alice only, who hands on, to both, what carol said in a run with the same
    name and plan.
    """
    path = network(tmp_path, keys, graph={"kind": "star"})
    captured(path, "first")
    with Ledger(load(path).members[2].ledger, {}) as ledger:
        path.with_name("keys-2.old").write_bytes(packed(ledger.cards()[2]))
    begin_anew(path)
    said = refused(path, THREE[1:], attack={"alice": "old"})
    assert "the keys that carol and bob share do not match" in said["bob"], said["bob"]
    assert "carol holds another introduction of bob (of an earlier ledger)" in said["bob"]
    assert "another process has introduced itself as carol" in said["carol"], said["carol"]
