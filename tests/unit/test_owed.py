"""Pages that were settled and whose bundle never arrived are found, and fetched again."""

from __future__ import annotations

import asyncio
import errno
import json
import random
import threading
from pathlib import Path
from typing import Any

import pytest

from drumlin.cli.main import run
from drumlin.config import CrawlConfig
from drumlin.coordinator.dispatch import Dispatcher
from drumlin.coordinator.taking import owed as owing
from drumlin.coordinator.taking.owed import (
    COUNT_EVERY_S,
    LOOKED_AGO_S_MAX,
    Owed,
    fetch_again,
    note_looked,
    owed_segments,
    owed_urls,
    paid,
)
from drumlin.coordinator.taking.settling import Kept, Prospects
from drumlin.engines import open_engine
from drumlin.engines.memory.engine import MemoryEngine
from drumlin.errors import StorageError
from drumlin.http.refusal import Refused
from drumlin.model import NewURLs, Outcome, Settled, Settlement, TaskState, Verdict
from drumlin.protocol import CrawlState, Register, Result, read_assignment_id
from drumlin.serving import lost_bundles
from drumlin.serving.lost_bundles import LOOK_EVERY_S, LostBundles
from drumlin.store.files import DirectoryFiles

SEGMENT = "n1-1f-00001"
HOST = "a.test"
URLS = [f"http://{HOST}/{number}" for number in range(3)]
LOST_AFTER_S = 600.0


def kept(number: int) -> Kept:
    assignment = f"n1:1.0/{number}.2.0.seal"
    key: Any = read_assignment_id(assignment)
    result = Result(assignment, URLS[number], 200, "", [], 0.0, outcome=Outcome.FETCHED)
    return Kept(number, result, key, HOST, Outcome.FETCHED, b"%d" % number)


async def engine_with_done(done: int) -> MemoryEngine:
    """An engine with all URLs, of which the first so many are done."""
    engine = MemoryEngine(1)
    await engine.add_all({0: [NewURLs(HOST, URLS, depth=2)]}, 1.0)
    [lease] = await engine.lease(0, "n1", "r", 1.0, until=100.0, hosts_max=1, urls_max=done, urls_per_host=done)
    parts = [Settled(task.id, task.url, TaskState.DONE, b"%d" % place) for place, task in enumerate(lease.tasks)]
    await engine.settle_all({0: [Settlement(HOST, lease.lease_id, parts, release=True)]}, 2.0)
    return engine


async def states(engine: MemoryEngine) -> list[str]:
    stories = [await engine.story(0, url) for url in URLS]
    return [story.state if story else "unknown" for story in stories]


async def noted(engine: MemoryEngine) -> None:
    owed = Owed(engine)
    await owed.note(SEGMENT, [kept(0)], 10.0)
    await owed.note(SEGMENT, [kept(1), kept(2)], 20.0)
    # Sent again, as after a lost answer.
    await owed.note(SEGMENT, [kept(1), kept(2)], 21.0)


def test_what_is_owed_is_noted_once_with_its_depth() -> None:
    async def run() -> None:
        engine = MemoryEngine(1)
        await noted(engine)
        [segment] = await owed_segments(engine)
        assert (segment.name, segment.node, segment.since) == (SEGMENT, "n1", 10.0)
        assert sorted(url for url, _ in await owed_urls(engine, SEGMENT)) == URLS
        assert {depth for _, depth in await owed_urls(engine, SEGMENT)} == {kept(0).key.depth}
        await paid(engine, SEGMENT)
        assert (await owed_segments(engine), await owed_urls(engine, SEGMENT)) == ([], [])

    asyncio.run(run())


def test_only_results_that_count_and_are_of_the_segments_node_are_noted() -> None:
    async def run() -> None:
        engine = MemoryEngine(1)
        batch = [kept(0), kept(1), kept(2)]
        prospects = Prospects([Verdict.STALE, Verdict.SETTLED, Verdict.REPEATED], [], {})
        assert prospects.that_count(batch) == [kept(1)]
        await Owed(engine).note("n2-1f-00001", batch, 10.0)
        assert await owed_segments(engine) == []

    asyncio.run(run())


def test_a_segment_is_owed_since_it_was_first_noted_by_whichever_coordinator() -> None:
    async def run() -> None:
        engine = MemoryEngine(1)
        for now in (10.0, 20.0):
            await Owed(engine).note(SEGMENT, [kept(0)], now)
        assert [one.since for one in await owed_segments(engine)] == [10.0]

    asyncio.run(run())


def test_lost_urls_that_are_done_are_queued_again_and_others_are_left_alone() -> None:
    async def run() -> None:
        engine = await engine_with_done(2)
        await noted(engine)
        assert await fetch_again(engine, SEGMENT, 30.0) == 2
        assert await states(engine) == [TaskState.QUEUED] * 3
        # After a kill in the middle it is done once more, and changes nothing.
        await noted(engine)
        assert await fetch_again(engine, SEGMENT, 30.0) == 0
        assert await owed_segments(engine) == []

    asyncio.run(run())


@pytest.mark.parametrize(("arrived", "after_s", "queued"), [(True, 700.0, 0), (False, 700.0, 2), (False, 500.0, 0)])
def test_a_bundle_counts_as_lost_after_its_time_unless_it_has_arrived(
    tmp_path: Path, arrived: bool, after_s: float, queued: int
) -> None:
    if arrived:
        (tmp_path / "tables" / "pages").mkdir(parents=True)
        (tmp_path / "tables" / "pages" / f"{SEGMENT}.parquet").touch()

    async def run() -> None:
        engine = await engine_with_done(2)
        await noted(engine)
        dispatcher = Dispatcher(engine, CrawlConfig(), [], chance=random.Random(1))
        lost = LostBundles(dispatcher, DirectoryFiles(tmp_path), LOST_AFTER_S)
        await lost.tick(10.0 + after_s)
        assert (await states(engine)).count(TaskState.DONE) == 2 - queued
        assert bool(await owed_segments(engine)) == (not arrived and not queued)
        assert dispatcher.nodes.bundles_owed == ((0, 0.0) if arrived else (1, after_s))
        # It is not looked for all the time.
        await lost.tick(10.0 + after_s + LOOK_EVERY_S / 2)

    asyncio.run(run())


def test_a_disk_that_cannot_tell_what_is_there_ends_no_coordinator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stale(path: Path) -> bool:
        raise OSError(errno.ESTALE, "Stale file handle")

    async def run() -> None:
        engine = await engine_with_done(1)
        await noted(engine)
        monkeypatch.setattr(Path, "exists", stale)
        with pytest.raises(StorageError, match="Stale file handle"):
            DirectoryFiles(tmp_path).has_segment(SEGMENT)
        await lost_bundles_of(engine, tmp_path).tick(10_000.0)
        assert len(await owed_segments(engine)) == 1

    asyncio.run(run())


class Hanging(DirectoryFiles):
    """A store that answers when it is told to."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.answers = threading.Event()

    def has_segment(self, segment: str) -> bool:
        self.answers.wait()
        return True


def test_a_store_that_hangs_holds_up_no_coordinator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lost_bundles, "ANSWER_S_MAX", 0.01)

    async def run() -> None:
        engine, store = await engine_with_done(1), Hanging(tmp_path)
        await noted(engine)
        lost = LostBundles(Dispatcher(engine, CrawlConfig(), [], chance=random.Random(1)), store, 600.0)
        try:
            await lost.tick(10_000.0)
            assert await lost.awaits(10_000.0)
        finally:
            store.answers.set()
        assert len(await owed_segments(engine)) == 1
        monkeypatch.setattr(lost_bundles, "ANSWER_S_MAX", 60.0)
        # What it says in the end is heard.
        await lost.tick(10_000.0 + LOOK_EVERY_S)
        assert await owed_segments(engine) == []

    asyncio.run(run())


def lost_bundles_of(engine: MemoryEngine, store: Path) -> LostBundles:
    return LostBundles(Dispatcher(engine, CrawlConfig(), [], chance=random.Random(1)), DirectoryFiles(store), 600.0)


def test_many_lost_bundles_with_few_urls_are_fetched_again_in_one_look(tmp_path: Path) -> None:
    """A node that lies may have named another one with each result."""

    async def run() -> None:
        engine = await engine_with_done(1)
        owed = Owed(engine)
        for serial in range(1_500):
            await owed.note(f"n1-1f-{serial:05}", [kept(0)], 10.0)
        assert await lost_bundles_of(engine, tmp_path).look(10.0 + LOST_AFTER_S) == 1
        assert await owed_segments(engine) == []

    asyncio.run(run())


@pytest.mark.parametrize(("at_once", "left"), [(1, [2, 1, 0]), (2, [1, 0, 0]), (3, [0, 0, 0])])
def test_one_look_goes_through_so_many_urls_also_of_one_bundle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int, left: list[int]
) -> None:
    monkeypatch.setattr(lost_bundles, "LOST_URLS_AT_ONCE_MAX", at_once)
    monkeypatch.setattr(lost_bundles, "BUNDLE_WEIGHT", 1)
    monkeypatch.setattr(owing, "NOTES_AT_ONCE", 2)

    async def run() -> None:
        engine = await engine_with_done(3)
        for number in range(3):
            await Owed(engine).note(SEGMENT, [kept(number)], 10.0)
        lost, seen, again = lost_bundles_of(engine, tmp_path), [], 0
        for _ in left:
            again += await lost.look(10.0 + LOST_AFTER_S)
            seen.append(len(await owed_urls(engine, SEGMENT)))
        assert (seen, again, await owed_segments(engine)) == (left, 3, [])
        assert await states(engine) == [TaskState.QUEUED] * 3

    asyncio.run(run())


def test_a_node_that_owes_too_many_bundles_has_to_wait_until_some_have_arrived(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(owing, "EACH_MAX", 2)

    async def run() -> None:
        engine = MemoryEngine(1)
        await note_looked(engine, 10.0)
        owed, other = Owed(engine), Owed(engine)
        for serial in (1, 2):
            await owed.note(f"n1-1f-{serial:05}", [kept(0)], 10.0)
        for one in (owed, other, owed):
            with pytest.raises(Refused, match="2 bundles of this node have not arrived") as refused:
                await one.note("n1-1f-00003", [kept(1)], 11.0)
            assert (refused.value.status, refused.value.retry_after_s) == (429, COUNT_EVERY_S)
        assert len(await owed_segments(engine)) == 2
        # What it has begun it may complete, so that it can be sent.
        await owed.note("n1-1f-00002", [kept(1)], 12.0)
        await paid(engine, "n1-1f-00001")
        await owed.note("n1-1f-00003", [kept(1)], 10.0 + COUNT_EVERY_S)

    asyncio.run(run())
    # One line of each coordinator, however often the node tries.
    assert caplog.text.count("the node n1 owes 2 bundles") == 2


def test_more_of_a_segment_that_was_given_up_is_noted_with_its_name() -> None:
    """Or else nobody would ever look for it."""

    async def run() -> None:
        engine = MemoryEngine(1)
        owed = Owed(engine)
        await owed.note(SEGMENT, [kept(0)], 10.0)
        await paid(engine, SEGMENT)
        await owed.note(SEGMENT, [kept(1)], 10.0 + COUNT_EVERY_S)
        assert [one.name for one in await owed_segments(engine)] == [SEGMENT]

    asyncio.run(run())


def test_a_segment_has_so_many_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owing, "NOTES_MAX", 2)

    async def run() -> None:
        engine = MemoryEngine(1)
        owed = Owed(engine)
        for number, now in ((0, 10.0), (1, 10.0 + COUNT_EVERY_S)):
            await owed.note(SEGMENT, [kept(number)], now)
        with pytest.raises(Refused, match="batches of one bundle") as refused:
            await owed.note(SEGMENT, [kept(2)], 10.0 + COUNT_EVERY_S)
        assert refused.value.status == 429
        assert len(await owed_urls(engine, SEGMENT)) == 2

    asyncio.run(run())


def test_a_node_that_owes_too_many_bundles_may_still_recover(monkeypatch: pytest.MonkeyPatch) -> None:
    """It sends bundles only after that."""
    monkeypatch.setattr(owing, "EACH_MAX", 1)
    monkeypatch.setattr(owing, "RECOVERED_MAX", 2)

    async def run() -> None:
        engine = MemoryEngine(1)
        await note_looked(engine, 10.0)
        dispatcher = Dispatcher(engine, CrawlConfig(), [], chance=random.Random(1))
        owed = Owed(engine, dispatcher.nodes)
        await dispatcher.register(Register(1.0, "n1"), 10.0, address="")
        await dispatcher.register(Register(1.0, "n2", recovering=True), 10.0, address="")
        await owed.note("n1-1f-00001", [kept(0)], 10.0, "n1")
        with pytest.raises(Refused):
            await owed.note("n1-1f-00002", [kept(1)], 10.0, "n1")
        for serial in (2, 3):
            await owed.note(f"n1-1f-{serial:05}", [kept(1)], 10.0, "n2")
        with pytest.raises(Refused):
            await owed.note("n1-1f-00004", [kept(1)], 10.0, "n2")

    asyncio.run(run())


@pytest.mark.parametrize("looked", [None, 10.0])
def test_no_node_waits_if_nobody_looks_what_has_arrived(monkeypatch: pytest.MonkeyPatch, looked: float | None) -> None:
    """As in a crawl on one machine, or while the store is away."""
    monkeypatch.setattr(owing, "EACH_MAX", 2)

    async def run() -> None:
        engine = MemoryEngine(1)
        if looked is not None:
            await note_looked(engine, looked)
        for serial in range(5):
            await Owed(engine).note(f"n1-1f-{serial:05}", [kept(0)], 11.0 + LOOKED_AGO_S_MAX)
        assert len(await owed_segments(engine)) == 5

    asyncio.run(run())


@pytest.mark.parametrize("there", [True, False])
def test_a_crawl_with_nothing_left_waits_for_bundles_of_nodes_that_are_gone(tmp_path: Path, there: bool) -> None:
    async def run() -> None:
        engine = MemoryEngine(1)
        await noted(engine)
        dispatcher = Dispatcher(engine, CrawlConfig(), [], chance=random.Random(1))
        if there:
            await dispatcher.register(Register(1.0, "n1"), 10.0, address="")
        lost = LostBundles(dispatcher, DirectoryFiles(tmp_path), LOST_AFTER_S)
        # A node that is there sends its bundle when the crawl ends.
        assert await lost.awaits(20.0) is not there
        assert ("(n1)" in dispatcher.nodes.owed) is not there
        (tmp_path / "tables" / "pages").mkdir(parents=True)
        (tmp_path / "tables" / "pages" / f"{SEGMENT}.parquet").touch()
        assert not await lost.awaits(21.0)
        assert dispatcher.nodes.owed == ""

    asyncio.run(run())


async def with_all_done(store: Path) -> tuple[Dispatcher, LostBundles]:
    """A crawl with nothing left to fetch, and a bundle that has not arrived."""
    engine = await engine_with_done(len(URLS))
    await noted(engine)
    dispatcher = Dispatcher(engine, CrawlConfig(), [], chance=random.Random(1))
    await dispatcher.open()
    lost = LostBundles(dispatcher, DirectoryFiles(store), LOST_AFTER_S)

    async def may_end() -> bool:
        return not await lost.awaits(30.0)

    dispatcher.may_end = may_end
    return dispatcher, lost


def test_a_crawl_ends_only_when_nothing_is_awaited_any_more(tmp_path: Path) -> None:
    async def run() -> None:
        dispatcher, _ = await with_all_done(tmp_path)
        states = []
        for now in (30.0, 31.0):
            await dispatcher.tick(now, now)
            states.append(dispatcher.state)
            await paid(dispatcher.engine, SEGMENT)
        assert states == [CrawlState.RUNNING, CrawlState.FINISHED]

    asyncio.run(run())


def test_a_node_that_came_back_with_an_empty_disk_does_not_end_a_crawl(tmp_path: Path) -> None:
    async def run() -> None:
        dispatcher, lost = await with_all_done(tmp_path)
        await dispatcher.register(Register(1.0, "n1"), 29.0, address="")
        states = []
        for now in (30.0, 31.0, 32.0):
            await dispatcher.tick(now, now)
            await lost.tick(now)
            states.append(dispatcher.state)
            if now == 31.0:
                # Until then it may have been sending its last bundles.
                await dispatcher.leave("n1", now)
        assert states == [CrawlState.FINISHED, CrawlState.FINISHED, CrawlState.RUNNING]
        assert "(n1)" in dispatcher.nodes.owed
        await dispatcher.tick(33.0, 33.0)
        assert dispatcher.state is CrawlState.RUNNING

    asyncio.run(run())


def checked(capsys: pytest.CaptureFixture[str], place: Path, *arguments: str) -> tuple[int, Any, str]:
    code = run(["store", "check", "--engine", f"rocksdb:{place / 'frontier'}", "--json", *arguments])
    said = capsys.readouterr()
    return code, json.loads(said.out) if said.out else None, said.err


def test_a_check_tells_of_what_is_new_and_gives_up_a_node_that_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def fill(*, there: bool) -> None:
        engine = await open_engine(f"rocksdb:{tmp_path / 'frontier'}")
        await engine.keep_time(20.0)
        await Owed(engine).note(SEGMENT, [kept(0)], 19.0)
        dispatcher = Dispatcher(engine, CrawlConfig(), [], chance=random.Random(1))
        await dispatcher.register(Register(1.0, "n1"), 10.0, address="")
        if not there:
            await dispatcher.nodes.lose_all(engine)
        await engine.close()

    asyncio.run(fill(there=True))
    store = ("--store", str(tmp_path))
    assert checked(capsys, tmp_path, *store, "--node", "n1")[0] != 0
    asyncio.run(fill(there=False))
    code, told, _ = checked(capsys, tmp_path, *store)
    assert (code, told["lost"], told["awaited"]) == (0, {}, 1)
    for wrong, said in {
        ("--store", str(tmp_path / "typo")): "There is no store",
        (*store, "--node", "n2"): "no node n2",
    }.items():
        code, told, error = checked(capsys, tmp_path, *wrong)
        assert (code != 0, told, said in error) == (True, None, True)
    code, told, _ = checked(capsys, tmp_path, *store, "--node", "n1", "--refetch")
    assert (code, told["lost"], told["awaited"]) == (0, {SEGMENT: 1}, 0)
