"""Live events for people: the figures every second, changes of the crawl's state and of its nodes, and new marks.

One task collects events for all clients; it runs only while somebody listens. A client that is too slow misses events
and does not hold up others: at most `EVENTS_WAITING_MAX` wait for each.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import msgspec

from drumlin.api.calls.figures import Figures
from drumlin.api.calls.marks import Mark, Marks
from drumlin.api.explaining.shown import on_calendar
from drumlin.api.messages.people import NodeStatusChange, StateChange, Stats
from drumlin.api.routing import Stream
from drumlin.coordinator.engine_time import EngineTime
from drumlin.coordinator.health import Health
from drumlin.errors import DrumlinError
from drumlin.http.refusal import Refused
from drumlin.protocol import paths

MEDIA_TYPE = "text/event-stream"
EVERY_S = 1.0
CLIENTS_MAX = 100
CLIENTS_EACH_MAX = 25
"""How many of these may use the same token: a single viewer must not keep all others from listening."""
EVENTS_WAITING_MAX = 64
NODE_EVENTS_MAX = 1_000
"""How many changes of nodes are sent at a time; the totals in the figures are complete in any case."""
RETRY_MS = 2_000

_encode = msgspec.json.Encoder().encode


class Events:
    """Watches the crawl for those who listen."""

    def __init__(self, figures: Figures, marks: Marks, engine_time: EngineTime, health: Health) -> None:
        self._figures = figures
        self._marks = marks
        self._health = health
        self._time = engine_time
        self._clients: dict[asyncio.Queue[bytes | None], str] = {}
        """The clients that listen, each with the subject of its token."""
        self._watching: asyncio.Task[None] | None = None
        self._state = ""
        self._nodes: dict[str, str] = {}
        self._marked: set[Mark] = set()

    def listen(self, subject: str = "") -> Stream:
        """Events from now on, until the client is gone. `subject` is whose token the client showed; empty where no
        tokens are used and clients cannot be told apart."""
        hint = f"Close one, or ask GET {paths.STATS}."
        if len(self._clients) >= CLIENTS_MAX:
            raise Refused(503, "busy", f"{CLIENTS_MAX} clients listen already.", hint, retry_after_s=10.0)
        if subject and list(self._clients.values()).count(subject) >= CLIENTS_EACH_MAX:
            message = f"{CLIENTS_EACH_MAX} clients with this token listen already."
            raise Refused(503, "busy", message, hint, retry_after_s=10.0)
        return Stream(self._pieces(subject), MEDIA_TYPE)

    async def once(self) -> Stream:
        """The present figures as a single event, for clients that did not ask for a stream."""
        event = await self._stats_event()

        async def pieces() -> AsyncGenerator[bytes, None]:
            yield event

        return Stream(pieces(), MEDIA_TYPE)

    def close(self) -> None:
        """End all streams, because the coordinator ends and must not wait for its listeners. The last figures are sent
        first, so whoever watches sees how the crawl ended."""
        last = self._figures.last()
        farewell = b"" if last is None else _event("stats", on_calendar(last, self._time.calendar))
        farewell += _event("end", StateChange(str(self._figures.state)))
        for queue in self._clients:
            while queue.qsize() > EVENTS_WAITING_MAX - 2:
                queue.get_nowait()
            queue.put_nowait(farewell)
            queue.put_nowait(None)

    async def _pieces(self, subject: str) -> AsyncGenerator[bytes, None]:
        queue: asyncio.Queue[bytes | None] = asyncio.Queue(EVENTS_WAITING_MAX)
        self._clients[queue] = subject
        if self._watching is None or self._watching.done():
            self._watching = asyncio.create_task(self._watch())
        try:
            yield b"retry: %d\n\n" % RETRY_MS + await self._first_event()
            while (event := await queue.get()) is not None:
                yield event
        finally:
            self._clients.pop(queue, None)

    async def _stats_event(self) -> bytes:
        return _event("stats", on_calendar(await self._figures.stats(await self._time.now()), self._time.calendar))

    async def _first_event(self) -> bytes:
        try:
            async with self._health.patience():
                return await self._stats_event()
        except (DrumlinError, Refused) as broken:
            return _trouble(broken)

    async def _watch(self) -> None:
        # What happened while nobody listened is no news; the history has it.
        self._state, self._nodes = "", {}
        while self._clients:
            try:
                async with self._health.patience():
                    events = await self._look()
            except (DrumlinError, Refused) as broken:
                events = [_trouble(broken)]
            for queue in self._clients:
                for event in events:
                    if not queue.full():
                        queue.put_nowait(event)
            await asyncio.sleep(EVERY_S)

    async def _look(self) -> list[bytes]:
        now = await self._time.now()
        stats = await self._figures.stats(now)
        nodes = {node.node_id: str(node.status) for node in await self._figures.nodes(now)}
        events = [*self._changes(stats, nodes), *await self._new_marks()]
        events.append(_event("stats", on_calendar(stats, self._time.calendar)))
        self._state, self._nodes = str(stats.state), nodes
        return events

    async def _new_marks(self) -> list[bytes]:
        """The marks since the last look; at the first look none is new."""
        marks, before = await self._marks.read(), self._marked
        self._marked = set(marks)
        shown = self._time.calendar.shown
        new = [Mark(shown(mark.time), mark.text) for mark in marks if mark not in before] if self._state else []
        return [_event("mark", mark) for mark in new]

    def _changes(self, stats: Stats, nodes: dict[str, str]) -> list[bytes]:
        changes: list[bytes] = []
        if self._state and self._state != stats.state:
            changes.append(_event("crawl", StateChange(str(stats.state))))
        if self._nodes or self._state:
            for node, status in nodes.items():
                if self._nodes.get(node) != status and len(changes) < NODE_EVENTS_MAX:
                    changes.append(_event("node", NodeStatusChange(node, status)))
        return changes


def _trouble(broken: DrumlinError | Refused) -> bytes:
    return _event("trouble", {"code": broken.code, "message": broken.message, "hint": broken.hint})


def _event(name: str, data: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), _encode(data))
