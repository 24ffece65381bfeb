"""Members that do not play by the rules, as processes: what is changed in theirs before they begin.

`arm` makes one of them:

    copied   signs the public key of another agent as its own, and shows tags that it made up
    shifted  the same with a point of order 8 added to it: another key with the same secrets
    zero     signs a key of small order, with which every secret value is zero
    static   has the same key and nonce in every run
    again    and says again what it said in the first (of which there is a capture)
    old      hands on cards of an earlier run (which are in the folder of the test)

`weaken` takes away what protects the others: "unconfirmed" agents do not compare tags, and the pair
keys of "broken" ones follow from the value of X25519 and the run alone besides.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from hearsay.deploy import exchange, transport
from hearsay.deploy.exchange import Exchange
from hearsay.deploy.gossip import WORD, Gossip
from hearsay.deploy.introductions import TAG_BYTES, Signer
from hearsay.deploy.messages import Format
from hearsay.deploy.secrets import Agreed, PairSecrets
from hearsay.deploy.settings import load
from tests.deploy.captures import Capture
from tests.deploy.curve import SMALL, on_curve, plus
from tests.deploy.networks import session, wait_for

VICTIM = "alice"  # whose key is copied


def weaken(how: str) -> None:
    assert how in ("unconfirmed", "broken")
    Exchange._compare = lambda *_: None  # type: ignore[method-assign]
    if how == "broken":
        exchange.agree = _from_the_value  # type: ignore[assignment]


def _from_the_value(private: bytes, mine: Any, theirs: Any, *, first: bool, run: Any) -> Agreed:
    value = X25519PrivateKey.from_private_bytes(private).exchange(
        X25519PublicKey.from_public_bytes(theirs.key)
    )
    chain = HKDF(hashes.SHA256(), 32, None, run.run.encode()).derive(value)
    return Agreed(chain, bytes(TAG_BYTES), bytes(TAG_BYTES))


def arm(kind: str, name: str, config: str) -> None:
    if kind in ("static", "again"):
        _keep_keys(name)
        if kind == "again":
            _say_again(name, Path(config).with_name("first"))
        return
    # It would stop itself.
    Exchange._compare = lambda *_: None  # type: ignore[method-assign]
    if kind == "old":
        _hand_on_old_cards(Path(config).parent)
    elif kind == "zero":
        _sign(SMALL[0].to_bytes(32, "little"))
    else:
        key = _key_of(VICTIM, name, config)
        if kind == "shifted":
            point = plus(on_curve(int.from_bytes(key, "little")), on_curve(SMALL[2]))
            key = point[0].to_bytes(32, "little")
        else:
            assert kind == "copied"
        _sign(key)


def _key_of(victim: str, name: str, config: str) -> bytes:
    """As the agent hands it on to everybody who asks."""
    network = load(config)
    member = network.members[network.index(victim)]
    where = f"hearsay/{network.run}/{victim}/{WORD}-{network.index(victim)}"
    credentials = network.members[network.index(name)].credentials
    assert credentials is not None
    with session(member.endpoint, credentials.ca.parent, name) as spy:
        card = wait_for(lambda: transport._ask(spy, where, 2**16, 1.0, print))
    statement = json.loads(json.loads(json.loads(card)[0])["statement"])
    return bytes.fromhex(statement["key"])


def _sign(key: bytes) -> None:
    plain = Signer.introduction
    Signer.introduction = lambda self, _, nonce: plain(self, key, nonce)  # type: ignore[method-assign]


def _keep_keys(name: str) -> None:
    plain = PairSecrets.make

    def make(self: PairSecrets) -> None:
        plain(self)
        private, nonce = (hashlib.sha256(f"{name} {w}".encode()).hexdigest() for w in "kn")
        self._write({"private": private, "nonce": nonce})

    PairSecrets.make = make  # type: ignore[method-assign]


def _say_again(name: str, folder: Path) -> None:
    plain, old = Format.encode, Capture(folder)

    def encode(self: Format, agent: str, step: int, fields: Any, instance: str = "") -> bytes:
        return plain(self, agent, step, old.message(name, step), instance)

    Format.encode = encode  # type: ignore[method-assign]


def _hand_on_old_cards(folder: Path) -> None:
    plain, stages = Gossip.answer, Exchange.stages

    def answer(self: Gossip, what: str) -> bytes | None:
        kept = folder / f"{what}.old"
        return kept.read_bytes() if kept.exists() else plain(self, what)

    def told(self: Exchange) -> str:
        have = enumerate(stages(self))
        return "".join("2" if (folder / f"{WORD}-{n}.old").exists() else one for n, one in have)

    def asked(self: Gossip, what: str) -> bytes | None:
        return told(self._exchange).encode() if what == WORD else answer(self, what)

    def tell(self: Gossip) -> None:
        self._neighbours.transport.tell(WORD, told(self._exchange).encode())

    Gossip.answer, Gossip._tell = asked, tell  # type: ignore[method-assign]
