"""The crawl's past in figures: how many pages and bytes there were when, by kind of answer, and what happened.

The leading coordinator writes samples of the crawl's counters into the engine, so every coordinator, a browser that is
opened later, and a crawl that is over show the same. Counters only grow, so a rate is the difference of two samples,
and samples may be missing. There are three series, each a ring of fixed size: the last hour, day and month. What
happened is marked beside them (`marks`).
"""

from __future__ import annotations

from typing import Literal

import msgspec

from drumlin.access.tokens import Permission
from drumlin.api.calls.marks import Mark, Marks
from drumlin.api.routing import Call, Route
from drumlin.coordinator.dispatch import Dispatcher
from drumlin.coordinator.totals import Totals
from drumlin.logs import Event
from drumlin.protocol import paths

SERIES = {"hour": (5, 720), "day": (60, 1440), "month": (900, 2976)}
"""Seconds between two samples, and how many are kept."""
TOO_MANY_REQUESTS = "429"
LED_KEY = "led_by"
"""Where the engine keeps which coordinator led last."""


class Sample(msgspec.Struct, frozen=True, array_like=True):
    """The crawl's counters at a moment. `broken` has answers of 500 and above, and requests without an answer."""

    time: float
    pages: int
    bytes: int
    ok: int
    moved: int
    refused: int
    broken: int


class HistoryQuery(msgspec.Struct, forbid_unknown_fields=True):
    span: Literal["hour", "day", "month"] = "hour"


class HistoryView(msgspec.Struct):
    """The samples of a series, oldest first, each as `[time, pages, bytes, ok, moved, refused, broken]`, and the marks
    of the same time."""

    step_s: int
    samples: list[Sample]
    marks: list[Mark]


class HistoryCalls:
    """Writes the history, and reads it to people."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._engine = dispatcher.engine
        self._slots: dict[str, int] = {}
        self._marks = Marks(dispatcher.engine)
        self._led = False

    def routes(self) -> list[Route]:
        return [
            Route(
                method="GET",
                path=paths.HISTORY,
                summary="The figures of the last hour, day or month, and what happened meanwhile",
                answer=self.history,
                permission=Permission.READ,
                takes=HistoryQuery,
                gives=HistoryView,
            )
        ]

    async def note(self, totals: Totals, now: float) -> None:
        """To be called after each tick. Every coordinator writes what it noticed; samples are written by the one that
        leads."""
        leads = self._dispatcher.leads
        if leads and not self._led:
            await self._note_lead()
        self._led = leads
        await self._marks.write(self._dispatcher.happened, now)
        if not leads:
            return
        for span, (step_s, kept) in SERIES.items():
            slot = int(now // step_s)
            if self._slots.get(span) != slot:
                self._slots[span] = slot
                entry = {f"{slot % kept:05d}": msgspec.msgpack.encode(sample_of(totals, now))}
                await self._engine.put_entries(_table(span), entry)

    async def _note_lead(self) -> None:
        """Note that this coordinator leads, if another one led before."""
        mine = self._dispatcher.name.encode()
        before = await self._engine.get_meta(LED_KEY)
        if before != mine:
            await self._engine.put_meta(LED_KEY, mine)
            if before:
                self._dispatcher.happened.note(Event.LEADS, self._dispatcher.name)

    async def history(self, call: Call, query: HistoryQuery) -> HistoryView:
        step_s, kept = SERIES[query.span]
        entries = await self._engine.get_entries(_table(query.span))
        found = [msgspec.msgpack.decode(entry, type=Sample) for entry in entries.values()]
        oldest = max((sample.time for sample in found), default=0.0) - step_s * kept
        samples = sorted((one for one in found if one.time >= oldest), key=lambda one: one.time)
        marks = await self._marks.read()
        shown = call.calendar.shown
        return HistoryView(
            step_s,
            [msgspec.structs.replace(one, time=shown(one.time)) for one in samples],
            [Mark(shown(mark.time), mark.text) for mark in marks if mark.time >= oldest],
        )


def sample_of(totals: Totals, now: float) -> Sample:
    """The counters by kind of answer."""
    answers = {"2": 0, "3": 0, "4": 0, "5": 0}
    failed_with_answer = 0
    for status, count in totals.group("status.").items():
        kind = status[0] if status[0] in answers else "5"
        answers[kind] += count
        failed_with_answer += count if status[0] == "5" or status == TOO_MANY_REQUESTS else 0
    without_answer = max(0, totals.counters.get("outcome.failed", 0) - failed_with_answer)
    broken = answers["5"] + without_answer
    return Sample(now, totals.pages, totals.bytes, answers["2"], answers["3"], answers["4"], broken)


def _table(span: str) -> str:
    return f"history_{span}"
