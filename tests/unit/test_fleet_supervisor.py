"""The supervisor of a local fleet, on a disk that takes nothing."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from drumlin.cli.fleet import _alone
from drumlin.errors import StorageError
from drumlin.fleet.children import Child
from drumlin.fleet.layout import FleetPaths, FleetPlan, FleetProcess, FleetRecord, FleetState, ProcessRole
from drumlin.fleet.supervisor import Supervisor

ENDED_S_MAX = 30.0


@pytest.fixture
def paths(tmp_path: Path) -> FleetPaths:
    paths = FleetPaths(tmp_path)
    paths.make()
    plan = FleetPlan(1, [1], [(2, 3)], 1, 0, 1, "redis-server")
    paths.write(FleetRecord(plan, FleetState.READY, 0.0))
    return paths


@pytest.fixture
def node(paths: FleetPaths) -> Iterator[Child]:
    """A process that does nothing, and ends when it is told to."""
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    child = Child(FleetProcess("node-0", ProcessRole.NODE), command, {}, paths.log("node-0"))
    yield child
    if child.record.mark is not None:
        child.record.mark.send(signal.SIGKILL)
        child.reap(ENDED_S_MAX)


def test_a_full_disk_takes_no_supervisor_away(
    paths: FleetPaths, node: Child, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    keeper = Supervisor(paths.root)
    keeper._begin([node])

    def full(*_: object) -> None:
        raise StorageError("Cannot write fleet.json: the disk is full.")

    def until_started_again(self: Supervisor) -> bool:
        self._stopping = node.record.starts == 2
        return False

    monkeypatch.setattr(Supervisor, "_finish", until_started_again)
    assert node.record.mark is not None
    node.record.mark.send(signal.SIGKILL)
    with monkeypatch.context() as disk:
        disk.setattr(FleetPaths, "write", full)
        # What dies is started again, and at the end nothing is left over.
        keeper._keep()
        alive = [node.record.alive]
        keeper._end()
        assert [*alive, node.record.alive] == [True, False]
    assert caplog.text.count("the disk is full") == 1
    assert paths.read().processes[0].starts == 1


def test_what_could_not_be_written_is_written_when_there_is_room(
    paths: FleetPaths, node: Child, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper, asked = Supervisor(paths.root), list[FleetRecord]()
    keeper._begin([node])
    node.record.starts = 7

    def refuse_once(self: FleetPaths, record: FleetRecord) -> None:
        asked.append(record)
        keeper._stopping = len(asked) > 1
        if len(asked) == 1:
            raise StorageError("Cannot write fleet.json: the disk is full.")
        written(self, record)

    written = FleetPaths.write
    monkeypatch.setattr(FleetPaths, "write", refuse_once)
    finished = iter([True])
    monkeypatch.setattr(Supervisor, "_finish", lambda self: next(finished, False))
    keeper._keep()
    assert paths.read().processes[0].starts == 7


def test_a_fleet_whose_supervisor_is_gone_says_so(paths: FleetPaths, node: Child) -> None:
    record = paths.read()
    assert _alone(record) == ""
    node.start()
    record.processes = [node.record]
    assert "Its supervisor is gone" in _alone(record)
    record.supervisor = node.record.mark
    assert _alone(record) == ""
