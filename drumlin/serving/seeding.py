"""Seeds from a topic of Kafka: the leading coordinator puts them into the frontier as they come.

Offsets are committed only after the frontier has the URLs. If the coordinator is killed in between, the next one reads
the same messages again, and the frontier knows their URLs already: so each is in it exactly once. A message that names
no web address is counted, told now and then, and passed over.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from drumlin.clock import monotonic
from drumlin.coordinator.dispatch import Dispatcher
from drumlin.errors import DrumlinError
from drumlin.events.broker import BrokerConsumer, is_kafka_error
from drumlin.events.options import SeedsOptions
from drumlin.events.seeds import Seed, read_message
from drumlin.logs import Event, event
from drumlin.model import NewURLs
from drumlin.protocol import CrawlState
from drumlin.urls import by_host

MESSAGES_AT_ONCE = 500
POLL_S = 0.5
AGAIN_AFTER_S = 2.0
BAD_TOLD_EVERY_S = 10.0
TAKING = frozenset({CrawlState.RUNNING, CrawlState.PAUSED})

log = logging.getLogger("drumlin.kafka")


class Seeding:
    """Takes seeds while this coordinator leads. `now` asks for engine time; `came` is called when URLs are new."""

    def __init__(
        self,
        options: SeedsOptions,
        dispatcher: Dispatcher,
        now: Callable[[], Awaitable[float]],
        came: Callable[[], None],
    ) -> None:
        self._options, self._dispatcher = options, dispatcher
        self._now, self._came = now, came
        self._consumer: BrokerConsumer | None = None
        self._quiet_since: float | None = None
        self._lost = False
        self._told_at = 0.0
        self._untold = 0
        self.taken = 0
        """How many URLs were taken, new or not."""
        self.bad = 0
        """How many messages, or lines of them, named no web address."""

    @property
    def waits(self) -> bool:
        """Whether more may come, so a crawl with nothing left to fetch does not end. If the topic cannot be read,
        nobody knows."""
        idle_s = self._options.idle_s
        return idle_s is None or self._quiet_since is None or monotonic() - self._quiet_since < idle_s

    @property
    def lost(self) -> str:
        """What keeps it from reading the topic; empty if nothing does."""
        return (self._consumer.error if self._consumer is not None else "it cannot be reached") if self._lost else ""

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self._run())
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            await self._close()

    async def _run(self) -> None:
        while True:
            if not self._dispatcher.leads or self._dispatcher.state not in TAKING:
                await self._close()
                await asyncio.sleep(POLL_S)
                continue
            try:
                await self._take()
            except Exception as broken:
                if isinstance(broken, DrumlinError) or is_kafka_error(broken):
                    log.warning("seeds wait in their topic: %s", broken)
                else:
                    log.exception("seeds wait in their topic", extra=event(Event.BUG))
                # What was read and not committed is read again by the next consumer.
                await self._close()
                await asyncio.sleep(AGAIN_AFTER_S)

    async def _take(self) -> None:
        if self._consumer is None:
            self._consumer = await asyncio.to_thread(self._options.consumer, self._dispatcher.crawl_id)
        consumer = self._consumer
        messages = await asyncio.to_thread(consumer.take, MESSAGES_AT_ONCE, POLL_S)
        self._notice(consumer)
        if not messages:
            if consumer.assigned and not consumer.error:
                self._quiet_since = self._quiet_since or monotonic()
            return
        self._quiet_since = None
        await self._enqueue(messages)
        await asyncio.to_thread(consumer.commit, messages)

    async def _enqueue(self, messages: list[Any]) -> None:
        seeds: list[Seed] = []
        for message in messages:
            named, bad = read_message(message.value())
            seeds += named
            self._untold += bad
            self.bad += bad
        new = [
            NewURLs(host, urls, priority)
            for priority in sorted({seed.priority for seed in seeds}, reverse=True)
            for host, urls in by_host(seed.url for seed in seeds if seed.priority == priority).items()
        ]
        if new:
            await self._dispatcher.enqueue(new, await self._now())
            self._came()
        self.taken += len(seeds)
        if self._untold and monotonic() - self._told_at >= BAD_TOLD_EVERY_S:
            log.warning("%d messages of the seed topic name no web address", self._untold, extra=event(Event.REFUSED))
            self._untold, self._told_at = 0, monotonic()

    def _notice(self, consumer: BrokerConsumer) -> None:
        """Say once that the topic cannot be read, and once that it can."""
        if consumer.error and not self._lost:
            log.warning("the seed topic cannot be read: %s", consumer.error, extra=event(Event.SEEDS_LOST))
        elif self._lost and not consumer.error:
            log.info("the seed topic can be read again", extra=event(Event.SEEDS_BACK))
        self._lost = bool(consumer.error)

    async def _close(self) -> None:
        consumer, self._consumer = self._consumer, None
        self._quiet_since = None
        if consumer is not None:
            await asyncio.to_thread(consumer.close)
