"""A machine of its own for the commands in the docs, so they run exactly as they are written.

`sealed(script, folder)` runs a shell script in new namespaces of Linux: its network is a loopback with nothing behind
it, its processes end with it, and its /etc/hosts says that example.org and its neighbours are on that loopback, with a
public address. There they are a small site over HTTP and HTTPS, with a certificate that this machine trusts. So a
command may name https://example.org/ and port 8700, and nothing leaves the machine or meets what runs on it.

`python -m tests.harness.sealed FOLDER SCRIPT` is what runs inside.
"""

from __future__ import annotations

import functools
import os
import shutil
import signal
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.harness.certificates import Authority

ROOT = Path(__file__).parents[2]
# No address is more harmless: what it is elsewhere cannot be reached from inside.
ADDRESS = "93.184.215.14"
SITES = ("example.org", "www.example.org", "example.com", "www.example.com", "example.net")
MACHINES = {
    **{f"10.0.0.1{number}": f"redis-{number}.example.org" for number in (1, 2, 3, 4)},
    **{f"10.0.0.2{number}": f"coordinator-{number}.example.org" for number in (1, 2)},
}
TRUSTED = "/etc/ssl/certs/ca-certificates.crt"
UNSHARE = ("unshare", "--user", "--map-root-user", "--net", "--mount", "--pid", "--fork", "--kill-child")
PAGES = 8
ROBOTS = "User-agent: *\nDisallow: /private/\nCrawl-delay: 0.1\n"


@functools.cache
def sealing_works() -> bool:
    """Whether this machine lets us have namespaces, and has the programs for it."""
    if not all(map(shutil.which, ("unshare", "ip", "mount", "openssl", "redis-server", "jq", "curl"))):
        return False
    return subprocess.run([*UNSHARE, "--mount-proc", "true"], capture_output=True, check=False).returncode == 0


needs_sealing = pytest.mark.skipif(
    not sealing_works(), reason="needs namespaces, and unshare, ip, openssl, redis-server, jq and curl"
)


def sealed(script: str, folder: Path, timeout_s: float) -> subprocess.CompletedProcess[str]:
    """Run a shell script in `folder`, in a machine of its own. What it said on both streams is in `stdout`."""
    (folder / ".world").mkdir()
    file = folder / ".world" / "script"
    file.write_text(script)
    command = [*UNSHARE, "--mount-proc", sys.executable, "-m", "tests.harness.sealed", str(folder), str(file)]
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("DRUMLIN_", "PYTEST_"))}
    environment = clean | {"PYTHONPATH": str(ROOT), "HOME": str(folder)}
    with subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            said, _ = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            said = f"{process.communicate()[0]}\n(not done within {timeout_s} s)"
    return subprocess.CompletedProcess(command, process.returncode, said, "")


# What follows runs inside.


def main(folder: Path, script: Path) -> int:
    world = folder / ".world"
    network(world, [*((ADDRESS, name) for name in SITES), *MACHINES.items()])
    context = trusted(world, SITES)
    _serve(80, None)
    _serve(443, context)
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    done = subprocess.run(["bash", "-euo", "pipefail", str(script)], env=os.environ | {"PATH": path}, check=False)
    return done.returncode


def network(world: Path, named: Iterable[tuple[str, str]]) -> None:
    """A loopback that has these addresses, and these names for them."""
    pairs = list(named)
    _do("ip", "link", "set", "lo", "up")
    for address in dict.fromkeys(address for address, _ in pairs):
        _do("ip", "address", "add", f"{address}/32", "dev", "lo")
    lines = (f"{address} {name}\n" for address, name in [("127.0.0.1", "localhost"), *pairs])
    _replace(world, "/etc/hosts", "".join(lines))


def trusted(world: Path, names: Iterable[str]) -> ssl.SSLContext:
    """What a server needs to be these names, for all that runs inside."""
    authority = Authority(world, "authority")
    certificate = authority.sign("site", ",".join(f"DNS:{name}" for name in names))
    _replace(world, TRUSTED, authority.file.read_text())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.certificate, certificate.key)
    return context


def _replace(world: Path, path: str, text: str) -> None:
    """Show another content of a file to everything inside."""
    new = world / Path(path).name
    new.write_text(text)
    _do("mount", "--bind", str(new), path)


def _do(*command: str) -> None:
    subprocess.run(command, check=True, timeout=30)


class Site(BaseHTTPRequestHandler):
    """A small site: a home page, pages in two folders, a calendar, and a part that robots.txt denies."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        robots = path == "/robots.txt"
        body = (ROBOTS if robots else page(path)).encode()
        self.send_response(200 if body else 404)
        self.send_header("Content-Type", "text/plain" if robots else "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words: object) -> None:
        """Log nothing."""


def page(path: str) -> str:
    """The page at a path; empty if there is none."""
    numbers = [f"/page{number}.html" for number in range(PAGES)]
    known = ["/", "/page", "/new", "/private/a", "/docs/", "/docs/a", "/docs/b", "/calendar/2026", "/news/1", *numbers]
    if path not in known:
        return ""
    links = "".join(f'<a href="{link}">{link}</a> ' for link in known)
    # Every page has words of its own, so none is a duplicate of another.
    words = " ".join(f"word{len(path) * number % 97 + known.index(path) * 100}" for number in range(40))
    return f"<!DOCTYPE html><title>Example {path}</title><main><p>The page {path}: {words}</p></main>{links}"


def _serve(port: int, context: ssl.SSLContext | None) -> None:
    server = ThreadingHTTPServer((ADDRESS, port), Site)
    server.daemon_threads = True
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
