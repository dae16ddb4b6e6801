"""A coordinator that stores what workers return: once, whatever dies in between."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from drumlin.api.intake.keeping import SEGMENT_AGE_S, Keeper
from drumlin.api.intake.kept import Entry, KeptJournal
from drumlin.api.intake.telling import Telling, ToldResult, telling_of
from drumlin.coordinator.taking.settling import Taken
from drumlin.errors import EngineError, StorageError
from drumlin.protocol import Accepted, Rejected, Results
from drumlin.store import SegmentWriter
from tests.harness.outputs import check_index_matches_tables, check_no_leftovers, check_warcs, query

NOW = 1_790_000_000.0
BODY = b"<title>One</title>one"
HEAD = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n"


class Settlements:
    """A very small dispatcher: the first result of a URL counts, and the same one again is a repetition."""

    def __init__(self) -> None:
        self.captures: dict[str, str] = {}
        self.broken = False

    async def take(self, results: Results) -> Taken:
        if self.broken:
            raise EngineError("Redis is away.")
        rejected, repeated = list[int](), list[int]()
        for place, result in enumerate(results.results):
            if result.url not in self.captures:
                self.captures[result.url] = result.capture_id
            elif self.captures[result.url] == result.capture_id:
                repeated.append(place)
            else:
                rejected.append(place)
        refused = [Rejected(results.results[place].assignment_id, "stale") for place in rejected]
        count = len(results.results) - len(rejected)
        return Taken(Accepted(count, len(rejected), refused, rejected_at=rejected), frozenset(repeated))

    def settling(self, tellings: list[Telling]) -> Callable[[], Awaitable[Taken]]:
        return lambda: self.take(Results([telling.result for telling in tellings]))


def make(store: Path) -> Keeper:
    return Keeper(store, software="test", info={})


def told(number: int = 1, *, status: int = 200, record: bool = False) -> list[Telling]:
    page = {"body": BODY, "response_head": HEAD} if record else {"text_data_url": None}
    assignment = f"w:x.0.0.5ea1/{number}.0.0.5ea1"
    url = f"http://a.example/{number}"
    result = ToldResult(assignment_id=assignment, url=url, status_code=status, crawl_time=NOW + number, **page)
    return [telling_of(result, "w", NOW)]


def die(keeper: Keeper) -> None:
    """What the kernel does for a killed process."""
    if keeper._lock is not None:
        keeper._lock.free()
        keeper._lock = None


async def never() -> Taken:
    raise asyncio.CancelledError


def rows(store: Path) -> list[tuple[str, int]]:
    return [(url, count) for url, count in query(store, "SELECT url, count(*) FROM {pages} GROUP BY url ORDER BY url")]


@pytest.mark.parametrize("record", [False, True])
def test_what_was_acknowledged_is_there_after_a_kill_once(tmp_path: Path, record: bool) -> None:
    async def story() -> None:
        settlements, first = Settlements(), make(tmp_path)
        for number in range(3):
            tellings = told(number, record=record)
            await first.keep(tellings, settlements.settling(tellings), NOW)
        die(first)
        second = make(tmp_path)
        await second.finish_found(settlements.take)
        await second.finish_found(settlements.take)
        await second.close()

    asyncio.run(story())
    assert rows(tmp_path) == [(f"http://a.example/{number}", 1) for number in range(3)]
    check_no_leftovers(tmp_path)
    if record:
        check_warcs(tmp_path)
        check_index_matches_tables(tmp_path)


@pytest.mark.parametrize("settled", [False, True])
@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_kill_before_the_answer_neither_loses_nor_doubles(tmp_path: Path, settled: bool, elsewhere: bool) -> None:
    """A worker that got no answer from the dead coordinator may have sent its result to another."""

    async def story() -> None:
        settlements, first, second = Settlements(), make(tmp_path), make(tmp_path)
        tellings = told(record=True)
        if settled:
            await settlements.settling(tellings)()
        with pytest.raises(asyncio.CancelledError):
            await first.keep(tellings, never, NOW)
        die(first)
        if elsewhere:
            again = told(record=True)
            await second.keep(again, settlements.settling(again), NOW)
        await second.finish_found(settlements.take)
        await second.close()

    asyncio.run(story())
    assert rows(tmp_path) == [("http://a.example/1", 1)]
    check_no_leftovers(tmp_path)
    check_index_matches_tables(tmp_path)


def test_two_that_died_with_the_same_result_leave_it_once(tmp_path: Path) -> None:
    async def story() -> None:
        settlements, dead = Settlements(), [make(tmp_path), make(tmp_path)]
        for keeper in dead:
            with pytest.raises(asyncio.CancelledError):
                await keeper.keep(told(), never, NOW)
        for keeper in dead:
            die(keeper)
        third = make(tmp_path)
        await third.finish_found(settlements.take)

    asyncio.run(story())
    assert rows(tmp_path) == [("http://a.example/1", 1)]
    check_no_leftovers(tmp_path)


def test_while_another_is_settling_the_same_result_a_journal_waits(tmp_path: Path) -> None:
    async def story() -> None:
        settlements, first, second = Settlements(), make(tmp_path), make(tmp_path)
        with pytest.raises(asyncio.CancelledError):
            await first.keep(told(), never, NOW)
        die(first)
        tellings, answered = told(), asyncio.Event()

        async def slowly() -> Taken:
            taken = await settlements.settling(tellings)()
            answered.set()
            await asyncio.sleep(0.2)
            return taken

        keeping = asyncio.create_task(second.keep(tellings, slowly, NOW))
        await answered.wait()
        third = make(tmp_path)
        await third.finish_found(settlements.take)
        assert any(tmp_path.rglob("*.kept"))
        await keeping
        await second.close()
        await third.finish_found(settlements.take)

    asyncio.run(story())
    assert rows(tmp_path) == [("http://a.example/1", 1)]
    check_no_leftovers(tmp_path)


def test_when_the_engine_does_not_answer_the_result_waits_and_is_stored_once(tmp_path: Path) -> None:
    async def story() -> None:
        settlements, keeper = Settlements(), make(tmp_path)
        settlements.broken = True
        tellings = told()
        with pytest.raises(EngineError):
            await keeper.keep(tellings, settlements.settling(tellings), NOW)
        await keeper.step(settlements.take, NOW + 1)
        assert any(tmp_path.rglob("*.kept"))
        settlements.broken = False
        again = told()
        await keeper.keep(again, settlements.settling(again), NOW + 2)
        await keeper.step(settlements.take, NOW + SEGMENT_AGE_S)
        await keeper.step(settlements.take, NOW + 2 * SEGMENT_AGE_S + 2)
        await keeper.close()

    asyncio.run(story())
    assert rows(tmp_path) == [("http://a.example/1", 1)]
    check_no_leftovers(tmp_path)


def test_what_no_table_shows_yet_is_told_by_page_and_by_host_and_nothing_else_is_gone_through(tmp_path: Path) -> None:
    class NotGoneThrough(dict[str, Any]):
        def __iter__(self) -> Iterator[str]:
            raise AssertionError

        items = keys = values = __iter__  # type: ignore[assignment]

    async def story() -> None:
        settlements, keeper = Settlements(), make(tmp_path)
        for number in range(4):
            tellings = told(number)
            await keeper.keep(tellings, settlements.settling(tellings), NOW)
            if number == 1:
                # It is ended, and waits until its tables are made.
                keeper._end_segment()
        for counted in (segment.counted for segment in keeper._unseen()):
            counted._of_page, counted._of_host = NotGoneThrough(counted._of_page), NotGoneThrough(counted._of_host)
        for number in range(4):
            (one,) = keeper.recent_of_page(f"http://a.example/{number}")
            assert (one.url, one.page) == (f"http://a.example/{number}", True)
        assert len(keeper.recent_of_host("a.example")) == 4
        assert keeper.recent_of_page("http://a.example/") == keeper.recent_of_host("b.example") == []
        await keeper.step(settlements.take, NOW + SEGMENT_AGE_S)
        assert keeper.recent_of_host("a.example") == [], "the tables have it"

    asyncio.run(story())


def test_a_few_results_are_seen_after_a_short_while(tmp_path: Path) -> None:
    async def story() -> None:
        settlements, keeper = Settlements(), make(tmp_path)
        tellings = told()
        await keeper.keep(tellings, settlements.settling(tellings), NOW)
        await keeper.step(settlements.take, NOW + 1)
        assert not any(tmp_path.rglob("*.parquet"))
        await keeper.step(settlements.take, NOW + SEGMENT_AGE_S)
        assert rows(tmp_path) == [("http://a.example/1", 1)]

    asyncio.run(story())


def test_a_segment_that_cannot_be_completed_is_made_from_its_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        settlements, keeper = Settlements(), make(tmp_path)
        tellings = told()
        await keeper.keep(tellings, settlements.settling(tellings), NOW)

        def full(writer: SegmentWriter) -> None:
            raise StorageError("Cannot write: the disk is full.")

        with monkeypatch.context() as broken:
            broken.setattr(SegmentWriter, "finish", full)
            await keeper.step(settlements.take, NOW + SEGMENT_AGE_S)
        assert any(tmp_path.rglob("*.kept"))
        await keeper.step(settlements.take, NOW + 2 * SEGMENT_AGE_S)
        await keeper.close()

    asyncio.run(story())
    assert rows(tmp_path) == [("http://a.example/1", 1)]
    check_no_leftovers(tmp_path)


def test_what_cannot_be_written_down_is_not_settled_and_the_next_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        settlements, keeper = Settlements(), make(tmp_path)

        def full(journal: KeptJournal, entries: list[Entry]) -> int:
            raise StorageError("Cannot write: the disk is full.")

        with monkeypatch.context() as broken:
            broken.setattr(KeptJournal, "append", full)
            tellings = told(1, record=True)
            with pytest.raises(StorageError):
                await keeper.keep(tellings, settlements.settling(tellings), NOW)
        assert settlements.captures == {}
        again = told(1, record=True)
        await keeper.keep(again, settlements.settling(again), NOW + 1)
        await keeper.step(settlements.take, NOW + SEGMENT_AGE_S + 1)
        await keeper.close()

    asyncio.run(story())
    assert rows(tmp_path) == [("http://a.example/1", 1)]
    check_no_leftovers(tmp_path)
    check_index_matches_tables(tmp_path)


def test_several_coordinators_of_one_store_have_names_of_their_own(tmp_path: Path) -> None:
    async def story() -> None:
        settlements, keepers = Settlements(), [make(tmp_path) for _ in range(3)]
        for number, keeper in enumerate(keepers):
            tellings = told(number, record=True)
            await keeper.keep(tellings, settlements.settling(tellings), NOW)
        assert len(list((tmp_path / "nodes").glob("coordinator-*"))) == 3
        for keeper in keepers:
            await keeper.close()

    asyncio.run(story())
    assert len(rows(tmp_path)) == 3
    check_no_leftovers(tmp_path)


def test_a_crawl_that_ends_leaves_nobody_at_work_in_the_store(tmp_path: Path) -> None:
    async def story() -> None:
        settlements, keeper = Settlements(), make(tmp_path)
        tellings = told(status=404)
        await keeper.keep(tellings, settlements.settling(tellings), NOW)
        await keeper.step(settlements.take, NOW + 1, ending=True)
        assert keeper._lock is None
        assert rows(tmp_path) == [("http://a.example/1", 1)]

    asyncio.run(story())
