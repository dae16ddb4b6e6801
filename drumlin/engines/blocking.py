"""An engine for code that is not asynchronous: the command line, the conformance suite, benchmarks.

Embedded engines never suspend, so that their coroutines end at once; others get an event loop of their own.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from drumlin.engines import open_engine
from drumlin.engines.base import Added, Contents, Engine
from drumlin.model import (
    Content,
    DeadLetter,
    Duplicate,
    HostState,
    HostSummary,
    Lease,
    Preview,
    ShardStats,
    TaskStory,
    Verdict,
)

_Answer = TypeVar("_Answer")
_Run = Callable[[Coroutine[Any, Any, _Answer]], _Answer]


def drive(call: Coroutine[Any, Any, _Answer]) -> _Answer:
    """The answer of a coroutine that never suspends."""
    try:
        call.send(None)
    except StopIteration as ended:
        answer: _Answer = ended.value
        return answer
    call.close()
    raise RuntimeError("This engine waits for something; it needs an event loop.")


class BlockingContents:
    """`base.Contents`, blocking."""

    def __init__(self, contents: Contents, run: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        self._contents = contents
        self._run = run

    def known(self, items: list[tuple[str, bytes]]) -> list[Duplicate | None]:
        answer: list[Duplicate | None] = self._run(self._contents.known(items))
        return answer

    def record(self, contents: list[Content], overlap_min: float) -> list[Duplicate | None]:
        answer: list[Duplicate | None] = self._run(self._contents.record(contents, overlap_min))
        return answer


def _blocking(name: str) -> Any:
    def call(self: BlockingEngine, *arguments: Any, **options: Any) -> Any:
        return self.run(getattr(self.engine, name)(*arguments, **options))

    functools.update_wrapper(call, getattr(Engine, name))
    return call


class BlockingEngine:
    """Every method of `base.Engine`, waiting for its answer. `loop` is given when the engine needs one."""

    add: Callable[..., list[Added]] = _blocking("add")
    lease: Callable[..., list[Lease]] = _blocking("lease")
    visit: Callable[..., Lease | None] = _blocking("visit")
    extend: Callable[..., Lease | None] = _blocking("extend")
    settle: Callable[..., list[list[Verdict]]] = _blocking("settle")
    expire: Callable[..., list[str]] = _blocking("expire")
    release_node: Callable[..., int] = _blocking("release_node")
    strike: Callable[..., bool] = _blocking("strike")
    reprioritise: Callable[..., int] = _blocking("reprioritise")
    add_all: Callable[..., dict[int, list[Added]]] = _blocking("add_all")
    extend_all: Callable[..., list[Lease | None]] = _blocking("extend_all")
    preview: Callable[..., list[Preview]] = _blocking("preview")
    preview_all: Callable[..., dict[int, list[Preview]]] = _blocking("preview_all")
    settle_all: Callable[..., dict[int, list[list[Verdict]]]] = _blocking("settle_all")
    expire_all: Callable[..., list[str]] = _blocking("expire_all")
    release_nodes: Callable[..., int] = _blocking("release_nodes")
    stats_all: Callable[..., list[ShardStats]] = _blocking("stats_all")
    dead_letters: Callable[..., list[DeadLetter]] = _blocking("dead_letters")
    revive: Callable[..., int] = _blocking("revive")
    drop: Callable[..., int] = _blocking("drop")
    story: Callable[..., TaskStory | None] = _blocking("story")
    host_note: Callable[..., bytes] = _blocking("host_note")
    host_state: Callable[..., HostState | None] = _blocking("host_state")
    hosts: Callable[..., list[HostState]] = _blocking("hosts")
    set_delay: Callable[..., None] = _blocking("set_delay")
    hurry: Callable[..., int] = _blocking("hurry")
    stats: Callable[..., ShardStats] = _blocking("stats")
    count: Callable[..., None] = _blocking("count")
    top_hosts: Callable[..., list[HostSummary]] = _blocking("top_hosts")
    get_meta: Callable[..., bytes | None] = _blocking("get_meta")
    put_meta: Callable[..., None] = _blocking("put_meta")
    put_meta_if_absent: Callable[..., bytes] = _blocking("put_meta_if_absent")
    put_entries: Callable[..., None] = _blocking("put_entries")
    get_entries: Callable[..., dict[str, bytes]] = _blocking("get_entries")
    get_entry: Callable[..., bytes | None] = _blocking("get_entry")
    delete_entries: Callable[..., None] = _blocking("delete_entries")
    claim: Callable[..., bool] = _blocking("claim")
    keep_time: Callable[..., float] = _blocking("keep_time")
    check: Callable[..., None] = _blocking("check")
    snapshot: Callable[..., None] = _blocking("snapshot")
    sync: Callable[..., None] = _blocking("sync")

    def __init__(self, engine: Engine, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self.engine = engine
        self.shard_count = engine.shard_count
        self.shard_of = engine.shard_of
        self.contents = BlockingContents(engine.contents, self.run)
        self._loop = loop

    def run(self, call: Coroutine[Any, Any, _Answer]) -> _Answer:
        return self._loop.run_until_complete(call) if self._loop is not None else drive(call)

    def close(self) -> None:
        """Close the engine, and its loop with it. Closing twice is harmless."""
        if self._loop is not None and self._loop.is_closed():
            return
        self.run(self.engine.close())
        if self._loop is not None:
            self._loop.close()


def open_blocking(spec: str, *, shard_count: int | None = None, sync: bool = False) -> BlockingEngine:
    """`open_engine` for code that is not asynchronous."""
    opening = open_engine(spec, shard_count=shard_count, sync=sync)
    if not spec.startswith(("redis:", "rediss:")):
        return BlockingEngine(drive(opening))
    loop = asyncio.new_event_loop()
    try:
        return BlockingEngine(loop.run_until_complete(opening), loop)
    except BaseException:
        loop.close()
        raise
