"""Keys that two deployed agents share, round by round, for noise that cancels between them.

**The key of a pair.** Each agent has an X25519 key of its own for this ledger, and a nonce
(introductions.py). Agents i < j work out

    chain_0, check = HKDF-SHA256(X25519(i, j);  label, both certificates' SHA-256, both public keys
                                 as they were received, both nonces, both ledgers' instances, each
                                 in the order of agents' numbers; run, configuration, plan)

The value of X25519 alone would not do. A member may sign another's public key as its own, also
with a point of small order added, which is another key with the same value: keys that follow from
the value alone are then equal for two pairs, and their noise cancels inside one message. With
everything that tells the pairs apart in the derivation such keys differ, and the member knows
neither of them. Nonces and keys are made for one ledger, so the same plan run twice has other keys.
An all-zero value (a point of small order as a key) is refused.

**Confirmation.** Before any noise is added each end shows the other a tag made with `check`
(TAG_BYTES of an HMAC). A tag that does not match says that the ends hold different introductions of
each other, or that the other end does not own the key it shows.

**The ratchet.** For every round r

    key_r = HKDF-expand(chain_r; "round", r),   chain_{r+1} = HKDF-expand(chain_r; "chain", r)
    key_{r, field} = HKDF-expand(key_r; "field", field)

and once round r's message is in the ledger only chain_{r+1} is kept, in a file where it takes
the place of the last one (erasable.py, which says what that can erase and what not). Whoever gets
that file later learns the keys of rounds to come and of none before, and the X25519 key, which
would give all of them, is erased as soon as the chains exist. So:

    before the introduction is shown   X25519 key and nonce are on disk
    before a confirmation is shown     all introductions are in the ledger, the chains on disk,
                                       the X25519 key is erased
    after round r's message            the chain stands at round r + 1; a process that died
                                       before it did so moves it on when it is started again

A process that dies at any moment goes on with the same keys. A round's key is only lost when the
message that used it is in the ledger, from where the same bytes are sent again.

The strength is that of X25519, SHA-256 and the signatures (all of them from `cryptography`), not
that of the noise itself: see docs/threat-model.md. X25519 does not withstand quantum computers.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from cryptography.hazmat.primitives import hashes, hmac, serialization
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.kdf.hkdf import HKDF, HKDFExpand

from hearsay.deploy.erasable import Erasable
from hearsay.deploy.introductions import NONCE_BYTES, TAG_BYTES, Introduction, Run
from hearsay.deploy.rows import TREAT, LedgerError

_LABEL = b"hearsay secrets 1"
_BYTES = 32
_ROOM = 2048  # bytes of a file besides what belongs to pairs


class Agreed(NamedTuple):
    """What an end of a pair works out: its first chain, the tag that it shows,
    and the tag that it expects.
    """

    chain: bytes
    shown: bytes
    expected: bytes


def public_bytes(private: bytes) -> bytes:
    """The public key of a private one."""
    raw, form = serialization.Encoding.Raw, serialization.PublicFormat.Raw
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes(raw, form)


def agree(
    private: bytes, mine: Introduction, theirs: Introduction, *, first: bool, run: Run
) -> Agreed:
    """The secrets that this agent has in common with another.

    Args:
      private: this agent's X25519 key.
      mine: its introduction.
      theirs: the other's.
      first: this agent has the smaller number.
      run: of both.
    """
    try:
        value = X25519PrivateKey.from_private_bytes(private).exchange(
            X25519PublicKey.from_public_bytes(theirs.key)
        )
    except ValueError:
        raise ValueError(
            f"the public key of {theirs.agent} must give a secret value, got one of small order,"
            " with which the value is zero for everybody: an honest agent never has such a key."
            " Nothing was sent; find out who runs it"
        ) from None
    ends = (mine, theirs) if first else (theirs, mine)
    transcript = _joined(
        _LABEL,
        *(end.fingerprint for end in ends),
        *(end.key for end in ends),
        *(end.nonce for end in ends),
        *(end.instance.encode() for end in ends),
        *(word.encode() for word in run.words().values()),
    )
    both = HKDF(hashes.SHA256(), 2 * _BYTES, None, transcript).derive(value)
    chain, check = both[:_BYTES], both[_BYTES:]
    tags = _tag(check, 0), _tag(check, 1)
    return Agreed(chain, tags[not first], tags[first])


class PairSecrets:
    """The keys that one agent shares with others, from the round it stands at on.

    Args:
      path: of the file that keeps them, beside the ledger.
      partners: the numbers of the agents that it shares noise with.
      about: words that name the ledger and the run; a file of another one is not used.
    """

    def __init__(self, path: Path, partners: Mapping[int, str], about: str) -> None:
        self._names, self._about = dict(sorted(partners.items())), about
        self._file = Erasable(path)
        self._kept = self._read()
        self._round, self._chains, self._confirmed = -1, dict[int, bytes](), False
        self._keys = dict[int, bytes]()
        if "chains" in self._kept:
            self._stand(self._kept["round"], _split(self._kept["chains"], self._names, _BYTES))

    @property
    def private(self) -> bytes | None:
        """The X25519 key of this ledger, until the chains exist."""
        found = self._kept.get("private")
        return None if found is None else bytes.fromhex(found)

    @property
    def nonce(self) -> bytes:
        return bytes.fromhex(self._kept["nonce"])

    @property
    def shown(self) -> list[bytes]:
        """The tags that this agent shows, in the order of its partners' numbers."""
        return list(_split(self._kept["shown"], self._names, TAG_BYTES).values())

    @property
    def expected(self) -> dict[int, bytes]:
        """The tags that partners must show."""
        return _split(self._kept["expected"], self._names, TAG_BYTES)

    @property
    def known(self) -> bool:
        """The file holds something of this ledger and run."""
        return bool(self._kept)

    @property
    def agreed(self) -> bool:
        """The chains exist."""
        return "chains" in self._kept

    @property
    def used(self) -> bool:
        """A message was made with keys of this file, or it was the run's last."""
        return self._round > 0 or "done" in self._kept

    def make(self) -> None:
        """A new X25519 key and nonce, on disk when this returns."""
        private = X25519PrivateKey.generate().private_bytes_raw()
        self._file.clear(_ROOM + 2 * (_BYTES + 2 * TAG_BYTES) * len(self._names))
        self._write({"private": private.hex(), "nonce": os.urandom(NONCE_BYTES).hex()})

    def begin(self, agreed: Mapping[int, Agreed]) -> None:
        """With the chains of all partners, which take the place of the X25519 key."""
        pairs = dict(sorted(agreed.items()))
        assert list(pairs) == list(self._names)
        chains = {number: one.chain for number, one in pairs.items()}
        tags = {
            what: b"".join(getattr(one, what) for one in pairs.values()).hex()
            for what in ("shown", "expected")
        }
        self._keep(0, chains, nonce=self.nonce.hex(), **tags)
        self._file.settle()

    def confirm(self) -> None:
        """All partners have shown the tags that were expected of them."""
        self._confirmed = True

    def noise_key(self, neighbour: int, round: int, field: int) -> bytes:
        """32 bytes for the noise that this agent shares with another in that round and field,
        the same at both ends. Earlier rounds than the last one asked for are gone.
        """
        if neighbour not in self._names:
            raise ValueError(f"neighbour must be one of {list(self._names)}, got {neighbour}")
        if not self._chains or not self._confirmed:
            raise ValueError(
                "keys of pairs must be agreed on and confirmed before any noise is drawn from them"
            )
        if round < self._round:
            raise ValueError(
                f"round must be at least {self._round}, got {round}: the keys of earlier rounds are"
                " erased"
            )
        self._move(round)
        if neighbour not in self._keys:
            self._keys[neighbour] = _expand(self._chains[neighbour], b"round", round)
        return _expand(self._keys[neighbour], b"field", field)

    def committed(self, round: int) -> None:
        """That round's message is in the ledger: erase its keys and those of all before."""
        if self._names:
            self._move(round + 1)
            self._keep(self._round, self._chains)

    def restore(self, last: int) -> None:
        """Go on after that round's message, which is in the ledger."""
        if not self._names:
            return
        if not self._chains:
            raise LedgerError(
                f"{self._file.path} does not hold the keys of the noise that this agent shares with"
                f" {', '.join(self._names.values())}, and the ledger beside it has messages."
                f" {TREAT}"
            )
        if self._round > last + 1:
            raise LedgerError(
                f"{self._file.path} stands at round {self._round}, and the ledger beside it ends"
                f" with round {last}: it is not the latest one. {TREAT}"
            )
        # There would be no message without it.
        self.confirm()
        if self._round <= last:
            self.committed(last)

    def finish(self) -> None:
        """No message follows: erase everything."""
        self._chains, self._keys = {}, {}
        if self.known:
            self._write({"done": True})
            self._file.settle()

    def close(self) -> None:
        self._file.close()

    def _read(self) -> dict[str, Any]:
        try:
            found = json.loads(self._file.content or b"{}")
        except ValueError:
            found = {}
        # Of a ledger that was deleted, or of a configuration that was changed before
        # anything was sent.
        return found if found.get("about") == self._about else {}

    def _write(self, content: dict[str, Any]) -> None:
        self._file.write(json.dumps({"about": self._about} | content).encode())
        self._kept = content

    def _keep(self, round: int, chains: Mapping[int, bytes], **more: Any) -> None:
        self._write({"round": round, "chains": b"".join(chains.values()).hex(), **more})
        self._stand(round, chains)

    def _stand(self, round: int, chains: Mapping[int, bytes]) -> None:
        if round != self._round:
            self._keys = {}
        self._round, self._chains = round, dict(chains)

    def _move(self, round: int) -> None:
        """All chains, in memory: what is on disk moves on with the ledger."""
        for at in range(self._round, round):
            chains = {
                number: _expand(chain, b"chain", at) for number, chain in self._chains.items()
            }
            self._stand(at + 1, chains)


def _tag(check: bytes, end: int) -> bytes:
    """That the end with the smaller number (0) or the larger one (1) shows."""
    made = hmac.HMAC(check, hashes.SHA256())
    made.update(_joined(_LABEL, b"confirmation", bytes([end])))
    return made.finalize()[:TAG_BYTES]


def _expand(secret: bytes, what: bytes, number: int) -> bytes:
    info = _joined(_LABEL, what, int(number).to_bytes(8, "big"))
    return HKDFExpand(hashes.SHA256(), _BYTES, info).derive(secret)


def _joined(*parts: bytes) -> bytes:
    """Each with its length, so that no two lists of parts give the same bytes."""
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


def _split(text: str, names: Mapping[int, str], size: int) -> dict[int, bytes]:
    found = bytes.fromhex(text)
    return {number: found[at * size : (at + 1) * size] for at, number in enumerate(names)}
