"""The places in the inbox of a bucket that nodes were given, and how many each may have at a time.

Whoever has a signed address may put there what it announced until the address runs out, whatever a coordinator thinks
of the node by then. So a place counts from when it is given until its bundle is stored or its time is over, and a node
may have few. The places are noted in the engine, since each call may come to another coordinator.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final
from weakref import WeakValueDictionary

import msgspec

from drumlin.engines.base import Engine
from drumlin.errors import StorageError
from drumlin.http.refusal import Refused
from drumlin.protocol import BundleOffer
from drumlin.store.bundles import BUNDLE_BYTES_MAX
from drumlin.store.files import Inbox

TABLE: Final = "places."
PLACES_MAX: Final = 16
"""A node of drumlin's sends one bundle at a time."""
PLACES_BYTES_MAX: Final = 2 * BUNDLE_BYTES_MAX
LATE_S: Final = 300.0
"""By how much the clocks of coordinators and of the service may differ."""
RETRY_S: Final = 60.0


class _Place(msgspec.Struct, array_like=True, frozen=True):
    """For how many bytes, and until when. `name` and `digest` are those of the bundle."""

    name: str
    digest: str
    bytes: int
    until: float


class Places:
    """Counts the places of each node. `now` is the calendar, by which the service judges signed addresses."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._asking: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """For each node that is asking: it may ask many times at once, and all would find a place free."""

    async def give(self, node: str, name: str, offer: BundleOffer, inbox: Inbox, now: float) -> None:
        """Note a place; `Refused` if the node has too many. The same bundle has the same place again."""
        async with self._asking.setdefault(node, asyncio.Lock()):
            await self._give(node, name, offer, inbox, now)

    async def _give(self, node: str, name: str, offer: BundleOffer, inbox: Inbox, now: float) -> None:
        table, key = TABLE + node, f"{name}-{offer.sha256}"
        kept = await self._engine.get_entries(table)
        places = {one: msgspec.msgpack.decode(noted, type=_Place) for one, noted in kept.items()}
        over = {one: place for one, place in places.items() if place.until <= now}
        for place in over.values():
            # Whatever was put there and never told of.
            await discard(inbox, place.name, place.digest)
        await self._engine.delete_entries(table, list(over))
        others = [place for one, place in places.items() if one != key and one not in over]
        if len(others) >= PLACES_MAX or sum(place.bytes for place in others) + offer.bytes > PLACES_BYTES_MAX:
            message = f"Node {node} has {len(others)} places for bundles that are not stored yet, and may have no more."
            raise Refused(429, "too_many_places", message, "Send what it has places for.", retry_after_s=RETRY_S)
        place = _Place(name, offer.sha256, offer.bytes, now + inbox.valid_s + LATE_S)
        await self._engine.put_entries(table, {key: msgspec.msgpack.encode(place)})

    async def free(self, node: str, name: str, digest: str) -> None:
        """The bundle is stored."""
        await self._engine.delete_entries(TABLE + node, [f"{name}-{digest}"])


async def discard(inbox: Inbox, name: str, digest: str) -> None:
    """Remove what was put into a place. If this fails, it is collected later."""
    with contextlib.suppress(StorageError):
        await asyncio.to_thread(inbox.discard, name, digest)
