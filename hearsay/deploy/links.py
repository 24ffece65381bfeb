"""Who is at which end of a link, what Zenoh is told of it, and what may cross it: plain data,
without Zenoh.

Names, endpoints and certificates of agents; Zenoh's configuration of one process
(`session_config`); and its rules of access (`access_rules`), which are read off the edges of the
graph: see transport.py for what they are for.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hearsay import _validate as require
from hearsay.deploy import tls

OBSERVER = "observer"
NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
# The last part of a key: a round, "hello", or a word with a name in it.
WORD = re.compile(r"[A-Za-z0-9_-]{1,128}")
# No "?" and "#": a Zenoh locator may carry settings behind them, and a peer list must not be able
# to change ours.
ENDPOINT = re.compile(r"(tcp|tls)/(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})")
# A lost packet on a line of one second's round trip keeps a link silent for several seconds (TCP
# waits, and doubles).
LEASE_MS = 10_000
RETRY = {"period_init_ms": 50, "period_max_ms": 250, "period_increase_factor": 1.5}
OPEN_MS = 10_000  # TCP, TLS and Zenoh's own handshake take four round trips
# Connections that have not said who they are: whoever reaches the port can fill these.
PENDING = 10_000
# An agent behind NAT listens on all its addresses; others find it under another.
EVERYWHERE = ("0.0.0.0", "[::]")


@dataclass(frozen=True)
class Peer:
    """An agent and where it listens: `Peer("bob", "tls/bob.example:7447")`."""

    name: str
    endpoint: str

    def __post_init__(self) -> None:
        valid_name("peer name", self.name)
        valid_endpoint(f"endpoint of {self.name}", self.endpoint)

    @property
    def host(self) -> str:
        return self.endpoint.partition("/")[2].rpartition(":")[0]

    @property
    def port(self) -> int:
        return int(self.endpoint.rpartition(":")[2])

    @property
    def protocol(self) -> str:
        return self.endpoint.partition("/")[0]


@dataclass(frozen=True)
class Credentials:
    """PEM files: the authority that signs every member, and this agent's own certificate
    and private key.
    """

    ca: Path
    certificate: Path
    key: Path

    def verify(self, name: str, host: str | None = None) -> None:
        """Fail where Zenoh would only never connect: files unreadable, key wrong,
        certificate another's, expired, of another authority, or of another host.
        """
        files = {"ca": self.ca, "certificate": self.certificate, "key": self.key}
        for what, path in files.items():
            try:
                with open(path, "rb"):
                    pass
            except OSError as error:
                found = f"{path} ({error.strerror})"
                require.fail(f"{what} of {name}", "a PEM file that can be read", found)
        listening, connecting = (
            self.context(ssl.PROTOCOL_TLS_SERVER),
            self.context(ssl.PROTOCOL_TLS_CLIENT),
        )
        mine = f"certificate {str(self.certificate)!r}"
        if (common := tls.common_name(self.certificate)) != name:
            require.fail(
                f"common name in {str(self.certificate)!r}", f"the agent's name {name!r}", common
            )
        now, begin, end = (
            datetime.now(UTC),
            tls.begin(self.certificate),
            tls.expiry(self.certificate),
        )
        if not begin <= now < end:
            when = f"expired on {end:%Y-%m-%d}" if end <= now else f"begins on {begin:%Y-%m-%d}"
            today = f"valid today, on {now:%Y-%m-%d} by this host's clock"
            require.fail(mine, today, f"one that {when}")
        connecting.check_hostname = host is not None and host not in EVERYWHERE
        try:
            _shake_hands(connecting, listening, host)
        except ssl.SSLError as error:
            why = getattr(error, "verify_message", str(error))
            # OpenSSL's numbers for a name and for an address.
            if getattr(error, "verify_code", 0) in (62, 64):
                raise ValueError(
                    f"alternative names of {mine} must include the host of the agent's endpoint,"
                    f" {host!r}, got {tls.hosts(self.certificate)!r}"
                ) from None
            require.fail(
                mine,
                f"signed by the authority in {str(self.ca)!r}, for listening and connecting",
                f"one that is not ({why})",
            )

    def context(self, side: Any) -> ssl.SSLContext:
        """How this agent listens or connects, as OpenSSL knows it;
        fails in words where a file is not what it should be.
        """
        context = ssl.SSLContext(side)
        context.verify_mode = ssl.CERT_REQUIRED
        # As Zenoh's TLS has it: an authority need not be a root, and a host is an alternative name,
        # never a common one.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.hostname_checks_common_name = False
        try:
            context.load_verify_locations(self.ca)
        except ssl.SSLError as error:
            raise ValueError(
                f"ca must be a PEM file with a certificate, got {str(self.ca)!r} ({error})"
            ) from None
        try:
            context.load_cert_chain(self.certificate, self.key, password=lambda: b"")
        except (ssl.SSLError, ValueError) as error:
            rule = "a PEM file with the certificate of the (unencrypted) private key"
            raise ValueError(
                f"certificate must be {rule} {str(self.key)!r}, got {str(self.certificate)!r}"
                f" ({error})"
            ) from None
        return context


def _shake_hands(connecting: ssl.SSLContext, listening: ssl.SSLContext, host: str | None) -> None:
    """Both ends of a TLS connection in memory: what two agents of this authority would
    say to the certificate.
    """
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        connecting.wrap_bio(back, there, server_hostname=host and host.strip("[]")),
        listening.wrap_bio(there, back, server_side=True),
    ]
    for _ in range(3):  # TLS 1.2 and 1.3 need no more turns
        for end in ends:
            with suppress(ssl.SSLWantReadError):
                end.do_handshake()


def valid_name(what: str, value: Any) -> str:
    if not isinstance(value, str) or not NAME.fullmatch(value):
        require.fail(what, "1 to 64 letters, digits, _ or -", value)
    return value


def valid_endpoint(what: str, value: Any) -> str:
    match = ENDPOINT.fullmatch(value) if isinstance(value, str) else None
    if match is None or not 0 < int(match[3]) < 65536:
        require.fail(what, 'like "tcp/127.0.0.1:7447" or "tls/bob.example:7447"', value)
    if match[1] == "tls" and match[2].startswith("[") and match[2] not in EVERYWHERE:
        rule = (
            "a host name and a port under TLS, where Zenoh connects to no IPv6 address (a name that"
            " resolves to one will do)"
        )
        require.fail(what, rule, value)
    return value


def neighbours_of(me: Peer, hears: Iterable[Peer], heard_by: Iterable[Peer]) -> dict[str, Peer]:
    found: dict[str, Peer] = {}
    if me.name == OBSERVER:
        require.fail("agent name", f"other than {OBSERVER!r}", me.name)
    for peer in (*hears, *heard_by):
        if peer.name in (me.name, OBSERVER):
            require.fail("neighbour", f"another agent, and not called {OBSERVER!r}", peer.name)
        if found.setdefault(peer.name, peer) != peer:
            require.fail(
                f"endpoint of {peer.name}",
                f"the same in hears and heard_by ({found[peer.name].endpoint})",
                peer.endpoint,
            )
    return found


def session_config(
    peers: Iterable[Peer],
    listen: list[str],
    connect: list[str],
    credentials: Credentials | None,
    longest: int,
) -> dict[str, Any]:
    protocol = "tcp" if credentials is None else "tls"
    for peer in peers:
        if peer.protocol != protocol:
            rule = (
                "tls/… with credentials" if credentials is not None else "tcp/… without credentials"
            )
            require.fail(f"endpoint of {peer.name}", rule, peer.endpoint)
    link: dict[str, Any] = {
        "protocols": [protocol],
        # Four keep-alives to a lease: a neighbour that falls silent is given up after one lease.
        "tx": {
            "lease": LEASE_MS,
            "keep_alive": 4,
            # As many batches in flight as Zenoh allows: a third less time for messages of megabytes
            # than with its 2.
            "queue": {
                "size": {"data": 16},
                "congestion_control": {"block": {"wait_before_close": LEASE_MS * 1000}},
            },
        },
        "rx": {"max_message_size": longest},
    }
    if credentials is not None:
        certificate, key = (
            str(Path(credentials.certificate).resolve()),
            str(Path(credentials.key).resolve()),
        )
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
        "connect": {
            "endpoints": connect,
            "timeout_ms": -1,
            "exit_on_failure": False,
            "retry": RETRY,
        },
        # A peer would route for sessions in client mode, which could then hear its neighbours
        # through it: refuse them.
        "gateway": {"south": []},
        "scouting": {"delay": 0, "multicast": {"enabled": False}, "gossip": {"enabled": False}},
        "transport": {
            "unicast": {
                "open_timeout": OPEN_MS,
                "accept_timeout": OPEN_MS,
                "accept_pending": PENDING,
                "max_links": 1,
            },
            # Shared memory would carry messages past TLS, in files of the host.
            "shared_memory": {"enabled": False},
            "link": link,
        },
    }


def access_rules(
    run: str, me: str, hears: Sequence[str], heard_by: Sequence[str]
) -> dict[str, Any]:
    """What may cross the link of each certificate.

    A message must be allowed on its way out and again on its way in.
    """
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
                # Two parts, which `*` does not match: that bob is done comes over bob's link only.
                allow(peer, flow, ["declare_queryable", "reply"], f"{speaker}/done/{listener}")
            if listener != OBSERVER:
                allow(peer, flow, ["liveliness_token"], f"{speaker}/alive")
                # ... and the opposite flow carries what `listener` asks of `speaker`.
            back = "egress" if flow == "ingress" else "ingress"
            allow(peer, back, ["query"], f"{speaker}/*" if heard else f"{speaker}/hello")
            if heard:
                allow(peer, back, ["declare_subscriber"], f"{speaker}/*")
                allow(peer, back, ["query"], f"{speaker}/done/{listener}")
            if listener != OBSERVER:
                allow(
                    peer,
                    back,
                    ["declare_liveliness_subscriber", "liveliness_query"],
                    f"{speaker}/alive",
                )
    return {
        "enabled": True,
        "default_permission": "deny",
        "rules": rules,
        "subjects": subjects,
        "policies": policies,
    }
