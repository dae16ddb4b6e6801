"""A removal is alone: no other one, no run of retention and no new hold come meanwhile, and others hear of it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from drumlin.engines.base import Engine
from drumlin.engines.blocking import drive
from drumlin.engines.kept import CLOSED_KEY, Kept, Section
from drumlin.engines.memory.engine import MemoryEngine
from drumlin.errors import BusyError, ConfigError
from drumlin.lifecycle.book import (
    BEGUN,
    REMOVAL,
    Book,
    DirectoryBook,
    Order,
    Signature,
    add_hold,
    begin_removal,
    begin_run,
    end_removal,
    end_run,
)
from drumlin.lifecycle.holds import Holds, make_hold
from drumlin.lifecycle.removal.counts import Counts
from drumlin.lifecycle.removal.directory import Directory
from drumlin.lifecycle.removal.targets import Targets
from drumlin.lifecycle.removal.tombstones import Tombstones, with_key
from drumlin.local import one_removal, removing
from drumlin.local.removing import Place, check_may_go
from drumlin.store.files import DirectoryFiles
from drumlin.store.ledger import Ledger, LedgerLine
from drumlin.store.ledger import Moved as Elsewhere
from tests.unit.test_removal import targets

STEP_S_MAX = 10.0


def test_a_hold_comes_before_a_removal_or_after_it_but_not_meanwhile(tmp_path: Path) -> None:
    book, who = DirectoryBook(tmp_path), Signature("me", "me", 1.0)
    begin_removal(book, who, "host:1234", lambda holds: None)
    with pytest.raises(BusyError, match="could come too late"):
        add_hold(book, who, make_hold("case", "a reason", "me", 1.0))
    end_removal(book, who, "host:1234")
    add_hold(book, who, make_hold("case", "a reason", "me", 1.0))

    def refuse(holds: Holds) -> None:
        assert not holds.all, "held"

    with pytest.raises(AssertionError, match="held"):
        begin_removal(book, who, "host:1234", refuse)
    add_hold(book, who, make_hold("other case", "a reason", "me", 1.0))


def run_of(name: str) -> Signature:
    return Signature(name, "root", 1.0)


def remove_something(book: Book) -> None:
    """Begin a removal and end it."""
    begin_removal(book, run_of("remover"), "host:1234", lambda holds: None)
    end_removal(book, run_of("remover"), "host:1234")


def test_a_removal_waits_for_retention_and_retention_for_a_removal(tmp_path: Path) -> None:
    book = DirectoryBook(tmp_path)
    begin_run(book, run_of("alice"), "")
    with pytest.raises(BusyError, match="Retention is under way, or was broken off") as busy:
        remove_something(book)
    assert "`drumlin retention apply` ends it" in busy.value.hint
    with pytest.raises(BusyError, match="Retention is under way, or was broken off"):
        check_may_go(*not_held(tmp_path))
    end_run(book, run_of("alice"), "")
    check_may_go(*not_held(tmp_path))
    begin_removal(book, run_of("remover"), "host:1234", lambda holds: None)
    with pytest.raises(BusyError, match="retention could move what it has to remove"):
        begin_run(book, run_of("alice"), "")


def not_held(root: Path) -> tuple[Place, DirectoryFiles, Targets]:
    return Place("rocksdb:x", str(root)), DirectoryFiles(root), targets()


def test_what_retention_moved_just_before_a_removal_begins_refuses_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is looked for again when no run can begin any more; until then nothing was changed or noted."""

    async def moved_meanwhile(engine: Engine, candidate: bytes) -> Tombstones:
        Ledger(tmp_path).append(LedgerLine(1.0, "warc", "x", moved=[Elsewhere("warc/x.warc.gz", "/cold", 1, "", 1.0)]))
        return await with_key(engine, candidate)

    monkeypatch.setattr("drumlin.local.removing.with_key", moved_meanwhile)
    place, engine = not_held(tmp_path)[0], MemoryEngine(1)
    with pytest.raises(ConfigError, match="were moved to /cold"):
        asyncio.run(removing._remove(place, engine, targets(), 1.0, resumed=False, dry_run=False, by="me"))
    assert drive(engine.get_meta(CLOSED_KEY)) is None
    begin_run(DirectoryBook(tmp_path), run_of("alice"), "")


def test_a_killed_run_is_ended_by_the_end_of_a_later_one(tmp_path: Path) -> None:
    book = DirectoryBook(tmp_path)
    begin_run(book, run_of("killed"), "")
    begin_run(book, run_of("later"), "")
    end_run(book, run_of("later"), "")
    remove_something(book)


@pytest.mark.parametrize("other", ["earlier", "without steps"])
def test_a_run_at_work_is_not_ended_by_the_end_of_another(tmp_path: Path, other: str) -> None:
    """One that began earlier, or one that found nothing to do and so never said that it began."""
    book = DirectoryBook(tmp_path)
    begin_run(book, run_of("earlier"), "")
    begin_run(book, run_of("at work"), "")
    end_run(book, run_of(other), "")
    with pytest.raises(BusyError, match="Retention is under way"):
        remove_something(book)


def test_a_removal_that_goes_on_does_not_wait_for_a_run_that_waits_for_it(tmp_path: Path) -> None:
    """An earlier version let both begin. Neither could ever end if each waited for the other."""
    book = DirectoryBook(tmp_path)
    begin_run(book, run_of("killed"), "")
    book.add(lambda _: Order(1.0, "remover", "root", REMOVAL, name="host:1234", outcome=BEGUN))
    check_may_go(*not_held(tmp_path))
    remove_something(book)


# Beside other removals


@pytest.fixture
def shared_engine(monkeypatch: pytest.MonkeyPatch) -> MemoryEngine:
    """An engine that removals on several machines reach, and removals that look at each other for less long."""
    monkeypatch.setattr(one_removal, "BEAT_S", 0.01)
    monkeypatch.setattr(one_removal, "BEATS_SEEN_S", 0.1)
    engine = MemoryEngine()
    monkeypatch.setattr(engine, "shared", True)
    return engine


def test_a_second_removal_on_another_machine_waits_for_the_first(shared_engine: MemoryEngine) -> None:
    async def scene() -> None:
        async with one_removal.only_one(shared_engine):
            with pytest.raises(BusyError, match="at work"):
                async with one_removal.only_one(shared_engine):
                    raise AssertionError("two at once")
        async with one_removal.only_one(shared_engine):
            pass

    asyncio.run(scene())


def test_of_two_removals_that_begin_at_once_one_goes_on(shared_engine: MemoryEngine) -> None:
    async def at_work(until: asyncio.Event) -> None:
        async with one_removal.only_one(shared_engine):
            await until.wait()

    async def scene() -> None:
        done = asyncio.Event()
        both = [asyncio.create_task(at_work(done)) for _ in range(2)]
        [refused], _ = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        assert isinstance(refused.exception(), BusyError)
        done.set()
        assert (await asyncio.gather(*both, return_exceptions=True)).count(None) == 1

    asyncio.run(scene())


def test_a_removal_that_was_killed_does_not_keep_the_next_one_away(shared_engine: MemoryEngine) -> None:
    async def scene() -> None:
        await shared_engine.put_entries(one_removal.BEAT_TABLE, {one_removal.BEAT: b"of somebody who was killed 17"})
        async with one_removal.only_one(shared_engine):
            pass

    asyncio.run(scene())


def test_a_dry_run_leaves_nothing_in_the_engine(shared_engine: MemoryEngine) -> None:
    """What was exported before it is still the same as the engine."""

    async def values() -> list[Kept]:
        return [one async for page in shared_engine.read_kept(Section.VALUES) for one in page]

    async def scene() -> None:
        before = await values()
        async with one_removal.only_one(shared_engine):
            assert await values() != before
        assert await values() == before

    asyncio.run(scene())


def begun_removal(engine: Engine, root: Path) -> Coroutine[Any, Any, object]:
    """The work of one that only counts, in a directory."""
    return removing._remove(not_held(root)[0], engine, targets(), 1.0, resumed=False, dry_run=True, by="me")


def test_a_removal_is_heard_of_also_while_it_waits_for_its_store(
    shared_engine: MemoryEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting, refused = threading.Event(), threading.Event()

    def check(*_: object) -> None:
        waiting.set()
        assert refused.wait(STEP_S_MAX), "the other one was not refused meanwhile"

    monkeypatch.setattr(removing, "check_may_go", check)

    async def first() -> None:
        async with one_removal.only_one(shared_engine):
            await begun_removal(shared_engine, tmp_path)

    async def scene() -> None:
        work = asyncio.create_task(first())
        await asyncio.to_thread(waiting.wait, STEP_S_MAX)
        with pytest.raises(BusyError, match="at work"):
            async with one_removal.only_one(shared_engine):
                raise AssertionError("two at once")
        refused.set()
        await work

    asyncio.run(scene())


def test_a_removal_that_is_interrupted_holds_its_locks_until_its_thread_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def remove(self: Directory, *, dry_run: bool) -> Counts:
        begun.set()
        assert go_on.wait(STEP_S_MAX)
        ended.set()
        return Counts()

    monkeypatch.setattr(Directory, "remove", remove)

    async def scene() -> None:
        work = asyncio.create_task(begun_removal(MemoryEngine(1), tmp_path))
        try:
            await asyncio.to_thread(begun.wait, STEP_S_MAX)
            work.cancel()
            await asyncio.wait([work], timeout=0.1)
            assert not work.done()
        finally:
            go_on.set()
        await asyncio.wait([work])
        assert (work.cancelled(), ended.is_set()) == (True, True)

    asyncio.run(scene())
