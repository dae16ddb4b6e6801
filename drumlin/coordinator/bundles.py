"""Bundles: captures of nodes that cannot write to the store, taken by a coordinator and put where they belong.

A bundle is a plain tar of the files of one segment: `warc/NAME.warc.gz`, `warc/NAME.cdxj` and
`tables/{pages,links,fetches}/NAME.parquet`. It is written to a folder below `STORE/incoming/NODE`, checked against the
SHA-256 that the node sent, unpacked there, and its files are then given their names in the store.

Guarantees: a bundle that is answered `stored` is on the disk, safe from power loss. Sending it again changes nothing.
No name leads out of the store, no file that is there is ever changed, and a segment's `pages` come last, since they
make it count. Bodies are never held in memory whole, and a bundle that comes too slowly is cut off.
"""

from __future__ import annotations

import asyncio
import filecmp
import hashlib
import math
import os
import re
import shutil
import tarfile
from pathlib import Path

import msgspec

from drumlin.coordinator.bodies import BODY_GRACE_S, BODY_RATE_MIN, Refused
from drumlin.coordinator.routing import Call
from drumlin.store.disk import sync_directory, translated_disk_errors

BUNDLE_BYTES_MAX = 2 * 1024**3
MEMBERS_MAX = 1_000
WRITE_BYTES = 1024 * 1024
BUNDLES_AT_ONCE_MAX = 8
LEFTOVER_S = 2 * BUNDLE_BYTES_MAX / BODY_RATE_MIN
"""A folder that nothing was written to for so long is of a coordinator that died: no bundle takes half of it."""
INCOMING = "incoming"
BODY = "body.tar"
SHA256_HEADER = b"x-drumlin-sha256"

_BUNDLE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", re.ASCII)
_SHA256 = re.compile("[0-9a-f]{64}")
_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}"
_MEMBER = re.compile(rf"warc/{_NAME}\.(?:warc\.gz|cdxj)|tables/(?:pages|links|fetches)/{_NAME}\.parquet", re.ASCII)


class BundleStored(msgspec.Struct):
    status: str = "stored"


def check_bundle_id(bundle_id: str) -> None:
    if _BUNDLE_ID.fullmatch(bundle_id) is None:
        message = "A bundle's id is 1 to 128 letters, digits, dots, dashes and underscores."
        raise Refused(400, "bad_bundle_id", message)


class Bundles:
    """Takes bundles into a store; without one it refuses them."""

    def __init__(self, store: Path | None) -> None:
        self._store = store
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
            return await self._take(self._store, call, digest)
        finally:
            self._running -= 1

    async def _take(self, store: Path, call: Call, digest: str) -> BundleStored:
        # A folder of its own for each attempt: the same bundle may come twice at once.
        folder = store / INCOMING / call.node_id / f"{call.parameters['bundle_id']}.{os.urandom(4).hex()}"
        with translated_disk_errors(store):
            try:
                await asyncio.to_thread(folder.mkdir, parents=True)
                if await _receive(call, folder / BODY) != digest:
                    raise Refused(409, "damaged", "The body is not what X-Drumlin-Sha256 says.", "Send it again.")
                await asyncio.to_thread(_unpack, folder, store)
            finally:
                await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
        return BundleStored()


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


def _unpack(folder: Path, store: Path) -> None:
    """Put the members where they belong: all are on the disk before any gets its name, `pages` last."""
    try:
        with tarfile.open(folder / BODY, "r:") as bundle:
            files = [(_write(bundle, member, folder), store / member.name) for member in _checked(bundle)]
    except tarfile.TarError as wrong:
        raise Refused(409, "not_a_bundle", f"The body is not a bundle: {wrong}.") from wrong
    for file, target in files:
        if target.exists():
            _check_same(file, target)
    files.sort(key=lambda entry: entry[1].parent.name == "pages")
    for file, target in files:
        _publish(file, target)


def _checked(bundle: tarfile.TarFile) -> list[tarfile.TarInfo]:
    """The members, if every one of them may be in a bundle, once."""
    members: dict[str, tarfile.TarInfo] = {}
    for member in bundle:
        if len(members) >= MEMBERS_MAX or not member.isreg() or _MEMBER.fullmatch(member.name) is None:
            raise Refused(409, "not_a_bundle", f"{member.name[:200]!r} does not belong into a bundle.")
        if member.name in members or ".." in member.name:
            raise Refused(409, "not_a_bundle", f"{member.name!r} cannot be stored.")
        members[member.name] = member
    if not members:
        raise Refused(409, "not_a_bundle", "The bundle is empty.")
    return list(members.values())


def _write(bundle: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> Path:
    """The member in a file of its own, on the disk."""
    target = folder / member.name.replace("/", "-")
    source = bundle.extractfile(member)
    with target.open("xb") as file:
        if source is not None:
            shutil.copyfileobj(source, file, WRITE_BYTES)
        file.flush()
        os.fsync(file.fileno())
    return target


def _publish(file: Path, target: Path) -> None:
    """Give a file its name, unless that is taken by the same content, since a bundle may be sent again."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(file, target)
    except FileExistsError:
        _check_same(file, target)
    sync_directory(target.parent)


def _check_same(file: Path, target: Path) -> None:
    if not filecmp.cmp(file, target, shallow=False):
        message = f"Another {target.name} is stored already."
        raise Refused(409, "exists", message, "Give each segment a name of its own.")
