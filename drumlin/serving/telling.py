"""What a coordinator has to do with Kafka, for as long as it runs: events that it produces (`drumlin.events`), and
seeds that it takes (`seeding`)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

from drumlin.api.app import CoordinatorApp
from drumlin.coordinator.dispatch import Dispatcher
from drumlin.events.coordinating import CoordinatorEvents
from drumlin.events.kafka import Kafka
from drumlin.events.options import EventsOptions, SeedsOptions
from drumlin.serving.seeding import Seeding


@contextlib.asynccontextmanager
async def kafka_used(
    app: CoordinatorApp,
    dispatcher: Dispatcher,
    events_to: EventsOptions | None,
    seeds_from: SeedsOptions | None,
    store: Path | None,
    now: Callable[[], Awaitable[float]],
) -> AsyncIterator[Seeding | None]:
    """Produce and take for as long as the context lasts. It must end after whatever stores."""
    async with contextlib.AsyncExitStack() as stack:
        events, seeding = None, None
        if events_to is not None and store is not None:
            crawl, name = dispatcher.crawl_id, dispatcher.name
            events = await asyncio.to_thread(CoordinatorEvents, events_to, store, crawl=crawl, coordinator=name)
            dispatcher.happened.listener = events.happened
            await stack.enter_async_context(events.running())
        if seeds_from is not None:
            seeding = Seeding(seeds_from, dispatcher, now, app.work_may_have_come)
            await stack.enter_async_context(seeding.running())
        if events is not None or seeding is not None:
            app.use_kafka(Kafka(events, seeding))
        yield seeding
