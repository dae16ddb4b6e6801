"""The events of a coordinator: of the segments that it stores for others, and of what it tells of nodes, leases and the
crawl.

A coordinator owes events in a folder of its own, `STORE/events/NAME`, which it locks. What a dead coordinator owed is
taken over by any other on the same store. If the store is in a bucket, that folder is on the coordinator's machine, and
the manifest says which segments are owed, whoever has stored them (`manifest_feed`). Everything that touches the disk,
the bucket or the broker is done in a thread, except for the few bytes that are appended to its log.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from drumlin.clock import monotonic
from drumlin.errors import BusyError, DrumlinError
from drumlin.events.manifest_feed import ManifestFeed
from drumlin.events.options import EventsOptions
from drumlin.events.owed import LOG_NAME, forget, owe, owed_names, take_over
from drumlin.events.schema import NODES, VERSION, WORK, Crawl, Lease, Message, Node, message_of, row_id
from drumlin.events.sender import Sender, Standing
from drumlin.events.told import ToldLog
from drumlin.logs import Event, event
from drumlin.protocol import Work
from drumlin.protocol.work import shown_lease
from drumlin.store.names import machine_name
from drumlin.store.spools import SpoolLock

if TYPE_CHECKING:
    from drumlin.store.objects.files import ObjectFiles

FOLDER: Final = "events"
TABLES: Final = "tables"
NAME_PREFIX: Final = "coordinator-"
HOSTNAME_CHARS_MAX: Final = 24
NAMES_TRIED_MAX: Final = 1_000
STEP_S: Final = 0.05
TAKE_OVER_EVERY_S: Final = 10.0
AGAIN_AFTER_S: Final = 5.0
FEED_EVERY_S: Final = 1.0
FEED_IDLE_S: Final = 5.0
"""How often the manifest of a store in a bucket is looked at: while something waits, and while nothing does."""
CLOSE_WAIT_S: Final = 30.0
OF_NODES: Final = frozenset(
    {
        *(Event.JOINED, Event.LEFT, Event.SILENT, Event.BACK, Event.FAILED),
        *(Event.DRAINING, Event.QUARANTINED, Event.RELEASED),
    }
)

log = logging.getLogger("drumlin.kafka")


Turn = Callable[[], Awaitable[bool]]
"""Asks whether it is this coordinator that shall tell of what is in the bucket; the answer holds for a while."""


async def always() -> bool:
    """The turn of a coordinator that is the only one."""
    return True


class CoordinatorEvents:
    """What one coordinator owes the broker. With `files`, the store is in a bucket, and `store` is a folder of this
    machine."""

    def __init__(
        self,
        options: EventsOptions,
        store: Path,
        *,
        crawl: str,
        coordinator: str,
        files: ObjectFiles | None = None,
        turn: Turn = always,
    ) -> None:
        self._root = store / FOLDER
        self._crawl, self._coordinator = crawl, coordinator
        self._spool, self._lock = _own_spool(self._root)
        self._told = ToldLog(self._spool, self._stamp)
        self._serial = 0
        self._take_over_at = self._feed_at = 0.0
        self._turn, self._bytes_max = turn, options.bytes_max
        tables = store / TABLES if files is None else self._spool / TABLES
        self._feed = ManifestFeed(files, self._spool, tables) if files is not None else None
        self._take_over_dead()
        self._sender = Sender(
            self._spool,
            tables,
            options.producer,
            crawl=crawl,
            bytes_max=options.bytes_max,
            growing=lambda: self._told.name,
        )

    # What is owed

    def owe(self, segment: str) -> None:
        """A segment is about to be published. In a bucket its manifest tells that it was."""
        if self._feed is None:
            owe(self._spool, segment)
            self._sender.look_soon()

    def owe_no_more(self, segment: str) -> None:
        """A segment was not published after all."""
        if self._feed is None:
            forget(self._spool, segment)

    def happened(self, kind: Event, who: str) -> None:
        """Something happened to a node or to the crawl (`logs.Happenings`)."""
        now_us, crawl, mine = _now_us(), self._crawl, self._coordinator
        identity = row_id(None, f"{mine} {kind} {who}", now_us, str(self._next()))
        if kind in OF_NODES:
            node = Node(id=identity, crawl=crawl, v=VERSION, node=who, event=kind, time_us=now_us, coordinator=mine)
            self._tell([message_of(NODES, node, "node")])
        else:
            told = Crawl(id=identity, crawl=crawl, v=VERSION, event=kind, detail=who, time_us=now_us, coordinator=mine)
            self._tell([message_of(WORK, told, "crawl")])

    def given(self, work: Work, node: str) -> None:
        """Leases were given to a node, which does not know it yet."""
        now_us = _now_us()
        leases = [
            Lease(
                id=row_id(None, shown_lease(one.lease_id), now_us, str(self._next())),
                lease=shown_lease(one.lease_id),
                crawl=self._crawl,
                v=VERSION,
                host=one.host,
                node=node,
                urls=len(one.assignments),
                ttl_s=round(one.ttl_s, 3),
                time_us=now_us,
                coordinator=self._coordinator,
            )
            for one in work.leases
        ]
        if leases:
            self._tell([message_of(WORK, lease) for lease in leases])

    def _tell(self, messages: list[Message]) -> None:
        try:
            self._told.append(messages)
        except DrumlinError as broken:
            # The disk is full or gone. The watch over the store has noticed that too, and names it.
            log.error("%d events could not be kept: %s", len(messages), broken)

    def _stamp(self) -> str:
        return f"{LOG_NAME}{time.time_ns():020d}-{self._next():06d}"

    def _next(self) -> int:
        self._serial += 1
        return self._serial

    # How it stands

    @property
    def full(self) -> bool:
        """Whether so much waits that no more work should be given out."""
        return self.standing().full

    def standing(self) -> Standing:
        standing = self._sender.standing(monotonic())
        if self._feed is None:
            return standing
        waiting = standing.waiting_bytes + self._feed.waiting_bytes
        return msgspec.structs.replace(standing, waiting_bytes=waiting, full=waiting >= self._bytes_max)

    # As time passes

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Send for as long as the context lasts. At its end what is left is sent, unless the broker is away: then it
        stays owed, and the next coordinator on this store sends it."""
        stepping = asyncio.create_task(self._keep_stepping())
        try:
            yield
        finally:
            stepping.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await stepping
            await asyncio.to_thread(self._close, mine=await self._last_turn())

    async def _keep_stepping(self) -> None:
        while True:
            try:
                now = monotonic()
                if now >= self._take_over_at:
                    self._take_over_at = now + TAKE_OVER_EVERY_S
                    await asyncio.to_thread(self._take_over_dead)
                if self._feed is not None and now >= self._feed_at:
                    await asyncio.to_thread(self._feed_on, now, mine=await self._has_turn())
                if now >= self._sender.due():
                    await asyncio.to_thread(self._sender.step, now)
                await asyncio.sleep(STEP_S)
            except (DrumlinError, OSError) as broken:
                log.warning("events wait: %s", broken)
                await asyncio.sleep(AGAIN_AFTER_S)
            except Exception:
                log.exception("events wait", extra=event(Event.BUG))
                await asyncio.sleep(AGAIN_AFTER_S)

    async def _has_turn(self) -> bool:
        """Whether this coordinator tells of what is in the bucket. If nobody can say, it does not."""
        try:
            return self._feed is not None and await self._turn()
        except DrumlinError:
            return False

    async def _last_turn(self) -> bool:
        """Whether it is for this coordinator, which ends, to tell the rest. If it is not, it waits a little: the one
        whose turn it is may be dead."""
        deadline = monotonic() + CLOSE_WAIT_S
        while not (mine := await self._has_turn()) and self._feed is not None and monotonic() < deadline:
            await asyncio.to_thread(self._feed_on, monotonic(), mine=False)
            if self._feed.drained:
                break
            await asyncio.sleep(FEED_EVERY_S)
        return mine

    def _feed_on(self, now: float, *, mine: bool) -> None:
        """Look what the bucket has. If it cannot be reached, what is here already is sent all the same."""
        feed = self._feed
        if feed is None:
            return
        self._feed_at = now + AGAIN_AFTER_S
        try:
            feed.look(mine=mine)
        except (DrumlinError, OSError) as away:
            log.warning("events wait in the store: %s", away)
            return
        self._feed_at = now + (FEED_IDLE_S if feed.drained else FEED_EVERY_S)
        if mine and not feed.drained:
            self._sender.look_soon()

    def _take_over_dead(self) -> None:
        """Take over what dead coordinators owed. What one of them had brought from a bucket is brought again."""
        for folder in self._root.iterdir():
            if folder == self._spool or not owed_names(folder):
                continue
            lock = SpoolLock.take(folder)
            if lock is not None:
                take_over(folder, self._spool, segments=self._feed is None)
                if self._feed is not None:
                    shutil.rmtree(folder / TABLES, ignore_errors=True)
                lock.free()

    def _close(self, *, mine: bool) -> None:
        self._told.end()
        self._sender.look_soon()
        deadline, feed = monotonic() + CLOSE_WAIT_S, self._feed
        self._feed_at = 0.0
        while monotonic() < deadline:
            if mine and monotonic() >= self._feed_at:
                self._feed_on(monotonic(), mine=True)
            if self._sender.drained and (feed is None or not mine or (feed.drained and self._feed_at > 0)):
                break
            self._sender.step(monotonic())
            time.sleep(STEP_S)
        waiting = feed.waiting_segments if feed is not None else 0
        if left := len(owed_names(self._spool)) + waiting:
            sentence = "events of %d segments and logs wait for the broker; start the same command again to send them"
            log.warning(sentence, left, extra=event(Event.BROKER_LOST))
        self._lock.free()


def _now_us() -> int:
    return time.time_ns() // 1_000


def _own_spool(root: Path) -> tuple[Path, SpoolLock]:
    """The first folder of this machine that no living coordinator has; it may hold what a dead one owed."""
    machine = machine_name(HOSTNAME_CHARS_MAX)
    for number in range(1, NAMES_TRIED_MAX + 1):
        folder = root / f"{NAME_PREFIX}{machine}-{number}"
        lock = SpoolLock.take(folder)
        if lock is not None:
            return folder, lock
    raise BusyError(f"{NAMES_TRIED_MAX} coordinators of this machine produce events of {root.parent}.")


def events_left(store: Path, files: ObjectFiles | None) -> bool:
    """Whether events of a store are owed that no living process sends, or could. With `files` it is in a bucket."""
    if files is not None:
        from drumlin.store.objects.mark import untold_segments

        if untold_segments(files):
            return True
    return any(owed_names(folder) for folder in (*(store / FOLDER).glob("*"), *(store / "nodes").glob("*")))
