"""`drumlin certs` and `drumlin tokens` as a person uses them, and secrets that nobody else sees."""

from __future__ import annotations

import json
import os
import socket
import ssl
import stat
import subprocess
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest

from drumlin.access.tokens import SECRET_KEY, AccessControl, Permission, Role
from drumlin.cli.tokens import has_password, read_token, without_argument
from drumlin.coordinator.nodes import TABLE
from drumlin.engines.blocking import open_blocking
from drumlin.errors import EXIT_OK, EXIT_STORAGE, EXIT_USAGE, ConfigError
from drumlin.http.refusal import Refused
from drumlin.serving.service import SHARD_COUNT_FLEET
from drumlin.tls import check_endpoint, check_listen, client_context, server_context
from tests.acceptance.commands import TIMEOUT_S, drumlin, environment, sentence

ENGINE = "rocksdb:frontier"
FILES = ["ca.pem", "ca-key.pem", "server.pem", "server-key.pem", "client.pem"]
SECRET_FILES = ["ca-key.pem", "client.pem", "server-key.pem"]
# The date of the tests does not matter, as long as the token is not expired.
DAY_S = 86400


# Certificates


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_certificates_are_made_shown_and_never_replaced_by_accident(tmp_path: Path) -> None:
    made = drumlin(tmp_path, "certs", "create", "tls", "--host", "crawl.example.org", "--host", "127.0.0.1")
    assert made.returncode == EXIT_OK, made.stderr
    assert made.stdout.split() == [f"tls/{name}" for name in FILES]
    before = {name: (tmp_path / "tls" / name).read_bytes() for name in FILES}

    shown = drumlin(tmp_path, "certs", "show", "tls")
    assert "server.pem: CN=drumlin coordinator for crawl.example.org, 127.0.0.1" in shown.stdout

    again = drumlin(tmp_path, "certs", "create", "tls")
    assert again.returncode == EXIT_USAGE
    assert "tls already holds ca.pem" in sentence(again)
    assert {name: (tmp_path / "tls" / name).read_bytes() for name in FILES} == before

    forced = drumlin(tmp_path, "certs", "create", "tls", "--force")
    assert forced.returncode == EXIT_OK
    assert all((tmp_path / "tls" / name).read_bytes() != before[name] for name in FILES)


def test_only_the_owner_can_read_keys_whatever_the_umask(tmp_path: Path) -> None:
    made = drumlin(tmp_path, "certs", "create", "tls", umask=0)
    assert made.returncode == EXIT_OK, made.stderr
    private = [name for name in FILES if mode(tmp_path / "tls" / name) == 0o600]
    assert sorted(private) == SECRET_FILES
    assert all(b"PRIVATE KEY" not in (tmp_path / "tls" / name).read_bytes() for name in FILES if name not in private)
    assert sorted(os.listdir(tmp_path / "tls")) == sorted(FILES)


def test_show_says_for_how_long(tmp_path: Path) -> None:
    drumlin(tmp_path, "certs", "create", "tls", "--days", "30")
    shown = json.loads(drumlin(tmp_path, "certs", "show", "tls", "--json").stdout)
    assert [facts["file"] for facts in shown] == ["ca.pem", "server.pem", "client.pem"]
    server = shown[1]
    assert server["hosts"] == ["localhost", "127.0.0.1", "::1"]
    days = (datetime.fromisoformat(server["valid_until"]) - datetime.now(UTC)).total_seconds() / DAY_S
    assert 29 < days <= 30
    assert len(server["fingerprint"]) == 64


def test_a_client_that_trusts_the_authority_speaks_with_the_server_and_others_do_not(tmp_path: Path) -> None:
    drumlin(tmp_path, "certs", "create", "tls", "--host", "localhost")
    drumlin(tmp_path, "certs", "create", "other", "--host", "localhost")
    folder = tmp_path / "tls"
    server = server_context(folder / "server.pem", folder / "server-key.pem")
    assert speaks(server, client_context(folder / "ca.pem"), "localhost") in ("TLSv1.2", "TLSv1.3")
    for authority, name in ((tmp_path / "other" / "ca.pem", "localhost"), (folder / "ca.pem", "example.org")):
        with pytest.raises(ssl.SSLCertVerificationError):
            speaks(server, client_context(authority), name)


def speaks(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> str | None:
    """The protocol on which two ends agree."""
    near, far = socket.socketpair()

    def serve() -> None:
        try:
            server.wrap_socket(far, server_side=True).close()
        except OSError:
            far.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with client.wrap_socket(near, server_hostname=name) as connection:
            return connection.version()
    finally:
        near.close()
        thread.join(TIMEOUT_S)


@pytest.mark.parametrize(
    ("arguments", "says", "code"),
    [
        (["create", "tls", "--host", "https://example.org"], "is neither a host name nor an address", EXIT_USAGE),
        (["create", "tls", "--host", ""], "is neither a host name nor an address", EXIT_USAGE),
        (["create", "tls", "--host", "a" * 300], "is neither a host name nor an address", EXIT_USAGE),
        (["create", "tls", "--days", "0"], "valid for 1 to", EXIT_USAGE),
        (["create", "/proc/tls"], "Cannot write certificates to /proc/tls", EXIT_STORAGE),
        (["create"], "Missing argument 'DIR'", EXIT_USAGE),
        (["show", "nowhere"], "Cannot read nowhere/ca.pem: No such file or directory", EXIT_USAGE),
    ],
)
def test_bad_input_to_certs_is_one_sentence(tmp_path: Path, arguments: list[str], says: str, code: int) -> None:
    done = drumlin(tmp_path, "certs", *arguments)
    assert says in sentence(done)
    assert done.returncode == code


def test_a_file_that_is_no_certificate_is_named(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nonsense")
    assert "ca.pem holds no certificate" in sentence(drumlin(tmp_path, "certs", "show", "."))


# Where plain HTTP is allowed


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "[::1]", "localhost"])
def test_plain_http_may_listen_on_loopback(host: str) -> None:
    assert not refused(host, tls=False, insecure=False, auth=False)


def refused(host: str, **how: bool) -> bool:
    try:
        check_listen(host, **how)
    except ConfigError:
        return True
    return False


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "crawl.example.org", "localhost.example.org", ""])
def test_elsewhere_it_must_be_insisted_on(host: str) -> None:
    with pytest.raises(ConfigError, match="Plain HTTP on"):
        check_listen(host, tls=False, insecure=False)
    with pytest.raises(ConfigError, match="Without tokens"):
        check_listen(host, tls=True, insecure=False, auth=False)
    assert not refused(host, tls=True, insecure=False)
    assert not refused(host, tls=False, insecure=True, auth=False)


def test_a_token_is_not_sent_over_plain_http_to_another_machine() -> None:
    for url in ("https://crawl.example.org", "http://127.0.0.1:80", "http://[::1]:80", "http://localhost:1", "unix:/a"):
        check_endpoint(url, insecure=False)
    for url in (
        "http://crawl.example.org:80",
        "http://127.0.0.1.example.org",
        "http://localhost@example.org",
        "ftp://a",
    ):
        with pytest.raises(ConfigError):
            check_endpoint(url, insecure=False)
    check_endpoint("http://crawl.example.org", insecure=True)


# Tokens


def test_a_token_is_made_used_listed_and_revoked(tmp_path: Path) -> None:
    made = drumlin(
        tmp_path, "tokens", "create", "--role", "operator", "--name", "Ada", "--expires", "30d", "--engine", ENGINE
    )
    assert made.returncode == EXIT_OK, made.stderr
    (token,) = made.stdout.split()
    assert token not in made.stderr
    other = drumlin(tmp_path, "tokens", "create", "--role", "join", "--engine", ENGINE).stdout.strip()

    engine = open_blocking(f"rocksdb:{tmp_path / 'frontier'}")
    secret = engine.get_meta(SECRET_KEY)
    assert secret is not None
    created = engine.get_entries("tokens")
    engine.close()
    access = AccessControl(secret)
    now = datetime.now(UTC).timestamp()
    who = access.check(f"Bearer {token}", Permission.OPERATE, None, now)
    assert who.role is Role.OPERATOR
    assert access.check(f"Bearer {other}", Permission.JOIN, None, now).role is Role.JOIN
    assert len(created) == 2
    with pytest.raises(Refused, match="expired"):
        access.check(f"Bearer {token}", Permission.OPERATE, None, now + 30 * DAY_S)

    listed = drumlin(tmp_path, "tokens", "list", "--engine", ENGINE)
    assert f"{who.id}  operator" in listed.stdout
    assert listed.stdout.splitlines()[0].endswith("  Ada")
    assert token.rpartition("_")[2] not in listed.stdout

    gone = drumlin(tmp_path, "tokens", "revoke", who.id, "--engine", ENGINE)
    assert gone.returncode == EXIT_OK, gone.stderr
    records = json.loads(drumlin(tmp_path, "tokens", "list", "--json", "--engine", ENGINE).stdout)
    assert [(record["name"], record["revoked"] > 0) for record in records] == [("Ada", True), ("", False)]

    engine = open_blocking(f"rocksdb:{tmp_path / 'frontier'}")
    engine.run(access.refresh(engine.engine))
    engine.close()
    with pytest.raises(Refused, match="revoked"):
        access.check(f"Bearer {token}", Permission.OPERATE, None, now)


def test_a_node_is_revoked_by_its_name_and_a_token_with_the_nodes_that_it_brought(tmp_path: Path) -> None:
    token = drumlin(tmp_path, "tokens", "create", "--role", "join", "--engine", ENGINE).stdout.strip()
    join = token.split("_")[2]
    engine = open_blocking(f"rocksdb:{tmp_path / 'frontier'}")
    access = AccessControl(engine.get_meta(SECRET_KEY) or b"")
    engine.put_entries(TABLE, {"n1": b"a record"})
    engine.close()
    now = datetime.now(UTC).timestamp()
    headers = {name: f"Bearer {access.node_token(name, now, join)}" for name in ("n1", "n2")}

    def refused() -> list[str]:
        engine = open_blocking(f"rocksdb:{tmp_path / 'frontier'}")
        engine.run(access.refresh(engine.engine))
        engine.close()
        codes = []
        for name, header in headers.items():
            try:
                access.check(header, Permission.NODE, name, now)
            except Refused as wrong:
                codes.append(f"{name} {wrong.code}")
        return codes

    gone = drumlin(tmp_path, "tokens", "revoke", "--node", "n1", "--engine", ENGINE)
    assert (gone.returncode, refused()) == (EXIT_OK, ["n1 invalid_token"]), gone.stderr
    unknown = drumlin(tmp_path, "tokens", "revoke", "--node", "n9", "--engine", ENGINE)
    assert "No node called 'n9' has registered" in sentence(unknown)
    gone = drumlin(tmp_path, "tokens", "revoke", join, "--with-nodes", "--engine", ENGINE)
    assert (gone.returncode, refused()) == (EXIT_OK, ["n1 invalid_token", "n2 token_revoked"]), gone.stderr


def test_the_engine_may_come_from_the_environment(tmp_path: Path) -> None:
    variables = environment(tmp_path, {"DRUMLIN_ENGINE": ENGINE})
    made = drumlin(tmp_path, "tokens", "create", "--role", "viewer", env=variables)
    assert made.stdout.startswith("drumlin_viewer_")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["create", "--role", "viewer"], "The crawl's engine is not named"),
        (["create", "--role", "node", "--engine", ENGINE], "'node' is not one of"),
        (["create", "--role", "viewer", "--expires", "soon", "--engine", ENGINE], "must be a duration such as 12h"),
        (["create", "--role", "viewer", "--expires", "0", "--engine", ENGINE], "must be between"),
        (["create", "--role", "viewer", "--name", "a\nb", "--engine", ENGINE], "printable characters"),
        (["create", "--role", "viewer", "--engine", "memory"], "memory engine is gone"),
        (["create", "--role", "viewer", "--engine", "mysql://a:secret@b"], "There is no engine 'mysql'"),
        (["list", "--engine", ENGINE], "There is no crawl in frontier"),
        (["revoke", "nobody", "--engine", ENGINE], "There is no crawl in frontier"),
        (["revoke", "--engine", ENGINE], "Name either a token by its ID"),
        (["revoke", "id", "--node", "n1", "--engine", ENGINE], "Name either a token by its ID"),
        (["revoke", "--node", "n1", "--with-nodes", "--engine", ENGINE], "Name either a token by its ID"),
    ],
)
def test_bad_input_to_tokens_is_one_sentence(tmp_path: Path, arguments: list[str], says: str) -> None:
    done = drumlin(tmp_path, "tokens", *arguments)
    assert says in sentence(done)
    assert "secret" not in done.stderr
    assert done.returncode == EXIT_USAGE


def test_looking_founds_no_crawl_and_an_unknown_id_is_named(tmp_path: Path) -> None:
    drumlin(tmp_path, "tokens", "list", "--engine", ENGINE)
    assert not (tmp_path / "frontier").exists()
    drumlin(tmp_path, "tokens", "create", "--role", "viewer", "--engine", ENGINE)
    done = drumlin(tmp_path, "tokens", "revoke", "nobody", "--engine", ENGINE)
    assert "There is no token with the id 'nobody'" in sentence(done)
    engine = open_blocking(f"rocksdb:{tmp_path / 'frontier'}")
    shard_count = engine.shard_count
    engine.close()
    assert shard_count == SHARD_COUNT_FLEET


# Secrets on the command line


def test_a_token_is_gone_from_the_process_list_before_anything_else_happens(tmp_path: Path) -> None:
    program = (
        "import os, sys; from drumlin.cli.tokens import hide_argument; hide_argument('--token', 'DRUMLIN_TOKEN');"
        "print(sys.argv[1:], os.environ['DRUMLIN_TOKEN'], flush=True); sys.stdin.read()"
    )
    arguments = [sys.executable, "-c", program, "node", "--token", "drumlin_join_a_0_b", "--name", "n1"]
    with subprocess.Popen(
        arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment(tmp_path)
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "['node', '--name', 'n1'] drumlin_join_a_0_b\n"
        assert "drumlin_join" not in Path(f"/proc/{process.pid}/cmdline").read_text()
        process.communicate("", timeout=TIMEOUT_S)
    assert process.returncode == 0


def test_every_way_to_write_a_flag_is_hidden_and_nothing_else_is_touched() -> None:
    def hidden(*arguments: str) -> tuple[list[str], str] | None:
        moved = without_argument(arguments, {"A": "b"}, "--token", "T")
        return None if moved is None else (moved[0], moved[1]["T"])

    assert hidden("node", "--token", "x", "--name", "n") == (["node", "--name", "n"], "x")
    assert hidden("--token=x=y", "node") == (["node"], "x=y")
    assert hidden("--token", "x", "--token=y") == ([], "y"), "as with other flags, the last one counts"
    assert hidden("node", "--token-file", "f") is None
    assert hidden("node", "--", "--token", "x") is None
    assert hidden("--token", "x", "--", "--token", "y") == (["--", "--token", "y"], "x")
    assert hidden("node", "--token") is None
    assert hidden("node", "--token=") is None
    assert hidden() is None


def test_an_engine_is_hidden_only_when_its_address_holds_a_password() -> None:
    assert has_password("redis://user:word@10.0.0.1:6379,10.0.0.2:6379/crawl")
    assert has_password("redis://:word@host")
    for url in ("redis://host:6379/a@b:c", "redis://user@host:6379", "rocksdb:a:b@c", "memory"):
        assert not has_password(url)
    arguments = ["coordinator", "--engine", "redis://host:6379", "--listen", "a:1"]
    assert without_argument(arguments, {}, "--engine", "E", has_password) is None
    assert without_argument(["--engine", "redis://:w@h"], {}, "--engine", "E", has_password) == (
        [],
        {"E": "redis://:w@h"},
    )


def test_a_token_file_is_read_and_anything_else_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("drumlin_join_a_0_b\n")
    assert read_token("other", file) == "drumlin_join_a_0_b"
    assert read_token(" drumlin_join_a_0_b ", None) == "drumlin_join_a_0_b"
    for content in ("", "two words", "drumlin_a drumlin_b", "drumlin_" + "x" * 10_000, "\udcff"):
        file.write_bytes(content.encode("utf-8", "surrogateescape"))
        with pytest.raises(ConfigError, match="does not hold a token"):
            read_token("", file)
    with pytest.raises(ConfigError, match="Cannot read"):
        read_token("", tmp_path / "nowhere")
