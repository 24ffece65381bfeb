"""Keys that pairs of deployed agents share: what they follow from, who cannot know them, and that
they are the same after any death. The exchange runs here without a network: see
test_secrets_network.py for agents.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("cryptography")
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from hearsay.deploy import tls
from hearsay.deploy.cards import Card
from hearsay.deploy.erasable import Erasable
from hearsay.deploy.exchange import Exchange, packed, partners_of
from hearsay.deploy.host import Refused
from hearsay.deploy.introductions import LARGEST, Introduction, Invalid, Reader, Run, Signer
from hearsay.deploy.ledger import Ledger, LedgerError, LedgerUnavailable
from hearsay.deploy.links import Credentials
from hearsay.deploy.secrets import Agreed, PairSecrets, agree, public_bytes
from hearsay.deploy.settings import Member
from hearsay.privacy.coalitions import Shared
from tests.deploy.curve import SMALL, on_curve, plus

NAMES = ("alice", "bob", "carol", "dave")
RUN = Run("wards", "c" * 64, "p" * 64)


@pytest.fixture(scope="module")
def keys(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("authorities")
    for which in ("keys", "others"):
        tls.make(folder / which, {name: [] for name in NAMES})
    return folder


def credentials(folder: Path, name: str) -> Credentials:
    return Credentials(folder / "ca.pem", folder / f"{name}.pem", folder / f"{name}.key")


def signer(keys: Path, name: str, instance: str = "", run: Run = RUN, which="keys") -> Signer:
    return Signer(credentials(keys / which, name), run, name, instance or f"ledger of {name}")


def introduced(keys: Path, name: str, private: bytes, nonce: bytes = b"n" * 32) -> Introduction:
    said = signer(keys, name).introduction(public_bytes(private), nonce)
    return Reader(credentials(keys / "keys", name), RUN).introduction(name, said)


@pytest.fixture(scope="module")
def privates() -> dict[str, bytes]:
    return {name: X25519PrivateKey.generate().private_bytes_raw() for name in NAMES}


@pytest.fixture(scope="module")
def known(keys, privates) -> dict[str, Introduction]:
    return {name: introduced(keys, name, private) for name, private in privates.items()}


def both(privates, known, one="alice", two="bob", run=RUN) -> tuple[Agreed, Agreed]:
    return (
        agree(privates[one], known[one], known[two], first=True, run=run),
        agree(privates[two], known[two], known[one], first=False, run=run),
    )


def test_both_ends_of_a_pair_work_out_the_same(privates, known):
    here, there = both(privates, known)
    assert here.chain == there.chain
    assert (here.shown, here.expected) == (there.expected, there.shown)
    assert here.shown != here.expected, "a tag that is sent back proves nothing"
    others = [both(privates, known, *pair)[0] for pair in (("alice", "carol"), ("bob", "carol"))]
    assert len({here.chain, *(one.chain for one in others)}) == 3


def test_everything_that_tells_pairs_apart_is_in_their_key(keys, privates, known):
    """Each input of the derivation alone gives another key."""
    usual = both(privates, known)[0].chain
    tls.make(keys / "again", {name: [] for name in NAMES}, overwrite=True)
    again = signer(keys, "bob", which="again").introduction(known["bob"].key, b"n" * 32)
    certificate = Reader(credentials(keys / "again", "bob"), RUN).introduction("bob", again)
    # The highest bit of a public key is ignored by X25519: the same value, from other bytes.
    high = known["bob"].key[:31] + bytes([known["bob"].key[31] ^ 0x80])
    changes = {
        "certificate": {"certificate": certificate.certificate},
        "key": {"key": high},
        "nonce": {"nonce": b"m" * 32},
        "instance": {"instance": "another ledger"},
    }
    found = {usual}
    for end in ("alice", "bob"):
        for change in changes.values():
            found.add(
                both(privates, {**known, end: known[end]._replace(**change)})[0].chain
                if end == "alice" or "key" not in change
                else agree(
                    privates["alice"],
                    known["alice"],
                    known["bob"]._replace(**change),
                    first=True,
                    run=RUN,
                ).chain
            )
    for field in ("run", "configuration", "plan"):
        found.add(both(privates, known, run=replace(RUN, **{field: "another"}))[0].chain)
    found.add(agree(privates["alice"], known["alice"], known["bob"], first=False, run=RUN).chain)
    assert len(found) == 1 + 2 * len(changes) + 3 + 1


def test_a_replayed_public_key_gives_another_secret(keys, privates, known):
    """Carol signs bob's key as her own: the value of X25519 is the same, the keys are not, and she
    can make no tag that alice expects.
    """
    copied = signer(keys, "carol").introduction(known["bob"].key, known["bob"].nonce)
    carol = Reader(credentials(keys / "keys", "alice"), RUN).introduction("carol", copied)
    with_bob = both(privates, known)[0]
    with_carol = agree(privates["alice"], known["alice"], carol, first=True, run=RUN)
    assert value(privates["alice"], carol.key) == value(privates["alice"], known["bob"].key)
    assert len({with_bob.chain, with_carol.chain, with_bob.expected, with_carol.expected}) == 4


def value(private: bytes, key: bytes) -> bytes:
    return X25519PrivateKey.from_private_bytes(private).exchange(
        X25519PublicKey.from_public_bytes(key)
    )


@pytest.mark.parametrize("small", SMALL)
def test_a_public_key_with_a_point_of_small_order_gives_another_secret(
    keys, privates, known, small
):
    """The sum is another key with the same value: comparing keys would not find it."""
    bob = on_curve(int.from_bytes(known["bob"].key, "little"))
    shifted = plus(bob, on_curve(small))[0].to_bytes(32, "little")
    assert shifted != known["bob"].key
    assert value(privates["alice"], shifted) == value(privates["alice"], known["bob"].key)
    copied = signer(keys, "carol").introduction(shifted, known["bob"].nonce)
    carol = Reader(credentials(keys / "keys", "alice"), RUN).introduction("carol", copied)
    found = agree(privates["alice"], known["alice"], carol, first=True, run=RUN)
    assert found.chain != both(privates, known)[0].chain


@pytest.mark.parametrize("small", SMALL)
def test_a_key_of_small_order_is_refused_by_name(privates, known, small):
    bad = known["bob"]._replace(key=small.to_bytes(32, "little"))
    with pytest.raises(ValueError, match="the public key of bob must give a secret value"):
        agree(privates["alice"], known["alice"], bad, first=True, run=RUN)


def test_an_introduction_is_read_as_it_was_said(keys, known):
    reader = Reader(credentials(keys / "keys", "bob"), RUN)
    said = signer(keys, "alice").introduction(known["alice"].key, b"n" * 32)
    again = signer(keys, "alice").introduction(known["alice"].key, b"n" * 32)
    assert said != again, "signatures are random, and what they sign is the same"
    assert reader.introduction("alice", said).said == reader.introduction("alice", again).said
    confirmed = signer(keys, "alice").confirmation(known["alice"].key, b"n" * 32, [b"t" * 16] * 3)
    assert reader.confirmation(known["alice"], confirmed, 3) == [b"t" * 16] * 3


KEYS = {
    "rsa": lambda: rsa.generate_private_key(65537, 2048),
    "p384": lambda: ec.generate_private_key(ec.SECP384R1()),
    "ed25519": ed25519.Ed25519PrivateKey.generate,
}


@pytest.mark.parametrize("kind", KEYS)
def test_certificates_may_have_keys_of_other_kinds(kind, keys, tmp_path, known):
    """Of the same authority, which has a P-256 key; a signature of another key is not taken."""
    crypto, home = tls._cryptography(), keys / "keys"
    authority = serialization.load_pem_private_key((home / "ca.key").read_bytes(), None)
    issuer = x509.load_pem_x509_certificate((home / "ca.pem").read_bytes()).subject
    subject, hosts, found = tls._named(crypto, "alice"), ["localhost"], []
    for which in ("one", "two"):
        made = tls._certificate(crypto, subject, issuer, key := KEYS[kind](), authority, 9, hosts)
        (tmp_path / which).mkdir()
        tls._write(crypto, tmp_path / which / "alice", made, key)
        place = tmp_path / which / "alice"
        own = Credentials(home / "ca.pem", place.with_suffix(".pem"), place.with_suffix(".key"))
        said = Signer(own, RUN, "alice", "x").introduction(known["alice"].key, b"n" * 32)
        found.append(said)
    reader = Reader(credentials(home, "bob"), RUN)
    assert reader.introduction("alice", found[0]).key == known["alice"].key
    parts = [json.loads(said) for said in found]
    mixed = parts[0] | {"signature": parts[1]["signature"]}
    with pytest.raises(Invalid, match="its signature is not that of its certificate"):
        reader.introduction("alice", json.dumps(mixed).encode())


def test_a_changed_introduction_is_not_believed(keys, known):
    """Every character of it that means something: the statement, the signature, the certificate."""
    reader = Reader(credentials(keys / "keys", "bob"), RUN)
    said = signer(keys, "alice").introduction(known["alice"].key, b"n" * 32)
    believed = 0
    for at in range(0, len(said), 7):
        changed = said[:at] + bytes([said[at] ^ 1]) + said[at + 1 :]
        try:
            believed += reader.introduction("alice", changed).said == known["alice"].said
        except Invalid:
            continue
    assert believed == 0
    parts = json.loads(said)
    other = json.loads(signer(keys, "carol").introduction(known["carol"].key, b"n" * 32))
    for what in ("signature", "certificates", "statement"):
        with pytest.raises(Invalid):
            reader.introduction("alice", json.dumps(parts | {what: other[what]}).encode())
    spaced = json.dumps(json.loads(parts["statement"]))
    with pytest.raises(Invalid, match="no introduction"):
        reader.introduction("alice", json.dumps(parts | {"statement": spaced}).encode())


def test_what_is_not_of_this_run_is_refused_in_words(keys, known):
    reader = Reader(credentials(keys / "keys", "bob"), RUN)
    key = known["alice"].key

    def refused(said: bytes, name: str = "alice") -> str:
        with pytest.raises(Invalid) as found:
            reader.introduction(name, said)
        return str(found.value)

    old = signer(keys, "alice", run=replace(RUN, run="last year"))
    assert "of run 'last year', and not 'wards'" in refused(old.introduction(key, b"n" * 32))
    for what in ("configuration", "plan"):
        other = signer(keys, "alice", run=replace(RUN, **{what: "d" * 64}))
        assert f"of {what} 'dddd" in refused(other.introduction(key, b"n" * 32))
    foreign = signer(keys, "alice", which="others").introduction(key, b"n" * 32)
    assert "authority does not stand behind it" in refused(foreign)
    mine = signer(keys, "alice").introduction(key, b"n" * 32)
    assert "of agent 'alice', and not 'bob'" in refused(mine, "bob")
    posing = Signer(credentials(keys / "keys", "carol"), RUN, "alice", "x")
    assert "its certificate is carol's" in refused(posing.introduction(key, b"n" * 32))
    assert f"{LARGEST} are the most" in refused(mine + b" " * LARGEST)
    short = signer(keys, "alice").introduction(key[:31], b"n" * 32)
    assert "key must have 32 bytes, and has 31" in refused(short)
    for nonsense in (b"", b"[]", b"{}", b"null", b"[" * 9000, b'{"statement": 3}', b"\xff"):
        assert "no introduction" in refused(nonsense)
    confirmed = signer(keys, "alice").confirmation(key, b"n" * 32, [b"t" * 16])
    assert "no certificate" in refused(confirmed), "one statement is not the other"


def test_a_certificate_that_has_ended_is_not_believed_anew(keys, tmp_path, known, monkeypatch):
    from datetime import UTC, datetime, timedelta

    from hearsay.deploy import introductions

    class Later(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.now(UTC) + timedelta(days=400)

    said = signer(keys, "alice").introduction(known["alice"].key, b"n" * 32)
    reader = Reader(credentials(keys / "keys", "bob"), RUN)
    monkeypatch.setattr(introductions, "datetime", Later)
    with pytest.raises(Invalid, match="authority does not stand behind it"):
        reader.introduction("alice", said)
    assert reader.introduction("alice", said, kept=True).agent == "alice"


def chained(path: Path, about: str = "here", **chains: bytes) -> PairSecrets:
    found = PairSecrets(path, {1: "bob", 3: "dave"}, about)
    if not found.known:
        found.make()
        tag = b"t" * 16
        found.begin({1: Agreed(b"1" * 32, tag, tag), 3: Agreed(b"3" * 32, tag, tag)})
    found.confirm()
    return found


def test_noise_keys_differ_by_pair_round_and_field(tmp_path):
    pairs = chained(tmp_path / "keys")
    found = [
        pairs.noise_key(j, step, field) for step in range(4) for j in (1, 3) for field in (0, 1)
    ]
    assert len(set(found)) == 16 and {len(key) for key in found} == {32}
    with pytest.raises(ValueError, match=r"neighbour must be one of \[1, 3\], got 2"):
        pairs.noise_key(2, 3, 0)


def test_the_ratchet_cannot_go_back(tmp_path):
    pairs = chained(tmp_path / "keys")
    first = pairs.noise_key(1, 0, 0)
    assert pairs.noise_key(1, 0, 0) == first
    pairs.noise_key(3, 2, 0)
    with pytest.raises(ValueError, match="round must be at least 2, got 1: the keys of earlier"):
        pairs.noise_key(1, 1, 0)
    pairs.committed(2)
    with pytest.raises(ValueError, match="round must be at least 3, got 2"):
        pairs.noise_key(1, 2, 0)


def test_a_restart_goes_on_with_the_same_keys(tmp_path):
    """Whether it died before or after the chain was moved on, and however many rounds it jumps."""
    straight = chained(tmp_path / "straight")
    wanted = [straight.noise_key(1, step, 1) for step in range(6)]
    pairs = chained(tmp_path / "keys")
    for step in range(5):
        assert pairs.noise_key(1, step, 1) == wanted[step]
        if step % 2:
            pairs.committed(step)
        pairs.close()
        # Not committed: the message never left, and is made again with the same noise.
        pairs = chained(tmp_path / "keys")
        assert pairs.noise_key(1, step + step % 2, 1) == wanted[step + step % 2]
        pairs.close()
        pairs = chained(tmp_path / "keys")
        pairs.restore(step)
        assert pairs.noise_key(1, step + 1, 1) == wanted[step + 1]


def test_keys_of_another_ledger_or_round_are_not_used(tmp_path):
    pairs = chained(tmp_path / "keys")
    pairs.committed(4)
    with pytest.raises(LedgerError, match="stands at round 5, and the ledger beside it ends with"):
        pairs.restore(3)
    pairs.close()
    other = PairSecrets(tmp_path / "keys", {1: "bob", 3: "dave"}, "elsewhere")
    assert not other.known
    with pytest.raises(LedgerError, match="does not hold the keys .* shares with bob, dave"):
        other.restore(0)
    with pytest.raises(ValueError, match="must be agreed on and confirmed before any noise"):
        other.noise_key(1, 0, 0)


def test_old_keys_are_no_longer_in_the_file(tmp_path):
    path = tmp_path / "keys"
    pairs = PairSecrets(path, {1: "bob", 3: "dave"}, "here")
    pairs.make()
    private = pairs.private
    assert private is not None and private.hex().encode() in path.read_bytes()
    tag = b"t" * 16
    pairs.begin({1: Agreed(b"1" * 32, tag, tag), 3: Agreed(b"3" * 32, tag, tag)})
    assert private.hex().encode() not in path.read_bytes()
    seen = [(b"1" * 32).hex().encode()]
    for step in range(3):
        assert seen[-1] in path.read_bytes()
        pairs.committed(step)
        assert not any(old in path.read_bytes() for old in seen)
        seen.append(json.loads(pairs._file.content)["chains"][:64].encode())
    pairs.finish()
    assert not any(old in path.read_bytes() for old in seen)
    assert b"chains" not in path.read_bytes()


def test_a_writing_that_is_cut_short_leaves_the_one_before(tmp_path):
    path = tmp_path / "file"
    one = Erasable(path)
    one.clear(5000)
    for content in (b"first" * 900, b"second" * 800):
        one.write(content)
    before = path.read_bytes()
    one.write(b"third" * 900)
    after, half = path.read_bytes(), len(before) // 2
    # The third writing goes into the slot that the first had.
    for cut in (0, 1, 17, 30, 40, 2000, 4095):
        path.write_bytes(
            after[:half][:0] + before[:half] + after[half : half + cut] + before[half + cut :]
        )
        assert Erasable(path).content == b"second" * 800
    # All of it is there, and the zeros are not: the new one counts, and the old one goes.
    path.write_bytes(before[:half] + after[half:])
    assert Erasable(path).content == b"third" * 900
    assert b"second" not in path.read_bytes()
    path.write_bytes(b"x" + bytes(len(before) - 1))
    with pytest.raises(LedgerError, match="is damaged, and holds the keys"):
        Erasable(path)


def test_a_full_disk_may_be_seen_to_and_loses_no_key(tmp_path, monkeypatch):
    pairs = chained(path := tmp_path / "keys")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    wanted = [pairs.noise_key(1, step, 0) for step in range(2)]
    pairs.close()
    pairs = chained(path)
    pairs.noise_key(1, 0, 0)

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(LedgerUnavailable, match="keys of the next round are not on disk"):
            pairs.committed(0)
    pairs.close()
    pairs = chained(path)
    pairs.restore(0)
    assert pairs.noise_key(1, 1, 0) == wanted[1]


class Died(Exception):
    """In the place of a process that is killed."""


class World:
    """Agents of a network that hand cards on along the edges of a ring."""

    def __init__(self, folder: Path, keys: Path, names=NAMES, pairs=(), run: Run = RUN) -> None:
        self.folder, self.names, self.run = folder, names, run
        self.members = [
            Member(name, f"tls/127.0.0.1:{700 + n}", None, None, folder, credentials(keys, name))
            for n, name in enumerate(names)
        ]
        self.partners = partners_of(Shared(len(names), (1.0,), tuple(pairs)))
        self.at: dict[int, Exchange] = {}
        self.ledgers: dict[int, Ledger] = {}

    def open(self, number: int, last: int | None = None, done: bool = False) -> Exchange:
        self.close(number)
        name = self.names[number]
        about = {"run": self.run.run, "agent": name, "configuration": self.run.configuration}
        ledger = self.ledgers[number] = Ledger(self.folder / f"{name}.ledger", about)
        found = self.at[number] = Exchange(self.members, number, self.run, self.partners, ledger)
        found.open(last, done)
        return found

    def close(self, number: int) -> None:
        for opened in (self.at, self.ledgers):
            if number in opened:
                opened.pop(number).close()

    def hand_on(self, source: int, target: int) -> bool:
        """Whether the target has learned something."""
        have, lack = self.at[source].stages(), self.at[target].stages()
        cards = [
            (number, self.names[source], self.at[source].card(number))
            for number in range(len(have))
            if have[number] > lack[number]
        ]
        return self.at[target].receive(cards, {})

    def talk(self) -> None:
        """Until nobody learns anything more."""
        agents = len(self.names)
        edges = [(n, (n + step) % agents) for n in range(agents) for step in (1, -1)]
        while sum(self.hand_on(*edge) for edge in edges if set(edge) <= set(self.at)):
            pass

    def require_agreed(self) -> None:
        for one, partners in enumerate(self.partners):
            assert not self.at[one].lacking()
            for other in partners:
                for field in range(2):
                    assert self.at[one].pairs.noise_key(other, 0, field) == self.at[
                        other
                    ].pairs.noise_key(one, 0, field)


@pytest.fixture
def worlds(keys):
    """Builds networks, and closes what is open of them in the end."""
    made = []

    def build(folder: Path, **options) -> World:
        made.append(World(folder, keys / "keys", **options))
        return made[-1]

    yield build
    for found in made:
        for number in range(len(found.names)):
            found.close(number)


@pytest.fixture
def world(tmp_path, worlds):
    return worlds(tmp_path)


def test_cards_cross_the_ring_until_all_keys_are_confirmed(world):
    for number in range(3):
        world.open(number)
    world.talk()
    assert world.at[0].stages() == "1110", "nobody confirms before it knows all its partners"
    with pytest.raises(ValueError, match="must be agreed on and confirmed before any noise"):
        world.at[0].pairs.noise_key(1, 0, 0)
    assert list(world.at[0].lacking()) == [3], "all wait for dave, and for nobody else"
    world.open(3)
    world.talk()
    assert {exchange.stages() for exchange in world.at.values()} == {"2222"}
    world.require_agreed()
    assert all(exchange.pairs.private is None for exchange in world.at.values())


def test_keys_of_a_sparse_graph_wait_for_everybody_too(tmp_path, worlds):
    world = worlds(tmp_path, pairs=[(0, 2), (1, 3)])
    for number in (0, 1, 2):
        world.open(number)
    world.talk()
    assert world.at[0].stages() == "2120"
    assert list(world.at[0].lacking()) == [3], "who is behind it needs it to hand cards on"
    world.open(3)
    world.talk()
    world.require_agreed()
    with pytest.raises(ValueError, match="neighbour must be one of"):
        world.at[0].pairs.noise_key(1, 0, 0)


class Tripwire:
    """Ends the agent that is `watched` at its writing with that number, before it or after."""

    def __init__(self, monkeypatch, at: int, after: bool) -> None:
        self.at, self.after, self.count, self.watched = at, after, 0, False
        for kind, method in ((Erasable, "clear"), (Erasable, "write"), (Ledger, "keep")):
            monkeypatch.setattr(kind, method, self._wrapped(getattr(kind, method)))

    def _wrapped(self, plain):
        def wrapped(*args, **options):
            self.count += self.watched
            here = self.watched and self.count == self.at
            if here and not self.after:
                raise Died
            plain(*args, **options)
            if here:
                raise Died

        return wrapped


def meet_until_death(world: World, wire: Tripwire) -> bool:
    """Alice meets the others, who have met; whether she has died of it."""
    try:
        for source in (1, 2, 1, 2):
            wire.watched = True
            if 0 not in world.at:
                world.open(0)
            world.hand_on(source, 0)
            wire.watched = False
            world.hand_on(0, source)
    except Died:
        return True
    return False


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_death_at_any_writing_changes_no_key(tmp_path, worlds, monkeypatch, after):
    """Alice dies at her first, second, ... writing, and is started again. What the others have been
    shown of her is what she shows afterwards.
    """
    for at in range(1, 20):
        (folder := tmp_path / f"{at}").mkdir()
        world = worlds(folder, names=NAMES[:3])
        for number in (1, 2):
            world.open(number)
        world.talk()
        with monkeypatch.context() as patch:
            died = meet_until_death(world, Tripwire(patch, at, after))
        shown = [world.at[number]._cards.get(0, Card()) for number in (1, 2)]
        world.open(0)
        for card in shown:
            assert card.introduction in (b"", world.at[0]._cards[0].introduction)
        world.talk()
        world.require_agreed()
        for number in range(3):
            world.close(number)
        if not died:
            break
    assert at > 6, "she has fewer writings than there are steps"


def test_keys_that_were_lost_are_not_made_anew(world):
    world.open(0)
    world.close(0)
    kept = (path := world.folder / "alice.ledger.keys").read_bytes()
    path.unlink()
    with pytest.raises(LedgerError, match="alice.ledger.keys is not there or is another's"):
        world.open(0)
    path.write_bytes(kept)
    for number in range(4):
        world.open(number)
    world.talk()
    world.require_agreed()


def test_a_certificate_is_not_replaced_between_introduction_and_confirmation(world, tmp_path, keys):
    world.open(0)
    world.close(0)
    tls.make(tmp_path / "new", {name: [] for name in NAMES})
    before, new = world.members[0], credentials(tmp_path / "new", "alice")
    world.members[0] = replace(before, credentials=new)
    with pytest.raises(LedgerError, match="must be the one that alice has introduced itself with"):
        world.open(0)
    world.members[0] = before
    for number in range(4):
        world.open(number)
    world.talk()
    world.require_agreed()


def test_a_ledger_without_its_introduction_is_not_the_latest(world):
    for number in range(4):
        world.open(number)
    world.talk()
    world.ledgers[0].keep({}, anew=True)
    with pytest.raises(LedgerError, match="has no introduction of alice, and the keys beside it"):
        world.open(0)


def test_a_configuration_that_changes_before_the_first_message_has_new_keys(world, tmp_path, keys):
    old = world.open(0)._known[0]
    world.close(0)
    world.run = replace(RUN, configuration="e" * 64)
    assert world.open(0)._known[0].key != old.key
    for number in range(1, 4):
        world.open(number)
    world.talk()
    world.require_agreed()


def test_an_agent_that_has_lost_its_ledger_is_refused(world):
    """Bob had shown himself to alice; everything he had is gone, and he introduces himself anew."""
    for number in range(2):
        world.open(number)
    world.talk()
    world.close(1)
    for path in world.folder.glob("bob.ledger*"):
        path.unlink()
    for number in (1, 2, 3):
        world.open(number)
    with pytest.raises(Refused, match="alice holds another introduction of bob"):
        world.talk()
    with pytest.raises(Refused, match="bob has introduced itself twice, with different keys"):
        world.at[0].receive([(1, "carol", world.at[1].card(1))], {})


def test_another_process_with_this_agents_certificate_is_noticed(world, tmp_path, worlds):
    other = worlds(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").mkdir()
    for number in range(4):
        other.open(number)
    other.talk()
    world.open(0)
    card = other.at[0].card(0)
    with pytest.raises(Refused, match="another process has introduced itself as alice"):
        world.at[0].receive([(0, "bob", card)], {})


def test_a_neighbour_must_be_the_process_that_was_greeted(world):
    world.open(0)
    world.open(1)
    card = world.at[1].card(1)
    with pytest.raises(Refused, match="bob has introduced itself twice"):
        world.at[0].receive([(1, "dave", card)], {"bob": "another instance"})


def test_who_hands_on_what_is_changed_is_named_and_the_right_one_still_accepted(world, caplog):
    for number in range(4):
        world.open(number)
    good = world.at[2].card(2)
    bad = good.replace(b"wards", b"words")
    assert not world.at[0].receive([(2, "bob", bad)], {})
    assert "what bob hands on as carol's is not: it is of run 'words'" in caplog.text
    assert "what bob hands on" in world.at[0].lacking()[2]
    assert world.at[0].stages() == "1000"
    assert world.at[0].receive([(2, "dave", good)], {})
    assert 2 not in world.at[0].lacking() and not world.at[0]._doubts
    with pytest.raises(Refused, match="the keys of bob must not be used: it cannot be read"):
        world.at[0].receive([(1, "bob", b"nonsense")], {})
    world.talk()
    world.require_agreed()


def impostor(world: World, keys: Path, key: bytes) -> Signer:
    """Dave signs that key as his own, and everybody hears of it."""
    ledger = world.open(3)._ledger
    made = Signer(credentials(keys / "keys", "dave"), RUN, "dave", ledger.instance)
    card = Card(made.introduction(key, b"n" * 32))
    world.close(3)
    for number in range(3):
        world.at[number].receive([(3, "dave", packed(card))], {})
    return made


@pytest.mark.parametrize("small", SMALL)
def test_a_member_with_a_key_of_small_order_is_refused(world, keys, small):
    for number in range(3):
        world.open(number)
    world.talk()
    with pytest.raises(Refused, match="the public key of dave must give a secret value"):
        impostor(world, keys, small.to_bytes(32, "little"))
    assert world.at[0].stages()[0] == "1", "nothing was confirmed"


def test_a_member_that_shows_anothers_key_cannot_confirm_it(world, keys):
    """Dave signs bob's public key. He hears everything, and can only guess the tags."""
    for number in range(3):
        world.open(number)
    world.talk()
    key = world.at[1]._known[1].key
    made = impostor(world, keys, key)
    card = Card(
        made.introduction(key, b"n" * 32), made.confirmation(key, b"n" * 32, [b"t" * 16] * 3)
    )
    for number in range(3):
        with pytest.raises(
            Refused, match="keys that dave and .* share do not match: .* does not own"
        ):
            world.at[number].receive([(3, "dave", packed(card))], {})


def test_a_confirmation_of_another_pair_or_introduction_is_not_taken(world, keys):
    """The tag that alice has shown to dave, shown back to her; and one of another introduction."""
    for number in range(4):
        world.open(number)
    for source in (1, 2, 3):
        world.hand_on(source, 0)
    assert world.at[0].stages() == "2111"
    dave = world.at[3]._known[3]
    made = Signer(credentials(keys / "keys", "dave"), RUN, "dave", dave.instance)
    tags = world.at[0].pairs.shown
    other = made.confirmation(dave.key, b"m" * 32, tags)
    card = Card(world.at[3]._cards[3].introduction, other)
    with pytest.raises(Refused, match="the keys of dave must not be used: it is of another"):
        world.at[0].receive([(3, "dave", packed(card))], {})
    reflected = made.confirmation(dave.key, dave.nonce, [tags[2], tags[2], tags[2]])
    card = card._replace(confirmation=reflected)
    with pytest.raises(Refused, match="the keys that dave and alice share do not match"):
        world.at[0].receive([(3, "dave", packed(card))], {})


def test_a_ledger_with_messages_goes_on_without_agreeing_anew(world):
    for number in range(4):
        world.open(number)
    world.talk()
    wanted = world.at[1].pairs.noise_key(0, 3, 0)
    for last in (0, 2):
        assert world.open(0, last=last).stages() == "2222", "for those who are behind"
    assert world.at[0].pairs.noise_key(1, 3, 0) == wanted
    assert world.open(0, last=2, done=True).card(2) is not None
    with pytest.raises(ValueError, match="must be agreed on"):
        world.at[0].pairs.noise_key(1, 3, 0)


@pytest.mark.parametrize("over", [False, True], ids=["running", "over"])
def test_a_ledger_without_messages_beside_keys_that_were_used_is_refused(world, over):
    """A ledger and mark of before the first message, put back beside the latest keys."""
    for number in range(4):
        world.open(number)
    world.talk()
    pairs = world.at[0].pairs
    pairs.noise_key(1, 0, 0)
    pairs.finish() if over else pairs.committed(0)
    with pytest.raises(LedgerError, match="has no message, and messages were made with the keys"):
        world.open(0)


def test_nobody_on_the_way_can_exchange_an_agents_certificates(keys, tmp_path, known):
    """Alice's was renewed with the same key: both are good, and she has named one of them."""
    crypto, home = tls._cryptography(), keys / "keys"
    authority = serialization.load_pem_private_key((home / "ca.key").read_bytes(), None)
    own = serialization.load_pem_private_key((home / "alice.key").read_bytes(), None)
    issuer = x509.load_pem_x509_certificate((home / "ca.pem").read_bytes()).subject
    subject = tls._named(crypto, "alice")
    renewed = tls._certificate(crypto, subject, issuer, own, authority, 9, ["localhost"])
    parts = json.loads(signer(keys, "alice").introduction(known["alice"].key, b"n" * 32))
    reader = Reader(credentials(home, "bob"), RUN)
    swapped = parts | {"certificates": [renewed.public_bytes(serialization.Encoding.DER).hex()]}
    with pytest.raises(Invalid, match="its certificate is not the one that it names"):
        reader.introduction("alice", json.dumps(swapped).encode())
    assert reader.introduction("alice", json.dumps(parts).encode()).said == known["alice"].said


@pytest.mark.parametrize("instance", ["", "\ud800", "a\nb", "x" * 65])
def test_an_instance_is_a_short_line_of_plain_characters(keys, known, instance):
    """It goes into keys, logs and the ledger."""
    made = Signer(credentials(keys / "keys", "alice"), RUN, "alice", instance)
    said = made.introduction(known["alice"].key, b"n" * 32)
    with pytest.raises(Invalid, match="it is no introduction"):
        Reader(credentials(keys / "keys", "bob"), RUN).introduction("alice", said)


def test_what_is_too_long_for_a_card_is_not_even_read(world, monkeypatch):
    """A list of a million lists takes far more memory than its bytes."""
    world.open(0)
    monkeypatch.setattr(json, "loads", None)
    with pytest.raises(Refused, match="it has 3000001 bytes, and .* are the most"):
        world.at[0].receive([(1, "bob", b"[" + b"[]," * 1_000_000)], {})


def test_zeros_that_were_cut_short_are_written_when_the_file_is_opened(tmp_path):
    path = tmp_path / "file"
    one = Erasable(path)
    one.clear(5000)
    one.write(b"first" * 900)
    before = path.read_bytes()
    one.write(b"second" * 800)
    one.close()
    after, half = path.read_bytes(), len(before) // 2
    # The first writing is in the second slot: a page of it is zeros, and another is not.
    path.write_bytes(after[:half] + bytes(4096) + before[half + 4096 :])
    assert b"first" in path.read_bytes()
    Erasable(path).close()
    assert b"first" not in path.read_bytes()
    assert Erasable(path).content == b"second" * 800
