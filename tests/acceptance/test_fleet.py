"""`drumlin fleet` and the verbs that talk to a coordinator, as a person uses them."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from drumlin.fleet.cluster import free_ports
from drumlin.fleet.layout import FleetProcess, ProcessRole, read_secret
from drumlin.fleet.marks import ProcessMark
from tests.harness.crawls import Web, benchmark_web, wait_until
from tests.harness.fleet import Fleet, check_every_page_stored_once, drumlin, fleet, kill, needs_redis

HOSTS = 12
PAGES = 6
END_S_MAX = 120.0
WAIT_S_MAX = 60.0
EXIT_COORDINATOR = 7

pytestmark = needs_redis


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fleet")


@pytest.fixture(scope="module")
def web(folder: Path) -> Iterator[Web]:
    with benchmark_web(folder, HOSTS, PAGES) as one:
        yield one


@pytest.fixture(scope="module")
def running(folder: Path, web: Web) -> Iterator[Fleet]:
    """A fleet that has crawled the web, and waits for more."""
    shape = ("--nodes", "2", "--coordinators", "2", "--delay", "0", "--no-finish")
    with fleet(folder, *shape, "-i", str(web.seeds)) as one:
        wait_until(lambda: one.stats()["pages"] >= web.pages, END_S_MAX, "all pages", poll_s=0.2)
        yield one


def ask(one: Fleet, *arguments: str) -> str:
    done = drumlin(one.root.parent, *arguments, "--fleet", str(one.root))
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_status_says_how_the_crawl_stands(running: Fleet, web: Web) -> None:
    stats = json.loads(ask(running, "status", "--json"))
    assert stats["state"] == "running"
    assert stats["pages"] == web.pages
    assert f"{web.pages:,} done" in ask(running, "status")


def test_nodes_lists_the_nodes(running: Fleet) -> None:
    nodes = json.loads(ask(running, "nodes", "--json"))
    assert {node["node_id"]: node["status"] for node in nodes} == {"node-0": "active", "node-1": "active"}
    assert "node-1" in ask(running, "nodes")


def test_pause_and_resume(running: Fleet) -> None:
    ask(running, "pause")
    assert json.loads(ask(running, "status", "--json"))["state"] == "paused"
    ask(running, "resume")
    assert json.loads(ask(running, "status", "--json"))["state"] == "running"


def test_enqueue_tells_what_is_new(running: Fleet, web: Web) -> None:
    seed = web.seeds.read_text().splitlines()[0]
    answer = json.loads(ask(running, "enqueue", seed, f"{seed}not-there", "--json"))
    assert answer == {"added": 1, "seen": 1, "capped": 0, "removed": 0}
    wait_until(lambda: not running.stats()["totals"]["pending"], END_S_MAX, "the new URL to be done", poll_s=0.2)


def test_fleet_status_shows_every_process(running: Fleet) -> None:
    shown = drumlin(running.root.parent, "fleet", "status", "--out", str(running.root)).stdout
    assert all(process.name in shown for process in running.record.processes)
    assert "The fleet is ready." in shown


def test_fleet_status_names_what_is_frozen(running: Fleet) -> None:
    victim = running.of(ProcessRole.COORDINATOR)[1]
    assert victim.mark is not None
    victim.mark.send(signal.SIGSTOP)
    try:
        wait_until(lambda: victim.frozen, WAIT_S_MAX, "a frozen coordinator")
        shown = drumlin(running.root.parent, "fleet", "status", "--out", str(running.root)).stdout
    finally:
        victim.mark.send(signal.SIGCONT)
    assert f"Frozen: {victim.name}; what needs them waits. `kill -CONT {victim.mark.pid}`" in " ".join(shown.split())


def test_no_secret_is_on_a_command_line_or_readable_by_others(running: Fleet) -> None:
    paths = running.paths
    secrets = [read_secret(path) for path in (paths.redis_password, paths.operator_token, paths.join_token)]
    for process in running.record.processes:
        assert process.mark is not None
        command = Path(f"/proc/{process.mark.pid}/cmdline").read_text()
        assert not [secret for secret in secrets if secret in command], process.name
    kept = [*paths.secrets.iterdir(), *paths.redis.glob("*/redis.conf"), *paths.certs.glob("*key*")]
    assert len(kept) >= 9
    assert {stat.S_IMODE(path.stat().st_mode) for path in kept} == {0o600}
    assert not [path for path in [*paths.logs.iterdir(), paths.record] if secrets[0] in path.read_text()]


def test_without_a_token_nothing_is_told(running: Fleet) -> None:
    authority = str(running.paths.certs / "ca.pem")
    done = drumlin(running.root.parent, "status", "--coordinator", running.record.coordinators[0], "--ca", authority)
    assert done.returncode == EXIT_COORDINATOR
    assert done.stderr.startswith("drumlin: This needs a token.")


def test_a_certificate_that_nobody_vouches_for_is_not_trusted(running: Fleet) -> None:
    done = drumlin(running.root.parent, "status", "--coordinator", running.record.coordinators[0])
    assert done.returncode == EXIT_COORDINATOR
    assert "is not trusted" in done.stderr
    assert "--ca" in done.stderr


def test_every_look_finds_the_fleet_by_its_directory_and_by_its_coordinators(running: Fleet) -> None:
    paths = running.paths
    coordinator = ("--coordinator", ",".join(running.record.coordinators), "--ca", str(paths.certs / "ca.pem"))
    for where in (("--out", str(running.root)), (*coordinator, "--token-file", str(paths.operator_token))):
        for verb in (("status",), ("why",), ("nodes",), ("hosts",), ("audit",), ("dead-letters",)):
            done = drumlin(running.root.parent, *verb, *where)
            assert done.returncode == 0, (verb, where, done.stderr)


def test_a_second_fleet_in_the_same_directory_is_refused(running: Fleet) -> None:
    done = drumlin(running.root.parent, "fleet", "up", "--out", str(running.root), "http://127.0.0.1:9/")
    assert done.returncode == 5
    assert "fleet down" in done.stderr


def test_what_dies_is_started_again(running: Fleet) -> None:
    for role in (ProcessRole.COORDINATOR, ProcessRole.NODE, ProcessRole.REDIS):
        victim = running.of(role)[0]
        kill(victim)
        wait_until(
            lambda before=victim: _started_again(running, before),  # type: ignore[misc]
            WAIT_S_MAX,
            f"{victim.name} to be started again",
        )
        assert running.named(victim.name).starts == victim.starts + 1


def test_a_node_that_was_drained_is_not_started_again_until_it_is_released(running: Fleet) -> None:
    drained, other = running.of(ProcessRole.NODE)
    ask(running, "nodes", "drain", drained.name)
    wait_until(lambda: running.named(drained.name).exit_code == 0, WAIT_S_MAX, "it to leave")
    left = running.named(drained.name)
    # Another one that dies is started again, so the supervisor has had its chance.
    kill(other)
    wait_until(lambda: _started_again(running, other), WAIT_S_MAX, "the other one")
    assert running.named(drained.name).starts == left.starts
    assert _status_of(running, drained.name) == ("inactive", "draining")
    ask(running, "nodes", "release", drained.name)
    wait_until(lambda: _started_again(running, left), WAIT_S_MAX, "it to come back")
    wait_until(lambda: _status_of(running, drained.name) == ("active", None), WAIT_S_MAX, "it to register")


def _status_of(one: Fleet, name: str) -> tuple[str, str | None]:
    listed = json.loads(ask(one, "nodes", "--json"))
    [node] = [node for node in listed if node["node_id"] == name]
    return node["status"], node["ordered"]


def _started_again(one: Fleet, before: FleetProcess) -> bool:
    now = one.named(before.name)
    return now.starts > before.starts and now.alive


def test_a_fleet_goes_on_after_it_was_killed_and_finishes(tmp_path: Path) -> None:
    with benchmark_web(tmp_path, HOSTS, PAGES) as web:
        shape = ("--nodes", "2", "--coordinators", "1", "--masters", "1", "--delay", "0")
        with fleet(tmp_path, *shape, "-i", str(web.seeds)) as one:
            assert one.record.supervisor is not None
            one.record.supervisor.send(signal.SIGKILL)
            ended = drumlin(tmp_path, "fleet", "down", "--out", str(one.root))
            assert ended.returncode == 0, ended.stderr
            assert not one.record.running
            again = drumlin(tmp_path, "fleet", "up", "--out", str(one.root), *shape[:6])
            assert again.returncode == 0, again.stderr
            one.wait_until_finished(END_S_MAX)
            check_every_page_stored_once(web, one.store)


def test_a_crawl_on_one_machine_keeps_its_frontier_on_redis_and_resumes(running: Fleet, tmp_path: Path) -> None:
    with benchmark_web(tmp_path, HOSTS, PAGES) as web:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("DRUMLIN_")}
        url = read_secret(running.paths.engine_url).rpartition("/")[0] + "/alone"
        crawl = [sys.executable, "-m", "drumlin", "crawl", "--delay", "0", "--allow-private", "--nodes", "1", "--quiet"]
        for most in ("20", "none"):
            done = subprocess.run(
                [*crawl, "--pages-max", most, "-i", str(web.seeds)],
                cwd=tmp_path,
                env=environment | {"DRUMLIN_ENGINE": url},
                capture_output=True,
                text=True,
                timeout=END_S_MAX,
                check=False,
            )
            assert done.returncode == 0, done.stderr
        check_every_page_stored_once(web, tmp_path / "crawl")
        assert not (tmp_path / "crawl" / "frontier").exists()


def test_a_coordinator_with_other_options_than_the_crawls_says_so(running: Fleet, tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DRUMLIN_")}
    listen = f"127.0.0.1:{free_ports(1)[0]}"
    done = subprocess.run(
        [sys.executable, "-m", "drumlin", "coordinator", "--listen", listen, "--scope", "domain"],
        cwd=tmp_path,
        env=environment | {"DRUMLIN_ENGINE": read_secret(running.paths.engine_url)},
        capture_output=True,
        text=True,
        timeout=END_S_MAX,
        check=False,
    )
    assert done.returncode == 2
    assert "scope" in done.stderr
    assert "Traceback" not in done.stderr


def test_down_leaves_a_process_alone_that_only_has_the_number(running: Fleet, tmp_path: Path) -> None:
    """`fleet.json` has the number of this process, but with another start time: the number was used again."""
    stranger = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        record = running.record
        record.supervisor = None
        record.processes = [FleetProcess("node-0", ProcessRole.NODE, mark=ProcessMark(stranger.pid, "another boot/1"))]
        other = Fleet(tmp_path)
        other.paths.write(record)
        done = drumlin(tmp_path, "fleet", "down", "--kill", "--out", str(tmp_path))
        assert done.returncode == 0, done.stderr
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_foreground_crawls_to_the_end_and_then_its_crawl_is_worked_on_by_its_directory(tmp_path: Path) -> None:
    with benchmark_web(tmp_path, HOSTS, PAGES) as web:
        one = Fleet(tmp_path / "fleet")
        replicas = ("--masters", "3", "--replicas", "1")
        shape = ("--nodes", "1", "--coordinators", "1", *replicas, "--delay", "0", "--allow-private")
        done = drumlin(tmp_path, "fleet", "up", "--foreground", *shape, "-i", str(web.seeds))
        assert done.returncode == 0, done.stderr
        assert not one.record.running
        assert {process.name for process in one.record.processes if process.exit_code is None} == set()
        check_every_page_stored_once(web, one.store)
        assert {path.name for path in one.store.iterdir()} >= {"warc", "tables", "report.json"}
        assert (one.store / "warc" / "index.cdxj").exists()
        _keep_and_remove(tmp_path, one, web.seeds.read_text().split()[0].split("/")[2])
    assert not one.record.running


def _keep_and_remove(folder: Path, one: Fleet, host: str) -> None:
    """Export the frontier of a fleet that is down, remove a host, and see that its Redis has forgotten it."""
    for verb in ("export", "verify"):
        done = drumlin(folder, "frontier", verb, "kept.frontier", "--out", "fleet")
        assert done.returncode == 0, done.stderr
    names = host.encode()
    assert any(names in path.read_bytes() for path in one.paths.redis.rglob("*.aof"))
    done = drumlin(folder, "remove", "--host", host, "--yes", "--json", "--out", "fleet")
    assert done.returncode == 0, done.stderr
    counts = json.loads(done.stdout)["counts"]
    assert (counts["hosts"], counts["pages"]) == (1, PAGES)
    for place in (one.paths.redis, one.paths.logs, one.paths.seeds):
        files = [place] if place.is_file() else [path for path in place.rglob("*") if path.is_file()]
        assert not [path for path in files if names in path.read_bytes()]
    changed = drumlin(folder, "frontier", "verify", "kept.frontier", "--out", "fleet")
    assert changed.returncode == 4
    assert "differ" in changed.stderr
    refused = drumlin(folder, "frontier", "import", "kept.frontier", "--out", "fleet")
    assert (refused.returncode, "There is a fleet in" in refused.stderr) == (2, True)


def test_without_a_redis_server_one_sentence_says_how_to_get_one(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DRUMLIN_")}
    command = [sys.executable, "-m", "drumlin", "fleet", "up", "http://127.0.0.1:9/"]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=environment | {"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=WAIT_S_MAX,
        check=False,
    )
    assert done.returncode == 2
    assert "apt install redis-server" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "fleet").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("status",), "There is no crawl and no fleet here"),
        (("nodes", "--coordinator", "http://127.0.0.1:1"), "No coordinator listens"),
        (("pause", "--coordinator", "ftp://there"), "not the address of a coordinator"),
        (("enqueue", "mailto:someone", "--coordinator", "http://127.0.0.1:1"), "not a web address"),
        (("status", "--coordinator", "http://192.0.2.1:1", "--token", "x"), "would show the token"),
        (("fleet", "down"), "There is no fleet"),
        (("fleet", "up"), "There is nothing to crawl"),
        (("fleet", "up", "http://a.example/", "--masters", "1", "--replicas", "1"), "needs 3 masters"),
        (("coordinator", "--listen", "127.0.0.1:0", "--engine", "memory"), "--listen must be"),
        (("coordinator", "--listen", "127.0.0.1:8700"), "needs an engine"),
        (("coordinator", "--listen", "0.0.0.0:8700", "--engine", "memory"), "Plain HTTP"),
        (("coordinator", "--listen", "127.0.0.1:8700", "--cert", "x", "--engine", "memory"), "--cert and --key"),
    ],
)
def test_what_cannot_be_is_said_in_one_sentence(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    done = drumlin(tmp_path, *arguments)
    assert done.returncode in (2, EXIT_COORDINATOR)
    assert said in done.stderr
    assert done.stderr.startswith("drumlin: ")
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
