"""The crawl's past in figures: how many pages and bytes there were when, by kind of answer, and what happened.

The leading coordinator writes samples of the crawl's counters into the engine, so every coordinator, a browser that is
opened later, and a crawl that is over show the same. Counters only grow, so a rate is the difference of two samples,
and samples may be missing. There are three series, each a ring of fixed size: the last hour, day and month. Marks are
sentences of a few words; the newest `MARKS_MAX` are kept.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from drumlin.access.tokens import Permission
from drumlin.api.routing import Call, Route
from drumlin.coordinator.dispatch import Dispatcher
from drumlin.coordinator.totals import Totals
from drumlin.lines import counted
from drumlin.protocol import CrawlState, NodeStatus, paths

SERIES = {"hour": (5, 720), "day": (60, 1440), "month": (900, 2976)}
"""Seconds between two samples, and how many are kept."""
MARKS_TABLE = "history_marks"
MARKS_MAX = 200
TRIM_EVERY = 50
NODES_NAMED = 3
"""If more nodes than this change at once, they are counted and not named."""
STATE_WORDS = {
    CrawlState.RUNNING: "goes on",
    CrawlState.PAUSED: "paused",
    CrawlState.DRAINING: "stopping",
    CrawlState.FINISHED: "finished",
}
NODE_WORDS = {NodeStatus.ACTIVE: "joined", NodeStatus.INACTIVE: "left", NodeStatus.FAILED: "lost"}
TOO_MANY_REQUESTS = "429"


class Sample(msgspec.Struct, frozen=True, array_like=True):
    """The crawl's counters at a moment. `broken` has answers of 500 and above, and requests without an answer."""

    time: float
    pages: int
    bytes: int
    ok: int
    moved: int
    refused: int
    broken: int


class Mark(msgspec.Struct, frozen=True):
    """Something that happened."""

    time: float
    text: str


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
        self._state: CrawlState | None = None
        self._nodes: dict[str, NodeStatus] = {}
        self._version = 0
        self._marks = 0

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
        """To be called after each tick. Only the coordinator that leads writes."""
        if not self._dispatcher.leads:
            self._state = None
            return
        for span, (step_s, kept) in SERIES.items():
            slot = int(now // step_s)
            if self._slots.get(span) != slot:
                self._slots[span] = slot
                entry = {f"{slot % kept:05d}": msgspec.msgpack.encode(sample_of(totals, now))}
                await self._engine.put_entries(_table(span), entry)
        for text in self._changes():
            await self._mark(text, now)

    def _changes(self) -> list[str]:
        """What has changed since the last look; nothing at the first."""
        dispatcher = self._dispatcher
        nodes = {node.node_id: node.status for node in dispatcher.nodes.records()}
        state, before, version = self._state, self._nodes, self._version
        self._state, self._nodes, self._version = dispatcher.state, nodes, dispatcher.steering.version
        if state is None:
            return []
        told = [STATE_WORDS[self._state]] if self._state is not state else []
        told += ["settings changed"] if self._version != version else []
        for status in NodeStatus:
            names = [name for name, now in nodes.items() if now is status and before.get(name) is not status]
            told += _nodes_told(names, NODE_WORDS.get(status, str(status)))
        return told

    async def _mark(self, text: str, now: float) -> None:
        self._marks += 1
        key = f"{int(now * 1000):015d}-{self._marks % 1000:03d}"
        await self._engine.put_entries(MARKS_TABLE, {key: msgspec.msgpack.encode(Mark(now, text))})
        if self._marks % TRIM_EVERY == 0:
            keys = sorted(await self._engine.get_entries(MARKS_TABLE))
            await self._engine.delete_entries(MARKS_TABLE, keys[:-MARKS_MAX])

    async def history(self, call: Call, query: HistoryQuery) -> HistoryView:
        step_s, kept = SERIES[query.span]
        entries = await self._engine.get_entries(_table(query.span))
        found = [msgspec.msgpack.decode(entry, type=Sample) for entry in entries.values()]
        oldest = max((sample.time for sample in found), default=0.0) - step_s * kept
        samples = sorted((one for one in found if one.time >= oldest), key=lambda one: one.time)
        stored = await self._engine.get_entries(MARKS_TABLE)
        marks = [msgspec.msgpack.decode(stored[key], type=Mark) for key in sorted(stored)[-MARKS_MAX:]]
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


def _nodes_told(names: list[str], word: str) -> list[str]:
    if len(names) > NODES_NAMED:
        return [f"{counted(len(names), 'node')} {word}"]
    return [f"{name} {word}" for name in sorted(names)]


def _table(span: str) -> str:
    return f"history_{span}"
