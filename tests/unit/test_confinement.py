"""A confined process can read the folders that it was left, compute, and talk to who has started it; nothing else."""

from __future__ import annotations

import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from drumlin.sql.call_filter import ALLOW, KILL, LOOKED_AT, NO_SUCH_CALL, OLDER_WAY, REFUSE, REFUSED, filter_of

# Each is tried after the confinement, by Python itself: what DuckDB would permit does not matter here.
FORBIDDEN = {
    "reading another file": "open('/etc/passwd').read()",
    "reading its own environment": "open('/proc/self/environ').read()",
    "reading out of the folder": "open(left + '/../secret').read()",
    "reading through a link": "open(left + '/link').read()",
    "listing another folder": "os.listdir('/')",
    "writing into the folder": "open(left + '/new', 'w')",
    "writing to a file in it": "open(left + '/rows', 'r+b')",
    "emptying a file in it": "os.open(left + '/rows', os.O_RDONLY | os.O_TRUNC)",
    "cutting a file in it": "os.truncate(left + '/rows', 0)",
    "writing elsewhere": "open('/tmp/escaped', 'w')",
    "removing a file": "os.unlink(left + '/rows')",
    "renaming a file": "os.rename(left + '/rows', left + '/gone')",
    "linking a file": "os.link(left + '/rows', left + '/twin')",
    "linking by name": "os.symlink('/etc/passwd', left + '/more')",
    "making a folder": "os.mkdir(left + '/folder')",
    "changing a mode": "os.chmod(left + '/rows', 0o777)",
    "changing an owner": "os.chown(left + '/rows', 1, 1)",
    "changing a date": "os.utime(left + '/rows', (1, 1))",
    "changing attributes": "os.setxattr(left + '/rows', 'user.x', b'1')",
    "a TCP socket": "socket.socket(socket.AF_INET, socket.SOCK_STREAM)",
    "a UDP socket": "socket.socket(socket.AF_INET, socket.SOCK_DGRAM)",
    "a Unix socket": "socket.socket(socket.AF_UNIX)",
    "a child": "os.fork()",
    "another program": "os.execv('/bin/true', ['true'])",
    "a signal to who started it": "os.kill(os.getppid(), 0)",
    "a signal to a thread of theirs": "call('tgkill', os.getppid(), os.getppid(), 0)",
    "a signal with a value": "call('rt_sigqueueinfo', os.getppid(), 0, bytes(128))",
    "a signal when a file can be read": "fcntl.fcntl(1, fcntl.F_SETOWN, os.getppid())",
    "another signal then": "fcntl.fcntl(1, fcntl.F_SETSIG, 9)",
    "limits of who started it": "resource.prlimit(os.getppid(), resource.RLIMIT_CORE, (0, 0))",
    "its own limits": "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))",
    "processors of who started it": "os.sched_setaffinity(os.getppid(), os.sched_getaffinity(0))",
    "priority of who started it": "os.setpriority(os.PRIO_PROCESS, os.getppid(), 0)",
    "memory that others share": "call('shmctl', 0, 3, bytes(1024))",
    "messages of others": "call('msgctl', 0, 3, bytes(1024))",
    "semaphores of others": "call('semctl', 0, 0, 3, bytes(1024))",
    "more memory": "bytearray(2 << 30)",
    "its limits back": "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))",
    "another root": "os.chroot(left)",
}
PERMITTED = {
    "reading the folder": "assert open(left + '/rows').read() == 'rows'",
    "listing the folder": "assert 'rows' in os.listdir(left)",
    "threads": "thread = threading.Thread(target=print); thread.start(); thread.join()",
    "computing": "assert sum(range(1000)) == 499500",
    "a signal to itself": "signal.raise_signal(0)",
    "looking at its limits": "assert resource.getrlimit(resource.RLIMIT_FSIZE) == (0, 0)",
    "flags of its files": "assert fcntl.fcntl(1, fcntl.F_GETFD) == 0",
}
PROGRAM = """
import ctypes, fcntl, os, platform, resource, signal, socket, sys, threading
from pathlib import Path
from drumlin.sql.call_filter import LOOKED_AT, REFUSED
from drumlin.sql.confinement import confine
left, action = sys.argv[1:]
library = ctypes.CDLL(None, use_errno=True)
def call(name, *arguments):
    number = {**REFUSED, **LOOKED_AT}[name][platform.machine() == "aarch64"]
    if library.syscall(number, *arguments) < 0:
        raise OSError(ctypes.get_errno(), name)
confine([Path(left)])
try:
    exec(action)
except (OSError, MemoryError, ValueError):
    print("refused")
else:
    print("done")
"""


def tried(folder: Path, action: str) -> str:
    left = folder / "left"
    left.mkdir()
    (left / "rows").write_text("rows")
    (left / "link").symlink_to("/etc/passwd")
    (folder / "secret").write_text("secret")
    command = [sys.executable, "-c", PROGRAM, str(left), action]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd="/")
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in left.iterdir()) == ["link", "rows"]
    assert (left / "rows").read_text() == "rows"
    return done.stdout.strip().splitlines()[-1]


@pytest.mark.parametrize("action", FORBIDDEN.values(), ids=FORBIDDEN.keys())
def test_a_confined_process_is_refused(tmp_path: Path, action: str) -> None:
    assert tried(tmp_path, action) == "refused"


@pytest.mark.parametrize("action", PERMITTED.values(), ids=PERMITTED.keys())
def test_a_confined_process_may_go_on_with(tmp_path: Path, action: str) -> None:
    assert tried(tmp_path, action) == "done"


# The filter of system calls, also of the kind of processor that this is not


MACHINES = {
    "x86_64": (0, 0xC000003E, Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h")),
    "aarch64": (1, 0xC00000B7, Path("/usr/include/asm-generic/unistd.h")),
}
OWN = 4_711


def verdict(machine: str, number: int, *arguments: int, audit: int = 0) -> int:
    """What the kernel would do with a call: a small part of its own interpreter."""
    program = filter_of(machine, OWN)
    assert program is not None
    seen = struct.pack("=IIQ6Q", number, audit or MACHINES[machine][1], 0, *arguments, *[0] * (6 - len(arguments)))
    place = loaded = 0
    while True:
        code, if_true, if_false, value = struct.unpack("=HBBI", program[place])
        place += 1
        if code == 0x06:
            return int(value)
        if code == 0x20:
            (loaded,) = struct.unpack_from("=I", seen, value)
        else:
            holds = {0x15: loaded == value, 0x35: loaded >= value, 0x45: bool(loaded & value)}[code]
            place += if_true if holds else if_false


@pytest.mark.parametrize("machine", MACHINES)
def test_the_filter_refuses_what_is_on_its_list_and_permits_the_rest(machine: str) -> None:
    column = MACHINES[machine][0]
    for calls, expected in ((REFUSED, REFUSE), (OLDER_WAY, NO_SUCH_CALL)):
        for name, numbers in calls.items():
            if (number := numbers[column]) is not None:
                assert verdict(machine, number) == expected, name
    listed = {numbers[column] for calls in (REFUSED, OLDER_WAY, LOOKED_AT) for numbers in calls.values()}
    assert {verdict(machine, number) for number in range(500) if number not in listed} == {ALLOW}
    assert verdict(machine, 0, audit=0x40000003) == KILL, "calls of another machine have other numbers"
    assert verdict(machine, 0x40000000) == REFUSE


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("tgkill", (OWN, OWN, 6), ALLOW),
        ("tgkill", (OWN + 1, OWN, 9), REFUSE),
        ("prlimit64", (0, 7, 0, 1 << 40), ALLOW),
        ("prlimit64", (0, 7, 1 << 40, 0), REFUSE),
        ("prlimit64", (1, 7, 64, 0), REFUSE),
        ("fcntl", (1, 3, 0), ALLOW),
        ("fcntl", (1, 8, 1), REFUSE),
        ("fcntl", (1, 10, 9), REFUSE),
        ("fcntl", (1, 15, 64), REFUSE),
        ("clone", (0x3D0F00,), ALLOW),
        ("clone", (17,), REFUSE),
        ("openat", (0, 64, 0), ALLOW),
        ("openat", (0, 64, 1), REFUSE),
        ("openat", (0, 64, 0o100), REFUSE),
    ],
)
def test_the_filter_looks_at_arguments(machine: str, name: str, arguments: tuple[int, ...], expected: int) -> None:
    number = LOOKED_AT[name][MACHINES[machine][0]]
    assert number is not None
    assert verdict(machine, number, *arguments) == expected


@pytest.mark.parametrize("machine", MACHINES)
def test_the_numbers_are_those_of_the_kernel(machine: str) -> None:
    column, _, header = MACHINES[machine]
    if not header.exists():
        pytest.skip("the kernel's headers are not installed")
    found = re.findall(r"^#define\s+__NR(?:3264)?_(\w+)\s+(\d+)", header.read_text(), re.MULTILINE)
    known = {name: int(number) for name, number in found}
    listed = {name: numbers[column] for calls in (REFUSED, OLDER_WAY, LOOKED_AT) for name, numbers in calls.items()}
    # Headers of an older kernel do not have them all.
    assert {name: number for name, number in listed.items() if name in known and number is not None} == {
        name: known[name] for name, number in listed.items() if name in known and number is not None
    }
    assert len(known.keys() & listed.keys()) > len(listed) / 2


def test_what_has_threads_already_is_not_confined() -> None:
    program = (
        "import threading, pathlib\n"
        "from drumlin.sql.confinement import CannotConfine, confine\n"
        "threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
        "try:\n    confine([pathlib.Path('/')])\nexcept CannotConfine as wrong:\n    print(wrong)\n"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert "several threads" in done.stdout
