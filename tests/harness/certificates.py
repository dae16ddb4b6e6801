"""A certificate authority for tests, and certificates good and bad, made by openssl."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import NamedTuple

OPENSSL_S_MAX = 60


class Certificate(NamedTuple):
    certificate: Path
    key: Path

    def nginx(self) -> str:
        return f"ssl_certificate {self.certificate}; ssl_certificate_key {self.key};"


class Authority:
    """Signs certificates. Clients that are given `file` trust them."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self.file = folder / f"{name}.crt"
        self._key = folder / f"{name}.key"
        _openssl("req", "-x509", "-days", "2", "-subj", f"/CN={name}", *_new_key(self._key), "-out", str(self.file))

    def sign(self, name: str, subject: str, *, days: int = 1) -> Certificate:
        """A certificate for `subject` (DNS:… or IP:…); with 0 days it expires at once."""
        made = Certificate(self._folder / f"{name}.crt", self._folder / f"{name}.key")
        request, extensions = self._folder / f"{name}.csr", self._folder / f"{name}.ext"
        extensions.write_text(f"subjectAltName={subject}\nextendedKeyUsage=serverAuth\n")
        _openssl("req", "-subj", f"/CN={name}", *_new_key(made.key), "-out", str(request))
        authority = ["-CA", str(self.file), "-CAkey", str(self._key), "-CAcreateserial", "-days", str(days)]
        paths = ["-in", str(request), "-extfile", str(extensions), "-out", str(made.certificate)]
        _openssl("x509", "-req", *authority, *paths)
        return made


def _new_key(path: Path) -> list[str]:
    return ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", str(path)]


def _openssl(*arguments: str) -> None:
    made = subprocess.run(["openssl", *arguments], capture_output=True, text=True, timeout=OPENSSL_S_MAX, check=False)
    assert made.returncode == 0, made.stderr
