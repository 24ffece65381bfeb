"""Why a neighbour is not there, in words an operator can act on.

Zenoh tries again and says nothing, so an absent neighbour, a wrong port, a closed firewall and a
certificate that is not accepted all look the same. `Diagnosis` dials the neighbour's endpoint with
the standard library, in a thread of its own, as Zenoh would, and keeps what was wrong. `Expiry`
warns of the agent's own certificate.
"""

from __future__ import annotations

import logging
import socket
import ssl
import threading
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hearsay.deploy import tls
from hearsay.deploy.links import Credentials, Peer

log = logging.getLogger("hearsay.agent")
DIAL = 5.0  # seconds for one attempt
_ANSWER = 1.0  # seconds in which the other end turns a certificate down
_SOON = 30  # days
_DAY = 86400.0


class Diagnosis:
    """What keeps neighbours from being reached, as far as one can see from here."""

    def __init__(self, me: Peer, peers: Iterable[Peer], credentials: Credentials | None) -> None:
        self._me, self._peers, self._credentials = (
            me,
            {peer.name: peer for peer in peers},
            credentials,
        )
        self._reasons: dict[str, str] = {}
        self._answers: dict[str, bool] = {}
        self._dialling: dict[str, threading.Thread] = {}

    def dial(self, names: Iterable[str]) -> None:
        """Dial them, all at once, without waiting for what comes of it."""
        for name in names:
            thread = self._dialling.get(name)
            if thread is None or not thread.is_alive():
                self._dialling[name] = threading.Thread(
                    target=self._dial, args=(self._peers[name],), daemon=True
                )
                self._dialling[name].start()

    def wait(self, names: Iterable[str]) -> None:
        """Until those who are dialled have answered or not: a few seconds at most."""
        for name in names:
            if name in self._dialling:
                self._dialling[name].join(DIAL + _ANSWER)

    def why(self, name: str) -> str:
        """Empty where nothing is known yet."""
        return self._reasons.get(name, "")

    def answers(self, name: str) -> bool | None:
        """Somebody listens there, whatever became of the link; None where it is not known yet."""
        return self._answers.get(name)

    def forget(self, name: str) -> None:
        self._reasons.pop(name, None)
        self._answers.pop(name, None)

    def _dial(self, peer: Peer) -> None:
        where, found = peer.endpoint.partition("/")[2], dial(peer, self._credentials)
        self._answers[peer.name] = not found
        if found and peer.name < self._me.name:
            found += f"; {peer.name} connects to this agent, so look at its log too"
        if not found:
            found = "answers, but its link is not up"
        self._reasons[peer.name] = f"{where}: {found}"


def dial(peer: Peer, credentials: Credentials | None, seconds: float = DIAL) -> str:
    """What is wrong with the way to a peer; empty where it answers as it should."""
    host = peer.host.strip("[]")
    try:
        with socket.create_connection((host, peer.port), seconds) as line:
            return "" if credentials is None else _greet(line, peer, credentials)
    except socket.gaierror as error:
        return f"name does not resolve ({error.strerror})"
    except TimeoutError:
        return f"no answer within {seconds:g} s"
    except ConnectionRefusedError:
        return "connection refused"
    except ssl.SSLCertVerificationError as error:
        return f"certificate verify failed: {error.verify_message}"
    except ssl.SSLError as error:
        return f"TLS failed: {(error.reason or str(error)).lower().replace('_', ' ')}"
    except (OSError, ValueError) as error:
        return (
            (error.strerror if isinstance(error, OSError) else None)
            or str(error)
            or type(error).__name__
        )


def _greet(line: socket.socket, peer: Peer, credentials: Credentials) -> str:
    with credentials.context(ssl.PROTOCOL_TLS_CLIENT).wrap_socket(
        line, server_hostname=peer.host.strip("[]")
    ) as safe:
        subject: Any = (safe.getpeercert() or {}).get("subject", ())
        names = [value for part in subject for key, value in part if key == "commonName"]
        if names != [peer.name]:
            return f"its certificate is that of {', '.join(map(str, names)) or 'nobody'}"
        # In TLS 1.3 the other end says only afterwards what it thinks of our certificate.
        safe.settimeout(_ANSWER)
        try:
            safe.recv(1)
        except TimeoutError:
            return ""
        return ""


class Expiry:
    """Warns once a day, from thirty days before a certificate ends, and says so when it has ended:
    its links are closed then, and nobody else says why.
    """

    def __init__(self, name: str, certificate: Path | None) -> None:
        self._name, self._end = name, None if certificate is None else tls.expiry(certificate)
        self._next = -float("inf")

    def watch(self) -> None:
        if self._end is None or time.monotonic() < self._next:
            return
        left = self._end - datetime.now(UTC)
        if left.total_seconds() <= 0:
            log.error(
                "the certificate of %s expired on %s and its links are closed: put a new one in"
                " place and start this agent again",
                self._name,
                f"{self._end:%Y-%m-%d %H:%M} UTC",
            )
        elif left.days < _SOON:
            log.warning("the certificate of %s expires in %d days", self._name, left.days)
        # At the latest when it ends: the hour in which links close is the one to say so.
        self._next = time.monotonic() + min(_DAY, max(0.0, left.total_seconds()) or _DAY)
