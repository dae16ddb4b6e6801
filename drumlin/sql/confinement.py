"""Takes from this process, for good, all that a question does not need. The operating system sees to it, not DuckDB.

Two parts of Linux do this, and neither needs rights:
- Landlock: no file can be opened but for reading, and only below the folders that are named; no TCP; no signal to
  others and none of their sockets, where the kernel knows how to refuse that.
- A filter of system calls (seccomp): no socket of any kind, no other program, no child, no file opened in a way that
  could change it, no change of owners, modes and dates, and none of the calls that reach into other processes or the
  kernel.

Limits (`setrlimit`) bound memory and processor time, and no file can grow.

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
from typing import Final, NamedTuple

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

# The instructions of a filter.
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _REFUSE, _KILL = 0x7FFF0000, 0x00050001, 0x80000000
_NO_SUCH_CALL: Final = 0x00050000 | 38
_NUMBER_AT, _MACHINE_AT, _ARGUMENTS_AT = 0, 4, 16
_FOREIGN_CALLS: Final = 0x40000000
"""On x86, numbers from here on are those of another calling convention."""
_THREAD: Final = 0x10000
_CHANGES: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class _Machine(NamedTuple):
    """The numbers of system calls: those that are refused, and those that are looked at closer."""

    audit: int
    clone: int
    openat: int
    open: int | None
    refused: tuple[int, ...]


# The same names in both: socket, socketpair, execve, execveat, ptrace, kill, tkill, process_vm_readv and _writev, bpf,
# add_key, request_key, keyctl, mount, umount2, pivot_root, chroot, unshare, setns, open_by_handle_at, userfaultfd,
# perf_event_open, mq_open, shmget, msgget, semget, fchmod, fchmodat, fchown, fchownat, setxattr and removexattr with
# their l- and f-forms, utimensat, truncate. Then those that only x86 has: fork, vfork, creat, chmod, chown, lchown,
# utime, utimes, futimesat.
_X86 = _Machine(
    audit=0xC000003E,
    clone=56,
    openat=257,
    open=2,
    refused=(
        *(41, 53, 59, 322, 101, 62, 200, 310, 311, 321, 248, 249, 250, 165, 166, 155, 161, 272, 308, 304, 323, 298),
        *(240, 29, 68, 64, 91, 268, 93, 260, 188, 189, 190, 197, 198, 199, 280, 76),
        *(57, 58, 85, 90, 92, 94, 132, 235, 261),
    ),
)
_ARM = _Machine(
    audit=0xC00000B7,
    clone=220,
    openat=56,
    open=None,
    refused=(
        *(198, 199, 221, 281, 117, 129, 130, 270, 271, 280, 217, 218, 219, 40, 39, 41, 51, 97, 268, 265, 282, 241),
        *(180, 194, 186, 190, 52, 53, 55, 54, 5, 6, 7, 14, 15, 16, 88, 45),
    ),
)
_MACHINES: Final = {"x86_64": _X86, "aarch64": _ARM}
_NEWER_REFUSED: Final = (424, 425, 428, 429, 430, 431, 432, 433, 434, 438, 442, 452, 463, 466)
"""The same on all machines: signals by pidfd, io_uring, mounting, descriptors of others, fchmodat2, setxattrat."""
_OLDER_WAY: Final = (435, 437)
"""clone3 and openat2: what they are asked is not visible to a filter, and libraries know an older way."""


class CannotConfine(Exception):
    """This machine cannot confine a process; the message is a sentence that says why."""


def confine(readable: Sequence[Path]) -> None:
    """From now on this process can read the files below these folders, compute, and use what it has open; nothing else.
    `CannotConfine` if that cannot be had, and then the process must not go on."""
    machine = _MACHINES.get(platform.machine())
    if machine is None:
        raise CannotConfine(f"Questions cannot be confined on {platform.machine()}.")
    if len(os.listdir("/proc/self/task")) > 1:
        raise CannotConfine("The process has several threads already.")
    os.nice(NICE)
    _limit()
    library = ctypes.CDLL(None, use_errno=True)
    _check(library.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    _close_files(library, readable)
    _filter_calls(library, machine)


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


def _filter_calls(library: ctypes.CDLL, machine: _Machine) -> None:
    program = _program(machine)
    code = ctypes.create_string_buffer(b"".join(program))
    header = struct.pack("HxxxxxxP", len(program), ctypes.addressof(code))
    _check(library.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, header, 0, 0), "seccomp")


def _program(machine: _Machine) -> list[bytes]:
    """The filter: each block but the first two looks for one call, and decides about it."""
    steps = [_step(_LOAD, _MACHINE_AT), _step(_EQUAL, machine.audit, 1, 0), _step(_RETURN, _KILL)]
    steps += [_step(_LOAD, _NUMBER_AT), _step(_AT_LEAST, _FOREIGN_CALLS, 0, 1), _step(_RETURN, _REFUSE)]
    for number in (*machine.refused, *_NEWER_REFUSED):
        steps += [_step(_EQUAL, number, 0, 1), _step(_RETURN, _REFUSE)]
    for number in _OLDER_WAY:
        steps += [_step(_EQUAL, number, 0, 1), _step(_RETURN, _NO_SUCH_CALL)]
    steps += _if_bits(machine.clone, 0, _THREAD, _ALLOW, _REFUSE)
    steps += _if_bits(machine.openat, 2, _CHANGES, _REFUSE, _ALLOW)
    steps += _if_bits(machine.open, 1, _CHANGES, _REFUSE, _ALLOW) if machine.open is not None else []
    return [*steps, _step(_RETURN, _ALLOW)]


def _if_bits(number: int, argument: int, bits: int, then: int, otherwise: int) -> list[bytes]:
    """For the call of this number: one verdict if its argument has any of these bits, and otherwise another."""
    return [
        _step(_EQUAL, number, 0, 4),
        _step(_LOAD, _ARGUMENTS_AT + 8 * argument),
        _step(_ANY_BIT, bits, 0, 1),
        _step(_RETURN, then),
        _step(_RETURN, otherwise),
    ]


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def _check(answer: int, what: str) -> int:
    if answer < 0:
        raise CannotConfine(f"This kernel does not permit {what}: {os.strerror(ctypes.get_errno())}.")
    return answer
