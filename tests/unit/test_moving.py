"""A frontier in a file and out of it again: exact, refused where it is damaged, and resumed where it was broken off."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
import zstandard
from xxhash import xxh3_128_digest

from drumlin.engines import open_engine
from drumlin.engines.base import Engine
from drumlin.engines.blocking import BlockingEngine
from drumlin.engines.conformance.moving import MovingConformance
from drumlin.engines.kept import CLOSED_KEY, MARK_BYTES, PAGE, Kept, KeptDone, Section
from drumlin.engines.memory.engine import MemoryEngine
from drumlin.errors import BusyError, ConfigError, EngineError, StorageError
from drumlin.local.moving import restore
from drumlin.model import NewURLs
from drumlin.moving.file import MAGIC, FrontierFile, FrontierWriter, Header
from drumlin.moving.filling import SHARD_BUFFERED_MAX, compare, fill, finish
from drumlin.moving.sources import FileSource, at_rest, export
from drumlin.store.frames import decompressed, framed

TODAY = 1_800_000_000.0
TIME = 250.5


def passed(section: Section, records: int) -> None:
    """Nobody watches."""


def populated(shard_count: int = 4) -> MemoryEngine:
    engine = MemoryEngine(shard_count)
    blocking = BlockingEngine(engine)
    MovingConformance().populate(blocking)
    blocking.keep_time(TIME)
    return engine


async def written(engine: Engine, path: Path) -> FileSource:
    async with at_rest(engine, TODAY) as source:
        await export(source, path, passed)
    return FileSource(path)


async def imported(source: FileSource, engine: Engine) -> list[str]:
    await fill(engine, source, passed)
    _, different = await compare(source, engine, passed)
    await finish(engine, source)
    return different


@pytest.mark.parametrize("shards", [1, 3, 4])
def test_what_is_exported_and_imported_is_the_same(tmp_path: Path, shards: int) -> None:
    async def move() -> None:
        source = await written(populated(), tmp_path / "frontier")
        rocks = await open_engine(f"rocksdb:{tmp_path / 'rocks'}", shard_count=shards)
        try:
            assert await imported(source, rocks) == []
            assert await rocks.keep_time(0.0) == TIME
            again = await written(rocks, tmp_path / "again")
            assert again.ending.records == source.ending.records
            memory = MemoryEngine(2)
            assert await imported(again, memory) == []
            assert (await compare(source, memory, passed))[1] == []
        finally:
            await rocks.close()

    asyncio.run(move())


class Watched(MemoryEngine):
    """Notes how many URLs each step of an import brings."""

    def __init__(self, shard_count: int) -> None:
        super().__init__(shard_count)
        self.brought: list[int] = []

    async def fill(self, shard: int, step: int, kept: Sequence[Kept], now: float) -> None:
        self.brought.append(sum(one.urls for one in kept if isinstance(one, KeptDone)))
        await super().fill(shard, step, kept, now)


def test_records_with_many_urls_do_not_pile_up_in_memory(tmp_path: Path) -> None:
    async def move() -> list[int]:
        crawled = MemoryEngine(1)
        for number in range(40):
            marks = b"".join(hash_of(f"{number}/{place}") for place in range(400))
            await crawled.fill(0, number + 1, [KeptDone(f"h{number}.test", 0, MARK_BYTES, marks)], TIME)
        await crawled.keep_time(TIME)
        engine = Watched(2)
        assert await imported(await written(crawled, tmp_path / "frontier"), engine) == []
        return engine.brought

    brought = asyncio.run(move())
    assert sum(brought) == 40 * 400
    assert max(brought) < SHARD_BUFFERED_MAX + PAGE


def hash_of(text: str) -> bytes:
    return xxh3_128_digest(text.encode())


def test_a_single_difference_is_found(tmp_path: Path) -> None:
    async def look() -> None:
        source = await written(populated(), tmp_path / "frontier")
        engine = populated()
        assert (await compare(source, engine, passed))[1] == []
        shard = engine.shard_of("c.example")
        await engine.reprioritise(shard, [("http://c.example/3", 6)])
        assert (await compare(source, engine, passed))[1] == ["the queued URLs, or their order"]
        await engine.add(shard, [NewURLs("c.example", ["http://c.example/new"])], 300.0)
        counted = (await compare(source, engine, passed))[1]
        hosts = "what is known of the hosts (delays, times of contact, robots.txt)"
        assert counted == [hosts, "queued URLs (120 and 121)"]

    asyncio.run(look())


def test_a_file_that_was_cut_or_changed_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    path = tmp_path / "frontier"
    asyncio.run(written(populated(), path))
    whole = path.read_bytes()
    for damaged in (whole[:-1], whole[: len(whole) // 2], whole[:9000] + bytes((whole[9000] ^ 1,)) + whole[9001:]):
        path.write_bytes(damaged)
        with pytest.raises(StorageError, match="damaged or incomplete"):
            FileSource(path)
    path.write_bytes(b"something else")
    with pytest.raises(ConfigError, match="no queue that was exported"):
        FileSource(path)
    path.write_bytes(b"drumlin-frontier 9\n" + whole)
    with pytest.raises(ConfigError, match="another version"):
        FileSource(path)


def test_a_file_is_readable_by_its_owner_alone_since_it_has_the_crawls_secret(tmp_path: Path) -> None:
    asyncio.run(written(populated(), tmp_path / "frontier"))
    assert (tmp_path / "frontier").stat().st_mode & 0o777 == 0o600


def test_what_claims_to_be_an_export_is_refused_in_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "frontier"
    path.write_bytes(MAGIC + framed(b'H{"made": 1}'))
    with pytest.raises(StorageError, match="is damaged"):
        FileSource(path)
    with pytest.raises(ValueError, match="are packed into"):
        decompressed(zstandard.compress(bytes(1 << 20)), 1 << 19)
    for done in (("a", 0, 0, b""), ("a", 0, 16, b"short"), ("a", 0, 7, b"7 bytes", [1, 2], [b""])):
        with pytest.raises(msgspec.ValidationError):
            msgspec.msgpack.decode(msgspec.msgpack.encode(done), type=KeptDone)


def test_a_crawl_that_was_moved_is_not_restored(tmp_path: Path) -> None:
    """It goes on elsewhere, so it would run twice."""

    async def run() -> None:
        engine = await open_engine(f"rocksdb:{tmp_path / 'frontier'}", shard_count=1)
        await engine.snapshot("before")
        assert (tmp_path / "checkpoints").stat().st_mode & 0o777 == 0o700
        await engine.put_meta(CLOSED_KEY, b"This crawl was moved to redis://a/b.\nGo on there.\nredis://a/b")
        await engine.close()
        with pytest.raises(EngineError, match="was moved to redis://a/b"):
            await restore(tmp_path, "before")

    asyncio.run(run())


class _Breaks(MemoryEngine):
    """Fails at one of its steps."""

    left = -1

    async def fill(self, shard: int, step: int, kept: Sequence[Kept], now: float) -> None:
        self.left -= 1
        if self.left == 0:
            raise ConnectionError
        await super().fill(shard, step, kept, now)


def test_an_import_that_was_broken_off_goes_on_and_nobody_else_may_use_it_before(tmp_path: Path) -> None:
    async def break_off() -> None:
        source = await written(populated(), tmp_path / "frontier")
        other = await written(MemoryEngine(1), tmp_path / "other")
        engine = _Breaks(2)
        for left in range(2, 7):
            engine.left = left
            with pytest.raises(ConnectionError):
                await fill(engine, source, passed)
            # Whoever comes with something else is told what was broken off, and what to do.
            with pytest.raises(
                EngineError, match=r"half filled: copying \S+/frontier was broken off. Repeat the command"
            ):
                await fill(engine, other, passed)
            other.origin = source.origin
            with pytest.raises(EngineError, match=r"frontier has changed since .* Choose an empty place"):
                await fill(engine, other, passed)
            other.origin = "other"
        engine.left = -1
        assert await imported(source, engine) == []
        with pytest.raises(BusyError, match=r"frontier was copied to This engine before. Use it there."):
            await fill(engine, source, passed)
        with pytest.raises(BusyError, match=r"has a crawl already. Choose an empty place"):
            await fill(engine, other, passed)

    asyncio.run(break_off())


def test_a_half_imported_frontier_cannot_be_opened(tmp_path: Path) -> None:
    async def look() -> None:
        source = await written(populated(), tmp_path / "frontier")
        place = f"rocksdb:{tmp_path / 'rocks'}"
        rocks = await open_engine(place)
        await fill(rocks, source, passed)
        await rocks.close()
        with pytest.raises(EngineError, match="half filled"):
            await open_engine(place)
        rocks = await open_engine(place, closed=True)
        await finish(rocks, source)
        await rocks.close()
        await (await open_engine(place)).close()

    asyncio.run(look())


def test_an_engine_with_a_crawl_is_not_filled(tmp_path: Path) -> None:
    async def look() -> None:
        source = await written(populated(), tmp_path / "frontier")
        engine = MemoryEngine(1)
        await engine.put_meta("secret", b"made before")
        with pytest.raises(BusyError, match="not empty: something was set"):
            await fill(engine, source, passed)

    asyncio.run(look())


def test_a_frontier_on_which_a_coordinator_runs_is_not_exported() -> None:
    async def look() -> None:
        engine = populated()
        with pytest.raises(BusyError, match="A coordinator runs"):
            async with at_rest(engine, TODAY):
                await engine.keep_time(TIME + 1)

    asyncio.run(look())


def test_of_two_exports_into_one_file_the_second_is_refused(tmp_path: Path) -> None:
    async def twice() -> None:
        path, engine = tmp_path / "frontier", populated()
        writing = FrontierWriter(path, Header("1", TODAY, 4, 128, TIME))
        with pytest.raises(BusyError, match="Another process is writing"):
            await written(engine, path)
        # The first one is not disturbed, and what a killed one has left is in nobody's way.
        writing.finish()
        FrontierFile(path).check()
        path.with_name("frontier.partial").write_bytes(b"left")
        assert (await written(engine, path)).ending.records
        assert [one.name for one in tmp_path.iterdir()] == ["frontier"]

    asyncio.run(twice())


def test_no_file_is_left_of_a_frontier_that_changes_while_it_is_exported(tmp_path: Path) -> None:
    async def change() -> None:
        engine = populated()

        def go_on(section: Section, records: int) -> None:
            BlockingEngine(engine).keep_time(TIME + 1)

        with pytest.raises(BusyError, match="A coordinator runs"):
            async with at_rest(engine, TODAY) as source:
                await export(source, tmp_path / "frontier", go_on)

    asyncio.run(change())
    assert list(tmp_path.iterdir()) == []
