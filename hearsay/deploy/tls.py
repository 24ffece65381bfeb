"""A small certificate authority for tests and first networks, and what the transport reads from a
certificate.

The common name of a certificate is the agent's name: the access control of the network goes by it.
The alternative names are the hosts under which the agent may be reached; whoever connects compares
them with the endpoint. Real deployments can bring certificates of their own authority, made the
same way. Needs `cryptography`.

Why not trustme, which makes test authorities: its authority is valid from 2000 to 3000 and cannot
be told otherwise, and here `ca.key` is kept; its certificates may also sign code; and it refuses
host names with an underscore, which endpoints may have.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from hearsay import _validate as require

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
HOST = re.compile(r"[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*")
# Every agent can be reached from its own machine.
LOCAL = ("localhost", "127.0.0.1", "::1")


def make(
    folder: Path, agents: Mapping[str, Sequence[str]], days: int = 365, *, overwrite: bool = False
) -> None:
    """Write ca.pem and ca.key, and NAME.pem and NAME.key for every agent and for the observer.

    `agents` maps a name to the host names and addresses of its endpoint. Private keys are readable
    by their owner only.
    """
    crypto = _cryptography()
    folder, days = Path(folder), require.count("days", days)
    hosts = {
        name: [*dict.fromkeys([*LOCAL, *names])]
        for name, names in {**agents, "observer": ()}.items()
    }
    for name, names in hosts.items():
        if not isinstance(name, str) or not NAME.fullmatch(name) or name.lower() == "ca":
            require.fail("agent name", '1 to 64 letters, digits, _ or -, and not "ca"', name)
        for host in names:
            _alternative(crypto, host)
    if "observer" in agents:
        require.fail("agent name", 'other than "observer"', "observer")
    files = [folder / f"{name}{end}" for name in ("ca", *hosts) for end in (".pem", ".key")]
    if not overwrite and (there := [path for path in files if path.exists()]):
        raise FileExistsError(
            f"{there[0]} already exists; its network would no longer accept it (overwrite=True"
            " replaces all)"
        )

    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)
    authority = crypto.ec.generate_private_key(crypto.ec.SECP256R1())
    issuer = _named(crypto, "hearsay test authority")
    root = _certificate(crypto, issuer, issuer, authority, authority, days, None)
    _write(crypto, folder / "ca", root, authority)
    for name, names in hosts.items():
        key = crypto.ec.generate_private_key(crypto.ec.SECP256R1())
        _write(
            crypto,
            folder / name,
            _certificate(crypto, _named(crypto, name), issuer, key, authority, days, names),
            key,
        )


def begin(path: Path) -> datetime:
    """From when on a certificate is good, in UTC."""
    return _read(path).not_valid_before_utc


def expiry(path: Path) -> datetime:
    """When a certificate ends, in UTC."""
    return _read(path).not_valid_after_utc


def common_name(path: Path) -> str | None:
    """The agent a certificate stands for; None if it names nobody or several."""
    names = _read(path).subject.get_attributes_for_oid(_cryptography().x509.NameOID.COMMON_NAME)
    return str(names[0].value) if len(names) == 1 else None


def hosts(path: Path) -> list[str]:
    """The hosts and addresses that a certificate is good for."""
    x509 = _cryptography().x509
    try:
        names = _read(path).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return [
        *names.get_values_for_type(x509.DNSName),
        *map(str, names.get_values_for_type(x509.IPAddress)),
    ]


class _Cryptography:
    """The parts of `cryptography` used here, imported when first needed."""

    def __init__(self) -> None:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec

        self.x509, self.hashes, self.serialization, self.ec = x509, hashes, serialization, ec


def _cryptography() -> _Cryptography:
    try:
        return _Cryptography()
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "certificates need the cryptography package: pip install '.[network]' in a checkout of"
            " hearsay"
        ) from error


def _read(path: Path) -> Any:
    try:
        return _cryptography().x509.load_pem_x509_certificate(Path(path).read_bytes())
    except ValueError:
        require.fail("certificate", "a PEM file", str(path))


def _named(crypto: _Cryptography, name: str) -> Any:
    return crypto.x509.Name([crypto.x509.NameAttribute(crypto.x509.NameOID.COMMON_NAME, name)])


def _alternative(crypto: _Cryptography, host: str) -> Any:
    try:
        return crypto.x509.IPAddress(ipaddress.ip_address(str(host).strip("[]")))
    except ValueError:
        if not HOST.fullmatch(str(host)):
            require.fail("host", "a host name or an IP address", host)
        return crypto.x509.DNSName(str(host))


def _certificate(
    crypto: _Cryptography,
    subject: Any,
    issuer: Any,
    key: Any,
    signer: Any,
    days: int,
    hosts: Sequence[str] | None,
) -> Any:
    """A certificate of `key`, signed by `signer`; the authority's own where `hosts` is None."""
    x509 = crypto.x509
    now, authority = datetime.now(UTC), hosts is None
    usage = dict.fromkeys(
        [
            "content_commitment",
            "key_encipherment",
            "data_encipherment",
            "key_agreement",
            "encipher_only",
            "decipher_only",
        ],
        False,
    )
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # Clocks of a test network differ by minutes.
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=days))
        .add_extension(
            x509.BasicConstraints(ca=authority, path_length=0 if authority else None), critical=True
        )
        .add_extension(
            x509.KeyUsage(
                digital_signature=not authority,
                key_cert_sign=authority,
                crl_sign=authority,
                **usage,
            ),
            critical=True,
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
    )
    if hosts is not None:
        # An agent both listens and connects.
        uses = [x509.ExtendedKeyUsageOID.SERVER_AUTH, x509.ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = builder.add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        builder = builder.add_extension(
            x509.SubjectAlternativeName([_alternative(crypto, h) for h in hosts]), critical=False
        )
    return builder.sign(signer, crypto.hashes.SHA256())


def _write(crypto: _Cryptography, stem: Path, certificate: Any, key: Any) -> None:
    encoding = crypto.serialization.Encoding.PEM
    private = key.private_bytes(
        encoding, crypto.serialization.PrivateFormat.PKCS8, crypto.serialization.NoEncryption()
    )
    for path, data, mode in (
        (stem.with_name(stem.name + ".pem"), certificate.public_bytes(encoding), 0o644),
        (stem.with_name(stem.name + ".key"), private, 0o600),
    ):
        # A new file: the mode of an old one would survive, and a link in its place would
        # be followed.
        path.unlink(missing_ok=True)
        try:
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
                file.write(data)
        except OSError as error:
            raise OSError(error.errno, f"cannot write it: {error.strerror}", str(path)) from error
