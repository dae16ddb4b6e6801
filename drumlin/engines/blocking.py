"""An engine for code that is not asynchronous: the command line, the conformance suite, benchmarks.

Embedded engines never suspend, so their coroutines end at the first step; other engines get an event loop.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

from drumlin.engines import open_engine
from drumlin.engines.base import Added, Engine
from drumlin.engines.kept import Kept, Section
from drumlin.model import Content, Duplicate, NewURLs, Preview, Settlement, ShardStats, Verdict

_Answer = TypeVar("_Answer")
_Asked = ParamSpec("_Asked")


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

    def __init__(self, engine: BlockingEngine) -> None:
        self._contents = engine.engine.contents
        self._engine = engine

    def known(self, items: Sequence[tuple[str, bytes]]) -> list[Duplicate | None]:
        return self._engine.run(self._contents.known(items))

    def record(self, contents: Sequence[Content], overlap_min: float) -> list[Duplicate | None]:
        return self._engine.run(self._contents.record(contents, overlap_min))

    def adopt(self, contents: Sequence[Content]) -> None:
        self._engine.run(self._contents.adopt(contents))


def _blocking(
    method: Callable[Concatenate[Engine, _Asked], Coroutine[Any, Any, _Answer]],
) -> Callable[Concatenate[BlockingEngine, _Asked], _Answer]:
    """The method of the same name, arguments and answer that waits. It is looked up in the engine at each call."""
    name = method.__name__

    def call(self: BlockingEngine, /, *arguments: _Asked.args, **options: _Asked.kwargs) -> _Answer:
        answer: _Answer = self.run(getattr(self.engine, name)(*arguments, **options))
        return answer

    functools.update_wrapper(call, method)
    return call


class BlockingEngine:
    """The methods of `base.Engine`, made blocking, and some for one shard. Engines that suspend need a `loop`."""

    lease = _blocking(Engine.lease)
    visit = _blocking(Engine.visit)
    forget = _blocking(Engine.forget)
    strike = _blocking(Engine.strike)
    reprioritise = _blocking(Engine.reprioritise)
    add_all = _blocking(Engine.add_all)
    extend_all = _blocking(Engine.extend_all)
    preview_all = _blocking(Engine.preview_all)
    settle_all = _blocking(Engine.settle_all)
    expire_all = _blocking(Engine.expire_all)
    release_nodes = _blocking(Engine.release_nodes)
    stats_all = _blocking(Engine.stats_all)
    dead_letters_all = _blocking(Engine.dead_letters_all)
    dead_groups_all = _blocking(Engine.dead_groups_all)
    revive = _blocking(Engine.revive)
    drop = _blocking(Engine.drop)
    forget_done = _blocking(Engine.forget_done)
    story = _blocking(Engine.story)
    host_note = _blocking(Engine.host_note)
    host_state = _blocking(Engine.host_state)
    hosts = _blocking(Engine.hosts)
    find_hosts_all = _blocking(Engine.find_hosts_all)
    set_delay = _blocking(Engine.set_delay)
    hurry = _blocking(Engine.hurry)
    count = _blocking(Engine.count)
    top_hosts = _blocking(Engine.top_hosts)
    get_meta = _blocking(Engine.get_meta)
    put_meta = _blocking(Engine.put_meta)
    put_meta_if_absent = _blocking(Engine.put_meta_if_absent)
    put_entries = _blocking(Engine.put_entries)
    get_entries = _blocking(Engine.get_entries)
    last_entries = _blocking(Engine.last_entries)
    get_entry = _blocking(Engine.get_entry)
    delete_entries = _blocking(Engine.delete_entries)
    claim = _blocking(Engine.claim)
    keep_time = _blocking(Engine.keep_time)
    check = _blocking(Engine.check)
    fill = _blocking(Engine.fill)
    remove = _blocking(Engine.remove)
    rewrite = _blocking(Engine.rewrite)
    remove_contents = _blocking(Engine.remove_contents)
    expunge = _blocking(Engine.expunge)
    snapshot = _blocking(Engine.snapshot)

    def __init__(self, engine: Engine, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self.engine = engine
        self.shard_count = engine.shard_count
        self.shard_of = engine.shard_of
        self.contents = BlockingContents(self)
        self._loop = loop

    def run(self, call: Coroutine[Any, Any, _Answer]) -> _Answer:
        return self._loop.run_until_complete(call) if self._loop is not None else drive(call)

    def read_kept(self, section: Section) -> Iterator[list[Kept]]:
        told = self.engine.read_kept(section)

        async def turn_page() -> list[Kept] | None:
            return await anext(told, None)

        while page := self.run(turn_page()):
            yield page

    # One shard

    def add(self, shard: int, found: Sequence[NewURLs], now: float, *, host_urls_max: int | None = None) -> list[Added]:
        return self.add_all({shard: found}, now, host_urls_max=host_urls_max)[shard]

    def settle(self, shard: int, settlements: Sequence[Settlement], now: float) -> list[list[Verdict]]:
        return self.settle_all({shard: settlements}, now)[shard]

    def preview(self, shard: int, settlements: Sequence[Settlement]) -> list[Preview]:
        return self.preview_all({shard: settlements})[shard]

    def stats(self, shard: int, now: float) -> ShardStats:
        return self.stats_all(now)[shard]

    def close(self) -> None:
        """Close the engine, and its loop with it. Closing twice is harmless."""
        if self._loop is not None and self._loop.is_closed():
            return
        self.run(self.engine.close())
        if self._loop is not None:
            self._loop.close()


def open_blocking(
    spec: str, *, shard_count: int | None = None, read_only: bool = False, closed: bool = False, founds: bool = True
) -> BlockingEngine:
    """`open_engine` for code that is not asynchronous."""
    opening = open_engine(spec, shard_count=shard_count, read_only=read_only, closed=closed, founds=founds)
    if not spec.startswith(("redis:", "rediss:")):
        return BlockingEngine(drive(opening))
    loop = asyncio.new_event_loop()
    try:
        return BlockingEngine(loop.run_until_complete(opening), loop)
    except BaseException:
        loop.close()
        raise
