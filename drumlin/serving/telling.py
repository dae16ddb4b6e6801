"""What a coordinator has to do with Kafka, for as long as it runs: events that it produces (`drumlin.events`), and
seeds that it takes (`seeding`)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Final

from drumlin.api.app import CoordinatorApp
from drumlin.coordinator.dispatch import Dispatcher
from drumlin.events.coordinating import CoordinatorEvents, Turn, always
from drumlin.events.kafka import Kafka
from drumlin.events.options import EventsOptions, SeedsOptions
from drumlin.serving.seeding import Seeding
from drumlin.store.files import StoreFiles
from drumlin.store.opening import in_bucket

CLAIM: Final = "events"
CLAIM_S: Final = 30.0


@contextlib.asynccontextmanager
async def kafka_used(
    app: CoordinatorApp,
    dispatcher: Dispatcher,
    events_to: EventsOptions | None,
    seeds_from: SeedsOptions | None,
    store: Path | None,
    now: Callable[[], Awaitable[float]],
    *,
    files: StoreFiles | None = None,
    alone: bool = False,
) -> AsyncIterator[Seeding | None]:
    """Produce and take for as long as the context lasts. It must end after whatever stores. `store` is a folder of this
    machine if the store, `files`, is in a bucket; then one coordinator tells of it, unless this one is `alone`."""
    async with contextlib.AsyncExitStack() as stack:
        events, seeding = None, None
        if events_to is not None and store is not None:
            crawl, name = dispatcher.crawl_id, dispatcher.name
            turn = always if alone else _turn(dispatcher, now)
            bucket = in_bucket(files)
            make = partial(CoordinatorEvents, crawl=crawl, coordinator=name, files=bucket, turn=turn)
            events = await asyncio.to_thread(make, events_to, store)
            dispatcher.happened.listener = events.happened
            await stack.enter_async_context(events.running())
        if seeds_from is not None:
            seeding = Seeding(seeds_from, dispatcher, now, app.work_may_have_come)
            await stack.enter_async_context(seeding.running())
        if events is not None or seeding is not None:
            app.use_kafka(Kafka(events, seeding))
        yield seeding


def _turn(dispatcher: Dispatcher, now: Callable[[], Awaitable[float]]) -> Turn:
    """One coordinator at a time tells of what is in a bucket: the one that holds a claim. If it lives no more, another
    gets the claim when it has run out."""

    async def claimed() -> bool:
        moment = await now()
        return await dispatcher.engine.claim(CLAIM, dispatcher.name, moment, until=moment + CLAIM_S)

    return claimed
