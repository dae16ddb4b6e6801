"""What a coordinator knows of the engine and the store, and how long requests wait while something is wrong."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from pathlib import Path

import pytest

from drumlin.api import watch
from drumlin.api.watch import Watch
from drumlin.coordinator.health import REPORT_COUNTS_S, TOLD_EVERY_S, Health, Part
from drumlin.engines.memory.engine import MemoryEngine
from drumlin.errors import Cause, DrumlinError, EngineError, StorageError
from drumlin.http.refusal import Refused
from drumlin.store.files import DirectoryFiles, StoreFiles
from drumlin.store.objects.files import ObjectFiles

NOW = 1_000.0
FULL = EngineError("Redis is out of memory.", "Raise maxmemory.", code=Cause.OUT_OF_MEMORY)
SILENT = EngineError("Redis does not answer.", code=Cause.SILENT)


def codes(health: Health) -> list[str]:
    return [trouble.code for trouble in health.troubles]


def test_a_trouble_lasts_from_the_first_look_that_finds_it_to_the_first_that_does_not() -> None:
    health = Health()
    health.looked(Part.ENGINE, SILENT, NOW)
    health.looked(Part.ENGINE, FULL, NOW + 1)
    (trouble,) = health.troubles
    assert (trouble.code, trouble.message, trouble.since) == (Cause.OUT_OF_MEMORY, FULL.message, NOW)
    health.looked(Part.ENGINE, None, NOW + 2)
    assert health.troubles == []


def test_the_engine_comes_before_the_store() -> None:
    health = Health()
    health.looked(Part.STORE, StorageError("The disk is full.", code=Cause.STORE_FULL), NOW)
    health.looked(Part.ENGINE, SILENT, NOW)
    assert codes(health) == [Cause.SILENT, Cause.STORE_FULL]


def test_a_call_that_found_no_memory_counts_though_a_small_write_finds_some() -> None:
    health = Health()
    health.reported(Part.ENGINE, FULL, NOW)
    health.looked(Part.ENGINE, None, NOW + 1)
    assert codes(health) == [Cause.OUT_OF_MEMORY]
    health.looked(Part.ENGINE, None, NOW + REPORT_COUNTS_S + 1)
    assert codes(health) == []


def test_a_call_that_fails_by_chance_is_told_but_is_no_trouble(caplog: pytest.LogCaptureFixture) -> None:
    health = Health()
    health.reported(Part.ENGINE, SILENT, NOW)
    assert codes(health) == []
    assert caplog.messages == ["the engine failed a call: Redis does not answer."]


def test_the_log_repeats_itself_seldom(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    health = Health()
    for second in range(int(TOLD_EVERY_S) + 1):
        health.looked(Part.ENGINE, SILENT, NOW + second)
    health.looked(Part.ENGINE, None, NOW + TOLD_EVERY_S + 1)
    cannot = "the engine cannot be used: Redis does not answer."
    assert caplog.messages == [cannot, cannot, "the engine can be used again, after 61 s"]


def test_a_request_that_waits_when_trouble_begins_is_answered_with_the_cause() -> None:
    async def run() -> Refused:
        health = Health()

        async def request() -> None:
            async with health.patience():
                await asyncio.Event().wait()

        waiting = asyncio.create_task(request())
        await asyncio.sleep(0)
        health.looked(Part.ENGINE, SILENT, NOW)
        health.looked(Part.ENGINE, FULL, NOW)
        with pytest.raises(Refused) as refused:
            await waiting
        return refused.value

    refused = asyncio.run(run())
    assert (refused.status, refused.code, refused.retry_after_s) == (503, Cause.OUT_OF_MEMORY, 1.0)


def test_in_trouble_what_still_works_is_answered_and_the_store_holds_up_nobody() -> None:
    async def run() -> None:
        health = Health()
        health.looked(Part.STORE, StorageError("The disk is full."), NOW)
        async with health.patience():
            assert all(limit.when() is None for limit in health._waiting)
        health.looked(Part.ENGINE, SILENT, NOW)
        async with health.patience():
            await asyncio.sleep(0)
        assert health._waiting == set()

    asyncio.run(run())


def test_a_timeout_of_the_requests_own_stays_what_it_is() -> None:
    async def run() -> None:
        async with Health().patience():
            raise TimeoutError

    with pytest.raises(TimeoutError):
        asyncio.run(run())


class BrokenEngine(MemoryEngine):
    problem: DrumlinError | None = None

    async def check(self, within_s: float) -> None:
        if self.problem is not None:
            raise self.problem


def look(engine: MemoryEngine, store: Path | None) -> list[str]:
    async def run() -> list[str]:
        health = Health()
        await Watch(engine, DirectoryFiles(store) if store else None, health, lambda: NOW).be_fresh()
        return codes(health)

    return asyncio.run(run())


def test_a_look_finds_what_is_wrong_with_the_engine() -> None:
    engine = BrokenEngine(1)
    assert look(engine, None) == []
    engine.problem = FULL
    assert look(engine, None) == [Cause.OUT_OF_MEMORY]


def test_a_look_leaves_nothing_in_the_store(tmp_path: Path) -> None:
    assert look(MemoryEngine(1), tmp_path / "store") == []
    assert list((tmp_path / "store").iterdir()) == []


def test_a_store_that_is_no_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "store").write_bytes(b"")
    assert look(MemoryEngine(1), tmp_path / "store") == [Cause.STORE_FAILED]


def test_a_store_that_hangs_is_named_and_tried_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hanging, tries = threading.Event(), []

    def hang(store: Path) -> None:
        tries.append(store)
        hanging.wait()

    async def run() -> list[str]:
        health = Health()
        one = Watch(MemoryEngine(1), DirectoryFiles(tmp_path), health, lambda: NOW)
        await one.look()
        await one.look()
        found = codes(health)
        hanging.set()
        return found

    monkeypatch.setattr(watch, "LOOK_S_MAX", 0.01)
    monkeypatch.setattr(watch, "try_store", hang)
    assert asyncio.run(run()) == [Cause.STORE_SILENT]
    assert len(tries) == 1


def test_two_looks_at_once_share_one_try(tmp_path: Path) -> None:
    async def run() -> list[str]:
        health = Health()
        one = Watch(MemoryEngine(1), DirectoryFiles(tmp_path), health, lambda: NOW)
        await asyncio.gather(one._look(), one._look(), one._look())
        return codes(health)

    assert asyncio.run(run()) == []


class SlowBucket(ObjectFiles):
    """One whose writes take a while, with the rights of a machine and no key."""

    def __init__(self) -> None:
        pass

    def probe(self) -> None:
        time.sleep(0.05)


class SlowDisk(DirectoryFiles):
    def probe(self) -> None:
        time.sleep(0.05)


def test_a_slow_bucket_is_not_called_a_slow_disk(tmp_path: Path) -> None:
    async def took_s(store: StoreFiles) -> float:
        one = Watch(MemoryEngine(1), store, Health(), lambda: NOW)
        await one.look()
        return one.lately.store_s

    assert asyncio.run(took_s(SlowBucket())) == 0.0
    assert asyncio.run(took_s(SlowDisk(tmp_path))) > 0.0


class FullBucket(ObjectFiles):
    def __init__(self) -> None:
        pass

    def probe(self) -> None:
        raise StorageError("The bucket is full.", "Make room there.", code=Cause.STORE_FULL)


def test_a_full_bucket_has_a_hint_of_its_own() -> None:
    with pytest.raises(StorageError) as full:
        watch.try_store(FullBucket())
    assert full.value.hint == "Make room there."
