"""Asks a question of somebody on the network, in a process of its own (`answerer.py`) that lives for this question
only.

The process is started without a shell, with nothing of our environment and none of our files; it gives up by itself all
that it does not need. Here its time is bounded, and the length of what it says; and it is ended if nobody waits for the
answer any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any, Final

import msgspec

from drumlin.sql.answerer import BAD_SQL, NO_LIMITS, NOT_CONFINED, TOO_MUCH, Found, Order, Wrong
from drumlin.sql.database import SENTENCE_CHARS_MAX

ROWS_MAX: Final = 100_000
ANSWER_BYTES_MAX: Final = 16 * 1024 * 1024
SECONDS_MAX: Final = 20.0
GONE_EVERY_S: Final = 0.2
"""How often it is looked whether somebody still waits."""
TOO_SLOW: Final = "too_slow"
# Libraries would otherwise start threads at once, which could not be confined any more, and reserve a gigabyte.
ENVIRONMENT: Final = {
    "OPENBLAS_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
    "ARROW_DEFAULT_MEMORY_POOL": "system",
}
KEPT: Final = ("PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH")
"""Where Python and its libraries are, on a machine that has them in odd places. Nothing else of our environment is
passed on."""
_PIECE_BYTES: Final = 64 * 1024


async def ask(
    tables: Path,
    sql: str,
    rows_max: int,
    is_awaited: Callable[[], bool],
    *,
    packed: bool = False,
    seconds_max: float = SECONDS_MAX,
) -> Found | Wrong:
    """The answer to a question about the tables in this folder, with its rows as JSON, or `packed` as MessagePack. It
    is given up when `is_awaited` says that nobody wants it."""
    order = Order(sql, min(rows_max, ROWS_MAX), ANSWER_BYTES_MAX, packed)
    async with _process(tables) as process:
        try:
            async with asyncio.timeout(seconds_max):
                said = await _while_awaited(_talk(process, msgspec.json.encode(order)), is_awaited)
        except TimeoutError:
            return Wrong(TOO_SLOW, f"The answer was not there within {seconds_max:.0f} s.", NO_LIMITS)
    return _read(said, msgspec.msgpack.decode if packed else msgspec.json.decode)


def _read(said: bytes, decode: Callable[..., Any]) -> Found | Wrong:
    """What the process said. It is not believed to keep to any bounds."""
    try:
        found: Found | Wrong = decode(said, type=Found | Wrong)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return Wrong(TOO_MUCH, "The process failed; the answer may take more memory than it may have.", NO_LIMITS)
    if isinstance(found, Found):
        return found
    code = found.code if found.code in (BAD_SQL, NOT_CONFINED, TOO_MUCH) else BAD_SQL
    return Wrong(code, found.message[:SENTENCE_CHARS_MAX], found.hint[:SENTENCE_CHARS_MAX])


@contextlib.asynccontextmanager
async def _process(tables: Path) -> AsyncIterator[Process]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-B", "-P", "-m", "drumlin.sql.answerer", str(tables.absolute())),
        stdin=PIPE,
        stdout=PIPE,
        stderr=DEVNULL,
        env=ENVIRONMENT | {name: os.environ[name] for name in KEPT if name in os.environ},
        cwd="/",
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            # Not by `process.kill`: if the process has just ended, that would take its exit code away from asyncio,
            # which would then warn.
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
        await process.wait()


async def _talk(process: Process, order: bytes) -> bytes:
    """Send the question and read what is said, within bounds: the process is not believed about those."""
    if process.stdin is None or process.stdout is None:
        return b""
    with contextlib.suppress(ConnectionError):
        process.stdin.write(order)
        await process.stdin.drain()
        process.stdin.close()
    said = bytearray()
    while piece := await process.stdout.read(_PIECE_BYTES):
        said += piece
        if len(said) > 2 * ANSWER_BYTES_MAX:
            return b""
    return bytes(said)


async def _while_awaited(talk: Coroutine[Any, Any, bytes], is_awaited: Callable[[], bool]) -> bytes:
    """What is said, unless nobody wants to hear it any more: then nothing."""
    talking = asyncio.ensure_future(talk)
    try:
        while is_awaited():
            done, _ = await asyncio.wait([talking], timeout=GONE_EVERY_S)
            if done:
                return talking.result()
        return b""
    finally:
        talking.cancel()
