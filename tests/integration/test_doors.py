"""Who may open a coordinator's socket, who may connect, and whose X-Forwarded-For counts."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import ssl
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from drumlin.api.unix_socket import private_socket
from drumlin.client.remote import CoordinatorError, Remote
from drumlin.errors import EXIT_INTERRUPTED, BusyError, ConfigError, StorageError
from drumlin.tls import CertificateFiles, check_validity, create_certificates
from tests.harness.crawls import wait_until
from tests.harness.logs import of_event
from tests.harness.standing import Standing, standing

STARTS_WITHIN_S = 60.0
DAY_S = 86_400.0


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def run(*arguments: str, umask: int = 0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "drumlin", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=STARTS_WITHIN_S, check=False, umask=umask)


# The socket


@pytest.mark.parametrize("umask", [0, 0o022, 0o777])
def test_a_unix_socket_is_its_owners_alone_from_the_moment_it_exists(tmp_path: Path, umask: int) -> None:
    path, modes = tmp_path / "socket", []
    chmod, before = os.chmod, os.umask(umask)

    def look_first(target: Any, mode: int) -> None:
        modes.append(mode_of(path))
        chmod(target, mode)

    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("drumlin.api.unix_socket.os.chmod", look_first)
            with private_socket(str(path), 1):
                assert mode_of(path) == 0o600
    finally:
        os.umask(before)
    assert [mode & 0o077 for mode in modes] == [0]
    assert not path.exists()


def test_a_coordinators_socket_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    command = ["coordinator", "--engine", f"rocksdb:{tmp_path / 'frontier'}", "--no-auth", "--listen", f"unix:{path}"]
    with subprocess.Popen([sys.executable, "-m", "drumlin", *command], stderr=subprocess.DEVNULL, umask=0) as process:
        try:
            wait_until(lambda: _ready(Remote([f"unix:{path}"])), STARTS_WITHIN_S, "the coordinator to start")
            assert mode_of(path) == 0o600
        finally:
            process.terminate()
    assert not path.exists()


def _ready(remote: Remote) -> bool:
    try:
        return bool(remote.get("/readyz"))
    except CoordinatorError:
        return False


def test_a_dead_socket_is_replaced_and_a_live_one_or_a_file_is_left_alone(tmp_path: Path) -> None:
    path = str(tmp_path / "socket")
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(path)
    with private_socket(path, 1), pytest.raises(BusyError, match="Another program listens"), private_socket(path, 1):
        pass
    (tmp_path / "file").write_text("precious")
    with pytest.raises(StorageError, match="something else"), private_socket(str(tmp_path / "file"), 1):
        pass
    assert (tmp_path / "file").read_text() == "precious"


# Tokens in files


def test_a_token_is_written_for_its_owner_alone_whatever_was_there(tmp_path: Path) -> None:
    out, engine = tmp_path / "token", f"rocksdb:{tmp_path / 'frontier'}"
    out.write_text("old")
    out.chmod(0o644)
    done = run("tokens", "create", "--role", "viewer", "--engine", engine, "--out", str(out))
    assert (done.returncode, done.stdout) == (0, "")
    assert out.read_text().startswith("drumlin_viewer_")
    assert out.read_text().strip() not in done.stderr
    assert mode_of(out) == 0o600
    first = out.read_text().split("_")[2]
    again = run("tokens", "create", "--role", "viewer", "--engine", engine, "--out", str(out))
    assert f"still valid; `drumlin tokens revoke {first}` ends it." in again.stderr
    assert "still valid" not in done.stderr


def test_a_token_is_not_made_where_it_cannot_be_written(tmp_path: Path) -> None:
    engine = f"rocksdb:{tmp_path / 'frontier'}"
    for place in (tmp_path, tmp_path / "no" / "folder", Path("/dev/null")):
        done = run("tokens", "create", "--role", "viewer", "--engine", engine, "--out", str(place))
        assert done.returncode == 2, done.stderr
    assert not (tmp_path / "frontier").exists()


# Forging


def test_nobody_forges_an_address_or_a_line_of_the_log(tmp_path: Path) -> None:
    with standing(tmp_path) as place:
        _post(place, "/api/v1/hosts/x%0aINFO%20forged/", {"X-Forwarded-For": "6.6.6.6"})
        _post(place, "/api/v1/crawl/pause", {"X-Forwarded-For": "6.6.6.6"})
        failure = {
            "message": "first\n2026-11-16 10:00:00,000 INFO drumlin.audit: {}",
            "hint": "\x1b[2J",
            "exit_code": 3,
        }
        _post(place, "/api/v1/nodes/n1/failed", {}, failure)
        wait_until(lambda: "node n1 failed" in place.log("coordinator"), STARTS_WITHIN_S, "the line about the node")
        entries = place.remote.get("/api/v1/audit")["entries"]
        log = place.log("coordinator")
    assert [entry["address"] for entry in entries] == ["127.0.0.1"]
    (failed,) = of_event(log, "failed")
    assert failed["message"] == "node n1 failed: first\\n2026-11-16 10:00:00,000 INFO drumlin.audit: {} \\x1b[2J"
    assert (failed["node"], len(of_event(log, "audit"))) == ("n1", 1)


def test_a_proxy_that_is_trusted_is_believed(tmp_path: Path) -> None:
    with standing(tmp_path, "--trusted-proxy", "127.0.0.0/8") as place:
        _post(place, "/api/v1/crawl/pause", {"X-Forwarded-For": "6.6.6.6"})
        assert place.remote.get("/api/v1/audit")["entries"][0]["address"] == "6.6.6.6"


def _post(place: Standing, path: str, headers: dict[str, str], message: Any = None) -> None:
    import http.client

    connection = http.client.HTTPConnection("127.0.0.1", place.port, timeout=STARTS_WITHIN_S)
    body = None if message is None else json.dumps(message)
    connection.request("POST", path, body, {"Content-Type": "application/json", **headers})
    connection.getresponse().read()
    connection.close()


# Certificates


@pytest.fixture
def files(tmp_path: Path) -> CertificateFiles:
    return create_certificates(tmp_path / "certs", ["127.0.0.1"], time.time())


def with_tls(files: CertificateFiles, *more: str) -> tuple[str, ...]:
    return ("--cert", str(files.server), "--key", str(files.server_key), *more)


def test_only_clients_with_a_certificate_get_in_when_one_is_asked_for(tmp_path: Path, files: CertificateFiles) -> None:
    trusting = ("--ca", str(files.authority))
    ours = (*trusting, "--cert", str(files.client), "--key", str(files.client))
    with standing(tmp_path, *with_tls(files, "--client-ca", str(files.authority)), client=files) as place:
        with pytest.raises(CoordinatorError, match="give --cert and --key"):
            Remote([place.endpoint], ca=files.authority).get("/healthz")
        told = run("status", "--coordinator", place.endpoint, *ours)
        assert told.returncode == 0, told.stderr
        stranger = place.node("stranger", *trusting)
        wait_until(lambda: "give --cert and --key" in place.log("stranger"), STARTS_WITHIN_S, "the stranger's sentence")
        stranger.kill()
        place.remote.post("/api/v1/crawl/stop")
        let_in = run("node", "--coordinator", place.endpoint, *ours, "--store", str(place.store))
        assert let_in.returncode == 0, let_in.stderr
        assert [node["node_id"] for node in place.remote.get("/api/v1/nodes")["nodes"]] != ["stranger"]


def test_a_coordinator_with_an_expired_certificate_says_so_and_ends(tmp_path: Path) -> None:
    old = create_certificates(tmp_path / "old", ["127.0.0.1"], time.time() - 2 * DAY_S, days=1)
    command = ("coordinator", "--engine", f"rocksdb:{tmp_path / 'f'}", "--listen", "127.0.0.1:1", *with_tls(old))
    done = run(*command)
    assert done.returncode == 2
    assert "expired on " in done.stderr
    assert "Traceback" not in done.stderr


def test_a_node_that_meets_an_expired_certificate_says_so(tmp_path: Path) -> None:
    old = create_certificates(tmp_path / "old", ["127.0.0.1"], time.time() - 2 * DAY_S, days=1)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(old.server, old.server_key)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        command = [sys.executable, "-m", "drumlin", "node", "--store", str(tmp_path / "store")]
        command += ["--ca", str(old.authority), "--coordinator", f"https://127.0.0.1:{listener.getsockname()[1]}"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as node:
            connection, _ = listener.accept()
            # With TLS 1.3 the server believes that the handshake succeeded before the client closes the connection.
            with contextlib.suppress(OSError), context.wrap_socket(connection, server_side=True) as secured:
                secured.recv(1)
            _, said = node.communicate(timeout=STARTS_WITHIN_S)
    assert node.returncode != 0
    assert "The coordinator's certificate has expired. Renew it there" in said


def test_a_node_that_does_not_trust_the_certificate_ends_at_once_and_says_what_to_give(
    tmp_path: Path, files: CertificateFiles
) -> None:
    with standing(tmp_path, *with_tls(files), client=files) as place:
        untrusting = run("node", "--coordinator", place.endpoint, "--store", str(place.store))
        misnamed = place.endpoint.replace("127.0.0.1", "localhost")
        elsewhere = run("node", "--coordinator", misnamed, "--store", str(place.store), "--ca", str(files.authority))
    assert "certificate is not trusted. Name the authority that signed it with --ca." in untrusting.stderr
    assert "certificate is for another host. Use an address" in elsewhere.stderr
    assert "trying again" not in untrusting.stderr + elsewhere.stderr


def test_a_node_that_was_never_let_in_leaves_at_the_first_signal(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        command = [sys.executable, "-m", "drumlin", "node", "--store", str(tmp_path / "store")]
        command += ["--coordinator", f"http://127.0.0.1:{listener.getsockname()[1]}"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as node:
            silent, _ = listener.accept()
            node.send_signal(signal.SIGTERM)
            with silent:
                _, said = node.communicate(timeout=STARTS_WITHIN_S)
    assert (node.returncode, said.count("leaving; no coordinator has let it in yet")) == (EXIT_INTERRUPTED, 1)


def test_the_dates_of_certificates_are_looked_at(tmp_path: Path, files: CertificateFiles) -> None:
    now = time.time()
    assert check_validity(files.server, now) == []
    (soon,) = check_validity(files.server, now + 390 * DAY_S)
    assert "expires on " in soon
    assert all("is valid from " in early for early in check_validity(files.server, now - DAY_S))
    with pytest.raises(ConfigError, match="expired on"):
        check_validity(files.server, now + 400 * DAY_S)
    (tmp_path / "none").write_text("no certificate")
    with pytest.raises(ConfigError, match="holds no certificate"):
        check_validity(tmp_path / "none", now)
