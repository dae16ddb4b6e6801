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
from collections.abc import Callable, Mapping
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec

from drumlin.http.refusal import Refused
from drumlin.protocol.refusals import RefusalCode
from drumlin.store.bundles import VERDICT, Verdict, check_alone

if TYPE_CHECKING:
    from drumlin.lifecycle.removal.counts import Counts
    from drumlin.lifecycle.removal.tombstones import Tombstones

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
    return await _done_alone(check_alone, (folder, segment), folder / VERDICT, Verdict)


async def take_out_removed(folder: Path, members: Mapping[str, Path], removed: Tombstones) -> Counts:
    """Take what was removed on request out of a bundle that was checked; `Refused` when that cannot be done."""
    # It loads what only a crawl needs from which something was removed.
    from drumlin.lifecycle.removal.bundles import TAKEN_OUT, TakenOut, take_out_alone

    done = await _done_alone(take_out_alone, (folder, members, removed), folder / TAKEN_OUT, TakenOut)
    return done.counts


class _Said(Protocol):
    """What a process has written: its answer, or else what is wrong with the bundle."""

    wrong: str


Said = TypeVar("Said", bound=_Said)


async def _done_alone(work: Callable[..., None], arguments: tuple[Any, ...], answer: Path, kind: type[Said]) -> Said:
    """Have a process do something with a bundle, and return what it has written to `answer`."""
    process = _processes.Process(target=work, args=arguments, daemon=True)
    await asyncio.to_thread(process.start)
    code = await _ended(process)
    if code in OWN_FAULTS:
        raise Refused(
            409, RefusalCode.NOT_A_BUNDLE, f"The bundle could not be read: its check ended with signal {-code}."
        )
    said = await asyncio.to_thread(_read, answer, kind) if code == 0 else None
    if said is None:
        message = "The bundle could not be checked just now."
        raise Refused(503, "unchecked", message, "Wait as Retry-After says.", retry_after_s=RETRY_S)
    if said.wrong:
        raise Refused(409, RefusalCode.NOT_A_BUNDLE, f"This is not a bundle that can be stored: {said.wrong}.")
    return said


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


def _read(answer: Path, kind: type[Said]) -> Said | None:
    try:
        if answer.stat().st_size > VERDICT_BYTES_MAX:
            return None
        return msgspec.msgpack.decode(answer.read_bytes(), type=kind)
    except (OSError, msgspec.DecodeError):
        return None
