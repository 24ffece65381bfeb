import contextlib
import ssl
import stat
import sys
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

import pytest

pytest.importorskip("cryptography")
from cryptography import x509

from hearsay.deploy import tls
from hearsay.deploy.links import Credentials


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("authority") / "keys"
    tls.make(folder, {"ann": ["ann.example", "10.0.0.7"], "bob": ["[fd00::1]"]}, days=30)
    return folder


def extension(folder, name, kind):
    return x509.load_pem_x509_certificate(
        (folder / f"{name}.pem").read_bytes()
    ).extensions.get_extension_for_class(kind)


def test_every_member_and_the_observer_has_a_certificate_and_a_private_key(folder):
    assert {path.name for path in folder.iterdir()} == {
        f"{n}.{end}" for n in ("ca", "ann", "bob", "observer") for end in ("pem", "key")
    }
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for key in folder.glob("*.key"):
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
        assert key.read_text().startswith("-----BEGIN PRIVATE KEY-----"), "PKCS #8"


def test_the_common_name_is_the_agent_and_the_alternative_names_its_hosts(folder):
    assert tls.common_name(folder / "ann.pem") == "ann"
    names = extension(folder, "ann", x509.SubjectAlternativeName).value
    assert set(names.get_values_for_type(x509.DNSName)) == {"localhost", "ann.example"}
    assert set(map(str, names.get_values_for_type(x509.IPAddress))) == {
        "127.0.0.1",
        "::1",
        "10.0.0.7",
    }
    assert ip_address("fd00::1") in extension(
        folder, "bob", x509.SubjectAlternativeName
    ).value.get_values_for_type(x509.IPAddress)


def test_only_the_authority_can_sign(folder):
    root = extension(folder, "ca", x509.BasicConstraints)
    assert root.critical and root.value.ca and root.value.path_length == 0
    assert extension(folder, "ca", x509.KeyUsage).value.key_cert_sign
    for name in ("ann", "bob", "observer"):
        assert not extension(folder, name, x509.BasicConstraints).value.ca
        assert not extension(folder, name, x509.KeyUsage).value.key_cert_sign
        uses = set(extension(folder, name, x509.ExtendedKeyUsage).value)
        assert uses == {x509.ExtendedKeyUsageOID.SERVER_AUTH, x509.ExtendedKeyUsageOID.CLIENT_AUTH}


def handshake(folder, client, server, host):
    """Both ends of a mutual TLS handshake in memory."""
    ends = []
    for side, name in ((ssl.PROTOCOL_TLS_CLIENT, client), (ssl.PROTOCOL_TLS_SERVER, server)):
        context = ssl.SSLContext(side)
        context.load_verify_locations(folder / "ca.pem")
        context.load_cert_chain(folder / f"{name}.pem", folder / f"{name}.key")
        context.verify_mode = ssl.CERT_REQUIRED
        ends.append(context)
    one, two = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        ends[0].wrap_bio(one, two, server_hostname=host),
        ends[1].wrap_bio(two, one, server_side=True),
    ]
    for _ in range(6):
        for end in sides:
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
    return sides[1].getpeercert()


def test_openssl_accepts_a_member_on_its_hosts_and_nowhere_else(folder):
    assert ((("commonName", "bob"),)) in handshake(folder, "bob", "ann", "ann.example")["subject"]
    assert handshake(folder, "observer", "ann", "127.0.0.1")
    with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
        handshake(folder, "bob", "ann", "bob.example")


def test_an_authority_need_not_be_a_root_and_a_host_is_an_alternative_name(tmp_path):
    """As Zenoh has it: what it connects with is not refused,
    and what it would never connect with is.
    """
    crypto = tls._cryptography()
    root, authority, key = (crypto.ec.generate_private_key(crypto.ec.SECP256R1()) for _ in range(3))
    names = {name: tls._named(crypto, name) for name in ("root", "authority", "ann")}
    between = tls._certificate(crypto, names["authority"], names["root"], authority, root, 30, None)
    tls._write(crypto, tmp_path / "ca", between, authority)
    found = Credentials(tmp_path / "ca.pem", tmp_path / "ann.pem", tmp_path / "ann.key")
    # OpenSSL would take a common name where no host has a name.
    for hosts in (["ann.example"], ["10.0.0.7"]):
        member = tls._certificate(
            crypto, names["ann"], names["authority"], key, authority, 30, hosts
        )
        tls._write(crypto, tmp_path / "ann", member, key)
        for host in (*hosts, "[::]", "0.0.0.0"):
            found.verify("ann", host)
        with pytest.raises(
            ValueError, match="must include the host of the agent's endpoint, 'ann'"
        ):
            found.verify("ann", "ann")


def test_expiry_is_known(folder):
    assert (
        timedelta(days=29)
        < tls.expiry(folder / "ann.pem") - datetime.now(UTC)
        <= timedelta(days=30)
    )
    with pytest.raises(ValueError, match="certificate must be a PEM file, got '.*ann.key'"):
        tls.expiry(folder / "ann.key")


def test_nothing_is_overwritten_unless_told(tmp_path):
    tls.make(tmp_path, {"ann": []})
    before = (tmp_path / "ca.key").read_bytes()
    with pytest.raises(FileExistsError, match="ca.pem already exists"):
        tls.make(tmp_path, {"ann": []})
    assert (tmp_path / "ca.key").read_bytes() == before
    (tmp_path / "ann.key").chmod(0o644)
    tls.make(tmp_path, {"ann": []}, overwrite=True)
    assert (tmp_path / "ca.key").read_bytes() != before
    assert stat.S_IMODE((tmp_path / "ann.key").stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("agents", "message"),
    [
        ({"../ann": []}, "agent name must be 1 to 64 letters"),
        ({"ca": []}, 'and not "ca"'),
        ({"observer": []}, 'agent name must be other than "observer"'),
        ({"ann": ["not a host"]}, "host must be a host name or an IP address, got 'not a host'"),
    ],
)
def test_bad_names_are_refused_before_anything_is_written(tmp_path, agents, message):
    with pytest.raises(ValueError, match=message):
        tls.make(tmp_path / "keys", agents)
    assert not (tmp_path / "keys").exists()


def test_a_missing_package_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install \'\.\[network\]\'"):
        tls.make(tmp_path, {"ann": []})
