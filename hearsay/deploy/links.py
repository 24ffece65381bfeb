"""Who is at which end of a link, what Zenoh is told of it, and what may cross it: plain data, without Zenoh.

Names, endpoints and certificates of agents; Zenoh's configuration of one process (`session_config`); and its rules of access (`access_rules`), which are read off the edges of the graph: see
transport.py for what they are for.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hearsay import _validate as check
from hearsay.deploy import certificates

OBSERVER = "observer"
NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
WORD = re.compile(r"[A-Za-z0-9_-]{1,128}")  # the last part of a key: a round, "hello", or a word with a name in it
# No "?" and "#": a Zenoh locator may carry settings behind them, and a peer list must not be able to change ours.
ENDPOINT = re.compile(r"(tcp|tls)/(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})")
LEASE_MS = 3000
RETRY = {"period_init_ms": 50, "period_max_ms": 250, "period_increase_factor": 1.5}
OPEN_MS = 1500


@dataclass(frozen=True)
class Peer:
    """An agent and where it listens: `Peer("bob", "tls/bob.example:7447")`."""

    name: str
    endpoint: str

    def __post_init__(self) -> None:
        valid_name("peer name", self.name)
        match = ENDPOINT.fullmatch(self.endpoint) if isinstance(self.endpoint, str) else None
        if match is None or not 0 < int(match[3]) < 65536:
            check.fail(f"endpoint of {self.name}", 'like "tcp/127.0.0.1:7447" or "tls/bob.example:7447"', self.endpoint)

    @property
    def host(self) -> str:
        return self.endpoint.partition("/")[2].rpartition(":")[0]

    @property
    def protocol(self) -> str:
        return self.endpoint.partition("/")[0]


@dataclass(frozen=True)
class Credentials:
    """PEM files: the authority that signs every member, and this agent's own certificate and private key."""

    ca: Path
    certificate: Path
    key: Path

    def verify(self, name: str) -> None:
        """Fail where Zenoh would only never connect: files unreadable, key wrong, certificate another's or expired."""
        for path in (self.ca, self.certificate, self.key):
            with open(path, "rb"):
                pass
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            context.load_verify_locations(self.ca)
        except ssl.SSLError as error:
            raise ValueError(f"ca must be a PEM file with a certificate, got {str(self.ca)!r} ({error})") from None
        try:
            context.load_cert_chain(self.certificate, self.key, password=lambda: b"")
        except (ssl.SSLError, ValueError) as error:
            rule = "a PEM file with the certificate of the (unencrypted) private key"
            raise ValueError(
                f"certificate must be {rule} {str(self.key)!r}, got {str(self.certificate)!r} ({error})"
            ) from None
        if (common := certificates.common_name(self.certificate)) != name:
            check.fail(f"common name in {str(self.certificate)!r}", f"the agent's name {name!r}", common)
        if (end := certificates.expiry(self.certificate)) <= datetime.now(UTC):
            check.fail(f"certificate {str(self.certificate)!r}", "valid today", f"one that expired on {end:%Y-%m-%d}")


def valid_name(what: str, value: Any) -> str:
    if not isinstance(value, str) or not NAME.fullmatch(value):
        check.fail(what, "1 to 64 letters, digits, _ or -", value)
    return value


def neighbours_of(me: Peer, hears: Iterable[Peer], heard_by: Iterable[Peer]) -> dict[str, Peer]:
    found: dict[str, Peer] = {}
    if me.name == OBSERVER:
        check.fail("agent name", f"other than {OBSERVER!r}", me.name)
    for peer in (*hears, *heard_by):
        if peer.name in (me.name, OBSERVER):
            check.fail("neighbour", f"another agent, and not called {OBSERVER!r}", peer.name)
        if found.setdefault(peer.name, peer) != peer:
            check.fail(
                f"endpoint of {peer.name}",
                f"the same in hears and heard_by ({found[peer.name].endpoint})",
                peer.endpoint,
            )
    return found


def session_config(
    peers: Iterable[Peer], listen: list[str], connect: list[str], credentials: Credentials | None, longest: int
) -> dict[str, Any]:
    protocol = "tcp" if credentials is None else "tls"
    for peer in peers:
        if peer.protocol != protocol:
            rule = "tls/… with credentials" if credentials is not None else "tcp/… without credentials"
            check.fail(f"endpoint of {peer.name}", rule, peer.endpoint)
    link: dict[str, Any] = {
        "protocols": [protocol],
        # Four keep-alives to a lease: a neighbour that falls silent is given up after one lease.
        "tx": {
            "lease": LEASE_MS,
            "keep_alive": 4,
            # As many batches in flight as Zenoh allows: a third less time for messages of megabytes than with its 2.
            "queue": {"size": {"data": 16}, "congestion_control": {"block": {"wait_before_close": LEASE_MS * 1000}}},
        },
        "rx": {"max_message_size": longest},
    }
    if credentials is not None:
        certificate, key = str(Path(credentials.certificate).resolve()), str(Path(credentials.key).resolve())
        link["tls"] = {
            "root_ca_certificate": str(Path(credentials.ca).resolve()),
            "enable_mtls": True,
            "verify_name_on_connect": True,
            "close_link_on_expiration": True,
            "listen_certificate": certificate,
            "listen_private_key": key,
            "connect_certificate": certificate,
            "connect_private_key": key,
        }
    return {
        "mode": "peer",
        "listen": {"endpoints": listen, "timeout_ms": 0, "exit_on_failure": True},
        "connect": {"endpoints": connect, "timeout_ms": -1, "exit_on_failure": False, "retry": RETRY},
        # A peer would route for sessions in client mode, which could then hear its neighbours through it: refuse them.
        "gateway": {"south": []},
        "scouting": {"delay": 0, "multicast": {"enabled": False}, "gossip": {"enabled": False}},
        "transport": {
            "unicast": {"open_timeout": OPEN_MS, "accept_timeout": OPEN_MS, "max_links": 1},
            # Shared memory would carry messages past TLS, in files of the host.
            "shared_memory": {"enabled": False},
            "link": link,
        },
    }


def access_rules(run: str, me: str, hears: Sequence[str], heard_by: Sequence[str]) -> dict[str, Any]:
    """What may cross the link of each certificate. A message must be allowed on its way out and again on its way in."""
    rules: list[dict[str, Any]] = []
    subjects: list[dict[str, Any]] = []
    policies: list[dict[str, Any]] = []

    def allow(peer: str, flow: str, messages: list[str], key: str) -> None:
        rule = f"{peer} {flow} {len(rules)}"
        rules.append(
            {
                "id": rule,
                "permission": "allow",
                "flows": [flow],
                "messages": messages,
                "key_exprs": [f"hearsay/{run}/{key}"],
            }
        )
        policies.append({"rules": [rule], "subjects": [peer]})

    for peer in [*sorted({*hears, *heard_by}), OBSERVER]:
        subjects.append({"id": peer, "cert_common_names": [peer], "link_protocols": ["tls"]})
        for flow, speaker, listener, heard in (
            ("ingress", peer, me, peer in hears),
            ("egress", me, peer, peer in heard_by),
        ):
            # `flow` carries what `speaker` says ...
            if speaker == OBSERVER:
                continue
            allow(peer, flow, ["declare_queryable"], f"{speaker}/*")
            allow(peer, flow, ["reply"], f"{speaker}/*" if heard else f"{speaker}/hello")
            if heard:
                allow(peer, flow, ["put"], f"{speaker}/*")
            if listener != OBSERVER:
                allow(peer, flow, ["liveliness_token"], f"{speaker}/alive")
                # ... and the opposite flow carries what `listener` asks of `speaker`.
            back = "egress" if flow == "ingress" else "ingress"
            allow(peer, back, ["query"], f"{speaker}/*" if heard else f"{speaker}/hello")
            if heard:
                allow(peer, back, ["declare_subscriber"], f"{speaker}/*")
            if listener != OBSERVER:
                allow(peer, back, ["declare_liveliness_subscriber", "liveliness_query"], f"{speaker}/alive")
    return {"enabled": True, "default_permission": "deny", "rules": rules, "subjects": subjects, "policies": policies}
