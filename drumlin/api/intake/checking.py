"""Each bundle is checked in its own process, so a stranger's bytes can neither crash a coordinator nor hold it up.

The processes are forked from a server process that has loaded what they need, which costs milliseconds. A bundle might
take over the process that checks it, so its verdict is not fully believed: names are checked again here. Receipts are
checked only here, because a process that reads a stranger's bytes must not have the crawl's secret.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import signal
from multiprocessing.process import BaseProcess
from pathlib import Path

import msgspec

from drumlin.http.refusal import Refused
from drumlin.protocol.refusals import RefusalCode
from drumlin.store.bundles import VERDICT, Verdict, check_alone

CHECK_S_MAX = 300.0
RETRY_S = 30.0
VERDICT_BYTES_MAX = 256 * 1024 * 1024
# Signals that a bundle itself can cause. After any other, such as a kill when memory is short, the next try may work.
OWN_FAULTS = frozenset(
    {-signal.SIGSEGV, -signal.SIGABRT, -signal.SIGBUS, -signal.SIGILL, -signal.SIGFPE, -signal.SIGXCPU}
)

_processes = multiprocessing.get_context("forkserver")
# Each process would otherwise import the first module by itself, because it is the program's main module.
_processes.set_forkserver_preload(["drumlin.__main__", "drumlin.store.bundles"])


async def check_bundle(folder: Path, segment: str) -> Verdict:
    """Check the bundle in `folder` and return what it holds; `Refused` when it cannot be stored."""
    process = _processes.Process(target=check_alone, args=(folder, segment), daemon=True)
    await asyncio.to_thread(process.start)
    code = await _ended(process)
    if code in OWN_FAULTS:
        raise Refused(
            409, RefusalCode.NOT_A_BUNDLE, f"The bundle could not be read: its check ended with signal {-code}."
        )
    verdict = await asyncio.to_thread(_verdict, folder) if code == 0 else None
    if verdict is None:
        message = "The bundle could not be checked just now."
        raise Refused(503, "unchecked", message, "Wait as Retry-After says.", retry_after_s=RETRY_S)
    if verdict.wrong:
        raise Refused(409, RefusalCode.NOT_A_BUNDLE, f"This is not a bundle that can be stored: {verdict.wrong}.")
    return verdict


async def _ended(process: BaseProcess) -> int:
    """Wait for a process for at most `CHECK_S_MAX`, then kill it; returns its exit code."""
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
