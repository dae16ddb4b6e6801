"""The processes of a local crawl's nodes: how they are started, and how their end is noticed.

The first nodes are forked before the frontier is opened: this process has loaded all that a node needs, and forking is
safe only while it has no threads. A node that dies later is started as a new program, since this process has threads
by then: `python -P -m drumlin.local.processes LOG OPTIONS`. It gets the options of the node that died and reads no
settings itself, because `drumlin.toml` may have changed since the crawl began.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import subprocess
import sys
import traceback
from pathlib import Path
from typing import NoReturn

import msgspec

from drumlin.errors import EXIT_INTERNAL, EXIT_OK, DrumlinError
from drumlin.logs import Event, event, logging_to, unforgeable
from drumlin.node.main import NodeOptions, run_node
from drumlin.protocol import Failure

log = logging.getLogger("drumlin.node")


def failure_error(failure: Failure) -> DrumlinError:
    """The error that ends a crawl whose node failed in this way."""
    error = DrumlinError(failure.message, failure.hint)
    error.exit_code = failure.exit_code or EXIT_INTERNAL
    return error


class NodeProcess:
    """A child process that is or was a node. `returncode` is None while it lives; if a signal ended it, it is the
    negative number of that signal."""

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
        """Send a signal that cannot be ignored, and wait until the process has ended."""
        if self.returncode is None:
            os.kill(self.pid, number)
            self._reap()

    def _reap(self) -> int:
        if self.returncode is None:
            _, status = os.waitpid(self.pid, 0)
            self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


def fork_node(options: NodeOptions, output: Path, listener: socket.socket) -> NodeProcess:
    """Start a node as a copy of this process, which must not have threads. The node closes `listener`: if it kept the
    socket open, nodes could still connect to it when the parent is dead, and would wait for answers in vain."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        listener.close()
        _be_a_node(options, output)
    return NodeProcess(pid)


def _be_a_node(options: NodeOptions, path: Path) -> NoReturn:
    """Run the node and leave without the clean-up that belongs to the parent."""
    code = EXIT_INTERNAL
    try:
        nothing = os.open(os.devnull, os.O_RDONLY)
        output = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        for descriptor, source in ((0, nothing), (1, output), (2, output)):
            os.dup2(source, descriptor)
        with logging_to(path, options.log):
            code = _run_logged(options)
    except BaseException:
        os.write(2, unforgeable(traceback.format_exc()).encode())
    finally:
        os._exit(code)


def _run_logged(options: NodeOptions) -> int:
    """Run the node and return its exit code. If it fails, its log says why."""
    try:
        run_node(options)
    except DrumlinError as broken:
        log.error("%s", broken, extra=event(Event.FAILED))
        return broken.exit_code
    except Exception:
        log.exception("failed in a way nobody foresaw", extra=event(Event.BUG))
        return EXIT_INTERNAL
    return EXIT_OK


def start_node(options: NodeOptions, path: Path, lock_fd: int) -> NodeProcess:
    """Start a node as a new program. It inherits the lock on the crawl directory like the others."""
    told = msgspec.json.encode(options, enc_hook=str).decode()
    with path.open("ab") as output:
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__, str(path), told],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=(lock_fd,),
        )
    # `NodeProcess` waits for its end. `subprocess` would warn of a child that it never saw end, so it is told that it
    # did.
    child.returncode = 0
    return NodeProcess(child.pid)


def _be_started(path: str, told: str) -> NoReturn:
    """Be the node that `start_node` starts."""
    options = msgspec.json.decode(told, type=NodeOptions, dec_hook=lambda kind, text: kind(text))
    _be_a_node(options, Path(path))


if __name__ == "__main__":
    _be_started(*sys.argv[1:])
