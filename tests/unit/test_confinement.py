"""A confined process can read the folders that it was left, compute, and talk to who has started it; nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

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
    "more memory": "bytearray(2 << 30)",
    "its limits back": "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))",
    "another root": "os.chroot(left)",
}
PERMITTED = {
    "reading the folder": "assert open(left + '/rows').read() == 'rows'",
    "listing the folder": "assert 'rows' in os.listdir(left)",
    "threads": "thread = threading.Thread(target=print); thread.start(); thread.join()",
    "computing": "assert sum(range(1000)) == 499500",
}
PROGRAM = """
import ctypes, os, resource, socket, sys, threading
from pathlib import Path
from drumlin.sql.confinement import confine
left, action = sys.argv[1:]
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
