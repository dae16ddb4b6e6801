"""A fleet that is down: its Redis forgets the past of its log, and nobody disturbs a command that works on it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import hiredis
import msgspec
import pytest

from drumlin.config import load
from drumlin.errors import EXIT_ENGINE, EXIT_INTERNAL, EXIT_STORAGE, BusyError, DrumlinError, EngineError
from drumlin.fleet import at_rest, up
from drumlin.fleet.at_rest import drop_copies, rewrite_log
from drumlin.fleet.cluster import RedisServer
from drumlin.fleet.founding import found_fleet
from drumlin.fleet.layout import FleetPaths, FleetPlan, FleetProcess, FleetRecord, FleetState, ProcessRole
from drumlin.fleet.marks import ProcessMark


class Rewriting(RedisServer):
    """A server that begins a rewrite by itself when it is asked for the first time, and then ends one at each look."""

    def __init__(self, status: str = "ok") -> None:
        self.port = 1
        self.said: list[str] = []
        self._status = status

    def ask(self, *words: str | int) -> str:
        self.said.append(str(words[0]))
        if len(self.said) == 1:
            raise hiredis.ReplyError("ERR Background append only file rewriting already in progress")
        return "Background append only file rewriting started"

    def info(self, section: str) -> dict[str, str]:
        busy = "1" if self.said and self.said[-1] != "looked" else "0"
        self.said += ["looked"] if busy == "1" else []
        return {
            "aof_rewrite_in_progress": busy,
            "aof_rewrite_scheduled": "0",
            "aof_last_bgrewrite_status": self._status,
        }


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(at_rest, "POLL_S", 0)


def test_a_rewrite_that_is_under_way_is_waited_for_and_followed_by_another() -> None:
    server = Rewriting()
    rewrite_log(server, time.monotonic() + 10)
    assert server.said == ["BGREWRITEAOF", "looked", "BGREWRITEAOF", "looked"]


def test_a_rewrite_that_fails_or_does_not_end_is_told() -> None:
    for server, seconds in ((Rewriting("err"), 10), (Rewriting(), -1)):
        with pytest.raises(EngineError, match="has not rewritten its log"):
            rewrite_log(server, time.monotonic() + seconds)


def test_copies_that_servers_have_left_go_and_logs_stay(tmp_path: Path) -> None:
    paths = FleetPaths(tmp_path)
    killed = ("0/temp-rewriteaof-17.aof", "0/temp-rewriteaof-bg-17.aof", "1/appendonlydir/temp-appendonly.aof.incr")
    names = ("0/dump.rdb", "1/dump.rdb", "1/temp-17.1.rdb", *killed, "1/appendonlydir/appendonly.aof.1.base.rdb")
    for name in names:
        path = paths.redis / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("a.test")
    drop_copies(paths)
    assert [path for path in paths.redis.rglob("*") if path.is_file()] == [paths.redis / names[-1]]


@pytest.fixture
def paths(tmp_path: Path) -> FleetPaths:
    """A fleet without a supervisor, of which one process runs."""
    paths = FleetPaths(tmp_path)
    paths.make()
    plan = FleetPlan(1, [1], [(2, 3)], 1, 0, 1, "redis-server")
    paths.write(FleetRecord(plan, FleetState.DOWN, 0.0))
    return paths


@pytest.fixture
def server(paths: FleetPaths) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "600"])
    record = paths.read()
    record.processes = [FleetProcess("redis-0", ProcessRole.REDIS, mark=ProcessMark.of(process.pid))]
    paths.write(record)
    yield process
    process.kill()
    process.wait()


def test_down_leaves_a_command_alone_and_cleans_up_after_one_that_was_killed(
    paths: FleetPaths, server: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(up, "LOCK_S_MAX", 0.0)
    lock = paths.take_lock()
    with pytest.raises(BusyError, match="A command works on this fleet"):
        up.down(paths, at_once=True)
    assert server.poll() is None
    os.close(lock)
    up.down(paths, at_once=True)
    assert server.wait() == -signal.SIGKILL
    assert not paths.read().running


def test_down_waits_for_the_lock_of_a_supervisor_that_was_just_killed(
    paths: FleetPaths, server: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = paths.take_lock()
    looks: list[float] = []

    def look(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 3:
            os.close(lock)

    monkeypatch.setattr("drumlin.fleet.up.time.sleep", look)
    up.down(paths)
    assert server.wait() == -signal.SIGTERM
    assert not paths.read().running


def test_a_fleet_is_not_started_while_a_command_works_on_it_or_processes_are_left(
    paths: FleetPaths, server: subprocess.Popen[bytes]
) -> None:
    loaded = load({}, {}, None, paths.root)
    lock = paths.take_lock()
    with pytest.raises(BusyError, match="or a command that works on it"):
        found_fleet(paths.root, loaded, [])
    os.close(lock)
    with pytest.raises(BusyError, match="fleet down"):
        found_fleet(paths.root, loaded, [])
    assert server.poll() is None


def test_a_process_of_which_a_thread_is_left_still_has_its_locks_and_so_is_alive() -> None:
    first_thread_ends = (
        "import ctypes, threading, time\n"
        "threading.Thread(target=time.sleep, args=(600,)).start()\n"
        "print('begun', flush=True)\n"
        "ctypes.CDLL(None).pthread_exit(None)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", first_thread_ends], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    mark = ProcessMark.of(process.pid)
    stat = Path(f"/proc/{process.pid}/stat")
    while stat.read_text().rpartition(")")[2].split()[0] != "Z":
        time.sleep(0)
    assert mark.alive
    assert mark.send(signal.SIGKILL)
    process.stdout.close()
    process.wait()
    assert not mark.alive


def test_a_fleet_that_cannot_start_says_whose_problem_it_is(paths: FleetPaths) -> None:
    record = paths.read()
    record.plan = msgspec.structs.replace(record.plan, redis_program="/bin/false")
    paths.write(record)
    paths.redis_password.write_text("secret")
    with pytest.raises(DrumlinError, match="redis-0 ended while starting") as told:
        up.start(paths, lambda record: None)
    assert told.value.exit_code == EXIT_ENGINE
    node = FleetProcess("node-0", ProcessRole.NODE, exit_code=EXIT_STORAGE)
    assert [node.problem, msgspec.structs.replace(node, exit_code=-9).problem] == [EXIT_STORAGE, EXIT_INTERNAL]


def test_what_kept_a_fleet_from_starting_is_not_told_after_a_command_has_worked_on_it(
    paths: FleetPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(at_rest, "redis_children", lambda paths, plan: [])
    monkeypatch.setattr(at_rest, "form_cluster", lambda plan, password, check: None)
    for secret in (paths.redis_password, paths.engine_url):
        secret.write_text("secret")
    record = paths.read()
    record.state, record.failure = FleetState.FAILED, "A removal from this crawl was broken off."
    paths.write(record)
    with contextlib.suppress(EngineError), at_rest.engine_of_fleet(paths):
        raise EngineError("it fails again")
    assert paths.read().failure
    with at_rest.engine_of_fleet(paths):
        pass
    assert (paths.read().failure, paths.read().state) == ("", FleetState.DOWN)
