"""Takes from this process, for good, all that a question does not need. The operating system sees to it, not DuckDB.

Two parts of Linux do this, and neither needs rights:
- Landlock: no file can be opened but for reading, and only below the folders that are named; no TCP; no signal to
  others and none of their sockets, where the kernel knows how to refuse that.
- A filter of system calls (seccomp, `call_filter.py`): no socket of any kind, no other program, no child, no file
  opened in a way that could change it, no change of owners, modes and dates, no signal but to itself, and none of the
  calls that reach into other processes or the kernel.

Limits (`setrlimit`) bound memory and processor time, and no file can grow. They cannot be changed any more, not even by
root.

Both bind the thread that calls and those that it starts later. So this process must have a single thread, which is
checked. Libraries have to be loaded before, and DuckDB is given its threads afterwards.
"""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from drumlin.sql.call_filter import filter_of

MEMORY_BYTES_MAX: Final = 1 << 30
"""For all data of the process."""
CPU_S_MAX: Final = 45
NICE: Final = 10
"""The crawl goes first."""

_U64: Final = struct.Struct("=Q")
_PR_SET_NO_NEW_PRIVS: Final = 38
_PR_SET_SECCOMP: Final = 22
_SECCOMP_MODE_FILTER: Final = 2

# Landlock. These calls have the same numbers on every machine.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION_FLAG: Final = 1
_PATH_BENEATH: Final = 1
_READ_FILE, _READ_DIR = 1 << 2, 1 << 3
_FILE_RIGHTS: Final = {1: (1 << 13) - 1, 2: 1 << 13, 3: 1 << 14, 5: 1 << 15}
"""What can be refused of files, by the version that brought it."""
_NET_SINCE, _NET_RIGHTS = 4, 0b11
_SCOPE_SINCE, _SCOPES = 6, 0b11


class CannotConfine(Exception):
    """This machine cannot confine a process; the message is a sentence that says why."""


def confine(readable: Sequence[Path]) -> None:
    """From now on this process can read the files below these folders, compute, and use what it has open; nothing else.
    `CannotConfine` if that cannot be had, and then the process must not go on."""
    program = filter_of(platform.machine(), os.getpid())
    if program is None:
        raise CannotConfine(f"Questions cannot be confined on {platform.machine()}.")
    if len(os.listdir("/proc/self/task")) > 1:
        raise CannotConfine("The process has several threads already.")
    os.nice(NICE)
    _limit()
    library = ctypes.CDLL(None, use_errno=True)
    _check(library.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    _close_files(library, readable)
    _filter_calls(library, program)


def _limit() -> None:
    for limit, value in (
        (resource.RLIMIT_DATA, MEMORY_BYTES_MAX),
        (resource.RLIMIT_CPU, CPU_S_MAX),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(limit, (value, value))


def _close_files(library: ctypes.CDLL, readable: Sequence[Path]) -> None:
    version = library.syscall(_CREATE_RULESET, None, 0, _VERSION_FLAG)
    if version < 1:
        raise CannotConfine("This kernel has no Landlock, by which questions are confined.")
    handled = sum(rights for since, rights in _FILE_RIGHTS.items() if version >= since)
    network = [_NET_RIGHTS] if version >= _NET_SINCE else []
    others = [_SCOPES] if version >= _SCOPE_SINCE else []
    attributes = b"".join(map(_U64.pack, (handled, *network, *others)))
    rules = _check(library.syscall(_CREATE_RULESET, attributes, len(attributes), 0), "Landlock")
    for folder in readable:
        descriptor = os.open(folder, os.O_PATH | os.O_CLOEXEC)
        rule = struct.pack("=Qi", _READ_FILE | _READ_DIR, descriptor)
        _check(library.syscall(_ADD_RULE, rules, _PATH_BENEATH, rule, 0), "Landlock")
        os.close(descriptor)
    _check(library.syscall(_RESTRICT_SELF, rules, 0), "Landlock")
    os.close(rules)


def _filter_calls(library: ctypes.CDLL, program: list[bytes]) -> None:
    code = ctypes.create_string_buffer(b"".join(program))
    header = struct.pack("HxxxxxxP", len(program), ctypes.addressof(code))
    _check(library.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, header, 0, 0), "seccomp")


def _check(answer: int, what: str) -> int:
    if answer < 0:
        raise CannotConfine(f"This kernel does not permit {what}: {os.strerror(ctypes.get_errno())}.")
    return answer
