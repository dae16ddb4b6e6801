"""What a command and all its processes used: wall time, CPU time and peak memory.

CPU time is read twice, and the larger number counts: from `wait4`, which includes every descendant that was waited for,
and from samples of /proc, which include those that were not. Memory is the sum of the processes' proportional set
sizes, in which memory pages that they share count once. The kernel stops a process while it computes this size, longer
for larger ones; four times a second, that slowed a crawl by a twentieth. So it is read only when the resident sizes,
which cost nothing to read, reach a new maximum.
"""

from __future__ import annotations

import os
import select
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

SAMPLE_S = 0.25
HEIGHT_STEP = 1.02
STOP_GRACE_S = 30.0
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
PROC = Path("/proc")
TCP_TIME_WAIT = "06"
OUTPUT_BYTES_MAX = 1_000_000


@dataclass(frozen=True)
class Usage:
    """What one run of a command used."""

    wall_s: float
    cpu_s: float
    peak_bytes: int
    exit_code: int
    stopped: bool
    output: str


class Tree:
    """A process and its descendants, seen again at each sample."""

    def __init__(self, top: int) -> None:
        self.top = top
        self.peak_bytes = 0
        self._cpu_s: dict[int, float] = {}
        self._resident_height = 0

    @property
    def cpu_s(self) -> float:
        return sum(self._cpu_s.values())

    def sample(self) -> None:
        members = {self.top}
        resident = 0
        for process in sorted(_processes()):
            pid = process.pid
            if pid == self.top or process.parent in members or process.session == self.top:
                members.add(pid)
                self._cpu_s[pid] = max(process.cpu_s, self._cpu_s.get(pid, 0.0))
                resident += process.resident_bytes
        if resident >= HEIGHT_STEP * self._resident_height:
            self._resident_height = resident
            self.peak_bytes = max(self.peak_bytes, sum(map(_proportional_bytes, members)))


class Process(NamedTuple):
    """A line of the process table."""

    pid: int
    parent: int
    session: int
    cpu_s: float
    resident_bytes: int


def _processes() -> list[Process]:
    """Everything that runs."""
    found = []
    for entry in os.listdir(PROC):
        if entry.isdigit():
            try:
                fields = (PROC / entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            cpu_s = (int(fields[11]) + int(fields[12])) / TICKS_PER_S
            resident = int(fields[21]) * PAGE_BYTES
            found.append(Process(int(entry), int(fields[1]), int(fields[3]), cpu_s, resident))
    return found


def processes_of_session(session: int) -> set[int]:
    return {process.pid for process in _processes() if process.session == session}


def resident_bytes(pids: set[int]) -> int:
    """The resident memory of these processes; shared memory counts for each of them."""
    return sum(process.resident_bytes for process in _processes() if process.pid in pids)


def _proportional_bytes(pid: int) -> int:
    try:
        for line in (PROC / str(pid) / "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def run_measured(command: list[str], wall_s_max: float) -> Usage:
    """Run a command in a session of its own. After `wall_s_max` it is asked to stop, and killed if it does not."""
    with tempfile.TemporaryFile() as output:
        started = time.monotonic()
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        tree = Tree(child.pid)
        status, used_s, stopped = _wait(child, tree, started + wall_s_max)
        wall_s = time.monotonic() - started
        output.seek(0)
        text = output.read(OUTPUT_BYTES_MAX).decode("utf-8", "replace")
    exit_code = os.waitstatus_to_exitcode(status)
    child.returncode = exit_code  # it is reaped here, so Popen must not wait for it again
    return Usage(wall_s, max(used_s, tree.cpu_s), tree.peak_bytes, exit_code, stopped, text)


def _wait(child: subprocess.Popen[bytes], tree: Tree, deadline: float) -> tuple[int, float, bool]:
    stopped = False
    ended = os.pidfd_open(child.pid)
    try:
        while True:
            tree.sample()
            if select.select([ended], [], [], SAMPLE_S)[0]:
                _, status, used = os.wait4(child.pid, 0)
                return status, used.ru_utime + used.ru_stime, stopped
            if time.monotonic() > deadline:
                os.kill(child.pid, 9 if stopped else 15)
                stopped, deadline = True, time.monotonic() + STOP_GRACE_S
    finally:
        os.close(ended)


def drain_time_wait(below: int, seconds_max: float) -> int:
    """Wait until few connections are left in TIME_WAIT. Returns how many were left in the end."""
    deadline = time.monotonic() + seconds_max
    while (waiting := count_time_wait()) > below and time.monotonic() < deadline:
        time.sleep(1.0)
    return waiting


def count_time_wait() -> int:
    total = 0
    for table in ("tcp", "tcp6"):
        file = PROC / "net" / table
        if file.exists():
            total += sum(line.split()[3] == TCP_TIME_WAIT for line in file.read_text().splitlines()[1:])
    return total
