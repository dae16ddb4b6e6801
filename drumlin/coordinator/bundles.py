"""Bundles: captures of nodes that cannot write to the store, taken by a coordinator and put where they belong.

A bundle (`drumlin.store.bundles`) is written to a folder below `STORE/incoming/NODE`, compared with the SHA-256 that
the node sent, checked in a process of its own, its rows compared with its receipts; then its files get their names in
the store.

Guarantees: a bundle that is answered `stored` is on the disk, safe from power loss. Sending it again changes nothing.
Every file of it is named after its segment and its node, whose results, each with a receipt, are all that it tells of:
so nobody can write over another's files or a coordinator's own. No file that is there is ever changed, and a segment's
`pages` come last, since they make it count. Bodies are never held in memory whole, a bundle that comes too slowly is
cut off, and what one node may send in all is bounded.

It cannot tell whether a page is what its site sent: a node is trusted with what it fetched, and with nothing else.
"""

from __future__ import annotations

import asyncio
import filecmp
import hashlib
import logging
import math
import os
import re
import shutil
from pathlib import Path

import msgspec

from drumlin.config.quantities import format_size
from drumlin.coordinator.bodies import BODY_GRACE_S, BODY_RATE_MIN, Refused
from drumlin.coordinator.checking import check_bundle
from drumlin.coordinator.dispatch import Dispatcher
from drumlin.coordinator.misdeeds import Misdeed
from drumlin.coordinator.receipts import unsettled
from drumlin.coordinator.routing import Call
from drumlin.store.bundles import BODY, BUNDLE_BYTES_MAX, RECEIPTS, RECEIPTS_BYTES_MAX, Verdict, belongs, unpacked
from drumlin.store.disk import sync_directory, translated_disk_errors
from drumlin.store.names import node_of_segment

WRITE_BYTES = 1024 * 1024
BUNDLES_AT_ONCE_MAX = 8
QUOTA_BYTES = 1024**4
"""What one node may send in all, unless told otherwise."""
QUOTA_RETRY_S = 300.0
COUNTER = "bundle_bytes."
"""What each node has sent, by the counters of the first shard."""
COUNTER_SHARD = 0
LEFTOVER_S = 2 * BUNDLE_BYTES_MAX / BODY_RATE_MIN
"""A folder that nothing was written to for so long is of a coordinator that died: no bundle takes half of it."""
INCOMING = "incoming"
SHA256_HEADER = b"x-drumlin-sha256"
# What no drumlin node sends, however it was killed.
LIES = frozenset({"not_a_bundle", "not_settled"})

log = logging.getLogger("drumlin.coordinator")

_SHA256 = re.compile("[0-9a-f]{64}")


class BundleStored(msgspec.Struct):
    status: str = "stored"


def check_bundle_id(bundle_id: str) -> None:
    if not node_of_segment(bundle_id):
        raise Refused(400, "bad_bundle_id", "A bundle's id is the name of its segment, NODE-TIME-SERIAL.")


class Bundles:
    """Takes bundles into a store; without one it refuses them. A node may send `quota_bytes` in all."""

    def __init__(self, dispatcher: Dispatcher, store: Path | None, quota_bytes: int = QUOTA_BYTES) -> None:
        self._dispatcher = dispatcher
        self._store = store
        self._quota_bytes = quota_bytes
        self._running = 0

    async def take(self, call: Call) -> BundleStored:
        """Store the bundle that a request carries."""
        if self._store is None:
            hint = "Give the coordinator a --store, or the node."
            raise Refused(409, "no_store", "This coordinator keeps no store.", hint)
        digest = call.header(SHA256_HEADER)
        if _SHA256.fullmatch(digest) is None:
            raise Refused(400, "no_digest", "X-Drumlin-Sha256 must hold the body's SHA-256 in hexadecimal.")
        if self._running >= BUNDLES_AT_ONCE_MAX:
            message = f"{BUNDLES_AT_ONCE_MAX} bundles are being taken already."
            raise Refused(503, "busy", message, "Wait as Retry-After says.", retry_after_s=5.0)
        self._running += 1
        try:
            await self._check_quota(call.node_id)
            return await self._take(self._store, call, digest)
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

    async def _take(self, store: Path, call: Call, digest: str) -> BundleStored:
        segment = call.parameters["bundle_id"]
        # A folder of its own for each attempt: the same bundle may come twice at once.
        folder = store / INCOMING / call.node_id / f"{segment}.{os.urandom(4).hex()}"
        with translated_disk_errors(store):
            try:
                await asyncio.to_thread(folder.mkdir, parents=True)
                if await _receive(call, folder / BODY) != digest:
                    raise Refused(409, "damaged", "The body is not what X-Drumlin-Sha256 says.", "Send it again.")
                verdict = await check_bundle(folder, segment)
                await asyncio.to_thread(self._check_settled, folder, segment, verdict)
                added = await asyncio.to_thread(_publish_all, folder, store, verdict.members)
            finally:
                await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
        if added:
            await self._dispatcher.engine.count(COUNTER_SHARD, {COUNTER + call.node_id: verdict.bytes})
        return BundleStored()

    def _check_settled(self, folder: Path, segment: str, verdict: Verdict) -> None:
        """Only what has a receipt is stored, under names of the segment that the receipts are for."""
        if not verdict.claims or not all(belongs(member, segment) for member in verdict.members):
            raise Refused(409, "not_a_bundle", "The check of the bundle went wrong.")
        with unpacked(folder, RECEIPTS).open("rb") as file:
            receipts = frozenset(file.read(RECEIPTS_BYTES_MAX).decode("ascii", "replace").split())
        claim = unsettled(self._dispatcher.seals, verdict.claims, receipts, segment, node_of_segment(segment))
        if claim is not None:
            message = f"The bundle tells of a result that was not settled: {claim.outcome} {claim.url[:200]}"
            raise Refused(409, "not_settled", message)

    def _note(self, call: Call, refused: Refused) -> None:
        log.warning("refused a bundle of node %s: %s (%s)", call.node_id, refused.message, refused.code)
        if refused.code in LIES:
            self._dispatcher.misdeeds.note(call.node_id, Misdeed.BAD_BUNDLE)


def sweep(store: Path, now: float) -> None:
    """Remove what dead coordinators left of bundles; `now` is of the clock that files are dated by."""
    for folder in (store / INCOMING).glob("*/*"):
        if _written(folder) < now - LEFTOVER_S:
            shutil.rmtree(folder, ignore_errors=True)


def _written(folder: Path) -> float:
    """When something was last written to a folder, which another coordinator may be removing."""
    try:
        return max(path.stat().st_mtime for path in (folder, *folder.iterdir()))
    except OSError:
        return math.inf


async def _receive(call: Call, part: Path) -> str:
    """Write the body to a file as it comes; its SHA-256."""
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
                        raise Refused(413, "too_large", message, "Make smaller bundles.", closes=True)
                    digest.update(chunk)
                    waiting += chunk
                    if len(waiting) >= WRITE_BYTES or not more:
                        await asyncio.to_thread(file.write, bytes(waiting))
                        waiting.clear()
                    limit.reschedule(started + BODY_GRACE_S + received / BODY_RATE_MIN)
        except TimeoutError:
            raise Refused(408, "too_slow", f"The bundle came too slowly: {received} bytes.", closes=True) from None
    return digest.hexdigest()


def _publish_all(folder: Path, store: Path, members: list[str]) -> bool:
    """Give the files of a bundle their names, `pages` last; whether any was new."""
    files = [(unpacked(folder, member), store / member) for member in members]
    for file, target in files:
        if target.exists():
            _check_same(file, target)
    files.sort(key=lambda entry: entry[1].parent.name == "pages")
    added = [_publish(file, target) for file, target in files]
    return any(added)


def _publish(file: Path, target: Path) -> bool:
    """Give a file its name, unless that is taken by the same content, since a bundle may be sent again."""
    target.parent.mkdir(parents=True, exist_ok=True)
    added = True
    try:
        os.link(file, target)
    except FileExistsError:
        _check_same(file, target)
        added = False
    sync_directory(target.parent)
    return added


def _check_same(file: Path, target: Path) -> None:
    if not filecmp.cmp(file, target, shallow=False):
        message = f"Another {target.name} is stored already."
        raise Refused(409, "exists", message, "Give each segment a name of its own.")
