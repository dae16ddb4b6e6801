"""Bundles are checked in processes of their own: a stranger's bytes can neither end a coordinator nor hold it up.

The processes are forked from a server that has loaded what they need, which costs milliseconds; each checks one bundle.
What a process says is not believed in all: names are looked at again here, and receipts are only checked here, since a
process that reads a stranger's bytes must not have the crawl's secret.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import signal
from multiprocessing.process import BaseProcess
from pathlib import Path

import msgspec

from drumlin.coordinator.bodies import Refused
from drumlin.store.bundles import VERDICT, Verdict, check_alone

CHECK_S_MAX = 300.0
RETRY_S = 30.0
VERDICT_BYTES_MAX = 256 * 1024 * 1024
# What a bundle itself can bring about; anything else, such as a kill for want of memory, may end well the next time.
OWN_FAULTS = frozenset(
    {-signal.SIGSEGV, -signal.SIGABRT, -signal.SIGBUS, -signal.SIGILL, -signal.SIGFPE, -signal.SIGXCPU}
)

_processes = multiprocessing.get_context("forkserver")
# The first is what a process would otherwise load by itself, because it is how this program was started.
_processes.set_forkserver_preload(["drumlin.__main__", "drumlin.store.bundles"])


async def check_bundle(folder: Path, segment: str) -> Verdict:
    """What the bundle in `folder`, which was unpacked there, holds. `Refused` when it cannot be stored."""
    process = _processes.Process(target=check_alone, args=(folder, segment), daemon=True)
    await asyncio.to_thread(process.start)
    code = await _ended(process)
    if code in OWN_FAULTS:
        raise Refused(409, "not_a_bundle", f"The bundle could not be read: its check ended with signal {-code}.")
    verdict = await asyncio.to_thread(_verdict, folder) if code == 0 else None
    if verdict is None:
        message = "The bundle could not be checked just now."
        raise Refused(503, "unchecked", message, "Wait as Retry-After says.", retry_after_s=RETRY_S)
    if verdict.wrong:
        raise Refused(409, "not_a_bundle", f"This is not a bundle that can be stored: {verdict.wrong}.")
    return verdict


async def _ended(process: BaseProcess) -> int:
    """Wait for a process, but not for ever; its exit code."""
    ended, loop = asyncio.Event(), asyncio.get_running_loop()
    loop.add_reader(process.sentinel, ended.set)
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CHECK_S_MAX):
                await ended.wait()
    finally:
        loop.remove_reader(process.sentinel)
        if not ended.is_set():
            process.kill()
        await asyncio.to_thread(process.join)
    return process.exitcode if process.exitcode is not None else -signal.SIGKILL


def _verdict(folder: Path) -> Verdict | None:
    try:
        if (folder / VERDICT).stat().st_size > VERDICT_BYTES_MAX:
            return None
        return msgspec.msgpack.decode((folder / VERDICT).read_bytes(), type=Verdict)
    except (OSError, msgspec.DecodeError):
        return None
