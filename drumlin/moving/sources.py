"""Where a frontier comes from: an engine, or a file. Both tell the same sections in the same order."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Protocol

from drumlin import __version__
from drumlin.engines.base import Engine
from drumlin.engines.kept import Kept, Section, number_of_records
from drumlin.errors import BusyError
from drumlin.lines import one_line
from drumlin.moving.digests import Digest
from drumlin.moving.file import FrontierFile, FrontierWriter, Header

AT_REST_S = 1.0
"""A coordinator tells the engine its time four times a second: if it stood still for so long, none runs."""
RUNNING = (
    "A coordinator runs on this crawl, so it changes all the time.",
    "End all of its coordinators (`drumlin stop` is not enough: they go on running), and repeat.",
)

OnPage = Callable[[Section, int], None]
"""Told of progress: so many records of a section."""


class Source(Protocol):
    """A frontier that is told."""

    header: Header
    name: str
    """Which frontier, at which moment: an import that is made again must come from the same."""
    origin: str
    """What people call it: a file, or an engine."""

    def pages(self, section: Section) -> AsyncIterator[list[Kept]]: ...


class EngineSource:
    """A frontier in an engine."""

    def __init__(self, engine: Engine, header: Header, origin: str = "this crawl") -> None:
        self._engine = engine
        self.header = header
        self.name = f"{header.time!r}"
        self.origin = origin

    def pages(self, section: Section) -> AsyncIterator[list[Kept]]:
        return self._engine.read_kept(section)

    async def check_at_rest(self) -> None:
        """BusyError if a coordinator has begun since the engine was looked at first."""
        if await self._engine.keep_time(0.0) != self.header.time:
            raise BusyError(*RUNNING)


class FileSource:
    """A frontier in a file, all of which is read and checked first."""

    def __init__(self, path: Path) -> None:
        self.file = FrontierFile(path)
        self.ending = self.file.check()
        self.header = self.file.header
        self.name = self.ending.checksum
        self.origin = one_line(str(path))

    async def pages(self, section: Section) -> AsyncIterator[list[Kept]]:
        for page in self.file.pages(section):
            yield page


@contextlib.asynccontextmanager
async def at_rest(engine: Engine, today: float, origin: str = "this crawl") -> AsyncIterator[EngineSource]:
    """An engine on which no coordinator runs; BusyError if one does, or if one has begun when the context ends. People
    call it `origin`."""
    time = await engine.keep_time(0.0)
    if engine.shared:
        await asyncio.sleep(AT_REST_S)
    if await engine.keep_time(0.0) != time:
        raise BusyError(*RUNNING)
    source = EngineSource(engine, Header(__version__, today, engine.shard_count, engine.mark_bits, time), origin)
    yield source
    await source.check_at_rest()


async def export(source: EngineSource, path: Path, on_page: OnPage) -> tuple[Digest, int]:
    """Write a frontier into a file; returns its digest, and the size of the file. If it has changed meanwhile, there is
    no file."""
    digest = Digest(source.header.mark_bits)
    writer = FrontierWriter(path, source.header)
    try:
        for section in Section:
            async for page in source.pages(section):
                writer.write(section, page)
                digest.add(section, page)
                on_page(section, number_of_records(page))
        await source.check_at_rest()
    except BaseException:
        writer.discard()
        raise
    digest.finish()
    return digest, writer.finish()


async def digest_of(source: Source, mark_bits: int, on_page: OnPage) -> Digest:
    """Read a frontier to compare it with another."""
    digest = Digest(mark_bits)
    for section in Section:
        async for page in source.pages(section):
            digest.add(section, page)
            on_page(section, number_of_records(page))
    digest.finish()
    return digest
