"""nginx for tests: its own configuration, ports and folders; ended with the test."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
START_S_MAX = 10.0
STOP_S_MAX = 10.0
POLL_S = 0.05

CONFIGURATION = """
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 1024; }}
http {{
    types {{
        text/html html htm; text/css css; application/javascript js; text/plain txt py; image/png png;
        image/svg+xml svg; image/gif gif; image/jpeg jpg jpeg; application/xml xml; image/x-icon ico;
    }}
    default_type application/octet-stream;
    access_log off;
    keepalive_requests 100000;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    {servers}
}}
"""


def free_port(address: str = "127.0.0.1") -> int:
    """A port that nothing listens on just now."""
    with socket.socket() as probe:
        probe.bind((address, 0))
        port: int = probe.getsockname()[1]
    return port


@contextmanager
def nginx(folder: Path, servers: str, port: int) -> Iterator[None]:
    """Serve the given `server { … }` blocks, one of which listens on `port` of 127.0.0.1, until the block is left."""
    if NGINX is None:
        pytest.skip("nginx is not installed: apt-get install nginx-light")
    folder.mkdir(parents=True, exist_ok=True)
    configuration = folder / "nginx.conf"
    configuration.write_text(CONFIGURATION.format(folder=folder, servers=servers))
    command = [NGINX, "-p", str(folder), "-e", str(folder / "error.log"), "-c", str(configuration)]
    with open(folder / "output.log", "wb") as output:
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        _wait_for(server, folder, port)
        yield
    finally:
        server.terminate()
        server.wait(STOP_S_MAX)


def _wait_for(server: subprocess.Popen[bytes], folder: Path, port: int) -> None:
    deadline = time.monotonic() + START_S_MAX
    while True:
        assert server.poll() is None, (folder / "output.log").read_text()
        assert time.monotonic() < deadline, "nginx does not answer"
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except ConnectionRefusedError:
            time.sleep(POLL_S)
