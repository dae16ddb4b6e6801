"""Marks of what happened to a crawl, in a few words each, for charts: "n1 joined", "paused", "engine silent".

Whoever notices something notes it beside its entry in the log (`Happenings`), and its coordinator writes it here after
its next tick. So nothing is found out twice, and no change of the leader is taken for a change of the fleet. What
several coordinators notice at once, such as a lost engine, is one mark: the key is made of the time, in steps, and the
text. Marks are kept in the engine, the newest `MARKS_MAX` of them, so all coordinators show the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import msgspec

from drumlin.engines.base import Engine
from drumlin.errors import DrumlinError
from drumlin.lines import counted
from drumlin.logs.events import Event, Happenings
from drumlin.protocol import CrawlState

TABLE = "history_marks"
MARKS_MAX = 200
TRIM_EVERY = 50
SAME_S = 10
"""The same words within such a step of time are the same mark."""
NODES_NAMED = 3
"""If more nodes than this change at once, they are counted and not named."""
STATE_WORDS: Mapping[str, str] = {
    CrawlState.RUNNING: "goes on",
    CrawlState.PAUSED: "paused",
    CrawlState.DRAINING: "stopping",
    CrawlState.FINISHED: "finished",
}
NODE_WORDS = {
    Event.JOINED: "joined",
    Event.LEFT: "left",
    Event.SILENT: "lost",
    Event.BACK: "is back",
    Event.FAILED: "failed",
    Event.DRAINING: "draining",
    Event.QUARANTINED: "quarantined",
    Event.RELEASED: "released",
}
MANY_WORDS = {Event.BACK: "are back"}
# What is wrong with an engine or a store is said by its code: "engine disk full".
OTHER_WORDS = {
    Event.LEADS: "{} leads",
    Event.SETTINGS_CHANGED: "settings changed",
    Event.ENGINE_LOST: "{}",
    Event.ENGINE_BACK: "engine back",
    Event.STORE_LOST: "{}",
    Event.STORE_BACK: "store back",
}


class Mark(msgspec.Struct, frozen=True):
    """Something that happened."""

    time: float
    text: str


class Marks:
    """Writes marks into the engine, and reads all of them."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._ticked_at: float | None = None
        self._written = 0

    async def write(self, happened: Happenings, now: float) -> None:
        """Write what was noted since the last call. If that fails, the next call does it."""
        taken = happened.take()
        before, self._ticked_at = self._ticked_at, now
        if not taken:
            return
        # While an engine is lost there are no ticks; it was lost soon after the last one.
        lost = [entry for entry in taken if entry[0] is Event.ENGINE_LOST]
        others = [entry for entry in taken if entry[0] is not Event.ENGINE_LOST]
        marks = [Mark(now if before is None else before, text) for text in told(lost)]
        marks += [Mark(now, text) for text in told(others)]
        try:
            await self._put(marks)
        except DrumlinError:
            happened.put_back(taken)
            raise

    async def _put(self, marks: Sequence[Mark]) -> None:
        await self._engine.put_entries(TABLE, {_key(mark): msgspec.msgpack.encode(mark) for mark in marks})
        before, self._written = self._written, self._written + len(marks)
        if before // TRIM_EVERY != self._written // TRIM_EVERY:
            keys = sorted(await self._engine.get_entries(TABLE))
            await self._engine.delete_entries(TABLE, keys[:-MARKS_MAX])

    async def read(self) -> list[Mark]:
        """The newest marks, oldest first."""
        stored = await self._engine.get_entries(TABLE)
        marks = [msgspec.msgpack.decode(entry, type=Mark) for entry in stored.values()]
        return sorted(marks, key=lambda mark: mark.time)[-MARKS_MAX:]


def told(happened: Sequence[tuple[Event, str]]) -> list[str]:
    """What happened, in a few words each; nodes to which the same happened at once are counted if they are many."""
    nodes: dict[Event, list[str]] = defaultdict(list)
    texts: list[str] = []
    for kind, who in happened:
        if kind in NODE_WORDS:
            nodes[kind].append(who)
        elif kind is Event.CRAWL_STATE:
            texts.append(STATE_WORDS[who])
        else:
            texts.append(OTHER_WORDS[kind].format(who))
    return texts + [text for kind, names in nodes.items() for text in _nodes_told(kind, sorted(set(names)))]


def _nodes_told(kind: Event, names: list[str]) -> list[str]:
    if len(names) > NODES_NAMED:
        return [f"{counted(len(names), 'node')} {MANY_WORDS.get(kind, NODE_WORDS[kind])}"]
    return [f"{name} {NODE_WORDS[kind]}" for name in names]


def _key(mark: Mark) -> str:
    return f"{int(mark.time) // SAME_S * SAME_S * 1000:015d} {mark.text}"
