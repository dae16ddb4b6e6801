"""Identifies a process beyond its number: the kernel gives the number of an ended process to another one."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import msgspec

PROC = Path("/proc")
BOOT_ID = PROC / "sys/kernel/random/boot_id"
# Field 22 of proc_pid_stat(5), counted from the state, the first field after the name in parentheses.
STARTED_FIELD = 19
THREADS_FIELD = 17
GONE_STATES = frozenset("ZXx")
FROZEN_STATES = frozenset("Tt")


class ProcessMark(msgspec.Struct, frozen=True):
    """A process. `started` (the boot, and the clock ticks from the boot to the process's start) tells it from all other
    processes that ever had its number."""

    pid: int
    started: str

    @classmethod
    def of(cls, pid: int) -> ProcessMark:
        """The mark of a living process; ProcessLookupError if it is not alive."""
        started = _started(pid)
        if started is None:
            raise ProcessLookupError(pid)
        return cls(pid, started)

    @property
    def alive(self) -> bool:
        """Whether this very process is still alive. A zombie is not, except one of which a thread is left: that thread
        still has the locks, ports and files of the process."""
        return _started(self.pid) == self.started

    @property
    def frozen(self) -> bool:
        """Whether the process is stopped (SIGSTOP), or a debugger holds it: it is alive and does nothing."""
        fields = _fields(self.pid)
        return self.alive and fields is not None and fields[0] in FROZEN_STATES

    def send(self, number: signal.Signals) -> bool:
        """Send a signal to this very process; False if it is gone."""
        try:
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return False
        try:
            # The descriptor always means the same process, so the number cannot change its owner after this check.
            if not self.alive:
                return False
            signal.pidfd_send_signal(descriptor, number)
        except ProcessLookupError:
            return False
        finally:
            os.close(descriptor)
        return True


def _fields(pid: int) -> list[str] | None:
    """The fields of proc_pid_stat(5) from the state on; None if there is no such process."""
    try:
        return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except (OSError, UnicodeDecodeError):
        return None


def _started(pid: int) -> str | None:
    fields = _fields(pid)
    if fields is None or (fields[0] in GONE_STATES and int(fields[THREADS_FIELD]) <= 1):
        return None
    return f"{BOOT_ID.read_text().strip()}/{fields[STARTED_FIELD]}"


def ending_of(code: int) -> str:
    """How a process with this exit code ended, in words; the code is negative if a signal ended it."""
    if code >= 0:
        return f"exit code {code}"
    known = {int(number): number.name for number in signal.Signals}
    return known.get(-code, f"signal {-code}")
