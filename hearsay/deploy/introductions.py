"""Who an agent of this run is, and with which key: statements that its certificate signs.

Agents that share noise (secrets.py) need keys in common, and most of them have no link to each
other. So each makes two statements, which any member may pass on (exchange.py) and nobody can
change:

    introduction   run, configuration, plan, agent, instance of its ledger, a public X25519 key that
                   it made for this ledger alone, a nonce of 32 bytes, the SHA-256 of its
                   certificate; with its certificates
    confirmation   the same, and a tag for every agent it shares noise with: only who can work out
                   the key of a pair can make its tag

Each is signed with the private key of the agent's TLS certificate. Whoever receives one checks,
before it uses it or passes it on: the certificate's chain up to the network's authority and its
dates, as `cryptography` does it for TLS clients (it asks for alternative names and the authority's
key identifier, which some small authorities leave out: an agent whose own certificate would not be
believed is told so when it starts); that its common name is the agent; the signature; that the
statement is of this run, configuration and plan and written in its one canonical form.

What is signed begins with 64 spaces and words of its own, as in TLS 1.3 (RFC 8446, 4.4.3): the same
key signs handshakes, and no handshake can be mistaken for a statement, nor a statement for one. A
signature shows that the agent says so, and not that it owns the X25519 key: it may have copied
another's. That is what the tags and the derivation of pair keys (secrets.py) are for.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.x509 import verification

from hearsay.deploy.links import Credentials

FORMAT = 1
KEY_BYTES = NONCE_BYTES = 32
TAG_BYTES = 16
# Of an introduction, most of which is certificates; a member cannot make us hold longer ones.
LARGEST = 16 * 2**10
_MOST_CERTIFICATES = 4
_KINDS = ("introduction", "confirmation")
_HEX = re.compile(r"([0-9a-f]{2})*")
_INSTANCE = re.compile(r"[ -~]{1,64}")
_SHA = hashes.SHA256()
_PSS = padding.PSS(padding.MGF1(_SHA), padding.PSS.DIGEST_LENGTH)
_PRIVATE = (ec.EllipticCurvePrivateKey, rsa.RSAPrivateKey, ed25519.Ed25519PrivateKey)


class Invalid(ValueError):
    """A statement that cannot be believed, and why."""


@dataclass(frozen=True)
class Run:
    """What all agents of a run have in common, and every statement names."""

    run: str
    configuration: str
    plan: str

    def words(self) -> dict[str, str]:
        return {"run": self.run, "configuration": self.configuration, "plan": self.plan}


class Introduction(NamedTuple):
    """What an agent says of itself; `fingerprint` is the SHA-256 of its certificate."""

    agent: str
    instance: str
    key: bytes
    nonce: bytes
    certificate: x509.Certificate

    @property
    def fingerprint(self) -> bytes:
        return self.certificate.fingerprint(_SHA)

    @property
    def said(self) -> tuple[str, bytes, bytes, bytes]:
        """What two introductions of one agent must have in common."""
        return self.instance, self.key, self.nonce, self.fingerprint


class Signer:
    """Makes an agent's statements.

    Args:
      credentials: the agent's.
      run: of which they are.
      agent: its name.
      instance: of its ledger.
    """

    def __init__(self, credentials: Credentials, run: Run, agent: str, instance: str) -> None:
        self._words = {**run.words(), "agent": agent, "instance": instance, "format": FORMAT}
        self._chain = x509.load_pem_x509_certificates(credentials.certificate.read_bytes())
        self._key = serialization.load_pem_private_key(credentials.key.read_bytes(), None)
        if not isinstance(self._key, _PRIVATE):
            raise ValueError(
                f"key {str(credentials.key)!r} must be an RSA, ECDSA or Ed25519 key to sign"
                f" introductions with, got {type(self._key).__name__}"
            )

    @property
    def fingerprint(self) -> bytes:
        """Of the certificate with which it signs."""
        return self._chain[0].fingerprint(_SHA)

    def introduction(self, key: bytes, nonce: bytes) -> bytes:
        """With that public X25519 key."""
        # An agent may have two certificates of one key: nobody on the way can exchange them.
        own = {"certificate": self.fingerprint.hex()}
        signed = self._signed("introduction", {"key": key.hex(), "nonce": nonce.hex()} | own)
        der = serialization.Encoding.DER
        return _dump(signed | {"certificates": [c.public_bytes(der).hex() for c in self._chain]})

    def confirmation(self, key: bytes, nonce: bytes, tags: list[bytes]) -> bytes:
        """Of the introduction with that key: a tag for each partner, in the order of numbers."""
        said = {"key": key.hex(), "nonce": nonce.hex(), "tags": b"".join(tags).hex()}
        return _dump(self._signed("confirmation", said))

    def _signed(self, kind: str, said: dict[str, str]) -> dict[str, Any]:
        statement = _dump(self._words | said).decode()
        content = _to_sign(kind, statement)
        if isinstance(self._key, ec.EllipticCurvePrivateKey):
            signature = self._key.sign(content, ec.ECDSA(_SHA))
        elif isinstance(self._key, rsa.RSAPrivateKey):
            signature = self._key.sign(content, _PSS, _SHA)
        else:
            assert isinstance(self._key, ed25519.Ed25519PrivateKey)
            signature = self._key.sign(content)
        return {"statement": statement, "signature": signature.hex()}


class Reader:
    """Reads statements of one run, and believes none that its authority does not stand behind.

    Args:
      credentials: the reader's own, for the authority.
      run: of which they must be.
    """

    def __init__(self, credentials: Credentials, run: Run) -> None:
        self._run = run
        self._store = verification.Store(
            x509.load_pem_x509_certificates(credentials.ca.read_bytes())
        )

    def introduction(self, agent: str, given: bytes, *, kept: bool = False) -> Introduction:
        """What `agent` says of itself; raises `Invalid`, in words, where it is not that.

        Args:
          agent: its name in the plan.
          given: the bytes that somebody passed on.
          kept: they were believed before; the certificate may have ended since.
        """
        parts, said = self._statement("introduction", agent, given, LARGEST)
        chain = parts.get("certificates")
        if not isinstance(chain, list) or not 1 <= len(chain) <= _MOST_CERTIFICATES:
            raise Invalid("it has no certificate, or too many")
        certificate = self._certificate(agent, chain, kept)
        _require_signature("introduction", certificate, parts)
        key, nonce = _sized(said, "key", KEY_BYTES), _sized(said, "nonce", NONCE_BYTES)
        found = Introduction(agent, said["instance"], key, nonce, certificate)
        if said.get("certificate") != found.fingerprint.hex():
            raise Invalid("its certificate is not the one that it names")
        return found

    def confirmation(self, of: Introduction, given: bytes, partners: int) -> list[bytes]:
        """The tags of that agent, one for each of its partners."""
        most = LARGEST + 2 * TAG_BYTES * partners
        parts, said = self._statement("confirmation", of.agent, given, most)
        _require_signature("confirmation", of.certificate, parts)
        if (said["instance"], said.get("key"), said.get("nonce")) != (
            of.instance,
            of.key.hex(),
            of.nonce.hex(),
        ):
            raise Invalid("it is of another introduction")
        tags = _sized(said, "tags", TAG_BYTES * partners)
        return [tags[at : at + TAG_BYTES] for at in range(0, len(tags), TAG_BYTES)]

    def _statement(
        self, kind: str, agent: str, given: bytes, most: int
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        if len(given) > most:
            raise Invalid(f"it has {len(given)} bytes, and {most} are the most")
        try:
            parts = json.loads(given)
            statement = parts["statement"]
            said = json.loads(statement)
            canonical = _dump(said).decode() == statement
            canonical = canonical and _INSTANCE.fullmatch(said["instance"]) is not None
        except (ValueError, TypeError, KeyError, RecursionError):
            raise Invalid(f"it is no {kind}") from None
        if not canonical:
            raise Invalid(f"it is no {kind}")
        if type(said.get("format")) is not int or said["format"] != FORMAT:
            raise Invalid(f"it is of format {str(said.get('format'))[:20]}, and not {FORMAT}")
        for what, mine in {**self._run.words(), "agent": agent}.items():
            if said.get(what) != mine:
                hint = " (another version works it out otherwise)" if what == "plan" else ""
                raise Invalid(
                    f"it is of {what} {str(said.get(what))[:64]!r}, and not {mine!r}{hint}"
                )
        return parts, said

    def _certificate(self, agent: str, chain: list[Any], kept: bool) -> x509.Certificate:
        try:
            certificates = [x509.load_der_x509_certificate(_bytes(one)) for one in chain]
            names = certificates[0].subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
            certificates[0].public_key()
        except Exception as error:
            # A certificate can be broken in more ways than the library has a name for.
            raise Invalid(f"its certificate cannot be read ({type(error).__name__})") from None
        if [name.value for name in names] != [agent]:
            who = ", ".join(str(name.value)[:64] for name in names) or "nobody"
            raise Invalid(f"its certificate is {who}'s")
        if not kept:
            now = datetime.now(UTC)
            builder = verification.PolicyBuilder().store(self._store).time(now)
            try:
                builder.build_client_verifier().verify(certificates[0], certificates[1:])
            except Exception as error:
                why = f"the network's authority does not stand behind it ({error!s:.200})"
                raise Invalid(why) from None
        return certificates[0]


def _to_sign(kind: str, statement: str) -> bytes:
    assert kind in _KINDS
    return b" " * 64 + f"hearsay secrets {FORMAT}, {kind}\0{statement}".encode()


def _require_signature(kind: str, certificate: x509.Certificate, parts: dict[str, Any]) -> None:
    content, key = _to_sign(kind, parts["statement"]), certificate.public_key()
    try:
        signature = _bytes(parts.get("signature"))
        if isinstance(key, ec.EllipticCurvePublicKey):
            key.verify(signature, content, ec.ECDSA(_SHA))
        elif isinstance(key, rsa.RSAPublicKey):
            key.verify(signature, content, _PSS, _SHA)
        elif isinstance(key, ed25519.Ed25519PublicKey):
            key.verify(signature, content)
        else:
            raise Invalid("its certificate has no RSA, ECDSA or Ed25519 key")
    except InvalidSignature:
        raise Invalid("its signature is not that of its certificate") from None


def _bytes(given: object) -> bytes:
    if not isinstance(given, str) or not _HEX.fullmatch(given):
        raise Invalid("it has something else where bytes should be")
    return bytes.fromhex(given)


def _sized(said: dict[str, Any], what: str, size: int) -> bytes:
    found = _bytes(said.get(what))
    if len(found) != size:
        raise Invalid(f"its {what} must have {size} bytes, and has {len(found)}")
    return found


def _dump(content: dict[str, Any]) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
