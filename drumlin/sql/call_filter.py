"""Which system calls a confined process may not make, and the filter that refuses them (seccomp, on Linux).

A filter sees the number of a call and its arguments, not what pointers lead to. All other calls are permitted: they
compute, or use what the process has open. `confinement.py` installs the filter.
"""

from __future__ import annotations

import os
import struct
from typing import Final, NamedTuple

Numbers = tuple[int, int | None]
"""The number of a call on x86-64 and on 64-bit ARM, which does not have all of them."""

REFUSED: Final[dict[str, Numbers]] = {
    # The network, and other programs.
    "socket": (41, 198),
    "socketpair": (53, 199),
    "execve": (59, 221),
    "execveat": (322, 281),
    "fork": (57, None),
    "vfork": (58, None),
    # Signals, limits, priorities and memory of other processes. Landlock knows of signals, but only since Linux 6.12.
    "kill": (62, 129),
    "tkill": (200, 130),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "pidfd_send_signal": (424, 424),
    "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "kcmp": (312, 272),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
    "setrlimit": (160, 164),
    "setpriority": (141, 140),
    "ioprio_set": (251, 30),
    "sched_setaffinity": (203, 122),
    "sched_setattr": (314, 274),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    # What processes of one user share without files. Their ids are small numbers, which can be guessed.
    "shmget": (29, 194),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "msgget": (68, 186),
    "msgsnd": (69, 189),
    "msgrcv": (70, 188),
    "msgctl": (71, 187),
    "semget": (64, 190),
    "semop": (65, 193),
    "semtimedop": (220, 192),
    "semctl": (66, 191),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    # Changes of files that need no file opened for writing.
    "creat": (85, None),
    "truncate": (76, 45),
    "chmod": (90, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "chown": (92, None),
    "fchown": (93, 55),
    "lchown": (94, None),
    "fchownat": (260, 54),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "setxattrat": (463, 463),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
    "removexattrat": (466, 466),
    "file_setattr": (469, 469),
    "utime": (132, None),
    "utimes": (235, None),
    "futimesat": (261, None),
    "utimensat": (280, 88),
    # Other files, other names for them, and the kernel.
    "open_by_handle_at": (304, 265),
    "chroot": (161, 51),
    "pivot_root": (155, 41),
    "mount": (165, 40),
    "umount2": (166, 39),
    "open_tree": (428, 428),
    "open_tree_attr": (467, 467),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "unshare": (272, 97),
    "setns": (308, 268),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
}
OLDER_WAY: Final[dict[str, Numbers]] = {"clone3": (435, 435), "openat2": (437, 437)}
"""What these are asked is not visible to a filter, and libraries know an older way."""
LOOKED_AT: Final[dict[str, Numbers]] = {
    "clone": (56, 220),
    "open": (2, None),
    "openat": (257, 56),
    "tgkill": (234, 131),
    "prlimit64": (302, 261),
    "fcntl": (72, 25),
}
"""Calls that are permitted or refused by their arguments."""


class _Machine(NamedTuple):
    """A kind of processor: how the kernel calls it, and the place of its numbers above."""

    audit: int
    column: int


_MACHINES: Final = {"x86_64": _Machine(0xC000003E, 0), "aarch64": _Machine(0xC00000B7, 1)}

# The instructions of a filter.
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
ALLOW, REFUSE, KILL = 0x7FFF0000, 0x00050001, 0x80000000
NO_SUCH_CALL: Final = 0x00050000 | 38
_NUMBER_AT, _MACHINE_AT, _ARGUMENTS_AT = 0, 4, 16
_FOREIGN_CALLS: Final = 0x40000000
"""On x86, numbers from here on are those of another calling convention."""
_THREAD: Final = 0x10000
_CHANGES: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_SIGNALS_OF_FILES: Final = (8, 10, 15)
"""F_SETOWN, F_SETSIG, F_SETOWN_EX: who is sent which signal when a file can be read or written."""


def filter_of(machine_name: str, process: int) -> list[bytes] | None:
    """The filter for this process, which it must be installed in; None for a machine whose calls are not known."""
    machine = _MACHINES.get(machine_name)
    return _program(machine, process) if machine is not None else None


def _program(machine: _Machine, process: int) -> list[bytes]:
    """Each block but the first two looks for one call, and decides about it."""
    steps = [_step(_LOAD, _MACHINE_AT), _step(_EQUAL, machine.audit, 1, 0), _step(_RETURN, KILL)]
    steps += [_step(_LOAD, _NUMBER_AT), _step(_AT_LEAST, _FOREIGN_CALLS, 0, 1), _step(_RETURN, REFUSE)]
    for calls, verdict in ((REFUSED, REFUSE), (OLDER_WAY, NO_SUCH_CALL)):
        for numbers in calls.values():
            steps += _if_call(numbers[machine.column], [_step(_RETURN, verdict)])
    for name, block in _looked_at(process).items():
        steps += _if_call(LOOKED_AT[name][machine.column], block)
    return [*steps, _step(_RETURN, ALLOW)]


def _looked_at(process: int) -> dict[str, list[bytes]]:
    """How calls are judged that some may make."""
    return {
        "clone": _if_bits(0, _THREAD, ALLOW, REFUSE),
        "open": _if_bits(1, _CHANGES, REFUSE, ALLOW),
        "openat": _if_bits(2, _CHANGES, REFUSE, ALLOW),
        # A process that ends by an error of its own sends itself a signal.
        "tgkill": _if_equal(0, (process,), ALLOW, REFUSE),
        "fcntl": _if_equal(1, _SIGNALS_OF_FILES, REFUSE, ALLOW),
        "prlimit64": _if_null(2),
    }


def _if_call(number: int | None, block: list[bytes]) -> list[bytes]:
    """A block for the call of this number; nothing where there is no such call."""
    return [_step(_EQUAL, number, 0, len(block)), *block] if number is not None else []


def _if_bits(argument: int, bits: int, then: int, otherwise: int) -> list[bytes]:
    """One verdict if the argument has any of these bits, and otherwise another."""
    return [_argument(argument), _step(_ANY_BIT, bits, 0, 1), _step(_RETURN, then), _step(_RETURN, otherwise)]


def _if_equal(argument: int, values: tuple[int, ...], then: int, otherwise: int) -> list[bytes]:
    """One verdict if the argument is one of these values, and otherwise another. Each is a number of 32 bits."""
    checks = [step for value in values for step in (_step(_EQUAL, value, 0, 1), _step(_RETURN, then))]
    return [_argument(argument), *checks, _step(_RETURN, otherwise)]


def _if_null(argument: int) -> list[bytes]:
    """Permit it if the argument is no pointer: limits can be read, and not set."""
    low, high = _argument(argument), _argument(argument, half=1)
    return [low, _step(_EQUAL, 0, 0, 3), high, _step(_EQUAL, 0, 0, 1), _step(_RETURN, ALLOW), _step(_RETURN, REFUSE)]


def _argument(argument: int, half: int = 0) -> bytes:
    """Load one half of an argument, of 32 bits each; the first is the lower one."""
    return _step(_LOAD, _ARGUMENTS_AT + 8 * argument + 4 * half)


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)
