"""Brings a fleet up and takes it down, for the command line: starts or ends the supervisor, and waits until it is
done."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

from drumlin.client.remote import Remote
from drumlin.errors import EXIT_BUSY, BusyError, DrumlinError
from drumlin.fleet.endings import KILLED_S_MAX, PATIENCE_S, end_all
from drumlin.fleet.layout import STARTED, FleetPaths, FleetRecord, FleetState, read_secret
from drumlin.tls import CertificateFiles

POLL_S = 0.1
START_S_MAX = 300.0
END_S_MAX = sum(PATIENCE_S.values()) + 3 * KILLED_S_MAX
LOCK_S_MAX = 5.0
SUPERVISOR_LOG = "supervisor"


def start(paths: FleetPaths, on_wait: Callable[[FleetRecord], None]) -> FleetRecord:
    """Start the supervisor of a founded fleet and wait until all processes work; DrumlinError if they do not."""
    with paths.log(SUPERVISOR_LOG).open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "drumlin.fleet.supervisor", str(paths.root)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        return _wait_until_ready(paths, process, on_wait)
    except BaseException:
        # If this was interrupted or took too long, do not leave half a fleet behind.
        process.terminate()
        process.wait()
        raise


def _wait_until_ready(
    paths: FleetPaths, process: subprocess.Popen[bytes], on_wait: Callable[[FleetRecord], None]
) -> FleetRecord:
    deadline = time.monotonic() + START_S_MAX
    while time.monotonic() < deadline:
        ended = process.poll() is not None
        record = paths.read()
        if record.state is FleetState.READY and not ended:
            # The supervisor outlives this process. `subprocess` would warn of that, so it is told that it has ended.
            process.returncode = 0
            return record
        if ended:
            raise _not_started(paths, record, process.returncode)
        on_wait(record)
        time.sleep(POLL_S)
    raise DrumlinError(f"The fleet was not ready within {START_S_MAX:.0f} s.", f"See {paths.logs}.")


def _not_started(paths: FleetPaths, record: FleetRecord, code: int) -> DrumlinError:
    if code == EXIT_BUSY and not record.failure:
        return BusyError(f"Another command starts the fleet in {paths.root}, or works on it.", STARTED)
    failure = record.failure or "its supervisor died"
    error = DrumlinError(f"The fleet did not start: {failure}", f"The logs are in {paths.logs}.")
    error.exit_code = record.failure_code
    return error


def down(paths: FleetPaths, *, at_once: bool = False) -> list[str]:
    """End all processes of a fleet that are left. Returns the names of those that had to be killed. BusyError if a
    command works on the fleet, which is down: its Redis is that command's."""
    record = paths.read()
    supervisor = record.supervisor
    if supervisor is not None and supervisor.alive:
        if not at_once and supervisor.send(signal.SIGTERM) and _wait(lambda: not supervisor.alive):
            return []
        # Once the supervisor is dead, nobody starts again the processes that are ended below.
        supervisor.send(signal.SIGKILL)
        _wait(lambda: not supervisor.alive)
    lock = _take_lock_of_nobody(paths)
    try:
        return _end_left(paths, at_once=at_once)
    finally:
        os.close(lock)


def _take_lock_of_nobody(paths: FleetPaths) -> int:
    """The lock of a fleet without a supervisor. If it stays held, what runs of the fleet is not left over, but needed.
    A supervisor that was just killed may have been starting a process, which still has a copy of it for a moment."""
    deadline = time.monotonic() + LOCK_S_MAX
    while True:
        try:
            return paths.take_lock()
        except BusyError:
            if time.monotonic() > deadline:
                hint = "Wait for it, and repeat. It may be `drumlin remove`, `drumlin frontier` or `drumlin fleet up`."
                raise BusyError(f"A command works on this fleet, in {paths.root}.", hint) from None
        time.sleep(POLL_S)


def _end_left(paths: FleetPaths, *, at_once: bool) -> list[str]:
    record = paths.read()
    killed = end_all(record, at_once=at_once)
    left = [process.name for process in record.processes if process.alive]
    if left:
        raise BusyError(f"These processes cannot be ended: {', '.join(left)}.", "Is their disk stuck?")
    record.supervisor = None
    record.state = FleetState.DOWN
    paths.write(record)
    return killed


def wait_until_finished(paths: FleetPaths) -> bool:
    """Wait until the store of a finished crawl is complete; False if that takes too long or the fleet is gone."""
    _wait(lambda: (record := paths.read()).finished or not record.running)
    return paths.read().finished


def _wait(happened: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + END_S_MAX
    while not happened():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True


def remote_of(paths: FleetPaths) -> Remote:
    """The coordinators of a local fleet, asked as its owner."""
    record = paths.read()
    token = read_secret(paths.operator_token) if paths.operator_token.exists() else ""
    return Remote(record.coordinators, token=token, ca=CertificateFiles.in_folder(paths.certs).authority)
