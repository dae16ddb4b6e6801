"""TLS between nodes, people and coordinators: where it is required, how it is set up, and certificates to try it out.

Guarantees: plain HTTP is spoken only on loopback and Unix sockets unless the user insists; TLS is 1.2 or newer; a
client checks the server's certificate and name, always; a private key is readable by its owner alone from its first
byte.

`create_certificates` makes a private authority, a server certificate and a client certificate. Certificates of another
authority work as well: coordinators and nodes only read files. The library that makes and reads certificates takes a
tenth of a second to load, so functions import it only when they need it.
"""

from __future__ import annotations

import ipaddress
import os
import re
import ssl
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from drumlin.disk import PRIVATE, READABLE, write_whole
from drumlin.errors import ConfigError, StorageError

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")
VALID_DAYS = 397
"""The longest validity that browsers accept for a server's certificate."""
AUTHORITY_DAYS = 5 * 365
DAYS_MAX = 20 * 365
BACKDATED = timedelta(hours=1)
"""How long before now a new certificate becomes valid, so machines whose clocks are behind accept it at once."""
HOSTS_MAX = 100

SOON = timedelta(days=14)
"""How long before a certificate expires the owner of a fleet is warned."""
_DATE = "%Y-%m-%d %H:%M UTC"

NO_CERTIFICATE_HINT = "If coordinators there ask for clients' certificates, give --cert and --key."
"""For a connection that ends without an answer: a server on asyncio closes the connection without a reason if it does
not accept the client's certificate."""
_NO_CERTIFICATE = ("The coordinator does not accept our certificate, or wants one.", "Give --cert and --key.")
_NOT_TRUSTED = ("The coordinator's certificate is not trusted.", "Name the authority that signed it with --ca.")
_OTHER_HOST = ("The coordinator's certificate is for another host.", "Use an address that it names.")
# Sentences for messages of OpenSSL and libcurl, by a part that all their versions share. More specific parts come
# first.
_EXPLANATIONS = {
    "alert certificate expired": ("Our own certificate has expired.", "Renew the one that --cert names."),
    "certificate has expired": (
        "The coordinator's certificate has expired.",
        "Renew it there, or check this machine's clock.",
    ),
    "certificate is not yet valid": (
        "The coordinator's certificate is not valid yet.",
        "Check the clocks of both machines.",
    ),
    "self-signed certificate": _NOT_TRUSTED,
    "self signed certificate": _NOT_TRUSTED,
    "unable to get local issuer": _NOT_TRUSTED,
    "unable to get issuer": _NOT_TRUSTED,
    "unable to verify the first": _NOT_TRUSTED,
    "hostname mismatch": _OTHER_HOST,
    "ip address mismatch": _OTHER_HOST,
    "no alternative certificate subject name": _OTHER_HOST,
    "alert certificate required": _NO_CERTIFICATE,
    "alert handshake failure": _NO_CERTIFICATE,
    "alert bad certificate": _NO_CERTIFICATE,
    "alert unknown ca": _NO_CERTIFICATE,
}

_NAME = re.compile(r"(\*\.)?([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?", re.ASCII)
_NAME_CHARS_MAX = 253


# Where TLS is required


def is_loopback(host: str) -> bool:
    """Whether traffic to or on `host` stays on this machine."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def check_listen(host: str, *, tls: bool, insecure: bool, auth: bool = True) -> None:
    """`ConfigError` unless a server may listen on `host` like this."""
    if is_loopback(host):
        return
    if not auth and not insecure:
        hint = "Leave --no-auth out, listen on 127.0.0.1, or insist with --insecure."
        raise ConfigError(f"Without tokens anybody who reaches {host} could steer the crawl.", hint)
    if not tls and not insecure:
        hint = "Give a certificate (`drumlin certs create` makes one), listen on 127.0.0.1, or insist with --insecure."
        raise ConfigError(f"Plain HTTP on {host} would show tokens and pages to the network.", hint)


def check_endpoint(url: str, *, insecure: bool) -> None:
    """`ConfigError` unless a token may be sent to the coordinator at `url`."""
    from urllib.parse import urlsplit

    if url.startswith(("unix:", "https://")) or insecure:
        return
    host = urlsplit(url).hostname if url.startswith("http://") else None
    if not host:
        raise ConfigError(
            f"{url!r} is not the address of a coordinator.",
            "Use https://HOST:PORT, http://127.0.0.1:PORT or unix:PATH.",
        )
    if not is_loopback(host):
        hint = "Use https://, or insist with --insecure."
        raise ConfigError(f"Plain HTTP to {host} would show the token and pages to the network.", hint)


# Speaking it


def server_context(certificate: Path, key: Path, client_authority: Path | None = None) -> ssl.SSLContext:
    """How a coordinator speaks TLS. With `client_authority`, only clients with a certificate of that authority may
    connect.

    For uvicorn: `Config(ssl_context_factory=lambda config, default: context)`.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    # uvicorn speaks HTTP/1.1 only; the handshake tells so to a client that offers HTTP/2.
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(certificate, key)
        if client_authority is not None:
            context.load_verify_locations(client_authority)
            context.verify_mode = ssl.CERT_REQUIRED
    except OSError as wrong:
        raise _unusable(wrong, certificate, key, client_authority) from wrong
    return context


def client_context(authority: Path | None, client: Path | None = None, key: Path | None = None) -> ssl.SSLContext:
    """How a program speaks TLS to a coordinator. It trusts `authority` (None: those of the system). `client` is its own
    certificate, if coordinators ask for one, and `key` the key of that certificate (None: in the same file)."""
    try:
        context = ssl.create_default_context(cafile=None if authority is None else str(authority))
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if client is not None:
            context.load_cert_chain(client, key)
    except OSError as wrong:
        raise _unusable(wrong, authority, client, key) from wrong
    return context


def curl_options(authority: Path | None, client: Path | None = None, key: Path | None = None) -> dict[int, str | int]:
    """The same for libcurl: options for `pycurl.Curl.setopt`."""
    import pycurl

    if authority is not None or client is not None:
        # This only checks the files: libcurl would complain later, when it connects, and say less. The authorities of
        # the system are not checked, since reading them takes longer than the rest of a node's start.
        client_context(authority, client, key)
    options: dict[int, str | int] = {
        pycurl.SSL_VERIFYPEER: 1,
        pycurl.SSL_VERIFYHOST: 2,
        pycurl.SSLVERSION: pycurl.SSLVERSION_TLSv1_2,
    }
    if authority is not None:
        options[pycurl.CAINFO] = str(authority)
    if client is not None:
        options[pycurl.SSLCERT] = str(client)
        options[pycurl.SSLKEY] = str(key or client)
    return options


def check_pair(certificate: Path | None, key: Path | None) -> None:
    """`ConfigError` if only one of the two is given."""
    if (certificate is None) != (key is None):
        raise ConfigError("A certificate and its key come together.", "Give both --cert and --key.")


# When it does not work


def check_validity(path: Path, now: float) -> list[str]:
    """Warnings about the dates of the certificates in a file. `ConfigError` if one has expired: every client would
    refuse it, and few of them say why."""
    from cryptography import x509

    try:
        certificates = x509.load_pem_x509_certificates(path.read_bytes())
    except OSError as wrong:
        raise ConfigError(f"Cannot read {path}: {_reason(wrong)}.") from wrong
    except ValueError as wrong:
        raise ConfigError(f"{path} holds no certificate.") from wrong
    warnings: list[str] = []
    moment = datetime.fromtimestamp(now, UTC)
    for certificate in certificates:
        begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
        name = f"The certificate {certificate.subject.rfc4514_string()} in {path}"
        if ends <= moment:
            raise ConfigError(f"{name} expired on {ends:{_DATE}}.", "Renew it, or check this machine's clock.")
        if begins > moment:
            warnings.append(f"{name} is valid from {begins:{_DATE}} only. Is this machine's clock right?")
        elif ends - moment < SOON:
            warnings.append(f"{name} expires on {ends:{_DATE}}. Renew it before.")
    return warnings


def explained(problem: str) -> tuple[str, str] | None:
    """A sentence and a hint for an error of OpenSSL about the coordinator's certificate or ours; None for any other
    error."""
    return next((said for sign, said in _EXPLANATIONS.items() if sign in problem.lower().replace("_", " ")), None)


# Certificates to try it out


class CertificateFiles(NamedTuple):
    """The files that `create_certificates` writes. Clients trust `authority`; `client` holds a certificate and its
    key."""

    authority: Path
    authority_key: Path
    server: Path
    server_key: Path
    client: Path

    @classmethod
    def in_folder(cls, folder: Path) -> CertificateFiles:
        names = ("ca.pem", "ca-key.pem", "server.pem", "server-key.pem", "client.pem")
        return cls(*(folder / name for name in names))


class CertificateFacts(msgspec.Struct, frozen=True):
    """What a person wants to know of a certificate."""

    file: str
    subject: str
    issuer: str
    hosts: list[str]
    valid_from: datetime
    valid_until: datetime
    fingerprint: str


def create_certificates(
    folder: Path, hosts: Sequence[str], now: float, *, days: int = VALID_DAYS, force: bool = False
) -> CertificateFiles:
    """Make an authority and certificates for `hosts` (names, addresses) in `folder`. Files that are there are replaced
    only with `force`."""
    names = _alternative_names(hosts)
    if not 1 <= days <= DAYS_MAX:
        raise ConfigError(f"A certificate is valid for 1 to {DAYS_MAX} days, not {days}.")
    files = CertificateFiles.in_folder(folder)
    there = [path.name for path in files if path.exists()]
    if there and not force:
        raise ConfigError(
            f"{folder} already holds {', '.join(there)}.", "Choose another folder, or replace them with --force."
        )
    start = datetime.fromtimestamp(int(now), UTC)
    authority = _Authority(start, days)
    server, server_key = authority.certify("drumlin coordinator", names, start, days, server=True)
    client, client_key = authority.certify("drumlin client", [], start, days, server=False)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Keys come first, so every certificate that exists has its key, even if we are killed in between.
        write_whole(files.authority_key, authority.key_pem, sync=True, mode=PRIVATE)
        write_whole(files.server_key, server_key, sync=True, mode=PRIVATE)
        write_whole(files.client, client + client_key, sync=True, mode=PRIVATE)
        _publish(files.server, server + authority.pem)
        _publish(files.authority, authority.pem)
    except OSError as wrong:
        raise StorageError(f"Cannot write certificates to {folder}: {_reason(wrong)}.") from wrong
    return files


def read_certificates(folder: Path) -> list[CertificateFacts]:
    """The facts about the certificates in a folder that `create_certificates` has filled."""
    from cryptography import x509

    files = CertificateFiles.in_folder(folder)
    facts: list[CertificateFacts] = []
    for path in (files.authority, files.server, files.client):
        try:
            facts.append(_facts(path, x509.load_pem_x509_certificates(path.read_bytes())[0]))
        except OSError as wrong:
            hint = "`drumlin certs create` makes certificates."
            raise ConfigError(f"Cannot read {path}: {_reason(wrong)}.", hint) from wrong
        except ValueError as wrong:
            raise ConfigError(f"{path} holds no certificate.") from wrong
    return facts


def _facts(path: Path, certificate: x509.Certificate) -> CertificateFacts:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        hosts = [str(name.value) for name in names]
    except x509.ExtensionNotFound:
        hosts = []
    return CertificateFacts(
        path.name,
        certificate.subject.rfc4514_string(),
        certificate.issuer.rfc4514_string(),
        hosts,
        certificate.not_valid_before_utc,
        certificate.not_valid_after_utc,
        certificate.fingerprint(hashes.SHA256()).hex(),
    )


class _Authority:
    """An authority that signs a few certificates. All keys are on the curve P-256: small, fast and accepted
    everywhere."""

    def __init__(self, start: datetime, days: int) -> None:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes

        self._key = _new_key()
        # The name contains a part of the key's hash, which tells this authority from others that drumlin made.
        digest = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()).digest.hex()
        self._name = _name(f"drumlin authority {digest[:8]}")
        self._identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = self._builder(self._name, self._key, start, max(days, AUTHORITY_DAYS))
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(_usage(signs_certificates=True), critical=True)
        self.pem = _pem(builder.sign(self._key, hashes.SHA256()))
        self.key_pem = _key_pem(self._key)

    def certify(
        self, subject: str, names: list[x509.GeneralName], start: datetime, days: int, *, server: bool
    ) -> tuple[bytes, bytes]:
        """A new certificate and its key."""
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes
        from cryptography.x509.oid import ExtendedKeyUsageOID

        key = _new_key()
        purpose = ExtendedKeyUsageOID.SERVER_AUTH if server else ExtendedKeyUsageOID.CLIENT_AUTH
        builder = self._builder(_name(subject), key, start, days)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_usage(signs_certificates=False), critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        builder = builder.add_extension(self._identifier, critical=False)
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return _pem(builder.sign(self._key, hashes.SHA256())), _key_pem(key)

    def _builder(
        self, subject: x509.Name, key: EllipticCurvePrivateKey, start: datetime, days: int
    ) -> x509.CertificateBuilder:
        from cryptography import x509

        builder = x509.CertificateBuilder(subject_name=subject, issuer_name=self._name, public_key=key.public_key())
        builder = builder.serial_number(x509.random_serial_number())
        builder = builder.not_valid_before(start - BACKDATED).not_valid_after(start + timedelta(days=days))
        return builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)


def _new_key() -> EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _name(common_name: str) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(certificate: x509.Certificate) -> bytes:
    from cryptography.hazmat.primitives import serialization

    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: EllipticCurvePrivateKey) -> bytes:
    from cryptography.hazmat.primitives import serialization

    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def _alternative_names(hosts: Iterable[str]) -> list[x509.GeneralName]:
    """The hosts for a certificate: addresses as addresses and names as names, since clients compare them
    differently."""
    from cryptography import x509

    wanted = list(dict.fromkeys(host.strip().strip("[]").lower() for host in hosts)) or list(LOCAL_HOSTS)
    if len(wanted) > HOSTS_MAX:
        raise ConfigError(f"A certificate holds at most {HOSTS_MAX} hosts, not {len(wanted)}.")
    names: list[x509.GeneralName] = []
    for host in wanted:
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            names.append(x509.DNSName(_ascii_name(host)))
    return names


def _ascii_name(host: str) -> str:
    try:
        name = host if host.isascii() else host.encode("idna").decode()
    except UnicodeError:
        name = ""
    if len(name) > _NAME_CHARS_MAX or _NAME.fullmatch(name) is None:
        raise ConfigError(
            f"{host!r} is neither a host name nor an address.", "Give --host NAME without scheme and port."
        )
    return name


def _publish(path: Path, content: bytes) -> None:
    """Write what others must read, whatever this user's umask says."""
    write_whole(path, content, sync=True)
    path.chmod(READABLE)


def _unusable(wrong: OSError, *paths: Path | None) -> ConfigError:
    """Names the files that cannot be read. If all can be read it names all of them, since OpenSSL does not say which
    one it means."""
    given = [path for path in paths if path is not None]
    guilty = [path for path in given if not os.access(path, os.R_OK)] or given
    named = ", ".join(dict.fromkeys(str(path) for path in guilty))
    return ConfigError(f"Cannot use the certificate files {named}: {_reason(wrong)}.")


def _reason(wrong: OSError) -> str:
    """The reason of an error in words. Errors of OpenSSL name its source files, but here they always mean the same."""
    if isinstance(wrong, ssl.SSLError):
        return "they are not a matching PEM certificate and key"
    return wrong.strerror or str(wrong)
