"""Seeds from a topic of Kafka: the leading coordinator puts them into the frontier as they come.

Offsets are committed only after the frontier has the URLs. If the coordinator is killed in between, the next one reads
the same messages again, and the frontier knows their URLs already: so each is in it exactly once. A message that names
no web address is counted, told now and then, and passed over.

Whoever writes to the topic must not be able to stop a coordinator: what is taken at once is bounded, it is read in a
thread, and it enters the frontier, and is committed, in parts.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable

from drumlin.clock import monotonic
from drumlin.coordinator.dispatch import Dispatcher
from drumlin.errors import DrumlinError
from drumlin.events.broker import BrokerConsumer, is_kafka_error, plainly
from drumlin.events.options import SeedsOptions
from drumlin.events.seeds import Part, read_part
from drumlin.logs import Event, event
from drumlin.protocol import CrawlState

MESSAGES_AT_ONCE = 500
BYTES_AT_ONCE = 4_000_000
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
        self._is_idle = False
        self._lost_since: float | None = None
        self._told_at = 0.0
        self._untold = Counter[str]()
        self.lost = ""
        """What keeps it from reading the topic; empty if nothing does."""
        self.taken = 0
        """How many URLs were taken, new or not."""
        self.bad = 0
        """How many messages, or lines of them, were passed over."""

    @property
    def waits(self) -> bool:
        """Whether more may come, so a crawl with nothing left to fetch is not finished. If the topic cannot be read,
        nobody knows (`in_vain`)."""
        return not self._is_idle

    @property
    def in_vain(self) -> bool:
        """Whether the topic could not be read for as long as it may be idle. What is in it then, nobody knows."""
        idle_s = self._options.idle_s
        return idle_s is not None and self._lost_since is not None and monotonic() - self._lost_since >= idle_s

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
                    self._notice(plainly(str(broken)))
                else:
                    log.exception("seeds wait in their topic", extra=event(Event.BUG))
                    self._notice("a bug, which is in the log")
                # What was read and not committed is read again by the next consumer.
                await self._close()
                await asyncio.sleep(AGAIN_AFTER_S)

    async def _take(self) -> None:
        if self._consumer is None:
            self._consumer = await asyncio.to_thread(self._options.consumer, self._dispatcher.crawl_id)
        consumer = self._consumer
        messages = await asyncio.to_thread(consumer.take, MESSAGES_AT_ONCE, BYTES_AT_ONCE, POLL_S)
        self._notice(consumer.error)
        self._tell_bad()
        if not messages:
            await self._be_quiet(consumer)
            return
        self._quiet_since, self._is_idle = None, False
        while messages:
            part = await asyncio.to_thread(read_part, messages)
            await self._enqueue(part)
            await asyncio.to_thread(consumer.commit, part.messages)
            messages = messages[len(part.messages) :]

    async def _be_quiet(self, consumer: BrokerConsumer) -> None:
        """Notice how long nothing has come. A broker that does not answer is not quiet, so it is asked at the end."""
        if not consumer.assigned or consumer.error:
            self._quiet_since, self._is_idle = None, False
            return
        self._quiet_since = self._quiet_since or monotonic()
        idle_s = self._options.idle_s
        if idle_s is not None and not self._is_idle and monotonic() - self._quiet_since >= idle_s:
            self._is_idle = await asyncio.to_thread(consumer.answers)

    async def _enqueue(self, part: Part) -> None:
        if part.new:
            await self._dispatcher.enqueue(part.new, await self._now())
            self._came()
        self.taken += part.seeds
        self.bad += part.bad.total()
        self._untold += part.bad

    def _tell_bad(self, *, at_once: bool = False) -> None:
        """Say now and then what was passed over, and why."""
        if self._untold and (at_once or monotonic() - self._told_at >= BAD_TOLD_EVERY_S):
            reasons = ", ".join(f"{count:,} {reason}" for reason, count in self._untold.most_common())
            sentence = "passed over in the seed topic, by what is wrong: %s"
            log.warning(sentence, reasons, extra=event(Event.REFUSED))
            self._untold, self._told_at = Counter(), monotonic()

    def _notice(self, error: str) -> None:
        """Say once that the topic cannot be read, and once that it can."""
        if error and not self.lost:
            log.warning("the seed topic cannot be read: %s", error, extra=event(Event.SEEDS_LOST))
            self._lost_since = monotonic()
        elif self.lost and not error:
            log.info("the seed topic can be read again", extra=event(Event.SEEDS_BACK))
            self._lost_since = None
        self.lost = error

    async def _close(self) -> None:
        consumer, self._consumer = self._consumer, None
        self._quiet_since, self._is_idle = None, False
        self._tell_bad(at_once=True)
        if consumer is not None:
            await asyncio.to_thread(consumer.close)
