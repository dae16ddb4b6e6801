"""The crawl's past in figures: rings of samples, and marks of what happened."""

from __future__ import annotations

import asyncio
import itertools
import random

from drumlin.api.calls.history import SERIES, HistoryCalls, HistoryQuery, HistoryView, sample_of
from drumlin.api.routing import PLAIN, Call
from drumlin.config import CrawlConfig
from drumlin.coordinator.dispatch import Dispatcher
from drumlin.coordinator.totals import Totals, add_up
from drumlin.engines import open_engine
from drumlin.model import ShardStats


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


def test_what_happens_is_marked_and_the_first_look_is_no_news() -> None:
    async def scenario() -> None:
        past = await Past.begun()
        await past.calls.note(totals(), 1_000.0)
        assert (await past.read()).marks == []
        await past.dispatcher.pause()
        await past.calls.note(totals(), 1_001.0)
        await past.calls.note(totals(), 1_002.0)
        await past.dispatcher.resume()
        await past.calls.note(totals(), 1_003.0)
        assert [(mark.time, mark.text) for mark in (await past.read()).marks] == [
            (1_001.0, "paused"),
            (1_003.0, "goes on"),
        ]

    asyncio.run(scenario())


def test_only_the_coordinator_that_leads_writes() -> None:
    async def scenario() -> None:
        past = await Past.begun()
        past.dispatcher.leads = False
        await past.calls.note(totals(), 1_000.0)
        assert (await past.read()).samples == []

    asyncio.run(scenario())
