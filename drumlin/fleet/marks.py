"""Which process is meant: its number alone says too little, since numbers are used again."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import msgspec

PROC = Path("/proc")
BOOT_ID = PROC / "sys/kernel/random/boot_id"
# Counted from the state, which follows the name in parentheses: proc_pid_stat(5) calls it field 22.
STARTED_FIELD = 19
GONE_STATES = frozenset("ZXx")


class ProcessMark(msgspec.Struct, frozen=True):
    """A process, told from all others that ever had its number by when it began: boot and clock ticks since then."""

    pid: int
    started: str

    @classmethod
    def of(cls, pid: int) -> ProcessMark:
        """The mark of a process that lives; ProcessLookupError when it does not."""
        started = _started(pid)
        if started is None:
            raise ProcessLookupError(pid)
        return cls(pid, started)

    @property
    def alive(self) -> bool:
        """Whether this very process is still at work; a zombie is not."""
        return _started(self.pid) == self.started

    def send(self, number: signal.Signals) -> bool:
        """Signal this very process; False when it is gone."""
        try:
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return False
        try:
            # The descriptor is of one process for good, so that looking at its mark now is soon enough.
            if not self.alive:
                return False
            signal.pidfd_send_signal(descriptor, number)
        except ProcessLookupError:
            return False
        finally:
            os.close(descriptor)
        return True


def _started(pid: int) -> str | None:
    try:
        fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
        boot = BOOT_ID.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return None
    return None if fields[0] in GONE_STATES else f"{boot}/{fields[STARTED_FIELD]}"
