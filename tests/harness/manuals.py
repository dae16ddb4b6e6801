"""Two real sites: the manuals of Python and PostgreSQL as Debian installs them, served by nginx on loopback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.harness.nginx import free_port, nginx

PYTHON = Path("/usr/share/doc/python3.11/html")
POSTGRESQL = Path("/usr/share/doc/postgresql-doc-15/html")
SERVER = "server {{ listen {address}:{port}; root {root}; index index.html; absolute_redirect off; }}"


@contextmanager
def manuals(folder: Path) -> Iterator[tuple[str, str]]:
    """The start pages of both manuals."""
    if not (PYTHON / "index.html").exists() or not (POSTGRESQL / "index.html").exists():
        pytest.skip("the manuals are not installed: apt-get install python3.11-doc postgresql-doc-15")
    port = free_port()
    places = {"127.0.0.1": PYTHON, "127.0.0.2": POSTGRESQL}
    servers = "\n".join(SERVER.format(address=address, port=port, root=root) for address, root in places.items())
    with nginx(folder / "nginx", servers, port):
        yield f"http://127.0.0.1:{port}/", f"http://127.0.0.2:{port}/"
