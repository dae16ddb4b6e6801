"""The processes of a local crawl's nodes: how they begin, and how their end is heard of.

The first nodes are forked before the frontier is opened: this process has loaded all that a node needs, and forking
is safe only while it has no threads. A node that died later is started as a new program, since by then there are some.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import traceback
from pathlib import Path
from typing import NoReturn

from drumlin.errors import EXIT_INTERNAL, EXIT_OK, DrumlinError
from drumlin.node.main import NodeOptions, run_node


class NodeProcess:
    """A child that is, or was, a node. `returncode` is None while it lives, and a negative signal if that ended it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    async def wait(self) -> int:
        """The exit code, once it has ended."""
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        descriptor = os.pidfd_open(self.pid)
        loop.add_reader(descriptor, ended.set)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(descriptor)
            os.close(descriptor)
        return self._reap()

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)

    def end(self, number: int) -> None:
        """Send a signal that cannot be ignored, and wait until it has done its work."""
        if self.returncode is None:
            os.kill(self.pid, number)
            self._reap()

    def _reap(self) -> int:
        if self.returncode is None:
            _, status = os.waitpid(self.pid, 0)
            self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


def fork_node(options: NodeOptions, log: Path, listener: socket.socket) -> NodeProcess:
    """A node as a copy of this process, which must not have threads. `listener` stays the parent's alone: were it kept
    open here, nodes would wait for answers of a parent that is gone."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        listener.close()
        _be_a_node(options, log)
    return NodeProcess(pid)


def _be_a_node(options: NodeOptions, log: Path) -> NoReturn:
    """Run the node and leave without the clean-up that belongs to the parent."""
    code = EXIT_INTERNAL
    try:
        nothing = os.open(os.devnull, os.O_RDONLY)
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        for descriptor, source in ((0, nothing), (1, output), (2, output)):
            os.dup2(source, descriptor)
        run_node(options)
        code = EXIT_OK
    except DrumlinError as broken:
        code = broken.exit_code
        os.write(2, f"drumlin: {broken}\n".encode())
    except BaseException:
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(code)


def start_node(options: NodeOptions, log: Path, lock_fd: int) -> NodeProcess:
    """A node as a program of its own; it keeps the lock on the crawl directory like the others."""
    arguments = ["node", "--coordinator", options.endpoint, "--name", options.node, "--out", str(options.out)]
    arguments += ["--concurrency", str(options.concurrency), "--parent-pid", str(options.parent_pid)]
    if options.sync:
        arguments.append("--sync")
    with log.open("ab") as output:
        child = subprocess.Popen(
            [sys.executable, "-m", "drumlin", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=(lock_fd,),
        )
    # Its end is waited for here and not by `subprocess`, which would complain about a child that it never saw end.
    child.returncode = 0
    return NodeProcess(child.pid)
