"""The crawl's past in figures: rings of samples, and marks of what happened."""

from __future__ import annotations

import asyncio
import itertools
import random

from drumlin.api.calls.history import SERIES, HistoryCalls, HistoryQuery, HistoryView, sample_of
from drumlin.api.calls.marks import MARKS_MAX, TABLE, TRIM_EVERY, told
from drumlin.api.routing import PLAIN, Call
from drumlin.config import CrawlConfig
from drumlin.coordinator.dispatch import Dispatcher
from drumlin.coordinator.health import Health, Part
from drumlin.coordinator.totals import Totals, add_up
from drumlin.engines import open_engine
from drumlin.errors import Cause, EngineError
from drumlin.logs import Event
from drumlin.model import ShardStats
from drumlin.protocol import Heartbeat, Register

BEAT = Heartbeat("active", 0.0, 0)


def totals(**counters: int) -> Totals:
    empty = dict.fromkeys((name for name in ShardStats.__struct_fields__ if name != "counters"), 0)
    shard = ShardStats(**empty, counters={name.replace("__", "."): value for name, value in counters.items()})
    return add_up([shard])


class Past:
    """A history on an engine of its own, written by a coordinator that leads."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self.dispatcher = dispatcher
        self.calls = HistoryCalls(dispatcher)

    @classmethod
    async def begun(cls) -> Past:
        dispatcher = Dispatcher(await open_engine("memory:"), CrawlConfig(), [], chance=random.Random(1), ends=False)
        await dispatcher.open()
        dispatcher.leads = True
        return cls(dispatcher)

    async def read(self, span: str = "hour") -> HistoryView:
        call = Call.__new__(Call)
        call.calendar = PLAIN
        query = HistoryQuery(span)  # type: ignore[arg-type]  # one of the three
        return await self.calls.history(call, query)

    def beside(self, name: str) -> Past:
        """That of another coordinator on the same engine."""
        engine = self.dispatcher.engine
        return Past(Dispatcher(engine, CrawlConfig(), [], chance=random.Random(2), ends=False, name=name))

    async def at(self, now: float) -> None:
        """What a coordinator does every second."""
        await self.calls.note(await self.dispatcher.tick(now, 0.0), now)

    async def marks(self) -> list[tuple[float, str]]:
        return [(mark.time, mark.text) for mark in (await self.read()).marks]


def test_answers_are_counted_by_kind() -> None:
    counts = {"status__200": 7, "status__301": 2, "status__404": 3, "status__429": 1, "status__503": 4}
    # Six failed: four with 503, one with 429, and one without any answer.
    sample = sample_of(totals(pages=12, bytes=99, **counts, outcome__failed=6), 5.0)
    assert (sample.pages, sample.bytes) == (12, 99)
    assert (sample.ok, sample.moved, sample.refused, sample.broken) == (7, 2, 4, 5)


def test_one_sample_is_kept_for_each_step_and_a_ring_of_them_in_all() -> None:
    async def scenario() -> None:
        past = await Past.begun()
        step_s, kept = SERIES["hour"]
        for tick in range(4 * (kept + 10)):
            await past.calls.note(totals(pages=tick), 1_000.0 + tick * step_s / 4)
        view = await past.read()
        assert view.step_s == step_s
        assert len(view.samples) == kept
        times = [sample.time for sample in view.samples]
        assert times == sorted(times)
        assert {round(after - before, 3) for before, after in itertools.pairwise(times)} == {float(step_s)}
        assert len((await past.read("day")).samples) < kept / 10

    asyncio.run(scenario())


def test_what_people_do_is_marked_once() -> None:
    async def scenario() -> None:
        past = await Past.begun()
        await past.calls.note(totals(), 1_000.0)
        assert (await past.read()).marks == []
        await past.dispatcher.pause()
        await past.calls.note(totals(), 1_001.0)
        await past.calls.note(totals(), 1_002.0)
        await past.dispatcher.resume()
        await past.dispatcher.resume()
        await past.dispatcher.change_settings({"delay_s": 7.0}, 1_003.0)
        await past.calls.note(totals(), 1_003.0)
        assert await past.marks() == [(1_001.0, "paused"), (1_003.0, "goes on"), (1_003.0, "settings changed")]

    asyncio.run(scenario())


def test_nodes_are_marked_as_they_are_and_a_change_of_the_leader_is_no_change_of_theirs() -> None:
    """Two coordinators; three nodes talk to the first, one of them falls silent, and then the second one leads."""

    async def scenario() -> None:
        first = await Past.begun()
        second = first.beside("second")
        for node in ("m1", "m2", "m3"):
            await first.dispatcher.register(Register(0.0, node, instance=node, boot=1), 1_000.0)
        await first.at(1_001.0)
        assert [text for _, text in await first.marks()] == ["m1 joined", "m2 joined", "m3 joined"]
        for now in (1_010.0, 1_020.0):
            for node in ("m1", "m3"):
                await first.dispatcher.nodes.beat(first.dispatcher.engine, node, BEAT, now)
            await first.at(now)
        assert (await first.marks())[3:] == [(1_010.0, "m2 lost")]
        # The first one is frozen; the nodes go on with the second one, and the silent node comes back with them.
        for node in ("m1", "m2", "m3"):
            await second.dispatcher.nodes.beat(second.dispatcher.engine, node, BEAT, 1_040.0)
        await second.at(1_040.0)
        assert (await second.marks())[4:] == [(1_040.0, "m2 is back"), (1_040.0, "second leads")]
        await first.at(1_041.0)
        await second.dispatcher.leave("m3", 1_042.0)
        await second.at(1_042.0)
        assert (await first.marks())[6:] == [(1_042.0, "m3 left")]

    asyncio.run(scenario())


def test_a_process_that_registers_anew_has_not_joined_again() -> None:
    async def scenario() -> None:
        past = await Past.begun()
        for now in (1_000.0, 1_100.0):
            await past.dispatcher.register(Register(0.0, "m1", instance="m1", boot=1), now)
            await past.at(now)
        await past.dispatcher.register(Register(0.0, "m1", instance="m1", boot=2), 1_200.0)
        await past.at(1_200.0)
        assert await past.marks() == [(1_000.0, "m1 joined"), (1_200.0, "m1 joined")]

    asyncio.run(scenario())


def test_what_several_coordinators_notice_is_one_mark_at_the_moment_when_it_was_lost() -> None:
    async def scenario() -> None:
        first = await Past.begun()
        second = first.beside("second")
        broken = EngineError("Redis does not answer.", code=Cause.SILENT)
        for past in (first, second):
            await past.calls.note(totals(), 1_000.0)
            health = Health(past.dispatcher.happened)
            health.looked(Part.ENGINE, broken, 1.0)
            health.looked(Part.ENGINE, broken, 2.0)
            health.looked(Part.ENGINE, None, 30.0)
            health.looked(Part.STORE, EngineError("The disk is full.", code=Cause.STORE_FULL), 30.0)
            await past.calls.note(totals(), 1_002.0)
        assert await first.marks() == [(1_000.0, "engine silent"), (1_002.0, "engine back"), (1_002.0, "store full")]

    asyncio.run(scenario())


def test_many_nodes_at_once_are_counted() -> None:
    names = [f"n{number}" for number in range(5)]
    assert told([(Event.BACK, name) for name in names]) == ["5 nodes are back"]
    assert told([(Event.QUARANTINED, "n1"), (Event.FAILED, "n2")]) == ["n1 quarantined", "n2 failed"]


def test_only_so_many_marks_are_kept() -> None:
    async def scenario() -> None:
        past = await Past.begun()
        for number in range(MARKS_MAX + 3 * TRIM_EVERY):
            past.dispatcher.happened.note(Event.JOINED, f"n{number}")
            await past.calls.note(totals(), 1_000.0 + number)
        assert len(await past.dispatcher.engine.get_entries(TABLE)) <= MARKS_MAX + TRIM_EVERY
        assert (await past.marks())[-1] == (1_349.0, "n349 joined")

    asyncio.run(scenario())


def test_only_the_coordinator_that_leads_writes_samples() -> None:
    async def scenario() -> None:
        past = await Past.begun()
        past.dispatcher.leads = False
        await past.calls.note(totals(), 1_000.0)
        assert (await past.read()).samples == []

    asyncio.run(scenario())
