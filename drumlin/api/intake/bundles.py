"""Bundles: captures of nodes that cannot write to the store. A coordinator checks them and puts them into the store.

A bundle (`drumlin.store.bundles`) is written to a folder below `incoming/NODE`, in the store if that is a directory,
and compared with the SHA-256 that the node sent. Another process checks its files, then its rows are compared with its
receipts. Only then do its files enter the store (`StoreFiles.publish`).

Guarantees: when a bundle is answered with `stored` it is on the disk, safe from power loss. Sending it again changes
nothing. Every file is named after its segment and that segment's node, and contains only results of that node, each
with a receipt. So nobody can overwrite files of other nodes or of coordinators. Existing files are never changed, and a
segment enters the store as a whole. Bodies are never held in memory whole, a bundle
that comes too slowly is cut off, and what one node may send in all is bounded.

A coordinator cannot tell whether a page is what its site really sent: it must believe a node about what the node
fetched. It believes it about nothing else.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
import os
import re
import shutil
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from drumlin.access.misdeeds import Misdeed
from drumlin.api.bodies import BODY_GRACE_S, BODY_RATE_MIN
from drumlin.api.intake.checking import check_bundle, take_out_removed
from drumlin.api.intake.kept import Owe, owe_nothing
from drumlin.api.intake.places import Places, discard
from drumlin.api.routing import Call
from drumlin.config import CoordinatorConfig
from drumlin.config.quantities import format_size
from drumlin.coordinator.dispatch import Dispatcher
from drumlin.coordinator.taking.receipts import unsettled
from drumlin.disk import SCRATCH_PREFIX, translated_disk_errors
from drumlin.http.refusal import Refused
from drumlin.lifecycle.removal.tombstones import Tombstones, stored
from drumlin.logs import Event, event
from drumlin.protocol import SHARED, BundleOffer, BundlePlace, BundleStored
from drumlin.protocol.paths import SHA256_HEADER
from drumlin.protocol.refusals import NEVER_STORED, RefusalCode
from drumlin.store.bundles import BODY, BUNDLE_BYTES_MAX, RECEIPTS, RECEIPTS_BYTES_MAX, Verdict, belongs, unpacked
from drumlin.store.files import OtherContent, StoreFiles
from drumlin.store.names import node_of_segment
from drumlin.store.opening import in_bucket

WRITE_BYTES = 1024 * 1024
BUNDLES_AT_ONCE_MAX = 8
QUOTA_BYTES = CoordinatorConfig().bundle_quota_bytes
"""How much one node may send in all, by default."""
QUOTA_RETRY_S = 300.0
COUNTER = "bundle_bytes."
"""The start of the names of counters, kept in the first shard, of how much each node has sent."""
COUNTER_SHARD = 0
LEFTOVER_S = 2 * BUNDLE_BYTES_MAX / BODY_RATE_MIN
"""If nothing was written to a folder for this long, its coordinator has died: no bundle takes even half as long."""
INCOMING = "incoming"
_DIGEST_HEADER = SHA256_HEADER.lower().encode()
# Refusals that no drumlin node can cause, however it was killed.
LIES = frozenset({RefusalCode.NOT_A_BUNDLE, RefusalCode.NOT_SETTLED})

log = logging.getLogger("drumlin.coordinator")

_SHA256 = re.compile("[0-9a-f]{64}")


def check_bundle_id(bundle_id: str) -> None:
    if not node_of_segment(bundle_id):
        raise Refused(400, RefusalCode.BAD_BUNDLE_ID, "A bundle's id is the name of its segment, NODE-TIME-SERIAL.")


Bring = Callable[[Path], Awaitable[str]]
"""Writes a bundle to a file and returns its SHA-256."""


class Bundles:
    """Takes bundles into a store; without a store it refuses them. They are checked in `folder`, which is the store
    itself if that is a directory. A node may send `quota_bytes` in all."""

    def __init__(
        self, dispatcher: Dispatcher, folder: Path | None, files: StoreFiles | None, quota_bytes: int = QUOTA_BYTES
    ) -> None:
        self._dispatcher = dispatcher
        self._folder, self._files = folder, files
        self._quota_bytes = quota_bytes
        self._running = 0
        self._places = Places(dispatcher.engine)
        self.owe: Owe = owe_nothing
        self.owe_no_more: Owe = owe_nothing
        self._publishing: Counter[str] = Counter()
        """How many attempts at publishing each segment are under way; the lock is held to change what is owed."""
        self._owing = threading.Lock()

    def check_store(self, node: Mapping[str, str]) -> None:
        """Refuse a node that says of itself (`Register.metadata`) that it stores somewhere else: nobody would find its
        pages there."""
        mine, in_mine = str(self._files), in_bucket(self._files) is not None
        theirs = node.get("bucket", "")
        if self._files is not None and ((theirs and theirs != mine) or (in_mine and node.get("store") == SHARED)):
            message = f"This fleet stores in {mine}, and the node in {theirs or 'a directory'}."
            hint = f"Start it with --spool alone{f', or with --store {mine}' if in_mine else ''}."
            raise Refused(409, "other_store", message, hint)

    async def place(self, call: Call, offer: BundleOffer) -> BundlePlace:
        """Where a node shall put a bundle."""
        _, files = self._store()
        await self._check_quota(call.node_id)
        if offer.bytes > BUNDLE_BYTES_MAX:
            message = f"A bundle may have at most {BUNDLE_BYTES_MAX} bytes."
            raise Refused(409, RefusalCode.TOO_LARGE, message, "Make smaller bundles.")
        if files.inbox is None:
            return BundlePlace()
        # The service judges by the calendar how long the place is valid.
        now = time.time()
        await self._places.give(call.node_id, _inbox_name(call), offer, files.inbox, now)
        place = files.inbox.place(_inbox_name(call), offer.bytes, offer.sha256, now)
        return BundlePlace(place.url, place.headers)

    async def take(self, call: Call) -> BundleStored:
        """Store the bundle that a request carries."""
        digest = call.header(_DIGEST_HEADER)
        if _SHA256.fullmatch(digest) is None:
            raise Refused(400, "no_digest", f"{SHA256_HEADER} must hold the body's SHA-256 in hexadecimal.")
        return await self._take_in_turn(call, digest, lambda path: _receive(call, path))

    async def take_arrived(self, call: Call, offer: BundleOffer) -> BundleStored:
        """Store the bundle that a node has put where it was told."""
        _, files = self._store()
        inbox, name = files.inbox, _inbox_name(call)

        def fetch(path: Path) -> str:
            try:
                return inbox.fetch(name, offer.sha256, path, BUNDLE_BYTES_MAX) if inbox is not None else ""
            except FileNotFoundError:
                return ""

        try:
            stored = await self._take_in_turn(call, offer.sha256, lambda path: asyncio.to_thread(fetch, path))
        except Refused as refused:
            if inbox is not None and refused.code in (*NEVER_STORED, RefusalCode.DAMAGED):
                # Its place stays taken while it is valid: otherwise the same could be put there again and again.
                await discard(inbox, name, offer.sha256)
            raise
        if inbox is not None:
            await discard(inbox, name, offer.sha256)
            await self._places.free(call.node_id, name, offer.sha256)
        return stored

    def _store(self) -> tuple[Path, StoreFiles]:
        if self._folder is None or self._files is None:
            hint = "Give the coordinator a --store, or the node."
            raise Refused(409, "no_store", "This coordinator keeps no store.", hint)
        return self._folder, self._files

    async def _take_in_turn(self, call: Call, digest: str, bring: Bring) -> BundleStored:
        folder, files = self._store()
        if self._running >= BUNDLES_AT_ONCE_MAX:
            message = f"{BUNDLES_AT_ONCE_MAX} bundles are being taken already."
            raise Refused(503, "busy", message, "Wait as Retry-After says.", retry_after_s=5.0)
        self._running += 1
        try:
            await self._check_quota(call.node_id)
            return await self._take(folder, files, call, digest, bring)
        except Refused as refused:
            self._note(call, refused)
            raise
        finally:
            self._running -= 1

    async def _check_quota(self, node: str) -> None:
        totals = await self._dispatcher.totals(0.0)
        if totals.counters.get(COUNTER + node, 0) >= self._quota_bytes:
            message = f"Node {node} has sent its {format_size(self._quota_bytes)} of bundles."
            hint = "Raise --bundle-quota at the coordinators."
            raise Refused(429, "over_quota", message, hint, retry_after_s=QUOTA_RETRY_S, closes=True)

    async def _take(self, store: Path, files: StoreFiles, call: Call, digest: str, bring: Bring) -> BundleStored:
        segment = call.parameters["bundle_id"]
        # Each attempt has its own folder, because the same bundle may come twice at once.
        folder = store / INCOMING / call.node_id / f"{segment}.{os.urandom(4).hex()}"
        with translated_disk_errors(store):
            try:
                await asyncio.to_thread(folder.mkdir, parents=True)
                if await bring(folder / BODY) != digest:
                    raise Refused(
                        409, RefusalCode.DAMAGED, f"The body is not what {SHA256_HEADER} says.", "Send it again."
                    )
                verdict = await check_bundle(folder, segment)
                await asyncio.to_thread(self._check_settled, folder, segment, verdict)
                members = {member: unpacked(folder, member) for member in verdict.members}
                added = False
                removals = await asyncio.to_thread(files.removals)
                if await self._take_out_removed(folder, files, segment, members):
                    added = await asyncio.to_thread(self._publish, files, segment, members, removals)
            finally:
                await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
        if added:
            await self._dispatcher.engine.count(COUNTER_SHARD, {COUNTER + call.node_id: verdict.bytes})
        return BundleStored()

    async def _take_out_removed(self, folder: Path, files: StoreFiles, segment: str, members: dict[str, Path]) -> bool:
        """Take out what was removed on request while the node was away. False if the store has the segment already:
        then it may have been written anew since, and must not be compared."""
        removed = await asyncio.to_thread(self._removed, files)
        if not removed:
            return True
        if await asyncio.to_thread(files.has_segment, segment):
            return False
        counts = await take_out_removed(folder, members, removed)
        if counts.removed:
            said = "took %d records and %d rows out of bundle %s, because they were removed on request"
            log.info(said, counts.warc_records, counts.pages + counts.links + counts.fetches, segment)
        return True

    def _removed(self, files: StoreFiles) -> Tombstones:
        """What was removed on request. Nothing keeps a coordinator out of a bucket that was asleep when the others were
        ended and something was removed. So it goes by what is there, and not by what it has read when it began."""
        return self._dispatcher.findings.removed if in_bucket(files) is None else stored(files)

    def _publish(self, files: StoreFiles, segment: str, members: dict[str, Path], removals: str) -> bool:
        with self._owing:
            self._publishing[segment] += 1
            if not files.has_segment(segment):
                self.owe(segment)
        refused = False
        try:
            return files.publish(segment, members, removals)
        except OtherContent as other:
            refused = True
            raise Refused(409, RefusalCode.BUNDLE_EXISTS, other.message, other.hint) from other
        finally:
            self._published(files, segment, refused=refused)

    def _published(self, files: StoreFiles, segment: str, *, refused: bool) -> None:
        """An attempt has ended. If it was refused, nothing is owed, unless another attempt succeeds or has."""
        with self._owing:
            self._publishing[segment] -= 1
            if not self._publishing[segment]:
                del self._publishing[segment]
                if refused and not files.has_segment(segment):
                    self.owe_no_more(segment)

    def _check_settled(self, folder: Path, segment: str, verdict: Verdict) -> None:
        """Refuse a bundle with a row that has no receipt, or with a file that is not named after the segment."""
        if not verdict.claims or not all(belongs(member, segment) for member in verdict.members):
            raise Refused(409, RefusalCode.NOT_A_BUNDLE, "The check of the bundle went wrong.")
        with unpacked(folder, RECEIPTS).open("rb") as file:
            receipts = frozenset(file.read(RECEIPTS_BYTES_MAX).decode("ascii", "replace").split())
        claim = unsettled(self._dispatcher.seals, verdict.claims, receipts, segment, node_of_segment(segment))
        if claim is not None:
            message = f"The bundle tells of a result that was not settled: {claim.outcome} {claim.url[:200]}"
            raise Refused(409, RefusalCode.NOT_SETTLED, message)

    def _note(self, call: Call, refused: Refused) -> None:
        said = event(Event.REFUSED, node=call.node_id, code=refused.code)
        log.warning("refused a bundle of node %s: %s", call.node_id, refused.message, extra=said)
        if refused.code in LIES:
            self._dispatcher.misdeeds.note(call.node_id, Misdeed.BAD_BUNDLE)


def sweep(store: Path, now: float) -> None:
    """Remove what dead coordinators left of bundles and of other work; `now` is by the clock that dates files."""
    nodes, scratch = _folders(store / INCOMING, "*"), _folders(store.resolve(), SCRATCH_PREFIX + "*")
    for folder in (*(one for node in nodes for one in _folders(node, "*")), *scratch):
        if _written(folder) < now - LEFTOVER_S:
            shutil.rmtree(folder, ignore_errors=True)


def _folders(within: Path, pattern: str) -> list[Path]:
    """The folders in a folder. Others may write to a store too, and with a link that they put there they could have us
    remove what is ours elsewhere on this machine."""
    return [] if within.is_symlink() else [path for path in within.glob(pattern) if not path.is_symlink()]


def _written(folder: Path) -> float:
    """When something was last written to a folder; infinity if another coordinator is removing it."""
    try:
        return max(path.stat().st_mtime for path in (folder, *folder.iterdir()))
    except OSError:
        return math.inf


async def _receive(call: Call, part: Path) -> str:
    """Write the body to a file as it comes; returns its SHA-256."""
    digest, received, started = hashlib.sha256(), 0, asyncio.get_running_loop().time()
    waiting = bytearray()
    with part.open("xb") as file:
        try:
            async with asyncio.timeout(BODY_GRACE_S) as limit:
                more = True
                while more:
                    event = await call.receive()
                    if event["type"] == "http.disconnect":
                        raise Refused(400, "disconnected", "The connection ended before the body did.", closes=True)
                    chunk, more = event.get("body", b""), event.get("more_body", False)
                    received += len(chunk)
                    if received > call.route.body_bytes_max:
                        message = f"A bundle may have at most {call.route.body_bytes_max} bytes."
                        raise Refused(413, RefusalCode.TOO_LARGE, message, "Make smaller bundles.", closes=True)
                    digest.update(chunk)
                    waiting += chunk
                    if len(waiting) >= WRITE_BYTES or not more:
                        await asyncio.to_thread(file.write, bytes(waiting))
                        waiting.clear()
                    limit.reschedule(started + BODY_GRACE_S + received / BODY_RATE_MIN)
        except TimeoutError:
            raise Refused(408, "too_slow", f"The bundle came too slowly: {received} bytes.", closes=True) from None
    return digest.hexdigest()


def _inbox_name(call: Call) -> str:
    return f"{call.node_id}/{call.parameters['bundle_id']}"
